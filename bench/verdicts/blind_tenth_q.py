# SPDX-License-Identifier: Apache-2.0
"""Set M, its fourth part: more members of the classes that passed. Ill-conditioned calls in which one block is worse
than conditioning explains, and one factor in all elements."""

import math

import torch

from .blind import bf, hf, narrow
from .blind_ninth_a import attend, bad, ok, online
from .blind_tenth_a import tenth
from .blind_tenth_o import block

F = torch.nn.functional
INF = float("inf")


def half(t):
    return narrow(t, hf)


def bits(n):
    """Rounds to n bits of significand."""

    def cut(x):
        step = torch.exp2(torch.frexp(x)[1].float() - n)
        return (x / step).round() * step

    return cut


# ------------------------------------------------------------------ sharp attention


@tenth(lambda d: (d(2, 4, 32, 64, scale=2), d(2, 4, 640, 64, scale=2), d(2, 4, 640, 64)))
def tenth_sharp(q, k, v):
    return attend(q, k, v)


def sharp(q, k, v, at=None, how=None, **more):
    o = online(q, k, v, **{"block": 128, **more})
    return o if at is None else block(o, at, how)


def dropped(q, k, v):
    s = q @ k.mT / 8
    s[:, 3, 31, s[0, 3, 31].argsort()[-3]] = -INF
    return torch.softmax(s, -1) @ v


ok(tenth_sharp, sharp, blocks_of_128={}, blocks_of_64_backwards={"block": 64, "back": True})
bad(
    tenth_sharp,
    sharp,
    {
        # one row
        "hides: the last row through half precision": {"at": (slice(None), slice(None), 31), "how": half},
        # one row, one head
        "hides: one row of one head through half precision": {"at": (1, 3, 31), "how": half},
        # 14 bits everywhere
        "hides: fifteen bits are kept": {"at": Ellipsis, "how": bits(15)},
        # all heads scaled
        "hides: one head is scaled by 1.0001": {"at": (slice(None), 2), "how": lambda t: t * 1.0001},
        # one weighty key of one row
        "hides: one row loses its third key": dropped,
        # the scale has 16 bits
        "hides: the scale is 0.12499": {"scale": 0.12499},
    },
)


# ------------------------------------------------------------------ sums, solves and scans that are ill-conditioned


def solve_args(d):
    a = torch.eye(24) * 1.5 + d(6, 24, 24, scale=0.25).tril(-1)
    return a, d(6, 24, 8)


@tenth(solve_args)
def tenth_triangle(a, b):
    return torch.linalg.solve_triangular(a, b, upper=False)


def triangle(a, b, at=None, how=None, size=1, kind=None, lost=None):
    y = torch.zeros_like(b)
    for i in range(24):
        n = i if lost != i else i - 1
        y[:, i] = (b[:, i] - (a[:, i, :n, None] * y[:, :n]).sum(1)) / a[:, i, i, None]
        y[:, i] = kind(y[:, i]) if kind and i == 11 else y[:, i]
    return y if at is None else block(y, at, how)


ok(tenth_triangle, triangle, row_by_row={})
bad(
    tenth_triangle,
    triangle,
    {
        # one row of the result in half
        "hides: the last row through half precision": {"at": (slice(None), 23), "how": half},
        # a pivot row is stored in half
        "hides: one row in the middle is stored in half precision": {"kind": half},
        # the last subdiagonal element of one row
        "hides: one row leaves its last element out": {"lost": 20},
        # 16 bits
        "hides: sixteen bits are kept": {"at": Ellipsis, "how": bits(16)},
    },
)


def far_args(d):
    x = d(24, 400, shift=100.0)
    return x, d(24, 400, scale=1e3), d(24, 300, scale=8)


@tenth(far_args)
def tenth_far(x, y, z):
    return (
        F.layer_norm(x, (400,), eps=1e-5),
        y.cumsum(-1),
        torch.logsumexp(z, -1) - z.amax(-1),
        x.var(-1),
        (y * x).sum(-1),
    )


def far(x, y, z, norm=None, run=None, gap=None, var=None, dot=None):
    m = x.mean(-1, keepdim=True)
    v = (x - m).square().mean(-1, keepdim=True)
    keep = lambda f, t: f(t) if f else t
    c = torch.cat([y[:, :200].cumsum(-1), y[:, :200].sum(-1, keepdim=True) + y[:, 200:].cumsum(-1)], -1)
    g = (z - z.amax(-1, keepdim=True)).exp().sum(-1).log()
    return (
        keep(norm, (x - m) * torch.rsqrt(v + 1e-5)),
        keep(run, c),
        keep(gap, g),
        keep(var, (x - m).square().sum(-1) / 399),
        keep(dot, (y * x).reshape(24, 20, 20).sum(-1).sum(-1)),
    )


