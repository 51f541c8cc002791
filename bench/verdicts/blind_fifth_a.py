# SPDX-License-Identifier: Apache-2.0
"""Set E, written blind: attention.

blind_fifth_b and on hold the rest and use the helpers here. A definition is plain; most mistakes are
flags of a kernel that is right at its defaults, so that kernel stands among the right ones too."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, family, hf, honest, mistake

INF = float("inf")


def fifth(args):
    return family(args, sets="E")


def floating(x):
    return torch.is_tensor(x) and x.is_floating_point()


def wide(fn, kind=torch.float32, **keywords):
    """A kernel that loads its arguments, works in `kind` and rounds once, to the first argument's dtype."""
    def run(*args):
        store = next(a.dtype for a in args if floating(a))
        out = fn(*(a.to(kind) if floating(a) else a for a in args), **keywords)
        if isinstance(out, tuple):
            return tuple(o.to(store) if floating(o) else o for o in out)
        return out.to(store) if floating(out) else out

    return run


def wrongs(fn, kernel, cases):
    for words, keywords in cases.items():
        mistake(fn, words, wide(kernel, **keywords))


def rights(fn, kernel, cases):
    for words, keywords in cases.items():
        honest(fn, words, wide(kernel, **keywords))


def cut(x, kind):
    return x if kind is None else x.to(kind).to(x.dtype)


def bits(x, n, how=torch.round):
    """x with n significant bits."""
    m, e = torch.frexp(x)
    return torch.ldexp(how(m * 2.0 ** n) / 2.0 ** n, e)


