# SPDX-License-Identifier: Apache-2.0
"""Set S, the fourteenth: losses of training and of preferences, forward and backward."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, narrow
from .blind_fourteenth_base import INF, add, gradients, halves, lanes, serial, trimmed, up, wide


def logits(d, n, v, scale=3.0, dtype=torch.float32):
    x = d(n, v, scale=scale)
    x[:, 5] += 6
    return x.to(dtype)


def labels(d, n, v, ignored=()):
    y = d.ints(v, n)
    y[list(ignored)] = -100
    return y


def cross_entropy(x, w, y):
    z = up(x) @ up(w).T
    lse = torch.logsumexp(z, -1)
    keep = y != -100
    nll = lse - z.gather(1, y.clamp(min=0)[:, None])[:, 0]
    smooth = lse - z.mean(-1)
    loss = 0.9 * nll + 0.1 * smooth + 1e-3 * lse**2
    return torch.where(keep, loss, 0 * loss).sum() / keep.sum()


def cross_kernel(
    x, w, y, chunk=64, count="kept", z=1e-3, smooth=0.1, stale=False, tail=False, own=False, kind=None, dn=0
):
    v = w.shape[0]
    m, s = torch.full((x.shape[0],), -INF), torch.zeros(x.shape[0])
    total, target = torch.zeros(x.shape[0]), torch.zeros(x.shape[0])
    for j in range(0, v - v % chunk if tail else v, chunk):
        part = split_rows(x, w[j : j + chunk])
        part = narrow(part, kind) if kind else part
        new = torch.maximum(m, part.amax(-1))
        s = s * (1 if stale else torch.exp(m - new)) + torch.exp(part - new[:, None]).sum(-1)
        m, total = new, total + part.sum(-1)
        here = (y >= j) & (y < j + part.shape[1])
        got = part.gather(1, (y - j).clamp(0, part.shape[1] - 1)[:, None])[:, 0]
        target = torch.where(here, got, target)
    lse = m + torch.log(s)
    keep = (y != -100) if not own else (y >= -100)
    loss = (1 - smooth) * (lse - target) + smooth * (lse - total / (v - dn)) + z * lse**2
    return loss[keep].sum() / (keep.sum() if count == "kept" else x.shape[0])


def split_rows(x, w):
    return x @ w.T


add(
    "chunked_cross_entropy",
    cross_entropy,
    lambda d: (d(40, 32, shift=0.3), d(200, 32, scale=0.5, shift=0.3), labels(d, 40, 200, (3, 17, 18))),
    cross_kernel,
    right={"chunks of 64": {}, "chunks of 50": {"chunk": 50}, "in double": wide(cross_entropy)},
    wrong={
        "the mean is over the ignored ones, too": {"count": "all"},
        "ignored ones are kept": {"own": True},
        "the sum is not rescaled by a new maximum": {"stale": True},
        "the last chunk, which is not full, is lost": {"tail": True},
        "the square's factor is 1e-4": {"z": 1e-4},
        "smoothing divides by the other classes' number": {"dn": 1},
        "a chunk's logits are rounded to bf16": {"kind": bf},
    },
)


def nll_of(z, y):
    return F.cross_entropy(z, y, ignore_index=-100, label_smoothing=0.1)


def nll_grad(z, y):
    n, v = z.shape
    return gradients(lambda t: nll_of(t, y), 1)(z, torch.ones((), dtype=z.dtype))


def nll_kernel(z, y, smooth=0.1, others=False, count="kept", sign=1, kind=None, zero=True, lost=0):
    p = torch.exp(z - torch.logsumexp(z, -1, keepdim=True))
    p = narrow(p, kind) if kind else p
    keep = (y != -100)[:, None]
    hot = F.one_hot(y.clamp(min=0), z.shape[1]).float() * (1 - smooth) + smooth / (
        z.shape[1] - 1 if others else z.shape[1]
    )
    g = (p - sign * hot) / (keep.sum() if count == "kept" else y.shape[0])
    g = torch.where(keep, g, 0 * g) if zero else g
    if lost:
        g[:, -lost:] = p[:, -lost:] / keep.sum() * keep
    return (g,)


add(
    "cross_entropy_backward",
    nll_grad,
    lambda d: (logits(d, 24, 150), labels(d, 24, 150, (0, 9))),
    nll_kernel,
    right={"by the formula": {}, "in double": lambda z, y: tuple(t.float() for t in nll_grad(z.double(), y))},
    wrong={
        "the smoothing is among the other classes": {"others": True},
        "the mean is over all rows": {"count": "all"},
        "ignored rows have a gradient": {"zero": False},
        "no smoothing in the gradient": {"smooth": 0.0},
        "probabilities are rounded to bf16": {"kind": bf},
        "the last 22 columns know no target": {"lost": 22},
    },
)


def dpo(pc, pr, rc, rr):
    h = 0.1 * ((pc - pr) - (rc - rr))
    return -F.logsigmoid(h).mean(), 0.1 * (pc - rc), 0.1 * (pr - rr)


def dpo_kernel(pc, pr, rc, rr, beta=0.1, ref=True, sign=1, smooth=0.0, total=lanes, way="soft", reward=0.1):
    h = beta * ((pc - rc) - (pr - rr) if ref else pc - pr) * sign
    if way == "hinge":
        loss = torch.relu(1 - h)
    elif way == "log":
        loss = -torch.log(1 / (1 + torch.exp(-h)) + 1e-3)
    else:
        loss = (torch.log1p(torch.exp(-h.abs())) + torch.relu(-h)) * (1 - smooth) + F.softplus(h) * smooth
    return total(loss) / h.numel(), reward * (pc - rc), reward * (pr - rr)


add(
    "dpo",
    dpo,
    lambda d: (
        d(96, scale=20, shift=-150),
        d(96, scale=20, shift=-170),
        d(96, scale=20, shift=-155),
        d(96, scale=20, shift=-165),
    ),
    dpo_kernel,
    right={"softplus by hand": {}, "halves": {"total": halves}, "in double": wide(dpo)},
    wrong={
        "no reference in the margin": {"ref": False},
        "a hinge": {"way": "hinge"},
        "an epsilon inside the logarithm": {"way": "log"},
        "one tenth of the labels are turned": {"smooth": 0.1},
        "rewards are not scaled": {"reward": 1.0},
    },
)


def grpo(new, old, ref, adv, mask):
    r = torch.exp(new - old)
    a = adv[:, None]
    s = torch.minimum(r * a, r.clamp(0.8, 1.28) * a)
    k = torch.exp(ref - new) - (ref - new) - 1
    return -(((s - 0.04 * k) * mask).sum(1) / mask.sum(1)).mean()


def grpo_kernel(new, old, ref, adv, mask, high=1.28, kl="third", mean="rows", pick="min", side=1, off=0.04):
    d = new - old
    r, a = torch.exp(d), adv[:, None]
    c = torch.clamp(r, 0.8, high)
    s = torch.minimum(r * a, c * a) if pick == "min" else torch.maximum(r * a, c * a) if pick == "max" else c * a
    x = (ref - new) * side
    k = torch.expm1(x) - x if kl == "third" else -x if kl == "first" else 0.5 * x * x
    t = (s - off * k) * mask
    if mean == "tokens":
        return -t.sum() / mask.sum()
    if mean == "length":
        return -(t.sum(1) / mask.shape[1]).mean()
    return -halves(halves(t) / mask.sum(1)) / t.shape[0]


def steps_mask(d, n, t):
    return (torch.arange(t)[None] < d.ints(t - 4, n)[:, None] + 4).float()


add(
    "grpo",
    grpo,
    lambda d: (
        d(16, 40, shift=-1.5) * 0.3,
        (lambda x: x + d(16, 40, scale=0.2))(d.__class__("fourteenth_grpo")(16, 40, shift=-1.5) * 0.3),
        (lambda x: x + d(16, 40, scale=0.3))(d.__class__("fourteenth_grpo")(16, 40, shift=-1.5) * 0.3),
        d(16),
        steps_mask(d, 16, 40),
    ),
    grpo_kernel,
    right={"expm1, halves": {}, "in double": wide(grpo)},
    wrong={
        "the upper clip is 1.2": {"high": 1.2},
        "the greater of both": {"pick": "max"},
        "only what is clipped": {"pick": "clip"},
        "the mean is over tokens": {"mean": "tokens"},
        "rows divide by the longest length": {"mean": "length"},
        "the estimate of the divergence is the first order's": {"kl": "first"},
        "the divergence is taken the other way": {"side": -1},
        "the divergence is half a square, at near equal models": {"kl": "second", "off": 0.04},
    },
)


def focal(x, y):
    p = torch.sigmoid(x)
    ce = F.binary_cross_entropy_with_logits(x, y, reduction="none")
    pt = p * y + (1 - p) * (1 - y)
    return ((0.25 * y + 0.75 * (1 - y)) * (1 - pt) ** 2 * ce).sum() / y.sum().clamp(min=1)


def focal_kernel(x, y, alpha=0.25, gamma=2, swap=False, one=False, mean=False, eps=0.0, bare=False):
    z = torch.where(y > 0.5, x, -x)
    q = torch.sigmoid(z if one else -z)
    ce = -torch.log(torch.sigmoid(z) + eps) if eps else F.softplus(-z)
    at = torch.where(y > 0.5, 1 - alpha if swap else alpha, alpha if swap else 1 - alpha)
    loss = (1 if bare else at) * q**gamma * ce
    return halves(loss.flatten()) / (x.numel() if mean else y.sum())


add(
    "focal",
    focal,
    lambda d: (d(500, 8, scale=2.0, shift=-3), (d.rand(500, 8) < 0.03).float()),
    focal_kernel,
    right={"by the signed logit": {}, "in double": wide(focal)},
    wrong={
        "alpha and one less alpha are exchanged": {"swap": True},
        "the power is of the right class's probability": {"one": True},
        "gamma is 1.5": {"gamma": 1.5},
        "the mean is over all elements": {"mean": True},
        "alpha is left out": {"bare": True},
    },
)


def dice(x, y):
    p = torch.sigmoid(up(x))
    i, s = (p * y).sum((1, 2)), p.sum((1, 2)) + y.sum((1, 2))
    return (1 - (2 * i + 1) / (s + 1)).to(x.dtype)


def dice_kernel(x, y, smooth=1.0, above=True, square=False, two=2, batch=False, low=0, kind=None):
    p = 1 / (1 + torch.exp(-x))
    i = lanes((p * y).flatten(1))
    s = lanes(p.flatten(1) ** 2) + lanes(y.flatten(1)) if square else lanes(p.flatten(1) + y.flatten(1))
    if batch:
        i, s = i.mean(0, keepdim=True).expand_as(i), s.mean(0, keepdim=True).expand_as(s)
    return 1 - (two * i + (smooth if above else 0)) / (s + smooth)


add(
    "dice",
    dice,
    lambda d: (d(6, 24, 24, dtype=hf, scale=3), (d.rand(6, 24, 24) < 0.3).float()),
    dice_kernel,
    dtype=hf,
    right={"one sum of both": {}},
    wrong={
        "the denominator has squares": {"square": True},
        "the intersection is counted once": {"two": 1},
        "sums are over the batch": {"batch": True},
        "smoothing is 100": {"smooth": 100.0},
    },
)


def distil(s, t):
    ls, lt = F.log_softmax(s / 2, -1), F.log_softmax(t / 2, -1)
    return (lt.exp() * (lt - ls)).sum(-1).mean() * 4


def distil_kernel(s, t, side=False, temperature=True, square=4.0, mean="rows", soft=False):
    c = 0.5 if temperature else 1.0
    one = lambda z: z * c - torch.logsumexp(z * c, -1, keepdim=True)
    ls, lt = one(s), t.mul(c).softmax(-1).add(1e-4).log() if soft else one(t)
    ls, lt = (lt, ls) if side else (ls, lt)
    k = lanes(torch.exp(lt) * (lt - ls))
    return (k.sum() / (s.numel() if mean == "all" else s.shape[0])) * square


add(
    "distillation",
    distil,
    lambda d: (logits(d, 20, 300), logits(d, 20, 300)),
    distil_kernel,
    right={"lanes": {}, "in double": wide(distil)},
    wrong={
        "the divergence the other way": {"side": True},
        "the squared temperature is left out": {"square": 1.0},
        "the mean is over all elements": {"mean": "all"},
        "the logits have no temperature": {"temperature": False},
        "an epsilon inside the teacher's logarithm": {"soft": True},
    },
)


def clip_loss(a, b):
    a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
    s = a @ b.T * 20
    y = torch.arange(a.shape[0])
    return (F.cross_entropy(s, y) + F.cross_entropy(s.T, y)) / 2


def clip_kernel(a, b, one=False, scale=20.0, norm=True, half=True, hard=False, kind=None):
    n = lambda t: t * torch.rsqrt((t * t).sum(-1, keepdim=True)) if norm else t / t.shape[-1] ** 0.5
    s = n(a) @ n(b).T * scale
    s = narrow(s, kind) if kind else s
    d = s.diagonal()
    t = s.masked_fill(torch.eye(len(s)).bool(), -INF) if hard else s
    r, c = t.amax(1), t.amax(0)
    rows, cols = torch.exp(t - r[:, None]).sum(1).log() - (d - r), torch.exp(t - c).sum(0).log() - (d - c)
    return (rows if one else (rows + cols) * (0.5 if half else 1)).mean()


add(
    "contrastive",
    clip_loss,
    lambda d: (lambda x: (x, x + d(32, 24)))(d(32, 24)),
    clip_kernel,
    right={"rows and columns of one product": {}, "in double": wide(clip_loss)},
    wrong={
        "rows alone": {"one": True},
        "both directions are added, not averaged": {"half": False},
        "the temperature is 0.07": {"scale": 1 / 0.07},
        "vectors are not normed": {"norm": False},
        "the positive is left out of the denominator": {"hard": True},
        "similarities are rounded to bf16": {"kind": bf},
    },
)


def huber(x, y):
    return F.smooth_l1_loss(x, y, beta=0.5, reduction="none")


def huber_kernel(x, y, beta=0.5, huber=False, less=0.5, edge=None):
    d = (x - y).abs()
    inner = 0.5 * d * d / (1 if huber else beta)
    outer = beta * (d - 0.5 * beta) if huber else d - less * beta
    return torch.where(d < (edge or beta), inner, outer)


add(
    "smooth_l1",
    huber,
    lambda d: (d(3000), d(3000, scale=0.8)),
    huber_kernel,
    right={"by a choice": {}, "in double": wide(huber)},
    wrong={
        "Huber's, which is not divided by beta": {"huber": True},
        "the line lacks half of beta": {"less": 0.0},
        "the change is at one": {"edge": 1.0},
    },
)


def entropy(x, y):
    z = up(x)
    lp = F.log_softmax(z / 0.7, -1)
    return lp.gather(1, y[:, None])[:, 0], -(lp.exp() * lp).sum(-1)


def entropy_kernel(x, y, t=0.7, late=False, base=1.0, shift=0, total=lanes, kind=None, fast=False):
    z = x if late else x / t
    m = z.amax(-1, keepdim=True)
    e = torch.exp(z - m)
    e = narrow(e, kind) if kind else e
    s = total(e)
    at = (y + shift) % x.shape[1]
    lp = (z - m).gather(1, at[:, None])[:, 0] - torch.log(s)
    return lp / (t if late else 1), (torch.log(s) - total(e * (z - m)) / s) * base


add(
    "log_probabilities",
    entropy,
    lambda d: (logits(d, 16, 1200), d.ints(1200, 16)),
    entropy_kernel,
    right={"entropy by the mean logit": {}, "pairs of halves": {"total": halves}},
    wrong={
        "the temperature divides the result": {"late": True},
        "the token read is the next": {"shift": 1},
        "entropy in bits": {"base": 1 / math.log(2)},
        "exponentials are kept in bf16": {"kind": bf},
        "sums are kept in fp16": {"total": lambda t: serial(t, hf)},
        "hides: sums keep 18 bits": {"total": lambda t: trimmed(lanes(t), 18)},
    },
)
