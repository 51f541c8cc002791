# SPDX-License-Identifier: Apache-2.0
"""Set U, the fifteenth: positions, convolutions and sampling of images."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf
from .blind_fifteenth_base import add, hold, tiled
from .blind_fourteenth_base import up, wide

# Rotation by halves, angles given by positions; with YaRN's ramp of frequencies.


def yarn(x, at):
    half = x.shape[-1] // 2
    i = torch.arange(half, device=x.device).to(up(x).dtype)
    inv = 10000.0 ** (-i / half)
    ramp = ((i - 3.0) / 8.0).clamp(0, 1)
    inv = inv / 4.0 * ramp + inv * (1 - ramp)
    angle = at[:, None] * inv
    m = 0.1 * math.log(4.0) + 1
    cos, sin = torch.cos(angle) * m, torch.sin(angle) * m
    a, b = up(x).chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)


def yarn_kernel(
    x, at, factor=4.0, swap=False, scale=True, sign=1, pairs=False, past=0, base=10000.0, kind=None, low=3.0, lean=True
):
    half = x.shape[-1] // 2
    i = torch.arange(half, dtype=torch.float64)
    inv = torch.exp(-i / half * math.log(base))
    ramp = ((i - low) / 8.0).clamp(0, 1)
    ramp = 1 - ramp if swap else ramp
    inv = inv * (1 - ramp * (1 - 1 / factor)) if lean else inv / factor
    angle = hold((at.float() + past)[:, None] * inv.float(), kind)
    m = 0.1 * math.log(factor) + 1 if scale else 1.0
    cos, sin = torch.cos(angle) * m, sign * torch.sin(angle) * m
    a, b = (x[..., 0::2], x[..., 1::2]) if pairs else x.chunk(2, -1)
    p, q = torch.addcmul(a * cos, -b, sin), torch.addcmul(b * cos, a, sin)
    return torch.stack([p, q], -1).flatten(-2) if pairs else torch.cat([p, q], -1)


for form, kind in (("", None), ("_bf16", bf)):
    add(
        "yarn" + form,
        yarn,
        lambda d, kind=kind: (d(3, 48, 32, dtype=kind or torch.float32), d.ints(64, 48)),
        yarn_kernel,
        dtype=kind,
        right={"one ramp, fused multiply and add": {}},
        wrong={
            "the output's scale is left out": {"scale": False},
            "pairs are neighbours, not halves": {"pairs": True},
            "positions start at one": {"past": 1},
            "the rotation turns the other way": {"sign": -1},
        }
        if kind
        else {
            "the ramp is turned": {"swap": True},
            "all frequencies are divided by the factor": {"lean": False},
            "the ramp starts at 4": {"low": 4.0},
            "angles are rounded to bfloat16": {"kind": bf},
            "the base is 500000": {"base": 500000.0},
        },
    )

# Positions of time, height and width: sections of the frequencies.


def three(x, at):
    i = torch.arange(16, device=x.device).to(x.dtype)
    inv = 10000.0 ** (-i / 16)
    which = torch.tensor([0] * 4 + [1] * 6 + [2] * 6, device=x.device)
    angle = at[which].T * inv
    cos, sin = torch.cat([angle.cos()] * 2, -1), torch.cat([angle.sin()] * 2, -1)
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


def three_kernel(x, at, sections=(4, 6, 6), swap=(0, 1, 2), turn=1, inner=False, woven=False, kind=None):
    which = torch.tensor([c for c, n in enumerate(sections) for _ in range(n)])
    which = torch.arange(16) % 3 if woven else which
    i = torch.arange(16).double()
    i = torch.cat([torch.arange(n).double() * 16 / n for n in sections]) if inner else i
    angle = at[list(swap)][which].T.double() * 10000.0 ** (-i / 16)
    cos, sin = hold(angle.cos().float(), kind), hold(angle.sin().float(), kind)
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - turn * b * sin, b * cos + turn * a * sin], -1)


add(
    "positions_in_three",
    three,
    lambda d: (d(2, 50, 32), d.ints(30, 3, 50)),
    three_kernel,
    right={"angles in double": {}},
    wrong={
        "height and width are swapped": {"swap": (0, 2, 1)},
        "sections are of 6, 6 and 4": {"sections": (6, 6, 4)},
        "each section counts its own frequencies": {"inner": True},
        "sections are woven, not in a row": {"woven": True},
        "cosines and sines are in float16": {"kind": hf},
    },
)

# A convolution by Winograd's tiles of two.


def conv(x, w, b):
    return F.conv2d(x, w, b, padding=1)


def winograd(x, w, b, g=None, flip=False, kind=None, bias=True, edge=0, order=False):
    bt = torch.tensor([[1.0, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])
    gm = torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5 if g is None else g, 0.5], [0, 0, 1]])
    at = torch.tensor([[1.0, 1, 1, 0], [0, 1, -1, -1]])
    w = w.flip(-1, -2) if flip else w
    w = w.transpose(0, 1) if order else w
    u = hold(gm @ w @ gm.T, kind)
    x = F.pad(x, (1, 1, 1, 1), mode="replicate") if edge else F.pad(x, (1, 1, 1, 1))
    tiles = x.unfold(2, 4, 2).unfold(3, 4, 2)  # [n, c, th, tw, 4, 4]
    v = hold(bt @ tiles @ bt.T, kind)
    m = torch.einsum("oclm,ncijlm->noijlm", u, v)
    y = at @ m @ at.T
    y = y.permute(0, 1, 2, 4, 3, 5).flatten(4).flatten(2, 3)
    return y + (b[:, None, None] if bias else 0)


def columns(x, w, b, pad=1, step=16, turned=False, acc=None, skip=(), stride=1, dilation=1):
    cols = F.unfold(x, w.shape[-1], padding=pad, stride=stride, dilation=dilation)
    flat = (w.mT if turned else w).flatten(1)
    y = tiled(flat.expand(len(x), -1, -1), cols, step, acc, skip) + b[:, None]
    h = (x.shape[2] + 2 * pad - dilation * (w.shape[-1] - 1) - 1) // stride + 1
    return y.unflatten(-1, (h, -1))


add(
    "convolution_three",
    conv,
    lambda d: (d(2, 12, 14, 10), d(12, 12, 3, 3, scale=0.15), d(12)),
    winograd,
    right={"tiles of two": {}, "columns and a product": columns, "in double": wide(conv)},
    wrong={
        "a sign of the filters' transform": {"g": 0.5},
        "the filter is turned around": {"flip": True},
        "transformed tiles are rounded to bfloat16": {"kind": bf},
        "the bias is left out": {"bias": False},
        "the edge is repeated, not zero": {"edge": 1},
        "channels in and out are swapped": {"order": True},
    },
)

# With strides and gaps; in low precision.


def strided(x, w, b):
    return F.conv2d(up(x), up(w), up(b), stride=2, padding=2, dilation=2).to(x.dtype)


add(
    "convolution_with_gaps",
    strided,
    lambda d: (d(1, 16, 18, 15, dtype=hf), d(20, 16, 3, 3, dtype=hf, scale=0.1), d(20, dtype=hf)),
    lambda x, w, b, **how: columns(x, w, b, **({"pad": 2, "stride": 2, "dilation": 2} | how)),
    dtype=hf,
    right={"columns and a product": {}, "columns, blocks of 48": {"step": 48}},
    wrong={
        "filters are transposed": {"turned": True},
        "the last sixteen of the inner dimension are lost": {"skip": (8,)},
        "the accumulator is in bfloat16": {"acc": bf},
    },
)

# Long filters by Fourier's transform; short ones of each channel with a cache.


def long(x, h):
    return F.conv1d(F.pad(x, (h.shape[-1] - 1, 0)), h.flip(-1)[:, None], groups=x.shape[1])


def long_kernel(x, h, n=None, conj=False, shift=0, kind=None):
    n = n or 2 * x.shape[-1]
    a, b = torch.fft.rfft(x, n), torch.fft.rfft(h, n)
    b = b.conj() if conj else b
    y = torch.fft.irfft(a * b, n)
    return hold(y.roll(shift, -1)[..., : x.shape[-1]], kind)


add(
    "long_convolution",
    long,
    lambda d: (d(2, 8, 128), d(8, 128, scale=0.2) * torch.exp(-torch.arange(128) / 20)),
    long_kernel,
    right={"by the transform of twice the length": {}, "in double": wide(long)},
    wrong={
        "the transform has no room and wraps around": {"n": 128},
        "it correlates": {"conj": True},
        "the result is one step late": {"shift": 1},
        "the result passes through float16": {"kind": hf},
        "the transform has room for half": {"n": 192},
    },
)


def short(x, state, w, b):
    y = torch.cat([up(state), up(x)], -1)
    y = F.conv1d(y, up(w)[:, None], up(b), groups=x.shape[1])
    return F.silu(y).to(x.dtype), torch.cat([state, x], -1)[..., -3:]


def short_kernel(x, state, w, b, zero=False, flip=False, taps=4, bias=True, act=True, old=False):
    y = torch.cat([state * (not zero), x], -1)
    w = w.flip(-1) if flip else w
    n = x.shape[-1]
    total = b[:, None] if bias else torch.zeros(len(b), 1)
    for t in range(4 - taps, 4):
        total = total + w[:, t, None] * y[..., t : t + n]
    return total / (1 + torch.exp(-total)) if act else total, state if old else y[..., -3:]


add(
    "short_convolution",
    short,
    lambda d: (d(2, 24, 30, dtype=bf), d(2, 24, 3, dtype=bf), d(24, 4, dtype=bf, scale=0.6), d(24, dtype=bf)),
    short_kernel,
    dtype=bf,
    right={"tap by tap": {}},
    wrong={
        "the cache is taken as zero": {"zero": True},
        "taps are turned around": {"flip": True},
        "the oldest tap is lost": {"taps": 3},
        "the cache goes out as it came": {"old": True},
    },
)

# Sampling of images at points, bilinear, zeros outside; its gradient.


def sample(x, at):
    return F.grid_sample(x, at, mode="bilinear", padding_mode="zeros", align_corners=False)


def sample_kernel(x, at, corners=False, border=False, swap=False, near=False, kind=None, half=True):
    n, c, h, w = x.shape
    gx, gy = (at[..., 1], at[..., 0]) if swap else (at[..., 0], at[..., 1])
    to = lambda g, m: (g + 1) * (0.5 * (m - 1)) if corners else ((g + 1) * m - (1 if half else 0)) * 0.5
    px, py = hold(to(gx, w), kind), hold(to(gy, h), kind)
    x0, y0 = px.floor(), py.floor()
    out = torch.zeros(n, c, *at.shape[1:3])
    for dy in (0, 1):
        for dx in (0, 1):
            ix, iy = x0 + dx, y0 + dy
            weight = (1 - (px - ix).abs()) * (1 - (py - iy).abs())
            weight = (weight > 0.25).float() * weight if near else weight
            inside = (ix >= 0) & (ix < w) & (iy >= 0) & (iy < h) | border
            flat = (iy.clamp(0, h - 1) * w + ix.clamp(0, w - 1)).long().flatten(1)
            v = x.flatten(2).gather(2, flat[:, None].expand(-1, c, -1)).unflatten(-1, at.shape[1:3])
            out = out + v * (weight * inside)[:, None]
    return out


add(
    "grid_sample_points",
    sample,
    lambda d: (d(2, 6, 13, 17), d.rand(2, 12, 11, 2) * 2.3 - 1.15),
    sample_kernel,
    right={"corner by corner": {}, "in double": wide(sample)},
    wrong={
        "corners are aligned": {"corners": True},
        "the border is repeated": {"border": True},
        "x and y are swapped": {"swap": True},
        "positions are rounded to bfloat16": {"kind": bf},
        "positions lack the half pixel": {"half": False},
        "weights below a quarter are dropped": {"near": True},
    },
)

# Bicubic growth by two thirds more, and its coefficient.


def cubic(x):
    return F.interpolate(x, size=(20, 25), mode="bicubic", align_corners=False)


def cubic_kernel(x, a=-0.75, corners=False, clamp=True, shift=0.5, kind=None):
    def weights(n, m):
        t = torch.arange(m).double()
        p = t * (n - 1) / (m - 1) if corners else (t + shift) * n / m - shift
        base = p.floor()
        out = torch.zeros(m, n, dtype=torch.float64)
        for k in range(-1, 3):
            s = (p - (base + k)).abs()
            near = ((a + 2) * s - (a + 3)) * s * s + 1
            far = ((a * s - 5 * a) * s + 8 * a) * s - 4 * a
            at = (base + k).long()
            good = torch.ones(m, dtype=torch.bool) if clamp else (at >= 0) & (at < n)
            here = torch.where(s <= 1, near, far) * good
            out.index_put_((torch.arange(m), at.clamp(0, n - 1)), here, accumulate=True)
        return hold(out.float(), kind)

    return weights(x.shape[2], 20) @ x @ weights(x.shape[3], 25).T


add(
    "bicubic_growth",
    cubic,
    lambda d: (d(2, 5, 12, 15),),
    cubic_kernel,
    right={"two products with matrices of weights": {}, "in double": wide(cubic)},
    wrong={
        "the coefficient is a half": {"a": -0.5},
        "corners are aligned": {"corners": True},
        "pixels outside are zero": {"clamp": False},
        "there is no half pixel": {"shift": 0.0},
        "weights are in bfloat16": {"kind": bf},
    },
)
