# SPDX-License-Identifier: Apache-2.0
"""Set E, written blind: integers, orders, counts, sums and what is not a number."""

import torch
import torch.nn.functional as F

from .blind import bf, hf, honest, mistake
from .blind_fifth_a import INF, bits, cut, fifth, rights, wide, wrongs

NAN = float("nan")

# ------------------------------------------------------------------ integers


@fifth(lambda d: (d.ints(200, 300) - 100, d.ints(9, 300) + 1, d.ints(2, 300) * 2 - 1))
def floor_division(a, b, sign):
    b = b * sign
    return torch.div(a, b, rounding_mode="floor"), torch.remainder(a, b)


def floor_from_trunc(a, b, sign, fix=True, fix_mod=True, under=False, early=False):
    b = b * sign
    q = torch.div(a, b, rounding_mode="trunc")
    r = a - q * b
    off = ((r != 0) & ((r < 0) != (b < 0))).long()
    if under:
        off = (r < 0).long()
    if early:
        off = ((a < 0) != (b < 0)).long()
    return q - off * fix, r + off * b * fix_mod


honest(floor_division, "the truncated quotient, mended", floor_from_trunc)
for words, keys in {
        "quotients are truncated towards zero": {"fix": False},
        "remainders take the dividend's sign": {"fix_mod": False},
        "the mending looks at the remainder's sign, not the divisor's": {"under": True},
        "negative quotients are lowered even when the division is exact": {"early": True}}.items():
    mistake(floor_division, words, lambda *a, keys=keys: floor_from_trunc(*a, **keys))


@fifth(lambda d: ((d.ints(2 ** 32, 200) - 2 ** 31).to(torch.int32), d.ints(31, 200).to(torch.int32)))
def arithmetic_shift(x, n):
    return x >> n, x << n.clamp(max=3)


honest(arithmetic_shift, "a division by powers of two, rounded down", lambda x, n: (
    torch.div(x.long(), 2 ** n.long(), rounding_mode="floor").int(), x * (2 ** n.clamp(max=3).long()).int()))
mistake(arithmetic_shift, "zeros are shifted in, not the sign", lambda x, n: (
    ((x.long() & 0xFFFFFFFF) >> n).int(), x << n.clamp(max=3)))
mistake(arithmetic_shift, "a division that rounds towards zero", lambda x, n: (
    torch.div(x.long(), 2 ** n.long(), rounding_mode="trunc").int(), x << n.clamp(max=3)))
mistake(arithmetic_shift, "the left shift saturates instead of wrapping", lambda x, n: (
    x >> n, (x.long() << n.clamp(max=3)).clamp(-2 ** 31, 2 ** 31 - 1).int()))


@fifth(lambda d: ((d.ints(256, 16, 600) - 128).to(torch.int8), (d.ints(128, 600, 12)).to(torch.int8), 0.0007,
        3))
def int8_requantized(a, b, scale, zero):
    acc = a.int() @ b.int()
    return (torch.round(acc.double() * scale) + zero).clamp(-128, 127).to(torch.int8)


def int8_product(a, b, scale, zero, wrap=0, sat=False, how=torch.round, early=False, wrapped=False,
        unsigned=False,
                 step=75, drop=False, clamp_first=False):
    acc = torch.zeros(16, 12, dtype=torch.int64)
    a = a.long() % 256 if unsigned else a.long()
    for k in range(0, 512 if drop else 600, step):
        acc = acc + a[:, k:k + step] @ b[k:k + step].long()
        if wrap:
            acc = (acc + 2 ** (wrap - 1)) % 2 ** wrap - 2 ** (wrap - 1)
        if sat:
            acc = acc.clamp(-32768, 32767)
    y = acc.double() * scale
    y = how(y + zero) if early else how(y) + zero
    y = (how(acc.double() * scale).clamp(-128, 127) + zero) if clamp_first else y
    return y.long().to(torch.int8) if wrapped else y.clamp(-128, 127).to(torch.int8)


honest(int8_requantized, "64-bit sums by blocks", int8_product)
honest(int8_requantized, "a product in double precision", lambda a, b, s, z: (
    torch.round(a.double() @ b.double() * s) + z).clamp(-128, 127).to(torch.int8))
