# SPDX-License-Identifier: Apache-2.0
"""Set R, the thirteenth: indexing, sorting, whole numbers, ragged rows and graphs."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, narrow
from .blind_thirteenth_a import A, add, but, old, serial

# ------------------------------------------------------------------ indexing


def embedding_back(g, at, rows, pad, scale, skip=True, acc=None, once=False, count=False, lose=0):
    out = torch.zeros(rows, g.shape[-1])
    f, a = g.float().flatten(0, -2), at.flatten()
    n = torch.bincount(a, minlength=rows)
    for i in range(len(a) - lose):
        r = int(a[i])
        if skip and r == pad:
            continue
        out[r] = f[i] if once else out[r] + f[i] / (n[r] if count else 1)
        out[r] = narrow(out[r], acc) if acc else out[r]
    return out


add(
    "embedding_backward",
    A.embedding_dense_backward.default,
    lambda d: (d(4, 30, 16), d.ints(12, 4, 30), 15, 3, False),
    embedding_back,
    right={
        "one by one": {},
        "by a matrix": lambda g, at, n, pad, _: (
            (F.one_hot(at.flatten(), n).float() * (torch.arange(n) != pad)).T @ g.flatten(0, 1)
        ),
    },
    wrong={
        "the padding has a gradient": {"skip": False},
        "the last overwrites": {"once": True},
        "divided by how often": {"count": True},
        "hides: the last is lost": {"lose": 1},
        "hides: added in bfloat16": {"acc": bf},
    },
)

add(
    "index_add",
    lambda x, at, y: A.index_add.default(x, 0, at, y, alpha=0.5),
    lambda d: (d(12, 20, dtype=hf), d.ints(10, 60), d(60, 20, dtype=hf)),
    lambda x, at, y, alpha=0.5, keep=1, n=60: (
        keep * x.float() + alpha * F.one_hot(at[:n], 12).float().T @ y.float()[:n]
    ),
    right={"a matrix": {}},
    wrong={
        "alpha is left out": {"alpha": 1.0},
        "what was there is lost": {"keep": 0},
        "hides: the last 4 of 60 are left out": {"n": 56},
        "hides: the last row of equals alone": lambda x, at, y: x.float().index_copy(
            0, at, x.float()[at] + 0.5 * y.float()
        ),
    },
    dtype=hf,
)


def scatter_kernel(x, dim, at, src, how, own=True, start=-math.inf, over=None, lose=0):
    out = x.clone() if own else torch.full_like(x, start)
    for i in range(at.shape[0] - lose):
        for j in range(at.shape[1]):
            r = int(at[i, j])
            out[r, j] = src[i, j] if over else torch.maximum(out[r, j], src[i, j])
    return out


add(
    "scatter_amax",
    A.scatter_reduce.two,
    lambda d: (d(8, 10), 0, d.ints(6, 20, 10), d(20, 10), "amax"),
    scatter_kernel,
    right={"one by one": {}},
    wrong={
        "the last overwrites": {"over": True},
        "what was there is not looked at": lambda *a: torch.where(
            scatter_kernel(*a, own=False) == -math.inf, a[0], scatter_kernel(*a, own=False)
        ),
        "hides: begins at zero": lambda x, *k: scatter_kernel(x, *k).clamp(min=0.0),
        "hides: the last row is left out": {"lose": 1},
    },
)


def scatter_mean(x, dim, at, src, how, own=1, floor=False, plus=0):
    one = F.one_hot(at, x.shape[0]).to(src.dtype)
    n = one.sum(0).T + own
    total = torch.einsum("ijr,ij->rj", one, src) + own * x
    return torch.where(n > own, total / (n + plus), x if own else x)


add(
    "scatter_mean",
    A.scatter_reduce.two,
    lambda d: (d(8, 10), 0, d.ints(7, 20, 10), d(20, 10), "mean"),
    scatter_mean,
    right={"by a matrix": {}},
    wrong={
        "what was there does not count": {"own": 0},
        "sums": lambda x, dim, at, src, how: x.scatter_add(0, at, src),
        "hides: one more is counted": {"plus": 1},
    },
)

add(
    "gather",
    A.gather.default,
    lambda d: (d(6, 30, 8, dtype=bf), 1, d.ints(30, 6, 12, 8)),
    right={
        "by hand": lambda x, _, at: torch.stack(
            [torch.stack([x[b, at[b, :, c], c] for c in range(8)], 1) for b in range(6)]
        )
    },
    wrong={
        "the first lane's index for all": lambda x, _, at: x.gather(1, at[..., :1].expand(-1, -1, 8)),
        "hides: an index of 29 is 28": lambda x, _, at: x.gather(1, at.clamp(max=28)),
        "hides: the last row is of a call before": lambda x, _, at: but((5, 11), of=old)(x.gather)(1, at),
        "an index late": lambda x, _, at: x.gather(1, (at - 1).clamp(min=0)),
    },
)

add(
    "index_put",
    lambda x, at, v: A.index_put.default(x, [at], v, True),
    lambda d: (d(15, 6), d.ints(10, 40), d(40, 6)),
    lambda x, at, v, n=40, keep=True: (
        (x if keep else 0 * x)
        + torch.stack([serial(v[:n][at[:n] == r].T) if (at[:n] == r).any() else torch.zeros(6) for r in range(15)])
    ),
    right={
        "row by row": {},
        "in double": lambda x, at, v: x.double().index_put((at,), v.double(), accumulate=True).float(),
    },
    wrong={
        "the last of equals is written": lambda x, at, v: x.index_put((at,), v),
        "what was there is lost": {"keep": False},
        "hides: the last 8 are lost": {"n": 32},
    },
)


def masked_scatter(x, mask, src):
    return x.masked_scatter(mask, src)


add(
    "masked_scatter",
    masked_scatter,
    lambda d: (d(9, 14), d.rand(9, 14) < 0.4, d(126)),
    right={
        "by a running count": lambda x, m, s: torch.where(
            m, s[(m.flatten().cumsum(0) - 1).clamp(min=0)].reshape(9, 14), x
        )
    },
    wrong={
        "the source's own place": lambda x, m, s: torch.where(m, s.reshape(9, 14), x),
        "the count is one late": lambda x, m, s: torch.where(m, s[m.flatten().cumsum(0)].reshape(9, 14), x),
        "hides: the last row is not written": lambda x, m, s: but(8, of=lambda y: x[8])(masked_scatter)(x, m, s),
    },
)

# ------------------------------------------------------------------ sorting

add(
    "topk",
    A.topk.default,
    lambda d: (d(16, 90), 7, 1, True, True),
    lambda x, k, *_, n=90, by=lambda x: x: (lambda at: (x.gather(1, at), at))(
        torch.argsort(by(x[:, :n]), dim=1, descending=True)[:, :k]
    ),
    right={"sorted": {}},
    wrong={
        "the least": {"by": torch.neg},
        "of the magnitude": {"by": torch.abs},
        "hides: the last 2 are not looked at": {"n": 88},
        "hides: keys are in bfloat16": {"by": lambda x: narrow(x)},
    },
)

add(
    "sort_stable",
    lambda x: A.sort.stable(x, stable=True, dim=1, descending=True),
    lambda d: (d.ints(9, 12, 40).float() - 4,),
    right={
        "by a unique key": lambda x: (lambda at: (x.gather(1, at), at))(
            torch.argsort(x * 100 - torch.arange(40), dim=1, descending=True)
        )
    },
    wrong={
        "ascending": lambda x: torch.sort(x, dim=1, stable=True),
        "hides: equals are turned round": lambda x: (lambda at: (x.gather(1, at), at))(
            torch.argsort(x * 100 + torch.arange(40), dim=1, descending=True)
        ),
        "indices are places in the order": lambda x: (
            torch.sort(x, dim=1, descending=True).values,
            torch.argsort(torch.sort(x, dim=1, descending=True, stable=True).indices, dim=1),
        ),
    },
)

add(
    "searchsorted",
    lambda s, v: A.searchsorted.Tensor(s, v, right=True),
    lambda d: (d.ints(30, 5, 40).float().sort(1).values, d.ints(32, 5, 25).float() - 1),
    right={"counted": lambda s, v: (s[:, None] <= v[..., None]).sum(-1)},
    wrong={
        "from the left": lambda s, v: torch.searchsorted(s, v),
        "hides: no more than the last place": lambda s, v: torch.searchsorted(s, v, right=True).clamp(max=39),
        "all rows use the first": lambda s, v: torch.searchsorted(s[0], v, right=True),
        "hides: the last place is not looked at": lambda s, v: torch.searchsorted(
            s[:, :39].contiguous(), v, right=True
        ),
    },
)

add(
    "kthvalue",
    A.kthvalue.default,
    lambda d: (d(14, 50), 9, 1),
    right={"sorted": lambda x, k, _: tuple(t[:, k - 1] for t in torch.sort(x, dim=1))},
    wrong={
        "counted from zero": lambda x, k, _: tuple(t[:, k] for t in torch.sort(x, dim=1)),
        "from above": lambda x, k, _: tuple(t[:, -k] for t in torch.sort(x, dim=1)),
        "hides: the last 2 are not looked at": lambda x, k, _: tuple(t[:, k - 1] for t in torch.sort(x[:, :48], dim=1)),
    },
)

add(
    "bincount",
    A.bincount.default,
    lambda d: (d.ints(20, 400), d(400), 24),
    lambda x, w, n, k=400, weigh=True: F.one_hot(x[:k], n).float().T @ (w[:k] if weigh else torch.ones(k)),
    right={"a matrix": {}, "in double": lambda x, w, n: torch.bincount(x, w.double(), n).float()},
    wrong={
        "not weighed": {"weigh": False},
        "hides: the last 16 are lost": {"k": 384},
        "hides: added in half": lambda x, w, n: torch.stack(
            [serial(w[x == i], hf) if (x == i).any() else torch.tensor(0.0) for i in range(n)]
        ),
    },
)

# ------------------------------------------------------------------ whole numbers and bits

add(
    "floor_divide_int",
    A.floor_divide.default,
    lambda d: (d.ints(2000, 20, 30) - 1000, torch.where(d.rand(20, 30) < 0.5, -1, 1) * (d.ints(30, 20, 30) + 1)),
    right={"by the remainder": lambda a, b: (a - torch.remainder(a, b)) // b},
    wrong={
        "towards zero": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
        "to the nearest": lambda a, b: torch.round(a.double() / b).long(),
        "hides: one less where it is negative and whole": lambda a, b: a // b - ((a % b == 0) & (a // b < 0)).long(),
    },
)

add(
    "mul_int32",
    A.mul.Tensor,
    lambda d: ((d.ints(200000, 20, 30) - 100000).int(), (d.ints(200000, 20, 30) - 100000).int()),
    right={"in long": lambda a, b: ((a.long() * b.long() + 2**31) % 2**32 - 2**31).int()},
    wrong={
        "it saturates": lambda a, b: (a.long() * b.long()).clamp(-(2**31), 2**31 - 1).int(),
        "in single": lambda a, b: (((a.float() * b.float()).long() + 2**31) % 2**32 - 2**31).int(),
        "hides: 24 bits of each": lambda a, b: ((((a.long() & ~1) * b.long()) + 2**31) % 2**32 - 2**31).int(),
    },
)

add(
    "shift_right",
    A.bitwise_right_shift.Tensor,
    lambda d: ((d.ints(2**31 - 1, 300) - 2**30).int(), d.ints(20, 300).int()),
    right={"by floor": lambda a, n: torch.floor(a.double() / 2.0 ** n.double()).int()},
    wrong={
        "zeros come in": lambda a, n: ((a.long() & 0xFFFFFFFF) >> n).int(),
        "towards zero": lambda a, n: torch.trunc(a.double() / 2.0 ** n.double()).int(),
        "hides: shifts of 16 and more are of 15": lambda a, n: a >> n.clamp(max=15),
    },
)


def unpack(words):
    return torch.stack([(words >> (3 * k)) & 7 for k in range(10)], -1).flatten(-2) - 4


add(
    "unpack_three_bits",
    unpack,
    lambda d: (d.ints(2**30, 12, 8).int(),),
    right={"by division": lambda w: (torch.stack([w.long() // 8**k % 8 for k in range(10)], -1).flatten(-2) - 4).int()},
    wrong={
        "from the top": lambda w: torch.stack([(w >> (27 - 3 * k)) & 7 for k in range(10)], -1).flatten(-2) - 4,
        "hides: the last has two bits": lambda w: (
            torch.stack([(w >> (3 * k)) & (3 if k == 9 else 7) for k in range(10)], -1).flatten(-2) - 4
        ),
        "the zero is 3": lambda w: unpack(w) + 1,
    },
)

# ------------------------------------------------------------------ ragged rows and graphs


def pad_rows(values, offsets, fill):
    n = offsets[1:] - offsets[:-1]
    out = torch.full((len(n), 9, values.shape[1]), fill, dtype=values.dtype)
    seen = torch.arange(9) < n[:, None]
    at = (offsets[:-1, None] + torch.arange(9)).clamp(max=len(values) - 1)
    return torch.where(seen[..., None], values[at], out)


def pad_kernel(values, offsets, fill, shift=0, most=9, left=False, blank=None):
    out = torch.full((len(offsets) - 1, 9, values.shape[1]), fill if blank is None else blank)
    c = offsets.tolist()
    for i, (a, b) in enumerate(zip(c[:-1], c[1:])):
        part = values[a + shift : b + shift][:most]
        if left:
            out[i, 9 - len(part) :] = part
        else:
            out[i, : len(part)] = part
    return out


add(
    "jagged_to_padded",
    pad_rows,
    lambda d: (d(40, 6), torch.tensor([0, 5, 5, 14, 22, 23, 31, 40]), -2.0),
    pad_kernel,
    right={"row by row": {}},
    wrong={
        "padded from the left": {"left": True},
        "hides: rows have 8 at most": {"most": 8},
        "padded by nothing": {"blank": 0.0},
        "an offset late": {"shift": 1},
    },
)


def jagged_softmax(v, offsets):
    ids = torch.searchsorted(offsets, torch.arange(len(v)), right=True) - 1
    n = len(offsets) - 1
    top = torch.full((n,), -math.inf, dtype=v.dtype).scatter_reduce(0, ids, v, "amax")
    e = torch.exp(v - top[ids])
    return e / torch.zeros(n, dtype=v.dtype).index_add(0, ids, e)[ids]


add(
    "jagged_softmax",
    jagged_softmax,
    lambda d: (d(120, scale=4), torch.tensor([0, 1, 30, 30, 77, 120])),
    lambda v, o, most=1000, plus=0: torch.cat(
        [
            torch.exp(v[a:b] - v[a:b].max()) / torch.exp(v[a : min(b + plus, a + most)] - v[a:b].max()).sum()
            if b > a
            else v[:0]
            for a, b in zip(o.tolist()[:-1], o.tolist()[1:])
        ]
    ),
    right={"row by row": {}},
    wrong={
        "hides: sums have 40 at most": {"most": 40},
        "hides: the sum has the next row's first": {"plus": 1},
        "over everything": lambda v, o: torch.softmax(v, 0),
    },
)


def gat(h, src, dst, a, b):
    e = F.leaky_relu((h @ a)[src] + (h @ b)[dst], 0.2)
    top = torch.full((h.shape[0],), -math.inf, dtype=h.dtype).scatter_reduce(0, dst, e, "amax")
    w = torch.exp(e - top[dst])
    total = torch.zeros(h.shape[0], dtype=h.dtype).index_add(0, dst, w)
    return torch.zeros_like(h).index_add(0, dst, h[src] * (w / total[dst])[:, None])


def gat_kernel(h, src, dst, a, b, slope=0.2, flip=False, norm=True, lose=0):
    src, dst = (dst, src) if flip else (src, dst)
    out = torch.zeros_like(h)
    for i in range(h.shape[0]):
        s = src[dst == i]
        s = s[: len(s) - lose] if len(s) > 4 else s
        if len(s):
            z = (h @ a)[s] + (h @ b)[i]
            z = torch.where(z > 0, z, slope * z)
            out[i] = (torch.softmax(z, 0) if norm else torch.exp(z)) @ h[s]
    return out


add(
    "gat",
    gat,
    lambda d: (d(20, 12), d.ints(20, 80), d.ints(18, 80), d(12), d(12)),
    gat_kernel,
    right={"node by node": {}},
    wrong={
        "edges are the other way": {"flip": True},
        "not normed": {"norm": False},
        "hides: of many neighbours the last is lost": {"lose": 1},
        "hides: the slope is 0.21": {"slope": 0.21},
    },
)


def gcn(x, src, dst, w):
    n = x.shape[0]
    src, dst = torch.cat([src, torch.arange(n)]), torch.cat([dst, torch.arange(n)])
    deg = torch.zeros(n, dtype=x.dtype).index_add(0, dst, torch.ones(len(dst), dtype=x.dtype))
    k = deg.rsqrt()[src] * deg.rsqrt()[dst]
    return torch.zeros(n, w.shape[1], dtype=x.dtype).index_add(0, dst, (x @ w)[src] * k[:, None])


def gcn_kernel(x, src, dst, w, own=1.0, mean=False, out=False, lose=0):
    m = torch.zeros(20, 20)
    for s, t in list(zip(src.tolist(), dst.tolist()))[: len(src) - lose]:
        m[t, s] += 1
    m = m + own * torch.eye(20)
    deg = m.sum(0 if out else 1)
    m = m / deg[:, None] if mean else m * (deg**-0.5)[:, None] * deg**-0.5
    return m @ (x @ w)


add(
    "gcn",
    gcn,
    lambda d: (d(20, 10), d.ints(20, 60), d.ints(20, 60), d(10, 14)),
    gcn_kernel,
    right={"a matrix": {}},
    wrong={
        "nodes do not see themselves": lambda *a: gcn_kernel(*a, own=1e-6),
        "a mean": {"mean": True},
        "hides: degrees are those of going out": {"out": True},
        "hides: the last edge is lost": {"lose": 1},
    },
)


def speculative(target, draft, tokens, u):
    p = torch.softmax(target, -1).gather(-1, tokens[..., None])[..., 0]
    q = torch.softmax(draft, -1).gather(-1, tokens[..., None])[..., 0]
    return (u < (p / q).clamp(max=1.0)).long().cumprod(-1).sum(-1)


add(
    "speculative_accept",
    speculative,
    lambda d: (d(40, 5, 30), d(40, 5, 30), d.ints(30, 40, 5), d.rand(40, 5)),
    right={
        "by logs": lambda p, q, t, u: (
            (
                torch.log(u.double())
                < (p.double().log_softmax(-1) - q.double().log_softmax(-1)).gather(-1, t[..., None])[..., 0]
            )
            .long()
            .cumprod(-1)
            .sum(-1)
        )
    },
    wrong={
        "all that are accepted": lambda p, q, t, u: (
            (u < (p.softmax(-1) / q.softmax(-1)).gather(-1, t[..., None])[..., 0]).long().sum(-1)
        ),
        "the ratio is the other way": lambda p, q, t, u: speculative(q, p, t, u),
        "hides: the last of five is never accepted": lambda p, q, t, u: speculative(p, q, t, u).clamp(max=4),
    },
)
