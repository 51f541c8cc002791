# SPDX-License-Identifier: Apache-2.0
"""Set H, written blind, aimed at verdicts that may let something go free; blind_sixth_n to _u hold the
rest and use the helpers here.

This part: results in 16 bits, most of them between 1 and 2 (just above 1, at 1.5, below 2), that a lost
term, n for n - 1 or a doubled epsilon moves by one unit in the last place, seldom by more."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, family, hf, honest, mistake


def aimed(args):
    return family(args, sets="H")


def recast(x, dtype):
    """Every tensor of floating point in x (a tensor, tuple or list) in another format."""
    if isinstance(x, (tuple, list)):
        return type(x)(recast(y, dtype) for y in x)
    if torch.is_tensor(x) and x.is_floating_point() and x.element_size() > 1:
        return x.to(dtype)
    return x


def inside(fn, low=torch.float32, **keywords):
    """The function with its arguments in float32 and its results rounded once, to the first one's format."""

    def kernel(*args):
        store = next(a.dtype for a in args if torch.is_tensor(a) and a.is_floating_point())
        return recast(fn(*recast(args, low), **keywords), store)

    return kernel


def double(fn, **keywords):
    return inside(fn, torch.float64, **keywords)


def near(d, *shape):
    """Numbers just above 1, about 1.5 and just below 2."""
    return torch.tensor((1.02, 1.5, 1.95))[d.ints(3, *shape)] + (d.rand(*shape) - 0.5) * 0.04


def summed(x, dim=-1):
    """One addition after another."""
    total = torch.zeros_like(x.select(dim, 0))
    for part in x.unbind(dim):
        total = total + part
    return total


def halves(x):
    """The sum over the last axis by halving it."""
    while x.shape[-1] > 1:
        x = F.pad(x, (0, x.shape[-1] % 2)).unflatten(-1, (2, -1)).sum(-2)
    return x[..., 0]


# ------------------------------------------------------------------ similarity and distance


def leaning(d, rows, n, dtype):
    a = d(rows, n)
    return a.to(dtype), (a + 0.12 * d(rows, n)).to(dtype)


@aimed(lambda d: leaning(d, 400, 96, hf))
def aimed_unit_cosine(a, b, eps=1e-8):
    return F.cosine_similarity(a, b, -1, eps)


def cosine(a, b, skip=0, eps=0.0):
    dot, aa, bb = (halves(x) for x in ((a * b)[:, skip:], a * a, b * b))
    return dot / ((aa + eps) * (bb + eps)).sqrt()


honest(aimed_unit_cosine, "three sums by halving, one root", inside(cosine))
honest(
    aimed_unit_cosine,
    "both vectors divided by their lengths first",
    inside(lambda a, b: ((a / a.norm(dim=-1, keepdim=True)) * (b / b.norm(dim=-1, keepdim=True))).sum(-1)),
)
mistake(aimed_unit_cosine, "0.03 is added to both squared lengths", inside(cosine, eps=0.03))
mistake(
    aimed_unit_cosine,
    "a factor of 1 - 2^-11 from a reciprocal root in half precision",
    inside(lambda a, b: cosine(a, b) * (1 - 2.0**-11)),
)


@aimed(
    lambda d: (lambda a, v: (a.to(bf), (a + v / v.norm(dim=-1, keepdim=True) * near(d, 300, 1)).to(bf)))(
        d(300, 160), d(300, 160)
    )
)
def aimed_unit_distance(a, b, eps=0.002):
    return F.pairwise_distance(a, b, 2.0, eps)


honest(aimed_unit_distance, "one square after another", inside(lambda a, b: summed((a - b + 0.002).square()).sqrt()))
honest(aimed_unit_distance, "in double precision", double(aimed_unit_distance))
mistake(
    aimed_unit_distance,
    "the last coordinate is not looked at",
    inside(lambda a, b: (a - b + 0.002)[:, :-1].norm(dim=-1)),
)
mistake(
    aimed_unit_distance,
    "the epsilon goes under the root once more",
    inside(lambda a, b: ((a - b + 0.002).square().sum(-1) + 0.002).sqrt()),
)


# ------------------------------------------------------------------ activations and logarithms


@aimed(lambda d: (d.rand(3000).mul(1.3).add(0.5).to(hf), d.rand(3000).mul(2).sub(2.5).to(hf)))
def aimed_unit_logaddexp(a, b):
    return torch.logaddexp(a, b)


honest(
    aimed_unit_logaddexp,
    "larger plus log1p of the gap's power",
    inside(lambda a, b: torch.maximum(a, b) + (-(a - b).abs()).exp().log1p()),
)
honest(aimed_unit_logaddexp, "through softplus", inside(lambda a, b: a + F.softplus(b - a)))
mistake(
    aimed_unit_logaddexp,
    "log1p is cut after the fifth term",
    inside(lambda a, b: a + (lambda e: e - e**2 / 2 + e**3 / 3 - e**4 / 4 + e**5 / 5)((b - a).exp())),
)
mistake(
    aimed_unit_logaddexp,
    "the two in natural, the log in base 2 times 0.6926",
    inside(lambda a, b: a + (b - a).exp().add(1).log2() * 0.6926),
)


@aimed(lambda d: (torch.cat((d.rand(2500) * 0.9 + 1.2, d.rand(500) * 0.02 + 1.99)).to(hf),))
def aimed_unit_gelu(x):
    return F.gelu(x)


