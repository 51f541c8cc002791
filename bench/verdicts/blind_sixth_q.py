# SPDX-License-Identifier: Apache-2.0
"""Set H, written blind: one factor in all rows, from a wrong epsilon, normaliser, scale or temperature, at
real sizes (32 to 4096), forward and backward."""

import torch
import torch.nn.functional as F

from .blind import bf, hf, honest, mistake
from .blind_sixth_m import aimed, double, halves, inside, summed

# ------------------------------------------------------------------ forward


@aimed(lambda d: (d(3, 4096, scale=0.03), d(4096, shift=1.0)))
def aimed_factor_rms_wide(x, w):
    return F.rms_norm(x, (4096,), w, 1e-5)


def rms(x, w, n=4096, eps=1e-5, outer=0.0):
    return x * w / ((halves(x * x)[:, None] / n + eps).sqrt() + outer)


honest(aimed_factor_rms_wide, "squares by halving", rms)
honest(aimed_factor_rms_wide, "one square after another, in double precision", double(aimed_factor_rms_wide))
mistake(aimed_factor_rms_wide, "epsilon is 1e-6", lambda *a: rms(*a, eps=1e-6))
mistake(aimed_factor_rms_wide, "epsilon stands beside the root", lambda *a: rms(*a, eps=0.0, outer=1e-5))
mistake(aimed_factor_rms_wide, "divided by n - 1", lambda *a: rms(*a, n=4095))


@aimed(lambda d: (d(4, 16, 4, 4, scale=0.1, dtype=bf), d(16, dtype=bf), d(16, dtype=bf)))
def aimed_factor_group_norm(x, w, b):
    return F.group_norm(x, 8, w, b, 1e-5)


def group(x, w, b, n=32, eps=1e-5):
    y = x.reshape(4, 8, 32)
    y = y - y.mean(-1, keepdim=True)
    y = y / (halves(y * y)[..., None] / n + eps).sqrt()
    return y.view_as(x) * w[:, None, None] + b[:, None, None]


honest(aimed_factor_group_norm, "two passes", inside(group))
honest(
    aimed_factor_group_norm,
    "batch norm of the groups",
    inside(
        lambda x, w, b: (
            F.batch_norm(x.reshape(1, 32, 32), None, None, training=True).view_as(x) * w[:, None, None]
            + b[:, None, None]
        )
    ),
)
mistake(aimed_factor_group_norm, "the spread is divided by 31", inside(group, n=31))
mistake(aimed_factor_group_norm, "epsilon is 1e-3", inside(group, eps=1e-3))


@aimed(lambda d: (d(2048, 12), d(12), d(12)))
def aimed_factor_batch_norm(x, w, b):
    return F.batch_norm(x, None, None, w, b, training=True)


def batch(x, w, b, n=2048, eps=1e-5):
    y = x - (summed(x, 0) / 2048)
    return y * ((y * y).sum(0) / n + eps).rsqrt() * w + b


honest(aimed_factor_batch_norm, "row after row", batch)
honest(
    aimed_factor_batch_norm,
    "one scale and one shift",
    lambda x, w, b: (lambda s: x * s + (b - x.mean(0) * s))(w / (x.var(0, unbiased=False) + 1e-5).sqrt()),
)
mistake(aimed_factor_batch_norm, "the spread is divided by n - 1", lambda *a: batch(*a, n=2047))
mistake(aimed_factor_batch_norm, "epsilon is 1e-4", lambda *a: batch(*a, eps=1e-4))


@aimed(lambda d: (d(2, 5, 40, 40, dtype=hf),))
def aimed_factor_instance_norm(x):
    return F.instance_norm(x, eps=1e-3)


def plane(x, n=1600, eps=1e-3, outer=0.0):
    y = x - x.mean((2, 3), keepdim=True)
    return y / ((y * y).sum((2, 3), keepdim=True) / n + eps).sqrt() + outer


honest(aimed_factor_instance_norm, "two passes", inside(plane))
mistake(aimed_factor_instance_norm, "divided by 1596, as four rows' count less one each", inside(plane, n=1596))
mistake(aimed_factor_instance_norm, "epsilon is added twice", inside(plane, eps=2e-3))


@aimed(lambda d: (d(20, 300, scale=0.05), d(20, 1)))
def aimed_factor_weight_norm(v, g):
    return torch._weight_norm(v, g, 0)


def weight(v, g, eps=0.0, skip=0, n=1):
    return v * (g / ((v * v)[:, skip:].sum(-1, keepdim=True) * n + eps).sqrt())


