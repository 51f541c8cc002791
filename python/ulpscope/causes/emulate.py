# SPDX-License-Identifier: Apache-2.0
"""What a device of lower precision would have computed: emulations on the CPU of rounded
inputs, intermediates, products, accumulators and results.

Each candidate is (text, function); the function gives the outputs that a device with that
mistake would leave, by path, or raises. The texts are the causes that a report prints.
Neighbours: `edits`, `inside` (mistakes of meaning), `diagnose` (decides).
"""

import functools
import itertools

import torch
from torch.utils._python_dispatch import _disable_current_modes

from .. import _core
from ..calls.replay import base_name, is_write, mapped
from ..executors.formats import FORMATS, LOW, OWN_FORMAT, quantize, rounded_once, to_format
from .edges import MOVES, groups, sites
from .inside import PRODUCTS
from .graph import slots_in
from .lab import doubles

# Operators whose `self` is added to a product, as a bias is.
ADDING = {"addmm", "addmv", "baddbmm", "addbmm", "addr", "_addmm_activation"}
MANY_NODES = 48
FLOAT8 = ("float8 (e4m3)", "float8 (e5m2)")
FEW, MANY = 8, 4096  # different numbers that speak of a format; so many are looked at
MOST_TOGETHER = 8  # places whose roundings are put together
SOME = 0.1  # correlation of one of them
CHUNKS = (1, 2, 4, 8, 16, 32, 64, 128)
MOST_STEPS = 4096  # additions that an accumulator is emulated for


def away(x):
    """To the nearest integer, ties away from zero."""
    return torch.trunc(x + torch.copysign(torch.full_like(x, 0.5), x))


def outward(x):
    return torch.copysign(torch.ceil(x.abs()), x)


ROUNDINGS = {"truncated": torch.trunc, "rounded up": torch.ceil, "rounded down": torch.floor,
             "rounded away from zero": outward}  # fmt: skip


# ---- inputs --------------------------------------------------------------------------


def _float_keys(reference):
    return [
        key
        for key, part in reference.parts.items()
        if part.dtype.is_floating_point and not part.steers and part.data.numel()
    ]


def _argument_keys(call, names):
    """Segments that belong to arguments of these names alone."""
    inside = {(v.storage, v.dtype) for v in call.views.values() if v.argument in names}
    outside = {(v.storage, v.dtype) for v in call.views.values() if v.argument not in names}
    return inside - outside


def input_sets(call, reference):
    """Which inputs a device may have rounded: all; all but biases; all it only reads; one
    of them."""
    every = _float_keys(reference)
    sets = [every]
    biases = {"bias", "self"} if base_name(call.op)[1] in ADDING else {"bias"}
    kept = _argument_keys(call, biases)
    sets.insert(0, [k for k in every if k not in kept])
    written = {call.views[p].argument for p in call.written()}
    if written:
        kept = _argument_keys(call, written)
        sets.append([k for k in every if k not in kept])
    if 1 < len(every) <= 6:
        sets += [[k] for k in every]
    return [keys for i, keys in enumerate(sets) if keys and keys not in sets[:i]]


def rounded_inputs(lab, keys, name, integer=torch.round):
    """The call on inputs rounded to a format."""
    parts = lab.reference.parts
    return lab.reference.wide({k: lab.rounded(parts[k].data, name, integer) for k in keys})


def input_candidates(lab):
    """Inputs rounded to, or cut down to, a lower format."""
    call, reference = lab.call, lab.reference
    for keys in input_sets(call, reference):
        for name in LOW:
            yield (f"inputs rounded to {name}",
                   lambda k=keys, n=name: rounded_inputs(lab, k, n))  # fmt: skip
        for name in LOW:
            yield (f"inputs truncated to {name} instead of rounded",
                   lambda k=keys, n=name: rounded_inputs(lab, k, n, torch.trunc))  # fmt: skip
        for name in ("bfloat16", "float16"):
            yield (f"inputs and result rounded to {name}",
                   lambda k=keys, n=name: _rounded(lab, rounded_inputs(lab, k, n), n))  # fmt: skip
    for keys in input_sets(call, reference)[:1]:
        yield "subnormals flushed to zero in the inputs", lambda k=keys: _flushed_inputs(lab, k)


def _rounded(lab, outputs, name):
    return {p: lab.rounded(t, name) if t.is_floating_point() else t for p, t in outputs.items()}


