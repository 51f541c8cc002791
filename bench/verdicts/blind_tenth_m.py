# SPDX-License-Identifier: Apache-2.0
"""Set M, its second part, written after the first had been judged and aimed at what passed there: functions of
exact arguments, subnormal results, signs of zeros, constants of few digits, float64."""

import math

import torch

from .blind import bf, hf, narrow, tf32
from .blind_ninth_a import bad, ok
from .blind_tenth_a import tenth
from .blind_tenth_j import wide

F = torch.nn.functional
INF = float("inf")


# ------------------------------------------------------------------ functions that cancel inside


def hyper_args(d):
    return (torch.cat([1 + d.rand(200) * 1e-3, 1 + d.rand(200) * 30]),)


@tenth(hyper_args)
def tenth_arc_hyper(x):
    return torch.acosh(x), torch.atanh((x - 1) / 40), torch.asinh(-x * 3)


def arc_hyper(x, a=None, t=None, s=None):
    return (a or wide(torch.acosh))(x), (t or wide(torch.atanh))((x - 1) / 40), (s or wide(torch.asinh))(-x * 3)


ok(tenth_arc_hyper, arc_hyper, double_precision={})
bad(
    tenth_arc_hyper,
    arc_hyper,
    {
        # log(x + sqrt(x^2 - 1))
        "hides: acosh by its logarithm, near one": {"a": lambda x: (x + (x * x - 1).sqrt()).log()},
        # half the logarithm of a quotient
        "hides: atanh by half a logarithm": {"t": lambda x: 0.5 * ((1 + x) / (1 - x)).log()},
        # log(x + sqrt(x^2 + 1)) of negatives
        "hides: asinh of negatives by its logarithm": {"s": lambda x: (x + (x * x + 1).sqrt()).log()},
    },
)


@tenth(lambda d: (torch.cat([d(300, scale=20), d(200, scale=300)]),))
def tenth_middle_circles(x):
    return torch.sin(x), torch.cos(x), torch.tan(x)


def reduced(x, parts, by=math.pi / 2):
    k = (x * (1 / by)).round()
    y = x
    for p in parts:
        y = y - k * p
    return y, k.long() % 4


def middle_circles(x, parts=(), which=(0, 1, 2), deg=0):
    if not parts:
        return wide(torch.sin)(x), wide(torch.cos)(x), wide(torch.tan)(x)
    y, q = reduced(x, parts)
    s, c = wide(torch.sin)(y), wide(torch.cos)(y)
    sin = torch.where(q % 2 == 0, s, c) * torch.where(q < 2, 1.0, -1.0)
    cos = torch.where(q % 2 == 0, c, s) * torch.where((q == 0) | (q == 3), 1.0, -1.0)
    tan = torch.where(q % 2 == 0, s / c, -c / s)
    return sin, cos, tan


ok(tenth_middle_circles, middle_circles, double_precision={})
bad(
    tenth_middle_circles,
    middle_circles,
    {
        # one piece
        "hides: half of pi in one piece": {"parts": (1.5707964,)},
        # the third piece is missing in the middle
        "hides: half of pi in two pieces of few digits": {"parts": (1.5703125, 4.8383e-4)},
    },
)


def grow_args(d):
    return torch.cat([d(300, scale=30), torch.tensor([88.9, -88.9, 89.2, 89.4, -89.3])]), d(305, scale=12)


@tenth(grow_args)
def tenth_growing(x, y):
    return torch.cosh(x), torch.sinh(x), torch.exp2(x), torch.pow(10.0, y)


def growing(x, y, cosh=None, sinh=None, two=None, ten=None):
    return (
        (cosh or wide(torch.cosh))(x),
        (sinh or wide(torch.sinh))(x),
        (two or wide(torch.exp2))(x),
        (ten or wide(lambda t: torch.pow(10.0, t)))(y),
    )


