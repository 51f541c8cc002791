# SPDX-License-Identifier: Apache-2.0
"""Set S, the fourteenth: sums, means, maxima and running ones, whole, by segments, ragged; up to 100,000 elements."""

import torch

from .blind import bf, hf, narrow
from .blind_fourteenth_base import INF, add, halves, lanes, serial, trimmed, up, wide


def lse(x):
    return torch.logsumexp(x, -1)


def lse_kernel(x, tile=1000, stale=False, lost=False, total=lanes, two=False, kind=None, minus=None):
    m, s = torch.full(x.shape[:-1], -INF), torch.zeros(x.shape[:-1])
    n = x.shape[-1]
    for j in range(0, n - n % tile if lost else n, tile):
        t = x[..., j : j + tile]
        new = torch.maximum(m, t.amax(-1))
        e = torch.exp(t - new[..., None])
        e = narrow(e, kind) if kind else e
        s = s * (1 if stale else torch.exp(m - new)) + total(e)
        m = new
    return m + (torch.log1p(s) if two else torch.log(s))


def flat(d, rows, n, scale=2.0):
    x = d(rows, n, scale=scale)
    return x


add(
    "logsumexp_long",
    lse,
    lambda d: (flat(d, 3, 32100),),
    lse_kernel,
    right={"tiles of 1000, lanes": {}, "tiles of 4096": {"tile": 4096}},
    wrong={
        "the sum is not rescaled by a new maximum": {"stale": True},
        "the last tile of 2048 is lost": {"tile": 2048, "lost": True},
        "the sum's logarithm has one more": {"two": True},
        "exponentials are cut to fp8": {"kind": torch.float8_e5m2},
        "exponentials are cut to fp16": {"kind": hf},
    },
)


def softmax_long(x):
    return torch.softmax(up(x), -1).to(x.dtype)


def softmax_kernel(x, total=lanes, part=None, second=0, shift=True, kind=None):
    m = x[..., :part].amax(-1, keepdim=True) if part else x.amax(-1, keepdim=True)
    e = torch.exp(x - m)
    e = narrow(e, kind) if kind else e
    n = x.shape[-1]
    return e / (total(e[..., : n - second]) if second else total(e))[..., None]


add(
    "softmax_long",
    softmax_long,
    lambda d: (d(2, 50050, dtype=bf, scale=1.5),),
    softmax_kernel,
    dtype=bf,
    right={"lanes": {}, "pairs of halves": {"total": halves}, "a maximum of the first half": {"part": 25000}},
    wrong={
        "the sum is kept in bf16": {"total": lambda x: serial(x.unflatten(-1, (-1, 50)).sum(-1), bf)},
        "the last 2000 are not in the sum": {"second": 2000},
        "the sum overflows fp16's whole numbers": {"total": lambda x: serial(x.unflatten(-1, (-1, 25)).sum(-1), hf)},
    },
)


def variance(x):
    return x.var(-1), x.mean(-1)


def variance_kernel(x, way="two", less=1, merge=True, kind=None, shift=False):
    n = x.shape[-1]
    if way == "one":
        return (lanes(x * x) - lanes(x) ** 2 / n) / (n - less), lanes(x) / n
    if way == "parts":
        t = x.unflatten(-1, (-1, 100))
        m = t.mean(-1)
        s = ((t - m[..., None]) ** 2).sum(-1)
        mean = m.mean(-1)
        between = 100 * ((m - mean[..., None]) ** 2).sum(-1) if merge else 0
        return (s.sum(-1) + between) / (n - less), mean
    mean = lanes(x) / n
    if shift:
        mean = lanes(x[..., : n - 64]) / n
    c = x - (narrow(mean, kind) if kind else mean)[..., None]
    return lanes(c * c) / (n - less), mean


add(
    "variance_long",
    variance,
    lambda d: (torch.cat([d(3, 2500, scale=0.5, shift=20), d(3, 2500, scale=0.5, shift=20.5)], 1),),
    variance_kernel,
    right={"two passes": {}, "parts of 100, merged": {"way": "parts"}, "in double": wide(variance)},
    wrong={
        "the square of the mean is taken off": {"way": "one"},
        "parts are merged without their means": {"way": "parts", "merge": False},
        "about a mean in bf16": {"kind": bf},
        "the mean's sum lacks the last 64": {"shift": True},
        "the divisor is n": {"less": 0},
    },
)


