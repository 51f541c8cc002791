# SPDX-License-Identifier: Apache-2.0
"""What a faulty device would have computed: emulations of the usual mistakes on the CPU.

Each candidate is (text, function); the function gives the outputs that a device with that
mistake would leave, by path, or raises. `_diagnose` decides whether one explains what the
device did. The texts are the causes that a report prints.
"""

import copy

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ._replay import base_name, is_write
from ._sources import cpu_kernel

# name -> significand bits, smallest normal exponent, largest exponent
FORMATS = {
    "TF32": (11, -126, 127),
    "bfloat16": (8, -126, 127),
    "float16": (11, -14, 15),
    "float32": (24, -126, 127),
}
OWN_FORMAT = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
# Operators whose `self` is added to a product, as a bias is.
ADDING = {"addmm", "addmv", "baddbmm", "addbmm", "addr", "_addmm_activation"}


def quantize(x, bits, emin=-126, emax=127, integer=torch.round):
    """Doubles with `bits` significand bits; `integer` is torch.round (nearest, ties to
    even) or torch.trunc."""
    x = x.double()
    exponent = torch.frexp(x)[1].double() - 1
    quantum = torch.exp2(exponent.clamp(min=emin) - (bits - 1))
    y = integer(x / quantum) * quantum
    y = torch.where(y.abs() >= 2.0 ** (emax + 1), torch.copysign(x * 0 + torch.inf, x), y)
    return torch.where(x.isfinite(), y, x)


def to_format(x, name, integer=torch.round):
    """`x` rounded to a named format, as doubles."""
    return quantize(x, *FORMATS[name], integer)


def to_dtype(x, dtype):
    """`x` rounded once to `dtype`, as doubles."""
    return to_format(x, OWN_FORMAT[dtype]) if dtype in OWN_FORMAT else x.to(dtype).double()


class RoundInside(TorchDispatchMode):
    """Rounds every float result of the operators that run under it to a narrower format,
    as a kernel does that keeps its intermediates in it."""

    def __init__(self, name):
        super().__init__()
        self.name = name

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        values = out if isinstance(out, (tuple, list)) else (out,)
        for value, declared in zip(values, func._schema.returns):
            is_view = declared.alias_info is not None and not is_write(declared)
            if isinstance(value, torch.Tensor) and value.is_floating_point() and not is_view:
                value.copy_(to_format(value, self.name))
        return out


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
    """Which inputs a device may have rounded: all; all but biases; all it only reads."""
    every = _float_keys(reference)
    sets = [every]
    biases = {"bias", "self"} if base_name(call.op)[1] in ADDING else {"bias"}
    kept = _argument_keys(call, biases)
    sets.insert(0, [k for k in every if k not in kept])
    written = {call.views[p].argument for p in call.written()}
    if written:
        kept = _argument_keys(call, written)
        sets.append([k for k in every if k not in kept])
    return [keys for i, keys in enumerate(sets) if keys and keys not in sets[:i]]


def rounded_inputs(reference, keys, name, integer=torch.round):
    """The call on inputs rounded to a format."""
    parts = reference.parts
    return reference.wide({k: to_format(parts[k].data, name, integer) for k in keys})


def _input_candidates(call, reference):
    for keys in input_sets(call, reference):
        for name in ("TF32", "bfloat16", "float16"):
            yield (f"inputs rounded to {name}",
                   lambda k=keys, n=name: rounded_inputs(reference, k, n))  # fmt: skip
            yield (f"inputs truncated to {name}",
                   lambda k=keys, n=name: rounded_inputs(reference, k, n, torch.trunc))  # fmt: skip
        for name in ("bfloat16", "float16"):
            yield (f"inputs and result rounded to {name}", lambda k=keys, n=name: {
                p: to_format(t, n) if t.is_floating_point() else t
                for p, t in rounded_inputs(reference, k, n).items()
            })  # fmt: skip


# ---- inside --------------------------------------------------------------------------


def _inside(call):
    """The call as operators that a dispatch mode can see: a custom operator's CPU kernel,
    or torch's decomposition of an ATen one. None where there is neither."""
    space = call.op.split("::")[0]
    if space not in ("aten", "prims"):
        return cpu_kernel(call)
    from torch._decomp import decomposition_table

    return decomposition_table.get(call.function)


