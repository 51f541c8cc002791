# SPDX-License-Identifier: Apache-2.0
"""Set S, the fourteenth: what a sampler does to logits, and speculative decoding, with the random numbers given."""

import torch

from .blind import bf, narrow
from .blind_fourteenth_base import INF, add, halves, lanes, up


def words(d, n, v, scale=3.0, dtype=torch.float32):
    x = d(n, v, scale=scale)
    x[:, 11] += 5
    return x.to(dtype)


def min_p(x):
    p = up(x).softmax(-1)
    return up(x).masked_fill(p < 0.05 * p.amax(-1, keepdim=True), -INF).softmax(-1)


def min_p_kernel(x, part=0.05, fixed=False, late=False, kind=None):
    m = x.amax(-1, keepdim=True)
    e = torch.exp(x - m)
    keep = e / e.sum(-1, keepdim=True) >= part if fixed else e >= part
    q = torch.where(keep, e, 0.0)
    q = narrow(q, kind) if kind else q
    return q / (e if late else q).sum(-1, keepdim=True)


add(
    "min_p",
    min_p,
    lambda d: (words(d, 24, 300),),
    min_p_kernel,
    right={"by exponentials below the greatest": {}},
    wrong={
        "the limit is absolute": {"fixed": True},
        "the limit is 0.1": {"part": 0.1},
        "what is kept is not renormed": {"late": True},
        "exponentials are kept in bf16": {"kind": bf},
    },
)


def top_p(x):
    p, i = up(x).softmax(-1).sort(dim=-1, descending=True, stable=True)
    keep = p.cumsum(-1) - p < 0.8
    q = torch.where(keep, p, 0 * p)
    q = q / q.sum(-1, keepdim=True)
    return torch.zeros_like(q).scatter(1, i, q)


def top_p_kernel(x, limit=0.8, first=True, strict=False, norm=True, up_=False, t=1.0):
    e = torch.exp((x - x.amax(-1, keepdim=True)) / t)
    p = e / halves(e)[:, None]
    out = torch.zeros_like(p)
    for r in range(len(p)):
        total = 0.0
        for j in p[r].argsort(descending=not up_, stable=True).tolist():
            if total >= limit or (not first and total + float(p[r, j]) > limit and total > 0):
                break
            out[r, j] = p[r, j]
            total += float(p[r, j])
    return out / out.sum(-1, keepdim=True) if norm else out


add(
    "top_p",
    top_p,
    lambda d: (words(d, 12, 200, 2.0),),
    top_p_kernel,
    right={"word by word": {}},
    wrong={
        "the word that crosses the limit is left out": {"first": False},
        "the limit is 0.9": {"limit": 0.9},
        "what is kept is not renormed": {"norm": False},
        "the least likely words are kept": {"up_": True},
        "a temperature of 0.8": {"t": 0.8},
    },
)


def speculate(p, q, u, token):
    at = torch.arange(len(token))
    keep = u < p[at, token] / q[at, token]
    r = (p - q).clamp(min=0)
    return keep, keep.long().cumprod(0).sum(), r / r.sum(-1, keepdim=True)


def speculate_kernel(
    p, q, u, token, turn=False, less=False, norm=True, absolute=False, first=True, logs=False, plain=False
):
    at = torch.arange(len(token))
    a, b = p[at, token], q[at, token]
    keep = u * a < b if turn else u < a if less else u * b < a
    n = torch.tensor(next((i for i, k in enumerate(keep.tolist()) if not k), len(keep))) if first else keep.sum()
    r = p if plain else (p - q).abs() if absolute else torch.relu(p - q)
    return keep, n, r / lanes(r)[:, None] if norm else r


add(
    "speculative",
    speculate,
    lambda d: (d(16, 60).softmax(-1), d(16, 60).softmax(-1), d.rand(16) * 0.6, d.ints(60, 16)),
    speculate_kernel,
    right={"no quotient in the test": {}},
    wrong={
        "the ratio is turned round": {"turn": True},
        "the draft's probability is left out": {"less": True},
        "the count goes on behind the first refused": {"first": False},
        "what is left over is not renormed": {"norm": False},
        "absolute differences are left over": {"absolute": True},
        "what is left over is the target's": {"plain": True},
    },
)


def gumbel(x, u):
    z = x / 0.8 - torch.log(-torch.log(u))
    return z.argmax(-1), z.amax(-1)