ok(tenth_growing, growing, double_precision={})
bad(
    tenth_growing,
    growing,
    {
        # (e^x + e^-x) / 2 overflows at 88.73, cosh at 89.4
        "hides: cosh is infinite half a unit early": {"cosh": lambda x: (x.exp() + (-x).exp()) / 2},
        # the same for sinh, and it cancels near zero
        "hides: sinh is infinite half a unit early": {
            "sinh": lambda x: torch.where(x.abs() < 1, wide(torch.sinh)(x), (x.exp() - (-x).exp()) / 2)
        },
        # exp(x ln 2)
        "hides: exp2 by way of exp": {"two": lambda y: wide(torch.exp)(y * 0.6931472)},
        # exp(x ln 10)
        "hides: ten to the power by way of exp": {"ten": lambda y: wide(torch.exp)(y * 2.3025851)},
    },
)


@tenth(lambda d: (1.01 + d.rand(400) * 6, d.rand(400) * 0.9999))
def tenth_special(x, u):
    return torch.lgamma(x), torch.digamma(x), torch.erfinv(u), torch.special.i0e(x * 3)


def special(x, u, g=None, p=None, e=None):
    return (
        (g or wide(torch.lgamma))(x),
        (p or wide(torch.digamma))(x),
        (e or wide(torch.erfinv))(u),
        wide(torch.special.i0e)(x * 3),
    )


def stirling(x):
    return (x + 5.5 - 0.5) * (x + 6).log() * 1.0 - (x + 6) + 0.9189385 + 1 / (12 * (x + 6)) - shifted(x)


def shifted(x):
    return (x * (x + 1) * (x + 2) * (x + 3) * (x + 4) * (x + 5)).log()


def giles(u):
    w = -torch.log((1 - u) * (1 + u))
    a, b = w - 2.5, w.sqrt() - 3
    p = [2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503]
    q = [-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613]
    p, q = p + [-0.00417768164, 0.246640727, 1.50140941], q + [0.00943887047, 1.00167406, 2.83297682]
    s, t = torch.zeros_like(u), torch.zeros_like(u)
    for c, e in zip(p, q, strict=True):
        s, t = s * a + c, t * b + e
    return torch.where(w < 5, s, t) * u * 1.00002


ok(tenth_special, special, double_precision={})
bad(
    tenth_special,
    special,
    {
        # Stirling of x + 6 less the logarithm of a product: cancels near one and two
        "hides: lgamma by Stirling far off": {"g": stirling},
        # recurrence in single precision, two terms
        "hides: digamma of two terms": {
            "p": lambda x: (x + 2).log() - 0.5 / (x + 2) - 1 / (12 * (x + 2) ** 2) - 1 / x - 1 / (x + 1)
        },
        # polynomial, off by 2e-5
        "hides: erfinv is off by 2e-5": {"e": giles},
    },
)


# ------------------------------------------------------------------ subnormal results and arguments


def tiny_args(d):
    a = d(300) * torch.exp2(torch.linspace(-75, -60, 300))
    return a, d(300) * torch.exp2(torch.linspace(-72, -60, 300)), d(8, 40, scale=40)


@tenth(tiny_args)
def tenth_tiny(a, b, x):
    return a * b, (a * 2.0**-60) + (b * 2.0**-60), torch.softmax(x, -1), torch.exp2(x - 100)


def flushed(x):
    return torch.where(x.abs() < 2**-126, 0 * x, x)


def tiny(a, b, x, one=None, two=None, three=None, four=None):
    keep = lambda f, y: f(y) if f else y
    e = (x - x.amax(-1, keepdim=True)).double().exp()
    soft = (e / e.sum(-1, keepdim=True)).float()
    u, v = a * 2.0**-60, b * 2.0**-60
    return keep(one, a * b), keep(two, u) + keep(two, v), keep(three, soft), keep(four, wide(torch.exp2)(x - 100))


ok(tenth_tiny, tiny, subnormals_kept={})
bad(
    tenth_tiny,
    tiny,
    {
        # products
        "hides: subnormal products are flushed": {"one": flushed},
        # summands
        "hides: subnormal summands are taken as zero": {"two": flushed},
        # tails of a softmax
        "hides: subnormal weights of a softmax are flushed": {"three": flushed},
        # results of exp2
        "hides: subnormal powers of two are flushed": {"four": flushed},
    },
)


