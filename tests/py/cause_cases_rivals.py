# SPDX-License-Identifier: Apache-2.0
"""Mistakes that another name explains as well by chance: of each the words that must be said (CASES), or that
may not be (NAMELESS). Neighbours: cause_cases_facts, test_causes_facts."""

import math

import torch
from torch.nn import functional as F

bf, fp = torch.bfloat16, torch.float16


def randn(*sizes, scale=1.0, shift=0.0):
    return torch.randn(*sizes) * scale + shift


def clipped(ratio, gain):
    r = ratio.exp()
    return torch.minimum(r * gain, r.clamp(0.97, 1.03) * gain).sum(-1)


def weighed(x, w):
    return (x * 4 * w).sum(-1)


def signed(p, g):
    """Two results, of which one has a mistake."""
    return p - 0.01 * (0.1 * g).sign(), 0.9 * p + 0.1 * g


def zero_is_one(p, g):
    return p - 0.01 * torch.where(g >= 0, 1.0, -1.0), 0.9 * p + 0.1 * g


def sparse(*sizes):
    return torch.randn(*sizes) * (torch.rand(*sizes) > 0.4)


def chosen(ids, w):
    return F.one_hot(ids, 24).sum(1) * w


def mixed(ar, ai, br, bi, lost=False):
    """A complex product's parts."""
    cross = ai @ br
    return ar @ br - ai @ bi, ar @ bi + (torch.cat([cross[:, :-1], 0 * cross[:, -1:]], 1) if lost else cross)


def four():
    return randn(24, 32), randn(24, 32), randn(32, 60), randn(32, 60)


def dropped(x, keep, rows=60):
    """A gradient behind dropout, and what a bias gets of it."""
    g = x * keep / 0.9
    return g, g[:rows].sum(0)


def scored(q, k, sink):
    s = torch.cat([q @ k.mT, sink.expand(q.shape[0], 1)], -1)
    return torch.softmax(s, -1)[:, :-1]


def stepped(p, u, norm=torch.linalg.vector_norm):
    return p - 0.01 * norm(p) / torch.linalg.vector_norm(u) * u


def by_rows(p, u):
    return p - 0.01 * p.norm(dim=1, keepdim=True) / u.norm(dim=1, keepdim=True) * u


def orthogonal(g, steps=5):
    x = g / (g.norm() + 1e-7)
    for _ in range(steps):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
    return x


def capped(x, w, tanh=torch.tanh):
    return torch.softmax(20 * tanh(x / 20), -1) @ w


def kept_state(x, decay, kind=None, steps=48):
    """A running state and what is read of it; every sixteenth state may be kept in a format."""
    s, out = torch.zeros_like(x[0]), []
    for t in range(steps):
        s = s * decay + x[t]
        s = s.to(kind).float() if kind and t % 16 == 15 else s
        out.append(s * 0.25)
    return torch.stack(out), s


def share(x):
    return torch.softmax(x, -1)


def normed(x, outside=False):
    wide = x.float()
    mean, var = wide.mean(-1, keepdim=True), wide.var(-1, keepdim=True, correction=0)
    root = var.sqrt() + 1e-5 if outside else (var + 1e-5).sqrt()
    return ((wide - mean) / root).to(x.dtype)


def running(x, var, unbiased=True):
    return 0.9 * var + 0.1 * x.var(0, correction=int(unbiased))


def running_norm(x, var):
    var = var.clone()
    F.batch_norm(x, torch.zeros_like(var), var, training=True)
    return var


def largest(x):
    return tuple(x.max(1))


def one_higher(x):
    values, at = x.max(1)
    return values, at + 1


def kinds(seen):
    """What each tile of a mask is: nothing, some or all seen."""
    share = seen.float().unflatten(1, (-1, 8)).unflatten(0, (-1, 8)).mean((1, 3))
    return (share > 0).long() + (share == 1).long()


def struck(function, at, value):
    def device(*args):
        out = function(*args).clone()
        out[at] = value
        return out

    return device


