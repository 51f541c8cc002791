# SPDX-License-Identifier: Apache-2.0
"""Set E, written blind: losses."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, honest, mistake
from .blind_fifth_a import INF, cut, fifth, rights, wide, wrongs


def labels(d, rows, classes, ignored):
    y = d.ints(classes, rows)
    y[ignored] = -100
    return y


# ------------------------------------------------------------------ cross entropy


@fifth(lambda d: (d(24, 1000, scale=3.0, shift=-4.0), labels(d, 24, 1000, [3, 4, 20])))
def z_loss_cross_entropy(x, y, z=1e-2):
    lse = x.logsumexp(-1)
    live = y != -100
    picked = x.gather(-1, y.clamp(min=0)[:, None])[:, 0]
    return ((lse - picked + z * lse.square()) * live).sum() / live.sum()


def ce_tiles(
    x,
    y,
    z=1e-2,
    tile=128,
    stale=False,
    drop=False,
    pad=0,
    everyone=False,
    mean_z=False,
    ignored_z=False,
    low=None,
    off=0,
    use=True,
):
    x_ = F.pad(x, (0, pad)) if pad else x
    m = torch.full((len(x), 1), -INF)
    s, picked = torch.zeros_like(m), torch.zeros(len(x))
    for at in range(0, 1000 // tile * tile if drop else x_.shape[1], tile):
        part = x_[:, at : at + tile]
        new = torch.maximum(m, part.amax(-1, keepdim=True))
        s = (s if stale else s * (m - new).exp()) + cut((part - new).exp().sum(-1, keepdim=True), low)
        m = new
        here = (y + off >= at) & (y + off < at + part.shape[1])
        picked = torch.where(here, part.gather(-1, (y + off - at).clamp(0, part.shape[1] - 1)[:, None])[:, 0], picked)
    lse = (m + s.log())[:, 0]
    live = y != -100
    n = len(y) if everyone else live.sum()
    if mean_z:
        return ((lse - picked) * live).sum() / n + z * ((lse * live).sum() / n).square()
    loss = ((lse - picked) * live).sum() / n
    return loss + z * (lse.square().mean() if ignored_z else (lse.square() * live).sum() / n if use else 0.0)


honest(z_loss_cross_entropy, "tiles of 128 classes with a running maximum", ce_tiles)
honest(z_loss_cross_entropy, "tiles of 96 classes", lambda *a: ce_tiles(*a, tile=96))
wrongs(
    z_loss_cross_entropy,
    ce_tiles,
    {
        "the running sum is not rescaled when the maximum grows": {"stale": True},
        "the last tile, 104 of 128 classes, is dropped": {"drop": True},
        "24 padded classes with logit 0 join the sum": {"pad": 24},
        "ignored rows count in the mean's denominator": {"everyone": True},
        "the z loss squares the mean log sum, not each row's": {"mean_z": True},
        "ignored rows count in the z loss": {"ignored_z": True},
        "a tile's sum of exponentials is kept in bf16": {"low": bf},
        "the label is read one class too far": {"off": 1},
        "the z loss is left out": {"use": False},
    },
)


@fifth(lambda d: (d(30, 50, dtype=bf, scale=2.0), labels(d, 30, 50, [0, 9]), d.rand(50) + 0.3))
def smooth_weighted_cross_entropy(x, y, w):
    return F.cross_entropy(x.float(), y, w.to(x.float().dtype), label_smoothing=0.1)


def smooth_kernel(x, y, w, eps=0.1, classes=50, others=False, plain=False, even=False, total=False, unweighted=False):
    x = x.float()
    logp = x - x.logsumexp(-1, keepdim=True)
    live = y != -100
    t = y.clamp(min=0)
    hit, ww = -logp.gather(1, t[:, None])[:, 0], torch.ones_like(w) if unweighted else w
    flat = -(logp * (torch.ones_like(w) if even else ww)).sum(1)
    wt = ww[t] * live
    if others:
        flat, classes = flat - ww[t] * hit, 49
    loss = ((1 - eps) * wt * hit + eps / classes * flat * live).sum()
    return loss if total else loss / (live.sum() if plain else wt.sum())


honest(smooth_weighted_cross_entropy, "by log sums, added at the end", smooth_kernel)
honest(
    smooth_weighted_cross_entropy,
    "in double precision",
    lambda x, y, w: F.cross_entropy(x.double(), y, w.double(), label_smoothing=0.1).float(),
)
for words, keys in {
    "the smoothing goes to the other 49 classes only": {"others": True},
    "the mean divides by the number of rows, not by the sum of weights": {"plain": True},
    "class weights are left out of the smoothing term": {"even": True},
    "the loss is the sum, not the mean": {"total": True},
    "class weights are left out altogether": {"unweighted": True},
    "smoothing 0.1 is divided by 64 padded classes": {"classes": 64},
}.items():
    mistake(smooth_weighted_cross_entropy, words, lambda *a, keys=keys: smooth_kernel(*a, **keys))


@fifth(lambda d: (d(20, 300, dtype=hf, scale=3.0), labels(d, 20, 300, [5, 6])))
def ignoring_ce_gradient(x, y):
    live = (y != -100)[:, None]
    p = x.float().softmax(-1)
    p = p - F.one_hot(y.clamp(min=0), 300)
    return (p * live / live.sum()).to(x.dtype)


def ce_gradient(x, y, every=False, plain=False, off=0, low=None, minus=1.0, keep=False):
    e = cut((x - x.amax(-1, keepdim=True)).exp(), low)
    p = e / e.sum(-1, keepdim=True)
    live = (y != -100)[:, None]
    at = (y.clamp(min=0)[:, None] + off) % 300
    p = p.scatter_add(1, at, torch.full_like(p[:, :1], -minus))
    p = p if keep else p * live
    return p if plain else p / (20 if every else live.sum())


rights(ignoring_ce_gradient, ce_gradient, {"float32 inside": {}})
honest(
    ignoring_ce_gradient,
    "automatic differentiation in float32",
    lambda x, y: (lambda z: torch.autograd.grad(F.cross_entropy(z, y), z)[0].to(x.dtype))(x.float().requires_grad_()),
)
wrongs(
    ignoring_ce_gradient,
    ce_gradient,
    {
        "the gradient divides by all 20 rows, not by the 18 that count": {"every": True},
        "the gradient is not divided by the number of rows": {"plain": True},
        "the 1 is taken off one class too far": {"off": 1},
        "ignored rows get a gradient": {"keep": True},
        "the label's 1 is not taken off": {"minus": 0.0},
    },
)

# ------------------------------------------------------------------ preference and policy losses


def pairs(d):
    mask = torch.arange(14) < torch.tensor([14, 9, 11, 5])[:, None]
    return (*(-d.rand(4, 14) * 3 for _ in range(4)), mask, mask.flip(0))


@fifth(pairs)
def dpo_loss(chosen, rejected, ref_chosen, ref_rejected, mc, mr, beta=0.1):
    margin = ((chosen - ref_chosen) * mc).sum(-1) - ((rejected - ref_rejected) * mr).sum(-1)
    return -F.logsigmoid(beta * margin).mean(), beta * ((chosen - ref_chosen) * mc).sum(-1)


def dpo_kernel(
    a, b, ra, rb, ma, mb, beta=0.1, mean=False, masked=True, ref=True, shared=False, skip=0, plain=False, sign=1.0
):
    mb = ma if shared else mb
    if not masked:
        ma, mb = torch.ones_like(ma), torch.ones_like(mb)

    def score(x, m):
        x = torch.where(m, x, 0.0)[:, skip:]
        return x.sum(-1) / m.sum(-1) if mean else x.sum(-1)

    wa, wb = score(a, ma) - ref * score(ra, ma), score(b, mb) - ref * sign * score(rb, mb)
    margin = wa - wb if not plain else wa
    return torch.logaddexp(torch.zeros(()), -beta * margin).mean(), beta * wa


honest(dpo_loss, "sums first, then differences", dpo_kernel)
honest(dpo_loss, "in double precision", wide(dpo_loss, torch.float64))
wrongs(
    dpo_loss,
    dpo_kernel,
    {
        "log probabilities are averaged over tokens, not summed": {"mean": True},
        "padding tokens are summed too": {"masked": False},
        "the rejected answer takes the chosen one's mask": {"shared": True},
        "the reference model is left out": {"ref": 0.0},
        "the first token of each answer is left out": {"skip": 1},
        "the reference's rejected score has the wrong sign": {"sign": -1.0},
        "beta is 1 instead of 0.1": {"beta": 1.0},
    },
)


def rollouts(d):
    mask = torch.arange(20) < torch.tensor([20, 12, 15, 7, 20, 3, 18, 11])[:, None]
    old = -d.rand(8, 20) * 2
    return old + d(8, 20, scale=0.2), old, old + d(8, 20, scale=0.3), d.rand(8), mask


@fifth(rollouts)
def grpo_asymmetric(logp, old, ref, reward, mask, low=0.2, high=0.28, beta=0.04):
    r = reward.view(2, 4)
    adv = ((r - r.mean(-1, keepdim=True)) / (r.std(-1, keepdim=True) + 1e-4)).view(-1, 1)
    ratio = (logp - old).exp()
    gain = torch.minimum(ratio * adv, ratio.clamp(1 - low, 1 + high) * adv)
    kl = (ref - logp).exp() - (ref - logp) - 1
    return -(((gain - beta * kl) * mask).sum() / mask.sum())


def grpo_kernel(
    logp,
    old,
    ref,
    reward,
    mask,
    correction=1,
    whole=False,
    high=0.28,
    worst=True,
    flip=False,
    each=False,
    k1=False,
    std=True,
    unmasked=False,
    ratio=True,
    beta=0.04,
):
    r = reward.view(1, 8) if whole else reward.view(2, 4)
    adv = r - r.mean(-1, keepdim=True)
    if std:
        adv = adv / (r.std(-1, correction=correction, keepdim=True) + 1e-4)
    adv = adv.view(-1, 1)
    d = logp - old
    rho = d.exp() if ratio else 1 + d
    capped = rho.clamp(0.8, 1 + high)
    gain = torch.where((rho * adv < capped * adv) == worst, rho * adv, capped * adv)
    k = (ref - logp) * (-1 if flip else 1)
    kl = -k if k1 else torch.expm1(k) - k
    loss = gain - beta * kl
    m = torch.ones_like(mask) if unmasked else mask
    if each:
        return -((loss * m).sum(-1) / m.sum(-1)).mean()
    return -(loss * m).sum() / m.sum()


honest(grpo_asymmetric, "with expm1", grpo_kernel)
honest(grpo_asymmetric, "in double precision", wide(grpo_asymmetric, torch.float64))
wrongs(
    grpo_asymmetric,
    grpo_kernel,
    {
        "rewards are divided by the deviation over n, not n - 1": {"correction": 0},
        "advantages are taken over all 8 rewards, not within each group of 4": {"whole": True},
        "the upper clip is 1.2, not 1.28": {"high": 0.2},
        "the larger of clipped and unclipped gain is taken": {"worst": False},
        "the divergence's exponent has the wrong sign": {"flip": True},
        "each answer's mean is averaged, not the mean over all tokens": {"each": True},
        "the divergence is the plain log ratio": {"k1": True},
        "advantages are not divided by the deviation": {"std": False},
        "padding tokens count": {"unmasked": True},
        "the ratio is 1 plus the log ratio, not its exponential": {"ratio": False},
    },
)

# ------------------------------------------------------------------ other losses


@fifth(lambda d: (d(12, 200, dtype=bf, scale=3.0), d(12, 200, dtype=bf, scale=3.0)))
def distillation_loss(student, teacher, t=2.0):
    logp = (student.float() / t).log_softmax(-1)
    q = (teacher.float() / t).softmax(-1)
    return ((q * (q.log() - logp)).sum(-1) * t * t).to(student.dtype)


def distill_kernel(student, teacher, t=2.0, square=True, flip=False, base=1.0, entropy=True, mean=False, hot=False):
    a, b = (teacher, student) if flip else (student, teacher)
    a, b = a / t, b / (1.0 if hot else t)
    la, lb = a - a.logsumexp(-1, keepdim=True), b - b.logsumexp(-1, keepdim=True)
    kl = (lb.exp() * ((lb if entropy else 0.0) - la)) / base
    return (kl.mean(-1) if mean else kl.sum(-1)) * (t * t if square else 1.0)


rights(distillation_loss, distill_kernel, {"differences of logits less log sums": {}})
honest(
    distillation_loss,
    "torch's own in double precision",
    lambda s, t: (
        F.kl_div(
            (s.double() / 2).log_softmax(-1), (t.double() / 2).log_softmax(-1), log_target=True, reduction="none"
        ).sum(-1)
        * 4
    ).to(s.dtype),
)
wrongs(
    distillation_loss,
    distill_kernel,
    {
        "the factor of squared temperature is left out": {"square": False},
        "student and teacher are exchanged": {"flip": True},
        "logarithms are base 2": {"base": math.log(2)},
        "the teacher's entropy is left out": {"entropy": False},
        "the mean over classes instead of the sum": {"mean": True},
        "the temperature is not applied to the teacher": {"hot": True},
    },
)


@fifth(
    lambda d: (
        torch.cat((d(300, scale=3.0), torch.tensor([120.0, -130.0, 110.0, -105.0]))),
        torch.cat((d.ints(2, 300), torch.tensor([0, 1, 1, 0]))).float(),
    )
)
def sigmoid_focal_loss(x, y):
    p = torch.sigmoid(x)
    ce = x.clamp(min=0) - x * y + torch.log1p((-x.abs()).exp())
    pt = p * y + (1 - p) * (1 - y)
    return (0.25 * y + 0.75 * (1 - y)) * (1 - pt) ** 2 * ce


def focal(x, y, alpha=0.25, gamma=2.0, same=False, logs=False, eps=False, right=False):
    s = (2 * y - 1) * x
    miss = torch.sigmoid(s) if right else torch.sigmoid(-s)
    ce = -(torch.sigmoid(s).log()) if logs else torch.logaddexp(torch.zeros(()), -s)
    ce = -(torch.sigmoid(s).clamp(1e-7, 1 - 1e-7).log()) if eps else ce
    w = torch.full_like(y, alpha) if same else torch.where(y > 0, alpha, 1 - alpha)
    return w * miss**gamma * ce


honest(sigmoid_focal_loss, "by the signed logit", focal)
honest(sigmoid_focal_loss, "in double precision", wide(focal, torch.float64))
wrongs(
    sigmoid_focal_loss,
    focal,
    {
        "alpha and 1 - alpha are exchanged": {"alpha": 0.75},
        "alpha is used for both classes": {"same": True},
        "log of the sigmoid, which is infinite for large logits": {"logs": True},
        "gamma is 1, not 2": {"gamma": 1.0},
        "the weight is p to the gamma, not (1 - p)": {"right": True},
        "probabilities are clamped to 1e-7 before the logarithm": {"eps": True},
    },
)


@fifth(lambda d: (lambda a: (a, a + d(16, 32, scale=2.0)))(d(16, 32)))
def clip_contrastive_loss(a, b, temperature=0.07):
    a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
    s = a @ b.T / temperature
    y = torch.arange(a.shape[0])
    return (F.cross_entropy(s, y) + F.cross_entropy(s.T, y)) / 2


def contrastive(a, b, t=0.07, one=False, times=False, norm=True, half=2, off=0, drop=False, low=None):
    a, b = (x * torch.rsqrt(x.square().sum(-1, keepdim=True)) if norm else x / 4 for x in (a, b))
    s = cut(a @ b.T, low) * (t if times else 1 / t)
    hit = s.roll(off, 1).diagonal()
    r, c = s, s
    if drop:
        r = s.masked_fill(torch.eye(16, dtype=torch.bool), -INF)
        c = r
    r, c = r.logsumexp(1) - hit, c.logsumexp(0) - hit
    return r.mean() if one else (r + c).mean() / half


honest(clip_contrastive_loss, "log sums less the diagonal", contrastive)
honest(clip_contrastive_loss, "in double precision", wide(contrastive, torch.float64))
wrongs(
    clip_contrastive_loss,
    contrastive,
    {
        "only one direction is counted": {"one": True},
        "similarities are multiplied by the temperature": {"times": True},
        "vectors are not normalised": {"norm": False},
        "the two directions are added, not averaged": {"half": 1},
        "the denominator leaves out the matching pair": {"drop": True},
        "similarities are rounded to bf16": {"low": bf},
    },
)


@fifth(lambda d: (d(500, scale=2.0), d(500)))
def huber_mean(x, y, delta=0.7):
    e = (x - y).abs()
    return torch.where(e <= delta, 0.5 * e * e, delta * (e - 0.5 * delta)).mean()


def huber(x, y, delta=0.7, half=0.5, over=1.0, n=500, low=None, lanes=32):
    c = (x - y).abs().clamp(max=delta)
    v = F.pad(c * ((x - y).abs() - half * c) * over, (0, 12)).view(-1, lanes)
    if low:
        total = torch.zeros(lanes)
        for row in v:
            total = cut(total + row, low)
        return total.sum() / n
    return v.sum(0).sum() / n


honest(huber_mean, "one formula with a clamped error, by lanes", huber)
honest(huber_mean, "smooth L1 times delta", lambda x, y: F.smooth_l1_loss(x, y, beta=0.7) * 0.7)
wrongs(
    huber_mean,
    huber,
    {
        "the smooth L1 form: divided by delta": {"over": 1 / 0.7},
        "the mean divides by the padded 512": {"n": 512},
        "delta is 1": {"delta": 1.0},
        "lanes add up in bf16": {"low": bf},
    },
)
