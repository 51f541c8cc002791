# SPDX-License-Identifier: Apache-2.0
"""Set M: reductions in many orders, transforms, small linear algebra, distances."""

import math

import torch

from .blind import bf, hf, narrow, tf32
from .blind_ninth_a import bad, ok
from .blind_tenth_a import tenth

F = torch.nn.functional
INF = float("inf")


# ------------------------------------------------------------------ sums of half precision, many orders


@tenth(lambda d: (d(24, 700, dtype=hf),))
def tenth_half_sum(x):
    return x.sum(-1), x.mean(-1)


def half_sum(x, way="serial", kind=None, lanes=32, n=700, twice=False, unroll=8):
    x = x.float()[:, :n]
    if way == "tree":
        y = F.pad(x, (0, 1024 - n))
        while y.shape[-1] > 1:
            h = y.shape[-1] // 2
            y = y[:, :h] + y[:, h:]
            y = narrow(y, kind) if kind else y
        y = y[:, 0]
    elif way == "lanes":
        y = F.pad(x, (0, -n % lanes)).view(24, -1, lanes)
        part = torch.zeros(24, lanes)
        for j in range(y.shape[1]):
            part = part + y[:, j]
            part = narrow(part, kind) if kind else part
        y = part.sum(-1)
    elif way == "kahan":
        y, c = torch.zeros(24), torch.zeros(24)
        for j in range(n):
            t = x[:, j] - c
            s = y + t
            c, y = (s - y) - t, s
    else:
        y = torch.zeros(24)
        for j in range(0, n, unroll):
            y = y + x[:, j : j + unroll].sum(-1)
            y = narrow(y, kind) if kind else y
    y = y + x[:, 512] if twice else y
    return y, y / 700


ok(
    tenth_half_sum,
    half_sum,
    hf,
    serial={},
    tree={"way": "tree"},
    lanes={"way": "lanes"},
    compensated={"way": "kahan"},
)
bad(
    tenth_half_sum,
    half_sum,
    {
        # in half precision
        "summed one by one in half precision": {"kind": hf, "unroll": 1},
        # tree in half precision: the error is log2(n) roundings
        "hides: a tree in half precision": {"way": "tree", "kind": hf},
        # 700 = 21 * 32 + 28
        "the last 28 are left out": {"n": 672},
        # a border is added twice
        "the first of the second tile is added twice": {"twice": True},
        # lanes in bfloat16
        "hides: lanes in half precision": {"way": "lanes", "kind": hf},
        # only the last rounding of each group of 100
        "hides: groups of a hundred in half precision": {"unroll": 100, "kind": hf},
    },
    hf,
)


# ------------------------------------------------------------------ sums that cancel


def cancel_args(d):
    x = d(16, 400, scale=1e4)
    x = torch.stack([x, -x + d(16, 400, scale=1e-2)], -1).flatten(1)
    return (x,)


@tenth(cancel_args)
def tenth_cancel_sum(x):
    return x.sum(-1), x.abs().sum(-1)


def cancel_sum(x, way="pairs", kind=None, lost=(), drop=0.0):
    y = x.clone()
    for j in lost:
        y[:, j] = 0
    y = torch.where(y.abs() < drop, 0.0, y) if drop else y
    if way == "pairs":
        s = (y[:, ::2] + y[:, 1::2]).sum(-1)
    elif way == "halves":
        s = y[:, ::2].sum(-1) + y[:, 1::2].sum(-1)
    else:
        s = sum(narrow(p.sum(-1), kind) if kind else p.sum(-1) for p in y.split(100, -1))
    return s, y.abs().sum(-1)


ok(tenth_cancel_sum, cancel_sum, in_pairs={}, even_and_odd={"way": "halves"}, by_hundreds={"way": "hundreds"})
bad(
    tenth_cancel_sum,
    cancel_sum,
    {
        # units of tf32 load the values
        "values pass through tf32": lambda x: cancel_sum(tf32(x)),
        # one element and its near opposite are lost
        "hides: a pair that cancels is left out": {"lost": (798, 799)},
        # small ones are skipped
        "hides: values below a hundred are skipped": {"drop": 100.0},
    },
)


# ------------------------------------------------------------------ moments, far from zero


@tenth(lambda d: (d(20, 300, shift=50.0), d(20, 300, dtype=bf, shift=3.0)))
def tenth_moments(x, y):
    return x.var(-1), x.std(-1, unbiased=False), y.float().var(-1).to(bf)


