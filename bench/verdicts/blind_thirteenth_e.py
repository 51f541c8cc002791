# SPDX-License-Identifier: Apache-2.0
"""Set R, the thirteenth: convolutions, pooling and interpolation."""

import torch
import torch.nn.functional as F

from .blind import bf, hf, narrow
from .blind_thirteenth_a import A, add, but, wide

# ------------------------------------------------------------------ convolutions


def columns(x, w, stride, pad, dil):
    """Columns of a convolution of two dimensions: (N, C * taps, places), and how many places there are."""
    cols = F.unfold(x, w.shape[2:], dil, pad, stride)
    size = lambda i: (x.shape[2 + i] + 2 * pad[i] - dil[i] * (w.shape[2 + i] - 1) - 1) // stride[i] + 1
    return cols, size(0), size(1)


def conv(
    x,
    w,
    b,
    stride,
    pad,
    dil,
    _=False,
    __=None,
    groups=1,
    flip=False,
    swap=False,
    taps=None,
    fill=None,
    acc=None,
    bias=True,
):
    x, w = x.float(), w.float()
    if flip:
        w = w.flip(2, 3)
    if swap:
        w = w.transpose(2, 3)
    if fill is not None:
        x, pad = F.pad(x, (pad[1], pad[1], pad[0], pad[0]), **fill), (0, 0)
    parts = []
    for i in range(groups):
        n, m = x.shape[1] // groups, w.shape[0] // groups
        cols, rows, across = columns(x[:, i * n : i * n + n], w, stride, pad, dil)
        flat = w[i * m : i * m + m].flatten(1)
        y = 0
        for k in range(0, flat.shape[1], 9):
            if taps and k >= taps:
                break
            y = y + flat[:, k : k + 9] @ cols[:, k : k + 9]
            y = narrow(y, acc) if acc else y
        parts.append(y.unflatten(-1, (rows, across)))
    y = torch.cat(parts, 1)
    return y + b.float()[:, None, None] if b is not None and bias else y


add(
    "conv2d",
    A.convolution.default,
    lambda d: (d(2, 6, 11, 13), d(8, 6, 3, 3), d(8), [2, 1], [1, 2], [1, 2], False, [0, 0], 1),
    conv,
    right={
        "columns": {},
        "tap by tap": lambda x, w, b, *_: (
            sum(
                torch.einsum(
                    "nchw,oc->nohw", F.pad(x, (2, 2, 1, 1))[:, :, i : i + 11 : 2, 2 * j : 2 * j + 13], w[:, :, i, j]
                )
                for i in range(3)
                for j in range(3)
            )
            + b[:, None, None]
        ),
    },
    wrong={
        "taps are turned round": {"flip": True},
        "taps are transposed": {"swap": True},
        "the last input channel is dropped": {"taps": 45},
        "hides: beyond the edge is the edge": {"fill": {"mode": "replicate"}},
        "hides: the accumulator is rounded to half": {"acc": hf},
        "hides: the last output column lacks its last tap": lambda x, w, b, *k: but(
            (..., -1),
            of=lambda y: y - torch.einsum("nch,oc->noh", F.pad(x, (0, 0, 1, 1))[:, :, 1:12:2, 12], w[:, :, 1, 1]),
        )(conv)(x, w, b, *k),
    },
)

add(
    "conv_grouped",
    A.convolution.default,
    lambda d: (d(2, 12, 9, 9, dtype=bf), d(16, 3, 3, 3, dtype=bf), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 4),
    conv,
    right={
        "columns": {},
        "group by group": lambda x, w, *_: torch.cat(
            [F.conv2d(a.float(), b.float()) for a, b in zip(x.chunk(4, 1), w.chunk(4))], 1
        ),
    },
    wrong={
        "channels interleave among groups": lambda x, w, *k: conv(
            x.unflatten(1, (3, 4)).transpose(1, 2).flatten(1, 2), w, *k
        ),
        "outputs interleave among groups": lambda x, w, *k: (
            conv(x, w, *k).unflatten(1, (4, 4)).transpose(1, 2).flatten(1, 2)
        ),
        "hides: the last group has the weight of the one before": lambda x, w, *k: conv(
            x, torch.cat([w[:12], w[8:12]]), *k
        ),
        "kept in eight bits after each channel": {"acc": torch.float8_e4m3fn},
    },
    dtype=bf,
)

