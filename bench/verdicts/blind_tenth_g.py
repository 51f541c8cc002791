# SPDX-License-Identifier: Apache-2.0
"""Set M: routing, index arithmetic, sorting, gathering and scattering."""

import torch

from .blind import bf, hf, narrow
from .blind_ninth_a import bad, grads, ok
from .blind_tenth_a import tenth

F = torch.nn.functional
INF = float("inf")
NAN = float("nan")


# ------------------------------------------------------------------ experts with a capacity, combined


@tenth(lambda d: (d(60, 24), d(24, 6), d(6, 24, 24, scale=0.3)))
def tenth_experts(x, gate, w):
    p = torch.softmax(x @ gate, -1)
    top, at = p.topk(2, -1)
    top = top / top.sum(-1, keepdim=True)
    hot = F.one_hot(at.flatten(), 6)
    place = (hot.cumsum(0) - 1).gather(1, at.flatten()[:, None])[:, 0].view(60, 2)
    top = top * (place < 16)
    y = torch.einsum("td,edf->tef", x, w)
    return (y.gather(1, at[..., None].expand(-1, -1, 24)) * top[..., None]).sum(1)


def experts(x, gate, w, cap=16, again=True, rank="tokens", k=2, late=False, kind=None, once=False, change=None):
    s = x @ gate
    p = torch.softmax(s, -1)
    top, at = p.topk(k, -1)
    if again:
        top = (s.gather(1, at) - s.amax(-1, keepdim=True)).exp()
        top = top / top.sum(-1, keepdim=True)
    top = change(top) if change else top
    top = narrow(top, kind) if kind else top
    out, used = torch.zeros(60, 24), [0] * 6
    order = [(t, j) for t in range(60) for j in range(k)]
    order = sorted(order, key=lambda o: o[1]) if rank == "choices" else order
    for t, j in order:
        e = at[t, j]
        if used[e] < cap:
            y = top[t, j] * (x[t] @ w[e])
            out[t] = y if once else out[t] + y
        used[e] += 1
    return out


ok(tenth_experts, experts, token_by_token={})
bad(
    tenth_experts,
    experts,
    {
        # place <= 16
        "one more fits into an expert": {"cap": 17},
        # probabilities as they are
        "weights are not normalised": {"again": False},
        # all first choices, then the second ones
        "places are dealt to first choices first": {"rank": "choices"},
        # out = y
        "the second expert overwrites the first": {"once": True},
        # weights in bfloat16
        "hides: weights in bfloat16": {"kind": bf},
        # swapped weights where they are near
        "hides: weights of even choices are averaged": {
            "change": lambda t: torch.where((t[:, :1] - t[:, 1:]).abs() < 0.05, 0.5, t)
        },
    },
)


# ------------------------------------------------------------------ groups of experts, sigmoids, bias only for choosing


@tenth(lambda d: (d(40, 16), d(16, scale=0.1)))
def tenth_sigmoid_route(x, bias):
    s = torch.sigmoid(x)
    at = (s + bias).topk(4, -1)[1]
    w = s.gather(1, at)
    return 2.5 * w / (w.sum(-1, keepdim=True) + 1e-20), at


def sigmoid_route(x, bias, biased=False, scale=2.5, k=4, none=False, kind=None, late=False):
    s = 1 / (1 + (-x).exp())
    c = s if none else s + bias
    c = narrow(c, kind) if kind else c
    at = c.sort(dim=-1, descending=True, stable=True)[1][:, :4]
    w = (c if biased else s).gather(1, at)
    total = w.sum(-1, keepdim=True) if not late else s.sum(-1, keepdim=True)
    return scale * w / total, at


ok(tenth_sigmoid_route, sigmoid_route, None, sorted_in_full={})
bad(
    tenth_sigmoid_route,
    sigmoid_route,
    {
        # weights with bias
        "the bias goes into the weights": {"biased": True},
        # no bias at all
        "the bias is not used": {"none": True},
        # scale forgotten
        "not scaled by 2.5": {"scale": 1.0},
        # over all
        "normalised over all experts": {"late": True},
        # chosen in bfloat16
        "hides: chosen by scores in bfloat16": {"kind": bf},
    },
    None,
)


# ------------------------------------------------------------------ index_add with many of the same


@tenth(lambda d: (d(20, 12), d.ints(20, 300), d(300, 12)))
def tenth_index_add(x, i, s):
    return x.index_add(0, i, s, alpha=0.5)


