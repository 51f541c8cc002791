# SPDX-License-Identifier: Apache-2.0
"""Set H, written blind: results that are all zeros, all one value, another call's result or the input
handed through; then results with a constant factor, a division left out or a bias counted twice."""

import copy

import torch
import torch.nn.functional as F

from .blind import Draw, bf, hf, honest, mistake
from .blind_sixth_m import aimed, double, inside, summed

# ------------------------------------------------------------------ nothing was computed


def shaped(fn, fill):
    """The right shapes and formats, filled by `fill`."""

    def kernel(*args):
        out = fn(*copy.deepcopy(args))
        return tuple(map(fill, out)) if isinstance(out, (tuple, list)) else fill(out)

    return kernel


def another(fn, make, name="another call"):
    """The result of the same operator for other numbers."""
    return lambda *_: fn(*make(Draw(name)))


def empty(fn, make, through=None, value=1.0):
    mistake(fn, "zeros everywhere", shaped(fn, torch.zeros_like))
    mistake(fn, f"{value:g} everywhere", shaped(fn, lambda t: torch.full_like(t, value)))
    mistake(fn, "the result of a call with other numbers", another(fn, make))
    if through:
        mistake(fn, "the input is handed through", through)


def draw_depthwise(d):
    return d(2, 8, 20, dtype=hf), d(8, 1, 3, dtype=hf)


@aimed(draw_depthwise)
def aimed_empty_depthwise(x, w):
    return F.conv1d(x, w, padding=1, groups=8)


honest(
    aimed_empty_depthwise,
    "tap by tap",
    inside(lambda x, w: sum(F.pad(x, (1, 1))[..., i : i + 20] * w[:, 0, i, None] for i in range(3))),
)
empty(aimed_empty_depthwise, draw_depthwise, lambda x, w: x)


def draw_solve(d):
    return d(3, 6, 6) + 6 * torch.eye(6), d(3, 6, 2)


@aimed(draw_solve)
def aimed_empty_solve(a, b):
    return torch.linalg.solve(a, b)


honest(aimed_empty_solve, "through the inverse", lambda a, b: torch.linalg.inv(a) @ b)
empty(aimed_empty_solve, draw_solve, lambda a, b: b, value=0.5)


def draw_resize(d):
    return (d(1, 3, 9, 9, dtype=bf),)


@aimed(draw_resize)
def aimed_empty_resize(x):
    return F.interpolate(x, (9, 18), mode="bilinear", align_corners=False)


def columns(x):
    left, right = (torch.cat((x[..., :1], x), -1)[..., :9], torch.cat((x, x[..., -1:]), -1)[..., 1:])
    return torch.stack((x * 0.75 + left * 0.25, x * 0.75 + right * 0.25), -1).flatten(-2)


honest(aimed_empty_resize, "three quarters and one quarter", inside(columns))
empty(aimed_empty_resize, draw_resize, lambda x: x.repeat_interleave(2, -1), value=-1.0)


def draw_scan(d):
    return d(5, 60), d(5, 60)


@aimed(draw_scan)
def aimed_empty_running_largest(x, y):
    return torch.cummax(x + y, -1).values


honest(
    aimed_empty_running_largest,
    "largest of each beginning",
    lambda x, y: torch.stack([(x + y)[:, : i + 1].amax(-1) for i in range(60)], -1),
)
empty(aimed_empty_running_largest, draw_scan, lambda x, y: x + y, value=3.0)


def draw_lookup(d):
    return d(30, 16, dtype=bf), d.ints(30, 4, 7)


@aimed(draw_lookup)
def aimed_empty_lookup(w, at):
    return F.embedding(at, w)


honest(aimed_empty_lookup, "a product with ones", lambda w, at: (F.one_hot(at, 30).float() @ w.float()).to(bf))
empty(aimed_empty_lookup, draw_lookup, lambda w, at: w[:28].view(4, 7, 16).clone(), value=0.25)


def draw_moments(d):
    return (d(6, 50, dtype=hf),)


@aimed(draw_moments)
def aimed_empty_moments(x):
    return torch.var_mean(x, -1)


honest(
    aimed_empty_moments,
    "two passes",
    inside(lambda x: ((x - x.mean(-1, keepdim=True)).square().sum(-1) / 49, x.mean(-1))),
)
empty(aimed_empty_moments, draw_moments)


