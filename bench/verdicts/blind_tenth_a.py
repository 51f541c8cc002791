# SPDX-License-Identifier: Apache-2.0
"""Set M, by one more hand that had not read the rule: what an engineer writes, and breaks, while a chip is brought
up. Words that begin with "hides" name a mistake meant to look excusable. This file: attention; _b to _q: the rest."""

import torch

from .blind import bf, family, hf, narrow
from .blind_ninth_a import attend, bad, causal, grads, grouped, ok, online

INF = float("inf")


def tenth(args):
    return family(args, sets="M")


# ------------------------------------------------------------------ flex: a prefix, and a table of distances


def prefix(n, seen, extra=None):
    i, j = torch.arange(n)[:, None], torch.arange(n)[None]
    mask = (j <= i) | (j < seen)
    return mask if extra is None else mask | extra(i, j)


def near(table, n, most=63, late=0):
    i, j = torch.arange(n)[:, None], torch.arange(n)[None]
    return table[:, (i - j + late).clamp(0, most)]


@tenth(lambda d: (d(2, 4, 112, 32), d(2, 4, 112, 32), d(2, 4, 112, 32), d(4, 64, scale=0.5)))
def tenth_prefix_bias(q, k, v, table):
    return attend(q, k, v, prefix(112, 20), mod=lambda s: s + near(table, 112))


def prefix_bias(q, k, v, table, seen=20, extra=None, most=63, late=0, table_of=None, scaled=1.0, **how):
    t = table_of(table) if table_of else table
    return online(
        q, k, v, prefix(112, seen, extra), mod=lambda s: s + rest(near(t, 112, most, late) * scaled, s), **how
    )


def rest(bias, s, block=112):
    return bias if s.shape[-1] == bias.shape[-1] else bias[..., :block]


ok(
    tenth_prefix_bias,
    prefix_bias,
    one_block_of_all_keys={"block": 112},
    one_block_in_powers_of_two={"block": 112, "exp2": True},
)
bad(
    tenth_prefix_bias,
    prefix_bias,
    {
        # j < 19
        "the prefix is one key short": {"seen": 19, "block": 112},
        # distances clamped to half of the table
        "distances are clamped at 31": {"most": 31, "block": 112},
        # the program's head index is not added
        "all heads read the first head's biases": {"table_of": lambda t: t[:1].expand(4, -1), "block": 112},
        # bias added before the scale
        "the bias is scaled as the scores are": {"scaled": 32**-0.5, "block": 112},
        # i - j + 1
        "distances are one too far": {"late": 1, "block": 112},
        # the table lives in bfloat16
        "hides: the table in bfloat16": {"table_of": narrow, "block": 112},
        # the last row of each tile of 16 sees the next key
        "hides: the last row of a tile sees one key more": {
            "extra": lambda i, j: (i % 16 == 15) & (j == i + 1),
            "block": 112,
        },
    },
)


# ------------------------------------------------------------------ paged decoding from integers, a window


def paged_args(d):
    table = torch.randperm(40, generator=d.g)[:30].view(5, 6)
    codes = lambda: (d.ints(255, 40, 16, 2, 32) - 127).to(torch.int8)
    scales = lambda: d.rand(40, 16, 2) * 0.02 + 0.005
    return d(5, 8, 32), codes(), codes(), scales(), scales(), table, torch.tensor([96, 70, 48, 31, 9])


def wide(codes, scales, ids, n):
    x = codes[ids].float() * scales[ids][..., None]
    return x.flatten(0, 1)[:n].repeat_interleave(4, 1)


@tenth(paged_args)
def tenth_paged_int8(q, kc, vc, ks, vs, table, lens):
    out = []
    for b, n in enumerate(lens.tolist()):
        k, v = wide(kc, ks, table[b], n), wide(vc, vs, table[b], n)
        s = torch.einsum("hd,nhd->hn", q[b], k) * 32**-0.5
        s = s.masked_fill(torch.arange(n) < n - 40, -INF)
        out.append(torch.einsum("hn,nhd->hd", torch.softmax(s, -1), v))
    return torch.stack(out)


