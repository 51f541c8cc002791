# SPDX-License-Identifier: Apache-2.0
"""Set M, its third part, written before anything was mended for the other two: one block that is worse than the
rest, one output of several, one contribution that is lost, not a number where it must be handed on."""

import torch

from .blind import hf, narrow, tf32
from .blind_ninth_a import attend, bad, causal, grads, ok
from .blind_tenth_a import tenth

F = torch.nn.functional
INF = float("inf")
NAN = float("nan")


def block(y, at, change):
    """The result with a change in one block."""
    y = y.clone()
    y[at] = change(y[at])
    return y


# ------------------------------------------------------------------ one tile of a product is worse


@tenth(lambda d: (d(96, 200), d(200, 80), d(80)))
def tenth_tile(a, b, c):
    return a @ b + c


def tile(a, b, c, step=200, at=None, how=None):
    y = sum(a[:, k : k + step] @ b[k : k + step] for k in range(0, 200, step)) + c
    if at is None:
        return y
    i, j = at
    y = y.clone()
    y[i, j] = how(a[i], b[:, j]) + c[j]
    return y


def sums(dtype, step):
    def add(a, b):
        y = torch.zeros(a.shape[0], b.shape[1])
        for k in range(0, 200, step):
            y = narrow(y + a[:, k : k + step] @ b[k : k + step], dtype)
        return y

    return add


LAST = (slice(80, 96), slice(64, 80))
ok(tenth_tile, tile, by_forty={"step": 40}, one_tile_in_another_order={"at": LAST, "how": lambda a, b: (b.T @ a.T).T})
bad(
    tenth_tile,
    tile,
    {
        # tensor cores only where a tile is full
        "hides: one tile in tf32": {"at": LAST, "how": lambda a, b: tf32(a.contiguous()) @ tf32(b.contiguous())},
        # an epilogue of the tail in half precision
        "hides: one tile passes through half precision": {"at": LAST, "how": lambda a, b: narrow(a @ b, hf)},
        # one corner element
        "hides: one row of a tile in bfloat16": {
            "at": (slice(95, 96), slice(0, 80)),
            "how": lambda a, b: narrow(a @ b),
        },
        # accumulates in half
        "hides: one tile is summed in half precision": {"at": LAST, "how": sums(hf, 50)},
        # last k of one tile
        "hides: one tile leaves the last of the depth out": {"at": LAST, "how": lambda a, b: a[:, :199] @ b[:199]},
        # twice
        "hides: one tile adds the first of the depth twice": {
            "at": LAST,
            "how": lambda a, b: a @ b + a[:, :1] @ b[:1],
        },
    },
)


@tenth(lambda d: (d(2, 6, 96, 32), d(2, 6, 96, 32), d(2, 6, 96, 32)))
def tenth_heads(q, k, v):
    return attend(q, k, v, causal(96))


def heads(q, k, v, at=None, how=None, prob=None):
    s = (q @ k.mT * 32**-0.5).masked_fill(~causal(96), -INF)
    e = (s - s.amax(-1, keepdim=True)).exp()
    e = prob(e) if prob else e
    y = (e @ v) / e.sum(-1, keepdim=True)
    return block(y, at, how) if at is not None else y


def one_head(e, change):
    return torch.cat([e[:, :5], change(e[:, 5:])], 1)


ok(tenth_heads, heads, divided_at_the_end={})
bad(
    tenth_heads,
    heads,
    {
        # a head
        "hides: weights of the last head in half precision": {"prob": lambda e: one_head(e, lambda t: narrow(t, hf))},
        # rows
        "hides: the last sixteen rows through half precision": {
            "at": (slice(None), slice(None), slice(80, 96)),
            "how": lambda y: narrow(y, hf),
        },
        # one row of one head
        "hides: one row of one head through half precision": {
            "at": (1, 5, 95),
            "how": lambda y: narrow(y, hf),
        },
        # columns
        "hides: the last four columns through bfloat16": {
            "at": (Ellipsis, slice(28, 32)),
            "how": narrow,
        },
        # one head scaled by 1 + 2^-14
        "hides: one head is scaled by 1.0001": {"at": (slice(None), 3), "how": lambda y: y * 1.0001},
        # one head's weights dropped below 1e-4
        "hides: one head drops weights below 1e-3": {
            "prob": lambda e: one_head(e, lambda t: torch.where(t < 1e-3, 0.0, t)),
        },
    },
)