def added(x, i, s, alpha=0.5, flip=False, kind=None, lost=None, last=False, base=True):
    out = x.clone() if base else torch.zeros_like(x)
    if last:
        out[i] = x[i] + alpha * s
        return out
    for n in reversed(range(300)) if flip else range(300):
        if lost is not None and lost(n, i):
            continue
        out[i[n]] += alpha * s[n]
        out = narrow(out, kind) if kind else out
    return out


ok(tenth_index_add, added, backwards={"flip": True}, in_order={})
bad(
    tenth_index_add,
    added,
    {
        # read, modify, write
        "of several to one row only the last counts": {"last": True},
        # alpha
        "alpha is one": {"alpha": 1.0},
        # x is not the start
        "what was there is left out": {"base": False},
        # atomics in half precision
        "hides: added in half precision": {"kind": hf},
        # two neighbours to the same row: one is lost
        "hides: of two neighbours to one row the first is lost": {
            "lost": lambda n, i: n % 32 != 31 and n + 1 < 300 and i[n] == i[n + 1]
        },
    },
)


# ------------------------------------------------------------------ means by index


@tenth(lambda d: (d(15, 6, scale=0.1), d.ints(12, 90), d(90, 6)))
def tenth_scatter_mean(x, i, s):
    return x.scatter_reduce(0, i[:, None].expand(-1, 6), s, "mean", include_self=True)


def scatter_mean(x, i, s, own=1, lone=None, kind=None, whole=False):
    total = (x if own else x * 0).index_add(0, i, s)
    n = torch.zeros(15).index_add(0, i, torch.ones(90)) + own
    n = lone(n) if lone else n
    if not own:
        total = torch.where(n[:, None] == 0, x, total)
    return total / n.clamp_min(1)[:, None] if not whole else total * narrow(1 / n.clamp_min(1), bf)[:, None]


ok(tenth_scatter_mean, scatter_mean, sums_over_counts={})
bad(
    tenth_scatter_mean,
    scatter_mean,
    {
        # include_self=False
        "what was there is not counted": {"own": 0},
        # n - 1
        "divided by one less": {"lone": lambda n: n - 1},
        # reciprocals in bfloat16
        "hides: reciprocals of counts in bfloat16": {"whole": True},
        # counts saturate at 9
        "hides: counts stop at eleven": {"lone": lambda n: n.clamp(max=11)},
    },
)


# ------------------------------------------------------------------ gradient of an embedding, padding, by frequency


def table_args(d):
    i = d.ints(40, 8, 25)
    i[0, :9] = 3
    return d(8, 25, 16), i


@tenth(table_args)
def tenth_table_grad(g, i):
    return torch.ops.aten.embedding_dense_backward(g, i, 40, 3, True)


def table_grad(g, i, pad=3, freq=True, kind=None, first=False, chunk=0, short=0):
    flat, g = i.flatten(), g.reshape(-1, 16)
    n = torch.bincount(flat, minlength=40).float()
    out = torch.zeros(40, 16)
    live = flat != pad
    w = 1 / n[flat] if freq else torch.ones(200)
    order = torch.arange(200) if not chunk else torch.arange(199, -1, -1)
    for m in order.tolist()[: 200 - short]:
        if live[m]:
            out[flat[m]] += g[m] if first else g[m] * w[m]
            out[flat[m]] = narrow(out[flat[m]], kind) if kind else out[flat[m]]
    return out / n.clamp_min(1)[:, None] if first and freq else out


ok(tenth_table_grad, table_grad, divided_at_the_end={"first": True}, backwards={"chunk": 1})
bad(
    tenth_table_grad,
    table_grad,
    {
        # padding gets a gradient
        "the padding has a gradient": {"pad": -1},
        # no division
        "not divided by how often": {"freq": False},
        # sums of bfloat16
        "hides: added in bfloat16": {"kind": bf},
        # the last token of all
        "hides: the last token is left out": {"short": 1},
    },
)


# ------------------------------------------------------------------ sorting and top values


def sort_args(d):
    x = d(30, 50).mul(4).round().div(4)
    x[2, 7], x[2, 9], x[5, 3] = NAN, INF, -INF
    x[7, ::2] = 0.0
    x[7, 1::4] = -0.0
    return (x,)


@tenth(sort_args)
def tenth_sorted(x):
    return x.sort(dim=-1, descending=True, stable=True)


def key_of(x, nan_last=False):
    b = x.view(torch.int32).long()
    k = torch.where(b < 0, -(b & 0x7FFFFFFF), b)
    return torch.where(x.isnan(), -(2**40) if nan_last else 2**40, k)


