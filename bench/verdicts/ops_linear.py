# SPDX-License-Identifier: Apache-2.0
"""Contractions: products of matrices, attention, convolutions, pooling, resampling, and their
gradients; transforms and solvers of small systems."""

import numpy as np
import torch
import torch.nn.functional as F

from .op import op
from .ops_reduce import with_grad
from .profiles import PROFILES

DOT = "drop_last drop_part"
FINITE = tuple(p for p in PROFILES if p != "infnan")
aten = torch.ops.aten


@op(
    "mm", torch.mm, lambda g: ((g.x(g.size(20), g.size(96)), g.w(g.size(96), g.size(24))), {}), bugs=DOT, tags="sum dot"
)
def mm(A, a, b):
    return A.mm(A.input(a), A.input(b))


@op(
    "bmm",
    torch.bmm,
    lambda g: ((g.x(4, g.size(10), g.size(48)), g.w(4, g.size(48), 12)), {}),
    bugs="batch",
    tags="sum dot",
)
def bmm(A, a, b):
    b = A.input(b)
    return A.mm(A.input(a), b[[0, 1, 2, 2]] if A.bug == "batch" else b)


def linear_inputs(g):
    k, n = g.size(96), g.size(20)
    return (g.x(g.size(16), k), g.w(n, k), g.n(n)), {}


@op("linear", F.linear, linear_inputs, bugs="nobias drop_last", tags="sum dot")
def linear(A, x, w, b):
    y = A.mm(A.input(x), A.input(w).swap(0, 1))
    return y if A.bug == "nobias" else y + A.input(b)


@op(
    "linear_backward",
    with_grad(F.linear, 3),
    lambda g: ((*linear_inputs(g)[0], g.n(g.size(16), g.size(20))), {}),
    bugs="drop_last",
    tags="sum dot",
)
def linear_backward(A, x, w, b, g):
    x, w, g = A.input(x), A.input(w), A.input(g)
    return A.mm(g, w), A.mm(g.swap(0, 1), x), A.sum(g, 0, keep=False)


@op(
    "addmm",
    torch.addmm,
    lambda g: ((g.n(g.size(20)), g.x(g.size(12), 64), g.w(64, g.size(20))), {"beta": 0.5, "alpha": 2.0}),
    bugs="beta alpha",
    tags="sum dot",
)
def addmm(A, c, a, b, beta, alpha):
    beta = 1.0 if A.bug == "beta" else beta
    alpha = 1.0 if A.bug == "alpha" else alpha
    return beta * A.input(c) + alpha * A.mm(A.input(a), A.input(b))


@op("mv", torch.mv, lambda g: ((g.x(g.size(40), g.size(300)), g.w(g.size(300))), {}), bugs=DOT, tags="sum dot")
def mv(A, a, b):
    return A.dot(A.input(a), A.input(b))


@op(
    "einsum_bhd",
    lambda a, b: torch.einsum("bhd,khd->bhk", a, b),
    lambda g: ((g.x(6, 4, g.size(32)), g.w(8, 4, g.size(32))), {}),
    bugs="drop_last",
    tags="sum dot",
)
def einsum_bhd(A, a, b):
    a, b = A.input(a), A.input(b)
    return A.dot(a[:, :, None, :], b.swap(0, 1)[None])


@op("outer", torch.outer, lambda g: ((g.x(g.size(50)), g.w(g.size(60))), {}))
def outer(A, a, b):
    return A.input(a)[:, None] * A.input(b)[None]


# ---- attention --------------------------------------------------------------------------


def heads(g, causal=True):
    n, d = g.size(24), 16
    return (g.x(2, 2, n, d), g.w(2, 2, n, d), g.w(2, 2, n, d)), {}


