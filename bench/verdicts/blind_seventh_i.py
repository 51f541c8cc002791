# SPDX-License-Identifier: Apache-2.0
"""Set I, the aimed part, written blind (see blind_seventh_f): ties that go the other way, steps of floor and
remainder that are one off."""

import torch

from .blind import bf, hf, mistake
from .blind_seventh_a import E4, at, right, seventh, wrong

f32 = torch.float32


def same(fn, words, kernel):
    """A right kernel whose results are kept as it makes them."""
    right(fn, words, kernel, into="same")


def kept(fn, kernel, cases):
    wrong(fn, kernel, cases, into="same")


def away(x):
    """Rounded, ties away from zero."""
    return torch.where(x < 0, (x - 0.5).ceil(), (x + 0.5).floor())


def zeroward(x):
    return torch.where(x < 0, (x + 0.5).floor(), (x - 0.5).ceil())


def upward(x):
    return (x + 0.5).floor()


def odd(x):
    return (
        2 * ((x - 1) / 2).round() + 1
        if x.dtype == torch.int64
        else torch.where((x - x.floor()) == 0.5, 2 * (x / 2).floor() + 1, x.round())
    )


def cut16(way):
    """float32 stored as bf16 with ties decided "up" (in size) or "down" (toward zero)."""

    def store(x):
        bits = x.view(torch.int32)
        add = 0x8000 if way == "up" else 0x7FFF
        return ((bits + add) & -65536).view(f32).to(bf)

    return store


# ------------------------------------------------------------------ ties


@seventh(lambda d: (d.ints(400, 1200).sub(200) / 2.0,))
def ties_of_round(x):
    return torch.round(x)


same(ties_of_round, "by a magic number of 1.5 times 2^23", lambda x: (x + 12582912.0) - 12582912.0)
same(
    ties_of_round,
    "floor and a test of the half",
    lambda x: (lambda f: f + ((x - f > 0.5) | ((x - f == 0.5) & (f % 2 == 1))))(x.floor()),
)
kept(
    ties_of_round,
    None,
    {
        "ties go away from zero": away,
        "ties go toward zero": zeroward,
        "ties go up": upward,
        "ties go to the odd number": odd,
    },
)


@seventh(
    lambda d: (
        (lambda m, e: (m + 256 + d.ints(2, 1500) * 0.5) * torch.exp2(e - 8.0) * (d.ints(2, 1500) * 2 - 1))(
            d.ints(256, 1500), d.ints(6, 1500)
        ),
    )
)
def ties_of_bf16_cast(x):
    return x.to(torch.bfloat16)


same(
    ties_of_bf16_cast,
    "bit by bit",
    lambda x: (lambda b: ((b + 0x7FFF + ((b >> 16) & 1)) & -65536).view(f32).to(bf))(x.view(torch.int32)),
)
same(
    ties_of_bf16_cast,
    "by adding and subtracting a large number",
    lambda x: (lambda big: (x + big) - big)(torch.exp2(x.abs().log2().floor() + 16) * 1.5).to(bf),
)
kept(
    ties_of_bf16_cast,
    None,
    {
        "ties go away from zero": cut16("up"),
        "ties go toward zero": cut16("down"),
        "all results are cut": lambda x: (x.view(torch.int32) & -65536).view(f32).to(bf),
    },
)


@seventh(lambda d: (d.ints(257, 900).sub(128).to(bf), (d.ints(2, 900) * 0.5 + d.ints(2, 900) * 2.0**-9).to(bf)))
def ties_of_bf16_addition(x, y):
    return x + y


right(ties_of_bf16_addition, "added in float32", lambda x, y: x + y)
right(ties_of_bf16_addition, "added in double precision", lambda x, y: (x.double() + y.double()).float())
kept(
    ties_of_bf16_addition,
    None,
    {
        "ties go away from zero": lambda x, y: cut16("up")(x + y),
        "ties go toward zero": lambda x, y: cut16("down")(x + y),
    },
)


@seventh(lambda d: (d.ints(480, 40, 16).sub(240) * 0.03125, torch.full((40, 1), 0.0625)))
def ties_of_int8_quantize(x, scale):
    return torch.clamp(torch.round(x / scale), -128, 127).to(torch.int8)


same(
    ties_of_int8_quantize,
    "multiplied by the reciprocal",
    lambda x, s: (x * (1 / s)).round().clamp(-128, 127).to(torch.int8),
)
same(ties_of_int8_quantize, "clamped first", lambda x, s: (x / s).clamp(-128, 127).round().to(torch.int8))
kept(
    ties_of_int8_quantize,
    None,
    {
        "ties go away from zero": lambda x, s: away(x / s).clamp(-128, 127).to(torch.int8),
        "ties go up": lambda x, s: upward(x / s).clamp(-128, 127).to(torch.int8),
        "ties go toward zero": lambda x, s: zeroward(x / s).clamp(-128, 127).to(torch.int8),
    },
)


