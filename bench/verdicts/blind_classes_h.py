# SPDX-License-Identifier: Apache-2.0
"""Set F: results that are all wrong by one constant factor: a slip in a constant, in a count, in a unit."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, honest, mistake
from .blind_classes_a import classed, folded, squares, welford
from .blind_classes_c import times
from .blind_fourth_a import double, inside


def factors(fn, kernel, *which):
    """Mistakes of `kernel`, a float32 kernel of fn: (factor, words)."""
    for factor, words in which:
        mistake(fn, words, inside(lambda *a, c=factor: kernel(*a) * c))


def outer_sums(a, b, back=False):
    at = range(a.shape[-1])
    return sum(a[..., k, None] * b[k] for k in (reversed(at) if back else at))


# ------------------------------------------------------------------ products


@classed(lambda d: (d(24, 48), d(48, 20)))
def constant_factor_matmul(a, b):
    return a @ b


honest(constant_factor_matmul, "outer products added forward", outer_sums)
honest(constant_factor_matmul, "outer products added from the end", lambda a, b: outer_sums(a, b, True))
factors(constant_factor_matmul, torch.matmul, (1.001, "1.001 times"), (1.01, "1.01 times"), (0.98, "0.98 times"))


@classed(lambda d: (d(30, 64, dtype=bf), d(12, 64, scale=0.2, dtype=bf), d(12, dtype=bf)))
def constant_factor_linear(x, w, b):
    return F.linear(x, w, b)


honest(constant_factor_linear, "outer products", inside(lambda x, w, b: outer_sums(x, w.mT) + b))
honest(constant_factor_linear, "float64 inside", double(constant_factor_linear))
factors(constant_factor_linear, F.linear, (1.05, "1.05 times, the bias too"), (1.01, "1.01 times, the bias too"))
mistake(
    constant_factor_linear,
    "the weight's scale is 1/120 for 1/127, the bias is right",
    inside(lambda x, w, b: F.linear(x, w) * (127 / 120) + b),
)


@classed(lambda d: (d(3, 4, 50), d(6, 4, 5)))
def constant_factor_conv(x, w):
    return F.conv1d(x, w)


honest(
    constant_factor_conv,
    "tap by tap",
    lambda x, w: sum(torch.einsum("nct,oc->not", x[..., t : t + 46], w[..., t]) for t in range(5)),
)
honest(constant_factor_conv, "windows", lambda x, w: torch.einsum("nctk,ock->not", x.unfold(-1, 5, 1), w))
factors(constant_factor_conv, F.conv1d, (0.98, "0.98 times"), (1.001, "1.001 times"))


@classed(lambda d: (d(1, 2, 20, 16, dtype=hf), d(1, 2, 40, 16, dtype=hf), d(1, 2, 40, 16, dtype=hf)))
def constant_factor_attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


def attention(q, k, v):
    e = (q @ k.mT * 0.25).exp()
    return e @ v / e.sum(-1, keepdim=True)


honest(constant_factor_attention, "float32 inside, divided at the end", inside(attention))
honest(constant_factor_attention, "float64 inside", double(attention))
factors(
    constant_factor_attention,
    attention,
    (1.05, "1.05 times"),
    (0.98, "0.98 times"),
    (40 / 41, "a padding key's weight is in every row's sum"),
)


@classed(lambda d: (d.ints(255, 40, 50) - 127, d.rand(40, 1) * 0.1 + 0.01))
def constant_factor_dequantize(code, top):
    return code * (top / 127)


honest(constant_factor_dequantize, "the product first", lambda c, t: c * t / 127)
honest(constant_factor_dequantize, "by the reciprocal", lambda c, t: c * t * (1 / 127))
mistake(constant_factor_dequantize, "128 steps for 127", lambda c, t: c * t / 128)
mistake(constant_factor_dequantize, "126 steps for 127", lambda c, t: c * t / 126)


# ------------------------------------------------------------------ statistics and counts


@classed(lambda d: (d(12, 5000, shift=0.3),))
def constant_factor_var(x):
    return x.var(-1)


honest(constant_factor_var, "element after element in 50 lanes", lambda x: welford(x, 50)[1] / 4999)
honest(constant_factor_var, "two passes", lambda x: squares(x) / 4999)
mistake(constant_factor_var, "1/n for 1/(n - 1)", lambda x: squares(x) / 5000)
mistake(constant_factor_var, "1/(n - 2) for 1/(n - 1)", lambda x: squares(x) / 4998)


@classed(lambda d: (d(8, 600),))
def constant_factor_cov(x):
    return torch.cov(x)


def covariance(x, n=599):
    m = x - x.mean(-1, keepdim=True)
    return m @ m.mT / n


honest(constant_factor_cov, "one product", covariance)
honest(constant_factor_cov, "float64 inside", double(covariance))
mistake(constant_factor_cov, "1/n for 1/(n - 1)", lambda x: covariance(x, 600))
mistake(constant_factor_cov, "1.001 times", times(covariance, 1.001))


@classed(lambda d: (d(40, 30), torch.where(d.rand(40) < 0.15, torch.tensor(-100), d.ints(30, 40))))
def constant_factor_cross_entropy(x, t):
    return F.cross_entropy(x, t)


def token_losses(x, t):
    return torch.where(t >= 0, x.logsumexp(-1) - x.gather(-1, t.clamp(min=0)[:, None])[:, 0], torch.zeros_like(x[:, 0]))


honest(constant_factor_cross_entropy, "sum over count", lambda x, t: folded(token_losses(x, t)) / (t >= 0).sum())
honest(constant_factor_cross_entropy, "float64 inside", double(constant_factor_cross_entropy))
mistake(
    constant_factor_cross_entropy, "the mean over all tokens, ignored ones too", lambda x, t: token_losses(x, t).mean()
)
mistake(
    constant_factor_cross_entropy,
    "one token too few in the count",
    lambda x, t: token_losses(x, t).sum() / ((t >= 0).sum() - 1),
)
mistake(constant_factor_cross_entropy, "in bits", lambda x, t: F.cross_entropy(x, t) / math.log(2))


@classed(lambda d: (d(2, 3, 18, 18, dtype=bf),))
def constant_factor_pool(x):
    return F.avg_pool2d(x, 3)


honest(constant_factor_pool, "rows first", inside(lambda x: folded(folded(x.unfold(2, 3, 3).unfold(3, 3, 3))) / 9))
honest(constant_factor_pool, "float64 inside", double(constant_factor_pool))
factors(
    constant_factor_pool,
    lambda x: F.avg_pool2d(x, 3),
    (9 / 8, "divides by 8, not 9"),
    (1.01, "1.01 times"),
    (0.98, "0.98 times"),
)


@classed(lambda d: (d(40, 200, shift=2.0, dtype=bf),))
def constant_factor_mean(x):
    return x.mean(-1)


honest(constant_factor_mean, "one addition after another", inside(lambda x: folded(x) / 200))
honest(constant_factor_mean, "each over n first", inside(lambda x: (x / 200).sum(-1)))
factors(
    constant_factor_mean,
    lambda x: x.mean(-1),
    (200 / 196, "the mean over 196, not 200"),
    (1.05, "1.05 times"),
    (0.98, "0.98 times"),
)


@classed(lambda d: (d(50, 90), d(50, 90)))
def constant_factor_huber(p, t):
    return F.smooth_l1_loss(p, t)


def huber(p, t):
    a = (p - t).abs()
    return torch.where(a < 1, 0.5 * a * a, a - 0.5)


honest(constant_factor_huber, "row by row", lambda p, t: folded(huber(p, t)).sum() / 4500)
honest(constant_factor_huber, "float64 inside", double(constant_factor_huber))
mistake(constant_factor_huber, "the mean over the batch, then over 89", lambda p, t: huber(p, t).sum() / 50 / 89)
mistake(constant_factor_huber, "0.98 times", times(constant_factor_huber, 0.98))


# ------------------------------------------------------------------ units and constants


@classed(lambda d: (d(30, 40),))
def constant_factor_entropy(x):
    return torch.special.entr(x.softmax(-1)).sum(-1)


honest(
    constant_factor_entropy, "log-sum-exp less the mean logit", lambda x: x.logsumexp(-1) - (x.softmax(-1) * x).sum(-1)
)
honest(constant_factor_entropy, "float64 inside", double(constant_factor_entropy))
factors(
    constant_factor_entropy,
    constant_factor_entropy,
    (math.log2(math.e), "in bits"),
    (math.log(2), "bits from a logarithm to base e: ln 2 once too often"),
    (1.001, "1.001 times"),
)


@classed(lambda d: (d(700), d(700)))
def constant_factor_angle(y, x):
    return torch.atan2(y, x)


honest(
    constant_factor_angle,
    "by the half angle",
    lambda y, x: 2 * torch.atan2(y, torch.hypot(x, y) + x.abs()) * x.sign() + (x < 0) * math.pi * y.sign(),
)
honest(constant_factor_angle, "float64 inside", double(constant_factor_angle))
factors(
    constant_factor_angle,
    torch.atan2,
    (180 / math.pi, "in degrees"),
    (1 / math.pi, "in half turns"),
    (1.01, "1.01 times"),
)


@classed(lambda d: (d(900, scale=200.0),))
def constant_factor_radians(x):
    return torch.deg2rad(x)


honest(constant_factor_radians, "pi over 180", lambda x: x * math.pi / 180)
honest(constant_factor_radians, "float64 inside", double(constant_factor_radians))
mistake(constant_factor_radians, "pi is 3.1416", lambda x: x * (3.1416 / 180))
mistake(constant_factor_radians, "pi is 22/7", lambda x: x * (22 / 7 / 180))


@classed(lambda d: (d(800),))
def constant_factor_erf(x):
    return torch.erf(x)


honest(
    constant_factor_erf,
    "by the error function's complement",
    lambda x: torch.where(x.abs() > 0.5, x.sign() * (1 - torch.erfc(x.abs())), torch.erf(x)),
)
honest(constant_factor_erf, "float64 inside", double(constant_factor_erf))
factors(
    constant_factor_erf,
    torch.erf,
    (math.pi / 4, "sqrt(pi)/2 for 2/sqrt(pi) in front of the series"),
    (math.sqrt(math.pi) / 2, "2/sqrt(pi) is missing"),
    (1.001, "1.001 times"),
)


@classed(lambda d: (d(20, 30), d(20, 30), d(20, 30, scale=0.3)))
def constant_factor_density(x, mean, log_std):
    return (-0.5 * ((x - mean) * (-log_std).exp()).square() - log_std).exp() / math.sqrt(2 * math.pi)


honest(
    constant_factor_density,
    "the exponential times the reciprocals",
    lambda x, m, s: (-((x - m).square() * (-2 * s).exp()) / 2).exp() * (-s).exp() * 0.3989422804014327,
)
honest(constant_factor_density, "float64 inside", double(constant_factor_density))
factors(
    constant_factor_density,
    constant_factor_density,
    (math.sqrt(2), "1/sqrt(pi) for 1/sqrt(2 pi)"),
    (1.0027, "1/sqrt(2 pi) is 0.4"),
    (0.98, "0.98 times"),
)


@classed(lambda d: (d.rand(600) * 9 + 1.5,))
def constant_factor_log2(x):
    return x.log2()


honest(constant_factor_log2, "log over log 2", lambda x: (x.double().log() / math.log(2)).float())
honest(
    constant_factor_log2,
    "exponent and significand",
    lambda x: (lambda m, e: e + m.double().log2())(*torch.frexp(x)).float(),
)
mistake(constant_factor_log2, "ln 2 for log2 e", lambda x: x.log() * math.log(2))
mistake(constant_factor_log2, "log2 e is 1.44", lambda x: x.log() * 1.44)


@classed(lambda d: (d(6, 64),))
def constant_factor_spectrum(x):
    return torch.fft.rfft(x, norm="ortho").abs()


def spectrum(x):
    at = torch.arange(64, dtype=torch.float64)
    turn = 2 * math.pi / 64 * (at[:, None] * at[:33] % 64)
    return torch.hypot(x @ turn.cos().to(x.dtype), x @ turn.sin().to(x.dtype)) / 8


honest(constant_factor_spectrum, "two products of matrices", spectrum)
honest(constant_factor_spectrum, "float64 inside", double(spectrum))
factors(
    constant_factor_spectrum,
    constant_factor_spectrum,
    (1 / 8, "1/n for 1/sqrt(n)"),
    (8 / math.sqrt(63), "n - 1 under the root"),
)


# ------------------------------------------------------------------ norms, activations


@classed(lambda d: (d(30, 96, dtype=bf), d(96, scale=0.1, shift=1.0, dtype=bf)))
def constant_factor_rms_norm(x, w):
    return F.rms_norm(x, (96,), w, 1e-6)


def rms(x, w):
    return x / (folded(x.square(), "tree")[:, None] / 96 + 1e-6).sqrt() * w


honest(constant_factor_rms_norm, "float32 inside", inside(rms))
honest(constant_factor_rms_norm, "float64 inside", double(rms))
factors(
    constant_factor_rms_norm,
    rms,
    (1.01, "1.01 times"),
    (1.05, "1.05 times"),
    (math.sqrt(100 / 96), "the mean over 100, not 96"),
)


@classed(lambda d: (d(40, 70), d(25, 70)))
def constant_factor_distances(x, y):
    return torch.cdist(x, y)


honest(constant_factor_distances, "differences squared", lambda x, y: (x[:, None] - y).square().sum(-1).sqrt())
honest(constant_factor_distances, "float64 inside", double(lambda x, y: (x[:, None] - y).square().sum(-1).sqrt()))
factors(
    constant_factor_distances, torch.cdist, (1.001, "1.001 times"), (math.sqrt(70 / 69), "n/(n - 1) under the root")
)


@classed(lambda d: (d(50, 40, dtype=bf),))
def constant_factor_silu(x):
    return F.silu(x)


honest(constant_factor_silu, "by the hyperbolic tangent", inside(lambda x: x * (0.5 * (x * 0.5).tanh() + 0.5)))
honest(constant_factor_silu, "float64 inside", double(constant_factor_silu))
factors(constant_factor_silu, F.silu, (1.05, "1.05 times"), (1 / 0.596, "divided by 0.596, as for unit variance"))


@classed(lambda d: (d(60, 50, scale=2.0),))
def constant_factor_selu(x):
    return F.selu(x)


def selu(x, scale=1.0507009873554805, alpha=1.6732632423543772):
    return scale * torch.where(x > 0, x, alpha * x.clamp(max=0).expm1())


honest(constant_factor_selu, "both halves by hand", selu)
honest(constant_factor_selu, "float64 inside", double(selu))
mistake(constant_factor_selu, "the scale is 1.05", lambda x: selu(x, scale=1.05))
mistake(constant_factor_selu, "the scale is missing", lambda x: selu(x, scale=1.0))


# ------------------------------------------------------------------ gradients and steps


@classed(lambda d: (d(30, 64), d(30, 64)))
def constant_factor_loss_gradient(p, t):
    return (p - t) * (2 / 1920)


def mse_autograd(p, t):
    p = p.requires_grad_()
    F.mse_loss(p, t).backward()
    return p.grad


honest(constant_factor_loss_gradient, "automatic differentiation", mse_autograd)
honest(constant_factor_loss_gradient, "divided by the half count", lambda p, t: (p - t) / 960)
factors(
    constant_factor_loss_gradient,
    constant_factor_loss_gradient,
    (0.5, "the 2 of the square is missing"),
    (64 / 63, "the count is 30 * 63"),
)


@classed(lambda d: (d(1500, scale=0.02, dtype=bf), d(1500, dtype=bf)))
def constant_factor_momentum(g, m):
    return m.lerp(g, 0.1)


honest(constant_factor_momentum, "two products", inside(lambda g, m: 0.9 * m + 0.1 * g))
honest(constant_factor_momentum, "float64 inside", double(constant_factor_momentum))
factors(
    constant_factor_momentum,
    lambda g, m: 0.9 * m + 0.1 * g,
    (1 / 0.9, "divided by 1 - 0.1: bias correction"),
    (1.01, "1.01 times"),
    (0.98, "0.98 times"),
)


@classed(lambda d: (d(300, 12), d.ints(300, 80)))
def constant_factor_embedding(table, ids):
    return F.embedding(ids, table) * math.sqrt(12)


honest(constant_factor_embedding, "gathered after the product", lambda w, i: (w * math.sqrt(12))[i])
honest(constant_factor_embedding, "float64 inside", double(constant_factor_embedding))
factors(
    constant_factor_embedding,
    constant_factor_embedding,
    (math.sqrt(13 / 12), "sqrt(13) for sqrt(12)"),
    (3.46 / math.sqrt(12), "the root is 3.46"),
)