def paged_int8(q, kc, vc, ks, vs, table, lens, window=40, change=None, p_of=None, split=0, late=False, kind=None):
    ks, vs = change(ks, vs) if change else (ks, vs)
    out = []
    for b, n in enumerate(lens.tolist()):
        lo = max(0, n - window)
        k, v = wide(kc, torch.ones_like(ks) if late else ks, table[b], n)[lo:], wide(vc, vs, table[b], n)[lo:]
        if kind:
            k, v = narrow(k, kind), narrow(v, kind)
        s = torch.einsum("hd,nhd->hn", q[b], k) * 32**-0.5
        if late:
            s = s * ks[table[b]].flatten(0, 1)[lo:n].repeat_interleave(4, 1).T
        top = torch.full((8, 1), -INF)
        total, acc = torch.zeros(8, 1), torch.zeros(8, 32)
        for part, x in zip(s.split(split or 96, -1), v.split(split or 96), strict=True):
            new = torch.maximum(top, part.amax(-1, keepdim=True))
            p = (part - new).exp()
            p = p_of(p) if p_of else p
            fall = (top - new).exp()
            total, acc, top = total * fall + p.sum(-1, keepdim=True), acc * fall + torch.einsum("hn,nhd->hd", p, x), new
        out.append(acc / total)
    return torch.stack(out)


ok(
    tenth_paged_int8,
    paged_int8,
    scales_of_keys_multiplied_into_the_scores={"late": True},
    in_pieces_of_eight_keys={"split": 8},
    in_pieces_of_32_keys={"split": 32, "late": True},
)
bad(
    tenth_paged_int8,
    paged_int8,
    {
        # n - window - 1
        "the window is one too wide": {"window": 41},
        # a tile loads one scale a page
        "values take the scale of their page's first token": {
            "change": lambda k, v: (k, v[:, :1].expand(-1, 16, -1)),
        },
        # ks[..., ::-1]
        "scales of the two key heads are swapped": {"change": lambda k, v: (k.flip(-1), v)},
        # the probabilities go through int8, too
        "hides: probabilities through int8": {"p_of": lambda p: (p * 127).round() / 127},
        # dequantised into half a register
        "hides: dequantised to float16": {"kind": hf},
        # scales kept in bfloat16
        "hides: scales of keys in bfloat16": {"change": lambda k, v: (narrow(k), v)},
    },
)


# ------------------------------------------------------------------ latent attention behind a norm


@tenth(
    lambda d: (
        d(4, 32, 24),
        d(48, 64, scale=1e-3),
        d(64, 40),
        d(40, shift=1.0, scale=0.2),
        d(4, 24, 40, scale=0.2),
        d(4, 40, 24, scale=0.2),
    )
)
def tenth_latent_norm(q, x, down, gain, wk, wv):
    c = torch.nn.functional.rms_norm(x @ down, (40,), gain, 1e-6)
    k, v = torch.einsum("sc,hdc->hsd", c, wk), torch.einsum("sc,hcd->hsd", c, wv)
    return attend(q, k, v, causal(32, 48))


def latent_norm(q, x, down, gain, wk, wv, eps=1e-6, outside=False, shift=16, plain=(), absorb=True, lane=40):
    c = x @ down
    ms = c[:, :lane].square().sum(-1, keepdim=True) / lane
    r = 1 / (ms.sqrt() + eps) if outside else torch.rsqrt(ms + eps)
    c = torch.where(torch.isin(torch.arange(48), torch.tensor(plain, dtype=torch.long))[:, None], c, c * r) * gain
    see = torch.arange(48)[None] <= torch.arange(32)[:, None] + shift
    s = (q @ wk @ c.T if absorb else q @ torch.einsum("sc,hdc->hsd", c, wk).mT) * 24**-0.5
    p = torch.softmax(s.masked_fill(~see, -INF), -1)
    return p @ c @ wv if absorb else p @ torch.einsum("sc,hcd->hsd", c, wv)


ok(tenth_latent_norm, latent_norm, absorbed={}, expanded_by_head={"absorb": False})
bad(
    tenth_latent_norm,
    latent_norm,
    {
        # sqrt(ms) + eps
        "eps is added outside the root": {"outside": True},
        # eps of another model
        "eps is 1e-5": {"eps": 1e-5},
        # causal from the top left
        "causal from the top left": {"shift": 0},
        # the newest latent is written to the cache before the norm
        "hides: the newest latent is not normed": {"plain": (47,)},
        # a vector of 32 lanes and a tail that is left out
        "hides: the mean square is that of 32 lanes": {"lane": 32},
    },
)


# ------------------------------------------------------------------ gradients in half precision


