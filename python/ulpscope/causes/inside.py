# SPDX-License-Identifier: Apache-2.0
"""Mistakes in one operator inside a call: other numbers, another operator in its place, a
term or the end of a reduction left out, a mask or an index off by one, epsilon on the wrong
side of a root. A maker gives (text, edit of the operator) for a node, `edges.together` puts groups
of them into (text, edits for `Lab.run`). Neighbours: `edits` (the arguments of the whole call),
`changes` (of tensors), `neighbours` (operators for operators), `diagnose` (chooses).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from ..calls.foreign import foreign, theirs
from ..calls.older import pairwise
from ..calls.torch_private import bare_name, disable_current_modes
from . import changes
from .edges import COMPARING, PARTS, groups, operand, together
from .edits import other_lists, other_values, phrase
from .neighbours import TIES, formulas, relatives

if TYPE_CHECKING:
    from ..calls.torch_private import OpOverload
    from .graph import Node, Slot
    from .lab import Lab

COUNTING = {"amax", "amin", "max", "argmax", "var_mean", "std"}  # what a zero is not nothing for
PRODUCTS = frozenset(
    "mm bmm addmm baddbmm convolution linear mv dot addmv matmul addbmm convolution_backward _addmm_activation "
    "_scaled_dot_product_flash_attention_for_cpu".split()
)
REDUCING = frozenset(
    "sum mean prod cumsum index_add scatter_add index_put nansum scatter_reduce var index gather embedding".split()
).union(COUNTING, PRODUCTS - {"addmv", "addbmm", "convolution_backward", "_addmm_activation"})
WHOLE = ("sum", "mean", "amax", "amin")
AXED = {*WHOLE, "var", "std", "var_mean", "linalg_vector_norm", "norm", "prod", "logsumexp", "_softmax", "softmax"}
GRADIENT = re.compile("(_dense)?_(forward|backward)(_data)?$")  # what the name of a gradient has more
EQUALS = ({"lt", "le"}, {"gt", "ge"})
MOST_ALIKE = 8  # operators of one name that share a mistake
MOST_PAIRS = 28  # of constants that may be exchanged
# What gives one of its terms.
CHOICES = frozenset(
    "amax amin max min cummax cummin scatter_reduce max_pool2d_with_indices max_pool3d_with_indices "
    "adaptive_max_pool2d max_pool1d max_pool2d".split()
)


def apart(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Runs as it is, held to no precision."""
    with disable_current_modes():
        return theirs(function, *args, **kwargs)


# ---- arguments -------------------------------------------------------------------------------


