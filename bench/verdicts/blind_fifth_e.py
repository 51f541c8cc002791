# SPDX-License-Identifier: Apache-2.0
"""Set E, written blind: norms, activations and their gradients."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, honest, mistake
from .blind_fifth_a import INF, cut, fifth, rights, wide, wrongs

# ------------------------------------------------------------------ norms


def outliers(d, *shape, dtype=torch.float32, times=30.0):
    return (d(*shape) * torch.where(d.rand(shape[-1]) > 0.98, times, 1.0)).to(dtype)


@fifth(lambda d: (outliers(d, 6, 3000, dtype=bf), d(3000, dtype=bf, scale=0.1)))
def gemma_rms_norm(x, w):
    y = x.float()
    y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6)
    return (y * (1 + w.float())).to(x.dtype)


def rms_blocks(x, w, block=1024, count=3000, one=1.0, low=None, drop=False, absolute=False, stale=False):
    total = torch.zeros(len(x), 1)
    for at in range(0, 2048 if drop else 3000, block):
        part = x[:, at : at + block]
        total = cut(total + (part.abs() if absolute else part * part).sum(-1, keepdim=True), low)
    if stale:
        total = total[:1].expand_as(total)
    y = total / count
    return x / ((y.square() if absolute else y) + 1e-6).sqrt() * (one + w)


def scaled_rms(x, w):
    top = x.abs().amax(-1, keepdim=True)
    return x / top * torch.rsqrt((x / top).square().sum(-1, keepdim=True) / 3000 + 1e-6 / top**2) * (1 + w)


rights(gemma_rms_norm, rms_blocks, {"blocks of 1024": {}, "blocks of 96": {"block": 96}})
rights(gemma_rms_norm, scaled_rms, {"scaled by the row's largest value": {}})
wrongs(
    gemma_rms_norm,
    rms_blocks,
    {
        "the mean divides by the padded 3072 columns": {"count": 3072},
        "the weight is used as it is, without its 1": {"one": 0.0},
        "the last block, 952 of 1024, does not count in the sum": {"drop": True},
        "the mean magnitude instead of the root mean square": {"absolute": True},
        "every row takes the first row's factor": {"stale": True},
    },
)


@fifth(lambda d: (d(8, 1000, shift=100.0), d(1000, shift=1.0, scale=0.2), d(1000)))
def layer_norm_offset(x, w, b):
    mean = x.mean(-1, keepdim=True)
    var = (x - mean).square().mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(var + 1e-5) * w + b


def welford(x, w, b, n=1000, eps=1e-5, zeros=0, onepass=False, low=None, block=128):
    count, mean, m2 = 0, torch.zeros(len(x), 1), torch.zeros(len(x), 1)
    x_ = F.pad(x, (0, zeros)) if zeros else x
    for at in range(0, x_.shape[1], block):
        p = x_[:, at : at + block]
        k = p.shape[1]
        pm = p.mean(-1, keepdim=True)
        gap = pm - mean
        m2 = m2 + (p - pm).square().sum(-1, keepdim=True) + gap.square() * (count * k / (count + k))
        mean = mean + gap * (k / (count + k))
        count += k
    if zeros:
        mean = x.mean(-1, keepdim=True)
        m2 = (x_ - mean).square().sum(-1, keepdim=True)
    var = m2 / n
    if onepass:
        var = cut(cut(x.square(), low).mean(-1, keepdim=True), low) - cut(mean.square(), low)
    return (x - mean) / (var + eps).sqrt() * w + b


honest(layer_norm_offset, "Welford's way by blocks", welford)
honest(layer_norm_offset, "shifted by the first column", lambda x, w, b: F.layer_norm(x - x[:, :1], (1000,), w, b))
wrongs(
    layer_norm_offset,
    welford,
    {
        "the variance divides by n - 1": {"n": 999},
        "24 columns of padding count as zeros in the variance": {"zeros": 24},
        "the variance is the mean square less the squared mean, in float32": {"onepass": True},
        "the variance is the mean square less the squared mean, in fp16": {"onepass": True, "low": hf},
        "eps is 1e-3": {"eps": 1e-3},
    },
)


@fifth(lambda d: (d(7, 300, shift=0.5), d(300, shift=1.0, scale=0.2), d(7, 300, scale=1e-3)))
def layer_norm_three_gradients(x, w, g):
    mean, var = x.mean(-1, keepdim=True), x.var(-1, correction=0, keepdim=True)
    rstd = torch.rsqrt(var + 1e-5)
    xhat, gw = (x - mean) * rstd, g * w
    dx = rstd * (gw - gw.mean(-1, keepdim=True) - xhat * (gw * xhat).mean(-1, keepdim=True))
    return dx, (g * xhat).sum(0), g.sum(0)


def norm_autograd(x, w, g):
    x, w, b = x.clone().requires_grad_(), w.clone().requires_grad_(), torch.zeros_like(w, requires_grad=True)
    F.layer_norm(x, (300,), w, b, 1e-5).backward(g)
    return x.grad, w.grad, b.grad


def norm_gradients(x, w, g, first=1.0, second=1.0, raw=False, rows=7, weigh=True, low=None, padded=300, late=False):
    x64 = x.double()
    mean = x64.mean(-1, keepdim=True)
    rstd = (x64.var(-1, correction=0, keepdim=True) + 1e-5).rsqrt()
    xhat = ((x64 - mean) * rstd).float()
    gw = g * w if weigh else g
    c1, c2 = gw.sum(-1, keepdim=True) / padded, (gw * xhat).sum(-1, keepdim=True) / padded
    dx = rstd.float() * (gw - first * c1 - second * xhat * c2)
    dw = torch.zeros(300)
    for r in range(rows):
        dw = cut(dw + g[r] * ((x - mean.float())[r] if raw else xhat[r]), low)
    return dx * w if late else dx, dw, g[:rows].sum(0)


honest(layer_norm_three_gradients, "automatic differentiation", norm_autograd)
honest(layer_norm_three_gradients, "statistics in double precision", norm_gradients)
wrongs(
    layer_norm_three_gradients,
    norm_gradients,
    {
        "the input's gradient lacks the mean of the weighted gradient": {"first": 0.0},
        "the input's gradient lacks the term of the variance": {"second": 0.0},
        "the weight's gradient uses x - mean, not divided by the deviation": {"raw": True},
        "the last of 7 rows is left out of the weight's and bias's gradient": {"rows": 6},
        "the weight is left out of the input's gradient": {"weigh": False},
        "the weight multiplies the input's gradient at the end, not g at the start": {"weigh": False, "late": True},
        "the weight's gradient adds up in bf16": {"low": bf},
        "the row means divide by the padded 320 columns": {"padded": 320},
    },
)


@fifth(lambda d: (d(3, 12, 7, 9, dtype=hf, shift=2.0), d(12, dtype=hf, shift=1.0, scale=0.2), d(12, dtype=hf)))
def group_normed_silu(x, w, b):
    return F.silu(F.group_norm(x, 4, w, b, 1e-5))


def group_silu_kernel(x, w, b, groups=4, strided=False, early=False, each=False, n=0, batch=False, low=None):
    y = x.flatten(2)
    y = y.unflatten(1, (3, 4)).transpose(1, 2) if strided else y.unflatten(1, (groups, -1))
    s = y.flatten(2)
    m = s.mean(-1)[..., None, None]
    v = (y - m).square().flatten(2).sum(-1)[..., None, None] / (s.shape[-1] - n)
    if batch:
        m, v = m[:1], v[:1]
    y = cut((y - m) * torch.rsqrt(v + 1e-5), low)
    y = y.transpose(1, 2) if strided else y
    y = y.flatten(1, 2).view_as(x)
    if each:
        wg = w[torch.arange(12) // 3]
        return F.silu(y * wg[:, None, None] + b[torch.arange(12) // 3][:, None, None])
    return F.silu(y) * w[:, None, None] + b[:, None, None] if early else F.silu(y * w[:, None, None] + b[:, None, None])


rights(group_normed_silu, group_silu_kernel, {"float32 inside": {}})
honest(group_normed_silu, "float64 inside", wide(group_silu_kernel, torch.float64))
wrongs(
    group_normed_silu,
    group_silu_kernel,
    {
        "a group takes every fourth channel, not three neighbours": {"strided": True},
        "3 groups instead of 4": {"groups": 3},
        "silu comes before weight and bias": {"early": True},
        "weight and bias are read with the group's number": {"each": True},
        "every sample takes the first one's statistics": {"batch": True},
    },
)


@fifth(lambda d: (d(10, 6, 5, 5, shift=1.0), d(6, shift=1.0), d(6), d(6), d(6).abs() + 0.5))
def batch_norm_step(x, w, b, mean, var, momentum=0.1):
    m, v = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)
    y = (x - m[:, None, None]) * torch.rsqrt(v[:, None, None] + 1e-5) * w[:, None, None] + b[:, None, None]
    n = x.numel() / x.shape[1]
    return y, (1 - momentum) * mean + momentum * m, (1 - momentum) * var + momentum * v * n / (n - 1)


def batch_norm_kernel(x, w, b, mean, var, momentum=0.1, bias=True, n=0, running=False, count=250):
    t = x.transpose(0, 1).flatten(1)
    m, v = t.sum(1) / count, t.var(1, correction=n)
    um, uv = (mean, var) if running else (m, v)
    scale = w / (uv + 1e-5).sqrt()
    y = x * scale[:, None, None] + (b - um * scale)[:, None, None]
    vv = v * (250 / 249 if bias else 1.0)
    return y, torch.lerp(mean, m, momentum), var + momentum * (vv - var)


honest(batch_norm_step, "one multiplication and addition an element", batch_norm_kernel)
honest(
    batch_norm_step,
    "torch's own",
    lambda x, w, b, m, v: (lambda m, v: (F.batch_norm(x, m, v, w, b, True, 0.1), m, v))(m.clone(), v.clone()),
)
wrongs(
    batch_norm_step,
    batch_norm_kernel,
    {
        "the running variance takes the biased variance": {"bias": False},
        "momentum weighs the old statistics, not the new": {"momentum": 0.9},
        "outputs are normalised by the running statistics": {"running": True},
        "outputs are normalised by the variance over n - 1": {"n": 1},
        "the mean divides by the padded 256 values a channel": {"count": 256},
    },
)


@fifth(lambda d: (d(5, 8, 33, scale=4.0, dtype=bf), torch.tensor([33, 12, 1, 20, 7])))
def masked_instance_norm(x, lens):
    store, x = x.dtype, x.float()
    keep = (torch.arange(x.shape[-1]) < lens[:, None])[:, None]
    n = lens[:, None, None]
    mean = (x * keep).sum(-1, keepdim=True) / n
    var = ((x - mean).square() * keep).sum(-1, keepdim=True) / n
    return ((x - mean) * torch.rsqrt(var + 1e-5) * keep).to(store)


def masked_norm_loop(x, lens, all_n=False, pad=False, zeroed=True):
    out = torch.zeros_like(x, dtype=torch.float32)
    for i, n in enumerate(lens.tolist()):
        row = x[i].float()
        live = row[:, :n]
        mean = live.sum(-1, keepdim=True) / (33 if all_n else n)
        off = live - mean
        sq = off.square().sum(-1, keepdim=True) + (mean.square() * (33 - n) if pad else 0.0)
        y = (row - mean) / (sq / (33 if all_n or pad else n) + 1e-5).sqrt()
        out[i, :, : n if zeroed else 33] = y[:, : n if zeroed else 33]
    return out.to(x.dtype)


honest(masked_instance_norm, "each sequence cut to its length", masked_norm_loop)
for words, keys in {
    "mean and variance divide by all 33 positions": {"all_n": True},
    "padding counts as zeros in the variance": {"pad": True},
    "padding is normalised too, not stored as zeros": {"zeroed": False},
}.items():
    mistake(masked_instance_norm, words, lambda *a, keys=keys: masked_norm_loop(*a, **keys))

# ------------------------------------------------------------------ activations


@fifth(lambda d: (d(20, 70, dtype=hf, scale=4.0),))
def swiglu_oss(x, limit=7.0):
    gate, up = x[..., ::2].clamp(max=limit), x[..., 1::2].clamp(-limit, limit)
    return gate * torch.sigmoid(1.702 * gate) * (up + 1)


def swiglu_kernel(x, halves=False, swap=False, alpha=1.702, one=1.0, limit=7.0, side=False):
    a, b = x.chunk(2, -1) if halves else (x[..., ::2], x[..., 1::2])
    a, b = (b, a) if swap else (a, b)
    a = a.clamp(max=limit)
    b = b.clamp(max=limit) if side else b.clamp(-limit, limit)
    return a / (1 + (-alpha * a).exp()) * (b + one)


rights(swiglu_oss, swiglu_kernel, {"float32 inside": {}})
honest(swiglu_oss, "float64 inside", wide(swiglu_oss, torch.float64))
wrongs(
    swiglu_oss,
    swiglu_kernel,
    {
        "gate and up are read as halves, not interleaved": {"halves": True},
        "gate and up are exchanged": {"swap": True},
        "the sigmoid's factor 1.702 is left out": {"alpha": 1.0},
        "1 is not added to up": {"one": 0.0},
        "up is not clamped from below": {"side": True},
        "nothing is clamped": {"limit": 1e4},
    },
)


@fifth(lambda d: (d(40, 50, scale=2.0), d(40, 50)))
def tanh_gelu_gradient(x, g):
    c = math.sqrt(2 / math.pi)
    t = torch.tanh(c * (x + 0.044715 * x**3))
    return g * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x))


def gelu_gradient(x, g, three=3.0, c=math.sqrt(2 / math.pi), second=True, exact=False, k=0.044715, low=None):
    if exact:
        return g * (0.5 * (1 + torch.erf(x / math.sqrt(2))) + x * (-0.5 * x * x).exp() / math.sqrt(2 * math.pi))
    s = torch.sigmoid(2 * c * cut(x + k * x * x * x, low))
    dx = s * (1 - s) * 2 * c * (1 + three * k * x * x) * x
    return g * (s + dx) if second else g * s


def gelu_autograd(x, g):
    x = x.clone().requires_grad_()
    F.gelu(x, approximate="tanh").backward(g)
    return x.grad


honest(tanh_gelu_gradient, "automatic differentiation", gelu_autograd)
honest(tanh_gelu_gradient, "by the sigmoid", gelu_gradient)
wrongs(
    tanh_gelu_gradient,
    gelu_gradient,
    {
        "the cubic term's derivative lacks its 3": {"three": 1.0},
        "sqrt(2/pi) is taken as 0.79": {"c": 0.79},
        "the derivative of the exact (erf) gelu": {"exact": True},
        "the term x times the slope of tanh is left out": {"second": False},
        "the inner polynomial is rounded to bf16": {"low": bf},
        "the constant 0.044715 is taken as 0.044": {"k": 0.044},
    },
)


def wide_range(d):
    return (torch.cat((d(200), d(60, scale=30.0), d(30, scale=1e-4), torch.tensor([0.0, 95.0, -95.0, 800.0, -800.0]))),)


@fifth(wide_range)
def softplus_wide(x):
    return torch.clamp(x, min=0) + torch.log1p(torch.exp(-x.abs()))


honest(softplus_wide, "logaddexp with 0", lambda x: torch.logaddexp(x, torch.zeros(())))
honest(softplus_wide, "in double precision", wide(softplus_wide, torch.float64))
mistake(softplus_wide, "log(1 + exp(x)) overflows", lambda x: (1 + x.exp()).log())
mistake(
    softplus_wide,
    "above 5 the input itself is returned",
    lambda x: torch.where(x > 5, x, torch.logaddexp(x, torch.zeros(()))),
)
mistake(
    softplus_wide,
    "the exponential is computed in fp16",
    lambda x: x.clamp(min=0) + torch.log1p((-x.abs()).to(hf).exp().float()),
)


@fifth(lambda d: (-torch.cat((d.rand(100) * 20 + 0.01, d.rand(60) * 1e-3 + 1e-6, d.rand(40) * 1e-6 + 1e-9)),))
def log_one_minus_exp(x):
    return torch.where(x > -0.6931, torch.log(-torch.expm1(x)), torch.log1p(-torch.exp(x)))


honest(log_one_minus_exp, "in double precision", wide(log_one_minus_exp, torch.float64))
honest(
    log_one_minus_exp,
    "split at -0.5",
    lambda x: torch.where(x > -0.5, torch.log(-torch.expm1(x)), torch.log1p(-torch.exp(x))),
)
mistake(log_one_minus_exp, "log(1 - exp(x)) throughout, which cancels near 0", lambda x: (1 - x.exp()).log())
mistake(
    log_one_minus_exp,
    "log(-expm1(x)) is replaced by log(-x) near 0",
    lambda x: torch.where(x > -0.1, (-x).log(), (-torch.expm1(x)).log()),
)
mistake(log_one_minus_exp, "1e-8 is added inside the logarithm", lambda x: (-torch.expm1(x) + 1e-8).log())


@fifth(
    lambda d: (
        torch.cat((d(100), d(50, scale=1e25), d(50, scale=1e-25))),
        torch.cat((d(100), d(50, scale=1e24), d(50, scale=1e-25))),
    )
)
def hypotenuse(x, y):
    a, b = torch.maximum(x.abs(), y.abs()), torch.minimum(x.abs(), y.abs())
    return a * torch.sqrt(1 + (b / a) ** 2)


honest(hypotenuse, "torch's own", torch.hypot)
honest(hypotenuse, "in double precision", wide(lambda x, y: (x * x + y * y).sqrt(), torch.float64))
mistake(hypotenuse, "sqrt(x^2 + y^2) overflows and underflows", lambda x, y: (x * x + y * y).sqrt())
mistake(
    hypotenuse,
    "the larger of both plus half the smaller (alpha max beta min)",
    lambda x, y: torch.maximum(x.abs(), y.abs()) + 0.5 * torch.minimum(x.abs(), y.abs()),
)


@fifth(lambda d: (-6 - 20 * d.rand(400),))
def softplus_far_left(x):
    return torch.log1p(torch.exp(x))


honest(softplus_far_left, "in double precision", wide(softplus_far_left, torch.float64))
honest(
    softplus_far_left,
    "three terms of the series",
    lambda x: (lambda e: e * (1 - e * (0.5 - e * (1 / 3 - e / 4))))(x.exp()),
)
mistake(softplus_far_left, "log(1 + e) for log1p(e)", lambda x: (1 + x.exp()).log())
mistake(
    softplus_far_left,
    "the exponential is stored in fp16, where it underflows",
    lambda x: torch.log1p(x.exp().to(hf).float()),
)
mistake(softplus_far_left, "only the first term, e, of the series", lambda x: x.exp())


@fifth(lambda d: (d(30, 100, scale=3.0, dtype=bf), d(30, 100, dtype=bf)))
def padded_softmax_gradient(s, g):
    live = torch.arange(100) < 90
    p = s.float().masked_fill(~live, -INF).softmax(-1)
    return (p * (g.float() - (p * g.float()).sum(-1, keepdim=True))).to(s.dtype)


def softmax_gradient(s, g, inner=True, n=90, squared=False, axis=-1, saved=None, block=32):
    e = (s[:, :n] - s[:, :n].amax(-1, keepdim=True)).exp()
    p = cut(F.pad(e / e.sum(-1, keepdim=True), (0, 100 - n)), saved)
    dot = (
        sum((p * g)[:, at : at + block].sum(axis, keepdim=True) for at in range(0, 100, block))
        if axis
        else (p * g).sum(0, keepdim=True)
    )
    if squared:
        return p * g - p * p * g
    return p * (g - dot) if inner else p * g


rights(padded_softmax_gradient, softmax_gradient, {"blocks of 32": {}, "blocks of 9": {"block": 9}})
wrongs(
    padded_softmax_gradient,
    softmax_gradient,
    {
        "the row's inner product is not taken off": {"inner": False},
        "only the diagonal p (1 - p) g of the Jacobian is used": {"squared": True},
        "the 10 masked columns take part in the softmax": {"n": 100},
        "the inner product is summed over rows, not columns": {"axis": 0},
        "probabilities were saved in e5m2": {"saved": torch.float8_e5m2},
    },
)
