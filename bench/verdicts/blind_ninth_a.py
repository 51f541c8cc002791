# SPDX-License-Identifier: Apache-2.0
"""Set L, by a hand that had not read the rule: kernels of 2025 and 2026 with the mistakes of those who write
them. Words that begin with "hides" name a mistake meant to look excusable. This file: attention; _b to _k: the rest."""

import math

import torch

from .blind import bf, family, hf, honest, mistake, narrow

INF = float("inf")


def ninth(args):
    return family(args, sets="L")


def stored(value, into):
    if isinstance(value, torch.Tensor):
        return value.to(into) if into and value.is_floating_point() else value
    return tuple(stored(v, into) for v in value)


def ok(fn, kernel, into=torch.float32, **cases):
    """Right kernels of one family: words (with _ for spaces) and the keywords, or another kernel."""
    for words, case in cases.items():
        honest(fn, words.replace("_", " "), storing(kernel, case, into))


def bad(fn, kernel, cases, into=torch.float32):
    """Wrong kernels: {what is wrong: the keywords, or another kernel}."""
    for words, case in cases.items():
        mistake(fn, words, storing(kernel, case, into))


def storing(kernel, case, into):
    if callable(case):
        return lambda *a: stored(case(*a), into)
    return lambda *a: stored(kernel(*a, **case), into)


def grads(fn, *args, cotangent=None):
    with torch.enable_grad():
        leaves = [a.detach().requires_grad_() for a in args]
        return torch.autograd.grad(fn(*leaves), leaves, cotangent)


def attend(q, k, v, mask=None, scale=None, mod=None):
    s = q @ k.mT * (scale or q.shape[-1] ** -0.5)
    s = mod(s) if mod else s
    s = s if mask is None else s.masked_fill(~mask, -INF)
    return torch.softmax(s, -1) @ v


def online(q, k, v, mask=None, scale=None, mod=None, block=32, back=False, lazy=0.0, skip=(), stale=None, exp2=False):
    """Blocks of keys with a running maximum. `lazy`: the old maximum is kept while it grows by less."""
    scale = scale or q.shape[-1] ** -0.5
    top = torch.full((*q.shape[:-1], 1), -INF)
    total, acc = torch.zeros_like(top), torch.zeros(*q.shape[:-1], v.shape[-1])
    starts = list(range(0, k.shape[-2], block))
    for n, j in enumerate(reversed(starts) if back else starts):
        at = slice(j, j + block)
        s = q @ k[..., at, :].mT * scale
        s = mod(s) if mod else s
        s = s if mask is None else s.masked_fill(~mask[..., at], -INF)
        new = torch.maximum(top, s.amax(-1, keepdim=True))
        new = torch.where((new - top <= lazy) & (top > -INF), top, new)
        safe = torch.where(new == -INF, 0.0, new)
        e = torch.exp2 if exp2 else torch.exp
        unit = 1 / math.log(2) if exp2 else 1.0
        p, fall = e((s - safe) * unit), e((top - safe) * unit)
        total = total * (1.0 if stale == "sum" and n in skip else fall) + p.sum(-1, keepdim=True)
        acc = acc * (1.0 if stale == "acc" and n in skip else fall) + p @ v[..., at, :]
        top = new
    return acc / total


# ------------------------------------------------------------------ flex: windows with sinks, grouped heads


def seen(n, window=48, sinks=4, late=0):
    i, j = torch.arange(n)[:, None], torch.arange(n)[None]
    return (j <= i - late) & ((i - j < window) | (j < sinks))


def grouped(x, by):
    return x.repeat_interleave(by, 1)


@ninth(lambda d: (d(1, 8, 160, 32), d(1, 2, 160, 32), d(1, 2, 160, 32)))
def ninth_flex_window(q, k, v):
    return attend(q, grouped(k, 4), grouped(v, 4), seen(160))


def flex_window(q, k, v, window=48, sinks=4, heads=grouped, **how):
    return online(q, heads(k, 4), heads(v, 4), seen(160, window, sinks), **how)


ok(
    ninth_flex_window,
    flex_window,
    online_from_the_last_block={"back": True},
    lazy_rescaling_by_eight={"lazy": 8.0, "block": 16},
    powers_of_two={"exp2": True, "block": 40},
)
bad(
    ninth_flex_window,
    flex_window,
    {
        # i - j <= window
        "the window is one too wide": {"window": 49},
        # sinks counted from 1
        "only three sinks are seen": {"sinks": 3},
        # k.repeat instead of repeat_interleave
        "query heads take key heads in turn": {"heads": lambda x, n: x.repeat(1, n, 1, 1)},
        # the accumulator keeps the scale of the old maximum once
        "the accumulator is not rescaled in the third block": {"skip": (2,), "stale": "acc"},
        # the running sum keeps the scale of the old maximum in the last block
        "hides: the sum is not rescaled in the last block": {"skip": (4,), "stale": "sum"},
    },
)