def segments(x, ids):
    n = torch.nn.functional.one_hot(ids, 10).sum(0)
    s = torch.zeros(10, x.shape[1], dtype=x.dtype).index_add(0, ids, x)
    top = torch.full((10, x.shape[1]), -INF, dtype=x.dtype).index_reduce(0, ids, x, "amax")
    return s / n.clamp(min=1)[:, None], top


def segments_kernel(x, ids, zero=False, first=False, count=None, kind=None, skip=0, empty=-INF):
    mean, top = torch.zeros(10, x.shape[1]), torch.full((10, x.shape[1]), empty)
    for j in range(10):
        rows = x[ids == j][skip:]
        if len(rows):
            s = halves(rows.T)
            s = serial(rows.T, kind) if kind else s
            mean[j] = s / (count or len(rows) + skip)
            top[j] = rows.amax(0).clamp(min=0) if zero else rows.abs().amax(0) if first else rows.amax(0)
    return mean, top


add(
    "segment_mean_max",
    segments,
    lambda d: (d(400, 8, shift=-4), (d(400).abs() * 3.5).long().clamp(max=8)),
    segments_kernel,
    right={"segment by segment": {}},
    wrong={
        "maxima begin at zero": {"zero": True},
        "an empty segment's maximum is zero": {"empty": 0.0},
        "means divide by 40": {"count": 40},
        "sums are kept in bf16": {"kind": bf},
        "the first row of a segment is left out": {"skip": 1},
    },
)


def ragged_sum(x, lens):
    n = torch.arange(x.shape[1])[None] < lens[:, None]
    return torch.where(n, x, 0 * x).cumsum(1) * n


def ragged_kernel(x, lens, exclusive=False, carry=False, block=None, plus=0, tile=32, kind=None):
    out = torch.zeros_like(x)
    left = torch.zeros(())
    for r in range(len(x)):
        total = left if carry else torch.zeros(())
        for j in range(0, int(lens[r]) + plus, tile):
            t = x[r, j : min(j + tile, int(lens[r]) + plus)]
            if exclusive:
                c = torch.cat([torch.zeros(1), t.cumsum(0)[:-1]])
            else:
                c = t.cumsum(0)
            out[r, j : j + len(t)] = c + total
            total = t.sum() if block else total + t.sum()
            total = narrow(total, kind) if kind else total
        left = total
    return out


add(
    "ragged_cumsum",
    ragged_sum,
    lambda d: (d(6, 150, shift=0.3), torch.tensor([150, 3, 64, 97, 128, 31])),
    ragged_kernel,
    right={"tiles of 32 with a carry": {}, "tiles of 50": {"tile": 50}},
    wrong={
        "exclusive": {"exclusive": True},
        "rows carry into the next": {"carry": True},
        "a tile gets the sum of the one before alone": {"block": True},
        "the last of a row is lost": {"plus": -1},
        "the carry is kept in bf16": {"kind": bf},
    },
)


def log_running(x):
    return torch.logcumsumexp(x, -1)


def log_running_kernel(x, tile=16, first=False, kind=None, plain=False, skip=False):
    m, s = torch.full(x.shape[:-1], -INF), torch.zeros(x.shape[:-1])
    out = []
    for i in range(x.shape[-1]):
        t = x[..., i]
        new = torch.maximum(m, t)
        s = s * (1 if plain else torch.exp(m - new)) + torch.exp(t - new)
        s = narrow(s, kind) if kind else s
        m = new
        if i % tile == 0 and first:
            s, m = torch.ones_like(s), t
        out.append(m + torch.log(s))
    y = torch.stack(out, -1)
    return torch.cat([torch.full_like(y[..., :1], -INF), y[..., :-1]], -1) if skip else y


add(
    "log_cumsum_exp",
    log_running,
    lambda d: (d(8, 90, scale=3),),
    log_running_kernel,
    right={"a running maximum": {}},
    wrong={
        "each tile of 16 begins anew": {"first": True},
        "the sum is not rescaled": {"plain": True},
        "the sum is kept in bf16": {"kind": bf},
        "exclusive": {"skip": True},
    },
)


