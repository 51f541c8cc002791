# SPDX-License-Identifier: Apache-2.0
"""Reductions, normalisations, softmax and losses, with gradients."""

import numpy as np
import torch
import torch.nn.functional as F

from .op import op

aten = torch.ops.aten
SUM = "drop_last drop_part"


def rows(g, n=96):
    return (g.x(g.size(12), g.size(n)),), {}


def rows_and(g, *more, n=96):
    return (g.x(g.size(12), g.size(n)), *more), {}


# ---- sums ------------------------------------------------------------------------------


@op("sum_dim", lambda x: x.sum(-1), lambda g: rows(g, 500), bugs=SUM + " twice_last", tags="sum")
def sum_dim(A, x):
    return A.sum(A.input(x), -1, keep=False)


@op("sum_all", lambda x: x.sum(), lambda g: ((g.x(g.size(60), g.size(70)),), {}), bugs=SUM, tags="sum")
def sum_all(A, x):
    return A.sum(A.input(x), None, keep=False).reshape(())


@op(
    "mean_dim", lambda x: x.mean(0), lambda g: ((g.x(g.size(300), g.size(24)),), {}), bugs="drop_last count", tags="sum"
)
def mean_dim(A, x):
    x = A.input(x)
    n = x.shape[0] - (A.bug == "count")
    return A.sum(x, 0, keep=False) / float(n)


@op("var", lambda x: x.var(-1), lambda g: rows(g, 200), bugs="biased onepass", tags="sum moments")
def var(A, x):
    return A.moments(A.input(x), -1, 1)[1][..., 0]


@op("std_unbiased0", lambda x: x.std(-1, correction=0), lambda g: rows(g, 200), bugs="biased", tags="sum moments")
def std(A, x):
    return A.sqrt(A.moments(A.input(x), -1, 0)[1][..., 0])


@op(
    "norm2",
    lambda x: torch.linalg.vector_norm(x, dim=-1),
    lambda g: rows(g, 200),
    bugs="drop_last",
    tags="sum alt squares",
)
def norm2(A, x):
    x = A.input(x)
    if A.alt:  # scaled against overflow
        top = A.max(abs(x))
        top = A.where((top.v == 0) | ~np.isfinite(top.v), 1.0, top)
        return (top * A.sqrt(A.sum((x / top) * (x / top), -1)))[..., 0]
    return A.sqrt(A.sum(x * x, -1, keep=False))


@op("logsumexp", lambda x: torch.logsumexp(x, -1), rows, bugs=SUM, tags="sum func")
def logsumexp(A, x):
    x = A.input(x)
    top = A.max(x)
    top = A.where(np.isinf(top.v), 0.0, top)
    return (A.log(A.sum(A.exp(x - top))) + top)[..., 0]


@op("prod", lambda x: x.prod(-1), lambda g: rows(g, 12), bugs="", tags="order")
def prod(A, x):
    return A.prod(A.input(x), -1)


@op("cumsum", lambda x: x.cumsum(-1), lambda g: rows(g, 64), bugs="exclusive", tags="acc")
def cumsum(A, x):
    x = A.input(x)
    y = A.cumsum(x, -1)
    return y - x if A.bug == "exclusive" else y


@op("amax", lambda x: x.amax(-1), rows, tags="move", bugs="skip_last")
def amax(A, x):
    x = A.input(x)
    return A.max(x[..., :-1] if A.bug == "skip_last" else x)[..., 0]


# ---- softmax -----------------------------------------------------------------------------


@op("softmax", lambda x: torch.softmax(x, -1), rows, bugs=SUM + " nomax base2", tags="sum func softmax alt")
def softmax(A, x):
    x = A.input(x)
    if A.bug == "nomax":
        e = A.exp(x)
        return e / A.sum(e)
    return A.softmax(x * 1.4427 if A.bug == "base2" else x)


@op("log_softmax", lambda x: torch.log_softmax(x, -1), rows, bugs="drop_last", tags="sum func alt")
def log_softmax(A, x):
    return log_softmax_of(A, A.input(x))


def log_softmax_of(A, x):
    d = x - A.max(x)
    if A.alt:
        return x - (A.max(x) + A.log(A.sum(A.exp(d))))
    return d - A.log(A.sum(A.exp(d)))


