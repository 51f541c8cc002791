# SPDX-License-Identifier: Apache-2.0
"""Set I, the aimed part, written blind (see blind_seventh_f): n for n - 1, epsilons and roots of norms, forward
and backward, at sizes from 32 to 4096."""

import torch
import torch.nn.functional as F

from .blind import bf, hf
from .blind_seventh_a import doubled, right, seventh, wrong
from .blind_seventh_b import folded, ladder


def moments(x, over=None, welford=False):
    """Mean and variance over the last axis, kept."""
    n = x.shape[-1]
    if welford:
        mean = m2 = x[..., 0] * 0
        for i, part in enumerate(x.unbind(-1), 1):
            delta = part - mean
            mean = mean + delta / i
            m2 = m2 + delta * (part - mean)
        return mean[..., None], m2[..., None] / (over or n)
    mean = folded(x)[..., None] / n
    return mean, folded((x - mean).square())[..., None] / (over or n)


# ------------------------------------------------------------------ root mean square


@seventh(lambda d: (d(6, 4096), d(4096, shift=1.0, scale=0.1)))
def norms_rms_4096(x, w):
    return F.rms_norm(x, (4096,), w, 1e-5)


def rms_kernel(x, w, over=None, eps=1e-5, outside=0.0, total=folded, factor=1.0):
    n = x.shape[-1]
    return x * factor / ((total(x * x)[..., None] / (over or n) + eps).sqrt() + outside) * w


right(norms_rms_4096, "sum of squares by folding", rms_kernel)
right(norms_rms_4096, "sum of squares in blocks", rms_kernel, total=ladder)
wrong(
    norms_rms_4096,
    rms_kernel,
    {
        "the sum of squares is divided by n - 1": dict(over=4095),
        "the epsilon is added twice": dict(eps=2e-5),
        "the epsilon stands outside the root": dict(eps=0.0, outside=1e-5),
        "the epsilon is left out": dict(eps=0.0),
        "the sum of squares is divided by n + 1": dict(over=4097),
    },
)


@seventh(lambda d: (d(80, 32, dtype=bf), d(32, dtype=bf, shift=1.0, scale=0.1)))
def norms_rms_32_bf16(x, w):
    return F.rms_norm(x, (32,), w, 1e-6)


right(norms_rms_32_bf16, "sum of squares by folding", rms_kernel, eps=1e-6)
doubled(norms_rms_32_bf16)
wrong(
    norms_rms_32_bf16,
    rms_kernel,
    {
        "the sum of squares is divided by n - 1": dict(eps=1e-6, over=31),
        "the norm is multiplied by sqrt(33/32)": dict(eps=1e-6, factor=(33 / 32) ** 0.5),
        "an epsilon of 0.02": dict(eps=0.02),
    },
)


@seventh(lambda d: (d(20, 1024, dtype=hf, scale=0.02), d(1024, dtype=hf, shift=1.0, scale=0.1)))
def norms_rms_small_input_half(x, w):
    return F.rms_norm(x, (1024,), w, 1e-5)


right(norms_rms_small_input_half, "sum of squares in blocks", rms_kernel, total=ladder)
doubled(norms_rms_small_input_half)
wrong(
    norms_rms_small_input_half,
    rms_kernel,
    {
        "the epsilon is added twice": dict(eps=2e-5),
        "the epsilon stands outside the root": dict(eps=0.0, outside=1e-5),
        "the epsilon is 1e-6": dict(eps=1e-6),
        "the epsilon is left out": dict(eps=0.0),
    },
)


@seventh(lambda d: (d(12, 768, scale=0.05), d(768, shift=1.0, scale=0.1), d(12, 768)))
def norms_rms_backward_768(x, w, g):
    r = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)
    gw = g * w
    dot = (gw * x).mean(-1, keepdim=True)
    return gw * r - x * r**3 * dot, (g * x * r).sum(0)


def rms_backward(x, w, g, over=None, eps=1e-5, eps_dot=True, again=0.0, total=folded):
    n = x.shape[-1]
    ms = total(x * x)[:, None] / n
    r = (ms + eps).rsqrt()
    gw = g * w
    dot = total(gw * x)[:, None] / (over or n)
    return r * (gw - x * dot / ((ms + eps if eps_dot else ms) + again)), (g * x * r).sum(0)


