# SPDX-License-Identifier: Apache-2.0
"""Set L: quantisation, casts, rotary embeddings."""

import math

import torch

from .blind import bf, hf, narrow
from .blind_ninth_a import bad, ninth, ok

E4, E5 = torch.float8_e4m3fn, torch.float8_e5m2

# ------------------------------------------------------------------ quantisation


def row_args(d):
    x = d(40, 128)
    x[:, 0] = 127.0  # the scale is one: ties are exact
    x[:, 1::2] = (x[:, 1::2] * 40).round() / 2
    x[:, 2] = -126.5
    return (x,)


@ninth(row_args)
def ninth_quant_rows(x):
    s = x.abs().amax(-1) / 127
    return (x / s[:, None]).round().clamp(-127, 127).to(torch.int8), s


def quant_rows(x, by=127, way="even", wrap=False):
    s = x.abs().amax(-1) / by
    y = x / s[:, None]
    q = {
        "even": lambda: y.round(),
        "away": lambda: (y.abs() + 0.5).floor() * y.sign(),
        "up": lambda: (y + 0.5).floor(),
        "cut": lambda: y.trunc(),
    }[way]()
    return q.clamp(-128, 127).to(torch.int8), s


ok(ninth_quant_rows, quant_rows, None, as_written={})
bad(
    ninth_quant_rows,
    quant_rows,
    {
        # / 128
        "the scale is over 128": {"by": 128},
        # ties away
        "hides: ties are rounded away from zero": {"way": "away"},
        # floor(x + 0.5)
        "hides: ties are rounded up": {"way": "up"},
        # conversion cuts
        "cut, not rounded": {"way": "cut"},
    },
    None,
)


@ninth(lambda d: (d(30, 64, scale=2, shift=1.3),))
def ninth_quant_zero(x):
    lo, hi = x.amin(-1, keepdim=True).clamp(max=0), x.amax(-1, keepdim=True).clamp(min=0)
    s = (hi - lo) / 255
    z = (-lo / s).round()
    return (x / s + z).round().clamp(0, 255).to(torch.uint8), s, z.to(torch.int32)


def quant_zero(x, n=255, early=False, cut=False, low=None):
    lo, hi = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    lo, hi = lo.clamp(max=0), hi.clamp(min=0)
    s = (hi - lo) / n
    s = s if low is None else narrow(s, low)
    z = (-lo / s).trunc() if cut else (-lo / s).round()
    q = (x / s).round() + z if early else (x / s + z).round()
    return q.clamp(0, 255).to(torch.uint8), s, z.to(torch.int32)


ok(ninth_quant_zero, quant_zero, None, as_written={})
bad(
    ninth_quant_zero,
    quant_zero,
    {
        # 2^8
        "the scale is over 256": {"n": 256},
        # z is cut
        "hides: the zero point is cut": {"cut": True},
        # scale in float16
        "hides: the scale is rounded to float16": {"low": hf},
    },
    None,
)


@ninth(lambda d: (d.ints(256, 24, 160) - 128, d.rand(24, 5) * 0.02, d.ints(9, 24, 5) - 4))
def ninth_dequant(q, s, z):
    return ((q - z.repeat_interleave(32, 1)) * s.repeat_interleave(32, 1)).to(hf)


def dequant(q, s, z, late=False, kind=None, block=32, cut=0, mode=None):
    big = lambda t: (
        t.repeat_interleave(block, 1)[:, :160] if block == 32 else t.repeat_interleave(block, 1).repeat(1, 2)[:, :160]
    )  # noqa: E731
    ss = big(s) if kind is None else narrow(big(s), kind)
    y = q * ss - big(z) if late else (q - big(z)) * ss
    y = y.double()
    if mode == "cut":
        r = y.to(hf)
        return torch.where(r.double().abs() > y.abs(), (r.view(torch.int16) - 1).view(hf), r)
    if cut:
        y[:, 160 - cut :] = (q * ss)[:, 160 - cut :]
    return y.float()


ok(ninth_dequant, dequant, hf, in_double_precision={})
bad(
    ninth_dequant,
    dequant,
    {
        # q * s - z
        "the zero point is not scaled": {"late": True},
        # scales in float16
        "hides: scales are rounded to float16 first": {"kind": hf},
        # blocks of 16
        "blocks of 16": {"block": 16},
        # the tail lacks the zero point
        "hides: the last three lack the zero point": {"cut": 3},
        # rounded towards zero
        "hides: stored by cutting off": {"mode": "cut"},
    },
    hf,
)


@ninth(lambda d: (d(50, 80, scale=120), torch.tensor(1.7)))
def ninth_to_fp8(x, s):
    return (x * s).clamp(-448, 448).to(E4)


