# SPDX-License-Identifier: Apache-2.0
"""Set I, written blind: kernels of 2025 and 2026; this part: attention, forward and backward.

blind_seventh_b to _e hold the rest of the general part and blind_seventh_f and on the aimed part; all use the
functions here. A kernel loads its arguments in float32, works there and rounds once to the type of its first
argument of floating point; its keywords are the faults, so at its defaults it is a right kernel."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, family, hf, honest, mistake

NEG = -math.inf
E4, E5 = torch.float8_e4m3fn, torch.float8_e5m2


def seventh(args):
    return family(args, sets="I")


def floats(x):
    return torch.is_tensor(x) and x.is_floating_point()


def loaded(x, work):
    if isinstance(x, (tuple, list)):
        return type(x)(loaded(y, work) for y in x)
    return x.to(work) if floats(x) else x


def at(kernel, work=torch.float32, into=None, **keywords):
    """The kernel on arguments loaded in `work`, its floats stored as `into` or as the first float came.

    into="same" stores them as the kernel made them."""
    def run(*args):
        store = into or next(a.dtype for a in args if floats(a))
        out = kernel(*loaded(args, work), **keywords)
        return out if store == "same" else loaded(out, store)

    return run


def right(fn, words, kernel, work=torch.float32, into=None, **keywords):
    honest(fn, words, at(kernel, work, into, **keywords))


def doubled(fn, into=None):
    right(fn, "in double precision", fn, torch.float64, into)


def wrong(fn, kernel, cases, into=None):
    """Mistakes: {words: keywords of the kernel, or another kernel}."""
    for words, case in cases.items():
        mistake(fn, words, at(case, into=into) if callable(case) else at(kernel, into=into, **case))


def via(x, kind):
    """x stored in another type for a while."""
    return x if kind is None else x.to(kind).to(x.dtype)


def online(q, k, v, scale, mod=None, see=None, tile=16, back=False, kind=None, frozen=False, tail=True, sink=None):
    """Attention by tiles of keys with a running maximum; also the log of each row's sum.

    mod(s, i, j) changes scores and see(i, j) tells what is seen, by places of queries and keys."""
    n, m = q.shape[-2], k.shape[-2]
    i = torch.arange(n)[:, None]
    top = q.new_full((*q.shape[:-1], 1), NEG)
    z, out = torch.zeros_like(top), q.new_zeros(*q.shape[:-1], v.shape[-1])
    starts = list(range(0, m if tail else m // tile * tile, tile))
    for start in reversed(starts) if back else starts:
        j = torch.arange(start, min(start + tile, m))[None]
        s = q @ k[..., start:start + tile, :].mT * scale
        s = s if mod is None else mod(s, i, j)
        s = s if see is None else torch.where(see(i, j), s, NEG)
        new = torch.maximum(top, s.amax(-1, keepdim=True))
        base = new.masked_fill(new == NEG, 0.0)
        p, fade = (s - base).exp(), (top - base).exp()
        z = z * fade + p.sum(-1, keepdim=True)
        out = via((out if frozen else out * fade) + p @ v[..., start:start + tile, :], kind)
        top = new
    if sink is not None:
        z = z + (sink - top).exp()
    return out / z, (top + z.log())[..., 0]


def grouped(x, times, cyclic=False):
    return x.repeat(1, times, 1, 1) if cyclic else x.repeat_interleave(times, 1)


# ------------------------------------------------------------------ flex attention

@seventh(lambda d: (d(2, 4, 64, 32, dtype=bf, scale=2.0), d(2, 2, 64, 32, dtype=bf), d(2, 2, 64, 32, dtype=bf),
                    torch.tensor([20, 45])))
def flex_prefix_lm_softcap(q, k, v, prefix):
    k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
    s = 5.0 * torch.tanh(q @ k.mT * 32 ** -0.5 / 5.0)
    i = torch.arange(64)
    see = (i[None] <= i[:, None]) | (i < prefix[:, None, None])
    return s.masked_fill(~see[:, None], NEG).softmax(-1) @ v


def prefix_softcap_tiles(q, k, v, prefix, more=0, one=False, cyclic=False, cap=5.0, causal=0, **keys):
    prefix = (prefix[:1].expand(2) if one else prefix)[:, None, None, None] + more
    return online(q, grouped(k, 2, cyclic), grouped(v, 2, cyclic), 32 ** -0.5,
                  lambda s, i, j: cap * (s / cap).tanh() if cap else s,
                  lambda i, j: (j <= i + causal) | (j < prefix), **keys)[0]


right(flex_prefix_lm_softcap, "tiles of 16 keys", prefix_softcap_tiles)
right(flex_prefix_lm_softcap, "tiles of 24 keys from the end", prefix_softcap_tiles, tile=24, back=True)
wrong(flex_prefix_lm_softcap, prefix_softcap_tiles, {
    "the prefix reaches one key too far": dict(more=1),
    "both sequences use the first one's prefix": dict(one=True),
    "query head h reads kv head h % 2": dict(cyclic=True),
    "scores are not capped": dict(cap=0),
    "the output is not rescaled when the running maximum grows": dict(frozen=True)})


@seventh(lambda d: (d(1, 4, 80, 24), d(1, 4, 80, 24), d(1, 4, 80, 24), torch.tensor([0] * 27 + [1] * 21 + [2] * 32)))
def flex_document_alibi(q, k, v, doc):
    i = torch.arange(80)
    slope = torch.exp2(-2.0 * torch.arange(1, 5)).to(q.dtype)[:, None, None]
    s = q @ k.mT * 24 ** -0.5 - slope * (i[:, None] - i[None])
    see = (doc[:, None] == doc[None]) & (i[:, None] >= i[None])
    return s.masked_fill(~see, NEG).softmax(-1) @ v


def document_alibi_tiles(q, k, v, doc, first=1, skip=False, sign=1, strict=0, tie=False, **keys):
    slope = (4.0 ** -torch.arange(first, first + 4).double()).to(q.dtype)[:, None, None]

    def see(i, j):
        same = doc[i] == doc[j]
        if skip:  # a tile counts as seen only where its first key is of the query's document
            same = same & (doc[i] == doc[j[:, :1]])
        return (same | tie) & (j + strict <= i) | (j == i)

    return online(q, k, v, 24 ** -0.5, lambda s, i, j: s - sign * slope * (i - j), see, **keys)[0]


right(flex_document_alibi, "tiles of 16 keys", document_alibi_tiles)
right(flex_document_alibi, "tiles of 13 keys from the end", document_alibi_tiles, tile=13, back=True)
wrong(flex_document_alibi, document_alibi_tiles, {
    "slopes start at 2^0, each head has the slope of the head before": dict(first=0),
    "a tile whose first key is of another document is skipped, also where a new document starts in it":
        dict(skip=True),
    "the bias grows with the distance instead of falling": dict(sign=-1),
    "documents are not compared": dict(tie=True),
    "the neighbour just before a query is hidden": dict(strict=2)})


@seventh(lambda d: (d(2, 8, 40, 32, dtype=bf), d(2, 2, 40, 32, dtype=bf), d(2, 2, 40, 32, dtype=bf), d(8, dtype=bf)))
def window_attention_with_sinks(q, k, v, sinks):
    i = torch.arange(40)
    away = i[:, None] - i[None]
    s = q @ k.repeat_interleave(4, 1).mT * 32 ** -0.5
    s = s.masked_fill((away < 0) | (away >= 16), NEG)
    s = torch.cat((s, sinks[None, :, None, None].expand(2, -1, 40, -1)), -1)
    return s.softmax(-1)[..., :-1] @ v.repeat_interleave(4, 1)


def window_sinks_tiles(q, k, v, sinks, reach=16, with_sink=True, scaled=1.0, raw=False, shift=0, **keys):
    sink = sinks.roll(shift)[None, :, None, None] * scaled
    k, v = grouped(k, 4), grouped(v, 4)
    see = (lambda i, j: (j <= i) & (i - j < reach))
    o, lse = online(q, k, v, 32 ** -0.5, None, see, sink=sink if with_sink and not raw else None, **keys)
    if raw:  # the sum is relative to the running maximum, exp(sink) is not
        top = torch.where(see(torch.arange(40)[:, None], torch.arange(40)[None]), q @ k.mT * 32 ** -0.5, NEG)
        z = (lse[..., None] - top.amax(-1, keepdim=True)).exp()
        o = o * z / (z + sink.exp())
    return o


right(window_attention_with_sinks, "tiles of 16 keys, the sink joined last", window_sinks_tiles)
right(window_attention_with_sinks, "tiles of 9 keys from the end", window_sinks_tiles, tile=9, back=True)
wrong(window_attention_with_sinks, window_sinks_tiles, {
    "the window holds 17 keys": dict(reach=17),
    "the sinks are left out of the sums": dict(with_sink=False),
    "the sinks are multiplied by the scale of the scores": dict(scaled=32 ** -0.5),
    "exp(sink) joins the sum without the running maximum taken off": dict(raw=True),
    "each head takes the sink of the head before it": dict(shift=1)})


# ------------------------------------------------------------------ caches

@seventh(lambda d: (d(2, 8, 32, dtype=bf), d(2, 8, 16, dtype=bf), d(2, 70, 64, dtype=bf), d(2, 70, 16, dtype=bf),
                    d(8, 32, 64, scale=0.15, dtype=bf), d(8, 64, 32, scale=0.15, dtype=bf), torch.tensor([70, 41])))
def mla_decode_step(qn, qr, latent, kr, wk, wv, lens):
    lifted = torch.einsum("bhd,hdr->bhr", qn, wk)
    s = (lifted @ latent.mT + qr @ kr.mT) * 48 ** -0.5
    s = s.masked_fill(torch.arange(70) >= lens[:, None, None], NEG)
    return torch.einsum("bhr,hrd->bhd", s.softmax(-1) @ latent, wv)


def mla_expanded(qn, qr, latent, kr, wk, wv, lens, width=48, more=0, one=False, late=0, rope=1.0):
    k = torch.einsum("bnr,hdr->bhnd", latent, wk)
    v = torch.einsum("bnr,hrd->bhnd", latent, wv)
    k = torch.cat((k, kr.roll(late, 1)[:, None].expand(-1, 8, -1, -1) * rope), -1)
    q = torch.cat((qn, qr[:, :1].expand(-1, 8, -1) if one else qr), -1)[:, :, None]
    lens = lens[:, None, None, None] + more
    return online(q, k, v, width ** -0.5, None, lambda i, j: j < lens)[0][:, :, 0]


right(mla_decode_step, "keys and values expanded per head, tiles of 16", mla_expanded)
doubled(mla_decode_step)
wrong(mla_decode_step, mla_expanded, {
    "scores are scaled by the latent's width (64 + 16)": dict(width=80),
    "a sequence's last cached token is not seen": dict(more=-1),
    "all heads use the rotary query of head 0": dict(one=True),
    "the rotary keys lie one token late against the latents": dict(late=1),
    "the rotary part of the score is left out": dict(rope=0.0)})


@seventh(lambda d: (d(3, 8, 32, dtype=hf), d(14, 8, 2, 32).to(E4), d(14, 8, 2, 32).to(E4),
                    d.rand(2).add(0.5).to(hf), d.rand(2).add(0.5).to(hf),
                    torch.tensor([[3, 9, 1, 12], [7, 2, 13, 0], [5, 11, 8, 4]]), torch.tensor([32, 17, 9])))
def paged_decode_e4m3_cache(q, kp, vp, ks, vs, table, lens):
    k, v = (x[table].flatten(1, 2).to(q.dtype) * s[:, None] for x, s in ((kp, ks), (vp, vs)))
    k, v = (x.repeat_interleave(4, 2) for x in (k, v))
    s = torch.einsum("bhd,bnhd->bhn", q, k) * 32 ** -0.5
    s = s.masked_fill(torch.arange(32) >= lens[:, None, None], NEG)
    return torch.einsum("bhn,bnhd->bhd", s.softmax(-1), v)


def paged_by_splits(q, kp, vp, ks, vs, table, lens, split=2, whole=False, kscale=1, swapped=False, over=0,
                    wrap=8, even=False):
    out = torch.zeros_like(q)
    for b in range(3):
        parts, sums = [], []
        for pages in table[b].chunk(split):
            first = int((table[b] == pages[0]).nonzero()[0]) * 8
            place = torch.arange(len(pages) * 8)
            k, v = (x[pages[place // 8], place % wrap] for x in (kp, vp))
            k, v = k * (vs if swapped else ks)[:, None] ** kscale, v * (ks if swapped else vs)[:, None]
            n = int(lens[b]) + over - first
            if n <= 0 and not whole:
                continue
            s = torch.einsum("hgd,nhd->hgn", q[b].unflatten(0, (2, 4)), k) * 32 ** -0.5
            s = s if whole else s.masked_fill(place >= n, NEG)
            sums.append(s.logsumexp(-1))
            parts.append(torch.einsum("hgn,nhd->hgd", s.softmax(-1), v))
        w = torch.stack(sums).softmax(0)
        w = torch.full_like(w, 1 / len(w)) if even else w
        out[b] = (torch.stack(parts) * w[..., None]).sum(0).flatten(0, 1)
    return out


right(paged_decode_e4m3_cache, "two splits of the pages", paged_by_splits)
right(paged_decode_e4m3_cache, "four splits, a page each", paged_by_splits, split=4)
wrong(paged_decode_e4m3_cache, paged_by_splits, {
    "lengths are not looked at: all slots of the pages are seen": dict(whole=True),
    "the keys' scale is not applied": dict(kscale=0),
    "the scales of keys and values are exchanged": dict(swapped=True),
    "one slot beyond a sequence's length is seen": dict(over=1),
    "the two splits are averaged evenly": dict(even=True)})


# ------------------------------------------------------------------ packed sequences, gradients

ENDS = (0, 13, 50, 64)


@seventh(lambda d: (d(64, 4, 32, dtype=hf), d(64, 2, 32, dtype=hf), d(64, 2, 32, dtype=hf), torch.tensor(ENDS)))
def varlen_packed_attention_half(q, k, v, ends):
    out = []
    for a, b in zip(ends[:-1].tolist(), ends[1:].tolist()):
        x, y, z = (t[a:b].transpose(0, 1) for t in (q, k, v))
        s = x @ y.repeat_interleave(2, 0).mT * 32 ** -0.5
        s = s.masked_fill(torch.ones(b - a, b - a).triu(1).bool(), NEG)
        out.append((s.softmax(-1) @ z.repeat_interleave(2, 0)).transpose(0, 1))
    return torch.cat(out)


def packed_as_one(q, k, v, ends, late=0, closed=True, scale=32 ** -0.5, start=0, **keys):
    place = torch.arange(64)
    seq = torch.searchsorted(ends[1:], place + late, right=True).clamp_max(2)
    first = ends[seq]
    x, y, z = (t.transpose(0, 1)[None] for t in (q, k, v))

    def see(i, j):
        same = (seq[i] == seq[j]) if closed else j >= 0
        return same & (j <= i) & (j >= first[i] + start) | (i == j)

    return online(x, grouped(y, 2), grouped(z, 2), scale, None, see, **keys)[0][0].transpose(0, 1)


right(varlen_packed_attention_half, "one long sequence with a block-diagonal mask, tiles of 16", packed_as_one)
right(varlen_packed_attention_half, "the same from the end in tiles of 20", packed_as_one, tile=20, back=True)
wrong(varlen_packed_attention_half, packed_as_one, {
    "a sequence's last token is given to the next sequence and sees itself alone": dict(late=1),
    "a sequence's first key is hidden": dict(start=1),
    "the scale is 1 / sqrt(64)": dict(scale=0.125),
    "the last 4 keys, which fill no tile of 15, are left out": lambda *a: packed_as_one(*a, tile=15, tail=False)})


@seventh(lambda d: tuple(d(1, 3, 48, 32, dtype=bf) for _ in range(4)))
def causal_attention_gradients(q, k, v, g):
    s = (q @ k.mT * 32 ** -0.5).masked_fill(torch.ones(48, 48).triu(1).bool(), NEG)
    p = s.softmax(-1)
    dp = g @ v.mT
    ds = p * (dp - (p * dp).sum(-1, keepdim=True)) * 32 ** -0.5
    return ds @ k, ds.mT @ q, p.mT @ g


def attention_gradients_tiles(q, k, v, g, tile=16, delta=1.0, lose=False, stale=False, strict=0,
                              unscaled=False):
    o, lse = online(q, k, v, 32 ** -0.5, None, lambda i, j: j <= i)
    row = (o * g).sum(-1, keepdim=True) * delta
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    i = torch.arange(48)[:, None]
    for start in range(0, 48, tile):
        c = slice(start, start + tile)
        j = torch.arange(48)[None, c]
        p = ((q @ k[..., c, :].mT * 32 ** -0.5).masked_fill(j + strict > i, NEG) - lse[..., None]).exp()
        ds = p * (g @ v[..., c, :].mT - row) * 32 ** -0.5
        if not lose or start + tile < 48:
            dq = ds @ k[..., c, :] + (0 if stale else dq)
        dk[..., c, :] = ds.mT @ q * (32 ** 0.5 if unscaled else 1.0)
        dv[..., c, :] = p.mT @ g
    return dq, dk, dv


def attention_autograd(q, k, v, g):
    q, k, v = (x.clone().requires_grad_() for x in (q, k, v))
    return torch.autograd.grad(F.scaled_dot_product_attention(q, k, v, is_causal=True), (q, k, v), g)


right(causal_attention_gradients, "tiles of 16 keys from the log sums", attention_gradients_tiles)
right(causal_attention_gradients, "automatic differentiation of the fused attention", attention_autograd)
wrong(causal_attention_gradients, attention_gradients_tiles, {
    "the row sum of output times gradient is not subtracted": dict(delta=0.0),
    "the last tile of 16 keys gives nothing to dq": dict(lose=True),
    "dq holds the last tile's part only": dict(stale=True),
    "the backward mask hides the diagonal": dict(strict=1),
    "dk lacks the scale of the scores": dict(unscaled=True)})


# ------------------------------------------------------------------ other attentions

@seventh(
    lambda d: (
        d(2, 2, 2, 36, 16),
        d(2, 2, 2, 36, 16),
        d(2, 2, 36, 32),
        d(4, 16, scale=0.1),
        d(32, shift=1.0, scale=0.2),
    )
)
def differential_attention_headnorm(q, k, v, lam, w):
    l1, l2, l3, l4 = lam
    full = torch.exp((l1 * l2).sum()) - torch.exp((l3 * l4).sum()) + 0.2
    a = (q @ k.mT * 0.25).softmax(-1)
    o = (a[:, :, 0] - full * a[:, :, 1]) @ v
    return F.rms_norm(o, (32,), w, 1e-5) * 0.8


def differential_two_passes(q, k, v, lam, w, init=0.2, last=0.8, plus=False, over=32, eps=1e-5, same=False, **keys):
    l1, l2, l3, l4 = lam
    full = (l1 @ l2).exp() - (l3 @ l4).exp() + init
    one = online(q[:, :, 0], k[:, :, 0], v, 0.25, **keys)[0]
    two = online(q[:, :, 0 if same else 1], k[:, :, 1], v, 0.25, **keys)[0]
    o = one + full * two if plus else one - full * two
    return o * (o.square().sum(-1, keepdim=True) / over + eps).rsqrt() * w * last


right(differential_attention_headnorm, "two online passes in tiles of 16", differential_two_passes)
right(
    differential_attention_headnorm,
    "two online passes in tiles of 7 from the end",
    differential_two_passes,
    tile=7,
    back=True,
)
wrong(differential_attention_headnorm, differential_two_passes, {
    "the second map's weight lacks its start value 0.2": dict(init=0.0),
    "the output is not multiplied by 1 - 0.2": dict(last=1.0),
    "the mean square is divided by 31": dict(over=31),
    "the second map is made with the first map's queries": dict(same=True),
    "an epsilon of 1e-3": dict(eps=1e-3)})


@seventh(lambda d: (d(2, 3, 60, 16, dtype=bf), d(2, 3, 60, 16, dtype=bf, scale=0.3), d(2, 3, 60, 24, dtype=bf),
                    torch.tensor((0.5, 0.8, 0.95), dtype=bf)))
def decayed_linear_attention(q, k, v, rate):
    i = torch.arange(60)
    away = (i[:, None] - i[None]).clamp_min(0)
    return (q @ k.mT * (rate[:, None, None] ** away).tril()) @ v


def decayed_chunks(q, k, v, rate, chunk=16, late=0, span=0, kind=None, own=0, first=0, lost=False):
    rate = rate[:, None, None]
    state, out = q.new_zeros(2, 3, 16, 24), []
    for start in range(0, 60, chunk):
        a, b, c = (x[:, :, start:start + chunk] for x in (q, k, v))
        n = a.shape[2]
        i = torch.arange(n).to(q.dtype)
        inner = rate ** (i[:, None] - i[None] + late).clamp_min(0) * torch.ones(n, n).to(q.dtype).tril(-own)
        out.append((a @ b.mT * inner) @ c + (a * rate ** (i[:, None] + 1 - first)) @ state)
        state = via(state * rate ** (n - span) + (b * rate ** (n - 1 - i)[:, None]).mT @ c, kind)
        state = state * 0 if lost and start == 32 else state
    return torch.cat(out, 2)


right(decayed_linear_attention, "chunks of 16 with a carried state", decayed_chunks)
right(decayed_linear_attention, "one step at a time", decayed_chunks, chunk=1)
wrong(decayed_linear_attention, decayed_chunks, {
    "within a chunk the decay is one step too strong": dict(late=1),
    "the carried state decays by one step less than the chunk's length": dict(span=1),
    "the state is kept in e5m2 between chunks": dict(kind=E5),
    "a token does not see itself": dict(own=1),
    "the carried state enters a chunk without the first step's decay": dict(first=1),
    "the state is lost before the last chunk": dict(lost=True)})


@seventh(
    lambda d: (d(2, 4, 30, 16, dtype=hf), d(2, 4, 30, 16, dtype=hf), d(2, 4, 30, 16, dtype=hf), d(4, 13, dtype=hf))
)
def neighborhood_attention_1d(q, k, v, bias):
    i = torch.arange(30)
    start = (i - 3).clamp(0, 23)
    away = i[None] - i[:, None]
    s = q @ k.mT * 0.25 + bias[:, (away + 6).clamp(0, 12)]
    see = (i[None] >= start[:, None]) & (i[None] < start[:, None] + 7)
    return s.masked_fill(~see, NEG).softmax(-1) @ v


def neighborhood_gathered(q, k, v, bias, cut=False, centre=3, flip=False, zero=6, last=23):
    i = torch.arange(30)
    start = i - centre if cut else (i - centre).clamp(0, last)
    place = start[:, None] + torch.arange(7)
    ok = (place >= 0) & (place < 30)
    near, rel = place.clamp(0, 29), place - i[:, None]
    s = torch.einsum("bhid,bhijd->bhij", q, k[:, :, near]) * 0.25
    s = s + bias[:, ((-rel if flip else rel) + zero).clamp(0, 12)]
    s = s.masked_fill(~ok, NEG)
    return torch.einsum("bhij,bhijd->bhid", s.softmax(-1), v[:, :, near])


right(neighborhood_attention_1d, "neighbours gathered", neighborhood_gathered)
doubled(neighborhood_attention_1d)
wrong(neighborhood_attention_1d, neighborhood_gathered, {
    "at the ends the window is cut instead of pushed inward": dict(cut=True),
    "the window lies one place to the left": dict(centre=4),
    "the bias is read by query minus key": dict(flip=True),
    "the bias table's middle is taken at 5": dict(zero=5),
    "at the right end the window starts at 22 at most": dict(last=22)})