honest(aimed_unit_gelu, "through erfc", inside(lambda x: x * 0.5 * torch.erfc(-x * math.sqrt(0.5))))
honest(aimed_unit_gelu, "through the normal distribution function", inside(lambda x: x * torch.special.ndtr(x)))
mistake(aimed_unit_gelu, "the tanh form where erf was asked", inside(lambda x: F.gelu(x, approximate="tanh")))
mistake(aimed_unit_gelu, "1/sqrt(2) is kept as 0.7075", inside(lambda x: x * 0.5 * (1 + torch.erf(x * 0.7075))))


@aimed(lambda d: (d.rand(2400).mul(1.2).add(0.6).to(hf),))
def aimed_unit_softplus(x):
    return F.softplus(x)


honest(aimed_unit_softplus, "x plus log1p", inside(lambda x: x + (-x).exp().log1p()))
honest(aimed_unit_softplus, "minus logsigmoid", inside(lambda x: -F.logsigmoid(-x)))
mistake(
    aimed_unit_softplus,
    "log1p is a polynomial of seven terms",
    inside(lambda x: x + sum((-1) ** (i + 1) * (-i * x).exp() / i for i in range(1, 8))),
)
mistake(aimed_unit_softplus, "beta is 1.001", inside(lambda x: F.softplus(x * 1.001) / 1.001))


# ------------------------------------------------------------------ sums and means


@aimed(
    lambda d: (
        (d.rand(4, 8, 60, 68) * 0.5 + 0.75)
        .mul(torch.repeat_interleave(torch.repeat_interleave(near(d, 4, 8, 4, 4), 15, 2), 17, 3))
        .to(bf),
    )
)
def aimed_unit_window_mean(x):
    return F.avg_pool2d(x, (15, 17))


def windows(x):
    return x.unflatten(-1, (4, 17)).unflatten(2, (4, 15)).transpose(3, 4).flatten(4)


honest(aimed_unit_window_mean, "sums by halving", inside(lambda x: halves(windows(x)) / 255))
honest(aimed_unit_window_mean, "one addition after another", inside(lambda x: summed(windows(x)) * (1 / 255)))
mistake(aimed_unit_window_mean, "divided by 256, a shift", inside(lambda x: windows(x).sum(-1) / 256))
mistake(
    aimed_unit_window_mean,
    "the corner of each window is left out of the sum",
    inside(lambda x: windows(x)[..., :-1].sum(-1) / 255),
)


@aimed(
    lambda d: (lambda x: (x - x.logsumexp(-1, keepdim=True) + near(d, 250, 1)).to(bf))(d(250, 330, scale=0.4)).split(
        250
    )
)
def aimed_unit_logsumexp(x):
    return x.logsumexp(-1)


honest(
    aimed_unit_logsumexp,
    "largest taken off, sum by halving",
    inside(lambda x: (lambda m: halves((x - m[:, None]).exp()).log() + m)(x.amax(-1))),
)
honest(
    aimed_unit_logsumexp,
    "powers of two",
    inside(lambda x: summed((x * 1.4426950408889634).exp2()).log2() * 0.6931471805599453),
)
mistake(aimed_unit_logsumexp, "the last column is left out", inside(lambda x: x[:, :-1].logsumexp(-1)))
mistake(
    aimed_unit_logsumexp,
    "the sum of the powers is 0.3 percent too high",
    inside(lambda x: (x.exp().sum(-1) * 1.003).log()),
)


@aimed(lambda d: (d(6, 10, 15, 15, scale=0.7, dtype=bf),))
def aimed_unit_instance_norm(x):
    return F.instance_norm(x)


def instance(x, over=225, eps=1e-5):
    y = x.flatten(2)
    y = y - (summed(y) / 225)[..., None]
    return (y / (halves(y * y)[..., None] / over + eps).sqrt()).view_as(x)


honest(aimed_unit_instance_norm, "two passes", inside(instance))
honest(aimed_unit_instance_norm, "in double precision", double(aimed_unit_instance_norm))
mistake(aimed_unit_instance_norm, "the spread is divided by n - 1", inside(instance, over=224))
mistake(aimed_unit_instance_norm, "an epsilon of 2e-3", inside(instance, eps=2e-3))


# ------------------------------------------------------------------ steps


@aimed(lambda d: (near(d, 3000).to(bf), d(3000, dtype=bf)))
def aimed_unit_lerp(a, b):
    return torch.lerp(a, b, 0.004)


honest(aimed_unit_lerp, "weights of both", inside(lambda a, b: a * 0.996 + b * 0.004))
honest(aimed_unit_lerp, "in double precision", double(aimed_unit_lerp))
mistake(aimed_unit_lerp, "the first is not reduced: a + w b", inside(lambda a, b: a + 0.004 * b))
mistake(aimed_unit_lerp, "the weight is 1/256", inside(lambda a, b: a + (b - a) / 256))


@aimed(lambda d: (near(d, 4000).to(bf), d(4000, scale=0.3, dtype=bf), d.rand(4000).mul(0.2).add(0.01).to(bf)))
def aimed_unit_adam(p, m, v):
    return p - 0.01 * m / (v.sqrt() + 0.05)


honest(aimed_unit_adam, "addcdiv", inside(lambda p, m, v: torch.addcdiv(p, m, v.sqrt() + 0.05, value=-0.01)))
honest(aimed_unit_adam, "in double precision", double(aimed_unit_adam))
mistake(aimed_unit_adam, "the epsilon stands under the root", inside(lambda p, m, v: p - 0.01 * m / (v + 0.05).sqrt()))
mistake(aimed_unit_adam, "the epsilon is added twice", inside(lambda p, m, v: p - 0.01 * m / (v.sqrt() + 0.1)))
