# SPDX-License-Identifier: Apache-2.0
"""Set I, the aimed part, written blind (see blind_seventh_f): sums of 64 to 65536 terms whose products or partial
sums are kept in TF32, bf16 or half precision between tiles."""

import torch
import torch.nn.functional as F

from .blind import bf, hf, tf32
from .blind_seventh_a import doubled, right, seventh, via, wrong
from .blind_seventh_b import folded, ladder
from .blind_seventh_c import by_k

f32 = torch.float32


def tiled(x, step=1024, kind=None):
    """The sum over the last axis, tile by tile: the total is kept in `kind`."""
    total = x.new_zeros(x.shape[:-1])
    for part in x.split(step, -1):
        total = via(total + part.sum(-1), kind)
    return total


def shuffled(n, step=7919):
    return torch.arange(n) * step % n


# ------------------------------------------------------------------ sums


@seventh(lambda d: (d(8, 65536, dtype=bf, shift=0.06),))
def partial_sum_65536_bf16(x):
    return x.sum(-1)


right(partial_sum_65536_bf16, "by folding", folded)
right(partial_sum_65536_bf16, "tiles of 1024", tiled)
right(partial_sum_65536_bf16, "in shuffled order, tiles of 256", lambda x: tiled(x[:, shuffled(65536)], 256))
wrong(
    partial_sum_65536_bf16,
    tiled,
    {
        "the total is kept in bf16 between tiles of 1024": dict(kind=bf),
        "the total is kept in e5m2 between tiles of 16384": dict(kind=torch.float8_e5m2, step=16384),
        "the total is kept in bf16 between tiles of 256": dict(kind=bf, step=256),
        "the last tile of 1024 is left out": lambda x: tiled(x[:, :-1024]),
    },
)


@seventh(lambda d: (d(6, 4096, dtype=hf, shift=1.0),))
def partial_mean_4096_half(x):
    return x.mean(-1)


def mean(x, **keys):
    return tiled(x, **keys) / x.shape[-1]


right(partial_mean_4096_half, "by folding", lambda x: folded(x) / 4096)
right(partial_mean_4096_half, "each term divided first", lambda x: tiled(x / 4096, 64))
wrong(
    partial_mean_4096_half,
    mean,
    {
        "the total is kept in half precision between tiles of 64": dict(step=64, kind=hf),
        "the total is kept in bf16 between tiles of 512": dict(step=512, kind=bf),
        "the total is kept in half precision between tiles of 16": dict(step=16, kind=hf),
    },
)


@seventh(lambda d: (d(16384), d(16384)))
def partial_dot_16384(a, b):
    return torch.dot(a, b)


def dot(a, b, step=512, kind=None, cast=None):
    a, b = (a, b) if cast is None else (cast(a), cast(b))
    return tiled((a * b)[None], step, kind)[0]


right(partial_dot_16384, "tiles of 512", dot)
right(partial_dot_16384, "by folding", lambda a, b: folded((a * b)[None])[0])
right(partial_dot_16384, "in shuffled order", lambda a, b: (lambda p: dot(a[p], b[p], 32))(shuffled(16384)))
wrong(
    partial_dot_16384,
    dot,
    {
        "factors are rounded to TF32": dict(cast=tf32),
        "factors are rounded to bf16": dict(cast=lambda x: via(x, bf)),
        "the total is kept in half precision between tiles of 512": dict(kind=hf),
        "the total is kept in bf16 between tiles of 4096": dict(kind=bf, step=4096),
    },
)


@seventh(lambda d: (d(5, 8192, shift=0.7),))
def partial_variance_8192(x):
    return x.var(-1)


def variance(x, low=None, naive=None, over=8191, middle=None):
    m = via(tiled(x) / 8192, middle)
    if naive is not None:
        return (via(tiled(x * x), naive) - 8192 * via(m, naive).square()) / over
    return tiled((x - m[:, None]).square(), 1024, low) / over


right(partial_variance_8192, "two passes in tiles", variance)
right(partial_variance_8192, "by folding", lambda x: folded((x - folded(x)[:, None] / 8192).square()) / 8191)
doubled(partial_variance_8192)
wrong(
    partial_variance_8192,
    variance,
    {
        "squares are added up in bf16 between tiles of 1024": dict(low=bf),
        "squares are added up in half precision between tiles of 1024": dict(low=hf),
        "the mean is rounded to bf16 before it is taken off": dict(middle=bf),
        "the difference of moments kept in half precision": dict(naive=hf),
    },
)


@seventh(lambda d: (d(4, 32768, scale=1.5),))
def partial_log_sum_32768(x):
    return x.logsumexp(-1)


def log_sum(x, step=1024, kind=None, cast=None):
    m = x.amax(-1)
    e = (x - m[:, None]).exp()
    return tiled(e if cast is None else cast(e), step, kind).log() + m


