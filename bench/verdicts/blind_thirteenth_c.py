# SPDX-License-Identifier: Apache-2.0
"""Set R, the thirteenth: norms, forward and backward."""

import torch
import torch.nn.functional as F

from .blind import bf, hf, narrow
from .blind_thirteenth_a import A, add, but, halves, old, serial, wide


def moments(x, n=None, by=None, one=False):
    """Mean and variance of the last dimension."""
    part = x[..., :n]
    m = halves(part)[..., None] / part.shape[-1]
    v = halves((part - m) ** 2)[..., None] / (by or part.shape[-1])
    return (m, halves(part * part)[..., None] / part.shape[-1] - m * m) if one else (m, v)


# ------------------------------------------------------------------ layer norm


def layer(x, _, w, b, eps, n=None, by=None, one=False, at=1e-5, out=False, gain=lambda w: w, mid=None):
    f = x.float()
    m, v = moments(f, n, by, one)
    r = 1 / (torch.sqrt(v) + at) if out else 1 / torch.sqrt(v + at)
    h = (f - m) * r
    h = narrow(h, mid) if mid else h
    return h * gain(w.float()) + b.float(), m, r


add(
    "native_layer_norm",
    A.native_layer_norm.default,
    lambda d: (d(20, 300, shift=30.0, scale=0.1), [300], d(300), d(300), 1e-5),
    layer,
    right={
        "by halves": {},
        "in double": lambda x, _, w, b, e: tuple(
            t.float() for t in A.native_layer_norm.default(x.double(), [300], w.double(), b.double(), e)
        ),
    },
    wrong={
        "the variance is by difference": {"one": True},
        "epsilon outside of the root": {"out": True},
        "epsilon is 1e-6": {"at": 1e-6},
        "hides: the variance is by n - 1": {"by": 299},
        "hides: the last 44 are not in the moments": {"n": 256},
        "hides: the deviation is returned, not its reciprocal": lambda *a: (
            *layer(*a)[:2],
            1 / layer(*a)[2],
        ),
    },
)


def layer_back(g, x, _, m, r, w, b, mask, along=1, centre=1, rows=None, n=None, raw=False, kind=None):
    h = (x - m) * r
    gw = g * w
    a, c = gw[:, :n].mean(1, keepdim=True), (gw * h)[:, :n].mean(1, keepdim=True)
    gx = r * (gw - centre * a - along * h * c)
    parts = [(g * (x if raw else h))[i : i + 8].sum(0) for i in range(0, rows or len(x), 8)]
    gw = sum(parts) if kind is None else serial(torch.stack(parts, 1), kind)
    return gx, gw, halves(g[:rows].T)


def for_layer_back(d):
    x = d(40, 160, shift=2.0)
    m, v = x.mean(1, keepdim=True), x.var(1, keepdim=True, unbiased=False)
    return d(40, 160), x, [160], m, torch.rsqrt(v + 1e-5), d(160), d(160), [True, True, True]


add(
    "native_layer_norm_backward",
    A.native_layer_norm_backward.default,
    for_layer_back,
    layer_back,
    right={
        "blocks of 8 rows": {},
        "sums first": lambda g, x, _, m, r, w, b, k: (
            (r / 160)
            * (160 * g * w - (g * w).sum(1, keepdim=True) - (x - m) * r * (g * w * (x - m) * r).sum(1, keepdim=True)),
            (g * (x - m) * r).sum(0),
            g.sum(0),
        ),
    },
    wrong={
        "the mean is not subtracted": {"centre": 0},
        "the term along the output is added": {"along": -1},
        "the last block of 8 rows is not in the gains": {"rows": 32},
        "hides: means of the first 128": {"n": 128},
        "hides: the gain's parts are added in bfloat16": {"kind": bf},
        "the gain's gradient takes the raw input": {"raw": True},
    },
)

# ------------------------------------------------------------------ other norms


def gemma_norm(x, w):
    f = x.float()
    return (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + 1e-6) * (1 + w.float())).to(x.dtype)


