# SPDX-License-Identifier: Apache-2.0
"""Set K, the rest, written as blind_eighth_a: emptied outputs, what leaves the range inside, bodies that begin in
float32, products that are packed, constant factors, callables in 16 bits."""

import torch
import torch.nn.functional as F

from .blind import bf, hf, honest, mistake, narrow, slow_matmul
from .blind_eighth_a import doubled, eighth, halved, serial
from .blind_seventh_a import E4, right, wrong

aten = torch.ops.aten

# ------------------------------------------------------------------ emptied outputs


@eighth(lambda d: (d(400, 250, dtype=hf), d(400, dtype=hf)))
def eighth_mean_grad(x, g):
    return (g[:, None] / (400 * 250 * 4)).expand(400, 250).contiguous()


wrong(
    eighth_mean_grad,
    eighth_mean_grad,
    {"all zeros": lambda x, g: x * 0, "all of the smallest": lambda x, g: x * 0 + 6e-8},
)


@eighth(lambda d: (d(4, 30000, dtype=hf, scale=0.5),))
def eighth_flat_softmax(x):
    return F.softmax(x, -1)


doubled(eighth_flat_softmax, eighth_flat_softmax)
right(eighth_flat_softmax, "by halves", lambda x: x.exp() / halved(x.exp())[:, None])
wrong(
    eighth_flat_softmax,
    eighth_flat_softmax,
    {
        "all zeros": lambda x: x * 0,
        "one value for all": lambda x: x * 0 + 1 / 30000,
        "zero below 6e-5": lambda x: F.threshold(F.softmax(x, -1), 6.1e-5, 0.0),
    },
)


@eighth(lambda d: (d(30, 300, dtype=bf, scale=1e-10),))
def eighth_small_var(x):
    return x.var(-1)


doubled(eighth_small_var, eighth_small_var)
wrong(
    eighth_small_var,
    eighth_small_var,
    {
        "all zeros": lambda x: x[:, 0] * 0,
        "the first for all": lambda x: eighth_small_var(x)[:1].expand(30),
    },
)


# ------------------------------------------------------------------ what leaves the range inside


@eighth(lambda d: (d(50, 30, scale=1e-25), d(50, 30, scale=1e-25)))
def eighth_hypot(a, b):
    return torch.hypot(a, b)


doubled(eighth_hypot, lambda a, b: (a * a + b * b).sqrt())
wrong(
    eighth_hypot,
    eighth_hypot,
    {
        "squares vanish": lambda a, b: (a * a + b * b).sqrt(),
        "the larger": lambda a, b: torch.maximum(a.abs(), b.abs()),
    },
)


@eighth(lambda d: (d(40, 60, scale=1e22),))
def eighth_large_norm(x):
    return x.norm(dim=-1)


def by_top(x):
    top = x.abs().amax(-1, keepdim=True)
    return top[:, 0] * (x / top).square().sum(-1).sqrt()


right(eighth_large_norm, "scaled by the largest", by_top)
doubled(eighth_large_norm, lambda x: x.square().sum(-1).sqrt())
wrong(
    eighth_large_norm,
    eighth_large_norm,
    {
        "squares overflow": lambda x: x.square().sum(-1).sqrt(),
        "the largest number": lambda x: x[:, 0] * 0 + 3.4028e38,
    },
)


@eighth(lambda d: (d(60, 32, scale=1e-22), d(60, 32, scale=1e-22)))
def eighth_tiny_cosine(a, b):
    return F.cosine_similarity(a, b, dim=-1, eps=0.0)


doubled(
    eighth_tiny_cosine,
    lambda a, b: (a * b).sum(-1) / (a.square().sum(-1) * b.square().sum(-1)).sqrt(),
)
right(
    eighth_tiny_cosine,
    "scaled first",
    lambda a, b: ((a / by_top(a)[:, None]) * (b / by_top(b)[:, None])).sum(-1),
)
wrong(
    eighth_tiny_cosine,
    eighth_tiny_cosine,
    {"zero": lambda a, b: a[:, 0] * 0, "one": lambda a, b: a[:, 0] * 0 + 1},
)


@eighth(lambda d: (d(30, 40, scale=80.0), d(30, 40, scale=80.0)))
def eighth_logaddexp(a, b):
    return torch.logaddexp(a, b)


right(
    eighth_logaddexp,
    "from the larger",
    lambda a, b: torch.maximum(a, b) + (-(a - b).abs()).exp().log1p(),
)
wrong(
    eighth_logaddexp,
    eighth_logaddexp,
    {
        "exponentials overflow": lambda a, b: (a.exp() + b.exp()).log(),
        "the larger": torch.maximum,
        "held at 88": lambda a, b: torch.logaddexp(a, b).clamp(max=88.0),
    },
)


@eighth(lambda d: (d(40, 33, scale=1e-30),))
def eighth_tiny_scale(x):
    return x / x.std(-1, keepdim=True)


