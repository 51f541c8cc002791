# SPDX-License-Identifier: Apache-2.0
"""Set D, written blind: choosing tokens, running sums and segments, embeddings, graphs and distances."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, mistake
from .blind_fourth_a import double, fourth, honest, inside, stored_in
from .blind_third import kept

# ------------------------------------------------------------------ choosing tokens

@fourth(lambda d: (d(9, 40, scale=3.0),))
def min_p_filter(x, p=0.1, heat=1.3, scaled=True, norm=True, inverse=False, late=False):
    prob = (x * heat if inverse else x / heat).softmax(-1)
    if late:
        prob = x.softmax(-1)
    keep = prob >= p * (prob.amax(-1, keepdim=True) if scaled else 1.0)
    out = torch.where(keep, (x / heat).softmax(-1) if late else prob, torch.zeros_like(prob))
    return out / out.sum(-1, keepdim=True) if norm else out


honest(min_p_filter, "a threshold on logits", lambda x: (x / 1.3).masked_fill(
    x < x.amax(1, keepdim=True) + 1.3 * math.log(0.1), float("-inf")).softmax(-1))
honest(min_p_filter, "float64 inside", double(min_p_filter))
mistake(min_p_filter, "the threshold is p itself, not p times the largest probability", scaled=False)
mistake(min_p_filter, "what is left is not normalised again", norm=False)
mistake(min_p_filter, "logits are multiplied by the temperature", inverse=True)
mistake(min_p_filter, "the filter runs before the temperature", late=True)


@fourth(lambda d: (d(8, 36, scale=1.2),))
def typical_filter(x, mass=0.7, signed=False, rising=True, cross=True):
    logp = x.log_softmax(-1)
    p = logp.exp()
    ent = -(p * logp).sum(-1, keepdim=True)
    gap = (-logp - ent) if signed else (-logp - ent).abs()
    ids = gap.argsort(-1, descending=not rising)
    s = p.gather(1, ids)
    before = s.cumsum(-1) - (s if cross else 0)
    s = s.masked_fill(before >= mass, 0.0)
    out = torch.zeros_like(p).scatter(1, ids, s)
    return out / out.sum(-1, keepdim=True)


def typical_loop(x):
    out = torch.zeros_like(x)
    for i, row in enumerate(x):
        p = row.softmax(0)
        gap = (p.log() + torch.distributions.Categorical(probs=p.double()).entropy()).abs()
        total = 0.0
        for j in sorted(range(36), key=lambda j: float(gap[j])):
            if total >= 0.7:
                break
            out[i, j] = p[j]
            total += float(p[j])
        out[i] /= out[i].sum()
    return out


honest(typical_filter, "row by row with a loop", typical_loop)
honest(typical_filter, "float64 inside", double(typical_filter))
mistake(typical_filter, "the distance to the entropy is signed", signed=True)
mistake(typical_filter, "keeps the least typical tokens first", rising=False)
mistake(typical_filter, "the token that crosses the mass is dropped too", cross=False)


@fourth(lambda d: (d(6, 30, scale=1.5), d(6, 30, scale=1.5), d(6, 30, scale=1.5)))
def contrastive_guidance(cond, uncond, amateur, scale=2.5, alpha=0.1, logs=True, swapped=False,
        plausible=True, low=None):
    a, b, c = (kept(t.log_softmax(-1), low) if logs else t for t in (cond, uncond, amateur))
    if swapped:
        a, b = b, a
    g = b + scale * (a - b)
    s = g - 0.5 * c
    s = s.masked_fill(a < a.amax(-1, keepdim=True) + math.log(alpha), -1e4) if plausible else s
    return s.softmax(-1), g


honest(contrastive_guidance, "lerp and a threshold on probabilities", lambda a, b,
    c: (lambda x, y, z: (lambda g: (
    (g - z / 2).masked_fill(a.softmax(-1) < 0.1 * a.softmax(-1).amax(1, keepdim=True),
    float("-inf")).softmax(-1), g))(
        torch.lerp(y, x, 2.5)))(*(t - t.logsumexp(-1, keepdim=True) for t in (a, b, c))))
honest(contrastive_guidance, "float64 inside", double(contrastive_guidance))
mistake(contrastive_guidance, "conditional and unconditional are exchanged", swapped=True)
mistake(contrastive_guidance, "raw logits instead of log probabilities are mixed", logs=False)
mistake(contrastive_guidance, "implausible tokens are not ruled out", plausible=False)
mistake(contrastive_guidance, "log probabilities are rounded to fp16", low=hf)


# ------------------------------------------------------------------ running sums and segments

@fourth(lambda d: (d(5, 70, shift=0.5), d.rand(5, 70) < 0.1))
def resetting_cumsum(x, reset, exclusive=True, every=None, inclusive_reset=False, low=None, keep=True):
    total, out = torch.zeros_like(x[:, 0]), []
    for t in range(70):
        if keep and not inclusive_reset:
            total = torch.where(reset[:, t], torch.zeros_like(total), total)
        if every and t % every == 0:
            total = torch.zeros_like(total)
        new = kept(total + x[:, t], low)
        out.append(total if exclusive else new)
        total = new
        if inclusive_reset:
            total = torch.where(reset[:, t], torch.zeros_like(total), total)
    return torch.stack(out, 1)


def cumsum_minus_start(x, reset):
    c = x.double().cumsum(1) - x.double()
    at = torch.where(reset, torch.arange(70), torch.zeros(5, 70, dtype=torch.long)).cummax(1).values
    return (c - c.gather(1, at)).to(x.dtype)


honest(resetting_cumsum, "float64 prefix sums less the segment's start", cumsum_minus_start)
honest(resetting_cumsum, "float64 inside", double(resetting_cumsum))
mistake(resetting_cumsum, "the sum includes the current element", exclusive=False)
mistake(resetting_cumsum, "resets after the marked element instead of before", inclusive_reset=True)
mistake(resetting_cumsum, "the carry is lost at every block of 32", every=32)
mistake(resetting_cumsum, "resets are ignored", keep=False)
mistake(resetting_cumsum, "the running sum is kept in bf16", low=bf)


@fourth(lambda d: (d(4, 50, scale=2.0),))
def running_logsumexp(x, back=False, decay=0.1, stale=False, low=None, peak=False):
    x = x.flip(1) if back else x
    m, s, out = torch.full_like(x[:, 0], -1e30), torch.zeros_like(x[:, 0]), []
    for t in range(50):
        m = m - decay
        new = torch.maximum(m, x[:, t])
        s = kept((s if stale else s * (m - new).exp()) + (x[:, t] - new).exp(), low)
        m = new
        out.append(m if peak else m + s.log())
    y = torch.stack(out, 1)
    return y.flip(1) if back else y


honest(running_logsumexp, "all pairs", lambda x: (lambda a: (x[:, None] + (a[None] - a[:, None])
    * 0.1).masked_fill(
    a[None] > a[:, None], float("-inf")).logsumexp(-1))(torch.arange(50, dtype=x.dtype)))
honest(running_logsumexp, "torch's logcumsumexp of shifted values", lambda x: (lambda a: (
    torch.logcumsumexp(x.double() + 0.1 * a, 1) - 0.1 * a).to(x.dtype))(torch.arange(50,
    dtype=torch.float64)))
mistake(running_logsumexp, "the sum is not rescaled when the maximum grows", stale=True)
mistake(running_logsumexp, "runs from the end", back=True)
mistake(running_logsumexp, "the decay is left out", decay=0.0)
mistake(running_logsumexp, "the sum is kept in bf16", low=bf)
mistake(running_logsumexp, "the running maximum alone, without the sum", peak=True)


@fourth(lambda d: (d(80, 6, shift=-1.0), torch.tensor([0, 5, 5, 33, 34, 61, 80]), d(6)))
def segment_statistics(x, starts, fill, zero=False, correction=0, late=0, count=0, low=None, empty=True):
    means, tops, devs = [], [], []
    for a, b in zip(starts[:-1].tolist(), starts[1:].tolist()):
        part = x[a:b + late]
        if b - a == 0 and empty:
            for seen, empty_value in zip((means, tops, devs), (fill, fill, torch.zeros_like(fill))):
                seen.append(empty_value)
            continue
        n = len(part) + count
        mean = kept(part.sum(0), low) / max(n, 1)
        means.append(mean)
        both = torch.cat((part, torch.zeros_like(part[:1]))) if zero else part
        tops.append(both.amax(0) if len(both) else torch.zeros_like(fill))
        devs.append((((part - mean) ** 2).sum(0) / max(n - correction, 1)).sqrt())
    return torch.stack(means), torch.stack(tops), torch.stack(devs)


def statistics_by_scatter(x, starts, fill):
    ids = torch.bucketize(torch.arange(80), starts[1:], right=True)
    n = torch.bincount(ids, minlength=6).to(x.dtype)[:, None]
    zeros = torch.zeros(6, 6, dtype=x.dtype)
    mean = zeros.index_add(0, ids, x) / n.clamp(min=1)
    dev = (zeros.index_add(0, ids, (x - mean[ids]) ** 2) / n.clamp(min=1)).sqrt()
    top = torch.full_like(zeros, -1e30).scatter_reduce(0, ids[:, None].expand(-1, 6), x, "amax")
    return torch.where(n > 0, mean, fill), torch.where(n > 0, top, fill), dev


honest(segment_statistics, "scattered sums and maxima", statistics_by_scatter)
honest(segment_statistics, "float64 inside", double(segment_statistics))
mistake(segment_statistics, "the maximum starts from 0 instead of -inf", zero=True)
mistake(segment_statistics, "a segment's end is taken as inclusive", late=1)
mistake(segment_statistics, "deviations divide by n - 1", correction=1)
mistake(segment_statistics, "empty segments give 0 instead of the fill value", empty=False)
mistake(segment_statistics, "divides by n + 1", count=1)
mistake(segment_statistics, "a segment's sum is rounded to bf16 before the division", low=bf)


@fourth(lambda d: (d(3, 60), d.rand(3) * 0.3 + 0.6))
def debiased_moving_average(x, beta, fix=True, late=0, swapped=False, low=None, variance=True):
    b = 1 - beta if swapped else beta
    m, v, out, dev = torch.zeros_like(beta), torch.zeros_like(beta), [], []
    for t in range(60):
        d = x[:, t] - m
        m = kept(m + (1 - b) * d, low)
        v = b * (v + (1 - b) * d * (d if variance else x[:, t] - m))
        c = 1 - b ** (t + 1 + late) if fix else 1.0
        out.append(m / c)
        dev.append(v)
    return torch.stack(out, 1), torch.stack(dev, 1)


def average_by_weights(x, beta):
    at = torch.arange(60, dtype=torch.float64)
    w = (beta.double()[:, None, None] ** (at[:, None] - at).clamp(min=0)).tril() * (1 - beta.double())[:,
        None, None]
    m = (w @ x.double()[..., None])[..., 0]
    before = F.pad(m, (1, 0))[:, :-1]
    d = (x - before) ** 2
    v = beta[:, None] * (w @ d[..., None])[..., 0]
    return (m / (1 - beta.double()[:, None] ** (at + 1))).to(x.dtype), v.to(x.dtype)


honest(debiased_moving_average, "a matrix of weights in float64", average_by_weights)
honest(debiased_moving_average, "float64 inside", double(debiased_moving_average))
mistake(debiased_moving_average, "the average is not corrected for its start", fix=False)
mistake(debiased_moving_average, "beta weighs the new value", swapped=True)
mistake(debiased_moving_average, "the variance multiplies the gap before with the gap after", variance=False)
mistake(debiased_moving_average, "the average is kept in bf16", low=bf)
mistake(debiased_moving_average, "the correction counts one step too many", late=1)


# ------------------------------------------------------------------ embeddings and graphs

@fourth(lambda d: (d(2, 30, 24),))
def scaled_embedding_plus_sinusoid(x, root=True, halves=False, first=0, twice=1.0):
    n = x.shape[-1]
    at = torch.arange(x.shape[1], dtype=x.dtype)[:, None] + first
    angle = at * 10000.0 ** (-torch.arange(0, n, 2, dtype=x.dtype) * twice / n)
    table = (torch.cat if halves else torch.stack)((angle.sin(), angle.cos()), -1)
    return x * (n ** 0.5 if root else 1.0) + table.reshape(-1, n)


def sinusoid_by_columns(x):
    out = x * math.sqrt(24.0)
    at = torch.arange(x.shape[1], dtype=x.dtype)
    for i in range(12):
        f = math.exp(-math.log(10000.0) * 2 * i / 24)
        out[..., 2 * i] += (at * f).sin()
        out[..., 2 * i + 1] += (at * f).cos()
    return out


honest(scaled_embedding_plus_sinusoid, "column by column, frequencies by exp", sinusoid_by_columns)
honest(scaled_embedding_plus_sinusoid, "float64 inside", double(scaled_embedding_plus_sinusoid))
mistake(scaled_embedding_plus_sinusoid, "the embedding is not multiplied by sqrt(d)", root=False)
mistake(scaled_embedding_plus_sinusoid, "sines in the first half, cosines in the second", halves=True)
mistake(scaled_embedding_plus_sinusoid, "positions count from 1", first=1)
mistake(scaled_embedding_plus_sinusoid, "the exponent is i/d instead of 2i/d", twice=0.5)
stored_in(scaled_embedding_plus_sinusoid, bf)


@fourth(lambda d: (torch.where(d.rand(4, 7) < 0.25, 3, d.ints(40, 4, 7)), d(4, 10, 12, dtype=bf),
    d(12, dtype=bf), torch.tensor(3)))
def sharded_embedding(ids, shards, extra, pad, late=0, clamp=False, last=True, kill=True):
    out = 0
    for r in range(4 if last else 3):
        local = ids - r * (10 + late)
        mine = (local >= 0) & (local < 10)
        rows = shards[r][local.clamp(0, 9)]
        out = out + (rows if clamp else rows * mine[..., None])
    out = out + extra
    return torch.where((ids == pad)[..., None], torch.zeros_like(out), out) if kill else out


honest(sharded_embedding, "one table", inside(lambda ids, s, e, pad: (s.flatten(0, 1)[ids] + e)
    * (ids != pad)[..., None]))
honest(sharded_embedding, "one-hot product", inside(lambda ids, s, e, pad: torch.einsum(
    "btv,vd->btd", F.one_hot(ids, 40).to(s.dtype) * (ids != pad)[..., None], s.flatten(0, 1) + e)))
mistake(sharded_embedding, "rows outside a shard are clamped but not masked to zero",
    inside(sharded_embedding, clamp=True))
mistake(sharded_embedding, "shards start every 11 rows instead of 10", inside(sharded_embedding, late=1))
mistake(sharded_embedding, "the last shard is not added", inside(sharded_embedding, last=False))
mistake(sharded_embedding, "padding is not zeroed", inside(sharded_embedding, kill=False))


@fourth(lambda d: (d(20, 3), d(8, 3, scale=0.5), d(16, 10, scale=0.3)))
def fourier_features(x, b, w, two_pi=2 * math.pi, pairs=False, root=False, swapped=False, low=None):
    a = kept(two_pi * (x @ b.T), low)
    parts = (a.sin(), a.cos()) if swapped else (a.cos(), a.sin())
    f = torch.stack(parts, -1).flatten(1) if pairs else torch.cat(parts, 1)
    return f @ w * (1.0 if root else 0.5)


honest(fourier_features, "two products added", lambda x, b,
    w: (lambda a: 0.5 * (a.cos() @ w[:8] + a.sin() @ w[8:]))(
    x @ (b * (2 * math.pi)).T))
honest(fourier_features, "float64 inside", double(fourier_features))
mistake(fourier_features, "the factor 2 pi is left out", two_pi=1.0)
mistake(fourier_features, "sine before cosine", swapped=True)
mistake(fourier_features, "cosine and sine are interleaved", pairs=True)
mistake(fourier_features, "phases are rounded to bf16", low=bf)
mistake(fourier_features, "the factor sqrt(1 / m) is left out", root=True)


@fourth(lambda d: (d(15, 8), torch.stack((d.ints(15, 40), d.ints(15, 40))), d(8, 6), d.rand(40)))
def graph_convolution(x, edge, w, weight, loops=True, flipped=False, both=True, weighted=True):
    src, dst = edge.flip(0) if flipped else edge
    e = weight if weighted else torch.ones_like(weight)
    if loops:
        at = torch.arange(15)
        src, dst, e = torch.cat((src, at)), torch.cat((dst, at)), torch.cat((e,
            torch.ones(15, dtype=x.dtype)))
    deg = torch.zeros(15, dtype=x.dtype).index_add(0, dst, e).clamp(min=1e-6)
    n = deg.rsqrt()[src] * deg.rsqrt()[dst] if both else 1 / deg[dst]
    return torch.zeros(15, 6, dtype=x.dtype).index_add(0, dst, (x @ w)[src] * (e * n)[:, None])


def graph_dense(x, edge, w, weight):
    a = torch.eye(15, dtype=x.dtype)
    for s, t, e in zip(edge[0].tolist(), edge[1].tolist(), weight):
        a[t, s] += e
    d = a.sum(1) ** -0.5
    return (d[:, None] * a * d) @ x @ w


honest(graph_convolution, "a dense adjacency matrix", graph_dense)
honest(graph_convolution, "float64 inside", double(graph_convolution))
mistake(graph_convolution, "no self loops", loops=False)
mistake(graph_convolution, "source and target of the edges are exchanged", flipped=True)
mistake(graph_convolution, "divides by the target's degree only (row normalised)", both=False)
mistake(graph_convolution, "edge weights are ignored", weighted=False)
stored_in(graph_convolution, bf)


@fourth(lambda d: (d(14, 2, 6), torch.stack((d.ints(14, 45), d.ints(14, 45))), d(2, 6), d(2, 6)))
def graph_attention(h, edge, a_src, a_dst, slope=0.2, swapped=False, on=1, act=True):
    src, dst = edge
    s = (h * (a_dst if swapped else a_src)).sum(-1)[src] + (h * (a_src if swapped else a_dst)).sum(-1)[dst]
    s = F.leaky_relu(s, slope) if act else s
    e = (s - s.amax(0)).exp()
    node = dst if on else src
    z = torch.zeros(14, 2, dtype=h.dtype).index_add(0, node, e)
    out = torch.zeros(14, 2, 6, dtype=h.dtype).index_add(0, dst, (e / z[node])[..., None] * h[src])
    return F.elu(out.flatten(1))


def graph_attention_loop(h, edge, a_src, a_dst):
    out = torch.zeros(14, 2, 6, dtype=h.dtype)
    for i in range(14):
        src = edge[0][edge[1] == i]
        if len(src):
            s = torch.einsum("nhd,hd->nh", h[src], a_src) + torch.einsum("hd,hd->h", h[i], a_dst)
            out[i] = torch.einsum("nh,nhd->hd", F.leaky_relu(s, 0.2).softmax(0), h[src])
    return F.elu(out.flatten(1))


honest(graph_attention, "node by node", graph_attention_loop)
honest(graph_attention, "float64 inside", double(graph_attention))
mistake(graph_attention, "normalised over each source's edges, not each target's", on=0)
mistake(graph_attention, "source and target vectors are exchanged", swapped=True)
mistake(graph_attention, "scores skip the leaky relu", act=False)
mistake(graph_attention, "negative slope 0.01 instead of 0.2", slope=0.01)
stored_in(graph_attention, hf)


# ------------------------------------------------------------------ boxes and distances

@fourth(lambda d: (d(20, 4, scale=0.4), d.rand(20, 4) * 10, torch.tensor([0.1, 0.1, 0.2, 0.2])))
def decode_boxes(delta, anchor, variance, half=True, top=4.135, scaled=True, swapped=False, off=0.0):
    x, y, w, h = anchor[:, 0], anchor[:, 1], anchor[:, 2] + 1, anchor[:, 3] + 1
    t = delta * (variance * 10 if scaled else 10.0)
    if swapped:
        w, h = h, w
    cx, cy = x + t[:, 0] * w, y + t[:, 1] * h
    bw, bh = w * t[:, 2].clamp(max=top).exp(), h * t[:, 3].clamp(max=top).exp()
    k = 0.5 if half else 1.0
    return torch.stack((cx - k * bw, cy - k * bh, cx + k * bw - off, cy + k * bh - off), -1)


honest(decode_boxes, "centres and sizes as pairs", lambda t, a,
    v: (lambda s, c, e: torch.cat((c - e, c + e), 1))(
    *(lambda s: (s, torch.addcmul(a[:, :2], t[:, :2] * v[:2] * 10, s), s * (
        (t[:, 2:] * v[2:] * 10).clamp(max=4.135).exp() * 0.5)))(a[:, 2:] + 1)))
honest(decode_boxes, "float64 inside", double(decode_boxes))
mistake(decode_boxes, "the variances are not applied", scaled=False)
mistake(decode_boxes, "anchors' widths and heights are exchanged", swapped=True)
mistake(decode_boxes, "whole sizes instead of halves around the centre", half=False)
mistake(decode_boxes, "one pixel is subtracted at the right and the bottom", off=1.0)


@fourth(lambda d: (d(18, 10, shift=2.0), d(14, 10, shift=2.0),
    (lambda a: a @ a.T / 30 + 0.2 * torch.eye(10))(d(10, 30))))
def mahalanobis_pairs(x, y, cov, root=True, inverse=True, diagonal=False, low=None):
    m = torch.linalg.inv(cov) if inverse else cov
    if diagonal:
        m = torch.diag(1 / cov.diagonal())
    gap = kept(x[:, None] - y[None], low)
    sq = torch.einsum("ijd,de,ije->ij", gap, m, gap)
    return sq.sqrt() if root else sq


def mahalanobis_whitened(x, y, cov):
    low = torch.linalg.cholesky(cov.double())
    a, b = (torch.linalg.solve_triangular(low, t.double().T, upper=False).T for t in (x, y))
    return torch.cdist(a, b).to(x.dtype)


honest(mahalanobis_pairs, "whitened by a Cholesky factor in float64", mahalanobis_whitened)
honest(mahalanobis_pairs, "float64 inside", double(mahalanobis_pairs))
mistake(mahalanobis_pairs, "the covariance is not inverted", inverse=False)
mistake(mahalanobis_pairs, "the square root is left out", root=False)
mistake(mahalanobis_pairs, "only the covariance's diagonal is used", diagonal=True)
mistake(mahalanobis_pairs, "differences are rounded to bf16", low=bf)


@fourth(lambda d: (d(16, 6), d(20, 6, shift=0.7)))
def kernel_two_samples(x, y, unbiased=True, two=2.0, width=(1.0, 4.0), half=True, squared=True):
    def k(a, b):
        sq = ((a[:, None] - b[None]) ** 2).sum(-1)
        sq = sq if squared else (sq + 1e-12).sqrt()
        return sum((-sq / ((2 if half else 1) * w)).exp() for w in width)

    a, b, c = k(x, x), k(y, y), k(x, y)
    if unbiased:
        a, b = (t.sum(1) - t.diagonal() for t in (a, b))
        return a / 15, b / 19, a.sum() / (16 * 15) + b.sum() / (20 * 19) - two * c.mean()
    return a.sum(1) / 16, b.sum(1) / 20, a.mean() + b.mean() - two * c.mean()


def two_samples_by_products(x, y):
    z = torch.cat((x, y)).double()
    n = (z * z).sum(1)
    sq = (n[:, None] + n - 2 * z @ z.T).clamp(min=0)
    k = (-sq / 2).exp() + (-sq / 8).exp()
    k = k - torch.diag(k.diagonal())
    a, b = k[:16, :16].sum(1) / 15, k[16:, 16:].sum(1) / 19
    return tuple(t.to(x.dtype) for t in (a, b, a.mean() + b.mean() - k[:16, 16:].sum() / 160))


honest(kernel_two_samples, "distances by products in float64", two_samples_by_products)
honest(kernel_two_samples, "float64 inside", double(kernel_two_samples))
mistake(kernel_two_samples, "the diagonal is counted (biased estimate)", unbiased=False)
mistake(kernel_two_samples, "the factor 2 in the exponent's width is left out", half=False)
mistake(kernel_two_samples, "the cross term is not doubled", two=1.0)
mistake(kernel_two_samples, "distances are not squared", squared=False)


@fourth(lambda d: (d(2, 17, 3), d(2, 21, 3)))
def chamfer_terms(x, y, squared=True, far=False, one=False, batch=False):
    other = y.roll(1, 0) if batch else y
    d = ((x[:, :, None] - other[:, None]) ** 2).sum(-1)
    d = d if squared else d.sqrt()
    a = d.amax(2) if far else d.amin(2)
    return a, a.mean(1) + (0.0 if one else d.amin(1).mean(1))


honest(chamfer_terms, "torch's cdist in float64", lambda x, y: (lambda d: (
    d.amin(2).float(), (d.amin(2).mean(1) + d.amin(1).mean(1)).float()))(torch.cdist(x.double(),
    y.double()) ** 2))
honest(chamfer_terms, "float64 inside", double(chamfer_terms))
mistake(chamfer_terms, "distances instead of squared distances", squared=False)
mistake(chamfer_terms, "the farthest point instead of the nearest", far=True)
mistake(chamfer_terms, "only one direction is averaged", one=True)
mistake(chamfer_terms, "compares with the other cloud of the batch", batch=True)
stored_in(chamfer_terms, hf)


@fourth(lambda d: (d(25, 3), d(12, 3), d(12, 5)))
def nearest_three_interpolation(x, known, feature, k=3, squared=True, norm=True, inverse=True, eps=1e-6):
    d = ((x[:, None] - known[None]) ** 2).sum(-1)
    best, ids = d.topk(k, -1, largest=False)
    best = best if squared else best.sqrt()
    w = 1 / (best + eps) if inverse else best
    w = w / w.sum(-1, keepdim=True) if norm else w
    return (feature[ids] * w[..., None]).sum(1)


honest(nearest_three_interpolation, "masked matrix of weights", lambda x, y, f: (lambda d: (lambda w: (
    w / w.sum(1, keepdim=True)) @ f)(torch.where(d <= d.sort(1).values[:, 2:3], 1 / (d + 1e-6),
    torch.zeros_like(d))))(
        (x[:, None] - y).square().sum(-1)))
honest(nearest_three_interpolation, "float64 inside", double(nearest_three_interpolation))
mistake(nearest_three_interpolation, "two neighbours instead of three", k=2)
mistake(nearest_three_interpolation, "weights by distance, not by squared distance", squared=False)
mistake(nearest_three_interpolation, "weights are not normalised", norm=False)
mistake(nearest_three_interpolation, "far neighbours weigh more (distances not inverted)", inverse=False)
