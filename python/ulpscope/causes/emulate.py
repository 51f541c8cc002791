# SPDX-License-Identifier: Apache-2.0
"""What a device of lower precision would have computed: emulations on the CPU of rounded
inputs, intermediates, products, accumulators and results.

Each candidate is (text, edit for `Lab.run`); the texts are the causes that a report prints.
Neighbours: `edits`, `inside` (mistakes of meaning), `diagnose` (decides).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from .. import _core
from ..calls.nested import mapped
from ..calls.replay import Call, base_name, is_write
from ..calls.torch_private import disable_current_modes
from ..executors.formats import FORMATS, LOW, OWN_FORMAT, quantize, rounded_once, to_format
from .edges import MOVES, groups, sites
from .inside import PRODUCTS, apart
from .graph import slots_in
from .lab import Lab, doubles
from .neighbours import OVERFLOWS

if TYPE_CHECKING:
    from ..calls.torch_private import OpOverload
    from .graph import Node
    from ..executors.reference_runs import Reference

# Operators whose `self` is added to a product, as a bias is.
ADDING = {"addmm", "addmv", "baddbmm", "addbmm", "addr", "_addmm_activation"}
MANY_NODES = 48
FLOAT8 = ("float8 (e4m3)", "float8 (e5m2)")
FEW, MANY = 8, 4096  # different numbers that speak of a format; so many are looked at
MOST_TOGETHER = 8  # places whose roundings are put together
SOME = 0.1  # correlation of one of them
SQUARES = 255.0  # beyond it the squares of inputs leave float16's range
TINY = 2.0**-25  # what float16 rounds to zero
LEAST_BITS = 3  # of a result's significands, that are a format and no few round numbers
CHUNKS = (1, 2, 4, 8, 16, 32, 64, 128)
MOST_STEPS = 4096  # additions that an accumulator is emulated for


def outward(x: torch.Tensor) -> torch.Tensor:
    return torch.copysign(torch.ceil(x.abs()), x)


ROUNDINGS = {
    "truncated": torch.trunc,
    "rounded up": torch.ceil,
    "rounded down": torch.floor,
    "rounded away from zero": outward,
}


# ---- inputs --------------------------------------------------------------------------


def _argument_keys(call: Call, names: Collection[str]) -> set[tuple[int, torch.dtype]]:
    """Segments that belong to arguments of these names alone."""
    inside = {(v.storage, v.dtype) for v in call.views.values() if v.argument in names}
    return inside - {(v.storage, v.dtype) for v in call.views.values() if v.argument not in names}


def input_sets(call: Call, reference: Reference) -> list[list[tuple[int, torch.dtype]]]:
    """Which inputs a device may have rounded: all but biases; all; all it only reads; one
    of them."""
    every = [
        key
        for key, part in reference.parts.items()
        if part.dtype.is_floating_point and not part.steers and part.data.numel()
    ]
    biases = {"bias", "self"} if base_name(call.op)[1] in ADDING else {"bias"}
    sets = [[k for k in every if k not in _argument_keys(call, biases)], every]
    written = {call.views[p].argument for p in call.written()}
    if written:
        sets.append([k for k in every if k not in _argument_keys(call, written)])
    if 1 < len(every) <= 6:
        sets += [[k] for k in every]
    return [keys for i, keys in enumerate(sets) if keys and keys not in sets[:i]]


def _of_one(call: Call, keys: Collection[tuple[int, torch.dtype]]) -> str:
    """ ": NAME" of one input that has a name."""
    names = {v.argument for v in call.views.values() if (v.storage, v.dtype) in keys}
    return f": {names.pop()}" if len(keys) == len(names) == 1 and all(names) else ""


def rounded_inputs(
    lab: Lab,
    keys: Iterable[tuple[int, torch.dtype]],
    name: str,
    integer: Callable[[torch.Tensor], torch.Tensor] = torch.round,
) -> dict[str, torch.Tensor]:
    """The call on inputs rounded to a format."""
    parts = lab.reference.parts
    return lab.reference.wide({k: lab.rounded(parts[k].data, name, integer) for k in keys})


def input_candidates(lab: Lab) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Inputs rounded to, or cut down to, a lower format."""
    sets, parts = input_sets(lab.call, lab.reference), lab.reference.parts
    for keys in sets:
        of = _of_one(lab.call, keys) if len(sets) > 1 else ""
        for name in LOW:
            yield f"inputs rounded to {name}{of}", functools.partial(rounded_inputs, lab, keys, name)
        for name in LOW:
            yield (
                f"inputs truncated to {name} instead of rounded{of}",
                functools.partial(rounded_inputs, lab, keys, name, torch.trunc),
            )
        for name in ("bfloat16", "float16"):
            yield (
                f"inputs and result rounded to {name}",
                lambda k=keys, n=name: _changed(rounded_inputs(lab, k, n), lambda t: lab.rounded(t, n)),
            )
    if sets:
        yield (
            "subnormals flushed to zero in the inputs",
            lambda: lab.reference.wide(
                {k: flushed(parts[k].data.double(), smallest_normal(parts[k].dtype)) for k in sets[0]}
            ),
        )