@op(
    "masked_softmax",
    lambda x, m: torch.softmax(x.masked_fill(~m, float("-inf")), -1),
    lambda g: ((g.x(g.size(40), g.size(40)), torch.ones(g.size(40), g.size(40)).tril().bool()), {}),
    bugs="shifted drop_last finite",
    tags="sum func softmax",
)
def masked_softmax(A, x, m):
    m = m.numpy()
    if A.bug == "shifted":
        m = np.tril(np.ones(m.shape), 1) > 0
    return A.softmax(A.where(m, A.input(x), -10.0 if A.bug == "finite" else -np.inf))


def probabilities(g):
    return (g.w(g.size(12), g.size(96)), torch.softmax(g.x(g.size(12), g.size(96)).float(), -1).to(g.dtype)), {}


@op(
    "softmax_backward",
    lambda g, y: aten._softmax_backward_data(g, y, -1, y.dtype),
    probabilities,
    bugs="nosum " + SUM,
    tags="sum alt",
)
def softmax_backward(A, g, y):
    g, y = A.input(g), A.input(y)
    if A.alt:
        return g * y - y * A.sum(g * y)
    return g * y if A.bug == "nosum" else y * (g - A.sum(g * y))


@op(
    "log_softmax_backward",
    lambda g, y: aten._log_softmax_backward_data(g, y, -1, y.dtype),
    lambda g: ((g.w(12, 96), torch.log_softmax(g.x(12, 96).float(), -1).to(g.dtype)), {}),
    bugs="nosum drop_last",
    tags="sum func",
)
def log_softmax_backward(A, g, y):
    g, y = A.input(g), A.input(y)
    return g if A.bug == "nosum" else g - A.exp(y) * A.sum(g)


# ---- normalisations ------------------------------------------------------------------------


def affine(g, n=96):
    n = g.size(n)
    return (g.x(g.size(12), n), g.n(n), g.n(n)), {}


@op(
    "layer_norm",
    lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b, 1e-5),
    affine,
    bugs="biased eps_out eps_big onepass drop_last nobias",
    tags="sum moments rms alt",
)
def layer_norm(A, x, w, b):
    x, w, b = A.input(x), A.input(w), A.input(b)
    mean, variance = A.moments(x)
    r = inverse_std(A, variance, 1e-5)
    if A.alt:  # one scale and one shift
        return (x * r + -mean * r) * w + b
    y = (x - mean) * r * w
    return y if A.bug == "nobias" else y + b


def inverse_std(A, variance, eps):
    if A.bug == "eps_out":
        return 1 / (A.sqrt(variance) + eps)
    if A.bug == "eps_none":
        eps = 0.0
    return A.rsqrt(variance + (eps * 100 if A.bug == "eps_big" else eps))


@op(
    "rms_norm",
    lambda x, w: F.rms_norm(x, x.shape[-1:], w, 1e-6),
    lambda g: (affine(g, 128)[0][:2], {}),
    bugs="eps_out eps_big drop_last drop_part centred",
    tags="sum rms alt",
)
def rms_norm(A, x, w):
    x, w = A.input(x), A.input(w)
    if A.bug == "centred":
        x = x - A.mean(x)
    r = inverse_std(A, A.mean(x * x), 1e-6)
    return (x * w) * r if A.alt else x * r * w


@op(
    "rms_norm_plus1",
    lambda x, w: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * (1 + w),
    lambda g: (affine(g, 128)[0][:2], {}),
    bugs="plain",
    tags="sum rms",
)
def rms_norm_plus1(A, x, w):
    x, w = A.input(x), A.input(w)
    y = x * A.rsqrt(A.mean(x * x) + 1e-6)
    return y * w if A.bug == "plain" else y * (1 + w)


def images(g, c=6):
    return (g.x(4, c, g.size(8), g.size(8)), g.n(c), g.n(c)), {}


@op(
    "batch_norm",
    lambda x, w, b: F.batch_norm(x, None, None, w, b, True, 0.1, 1e-5),
    images,
    bugs="biased eps_big onepass",
    tags="sum moments rms alt",
)
def batch_norm(A, x, w, b):
    x, w, b = A.input(x), A.input(w).reshape(-1, 1, 1), A.input(b).reshape(-1, 1, 1)
    mean, variance = A.moments(x, (0, 2, 3))
    if A.alt:
        scale = inverse_std(A, variance, 1e-5) * w
        return x * scale + (b - mean * scale)
    return (x - mean) * inverse_std(A, variance, 1e-5) * w + b


