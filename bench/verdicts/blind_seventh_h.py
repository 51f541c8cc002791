# SPDX-License-Identifier: Apache-2.0
"""Set I, the aimed part, written blind (see blind_seventh_f): losses of one number that are wrong by a little,
and small remainders of what cancels."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, tf32
from .blind_seventh_a import doubled, right, seventh, via, wrong
from .blind_seventh_b import folded, ladder

f32 = torch.float32


# ------------------------------------------------------------------ one number


@seventh(lambda d: (d(128, 1000), d.ints(1000, 128)))
def little_smoothed_cross_entropy(x, target):
    return F.cross_entropy(x, target, label_smoothing=0.1)


def smoothed_rows(x, target, others=False, smooth=0.1, rows=128, over=128, log2e=None, drop=0):
    n = x.shape[-1]
    top = x.amax(-1)
    e = (x - top[:, None]).exp() if log2e is None else ((x - top[:, None]) * log2e).exp2()
    lse = folded(e[:, : n - drop]).log() + top
    hit = x.gather(1, target[:, None])[:, 0]
    spread = (folded(x) - hit) / (n - 1) if others else folded(x) / n
    loss = lse - (1 - smooth) * hit - smooth * spread
    return folded(loss[:rows]) / over


right(little_smoothed_cross_entropy, "row by row, sums by folding", smoothed_rows)
doubled(little_smoothed_cross_entropy)
wrong(
    little_smoothed_cross_entropy,
    smoothed_rows,
    {
        "smoothing spreads over the K - 1 other classes": dict(others=True),
        "the smoothing is 0.1 as bf16 holds it": dict(smooth=0.10009765625),
        "the last class is missing from the sum of exponentials": dict(drop=1),
        "log2(e) is taken as 1.4428": dict(log2e=1.4428),
        "the mean divides by 127": dict(over=127),
    },
)


@seventh(lambda d: (d(200, 400), torch.where(torch.arange(200) % 50 == 7, -100, d.ints(400, 200))))
def little_ignored_cross_entropy(x, target):
    return F.cross_entropy(x, target, ignore_index=-100)


def ignored_rows(x, target, count=False, first=False, low=None, factor=1.0):
    keep = target >= 0
    lse = via(folded(via(x, low).exp()), low).log()
    loss = lse - x.gather(1, target.clamp_min(0)[:, None])[:, 0]
    total = folded(loss if first else loss * keep) * factor
    return total / (200 if count else keep.sum())


right(little_ignored_cross_entropy, "without the maximum taken off", ignored_rows)
doubled(little_ignored_cross_entropy)
wrong(
    little_ignored_cross_entropy,
    ignored_rows,
    {
        "the 4 ignored rows are counted in the mean": dict(count=True),
        "ignored rows are taken for class 0": dict(first=True, count=True),
        "the sums of exponentials are kept in half precision": dict(low=hf),
        "the loss is 1.0005 times too large": dict(factor=1.0005),
    },
)


@seventh(lambda d: (d(3000), d.rand(3000).round(), d.rand(3000).add(0.5)))
def little_weighted_bce(x, y, w):
    return F.binary_cross_entropy_with_logits(x, y, w)


def bce_sum(x, y, w, over_weight=False, slope=1.0, block=None, terms=None):
    soft = (-x.abs()).exp().log1p()
    if terms:
        e = (-x.abs()).exp()
        soft = sum((-1) ** (k + 1) * e**k / k for k in range(1, terms))
    loss = (x.clamp_min(0) - x * y * slope + soft) * w
    n = block or 3000
    return folded(loss[:n]) / (folded(w) if over_weight else 3000)


right(little_weighted_bce, "sum by folding", bce_sum)
doubled(little_weighted_bce)
wrong(
    little_weighted_bce,
    bce_sum,
    {
        "the mean divides by the sum of the weights": dict(over_weight=True),
        "the last 8 of 3000, which fill no block of 16, are left out": dict(block=2992),
        "log1p is cut after eight terms": dict(terms=9),
        "the target's term is 1.0005 times too large": dict(slope=1.0005),
    },
)


@seventh(lambda d: (d(60, 60, scale=0.05) + torch.eye(60), torch.tensor(5.0)))
def little_contrastive_loss(s, temperature):
    z = s * temperature
    label = torch.arange(60)
    return (F.cross_entropy(z, label) + F.cross_entropy(z.mT, label)) / 2


def contrastive(s, t, one=False, shift=0.0, drop=0):
    z = s * (t + shift)
    rows = folded(z.exp()[:, : 60 - drop]).log()
    cols = folded(z.mT.exp()).log()
    if one:
        cols = rows
    return folded(rows + cols - 2 * z.diagonal()) / 120


right(
    little_contrastive_loss,
    "rows and columns without a maximum taken off, in double precision",
    contrastive,
    torch.float64,
)
doubled(little_contrastive_loss)
wrong(
    little_contrastive_loss,
    contrastive,
    {
        "rows are used twice instead of rows and columns": dict(one=True),
        "the temperature is 5.01": dict(shift=0.01),
        "the last column is missing from the rows' sums": dict(drop=1),
    },
)


@seventh(lambda d: (d(500, shift=0.3), d(500)))
def little_huber_loss(x, y):
    return F.huber_loss(x, y, delta=0.7)


def huber(x, y, half=0.5, delta=0.7, over=500, edge=0.7):
    a = (x - y).abs()
    loss = torch.where(a < edge, 0.5 * a * a, delta * (a - half * delta))
    return ladder(loss) / over


right(little_huber_loss, "sum in blocks", huber)
doubled(little_huber_loss)
wrong(
    little_huber_loss,
    huber,
    {
        "the branches meet at 0.9": dict(edge=0.9),
        "the mean divides by 499": dict(over=499),
        "the linear branch takes off 0.498 delta": dict(half=0.498),
    },
)


@seventh(lambda d: (d(40, 256, scale=1.5), d(40, 256, scale=1.5)))
def little_jensen_divergence(x, y):
    p, q = x.softmax(-1), y.softmax(-1)
    m = 0.5 * (p + q)
    return 0.5 * ((p * (p / m).log()).sum(-1) + (q * (q / m).log()).sum(-1)).mean()


def jensen(x, y, eps=0.0, low=None, over=40, floor=0.0):
    lp, lq = (t - folded(t.exp()).log()[:, None] for t in (x, y))
    lm = torch.logaddexp(lp, lq) - math.log(2)
    p, q = (torch.where(t.exp() < floor, 0.0, via(t.exp(), low)) for t in (lp, lq))
    row = folded(p * (lp - lm - eps)) + folded(q * (lq - lm - eps))
    return folded(row) / (2 * over)


right(little_jensen_divergence, "in logs", jensen)
doubled(little_jensen_divergence)
wrong(
    little_jensen_divergence,
    jensen,
    {
        "probabilities are stored in bf16": dict(low=bf),
        "ln 2 is taken as 0.6935": dict(eps=-0.00035),
        "probabilities below 1e-4 count as zero": dict(floor=1e-4),
    },
)


@seventh(lambda d: (d(30, 50), d(30, 50), d(30, 50)))
def little_triplet_loss(a, p, n):
    return F.triplet_margin_loss(a, p, n, margin=1.0)


def triplet(a, p, n, eps=1e-6, inside=0.0, margin=1.0, squared=False, drop=0):
    def away(t):
        return (folded((a - t + eps)[:, : 50 - drop].square()) + inside).sqrt()

    return (away(p) - away(n) + margin).clamp_min(0).sum() / 30


right(little_triplet_loss, "sums of squares by folding", triplet)
doubled(little_triplet_loss)
wrong(
    little_triplet_loss,
    triplet,
    {
        "an epsilon of 1e-3 is added to each difference": dict(eps=1e-3),
        "the margin is 1.0005": dict(margin=1.0005),
        "0.01 is added to the squared distances": dict(inside=1e-2),
    },
)


# ------------------------------------------------------------------ what cancels


@seventh(lambda d: (d(2000),))
def remainder_of_bf16_split(x):
    high = x.to(torch.bfloat16).to(x.dtype)
    low = (x - high).to(torch.bfloat16).to(x.dtype)
    return high, low, x - high - low


def split_kernel(x, cut=False, none=False, third=True, low=bf):
    high = (x.view(torch.int32) & -65536).view(f32) if cut else via(x, bf)
    second = high * 0 if none else via(x - high, low)
    return high, second, x - high - second if third else second * 0


right(
    remainder_of_bf16_split,
    "bit by bit",
    lambda x: (
        lambda b: (lambda h: (h, via(x - h, bf), (x - h) - via(x - h, bf)))(
            ((b + 0x7FFF + ((b >> 16) & 1)) & -65536).view(f32)
        )
    )(x.view(torch.int32)),
)
right(
    remainder_of_bf16_split,
    "remainder in double precision",
    lambda x: (
        lambda h: (lambda s: (h, s, (x.double() - h.double() - s.double()).float()))(
            via((x.double() - h.double()).float(), bf)
        )
    )(via(x, bf)),
)
wrong(
    remainder_of_bf16_split,
    split_kernel,
    {
        "the high part is cut, not rounded": dict(cut=True),
        "the second part is zero": dict(none=True),
        "the third part is zero": dict(third=False),
        "the second part is stored in half precision": dict(low=hf),
    },
)


@seventh(lambda d: (d(1500, scale=1e-4), d(1500, scale=3e-5).abs()))
def remainder_small_arguments(x, y):
    return torch.expm1(x), torch.log1p(y), torch.special.erfc(y * 1e5)


def small_series(x, y, terms=4, plain=0, far=False):
    e = x * (1 + x / 2 * (1 + x / 3 * (1 + x / 4))) if plain != 1 else x.exp() - 1
    if plain == 3:
        e = x
    g = y * (1 - y * (0.5 - y / 3)) if plain != 2 else (1 + y).log()
    z = y * 1e5
    return e, g, 1 - torch.erf(z) if far else torch.erfc(z)


right(remainder_small_arguments, "short series", small_series)
doubled(remainder_small_arguments)
wrong(
    remainder_small_arguments,
    small_series,
    {
        "expm1 is exp minus 1": dict(plain=1),
        "log1p is the log of 1 + x": dict(plain=2),
        "expm1 is cut after the first term": dict(plain=3),
        "erfc is 1 - erf": dict(far=True),
    },
)


@seventh(
    lambda d: (
        (lambda a: torch.stack((a, -a), -1).flatten(1) + torch.nn.functional.pad(d(12, 128).mul(8).round(), (0, 896)))(
            d(12, 512, scale=20000.0).round()
        ),
    )
)
def remainder_of_large_pairs(x):
    return x.sum(-1)


def pair_sum(x, low=None, step=64, skip=0, cast=None):
    total = x[:, 0] * 0
    for part in (x if cast is None else cast(x))[:, : 1024 - skip].split(step, -1):
        total = via(total + part.sum(-1), low)
    return total


right(remainder_of_large_pairs, "by folding", folded)
right(remainder_of_large_pairs, "from the end, one after another", lambda x: pair_sum(x.flip(1), step=1))
right(remainder_of_large_pairs, "in double precision", lambda x: x.double().sum(-1).float())
wrong(
    remainder_of_large_pairs,
    pair_sum,
    {
        "numbers are rounded to TF32 before they are added": dict(cast=tf32),
        "numbers are rounded to bf16 before they are added": dict(cast=lambda x: via(x, bf)),
        "the second pair of the row is left out": lambda x: x[:, :2].sum(-1) + x[:, 4:].sum(-1),
        "partial sums are kept in half precision between tiles of 3": dict(low=hf, step=3),
    },
)


@seventh(lambda d: (d(800, scale=4.0, shift=12.0),))
def remainder_of_saturated_gates(x):
    return F.logsigmoid(x), torch.sigmoid(-x), F.softplus(-x)


def gates(x, plain=0, cap=None):
    e = (-x).exp()
    one = -e.log1p() if plain != 1 else torch.sigmoid(x).log()
    two = e / (1 + e) if plain != 2 else 1 - torch.sigmoid(x)
    three = e.log1p() if plain != 3 else (1 + e).log()
    if cap:
        three = torch.where(x > cap, 0.0, three)
    return one, two, three


right(remainder_of_saturated_gates, "from exp(-x)", gates)
doubled(remainder_of_saturated_gates)
wrong(
    remainder_of_saturated_gates,
    gates,
    {
        "the log of the sigmoid is taken of the rounded sigmoid": dict(plain=1),
        "the sigmoid of -x is 1 minus the sigmoid of x": dict(plain=2),
        "softplus is the log of 1 + exp": dict(plain=3),
        "softplus is 0 below -14": dict(cap=14.0),
    },
)


@seventh(lambda d: (d(25, 40, scale=0.5) + 16.0 * F.one_hot(d.ints(40, 25), 40), d(25, 40)))
def remainder_softmax_gradient(x, g):
    p = x.double().softmax(-1)
    return (p * (g.double() - (p * g.double()).sum(-1, keepdim=True))).to(x.dtype)


def peaked_gradient(x, g, peak=True, low=None, naive=False):
    e = (x - x.amax(-1, keepdim=True)).exp()
    p = e / e.sum(-1, keepdim=True)
    top = x.argmax(-1, keepdim=True)
    if naive:  # p (1 - p) with p next to 1
        return via(p, low) * (g - (via(p, low) * g).sum(-1, keepdim=True))
    h = g - g.gather(1, top)  # differences to the likely class: its own term is exactly 0
    return p * (h - (p * h).sum(-1, keepdim=True))


right(remainder_softmax_gradient, "gradients relative to the likely class", peaked_gradient)
right(remainder_softmax_gradient, "in double precision", lambda x, g: peaked_gradient(x, g, naive=True), torch.float64)
wrong(
    remainder_softmax_gradient,
    peaked_gradient,
    {
        "probabilities are kept in bf16": dict(naive=True, low=bf),
        "the likely class has gradient 0": lambda x, g: peaked_gradient(x, g).scatter(
            1, x.argmax(-1, keepdim=True), 0.0
        ),
        "probabilities are kept in half precision": dict(naive=True, low=hf),
    },
)


@seventh(lambda d: (d(400, scale=2.0), d(400, scale=2.0)))
def remainder_of_a_product(a, b):
    p = (a * b).to(torch.float32)
    return p, (a.double() * b.double() - p.double()).to(torch.float32)


def exact_product(a, b, splitter=4097.0, lose=False, fma=False):
    p = a * b

    def halves(x):
        c = splitter * x
        high = c - (c - x)
        return high, x - high

    (ah, al), (bh, bl) = halves(a), halves(b)
    e = ((ah * bh - p) + ah * bl + al * bh) + (0 if lose else al * bl)
    return p, p * 0 if fma else e


right(remainder_of_a_product, "Dekker's product", exact_product)
right(
    remainder_of_a_product,
    "in double precision",
    lambda a, b: (a * b, (a.double() * b.double() - (a * b).double()).float()),
)
wrong(
    remainder_of_a_product,
    exact_product,
    {
        "the product of the two low halves is left out": dict(lose=True),
        "the remainder is zero: the product is rounded before the subtraction": dict(fma=True),
        "numbers are split at 2^14 instead of 2^12": dict(splitter=2.0**14 + 1),
    },
)