right(partial_log_sum_32768, "tiles of 1024", log_sum)
right(partial_log_sum_32768, "by folding", lambda x: folded(x.exp()).log())
wrong(
    partial_log_sum_32768,
    log_sum,
    {
        "the sum is kept in half precision between tiles of 128": dict(kind=hf, step=128),
        "the sum is kept in bf16 between tiles of 1024": dict(kind=bf),
        "exponentials are rounded to bf16, the sum kept in half precision": dict(cast=lambda e: via(e, bf), kind=hf),
    },
)


@seventh(lambda d: (d(4, 4096),))
def partial_running_sum_4096(x):
    return x.cumsum(-1)


def running(x, step=256, kind=None, cast=None):
    out, carry = [], x[:, :1] * 0
    for part in (x if cast is None else cast(x)).split(step, -1):
        out.append(part.cumsum(-1) + carry)
        carry = via(out[-1][:, -1:], kind)
    return torch.cat(out, -1)


right(partial_running_sum_4096, "tiles of 256", running)
right(partial_running_sum_4096, "in double precision", running, torch.float64)
wrong(
    partial_running_sum_4096,
    running,
    {
        "the carry between tiles is kept in bf16": dict(kind=bf),
        "the carry between tiles of 64 is kept in half precision": dict(kind=hf, step=64),
        "numbers are rounded to TF32": dict(cast=tf32),
    },
)


@seventh(lambda d: (d(65536, shift=0.5), d.ints(6, 65536)))
def partial_scatter_65536(x, i):
    return x.new_zeros(6).index_add(0, i, x)


def scatter(x, i, step=4096, kind=None, cast=None):
    hot = F.one_hot(i, 6).to(x.dtype)
    return tiled((hot * (x if cast is None else cast(x))[:, None]).mT, step, kind)


right(partial_scatter_65536, "marks summed in tiles of 4096", scatter)
right(partial_scatter_65536, "in shuffled order", lambda x, i: (lambda p: scatter(x[p], i[p], 64))(shuffled(65536)))
wrong(
    partial_scatter_65536,
    scatter,
    {
        "totals are kept in bf16 between tiles of 4096": dict(kind=bf),
        "totals are kept in half precision between tiles of 512": dict(kind=hf, step=512),
        "numbers are rounded to bf16 before they are added": dict(cast=lambda x: via(x, bf)),
    },
)


# ------------------------------------------------------------------ products


@seventh(lambda d: (d(16, 1024), d(1024, 24)))
def partial_product_1024(a, b):
    return a @ b


def split_bf16(a, b, parts=3):
    """Products of bf16 parts, three for each factor at most, added in float32."""

    def cut(x):
        out = []
        for _ in range(parts):
            out.append(via(x, bf))
            x = x - out[-1]
        return out

    return sum(p @ q for i, p in enumerate(cut(a)) for j, q in enumerate(cut(b)) if i + j < parts)


right(partial_product_1024, "tiles of 16", by_k)
right(
    partial_product_1024,
    "eight splits added by folding",
    lambda a, b: folded(torch.stack([x @ y for x, y in zip(a.split(128, 1), b.split(128, 0))], -1)),
)
right(partial_product_1024, "one fused product after another", lambda a, b: by_k(a, b, 1))
wrong(
    partial_product_1024,
    by_k,
    {
        "factors are rounded to TF32": lambda a, b: tf32(a) @ tf32(b),
        "factors are rounded to bf16": lambda a, b: via(a, bf) @ via(b, bf),
        "only the first two bf16 parts of each factor are multiplied": lambda a, b: split_bf16(a, b, 2),
        "sums are kept in half precision between tiles of 128": dict(step=128, kind=hf),
        "one factor only is rounded to TF32": lambda a, b: tf32(a) @ b,
    },
)


@seventh(lambda d: (d(12, 2048, dtype=bf), d(2048, 20, dtype=bf)))
def partial_product_2048_bf16(a, b):
    return a @ b


right(partial_product_2048_bf16, "tiles of 16", by_k)
right(
    partial_product_2048_bf16,
    "eight splits in shuffled order",
    lambda a, b: (lambda p: by_k(a[:, p], b[p], 256))(shuffled(2048)),
)
wrong(
    partial_product_2048_bf16,
    by_k,
    {
        "sums are kept in bf16 between tiles of 256": dict(step=256, kind=bf),
        "eight splits are stored in bf16 before they are added": lambda a, b: sum(
            via(x @ y, bf) for x, y in zip(a.split(256, 1), b.split(256, 0))
        ),
        "sums are kept in bf16 between tiles of 32": dict(step=32, kind=bf),
        "sums are kept in half precision between tiles of 2": dict(step=2, kind=hf),
    },
)


