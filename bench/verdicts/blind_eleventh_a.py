# SPDX-License-Identifier: Apache-2.0
"""Set N, by one more hand that had read no part of the rule: kernels of 2025 and 2026 and what goes wrong in them.
Words that begin with "hides" name a mistake meant to look excusable. This file: attention; _b to _k: the rest."""

import math

import torch

from .blind import bf, family, hf, narrow
from .blind_ninth_a import INF, bad, grads, ok

F8 = torch.float8_e4m3fn


def eleventh(args):
    return family(args, sets="N")


def rough_exp(x, cubic=True):
    """Two to the fraction by a short polynomial: 1e-4 off, or 2e-3 by the square."""
    t = (x * 1.44269504).clamp_min(-126.0)
    f = t - t.floor()
    p = 1 + f * (0.695643 + f * (0.226173 + f * 0.078024)) if cubic else 1 + f * (0.6565 + 0.3435 * f)
    return torch.where(x == -INF, 0.0, torch.ldexp(p, t.floor().int()))


def flash(
    q, k, v, mask=None, bias=None, scale=None, block=32, order=None, stale=(), kind=None, exp=torch.exp, sink=None
):
    """Output and logsumexp by blocks of keys under a running maximum."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    top = torch.full((*q.shape[:-1], 1), -INF)
    total, acc = torch.zeros_like(top), torch.zeros(*q.shape[:-1], v.shape[-1])
    if sink is not None:
        top, total = sink.expand_as(top), torch.ones_like(top)
    for n, j in enumerate(range(0, k.shape[-2], block) if order is None else order):
        at = slice(j, j + block)
        s = q @ k[..., at, :].mT * scale
        s = s if bias is None else s + bias[..., at]
        s = s if mask is None else s.masked_fill(~mask[..., at], -INF)
        new = torch.maximum(top, s.amax(-1, keepdim=True))
        safe = torch.where(new == -INF, 0.0, new)
        p, fall = exp(s - safe), exp(top - safe)
        total = total * fall + p.sum(-1, keepdim=True)
        acc = acc * (1.0 if n in stale else fall) + p @ v[..., at, :]
        if kind:
            total, acc = narrow(total, kind), narrow(acc, kind)
        top = new
    return acc / total, (top + total.log())[..., 0]


def plain(q, k, v, mask=None, bias=None, scale=None):
    s = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    s = s if bias is None else s + bias
    s = s if mask is None else s.masked_fill(~mask, -INF)
    return torch.softmax(s, -1) @ v


def each(x, by):
    return x.repeat_interleave(by, 1)


def low(n, m=None):
    m = m or n
    return torch.arange(m)[None] <= torch.arange(n)[:, None] + m - n


# ---- flex: documents and slopes by head


def docs(n, cuts):
    d = torch.bucketize(torch.arange(n), torch.tensor(cuts), right=True)
    return low(n) & (d[:, None] == d[None])


def slopes(heads, n, first=1, dist=0):
    s = torch.pow(2.0, -(torch.arange(heads) + first) * 8.0 / heads)
    i, j = torch.arange(n)[:, None], torch.arange(n)[None]
    return -s[:, None, None] * (i - j + dist)


@eleventh(lambda d: (d(1, 8, 192, 64), d(1, 2, 192, 64), d(1, 2, 192, 64)))
def eleventh_docs(q, k, v):
    return plain(q, each(k, 4), each(v, 4), docs(192, (50, 117)), slopes(8, 192))


def flex_docs(q, k, v, cuts=(50, 117), first=1, heads=each, unseen=None, bias_of=None, **how):
    mask, bias = docs(192, cuts), slopes(8, 192, first)
    if unseen:
        mask[unseen] = False
    return flash(q, heads(k, 4), heads(v, 4), mask, bias_of(bias) if bias_of else bias, **how)[0]


ok(
    eleventh_docs,
    flex_docs,
    tiles_of_32={},
    tiles_of_48_from_the_end={"block": 48, "order": (144, 96, 48, 0)},
    powers_of_two={"exp": lambda x: torch.exp2(x * 1.4426950408889634)},
)
bad(
    eleventh_docs,
    flex_docs,
    {
        "the first token of the second document belongs to the first": {"cuts": (51, 117)},
        "the slopes are counted from head 0": {"first": 0},
        "query heads take key heads in turn": {"heads": lambda x, n: x.repeat(1, n, 1, 1)},
        "the accumulator keeps the old maximum in the fourth tile": {"stale": (3,)},
        # up to 1e-4 a weight where float32 leaves 1e-7
        "hides: exp by a cubic": {"exp": rough_exp},
        # one per cent of one term of the scores
        "hides: slopes are one per cent too steep": {"bias_of": lambda b: b * 1.01},
        # one weight of 75 in one row
        "hides: the last query does not see the first key of its document": {"unseen": (191, 117)},
    },
)


# ---- paged decoding, tables of blocks


def paged_args(d):
    table = torch.randperm(80, generator=d.g)[:72].view(6, 12)
    lens = torch.tensor([192, 150, 113, 64, 17, 5])
    return d(6, 16, 64, dtype=bf, scale=2), d(80, 16, 4, 64, dtype=bf), d(80, 16, 4, 64, dtype=bf), table, lens


@eleventh(paged_args)
def eleventh_paged(q, kc, vc, table, lens):
    out = []
    for b, n in enumerate(lens.tolist()):
        k, v = (c[table[b]].flatten(0, 1)[:n].float().repeat_interleave(4, 1).transpose(0, 1) for c in (kc, vc))
        out.append(plain(q[b, :, None].float(), k, v)[:, 0])
    return torch.stack(out).to(bf)


def paged(q, kc, vc, table, lens, far=lambda n: n, heads=lambda x: x.repeat_interleave(4, 1), v_of=None, **how):
    out = []
    for b, n in enumerate(lens.tolist()):
        n = far(n)
        k, v = (heads(c[table[b]].flatten(0, 1)[:n].float()).transpose(0, 1) for c in (kc, vc))
        v = v_of(v, n) if v_of else v
        out.append(flash(q[b, :, None].float(), k, v, **how)[0][:, 0])
    return torch.stack(out)


def one_lane(v, n):
    v = v.clone()
    v[:, 64:80, 63] = v[:, 48:64, 63] if n >= 80 else v[:, 64:80, 63]
    return v


ok(
    eleventh_paged,
    paged,
    bf,
    a_page_at_a_time={"block": 16},
    four_pages_in_powers_of_two={"block": 64, "exp": lambda x: torch.exp2(x * 1.4426950408889634)},
    three_pages={"block": 48},
)
bad(
    eleventh_paged,
    paged,
    {
        "the newest token is not seen": {"far": lambda n: n - 1},
        "the last page is read to its end": {"far": lambda n: -(-n // 16) * 16},
        "query heads take key heads in turn": {"heads": lambda x: x.repeat(1, 4, 1)},
        "a tail that fills no page is left out": {"far": lambda n: n // 16 * 16 or n},
        # every page rounds the whole accumulator to eight bits
        "hides: the accumulator in bfloat16": {"kind": bf, "block": 16},
        # weights of scores ten below the greatest are two per cent off
        "hides: log2(e) is 1.44": {"exp": lambda x: torch.exp2(x * 1.44)},
        # one lane of one page comes from the page before
        "hides: lane 63 of the fifth page is that of the fourth": {"v_of": one_lane},
    },
    bf,
)


# ---- latent attention: compressed keys and a rotary part


@eleventh(
    lambda d: (
        d(4, 8, 32, dtype=bf),
        d(4, 8, 16, dtype=bf),
        d(4, 160, 48, dtype=bf),
        d(4, 160, 16, dtype=bf),
        d(8, 32, 48, dtype=bf, scale=0.2),
        d(8, 48, 32, dtype=bf, scale=0.2),
    )
)
def eleventh_latent(qn, qr, c, kr, wk, wv):
    qn, qr, c, kr, wk, wv = (x.float() for x in (qn, qr, c, kr, wk, wv))
    k, v = torch.einsum("bsc,hdc->bhsd", c, wk), torch.einsum("bsc,hcd->bhsd", c, wv)
    s = torch.einsum("bhd,bhsd->bhs", qn, k) + torch.einsum("bhd,bsd->bhs", qr, kr)
    return torch.einsum("bhs,bhsd->bhd", torch.softmax(s * 48**-0.5, -1), v).to(bf)


def latent(qn, qr, c, kr, wk, wv, wide=48, upto=160, c_of=None, block=160, heads=None, kind=None, expand=False):
    qn, qr, c, kr, wk, wv = (x.float() for x in (qn, qr, c, kr, wk, wv))
    cv = c_of(c) if c_of else c
    kr = torch.where(torch.arange(160)[:, None] < upto, kr, 0.0)
    qc = torch.einsum("bhd,hdc->bhc", qn, wk)
    s = torch.einsum("bhc,bsc->bhs", qc, c) + torch.einsum("bhd,bsd->bhs", qr, kr)
    e = torch.exp((s - s.amax(-1, keepdim=True)) * wide**-0.5)
    o = torch.zeros(4, 8, 48)
    for j in range(0, 160, block):
        o = o + torch.einsum("bhs,bsc->bhc", e[..., j : j + block], cv[:, j : j + block])
        o = narrow(o, kind) if kind else o
    o = o / e.sum(-1, keepdim=True)
    wv = wv[heads] if heads else wv
    if expand:
        v = torch.einsum("bsc,hcd->bhsd", cv, wv)
        return torch.einsum("bhs,bhsd->bhd", e / e.sum(-1, keepdim=True), v)
    return torch.einsum("bhc,hcd->bhd", o, wv)


ok(eleventh_latent, latent, bf, absorbed={}, by_tiles_of_32={"block": 32}, values_expanded={"expand": True})
bad(
    eleventh_latent,
    latent,
    {
        "scaled by the part without positions alone": {"wide": 32},
        "the rotary part of the last tile is left out": {"upto": 128},
        "the last two heads take each other's values": {"heads": [0, 1, 2, 3, 4, 5, 7, 6]},
        # three bits of mantissa and no scale
        "hides: values of the latent cache through e4m3": {"c_of": lambda c: c.to(F8).float()},
        # ten roundings of the sum to eight bits
        "hides: latents summed in bfloat16 by tiles of 16": {"block": 16, "kind": bf},
        # one token of 160 lacks its rotary part
        "hides: the newest key has no rotary part": {"upto": 159},
    },
    bf,
)


# ---- ragged sequences, half precision


def ragged_args(d):
    return tuple(d(210, 4, 32, dtype=hf) for _ in range(3)) + (torch.tensor([0, 33, 34, 120, 210]),)


@eleventh(ragged_args)
def eleventh_ragged(q, k, v, cu):
    out = torch.zeros(210, 4, 32)
    for a, b in zip(cu[:-1].tolist(), cu[1:].tolist(), strict=True):
        x = (t[a:b].float().transpose(0, 1) for t in (q, k, v))
        out[a:b] = plain(*x, low(b - a)).transpose(0, 1)
    return out.to(hf)


def ragged(q, k, v, cu, peek=0, strict=False, last=None, **how):
    out = torch.zeros(210, 4, 32)
    for a, b in zip(cu[:-1].tolist(), cu[1:].tolist(), strict=True):
        e = min(b + peek, 210)
        i, j = torch.arange(b - a)[:, None], torch.arange(e - a)[None]
        mask = (j <= i) | ((j == i + 1) & (i % 16 == 15) & (peek > 0))
        mask = mask & ((j < i) | (i == 0)) if strict else mask
        out[a:b] = flash(
            *(t[x].float().transpose(0, 1) for t, x in zip((q, k, v), (slice(a, b), slice(a, e), slice(a, e)))),
            mask,
            **how,
        )[0].transpose(0, 1)
    return last(out) if last else out


def one_sum(q, k, v, cu):
    """No sequences but one."""
    return flash(*(t.float().transpose(0, 1) for t in (q, k, v)), low(210))[0].transpose(0, 1)


def head_of(out):
    out = out.clone()
    out[209, 3] = out[208, 3]
    return out


ok(eleventh_ragged, ragged, hf, tiles_of_32={}, tiles_of_17={"block": 17}, tiles_of_64={"block": 64})
bad(
    eleventh_ragged,
    ragged,
    {
        "sequences see those before them": one_sum,
        "the diagonal is masked": {"strict": True},
        "the accumulator keeps the old maximum in the second tile": {"stale": (1,)},
        # eleven bits in every tile of four keys: twenty roundings
        "hides: the accumulator in half precision by tiles of four": {"block": 4, "kind": hf},
        # every sixteenth row sees one token of its future
        "hides: the last row of a tile sees the next key": {"peek": 1},
        # one head of one row
        "hides: the last head of the last row repeats the row before": {"last": head_of},
        # two parts in a thousand a weight, in half precision's eleven bits
        "hides: exp by a square": {"exp": lambda x: rough_exp(x, False)},
    },
    hf,
)


# ------------------------------------------------------------------ learned sinks and a window


@eleventh(lambda d: (d(2, 8, 128, 32), d(2, 2, 128, 32), d(2, 2, 128, 32), d(8, scale=2)))
def eleventh_sinks(q, k, v, sink):
    i, j = torch.arange(128)[:, None], torch.arange(128)[None]
    s = (q @ each(k, 4).mT * 32**-0.5).masked_fill(~((j <= i) & (i - j < 40)), -INF)
    s = torch.cat([s, sink.view(1, 8, 1, 1).expand(2, 8, 128, 1)], -1)
    return torch.softmax(s, -1)[..., :-1] @ each(v, 4)


def sinks(q, k, v, sink, of=lambda s: s, window=40, tail=None, times=1, **how):
    i, j = torch.arange(128)[:, None], torch.arange(128)[None]
    mask = (j <= i) & (i - j < window)
    s = of(sink).view(1, 8, 1, 1)
    o, lse = flash(q, each(k, 4), each(v, 4), mask, **how)
    return o * torch.sigmoid(lse[..., None] - s - math.log(times))


def sinks_first(q, k, v, sink):
    i, j = torch.arange(128)[:, None], torch.arange(128)[None]
    mask = (j <= i) & (i - j < 40)
    return flash(q, each(k, 4), each(v, 4), mask, sink=sink.view(1, 8, 1, 1), block=16)[0]


ok(
    eleventh_sinks,
    sinks,
    as_a_sigmoid_of_the_logsumexp={},
    the_running_maximum_begins_with_the_sink=sinks_first,
    tiles_of_64={"block": 64},
)
bad(
    eleventh_sinks,
    sinks,
    {
        "there is no sink": {"of": lambda s: s - INF},
        "the sink is scaled as scores are": {"of": lambda s: s * 32**-0.5},
        "the sink is counted in each of four tiles": {"times": 4},
        "the window is one too narrow": {"window": 39},
        # eight bits of the logit: half a per cent of the weight
        "hides: the sinks in bfloat16": {"of": narrow},
        # one head of eight
        "hides: the last head takes the sink of the one before": {"of": lambda s: torch.cat([s[:7], s[6:7]])},
    },
)


# ---- gradients of grouped attention


@eleventh(lambda d: (d(2, 6, 96, 32), d(2, 2, 96, 32), d(2, 2, 96, 32), d(2, 6, 96, 32)))
def eleventh_grouped_grad(q, k, v, do):
    return grads(lambda q, k, v: plain(q, each(k, 3), each(v, 3), low(96)), q, k, v, cotangent=do)


def grouped_grad(q, k, v, do, tile=96, lse_of=None, heads=(0, 1, 2), ds_of=None, delta=1.0, scale=32**-0.5, twice=None):
    kk, vv = each(k, 3), each(v, 3)
    s = (q @ kk.mT * 32**-0.5).masked_fill(~low(96), -INF)
    lse = torch.logsumexp(s, -1, keepdim=True)
    p = (s - (lse_of(lse) if lse_of else lse)).exp()
    d = (do * (p @ vv)).sum(-1, keepdim=True) * delta
    ds = p * (do @ vv.mT - d) * scale
    ds = ds_of(ds) if ds_of else ds
    dk, dv = torch.zeros_like(kk), torch.zeros_like(vv)
    for i in range(0, 96, tile):
        at = slice(i, i + tile)
        w = 2 if i == twice else 1
        dk = dk + ds[:, :, at].mT @ q[:, :, at] * w
        dv = dv + p[:, :, at].mT @ do[:, :, at]
    take = lambda x: x.view(2, 2, 3, 96, 32)[:, :, list(heads)].sum(2)
    return ds @ kk, take(dk), take(dv)


ok(
    eleventh_grouped_grad,
    grouped_grad,
    at_once={},
    by_sixteen_queries={"tile": 16},
    heads_in_another_order={"heads": (2, 0, 1), "tile": 32},
)
bad(
    eleventh_grouped_grad,
    grouped_grad,
    {
        "keys get the gradient of two heads of three": {"heads": (0, 1)},
        "delta is left out": {"delta": 0.0},
        "the gradients are not scaled": {"scale": 1.0},
        "one tile of queries is added twice to the keys": {"tile": 16, "twice": 80},
        # eight bits of a logsumexp of about five: one per cent of each weight
        "hides: the logsumexp is kept in bfloat16": {"lse_of": narrow},
        # half precision where all else is float32
        "hides: ds through half precision": {"ds_of": lambda x: narrow(x, hf)},
        # one per cent of one term
        "hides: delta is one per cent short": {"delta": 0.99},
    },
)


# ---- long keys in splits, with their logsumexp


@eleventh(lambda d: (d(2, 8, 1, 64), d(2, 2048, 8, 64).transpose(1, 2), d(2, 2048, 8, 64).transpose(1, 2)))
def eleventh_splits(q, k, v):
    s = q @ k.mT * 0.125
    return torch.softmax(s, -1) @ v, torch.logsumexp(s, -1)


def splits(q, k, v, by=256, part_of=None, lse_of=None, upto=2048, two=False, weigh=None):
    parts = [flash(q, k[..., j : j + by, :], v[..., j : j + by, :], block=64) for j in range(0, upto, by)]
    o, m = torch.stack([a for a, _ in parts]), torch.stack([b for _, b in parts])
    o, m = part_of(o) if part_of else o, lse_of(m) if lse_of else m
    total = torch.logsumexp(m, 0)
    w = weigh(m) if weigh else (m - total).exp()
    return (w[..., None] * o).sum(0), total / math.log(2) if two else total


ok(eleventh_splits, splits, eight_splits={}, two_splits={"by": 1024}, splits_of_300={"by": 300})
bad(
    eleventh_splits,
    splits,
    {
        "the splits are averaged": {"weigh": lambda m: torch.full_like(m, 1 / 8)},
        "the last split that is not full is left out": {"by": 300, "upto": 1800},
        "the logsumexp is that of base two": {"two": True},
        # eight bits where float32 has 24
        "hides: partial outputs in bfloat16": {"part_of": narrow},
        # 1e-3 of a logsumexp of six
        "hides: partial logsumexps in half precision": {"lse_of": lambda m: narrow(m, hf)},
        # 48 of 2048 keys
        "hides: the last 48 keys are in no split": {"upto": 2000, "by": 250},
    },
)
