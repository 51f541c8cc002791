# SPDX-License-Identifier: Apache-2.0
"""Set U, the fifteenth: norms and what stands in for them, forward and backward."""

import torch
import torch.nn.functional as F

from .blind import bf, hf
from .blind_fifteenth_base import add, hold
from .blind_fourteenth_base import gradients, halves, kahan, lanes, serial, up, wide

# Gradients of the root-mean-square norm.


def rms(x, w):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w


rms_backward = gradients(rms, 2)


def rms_grad(x, w, down, inner=True, weight=True, n=None, rows=None, power=3, kind=None, raw=False, total=lanes):
    width = x.shape[-1]
    r = torch.rsqrt(total(x * x)[..., None] / (n or width) + 1e-6)
    g = down * w if weight else down
    dot = total(g * x)[..., None] / width
    dx = r * g - (r**power * dot * x if inner else 0)
    h = hold(x if raw else x * r, kind)
    return dx, (h * down)[:rows].sum(0)


add(
    "rms_backward",
    rms_backward,
    lambda d: (d(36, 160, scale=1.7), d(160, scale=0.2, shift=1), d(36, 160, scale=0.01)),
    rms_grad,
    right={"by the formula, lanes": {}, "pairs of halves": {"total": halves}, "in double": wide(rms_backward)},
    wrong={
        "the part through the statistic is left out": {"inner": False},
        "the part through the statistic has the root squared, not cubed": {"power": 2},
        "the weight is left out of the inputs' gradient": {"weight": False},
        "the weight's gradient lacks the last four rows": {"rows": 32},
        "the weight's gradient takes inputs that are not normed": {"raw": True},
        "the normed inputs of the weight's gradient are in bfloat16": {"kind": bf},
    },
)

# Layer norm in fp16 of inputs far from zero.


def far(x, w, b):
    y = up(x)
    mean = y.mean(-1, keepdim=True)
    var = (y - mean).pow(2).mean(-1, keepdim=True)
    return ((y - mean) * torch.rsqrt(var + 1e-5) * up(w) + up(b)).to(x.dtype)


def far_kernel(x, w, b, less=0, eps=1e-5, once=False, kind=None, sd=False, swap=False, roll=0):
    n, mean, s = 0, torch.zeros_like(x[:, :1]), torch.zeros_like(x[:, :1])
    if once:
        mean = x.mean(-1, keepdim=True)
        s = hold((x * x).mean(-1, keepdim=True), kind) - hold(mean * mean, kind)
        var = s.clamp(min=0)
    else:
        for t in x.split(1, 1):  # one value after the other
            n += 1
            d = t - mean
            mean = mean + d * (1 / n)
            s = s + d * (t - mean)
        var = s / (n - less)
    r = 1 / (torch.sqrt(var) + eps) if sd else torch.rsqrt(var + eps)
    r = r.roll(roll, 0)
    return ((x - mean) * r + b) * w if swap else (x - hold(mean, kind)) * r * w + b


add(
    "layer_norm_far",
    far,
    lambda d: (d(24, 192, dtype=hf, shift=20.0), d(192, dtype=hf, scale=0.2, shift=1), d(192, dtype=hf)),
    far_kernel,
    dtype=hf,
    right={"by Welford, one value after the other": {}},
    wrong={
        "the mean is rounded to float16": {"kind": hf},
        "mean square less squared mean, both in float16": {"once": True, "kind": hf},
        "the bias is added before the weight": {"swap": True},
        "rows take the deviation of the row before": {"roll": 1},
        "the variance divides by n - 1": {"less": 1},
    },
)

# Group norm and silu, channels last.


def group(x, w, b):
    y = F.group_norm(up(x).movedim(-1, 1), 8, up(w), up(b), 1e-5)
    return F.silu(y).movedim(1, -1).to(x.dtype)