def draw_folds(d):
    return (d(2, 12, 30),)


@aimed(draw_folds)
def aimed_empty_fold(x):
    return F.fold(x, (6, 7), (2, 2))


def folds(x):
    out, y = torch.zeros(2, 3, 6, 7), x.view(2, 3, 2, 2, 5, 6)
    for i in range(2):
        for j in range(2):
            out[:, :, i : i + 5, j : j + 6] += y[:, :, i, j]
    return out


honest(aimed_empty_fold, "four windows added", folds)
empty(aimed_empty_fold, draw_folds)


# ------------------------------------------------------------------ constant factors and doubled terms


@aimed(lambda d: (d(2, 6, 14), d(6, 4, 5, scale=0.3), d(4)))
def aimed_constant_transposed(x, w, b):
    return F.conv_transpose1d(x, w, b, stride=2)


def spread(x, w, b, factor=1.0, bias=1.0):
    out = torch.zeros(2, 4, 31) + bias * b[:, None]
    for t in range(14):
        out[:, :, 2 * t : 2 * t + 5] += factor * torch.einsum("bi,iok->bok", x[:, :, t], w)
    return out


honest(aimed_constant_transposed, "every input spread out", spread)
honest(aimed_constant_transposed, "in double precision", double(aimed_constant_transposed))
mistake(aimed_constant_transposed, "a factor of 1.001 before the bias", lambda *a: spread(*a, factor=1.001))
mistake(aimed_constant_transposed, "the bias is added twice", lambda *a: spread(*a, bias=2.0))
mistake(aimed_constant_transposed, "everything by 0.95", lambda *a: spread(*a) * 0.95)


@aimed(lambda d: (d(20, 5, dtype=bf), d(20, 7, dtype=bf), d(4, 5, 7, dtype=bf), d(4, dtype=bf)))
def aimed_constant_bilinear(a, b, w, bias):
    return F.bilinear(a, b, w, bias)


def twofold(a, b, w, bias, factor=1.0, more=1.0):
    return (a[:, :, None] * b[:, None]).flatten(1) @ w.flatten(1).mT * factor + more * bias


honest(aimed_constant_bilinear, "outer products first", inside(twofold))
honest(aimed_constant_bilinear, "einsum", inside(lambda a, b, w, c: torch.einsum("ni,kij,nj->nk", a, w, b) + c))
mistake(aimed_constant_bilinear, "the bias is added twice", inside(twofold, more=2.0))
mistake(aimed_constant_bilinear, "a factor of 1.01", inside(twofold, factor=1.01))
mistake(aimed_constant_bilinear, "the bias is halved", inside(twofold, more=0.5))


@aimed(lambda d: (d(40, 8, dtype=hf), d.ints(40, 60), torch.tensor((0, 3, 10, 24, 41))))
def aimed_constant_bag(w, at, starts):
    return F.embedding_bag(at, w, starts, mode="mean")


def bags(w, at, starts, divide=True, over=0, factor=1.0):
    ends = [*starts.tolist()[1:], 60]
    return torch.stack(
        [w[at[i:j]].sum(0) * factor / (j - i + over if divide else 1) for i, j in zip(starts.tolist(), ends)]
    )


honest(aimed_constant_bag, "sums of rows", inside(bags))
mistake(aimed_constant_bag, "not divided", inside(bags, divide=False))
mistake(aimed_constant_bag, "divided by one more", inside(bags, over=1))
mistake(aimed_constant_bag, "a factor of 1.01", inside(bags, factor=1.01))


@aimed(lambda d: (d(3, 40),))
def aimed_constant_spectrum(x):
    return torch.view_as_real(torch.fft.rfft(x, norm="ortho"))


def spectrum(x, over=40**0.5):
    t = torch.arange(40).to(x.dtype)
    angle = 2 * torch.pi / 40 * ((t[:, None] * t[:21]) % 40)
    return torch.stack((x @ angle.cos(), -(x @ angle.sin())), -1) / over


honest(aimed_constant_spectrum, "a product with sines in double precision", double(spectrum))
mistake(aimed_constant_spectrum, "not divided by sqrt(n)", double(spectrum, over=1.0))
mistake(aimed_constant_spectrum, "divided by n", double(spectrum, over=40.0))
mistake(aimed_constant_spectrum, "a factor of 1.001", double(spectrum, over=40**0.5 / 1.001))


