# SPDX-License-Identifier: Apache-2.0
"""Elements of which an operator promises nothing, or promises every bit: conversions out of
range, subgradients at a tie, several writes to one place; roundings. Serves `_outputs`."""

import torch

from ._exact import ROUNDINGS
from ._ties import name_of_one, operator_of

CASTS = {"_to_copy", "to", "copy_", "copy", "type_as", "_copy_from", "int", "long"}
WRITES = {"scatter", "scatter_", "index_put", "index_put_", "index_copy", "index_copy_",
          "_index_put_impl_", "_unsafe_index_put", "put", "put_"}  # fmt: skip
PROBES = 48
TWICE = 8  # of them are looked at from half the distance as well
JITTER = 2.0**-44  # of each input: only float64 sees it, and no slope makes it visible
JUMP = 2.0**-10  # of the result: far above it
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


def unpromised(operands, path, device, open_):
    """
    Which elements of an output hang on what the operator does not promise, among those
    marked in `open_`, and the clause that says why; None where there are none.
    """
    for rule in (_out_of_range, _written_twice, _at_a_tie):
        found = rule(operands, path, device, open_)
        if found is not None and bool((found[0] & open_).any()):
            return found
    return None


def _out_of_range(operands, path, device, open_):
    """Floats that the integer type does not hold."""
    name, arguments = operator_of(operands.call)
    if name not in CASTS or device.dtype.is_floating_point or device.dtype == torch.bool:
        return None
    source = arguments.get("src", arguments.get("self"))
    if not isinstance(source, torch.Tensor) or not source.dtype.is_floating_point:
        return None
    info = torch.iinfo(device.dtype)
    whole = source.detach().double().trunc()
    fits = (whole >= float(info.min)) & (whole < float(info.max) + 1)
    return ~fits.expand(device.shape), "a float that the integer type does not hold is converted"


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
    return good.view(open_.shape), "several updates write one element, in no promised order"


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


def _at_a_tie(operands, path, device, open_):
    """Gradients where the function has a corner: any subgradient is one. Found by moving all
    inputs by less than any slope could show."""
    call = operands.call
    if not device.dtype.is_floating_point or not _is_gradient(call, path):
        return None
    truth = operands.reference.truth[path]
    low, high, rough = truth.clone(), truth.clone(), torch.zeros_like(open_, dtype=torch.int32)
    for k in range(PROBES):
        moved = _moved(operands, path, k, JITTER)
        if moved is None:
            continue
        low, high = torch.fmin(low, moved), torch.fmax(high, moved)
        nearer = _moved(operands, path, k, JITTER / 2) if k < TWICE else None
        if nearer is not None:  # beside a corner nothing hangs on the distance
            rough += (moved - nearer).abs() > JUMP * torch.maximum(moved.abs(), nearer.abs())
    reach = high - low
    corner = (reach > JUMP * torch.maximum(low.abs(), high.abs())) & (rough <= TWICE / 2)
    wide = device.double()
    held = (wide >= low - 2 * reach) & (wide <= high + 2 * reach)  # several ties in one sum
    return corner & held, "the function has a corner there, and any subgradient is one"


def _moved(operands, path, k, by):
    """The truth on inputs moved by chance; None where the operator does not exist there."""
    try:
        moved = operands.reference.wide(_jittered(operands.reference, k, by))[path]
    except Exception:
        return None
    return moved if moved.shape == operands.reference.truth[path].shape else None


def _is_gradient(call, path):
    if call.composite:
        return call.differentiates and not (
            call.op.endswith("with backward") and path.startswith("out[0]")
        )
    return "backward" in call.op


def _jittered(reference, k, by):
    """Every float input moved by chance, also zeros, labels and ties."""
    generator = torch.Generator().manual_seed(0x11E5 + k)
    contents = {}
    for key, part in reference.parts.items():
        if not part.dtype.is_floating_point or part.steers or not part.data.numel():
            continue
        data = part.data.double()
        live = data[data.isfinite() & (data != 0)].abs()
        least = float(live.min()) if live.numel() else 1.0
        size = torch.where(data == 0, least, data)  # zeros too, by less than anything there is
        noise = 2 * torch.rand(data.shape, generator=generator, dtype=torch.float64) - 1
        contents[key] = data + by * size * noise
    return contents


