# SPDX-License-Identifier: Apache-2.0
"""Set F, written blind, class by class: blind_classes_b to _h hold the rest and use the helpers here.

This part: results in 16 bits that a small slip in the formula moves by half a unit in the last place to
a whole one. A kernel that works in float32 and rounds once is off by half a unit and 1e-6 of one."""

import torch
import torch.nn.functional as F

from .blind import bf, family, hf, honest, mistake
from .blind_fourth_a import double, inside


def classed(args):
    return family(args, sets="F")


def folded(x, way="forward"):
    """The sum over the last axis, one addition after another in x's own arithmetic."""
    n = x.shape[-1]
    if way == "tree":
        while n > 1:
            half = (n + 1) // 2
            x = torch.cat((x[..., : n // 2] + x[..., half:n], x[..., n // 2 : half]), -1)
            n = half
        return x[..., 0]
    if way == "lanes":  # eight partial sums, as a vector unit keeps them
        return sum(folded(x[..., lane::8]) for lane in range(min(8, n)))
    at = range(n - 1, -1, -1) if way == "back" else range(n)
    total = torch.zeros_like(x[..., 0])
    for i in at:
        total = total + x[..., i]
    return total


def centred(d, rows, n, low, high, dtype, mean=0.0):
    """Rows whose variance (by n - 1) runs from `low` to `high`, before they are rounded."""
    x = d(rows, n)
    size = torch.linspace(low, high, rows)[:, None] ** 0.5
    return ((x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True) * size + mean).to(dtype)


def positive(d, rows, n, low, high, dtype):
    """Rows of positive numbers whose means run from `low` to `high`."""
    x = d.rand(rows, n) + 0.5
    return (x / x.mean(-1, keepdim=True) * torch.linspace(low, high, rows)[:, None]).to(dtype)


def welford(x, lanes=8):
    """Mean and sum of squared deviations: one element after another in each lane, lanes merged in pairs."""
    parts = []
    for lane in (x[..., i::lanes] for i in range(min(lanes, x.shape[-1]))):
        mean, m2 = lane[..., 0], torch.zeros_like(lane[..., 0])
        for i in range(1, lane.shape[-1]):
            step = lane[..., i] - mean
            mean = mean + step / (i + 1)
            m2 = m2 + step * (lane[..., i] - mean)
        parts.append((lane.shape[-1], mean, m2))
    while len(parts) > 1:
        (n, mean, m2), (k, other, o2) = parts[:2]
        step = other - mean
        parts = parts[2:] + [(n + k, mean + step * (k / (n + k)), m2 + o2 + step.square() * (n * k / (n + k)))]
    return parts[0][1:]


def squares(x):
    """The sum of squared deviations in two passes."""
    return (x - x.mean(-1, keepdim=True)).square().sum(-1)


# ------------------------------------------------------------------ spread


@classed(lambda d: (centred(d, 64, 200, 3.3, 3.95, bf),))  # deviations from 1.82 to 1.99
def near_one_ulp_std(x):
    return x.std(-1)


honest(near_one_ulp_std, "element after element in eight lanes", inside(lambda x: (welford(x)[1] / 199).sqrt()))
honest(near_one_ulp_std, "two passes", inside(lambda x: (squares(x) / 199).sqrt()))
honest(near_one_ulp_std, "float64 inside", double(near_one_ulp_std))
mistake(near_one_ulp_std, "divides by n, not n - 1", inside(lambda x: (squares(x) / 200).sqrt()))
mistake(near_one_ulp_std, "eps of 0.02 under the root", inside(lambda x: (squares(x) / 199 + 0.02).sqrt()))


@classed(lambda d: (centred(d, 40, 2000, 1.86, 1.99, hf, mean=0.5),))
def near_one_ulp_var(x):
    return x.var(-1)


honest(
    near_one_ulp_var,
    "two passes, in eight lanes",
    inside(lambda x: folded((x - x.mean(-1, keepdim=True)).square(), "lanes") / 1999),
)
honest(
    near_one_ulp_var,
    "sums of two halves merged",
    inside(
        lambda x: (
            (squares(x[:, :1000]) + squares(x[:, 1000:]) + (x[:, :1000].mean(-1) - x[:, 1000:].mean(-1)).square() * 500)
            / 1999
        )
    ),
)
honest(near_one_ulp_var, "float64 inside", double(near_one_ulp_var))
mistake(near_one_ulp_var, "divides by n, not n - 1", inside(lambda x: squares(x) / 2000))
mistake(
    near_one_ulp_var,
    "a padding element is counted: n + 1 in the mean and in the divisor",
    inside(lambda x: (x - x.sum(-1, keepdim=True) / 2001).square().sum(-1) / 2000),
)


@classed(
    lambda d: (
        torch.cat(
            (
                centred(d, 24, 180, 1.0, 1.03, bf),
                centred(d, 24, 180, 1.47, 1.55, bf),
                centred(d, 24, 180, 1.9, 1.99, bf),
            )
        ).mT.contiguous(),
    )
)
def near_one_ulp_columns(x):
    return x.var(0)


honest(near_one_ulp_columns, "row after row", inside(lambda x: welford(x.mT)[1] / 179))
honest(near_one_ulp_columns, "float64 inside", double(near_one_ulp_columns))
mistake(near_one_ulp_columns, "divides by n, not n - 1", inside(lambda x: squares(x.mT) / 180))


# ------------------------------------------------------------------ means and sums


@classed(lambda d: (torch.cat((positive(d, 60, 255, 1.45, 1.55, bf), positive(d, 60, 255, 1.9, 1.98, bf))),))
def near_one_ulp_mean(x):
    return x.mean(-1)


honest(near_one_ulp_mean, "one addition after another", inside(lambda x: folded(x) / 255))
honest(near_one_ulp_mean, "a tree, times the reciprocal", inside(lambda x: folded(x, "tree") * (1 / 255)))
honest(near_one_ulp_mean, "float64 inside", double(near_one_ulp_mean))
mistake(near_one_ulp_mean, "divides by the padded length of 256", inside(lambda x: x.sum(-1) / 256))
mistake(near_one_ulp_mean, "the last element is not added", inside(lambda x: x[:, :-1].sum(-1) / 255))


@classed(lambda d: (positive(d, 48, 400, 1.88 * 0.64, 1.98 * 0.64, bf),))  # totals from 481 to 507
def near_one_ulp_sum(x):
    return x.sum(-1) / 2


honest(near_one_ulp_sum, "from the end", inside(lambda x: folded(x, "back") * 0.5))
honest(near_one_ulp_sum, "in eight lanes", inside(lambda x: folded(x, "lanes") * 0.5))
mistake(
    near_one_ulp_sum,
    "the element at the seam of two blocks is added twice",
    inside(lambda x: (x[:, :201].sum(-1) + x[:, 200:].sum(-1)) / 2),
)
mistake(near_one_ulp_sum, "a factor of 1 + 2^-9", inside(lambda x: x.sum(-1) / 2 * (1 + 2.0**-9)))


@classed(lambda d: (positive(d, 64, 240, 1.86, 1.97, bf).view(8, 8, 240),))
def near_one_ulp_pooled(x):
    return F.adaptive_avg_pool1d(x, 1)


honest(near_one_ulp_pooled, "one addition after another", inside(lambda x: folded(x)[..., None] / 240))
honest(
    near_one_ulp_pooled,
    "means of twelve pieces",
    inside(lambda x: x.unflatten(-1, (12, 20)).mean(-1).mean(-1, keepdim=True)),
)
mistake(near_one_ulp_pooled, "divides by n + 1", inside(lambda x: x.sum(-1, keepdim=True) / 241))
mistake(
    near_one_ulp_pooled,
    "the first element is left out of the sum, not of the count",
    inside(lambda x: x[..., 1:].sum(-1, keepdim=True) / 240),
)


# ------------------------------------------------------------------ norms


@classed(lambda d: (centred(d, 60, 300, 1.93**2 / 299, 1.99**2 / 299, hf),))
def near_one_ulp_norm(x):
    return torch.linalg.vector_norm(x, dim=-1)


honest(near_one_ulp_norm, "a tree of squares", inside(lambda x: folded(x.square(), "tree").sqrt()))
honest(
    near_one_ulp_norm,
    "scaled by the largest",
    inside(lambda x: (lambda m: (x / m).square().sum(-1).sqrt() * m[:, 0])(x.abs().amax(-1, keepdim=True))),
)
mistake(near_one_ulp_norm, "a factor of 1 + 2^-11", inside(lambda x: x.norm(dim=-1) * (1 + 2.0**-11)))
mistake(near_one_ulp_norm, "eps of 0.003 under the root", inside(lambda x: (x.square().sum(-1) + 3e-3).sqrt()))


@classed(lambda d: (d(32, 1024, dtype=hf), positive(d, 1, 1024, 1.0, 1.0, hf)[0]))
def near_one_ulp_rms_norm(x, w):
    return F.rms_norm(x, (1024,), w, 1e-6)


honest(
    near_one_ulp_rms_norm,
    "divided by the root",
    inside(lambda x, w: x / (folded(x.square(), "lanes")[:, None] / 1024 + 1e-6).sqrt() * w),
)
honest(near_one_ulp_rms_norm, "float64 inside", double(near_one_ulp_rms_norm))
mistake(
    near_one_ulp_rms_norm,
    "divides the squares by n - 1",
    inside(lambda x, w: x * torch.rsqrt(x.square().sum(-1, keepdim=True) / 1023 + 1e-6) * w),
)
mistake(
    near_one_ulp_rms_norm,
    "eps is 1e-3, not 1e-6",
    inside(lambda x, w: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-3) * w),
)


# ------------------------------------------------------------------ losses and softmax


@classed(lambda d: (torch.cat((d(64, 30, scale=0.2), d(64, 30, scale=0.3)), 1).to(bf),))
def near_one_ulp_log_softmax(x):
    return x.log_softmax(0)


honest(
    near_one_ulp_log_softmax,
    "maximum taken off, then a tree",
    inside(lambda x: (lambda y: y - folded(y.exp().mT, "tree").log())(x - x.amax(0))),
)
honest(
    near_one_ulp_log_softmax,
    "powers of two",
    inside(lambda x: x - (x * 1.4426950408889634).exp2().sum(0).log2() * 0.6931471805599453),
)
mistake(near_one_ulp_log_softmax, "the last row is left out of the sum", inside(lambda x: x - x[:-1].logsumexp(0)))
mistake(
    near_one_ulp_log_softmax,
    "the maximum is counted twice",
    inside(lambda x: x - (x.exp().sum(0) + x.amax(0).exp()).log()),
)


@classed(lambda d: (d(40, 256, scale=0.3, dtype=bf),))
def near_one_ulp_softmax(x):
    return x.softmax(-1)


honest(
    near_one_ulp_softmax,
    "powers of two, no maximum taken off",
    inside(lambda x: (lambda e: e / folded(e)[:, None])((x * 1.4426950408889634).exp2())),
)
honest(near_one_ulp_softmax, "float64 inside", double(near_one_ulp_softmax))
mistake(
    near_one_ulp_softmax,
    "the first column is added twice",
    inside(lambda x: x.exp() / (x.exp().sum(-1, keepdim=True) + x[:, :1].exp())),
)
mistake(
    near_one_ulp_softmax,
    "a padding column of logit 0 is in the sum",
    inside(lambda x: x.exp() / (x.exp().sum(-1, keepdim=True) + 1)),
)


# ------------------------------------------------------------------ optimizers


@classed(lambda d: (d.rand(4000).mul(0.49).add(1.5).to(bf), d(4000, scale=0.3, dtype=bf)))
def near_one_ulp_second_moment(v, g, beta=0.999):
    return beta * v + (1 - beta) * g * g


honest(near_one_ulp_second_moment, "as a step towards the square", inside(lambda v, g: v + 0.001 * (g.square() - v)))
honest(near_one_ulp_second_moment, "float64 inside", double(near_one_ulp_second_moment))
mistake(near_one_ulp_second_moment, "beta is 0.995, not 0.999", inside(near_one_ulp_second_moment, beta=0.995))


@classed(lambda d: (d.rand(3000).mul(0.45).add(1.52).to(bf), d(3000, scale=0.2, dtype=bf)))
def near_one_ulp_decayed_step(p, g, decay=0.04):
    return p - 0.1 * (g + decay * p)


honest(near_one_ulp_decayed_step, "the decay taken off first", inside(lambda p, g: p * (1 - 0.004) - 0.1 * g))
honest(near_one_ulp_decayed_step, "float64 inside", double(near_one_ulp_decayed_step))
mistake(near_one_ulp_decayed_step, "no weight decay", inside(near_one_ulp_decayed_step, decay=0.0))
mistake(near_one_ulp_decayed_step, "the decay is applied twice", inside(near_one_ulp_decayed_step, decay=0.08))