@aimed(lambda d: (d(25, 30, dtype=bf),))
def aimed_constant_area(y):
    return torch.trapezoid(y, dx=0.25, dim=-1)


honest(
    aimed_constant_area,
    "inner sum and half the ends",
    inside(lambda y: (summed(y[:, 1:-1]) + 0.5 * (y[:, 0] + y[:, -1])) * 0.25),
)
mistake(aimed_constant_area, "the ends are not halved", inside(lambda y: y.sum(-1) * 0.25))
mistake(aimed_constant_area, "dx is 0.26", inside(lambda y: torch.trapezoid(y, dx=0.26)))
mistake(aimed_constant_area, "the two sides are not divided by 2", inside(lambda y: torch.trapezoid(y, dx=0.5)))


@aimed(lambda d: (d(9, 16), d(11, 16)))
def aimed_constant_distances(a, b):
    return torch.cdist(a, b)


honest(aimed_constant_distances, "differences squared", lambda a, b: summed((a[:, None] - b).square()).sqrt())
mistake(aimed_constant_distances, "a factor of 1.001", lambda a, b: torch.cdist(a, b) * 1.001)
mistake(aimed_constant_distances, "mean of squares, not their sum", lambda a, b: torch.cdist(a, b) / 4)


@aimed(lambda d: (d(60, dtype=hf), d(60, dtype=hf)))
def aimed_constant_huber(x, y):
    return F.huber_loss(x, y, reduction="none", delta=0.6)


def huber(x, y, half=0.5, factor=1.0):
    d = (x - y).abs()
    return torch.where(d <= 0.6, half * d * d, 0.6 * (d - 0.3)) * factor


honest(aimed_constant_huber, "two branches", inside(huber))
honest(
    aimed_constant_huber,
    "smooth L1 times delta",
    inside(lambda x, y: 0.6 * F.smooth_l1_loss(x, y, reduction="none", beta=0.6)),
)
mistake(aimed_constant_huber, "the square is not halved", inside(huber, half=1.0))
mistake(aimed_constant_huber, "divided by delta, as smooth L1", inside(huber, factor=1 / 0.6))
mistake(aimed_constant_huber, "a factor of 0.95", inside(huber, factor=0.95))


@aimed(lambda d: (d(6, 10), d(6, 12), d(48, 10, scale=0.3), d(48, 12, scale=0.3), d(48), d(6, 12)))
def aimed_constant_cell(x, h, wi, wh, b, c):
    return torch.lstm_cell(x, (h, c), wi, wh, b, b * 0.5)[0]


def cell(x, h, wi, wh, b, c, bias=1.5, out=1.0):
    i, f, g, o = (x @ wi.mT + h @ wh.mT + bias * b).chunk(4, -1)
    return out * o.sigmoid() * (f.sigmoid() * c + i.sigmoid() * g.tanh()).tanh()


honest(aimed_constant_cell, "four gates", cell)
mistake(aimed_constant_cell, "the first bias is counted twice", lambda *a: cell(*a, bias=2.5))
mistake(aimed_constant_cell, "a factor of 1.001 on the state", lambda *a: cell(*a, out=1.001))
mistake(aimed_constant_cell, "the second bias is left out", lambda *a: cell(*a, bias=1.0))


@aimed(lambda d: (d(4, 20), d.ints(4, 20)))
def aimed_constant_scatter_mean(x, at):
    return torch.zeros(4, 4, dtype=x.dtype).scatter_reduce(1, at.expand(4, 20), x, "mean", include_self=False)


def bins(x, at, over=0, factor=1.0):
    hot = F.one_hot(at, 4).to(x.dtype)
    return x @ hot * factor / (hot.sum(0) + over)


honest(aimed_constant_scatter_mean, "a product with ones", bins)
mistake(aimed_constant_scatter_mean, "the empty start is counted", lambda *a: bins(*a, over=1))
mistake(aimed_constant_scatter_mean, "a factor of 1.001", lambda *a: bins(*a, factor=1.001))
mistake(aimed_constant_scatter_mean, "sums, not means", lambda x, at: x @ F.one_hot(at, 4).to(x.dtype))
