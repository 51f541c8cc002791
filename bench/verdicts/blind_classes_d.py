# SPDX-License-Identifier: Apache-2.0
"""Set F: casts, sums, products and means whose exact value is often halfway between two numbers of the
output: a tie goes to the even one, whatever the algorithm."""

import torch
import torch.nn.functional as F

from .blind import bf, hf, honest, mistake
from .blind_classes_a import classed
from .blind_fourth_a import double, inside

BITS = {torch.float32: (24, -125), bf: (8, -125), hf: (11, -13)}  # of the significand; the least exponent


def rounded(exact, kind, ties="even"):
    """float64 numbers rounded once to `kind`; `ties` says what halfway numbers become."""
    bits, least = BITS[kind]
    unit = (torch.frexp(exact)[1].clamp(min=least) - bits).double()
    whole = exact * (-unit).exp2()
    down = whole.floor()
    up = {
        "even": down % 2 != 0,
        "odd": down % 2 == 0,
        "up": torch.ones_like(down, dtype=torch.bool),
        "down": torch.zeros_like(down, dtype=torch.bool),
        "away": whole > 0,
        "zero": whole < 0,
    }[ties]
    code = torch.where(whole - down == 0.5, down + up, (whole + 0.5).floor())
    return (code * unit.exp2()).to(kind)


def tied(exact, kind, ties):
    """The kernel that works exactly and rounds its ties as told."""
    return lambda *args: rounded(exact(*(a.double() for a in args)), kind, ties)


WORDS = {
    "away": "ties go away from zero",
    "zero": "ties go towards zero",
    "up": "ties go up",
    "down": "ties go down",
    "odd": "ties go to the odd neighbour",
}


def slips(fn, exact, kind, *ways):
    honest(fn, "in float64, rounded once by hand", tied(exact, kind, "even"))
    for way in ways:
        mistake(fn, WORDS[way], tied(exact, kind, way))


def some_ties(d, n, bits, low=-6, high=6, share=2):
    """Numbers of `bits` bits; every `share`-th is halfway between two numbers of one bit less."""
    code = d.ints(2 ** (bits - 2), n) * 2 + 2 ** (bits - 1)
    code += (torch.arange(n) % share == 0).long()
    sign = d.ints(2, n) * 2 - 1
    return (code * sign).double() * (d.ints(high - low, n) + low - bits + 0.0).double().exp2()


# ------------------------------------------------------------------ casts


@classed(lambda d: (some_ties(d, 3000, 9, -20, 20, 3).float(),))
def ties_of_exact_cast_to_bf16(x):
    return x.to(torch.bfloat16)


def by_bits(x):
    u = x.view(torch.int32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) & ~0xFFFF).view(torch.float32).to(bf)


honest(ties_of_exact_cast_to_bf16, "the bits plus 0x7fff and the lowest kept bit", by_bits)
slips(ties_of_exact_cast_to_bf16, lambda x: x, bf, "zero", "up", "odd")
mistake(
    ties_of_exact_cast_to_bf16,
    "the bits plus 0x8000",
    lambda x: ((x.view(torch.int32) + 0x8000) & ~0xFFFF).view(torch.float32).to(bf),
)


@classed(lambda d: (torch.cat((some_ties(d, 1500, 12, -10, 15), d(1500).double())).float().view(50, 60),))
def ties_of_exact_cast_to_half(x):
    return x.to(torch.float16)


honest(
    ties_of_exact_cast_to_half,
    "by a sum with 1.5 * 2^(e + 13)",
    lambda x: (lambda big: ((x + big) - big).to(hf))(torch.ldexp(torch.ones_like(x) * 1.5, torch.frexp(x)[1] + 12)),
)
slips(ties_of_exact_cast_to_half, lambda x: x, hf, "away", "odd", "down")


@classed(lambda d: ((d.ints(4000, 2000) * 2 + 1) * 2.0**-25,))  # below 2^-14, halves of 2^-24
def ties_of_exact_cast_to_subnormal_half(x):
    return x.to(torch.float16)


honest(
    ties_of_exact_cast_to_subnormal_half, "counts units of 2^-24", lambda x: ((x * 2.0**24).round() * 2.0**-24).to(hf)
)
slips(ties_of_exact_cast_to_subnormal_half, lambda x: x, hf, "away", "zero", "odd")