def flushed(x, emin):
    """Zero for what lies below the smallest normal number."""
    return torch.where(x.abs() < 2.0**emin, x * 0, x)


def _flushed_inputs(lab, keys):
    parts = lab.reference.parts
    return lab.reference.wide({
        k: flushed(parts[k].data.double(), FORMATS[OWN_FORMAT[parts[k].dtype]][1]) for k in keys
    })  # fmt: skip


# ---- inside --------------------------------------------------------------------------


def inside_candidates(lab):
    """Intermediates in a lower format: all of them, at two depths, or the operands of the
    products alone; the whole call in a lower dtype; one of the intermediates."""
    call = lab.call
    products = [n for n in lab.nodes() if n.name in PRODUCTS]
    leaves, top = _leaves(lab), [n for n in lab.nodes() if len(n.place) == 1]
    for way, integer in (("rounded", torch.round), ("truncated", torch.trunc)) if products else ():
        for name in LOW:
            yield (f"inputs {way} to {name}: those of the products",
                   lambda n=name, i=integer: lab.edited(_operands(lab, leaves, n, i)))  # fmt: skip
    for name in LOW:
        text = f"intermediates rounded to {name}"
        yield text, lambda n=name: lab.edited(_results(lab, leaves, n), dtype=torch.float32)
        if len(lab.nodes()) > 1:
            yield text, lambda n=name: lab.edited(_results(lab, top, n), dtype=torch.float32)
            yield text, lambda n=name: lab.edited(_results(lab, top, n) | _operands(lab, top, n, after=_rounding(lab, n)),
                                                  dtype=torch.float32)
        for keys in input_sets(call, lab.reference)[:1]:
            yield (f"inputs and intermediates rounded to {name}",
                   lambda n=name, k=keys: _inputs_and_inside(lab, leaves, k, n))  # fmt: skip
    for name in ("bfloat16", "float16"):
        yield (f"computed in {name}: inputs, intermediates and result rounded to {name}",
               lambda n=name: lab.reference.in_dtype(getattr(torch, n)))  # fmt: skip
    native = lab.reference.native
    if any(p.dtype in (torch.bfloat16, torch.float16) for p in lab.reference.parts.values()):
        low = "bfloat16" if any(
            p.dtype == torch.bfloat16 for p in lab.reference.parts.values()) else "float16"  # fmt: skip
        yield f"intermediates rounded to {low}", lambda: _all_doubles(native())


def _all_doubles(outputs):
    return {p: doubles(t) for p, t in outputs.items()}


def _inputs_and_inside(lab, leaves, keys, name):
    parts = lab.reference.parts
    contents = {k: lab.rounded(parts[k].data, name).float() for k in keys}
    return lab.edited(_results(lab, leaves, name), dtype=torch.float32, contents=contents)


def _leaves(lab):
    """The operators that nothing simpler computes."""
    return [n for n in lab.nodes() if not n.inside]


def _results(lab, nodes, name):
    """Edits that round every float result to a format."""
    return {n.place: _rounding(lab, name) for n in nodes if _makes_floats(n)}


def _makes_floats(node):
    views = any(r.alias_info is not None and not is_write(r) for r in node.func._schema.returns)
    return not views and any(s.floats for s in slots_in(node.result))


def _operands(lab, nodes, name, integer=torch.round, after=None):
    """Edits that round the operands of products to a format, and then do `after`."""
    def operand(value):
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.dim() > 1:
            return lab.rounded(value, name, integer).to(value.dtype)
        return value

    def edit(func, args, kwargs):
        args = [operand(a) for a in args]
        return func(*args, **kwargs) if after is None else after(func, args, kwargs)

    return {n.place: edit for n in nodes if n.name in PRODUCTS}


def single_candidates(lab):
    """The intermediates of one place of the code rounded or cut off."""
    for way, integer, names in (("rounded", torch.round, ("bfloat16", "TF32", "float16", *FLOAT8)),
                                ("truncated instead of rounded", torch.trunc, ("bfloat16", "float16"))):  # fmt: skip
        for name in names:
            for nodes in _roundable(lab)[:MANY_NODES]:
                yield (_at(way, name, [nodes]),
                       lambda n=name, s=nodes, i=integer: lab.edited(_every(lab, [s], n, i)))  # fmt: skip


def _roundable(lab):
    """Operators by place of the code whose results somebody may keep in a narrower format."""
    return [nodes for nodes in groups(lab) if _may_be_narrow(lab, nodes)]