ok(tenth_far, far, two_parts={})
bad(
    tenth_far,
    far,
    {
        # one row in half
        "hides: one row of the norm through half precision": {"norm": lambda t: block(t, 23, half)},
        # 12 bits
        "hides: the norm keeps twelve bits": {"norm": bits(12)},
        # one row of the running sum
        "hides: one row of the running sum through half precision": {"run": lambda t: block(t, 23, half)},
        # factor
        "hides: the norm is scaled by 1.00003": {"norm": lambda t: t * 1.00003},
        # one gap
        "hides: one gap of logsumexp in half precision": {"gap": lambda t: block(t, slice(23, 24), half)},
        # one variance
        "hides: variances are over 399.02": {"var": lambda t: t * (399 / 399.02)},
        # one dot product
        "hides: one product in half precision": {"dot": lambda t: block(t, slice(23, 24), lambda u: u * (1 + 2**-12))},
    },
)


# ------------------------------------------------------------------ one factor in all elements


@tenth(lambda d: (d(40, 96), d(96, shift=1.0), d(40, 96), d.rand(40, 96) + 0.1, d(40, 96)))
def tenth_factors(x, w, g, v, p):
    return (
        F.rms_norm(x, (96,), w, 1e-6),
        x * torch.rsqrt(v),
        F.softplus(x, beta=0.7),
        torch.sigmoid(x / 0.07),
        p * (1 - 1e-2 * 0.1) - 1e-2 * g,
        F.mish(x),
    )


def factors(x, w, g, v, p, n=1.0, r=1.0, beta=0.7, t=0.07, decay=1e-3, lr=1e-2, m=1.0):
    y = x.double()
    return (
        x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w * n,
        (y / v.double().sqrt() * r).float(),
        (F.softplus(y * beta) / beta).float(),
        torch.sigmoid(x / t),
        p - decay * p - lr * g,
        (y * torch.tanh(F.softplus(y)) * m).float(),
    )


ok(tenth_factors, factors, by_hand={})
bad(
    tenth_factors,
    factors,
    {
        # rsqrt of 21 bits, biased
        "hides: the norm is scaled by 1 + 2^-20": {"n": 1 + 2**-20},
        # reciprocal root biased
        "hides: the root is scaled by 1 + 2^-21": {"r": 1 + 2**-21},
        # 0.7 in half precision
        "hides: beta in half precision": {"beta": 0.7001953125},
        # 0.07 of six digits
        "hides: the temperature is 0.0700001": {"t": 0.0700001},
        # decay of few bits
        "hides: the decay in half precision": {"decay": 0.0010004043579101562},
        # rate in half precision
        "hides: the rate in half precision": {"lr": 0.01000213623046875},
        # scaled
        "hides: mish is scaled by 1 - 2^-20": {"m": 1 - 2**-20},
    },
)


# ------------------------------------------------------------------ exact arguments again


def exact_args(d):
    near = 1 + (torch.arange(200) - 100) * 2.0**-20
    return torch.cat([near, d.rand(200) * 5 + 0.5]), d(400, scale=8), torch.arange(400) * 0.37 - 60


@tenth(exact_args)
def tenth_exact(x, y, z):
    return (
        torch.log2(x),
        torch.sinc(y),
        torch.logit(x * 0.0 + torch.sigmoid(y)),
        x**20,
        torch.xlogy(z, x),
        torch.erfc(y / 2),
    )


def exact(x, y, z, log=None, sinc=None, power=None, xlog=None, erfc=None):
    d = lambda f, *a: f(*(t.double() for t in a)).float()
    s = torch.sigmoid(y)
    return (
        log(x) if log else d(torch.log2, x),
        sinc(y) if sinc else d(torch.sinc, y),
        d(torch.logit, s),
        power(x) if power else d(lambda t: t**20, x),
        xlog(z, x) if xlog else d(torch.xlogy, z, x),
        erfc(y / 2) if erfc else d(torch.erfc, y / 2),
    )


def frexp_log2(x):
    m, e = torch.frexp(x)
    return e.float() + m.log2()


