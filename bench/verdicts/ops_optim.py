# SPDX-License-Identifier: Apache-2.0
"""Optimizer steps. Written out as functions that return the new state, and once as torch's
own fused operator, which writes its arguments."""

import math

import torch

from .op import op

aten = torch.ops.aten
NORMAL = ("normal", "wide", "zeros", "heavy", "small", "ties", "awkward", "cancel")


def state(g, n=400):
    n = g.size(n)
    return (g.n(n), g.x(n), 0.1 * g.n(n), 0.01 * g.n(n).abs()), {}


def adamw_fn(p, g, m, v, lr=1e-2, b1=0.9, b2=0.999, eps=1e-8, decay=0.1, step=5):
    p = p * (1 - lr * decay)
    m = m + (g - m) * (1 - b1)
    v = v * b2 + (1 - b2) * g * g
    root = v.sqrt() / math.sqrt(1 - b2**step) + eps
    return p - (lr / (1 - b1**step)) * (m / root), m, v


@op(
    "adamw_step",
    adamw_fn,
    state,
    bugs="step eps_in coupled nocorrection swapped",
    profiles=NORMAL,
    dtypes=("f32", "bf16"),
    tags="alt",
)
def adamw(A, p, g, m, v):
    p, g, m, v = (A.input(t) for t in (p, g, m, v))
    return adamw_of(A, p, g, m, v, 5.0)


def adamw_of(A, p, g, m, v, step, lr=1e-2, b1=0.9, b2=0.999, eps=1e-8, decay=0.1):
    """AdamW on values; the bugs are those of real backends."""
    step += A.bug == "step"
    if A.bug == "coupled":  # L2 regularisation
        g = g + decay * p
    else:
        p = p * (1 - lr * decay)
    if A.alt:
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        return p - lr * (m / (1 - b1**step)) / (A.sqrt(v / (1 - b2**step)) + eps), m, v
    m = m + (g - m) * ((1 - b2) if A.bug == "swapped" else (1 - b1))
    v = v * b2 + (1 - b2) * (g * g)
    c1, c2 = (1.0, 1.0) if A.bug == "nocorrection" else (1 - b1**step, 1 - b2**step)
    if A.bug == "eps_in":
        root = A.sqrt(v + eps) / math.sqrt(c2)
    else:
        root = A.sqrt(v) / math.sqrt(c2) + eps
    return p - (lr / c1) * (m / root), m, v


def fused_fn(p, g, m, v):
    aten._fused_adamw_(
        [p],
        [g],
        [m],
        [v],
        [],
        [torch.tensor(5.0)],
        lr=1e-2,
        beta1=0.9,
        beta2=0.999,
        weight_decay=0.1,
        eps=1e-8,
        amsgrad=False,
        maximize=False,
    )
    return p, m, v


@op("adamw_fused", fused_fn, state, bugs="step coupled", profiles=NORMAL, dtypes=("f32",), mutates=True, tags="alt")
def adamw_fused(A, p, g, m, v):
    p, g, m, v = (A.input(t) for t in (p, g, m, v))
    return adamw_of(A, p, g, m, v, 5.0)


def sgd_fn(p, g, m):
    m = 0.9 * m + (g + 0.01 * p)
    return p - 0.1 * m, m


@op("sgd_momentum", sgd_fn, lambda g: (state(g)[0][:3], {}), bugs="nodecay dampened", profiles=NORMAL)
def sgd_momentum(A, p, g, m):
    p, g, m = (A.input(t) for t in (p, g, m))
    d = g if A.bug == "nodecay" else g + 0.01 * p
    m = 0.9 * m + ((1 - 0.9) * d if A.bug == "dampened" else d)
    return p - 0.1 * m, m


def rmsprop_fn(p, g, v):
    v = 0.99 * v + (1 - 0.99) * g * g
    return p - 1e-2 * g / (v.sqrt() + 1e-8), v


@op(
    "rmsprop_step",
    rmsprop_fn,
    lambda g: ((state(g)[0][0], state(g)[0][1], state(g)[0][3]), {}),
    bugs="eps_in",
    profiles=NORMAL,
)
def rmsprop(A, p, g, v):
    p, g, v = (A.input(t) for t in (p, g, v))
    v = 0.99 * v + (1 - 0.99) * (g * g)
    root = A.sqrt(v + 1e-8) if A.bug == "eps_in" else A.sqrt(v) + 1e-8
    return p - 1e-2 * (g / root), v


@op(
    "clip_norm",
    lambda g: g * torch.clamp(1.0 / (g.norm() + 1e-6), max=1.0),
    lambda g: ((g.x(g.size(900)),), {}),
    bugs="noclamp drop_part",
    tags="sum",
    profiles=NORMAL,
)
def clip_norm(A, g):
    g = A.input(g)
    norm = A.sqrt(A.sum(g * g, None))
    factor = 1.0 / (norm + 1e-6)
    return g * (factor if A.bug == "noclamp" else A.minimum(factor, 1.0))


@op(
    "ema_update",
    lambda a, b: a * 0.999 + b * (1 - 0.999),
    lambda g: ((g.x(500), g.n(500)), {}),
    bugs="swapped",
    profiles=NORMAL,
)
def ema(A, a, b):
    a, b = A.input(a), A.input(b)
    return a * (1 - 0.999) + b * 0.999 if A.bug == "swapped" else a * 0.999 + b * (1 - 0.999)