def moments(x, y, way="two", n=299, m=300, kind=None, other=299, shift=0.0):
    def m2(x):
        if way == "squares":
            return (x * x).sum(-1) - x.sum(-1).square() / x.shape[-1]
        if way == "parts":
            a, b = x.chunk(2, -1)
            ma, mb = a.mean(-1), b.mean(-1)
            sa, sb = (a - ma[:, None]).square().sum(-1), (b - mb[:, None]).square().sum(-1)
            return sa + sb + (mb - ma).square() * 75
        if way == "lost":
            a, b = x.chunk(2, -1)
            return sum((c - c.mean(-1, keepdim=True)).square().sum(-1) for c in (a, b))
        mean = x.mean(-1, keepdim=True)
        return (x - (narrow(mean, kind) if kind else mean)).square().sum(-1)

    return m2(x) / n, (m2(x) / m).sqrt(), m2(y.float()) / other


def moments_kept(x, y, **how):
    a, b, c = moments(x, y, **how)
    return a, b, c.to(bf)


ok(tenth_moments, moments_kept, None, two_passes={}, two_parts={"way": "parts"})
bad(
    tenth_moments,
    moments_kept,
    {
        # n
        "the variance is biased": {"n": 300},
        # the deviation unbiased
        "the deviation is unbiased": {"m": 299},
        # squares less square
        "hides: the squares' sum less the square of the sum": {"way": "squares"},
        # Chan without the correction
        "hides: parts' means are not reconciled": {"way": "lost"},
        # the mean in half precision
        "hides: the mean in half precision": {"kind": hf},
    },
    None,
)


# ------------------------------------------------------------------ norms over ranges, log-sum-exp


def range_args(d):
    x = d(20, 64)
    x[2] *= 1e25
    x[5] *= 1e-25
    x[9] = 0
    return (x,)


@tenth(range_args)
def tenth_sizes(x):
    return torch.linalg.vector_norm(x.double(), dim=-1).to(x.dtype), x.abs().sum(-1), x.abs().amax(-1)


def sizes(x, scaled=True, n=64, signed=False, kind=None):
    top = x.abs().amax(-1, keepdim=True)
    t = torch.where(top == 0, 1.0, top) if scaled else torch.ones_like(top)
    two = (x[:, :n] / t).square().sum(-1).sqrt() * t[:, 0]
    one = narrow((x / t).abs().sum(-1), kind) * t[:, 0] if kind else x.abs().sum(-1)
    return two, one, x.amax(-1) if signed else top[:, 0]


ok(tenth_sizes, sizes, scaled_by_the_greatest={})
bad(
    tenth_sizes,
    sizes,
    {
        # overflow
        "hides: plain squares": {"scaled": False},
        # signed
        "the greatest without its sign lost": {"signed": True},
        # one lane
        "hides: the norm leaves the last element out": {"n": 63},
        # sums in half precision
        "hides: sums of sizes in half precision": {"kind": hf},
    },
)


def far_args(d):
    x = d(16, 200, scale=20)
    x[3], x[4, 5], x[6, 7] = -INF, INF, -INF
    x[8] += 1e4
    return (x,)


@tenth(far_args)
def tenth_log_sum(x):
    return torch.logsumexp(x, -1)


def log_sum(x, top=True, safe=True, block=200, clip=None, kind=None):
    m, total = torch.full((16,), -INF), torch.zeros(16)
    for j in range(0, 200, block):
        c = x[:, j : j + block]
        new = torch.maximum(m, c.amax(-1)) if top else torch.zeros(16)
        s = torch.where(new.isinf(), 0.0, new) if safe else new
        total = total * (m - s).exp() + (c - s[:, None]).exp().sum(-1)
        m = new
    s = torch.where(m.isinf(), 0.0, m) if safe else m
    y = total.log()
    return narrow(s, kind) + y if kind else s + y


ok(tenth_log_sum, log_sum, in_one_go={}, by_fifty={"block": 50})
bad(
    tenth_log_sum,
    log_sum,
    {
        # no maximum
        "the maximum is not taken off": {"top": False},
        # -inf - -inf
        "rows of infinities give not a number": {"safe": False},
        # m in half precision
        "hides: the maximum is put back in half precision": {"kind": hf},
    },
)