# ------------------------------------------------------------------ statistics beside the result


@tenth(lambda d: (d(32, 600, shift=1.0), d(600), d(600)))
def tenth_saved(x, w, b):
    return torch.native_layer_norm(x, (600,), w, b, 1e-5)


def saved(x, w, b, mean=None, rstd=None, split=1, out=None):
    m = sum(c.sum(-1, keepdim=True) for c in x.chunk(split, -1)) / 600
    v = sum((c - m).square().sum(-1, keepdim=True) for c in x.chunk(split, -1)) / 600
    r = torch.rsqrt(v + 1e-5)
    y = (x - m) * r * w + b
    return (out(y) if out else y), (mean(m) if mean else m), (rstd(r, v) if rstd else r)


ok(tenth_saved, saved, two_passes={}, three_parts={"split": 3})
bad(
    tenth_saved,
    saved,
    {
        # the reciprocal root without eps
        "hides: the saved root is without eps": {"rstd": lambda r, v: torch.rsqrt(v)},
        # unbiased
        "hides: the saved root is of the unbiased variance": {"rstd": lambda r, v: torch.rsqrt(v * 600 / 599 + 1e-5)},
        # saved in half
        "hides: the saved mean in half precision": {"mean": lambda m: narrow(m, hf)},
        # one row's
        "hides: the last row's saved mean is the row's before": {
            "mean": lambda m: torch.cat([m[:31], m[30:31]]),
        },
        # one row of the result
        "hides: one row of the result in half precision": {"out": lambda y: block(y, 31, lambda t: narrow(t, hf))},
        # the last eight columns lack the bias's low bits
        "hides: the last eight columns in bfloat16": {
            "out": lambda y: block(y, (slice(None), slice(592, 600)), narrow),
        },
    },
)


@tenth(lambda d: (d(40, 100, scale=2), d.ints(100, 40)))
def tenth_loss_and_sums(x, t):
    lse = torch.logsumexp(x, -1)
    return (lse - x.gather(1, t[:, None])[:, 0]).mean(), lse, (lse.square()).mean(), x.softmax(-1).mean(0)


def loss_and_sums(x, t, blocks=1, z=None, mean=None, lse=None, rows=40):
    m = x.amax(-1, keepdim=True)
    e = (x - m).exp()
    s = sum(c.sum(-1) for c in e.chunk(blocks, -1))
    l = m[:, 0] + s.log()
    p = e / s[:, None]
    each = l - x.gather(1, t[:, None])[:, 0]
    return (
        each.sum() / 40 if mean is None else mean(each),
        lse(l) if lse else l,
        (z(l) if z else l.square().mean()),
        p[:rows].sum(0) / 40,
    )


ok(tenth_loss_and_sums, loss_and_sums, in_one_go={}, four_blocks={"blocks": 4})
bad(
    tenth_loss_and_sums,
    loss_and_sums,
    {
        # 39 rows
        "hides: the mean of weights leaves the last row out": {"rows": 39},
        # square of the mean
        "hides: the square of the mean for the mean of squares": {"z": lambda l: l.mean().square()},
        # half-precision losses are added
        "hides: losses are added in half precision": {"mean": lambda e: narrow(e, hf).mean()},
        # one
        "hides: one logsumexp in bfloat16": {"lse": lambda l: block(l, slice(39, 40), narrow)},
    },
)


# ------------------------------------------------------------------ not a number and infinities are handed on


def broken_args(d):
    x = d(6, 4, 8, 8)
    x[1, 2, 3, 3], x[2, 0, 0, 0], x[4, 1, 7, 7], x[5, 3, 2, 2] = NAN, INF, -INF, NAN
    return (x,)


