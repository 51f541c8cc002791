# SPDX-License-Identifier: Apache-2.0
"""Operators of one element: arithmetic, activations and their gradients."""

import math

import numpy as np
import torch
import torch.nn.functional as F

from .op import op

aten = torch.ops.aten
C0 = math.sqrt(2 / math.pi)


def one(g):
    return (g.x(g.size(40), g.size(64)),), {}


def one_positive(g):
    return (g.pos(g.size(40), g.size(64)),), {}


def two(g):
    m, n = g.size(40), g.size(64)
    return (g.x(m, n), g.w(m, n)), {}


def gradient(g):
    """The gradient that arrives, then what the forward saw."""
    m, n = g.size(40), g.size(64)
    return (g.w(m, n), g.x(m, n)), {}


# ---- arithmetic ------------------------------------------------------------------------


@op("add", torch.add, lambda g: (two(g)[0], {"alpha": 0.5}), bugs="alpha")
def add(A, x, y, alpha):
    x, y = A.input(x), A.input(y)
    return x + y if A.bug == "alpha" else x + alpha * y


@op("mul", torch.mul, two)
def mul(A, x, y):
    return A.input(x) * A.input(y)


@op("div", torch.div, two)
def div(A, x, y):
    return A.input(x) / A.input(y)


@op("addcmul", torch.addcmul, lambda g: (two(g)[0] + (g.w(g.size(64)),), {"value": -0.75}), bugs="alpha")
def addcmul(A, x, y, z, value):
    x, y, z = A.input(x), A.input(y), A.input(z)
    return x + y * z if A.bug == "alpha" else x + value * (y * z)


@op("addcdiv", torch.addcdiv, lambda g: ((*two(g)[0], g.pos(g.size(64), least=0.5)), {"value": 0.1}))
def addcdiv(A, x, y, z, value):
    return A.input(x) + value * (A.input(y) / A.input(z))


@op("lerp", torch.lerp, lambda g: (two(g)[0] + (0.3,), {}), bugs="swapped", tags="alt")
def lerp(A, x, y, weight):
    x, y = A.input(x), A.input(y)
    if A.alt:
        return (1 - weight) * x + weight * y
    return y + weight * (x - y) if A.bug == "swapped" else x + weight * (y - x)


@op("clamp", torch.clamp, lambda g: (one(g)[0], {"min": -0.5, "max": 1.25}), bugs="nobound", tags="move")
def clamp(A, x, min, max):
    x = A.input(x)
    return A.maximum(x, min) if A.bug == "nobound" else A.clamp(x, min, max)


@op("where", torch.where, lambda g: ((g.bools(g.size(64)), *two(g)[0]), {}), tags="move", bugs="swapped")
def where(A, c, x, y):
    x, y = A.input(x), A.input(y)
    return A.where(c.numpy(), y, x) if A.bug == "swapped" else A.where(c.numpy(), x, y)


# ---- elementary functions --------------------------------------------------------------


def elementary(name, fn, make=one, f=None):
    """Registers a function of one argument that numpy or torch knows in double."""
    op(name, fn, make, tags="func")(lambda A, x: (f or A.special)(A, A.input(x)) if f else A.special(name, A.input(x)))


elementary("exp", torch.exp)
elementary("log", torch.log, one_positive)
elementary("sqrt", torch.sqrt, one_positive, lambda A, x: A.sqrt(x))
elementary("rsqrt", torch.rsqrt, lambda g: ((g.pos(40, g.size(64), least=1e-3),), {}))
elementary("sin", torch.sin)
elementary("tanh", torch.tanh)
elementary("erf", torch.erf)
elementary("log1p", torch.log1p, one_positive)
elementary("expm1", torch.expm1)
elementary("atan", torch.atan)
elementary("pow3", lambda x: torch.pow(x, 3.0), one, lambda A, x: A.pow(x, 3.0))
elementary("reciprocal", torch.reciprocal, one, lambda A, x: 1 / x)


# ---- activations -----------------------------------------------------------------------


@op("sigmoid", torch.sigmoid, one, tags="func alt")
def sigmoid(A, x):
    x = A.input(x)
    if A.alt:  # never a large exponential
        e = A.exp(-abs(x))
        return A.where(x.v >= 0, 1 / (1 + e), e / (1 + e))
    return A.sigmoid(x)


