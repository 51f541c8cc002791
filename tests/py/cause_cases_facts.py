# SPDX-License-Identifier: Apache-2.0
"""Mistakes that the result alone tells, or that fit a name which they do not deserve: of each the words that
must be said. Neighbours: test_causes_facts, cause_cases_nameless."""

import math

import torch
from torch.nn import functional as F

CASES = {}  # name: (words, function, make, device)
bf, fp = torch.bfloat16, torch.float16


def case(name, words, function, make, device):
    CASES[name] = words, function, make, device


def randn(*sizes, scale=1.0):
    return torch.randn(*sizes) * scale


def low(x, dtype):
    return x.to(dtype).float()


def tiles(x, size):
    return torch.softmax(x.unflatten(-1, (-1, size)), -1).flatten(-2)


def put(change, function):
    def device(*args):
        out = function(*args).clone()
        change(out, *args)
        return out

    return device


def places():
    pair = lambda: (randn(48, 32), randn(32, 128))  # noqa: E731

    def rows(out, *args):
        out[[4, 20]] += randn(2, out.shape[1], scale=3)

    case("rows by number", "^cause unknown; off only in rows 4 and 20$", torch.mm, pair, put(rows, torch.mm))

    def columns(out, *args):
        out[:, 31::32] += randn(out.shape[0], 4, scale=3)

    case(
        "columns by residue",
        "^cause unknown; off only in column 31 of every 32$",
        torch.mm,
        pair,
        put(columns, torch.mm),
    )
    qkv = lambda: [randn(2, 8, 64, 16) for _ in range(3)]  # noqa: E731
    attend = F.scaled_dot_product_attention

    def tokens(out, *args):
        out[:, :, 57:] += randn(2, 8, 7, 16, scale=3)

    def heads(out, q, k, v):
        out[:, 4:] = attend(q, k, v * v)[:, 4:]

    def between(out, q, k, v):
        out[:, 2:5] = attend(q, k, 2 * v)[:, 2:5]

    def some_rows(out, *args):
        out[8:12] += randn(4, out.shape[1], scale=3)

    def beside(out, *args):
        out[8:12] *= 1.5

    case("heads in between", "off only in heads 2 to 4$", lambda q, k, v: attend(q, k, v), qkv, put(between, attend))
    case("rows in between", "^cause unknown; off only in rows 8 to 11$", torch.mm, pair, put(some_rows, torch.mm))
    case(
        "rows beside a factor",
        "1.5.*off only in rows 8 to 11$|off only in rows 8 to 11$",
        torch.mm,
        pair,
        put(beside, torch.mm),
    )
    case(
        "tokens by number",
        "^cause unknown; off only in tokens from 57 on$",
        lambda q, k, v: attend(q, k, v),
        qkv,
        put(tokens, attend),
    )
    case("heads by number", "off only in heads from 4 on", lambda q, k, v: attend(q, k, v), qkv, put(heads, attend))

    def bias(out, x, w, b):
        out[[4, 20]] = b

    for dtype in (torch.float32, bf):
        case(
            f"rows of the bias {dtype}",
            "^slices 4 and 20 of 32 along axis 0 hold nothing but",
            F.linear,
            lambda d=dtype: (randn(32, 16).to(d), randn(12, 16).to(d), randn(12).to(d)),
            put(bias, F.linear),
        )

    def others(out, *args):
        out[[3, 9, 10]] = out[[4, 30, 17]]

    case("rows of others", "hold the right values of 4, 30 and 17", torch.mm, pair, put(others, torch.mm))
    case(
        "all zeros",
        "^the result is all zeros$",
        F.linear,
        lambda: (randn(8, 16), randn(12, 16)),
        lambda x, w: 0 * F.linear(x, w),
    )
    case(
        "one constant",
        "^the result is the constant 0.5 everywhere$",
        torch.sigmoid,
        lambda: (randn(30, 20),),
        lambda x: torch.full_like(x, 0.5),
    )
    case(
        "a NaN that is swallowed",
        "NaN is swallowed|NaN swallowed",
        torch.relu,
        lambda: (torch.where(torch.arange(200) == 77, math.nan, randn(200)),),
        lambda x: torch.where(x > 0, x, torch.zeros_like(x)),
    )
    case(
        "zero among the least",
        "results above 0 are 0, as where a padding counts in the minimum",
        lambda x: x.amin(-1),
        lambda: (torch.rand(60, 40) - 0.02,),
        lambda x: F.pad(x, (0, 8)).amin(-1),
    )
    case(
        "an amount on a few",
        "^0.001 is added",
        lambda x: x.mean(-1),
        lambda: (torch.rand(6, 200),),
        lambda x: x.mean(-1) + 1e-3,
    )
    case(
        "an amount in bfloat16",
        "^0.001 is added",
        lambda x: x.mean(-1),
        lambda: (randn(64, 200).bfloat16(),),
        lambda x: (x.float().mean(-1) + 1e-3).bfloat16(),
    )
    case(
        "conjugated",
        "imaginary",
        torch.fft.fft,
        lambda: (torch.randn(8, 16, dtype=torch.complex64),),
        lambda x: torch.fft.fft(x).conj(),
    )