def sorted_(x, key=key_of, stable=True, n=50, sign=-1):
    k = sign * key(x)
    order = torch.arange(50) if stable else torch.arange(49, -1, -1)
    packed = k * 64 + order
    at = packed.sort(-1)[1]
    if n < 50:
        head = packed[:, :n].sort(-1)[1]
        at = torch.cat([head, torch.arange(n, 50).expand(30, -1)], -1)
    return x.gather(1, at), at


ok(tenth_sorted, sorted_, None, keys_of_bits={})
bad(
    tenth_sorted,
    sorted_,
    {
        # flips the order of ties
        "equal ones come in the reverse order": {"stable": False},
        # NaN at the end
        "not a number sorts as the smallest": {"key": lambda x: key_of(x, True)},
        # ascending
        "sorted upwards": {"sign": 1},
        # 32 + tail
        "the last two are not sorted in": {"n": 48},
        # raw bits: -0 < +0 -- and negatives come in reverse
        "hides: minus zero sorts below zero": {
            "key": lambda x: key_of(x) * 2 + torch.where((x == 0) & x.signbit(), -1, 0)
        },
    },
    None,
)


@tenth(lambda d: (d(25, 200, dtype=bf),))
def tenth_greatest(x):
    return x.topk(8, -1)[0], x.amax(-1), x.argmax(-1)


def greatest(x, n=200, parts=1, last=False, size=False, count=8):
    y = x.abs() if size else x
    y = torch.cat([c.sort(-1, descending=True)[0][:, :count] for c in y[:, :n].chunk(parts, -1)], -1)
    at = torch.arange(200) * (x == x.amax(-1, keepdim=True))
    first = (x == x.amax(-1, keepdim=True)).int().argmax(-1)
    return y.sort(-1, descending=True)[0][:, :8], x.amax(-1), at.amax(-1) if last else first


ok(tenth_greatest, greatest, None, in_four_parts={"parts": 4}, sorted_whole={})
bad(
    tenth_greatest,
    greatest,
    {
        # the last of equal ones
        "hides: of equal ones the last is told": {"last": True},
        # sizes
        "sizes are compared": {"size": True},
        # 192 of 200
        "the last eight are not looked at": {"n": 192},
        # each part gives its three best only
        "hides: each of four parts gives three": {"parts": 4, "count": 3},
    },
    None,
)


# ------------------------------------------------------------------ gather and its gradient, searching, counting


@tenth(lambda d: (d(10, 30), d.ints(30, 10, 12), d(10, 12)))
def tenth_take_grad(x, i, g):
    return x.gather(1, i), grads(lambda x: x.gather(1, i), x, cotangent=g)[0]


def take_grad(x, i, g, write=False, shift=0, flat=False):
    y = x.flatten()[i + 30 * torch.arange(10)[:, None]] if not flat else x.flatten()[i]
    if write:
        return y, torch.zeros(10, 30).scatter(1, i, g)
    return y, torch.einsum("rk,rkn->rn", g, F.one_hot((i + shift).clamp(max=29), 30).float())


ok(tenth_take_grad, take_grad, one_hot_product={})
bad(
    tenth_take_grad,
    take_grad,
    {
        # scatter, not scatter_add
        "the gradient is written, not added": {"write": True},
        # no row offset
        "all rows read the first": {"flat": True},
        # i + 1
        "the gradient goes one place further": {"shift": 1},
    },
)


def bucket_args(d):
    edges = torch.linspace(-2, 2, 17)
    x = torch.cat([d(200), edges, torch.tensor([NAN, INF, -INF])])
    return edges, x, d.rand(220)


@tenth(bucket_args)
def tenth_buckets(edges, x, w):
    i = torch.bucketize(x, edges, right=True)
    return i, torch.bincount(i, w, 18).to(w.dtype)


def buckets(edges, x, w, right=True, near=False, kind=None, short=0, nan=17):
    if near:
        i = torch.floor((x + 2) * (16 / 4.0) + 1e-6).nan_to_num(16, 20, -20).long().add(1).clamp(0, 17)
    else:
        i = ((x[:, None] >= edges) if right else (x[:, None] > edges)).sum(-1)
    i = torch.where(x.isnan(), nan, i)
    hot = F.one_hot(i, 18).float()
    c = torch.zeros(18)
    for n in range(220 - short):
        c = c + hot[n] * w[n]
        c = narrow(c, kind) if kind else c
    return i, c


ok(tenth_buckets, buckets, compared_with_all={})
bad(
    tenth_buckets,
    buckets,
    {
        # left
        "values on an edge go to the left": {"right": False},
        # NaN first
        "not a number goes to the first": {"nan": 0},
        # counts in half precision
        "hides: counts in half precision": {"kind": hf},
        # 220 = 6 * 32 + 28
        "hides: the last weight is not counted": {"short": 1},
    },
)
