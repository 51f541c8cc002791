# SPDX-License-Identifier: Apache-2.0
"""Sums that no order of adding rounds: all terms are multiples of one number, and the sum of their
sizes is below 2^24 times that. Elsewhere a sum that a CPU gives exactly is luck. Serves
`judges.answers` and `noise`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from .. import _core
from ..calls.exact import never_rounds
from ..calls import large
from ..calls.foreign import foreign
from ..calls.mode import Mode
from .precision import sound

if TYPE_CHECKING:
    from .reference_runs import Reference

# Operators that add, each term with weight 1, by how a term is made of their arguments.
SUMS = {
    "sum",
    "cumsum",
    "index_add",
    "scatter_add",
    "_embedding_bag",
    "_embedding_bag_forward_only",
    "embedding_dense_backward",
    "col2im",
}
PRODUCTS = {"mm", "bmm", "mv", "dot"}
BIASED = {"addmm", "baddbmm", "addmv", "addcmul"}  # the first argument, and products of the others
# Convolutions are none of them: Winograd's algorithm multiplies by thirds.

# Others that add, with weights.
WEIGHTED = {
    "mean",
    "convolution",
    "linear",
    "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d",
    "adaptive_avg_pool1d",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "nansum",
}

MEANS = {"mean", "avg_pool1d", "avg_pool2d", "avg_pool3d"}

# One rounding of IEEE arithmetic: exact where it is.
ARITHMETIC = {"add", "sub", "rsub", "mul", "neg", "abs"}
WHOLE = 2.0**24  # float32 holds every whole number up to this


class _Whole(Mode):
    """Runs a call in float32; `holds` tells whether no order of computing it rounds. With `cast` one step
    may round: the last one that computes, if it is a cast."""

    def __init__(self, cast):
        super().__init__()
        self.holds = True
        self.cast = cast

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = sound(func)(*args, **kwargs)
        if self.holds and not never_rounds(func.name()) and _numbers(args, kwargs):
            if self.cast and func is torch.ops.aten._to_copy.default and not _same(out.double(), args[0].double()):
                self.cast = None
            else:
                self.holds = self.cast is not None and _is_whole(func, args, kwargs, out)
        return out


def is_whole(
    reference: Reference, path: str, dtypes: frozenset[torch.dtype] = frozenset({torch.float32}), cast: bool = False
) -> bool:
    """Whether every order of computing one output gives its exact value; False of a call without float
    arguments, and of one with any of none of the `dtypes`. With `cast` the value may be rounded at the end."""
    truth, yardstick = reference.truth[path], reference.yardstick[path]
    given = {part.dtype for part in reference.parts.values() if part.dtype.is_floating_point}
    if not given or not given <= dtypes or truth.shape != yardstick.shape:
        return False
    if not _same(yardstick, truth):
        return False
    mode = _Whole(cast)
    try:
        reference.in_float32(mode)
    except Exception as problem:  # whatever an operator raises there
        foreign(problem)
        return False
    return mode.holds


def _same(a, b):
    """Whether all elements are equal; NaN is NaN."""
    return a.shape == b.shape and bool(((a == b) | (a.isnan() & b.isnan())).all())


MULTIPLIES = (
    "mm",
    "matmul",
    "conv",
    "linear",
    "attention",
    "lstm",
    "gru",
    "rnn",
    "einsum",
    "bilinear",
    "cdist",
    "dot",
    "mv",
)


def multiplies(name: str) -> bool:
    """Whether an operator may multiply matrices, on units that cut off what they add."""
    return any(part in name for part in MULTIPLIES)


def adds(name: str) -> bool:
    """Whether an operator adds terms, in an order of its own."""
    return name in SUMS or name in PRODUCTS or name in BIASED or name in WEIGHTED


def is_whole_step(func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> bool:
    """Whether no order of adding rounds the result of one operator."""
    try:
        return _is_whole(func, args, kwargs, out)
    except Exception as problem:  # it does not exist in float64, or not of sizes
        foreign(problem)
        return False


def tensors(args: Sequence[Any], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The float tensors among arguments."""
    return [t for t in (*args, *kwargs.values()) if isinstance(t, torch.Tensor) and t.is_floating_point()]


