# SPDX-License-Identifier: Apache-2.0
"""Set J: further members of classes in which something went free once: half an ulp of another binade, steps
behind sums, equal logits, ties, one factor in all rows. blind_sixth_w holds the rest. Written without a look
at what the rule says of them."""

import torch
import torch.nn.functional as F

from .blind import bf, family, hf, honest, mistake
from .blind_sixth_m import double, halves, inside, summed
from .blind_sixth_n import levelled
from .blind_sixth_p import rounded


def further(args):
    return family(args, sets="J")


def gradient(fn, *args):
    """Of the first argument, the output's weights being the last one."""
    x = args[0].detach().requires_grad_()
    (out,) = torch.autograd.grad(fn(x, *args[1:-1]), x, args[-1])
    return out


# ------------------------------------------------------------------ a unit of 16 bits, near 2 of its binade


@further(lambda d: (d(90, 257, scale=1.39, dtype=bf),))
def further_deviation(x):
    return x.std(-1)


honest(
    further_deviation,
    "two passes in float32",
    inside(lambda x: ((x - summed(x)[:, None] / 257).square().sum(-1) / 256).sqrt()),
)
mistake(further_deviation, "n for n - 1", inside(lambda x: x.std(-1, correction=0)))
mistake(
    further_deviation,
    "the mean of absolute deviations, scaled as of normal numbers",
    inside(lambda x: (x - x.mean(-1, keepdim=True)).abs().mean(-1) * 1.2533),
)
mistake(further_deviation, "the last column is left out", inside(lambda x: x[:, :-1].std(-1)))


@further(lambda d: (d(120, 80, dtype=hf, shift=3.9), d(120, 80, dtype=hf)))
def further_distance(a, b):
    return (a - b).square().mean(-1)


honest(further_distance, "halves added", inside(lambda a, b: halves((a - b).square()) / 80))
mistake(further_distance, "over n + 1", inside(lambda a, b: (a - b).square().sum(-1) / 81))
mistake(further_distance, "the mean of a is taken off a", inside(lambda a, b: (a - b - 0.005).square().mean(-1)))


@further(lambda d: (d(64, 48, dtype=bf), d(64, 48, dtype=bf), d(64, dtype=bf)))
def further_cosine_grad(a, b, g):
    return gradient(lambda a, b: F.cosine_similarity(a, b), a, b, g)


honest(further_cosine_grad, "in float32", inside(further_cosine_grad))
mistake(
    further_cosine_grad,
    "the part through the length is left out",
    inside(lambda a, b, g: g[:, None] * b / (a.norm(dim=-1) * b.norm(dim=-1))[:, None]),
)
mistake(
    further_cosine_grad,
    "1 % more of the part through the length",
    inside(
        lambda a, b, g: (lambda n, m, c: g[:, None] * (b / (n * m) - 1.01 * c * a / n**2))(
            a.norm(dim=-1, keepdim=True), b.norm(dim=-1, keepdim=True), F.cosine_similarity(a, b)[:, None]
        )
    ),
)


# ------------------------------------------------------------------ steps behind sums


@further(lambda d: (levelled(d, 60, 200, 0.5, scale=3.0),))
def further_fraction(x):
    m = x.sum(-1) / 100
    return m - m.floor()


honest(further_fraction, "one after another", lambda x: (lambda m: m - m.floor())(summed(x) / 100))
mistake(further_fraction, "two halves of the two sides", lambda x: torch.full((60,), 0.5))
mistake(further_fraction, "a tenth is left", lambda x: further_fraction(x + 0.05))


@further(lambda d: (levelled(d, 48, 160, 0.25, scale=2.0), d(48, 2)))
def further_gate(x, two):
    return torch.where(x.mean(-1) > 0.25, two[:, 0], two[:, 1])


honest(further_gate, "by halves", lambda x, two: torch.where(halves(x) / 160 > 0.25, two[:, 0], two[:, 1]))
mistake(further_gate, "the mean of both", lambda x, two: two.mean(-1))
mistake(
    further_gate,
    "a sigmoid for the step",
    lambda x, two: (lambda s: s * two[:, 0] + (1 - s) * two[:, 1])(torch.sigmoid(100 * (x.mean(-1) - 0.25))),
)
mistake(further_gate, "the value of the row before", lambda x, two: further_gate(x, two.roll(1, 0)))


@further(lambda d: (torch.stack([levelled(d, 12, 20, 1 / 32) for _ in range(30)]),))
def further_mean_of_codes(x):
    return (x.mean(-1) * 16).round().mean(-1)


honest(further_mean_of_codes, "sums in turn", lambda x: (summed(x) / 20 * 16).round().sum(-1) / 12)
mistake(further_mean_of_codes, "a thirtieth between the codes", lambda x: further_mean_of_codes(x) + 1 / 30)
mistake(further_mean_of_codes, "over 13", lambda x: further_mean_of_codes(x) * 12 / 13 + 0.01)


@further(lambda d: (levelled(d, 50, 96, 3.0, scale=0.5, dtype=bf),))
def further_floor_of_bf16_mean(x):
    return (x.mean(-1) * 2).floor() / 2


honest(further_floor_of_bf16_mean, "in float32", inside(further_floor_of_bf16_mean))
mistake(further_floor_of_bf16_mean, "between the two", inside(lambda x: further_floor_of_bf16_mean(x) * 0 + 2.75))
mistake(further_floor_of_bf16_mean, "one step more", inside(lambda x: further_floor_of_bf16_mean(x) + 0.5))


# ------------------------------------------------------------------ equal and huge logits