doubled(eighth_tiny_scale, eighth_tiny_scale)
right(eighth_tiny_scale, "scaled first", lambda x: (x * 1e30) / (x * 1e30).std(-1, keepdim=True))
wrong(
    eighth_tiny_scale,
    eighth_tiny_scale,
    {
        "infinity with a sign": lambda x: x.sign() * float("inf"),
        "zeros": lambda x: x * 0,
        "not centred": lambda x: (x * 1e30) / (x * 1e30).square().mean(-1, keepdim=True).sqrt(),
    },
)


# ------------------------------------------------------------------ bodies that begin in float32


@eighth(lambda d: (d(64, 256, dtype=bf), 1 + 0.1 * d(256).to(bf)))
def eighth_lifted_rms(x, w):
    y = x.float()
    y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6)
    return (y * w.float()).to(x.dtype)


right(
    eighth_lifted_rms,
    "by halves",
    lambda x, w: x * (halved(x * x)[:, None] / 256 + 1e-6).rsqrt() * w,
)
wrong(
    eighth_lifted_rms,
    eighth_lifted_rms,
    {
        "the mean square in bf16": lambda x, w: x * (narrow(x.square().mean(-1, keepdim=True)) + 1e-6).rsqrt() * w,
        "the normed in bf16": lambda x, w: narrow(x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()) * w,
        "eps is 1e-2": lambda x, w: x * (x.square().mean(-1, keepdim=True) + 1e-2).rsqrt() * w,
    },
)


@eighth(lambda d: (d(4, 50, 64, dtype=hf), d.rand(50, 32)))
def eighth_lifted_rope(x, turn):
    y = x.to(torch.float32)
    a, b = y.chunk(2, -1)
    c, s = torch.cos(turn * 6), torch.sin(turn * 6)
    return torch.cat((a * c - b * s, b * c + a * s), -1).to(x.dtype)


def rope(x, turn, kind=None, sign=1.0):
    a, b = x.chunk(2, -1)
    c, s = torch.cos(turn * 6), torch.sin(turn * 6)
    c, s = (c, s) if kind is None else (narrow(c, kind), narrow(s, kind))
    return torch.cat((a * c - sign * b * s, b * c + sign * a * s), -1)


doubled(eighth_lifted_rope, rope)
wrong(
    eighth_lifted_rope,
    rope,
    {
        "tables in bf16": {"kind": bf},
        "tables in float16": {"kind": hf},
        "turned the other way": {"sign": -1.0},
    },
)


@eighth(lambda d: (d(2, 24, 64, dtype=hf), d(2, 40, 64, dtype=hf), d(2, 40, 64, dtype=hf)))
def eighth_lifted_attention(q, k, v):
    p = F.softmax(q.float() @ k.float().mT / 8, -1)
    return (p @ v.float()).to(q.dtype)


def attention(q, k, v, kind=None, scale=8.0):
    s = q @ k.mT / scale
    p = F.softmax(s if kind is None else narrow(s, kind), -1)
    return p @ v


doubled(eighth_lifted_attention, attention)
wrong(
    eighth_lifted_attention,
    attention,
    {
        "scores in float16": {"kind": hf},
        "scores in bf16": {"kind": bf},
        "the scale is 7.9": {"scale": 7.9},
    },
)


@eighth(lambda d: (d(200, 128, dtype=bf), d(200, 128, dtype=bf)))
def eighth_lifted_swiglu(a, b):
    return (F.silu(a.float()) * b.float()).to(a.dtype)


doubled(eighth_lifted_swiglu, lambda a, b: a * torch.sigmoid(a) * b)
wrong(
    eighth_lifted_swiglu,
    lambda a, b: F.silu(a) * b,
    {
        "silu rounded to bf16": lambda a, b: narrow(F.silu(a)) * b,
        "the sigmoid rounded to bf16": lambda a, b: a * narrow(torch.sigmoid(a)) * b,
        "quick": lambda a, b: a * torch.sigmoid(1.01 * a) * b,
    },
)


# ------------------------------------------------------------------ products that are packed


def eights(d, n=48, k=96, m=40):
    return d(n, k).to(E4), d(m, k).to(E4).t()


@eighth(lambda d: (*eights(d), torch.tensor(0.31), torch.tensor(2.3)))
def eighth_scaled_mm(a, b, sa, sb):
    return aten._scaled_mm(a, b, sa, sb, None, None, bf)


honest(
    eighth_scaled_mm,
    "one after another",
    lambda a, b, sa, sb: (serial(a.float()[:, None] * b.float().t()) * sa * sb).to(bf),
)
for words, kernel in {
    "one scale squared": lambda a, b, sa, sb: (a.float() @ b.float() * sa * sa).to(bf),
    "the product stored in float16 before it is scaled up": lambda a, b, sa, sb: (
        (a.float() @ b.float()).to(bf) * sa * sb
    ).to(bf),
    "the accumulator is bf16": lambda a, b, sa, sb: (slow_matmul(a.float(), b.float()) * sa * sb).to(bf),
}.items():
    mistake(eighth_scaled_mm, words, kernel)


@eighth(
    lambda d: (
        d(40, 64, dtype=bf),
        d.ints(255, 30, 64).sub(127).to(torch.int8),
        (d.rand(30) + 0.1).to(bf),
    )
)
def eighth_int8_linear(x, w, s):
    return aten._weight_int8pack_mm(x, w, s)


