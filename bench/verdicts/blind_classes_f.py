# SPDX-License-Identifier: Apache-2.0
"""Set F: results that are small or mostly zero, and kernels that store zeros, one value, one row for all
or what an earlier call left."""

import torch
import torch.nn.functional as F

from .blind import bf, hf, honest, mistake
from .blind_classes_a import classed, folded
from .blind_fourth_a import double, inside


def empty(fn):
    mistake(fn, "all are zero", lambda *args: torch.zeros_like(fn(*args)))


def constant(fn, value):
    mistake(fn, f"all are {value}", lambda *args: torch.full_like(fn(*args), value))


def one_row(fn, words="the first row in all rows", axis=0):
    def run(*args):
        out = fn(*args)
        return out.narrow(axis, 0, 1).expand_as(out).contiguous()

    mistake(fn, words, run)


def stale(fn, *which):
    """The arguments at `which` are those of another call: turned about and a little larger."""

    def run(*args):
        args = list(args)
        for i in which:
            a = args[i]
            args[i] = a.flip(0) * 1.25 if a.is_floating_point() else a.flip(0)
        return fn(*args)

    mistake(fn, "the numbers of the call before", run)


def some_tied(d, rows, n, tied, kind, top=4.0):
    """Rows whose largest element stands at `tied` places."""
    x = d(rows, n).clamp(max=3.5)
    return x.scatter(1, torch.argsort(d.rand(rows, n), 1)[:, :tied], top).to(kind)


# ------------------------------------------------------------------ gradients that are spread thinly


def max_gradient(g, x):
    hit = x == x.amax(-1, keepdim=True)
    return hit * (g[:, None] / hit.sum(-1, keepdim=True))


def amax_autograd(g, x):
    x = x.requires_grad_()
    x.amax(-1).backward(g)
    return x.grad


@classed(lambda d: (d(6, dtype=hf, shift=3.0), some_tied(d, 6, 9000, 8800, hf)))
def emptied_output_max_gradient_half(g, x):
    return max_gradient(g, x)


@classed(lambda d: (d(12, dtype=bf, scale=0.01, shift=0.05), some_tied(d, 12, 3000, 2500, bf)))
def emptied_output_max_gradient_bf16(g, x):
    return max_gradient(g, x)


for fn in (emptied_output_max_gradient_half, emptied_output_max_gradient_bf16):
    honest(fn, "automatic differentiation in float32", inside(amax_autograd))
    honest(fn, "float64 inside", double(max_gradient))
    empty(fn)
    stale(fn, 0)
mistake(
    emptied_output_max_gradient_half, "all are 1/9000: ties and others alike", lambda g, x: torch.full_like(x, 1 / 9000)
)
mistake(
    emptied_output_max_gradient_bf16,
    "the whole gradient goes to the first of the ties",
    lambda g, x: torch.zeros_like(x).scatter(1, x.argmax(-1, keepdim=True), g[:, None]),
)


@classed(lambda d: (d(10, 8), d.ints(40, 10) * 12))
def emptied_output_embedding_gradient(g, ids):
    return torch.zeros(500, 8, dtype=g.dtype).index_add(0, ids, g)


honest(
    emptied_output_embedding_gradient,
    "a product with one-hot rows",
    lambda g, ids: F.one_hot(ids, 500).to(g.dtype).T @ g,
)
honest(
    emptied_output_embedding_gradient,
    "token by token",
    lambda g, ids: (lambda out: ([out[i].add_(row) for i, row in zip(ids.tolist(), g)], out)[1])(torch.zeros(500, 8)),
)
empty(emptied_output_embedding_gradient)
stale(emptied_output_embedding_gradient, 0, 1)
mistake(
    emptied_output_embedding_gradient,
    "the tokens of the call before",
    lambda g, ids: emptied_output_embedding_gradient(g, (ids + 12) % 480),
)
mistake(
    emptied_output_embedding_gradient,
    "one row for all",
    lambda g, ids: emptied_output_embedding_gradient(g, ids)[ids[:1]].expand(500, 8).contiguous(),
)


@classed(lambda d: (d(2, 4, 6, 6), d(2, 4, 12, 12)))
def emptied_output_pool_gradient(g, x):
    _, at = F.max_pool2d(x, 2, return_indices=True)
    return torch.zeros(2, 4, 144, dtype=g.dtype).scatter(2, at.flatten(2), g.flatten(2)).view(2, 4, 12, 12)


def pool_autograd(g, x):
    x = x.requires_grad_()
    F.max_pool2d(x, 2).backward(g)
    return x.grad


