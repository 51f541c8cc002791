# SPDX-License-Identifier: Apache-2.0
"""Set S, the fourteenth: routing to experts, capacities, ways back, and their losses."""

import torch

from .blind import bf, hf, narrow
from .blind_fourteenth_base import INF, add, lanes, up, wide


def top_route(x):
    p = up(x).softmax(-1)
    w, i = p.topk(2, -1)
    return w / w.sum(-1, keepdim=True), i


def top_kernel(x, renorm="sum", k=2, shift=0.0, offset=0, kind=None, low=False):
    z = narrow(x, kind) if kind else x
    w, i = z.topk(2, -1)
    if renorm == "none":
        w = torch.exp(w - torch.logsumexp(z, -1, keepdim=True))
    elif renorm == "raw":
        w = w / w.sum(-1, keepdim=True)
    elif renorm == "eps":
        p = torch.exp(w - torch.logsumexp(z, -1, keepdim=True))
        w = p / (p.sum(-1, keepdim=True) + 1e-2)
    else:
        e = torch.exp(w - w[:, :1])
        w = e / e.sum(-1, keepdim=True)
    return (w.flip(-1) if low else w), i + offset


add(
    "top_two",
    top_route,
    lambda d: (d(60, 16, scale=1.5),),
    top_kernel,
    right={"softmax of the two": {}},
    wrong={
        "weights are not renormed": {"renorm": "none"},
        "logits are renormed, no probabilities": {"renorm": "raw"},
        "an epsilon of 0.01 in the renorm": {"renorm": "eps"},
        "logits are rounded to fp16": {"kind": hf},
        "weights belong to the other expert": {"low": True},
    },
)


def group_route(x, bias):
    s = torch.sigmoid(x)
    c = (s + bias).unflatten(-1, (4, 8))
    best = c.topk(2, -1).values.sum(-1).topk(2, -1).indices
    keep = torch.zeros(c.shape[:2], dtype=torch.bool).scatter(1, best, True)
    i = c.masked_fill(~keep[..., None], -INF).flatten(1).topk(4, -1).indices.sort(-1).values
    w = s.gather(1, i)
    return w / w.sum(-1, keepdim=True) * 2.5, i


def group_kernel(x, bias, group="two", biased=False, first=True, scale=2.5, renorm=True, soft=False, count=2):
    s = x.softmax(-1) if soft else 1 / (1 + torch.exp(-x))
    c = (s + (bias if first else 0)).unflatten(-1, (4, 8))
    g = (
        c.amax(-1)
        if group == "one"
        else c.sum(-1)
        if group == "all"
        else c.sort(dim=-1, descending=True).values[..., :2].sum(-1)
    )
    keep = torch.zeros_like(g).bool().scatter(1, g.topk(count, -1).indices, True)
    c = torch.where(keep[..., None], c, -INF).flatten(1)
    i = c.topk(4, -1).indices.sort(-1).values
    w = (c if biased else s).gather(1, i)
    return w / (w.sum(-1, keepdim=True) if renorm else 1) * scale, i


add(
    "group_limited",
    group_route,
    lambda d: (d(50, 32), d(32, scale=0.1)),
    group_kernel,
    right={"sorted groups": {}},
    wrong={
        "a group's score is its best expert's": {"group": "one"},
        "a group's score is the sum of all": {"group": "all"},
        "weights have the bias": {"biased": True},
        "the bias is left out": {"first": False},
        "the scale of 2.5 is left out": {"scale": 1.0},
        "weights are not renormed": {"renorm": False},
        "three groups are kept": {"count": 3},
    },
)


def capacity(x, e):
    hot = torch.nn.functional.one_hot(e, 6)
    place = (hot.cumsum(0) - hot).gather(1, e[:, None])[:, 0]
    kept = place < 10
    out = torch.zeros(6, 11, x.shape[1], dtype=x.dtype)
    out = out.index_put((e, place.clamp(max=10)), torch.where(kept[:, None], x, 0 * x), accumulate=True)
    return out[:, :10], torch.where(kept, place, -1)


def capacity_kernel(x, e, cap=10, start=0, last=False, keep=False, wrap=False, order=1):
    out, place = torch.zeros(6, 10, x.shape[1]), torch.full(e.shape, -1)
    seen = [start] * 6
    for t in list(range(len(e)))[::order]:
        j = int(e[t])
        at = seen[j]
        if at < cap:
            out[j, at], place[t] = x[t], at
        elif last:
            out[j, cap - 1], place[t] = x[t], cap - 1
        elif wrap:
            out[j, at % cap] = x[t]
            place[t] = at % cap
        seen[j] += 1
    return out, place