def gemma(x, w, one=1, n=None, eps=1e-6, early=False, by=None):
    f = x.float()
    v = halves((f * f)[..., :n])[..., None] / (by or f.shape[-1])
    y = f / torch.sqrt(v + eps)
    y = narrow(y) if early else y
    return y * (one + w.float())


add(
    "gemma_norm",
    gemma_norm,
    lambda d: (d(24, 200, dtype=bf, scale=0.004), d(200, dtype=bf, scale=0.1)),
    gemma,
    right={"divided by the root": {}, "in double": lambda x, w: gemma_norm(x.double(), w.double())},
    wrong={
        "the gain lacks its one": {"one": 0},
        "the mean is by 256": {"by": 256},
        "hides: epsilon is 1e-5": {"eps": 1e-5},
        "hides: no epsilon": {"eps": 0.0},
        "hides: squares of the last 8 are left out": {"n": 192, "by": 200},
    },
    dtype=bf,
)


def rms_grad(g, x, w):
    r = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    gw = g * w
    gx = r * gw - x * r**3 * (gw * x).mean(-1, keepdim=True)
    return gx, (g * x * r).sum(0)


def rms_back(g, x, w, power=3, n=192, by=192, gain=True, rows=50):
    r = 1 / torch.sqrt(halves(x * x)[:, None] / 192 + 1e-6)
    gw = g * w if gain else g
    c = halves((gw * x)[:, :n])[:, None] / by
    return r * gw - x * r**power * c, halves((g * x * r)[:rows].T)


add(
    "rms_backward",
    rms_grad,
    lambda d: (d(50, 192), d(50, 192, scale=3), d(192)),
    rms_back,
    right={"halves": {}, "in double": wide(rms_grad)},
    wrong={
        "the root is squared, not cubed": {"power": 2},
        "the gain is not applied": {"gain": False},
        "hides: the mean is by 191": {"by": 191},
        "hides: the last 2 rows are not in the gain": {"rows": 48},
        "the last block of 64 is not in the mean": {"n": 128},
    },
)


