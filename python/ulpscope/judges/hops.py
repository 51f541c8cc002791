# SPDX-License-Identifier: Apache-2.0
"""Sums in a narrow dtype that are rounded once at every rank they pass: which values an honest
order of adding can give. Serves `session.collectives`."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import torch

NARROW = (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
ALL_ORDERS = 4  # terms up to which every order is tried: 18 of 4
N_ORDERS = 48  # else that many by chance, from a fixed seed
REACH = {True: 1.5, False: 3.0}  # of half the span of what was tried: every order, some orders
MOST_OUTSIDE = 0.15  # share of elements beyond that span, where only some orders were tried
BLOCK = 1 << 20
ROUNDING = ("sum", "avg", "product")


def strays(how: str, terms: Sequence[torch.Tensor], got: torch.Tensor) -> tuple[torch.Tensor, bool] | None:
    """
    Which elements of `got` lie where no adding of `terms` in its own narrow dtype leads, and
    whether all of it may be called such a sum: none of them, and not too many beyond the
    span of the orders that were tried. None where `got` is not narrow.
    """
    if got.dtype not in NARROW or how not in ROUNDING:
        return None
    flat, given = got.reshape(-1), [t.reshape(-1) for t in terms]
    beyond, n_out = torch.zeros(flat.shape, dtype=torch.bool), 0
    for at in range(0, flat.numel(), BLOCK):
        block = slice(at, at + BLOCK)
        beyond[block], outside = _strays(how, [t[block] for t in given], flat[block])
        n_out += outside
    good = not bool(beyond.any()) and n_out <= max(2, MOST_OUTSIDE * flat.numel())
    return beyond.reshape(got.shape), good


def _strays(how: str, terms: Sequence[torch.Tensor], got: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Which elements lie beyond reach, and how many beyond the span."""
    low, high, odd = _span(how, terms, got.dtype)
    size = torch.maximum(low.abs(), high.abs())
    half = torch.maximum((high - low) / 2, _ulp(size, got.dtype) / 2)
    off = (got.double() - (low + high) / 2).abs()
    reach = REACH[len(terms) <= ALL_ORDERS]
    return ~(off <= reach * half) & ~odd, int(((off > half) & ~odd).sum())


def _ulp(size: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    info = torch.finfo(dtype)
    return torch.exp2(size.clamp_min(info.smallest_normal).log2().floor()) * info.eps


def _span(
    how: str, terms: Sequence[torch.Tensor], dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The least and the largest of every element over the orders, and where one of them
    overflows or is NaN."""
    low = high = odd = None
    for value in _results(how, terms, dtype):
        value = value.double()
        strange = ~value.isfinite()
        low = value if low is None else torch.minimum(low, value)
        high = value if high is None else torch.maximum(high, value)
        odd = strange if odd is None else odd | strange
    return low, high, odd


def _results(how: str, terms: Sequence[torch.Tensor], dtype: torch.dtype) -> Iterator[torch.Tensor]:
    """What orders of adding give: rounded at every step, and once at the end."""
    n = len(terms)
    for scaled in (False, True) if how == "avg" else (False,):
        parts = [_rounded(t.float() / n, dtype) for t in terms] if scaled else terms
        for total in (*_orders(how, parts, dtype), _once(how, parts, dtype)):
            yield _rounded(total.float() / n, dtype) if how == "avg" and not scaled else total


def _once(how: str, terms: Sequence[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    wide = torch.stack([t.double() for t in terms])
    return _rounded(wide.prod(0) if how == "product" else wide.sum(0), dtype)


def _rounded(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return value.to(dtype)


def _joined(how: str, a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    a, b = a.float(), b.float()
    return _rounded(a * b if how == "product" else a + b, dtype)


def _orders(how: str, terms: Sequence[torch.Tensor], dtype: torch.dtype) -> Iterator[torch.Tensor]:
    n = len(terms)
    if n <= ALL_ORDERS:
        yield from _every_order(how, terms, dtype)
        return
    chance = random.Random(n)
    for start in range(min(n, N_ORDERS // 3)):  # rings
        total = terms[start]
        for i in range(1, n):
            total = _joined(how, total, terms[(start + i) % n], dtype)
        yield total
    for _ in range(N_ORDERS):
        parts = list(terms)
        while len(parts) > 1:
            a, b = (parts.pop(chance.randrange(len(parts))) for _ in range(2))
            parts.append(_joined(how, a, b, dtype))
        yield parts[0]


def _every_order(how: str, terms: Sequence[torch.Tensor], dtype: torch.dtype) -> Iterator[torch.Tensor]:
    if len(terms) == 1:
        yield terms[0]
    for i in range(len(terms)):
        for k in range(i + 1, len(terms)):
            rest = [t for j, t in enumerate(terms) if j not in (i, k)]
            yield from _every_order(how, [*rest, _joined(how, terms[i], terms[k], dtype)], dtype)
