# SPDX-License-Identifier: Apache-2.0
"""Set S, the fourteenth: attention with masks, caps, biases, sinks and pages."""

import math

import torch

from .blind import bf, hf, narrow
from .blind_fourteenth_base import INF, add, up, wide


def heavy(d, *shape, dtype=torch.float32, scale=1.0):
    """Activations with two channels of outliers."""
    x = d(*shape, scale=scale)
    x[..., 3] *= 6
    x[..., -2] *= 4
    return x.to(dtype)


def tril(n, m=None, shift=0):
    return torch.ones(n, m or n, dtype=torch.bool).tril(shift)


def online(q, k, v, scale, bias=None, cap=None, tile=16, stale=False, tail=True, p_kind=None, l_kind=None, sink=None):
    """Attention by tiles of keys with a running maximum; `sink` is a logit of no value."""
    m = torch.full(q.shape[:-1], -INF)
    l, o = torch.zeros(q.shape[:-1]), torch.zeros(*q.shape[:-1], v.shape[-1])
    n = k.shape[-2]
    for j in range(0, n if tail else n - n % tile, tile):
        s = q @ k[..., j : j + tile, :].transpose(-1, -2) * scale
        s = cap * torch.tanh(s / cap) if cap else s
        s = s + bias[..., j : j + tile] if bias is not None else s
        new = torch.maximum(m, s.amax(-1))
        base = new.masked_fill(new == -INF, 0)
        p, fix = torch.exp(s - base[..., None]), torch.exp(m - base)
        l = l * fix + p.sum(-1)
        l = narrow(l, l_kind) if l_kind else l
        o = (o if stale else o * fix[..., None]) + (narrow(p, p_kind) if p_kind else p) @ v[..., j : j + tile, :]
        m = new
    if sink is not None:
        l = l + torch.exp(sink - m)
    return o / l[..., None]


def mask_bias(mask):
    return torch.zeros(mask.shape).masked_fill(~mask, -INF)


def spread(k, g):
    return k.repeat_interleave(g, 1)