def attention_fn(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def scores(A, q, k):
    n, m, d = q.shape[-2], k.shape[-2], q.shape[-1]
    factor = 1 / d if A.bug == "scale" else 1 / np.sqrt(d)
    s = A.mm(q * factor, k.swap(-1, -2)) if A.alt else A.mm(q, k.swap(-1, -2)) * factor
    mask = np.tril(np.ones((n, m)), {"shifted": 1, "strict": -1}.get(A.bug, 0)) > 0
    if A.bug == "groups":  # one mask for four queries
        mask = mask[np.minimum(np.arange(n) // 4 * 4 + 3, n - 1)]
    if A.bug == "strict":
        mask[0, 0] = True
    return A.where(mask, s, -np.inf)


@op("attention_causal", attention_fn, heads, bugs="scale shifted strict groups", tags="sum dot func softmax alt")
def attention_causal(A, q, k, v):
    q, k, v = A.input(q), A.input(k), A.input(v)
    if A.alt:  # divided at the end, as flash attention does
        s = scores(A, q, k)
        e = A.exp(s - A.max(s))
        return A.mm(e, v) / A.sum(e)
    return A.mm(A.softmax(scores(A, q, k)), v)


@op(
    "attention_backward",
    with_grad(attention_fn, 3),
    lambda g: ((*heads(g)[0], g.n(2, 2, g.size(24), 16)), {}),
    bugs="nosum scale",
    tags="sum dot func softmax",
    profiles=FINITE,
)
def attention_backward(A, q, k, v, g):
    q, k, v, g = (A.input(t) for t in (q, k, v, g))
    bug, A.bug = A.bug, "" if A.bug == "scale" else A.bug
    p = A.softmax(scores(A, q, k))
    dp = A.mm(g, v.swap(-1, -2))
    ds = p * dp if bug == "nosum" else p * (dp - A.sum(p * dp))
    ds = ds if bug == "scale" else ds * (1 / np.sqrt(q.shape[-1]))
    A.bug = bug
    return A.mm(ds, k), A.mm(ds.swap(-1, -2), q), A.mm(p.swap(-1, -2), g)


@op(
    "attention_gqa",
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
    lambda g: ((g.x(2, 4, 12, 16), g.w(2, 2, g.size(20), 16), g.w(2, 2, g.size(20), 16)), {}),
    bugs="heads drop_last",
    tags="sum dot func softmax",
)
def attention_gqa(A, q, k, v):
    q, k, v = A.input(q), A.input(k), A.input(v)
    of = [0, 1, 0, 1] if A.bug == "heads" else [0, 0, 1, 1]
    k, v = k[:, of], v[:, of]
    return A.mm(A.softmax(A.mm(q, k.swap(-1, -2)) * 0.25), v)


def rope_fn(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


def rope_inputs(g):
    angle = torch.arange(g.size(20))[:, None] * 10000.0 ** (-torch.arange(16) / 16)
    angle = torch.cat([angle, angle], -1)
    return (g.x(3, g.size(20), 32), angle.cos().to(g.dtype), angle.sin().to(g.dtype)), {}


@op("rope", rope_fn, rope_inputs, bugs="sign interleaved")
def rope(A, x, cos, sin):
    x, cos, sin = A.input(x), A.input(cos), A.input(sin)
    a, b = x[..., :16], x[..., 16:]
    if A.bug == "interleaved":
        a, b = x[..., 0::2], x[..., 1::2]
    turned = A.cat([b, -a] if A.bug == "sign" else [-b, a])
    return x * cos + turned * sin


# ---- convolutions and pooling --------------------------------------------------------------


def windows(v, k, stride=1, pad=0, dilation=1, fill=0.0):
    """[n, c, h, w] as [n, c, ho, wo, k, k]."""
    v = np.pad(v, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=fill)
    span = dilation * (k - 1) + 1
    w = np.lib.stride_tricks.sliding_window_view(v, (span, span), axis=(2, 3))
    return w[:, :, ::stride, ::stride, ::dilation, ::dilation]


def conv_of(A, x, w, stride=1, pad=0, dilation=1):
    """Convolution as a product over (c, k, k)."""
    cols = windows(x.v, w.shape[-1], stride, pad, dilation)
    n, c, ho, wo, k, _ = cols.shape
    cols = A.like(cols.transpose(0, 2, 3, 1, 4, 5).reshape(n, ho, wo, 1, c * k * k))
    return A.dot(cols, w.reshape(w.shape[0], -1)).swap(1, 3).swap(2, 3)


BT = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1.0]])
G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1.0]])
AT = np.array([[1, 1, 1, 0], [0, 1, -1, -1.0]])


def sandwich(A, m, x):
    """m x m^T over the last two axes."""
    m = A(m)
    y = A.mm(A.like(np.broadcast_to(m.v, (*x.shape[:-2], *m.shape))), x)
    return A.mm(y, A.like(np.broadcast_to(m.v.T, (*x.shape[:-2], *m.v.T.shape))))