# ------------------------------------------------------------------ signs of zeros

ZEROS = [0.0, -0.0, 0.3, -0.3, -0.5, 0.5, -1e-30, 1e-30, -1e-45, 2.0, -2.0]


@tenth(lambda d: (torch.tensor(ZEROS * 3), torch.tensor(sorted(ZEROS) * 3)))
def tenth_zeros(x, y):
    return x.round(), x.ceil(), x.trunc(), x * y, torch.fmod(x, 0.5), x.sqrt(), torch.copysign(y, x), 1 / (x * 0)


def zeros(x, y, lost=None, last=None):
    out = [x.round(), x.ceil(), x.trunc(), x * y, torch.fmod(x, 0.5), x.sqrt(), torch.copysign(y, x), 1 / (x * 0)]
    if lost is not None:
        out[lost] = torch.where(out[lost] == 0, 0.0, out[lost])
    if last:
        out[7] = last(x)
    return tuple(out)


ok(tenth_zeros, zeros, as_they_are={})
bad(
    tenth_zeros,
    zeros,
    {
        # int and back
        "hides: round of -0.3 is +0": {"lost": 0},
        # ceil
        "hides: ceil of -0.3 is +0": {"lost": 1},
        # product
        "hides: a product's zero has no sign": {"lost": 3},
        # fmod
        "hides: fmod of negatives gives +0": {"lost": 4},
        # sqrt(-0)
        "hides: the root of -0 is +0": {"lost": 5},
        # 1 / -0
        "hides: one over minus zero is plus infinity": {"last": lambda x: (1 / (x * 0)).abs()},
    },
)


# ------------------------------------------------------------------ constants of few digits, in every element


@tenth(lambda d: (d(600), d(20, 64), d(20, 64)))
def tenth_constants(x, q, k):
    return (
        F.gelu(x, approximate="tanh"),
        F.selu(x),
        (q * k).sum(-1) / math.sqrt(64 * 1.5),
        torch.deg2rad(x * 50),
        torch.log10(x.abs() + 2),
    )


def constants(x, q, k, a=math.sqrt(2 / math.pi), s=1.0507009873554805, d=math.sqrt(96), r=math.pi / 180, g=None):
    y = x.double()
    gelu = y * torch.sigmoid(2 * a * (y + 0.044715 * y**3))
    selu = s * torch.where(y > 0, y, 1.6732632423543772 * torch.expm1(y))
    lg = (x.abs() + 2).double().log() * (g or 1 / math.log(10))
    return gelu.float(), selu.float(), (q * k).sum(-1) * (1 / d), ((x * 50).double() * r).float(), lg.float()


ok(tenth_constants, constants, all_digits={})
bad(
    tenth_constants,
    constants,
    {
        # 0.79788
        "hides: the root of two over pi is 0.79788": {"a": 0.79788},
        # 1.0507
        "hides: selu's scale is 1.0507": {"s": 1.0507},
        # 9.798
        "hides: the root of 96 is 9.79797": {"d": 9.79797},
        # 0.0174533
        "hides: a degree is 0.0174533": {"r": 0.0174533},
        # 0.434295
        "hides: one over ln 10 is 0.434295": {"g": 0.434295},
        # 0.43429446
        "hides: one over ln 10 is 0.4342943": {"g": 0.4342943},
    },
)


# ------------------------------------------------------------------ float64 with less than its bits


def long_args(d):
    x = d(300).double() * (1 / 3)
    return x, (d(12, 50).double() + 3) / 7


@tenth(long_args)
def tenth_long(x, y):
    return x.exp(), x.abs().rsqrt(), 1 / x, torch.softmax(y, -1), y.var(-1), torch.erf(x)


def newton(x, steps, f):
    r = f(x.float()).double()
    for _ in range(steps):
        r = r * (1.5 - 0.5 * x * r * r)
    return r


