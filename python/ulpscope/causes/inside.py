# SPDX-License-Identifier: Apache-2.0
"""Mistakes in one operator inside a call: other numbers, another operator in its place, a
term or the end of a reduction left out, a mask or an index off by one, epsilon on the wrong
side of a root. Each is (text, edits for `Lab.edited`). Neighbours: `edits` (mistakes
in the arguments of the whole call), `lab` (runs them), `diagnose` (chooses).
"""

import re

import torch
from torch.nn import functional
from torch.utils._python_dispatch import _disable_current_modes

from ..calls.replay import View
from .edits import misread, other_lists, other_values, phrase, roll_edits, step_by_one, step_edits
from .edges import COMPARING, groups, together
from .neighbours import formulas, relatives
from .slices import scaled, sizes_to_drop

COUNTING = {"amax", "amin", "max", "argmax", "var_mean", "std"}  # what a zero is not nothing for
REDUCING = {"var_mean", "std", "sum", "mean", "mm", "bmm", "amax", "amin", "prod", "convolution", "matmul", "dot",
            "mv", "max", "argmax", "cumsum", "index_add", "scatter_add", "index_put", "nansum",
            "addmm", "baddbmm", "scatter_reduce", "linear", "var", "index", "gather", "embedding",
            "_scaled_dot_product_flash_attention_for_cpu"}  # fmt: skip
PRODUCTS = {"mm", "bmm", "addmm", "baddbmm", "convolution", "linear", "mv", "dot", "addmv",
            "matmul", "addbmm", "convolution_backward", "_addmm_activation",
            "_scaled_dot_product_flash_attention_for_cpu"}  # fmt: skip


GRADIENT = re.compile("(_dense)?_(forward|backward)(_data)?$")  # what the name of a gradient has more
MOST_ALIKE = 8  # operators of one name that share a mistake
MOST_PAIRS = 28  # of constants that may be exchanged


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


def _positions(func):
    return {a.name: i for i, a in enumerate(func._schema.arguments)}


def with_argument(name, value, shape=()):
    """An edit of one operator: the argument `name` is `value`, or value(old). A result that has
    another shape by that is cut to `shape`, with zeros where it ends early."""

    def edit(func, args, kwargs):
        i = _positions(func)[name]
        old = kwargs[name] if name in kwargs else args[i] if i < len(args) else None
        new = value(old) if callable(value) else value
        if i < len(args):
            args = (*args[:i], new, *args[i + 1 :])
        else:
            kwargs = {**kwargs, name: new}
        return fitted(func(*args, **kwargs), shape)

    return edit


def fitted(out, shape):
    """A float result, or the first of several, in the shape of the right one: cut, or zeros behind
    it. A kernel would trust indices that are made up."""
    if isinstance(out, (tuple, list)):
        return type(out)((fitted(out[0], shape), *out[1:])) if out else out
    if not shape or not isinstance(out, torch.Tensor) or out.shape == shape or not out.is_floating_point():
        return out
    if out.dim() != len(shape):
        raise LookupError("another rank")
    for axis, size in enumerate(shape):
        out = out.narrow(axis, 0, min(size, out.shape[axis]))
    sides = [v for size, n in zip(reversed(shape), reversed(out.shape)) for v in (0, size - n)]
    return functional.pad(out, sides) if any(sides) else out


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
        if argument.name == "dim" and node.name in WHOLE and old is not None and node.shape:
            yield f"along all axes instead of {old} in {node.name}", {node.place: _over_all(node.shape)}
        if old is None and argument.name == "correction":
            old, news = 1, [0]
        if isinstance(old, list) and len(old) > 1 and node.name.startswith("_fft") and argument.name == "dim":
            news = [old[:i] + old[i + 1 :] for i in range(len(old))]
        news = [*news, *other_lists(argument.name, old)] if isinstance(old, list) else news
        if isinstance(old, (int, float)) and "Optional" in str(argument.type):
            news = [None, *news]
        for new in news:
            yield (phrase(node.name, argument.name, old, new),
                   {node.place: with_argument(argument.name, new, node.shape)})  # fmt: skip
        low, high = node.value("min"), node.value("max")
        if argument.name == "max" and all(isinstance(v, float | int) for v in (low, high)) and low < high:
            middle, half = (low + high) / 2, (high - low) / 2
            for by in (0.1, 10.0, 0.5, 2.0):
                yield (f"the bounds of {node.name} are {middle:.6g} -+ {by * half:.6g} instead of {half:.6g}",
                       {node.place: lambda func, args, kwargs, m=middle, h=by * half: args[0].clamp(m - h, m + h)})  # fmt: skip
        if argument.name == "state_steps" and isinstance(old, list):
            for text, change in step_edits("state_steps"):
                yield text, {node.place: with_argument(
                    "state_steps", lambda steps, c=change: [c(t) for t in steps])}  # fmt: skip
        if hasattr(old, "shape") and "Optional" in str(argument.type):
            name = argument.name
            yield (f"dropped contribution: the {name} is ignored",
                   {node.place: with_argument(name, None)})  # fmt: skip


