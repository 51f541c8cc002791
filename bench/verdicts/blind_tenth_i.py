# SPDX-License-Identifier: Apache-2.0
"""Set M: casts, quantizers, rotary embeddings, random numbers from given bits."""

import math

import torch

from .blind import bf, hf, narrow
from .blind_ninth_a import bad, grads, ok
from .blind_tenth_a import tenth

F = torch.nn.functional
INF = float("inf")
NAN = float("nan")


# ------------------------------------------------------------------ casts to 16 and 8 bits


def cast_args(d):
    x = d(600) * torch.exp2(torch.linspace(-30, 18, 600))
    ties = torch.tensor(
        [1 + 2**-8, 1 + 3 * 2**-8, -(1 + 2**-8), 2**-25 * 1.0, 2**-24 * 1.5, 65520.0, 65519.0, -65520.0]
    )
    return (torch.cat([x, ties, torch.tensor([0.0, -0.0, INF, -INF, NAN, 3.4e38, 1e-45])]),)


@tenth(cast_args)
def tenth_narrowed(x):
    return x.to(bf), x.to(hf)


def by_bits(x, way="even"):
    b = x.view(torch.int32)
    add = {"even": 0x7FFF + ((b >> 16) & 1), "away": torch.full_like(b, 0x8000), "cut": torch.zeros_like(b)}[way]
    y = ((b + add) & ~0xFFFF).view(torch.float32)
    return torch.where(x.isnan() | x.isinf(), x, y).to(bf)


def half_of(x, saturate=False, flush=False, twice=False, cut=False, sign=True):
    y = (narrow(x) if twice else x).to(hf)
    if cut:
        y = torch.where(y.float().abs() > x.abs(), torch.nextafter(y, torch.zeros_like(y)), y)
    if saturate:
        y = torch.where(y.isinf() & ~x.isinf(), torch.copysign(torch.tensor(65504.0, dtype=hf), y), y)
    if flush:
        y = torch.where(y.abs() < 2**-14, torch.copysign(torch.zeros_like(y), y), y)
    return y if sign else torch.where(y == 0, 0.0, y).to(hf)


def narrowed(x, way="even", **how):
    return by_bits(x, way), half_of(x, **how)


ok(tenth_narrowed, narrowed, None, by_bits={})
bad(
    tenth_narrowed,
    narrowed,
    {
        # truncation
        "bfloat16 by cutting the low half off": {"way": "cut"},
        # ties away
        "hides: ties go away from zero": {"way": "away"},
        # saturating
        "hides: half precision saturates": {"saturate": True},
        # subnormals
        "hides: subnormals of half precision are flushed": {"flush": True},
        # through bfloat16
        "half precision by way of bfloat16": {"twice": True},
        # sign of zeros
        "hides: negative zeros lose their sign": {"sign": False},
        # towards zero
        "half precision rounds towards zero": {"cut": True},
    },
    None,
)


def fp8_args(d):
    x = d(500) * torch.exp2(torch.linspace(-14, 10, 500))
    return (
        torch.cat(
            [x, torch.tensor([448.0, 464.0, -464.0, 463.9, 480.0, 2**-10, -(2**-10), 2**-9 * 1.5, 0.0, -0.0, NAN])]
        ),
    )


@tenth(fp8_args)
def tenth_to_eight(x):
    return x.clamp(-448, 448).to(torch.float8_e4m3fn).float(), x.clamp(-57344, 57344).to(torch.float8_e5m2).float()


def eight_bits(x, bits, low, most, way="even", flush=False):
    e = torch.frexp(x.abs())[1].clamp_min(low + 1)
    step = torch.exp2((e - 1 - bits).float())
    q = x / step
    r = q.round() if way == "even" else torch.sign(q) * (q.abs() + 0.5).floor() if way == "away" else q.trunc()
    y = torch.copysign((r * step).abs(), x).clamp(-most, most)
    y = torch.where((y.abs() < 2.0**low) & flush, torch.copysign(torch.zeros(()), x), y)
    return torch.where(x.isnan(), x, y)


