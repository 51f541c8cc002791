# SPDX-License-Identifier: Apache-2.0
"""Set H, written blind: steps (floor, round, comparisons, codes, indices) of a reduced number.

Rows stand close to a step, so two values are right for many of them; the mistakes give a third."""

import torch
import torch.nn.functional as F

from .blind import bf, hf, honest, mistake
from .blind_sixth_m import aimed, double, halves, inside, summed


def levelled(d, rows, n, to, scale=1.0, dtype=torch.float32):
    """Rows whose mean is `to`, but for the rounding."""
    x = d(rows, n, scale=scale)
    return (x - x.double().mean(-1, keepdim=True) + to).to(dtype)


# ------------------------------------------------------------------ floor, ceil, round, trunc


@aimed(lambda d: (levelled(d, 60, 300, 1.0, scale=40.0),))
def aimed_floor_of_mean(x):
    return x.mean(-1).floor()


honest(aimed_floor_of_mean, "one addition after another", lambda x: (summed(x) / 300).floor())
honest(aimed_floor_of_mean, "by halving", lambda x: (halves(x) * (1 / 300)).floor())
honest(aimed_floor_of_mean, "in double precision", double(aimed_floor_of_mean))
mistake(aimed_floor_of_mean, "whole part plus one", lambda x: x.mean(-1).floor() + 1)
mistake(aimed_floor_of_mean, "ceiling of the mean of one row more", lambda x: (x.sum(-1) / 299).ceil())
mistake(aimed_floor_of_mean, "the whole part of minus the mean", lambda x: (-x.mean(-1)).floor())


@aimed(lambda d: (levelled(d, 50, 128, 2.0, scale=0.4, dtype=hf),))
def aimed_ceil_of_half_sum(x):
    return (x.sum(-1) / 128).ceil()


honest(aimed_ceil_of_half_sum, "by halving", inside(lambda x: (halves(x) / 128).ceil()))
honest(aimed_ceil_of_half_sum, "one after another", inside(lambda x: (summed(x) / 128).ceil()))
mistake(aimed_ceil_of_half_sum, "whole part minus one", inside(lambda x: (x.sum(-1) / 128).ceil() - 2))
mistake(
    aimed_ceil_of_half_sum,
    "ceiling plus one in the last row",
    inside(lambda x: (x.sum(-1) / 128).ceil() + (torch.arange(50) == 49) * 2),
)


@aimed(lambda d: (F.pad(d(40, 1, scale=0.0), (0, 1)) + d(40, 1),))
def aimed_round_of_softmax(x):
    return (x.softmax(-1) * 255).round()


honest(aimed_round_of_softmax, "no largest taken off", lambda x: (x.exp() * 255 / x.exp().sum(-1, True)).round())
honest(aimed_round_of_softmax, "sigmoid of the gap", lambda x: (torch.sigmoid(x - x.flip(-1)) * 255).round())
mistake(
    aimed_round_of_softmax,
    "a code is one too high: half is added before the ceiling",
    lambda x: (x.softmax(-1) * 255 + 0.5).ceil() + 1,
)
mistake(aimed_round_of_softmax, "whole part, less one", lambda x: (x.softmax(-1) * 255).floor() - 1)
mistake(aimed_round_of_softmax, "the codes run to 259", lambda x: (x.softmax(-1) * 259).round())


@aimed(lambda d: (lambda x: (x / x.double().norm(dim=-1, keepdim=True) * 3).float())(d(64, 90)).split(64))
def aimed_trunc_of_norm(x):
    return torch.linalg.vector_norm(x, dim=-1).trunc()


