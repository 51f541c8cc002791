# SPDX-License-Identifier: Apache-2.0
"""Set D, written blind: more attention, and recurrences."""

import torch
import torch.nn.functional as F

from .blind import bf, hf, mistake
from .blind_fourth_a import double, fourth, honest, stored_in
from .blind_third import kept

# ------------------------------------------------------------------ more attention


@fourth(lambda d: (d(1, 4, 18, 16), d(1, 4, 18, 16), d(1, 2, 18, 16), d(8, scale=0.3), d(8, scale=0.3)))
def differential_attention(q, k, v, l1, l2, start=0.2, sign=1.0, halves=False, out_factor=True, normed=True):
    lam = (l1.exp().sum() - l2.exp().sum()) * 0.1 + start
    p = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1)
    a, b = (p[:, :2], p[:, 2:]) if halves else (p[:, 0::2], p[:, 1::2])
    o = (a - sign * lam * b) @ v
    if normed:
        o = o * ((o * o).mean(-1, keepdim=True) + 1e-5).rsqrt()
    return o * (1 - start) if out_factor else o


def differential_two_products(q, k, v, l1, l2):
    lam = 0.1 * (l1.exp() - l2.exp()).sum() + 0.2
    s = q.view(1, 2, 2, 18, 16) / 4 @ k.view(1, 2, 2, 18, 16).mT
    o = s.softmax(-1) @ v[:, :, None]
    o = o[:, :, 0] - lam * o[:, :, 1]
    return F.rms_norm(o, (16,), eps=1e-5) * 0.8


honest(differential_attention, "subtracts two outputs instead of two maps", differential_two_products)
honest(differential_attention, "float64 inside", double(differential_attention))
mistake(differential_attention, "the second map is added, not subtracted", sign=-1.0)
mistake(differential_attention, "heads are paired as halves (h, h + 2) instead of neighbours", halves=True)
mistake(differential_attention, "the output lacks the factor 1 - lambda_init", out_factor=False)
mistake(differential_attention, "the head's rms norm is left out", normed=False)


@fourth(lambda d: (d(30, 2, 16), d(30, 2, 16), d(30, 2, 16), torch.tensor([0, 7, 8, 19, 30])))
def packed_causal_attention(q, k, v, starts, blocked=True, causal=True, late=0, size=16):
    at = torch.arange(len(q))
    seq = torch.bucketize(at, starts[1:] + late, right=True)
    hide = torch.zeros(len(q), len(q), dtype=torch.bool)
    if blocked:
        hide |= seq[:, None] != seq[None]
    if causal:
        hide |= at[None] > at[:, None]
    s = torch.einsum("qhd,khd->hqk", q, k) * size**-0.5
    return torch.einsum("hqk,khd->qhd", s.masked_fill(hide, float("-inf")).softmax(-1), v)


def packed_by_sequence(q, k, v, starts):
    out = []
    for a, b in zip(starts[:-1].tolist(), starts[1:].tolist()):
        x, y, z = (t[a:b].transpose(0, 1) for t in (q, k, v))
        e = (x @ y.mT / 4).exp().tril()
        out.append((e @ z / e.sum(-1, keepdim=True)).transpose(0, 1))
    return torch.cat(out)


honest(packed_causal_attention, "sequence by sequence, divided at the end", packed_by_sequence)
honest(packed_causal_attention, "float64 inside", double(packed_causal_attention))
mistake(packed_causal_attention, "sequences in the pack see the ones before them", blocked=False)
mistake(packed_causal_attention, "no causal mask inside a sequence", causal=False)
mistake(packed_causal_attention, "sequence borders are one token late", late=1)
mistake(packed_causal_attention, "the scale is 1/sqrt(32), the width of both heads", size=32)
stored_in(packed_causal_attention, bf)


