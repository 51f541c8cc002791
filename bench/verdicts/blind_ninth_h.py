# SPDX-License-Identifier: Apache-2.0
"""Set L: convolutions, pooling, interpolation, sampling."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, narrow, tf32
from .blind_ninth_a import bad, ninth, ok

# ------------------------------------------------------------------ convolutions


@ninth(lambda d: (d(3, 40, 70), d(40, 4), d(40), d(3, 40, 3)))
def ninth_causal_conv(x, w, b, state):
    y = torch.cat((state, x), -1)
    return F.silu(F.conv1d(y, w[:, None], b, groups=40)), y[..., -3:]


def causal_conv(x, w, b, state, flip=False, turn=False, tile=70, lost=0, bias_end=40, act=F.silu, kind=None):
    w = w.flip(1) if flip else w
    state = state.flip(-1) if turn else state
    y = torch.cat((state, x), -1)
    out = torch.zeros(3, 40, 70)
    for t in range(0, 70, tile):
        n = min(tile, 70 - t)
        for k in range(4):
            part = y[..., t + k : t + k + n] * w[:, k, None]
            if lost and t and k == 0:
                part = torch.cat((part[..., :lost] * 0, part[..., lost:]), -1)
            out[..., t : t + n] += part
            out = out if kind is None else narrow(out, kind)
    b = torch.where(torch.arange(40) < bias_end, b, 0.0)
    return act(out + b[:, None]), y[..., -3:]


ok(ninth_causal_conv, causal_conv, tap_by_tap={}, silu_by_exp={"act": lambda z: z / (1 + (-z).exp()), "tile": 32})
bad(
    ninth_causal_conv,
    causal_conv,
    {
        # convolution, not correlation
        "the taps are turned round": {"flip": True},
        # ring buffer
        "the state is read backwards": {"turn": True},
        # first of a tile lacks its oldest tap
        "hides: the first of a tile lacks its oldest tap": {"tile": 32, "lost": 1},
        # 40 channels, vector width 16
        "the last eight channels have no bias": {"bias_end": 32},
        # float16 accumulation
        "hides: taps are added in float16": {"kind": hf},
    },
)


@ninth(lambda d: (d(2, 8, 15, 15), d(16, 4, 3, 3), d(16)))
def ninth_conv(x, w, b):
    return F.conv2d(x, w, b, stride=2, padding=2, dilation=2, groups=2)


def conv(x, w, b, pad=(2, 2, 2, 2), swap=False, round_in=None, lost=False, value=0.0, order=range(9)):
    if round_in:
        x, w = round_in(x), round_in(w)
    y = F.pad(x, pad, value=value)
    out = torch.zeros(2, 16, 8, 8)
    for n in order:
        i, j = n // 3, n % 3
        part = y[:, :, 2 * i : 2 * i + 15 : 2, 2 * j : 2 * j + 15 : 2]
        for g in range(2):
            xs = part[:, (1 - g if swap else g) * 4 :][:, :4]
            out[:, g * 8 : g * 8 + 8] += torch.einsum("nchw,kc->nkhw", xs, w[g * 8 : g * 8 + 8, :, i, j])
    if lost:
        out[1, :, 7, 7] = 0
    return out + b[:, None, None]


ok(ninth_conv, conv, tap_by_tap={}, taps_backwards={"order": range(8, -1, -1)})
bad(
    ninth_conv,
    conv,
    {
        # groups read the other group's channels
        "groups are swapped": {"swap": True},
        # padding on one side
        "padded by 4 before and 0 behind": {"pad": (4, 0, 4, 0)},
        # TF32
        "hides: TF32": {"round_in": tf32},
        # the corner
        "hides: the last pixel of the last picture has the bias alone": {"lost": True},
        # zero point of the padding
        "hides: the border is padded by 0.001": {"value": 1e-3},
    },
)


@ninth(lambda d: (d(2, 6, 20, 20), d(5, 6, 3, 3)))
def ninth_conv3(x, w):
    return F.conv2d(x, w, padding=1)


def winograd(x, w, kind=None, wrong=False, tail=True):
    bt = torch.tensor([[1.0, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])
    g = torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
    at = torch.tensor([[1.0, 1, 1, 0], [0, 1, -1, 1 if wrong else -1]])
    u = g @ w @ g.T
    t = F.pad(x, (1, 1, 1, 1)).unfold(2, 4, 2).unfold(3, 4, 2)
    v = bt @ t @ bt.T
    if kind:
        u, v = narrow(u, kind), narrow(v, kind)
    m = torch.einsum("ncijab,kcab->nkijab", v, u)
    y = at @ m @ at.T
    return y.permute(0, 1, 2, 4, 3, 5).reshape(2, 5, 20, 20)


ok(
    ninth_conv3,
    winograd,
    Winograd={},
    by_columns=lambda x, w: (w.flatten(1) @ F.unfold(x, 3, padding=1)).view(2, 5, 20, 20),
)
bad(
    ninth_conv3,
    winograd,
    {
        # a sign in the output transform
        "a sign of the output transform": {"wrong": True},
        # half precision between the transforms
        "hides: transforms are stored in float16": {"kind": hf},
        # kernel transposed
        "the taps are transposed": lambda x, w: F.conv2d(x, w.mT, padding=1),
        # replicate padding
        "hides: the border is repeated": lambda x, w: F.conv2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), w),
    },
)


@ninth(lambda d: (d(2, 6, 9, 9), d(6, 4, 3, 3), d(4)))
def ninth_transposed(x, w, b):
    return F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1)


def transposed(x, w, b, flip=False, store=False, cut=0, bias=True):
    out = torch.zeros(2, 4, 20, 20)
    w = w.flip(2, 3) if flip else w
    for i in range(3):
        for j in range(3):
            at = (slice(None), slice(None), slice(i, i + 18, 2), slice(j, j + 18, 2))
            more = torch.einsum("nchw,ck->nkhw", x, w[:, :, i, j])
            out[at] = more if store and (i, j) == (2, 2) else out[at] + more
    out = out[:, :, 1:19, 1:19] + (b[:, None, None] if bias else 0)
    if cut:
        out[:, :, -1] = b[:, None]
    return out


ok(ninth_transposed, transposed, scattered={})
bad(
    ninth_transposed,
    transposed,
    {
        # turned
        "the taps are turned round": {"flip": True},
        # overlaps are overwritten
        "the last tap is stored, not added": {"store": True},
        # output padding filled with bias
        "hides: the row of the output padding is the bias alone": {"cut": 1},
    },
)


# ------------------------------------------------------------------ pooling


@ninth(lambda d: (d(2, 5, 14, 14, shift=-2),))
def ninth_avg_pool(x):
    return F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False)


def avg_pool(x, whole=False, late=False, ones=None, kind=None, add=1e-9):
    y = F.pad(x, (1, 2, 1, 2))
    n = F.pad(torch.ones_like(x), (1, 2, 1, 2), value=1.0 if whole else 0.0)
    n = F.pad(torch.ones_like(F.pad(x, (0, 1, 0, 1))), (1, 1, 1, 1)) if late else n
    w = lambda t: t.unfold(2, 3, 2).unfold(3, 3, 2)  # noqa: E731
    s = w(y).sum((-1, -2)) if kind is None else narrow(narrow(w(y).sum(-1), kind).sum(-1), kind)
    return s / w(n).sum((-1, -2))


ok(ninth_avg_pool, avg_pool, windows={})
bad(
    ninth_avg_pool,
    avg_pool,
    {
        # / 9
        "the padding is counted": {"whole": True},
        # the extra row of ceil mode is counted
        "hides: the row that ceil mode adds is counted": {"late": True},
        # float16
        "hides: sums of columns in float16": {"kind": hf},
        # one pixel late
        "windows begin one pixel late": lambda x: avg_pool(x.roll((-1, -1), (2, 3))),
    },
)


@ninth(lambda d: (d(2, 4, 11, 13, shift=-1.5),))
def ninth_max_pool(x):
    return F.max_pool2d(x, 3, 2, 1, return_indices=True)


def max_pool(x, value=-math.inf, width=13, first=True, pad=1):
    y = F.pad(x, (1, 1, 1, 1), value=value).unfold(2, 3, 2).unfold(3, 3, 2).flatten(4)
    m, k = y.max(-1)
    i = torch.arange(m.shape[2])[:, None] * 2 + k // 3 - pad
    j = torch.arange(m.shape[3])[None] * 2 + k % 3 - pad
    return m, i * width + j


ok(ninth_max_pool, max_pool, windows={})
bad(
    ninth_max_pool,
    max_pool,
    {
        # zero padding among negative numbers
        "the border is padded by zero": {"value": 0.0},
        # height for width
        "indices take the height for the width": {"width": 11},
        # padded
        "hides: indices are those of the padded picture": {"pad": 0},
    },
)


@ninth(lambda d: (d(2, 3, 17, 23, shift=1),))
def ninth_adaptive(x):
    return F.adaptive_avg_pool2d(x, (5, 7))


def adaptive(x, up=True, area=None):
    out = torch.zeros(2, 3, 5, 7)
    for i in range(5):
        for j in range(7):
            a, c = i * 17 // 5, j * 23 // 7
            b = -(-(i + 1) * 17 // 5) if up else (i + 1) * 17 // 5
            e = -(-(j + 1) * 23 // 7) if up else (j + 1) * 23 // 7
            n = area or (b - a) * (e - c)
            out[:, :, i, j] = x[:, :, a:b, c:e].sum((2, 3)) / n
    return out


ok(ninth_adaptive, adaptive, window_by_window={})
bad(
    ninth_adaptive,
    adaptive,
    {
        # ends rounded down
        "windows end too early": {"up": False},
        # constant area
        "all windows are divided by the same area": {"area": 17 * 23 / 35},
    },
)


# ------------------------------------------------------------------ interpolation


@ninth(lambda d: (d(2, 3, 12, 15),))
def ninth_bilinear(x):
    return F.interpolate(x, size=(31, 29), mode="bilinear", align_corners=False)


def bilinear(x, half=0.5, corners=False, kind=None, size=(31, 29), clamp=True, scale=None):
    for axis, n in ((2, size[0]), (3, size[1])):
        m = x.shape[axis]
        s = (m - 1) / (n - 1) if corners else (scale or m / n)
        at = torch.arange(n).double() * s if corners else (torch.arange(n).double() + half) * s - half
        at = at.clamp(min=0) if clamp else at
        lo = at.floor().clamp(0, m - 1)
        f = (at - lo).float()
        f = f if kind is None else narrow(f, kind)
        hi = (lo + 1).clamp(max=m - 1).long()
        f = f.view([-1 if k == axis else 1 for k in range(4)])
        x = x.index_select(axis, lo.long()) * (1 - f) + x.index_select(axis, hi) * f
    return x


ok(ninth_bilinear, bilinear, rows_then_columns={})
bad(
    ninth_bilinear,
    bilinear,
    {
        # no half pixel
        "the half pixel is left out": {"half": 0.0},
        # align_corners
        "corners are aligned": {"corners": True},
        # weights in bfloat16
        "hides: weights in bfloat16": {"kind": bf},
        # weights of too few bits
        "hides: weights in float16": {"kind": hf},
        # no clamp: extrapolates at the first rows
        "hides: the first row and column are extrapolated": {"clamp": False},
    },
)


@ninth(lambda d: (d(1, 4, 10, 10),))
def ninth_bicubic(x):
    return F.interpolate(x, scale_factor=2.3, mode="bicubic", align_corners=False)


def bicubic(x, a=-0.75, edge="clamp", s=1 / 2.3, poly=None):
    for axis in (2, 3):
        m = x.shape[axis]
        n = int(m * 2.3)
        at = (torch.arange(n).double() + 0.5) * s - 0.5
        lo, out = at.floor(), 0.0
        for k in range(-1, 3):
            d = (at - lo - k).abs()
            near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((d - 5) * d + 8) * d * a - 4 * a
            w = torch.where(d <= 1, near, far).float().view([-1 if i == axis else 1 for i in range(4)])
            i = (lo + k).long()
            i = i.clamp(0, m - 1) if edge == "clamp" else torch.where(i < 0, -i, torch.where(i >= m, 2 * m - 2 - i, i))
            out = out + x.index_select(axis, i) * w
        x = out
    return x


ok(ninth_bicubic, bicubic, rows_then_columns={})
bad(
    ninth_bicubic,
    bicubic,
    {
        # Catmull-Rom
        "a is -0.5": {"a": -0.5},
        # mirrored at the border
        "hides: the border is mirrored": {"edge": "mirror"},
        # the step rounded to 7 bits
        "hides: the step is 0.4375": {"s": 0.4375},
    },
)


def grid_args(d):
    return d(2, 3, 9, 11), (d.rand(2, 8, 8, 2) * 2.6 - 1.3)


@ninth(grid_args)
def ninth_grid(x, g):
    return F.grid_sample(x, g, padding_mode="zeros", align_corners=False)


def grid(x, g, corners=False, border=False, swap=False, last=False):
    g = g.flip(-1) if swap else g
    n, c, h, w = x.shape
    px = (g[..., 0] + 1) / 2 * (w - 1) if corners else ((g[..., 0] + 1) * w - 1) / 2
    py = (g[..., 1] + 1) / 2 * (h - 1) if corners else ((g[..., 1] + 1) * h - 1) / 2
    if border:
        px, py = px.clamp(0, w - 1), py.clamp(0, h - 1)
    out = torch.zeros(n, c, 8, 8)
    for i in (0, 1):
        for j in (0, 1):
            y, z = py.floor() + i, px.floor() + j
            weight = (1 - (py - y).abs()) * (1 - (px - z).abs())
            good = (y >= 0) & (y < h - last) & (z >= 0) & (z < w - last)
            v = x[torch.arange(n)[:, None, None], :, y.clamp(0, h - 1).long(), z.clamp(0, w - 1).long()]
            out += torch.where(good, weight, 0.0)[:, None] * v.permute(0, 3, 1, 2)
    return out


ok(ninth_grid, grid, corner_by_corner={})
bad(
    ninth_grid,
    grid,
    {
        # align_corners
        "corners are aligned": {"corners": True},
        # border
        "hides: the border is repeated": {"border": True},
        # y before x
        "x and y are swapped": {"swap": True},
        # < size - 1
        "hides: the last row and column count as outside": {"last": True},
    },
)


@ninth(lambda d: (d(2, 3, 33, 40),))
def ninth_antialias(x):
    return F.interpolate(x, size=(12, 13), mode="bilinear", antialias=True)


def antialias(x, anti=True, support=1.0, norm=True, cut=0):
    for axis, n in ((2, 12), (3, 13)):
        m = x.shape[axis]
        s = m / n
        c = (torch.arange(n).double() + 0.5)[:, None] * s
        d = ((torch.arange(m).double() + 0.5)[None] - c) / (s if anti else 1.0) / support
        w = (1 - d.abs()).clamp(min=0)
        w = w / w.sum(-1, keepdim=True) if norm else w / s
        w[:, m - cut :] = 0
        x = torch.tensordot(x, w.float(), ([axis], [1])).movedim(-1, axis)
    return x


ok(ninth_antialias, antialias, by_matrices={})
bad(
    ninth_antialias,
    antialias,
    {
        # plain bilinear
        "not antialiased": {"anti": False},
        # not normalised at borders
        "hides: weights are divided by the scale, not by their sum": {"norm": False},
        # the last pixel
        "hides: the last pixels of a row are not read": {"cut": 1},
    },
)


@ninth(lambda d: (d(1, 4 * 9, 49),))
def ninth_fold(x):
    return F.fold(x, (15, 15), 3, stride=2)


def fold(x, store=False, cut=49, turn=False):
    out = torch.zeros(1, 4, 15, 15)
    y = x.view(1, 4, 3, 3, 7, 7)
    y = y.transpose(2, 3) if turn else y
    for i in range(3):
        for j in range(3):
            at = (slice(None), slice(None), slice(i, i + 13, 2), slice(j, j + 13, 2))
            out[at] = y[:, :, i, j] if store else out[at] + y[:, :, i, j]
    return out


ok(ninth_fold, fold, scattered={})
bad(
    ninth_fold,
    fold,
    {
        # a race
        "hides: overlaps are stored, not added": {"store": True},
        # kernel rows and columns
        "rows and columns of the window are swapped": {"turn": True},
    },
)