def to_fp8(x, s, sat=True, flush=0.0, way=None, top=448.0):
    y = x * s
    y = y.clamp(-top, top) if sat else y
    y = torch.where(y.abs() < flush, 0.0, y)
    r = (y if sat else torch.where(y.abs() > 464, math.nan, y)).to(E4)
    if way == "cut":
        over = r.float().abs() > y.abs()
        r = torch.where(over, (r.view(torch.uint8) - 1).view(torch.uint8), r.view(torch.uint8)).view(E4)
    return r


ok(ninth_to_fp8, to_fp8, None, as_written={}, in_double=lambda x, s: (x.double() * s).clamp(-448, 448).to(E4))
bad(
    ninth_to_fp8,
    to_fp8,
    {
        # no clamp: NaN
        "hides: what is too large becomes NaN": {"sat": False},
        # e4m3fnuz
        "saturates at 240": {"top": 240.0},
        # truncated
        "hides: cut, not rounded": {"way": "cut"},
        # subnormals of e4m3: below 2^-6
        "hides: numbers below 1/4 are zero": {"flush": 0.25},
    },
    None,
)


def mx_rows(d):
    x = d(40, 96) * torch.exp2(d.ints(9, 40, 1).float() - 4)
    x[0, :32], x[1, :32] = x[0, :32].sign() * 0.5, x[1, :32].sign()
    return (x,)


@ninth(mx_rows)
def ninth_mx_scale(x):
    top = x.view(40, 3, 32).abs().amax(-1)
    e = top.frexp().exponent - 1 - 8
    q = (x.view(40, 3, 32) * torch.exp2(-e.to(x.dtype))[..., None]).clamp(-448, 448).to(E4)
    return q.view(40, 96), (e + 127).to(torch.uint8)


def mx_scale(x, way="floor", by=8, block=32, sat=448.0):
    y = x.view(40, -1, block)
    top = y.abs().amax(-1)
    e = {
        "floor": lambda: top.double().log2().floor(),
        "ceil": lambda: top.double().log2().ceil(),
        "round": lambda: top.double().log2().round(),
        "low": lambda: (top.log2() - 1e-4).floor(),
    }[way]() - by
    q = (y * torch.exp2(-e.float())[..., None]).clamp(-sat, sat).to(E4)
    return q.view(40, 96), (e + 127).to(torch.uint8)


ok(ninth_mx_scale, mx_scale, None, by_logarithm={})
bad(
    ninth_mx_scale,
    mx_scale,
    {
        # ceil
        "the exponent is rounded up": {"way": "ceil"},
        # round
        "the exponent is rounded to the nearest": {"way": "round"},
        # log2f just below a whole number
        "hides: powers of two get the exponent below": {"way": "low"},
        # e5m2's 15
        "the exponent of another format": {"by": 15},
    },
    None,
)


# ------------------------------------------------------------------ rotary embeddings


def angles(d, n=96, half=16, start=0, base=10000.0):
    inv = base ** (-torch.arange(half).double() / half)
    a = (torch.arange(n).double() + start)[:, None] * inv
    return a.cos().float(), a.sin().float()


@ninth(lambda d: (d(2, 4, 96, 40, dtype=bf), *angles(d)))
def ninth_partial_rope(x, cos, sin):
    x = x.float()
    a, b, rest = x[..., :16], x[..., 16:32], x[..., 32:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin, rest), -1).to(bf)


def partial_rope(x, cos, sin, pairs=False, sign=1.0, shift=0, all_=False, kind=None, low=False, stale=False):
    x = x.float()
    if shift:
        cos, sin = cos.roll(-shift, 0), sin.roll(-shift, 0)
    if kind:
        cos, sin = narrow(cos, kind), narrow(sin, kind)
    if all_:
        a, b = x[..., :16], x[..., 20:36]
        return torch.cat((a * cos - b * sin, x[..., 16:20], b * cos + a * sin, x[..., 36:]), -1)
    if pairs:
        a, b = x[..., 0:32:2], x[..., 1:32:2]
        y = torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)
        return torch.cat((y, x[..., 32:]), -1)
    a, b = x[..., :16], x[..., 16:32]
    p = a * cos - sign * b * sin
    q = b * cos + sign * (p if stale else a) * sin
    if low:
        p, q = narrow(a * cos) - narrow(b * sin), narrow(b * cos) + narrow(a * sin)
    return torch.cat((p, q, x[..., 32:]), -1)