def to_eight(x, most=448.0, way="even", flush=False, first=None, other="even"):
    x = first(x) if first else x
    return eight_bits(x, 3, -6, most, way, flush), eight_bits(x, 2, -14, 57344.0, other)


ok(tenth_to_eight, to_eight, None, by_steps={})
bad(
    tenth_to_eight,
    to_eight,
    {
        # the fnuz format's range
        "the greatest value is 240": {"most": 240.0},
        # ties away from zero
        "hides: ties go away from zero": {"way": "away"},
        # flushed
        "hides: subnormals are flushed": {"flush": True},
        # twice rounded
        "hides: rounded by way of bfloat16": {"first": narrow},
        # the other format truncates
        "the second format cuts off": {"other": "cut"},
    },
    None,
)


# ------------------------------------------------------------------ integers, asymmetric, by token


def token_args(d):
    x = d(24, 160, shift=0.5)
    x[3] = 0
    x[5] = 2.0
    return (x,)


@tenth(token_args)
def tenth_by_token(x):
    lo, hi = x.amin(-1, keepdim=True).clamp(max=0), x.amax(-1, keepdim=True).clamp(min=0)
    s = ((hi - lo) / 255).clamp_min(1e-8)
    z = (-lo / s).round()
    q = ((x / s).round() + z).clamp(0, 255)
    return q.to(torch.uint8), s, z, (q - z) * s


def by_token(x, by=255.0, zero=True, way=torch.round, n=160, together=False, eps=1e-8, recip=None, span=None):
    lo, hi = x[:, :n].amin(-1, keepdim=True), x[:, :n].amax(-1, keepdim=True)
    lo, hi = (lo.clamp(max=0), hi.clamp(min=0)) if zero else (lo, hi)
    s = ((hi - lo) / by).clamp_min(eps)
    z = (-lo / s).round()
    q = way(x / s + z) if together else way(x / s if recip is None else x * recip(s)) + z
    q = q.clamp(0, 255) if span is None else q % 256
    return q.to(torch.uint8), s, z, (q - z) * s


ok(tenth_by_token, by_token, None, by_division={})
bad(
    tenth_by_token,
    by_token,
    {
        # 256 levels
        "divided by 256": {"by": 256.0},
        # trunc
        "cut off, not rounded": {"way": torch.trunc},
        # zero not in range
        "zero need not be in the range": {"zero": False, "eps": 1e-8},
        # halves up
        "hides: rounded by adding a half": {"way": lambda q: (q + 0.5).floor(), "recip": lambda s: narrow(1 / s, hf)},
        # 128 of 160
        "the range is that of 128 values": {"n": 128},
        # wraps, does not saturate: only visible where out of range
        "hides: the range leaves the last sixteen out": {"n": 144, "span": "wrap"},
    },
    None,
)


# ------------------------------------------------------------------ fake quantisation and its gradient


@tenth(lambda d: (d(30, 40), d.rand(30) * 0.02 + 0.005, d(30, 40)))
def tenth_fake_grad(x, s, g):
    y = torch.fake_quantize_per_channel_affine(x, s, torch.zeros(30, dtype=torch.int32), 0, -128, 127)
    dx = torch.where((x / s[:, None]).round().abs() <= 127.0, g, 0.0)
    return y, dx


def fake_grad(x, s, g, lo=-128, pass_all=False, way=torch.round, edge=127.0, roll=0, kind=None):
    s = s.roll(roll)[:, None]
    q = way(x * (1 / s))
    y = q.clamp(lo, 127) * s
    y = narrow(y, kind) if kind else y
    return y, g if pass_all else torch.where(q.abs() <= edge, g, 0.0)


ok(tenth_fake_grad, fake_grad, by_the_reciprocal={})
bad(
    tenth_fake_grad,
    fake_grad,
    {
        # straight through
        "the gradient passes where it is clamped": {"pass_all": True},
        # symmetric
        "the lowest code is -127": {"lo": -127},
        # scale of the row before
        "the scales are rolled by a row": {"roll": 1},
        # values back in half precision
        "hides: values go through half precision": {"kind": hf},
    },
)