def ties():
    bits = lambda: (torch.randint(1, 64, (40,)).bfloat16(), torch.randint(1, 64, (50,)).bfloat16())  # noqa: E731
    outer = lambda a, b: torch.outer(a, b)  # noqa: E731

    def exact(a, b):
        return a.float()[:, None] * b.float()

    def away(a, b):
        return ((exact(a, b).view(torch.int32) + 0x8000) & ~0xFFFF).view(torch.float32).bfloat16()

    def to_zero(a, b):
        return ((exact(a, b).view(torch.int32) + 0x7FFF) & ~0xFFFF).view(torch.float32).bfloat16()

    case("ties away", "^wrong variant: ties are rounded away from zero instead of to even", outer, bits, away)
    case("ties to zero", "^wrong variant: ties are rounded towards zero instead of to even", outer, bits, to_zero)


def other_outputs():
    def both(x):
        return torch.remainder(x, 3.0), torch.fmod(x, 3.0)

    case(
        "one output's values in another",
        r"holds the right values of out\[1\]",
        both,
        lambda: (randn(40, 20, scale=9),),
        lambda x: (torch.fmod(x, 3.0),) * 2,
    )
    case(
        "n - 1 where a correction is None",
        "^unbiased variance: divided by n - 1 instead of n$",
        lambda x: (
            (x - x.mean((0, 2), keepdim=True)) * torch.rsqrt(torch.var(x, (0, 2), correction=0, keepdim=True) + 1e-5)
        ),
        lambda: (randn(4, 6, 8),),
        lambda x: (x - x.mean((0, 2), keepdim=True)) * torch.rsqrt(torch.var(x, (0, 2), keepdim=True) + 1e-5),
    )

    def group(out, *args):
        out[:, :27] = 0

    case(
        "groups that nobody computed",
        "^27 of 32 slices along axis 0 are zero: not computed$",
        torch.mm,
        lambda: (randn(48, 32), randn(32, 32)),
        put(group, torch.mm),
    )


def tiled():
    case(
        "softmax of tiles",
        "of each tile of 16 along axis 1",
        lambda x: torch.softmax(x, -1),
        lambda: (randn(16, 64),),
        lambda x: tiles(x, 16),
    )
    case(
        "softmax of tiles, half",
        "of each tile of 32 along axis 1",
        lambda x: torch.softmax(x, -1),
        lambda: (randn(24, 64).half(),),
        lambda x: tiles(x.float(), 32).half(),
    )
    case(
        "own softmax of tiles",
        "of each tile of 16 along axis 1",
        lambda x: (lambda e: e / e.sum(-1, keepdim=True))((x - x.amax(-1, keepdim=True)).exp()),
        lambda: (randn(16, 64),),
        lambda x: tiles(x, 16),
    )
    case(
        "layer norm of tiles",
        "of each tile of 32 along axis 1",
        lambda x, w: F.layer_norm(x, (96,), w),
        lambda: (randn(12, 96), randn(96)),
        lambda x, w: F.layer_norm(x.unflatten(-1, (-1, 32)), (32,)).flatten(-2) * w,
    )


