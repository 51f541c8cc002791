# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for tensors whose content was not kept: drawn from the statistics that the
trace has of them. Counter-based: a stand-in depends on (trace, call, argument) alone."""

import json
import zlib

import torch

from ..calls.read_call import dtype_named
from ..calls.replay import BadCall

GOLDEN = -7046029254386353131  # 2^64 / golden ratio, as int64
SPECIALS = (("n_zero", 0.0), ("n_nan", float("nan")), ("n_pos_inf", float("inf")),
            ("n_neg_inf", float("-inf")))  # fmt: skip
MIX_A, MIX_B = -4658895280553007687, -7723592293110705685


def _shift(x, n):
    """Logical shift right of int64."""
    return (x >> n) & ((1 << (64 - n)) - 1)


def uniform(n, key):
    """`n` doubles in [0, 1) from the counter 0..n-1 under `key` (splitmix64)."""
    x = (torch.arange(n, dtype=torch.int64) + 1) * GOLDEN + (key - (1 << 63))
    x = (x ^ _shift(x, 30)) * MIX_A
    x = (x ^ _shift(x, 27)) * MIX_B
    return _shift(x ^ _shift(x, 31), 11).double() / 2.0**53


def normal(n, key):
    """`n` doubles of N(0, 1), by Box and Muller."""
    a, b = uniform(n, key), uniform(n, key ^ 0x5DEECE66D)
    return torch.sqrt(-2 * torch.log1p(-a)) * torch.cos(2 * torch.pi * b)


def key_of(*parts):
    """A 63-bit key from the texts of `parts`."""
    text = "/".join(str(p) for p in parts).encode()
    return (zlib.crc32(text) << 31) ^ zlib.crc32(text[::-1])


def stand_in(trace_id, sequence, tensor):
    """A tensor of the argument's shape with its statistics. BadCall without statistics."""
    stats = tensor.get("stats")
    stats = json.loads(stats) if isinstance(stats, str) else stats
    if not stats:
        raise BadCall(f"the content of {tensor['path']} was not captured, nor statistics")
    dtype, sizes = dtype_named(tensor["dtype"]), list(tensor["sizes"])
    n = 1
    for size in sizes:
        n *= size
    key = key_of(trace_id, sequence, tensor["path"])
    if dtype.is_floating_point:
        values = _floats(n, key, stats)
    elif dtype.is_complex:
        raise BadCall(f"{tensor['path']}: no stand-in for complex values")
    else:
        values = _integers(n, key, stats)
    return values.to(dtype).reshape(sizes)


def _floats(n, key, stats):
    """Values drawn from the exponent histogram with its signs, inside the tensor's range,
    with its numbers of zeros, NaN and Inf."""
    low, high = (_known(stats.get(k)) for k in ("min", "max"))
    values = _from_binades(n, key, stats.get("histogram") or {})
    if values is None:
        values = _known(stats.get("mean")) + normal(n, key) * (high - low) / 8
    values = values.clamp(low, high)
    order = uniform(n, key + 1).argsort()
    place = 0
    for name, special in SPECIALS:
        count = min(int(stats.get(name, 0)), n - place)
        values[order[place : place + count]] = special
        place += count
    return values


def _from_binades(n, key, histogram):
    """Values 2^binade (1 + u), each binade and sign as often as it was counted."""
    bins = [
        (sign * 2.0 ** int(binade), count)
        for name, sign in (("pos", 1.0), ("neg", -1.0))
        for binade, count in (histogram.get(name) or {}).items()
    ]
    if not bins:
        return None
    scale, count = (torch.tensor(c, dtype=torch.float64) for c in zip(*bins))
    drawn = torch.searchsorted(count.cumsum(0) / count.sum(), uniform(n, key), right=True)
    return scale[drawn.clamp(max=len(bins) - 1)] * (1 + uniform(n, key + 2))


def _known(value):
    return float(value) if value is not None and value == value else 0.0


def _integers(n, key, stats):
    """Whole numbers over the tensor's range; sorted or a permutation where it was."""
    low, high = int(stats.get("int_min", 0)), int(stats.get("int_max", 0))
    if stats.get("unique") and high - low + 1 >= n > 1:
        values = low + torch.argsort(uniform(high - low + 1, key))[:n]
    else:
        values = low + (uniform(n, key) * (high - low + 1)).long().clamp(0, high - low)
    return values.sort()[0] if stats.get("sorted") else values