def dot(a, b):
    return (up(a) * up(b)).sum(-1)


add(
    "dot_long",
    dot,
    lambda d: (d(2, 100000), d(2, 100000, shift=0.05)),
    lambda a, b, total=lambda x: lanes(x, 512), bits=None, n=100000: total(
        (trimmed(a * b, bits) if bits else a * b)[..., :n]
    ),
    right={"512 lanes": {}, "halves": {"total": halves}, "in double": wide(dot)},
    wrong={
        "products are rounded to bf16": {"total": lambda x: lanes(narrow(x))},
        "lanes are kept in fp16": {
            "total": lambda x: serial(x.unflatten(-1, (-1, 1000)).transpose(-1, -2), hf).sum(-1)
        },
        "the last 32 are lost": {"n": 99968},
        "products keep 16 bits": {"bits": 16},
        "hides: products keep 19 bits": {"bits": 19},
    },
)


def pool(x, mask):
    w = mask.to(up(x).dtype)
    return ((up(x) * w[..., None]).sum(1) / w.sum(1, keepdim=True).clamp(min=1e-9)).to(x.dtype)


def pool_kernel(x, mask, all_=False, ends=False, first=False, kind=None):
    m = mask.float()
    if ends:  # the end of a sequence is left out as well
        m = m * torch.cat([m[:, 1:], torch.zeros(len(m), 1)], 1)
    s = torch.zeros(len(x), x.shape[2])
    for t in range(x.shape[1]):
        s = s + x[:, t] * m[:, t : t + 1]
        s = narrow(s, kind) if kind else s
    return x[:, 0] if first else s / (x.shape[1] if all_ else m.sum(1, keepdim=True))


add(
    "masked_mean",
    pool,
    lambda d: (
        d(8, 40, 24, dtype=hf, shift=0.3),
        torch.arange(40)[None] < torch.tensor([40, 3, 17, 25, 39, 8, 30, 12])[:, None],
    ),
    pool_kernel,
    dtype=hf,
    right={"one after the other": {}},
    wrong={
        "the mean divides by the padded length": {"all_": True},
        "the last of a sequence is left out": {"ends": True},
        "the first token instead of the mean": {"first": True},
        "the sum is kept in bf16": {"kind": bf},
    },
)


def nan_stats(x):
    ok = ~torch.isnan(x)
    n = ok.sum(-1)
    return torch.nansum(x, -1) / n, torch.where(ok, x, torch.full_like(x, -INF)).amax(-1)


def nan_kernel(x, n=False, plain=False, top=False, inf=False):
    ok = torch.isfinite(x) if inf else x == x
    y = torch.where(ok, x, 0 * torch.ones(()))
    mean = lanes(y) / (x.shape[-1] if n else ok.sum(-1))
    return mean, (y if top else torch.where(ok, x, -INF)).amax(-1)


def with_nans(d):
    x = d(12, 90, shift=-4)
    x[d.rand(12, 90) < 0.1] = float("nan")
    x[3, 5] = INF
    return x


add(
    "nan_means",
    nan_stats,
    lambda d: (with_nans(d),),
    nan_kernel,
    right={"lanes": {}},
    wrong={
        "the mean divides by all": {"n": True},
        "missing ones are zero to the maximum": {"top": True},
        "infinite ones are left out, too": {"inf": True},
    },
)


def cosine(a, b):
    n = lambda t: t.pow(2).sum(-1).sqrt().clamp(min=1e-8)
    return (a * b).sum(-1) / (n(a) * n(b))


def cosine_kernel(a, b, one=False, square=False, root=True, eps=0.0, kind=None, lost=0):
    k = a.shape[-1] - lost
    s, p, q = lanes((a * b)[..., :k]), lanes(a * a), lanes(b * b)
    d = p * q if not root else p if one else torch.sqrt(p * q) + eps
    return s / d


add(
    "cosine",
    cosine,
    lambda d: (d(120, 200, scale=0.05), d(120, 200, scale=0.05)),
    cosine_kernel,
    right={"one root": {}, "in double": wide(cosine)},
    wrong={
        "divided by the first's square": {"one": True},
        "no root": {"root": False},
        "an epsilon of 1e-3 is added": {"eps": 1e-3},
        "the last eight are lost": {"lost": 8},
    },
)