@fourth(lambda d: (d(1, 2, 27, 16), d(1, 2, 27, 16), d(1, 2, 27, 16)))
def chunked_tempered_attention(q, k, v, chunk=8, floor=4.0, amount=0.3, sliding=False, first=1, natural=True):
    at = torch.arange(q.shape[2])
    t = ((at.to(q.dtype) + first) / floor).floor() + 1
    q = q * ((t.log() if natural else t.log2()) * amount + 1)[:, None]
    far = at[:, None] - at[None] >= chunk if sliding else at[:, None] // chunk != at[None] // chunk
    s = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(far | (at[None] > at[:, None]), float("-inf"))
    return s.softmax(-1) @ v


def chunks_by_chunk(q, k, v):
    out = []
    for a in range(0, 27, 8):
        x, y, z = (t[:, :, a : a + 8] for t in (q, k, v))
        at = torch.arange(a, a + x.shape[2], dtype=q.dtype)
        heat = 1 + 0.3 * torch.log(1 + torch.floor((at + 1) * 0.25))
        s = x @ y.mT * 0.25 * heat[:, None]
        s = s + torch.full_like(s, float("-inf")).triu(1)
        out.append((s - s.logsumexp(-1, keepdim=True)).exp() @ z)
    return torch.cat(out, 2)


honest(chunked_tempered_attention, "chunk by chunk, the temperature on the scores", chunks_by_chunk)
honest(chunked_tempered_attention, "float64 inside", double(chunked_tempered_attention))
mistake(chunked_tempered_attention, "a sliding window of 8 instead of chunks of 8", sliding=True)
mistake(chunked_tempered_attention, "the temperature takes positions from 0, not from 1", first=0)
mistake(chunked_tempered_attention, "the temperature uses log2 instead of the natural logarithm", natural=False)
mistake(chunked_tempered_attention, "queries are not tempered at all", amount=0.0)
stored_in(chunked_tempered_attention, hf)


@fourth(lambda d: (d(2, 2, 24, 16), d(2, 2, 24, 16), d(2, 2, 24, 16), torch.tensor([9, 16])))
def prefix_lm_attention(q, k, v, prefix, late=0, one=False, backwards=False, low=None):
    at = torch.arange(q.shape[2])
    if one:
        prefix = prefix[:1].expand(2)
    see = (at[None] <= at[:, None]) | (at[None, None] < prefix[:, None, None] + late)
    if backwards:
        see = (at[None] <= at[:, None]) | (at[None, :, None] < prefix[:, None, None])
    s = (q @ k.mT * 0.25).masked_fill(~see[:, None], float("-inf"))
    return kept(s, low).softmax(-1) @ v


def prefix_in_two_parts(q, k, v, prefix):
    out = torch.empty_like(v)
    for b, n in enumerate(prefix.tolist()):
        out[b, :, :n] = F.softmax(q[b, :, :n] @ k[b, :, :n].mT / 4, -1) @ v[b, :, :n]
        s = q[b, :, n:] @ k[b].mT / 4
        s = s.masked_fill(torch.arange(24)[None] > torch.arange(n, 24)[:, None], -1e30)
        out[b, :, n:] = s.softmax(-1) @ v[b]
    return out


honest(prefix_lm_attention, "prefix and the rest as two attentions", prefix_in_two_parts)
honest(prefix_lm_attention, "float64 inside", double(prefix_lm_attention))
mistake(prefix_lm_attention, "the prefix is one token too long", late=1)
mistake(prefix_lm_attention, "every sequence takes the first one's prefix", one=True)
mistake(
    prefix_lm_attention, "queries of the prefix see every key, instead of keys of the prefix being seen", backwards=True
)
mistake(prefix_lm_attention, "scores are stored in fp16 before the softmax", low=hf)


@fourth(lambda d: (d(2, 3, 26, 16), d(2, 3, 26, 16), d(2, 3, 26, 16)))
def sigmoid_attention(q, k, v, bias=True, each_row=False, causal=True, low=None):
    n = q.shape[2]
    s = q @ k.mT * q.shape[-1] ** -0.5
    if each_row:
        s = s - torch.arange(1, n + 1, dtype=q.dtype).log()[:, None]
    elif bias:
        s = s - torch.tensor(float(n), dtype=q.dtype).log()
    p = kept(s.sigmoid(), low)
    return (p.tril() if causal else p) @ v