for words, keys in {
        "sums wrap at 16 bits": {"wrap": 16},
        "sums saturate at 16 bits": {"sat": True},
        "results are truncated, not rounded": {"how": torch.trunc},
        "codes past 127 wrap instead of saturating": {"wrapped": True},
        "a is read as unsigned": {"unsigned": True},
        "the zero point is added after codes saturate": {"clamp_first": True},
        "k past 512 is left out": {"drop": True, "step": 64}}.items():
    mistake(int8_requantized, words, lambda *a, keys=keys: int8_product(*a, **keys))


@fifth(lambda d: (d.ints(256, 400).to(torch.uint8), d.ints(256, 400).to(torch.uint8)))
def average_bytes(a, b):
    return ((a.int() + b.int() + 1) >> 1).to(torch.uint8), (a.int() - b.int()).abs().to(torch.uint8)


honest(average_bytes, "(a | b) - ((a ^ b) >> 1)", lambda a, b: ((a | b) - ((a ^ b) >> 1),
                                                                torch.maximum(a, b) - torch.minimum(a, b)))
mistake(average_bytes, "the sum overflows a byte before it is halved", lambda a, b: ((a + b + 1) >> 1, (
    a.int() - b.int()).abs().to(torch.uint8)))
mistake(average_bytes, "halves are rounded down", lambda a, b: (((a.int() + b.int()) >> 1).to(torch.uint8), (
    a.int() - b.int()).abs().to(torch.uint8)))
mistake(average_bytes, "the difference wraps before the magnitude is taken", lambda a, b: (
    ((a.int() + b.int() + 1) >> 1).to(torch.uint8), a - b))


@fifth(lambda d: (torch.cat((d(200, scale=90.0), torch.tensor([300.0, -300.0, 127.5, -128.5, 1e9, -1e9, 2.5,
        3.5]))),))
def saturate_to_int8(x):
    return torch.round(x).clamp(-128, 127).to(torch.int8)


honest(saturate_to_int8, "clamped first", lambda x: x.clamp(-128, 127).round().to(torch.int8))
mistake(saturate_to_int8, "values past the range wrap", lambda x: (
    (x.round().long() + 128) % 256 - 128).to(torch.int8))
mistake(saturate_to_int8, "the range is symmetric, from -127",
    lambda x: x.round().clamp(-127, 127).to(torch.int8))
mistake(saturate_to_int8, "values are truncated towards zero",
    lambda x: x.clamp(-128, 127).trunc().to(torch.int8))

# ------------------------------------------------------------------ orders


def ties(d):
    x = (d(6, 60) * 2).round() / 2
    return (x,)


@fifth(ties)
def stable_top_five(x):
    v, i = torch.sort(x, dim=-1, descending=True, stable=True)
    return v[:, :5], i[:, :5]


def top_five(x, later=False, small=False, unsorted=False, absolute=False):
    out = []
    for row in x.tolist():
        ids = sorted(range(60), key=lambda i: (row[i] if small else -abs(row[i]) if absolute else -row[i],
                                               -i if later else i))[:5]
        out.append(sorted(ids) if unsorted else ids)
    i = torch.tensor(out)
    return x.gather(1, i), i


honest(stable_top_five, "sorted by value, then by index", top_five)
for words, keys in {
        "of equal values the later comes first": {"later": True},
        "the smallest are taken": {"small": True},
        "the five come in the order of their indices": {"unsorted": True},
        "the largest magnitudes are taken": {"absolute": True}}.items():
    mistake(stable_top_five, words, lambda *a, keys=keys: top_five(*a, **keys))


@fifth(lambda d: ((d(500) * 4).round() / 2, torch.arange(-6, 7).float() / 2))
def bucket_left(x, edges):
    return torch.searchsorted(edges, x)


honest(bucket_left, "counts the edges below", lambda x, e: (e[None] < x[:, None]).sum(1))
mistake(bucket_left, "a value on an edge goes to its right", lambda x, e: torch.searchsorted(e, x, right=True))
mistake(bucket_left, "buckets are clamped to the last edge's index",
    lambda x, e: torch.searchsorted(e, x).clamp(max=12))