ok(
    ninth_partial_rope,
    partial_rope,
    bf,
    halves={},
    complex_numbers=lambda x, c, s: torch.cat(
        (
            *torch.view_as_real(torch.complex(x[..., :16].float(), x[..., 16:32].float()) * torch.complex(c, s)).unbind(
                -1
            ),
            x[..., 32:].float(),
        ),
        -1,
    ),
)
bad(
    ninth_partial_rope,
    partial_rope,
    {
        # GPT-J order
        "neighbours are pairs, not halves": {"pairs": True},
        # inverse rotation
        "turned the other way": {"sign": -1.0},
        # a position late
        "hides: positions are one too large": {"shift": 1},
        # in-place: a is overwritten before it is read
        "the second half reads the first after it was written": {"stale": True},
        # halves of 40, not of 32
        "halves of the whole head": {"all_": True},
        # tables in bfloat16
        "hides: tables in bfloat16": {"kind": bf},
        # products rounded
        "hides: products are rounded to bfloat16": {"low": True},
    },
    bf,
)


@ninth(lambda d: (d(3, 50, 64), torch.arange(50) * 811))
def ninth_far_rope(x, pos):
    inv = 500000.0 ** (-torch.arange(32, dtype=x.dtype) / 32)
    low, high = 8192 / 4.0, 8192 / 1.0
    wave = 2 * math.pi / inv
    mix = ((8192 / wave - 1) / 3).clamp(0, 1)
    inv = torch.where(wave > high, inv / 8, torch.where(wave < low, inv, (1 - mix) * inv / 8 + mix * inv))
    a = pos[:, None] * inv
    return torch.cat((x[..., :32] * a.cos() - x[..., 32:] * a.sin(), x[..., 32:] * a.cos() + x[..., :32] * a.sin()), -1)


def far_rope(x, pos, factor=8.0, base=500000.0, smooth=True, kind=None, fast=False, cap=None, mean=1.0):
    inv = base ** (-torch.arange(32).double() / 32)
    wave = 2 * math.pi / inv
    mix = ((8192 / wave - 1) / 3).clamp(0, 1)
    if not smooth:
        mix = (mix >= 0.5).double()
    inv = inv * (mix + (1 - mix) / factor)
    inv = inv.float().double() if kind is None else narrow(inv, kind)
    p = pos.double() if cap is None else pos.clamp(max=cap).double()
    a = p[:, None] * inv
    if fast:  # reduced by 2 pi of three digits
        a = a - (a / (2 * math.pi)).round() * fast
    c, s = (a.cos() * mean).float(), (a.sin() * mean).float()
    return torch.cat((x[..., :32] * c - x[..., 32:] * s, x[..., 32:] * c + x[..., :32] * s), -1)


ok(ninth_far_rope, far_rope, angles_in_double={})
bad(
    ninth_far_rope,
    far_rope,
    {
        # 10000
        "another base": {"base": 10000.0},
        # no smooth part
        "hides: a step for the smooth part": {"smooth": False},
        # frequencies in bfloat16
        "frequencies in bfloat16": {"kind": bf},
        # 2 pi by 3.1416
        "hides: angles are reduced by 6.2832": {"fast": 6.2832},
        # positions capped
        "hides: positions beyond 32768 are 32768": {"cap": 32768},
        # YaRN's attention factor
        "hides: multiplied by a factor of 1.0005": {"mean": 1.0005},
    },
)


def mrope_args(d):
    pos = torch.stack([torch.arange(60), torch.arange(60) // 6, torch.arange(60) % 6])
    return d(60, 4, 32), pos, torch.tensor([4, 6, 6])


@ninth(mrope_args)
def ninth_sections(x, pos, sections):
    inv = 10000.0 ** (-torch.arange(16, dtype=x.dtype) / 16)
    which = torch.repeat_interleave(torch.arange(3), sections)
    a = (pos[which].T * inv)[:, None]
    u, v = x[..., :16], x[..., 16:]
    return torch.cat((u * a.cos() - v * a.sin(), v * a.cos() + u * a.sin()), -1)


def sections_(x, pos, sections, shift=0, turn=False, text=False):
    inv = torch.exp(torch.arange(16).double() * (-math.log(10000.0) / 16))
    which = torch.repeat_interleave(torch.arange(3), sections).roll(shift)
    which = torch.arange(16) % 3 if turn else which
    which = which * 0 if text else which
    a = (pos[which].T.double() * inv)[:, None]
    u, v, c, s = x[..., :16], x[..., 16:], a.cos().float(), a.sin().float()
    return torch.cat((u * c - v * s, v * c + u * s), -1)


ok(ninth_sections, sections_, angles_in_double={})
bad(
    ninth_sections,
    sections_,
    {
        # boundaries one late
        "hides: each section begins one late": {"shift": 1},
        # interleaved
        "sections are taken in turn": {"turn": True},
        # text positions for all
        "all sections take the first positions": {"text": True},
    },
)
