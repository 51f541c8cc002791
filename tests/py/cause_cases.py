# SPDX-License-Identifier: Apache-2.0
"""Operators with mistakes that a device may make, written out as plain code, and words that
the cause has to contain. Nothing here comes from the emulations under test."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

CASES = {}


def case(name, words, function, make, device, mutates=False):
    """`words`: a regular expression that the cause must match."""
    CASES[name] = (words, function, make, device, mutates)


def randn(*sizes, scale=1.0):
    return scale * torch.randn(*sizes)


def low(x, dtype):
    return x.to(dtype).float()


def cut(x, bits):
    """Float32 with its last bits cut off."""
    return (x.view(torch.int32) & ~((1 << bits) - 1)).view(torch.float32)


bf = torch.bfloat16
fp = torch.float16


def tf32(x):
    """Rounded to 11 significant bits."""
    i = x.view(torch.int32)
    return ((i + 0xFFF + ((i >> 13) & 1)) & ~0x1FFF).view(torch.float32)


def matmul_cases():
    mm = lambda a, b: a @ b  # noqa: E731
    make = lambda: (randn(48, 96), randn(96, 40))  # noqa: E731
    case("mm tf32", "TF32", mm, make, lambda a, b: tf32(a) @ tf32(b))
    case("mm bf16 in", "inputs.*bfloat16", mm, make, lambda a, b: low(a, bf) @ low(b, bf))
    case("mm trunc in", "truncated", mm, make, lambda a, b: cut(a, 16) @ cut(b, 16))
    case("mm fp16 out", "rounded to TF32 or float16", mm, make, lambda a, b: low(a @ b, fp))
    case("mm out trunc", "truncated", mm, make, lambda a, b: cut(a @ b, 16))

    def accumulate(dtype, step=1):
        def run(a, b):
            acc = torch.zeros(a.shape[0], b.shape[1])
            for k in range(0, a.shape[1], step):
                acc = low(acc + a[:, k : k + step] @ b[k : k + step], dtype)
            return acc

        return run

    case("mm acc fp16", "accumulat.*float16", mm, make, accumulate(fp))
    case("mm acc bf16", "accumulat.*bfloat16", mm, make, accumulate(bf, 16))

    def backwards(a, b):
        acc = torch.zeros(a.shape[0], b.shape[1])
        for k in reversed(range(a.shape[1])):
            acc = low(acc + a[:, k : k + 1] * b[k : k + 1], bf)
        return acc

    case("mm acc bf16 reversed", "bfloat16", mm, make, backwards)
    case("mm last k", "last 1 of 96.*missing", mm, make, lambda a, b: a[:, :-1] @ b[:-1])
    case("mm k tile", "last 32 of 96.*missing", mm, make, lambda a, b: a[:, :-32] @ b[:-32])
    case("mm k twice", "counts twice", mm, make, lambda a, b: a @ b + a[:, -16:] @ b[-16:])
    square = lambda: (randn(40, 40), randn(40, 40))  # noqa: E731
    case("mm transposed", "stride.*transposed", mm, square, lambda a, b: a.t() @ b)
    case("mm transposed out", "transposed", mm, square, lambda a, b: (a @ b).t().contiguous())
    case("mm scaled", "multiplied by 0.5", mm, make, lambda a, b: 0.5 * (a @ b))
    case("mm minus", "sign", mm, make, lambda a, b: -(a @ b))
    case("mm offset", "added", mm, make, lambda a, b: a @ b + 0.25)

    def tail(value, n=8):
        def run(a, b):
            y = a @ b
            y.view(-1)[-n:] = value
            return y

        return run

    case("mm tail zero", "last 8.*not written|off only in row 47, columns from", mm, make, tail(0.0))
    case(
        "mm tail garbage", "last 8.*not written|off only in row 47, columns from", mm, make, tail(torch.randn(8) * 1e10)
    )
    case("mm tail nan", "NaN", mm, make, tail(math.nan))

    def columns(a, b):
        y = a @ b
        y[:, -8:] = 0
        return y

    case("mm last columns", "last 8 of 40 along axis 1", mm, make, columns)

    def tile(a, b):
        y = a @ b
        y[-16:, -8:] = 0
        return y

    case("mm last tile", "tile", mm, make, tile)
    case("mm rows repeated", "repeat|stale|stride", mm, make, lambda a, b: torch.cat([(a @ b)[:-8], (a @ b)[-16:-8]]))
    case("mm rolled", "shifted by 1 along axis 1", mm, make, lambda a, b: (a @ b).roll(1, 1))
    case("mm saturated", "saturated at 10", mm, make, lambda a, b: (a @ b).clamp(-10, 10))
    case(
        "mm fp16 saturated",
        "saturated at 65504",
        mm,
        lambda: (randn(48, 96, scale=5e3), randn(96, 40)),
        lambda a, b: (a @ b).clamp(-65504, 65504),
    )
    case(
        "mm fp16 overflow",
        "overflow|Inf",
        mm,
        lambda: (randn(48, 96, scale=5e3), randn(96, 40)),
        lambda a, b: torch.where((a @ b).abs() > 65504, (a @ b) * math.inf, a @ b),
    )
    linear = lambda x, w, b: F.linear(x, w, b)  # noqa: E731
    lin = lambda: (randn(6, 10, 64), randn(32, 64), randn(32))  # noqa: E731
    case("linear no bias", "bias", linear, lin, lambda x, w, b: F.linear(x, w))
    case("linear bias twice", "twice|duplicate|2", linear, lin, lambda x, w, b: F.linear(x, w, b) + b)
    case("linear bias shifted", "shifted", linear, lin, lambda x, w, b: F.linear(x, w, b.roll(1)))
    addmm = lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2.0)  # noqa: E731
    add = lambda: (randn(16, 24), randn(16, 32), randn(32, 24))  # noqa: E731
    case("addmm beta", "beta", addmm, add, lambda c, a, b: c + 2.0 * (a @ b))
    case("addmm alpha", "alpha", addmm, add, lambda c, a, b: 0.5 * c + a @ b)
    case("addmm no c", "beta|dropped|missing|ignored", addmm, add, lambda c, a, b: 2.0 * (a @ b))
    bmm = lambda: (randn(4, 16, 32).bfloat16(), randn(4, 32, 24).bfloat16())  # noqa: E731
    case(
        "bmm bf16 last batch",
        "last 1 of 4 along axis 0",
        torch.bmm,
        bmm,
        lambda a, b: torch.cat([torch.bmm(a, b)[:-1], torch.zeros(1, 16, 24).bfloat16()]),
    )
    case(
        "bmm bf16 last k",
        "last 1 of 32.*missing",
        torch.bmm,
        bmm,
        lambda a, b: torch.bmm(a[..., :-1].float(), b[:, :-1].float()).bfloat16(),
    )
    case(
        "bmm bf16 truncated",
        "truncated",
        torch.bmm,
        bmm,
        lambda a, b: cut(torch.bmm(a.float(), b.float()), 16).bfloat16(),
    )
    conv = lambda x, w, b: F.conv2d(x, w, b, padding=1)  # noqa: E731
    image = lambda: (randn(2, 8, 9, 9), randn(6, 8, 3, 3), randn(6))  # noqa: E731
    case(
        "conv last channel",
        "last 1 of 8.*missing",
        conv,
        image,
        lambda x, w, b: F.conv2d(x[:, :-1], w[:, :-1], b, padding=1),
    )
    case("conv flipped", "exchanged|reversed|flip", conv, image, lambda x, w, b: conv(x, w.flip(-1), b))
    case("conv no bias", "bias", conv, image, lambda x, w, b: conv(x, w, None))
    case("conv bf16", "inputs.*bfloat16", conv, image, lambda x, w, b: conv(low(x, bf), low(w, bf), b))


def norm_cases():
    ln = lambda x, w, b: F.layer_norm(x, (64,), w, b, 1e-5)  # noqa: E731
    make = lambda: (randn(24, 64, scale=0.1), 1 + 0.1 * randn(64), randn(64))  # noqa: E731

    def formula(x, w, b, eps=1e-5, correction=0, q=lambda t: t):
        mean = q(x.mean(-1, keepdim=True))
        var = q((q(x - mean) ** 2).sum(-1, keepdim=True) / (x.shape[-1] - correction))
        return q(q(q(x - mean) * q(torch.rsqrt(var + eps))) * w + b)

    case("ln unbiased", "variance", ln, make, lambda x, w, b: formula(x, w, b, correction=1))
    case("ln no eps", "epsilon is missing", ln, make, lambda x, w, b: formula(x, w, b, 0.0))
    case("ln eps", "epsilon is 0.001", ln, make, lambda x, w, b: formula(x, w, b, 1e-3))
    case(
        "ln eps outside",
        "epsilon is outside",
        ln,
        make,
        lambda x, w, b: (x - x.mean(-1, True)) / (x.var(-1, keepdim=True, correction=0).sqrt() + 1e-5) * w + b,
    )
    case("ln no weight", "weight|w is ignored", ln, make, lambda x, w, b: formula(x, torch.ones_like(w), b))
    case("ln no bias", "bias|b is ignored", ln, make, lambda x, w, b: formula(x, w, 0 * b))
    case("ln bf16 inside", "bfloat16", ln, make, lambda x, w, b: formula(x, w, b, q=lambda t: low(t, bf)))
    case("ln fp16 inside", "float16", ln, make, lambda x, w, b: formula(x, w, b, q=lambda t: low(t, fp)))
    case(
        "ln bf16 rstd",
        "bfloat16",
        ln,
        make,
        lambda x, w, b: (
            (x - x.mean(-1, True)) * low(torch.rsqrt(x.var(-1, keepdim=True, correction=0) + 1e-5), bf) * w + b
        ),
    )
    rms = lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w  # noqa: E731
    rmake = lambda: (randn(24, 64, scale=1e-2), randn(64))  # noqa: E731
    case("rms eps", "epsilon", rms, rmake, lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * w)
    case(
        "rms sum",
        "sum instead of mean|reduction",
        rms,
        rmake,
        lambda x, w: x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6) * w,
    )
    case(
        "rms last",
        "last 1 of 64.*missing",
        rms,
        rmake,
        lambda x, w: x * torch.rsqrt(x[:, :-1].pow(2).sum(-1, keepdim=True) / 64 + 1e-6) * w,
    )
    case(
        "var biased",
        "biased variance",
        lambda x: x.var(-1),
        lambda: (randn(24, 64),),
        lambda x: x.var(-1, correction=0),
    )
    case("std unbiased", "variance", lambda x: x.std(-1, correction=0), lambda: (randn(24, 64),), lambda x: x.std(-1))

    def ln_grad(x, w, b, g):
        x, w, b = (t.detach().requires_grad_() for t in (x, w, b))
        with torch.enable_grad():
            return torch.autograd.grad(ln(x, w, b), (x, w, b), g)

    gmake = lambda: (*make(), randn(24, 64))  # noqa: E731

    def grad_with(change):
        def run(*args):
            return change(list(ln_grad(*args)))

        return run

    case("ln grad doubled", "multiplied by 2", ln_grad, gmake, grad_with(lambda g: [2 * g[0], *g[1:]]))
    case("ln grad zero", "zero", ln_grad, gmake, grad_with(lambda g: [g[0], 0 * g[1], g[2]]))
    case(
        "ln grad not all rows",
        "last 1 of 24.*missing",
        ln_grad,
        gmake,
        lambda x, w, b, g: (ln_grad(x, w, b, g)[0], *ln_grad(x[:-1], w, b, g[:-1])[1:]),
    )
    case("ln grad exchanged", "exchanged", ln_grad, gmake, grad_with(lambda g: [g[0], g[2], g[1]]))
    case(
        "bn bias variance",
        "variance",
        lambda x: F.batch_norm(x, None, None, training=True),
        lambda: (randn(4, 6, 3, 3),),
        lambda x: (x - x.mean((0, 2, 3), keepdim=True)) * torch.rsqrt(x.var((0, 2, 3), keepdim=True) + 1e-5),
    )


def pointwise_cases():
    make = lambda: (randn(40, 50),)  # noqa: E731
    case("gelu tanh", "tanh form of gelu", F.gelu, make, lambda x: F.gelu(x, approximate="tanh"))
    case("gelu erf", "erf form of gelu", lambda x: F.gelu(x, approximate="tanh"), make, F.gelu)
    case(
        "gelu tanh bf16",
        "tanh form of gelu",
        F.gelu,
        lambda: (randn(80, 100).bfloat16(),),
        lambda x: F.gelu(x.float(), approximate="tanh").bfloat16(),
    )
    case("silu gelu", "gelu instead of silu", F.silu, make, F.gelu)
    case("exp bf16", "rounded to bfloat16", torch.exp, make, lambda x: low(x.exp(), bf))
    case("tanh in fp16", "float16", torch.tanh, make, lambda x: low(torch.tanh(low(x, fp)), fp))
    case(
        "log base",
        "log2 instead of log|multiplied by 1.4427",
        torch.log,
        lambda: (randn(40, 50).abs() + 0.1,),
        torch.log2,
    )
    case(
        "round",
        "instead of round",
        torch.round,
        lambda: (torch.randint(-8, 8, (200,)) / 2,),
        lambda x: torch.floor(x + 0.5),
    )
    case(
        "relu nan",
        "NaN swallowed",
        torch.relu,
        lambda: (torch.where(torch.arange(200) % 17 == 3, math.nan, randn(200)),),
        lambda x: torch.where(x > 0, x, torch.zeros_like(x)),
    )
    case(
        "spurious nan",
        "spurious NaN",
        torch.sigmoid,
        lambda: (randn(200, scale=60),),
        lambda x: torch.exp(x) / (1 + torch.exp(x)),
    )
    case(
        "flush",
        "subnormal",
        lambda x: x * 0.5,
        lambda: ((randn(400) * 1e-4).half(),),
        lambda x: torch.where((x * 0.5).abs() < 2**-14, 0 * x, x * 0.5),
    )
    case(
        "add alpha",
        "alpha",
        lambda a, b: torch.add(a, b, alpha=0.3),
        lambda: (randn(300), randn(300)),
        lambda a, b: a + b,
    )
    case(
        "where inverted",
        "invert|exchanged",
        torch.where,
        lambda: (torch.rand(30, 30) > 0.5, randn(30, 30), randn(30, 30)),
        lambda c, a, b: torch.where(~c, a, b),
    )
    case("clamp", "min|max|missing|ignored|saturat", lambda x: x.clamp(-0.5, 0.5), make, lambda x: x.clamp(min=-0.5))
    case("bit", "bit 2\\d.*flipped", torch.neg, make, lambda x: _flip(-x))
    case("leaky", "negative_slope|multiplied", lambda x: F.leaky_relu(x, 0.01), make, lambda x: F.leaky_relu(x, 0.02))
    case("sum bf16 acc", "bfloat16", lambda x: x.sum(-1), lambda: (torch.rand(64, 200),), _sum_low)
    case("sum last", "last 1 of 50.*missing", lambda x: x.sum(-1), make, lambda x: x[:, :-1].sum(-1))
    case("mean sum", "sum instead of mean|multiplied by 50", lambda x: x.mean(-1), make, lambda x: x.sum(-1))
    case("sum dim", "dimension|along", lambda x: x.sum(0), lambda: (randn(40, 40),), lambda x: x.sum(1))


def _sum_low(x):
    acc = torch.zeros(x.shape[0])
    for k in range(x.shape[1]):
        acc = low(acc + x[:, k], bf)
    return acc


def _flip(y):
    y.view(-1).view(torch.int32)[77] ^= 1 << 26
    return y


for make_cases in (matmul_cases, norm_cases, pointwise_cases):
    make_cases()