def group_kernel(x, w, b, groups=8, strided=False, pixel=False, act=True, eps=1e-5, order=False, tail=0):
    n, h, wd, c = x.shape
    y = x.reshape(n, h * wd, c // groups, groups).mT if strided else x.reshape(n, h * wd, groups, c // groups)
    over = (3,) if pixel else (1, 3)
    part = y[:, : h * wd - tail]
    mean = part.mean(over, keepdim=True)
    var = ((part - mean) ** 2).mean(over, keepdim=True)
    y = (y - mean) * torch.rsqrt(var + eps)
    y = (y.mT if strided else y).reshape(x.shape)
    y = y / (1 + torch.exp(-y)) if order else y
    y = y * w + b
    return y / (1 + torch.exp(-y)) if act and not order else y


add(
    "group_norm_silu",
    group,
    lambda d: (d(2, 7, 9, 32, dtype=bf, shift=0.7), d(32, dtype=bf, scale=0.3, shift=1), d(32, dtype=bf)),
    group_kernel,
    dtype=bf,
    right={"two passes, channels last": {}},
    wrong={
        "a group takes every eighth channel": {"strided": True},
        "each pixel is normed by itself": {"pixel": True},
        "silu comes before weight and bias": {"order": True},
        "silu is left out": {"act": False},
        "16 groups": {"groups": 16},
        "statistics are of the first image row alone": {"tail": 54},
    },
)

# Batch norm in training, with its running statistics.


def batch(x, w, b, mean, var):
    m = x.mean((0, 2))
    v = (x - m[:, None]).pow(2).mean((0, 2))
    n = x.shape[0] * x.shape[2]
    y = (x - m[:, None]) * torch.rsqrt(v[:, None] + 1e-5) * w[:, None] + b[:, None]
    return y, 0.9 * mean + 0.1 * m, 0.9 * var + 0.1 * v * n / (n - 1)


def batch_kernel(x, w, b, mean, var, less=1, swap=False, all_rows=True, used="new", rate=0.1, other=0):
    flat = x.transpose(0, 1).flatten(1)
    n = flat.shape[1]
    m = halves(flat) / n
    v = halves((flat - m[:, None]) ** 2) / (n - other)
    if not all_rows:
        m, v = x[0].mean(-1), x[0].var(-1, correction=0)
    a, c = (mean, var) if used == "old" else (m, v)
    scale = w / torch.sqrt(c + 1e-5)
    shift = b - a * scale
    keep = rate if swap else 1 - rate
    y = x * scale[:, None] + shift[:, None] if used == "folded" else (x - a[:, None]) * scale[:, None] + b[:, None]
    return y, keep * mean + (1 - keep) * m, keep * var + (1 - keep) * v * (n / (n - less))


add(
    "batch_norm_training",
    batch,
    lambda d: (d(6, 12, 40), d(12, scale=0.3, shift=1), d(12), d(12), d.rand(12) + 0.5),
    batch_kernel,
    right={"pairs of halves": {}, "in double": wide(batch), "weight and bias folded": {"used": "folded"}},
    wrong={
        "the running variance is not corrected": {"less": 0},
        "the momentum is taken from the other side": {"swap": True},
        "it norms by the running statistics": {"used": "old"},
        "statistics are of the first image alone": {"all_rows": False},
        "the variance that norms divides by n - 1": {"other": 1, "less": 0},
        "the rate is 0.01": {"rate": 0.01},
    },
)

# Dynamic tanh in place of a norm, and its gradients.


def dynamic(x, alpha, w, b):
    return torch.tanh(alpha * x) * w + b


def dynamic_kernel(x, alpha, w, b, early=False, clamp=None, soft=False, kind=None, scale=1.0):
    y = x * alpha * scale
    y = y.clamp(-clamp, clamp) if clamp else y
    if soft:
        t = y / (1 + y.abs())
    else:
        e = torch.expm1(-2 * y.abs())
        t = torch.copysign(-e / (2 + e), y)
    t = hold(t, kind)
    return (t + b) * w if early else t * w + b


add(
    "dynamic_tanh",
    dynamic,
    lambda d: (d(30, 100, scale=2.0), torch.tensor([0.5]), d(100, scale=0.3, shift=1), d(100, scale=0.5)),
    dynamic_kernel,
    right={"by expm1": {}, "in double": wide(dynamic)},
    wrong={
        "the bias is added before the weight": {"early": True},
        "inputs are clamped at 1.5": {"clamp": 1.5},
        "softsign in place of the tangent": {"soft": True},
        "the tangent is rounded to float16": {"kind": hf},
        "alpha is doubled, as in the logistic form": {"scale": 2.0},
    },
)
dynamic_backward = gradients(dynamic, 4)


def dynamic_grad(x, alpha, w, b, down, square=True, by_x=True, total=lanes, rows=None, out=False, missing=False):
    t = torch.tanh(x * alpha)
    slope = (1 - t) * (1 + t) if square else 1 - t
    g = down * slope if missing else down * w * slope
    da = total(total(g * (x if by_x else 1)))[None]
    return g * alpha, da, (down * t)[:rows].sum(0), down[:rows].sum(0) if not out else (down * w).sum(0)


add(
    "dynamic_tanh_backward",
    dynamic_backward,
    lambda d: (d(30, 100, scale=1.2), torch.tensor([0.5]), d(100, scale=0.3, shift=1), d(100), d(30, 100, scale=0.1)),
    dynamic_grad,
    right={"by the formula, lanes": {}, "compensated": {"total": kahan}, "in double": wide(dynamic_backward)},
    wrong={
        "the slope is one minus the tangent": {"square": False},
        "alpha's gradient lacks the input": {"by_x": False},
        "alpha's gradient is added up in bfloat16": {"total": lambda x: serial(x, bf)},
        "weight and bias lack the last six rows": {"rows": 24},
        "the bias' gradient is multiplied by the weight": {"out": True},
        "the weight is left out of the slope": {"missing": True},
    },
)

# Norms of queries' and keys' heads, unit keys.


def heads(q, k, w):
    def one(t):
        y = up(t).unflatten(-1, (-1, 32))
        return y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)

    return (one(q) * up(w)).flatten(-2).to(q.dtype), F.normalize(up(k), dim=-1).to(k.dtype)