@op(
    "batch_norm_eval",
    lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b, False, 0.1, 1e-5),
    lambda g: ((images(g)[0][0], g.n(6), g.n(6).abs() + 0.5, *images(g)[0][1:]), {}),
    bugs="eps_big nomean",
    tags="rms alt",
)
def batch_norm_eval(A, x, m, v, w, b):
    x = A.input(x)
    m, v, w, b = (A.input(t).reshape(-1, 1, 1) for t in (m, v, w, b))
    if A.alt:
        scale = inverse_std(A, v, 1e-5) * w
        return x * scale + (b - m * scale)
    return (x if A.bug == "nomean" else x - m) * inverse_std(A, v, 1e-5) * w + b


@op("group_norm", lambda x, w, b: F.group_norm(x, 3, w, b, 1e-5), images, bugs="biased groups", tags="sum moments rms")
def group_norm(A, x, w, b):
    x, w, b = A.input(x), A.input(w).reshape(-1, 1, 1), A.input(b).reshape(-1, 1, 1)
    groups = 2 if A.bug == "groups" else 3
    h = x.reshape(x.shape[0], groups, -1)
    mean, variance = A.moments(h)
    return ((h - mean) * inverse_std(A, variance, 1e-5)).reshape(*x.shape) * w + b


def with_grad(fn, n):
    """The gradients of fn for its first n arguments; the last argument is the cotangent."""

    def run(*args):
        leaves = [a.detach().requires_grad_() for a in args[:n]]
        with torch.enable_grad():
            y = fn(*leaves, *args[n:-1])
            return torch.autograd.grad(y, leaves, args[-1])

    return run


def norm_backward_inputs(g):
    (x, w, b), _ = affine(g)
    return (x, w, b, g.n(*x.shape)), {}


@op(
    "layer_norm_backward",
    with_grad(lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b, 1e-5), 3),
    norm_backward_inputs,
    bugs="dropped biased drop_last",
    tags="sum moments rms",
)
def layer_norm_backward(A, x, w, b, g):
    x, w, g = A.input(x), A.input(w), A.input(g)
    mean, variance = A.moments(x)
    r = inverse_std(A, variance, 1e-5)
    h, gw = (x - mean) * r, g * w
    c1, c2 = A.mean(gw), A.mean(gw * h)
    dx = gw - c1 if A.bug == "dropped" else gw - c1 - h * c2
    return dx * r, A.sum(g * h, 0, keep=False), A.sum(g, 0, keep=False)


@op(
    "rms_norm_backward",
    with_grad(lambda x, w: F.rms_norm(x, x.shape[-1:], w, 1e-6), 2),
    lambda g: (lambda a: ((*a[:2], a[3]), {}))(norm_backward_inputs(g)[0]),
    bugs="dropped drop_last",
    tags="sum rms",
)
def rms_norm_backward(A, x, w, g):
    x, w, g = A.input(x), A.input(w), A.input(g)
    r = A.rsqrt(A.mean(x * x) + 1e-6)
    h, gw = x * r, g * w
    dx = gw if A.bug == "dropped" else gw - h * A.mean(gw * h)
    return dx * r, A.sum(g * h, 0, keep=False)


def batch_backward_inputs(g):
    (x, w, b), _ = images(g)
    return (x, w, b, g.n(*x.shape)), {}


