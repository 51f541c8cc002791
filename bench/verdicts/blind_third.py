# SPDX-License-Identifier: Apache-2.0
"""Set C, written blind like sets A and B but by another hand: positions, attention and routing.

blind_third_layers, _training and _numbers hold the rest of the set and use the helpers here."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, family, mistake, narrow, slow_matmul, tf32


def third(args):
    return family(args, sets="C")


def kept(x, low):
    """x as a kernel holds it that keeps it in `low` (None: as it is)."""
    return x if low is None else narrow(x, low)


def widened(fn, **keywords):
    """A kernel that reads narrow inputs, works in float32 and rounds once, when it stores."""

    def wrong(*args):
        out = fn(*(a.float() if torch.is_tensor(a) and a.is_floating_point() else a for a in args), **keywords)
        return out.to(args[0].dtype)

    return wrong


def hurt(fn, spoil):
    """fn, whose first result is spoilt in place on its way out."""

    def wrong(*args):
        out = fn(*args)
        spoil(out[0] if isinstance(out, tuple) else out)
        return out

    return wrong


def last_rows_unwritten(out, rows=1):
    out[-rows:] = 0


def two_rows_swapped(out, i=1, j=3):
    out[[i, j]] = out[[j, i]]


def tail_unwritten(out, block=64):
    flat = out.view(-1)
    flat[flat.numel() // block * block :] = 0


# ------------------------------------------------------------------ positions


def turn(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


@third(lambda d: (d(2, 3, 24, 32), torch.arange(100, 124)))
def rotary_partial(x, pos, part=16, spread=16, first=True, low=None):
    inv = 10000.0 ** (-torch.arange(0, part, 2, dtype=x.dtype) / spread)
    angle = kept(pos.to(x.dtype)[:, None] * inv, low)
    if first:
        return torch.cat((turn(x[..., :part], angle.cos(), angle.sin()), x[..., part:]), -1)
    return torch.cat((x[..., :-part], turn(x[..., -part:], angle.cos(), angle.sin())), -1)


mistake(rotary_partial, "frequencies spread over the whole head (32), not over the rotated part (16)", spread=32)
mistake(rotary_partial, "rotates the last 16 channels and passes the first 16", first=False)
mistake(rotary_partial, "the angle is rounded to bf16 before cos and sin", low=bf)


@third(lambda d: (d(1, 2, 30, 16), d(1, 2, 30, 16), torch.arange(30)))
def rotary_pairs_qk(q, k, pos, behind=0, halves=False, only_q=False):
    inv = 10000.0 ** (-torch.arange(0, q.shape[-1], 2, dtype=q.dtype) / q.shape[-1])
    cos = (pos.to(q.dtype)[:, None] * inv).cos()
    sin = ((pos.to(q.dtype) - behind)[:, None] * inv).sin()

    def each(x):
        a, b = x[..., 0::2], x[..., 1::2]
        turned = (a * cos - b * sin, b * cos + a * sin)
        return torch.cat(turned, -1) if halves else torch.stack(turned, -1).flatten(-2)

    return each(q), k.clone() if only_q else each(k)


mistake(rotary_pairs_qk, "the sine is taken one position behind the cosine", behind=1)
mistake(rotary_pairs_qk, "reads interleaved pairs but writes them back as two halves", halves=True)
mistake(rotary_pairs_qk, "k is passed through without its rotation", only_q=True)


@third(lambda d: (d(2, 2, 40, 32), torch.arange(40) * 5))
def rotary_yarn(x, pos, factor=4.0, fast=32.0, slow=1.0, ramp="down", scaled=True, trained=512):
    half = x.shape[-1] // 2
    i = torch.arange(half, dtype=x.dtype)
    inv = 10000.0 ** (-i / half)

    def place(turns):
        return half * math.log(trained / (turns * 2 * math.pi)) / math.log(10000.0)

    low, high = max(math.floor(place(fast)), 0), min(math.ceil(place(slow)), half - 1)
    keep = 1 - ((i - low) / (high - low)).clamp(0, 1)
    keep = {"down": keep, "up": 1 - keep, "none": keep * 0}[ramp]
    inv = inv * keep + inv / factor * (1 - keep)
    m = 0.1 * math.log(factor) + 1 if scaled else 1.0
    angle = pos.to(x.dtype)[:, None] * inv
    return turn(x, angle.cos() * m, angle.sin() * m)


mistake(rotary_yarn, "the ramp is upside down: slow frequencies kept, fast ones interpolated", ramp="up")
mistake(rotary_yarn, "the magnitude factor 0.1 ln(factor) + 1 is left out", scaled=False)
mistake(rotary_yarn, "every frequency is interpolated (no ramp at all)", ramp="none")


@third(lambda d: (d(2, 2, 32, 16), torch.arange(32)))
def rotary_ntk(x, pos, factor=8.0, power=None, stretch=1.0, low=None):
    n = x.shape[-1]
    base = 10000.0 * factor ** (n / (n - 2) if power is None else power)
    angle = pos.to(x.dtype)[:, None] / stretch * base ** (-torch.arange(0, n, 2, dtype=x.dtype) / n)
    return turn(x, kept(angle.cos(), low), kept(angle.sin(), low))


mistake(rotary_ntk, "the base is multiplied by the factor squared", power=2.0)
mistake(rotary_ntk, "positions are divided by the factor as well", stretch=8.0)
mistake(rotary_ntk, "cosine and sine tables are stored in bf16", low=bf)


# ------------------------------------------------------------------ attention


def causal(n, like):
    return like.new_full((n, n), float("-inf")).triu(1)


@third(lambda d: (d(1, 4, 33, 16), d(1, 4, 33, 16), d(1, 4, 33, 16)))
def alibi_attention(q, k, v, first=1, divided=False, low=None):
    heads, n = q.shape[1], q.shape[2]
    slope = 2.0 ** (-8.0 * (torch.arange(heads, dtype=q.dtype) + first) / heads)
    at = torch.arange(n, dtype=q.dtype)
    bias = slope[:, None, None] * (at[None, :] - at[:, None])
    scale = q.shape[-1] ** -0.5
    s = (q @ k.mT + bias) * scale if divided else q @ k.mT * scale + bias
    return kept((s + causal(n, q)).softmax(-1), low) @ v


mistake(alibi_attention, "slopes counted from head 0: the first slope is 1", first=0)
mistake(alibi_attention, "the bias is added before the scale and so divided by sqrt(d) too", divided=True)
mistake(alibi_attention, "probabilities are rounded to bf16 before the product with v", low=bf)


@third(lambda d: (d(1, 8, 40, 16), d(1, 2, 40, 16), d(1, 2, 40, 16), d(8)))
def sink_window_attention(q, k, v, sink, window=12, no_sink=False, strided=False):
    group, n = q.shape[1] // k.shape[1], q.shape[2]
    spread = (lambda x: x.repeat(1, group, 1, 1)) if strided else (lambda x: x.repeat_interleave(group, 1))
    at = torch.arange(n)
    back = at[:, None] - at[None, :]
    s = q @ spread(k).mT * q.shape[-1] ** -0.5
    s = s.masked_fill((back < 0) | (back >= window), float("-inf"))
    if no_sink:
        return s.softmax(-1) @ spread(v)
    s = torch.cat((s, sink[None, :, None, None].expand(1, -1, n, 1)), -1)
    return s.softmax(-1)[..., :-1] @ spread(v)


mistake(sink_window_attention, "the sink's logit is missing in the softmax's sum", no_sink=True)
mistake(sink_window_attention, "the window holds 13 keys instead of 12", window=13)
mistake(sink_window_attention, "query head h reads kv head h % 2 instead of h // 4", strided=True)


@third(
    lambda d: (
        d(4, 2, 16),
        d(20, 8, 2, 16),
        d(20, 8, 2, 16),
        torch.randperm(20, generator=d.g).view(4, 5),
        torch.tensor([37, 12, 29, 5]),
    )
)
def paged_decode(q, keys, values, table, lengths, late=0, full_only=False, row=None):
    out = []
    for i in range(len(q)):
        n = int(lengths[i]) + late
        if full_only and n > 8:
            n = n // 8 * 8
        blocks = table[i if row is None else row]
        k, v = keys[blocks].flatten(0, 1)[:n], values[blocks].flatten(0, 1)[:n]
        p = (torch.einsum("hd,nhd->hn", q[i], k) * q.shape[-1] ** -0.5).softmax(-1)
        out.append(torch.einsum("hn,nhd->hd", p, v))
    return torch.stack(out)


mistake(paged_decode, "each sequence reads the block table's first row", row=0)
mistake(paged_decode, "reads one slot past the end of the sequence", late=1)
mistake(paged_decode, "a partly filled last block is dropped", full_only=True)


@third(lambda d: (d(3, 2, 14, 16), d(3, 2, 20, 16), d(3, 2, 20, 16), torch.tensor([20, 7, 13])))
def cross_attention(q, k, v, lengths, fill=float("-inf"), other=0, low=None):
    padded = torch.arange(k.shape[2])[None, :] >= lengths.roll(other)[:, None]
    s = q @ k.mT if low is None else slow_matmul(q, k.mT, low, 4)
    s = (s * q.shape[-1] ** -0.5).masked_fill(padded[:, None, None], fill)
    return s.softmax(-1) @ v


mistake(cross_attention, "padded keys score 0 instead of -inf", fill=0.0)
mistake(cross_attention, "the padding of the next sequence in the batch is used", other=-1)
mistake(cross_attention, "q k^T is accumulated in bf16, four products at a time", low=bf)


@third(lambda d: (d(1, 4, 24, 16), d(1, 4, 24, 16), d(1, 4, 24, 16), d(16, shift=2.0), d(16, shift=2.0)))
def qk_norm_attention(q, k, v, gq, gk, over=(-1,), k_gain=True, low=None, round=None):
    def norm(x, gain):
        y = x * kept(kept(x * x, low).mean(over, keepdim=True) + 1e-6, low).rsqrt() * gain
        return round(y) if round else y

    s = norm(q, gq) @ norm(k, gk if k_gain else torch.ones_like(gk)).mT * q.shape[-1] ** -0.5
    return (s + causal(q.shape[2], q)).softmax(-1) @ v


mistake(qk_norm_attention, "mean square taken over all heads together", over=(1, -1))
mistake(qk_norm_attention, "k's gain is left out", k_gain=False)
mistake(qk_norm_attention, "q k^T in tf32", round=tf32)
mistake(qk_norm_attention, "squares and their mean are held in bf16", low=bf)


@third(lambda d: (d(2, 4, 1, 16, scale=8.0), d(2, 4, 48, 16), d(2, 4, 48, 16)))
def capped_split_decode(q, k, v, cap=20.0, top=20.0, merge="lse", low=None):
    parts = []
    for kk, vv in zip(k.split(16, 2), v.split(16, 2)):
        s = top * torch.tanh(q @ kk.mT * q.shape[-1] ** -0.5 / cap)
        m = s.amax(-1, keepdim=True)
        e = (s - m).exp()
        parts.append((m, e.sum(-1, keepdim=True), kept(e @ vv, low)))
    high = torch.stack([m for m, _, _ in parts]).amax(0)
    if merge == "mean":
        return sum(o / z for _, z, o in parts) / len(parts)
    w = [torch.ones_like(m) if merge == "unscaled" else (m - high).exp() for m, _, _ in parts]
    return sum(a * o for a, (_, _, o) in zip(w, parts)) / sum(a * z for a, (_, z, _) in zip(w, parts))


mistake(capped_split_decode, "the splits are averaged with equal weights", merge="mean")
mistake(capped_split_decode, "splits are added without bringing them to a common maximum", merge="unscaled")
mistake(capped_split_decode, "the cap divides by 20 but multiplies by 30", top=30.0)
mistake(capped_split_decode, "each split's partial output is stored in bf16", low=bf)


@third(lambda d: (d(2, 4, 20, 16), d(2, 20, 24), d(4, 24, 16, scale=0.3), d(4, 24, 16, scale=0.3)))
def latent_attention(q, c, wk, wv, size=16, same=False, low=None):
    c = kept(c, low)
    k, v = torch.einsum("btr,hrd->bhtd", c, wk), torch.einsum("btr,hrd->bhtd", c, wk if same else wv)
    return (q @ k.mT * size**-0.5 + causal(q.shape[2], q)).softmax(-1) @ v


mistake(latent_attention, "the scale uses the latent's size (24), not the head's (16)", size=24)
mistake(latent_attention, "values are expanded with the keys' matrix", same=True)
mistake(latent_attention, "the latent cache is stored in fp8 (e4m3)", low=torch.float8_e4m3fn)


# ------------------------------------------------------------------ routing


@third(lambda d: (d(48, 24), d(24, 8, scale=0.3), d(8, scale=0.3)))
def bias_router(x, w, bias, biased=False, norm=True, factor=2.5, k=2):
    score = (x @ w).sigmoid()
    chosen = (score + bias).topk(k, -1).indices
    g = ((score + bias) if biased else score).gather(1, chosen)
    g = (g / g.sum(-1, keepdim=True) if norm else g) * factor
    return torch.zeros_like(score).scatter(1, chosen, g)


mistake(bias_router, "weights come from the scores with the bias that is for choosing only", biased=True)
mistake(bias_router, "weights of the chosen experts are not normalised", norm=False)
mistake(bias_router, "the routed factor 2.5 is left out", factor=1.0)
mistake(bias_router, "one expert a token instead of two", k=1)


@third(lambda d: (d(40, 8), d.ints(5, 40)))
def capacity_dispatch(x, expert, capacity=6, first=0, clamp=False):
    out = x.new_zeros(5, capacity, x.shape[1])
    filled = [first] * 5
    for t, e in enumerate(expert.tolist()):
        slot = min(filled[e], capacity - 1) if clamp else filled[e]
        if slot < capacity:
            out[e, slot] = x[t]
        filled[e] += 1
    return out


mistake(capacity_dispatch, "slots counted from 1: slot 0 stays empty", first=1)
mistake(capacity_dispatch, "tokens over capacity overwrite the last slot instead of being dropped", clamp=True)
mistake(capacity_dispatch, "two experts' buffers are exchanged", hurt(capacity_dispatch, two_rows_swapped))


@third(
    lambda d: (
        d(24, 16),
        d(16, 6),
        d(6, 16, 32, scale=0.3),
        d(6, 32, 16, scale=0.3),
        d(16, 32, scale=0.3),
        d(32, 16, scale=0.3),
        d(16, 1),
    )
)
def shared_moe(x, wr, w1, w2, s1, s2, wg, gated=True, among="all", low=None):
    score = x @ wr
    g, ids = score.softmax(-1).topk(2, -1)
    if among == "chosen":
        g = score.gather(1, ids).softmax(-1)
    each = torch.einsum("teh,ehd->ted", F.silu(torch.einsum("td,edh->teh", x, w1)), w2)
    out = torch.zeros_like(x)
    for j in range(2):
        part = each.gather(1, ids[:, j, None, None].expand(-1, 1, x.shape[1]))[:, 0]
        out = kept(out + g[:, j, None] * part, low)
    shared = F.silu(x @ s1) @ s2
    return kept(out + ((x @ wg).sigmoid() * shared if gated else shared), low)


mistake(shared_moe, "the shared expert is added without its sigmoid gate", gated=False)
mistake(shared_moe, "softmax over the two chosen experts instead of over all", among="chosen")
mistake(shared_moe, "experts' outputs are added up in bf16", low=bf)


@third(lambda d: (d(10, 32, 8, scale=2.0),))
def router_losses(logits, per_choice=True, times=8, square_mean=False):
    p = logits.softmax(-1)
    chosen = torch.zeros_like(p).scatter(-1, logits.topk(2, -1).indices, 1.0)
    share = chosen.mean(1) / (2 if per_choice else 1)
    lse = logits.logsumexp(-1)
    z = lse.mean(1) ** 2 if square_mean else (lse**2).mean(1)
    return times * (share * p.mean(1)).sum(-1), z


mistake(router_losses, "choices counted per token, not per token and choice (twice too large)", per_choice=False)
mistake(router_losses, "the balance loss lacks the number of experts", times=1)
mistake(router_losses, "z-loss squares the mean instead of averaging squares", square_mean=True)
