# SPDX-License-Identifier: Apache-2.0
"""Elements of which an operator promises nothing, or promises every bit: conversions out of
range, subgradients at a tie, several writes to one place; roundings. Serves `_outputs`."""

from dataclasses import dataclass

import torch

from . import _corners
from ._exact import ROUNDINGS
from ._ties import name_of_one, operator_of

CASTS = {"_to_copy", "to", "copy_", "copy", "type_as", "_copy_from", "int", "long"}
WRITES = {"scatter", "scatter_", "index_put", "index_put_", "index_copy", "index_copy_",
          "_index_put_impl_", "_unsafe_index_put", "put", "put_"}  # fmt: skip
MOST_OPEN = 65536


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
    """Floats that the integer type does not hold."""
    return not_held(operands.call, device)


def _written_twice(operands, path, device, open_):
    """Places that several updates write: any of these is right."""
    name, arguments = operator_of(operands.call)
    if name not in WRITES or arguments.get("accumulate") or arguments.get("reduce"):
        return None
    try:
        places, values = _updates(name, arguments, device)
    except (RuntimeError, IndexError, TypeError, KeyError):
        return None
    flat, wanted = device.reshape(-1), open_.reshape(-1).nonzero().flatten()
    if not wanted.numel() or wanted.numel() > MOST_OPEN:
        return None
    live = torch.isin(places, wanted)
    places, values = places[live], values[live]
    good = torch.zeros_like(open_).reshape(-1)
    hit = values == flat[places]
    counts = torch.bincount(places, minlength=flat.numel())
    good[places[hit]] = True
    good &= counts > 1
    return good.view(open_.shape)


def _updates(name, arguments, device):
    """Flat places of an output and the values that are written there."""
    ids = torch.arange(device.numel()).view(device.shape)
    index = arguments.get("index")
    if name.startswith("scatter"):
        dim, source = arguments["dim"], arguments.get("src", arguments.get("value"))
        grid = [torch.arange(n).view([-1] + [1] * (index.dim() - d - 1))
                for d, n in enumerate(index.shape)]  # fmt: skip
        grid[dim] = index
        places = ids[tuple(grid)]
        values = source[tuple(slice(n) for n in index.shape)] if source.dim() else source
    elif name.startswith("index_copy"):
        places, values = ids.index_select(arguments["dim"], index), arguments["source"]
    elif name.startswith("put"):
        places, values = index.reshape(-1) % device.numel(), arguments["source"].reshape(-1)
    else:
        indices = [slice(None) if i is None else i for i in arguments["indices"]]
        places, values = ids[tuple(indices)], arguments["values"]
    values = torch.as_tensor(values, dtype=device.dtype).expand(places.shape)
    return places.reshape(-1), values.reshape(-1)


WHY = {
    "out_of_range": "a float that the integer type does not hold is converted",
    "written_twice": "several updates write one element, in no promised order",
    "corner": "the function has a corner there, and any subgradient is one",
}
RULES = {"out_of_range": _out_of_range, "written_twice": _written_twice, "corner": _corners.freed}