add(
    "capacity",
    capacity,
    lambda d: (d(80, 12), (d(80).abs() * 2).long().clamp(max=5)),
    capacity_kernel,
    right={"token by token": {}},
    wrong={
        "nine places": {"cap": 9},
        "what has no place takes the last one": {"last": True},
        "what has no place begins again at the first": {"wrap": True},
        "places go to the last tokens first": {"order": -1},
        "places begin at one": {"start": 1},
    },
)


def combine(y, w, at):
    rows = torch.cat([up(y), torch.zeros(1, y.shape[1], dtype=up(y).dtype)])
    return (rows[at] * up(w)[..., None]).sum(1).to(y.dtype)


def combine_kernel(y, w, at, order=False, all_=False, norm=False, kind=None, wrong_row=False, first=False):
    rows = torch.cat([y, y[-1:] if wrong_row else torch.zeros(1, y.shape[1])])
    w = w.flip(1) if order else w
    w = w / (w * (at < len(y))).sum(1, keepdim=True).clamp(min=1e-6) if norm else w
    out = torch.zeros(at.shape[0], y.shape[1])
    for j in range(1 if first else at.shape[1]):
        out = out + rows[at[:, j]] * (1 if all_ else w[:, j : j + 1])
        out = narrow(out, kind) if kind else out
    return out


add(
    "combine",
    combine,
    lambda d: (d(64, 24, dtype=bf, scale=2), d(20, 8).softmax(-1).to(bf), d.ints(80, 20, 8).clamp(max=64)),
    combine_kernel,
    dtype=bf,
    right={"one choice after the other": {}},
    wrong={
        "weights lie the other way round": {"order": True},
        "weights are left out": {"all_": True},
        "weights are renormed over what was kept": {"norm": True},
        "what was dropped reads the last row": {"wrong_row": True},
        "hides: the sum is kept in bf16": {"kind": bf},
    },
)


def balance(x, e):
    p = x.softmax(-1)
    f = torch.nn.functional.one_hot(e, x.shape[1]).to(x.dtype).sum(1).mean(0)
    return x.shape[1] * (f / e.shape[1] * p.mean(0)).sum(), torch.logsumexp(x, -1).pow(2).mean()


def balance_kernel(x, e, k=True, n=True, first=False, out=False, square=True, lost=0):
    p = torch.exp(x - torch.logsumexp(x, -1, keepdim=True))
    rows = x.shape[0] - lost
    f = torch.bincount((e[:, 0] if first else e)[:rows].flatten(), minlength=x.shape[1]) / rows
    f = f / (e.shape[1] if k else 1)
    z = torch.logsumexp(x, -1)
    mean = lanes(p.T) / x.shape[0]
    return (x.shape[1] if n else 1) * (f * mean).sum(), (z.pow(2).mean() if square else z.mean().pow(2))


add(
    "balance_losses",
    balance,
    lambda d: (d(128, 12) + torch.linspace(0, 1, 12), d.ints(12, 128, 3)),
    balance_kernel,
    right={"by counts": {}, "in double": wide(balance)},
    wrong={
        "counts are not divided by the choices": {"k": False},
        "the number of experts is left out": {"n": False},
        "only the first choice is counted": {"first": True},
        "the square is of the mean, not the mean of squares": {"square": False},
        "counts lack the last tile of 8 tokens": {"lost": 8},
    },
)


def offsets(e):
    n = torch.nn.functional.one_hot(e, 8).sum(0)
    padded = (n + 15) // 16 * 16
    return n, padded.cumsum(0) - padded


def offsets_kernel(e, pad="up", inclusive=False, skip=0, size=16):
    n = torch.bincount(e[skip:], minlength=8)
    p = (n + size - 1) // size * size if pad == "up" else n // size * size + size if pad == "more" else n
    c = p.cumsum(0)
    return n, c if inclusive else torch.cat([c.new_zeros(1), c[:-1]])


add(
    "expert_offsets",
    offsets,
    lambda d: (torch.cat([d.ints(8, 300), torch.full((3,), 2)]).index_fill(0, torch.arange(16), 7).sub(0),),
    offsets_kernel,
    right={"by bincount": {}},
    wrong={
        "not padded": {"pad": "none"},
        "sums are inclusive": {"inclusive": True},
        "the first token is not counted": {"skip": 1},
        "blocks of 32": {"size": 32},
    },
)
