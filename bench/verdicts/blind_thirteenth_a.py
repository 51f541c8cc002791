# SPDX-License-Identifier: Apache-2.0
"""Set R, the thirteenth: element-wise operators, special functions and complex numbers. What is planted is said in
plain words; "hides" marks mistakes near the noise, of few elements or of few inputs."""

import math

import torch
import torch.nn.functional as F

from .blind import FAMILIES, RIGHT, bf, hf, narrow

A = torch.ops.aten


def run_as(kernel, dtype, keywords):
    """A kernel at its keywords, its real outputs rounded to `dtype`."""

    def run(*args):
        got = kernel(*args, **keywords)
        one = lambda t: t.to(dtype if dtype and t.is_floating_point() else t.dtype).contiguous()
        return tuple(map(one, got)) if isinstance(got, tuple | list) else one(got)

    return run


def add(name, fn, args, kernel=None, right=(), wrong=(), dtype=None):
    """Registers a family of the set: an operator or a function, its right kernels and its wrong ones, each a function
    or the keywords of `kernel`."""
    name = f"thirteenth_{name}"
    if name in FAMILIES:
        raise ValueError(f"two families are called {name}")
    FAMILIES[name] = (fn, args, [], "R")
    for into, kernels in ((RIGHT.setdefault(name, []), right), (FAMILIES[name][2], wrong)):
        for words, how in dict(kernels).items():
            part, how = (how, {}) if callable(how) else (kernel, how)
            into.append((words, run_as(part, dtype, how)))


def wide(op):
    """The operator in double precision, rounded once."""

    def run(*args):
        up = [t.double() if torch.is_tensor(t) and t.is_floating_point() else t for t in args]
        got = op(*up)
        return tuple(t.float() for t in got) if isinstance(got, tuple | list) else got.float()

    return run


