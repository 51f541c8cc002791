# SPDX-License-Identifier: Apache-2.0
"""Set H, written blind: losses and normalisations of equal, nearly equal and huge logits, where most of
the result cancels; the mistakes leave one number (or a few) that no order of the sum comes near to."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, honest, mistake
from .blind_sixth_m import aimed, double, halves, inside, summed

# ------------------------------------------------------------------ cross entropy and its kin


@aimed(lambda d: (d(32, 500, scale=0.0) + d(32, 1), d.ints(500, 32)))
def aimed_equal_logits_loss(x, y):
    return F.cross_entropy(x, y)


def entropy_loss(x, y, classes=500, skip=0, rows=32, smooth=0.0, total=summed):
    m = x.amax(-1, keepdim=True)
    z = total((x - m)[:, : classes - skip].exp()).log()
    hit = (x - m).gather(-1, y[:, None])[:, 0]
    return total((z - (1 - smooth) * hit - smooth * (x - m).mean(-1))) / rows


honest(aimed_equal_logits_loss, "one power after another", entropy_loss)
honest(aimed_equal_logits_loss, "by halving", lambda *a: entropy_loss(*a, total=halves))
honest(aimed_equal_logits_loss, "logs of softmax", lambda x, y: -x.softmax(-1).log()[torch.arange(32), y].mean())
mistake(aimed_equal_logits_loss, "the last class is not summed", lambda *a: entropy_loss(*a, skip=1))
mistake(aimed_equal_logits_loss, "divided by 33 rows", lambda *a: entropy_loss(*a, rows=33))
mistake(aimed_equal_logits_loss, "the log is to base 2", lambda *a: entropy_loss(*a) / math.log(2))


@aimed(lambda d: (torch.where(torch.arange(40) % 13 == 0, 1e6, -1e6) + d(20, 40, scale=0.0), d.ints(4, 20) * 13))
def aimed_huge_twins_loss(x, y):
    return F.cross_entropy(x, y, reduction="sum")


honest(
    aimed_huge_twins_loss,
    "largest taken off before anything",
    lambda x, y: (lambda z: (summed(z.exp()).log() - z[torch.arange(20), y]).sum())(x - x.amax(-1, keepdim=True)),
)
honest(aimed_huge_twins_loss, "in double precision", double(lambda x, y: F.cross_entropy(x, y, reduction="sum")))
mistake(
    aimed_huge_twins_loss,
    "eight units in the last place of 1e6 are added in each row",
    lambda x, y: F.cross_entropy(x, y, reduction="sum") + 20 * 0.5,
)
mistake(
    aimed_huge_twins_loss, "mean of the rows instead of their sum, times two", lambda x, y: F.cross_entropy(x, y) * 2
)
mistake(
    aimed_huge_twins_loss,
    "the loss of a target among the low ones",
    lambda x, y: F.cross_entropy(x, (y + 2 * (torch.arange(20) == 3)) % 40, reduction="sum"),
)


@aimed(lambda d: (d(24, 10, scale=1e8), d.ints(10, 24), d.rand(10) + 0.2))
def aimed_huge_weighted_loss(x, y, w):
    return F.cross_entropy(x, y, w)


def weighted(x, y, w, over=None, use=True, next_=0):
    z = x - x.amax(-1, keepdim=True)
    loss = summed(z.exp()).log() - z[torch.arange(24), (y + next_) % 10]
    got = w[y] if use else torch.ones(24)
    return (loss * got).sum() / (over or got.sum())


honest(aimed_huge_weighted_loss, "largest taken off", weighted)
mistake(aimed_huge_weighted_loss, "divided by the rows, not by the weights", lambda *a: weighted(*a, over=24))
mistake(aimed_huge_weighted_loss, "weights are not used", lambda *a: weighted(*a, use=False))
mistake(aimed_huge_weighted_loss, "the next target", lambda *a: weighted(*a, next_=1))


@aimed(lambda d: (d(30, 64, scale=0.0, shift=3.0, dtype=bf), d.ints(64, 30)))
def aimed_smoothed_equal_loss(x, y):
    return F.cross_entropy(x, y, label_smoothing=0.1)


honest(
    aimed_smoothed_equal_loss,
    "mean and target apart",
    inside(lambda x, y: (lambda z: -0.9 * z[torch.arange(30), y].mean() - 0.1 * z.mean())(x.log_softmax(-1))),
)
mistake(
    aimed_smoothed_equal_loss,
    "the smoothed part is summed twice",
    inside(lambda x, y: (lambda z: -0.9 * z[torch.arange(30), y].mean() - 0.2 * z.mean())(x.log_softmax(-1))),
)
mistake(
    aimed_smoothed_equal_loss,
    "65 classes, one of padding",
    inside(lambda x, y: F.cross_entropy(F.pad(x, (0, 1), value=3.0), y, label_smoothing=0.1)),
)


@aimed(lambda d: (lambda x: (x, x + 1e-3 * d(16, 200)))(d(16, 200, scale=0.01)))
def aimed_near_divergence(x, y):
    return F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean")


def divergence(x, y, rows=16, turned=False, plain=False, total=summed):
    if turned:
        x, y = y, x + 0.02 * torch.linspace(-1, 1, 200)
    a, b = x.log_softmax(-1), y.log_softmax(-1)
    return (total((b - a) * (1 / 200 if plain else b.exp())).sum()) / rows


honest(aimed_near_divergence, "one after another", divergence)
honest(aimed_near_divergence, "in double precision", double(aimed_near_divergence))
mistake(
    aimed_near_divergence, "shares are not normalised: 1e-4 of the log is left", lambda x, y: divergence(x, y) + 1e-4
)
mistake(
    aimed_near_divergence,
    "the gap is squared, not weighted: ten times as much",
    lambda x, y: (x.log_softmax(-1) - y.log_softmax(-1)).square().mean() * 200,
)
mistake(
    aimed_near_divergence,
    "a linear drift of 0.02 over the classes is in one input",
    lambda x, y: divergence(x, y, turned=True),
)


@aimed(
    lambda d: (
        torch.tensor((1e4, -1e4, 1e6, -1e6, 1e8, -1e8)).repeat(20) * (1 + d.rand(120)),
        (d.rand(120) < 0.5).float(),
    )
)
def aimed_huge_binary_loss(x, y):
    return F.binary_cross_entropy_with_logits(x, y, reduction="none")


honest(aimed_huge_binary_loss, "relu form", lambda x, y: x.relu() - x * y + (-x.abs()).exp().log1p())
honest(aimed_huge_binary_loss, "softplus of the signed logit", lambda x, y: F.softplus(x * (1 - 2 * y)))
mistake(
    aimed_huge_binary_loss,
    "logs of sigmoid held at -100",
    lambda x, y: F.binary_cross_entropy(x.sigmoid(), y, reduction="none"),
)
mistake(
    aimed_huge_binary_loss,
    "the shares carry 1e-6 before their logs",
    lambda x, y: -(y * (x.sigmoid() + 1e-6).log() + (1 - y) * (1 - x.sigmoid() + 1e-6).log()),
)
mistake(
    aimed_huge_binary_loss,
    "logits are clipped at 1e7",
    lambda x, y: F.binary_cross_entropy_with_logits(x.clamp(-1e7, 1e7), y, reduction="none"),
)


@aimed(lambda d: (d(25, 48, scale=0.0, shift=0.7, dtype=hf),))
def aimed_equal_entropy(x):
    return -(x.softmax(-1) * x.log_softmax(-1)).sum(-1)


honest(
    aimed_equal_entropy,
    "log of the sum less the mean logit",
    inside(lambda x: x.logsumexp(-1) - (x.softmax(-1) * x).sum(-1)),
)
honest(aimed_equal_entropy, "special function", inside(lambda x: torch.special.entr(x.softmax(-1)).sum(-1)))
mistake(aimed_equal_entropy, "in bits", inside(lambda x: torch.special.entr(x.softmax(-1)).sum(-1) / math.log(2)))
mistake(
    aimed_equal_entropy,
    "shares over 47",
    inside(lambda x: (torch.special.entr(x.exp() / x.exp()[:, 1:].sum(-1, keepdim=True))).sum(-1)),
)
mistake(
    aimed_equal_entropy,
    "0.01 is added to shares in the log",
    inside(lambda x: -(x.softmax(-1) * (x.softmax(-1) + 0.01).log()).sum(-1)),
)


@aimed(lambda d: (d(16, 24),))
def aimed_same_triplet_loss(x):
    return F.triplet_margin_loss(x, x, x, margin=0.3)


honest(
    aimed_same_triplet_loss,
    "the margin and two distances",
    lambda x: (0.3 + (x - x + 1e-6).norm(dim=-1) - (x - x + 1e-6).norm(dim=-1)).clamp(min=0).mean(),
)
mistake(aimed_same_triplet_loss, "squared distances and a squared margin", lambda x: torch.tensor(0.09))
mistake(
    aimed_same_triplet_loss,
    "an epsilon of 0.01 on one distance only",
    lambda x: (0.3 + (x - x + 0.01).norm(dim=-1)).mean(),
)


# ------------------------------------------------------------------ normalisations


@aimed(lambda d: (d(20, 64, scale=0.0) + d(20, 1, scale=10.0).round(), d(64), d(64)))
def aimed_equal_layer_norm(x, w, b):
    return F.layer_norm(x, (64,), w, b)


def layer(x, w, b, eps=1e-5, noise=0.0, shift=True):
    y = x - x.mean(-1, keepdim=True) + noise
    return y / (y.square().mean(-1, keepdim=True) + eps).sqrt() * w + (b if shift else 0)


honest(aimed_equal_layer_norm, "two passes", layer)
honest(
    aimed_equal_layer_norm,
    "mean of squares less square of mean",
    lambda x, w, b: (
        (x - x.mean(-1, keepdim=True))
        * ((x * x).mean(-1, keepdim=True) - x.mean(-1, keepdim=True) ** 2).clamp(min=0).add(1e-5).rsqrt()
        * w
        + b
    ),
)
mistake(aimed_equal_layer_norm, "no epsilon: nothing over nothing", lambda *a: layer(*a, eps=0.0))
mistake(aimed_equal_layer_norm, "the shift is left out", lambda *a: layer(*a, shift=False))
mistake(aimed_equal_layer_norm, "the mean is 1e-4 off", lambda *a: layer(*a, noise=1e-4))


@aimed(lambda d: (d(12, 100, scale=1e4, dtype=bf),))
def aimed_huge_log_softmax(x):
    return x.log_softmax(-1)


honest(
    aimed_huge_log_softmax,
    "largest taken off",
    inside(lambda x: (lambda z: z - summed(z.exp()).log()[:, None])(x - x.amax(-1, keepdim=True))),
)
mistake(aimed_huge_log_softmax, "the log of shares held at 1e-30", inside(lambda x: (x.softmax(-1) + 1e-30).log()))
mistake(
    aimed_huge_log_softmax,
    "the largest of the row before is taken off",
    inside(lambda x: x - x.amax(-1, keepdim=True).roll(1, 0)),
)
mistake(
    aimed_huge_log_softmax,
    "the row's place of the largest is written as -1",
    inside(lambda x: torch.where(x == x.amax(-1, keepdim=True), -1.0, x.log_softmax(-1))),
)


@aimed(lambda d: (torch.tensor((1e4, 1e5, 1e6, 1e8)).repeat(5)[:, None] + d(20, 32, scale=0.0), d(32, 6)))
def aimed_huge_equal_attention(s, v):
    return s.softmax(-1) @ v


honest(
    aimed_huge_equal_attention,
    "a running largest",
    lambda s, v: (lambda p: (p @ v) / summed(p)[:, None])((s - s.amax(-1, keepdim=True)).exp()),
)
honest(aimed_huge_equal_attention, "the mean of values", lambda s, v: v.mean(0).expand(20, 6).clone())
mistake(aimed_huge_equal_attention, "33 in the normaliser", lambda s, v: s.softmax(-1) @ v * (32 / 33))
mistake(
    aimed_huge_equal_attention, "only the first of the equal ones is taken", lambda s, v: v[:1].expand(20, 6).clone()
)
mistake(aimed_huge_equal_attention, "the powers overflow and come out as zeros", lambda s, v: torch.zeros(20, 6))
