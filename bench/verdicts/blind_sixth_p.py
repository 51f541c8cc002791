# SPDX-License-Identifier: Apache-2.0
"""Set H, written blind: exact sums, products and casts whose only rounding is the store, with many ties.

The right result is one number; the mistakes round ties up or away, cut bits off, flush small numbers, or
decide by low bits as stochastic rounding does."""

import torch

from .blind import bf, hf, honest, mistake
from .blind_sixth_m import aimed, double, inside

MIN = {bf: -133, hf: -24}  # exponents of the smallest number
BITS = {bf: 7, hf: 10}


def step_of(x, dtype):
    """The unit in the last place of `dtype` at x (float64)."""
    e = torch.frexp(x.abs())[1] - 1 - BITS[dtype]
    return torch.ldexp(torch.ones_like(x), e.clamp(min=MIN[dtype]))


def rounded(way, dtype, fn, flush=False):
    """The function's exact value, stored in `dtype` by a rule of its own."""

    def kernel(*args):
        x = fn(*[a.double() if torch.is_tensor(a) and a.is_floating_point() else a for a in args])
        s = step_of(x, dtype)
        n = x / s
        if way == "up":
            n = (n + 0.5).floor()
        elif way == "away":
            n = n.sign() * (n.abs() + 0.5).floor()
        elif way == "inward":
            n = n.sign() * (n.abs() - 0.5).ceil()
        elif way == "cut":
            n = n.trunc()
        elif way == "down":
            n = n.floor()
        elif way == "odd":
            n = torch.where(n == n.trunc(), n, 2 * (n / 2).floor() + 1)
        elif way == "dither":  # adds a pattern below the last bit, then cuts
            lot = ((torch.arange(n.numel()) * 37 + 11) % 64).view(n.shape) / 64.0
            n = n.sign() * (n.abs() + lot).floor()
        elif way == "even":
            n = n.round()
        x = n * s
        if flush:
            x = torch.where(x.abs() < 2.0 ** (MIN[dtype] + BITS[dtype]), 0.0, x)
        return x.to(dtype)

    return kernel


def whole(d, bits, *shape):
    """Whole numbers up to 2^bits, of both signs."""
    return (d.ints(2 ** (bits + 1), *shape) - 2**bits).float()


def ways(fn, dtype, names):
    for way, words in names.items():
        mistake(fn, words, rounded(way, dtype, fn))


# ------------------------------------------------------------------ sums and products


@aimed(lambda d: (whole(d, 7, 2000).to(bf), (whole(d, 7, 2000) * 4).to(bf)))
def aimed_tie_sum(a, b):
    return a + b


honest(aimed_tie_sum, "in float32, one rounding", inside(aimed_tie_sum))
honest(aimed_tie_sum, "the other way round", lambda a, b: b + a)
ways(
    aimed_tie_sum,
    bf,
    {"up": "ties go towards plus infinity", "away": "ties go away from zero", "inward": "ties go towards zero"},
)


@aimed(lambda d: (whole(d, 7, 2500).to(hf), whole(d, 7, 2500).to(hf)))
def aimed_tie_product(a, b):
    return a * b


honest(aimed_tie_product, "in double precision", double(aimed_tie_product))
ways(
    aimed_tie_product,
    hf,
    {
        "away": "ties go away from zero",
        "cut": "bits below the last are cut off",
        "dither": "a pattern of lots decides, as stochastic rounding does",
    },
)


@aimed(lambda d: (whole(d, 7, 64).to(bf), whole(d, 3, 50).to(bf)))
def aimed_tie_outer(a, b):
    return torch.outer(a, b)


honest(aimed_tie_outer, "broadcast", lambda a, b: a[:, None] * b)
honest(aimed_tie_outer, "einsum in float32", inside(lambda a, b: torch.einsum("i,j->ij", a, b)))
ways(aimed_tie_outer, bf, {"up": "ties go towards plus infinity", "odd": "rounds to odd"})


@aimed(lambda d: (whole(d, 9, 1500).to(hf), whole(d, 10, 1500).to(hf)))
def aimed_tie_midpoint(a, b):
    return (a - b) * 2.0**-26


honest(aimed_tie_midpoint, "in float32", inside(aimed_tie_midpoint))
ways(aimed_tie_midpoint, hf, {"cut": "subnormals are cut, not rounded", "away": "subnormal ties away from zero"})
mistake(aimed_tie_midpoint, "subnormals are flushed to zero", rounded("even", hf, aimed_tie_midpoint, flush=True))


@aimed(lambda d: (whole(d, 4, 40, 24).to(bf), whole(d, 4, 24, 30).to(bf)))
def aimed_tie_matmul(a, b):
    return a @ b


honest(aimed_tie_matmul, "in float32, from the end", inside(lambda a, b: a.flip(1) @ b.flip(0)))
honest(aimed_tie_matmul, "sums of outer products", inside(lambda a, b: (a[:, :, None] * b).sum(1)))
ways(
    aimed_tie_matmul,
    bf,
    {
        "away": "ties go away from zero",
        "cut": "bits below the last are cut off",
        "down": "rounds towards minus infinity",
    },
)


@aimed(lambda d: ((whole(d, 8, 60, 33) + 100).to(hf),))
def aimed_tie_row_sum(x):
    return x.sum(-1)


