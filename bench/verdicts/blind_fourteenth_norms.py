# SPDX-License-Identifier: Apache-2.0
"""Set S, the fourteenth: norms, forward and backward."""

import torch
import torch.nn.functional as F

from .blind import bf, hf, narrow
from .blind_fourteenth_attention import heavy
from .blind_fourteenth_base import add, gradients, halves, kahan, lanes, serial, trimmed, up, wide


def gemma_norm(x, w):
    y = up(x)
    return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6) * (1 + up(w))).to(x.dtype)


def gemma_kernel(x, w, plus=1.0, kind=None, eps=1e-6, outside=False, n=None, total=lanes, first=False):
    n = n or x.shape[-1]
    v = total(x * x)[..., None] / n
    r = 1 / (torch.sqrt(v) + eps) if outside else torch.rsqrt(v + eps)
    y = x * r
    y = narrow(y, kind) if kind else y
    return y * narrow(plus + w, bf) if first else y * (plus + w)


add(
    "gemma_norm",
    gemma_norm,
    lambda d: (heavy(d, 24, 256, dtype=bf, scale=2.0), d(256, dtype=bf, scale=0.3)),
    gemma_kernel,
    dtype=bf,
    right={"32 lanes": {}, "pairs of halves": {"total": halves}, "compensated": {"total": kahan}},
    wrong={
        "the weight has no offset of one": {"plus": 0.0},
        "squares are summed in bf16": {"total": lambda x: serial(x, bf)},
        "the normed values are rounded to fp8 between": {"kind": torch.float8_e4m3fn},
        "the mean divides by 240, the width before it was padded": {"n": 240},
    },
)

add(
    "gemma_norm_small",
    gemma_norm,
    lambda d: (d(64, 96, scale=2e-3), d(96, scale=0.3)),
    gemma_kernel,
    right={"32 lanes": {}, "in double": wide(gemma_norm)},
    wrong={
        "epsilon is added to the root": {"outside": True},
        "epsilon is 1e-5": {"eps": 1e-5},
        "the offset of the weight is rounded to bf16": {"first": True},
        "the mean divides by n - 1": {"n": 95},
        "hides: the sum of squares keeps 19 bits": {"total": lambda x: trimmed(lanes(x), 19)},
    },
)


def layer(x, w, b):
    return F.layer_norm(x, x.shape[-1:], w, b, 1e-5)


def layer_kernel(x, w, b, way="two", n=None, m=None, kind=None, eps=1e-5, tail=0, shift=0.0):
    n = x.shape[-1]
    y = x[..., : n - tail] if tail else x
    mean = lanes(y)[..., None] / n
    mean = narrow(mean, kind) if kind else mean
    if way == "one":
        var = lanes(x * x)[..., None] / n - mean * mean
    elif way == "welford":
        k, s, count = torch.zeros_like(x[..., :1]), torch.zeros_like(x[..., :1]), 0
        for t in x.split(25, -1):
            here = t.mean(-1, keepdim=True)
            d, count = here - k, count + 25
            k = k + d * (25 / count)
            s = s + ((t - here) ** 2).sum(-1, keepdim=True) + d * d * (25 * (count - 25) / count)
        mean, var = k, s / n
    else:
        var = lanes((x - mean) ** 2)[..., None] / (m or n)
    return (x - mean) * torch.rsqrt(var.clamp(min=0) + eps) * w + b + shift


add(
    "layer_norm_shifted",
    layer,
    lambda d: (d(32, 200, shift=60.0), d(200, scale=0.1, shift=1), d(200)),
    layer_kernel,
    right={
        "two passes, lanes": {},
        "means and squares of parts of 25, merged": {"way": "welford"},
        "in double": wide(layer),
    },
    wrong={
        "the variance is the mean square less the squared mean": {"way": "one"},
        "the variance divides by n - 1": {"m": 199},
        "the mean is rounded to bf16": {"kind": bf},
        "the mean lacks the last eight": {"tail": 8},
        "epsilon is 1e-3": {"eps": 1e-3},
    },
)

layer_backward = gradients(layer, 3)


