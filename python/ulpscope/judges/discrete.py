# SPDX-License-Identifier: Apache-2.0
"""Conversions that the integer type does not hold, and what they give; roundings. Serves
`answers`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..calls.exact import ROUNDINGS
from ..calls.indices import name_of_one, operator_of

if TYPE_CHECKING:
    from ..calls.replay import Call

CASTS = {"_to_copy", "to", "copy_", "copy", "type_as", "_copy_from", "int", "long"}


def is_rounding(call: Call) -> bool:
    """Whether the operator gives the exact value whatever the input."""
    name = name_of_one(call).removeprefix("_foreach_").removesuffix("_")
    return not call.is_complex and name in ROUNDINGS and not operator_of(call)[1].get("decimals")


def not_held(call: Call, device: torch.Tensor) -> torch.Tensor | None:
    """Where a float is converted that the integer type of the output does not hold; None for
    what is no conversion."""
    name, arguments = operator_of(call)
    if name not in CASTS or device.dtype.is_floating_point or device.dtype == torch.bool:
        return None
    source = arguments.get("src", arguments.get("self"))
    if not isinstance(source, torch.Tensor) or not source.dtype.is_floating_point:
        return None
    info = torch.iinfo(device.dtype)
    whole = source.detach().double().trunc()
    fits = (whole >= float(info.min)) & (whole < float(info.max) + 1)
    return ~fits.expand(device.shape)


def conversions(call: Call, device: torch.Tensor) -> torch.Tensor | None:
    """What conversions to the integer type of `device` give of floats that it does not hold,
    along a first axis: its limits, 0, -1, the low bits of wider integers."""
    _, source = operator_of(call)
    given: torch.Tensor = source["src"] if "src" in source else source["self"]
    wide = given.detach().double().expand(device.shape)
    info = torch.iinfo(device.dtype)
    usual = [torch.full(device.shape, v).to(device.dtype) for v in (info.min, info.max, 0, -1)]
    for bits in (8, 16, 32, 64):  # converted to a wider type, of which the low bits are kept
        least, largest = -(2.0 ** (bits - 1)), 2.0 ** (bits - 1)
        held = torch.where((wide >= least) & (wide < largest), wide, least)
        wrapped = held.nan_to_num(least, least, least).to(torch.int64)
        clamped = wide.clamp(least, largest - 1).nan_to_num(0).to(torch.int64)
        usual += [wrapped.to(device.dtype), clamped.to(device.dtype)]
    return torch.stack(usual)
