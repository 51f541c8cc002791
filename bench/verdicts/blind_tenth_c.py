# SPDX-License-Identifier: Apache-2.0
"""Set M: softmax, cross entropy and other losses."""

import math

import torch

from .blind import bf, hf, narrow
from .blind_ninth_a import bad, grads, ok
from .blind_tenth_a import tenth

F = torch.nn.functional
INF = float("inf")


# ------------------------------------------------------------------ log softmax of bfloat16 logits


@tenth(lambda d: (d(12, 1000, dtype=bf, scale=3),))
def tenth_log_softmax16(x):
    return F.log_softmax(x, -1)


def log_softmax16(x, width=1000, kind=None, block=1000, fault=0.0, base=1.0, top=None):
    x = x.float()
    m = x.amax(-1, keepdim=True) if top is None else top(x)
    total = torch.zeros(12, 1)
    for j in range(0, width, block):
        total = total + (x - m)[:, j : min(j + block, width)].exp().sum(-1, keepdim=True)
        total = narrow(total, kind) if kind else total
    total = total + fault
    return (x - m - total.log()) * base


def log_of_softmax(x):
    return torch.softmax(x.float(), -1).to(hf).float().log()


ok(tenth_log_softmax16, log_softmax16, bf, in_one_go={}, by_64={"block": 64}, by_seven={"block": 7})
bad(
    tenth_log_softmax16,
    log_softmax16,
    {
        # log(softmax) with the softmax stored in half precision
        "the logarithm of a softmax stored in half precision": log_of_softmax,
        # 1000 = 7 * 128 + 104
        "the tail after 896 is not summed": {"width": 896},
        # the sum in bfloat16
        "hides: the sum of exponentials in bfloat16": {"block": 20, "kind": bf},
        # the last tile's loads wrap around to the row's start
        "hides: the last tile reads the first 24 again": lambda x: log_softmax16(torch.cat([x, x[:, :24]], 1), 1024)[
            :, :1000
        ],
        # base two
        "the result is in base two": {"base": 1 / math.log(2)},
    },
    bf,
)


# ------------------------------------------------------------------ cross entropy with weights, ignored, smoothed


def weighted_args(d):
    t = d.ints(50, 64)
    t[::9] = -100
    return d(64, 50, scale=2), t, d.rand(50) + 0.2


@tenth(weighted_args)
def tenth_weighted_ce(x, t, w):
    return F.cross_entropy(x, t, w, ignore_index=-100, label_smoothing=0.1)


def weighted_ce(x, t, w, by="weights", smooth_w=True, eps=0.1, classes=50, ignored=True, blocks=1, other=0):
    lp = x - torch.logsumexp(x, -1, keepdim=True)
    see = t != -100 if ignored else torch.ones_like(t, dtype=torch.bool)
    at = t.clamp_min(0)
    wt = w[at] * see
    hard = -lp.gather(1, at[:, None])[:, 0] * wt
    soft = -(lp * (w if smooth_w else 1.0)).sum(-1) / classes * see
    soft = soft + other * lp.gather(1, at[:, None])[:, 0] * wt / classes
    total = sum(((1 - eps) * a + eps * b).sum() for a, b in zip(hard.chunk(blocks), soft.chunk(blocks), strict=True))
    return total / (wt.sum() if by == "weights" else see.sum() if by == "seen" else 64)


ok(tenth_weighted_ce, weighted_ce, in_one_go={}, eight_blocks={"blocks": 8})
bad(
    tenth_weighted_ce,
    weighted_ce,
    {
        # divided by the count
        "divided by the number of targets": {"by": "seen"},
        # the ignored count, too
        "ignored targets are counted": {"by": "all"},
        # the smooth part without weights
        "the smooth part has no weights": {"smooth_w": False},
        # eps / (classes - 1)
        "hides: smoothed over 49 classes": {"classes": 49},
        # the target is left out of the smooth part
        "hides: the smooth part leaves the target out": {"other": 1},
    },
)


# ------------------------------------------------------------------ gradient of cross entropy, half precision


@tenth(lambda d: (d(20, 300, dtype=hf, scale=4), d.ints(300, 20)))
def tenth_ce_grad16(x, t):
    return grads(lambda x: F.cross_entropy(x.float(), t), x)[0]


def ce_grad16(x, t, by=20, cut=0.0, kind=None, hot=True, rows=None, scale=1.0):
    x = x.float()
    e = (x - x.amax(-1, keepdim=True)).exp()
    p = e / e.sum(-1, keepdim=True)
    p = narrow(p, kind) if kind else p
    p = torch.where(p < cut, 0.0, p)
    g = (p - F.one_hot(t, 300) * hot) / by
    return rows(g) if rows else g


