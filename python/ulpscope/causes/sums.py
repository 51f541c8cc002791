# SPDX-License-Identifier: Apache-2.0
"""Mistakes in how an operator adds up: entries that overwrite each other where they must be added,
scans, variances in one pass, sums that stop growing.
Each is (text, edits for `Lab.run`). Neighbours: `inside` (other mistakes in one
operator), `lab` (runs them), `diagnose` (chooses).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from .. import _core
from ..calls.foreign import tried
from ..calls.torch_private import bare_name
from ..executors.algorithms import STALL, accumulated
from ..executors.noise import Noise
from .edges import together
from .emulate import adding
from .inside import apart
from .neighbours import NAIVE

if TYPE_CHECKING:
    from ..calls.torch_private import OpOverload
    from .evidence import Evidence
    from .graph import Node
    from .lab import Lab

# Which arguments hold the index and what is added.
ADDING = {
    "index_add": (2, 3),
    "scatter_add": (2, 3),
    "scatter_reduce": (2, 3),
    "index_put": (1, 2),
    "_unsafe_index_put": (1, 2),
    "_index_put_impl": (1, 2),
    "embedding_dense_backward": (1, 0),
    "bincount": (0, 1),
}


# What a scan begins with.
SCANS = {"cumsum": 0.0, "cumprod": 1.0, "logcumsumexp": -torch.inf, "cummax": None, "cummin": None}
MOST_TILED = 6  # operators of a call that may share an axis
BLOCKS = (2, 4, 5, 8, 10, 16, 32, 64, 128, 256, 512, 1024)


def stalled_candidates(lab: Lab) -> Iterator[tuple[str, Any]]:
    """Sums of so many terms that one accumulator of float32 stops growing."""
    if all(math.prod(v.sizes) <= _core.never_stalls for v in lab.call.views.values()):
        return
    long = {n.place: _stalling for n in adding(lab) if n.name in ("sum", "mean")}
    if long:
        yield "the sum stops growing: one float32 accumulator", functools.partial(lab.edited, long, dtype=torch.float32)


def _stalling(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    out = accumulated(func, (args[0].float(), *args[1:]), {k: v for k, v in kwargs.items() if k != "dtype"}, STALL)
    if out is None:
        raise LookupError("added another way")
    return out.to(args[0].dtype).reshape_as(func(*args, **kwargs))


def scanning(node: Node) -> Iterator[tuple[str, Callable[..., Any]]]:
    """A running sum and its like in the other direction, in blocks, without the current element."""
    if node.name not in SCANS or node.writes or not isinstance(node.value("dim"), int):
        return
    dim, neutral = node.value("dim"), SCANS[node.name]

    def backwards(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return _each(lambda t: t.flip(dim), func(args[0].flip(dim), *args[1:], **kwargs))

    def blocks(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], size: int) -> Any:
        return _each(lambda *t: torch.cat(t, dim), *(func(x, *args[1:], **kwargs) for x in args[0].split(size, dim)))

    def before(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], first: bool) -> torch.Tensor:
        out = func(*args, **kwargs)
        start = torch.full_like(out.narrow(dim, 0, 1), neutral) if first else out.narrow(dim, 0, 1)
        return torch.cat([start, out.narrow(dim, 0, out.shape[dim] - 1)], dim)

    yield f"wrong direction: {node.name} runs from the end (reversed)", backwards
    for size in BLOCKS:
        if size < node.shape[dim]:
            yield (
                f"wrong variant: {node.name} starts anew every {size} elements (block carry is missing)",
                lambda func, args, kwargs, s=size: blocks(func, args, kwargs, s),
            )
    for first in (True, False) if neutral is not None else ():
        yield (
            f"shifted by one: {node.name} leaves out the current element (exclusive)",
            lambda func, args, kwargs, f=first: before(func, args, kwargs, f),
        )


def _each(change: Callable[..., torch.Tensor], *outs: Any) -> Any:
    """`change` of results, or of each of several."""
    return change(*outs) if isinstance(outs[0], torch.Tensor) else tuple(change(*some) for some in zip(*outs))


# ---- tiles that know nothing of each other ----

TILED = {"amax", "amin", "sum", "mean", "var_mean", "linalg_vector_norm", "logsumexp"}  # which keep their axis
WHOLE = {"native_layer_norm", "_fused_rms_norm", "_softmax", "_log_softmax", "_safe_softmax"}


def tiled(lab: Lab) -> Iterator[tuple[str, dict[Any, Callable[..., Any]]]]:
    """(text, edits): what belongs to a whole axis is taken of each tile of it, as where tiles are not put
    together: reductions that share an axis, or what is made of such."""
    held: dict[tuple[int, tuple[int, ...], int], list[Node]] = {}
    for node in lab.nodes():
        axis = _tiled_axis(node)
        if axis is not None:
            held.setdefault((axis, node.args[0].shape, len(node.place)), []).append(node)
    for (axis, shape, _), nodes in held.items():
        of = " and ".join(dict.fromkeys(n.name.strip("_") for n in nodes))
        for size in BLOCKS if len(nodes) <= MOST_TILED else ():
            if size < shape[axis]:
                yield (
                    f"wrong variant: {of} of each tile of {size} along axis {axis} by itself, not of the whole",
                    {n.place: _of_tiles(axis, size) for n in nodes},
                )


def _tiled_axis(node: Node) -> int | None:
    """The one axis that an operator reduces and keeps, or normalises."""
    seen: Any = node.args[0] if node.args else None
    if node.writes or not getattr(seen, "floats", False) or not seen.shape or not {node.name} & (TILED | WHOLE):
        return None
    dim = node.value("dim")
    if node.name in ("native_layer_norm", "_fused_rms_norm"):
        dim = -1 if len(node.value("normalized_shape")) == 1 else None
    elif node.name in TILED and not node.value("keepdim"):
        return None
    dim = dim[0] if isinstance(dim, (list, tuple)) and len(dim) == 1 else dim
    return dim % len(seen.shape) if isinstance(dim, int) else None


def _of_tiles(axis: int, size: int) -> Callable[..., Any]:
    def edit(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name, made = bare_name(func), []
        for part in args[0].split(size, axis):
            if name in ("native_layer_norm", "_fused_rms_norm"):
                made.append(func(part, [part.shape[axis]], *[None] * (len(args) - 3), args[-1]))
            else:
                made.append(func(part, *args[1:], **kwargs))
        if name not in ("native_layer_norm", "_fused_rms_norm"):
            wide = [
                _each(
                    lambda t, n=p.shape[axis]: (
                        t if t.shape[axis] == n else t.expand([n if a == axis else s for a, s in enumerate(t.shape)])
                    ),
                    o,
                )
                for o, p in zip(made, args[0].split(size, axis))
            ]
            return _each(lambda *t: torch.cat(t, axis), *wide)
        whole = func(*args, **kwargs)
        out = torch.cat([o[0] for o in made], axis)
        scales = [t for t in args[2:-1] if isinstance(t, torch.Tensor)]
        for t, change in zip(scales, (torch.mul, torch.add)):
            out = change(out, t)
        return (out, *whole[1:])

    return edit


def sums(lab: Lab) -> Iterator[tuple[str, dict[Any, Callable[..., Any]]]]:
    """(text, edits) of all of them."""
    for node in lab.nodes():
        for make in (overwriting, scanning):
            yield from together(make, [node])
    yield from list(one_pass(lab))[:1]


# ---- entries that share a place ------------------------------------------------------


def overwriting(node: Node) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Where several entries go to one place, one of them is left."""
    for kept, way in (
        ((False, "the place is overwritten"), (True, "only one of them is added")) if node.name in ADDING else ()
    ):
        for last in (True, False):
            yield (
                f"dropped contribution: of duplicate indices only the {'last' if last else 'first'} "
                f"counts ({way} by {node.name.strip('_')})",
                lambda func, args, kwargs, k=kept, e=last: _one_entry(func, list(args), kwargs, k, e),
            )