@classed(lambda d: (some_ties(d, 2000, 25, -30, 30, 2),))
def ties_of_exact_cast_of_doubles(x):
    return x.to(torch.float32)


honest(
    ties_of_exact_cast_of_doubles,
    "a sum with 1.5 * 2^(e + 28)",
    lambda x: (lambda big: ((x + big) - big).to(torch.float32))(
        torch.ldexp(torch.ones_like(x) * 1.5, torch.frexp(x)[1] + 28)
    ),
)
slips(ties_of_exact_cast_of_doubles, lambda x: x, torch.float32, "away", "zero", "up")


@classed(lambda d: ((d.ints(2**23, 3000) * 2 + 2**24 + 1) * (d.ints(2, 3000) * 2 - 1),))
def ties_of_exact_cast_of_integers(x):
    return x.to(torch.float32)


honest(
    ties_of_exact_cast_of_integers,
    "high and low 16 bits added in float32",
    lambda x: (x >> 16).float() * 65536 + (x & 0xFFFF).float(),
)
slips(ties_of_exact_cast_of_integers, lambda x: x, torch.float32, "away", "zero", "down")


@classed(lambda d: ((d.ints(2**10, 1200) * 2 + 2**11 + 1) * (d.ints(2, 1200) * 2 - 1),))
def ties_of_exact_cast_of_integers_to_half(x):
    return x.to(torch.float16)


honest(ties_of_exact_cast_of_integers_to_half, "by float32", lambda x: x.float().to(hf))
slips(ties_of_exact_cast_of_integers_to_half, lambda x: x, hf, "zero", "odd")


# ------------------------------------------------------------------ sums and differences


def bf_pair(d, n):
    a = (d.ints(128, n) + 128).float() * (d.ints(2, n) * 2 - 1)
    return a.to(bf), (d.ints(100, n) / 2 + 0.5).to(bf)


@classed(lambda d: bf_pair(d, 4000))
def ties_of_exact_sub(x, y):
    return x - y


honest(ties_of_exact_sub, "float32 inside", inside(lambda x, y: x + (-y)))
slips(ties_of_exact_sub, lambda x, y: x - y, bf, "away", "zero", "odd")


@classed(lambda d: (d(40, 100, dtype=hf), d(40, 100, dtype=hf)))
def ties_of_exact_add_of_halves(x, y):
    return x + y


honest(ties_of_exact_add_of_halves, "float32 inside", inside(lambda x, y: y + x))
slips(ties_of_exact_add_of_halves, lambda x, y: x + y, hf, "up", "zero", "odd")


@classed(lambda d: ((d.ints(2**22, 3000) + 2**23).float() * 2, (d.ints(512, 3000) * 2 + 1).float()))
def ties_of_exact_add_of_floats(x, y):
    return x + y


def two_sum(x, y):
    s = x + y
    t = s - x
    return s + ((x - (s - t)) + (y - t))


honest(ties_of_exact_add_of_floats, "the error added back", two_sum)
slips(ties_of_exact_add_of_floats, lambda x, y: x + y, torch.float32, "up", "zero", "odd")


@classed(lambda d: (d(2500, dtype=bf), d(2500, scale=4.0, dtype=bf)))
def ties_of_exact_add_scaled(x, y):
    return torch.add(x, y, alpha=2)


honest(ties_of_exact_add_scaled, "y added twice in float32", inside(lambda x, y: x + (y + y)))
slips(ties_of_exact_add_scaled, lambda x, y: x + 2 * y, bf, "away", "zero")


@classed(lambda d: ((d.ints(256, 300, 8) - 100).to(bf),))
def ties_of_exact_row_sum(x):
    return x.sum(-1)


honest(ties_of_exact_row_sum, "halves of the row", inside(lambda x: x[:, ::2].sum(-1) + x[:, 1::2].sum(-1)))
slips(ties_of_exact_row_sum, lambda x: x.sum(-1), bf, "away", "down", "odd")


# ------------------------------------------------------------------ products


@classed(lambda d: ((d.ints(24, 3000) * 2 + 17).to(bf), (d.ints(6, 3000) * 2 + 5).to(bf) * 0.125))
def ties_of_exact_mul(x, y):
    return x * y


honest(ties_of_exact_mul, "float32 inside", inside(lambda x, y: y * x))
slips(ties_of_exact_mul, lambda x, y: x * y, bf, "away", "odd", "up")


