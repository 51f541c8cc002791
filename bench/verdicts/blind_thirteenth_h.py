# SPDX-License-Identifier: Apache-2.0
"""Set R, the thirteenth: experts."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, narrow
from .blind_thirteenth_a import add, old

# ------------------------------------------------------------------ experts


def route(logits):
    p = torch.softmax(logits, -1)
    w, at = torch.topk(p, 4, dim=-1)
    return w / w.sum(-1, keepdim=True), at


def route_kernel(logits, norm=True, k=4, late=False, sharp=1.0, eps=0.0, lose=None):
    z = logits if lose is None else torch.where(torch.arange(logits.shape[1]) < lose, logits, -9.0)
    v, at = torch.sort(z, dim=-1, descending=True, stable=True)
    v, at = v[:, :4], at[:, :4]
    e = torch.exp(sharp * (v - v[:, :1]))
    w = e / (e.sum(1, keepdim=True) + eps) if norm else torch.softmax(logits, 1).gather(1, at)
    return (w.roll(1, 1) if late else w), at


add(
    "moe_route",
    route,
    lambda d: (d(40, 32),),
    route_kernel,
    right={
        "by sorting": {},
        "normed after": lambda x: (torch.softmax(torch.topk(x, 4, 1).values, 1), torch.topk(x, 4, 1).indices),
    },
    wrong={
        "weights are not normed": {"norm": False},
        "weights are a place late": {"late": True},
        "hides: the last two experts are not looked at": {"lose": 30},
        "hides: 0.001 is added under the line": {"eps": 1e-3},
    },
)


def group_route(logits, bias):
    s = torch.sigmoid(logits)
    z = (s + bias).unflatten(1, (4, 8))
    best = z.topk(2, dim=-1).values.sum(-1)
    keep = torch.zeros_like(best).scatter(1, best.topk(2, dim=1).indices, 1.0)
    z = z.masked_fill(keep[..., None] == 0, -math.inf).flatten(1)
    at = z.topk(4, dim=1).indices
    w = s.gather(1, at)
    return w / (w.sum(1, keepdim=True) + 1e-20) * 2.5, at


def group_kernel(logits, bias, one=False, biased=False, groups=True, scale=2.5, order=False):
    s = 1 / (1 + torch.exp(-logits))
    z = s + bias
    if groups:
        best = z.reshape(-1, 4, 8).sort(-1, descending=True).values[..., : 1 if one else 2].sum(-1)
        rank = (best[:, None] > best[..., None]).sum(-1)
        z = torch.where((rank < 2).repeat_interleave(8, 1), z, -9.0)
    at = z.argsort(1, descending=True)[:, :4]
    w = (z if biased else s).gather(1, at)
    return w / w.sum(1, keepdim=True) * scale, at


add(
    "deepseek_route",
    group_route,
    lambda d: (d(40, 32), d(32, scale=0.2)),
    group_kernel,
    right={"by ranks": {}},
    wrong={
        "groups are not used": {"groups": False},
        "weights have the bias": {"biased": True},
        "not scaled": {"scale": 1.0},
        "hides: a group's score is its best one": {"one": True},
    },
)


def combine(y, w, at, tokens):
    out = torch.zeros(tokens, y.shape[1], dtype=y.dtype)
    return out.index_add(0, at, y * w[:, None])


def combine_kernel(y, w, at, tokens, weigh=True, lose=0, overwrite=False, acc=None, dirty=False):
    out = torch.zeros(tokens, y.shape[1])
    if dirty:
        out[7] = 0.01 * old(y)[7]
    n = len(y) - lose
    for i in range(n):
        row = y[i] * w[i] if weigh else y[i]
        out[at[i]] = row if overwrite else out[at[i]] + row
        out = narrow(out, acc) if acc else out
    return out


add(
    "moe_combine",
    combine,
    lambda d: (d(90, 24), d.rand(90), d.ints(30, 90), 30),
    combine_kernel,
    right={"row by row": {}, "by a matrix": lambda y, w, at, n: (F.one_hot(at, n).float() * w[:, None]).T @ y},
    wrong={
        "not weighed": {"weigh": False},
        "the last expert overwrites": {"overwrite": True},
        "hides: the last two rows are lost": {"lose": 2},
        "hides: added in bfloat16": {"acc": bf},
        "hides: one row was not cleared": {"dirty": True},
    },
)


def moe(x, gate, up, down, w, at):
    out = torch.zeros_like(x)
    for e in range(gate.shape[0]):
        rows, slot = torch.where(at == e)
        h = F.silu(x[rows] @ gate[e]) * (x[rows] @ up[e])
        out = out.index_add(0, rows, (h @ down[e]) * w[rows, slot][:, None])
    return out


def moe_kernel(x, gate, up, down, w, at, swap=False, most=None, first=False, late=0, early=False):
    out = torch.zeros_like(x)
    seen = [0] * len(gate)
    for t in range(len(x)):
        for s in range(at.shape[1]):
            e = int(at[t, s])
            seen[e] += 1
            if most and seen[e] > most:
                continue
            a, b = x[t] @ gate[e], x[t] @ up[e]
            a, b = (b, a) if swap else (a, b)
            h = a * torch.sigmoid(a) * b
            k = w[t, 0 if first else s]
            out[t] += narrow(h * k) @ down[e] if early else (h * k) @ down[(e + late) % len(down)]
    return out


add(
    "moe_swiglu",
    moe,
    lambda d: (
        d(24, 20),
        d(5, 20, 16, scale=0.3),
        d(5, 20, 16, scale=0.3),
        d(5, 16, 20, scale=0.3),
        torch.softmax(d(24, 2), 1),
        d.rand(24, 5).argsort(1)[:, :2],
    ),
    moe_kernel,
    right={
        "token by token": {},
        "in double": lambda *a: moe(*(t.double() if t.is_floating_point() else t for t in a)).float(),
    },
    wrong={
        "gate and up are swapped": {"swap": True},
        "hides: an expert takes 10 tokens at most": {"most": 10},
        "both slots have the first one's weight": {"first": True},
        "the way down is of the next expert": {"late": 1},
        "hides: the middle is rounded to bfloat16": {"early": True},
    },
)


def balance(logits, at):
    p = torch.softmax(logits, -1).mean(0)
    f = F.one_hot(at, logits.shape[1]).to(logits.dtype).sum(1).mean(0)
    return logits.shape[1] * (p * f).sum(), torch.logsumexp(logits, -1).square().mean()


add(
    "moe_balance",
    balance,
    lambda d: (d(60, 16, scale=2), d(60, 16).topk(2, 1).indices),
    lambda x, at, slots=2, n=16, square=True, rows=60: (
        n
        * (torch.softmax(x, 1).mean(0) * (at[:rows, :slots, None] == torch.arange(16)).float().sum((0, 1)) / 60).sum(),
        torch.logsumexp(x, 1).square().mean() if square else torch.logsumexp(x, 1).mean() ** 2,
    ),
    right={"by comparing": {}, "in double": lambda x, at: tuple(t.float() for t in balance(x.double(), at))},
    wrong={
        "the first slot alone": {"slots": 1},
        "the square of the mean": {"square": False},
        "hides: the last token is left out": {"rows": 59},
        "not times the experts": {"n": 1},
    },
)
