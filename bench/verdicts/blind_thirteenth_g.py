# SPDX-License-Identifier: Apache-2.0
"""Set R, the thirteenth: attention and positions."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, narrow
from .blind_thirteenth_a import A, add, old, wide

inf = math.inf


def attend(
    q,
    k,
    v,
    scale=None,
    mask=None,
    step=16,
    rescale=True,
    cap=None,
    sink=None,
    p=None,
    skip=(),
    order=None,
    acc=None,
    add_=None,
):
    """Online softmax by blocks of keys; `mask` says what is seen, `skip` which blocks are lost."""
    q, k, v = q.float(), k.float(), v.float()
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    m = torch.full((*q.shape[:-1], 1), -inf)
    s, o = torch.zeros_like(m), torch.zeros(*q.shape[:-1], v.shape[-1])
    if sink is not None:
        m = sink.expand_as(m).clone()
        s = torch.ones_like(m)
    starts = list(range(0, k.shape[-2], step))
    for i in reversed(starts) if order else starts:
        if i // step in skip:
            continue
        z = q @ k[..., i : i + step, :].mT * scale
        z = cap * torch.tanh(z / cap) if cap else z
        z = z + add_[..., i : i + step] if add_ is not None else z
        z = torch.where(mask[..., i : i + step], z, -inf) if mask is not None else z
        new = torch.maximum(m, z.amax(-1, keepdim=True))
        safe = torch.where(new == -inf, 0.0, new)
        e = torch.exp(z - safe)
        e = narrow(e, p) if p else e
        fade = torch.exp(m - safe) if rescale else 1.0
        s = s * fade + e.sum(-1, keepdim=True)
        o = o * (fade if rescale is True else 1.0) + e @ v[..., i : i + step, :]
        o = narrow(o, acc) if acc else o
        m = new
    return o / s


def causal(n, m=None, window=None, shift=0):
    m = m or n
    d = torch.arange(n)[:, None] + m - n + shift - torch.arange(m)
    return (d >= 0) & (d < window) if window else d >= 0


# ------------------------------------------------------------------ whole attention

add(
    "sdpa",
    A.scaled_dot_product_attention.default,
    lambda d: (d(2, 3, 20, 32, scale=2), d(2, 3, 50, 32), d(2, 3, 50, 24)),
    attend,
    right={
        "blocks of 16": {},
        "backwards": {"order": True},
        "two passes": lambda q, k, v: torch.softmax(q @ k.mT / 32**0.5, -1) @ v,
    },
    wrong={
        "what was summed is not rescaled": {"rescale": False},
        "the output is not rescaled": {"rescale": "sum alone"},
        "the scale is by the value's width": {"scale": 24**-0.5},
        "hides: the last 2 keys are lost": {"skip": (3,)},
        "hides: weights are rounded to bfloat16": {"p": bf},
        "hides: the output is kept in half": {"acc": hf},
    },
)

add(
    "sdpa_causal",
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    lambda d: (d(1, 4, 40, 16, dtype=bf), d(1, 4, 40, 16, dtype=bf), d(1, 4, 40, 16, dtype=bf)),
    lambda q, k, v, **kw: attend(q, k, v, **{"mask": causal(40), **kw}),
    right={"blocks": {}, "blocks of 8 backwards": {"step": 8, "order": True}},
    wrong={
        "a token does not see itself": lambda q, k, v: attend(q, k, v, mask=causal(40, shift=-1)).nan_to_num(0.0),
        "a token sees the next": {"mask": causal(40, shift=1)},
        "hides: within the last block all is seen": {
            "mask": causal(40) | (torch.arange(40)[:, None] > 35) & (torch.arange(40) > 35)
        },
        "hides: the window is 32": {"mask": causal(40, window=32)},
    },
    dtype=bf,
)


def gqa(q, k, v, mask):
    k, v = k.repeat_interleave(4, 1), v.repeat_interleave(4, 1)
    s = (q @ k.mT) * q.shape[-1] ** -0.5
    s = s.masked_fill(~mask, -inf)
    return torch.softmax(s, -1) @ v


def gqa_kernel(q, k, v, mask, spread=lambda t: t.repeat_interleave(4, 1), see=lambda m: m, **kw):
    return attend(q, spread(k), spread(v), mask=see(mask), **kw)


add(
    "gqa_masked",
    gqa,
    lambda d: (
        d(2, 8, 12, 16, scale=2),
        d(2, 2, 33, 16),
        d(2, 2, 33, 16),
        (d.rand(2, 1, 12, 33) < 0.6) | (torch.arange(33) == 0),
    ),
    gqa_kernel,
    right={"blocks": {}, "in double": lambda q, k, v, m: gqa(q.double(), k.double(), v.double(), m).float()},
    wrong={
        "heads of the keys interleave": {"spread": lambda t: t.repeat(1, 4, 1, 1)},
        "the mask is the other way": {"see": lambda m: ~m},
        "the first sample's mask for all": {"see": lambda m: m[:1]},
        "hides: the last key is always seen": {"see": lambda m: m | (torch.arange(33) == 32)},
        "hides: hidden keys have -10, not minus infinity": lambda q, k, v, m: attend(
            q, k.repeat_interleave(4, 1), v.repeat_interleave(4, 1), add_=torch.where(m, 0.0, -10.0)
        ),
    },
)


def window_sinks(q, k, v, sinks):
    n = q.shape[-2]
    s = (q @ k.mT) / q.shape[-1] ** 0.5
    d = torch.arange(n)[:, None] - torch.arange(n)
    s = s.masked_fill((d < 0) | (d >= 12), -inf)
    s = torch.cat([s, sinks[:, None, None].expand(-1, n, 1).to(s.dtype)], -1)
    return torch.softmax(s, -1)[..., :-1] @ v


add(
    "window_sinks",
    window_sinks,
    lambda d: (d(4, 36, 16), d(4, 36, 16), d(4, 36, 16), d(4, shift=1.0)),
    lambda q, k, v, s, w=12, use=True, **kw: attend(
        q, k, v, mask=causal(36, window=w), sink=s[:, None, None] if use else None, **kw
    ),
    right={"the sink begins": {}, "blocks of 4": {"step": 4}},
    wrong={
        "no sinks": {"use": False},
        "hides: the window has one more": {"w": 13},
        "hides: the window has one less": {"w": 11},
        "the sink is of the next head": lambda q, k, v, s: attend(
            q, k, v, mask=causal(36, window=12), sink=s.roll(1)[:, None, None]
        ),
        "hides: the sink is scaled as a score": lambda q, k, v, s: attend(
            q, k, v, mask=causal(36, window=12), sink=s[:, None, None] / 4
        ),
    },
)


def mla(q, qr, c, kr, wk, wv):
    k = torch.einsum("bnc,hcd->bhnd", c, wk)
    v = torch.einsum("bnc,hcd->bhnd", c, wv)
    s = (q @ k.mT + qr @ kr[:, None].mT) / (q.shape[-1] + qr.shape[-1]) ** 0.5
    return torch.softmax(s, -1) @ v


def mla_kernel(q, qr, c, kr, wk, wv, scale=None, rope=1.0, head=0, keep=None, p=None):
    qa = torch.einsum("bhnd,hcd->bhnc", q, wk.roll(head, 0))
    full, key = torch.cat([qa, rope * qr], -1), torch.cat([c, kr], -1)[:, None]
    out = attend(full, key[:, :, :keep], c[:, None, :keep], scale=scale or 24**-0.5, p=p)
    return torch.einsum("bhnc,hcd->bhnd", out, wv)


add(
    "mla",
    mla,
    lambda d: (
        d(2, 4, 6, 16),
        d(2, 4, 6, 8),
        d(2, 30, 12),
        d(2, 30, 8),
        d(4, 12, 16, scale=0.3),
        d(4, 12, 16, scale=0.3),
    ),
    mla_kernel,
    right={"absorbed": {}, "in double": wide(mla)},
    wrong={
        "the rotary part is left out": {"rope": 0.0},
        "the scale is by the latent's width": {"scale": 20**-0.5},
        "the key's heads are one late": {"head": 1},
        "hides: the last two tokens are left out": {"keep": 28},
        "hides: the scale is by the plain part": {"scale": 16**-0.5},
    },
)


def paged(q, kc, vc, table, lens):
    out = []
    for b in range(len(q)):
        k = kc[table[b]].flatten(0, 1)[: int(lens[b])]
        v = vc[table[b]].flatten(0, 1)[: int(lens[b])]
        s = torch.einsum("hd,nhd->hn", q[b], k) / q.shape[-1] ** 0.5
        out.append(torch.einsum("hn,nhd->hd", torch.softmax(s, -1), v))
    return torch.stack(out)


def paged_kernel(q, kc, vc, table, lens, plus=0, same=False, up=False, late=0, acc=None, lose=False):
    out = []
    for b in range(len(q)):
        t = table[0 if same else b].roll(late)
        n = int(lens[b]) + plus
        n = -(-n // 8) * 8 if up else n - 1 if lose and n % 8 == 1 else n
        k, v = kc[t].flatten(0, 1)[:n].transpose(0, 1), vc[t].flatten(0, 1)[:n].transpose(0, 1)
        out.append(attend(q[b][:, None], k, v, step=8, acc=acc)[:, 0])
    return torch.stack(out)


add(
    "paged_decode",
    paged,
    lambda d: (
        d(3, 4, 16),
        d(20, 8, 4, 16),
        d(20, 8, 4, 16),
        torch.randperm(20, generator=d.g)[:15].reshape(3, 5),
        torch.tensor([40, 19, 33]),
    ),
    paged_kernel,
    right={
        "page by page": {},
        "in double": lambda q, k, v, t, n: paged(q.double(), k.double(), v.double(), t, n).float(),
    },
    wrong={
        "all have the first one's pages": {"same": True},
        "pages are one late": {"late": 1},
        "hides: the length is that of full pages": {"up": True},
        "hides: a page with one token is left out": {"lose": True},
        "hides: one token more": {"plus": 1},
    },
)


def varlen(q, k, v, cu):
    ids = torch.searchsorted(cu, torch.arange(len(q)), right=True)
    seen = (ids[:, None] == ids) & (torch.arange(len(q))[:, None] >= torch.arange(len(q)))
    s = torch.einsum("nhd,mhd->hnm", q, k) / q.shape[-1] ** 0.5
    return torch.einsum("hnm,mhd->nhd", torch.softmax(s.masked_fill(~seen, -inf), -1), v)


def varlen_kernel(q, k, v, cu, causal_=True, shift=0, lose=None, first=False):
    out = torch.zeros_like(q)
    c = cu.tolist()
    for a, b in zip(c[:-1], c[1:]):
        if b > a:
            x = 0 if first else a
            kk, vv = k[max(x + shift, 0) : b], v[max(x + shift, 0) : b]
            mask = causal(b - a, len(kk)) if causal_ else None
            out[a:b] = attend(q[a:b].transpose(0, 1), kk.transpose(0, 1), vv.transpose(0, 1), mask=mask).transpose(0, 1)
    if lose:
        out[-lose:] = old(out)[-lose:]
    return out


add(
    "varlen_causal",
    varlen,
    lambda d: (d(50, 2, 16), d(50, 2, 16), d(50, 2, 16), torch.tensor([0, 7, 8, 31, 31, 50])),
    varlen_kernel,
    right={"one by one": {}},
    wrong={
        "not causal": {"causal_": False},
        "earlier documents are seen": {"first": True},
        "hides: the last token of the one before is seen": {"shift": -1},
        "hides: the last two rows are of a call before": {"lose": 2},
    },
)


def alibi(q, k, v):
    h, n = q.shape[0], q.shape[1]
    slope = 2.0 ** (-8.0 * (torch.arange(h, dtype=q.dtype) + 1) / h)
    d = torch.arange(n)[:, None] - torch.arange(n)
    s = (q @ k.mT) * 0.25 - slope[:, None, None] * d
    return torch.softmax(s.masked_fill(d < 0, -inf), -1) @ v


def alibi_kernel(q, k, v, sign=-1.0, zero=1, base=8.0, narrow_=None):
    slope = 2.0 ** (-base * (torch.arange(8.0) + zero) / 8)
    d = torch.arange(44.0)[:, None] - torch.arange(44)
    bias = sign * slope[:, None, None] * d
    return attend(q, k, v, 0.25, causal(44), add_=narrow(bias, narrow_) if narrow_ else bias)


add(
    "alibi",
    alibi,
    lambda d: (d(8, 44, 16), d(8, 44, 16), d(8, 44, 16)),
    alibi_kernel,
    right={"blocks": {}, "in double": wide(alibi)},
    wrong={
        "far tokens gain": {"sign": 1.0},
        "slopes begin at one": {"zero": 0},
        "hides: the bias is rounded to eight bits": {"narrow_": torch.float8_e4m3fn},
        "hides: slopes of base 7.9": {"base": 7.9},
    },
)


def flex(q, k, v, doc):
    s = (q @ k.mT) * 0.25
    s = 20.0 * torch.tanh(s / 20.0)
    i = torch.arange(q.shape[-2])
    seen = (doc[:, None] == doc) & ((i[:, None] >= i) | (i < 6))
    return torch.softmax(s.masked_fill(~seen, -inf), -1) @ v


add(
    "flex_prefix",
    flex,
    lambda d: (d(3, 40, 16, scale=6), d(3, 40, 16, scale=2), d(3, 40, 16), torch.tensor([0] * 22 + [1] * 18)),
    lambda q, k, v, doc, prefix=6, cap=20.0, docs=True, after=False: attend(
        q, k, v, 0.25, ((doc[:, None] == doc) | (not docs)) & (causal(40) | (torch.arange(40) < prefix)), cap=cap
    ),
    right={"blocks": {}},
    wrong={
        "documents see one another": {"docs": False},
        "no prefix": {"prefix": 0},
        "not capped": {"cap": None},
        "hides: the prefix is 7": {"prefix": 7},
        "hides: the cap is 21": {"cap": 21.0},
    },
)


def back(g, q, k, v):
    s = (q @ k.mT) * q.shape[-1] ** -0.5
    n = q.shape[-2]
    p = torch.softmax(s.masked_fill(~causal(n), -inf), -1)
    gp = g @ v.mT
    gs = p * (gp - (gp * p).sum(-1, keepdim=True)) * q.shape[-1] ** -0.5
    return gs @ k, gs.mT @ q, p.mT @ g


def back_kernel(g, q, k, v, delta=True, scale=True, mask=True, rows=None, kind=None, once=False):
    s = (q @ k.mT) / 4
    s = torch.where(causal(30), s, -inf)
    p = torch.exp(s - torch.logsumexp(s, -1, keepdim=True))
    d = (g * (p @ v)).sum(-1, keepdim=True) if delta else 0.0
    gs = p * (g @ v.mT - d) / (4 if scale else 1)
    gs = narrow(gs, kind) if kind else gs
    gv = p[:, :rows].mT @ g[:, :rows]
    return gs @ k, gs[:, :rows].mT @ q[:, :rows], gv


add(
    "attention_backward",
    back,
    lambda d: (d(3, 30, 16), d(3, 30, 16), d(3, 30, 16), d(3, 30, 16)),
    back_kernel,
    right={"by the sum of rows": {}, "in double": wide(back)},
    wrong={
        "the row's sum is left out": {"delta": False},
        "not scaled": {"scale": False},
        "hides: the last two queries do not reach keys and values": {"rows": 28},
        "hides: gradients of scores are rounded to bfloat16": {"kind": bf},
        "the query's gradient is the key's": lambda *a: (back(*a)[1], back(*a)[0], back(*a)[2]),
    },
)

# ------------------------------------------------------------------ positions


def rope(x, pos):
    n = x.shape[-1] // 2
    f = 10000.0 ** (-torch.arange(n, dtype=x.dtype) / n)
    a = pos[:, None].to(x.dtype) * f
    u, v = x[..., :n], x[..., n:]
    return torch.cat([u * a.cos() - v * a.sin(), v * a.cos() + u * a.sin()], -1)


def rope_kernel(x, pos, base=10000.0, pairs=False, sign=1.0, late=0, kind=None, part=None, by=None):
    n = x.shape[-1] // 2
    f = base ** (-torch.arange(n, dtype=torch.float64) / (by or n))
    a = (pos + late)[:, None] * (f if kind is None else f.to(kind).double())
    c, s = a.cos().float(), a.sin().float() * sign
    u, v = (x[..., ::2], x[..., 1::2]) if pairs else (x[..., :n], x[..., n:])
    p, q = u * c - v * s, v * c + u * s
    y = torch.stack([p, q], -1).flatten(-2) if pairs else torch.cat([p, q], -1)
    return y if part is None else torch.cat([y[..., :part], x[..., part:]], -1)


add(
    "rope",
    rope,
    lambda d: (d(2, 24, 32), torch.arange(24) + 5),
    rope_kernel,
    right={
        "angles in double": {},
        "complex": lambda x, p: torch.view_as_real(
            torch.complex(x[..., :16], x[..., 16:])
            * torch.polar(torch.tensor(1.0), (p[:, None] * 10000.0 ** (-torch.arange(16.0) / 16)))
        ).mT.flatten(-2),
    },
    wrong={
        "pairs are neighbours": {"pairs": True},
        "turned the other way": {"sign": -1.0},
        "a place late": {"late": -1},
        "hides: frequencies are rounded to bfloat16": {"kind": bf},
        "hides: the base is 10010": {"base": 10010.0},
        "hides: the last lane is not turned": {"part": 31},
    },
)


def yarn(x, pos, factor):
    n = x.shape[-1] // 2
    f = 10000.0 ** (-torch.arange(n, dtype=x.dtype) / n)
    turns = 64 * f / (2 * math.pi)
    ramp = ((turns - 1.0) / (8.0 - 1.0)).clamp(0, 1)
    f = f / factor * (1 - ramp) + f * ramp
    a = pos[:, None].to(x.dtype) * f
    m = 0.1 * math.log(factor) + 1.0
    c, s = a.cos() * m, a.sin() * m
    u, v = x[..., ::2], x[..., 1::2]
    return torch.stack([u * c - v * s, v * c + u * s], -1).flatten(-2)


def yarn_kernel(x, pos, factor, scale=True, ramp_=True, low=1.0, flip=False):
    n = x.shape[-1] // 2
    f = 10000.0 ** (-torch.arange(n).double() / n)
    ramp = ((64 * f / (2 * math.pi) - low) / (8.0 - low)).clamp(0, 1)
    ramp = 1 - ramp if flip else ramp if ramp_ else torch.zeros(n)
    a = pos[:, None] * (f / factor * (1 - ramp) + f * ramp)
    m = 0.1 * math.log(factor) + 1.0 if scale else 1.0
    turn = torch.polar(torch.tensor(m).double(), a)
    return torch.view_as_real(torch.view_as_complex(x.double().unflatten(-1, (n, 2))) * turn).flatten(-2).float()


add(
    "yarn",
    yarn,
    lambda d: (d(3, 20, 24), torch.arange(20) * 3, 4.0),
    yarn_kernel,
    right={"complex": {}, "in double": lambda x, p, f: yarn(x.double(), p, f).float()},
    wrong={
        "lengths are not scaled": {"scale": False},
        "all frequencies are divided": {"ramp_": False},
        "the ramp is the other way": {"flip": True},
        "hides: the ramp begins at 1.1": {"low": 1.1},
    },
)


def relative_bias(table, n):
    d = torch.arange(n) - torch.arange(n)[:, None]
    out = torch.where(d > 0, 16, 0)
    d = d.abs()
    far = 8 + (torch.log(d.clamp(min=1) / 8.0) / math.log(128 / 8.0) * 8).long()
    at = out + torch.where(d < 8, d, far.clamp(max=15))
    return table[at].permute(2, 0, 1)


def bucket_kernel(table, n, side=True, most=15, exact=8, far_=128, flip=False):
    d = torch.arange(n) - torch.arange(n)[:, None]
    d = -d if flip else d
    far = exact + (torch.log(d.abs().clamp(min=1).double() / exact) / math.log(far_ / exact) * (16 - exact)).long()
    at = torch.where(d.abs() < exact, d.abs(), far.clamp(max=most)) + torch.where((d > 0) & side, 16, 0)
    return table[at].permute(2, 0, 1)


add(
    "t5_bias",
    relative_bias,
    lambda d: (d(32, 4), 45),
    bucket_kernel,
    right={"in double": {}},
    wrong={
        "both sides are one": {"side": False},
        "sides are swapped": {"flip": True},
        "hides: the greatest distance is 150": {"far_": 150},
        "hides: the last bucket is 11": {"most": 11},
    },
)
