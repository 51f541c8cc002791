# SPDX-License-Identifier: Apache-2.0
"""Set M: convolutions and their gradients, pooling, interpolation, padding."""

import torch

from .blind import bf, hf, narrow, tf32
from .blind_ninth_a import bad, grads, ok
from .blind_tenth_a import tenth

F = torch.nn.functional
INF = float("inf")


# ------------------------------------------------------------------ depthwise, causal, silu, in bfloat16


@tenth(lambda d: (d(2, 24, 70, dtype=bf), d(24, 1, 4, dtype=bf), d(24, dtype=bf)))
def tenth_short_conv(x, w, b):
    return F.silu(F.conv1d(F.pad(x.float(), (3, 0)), w.float(), b.float(), groups=24)).to(bf)


def short_conv(x, w, b, flip=False, pad=3, kind=None, edge=None, act=True, tile=None, order=(0, 1, 2, 3)):
    x, w, b = x.float(), w.float()[:, 0], b.float()
    w = w.flip(-1) if flip else w
    y = b[:, None].expand(2, -1, 70) * 1.0
    for n in order:
        shift = pad - n
        z = torch.roll(x, shift, -1)
        t = torch.arange(70)
        live = (t >= shift) & (t < 70 + shift)
        if tile:
            live = live & (t % tile >= shift)
        z = z if edge == "wrap" else z * live if edge is None else torch.where(live, z, x[..., :1])
        y = y + w[:, n, None] * z
        y = narrow(y, kind) if kind else y
    return y / (1 + (-y).exp()) if act else y


ok(tenth_short_conv, short_conv, bf, tap_by_tap={}, taps_backwards={"order": (3, 2, 1, 0)})
bad(
    tenth_short_conv,
    short_conv,
    {
        # convolution for correlation
        "the taps are flipped": {"flip": True},
        # pad on both sides
        "not causal: padded on both sides": {"pad": 2},
        # roll
        "the edge wraps around": {"edge": "wrap"},
        # the first value is repeated
        "the edge repeats the first value": {"edge": "same"},
        # each tile of 32 starts from zeros
        "hides: a tile of 32 does not see the one before": {"tile": 32},
        # taps added in bfloat16
        "hides: taps are added in bfloat16": {"kind": bf},
    },
    bf,
)


# ------------------------------------------------------------------ grouped, dilated, strided


@tenth(lambda d: (d(2, 12, 15, 14), d(16, 12, 3, 3, scale=0.3), d(16)))
def tenth_dilated(x, w, b):
    return F.conv2d(x, w, b, stride=2, padding=2, dilation=2)


