# SPDX-License-Identifier: Apache-2.0
"""Set N: convolutions, pooling and pictures."""

import torch
import torch.nn.functional as F

from .blind import bf, hf, narrow, tf32
from .blind_eleventh_a import eleventh
from .blind_ninth_a import bad, grads, ok

# ------------------------------------------------------------------ dilated, channels last


@eleventh(lambda d: (d(2, 20, 20, 24).permute(0, 3, 1, 2), d(32, 24, 3, 3, scale=0.1), d(32)))
def eleventh_dilated(x, w, b):
    return F.conv2d(x, w, b, padding=2, dilation=2)


def taps(x, w, b, gap=2, pad=2, flip=False, edge=None, kind=None, channels=None, order=None, to=None, last=None):
    if to:
        x, w = to(x), to(w)
    n = x.shape[-1] + 2 * pad - 2 * gap
    x = F.pad(x, (pad,) * 4, mode=edge or "constant")
    y = b[:, None, None] * torch.ones(2, 32, n, n)
    for t in order or range(9):
        i, j = divmod(t, 3)
        a, c = (2 - i, 2 - j) if flip else (i, j)
        part = x[:, :channels, i * gap : i * gap + n, j * gap : j * gap + n]
        y = y + torch.einsum("bchw,oc->bohw", part, w[:, :channels, a, c])
        y = narrow(y, kind) if kind else y
    return last(y) if last else y


def columns(x, w, b):
    u = F.unfold(x.contiguous(), 3, dilation=2, padding=2)
    return (w.flatten(1) @ u).view(2, 32, 20, 20) + b[:, None, None]


ok(eleventh_dilated, taps, tap_by_tap={}, as_columns=columns, taps_from_the_last={"order": range(8, -1, -1)})
bad(
    eleventh_dilated,
    taps,
    {
        "not dilated": {"gap": 1, "pad": 1},
        "the kernel is turned": {"flip": True},
        "the border is mirrored": {"edge": "reflect"},
        "the last corner's tap is left out": {"order": range(8)},
        "hides: taps summed in half precision": {"kind": hf},
        "hides: operands in tf32": {"to": lambda t: tf32(t.contiguous())},
        "hides: one channel of 24 is left out at the end": {"channels": 23},
        "hides: the last row of pixels is two per cent too small": {
            "last": lambda y: torch.cat([y[:, :, :-1], y[:, :, -1:] * 0.98], 2)
        },
    },
)


# ---- transposed, stride two, bfloat16


@eleventh(lambda d: (d(2, 32, 9, 9, dtype=bf), d(32, 16, 4, 4, dtype=bf, scale=0.1), d(16, dtype=bf)))
def eleventh_transposed(x, w, b):
    return F.conv_transpose2d(x.float(), w.float(), b.float(), stride=2, padding=1).to(bf)


def scatter(x, w, b, pad=1, flip=False, over=False, bias=True, kind=None, lost=None, out=None, parts=32):
    x, w = x.float(), w.float()
    y = torch.zeros(2, 16, 20, 20)
    for i in range(4):
        for j in range(4):
            if (i, j) == lost:
                continue
            k = w[:, :, 3 - i, 3 - j] if flip else w[:, :, i, j]
            at = (slice(None), slice(None), slice(i, i + 17, 2), slice(j, j + 17, 2))
            for c in range(0, 32, parts):
                part = torch.einsum("bchw,co->bohw", x[:, c : c + parts], k[c : c + parts])
                y[at] = part if over else y[at] + part
                if kind:
                    y[at] = narrow(y[at], kind)
    y = y[:, :, pad : pad + 18, pad : pad + 18] + (b.float()[:, None, None] if bias else 0.0)
    return out(y) if out else y


def dilated_input(x, w, b):
    z = torch.zeros(2, 32, 17, 17)
    z[:, :, ::2, ::2] = x.float()
    return F.conv2d(z, w.float().flip(2, 3).transpose(0, 1), b.float(), padding=2)


ok(eleventh_transposed, scatter, bf, scattered={}, by_a_dilated_input=dilated_input, channels_by_eight={"parts": 8})
bad(
    eleventh_transposed,
    scatter,
    {
        "what overlaps is overwritten": {"over": True},
        "the kernel is turned": {"flip": True},
        "the border is cut at the other side": {"pad": 2},
        "the bias is left out": {"bias": False},
        "hides: overlaps summed in bfloat16": {"kind": bf, "parts": 8},
        "hides: the corner tap is left out": {"lost": (3, 3)},
        "hides: the last column lacks its bias": {"out": lambda y: torch.cat([y[..., :-1], y[..., -1:] * 0.98], -1)},
    },
    bf,
)


