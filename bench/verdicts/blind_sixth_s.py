# SPDX-License-Identifier: Apache-2.0
"""Set H, written blind: numbers near the ends of the range, where a square, a product or a power inside
leaves it though the result does not.

Right kernels scale first, or stay in range as they are; the mistakes give infinity, 0 or not a number."""

import functools
import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, honest, mistake
from .blind_sixth_m import aimed, double, halves, inside, summed


def scaled(fn):
    """The function of the rows over their largest entry, times that entry."""

    def kernel(x):
        m = x.abs().amax(-1, keepdim=True)
        return fn(x / m) * m[..., 0]

    return kernel


# ------------------------------------------------------------------ spread and length


def two_pass(x):
    y = x - x.mean(-1, keepdim=True)
    return ((y * y).sum(-1) / (x.shape[-1] - 1)).sqrt()


@aimed(lambda d: (d(12, 40, scale=1e-30),))
def aimed_edge_small_std(x):
    return x.std(-1)


honest(aimed_edge_small_std, "scaled by the largest", scaled(two_pass))
honest(aimed_edge_small_std, "scaled by 2^100", lambda x: two_pass(x * 2.0**100) * 2.0**-100)
mistake(aimed_edge_small_std, "squares in float32 vanish", two_pass)
mistake(aimed_edge_small_std, "an epsilon of 1e-12 under the root", lambda x: (two_pass(x).square() + 1e-12).sqrt())


@aimed(lambda d: (d(10, 64, scale=1e25),))
def aimed_edge_large_norm(x):
    return torch.linalg.vector_norm(x, dim=-1)


honest(aimed_edge_large_norm, "scaled by the largest", scaled(lambda x: halves(x * x).sqrt()))
honest(aimed_edge_large_norm, "hypot after hypot", lambda x: functools.reduce(torch.hypot, x.unbind(-1)))
mistake(aimed_edge_large_norm, "squares in float32 overflow", lambda x: (x * x).sum(-1).sqrt())
mistake(
    aimed_edge_large_norm,
    "squares held at the largest number",
    lambda x: (x * x).clamp(max=3e38).sum(-1).clamp(max=3e38).sqrt(),
)


@aimed(lambda d: (d(10, 30, scale=3e-4, dtype=hf),))
def aimed_edge_half_norm(x):
    return torch.linalg.vector_norm(x, dim=-1)


honest(aimed_edge_half_norm, "plain squares in float32", inside(lambda x: summed(x * x).sqrt()))
honest(aimed_edge_half_norm, "squares by halving", inside(lambda x: halves(x * x).sqrt()))
mistake(aimed_edge_half_norm, "squares are kept in fp16 and vanish", lambda x: (x * x).float().sum(-1).sqrt().to(hf))
mistake(
    aimed_edge_half_norm, "the sum of squares is rounded to fp16", lambda x: x.float().square().sum(-1).to(hf).sqrt()
)


@aimed(lambda d: (d(8, 100, scale=230.0, dtype=hf).clamp(-600, 600),))
def aimed_edge_half_rms(x):
    return F.rms_norm(x, (100,), None, 1e-5)


honest(
    aimed_edge_half_rms, "plain squares in float32", inside(lambda x: x * (summed(x * x)[:, None] / 100 + 1e-5).rsqrt())
)
mistake(
    aimed_edge_half_rms,
    "squares are summed in fp16 and overflow",
    lambda x: (x.float() / (x.float().square().sum(-1, keepdim=True).to(hf).float() / 100).sqrt()).to(hf),
)
mistake(
    aimed_edge_half_rms,
    "the sum stops at 65504",
    lambda x: (x.float() / (x.float().square().sum(-1, keepdim=True).clamp(max=65504) / 100).sqrt()).to(hf),
)


@aimed(lambda d: (d(6, 50, scale=9e18),))
def aimed_edge_variance(x):
    return x.var(-1, unbiased=False) * 1e-3


honest(aimed_edge_variance, "scaled by 2^-40", lambda x: (x * 2.0**-40).var(-1, unbiased=False) * 1e-3 * 2.0**80)
honest(aimed_edge_variance, "in double precision", double(lambda x: x.var(-1, unbiased=False) * 1e-3))
mistake(
    aimed_edge_variance,
    "squares summed before the division overflow",
    lambda x: (x - x.mean(-1, keepdim=True)).square().sum(-1) / 50 * 1e-3,
)
mistake(
    aimed_edge_variance,
    "the square of the sum overflows and leaves 0",
    lambda x: x.var(-1, unbiased=False) * 1e-3 * (torch.arange(6) % 3 != 1),
)


# ------------------------------------------------------------------ products, lengths of two, angles


