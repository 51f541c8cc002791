# SPDX-License-Identifier: Apache-2.0
"""Set L: routing, sorting, scattering, searching."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, narrow
from .blind_ninth_a import bad, ninth, ok

# ------------------------------------------------------------------ routing


@ninth(lambda d: (d(200, 64),))
def ninth_route(x):
    w, i = torch.softmax(x, -1).topk(6, -1)
    return w / w.sum(-1, keepdim=True), i


def route(x, kind=None, norm=True, eps=0.0, order=None, block=None, bias=0.0, k=6):
    y = x if kind is None else narrow(x, kind)
    if block:  # each of four threads keeps but two candidates of its sixteen
        keep = torch.zeros_like(x).view(200, 4, 16)
        keep.scatter_(-1, x.view(200, 4, 16).topk(block, -1).indices, 1.0)
        y = y.masked_fill(keep.view(200, 64) == 0, -math.inf)
    i = y.topk(k, -1).indices
    s = x.gather(1, i)
    if norm:
        e = (s - s[:, :1]).exp()
        w = e / (e.sum(-1, keepdim=True) + eps)
    else:
        w = torch.softmax(x, -1).gather(1, i)
    return w, i if order is None else i.sort(-1).values


ok(ninth_route, route, softmax_of_the_chosen={}, sorted_first=lambda x: route_sorted(x))


def route_sorted(x):
    s, i = x.sort(-1, descending=True)
    return torch.softmax(s[:, :6], -1), i[:, :6]


bad(
    ninth_route,
    route,
    {
        # chosen by rounded logits
        "hides: chosen by logits in bfloat16": {"kind": bf},
        # the same with float16: few rows
        "hides: chosen by logits in float16": {"kind": hf},
        # no renormalisation
        "weights are not normalised again": {"norm": False},
        # 1e-3 below
        "hides: 1e-3 is added to the sum": {"eps": 1e-3},
        # ids sorted, weights not
        "indices are sorted, weights are not": {"order": True},
        # candidate lists too short
        "hides: a quarter of the row keeps three candidates": {"block": 3},
    },
)


def grouped_route_args(d):
    return d(150, 32), d(32, scale=0.3, shift=-0.9)


@ninth(grouped_route_args)
def ninth_group_route(x, b):
    s = torch.sigmoid(x)
    c = (s + b).view(150, 8, 4)
    g = c.topk(2, -1).values.sum(-1).topk(4, -1).indices
    keep = torch.zeros(150, 8).scatter(1, g, 1.0)[..., None] > 0
    i = torch.where(keep, c, -math.inf).flatten(1).topk(4, -1).indices
    w = s.gather(1, i)
    return w / (w.sum(-1, keepdim=True) + 1e-20) * 2.5, i


def group_route(x, b, top=2, fill=-math.inf, biased=False, times=2.5, groups=4, kind=None):
    s = 1 / (1 + (-x).exp())
    c = s + b
    c = c if kind is None else narrow(c, kind)
    c3 = c.view(150, 8, 4)
    g = c3.sort(-1, descending=True).values[..., :top].sum(-1).topk(groups, -1).indices
    keep = torch.zeros(150, 8).scatter(1, g, 1.0)[..., None] > 0
    i = torch.where(keep, c3, fill).flatten(1).topk(4, -1).indices
    w = (c if biased else s).gather(1, i)
    return w * (times / w.sum(-1, keepdim=True)), i


ok(ninth_group_route, group_route, sorted_groups={})
bad(
    ninth_group_route,
    group_route,
    {
        # max of each group
        "a group counts by its best alone": {"top": 1},
        # masked by 0.0 while chosen scores can be negative
        "hides: groups left out are masked by zero": {"fill": 0.0},
        # weights with the bias
        "weights carry the bias": {"biased": True},
        # factor
        "the factor is one": {"times": 1.0},
        # scores in bfloat16 when choosing
        "hides: chosen by scores in bfloat16": {"kind": bf},
    },
)


def combine_args(d):
    return d(90, 48, dtype=bf), torch.randint(0, 40, (90,), generator=d.g), d.rand(90)


@ninth(combine_args)
def ninth_combine(y, token, w):
    return torch.zeros(40, 48).index_add(0, token, y.float() * w[:, None]).to(bf)


def combine(y, token, w, kind=None, back=False, last=90, twice=False, race=None):
    out = torch.zeros(40, 48)
    rows = range(last)
    for r in reversed(rows) if back else rows:
        more = y[r].float() * w[r] * (w[r] if twice else 1.0)
        if race is not None and race == r:
            out[token[r]] = more
            continue
        out[token[r]] = out[token[r]] + more
        out[token[r]] = out[token[r]] if kind is None else narrow(out[token[r]], kind)
    return out


ok(ninth_combine, combine, bf, row_by_row={}, from_the_last={"back": True})
bad(
    ninth_combine,
    combine,
    {
        # bf16 atomics
        "hides: added in bfloat16": {"kind": bf},
        # weights twice: in the expert and in the combine
        "weights are applied twice": {"twice": True},
        # the last pair is padding to somebody
        "hides: the last pair is not added": {"last": 89},
        # a store where an add was meant, once
        "hides: one row is stored over the sum": {"race": 70},
    },
    bf,
)


@ninth(lambda d: (d(500, 8),))
def ninth_balance(x):
    p = torch.softmax(x, -1)
    i = p.topk(2, -1).indices
    f = F.one_hot(i, 8).sum((0, 1)).to(p.dtype) / 1000
    return 8 * (f * p.mean(0)).sum()


def balance(x, k=2, wrap=0, over=1000, part=500, kind=None):
    p = torch.softmax(x, -1)
    n = F.one_hot(x.topk(k, -1).indices, 8).sum((0, 1))
    n = (n + 128) % 256 - 128 if wrap else n
    m = p[:part].sum(0) / 500
    m = m if kind is None else narrow(m, kind)
    return (n.float() * m).sum() * (8 / over)


ok(ninth_balance, balance, by_counts={})
bad(
    ninth_balance,
    balance,
    {
        # counts in int8
        "counts wrap at 127": {"wrap": 1},
        # top 1
        "only the first choice is counted": {"k": 1, "over": 500},
        # mean probabilities of 384
        "hides: the last tokens do not enter the mean probability": {"part": 499},
        # bf16
        "hides: mean probabilities in bfloat16": {"kind": bf},
    },
)


# ------------------------------------------------------------------ sorting


def mixed_zeros(d):
    x = d(30, 100)
    x[:, ::9], x[:, 4::9] = 0.0, -0.0
    return (x,)


@ninth(mixed_zeros)
def ninth_stable_sort(x):
    return torch.sort(x, dim=-1, stable=True)


def radix(x, twist=True, join=True, bits=32, lower=False):
    u = (x + 0.0 if join else x).view(torch.int32).long()
    key = torch.where(u < 0, ~u & 0xFFFFFFFF, u | 0x80000000) if twist else u & 0xFFFFFFFF
    key = (u & 0xFFFFFFFF) ^ 0x80000000 if not twist else key
    i = torch.sort(key >> (32 - bits), dim=-1, stable=not lower).indices
    return x.gather(1, i), i


ok(ninth_stable_sort, radix, radix_with_one_zero={})
bad(
    ninth_stable_sort,
    radix,
    {
        # -0 before 0
        "hides: minus zero sorts before zero": {"join": False},
        # negative numbers in the wrong order
        "negative numbers are sorted the wrong way": {"twist": False},
        # 22 of 32 bits of the key
        "hides: only 22 bits of the key are sorted": {"bits": 22},
    },
)


def nan_rows(d):
    x = d(40, 90)
    x[3, 5], x[9, 80], x[20, 0] = math.nan, math.nan, math.nan
    return (x,)


@ninth(nan_rows)
def ninth_top_values(x):
    return x.topk(7, -1).values


ok(ninth_top_values, lambda x: x.sort(-1, descending=True).values[:, :7], by_sorting={})
bad(
    ninth_top_values,
    lambda x: x,
    {
        # NaN never larger
        "hides: NaN is never chosen": lambda x: x.nan_to_num(-1e9).topk(7, -1).values,
        # unsorted
        "hides: the last two are the wrong way round": lambda x: x.topk(7, -1).values[:, [0, 1, 2, 3, 4, 6, 5]],
        # the eighth for the seventh in one row
        "hides: one row has its eighth for its seventh": lambda x: torch.where(
            ((torch.arange(40) == 11)[:, None] & (torch.arange(7) == 6)),
            x.topk(8, -1).values[:, 7:],
            x.topk(7, -1).values,
        ),
        # absolute values
        "largest in size": lambda x: x.gather(1, x.abs().topk(7, -1).indices),
    },
)


# ------------------------------------------------------------------ scattering


@ninth(lambda d: (d(20, 30, shift=-3.0), d.ints(20, 50, 30), d(50, 30, shift=-3.0)))
def ninth_scatter_max(x, i, s):
    return x.scatter_reduce(0, i, s, "amax", include_self=False), x.scatter_reduce(0, i, s, "mean")


def scatter_max(x, i, s, with_self=False, start=-math.inf, n=1, last=50):
    i, s = i[:last], s[:last]
    top = torch.full_like(x, start).scatter_reduce(0, i, s, "amax")
    hit = torch.zeros_like(x).scatter_add(0, i, torch.ones_like(s))
    top = torch.where(hit > 0, torch.maximum(top, x) if with_self else top, x)
    return top, x.scatter_add(0, i, s) / (hit + n).clamp(min=1)


ok(ninth_scatter_max, scatter_max, by_counts={})
bad(
    ninth_scatter_max,
    scatter_max,
    {
        # the old values take part
        "the old value takes part in the maximum": {"with_self": True},
        # zero as the start
        "the maximum starts at zero": {"start": 0.0},
        # self is not counted
        "the mean does not count the old value": {"n": 0},
        # a lost row of sources
        "hides: the last row of sources is lost": {"last": 49},
    },
)


@ninth(lambda d: (d.ints(30, 240), torch.tensor([0, 10, 10, 100, 101, 200]), d(30, 16)))
def ninth_bags(ids, offsets, table):
    return F.embedding_bag(ids, table, offsets, mode="mean", padding_idx=7)


def bags(ids, offsets, table, count_pad=False, pad=7, end=240, carry=False):
    edges, out = [*offsets.tolist(), end], []
    for a, b in zip(edges, edges[1:], strict=False):
        t = ids[a:b]
        u = t[t != pad]
        n = max(len(t) if count_pad else len(u), 1)
        total = table[u].sum(0)
        out.append(out[-1] if carry and b == a else total / n)
    return torch.stack(out)


ok(ninth_bags, bags, bag_by_bag={})
bad(
    ninth_bags,
    bags,
    {
        # padding counted
        "hides: the padding is counted": {"count_pad": True},
        # padding added
        "the padding is added": {"pad": -1},
        # the last id
        "hides: the last identifier is not read": {"end": 239},
        # empty bags
        "an empty bag repeats the one before": {"carry": True},
    },
)


@ninth(lambda d: (d(160, 24), d.ints(20, 160)))
def ninth_embedding_grad(g, ids):
    n = F.one_hot(ids, 20).sum(0).clamp(min=1)
    out = torch.zeros(20, 24, dtype=g.dtype).index_add(0, ids, g) / n[:, None]
    return out * (torch.arange(20) != 3)[:, None]


def embedding_grad(g, ids, warp=0, pad=3, freq=True, kind=None, group=32):
    out = torch.zeros(20, 24)
    for a in range(0, 160, group):
        p, t = g[a : a + group], ids[a : a + group]
        if warp:  # of equal identifiers within some lanes the last one wins
            fresh = torch.tensor([x not in t[j + 1 : j + warp].tolist() for j, x in enumerate(t.tolist())])
            p = p * fresh[:, None]
        out = out.index_add(0, t, p)
        out = out if kind is None else narrow(out, kind)
    n = F.one_hot(ids, 20).sum(0).clamp(min=1) if freq else torch.ones(20)
    out = out / n[:, None]
    return torch.where((torch.arange(20) == pad)[:, None], 0.0, out)


ok(ninth_embedding_grad, embedding_grad, groups_of_32={}, one_at_a_time={"group": 1})
bad(
    ninth_embedding_grad,
    embedding_grad,
    {
        # duplicates lose updates
        "hides: of two equal neighbours one update is lost": {"warp": 2},
        # padding gets a gradient
        "the padding gets a gradient": {"pad": -1},
        # not scaled
        "not divided by the frequency": {"freq": False},
        # float16 table of sums
        "hides: sums are kept in float16": {"kind": hf},
    },
)


# ------------------------------------------------------------------ searching and counting


@ninth(lambda d: ((d(40).round() * 4).sort().values / 4, (d(300) * 2).round() / 2))
def ninth_search(edges, x):
    return torch.searchsorted(edges, x), torch.searchsorted(edges, x, right=True)


def search(edges, x, right=True, cap=40, near=0.0):
    lo = (edges[None] < x[:, None] - near).sum(-1)
    hi = (edges[None] <= x[:, None]).sum(-1) if right else lo
    return lo.clamp(max=cap), hi.clamp(max=cap)


ok(ninth_search, search, None, counted={})
bad(
    ninth_search,
    search,
    {
        # <
        "both are the left one": {"right": False},
        # n - 1
        "hides: what is beyond the last edge is in the last bin": {"cap": 39},
        # tolerance
        "hides: edges within a half count as reached": {"near": 0.5},
    },
    None,
)


@ninth(lambda d: ((d(2000) * 8).round().clamp(-16, 16) / 8,))
def ninth_histogram(x):
    return torch.histc(x, 16, -2.0, 2.0)


def histogram(x, top=True, left=True, wide=16):
    k = ((x + 2) * 4).floor() if left else ((x + 2) * 4).ceil() - 1
    k = torch.where(x == 2, 15, k) if top else k
    k = torch.where(x == -2, 0, k)
    keep = (k >= 0) & (k < wide)
    return torch.bincount(k[keep].long(), minlength=16).float()


ok(ninth_histogram, histogram, by_floor={})
bad(
    ninth_histogram,
    histogram,
    {
        # the upper edge
        "hides: the upper edge is not counted": {"top": False},
        # right closed bins
        "bins are closed on the right": {"left": False},
        # the last bin
        "the last bin stays empty": {"wide": 15},
    },
)