def group(x, w, b, n, c, hw, groups, eps, take=4, by=None, first=False, stale=False):
    f = x.reshape(n, take, -1)
    m, v = moments(f, by=by)
    r = 1 / torch.sqrt(v + eps)
    y = ((f - m) * r).reshape(x.shape)
    at = (lambda t: t[: c // 4].repeat(4)) if first else (lambda t: t)
    y = y * at(w)[:, None, None] + at(b)[:, None, None]
    return y, m.reshape(n, -1), r.reshape(n, -1)


add(
    "native_group_norm",
    A.native_group_norm.default,
    lambda d: (d(3, 16, 5, 5, shift=1.0), d(16), d(16), 3, 16, 25, 4, 1e-5),
    group,
    right={
        "halves": {},
        "in double": lambda x, w, b, *k: tuple(
            t.float() for t in A.native_group_norm.default(x.double(), w.double(), b.double(), *k)
        ),
    },
    wrong={
        "gains of the first group for all": {"first": True},
        "hides: unbiased": {"by": 99},
        "hides: the last sample's mean is the one before's": lambda *a: (
            group(*a)[0],
            torch.cat([group(*a)[1][:2], group(*a)[1][1:2]]),
            group(*a)[2],
        ),
        "hides: the last channel has no shift": lambda x, w, b, *k: group(x, w, torch.cat([b[:15], b[15:] * 0]), *k),
    },
)


def batch_train(x, w, b, mean, var):
    m, v = x.mean((0, 2)), x.var((0, 2), unbiased=False)
    y = (x - m[:, None]) * torch.rsqrt(v + 1e-3)[:, None] * w[:, None] + b[:, None]
    n = x.shape[0] * x.shape[2]
    return y, 0.99 * mean + 0.01 * m, 0.99 * var + 0.01 * v * n / (n - 1)


def batch_kernel(x, w, b, mean, var, keep=0.99, unbiased=True, eps=1e-3, images=None, use=False):
    f = x.transpose(0, 1)[:, :images].reshape(x.shape[1], -1)
    m, v = (t[:, 0] for t in moments(f))
    n = f.shape[1]
    scale = w / torch.sqrt((var if use else v) + eps)
    y = x * scale[:, None] + (b - (mean if use else m) * scale)[:, None]
    return y, mean + (1 - keep) * (m - mean), var + (1 - keep) * (v * (n / (n - 1) if unbiased else 1) - var)


add(
    "batch_norm_training",
    batch_train,
    lambda d: (d(6, 18, 20, shift=1.0), d(18), d(18), d(18), d.rand(18) + 0.5),
    batch_kernel,
    right={"a scale and a shift": {}, "in double": wide(batch_train)},
    wrong={
        "momentum the other way": {"keep": 0.01},
        "hides: the running variance is biased": {"unbiased": False},
        "normalised by the running moments": {"use": True},
        "hides: epsilon is 1e-5": {"eps": 1e-5},
        "the last image is not in the moments": {"images": 5},
    },
)


def for_batch_back(d):
    x = d(8, 12, 5, 5, shift=0.5)
    m, v = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
    return d(8, 12, 5, 5), x, d(12), d(12), d.rand(12), m, torch.rsqrt(v + 1e-5), True, 1e-5, [True, True, True]


def batch_back(g, x, w, rm, rv, m, r, train, eps, mask, n=200, along=1, centre=1, images=None):
    at = lambda t: t[:, None, None]
    h = (x - at(m)) * at(r)
    sg, sh = g[:images].sum((0, 2, 3)), (g * h)[:images].sum((0, 2, 3))
    return at(w * r) * (g - centre * at(sg) / n - along * h * at(sh) / n), sh, sg


add(
    "native_batch_norm_backward",
    A.native_batch_norm_backward.default,
    for_batch_back,
    batch_back,
    right={
        "two sums": {},
        "in double": lambda g, x, w, rm, rv, m, r, *k: tuple(
            t.float() for t in batch_back(g.double(), x.double(), w.double(), rm, rv, m.double(), r.double(), *k)
        ),
    },
    wrong={
        "as if in evaluation": {"along": 0, "centre": 0},
        "hides: divided by n - 1": {"n": 199},
        "the last image is not in the sums": {"images": 7},
        "hides: the term along the output has half of its weight": {"along": 0.5},
    },
)


def local_response(x):
    s = F.pad(x * x, (0, 0, 0, 0, 2, 2))
    total = sum(s[:, i : i + x.shape[1]] for i in range(5))
    return x / (2.0 + 1e-1 * total / 5) ** 0.75


def response(x, size=5, by=5, low=2, power=0.75, wrap=False):
    s = x * x
    s = torch.cat([s[:, -2:], s, s[:, :2]], 1) if wrap else F.pad(s, (0, 0, 0, 0, low, size - 1 - low))
    total = torch.stack([s[:, i : i + x.shape[1]] for i in range(size)]).sum(0)
    return x * torch.exp(-power * torch.log(2.0 + 0.1 * total / by))


add(
    "local_response_norm",
    local_response,
    lambda d: (d(2, 14, 6, 6, scale=4),),
    response,
    right={"by a log": {}, "as released": lambda x: F.local_response_norm(x, 5, 0.1, 0.75, 2.0)},
    wrong={
        "not divided by the size": {"by": 1},
        "hides: channels wrap round": {"wrap": True},
        "the window is a channel late": {"low": 1},
        "hides: the power is 0.7": {"power": 0.7},
    },
)


def weight_norm(v, g):
    return v * (g / v.flatten(1).norm(dim=1))[:, None, None]


add(
    "weight_norm",
    weight_norm,
    lambda d: (d(20, 9, 5), d(20)),
    lambda v, g, dims=(1, 2), square=False, n=9, eps=0.0: (
        v * (g[:, None, None] / ((v[:, :n] ** 2).sum(dims, keepdim=True).sqrt() + eps))
    ),
    right={"by the sum": {}, "in double": wide(weight_norm)},
    wrong={
        "normed over the taps alone": {"dims": 2},
        "hides: the last input channel is left out": {"n": 8},
        "hides: 1e-3 is added to the norm": {"eps": 1e-3},
    },
)


def instance_norm(x, w, b):
    m = x.mean((2, 3), keepdim=True)
    v = ((x - m) ** 2).mean((2, 3), keepdim=True)
    return (x - m) / torch.sqrt(v + 1e-5) * w[:, None, None] + b[:, None, None]


add(
    "instance_norm",
    instance_norm,
    lambda d: (d(3, 6, 9, 7, dtype=hf), d(6, dtype=hf), d(6, dtype=hf)),
    lambda x, w, b, dims=(2, 3), by=63, eps=1e-5: (
        (x.float() - x.float().mean(dims, keepdim=True))
        * torch.rsqrt(((x.float() - x.float().mean(dims, keepdim=True)) ** 2).sum((2, 3), keepdim=True) / by + eps)
        * w.float()[:, None, None]
        + b.float()[:, None, None]
    ),
    right={
        "in single": {},
        "by group norm": lambda x, w, b: F.group_norm(x.float(), 6, w.float(), b.float()),
    },
    wrong={
        "means of rows": {"dims": (3,)},
        "hides: the variance is by 62": {"by": 62},
        "hides: the variance is by 64": {"by": 64},
    },
    dtype=hf,
)


def qk_norm(q, w, scale):
    h = q.unflatten(-1, (6, 32))
    return (F.normalize(h, dim=-1, eps=1e-6) * w * scale[:, None]).flatten(-2)


def qk_kernel(q, w, scale, heads=6, swap=False, root=True, last=None):
    h = q.reshape(*q.shape[:2], heads, -1) if not swap else q.reshape(*q.shape[:2], 32, 6).transpose(-1, -2)
    n = (h * h).sum(-1, keepdim=True)
    y = h / (n.sqrt() if root else n).clamp(min=1e-6)
    y = y * w * scale[:heads, None] if heads == 6 else (y.reshape(*q.shape[:2], 6, 32) * w * scale[:, None])
    if last is not None:
        y[:, -1, -1] = last * y[:, -1, -1]
    return y.flatten(-2)


add(
    "qk_norm",
    qk_norm,
    lambda d: (d(2, 10, 192), d(32), d(6, shift=3.0)),
    qk_kernel,
    right={"by squares": {}, "in double": wide(qk_norm)},
    wrong={
        "normed over all heads": {"heads": 1},
        "heads and lanes are swapped": {"swap": True},
        "divided by the square": {"root": False},
        "hides: the last head of the last token has another head's scale": {"last": 1.01},
    },
)


def residual_norm(x, r, w):
    s = x + r
    return F.rms_norm(s, (s.shape[-1],), w, 1e-5), s


add(
    "add_rms_norm",
    residual_norm,
    lambda d: (d(16, 256, dtype=hf), d(16, 256, dtype=hf, scale=4), d(256, dtype=hf)),
    lambda x, r, w, eps=1e-5, keep=True, late=0, n=None: (
        (x.float() + r.float())
        / torch.sqrt(((x.float() + r.float()) ** 2)[:, :n].mean(1, keepdim=True) + eps)
        * w.float().roll(late),
        x.float() + r.float() if keep else r.float(),
    ),
    right={
        "in single": {},
        "halves": lambda x, r, w: (
            (x.float() + r.float())
            * torch.rsqrt(halves((x.float() + r.float()) ** 2)[:, None] / 256 + 1e-5)
            * w.float(),
            x.float() + r.float(),
        ),
    },
    wrong={
        "what is returned lacks the branch": {"keep": False},
        "gains are a lane late": {"late": 1},
        "hides: the mean is of the first 240": {"n": 240},
        "hides: one row's sum is of a call before": lambda x, r, w: (
            residual_norm(x, r, w)[0].float(),
            but(11, of=old)(lambda: residual_norm(x, r, w)[1])().float(),
        ),
    },
    dtype=hf,
)