@tenth(
    lambda d: (
        torch.cat([d(400, scale=90), torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 127.5, 126.5, -128.5, 300, -300])]),
    )
)
def tenth_to_int(x):
    return x.round().clamp(-128, 127).to(torch.int8), x.clamp(-128, 127).to(torch.int8), torch.floor(x)


def to_int(x, half=False, wrap=False, floor=False, down=False):
    r = torch.where(x < 0, (x - 0.5).ceil(), (x + 0.5).floor()) if half else x.round()
    q = (r.int() + 128) % 256 - 128 if wrap else r.clamp(-128, 127)
    c = x.clamp(-128, 127)
    return q.to(torch.int8), (c.floor() if floor else c.trunc()).to(torch.int8), x.trunc() if down else x.floor()


ok(tenth_to_int, to_int, None, as_written={})
bad(
    tenth_to_int,
    to_int,
    {
        # ties
        "hides: halves go away from zero": {"half": True},
        # wraps
        "codes out of range wrap around": {"wrap": True},
        # floor for trunc
        "the cast rounds down": {"floor": True},
        # trunc for floor
        "floor cuts off": {"down": True},
    },
    None,
)


# ------------------------------------------------------------------ rotary: interleaved, bfloat16, gradient


def rope_args(d):
    return d(2, 40, 4, 32, dtype=bf), torch.arange(40) * 25


def angles(pos, base=1e4, dim=32, kind=None, first=1.0):
    inv = base ** (-torch.arange(0, dim, 2).to(torch.float64) / dim)
    t = pos[:, None].double() * inv * first
    t = narrow(t.float(), kind).double() if kind else t
    return t.cos().float()[:, None], t.sin().float()[:, None]


@tenth(rope_args)
def tenth_turned16(x, pos):
    t = pos[:, None].to(torch.float64) * 1e4 ** (-torch.arange(0, 32, 2, dtype=torch.float64) / 32)
    c, s = t.cos().to(torch.float32)[:, None], t.sin().to(torch.float32)[:, None]
    a, b = x.float()[..., ::2], x.float()[..., 1::2]
    return torch.stack([a * c - b * s, a * s + b * c], -1).flatten(-2).to(bf)


def turned16(x, pos, halves=False, sign=1.0, kind=None, base=1e4, off=0, dim=32, table=None, way=0):
    c, s = angles(pos + off, base, 32, kind)
    c, s = (narrow(c, table), narrow(s, table)) if table else (c, s)
    x = x.float()
    a, b = (x[..., :16], x[..., 16:]) if halves else (x[..., ::2], x[..., 1::2])
    s = s * sign
    if way:
        z = torch.complex(a, b) * torch.complex(c, s).expand(2, -1, 4, -1)
        y = torch.stack([z.real, z.imag], -1).flatten(-2)
    else:
        y = torch.stack([torch.addcmul(a * c, b, -s), torch.addcmul(a * s, b, c)], -1)
        y = torch.cat([y[..., 0], y[..., 1]], -1) if halves else y.flatten(-2)
    return torch.cat([y[..., :dim], x[..., dim:]], -1)


ok(tenth_turned16, turned16, bf, fused={}, complex_numbers={"way": 1})
bad(
    tenth_turned16,
    turned16,
    {
        # neox
        "halves are turned, not pairs": {"halves": True},
        # backwards
        "turned backwards": {"sign": -1.0},
        # base
        "the base is 500000": {"base": 5e5},
        # 1-based
        "positions begin at one": {"off": 1},
        # tables in bfloat16
        "hides: sines and cosines in bfloat16": {"table": bf},
        # angles in half precision
        "hides: angles in bfloat16": {"kind": bf},
        # the last pair is left as it is
        "hides: the last pair is not turned": {"dim": 30},
    },
    bf,
)


@tenth(lambda d: (d(3, 30, 24), torch.arange(30.0) + 4000, d(3, 30, 24)))
def tenth_turned_grad(x, pos, g):
    def f(x):
        t = pos.double()[:, None] * 1e4 ** (-torch.arange(12, dtype=torch.float64) / 12)
        c, s = t.cos().to(x.dtype), t.sin().to(x.dtype)
        a, b = x.chunk(2, -1)
        return torch.cat([a * c - b * s, b * c + a * s], -1)

    return grads(f, x, cotangent=g)[0]