right(norms_rms_backward_768, "divided by the mean square instead of a third power", rms_backward)
doubled(norms_rms_backward_768)
wrong(
    norms_rms_backward_768,
    rms_backward,
    {
        "the correcting term is divided by n - 1": dict(over=767),
        "the correcting term lacks the epsilon": dict(eps_dot=False),
        "the epsilon is added once more in the correcting term": dict(again=1e-5),
        "an epsilon of 1.1e-5": dict(eps=1.1e-5),
    },
)


# ------------------------------------------------------------------ layer norm


@seventh(lambda d: (d(10, 2048, shift=0.4), d(2048, shift=1.0, scale=0.1), d(2048)))
def norms_layer_2048(x, w, b):
    return F.layer_norm(x, (2048,), w, b, 1e-5)


def layer_kernel(x, w, b, over=None, eps=1e-5, outside=0.0, shift=1.0, welford=False, mean_over=None):
    mean, var = moments(x, over, welford)
    if mean_over:
        mean = mean * x.shape[-1] / mean_over
    return (x - shift * mean) / ((var + eps).sqrt() + outside) * w + b


right(norms_layer_2048, "two passes by folding", layer_kernel)
right(norms_layer_2048, "Welford", layer_kernel, welford=True)
wrong(
    norms_layer_2048,
    layer_kernel,
    {
        "the variance is divided by n - 1": dict(over=2047),
        "the mean is divided by n + 1": dict(mean_over=2049),
        "the epsilon is added twice": dict(eps=2e-5),
        "the epsilon stands outside the root": dict(eps=0.0, outside=1e-5),
    },
)


@seventh(lambda d: (d(50, 64, dtype=bf, shift=1.0), d(64, dtype=bf, shift=1.0, scale=0.1), d(64, dtype=bf, scale=0.1)))
def norms_layer_64_bf16(x, w, b):
    return F.layer_norm(x, (64,), w, b, 1e-5)


right(norms_layer_64_bf16, "Welford", layer_kernel, welford=True)
doubled(norms_layer_64_bf16)
wrong(
    norms_layer_64_bf16,
    layer_kernel,
    {
        "the variance is divided by n - 1": dict(over=63),
        "the mean is divided by n + 1": dict(mean_over=65),
        "an epsilon of 0.01": dict(eps=0.01),
    },
)


@seventh(
    lambda d: (d(30, 256, dtype=hf, scale=0.03), d(256, dtype=hf, shift=1.0, scale=0.1), d(256, dtype=hf, scale=0.1))
)
def norms_layer_256_half(x, w, b):
    return F.layer_norm(x, (256,), w, b, 1e-5)


right(norms_layer_256_half, "two passes by folding", layer_kernel)
right(norms_layer_256_half, "Welford", layer_kernel, welford=True)
wrong(
    norms_layer_256_half,
    layer_kernel,
    {
        "the variance is divided by n - 1": dict(over=255),
        "the epsilon is added twice": dict(eps=2e-5),
        "the epsilon stands outside the root": dict(eps=0.0, outside=1e-5),
    },
)


@seventh(lambda d: (d(12, 384, scale=0.05, shift=0.1), d(384, shift=1.0, scale=0.1), d(12, 384)))
def norms_layer_backward_384(x, w, g):
    m = x.mean(-1, keepdim=True)
    r = torch.rsqrt((x - m).square().mean(-1, keepdim=True) + 1e-5)
    n, gw = (x - m) * r, g * w
    return r * (gw - gw.mean(-1, keepdim=True) - n * (gw * n).mean(-1, keepdim=True)), (g * n).sum(0), g.sum(0)


def layer_backward(x, w, g, over=None, first=None, second=None, eps=1e-5, outside=0.0):
    n = x.shape[-1]
    mean, var = moments(x, over)
    r = 1 / ((var + eps).sqrt() + outside)
    c, gw = (x - mean) * r, g * w
    a, b = folded(gw)[:, None] / (first or n), folded(gw * c)[:, None] / (second or n)
    return r * (gw - a - c * b), (g * c).sum(0), g.sum(0)