def with_argument(name: str, value: Any, shape: Sequence[int] = ()) -> Callable[..., Any]:
    """An edit of one operator: the argument `name` is `value`, or value(old). A result that has
    another shape by that is cut to `shape`, with zeros where it ends early."""

    def edit(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        i = next((i for i, a in enumerate(func._schema.arguments) if a.name == name), None)
        if i is None:
            raise LookupError(f"no argument {name}")
        old = kwargs[name] if name in kwargs else args[i] if i < len(args) else None
        new = value(old) if callable(value) else value
        if i < len(args):
            args = (*args[:i], new, *args[i + 1 :])
        else:
            kwargs = {**kwargs, name: new}
        return fitted(func(*args, **kwargs), shape)

    return edit


def fitted(out: Any, shape: Sequence[int]) -> Any:
    """A float result, or the first of several, in the shape of the right one: cut, or zeros behind
    it. A kernel would trust indices that are made up."""
    if isinstance(out, (tuple, list)):
        return type(out)((fitted(out[0], shape), *out[1:])) if out else out
    if not shape or not isinstance(out, torch.Tensor) or out.shape == shape or not out.is_floating_point():
        return out
    if out.dim() != len(shape) or not out.numel():
        raise LookupError("another rank, or nothing")
    for axis, size in enumerate(shape):
        out = out.narrow(axis, 0, min(size, out.shape[axis]))
    sides = [v for size, n in zip(reversed(shape), reversed(out.shape)) for v in (0, size - n)]
    return functional.pad(out, sides) if any(sides) else out


def arguments(node: Node) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Other numbers, flags and names."""
    for argument in node.func._schema.arguments:
        name, old = argument.name, node.value(argument.name)
        for new in _others(node, argument, old):
            yield (
                phrase(node.name, name, 1 if old is None and name == "correction" else old, new),
                with_argument(name, new, node.shape),
            )
        if name == "dim" and node.name in WHOLE and old is not None and node.shape:
            yield f"along all axes instead of {old} in {node.name}", _over_all(node.shape)
        low, high = node.value("min"), node.value("max")
        if name == "max" and all(isinstance(v, (float, int)) for v in (low, high)) and low < high:
            middle, half = (low + high) / 2, (high - low) / 2
            for by in (0.1, 10.0, 0.5, 2.0):
                yield (
                    f"the bounds of {node.name} are {middle:.6g} -+ {by * half:.6g} instead of {half:.6g}",
                    lambda func, args, kwargs, m=middle, h=by * half: args[0].clamp(m - h, m + h),
                )
        for text, change in changes.STEPS if name == "state_steps" and isinstance(old, list) else ():
            yield text, with_argument(name, lambda steps, c=change: [c(t) for t in steps])
        if hasattr(old, "shape") and "Optional" in str(argument.type):
            yield f"dropped contribution: the {name} is ignored", with_argument(name, None)


def _others(node: Node, argument: Any, old: Any) -> list[Any]:
    """Values that an argument may have been given instead."""
    name, rank = argument.name, len(getattr(node.args[0], "shape", ())) if node.args else 0
    if old is None:
        return [0] if name == "correction" else []
    if isinstance(old, list):
        news = []
        if len(old) == 1 and isinstance(old[0], int):
            news = [[v] for v in other_values(name, old[0], rank) if name == "dim"]
        elif len(old) > 1 and node.name.startswith("_fft") and name == "dim":
            news = [old[:i] + old[i + 1 :] for i in range(len(old))]
        return [*news, *other_lists(name, old)]
    news = other_values(name, old, rank)
    return [None, *news] if isinstance(old, (int, float)) and "Optional" in str(argument.type) else news


def _over_all(shape: tuple[int, ...]) -> Callable[..., Any]:
    """A reduction over all axes in place of some."""
    return lambda func, args, kwargs: getattr(torch, bare_name(func))(args[0]).expand(shape).clone()


def axes(lab: Lab) -> Iterator[tuple[str, dict[Any, Callable[..., Any]]]]:
    """(text, edits): reductions over other axes, each and those that share theirs together."""
    held: dict[tuple[tuple[int, ...], tuple[int, ...]], list[list[Node]]] = {}
    for nodes in groups(lab):
        dim = nodes[0].value("dim")
        dim = [dim] if isinstance(dim, int) else dim
        if nodes[0].name in AXED and dim and len(nodes[0].place) == 1 and hasattr(nodes[0].args[0], "shape"):
            held.setdefault((tuple(dim), nodes[0].args[0].shape), []).append(nodes)
    for (dim, shape), every in held.items():
        for some in (*([nodes] for nodes in every), *([every] if len(every) > 1 else ())):
            of = " and ".join(dict.fromkeys(nodes[0].name.strip("_") for nodes in some))
            lists = all(isinstance(nodes[0].value("dim"), list) for nodes in some)
            for new in _other_axes(dim, len(shape)):
                along = "all axes" if len(new) == len(shape) else f"dimension {list(new)}"
                if len(new) == 1 or lists:
                    yield (
                        f"along {along} instead of {list(dim)} in {of}",
                        {
                            n.place: with_argument("dim", new if isinstance(n.value("dim"), list) else new[0])
                            for nodes in some
                            for n in nodes
                        },
                    )


def _other_axes(dim: Sequence[int], rank: int) -> Iterator[list[int]]:
    """One axis for another, one more, one less."""
    own = [d % rank for d in dim]
    others = [d for d in range(rank) if d not in own]
    yield from ([d] for d in others if len(own) == 1)
    yield from (sorted([*own, d]) for d in others)
    yield from ([d for d in own if d != lost] for lost in own if len(own) > 1)


def exchanged_numbers(lab: Lab) -> Iterator[tuple[str, dict[Any, Callable[..., Any]]]]:
    """Two constants of a formula in each other's place."""
    held = [
        (n, n.args[1])
        for n in lab.nodes()
        if n.name in ("mul", "div", "add", "sub")
        and not n.writes
        and len(n.args) > 1
        and isinstance(n.args[1], (int, float))
    ]
    pairs = [
        (a, b)
        for a, b in itertools.combinations(held, 2)
        if a[1] != b[1] and a[0].name == b[0].name and 0.01 < abs(a[1] / (b[1] or 1e300)) < 100
    ]
    for (a, x), (b, y) in pairs if len(pairs) <= MOST_PAIRS else ():
        yield (
            f"the constants {x:.6g} and {y:.6g} of {a.name} and {b.name} are exchanged (swapped)",
            {n.place: operand(1, lambda _, v=v: v) for n, v in ((a, y), (b, x))},
        )


# ---- another operator ------------------------------------------------------------------------


def swaps(node: Node) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Another operator in its place."""
    for name in relatives(node.name):
        note = " (weight decay coupled as L2 or decoupled)" if "adam" in name else ""
        note = " (the sign of a term is flipped)" if name in ("add", "sub") else note
        note = " (equal elements compare otherwise)" if {name, node.name} in EQUALS else note
        yield f"wrong variant: {name.lstrip('_')} instead of {node.name.lstrip('_')}{note}", _swapped(name)


def _swapped(name: str) -> Callable[..., Any]:
    name = f"_{name}" if name in ("softmax", "log_softmax") else name

    def edit(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        writes = func._schema.name.endswith("_") and hasattr(torch.ops.aten, f"{name}_")
        packet = getattr(torch.ops.aten, f"{name}_" if writes else name)
        try:
            made = theirs(packet, *args, **kwargs)
        except (RuntimeError, TypeError) as problem:
            foreign(problem)
            made = packet(*args)
        return _instead(made, func, args, kwargs)

    return edit


def ties(node: Node) -> Iterator[tuple[str, Callable[..., Any]]]:
    """A rounding that takes ties another way: of data that are ties, whatever rounds so explains as much."""
    for text, formula in TIES.get(node.name, ()):
        yield f"wrong variant: {text}", lambda func, args, kwargs, f=formula: apart(f, *args, **kwargs)


def forms(node: Node) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Another formula in its place; a step that writes in place, left out."""
    if not node.writes:
        for text, formula in formulas(node.name):
            yield text, lambda func, args, kwargs, f=formula: _instead(apart(f, *args, **kwargs), func, args, kwargs)
    elif node.args and getattr(node.args[0], "floats", False):
        yield f"dropped contribution: the step {node.name}_ is left out", lambda func, args, kwargs: args[0]


def _instead(made: Any, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What another formula made, as the first result of an operator that gives several."""
    several = len(func._schema.returns) > 1 and isinstance(made, torch.Tensor)
    return (made, *func(*args, **kwargs)[1:]) if several else made


def terms(node: Node) -> Iterator[tuple[str, Callable[..., Any]]]:
    """A sum without one of its terms, a product without one of its factors."""
    kind = "factor" if node.name in ("mul", "div") else "term"
    for i in (1, 0) if node.name in PARTS and not node.writes and len(node.args) > 1 else ():
        if hasattr(node.args[i], "shape"):
            yield (
                f"dropped contribution: a {kind} of {node.name} is missing",
                lambda func, args, kwargs, i=i: _rest(node.name, i, args, kwargs),
            )


def _rest(name: str, i: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    """What is left of a sum or a product without operand `i`."""
    out = args[1 - i]
    if not isinstance(out, torch.Tensor):
        return out * torch.ones_like(args[i])
    out = out.expand(torch.broadcast_shapes(out.shape, args[i].shape)).clone()
    if i == 0 and name in ("add", "sub"):
        return out * (kwargs.get("alpha", 1) * (-1 if name == "sub" else 1))
    return 1 / out if i == 0 and name == "div" else out


# Functions of one argument that a formula may lack.
UNARY = {
    "sqrt": "the root",
    "abs": "the absolute value",
    "neg": "the sign",
    "reciprocal": "the reciprocal",
    "clamp": "the clamp",
    "clamp_min": "the clamp",
    "clamp_max": "the clamp",
    "square": "the square",
    "round": "the rounding",
    "rsqrt": "the reciprocal root",
    "cumsum": "the running sum",
    **{
        name: name.strip("_")
        for name in (
            "exp log log1p log2 sigmoid tanh relu deg2rad rad2deg sign erf silu gelu _softmax _log_softmax"
        ).split()
    },
}


def without(node: Node) -> Iterator[tuple[str, Callable[..., Any]]]:
    """A formula without one of its functions, or with a factor that counts twice."""
    if node.writes or not node.args or not getattr(node.args[0], "floats", False):
        return
    if node.name in UNARY:
        yield (
            f"wrong variant: {UNARY[node.name]} is missing ({node.name.lstrip('_')} left out)",
            lambda func, args, kwargs: args[0].clone(),
        )
    if node.name == "mul" and len(node.args) > 1 and hasattr(node.args[1], "shape"):
        for i in (1, 0):
            yield (
                "wrong variant: a factor of mul is applied twice (squared)",
                lambda func, args, kwargs, i=i: func(*args, **kwargs) * args[i],
            )


ROOTS = {"sqrt": lambda x, eps: torch.sqrt(x) + eps, "rsqrt": lambda x, eps: 1 / (torch.sqrt(x) + eps)}


def epsilon_places(lab: Lab) -> Iterator[tuple[str, dict[Any, Callable[..., Any]]]]:
    """An epsilon added outside the root instead of inside, or the reverse."""
    nodes, left = lab.nodes(), lambda func, args, kwargs: args[0]
    for a, b in pairwise(nodes):
        eps = [n.args[1] if len(n.args) > 1 and isinstance(n.args[1], float) else None for n in (a, b)]
        if a.name == "add" and b.name in ROOTS and eps[0] is not None:
            yield (
                "epsilon is outside the square root instead of inside",
                {a.place: left, b.place: lambda f, args, k, e=eps[0], n=b.name: ROOTS[n](args[0], e)},
            )
        if a.name == "sqrt" and b.name == "add" and eps[1] is not None:
            yield (
                "epsilon is inside the square root instead of outside",
                {a.place: lambda f, args, k, e=eps[1]: torch.sqrt(args[0] + e), b.place: left},
            )


# ---- parts of an operand -----------------------------------------------------------------------


def slices(node: Node) -> Iterator[tuple[str, Callable[..., Any]]]:
    """A reduction that leaves out its last elements or counts them twice."""
    if node.name in ("_softmax", "softmax", "logsumexp"):
        yield from _fewer_terms(node)
    for i, seen in enumerate(node.args[:2] if node.name in REDUCING else ()):
        for axis in _reduced_axes(node, i, seen) if hasattr(seen, "shape") else ():
            lost = changes.last_left_out if node.name in COUNTING else None
            for text, change in changes.left_out(f"in {node.name}", axis, seen.shape[axis], lost):
                yield text, operand(i, change)
                if node.name in ("mean", "var") and text.endswith("is missing") and ": the last" in text:
                    yield f"{text}, and not counted", _uncounted(i, axis, text)


def _uncounted(i: int, axis: int, text: str) -> Callable[..., Any]:
    count = int(text.split("the last ")[1].split()[0])
    return operand(i, lambda x: changes.last_left_out(x, axis, count))


def _fewer_terms(node: Node) -> Iterator[tuple[str, Callable[..., Any]]]:
    """A softmax that leaves out its last terms."""
    seen, dim = node.args[0], node.value("dim")
    dim = dim[0] if isinstance(dim, (list, tuple)) and dim else dim
    for t in changes.sizes_to_drop(seen.shape[dim]) if isinstance(dim, int) and seen.shape else ():

        def change(x: torch.Tensor, t: int = t) -> torch.Tensor:
            x = x.clone()
            x.narrow(dim, x.shape[dim] - t, t).fill_(-torch.inf)
            return x

        yield (
            f"dropped contribution: the last {t} of {seen.shape[dim]} terms of {node.name.lstrip('_')} is missing",
            operand(0, change),
        )


def _reduced_axes(node: Node, i: int, seen: Slot) -> Sequence[int]:
    rank = len(seen.shape)
    counted = node.name == "sum" and seen.dtype != torch.bool  # whole numbers, as of choices
    if not (seen.floats or seen.dtype.is_complex or counted) or not rank:
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


def masks(node: Node) -> Iterator[tuple[str, Callable[..., Any]]]:
    """A mask inside that is read otherwise than it lies there, an index that is off by one."""
    yield from unmasked(node)
    for i, seen in enumerate(node.args if not node.writes else ()):
        if not hasattr(seen, "shape") or seen.floats or seen.dtype.is_complex or not seen.shape:
            continue
        off = (*changes.index("the index inside"), *changes.along(seen.shape, changes.shifts("the index inside")))
        for text, change in changes.mask("inside", seen.shape) if seen.dtype == torch.bool else off:
            yield text, operand(i, change)


def unmasked(node: Node) -> Iterator[tuple[str, Callable[..., Any]]]:
    """A mask inside that does not count."""
    for like in (torch.zeros_like, torch.ones_like) if node.name in COMPARING and not node.writes else ():
        yield (
            f"the mask is ignored: {node.name} is taken as {like is torch.ones_like} everywhere",
            lambda func, args, kwargs, of=like: of(func(*args, **kwargs)),
        )


RELAID = {
    True: "halves are read interleaved, as pairs of neighbours",
    False: "pairs of neighbours (interleaved) are read as halves",
}


def layouts(lab: Lab) -> Iterator[tuple[str, Any]]:
    """(text, edits): halves taken for pairs or the reverse, as two layouts of rotary embeddings have
    it, also where the result is written; steps over an axis ignored."""
    for node in lab.nodes():
        if node.name in ("slice", "unfold") and isinstance(node.value("step"), int) and node.value("step") > 1:
            yield (
                f"wrong stride: the step of a {node.name} is ignored",
                {node.place: with_argument("step", 1, node.shape)},
            )
    cuts = [n for n in lab.nodes() if n.name in ("slice", "split", "chunk") and not n.writes]
    for pairs, text in RELAID.items():
        edits = {n.place: _relaid(pairs) for n in cuts if pairs == (n.name != "slice" or n.value("step") == 1)}
        if edits:
            yield f"wrong stride: {text}", edits
            yield (
                f"wrong stride: {text}, and so written",
                lambda e=edits, w=(2, -1) if pairs else (-1, 2): {
                    p: t.unflatten(-1, w).transpose(-1, -2).flatten(-2) if t.dim() and t.shape[-1] % 2 == 0 else t
                    for p, t in lab.edited(e).items()
                },
            )


def _relaid(pairs: bool) -> Callable[..., Any]:
    """Cuts an axis into every other element, or into halves, where the operator does the other."""

    def edit(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out, x = func(*args, **kwargs), args[0]
        parts = list(out) if isinstance(out, (list, tuple)) else [out]
        axis = next((a for a in range(x.dim()) if all(2 * p.shape[a] == x.shape[a] for p in parts)), None)
        if axis is None:
            return out
        other = x.unflatten(axis, (-1, 2)).unbind(axis + 1) if pairs else x.chunk(2, axis)
        made = [other[int(p.storage_offset() != x.storage_offset())] for p in parts]
        return made if isinstance(out, (list, tuple)) else made[0]

    return edit


# ---- all operators -----------------------------------------------------------------------------


def by_name(lab: Lab) -> Iterator[list[Node]]:
    """Operators of one name at several places, the gradient's with the function's: a function that
    is called for each operand, a number that several layers share or that its gradient has too."""
    held: dict[str, list[Node]] = {}
    for node in lab.nodes():
        held.setdefault(GRADIENT.sub("", node.name), []).append(node)
    for nodes in held.values():
        if 1 < len(nodes) <= MOST_ALIKE and len({(n.site or n.place, len(n.place)) for n in nodes}) > 1:
            yield nodes


def parts(lab: Lab) -> Iterator[tuple[str, dict[Any, Callable[..., Any]]]]:
    """Sums without one of their terms: what that explains is nothing else that makes a term vanish."""
    for nodes in groups(lab):
        if len(nodes[0].place) == 1 and nodes[0].name not in ("mul", "div"):
            yield from together(terms, nodes)


def masked(lab: Lab) -> Iterator[tuple[str, dict[Any, Callable[..., Any]]]]:
    """Masks that are ignored, whatever else would come to that."""
    for nodes in groups(lab):
        if len(nodes[0].place) == 1:
            yield from together(unmasked, nodes)


def operators(lab: Lab, deep: bool = False) -> Iterator[tuple[str, dict[Any, Callable[..., Any]]]]:
    """Everything that may be wrong with one operator inside the call: with those that it calls,
    or with `deep` those that these are made of."""
    every = [nodes for nodes in groups(lab) if (len(nodes[0].place) > 1) == deep]
    if not deep:
        yield from exchanged_numbers(lab)
        yield from layouts(lab)
    for make in (ties, terms, without, arguments, swaps, forms, masks):
        alike = by_name(lab) if not deep and make in (without, swaps, arguments) else ()
        for nodes in (*alike, *every):
            yield from together(make, nodes)


def reductions(lab: Lab) -> Iterator[tuple[str, dict[Any, Callable[..., Any]]]]:
    """Reductions that leave something out or count it twice, all of a call or one of them."""
    for nodes in (*by_name(lab), *groups(lab)):
        yield from together(slices, nodes)