ok(tenth_ce_grad16, ce_grad16, hf, softmax_less_one_hot={})
bad(
    tenth_ce_grad16,
    ce_grad16,
    {
        # sum, not mean
        "not divided by the rows": {"by": 1},
        # softmax alone
        "one is not taken off at the target": {"hot": False},
        # subnormals of half precision are flushed: p / 20 < 2^-14
        "hides: subnormal results are flushed": {"rows": lambda g: torch.where(g.abs() < 2**-14, 0.0, g)},
        # p rounded to half precision before 1 is taken off
        "hides: the softmax is rounded to bfloat16 before": {"kind": bf},
        # probabilities below 1e-5 are dropped
        "hides: small probabilities are dropped": {"cut": 1e-5},
    },
    hf,
)


# ------------------------------------------------------------------ masked, scaled softmax


def masked_args(d):
    n = torch.tensor([33, 64, 17, 1, 50, 64])
    return d(6, 4, 20, 64, scale=4), torch.arange(64)[None] < n[:, None]


@tenth(masked_args)
def tenth_masked_softmax(x, mask):
    return torch.softmax((x * 0.3).masked_fill(~mask[:, None, None], -INF), -1)


def masked_softmax(x, mask, fill=-INF, scale=0.3, late=False, shift=None, over=False, last=None, div=True):
    m = mask[:, None, None] if shift is None else shift(mask)[:, None, None]
    s = (x * scale).masked_fill(~m, fill)
    top = (x * scale).amax(-1, keepdim=True) if over else s.amax(-1, keepdim=True)
    e = (s - top).exp()
    total = e.sum(-1, keepdim=True)
    p = e / total if div else e * (1 / total)
    return last(p) if last else p


ok(
    tenth_masked_softmax,
    masked_softmax,
    by_the_reciprocal={"div": False},
    the_maximum_of_masked_ones_too={"over": True},
)
bad(
    tenth_masked_softmax,
    masked_softmax,
    {
        # zero in the place of minus infinity
        "masked scores are zero": {"fill": 0.0},
        # scale applied twice
        "scaled by 0.3 squared": {"scale": 0.09},
        # finite mask in the scores' own range
        "hides: masked scores are minus ten": {"fill": -10.0},
        # <= n
        "hides: one masked key more is seen": {"shift": lambda m: torch.cat([m[:, :1], m[:, :-1]], 1)},
        # the probabilities pass through half precision
        "hides: stored in half precision": {"last": lambda p: narrow(p, hf)},
        # small probabilities rounded to nothing by a fixed point of 24 bits
        "hides: fixed point of 24 bits": {"last": lambda p: (p * 2**24).round() / 2**24},
    },
)


# ------------------------------------------------------------------ softmax backward and log-softmax backward


@tenth(lambda d: (torch.softmax(d(32, 80, scale=3), -1), d(32, 80, shift=5.0)))
def tenth_softmax_grad(p, g):
    return torch._softmax_backward_data(g, p, -1, p.dtype)


def softmax_grad(p, g, tile=80, lost=0, kind=None, expanded=False, sign=1.0):
    total = torch.zeros(32, 1)
    for j in range(0, 80 - lost, tile):
        total = total + (p * g)[:, j : j + tile].sum(-1, keepdim=True)
        total = narrow(total, kind) if kind else total
    return p * g - p * total if expanded else p * (g - total)


ok(tenth_softmax_grad, softmax_grad, in_one_go={}, by_sixteen={"tile": 16}, multiplied_out={"expanded": True})
bad(
    tenth_softmax_grad,
    softmax_grad,
    {
        # the tail of 16
        "the sum leaves out the last sixteen": {"tile": 16, "lost": 16},
        # the row's sum is in bfloat16
        "hides: the row's sum in bfloat16": {"kind": bf},
        # the row's sum is in half precision
        "hides: the row's sum in float16": {"kind": hf},
        # p of the row above in the last row
        "the last row takes the sum of the row before": lambda p, g: torch.cat(
            [softmax_grad(p, g)[:-1], p[-1:] * (g[-1:] - (p * g)[-2:-1].sum())]
        ),
    },
)


# ------------------------------------------------------------------ divergence with zeros in it


def spread_args(d):
    p = torch.softmax(d(16, 40, scale=4), -1)
    p[:, ::7] = 0
    return d(16, 40, scale=2).log_softmax(-1), p


@tenth(spread_args)
def tenth_divergence(q, p):
    return (torch.xlogy(p, p) - p * q).sum(-1)


def divergence(q, p, tiny=None, base=1.0, mean=False, fused=False, least=0.0):
    log = p.clamp_min(tiny).log() if tiny else torch.where(p > 0, p, 1.0).log() if least == 0 else (p + least).log()
    each = p * (log - q) if fused else p * log - p * q
    return each.mean(-1) if mean else each.sum(-1) * base


ok(tenth_divergence, divergence, ones_in_the_place_of_zeros={}, the_difference_of_logarithms={"fused": True})
bad(
    tenth_divergence,
    divergence,
    {
        # 0 * log 0
        "zeros give not a number": lambda q, p: (p * (p.log() - q)).sum(-1),
        # reduction="mean"
        "the mean in the place of the sum": {"mean": True},
        # clamp at 1e-3
        "hides: probabilities are clamped at 1e-3": {"tiny": 1e-3},
        # log(p + 1e-5)
        "hides: 1e-5 is added in the logarithm": {"least": 1e-5},
    },
)


