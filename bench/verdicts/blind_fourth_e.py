# SPDX-License-Identifier: Apache-2.0
"""Set D, written blind: losses, their gradients, and sums over paths."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, mistake, tf32
from .blind_fourth_a import double, fourth, honest, stored_in
from .blind_third import kept

# ------------------------------------------------------------------ embeddings and classes

@fourth(lambda d: (d(14, 24), d(14, 24), d(24, 30)))
def queue_info_nce(q, k, queue, heat=0.2, unit=True, own=True, cold=False, round=None):
    if unit:
        q, k, queue = F.normalize(q, dim=1), F.normalize(k, dim=1), F.normalize(queue, dim=0)
    pos = (q * k).sum(1, keepdim=True)
    neg = (round(q) @ round(queue)) if round else q @ queue
    s = torch.cat((pos, neg), 1)
    s = s * heat if cold else s / heat
    return (s[:, 1:] if not own else s).logsumexp(1) - s[:, 0]


honest(queue_info_nce, "log1p of the negatives' sum", lambda q, k, u: torch.log1p(
    ((F.normalize(q) @ F.normalize(u, dim=0) - (F.normalize(q) * F.normalize(k)).sum(1)[:, None])
    * 5).exp().sum(1)))
honest(queue_info_nce, "float64 inside", double(queue_info_nce))
mistake(queue_info_nce, "the positive is missing in the denominator", own=False)
mistake(queue_info_nce, "similarities are multiplied by the temperature", cold=True)
mistake(queue_info_nce, "nothing is normalised to unit length", unit=False)
mistake(queue_info_nce, "negative similarities in tf32", round=tf32)


@fourth(lambda d: (d(18, 20, scale=2.0), d(18, 20, scale=2.0), d.ints(20, 18)))
def distillation(student, teacher, y, heat=3.0, alpha=0.7, square=True, reverse=False, hot_hard=False,
        mean=False,
                 low=None):
    a, b = kept((student / heat).log_softmax(-1), low), kept((teacher / heat).log_softmax(-1), low)
    if reverse:
        a, b = b, a
    kl = b.exp() * (b - a)
    kl = (kl.mean(-1) if mean else kl.sum(-1)) * (heat ** 2 if square else 1.0)
    ce = F.cross_entropy(student / heat if hot_hard else student, y, reduction="none")
    return alpha * kl + (1 - alpha) * ce


honest(distillation, "cross entropy less entropy", lambda s, t, y: (lambda p: 6.3 * (
    (p * (t / 3 - s / 3)).sum(-1) + (s / 3).logsumexp(-1) - (t / 3).logsumexp(-1))
    + 0.3 * (s.logsumexp(-1) - s.gather(1, y[:, None])[:, 0]))((t / 3).softmax(-1)))
honest(distillation, "float64 inside", double(distillation))
mistake(distillation, "the factor temperature squared is missing", square=False)
mistake(distillation, "the divergence is reversed (student and teacher exchanged)", reverse=True)
mistake(distillation, "the hard loss is tempered too", hot_hard=True)
mistake(distillation, "averages over classes instead of summing", mean=True)
mistake(distillation, "log probabilities are rounded to bf16", low=bf)


@fourth(lambda d: (d(17, 23, scale=2.0), d(17, 23), torch.tensor(0.6)))
def smooth_l1_beta(x, y, beta, half=0.5, divided=True, offset=True, mean=False):
    e = (x - y).abs()
    small = half * e * e / (beta if divided else 1.0)
    loss = torch.where(e < beta, small, e - (0.5 * beta if offset else 0.0))
    return loss.mean(-1) if mean else loss.sum(-1)


honest(smooth_l1_beta, "clamped part and rest", lambda x, y, b: (lambda e: (lambda c: (
    c * (e - 0.5 * c) / b).sum(-1))(e.clamp(max=b.item())))((x - y).abs()))
honest(smooth_l1_beta, "float64 inside", double(smooth_l1_beta))
mistake(smooth_l1_beta, "the quadratic part is not divided by beta", divided=False)
mistake(smooth_l1_beta, "the quadratic part lacks its factor 1/2", half=1.0)
mistake(smooth_l1_beta, "the linear part is not lowered by beta / 2", offset=False)
mistake(smooth_l1_beta, "averages over the row instead of summing", mean=True)
stored_in(smooth_l1_beta, hf)


@fourth(lambda d: (lambda old: (old + d(8, 12, scale=0.3), old, old + d(8, 12, scale=0.2), d(8),
                                torch.tensor([12, 4, 7, 12, 9, 3, 11, 6])))(-d.rand(8, 12) * 3))
def grpo_loss(new, old, ref, reward, length, group=4, eps=0.2, beta=0.1, std=True, k3=True, whole=False,
              lower=True, token_mean=False, biased=1):
    r = reward.view(-1, group)
    a = r - r.mean(1, keepdim=True)
    if std:
        a = a / (r.std(1, correction=biased, keepdim=True) + 1e-4)
    a = a.reshape(-1, 1)
    ratio = (new - old).exp()
    gain = ratio.clamp(1 - eps, 1 + eps) * a
    gain = torch.minimum(ratio * a, gain) if lower else gain
    gap = ref - new
    loss = beta * (gap.exp() - gap - 1 if k3 else -gap) - gain
    keep = (torch.arange(12)[None] < length[:, None]).to(new.dtype)
    if whole:
        keep = torch.ones_like(keep)
    if token_mean:
        return (loss * keep).sum(1) / keep.sum() * 8
    return (loss * keep).sum(1) / keep.sum(1)


def grpo_loop(new, old, ref, reward, length):
    out = []
    for i in range(8):
        r = reward[i // 4 * 4:i // 4 * 4 + 4]
        a = (reward[i] - r.mean()) / (((r - r.mean()) ** 2).sum().div(3).sqrt() + 1e-4)
        n = int(length[i])
        ratio, gap = (new[i, :n] - old[i, :n]).exp(), ref[i, :n] - new[i, :n]
        best = torch.where(a > 0, ratio.clamp(max=1.2), ratio.clamp(min=0.8)) * a
        out.append((0.1 * (torch.expm1(gap) - gap) - best).mean())
    return torch.stack(out)


honest(grpo_loss, "answer by answer, clip on one side by the advantage's sign", grpo_loop)
honest(grpo_loss, "float64 inside", double(grpo_loss))
mistake(grpo_loss, "advantages are not divided by the group's deviation", std=False)
mistake(grpo_loss, "groups of 8 instead of 4 answers", group=8)
mistake(grpo_loss, "the divergence is the plain log ratio, not e^x - x - 1", k3=False)
mistake(grpo_loss, "padding is counted", whole=True)
mistake(grpo_loss, "the clipped term is taken even where the plain one is smaller", lower=False)
mistake(grpo_loss, "normalised by all tokens of the batch, not by each answer's", token_mean=True)
mistake(grpo_loss, "the group's deviation divides by n, not by n - 1", biased=0)


@fourth(lambda d: (-d.rand(10, 16) * 4, -d.rand(10, 16) * 4, d.ints(10, 10) + 5, d.ints(12, 10) + 3))
def simpo_loss(chosen, rejected, nc, nr, beta=2.0, margin=0.5, mean=True, plus=False, late=False, one=False):
    at = torch.arange(16)[None]
    if one:
        nr = nc
    c, r = (chosen * (at < nc[:, None])).sum(1), (rejected * (at < nr[:, None])).sum(1)
    if mean:
        c, r = c / nc, r / nr
    z = beta * (c - r - margin) if late else beta * (c - r) + (margin if plus else -margin)
    return -F.logsigmoid(z), beta * c, beta * r


honest(simpo_loss, "softplus, sequence by sequence", lambda c, r, nc, nr: (lambda a, b: (
    F.softplus(0.5 - a + b), a, b))(torch.stack([2 * x[:n].mean() for x, n in zip(c, nc)]),
                                    torch.stack([2 * x[:n].mean() for x, n in zip(r, nr)])))
honest(simpo_loss, "float64 inside", double(simpo_loss))
mistake(simpo_loss, "log probabilities are summed, not divided by the length", mean=False)
mistake(simpo_loss, "the margin is added", plus=True)
mistake(simpo_loss, "the margin is multiplied by beta", late=True)
mistake(simpo_loss, "the rejected answer takes the chosen one's length", one=True)


@fourth(lambda d: (d(3, 14, 12), d(40, 12, scale=0.5),
    torch.where(d.rand(3, 14) < 0.25, -100, d.ints(40, 3, 14))))
def next_token_loss(h, w, ids, cap=15.0, shift=1, every=False, per_row=False, capped=True, low=None):
    s = h[:, :14 - shift] @ w.T
    s = kept(cap * torch.tanh(s / cap) if capped else s, low)
    t = ids[:, shift:]
    loss = s.logsumexp(-1) - s.gather(-1, t.clamp(min=0)[..., None])[..., 0]
    on = (t != -100).to(h.dtype)
    if per_row:
        return ((loss * on).sum(1) / on.sum(1)).mean()
    return (loss * on).sum() / (on.numel() if every else on.sum())


def next_token_chunks(h, w, ids, size=9):
    x, t = h[:, :-1].flatten(0, 1), ids[:, 1:].flatten()
    x, t = x[t >= 0], t[t >= 0]
    m, z, at = torch.full((len(t),), -1e30, dtype=h.dtype), torch.zeros(len(t), dtype=h.dtype), 0.0
    for j in range(0, 40, size):
        s = 15 * torch.tanh(x @ w[j:j + size].T / 15)
        new = torch.maximum(m, s.amax(1))
        z, m = z * (m - new).exp() + (s - new[:, None]).exp().sum(1), new
        at = at + (s * F.one_hot(t - j + 40, 100)[:, 40:40 + s.shape[1]]).sum(1)
    return (m + z.log() - at).mean()


honest(next_token_loss, "vocabulary in chunks of 9 with a running maximum", next_token_chunks)
honest(next_token_loss, "float64 inside", double(next_token_loss))
mistake(next_token_loss, "targets are not shifted: each token predicts itself", shift=0)
mistake(next_token_loss, "divides by all tokens, ignored ones counted", every=True)
mistake(next_token_loss, "means of the sequences are averaged", per_row=True)
mistake(next_token_loss, "logits are not capped", capped=False)
mistake(next_token_loss, "logits are rounded to bf16", low=bf)


@fourth(lambda d: (d(16, 25, scale=3.0), d.ints(25, 16), d(16)))
def cross_entropy_gradient(s, y, g, hot=1.0, smooth=0.1, mean=True, low=None, z=1e-2):
    p = kept(s.softmax(-1), low)
    lse = s.logsumexp(-1, keepdim=True)
    target = (1 - smooth) * F.one_hot(y, 25).to(s.dtype) + smooth / 25
    return (p - hot * target + 2 * z * lse * p) * g[:, None] / (16 if mean else 1)


def cross_entropy_autograd(s, y, g):
    s = s.clone().requires_grad_()
    loss = F.cross_entropy(s, y, label_smoothing=0.1, reduction="none") + 0.01 * s.logsumexp(-1) ** 2
    (loss * g).mean().backward()
    return s.grad


honest(cross_entropy_gradient, "automatic differentiation", cross_entropy_autograd)
honest(cross_entropy_gradient, "float64 inside", double(cross_entropy_gradient))
mistake(cross_entropy_gradient, "the target is not subtracted", hot=0.0)
mistake(cross_entropy_gradient, "not divided by the batch", mean=False)
mistake(cross_entropy_gradient, "z-loss's gradient is left out", z=0.0)
mistake(cross_entropy_gradient, "z-loss's gradient lacks the factor 2", z=5e-3)
mistake(cross_entropy_gradient, "probabilities are rounded to bf16", low=bf)
mistake(cross_entropy_gradient, "labels are not smoothed", smooth=0.0)


@fourth(lambda d: (d(4, 3, 9, 7, scale=2.0), d.ints(2, 4, 3, 9, 7).float()))
def focal_tversky(x, y, alpha=0.7, beta=0.3, gamma=0.75, smooth=1.0, swapped=False):
    p = x.sigmoid()
    tp, fp, fn = (p * y).sum((2, 3)), (p * (1 - y)).sum((2, 3)), ((1 - p) * y).sum((2, 3))
    if swapped:
        fp, fn = fn, fp
    return (1 - (tp + smooth) / (tp + alpha * fn + beta * fp + smooth)) ** gamma


honest(focal_tversky, "from three sums", lambda x, y: (lambda p, t, s, n: (
    (0.7 * (n - t) + 0.3 * (s - t)) / (0.3 * s + 0.7 * n + 1)) ** 0.75)(
        None, (torch.sigmoid(x) * y).sum((2, 3)), torch.sigmoid(x).sum((2, 3)), y.sum((2, 3))))
honest(focal_tversky, "float64 inside", double(focal_tversky))
mistake(focal_tversky, "false positives and false negatives are exchanged", swapped=True)
mistake(focal_tversky, "alpha and beta 0.5 (plain dice)", alpha=0.5, beta=0.5)
mistake(focal_tversky, "exponent 4/3 instead of 3/4", gamma=4 / 3)
stored_in(focal_tversky, hf)


@fourth(lambda d: (d(20, 12), d(20, 12), d.ints(2, 20).float()))
def siamese_margin(a, b, same, margin=5.0, squared=True, flipped=False, inner=False):
    sq = ((a - b) ** 2).sum(1)
    dist = (sq + 1e-12).sqrt()
    far = (margin ** 2 - sq).clamp(min=0) if inner else (margin - dist).clamp(min=0) ** (2 if squared else 1)
    y = 1 - same if flipped else same
    return 0.5 * (y * sq + (1 - y) * far)


honest(siamese_margin, "where", lambda a, b, s: torch.where(
    s > 0, torch.cdist(a[:, None], b[:, None])[:, 0, 0] ** 2, F.relu(5 - (a - b).norm(dim=1)).square()) / 2)
honest(siamese_margin, "float64 inside", double(siamese_margin))
mistake(siamese_margin, "labels of same and different are exchanged", flipped=True)
mistake(siamese_margin, "the margin acts on the squared distance", inner=True)
mistake(siamese_margin, "the hinge is not squared", squared=False)
mistake(siamese_margin, "margin 1 instead of 5", margin=1.0)
stored_in(siamese_margin, bf)


@fourth(lambda d: (d(15, 16), d(10, 16), d.ints(10, 15)))
def additive_angle_logits(x, w, y, scale=30.0, margin=0.4, to_cos=False, every=False, unit=True):
    c = F.normalize(x, dim=1) @ (F.normalize(w, dim=1) if unit else w * 0.25).T
    c = c.clamp(-1, 1)
    hot = F.one_hot(y, 10).to(x.dtype)
    if every:
        hot = torch.ones_like(hot)
    moved = c - margin if to_cos else c * math.cos(margin) - (1 - c * c).sqrt() * math.sin(margin)
    return (hot * moved + (1 - hot) * c) * scale


honest(additive_angle_logits, "arc cosine and cosine", lambda x, w, y: (lambda c: torch.where(
    torch.arange(10)[None] == y[:, None], (c.acos() + 0.4).cos(), c) * 30)(
        (x @ w.T) / (x.norm(dim=1)[:, None] * w.norm(dim=1))))
honest(additive_angle_logits, "float64 inside", double(additive_angle_logits))
mistake(additive_angle_logits, "the margin is taken off the cosine (CosFace), not put on the angle",
    to_cos=True)
mistake(additive_angle_logits, "every class gets the margin", every=True)
mistake(additive_angle_logits, "class vectors are not normalised", unit=False)
mistake(additive_angle_logits, "scale 64 instead of 30", scale=64.0)
stored_in(additive_angle_logits, bf)


@fourth(lambda d: (d(20, 8, shift=0.5), d(20, 8, scale=1.4)))
def vicreg_terms(a, b, target=1.0, biased=0, root=True, diagonal=False, divide=8):
    def spread(x):
        v = x.var(0, correction=1 - biased)
        return F.relu(target - ((v + 1e-4).sqrt() if root else v)).mean()

    def mixed(x):
        x = x - x.mean(0)
        c = x.T @ x / (len(x) - 1)
        sq = c * c
        return (sq.sum() if diagonal else sq.sum() - sq.diagonal().sum()) / divide

    return ((a - b) ** 2).mean(), spread(0.5 * a) + spread(0.5 * b), mixed(a) + mixed(b)


honest(vicreg_terms, "torch.cov", lambda a, b: (F.mse_loss(a, b), sum(
    (1 - (torch.cov(x.T).diagonal() / 4 + 1e-4).sqrt()).clamp(min=0).mean() for x in (a, b)), sum(
        (torch.cov(x.T) * (1 - torch.eye(8))).square().sum() for x in (a, b)) / 8))
honest(vicreg_terms, "float64 inside", double(vicreg_terms))
mistake(vicreg_terms, "the variance hinge uses the variance, not the deviation", root=False)
mistake(vicreg_terms, "covariances on the diagonal are counted", diagonal=True)
mistake(vicreg_terms, "variance divides by n instead of n - 1", biased=1)
mistake(vicreg_terms, "the covariance term is divided by d squared", divide=64)


@fourth(lambda d: (d(24, 10), d(24, 10, shift=1.0)))
def cross_correlation_loss(a, b, lam=0.02, centred=True, batch=True, biased=0, off=True):
    def unit(x):
        m = x.mean(0) if centred else 0.0
        return (x - m) / x.std(0, correction=biased)

    c = unit(a).T @ (unit(a) * 0.3 + unit(b)) / (24 if batch else 10)
    eye = torch.eye(10, dtype=a.dtype)
    return ((c - eye) ** 2 * (eye + lam * (1 - eye)) if off else (c - eye) ** 2).sum(1)


honest(cross_correlation_loss, "diagonal and rest apart", lambda a, b: (lambda x, y: (lambda c: (
    c.diagonal() - 1) ** 2 + 0.02 * (c.square().sum(1) - c.diagonal() ** 2))(x.T @ (0.3 * x + y) / 24))(
        *(F.layer_norm(t.T, (24,), eps=0.0).T for t in (a, b))))
honest(cross_correlation_loss, "float64 inside", double(cross_correlation_loss))
mistake(cross_correlation_loss, "means are not subtracted", centred=False)
mistake(cross_correlation_loss, "divides by the features instead of the batch", batch=False)
mistake(cross_correlation_loss, "terms off the diagonal are not weighted by lambda", off=False)
mistake(cross_correlation_loss, "deviations divide by n - 1 instead of n", biased=1)


# ------------------------------------------------------------------ likelihoods

@fourth(lambda d: (d(18, 3), d(18)))
def pinball_loss(x, y, levels=(0.05, 0.5, 0.8), flipped=False, absolute=False, backwards=False):
    q = torch.tensor(levels[::-1] if backwards else levels, dtype=x.dtype)
    e = (x - y[:, None]) if flipped else (y[:, None] - x)
    return (q * e.abs()).mean(1) if absolute else torch.maximum(q * e, (q - 1) * e).mean(1)


honest(pinball_loss, "level less indicator", lambda x, y: (lambda e: (
    e * (torch.tensor([0.05, 0.5, 0.8]) - (e < 0).to(x.dtype))).sum(1) / 3)(y[:, None] - x))
honest(pinball_loss, "float64 inside", double(pinball_loss))
mistake(pinball_loss, "the error's sign is turned", flipped=True)
mistake(pinball_loss, "both sides are weighed with q", absolute=True)
mistake(pinball_loss, "levels are in reverse order", backwards=True)


@fourth(lambda d: (d(12, 5), d(12, 5), d(12, 5, scale=0.5), d(12)))
def mixture_density_nll(logit, mean, log_std, y, half_log=True, square=False, normed=True, mixed=False):
    w = logit.log_softmax(-1) if normed else logit
    z = (y[:, None] - mean) / (log_std.exp() if not square else (2 * log_std).exp())
    part = w - 0.5 * z * z - (0.5 if mixed else 1.0) * log_std - (0.5 * math.log(2 * math.pi) if half_log
        else 0.0)
    return -part.logsumexp(-1)


honest(mixture_density_nll, "densities added, then the logarithm", lambda a, m, s, y: -(
    a.softmax(-1) * (-0.5 * ((y[:, None] - m) * (-s).exp()) ** 2).exp()
    / (s.exp() * math.sqrt(2 * math.pi))).sum(-1).log())
honest(mixture_density_nll, "float64 inside", double(mixture_density_nll))
mistake(mixture_density_nll, "1/2 log 2 pi is left out", half_log=False)
mistake(mixture_density_nll, "divides by the variance instead of the deviation", square=True)
mistake(mixture_density_nll, "mixture weights are not normalised", normed=False)
mistake(mixture_density_nll, "half of log sigma instead of the whole", mixed=True)


@fourth(lambda d: (d(5, 11, 4), d.ints(4, 5, 11), d(4, 4), d(4), d(4), torch.tensor([11, 6, 9, 11, 3])))
def crf_nll(emit, tags, trans, first, last, length, turned_=False, ends=True, best=False, full=False,
        low=None):
    t = trans.T if turned_ else trans
    if full:
        length = torch.full_like(length, 11)
    out = []
    for e, y, n in zip(emit, tags, length.tolist()):
        a, score = first + e[0], first[y[0]] + e[0, y[0]]
        for i in range(1, n):
            s = a[:, None] + t + e[i]
            a = kept(s.amax(0) if best else s.logsumexp(0), low)
            score = score + trans[y[i - 1], y[i]] + e[i, y[i]]
        a = a + last if ends else a
        out.append(a.logsumexp(0) - score - last[y[n - 1]])
    return torch.stack(out)


def crf_by_products(emit, tags, trans, first, last, length):
    out = []
    for e, y, n in zip(emit, tags, length.tolist()):
        p, log = (first + e[0]).exp(), 0.0
        for i in range(1, n):
            p = (p @ trans.exp()) * e[i].exp()
            log, p = log + p.sum().log(), p / p.sum()
        y = y[:n]
        score = first[y[0]] + last[y[-1]] + e[torch.arange(n), y].sum() + trans[y[:-1], y[1:]].sum()
        out.append(log + (p * last.exp()).sum().log() - score)
    return torch.stack(out)


honest(crf_nll, "probabilities with a running scale", crf_by_products)
honest(crf_nll, "float64 inside", double(crf_nll))
mistake(crf_nll, "the partition sum uses transitions transposed", turned_=True)
mistake(crf_nll, "end scores are missing in the partition sum", ends=False)
mistake(crf_nll, "the maximum instead of log sum exp (Viterbi) in the partition", best=True)
mistake(crf_nll, "padding is not cut off", full=True)
mistake(crf_nll, "alphas are kept in bf16", low=bf)


@fourth(lambda d: (lambda a: (a, a + d(6, 20, scale=0.4), d(6, 20), d(6, 21), (d.rand(6, 20) < 0.1).float()))(
    -d.rand(6, 20) * 3))
def vtrace_targets(behaviour, target, reward, value, done, gamma=0.97, rho=1.0, c=1.0, flipped=False,
        both=True,
                   stale=False, next_v=True, low=None):
    w = (behaviour - target if flipped else target - behaviour).exp()
    r, cs, go = w.clamp(max=rho), w.clamp(max=c) if both else torch.ones_like(w), gamma * (1 - done)
    delta = r * (reward + go * value[:, 1:] - value[:, :-1])
    last, out = torch.zeros_like(reward[:, 0]), []
    for t in reversed(range(20)):
        last = kept(delta[:, t] + (gamma if stale else go[:, t]) * cs[:, t] * last, low)
        out.append(last)
    vs = torch.stack(out[::-1], 1) + value[:, :-1]
    after = torch.cat((vs[:, 1:], value[:, -1:]), 1) if next_v else value[:, 1:]
    return vs, r * (reward + go * after - value[:, :-1])


def vtrace_by_solve(behaviour, target, reward, value, done):
    w = torch.minimum((target - behaviour).exp(), torch.ones_like(target))
    go = 0.97 * (1 - done)
    a = torch.eye(20, dtype=w.dtype) - torch.diag_embed((go * w)[:, :-1], 1)
    delta = w * (reward + go * value[:, 1:] - value[:, :-1])
    vs = value[:, :-1] + torch.linalg.solve_triangular(a, delta[..., None], upper=True)[..., 0]
    return vs, w * (reward + go * torch.cat((vs[:, 1:], value[:, -1:]), 1) - value[:, :-1])


honest(vtrace_targets, "a triangular solve", vtrace_by_solve)
honest(vtrace_targets, "float64 inside", double(vtrace_targets))
mistake(vtrace_targets, "the importance ratio is upside down", flipped=True)
mistake(vtrace_targets, "the trace is not cut by the ratio c", both=False)
mistake(vtrace_targets, "the trace runs on across the end of an episode", stale=True)
mistake(vtrace_targets, "advantages use the plain next value, not the next target", next_v=False)
mistake(vtrace_targets, "the ratio of the differences is not clipped at 1 (the trace's is)", rho=1e9)
mistake(vtrace_targets, "the trace is kept in bf16", low=bf)


@fourth(lambda d: (d(9, 21, scale=1.5), d(9, scale=2.0), (d.rand(9) < 0.2).float()))
def categorical_projection(logit, reward, done, low=-5.0, high=5.0, gamma=0.95, clamp=True, ceil=False,
        cut=True,
                           swapped=False):
    p = logit.softmax(-1)
    n = p.shape[1]
    z = torch.linspace(low, high, n, dtype=logit.dtype)
    at = reward[:, None] + gamma * (1 - done if cut else torch.ones_like(done))[:, None] * z
    b = ((at.clamp(low, high) if clamp else at) - low) / ((high - low) / (n - 1))
    lo = b.floor()
    up = b - lo
    if swapped:
        up = 1 - up
    out = torch.zeros_like(p)
    a, c = lo.long(), lo.long() + 1
    if ceil:
        return out.scatter_add(1, b.round().long().clamp(0, n - 1), p)
    out = out.scatter_add(1, a.clamp(0, n - 1), p * (1 - up) * (a >= 0) * (a < n))
    return out.scatter_add(1, c.clamp(0, n - 1), p * up * (c >= 0) * (c < n))


def projection_by_hats(logit, reward, done):
    z = torch.linspace(-5, 5, 21, dtype=logit.dtype)
    at = (reward[:, None] + 0.95 * z * (1 - done)[:, None]).clamp(-5, 5)
    hat = (1 - (at[:, None] - z[:, None]).abs() * 2).clamp(0, 1)
    return (hat * logit.softmax(-1)[:, None]).sum(-1)


honest(categorical_projection, "hat functions on the grid", projection_by_hats)
honest(categorical_projection, "float64 inside", double(categorical_projection))
mistake(categorical_projection, "returns outside the support are lost (no clamp)", clamp=False)
mistake(categorical_projection, "mass goes to the nearest atom instead of both neighbours", ceil=True)
mistake(categorical_projection, "lower and upper atom exchange their shares", swapped=True)
mistake(categorical_projection, "the end of an episode does not cut the bootstrap", cut=False)


@fourth(lambda d: (d(3, 12, 4), d(3, 15, 4)))
def soft_dtw(x, y, gamma=0.5, diagonal=True, squared=True, hard=False, low=None):
    c = ((x[:, :, None] - y[:, None]) ** 2).sum(-1)
    c = c if squared else c.sqrt()
    inf = torch.full_like(c[:, 0, 0], 1e8)
    row = [torch.zeros_like(inf)] + [inf] * 15
    for i in range(12):
        new = [inf]
        for j in range(15):
            s = torch.stack([row[j + 1], new[j]] + ([row[j]] if diagonal else []))
            m = s.amin(0) if hard else -gamma * (-s / gamma).logsumexp(0)
            new.append(kept(c[:, i, j] + m, low))
        row = new
    return row[-1]


def dtw_diagonals(x, y):
    c = torch.cdist(x.double(), y.double()) ** 2
    r = torch.full((3, 13, 16), 1e8, dtype=torch.float64)
    r[:, 0, 0] = 0
    for s in range(2, 28):
        i = torch.arange(max(1, s - 15), min(12, s - 1) + 1)
        j = s - i
        m = torch.logsumexp(torch.stack((r[:, i - 1, j - 1], r[:, i - 1, j], r[:, i, j - 1])) * -2, 0) / -2
        r[:, i, j] = c[:, i - 1, j - 1] + m
    return r[:, -1, -1].to(x.dtype)


honest(soft_dtw, "antidiagonals in float64", dtw_diagonals)
honest(soft_dtw, "float64 inside", double(soft_dtw))
mistake(soft_dtw, "diagonal steps are not allowed", diagonal=False)
mistake(soft_dtw, "a hard minimum instead of a soft one", hard=True)
mistake(soft_dtw, "distances instead of squared distances", squared=False)
mistake(soft_dtw, "the path sums are kept in bf16", low=bf)