def pool_by_compare(g, x):
    up = lambda t: t.repeat_interleave(2, -1).repeat_interleave(2, -2)
    return torch.where(x == up(F.max_pool2d(x, 2)), up(g), torch.zeros_like(x))


honest(emptied_output_pool_gradient, "automatic differentiation", pool_autograd)
honest(emptied_output_pool_gradient, "by comparison with the maximum", pool_by_compare)
empty(emptied_output_pool_gradient)
stale(emptied_output_pool_gradient, 0, 1)
mistake(
    emptied_output_pool_gradient,
    "the first image's in all images",
    lambda g, x: (lambda out: out[:1].expand_as(out).contiguous())(pool_by_compare(g, x)),
)


@classed(lambda d: (torch.full((4, 20000), -3.0, dtype=hf) + d(4, 1, dtype=hf), d.ints(20000, 4)))
def emptied_output_loss_gradient(x, t):
    return (x.softmax(-1) - F.one_hot(t, x.shape[-1])) * 0.5


def loss_gradient_by_sums(x, t):
    e = (x - x.amax(-1, keepdim=True)).exp()
    p = e / e.sum(-1, keepdim=True) * 0.5
    return p.scatter_add(1, t[:, None], torch.full((4, 1), -0.5))


honest(emptied_output_loss_gradient, "float32 inside", inside(loss_gradient_by_sums))
honest(emptied_output_loss_gradient, "float64 inside", double(emptied_output_loss_gradient))
empty(emptied_output_loss_gradient)
stale(emptied_output_loss_gradient, 1)
mistake(
    emptied_output_loss_gradient,
    "all but the targets are zero",
    inside(lambda x, t: F.one_hot(t, 20000) * (1 / 20000 - 1) * 0.5 + 0 * x),
)


# ------------------------------------------------------------------ small means and probabilities


@classed(lambda d: ((d.rand(20, 4096) * 2e-5 + 1e-6).to(hf),))
def emptied_output_mean_half(x):
    return x.mean(-1)


honest(emptied_output_mean_half, "one addition after another", inside(lambda x: folded(x) / 4096))
honest(emptied_output_mean_half, "float64 inside", double(emptied_output_mean_half))
empty(emptied_output_mean_half)
constant(emptied_output_mean_half, 6.1e-5)
mistake(emptied_output_mean_half, "the last row's mean in all rows", lambda x: x[-1:].mean(-1).expand(20) * 1.5)


@classed(lambda d: (d(3, 30000, scale=0.5, dtype=hf),))
def emptied_output_softmax_half(x):
    return x.softmax(-1)


honest(
    emptied_output_softmax_half,
    "float32 inside, no maximum taken off",
    inside(lambda x: x.exp() / x.exp().sum(-1, keepdim=True)),
)
honest(emptied_output_softmax_half, "float64 inside", double(emptied_output_softmax_half))
empty(emptied_output_softmax_half)
constant(emptied_output_softmax_half, 1 / 30000)
one_row(emptied_output_softmax_half)
stale(emptied_output_softmax_half, 0)


@classed(lambda d: (d(40, 96, scale=0.002),))
def emptied_output_squared_error(p):
    return (p - p.roll(1, 0)).square().mean(-1) * 0.5


honest(emptied_output_squared_error, "one square after another", lambda p: folded((p - p.roll(1, 0)).square()) / 192)
honest(emptied_output_squared_error, "float64 inside", double(emptied_output_squared_error))
empty(emptied_output_squared_error)
constant(emptied_output_squared_error, 4e-6)
stale(emptied_output_squared_error, 0)


@classed(lambda d: (d(60, 64), d(60, 64)))
def emptied_output_orthogonal(x, y):
    u = F.normalize(x)
    y = y - u * ((u * y).sum(-1, keepdim=True) - 0.05)
    return F.cosine_similarity(x, y)


def orthogonal(x, y, way="lanes"):
    n = folded(x.square(), way).sqrt()
    u = x / n[:, None]
    y = y - u * (folded(u * y, way)[:, None] - 0.05)
    return folded(x * y, way) / n / folded(y.square(), way).sqrt()


honest(emptied_output_orthogonal, "in eight lanes", orthogonal)
honest(emptied_output_orthogonal, "a tree", lambda x, y: orthogonal(x, y, "tree"))
empty(emptied_output_orthogonal)
constant(emptied_output_orthogonal, 0.00625)
constant(emptied_output_orthogonal, 1.0)


# ------------------------------------------------------------------ masked and sparse


