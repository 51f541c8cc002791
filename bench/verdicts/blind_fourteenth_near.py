# SPDX-License-Identifier: Apache-2.0
"""Set S, the fourteenth: float32 kernels whose mistakes lose a few bits: short polynomials, constants of seven digits,
differences of near numbers, seeds of roots without their step. Nearly all of the wrong ones hide."""

import math

import torch
import torch.nn.functional as F

from .blind_fourteenth_base import add, halves, lanes, trimmed, wide


def erf_short(x):
    """Abramowitz and Stegun 7.1.25, good to 2.5e-5."""
    t = 1 / (1 + 0.47047 * x.abs())
    p = (0.7478556 * t - 0.0958798) * t + 0.3480242
    return torch.sign(x) * (1 - p * t * torch.exp(-x * x))


add(
    "near_gelu",
    lambda x: F.gelu(x),
    lambda d: (d(4000, scale=1.5),),
    right={
        "half an erf": lambda x: 0.5 * x * (1 + torch.erf(x * 0.5**0.5)),
        "in double": wide(F.gelu),
    },
    wrong={
        "a polynomial of three terms for erf": lambda x: 0.5 * x * (1 + erf_short(x * 0.5**0.5)),
    },
)

add(
    "near_silu_gate",
    lambda x, u: F.silu(x) * u,
    lambda d: (d(3000, scale=2), d(3000)),
    right={"a quotient": lambda x, u: x * u / (1 + torch.exp(-x))},
    wrong={
        "hides: the reciprocal keeps 21 bits": lambda x, u: x * u * trimmed(1 / (1 + torch.exp(-x)), 21),
        "hides: log2(e) is 1.442696": lambda x, u: x * u / (1 + torch.exp2(-x * 1.442696)),
    },
)


def rms(x, w):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w


def rms_newton(bits):
    def run(x, w):
        v = lanes(x * x)[:, None] / x.shape[-1] + 1e-6
        r = trimmed(torch.rsqrt(v), bits)
        return x * (r * (1.5 - 0.5 * v * r * r)) * w

    return run


def rms_seed(x, w):
    v = lanes(x * x)[:, None] / x.shape[-1] + 1e-6
    return x * trimmed(torch.rsqrt(v), 20) * w


add(
    "near_rms_norm",
    rms,
    lambda d: (d(40, 160, scale=2), d(160, scale=0.1, shift=1)),
    right={"a step of Newton's from 14 bits": rms_newton(14), "in double": wide(rms)},
    wrong={
        "hides: a step of Newton's from 10 bits": rms_newton(10),
        "hides: the reciprocal root keeps 20 bits": rms_seed,
    },
)

TAYLOR = [math.log(2) ** i / math.factorial(i) for i in range(9)]


def softmax_by(order, log2e=1 / math.log(2)):
    def run(x):
        z = (x - x.amax(-1, keepdim=True)) * log2e
        k = torch.round(z)
        f, p = z - k, torch.full_like(z, TAYLOR[order])
        for c in TAYLOR[order - 1 :: -1]:
            p = p * f + c
        e = torch.ldexp(p, k.int())
        return e / halves(e)[:, None]

    return run


add(
    "near_softmax",
    lambda x: x.softmax(-1),
    lambda d: (d(30, 200, scale=2),),
    right={"a polynomial of degree 7": softmax_by(7)},
    wrong={
        "hides: a polynomial of degree 5": softmax_by(5),
        "hides: log2(e) has seven digits": softmax_by(7, 1.442695 + 4e-7),
    },
)


def softcap_by(x):
    e = torch.exp(2 * (x / 30))
    return 30 * ((e - 1) / (e + 1))


add(
    "near_softcap",
    lambda x: 30 * torch.tanh(x / 30),
    lambda d: (d(3000, scale=3),),
    right={"by expm1": lambda x: 30 * (lambda e: e / (e + 2))(torch.expm1(2 * (x / 30)))},
    wrong={"hides: by exponentials less one": softcap_by},
)


def group_of(way):
    def run(x):
        y = x.unflatten(1, (4, -1)).flatten(2)
        n = y.shape[-1]
        mean = lanes(y)[..., None] / n
        var = lanes(y * y)[..., None] / n - mean * mean if way == "one" else lanes((y - mean) ** 2)[..., None] / n
        r = torch.rsqrt(var + 1e-5)
        return ((y - mean) * (trimmed(r, 20) if way == "seed" else r)).reshape(x.shape)

    return run


add(
    "near_group_norm",
    lambda x: F.group_norm(x, 4, eps=1e-5),
    lambda d: (d(3, 16, 40, shift=2.5),),
    right={"two passes": group_of("two")},
    wrong={
        "hides: the square of the mean is taken off": group_of("one"),
        "hides: the reciprocal root keeps 20 bits": group_of("seed"),
    },
)


