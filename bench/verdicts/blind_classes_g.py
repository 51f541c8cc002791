# SPDX-License-Identifier: Apache-2.0
"""Set F: intermediates that under- or overflow where the result does not: squares, exponentials and
products of a naive form. The operators' own kernels, and any scaled algorithm, give a number."""

import torch
import torch.nn.functional as F

from .blind import hf, honest, mistake
from .blind_classes_a import classed, folded, welford
from .blind_fourth_a import double, inside


def power(x, axis=-1):
    """The power of two at the largest number of a row."""
    return torch.ldexp(torch.ones_like(x.narrow(axis, 0, 1)), torch.frexp(x.abs().amax(axis, keepdim=True))[1])


def by_power(x, axis=-1):
    s = power(x, axis)
    y = x / s
    y = y - y.mean(axis, keepdim=True)
    return y, s, (y.square().sum(axis, keepdim=True) / (x.shape[axis] - 1)).sqrt()


def scaled_std(x, axis=-1):
    y, s, dev = by_power(x, axis)
    return (dev * s).squeeze(axis)


def ranged_std(x, axis=-1):
    m = (x - x.mean(axis, keepdim=True))
    top = m.abs().amax(axis, keepdim=True)
    return ((m / top).square().sum(axis) / (x.shape[axis] - 1)).sqrt() * top.squeeze(axis)


def naive_std(x, axis=-1, eps=0.0):
    m = x - x.mean(axis, keepdim=True)
    return (m.square().sum(axis) / (x.shape[axis] - 1) + eps).sqrt()


def onepass_std(x, axis=-1):
    n = x.shape[axis]
    return ((x.square().sum(axis) - x.sum(axis).square() / n) / (n - 1)).sqrt()


# ------------------------------------------------------------------ spread

@classed(lambda d: (d(48, 50, scale=1e-25),))
def inner_range_std_tiny(x):
    return x.std(-1)


mistake(inner_range_std_tiny, "the squares underflow: 0", naive_std)
mistake(inner_range_std_tiny, "the squares underflow beside an eps of 1e-20", lambda x: naive_std(x, eps=1e-20))


@classed(lambda d: (d(40, 30, scale=1e25),))
def inner_range_std_huge(x):
    return x.std(0)


mistake(inner_range_std_huge, "the squares overflow", lambda x: naive_std(x, 0))
mistake(inner_range_std_huge, "one pass: Inf less Inf", lambda x: onepass_std(x, 0))


@classed(lambda d: (d(20, 64, scale=3e19, shift=2e19),))
def inner_range_std_shifted(x):
    return x.std(-1)


mistake(inner_range_std_shifted, "one pass: Inf less Inf", onepass_std)
mistake(inner_range_std_shifted, "the squares overflow", naive_std)

for fn, axis in ((inner_range_std_tiny, -1), (inner_range_std_huge, 0), (inner_range_std_shifted, -1)):
    honest(fn, "scaled by a power of two", lambda x, axis=axis: scaled_std(x, axis))
    honest(fn, "deviations over the largest", lambda x, axis=axis: ranged_std(x, axis))
    honest(fn, "float64 inside", double(naive_std, axis=axis))


@classed(lambda d: (d(16, 1024, scale=1.5e18),))
def inner_range_var(x):
    return x.var(-1)


honest(inner_range_var, "each square over n - 1 first",
       lambda x: ((x - x.mean(-1, keepdim=True)) / 1023 ** 0.5).square().sum(-1))
honest(inner_range_var, "scaled by a power of two", lambda x: scaled_std(x).square())
mistake(inner_range_var, "the sum of squares overflows before it is divided",
        lambda x: (x - x.mean(-1, keepdim=True)).square().sum(-1) / 1023)
mistake(inner_range_var, "one pass: Inf less Inf", lambda x: onepass_std(x).square())


def std_gradient(g, x):
    return g[:, None] * ((x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)) / (x.shape[-1] - 1)


def std_autograd(g, x):
    x = x.requires_grad_()
    x.std(-1).backward(g)
    return x.grad


@classed(lambda d: (d(40), d(40, 33, scale=1e-30)))
def inner_range_std_gradient_tiny(g, x):
    return std_gradient(g, x)