@op("gelu", F.gelu, one, bugs="tanh quick", tags="func alt")
def gelu(A, x):
    x = A.input(x)
    if A.bug == "tanh":
        return tanh_form(A, x)
    if A.bug == "quick":
        return x * A.sigmoid(1.702 * x)
    if A.alt:
        return 0.5 * x * A.special("erfc", x * -math.sqrt(0.5))
    return 0.5 * x * (1 + A.erf(x * math.sqrt(0.5)))


def tanh_form(A, x):
    if A.alt:
        return x * A.sigmoid(2 * C0 * (x + 0.044715 * (x * x * x)))
    return 0.5 * x * (1 + A.tanh(C0 * (x + 0.044715 * (x * x * x))))


@op("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), one, bugs="erf constant", tags="func alt")
def gelu_tanh(A, x):
    x = A.input(x)
    if A.bug == "erf":
        return 0.5 * x * (1 + A.erf(x * math.sqrt(0.5)))
    if A.bug == "constant":
        return 0.5 * x * (1 + A.tanh(C0 * (x + 0.0447 * (x * x * x))))
    return tanh_form(A, x)


@op("silu", F.silu, one, tags="func alt")
def silu(A, x):
    x = A.input(x)
    if A.alt:
        return x * A.sigmoid(x)
    return x / (1 + A.exp(-x))


@op("mish", F.mish, one, tags="func alt")
def mish(A, x):
    x = A.input(x)
    if A.alt:
        e = A.exp(A.minimum(x, 20.0))
        n = e * (e + 2)
        return A.where(x.v > 20, x, x * (n / (n + 2)))
    return x * A.tanh(A.where(x.v > 20, x, A.log1p(A.exp(x))))


@op("softplus", F.softplus, one, bugs="threshold", tags="func alt")
def softplus(A, x):
    x = A.input(x)
    if A.alt:
        return A.maximum(x, 0.0) + A.log1p(A.exp(-abs(x)))
    top = 5 if A.bug == "threshold" else 20
    return A.where(x.v > top, x, A.log1p(A.exp(x)))


@op("elu", F.elu, lambda g: (one(g)[0] + (0.7,), {}), bugs="alpha", tags="func")
def elu(A, x, alpha):
    x = A.input(x)
    low = A.expm1(x) if A.bug == "alpha" else alpha * A.expm1(x)
    return A.where(x.v > 0, x, low)


@op("leaky_relu", F.leaky_relu, one, bugs="slope")
def leaky_relu(A, x):
    x = A.input(x)
    return A.where(x.v > 0, x, (0.0101 if A.bug == "slope" else 0.01) * x)


@op("hardswish", F.hardswish, one, bugs="noclamp")
def hardswish(A, x):
    x = A.input(x)
    if A.bug == "noclamp":
        return x * A.maximum(x + 3.0, 0.0) / 6.0
    return x * A.clamp(x + 3.0, 0, 6) / 6.0


@op("logsigmoid", F.logsigmoid, one, tags="func")
def logsigmoid(A, x):
    x = A.input(x)
    return A.minimum(x, 0.0) - A.log1p(A.exp(-abs(x)))


def swiglu_inputs(g):
    return (g.x(g.size(24), 2 * g.size(32)),), {}


def swiglu_fn(x):
    a, b = x.chunk(2, -1)
    return F.silu(a) * b


@op("swiglu", swiglu_fn, swiglu_inputs, bugs="swapped", tags="func")
def swiglu(A, x):
    x = A.input(x)
    h = x.shape[-1] // 2
    a, b = x[..., :h], x[..., h:]
    if A.bug == "swapped":
        a, b = b, a
    return a / (1 + A.exp(-a)) * b


# ---- gradients -------------------------------------------------------------------------


@op(
    "tanh_backward",
    aten.tanh_backward,
    lambda g: ((g.w(40, 64), torch.tanh(g.x(40, 64))), {}),
    bugs="square",
    tags="alt",
)
def tanh_backward(A, g, y):
    g, y = A.input(g), A.input(y)
    if A.alt:
        return g * ((1 - y) * (1 + y))
    return g * (1 - y) if A.bug == "square" else g * (1 - y * y)


@op(
    "sigmoid_backward",
    aten.sigmoid_backward,
    lambda g: ((g.w(40, 64), torch.sigmoid(g.x(40, 64))), {}),
    bugs="dropped",
    tags="alt",
)
def sigmoid_backward(A, g, y):
    g, y = A.input(g), A.input(y)
    if A.alt:
        return g * y - (g * y) * y
    return g * y if A.bug == "dropped" else g * (1 - y) * y


@op("silu_backward", aten.silu_backward, gradient, bugs="dropped", tags="func alt")
def silu_backward(A, g, x):
    g, x = A.input(g), A.input(x)
    s = A.sigmoid(x)
    if A.alt:
        return g * (s + x * s * (1 - s))
    return g * s if A.bug == "dropped" else g * (s * (1 + x * (1 - s)))


@op("gelu_backward", aten.gelu_backward, gradient, bugs="tanh dropped", tags="func")
def gelu_backward(A, g, x):
    g, x = A.input(g), A.input(x)
    if A.bug == "tanh":
        t = A.tanh(C0 * (x + 0.044715 * (x * x * x)))
        inner = C0 * (1 + 3 * 0.044715 * (x * x))
        return g * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner)
    cdf = 0.5 * (1 + A.erf(x * math.sqrt(0.5)))
    pdf = A.exp(-0.5 * (x * x)) * (1 / math.sqrt(2 * math.pi))
    return g * cdf if A.bug == "dropped" else g * (cdf + x * pdf)