def adam(p, g, m, v, step):
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    return p - 1e-2 * (m / (1 - 0.9**step)) / ((v / (1 - 0.999**step)).sqrt() + 1e-8), m, v


def adam_by(single=False, complement=False, bits=None):
    one = lambda x: torch.tensor(x, dtype=torch.float32)

    def run(p, g, m, v, step):
        k1, k2 = (1 - one(0.9), 1 - one(0.999)) if complement else (0.1, 0.001)
        m, v = 0.9 * m + k1 * g, 0.999 * v + k2 * g * g
        c1, c2 = 1 - 0.9**step, 1 - 0.999**step
        c1, c2 = (1 - one(0.9) ** step, 1 - one(0.999) ** step) if single else (c1, c2)
        u = (m / c1) / ((v / c2).sqrt() + 1e-8)
        return p - 1e-2 * (trimmed(u, bits) if bits else u), m, v

    return run


add(
    "near_adam",
    adam,
    lambda d: (d(1500, scale=0.05), d(1500, scale=1e-3), d(1500, scale=1e-3), d.rand(1500) * 1e-6 + 1e-8, 3),
    right={"as it stands": adam_by(), "in double": wide(adam)},
    wrong={
        "powers of the betas are formed in float32": adam_by(single=True),
        "hides: one less beta is formed in float32": adam_by(complement=True),
        "hides: the step keeps 19 bits": adam_by(bits=19),
    },
)


def pairs(x, pos):
    inv = 10000.0 ** (-torch.arange(0, 32, 2, dtype=x.dtype) / 32)
    f = pos[:, None] * inv
    a, b = x.chunk(2, -1)
    return torch.cat([a * f.cos() - b * f.sin(), b * f.cos() + a * f.sin()], -1)


def pairs_by(turns=False, bits=None):
    def run(x, pos):
        inv = (10000.0 ** (-torch.arange(0, 32, 2).double() / 32)).float()
        f = pos[:, None] * inv
        f = f - torch.round(f / 6.2831853) * 6.2831853 if turns else f
        cos, sin = f.cos(), f.sin()
        cos, sin = (trimmed(cos, bits), trimmed(sin, bits)) if bits else (cos, sin)
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    return run


add(
    "near_rotary",
    pairs,
    lambda d: (d(24, 32), torch.arange(24.0)),
    right={"frequencies in double": pairs_by()},
    wrong={
        "hides: angles are reduced by two pi of eight digits": pairs_by(True),
        "hides: cosines and sines keep 20 bits": pairs_by(bits=20),
    },
)


def steps(x, dt):
    dt = F.softplus(dt)
    return torch.exp(-dt) * x, dt


add(
    "near_softplus",
    steps,
    lambda d: (d(2000), d(2000, shift=-1.5, scale=0.5)),
    right={
        "by log1p": lambda x, dt: (lambda s: (torch.exp(-s) * x, s))(
            torch.log1p(torch.exp(-dt.abs())) + torch.relu(dt)
        ),
    },
    wrong={
        "hides: one is added before the logarithm": lambda x, dt: (lambda s: (torch.exp(-s) * x, s))(
            torch.log(1 + torch.exp(dt))
        ),
    },
)

add(
    "near_unit",
    lambda a, b: (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1)),
    lambda d: (lambda x: (x, x + d(80, 64, scale=0.5)))(d(80, 64)),
    right={"one root": lambda a, b: lanes(a * b) / torch.sqrt(lanes(a * a) * lanes(b * b))},
    wrong={
        "hides: the sums keep 20 bits": lambda a, b: (
            trimmed(lanes(a * b), 20) / torch.sqrt(trimmed(lanes(a * a), 20) * lanes(b * b))
        ),
        "hides: two reciprocal roots of 21 bits": lambda a, b: (
            lanes(a * b) * trimmed(torch.rsqrt(lanes(a * a)), 21) * trimmed(torch.rsqrt(lanes(b * b)), 21)
        ),
    },
)

add(
    "near_log_softmax",
    lambda x: x.log_softmax(-1),
    lambda d: (d(40, 100, scale=3),),
    right={
        "by tiles of sums": lambda x: (lambda z: z - torch.log(lanes(torch.exp(z)))[:, None])(
            x - x.amax(-1, keepdim=True)
        )
    },
    wrong={
        "hides: log two has six digits": lambda x: (lambda z: z - torch.log2(lanes(torch.exp(z)))[:, None] * 0.693148)(
            x - x.amax(-1, keepdim=True)
        ),
        "hides: the maximum keeps 21 bits where it is added again": lambda x: (
            lambda m: x - (trimmed(m, 21) + torch.log(lanes(torch.exp(x - m)))[:, None])
        )(x.amax(-1, keepdim=True)),
    },
)