@aimed(
    lambda d: (
        torch.cat((d(40, scale=1e30), d(40, scale=1e-30), d(20, scale=1e-44))),
        torch.cat((d(40, scale=1e30), d(40, scale=1e-30), d(20, scale=1e-44))),
    )
)
def aimed_edge_hypot(a, b):
    return torch.hypot(a, b)


def larger_first(a, b):
    a, b = torch.maximum(a.abs(), b.abs()), torch.minimum(a.abs(), b.abs())
    return torch.where(a == 0, a, a * (1 + (b / a).square()).sqrt())


honest(aimed_edge_hypot, "the larger taken out", larger_first)
honest(aimed_edge_hypot, "in double precision", double(torch.hypot))
mistake(aimed_edge_hypot, "plain squares", lambda a, b: (a * a + b * b).sqrt())
mistake(
    aimed_edge_hypot,
    "large ones scaled, small ones not",
    lambda a, b: ((a * 1e-15).square() + (b * 1e-15).square()).sqrt() * 1e15,
)


@aimed(lambda d: (d(9, 24, scale=3e12), d(9, 24, scale=3e12)))
def aimed_edge_cosine(a, b):
    return F.cosine_similarity(a, b, -1)


honest(aimed_edge_cosine, "two roots", lambda a, b: (a * b).sum(-1) / ((a * a).sum(-1).sqrt() * (b * b).sum(-1).sqrt()))
mistake(
    aimed_edge_cosine,
    "one root of a product that overflows",
    lambda a, b: (a * b).sum(-1) / ((a * a).sum(-1) * (b * b).sum(-1)).sqrt(),
)
mistake(
    aimed_edge_cosine,
    "the length is infinite in the last two rows",
    lambda a, b: F.cosine_similarity(a, b, -1) * (torch.arange(9) < 7),
)


@aimed(lambda d: ((d.rand(10, 40) + 0.5) * torch.tensor((1e-10, 1e10)).repeat(20),))
def aimed_edge_long_product(x):
    return x.prod(-1)


honest(aimed_edge_long_product, "in turn", lambda x: functools.reduce(torch.mul, x.unbind(-1)))
honest(aimed_edge_long_product, "neighbours first", lambda x: (x[:, ::2] * x[:, 1::2]).prod(-1))
mistake(
    aimed_edge_long_product,
    "small ones first: everything vanishes",
    lambda x: functools.reduce(torch.mul, x[:, ::2].unbind(-1)) * x[:, 1::2].prod(-1),
)
mistake(aimed_edge_long_product, "the half products are infinite", lambda x: x[:, 1::2].float().prod(-1) * x[:, 0])


@aimed(lambda d: ((d.rand(12, 60) + 0.5) * 1e-3,))
def aimed_edge_geometric_mean(x):
    return x.log().mean(-1).exp()


honest(aimed_edge_geometric_mean, "roots first", lambda x: (x ** (1 / 60)).prod(-1))
honest(aimed_edge_geometric_mean, "base two, one after another", lambda x: (summed(x.log2()) / 60).exp2())
mistake(aimed_edge_geometric_mean, "root of a product that vanishes", lambda x: x.prod(-1) ** (1 / 60))
mistake(
    aimed_edge_geometric_mean,
    "the product is held at the smallest number",
    lambda x: x.prod(-1).clamp(min=1e-38) ** (1 / 60),
)


@aimed(lambda d: ((d.rand(50) + 0.5) * 3e-22, (d.rand(50) + 0.5) * 3e-22, (d.rand(50) + 0.5) * 1e-22))
def aimed_edge_ratio(a, b, c):
    return a / c * b


honest(aimed_edge_ratio, "the other quotient", lambda a, b, c: b / c * a)
mistake(aimed_edge_ratio, "the product first, which is subnormal or 0", lambda a, b, c: a * b / c)
mistake(aimed_edge_ratio, "small results are written as 0", lambda a, b, c: a / c * b * (a / c * b > 8e-22))


# ------------------------------------------------------------------ powers


@aimed(lambda d: (d(8, 33, scale=40.0, shift=150.0),))
def aimed_edge_running_logsum(x):
    return x.logcumsumexp(-1)


def running(x):
    out = [x[:, 0]]
    for i in range(1, 33):
        out.append(torch.logaddexp(out[-1], x[:, i]))
    return torch.stack(out, -1)