# ------------------------------------------------------------------ nucleus sampling


@tenth(lambda d: (d(24, 120, scale=2),))
def tenth_nucleus(x):
    p, at = torch.softmax(x, -1).sort(dim=-1, descending=True, stable=True)
    p = p.masked_fill(p.cumsum(-1) - p > 0.8, 0.0)
    return torch.zeros_like(p).scatter(1, at, p / p.sum(-1, keepdim=True))


def nucleus(x, top=0.8, strict=False, again=True, most=120, temper=1.0):
    e = ((x - x.amax(-1, keepdim=True)) / temper).exp()
    p, at = (e / e.sum(-1, keepdim=True)).sort(dim=-1, descending=True, stable=True)
    run = torch.zeros(24)
    kept = torch.zeros_like(p)
    for j in range(most):
        here = (run + p[:, j] if strict else run) <= top
        kept[:, j] = torch.where(here, p[:, j], 0.0)
        run = run + p[:, j]
    if strict:
        kept[:, 0] = p[:, 0]
    total = kept.sum(-1, keepdim=True) if again else 1.0
    return torch.zeros_like(p).scatter(1, at, kept / total)


ok(tenth_nucleus, nucleus, one_after_another={})
bad(
    tenth_nucleus,
    nucleus,
    {
        # cumsum <= top leaves out the one that crosses
        "the one that crosses is left out": {"strict": True},
        # not normalised again
        "what is kept is not normalised": {"again": False},
        # top-p of 0.9
        "the threshold is 0.9": {"top": 0.9},
        # a sort of the first 16 candidates
        "hides: only sixteen candidates are looked at": {"most": 16},
        # temperature 1.01
        "hides: a temperature of 1.001": {"temper": 1.001},
    },
)


# ------------------------------------------------------------------ clipped policy loss, gradient of it


def policy_args(d):
    old = d(16, 24) - 2
    return old + d(16, 24, scale=0.3), old, d(16, 1), d.rand(16, 24) > 0.2


@tenth(policy_args)
def tenth_policy_grad(new, old, adv, mask):
    def loss(new):
        r = (new - old).exp()
        each = torch.minimum(r * adv, r.clamp(0.8, 1.28) * adv)
        return -(each * mask).sum() / mask.sum()

    return grads(loss, new)[0]


def policy_grad(new, old, adv, mask, low=0.8, high=1.28, one=False, by=None, both=False, cheap=False):
    r = 1 + (new - old) + (new - old).square() / 2 if cheap else (new - old).exp()
    out = ((r > high) & (adv > 0)) | ((r < low) & (adv < 0))
    out = (r > high) | (r < low) if both else out
    g = torch.where(out, 0.0, -(1.0 if one else r) * adv)
    return g * mask / (mask.sum() if by is None else by(mask))


ok(tenth_policy_grad, policy_grad, by_hand={})
bad(
    tenth_policy_grad,
    policy_grad,
    {
        # symmetric clip of 0.2
        "clipped at 1.2 above": {"high": 1.2},
        # zero gradient for every ratio out of range
        "ratios out of range have no gradient on either side": {"both": True},
        # d log r / dr
        "the ratio is left out of the gradient": {"one": True},
        # mean by sequence
        "divided by each row's own count": {"by": lambda m: m.sum(-1, keepdim=True) * 16},
        # exp by two terms
        "hides: the exponential by three terms": {"cheap": True},
    },
)


# ------------------------------------------------------------------ logits to a sigmoid, many near zero loss


@tenth(lambda d: (d(30, 40, scale=12), (d.rand(30, 40) > 0.5).float()))
def tenth_logits_loss(x, y):
    return x.clamp_min(0) - x * y + (-x.abs()).exp().log1p()


def logits_loss(x, y, way="tails", last=None):
    if way == "logs":
        p = torch.sigmoid(x)
        return -(y * p.clamp_min(1e-30).log() + (1 - y) * (1 - p).clamp_min(1e-30).log())
    if way == "one plus":
        return x.clamp_min(0) - x * y + (1 + (-x.abs()).exp()).log()
    if way == "swapped":
        return x.clamp_min(0) - x * (1 - y) + (-x.abs()).exp().log1p()
    z = torch.where(y > 0, -x, x)
    return z.clamp_min(0) + torch.log1p((-z.abs()).exp())


ok(tenth_logits_loss, logits_loss, of_the_signed_logit={})
bad(
    tenth_logits_loss,
    logits_loss,
    {
        # y and 1 - y
        "targets are the other way round": {"way": "swapped"},
        # log(sigmoid)
        "hides: logarithms of the sigmoid and of one less it": {"way": "logs"},
        # log(1 + e) for log1p(e)
        "hides: log of one plus, not log1p": {"way": "one plus"},
    },
)
