# SPDX-License-Identifier: Apache-2.0
"""Mistakes of meaning in the arguments of a call: another value, a contribution left out
or counted twice, an index or a mask that is off by one, an operand read with the wrong
strides. Each is (text, run): what a report would say, and a function that gives the
outputs of such a mistake. Neighbours: `inside` (operators inside the call),
`lab` (runs them), `diagnose` (chooses).
"""

import itertools

import torch

from ..calls.replay import View
from .lab import leaves
from .slices import half_edits, slice_edits

EPSILONS = (0.0, 1e-12, 1e-10, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
REDUCTIONS = {0: "no reduction", 1: "mean", 2: "sum"}
GROUPS = (2, 4, 8, 16, 32)
# Names that stand for each other in an argument; those that a function does not know are refused.
NAMES = [("none", "tanh"), ("floor", "trunc", None), ("add", "multiply"), ("sum", "mean", "prod", "amax", "amin", "max", "min"),
         ("mean", "sum", "none", "batchmean"), ("zeros", "border", "reflection"),
         ("bilinear", "nearest", "bicubic", "nearest-exact", "linear", "trilinear", "area"),
         ("constant", "reflect", "replicate", "circular"), ("backward", "ortho", "forward"),
         ("linear", "nearest", "lower", "higher", "midpoint")]  # fmt: skip
ORDERS = (1.0, 2.0, 3.0, float("inf"))
MANY_STEPS = 1e9
LN2 = 0.6931471805599453
PI = 3.141592653589793


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
    if name == "reduction" and isinstance(old, str):
        return f"wrong reduction: {new} instead of {old}"
    if name in ("is_causal", "causal"):
        return f"the causal mask is {'applied' if new else 'missing'}"
    if name == "beta" and new == 0:
        return f"dropped contribution: the bias or summand is missing (beta {shown(old)} taken as 0)"
    if op in ("mul", "div") and name == "other" and isinstance(old, float) and _of_samples(old):
        return f"biased variance: the factor n / (n - 1) = {shown(old)} of {op} is " + (
            "missing" if new == 1 else f"taken as {shown(new)}")  # fmt: skip
    if op in ("mul", "div") and name == "other" and new == 1:
        return f"dropped contribution: the scale factor {shown(old)} of {op} is missing"
    if op in ("add", "sub") and name == "other" and new == 0:
        return f"dropped contribution: the constant term {shown(old)} of {op} is missing"
    if op in ("mul", "div") and name == "other":
        return _of_factor(op, old, new)
    if name == "exponent" and new == 1:
        return f"wrong variant: the {'root' if old < 1 else 'power'} is missing (exponent 1 instead of {shown(old)})"
    if op == "rsub" and name == "alpha" and new == 0:
        return "dropped contribution: the subtracted term is missing"
    if op in ("add", "sub") and name == "alpha" and new == 0:
        return f"dropped contribution: the second term of {op} is missing"
    if op in ("add", "sub") and name == "alpha" and old and new == -old:
        return f"the sign of the second term of {op} is flipped"
    if name in ("min", "max", "min_val", "max_val") and new in (float("inf"), -float("inf")):
        return f"the bound {name} of {op} is missing: not clamped at {shown(old)}"
    if new is None and name in ("min", "max"):
        return f"the bound {name} is ignored: not clamped at {shown(old)}"
    if new is None:
        return f"the argument {name} is ignored"
    if name in ("ignore_index", "padding_idx"):
        return f"the {name} {old} is ignored"
    if name in ("descending", "largest"):
        return f"wrong order: computes as if {name} were {new}"
    if name in ("dim", "axis"):
        return f"along dimension {shown(new)} instead of {shown(old)}"
    if name == "diagonal":
        return f"the mask is shifted by {abs(new - old)}: diagonal {new} instead of {old}"
    if new in (0, 1) and name in ("alpha", "beta", "scale", "weight_decay", "momentum", "value"):
        return f"{name} is ignored: taken as {shown(new)} instead of {shown(old)}"
    if isinstance(old, list):
        return f"wrong {name}: {_sides(new)} instead of {_sides(old)}"
    if name and isinstance(old, (bool, str)):
        return f"wrong variant: {name} is {shown(new)} instead of {shown(old)}"
    if isinstance(new, bool) and name:
        return f"wrong flag: computes as if {name} were {new} instead of {old}"
    return f"computes as if {name or 'an argument'} were {shown(new)} instead of {shown(old)}"


def _sides(values):
    return str(values[0]) if len(set(values)) == 1 else " x ".join(map(str, values))


def _of_factor(op, old, new):
    if new == 0:
        return f"dropped contribution: the term with the factor {shown(old)} of {op} is missing"
    if new == -old:
        return f"the sign of the factor {shown(old)} of {op} is flipped"
    return f"computes as if the scale factor of {op} were {shown(new)} instead of {shown(old)}"


def _of_samples(value):
    """Whether a number is n / (n - 1) for a count of samples."""
    n = value / (value - 1) if 1 < value < 1.5 else 0.0
    return n > 2.5 and abs(n - round(n)) < 1e-6 * n * n


def _is_small_term(op, name, old):
    return op == "add" and name == "other" and isinstance(old, float) and 0 < old <= 1e-2


def other_values(name, old, rank=0):
    """Values that somebody may have taken instead of `old`."""
    if isinstance(old, bool):
        return [not old]
    unbounded = [torch.inf if "max" in name else -torch.inf]
    unbounded = unbounded if name in ("min", "max", "min_val", "max_val") else []
    if unbounded and isinstance(old, (int, float)) and not isinstance(old, bool):
        return unbounded + other_values("", old)
    if isinstance(old, (int, float)) and name in ("p", "ord", "norm_type"):
        return [v for v in (*ORDERS, old + 1, old - 1, 2 * old) if v != old and v > 0]
    if isinstance(old, float):
        if old != old:
            return []
        if name in ("eps", "epsilon") or 0 < old <= 1e-4:
            return [v for v in EPSILONS if v != old] + [2 * old, 1.0]
        usual = [v for v in (0.9, 0.95, 0.99, 0.999) if name.startswith("beta") and 0.5 < old < 1]
        usual += [0.0, 1.0, 2 * old, old / 2, -old, 1 - old, old * old, abs(old) ** 0.5,
                 1 / old if old else 1.0]  # fmt: skip
        return [v for i, v in enumerate(usual) if v != old and v not in usual[:i]]
    if isinstance(old, str):
        return [v for kind in NAMES for v in kind if old in kind and v != old]
    if isinstance(old, int):
        if name == "reduction":
            return [v for v in REDUCTIONS if v != old]
        if name in ("dim", "axis"):
            return [d for d in range(rank) if d != old % max(rank, 1)]
        if name in ("ignore_index", "padding_idx"):
            return [-100 if name == "ignore_index" else -1]
        if name in ("dtype", "layout", "memory_format", "num_classes", "num_heads", "size"):
            return []
        return [*dict.fromkeys([old + 1, old - 1, 0, 1, 2 * old, -old])] if old else [1, -1]
    return []


# Lists with a number for each axis or side, and the number that does nothing.
LISTS = {"stride": 1, "dilation": 1, "padding": 0, "output_padding": 0, "kernel_size": None, "pad": 0, "shifts": 0}


def other_lists(name, old):
    """Lists that somebody may have taken instead: plain, exchanged, negated, by one more or less."""
    if name not in LISTS or not all(isinstance(v, int) for v in old):
        return []
    plain, size = LISTS[name], len(old)
    news = [[plain] * size] if plain is not None else []
    news += [[old[j] if k == i else old[i] if k == j else v for k, v in enumerate(old)]
             for i, j in itertools.combinations(range(size), 2)]  # fmt: skip
    news += [[v + by * (k in part) for k, v in enumerate(old)] for by in (1, -1)
             for part in (range(size), *([i] for i in range(size) if size > 1))]  # fmt: skip
    news += [[-v for v in old]] if plain == 0 else []
    least = {"pad": None, "shifts": None}.get(name, plain or 0)
    return [n for i, n in enumerate(news) if n != old and n not in news[:i] and (least is None or min(n) >= least)]


# ---- arguments of the whole call -----------------------------------------------------


def scalar_edits(lab):
    """The call with another number, flag or name among its arguments."""
    call = lab.call
    for path, name, old in _scalars(call):
        for new in other_values(name, old):
            yield (phrase(_op(call), name, old, new),
                   lambda p=path, v=new: lab.changed(lambda _: {p: v}))  # fmt: skip
    floats = [(p, n, v) for p, n, v in _scalars(call) if isinstance(v, float) and n]
    for i, (p, n, v) in enumerate(floats[:8]):
        for q, m, w in floats[i + 1 : 8]:
            if v != w:
                yield (f"the arguments {n} and {m} are exchanged (swapped)",
                       lambda other={p: w, q: v}: lab.changed(lambda _: other))  # fmt: skip


def _op(call):
    return call.op.rpartition("::")[2].split(".")[0]


def _scalars(call):
    kinds = (bool, int, float, str)
    return [(p, n, v) for p, n, v in leaves(call) if isinstance(v, kinds)]


def number_leaves(call):
    """(path, name, value) of the numbers of a call that may be others."""
    return [(p, n, v) for p, n, v in _scalars(call) if not isinstance(v, (bool, str))]


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
        missing = dict.fromkeys(paths)
        kind = "bias is missing" if name in ("bias", "b") else "argument is ignored"
        kind = "mask is missing" if "mask" in name else kind
        yield f"dropped contribution: {name}, the {kind}", lambda m=missing: lab.changed(lambda _: m)


def tensor_edits(lab, single=False, masks=False):
    """The call on a tensor that was read otherwise than it lies there; with `single` on the
    tensors of one element alone, as step counts are, with `masks` on masks and
    indices alone."""
    call = lab.call
    for name, paths, views in _tensors(call):
        if masks != (not views[0].dtype.is_floating_point) or (
            not masks and single != all(n == 1 for n in views[0].sizes)
        ):
            continue
        sizes = {n for p, v in call.views.items() if p not in paths and v.dtype.is_floating_point for n in v.sizes}
        for text, change in misread(name, views[0], len(views), sizes):
            yield text, lambda some=paths, c=change: lab.changed(lambda t: {p: c(t[p]) for p in some})


def pair_edits(lab):
    """Two tensors of one shape, as sines and cosines are, both shifted."""
    written = set(lab.call.written())
    tensors = [(n, p[0], v[0]) for n, p, v in _tensors(lab.call)
               if len(p) == 1 and p[0] not in written and v[0].dtype.is_floating_point]  # fmt: skip
    pairs = [(a, b) for i, a in enumerate(tensors) for b in tensors[i + 1 :] if a[2].sizes == b[2].sizes]
    for (n1, p1, v1), (n2, p2, _) in pairs if len(pairs) <= 6 else ():
        for axis in [a for a, size in enumerate(v1.sizes) if size > 1]:
            for by in (1, -1):
                yield (f"index shifted by one: {n1} and {n2} along axis {axis}",
                       lambda some=(p1, p2), a=axis, s=by: lab.changed(
                           lambda t: {p: t[p].roll(s, a) for p in some}))  # fmt: skip


def swap_edits(lab):
    """Two arguments of one shape in each other's place."""
    call = lab.call
    tensors = [(n, p[0], v[0]) for n, p, v in _tensors(call) if len(p) == 1]
    any_size = call.composite and not call.written()
    for i, (n1, p1, v1) in enumerate(tensors[:8]):
        for n2, p2, v2 in tensors[i + 1 : 8]:
            if (any_size or tuple(v1.sizes) == tuple(v2.sizes)) and v1.dtype == v2.dtype:
                yield (f"the arguments {n1} and {n2} are exchanged (swapped)",
                       lambda a=p1, b=p2: lab.changed(lambda t: {a: t[b].clone(), b: t[a].clone()}))  # fmt: skip
    for node in lab.nodes():
        seen = [a for a in node.args[:2] if hasattr(a, "shape")]
        if len(seen) == 2 and len({(a.shape, a.dtype) for a in seen}) == 1 and not node.writes:
            yield (f"the operands of {node.name} are exchanged (swapped)",
                   lambda p=node.place: lab.edited({p: _operands_swapped}))  # fmt: skip


def _operands_swapped(func, args, kwargs):
    return func(args[1], args[0], *args[2:], **kwargs)


def misread(name, view, count, sizes=()):
    if view.dtype == torch.bool:
        yield from _mask_edits(name, view)
        return
    n = 1
    for size in view.sizes:
        n *= size
    if view.dtype == torch.uint8:
        yield f"wrong type: {name} is read as signed (int8)", lambda t: t.view(torch.int8)
    if view.dtype.is_complex:
        yield from complex_edits(name)
    if view.dtype.is_floating_point:
        yield f"dropped contribution: {name} is ignored (taken as zero)", torch.zeros_like
        yield f"dropped contribution: {name} is ignored (taken as one)", torch.ones_like
        if n == 1:
            yield from step_edits(name)
            return
        yield f"the sign of {name} is lost: negated", torch.neg
        yield from _scaled_edits(name, view, sizes)
        yield from ((f"wrong index: {name} is read reversed along axis {a}", lambda t, i=a: t.flip(i))
                    for a, size in enumerate(view.sizes) if size > 1)  # fmt: skip
        if len(view.sizes) > 2:
            yield f"wrong index: {name} is read flipped (last two axes reversed)", lambda t: t.flip(-1, -2)
    if n == 1 or count > 1:
        return
    yield from _shape_edits(name, view, sizes)
    yield from half_edits(name, view)
    yield from slice_edits(name, view)


def _scaled_edits(name, view, sizes):
    """A tensor times what a formula often has: the square root of a size, 2, log 2."""
    known = {2.0: "2", 0.5: "1/2", LN2: "log 2", 1 / LN2: "1 / log 2", PI: "pi", 1 / PI: "1 / pi"}
    for n in {view.sizes[-1] if view.sizes else 1, *list(sizes)[:4]} - {1, 2, 4}:
        known |= {n**0.5: f"sqrt {n}", n**-0.5: f"1 / sqrt {n}"}
    for factor, text in known.items():
        yield (f"scale factor: computes as if {name} were multiplied by {text}",
               lambda t, f=factor: t * f)  # fmt: skip
    yield f"computes with 1 - {name} instead of {name} (swapped)", lambda t: 1 - t
    yield f"wrong variant: computes with 1 + {name} instead of {name}", lambda t: 1 + t
    yield f"wrong variant: computes with {name} - 1 instead of {name}", lambda t: t - 1
    yield f"wrong variant: computes with the square of {name}", lambda t: t * t
    if view.sizes and view.sizes[-1] > 2:
        yield (f"wrong variant: the mean of {name} is subtracted along the last axis",
               lambda t: t - t.mean(-1, keepdim=True))  # fmt: skip


def complex_edits(name):
    """(text, change) of a complex tensor."""
    yield f"the sign of the imaginary part of {name} is flipped (conjugated, conj)", torch.conj_physical
    yield f"dropped contribution: the imaginary part of {name} is ignored", lambda t: torch.complex(t.real, 0 * t.imag)
    yield f"dropped contribution: the real part of {name} is ignored", lambda t: torch.complex(0 * t.real, t.imag)
    yield f"the real and imaginary parts of {name} are exchanged", lambda t: torch.complex(t.imag, t.real)


def step_edits(name):
    yield "adds 1 to the step count a second time", lambda t: t + 1
    yield "does not count the current step in the step count", lambda t: t - 1
    yield "no bias correction", lambda t: t * 0 + MANY_STEPS


def _mask_edits(name, view):
    yield f"the mask is ignored: {name} taken as all true", torch.ones_like
    yield f"the mask is ignored: {name} taken as all false", torch.zeros_like
    yield f"the mask {name} is inverted, or what it chooses between is exchanged", torch.logical_not
    yield from roll_edits(f"the mask {name}", view)
    yield from group_edits(f"the mask {name}", view)
    for axis, size in enumerate(view.sizes):
        if size > 1:
            yield (f"wrong index: the mask {name} is read from its first slice along axis {axis} (broadcast)",
                   lambda t, a=axis: t.narrow(a, 0, 1).expand(t.shape))  # fmt: skip
        for first in (0, size - 1) if size > 2 else ():
            for value in (True, False):
                yield (f"the {'first' if first == 0 else 'last'} of the mask {name} along axis {axis} is always {value}",
                       lambda t, a=axis, i=first, v=value: t.index_fill(a, torch.tensor([i]), v))  # fmt: skip


def roll_edits(what, view):
    for axis, size in enumerate(view.sizes):
        for by in (1, -1) if size > 2 else (1,) if size == 2 else ():
            yield (f"{what} is shifted by one along axis {axis}",
                   lambda t, a=axis, s=by: t.roll(s, a))  # fmt: skip
            yield (f"{what} is shifted by one along axis {axis} (zeros come in)",
                   lambda t, a=axis, s=by: shifted(t, s, a))  # fmt: skip


def grouped(t, axis, size, last):
    """`t` as if `size` neighbours along an axis shared what the first or the last of them has."""
    i = torch.arange(t.shape[axis])
    i = (i // size * size + (size - 1 if last else 0)).clamp(max=t.shape[axis] - 1)
    return t.index_select(axis, i)


def group_edits(what, view):
    """One mask or index for a group of neighbours."""
    for axis in range(max(len(view.sizes) - 2, 0), len(view.sizes)):
        for size in GROUPS:
            for last in (True, False) if view.sizes[axis] > size else ():
                yield (f"{what} is shared by groups of {size} along axis {axis}: one for each tile",
                       lambda t, a=axis, s=size, e=last: grouped(t, a, s, e))  # fmt: skip


def shifted(t, by, axis):
    """`t` moved along an axis, zeros where nothing comes from."""
    out = t.roll(by, axis)
    out.narrow(axis, 0 if by > 0 else t.shape[axis] + by, abs(by)).zero_()
    return out


def step_by_one(name):
    yield f"index shifted by one: {name} + 1", lambda t: (t + 1).clamp(max=int(t.max()))
    yield f"index shifted by one: {name} - 1", lambda t: (t - 1).clamp(min=int(t.min()))


def _range(index, sizes):
    """How many values an index may have: the least size of a tensor beside it that holds all."""
    top = int(index.max()) + 1
    return max(min((s for s in sizes if s >= top), default=top), 1)


def _shape_edits(name, view, sizes=()):
    if not view.dtype.is_floating_point and not view.dtype.is_complex:
        yield from step_by_one(name)
        yield (f"wrong index: {name} is clamped below the last (saturated at the maximum less one)",
               lambda t: t.clamp(max=max(int(t.max()) - 1, int(t.min()))))  # fmt: skip
        for by in (1, -1) if view.sizes else ():
            yield (f"index shifted by one: {name} {'+' if by > 0 else '-'} 1, around the end",
                   lambda t, s=by: torch.where(t >= 0, (t + s) % _range(t, sizes), t))  # fmt: skip
    for a in range(len(view.sizes)):
        for b in range(a + 1, len(view.sizes)):
            if view.sizes[a] > 1 and view.sizes[b] > 1:
                yield (f"wrong stride: {name} is read transposed (axes {a} and {b})",
                       lambda t, i=a, j=b: t.transpose(i, j).reshape(t.shape))  # fmt: skip
    for a, size in enumerate(view.sizes):
        if size > 1:
            yield (f"wrong stride: {name} is read with stride 0 along axis {a} (the first is repeated, broadcast)",
                   lambda t, i=a: t.narrow(i, 0, 1).expand(t.shape))  # fmt: skip
    yield from roll_edits(name, view)


def stride_edits(lab):
    """Several tensors read as if they were contiguous: all that are not, and two of them."""
    written = set(lab.call.written())
    odd = [(n, p[0]) for n, p, v in _tensors(lab.call) if len(p) == 1 and p[0] not in written
           and not dense(v[0])]  # fmt: skip
    sets = [odd] if len(odd) > 1 else []
    sets += [[a, b] for i, a in enumerate(odd) for b in odd[i + 1 :]] if 2 < len(odd) <= 6 else []
    sets += [[a] for a in odd]
    for some in sets:
        for again in (True, False):
            yield (f"wrong stride: {' and '.join(n for n, _ in some)} read as if contiguous",
                   lambda some=some, w=again: lab.changed(
                       lambda t: {p: as_contiguous(t[p], w) for _, p in some}))  # fmt: skip


def dense(view):
    return tuple(view.strides) == tuple(torch.empty(view.sizes, device="meta").stride())


def as_contiguous(t, again=False):
    """The first elements of the storage in a row, followed by zeros or, `again`, themselves;
    indices stay within those there are."""
    flat = torch.empty(0, dtype=t.dtype).set_(t.untyped_storage())
    flat = flat[t.storage_offset() :]
    if flat.numel() < t.numel():
        more = flat.repeat(t.numel() // flat.numel()) if again else flat.new_zeros(t.numel() - flat.numel())
        flat = torch.cat([flat, more])
    out = flat[: t.numel()].reshape(t.shape).clone()
    return out if out.is_floating_point() or out.dtype == torch.bool else out.clamp(t.min(), t.max())