# ---- gradients of a depthwise convolution


@eleventh(lambda d: (d(4, 24, 16, 16), d(24, 1, 3, 3), d(4, 24, 16, 16)))
def eleventh_depth_grad(x, w, dy):
    return grads(lambda x, w: F.conv2d(x, w, padding=1, groups=24), x, w, cotangent=dy)


def depth_grad(x, w, dy, flip=True, images=4, rows=16, kind=None, tile=16, wrap=False, last=None):
    p, q = F.pad(x, (1,) * 4), F.pad(dy, (1,) * 4)
    if wrap:
        q = F.pad(dy, (1,) * 4, mode="circular")
    dx, dw = torch.zeros_like(x), torch.zeros_like(w)
    for i in range(3):
        for j in range(3):
            k = w[:, 0, 2 - i, 2 - j] if flip else w[:, 0, i, j]
            dx = dx + q[:, :, i : i + 16, j : j + 16] * k[:, None, None]
            t = torch.zeros(24)
            for r in range(0, rows, tile):
                t = t + (
                    p[:images, :, i + r : i + min(r + tile, rows), j : j + 16] * dy[:images, :, r : min(r + tile, rows)]
                ).sum((0, 2, 3))
                t = narrow(t, kind) if kind else t
            dw[:, 0, i, j] = t
    return dx, last(dw) if last else dw


ok(eleventh_depth_grad, depth_grad, at_once={}, by_rows={"tile": 1}, by_four_rows={"tile": 4})
bad(
    eleventh_depth_grad,
    depth_grad,
    {
        "the kernel is not turned": {"flip": False},
        "the last image gives nothing to the weights": {"images": 3},
        "the border wraps": {"wrap": True},
        "hides: the weights' gradient in half precision": {"kind": hf, "tile": 1},
        "hides: the last row of pixels gives nothing to the weights": {"rows": 15},
        "hides: one channel's corner is one per cent too small": {
            "last": lambda g: (
                g * (1 - 0.01 * torch.eye(24)[5].view(24, 1, 1, 1) * (torch.arange(9) == 8).view(1, 1, 3, 3))
            )
        },
    },
)


# ---- long convolution by Fourier transforms


@eleventh(lambda d: (d(3, 16, 700), d(16, 700) * torch.exp(-torch.arange(700) / 150.0), d(16)))
def eleventh_long_conv(x, h, skip):
    n = 1400
    y = torch.fft.irfft(torch.fft.rfft(x, n) * torch.fft.rfft(h, n), n)[..., :700]
    return y + skip[:, None] * x


def long_conv(x, h, skip, n=1400, kind=None, flip=False, norm=1.0, keep=None, once=True, cut=None, wide=torch.float32):
    a, b = torch.fft.rfft(x.to(wide), n), torch.fft.rfft((h.flip(-1) if flip else h).to(wide), n)
    if keep:
        b = torch.where(torch.arange(b.shape[-1]) < b.shape[-1] - keep, b, 0.0)
    if kind:
        a = torch.complex(narrow(a.real.contiguous(), kind), narrow(a.imag.contiguous(), kind))
    y = torch.fft.irfft(a * b, n)[..., :700] * norm
    y = torch.cat([y, torch.zeros(3, 16, 700 - y.shape[-1])], -1) if y.shape[-1] < 700 else y
    return (y + (skip[:, None] * x if once else 0.0)).float()


def directly(x, h, skip):
    p = F.pad(x, (699, 0))
    return F.conv1d(p, h.flip(-1)[:, None], groups=16) + skip[:, None] * x


ok(
    eleventh_long_conv,
    long_conv,
    twice_the_length={},
    a_power_of_two={"n": 2048},
    in_double={"wide": torch.float64},
)
bad(
    eleventh_long_conv,
    long_conv,
    {
        "the end wraps to the beginning": {"n": 700},
        "the filter is turned": {"flip": True},
        "the skip is left out": {"once": False},
        "hides: the end wraps a little": {"n": 1200},
        "hides: the spectrum in half precision": {"kind": hf},
        "hides: the highest frequency is left out": {"keep": 1},
        "hides: the transform is scaled by 1 / 1401": {"norm": 1400 / 1401},
    },
)