mistake(bucket_left, "buckets count from the edge below",
    lambda x, e: (torch.searchsorted(e, x) - 1).clamp(min=0))


@fifth(lambda d: (d(9, 40), 0.25))
def row_quantile(x, q):
    v = x.sort(-1)[0]
    at = q * (x.shape[-1] - 1)
    low = int(at)
    return v[:, low] + (at - low) * (v[:, low + 1] - v[:, low]), x.median(-1)[0]


def quantile_kernel(x, q, n=39, near=False, upper=False, mean=False, low=False):
    v = x.topk(40, -1, largest=False)[0]
    at = q * n
    i = int(at)
    y = v[:, round(at)] if near else v[:, i] if low else torch.lerp(v[:, i], v[:, i + 1], at - i)
    return y, v[:, 20] if upper else (v[:, 19] + v[:, 20]) / 2 if mean else v[:, 19]


honest(row_quantile, "torch's own and the 20th of 40",
    lambda x, q: (torch.quantile(x, q, -1), x.kthvalue(20, -1)[0]))
honest(row_quantile, "by topk", quantile_kernel)
wrongs(row_quantile, quantile_kernel, {
    "the position is q n, not q (n - 1)": {"n": 40},
    "the nearest value instead of the interpolated": {"near": True},
    "the median is the upper of the two": {"upper": True},
    "the median is the mean of the two": {"mean": True}})


@fifth(lambda d: ((d(5, 30) * 2).round(),))
def average_ranks(x):
    below = (x[:, None, :] < x[:, :, None]).sum(-1)
    same = (x[:, None, :] == x[:, :, None]).sum(-1)
    return below.to(x.dtype) + (same.to(x.dtype) + 1) / 2


def rank_kernel(x, ties="average", base=1.0):
    out = torch.zeros_like(x)
    for r, row in enumerate(x):
        order = torch.sort(row, stable=True)[1]
        for place, i in enumerate(order.tolist()):
            out[r, i] = place + base
        for v in row.unique():
            at = row == v
            ranks = out[r, at]
            out[r, at] = {"average": ranks.mean(), "min": ranks.min(), "max": ranks.max(), "first": ranks}[ties]
    return out


honest(average_ranks, "sorted, then averaged over ties", rank_kernel)
wrongs(average_ranks, rank_kernel, {
    "ties take their lowest rank": {"ties": "min"},
    "ties are ranked in the order they come": {"ties": "first"},
    "ranks count from 0": {"base": 0.0}})

# ------------------------------------------------------------------ counts


@fifth(lambda d: (torch.cat((d(700), torch.tensor([-2.0, 2.0, 2.0, 0.0, 1.0, -1.0, 2.5, -3.0]))),))
def histogram_sixteen(x):
    return torch.histc(x, 16, -2.0, 2.0)


def histogram_kernel(x, closed=True, clip=False, lost=False, width=16):
    i = ((x.double() + 2) / 4 * width).floor()
    i = torch.where((x == 2) & closed, torch.tensor(15.0).double(), i)
    i = i.clamp(0, 15) if clip else i
    i = i[(i >= 0) & (i < 16)].long()
    n = torch.zeros(16)
    if lost:
        for at in range(0, len(i), 32):
            n = torch.maximum(n, n + F.one_hot(i[at:at + 32], 16).amax(0))
        return n
    return n.index_add(0, i, torch.ones(len(i)))


honest(histogram_sixteen, "bins by a rounded down quotient", histogram_kernel)
wrongs(histogram_sixteen, histogram_kernel, {
    "values on the upper edge are not counted": {"closed": False},
    "values outside go to the first and the last bin": {"clip": True},
    "equal bins of a warp are counted once": {"lost": True},
    "the bin's width is 4/15": {"width": 15}})


@fifth(lambda d: (d.ints(7, 3000), torch.ones(3000) * 0.1 + d.rand(3000) * 1e-3))
def weighted_counts(i, w):
    return torch.bincount(i, w.to(w.dtype), minlength=7).to(w.dtype)