# ------------------------------------------------------------------ flex: soft cap, bfloat16


def causal(n, m=None):
    m = m or n
    return torch.arange(m)[None] <= torch.arange(n)[:, None] + (m - n)


def capped(cap):
    return lambda s: cap * torch.tanh(s / cap)


@ninth(lambda d: (d(2, 4, 96, 64, dtype=bf, scale=3), d(2, 4, 96, 64, dtype=bf, scale=3), d(2, 4, 96, 64, dtype=bf)))
def ninth_softcap(q, k, v):
    return attend(q.float(), k.float(), v.float(), causal(96), mod=capped(10.0)).to(bf)


def softcap(q, k, v, cap=10.0, mod=None, **how):
    return online(q.float(), k.float(), v.float(), causal(96), mod=mod or capped(cap), **how)


def tanh_exp(s):
    return 10 * (1 - 2 / ((s / 5).exp() + 1))


def masked_then_capped(q, k, v):
    s = (q.float() @ k.float().mT / 8).masked_fill(~causal(96), -INF)
    return torch.softmax(capped(10.0)(s), -1) @ v.float()


ok(ninth_softcap, softcap, bf, tanh_from_exp={"mod": tanh_exp}, blocks_of_24_backwards={"block": 24, "back": True})
bad(
    ninth_softcap,
    softcap,
    {
        # tanh(-inf) is -1: the masked keys weigh exp(-10), not 0
        "hides: capped after masking": masked_then_capped,
        # cap of another model
        "the cap is 50": {"cap": 50.0},
        # the cap divides but does not multiply back
        "not multiplied back": {"mod": lambda s: torch.tanh(s / 10)},
        # scores before the cap are stored in bfloat16
        "hides: scores stored in bfloat16 before the cap": {"mod": lambda s: capped(10.0)(narrow(s))},
        # clamp in the place of tanh
        "hides: a clamp for the tanh": {"mod": lambda s: s.clamp(-10, 10)},
    },
    bf,
)


# ------------------------------------------------------------------ a mask of minus 1e4 beside far ALiBi


@ninth(lambda d: (d(1, 6, 128, 32), d(1, 6, 128, 32), d(1, 6, 128, 32)))
def ninth_alibi(q, k, v):
    return attend(q, k, v, causal(128), mod=lambda s: s + alibi())


def alibi(base=8.0, shift=0, n=128, heads=6):
    i, j = torch.arange(n)[:, None], torch.arange(n)[None]
    slopes = torch.tensor([2.0 ** (-base * (h + 1) / heads) for h in range(heads)])
    return -(i - j + shift).abs() * slopes[:, None, None]


def with_alibi(q, k, v, bias=None, mask=None, **how):
    b = alibi() if bias is None else bias
    s = q @ k.mT * 32**-0.5 + b
    s = s.masked_fill(~causal(128), -INF) if mask is None else s + mask
    e = (s - s.amax(-1, keepdim=True)).exp()
    return (e @ v) / e.sum(-1, keepdim=True)


ok(
    ninth_alibi,
    with_alibi,
    divided_after_the_product={},
    the_row_constant_left_out={
        "bias": torch.arange(128) * torch.tensor([2.0 ** (-8 * (h + 1) / 6) for h in range(6)])[:, None, None]
    },
)
bad(
    ninth_alibi,
    with_alibi,
    {
        # slopes 2^(-8 h / heads) from h = 0
        "slopes begin at one": {"bias": alibi() * 2 ** (8 / 6)},
        # distances in bfloat16: beyond 256 not whole, slopes rounded
        "hides: the bias in bfloat16": {"bias": narrow(alibi())},
        # an additive mask of -10 (an overzealous finite mask)
        "hides: masked by minus ten": {"mask": torch.where(causal(128), 0.0, -10.0)},
        # softmax needs no causal tail: the last row sees one key less
        "hides: the last row does not see itself": {
            "mask": torch.where(causal(128) & ~((torch.eye(128) > 0) & (torch.arange(128) == 127)), 0.0, -INF)
        },
    },
)


# ------------------------------------------------------------------ latent attention, weights absorbed