def _may_be_narrow(lab, nodes):
    """Whether operators compute numbers, and not a few that are the same everywhere: those in a
    format are another constant."""
    if not nodes[0].floats or _only_moves(nodes[0]):
        return False
    made = [lab.graph(torch.float64).tensors[next(slots_in(n.result)).number] for n in nodes[:FEW]]
    return torch.cat([t.reshape(-1)[:MANY] for t in made]).unique().numel() >= FEW


def _at(way, name, places):
    return f"intermediates {way} to {name}: {' and '.join(nodes[0].name.lstrip('_') for nodes in places)}"


def _every(lab, places, name, integer=torch.round):
    return {n.place: _rounding(lab, name, integer) for nodes in places for n in nodes}


def several_candidates(lab, follows, spend):
    """The results of two or three places rounded, of those that explain some of the noise alone.
    `follows(outputs)` is the correlation with the device's errors, `spend` as in `fit`."""
    places = [nodes for nodes in sites(lab) if _may_be_narrow(lab, nodes)][:MANY_NODES]
    for name in ("bfloat16", "float16", *FLOAT8):
        held = [(follows(lab.edited(_every(lab, [nodes], name))), i)
                for i, nodes in enumerate(places) if len(places) > 2 and spend(1)]  # fmt: skip
        best = [places[i] for v, i in sorted(held, reverse=True) if v >= SOME][:MOST_TOGETHER]
        for count in (2, 3):
            for some in itertools.combinations(best, count):
                yield _at("rounded", name, some), lambda n=name, s=some: lab.edited(_every(lab, s, n))


FUNCTIONS = {"exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "tanh", "erf",
             "erfc", "sigmoid", "sin", "cos", "pow", "reciprocal", "atan", "sinh", "cosh"}  # fmt: skip


def _functions(lab):
    """The elementary functions inside a call."""
    return [n for n in lab.nodes() if n.name in FUNCTIONS and n.floats]


def function_candidates(lab):
    """All elementary functions rounded."""
    nodes = _functions(lab)
    for name in LOW if len(nodes) > 1 else ():
        for way in (_rounding, _rounding_both):
            edits = {n.place: way(lab, name) for n in nodes}
            yield (f"intermediates rounded to {name}: the elementary functions",
                   lambda e=edits: lab.edited(e))  # fmt: skip


def _rounding_both(lab, name):
    """What an operator is given and what it gives, rounded."""
    after = _rounding(lab, name)

    def edit(func, args, kwargs):
        first = lab.rounded(args[0], name).to(args[0].dtype)
        return after(func, (first, *args[1:]), kwargs)

    return edit


def _only_moves(node):
    return node.name in MOVES


def _rounding(lab, name, integer=torch.round):
    def edit(func, args, kwargs):
        return mapped(func(*args, **kwargs), rounded)

    def rounded(value):
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return lab.rounded(value, name, integer).to(value.dtype)
        return value

    return edit


def overflow_candidates(lab):
    """Formulas that overflow where a careful one does not, in the formats that do."""
    maxima = {n.place: _no_maximum for n in lab.nodes() if n.name == "amax"}
    if maxima:
        yield ("softmax without subtracting the maximum: overflow in float32",
               lambda: lab.edited(maxima, dtype=torch.float32))  # fmt: skip
        yield ("softmax without subtracting the maximum: overflow in float16",
               lambda: lab.edited(_in_range(_leaves(lab), maxima), dtype=torch.float32))  # fmt: skip
    sums = {n.place: _accumulating(lab, "float16", 1) for n in _leaf_only(_adding(lab))}
    if sums:
        yield ("overflow of the accumulator in float16: beyond 65504 (accumulated in float16)",
               lambda: lab.edited(sums, dtype=torch.float32))  # fmt: skip
    functions = _functions(lab)
    for way in (_rounding, _rounding_both) if functions else ():
        yield ("overflow of the elementary functions in float16: beyond 65504 (intermediates rounded to float16)",
               lambda e={n.place: way(lab, "float16") for n in functions}: lab.edited(e))  # fmt: skip
    yield ("overflow of intermediates in float16: beyond 65504 (intermediates rounded to float16)",
           lambda: lab.edited(_results(lab, _leaves(lab), "float16"), dtype=torch.float32))  # fmt: skip
    yield ("overflow of the result in float16: beyond 65504 (result rounded to float16)",
           lambda: of_results(lab.reference, lambda t: to_format(t, "float16")))  # fmt: skip
    for keys in input_sets(lab.call, lab.reference)[:1]:
        yield ("overflow of the inputs in float16: beyond 65504 (inputs rounded to float16)",
               lambda k=keys: rounded_inputs(lab, k, "float16"))  # fmt: skip


