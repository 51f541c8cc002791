# SPDX-License-Identifier: Apache-2.0
"""Set S, the fourteenth: orders, selections, searches and what moves by index."""

import torch

from .blind import bf
from .blind_fourteenth_base import INF, add, up


def ranks(x):
    order = x.argsort(dim=-1, stable=True)
    return (
        x.gather(-1, order),
        order,
        torch.zeros_like(order).scatter(-1, order, torch.arange(x.shape[-1]).expand_as(order)),
    )


def ranks_kernel(x, down=False, loose=False, inverse=False, block=None, value=False):
    n = x.shape[-1]
    key = -x if down else x
    less = key[:, None] < key[:, :, None]
    i = torch.arange(n)
    tie = (key[:, None] == key[:, :, None]) & ((i[None] > i[:, None]) if loose else (i[None] < i[:, None]))
    rank = (less | tie).sum(-1)
    order = torch.zeros_like(rank).scatter(-1, rank, i.expand_as(rank))
    if block:  # sorted inside of blocks alone
        order = torch.cat([ranks(x[:, j : j + block])[1] + j for j in range(0, n, block)], 1)
    return x.gather(-1, order), order, order if inverse else rank


add(
    "stable_ranks",
    ranks,
    lambda d: (torch.round(d(8, 120) * 4) / 4,),
    ranks_kernel,
    right={"by counts of lesser ones": {}},
    wrong={
        "ties are in falling order of index": {"loose": True},
        "falling": {"down": True},
        "ranks are the order itself": {"inverse": True},
        "blocks of 64 are sorted, not merged": {"block": 64},
    },
)


def best(x):
    v, i = x.sort(dim=-1, descending=True, stable=True)
    return v[:, :8], i[:, :8]