def heads_kernel(q, k, w, whole=False, size=32, unit=True, square=False, tail=0):
    y = q.unflatten(-1, (-1, size))
    v = (y[..., : size - tail] ** 2).mean(-1, keepdim=True)
    v = (q * q).mean(-1, keepdim=True)[..., None] if whole else v
    y = y / torch.sqrt(v + 1e-6)
    ww = w if size == 32 else w.repeat(size // 32)
    norm = (k * k).sum(-1, keepdim=True)
    norm = norm if square else torch.sqrt(norm)
    norm = norm / k.shape[-1] ** 0.5 if not unit else norm
    return (y * ww).flatten(-2), k / norm.clamp(min=1e-12)


add(
    "head_norms",
    heads,
    lambda d: (d(24, 128, dtype=bf) * (1 + 3 * d.rand(128)).to(bf), d(24, 48, dtype=bf), d(32, dtype=bf, shift=1)),
    heads_kernel,
    dtype=bf,
    right={"a head at a time": {}},
    wrong={
        "the queries are normed over all heads together": {"whole": True},
        "keys are divided by their root mean square": {"unit": False},
        "keys are divided by their squared length": {"square": True},
        "the mean square lacks the last quarter of a head": {"tail": 8},
    },
)

# Modulation by a condition after a norm without weights, and a gated residual.


def modulate(x, shift, scale, gate):
    h = F.layer_norm(x, x.shape[-1:], None, None, 1e-6)
    return x + gate[:, None] * (h * (1 + scale[:, None]) + shift[:, None])


def modulate_kernel(x, shift, scale, gate, plus=1.0, swap=False, bare=False, roll=0, eps=1e-6, normed=False, kind=None):
    mean = halves(x)[..., None] / x.shape[-1]
    h = (x - mean) * torch.rsqrt(halves((x - mean) ** 2)[..., None] / x.shape[-1] + eps)
    h = hold(h, kind)
    shift, scale = (scale, shift) if swap else (shift, scale)
    y = h * (plus + scale.roll(roll, 0)[:, None]) + shift[:, None]
    return (h if normed else x) + (y if bare else gate[:, None] * y)


add(
    "adaptive_norm",
    modulate,
    lambda d: (d(4, 12, 64), d(4, 64, scale=0.5), d(4, 64, scale=0.5), d(4, 64, scale=0.7)),
    modulate_kernel,
    right={"pairs of halves": {}, "in double": wide(modulate)},
    wrong={
        "the scale has no offset of one": {"plus": 0.0},
        "shift and scale are swapped": {"swap": True},
        "the gate is left out": {"bare": True},
        "the residual is the normed input": {"normed": True},
        "the scale is that of the image before": {"roll": 1},
        "the normed input is rounded to bfloat16": {"kind": bf},
    },
)