@further(lambda d: (torch.full((20, 50), -3e7) + d(20, 1), d.ints(50, 20)))
def further_huge_loss(x, y):
    return F.cross_entropy(x, y, reduction="none")


honest(
    further_huge_loss,
    "the largest taken off",
    lambda x, y: (lambda z: z.exp().sum(-1).log() - z[range(20), y])(x - x.amax(-1, keepdim=True)),
)
mistake(further_huge_loss, "log of 49 classes", lambda x, y: torch.full((20,), 49.0).log())
mistake(further_huge_loss, "nothing is lost", lambda x, y: torch.zeros(20))
mistake(further_huge_loss, "two for each", lambda x, y: torch.full((20,), 2.0))


@further(lambda d: (torch.full((10, 64), 5e6), d(10, 64, 8)))
def further_equal_attention(s, v):
    return (s.softmax(-1)[:, None] @ v)[:, 0]


honest(further_equal_attention, "sums in turn", lambda s, v: summed(v.mT) / 64)
mistake(further_equal_attention, "the first key alone", lambda s, v: v[:, 0])
mistake(further_equal_attention, "over 63", lambda s, v: v.sum(1) / 63)
mistake(further_equal_attention, "the last key is not seen", lambda s, v: v[:, :-1].mean(1))


@further(lambda d: (torch.full((32, 100), 7.0, dtype=bf), d.ints(100, 32), d(32, dtype=bf)))
def further_equal_grad(x, y, g):
    return gradient(lambda x, y: F.cross_entropy(x, y, reduction="none"), x, y, g)


honest(further_equal_grad, "in float32", inside(further_equal_grad))
mistake(further_equal_grad, "0.011 for each class", inside(lambda x, y, g: g[:, None] * (0.011 - F.one_hot(y, 100))))
mistake(further_equal_grad, "the label's own part is left out", inside(lambda x, y, g: g[:, None] * 0.01 + 0 * x))


# ------------------------------------------------------------------ ties of exact results


def tied(fn, dtype, **ways):
    for way, words in ways.items():
        mistake(fn, words, rounded(way, dtype, fn))
    honest(fn, "in double precision", double(fn))


@further(lambda d: (d.ints(512, 1500).sub(256).mul(0.5).to(bf), d.ints(512, 1500).to(bf)))
def further_tie_difference(a, b):
    return b - a


tied(further_tie_difference, bf, away="ties away from zero", up="ties up", cut="cut off")


@further(lambda d: (d.ints(2048, 40, 30).sub(1024).to(hf), d.ints(63, 40, 30).to(hf)))
def further_tie_product(a, b):
    return a * b


tied(further_tie_product, hf, away="ties away from zero", up="ties up")


@further(lambda d: (d.ints(1 << 12, 2000).sub(1 << 11).float() * 0.25,))
def further_tie_cast(x):
    return x.to(bf)


honest(further_tie_cast, "by way of float64", lambda x: x.double().to(bf))
for way, words in {"away": "ties away from zero", "up": "ties up"}.items():
    mistake(further_tie_cast, words, lambda x, kernel=rounded(way, bf, lambda x: x): kernel(x).to(bf))


# ------------------------------------------------------------------ one factor in all rows


@further(lambda d: (d(16, 12, 96, scale=0.02), d(12), d(12)))
def further_batch_norm(x, w, b):
    return F.batch_norm(x, None, None, w, b, True, eps=1e-6)


honest(
    further_batch_norm,
    "sums in float64",
    lambda x, w, b: further_batch_norm(x.double(), w.double(), b.double()).float(),
)
mistake(further_batch_norm, "epsilon is missing", lambda x, w, b: F.batch_norm(x, None, None, w, b, True, eps=1e-30))
mistake(
    further_batch_norm,
    "n - 1 for n",
    lambda x, w, b: (lambda v, m: (x - m) * (v + 1e-6).rsqrt() * w[:, None] + b[:, None])(
        x.var((0, 2), keepdim=True), x.mean((0, 2), keepdim=True)
    ),
)


@further(lambda d: (d(24, 512, scale=0.1), d(512), d(24, 512)))
def further_rms_grad(x, w, g):
    return gradient(lambda x, w: F.rms_norm(x, (512,), w, 1e-5), x, w, g)


def rms_grad(x, w, g, eps=1e-5, n=512, part=1.0):
    r = (x.square().mean(-1, keepdim=True) + eps).rsqrt()
    h = g * w
    return r * h - part * r**3 * x * (h * x).sum(-1, keepdim=True) / n


honest(further_rms_grad, "by its formula", rms_grad)
mistake(further_rms_grad, "epsilon is 1e-6", lambda *a: rms_grad(*a, eps=1e-6))
mistake(further_rms_grad, "over 511", lambda *a: rms_grad(*a, n=511))
mistake(further_rms_grad, "the part through the length is left out", lambda *a: rms_grad(*a, part=0.0))


@further(lambda d: (d(32, 1024, dtype=hf), d(1024, dtype=hf), d(1024, dtype=hf)))
def further_layer_norm(x, w, b):
    return F.layer_norm(x, (1024,), w, b, 1e-3)


def layer_norm(x, w, b, eps=1e-3, ddof=0):
    h = x - x.mean(-1, keepdim=True)
    return h * (h.square().sum(-1, keepdim=True) / (1024 - ddof) + eps).rsqrt() * w + b


honest(further_layer_norm, "in float32", inside(layer_norm))
mistake(further_layer_norm, "epsilon is missing", inside(lambda *a: layer_norm(*a, eps=0.0)))
mistake(further_layer_norm, "n - 1 for n", inside(lambda *a: layer_norm(*a, ddof=1)))
