# SPDX-License-Identifier: Apache-2.0
"""Set I, the aimed part, written blind (see blind_seventh_f): ties of argmax, top-k and sort; intermediates that
overflow or underflow; NaN."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf
from .blind_seventh_a import doubled, right, seventh, via, wrong
from .blind_seventh_b import folded
from .blind_seventh_i import kept, same

f32, nan, inf = torch.float32, math.nan, math.inf


def last_max(x, dim=-1):
    return x.shape[dim] - 1 - x.flip(dim).argmax(dim)


# ------------------------------------------------------------------ ties of places

@seventh(lambda d: (d.ints(6, 50, 64).float(),))
def order_argmax_and_argmin(x):
    return x.argmax(-1), x.argmin(-1)


def by_tiles(x, tile=16, later=False, start=0, low=None, reverse=False):
    x = via(x, low)
    best, at_ = x[:, 0] * 0 - inf, torch.zeros(len(x), dtype=torch.long)
    tiles = range(start, 64, tile)
    for s in reversed(tiles) if reverse else tiles:
        part = x[:, s:s + tile]
        top, i = part.amax(-1), part.argmax(-1) + s
        take = (top >= best) if later else (top > best)
        best, at_ = torch.where(take, top, best), torch.where(take, i, at_)
    return at_


same(order_argmax_and_argmin, "tiles of 16 from the start", lambda x: (by_tiles(x), by_tiles(-x)))
same(order_argmax_and_argmin, "sorted stably", lambda x: (x.sort(dim=-1, descending=True, stable=True).indices[:, 0],
                                                         x.sort(dim=-1, stable=True).indices[:, 0]))
kept(order_argmax_and_argmin, None, {
    "the last of equal largest ones is given": lambda x: (last_max(x), last_max(-x)),
    "of equal tiles the later one wins": lambda x: (by_tiles(x, later=True), by_tiles(-x, later=True)),
    "tiles are taken from the end": lambda x: (by_tiles(x, reverse=True), by_tiles(-x, reverse=True)),
    "the smallest is right, the largest is the last": lambda x: (last_max(x), x.argmin(-1))})


@seventh(lambda d: (d.ints(5, 4, 30, 20).to(hf),))
def order_max_over_middle(x):
    return tuple(x.max(1))


same(
    order_max_over_middle,
    "the first place of the largest",
    lambda x: (x.amax(1).to(hf), (x == x.amax(1, keepdim=True)).int().argmax(1)),
)
same(
    order_max_over_middle, "in double precision", lambda x: (lambda m: (m.values.to(hf), m.indices))(x.double().max(1))
)
kept(order_max_over_middle, None, {
    "the last of equal ones is given": lambda x: (x.amax(1).to(hf), last_max(x, 1)),
    "places count from 1": lambda x: (x.amax(1).to(hf), x.argmax(1) + 1),
    "places within the second half are given from its start": lambda x: (x.amax(1).to(hf), x.argmax(1) % 15)})


@seventh(lambda d: (d.ints(20, 12, 100).float(),))
def order_stable_sort(x):
    return tuple(torch.sort(x, dim=-1, stable=True, descending=True))


def counted_sort(x, later=False, odd=False, up=False, width=100):
    before = (x[:, None] > x[..., None]) if not up else (x[:, None] < x[..., None])
    i = torch.arange(100)
    first = (i[None] > i[:, None]) if later else (i[None] < i[:, None])
    place = (before | ((x[:, None] == x[..., None]) & first)).sum(-1)
    index = torch.empty_like(place).scatter_(1, place, i.expand(12, -1))
    if odd:  # the last pair of places is not compared
        index[:, -2:] = index[:, -2:].flip(1)
    return x.gather(1, index), index


same(order_stable_sort, "places counted", counted_sort)
same(order_stable_sort, "keys joined with places", lambda x: (lambda i: (x.gather(1, i), i))(
    (-x * 128 + torch.arange(100)).argsort(-1)))
kept(order_stable_sort, counted_sort, {
    "equal numbers come last place first": dict(later=True),
    "smallest first": dict(up=True),
    "the last two are exchanged": dict(odd=True)})


@seventh(lambda d: (d(16, 200), ))
def order_top_values(x):
    return tuple(x.topk(10, -1))


def top_ten(x, near=0, tile=None, same_place=False, swap=False, low=None):
    i = via(x, low).argsort(dim=-1, descending=True, stable=True)[:, :11]
    if tile:  # only the best three of each tile of 50 go on
        c = torch.cat([x[:, s:s + tile].topk(3, -1).indices + s for s in range(0, 200, tile)], 1)
        i = c.gather(1, x.gather(1, c).argsort(dim=-1, descending=True))
    if near:
        i = torch.cat((i[:, :9], i[:, 10:]), 1)
    i = i[:, :10]
    i = i.sort(-1).values if swap else i
    v = x.gather(1, i)
    if same_place:
        i = torch.cat((i[:, :9], i[:, 8:9]), 1)
    return v, i


same(order_top_values, "the first ten of a sort", top_ten)
same(order_top_values, "ten times the largest", lambda x: (lambda i: (x.gather(1, i), i))((lambda y: torch.stack(
    [(lambda i: (y.scatter_(1, i[:, None], -inf), i)[1])(y.argmax(-1)) for _ in range(10)], 1))(x.clone())))
kept(order_top_values, top_ten, {
    "the eleventh stands where the tenth belongs": dict(near=1),
    "only the best three of each tile of 50 are looked at": dict(tile=50),
    "the last place is given twice": dict(same_place=True),
    "the ten come in order of place": dict(swap=True),
    "numbers are compared in bf16": dict(low=bf)})


@seventh(lambda d: (d.ints(9, 300),))
def order_unique_counts(x):
    return torch.unique(x, return_inverse=True, return_counts=True)


def unique_runs(x, shift=0, minus=0, down=False, first=False):
    v = x.sort(descending=down).values
    starts = torch.cat((torch.tensor([True]), v[1:] != v[:-1]))
    u = v[starts]
    inverse = (x[:, None] == u).int().argmax(1)
    count = (x[:, None] == u).sum(0)
    count = count - (torch.arange(len(u)) == len(u) - 1).long() * minus
    return u, (inverse + shift) % len(u) if shift else inverse, count


same(order_unique_counts, "runs of a sort", unique_runs)
same(
    order_unique_counts,
    "from a histogram",
    lambda x: (lambda h: (h.nonzero()[:, 0], ((h > 0).cumsum(0) - 1)[x], h[h > 0]))(torch.bincount(x)),
)
kept(order_unique_counts, unique_runs, {
    "the last count lacks one": dict(minus=1),
    "values come largest first": dict(down=True),
    "places are one on": dict(shift=1)})


@seventh(lambda d: (d.ints(4, 2, 3, 12, 12).float(),))
def order_pool_places(x):
    return F.max_pool2d(x, 3, 2, 1, return_indices=True)


def pool_places(x, last=False, local=False, columns=False):
    p = F.pad(x, (1, 1, 1, 1), value=-inf).unfold(2, 3, 2).unfold(3, 3, 2)
    w = (p.mT if columns else p).flatten(4)
    k = last_max(w) if last else w.argmax(-1)
    r, c = (k % 3, k // 3) if columns else (k // 3, k % 3)
    at_ = (torch.arange(6)[:, None] * 2 - 1 + r) * 12 + torch.arange(6) * 2 - 1 + c
    return w.amax(-1), k if local else at_


same(order_pool_places, "windows unfolded", pool_places)
doubled(order_pool_places)
kept(order_pool_places, pool_places, {
    "the last of equal ones is given": dict(last=True),
    "windows are read column by column": dict(columns=True),
    "places within the window are given": dict(local=True)})


# ------------------------------------------------------------------ overflow and underflow

@seventh(
    lambda d: (
        torch.cat((d(20, 30, scale=40.0), d(20, 30, scale=3.0)))
        + torch.tensor([90.0, -135.0, 0.0, 40.0]).repeat(10)[:, None],
    )
)
def range_log_sum_exp(x):
    return x.logsumexp(-1)


right(range_log_sum_exp, "sum by folding", lambda x: (lambda m: folded((x - m[:, None]).exp()).log() + m)(x.amax(-1)))
doubled(range_log_sum_exp)
wrong(range_log_sum_exp, None, {
    "no maximum is taken off": lambda x: x.exp().sum(-1).log(),
    "exponents above 80 are cut to 80": lambda x: x.clamp_max(80).logsumexp(-1),
    "0 is taken for the maximum where it is negative": lambda x: (lambda m: (
        x - m[:, None]).exp().sum(-1).log() + m)(x.amax(-1).clamp_min(0))})


@seventh(lambda d: (d(300, scale=1e20), torch.cat((d(150, scale=1e20), d(150, scale=1e15))), d(300, scale=1e-24)))
def range_hypotenuse(x, y, z):
    return torch.hypot(x, y), torch.hypot(z, z * 0.5)


def hypot(x, y, z):
    def one(a, b):
        a, b = a.abs(), b.abs()
        m, n = torch.maximum(a, b), torch.minimum(a, b)
        return m * (1 + (n / m).square()).sqrt()

    return one(x, y), one(z, z * 0.5)


right(range_hypotenuse, "the larger times a root", hypot)
right(range_hypotenuse, "in double precision", lambda x, y, z: tuple(
    (a.double().square() + b.double().square()).sqrt() for a, b in ((x, y), (z, z * 0.5))))
wrong(
    range_hypotenuse,
    None,
    {
        "squares overflow": lambda x, y, z: ((x * x + y * y).sqrt(), hypot(x, y, z)[1]),
        "squares of small numbers are lost": lambda x, y, z: (hypot(x, y, z)[0], (z * z + 0.25 * z * z).sqrt()),
        "squares are cut to the largest number": lambda x, y, z: (
            (x * x + y * y).clamp_max(torch.finfo(f32).max).sqrt(),
            hypot(x, y, z)[1],
        ),
    },
)


@seventh(lambda d: (d(10, 512, dtype=hf, scale=60.0), d(512, dtype=hf, shift=1.0, scale=0.1)))
def range_rms_norm_half(x, w):
    return F.rms_norm(x, (512,), w, 1e-5)


right(
    range_rms_norm_half, "sum of squares by folding", lambda x, w: x * (folded(x * x)[:, None] / 512 + 1e-5).rsqrt() * w
)
doubled(range_rms_norm_half)
wrong(range_rms_norm_half, None, {
    "the sum of squares overflows in half precision": lambda x, w: x * (
        via((x * x).sum(-1, keepdim=True), hf) / 512 + 1e-5).rsqrt() * w,
    "the sum of squares is cut to 65504":
        lambda x, w: x * ((x * x).sum(-1, keepdim=True).clamp_max(65504) / 512 + 1e-5).rsqrt() * w,
    "each square is cut to 8192": lambda x, w: x * (
        (x * x).clamp_max(8192).mean(-1, keepdim=True) + 1e-5).rsqrt() * w})


@seventh(lambda d: (torch.cat((d(200, dtype=hf, scale=200.0), torch.tensor([60000.0, -60000.0, 300.0, 0.0], dtype=hf))),
                    torch.cat((d(200, dtype=hf, scale=200.0), torch.tensor([60000.0, 2.0, 300.0, 0.0], dtype=hf)))))
def range_half_product_overflow(x, y):
    return x * y


right(range_half_product_overflow, "multiplied in float32", lambda x, y: x * y)
right(range_half_product_overflow, "multiplied in double precision", lambda x, y: x * y, torch.float64)
wrong(range_half_product_overflow, None, {
    "what is too large is stored as 65504": lambda x, y: (x * y).clamp(-65504, 65504),
    "what is too large is stored as NaN": lambda x, y: torch.where((x * y).abs() > 65504, nan, x * y),
    "what is too large is stored as plus infinity": lambda x, y: torch.where((x * y).abs() > 65519, inf, x * y)})


@seventh(lambda d: (torch.cat((d(100, scale=30.0), torch.tensor([100.0, -100.0, 150.0, -150.0, 88.0, -88.0, 0.0]))),))
def range_softplus_tanh_sigmoid(x):
    return F.softplus(x), torch.tanh(x), F.silu(x)


def ranges(x, bare=0):
    e = (-x.abs()).exp()
    plus = x.clamp_min(0) + e.log1p() if bare != 1 else x.exp().log1p()
    t = torch.sign(x) * (1 - e * e) / (1 + e * e) if bare != 2 else (x.exp() - (-x).exp()) / (x.exp() + (-x).exp())
    t = torch.where(x.abs() < 0.5, x.tanh(), t)
    s = x * torch.where(x >= 0, 1 / (1 + e), e / (1 + e)) if bare != 3 else x * (x.exp() / (1 + x.exp()))
    return plus, t, s


right(range_softplus_tanh_sigmoid, "from exp of minus the size", ranges)
doubled(range_softplus_tanh_sigmoid)
wrong(range_softplus_tanh_sigmoid, ranges, {
    "softplus overflows to infinity above 88": dict(bare=1),
    "tanh is infinity over infinity above 88": dict(bare=2),
    "silu is x exp(x) over 1 + exp(x), which overflows": dict(bare=3)})


@seventh(lambda d: (d.rand(20, 100) * 0.5 + 0.01, d.rand(20, 60) * 30))
def range_geometric_mean(x, y):
    return x.log().mean(-1).exp(), y.log().sum(-1)


right(range_geometric_mean, "by folding", lambda x, y: ((folded(x.log()) / 100).exp(), folded(y.log())))
right(
    range_geometric_mean,
    "products in double precision",
    lambda x, y: (x.double().prod(-1) ** 0.01, y.double().prod(-1).log()),
)
wrong(range_geometric_mean, None, {
    "the product underflows before the root": lambda x, y: (x.prod(-1) ** 0.01, y.log().sum(-1)),
    "the product overflows before the log": lambda x, y: (x.log().mean(-1).exp(), y.prod(-1).log())})


@seventh(
    lambda d: (
        torch.cat((d.rand(50), torch.tensor([0.0, 1.0, 0.0, 1.0, 1e-40]))),
        torch.cat((d.rand(50).round(), torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0]))),
    )
)
def range_log_of_zero(p, y):
    return F.binary_cross_entropy(p, y, reduction="none"), torch.log(p), torch.special.xlogy(y, p)


def logs(p, y, eps=0.0, low=-100.0, flush=False, plain=False, cut=None):
    q = torch.where(p.abs() < 1.17549435e-38, 0.0, p) if flush else p
    loss = -(y * (q + eps).log().clamp_min(low) + (1 - y) * (1 - q + eps).log().clamp_min(low))
    whole = q.log() if cut is None else q.log().clamp_min(cut)
    return loss, whole, y * q.log() if plain else torch.where(y == 0, 0.0, y * q.log())


right(range_log_of_zero, "with clamped logs", logs)
right(range_log_of_zero, "in double precision", logs, torch.float64)
wrong(range_log_of_zero, logs, {
    "1e-7 is added under the logs of the loss": dict(eps=1e-7),
    "the loss's logs are not cut at -100": dict(low=-inf),
    "0 log 0 is NaN": dict(plain=True),
    "the log of 0 is -103": dict(cut=-103.0)})


# ------------------------------------------------------------------ NaN

def spotted(d, *shape, every=17):
    x = d(*shape)
    return torch.where(torch.arange(x.numel()).view(shape) % every == 3, nan, x)


@seventh(lambda d: (spotted(d, 400), spotted(d, 400, every=23)))
def nan_of_maximum(x, y):
    return torch.maximum(x, y), torch.fmax(x, y), torch.minimum(x, y)


def maxima(x, y, m="nan", f="skip", one=False):
    either = x.isnan() | y.isnan()
    top = torch.where(x > y, x, y)
    skip = torch.where(x.isnan(), y, torch.where(y.isnan(), x, top))
    low = torch.where(x < y, x, y)
    return (skip if m == "skip" else top if m == "ordered" else torch.where(either, nan, top),
            torch.where(either, nan, top) if f == "nan" else skip,
            torch.where(y.isnan() if one else either, nan, low))


same(nan_of_maximum, "comparisons and tests", maxima)
doubled(nan_of_maximum)
kept(nan_of_maximum, maxima, {
    "maximum skips NaN": dict(m="skip"),
    "maximum is x > y ? x : y": dict(m="ordered"),
    "fmax keeps NaN": dict(f="nan"),
    "minimum keeps NaN of the second only": dict(one=True)})


@seventh(lambda d: (spotted(d, 12, 50, every=61),))
def nan_of_reductions(x):
    return x.amax(-1), x.sum(-1), x.argmax(-1), torch.nanmean(x, -1)


def reductions(x, skip_max=False, skip_sum=False, all_=False, place=True):
    bad = x.isnan()
    z = torch.where(bad, 0.0, x)
    any_ = bad.any(-1)
    top = torch.where(bad, -inf, x).amax(-1)
    arg = torch.where(bad, -inf, x).argmax(-1)
    return (
        top if skip_max else torch.where(any_, nan, top),
        folded(z) if skip_sum else torch.where(any_, nan, folded(z)),
        torch.where(any_, bad.int().argmax(-1), arg) if place else arg,
        folded(z) / (50 if all_ else (~bad).sum(-1)),
    )


same(nan_of_reductions, "NaN handled apart", reductions)
doubled(nan_of_reductions)
kept(nan_of_reductions, reductions, {
    "the largest skips NaN": dict(skip_max=True),
    "the sum skips NaN": dict(skip_sum=True),
    "the place of the largest skips NaN": dict(place=False),
    "nanmean divides by all 50": dict(all_=True)})


@seventh(lambda d: (spotted(d, 300, every=11),))
def nan_of_activations(x):
    return F.relu(x), x.clamp(-1, 1), torch.sign(x), F.hardtanh(x, -2, 2)


def activations(x, zero=False, low=False, one=False, top=False):
    bad = x.isnan()
    r = torch.where(x > 0, x, 0.0)
    c = torch.where(x > 1, 1.0, torch.where(x >= -1, x, -1.0))
    h = torch.where(x < -2, -2.0, torch.where(x <= 2, x, 2.0))
    s = (x > 0).to(x.dtype) - (x < 0).to(x.dtype)
    return (r if zero else torch.where(bad, nan, r), c if low else torch.where(bad, nan, c),
            torch.where(bad, 1.0 if one else x.sign(), s), h if top else torch.where(bad, nan, h))


same(nan_of_activations, "comparisons, NaN apart", activations)
doubled(nan_of_activations)
kept(nan_of_activations, activations, {
    "relu of NaN is 0": dict(zero=True),
    "clamp of NaN is the lower bound": dict(low=True),
    "the sign of NaN is 1": dict(one=True),
    "hardtanh of NaN is the upper bound": dict(top=True)})


@seventh(lambda d: (spotted(d, 10, 40, every=37), torch.arange(40).expand(10, -1) < 30))
def nan_behind_a_mask(x, keep):
    y = torch.where(keep, x, 0.0)
    return y.sum(-1), (x * keep).sum(-1), x.masked_fill(~keep, -inf).softmax(-1)


def masked(x, keep, times=False, select=False, skip=False):
    a = x * keep if times else torch.where(keep, x, 0.0)
    b = torch.where(keep, x, 0.0) if select else x * keep
    s = torch.where(keep, x, -inf)
    top = torch.where(s.isnan(), -inf, s).amax(-1, keepdim=True)
    e = (s - top).exp()
    e = torch.where(e.isnan(), 0.0, e) if skip else e
    return folded(a), folded(b), e / e.sum(-1, keepdim=True)


same(nan_behind_a_mask, "sums by folding", masked)
doubled(nan_behind_a_mask)
kept(nan_behind_a_mask, masked, {
    "the first sum multiplies by the mask: hidden NaN comes through": dict(times=True),
    "the second sum selects: hidden NaN is lost": dict(select=True),
    "softmax skips NaN": dict(skip=True)})


@seventh(lambda d: (spotted(d, 8, 30, every=29),))
def nan_of_sort_and_cummax(x):
    return x.sort(-1).values, x.cumsum(-1), torch.cummax(x, -1).values, x.nan_to_num(0.5, 3.0, -3.0)


def ordered(x, front=False, fresh=False, skip=False, number=0.5):
    bad = x.isnan()
    s = torch.where(bad, inf, x).sort(-1).values
    n = bad.sum(-1, keepdim=True)
    i = torch.arange(30)
    s = torch.where(i >= 30 - n, nan, s)
    s = torch.cat((s[:, -2:], s[:, :-2]), 1) if front else s
    seen = bad.cumsum(-1) > 0
    c = torch.stack([torch.where(bad, 0.0, x)[:, :k + 1].sum(-1) for k in range(30)], 1)
    m = torch.stack([torch.where(bad, -inf, x)[:, :k + 1].amax(-1) for k in range(30)], 1)
    return (s, torch.where(bad, nan, c) if fresh else torch.where(seen, nan, c),
            m if skip else torch.where(seen, nan, m), torch.where(bad, number, x))


same(nan_of_sort_and_cummax, "NaN handled apart", ordered)
doubled(nan_of_sort_and_cummax)
kept(nan_of_sort_and_cummax, ordered, {
    "NaN is sorted to the front": dict(front=True),
    "the running sum forgets NaN at the next place": dict(fresh=True),
    "the running largest skips NaN": dict(skip=True),
    "NaN is replaced by 0": dict(number=0.0)})
