# SPDX-License-Identifier: Apache-2.0
"""Set I, the aimed part, written blind (see blind_seventh_a): results in 16 bits that miss by one unit in the
last place away from any tie, and results multiplied by a constant next to 1."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, mistake, tf32
from .blind_seventh_a import at, doubled, floats, loaded, online, right, seventh, via
from .blind_seventh_b import folded, ladder

f32 = torch.float32


def stored_as(args):
    return next(a.dtype for a in args if floats(a))


def toward(exact, store, way="zero"):
    """float32 numbers stored in 16 bits by cutting ("zero"), or by going "up" or "away" from zero."""
    y = exact.to(store)
    back = y.float()
    low, high = back.abs() > exact.abs(), back.abs() < exact.abs()
    bits = y.view(torch.int16)
    if way == "zero":
        bits = bits - low.to(torch.int16)
    elif way == "away":
        bits = bits + high.to(torch.int16)
    else:
        bits = bits + ((exact > 0) & high).to(torch.int16) - ((exact < 0) & low).to(torch.int16)
    return bits.view(store)


def stored_toward(kernel, way="zero"):
    def run(*args):
        return toward(kernel(*loaded(args, f32)), stored_as(args), way)

    return run


def one_unit(kernel, every=1, start=0, by=1, first=0):
    """Every so many results lie `by` units off, of those that round by less than 0.15 of a unit."""

    def run(*args):
        exact = kernel(*loaded(args, f32))
        y = exact.to(stored_as(args))
        moved = (y.view(torch.int16) + by).view(y.dtype)
        sure = (exact - y.float()).abs() < 0.15 * (moved.float() - y.float()).abs()
        place = torch.arange(y.numel()).view(y.shape)
        return torch.where(sure & (place % every == start) & (place >= first) & (y != 0), moved, y)

    return run


def wrong_by_units(fn, kernel, cases):
    for words, (how, keys) in cases.items():
        mistake(fn, words, how(kernel, **keys))


def scaled(kernel, factor, into=None):
    return at(lambda *a: kernel(*a) * factor, into=into)


# ------------------------------------------------------------------ one unit


@seventh(lambda d: (d(40, 128, dtype=bf), d(40, 128, dtype=bf, scale=0.3)))
def unit_residual_scale_add(x, y):
    return torch.add(x, y, alpha=0.7)


right(unit_residual_scale_add, "multiplied and added", lambda x, y: x + 0.7 * y)
doubled(unit_residual_scale_add)
wrong_by_units(
    unit_residual_scale_add,
    lambda x, y: x + 0.7 * y,
    {
        "results are cut to bf16 instead of rounded": (stored_toward, {}),
        "results are rounded up to bf16": (stored_toward, dict(way="up")),
        "the last column is one unit too large where it is not near a tie": (one_unit, dict(every=128, start=127)),
        "of every 128 results one, where it is not near a tie, is one unit too small in size": (
            one_unit,
            dict(every=128, start=5, by=-1),
        ),
    },
)


@seventh(lambda d: (d(60, 96, dtype=hf),))
def unit_gelu_exact(x):
    return F.gelu(x)


def gelu(x):
    return x * torch.special.ndtr(x)


right(unit_gelu_exact, "through the normal distribution", gelu)
right(unit_gelu_exact, "through erfc", lambda x: x * torch.erfc(-x * math.sqrt(0.5)) / 2)
wrong_by_units(
    unit_gelu_exact,
    gelu,
    {
        "results are cut to half precision": (stored_toward, {}),
        "results are rounded away from zero": (stored_toward, dict(way="away")),
        "in the last tile of 96 every result that is not near a tie is one unit too large": (
            one_unit,
            dict(first=5664),
        ),
        "every eighth result that is not near a tie is one unit too large": (one_unit, dict(every=8, start=3)),
    },
)
mistake(
    unit_gelu_exact,
    "the constant of erf is 0.7068 instead of 0.7071",
    at(lambda x: x * (1 + torch.erf(x * 0.7068)) / 2),
)


@seventh(lambda d: (d(50, 200, dtype=bf, scale=2.0),))
def unit_softmax_rows(x):
    return x.softmax(-1)


def softmax_online(x, tile=64):
    top, z = x[:, :1] * 0 - math.inf, x[:, :1] * 0
    for part in x.split(tile, -1):
        new = torch.maximum(top, part.amax(-1, keepdim=True))
        z = z * (top - new).exp() + (part - new).exp().sum(-1, keepdim=True)
        top = new
    return (x - top).exp() / z


right(unit_softmax_rows, "one pass with a running maximum", softmax_online)
right(unit_softmax_rows, "from the log of the sum", lambda x: (x - x.logsumexp(-1, keepdim=True)).exp())
right(unit_softmax_rows, "without the maximum taken off", lambda x: x.exp() / x.exp().sum(-1, keepdim=True))
wrong_by_units(
    unit_softmax_rows,
    softmax_online,
    {
        "results are cut to bf16": (stored_toward, {}),
        "the first column is one unit too small where it is not near a tie": (one_unit, dict(every=200, by=-1)),
        "of every fifty results the last, where it is not near a tie, is one unit too large": (
            one_unit,
            dict(every=50, start=49),
        ),
    },
)
mistake(
    unit_softmax_rows,
    "exponentials are rounded to bf16 before the division",
    at(lambda x: (lambda e: via(e, bf) / e.sum(-1, keepdim=True))((x - x.amax(-1, keepdim=True)).exp())),
)


@seventh(lambda d: (d(32, 256, dtype=hf), d(256, dtype=hf, shift=1.0, scale=0.1)))
def unit_rms_norm(x, w):
    return F.rms_norm(x, (256,), w, 1e-6)


def rms(x, w):
    return x * (folded(x * x)[:, None] / 256 + 1e-6).rsqrt() * w


right(unit_rms_norm, "sum of squares by folding", rms)
right(unit_rms_norm, "divided by a root", lambda x, w: x / (ladder(x * x)[:, None] / 256 + 1e-6).sqrt() * w)
wrong_by_units(
    unit_rms_norm,
    rms,
    {
        "results are cut to half precision": (stored_toward, {}),
        "results are rounded up": (stored_toward, dict(way="up")),
        "the last row's results that are not near a tie are one unit too large": (one_unit, dict(first=31 * 256)),
    },
)
mistake(
    unit_rms_norm,
    "the normalized row is stored as bf16 before the weight is applied",
    at(lambda x, w: via(x * (folded(x * x)[:, None] / 256 + 1e-6).rsqrt(), bf) * w),
)
mistake(
    unit_rms_norm,
    "the reciprocal root is kept in half precision and 2^-11 too large",
    at(lambda x, w: x * via((folded(x * x)[:, None] / 256 + 1e-6).rsqrt(), hf) * (1 + 2.0**-11) * w),
)


@seventh(lambda d: (d(24, 80, dtype=bf), d(80, 32, dtype=bf), d(32, dtype=bf)))
def unit_linear_with_bias(x, w, b):
    return torch.addmm(b, x, w)


def product_tiles(x, w, b, tile=16):
    out = b.expand(24, 32)
    for k in range(0, 80, tile):
        out = out + x[:, k : k + tile] @ w[k : k + tile]
    return out


right(unit_linear_with_bias, "tiles of 16 from the bias on", product_tiles)
right(unit_linear_with_bias, "one product after another", lambda x, w, b: product_tiles(x, w, b, 1))
wrong_by_units(
    unit_linear_with_bias,
    product_tiles,
    {
        "sums are cut to bf16": (stored_toward, {}),
        "sums are rounded away from zero": (stored_toward, dict(way="away")),
        "the last column of each tile of 8, where it is not near a tie, is one unit too small in size": (
            one_unit,
            dict(every=8, start=7, by=-1),
        ),
    },
)
mistake(
    unit_linear_with_bias,
    "the product is rounded to bf16 before the bias is added",
    at(lambda x, w, b: via(x @ w, bf) + b),
)


@seventh(lambda d: (d(3000, dtype=hf, scale=2.0),))
def unit_tanh_sigmoid_product(x):
    y = x.float()
    return (torch.tanh(y) * torch.sigmoid(1.5 * y)).to(x.dtype)


right(
    unit_tanh_sigmoid_product,
    "through exponentials",
    lambda x: (1 - 2 / ((2 * x).exp() + 1)).mul(1 / (1 + (-1.5 * x).exp())),
    torch.float64,
)
right(
    unit_tanh_sigmoid_product, "through a half-angle tanh", lambda x: torch.tanh(x) * (0.5 + 0.5 * torch.tanh(0.75 * x))
)
mistake(
    unit_tanh_sigmoid_product,
    "tanh is rounded to half precision before the product",
    at(lambda x: via(x.tanh(), hf) * (1.5 * x).sigmoid()),
)
mistake(
    unit_tanh_sigmoid_product,
    "results are cut to half precision",
    stored_toward(lambda x: x.tanh() * (1.5 * x).sigmoid()),
)
mistake(
    unit_tanh_sigmoid_product,
    "every 60th result that is not near a tie is one unit too large",
    one_unit(lambda x: x.tanh() * (1.5 * x).sigmoid(), every=60, start=17),
)
mistake(unit_tanh_sigmoid_product, "the sigmoid's factor is 1.505", at(lambda x: x.tanh() * (1.505 * x).sigmoid()))


@seventh(
    lambda d: (d(4, 12, 9, 9, dtype=bf), d(12, dtype=bf), d(12, dtype=bf), d(12, dtype=bf), d.rand(12).add(0.5).to(bf))
)
def unit_frozen_batch_norm(x, w, b, mean, var):
    return F.batch_norm(x, mean, var, w, b, False, 0.1, 1e-5)


def folded_norm(x, w, b, mean, var):
    k = w * (var + 1e-5).rsqrt()
    return x * k[:, None, None] + (b - mean * k)[:, None, None]


right(unit_frozen_batch_norm, "folded into one factor and one addend in double precision", folded_norm, torch.float64)
right(
    unit_frozen_batch_norm,
    "centred first",
    lambda x, w, b, m, v: (
        (x - m[:, None, None]) / (v + 1e-5).sqrt()[:, None, None] * w[:, None, None] + b[:, None, None]
    ),
)
wrong_by_units(
    unit_frozen_batch_norm,
    folded_norm,
    {
        "results are cut to bf16": (stored_toward, {}),
        "the last image's results that are not near a tie are one unit too small": (one_unit, dict(first=2916, by=-1)),
    },
)
mistake(
    unit_frozen_batch_norm,
    "the joined factor is kept in bf16",
    at(
        lambda x, w, b, m, v: (lambda k: x * via(k, bf)[:, None, None] + (b - m * k)[:, None, None])(
            w * (v + 1e-5).rsqrt()
        )
    ),
)


# ------------------------------------------------------------------ constants next to 1


@seventh(lambda d: (d(2, 3, 50, 32, dtype=hf), d(2, 3, 50, 32, dtype=hf), d(2, 3, 50, 32, dtype=hf)))
def factor_attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


def plain_attention(q, k, v, scale=32**-0.5):
    return online(q, k, v, scale)[0]


right(factor_attention, "tiles of 16 keys", plain_attention)
right(
    factor_attention,
    "scores in powers of two",
    lambda q, k, v: (lambda e: e @ v / e.sum(-1, keepdim=True))((q @ k.mT * (32**-0.5 * 1.4426950408889634)).exp2()),
)
mistake(factor_attention, "outputs are 1.002 times too large", scaled(plain_attention, 1.002))
mistake(factor_attention, "outputs are 0.998 of what they are", scaled(plain_attention, 0.998))
mistake(factor_attention, "the scale is 0.1785, 1 percent too large", at(plain_attention, scale=0.1785))


@seventh(lambda d: (d(30, 300, dtype=bf), d(300, 40, dtype=bf)))
def factor_matmul(a, b):
    return a @ b


right(
    factor_matmul,
    "split in three over the inner axis",
    lambda a, b: sum(a[:, s : s + 100] @ b[s : s + 100] for s in (0, 100, 200)),
)
doubled(factor_matmul)
mistake(factor_matmul, "results are 1.005 times too large", scaled(torch.matmul, 1.005))
mistake(factor_matmul, "results are 1.01 times too large", scaled(torch.matmul, 1.01))
mistake(factor_matmul, "results are multiplied by 255/256", scaled(torch.matmul, 255 / 256))


@seventh(lambda d: (d(2, 6, 20, 20), d(8, 6, 3, 3, scale=0.2)))
def factor_conv2d(x, w):
    return F.conv2d(x, w, padding=1)


def conv_taps(x, w):
    p = F.pad(x, (1, 1, 1, 1))
    return sum(
        torch.einsum("bchw,oc->bohw", p[:, :, i : i + 20, j : j + 20], w[:, :, i, j])
        for i in range(3)
        for j in range(3)
    )


right(factor_conv2d, "tap by tap", conv_taps)
doubled(factor_conv2d)
mistake(factor_conv2d, "results are 1.0005 times too large", scaled(conv_taps, 1.0005))
mistake(factor_conv2d, "results are multiplied by 1 - 2^-10", scaled(conv_taps, 1 - 2.0**-10))
mistake(factor_conv2d, "both factors are rounded to TF32", at(lambda x, w: conv_taps(tf32(x), tf32(w))))


@seventh(lambda d: (d(40, 500), d(500, shift=1.0, scale=0.1), d(500)))
def factor_layer_norm(x, w, b):
    return F.layer_norm(x, (500,), w, b, 1e-5)


def layer(x, w, b, factor=1.0):
    c = x - folded(x)[:, None] / 500
    return c * (folded(c * c)[:, None] / 500 + 1e-5).rsqrt() * factor * w + b


right(factor_layer_norm, "two passes by folding", layer)
doubled(factor_layer_norm)
mistake(factor_layer_norm, "the reciprocal root is 1.0005 times too large", at(layer, factor=1.0005))
mistake(
    factor_layer_norm,
    "the reciprocal root is kept in half precision",
    at(
        lambda x, w, b: (lambda c: c * via((folded(c * c)[:, None] / 500 + 1e-5).rsqrt(), hf) * w + b)(
            x - folded(x)[:, None] / 500
        )
    ),
)
mistake(
    factor_layer_norm,
    "the reciprocal root comes from one Newton step of the integer guess",
    at(
        lambda x, w, b: (
            lambda c, v: (lambda y: c * (y * (1.5 - 0.5 * v * y * y)) * w + b)(
                (0x5F3759DF - (v.view(torch.int32) >> 1)).view(f32)
            )
        )(x - x.mean(-1, keepdim=True), x.var(-1, unbiased=False, keepdim=True) + 1e-5)
    ),
)


@seventh(lambda d: (d(64, 90, dtype=hf), d.rand(64, 90) > 0.1))
def factor_kept_entries(x, keep):
    return torch.where(keep, x / 0.9, 0.0)


right(factor_kept_entries, "multiplied by 10/9", lambda x, keep: x * keep * (10 / 9))
doubled(factor_kept_entries)
mistake(factor_kept_entries, "kept entries are multiplied by 1.1", at(lambda x, keep: x * keep * 1.1))
mistake(factor_kept_entries, "the chance to keep is 230/256", at(lambda x, keep: x * keep * (256 / 230)))
mistake(factor_kept_entries, "the factor is 1.112", at(lambda x, keep: x * keep * 1.112))


@seventh(lambda d: (d(16, 400),))
def factor_log_softmax(x):
    return x.log_softmax(-1)


right(factor_log_softmax, "sum by folding", lambda x: x - folded(x.exp()).log()[:, None])
doubled(factor_log_softmax)
mistake(factor_log_softmax, "ln 2 is taken as 0.6934", at(lambda x: x - x.exp().sum(-1, keepdim=True).log2() * 0.6934))
mistake(
    factor_log_softmax, "log2(e) is taken as 1.4434", at(lambda x: x - (x * 1.4434).exp2().sum(-1, keepdim=True).log())
)
mistake(factor_log_softmax, "results are 1.001 times too large", scaled(lambda x: x.log_softmax(-1), 1.001))