# ------------------------------------------------------------------ products, any, argmax with ties, count


def product_args(d):
    x = torch.exp(d(20, 60, scale=0.5)) * torch.where(d(20, 60) < 0, -1.0, 1.0)
    x[4, 7] = 0
    x[6] *= 0.1
    x[6, :20] *= 1e3
    return (x,)


@tenth(product_args)
def tenth_product(x):
    return x.prod(-1), (x > 1).sum(-1), (x.round() == 1).any(-1)


def product(x, way="tree", n=60, ge=False, m=60):
    if way == "logs":
        p = narrow(x.abs().log().sum(-1), hf).exp() * (1 - 2 * ((x < 0).sum(-1) % 2))
    elif way == "lanes":
        p = x[:, :n].view(20, -1, 4).prod(1).prod(-1)
    else:
        p = F.pad(x[:, :n], (0, 64 - n), value=1.0).view(20, 8, 8).prod(-1).prod(-1)
    return p, (x[:, :m] >= 1).sum(-1) if ge else (x[:, :m] > 1).sum(-1), (x.round() == 1)[:, :m].any(-1)


ok(tenth_product, product, tree={}, lanes={"way": "lanes"})
bad(
    tenth_product,
    product,
    {
        # a sum of logarithms, in half precision
        "hides: through logarithms in half precision": {"way": "logs"},
        # four fewer
        "the last four are left out": {"n": 56},
        # count over 56
        "counts leave the last four out": {"m": 56},
    },
)


# ------------------------------------------------------------------ transforms


@tenth(lambda d: (d(6, 48), torch.complex(d(6, 30), d(6, 30))))
def tenth_transforms(x, z):
    return torch.fft.rfft(x), torch.fft.ifft(z)


def dft(n, sign, kind=None):
    t = torch.arange(n, dtype=torch.float64)
    a = sign * 2 * math.pi / n * ((t[:, None] * t) % n)
    c, s = a.cos().float(), a.sin().float()
    return torch.complex(narrow(c, kind), narrow(s, kind)) if kind else torch.complex(c, s)


def transforms(x, z, sign=-1, norm=1 / 30, kind=None, steps=False, twiddle=0):
    if steps:
        e, o = (x[:, ::2] + 0j) @ dft(24, -1), (x[:, 1::2] + 0j) @ dft(24, -1)
        w = torch.polar(torch.ones(24), (-2 * math.pi * (torch.arange(24) + twiddle) / 48).float())
        a = torch.cat([e + w * o, (e - w * o)[:, :1]], 1)
    else:
        a = ((x + 0j) @ dft(48, sign, kind))[:, :25]
    return a, z @ dft(30, 1) * norm


ok(tenth_transforms, transforms, None, as_a_product={}, one_butterfly={"steps": True})
bad(
    tenth_transforms,
    transforms,
    {
        # sign
        "the transform goes the other way": {"sign": 1},
        # unscaled
        "the inverse is not divided": {"norm": 1.0},
        # orthonormal
        "the inverse is divided by the root": {"norm": 30**-0.5},
        # twiddles in half precision
        "hides: factors in half precision": {"kind": hf},
        # twiddle off by a thousandth
        "hides: factors are turned by a thousandth": {"steps": True, "twiddle": 1e-3},
    },
    None,
)


# ------------------------------------------------------------------ small linear algebra


def spd_args(d):
    a = d(8, 12, 12)
    return a @ a.mT + 0.5 * torch.eye(12), d(8, 12, 3)


@tenth(spd_args)
def tenth_cholesky(a, b):
    l = torch.linalg.cholesky(a)
    return l, torch.linalg.solve_triangular(l, b, upper=False)


def cholesky(a, b, kind=None, upper=False, turn=False, lost=False, junk=False):
    l = torch.zeros_like(a)
    for j in range(12):
        past = (l[:, j, :j] ** 2).sum(-1)
        d = (a[:, j, j] - past).sqrt()
        d = narrow(d, kind) if kind else d
        l[:, j, j] = d
        inner = (l[:, j + 1 :, : j - lost] * l[:, j : j + 1, : j - lost]).sum(-1) if j else 0.0
        l[:, j + 1 :, j] = (a[:, j + 1 :, j] - inner) / d[:, None]
    y = torch.zeros_like(b)
    for i in range(12):
        y[:, i] = (b[:, i] - (l[:, i, :i, None] * y[:, :i]).sum(1)) / (1.0 if upper else l[:, i, i, None])
    l = l + a.triu(1) if junk else l
    return l.mT if turn else l, y