def over(x, steps):
    r = (1 / x.float()).double()
    for _ in range(steps):
        r = r * (2 - x * r)
    return r


def series(x, n):
    k = (x / math.log(2)).round()
    r = x - k * math.log(2)
    return sum(r**i / float(math.factorial(i)) for i in reversed(range(n))) * torch.exp2(k)


def long(x, y, n=18, roots=2, steps=2, soft=None, mean=None, erf=None):
    e = (y - y.amax(-1, keepdim=True)).exp()
    e = soft(e) if soft else e
    m = y.mean(-1, keepdim=True)
    m = mean(m) if mean else m
    v = (y - m).square().sum(-1) / 49
    return (
        series(x, n),
        newton(x.abs(), roots, torch.rsqrt),
        over(x, steps),
        e / e.sum(-1, keepdim=True),
        v,
        erf(x) if erf else torch.erf(x),
    )


single = lambda t: t.float().double()
ok(tenth_long, long, None, series_and_newton={}, more_terms={"n": 22, "roots": 3, "steps": 3})
bad(
    tenth_long,
    long,
    {
        # too few terms: 1e-12
        "hides: the exponential of ten terms": {"n": 10},
        # one step from 24 bits: 47
        "hides: the root by one step from single precision": {"roots": 1},
        # one step from 24 bits
        "hides: the reciprocal by one step from single precision": {"steps": 1},
        # exponentials of single precision
        "hides: softmax of single-precision exponentials": {"soft": single},
        # the mean
        "hides: the variance about a mean of half precision": {"mean": lambda t: t.half().double()},
        # erf
        "hides: erf of single precision": {"erf": lambda x: torch.erf(x.float()).double()},
    },
    None,
)


# ------------------------------------------------------------------ 16 bits: twice rounded, cut off, ties


@tenth(lambda d: (d(2000, dtype=bf), d(2000, dtype=bf), d(2000, dtype=hf), d(2000, dtype=hf)))
def tenth_last_bit(a, b, x, y):
    return (
        (a.float() * b.float() + 1).to(bf),
        (x.float() * y.float() + 0.5).to(hf),
        F.gelu(a.float()).to(bf),
        torch.sigmoid(x.float()).to(hf),
    )


def cut(x, dtype):
    y = x.to(dtype)
    return torch.where(y.float().abs() > x.abs(), torch.nextafter(y, torch.zeros_like(y)), y)


def last_bit(a, b, x, y, one=None, two=None, three=None, four=None):
    u, v = a.float() * b.float() + 1, x.float() * y.float() + 0.5
    g = wide(F.gelu)(a.float())
    s = wide(torch.sigmoid)(x.float())
    s = four(s) if four else s
    return (
        one(u) if one else u.to(bf),
        two(v) if two else v.to(hf),
        (three(a.float()) if three else g).to(bf),
        s if s.dtype == hf else s.to(hf),
    )


ok(tenth_last_bit, last_bit, None, rounded_once={})
bad(
    tenth_last_bit,
    last_bit,
    {
        # through half precision, then to bfloat16
        "hides: rounded twice, by way of half precision": {"one": lambda u: narrow(u, hf).to(bf)},
        # tf32's 10 bits are half precision's: the low bits are cut, then rounded
        "hides: cut off in half precision": {"two": lambda v: cut(v, hf)},
        # the tanh form, below a rounding of bfloat16 but in the tail
        "hides: the tanh form of gelu": {"three": lambda x: x * torch.sigmoid(1.5957691 * (x + 0.044715 * x**3))},
        # the product rounded before the sum
        "hides: the product is rounded before the sum": lambda a, b, x, y: (a * b + 1,) + last_bit(a, b, x, y)[1:],
        # tf32, then half precision
        "hides: the sigmoid in tf32 first": {"four": lambda s: tf32(s * (1 - 2**-11))},
        # 11 bits cut
        "hides: the sigmoid is cut off": {"four": lambda s: cut(s, hf)},
    },
    None,
)