def _one_entry(func: OpOverload, args: list[Any], kwargs: dict[str, Any], kept: bool, last: bool) -> torch.Tensor:
    """Entries that share a place with a later one, or an earlier one, zero; the place emptied
    before unless it is `kept`."""
    name = bare_name(func).rstrip("_")
    at, of = ADDING[name]
    place, like = _places(name, args, at, of)
    _, same = place.reshape(-1).unique(return_inverse=True)
    count = torch.arange(same.numel())
    one = torch.zeros_like(same).scatter_reduce(0, same, count, "amax" if last else "amin", include_self=False)
    chosen = (one[same] == count).view(like)
    if at and of > at and not kept:  # into something
        hit = func(torch.zeros_like(args[0]), *args[1:of], torch.ones_like(args[of]), *args[of + 1 :], **kwargs)
        args[0] = args[0].where(hit == 0, 0)
    args[of] = args[of].where(chosen, 0)
    return func(*args, **kwargs)


def _places(name: str, args: list[Any], at: int, of: int) -> tuple[torch.Tensor, Sequence[int]]:
    """(a number for the place of every entry, the shape of these for the source)."""
    index, into = args[at], args[0]
    if name.endswith(("index_put", "_index_put_impl")):
        if not (len(args) > 3 and args[3]) or any(i is None for i in index):
            raise LookupError("another form")
        index = torch.broadcast_tensors(*index)
        place: Any = 0
        for i, size in zip(index, into.shape):
            place = place * size + i % size
        args[of] = args[of].expand(*place.shape, *into.shape[len(index) :])
        return place, (*place.shape, *[1] * (into.dim() - len(index)))
    if name == "index_add":
        return index, [-1 if d == args[1] % into.dim() else 1 for d in range(into.dim())]
    if name.startswith("scatter"):
        if len(args) > 4 and args[4] != "sum":
            raise LookupError("no sum")
        args[of] = args[of][tuple(slice(0, n) for n in index.shape)]
        grid, place = [torch.arange(n) for n in index.shape], 0
        for d, (i, size) in enumerate(zip(torch.meshgrid(*grid, indexing="ij"), into.shape)):
            place = place * size + (index if d == args[1] % into.dim() else i)
        return place, index.shape
    return index, (*index.shape, *[1] * (args[of].dim() - index.dim()))