def sigmoid_by_tiles(q, k, v, tile=8):
    o = torch.zeros_like(v)
    at = torch.arange(26)
    for j in range(0, 26, tile):
        p = 1 / (1 + 26 * (-0.25 * (q @ k[:, :, j : j + tile].mT)).exp())
        o += (p * (at[j : j + tile][None] <= at[:, None])) @ v[:, :, j : j + tile]
    return o


honest(sigmoid_attention, "tiles of keys, 1 / (1 + n e^-s)", sigmoid_by_tiles)
honest(sigmoid_attention, "float64 inside", double(sigmoid_attention))
mistake(sigmoid_attention, "the bias -log n is left out", bias=False)
mistake(sigmoid_attention, "the bias takes the number of visible keys of each row", each_row=True)
mistake(sigmoid_attention, "hidden keys get weight (no causal mask)", causal=False)
mistake(sigmoid_attention, "weights are rounded to bf16 before the product with v", low=bf)


@fourth(lambda d: (d(20, 4, 16), d(20, 4, scale=3.0), d(20, 4, 16), d(20, 4, scale=3.0)))
def merge_attention_states(o1, l1, o2, l2, base=torch.exp, old=False, plain=False, low=None):
    top = torch.maximum(l1, l2)
    a, b = (kept(base(x - top), low) for x in (l1, l2))
    if plain:
        return (o1 * a[..., None] + o2 * b[..., None]), top + (a + b).log()
    return (o1 * a[..., None] + o2 * b[..., None]) / (a + b)[..., None], top if old else top + (a + b).log()


honest(
    merge_attention_states,
    "a sigmoid of the difference and softplus",
    lambda o1, l1, o2, l2: (torch.lerp(o2, o1, (l1 - l2).sigmoid()[..., None]), l2 + F.softplus(l1 - l2)),
)
honest(
    merge_attention_states,
    "a softmax over the two states",
    lambda o1, l1, o2, l2: (
        (torch.stack((l1, l2)).softmax(0)[..., None] * torch.stack((o1, o2))).sum(0),
        torch.logaddexp(l1, l2),
    ),
)
mistake(merge_attention_states, "2^x instead of e^x on natural logarithms", base=torch.exp2)
mistake(merge_attention_states, "the merged lse is the larger one, without log of the sum", old=True)
mistake(merge_attention_states, "the sum of both weights is not divided out", plain=True)
mistake(merge_attention_states, "the two weights are rounded to bf16", low=bf)


@fourth(lambda d: (d(1, 3, 25, 16), d(1, 3, 25, 16), d(1, 3, 25, 16), torch.tensor([5.4, 2.5, 4.0])))
def cosine_attention(q, k, v, log_scale, top=100.0, raw=False, only_q=False, eps=1e-12):
    scale = log_scale if raw else log_scale.clamp(max=torch.tensor(top, dtype=q.dtype).log().item()).exp()
    q = q / (q.norm(dim=-1, keepdim=True) + eps)
    k = k if only_q else k / (k.norm(dim=-1, keepdim=True) + eps)
    return (q @ k.mT * scale[:, None, None]).softmax(-1) @ v


honest(
    cosine_attention,
    "norms divided out of the scores",
    lambda q, k, v, s: (
        (
            q
            @ k.mT
            * (s.exp().clamp(max=100.0))[:, None, None]
            / (q.norm(dim=-1)[..., None] * k.norm(dim=-1)[..., None, :])
        ).softmax(-1)
        @ v
    ),
)
honest(cosine_attention, "float64 inside", double(cosine_attention))
mistake(cosine_attention, "the scale is not clamped at 100", top=1e9)
mistake(cosine_attention, "the scale is used without exp", raw=True)
mistake(cosine_attention, "k is not normalised", only_q=True)