def layer_grad(x, w, b, dy, middle=True, slope=True, weights=True, sums=True, plain=False, rows=None):
    mean = x.mean(-1, keepdim=True)
    r = torch.rsqrt(((x - mean) ** 2).mean(-1, keepdim=True) + 1e-5)
    h = (x - mean) * r
    g = dy * w if weights else dy
    dx = r * (g - (g.mean(-1, keepdim=True) if middle else 0) - (h * (g * h).mean(-1, keepdim=True) if slope else 0))
    dw, db = (dy * (x if plain else h))[:rows].sum(0), dy[:rows].sum(0)
    return dx, dw, db


add(
    "layer_norm_backward",
    layer_backward,
    lambda d: (heavy(d, 40, 96), d(96, scale=0.2, shift=1), d(96), d(40, 96, scale=1e-3)),
    layer_grad,
    right={"by the formula": {}, "in double": wide(layer_backward)},
    wrong={
        "the mean of the gradient is left out": {"middle": False},
        "the slope along the normed is left out": {"slope": False},
        "the weight is left out of the inputs' gradient": {"weights": False},
        "the weight's gradient takes the input, not the normed": {"plain": True},
        "gradients of weight and bias lack the last tile of rows": {"rows": 32},
    },
)


def group(x, w, b):
    return F.group_norm(x, 4, w, b, 1e-5)


group_backward = gradients(group, 3)


def group_grad(x, w, b, dy, count=None, batch=True, first=False, groups=4, eps=1e-5):
    n, c = x.shape[:2]
    xs, gs = (t.reshape(n, groups, -1) for t in (x, dy * w[None, :, None, None]))
    mean = xs.mean(-1, keepdim=True)
    r = 1 / torch.sqrt(((xs - mean) ** 2).mean(-1, keepdim=True) + eps)
    h = (xs - mean) * r
    size = count or xs.shape[-1]
    dx = r * (gs - gs.sum(-1, keepdim=True) / size - h * ((gs * h).sum(-1, keepdim=True) / size))
    hx = h.reshape(x.shape) * dy
    per = [hx.sum((2, 3)), dy.sum((2, 3))]
    return (dx.reshape(x.shape), *((p.sum(0) if batch else p[0]) for p in per))


add(
    "group_norm_backward",
    group_backward,
    lambda d: (d(3, 16, 6, 7), d(16, scale=0.2, shift=1), d(16), d(3, 16, 6, 7, scale=0.05)),
    group_grad,
    right={"by groups": {}, "in double": wide(group_backward)},
    wrong={
        "means divide by the pixels, not by pixels times channels": {"count": 42},
        "eight groups": {"groups": 8},
        "the weight's gradient is that of the first image": {"batch": False},
        "epsilon is 1e-2": {"eps": 1e-2},
    },
)


def add_norm(x, res, w):
    h = (up(x) + up(res)).to(x.dtype)
    y = up(h)
    return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * w, h


def add_norm_kernel(x, res, w, which="sum", stale=False, twice=False, unrounded=True, kind=None):
    h = x + res
    if which == "x":
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w, h
    v = halves(h * h)[..., None] / h.shape[-1]
    if stale:  # the statistics of the row before
        v = v.roll(1, 0)
    y = h * torch.rsqrt(v + 1e-5) * w
    return y, (res if which == "res" else h + x if twice else h)


def add_norm_exact(x, res, w):
    h = narrow(x + res)
    return narrow(h * torch.rsqrt(lanes(h * h)[..., None] / h.shape[-1] + 1e-5)) * w, h


add(
    "add_norm",
    add_norm,
    lambda d: (d(20, 128, dtype=bf), heavy(d, 20, 128, dtype=bf, scale=3.0), d(128, dtype=bf, scale=0.1, shift=1)),
    add_norm_kernel,
    dtype=bf,
    right={"the sum stays in float32 for the norm": {}, "the sum in bf16 is normed, lanes": add_norm_exact},
    wrong={
        "the norm is of the input without the residual": {"which": "x"},
        "the residual goes out as it came": {"which": "res"},
        "the input is added to the residual twice": {"twice": True},
        "a row is normed by the statistics of the row before": {"stale": True},
    },
)