def _no_maximum(func, args, kwargs):
    return torch.zeros_like(func(*args, **kwargs))


def _in_range(nodes, edits):
    """Edits, and every result beyond float16's range infinite."""
    def over(value):
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return torch.where(value.abs() > 65504.0, torch.copysign(value * 0 + torch.inf, value), value)
        return value

    def edit(func, args, kwargs, own=None):
        return mapped(own(func, args, kwargs) if own else func(*args, **kwargs), over)

    return {n.place: functools.partial(edit, own=edits.get(n.place)) for n in nodes if _makes_floats(n)}


# ---- accumulators --------------------------------------------------------------------


def _adding(lab):
    return [n for n in lab.nodes() if n.name in ("mm", "bmm", "sum", "mean", "addmm", "matmul")]


def accumulator_candidates(lab):
    """Sums and products whose running sum is kept in a lower format, one term or one block
    of terms after the other."""
    nodes = _adding(lab)
    for name in ("bfloat16", "float16"):
        for chunk in CHUNKS:
            edits = {}
            for node in _leaf_only(nodes):
                edits[node.place] = _accumulating(lab, name, chunk)
            if edits:
                yield (f"accumulated in {name} (low-precision accumulator)",
                       lambda e=edits: lab.edited(e, dtype=torch.float32))  # fmt: skip


def _leaf_only(nodes):
    return [n for n in nodes
            if not any(m is not n and m.place[: len(n.place)] == n.place for m in nodes)]  # fmt: skip


def _accumulating(lab, name, chunk):
    def edit(func, args, kwargs):
        with _disable_current_modes():  # thousands of small steps, none of which needs watching
            return apply(func, args, kwargs)

    def apply(func, args, kwargs):
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


def _once(lab, x, name):
    return rounded_once(x, name) if lab.plain else lab.rounded(x, name).to(x.dtype)


def _product(lab, a, b, name, chunk):
    total = torch.zeros((*a.shape[:-1], b.shape[-1]), dtype=a.dtype)
    if a.shape[-1] // chunk > MOST_STEPS:
        raise LookupError("too many additions")
    for k in range(0, a.shape[-1], chunk):
        total = _once(lab, total + a[..., k : k + chunk] @ b[..., k : k + chunk, :], name)
    return total


def _summed(lab, func, args, kwargs, kind, name, chunk):
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


def of_results(reference, change):
    """The truth with `change` applied to every float output."""
    return {
        p: change(t) if t.is_floating_point() else t for p, t in reference.truth.items()
    }


def result_candidates(lab, device):
    """Results rounded otherwise than to their own dtype, to the nearest."""
    reference = lab.reference
    own = FORMATS.get(OWN_FORMAT.get(device.dtype, ""), (53, -1022, 1023))
    for name in ("bfloat16", "float16", "TF32"):
        if FORMATS[name][0] < own[0] or FORMATS[name][1] > own[1]:
            yield (f"result rounded to {name}",
                   lambda n=name: of_results(reference, lambda t: lab.rounded(t, n)))  # fmt: skip
            yield (f"result truncated to {name} instead of rounded",
                   lambda n=name: of_results(reference, lambda t: lab.rounded(t, n, torch.trunc)))  # fmt: skip
    bits = _core.significant_bits(device)
    cut = own[0] - bits
    if 0 < bits and cut > 1:
        yield (f"the last {cut} bits of the result are cut off (truncated instead of rounded)",
               lambda: of_results(reference, lambda t: quantize(t, bits, *own[1:], torch.trunc)))  # fmt: skip
        yield (f"result rounded to {bits} significant bits",
               lambda: of_results(reference, lambda t: quantize(t, bits, *own[1:])))  # fmt: skip
    for way, integer in ROUNDINGS.items():
        yield (f"result {way} instead of rounded to nearest",
               lambda i=integer: of_results(reference, lambda t: quantize(t, *own, i)))  # fmt: skip
    for emin in {own[1], -14} if own[0] <= 24 else ():
        yield ("subnormals flushed to zero" + (" (those of float16)" if emin != own[1] else ""),
               lambda e=emin: of_results(reference, lambda t: flushed(t, e)))  # fmt: skip