honest(aimed_trunc_of_norm, "squares one after another", lambda x: summed(x * x).sqrt().trunc())
honest(aimed_trunc_of_norm, "squares by halving", lambda x: halves(x * x).sqrt().trunc())
mistake(aimed_trunc_of_norm, "the whole part is rounded up twice", lambda x: x.norm(dim=-1).round() + 1)
mistake(aimed_trunc_of_norm, "no root: the whole part of the squares' sum", lambda x: x.square().sum(-1).trunc())
mistake(aimed_trunc_of_norm, "the whole part of the largest entry", lambda x: x.abs().amax(-1).trunc())


@aimed(lambda d: (levelled(d, 70, 250, 4.0, scale=9.0),))
def aimed_remainder_of_mean(x):
    return torch.remainder(x.mean(-1), 2.0)


honest(aimed_remainder_of_mean, "one after another", lambda x: torch.remainder(summed(x) / 250, 2.0))
honest(
    aimed_remainder_of_mean, "less twice the whole half", lambda x: (lambda m: m - 2 * (m / 2).floor())(halves(x) / 250)
)
mistake(aimed_remainder_of_mean, "remainder by 1.5", lambda x: torch.remainder(x.mean(-1), 1.5))
mistake(aimed_remainder_of_mean, "0.01 is left", lambda x: torch.remainder(x.mean(-1) + 0.01, 2.0))


# ------------------------------------------------------------------ comparisons and counts


@aimed(lambda d: (d(48, 64, scale=0.0) + torch.where(torch.arange(64) < 4, 0.5, 0.0),))
def aimed_count_above_share(x):
    return (x.softmax(-1) > x.softmax(-1)[:, :1]).sum(-1) + (x.softmax(-1) > 0.02).sum(-1)


honest(
    aimed_count_above_share,
    "powers over their sum",
    lambda x: (lambda p: (p > p[:, :1]).sum(-1) + (p > 0.02).sum(-1))(x.exp() / summed(x.exp())[:, None]),
)
mistake(aimed_count_above_share, "the second count is taken twice", lambda x: (x.softmax(-1) > 0.02).sum(-1) * 2)
mistake(aimed_count_above_share, "the count starts at one", lambda x: aimed_count_above_share(x) + 1)


@aimed(lambda d: ((lambda x: (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True))(d(80, 100)),))
def aimed_spread_flags(x):
    return (x.var(-1) > 1).to(x.dtype) + (x.std(-1) >= 1).to(x.dtype)


honest(
    aimed_spread_flags,
    "two passes, one after another",
    lambda x: (lambda v: (v > 1).to(x.dtype) + (v.sqrt() >= 1).to(x.dtype))(
        summed((x - x.mean(-1, keepdim=True)).square()) / 99
    ),
)
mistake(aimed_spread_flags, "a flag is 3", lambda x: (x.var(-1) > 0.5).to(x.dtype) * 3)
mistake(aimed_spread_flags, "flags are minus one", lambda x: -(x.var(-1) > 0.5).to(x.dtype))


# ------------------------------------------------------------------ indices


def paired_means(d):
    """Two columns have the same mean but for the rounding; all others are lower."""
    x = d(30, 12, 200)
    x = x - x.double().mean(-1, keepdim=True)
    lift = torch.zeros(30, 12, 1)
    lift[:, 3] = lift[:, 8] = 0.7
    return ((x + lift).float(),)


@aimed(paired_means)
def aimed_argmax_of_means(x):
    return x.mean(-1).argmax(-1)


honest(aimed_argmax_of_means, "sums one after another", lambda x: summed(x).argmax(-1))
honest(aimed_argmax_of_means, "sums by halving", lambda x: halves(x).argmax(-1))
mistake(aimed_argmax_of_means, "the index counts from one", lambda x: x.mean(-1).argmax(-1) + 1)
mistake(aimed_argmax_of_means, "the winner of the largest entries", lambda x: x.amax(-1).argmax(-1))
mistake(
    aimed_argmax_of_means,
    "the third place in one row",
    lambda x: torch.where(torch.arange(30) == 17, 5, x.mean(-1).argmax(-1)),
)