def gumbel_kernel(x, u, sign=1, t=0.8, after=False, one=False, eps=0.0, late=False):
    g = -torch.log(-torch.log(u + eps)) if not one else -torch.log(u)
    z = (x + g) / t if after else x * (1 / t) + sign * g
    return z.argmax(-1) + (1 if late else 0), z.amax(-1)


add(
    "gumbel_max",
    gumbel,
    lambda d: (words(d, 40, 250, 2.0), d.rand(40, 250) * 0.999 + 5e-4),
    gumbel_kernel,
    right={"by an inverse": {}},
    wrong={
        "noise is taken off": {"sign": -1},
        "the temperature divides the noise, too": {"after": True},
        "one logarithm": {"one": True},
        "indices begin at one": {"late": True},
        "an epsilon of 1e-3 in the logarithm": {"eps": 1e-3},
    },
)


def penalties(x, seen):
    hit = seen > 0
    y = torch.where(x > 0, x / 1.3, x * 1.3)
    return torch.where(hit, y, x) - 0.2 * seen.to(x.dtype) - 0.4 * hit.to(x.dtype)


def penalties_kernel(x, seen, both=False, pres=0.4, freq=0.2, flag=False, order=False, any_=False):
    hit = (seen >= 0) if any_ else (seen > 0)
    n = hit.float() if flag else seen.float()
    if order:
        x = x - freq * n - pres * hit
        return torch.where(hit, torch.where(x > 0, x / 1.3, x * 1.3), x)
    y = x / 1.3 if both else x * torch.where(x > 0, 1 / 1.3, 1.3)
    return torch.where(hit, y, x) - (freq * n + pres * hit)


add(
    "repetition",
    penalties,
    lambda d: (words(d, 8, 400), (d.ints(9, 8, 400) - 5).clamp(min=0)),
    penalties_kernel,
    right={"both penalties in one": {}},
    wrong={
        "negative logits are divided, too": {"both": True},
        "the frequency's penalty does not count": {"flag": True},
        "penalties by count come first": {"order": True},
        "words not seen are penalised": {"any_": True},
    },
)


def dropout(x, u):
    keep = u >= 0.1
    return torch.where(keep, up(x) / 0.9, 0 * up(x)).to(x.dtype), keep


def dropout_kernel(x, u, scale=1 / 0.9, turn=False, p=0.1, tail=0, shift=0):
    keep = u < p if turn else u.roll(shift) >= p
    y = x * keep * scale
    if tail:
        y[-tail:] = x[-tail:]
    return y, keep


add(
    "dropout_given",
    dropout,
    lambda d: (d(3000, dtype=bf), d.rand(3000)),
    dropout_kernel,
    dtype=bf,
    right={"by a product": {}},
    wrong={
        "not scaled": {"scale": 1.0},
        "the share that is kept and the one that is dropped are exchanged": {"turn": True},
        "the last 56 are left as they are": {"tail": 56},
        "the draws are of the element before": {"shift": 1},
    },
)


def typical(x):
    lp = x.log_softmax(-1)
    p = lp.exp()
    h = -(p * lp).sum(-1, keepdim=True)
    far = (-lp - h).abs()
    s, i = far.sort(dim=-1, stable=True)
    q = p.gather(1, i)
    keep = q.cumsum(-1) - q < 0.7
    return torch.zeros_like(keep).scatter(1, i, keep), h


def typical_kernel(x, sign=False, mass=0.7, most=False, base=1.0):
    m = x.amax(-1, keepdim=True)
    e = torch.exp(x - m)
    s = lanes(e)[:, None]
    lp = (x - m) - torch.log(s)
    p = e / s
    h = torch.log(s) - lanes(e * (x - m))[:, None] / s
    far = -lp - h if sign else (-lp - h).abs()
    i = (-p if most else far).argsort(dim=-1, stable=True)
    q = p.gather(1, i)
    keep = torch.cat([torch.zeros(len(x), 1), q.cumsum(-1)[:, :-1]], 1) < mass
    return torch.zeros_like(keep).scatter(1, i, keep), h * base


add(
    "typical",
    typical,
    lambda d: (words(d, 10, 150, 1.5),),
    typical_kernel,
    right={"entropy by the mean logit": {}},
    wrong={
        "the difference to the entropy has a sign": {"sign": True},
        "the mass is 0.8": {"mass": 0.8},
        "the most likely are taken": {"most": True},
    },
)