# ---- variance in one pass ------------------------------------------------------------

ONE_PASS = "one-pass variance, E[x^2] - E[x]^2: cancellation in float32"
VARIANCES = {"var", "std", "var_mean"}
ORDERS = 4


def one_pass(lab: Lab) -> Iterator[tuple[str, dict[Any, Callable[..., Any]]]]:
    """(text, edits): the call with every variance as the mean of the squares less the square of
    the mean, added in another order in each."""
    places = [n.place for n in lab.nodes() if n.name in VARIANCES]
    for seed in range(ORDERS) if places else ():
        yield ONE_PASS, {p: _one_pass(seed) for p in places}


def _one_pass(seed: int) -> Callable[..., Any]:
    def edit(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return apart(variance_of, func, args, kwargs)

    def variance_of(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        x, name = args[0].float(), bare_name(func)
        given = {a.name: v for a, v in zip(func._schema.arguments, args)} | kwargs
        dim, keepdim = given.get("dim"), given.get("keepdim", False)
        correction = given.get("correction", given.get("unbiased", 1))
        correction = 1 if correction is None else int(correction)
        dims = [d % x.dim() for d in ([dim] if isinstance(dim, int) else dim or range(x.dim()))]
        kept = [d for d in range(x.dim()) if d not in dims]
        flat = x.permute(*kept, *dims).reshape(*[x.shape[d] for d in kept], -1)
        n = flat.shape[-1]
        if seed:
            flat = flat[..., torch.randperm(n, generator=torch.Generator().manual_seed(seed))]
        mean = flat.sum(-1) / n
        variance = ((flat * flat).sum(-1) / n - mean * mean).clamp(min=0) * (n / max(n - correction, 1))
        sizes = [1 if d in dims else s for d, s in enumerate(x.shape)]
        mean, variance = ((t.reshape(sizes) if keepdim else t).to(args[0].dtype) for t in (mean, variance))
        return variance.sqrt() if name == "std" else (variance, mean) if name == "var_mean" else variance

    return edit


def noisy(lab: Lab, evidence: Evidence, path: str) -> str:
    """The name of noise as a formula that cancels gives it, whatever the order and the functions: a
    variance in one pass, exp(x) - 1; "" where it is not."""
    for some in (one_pass(lab), *naive(lab)) if evidence.floats else ():
        found = []
        with tried():  # not for these arguments
            found = [(text, lab.run(edit)[path]) for text, edit in some]
        if found and evidence.of_size([t for _, t in found]):
            return found[0][0]
    return ""


def naive(lab: Lab) -> Iterator[list[tuple[str, dict[Any, Callable[..., Any]]]]]:
    """For each operator with a formula that cancels, (text, edits) of some ways to round inside it."""
    for node in lab.nodes():
        for text, formula in NAIVE.get(node.name, ()) if not node.writes else ():
            yield [(text, {node.place: _rounded_otherwise(formula, seed)}) for seed in range(ORDERS)]


def _rounded_otherwise(formula: Callable[..., Any], seed: int) -> Callable[..., Any]:
    def edit(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        def noisy(*given: torch.Tensor) -> Any:
            with Noise(seed, apart=False):
                return formula(*given)

        return apart(noisy, args[0].float()).to(args[0].dtype)

    return edit