def half_args(d):
    return tuple(d(2, 2, 72, 32, dtype=hf) for _ in range(4))


@tenth(half_args)
def tenth_half_attention_grad(q, k, v, do):
    wide = [x.float() for x in (q, k, v)]
    return tuple(g.to(hf) for g in grads(lambda q, k, v: attend(q, k, v, causal(72)), *wide, cotangent=do.float()))


def half_attention_grad(q, k, v, do, tile=72, kind=None, lost=(), lanes=32, see=None, scale=32**-0.5, o_of=None):
    q, k, v, do = (x.float() for x in (q, k, v, do))
    s = (q @ k.mT * 32**-0.5).masked_fill(~causal(72), -INF)
    p = torch.softmax(s, -1)
    o = p @ v
    o = o_of(o) if o_of else o
    delta = (do * o)[..., :lanes].sum(-1, keepdim=True)
    p = p if see is None else p * see
    ds = p * (do @ v.mT - delta) * scale
    dk, dv = torch.zeros_like(k), torch.zeros_like(v)
    for n, i in enumerate(range(0, 72, tile)):
        at = slice(i, i + tile)
        if n in lost:
            continue
        dk, dv = dk + ds[..., at, :].mT @ q[..., at, :], dv + p[..., at, :].mT @ do[..., at, :]
        if kind:
            dk, dv = narrow(dk, kind), narrow(dv, kind)
    return ds @ k, dk, dv


ok(tenth_half_attention_grad, half_attention_grad, hf, at_once={}, by_nine_queries={"tile": 9})
bad(
    tenth_half_attention_grad,
    half_attention_grad,
    {
        # atomics in half precision
        "dk and dv are summed in half precision over tiles of eight": {"kind": hf, "tile": 8},
        # grid of 72 // 16 tiles
        "the last tile of queries gives nothing to dk and dv": {"tile": 16, "lost": (4,)},
        # 1 / d instead of 1 / sqrt(d)
        "the gradients are scaled by 1 / 32": {"scale": 1 / 32},
        # delta over 31 lanes
        "hides: delta leaves out the last lane": {"lanes": 31},
        # delta from the output as stored, rounded twice: to bfloat16
        "hides: delta from an output in bfloat16": {"o_of": narrow},
        # the diagonal of the last tile is masked in the backward pass
        "hides: the last query does not see itself in the backward pass": {
            "see": 1 - torch.diag((torch.arange(72) == 71).float())
        },
    },
    hf,
)


# ------------------------------------------------------------------ merging partial states


def merge_args(d):
    l1, l2 = d(6, 48, scale=6), d(6, 48, scale=6)
    l1[1, 3], l2[2, 4], l1[4, 9], l2[4, 9] = -INF, -INF, -INF, -INF
    return d(6, 48, 16), l1, d(6, 48, 16), l2


@tenth(merge_args)
def tenth_merge(o1, l1, o2, l2):
    m = torch.logaddexp(l1, l2)
    safe = m.masked_fill(m == -INF, 0.0)
    return (l1 - safe).exp()[..., None] * o1 + (l2 - safe).exp()[..., None] * o2, m


def merged(o1, l1, o2, l2, safe=True, gap=INF, swap=False, log_of=None, one=None, sig=False):
    top = torch.maximum(l1, l2)
    t = top.masked_fill(top == -INF, 0.0) if safe else top
    a, b = (l1 - t).exp(), (l2 - t).exp()
    a, b = a * (l2 - l1 < gap) if gap < INF else a, b * (l1 - l2 < gap) if gap < INF else b
    total = a + b
    m = t + (log_of(total) if log_of else total.log())
    w, u = (b, a) if swap else (a, b)
    d = torch.where(total == 0, 1.0, total) if safe else total
    if sig:
        dead = top == -INF
        u = torch.sigmoid((l2 - l1).masked_fill(dead, 0.0)).masked_fill(dead, 0.0)
        w, d = torch.sigmoid((l1 - l2).masked_fill(dead, 0.0)).masked_fill(dead, 0.0), torch.ones_like(d)
    return (w / d)[..., None] * o1 + (u / d)[..., None] * o2, (one(m, l1, l2) if one else m)