ok(tenth_cholesky, cholesky, column_by_column={})
bad(
    tenth_cholesky,
    cholesky,
    {
        # upper
        "the factor is transposed": {"turn": True},
        # the upper part keeps a
        "the upper triangle keeps what was there": {"junk": True},
        # unit diagonal
        "the solve takes the diagonal as one": {"upper": True},
        # pivots
        "hides: pivots in half precision": {"kind": hf},
    },
)


@tenth(lambda d: (d(40, 3, 3), d(40, 3), d(40, 3)))
def tenth_three(m, a, b):
    det = (
        m[:, 0, 0] * (m[:, 1, 1] * m[:, 2, 2] - m[:, 1, 2] * m[:, 2, 1])
        - m[:, 0, 1] * (m[:, 1, 0] * m[:, 2, 2] - m[:, 1, 2] * m[:, 2, 0])
        + m[:, 0, 2] * (m[:, 1, 0] * m[:, 2, 1] - m[:, 1, 1] * m[:, 2, 0])
    )
    return det, torch.linalg.cross(a, b), (m @ b[..., None])[..., 0]


def three(m, a, b, sign=1.0, swap=False, turn=False, kind=None):
    x = torch.stack([a[:, 1] * b[:, 2] - a[:, 2] * b[:, 1], a[:, 2] * b[:, 0] - a[:, 0] * b[:, 2]], 1)
    x = torch.cat([x, (a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0])[:, None]], 1) * (-1 if swap else 1)
    c = lambda i, j, k, l: m[:, 1, i] * m[:, 2, j] - m[:, 1, k] * m[:, 2, l]
    c0, c1, c2 = c(1, 2, 2, 1), c(2, 0, 0, 2), c(0, 1, 1, 0)
    if kind:
        c0, c1, c2 = narrow(c0, kind), narrow(c1, kind), narrow(c2, kind)
    y = (m.mT if turn else m) * b[:, None]
    return m[:, 0, 0] * c0 + sign * m[:, 0, 1] * c1 + m[:, 0, 2] * c2, x, y.sum(-1)


ok(tenth_three, three, by_the_cross_of_rows={})
bad(
    tenth_three,
    three,
    {
        # sign
        "the middle term's sign": {"sign": -1.0},
        # b x a
        "the cross product is the other way round": {"swap": True},
        # transposed
        "the matrix is transposed": {"turn": True},
        # minors in half precision
        "hides: minors in half precision": {"kind": hf},
    },
)


# ------------------------------------------------------------------ distances


def cloud_args(d):
    a = d(30, 16, shift=10.0)
    b = torch.cat([a[:10] + d(10, 16, scale=1e-3), d(15, 16, shift=10.0)])
    return a, b


@tenth(cloud_args)
def tenth_distances(a, b):
    return (a[:, None] - b[None]).square().sum(-1).sqrt(), F.cosine_similarity(a[:25], b, eps=1e-8)


def distances(a, b, way="direct", lane=16, dots=True, eps=0.0, kind=None):
    if way == "product":
        d = ((a * a).sum(-1)[:, None] + (b * b).sum(-1) - 2 * a @ b.T).clamp_min(0).sqrt()
    else:
        d = torch.stack([((a[:, None, j] - b[None, :, j]) ** 2) for j in range(lane)]).sum(0).add(eps).sqrt()
    x, y = a[:25], b
    if kind:
        x, y = narrow(x, kind), narrow(y, kind)
    c = (x * y).sum(-1) / ((x * x).sum(-1) * (y * y).sum(-1)).sqrt()
    return d, c if dots else 1 - c


ok(tenth_distances, distances, lane_by_lane={})
bad(
    tenth_distances,
    distances,
    {
        # squares less twice the product
        "hides: squares less twice the product": {"way": "product"},
        # one lane lost
        "the last coordinate is left out": {"lane": 15},
        # 1 - cos
        "the similarity is a distance": {"dots": False},
        # eps 1e-6 under the root
        "hides: 1e-6 under the root": {"eps": 1e-6},
        # similarity of bfloat16 vectors
        "hides: similarity of rounded vectors": {"kind": bf},
    },
)