# ---- bilinear upsampling, and its gradient


@eleventh(lambda d: (d(2, 6, 9, 11), d(2, 6, 20, 25)))
def eleventh_up(x, dy):
    f = lambda x: F.interpolate(x, (20, 25), mode="bilinear", align_corners=False)
    return f(x), grads(f, x, cotangent=dy)[0]


def matrix(n, m, corners=False, ratio=None, half=0.5, clamp=True, t_of=None):
    o = torch.arange(m).double()
    s = o * (n - 1) / (m - 1) if corners else (o + half) * (ratio or n / m) - half
    s = s.clamp(min=0) if clamp else s
    lo = s.floor().clamp(0, n - 1).long()
    hi = (lo + 1).clamp(max=n - 1)
    t = s - lo
    t = t_of(t) if t_of else t
    a = torch.zeros(m, n).double()
    a.scatter_add_(1, lo[:, None], (1 - t)[:, None]).scatter_add_(1, hi[:, None], t[:, None])
    return a.float()


def up(x, dy, kind=None, back=None, cut=0, **how):
    a, b = matrix(9, 20, **how), matrix(11, 25, **how)
    if kind:
        a, b = narrow(a, kind), narrow(b, kind)
    y = a @ x @ b.T
    if cut:
        dy = torch.cat([dy[:, :, :-cut], torch.zeros(2, 6, cut, 25)], 2)
    return y, (back(dy) if back else a.T @ dy @ b)


def gathered(x, dy):
    a, b = matrix(9, 20), matrix(11, 25)
    return torch.einsum("bchw,ih,jw->bcij", x, a, b), torch.einsum("bcij,ih,jw->bchw", dy, a, b)


ok(eleventh_up, up, two_products={}, one_sum_of_three=gathered)
bad(
    eleventh_up,
    up,
    {
        "corners are aligned": {"corners": True},
        "the nearest": {"t_of": torch.round},
        "the half pixel is left out": {"half": 0.0},
        "the last row gives no gradient": {"cut": 1},
        "hides: weights in half precision": {"kind": hf},
        # weights of a texture unit
        "hides: weights of eight bits after the point": {"t_of": lambda t: (t * 256).round() / 256},
        "hides: the ratio is 0.45": {"ratio": 0.4501},
    },
)


# ---- sampling on a grid, zeros outside


@eleventh(lambda d: (d(2, 5, 14, 17), d.rand(2, 10, 12, 2) * 2.3 - 1.15))
def eleventh_grid(x, grid):
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def sample(
    x, grid, corners=False, edge=False, swap=False, t_of=None, whole=False, kind=None, to=None, order=(0, 1, 2, 3)
):
    g = grid.flip(-1) if swap else grid
    g = narrow(g, kind) if kind else g
    size = torch.tensor([17, 14])
    p = (g + 1) / 2 * (size - 1) if corners else ((g + 1) * size - 1) / 2
    lo = p.trunc() if whole else p.floor()
    t = p - lo
    t = t_of(t) if t_of else t
    out = torch.zeros(2, 5, 10, 12)
    x = to(x) if to else x
    for n in order:
        i, j = divmod(n, 2)
        c, r = lo[..., 0].long() + j, lo[..., 1].long() + i
        w = (t[..., 0] if j else 1 - t[..., 0]) * (t[..., 1] if i else 1 - t[..., 1])
        ok_ = (c >= 0) & (c < 17) & (r >= 0) & (r < 14)
        flat = (r.clamp(0, 13) * 17 + c.clamp(0, 16)).flatten(1)[:, None].expand(-1, 5, -1)
        v = x.flatten(2).gather(2, flat).view(2, 5, 10, 12)
        out = out + v * (w if edge else w * ok_)[:, None]
    return out


def products_of_one(x, grid):
    size = torch.tensor([17, 14])
    p = (grid + 1) * (size / 2) - 0.5
    a = (1 - (p[..., 1, None] - torch.arange(14)).abs()).clamp(min=0)
    b = (1 - (p[..., 0, None] - torch.arange(17)).abs()).clamp(min=0)
    return torch.einsum("bchw,bijh,bijw->bcij", x, a, b)