@ninth(
    lambda d: (d(24, 4, 48), d(24, 4, 16), d(80, 64), d(80, 16), d(4, 48, 64, scale=0.125), d(4, 64, 48, scale=0.125))
)
def ninth_latent(q, qr, c, kr, wk, wv):
    k = torch.einsum("sc,hdc->shd", c, wk)
    v = torch.einsum("sc,hcd->shd", c, wv)
    s = torch.einsum("thd,shd->hts", q, k) + torch.einsum("thd,sd->hts", qr, kr)
    p = torch.softmax((s / 8).masked_fill(~causal(24, 80), -INF), -1)
    return torch.einsum("hts,shd->thd", p, v)


def absorbed(q, qr, c, kr, wk, wv, scale=1 / 8, rope_heads=4, shift=56, split=1, even=False):
    ql = torch.einsum("thd,hdc->htc", q, wk)
    s = ql @ c.T
    s[:rope_heads] += (qr.transpose(0, 1) @ kr.T)[:rope_heads]
    see = torch.arange(80)[None] <= torch.arange(24)[:, None] + shift
    s = (s * scale).masked_fill(~see, -INF)
    outs, lses = [], []
    for part, cs in zip(s.chunk(split, -1), c.chunk(split, 0), strict=True):
        lses.append(torch.logsumexp(part, -1, keepdim=True))
        outs.append((part - torch.where(lses[-1] == -INF, 0.0, lses[-1])).exp() @ cs)
    w = torch.softmax(torch.stack(lses), 0)
    o = sum(a * b for a, b in zip(w, outs, strict=True))
    return (o @ wv).transpose(0, 1)


ok(ninth_latent, absorbed, absorbed={}, absorbed_and_split_by_keys={"split": 4})
bad(
    ninth_latent,
    absorbed,
    {
        # 1 / sqrt(48), without the rope part's 16
        "the scale leaves out the rope part": {"scale": 48**-0.5},
        # the shared rope key is not broadcast to the last head
        "the last head has no rope part": {"rope_heads": 3},
        # the causal offset is that of an equal length
        "causal from the top left": {"shift": 0},
        # one too many keys for each row
        "hides: each row sees one key more": {"shift": 57},
        # latents kept in bfloat16 although float32 was promised
        "hides: latents in bfloat16": lambda q, qr, c, kr, wk, wv: absorbed(q, qr, narrow(c), kr, wk, wv),
    },
)


# ------------------------------------------------------------------ paged decoding


def paged_args(d):
    table = torch.randperm(40, generator=d.g)[:36].view(6, 6)
    return d(6, 8, 32), d(40, 16, 2, 32), d(40, 16, 2, 32), table, torch.tensor([96, 81, 64, 33, 17, 1])


@ninth(paged_args)
def ninth_paged(q, kc, vc, table, lens):
    return paged(q, kc, vc, table, lens)