def layer_autograd(x, w, g):
    x, w, b = (t.clone().requires_grad_() for t in (x, w, w * 0))
    return torch.autograd.grad(F.layer_norm(x, (384,), w, b, 1e-5), (x, w, b), g)


right(norms_layer_backward_384, "sums by folding", layer_backward)
right(norms_layer_backward_384, "automatic differentiation", layer_autograd)
wrong(
    norms_layer_backward_384,
    layer_backward,
    {
        "the variance is divided by n - 1": dict(over=383),
        "the mean of the gradient is divided by n - 1": dict(first=383),
        "the mean of the products is divided by n - 1": dict(second=383),
        "the epsilon stands outside the root": dict(eps=0.0, outside=1e-5),
        "an epsilon of 1.2e-5": dict(eps=1.2e-5),
    },
)


# ------------------------------------------------------------------ group, batch and instance norm


@seventh(lambda d: (d(2, 32, 8, 8, dtype=bf), d(32, dtype=bf, shift=1.0, scale=0.1), d(32, dtype=bf, scale=0.1)))
def norms_group_128_bf16(x, w, b):
    return F.group_norm(x, 16, w, b, 1e-5)


def group_kernel(x, w, b, groups=16, over=None, eps=1e-5, outside=0.0, factor=1.0, welford=False):
    y = x.unflatten(1, (groups, -1)).flatten(2)
    mean, var = moments(y, over, welford)
    y = ((y - mean) * factor / ((var + eps).sqrt() + outside)).view(x.shape)
    return y * w[:, None, None] + b[:, None, None]


right(norms_group_128_bf16, "two passes by folding", group_kernel)
right(norms_group_128_bf16, "Welford", group_kernel, welford=True)
wrong(
    norms_group_128_bf16,
    group_kernel,
    {
        "the variance is divided by n - 1": dict(over=127),
        "an epsilon of 0.02": dict(eps=0.02),
        "the normalized numbers are multiplied by sqrt(128/127) once more": dict(factor=(128 / 127) ** 0.5),
    },
)


@seventh(lambda d: (d(2, 12, 12, 12, scale=0.06, shift=0.1), d(12, shift=1.0, scale=0.1), d(12)))
def norms_group_432(x, w, b):
    return F.group_norm(x, 4, w, b, 1e-5)


right(norms_group_432, "two passes by folding", group_kernel, groups=4)
doubled(norms_group_432)
wrong(
    norms_group_432,
    group_kernel,
    {
        "the variance is divided by n - 1": dict(groups=4, over=431),
        "the epsilon is added twice": dict(groups=4, eps=2e-5),
        "the epsilon stands outside the root": dict(groups=4, eps=0.0, outside=1e-5),
    },
)


@seventh(lambda d: (d(8, 10, 9, 9, shift=0.5), d(10), d.rand(10).add(0.5)))
def norms_batch_training_648(x, mean, var):
    m = x.mean((0, 2, 3))
    v = (x - m[:, None, None]).square().mean((0, 2, 3))
    y = (x - m[:, None, None]) * torch.rsqrt(v + 1e-5)[:, None, None]
    return y, 0.9 * mean + 0.1 * m, 0.9 * var + 0.1 * v * (648 / 647)


def batch_kernel(x, mean, var, over=None, running=648 / 647, eps=1e-5, rate=0.1, with_eps=0.0):
    y = x.transpose(0, 1).flatten(1)
    m, v = moments(y, over)
    out = ((y - m) * (v + eps).rsqrt()).unflatten(1, (8, 9, 9)).transpose(0, 1)
    return out, torch.lerp(mean, m[:, 0], rate), torch.lerp(var, v[:, 0] * running + with_eps, rate)


right(norms_batch_training_648, "channel by channel by folding", batch_kernel)
doubled(norms_batch_training_648)
wrong(
    norms_batch_training_648,
    batch_kernel,
    {
        "the running variance is that of n": dict(running=1.0),
        "the batch is normalized with the variance of n - 1": dict(over=647, running=1.0),
        "the running variance has the epsilon added": dict(with_eps=1e-3),
        "the epsilon is added ten times": dict(eps=1e-4),
        "running numbers move by 0.101": dict(rate=0.101),
    },
)