@seventh(lambda d: (d(20, 512, dtype=hf), d(512, 16, dtype=hf)))
def partial_product_512_half(a, b):
    return a @ b


right(partial_product_512_half, "tiles of 16", by_k)
right(partial_product_512_half, "by folding", lambda a, b: folded(a[:, None] * b.mT))
wrong(
    partial_product_512_half,
    by_k,
    {
        "sums are kept in half precision between tiles of 16": dict(step=16, kind=hf),
        "sums are kept in half precision between tiles of 128": dict(step=128, kind=hf),
        "factors are rounded to bf16": lambda a, b: via(a, bf) @ via(b, bf),
        "the products are rounded to half precision": lambda a, b: folded(via(a[:, None] * b.mT, hf)),
    },
)


@seventh(lambda d: (d(10, 64), d(64, 12)))
def partial_product_64(a, b):
    return a @ b


right(partial_product_64, "tiles of 16", by_k)
right(partial_product_64, "by folding", lambda a, b: folded(a[:, None] * b.mT))
doubled(partial_product_64)
wrong(
    partial_product_64,
    by_k,
    {
        "factors are rounded to TF32": lambda a, b: tf32(a) @ tf32(b),
        "sums are kept in half precision between tiles of 16": dict(kind=hf),
        "sums are kept in bf16 between tiles of 32": dict(kind=bf, step=32),
    },
)


@seventh(lambda d: (d(2, 64, 40, dtype=hf), d(16, 64, 5, dtype=hf, scale=0.2)))
def partial_conv1d_320_half(x, w):
    return F.conv1d(x, w)


def conv_parts(x, w, kind=None, cast=None):
    x, w = (x, w) if cast is None else (cast(x), cast(w))
    out = 0
    for k in range(5):
        for c in range(0, 64, 16):
            out = via(out + torch.einsum("bct,oc->bot", x[:, c : c + 16, k : k + 36], w[:, c : c + 16, k]), kind)
    return out


right(partial_conv1d_320_half, "taps and sixteen channels at a time", conv_parts)
doubled(partial_conv1d_320_half)
wrong(
    partial_conv1d_320_half,
    conv_parts,
    {
        "sums are kept in half precision between parts": dict(kind=hf),
        "sums are kept in bf16 between parts": dict(kind=bf),
        "factors are rounded to bf16": dict(cast=lambda t: via(t, bf)),
    },
)


@seventh(lambda d: (d(4096, 6, dtype=bf), d(4096, 10, dtype=bf)))
def partial_weight_gradient_4096(g, x):
    return g.mT @ x, g.sum(0)


def weight_gradient(g, x, step=512, kind=None, rows=4096, bias=None):
    dw, db = g.new_zeros(6, 10), g.new_zeros(6)
    for s in range(0, rows, step):
        a, b = g[s : s + step], x[s : s + step]
        dw, db = via(dw + a.mT @ b, kind), via(db + a.sum(0), bias)
    return dw, db


right(partial_weight_gradient_4096, "512 rows at a time", weight_gradient)
right(partial_weight_gradient_4096, "32 rows at a time", weight_gradient, step=32)
wrong(
    partial_weight_gradient_4096,
    weight_gradient,
    {
        "the gradient is kept in bf16 between 512 rows": dict(kind=bf),
        "the gradient is kept in half precision between 32 rows": dict(kind=hf, step=32),
        "the bias gradient is kept in bf16 between 64 rows": dict(bias=bf, step=64),
        "the last 512 rows are left out": dict(rows=3584),
    },
)


@seventh(lambda d: (d(6, 4096, dtype=bf), d(4096, dtype=bf, shift=1.0, scale=0.1)))
def partial_rms_norm_4096_bf16(x, w):
    return F.rms_norm(x, (4096,), w, 1e-6)


def rms(x, w, **keys):
    return x * (tiled(x * x, **keys)[:, None] / 4096 + 1e-6).rsqrt() * w


right(partial_rms_norm_4096_bf16, "tiles of 1024", rms)
right(partial_rms_norm_4096_bf16, "by folding", lambda x, w: x * (folded(x * x)[:, None] / 4096 + 1e-6).rsqrt() * w)
right(partial_rms_norm_4096_bf16, "blocks of 64", lambda x, w: x * (ladder(x * x)[:, None] / 4096 + 1e-6).rsqrt() * w)
wrong(
    partial_rms_norm_4096_bf16,
    rms,
    {
        "the sum of squares is kept in bf16 between tiles of 64": dict(step=64, kind=bf),
        "the sum of squares is kept in bf16 between tiles of 16": dict(step=16, kind=bf),
        "squares are added one by one in half precision, the sum never passes 2048": lambda x, w: (
            x * (tiled(x * x, 1, hf).clamp_max(2048)[:, None] / 4096 + 1e-6).rsqrt() * w
        ),
    },
)