ok(tenth_merge, merged, by_the_maximum={}, weights_as_sigmoids_of_the_gap={"sig": True})
bad(
    tenth_merge,
    merged,
    {
        # -inf - -inf
        "two empty parts give not a number": {"safe": False},
        # w1 with o2
        "the weights are swapped": {"swap": True},
        # max(l1, l2)
        "the merged logsumexp is the greater one": {"one": lambda m, a, b: torch.maximum(a, b)},
        # log2 for log
        "the logarithm is that of base two": {"log_of": torch.log2},
        # a part that is e^-9 as heavy is skipped
        "hides: a part lighter by nine is skipped": {"gap": 9.0},
        # logsumexp kept in half precision
        "hides: the merged logsumexp in float16": {"one": lambda m, a, b: narrow(m, hf)},
    },
)


# ------------------------------------------------------------------ attention with its dropout mask


@tenth(lambda d: (d(2, 6, 64, 16), d(2, 2, 64, 16), d(2, 2, 64, 16), d.rand(2, 6, 64, 64) > 0.1))
def tenth_drop_attention(q, k, v, keep):
    p = torch.softmax((q @ grouped(k, 3).mT / 4).masked_fill(~causal(64), -INF), -1)
    return (p * keep / 0.9) @ grouped(v, 3)


def drop_attention(q, k, v, keep, before=False, over=0.9, turn=None, tile=64, sure=None):
    keep = turn(keep) if turn else keep
    e = (q @ grouped(k, 3).mT / 4).masked_fill(~causal(64), -INF)
    e = (e - e.amax(-1, keepdim=True)).exp()
    total = (e * keep if before else e).sum(-1, keepdim=True)
    w, v = e * keep, grouped(v, 3)
    o = sum(w[..., j : j + tile] @ v[..., j : j + tile, :] for j in range(0, 64, tile))
    return o / total / over


ok(tenth_drop_attention, drop_attention, divided_at_the_end={}, keys_by_sixteen={"tile": 16})
bad(
    tenth_drop_attention,
    drop_attention,
    {
        # normalised by what is left
        "normalised after the dropout": {"before": True, "over": 1.0},
        # 1 / 0.9 missing
        "not scaled by 1 / 0.9": {"over": 1.0},
        # philox offsets by column, then row
        "the mask is transposed": {"turn": lambda m: m.mT},
        # the mask of the tail tile is that of the tile before
        "hides: the last eight rows use the mask of the eight before": {
            "turn": lambda m: torch.cat([m[..., :56, :], m[..., 48:56, :]], -2)
        },
        # 1 / (1 - p) with p a byte: 25 / 256
        "hides: the rate is 25 / 256": {"over": 1 - 25 / 256},
    },
)

# ------------------------------------------------------------------ attention of bfloat16, keys in many tiles


@tenth(lambda d: (d(1, 4, 64, 64, dtype=bf), d(1, 4, 256, 64, dtype=bf), d(1, 4, 256, 64, dtype=bf)))
def tenth_cross_bf16(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def cross(q, k, v, rows=None, **how):
    o = online(q.float(), k.float(), v.float(), **how)
    return rows(o) if rows else o


def half_sums(q, k, v):
    s = q.float() @ k.float().mT / 8
    e = (s - s.amax(-1, keepdim=True)).exp()
    total, acc = torch.zeros(1, 4, 64, 1), torch.zeros(1, 4, 64, 64)
    for j in range(0, 256, 16):
        total = narrow(total + e[..., j : j + 16].sum(-1, keepdim=True))
        acc = acc + e[..., j : j + 16] @ v.float()[..., j : j + 16, :]
    return acc / total


ok(
    tenth_cross_bf16,
    cross,
    bf,
    keys_by_64={"block": 64},
    keys_by_16_lazily={"block": 16, "lazy": 6.0},
    backwards_in_powers_of_two={"back": True, "exp2": True},
)
bad(
    tenth_cross_bf16,
    cross,
    {
        # the second warp's maximum replaces the first's sum
        "the sum is not rescaled in the third block": {"block": 64, "stale": "sum", "skip": (2,)},
        # sqrt(d) of the padded head
        "scaled for a head of 128": {"scale": 128**-0.5},
        # the sum of weights is kept in bfloat16
        "hides: the sum of weights in bfloat16": half_sums,
        # output tile is stored one row late at the end of the grid
        "hides: the last row repeats the one before": {
            "rows": lambda o: torch.cat([o[..., :-1, :], o[..., -2:-1, :]], -2)
        },
    },
    bf,
)
