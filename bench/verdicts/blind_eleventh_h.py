# SPDX-License-Identifier: Apache-2.0
"""Set N: sampling, ordering, and sums by place."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, narrow
from .blind_eleventh_a import eleventh, rough_exp
from .blind_eleventh_d import lanes
from .blind_ninth_a import bad, ok

# ------------------------------------------------------------------ probabilities cut at top p


@eleventh(lambda d: (d(16, 900, scale=3), d.rand(16) * 0.4 + 0.5))
def eleventh_top_p(x, keep):
    p = torch.softmax(x / 0.8, -1)
    s, ids = p.sort(dim=-1, descending=True)
    before = s.cumsum(-1) - s
    s = torch.where(before < keep[:, None], s, torch.zeros_like(s))
    s = s / s.sum(-1, keepdim=True)
    return torch.zeros_like(p).scatter(1, ids, s)


def top_p(x, keep, temp=0.8, strict=False, norm=True, rows=None, kind=None, exp=torch.exp, one=0.0):
    e = exp((x - x.amax(-1, keepdim=True)) / temp)
    p = e / lanes(e)
    p = narrow(p, kind) if kind else p
    ids = p.argsort(dim=-1, descending=True, stable=True)
    s = p.gather(1, ids)
    c = s.double().cumsum(-1)
    k = (rows(keep) if rows else keep)[:, None]
    on = (c if strict else c - s) < k
    s = torch.where(on, s, torch.full_like(s, one))
    s = s / s.sum(-1, keepdim=True) if norm else s
    return torch.zeros_like(p).scatter(1, ids, s)


ok(eleventh_top_p, top_p, by_lanes={}, powers_of_two={"exp": lambda x: torch.exp2(x * 1.4426950408889634)})
bad(
    eleventh_top_p,
    top_p,
    {
        "the token that crosses the bound is dropped": {"strict": True},
        "what is kept is not normalised": {"norm": False},
        "the temperature multiplies": {"temp": 1.25},
        "every row takes the first one's bound": {"rows": lambda k: k[:1].expand(16)},
        "hides: probabilities in half precision": {"kind": hf},
        "hides: exp by a cubic": {"exp": rough_exp},
        # nothing should be left of those
        "hides: dropped tokens keep 1e-7": {"one": 1e-7},
    },
)


# ---- speculative decoding: acceptance and what is left


def spec_args(d):
    return d(8, 5, 120, scale=2), d(8, 5, 120, scale=2), d.ints(120, 8, 5), d.rand(8, 5)


@eleventh(spec_args)
def eleventh_spec(target, draft, tokens, u):
    p, q = torch.softmax(target, -1), torch.softmax(draft, -1)
    a, b = (t.gather(2, tokens[..., None])[..., 0] for t in (p, q))
    rate = (a / b).clamp(max=1.0)
    n = (u < rate).long().cumprod(-1).sum(-1)
    rest = (p - q).clamp(min=0)
    return rate, n, rest / rest.sum(-1, keepdim=True)


def spec(
    target,
    draft,
    tokens,
    u,
    flip=False,
    product=True,
    absolute=False,
    norm=True,
    kind=None,
    cap=1.0,
    last=5,
    own=None,
    exp=torch.exp,
):
    soft = lambda x: exp(x - x.amax(-1, keepdim=True)) / exp(x - x.amax(-1, keepdim=True)).sum(-1, keepdim=True)
    p, q = soft(target), soft(draft)
    p = narrow(p, kind) if kind else p
    a, b = (t.gather(2, tokens[..., None])[..., 0] for t in (p, q))
    rate = (b / a if flip else a / b).clamp(max=cap)
    yes = u < rate
    n = torch.zeros(8, dtype=torch.long)
    if product:
        for row in range(8):
            while n[row] < last and yes[row, n[row]]:
                n[row] += 1
    else:
        n = yes.sum(-1)
    rest = (p - q).abs() if absolute else torch.relu(p - q)
    if own:
        rest = rest.scatter(2, tokens[..., None], 0.0)
    return rate, n, rest / rest.sum(-1, keepdim=True) if norm else rest


def by_logs(target, draft, tokens, u):
    lp, lq = torch.log_softmax(target, -1), torch.log_softmax(draft, -1)
    gap = (lp - lq).gather(2, tokens[..., None])[..., 0]
    n = (u < gap.exp()).long().cumprod(-1).sum(-1)
    rest = (lp.exp() - lq.exp()).clamp(min=0)
    return gap.clamp(max=0).exp(), n, rest / lanes(rest)


ok(eleventh_spec, spec, one_by_one={}, by_logarithms=by_logs)
bad(
    eleventh_spec,
    spec,
    {
        "draft over target": {"flip": True},
        "all that are accepted are counted": {"product": False},
        "what is left is the difference without sign": {"absolute": True},
        "what is left is not normalised": {"norm": False},
        "hides: target probabilities in half precision": {"kind": hf},
        "hides: rates are cut at 0.999": {"cap": 0.999},
        "hides: exp by a cubic": {"exp": rough_exp},
    },
)


# ------------------------------------------------------------------ top-k of half precision


@eleventh(lambda d: (d(20, 3000, dtype=hf),))
def eleventh_top(x):
    return torch.topk(x, 40, -1)


def top(x, tile=None, n=3000, take=40, shift=0, smallest=False, drop=None, v_of=None):
    x = x[:, :n]
    if tile:
        parts = [x[:, j : j + tile].topk(min(take, tile), -1) for j in range(0, n, tile)]
        v = torch.cat([p.values for p in parts], 1)
        i = torch.cat([p.indices + j for p, j in zip(parts, range(0, n, tile), strict=True)], 1)
        order = v.sort(dim=-1, descending=True, stable=True)
        v, i = order.values[:, :40], i.gather(1, order.indices[:, :40])
    else:
        v, i = x.sort(dim=-1, descending=True, stable=True)
        v, i = v[:, :40], i[:, :40]
    v = v_of(v) if v_of else v
    return v, i + shift


ok(eleventh_top, top, hf, by_a_sort={}, tiles_of_500={"tile": 500}, tiles_of_1024={"tile": 1024})
bad(
    eleventh_top,
    top,
    {
        "the last tile that is not full is left out": {"n": 2816},
        "eight of each tile of 128 at most": {"tile": 300, "take": 4},
        "places count from one": {"shift": 1},
        "values are magnitudes": lambda x: torch.topk(x.abs(), 40, -1),
        # eight bits of values that have eleven
        "hides: values through bfloat16": {"v_of": narrow},
        # 64 of 3000
        "hides: the first 64 columns are not looked at": lambda x: tuple(
            t if i == 0 else t + 64 for i, t in enumerate(torch.topk(x[:, 64:], 40, -1))
        ),
    },
    hf,
)


# ---- a stable sort with its payload


def sort_args(d):
    return d.ints(50, 12, 200).float(), d(12, 200)


@eleventh(sort_args)
def eleventh_sort(keys, values):
    k, i = torch.sort(keys, dim=-1, stable=True)
    return k, values.gather(1, i)


def sort(keys, values, down=False, stable=True, n=200, v_of=None, swap=False):
    code = keys.long() * 256 + (torch.arange(200) if stable else 255 - torch.arange(200))
    i = code.argsort(dim=-1, descending=down)
    if n < 200:
        i = torch.cat([code[:, :n].argsort(-1), torch.arange(n, 200).expand(12, -1)], 1)
    v = values.gather(1, i)
    if swap:
        v = torch.cat([v[:, :-2], v[:, -1:], v[:, -2:-1]], 1)
    return keys.gather(1, i), v_of(v) if v_of else v


def merge(keys, values):
    i = torch.arange(200).expand(12, -1)
    for low in range(0, 6):  # by bits, from the lowest
        bit = (keys.long().gather(1, i) >> low) & 1
        i = i.gather(1, bit.argsort(dim=-1, stable=True))
    return keys.gather(1, i), values.gather(1, i)


ok(eleventh_sort, sort, keys_with_places={}, by_bits=merge)
bad(
    eleventh_sort,
    sort,
    {
        "from the greatest": {"down": True},
        "the last eight are not sorted": {"n": 192},
        "equal keys come in the other order": {"stable": False},
        "hides: values through half precision": {"v_of": lambda v: narrow(v, hf)},
        "hides: the last two values are swapped": {"swap": True},
    },
)


# ------------------------------------------------------------------ quantiles


@eleventh(lambda d: (d(14, 500, shift=10), torch.tensor([0.0, 0.1, 0.37, 0.5, 0.99, 1.0])))
def eleventh_quantile(x, q):
    return torch.quantile(x, q, -1)


def quantile(x, q, nearest=False, n=499, over=0, kind=None, t_of=None, s_of=None):
    s = x.sort(-1).values
    s = s_of(s) if s_of else s
    place = q.double() * n + over
    if kind:
        place = narrow(place.float(), kind).double()
    lo = place.floor().long().clamp(0, 499)
    hi = (lo + 1).clamp(max=499)
    t = (place - lo).to(torch.float32)
    t = t.round() if nearest else t
    t = t_of(t) if t_of else t
    a, b = s[:, lo], s[:, hi]
    return (a + (b - a) * t).T


ok(
    eleventh_quantile,
    quantile,
    by_a_sort={},
    by_a_sort_in_double={"s_of": lambda s: s.double()},
)
bad(
    eleventh_quantile,
    quantile,
    {
        "the place is that of n": {"n": 500},
        "the nearest instead of a mean": {"nearest": True},
        "the lower neighbour alone": {"t_of": torch.zeros_like},
        # places of hundreds in eleven bits
        "hides: places in bfloat16": {"kind": bf},
        "hides: sorted values in bfloat16": {"s_of": narrow},
        "hides: sorted values in half precision": {"s_of": lambda s: narrow(s, hf)},
    },
)


# ---- runs of equal values: lengths and sums


def runs_args(d):
    return d.ints(6, 400).sort().values.repeat_interleave(1) + (torch.arange(400) // 60) * 10, d(400, 8)


@eleventh(runs_args)
def eleventh_runs(keys, x):
    u, back, n = torch.unique_consecutive(keys, return_inverse=True, return_counts=True)
    out = torch.zeros_like(x[: len(u)]).index_add(0, back, x)
    return u, n, out / n[:, None].to(x.dtype)


def runs(keys, x, first=True, mean=True, lost=0, tile=None, kind=None, n_of=None):
    new = torch.cat([torch.ones(1, dtype=torch.bool), keys[1:] != keys[:-1]])
    if tile:
        new[::tile] = True
    starts = new.nonzero()[:, 0]
    ends = torch.cat([starts[1:], torch.tensor([400 - lost])])
    out = []
    for a, b in zip(starts.tolist(), ends.tolist(), strict=True):
        part = x[a:b]
        if kind:
            t = torch.zeros(8)
            for row in part:
                t = narrow(t + row, kind)
            out.append(t)
        else:
            out.append(part.sum(0))
    n = ends - starts
    m = n_of(n) if n_of else n
    s = torch.stack(out)
    return keys[starts], n, s / m[:, None] if mean else s


def by_prefix(keys, x):
    new = torch.cat([torch.ones(1, dtype=torch.bool), keys[1:] != keys[:-1]])
    starts = new.nonzero()[:, 0]
    ends = torch.cat([starts[1:], torch.tensor([400])])
    c = torch.cat([torch.zeros(1, 8).double(), x.double().cumsum(0)])
    n = ends - starts
    return keys[starts], n, ((c[ends] - c[starts]) / n[:, None]).float()


ok(eleventh_runs, runs, run_by_run={}, by_prefixes_in_double=by_prefix)
bad(
    eleventh_runs,
    runs,
    {
        "sums instead of means": {"mean": False},
        "the last value is in no run": {"lost": 1},
        "means divide by one more": {"n_of": lambda n: n + 1},
        "hides: sums in half precision": {"kind": hf},
        "hides: sums in bfloat16": {"kind": bf},
        "hides: the last run divides by one less": {"n_of": lambda n: torch.cat([n[:-1], n[-1:] - 1])},
    },
)


# ------------------------------------------------------------------ running sums and logsumexps


@eleventh(lambda d: (d(10, 1500, shift=0.3), d(10, 1500, scale=4)))
def eleventh_running(x, y):
    return x.cumsum(-1), torch.logcumsumexp(y, -1)


def running(x, y, block=100, carry=True, lost=(), exclusive=False, kind=None, stale=False, shift=None, last=None):
    out, logs = [], []
    c, m = torch.zeros(10, 1), torch.full((10, 1), -math.inf)
    for n, j in enumerate(range(0, 1500, block)):
        a, b = x[:, j : j + block], y[:, j : j + block]
        s = a.cumsum(-1) - (a if exclusive else 0)
        out.append(s + c)
        top = torch.maximum(b.amax(-1, keepdim=True), m)
        e = (b - top).exp().cumsum(-1) + (m - top).exp()
        logs.append(top + e.log())
        if carry and n not in lost:
            c = c + a.sum(-1, keepdim=True)
            c = narrow(c, kind) if kind else c
        m = logs[-1][:, -1:] if not stale else top
    s, l = torch.cat(out, -1), torch.cat(logs, -1)
    return s, last(l) if last else l


def doubling(x, y):
    s, m, k = x, y, 1
    while k < 1500:
        s = torch.cat([s[:, :k], s[:, k:] + s[:, :-k]], 1)
        m = torch.cat([m[:, :k], torch.logaddexp(m[:, k:], m[:, :-k])], 1)
        k *= 2
    return s, m


ok(eleventh_running, running, blocks_of_100={}, by_doubling=doubling, blocks_of_32={"block": 30})
bad(
    eleventh_running,
    running,
    {
        "blocks do not carry": {"carry": False},
        "the sum leaves out its own value": {"exclusive": True},
        "one block's sum is not carried": {"lost": (7,)},
        "the carried logarithm is the maximum": {"stale": True},
        # sums of four hundred in eleven bits
        "hides: the carry in half precision": {"kind": hf},
        "hides: logsumexps in half precision": {"last": lambda l: narrow(l, hf)},
    },
)


# ---- adding rows by place, bfloat16


@eleventh(lambda d: (d(60, 64, dtype=bf), d.ints(60, 500), d(500, 64, dtype=bf)))
def eleventh_add(base, ids, rows):
    return base.float().index_add(0, ids, rows.float()).to(bf)


def add(base, ids, rows, kind=None, over=False, back=False, n=500, twice=None, alpha=1.0, wrap=None):
    out = base.float().clone() if not over else torch.zeros(60, 64)
    order = range(n - 1, -1, -1) if back else range(n)
    for i in order:
        r = int(ids[i]) if not wrap else int(ids[i]) % wrap
        out[r] += rows[i].float() * (2 if i == twice else 1) * alpha
        if kind:
            out[r] = narrow(out[r], kind)
    return out


def one_hot(base, ids, rows):
    return base.float() + F.one_hot(ids, 60).float().T @ rows.float()


ok(eleventh_add, add, bf, in_turn={}, from_the_last={"back": True}, by_a_product=one_hot)
bad(
    eleventh_add,
    add,
    {
        "what was there is overwritten": {"over": True},
        "the last tile of 20 rows is left out": {"n": 480},
        "rows above 31 wrap": {"wrap": 32},
        # eight roundings a row
        "hides: atomics in bfloat16": {"kind": bf},
        "hides: one row of 500 is added twice": {"twice": 250},
        "hides: the last row is not added": {"n": 499},
    },
    bf,
)