honest(aimed_factor_weight_norm, "the factor first", weight)
honest(aimed_factor_weight_norm, "the direction first", lambda v, g: v / summed(v * v).sqrt()[:, None] * g)
mistake(aimed_factor_weight_norm, "an epsilon of 1e-4 under the root", lambda *a: weight(*a, eps=1e-4))
mistake(aimed_factor_weight_norm, "the norm leaves out the first entry", lambda *a: weight(*a, skip=1))
mistake(aimed_factor_weight_norm, "the norm is by n/(n - 1)", lambda *a: weight(*a, n=300 / 299))


@aimed(lambda d: (d(10, 512, scale=0.02, dtype=hf),))
def aimed_factor_unit_length(x):
    return F.normalize(x, dim=-1, eps=1e-3)


honest(aimed_factor_unit_length, "reciprocal root", inside(lambda x: x * summed(x * x).rsqrt()[:, None]))
mistake(
    aimed_factor_unit_length,
    "epsilon is added to the length, not a floor",
    inside(lambda x: x / (x.norm(dim=-1, keepdim=True) + 1e-3)),
)
mistake(
    aimed_factor_unit_length,
    "epsilon is added to the squared length",
    inside(lambda x: x * (x.square().sum(-1, keepdim=True) + 1e-3).rsqrt()),
)
mistake(aimed_factor_unit_length, "lengths of sqrt(512/511)", inside(lambda x: F.normalize(x) * (512 / 511) ** 0.5))


@aimed(lambda d: tuple(d(1, 2, 24, 80, dtype=bf) for _ in range(3)))
def aimed_factor_attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


def attend(q, k, v, scale=80**-0.5):
    s = q @ k.mT * scale
    p = (s - s.amax(-1, keepdim=True)).exp()
    return (p @ v) / p.sum(-1, keepdim=True)


honest(aimed_factor_attention, "values first, then the normaliser", inside(attend))
honest(aimed_factor_attention, "in double precision", double(attend))
mistake(aimed_factor_attention, "scaled by the padded head of 96", inside(attend, scale=96**-0.5))
mistake(aimed_factor_attention, "scaled by the head of 64", inside(attend, scale=0.125))
mistake(aimed_factor_attention, "no scale", inside(attend, scale=1.0))


@aimed(lambda d: (d(16, 300, scale=2.0),))
def aimed_factor_temperature(x):
    return (x / 0.7).softmax(-1)


honest(
    aimed_factor_temperature,
    "powers of two",
    lambda x: (lambda p: p / summed(p)[:, None])((x * (1.4426950408889634 / 0.7)).exp2()),
)
mistake(aimed_factor_temperature, "0.7 is stored in bf16", lambda x: (x / 0.69921875).softmax(-1))
mistake(aimed_factor_temperature, "multiplied by 1.43", lambda x: (x * 1.43).softmax(-1))


@aimed(lambda d: (d(8, 96, dtype=bf, scale=3.0),))
def aimed_factor_soft_cap(x):
    return 30 * torch.tanh(x / 30)


honest(aimed_factor_soft_cap, "through sigmoid", inside(lambda x: 60 * torch.sigmoid(x / 15) - 30))
mistake(aimed_factor_soft_cap, "a cap of 20", inside(lambda x: 20 * torch.tanh(x / 20)))
mistake(aimed_factor_soft_cap, "multiplied back by 30.5", inside(lambda x: 30.5 * torch.tanh(x / 30)))


# ------------------------------------------------------------------ backward


