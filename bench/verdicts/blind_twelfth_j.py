# SPDX-License-Identifier: Apache-2.0
"""Set Q: sixteen bits, and calls where right kernels differ much: offsets, cancellation, saturation."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, narrow
from .blind_twelfth_a import another, good, lanes, pairwise, twelfth, wrong
from .blind_twelfth_c import streamed
from .blind_twelfth_f import split

# ------------------------------------------------------------------ 256 by 1024


@twelfth(lambda d: (d(256, 1024, dtype=bf, scale=0.5, shift=20), d(1024, dtype=bf, shift=1), d(1024, dtype=bf)))
def twelfth_wide_norm(x, w, b):
    return F.layer_norm(x.float(), (1024,), w.float(), b.float(), 1e-5).to(bf)


def wide_norm(x, w, b, kind=None, lost=None, mean_of=None):
    f = x.float()
    parts = f.view(256, 8, 128)
    m = parts.mean(-1)
    q = ((parts - m[..., None]) ** 2).sum(-1)
    mean = m.mean(-1, keepdim=True)
    mean = mean_of(mean) if mean_of else mean
    between = 128 * ((m - mean) ** 2)
    between = between * 0 if lost else between
    var = (q + between).sum(-1, keepdim=True) / 1024
    var = narrow(var, kind) if kind else var
    return (f - mean) * torch.rsqrt(var + 1e-5) * w.float() + b.float()


def apart_norm(x, w, b):
    f = x.float()
    mean = pairwise(f)[:, None] / 1024
    r = 1 / torch.sqrt(pairwise((f - mean) ** 2)[:, None] / 1024 + 1e-5)
    return f * (r * w.float()) + (b.float() - mean * r * w.float())


good(
    twelfth_wide_norm,
    wide_norm,
    bf,
    eight_parts_merged={},
    pairwise=lambda x, w, b: apart_norm(x, w, b),
    two_passes=lambda x, w, b: F.layer_norm(x.float(), (1024,), w.float(), b.float(), 1e-5),
)
wrong(
    twelfth_wide_norm,
    wide_norm,
    {
        "means are in bfloat16": {"mean_of": narrow},
        "hides: merging eight parts leaves out what is between their means": {"lost": True},
        "hides: the variance is in bfloat16": {"kind": bf},
        "every row is centred at the first row's mean": {"mean_of": lambda m: m[:1].expand(256, 1)},
    },
    bf,
)


@twelfth(lambda d: (d(256, 1024, dtype=hf, scale=4), d(256, 1024, dtype=hf)))
def twelfth_softmax_backward(x, g):
    p = torch.softmax(x.float(), -1)
    g = g.float()
    return (p * (g - (p * g).sum(-1, keepdim=True))).to(hf)


def softmax_backward(x, g, p_of=None, inner=True, rows=1024, dot_of=None, stale=False):
    f, g = x.float(), g.float()
    p = torch.exp(f - f.amax(-1, keepdim=True))
    p = p / lanes(p)[:, None]
    p = p_of(p) if p_of else p
    dot = pairwise((p * g)[:, :rows])[:, None]
    dot = dot_of(dot) if dot_of else dot
    y = p * (g - dot * inner)
    if stale:
        y[200, 960:] = another(y)[200, 960:]
    return y


good(twelfth_softmax_backward, softmax_backward, hf, pairwise={}, apart=lambda x, g: apart(x, g))


def apart(x, g):
    p = torch.softmax(x.float(), -1)
    return p * g.float() - p * torch.einsum("rc,rc->r", p, g.float())[:, None]


wrong(
    twelfth_softmax_backward,
    softmax_backward,
    {
        "the inner product is not subtracted": {"inner": False},
        "the inner product lacks the last tile of 64": {"rows": 960},
        "probabilities are rounded to bfloat16": {"p_of": narrow},
        "hides: the inner product is in half precision": {"dot_of": lambda t: narrow(t, hf)},
        "a tile of one row is of a call before": {"stale": True},
    },
    hf,
)


@twelfth(lambda d: (d(64, 256, dtype=bf), d(256, 512, dtype=bf, scale=0.06), d(512, 256, dtype=bf, scale=0.04)))
def twelfth_mlp(x, up, down):
    h = F.relu(x.float() @ up.float()).square()
    return (h @ down.float() + x.float()).to(bf)


def mlp(x, up, down, skip=1.0, square=True, early=None, parts=8, lost=None, act=F.relu):
    h = act(split(x.float(), up.float(), 32))
    h = h * h if square else h
    h = early(h) if early else h
    return split(h, down.float(), 512 // parts, lost=lost) + skip * x.float()


good(twelfth_mlp, mlp, bf, tiles={}, one_product={"parts": 1})
wrong(
    twelfth_mlp,
    mlp,
    {
        "the input is not added": {"skip": 0.0},
        "relu is not squared": {"square": False},
        "gelu for relu": {"act": F.gelu},
        "one of eight hidden tiles is lost": {"lost": 5},
        "hides: the hidden layer is rounded to bfloat16": {"early": narrow},
        "the hidden layer saturates at 4": {"early": lambda h: h.clamp(max=4)},
    },
    bf,
)


@twelfth(lambda d: (d(2, 6, 20, 22, dtype=hf), d(8, 6, 3, 3, dtype=hf, scale=0.3), d(8, dtype=hf)))
def twelfth_conv_half(x, w, b):
    return F.relu(F.conv2d(x.float(), w.float(), b.float(), padding=1)).to(hf)


def conv_half(x, w, b, kind=None, act=True, left=1, lost=None, halo=True):
    f = F.pad(x.float(), (left, 2 - left, 1, 1))
    y = b.float()[:, None, None].expand(2, 8, 20, 22)
    for i in range(3):
        for j in range(3):
            part = torch.einsum("nchw,oc->nohw", f[:, :, i : i + 20, j : j + 22], w[:, :, i, j].float())
            if not halo and i == 2:  # the last row of a tile of 8 does not see the next tile
                part = torch.where((torch.arange(20) % 8 == 7)[:, None], 0.0, part)
            if (i, j) != lost:
                y = narrow(y + part, kind) if kind else y + part
    return y.clamp(min=0) if act else y


good(twelfth_conv_half, conv_half, hf, tap_by_tap={})
wrong(
    twelfth_conv_half,
    conv_half,
    {
        "padded by two on the left": {"left": 2},
        "the middle tap is left out": {"lost": (1, 1)},
        "tiles of eight rows do not see the row below": {"halo": False},
        "negative outputs are kept": {"act": False},
        "hides: taps are added in half precision": {"kind": hf},
    },
    hf,
)


@twelfth(lambda d: (d(3, 40, 32, dtype=hf), d(3, 40, 32, dtype=hf), d(3, 40, 32, dtype=hf), torch.tensor([12, 0, 25])))
def twelfth_prefix(q, k, v, prefix):
    i = torch.arange(40)
    seen = (i <= i[:, None]) | (i < prefix[:, None, None])
    s = (q.float() @ k.float().mT * 32**-0.5).masked_fill(~seen, -math.inf)
    return (torch.softmax(s, -1) @ v.float()).to(hf)


def prefix_attention(q, k, v, prefix, more=0, shared=False, block=None, use=True, **how):
    i = torch.arange(40)
    p = prefix[:1].expand(3) if shared else prefix
    p = p // block * block if block else p
    seen = (i <= i[:, None]) | ((i < p[:, None, None] + more) & use)
    return streamed((q.float() @ k.float().mT * 32**-0.5).masked_fill(~seen, -math.inf), v.float(), **how)


good(
    twelfth_prefix,
    prefix_attention,
    hf,
    streamed={},
    streamed_by_four={"step": 4},
    base_two={"base2": True, "step": 40},
)
wrong(
    twelfth_prefix,
    prefix_attention,
    {
        "the prefix is one longer": {"more": 1},
        "the prefix is cut to blocks of eight": {"block": 8},
        "all samples take the first one's prefix": {"shared": True},
        "the prefix is causal, too": {"use": False},
    },
    hf,
)


def cache_args(d):
    codes = (d.ints(255, 2, 60, 32) - 127).to(torch.int8)
    return d(2, 8, 32, dtype=bf), codes, d.rand(2, 60) * 0.02, d(2, 60, 32, dtype=bf)


@twelfth(cache_args)
def twelfth_cache_of_bytes(q, codes, scale, v):
    k = codes.to(scale.dtype) * scale[..., None]
    return (torch.softmax(q.to(scale.dtype) @ k.mT * 32**-0.5, -1) @ v.to(scale.dtype)).to(bf)


def cache_of_bytes(q, codes, scale, v, turn=0, shared=False, dtype=None, zero=0, **how):
    scale = scale.roll(turn, 1)
    scale = scale[:, :1] if shared else narrow(scale, dtype) if dtype else scale
    s = q.float() @ (codes.float() + zero).mT
    return streamed(s * (scale * 32**-0.5)[:, None], v.float(), **how)


good(twelfth_cache_of_bytes, cache_of_bytes, bf, scores_scaled={"step": 15}, in_one={"step": 60})
wrong(
    twelfth_cache_of_bytes,
    cache_of_bytes,
    {
        "scales are one token late": {"turn": 1},
        "all tokens take the first one's scale": {"shared": True},
        "codes are read with a zero point of 8": {"zero": 8},
        "hides: scales are in bfloat16": {"dtype": bf},
    },
    bf,
)

# ------------------------------------------------------------------ cancellation


@twelfth(lambda d: (d(30, 16, shift=50), d(25, 16, shift=50)))
def twelfth_distances(x, y):
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")


def by_products(x, y):
    return (x.square().sum(1)[:, None] + y.square().sum(1) - 2 * x @ y.T).clamp(min=0).sqrt()


def distances(x, y, root=True, lanes=16):
    s = torch.zeros(30, 25)
    for i in range(lanes):
        s = s + (x[:, None, i] - y[:, i]) ** 2
    return s.sqrt() if root else s


good(twelfth_distances, distances, lane_by_lane={}, centred_first=lambda x, y: by_products(x - 50, y - 50))
wrong(
    twelfth_distances,
    distances,
    {
        "by products, far from zero": by_products,
        "squares of distances": {"root": False},
        "one of sixteen lanes is left out": {"lanes": 15},
    },
)


@twelfth(lambda d: (d(8, 2000, scale=1e4), d(8, 2000)))
def twelfth_cancelling(x, y):
    return torch.cat([x, y, -x], 1).sum(-1)


def kahan(x, y):
    s, c = torch.zeros(8), torch.zeros(8)
    for t in (*x.T, *y.T, *(-x).T):
        u = t - c
        n = s + u
        c = (n - s) - u
        s = n
    return s


good(
    twelfth_cancelling,
    kahan,
    compensated={},
    pairwise=lambda x, y: pairwise(torch.cat([x, y, -x], 1)),
    lanes=lambda x, y: lanes(torch.cat([x, y, -x], 1)),
    great_ones_cancelled_first=lambda x, y: y.sum(-1),
)
wrong(
    twelfth_cancelling,
    None,
    {
        "the middle part is left out": lambda x, y: pairwise(torch.cat([x, -x], 1)),
        "the last element is left out": lambda x, y: pairwise(torch.cat([x, y, -x[:, :-1]], 1)),
        "the last 64 of the middle part are left out": lambda x, y: pairwise(torch.cat([x, y[:, :-64], -x], 1)),
    },
)


@twelfth(lambda d: (d(20, 200, scale=6), d(20, 200, scale=6)))
def twelfth_saturated(x, y):
    return torch.sigmoid(3 * x) * torch.tanh(y), F.logsigmoid(10 * x)


def saturated(x, y, tanh=torch.tanh, low=None, k=3.0):
    s = torch.where(x > 0, 1 / (1 + torch.exp(-k * x.abs())), torch.exp(-k * x.abs()) / (1 + torch.exp(-k * x.abs())))
    z = 10 * x
    return s * tanh(y), low(z) if low else z.clamp(max=0) - torch.log1p(torch.exp(-z.abs()))


good(
    twelfth_saturated, saturated, by_signs={}, by_softplus={"low": lambda z: -torch.logaddexp(-z, torch.zeros_like(z))}
)
wrong(
    twelfth_saturated,
    saturated,
    {
        "the logarithm of a sigmoid that is zero": {"low": lambda z: torch.log(torch.sigmoid(z))},
        "tanh is clipped at three": {"tanh": lambda t: torch.tanh(t.clamp(-3, 3))},
        "the argument is not tripled": {"k": 1.0},
        "tanh is a rational function of low degree": {
            "tanh": lambda t: (t * (27 + t * t) / (27 + 9 * t * t)).clamp(-1, 1)
        },
    },
)


@twelfth(lambda d: (d(6, 7, dtype=bf), d(6, 7), torch.tensor(0.25)))
def twelfth_blend(x, y, t):
    return torch.lerp(x.float(), y, t), (x.float() - y).abs().amax()


def blend(x, y, t, turn=False, most=True, twice=False):
    x = x.float()
    t = 1 - t if turn else t * t if twice else t
    e = x - y
    return x - t * e, e.abs().max() if most else e.min().abs()


good(
    twelfth_blend,
    blend,
    by_the_difference={},
    by_two_products=lambda x, y, t: (x.float() * (1 - t) + t * y, (y - x).abs().max()),
)
wrong(
    twelfth_blend,
    blend,
    {
        "the weight is on the other end": {"turn": True},
        "the weight is applied twice": {"twice": True},
        "the magnitude of the least difference for the greatest": {"most": False},
    },
)