honest(aimed_tie_row_sum, "by columns in float32", inside(lambda x: x.mT.contiguous().sum(0)))
honest(aimed_tie_row_sum, "in double precision", double(aimed_tie_row_sum))
ways(aimed_tie_row_sum, hf, {"up": "ties go towards plus infinity", "cut": "bits below the last are cut off"})


@aimed(lambda d: ((whole(d, 7, 30, 9, 40) + 60).to(bf),))
def aimed_tie_window_sum(x):
    return torch.nn.functional.avg_pool1d(x, 4) * 4


honest(aimed_tie_window_sum, "sum of four", inside(lambda x: x.unflatten(-1, (10, 4)).sum(-1)))
ways(aimed_tie_window_sum, bf, {"away": "ties go away from zero", "inward": "ties go towards zero"})


@aimed(lambda d: (whole(d, 8, 700).to(hf), whole(d, 3, 700).to(hf), whole(d, 3, 700).to(hf)))
def aimed_tie_addcmul(a, b, c):
    return torch.addcmul(a * 16, b, c)


honest(aimed_tie_addcmul, "product and sum in float32", inside(lambda a, b, c: a * 16 + b * c))
ways(
    aimed_tie_addcmul,
    hf,
    {"up": "ties go towards plus infinity", "away": "ties go away from zero", "dither": "a pattern of lots decides"},
)


# ------------------------------------------------------------------ casts


@aimed(lambda d: (whole(d, 10, 3000) * 2.0**-5,))
def aimed_tie_cast_bf16(x):
    return x.to(bf)


def by_bits(add):
    """float32 to bf16 by whole-number arithmetic on the bits."""

    def kernel(x):
        i = x.view(torch.int32)
        more = 0x7FFF + (i >> 16 & 1) if add is None else add
        return ((i + more) & -65536).view(torch.float32).to(bf)

    return kernel


honest(aimed_tie_cast_bf16, "by bits, with the last bit kept", by_bits(None))
mistake(aimed_tie_cast_bf16, "by bits: 0x8000 is added", by_bits(0x8000))
mistake(aimed_tie_cast_bf16, "by bits: 0x7fff is added, without the last bit kept", by_bits(0x7FFF))
mistake(aimed_tie_cast_bf16, "by bits: the upper half is taken", by_bits(0))


@aimed(lambda d: (torch.cat((whole(d, 12, 2000) * 2.0**-25, 65519 + d.ints(2, 400).float())),))
def aimed_tie_cast_fp16(x):
    return x.to(hf)


honest(aimed_tie_cast_fp16, "through double precision", lambda x: x.double().to(hf))
for way, words in {
    "away": "ties go away from zero",
    "cut": "bits are cut off; 65520 stays finite",
    "up": "ties go towards plus infinity",
    "dither": "a pattern of lots decides",
}.items():
    mistake(aimed_tie_cast_fp16, words, rounded(way, hf, torch.clone))
mistake(aimed_tie_cast_fp16, "subnormals are flushed", rounded("even", hf, torch.clone, flush=True))
mistake(aimed_tie_cast_fp16, "held at the largest number", lambda x: x.clamp(-65504, 65504).to(hf))


@aimed(lambda d: (torch.cat((whole(d, 9, 2000) / 2, whole(d, 6, 200) * 1.25)),))
def aimed_tie_round(x):
    return torch.round(x)


honest(aimed_tie_round, "by adding a large number", lambda x: (x + 12582912.0) - 12582912.0)
mistake(aimed_tie_round, "half is added, then floor", lambda x: (x + 0.5).floor())
mistake(aimed_tie_round, "half away from zero", lambda x: x.sign() * (x.abs() + 0.5).floor())
mistake(aimed_tie_round, "half is taken off, then ceiling", lambda x: (x - 0.5).ceil())


@aimed(lambda d: (whole(d, 9, 1600).to(hf) / 8,))
def aimed_tie_eighths(x):
    return torch.round(x * 4) / 4


honest(aimed_tie_eighths, "in float32", inside(lambda x: (x * 4).round() * 0.25))
mistake(aimed_tie_eighths, "half away from zero", inside(lambda x: x.sign() * (x.abs() * 4 + 0.5).floor() / 4))
mistake(aimed_tie_eighths, "half towards zero", inside(lambda x: x.sign() * (x.abs() * 4 - 0.5).ceil() / 4))


@aimed(lambda d: (whole(d, 9, 1200) / 4, torch.tensor(0.5)))
def aimed_tie_codes(x, s):
    return (x / s).round().clamp(-128, 127).to(torch.int8)


honest(aimed_tie_codes, "times the reciprocal", lambda x, s: (x * (1 / s)).round().clamp(-128, 127).char())
mistake(
    aimed_tie_codes,
    "half away from zero",
    lambda x, s: (x.sign() * (x.abs() / s + 0.5).floor()).clamp(-128, 127).char(),
)
mistake(aimed_tie_codes, "cut off", lambda x, s: (x / s).trunc().clamp(-128, 127).char())
mistake(aimed_tie_codes, "the cast wraps instead of holding", lambda x, s: (x / s).round().int().to(torch.int8))