def turned_grad(x, pos, g, sign=-1.0, single=False, scale=1.0, kind=None):
    f = 1e4 ** (-torch.arange(12, dtype=torch.float64) / 12)
    t = pos.double()[:, None] * f if not single else (pos[:, None] * narrow(f.float(), kind)).double()
    c, s = t.cos().float(), t.sin().float() * sign
    a, b = g.chunk(2, -1)
    return torch.cat([torch.addcmul(a * c, b, -s), torch.addcmul(b * c, a, s)], -1) * scale


ok(tenth_turned_grad, turned_grad, turned_back={})
bad(
    tenth_turned_grad,
    turned_grad,
    {
        # same direction
        "the gradient is turned forwards": {"sign": 1.0},
        # frequency in half precision at position 4000
        "frequencies in half precision": {"single": True, "kind": hf},
        # attention factor of yarn
        "scaled by yarn's factor": {"scale": 0.1 * math.log(2) + 1},
    },
)


# ------------------------------------------------------------------ random numbers out of given bits


@tenth(lambda d: (torch.randint(-(2**31), 2**31, (3000,), generator=d.g).to(torch.int32),))
def tenth_uniform(bits):
    u = (bits.to(torch.int64) & 0xFFFFFFFF) >> 8
    return u.to(torch.float32) * 2.0**-24, 0.3 + 1.7 * (u.to(torch.float32) * 2.0**-24)


def uniform(bits, cut=8, scale=2.0**-24, half=0.0, span=1.7, signed=False, top=False):
    u = (bits.long() & 0xFFFFFFFF) >> cut if not signed else bits.long() >> cut
    y = (u.float() + half) * scale
    y = ((u >> 1) | 0x3F800000).to(torch.int32).view(torch.float32) - 1 if top else y
    return y, torch.addcmul(torch.full_like(y, 0.3), y, torch.tensor(span))


ok(tenth_uniform, uniform, fused={})
bad(
    tenth_uniform,
    uniform,
    {
        # arithmetic shift
        "the bits are shifted with their sign": {"signed": True},
        # 2^-24 of 32 bits rounds up to one
        "hides: all 32 bits are scaled: one is reached": {"cut": 0, "scale": 2.0**-32},
        # 23 bits by the mantissa trick
        "hides: 23 bits by way of the mantissa": {"top": True},
        # half a step
        "hides: moved by half a step": {"half": 0.5},
        # [0.3, 2.0]
        "hides: the span is 1.7001": {"span": 1.7001},
    },
)


@tenth(lambda d: (d.rand(2000).clamp_min(2.0**-24), d.rand(2000)))
def tenth_two_normals(u, v):
    r = (-2 * u.log()).sqrt()
    return r * torch.cos(2 * math.pi * v), r * torch.sin(2 * math.pi * v)


def two_normals(u, v, fast=None, pi=math.pi, swap=False, base=1.0, kind=None, floor=0.0):
    lg = (u.double().log() * base).float()
    lg = narrow(lg, kind) if kind else lg
    r = (-2 * lg).sqrt()
    t = (2 * pi * v).double()
    c, s = t.cos().float(), t.sin().float()
    r = r.clamp(max=floor) if floor else r
    return (r * s, r * c) if swap else (r * c, r * s)


ok(tenth_two_normals, two_normals, functions_of_double_precision={})
bad(
    tenth_two_normals,
    two_normals,
    {
        # sin, cos
        "sine and cosine are swapped": {"swap": True},
        # log2
        "the logarithm is that of base two": {"base": 1 / math.log(2)},
        # pi as 3.1416
        "hides: pi is 3.14159": {"pi": 3.14159},
        # log in bfloat16
        "hides: the logarithm in bfloat16": {"kind": bf},
        # clipped at 3
        "hides: no value is beyond three": {"floor": 3.0},
    },
)