def halves(x, leaf=8):
    """Sums of the last dimension, pairs of halves."""
    n = x.shape[-1]
    if n <= leaf:
        total = x[..., 0]
        for i in range(1, n):
            total = total + x[..., i]
        return total
    return halves(x[..., : n // 2], leaf) + halves(x[..., n // 2 :], leaf)


def serial(x, kind=None):
    """Sums of the last dimension one after the other, rounded to `kind` after each."""
    total = torch.zeros(x.shape[:-1], dtype=x.dtype)
    for i in range(x.shape[-1]):
        total = total + x[..., i]
        total = narrow(total, kind) if kind else total
    return total


def split(a, b, step=16, keep=None, acc=None, skip=()):
    """a @ b by blocks of the inner dimension, added in turn."""
    total = 0
    for i, k in enumerate(range(0, a.shape[-1], step)):
        if i in skip or (keep is not None and i >= keep):
            continue
        total = total + a[..., k : k + step] @ b[..., k : k + step, :]
        total = narrow(total, acc) if acc else total
    return total


def old(x, seed=91):
    """What a buffer held before: numbers like x's."""
    g = torch.Generator().manual_seed(seed)
    return (torch.randn(x.shape, generator=g) * x.float().std()).to(x.dtype)


def but(place, value=None, of=None):
    """Changes few elements of the first output of a right kernel: `place` has `value`, or what `of` makes of it."""

    def wrap(kernel):
        def run(*args, **keywords):
            got = kernel(*args, **keywords)
            y = (got[0] if isinstance(got, tuple | list) else got).clone()
            y[place] = of(y[place]) if of else value
            return (y, *got[1:]) if isinstance(got, tuple | list) else y

        return run

    return wrap


# ------------------------------------------------------------------ operators


def erf_fit(x):
    t = 1 / (1 + 0.47047 * x.abs())
    return torch.sign(x) * (1 - (0.3480242 * t - 0.0958798 * t**2 + 0.7478556 * t**3) * torch.exp(-x * x))


add(
    "gelu",
    A.gelu.default,
    lambda d: (d(40, 130, scale=2),),
    right={
        "by erfc": lambda x: 0.5 * x * torch.erfc(-x * math.sqrt(0.5)),
        "by the normal distribution": lambda x: x * torch.special.ndtr(x),
    },
    wrong={
        "by tanh": lambda x: F.gelu(x, approximate="tanh"),
        "by a sigmoid of 1.702 x": lambda x: x * torch.sigmoid(1.702 * x),
        "hides: beyond 3 it is x or nothing": lambda x: torch.where(x.abs() > 3, x.clamp(min=0), F.gelu(x)),
        "hides: erf is a fit of three terms": lambda x: 0.5 * x * (1 + erf_fit(x * math.sqrt(0.5))),
    },
)


def kahan_log1p(x):
    u = 1 + x
    return torch.where(u == 1, x, torch.log(u) * x / torch.where(u == 1, 1.0, u - 1))


add(
    "log1p",
    A.log1p.default,
    lambda d: (d(60, 50).abs() * 10.0 ** -d.ints(9, 60, 50),),
    right={"by atanh": lambda x: 2 * torch.atanh((x / (2 + x)).double()).float(), "as kahan": kahan_log1p},
    wrong={
        "the log of 1 + x": lambda x: torch.log(1 + x),
        "hides: two terms under 0.01": lambda x: torch.where(x < 0.01, x - x * x / 2, torch.log1p(x)),
        "hides: x itself under 0.001": lambda x: torch.where(x < 1e-3, x, torch.log1p(x)),
    },
)


def softplus(x, beta, threshold, use=1, back=1, at=None):
    z = x * beta * use
    y = (z.clamp(min=0) + torch.log1p(torch.exp(-z.abs()))) / (beta if back else 1)
    return torch.where(z > (threshold if at is None else at), x, y)


add(
    "softplus",
    A.softplus.default,
    lambda d: (d(50, 60, scale=3), 2.0, 5.0),
    softplus,
    right={"by the magnitude": {}, "in double": wide(F.softplus)},
    wrong={
        "beta is not divided out": {"back": 0},
        "beta is left out within": {"use": 0.5, "back": 0},
        "hides: the threshold is 20": {"at": 20.0},
        "hides: the threshold is 4": {"at": 4.0},
    },
)


def erfinv(x, steps=2):
    """Winitzki's, and steps of Newton's."""
    x = x.double()
    a, ln = 0.147, torch.log1p(-x * x)
    t = 2 / (math.pi * a) + ln / 2
    y = torch.sign(x) * torch.sqrt(torch.sqrt(t * t - ln / a) - t)
    for _ in range(steps):
        y = y - (torch.erf(y) - x) * (math.sqrt(math.pi) / 2) * torch.exp(y * y)
    return y.float()


add(
    "erfinv",
    A.erfinv.default,
    lambda d: (torch.cat([d.rand(30, 40) * 2 - 1, 1 - 10.0 ** -(1 + 5 * d.rand(2, 40))]),),
    erfinv,
    right={"four steps of newton": {"steps": 4}, "in double": wide(torch.erfinv)},
    wrong={
        "no step of newton": {"steps": 0},
        "hides: one step of newton": {"steps": 1},
        "hides: tails are those of 0.999": lambda x: torch.erfinv(x.clamp(-0.999, 0.999)),
    },
)

add(
    "pow",
    A.pow.Tensor_Tensor,
    lambda d: (d(40, 50, scale=2), (d.ints(21, 40, 50) - 6).float()),
    right={"in double": wide(torch.pow)},
    wrong={
        "the sign is lost": lambda x, y: torch.pow(x.abs(), y),
        "negative bases give nan": lambda x, y: torch.exp2(y * torch.log2(x)),
        "hides: by exp2 of log2": lambda x, y: (
            torch.exp2(y * torch.log2(x.abs())) * torch.where((x < 0) & (y % 2 == 1), -1.0, 1.0)
        ),
        "hides: the power -6 is -5": lambda x, y: torch.pow(x, y.clamp(min=-5)),
    },
)

add(
    "remainder",
    A.remainder.Tensor,
    lambda d: (d(40, 60, scale=500), d(40, 60).abs() + 0.1),
    right={
        "in double": wide(torch.remainder),
        "by fmod": lambda x, y: torch.where(torch.fmod(x, y) < 0, torch.fmod(x, y) + y, torch.fmod(x, y)),
    },
    wrong={
        "the sign is the dividend's": torch.fmod,
        "by the nearest multiple": lambda x, y: x - torch.round(x / y) * y,
        "hides: less the floored quotient, in single": lambda x, y: x - torch.floor(x * (1 / y)) * y,
    },
)

add(
    "round",
    A.round.default,
    lambda d: (torch.cat([(d.ints(40, 500) - 20) / 2, d(500, scale=9), torch.tensor([0.49999997, -0.49999997])]),),
    right={
        "by a large number": lambda x: torch.copysign((x.abs() + 2.0**23) - 2.0**23, x),
        "in double": wide(torch.round),
    },
    wrong={
        "halves go up": lambda x: torch.floor(x + 0.5),
        "halves go away from zero": lambda x: torch.sign(x) * torch.floor(x.abs().double() + 0.5).float(),
        "hides: halves go to odd numbers": lambda x: torch.where(
            (x - x.floor()) == 0.5, 2 * torch.floor((x + 0.5) / 2 - 0.25) + 1, torch.round(x)
        ),
    },
)

add(
    "atan2",
    A.atan2.default,
    lambda d: (d(50, 50), torch.where(d.rand(50, 50) < 0.05, 0.0, d(50, 50))),
    right={"in double": wide(torch.atan2), "by a complex angle": lambda y, x: torch.angle(torch.complex(x, y))},
    wrong={
        "the quadrant is lost": lambda y, x: torch.atan(y / x),
        "the left half is never negative": lambda y, x: torch.atan(y / x) + torch.where(x < 0, math.pi, 0.0),
        "hides: nothing where x is zero": lambda y, x: torch.where(x == 0, 0.0, torch.atan2(y, x)),
        "hides: atan is a fit": lambda y, x: (
            torch.atan2(y, x) + 2e-6 * torch.sin(4 * torch.atan2(y.double(), x.double())).float()
        ),
    },
)


def hypot(x, y):
    big, small = torch.maximum(x.abs(), y.abs()), torch.minimum(x.abs(), y.abs())
    r = torch.where(big == 0, 0.0, small / torch.where(big == 0, 1.0, big))
    return big * torch.sqrt(1 + r * r)


add(
    "hypot",
    A.hypot.default,
    lambda d: (d(40, 40) * 10.0 ** (d.ints(60, 40, 40) - 30), d(40, 40) * 10.0 ** (d.ints(60, 40, 40) - 30)),
    right={"by the greater one": hypot, "in double": wide(torch.hypot)},
    wrong={
        "squares overflow and vanish": lambda x, y: torch.sqrt(x * x + y * y),
        "hides: small squares vanish": lambda x, y: torch.where(
            torch.maximum(x.abs(), y.abs()) > 1e-15, hypot(x, y), torch.sqrt(x * x + y * y)
        ),
        "the greater and 0.4 of the lesser": lambda x, y: (
            0.96 * torch.maximum(x.abs(), y.abs()) + 0.398 * torch.minimum(x.abs(), y.abs())
        ),
    },
)

add(
    "logit",
    A.logit.default,
    lambda d: (torch.cat([d.rand(25, 60) ** 3, 1 - d.rand(25, 60) ** 3]), 1e-3),
    right={
        "difference of logs": lambda x, e: torch.log(x.clamp(e, 1 - e)) - torch.log1p(-x.clamp(e, 1 - e)),
        "in double": wide(torch.logit),
    },
    wrong={
        "epsilon is not used": lambda x, e: torch.log(x / (1 - x)),
        "hides: epsilon only from below": lambda x, e: torch.log(x.clamp(min=e) / (1 - x.clamp(min=e))),
        "hides: epsilon is added": lambda x, e: torch.log((x + e) / (1 - x + e)),
        "logarithm of base two": lambda x, e: torch.log2(x.clamp(e, 1 - e) / (1 - x.clamp(e, 1 - e))),
    },
)


def special(x, nan=0.5, pos=65504.0, neg=-7.0, most=65504.0):
    f = x.float().clamp(-most, most)
    f = torch.where(x == math.inf, pos, torch.where(x == -math.inf, neg, f))
    return torch.where(x.isnan(), nan, f)


add(
    "nan_to_num",
    A.nan_to_num.default,
    lambda d: (
        torch.cat([d(300, dtype=hf, scale=9000), torch.tensor([math.nan, math.inf, -math.inf]).half()]),
        0.5,
        None,
        -7.0,
    ),
    lambda x, *_, **k: special(x, **k),
    right={"in single": {}},
    wrong={
        "nan becomes nothing": {"nan": 0.0},
        "infinity becomes float32's greatest": {"pos": 3.4e38},
        "minus infinity becomes the least": {"neg": -65504.0},
        "hides: great values are clipped at 20000": {"most": 20000.0},
    },
    dtype=hf,
)

add(
    "silu_backward",
    A.silu_backward.default,
    lambda d: (d(40, 100, dtype=hf), d(40, 100, dtype=hf, scale=3)),
    lambda g, x, of=lambda f, s: s * (1 + f * (1 - s)): g.float() * of(x.float(), torch.sigmoid(x.float())),
    right={"in single": {}, "by the output": {"of": lambda f, s: s + f * s * (1 - s)}},
    wrong={
        "the slope is the sigmoid": {"of": lambda f, s: s},
        "the slope lacks its one": {"of": lambda f, s: s * f * (1 - s)},
        "hides: the sigmoid is rounded to bfloat16": {"of": lambda f, s: narrow(s) * (1 + f * (1 - narrow(s)))},
        "hides: beyond 6 the slope is one or nothing": {
            "of": lambda f, s: torch.where(f.abs() > 6, (f > 0).float(), s * (1 + f * (1 - s)))
        },
    },
    dtype=hf,
)


def smith(a, b):
    p, q, r, s = a.real, a.imag, b.real, b.imag
    flip = r.abs() < s.abs()
    big, small = torch.where(flip, s, r), torch.where(flip, r, s)
    t = small / big
    den = big + small * t
    re = torch.where(flip, p * t + q, p + q * t) / den
    im = torch.where(flip, q * t - p, q - p * t) / den
    return torch.complex(re, im)


def naive(a, b, sign=1.0):
    den = b.real**2 + b.imag**2
    re, im = a.real * b.real + sign * a.imag * b.imag, a.imag * b.real - sign * a.real * b.imag
    return torch.complex(re / den, im / den)


add(
    "complex_div",
    A.div.Tensor,
    lambda d: (torch.complex(d(30, 40), d(30, 40)) * 1e22, torch.complex(d(30, 40), d(30, 40)) * 1e21),
    right={"as smith": smith, "in double": lambda a, b: (a.to(torch.complex128) / b).to(torch.complex64)},
    wrong={
        "the square of the divisor overflows": naive,
        "multiplied by the divisor, not its conjugate": lambda a, b: naive(a / 1e21, b / 1e21, -1.0),
        "hides: the divisor's magnitude is in half": lambda a, b: (
            naive(a / 1e21, b / 1e21) * (((b / 1e21).abs() ** 2) / ((b / 1e21).abs() ** 2).half().float())
        ),
    },
)


def complex_root(z, sign=True, direct=False):
    a, b = z.real, z.imag
    m = torch.hypot(a, b)
    if direct:
        re, im = torch.sqrt((m + a) / 2), torch.sqrt((m - a) / 2)
    else:
        t = torch.sqrt((m + a.abs()) / 2)
        o = b.abs() / (2 * t)
        re, im = torch.where(a >= 0, t, o), torch.where(a >= 0, o, t)
    return torch.complex(re, torch.copysign(im, b) if sign else im)


add(
    "complex_sqrt",
    A.sqrt.default,
    lambda d: (torch.complex(d(40, 40), d(40, 40) * 10.0 ** -d.ints(6, 40, 40)),),
    complex_root,
    right={"the greater part first": {}, "in double": lambda z: z.to(torch.complex128).sqrt().to(torch.complex64)},
    wrong={
        "the imaginary part is never negative": {"sign": False},
        "hides: both parts by difference": {"direct": True},
        "the other root where the real part is negative": lambda z: torch.where(z.real < 0, -z.sqrt(), z.sqrt()),
    },
)

# ------------------------------------------------------------------ functions of several operators


def oai_swiglu(x):
    gate, up = x[..., ::2].clamp(max=7.0), x[..., 1::2].clamp(-7.0, 7.0)
    return gate * torch.sigmoid(1.702 * gate) * (up + 1)


def oai_kernel(x, low=None, alpha=1.702, one=1, pairs=True, top=7.0):
    n = x.shape[-1] // 2
    gate, up = (x[..., ::2], x[..., 1::2]) if pairs else (x[..., :n], x[..., n:])
    gate, up = gate.clamp(low, top), up.clamp(-top, top)
    return gate / (1 + torch.exp(-alpha * gate)) * (up + one)


add(
    "oai_swiglu",
    oai_swiglu,
    lambda d: (d(30, 160, scale=4),),
    oai_kernel,
    right={"by exp": {}, "in double": wide(oai_swiglu)},
    wrong={
        "gate and up are halves": {"pairs": False},
        "up lacks its one": {"one": 0},
        "hides: the gate is clamped from below, too": {"low": -7.0, "one": 1},
        "hides: alpha is 1.7": {"alpha": 1.7},
        "hides: clamped at 8": {"top": 8.0},
    },
)


def mish(x):
    f = x.float()
    return (f * torch.tanh(F.softplus(f))).to(x.dtype)


def mish_kernel(x, most=None):
    f = x.float()
    e = torch.exp(f.clamp(max=20.0))
    n = e * (e + 2)
    y = f * n / (n + 2)
    return torch.where(f > most, f, y) if most is not None else y


add(
    "mish",
    mish,
    lambda d: (d(40, 90, dtype=bf, scale=4),),
    mish_kernel,
    right={"by one exponential": {}, "softplus by log1p": lambda x: x.float() * torch.log1p(x.float().exp()).tanh()},
    wrong={
        "it is swish": lambda x: x.float() * torch.sigmoid(x.float()),
        "hides: beyond 2 it is x": {"most": 2.0},
        "hides: beyond 1.5 softplus is x": lambda x: (
            x.float() * torch.tanh(torch.where(x > 1.5, x.float(), F.softplus(x.float())))
        ),
    },
    dtype=bf,
)


def snake(x, alpha):
    a = alpha[None, :, None]
    return x + torch.sin(a * x) ** 2 / (a + 1e-9)


add(
    "snake",
    snake,
    lambda d: (d(2, 24, 24, scale=3), d.rand(24) * 3 + 0.2),
    right={
        "by the cosine of twice": lambda x, a: (
            x + (1 - torch.cos(2 * a[None, :, None] * x)) / (2 * (a[None, :, None] + 1e-9))
        ),
        "in double": wide(snake),
    },
    wrong={
        "alpha goes along time": lambda x, a: x + torch.sin(a * x) ** 2 / (a + 1e-9),
        "the sine is not squared": lambda x, a: x + torch.sin(a[:, None] * x) / a[:, None],
        "alpha is not divided out": lambda x, a: x + torch.sin(a[:, None] * x) ** 2,
        "hides: the last channel's alpha is the one before": lambda x, a: snake(x, torch.cat([a[:-1], a[-2:-1]])),
        "hides: the phase is reduced by 3.1416": lambda x, a: (
            x + torch.sin(torch.remainder(a[:, None] * x, 3.1416)) ** 2 / a[:, None]
        ),
    },
)


def soft_cap(x, w):
    y = x @ w
    return 30.0 * torch.tanh(y / 30.0)


add(
    "soft_cap",
    soft_cap,
    lambda d: (d(24, 64, scale=3), d(64, 50, scale=2)),
    lambda x, w, cap=30.0, back=30.0, bend=torch.tanh, step=16: back * bend(split(x, w, step) / cap),
    right={"four blocks": {}, "tanh by exp": {"bend": lambda t: 1 - 2 / (torch.exp(2 * t) + 1)}},
    wrong={
        "clipped, not bent": {"bend": lambda t: t.clamp(-1, 1)},
        "the cap is 50": {"cap": 50.0, "back": 50.0},
        "not multiplied back": {"back": 1.0},
        "hides: tanh is a rational fit": {"bend": lambda t: (t * (27 + t * t) / (27 + 9 * t * t)).clamp(-1, 1)},
        "hides: capped after rounding to bfloat16": {"bend": lambda t: torch.tanh(narrow(t))},
    },
)
