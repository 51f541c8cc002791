# SPDX-License-Identifier: Apache-2.0
"""Set R, the thirteenth: losses forward and backward."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, narrow
from .blind_thirteenth_a import A, add, halves, wide

# ------------------------------------------------------------------ losses


def nll(x, t, w, reduction, ignore, by=None, weigh=True, skip=True, mean=True):
    keep = (t != ignore) if skip else torch.ones_like(t, dtype=torch.bool)
    at = t.clamp(min=0)
    k = (w[at] if weigh else 1.0) * keep
    total = k.sum()
    return halves(-(x.gather(1, at[:, None])[:, 0] * k)) / (by or total), total


add(
    "nll_loss",
    A.nll_loss_forward.default,
    lambda d: (
        torch.log_softmax(d(70, 12), 1),
        torch.where(d.rand(70) < 0.2, -100, d.ints(12, 70)),
        d.rand(12) + 0.2,
        1,
        -100,
    ),
    nll,
    right={
        "halves": {},
        "in double": lambda x, t, w, *k: tuple(
            v.float() for v in A.nll_loss_forward.default(x.double(), t, w.double(), *k)
        ),
    },
    wrong={
        "divided by all rows": {"by": 70},
        "ignored rows count as class zero": {"skip": False},
        "weights are not used": {"weigh": False},
        "hides: the total lacks the last row": lambda x, t, w, *k: (nll(x, t, w, *k)[0], nll(x[:68], t[:68], w, *k)[1]),
    },
)


def smooth(x, t):
    return F.cross_entropy(x, t, ignore_index=-1, label_smoothing=0.1)


def smooth_kernel(x, t, eps=0.1, classes=50, ignore=True, kept=True, n=None, shift=True):
    keep = t != -1
    m = x.amax(1, keepdim=True) if shift else 0.0
    z = x - m
    lse = torch.log(torch.exp(z[:, :n]).sum(1))
    hit = lse - z.gather(1, t.clamp(min=0)[:, None])[:, 0]
    flat = lse - z.sum(1) / classes if kept else lse
    loss = ((1 - eps) * hit + eps * flat) * (keep if ignore else 1)
    return loss.sum() / (keep.sum() if ignore else len(t))


add(
    "cross_entropy_smooth",
    smooth,
    lambda d: (d(40, 50, scale=3, shift=2.0), torch.where(d.rand(40) < 0.25, -1, d.ints(50, 40))),
    smooth_kernel,
    right={"one pass": {}, "in double": lambda x, t: smooth(x.double(), t).float()},
    wrong={
        "ignored rows are counted": {"ignore": False},
        "hides: smoothing is over the other classes": {"classes": 49, "eps": 0.1},
        "the smooth part lacks its logits": {"kept": False},
        "hides: the last two classes are not in the sum": {"n": 48},
        "hides: smoothing is 0.1 of n / (n - 1)": {"eps": 0.1 * 50 / 49},
    },
)


def ce_back(x, t, g):
    p = torch.softmax(x.float(), -1)
    keep = t != -100
    one = F.one_hot(t.clamp(min=0), x.shape[1])
    return ((p - one) * (g * keep / keep.sum())[:, None]).to(x.dtype)


def ce_kernel(x, t, g, by=None, skip=True, minus=1, n=None, ignore_plus=False):
    f = x.float()
    e = torch.exp(f - f.amax(1, keepdim=True))
    p = e / e[:, :n].sum(1, keepdim=True)
    keep = t != -100
    p[torch.arange(len(t)), t.clamp(min=0)] -= minus
    return p * (g * (keep if skip else 1) / (by or keep.sum()))[:, None]


add(
    "cross_entropy_backward",
    ce_back,
    lambda d: (d(30, 60, dtype=hf, scale=3), torch.where(d.rand(30) < 0.3, -100, d.ints(60, 30)), d.rand(30) * 50),
    ce_kernel,
    right={
        "in place": {},
        "by the log": lambda x, t, g: (
            (torch.log_softmax(x.float(), 1).exp() - (t[:, None] == torch.arange(60)).float())
            * (g * (t != -100) / (t != -100).sum())[:, None]
        ),
    },
    wrong={
        "divided by all rows": {"by": 30},
        "ignored rows have a gradient": {"skip": False},
        "the target is not subtracted": {"minus": 0},
        "hides: the last block of 12 is not in the sum": {"n": 48},
    },
    dtype=hf,
)

add(
    "kl_div",
    lambda x, t: A.kl_div.default(x, t, 1, log_target=False),
    lambda d: (torch.log_softmax(d(20, 40, scale=2), 1), torch.softmax(d(20, 40, scale=4), 1) * (d.rand(20, 40) < 0.9)),
    lambda x, t, by=800, zero=0.0, eps=0.0, flip=False: (
        torch.where(t > 0, t * (torch.log(torch.where(t > 0, t, 1.0) + eps) - x), zero).sum() / by
    ),
    right={"where": {}, "by xlogy": lambda x, t: (torch.special.xlogy(t, t) - t * x).mean()},
    wrong={
        "a mean of rows": {"by": 20},
        "nan where the target is zero": lambda x, t: (t * (torch.log(t) - x)).mean(),
        "hides: 1e-4 in the log": {"eps": 1e-4},
        "the other way": lambda x, t: (x.exp() * (x - torch.log(t.clamp(min=1e-9)))).mean(),
    },
)


def bce(x, t, w, pos, _=1, weigh=True, where=True, positive=True):
    k = 1 + (pos - 1) * t if positive else 1.0
    y = (1 - t) * x + k * (torch.log1p(torch.exp(-x.abs())) + (-x).clamp(min=0))
    return (y * (w if weigh else 1)).mean()


add(
    "bce_logits",
    A.binary_cross_entropy_with_logits.default,
    lambda d: (d(30, 24, scale=30), d.rand(30, 24).round(), d.rand(24), d.rand(24) + 0.5, 1),
    bce,
    right={
        "by the magnitude": {},
        "by softplus": lambda x, t, w, p, _: (w * (p * t * F.softplus(-x) + (1 - t) * F.softplus(x))).mean(),
    },
    wrong={
        "by the sigmoid and its log": lambda x, t, w, p, _: (
            -(w * (p * t * torch.log(torch.sigmoid(x)) + (1 - t) * torch.log(1 - torch.sigmoid(x)))).mean()
        ),
        "positives are not weighed": {"positive": False},
        "weights are left out": {"weigh": False},
        "hides: logs are no less than -20": lambda x, t, w, p, _: (
            -(w * (p * t * F.logsigmoid(x).clamp(min=-20) + (1 - t) * F.logsigmoid(-x).clamp(min=-20))).mean()
        ),
    },
)

add(
    "smooth_l1_backward",
    A.smooth_l1_loss_backward.default,
    lambda d: (d(20, 30), d(20, 30), d(20, 30), 0, 0.5),
    lambda g, x, t, r, beta, at=0.5, by=0.5: g * torch.where((x - t).abs() < at, (x - t) / by, torch.sign(x - t)),
    right={"where": {}, "clamped": lambda g, x, t, *_: g * ((x - t) * 2).clamp(-1, 1)},
    wrong={
        "beta is one": {"at": 1.0, "by": 1.0},
        "not divided by beta": {"by": 1.0},
        "hides: the bend is at 0.52": {"at": 0.52},
        "the other sign": lambda g, x, t, *_: -g * ((x - t) * 2).clamp(-1, 1),
    },
)


def focal(x, t):
    p = torch.sigmoid(x)
    ce = F.binary_cross_entropy_with_logits(x, t, reduction="none")
    pt = p * t + (1 - p) * (1 - t)
    return (0.25 * t + 0.75 * (1 - t)) * ce * (1 - pt) ** 2


add(
    "focal",
    focal,
    lambda d: (d(30, 30, scale=3), d.rand(30, 30).round()),
    lambda x, t, gamma=2.0, a=0.25, b=0.75, eps=0.0: (
        torch.where(t > 0, a, b)
        * F.softplus(torch.where(t > 0, -x, x))
        * torch.sigmoid(torch.where(t > 0, -x, x)) ** gamma
    ),
    right={"by the sign": {}, "in double": wide(focal)},
    wrong={
        "gamma is one": {"gamma": 1.0},
        "alpha is swapped": {"a": 0.75, "b": 0.25},
        "hides: the likelihood is no less than 1e-3": lambda x, t: (
            torch.where(t > 0, 0.25, 0.75)
            * -torch.log(torch.sigmoid(torch.where(t > 0, x, -x)).clamp(min=1e-3))
            * torch.sigmoid(torch.where(t > 0, -x, x)) ** 2
        ),
        "hides: gamma is 2.01": {"gamma": 2.01},
    },
)


def ctc_reference(lp, targets, lens, tlens):
    return F.ctc_loss(lp, targets, lens, tlens, blank=0, reduction="none")


def ctc(lp, targets, lens, tlens, skip=True, ends=2, blank=0, plus=0):
    out = []
    for b in range(lp.shape[1]):
        s, n = int(tlens[b]), int(lens[b]) + plus
        ext = [blank]
        for c in targets[b, :s].tolist():
            ext += [c, blank]
        a = [-math.inf] * len(ext)
        a[0], a[1] = float(lp[0, b, ext[0]]), float(lp[0, b, ext[1]])
        for t in range(1, n):
            new = []
            for i, c in enumerate(ext):
                prev = [a[i]] + ([a[i - 1]] if i else [])
                if i > 1 and c != blank and (c != ext[i - 2] or not skip):
                    prev.append(a[i - 2])
                m = max(prev)
                new.append(
                    -math.inf
                    if m == -math.inf
                    else m + math.log(sum(math.exp(p - m) for p in prev)) + float(lp[t, b, c])
                )
            a = new
        m = max(a[-ends:])
        out.append(-(m + math.log(sum(math.exp(p - m) for p in a[-ends:]))))
    return torch.tensor(out)


add(
    "ctc",
    ctc_reference,
    lambda d: (
        torch.log_softmax(d(18, 3, 6), 2),
        torch.tensor([[1, 1, 2, 5, 3], [4, 2, 2, 0, 0], [5, 1, 3, 3, 0]]),
        torch.tensor([18, 15, 17]),
        torch.tensor([5, 3, 4]),
    ),
    ctc,
    right={"forward": {}},
    wrong={
        "equal neighbours need no blank": {"skip": False},
        "hides: it must end in a blank": {"ends": 1},
        "hides: all times are used": lambda lp, t, n, k: ctc(lp, t, torch.tensor([18, 18, 18]), k),
    },
)


def info_nce(a, b):
    a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
    z = a @ b.T / 0.07
    t = torch.arange(len(a))
    return (F.cross_entropy(z, t) + F.cross_entropy(z.T, t)) / 2


def nce_kernel(a, b, heat=0.07, both=True, norm=True, kind=None):
    a, b = ((t / t.norm(dim=1, keepdim=True)) if norm else t for t in (a, b))
    z = a @ b.T
    z = (narrow(z, kind) if kind else z) / heat
    d = z.diagonal()
    one = (torch.logsumexp(z, 1) - d).mean()
    return (one + (torch.logsumexp(z, 0) - d).mean()) / 2 if both else one


add(
    "info_nce",
    info_nce,
    lambda d: (d(32, 24), d(32, 24)),
    nce_kernel,
    right={"by sums": {}, "in double": wide(info_nce)},
    wrong={
        "one direction": {"both": False},
        "not normed": {"norm": False},
        "hides: cosines are rounded to bfloat16": {"kind": bf},
        "hides: the temperature is 0.0705": {"heat": 0.0705},
    },
)


def grpo(new, before, ref, adv, mask):
    r = torch.exp(new - before)
    a = adv[:, None]
    gain = torch.minimum(r * a, r.clamp(0.8, 1.2) * a)
    k = torch.exp(ref - new) - (ref - new) - 1
    loss = -(gain - 0.04 * k) * mask
    return (loss.sum(1) / mask.sum(1)).mean()


def grpo_kernel(new, before, ref, adv, mask, high=1.2, pick=torch.minimum, beta=0.04, flip=1, tokens=False):
    r, a = torch.exp(new - before), adv[:, None]
    gain = pick(r * a, r.clamp(0.8, high) * a)
    d = (ref - new) * flip
    loss = (beta * (torch.expm1(d) - d) - gain) * mask
    return loss.sum() / mask.sum() if tokens else (loss.sum(1) / mask.sum(1)).mean()


add(
    "grpo",
    grpo,
    lambda d: (
        -d.rand(8, 30) * 3,
        -d.rand(8, 30) * 3,
        -d.rand(8, 30) * 3,
        d(8),
        (torch.arange(30) < 8 + d.ints(22, 8)[:, None]).float(),
    ),
    grpo_kernel,
    right={"by expm1": {}, "in double": wide(grpo)},
    wrong={
        "the greater of both": {"pick": torch.maximum},
        "a mean of tokens": {"tokens": True},
        "hides: the divergence is the other way": {"flip": -1},
        "hides: clipped at 1.25": {"high": 1.25},
        "no divergence": {"beta": 0.0},
    },
)


def dice(x, t):
    p = torch.sigmoid(x).flatten(1)
    t = t.flatten(1)
    return 1 - (2 * (p * t).sum(1) + 1) / (p.sum(1) + t.sum(1) + 1)


add(
    "dice",
    dice,
    lambda d: (d(6, 12, 14), d.rand(6, 12, 14).round()),
    lambda x, t, two=2, plus=1.0, square=False, rows=12: (
        1
        - (two * (torch.sigmoid(x) * t)[:, :rows].sum((1, 2)) + plus)
        / ((torch.sigmoid(x) ** (2 if square else 1)).sum((1, 2)) + t.sum((1, 2)) + plus)
    ),
    right={"as written": {}, "in double": wide(dice)},
    wrong={
        "not doubled": {"two": 1},
        "likelihoods are squared": {"square": True},
        "hides: nothing is added": {"plus": 0.0},
        "hides: the last row is not in the overlap": {"rows": 11},
    },
)