@seventh(lambda d: ((d.ints(16, 800) + 16 + d.ints(2, 800) * 0.5) * torch.exp2(d.ints(5, 800) - 2.0),))
def ties_of_e4m3_cast(x):
    """Half the numbers lie between two of 3 bits after the point."""
    return (x / 2).to(torch.float8_e4m3fn)


def e4m3(x, how=torch.round):
    step = torch.exp2((x / 2).log2().floor() - 3)
    return (how(x / 2 / step) * step).to(E4)


same(ties_of_e4m3_cast, "by steps of the exponent", e4m3)
same(ties_of_e4m3_cast, "through bf16, which is exact here", lambda x: (x / 2).to(bf).to(E4))
kept(ties_of_e4m3_cast, e4m3, {"ties go away from zero": dict(how=away), "ties go toward zero": dict(how=zeroward)})


@seventh(lambda d: (d.ints(4000, 30, 2, 20).sub(2000).div(8).to(hf),))
def ties_of_half_pair_mean(x):
    return x.float().mean(1).to(x.dtype)


def pair_mean(x, how="even"):
    y = (x[:, 0] + x[:, 1]) / 2
    step = torch.exp2(y.abs().clamp_min(2.0**-14).log2().floor() - 10)
    return ({"even": torch.round, "away": away, "zero": zeroward}[how](y / step) * step).to(hf)


right(ties_of_half_pair_mean, "half of each added", lambda x: x[:, 0] * 0.5 + x[:, 1] * 0.5)
right(ties_of_half_pair_mean, "rounded by steps of the exponent", pair_mean)
wrong(
    ties_of_half_pair_mean,
    pair_mean,
    {"ties go away from zero": dict(how="away"), "ties go toward zero": dict(how="zero")},
)


@seventh(lambda d: (d.ints(2000, 700).sub(1000) / 8.0,))
def ties_of_two_decimals(x):
    return torch.round(x * 100) / 100


same(ties_of_two_decimals, "rounded by a magic number", lambda x: ((x * 100 + 12582912.0) - 12582912.0) / 100)
same(ties_of_two_decimals, "in double precision", lambda x: ((x.double() * 100).round() / 100).float())
kept(
    ties_of_two_decimals,
    None,
    {
        "ties go away from zero": lambda x: away(x * 100) / 100,
        "ties go up": lambda x: upward(x * 100) / 100,
        "results are cut": lambda x: (x * 100).trunc() / 100,
    },
)


# ------------------------------------------------------------------ floor, ceil, remainder


@seventh(lambda d: (d.ints(2001, 900).sub(1000), d.ints(9, 900).add(1) * (d.ints(2, 900) * 2 - 1)))
def steps_of_floor_division(a, b):
    return torch.div(a, b, rounding_mode="floor"), torch.remainder(a, b)


def floor_pair(a, b, trunc=False, sign=True, one=False, absolute=False):
    q = (a.double() / b.double()).floor().long()
    r = a - q * b
    if trunc:
        q = torch.div(a, b, rounding_mode="trunc")
        r = a - q * b
    if absolute:
        r = torch.where(r < 0, r + b.abs(), r)
    if one:  # exact multiples of a negative divisor land one step low
        q = torch.where((r == 0) & (b < 0), q - 1, q)
    return q, r


same(steps_of_floor_division, "by double precision", floor_pair)
same(
    steps_of_floor_division,
    "truncated and mended",
    lambda a, b: (
        lambda q: (lambda m: (q - m.long(), a - (q - m.long()) * b))((a - q * b != 0) & ((a < 0) != (b < 0)))
    )(torch.div(a, b, rounding_mode="trunc")),
)
kept(
    steps_of_floor_division,
    floor_pair,
    {
        "the quotient goes toward zero": dict(trunc=True),
        "the remainder is never negative": dict(absolute=True),
        "exact multiples of a negative divisor are one step low": dict(one=True),
    },
)


@seventh(lambda d: (d(900, scale=7.0), torch.tensor([0.7, -1.3, 2.5])[d.ints(3, 900)]))
def steps_of_float_remainder(x, y):
    return torch.remainder(x, y), torch.fmod(x, y)


def remainders(x, y, swap=False, mend=True, low=False):
    f = torch.sign(x) * (x.abs().double() % y.abs().double()).to(x.dtype)
    r = torch.where((f != 0) & ((f < 0) != (y < 0)), f + y, f) if mend else f
    if low:
        r = x - y * (x / y).round()
    return (f, r) if swap else (r, f)


same(steps_of_float_remainder, "from remainders of sizes", remainders)
same(
    steps_of_float_remainder,
    "in double precision",
    lambda x, y: (torch.remainder(x.double(), y.double()).float(), torch.fmod(x.double(), y.double()).float()),
)
kept(
    steps_of_float_remainder,
    remainders,
    {
        "the remainder has the sign of the dividend": dict(mend=False),
        "the two are exchanged": dict(swap=True),
        "the quotient is rounded instead of floored": dict(low=True),
    },
)


@seventh(lambda d: ((d.ints(81, 500) - 40) / 8.0, torch.arange(-4, 5).float()))
def steps_of_bucketize(x, edges):
    return torch.bucketize(x, edges), torch.searchsorted(edges, x, right=True)