@classed(lambda d: (d(25), d(25, 60, scale=1e25)))
def inner_range_std_gradient_huge(g, x):
    return std_gradient(g, x)


for fn in (inner_range_std_gradient_tiny, inner_range_std_gradient_huge):
    honest(fn, "automatic differentiation", std_autograd)
    honest(fn, "scaled by a power of two", lambda g, x: (
        lambda y, s, dev: y / dev * (g / (x.shape[-1] - 1))[:, None])(*by_power(x)))
mistake(inner_range_std_gradient_tiny, "the deviation underflows, its zero is masked", lambda g, x: (
    lambda s: torch.where(s > 0, g[:, None] * x / s, torch.zeros_like(x)))(naive_std(x)[:, None]))
mistake(inner_range_std_gradient_tiny, "the deviation underflows: NaN", lambda g, x: (
    g[:, None] * naive_std(x)[:, None] * 0 / naive_std(x)[:, None] * x))
mistake(inner_range_std_gradient_huge, "the deviation overflows", lambda g, x:
        g[:, None] * (x - x.mean(-1, keepdim=True)) / naive_std(x)[:, None] / 59)


@classed(lambda d: (d(30, 40, scale=1e-24),))
def inner_range_standardize(x):
    return (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)


honest(inner_range_standardize, "scaled by a power of two", lambda x: (lambda y, s, dev: y / dev)(*by_power(x)))
honest(inner_range_standardize, "float64 inside", double(inner_range_standardize))
mistake(inner_range_standardize, "the squares underflow: Inf", lambda x: (
    x - x.mean(-1, keepdim=True)) / naive_std(x)[:, None])
mistake(inner_range_standardize, "the squares underflow beside an eps of 1e-12", lambda x: (
    x - x.mean(-1, keepdim=True)) / naive_std(x, eps=1e-12)[:, None])


# ------------------------------------------------------------------ pairs

@classed(lambda d: (d(2000) * 10.0 ** (d.ints(2, 2000) * 55 - 30), d(2000) * 10.0 ** (d.ints(2, 2000) * 55 - 30)))
def inner_range_hypot(x, y):
    return torch.hypot(x, y)


def hypot_scaled(x, y):
    a, b = torch.maximum(x.abs(), y.abs()), torch.minimum(x.abs(), y.abs())
    return a * (1 + (b / a).square()).sqrt()


honest(inner_range_hypot, "the larger times a root", hypot_scaled)
honest(inner_range_hypot, "float64 inside", double(lambda x, y: (x * x + y * y).sqrt()))
mistake(inner_range_hypot, "the root of two squares", lambda x, y: (x * x + y * y).sqrt())
mistake(inner_range_hypot, "clamped to the largest float32", lambda x, y: (x * x + y * y).clamp(
    max=torch.finfo(torch.float32).max).sqrt())


@classed(lambda d: (d(600), d(600, scale=1e-28), d(600, scale=1e-28)))
def inner_range_hypot_gradient(g, x, y):
    return g * (x / torch.hypot(x, y))


honest(inner_range_hypot_gradient, "the larger times a root", lambda g, x, y: g * (x / hypot_scaled(x, y)))
honest(inner_range_hypot_gradient, "the cosine of the angle, in float64",
       double(lambda g, x, y: g * torch.atan2(y, x).cos()))
mistake(inner_range_hypot_gradient, "the squares underflow: Inf", lambda g, x, y: g * (x / (x * x + y * y).sqrt()))
mistake(inner_range_hypot_gradient, "the squares underflow beside an eps of 1e-12",
        lambda g, x, y: g * (x / (x * x + y * y + 1e-12).sqrt()))


@classed(lambda d: (d(30, 20, scale=1e22), d(30, 20, scale=1e22)))
def inner_range_complex_abs(re, im):
    return torch.complex(re, im).abs()


honest(inner_range_complex_abs, "the larger times a root", hypot_scaled)
honest(inner_range_complex_abs, "float64 inside", double(lambda x, y: (x * x + y * y).sqrt()))
mistake(inner_range_complex_abs, "the root of two squares", lambda x, y: (x * x + y * y).sqrt())