def paged(q, kc, vc, table, lens, more=0, full_only=False, lost=None, pages=None, reverse=False, split=0, means=False):
    out = []
    for b, n in enumerate(lens.tolist()):
        n = n + more if n + more <= 96 else n
        n = n // 16 * 16 if full_only and n >= 16 else n
        ids = table[b, : -(-n // 16)]
        ids = ids if pages is None else pages(ids)
        k, v = kc[ids].flatten(0, 1)[:n], vc[ids].flatten(0, 1)[:n]
        if lost and n % 16 == 0:
            k, v = k[:-1], v[:-1]
        if reverse:
            k, v = k.flip(0), v.flip(0)
        kk, vv = k.repeat_interleave(4, 1), v.repeat_interleave(4, 1)
        s = torch.einsum("hd,nhd->hn", q[b], kk) * 32**-0.5
        parts = s.split(split or 96, -1)
        lse = torch.stack([torch.logsumexp(p, -1) for p in parts])
        w = torch.softmax(lse, 0) if not means else torch.full_like(lse, 1 / len(parts))
        o = [
            torch.einsum("hn,nhd->hd", torch.softmax(p, -1), x)
            for p, x in zip(parts, vv.split(split or 96), strict=True)
        ]
        out.append((w[..., None] * torch.stack(o)).sum(0))
    return torch.stack(out)


ok(ninth_paged, paged, keys_backwards={"reverse": True}, split_by_32_keys={"split": 32}, split_by_7_keys={"split": 7})
bad(
    ninth_paged,
    paged,
    {
        # the slot after the last token is read
        "one slot too many is read": {"more": 1},
        # only full pages are read
        "the last page is left out when it is not full": {"full_only": True},
        # splits are averaged as if each held the same weight
        "splits are averaged evenly": {"split": 32, "means": True},
        # the newest token is lost when it fills its page
        "hides: the last token of a full page is lost": {"lost": True},
        # the table of the row before: pages in another order give the same set but for the last
        "hides: the second page read is the first": {
            "pages": lambda i: torch.where(torch.arange(len(i)) == 1, i[0], i)
        },
    },
)


# ------------------------------------------------------------------ output and logsumexp at large logits


@ninth(lambda d: (d(4, 64, 16, scale=6), d(4, 96, 16, scale=6, shift=2.0), d(4, 96, 16)))
def ninth_lse(q, k, v):
    s = q @ k.mT / 4
    return torch.softmax(s, -1) @ v, torch.logsumexp(s, -1)


def with_lse(q, k, v, base=1.0, kept=None, log_of=None, block=96, first=False):
    top = torch.full((4, 64, 1), -INF)
    total, acc = torch.zeros(4, 64, 1), torch.zeros(4, 64, 16)
    for j in range(0, 96, block):
        s = q @ k[:, j : j + block].mT / 4
        new = torch.maximum(top, s[..., :1] if first else s.amax(-1, keepdim=True))
        fall, p = (top - new).exp(), (s - new).exp()
        total, acc, top = total * fall + p.sum(-1, keepdim=True), acc * fall + p @ v[:, j : j + block], new
    m = top if kept is None else narrow(top, kept)
    return acc / total, ((m + total.log()) * base)[..., 0]


ok(ninth_lse, with_lse, one_block={}, blocks_of_32={"block": 32})
bad(
    ninth_lse,
    with_lse,
    {
        # exp2 kernels forget the ln 2 of what they return
        "the logsumexp is in base two": {"base": 1 / math.log(2)},
        # the maximum is kept in bfloat16, and only for the logsumexp
        "hides: the maximum is added in bfloat16": {"kept": bf},
        # the same in half precision
        "hides: the maximum is added in float16": {"kept": hf},
        # the first score stands for the maximum: overflows in some rows
        "hides: the first score is taken for the maximum": {"first": True},
    },
)


# ------------------------------------------------------------------ gradients of attention


@ninth(lambda d: (d(1, 4, 80, 32), d(1, 2, 80, 32), d(1, 2, 80, 32), d(1, 4, 80, 32)))
def ninth_attention_grad(q, k, v, do):
    return grads(lambda q, k, v: attend(q, grouped(k, 2), grouped(v, 2), causal(80)), q, k, v, cotangent=do)


def attention_grad(q, k, v, do, delta=None, scaled=True, fold=None, mask=None, tiles=1, kind=None):
    k2, v2 = grouped(k, 2), grouped(v, 2)
    s = (q @ k2.mT * 32**-0.5).masked_fill(~causal(80), -INF)
    lse = torch.logsumexp(s, -1, keepdim=True)
    p = (s - lse).exp() if mask is None else (q @ k2.mT * 32**-0.5 - lse).exp() * mask
    o = (s - lse).exp() @ v2
    dd = (do * (o if kind is None else narrow(o, kind))).sum(-1, keepdim=True) if delta is None else delta
    dp = do @ v2.mT
    ds = p * (dp - dd) * 32**-0.5
    dq = sum(a @ b for a, b in zip(ds.chunk(tiles, -1), k2.chunk(tiles, -2), strict=True))
    dk = ds.mT @ q * (1.0 if scaled else 32**0.5)
    dv = p.mT @ do
    fold = fold or (lambda x: x.view(1, 2, 2, 80, 32).sum(2))
    return dq, fold(dk), fold(dv)


ok(ninth_attention_grad, attention_grad, delta_from_the_output={}, keys_in_five_tiles={"tiles": 5})
bad(
    ninth_attention_grad,
    attention_grad,
    {
        # the row term of softmax's gradient is missing
        "delta is left out": {"delta": 0.0},
        # dk lacks the scale
        "dk is not scaled": {"scaled": False},
        # a race: one head of a group overwrites the other
        "the last head of a group overwrites the first in dk and dv": {
            "fold": lambda x: x.view(1, 2, 2, 80, 32)[:, :, 1]
        },
        # delta from the output rounded to bfloat16 where float32 was promised
        "hides: delta from a bfloat16 output": {"kind": bf},
        # recomputed scores see one key too many
        "hides: the backward's mask lets one more key in": {"mask": torch.ones(80, 80).tril(1)},
    },
)