def weighted_kernel(i, w, low=None, plain=False, tail=3000):
    n = torch.zeros(7)
    for at in range(0, tail, 8):
        n = cut(n.index_add(0, i[at:at + 8], torch.ones_like(w[at:at + 8]) if plain else w[at:at + 8]), low)
    return n


honest(weighted_counts, "a product with the one-hot matrix", lambda i, w: w @ F.one_hot(i, 7).float())
wrongs(weighted_counts, weighted_kernel, {
    "counts are kept in bf16 and stop growing": {"low": bf},
    "counts are kept in fp16": {"low": hf},
    "weights are left out": {"plain": True},
    "the last 56 values, past a multiple of 64, are left out": {"tail": 2944}})


@fifth(lambda d: (d(40, 6), d.ints(12, 25), d(25, 6)))
def scatter_variants(x, i, v):
    return x.index_add(0, i, v), x.scatter_reduce(0, i[:, None].expand_as(v), v, "amax", include_self=True), \
        x.scatter_reduce(0, i[:, None].expand_as(v), v, "mean", include_self=False)


def scatter_kernel(x, i, v, lost=False, alone=False, self_mean=False, zero=False, assign=False):
    add, top, mean = x.clone(), x.clone(), x.clone()
    for row in i.unique().tolist():
        g = v[i == row]
        add[row] = x[row] + (g[-1] if lost else g.sum(0)) if not assign else g.sum(0)
        top[row] = g.amax(0) if alone else torch.maximum(x[row], g.amax(0))
        mean[row] = (x[row] + g.sum(0)) / (len(g) + 1) if self_mean else g.mean(0)
    if zero:
        live = torch.zeros(40, dtype=torch.bool)
        live[i] = True
        mean[~live] = 0
    return add, top, mean


honest(scatter_variants, "row by row", scatter_kernel)
wrongs(scatter_variants, scatter_kernel, {
    "of rows added to the same place only the last counts": {"lost": True},
    "the maximum leaves out the value that was there": {"alone": True},
    "the mean includes the value that was there": {"self_mean": True},
    "rows that nothing is scattered to become 0 in the mean": {"zero": True},
    "the sum overwrites what was there": {"assign": True}})

# ------------------------------------------------------------------ sums


@fifth(lambda d: (d(4, 4096, shift=0.5, dtype=bf),))
def long_row_sum(x):
    return x.sum(-1), x.float().square().mean(-1).sqrt().to(x.dtype)


def row_sum(x, low=None, tail=4096, step=16, keep=0, n=4096):
    s, q = torch.zeros(4), torch.zeros(4)
    for at in range(0, tail, step):
        p = x[:, at:at + step]
        s, q = s + p.sum(-1), q + p.square().sum(-1)
        s, q = (cut(s, low), cut(q, low)) if low else (bits(s, keep, torch.trunc),
            bits(q, keep, torch.trunc)) if keep else (
            s, q)
    return s, (q / n).sqrt()


def kahan(x):
    s, c = torch.zeros(4, 64), torch.zeros(4, 64)
    for p in x.float().unflatten(1, (64, 64)).unbind(1):
        y = p - c
        t = s + y
        s, c = t, (t - s) - y
    return s.sum(-1), x.square().sum(-1).div(4096).sqrt()


rights(long_row_sum, row_sum, {"blocks of 16": {}})
rights(long_row_sum, kahan, {"compensated sums in 64 lanes": {}})
wrongs(long_row_sum, row_sum, {
    "sums are kept in bf16": {"low": bf},
    "sums are kept in 11 bits, cut off": {"keep": 11},
    "the last block of 1024 is left out": {"tail": 3072},
    "the root mean square divides by 3840, 15 of 16 blocks": {"n": 3840}})


@fifth(lambda d: (d(3, 2500),))
def running_sums(x):
    return x.cumsum(-1), x.flip(-1).cumsum(-1).flip(-1)


def running_kernel(x, block=256, reset=False, late=False, exclusive=False, low=None, forward=False):
    def scan(x):
        out, carry, prior = [], torch.zeros(3, 1), torch.zeros(3, 1)
        for at in range(0, 2500, block):
            y = x[:, at:at + block].cumsum(-1) + (prior if late else carry)
            prior, carry = carry, cut(torch.zeros(3, 1) if reset else y[:, -1:], low)
            out.append(y)
        y = torch.cat(out, -1)
        return y - x if exclusive else y
    total = scan(x)
    return total, (total if forward else scan(x.flip(-1)).flip(-1))


