# SPDX-License-Identifier: Apache-2.0
"""Set U, the fifteenth: attention of other kinds: latent, differential, linear, with decays, and its gradients."""

import torch

from .blind import bf, hf
from .blind_fifteenth_attention import attend
from .blind_fifteenth_base import INF, add, hold, index
from .blind_fourteenth_base import gradients, up, wide

# Latent attention: keys and values are made from a latent of width 24; a part with positions is shared by heads.


def latent(q, turned, c, k_turned, w_k, w_v):
    q, turned, c, k_turned, w_k, w_v = map(up, (q, turned, c, k_turned, w_k, w_v))
    k = torch.einsum("sc,hcd->hsd", c, w_k)
    v = torch.einsum("sc,hcd->hsd", c, w_v)
    s = (q @ k.mT + turned @ k_turned.mT) * (q.shape[-1] + turned.shape[-1]) ** -0.5
    i, j = index(q.shape[1], c.shape[0])
    return torch.softmax(s.masked_fill(j > i + c.shape[0] - q.shape[1], -INF), -1) @ v


def latent_kernel(
    q, turned, c, k_turned, w_k, w_v, width=48, shared=1.0, past=0, roll=0, kind=None, swap=False, base=False
):
    absorbed = hold(torch.einsum("hqd,hcd->hqc", q, w_k.roll(roll, 0)), kind)  # queries go into the latent space
    s = (absorbed @ c.mT + shared * turned @ k_turned.mT) * width**-0.5
    i, j = index(q.shape[1], c.shape[0])
    s = s.masked_fill(j > i + (c.shape[0] - q.shape[1]) * (not base) + past, -INF)
    p = torch.exp(s - s.amax(-1, keepdim=True))
    o = (p @ c) / p.sum(-1, keepdim=True)
    return torch.einsum("hqc,hcd->hqd", o, w_k if swap else w_v)


for form, kind in (("", None), ("_bf16", bf)):
    kinds = {"dtype": kind or torch.float32}
    add(
        "latent_attention" + form,
        latent if kind is None else lambda *a: latent(*a).to(a[0].dtype),
        lambda d, kinds=kinds: (
            d(4, 20, 32, **kinds),
            d(4, 20, 16, **kinds),
            d(60, 24, **kinds),
            d(60, 16, **kinds),
            d(4, 24, 32, scale=0.2, **kinds),
            d(4, 24, 32, scale=0.2, **kinds),
        ),
        latent_kernel,
        dtype=kind,
        right={"the up-projections absorbed by queries and output": {}},
        wrong={
            "the scale takes the width without the turned part": {"width": 32},
            "the shared turned part is left out": {"shared": 0.0},
            "the mask forgets the cache's length": {"base": True},
            "the keys' projection is used for the output": {"swap": True},
        }
        if kind
        else {
            "absorbed queries are rounded to float16": {"kind": hf},
            "one token of the future is seen": {"past": 1},
            "projections of keys are those of the neighbouring head": {"roll": 1},
            "the scale takes the latent's width": {"width": 24 + 16},
        },
    )

# Differential attention: one map less lambda times another, then a norm of each head.


def differ(q, k, v, lam):
    i, j = index(q.shape[-2], k.shape[-2])
    (q1, q2), (k1, k2) = q.chunk(2, -1), k.chunk(2, -1)
    o = attend(q1, k1, v, j <= i) - lam[:, None, None] * attend(q2, k2, v, j <= i)
    return o * torch.rsqrt(o.pow(2).mean(-1, keepdim=True) + 1e-5) * 0.2