honest(
    eighth_int8_linear,
    "one after another",
    lambda x, w, s: (serial(x.float()[:, None] * w.float()) * s.float()).to(bf),
)
wrong(
    eighth_int8_linear,
    lambda x, w, s: x @ w.float().t() * s,
    {
        "the scale of the next channel": lambda x, w, s: x @ w.float().t() * s.roll(-1),
        "the last term is missing": lambda x, w, s: x[:, :-1] @ w.float()[:, :-1].t() * s,
        "weights from 127 on are 126": lambda x, w, s: x @ w.clamp(max=126).float().t() * s,
    },
)


# ------------------------------------------------------------------ constant factors


@eighth(lambda d: (d(30, 500),))
def eighth_gelu(x):
    return F.gelu(x)


right(eighth_gelu, "by erf", lambda x: 0.5 * x * (1 + torch.erf(x / 2**0.5)))
wrong(
    eighth_gelu,
    eighth_gelu,
    {f"times {f}": lambda x, f=f: F.gelu(x) * f for f in (1.01, 0.9, 1.0002)},
)


@eighth(lambda d: (d(2000),))
def eighth_mean_square(x):
    return x.square().mean()


right(eighth_mean_square, "one after another", lambda x: serial(x * x) / 2000)
wrong(
    eighth_mean_square,
    eighth_mean_square,
    {f"times {f}": lambda x, f=f: x.square().mean() * f for f in (1.1, 1.001, 1.00002)},
)


@eighth(lambda d: (d(300, 20), d.ints(20, 300)))
def eighth_loss(x, t):
    return F.cross_entropy(x, t)


right(
    eighth_loss,
    "one after another",
    lambda x, t: serial(-F.log_softmax(x, -1).gather(1, t[:, None])[:, 0]) / 300,
)
wrong(
    eighth_loss,
    eighth_loss,
    {f"times {f}": lambda x, t, f=f: F.cross_entropy(x, t) * f for f in (1.02, 1.00003)}
    | {
        "over 299": lambda x, t: F.cross_entropy(x, t) * 300 / 299,
        "log in bf16": lambda x, t: (narrow(x.exp().sum(-1).log()) - x.gather(1, t[:, None])[:, 0]).mean(),
        "sums in bf16": lambda x, t: (narrow(x.exp().sum(-1)).log() - x.gather(1, t[:, None])[:, 0]).mean(),
    },
)


@eighth(lambda d: (d(2, 8, 14, 14, dtype=bf), d(6, 8, 3, 3, dtype=bf)))
def eighth_conv(x, w):
    return F.conv2d(x, w)


doubled(eighth_conv, eighth_conv)
wrong(
    eighth_conv,
    eighth_conv,
    {f"times {f}": lambda x, w, f=f: F.conv2d(x, w) * f for f in (0.95, 1.003, 1.001)},
)


@eighth(lambda d: (d(40, 100),))
def eighth_softmax(x):
    return F.softmax(x, -1)


wrong(
    eighth_softmax,
    eighth_softmax,
    {f"times {f}": lambda x, f=f: F.softmax(x, -1) * f for f in (1.005, 1.00001, 0.5)},
)


# ------------------------------------------------------------------ callables in 16 bits


@eighth(
    lambda d: (
        d(32, 64, dtype=bf),
        d(128, 64, dtype=bf, scale=0.1),
        d(64, 128, dtype=bf, scale=0.1),
    )
)
def eighth_block(x, w1, w2):
    return x + F.gelu(x @ w1.t()) @ w2.t()


honest(eighth_block, "as it is", lambda *a: eighth_block(*a))
doubled(eighth_block, eighth_block)
wrong(
    eighth_block,
    eighth_block,
    {
        "quick gelu": lambda x, w1, w2: x + (x @ w1.t()) * torch.sigmoid(1.702 * (x @ w1.t())) @ w2.t(),
        "no residual": lambda x, w1, w2: F.gelu(x @ w1.t()) @ w2.t(),
        "times 1.01": lambda *a: eighth_block(*a) * 1.01,
        "weights in 5 bits": lambda x, w1, w2: x + F.gelu(x @ w1.t()) @ (w2.to(E4).float()).t(),
    },
)


@eighth(
    lambda d: (
        d(32, 96, dtype=hf),
        d(96, dtype=hf),
        d(96, dtype=hf),
        d(48, 96, dtype=hf, scale=0.1),
    )
)
def eighth_norm_linear(x, w, b, m):
    return F.layer_norm(x, (96,), w, b) @ m.t()


honest(eighth_norm_linear, "as it is", lambda *a: eighth_norm_linear(*a))
doubled(eighth_norm_linear, eighth_norm_linear)
wrong(
    eighth_norm_linear,
    eighth_norm_linear,
    {
        "no bias": lambda x, w, b, m: F.layer_norm(x, (96,), w) @ m.t(),
        "n - 1": lambda x, w, b, m: ((x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True) * w + b) @ m.t(),
        "normed in bf16": lambda x, w, b, m: narrow(F.layer_norm(x, (96,), w, b)) @ m.t(),
    },
)