# ------------------------------------------------------------------ recurrences


@fourth(lambda d: (d(2, 26, 12), d(2, 26, 12, scale=0.7), d(12, 6, scale=0.5), d(2, 26, 6), d(2, 26, 6), d(12)))
def gated_selective_scan(x, dt, a_log, b, c, skip, euler=True, old=False, low=None, soft=True, reset=None):
    dt = F.softplus(dt) if soft else dt.exp()
    a = -a_log.exp()
    h = x.new_zeros(2, 12, 6)
    out = []
    for t in range(x.shape[1]):
        if reset and t % reset == 0:
            h = torch.zeros_like(h)
        keep = (dt[:, t, :, None] * a).exp()
        put = dt[:, t, :, None] * b[:, t, None] * x[:, t, :, None]
        if not euler:
            put = put / dt[:, t, :, None]
        before, h = h, kept(keep * h + put, low)
        out.append(((before if old else h) * c[:, t, None]).sum(-1))
    return torch.stack(out, 1) + skip * x


def scan_by_doubling(x, dt, a_log, b, c, skip):
    dt = F.softplus(dt)
    keep = (-dt[..., None] * a_log.exp()).exp()
    h = (dt * x)[..., None] * b[:, :, None]
    step = 1
    while step < x.shape[1]:
        h = torch.cat((h[:, :step], h[:, step:] + keep[:, step:] * h[:, :-step]), 1)
        keep = torch.cat((keep[:, :step], keep[:, step:] * keep[:, :-step]), 1)
        step *= 2
    return torch.einsum("btdn,btn->btd", h, c) + skip * x


honest(gated_selective_scan, "a parallel scan by doubling", scan_by_doubling)
honest(gated_selective_scan, "float64 inside", double(gated_selective_scan))
mistake(gated_selective_scan, "the input is not multiplied by the step size", euler=False)
mistake(gated_selective_scan, "reads the state before the current input", old=True)
mistake(gated_selective_scan, "the state is kept in bf16 between steps", low=bf)
mistake(gated_selective_scan, "exp of dt instead of softplus", soft=False)
mistake(gated_selective_scan, "the state does not carry over blocks of 16 steps", reset=16)


@fourth(lambda d: (d(2, 22, 8, scale=0.5), d(2, 22, 8), d(2, 22, 8), d(2, 22, 8)))
def gated_linear_attention(q, k, v, gate, divide=16.0, on_value=False, late=False, scaled=True, low=None):
    g = (F.logsigmoid(gate) / divide).exp()
    s = q.new_zeros(2, 8, 8)
    out = []
    for t in range(q.shape[1]):
        keep = g[:, t, None, :] if on_value else g[:, t, :, None]
        s = kept(
            (s + k[:, t, :, None] * v[:, t, None]) * keep if late else s * keep + k[:, t, :, None] * v[:, t, None], low
        )
        out.append(torch.einsum("bk,bkv->bv", q[:, t], s))
    return torch.stack(out, 1) * (8**-0.5 if scaled else 1.0)


def gla_quadratic(q, k, v, gate):
    total = (F.logsigmoid(gate) / 16).cumsum(1)
    s = (q * total.exp()) @ (k * (-total).exp()).mT * 8**-0.5
    return s.tril() @ v


def gla_by_chunks(q, k, v, gate, size=6):
    s, out = q.new_zeros(2, 8, 8), []
    for qs, ks, vs, g in zip(*(x.split(size, 1) for x in (q, k, v, gate))):
        total = (F.logsigmoid(g) / 16).cumsum(1)
        x = qs * total.exp()
        out.append(x @ s + (x @ (ks * (-total).exp()).mT).tril() @ vs)
        s = total[:, -1, :, None].exp() * s + (ks * (total[:, -1:] - total).exp()).mT @ vs
    return torch.cat(out, 1) / 8**0.5


