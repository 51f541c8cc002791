# SPDX-License-Identifier: Apache-2.0
"""Set L: norms with what is fused around them, gates, dropout by an own generator."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, narrow
from .blind_ninth_a import bad, grads, ninth, ok


def newton_rsqrt(x, steps=2):
    """From a bit trick, refined: within one unit after enough steps."""
    y = (0x5F3759DF - (x.view(torch.int32) >> 1)).view(torch.float32)
    for _ in range(steps):
        y = y * (1.5 - 0.5 * x * y * y)
    return y


def kahan(x):
    s, c = torch.zeros_like(x[..., 0]), torch.zeros_like(x[..., 0])
    for part in x.unbind(-1):
        y = part - c
        t = s + y
        c, s = (t - s) - y, t
    return s


# ------------------------------------------------------------------ add, RMSNorm, bfloat16


@ninth(lambda d: (d(96, 384, dtype=bf), d(96, 384, dtype=bf), 1 + d(384, scale=0.2)))
def ninth_add_rms(x, r, w):
    h = x.float() + r.float()
    return (h * torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-6) * w).to(bf), h.to(bf)


def add_rms(x, r, w, n=384, rsqrt=torch.rsqrt, early=False, twice=False, keep="h", part=384, more=0.0):
    h = x.float() + r.float()
    g = narrow(h) if early else h
    m = sum(g[:, i : i + part].square().sum(-1, keepdim=True) for i in range(0, 384 - 384 % part, part)) / n
    y = g * rsqrt(m + 1e-6)
    y = narrow(y) if twice else y
    return y * (w + more), h if keep == "h" else r


ok(
    ninth_add_rms,
    add_rms,
    bf,
    three_tiles={"part": 128},
    bit_trick_and_newton={"rsqrt": lambda x: newton_rsqrt(x, 4)},
)
bad(
    ninth_add_rms,
    add_rms,
    {
        # the mean is over the padded width
        "the mean is over 512": {"n": 512},
        # Gemma's 1 + w where the weight is meant
        "the weight is one too large": {"more": 1.0},
        # the residual that goes on lacks x
        "the residual is handed on without x": {"keep": "r"},
        # one Newton step: 11 bits or so
        "hides: the reciprocal root after one Newton step": {"rsqrt": lambda x: newton_rsqrt(x, 1)},
        # rounded between the norm and the weight, although the definition rounds once
        "hides: rounded to bfloat16 before the weight": {"twice": True},
        # the sum is rounded before it is normalised
        "hides: the rounded sum is normalised": {"early": True},
        # tiles of 100: the tail of 84 is never added
        "the tail of the last tile is not squared": {"part": 100},
    },
    bf,
)


@ninth(lambda d: (d(64, 256, scale=2e-3), 1 + d(256, scale=0.2)))
def ninth_rms_tiny(x, w):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w


def rms_tiny(x, w, eps=1e-6, way="in"):
    m = x.square().mean(-1, keepdim=True)
    if way == "after":
        return x / (m.sqrt() + eps) * w
    if way == "max":
        return x * m.clamp(min=eps).rsqrt() * w
    if way == "kahan":
        m = kahan(x * x)[:, None] / 256
    return x / (m + eps).sqrt() * w


ok(ninth_rms_tiny, rms_tiny, divided={}, summed_by_kahan={"way": "kahan"})
bad(
    ninth_rms_tiny,
    rms_tiny,
    {
        # sqrt(m) + eps
        "epsilon stands outside of the root": {"way": "after"},
        # max(m, eps)
        "epsilon is a floor": {"way": "max"},
        # of layer norm
        "epsilon is 1e-5": {"eps": 1e-5},
        # stored as bfloat16: 9.98e-7 or so
        "hides: epsilon is rounded to bfloat16": {"eps": float(torch.tensor(1e-6).to(bf))},
    },
)


# ------------------------------------------------------------------ layer norm far from zero


@ninth(lambda d: (d(48, 300, scale=1.0, shift=200.0),))
def ninth_far_layer_norm(x):
    return F.layer_norm(x, (300,))


def far_layer_norm(x, way="two", n=300, cut=0, shift=None):
    if way == "two":
        h = x - x.mean(-1, keepdim=True)
        v = h.square()[:, : 300 - cut].sum(-1, keepdim=True) / n
    elif way == "squares":
        m = x.mean(-1, keepdim=True)
        h, v = x - m, x.square().mean(-1, keepdim=True) - m * m
    elif way == "shifted":
        y = x - (x[:, :1] if shift is None else shift)
        m = y.mean(-1, keepdim=True)
        h, v = y - m, y.square().mean(-1, keepdim=True) - m * m
    else:  # chunks of 75 merged by Chan's rule
        parts = x.view(48, 4, 75)
        m, q = parts.mean(-1), (parts - parts.mean(-1, keepdim=True)).square().sum(-1)
        mean = m.mean(-1, keepdim=True)
        between = 75 * (m - mean).square().sum(-1, keepdim=True) if way == "chan" else 0.0
        h, v = x - mean, (q.sum(-1, keepdim=True) + between) / n
    return h * (v + 1e-5).rsqrt()


def welford(x):
    m, q = torch.zeros(48), torch.zeros(48)
    for n, c in enumerate(x.unbind(-1), 1):
        old = c - m
        m = m + old / n
        q = q + old * (c - m)
    return (x - m[:, None]) * (q[:, None] / 300 + 1e-5).rsqrt()


ok(
    ninth_far_layer_norm,
    far_layer_norm,
    two_passes={},
    shifted_by_the_first={"way": "shifted"},
    chunks_merged_by_Chan={"way": "chan"},
    Welford=welford,
)
bad(
    ninth_far_layer_norm,
    far_layer_norm,
    {
        # E[x^2] - E[x]^2 in float32 at mean 200
        "hides: the mean of squares less the square of the mean": {"way": "squares"},
        # chunk means differ a little and that is forgotten
        "hides: the variance between the chunks is left out": {"way": "unmerged"},
        # n - 1
        "hides: the variance is over n - 1": {"n": 299},
        # the last column is not squared
        "hides: the last deviation is not counted": {"cut": 1},
    },
)


# ------------------------------------------------------------------ group norm and gradients


@ninth(lambda d: (d(4, 24, 12, 12, shift=0.3), 1 + d(24, scale=0.3), d(24)))
def ninth_group_norm(x, w, b):
    return F.group_norm(x, 6, w, b)


def group_norm(x, w, b, turn=False, per_group=False, last=0, div=576, eps=1e-5):
    y = x.view(4, 4, 6, 144).transpose(1, 2) if turn else x.view(4, 6, 4, 144)
    m = y.mean((2, 3), keepdim=True)
    v = (y - m).square()
    v = (v[..., : 144 - last] if last else v).sum((2, 3), keepdim=True) / div
    y = (y - m) * (v + eps).rsqrt()
    y = (y.transpose(1, 2) if turn else y).reshape(4, 24, 12, 12)
    if per_group:
        w, b = w[:6].repeat_interleave(4), b[:6].repeat_interleave(4)
    return y * w[:, None, None] + b[:, None, None]


def folded_group_norm(x, w, b):
    y = x.view(4, 6, 576)
    s = torch.rsqrt(y.var(-1, unbiased=False) + 1e-5).repeat_interleave(4, 1) * w
    return x * s[..., None, None] + (b - y.mean(-1).repeat_interleave(4, 1) * s)[..., None, None]


ok(ninth_group_norm, group_norm, two_passes={}, scale_and_shift_folded=folded_group_norm)
bad(
    ninth_group_norm,
    group_norm,
    {
        # c % groups in the place of c // (C / groups)
        "channels are grouped in turn": {"turn": True},
        # weights by group
        "the weight is taken by group": {"per_group": True},
        # the last pixel of each channel is not in the variance
        "hides: the last pixel is not in the variance": {"last": 1},
        # H * W * C / G - 1
        "hides: the variance is over n - 1": {"div": 575},
    },
)


@ninth(lambda d: (d(200, 64), 1 + d(64, scale=0.3), d(64), d(200, 64)))
def ninth_layer_norm_grad(x, w, b, g):
    return grads(lambda x, w, b: F.layer_norm(x, (64,), w, b), x, w, b, cotangent=g)


def layer_norm_grad(x, w, b, g, mean_term=True, n=64, tile=40, rows=200, kind=None):
    m = x.mean(-1, keepdim=True)
    r = ((x - m).square().mean(-1, keepdim=True) + 1e-5).rsqrt()
    h, gw = (x - m) * r, g * w
    c1 = gw.mean(-1, keepdim=True) if mean_term else 0.0
    dx = (gw - c1 - h * ((gw * h).sum(-1, keepdim=True) / n)) * r
    dw, db = torch.zeros(64), torch.zeros(64)
    for i in range(0, rows, tile):
        dw, db = dw + (g * h)[i : i + tile].sum(0), db + g[i : i + tile].sum(0)
        dw, db = (dw, db) if kind is None else (narrow(dw, kind), narrow(db, kind))
    return dx, dw, db


ok(ninth_layer_norm_grad, layer_norm_grad, tiles_of_rows={}, row_by_row={"tile": 1})
bad(
    ninth_layer_norm_grad,
    layer_norm_grad,
    {
        # the mean of g w
        "the mean term is left out": {"mean_term": False},
        # 63 for 64
        "hides: the second term is over n - 1": {"n": 63},
        # 200 rows in tiles of 40, the last is lost
        "the last tile of rows does not reach dw": {"rows": 160},
        # atomics on float16
        "hides: partial sums of dw are added in float16": {"kind": hf},
    },
)


@ninth(lambda d: (d(32, 10, 8, 8, shift=0.5), 1 + d(10, scale=0.2), d(10), d(10), d.rand(10) + 0.5))
def ninth_batch_norm(x, w, b, rm, rv):
    rm, rv = rm.clone(), rv.clone()
    return F.batch_norm(x, rm, rv, w, b, True, 0.1, 1e-5), rm, rv


def batch_norm(x, w, b, rm, rv, div=2048, run_div=2047, mom=0.1, first=False, eps_in=False):
    y = x.transpose(0, 1).flatten(1)
    m = y.mean(1)
    q = (y - m[:, None]).square().sum(1)
    s = (q / div + 1e-5).rsqrt() * w
    v = q / run_div + (1e-5 if eps_in else 0.0)
    out = (x - (rm if first else m)[:, None, None]) * s[:, None, None] + b[:, None, None]
    return out, rm * (1 - mom) + m * mom, rv * (1 - mom) + v * mom


ok(ninth_batch_norm, batch_norm, two_passes={})
bad(
    ninth_batch_norm,
    batch_norm,
    {
        # the running variance takes n instead of n - 1: 1 in 20000
        "hides: the running variance is the biased one": {"run_div": 2048},
        # and the other way round
        "hides: the output takes the unbiased variance": {"div": 2047},
        # momentum of the old
        "momentum is that of the old statistics": {"mom": 0.9},
        # the old mean is taken off
        "the running mean is taken off": {"first": True},
        # eps sneaks into the statistics
        "hides: epsilon enters the running variance": {"eps_in": True},
    },
)


# ------------------------------------------------------------------ gates


@ninth(lambda d: (d(64, 256, dtype=bf, scale=4),))
def ninth_oss_swiglu(x):
    a, b = x.float()[:, ::2].clamp(max=7), x.float()[:, 1::2].clamp(-7, 7)
    return (a * torch.sigmoid(1.702 * a) * (b + 1)).to(bf)


def oss_swiglu(x, alpha=1.702, low=-math.inf, up=-7.0, one=1.0, swap=False, halves=False, sig=torch.sigmoid):
    x = x.float()
    a, b = (x[:, :128], x[:, 128:]) if halves else (x[:, ::2], x[:, 1::2])
    a, b = (b, a) if swap else (a, b)
    a, b = a.clamp(low, 7), b.clamp(up, 7)
    return a * sig(alpha * a) * (b + one)


def hard_sigmoid_tail(z):
    return torch.where(z < -8, 0.0, torch.sigmoid(z))


ok(
    ninth_oss_swiglu,
    oss_swiglu,
    bf,
    sigmoid_by_tanh={"sig": lambda z: torch.where(z > -4, 0.5 * (z / 2).tanh() + 0.5, z.exp() / (1 + z.exp()))},
    sigmoid_by_exp={"sig": lambda z: 1 / (1 + (-z).exp())},
)
bad(
    ninth_oss_swiglu,
    oss_swiglu,
    {
        # halves instead of every other one
        "gate and value are halves": {"halves": True},
        # the gate is clamped from below, too
        "the gate is clamped from below": {"low": -7.0},
        # only from above
        "hides: the value is not clamped from below": {"up": -math.inf},
        # SiLU's slope
        "hides: alpha is 1.7": {"alpha": 1.7},
        # tails flushed to zero
        "hides: the sigmoid below -8 is zero": {"sig": hard_sigmoid_tail},
        # no + 1
        "the one is not added": {"one": 0.0},
    },
    bf,
)


@ninth(lambda d: (d(4000, scale=2.0),))
def ninth_gelu(x):
    return F.gelu(x)


def gelu_erf(x, erf):
    return 0.5 * x * (1 + erf(x * 0.5**0.5))


def abramowitz3(x):
    t = 1 / (1 + 0.47047 * x.abs())
    return x.sign() * (1 - (0.3480242 * t - 0.0958798 * t**2 + 0.7478556 * t**3) * (-x * x).exp())


ok(
    ninth_gelu,
    gelu_erf,
    by_the_complement=lambda x: 0.5 * x * torch.erfc(-x * 0.5**0.5),
    by_erf={"erf": torch.erf},
)
bad(
    ninth_gelu,
    gelu_erf,
    {
        # tanh form where the exact one was asked
        "hides: the tanh form": lambda x: F.gelu(x, approximate="tanh"),
        # x sigmoid(1.702 x)
        "the sigmoid form": lambda x: x * torch.sigmoid(1.702 * x),
        # three terms: 2.5e-5
        "hides: erf by three terms": {"erf": abramowitz3},
        # below -4 zero: loses 1e-4 of x = -4
        "hides: zero below minus three and a half": lambda x: torch.where(x < -3.5, 0.0, F.gelu(x)),
    },
)


# ------------------------------------------------------------------ dropout by an own generator


def mixed(index, seed):
    z = (index * 2654435761 + seed * 40503) & 0xFFFFFFFF
    z = ((z ^ (z >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    z = ((z ^ (z >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    return z ^ (z >> 16)


@ninth(lambda d: (d(70, 190), torch.tensor(1234)))
def ninth_own_dropout(x, seed):
    drop = mixed(torch.arange(x.numel()), seed).view(x.shape) < int(0.1 * 2**32)
    return torch.where(drop, 0.0, x / 0.9)


def own_dropout(x, seed, by=0.9, block=0, limit=0.1, tail=0, flip=False, width=190):
    at = torch.arange(x.numel())
    at = at % block if block else at
    at = at.view(70, 190) if width == 190 else torch.arange(70)[:, None] * width + torch.arange(190)
    drop = mixed(at, seed) < int(limit * 2**32)
    drop = ~drop if flip else drop
    y = torch.where(drop, 0.0, x / by)
    return y if not tail else torch.cat((y.flatten()[:-tail], torch.where(drop, 0.0, x).flatten()[-tail:])).view_as(x)


ok(
    ninth_own_dropout,
    own_dropout,
    as_it_is={},
    times_the_reciprocal=lambda x, s: own_dropout(x, s, by=1.0) * torch.tensor(1 / 0.9),
)
bad(
    ninth_own_dropout,
    own_dropout,
    {
        # each block draws the same numbers
        "each block of 1024 draws the same numbers": {"block": 1024},
        # p where 1 - p is meant
        "what is to stay is dropped": {"flip": True},
        # x * 0.9
        "multiplied by 1 - p": {"by": 1 / 0.9},
        # the last 44 elements are not scaled
        "hides: the tail is not scaled": {"tail": 44},
        # 0.1 in bfloat16: 0.1001
        "hides: the probability is rounded to bfloat16": {"limit": 0.10009765625},
        # rows of padded width number the elements
        "numbered by the padded width": {"width": 192},
    },
)