@aimed(lambda d: (d(6, 1024), d(6, 1024, scale=0.1), d(1024, shift=1.0)))
def aimed_factor_rms_grad(g, x, w):
    r = (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    return r * (g * w - x * r.square() * (g * w * x).mean(-1, keepdim=True))


def rms_grad(g, x, w, n=1024, eps=1e-6, m=1024, cubed=True):
    r = 1 / ((x * x).sum(-1, keepdim=True) / n + eps).sqrt()
    h = g * w
    return h * r - x * (r**3 if cubed else r) * halves(h * x)[:, None] / m


honest(aimed_factor_rms_grad, "two terms apart", rms_grad)
honest(aimed_factor_rms_grad, "in double precision", double(rms_grad))
mistake(aimed_factor_rms_grad, "epsilon is 1e-5", lambda *a: rms_grad(*a, eps=1e-5))
mistake(aimed_factor_rms_grad, "the mean in the second term is by n - 1", lambda *a: rms_grad(*a, m=1000))
mistake(aimed_factor_rms_grad, "the root in the second term is not cubed", lambda *a: rms_grad(*a, cubed=False))


def with_stats(d, rows, n, dtype=torch.float32):
    x = d(rows, n, scale=0.2, shift=0.1)
    rstd = (x.var(-1, unbiased=False, keepdim=True) + 1e-5).rsqrt()
    return d(rows, n, dtype=dtype), x.to(dtype), x.mean(-1, keepdim=True), rstd, d(n, shift=1.0, dtype=dtype)


@aimed(lambda d: with_stats(d, 5, 768))
def aimed_factor_layer_norm_grad(g, x, mean, rstd, w):
    return torch.ops.aten.native_layer_norm_backward(g, x, [768], mean, rstd, w, None, [True, True, False])[:2]


def layer_grad(g, x, mean, rstd, w, n=768, first=True, extra=1.0):
    z = (x - mean) * rstd
    h = g * w
    a = h.sum(-1, keepdim=True) / n if first else 0.0
    return rstd * extra * (h - a - z * halves(h * z)[:, None] / n), summed(g * z, 0)


honest(aimed_factor_layer_norm_grad, "means by halving", layer_grad)
honest(aimed_factor_layer_norm_grad, "in double precision", double(layer_grad))
mistake(aimed_factor_layer_norm_grad, "means by n - 1", lambda *a: layer_grad(*a, n=760))
mistake(
    aimed_factor_layer_norm_grad, "the mean of the gradient is not taken off", lambda *a: layer_grad(*a, first=False)
)
mistake(aimed_factor_layer_norm_grad, "a factor sqrt(767/768)", lambda *a: layer_grad(*a, extra=(767 / 768) ** 0.5))


@aimed(lambda d: (d(512, 9), d(512, 9), d(9, shift=1.0)))
def aimed_factor_batch_norm_grad(g, x, w):
    z = (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-5).sqrt()
    dx = w / (x.var(0, unbiased=False) + 1e-5).sqrt() * (g - g.mean(0) - z * (g * z).mean(0))
    return dx, (g * z).sum(0), g.sum(0)


def batch_grad(g, x, w, n=512, eps=1e-5, m=512):
    y = x - summed(x, 0) / 512
    r = ((y * y).sum(0) / n + eps).rsqrt()
    dw, db = summed(g * y, 0) * r, summed(g, 0)
    return w * r * (g - db / m - y * r * dw / m), dw, db


honest(aimed_factor_batch_norm_grad, "row after row", batch_grad)
honest(aimed_factor_batch_norm_grad, "in double precision", double(batch_grad))
mistake(aimed_factor_batch_norm_grad, "the spread is divided by n - 1", lambda *a: batch_grad(*a, n=511))
mistake(aimed_factor_batch_norm_grad, "gradients are averaged over n + 1", lambda *a: batch_grad(*a, m=513))
mistake(aimed_factor_batch_norm_grad, "epsilon is 1e-3", lambda *a: batch_grad(*a, eps=1e-3))


@aimed(lambda d: (d(12, 256, dtype=hf), d(12, 256, scale=0.1, dtype=hf)))
def aimed_factor_unit_length_grad(g, x):
    r = 1 / torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return r * (g - x * r * (g * x * r).sum(-1, keepdim=True))


def unit_grad(g, x, eps=0.0, part=1.0):
    q = halves(x * x)[:, None] + eps
    return g / q.sqrt() - part * x * halves(g * x)[:, None] / q**1.5


honest(aimed_factor_unit_length_grad, "two quotients", inside(unit_grad))
mistake(aimed_factor_unit_length_grad, "0.02 under the root", inside(unit_grad, eps=0.02))
mistake(aimed_factor_unit_length_grad, "the part along x is halved", inside(unit_grad, part=0.5))


@aimed(lambda d: (d(8, 128, dtype=bf), d(8, 128, scale=2.0).softmax(-1).to(bf)))
def aimed_factor_softmax_grad(g, p):
    return (g - (g * p).sum(-1, keepdim=True)) * p / 0.8


honest(aimed_factor_softmax_grad, "two products", inside(lambda g, p: (g * p - p * summed(g * p)[:, None]) * 1.25))
mistake(
    aimed_factor_softmax_grad,
    "the temperature is multiplied, not divided",
    inside(lambda g, p: (g - (g * p).sum(-1, keepdim=True)) * p * 0.8),
)
mistake(
    aimed_factor_softmax_grad,
    "the temperature is 0.81",
    inside(lambda g, p: (g - (g * p).sum(-1, keepdim=True)) * p / 0.81),
)