@classed(lambda d: (d(500, scale=1e24), d(500, scale=1e24), d(500, scale=1e24), d(500, scale=1e24)))
def inner_range_complex_quotient(a, b, c, e):
    return torch.view_as_real(torch.complex(a, b) / torch.complex(c, e))


def smith(a, b, c, e):
    r = torch.where(c.abs() >= e.abs(), e / c, c / e)
    flat = c.abs() >= e.abs()
    bottom = torch.where(flat, c + e * r, c * r + e)
    return torch.stack((torch.where(flat, a + b * r, a * r + b) / bottom,
                        torch.where(flat, b - a * r, b * r - a) / bottom), -1)


honest(inner_range_complex_quotient, "Smith's way", smith)
honest(inner_range_complex_quotient, "all over the largest of the divisor", lambda a, b, c, e: (
    lambda s: inner_range_complex_quotient(a / s, b / s, c / s, e / s))(torch.maximum(c.abs(), e.abs())))
mistake(inner_range_complex_quotient, "the divisor's square overflows: 0 or NaN", lambda a, b, c, e: torch.stack(
    ((a * c + b * e) / (c * c + e * e), (b * c - a * e) / (c * c + e * e)), -1))
mistake(inner_range_complex_quotient, "times the reciprocal of the divisor's square: 0", lambda a, b, c, e: (
    lambda r: torch.stack((a * (c * r) + b * (e * r), b * (c * r) - a * (e * r)), -1))(1 / (c * c + e * e)))


# ------------------------------------------------------------------ exponentials

@classed(lambda d: (d(24, 60, scale=3.0) + torch.tensor([150.0, -150.0, 2000.0, -3000.0]).repeat(6)[:, None],))
def inner_range_logsumexp(x):
    return x.logsumexp(-1)


honest(inner_range_logsumexp, "maximum taken off", lambda x: x.amax(-1) + folded(
    (x - x.amax(-1, keepdim=True)).exp()).log())
honest(inner_range_logsumexp, "the first element taken off",
       lambda x: x[:, 0] + (x - x[:, :1]).exp().sum(-1).log())
mistake(inner_range_logsumexp, "no maximum taken off", lambda x: x.exp().sum(-1).log())
mistake(inner_range_logsumexp, "no maximum taken off, exponents clamped to 80",
        lambda x: x.clamp(-80, 80).exp().sum(-1).log())


@classed(lambda d: (d(20, 30, scale=2.0) + torch.tensor([-120.0, 130.0, -500.0, 900.0]).repeat(5)[:, None],))
def inner_range_softmax(x):
    return x.softmax(-1)


honest(inner_range_softmax, "by log-probabilities", lambda x: (lambda y: (y - y.exp().sum(
    -1, keepdim=True).log()).exp())(x - x.amax(-1, keepdim=True)))
honest(inner_range_softmax, "float64 inside", double(inner_range_softmax))
mistake(inner_range_softmax, "no maximum taken off: NaN", lambda x: x.exp() / x.exp().sum(-1, keepdim=True))
mistake(inner_range_softmax, "no maximum taken off, eps in the divisor",
        lambda x: x.clamp(max=80).exp() / (x.clamp(max=80).exp().sum(-1, keepdim=True) + 1e-9))


@classed(lambda d: (d(30, 40, scale=80.0),))
def inner_range_log_softmax(x):
    return x.log_softmax(-1)


honest(inner_range_log_softmax, "maximum taken off", lambda x: (
    lambda y: y - folded(y.exp(), "tree").log()[:, None])(x - x.amax(-1, keepdim=True)))
honest(inner_range_log_softmax, "float64 inside", double(inner_range_log_softmax))
mistake(inner_range_log_softmax, "the logarithm of a softmax that underflowed", lambda x: x.softmax(-1).log())
mistake(inner_range_log_softmax, "the same with eps: nothing below log 1e-10",
        lambda x: (x.softmax(-1) + 1e-10).log())


@classed(lambda d: (d(3000, scale=70.0),))
def inner_range_softplus(x):
    return F.softplus(x)


honest(inner_range_softplus, "the larger of 0 and x, and a small term",
       lambda x: x.clamp(min=0) + (-x.abs()).exp().log1p())