add(
    "conv_transpose",
    A.convolution.default,
    lambda d: (d(2, 5, 6, 7), d(5, 4, 3, 3), d(4), [2, 2], [1, 1], [1, 1], True, [1, 0], 1),
    right={
        "zeros between": lambda x, w, b, *_: F.conv2d(
            F.pad(
                torch.zeros(2, 5, 11, 13).index_put(
                    (
                        torch.arange(2)[:, None, None, None],
                        torch.arange(5)[:, None, None],
                        torch.arange(0, 11, 2)[:, None],
                        torch.arange(0, 13, 2),
                    ),
                    x,
                ),
                (1, 1, 1, 2),
            ),
            w.transpose(0, 1).flip(2, 3),
            b,
        ),
        "columns added": lambda x, w, b, *_: (
            F.fold(w.flatten(1).T @ x.flatten(2), (12, 13), 3, 1, 1, 2) + b[:, None, None]
        ),
    },
    wrong={
        "taps are not turned round": lambda x, w, b, *_: F.conv_transpose2d(x, w.flip(2, 3), b, 2, 1, (1, 0)),
        "the output's padding goes before": lambda x, w, b, *_: F.conv_transpose2d(x, w, b, 2, 0, 0)[:, :, :12, 1:14],
        "hides: overlaps are written, not added, in the last row": lambda x, w, b, *_: but(
            (slice(None), slice(None), 10), of=lambda y: y - b[:, None]
        )(F.conv_transpose2d)(x, w, b, 2, 1, (1, 0)),
        "hides: the added row has no bias": lambda x, w, b, *_: but(
            (slice(None), slice(None), 11), of=lambda y: y - b[:, None]
        )(F.conv_transpose2d)(x, w, b, 2, 1, (1, 0)),
    },
)


def causal_conv(x, w, b):
    y = F.conv1d(F.pad(x, (3, 0)), w[:, None], b, groups=x.shape[1])
    return F.silu(y)


def causal_kernel(x, w, b, late=0, flip=False, act=True, chunk=None, bias=True, wrap=False):
    w = w.flip(1) if flip else w
    y = b[:, None].expand_as(x) if bias else torch.zeros_like(x)
    for k in range(4):
        back = 3 - k + late
        moved = (
            torch.roll(x, back, 2)
            if wrap
            else F.pad(x, (back, 0))[..., : x.shape[2]]
            if back >= 0
            else F.pad(x, (0, -back))[..., -back:]
        )
        if chunk:
            moved = torch.where(torch.arange(x.shape[2]) % chunk < back, 0.0, moved)
        y = y + w[:, k, None] * moved
    return y * torch.sigmoid(y) if act else y


add(
    "causal_conv1d",
    causal_conv,
    lambda d: (d(2, 14, 50), d(14, 4), d(14)),
    causal_kernel,
    right={"tap by tap": {}, "in double": wide(causal_conv)},
    wrong={
        "looks a step ahead": {"late": -1},
        "taps are turned round": {"flip": True},
        "hides: time wraps round at the beginning": {"wrap": True},
        "hides: chunks of 32 do not see the one before": {"chunk": 32},
        "no activation": {"act": False},
    },
)


def conv_back(g, x, w, bias, stride, pad, dil, t, outpad, groups, mask, images=None, edge=None, drop=None):
    gx = torch.nn.grad.conv2d_input(x.shape, w, g, stride, pad, dil, groups)
    gw = torch.nn.grad.conv2d_weight(x[:images], w.shape, g[:images], stride, pad, dil, groups)
    if edge is not None:
        gx[..., -1] = gx[..., -1] * edge
    return gx, gw, (g if drop is None else g[..., :drop]).sum((0, 2, 3))


def col_back(g, x, w, *k):
    cols = F.unfold(x, 3, 1, 1, 1)
    gw = (g.flatten(2) @ cols.mT).sum(0).reshape(w.shape)
    gx = F.fold(w.flatten(1).T @ g.flatten(2), x.shape[2:], 3, 1, 1, 1)
    return gx, gw, g.flatten(2).sum((0, 2))


add(
    "convolution_backward",
    A.convolution_backward.default,
    lambda d: (d(4, 5, 8, 8), d(4, 6, 8, 8), d(5, 6, 3, 3), [5], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True] * 3),
    conv_back,
    right={"columns": col_back, "parts": {}},
    wrong={
        "the last image is not in the weight's gradient": {"images": 3},
        "the weight's gradient is turned round": lambda *a: (
            conv_back(*a)[0],
            conv_back(*a)[1].flip(2, 3),
            conv_back(*a)[2],
        ),
        "hides: the input's last column is halved": {"edge": 0.5},
        "hides: the bias lacks the last column": {"drop": 7},
        "the input's gradient is by the weight itself": lambda g, x, w, *k: (
            F.conv2d(g, w.transpose(0, 1), padding=1),
            *conv_back(g, x, w, *k)[1:],
        ),
    },
)