def formulas():
    def rope(x, c, s):
        a, b = x.chunk(2, -1)
        return x * c + torch.cat([-b, a], -1) * s

    twice = lambda t: torch.cat([t[..., :8]] * 2, -1)  # noqa: E731
    case(
        "rotary halves",
        "the first half of c and s along axis 1 stands for both",
        rope,
        lambda: (randn(2, 12, 16), torch.cos(randn(12, 16)), torch.sin(randn(12, 16))),
        lambda x, c, s: rope(x, twice(c), twice(s)),
    )

    def iterated(g, steps=5):
        x = g / (g.norm() + 1e-7)
        for _ in range(steps):
            square = x @ x.T
            x = 3.4445 * x + (-4.775 * square + 2.0315 * square @ square) @ x
        return x

    case("a round less", "round early", iterated, lambda: (randn(24, 40),), lambda g: iterated(g, 4))
    case(
        "a cast that cuts",
        "truncated",
        lambda x: (x * 448 / x.abs().amax()).to(torch.float8_e4m3fn).float(),
        lambda: (randn(64, 64),),
        _cut,
    )

    def norm(x, w):
        return (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6) * w.float()).to(x.dtype)

    case(
        "squares overflow",
        "overflow.*float16",
        norm,
        lambda: ((randn(16, 64) * 3000).half(), torch.ones(64).half()),
        lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w,
    )


def layer_gradient(g, x, variance=True):
    mean, square = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, correction=0)
    y = (x - mean) / (square + 1e-5).sqrt()
    part = g - g.mean(-1, keepdim=True)
    return (part - y * (g * y).mean(-1, keepdim=True) if variance else part) / (square + 1e-5).sqrt()


def rivals():
    """What fits two names: the plainer is said."""
    case(
        "one value for one value",
        "^the result is 0.9 everywhere, where 0.125 is right$",
        lambda x: torch.softmax(x, -1),
        lambda: (torch.ones(12, 8),),
        lambda x: torch.full_like(x, 0.9),
    )
    case(
        "ties up, of ties alone",
        "ties are rounded up",
        torch.round,
        lambda: ((randn(300) * 9).floor() + 0.5,),
        lambda x: torch.floor(x + 0.5),
    )
    case(
        "two fewer",
        "divided by n - 2 instead of n - 1",
        lambda x: x.var(-1),
        lambda: (randn(40, 30),),
        lambda x: x.var(-1, correction=2),
    )
    case(
        "a half sum leaves the range",
        "accumulated in float16",
        lambda x: x.sum(-1),
        lambda: (torch.rand(30, 900) * 100 + 60,),
        lambda x: x.half().cumsum(-1)[:, -1].float(),
    )
    case(
        "a root of squares",
        "sqrt.* instead of hypot",
        torch.hypot,
        lambda: (randn(300) * 10.0 ** (randn(300) * 15).round(), randn(300)),
        lambda x, y: (x * x + y * y).sqrt(),
    )
    case(
        "a term that a factor of one loses, too",
        "a term of sub is missing|two steps",
        layer_gradient,
        lambda: (randn(9, 200), randn(9, 200)),
        lambda g, x: layer_gradient(g, x, False),
    )


def _cut(x):
    y = x * 448 / x.abs().amax()
    quantum = 2.0 ** (torch.floor(torch.log2(y.abs().clamp(min=2**-6))) - 3)
    return torch.trunc(y / quantum) * quantum


for build in (places, ties, other_outputs, tiled, formulas, rivals):
    build()


def honest(name):
    _, function, make, _ = CASES[name]
    args = make()
    return function, args, function(*args)