def rounded_inside(call, reference, name):
    """The call in float32 with every intermediate rounded to a format."""
    function = _inside(call)
    if function is None:
        raise LookupError("nothing to look inside of")

    def inside(*args, **kwargs):
        with RoundInside(name):
            return function(*args, **kwargs)

    out = reference._run(_plain_float32, None, inside)
    return {p: t.double() if t.is_floating_point() else t for p, t in out.items()}


def _plain_float32(dtype):
    return torch.float32 if dtype.is_floating_point else dtype


def _inner_candidates(call, reference):
    for name in ("bfloat16", "float16"):
        yield (f"intermediates rounded to {name}",
               lambda n=name: rounded_inside(call, reference, n))  # fmt: skip


# ---- other arguments -----------------------------------------------------------------


def _with_step(call, reference, amount):
    """A fused optimizer that counts its steps otherwise."""
    contents = {
        key: part.data + amount
        for key, part in reference.parts.items()
        if key in _argument_keys(call, {"state_steps"})
    }
    if not contents:
        raise LookupError("no step count")
    return reference.wide(contents)


def _with_argument(call, reference, name, value):
    """The call as if the argument `name` had another value."""
    other = copy.copy(call)
    other.args, other.kwargs = list(call.args), dict(call.kwargs)
    names = [a.name for a in call.schema.arguments]
    i = names.index(name)
    if i < len(other.args):
        other.args[i] = value
    else:
        other.kwargs[name] = value
    twin = copy.copy(reference)
    twin.call = other
    return twin.wide()


def _other_values(value):
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, float) and value == value:
        return [v for v in (0.0, 2 * value, 1.0) if v != value]
    return [{"none": "tanh", "tanh": "none"}[value]] if value in ("none", "tanh") else []


def _argument_candidates(call, reference):
    if any(v.argument == "state_steps" for v in call.views.values()):
        yield ("adds 1 to the step count a second time",
               lambda: _with_step(call, reference, 1))  # fmt: skip
        yield "does not count the current step", lambda: _with_step(call, reference, -1)
    for argument in call.schema.arguments if call.schema else ():
        for value in _other_values(call.value(argument.name)):
            shown = f"{value:g}" if isinstance(value, float) else value
            yield (f"computes as if {argument.name} were {shown}",
                   lambda n=argument.name, v=value: _with_argument(call, reference, n, v))  # fmt: skip


# ---- results -------------------------------------------------------------------------


def _of_results(reference, change):
    """The truth with `change` applied to every float output."""
    return {
        p: change(t) if t.is_floating_point() else t for p, t in reference.truth.items()
    }


def _result_candidates(call, reference, device):
    for name in ("bfloat16", "float16", "TF32"):
        if OWN_FORMAT.get(device.dtype) not in (name, None):
            yield (f"result rounded to {name}",
                   lambda n=name: _of_results(reference, lambda t: to_format(t, n)))  # fmt: skip
    bits = significant_bits(device)
    own = FORMATS.get(OWN_FORMAT.get(device.dtype, ""), (53, -1022, 1023))
    cut = own[0] - bits
    if 0 < bits and cut > 1:
        yield (f"the last {cut} bits of the result are cut off",
               lambda: _of_results(reference, lambda t: quantize(t, bits, *own[1:], torch.trunc)))  # fmt: skip
        yield (f"result rounded to {bits} significant bits",
               lambda: _of_results(reference, lambda t: quantize(t, bits, *own[1:])))  # fmt: skip
    yield ("result truncated instead of rounded",
           lambda: _of_results(reference, lambda t: quantize(t, *own, torch.trunc)))  # fmt: skip


def significant_bits(device):
    """The most significand bits that any finite element uses; 0 without elements."""
    x = device[device.isfinite() & (device != 0)].double()
    if x.numel() < 4:
        return 0
    mantissa = (torch.frexp(x)[0].abs() * 2.0**53).long()
    lowest = mantissa & -mantissa
    return 53 - int(torch.log2(lowest.double()).min())


def candidates(call, reference, device):
    """Everything that is tried, the likeliest first."""
    yield from _result_candidates(call, reference, device)
    yield from _inner_candidates(call, reference)
    yield from _input_candidates(call, reference)
    yield from _argument_candidates(call, reference)