def _numbers(args, kwargs):
    """Whether there are real or complex numbers among arguments, lists included."""
    flat = [t for v in (*args, *kwargs.values()) for t in (v if isinstance(v, (list, tuple)) else (v,))]
    return any(isinstance(t, torch.Tensor) and (t.is_floating_point() or t.is_complex()) for t in flat)


def _is_whole(func, args, kwargs, out):
    name = func._schema.name.split("::")[1]
    given = tensors(args, kwargs)
    if func._schema.is_mutable or len({t.dtype for t in given}) != 1 or given[0].dtype == torch.float64:
        return False  # who has no float64 rounds there
    first = out[0] if isinstance(out, tuple) else out
    if not isinstance(first, torch.Tensor):
        return False
    if first.is_complex():
        return False
    if not first.is_floating_point():
        return True
    exact = _in_float64(func, args, kwargs, lambda t: t)
    if not _same(exact, first.double()):
        return False
    if name in ARITHMETIC or (name == "div" and _is_power_of_two(args[1])):
        return True
    unit = _unit_of(name, given) if name not in MEANS else _unit_of_mean(name, given[0], first, args, kwargs)
    if unit is None or not all(_weight_is_one(a, args, kwargs, i) for i, a in enumerate(func._schema.arguments)):
        return False
    sizes = _in_float64(func, args, kwargs, torch.abs)
    return not sizes.numel() or float(sizes.max()) <= WHOLE * unit


def _is_power_of_two(divisor):
    """Whether a division by it is a change of exponents, by whatever way it is made."""
    mantissa = torch.frexp(torch.as_tensor(divisor, dtype=torch.float64)).mantissa
    return bool((mantissa.abs() == 0.5).all())


def _in_float64(func, args, kwargs, change):
    def wide(value):
        moves = isinstance(value, torch.Tensor) and value.is_floating_point()
        return change(large.cast(value, torch.float64)) if moves else value

    out = func(*map(wide, args), **{k: wide(v) for k, v in kwargs.items()})
    return out[0] if isinstance(out, tuple) else out


def _weight_is_one(argument, args, kwargs, i):
    """Whether an argument leaves the terms as they are: no factor, no mean, no other dtype."""
    value = args[i] if i < len(args) else kwargs.get(argument.name, argument.default_value)
    if argument.name in ("alpha", "beta", "value"):
        return value == 1
    if argument.name == "dtype":
        return value in (None, torch.float32)
    return not (argument.name in ("mode", "scale_grad_by_freq") and value)


def _unit_of_mean(name, x, out, args, kwargs):
    """The same of a mean of 2, 4, 8 ... terms, whose division rounds nothing; None of any other."""
    n = x.numel() // max(out.numel(), 1)
    if name != "mean":
        size = args[1] if len(args) > 1 else kwargs.get("kernel_size")
        sizes = list(size) if isinstance(size, (list, tuple)) else [size]
        n = math.prod(sizes * (int(name[-2]) if len(sizes) == 1 else 1))
        plain = len(args) <= 3 and not kwargs.get("padding") and not kwargs.get("ceil_mode")
        if not plain or kwargs.get("divisor_override") is not None or out.dim() != x.dim():
            return None
    return _core.unit_of(x) / n if n > 0 and n & (n - 1) == 0 else None


def _unit_of(name, given):
    """A number of which all terms are multiples; None where nobody knows."""
    units = [_core.unit_of(t) for t in given]
    if name in SUMS:
        return min(units)
    if name in PRODUCTS:
        return units[0] * units[-1]
    if name in BIASED:
        return min(units[0], units[1] * units[2])
    return None