def twin_keys(d):
    q, k = d(40, 32, dtype=bf), d(60, 32, dtype=bf)
    k[7] = k[41]
    return q, k * torch.where(torch.arange(60) % 30 == 11, 4.0, 1.0)[:, None].to(bf)


@aimed(twin_keys)
def aimed_top_scores(q, k):
    return (q @ k.mT).topk(3).indices


def top(q, k, wrong=0):
    at = (q.float() @ k.float().mT).sort(-1, descending=True).indices
    if wrong == 1:
        return at[:, [0, 1, 1]]
    return at[:, 3:6] if wrong == 2 else at[:, 1:4] if wrong == 3 else at[:, :3]


honest(aimed_top_scores, "a full sort", top)
mistake(aimed_top_scores, "the second place is named twice", lambda *a: top(*a, wrong=1))
mistake(aimed_top_scores, "places four to six", lambda *a: top(*a, wrong=2))
mistake(aimed_top_scores, "places two to four", lambda *a: top(*a, wrong=3))


@aimed(lambda d: (d.rand(24, 50).mul(0.2), torch.linspace(0, 5, 21)))
def aimed_buckets_of_cumsum(x, edges):
    return torch.bucketize(x.cumsum(-1), edges)


honest(
    aimed_buckets_of_cumsum,
    "edges below, counted",
    lambda x, e: (torch.stack([summed(x[:, : i + 1]) for i in range(50)], -1)[..., None] > e).sum(-1),
)
honest(
    aimed_buckets_of_cumsum,
    "one after another from the front",
    lambda x, e: torch.searchsorted(e, torch.stack([halves(x[:, : i + 1]) for i in range(50)], -1)),
)
mistake(aimed_buckets_of_cumsum, "the bucket before", lambda x, e: torch.bucketize(x.cumsum(-1), e) - 1)
mistake(aimed_buckets_of_cumsum, "an exclusive sum", lambda x, e: torch.bucketize(x.cumsum(-1) - x, e))
mistake(
    aimed_buckets_of_cumsum,
    "the last bucket of each row is one higher",
    lambda x, e: torch.bucketize(x.cumsum(-1), e) + (torch.arange(50) == 49),
)


@aimed(lambda d: (d(100, 16), d.rand(100, 1)))
def aimed_pick_by_chance(x, u):
    return torch.searchsorted(x.softmax(-1).cumsum(-1), u)


def pick(x, u, more=0, start=0):
    p = x.exp()
    total = torch.stack([summed(p[:, start : i + 1]) if i >= start else p[:, 0] * 0 for i in range(16)], -1)
    return (total < u * p.sum(-1, keepdim=True)).sum(-1, keepdim=True) + more


honest(aimed_pick_by_chance, "powers not divided, the threshold multiplied", pick)
mistake(aimed_pick_by_chance, "the first share is skipped", lambda *a: pick(*a, start=1))
mistake(aimed_pick_by_chance, "the place after the right one", lambda *a: pick(*a, more=1))


# ------------------------------------------------------------------ codes


@aimed(lambda d: (d(20, 96, dtype=bf),))
def aimed_codes_of_groups(x):
    g = x.view(20, 3, 32)
    return (g / (g.abs().amax(-1, keepdim=True) / 127)).round().clamp(-127, 127).to(torch.int8)


def codes(x, top=127, more=0, step=torch.round):
    g = x.float().view(20, 3, 32)
    return (step(g * (top / g.abs().amax(-1, keepdim=True))) + more).clamp(-128, 127).to(torch.int8)


honest(aimed_codes_of_groups, "times the reciprocal scale, in float32", codes)
mistake(aimed_codes_of_groups, "the scale is the largest over 120", lambda x: codes(x, top=120))
mistake(aimed_codes_of_groups, "every code is one too high", lambda x: codes(x, more=1))
mistake(aimed_codes_of_groups, "the next lower whole number, less one", lambda x: codes(x, more=-1, step=torch.floor))