def _changed(
    outputs: dict[str, torch.Tensor], change: Callable[[torch.Tensor], torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Outputs with `change` applied to those that are floats."""
    return {p: change(t) if t.is_floating_point() else t for p, t in outputs.items()}


def smallest_normal(dtype: torch.dtype) -> int:
    """The exponent of the smallest normal number of a float dtype, or of a complex one's parts."""
    return math.frexp(torch.finfo(dtype).tiny)[1] - 1


def flushed(x: torch.Tensor, emin: int) -> torch.Tensor:
    """Zero for what lies below the smallest normal number."""
    return torch.where(x.abs() < 2.0**emin, x * 0, x)


# ---- inside --------------------------------------------------------------------------


def _rounding(
    lab: Lab,
    nodes: Iterable[Node],
    name: str,
    integer: Callable[[torch.Tensor], torch.Tensor] = torch.round,
    operands: Callable[[int, Any], bool] | None = None,
    result: bool = True,
) -> dict[tuple[int, ...], Callable[..., Any]]:
    """Edits that round the operands that `operands(number, operand)` picks, and what operators give."""

    def rounded(x: Any) -> Any:
        floats = isinstance(x, torch.Tensor) and x.is_floating_point()
        return lab.rounded(x, name, integer).to(x.dtype) if floats else x

    def edit(func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if operands is not None:
            args = [rounded(a) if operands(i, a) else a for i, a in enumerate(args)]
        out = func(*args, **kwargs)
        return mapped(out, rounded) if result else out

    return {n.place: edit for n in nodes}


def _matrices(i: int, x: Any) -> bool:
    return getattr(x, "ndim", 0) > 1


def _first(i: int, x: Any) -> bool:
    return i == 0


def _leaves(lab: Lab) -> list[Node]:
    """The operators that nothing simpler computes."""
    return [n for n in lab.nodes() if not n.inside]


def _results(lab: Lab, nodes: Iterable[Node], name: str) -> dict[tuple[int, ...], Callable[..., Any]]:
    """Edits that round every float result to a format."""
    return _rounding(lab, [n for n in nodes if _makes_floats(n)], name)


def _makes_floats(node: Node) -> bool:
    views = any(r.alias_info is not None and not is_write(r) for r in node.func._schema.returns)
    return not views and any(s.floats for s in slots_in(node.result))


def inside_candidates(lab: Lab) -> Iterator[tuple[str, Any]]:
    """Intermediates in a lower format: all of them, at two depths, or the operands of the
    products alone; the whole call in a lower dtype; one of the intermediates."""
    reference, single = lab.reference, functools.partial(functools.partial, lab.edited, dtype=torch.float32)
    leaves, top = _leaves(lab), [n for n in lab.nodes() if len(n.place) == 1]
    products, outer = ([n for n in nodes if n.name in PRODUCTS] for nodes in (lab.nodes(), top))
    for way, integer in (("rounded", torch.round), ("truncated", torch.trunc)) if products else ():
        for name in LOW:
            yield (
                f"inputs {way} to {name}: those of the products",
                _rounding(lab, [n for n in products if not n.inside], name, integer, _matrices, result=False),
            )
    for name in LOW:
        text = f"intermediates rounded to {name}"
        yield text, single(_results(lab, leaves, name))
        if len(lab.nodes()) > 1:
            yield text, single(_results(lab, top, name))
            yield text, single(_results(lab, top, name) | _rounding(lab, outer, name, operands=_matrices))
        for keys in input_sets(lab.call, reference)[:1]:
            yield (
                f"inputs and intermediates rounded to {name}",
                lambda n=name, k=keys: lab.edited(
                    _results(lab, leaves, n),
                    dtype=torch.float32,
                    contents={key: lab.rounded(reference.parts[key].data, n).float() for key in k},
                ),
            )
    for name in ("bfloat16", "float16"):
        yield (
            f"computed in {name}: inputs, intermediates and result rounded to {name}",
            lambda n=name: reference.in_dtype(getattr(torch, n)),
        )
    own = {p.dtype for p in reference.parts.values()}
    if own & {torch.bfloat16, torch.float16}:
        yield (
            f"intermediates rounded to {'bfloat16' if torch.bfloat16 in own else 'float16'}",
            lambda: _native(reference),
        )


def _native(reference: Reference) -> dict[str, torch.Tensor]:
    """What the CPU's own kernel gives; LookupError where it has none for these dtypes."""
    given = reference.native()
    if given is None:
        raise LookupError("no kernel of the CPU")
    return {p: doubles(t) for p, t in given.items()}


def single_candidates(lab: Lab) -> Iterator[tuple[str, Any]]:
    """The intermediates of one place of the code rounded or cut off."""
    places = [nodes for nodes in groups(lab) if _may_be_narrow(lab, nodes)][:MANY_NODES]
    for way, integer, names in (
        ("rounded", torch.round, ("bfloat16", "TF32", "float16", *FLOAT8)),
        ("truncated instead of rounded", torch.trunc, ("bfloat16", "float16")),
    ):
        for name in names:
            for nodes in places:
                yield _at(way, name, [nodes]), _rounding(lab, nodes, name, integer)


def _may_be_narrow(lab: Lab, nodes: list[Node]) -> bool:
    """Whether operators compute numbers, and not a few that are the same everywhere: those in a
    format are another constant."""
    if not nodes[0].floats or nodes[0].name in MOVES:
        return False
    made = [lab.wide_graph().tensors[next(slots_in(n.result)).number] for n in nodes[:FEW]]
    return bool(torch.cat([t.reshape(-1)[:MANY] for t in made]).unique().numel() >= FEW)


def _at(way: str, name: str, places: Iterable[list[Node]]) -> str:
    return f"intermediates {way} to {name}: {' and '.join(nodes[0].name.lstrip('_') for nodes in places)}"


def several_candidates(lab: Lab, follows: Callable[..., Any], spend: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """The results of two or three places rounded, of those that explain some of the noise alone.
    `follows(outputs)` is the correlation with the device's errors, `spend` as in `fit`."""
    places = [nodes for nodes in sites(lab) if _may_be_narrow(lab, nodes)][:MANY_NODES]
    for name in ("bfloat16", "float16", *FLOAT8):
        held = [
            (follows(lab.edited(_rounding(lab, nodes, name))), i)
            for i, nodes in enumerate(places)
            if len(places) > 2 and spend(1)
        ]
        best = [places[i] for v, i in sorted(held, reverse=True) if v >= SOME][:MOST_TOGETHER]
        for count in (2, 3):
            for some in itertools.combinations(best, count):
                yield _at("rounded", name, some), _rounding(lab, [n for nodes in some for n in nodes], name)


FUNCTIONS = set(
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt tanh erf erfc sigmoid sin cos pow reciprocal atan sinh cosh".split()
)


def _functions(lab: Lab) -> list[Node]:
    """The elementary functions inside a call."""
    return [n for n in lab.nodes() if n.name in FUNCTIONS and n.floats]


def function_candidates(lab: Lab) -> Iterator[tuple[str, Any]]:
    """All elementary functions rounded, or what they are given as well."""
    nodes = _functions(lab)
    for name in LOW if len(nodes) > 1 else ():
        for operands in (None, _first):
            yield (
                f"intermediates rounded to {name}: the elementary functions",
                _rounding(lab, nodes, name, operands=operands),
            )


def overflow_candidates(lab: Lab) -> Iterator[tuple[str, Any]]:
    """Formulas that overflow where a careful one does not, in the formats that do."""
    single = functools.partial(functools.partial, lab.edited, dtype=torch.float32)
    maxima = {n.place: _no_maximum for n in lab.nodes() if n.name == "amax"}
    if maxima:
        text = "softmax without subtracting the maximum: overflow in"
        if _reaches(lab, math.log(torch.finfo(torch.float32).max)):
            yield f"{text} float32", single(maxima)
        if _reaches(lab, math.log(65504.0)):
            yield f"{text} float16", single(_in_range(_leaves(lab), maxima))
    for node in lab.nodes():
        for text, formula in OVERFLOWS.get(node.name, ()):
            yield text, {node.place: lambda func, args, kwargs, f=formula: apart(f, *args, **kwargs)}
    if not _fit(lab, TINY, 65504.0):
        return
    of = "in float16: beyond 65504"
    sums = {n.place: _accumulating(lab, "float16", 1) for n in adding(lab)}
    if sums:
        yield f"overflow of the accumulator {of} (accumulated in float16)", single(sums)
    functions = _functions(lab)
    for operands in (None, _first) if functions else ():
        yield (
            f"overflow of the elementary functions {of} (intermediates rounded to float16)",
            _rounding(lab, functions, "float16", operands=operands),
        )
    yield (
        f"overflow of intermediates {of} (intermediates rounded to float16)",
        single(_results(lab, _leaves(lab), "float16")),
    )
    yield (
        f"overflow of the result {of} (result rounded to float16)",
        lambda: _changed(lab.reference.truth, lambda t: to_format(t, "float16")),
    )
    for keys in input_sets(lab.call, lab.reference)[:1]:
        yield (
            f"overflow of the inputs {of} (inputs rounded to float16)",
            functools.partial(rounded_inputs, lab, keys, "float16"),
        )


def _fit(lab: Lab, low: float, high: float) -> bool:
    """Whether the inputs are of a size that somebody may have computed between two limits: most of each lies
    there."""
    for part in lab.reference.parts.values():
        if part.dtype.is_floating_point and part.data.numel():
            size = part.data.double().abs()
            size = size[size.isfinite() & (size > 0)]
            if bool((size > high).double().mean() > 0.5) or bool((size < low).double().mean() > 0.5):
                return False
    return True


def _reaches(lab: Lab, limit: float) -> bool:
    """Whether a maximum is so far from zero that an exponential of it leaves the range, up or down."""
    for node in lab.nodes():
        if node.name == "amax":
            found = lab.wide_graph().tensors[next(slots_in(node.result)).number]
            if bool((found.isfinite() & (found.abs() > limit)).any()):
                return True
    return False


def _no_maximum(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    return torch.zeros_like(func(*args, **kwargs))


def _in_range(
    nodes: Iterable[Node], edits: dict[tuple[int, ...], Callable[..., Any]]
) -> dict[tuple[int, ...], Callable[..., Any]]:
    """Edits, and every result beyond float16's range infinite."""

    def over(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return torch.where(value.abs() > 65504.0, torch.copysign(value * 0 + torch.inf, value), value)
        return value

    def edit(
        func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], own: Callable[..., Any] | None = None
    ) -> Any:
        return mapped(own(func, args, kwargs) if own else func(*args, **kwargs), over)

    return {n.place: functools.partial(edit, own=edits.get(n.place)) for n in nodes if _makes_floats(n)}


# ---- accumulators --------------------------------------------------------------------


def adding(lab: Lab) -> list[Node]:
    """The operators that add up, the innermost ones."""
    nodes = [n for n in lab.nodes() if n.name in ("mm", "bmm", "sum", "mean", "addmm", "matmul")]
    return [n for n in nodes if not any(m is not n and m.place[: len(n.place)] == n.place for m in nodes)]


def accumulator_candidates(lab: Lab) -> Iterator[tuple[str, Any]]:
    """Sums and products whose running sum is kept in a lower format, one term or one block
    of terms after the other."""
    nodes = adding(lab)
    for name in ("bfloat16", "float16"):
        for chunk in CHUNKS if nodes else ():
            yield (
                f"accumulated in {name} (low-precision accumulator)",
                functools.partial(
                    lab.edited, {n.place: _accumulating(lab, name, chunk) for n in nodes}, dtype=torch.float32
                ),
            )


def _accumulating(lab: Lab, name: str, chunk: int) -> Callable[..., Any]:
    def edit(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with disable_current_modes():  # thousands of small steps, none of which needs watching
            return apply(func, args, kwargs)

    def apply(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
        kind = base_name(func._schema.name)[1]
        if any(isinstance(a, torch.Tensor) and a.is_complex() for a in args):
            raise LookupError("complex numbers")
        if kind in ("mm", "bmm", "matmul"):
            return _product(lab, args[0], args[1], name, chunk)
        if kind == "addmm":
            alpha, beta = kwargs.get("alpha", 1), kwargs.get("beta", 1)
            return beta * args[0] + alpha * _product(lab, args[1], args[2], name, chunk)
        return _summed(lab, func, args, kwargs, kind, name, chunk)

    return edit


def _once(lab: Lab, x: torch.Tensor, name: str) -> torch.Tensor:
    return rounded_once(x, name) if lab.plain else lab.rounded(x, name).to(x.dtype)


def _product(lab: Lab, a: torch.Tensor, b: torch.Tensor, name: str, chunk: int) -> torch.Tensor:
    total = torch.zeros((*a.shape[:-1], b.shape[-1]), dtype=a.dtype)
    if a.shape[-1] // chunk > MOST_STEPS:
        raise LookupError("too many additions")
    for k in range(0, a.shape[-1], chunk):
        total = _once(lab, total + a[..., k : k + chunk] @ b[..., k : k + chunk, :], name)
    return total


def _summed(
    lab: Lab, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], kind: str, name: str, chunk: int
) -> torch.Tensor:
    x = args[0]
    dim = args[1] if len(args) > 1 else kwargs.get("dim")
    keepdim = args[2] if len(args) > 2 else kwargs.get("keepdim", False)
    dims = list(range(x.dim())) if not dim and dim != 0 else [dim] if isinstance(dim, int) else dim
    dims = [d % x.dim() for d in dims]
    kept = [d for d in range(x.dim()) if d not in dims]
    flat = x.permute(*kept, *dims).reshape(*[x.shape[d] for d in kept], -1)
    if flat.shape[-1] // chunk > MOST_STEPS:
        raise LookupError("too many additions")
    total = torch.zeros(flat.shape[:-1], dtype=x.dtype)
    for k in range(0, flat.shape[-1], chunk):
        total = _once(lab, total + flat[..., k : k + chunk].sum(-1), name)
    if kind == "mean":
        total = total / flat.shape[-1]
    return total.reshape([1 if d in dims else n for d, n in enumerate(x.shape)]) if keepdim else total


# ---- results -------------------------------------------------------------------------


def result_candidates(lab: Lab, device: torch.Tensor) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Results rounded otherwise than to their own dtype, to the nearest."""
    own = FORMATS.get(OWN_FORMAT.get(device.dtype, ""), (53, -1022, 1023))
    for text, change in _results_as(lab, own, _core.significant_bits(device)):
        yield text, functools.partial(_changed, lab.reference.truth, change)


def _results_as(lab: Lab, own: tuple[int, int, int], bits: int) -> Iterator[tuple[str, Callable[..., torch.Tensor]]]:
    for name in ("bfloat16", "float16", "TF32"):
        if FORMATS[name][0] < own[0] or FORMATS[name][1] > own[1]:
            yield f"result rounded to {name}", lambda t, n=name: lab.rounded(t, n)
            yield f"result truncated to {name} instead of rounded", lambda t, n=name: lab.rounded(t, n, torch.trunc)
    cut = own[0] - bits
    if LEAST_BITS <= bits and cut > 1:
        yield (
            f"the last {cut} bits of the result are cut off (truncated instead of rounded)",
            lambda t: quantize(t, bits, *own[1:], torch.trunc),
        )
        yield f"result rounded to {bits} significant bits", lambda t: quantize(t, bits, *own[1:])
    for way, integer in ROUNDINGS.items():
        yield f"result {way} instead of rounded to nearest", lambda t, i=integer: quantize(t, *own, i)
    for emin in {own[1], -14} if own[0] <= 24 else ():
        yield (
            "subnormals flushed to zero" + (" (those of float16)" if emin != own[1] else ""),
            lambda t, e=emin: flushed(t, e),
        )