def kept(x, limit=0.7):
    """The largest shares of each row, up to a sum."""
    p, at = x.softmax(-1).sort(-1, descending=True)
    keep = p.cumsum(-1) - p < limit
    return torch.zeros_like(x).scatter(-1, at, p * keep)


def one_too_few(x):
    p, at = x.softmax(-1).sort(-1, descending=True)
    keep = (p.cumsum(-1) < 0.7) | (torch.arange(x.shape[-1]) == 0)
    return torch.zeros_like(x).scatter(-1, at, p * keep)


def products(a, b, dtype=None):
    low = (lambda t: t.to(dtype).float()) if dtype else lambda t: t
    return low(low(a[:, :, None] * b[None]).sum(1))


def attended(q, k, v):
    """Heads behind tokens, as many kernels lay them out."""
    return F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v))).transpose(1, 2)


def codes(x):
    scale = x.abs().amax(-1, keepdim=True) / 127
    return torch.round(x / scale).to(torch.int8), scale


def ordered(x):
    return x.argsort(1)


def summed(q, k, v):
    s = q @ k.mT / 4
    return torch.softmax(s, -1) @ v, torch.logsumexp(s, -1)


def half_maximum(q, k, v):
    s = q @ k.mT / 4
    top = s.amax(-1)
    return torch.softmax(s, -1) @ v, top.half().float() + (s - top[..., None]).exp().sum(-1).log()


# name: (words, function, make, device)
CASES = {
    "the clipped branch alone": (
        "a term of minimum is missing",
        clipped,
        lambda: (randn(12, 40, scale=0.1), randn(12, 40)),
        lambda ratio, gain: (ratio.exp().clamp(0.97, 1.03) * gain).sum(-1),
    ),
    "a factor twice": (
        "multiplied by 4|were 16 instead of 4",
        weighed,
        lambda: (randn(30, 20), randn(30, 20)),
        lambda x, w: 4 * weighed(x, w),
    ),
    "twice an equal share": ("multiplied by 2", share, lambda: (torch.full((40, 64), 0.3),), lambda x: 2 * share(x)),
    "beside the root, of which half tells little": (
        "cannot tell$",
        F.instance_norm,
        lambda: (randn(2, 6, 12, 20, scale=0.05, shift=0.1).half(),),
        lambda x: normed(x.flatten(2), True).view(x.shape),
    ),
    "the biased variance of a batch": (
        r"n / \(n - 1\).*missing|^biased variance",
        running_norm,
        lambda: (randn(300, 8), torch.ones(8)),
        lambda x, var: running(x, var, False),
    ),
    "places from one": ("^1 is added", largest, lambda: (randn(50, 9),), one_higher),
    "products and results in bfloat16": (
        "intermediates",
        products,
        lambda: (randn(12, 60), randn(60, 10)),
        lambda a, b: products(a, b, bf),
    ),
    "a head behind tokens": (
        "off only in slice 3 along axis 2$",
        attended,
        lambda: [randn(2, 48, 6, 16) for _ in range(3)],
        lambda *qkv: attended(*qkv) + randn(2, 48, 6, 16, scale=0.1) * (torch.arange(6) == 3)[:, None],
    ),
    "some rows in another order": (
        "exchanged among.*off only in rows 5 to 7$",
        ordered,
        lambda: (randn(20, 32),),
        lambda x: torch.cat([ordered(x)[:5], ordered(x)[5:8].flip(1), ordered(x)[8:]]),
    ),
    "a few codes that are not the greatest": (
        "^(?!.*exchanged)",
        codes,
        lambda: (randn(20, 64),),
        lambda x: (codes(x)[0].clamp(max=126), codes(x)[1]),
    ),
    "one of two choices": (
        "^dropped contribution: the last 1 of 2 along axis 1 in sum is missing",
        chosen,
        lambda: (torch.randint(24, (300, 2)), randn(24)),
        lambda ids, w: chosen(ids[:, :1], w),
    ),
    "a last column of one of two results": (
        r"(of (br|ai|ar|bi)|in mm) is missing \(in out\[1\] alone\)",
        mixed,
        four,
        lambda *a: mixed(*a, lost=True),
    ),
    "the sign of an input in both results": (
        "^the sign of bi is",
        mixed,
        four,
        lambda ar, ai, br, bi: mixed(ar, ai, br, -bi),
    ),
    "the last row of a sum beside a mask": (
        "^dropped contribution: the last 1 of 60 along axis 0 in sum is missing",
        dropped,
        lambda: (randn(60, 96), torch.rand(60, 96) > 0.1),
        lambda x, keep: dropped(x, keep, 59),
    ),
    "one input of three in bfloat16": (
        "^inputs rounded to bfloat16: sink$",
        scored,
        lambda: (randn(40, 16), randn(30, 16), randn(1, scale=2.0, shift=4.0)),
        lambda q, k, sink: scored(q, k, sink.bfloat16().float()),
    ),
    "columns of narrow results": (
        "; off only in columns from 48 on$",
        share,
        lambda: (randn(40, 64).bfloat16(),),
        lambda x: torch.cat([share(x)[:, :48], share(x.float() * 1.3)[:, 48:].bfloat16()], 1),
    ),
}

