# SPDX-License-Identifier: Apache-2.0
"""Set L: losses: linear cross entropy by chunks, preference and policy losses, divergences."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, narrow
from .blind_ninth_a import bad, grads, ninth, ok

# ------------------------------------------------------------------ linear cross entropy


def ce_args(d):
    t = d.ints(1000, 90)
    t[d.rand(90) < 0.2] = -100
    return d(90, 64), d(1000, 64, scale=0.2), t


@ninth(ce_args)
def ninth_linear_ce(h, w, t):
    return F.cross_entropy(h @ w.T, t)


def linear_ce(h, w, t, chunk=256, end=1000, rows=90, over="valid", kind=None, pad=0, masked=0.0, back=False):
    valid = t != -100
    losses, counts = [], []
    for r in range(0, 90, rows):
        hr, tr, ok_ = h[r : r + rows], t[r : r + rows].clamp(min=0), valid[r : r + rows]
        top = torch.full((len(hr),), -math.inf)
        total = torch.zeros(len(hr))
        starts = list(range(0, end, chunk))
        for c in reversed(starts) if back else starts:
            s = hr @ w[c : min(c + chunk, end)].T
            new = torch.maximum(top, s.amax(-1))
            total = total * (top - new).exp() + (s - new[:, None]).exp().sum(-1)
            top = new
        total = total + pad * (-top).exp()
        target = (hr * w[tr]).sum(-1)
        target = target if kind is None else narrow(target, kind)
        loss = total.log() + top - target
        losses.append(torch.where(ok_, loss, masked * (total.log() + top)).sum())
        counts.append(ok_.sum())
    if over == "chunks":
        return sum(a / n for a, n in zip(losses, counts, strict=True)) / len(losses)
    return sum(losses) / (sum(counts) if over == "valid" else 90)


ok(
    ninth_linear_ce,
    linear_ce,
    chunks_of_the_vocabulary={},
    backwards_by_100={"chunk": 100, "back": True},
    chunks_of_rows={"rows": 16, "chunk": 512},
)
bad(
    ninth_linear_ce,
    linear_ce,
    {
        # the mean counts what is ignored
        "the mean is over all tokens": {"over": "all"},
        # mean of means of chunks with unequal counts
        "hides: the chunks' means are averaged": {"over": "chunks", "rows": 30},
        # 1000 % 256 columns are lost
        "the last chunk of the vocabulary is left out": {"end": 768},
        # 24 padded columns of logit zero take part
        "hides: padded columns enter the sum": {"pad": 24},
        # the last token of the vocabulary does not enter
        "hides: the last word of the vocabulary is left out": {"end": 999},
        # ignored tokens add their logsumexp
        "ignored tokens add their logsumexp": {"masked": 1.0},
        # the logit of the target comes from a bfloat16 product
        "hides: the target's logit is rounded to bfloat16": {"kind": bf},
    },
)


@ninth(ce_args)
def ninth_linear_ce_grad(h, w, t):
    return grads(lambda h, w: F.cross_entropy(h @ w.T, t), h, w)


def linear_ce_grad(h, w, t, rows=30, kind=None, logits=None, last=True, n=None):
    valid = t != -100
    n = n or valid.sum()
    dh, dw = [], torch.zeros_like(w)
    for r in range(0, 90, rows):
        hr, tr, good = h[r : r + rows], t[r : r + rows].clamp(min=0), valid[r : r + rows]
        s = hr @ w.T
        s = s if logits is None else narrow(s, logits)
        p = torch.softmax(s, -1)
        if last or r + rows < 90:
            p = p.scatter_add(1, tr[:, None], torch.full((len(tr), 1), -1.0))
        p = torch.where(good[:, None], p, 0.0) / n
        dh.append(p @ w)
        dw = dw + p.T @ hr
        dw = dw if kind is None else narrow(dw, kind)
    return torch.cat(dh), dw


ok(ninth_linear_ce_grad, linear_ce_grad, chunks_of_30_rows={}, chunks_of_7_rows={"rows": 7})
bad(
    ninth_linear_ce_grad,
    linear_ce_grad,
    {
        # dw lives in bfloat16 between chunks
        "hides: the gradient of the weight is added in bfloat16": {"kind": bf},
        # same in float16
        "hides: the gradient of the weight is added in float16": {"kind": hf},
        # logits in bfloat16
        "hides: logits are stored in bfloat16": {"logits": bf},
        # no one-hot for the last chunk
        "the last chunk does not take the label off": {"last": False},
        # over 90
        "the gradient is over all tokens": {"n": 90},
    },
)


# ------------------------------------------------------------------ smoothing, z-loss, far logits nearly equal


@ninth(lambda d: (d(64, 300, scale=0.5, shift=90.0), d.ints(300, 64)))
def ninth_smooth_z(x, t):
    lse = torch.logsumexp(x, -1)
    nll = lse - x.gather(1, t[:, None])[:, 0]
    return 0.9 * nll + 0.1 * (lse - x.mean(-1)) + 1e-4 * lse * lse


def smooth_z(x, t, eps=0.1, zs=1.0, n=300, z_top=True, parts=1):
    top = x.amax(-1)
    y = x - top[:, None]
    log = sum(c.exp().sum(-1) for c in y.chunk(parts, -1)).log()
    nll = log - y.gather(1, t[:, None])[:, 0]
    z = log + top if z_top else log
    return (1 - eps) * nll + eps * (log - y.sum(-1) / n) + 1e-4 * zs * z * z


ok(ninth_smooth_z, smooth_z, maximum_taken_off={}, in_six_parts={"parts": 6})
bad(
    ninth_smooth_z,
    smooth_z,
    {
        # the z-loss lacks the maximum
        "the maximum is missing in the z-loss": {"z_top": False},
        # eps / (V - 1)
        "hides: the smoothing mean is over V - 1": {"n": 299},
        # twice from forward and backward
        "hides: the z-loss weighs 2 percent more": {"zs": 1.02},
        # 0.1 in bfloat16
        "hides: the smoothing is 0.1 in bfloat16": {"eps": 0.10009765625},
    },
)


# ------------------------------------------------------------------ preference


@ninth(lambda d: (d(400, scale=40, shift=-600), d(400, scale=40, shift=-600), d(400, shift=-600), d(400, shift=-600)))
def ninth_preference(pc, pr, rc, rr):
    return -F.logsigmoid(0.1 * ((pc - pr) - (rc - rr)))


def preference(pc, pr, rc, rr, beta=0.1, kind=None, way="stable", sign=1.0, floor=0.0):
    if kind:
        pc, pr = narrow(pc, kind), narrow(pr, kind)
    z = beta * ((pc - pr) - sign * (rc - rr))
    if way == "log":
        return -torch.log(1 / (1 + (-z).exp()) + floor)
    if way == "grouped":
        z = beta * ((pc - rc) - (pr - rr))
    return (-z).clamp(min=0) + torch.log1p((-z.abs()).exp())


ok(ninth_preference, preference, log1p={}, grouped_the_other_way={"way": "grouped"})
bad(
    ninth_preference,
    preference,
    {
        # the reference's margin is added
        "the reference's margin is added": {"sign": -1.0},
        # log-probabilities in bfloat16
        "hides: log-probabilities in bfloat16": {"kind": bf},
        # log(1 / (1 + e)) loses what is near one
        "hides: log of the sigmoid": {"way": "log"},
        # an epsilon in the log
        "hides: 1e-7 inside the log": {"way": "log", "floor": 1e-7},
    },
)


# ------------------------------------------------------------------ policy loss with clipping and k3


def grpo_args(d):
    mask = torch.arange(64)[None] < torch.tensor([64, 50, 17, 1, 64, 33, 8, 60])[:, None]
    old = d(8, 64, scale=1, shift=-2)
    return old + d(8, 64, scale=0.2), old, old + d(8, 64, scale=0.1), d.rand(8), mask


@ninth(grpo_args)
def ninth_grpo(new, old, ref, reward, mask):
    a = ((reward - reward.mean()) / (reward.std() + 1e-4))[:, None]
    ratio = (new - old).exp()
    loss = -torch.minimum(ratio * a, ratio.clamp(0.8, 1.28) * a)
    kl = (ref - new).exp() - (ref - new) - 1
    per = torch.where(mask, loss + 0.04 * kl, 0.0)
    return (per.sum(-1) / mask.sum(-1)).mean(), kl


def grpo(
    new, old, ref, reward, mask, low=0.8, high=1.28, bias=0, pick=torch.minimum, tokens=False, kl="k3", first=False
):
    c = reward - reward.mean()
    a = (c / ((c * c).sum() / (7 + bias)).sqrt().add(1e-4))[:, None]
    ratio = 1 + new - old if first else (new - old).exp()
    loss = -pick(ratio * a, ratio.clamp(low, high) * a)
    r = ref - new
    k = {"k3": torch.expm1(r) - r, "k2": r * r / 2, "series": r * r / 2 + r**3 / 6}[kl]
    per = torch.where(mask, loss + 0.04 * k, 0.0)
    if tokens:
        return per.sum() / mask.sum(), k
    return (per.sum(-1) / mask.sum(-1)).sum() / 8, k


ok(ninth_grpo, grpo, by_expm1={})
bad(
    ninth_grpo,
    grpo,
    {
        # clip(1 - 0.28, 1 + 0.2)
        "the two clips are swapped": {"low": 0.72, "high": 1.2},
        # n for n - 1
        "the rewards' deviation is the biased one": {"bias": 1},
        # max
        "the larger of the two is taken": {"pick": torch.maximum},
        # mean over tokens
        "the mean is over all tokens": {"tokens": True},
        # r^2 / 2 for small r
        "hides: the divergence by its first term": {"kl": "k2"},
        # two terms
        "hides: the divergence by two terms": {"kl": "series"},
    },
)


# ------------------------------------------------------------------ divergences of what is nearly equal


def nearly(d):
    x = d(80, 100)
    return x + d(80, 100, scale=0.2), x


@ninth(nearly)
def ninth_distill(s, t):
    return F.kl_div(F.log_softmax(s / 2, -1), F.log_softmax(t / 2, -1), reduction="batchmean", log_target=True) * 4


def distill(s, t, times=4.0, turned=False, div=80, way="log", kind=None):
    a, b = F.log_softmax(s / 2, -1), F.log_softmax(t / 2, -1)
    if kind:
        a, b = narrow(a, kind), narrow(b, kind)
    a, b = (b, a) if turned else (a, b)
    d = a - b
    term = b.exp() * (torch.expm1(d) - d) if way == "series" else b.exp() * (b - a)
    return term.sum() * times / div


ok(ninth_distill, distill, log_probabilities={}, without_cancellation={"way": "series"})
bad(
    ninth_distill,
    distill,
    {
        # T^2 forgotten
        "the square of the temperature is left out": {"times": 1.0},
        # nearly the same where both are near
        "hides: student and teacher are swapped": {"turned": True},
        # mean over elements
        "the mean is over elements": {"div": 8000},
        # log-probabilities in float16: their error is larger than the difference
        "hides: log-probabilities in float16": {"kind": hf},
    },
)


@ninth(lambda d: (d(60, 40, scale=30), (d.rand(60, 40) > 0.5).float(), d.rand(40) * 3))
def ninth_bce(x, y, w):
    return F.binary_cross_entropy_with_logits(x, y, pos_weight=w, reduction="none")


def bce(x, y, w, way="stable", both=False, cap=math.inf):
    if way == "log1p":
        soft = torch.log1p((-x).exp())
    elif way == "prob":
        p = torch.sigmoid(x)
        return -(w * y * (p + 1e-12).log() + (1 - y) * (1 - p + 1e-12).log())
    else:
        soft = torch.log1p((-x.abs()).exp()) + (-x).clamp(0, cap)
    factor = w if both else 1 + (w - 1) * y
    return (1 - y) * x + factor * soft


ok(
    ninth_bce,
    bce,
    two_sides=lambda x, y, w: -w * y * F.logsigmoid(x) - (1 - y) * F.logsigmoid(-x),
)
bad(
    ninth_bce,
    bce,
    {
        # overflow of exp(-x) below -88
        "hides: log1p of exp(-x) overflows": {"way": "log1p"},
        # probabilities with an epsilon
        "hides: through probabilities with 1e-12": {"way": "prob"},
        # pos_weight for both
        "the weight of positives weighs negatives": {"both": True},
        # as F.binary_cross_entropy clamps, at 80
        "hides: clamped at 80": {"cap": 80.0},
    },
)


@ninth(lambda d: (d(48, 32), d(48, 32)))
def ninth_contrast(a, b):
    a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
    s, t = a @ b.T / 0.07, torch.arange(48)
    return (F.cross_entropy(s, t) + F.cross_entropy(s.T, t)) / 2


def contrast(a, b, both=True, temp=0.07, own=0, eps=0.0, kind=None):
    a, b = a / (a.square().sum(-1, keepdim=True) + eps).sqrt(), b / (b.square().sum(-1, keepdim=True) + eps).sqrt()
    if kind:
        a, b = narrow(a, kind), narrow(b, kind)
    s = (a @ b.T) / temp
    d = s.diagonal()
    if own:
        drop = torch.eye(48) > 0
        drop[own:] = False
        s = s.masked_fill(drop, -math.inf)
    rows, cols = torch.logsumexp(s, 1) - d, torch.logsumexp(s, 0) - d
    return (rows.mean() + cols.mean()) / 2 if both else rows.mean()


ok(ninth_contrast, contrast, by_the_diagonal={})
bad(
    ninth_contrast,
    contrast,
    {
        # image to text only
        "only one direction": {"both": False},
        # the first tile leaves its diagonal out
        "hides: the first two rows leave themselves out of the sum": {"own": 2},
        # eps in the norm
        "hides: 1e-3 added to the squared norm": {"eps": 1e-3},
        # vectors in bfloat16
        "hides: unit vectors in bfloat16": {"kind": bf},
    },
)


@ninth(lambda d: (d(500, scale=2), d(500, scale=2)))
def ninth_huber(x, y):
    return F.huber_loss(x, y, delta=1.5, reduction="none")


def huber(x, y, delta=1.5, half=0.5, at=1.5, smooth=False):
    e = (x - y).abs()
    if smooth:
        return torch.where(e < delta, 0.5 * e * e / delta, e - 0.5 * delta)
    m = e.clamp(max=delta)
    return torch.where(e <= at, 0.5 * e * e, m * (e - half * m))


ok(ninth_huber, huber, by_the_clamp={})
bad(
    ninth_huber,
    huber,
    {
        # smooth_l1 with beta
        "smooth L1 instead": {"smooth": True},
        # the linear part begins 0.1 too early: few elements, little difference
        "hides: the linear part begins at 1.6": {"at": 1.6},
        # 0.5 delta
        "half of delta is not taken off": {"half": 0.0},
    },
)


@ninth(lambda d: (d(40, 128), d(40, 128, scale=1e-3)))
def ninth_near_cosine(a, n):
    return 1 - F.cosine_similarity(a, a + n)


def near_cosine(a, n, way="direct", kind=None, eps=0.0):
    b = a + n
    if kind:
        b = narrow(b, kind)
    u = a / a.norm(dim=-1, keepdim=True)
    v = b / b.norm(dim=-1, keepdim=True)
    return 0.5 * (u - v).square().sum(-1) + eps if way == "chord" else 1 - (u * v).sum(-1) + eps


ok(ninth_near_cosine, near_cosine, by_unit_vectors={}, half_the_squared_chord={"way": "chord"})
bad(
    ninth_near_cosine,
    near_cosine,
    {
        # a bfloat16 copy of one side
        "hides: one side in bfloat16": {"kind": bf},
        # 1e-5 for safety
        "hides: 1e-5 added for safety": {"eps": 1e-5},
        # a similarity above one, not clamped
        "hides: minus two millionths everywhere": lambda a, n: a[:, 0] * 0 - 2e-6,
    },
)


@ninth(lambda d: (d(64, 20), d.ints(20, 64), torch.tensor([0.25] * 10 + [2.0] * 10)))
def ninth_focal(x, t, alpha):
    lp = F.log_softmax(x, -1).gather(1, t[:, None])[:, 0]
    return (alpha[t] * (1 - lp.exp()) ** 2 * -lp).sum() / alpha[t].sum()


def focal(x, t, alpha, gamma=2.0, over="weights", eps=0.0, shift=0):
    e = (x - x.amax(-1, keepdim=True)).exp()
    p = e.gather(1, t[:, None])[:, 0] / e.sum(-1)
    loss = alpha[(t + shift).clamp(max=19)] * (1 - p) ** gamma * -(p + eps).log()
    return loss.sum() / (alpha[t].sum() if over == "weights" else 64)


ok(ninth_focal, focal, by_probabilities={})
bad(
    ninth_focal,
    focal,
    {
        # mean over samples
        "the mean is over samples": {"over": "n"},
        # alpha of the next class: differs for one class of twenty
        "hides: alpha of the next class": {"shift": 1},
        # 1e-4 in the log
        "hides: 1e-4 inside the log": {"eps": 1e-4},
    },
)