WHOLE = ("sum", "mean", "amax", "amin")
AXED = {*WHOLE, "var", "std", "var_mean", "linalg_vector_norm", "norm", "prod", "logsumexp", "_softmax", "softmax"}


def axes(lab):
    """(text, edits): reductions over other axes, each and those that share theirs together."""
    held = {}
    for nodes in groups(lab):
        dim = nodes[0].value("dim")
        dim = [dim] if isinstance(dim, int) else dim
        if nodes[0].name in AXED and dim and len(nodes[0].place) == 1 and hasattr(nodes[0].args[0], "shape"):
            held.setdefault((tuple(dim), nodes[0].args[0].shape), []).append(nodes)
    for (dim, shape), every in held.items():
        for some in (*([nodes] for nodes in every), *([every] if len(every) > 1 else ())):
            of = " and ".join(dict.fromkeys(nodes[0].name.strip("_") for nodes in some))
            for new in _other_axes(dim, len(shape)):
                edits = {n.place: with_argument("dim", new if isinstance(n.value("dim"), list) else new[0])
                         for nodes in some for n in nodes}  # fmt: skip
                if len(new) == 1 or all(isinstance(nodes[0].value("dim"), list) for nodes in some):
                    along = "all axes" if len(new) == len(shape) else f"dimension {list(new)}"
                    yield f"along {along} instead of {list(dim)} in {of}", edits


def _other_axes(dim, rank):
    """One axis for another, one more, one less."""
    own = [d % rank for d in dim]
    others = [d for d in range(rank) if d not in own]
    yield from ([d] for d in others if len(own) == 1)
    yield from (sorted([*own, d]) for d in others)
    yield from ([d for d in own if d != lost] for lost in own if len(own) > 1)


def _over_all(shape):
    """A reduction over all axes in place of some."""
    def edit(func, args, kwargs):
        of = {"amax": torch.amax, "amin": torch.amin, "sum": torch.sum, "mean": torch.mean}[func._opname]
        return of(args[0]).expand(shape).clone()

    return edit


EQUALS = ({"lt", "le"}, {"gt", "ge"})


def node_swaps(lab, node):
    """Another operator in place of one."""
    for name in relatives(node.name):
        note = " (weight decay coupled as L2 or decoupled)" if "adam" in name else ""
        note = " (the sign of a term is flipped)" if name in ("add", "sub") else note
        note = " (equal elements compare otherwise)" if {name, node.name} in EQUALS else note
        yield (f"wrong variant: {name.lstrip('_')} instead of {node.name.lstrip('_')}{note}",
               {node.place: _swapped(name)})  # fmt: skip


def node_forms(lab, node):
    """Another formula in place of one operator; a step that writes in place, left out."""
    if not node.writes:
        for text, formula in formulas(node.name):
            yield text, {node.place: lambda func, args, kwargs, f=formula: instead(
                apart(f, *args, **kwargs), func, args, kwargs)}  # fmt: skip
    elif node.args and getattr(node.args[0], "floats", False):
        yield (f"dropped contribution: the step {node.name}_ is left out",
               {node.place: lambda func, args, kwargs: args[0]})  # fmt: skip


def apart(function, *args, **kwargs):
    """Runs as it is, held to no precision."""
    with _disable_current_modes():
        return function(*args, **kwargs)


def instead(made, func, args, kwargs):
    """What another formula made, as the first result of an operator that gives several."""
    several = len(func._schema.returns) > 1 and isinstance(made, torch.Tensor)
    return (made, *func(*args, **kwargs)[1:]) if several else made


