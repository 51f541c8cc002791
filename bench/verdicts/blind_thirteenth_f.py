# SPDX-License-Identifier: Apache-2.0
"""Set R, the thirteenth: pooling and interpolation."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf
from .blind_thirteenth_a import A, add, but, old

# ------------------------------------------------------------------ pooling


def pooled(x, _=None, __=None, pad=None, *k, start=-math.inf, local=False):
    p = F.pad(x, (1, 1, 1, 1), value=start)
    cells = torch.stack([p[:, :, i : i + 9 : 2, j : j + 10 : 2][:, :, :5, :5] for i in range(3) for j in range(3)])
    at = cells.argmax(0)
    v = cells.max(0).values
    if local:
        return v, at
    row = 2 * torch.arange(5)[:, None] - 1 + at // 3
    col = 2 * torch.arange(5) - 1 + at % 3
    return v, row * 10 + col


add(
    "max_pool",
    A.max_pool2d_with_indices.default,
    lambda d: (d.ints(9, 2, 3, 9, 10).float() - 12, [3, 3], [2, 2], [1, 1]),
    pooled,
    right={"window by window": {}},
    wrong={
        "beyond the edge is zero": {"start": 0.0},
        "hides: indices of the last row are of the row before": lambda x, *k: (
            pooled(x)[0],
            pooled(x)[1] - 10 * (torch.arange(5) == 4)[:, None].long(),
        ),
        "indices are within the window": {"local": True},
        "hides: the last column looks at two": lambda x, *k: but(
            (..., 4), of=lambda y: torch.maximum(x[:, :, 0:9:2, 7], x[:, :, 0:9:2, 8])
        )(pooled)(x),
    },
)


def average(x, size, stride, pad, ceil=False, include=True, div=None, fixed=None, lose=0):
    p = F.pad(x.double(), (1, 1, 1, 1))
    ones = F.pad(torch.ones_like(x.double()), (1, 1, 1, 1), value=float(include))
    y = F.unfold(p.flatten(0, 1)[:, None], size, stride=stride).sum(1)
    n = F.unfold(ones.flatten(0, 1)[:, None], size, stride=stride).sum(1)
    return (y / (fixed or n)).float().reshape(x.shape[0], x.shape[1], -1, (x.shape[3] + 2 - size[1]) // stride[1] + 1)


add(
    "avg_pool_edges",
    A.avg_pool2d.default,
    lambda d: (d(2, 4, 11, 13), [3, 3], [2, 2], [1, 1], False, False),
    lambda x, s, t, p, c, i, include=False, **k: average(x, s, t, p, include=include, **k),
    right={
        "counted": {},
        "by sums": lambda x, *_: F.avg_pool2d(x, 3, 2, 1) * 9 / (F.avg_pool2d(torch.ones_like(x), 3, 2, 1) * 9),
    },
    wrong={
        "the padding is counted": {"include": True},
        "hides: divided by 8": {"fixed": 8},
        "hides: corners are divided as edges": lambda x, *_: but((..., 0, 0), of=lambda y: y * 4 / 6)(F.avg_pool2d)(
            x, 3, 2, 1, False, False
        ),
    },
)


def adaptive(x, size, start=lambda i, n, m: i * n // m, end=lambda i, n, m: -(-(i + 1) * n // m)):
    out = torch.zeros(*x.shape[:2], *size)
    for i in range(size[0]):
        for j in range(size[1]):
            a, b = (start(i, x.shape[2], size[0]), end(i, x.shape[2], size[0]))
            c, e = (start(j, x.shape[3], size[1]), end(j, x.shape[3], size[1]))
            out[:, :, i, j] = x[:, :, a:b, c:e].float().mean((2, 3))
    return out


add(
    "adaptive_avg_pool",
    A._adaptive_avg_pool2d.default,
    lambda d: (d(2, 5, 10, 11, dtype=hf), [4, 3]),
    adaptive,
    right={"window by window": {}},
    wrong={
        "ends are floored": {"end": lambda i, n, m: (i + 1) * n // m},
        "windows of one size": {"start": lambda i, n, m: i * (n // m), "end": lambda i, n, m: (i + 1) * (n // m)},
        "hides: the last window lacks its last column": lambda x, s: but(
            (..., 2),
            of=lambda y: adaptive(
                x[..., :10],
                s,
            )[..., 2],
        )(adaptive)(x, s),
    },
    dtype=hf,
)


def avg_back(g, x, kernel, stride, pad, ceil, include, div):
    share = (g / 9)[..., None].expand(*g.shape, 9).flatten(2, 3).mT
    return F.fold(share.flatten(0, 1).reshape(g.shape[0], g.shape[1] * 9, -1), x.shape[2:], 3, 1, 1, 2)


add(
    "avg_pool_backward",
    A.avg_pool2d_backward.default,
    lambda d: (d(2, 3, 5, 6), d(2, 3, 9, 11), [3, 3], [2, 2], [1, 1], False, True, None),
    avg_back,
    right={"folded": {}},
    wrong={
        "not divided": lambda *a: avg_back(*a) * 9,
        "overlaps are written once": lambda *a: avg_back(*a) / F.fold(torch.ones(1, 9, 30), (9, 11), 3, 1, 1, 2),
        "hides: edges are divided by what is inside": lambda g, *k: avg_back(
            g * 9 / F.avg_pool2d(torch.ones(9, 11)[None, None], 3, 2, 1).mul(9), *k
        ),
    },
)

# ------------------------------------------------------------------ interpolation


def lerp_matrix(n, m, aligned=False, shift=0.5, clip=True, kernel=None, a=-0.75):
    at = torch.arange(m, dtype=torch.float64)
    at = at * (n - 1) / (m - 1) if aligned else (at + shift) * n / m - shift
    at = at.clamp(min=0) if clip and kernel is None else at
    w = torch.zeros(m, n, dtype=torch.float64)
    base = torch.floor(at)
    for k in (0, 1) if kernel is None else (-1, 0, 1, 2):
        t = (at - base - k).abs()
        v = (
            1 - t
            if kernel is None
            else torch.where(t <= 1, (a + 2) * t**3 - (a + 3) * t**2 + 1, a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a)
        )
        w.scatter_add_(1, (base + k).long().clamp(0, n - 1)[:, None], v[:, None])
    return w


def resize(x, size, *_, last=None, **k):
    r, c = lerp_matrix(x.shape[2], size[0], **k), lerp_matrix(x.shape[3], size[1], **k)
    y = (r @ x.double() @ c.T).float()
    if last:
        y[..., -1] = x[..., -1:].mean() if last == "mean" else y[..., -2]
    return y


add(
    "upsample_bilinear",
    A.upsample_bilinear2d.default,
    lambda d: (d(2, 3, 7, 9), [15, 20], False),
    resize,
    right={"two matrices": {}},
    wrong={
        "corners are aligned": {"aligned": True},
        "centres are not at a half": {"shift": 0.0},
        "hides: the last column is the one before": {"last": "before"},
        "the nearest": lambda x, s, _: F.interpolate(x, s, mode="nearest"),
    },
)

add(
    "upsample_bicubic",
    A.upsample_bicubic2d.default,
    lambda d: (d(1, 3, 8, 8), [13, 19], False),
    lambda x, s, _, **k: resize(x, s, kernel="cubic", **k),
    right={"two matrices": {}},
    wrong={
        "hides: a is -0.5": {"a": -0.5},
        "corners are aligned": {"aligned": True},
        "bilinear": lambda x, s, _: resize(x, s),
    },
)


def nearest_exact(x, size, shift=0.5, up=False):
    r = lambda n, m: torch.arange(m).add(shift).mul(n / m).add(1e-4 if up else 0).floor().long().clamp(max=n - 1)
    return x[:, :, r(x.shape[2], size[0])][..., r(x.shape[3], size[1])]


add(
    "nearest_exact",
    A._upsample_nearest_exact2d.default,
    lambda d: (d(2, 3, 9, 10, dtype=bf), [5, 23]),
    nearest_exact,
    right={"by index": {}},
    wrong={
        "not from the middle": {"shift": 0.0},
        "hides: from a third": {"shift": 0.34},
        "hides: from near the end": {"shift": 0.7},
    },
    dtype=bf,
)


def shuffle(x, r=3, late=False, rows=False):
    n, c, h, w = x.shape
    if late:
        return x.reshape(n, r, r, c // 9, h, w).permute(0, 3, 4, 1, 5, 2).reshape(n, c // 9, h * r, w * r)
    order = (0, 1, 4, 3, 5, 2) if rows else (0, 1, 4, 2, 5, 3)
    return x.reshape(n, c // 9, r, r, h, w).permute(order).reshape(n, c // 9, h * r, w * r)


add(
    "pixel_shuffle",
    A.pixel_shuffle.default,
    lambda d: (d(2, 18, 4, 5, dtype=hf), 3),
    shuffle,
    right={"permuted": {}},
    wrong={
        "channels are innermost": {"late": True},
        "hides: rows and columns of a cell are swapped": {"rows": True},
        "hides: the last row is of a call before": lambda x, r: but((..., -1, slice(None)), of=old)(shuffle)(x),
    },
    dtype=hf,
)
