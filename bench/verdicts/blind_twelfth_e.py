# SPDX-License-Identifier: Apache-2.0
"""Set Q: moments, scans and order."""

import torch
import torch.nn.functional as F

from .blind import bf, hf, narrow
from .blind_twelfth_a import another, good, lanes, pairwise, twelfth, wrong

# ------------------------------------------------------------------ moments, scans


@twelfth(lambda d: (d(12, 30, 40, dtype=hf, shift=8),))
def twelfth_std(x):
    return x.float().std((0, 2)).to(hf)


def std(x, n=479, dims=(0, 2), root=True):
    f = x.float()
    v = ((f - f.mean(dims, keepdim=True)) ** 2).sum(dims) / n
    return v.sqrt() if root else v


good(twelfth_std, std, hf, two_passes={})
wrong(
    twelfth_std,
    std,
    {
        "the variance for its root": {"root": False},
        "only the first sample is looked at": lambda x: x[0].float().std(1),
        "the count is 512, padded": {"n": 511},
    },
    hf,
)


@twelfth(lambda d: (d(6, 3000, dtype=bf),))
def twelfth_cumsum(x):
    return torch.cumsum(x.float(), -1)


def cumsum(x, tile=256, kind=None, exclusive=False, lost=None, back=False):
    f, carry, out = x.float(), torch.zeros(6, 1), []
    for i in range(0, 3000, tile):
        part = torch.cumsum(f[:, i : i + tile], -1)
        out.append(part + (0 if lost == i // tile else carry))
        carry = carry + part[:, -1:]
        carry = narrow(carry, kind) if kind else carry
    y = torch.cat(out, -1)
    return y - f if exclusive else y.flip(-1) if back else y


def doubling(x):
    y, step = x.float(), 1
    while step < 3000:
        y = y + F.pad(y[:, :-step], (step, 0))
        step *= 2
    return y


good(twelfth_cumsum, cumsum, tiles_of_256={}, by_doubling=doubling)
wrong(
    twelfth_cumsum,
    cumsum,
    {
        "the sum excludes its own element": {"exclusive": True},
        "one tile of 256 begins without the carry": {"lost": 7},
        "the carry is kept in bfloat16": {"kind": bf},
    },
)


@twelfth(lambda d: (d(256, 1024, dtype=bf, shift=1),))
def twelfth_mean(x):
    return x.mean(0)


def mean(x, by=256, rows=256, kind=None, twice=False):
    f = x.float()[:rows].T
    return (lanes(f, 16, kind) + (f[:, 64:80].sum(1) if twice else 0)) / by


good(twelfth_mean, mean, bf, sixteen_lanes={}, pairwise=lambda x: pairwise(x.float().T) / 256)
wrong(
    twelfth_mean,
    mean,
    {
        "the last 16 rows are not added, the count is whole": {"rows": 240},
        "16 rows are added twice": {"twice": True},
        "the sum is kept in bfloat16": {"kind": bf},
    },
    bf,
)

# ------------------------------------------------------------------ order


@twelfth(lambda d: (d.ints(40, 20, 60).float(),))
def twelfth_sort(x):
    return torch.sort(x, dim=-1, descending=True, stable=True)


def sort(x, turn=False, up=False, keep=60, pairs=True):
    i = torch.argsort(x, dim=-1, stable=True, descending=not up)
    i = torch.argsort(x.flip(-1), dim=-1, stable=True, descending=True).mul(-1).add(59) if turn else i
    i = torch.cat([i[:, :keep], i[:, keep:].flip(-1)], -1)
    return x.gather(-1, i), i if pairs else torch.argsort(i, -1)


def ranks(x):
    """Each element's place by counting."""
    j = torch.arange(60)
    before = (x[:, None] > x[:, :, None]) | ((x[:, None] == x[:, :, None]) & (j < j[:, None]))
    i = torch.argsort(before.sum(-1), -1)
    return x.gather(-1, i), i


good(twelfth_sort, sort, by_argsort={}, by_counting=ranks)
wrong(
    twelfth_sort,
    sort,
    {
        "equal elements are in the opposite order": {"turn": True},
        "sorted from small to great": {"up": True},
        "the last four of a row are turned about": {"keep": 56},
        "ranks for indices": {"pairs": False},
    },
)


@twelfth(lambda d: (d(15, 31),))
def twelfth_quantile(x):
    return torch.quantile(x, torch.tensor(0.3, dtype=x.dtype), dim=-1)


def quantile(x, n=30, how="linear"):
    s = torch.sort(x, -1).values
    at = 0.3 * n
    lo = min(int(at), 30)
    t = at - lo if how == "linear" else how
    return s[:, lo] + t * (s[:, min(lo + 1, 30)] - s[:, lo])


good(twelfth_quantile, quantile, linear={})
wrong(
    twelfth_quantile,
    quantile,
    {
        "the place is counted from n, not n - 1": {"n": 31},
        "the next greater element, nothing between two": {"how": 1.0},
        "the least of all": lambda x: x.amin(-1),
    },
)


@twelfth(lambda d: (d(14, 9, dtype=bf), d(14, 9, dtype=bf)))
def twelfth_row_dot(x, y):
    return (x.float() * y.float()).sum(-1)


good(twelfth_row_dot, lambda x, y: lanes(x.float() * y.float(), 4), four_lanes={})
wrong(
    twelfth_row_dot,
    None,
    {
        "the second factor's last row is of a call before": lambda x, y: torch.cat(
            [(x[:13].float() * y[:13].float()).sum(-1), (x[13:].float() * another(y)[13:].float()).sum(-1)]
        ),
        "the products are rounded to bfloat16": lambda x, y: (x * y).float().sum(-1),
    },
)