def buckets(x, edges, left=False, right_=False, base=0, top=10):
    below = (x[:, None] > edges).sum(1)
    upto = (x[:, None] >= edges).sum(1)
    a, b = (upto if left else below), (below if right_ else upto)
    return (a + base).clamp(max=top), b


same(steps_of_bucketize, "edges counted", buckets)
same(
    steps_of_bucketize,
    "by arithmetic",
    lambda x, e: ((x + 4).ceil().clamp(0, 9).long(), (x + 5).floor().clamp(0, 9).long()),
)
kept(
    steps_of_bucketize,
    buckets,
    {
        "a number on an edge goes above it in the first": dict(left=True),
        "a number on an edge goes below it in the second": dict(right_=True),
        "the first counts from 1": dict(base=1),
        "numbers above all edges land in the last bucket but one": dict(top=8),
    },
)


@seventh(lambda d: (d.ints(4001, 800).sub(2000).to(torch.int32), d.ints(5, 800).to(torch.int32)))
def steps_of_shift_and_half(x, k):
    return x >> k, torch.div(x, 2, rounding_mode="floor"), (x + 15) // 16 * 16


def shifts(x, k, trunc=False, half=False, low=False, up=False):
    p = 2 ** k.long()
    a = (x / p).trunc() if trunc else torch.div(x.long(), p, rounding_mode="floor")
    b = (x / 2).trunc() if half else (x / 2).floor()
    c = (x + 16) // 16 * 16 if up else x // 16 * 16 if low else -(-x.long() // 16) * 16
    return tuple(t.to(torch.int32) for t in (a, b, c))


same(steps_of_shift_and_half, "by division", shifts)
same(
    steps_of_shift_and_half,
    "by bits",
    lambda x, k: (x.long().bitwise_right_shift(k.long()).to(torch.int32), x >> 1, (x + 15) & ~15),
)
kept(
    steps_of_shift_and_half,
    shifts,
    {
        "shifts of negative numbers go toward zero": dict(trunc=True),
        "halves go toward zero": dict(half=True),
        "sizes are rounded down to multiples of 16": dict(low=True),
        "exact multiples of 16 go one step up": dict(up=True),
    },
)


@seventh(lambda d: (d.ints(2000, 600).float(), torch.tensor(0.1)))
def steps_of_voxel_index(x, size):
    """Cells of numbers that lie half a cell from every edge."""
    y = x * 0.1 + 0.05
    return torch.floor(y / size).to(torch.int64), torch.ceil(y / size).to(torch.int64) - 1


def voxels(x, size, shift=0.0, cut=False, low=None):
    y = ((x + 0.5) / 10 - shift) / size
    y = y.to(low).float() if low else y
    i = y.floor().long()
    return i, (y.round().long() if cut else y.ceil().long() - 1)


same(steps_of_voxel_index, "half added before the division", voxels)
same(steps_of_voxel_index, "in whole numbers", lambda x, s: (x.long(), x.long()))
kept(
    steps_of_voxel_index,
    voxels,
    {
        "0.51 of a cell is taken off first: every place falls one cell low": dict(shift=0.051),
        "the second is rounded instead of ceil minus 1": dict(cut=True),
        "the quotient is stored in half precision": dict(low=hf),
        "the quotient is stored in bf16": dict(low=bf),
    },
)


@seventh(lambda d: (d.ints(100, 40, 3), torch.tensor([7, 13, 5])))
def steps_of_flat_index(i, shape):
    flat = (i[:, 0] % shape[0] * shape[1] + i[:, 1] % shape[1]) * shape[2] + i[:, 2] % shape[2]
    return flat, torch.stack((flat // (13 * 5), flat // 5 % 13, flat % 5), 1)


def flattened(i, shape, last=0, order=False, wrap=0):
    a, b, c = (i[:, k] % (shape[k] + (wrap if k == 2 else 0)) for k in range(3))
    flat = a * (shape[1] * shape[2]) + b * (shape[2] + last) + c
    if order:
        flat = (c * shape[1] + b) * shape[0] + a
    one = torch.div(flat, 65, rounding_mode="trunc")
    rest = flat - one * 65
    return flat, torch.stack((one, torch.div(rest, 5, rounding_mode="trunc"), rest % 5), 1)


same(steps_of_flat_index, "strides multiplied out", flattened)
same(
    steps_of_flat_index,
    "unravelled by torch",
    lambda i, s: (lambda f: (f, torch.stack(torch.unravel_index(f, (7, 13, 5)), 1)))(
        (i % s * torch.tensor([65, 5, 1])).sum(1)
    ),
)
kept(
    steps_of_flat_index,
    flattened,
    {
        "the middle stride is 6, not 5": dict(last=1),
        "the first index runs fastest": dict(order=True),
        "the last index wraps at 6": dict(wrap=1),
    },
)


mistake(
    ties_of_round,
    "ties go toward zero above 64 only",
    at(lambda x: torch.where(x.abs() > 64, zeroward(x), x.round()), into="same"),
)