@tenth(broken_args)
def tenth_broken(x):
    return (
        F.relu(x),
        F.max_pool2d(x, 2),
        x.clamp(-1, 1),
        x.amax((2, 3)),
        torch.softmax(x.flatten(2), -1),
        x.mean((2, 3)),
    )


def broken(x, relu=None, pool=None, clamp=None, top=None, soft=None, mean=None):
    p = x.unfold(2, 2, 2).unfold(3, 2, 2).flatten(4)
    nan = p.isnan().any(-1)
    y = torch.where(nan, NAN, p.nan_to_num(-INF, INF, -INF).amax(-1))
    f = x.flatten(2)
    m = f.amax(-1, keepdim=True)
    e = (f - m).exp()
    return (
        relu(x) if relu else torch.where(x > 0, x, torch.where(x.isnan(), x, 0.0)),
        pool(p) if pool else y,
        clamp(x) if clamp else torch.minimum(torch.maximum(x, -torch.ones(())), torch.ones(())),
        top(f) if top else f.amax(-1),
        soft(f) if soft else e / e.sum(-1, keepdim=True),
        mean(f) if mean else f.sum(-1) / 64,
    )


quiet = lambda t: t.nan_to_num(-INF, INF, -INF)
ok(tenth_broken, broken, handed_on={})
bad(
    tenth_broken,
    broken,
    {
        # x > 0 ? x : 0
        "hides: relu of not a number is zero": {"relu": lambda x: torch.where(x > 0, x, 0.0)},
        # fmax
        "hides: pooling passes not a number by": {"pool": lambda p: quiet(p).amax(-1)},
        # fmin(fmax)
        "hides: clamp of not a number is a bound": {
            "clamp": lambda x: torch.fmin(torch.fmax(x, -torch.ones(())), torch.ones(())),
        },
        # fmax
        "hides: the greatest passes not a number by": {"top": lambda f: quiet(f).amax(-1)},
        # an infinite maximum
        "hides: an infinite score takes all the weight": {
            "soft": lambda f: torch.softmax(f.clamp(-3e38, 3e38), -1),
        },
        # saturates
        "hides: the mean stays finite": {"mean": lambda f: f.clamp(-3e38, 3e38).mean(-1)},
    },
)


# ------------------------------------------------------------------ gradients: one of several is off


@tenth(lambda d: (d(64, 40), d(24, 40, scale=0.2), d(24), d(64, 24)))
def tenth_linear_grad(x, w, b, g):
    return grads(lambda x, w, b: F.silu(F.linear(x, w, b)), x, w, b, cotangent=g)


def linear_grad(x, w, b, g, rows=64, kind=None, each=None, tail=None, dw=None):
    z = x @ w.T + b
    s = torch.sigmoid(z)
    d = g * s * (1 + z * (1 - s))
    d2 = narrow(d, kind) if kind else d
    db = d[:rows].sum(0) if each is None else each(d)
    w2 = sum(d2[i : i + 16].T @ x[i : i + 16] for i in range(0, 64, 16))
    return d @ w, dw(w2, d, x) if dw else w2, db


ok(tenth_linear_grad, linear_grad, by_sixteen_rows={})
bad(
    tenth_linear_grad,
    linear_grad,
    {
        # the last row
        "hides: the bias's gradient leaves the last row out": {"rows": 63},
        # rounding for tensor cores
        "hides: the gradient is rounded to half precision for dw": {"kind": hf},
        # half-precision sum
        "hides: the bias's gradient from half precision": {"each": lambda d: narrow(d, hf).sum(0)},
        # one output row of dw in tf32
        "hides: the last row of dw in tf32": {
            "dw": lambda w, d, x: torch.cat([w[:23], tf32(d[:, 23:].T.contiguous()) @ tf32(x)]),
        },
        # the last column of dw lacks the last row's share
        "hides: the last column of dw leaves the last row out": {
            "dw": lambda w, d, x: torch.cat([w[:, :39], w[:, 39:] - d[63:].T @ x[63:, 39:]], 1),
        },
    },
)
