# SPDX-License-Identifier: Apache-2.0
"""Set J, the rest: emptied outputs, what leaves the range inside, constant factors, intermediates that are lifted
to float64, gradients of convolutions in narrow formats, callables in 16 bits."""

import torch
import torch.nn.functional as F

from .blind import bf, hf, honest, mistake, narrow, tf32
from .blind_sixth_m import halves, inside, summed
from .blind_sixth_v import further, gradient

# ------------------------------------------------------------------ emptied outputs


@further(lambda d: (d(300, 200, scale=1e-6, dtype=hf),))
def further_small_mean(x):
    return x.mean(-1)


honest(further_small_mean, "halves added", inside(lambda x: halves(x) / 200))
mistake(further_small_mean, "all zeros", lambda x: torch.zeros(300, dtype=hf))
mistake(further_small_mean, "one value for all", inside(lambda x: x.mean().expand(300)))


@further(lambda d: (torch.full((500, 60), 2.0, dtype=bf), d(500, dtype=bf)))
def further_tied_amax_grad(x, g):
    return gradient(lambda x: x.amax(-1), x, g)


honest(further_tied_amax_grad, "an even share", lambda x, g: (g.float()[:, None] / 60).to(bf).expand(500, 60))
mistake(further_tied_amax_grad, "all zeros", lambda x, g: torch.zeros(500, 60, dtype=bf))
mistake(further_tied_amax_grad, "each has all of it", lambda x, g: g[:, None].expand(500, 60))
mistake(further_tied_amax_grad, "half of an even share", lambda x, g: (g.float()[:, None] / 120).to(bf).expand(500, 60))


@further(lambda d: (d(40, 64), d(64, 32)))
def further_linear(x, w):
    return F.relu(x @ w)


honest(further_linear, "in parts", lambda x, w: (x[:, :32] @ w[:32] + x[:, 32:] @ w[32:]).clamp(min=0))
mistake(further_linear, "all zeros", lambda x, w: torch.zeros(40, 32))
mistake(further_linear, "the first row for all", lambda x, w: further_linear(x, w)[:1].expand(40, 32))
mistake(further_linear, "row 9 is stale zero", lambda x, w: further_linear(x, w) * (torch.arange(40) != 9)[:, None])


# ------------------------------------------------------------------ what leaves the range inside


@further(lambda d: (d(50, 40, scale=1e-25),))
def further_tiny_norm(x):
    return x.norm(dim=-1)


def scaled_norm(x):
    top = x.abs().amax(-1, keepdim=True)
    return top[:, 0] * (x / top).norm(dim=-1)


honest(further_tiny_norm, "scaled by the largest", scaled_norm)
mistake(further_tiny_norm, "squares vanish", lambda x: (x * x).sum(-1).sqrt())
mistake(further_tiny_norm, "the largest alone", lambda x: x.abs().amax(-1))


@further(lambda d: (d(60, 30, scale=200.0, dtype=hf),))
def further_half_softplus_sum(x):
    return F.softplus(x).mean(-1)


honest(further_half_softplus_sum, "in float32", inside(further_half_softplus_sum))
mistake(further_half_softplus_sum, "held at 128", inside(lambda x: F.softplus(x).clamp(max=128).mean(-1)))
mistake(
    further_half_softplus_sum,
    "the exponential overflows and becomes zero",
    inside(lambda x: torch.where(x > 88, 0.0, F.softplus(x)).mean(-1)),
)


@further(lambda d: (d(64, 33, scale=1e-30), d(64)))
def further_tiny_std_grad(x, g):
    return gradient(lambda x: x.std(-1), x, g)


def std_grad(x, g, scale=1e30):
    h = (x - x.mean(-1, keepdim=True)) * scale
    return g[:, None] * h / (32 * (h.square().sum(-1, keepdim=True) / 32).sqrt())


honest(further_tiny_std_grad, "scaled up first", std_grad)
mistake(further_tiny_std_grad, "all zeros", lambda x, g: torch.zeros(64, 33))
mistake(further_tiny_std_grad, "over n", lambda x, g: std_grad(x, g) * 32 / 33)


# ------------------------------------------------------------------ a constant factor


@further(lambda d: (d(8, 4, 30, 16, dtype=bf), d(8, 4, 30, 16, dtype=bf), d(8, 4, 30, 16, dtype=bf)))
def further_scaled_attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v) * 0.7


honest(further_scaled_attention, "in float32", inside(further_scaled_attention))
mistake(further_scaled_attention, "1 % more", inside(lambda *a: further_scaled_attention(*a) * 1.01))
mistake(further_scaled_attention, "0.75 for 0.7", inside(lambda *a: further_scaled_attention(*a) * (0.75 / 0.7)))
mistake(
    further_scaled_attention,
    "scores over 15 for 16",
    inside(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=1 / 15**0.5) * 0.7),
)


@further(lambda d: (d(200, 70), d(200, 70)))
def further_huber(x, y):
    return F.huber_loss(x, y, reduction="none").sum(-1) / 70


honest(further_huber, "in turn", lambda x, y: summed(F.huber_loss(x, y, reduction="none")) / 70)
mistake(further_huber, "0.1 % more", lambda x, y: further_huber(x, y) * 1.001)
mistake(further_huber, "over 71", lambda x, y: further_huber(x, y) * 70 / 71)