def differ_kernel(q, k, v, lam, width=16, init=0.2, eps=1e-5, plus=False, cross=False, normed=True, one=False, n=32):
    i, j = index(q.shape[-2], k.shape[-2])
    maps = []
    for part in range(2):
        a, b = q.chunk(2, -1)[part], k.chunk(2, -1)[0 if cross else part]
        s = (a @ b.mT * width**-0.5).masked_fill(j > i, -INF)
        p = torch.exp(s - s.amax(-1, keepdim=True))
        maps.append(p / p.sum(-1, keepdim=True))
    lam = lam[:1] if one else lam
    both = maps[0] + (1 if plus else -1) * lam[:, None, None] * maps[1]
    o = both @ v
    r = torch.rsqrt((o * o).sum(-1, keepdim=True) / n + eps) if normed else 1
    return o * r * init


add(
    "differential_attention",
    differ,
    lambda d: (d(3, 40, 32), d(3, 40, 32), d(3, 40, 32), 0.2 + 0.3 * d.rand(3)),
    differ_kernel,
    right={"in double": wide(differ)},
    wrong={
        "the maps are added": {"plus": True},
        "both maps take the first half of the keys": {"cross": True},
        "the scale takes the whole width": {"width": 32},
        "the output is scaled by one minus the factor": {"init": 0.8},
        "all heads take the first one's lambda": {"one": True},
        "epsilon is 1e-3": {"eps": 1e-3},
    },
)

# Linear attention with elu + 1 and a normaliser, causal.


def feature(x):
    return torch.nn.functional.elu(x) + 1


def linear(q, k, v):
    i, j = index(q.shape[-2], k.shape[-2])
    s = (feature(q) @ feature(k).mT) * (j <= i)
    return (s @ v) / s.sum(-1, keepdim=True)


def linear_kernel(q, k, v, block=16, strict=False, lag=False, over=True, kind=None, once=False, plus=1.0):
    f = lambda x: torch.where(x > 0, x, torch.expm1(x)) + plus
    q, k = f(q), f(k)
    ones = torch.ones(*v.shape[:-1], 1)
    v = torch.cat([v, ones], -1)
    state, outs = torch.zeros(*k.shape[:-2], k.shape[-1], v.shape[-1]), []
    for b in range(0, q.shape[-2], block):
        x, y, z = (t[..., b : b + block, :] for t in (q, k, v))
        i, j = index(x.shape[-2], x.shape[-2])
        near = (x @ y.mT) * ((j < i) if strict else (j <= i))
        if lag:  # the state already holds this block
            state = hold(state + y.mT @ z, kind)
        outs.append(near @ z + x @ state)
        if not lag:
            state = hold((0 if once else state) + y.mT @ z, kind)
    o = torch.cat(outs, -2)
    return o[..., :-1] / (o[..., -1:] if over else q.sum(-1, keepdim=True))


add(
    "linear_attention",
    linear,
    lambda d: (d(2, 70, 16), d(2, 70, 16), d(2, 70, 24, shift=0.5)),
    linear_kernel,
    right={"a state carried over blocks of 16": {}, "blocks of 32": {"block": 32}},
    wrong={
        "the state takes the block before it is used": {"lag": True},
        "the state holds the last block alone": {"once": True},
        "the state is rounded to bfloat16 after each block": {"kind": bf},
        "it divides by the sum of the query's features": {"over": False},
        "features get 1.01, not one": {"plus": 1.01},
    },
)

# Lightning attention: a decay for each head, no normaliser.


def lightning(q, k, v, slope):
    i, j = index(q.shape[-2], k.shape[-2])
    decay = torch.exp(-slope[:, None, None] * (i - j).clamp(min=0)) * (j <= i)
    return (up(q) @ up(k).mT * decay @ up(v)).to(q.dtype)