NAMELESS = {
    "a sign of nothing": ("mean", signed, lambda: (randn(300), sparse(300)), zero_is_one),
    "one of many counts": ("shared|mask|index", kinds, lambda: (torch.rand(48, 48) > 0.02,), struck(kinds, (5, 4), 0)),
    "columns that happen to be zero": ("are zero", kept, lambda: (randn(12, 60, scale=2.0),), one_too_few),
    "a slope of narrow steps": (
        "truncated",
        F.softplus,
        lambda: ((torch.rand(2400) * 1.2 + 0.6).half(),),
        lambda x: (F.softplus(x.float() * 1.001) / 1.001).half(),
    ),
    "NaN where there is no tie": (
        "ties",
        F.tanhshrink,
        lambda: (torch.linspace(-60, 60, 241).bfloat16(),),
        lambda x: torch.where(x > 40, math.nan, F.tanhshrink(x)),
    ),
    "infinity of the other sign": (
        "ties",
        torch.mul,
        lambda: (randn(204).half() * 300, randn(204).half() * 300),
        lambda a, b: (a * b).where(~(a * b).isneginf(), math.inf),
    ),
    "a maximum in half that another result does not share": (
        "bmm|products|inputs",
        summed,
        lambda: [randn(4, n, 16) for n in (64, 96, 96)],
        half_maximum,
    ),
    "a state kept in bfloat16": (
        "^inputs",
        kept_state,
        lambda: (randn(48, 300), torch.rand(300)),
        lambda x, decay: kept_state(x, decay, bf),
    ),
    "a norm in bfloat16": (
        "^accumulated",
        stepped,
        lambda: (randn(60, 64), randn(60, 64)),
        lambda p, u: stepped(p, u, lambda t: t.norm().bfloat16().float()),
    ),
    "a norm for each row": (
        "^(intermediates|accumulated|inputs)",
        stepped,
        lambda: (randn(70, 64), randn(70, 64)),
        by_rows,
    ),
    "a round less": (
        "^(accumulated|intermediates|inputs)",
        orthogonal,
        lambda: (randn(48, 80),),
        lambda g: orthogonal(g, 4),
    ),
    "tanh by a short fraction": (
        "^(accumulated|intermediates|inputs)",
        capped,
        lambda: (randn(64, 64, scale=9.0), randn(64, 32)),
        lambda x, w: capped(x, w, lambda t: t * (15 + t * t) / (15 + 6 * t * t)),
    ),
    "another small number everywhere": (
        "off only",
        normed,
        lambda: (randn(64, 256).bfloat16(),),
        lambda x: (normed(x.float()) * 0.995).bfloat16(),
    ),
}