honest(inner_range_softplus, "float64 inside", double(lambda x: x.clamp(min=0) + (-x.abs()).exp().log1p()))
mistake(inner_range_softplus, "log1p of an exponential that overflows", lambda x: x.exp().log1p())
mistake(inner_range_softplus, "the exponent is clamped to 80", lambda x: x.clamp(max=80).exp().log1p())


@classed(lambda d: (d(800, scale=90.0), d(800, scale=90.0, shift=100.0)))
def inner_range_logaddexp(x, y):
    return torch.logaddexp(x, y)


honest(inner_range_logaddexp, "the larger and a small term",
       lambda x, y: torch.maximum(x, y) + (-(x - y).abs()).exp().log1p())
honest(inner_range_logaddexp, "float64 inside", double(inner_range_logaddexp))
mistake(inner_range_logaddexp, "the logarithm of two exponentials", lambda x, y: (x.exp() + y.exp()).log())


@classed(lambda d: (d(900) * 10.0 ** d.ints(30, 900),))
def inner_range_asinh(x):
    return x.asinh()


honest(inner_range_asinh, "log 2 more for large ones", lambda x: x.sign() * torch.where(
    x.abs() > 1e8, x.abs().log() + 0.6931471805599453, x.abs().clamp(max=1e8).asinh()))
honest(inner_range_asinh, "float64 inside", double(inner_range_asinh))
mistake(inner_range_asinh, "the square overflows", lambda x: x.sign() * (x.abs() + (x * x + 1).sqrt()).log())


@classed(lambda d: (d(1200, scale=60.0),))
def inner_range_tanh(x):
    return x.tanh()


honest(inner_range_tanh, "by the exponential of -2|x|", lambda x: -x.sign() * torch.expm1(-2 * x.abs()) / (
    1 + (-2 * x.abs()).exp()))
honest(inner_range_tanh, "float64 inside", double(inner_range_tanh))
mistake(inner_range_tanh, "Inf over Inf", lambda x: (x.exp() - (-x).exp()) / (x.exp() + (-x).exp()))
mistake(inner_range_tanh, "Inf over Inf for one sign", lambda x: (x * 2).expm1() / ((x * 2).exp() + 1))


@classed(lambda d: (d.rand(40, 120) * 1e-3 + 1e-5,))
def inner_range_geometric_mean(x):
    return x.log().mean(-1).exp()


honest(inner_range_geometric_mean, "powers of two", lambda x: (folded(x.log2(), "tree") / 120).exp2())
honest(inner_range_geometric_mean, "float64 inside", double(inner_range_geometric_mean))
mistake(inner_range_geometric_mean, "the product underflows", lambda x: x.prod(-1) ** (1 / 120))


# ------------------------------------------------------------------ halves

@classed(lambda d: (d(32, 128, scale=3000.0, dtype=hf), d(128, scale=0.1, shift=1.0, dtype=hf)))
def inner_range_rms_half(x, w):
    return F.rms_norm(x, (128,), w, 1e-6)


honest(inner_range_rms_half, "float32 inside", inside(
    lambda x, w: x / (folded(x.square(), "lanes")[:, None] / 128 + 1e-6).sqrt() * w))