def lightning_kernel(
    q, k, v, slope, block=16, ahead=0, late=0, full=None, kind=None, roll=0, state_decay=True, strict=0
):
    slope = slope.roll(roll)[:, None, None]
    state, outs = torch.zeros(*k.shape[:-2], k.shape[-1], v.shape[-1]), []
    for b in range(0, q.shape[-2], block):
        x, y, z = (t[..., b : b + block, :] for t in (q, k, v))
        n = x.shape[-2]
        i, j = index(n, n)
        decay = torch.exp(-slope * (i - j).clamp(min=0)) * (j <= i - strict)
        at = torch.arange(n)[:, None]
        outs.append((x @ y.mT) * decay @ z + torch.exp(-slope * (at + 1 + ahead)) * (x @ state))
        grown = y * torch.exp(-slope * (n - 1 - at + late))
        state = hold(state * (torch.exp(-slope * (full or n)) if state_decay else 1) + grown.mT @ z, kind)
    return torch.cat(outs, -2)


for form, kind in (("", None), ("_fp16", hf)):
    kinds = {"dtype": kind or torch.float32}
    add(
        "lightning_attention" + form,
        lightning,
        lambda d, kinds=kinds: (
            d(4, 64, 16, **kinds),
            d(4, 64, 16, scale=0.25, **kinds),
            d(4, 64, 16, **kinds),
            torch.tensor([0.5, 0.25, 0.125, 0.0625]),
        ),
        lightning_kernel,
        dtype=kind,
        right={"a decayed state over blocks of 16": {}, "blocks of 8": {"block": 8}},
        wrong={
            "the diagonal is left out within blocks": {"strict": 1},
            "the state does not decay from block to block": {"state_decay": False},
            "slopes are those of the neighbouring head": {"roll": 1},
        }
        if kind
        else {
            "queries decay by a step less than they should": {"ahead": -1},
            "keys decay by a step more before they enter the state": {"late": 1},
            "the state decays by 15 steps a block": {"full": 15},
            "the state is rounded to float16 after each block": {"kind": hf},
        },
    )

# Gradients of causal attention.


def causal(q, k, v):
    i, j = index(q.shape[-2], k.shape[-2])
    return attend(q, k, v, j <= i)


causal_backward = gradients(causal, 3)


def causal_grad(
    q, k, v, down, delta=True, q_scale=True, k_scale=True, seen=0, kind=None, raw=False, tail=0, mix=False, group=16
):
    scale = q.shape[-1] ** -0.5
    i, j = index(q.shape[-2], k.shape[-2])
    s = (q @ k.mT * scale).masked_fill(j > i + seen, -INF)
    top = s.amax(-1, keepdim=True)
    lse = top + torch.log(torch.exp(s - top).sum(-1, keepdim=True))
    p = torch.exp(s - lse)
    o = p @ v
    d = (o * down).sum(-1, keepdim=True) if delta else 0
    dq, dk, dv = torch.zeros_like(q), [], []
    for b in range(0, k.shape[-2] - tail, group):
        at = slice(b, b + group)
        part = hold(p[..., at], kind)
        dp = down @ v[..., at, :].mT
        ds = hold(part * (dp - d), kind)
        dv.append((ds if mix else part).mT @ down)
        dk.append(ds.mT @ q * (scale if k_scale else 1))
        dq = dq + (dp if raw else ds) @ k[..., at, :] * (scale if q_scale else 1)
    dk, dv = (torch.nn.functional.pad(torch.cat(t, -2), (0, 0, 0, tail)) for t in (dk, dv))
    return dq, dk, dv


add(
    "attention_backward",
    causal_backward,
    lambda d: (d(3, 48, 24), d(3, 48, 24), d(3, 48, 24), d(3, 48, 24, scale=0.1)),
    causal_grad,
    right={"by tiles of 16 columns from the logarithm of the sums": {}, "in double": wide(causal_backward)},
    wrong={
        "the rows' products of output and gradient are not taken off": {"delta": False},
        "the queries' gradient lacks the scale": {"q_scale": False},
        "the keys' gradient lacks the scale": {"k_scale": False},
        "probabilities and their gradients are rounded to bfloat16": {"kind": bf},
        "the mask lets one column of the future in": {"seen": 1},
        "the last tile of keys gets no gradient": {"tail": 16},
        "values take the gradient of the logits": {"mix": True},
    },
)
