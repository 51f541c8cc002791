# SPDX-License-Identifier: Apache-2.0
"""Wrong kernels of layers, written blind: rotations, attention, routing, recurrences, norms."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, family, hf, mistake, narrow, tf32

# ------------------------------------------------------------------ rotary


@family(lambda d: (d(2, 4, 40, 32), torch.arange(40)))
def rotary(x, pos, base=10000.0, sign=1.0, first=0, late=0, paired=False, part=1.0, freq=0):
    half = x.shape[-1] // 2
    inv = base ** (-(torch.arange(first, half + first, dtype=x.dtype) + freq) / half)
    angle = (pos.to(x.dtype) + late)[:, None] * inv
    cos, sin = angle.cos(), angle.sin() * sign
    if paired:
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, (b * cos + a * sin) * part), -1)


mistake(rotary, "rotates the other way (sin negated)", sign=-1.0)
mistake(rotary, "positions start at 1 instead of 0", late=1)
mistake(rotary, "base is 500000 instead of 10000", base=500000.0)
mistake(rotary, "pairs neighbours instead of halves", paired=True)
mistake(
    rotary,
    "the second half is not rotated (copied through)",
    lambda x, p: torch.cat((rotary(x, p)[..., :16], x[..., 16:]), -1),
)
mistake(rotary, "angles rounded to bfloat16", lambda x, p: _rotary_bf(x, p))


def _rotary_bf(x, p):
    inv = 10000.0 ** (-torch.arange(16, dtype=torch.float32) / 16)
    angle = narrow(p.float()[:, None] * inv)
    a, b = x[..., :16], x[..., 16:]
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)


# ------------------------------------------------------------------ attention


@family(lambda d: (d(2, 4, 33, 16), d(2, 4, 33, 16), d(2, 4, 33, 16)))
def softcap_attention(q, k, v, cap=30.0, scale=None, late=0, masked=True, inner="tanh", after=False):
    scores = q @ k.transpose(-1, -2) * (scale or q.shape[-1] ** -0.5)
    rows = torch.arange(q.shape[-2])
    keep = rows[:, None] + late >= rows[None, :]
    if cap and not after:
        squash = torch.tanh if inner == "tanh" else (lambda t: t.clamp(-1, 1))
        scores = cap * squash(scores * 4 / cap)
    if masked:
        scores = scores.masked_fill(~keep, float("-inf"))
    return scores.softmax(-1) @ v


mistake(softcap_attention, "softcap left out", lambda q, k, v: softcap_attention(q, k, v * 1, cap=1e9))
mistake(softcap_attention, "causal mask one late (sees the next token)", late=1)
mistake(softcap_attention, "no causal mask", masked=False)
mistake(softcap_attention, "cap 50 instead of 30", cap=50.0)
mistake(softcap_attention, "scale 1/d instead of 1/sqrt(d)", scale=1 / 16)
mistake(
    softcap_attention,
    "clamp instead of tanh in the softcap with cap 4",
    lambda q, k, v: softcap_attention(q, k, v, cap=4.0, inner="clamp"),
)
mistake(softcap_attention, "query and key multiplied in TF32", lambda q, k, v: _tf32_attention(q, k, v))


def _tf32_attention(q, k, v):
    s = 30.0 * torch.tanh(tf32(q) @ tf32(k).transpose(-1, -2) * 0.25 * 4 / 30.0)
    return s.masked_fill(torch.ones(33, 33).triu(1).bool(), float("-inf")).softmax(-1) @ v


@family(lambda d: (d(2, 8, 24, 16), d(2, 2, 24, 16), d(2, 2, 24, 16)))
def grouped_heads(q, k, v, tiled=False, heads=None, skip=0):
    n = q.shape[1] // k.shape[1]
    if tiled:
        k, v = k.repeat(1, n, 1, 1), v.repeat(1, n, 1, 1)
    else:
        k, v = k.repeat_interleave(n, 1), v.repeat_interleave(n, 1)
    s = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-1)
    return (s[..., skip:] @ v[..., skip:, :]) if skip else s @ v


mistake(grouped_heads, "heads tiled instead of repeated", tiled=True)
mistake(
    grouped_heads,
    "all query heads use the first kv head",
    lambda q, k, v: grouped_heads(q, k[:, :1].expand_as(k), v[:, :1].expand_as(v)),
)
mistake(
    grouped_heads,
    "values of the wrong group (kv heads swapped for v only)",
    lambda q, k, v: grouped_heads(q, k, v.flip(1)),
)
mistake(
    grouped_heads,
    "last 8 keys of 24 dropped (before softmax)",
    lambda q, k, v: grouped_heads(q, k[..., :16, :], v[..., :16, :]),
)
mistake(
    grouped_heads,
    "probabilities rounded to bfloat16 before the second product",
    lambda q, k, v: (
        narrow((q @ k.repeat_interleave(4, 1).transpose(-1, -2) / 4).softmax(-1)) @ v.repeat_interleave(4, 1)
    ),
)
mistake(
    grouped_heads,
    "not normalised by the sum of the last tile: online softmax forgets to rescale the accumulator",
    lambda q, k, v: _online(q, k.repeat_interleave(4, 1), v.repeat_interleave(4, 1), False),
)


def _online(q, k, v, rescale, tile=8):
    top = torch.full(q.shape[:-1], -math.inf)
    total, acc = torch.zeros(q.shape[:-1]), torch.zeros_like(q)
    for j in range(0, k.shape[-2], tile):
        s = q @ k[..., j : j + tile, :].transpose(-1, -2) / math.sqrt(q.shape[-1])
        new = torch.maximum(top, s.amax(-1))
        f = (top - new).exp()
        p = (s - new[..., None]).exp()
        total = total * f + p.sum(-1)
        acc = acc * (f[..., None] if rescale else 1.0) + p @ v[..., j : j + tile, :]
        top = new
    return acc / total[..., None]


@family(lambda d: (d(1, 4, 48, 16, dtype=bf), d(1, 4, 48, 16, dtype=bf), d(1, 4, 48, 16, dtype=bf)))
def window_attention(q, k, v, window=16, causal=True, slopes=1.0, zero=False):
    q, k, v = q.float() if q.dtype == bf else q, k.float() if k.dtype == bf else k, v
    s = q @ k.transpose(-1, -2) * 0.25
    i = torch.arange(s.shape[-1])
    dist = i[:, None] - i[None, :]
    bias = 2.0 ** -(torch.arange(1, 5) * 2.0) * slopes
    s = s - bias[:, None, None].to(s.dtype) * dist.abs().to(s.dtype)
    s = s.masked_fill((dist < 0) | (dist >= window), 0.0 if zero else float("-inf"))
    return (s.softmax(-1) @ v.to(s.dtype)).to(v.dtype)


mistake(window_attention, "window one too wide", window=17)
mistake(window_attention, "ALiBi slopes of the wrong sign", slopes=-1.0)
mistake(window_attention, "ALiBi bias left out", slopes=0.0)
mistake(window_attention, "masked scores are 0 instead of -inf", zero=True)


@family(lambda d: (d(3, 4, 10, 8), d(3, 4, 12, 8), d(3, 4, 12, 8), d.rand(3, 1, 10, 12) > 0.3))
def sdpa_masked(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, mask)


mistake(sdpa_masked, "mask inverted", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, ~m))
mistake(sdpa_masked, "mask ignored", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v))
mistake(
    sdpa_masked,
    "mask of batch 0 used for all",
    lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m[:1].expand_as(m)),
)
mistake(sdpa_masked, "scale left out", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m, scale=1.0))
mistake(sdpa_masked, "scaled twice", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m, scale=0.125))
mistake(
    sdpa_masked,
    "keys read as (seq, dim) transposed storage",
    lambda q, k, v, m: F.scaled_dot_product_attention(q, k.transpose(-1, -2).reshape(3, 4, 12, 8), v, m),
)


# ------------------------------------------------------------------ MoE


@family(lambda d: (d(40, 16), d(16, 6), d(6, 16, 24, scale=0.2), d(6, 24, 16, scale=0.2)))
def moe(x, router, w1, w2, top=2, renorm=True, act=F.silu, first=False, swap=False, w=None):
    probs = (x @ router).softmax(-1)
    weight, index = probs.topk(top, -1)
    if renorm:
        weight = weight / weight.sum(-1, keepdim=True)
    if swap:
        weight = weight.flip(-1)
    if first:
        weight = torch.ones_like(weight)
    h = act(torch.einsum("td,edh->teh", x, w1))
    y = torch.einsum("teh,ehd->ted", h, w2)
    y = y.gather(1, index[..., None].expand(-1, -1, x.shape[-1]))
    return (weight[..., None] * y).sum(1)


mistake(moe, "top-k weights not renormalised", renorm=False)
mistake(moe, "only the best expert (top 1)", top=1)
mistake(moe, "weights of the two experts exchanged", swap=True)
mistake(moe, "gelu instead of silu", act=F.gelu)
mistake(moe, "routing weights left out (sum of both experts)", first=True)
mistake(
    moe,
    "capacity: tokens after the 32nd dropped (zeros)",
    lambda x, r, a, b: torch.cat((moe(x, r, a, b)[:32], torch.zeros(8, 16))),
)
mistake(moe, "expert products with inputs rounded to bfloat16", lambda x, r, a, b: _moe_bf(x, r, a, b))


def _moe_bf(x, r, a, b):
    probs = (x @ r).softmax(-1)
    weight, index = probs.topk(2, -1)
    weight = weight / weight.sum(-1, keepdim=True)
    h = F.silu(torch.einsum("td,edh->teh", narrow(x), narrow(a)))
    y = torch.einsum("teh,ehd->ted", h, b)
    y = y.gather(1, index[..., None].expand(-1, -1, 16))
    return (weight[..., None] * y).sum(1)


@family(lambda d: (d(64, 8), d.ints(8, 64, 2)))
def load_balance(logits, index, squared=False, scale=True):
    probs = logits.softmax(-1)
    share = F.one_hot(index, 8).to(logits.dtype).sum(1).mean(0)
    return (share * probs.mean(0)).sum() * (8 if scale else 1)


mistake(load_balance, "not multiplied by the number of experts", scale=False)
mistake(load_balance, "counts only the first choice", lambda l, i: load_balance(l, i[:, :1]))
mistake(
    load_balance,
    "logits used instead of probabilities",
    lambda l, i: (F.one_hot(i, 8).float().sum(1).mean(0) * l.mean(0)).sum() * 8,
)


# ------------------------------------------------------------------ SSM, linear attention, conv


@family(
    lambda d: (d(2, 30, 8), F.softplus(d(2, 30, 8)), -torch.exp(d(8, 4, scale=0.5)), d(2, 30, 4), d(2, 30, 4), d(8))
)
def selective_scan(x, dt, a, b, c, skip, euler=False, late=False, no_dt=False, no_skip=False, reset=0, half=None):
    state = torch.zeros(x.shape[0], x.shape[2], a.shape[1], dtype=x.dtype)
    out = []
    for t in range(x.shape[1]):
        step = dt[:, t, :, None]
        decay = 1 + step * a if euler else torch.exp(step * a)
        fed = (1.0 if no_dt else step) * b[:, t, None, :] * x[:, t, :, None]
        if reset and t % reset == 0:
            state = torch.zeros_like(state)
        before = state
        state = decay * state + fed
        if half:
            state = narrow(state, half)
        seen = before if late else state
        out.append((seen * c[:, t, None, :]).sum(-1))
    y = torch.stack(out, 1)
    return y if no_skip else y + x * skip


mistake(selective_scan, "state kept in bfloat16", half=bf)
mistake(selective_scan, "decay 1 + dt*a instead of exp(dt*a)", euler=True)
mistake(selective_scan, "output taken before the update (one step late)", late=True)
mistake(selective_scan, "input not multiplied by dt", no_dt=True)
mistake(selective_scan, "skip term D*x left out", no_skip=True)
mistake(selective_scan, "state lost at chunk borders (every 10 steps)", reset=10)


@family(lambda d: (d(2, 3, 20, 8), d(2, 3, 20, 8), d(2, 3, 20, 8)))
def linear_attention(q, k, v, inclusive=True, norm=True, feature=True):
    if feature:
        q, k = F.elu(q) + 1, F.elu(k) + 1
    kv = (k[..., :, None] * v[..., None, :]).cumsum(2)
    z = k.cumsum(2)
    if not inclusive:
        kv, z = kv - k[..., :, None] * v[..., None, :], z - k
    y = (q[..., None] * kv).sum(-2)
    return y / ((q * z).sum(-1, keepdim=True) + 1e-6) if norm else y


mistake(linear_attention, "not normalised", norm=False)
mistake(linear_attention, "cumulative sum does not include the present token", inclusive=False)
mistake(
    linear_attention,
    "feature map relu instead of elu+1",
    lambda q, k, v: linear_attention(F.relu(q), F.relu(k), v, feature=False),
)
mistake(linear_attention, "not causal: sums over the whole sequence", lambda q, k, v: _whole_linear(q, k, v))


def _whole_linear(q, k, v):
    q, k = F.elu(q) + 1, F.elu(k) + 1
    return (q @ (k.transpose(-1, -2) @ v)) / ((q * k.sum(2, keepdim=True)).sum(-1, keepdim=True) + 1e-6)


@family(lambda d: (d(2, 6, 40), d(6, 1, 4), d(6)))
def causal_conv(x, w, b, pad=3, flip=False, bias=True, act=True):
    y = F.conv1d(F.pad(x, (pad, 3 - pad)), w.flip(-1) if flip else w, b if bias else None, groups=x.shape[1])
    return F.silu(y) if act else y


mistake(causal_conv, "taps in reverse order (a true convolution)", flip=True)
mistake(causal_conv, "padded one step wrong (sees one step ahead)", pad=2)
mistake(causal_conv, "bias left out", bias=False)
mistake(causal_conv, "silu left out", act=False)


# ------------------------------------------------------------------ norms


@family(lambda d: (d(12, 96, shift=0.3), d(96, scale=0.2, shift=1.0)))
def rms_norm(x, w, eps=1e-6, mean=False, total=False, gemma=False, width=None):
    if mean:
        x = x - x.mean(-1, keepdim=True)
    s = x.pow(2).sum(-1, keepdim=True) if total else x[..., :width].pow(2).mean(-1, keepdim=True)
    y = x * torch.rsqrt(s + eps)
    return y * (1 + w) if gemma else y * w


mistake(rms_norm, "mean subtracted (layer norm without bias)", mean=True)
mistake(rms_norm, "sum of squares instead of mean", total=True)
mistake(rms_norm, "weight as 1 + w", gemma=True)
mistake(rms_norm, "only the first 64 of 96 elements in the mean", width=64)
mistake(rms_norm, "weight left out", lambda x, w: rms_norm(x, torch.ones_like(w)))
mistake(
    rms_norm,
    "rsqrt by the 12-bit hardware approximation",
    lambda x, w: x * narrow(torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6), hf) * w,
)


@family(lambda d: (d(16, 80, scale=2.0, shift=1.0), d(80), d(80)))
def layer_norm(x, w, b, eps=1e-5):
    return F.layer_norm(x, (x.shape[-1],), w, b, eps)


mistake(
    layer_norm,
    "unbiased variance",
    lambda x, w, b: (x - x.mean(-1, True)) / (x.var(-1, keepdim=True) + 1e-5).sqrt() * w + b,
)
mistake(layer_norm, "bias left out", lambda x, w, b: F.layer_norm(x, (80,), w, None))
mistake(layer_norm, "weight and bias exchanged", lambda x, w, b: F.layer_norm(x, (80,), b, w))
mistake(
    layer_norm,
    "divides by the variance, not its root",
    lambda x, w, b: (x - x.mean(-1, True)) / (x.var(-1, keepdim=True, correction=0) + 1e-5) * w + b,
)
mistake(
    layer_norm,
    "mean and variance over the first 64 elements (tail of 16 not reduced)",
    lambda x, w, b: (
        (x - x[:, :64].mean(-1, True)) / (x[:, :64].var(-1, keepdim=True, correction=0) + 1e-5).sqrt() * w + b
    ),
)
mistake(
    layer_norm,
    "mean not subtracted from the tail of 16 columns",
    lambda x, w, b: torch.cat(
        (
            F.layer_norm(x, (80,), w, b)[:, :64],
            (x[:, 64:] * (x.var(-1, keepdim=True, correction=0) + 1e-5).rsqrt()) * w[64:] + b[64:],
        ),
        -1,
    ),
)


@family(lambda d: (d(4, 12, 5, 5, shift=0.5), d(12), d(12)))
def group_norm(x, w, b, groups=3, eps=1e-5):
    return F.group_norm(x, groups, w, b, eps)


mistake(group_norm, "4 groups instead of 3", groups=4)
mistake(group_norm, "instance norm (one group a channel)", groups=12)
mistake(
    group_norm,
    "weight applied per group, not per channel",
    lambda x, w, b: F.group_norm(x, 3, w[:3].repeat_interleave(4), b),
)
mistake(
    group_norm,
    "channels dealt to groups in turn (strided)",
    lambda x, w, b: (
        F.group_norm(x.view(4, 4, 3, 5, 5).transpose(1, 2).reshape(4, 12, 5, 5), 3)
        .view(4, 3, 4, 5, 5)
        .transpose(1, 2)
        .reshape(4, 12, 5, 5)
        * w[:, None, None]
        + b[:, None, None]
    ),
)


@family(lambda d: (d(8, 6, 7, shift=1.0), d(6), d(6).abs() + 0.5, d(6), d(6)))
def batch_norm_eval(x, mean, var, w, b, eps=1e-5):
    return F.batch_norm(x, mean, var, w, b, False, 0.1, eps)


mistake(
    batch_norm_eval,
    "uses batch statistics in evaluation",
    lambda x, m, v, w, b: F.batch_norm(x, m.clone(), v.clone(), w, b, True),
)
mistake(
    batch_norm_eval,
    "running variance used as standard deviation",
    lambda x, m, v, w, b: F.batch_norm(x, m, v * v, w, b, False),
)
mistake(batch_norm_eval, "eps 1e-1 instead of 1e-5", eps=0.1)


@family(lambda d: (d(10, 30), d(10, 30)))
def cosine_rows(a, b):
    return F.cosine_similarity(a, b, -1)


mistake(cosine_rows, "norm of b left out", lambda a, b: (a * b).sum(-1) / a.norm(dim=-1))
mistake(cosine_rows, "squared norms not rooted", lambda a, b: (a * b).sum(-1) / (a.pow(2).sum(-1) * b.pow(2).sum(-1)))
mistake(cosine_rows, "along the other axis, first 10 columns", lambda a, b: F.cosine_similarity(a, b, 0)[:10])