def _swapped(name):
    name = f"_{name}" if name in ("softmax", "log_softmax") else name

    def edit(func, args, kwargs):
        own = func._schema.name.rpartition("::")[2]
        if own.endswith("_") and hasattr(torch.ops.aten, f"{name}_"):
            packet = getattr(torch.ops.aten, f"{name}_")
        else:
            packet = getattr(torch.ops.aten, name)
        try:
            made = packet(*args, **kwargs)
        except (RuntimeError, TypeError):
            made = packet(*args)
        return instead(made, func, args, kwargs)

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
            out = out.expand(torch.broadcast_shapes(out.shape, args[i].shape)).clone()
            return _rest(node.name, out, kwargs) if i == 0 else out

        yield f"dropped contribution: a {kind} of {node.name} is missing", {node.place: edit}


def _rest(name, second, kwargs):
    """What the second operand alone gives."""
    if name in ("add", "sub"):
        return second * (kwargs.get("alpha", 1) * (-1 if name == "sub" else 1))
    return 1 / second if name == "div" else second


# Functions of one argument that a formula may lack.
UNARY = {"sqrt": "the root", "exp": "exp", "log": "log", "log1p": "log1p", "log2": "log2",
         "abs": "the absolute value", "neg": "the sign", "sigmoid": "sigmoid", "tanh": "tanh",
         "relu": "relu", "reciprocal": "the reciprocal", "deg2rad": "deg2rad", "rad2deg": "rad2deg",
         "clamp": "the clamp", "clamp_min": "the clamp", "clamp_max": "the clamp", "sign": "sign", "square": "the square", "erf": "erf", "round": "the rounding",
         "rsqrt": "the reciprocal root", "cumsum": "the running sum", "silu": "silu", "gelu": "gelu",
         "_softmax": "softmax", "_log_softmax": "log_softmax"}  # fmt: skip


def node_without(lab, node):
    """A formula without one of its functions, or with a factor that counts twice."""
    if node.writes or not node.args or not getattr(node.args[0], "floats", False):
        return
    if node.name in UNARY:
        yield (f"wrong variant: {UNARY[node.name]} is missing ({node.name.lstrip('_')} left out)",
               {node.place: lambda func, args, kwargs: args[0].clone()})  # fmt: skip
    if node.name == "mul" and len(node.args) > 1 and hasattr(node.args[1], "shape"):
        for i in (1, 0):
            yield ("wrong variant: a factor of mul is applied twice (squared)",
                   {node.place: lambda func, args, kwargs, i=i: func(*args, **kwargs) * args[i]})  # fmt: skip


def exchanged_numbers(lab):
    """Two constants of a formula in each other's place."""
    held = [(n, n.args[1]) for n in lab.nodes() if n.name in ("mul", "div", "add", "sub") and not n.writes
            and len(n.args) > 1 and isinstance(n.args[1], (int, float))]  # fmt: skip
    pairs = [(a, b) for i, a in enumerate(held) for b in held[i + 1 :] if a[1] != b[1]
             and a[0].name == b[0].name and 0.01 < abs(a[1] / (b[1] or 1e300)) < 100]
    for (a, x), (b, y) in pairs if len(pairs) <= MOST_PAIRS else ():
        yield (f"the constants {x:.6g} and {y:.6g} of {a.name} and {b.name} are exchanged (swapped)",
               {a.place: _second(y), b.place: _second(x)})  # fmt: skip


def _second(value):
    return lambda func, args, kwargs: func(args[0], value, *args[2:], **kwargs)


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
                lost = _without if node.name in COUNTING else _times
                yield (f"dropped contribution: the last {of} is missing",
                       {node.place: lost(i, axis, -t, 0)})  # fmt: skip
                if node.name in ("mean", "var"):
                    yield (f"dropped contribution: the last {of} is missing, and not counted",
                           {node.place: _without(i, axis, -t, 0)})  # fmt: skip
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
    if not (seen.floats or seen.dtype.is_complex) or not rank:
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
    """A mask inside that is read otherwise than it lies there, an index that is off by one."""
    for like in (torch.zeros_like, torch.ones_like) if node.name in COMPARING and not node.writes else ():
        yield (f"the mask is ignored: {node.name} is taken as {like is torch.ones_like} everywhere",
               {node.place: lambda func, args, kwargs, of=like: of(func(*args, **kwargs))})  # fmt: skip
    for i, seen in enumerate(node.args):
        if not hasattr(seen, "shape") or seen.floats or seen.dtype.is_complex or not seen.shape or node.writes:
            continue
        view = View("", "in", 0, seen.dtype, seen.shape, (), 0, "cpu")
        off = (*step_by_one("the index inside"), *roll_edits("the index inside", view))
        for text, change in misread("inside", view, 1) if seen.dtype == torch.bool else off:
            yield text, {node.place: _changed(i, change)}