honest(gated_linear_attention, "the quadratic form with products of gates", gla_quadratic)
honest(gated_linear_attention, "chunks of 6 with a carried state", gla_by_chunks)
mistake(gated_linear_attention, "the gate's logarithm is not divided by 16", divide=1.0)
mistake(gated_linear_attention, "the gate decays value channels instead of key channels", on_value=True)
mistake(gated_linear_attention, "the current token is decayed too (gate after the update)", late=True)
mistake(gated_linear_attention, "the output lacks 1/sqrt(d)", scaled=False)
mistake(gated_linear_attention, "the state is kept in fp16 between steps", low=hf)


@fourth(lambda d: (d(1, 2, 24, 8), d(1, 2, 24, 8), d(1, 2, 24, 8), d(1, 2, 24)))
def delta_rule(q, k, v, b, beta=True, unit=True, low=None):
    k = F.normalize(k, dim=-1) if unit else k * 0.3
    bt = b.sigmoid() if beta else torch.ones_like(b)
    s = q.new_zeros(1, 2, 8, 8)
    out = []
    for t in range(q.shape[2]):
        kt = k[:, :, t]
        new = v[:, :, t] - torch.einsum("bhkv,bhk->bhv", s, kt)
        s = kept(s + (bt[:, :, t, None] * kt)[..., None] * new[..., None, :], low)
        out.append(torch.einsum("bhkv,bhk->bhv", s, q[:, :, t]))
    return torch.stack(out, 2)


def delta_by_solve(q, k, v, b, unit_lower=True, inclusive=True):
    k, bt = F.normalize(k, dim=-1), b.sigmoid()[..., None]
    low = (bt * (k @ k.mT)).tril(-1)
    eye = torch.eye(24, dtype=q.dtype)
    u = torch.linalg.solve_triangular(eye + low if unit_lower else eye - low, bt * v, upper=False, unitriangular=True)
    return (q @ k.mT).tril(0 if inclusive else -1) @ u


honest(delta_rule, "a triangular solve over the sequence", delta_by_solve)
honest(delta_rule, "float64 inside", double(delta_rule))
mistake(delta_rule, "what the state holds is added, not taken away", lambda *a: delta_by_solve(*a, unit_lower=False))
mistake(delta_rule, "the write strength beta is left out", beta=False)
mistake(delta_rule, "the current token's write is not read", lambda *a: delta_by_solve(*a, inclusive=False))
mistake(delta_rule, "keys are scaled by a constant instead of made unit length", unit=False)
mistake(delta_rule, "the state is kept in bf16 between steps", low=bf)


@fourth(lambda d: (d(2, 4, 20, 8), d(2, 4, 20, 8), d(2, 4, 20, 8)))
def retention(q, k, v, lowest=5.0, normed=True, shared=False, causal=True):
    n, heads = q.shape[2], q.shape[1]
    h = torch.zeros(heads) if shared else torch.arange(heads)
    decay = 1 - 2.0 ** (-lowest - h.to(q.dtype))
    at = torch.arange(n, dtype=q.dtype)
    mask = decay[:, None, None] ** (at[:, None] - at[None]).abs()
    o = (q @ k.mT * 8**-0.5 * (mask.tril() if causal else mask)) @ v
    return F.layer_norm(o, (8,), eps=1e-5) if normed else o


def retention_recurrent(q, k, v):
    decay = 1 - 2.0 ** (-5 - torch.arange(4, dtype=q.dtype))
    s, out = q.new_zeros(2, 4, 8, 8), []
    for t in range(q.shape[2]):
        s = s * decay[:, None, None] + k[:, :, t, :, None] * v[:, :, t, None]
        out.append((q[:, :, t, :, None] * s).sum(2) / 8**0.5)
    o = torch.stack(out, 2)
    o = o - o.mean(-1, keepdim=True)
    return o / (o.square().mean(-1, keepdim=True) + 1e-5).sqrt()


