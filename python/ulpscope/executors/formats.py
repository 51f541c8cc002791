# SPDX-License-Identifier: Apache-2.0
"""Numbers of narrower formats: doubles rounded to them, by whatever rounding to integers.
Neighbours: `judges.answers` (runs in them), `causes.emulate` (causes)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from .. import _core
from ..calls import large

if TYPE_CHECKING:
    from .reference_runs import Reference

# name -> significand bits, smallest normal exponent, largest exponent
FORMATS = {
    "TF32": (11, -126, 127),
    "bfloat16": (8, -126, 127),
    "float16": (11, -14, 15),
    "float32": (24, -126, 127),
    "float8 (e4m3)": (4, -6, 8),
    "float8 (e5m2)": (3, -14, 15),
}
LOW = ("TF32", "float16", "bfloat16")
OWN_FORMAT = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}


def quantize(
    x: torch.Tensor,
    bits: int,
    emin: int = -126,
    emax: int = 127,
    integer: Callable[[torch.Tensor], torch.Tensor] = torch.round,
) -> torch.Tensor:
    """Doubles with `bits` significand bits; `integer` is torch.round (nearest, ties to
    even), torch.trunc or another rounding to integers."""
    if integer is torch.round and 1 < bits < 53 and emin > -900 and emax < 1023:
        x = large.cast(x.detach(), torch.float64, copy=True)
        _core.round_to(_as_it_lies(x), bits, emin, emax)
        return x
    x = x.double()
    exponent = torch.frexp(x)[1].double() - 1
    quantum = torch.exp2(exponent.clamp(min=emin) - (bits - 1))
    y = integer(x / quantum) * quantum
    top = math.ldexp(1, emax + 1) if emax < 1023 else math.inf
    y = torch.where(y.abs() >= top, torch.copysign(x * 0 + torch.inf, x), y)
    return torch.where(x.isfinite(), y, x)


def _as_it_lies(x):
    """All elements of a tensor without gaps, in the order in which they lie."""
    return x.permute(sorted(range(x.dim()), key=lambda d: -x.stride(d)))


NATIVE = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def rounded_once(x: torch.Tensor, name: str) -> torch.Tensor:
    """`x` rounded to a named format, in its own dtype: quickly where torch can."""
    if x.dtype == torch.float32 and name in NATIVE:
        return x.to(NATIVE[name]).to(x.dtype)
    if x.dtype == torch.float32 and name == "TF32":  # in the pattern, as `_nearest`
        pattern = x.contiguous().view(torch.int32)
        return torch.where(x.isfinite(), ((pattern + (((pattern >> 13) & 1) + 0xFFF)) & -0x2000).view(torch.float32), x)
    return to_format(x, name).to(x.dtype)


def rounded_inputs(reference: Reference, name: str) -> dict[tuple[int, torch.dtype], torch.Tensor]:
    """The floats among its inputs, rounded to a format; none that steer."""
    return {
        k: to_format(p.data, name) for k, p in reference.parts.items() if p.dtype.is_floating_point and not p.steers
    }


def to_format(
    x: torch.Tensor, name: str, integer: Callable[[torch.Tensor], torch.Tensor] = torch.round
) -> torch.Tensor:
    """`x` rounded to a named format, as doubles."""
    return quantize(x, *FORMATS[name], integer)