@seventh(lambda d: (d(6, 8, 7, 7, dtype=bf), d(8, dtype=bf, shift=1.0, scale=0.2), d(6, 8, 7, 7, dtype=bf, shift=0.5)))
def norms_batch_backward_294_bf16(x, w, g):
    x, w, g = x.float(), w.float(), g.float()
    m, v = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), unbiased=False, keepdim=True)
    r = torch.rsqrt(v + 1e-5)
    n = (x - m) * r
    dx = w[:, None, None] * r * (g - g.mean((0, 2, 3), keepdim=True) - n * (g * n).mean((0, 2, 3), keepdim=True))
    return dx.to(bf), (g * n).sum((0, 2, 3)).to(bf), g.sum((0, 2, 3)).to(bf)


def batch_backward(x, w, g, over=None, first=None, eps=1e-5, factor=1.0, short=0):
    y, h = (t.transpose(0, 1).flatten(1) for t in (x, g))
    m, v = moments(y, over)
    r = (v + eps).rsqrt()
    n = (y - m) * r
    a, b = folded(h)[:, None] / (first or 294), folded(h * n)[:, None] / 294
    dx = w[:, None] * r * factor * (h - a - n * b)
    k = 294 - short
    return dx.unflatten(1, (6, 7, 7)).transpose(0, 1), folded((h * n)[:, :k]), folded(h[:, :k])


right(norms_batch_backward_294_bf16, "channel by channel by folding", batch_backward)
right(norms_batch_backward_294_bf16, "in double precision", batch_backward, torch.float64)
wrong(
    norms_batch_backward_294_bf16,
    batch_backward,
    {
        "the mean of the gradient is divided by 288, whole blocks of 16 only": dict(first=288),
        "an epsilon of 0.01": dict(eps=0.01),
        "the parameter sums leave out the last row of the last image": dict(short=7),
    },
)


@seventh(lambda d: (d(3, 5, 16, 16, dtype=hf, scale=0.05, shift=0.1),))
def norms_instance_256_half(x):
    return F.instance_norm(x, eps=1e-5)


def instance_kernel(x, over=None, eps=1e-5, outside=0.0, welford=False):
    mean, var = moments(x.flatten(2), over, welford)
    return ((x.flatten(2) - mean) / ((var + eps).sqrt() + outside)).view(x.shape)


right(norms_instance_256_half, "two passes by folding", instance_kernel)
right(norms_instance_256_half, "Welford", instance_kernel, welford=True)
wrong(
    norms_instance_256_half,
    instance_kernel,
    {
        "the variance is divided by n - 1": dict(over=255),
        "the epsilon is added twice": dict(eps=2e-5),
        "the epsilon stands outside the root": dict(eps=0.0, outside=1e-5),
    },
)


@seventh(lambda d: (d(9, 500, shift=2.0),))
def norms_standardize_500(x):
    return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-3)


def standardize(x, over=499, eps=1e-3, inside=0.0, welford=False):
    mean, var = moments(x, over, welford)
    return (x - mean) / ((var + inside).sqrt() + eps)


right(norms_standardize_500, "two passes by folding", standardize)
right(norms_standardize_500, "Welford", standardize, welford=True)
wrong(
    norms_standardize_500,
    standardize,
    {
        "the spread is divided by n": dict(over=500),
        "the epsilon stands under the root": dict(eps=0.0, inside=1e-3),
        "the epsilon is left out": dict(eps=0.0),
    },
)


@seventh(lambda d: (d(3, 4, 40, 80, dtype=hf), d(3, 4, 40, 80, dtype=hf)))
def norms_scaled_scores_80(q, k):
    return torch.baddbmm(q.new_zeros(1, 1, 1), q.flatten(0, 1), k.flatten(0, 1).mT, beta=0, alpha=80**-0.5)


def scores(q, k, width=80.0, late=True):
    q, k = q.flatten(0, 1), k.flatten(0, 1)
    return (q @ k.mT) / width**0.5 if late else (q / width**0.5) @ k.mT


right(norms_scaled_scores_80, "scaled after the product", scores)
right(norms_scaled_scores_80, "scaled before the product", scores, late=False)
wrong(
    norms_scaled_scores_80,
    scores,
    {
        "the width is taken as 81": dict(width=81.0),
        "the width is taken as 79": dict(width=79.0),
        "the root of the width is 9": dict(width=81.0, late=False),
    },
)