def winograd(A, x, w):
    """A 3 x 3 convolution with padding 1 in tiles of F(2 x 2, 3 x 3)."""
    n, c, h, width = x.shape
    tall, wide = -(-h // 2), -(-width // 2)
    padded = np.pad(x.v, ((0, 0), (0, 0), (1, 1 + 2 * tall - h), (1, 1 + 2 * wide - width)))
    tiles = np.lib.stride_tricks.sliding_window_view(padded, (4, 4), axis=(2, 3))[:, :, ::2, ::2]
    d, g = sandwich(A, BT, A.like(tiles)), sandwich(A, G, w)
    m = A.sum(A.products(d[:, None], g[None, :, :, None, None]), 2, keep=False)
    y = sandwich(A, AT, m).v.transpose(0, 1, 2, 4, 3, 5)
    return A.like(y.reshape(n, w.shape[0], 2 * tall, 2 * wide)[:, :, :h, :width])


def conv_inputs(g):
    return (g.x(2, 5, g.size(11), g.size(11)), g.w(6, 5, 3, 3), g.n(6)), {}


@op(
    "conv2d",
    lambda x, w, b: F.conv2d(x, w, b, padding=1),
    conv_inputs,
    bugs="nobias pad flipped drop_last",
    tags="sum dot winograd",
)
def conv2d(A, x, w, b):
    x, w, b = A.input(x), A.input(w), A.input(b)
    w = w[..., ::-1, ::-1] if A.bug == "flipped" else w
    if A.alt:
        return winograd(A, x, w) + b.reshape(-1, 1, 1)
    if A.bug == "pad":  # the border is repeated instead of zero
        x = A.like(np.pad(x.v, ((0, 0), (0, 0), (1, 1), (1, 1)), mode="edge"))
        return conv_of(A, x, w) + b.reshape(-1, 1, 1)
    y = conv_of(A, x, w, pad=1)
    return y if A.bug == "nobias" else y + b.reshape(-1, 1, 1)


@op(
    "conv2d_strided",
    lambda x, w: F.conv2d(x, w, stride=2, dilation=2),
    lambda g: (conv_inputs(g)[0][:2], {}),
    bugs="dilation",
    tags="sum dot",
)
def conv2d_strided(A, x, w):
    x, w = A.input(x), A.input(w)
    if A.bug == "dilation":
        ho = (x.shape[-2] - 5) // 2 + 1, (x.shape[-1] - 5) // 2 + 1
        return conv_of(A, x, w, stride=2, dilation=1)[:, :, : ho[0], : ho[1]]
    return conv_of(A, x, w, stride=2, dilation=2)


@op(
    "conv2d_input_grad",
    with_grad(lambda x, w: F.conv2d(x, w, padding=1), 1),
    lambda g: ((*conv_inputs(g)[0][:2], g.n(2, 6, g.size(11), g.size(11))), {}),
    bugs="unflipped",
    tags="sum dot",
)
def conv2d_input_grad(A, x, w, g):
    w, g = A.input(w), A.input(g)
    w = w if A.bug == "unflipped" else w[..., ::-1, ::-1]
    return (conv_of(A, g, w.swap(0, 1), pad=1),)


@op(
    "conv2d_weight_grad",
    with_grad(lambda w, x: F.conv2d(x, w, padding=1), 1),
    lambda g: (lambda a: ((a[1], a[0], g.n(2, 6, g.size(11), g.size(11))), {}))(conv_inputs(g)[0]),
    bugs="drop_last drop_part",
    tags="sum dot",
)
def conv2d_weight_grad(A, w, x, g):
    x, g = A.input(x), A.input(g)
    cols = windows(x.v, 3, pad=1)  # n c h w k k
    cols = A.like(cols.transpose(1, 4, 5, 0, 2, 3).reshape(1, x.shape[1], 3, 3, -1))
    rows = g.swap(0, 1).reshape(g.shape[1], -1)
    return (A.dot(cols, rows[:, None, None, None, :]),)


@op(
    "conv1d_depthwise",
    lambda x, w: F.conv1d(x, w, padding=3, groups=8)[..., :-3],
    lambda g: ((g.x(3, 8, g.size(40)), g.w(8, 1, 4)), {}),
    bugs="reversed acausal",
    tags="sum dot",
)
def conv1d_depthwise(A, x, w):
    x, w = A.input(x), A.input(w)
    w = w[..., ::-1] if A.bug == "reversed" else w
    left = 2 if A.bug == "acausal" else 3
    padded = np.pad(x.v, ((0, 0), (0, 0), (left, 3 - left)))
    cols = np.lib.stride_tricks.sliding_window_view(padded, 4, axis=-1)
    return A.dot(A.like(cols), w[:, 0][:, None, :])


def one_image(g):
    return (g.x(2, 4, 2 * g.size(7), 2 * g.size(7)),), {}


@op("avg_pool2d", lambda x: F.avg_pool2d(x, 3, 2, 1), one_image, bugs="count", tags="sum")
def avg_pool2d(A, x):
    x = A.input(x)
    cols = windows(x.v, 3, 2, 1)
    s = A.sum(A.like(cols.reshape(*cols.shape[:4], 9)), -1, keep=False)
    if A.bug == "count":  # padding not counted
        ones = windows(np.ones(x.shape), 3, 2, 1).sum((-1, -2))
        return s / A.like(ones)
    return s / 9.0


@op(
    "avg_pool2d_backward",
    with_grad(lambda x: F.avg_pool2d(x, 2, 2), 1),
    lambda g: ((*one_image(g)[0], g.x(2, 4, g.size(7), g.size(7))), {}),
    bugs="nodivide",
)
def avg_pool2d_backward(A, x, g):
    g = A.input(g)
    g = g if A.bug == "nodivide" else g / 4.0
    return (A.like(np.repeat(np.repeat(g.v, 2, 2), 2, 3)),)


@op("max_pool2d", lambda x: F.max_pool2d(x, 3, 2, 1), one_image, bugs="zeropad", tags="move")
def max_pool2d(A, x):
    fill = 0.0 if A.bug == "zeropad" else -np.inf
    return A.like(windows(A.input(x).v, 3, 2, 1, fill=fill).max((-1, -2)))


def taps(n, corners):
    """Positions and weights of bilinear upsampling by two along one axis."""
    at = np.arange(2 * n) * (n - 1) / (2 * n - 1) if corners else (np.arange(2 * n) + 0.5) / 2 - 0.5
    at = np.maximum(at, 0)
    low = np.floor(at).astype(int)
    return low, np.minimum(low + 1, n - 1), at - low


@op(
    "upsample_bilinear",
    lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False),
    one_image,
    bugs="corners",
)
def upsample_bilinear(A, x):
    x = A.input(x)
    r0, r1, rw = taps(x.shape[2], A.bug == "corners")
    c0, c1, cw = taps(x.shape[3], A.bug == "corners")
    rw = rw[:, None]
    top = (1 - cw) * x[:, :, r0][..., c0] + cw * x[:, :, r0][..., c1]
    low = (1 - cw) * x[:, :, r1][..., c0] + cw * x[:, :, r1][..., c1]
    return (1 - rw) * top + rw * low