@op("softplus_backward", lambda g, x: aten.softplus_backward(g, x, 1, 20), gradient, tags="func")
def softplus_backward(A, g, x):
    g, x = A.input(g), A.input(x)
    e = A.exp(x)
    return A.where(x.v > 20, g, g * e / (e + 1))


@op("elu_backward", lambda g, x: aten.elu_backward(g, 1.0, 1, 1, False, x), gradient, tags="func", bugs="atzero")
def elu_backward(A, g, x):
    g, x = A.input(g), A.input(x)
    if A.bug == "atzero":  # the gradient of relu
        return A.where(x.v > 0, g, 0.0)
    return A.where(x.v > 0, g, g * A.exp(x))


@op("hardswish_backward", aten.hardswish_backward, gradient, bugs="dropped")
def hardswish_backward(A, g, x):
    g, x = A.input(g), A.input(x)
    inner = g * (x / 3 if A.bug == "dropped" else x / 3 + 0.5)
    return A.where(x.v <= -3, 0.0, A.where(x.v >= 3, g, inner))


# ---- casts and complex numbers -----------------------------------------------------------


@op("to_bf16", lambda x: x.to(torch.bfloat16), one, tags="move cast", dtypes=("f32",))
def to_bf16(A, x):
    return A.input(x)


@op("to_f16", lambda x: x.to(torch.float16), one, tags="move cast", dtypes=("f32",))
def to_f16(A, x):
    return A.input(x)


@op(
    "complex_mul",
    lambda a, b: torch.view_as_real(torch.view_as_complex(a) * torch.view_as_complex(b)),
    lambda g: ((g.n(30, 20, 2), g.n(30, 20, 2)), {}),
    bugs="conjugate",
    dtypes=("f32",),
    profiles=("normal",),
)
def complex_mul(A, a, b):
    a, b = A.input(a), A.input(b)
    ar, ai, br, bi = a[..., :1], a[..., 1:], b[..., :1], b[..., 1:]
    s = -1 if A.bug == "conjugate" else 1
    return A.cat([ar * br - s * (ai * bi), s * (ar * bi) + ai * br])


@op("hypot", torch.hypot, two, tags="func", profiles=("normal", "offset", "ties", "awkward", "heavy"))
def hypot(A, x, y):
    x, y = A.input(x), A.input(y)
    return A.sqrt(x * x + y * y)


@op("atan2", torch.atan2, two)
def atan2(A, x, y):
    x, y = A.input(x), A.input(y)
    return A.apply(lambda v: np.arctan2(v, y.v), x)
