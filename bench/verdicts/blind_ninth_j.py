# SPDX-License-Identifier: Apache-2.0
"""Set L: element by element: what a function's tails, zeros and ties are, and means over many numbers."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, narrow
from .blind_ninth_a import bad, ninth, ok
from .blind_ninth_b import kahan, newton_rsqrt


def poly_exp(x, terms=7):
    """2^n times a polynomial of the rest, two-part ln 2."""
    n = (x * (1 / math.log(2))).round()
    r = x - n * 0.693359375 - n * -2.12194440e-4
    y = torch.ones_like(r)
    for k in range(terms, 0, -1):
        y = 1 + y * r / k
    half = (n / 2).floor()
    return y * torch.exp2(half) * torch.exp2(n - half)


@ninth(lambda d: (d(64, 200, scale=5),))
def ninth_softmax(x):
    return F.softmax(x, -1)


def softmax(x, exp=poly_exp, terms=7, add=None, inv=None, flush=0.0, part=200):
    y = x - x.amax(-1, keepdim=True)
    e = exp(y) if exp is not poly_exp else poly_exp(y, terms)
    e = torch.where(e < flush, 0.0, e)
    s = (kahan(e) if add == "kahan" else e[:, :part].sum(-1))[:, None]
    return e * (inv(s) if inv else 1 / s)


def schraudolph(y):
    return ((y * 12102203.16 + 1064866805).clamp(min=0)).to(torch.int32).view(torch.float32)


ok(
    ninth_softmax,
    softmax,
    polynomial_exp={},
    polynomial_and_Kahan={"add": "kahan"},
    reciprocal_by_Newton={"inv": lambda s: newton_rsqrt(s, 4).square()},
)
bad(
    ninth_softmax,
    softmax,
    {
        # a polynomial cut too early
        "hides: four terms of the polynomial": {"terms": 4},
        # Schraudolph's exp: percent
        "exp by bits": {"exp": schraudolph},
        # exp in float16: tails vanish
        "hides: exp is stored in float16": {"exp": lambda y: narrow(y.exp(), hf)},
        # a cut nobody documents
        "hides: shares below 1e-6 are zero": {"flush": 1e-6},
        # the reciprocal root with too few steps
        "hides: the reciprocal after two Newton steps": {"inv": lambda s: newton_rsqrt(s, 2).square()},
        # the last not in the sum
        "hides: the last does not enter the sum": {"part": 199},
    },
)


def small(d):
    return (d(600) * torch.exp(-d.rand(600) * 20),)


@ninth(small)
def ninth_log1p(x):
    return torch.log1p(x.abs()), torch.expm1(x)


def logs(x, way=0):
    a = x.abs()
    u = 1 + a
    log = torch.where(u == 1, a, u.log() * (a / (u - 1).clamp(min=1e-30)))
    return (u.log() if way == 1 else log), (x.exp() - 1 if way == 2 else torch.expm1(x))


ok(ninth_log1p, logs, Kahan_s_log1p={})
bad(
    ninth_log1p,
    logs,
    {
        # log(1 + x)
        "hides: log of 1 + x": {"way": 1},
        # exp(x) - 1
        "hides: exp less one": {"way": 2},
    },
)


@ninth(lambda d: (d(800, scale=12),))
def ninth_softplus(x):
    return F.softplus(x), F.logsigmoid(x), F.mish(x)


def softplus(x, limit=20.0, low=-math.inf, naive=False):
    s = torch.log1p((-x.abs()).exp())
    plus = torch.where(x > limit, x, x.clamp(min=0) + s)
    plus = torch.where(x < low, 0.0, plus)
    log = x.clamp(max=0) - s
    e = x.clamp(max=30).exp()
    w = e * (e + 2)
    return plus, torch.sigmoid(x).log() if naive else log, torch.where(x > 20, x, x * w / (w + 2))


ok(ninth_softplus, softplus, by_log1p={})
bad(
    ninth_softplus,
    softplus,
    {
        # threshold
        "hides: the identity above eight": {"limit": 8.0},
        # tails zero
        "hides: zero below minus twelve": {"low": -12.0},
        # log(sigmoid)
        "hides: log of the sigmoid": {"naive": True},
    },
)


def plane(d):
    y, x = d(400), d(400)
    y[:8] = torch.tensor([0.0, -0.0, 0.0, -0.0, 1.0, -1.0, 0.0, -0.0])
    x[:8] = torch.tensor([1.0, 1.0, -1.0, -1.0, -0.0, 0.0, -0.0, -0.0])
    return y, x


@ninth(plane)
def ninth_angle(y, x):
    return torch.atan2(y, x)


def atan2(y, x, zero=True, quick=False, clean=False):
    a = torch.atan((y / x).abs()) if not quick else quick_atan(y, x)
    a = torch.where((x == 0) & (y == 0), 0.0, a)
    neg = torch.signbit(x) if zero else x < 0
    a = torch.where(neg, math.pi - a, a)
    out = torch.copysign(a, y) if not clean else torch.where(y < 0, -a, a)
    return out


def quick_atan(y, x):
    z = torch.minimum(y.abs(), x.abs()) / torch.maximum(y.abs(), x.abs()).clamp(min=1e-30)
    p = z * (0.9998660 + z * z * (-0.3302995 + z * z * (0.1801410 + z * z * (-0.0851330 + z * z * 0.0208351))))
    return torch.where(y.abs() > x.abs(), math.pi / 2 - p, p)


ok(ninth_angle, atan2, by_quotients={})
bad(
    ninth_angle,
    atan2,
    {
        # x < 0 does not see -0
        "hides: minus zero counts as a positive x": {"zero": False},
        # the sign of y = -0 is lost: pi for -pi, +0 for -0
        "hides: the sign of a zero y is lost": {"clean": True},
        # five terms: 1e-5
        "hides: five terms of the arc tangent": {"quick": True},
    },
)


def whole(d):
    return (d(500) * 8).round() / 2, (d(500).abs() * 4).round() / 2 + 0.5


@ninth(whole)
def ninth_remainder(x, m):
    return torch.remainder(x, m), torch.fmod(x, m), torch.round(x)


def remainder(x, m, by_trunc=False, away=False, zero=False):
    q = (x / m).trunc() if by_trunc else (x / m).floor()
    f = x - (x / m).trunc() * m
    r = (x.abs() + 0.5).floor() * x.sign() if away else x.round()
    return x - q * m, torch.where(f == 0, torch.copysign(f, x), f), r + 0.0 if zero else r


ok(ninth_remainder, remainder, by_quotients={})
bad(
    ninth_remainder,
    remainder,
    {
        # sign of x
        "the remainder has the sign of x": {"by_trunc": True},
        # half away
        "hides: halves are rounded away from zero": {"away": True},
    },
)


def far(d):
    x, y = d(2000), d(2000)
    scale = torch.exp2(d.ints(240, 2000).float() - 120)
    return x * scale, y * scale


@ninth(far)
def ninth_hypot(x, y):
    return torch.hypot(x, y)


def hypot(x, y, scaled=True, quick=False):
    if quick:
        a, b = torch.maximum(x.abs(), y.abs()), torch.minimum(x.abs(), y.abs())
        return 0.96 * a + 0.4 * b
    if not scaled:
        return (x * x + y * y).sqrt()
    a = torch.maximum(x.abs(), y.abs())
    b = torch.minimum(x.abs(), y.abs()) / a
    return a * (1 + b * b).sqrt()


ok(ninth_hypot, hypot, scaled={})
bad(
    ninth_hypot,
    hypot,
    {
        # overflow and underflow of squares
        "hides: squares overflow and underflow": {"scaled": False},
        # alpha max beta min
        "the larger and a part of the smaller": {"quick": True},
        # a shortcut that is not even right
        "hides: without the smaller where it is 300 times smaller": lambda x, y: torch.where(
            torch.minimum(x.abs(), y.abs()) * 300 < torch.maximum(x.abs(), y.abs()),
            torch.maximum(x.abs(), y.abs()),
            hypot(x, y),
        ),
    },
)


@ninth(lambda d: (d(3000) * 1e-38 * 3,))
def ninth_halves(x):
    return x * 0.25, x.abs() + x


def halves(x, flush_out=False, flush_in=False):
    tiny = 2.0**-126
    y = torch.where(x.abs() < tiny, 0.0, x) if flush_in else x
    a, b = y * 0.25, y.abs() + y
    return (torch.where(a.abs() < tiny, 0.0, a), b) if flush_out else (a, b)


ok(ninth_halves, halves, gradual={})
bad(
    ninth_halves,
    halves,
    {
        # small numbers take a path of few bits
        "hides: numbers below 2^-125 lose their last bits": lambda x: tuple(
            torch.where(v.abs() < 2.0**-125, narrow(v), v) for v in halves(x)
        ),
        # a sign
        "hides: subnormal results lose their sign": lambda x: tuple(
            torch.where(v.abs() < 2.0**-126, v.abs(), v) for v in halves(x)
        ),
        # smallest normal in the place of subnormals
        "hides: subnormal results become the smallest normal number": lambda x: tuple(
            torch.where((v.abs() < 2.0**-126) & (v != 0), torch.copysign(torch.tensor(2.0**-126), v), v)
            for v in halves(x)
        ),
    },
)


@ninth(lambda d: (d(2, 500, dtype=hf, scale=18000),))
def ninth_at_overflow(x):
    return (x.float() * 2.0).to(hf), x.float().sum(0).to(hf)


def at_overflow(x, sat=False, mid=False):
    y = x.float() * 2
    s = x.float().sum(0)
    y = y.clamp(-65504, 65504) if sat else y
    return y.to(hf), (narrow(x.float()[0], bf) + x.float()[1] if mid else s).to(hf)


ok(ninth_at_overflow, at_overflow, hf, as_written={})
bad(
    ninth_at_overflow,
    at_overflow,
    {
        # saturates where infinity is due
        "hides: saturates where infinity is due": {"sat": True},
        # through bfloat16
        "hides: one term is rounded to bfloat16": {"mid": True},
        # sign of infinity
        "hides: infinities are positive": lambda x: (
            torch.where((x.float() * 2).abs() > 65520, math.inf, x.float() * 2),
            x.float().sum(0),
        ),
    },
    hf,
)


@ninth(lambda d: (d(8, 4096, shift=1000.0),))
def ninth_far_moments(x):
    m = x.mean(-1)
    return m, x.var(-1), ((x - m[:, None]) ** 3).mean(-1) / x.var(-1, unbiased=False) ** 1.5


def moments(x, parts=64, one=1, kind=None, lost=0, squares=False):
    y = x - 1000.0
    m = sum(p.sum(-1) for p in y.chunk(parts, -1)) / 4096
    h = y - m[:, None]
    q = sum((p * p).sum(-1) for p in h.chunk(parts, -1))
    q = (x * x).sum(-1) - 4096 * x.mean(-1).square() if squares else q
    s = sum((p**3).sum(-1) for p in h.chunk(parts, -1)[: parts - lost]) / 4096
    return (narrow(m + 1000.0, kind) if kind else m + 1000.0), q / (4096 - one), s / (q / 4096) ** 1.5


ok(ninth_far_moments, moments, shifted_by_a_thousand={}, in_eight_parts={"parts": 8})
bad(
    ninth_far_moments,
    moments,
    {
        # squares
        "hides: the variance from sums of squares": {"squares": True},
        # n
        "hides: the variance is over n": {"one": 0},
        # one of 64 parts is lost in the third moment
        "hides: the skewness lacks one part of 64": {"lost": 1},
        # mean in float16
        "hides: the mean is rounded to float16": {"kind": hf},
    },
)


@ninth(lambda d: (d(40, 512), d(40, 512), d.rand(40, 512) > 0.7))
def ninth_masked_mean(x, y, m):
    w = m.to(x.dtype)
    return (x * w).sum(-1) / w.sum(-1), ((x - y).square() * w).sum() / w.sum(), (x * w).amax(-1)


def masked_mean(x, y, m, rows=False, fill=0.0, n=None, kind=None):
    count = m.sum(-1)
    sq = torch.where(m, (x - y).square(), 0.0)
    total = sq.view(40, 8, 64).sum(-1)
    total = total if kind is None else narrow(total, kind)
    mse = (sq.sum(-1) / count).mean() if rows else total.sum() / m.sum()
    return torch.where(m, x, 0.0).sum(-1) / (n or count), mse, torch.where(m, x, fill).amax(-1)


ok(ninth_masked_mean, masked_mean, chosen_by_where={})
bad(
    ninth_masked_mean,
    masked_mean,
    {
        # mean of means
        "hides: the mean of the rows' means": {"rows": True},
        # over 512
        "the mean is over all": {"n": 512},
        # partial sums in bfloat16
        "hides: partial sums in bfloat16": {"kind": bf},
    },
)


@ninth(lambda d: (d(300, 3), d(200, 3)))
def ninth_nearest(a, b):
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist").amin(1)


def nearest(a, b, way="direct", tile=50, end=200, root=True, kind=None):
    best = torch.full((300,), math.inf)
    for t in range(0, end, tile):
        c = b[t : min(t + tile, end)]
        if way == "mm":
            d = (
                (a * a).sum(-1)[:, None]
                + (c * c).sum(-1)
                - 2 * (a @ c.T if kind is None else narrow(a, kind) @ narrow(c, kind).T)
            )
            d = d.clamp(min=0)
        else:
            d = (a[:, None] - c).square().sum(-1)
        best = torch.minimum(best, d.amin(-1))
    return best.sqrt() if root else best


ok(ninth_nearest, nearest, tiles_of_50={}, all_at_once={"tile": 200})
bad(
    ninth_nearest,
    nearest,
    {
        # |a|^2 + |b|^2 - 2ab in half precision
        "hides: by products in float16": {"way": "mm", "kind": hf},
        # squared
        "the root is left out": {"root": False},
        # the tail
        "hides: the last three points are not looked at": {"end": 197},
        # seven bits
        "hides: by products in bfloat16": {"way": "mm", "kind": bf},
    },
)
