# SPDX-License-Identifier: Apache-2.0
"""Set C, written blind: steps of optimizers, losses, metrics and what reinforcement learning sums."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, mistake, tf32
from .blind_third import hurt, kept, last_rows_unwritten, tail_unwritten, third, two_rows_swapped

# ------------------------------------------------------------------ optimizers


@third(lambda d: (d(20, 24, scale=0.2), d(20, 24), d(20, 24, scale=0.3)))
def lion_step(p, g, m, lr=0.01, b1=0.9, b2=0.99, decay=0.3, late=False, inside=False, bare=False):
    new = b2 * m + (1 - b2) * g
    u = new if late else b1 * m + (1 - b1) * g
    if inside:
        return p - lr * (u + decay * p).sign(), new
    return p * (1 - (decay if bare else lr * decay)) - lr * u.sign(), new


mistake(lion_step, "the sign is taken of the new momentum (beta 0.99), not of the 0.9 mix", late=True)
mistake(lion_step, "weight decay goes into the sign", inside=True)
mistake(lion_step, "weight decay is not multiplied by the learning rate", bare=True)


@third(lambda d: (d(16, 24, scale=0.3), d(16, 24), d.rand(16) * 2 + 1, d.rand(24) * 2 + 1))
def adafactor(p, g, row, col, step=3, lr=0.05, top=1.0, ahead=0, whole=True, each=False):
    b = 1 - (step + ahead) ** -0.8
    row = b * row + (1 - b) * (g * g).mean(1)
    col = b * col + (1 - b) * (g * g).mean(0)
    v = row[:, None] * col[None, :] / (row.mean() if whole else 1.0)
    u = g / v.sqrt()
    u = u.clamp(-top, top) if each else u / ((u * u).mean().sqrt() / top).clamp(min=1.0)
    scale = (p * p).mean().sqrt().clamp(min=1e-3)
    return p - lr * scale * u, row, col


mistake(adafactor, "row times column factor is not divided by the mean of the rows", whole=False)
mistake(adafactor, "the update is clipped element by element instead of by its rms", each=True)
mistake(adafactor, "the decay 1 - step^-0.8 uses the next step", ahead=1)


@third(lambda d: (d(16, 24), d(16, 24)))
def muon_update(g, m, mu=0.95, rounds=5, plain=False, tall=True, low=None):
    m = mu * m + g
    x = m if plain else g + mu * m
    x = x / x.norm()
    for _ in range(rounds):
        a = kept(x @ x.T, low)
        x = kept(3.4445 * x + kept(-4.7750 * a + 2.0315 * a @ a, low) @ x, low)
    rows, cols = g.shape if tall else g.shape[::-1]
    return x * max(1.0, cols / rows) ** 0.5, m


mistake(muon_update, "four rounds of Newton-Schulz instead of five", rounds=4)
mistake(muon_update, "momentum itself is made orthogonal (no Nesterov term)", plain=True)
mistake(muon_update, "the shape factor has rows and columns exchanged", tall=False)
mistake(muon_update, "the Newton-Schulz rounds run in bf16", low=bf)


@third(lambda d: (d(12, 20), d(12, 20), d(12, 20, scale=0.3), d.rand(12, 20), torch.tensor(4)))
def lamb(p, g, m, v, step, lr=0.02, decay=0.5, inverse=False, after=False, bias=True):
    step = step.to(p.dtype)
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    mh, vh = (m / (1 - 0.9**step), v / (1 - 0.999**step)) if bias else (m, v)
    u = mh / (vh.sqrt() + 1e-6)
    full = u + decay * p
    over = u.norm() if after else full.norm()
    ratio = over / p.norm() if inverse else p.norm() / over
    return p - lr * ratio * full, m, v


mistake(lamb, "the trust ratio is upside down", inverse=True)
mistake(lamb, "the trust ratio's norm leaves weight decay out", after=True)
mistake(lamb, "moments are not corrected for their bias", bias=False)


@third(lambda d: (d(9, 53), d(9, 53), d(9, 53)))
def nesterov_sgd(p, g, buf, lr=0.1, mu=0.9, decay=0.1, nesterov=True, damp=0.0, late=False):
    if not late:
        g = g + decay * p
    buf = mu * buf + (1 - damp) * g
    u = g + mu * buf if nesterov else buf
    return p - lr * (u + decay * p if late else u), buf


mistake(nesterov_sgd, "plain momentum instead of Nesterov's", nesterov=False)
mistake(nesterov_sgd, "weight decay skips the momentum buffer", late=True)
mistake(nesterov_sgd, "the gradient enters the buffer times 1 - mu", damp=0.9)
mistake(
    nesterov_sgd, "elements past the last full block of 64 are not written (zeros)", hurt(nesterov_sgd, tail_unwritten)
)


@third(lambda d: (d(10, 24, scale=0.1), d(10, 24, scale=1e-3), d.rand(10, 24) * 1e-6 + 4e-7, d(10, 24, scale=1e-4)))
def rmsprop_centered(p, g, sq, avg, lr=0.01, a=0.99, eps=1e-4, centered=True, inside=False, low=None):
    sq = kept(a * sq + (1 - a) * g * g, low)
    avg = a * avg + (1 - a) * g
    v = sq - avg * avg if centered else sq
    return p - lr * g / ((v + eps).sqrt() if inside else v.sqrt() + eps), sq, avg


mistake(rmsprop_centered, "the mean gradient is not subtracted (not centered)", centered=False)
mistake(rmsprop_centered, "epsilon is inside the square root", inside=True)
mistake(rmsprop_centered, "the square average is kept in fp16", low=hf)


@third(lambda d: (d(16, 16), d(16, 16), torch.tensor(20)))
def ema_warm(e, p, step, top=0.999, warm=True, other=False, low=None):
    step = step.to(e.dtype)
    d = torch.clamp((1 + step) / (10 + step), max=top) if warm else top
    return kept(d * p + (1 - d) * e if other else d * e + (1 - d) * p, low)


mistake(ema_warm, "decay warm-up is ignored (0.999 from the start)", warm=False)
mistake(ema_warm, "the decay weighs the new weights", other=True)
mistake(ema_warm, "the average is kept in bf16", low=bf)


@third(lambda d: (d(18, 24), d(18, 24, scale=0.3)))
def unit_clip(g, p, clip=0.1, whole=False, swapped=False):
    over = (0, 1) if whole else 1
    pn, gn = p.norm(dim=over, keepdim=True).clamp(min=1e-3), g.norm(dim=over, keepdim=True)
    if swapped:
        pn, gn = gn, pn
    return g * (clip * pn / gn.clamp(min=1e-6)).clamp(max=1.0)


mistake(unit_clip, "norms of the whole tensors instead of each row", whole=True)
mistake(unit_clip, "norms of gradient and weight are exchanged", swapped=True)
mistake(unit_clip, "clips at 0.01 instead of 0.1", clip=0.01)


# ------------------------------------------------------------------ losses


@third(lambda d: (d(30, 12, scale=2.0), d.ints(2, 30, 12).float()))
def detection_focal(x, y, alpha=0.25, gamma=2.0, other=False, low=None):
    p = kept(x.sigmoid(), low)
    ce = F.binary_cross_entropy_with_logits(x, y, reduction="none")
    pt = p * y + (1 - p) * (1 - y)
    return (alpha * y + (1 - alpha) * (1 - y)) * (pt if other else 1 - pt) ** gamma * ce


mistake(detection_focal, "alpha and 1 - alpha are exchanged", alpha=0.75)
mistake(detection_focal, "weighs with p_t^2 instead of (1 - p_t)^2", other=True)
mistake(detection_focal, "the sigmoid is rounded to bf16", low=bf)


@third(lambda d: (d(40, 16, scale=2.0), torch.where(d.rand(40) < 0.2, -100, d.ints(16, 40))))
def smooth_z_loss(x, t, smooth=0.1, z=0.02, others=False, power=2, counted=False):
    logp, lse = x.log_softmax(-1), x.logsumexp(-1)
    at = -logp.gather(1, t.clamp(min=0)[:, None])[:, 0]
    rest = -logp.sum(1)
    spread = (rest - at) / (x.shape[1] - 1) if others else rest / x.shape[1]
    loss = (1 - smooth) * at + smooth * spread + z * lse**power
    return loss if counted else loss.masked_fill(t == -100, 0.0)


mistake(smooth_z_loss, "smoothing is spread over the 15 other classes", others=True)
mistake(smooth_z_loss, "z-loss is not squared", power=1)
mistake(smooth_z_loss, "ignored rows (-100) count as class 0", counted=True)


@third(lambda d: (lambda a: (a, a + d(24, 32, scale=2.0), torch.tensor(4.0)))(d(24, 32)))
def clip_contrastive(a, b, log_scale, one_way=False, raw=False, round=None):
    a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
    s = round(a) @ round(b).T if round else a @ b.T
    s = s * (log_scale if raw else log_scale.exp())
    at = torch.arange(len(a))
    rows, cols = s.log_softmax(1)[at, at], s.log_softmax(0)[at, at]
    return -rows, -rows if one_way else -cols


mistake(clip_contrastive, "both directions are taken over the rows", one_way=True)
mistake(clip_contrastive, "the logit scale is used without exp", raw=True)
mistake(clip_contrastive, "similarities in tf32", round=tf32)


@third(lambda d: tuple(-d.rand(16, 20) * 4 for _ in range(4)) + (d.ints(12, 16) + 8,))
def dpo(pi_c, pi_r, ref_c, ref_r, length, beta=0.1, smooth=0.1, flip=1.0, outer=False, mean=False, low=None):
    mask = torch.arange(20) < length[:, None]

    def total(x):
        s = kept((kept(x, low) * mask).sum(1), low)
        return s / length if mean else s

    chosen, rejected = total(pi_c) - total(ref_c), flip * (total(pi_r) - total(ref_r))
    d = (chosen - rejected) * (1.0 if outer else beta)
    loss = -(1 - smooth) * F.logsigmoid(d) - smooth * F.logsigmoid(-d)
    return (beta if outer else 1.0) * loss, beta * chosen, beta * rejected


mistake(dpo, "the rejected answer's ratio is upside down (sign)", flip=-1.0)
mistake(dpo, "beta multiplies the loss instead of the difference", outer=True)
mistake(dpo, "log probabilities are averaged over tokens, not summed", mean=True)
mistake(dpo, "log probabilities and their sums are rounded to bf16", low=bf)


@third(lambda d: (d(8, 12, 6).log_softmax(-1), torch.tensor([[1, 2, 2, 3], [4, 5, 1, 1]] * 4)))
def ctc_forward(logp, target, any_skip=False, no_blank=False, low=None):
    n, t, _ = logp.shape
    labels = torch.zeros(n, 2 * target.shape[1] + 1, dtype=torch.long)
    labels[:, 1::2] = target
    skip = torch.zeros_like(labels, dtype=torch.bool)
    skip[:, 3::2] = True if any_skip else target[:, 1:] != target[:, :-1]
    at = logp.gather(2, labels[:, None].expand(-1, t, -1))
    low_end = -1e4
    alpha = torch.full_like(at[:, 0], low_end)
    alpha[:, :2] = at[:, 0, :2]
    for i in range(1, t):
        one = F.pad(alpha, (1, 0), value=low_end)[:, :-1]
        two = F.pad(alpha, (2, 0), value=low_end)[:, :-2].masked_fill(~skip, low_end)
        alpha = kept(torch.stack((alpha, one, two)).logsumexp(0) + at[:, i], low)
    return -(alpha[:, -2] if no_blank else alpha[:, -2:].logsumexp(1))


mistake(ctc_forward, "equal neighbours in the target may skip the blank between them", any_skip=True)
mistake(ctc_forward, "paths that end in a blank are not counted", no_blank=True)
mistake(ctc_forward, "log alphas are kept in bf16", low=bf)


@third(lambda d: (d(16, 20), d(16, 20, scale=0.5), d(16, 20), d(16, 20, scale=0.5)))
def gaussian_kl(m1, v1, m2, v2, half=0.5, one=1.0, reverse=False, mean=False):
    if reverse:
        m1, v1, m2, v2 = m2, v2, m1, v1
    kl = half * (v2 - v1 + ((v1.exp() + (m1 - m2) ** 2) / v2.exp()) - one)
    return kl.mean(1) if mean else kl.sum(1)


mistake(gaussian_kl, "the factor 1/2 is missing", half=1.0)
mistake(gaussian_kl, "the two Gaussians are exchanged (reverse divergence)", reverse=True)
mistake(gaussian_kl, "averages over latent dimensions instead of summing", mean=True)
mistake(gaussian_kl, "the - 1 is left out", one=0.0)


@third(lambda d: (d(24, 16), torch.arange(24) % 6))
def batch_hard_triplet(x, label, margin=0.5, easy=False, squared=False, mine=False):
    d2 = ((x[:, None] - x[None]) ** 2).sum(-1)
    dist = d2 if squared else (d2 + 1e-12).sqrt()
    same = label[:, None] == label[None]
    inf = float("inf")
    other_self = same & ~torch.eye(24, dtype=torch.bool)
    pos = dist.masked_fill(~other_self, inf).amin(1) if easy else dist.masked_fill(~same, -inf).amax(1)
    far = dist.masked_fill(torch.eye(24, dtype=torch.bool) if mine else same, inf).amin(1)
    return F.softplus(pos - far + margin)


mistake(batch_hard_triplet, "the nearest positive is taken instead of the farthest", easy=True)
mistake(batch_hard_triplet, "distances are left squared", squared=True)
mistake(batch_hard_triplet, "the nearest negative may be of the same class", mine=True)


@third(lambda d: (d(3, 5, 8, 8), d.ints(2, 3, 5, 8, 8).float()))
def dice_iou(x, y, smooth=1.0, two=2.0, twice=False):
    p = x.sigmoid()
    inter, total = (p * y).sum((2, 3)), (p + y).sum((2, 3))
    return (
        (two * inter + smooth) / (total + smooth),
        (inter + smooth) / ((total if twice else total - inter) + smooth),
    )


mistake(dice_iou, "the intersection in dice is not doubled", two=1.0)
mistake(dice_iou, "the union counts the intersection twice", twice=True)
mistake(dice_iou, "smoothing of 0.001 instead of 1", smooth=1e-3)


@third(
    lambda d: (lambda a, b: (torch.cat((a, a + 0.5 + d.rand(12, 2)), 1), torch.cat((b, b + 0.5 + d.rand(15, 2)), 1)))(
        d(12, 2), d(15, 2)
    )
)
def pairwise_giou(a, b, clamped=True, union=1.0, swapped=False):
    def area(x):
        return (x[..., 2] - x[..., 0]) * (x[..., 3] - x[..., 1])

    a, b = a[:, None], b[None]
    wh = torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])
    inter = (wh.clamp(min=0) if clamped else wh).prod(-1)
    both = area(a) + area(b) - union * inter
    hull = (torch.maximum(a[..., 2:], b[..., 2:]) - torch.minimum(a[..., :2], b[..., :2])).prod(-1)
    return inter / both - (hull - both) / (both if swapped else hull)


mistake(pairwise_giou, "overlap is not clamped at 0", clamped=False)
mistake(pairwise_giou, "the union does not subtract the intersection", union=0.0)
mistake(pairwise_giou, "the penalty is divided by the union instead of the hull", swapped=True)
mistake(pairwise_giou, "two rows of boxes are exchanged", hurt(pairwise_giou, two_rows_swapped))


@third(lambda d: (d(6, 30), d(6, 31), (d.rand(6, 30) < 0.1).float()))
def gae(reward, value, done, gamma=0.99, lam=0.95, cut=True, stale=False, low=None):
    go = 1 - done if cut else torch.ones_like(done)
    delta = reward + gamma * value[:, 1:] * go - value[:, :-1]
    last = torch.zeros_like(reward[:, 0])
    out = []
    for t in reversed(range(reward.shape[1])):
        last = kept(delta[:, t] + gamma * lam * (1.0 if stale else go[:, t]) * last, low)
        out.append(last)
    advantage = torch.stack(out[::-1], 1)
    return advantage, advantage + value[:, :-1]


mistake(gae, "lambda is left out", lam=1.0)
mistake(gae, "the trace runs on across the end of an episode", stale=True)
mistake(gae, "nothing is cut at the end of an episode", cut=False)
mistake(gae, "the trace is kept in bf16", low=bf)


@third(lambda d: (lambda a: (a, a + d(10, 24, scale=0.3), d(10)))(-d.rand(10, 24) * 3))
def clipped_policy(new, old, advantage, eps=0.2, worst=True, whiten=True):
    r = (new - old).exp()
    a = (advantage - advantage.mean()) / (advantage.std() + 1e-8) if whiten else advantage
    plain, cut = r * a[:, None], r.clamp(1 - eps, 1 + eps) * a[:, None]
    return -(torch.minimum(plain, cut) if worst else torch.maximum(plain, cut))


mistake(clipped_policy, "the larger of plain and clipped term is taken", worst=False)
mistake(clipped_policy, "advantages are not normalised", whiten=False)
mistake(clipped_policy, "clips at 0.02 instead of 0.2", eps=0.02)
mistake(clipped_policy, "the last sample is not written (zeros)", hurt(clipped_policy, last_rows_unwritten))


@third(lambda d: (d(12, 20), d(12, 20), torch.tensor([20] * 6 + [11, 7, 15, 3, 18, 9])))
def masked_spectral_distance(a, b, length, power=2.0, log=True, floor=1e-5):
    keep = (torch.arange(20) < length[:, None]).to(a.dtype)
    x, y = (torch.fft.rfft(v * keep).abs() ** power for v in (a, b))
    if log:
        x, y = (x + floor).log(), (y + floor).log()
    return (x - y).abs().mean(1) / math.log(10.0)


mistake(masked_spectral_distance, "magnitudes are not squared before the logarithm", power=1.0)
mistake(masked_spectral_distance, "no logarithm is taken", log=False)
mistake(masked_spectral_distance, "the spectrum's floor is 0.1 instead of 1e-5", floor=0.1)