@classed(lambda d: (d(60, 50, dtype=hf), (d.ints(4, 50) * 2 + 3).to(hf)))
def ties_of_exact_mul_by_small(x, w):
    return x * w


honest(ties_of_exact_mul_by_small, "float32 inside", inside(lambda x, w: w * x))
slips(ties_of_exact_mul_by_small, lambda x, w: x * w, hf, "zero", "down")


@classed(lambda d: (d(4000, scale=0.02, dtype=hf),))
def ties_of_exact_scale_down(x):
    return x * 2.0**-12  # subnormal halves


honest(ties_of_exact_scale_down, "float32 inside", inside(lambda x: x / 4096))
slips(ties_of_exact_scale_down, lambda x: x * 2.0**-12, hf, "away", "zero", "odd")


# ------------------------------------------------------------------ means, blends, steps


@classed(lambda d: (d(2000, dtype=bf), d(2000, dtype=bf)))
def ties_of_exact_lerp(x, y):
    return torch.lerp(x, y, 0.5)


honest(ties_of_exact_lerp, "the mean in float32", inside(lambda x, y: (x + y) * 0.5))
honest(ties_of_exact_lerp, "float64 inside", double(ties_of_exact_lerp))
slips(ties_of_exact_lerp, lambda x, y: (x + y) * 0.5, bf, "away", "zero", "odd")


@classed(lambda d: (d(6, 8, 64, dtype=hf),))
def ties_of_exact_pool(x):
    return F.avg_pool1d(x, 2)


honest(ties_of_exact_pool, "half of each, then added", inside(lambda x: x[..., ::2] * 0.5 + x[..., 1::2] * 0.5))
slips(ties_of_exact_pool, lambda x: (x[..., ::2] + x[..., 1::2]) / 2, hf, "away", "zero", "up")


@classed(lambda d: (d(12, 16, 16, dtype=bf),))
def ties_of_exact_pool_2d(x):
    return F.avg_pool2d(x[None], 2)[0]


honest(
    ties_of_exact_pool_2d, "rows first", inside(lambda x: (x[:, ::2] + x[:, 1::2]).unflatten(-1, (8, 2)).sum(-1) / 4)
)
slips(ties_of_exact_pool_2d, lambda x: F.avg_pool2d(x[None], 2)[0], bf, "away", "odd")


@classed(lambda d: ((d.ints(400, 3000) - 200) / 2,))
def ties_of_exact_round(x):
    return x.round()


def halfway(x, move):
    down = x.floor()
    return torch.where(x - down == 0.5, move(down), (x + 0.5).floor())


honest(ties_of_exact_round, "a sum with 1.5 * 2^23", lambda x: (x + 1.5 * 2.0**23) - 1.5 * 2.0**23)
honest(ties_of_exact_round, "even neighbour by hand", lambda x: halfway(x, lambda down: down + down % 2))
mistake(ties_of_exact_round, "floor(x + 0.5)", lambda x: (x + 0.5).floor())
mistake(ties_of_exact_round, "trunc(x + 0.5 sign(x))", lambda x: (x + 0.5 * x.sign()).trunc())
mistake(ties_of_exact_round, "ties go to the odd neighbour", lambda x: halfway(x, lambda down: down + 1 - down % 2))


@classed(lambda d: ((d.ints(1200, 40, 64) - 600).to(hf) / 8,))
def ties_of_exact_int8_codes(x):
    return (x / 0.25).round().clamp(-128, 127).to(torch.int8)


honest(
    ties_of_exact_int8_codes, "times four in float32", lambda x: (x.float() * 4).clamp(-128, 127).round().to(torch.int8)
)
honest(
    ties_of_exact_int8_codes,
    "even neighbour by hand",
    lambda x: halfway(x.float() * 4, lambda down: down + down % 2).clamp(-128, 127).to(torch.int8),
)
mistake(
    ties_of_exact_int8_codes, "floor(x + 0.5)", lambda x: (x.float() * 4 + 0.5).floor().clamp(-128, 127).to(torch.int8)
)
mistake(
    ties_of_exact_int8_codes,
    "ties go towards zero",
    lambda x: (lambda y: (y.sign() * (y.abs() - 0.5).ceil()).clamp(-128, 127).to(torch.int8))(x.float() * 4),
)
