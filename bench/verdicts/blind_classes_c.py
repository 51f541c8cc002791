# SPDX-License-Identifier: Apache-2.0
"""Set F: equal logits and huge ones (up to 1e8), where the maximum taken off leaves small exact numbers:
results that are wrong by a factor or are a constant of another origin."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, honest, mistake
from .blind_classes_a import classed, folded
from .blind_fourth_a import double, inside


def times(fn, factor):
    def run(*args):
        out = fn(*args)
        return (out.double() * factor).to(out.dtype)

    return run


def filled(fn, value):
    return lambda *args: torch.full_like(fn(*args), value)


def log_chances(x, way="forward"):
    x = x - x.amax(-1, keepdim=True)
    return x - folded(x.exp(), way).log()[..., None]


def online(x):
    """Log-sum-exp less the maximum, and the maximum, in one pass over the columns."""
    m, z = x[..., 0], torch.ones_like(x[..., 0])
    for j in range(1, x.shape[-1]):
        new = torch.maximum(m, x[..., j])
        z, m = z * (m - new).exp() + (x[..., j] - new).exp(), new
    return z.log(), m


def levels(*values, n):
    return torch.tensor(values)[:, None].expand(len(values), n).contiguous()


# ------------------------------------------------------------------ losses


@classed(lambda d: (torch.full((16, 50), 1e6), d.ints(50, 16)))
def equal_logits_cross_entropy(x, t):
    return F.cross_entropy(x, t, reduction="none")


honest(equal_logits_cross_entropy, "maximum taken off", lambda x, t: -log_chances(x).gather(-1, t[:, None])[:, 0])
honest(
    equal_logits_cross_entropy,
    "one pass over the columns",
    lambda x, t: (lambda z, m: z - (x.gather(-1, t[:, None])[:, 0] - m))(*online(x)),
)
honest(equal_logits_cross_entropy, "float64 inside", double(equal_logits_cross_entropy))
for factor in (0.9, 1.01, 8, 50):
    mistake(equal_logits_cross_entropy, f"{factor} times the loss", times(equal_logits_cross_entropy, factor))
mistake(equal_logits_cross_entropy, "log2 for log", times(equal_logits_cross_entropy, 1 / math.log(2)))


@classed(lambda d: (torch.full((12, 1000), -1e8), d.ints(1000, 12)))
def equal_logits_perplexity(x, t):
    return F.cross_entropy(x, t).exp()


honest(
    equal_logits_perplexity,
    "maximum taken off",
    lambda x, t: (-log_chances(x, "lanes").gather(-1, t[:, None]).mean()).exp(),
)
honest(equal_logits_perplexity, "float64 inside", double(equal_logits_perplexity))
mistake(equal_logits_perplexity, "50", filled(equal_logits_perplexity, 50.0))
mistake(equal_logits_perplexity, "1.01 times as much", times(equal_logits_perplexity, 1.01))
mistake(equal_logits_perplexity, "2 to the power of the loss in nats", lambda x, t: F.cross_entropy(x, t).exp2())


@classed(lambda d: (torch.full((24, 32), 3e4, dtype=bf), d.ints(32, 24)))
def equal_logits_smoothed_loss(x, t):
    return F.cross_entropy(x, t, label_smoothing=0.1)


honest(
    equal_logits_smoothed_loss,
    "maximum taken off",
    inside(lambda x, t: -0.9 * log_chances(x).gather(-1, t[:, None]).mean() - 0.1 * log_chances(x).mean()),
)
honest(equal_logits_smoothed_loss, "float64 inside", double(equal_logits_smoothed_loss))
mistake(equal_logits_smoothed_loss, "8", filled(equal_logits_smoothed_loss, 8.0))
mistake(
    equal_logits_smoothed_loss,
    "0.9 of the loss: the smoothing term is lost",
    inside(lambda x, t: -0.9 * log_chances(x).gather(-1, t[:, None]).mean()),
)


@classed(lambda d: (torch.full((10, 64), 1e8), d(10, 64).softmax(-1)))
def equal_logits_divergence(x, p):
    return F.kl_div(x.log_softmax(-1), p, reduction="batchmean")


honest(equal_logits_divergence, "maximum taken off", lambda x, p: (p * (p.log() - log_chances(x))).sum() / 10)
honest(equal_logits_divergence, "row by row", lambda x, p: folded(p * (p.log() - log_chances(x, "tree"))).mean())
mistake(equal_logits_divergence, "0.9 times as much", times(equal_logits_divergence, 0.9))
mistake(equal_logits_divergence, "8", filled(equal_logits_divergence, 8.0))
mistake(equal_logits_divergence, "the mean over all elements", times(equal_logits_divergence, 1 / 64))


@classed(lambda d: (torch.full((400,), 1e6), (d.rand(400) < 0.3).float()))
def equal_logits_binary(x, t):
    return F.binary_cross_entropy_with_logits(x, t)


honest(equal_logits_binary, "softplus less the product", lambda x, t: (F.softplus(x) - x * t).mean())
honest(equal_logits_binary, "by the sign", lambda x, t: ((1 - t) * x + (-x).exp().log1p()).mean())
mistake(equal_logits_binary, "0.9 times as much", times(equal_logits_binary, 0.9))
mistake(equal_logits_binary, "1.01 times as much", times(equal_logits_binary, 1.01))
mistake(equal_logits_binary, "100, the clamp of the other form", filled(equal_logits_binary, 100.0))


# ------------------------------------------------------------------ softmax and log-sum-exp


@classed(lambda d: (levels(0.0, 1e6, -1e6, 1e8, -1e8, 1e4, n=77),))
def equal_logits_log_softmax(x):
    return x.log_softmax(-1)


honest(equal_logits_log_softmax, "added from the end", lambda x: log_chances(x, "back"))
honest(
    equal_logits_log_softmax,
    "one pass over the columns",
    lambda x: (lambda z, m: (x - m[:, None]) - z[:, None])(*online(x)),
)
mistake(equal_logits_log_softmax, "1.01 times as much", times(equal_logits_log_softmax, 1.01))
mistake(equal_logits_log_softmax, "-8", filled(equal_logits_log_softmax, -8.0))
mistake(equal_logits_log_softmax, "log 80: the padded length", filled(equal_logits_log_softmax, -math.log(80)))


@classed(lambda d: (levels(60000.0, -60000.0, 512.0, 0.0, n=300).to(hf),))
def equal_logits_softmax(x):
    return x.softmax(-1)


honest(equal_logits_softmax, "by log-probabilities", inside(lambda x: log_chances(x).exp()))
honest(
    equal_logits_softmax,
    "divided by the sum",
    inside(lambda x: (lambda e: e / folded(e)[:, None])((x - x.amax(-1, keepdim=True)).exp())),
)
mistake(equal_logits_softmax, "0.9 each", filled(equal_logits_softmax, 0.9))
mistake(equal_logits_softmax, "8 each", filled(equal_logits_softmax, 8.0))
mistake(equal_logits_softmax, "1.01 times as much", times(equal_logits_softmax, 1.01))
mistake(equal_logits_softmax, "1 each: every logit is the maximum", filled(equal_logits_softmax, 1.0))


@classed(lambda d: (torch.full((20, 40), 1e8).index_put_((torch.arange(20), torch.arange(20)), torch.tensor(2e8)),))
def equal_logits_but_one(x):
    return x.softmax(-1)


honest(equal_logits_but_one, "by log-probabilities", lambda x: log_chances(x).exp())
honest(equal_logits_but_one, "float64 inside", double(equal_logits_but_one))
mistake(equal_logits_but_one, "0.9 for 1", times(equal_logits_but_one, 0.9))
mistake(equal_logits_but_one, "1.01 for 1", times(equal_logits_but_one, 1.01))
mistake(equal_logits_but_one, "1/40 everywhere", filled(equal_logits_but_one, 1 / 40))


@classed(lambda d: (levels(1e6, -1e6, 2e5, -3e4, n=256),))
def equal_logits_logsumexp(x):
    return x.logsumexp(-1)


honest(
    equal_logits_logsumexp,
    "maximum taken off",
    lambda x: x.amax(-1) + (x - x.amax(-1, keepdim=True)).exp().sum(-1).log(),
)
honest(equal_logits_logsumexp, "one pass over the columns", lambda x: sum(online(x)))
mistake(equal_logits_logsumexp, "1.01 times as much", times(equal_logits_logsumexp, 1.01))
mistake(equal_logits_logsumexp, "0.9 times as much", times(equal_logits_logsumexp, 0.9))
mistake(equal_logits_logsumexp, "50", filled(equal_logits_logsumexp, 50.0))
mistake(equal_logits_logsumexp, "the maximum only, log n is missing", lambda x: x.amax(-1))


@classed(lambda d: (torch.full((18, 40), 1e6),))
def equal_logits_entropy(x):
    return torch.special.entr(x.softmax(-1)).sum(-1)


honest(equal_logits_entropy, "log-probabilities", lambda x: -(log_chances(x).exp() * log_chances(x)).sum(-1))
honest(equal_logits_entropy, "float64 inside", double(equal_logits_entropy))
mistake(equal_logits_entropy, "in bits", times(equal_logits_entropy, 1 / math.log(2)))
mistake(equal_logits_entropy, "50", filled(equal_logits_entropy, 50.0))
mistake(equal_logits_entropy, "0.9 times as much", times(equal_logits_entropy, 0.9))
mistake(equal_logits_entropy, "divided by log n", filled(equal_logits_entropy, 1.0))


# ------------------------------------------------------------------ attention, gates, gradients


@classed(lambda d: (torch.full((1, 2, 30, 16), 512.0), torch.full((1, 2, 48, 16), 256.0), d(1, 2, 48, 16, shift=1.0)))
def equal_logits_attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


def attended(q, k, v, way="forward"):
    s = log_chances(q @ k.mT * 0.25, way)
    return s.exp() @ v


honest(equal_logits_attention, "softmax and two products", attended)
honest(
    equal_logits_attention,
    "the plain mean of the values",
    lambda q, k, v: (v.sum(2, keepdim=True) / 48).expand(1, 2, 30, 16).contiguous(),
)
mistake(equal_logits_attention, "0.9 times as much", times(attended, 0.9))
mistake(equal_logits_attention, "1.01 times as much", times(attended, 1.01))
mistake(equal_logits_attention, "the sum of the values", times(attended, 48))
mistake(
    equal_logits_attention,
    "the first value in every row",
    lambda q, k, v: v[:, :, :1].expand(1, 2, 30, 16).contiguous(),
)
mistake(equal_logits_attention, "a padding key of value 0 is counted", times(attended, 48 / 49))


@classed(lambda d: (torch.full((25, 8), 1e8), d(25, 8, 12, shift=0.5)))
def equal_logits_gates(x, experts):
    return (x.softmax(-1)[..., None] * experts).sum(1)


honest(equal_logits_gates, "a product of matrices", lambda x, e: (log_chances(x).exp()[:, None] @ e)[:, 0])
honest(equal_logits_gates, "float64 inside", double(equal_logits_gates))
mistake(equal_logits_gates, "gates of 0.9", lambda x, e: 0.9 * e.sum(1))
mistake(equal_logits_gates, "gates sum to 0.9", times(equal_logits_gates, 0.9))
mistake(equal_logits_gates, "the first expert takes all", lambda x, e: e[:, 0].contiguous())


@classed(lambda d: (torch.full((16, 60), 1e8), d.ints(60, 16)))
def equal_logits_gradient(x, t):
    return (x.softmax(-1) - F.one_hot(t, 60)) / 16


def by_autograd(x, t):
    x = x.requires_grad_()
    F.cross_entropy(x, t).backward()
    return x.grad


honest(equal_logits_gradient, "automatic differentiation", by_autograd)
honest(
    equal_logits_gradient, "log-probabilities", lambda x, t: (log_chances(x, "tree").exp() - F.one_hot(t, 60)) * 0.0625
)
mistake(equal_logits_gradient, "0.9 times as much", times(equal_logits_gradient, 0.9))
mistake(equal_logits_gradient, "not divided by the batch", times(equal_logits_gradient, 16))
mistake(equal_logits_gradient, "the probabilities are 0", lambda x, t: -F.one_hot(t, 60) / 16)


@classed(lambda d: (torch.full((9, 200), -1e6).add_(torch.arange(200) * 2.0),))
def equal_logits_staircase(x):
    return x.log_softmax(-1)


honest(equal_logits_staircase, "added from the end", lambda x: log_chances(x, "back"))
honest(equal_logits_staircase, "float64 inside", double(equal_logits_staircase))
mistake(equal_logits_staircase, "1.01 times as much", times(equal_logits_staircase, 1.01))
mistake(equal_logits_staircase, "the sum of exponentials is 1", lambda x: x - x.amax(-1, keepdim=True))
