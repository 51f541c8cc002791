# SPDX-License-Identifier: Apache-2.0
"""Elements of which an operator promises nothing, or promises every bit: conversions out of
range, subgradients at a tie, several writes to one place; roundings. Serves `_outputs`."""

from dataclasses import dataclass

import torch

from . import _corners
from ._exact import ROUNDINGS
from ._excuses import most
from ._ties import name_of_one, operator_of
from ._writes import written_twice

CASTS = {"_to_copy", "to", "copy_", "copy", "type_as", "_copy_from", "int", "long"}


def is_rounding(call):
    """Whether the operator gives the exact value whatever the input."""
    name = name_of_one(call).removeprefix("_foreach_").removesuffix("_")
    return not call.is_complex and name in ROUNDINGS and not operator_of(call)[1].get("decimals")


def inexact(device, truth):
    """Where a result that has to be exact is not; flushed subnormals are left to the judge."""
    want = truth.to(device.dtype)
    same = (device == want) | (device.isnan() & want.isnan())
    return ~same & ~((device == 0) & (want.abs() < torch.finfo(device.dtype).tiny))


@dataclass
class Free:
    """Elements of an output that go free by an excuse."""

    code: str  # as in `_excuses`
    why: str  # a clause
    where: torch.Tensor  # bool
    spared: torch.Tensor  # the output with these put right


def unpromised(operands, path, device, open_):
    """The elements of an output, among those marked in `open_`, that hang on what the
    operator does not promise; None where there are none."""
    want = operands.reference.truth[path].to(device.dtype)
    for code, rule in RULES.items():
        found = rule(operands, path, device, open_)
        if isinstance(found, tuple):
            return Free(code, WHY[code], *found)
        if found is not None and bool((found & open_).any()):
            where = found & open_
            return Free(code, WHY[code], where, torch.where(where, want, device))
    return None


def not_held(call, device):
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


def _out_of_range(operands, path, device, open_):
    """Floats that the integer type does not hold; where they are many, as long as the device
    gives what some conversion gives."""
    open_ = not_held(operands.call, device)
    if open_ is None or not many_out_of_range(open_):
        return open_
    return open_ & (conversions(operands.call, device) == device).any(0)


def many_out_of_range(open_):
    return int(open_.sum()) > max(1, most("out_of_range") * open_.numel())


def conversions(call, device):
    """What conversions to the integer type of `device` give of floats that it does not hold,
    along a first axis: its limits, 0, -1, the low bits of wider integers."""
    _, source = operator_of(call)
    wide = source.get("src", source.get("self")).detach().double().expand(device.shape)
    info = torch.iinfo(device.dtype)
    usual = [torch.full(device.shape, v).to(device.dtype) for v in (info.min, info.max, 0, -1)]
    for bits in (8, 16, 32, 64):  # converted to a wider type, of which the low bits are kept
        least, largest = -(2.0 ** (bits - 1)), 2.0 ** (bits - 1)
        held = torch.where((wide >= least) & (wide < largest), wide, least)
        wrapped = held.nan_to_num(least, least, least).to(torch.int64)
        clamped = wide.clamp(least, largest - 1).nan_to_num(0).to(torch.int64)
        usual += [wrapped.to(device.dtype), clamped.to(device.dtype)]
    return torch.stack(usual)


WHY = {
    "out_of_range": "a float that the integer type does not hold is converted",
    "written_twice": "several updates write one element, in no promised order",
    "corner": "the function has a corner there, and any subgradient is one",
}
RULES = {"out_of_range": _out_of_range, "written_twice": written_twice, "corner": _corners.freed}