@classed(lambda d: (d(30, 50, scale=0.01), d.ints(50, 30), (torch.arange(30) % 10 == 3)))
def emptied_output_masked_loss(x, t, keep):
    return F.cross_entropy(x, t, reduction="none") * keep


honest(
    emptied_output_masked_loss,
    "log-probabilities gathered",
    lambda x, t, keep: torch.where(keep, -x.log_softmax(-1).gather(-1, t[:, None])[:, 0], torch.zeros(30)),
)
honest(emptied_output_masked_loss, "float64 inside", double(emptied_output_masked_loss))
empty(emptied_output_masked_loss)
mistake(
    emptied_output_masked_loss,
    "the mask is the other way round",
    lambda x, t, keep: emptied_output_masked_loss(x, t, ~keep),
)
mistake(
    emptied_output_masked_loss,
    "the mask of the call before",
    lambda x, t, keep: emptied_output_masked_loss(x, t, keep.roll(1)),
)
constant(emptied_output_masked_loss, 3.9)


@classed(lambda d: (d(64, 40), d(64, 40, shift=-2.5)))
def emptied_output_relu_gradient(g, x):
    return g * (x > 0)


honest(emptied_output_relu_gradient, "chosen", lambda g, x: torch.where(x > 0, g, torch.zeros_like(g)))
honest(emptied_output_relu_gradient, "masked", lambda g, x: g.masked_fill(x <= 0, 0.0))
empty(emptied_output_relu_gradient)
stale(emptied_output_relu_gradient, 0, 1)
mistake(emptied_output_relu_gradient, "one row's mask for all rows", lambda g, x: g * (x[:1] > 0))


@classed(lambda d: (d(48, 30, dtype=bf),))
def emptied_output_threshold(x):
    return F.softshrink(x, 2.0)


honest(emptied_output_threshold, "two halves", inside(lambda x: (x - 2).clamp(min=0) + (x + 2).clamp(max=0)))
honest(emptied_output_threshold, "float64 inside", double(emptied_output_threshold))
empty(emptied_output_threshold)
one_row(emptied_output_threshold)
stale(emptied_output_threshold, 0)


@classed(lambda d: (d(8, 20, 6), torch.tensor([2, 5, 0, 1, 9, 3, 4, 1])))
def emptied_output_last_state(x, length):
    return (torch.arange(20)[None, :, None] == length[:, None, None]) * x


honest(
    emptied_output_last_state,
    "scattered",
    lambda x, n: torch.zeros_like(x).scatter(
        1, n[:, None, None].expand(8, 1, 6), x.gather(1, n[:, None, None].expand(8, 1, 6))
    ),
)
honest(
    emptied_output_last_state,
    "row by row",
    lambda x, n: (lambda out: ([out[i, j].copy_(x[i, j]) for i, j in enumerate(n.tolist())], out)[1])(
        torch.zeros_like(x)
    ),
)
empty(emptied_output_last_state)
one_row(emptied_output_last_state, "the first sequence's in all")
mistake(
    emptied_output_last_state, "the lengths of the call before", lambda x, n: emptied_output_last_state(x, n.roll(1))
)


@classed(lambda d: (d(80, 33, scale=3e-4, shift=1.0),))
def emptied_output_small_variance(x):
    return x.var(-1)


honest(
    emptied_output_small_variance,
    "shifted by the first column",
    lambda x: (lambda y: (y.square().sum(-1) - y.sum(-1).square() / 33) / 32)(x - x[:, :1]),
)
honest(emptied_output_small_variance, "float64 inside", double(emptied_output_small_variance))
empty(emptied_output_small_variance)
constant(emptied_output_small_variance, 1e-5)
mistake(emptied_output_small_variance, "the first row's in all rows", lambda x: x.var(-1)[:1].expand(80).contiguous())


@classed(lambda d: (d(20, 32, scale=4.0), d(20, 32)))
def emptied_output_saturated_gradient(x, g):
    p = (x * 3).softmax(-1)
    return p * (g - (p * g).sum(-1, keepdim=True))


def softmax_gradient(x, g):
    y = (x * 3).requires_grad_()
    y.softmax(-1).backward(g)
    return y.grad


honest(emptied_output_saturated_gradient, "automatic differentiation", softmax_gradient)
honest(emptied_output_saturated_gradient, "float64 inside", double(emptied_output_saturated_gradient))
empty(emptied_output_saturated_gradient)
one_row(emptied_output_saturated_gradient)
stale(emptied_output_saturated_gradient, 0, 1)
