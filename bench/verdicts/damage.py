# SPDX-License-Identifier: Apache-2.0
"""Faults that leave the computation alone and spoil what is written."""

import torch

BITS = {torch.float32: (torch.int32, 23), torch.bfloat16: (torch.int16, 7), torch.float16: (torch.int16, 10)}


def damaged(name, t, rng):
    """A spoiled copy of a float tensor, None where the fault does not apply."""
    t = t.clone().contiguous()
    flat = t.view(-1)
    n = flat.numel()
    if n < 16 or not flat.isfinite().any():
        return None
    return HOW[name](t, flat, n, rng)


def large(flat, rng):
    """An element of at least median size."""
    size = flat.float().abs()
    good = ((size >= size[size.isfinite()].median()) & size.isfinite()).nonzero().view(-1)
    return int(good[rng.integers(0, len(good))])


def tail(n):
    return max(1, min(n % 32 or 8, n // 4))


def put(flat, where, value):
    flat[where] = value
    return flat


def tail_zero(t, flat, n, rng):
    put(flat, slice(n - tail(n), n), 0)
    return t


def tail_stale(t, flat, n, rng):
    k = tail(n)
    flat[n - k :] = flat[:k].clone() if n >= 2 * k else 1
    return t


def tile_zero(t, flat, n, rng):
    at = int(rng.integers(0, n - n // 16))
    put(flat, slice(at, at + n // 16), 0)
    return t


def bitflip(t, flat, n, rng):
    kind, mantissa = BITS[t.dtype]
    at = large(flat, rng)
    flat.view(kind)[at] ^= 1 << (mantissa - 2 + int(rng.integers(0, 3)))
    return t


def one(value):
    def change(t, flat, n, rng):
        put(flat, large(flat, rng), value)
        return t

    return change


def swallow_nan(t, flat, n, rng):
    return torch.nan_to_num(t, nan=0.0, posinf=float("inf"), neginf=-float("inf"))


def transposed(t, flat, n, rng):
    if t.dim() < 2 or min(t.shape[-2:]) < 2:
        return None
    return t.transpose(-1, -2).contiguous().view(t.shape)


def saturated(t, flat, n, rng):
    finite = flat[flat.isfinite()].float()
    top = float(finite.abs().quantile(0.97)) if finite.numel() else 0.0
    return t.clamp(-top, top)


def added(t, flat, n, rng):
    finite = flat[flat.isfinite()].double()
    return (t.double() + 0.02 * float(finite.square().mean().sqrt())).to(t.dtype)


def two_swapped(t, flat, n, rng):
    a, b = large(flat, rng), large(flat, rng)
    flat[a], flat[b] = flat[b].clone(), flat[a].clone()
    return t


def row_stale(t, flat, n, rng):
    if t.dim() < 2 or t.shape[0] < 2:
        return None
    t[-1] = t[-2].clone()
    return t


HOW = {
    "tail_zero": tail_zero,
    "tail_stale": tail_stale,
    "tile_zero": tile_zero,
    "bitflip": bitflip,
    "scale_small": lambda t, f, n, r: (
        (t.double() * (1 + 2.0**-6)).to(t.dtype) if t.dtype != torch.float32 else t * (1 + 2.0**-11)
    ),
    "scale_1pc": lambda t, f, n, r: (t.double() * 1.03).to(t.dtype),
    "add_const": added,
    "roll_one": lambda t, f, n, r: t.roll(1, -1) if t.dim() else None,
    "nan_element": one(float("nan")),
    "inf_element": one(float("inf")),
    "swallow_nan": swallow_nan,
    "transposed": transposed,
    "saturated": saturated,
    "negated": lambda t, f, n, r: -t,
    "all_zero": lambda t, f, n, r: torch.zeros_like(t),
    "two_swapped": two_swapped,
    "row_stale": row_stale,
}