def dilated(x, w, b, dil=2, pad=2, bias=True, kind=None, lost=0, turn=False, split=1):
    w = w.mT if turn else w
    x, w = (tf32(x), tf32(w.contiguous())) if kind == "tf32" else (x, w)
    cols = F.unfold(x, 3, dilation=dil, padding=pad, stride=2)
    n = 108 - lost
    wide = w.flatten(1)
    y = sum(wide[:, j : min(j + n // split, n)] @ cols[:, j : min(j + n // split, n)] for j in range(0, n, n // split))
    y = y + b[:, None] * bias
    return y.view(2, 16, *F.conv2d(x, w, None, 2, pad, dil).shape[2:])


ok(tenth_dilated, dilated, columns={}, split_by_three={"split": 3})
bad(
    tenth_dilated,
    dilated,
    {
        # kernel transposed
        "the kernel is transposed": {"turn": True},
        # no bias
        "no bias": {"bias": False},
        # last 12 of 108
        "the last tap of the last channel is lost": {"lost": 1},
        # tf32
        "hides: products of tf32": {"kind": "tf32"},
        # bias shifted by a channel beside right sums
        "the bias is that of the next channel": lambda x, w, b: dilated(x, w, b.roll(-1)),
    },
)


# ------------------------------------------------------------------ gradients of a convolution


@tenth(lambda d: (d(4, 6, 10, 10), d(8, 6, 3, 3), d(4, 8, 10, 10)))
def tenth_conv_grad(x, w, g):
    return grads(lambda x, w: F.conv2d(x, w, padding=1), x, w, cotangent=g)


def conv_grad(x, w, g, images=4, flip=True, kind=None, edge=True, add=None, rows=10):
    back = w.transpose(0, 1).flip((2, 3)) if flip else w.transpose(0, 1)
    dx = F.conv2d(g, back.contiguous(), padding=1)
    cols = F.unfold(x, 3, padding=1).view(4, 54, 10, 10)[:, :, :rows].flatten(2)
    cut = g[:, :, :rows].flatten(2)
    dw = torch.zeros(8, 54)
    for n in range(images):
        dw = dw + cut[n] @ cols[n].T
        dw = narrow(dw, kind) if kind else dw
    if not edge:
        dx = dx.clone()
        dx[:, :, -1, -1] = 0
    return dx, dw.view(8, 6, 3, 3)


ok(tenth_conv_grad, conv_grad, image_by_image={})
bad(
    tenth_conv_grad,
    conv_grad,
    {
        # not rotated
        "the weights are not turned for dx": {"flip": False},
        # the last image
        "dw leaves the last image out": {"images": 3},
        # between images in bfloat16
        "hides: images are added in bfloat16": {"kind": bf},
        # a corner
        "hides: the last corner of dx is zero": {"edge": False},
        # the last row of pixels
        "hides: dw leaves the last row of pixels out": {"rows": 9},
    },
)


# ------------------------------------------------------------------ pooling


@tenth(lambda d: (d(2, 5, 13, 13),))
def tenth_average(x):
    return F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=True)


def average(x, count="pad"):
    big = F.pad(x, (1, 2, 1, 2))
    ones = F.pad(torch.ones(1, 1, 13, 13), (1, 2, 1, 2))
    inner = F.pad(torch.ones(1, 1, 15, 15), (0, 1, 0, 1))
    add = lambda t: F.unfold(t.flatten(0, 1)[:, None], 3, stride=2).sum(1).view(*t.shape[:2], 7, 7)
    n = add(ones) if count == "real" else add(inner) if count == "pad" else 9.0
    if count == "eight":
        return add(big) * (1 / 9.0) * (1 - 2**-12)
    return add(big) / n


ok(tenth_average, average, sums_over_counts={})
bad(
    tenth_average,
    average,
    {
        # count_include_pad=False
        "padding is not counted": {"count": "real"},
        # a ninth of coarse bits
        "hides: a ninth of twelve bits": {"count": "eight"},
    },
)


def peaks_args(d):
    x = d(2, 4, 12, 12).mul(2).round().div(2)
    x[0, 0] = -INF
    x[1, 1] = -5.0
    return (x,)


@tenth(peaks_args)
def tenth_peaks(x):
    return F.max_pool2d(x, 3, 2, 1, return_indices=True)


def peaks(x, fill=-INF, last=False, local=False, turn=False):
    big = F.pad(x, (1, 1, 1, 1), value=fill)
    at = F.pad(torch.arange(144.0).view(1, 1, 12, 12), (1, 1, 1, 1), value=-1)
    cut = lambda t: F.unfold(t.flatten(0, 1)[:, None], 3, stride=2).view(*t.shape[:2], 9, 36)
    v, i = big.unfold(2, 3, 2).unfold(3, 3, 2).flatten(4), cut(at)[0, 0].T.view(6, 6, 9)
    v = v.masked_fill(i < 0, fill)
    top = v.amax(-1, keepdim=True)
    hit = (v == top) & ((i >= 0) | (fill > -INF))
    n = torch.arange(9) if last else torch.arange(8, -1, -1)
    k = (hit * (n + 1)).argmax(-1)
    k = torch.where(hit.any(-1), k, 0)
    index = k if local else i.expand_as(v).gather(-1, k[..., None])[..., 0].clamp_min(0).long()
    index = index % 12 * 12 + index // 12 if turn else index
    return top[..., 0], index


ok(tenth_peaks, peaks, None, windows={}, the_last_of_equal_ones={"last": True})
bad(
    tenth_peaks,
    peaks,
    {
        # zeros pad
        "padded with zeros": {"fill": 0.0},
        # index in the window
        "the place is that in the window": {"local": True},
        # column-major places
        "places count down the columns": {"turn": True},
    },
    None,
)


# ------------------------------------------------------------------ interpolation and its gradient


@tenth(lambda d: (d(2, 3, 7, 9, shift=3.0),))
def tenth_grown(x):
    return F.interpolate(x, (16, 20), mode="bilinear", align_corners=False)


def weights(n, m, how="half", kind=None, clamp=True):
    t = torch.arange(m, dtype=torch.float64)
    s = (t + 0.5) * n / m - 0.5 if how == "half" else t * n / m if how == "low" else t * (n - 1) / (m - 1)
    s = s.clamp(0, n - 1) if clamp else s
    lo = s.floor().clamp(0, n - 1).long()
    f = (s - lo).float()
    f = narrow(f, kind) if kind else f
    w = torch.zeros(m, n)
    w[torch.arange(m), lo] += 1 - f
    w[torch.arange(m), (lo + 1).clamp(max=n - 1)] += f
    return w


def grown(x, how="half", kind=None, clamp=True, back=False, swap=False):
    a, b = weights(7, 16, how, kind, clamp), weights(9, 20, how, kind, clamp)
    y = a @ (x @ b.T) if not back else (a @ x) @ b.T
    return narrow(y, kind) if swap else y


ok(tenth_grown, grown, columns_first={}, rows_first={"back": True})
bad(
    tenth_grown,
    grown,
    {
        # align_corners
        "corners are aligned": {"how": "corners"},
        # no half pixel
        "no half pixel": {"how": "low"},
        # fractions in bfloat16
        "hides: fractions in bfloat16": {"kind": bf},
        # extrapolates at the edge
        "hides: the edge is extrapolated": {"clamp": False},
    },
)


@tenth(lambda d: (d(2, 3, 16, 20), d(2, 3, 7, 9)))
def tenth_grown_grad(g, x):
    return grads(lambda x: F.interpolate(x, (16, 20), mode="bilinear", align_corners=True), x, cotangent=g)[0]


def grown_grad(g, x, how="corners", write=False, lost=False, kind=None):
    a, b = weights(7, 16, how), weights(9, 20, how, kind)
    g = torch.cat([g[..., :-1], g[..., -1:] * 0], -1) if lost else g
    return a.T @ g @ b


ok(tenth_grown_grad, grown_grad, transposed_product={})
bad(
    tenth_grown_grad,
    grown_grad,
    {
        # half pixel
        "corners are not aligned in the gradient": {"how": "half"},
        # fractions
        "hides: fractions of columns in half precision": {"kind": hf},
        # the last column
        "the last column gives no gradient": {"lost": True},
    },
)


@tenth(lambda d: (d(3, 4, 10),))
def tenth_nearest_exact(x):
    return F.interpolate(x, 23, mode="nearest-exact"), F.interpolate(x, 23, mode="nearest")


def nearest_exact(x, a=0.5, b=0.0, r=None):
    t = torch.arange(23)
    at = lambda s: ((t + s) * 10 / 23).floor().clamp(0, 9).long()
    up = (t * 10 / 23 + 0.5).floor().clamp(0, 9).long()
    return x[..., at(a) if r is None else up], x[..., at(b)]


ok(tenth_nearest_exact, nearest_exact, table_of_places={})
bad(
    tenth_nearest_exact,
    nearest_exact,
    {
        # no half
        "the exact one has no half": {"a": 0.0},
        # half for both
        "both have the half": {"b": 0.5},
        # round(t * scale)
        "hides: rounded without the half pixel": {"r": True},
    },
)


# ------------------------------------------------------------------ padding by reflection, shuffling pixels


@tenth(lambda d: (d(2, 8, 9, 7), d(2, 2, 24, 20)))
def tenth_mirror(x, g):
    f = lambda x: F.pixel_shuffle(F.pad(x, (1, 2, 2, 1), mode="reflect"), 2)
    return f(x), grads(f, x, cotangent=g)[0]


def mirror(x, g, r=1, order=False, lone=False):
    def place(n, a, b):
        t = torch.arange(-a, n + b).abs()
        t = torch.where(t > n - 1, 2 * (n - 1) - t, t)
        return t if r else torch.where(torch.arange(-a, n + b) < 0, t - 1, t).clamp_min(0)

    i, j = place(9, 2, 1), place(7, 1, 2)
    y = x[:, :, i][..., j].view(2, 2, 2, 2, 12, 10)
    y = y.permute(0, 1, 4, 3, 5, 2) if order else y.permute(0, 1, 4, 2, 5, 3)
    h = g.view(2, 2, 12, 2, 10, 2).permute(0, 1, 3, 5, 2, 4).reshape(2, 8, 12, 10)
    if lone:
        return y.reshape(2, 2, 24, 20), h[..., 2:11, 1:8].clone()
    rows = torch.zeros(2, 8, 9, 10).index_add(2, i, h)
    return y.reshape(2, 2, 24, 20), torch.zeros(2, 8, 9, 7).index_add(3, j, rows)


ok(tenth_mirror, mirror, indices={})
bad(
    tenth_mirror,
    mirror,
    {
        # symmetric at the front
        "the border itself is repeated in front": {"r": 0},
        # rows and columns of the block
        "rows and columns of the blocks are swapped": {"order": True},
        # only the inside
        "hides: reflected gradients are lost": {"lone": True},
    },
)


# ------------------------------------------------------------------ transposed convolution of half precision


@tenth(lambda d: (d(2, 10, 9, 9, dtype=hf), d(10, 6, 4, 4, dtype=hf), d(6, dtype=hf)))
def tenth_raised(x, w, b):
    return F.conv_transpose2d(x.float(), w.float(), b.float(), 2, 1).to(hf)


def raised(x, w, b, write=False, kind=None, flip=False, cut=1, channels=10):
    x, w = x.float()[:, :channels], w.float()[:channels]
    w = w.flip((2, 3)) if flip else w
    out = torch.zeros(2, 6, 20, 20)
    for p in range(4):
        for q in range(4):
            y = torch.einsum("nchw,cd->ndhw", x, w[..., p, q])
            at = out[:, :, p : p + 18 : 2, q : q + 18 : 2]
            at.copy_(y if write else at + y)
            if kind:
                at.copy_(narrow(at, kind))
    out = out[:, :, cut : cut + 18, cut : cut + 18]
    return out + b.float()[:, None, None]


ok(tenth_raised, raised, hf, tap_by_tap={})
bad(
    tenth_raised,
    raised,
    {
        # = for +=
        "overlaps are overwritten": {"write": True},
        # not flipped
        "the kernel is flipped": {"flip": True},
        # padding of 2
        "cut one pixel later": {"cut": 2},
        # taps in half precision
        "hides: taps are added in half precision": {"kind": hf},
        # 8 of 10
        "only eight of ten channels": {"channels": 8},
    },
    hf,
)