ok(eleventh_grid, sample, four_corners={}, from_the_last_corner={"order": (3, 2, 1, 0)}, by_hats=products_of_one)
bad(
    eleventh_grid,
    sample,
    {
        "corners are aligned": {"corners": True},
        "the border is repeated": {"edge": True},
        "rows and columns are swapped": {"swap": True},
        # left of zero alone
        "places are cut off towards zero": {"whole": True},
        "hides: the grid in half precision": {"kind": hf},
        "hides: weights of eight bits after the point": {"t_of": lambda t: (t * 256).floor() / 256},
        "hides: values in half precision": {"to": lambda x: narrow(x, hf)},
    },
)


# ---- average and greatest of windows


@eleventh(lambda d: (d(3, 10, 15, 15, shift=-3).transpose(2, 3),))
def eleventh_pools(x):
    return F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), F.max_pool2d(x, 3, 2, 1)


def pools(x, padded=False, zero=False, stride=1, nine=None, kind=None, edge=None, cut=None):
    low = 0.0 if zero else -float("inf")
    a, m = F.pad(x, (1,) * 4), F.pad(x, (1,) * 4, value=low)
    one = F.pad(torch.ones_like(x), (1,) * 4)
    s, c, g = torch.zeros(3, 10, 8, 8), torch.zeros(3, 10, 8, 8), torch.full((3, 10, 8, 8), -float("inf"))
    for i in range(3):
        for j in range(3):
            at = (slice(None), slice(None), slice(i, i + 15, 2), slice(j, j + 15, 2))
            if (i, j) == cut:
                continue
            s, c, g = s + a[at], c + one[at], torch.maximum(g, m[at])
            s = narrow(s, kind) if kind else s
    y = s / (9 if padded else c)
    y = s * (c.reciprocal() if not nine else torch.where(c == 9, nine, 1 / c)) if not padded else y
    return y, edge(g) if edge else g


def stacked(x):
    u = F.unfold(F.pad(x, (1,) * 4, value=float("nan")), 3, stride=2).view(3, 10, 9, 8, 8)
    return u.nanmean(2), u.nan_to_num(-float("inf")).amax(2)


ok(eleventh_pools, pools, window_by_window={}, as_columns=stacked)
bad(
    eleventh_pools,
    pools,
    {
        "padding is counted": {"padded": True},
        "padding is zero for the greatest": {"zero": True},
        "the last corner of the window is left out": {"cut": (2, 2)},
        "hides: a ninth is 0.111": {"nine": 0.111},
        "hides: sums in half precision": {"kind": hf},
        "hides: the greatest in bfloat16": {"edge": narrow},
    },
)


# ---- three dimensions in patches, half precision


@eleventh(lambda d: (d(1, 3, 4, 28, 28, dtype=hf), d(48, 3, 2, 14, 14, dtype=hf, scale=0.04), d(48, dtype=hf)))
def eleventh_patches(x, w, b):
    return F.conv3d(x.float(), w.float(), b.float(), stride=(2, 14, 14)).to(hf)


def patches(x, w, b, n=1176, step=1176, kind=None, turn=False, bias=1.0, frames=False, last=None):
    x = x.float().view(3, 2, 2, 2, 14, 2, 14)
    x = x.permute(1, 3, 5, 0, 2, 4, 6) if not frames else x.permute(2, 3, 5, 0, 1, 4, 6)
    f = (w.float().transpose(3, 4) if turn else w.float()).flatten(1)
    u, y = x.reshape(8, 1176), torch.zeros(8, 48)
    for k in range(0, n, step):
        y = y + u[:, k : min(k + step, n)] @ f[:, k : min(k + step, n)].T
        y = narrow(y, kind) if kind else y
    y = (y + bias * b.float()).T.reshape(1, 48, 2, 2, 2)
    return last(y) if last else y


ok(eleventh_patches, patches, hf, one_product={}, by_196={"step": 196}, by_24={"step": 24})
bad(
    eleventh_patches,
    patches,
    {
        "the patch is transposed": {"turn": True},
        "frames are taken in turn": {"frames": True},
        "the bias is added twice": {"bias": 2.0},
        "hides: summed in half precision by 24": {"step": 24, "kind": hf},
        # 24 of 1176 products
        "hides: a tail of 24 products is left out": {"n": 1152, "step": 48},
    },
    hf,
)