# ---- transforms and solvers -----------------------------------------------------------------


@op(
    "rfft",
    lambda x: torch.view_as_real(torch.fft.rfft(x)),
    lambda g: ((g.x(6, 32),), {}),
    bugs="inverse",
    tags="sum dot",
    dtypes=("f32",),
    profiles=("normal", "offset", "heavy", "ties", "cancel", "small"),
)
def rfft(A, x):
    x = A.input(x)
    angle = 2 * np.pi * np.outer(np.arange(17), np.arange(32)) / 32
    sine = np.sin(angle) if A.bug == "inverse" else -np.sin(angle)
    parts = [A.dot(x[:, None, :], A(m)[None]) for m in (np.cos(angle), sine)]
    return A.like(np.stack([p.v for p in parts], -1))


def triangle(g):
    return (torch.tril(0.3 * g.n(16, 16)) + 2 * torch.eye(16), g.x(16, 5)), {}


@op(
    "solve_triangular",
    lambda a, b: torch.linalg.solve_triangular(a, b, upper=False),
    triangle,
    bugs="unit",
    tags="order",
    dtypes=("f32",),
    profiles=("normal", "heavy", "ties", "wide"),
)
def solve_triangular(A, a, b):
    a, b = A.input(a), A.input(b)
    rows = []
    for i in range(16):
        y = b[i : i + 1]
        for j in range(i):
            y = y - a[i, j] * rows[j]
        rows.append(y if A.bug == "unit" else y / a[i, i])
    return A.cat(rows, 0)


@op(
    "cholesky",
    torch.linalg.cholesky,
    lambda g: (lambda m: ((m @ m.T + 8 * torch.eye(12),), {}))(g.n(12, 12)),
    bugs="",
    tags="order",
    dtypes=("f32",),
    profiles=("normal",),
)
def cholesky(A, m):
    m = A.input(m)
    low = A.like(np.zeros((12, 12)))
    for j in range(12):
        s = m[j:, j : j + 1]
        for k in range(j):
            s = s - low[j:, k : k + 1] * low[j, k]
        column = s / A.sqrt(s[0])
        low.v[j:, j] = column.v[:, 0]
    return low
