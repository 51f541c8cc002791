# SPDX-License-Identifier: Apache-2.0
"""Mistakes of meaning: another argument value, another operator, a contribution left out
or counted twice, an index or a mask that is off by one, an operand read with the wrong
strides. Each is (text, run): what a report would say, and a function that gives the
outputs of such a mistake. Neighbours: `_causes_nodes` (runs them), `_diagnose` (chooses).
"""

import torch

from ._causes_nodes import changer, leaves
from ._replay import View

TILES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
EPSILONS = (0.0, 1e-12, 1e-10, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
REDUCTIONS = {0: "no reduction", 1: "mean", 2: "sum"}
MANY_STEPS = 1e9

# What else an operator may have been taken for.
SWAPS = {
    "gt": ["ge", "lt"], "ge": ["gt", "le"], "lt": ["le", "gt"], "le": ["lt", "ge"],
    "eq": ["ne"], "ne": ["eq"],
    "floor": ["trunc", "ceil", "round"], "ceil": ["floor", "trunc", "round"],
    "trunc": ["floor", "round"], "round": ["floor", "trunc", "ceil"],
    "argmax": ["argmin"], "argmin": ["argmax"], "amax": ["amin"], "amin": ["amax"],
    "max": ["min"], "min": ["max"], "maximum": ["minimum"], "minimum": ["maximum"],
    "add": ["sub"], "sub": ["add"], "mul": ["div"], "div": ["mul"],
    "log": ["log2", "log10", "log1p"], "log2": ["log", "log10"], "log10": ["log", "log2"],
    "log1p": ["log"], "exp": ["exp2", "expm1"], "exp2": ["exp"], "expm1": ["exp"],
    "sin": ["cos"], "cos": ["sin"], "sqrt": ["rsqrt"], "rsqrt": ["sqrt", "reciprocal"],
    "silu": ["gelu", "mish", "relu", "hardswish"], "gelu": ["silu", "relu", "mish"],
    "mish": ["silu", "gelu"], "relu": ["gelu", "leaky_relu", "silu"], "softplus": ["relu"],
    "hardswish": ["silu"], "hardsigmoid": ["sigmoid"], "leaky_relu": ["relu"], "elu": ["relu"],
    "tanh": ["sigmoid", "hardtanh"], "sigmoid": ["tanh", "hardsigmoid"],
    "_softmax": ["_log_softmax"], "_log_softmax": ["_softmax"], "sum": ["mean"],
    "mean": ["sum"], "cumsum": ["logcumsumexp"], "mse_loss": ["l1_loss", "smooth_l1_loss"],
    "l1_loss": ["mse_loss"], "smooth_l1_loss": ["mse_loss", "huber_loss"],
    "remainder": ["fmod"], "fmod": ["remainder"], "fmax": ["maximum"], "fmin": ["minimum"],
    "_fused_adam": ["_fused_adamw"], "_fused_adamw": ["_fused_adam"], "erf": ["tanh"],
    "bitwise_and": ["bitwise_or"], "bitwise_or": ["bitwise_and"],
    "logical_and": ["logical_or"], "logical_or": ["logical_and"],
    "upsample_bilinear2d": ["upsample_nearest2d"], "upsample_nearest2d": ["_upsample_nearest_exact2d"],
    "triu": ["tril"], "tril": ["triu"],
}  # fmt: skip
REDUCING = {"sum", "mean", "mm", "bmm", "amax", "amin", "prod", "convolution", "matmul", "dot",
            "mv", "max", "argmax", "cumsum", "index_add", "scatter_add", "index_put", "nansum",
            "addmm", "baddbmm", "scatter_reduce", "linear", "var", "index", "gather", "embedding",
            "_scaled_dot_product_flash_attention_for_cpu"}  # fmt: skip
PRODUCTS = {"mm", "bmm", "addmm", "baddbmm", "convolution", "linear", "mv", "dot", "addmv",
            "matmul", "addbmm", "convolution_backward", "_addmm_activation",
            "_scaled_dot_product_flash_attention_for_cpu"}  # fmt: skip


def shown(value):
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def phrase(op, name, old, new):
    """What it means that the argument `name` of an operator had another value."""
    if name in ("eps", "epsilon") or _is_small_term(op, name, old):
        return f"epsilon is {'missing' if new == 0 else f'{shown(new)} instead of {shown(old)}'}"
    if name in ("correction", "unbiased"):
        biased = new in (0, False)
        return ("biased variance: divided by n instead of n - 1" if biased
                else "unbiased variance: divided by n - 1 instead of n")  # fmt: skip
    if name == "approximate":
        return f"{'tanh' if new == 'tanh' else 'erf'} form of gelu instead of " + (
            "erf" if new == "tanh" else "tanh")  # fmt: skip
    if name == "reduction" and isinstance(old, int):
        return f"wrong reduction: {REDUCTIONS.get(new)} instead of {REDUCTIONS.get(old)}"
    if name in ("is_causal", "causal"):
        return f"the causal mask is {'applied' if new else 'missing'}"
    if name == "beta" and new == 0:
        return f"dropped contribution: the bias or summand is missing (beta {shown(old)} taken as 0)"
    if op in ("mul", "div") and name == "other" and new == 1:
        return f"dropped contribution: the scale factor {shown(old)} of {op} is missing"
    if op in ("add", "sub") and name == "other" and new == 0:
        return f"dropped contribution: the term {shown(old)} of {op} is missing"
    if new is None:
        return f"the argument {name} is ignored"
    if name in ("descending", "largest"):
        return f"wrong order: computes as if {name} were {new}"
    if name in ("dim", "axis"):
        return f"along dimension {shown(new)} instead of {shown(old)}"
    if name == "diagonal":
        return f"the mask is shifted by {abs(new - old)}: diagonal {new} instead of {old}"
    if new in (0, 1) and name in ("alpha", "beta", "scale", "weight_decay", "momentum", "value"):
        return f"{name} is ignored: taken as {shown(new)} instead of {shown(old)}"
    return f"computes as if {name or 'an argument'} were {shown(new)} instead of {shown(old)}"


def _is_small_term(op, name, old):
    return op == "add" and name == "other" and isinstance(old, float) and 0 < old <= 1e-2


def other_values(name, old, rank=0):
    """Values that somebody may have taken instead of `old`."""
    if isinstance(old, bool):
        return [not old]
    if isinstance(old, float):
        if old != old:
            return []
        if name in ("eps", "epsilon") or 0 < old <= 1e-4:
            return [v for v in EPSILONS if v != old] + [2 * old, 1.0]
        usual = [0.0, 1.0, 2 * old, old / 2, -old, 1 - old, old * old, abs(old) ** 0.5,
                 1 / old if old else 1.0]  # fmt: skip
        return [v for i, v in enumerate(usual) if v != old and v not in usual[:i]]
    if isinstance(old, str):
        others = {"none": ["tanh"], "tanh": ["none"], "floor": ["trunc", None],
                  "trunc": ["floor", None], "sum": ["mean"], "mean": ["sum"],
                  "bilinear": ["nearest"], "reflect": ["replicate"], "constant": ["reflect"],
                  "amax": ["amin"], "amin": ["amax"]}  # fmt: skip
        return others.get(old, [])
    if isinstance(old, int):
        if name == "reduction":
            return [v for v in REDUCTIONS if v != old]
        if name in ("dim", "axis"):
            return [d for d in range(rank) if d != old % max(rank, 1)]
        if name in ("ignore_index", "padding_idx"):
            return [-100 if name == "ignore_index" else -1]
        if name in ("dtype", "layout", "memory_format", "num_classes", "num_heads", "size"):
            return []
        return [old + 1, old - 1, 0, 1, 2 * old] if old else [1, -1]
    return []


# ---- arguments of the whole call -----------------------------------------------------


def scalar_edits(lab):
    """The call with another number, flag or name among its arguments."""
    call = lab.call
    for path, name, old in _scalars(call):
        for new in other_values(name, old):
            yield (phrase(_op(call), name, old, new),
                   lambda p=path, v=new: lab.run(change=changer([p], lambda _: v)))  # fmt: skip


def _op(call):
    return call.op.rpartition("::")[2].split(".")[0]


def _scalars(call):
    kinds = (bool, int, float, str)
    return [(p, n, v) for p, n, v in leaves(call) if isinstance(v, kinds)]


def _tensors(call):
    """(argument name, paths, views): tensors of a call by argument."""
    groups = {}
    for path, name, view in leaves(call):
        if isinstance(view, View) and 0 not in view.sizes:
            head = path if not path.startswith("args") else path.split("]")[0] + "]"
            by_name = f"{head}.{name}" if name else path
            groups.setdefault(by_name, (name or view.argument or path, [], []))
            groups[by_name][1].append(path)
            groups[by_name][2].append(view)
    return list(groups.values())


def optional_edits(lab):
    """The call without one of its tensors."""
    call = lab.call
    for name, paths, _ in _tensors(call):
        missing = changer(paths, lambda _: None)
        kind = "bias is missing" if name in ("bias", "b") else "argument is ignored"
        kind = "mask is missing" if "mask" in name else kind
        yield f"dropped contribution: {name}, the {kind}", lambda c=missing: lab.run(change=c)


def tensor_edits(lab):
    """The call on a tensor that was read otherwise than it lies there."""
    call = lab.call
    written = set(call.written())
    for name, paths, views in _tensors(call):
        for text, change in _misread(name, views[0], len(views)):
            edit = changer(paths, change, written)
            yield text, lambda c=edit: lab.run(change=c)


def pair_edits(lab):
    """Two tensors that share an axis, both without their last slices or both shifted."""
    call = lab.call
    written = set(call.written())
    tensors = [(n, p[0], v[0]) for n, p, v in _tensors(call)
               if len(p) == 1 and p[0] not in written and v[0].dtype.is_floating_point]  # fmt: skip
    pairs = [(a, b) for i, a in enumerate(tensors) for b in tensors[i + 1 :]]
    for (n1, p1, v1), (n2, p2, v2) in pairs if len(pairs) <= 15 else ():
        axes = [(i, j) for i, s in enumerate(v1.sizes) for j, t in enumerate(v2.sizes) if s == t > 1]
        for i, j in axes:
            for t in sizes_to_drop(v1.sizes[i]):
                yield (f"dropped contribution: the last {t} of {v1.sizes[i]} of {n1} and {n2} is missing",
                       lambda a=(p1, i), b=(p2, j), s=t: lab.run(change=_both(a, b, _shorter(s))))  # fmt: skip
            for by in (1, -1):
                yield (f"index shifted by one: {n1} and {n2} along axis {i}",
                       lambda a=(p1, i), b=(p2, j), s=by: lab.run(change=_both(a, b, _rolled(s))))  # fmt: skip


def swap_edits(lab):
    """Two arguments of one shape in each other's place."""
    call = lab.call
    tensors = [(n, p[0], v[0]) for n, p, v in _tensors(call) if len(p) == 1]
    for i, (n1, p1, v1) in enumerate(tensors[:8]):
        for n2, p2, v2 in tensors[i + 1 : 8]:
            if tuple(v1.sizes) == tuple(v2.sizes) and v1.dtype == v2.dtype:
                yield (f"the arguments {n1} and {n2} are exchanged (swapped)",
                       lambda a=p1, b=p2: lab.run(change=_swapping(a, b)))  # fmt: skip
    for node in lab.nodes():
        seen = [a for a in node.args[:2] if hasattr(a, "shape")]
        if len(seen) == 2 and seen[0].shape == seen[1].shape and not node.writes:
            yield (f"the operands of {node.name} are exchanged (swapped)",
                   lambda p=node.place: lab.edited({p: _operands_swapped}))  # fmt: skip


def _operands_swapped(func, args, kwargs):
    return func(args[1], args[0], *args[2:], **kwargs)


def _swapping(a, b):
    """Exchanges two tensors, or their contents where they may be written."""
    def apply(args, kwargs):
        held = {}

        def note(value, path):
            held[path] = value.clone()
            return value

        for path in (a, b):
            changer([path], lambda t, q=path: note(t, q))(args, kwargs)
        for path, other in ((a, b), (b, a)):
            args, kwargs = changer([path], lambda t, q=other: held[q], (path,))(args, kwargs)
        return args, kwargs

    return apply


def _shorter(count):
    return lambda t, axis: t.narrow(axis, 0, t.shape[axis] - count)


def _rolled(by):
    return lambda t, axis: t.roll(by, axis)


def _both(one, other, change):
    first = changer([one[0]], lambda t: change(t, one[1]))
    second = changer([other[0]], lambda t: change(t, other[1]))
    return lambda args, kwargs: second(*first(args, kwargs))


def _misread(name, view, count):
    if view.dtype == torch.bool:
        yield from _mask_edits(name, view)
        return
    n = 1
    for size in view.sizes:
        n *= size
    if view.dtype.is_floating_point:
        yield f"dropped contribution: {name} is ignored (taken as zero)", torch.zeros_like
        yield f"dropped contribution: {name} is ignored (taken as one)", torch.ones_like
        if n == 1:
            yield from _step_edits(name)
            return
        yield f"the sign of {name} is lost: negated", torch.neg
        yield from ((f"wrong index: {name} is read reversed along axis {a}", lambda t, i=a: t.flip(i))
                    for a, size in enumerate(view.sizes) if size > 1)  # fmt: skip
        if len(view.sizes) > 2:
            yield f"wrong index: {name} is read flipped (last two axes reversed)", lambda t: t.flip(-1, -2)
    if n == 1 or count > 1:
        return
    yield from _shape_edits(name, view)
    yield from _slice_edits(name, view)


def _step_edits(name):
    yield f"adds 1 to the step count a second time", lambda t: t + 1
    yield f"does not count the current step in the step count", lambda t: t - 1
    yield "no bias correction", lambda t: t * 0 + MANY_STEPS


def _mask_edits(name, view):
    yield f"the mask is ignored: {name} taken as all true", torch.ones_like
    yield f"the mask is ignored: {name} taken as all false", torch.zeros_like
    yield f"the mask {name} is inverted", torch.logical_not
    yield from _roll_edits(f"the mask {name}", view)


def _roll_edits(what, view):
    for axis, size in enumerate(view.sizes):
        for by in (1, -1) if size > 2 else (1,) if size == 2 else ():
            yield (f"{what} is shifted by one along axis {axis}",
                   lambda t, a=axis, s=by: t.roll(s, a))  # fmt: skip
            yield (f"{what} is shifted by one along axis {axis} (zeros come in)",
                   lambda t, a=axis, s=by: shifted(t, s, a))  # fmt: skip


def shifted(t, by, axis):
    """`t` moved along an axis, zeros where nothing comes from."""
    out = t.roll(by, axis)
    out.narrow(axis, 0 if by > 0 else t.shape[axis] + by, abs(by)).zero_()
    return out


def _shape_edits(name, view):
    if not view.dtype.is_floating_point:
        yield (f"index shifted by one: {name} + 1",
               lambda t: (t + 1).clamp(max=int(t.max())))  # fmt: skip
        yield f"index shifted by one: {name} - 1", lambda t: (t - 1).clamp(min=int(t.min()))
    for a in range(len(view.sizes)):
        for b in range(a + 1, len(view.sizes)):
            if view.sizes[a] > 1 and view.sizes[b] > 1:
                yield (f"wrong stride: {name} is read transposed (axes {a} and {b})",
                       lambda t, i=a, j=b: t.transpose(i, j).reshape(t.shape))  # fmt: skip
    dense = torch.empty(view.sizes, device="meta").stride()
    if tuple(view.strides) != tuple(dense):
        yield f"wrong stride: {name} is read as if it were contiguous", _as_contiguous
    yield from _roll_edits(name, view)


def _as_contiguous(t):
    flat = torch.empty(0, dtype=t.dtype).set_(t.untyped_storage())
    flat = flat[t.storage_offset() :]
    if flat.numel() < t.numel():
        flat = torch.cat([flat, flat.new_zeros(t.numel() - flat.numel())])
    return flat[: t.numel()].reshape(t.shape).clone()


def sizes_to_drop(size):
    """How many at the end of an axis a kernel may have left out: one, a tile, a rest."""
    usual = {t for t in TILES if t < size} | {size % t for t in TILES if t < size}
    return sorted(s for s in usual | {size // 2} if 0 < s < size)


def parts_of(size):
    """(first, count) of halves, quarters and eighths in the middle of an axis."""
    return [(i * size // m, (i + 1) * size // m - i * size // m)
            for m in (4, 8) if size >= m for i in range(1, m - 1)]  # fmt: skip


def _hole(i, axis, first, count):
    def edit(func, args, kwargs):
        args = list(args)
        args[i] = args[i].clone()
        args[i].narrow(axis, first, count).zero_()
        return func(*args, **kwargs)

    return edit


def _corner_edits(name, view):
    """The last element left out: of all, of each slice along the first axis, of the last
    two axes."""
    rank = len(view.sizes)
    for count in {rank, rank - 1, 2} - {0, 1}:
        if count <= rank:
            def change(x, c=count):
                x = x.clone()
                x[(..., *([-1] * c))] = 0
                return x

            yield (f"dropped contribution: the last element over {count} axes of {name} is missing",
                   change)  # fmt: skip


def _slice_edits(name, view):
    if view.dtype.is_floating_point:
        yield from _corner_edits(name, view)
    for axis, size in enumerate(view.sizes):
        for t in sizes_to_drop(size):
            of = f"{t} of {size} along axis {axis} of {name}"
            if view.dtype.is_floating_point:
                yield (f"dropped contribution: the last {of} is missing",
                       lambda x, a=axis, s=t: scaled(x, a, -s, 0))  # fmt: skip
        for t in sizes_to_drop(size) if view.dtype.is_floating_point else ():
            of = f"{t} of {size} along axis {axis} of {name}"
            if t in (1, 8, 16, 32, 64, 128):
                yield (f"dropped contribution: the first {of} is missing",
                       lambda x, a=axis, s=t: scaled(x, a, s, 0))  # fmt: skip
            yield (f"duplicate contribution: the last {of} counts twice",
                   lambda x, a=axis, s=t: scaled(x, a, -s, 2))  # fmt: skip


def scaled(x, axis, count, factor):
    """`x` with its first (count > 0) or last slices along an axis multiplied."""
    x = x.clone()
    start = 0 if count > 0 else x.shape[axis] + count
    part = x.narrow(axis, start, abs(count))
    part.copy_(part * factor if factor else torch.zeros_like(part))
    return x


# ---- operators inside ----------------------------------------------------------------


def _positions(func):
    return {a.name: i for i, a in enumerate(func._schema.arguments)}


def with_argument(name, value):
    """An edit of one operator: the argument `name` is `value`, or value(old)."""

    def edit(func, args, kwargs):
        i = _positions(func)[name]
        old = kwargs[name] if name in kwargs else args[i] if i < len(args) else None
        new = value(old) if callable(value) else value
        if i < len(args):
            args = (*args[:i], new, *args[i + 1 :])
        else:
            kwargs = {**kwargs, name: new}
        return func(*args, **kwargs)

    return edit


def node_arguments(lab, node):
    """Other numbers, flags and names in one operator inside the call."""
    for argument in node.func._schema.arguments:
        old = node.value(argument.name)
        rank = len(node.args[0].shape) if node.args and hasattr(node.args[0], "shape") else 0
        if isinstance(old, list) and len(old) == 1 and isinstance(old[0], int):
            news = [[v] for v in other_values(argument.name, old[0], rank)
                    if argument.name == "dim"]  # fmt: skip
        else:
            news = other_values(argument.name, old, rank)
        if isinstance(old, list) and argument.name in ("shifts", "flips", "pad", "padding"):
            news = [[-v for v in old], [v + 1 for v in old], [v - 1 for v in old], [0 for v in old]]
        if isinstance(old, (int, float)) and "Optional" in str(argument.type):
            news = [None, *news]
        for new in news:
            yield (phrase(node.name, argument.name, old, new),
                   {node.place: with_argument(argument.name, new)})  # fmt: skip
        if argument.name == "state_steps" and isinstance(old, list):
            for text, change in _step_edits("state_steps"):
                yield text, {node.place: with_argument(
                    "state_steps", lambda steps, c=change: [c(t) for t in steps])}  # fmt: skip
        if hasattr(old, "shape") and "Optional" in str(argument.type):
            name = argument.name
            yield (f"dropped contribution: the {name} is ignored",
                   {node.place: with_argument(name, None)})  # fmt: skip


def node_swaps(lab, node):
    """Another operator in place of one."""
    for name in SWAPS.get(node.name, ()):
        note = " (weight decay coupled as L2 or decoupled)" if "adam" in name else ""
        yield (f"wrong variant: {name.lstrip('_')} instead of {node.name.lstrip('_')}{note}",
               {node.place: _swapped(name)})  # fmt: skip


def _swapped(name):
    def edit(func, args, kwargs):
        own = func._schema.name.rpartition("::")[2]
        if own.endswith("_") and hasattr(torch.ops.aten, f"{name}_"):
            packet = getattr(torch.ops.aten, f"{name}_")
        else:
            packet = getattr(torch.ops.aten, name)
        try:
            return packet(*args, **kwargs)
        except (RuntimeError, TypeError):
            return packet(*args)

    return edit


def node_terms(lab, node):
    """A sum without one of its terms, a product without one of its factors."""
    if node.name not in ("add", "sub", "mul", "div", "rsub", "logaddexp", "maximum") or node.writes:
        return
    if len(node.args) < 2:
        return
    kind = "factor" if node.name in ("mul", "div") else "term"
    for i in (1, 0):
        if not hasattr(node.args[i], "shape"):
            continue

        def edit(func, args, kwargs, i=i):
            out = args[1 - i]
            if not isinstance(out, torch.Tensor):
                return out * torch.ones_like(args[i])
            return out.expand(torch.broadcast_shapes(out.shape, args[i].shape)).clone()

        yield f"dropped contribution: a {kind} of {node.name} is missing", {node.place: edit}


def node_slices(lab, node):
    """A reduction that leaves out its last elements or counts them twice."""
    if node.name in ("_softmax", "softmax", "logsumexp"):
        yield from _fewer_terms(node)
    if node.name not in REDUCING:
        return
    for i, seen in enumerate(node.args[:2]):
        if not hasattr(seen, "shape"):
            continue
        for axis in _reduced_axes(node, i, seen):
            size = seen.shape[axis]
            for t in sizes_to_drop(size):
                of = f"{t} of {size} along axis {axis} in {node.name}"
                lost = _without if node.name in ("amax", "amin", "max", "argmax") else _times
                yield (f"dropped contribution: the last {of} is missing",
                       {node.place: lost(i, axis, -t, 0)})  # fmt: skip
            for first, t in parts_of(size):
                yield (f"dropped contribution: {first} to {first + t - 1} of {size} along axis "
                       f"{axis} in {node.name} are missing", {node.place: _hole(i, axis, first, t)})  # fmt: skip
            for t in sizes_to_drop(size):
                of = f"{t} of {size} along axis {axis} in {node.name}"
                yield (f"dropped contribution: the first {of} is missing",
                       {node.place: _times(i, axis, t, 0)})  # fmt: skip
                yield (f"duplicate contribution: the last {of} counts twice",
                       {node.place: _times(i, axis, -t, 2)})  # fmt: skip


def _fewer_terms(node):
    """A softmax that leaves out its last terms."""
    seen, dim = node.args[0], node.value("dim")
    dim = dim[0] if isinstance(dim, (list, tuple)) and dim else dim
    if not isinstance(dim, int) or not seen.shape:
        return
    for t in sizes_to_drop(seen.shape[dim]):
        def change(x, t=t):
            x = x.clone()
            x.narrow(dim, x.shape[dim] - t, t).fill_(-torch.inf)
            return x

        yield (f"dropped contribution: the last {t} of {seen.shape[dim]} terms of "
               f"{node.name.lstrip('_')} is missing", {node.place: _changed(0, change)})  # fmt: skip


def _reduced_axes(node, i, seen):
    rank = len(seen.shape)
    if not seen.floats or not rank:
        return []
    if node.name in ("mm", "bmm", "matmul", "dot", "mv"):
        return [rank - 1] if i == 0 else []
    if node.name == "convolution":
        return range(1, rank) if i == 1 else []
    if i:
        return []
    dim = node.value("dim")
    if isinstance(dim, int):
        return [dim % rank]
    return [d % rank for d in dim] if dim else range(rank)


def _times(i, axis, count, factor):
    def edit(func, args, kwargs):
        args = list(args)
        args[i] = scaled(args[i], axis, count, factor)
        return func(*args, **kwargs)

    return edit


def _without(i, axis, count, _):
    def edit(func, args, kwargs):
        args = list(args)
        args[i] = args[i].narrow(axis, 0, args[i].shape[axis] + count)
        return func(*args, **kwargs)

    return edit


def node_masks(lab, node):
    """A mask or an index inside that is off by one, ignored or inverted."""
    for i, seen in enumerate(node.args):
        if not hasattr(seen, "shape") or seen.floats or not seen.shape:
            continue
        what = "mask" if seen.dtype == torch.bool else "index"
        view = View("", "in", 0, seen.dtype, seen.shape, (), 0, "cpu")
        edits = list(_roll_edits(f"the {what}", view)) if len(seen.shape) else []
        if seen.dtype == torch.bool:
            edits += [(f"the {what} is ignored", torch.zeros_like),
                      (f"the {what} is ignored", torch.ones_like),
                      (f"the {what} is inverted", torch.logical_not)]  # fmt: skip
        else:
            edits += [("index shifted by one", lambda t: (t + 1).clamp(max=int(t.max()))),
                      ("index shifted by one", lambda t: (t - 1).clamp(min=int(t.min())))]
        for text, change in edits:
            yield text, {node.place: _changed(i, change)}


def _changed(i, change):
    def edit(func, args, kwargs):
        args = list(args)
        args[i] = change(args[i])
        return func(*args, **kwargs)

    return edit


ROOTS = {"sqrt": lambda x, eps: torch.sqrt(x) + eps, "rsqrt": lambda x, eps: 1 / (torch.sqrt(x) + eps)}


def epsilon_places(lab):
    """An epsilon added outside the root instead of inside, or the reverse."""
    nodes = lab.nodes()
    for a, b in zip(nodes, nodes[1:]):
        eps = a.args[1] if len(a.args) > 1 else None
        if a.name == "add" and b.name in ROOTS and isinstance(eps, float):
            yield ("epsilon is outside the square root instead of inside",
                   {a.place: lambda f, args, k: args[0],
                    b.place: lambda f, args, k, e=eps, n=b.name: ROOTS[n](args[0], e)})  # fmt: skip
        eps = b.args[1] if len(b.args) > 1 else None
        if a.name == "sqrt" and b.name == "add" and isinstance(eps, float):
            yield ("epsilon is inside the square root instead of outside",
                   {a.place: lambda f, args, k, e=eps: torch.sqrt(args[0] + e),
                    b.place: lambda f, args, k: args[0]})  # fmt: skip


def operator_edits(lab):
    """Everything that may be wrong with one operator inside the call."""
    nodes = lab.nodes()
    yield from ((text, lambda e=e: lab.edited(e)) for text, e in epsilon_places(lab))
    kinds = (node_arguments, node_swaps, node_terms, node_masks, node_slices)
    for make in kinds:
        for node in nodes:
            for text, edits in make(lab, node):
                yield text, lambda e=edits: lab.edited(e)