honest(retention, "recurrence with one state", retention_recurrent)
honest(retention, "float64 inside", double(retention))
mistake(retention, "all heads decay like the first", shared=True)
mistake(retention, "decays 1 - 2^(-3 - h) instead of 1 - 2^(-5 - h)", lowest=3.0)
mistake(retention, "the outputs are not normalised head by head", normed=False)
mistake(retention, "the future is seen too, decayed by the distance", causal=False)
stored_in(retention, bf)


@fourth(lambda d: (d(2, 25, 12), d(2, 25, 12), d(2, 25, 12), d(12, shift=1.0)))
def rg_lru(x, r, i, lam, c=8.0, root=True, gated=True, flat=False, low=None):
    log_a = -c * F.softplus(lam) * (1.0 if flat else r.sigmoid())
    a = log_a.exp()
    u = x * i.sigmoid() if gated else x
    u = u * ((1 - a * a).sqrt() if root else (1 - a))
    a = a.expand_as(u)
    h, out = torch.zeros_like(x[:, 0]), []
    for t in range(x.shape[1]):
        h = kept(a[:, t] * h + u[:, t], low)
        out.append(h)
    return torch.stack(out, 1)


def lru_by_products(x, r, i, lam):
    log_a = -8 * F.softplus(lam) * torch.sigmoid(r)
    u = x * torch.sigmoid(i) * (-torch.expm1(2 * log_a)).sqrt()
    total = log_a.cumsum(1)
    gap = total[:, :, None] - total[:, None]
    hide = torch.ones(25, 25, dtype=torch.bool).triu(1)[None, :, :, None]
    return (gap.masked_fill(hide, float("-inf")).exp() * u[:, None]).sum(2)


honest(rg_lru, "all pairs with sums of logarithms, expm1 under the root", lru_by_products)
honest(rg_lru, "float64 inside", double(rg_lru))
mistake(rg_lru, "the input is scaled by 1 - a instead of sqrt(1 - a^2)", root=False)
mistake(rg_lru, "the input gate is left out", gated=False)
mistake(rg_lru, "c = 1 instead of 8", c=1.0)
mistake(rg_lru, "the decay ignores the recurrence gate", flat=True)
mistake(rg_lru, "the state is kept in bf16 between steps", low=bf)


@fourth(lambda d: (d(2, 12, 10), d(2, 14), d(2, 14), d(56, 10, scale=0.4), d(56, 14, scale=0.4), d(56)))
def lstm_layer(x, h, c, wi, wh, b, order=(0, 1, 2, 3), tanh_out=True, forget=0.0, stale=False, low=None):
    out = []
    for t in range(x.shape[1]):
        parts = (x[:, t] @ wi.T + h @ wh.T + b).chunk(4, -1)
        i, f, g, o = (parts[j] for j in order)
        new = (f + forget).sigmoid() * c + i.sigmoid() * g.tanh()
        old, c = c, kept(new, low)
        read = old if stale else c
        h = o.sigmoid() * (read.tanh() if tanh_out else read)
        out.append(h)
    return torch.stack(out, 1), c


def lstm_fused(x, h, c, wi, wh, b):
    pre = torch.einsum("btd,gd->tbg", x, wi) + b
    out = []
    for p in pre:
        gates = torch.addmm(p, h, wh.T)
        s = torch.sigmoid(gates)
        g = 2 * torch.sigmoid(2 * gates[:, 28:42]) - 1
        c = torch.addcmul(s[:, 14:28] * c, s[:, :14], g)
        h = s[:, 42:] * torch.tanh(c)
        out.append(h)
    return torch.stack(out, 1), c


honest(lstm_layer, "input products hoisted, tanh by sigmoid", lstm_fused)
honest(lstm_layer, "float64 inside", double(lstm_layer))
mistake(lstm_layer, "gates are read in the order i, f, o, g", order=(0, 1, 3, 2))
mistake(lstm_layer, "the output is o c without tanh", tanh_out=False)
mistake(lstm_layer, "a forget bias of 1 is added", forget=1.0)
mistake(lstm_layer, "the output reads the cell of the step before", stale=True)
mistake(lstm_layer, "the cell is kept in bf16", low=bf)


