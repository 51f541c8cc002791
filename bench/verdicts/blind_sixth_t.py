# SPDX-License-Identifier: Apache-2.0
"""Set H, written blind: quantized codes and block-scaled products; scales of a wrong block, zero points,
orders of nibbles, signs, group boundaries, cutting instead of rounding."""

import torch

from .blind import bf, hf, honest, mistake
from .blind_sixth_m import aimed, double, halves, inside

F8 = torch.float8_e4m3fn


def fp8(x):
    """Numbers that e4m3 holds, in float32."""
    return x.to(F8).float()


# ------------------------------------------------------------------ whole-number weights


@aimed(
    lambda d: (
        d(6, 96, dtype=bf),
        d.ints(256, 20, 96),
        d.rand(20, 3).mul(0.02).add(0.005).to(bf),
        d.ints(20, 20, 3) + 118,
    )
)
def aimed_block_asymmetric(x, q, s, z):
    w = (q.view(20, 3, 32) - z[..., None]).to(x.dtype) * s[..., None]
    return x @ w.flatten(1).mT


def asymmetric(x, q, s, z, size=32, signed=False, more=0, roll=0, after=False, late=0):
    at = ((torch.arange(96) + late) // size).clamp(max=2)
    s, z = s.roll(roll, 0)[:, at], z[:, at] + more
    q = torch.where(q > 127, q - 256, q) if signed else q
    return x @ (q * s - z if after else (q - z) * s).mT


honest(aimed_block_asymmetric, "weights first", inside(asymmetric))
honest(
    aimed_block_asymmetric,
    "group by group, zero points apart",
    inside(
        lambda x, q, s, z: (
            (
                torch.einsum("big,oig->boi", x.view(6, 3, 32), q.view(20, 3, 32).float())
                - x.view(6, 3, 32).sum(-1)[:, None] * z
            )
            * s
        ).sum(-1)
    ),
)
mistake(aimed_block_asymmetric, "codes are read as signed", inside(asymmetric, signed=True))
mistake(aimed_block_asymmetric, "zero points are one too high", inside(asymmetric, more=1))
mistake(aimed_block_asymmetric, "the scale of the row before", inside(asymmetric, roll=1))
mistake(aimed_block_asymmetric, "the zero point is taken off after scaling", inside(asymmetric, after=True))
mistake(aimed_block_asymmetric, "groups of 64", inside(asymmetric, size=64))
mistake(aimed_block_asymmetric, "a group begins one column early", inside(asymmetric, late=1))


@aimed(lambda d: (d.ints(256, 12, 40).to(torch.uint8), d.rand(12, 5).add(0.1).to(hf)))
def aimed_block_nibbles(q, s):
    both = torch.stack((q & 15, q >> 4), -1).view(12, 5, 16)
    return ((both.to(s.dtype) - 8) * s[..., None]).flatten(1)


def nibbles(q, s, high=False, apart=False, signed=False, zero=8, size=16):
    a, b = (q & 15).int(), (q >> 4).int()
    a, b = (b, a) if high else (a, b)
    both = torch.cat((a, b), -1) if apart else torch.stack((a, b), -1).flatten(1)
    both = torch.where(both > 7, both - 16, both) if signed else both - zero
    return both * s[:, (torch.arange(80) // size).clamp(max=4)]


honest(aimed_block_nibbles, "in float32", inside(nibbles))
mistake(aimed_block_nibbles, "the upper nibble comes first", inside(nibbles, high=True))
mistake(aimed_block_nibbles, "lower nibbles fill the first half", inside(nibbles, apart=True))
mistake(aimed_block_nibbles, "nibbles are two's complement", inside(nibbles, signed=True))
mistake(aimed_block_nibbles, "the zero point is 7", inside(nibbles, zero=7))
mistake(aimed_block_nibbles, "scales change each 20 columns", inside(nibbles, size=20))


TABLE = (-1.0, -0.7, -0.53, -0.39, -0.28, -0.18, -0.09, 0.0, 0.08, 0.16, 0.25, 0.34, 0.44, 0.56, 0.72, 1.0)


@aimed(lambda d: (d.ints(16, 256), d.rand(4).add(0.2).to(bf), torch.tensor(TABLE).to(bf)))
def aimed_block_table(q, s, table):
    return (table[q].view(4, 64) * s[:, None]).flatten()


honest(aimed_block_table, "in float32", inside(lambda q, s, t: t[q] * s.repeat_interleave(64)))
mistake(
    aimed_block_table, "the table is read from its end", inside(lambda q, s, t: t[15 - q] * s.repeat_interleave(64))
)
mistake(
    aimed_block_table,
    "the index is one too high",
    inside(lambda q, s, t: t[(q + 1).clamp(max=15)] * s.repeat_interleave(64)),
)
mistake(aimed_block_table, "scales alternate", inside(lambda q, s, t: t[q] * s.repeat(64)))
mistake(
    aimed_block_table,
    "the last block has the scale of the one before",
    inside(lambda q, s, t: t[q] * s[[0, 1, 2, 2]].repeat_interleave(64)),
)


# ------------------------------------------------------------------ fp8 products


@aimed(lambda d: (fp8(d(5, 128)), fp8(d(24, 128)), d.rand(5, 4) + 0.5, d.rand(3, 4) + 0.5))
def aimed_block_fp8_product(a, b, sa, sb):
    a = a * sa.repeat_interleave(32, 1)
    return a @ (b * sb.repeat_interleave(8, 0).repeat_interleave(32, 1)).mT


def product(a, b, sa, sb, last=False, rows=8, turn=0, low=None, joint=False):
    total = torch.zeros(5, 24)
    for i in range(4):
        part = a[:, i * 32 : i * 32 + 32] @ b[:, i * 32 : i * 32 + 32].mT
        t = sb[:, (i + turn) % 4]
        t = t.repeat_interleave(8) if rows == 8 else t[(torch.arange(24) // rows).clamp(max=2)]
        u = sa[:, 3 if last else i, None]
        total = total + part * (sa[:, i, None] + t if joint else u * t)
        total = total if low is None else total.to(low).float()
    return total


honest(aimed_block_fp8_product, "block products scaled as they come", product)
honest(aimed_block_fp8_product, "in double precision", double(aimed_block_fp8_product))
mistake(aimed_block_fp8_product, "the scale of the last block of a serves all", lambda *a: product(*a, last=True))
mistake(aimed_block_fp8_product, "the scale of the next block of b", lambda *a: product(*a, turn=1))
mistake(aimed_block_fp8_product, "blocks of 12 rows in b", lambda *a: product(*a, rows=12))
mistake(aimed_block_fp8_product, "partial sums are kept in bf16", lambda *a: product(*a, low=bf))
mistake(aimed_block_fp8_product, "scales are added, not multiplied", lambda *a: product(*a, joint=True))


@aimed(lambda d: (d.ints(7, 7, 64).float() - 3, d.ints(5, 7, 2).float() + 125, d(64, 10)))
def aimed_block_shared_exponents(q, e, x):
    return (q.view(7, 2, 32) * torch.exp2(e[..., None] - 127)).flatten(1) @ x


def shared(q, e, x, bias=127, size=32, swap=False):
    e = e.flip(1) if swap else e
    return (q * torch.exp2(e - bias)[:, (torch.arange(64) // size).clamp(max=1)]) @ x


honest(
    aimed_block_shared_exponents, "ldexp", lambda q, e, x: torch.ldexp(q, (e - 127).repeat_interleave(32, 1).int()) @ x
)
mistake(aimed_block_shared_exponents, "a bias of 126", lambda *a: shared(*a, bias=126))
mistake(aimed_block_shared_exponents, "blocks of 16", lambda *a: shared(*a, size=16))
mistake(aimed_block_shared_exponents, "the two exponents are swapped", lambda *a: shared(*a, swap=True))


# ------------------------------------------------------------------ making codes


@aimed(lambda d: (d(16, 70), torch.tensor(0.021), torch.tensor(60.0)))
def aimed_block_make_codes(x, s, z):
    return ((x / s).round() + z).clamp(0, 255).to(torch.uint8)


def make(x, s, z, step=torch.round, low=0, high=255, first=False, wrap=False):
    y = step(x * (1 / s) + z) if first else step(x * (1 / s)) + z
    return y.int().to(torch.uint8) if wrap else y.clamp(low, high).to(torch.uint8)


honest(aimed_block_make_codes, "times the reciprocal", make)
honest(aimed_block_make_codes, "in double precision", lambda x, s, z: make(x.double(), s.double(), z.double()))
mistake(aimed_block_make_codes, "cut off, not rounded", lambda *a: make(*a, step=torch.trunc))
mistake(aimed_block_make_codes, "the next lower code", lambda *a: make(*a, step=torch.floor))
mistake(aimed_block_make_codes, "held at 127", lambda *a: make(*a, high=127))
mistake(aimed_block_make_codes, "negative codes wrap", lambda *a: make(*a, wrap=True))
mistake(aimed_block_make_codes, "the zero point is 61", lambda x, s, z: make(x, s, z + 1))


@aimed(lambda d: (d(6, 50), d.rand(6).mul(0.03).add(0.01), torch.tensor((0, 4, -3, 7, 0, -9), dtype=torch.int32)))
def aimed_block_fake_channels(x, s, z):
    s, z = s[:, None], z[:, None]
    return ((x / s).round() + z).clamp(-128, 127).sub(z) * s


def fake(x, s, z, one=False, low=-128, step=torch.round, sign=1, twice=1):
    s, z = (t[:1].expand(6)[:, None] if one else t[:, None] for t in (s, z))
    return ((step(x * (1 / s)) + z).clamp(low, 127) - sign * z * twice) * s


honest(aimed_block_fake_channels, "times the reciprocal", fake)
honest(
    aimed_block_fake_channels,
    "by bounds less the zero point",
    lambda x, s, z: (x / s[:, None]).round().clamp((-128 - z)[:, None], (127 - z)[:, None]) * s[:, None],
)
mistake(aimed_block_fake_channels, "the first channel's scale serves all", lambda *a: fake(*a, one=True))
mistake(aimed_block_fake_channels, "cut off, not rounded", lambda *a: fake(*a, step=torch.trunc))
mistake(aimed_block_fake_channels, "the zero point is added back, not taken off", lambda *a: fake(*a, sign=-1))
mistake(aimed_block_fake_channels, "low codes end at 0", lambda *a: fake(*a, low=0))


@aimed(lambda d: (d(40, 30, scale=4.0),))
def aimed_block_fake_whole(x):
    return torch.fake_quantize_per_tensor_affine(x, 0.0625, 5, 0, 127)


honest(aimed_block_fake_whole, "codes less the zero point", lambda x: ((x * 16).round() + 5).clamp(0, 127).sub(5) / 16)
mistake(aimed_block_fake_whole, "codes run to 126", lambda x: ((x * 16).round() + 5).clamp(0, 126).sub(5) / 16)
mistake(aimed_block_fake_whole, "cut off, not rounded", lambda x: ((x * 16).trunc() + 5).clamp(0, 127).sub(5) / 16)
mistake(
    aimed_block_fake_whole, "the zero point is not taken off again", lambda x: ((x * 16).round() + 5).clamp(0, 127) / 16
)


@aimed(lambda d: (d.ints(255, 9, 48) - 127, d.ints(255, 13, 48) - 127, torch.tensor(0.0007), d.ints(200, 13)))
def aimed_block_requantized(a, b, m, bias):
    total = (a.double() @ b.double().mT + bias).to(m.dtype)
    return (total * m).round().clamp(-128, 127).to(torch.int8)


def requantized(a, b, m, bias, step=torch.round, times=1, wrap=False, keep=48):
    total = a[:, :keep] @ b[:, :keep].mT + times * bias
    y = step(total * m)
    return y.int().to(torch.int8) if wrap else y.clamp(-128, 127).to(torch.int8)


honest(aimed_block_requantized, "whole numbers until the multiplier", requantized)
mistake(aimed_block_requantized, "cut off after the multiplier", lambda *a: requantized(*a, step=torch.trunc))
mistake(aimed_block_requantized, "the bias is added ten times", lambda *a: requantized(*a, times=10))
mistake(aimed_block_requantized, "the last column of the block is left out", lambda *a: requantized(*a, keep=47))
mistake(aimed_block_requantized, "codes are floors", lambda *a: requantized(*a, step=torch.floor))


@aimed(lambda d: (d(8, 64, dtype=bf), d.ints(255, 16, 64) - 127, d.rand(16).mul(0.01).add(0.002).to(bf)))
def aimed_block_channel_product(x, q, s):
    return (x @ q.to(x.dtype).mT) * s


def channelled(x, q, s, roll=0, low=False, square=False):
    w = q.float()
    y = halves(x[:, None] * w) if not low else (x @ w.mT).to(hf).float()
    return y * s.roll(roll) * (s if square else 1)


honest(aimed_block_channel_product, "sums by halving", inside(channelled))
honest(aimed_block_channel_product, "weights scaled first", inside(lambda x, q, s: x @ (q * s[:, None]).mT))
mistake(aimed_block_channel_product, "scales are one channel off", inside(channelled, roll=1))
mistake(aimed_block_channel_product, "scales are applied twice", inside(channelled, square=True))
mistake(
    aimed_block_channel_product,
    "code -127 is read as 0",
    inside(lambda x, q, s: x @ (torch.where(q < -120, 0, q) * s[:, None]).mT),
)