honest(aimed_edge_running_logsum, "pair after pair", running)
honest(
    aimed_edge_running_logsum,
    "each beginning",
    lambda x: torch.stack([x[:, : i + 1].logsumexp(-1) for i in range(33)], -1),
)
mistake(aimed_edge_running_logsum, "plain powers overflow", lambda x: x.exp().cumsum(-1).log())
mistake(
    aimed_edge_running_logsum,
    "60 more than the row's largest is taken off, so early sums vanish",
    lambda x: (lambda m: (x - m).exp().cumsum(-1).log() + m)(x.amax(-1, keepdim=True) + 60),
)


@aimed(lambda d: (torch.linspace(-150, 150, 301),))
def aimed_edge_swish(x):
    return F.silu(x)


honest(aimed_edge_swish, "one plus the power of -x", lambda x: x / (1 + (-x).exp()))
honest(
    aimed_edge_swish,
    "through tanh of the half, where it does not cancel",
    lambda x: torch.where(x > -1, x * 0.5 * (1 + (x * 0.5).tanh()), x * x.exp() / (1 + x.exp())),
)
mistake(aimed_edge_swish, "power over one plus power: not a number above 88", lambda x: x * (x.exp() / (1 + x.exp())))
mistake(aimed_edge_swish, "above 88 comes 0", lambda x: torch.where(x > 88, 0.0, F.silu(x)))


@aimed(lambda d: (torch.linspace(-12, 20, 320).to(hf),))
def aimed_edge_half_softplus(x):
    return F.softplus(x)


honest(
    aimed_edge_half_softplus,
    "larger of 0 and x, plus log1p",
    inside(lambda x: x.clamp(min=0) + (-x.abs()).exp().log1p()),
)
mistake(
    aimed_edge_half_softplus, "the power is kept in fp16 and overflows", lambda x: x.exp().float().add(1).log().to(hf)
)
mistake(
    aimed_edge_half_softplus,
    "1 + power in fp16: small ones vanish",
    inside(lambda x: torch.where(x < 0, (1 + x.exp()).to(hf).float().log(), F.softplus(x))),
)


@aimed(lambda d: (torch.linspace(-100, 100, 401).to(bf),))
def aimed_edge_tanh_shrink(x):
    return x - x.tanh()


honest(aimed_edge_tanh_shrink, "in double precision", double(aimed_edge_tanh_shrink))
honest(
    aimed_edge_tanh_shrink,
    "powers of minus the size, a series near 0",
    double(
        lambda x: torch.where(
            x.abs() < 0.02,
            x**3 / 3 - 2 * x**5 / 15,
            x - x.sign() * (1 - (-2 * x.abs()).exp()) / (1 + (-2 * x.abs()).exp()),
        )
    ),
)
mistake(
    aimed_edge_tanh_shrink, "the power of 2x overflows", inside(lambda x: x - ((2 * x).exp() - 1) / ((2 * x).exp() + 1))
)
mistake(
    aimed_edge_tanh_shrink, "1 is taken off twice beyond 44", inside(lambda x: x - x.tanh() - x.sign() * (x.abs() > 44))
)


@aimed(lambda d: (d(5, 200, shift=88.0), d(5, 200).softmax(-1).log()))
def aimed_edge_mixture(x, logw):
    return (x + logw).logsumexp(-1)


honest(
    aimed_edge_mixture,
    "largest taken off",
    lambda x, w: (lambda z: (lambda m: summed((z - m).exp()).log() + m[:, 0])(z.amax(-1, keepdim=True)))(x + w),
)
honest(aimed_edge_mixture, "60 taken off", lambda x, w: ((x - 60).exp() * w.exp()).sum(-1).log() + 60)
mistake(aimed_edge_mixture, "plain powers, then weights: infinity", lambda x, w: (x.exp() * w.exp()).sum(-1).log())
mistake(
    aimed_edge_mixture,
    "powers held at the largest number over 200",
    lambda x, w: (x.exp().clamp(max=1.7e36) * w.exp()).sum(-1).log(),
)


@aimed(lambda d: (d(30).abs() * 0.2 + 1.0, d.ints(40, 30).float() + 20))
def aimed_edge_log_gamma_ratio(x, k):
    return torch.lgamma(x + k) - torch.lgamma(x)


honest(
    aimed_edge_log_gamma_ratio,
    "logs of the factors",
    lambda x, k: torch.stack(
        [sum(math.log(a + i) for i in range(int(n))) * torch.ones(()) for a, n in zip(x.tolist(), k.tolist())]
    ),
)
mistake(
    aimed_edge_log_gamma_ratio,
    "the log of a gamma that overflows",
    lambda x, k: torch.lgamma(x + k).exp().log() - torch.lgamma(x),
)
mistake(
    aimed_edge_log_gamma_ratio,
    "results beyond 88 are held at 88.7",
    lambda x, k: (torch.lgamma(x + k) - torch.lgamma(x)).clamp(max=88.7),
)