def best_kernel(x, last=False, k=8, absolute=False, least=False, skip=0, tile=None):
    n = x.shape[-1]
    z = x.abs() if absolute else -x if least else x.clone()
    if tile:
        z[:, n // tile * tile :] = -INF
    vs, ids = [], []
    for _ in range(skip + 8):
        m = z.amax(-1, keepdim=True)
        hit = z == m
        at = hit.float()
        i = n - 1 - at.flip(-1).argmax(-1) if last else at.argmax(-1)
        vs.append(x.gather(1, i[:, None])[:, 0])
        ids.append(i)
        z = z.scatter(1, i[:, None], -INF)
    return torch.stack(vs[skip:], 1), torch.stack(ids[skip:], 1)


add(
    "best_eight",
    best,
    lambda d: (torch.round(d(12, 203) * 16) / 16,),
    best_kernel,
    right={"eight times the greatest": {}},
    wrong={
        "of equal ones the last": {"last": True},
        "absolute values are compared": {"absolute": True},
        "the least": {"least": True},
        "the greatest is left out": {"skip": 1},
        "beyond the last whole tile of 64 nothing is seen": {"tile": 64},
    },
)


def edges(x, b):
    return torch.bucketize(x, b, right=True)


def edges_kernel(x, b, left=False, off=0, clamp=False):
    n = ((b[None] < x[:, None]) if left else (b[None] <= x[:, None])).sum(-1) + off
    return n.clamp(max=len(b) - 1) if clamp else n


add(
    "buckets",
    edges,
    lambda d: (torch.round(d(800) * 8) / 8, torch.arange(-2.0, 2.25, 0.25)),
    edges_kernel,
    right={"by counts": {}},
    wrong={
        "an edge belongs to the bucket below": {"left": True},
        "the last bucket is missing": {"clamp": True},
    },
)


def quantiles(x):
    return torch.quantile(x, torch.tensor([0.1, 0.5, 0.9], dtype=x.dtype), dim=-1)


def quantiles_kernel(x, n=0, how="linear", q=(0.1, 0.5, 0.9)):
    s = x.sort(-1).values
    out = []
    for p in q:
        at = p * (s.shape[-1] - 1 + n)
        lo = min(int(at), s.shape[-1] - 1)
        hi, f = min(lo + 1, s.shape[-1] - 1), at - lo
        f = {"linear": f, "lower": 0.0, "middle": 0.5, "nearest": float(round(f))}[how]
        out.append(s[:, lo] + (s[:, hi] - s[:, lo]) * f)
    return torch.stack(out)


add(
    "quantiles",
    quantiles,
    lambda d: (d(10, 98),),
    quantiles_kernel,
    right={"sorted, then between": {}},
    wrong={
        "positions are of n, not of n - 1": {"n": 1},
        "the value below": {"how": "lower"},
        "the middle of both": {"how": "middle"},
    },
)


def bag(w, i, mask):
    rows = w[i] * mask[..., None]
    return rows.sum(1) / mask.sum(1, keepdim=True).clamp(min=1), w[i].masked_fill(mask[..., None] == 0, -INF).amax(1)


def bag_kernel(w, i, mask, n=True, pad=False, zero=False, lost=0):
    m = mask.clone()
    if lost:
        m[:, -lost:] = 0
    total = torch.zeros(len(i), w.shape[1])
    for j in range(i.shape[1]):
        total = total + w[i[:, j]] * (1 if pad else m[:, j : j + 1])
    top = torch.where(mask[..., None] > 0, w[i], torch.tensor(0.0 if zero else -INF)).amax(1)
    return total / (mask.sum(1, keepdim=True).clamp(min=1) if n else i.shape[1]), top


add(
    "embedding_bags",
    bag,
    lambda d: (
        d(50, 16, shift=-1),
        d.ints(50, 30, 9),
        (d.rand(30, 9) < 0.6).float().index_fill(1, torch.tensor([0]), 1.0),
    ),
    bag_kernel,
    right={"word by word": {}},
    wrong={
        "the mean divides by the padded length": {"n": False},
        "padding counts in the sum": {"pad": True},
        "padding is zero to the maximum": {"zero": True},
        "the last two words are lost": {"lost": 2},
    },
)


def scatter(dy, i):
    return torch.zeros(40, dy.shape[1], dtype=up(dy).dtype).index_add(0, i, up(dy)).to(dy.dtype)


def scatter_kernel(dy, i, last=False, kind=None, skip=None, mean=False, once=False):
    out = torch.zeros(40, dy.shape[1])
    for t, j in enumerate(i.tolist()):
        if j == skip:
            continue
        out[j] = dy[t] if last else out[j] + dy[t]
        out[j] = out[j].to(kind).float() if kind else out[j]
    n = torch.bincount(i, minlength=40).clamp(min=1)[:, None]
    return out / n if mean else out


def scatter_hot(dy, i):
    return torch.nn.functional.one_hot(i, 40).T.float() @ dy


add(
    "embedding_backward",
    scatter,
    lambda d: (d(600, 12, dtype=bf, scale=0.01), (d(600).abs() * 12).long().clamp(max=39)),
    scatter_kernel,
    dtype=bf,
    right={"row after row": {}, "a product with ones": scatter_hot},
    wrong={
        "the last of a word's rows stays": {"last": True},
        "hides: rows are added in bf16": {"kind": bf},
        "word 0 is taken for padding": {"skip": 0},
        "divided by the word's count": {"mean": True},
    },
)


def sift(x):
    keep = x > 0.5
    order = torch.argsort((~keep).long(), stable=True)
    n = keep.sum()
    return torch.where(torch.arange(len(x)) < n, x[order], 0 * x), n


def sift_kernel(x, equal=False, lost=False, off=0, back=False):
    keep = x >= 0.5 if equal else x > 0.5
    at = keep.long().cumsum(0) - 1 + off
    out = torch.zeros(len(x) + 1)
    out[at[keep]] = x[keep].flip(0) if back else x[keep]
    if lost:  # the count of each tile begins anew
        out[: len(x)] = torch.cat([torch.cat([t[t > 0.5], 0 * t[t <= 0.5]]) for t in x.split(256)])
    return out[: len(x)], keep.sum()


add(
    "compaction",
    sift,
    lambda d: (torch.round(d(1000) * 8) / 8,),
    sift_kernel,
    right={"places by a sum": {}},
    wrong={
        "what is equal to the limit is kept": {"equal": True},
        "tiles are put together with their gaps": {"lost": True},
        "places begin one later": {"off": 1},
        "what is kept is in falling order": {"back": True},
    },
)


def histogram(x):
    return torch.bincount(((x.clamp(-3, 3) + 3) / 6 * 16).long().clamp(max=15), minlength=16)


def histogram_kernel(x, out=False, near=False, top=False, lost=0):
    y = x[: len(x) - lost]
    y = y[y.abs() <= 3] if out else y.clamp(-3, 3)
    z = (y + 3) / 6 * 16
    i = torch.round(z).long() if near else torch.floor(z).long()
    i = i % 16 if top else i.clamp(max=15)
    return (i[None] == torch.arange(16)[:, None]).sum(1)


add(
    "histogram",
    histogram,
    lambda d: (torch.cat([d(5000, scale=1.3), torch.full((3,), 3.0)]),),
    histogram_kernel,
    right={"by comparison": {}},
    wrong={
        "what lies outside is left out": {"out": True},
        "the bin is the nearest edge": {"near": True},
        "the upper edge falls into the first bin": {"top": True},
        "the last 11 elements are lost": {"lost": 11},
    },
)