def flash(q, k, v, scale, mod=None, seen=None, tile=16, stale=False, drop=False, acc=None, prob=None,
          hidden=-INF, sink=None, shift=True):
    """Attention by tiles of keys; rows that see nothing give zeros. mod(s, i, j), seen(i, j)."""
    n, lk = q.shape[-2], k.shape[-2]
    m = q.new_full((*q.shape[:-1], 1), -INF) if sink is None else sink.expand(*q.shape[:-1], 1).clone()
    z = torch.zeros_like(m) if sink is None else torch.ones_like(m)
    o = q.new_zeros(*q.shape[:-1], v.shape[-1])
    i = torch.arange(n)[:, None]
    for at in range(0, lk // tile * tile if drop else lk, tile):
        j = torch.arange(at, min(at + tile, lk))[None]
        s = q @ k[..., at:at + tile, :].mT * scale
        if mod is not None:
            s = mod(s, i, j)
        if seen is not None:
            s = s.masked_fill(~seen(i, j), hidden)
        new = torch.maximum(m, s.amax(-1, keepdim=True)) if shift else torch.zeros_like(m)
        safe = new.masked_fill(new == -INF, 0.0)
        p, keep = (s - safe).exp(), (m - safe).exp() if shift else torch.ones_like(m)
        z = (z if stale else z * keep) + p.sum(-1, keepdim=True)
        o = cut(o * keep + cut(p, prob) @ v[..., at:at + tile, :], acc)
        m = new
    return torch.where(z > 0, o / z.clamp(min=1e-38), torch.zeros_like(o))


# ------------------------------------------------------------------ score and mask modifications

@fifth(lambda d: (d(1, 4, 45, 32, dtype=bf), d(1, 4, 45, 32, dtype=bf), d(1, 4, 45, 32, dtype=bf)))
def flex_alibi_causal(q, k, v):
    h, n = q.shape[1], q.shape[2]
    at = torch.arange(n)
    slope = 2.0 ** (-8.0 * torch.arange(1, h + 1) / h)
    bias = slope[:, None, None] * (at[None] - at[:, None])
    s = q @ k.mT / math.sqrt(q.shape[-1]) + bias.to(q.dtype)
    return s.masked_fill(at[None] > at[:, None], -INF).softmax(-1) @ v


def flex_alibi_tiles(q, k, v, first=1, sign=1.0, early=False, ahead=0, tile=16):
    h, scale = q.shape[1], q.shape[-1] ** -0.5
    slope = (2.0 ** (-8.0 * torch.arange(first, h + first) / h))[:, None, None] * sign
    slope = slope * scale if early else slope
    return flash(q, k, v, scale, lambda s, i, j: s + slope * (j - i), lambda i, j: j <= i + ahead, tile)


rights(flex_alibi_causal, flex_alibi_tiles, {"tiles of 16 keys": {}, "tiles of 7 keys": {"tile": 7}})
wrongs(flex_alibi_causal, flex_alibi_tiles, {
    "the slopes' exponents start at head 0, so that the first head's slope is 1": {"first": 0},
    "the bias has the wrong sign and favours far keys": {"sign": -1.0},
    "the bias is added before the scores are scaled": {"early": True},
    "each query sees one key of the future": {"ahead": 1}})


@fifth(lambda d: (d(2, 53, 16), d(2, 53, 16), d(2, 53, 16), torch.tensor([0] * 13 + [1] * 22 + [2] * 18)))
def flex_document_causal(q, k, v, doc):
    at = torch.arange(q.shape[-2])
    see = (doc[:, None] == doc[None]) & (at[:, None] >= at[None])
    return (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~see, -INF).softmax(-1) @ v


def flex_document_tiles(q, k, v, doc, block=False, late=0, future=False, full=False):
    def seen(i, j):
        a, b = doc[i], doc[(j - late).clamp(min=0)]
        if block:
            b = doc[j // 16 * 16]
        same = (a == b) & (torch.ones_like(j <= i) if future else j <= i)
        return same | (full & (j <= i) & (i // 16 == j // 16 + 1))

    return flash(q, k, v, 0.25, None, seen)


def flex_by_document(q, k, v, doc):
    parts = []
    for n in doc.unique().tolist():
        a, b, c = (x[:, doc == n] for x in (q, k, v))
        parts.append(F.scaled_dot_product_attention(a, b, c, is_causal=True))
    return torch.cat(parts, 1)


rights(flex_document_causal, flex_document_tiles, {"tiles of keys": {}})
honest(flex_document_causal, "each document by itself", flex_by_document)
wrongs(flex_document_causal, flex_document_tiles, {
    "every key of a tile takes the document of the tile's first key": {"block": True},
    "the key's document is read one position too early": {"late": 1},
    "the causal condition is lost, only the document is compared": {"future": True},
    "the block mask calls the tile below the diagonal full and skips the document test": {"full": True}})


@fifth(lambda d: (d(1, 3, 50, 16, dtype=hf), d(1, 3, 50, 16, dtype=hf), d(1, 3, 50, 16, dtype=hf)))
def chunked_local_attention(q, k, v):
    at = torch.arange(q.shape[-2])
    see = (at[:, None] // 12 == at[None] // 12) & (at[:, None] >= at[None])
    s = (q.float() @ k.float().mT) * q.shape[-1] ** -0.5
    return (s.masked_fill(~see, -INF).softmax(-1) @ v.float()).to(q.dtype)


def chunked_local_tiles(q, k, v, sliding=False, size=12, tile=8, prob=None):
    def seen(i, j):
        return (j <= i) & ((i - j < 12) if sliding else (i // size == j // size))

    return flash(q, k, v, 0.25, None, seen, tile, prob=prob)


def chunked_local_padded(q, k, v):
    def chunks(x):
        return F.pad(x, (0, 0, 0, 10)).unflatten(2, (5, 12))

    return F.scaled_dot_product_attention(*map(chunks, (q, k, v)), is_causal=True).flatten(2, 3)[:, :, :50]


rights(chunked_local_attention, chunked_local_tiles, {"tiles of 8 keys": {}})
rights(chunked_local_attention, chunked_local_padded, {"a batch of padded chunks": {}})
wrongs(chunked_local_attention, chunked_local_tiles, {
    "a sliding window of 12 keys instead of chunks of 12": {"sliding": True},
    "the chunk is 13 keys (size taken as inclusive)": {"size": 13},
    "probabilities are rounded to e4m3 before they meet the values": {"prob": torch.float8_e4m3fn}})


# ------------------------------------------------------------------ windows, sinks, groups

@fifth(lambda d: (d(1, 6, 41, 16, dtype=bf), d(1, 2, 41, 16, dtype=bf), d(1, 2, 41, 16, dtype=bf),
                  d(6, dtype=bf, shift=1.0)))
def sink_window_gqa(q, k, v, sink):
    n = q.shape[2]
    k, v = k.repeat_interleave(3, 1).float(), v.repeat_interleave(3, 1).float()
    s = q.float() @ k.mT * q.shape[-1] ** -0.5
    back = torch.arange(n)[:, None] - torch.arange(n)[None]
    s = s.masked_fill((back < 0) | (back >= 9), -INF)
    s = torch.cat((s, sink.float()[:, None, None].expand(1, 6, n, 1)), -1)
    return (s.softmax(-1)[..., :-1] @ v).to(q.dtype)


def sink_window_tiles(q, k, v, sink, reach=9, use=True, scaled=False, strided=False, kv_sink=False, tile=16):
    pick = torch.arange(6) % 2 if strided else torch.arange(6) // 3
    sink = sink[torch.arange(6) // 3 if kv_sink else torch.arange(6)][:, None, None]
    sink = sink * 0.25 if scaled else sink
    return flash(q, k[:, pick], v[:, pick], 0.25, None, lambda i, j: (j <= i) & (i - j < reach), tile,
                 sink=sink if use else None)


rights(sink_window_gqa, sink_window_tiles, {"the sink as the running maximum's first value": {},
                                            "tiles of 5 keys": {"tile": 5}})
wrongs(sink_window_gqa, sink_window_tiles, {
    "the window holds 10 keys, not 9 (<= for <)": {"reach": 10},
    "the sink is left out of the denominator": {"use": False},
    "the sink's logit is scaled by 1/sqrt(d) too": {"scaled": True},
    "the sink is read with the kv head's number": {"kv_sink": True},
    "query head h reads kv head h % 2, not h // 3": {"strided": True}})


@fifth(lambda d: (d(1, 2, 38, 24, scale=0.002), d(1, 2, 38, 24, scale=0.003), d(1, 2, 38, 24),
                  d(24, shift=1.0, scale=0.3), d(24, shift=1.0, scale=0.3)))
def attention_of_normed_qk(q, k, v, wq, wk, eps=1e-6, whole=False, swapped=False, after=False):
    def norm(x, w):
        x = x.transpose(1, 2).flatten(2) if whole else x
        y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
        return (y.unflatten(2, (2, 24)).transpose(1, 2) if whole else y) * w

    q, k = (norm(q, wk), norm(k, wq)) if swapped else (norm(q, wq), norm(k, wk))
    return (q @ k.mT * (24 ** -1.0 if after else 24 ** -0.5)).softmax(-1) @ v


honest(attention_of_normed_qk, "norms by vector length, then tiles", lambda q, k, v, wq, wk: flash(
    q / (q.norm(dim=-1, keepdim=True).square() / 24 + 1e-6).sqrt() * wq,
    k / (k.norm(dim=-1, keepdim=True).square() / 24 + 1e-6).sqrt() * wk, v, 24 ** -0.5))
honest(attention_of_normed_qk, "float64 inside", wide(attention_of_normed_qk, torch.float64))
mistake(attention_of_normed_qk, "eps is 1e-5 instead of 1e-6", eps=1e-5)
mistake(attention_of_normed_qk, "the norm is taken over both heads together", whole=True)
mistake(attention_of_normed_qk, "scores are divided by d, not its square root", after=True)


@fifth(lambda d: (d(3, 4, 20, scale=0.5, dtype=hf), d(3, 4, 8, scale=0.5, dtype=hf), d(3, 45, 40, dtype=hf),
                  d(3, 45, 8, dtype=hf), d(4, 20, 40, scale=0.16, dtype=hf),
                      d(4, 40, 12, scale=0.16, dtype=hf)))
def mla_decode(qn, qr, latent, kr, wuk, wuv):
    k = torch.einsum("bnr,hdr->bhnd", latent, wuk)
    v = torch.einsum("bnr,hrd->bhnd", latent, wuv)
    s = torch.einsum("bhd,bhnd->bhn", qn, k) + torch.einsum("bhd,bnd->bhn", qr, kr)
    return torch.einsum("bhn,bhnd->bhd", (s * 28 ** -0.5).softmax(-1), v)


def mla_absorbed(qn, qr, latent, kr, wuk, wuv, size=28, rope=True, head=0, cache=None, tile=16, stale=False):
    q = torch.einsum("bhd,hdr->bhr", qn, wuk)
    if rope:
        q, key = torch.cat((q, qr), -1), torch.cat((cut(latent, cache), kr), -1)
    else:
        key = latent
    o = flash(q, key, cut(latent, cache), size ** -0.5, tile=tile, stale=stale)
    return torch.einsum("bhr,hrd->bhd", o, wuv.roll(head, 0))


rights(mla_decode, mla_absorbed, {"absorbed, the queries of a sequence as one tile": {},
                                  "absorbed, tiles of 6 latents": {"tile": 6}})
honest(mla_decode, "float64 inside", wide(mla_decode, torch.float64))
wrongs(mla_decode, mla_absorbed, {
    "scores are scaled by the latent's width (48), not the head's (28)": {"size": 48},
    "the rotary part of the scores is left out": {"rope": False},
    "the value projection of the next head is used": {"head": -1},
    "the cache of latents is rounded to e5m2": {"cache": torch.float8_e5m2},
    "the running sum is not rescaled when the maximum grows": {"stale": True}})


# ------------------------------------------------------------------ decoding from a cache

@fifth(lambda d: (d(3, 4, 16, dtype=bf), d(11, 8, 2, 16, dtype=bf), d(11, 8, 2, 16, dtype=bf),
                  torch.tensor([[3, 7, 0, 9], [5, 1, 10, 2], [8, 4, 6, 0]]), torch.tensor([29, 8, 17])))
def paged_decode_gqa(q, kp, vp, table, lens):
    out = []
    for b in range(q.shape[0]):
        k = kp[table[b]].flatten(0, 1)[:lens[b]].repeat_interleave(2, 1)
        v = vp[table[b]].flatten(0, 1)[:lens[b]].repeat_interleave(2, 1)
        p = (torch.einsum("hd,nhd->hn", q[b], k) / 4).softmax(-1)
        out.append(torch.einsum("hn,nhd->hd", p, v))
    return torch.stack(out)


def paged_by_page(q, kp, vp, table, lens, first_row=False, tail=False, drop=False, swapped=False, newest=0,
                  merge=True):
    if swapped:
        kp = kp.flatten(1, 2).unflatten(1, (2, 8)).transpose(1, 2)
    out = torch.zeros_like(q)
    for b in range(q.shape[0]):
        n, rows = int(lens[b]) + newest, table[0 if first_row else b].tolist()
        o, lse = [], []
        for p in range(n // 8 if drop else -(-n // 8)):
            count = 8 if tail else min(8, n - 8 * p)
            k, v = (x[rows[p], :count].repeat_interleave(2, 1) for x in (kp, vp))
            s = (q[b] * k).sum(-1).T * 0.25
            lse.append(s.logsumexp(-1))
            o.append(torch.einsum("hn,nhd->hd", s.softmax(-1), v))
        w = torch.stack(lse).softmax(0) if merge else torch.full((len(o), 4), 1.0 / len(o))
        out[b] = (torch.stack(o) * w[..., None]).sum(0)
    return out


rights(paged_decode_gqa, paged_by_page, {"page by page, merged by log sums": {}})
honest(paged_decode_gqa, "float64 inside", wide(paged_decode_gqa, torch.float64))
wrongs(paged_decode_gqa, paged_by_page, {
    "every sequence reads the first row of the page table": {"first_row": True},
    "keys past the length in the last page are not masked": {"tail": True},
    "a last page that is not full is dropped": {"drop": True},
    "the newest key is not seen": {"newest": -1},
    "the key pages are read as (page, head, slot) instead of (page, slot, head)": {"swapped": True},
    "the pages' outputs are averaged, not weighted by their sums": {"merge": False}})


def splits(d):
    lse = d(4, 3, 6, scale=3.0)
    lse[1, 0], lse[3, 2] = -INF, -INF
    o = d(4, 3, 6, 16)
    o[1, 0], o[3, 2] = 0, 0
    return o, lse


@fifth(splits)
def merge_splits(o, lse):
    total = torch.logsumexp(lse, 0)
    return ((lse - total).exp()[..., None] * o).sum(0), total


def merge_one_by_one(o, lse, base=math.e, top=False, plain=False, most=4):
    a, la = o[0], lse[0]
    for b, lb in zip(o[1:most], lse[1:most]):
        m = torch.maximum(la, lb)
        x, y = base ** (la - m), base ** (lb - m)
        a = (a * x[..., None] + b * y[..., None]) / ((x + y)[..., None] if not plain else 1.0)
        la = m if top else m + (x + y).log() / math.log(base)
    return a, la


honest(merge_splits, "pair by pair", merge_one_by_one)
honest(merge_splits, "softmax over the splits", lambda o, lse: (
    torch.einsum("sbh,sbhd->bhd", lse.softmax(0), o), lse.amax(0) + (lse - lse.amax(0)).exp().sum(0).log()))
mistake(merge_splits, "log sums are taken as base 2", lambda o, s: merge_one_by_one(o, s, base=2.0))
mistake(merge_splits, "the merged log sum is only the maximum", lambda o, s: merge_one_by_one(o, s, top=True))
mistake(merge_splits, "merged outputs are not divided by the sum of weights",
        lambda o, s: merge_one_by_one(o, s, plain=True))
mistake(merge_splits, "the last split is left out", lambda o, s: merge_one_by_one(o, s, most=3))
mistake(merge_splits, "a maximum is taken inside each split, so that empty splits give NaN",
        lambda o, s: ((lambda w: (w[..., None] * o).sum(0) / w.sum(0)[..., None])(
            (s - s).exp() * s.exp()), s.logsumexp(0)))


def lens_mask(d):
    keep = torch.arange(30)[None] < torch.tensor([30, 0, 17])[:, None]
    return d(3, 2, 9, 16), d(3, 2, 30, 16), d(3, 2, 30, 16), keep


@fifth(lens_mask)
def padded_cross_attention(q, k, v, keep):
    s = (q @ k.mT / 4).masked_fill(~keep[:, None, None], -INF)
    return s.softmax(-1).masked_fill(~keep[:, None, None], 0.0) @ v


def padded_cross_tiles(q, k, v, keep, hidden=-INF, tile=16, slack=0):
    return flash(q, k, v, 0.25, lambda s, i, j: s.masked_fill(
        ~keep.roll(slack, -1)[:, None, None, j[0]], hidden), None, tile)


rights(padded_cross_attention, padded_cross_tiles, {"tiles of 16": {}, "tiles of 30": {"tile": 30}})
wrongs(padded_cross_attention, padded_cross_tiles, {
    "hidden scores are -1e9, so that a sequence without keys averages the padding": {"hidden": -1e9},
    "the padding mask is read one key off": {"slack": 1}})
mistake(padded_cross_attention, "a sequence without keys gives NaN",
        lambda q, k, v, m: (q @ k.mT / 4).masked_fill(~m[:, None, None], -INF).softmax(-1) @ v)


@fifth(lambda d: (d(40, 2, 16), d(61, 2, 16), d(61, 2, 16), torch.tensor([0, 11, 12, 40]),
                  torch.tensor([0, 25, 30, 61])))
def varlen_causal(q, k, v, cq, ck):
    out = torch.empty_like(q)
    for b in range(len(cq) - 1):
        rows, keys = slice(cq[b], cq[b + 1]), slice(ck[b], ck[b + 1])
        s = torch.einsum("ihd,jhd->hij", q[rows], k[keys]) * q.shape[-1] ** -0.5
        n, m = s.shape[1:]
        s = s.masked_fill(torch.arange(m)[None] > torch.arange(n)[:, None] + m - n, -INF)
        out[rows] = torch.einsum("hij,jhd->ihd", s.softmax(-1), v[keys])
    return out


def varlen_tiles(q, k, v, cq, ck, top_left=False, last=0, heads=0, kv_from_q=False):
    out = torch.zeros_like(q)
    for b in range(len(cq) - 1 - last):
        n, m = int(cq[b + 1] - cq[b]), int(ck[b + 1] - ck[b])
        start = int(cq[b] if kv_from_q else ck[b])
        a, kk, vv = (x.transpose(0, 1) for x in (q[cq[b]:cq[b + 1]], k[start:start + m], v[start:start + m]))
        off = 0 if top_left else m - n
        out[cq[b]:cq[b + 1]] = flash(a, kk, vv.roll(heads, 0), 0.25, None,
                                     lambda i, j, off=off: j <= i + off).transpose(0, 1)
    return out


rights(varlen_causal, varlen_tiles, {"tiles of keys": {}})
wrongs(varlen_causal, varlen_tiles, {
    "the causal mask is aligned at the top left, not the bottom right": {"top_left": True},
    "the last sequence is never written": {"last": 1},
    "keys start at the query's offset (cu_seqlens_q used for both)": {"kv_from_q": True},
    "the values' heads are exchanged": {"heads": 1}})


# ------------------------------------------------------------------ gradients

@fifth(lambda d: (d(1, 4, 19, 16), d(1, 2, 19, 16), d(1, 2, 19, 16), d(1, 4, 19, 16, scale=1e-3)))
def gqa_gradients(q, k, v, g):
    kk, vv = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
    p = (q @ kk.mT * 16 ** -0.5).softmax(-1)
    dp = g @ vv.mT
    ds = p * (dp - (dp * p).sum(-1, keepdim=True)) * 16 ** -0.5
    dk, dv = ds.mT @ q, p.mT @ g
    return ds @ kk, dk.unflatten(1, (2, 2)).sum(2), dv.unflatten(1, (2, 2)).sum(2)


def gqa_autograd(q, k, v, g):
    q, k, v = (x.clone().requires_grad_() for x in (q, k, v))
    F.scaled_dot_product_attention(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)).backward(g)
    return q.grad, k.grad, v.grad


def gqa_from_lse(q, k, v, g, pool="sum", low=None, stale=False, strided=False):
    kk, vv = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
    s = q @ kk.mT * 0.25
    p = (s - s.logsumexp(-1, keepdim=True)).exp()
    delta = cut(((p @ vv) * g).sum(-1, keepdim=True), low)
    ds = p * (g @ vv.mT - delta)
    dk, dv = ds.mT @ q * 0.25, (p.sum(-1, keepdim=True) * 0 + (s.exp() if stale else p)).mT @ g

    def fold(x):
        x = x.unflatten(1, (2, 2))
        x = x.transpose(1, 2) if strided else x
        return x[:, :, -1] if pool == "last" else x.mean(2) if pool == "mean" else x.sum(2)

    return ds @ kk * 0.25, fold(dk), fold(dv)


honest(gqa_gradients, "automatic differentiation", gqa_autograd)
honest(gqa_gradients, "from the log sums and the output", gqa_from_lse)
for words, keys in {
        "the gradients of k and v are the group's mean, not its sum": {"pool": "mean"},
        "the heads of a group overwrite each other's gradient of k and v": {"pool": "last"},
        "the row sums of output times gradient are kept in bf16": {"low": bf},
        "v's gradient uses the unnormalised exponentials": {"stale": True},
        "the heads of a kv group are taken with the wrong stride": {"strided": True}}.items():
    mistake(gqa_gradients, words, lambda *a, keys=keys: gqa_from_lse(*a, **keys))