ok(tenth_exact, exact, double_precision={})
bad(
    tenth_exact,
    exact,
    {
        # exponent + log2(mantissa): cancels above one
        "hides: exponent and mantissa apart": {"log": frexp_log2},
        # sin(pi x) with a rounded pi x
        "hides: sinc by a rounded multiple of pi": {
            "sinc": lambda y: torch.where(y == 0, 1.0, (y * math.pi).sin() / (y * math.pi))
        },
        # exp(20 log x)
        "hides: the twentieth power by logarithms": {"power": lambda x: (20 * x.log()).exp()},
        # frexp log
        "hides: xlogy by exponent and mantissa": {"xlog": lambda z, x: z * (frexp_log2(x) * 0.6931472)},
        # exp(-x^2) with a rounded square
        "hides: erfc by an exponential of a rounded square": {
            "erfc": lambda t: torch.where(t > 1, torch.special.erfcx(t) * (-(t * t)).exp(), torch.erfc(t)),
        },
    },
)


# ------------------------------------------------------------------ subnormals and signs again


def under_args(d):
    a = d(200) * torch.exp2(torch.linspace(-120, -100, 200))
    return (
        a,
        torch.exp2(torch.linspace(10, 40, 200)),
        d(200, dtype=hf, scale=3e-3),
        d(200, dtype=hf, scale=3e-3),
        d(200, dtype=bf),
    )


@tenth(under_args)
def tenth_under(a, b, x, y, z):
    return (
        a / b,
        a - a * (1 + 2**-20),
        x * y,
        torch.exp(x.float() * 200 - 12).to(hf),
        z * torch.tensor(2.0**-130, dtype=bf),
    )


def under(a, b, x, y, z, lost=None):
    out = [
        a / b,
        a - a * (1 + 2**-20),
        (x.float() * y.float()).to(hf),
        torch.exp(x.float() * 200 - 12).to(hf),
        (z.float() * 2.0**-130).to(bf),
    ]
    if lost is not None:
        least = 2**-14 if out[lost].dtype == hf else 2**-126
        out[lost] = torch.where(out[lost].abs() < least, 0 * out[lost], out[lost])
    return tuple(out)


ok(tenth_under, under, None, kept={})
bad(
    tenth_under,
    under,
    {
        # quotients
        "hides: subnormal quotients are flushed": {"lost": 0},
        # differences
        "hides: subnormal differences are flushed": {"lost": 1},
        # half precision products
        "hides: subnormal products of half precision are flushed": {"lost": 2},
        # half precision exponentials
        "hides: subnormal exponentials of half precision are flushed": {"lost": 3},
        # bfloat16
        "hides: subnormal products of bfloat16 are flushed": {"lost": 4},
    },
    None,
)


@tenth(
    lambda d: (
        torch.tensor([0.0, -0.0, 1.0, -1.0, -0.2, 0.2, -0.0, 3.0]).repeat(4),
        torch.tensor([1.0, 2.0, -0.0, 0.0]).repeat(8),
    )
)
def tenth_signed(x, y):
    return (
        -x,
        x.to(hf),
        x.abs() * -1,
        torch.remainder(x, 1.0),
        torch.atan(x),
        x / 3,
        torch.where(x > 0, x, -0.0),
        torch.atan2(x, -y.abs() - 1),
    )


def signed(x, y, lost=None):
    out = [-x, x.to(hf), x.abs() * -1, torch.remainder(x, 1.0), torch.atan(x), x / 3, torch.where(x > 0, x, -0.0)]
    out.append(torch.atan2(x, -y.abs() - 1))
    if lost == 7:
        out[7] = torch.where(x == 0, out[7].abs(), out[7])
    elif lost is not None:
        out[lost] = torch.where(out[lost] == 0, torch.zeros_like(out[lost]), out[lost])
    return tuple(out)


ok(tenth_signed, signed, None, kept={})
bad(
    tenth_signed,
    signed,
    {
        # 0 - x
        "hides: a negation as zero less x": {"lost": 0},
        # cast
        "hides: a cast loses the sign of zero": {"lost": 1},
        # atan
        "hides: atan of -0 is +0": {"lost": 4},
        # quotient
        "hides: -0 over three is +0": {"lost": 5},
        # atan2(-0, -1) = -pi
        "hides: the angle of -0 behind is plus pi": {"lost": 7},
    },
    None,
)