honest(running_sums, "blocks of 256 with a carry", running_kernel)
honest(running_sums, "in double precision", wide(running_sums, torch.float64))
wrongs(running_sums, running_kernel, {
    "each block of 256 starts from zero": {"reset": True},
    "a block takes the carry of two blocks before (a race)": {"late": True},
    "the sums are exclusive": {"exclusive": True},
    "the carry is kept in bf16": {"low": bf},
    "the reversed sum runs forward": {"forward": True}})


@fifth(lambda d: (d(30, 200, shift=100.0),))
def row_deviation(x):
    return x.std(-1), x.var(-1, correction=0)


def deviation(x, shift=True, n=199, biased=200):
    y = x - x[:, :1] if shift else x
    m = y.sum(-1, keepdim=True) / 200
    s = (y * y).sum(-1) - 200 * (m * m)[:, 0] if not shift else (y - m).square().sum(-1)
    return (s / n).clamp(min=0).sqrt(), s / biased


honest(row_deviation, "shifted by the first value", deviation)
honest(row_deviation, "in double precision", wide(row_deviation, torch.float64))
wrongs(row_deviation, deviation, {
    "the squared mean is taken off the mean square in float32": {"shift": False},
    "the deviation divides by n": {"n": 200},
    "the variance divides by n - 1": {"biased": 199}})

# ------------------------------------------------------------------ not a number


def holes(d):
    x = d(8, 50)
    x[d.rand(8, 50) > 0.9] = NAN
    x[0], x[1, 3], x[2, 5] = 1.0, INF, -INF
    return (x,)


@fifth(holes)
def nan_rules(x):
    return x.amax(-1), x.nansum(-1), x.clamp(-1.0, 1.0), torch.relu(x)


def nan_kernel(x, quiet=False, spread=False, low=False, zero=False, finite=False):
    gap = x.isnan()
    top = torch.where(gap, -INF, x).amax(-1)
    top = top if quiet else torch.where(gap.any(-1), NAN, top)
    y = torch.where(gap, 0.0, x)
    total = x.sum(-1) if spread else torch.where(x.isfinite(), x, 0.0).sum(-1) if finite else y.sum(-1)
    c = torch.where(x > 1, 1.0, torch.where(x < -1, -1.0, x))
    c = torch.where(gap, -1.0, c) if low else c
    r = torch.where(x > 0, x, 0.0) if zero else torch.where(x <= 0, 0.0, x)
    return top, total, c, r


honest(nan_rules, "by comparisons", nan_kernel)
wrongs(nan_rules, nan_kernel, {
    "the maximum passes over NaN": {"quiet": True},
    "the sum that should leave out NaN does not": {"spread": True},
    "clamping turns NaN into the lower bound": {"low": True},
    "relu turns NaN into 0": {"zero": True},
    "the sum leaves out infinities too": {"finite": True}})


@fifth(lambda d: (torch.cat((d(100), torch.tensor([0.0, -0.0, 2.0, -2.0, 0.5, -0.5, INF, -INF, 1e3, 1.5, -1.5,
        2.5, -2.5, 4.5, 6.5, -8.5]))),))
def signs_and_halves(x):
    return torch.sign(x), torch.round(x), 1 / x, torch.frac(x.clamp(-1e6, 1e6))


def signs(x, half=False, one=False, floor=False):
    s = torch.where(x > 0, 1.0, torch.where(x < 0, -1.0, 1.0 if one else 0.0))
    r = (x.abs() + 0.5).floor() * s if half else x.round()
    y = x.clamp(-1e6, 1e6)
    return s, r, x.reciprocal(), y - y.floor() if floor else y - y.trunc()


honest(signs_and_halves, "by comparisons", signs)
wrongs(signs_and_halves, signs, {
    "the sign of zero is 1": {"one": True},
    "halves are rounded away from zero": {"half": True},
    "the fraction of negatives is taken from the floor": {"floor": True}})