add(
    "conv3d",
    A.convolution.default,
    lambda d: (d(1, 4, 5, 6, 7), d(6, 4, 2, 3, 3), d(6), [1, 1, 1], [0, 1, 1], [1, 1, 1], False, [0, 0, 0], 1),
    right={
        "frame by frame": lambda x, w, b, *_: torch.stack(
            [
                F.conv2d(x[:, :, t], w[:, :, 0], b, padding=1) + F.conv2d(x[:, :, t + 1], w[:, :, 1], padding=1)
                for t in range(4)
            ],
            2,
        )
    },
    wrong={
        "frames are the other way": lambda x, w, b, *_: F.conv3d(x, w.flip(2), b, padding=(0, 1, 1)),
        "hides: the last frame is the one before": lambda x, w, b, *_: but(
            (slice(None), slice(None), 3), of=lambda y: y
        )(lambda: F.conv3d(torch.cat([x[:, :, :4], x[:, :, 3:4]], 2), w, b, padding=(0, 1, 1)))(),
        "hides: frames are added in half": lambda x, w, b, *_: (
            narrow(F.conv3d(x, w * torch.tensor([1.0, 0])[:, None, None], b, padding=(0, 1, 1)), hf)
            + F.conv3d(x, w * torch.tensor([0, 1.0])[:, None, None], padding=(0, 1, 1))
        ),
    },
)


def sample(x, y, at):
    """Values of (C, H, W) at real places, none outside."""
    c, h, w = x.shape
    y0, x0 = torch.floor(y), torch.floor(at)
    total = 0
    for dy in (0, 1):
        for dx in (0, 1):
            yy, xx = y0 + dy, x0 + dx
            k = (1 - (y - yy).abs()) * (1 - (at - xx).abs())
            inside = (yy >= 0) & (yy < h) & (xx >= 0) & (xx < w)
            v = x[:, yy.clamp(0, h - 1).long(), xx.clamp(0, w - 1).long()]
            total = total + v * (k * inside)
    return total


def deformable(x, offset, mask, w, swap=False, use=True, late=0, keep=9, clip=False, whole=False):
    n, c, h, wd = x.shape
    out = []
    gy, gx = torch.meshgrid(torch.arange(h, dtype=x.dtype), torch.arange(wd, dtype=x.dtype), indexing="ij")
    for i in range(n):
        y = 0
        for k in range(keep):
            oy, ox = offset[i, 2 * k], offset[i, 2 * k + 1]
            if swap:
                oy, ox = ox, oy
            py, px = gy + k // 3 - 1 + oy, gx + k % 3 - 1 + ox
            if clip:
                py, px = py.clamp(0, h - 1), px.clamp(0, wd - 1)
            if whole:
                py, px = torch.round(py), torch.round(px)
            v = sample(x[i], py, px) * (mask[i, (k + late) % 9] if use else 1)
            y = y + torch.einsum("oc,chw->ohw", w[:, :, k // 3, k % 3], v)
        out.append(y)
    return torch.stack(out)


def deform_conv(x, offset, mask, w):
    return deformable(x, offset, mask, w)


def deform_columns(x, offset, mask, w):
    cols = [
        torch.stack(
            [deformable(x, offset, mask, torch.eye(3)[:, :, None, None] * (torch.arange(9) == k).float().reshape(3, 3))]
        )[0]
        for k in range(9)
    ]
    return torch.einsum("okc,nkchw->nohw", w.flatten(2).mT, torch.stack(cols, 1))


add(
    "deform_conv",
    deform_conv,
    lambda d: (d(2, 3, 6, 7), d(2, 18, 6, 7), d.rand(2, 9, 6, 7), d(4, 3, 3, 3)),
    deformable,
    right={"columns": deform_columns},
    wrong={
        "offsets of rows and columns are swapped": {"swap": True},
        "the mask is not used": {"use": False},
        "hides: places outside are moved to the edge": {"clip": True},
        "the nearest place": {"whole": True},
        "hides: the last tap is left out": {"keep": 8},
    },
)