@fourth(lambda d: (d(3, 10, 8), d(3, 12), d(36, 8, scale=0.5), d(36, 12, scale=0.5), d(36), d(36)))
def gru_layer(x, h, wi, wh, bi, bh, before=False, other=False, order=(0, 1, 2), drop=False):
    out = []
    for t in range(x.shape[1]):
        a = (x[:, t] @ wi.T + bi).chunk(3, -1)
        c = (h @ wh.T + (0 * bh if drop else bh)).chunk(3, -1)
        r, z = ((a[j] + c[j]).sigmoid() for j in order[:2])
        n = (a[2] + ((r * h) @ wh[24:].T + bh[24:] if before else r * c[2])).tanh()
        h = z * n + (1 - z) * h if other else (1 - z) * n + z * h
        out.append(h)
    return torch.stack(out, 1)


def gru_fused(x, h, wi, wh, bi, bh):
    out = []
    for t in range(10):
        both = torch.cat((x[:, t], h), -1) @ torch.cat((wi[:24], wh[:24]), 1).T + (bi + bh)[:24]
        r, z = both.sigmoid().split(12, -1)
        n = torch.tanh(F.linear(x[:, t], wi[24:], bi[24:]) + r * F.linear(h, wh[24:], bh[24:]))
        h = n + z * (h - n)
        out.append(h)
    return torch.stack(out, 1)


honest(gru_layer, "x and h in one product, h' = n + z (h - n)", gru_fused)
honest(gru_layer, "float64 inside", double(gru_layer))
mistake(gru_layer, "the reset gate is applied to h before the product", before=True)
mistake(gru_layer, "the update gate weighs old and new state the other way round", other=True)
mistake(gru_layer, "reset and update gates are exchanged", order=(1, 0, 2))
mistake(gru_layer, "the recurrent bias is left out", drop=True)
stored_in(gru_layer, hf)


@fourth(lambda d: (d(2, 30, 6), d(6, 4, scale=0.3), d(6, 4, scale=2.0), d(6, 4, 2), d(6)))
def diagonal_ssm(x, log_re, im, c, log_dt, twice=2.0, zoh=True, imag=False, exact=0):
    n = x.shape[1]
    dt = log_dt.mul(0.3).sub(2).exp()[:, None]
    a = torch.complex(-log_re.exp(), im)
    w = torch.view_as_complex(c)
    w = w * (torch.exp(a * dt) - 1) / a if zoh else w * dt
    kernel = w[..., None] * torch.exp((a * dt)[..., None] * (torch.arange(n, dtype=x.dtype) + exact))
    kernel = twice * (kernel.imag if imag else kernel.real).sum(1)
    out = torch.fft.irfft(torch.fft.rfft(x.mT, 2 * n) * torch.fft.rfft(kernel, 2 * n), 2 * n)[..., :n]
    return out.mT


def ssm_recurrent(x, log_re, im, c, log_dt):
    dt = (0.3 * log_dt - 2).exp()[:, None]
    a = torch.complex(-log_re.exp(), im)
    keep = torch.exp(a * dt)
    put = (keep - 1) / a
    h, out = torch.zeros(2, 6, 4, dtype=keep.dtype), []
    for t in range(x.shape[1]):
        h = keep * h + put * x[:, t, :, None]
        out.append(2 * (torch.view_as_complex(c) * h).real.sum(-1))
    return torch.stack(out, 1)


honest(diagonal_ssm, "the recurrence with a complex state", ssm_recurrent)
honest(diagonal_ssm, "float64 inside", double(diagonal_ssm))
mistake(diagonal_ssm, "the conjugate half is not counted (no factor 2)", twice=1.0)
mistake(diagonal_ssm, "the input is held by dt instead of (e^(a dt) - 1) / a", zoh=False)
mistake(diagonal_ssm, "the imaginary part is taken", imag=True)
mistake(diagonal_ssm, "the kernel starts with the first power of a, not with the power 0", exact=1)