@op(
    "batch_norm_backward",
    with_grad(lambda x, w, b: F.batch_norm(x, None, None, w, b, True, 0.1, 1e-5), 3),
    batch_backward_inputs,
    bugs="dropped biased",
    tags="sum moments rms",
)
def batch_norm_backward(A, x, w, b, g):
    x, w, g = A.input(x), A.input(w), A.input(g)
    axes, n = (0, 2, 3), float(x.v.size // x.shape[1])
    mean, variance = A.moments(x, axes)
    r = inverse_std(A, variance, 1e-5)
    h = (x - mean) * r
    dw, db = A.sum(g * h, axes), A.sum(g, axes)
    inner = g - db / n if A.bug == "dropped" else g - db / n - h * dw / n
    return inner * r * w.reshape(-1, 1, 1), dw.reshape(-1), db.reshape(-1)


# ---- losses ----------------------------------------------------------------------------------


def labelled(g, n=50):
    rows, n = g.size(24), g.size(n)
    target = g.ints(n, rows)
    target[::5] = -100
    return (g.x(rows, n), target), {}


@op("cross_entropy", F.cross_entropy, labelled, bugs="ignored count smooth drop_last", tags="sum func alt")
def cross_entropy(A, x, target):
    x, t = A.input(x), target.numpy()
    live = t >= 0
    y = log_softmax_of(A, x)
    at = np.where(live, t, 0)
    picked = y[np.arange(len(t)), at]
    if A.bug == "smooth":
        picked = 0.99 * picked + 0.01 * A.mean(y)[..., 0]
    if A.bug == "ignored":  # the mark is taken for class 0
        live = np.ones_like(live)
    n = len(t) if A.bug == "count" else int(live.sum())
    return -(A.sum(V_of(A, picked, live), None, keep=False).reshape(()) / float(n))


def V_of(A, value, live):
    return value[np.nonzero(live)[0]]


@op(
    "cross_entropy_backward",
    with_grad(lambda x, t: F.cross_entropy(x, t, reduction="sum"), 1),
    lambda g: ((*labelled(g)[0], g.n()), {}),
    bugs="ignored shifted",
    tags="sum func",
)
def cross_entropy_backward(A, x, target, g):
    x, t = A.input(x), target.numpy()
    live = t >= 0
    at = np.where(live, t, 0)
    if A.bug == "shifted":
        at = (at + 1) % x.shape[-1]
    hot = np.zeros(x.shape)
    hot[np.arange(len(t)), at] = 1
    keep = np.ones((len(t), 1)) if A.bug == "ignored" else live[:, None]
    return ((A.softmax(x) - hot) * A.input(g) * keep.astype(float),)


def pair(g):
    m, n = g.size(24), g.size(30)
    return (g.x(m, n), g.n(m, n)), {}


@op("mse_loss", F.mse_loss, pair, bugs="count drop_part sum", tags="sum squares")
def mse_loss(A, x, y):
    d = A.input(x) - A.input(y)
    s = A.sum(d * d, None, keep=False).reshape(())
    if A.bug == "sum":
        return s
    return s / float(d.v.size - (A.bug == "count") * 7)


@op("smooth_l1_none", lambda x, y: F.smooth_l1_loss(x, y, reduction="none"), pair, bugs="half")
def smooth_l1(A, x, y):
    d = abs(A.input(x) - A.input(y))
    c = 0.0 if A.bug == "half" else 0.5
    return A.where(d.v < 1, 0.5 * (d * d), d - c)


@op(
    "bce_with_logits",
    lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="none"),
    lambda g: ((g.x(g.size(24), 30), g.unit(g.size(24), 30)), {}),
    bugs="nosoft",
    tags="func alt",
)
def bce_with_logits(A, x, y):
    x, y = A.input(x), A.input(y)
    if A.alt:
        return A.maximum(x, 0.0) - x * y + A.log1p(A.exp(-abs(x)))
    hard = (1 - y) * x + A.maximum(-x, 0.0)
    return hard if A.bug == "nosoft" else hard + A.log1p(A.exp(-abs(x)))


@op(
    "kl_div",
    lambda x, y: F.kl_div(x, y, reduction="batchmean"),
    lambda g: ((torch.log_softmax(g.x(24, 30).float(), -1).to(g.dtype), g.unit(24, 30)), {}),
    bugs="count",
    tags="sum func",
)
def kl_div(A, x, y):
    x, y = A.input(x), A.input(y)
    s = A.sum(y * (A.log(y) - x), None, keep=False).reshape(())
    return s / float(y.v.size if A.bug == "count" else y.shape[0])


@op(
    "nll_gather",
    lambda x, t: -x.gather(1, t),
    lambda g: ((g.x(24, 40), g.ints(40, 24, 3)), {}),
    tags="move",
    bugs="shifted",
)
def nll_gather(A, x, t):
    x, t = A.input(x), t.numpy()
    t = (t + 1) % 40 if A.bug == "shifted" else t
    return -A(np.take_along_axis(x.v, t, 1))


@op(
    "cosine_similarity",
    lambda x, y: F.cosine_similarity(x, y, dim=-1),
    pair,
    bugs="drop_last",
    tags="sum",
    profiles=("normal", "offset", "heavy", "ties", "awkward", "cancel"),
)
def cosine_similarity(A, x, y):
    x, y = A.input(x), A.input(y)
    nx, ny = A.sqrt(A.sum(x * x)), A.sqrt(A.sum(y * y))
    return A.sum((x / A.maximum(nx, 1e-8)) * (y / A.maximum(ny, 1e-8)), -1, keep=False)