honest(inner_range_rms_half, "float64 inside", double(lambda x, w: x / (
    x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * w))
mistake(inner_range_rms_half, "the squares overflow in half: 0", lambda x, w: (x.float() * torch.rsqrt(
    (x * x).float().mean(-1, keepdim=True) + 1e-6) * w).half())
mistake(inner_range_rms_half, "the squares are clamped to 65504", lambda x, w: (x.float() * torch.rsqrt(
    (x * x).clamp(max=65504).float().mean(-1, keepdim=True) + 1e-6) * w).half())


@classed(lambda d: (d(40, 64, scale=1e-4, dtype=hf),))
def inner_range_std_half_tiny(x):
    return x.std(-1)


@classed(lambda d: (d(40, 90, scale=4000.0, shift=9000.0, dtype=hf),))
def inner_range_std_half_huge(x):
    return x.std(-1)


for fn in (inner_range_std_half_tiny, inner_range_std_half_huge):
    honest(fn, "float32 inside", inside(naive_std))
    honest(fn, "element after element in eight lanes", inside(lambda x: (welford(x)[1] / (x.shape[-1] - 1)).sqrt()))
mistake(inner_range_std_half_tiny, "the squares underflow in half", lambda x: (
    (x - x.mean(-1, keepdim=True)).square().sum(-1) / 63).sqrt())
mistake(inner_range_std_half_huge, "the squares overflow in half", lambda x: (
    (x - x.mean(-1, keepdim=True)).square().sum(-1) / 89).sqrt())
mistake(inner_range_std_half_huge, "one pass in half: NaN", onepass_std)


@classed(lambda d: (d(24, 77, scale=900.0, dtype=hf), torch.ones(77, dtype=hf), d(77, dtype=hf)))
def inner_range_layer_norm_half(x, w, b):
    return F.layer_norm(x, (77,), w, b)


def layer(x, w, b):
    m, q = welford(x)
    return (x - m[:, None]) / (q / 77 + 1e-5).sqrt()[:, None] * w + b


honest(inner_range_layer_norm_half, "float32 inside", inside(layer))
honest(inner_range_layer_norm_half, "float64 inside", double(layer))
mistake(inner_range_layer_norm_half, "the variance overflows in half: the bias only", lambda x, w, b: (
    (x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, correction=0, keepdim=True) + 1e-5) * w + b))


@classed(lambda d: (d(20, 4096, scale=100.0, shift=400.0, dtype=hf),))
def inner_range_mean_half(x):
    return x.mean(-1)


honest(inner_range_mean_half, "float32 inside", inside(lambda x: folded(x, "lanes") / 4096))
honest(inner_range_mean_half, "each over n first", inside(lambda x: (x / 4096).sum(-1)))
mistake(inner_range_mean_half, "the sum overflows in half", lambda x: x.sum(-1) / 4096)
mistake(inner_range_mean_half, "the sum stays at 65504", lambda x: x.sum(-1).clamp(max=65504) / 4096)


@classed(lambda d: (d(16, 50, scale=4.0, shift=15.0, dtype=hf),))
def inner_range_softmax_half(x):
    return x.softmax(-1)


honest(inner_range_softmax_half, "float32 inside, no maximum taken off",
       inside(lambda x: x.exp() / x.exp().sum(-1, keepdim=True)))
honest(inner_range_softmax_half, "maximum taken off", inside(
    lambda x: (lambda e: e / folded(e)[:, None])((x - x.amax(-1, keepdim=True)).exp())))
mistake(inner_range_softmax_half, "exponentials overflow in half: NaN",
        lambda x: (x.exp().float() / x.exp().float().sum(-1, keepdim=True)).half())
mistake(inner_range_softmax_half, "exponentials are clamped to 65504", lambda x: (
    lambda e: (e / e.sum(-1, keepdim=True)).half())(x.exp().clamp(max=65504).float()))


@classed(lambda d: (d(700, scale=2000.0, dtype=hf), d(700, scale=2000.0, dtype=hf)))
def inner_range_hypot_half(x, y):
    return torch.hypot(x, y)


honest(inner_range_hypot_half, "float32 inside", inside(lambda x, y: (x * x + y * y).sqrt()))
honest(inner_range_hypot_half, "the larger times a root", inside(hypot_scaled))
mistake(inner_range_hypot_half, "the squares overflow in half", lambda x, y: (x * x + y * y).sqrt())


@classed(lambda d: (d(1, 2, 12, 16, scale=20.0), d(1, 2, 20, 16, scale=20.0), d(1, 2, 20, 16)))
def inner_range_attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


honest(inner_range_attention, "maximum taken off", lambda q, k, v: (lambda s: (s - s.amax(
    -1, keepdim=True)).exp() @ v / (s - s.amax(-1, keepdim=True)).exp().sum(-1, keepdim=True))(q @ k.mT / 4))
honest(inner_range_attention, "float64 inside", double(inner_range_attention))
mistake(inner_range_attention, "no maximum taken off: NaN", lambda q, k, v: (
    lambda e: e @ v / e.sum(-1, keepdim=True))((q @ k.mT / 4).exp()))
mistake(inner_range_attention, "no maximum taken off, scores clamped to 80", lambda q, k, v: (
    lambda e: e @ v / e.sum(-1, keepdim=True))((q @ k.mT / 4).clamp(max=80).exp()))