def gqa_softcap(q, k, v):
    k, v = spread(k, q.shape[1] // k.shape[1]), spread(v, q.shape[1] // v.shape[1])
    s = 20 * torch.tanh(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 / 20)
    return s.masked_fill(~tril(q.shape[2], k.shape[2]), -INF).softmax(-1) @ v


def gqa_kernel(q, k, v, order="each", cap=20.0, shift=0, early=False, scale=None, **how):
    g = q.shape[1] // k.shape[1]
    k, v = (spread(k, g), spread(v, g)) if order == "each" else (k.repeat(1, g, 1, 1), v.repeat(1, g, 1, 1))
    bias = mask_bias(tril(q.shape[2], k.shape[2], shift))
    scale = scale or q.shape[-1] ** -0.5
    if early:
        s = cap * torch.tanh((q @ k.transpose(-1, -2) * scale + bias) / cap)
        return s.softmax(-1) @ v
    return online(q, k, v, scale, bias, cap, **how)


add(
    "gqa_softcap",
    gqa_softcap,
    lambda d: (heavy(d, 2, 8, 52, 32), heavy(d, 2, 2, 52, 32), d(2, 2, 52, 32)),
    gqa_kernel,
    right={"tiles of 16, running maximum": {}, "tiles of 8": {"tile": 8}, "in double": wide(gqa_softcap)},
    wrong={
        "query head h reads key head h mod 2": {"order": "turn"},
        "the mask comes before the cap, so masked ones keep a logit of -20": {"early": True},
        "the cap is 30": {"cap": 30.0},
        "the sum of the last tile, which is no full one, is lost": {"tail": False},
        "a query sees the next key, too": {"shift": 1},
        "the output is not rescaled when the maximum grows": {"stale": True},
        "the scale is that of the model's width, not the head's": {"scale": 256**-0.5},
        "probabilities go to the second product in bf16": {"p_kind": bf},
    },
)


def window_sinks(q, k, v, sink, window=24):
    n, m = q.shape[-2], k.shape[-2]
    mask = tril(n, m) & ~tril(n, m, -window)
    s = up(q) @ up(k).transpose(-1, -2) * q.shape[-1] ** -0.5
    s = s.masked_fill(~mask, -INF)
    s = torch.cat([s, up(sink)[:, None, None].expand(*s.shape[:-1], 1)], -1)
    return (s.softmax(-1)[..., :-1] @ up(v)).to(q.dtype)


def window_kernel(q, k, v, sink, window=24, sinks=True, scaled=False, valued=False, **how):
    n, m = q.shape[-2], k.shape[-2]
    scale = q.shape[-1] ** -0.5
    s = sink[:, None] * (scale if scaled else 1) if sinks else None
    bias = mask_bias(tril(n, m) & ~tril(n, m, -window))
    if valued:
        v, k = torch.cat([v[..., :1, :], v], -2), torch.cat([k[..., :1, :] * 0, k], -2)
        first = s[..., None].expand(*q.shape[:-1], 1)
        return online(q, k, v, scale, torch.cat([first, bias.expand(*q.shape[:-2], n, m)], -1), **how)
    return online(q, k, v, scale, bias, sink=s, **how)


add(
    "window_sinks",
    window_sinks,
    lambda d: (
        heavy(d, 6, 72, 32, dtype=bf),
        heavy(d, 6, 72, 32, dtype=bf),
        d(6, 72, 32, dtype=bf),
        d(6, dtype=bf, scale=1.5),
    ),
    window_kernel,
    dtype=bf,
    right={"tiles of 24, the sink last": {"tile": 24}, "probabilities in bf16": {"p_kind": bf}},
    wrong={
        "the window holds one key too many": {"window": 25},
        "the window holds one key too few": {"window": 23},
        "the sink's logit is scaled like the others": {"scaled": True},
        "the sink is left out": {"sinks": False},
        "the sink reads the first value": {"valued": True},
        "hides: row sums are kept in bf16": {"l_kind": bf, "tile": 2},
    },
)


def alibi(q, k, v, slopes):
    n = q.shape[-2]
    far = (torch.arange(n)[:, None] - torch.arange(n)[None]).to(q.dtype)
    s = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 - slopes[:, None, None] * far
    return s.masked_fill(~tril(n), -INF).softmax(-1) @ v


def alibi_kernel(q, k, v, slopes, sign=1, shift=0, turn=False, before=False, slow=None, **how):
    n = q.shape[-2]
    far = (torch.arange(n)[:, None] - torch.arange(n)[None] + shift).float()
    slopes = slopes.flip(0) if turn else slopes
    slopes = narrow(slopes, slow) if slow else slopes
    scale = q.shape[-1] ** -0.5
    bias = -sign * slopes[:, None, None] * far * (scale if before else 1)
    return online(q, k, v, scale, bias + mask_bias(tril(n)), **how)


add(
    "alibi",
    alibi,
    lambda d: (d(8, 64, 16), d(8, 64, 16), d(8, 64, 16), 2.0 ** -torch.arange(1.0, 9) * 1.1),
    alibi_kernel,
    right={
        "tiles of 32": {"tile": 32},
        "counted one further: a row's constant more": {"shift": 1},
    },
    wrong={
        "the bias is added inside the scale": {"before": True},
        "slopes belong to the heads from the last to the first": {"turn": True},
        "the bias favours what is far": {"sign": -1},
        "slopes are rounded to bf16": {"slow": bf},
    },
)


def documents(q, k, v, doc):
    n = q.shape[-2]
    mask = (doc[:, None] == doc[None]) & tril(n)
    s = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    return s.masked_fill(~mask, -INF).softmax(-1) @ v


def documents_kernel(q, k, v, doc, causal=True, less=False, last=False, blocks=None, **how):
    n = q.shape[-2]
    mask = (doc[:, None] >= doc[None]) if less else (doc[:, None] == doc[None])
    mask = mask & tril(n) if causal else mask
    if last:  # ids read one place too early
        doc = doc.roll(1)
        mask = (doc[:, None] == doc[None]) & tril(n) | torch.eye(n).bool()
    if blocks:  # blocks of the mask which are full by their corner
        full = mask[::blocks, ::blocks].repeat_interleave(blocks, 0).repeat_interleave(blocks, 1)[:n, :n]
        mask = (mask & full) | torch.eye(n).bool()
    return online(q, k, v, q.shape[-1] ** -0.5, mask_bias(mask), **how)


add(
    "documents",
    documents,
    lambda d: (
        heavy(d, 4, 96, 16),
        heavy(d, 4, 96, 16),
        d(4, 96, 16),
        torch.tensor([0] * 21 + [1] * 40 + [2] * 3 + [3] * 32),
    ),
    documents_kernel,
    right={"tiles of 16": {}, "tiles of 40": {"tile": 40}},
    wrong={
        "documents before one's own are seen": {"less": True},
        "no causal mask inside a document": {"causal": False},
        "documents begin one place too late": {"last": True},
        "a block of the mask is taken empty if its first corner is": {"blocks": 16},
    },
)


def prefix_lm(q, k, v):
    n, prefix = q.shape[-2], 19
    mask = tril(n) | (torch.arange(n) < prefix)[None]
    s = up(q) @ up(k).transpose(-1, -2) * q.shape[-1] ** -0.5
    return (s.masked_fill(~mask, -INF).softmax(-1) @ up(v)).to(q.dtype)


def prefix_kernel(q, k, v, prefix=19, both=False, s_kind=None, fill=-INF, **how):
    n = q.shape[-2]
    near = torch.arange(n) < prefix
    mask = tril(n) | (near[None] & near[:, None] if both else near[None])
    if s_kind:
        s = narrow(q @ k.transpose(-1, -2), s_kind) * q.shape[-1] ** -0.5
        return s.masked_fill(~mask, -INF).softmax(-1) @ v
    bias = torch.zeros(n, n).masked_fill(~mask, fill)
    return online(q, k, v, q.shape[-1] ** -0.5, bias, **how)


add(
    "prefix_lm",
    prefix_lm,
    lambda d: (d(3, 60, 32, dtype=hf, scale=1.5), heavy(d, 3, 60, 32, dtype=hf), d(3, 60, 32, dtype=hf)),
    prefix_kernel,
    dtype=hf,
    right={"tiles of 10": {"tile": 10}, "only queries of the prefix see it whole; the rest by order": {"both": True}},
    wrong={
        "the prefix is one shorter": {"prefix": 18},
        "scores are kept in bf16": {"s_kind": bf},
        "masked scores get -6 instead of minus infinity": {"fill": -6.0},
        "the tile beyond a multiple of 16 is lost": {"tail": False},
    },
)


def mla_decode(qn, qr, c, kr, wk, wv):
    k = torch.einsum("tc,hcd->htd", c, wk)
    s = torch.einsum("hd,htd->ht", qn, k) + torch.einsum("hr,tr->ht", qr, kr)
    p = (s * (qn.shape[-1] + qr.shape[-1]) ** -0.5).softmax(-1)
    return torch.einsum("ht,htd->hd", p, torch.einsum("tc,hcd->htd", c, wv))


def mla_kernel(qn, qr, c, kr, wk, wv, width=None, rope=True, head=None, latent=None, lost=0):
    q = torch.einsum("hd,hcd->hc", qn, wk)
    q = narrow(q, latent) if latent else q
    s = q @ c.T + (qr @ kr.T if rope else 0)
    p = (s * (width or qn.shape[-1] + qr.shape[-1]) ** -0.5).softmax(-1)
    p = torch.cat([p[:, : p.shape[1] - lost], p[:, p.shape[1] - lost :] * 0], 1) if lost else p
    return torch.einsum("hc,hcd->hd", p @ c, wv if head is None else wv.roll(head, 0))


add(
    "mla_decode",
    mla_decode,
    lambda d: (d(8, 32), d(8, 16), heavy(d, 200, 64, scale=0.5), d(200, 16), d(8, 64, 32) / 8, d(8, 64, 32) / 8),
    mla_kernel,
    right={"the key's projection goes to the query": {}, "in double": wide(mla_decode)},
    wrong={
        "the scale knows the part without rotation only": {"width": 32},
        "the scale is that of the latent width": {"width": 64 + 16},
        "the rotated part of the scores is left out": {"rope": False},
        "values are projected by the next head's weights": {"head": 1},
        "the query in the latent space is kept in bf16": {"latent": bf},
        "the last three tokens have no weight in the output": {"lost": 3},
    },
)


def paged(q, kp, vp, table, lens):
    k, v = kp[table].flatten(1, 2), vp[table].flatten(1, 2)
    s = torch.einsum("bd,btd->bt", q, k) * q.shape[-1] ** -0.5
    s = s.masked_fill(torch.arange(k.shape[1])[None] >= lens[:, None], -INF)
    return torch.einsum("bt,btd->bd", s.softmax(-1), v)


def paged_kernel(q, kp, vp, table, lens, extra=0, whole=False, previous=False, flat=False, parts=1, weigh=True):
    out = torch.zeros_like(q)
    size = kp.shape[1]
    for b in range(q.shape[0]):
        n = int(lens[b]) + extra
        n = n // size * size if whole else n
        rows = table[max(b - 1, 0)] if previous else table[b]
        at = torch.arange(n)
        pages, place = (rows[at // size], at % size) if not flat else (rows[at % len(rows)], at // len(rows) % size)
        k, v = kp[pages, place], vp[pages, place]
        o, ms, ls = [], [], []
        for part in torch.arange(n).chunk(parts):
            s = k[part] @ q[b] * q.shape[-1] ** -0.5
            m = s.max()
            p = torch.exp(s - m)
            o.append(p @ v[part]), ms.append(m), ls.append(p.sum())
        top = torch.stack(ms).max()
        w = [torch.exp(m - top) if weigh else torch.tensor(1.0) for m in ms]
        out[b] = sum(x * y for x, y in zip(o, w)) / sum(x * y for x, y in zip(ls, w))
    return out


add(
    "paged",
    paged,
    lambda d: (
        d(5, 32, scale=2.0),
        d(40, 8, 32),
        d(40, 8, 32),
        torch.randperm(40, generator=d.g).reshape(5, 8),
        torch.tensor([64, 13, 41, 24, 57]),
    ),
    paged_kernel,
    right={"each sequence by itself": {}, "three parts of a sequence, put together": {"parts": 3}},
    wrong={
        "the last token is not read": {"extra": -1},
        "the page that is not full is skipped": {"whole": True},
        "a sequence reads the row of pages before its own": {"previous": True},
        "pages and places are exchanged": {"flat": True},
        "parts are put together without their maxima": {"parts": 3, "weigh": False},
    },
)


def merge(o1, l1, o2, l2):
    l = torch.logaddexp(l1, l2)
    return o1 * torch.exp(l1 - l)[..., None] + o2 * torch.exp(l2 - l)[..., None], l


def merge_kernel(o1, l1, o2, l2, two=False, half=False, swap=False, base=math.e):
    m = torch.maximum(l1, l2)
    a, b = torch.exp(l1 - m), torch.exp(l2 - m)
    if half:
        return (o1 + o2) / 2, m + torch.log(a + b)
    if swap:
        a, b = b, a
    s = a + b
    l = m + (torch.log2(s) if two else torch.log(s))
    return (o1 * a[..., None] + o2 * b[..., None]) / s[..., None], l


def merge_sigmoid(o1, l1, o2, l2):
    w = torch.sigmoid(l2 - l1)
    return torch.lerp(o1, o2, w[..., None]), torch.maximum(l1, l2) + torch.log1p(torch.exp(-(l1 - l2).abs()))


add(
    "merge",
    merge,
    lambda d: (d(300, 16), d(300, scale=3, shift=8), d(300, 16), d(300, scale=3, shift=8)),
    merge_kernel,
    right={"by the maximum": {}, "by a sigmoid of the difference": merge_sigmoid},
    wrong={
        "the two are averaged": {"half": True},
        "weights are exchanged": {"swap": True},
        "the logarithm is of base two": {"two": True},
    },
)


def qk_norm(q, k, v, wq, wk):
    n = lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w
    s = n(q, wq) @ n(k, wk).transpose(-1, -2) * q.shape[-1] ** -0.5
    return s.masked_fill(~tril(q.shape[-2]), -INF).softmax(-1) @ v


def qk_kernel(q, k, v, wq, wk, total=False, same=False, across=False, kind=None, eps=1e-6, bare=False, **how):
    def n(x, w):
        square = x.pow(2)
        mean = square.sum(-1, keepdim=True) if total else square.mean((0, -1) if across else -1, keepdim=True)
        x = x / torch.sqrt(mean + eps) * w
        return narrow(x, kind) if kind else x

    q, k = n(q, wq), k if bare else n(k, wq if same else wk)
    return online(q, k, v, q.shape[-1] ** -0.5, mask_bias(tril(q.shape[-2])), **how)


add(
    "qk_norm",
    qk_norm,
    lambda d: (
        heavy(d, 4, 60, 32, scale=3.0),
        heavy(d, 4, 60, 32, scale=0.01),
        d(4, 60, 32),
        d(32, scale=0.2, shift=1.5),
        d(32, scale=0.2, shift=1.5),
    ),
    qk_kernel,
    right={"a root and a quotient, tiles of 20": {"tile": 20}, "in double": wide(qk_norm)},
    wrong={
        "keys are normed by the weight of the queries": {"same": True},
        "the norm is over heads and channels": {"across": True},
        "epsilon is 1e-5": {"eps": 1e-5},
        "keys are not normed": {"bare": True},
        "normed queries and keys are kept in bf16": {"kind": bf},
    },
)


def tree_mask(q, k, v, ancestors):
    n = ancestors.shape[0]
    past = k.shape[-2] - n
    s = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    mask = torch.cat([torch.ones(n, past, dtype=torch.bool), ancestors], 1)
    return s.masked_fill(~mask, -INF).softmax(-1) @ v


def tree_kernel(q, k, v, ancestors, turned=False, plain=False, selfless=False, **how):
    n = ancestors.shape[0]
    tree = tril(n) if plain else ancestors.T | torch.eye(n).bool() if turned else ancestors
    tree = tree & ~torch.eye(n).bool() if selfless else tree
    mask = torch.cat([torch.ones(n, k.shape[-2] - n, dtype=torch.bool), tree], 1)
    return online(q, k, v, q.shape[-1] ** -0.5, mask_bias(mask), **how)


def tree_of(parents):
    n = len(parents)
    seen = torch.eye(n).bool()
    for i, p in enumerate(parents):
        if p >= 0:
            seen[i] |= seen[p]
    return seen


add(
    "tree_mask",
    tree_mask,
    lambda d: (d(4, 10, 16), d(4, 45, 16), d(4, 45, 16), tree_of([-1, 0, 0, 1, 1, 2, 3, 3, 5, 8])),
    tree_kernel,
    right={"tiles of 16": {}},
    wrong={
        "the draft's mask is transposed": {"turned": True},
        "the draft's mask is that of a chain": {"plain": True},
        "a draft token does not see itself": {"selfless": True},
    },
)