# ------------------------------------------------------------------ lifted to float64 by itself


@further(lambda d: (d(40, 256, dtype=bf), d(256, dtype=bf)))
def further_float_norm(x, w):
    h = x.float()
    return (h * torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w


honest(
    further_float_norm, "rounded once", inside(lambda x, w: x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * w)
)
honest(further_float_norm, "rounded twice", further_float_norm)
mistake(
    further_float_norm,
    "the mean square is in bf16",
    lambda x, w: (x * x.square().mean(-1, keepdim=True).rsqrt().to(bf)) * w,
)
mistake(
    further_float_norm,
    "the squares' sum is over 255",
    inside(lambda x, w: x * (x.square().sum(-1, keepdim=True) / 250).rsqrt() * w),
)


@further(lambda d: (d(60, 128, dtype=hf, scale=3.0),))
def further_float_softmax(x):
    return x.to(torch.float32).softmax(-1).to(x.dtype)


honest(further_float_softmax, "powers over their sum", inside(lambda x: x.exp() / x.exp().sum(-1, keepdim=True)))
mistake(
    further_float_softmax,
    "powers are rounded to half",
    lambda x: (lambda e: (e.float() / e.float().sum(-1, keepdim=True)).to(hf))((x - x.amax(-1, keepdim=True)).exp()),
)
mistake(
    further_float_softmax,
    "the last key is not in the sum",
    inside(lambda x: x.exp() / x.exp()[:, :-1].sum(-1, keepdim=True)),
)


# ------------------------------------------------------------------ gradients of convolutions


@further(lambda d: (d(4, 3, 12, 12), d(6, 3, 3, 3), d(4, 6, 10, 10)))
def further_conv_weight_grad(x, w, g):
    return torch.nn.grad.conv2d_weight(x, w.shape, g)


honest(
    further_conv_weight_grad,
    "image by image",
    lambda x, w, g: sum(torch.nn.grad.conv2d_weight(x[i : i + 1], w.shape, g[i : i + 1]) for i in range(4)),
)
mistake(
    further_conv_weight_grad,
    "operands are TF32",
    lambda x, w, g: torch.nn.grad.conv2d_weight(tf32(x), w.shape, tf32(g)),
)
mistake(
    further_conv_weight_grad, "the gradient is bf16", lambda x, w, g: torch.nn.grad.conv2d_weight(x, w.shape, narrow(g))
)
mistake(
    further_conv_weight_grad,
    "the last image is left out",
    lambda x, w, g: torch.nn.grad.conv2d_weight(x[:3], w.shape, g[:3]),
)


@further(lambda d: (d(16, 20, 30),))
def further_bias_grad(g):
    return g.sum((0, 2))


honest(further_bias_grad, "in turn", lambda g: summed(g.transpose(0, 1).flatten(1)))
mistake(further_bias_grad, "gradients are TF32", lambda g: tf32(g).sum((0, 2)))
mistake(further_bias_grad, "gradients are bf16", lambda g: narrow(g).sum((0, 2)))
mistake(further_bias_grad, "one of 480 is left out", lambda g: g.sum((0, 2)) - g[3, :, 7])


# ------------------------------------------------------------------ callables in 16 bits


@further(lambda d: (d(24, 32, dtype=bf), d(64, 32, dtype=bf, scale=0.2), d(32, 64, dtype=bf, scale=0.2)))
def further_perceptron(x, a, b):
    return F.gelu(x @ a.mT) @ b.mT


honest(further_perceptron, "in float32", inside(further_perceptron))
honest(further_perceptron, "as torch does", further_perceptron)
mistake(further_perceptron, "2 % more", inside(lambda x, a, b: further_perceptron(x, a, b) * 1.02))
mistake(
    further_perceptron,
    "the tanh is a sigmoid",
    inside(lambda x, a, b: ((lambda h: h * torch.sigmoid(1.702 * h))(x @ a.mT)) @ b.mT),
)
mistake(
    further_perceptron,
    "one hidden unit of 64 is dead",
    inside(lambda x, a, b: (F.gelu(x @ a.mT) * (torch.arange(64) != 11)) @ b.mT),
)
mistake(
    further_perceptron,
    "products keep 5 bits",
    lambda x, a, b: (lambda h: F.gelu(h).to(torch.float8_e5m2).to(bf) @ b.mT)(x @ a.mT),
)


@further(lambda d: (d(30, 40, dtype=hf), d(30, 40, dtype=hf)))
def further_divergence(x, y):
    return (x.softmax(-1) * (x.log_softmax(-1) - y.log_softmax(-1))).sum(-1)


honest(further_divergence, "in float32", inside(further_divergence))
honest(further_divergence, "as torch does", further_divergence)
mistake(further_divergence, "the other way round", inside(lambda x, y: further_divergence(y, x)))
mistake(
    further_divergence,
    "the last class is left out",
    inside(lambda x, y: (x.softmax(-1) * (x.log_softmax(-1) - y.log_softmax(-1)))[:, :-1].sum(-1)),
)
mistake(
    further_divergence,
    "1 % is added to each share",
    inside(lambda x, y: ((x.softmax(-1) * 1.01) * (x.log_softmax(-1) - y.log_softmax(-1))).sum(-1)),
)