def gated_norm(x, z, w):
    g = x * F.silu(z)
    g = g.unflatten(-1, (4, -1))
    return (g * torch.rsqrt(g.pow(2).mean(-1, keepdim=True) + 1e-5)).flatten(-2) * w


def gated_kernel(x, z, w, after=False, parts=4, sigmoid=False, swap=False):
    gate = torch.sigmoid(z) if sigmoid else z / (1 + torch.exp(-z))
    g = x if after else z * x / (1 + torch.exp(-x)) if swap else x * gate
    g = g.unflatten(-1, (parts, -1))
    y = (g / torch.sqrt(lanes(g * g)[..., None] / g.shape[-1] + 1e-5)).flatten(-2) * w
    return y * gate if after else y


add(
    "gated_norm",
    gated_norm,
    lambda d: (heavy(d, 30, 128), d(30, 128, scale=2), d(128, scale=0.2, shift=1)),
    gated_kernel,
    right={"lanes": {}, "in double": wide(gated_norm)},
    wrong={
        "the gate comes after the norm": {"after": True},
        "the norm is over the whole row, not by groups": {"parts": 1},
        "the gate is a sigmoid": {"sigmoid": True},
        "input and gate are exchanged": {"swap": True},
    },
)


def batch_stats(x, w, b, mean, var):
    m, n = x.mean(0), x.shape[0]
    v = ((x - m) ** 2).mean(0)
    y = (x - m) / torch.sqrt(v + 1e-5) * w + b
    return y, 0.9 * mean + 0.1 * m, 0.9 * var + 0.1 * v * n / (n - 1)


def batch_kernel(x, w, b, mean, var, momentum=0.1, unbiased=True, inner=False, running=False):
    n = x.shape[0]
    m = lanes(x.T) / n
    s = lanes((x - m).T ** 2)
    v = s / (n - 1 if inner else n)
    use_m, use_v = (mean, var) if running else (m, v)
    y = (x - use_m) * (torch.rsqrt(use_v + 1e-5) * w) + b
    return y, mean + momentum * (m - mean), var + momentum * (s / (n - 1 if unbiased else n) - var)


add(
    "batch_statistics",
    batch_stats,
    lambda d: (d(48, 20, shift=2), d(20, shift=1, scale=0.2), d(20), d(20), d.rand(20) + 0.5),
    batch_kernel,
    right={"lanes, statistics by a step": {}},
    wrong={
        "the running variance is the biased one": {"unbiased": False},
        "the batch is normed by the unbiased variance": {"inner": True},
        "momentum is that of the old": {"momentum": 0.9},
        "the batch is normed by the running statistics": {"running": True},
    },
)


def unit_rows(x):
    return F.normalize(up(x), dim=-1, eps=1e-12).to(x.dtype)


def unit_kernel(x, square=False, add_eps=0.0, one=False, total=lanes, far=None):
    s = total(x.abs() if one else x * x)[..., None]
    s = s.clamp(max=far) if far else s
    return x / (s if square or one else torch.sqrt(s + add_eps)).clamp(min=1e-12)


add(
    "unit_rows",
    unit_rows,
    lambda d: (torch.cat([heavy(d, 12, 96, dtype=hf, scale=30.0), heavy(d, 12, 96, dtype=hf, scale=1e-2)]),),
    unit_kernel,
    dtype=hf,
    right={"lanes": {}, "serial": {"total": serial}},
    wrong={
        "divided by the square": {"square": True},
        "an epsilon of 1e-3 under the root": {"add_eps": 1e-3},
        "the sum of squares overflows fp16 and is cut there": {"far": 65504.0},
        "the norm is that of absolute values": {"one": True},
    },
)


def weight_norm(v, g):
    return v * (g / v.norm(dim=1, keepdim=True))


def weight_norm_kernel(v, g, dim=1, root=True, whole=False):
    s = (v * v).sum() if whole else lanes(v * v)[:, None]
    return g * v / (torch.sqrt(s) if root else s)


add(
    "weight_norm",
    weight_norm,
    lambda d: (d(32, 60, scale=0.1), d.rand(32, 1) + 0.5),
    weight_norm_kernel,
    right={"lanes": {}},
    wrong={"the norm is that of the whole matrix": {"whole": True}, "divided by the squared norm": {"root": False}},
)