def _changed(i, change):
    def edit(func, args, kwargs):
        args = list(args)
        args[i] = change(args[i])
        return func(*args, **kwargs)

    return edit


RELAID = {True: "halves are read interleaved, as pairs of neighbours", False: "pairs of neighbours (interleaved) are read as halves"}


def layouts(lab):
    """(text, run): halves taken for pairs or the reverse, as two layouts of rotary embeddings have
    it, also where the result is written; steps over an axis ignored."""
    for node in lab.nodes():
        if node.name in ("slice", "unfold") and isinstance(node.value("step"), int) and node.value("step") > 1:
            edit = with_argument("step", 1, node.shape)
            yield f"wrong stride: the step of a {node.name} is ignored", lambda e={node.place: edit}: lab.edited(e)
    cuts = [n for n in lab.nodes() if n.name in ("slice", "split", "chunk") and not n.writes]
    for pairs, text in RELAID.items():
        edits = {n.place: _relaid(pairs) for n in cuts if pairs == (n.name != "slice" or n.value("step") == 1)}
        if edits:
            yield f"wrong stride: {text}", lambda e=edits: lab.edited(e)
            yield (f"wrong stride: {text}, and so written", lambda e=edits, w=(2, -1) if pairs else (-1, 2): {
                p: t.unflatten(-1, w).transpose(-1, -2).flatten(-2) if t.dim() and t.shape[-1] % 2 == 0 else t
                for p, t in lab.edited(e).items()})  # fmt: skip


def _relaid(pairs):
    """Cuts an axis into every other element, or into halves, where the operator does the other."""
    def edit(func, args, kwargs):
        out, x = func(*args, **kwargs), args[0]
        parts = list(out) if isinstance(out, (list, tuple)) else [out]
        axis = next((a for a in range(x.dim()) if all(2 * p.shape[a] == x.shape[a] for p in parts)), None)
        if axis is None:
            return out
        other = x.unflatten(axis, (-1, 2)).unbind(axis + 1) if pairs else x.chunk(2, axis)
        made = [other[int(p.storage_offset() != x.storage_offset())] for p in parts]
        return made if isinstance(out, (list, tuple)) else made[0]

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


def by_name(lab):
    """Operators of one name at several places, the gradient's with the function's: a function that
    is called for each operand, a number that several layers share or that its gradient has too."""
    held = {}
    for node in lab.nodes():
        held.setdefault(GRADIENT.sub("", node.name), []).append(node)
    for nodes in held.values():
        if 1 < len(nodes) <= MOST_ALIKE and len({(n.site or n.place, len(n.place)) for n in nodes}) > 1:
            yield nodes


def operator_edits(lab, deep):
    """Everything that may be wrong with one operator inside the call: with those that it calls,
    or with `deep` those that these are made of."""
    every = [nodes for nodes in groups(lab) if (len(nodes[0].place) > 1) == deep]
    for text, e in exchanged_numbers(lab) if not deep else ():
        yield text, lambda e=e: lab.edited(e)
    yield from layouts(lab) if not deep else ()
    kinds = (node_terms, node_without, node_arguments, node_swaps, node_forms, node_masks)
    for make in kinds:
        alike = by_name(lab) if not deep and make in (node_without, node_swaps, node_arguments) else ()
        for nodes in (*alike, *every):
            for text, edits in together(make, lab, nodes):
                yield text, lambda e=edits: lab.edited(e)


def slice_edits(lab):
    """Reductions that leave something out or count it twice, all of a call or one of them."""
    for nodes in (*by_name(lab), *groups(lab)):
        for text, edits in together(node_slices, lab, nodes):
            yield text, lambda e=edits: lab.edited(e)
