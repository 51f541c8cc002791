# SPDX-License-Identifier: Apache-2.0
"""More operators with mistakes written out as plain code: what indices, strides, casts,
formulas that cancel and sums cut short leave. Neighbour: `cause_cases`."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

CASES = {}


def case(name, words, function, make, device):
    """`words`: a regular expression that the cause must match."""
    CASES[name] = (words, function, make, device)


def randn(*sizes, scale=1.0):
    return scale * torch.randn(*sizes)


def as_if_contiguous(t):
    flat = torch.empty(0, dtype=t.dtype).set_(t.untyped_storage())
    return flat.repeat(-(-t.numel() // flat.numel()))[: t.numel()].view(t.shape)


def indices():
    rows = lambda: (randn(50, 16), torch.randint(0, 50, (12, 5)).fill_diagonal_(0))  # noqa: E731
    embed = lambda w, i: F.embedding(i, w)  # noqa: E731
    case(
        "embedding padding",
        "rows whose .* is 0 are zero.*padding",
        embed,
        rows,
        lambda w, i: torch.where((i == 0)[..., None], 0.0, w[i]),
    )
    many = lambda: (randn(20, 8), torch.randint(0, 20, (60,)), randn(60, 8))  # noqa: E731
    add = lambda x, i, y: x.index_add(0, i, y)  # noqa: E731

    def overwrite(x, i, y):
        x = x.clone()
        for at, row in zip(i.tolist(), y):
            x[at] = row
        return x

    case("index_add overwrites", "duplicate indices only the last.*overwritten", add, many, overwrite)
    flat = lambda: (torch.zeros(10), torch.randint(0, 10, (40,)), randn(40))  # noqa: E731
    case(
        "scatter_add overwrites",
        "duplicate indices only the last",
        lambda x, i, y: x.scatter_add(0, i, y),
        flat,
        overwrite,
    )
    case(
        "index around the end",
        "shifted by one",
        lambda x, i: x.index_select(0, i),
        lambda: (randn(40, 20), torch.randint(0, 40, (25,))),
        lambda x, i: x[(i + 1) % 40],
    )


def choices():
    bits = lambda: (torch.rand(40, 10) < 0.9,)  # noqa: E731
    case(
        "all always true", "always True.*constant", lambda x: x.all(1), bits, lambda x: torch.ones(40, dtype=torch.bool)
    )
    case(
        "any always false",
        "zero|always False",
        lambda x: x.any(1),
        lambda: (torch.rand(40, 10) < 0.1,),
        lambda x: torch.zeros(40, dtype=torch.bool),
    )
    case(
        "nonzero truncated",
        "truncated.*last 3 of",
        torch.nonzero,
        lambda: (torch.rand(50) < 0.5,),
        lambda x: x.nonzero()[:-3],
    )
    case(
        "argsort unsorted",
        "another order",
        lambda x: torch.argsort(x, 1),
        lambda: (randn(3, 400),),
        lambda x: torch.argsort(x, 1)[:, torch.cat([torch.arange(300), torch.randperm(100) + 300])],
    )
    number = lambda: (randn(30, 40, scale=9.0),)  # noqa: E731
    case(
        "cast rounds",
        "cast.*rounded to nearest instead of truncated",
        lambda x: x.to(torch.int32),
        number,
        lambda x: x.round().to(torch.int32),
    )
    case(
        "cast of bf16",
        "inputs rounded to bfloat16",
        lambda x: x.to(torch.int32),
        lambda: (100 + randn(30, 40),),
        lambda x: x.bfloat16().to(torch.int32),
    )
    case(
        "round away",
        "ties.*away",
        torch.round,
        lambda: ((4 * randn(30, 40)).round() / 2,),
        lambda x: torch.copysign((x.abs() + 0.5).floor(), x),
    )
    whole = lambda: (torch.randint(0, 255, (64,)), torch.randint(0, 255, (64,)))  # noqa: E731
    case("or adds", "add instead of bitwise_or", torch.bitwise_or, whole, lambda a, b: a + b)


def strides():
    heads = lambda: tuple(randn(1, 24, 2, 16).transpose(1, 2) for _ in range(3))  # noqa: E731
    sdpa = F.scaled_dot_product_attention
    case(
        "attention views", "stride.*and.*read as if contiguous", sdpa, heads, lambda *t: sdpa(*map(as_if_contiguous, t))
    )

    def shared():
        return randn(2, 4, 33, 16), *(randn(2, 1, 33, 16).expand(2, 4, 33, 16) for _ in range(2))

    case(
        "attention stride 0",
        "stride.*read as if contiguous",
        sdpa,
        shared,
        lambda q, k, v: sdpa(q, as_if_contiguous(k), as_if_contiguous(v)),
    )
    case(
        "add of a gappy view",
        "stride.*read as if contiguous",
        torch.add,
        lambda: (randn(128)[::2], randn(64)),
        lambda a, b: as_if_contiguous(a) + b,
    )
    case(
        "step of a slice",
        "step of a slice is ignored",
        lambda a, b: torch.cat([a[:, 1:], b[:, ::2]], 1),
        lambda: (randn(20, 20), randn(20, 30)),
        lambda a, b: torch.cat([a[:, 1:], b[:, :15]], 1),
    )
    square = lambda: (randn(20, 33),)  # noqa: E731
    case(
        "slid with a border",
        "shifted by 1 along axis 1",
        torch.sin,
        square,
        lambda x: torch.cat([randn(20, 1), x.sin()[:, :-1]], 1),
    )
    case(
        "tail from the start",
        "last 5 of 660.*repeat.*stale",
        torch.sin,
        square,
        lambda x: torch.cat([x.sin().flatten()[:-5], x.sin().flatten()[:5]]).view(20, 33),
    )


def masks():
    qkv = lambda: tuple(randn(2, 2, 32, 16) for _ in range(3))  # noqa: E731
    group = torch.arange(32) // 4 * 4 + 3
    case(
        "mask by groups",
        "mask.*groups of 4",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        qkv,
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=torch.arange(32) <= group[:, None]),
    )
    case(
        "bound ignored",
        "bound max.*not clamped",
        lambda x: x.clamp(-0.5, 1.25),
        lambda: (randn(30, 20),),
        lambda x: x.clamp(min=-0.5),
    )


def formulas():
    ln = lambda x: F.layer_norm(x, (96,))  # noqa: E731

    def one_pass(x):
        mean = x.mean(-1, keepdim=True)
        return (x - mean) * torch.rsqrt(((x * x).mean(-1, keepdim=True) - mean * mean) + 1e-5)

    case("one pass", r"one-pass variance, E\[x\^2\]", ln, lambda: (100 + randn(12, 96),), one_pass)
    case(
        "var in one pass",
        "one-pass variance",
        lambda x: x.var(-1),
        lambda: (300 + randn(64, 200),),
        lambda x: ((x * x).mean(-1) - x.mean(-1) ** 2) * 200 / 199,
    )
    case(
        "expm1",
        r"exp\(x\) - 1 instead of expm1",
        torch.expm1,
        lambda: (randn(30, 40, scale=1e-5),),
        lambda x: x.exp() - 1,
    )
    case(
        "log1p",
        r"log\(1 \+ x\) instead of log1p",
        torch.log1p,
        lambda: (randn(30, 40, scale=1e-5),),
        lambda x: (1 + x).log(),
    )
    case("quick gelu", "quick gelu", F.gelu, lambda: (randn(30, 40),), lambda x: x * torch.sigmoid(1.702 * x))
    case(
        "partial sums",
        "dropped contribution",
        lambda x: F.rms_norm(x, (33,), None, 1e-6),
        lambda: (randn(16, 33),),
        lambda x: x * torch.rsqrt((x[:, :32] ** 2).sum(-1, keepdim=True) / 33 + 1e-6),
    )
    case(
        "rms scale in bf16",
        "bfloat16",
        lambda x: F.rms_norm(x, (256,), None, 1e-6),
        lambda: (randn(16, 256),),
        lambda x: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6).bfloat16().float(),
    )
    case(
        "cosine short",
        "last 1 of 30 along axis 1 .*is missing",
        lambda x, y: F.cosine_similarity(x, y, -1),
        lambda: (randn(24, 30), randn(24, 30)),
        lambda x, y: F.cosine_similarity(x[:, :-1], y[:, :-1], -1),
    )


def special():
    def some(*sizes):
        x = randn(*sizes)
        x.view(-1)[::37] = math.inf
        x.view(-1)[5::41] = math.nan
        return x

    case(
        "swapped beside Inf",
        "exchanged",
        lambda a, b: torch.lerp(a, b, 0.3),
        lambda: (some(40, 16), randn(40, 16)),
        lambda a, b: torch.lerp(b, a, 0.3),
    )
    case(
        "row stale beside NaN",
        "repeats? a neighbour",
        torch.sin,
        lambda: (some(20, 33),),
        lambda x: torch.cat([x.sin()[:-1], x.sin()[-2:-1]]),
    )
    case(
        "flushed",
        "subnormals",
        lambda x: x * 0.5,
        lambda: (randn(30, 40, scale=1e-4).half(),),
        lambda x: torch.where((x * 0.5).abs() < 2.0**-14, 0.0, x.float() * 0.5).half(),
    )
    case(
        "slope",
        "negative results are multiplied by 1.01|slope",
        F.leaky_relu,
        lambda: (randn(30, 40),),
        lambda x: F.leaky_relu(x, 0.0101),
    )


def sizes():
    low = lambda: (randn(40, 64).bfloat16(),)  # noqa: E731
    case("bf16 plus an amount", "added.*constant offset", torch.sin, low, lambda x: (x.float().sin() + 0.02).bfloat16())
    case("bf16 times a factor", "multiplied by 1.0[23]", torch.sin, low, lambda x: (x.float().sin() * 1.03).bfloat16())
    case(
        "one Inf",
        "one element is Inf",
        torch.sin,
        low,
        lambda x: x.sin().index_put((torch.tensor(3), torch.tensor(5)), torch.tensor(math.inf).bfloat16()),
    )
    case("stops at 256", "accumulated in bfloat16", lambda x: x.sum(1), lambda: (torch.rand(8, 600) + 0.5,), stopping)


def windows():
    image = lambda: (randn(2, 8, 12, 11), randn(4, 2, 3, 3))  # noqa: E731
    steps = dict(stride=2, padding=2, dilation=2, groups=4)

    def conv(x, w):
        return F.conv2d(x, w, None, **steps)

    def held(x, w, **other):
        return F.conv2d(x, w, None, **{**steps, **other})[:, :, :6, :6]

    def turned(x):
        return x.view(2, 2, 4, 12, 11).transpose(1, 2).reshape(x.shape)

    case("conv dilation", "dilation: 1 instead of 2", conv, image, lambda x, w: held(x, w, dilation=1))
    case("conv stride", "stride: 1 instead of 2", conv, image, lambda x, w: held(x, w, stride=1))
    case(
        "conv padding",
        "padding is ignored|shifted by 1 along .*padding",
        conv,
        image,
        lambda x, w: held(F.pad(x, (0, 4, 0, 4)), w, padding=0),
    )
    case(
        "conv border",
        "wrong padding.*replicate.*instead of being zero",
        conv,
        image,
        lambda x, w: held(F.pad(x, (2,) * 4, mode="replicate"), w, padding=0),
    )
    case(
        "conv shifted",
        "wrong padding|shifted by one|^cause unknown",
        conv,
        image,
        lambda x, w: held(F.pad(x, (1, 3, 1, 3)), w, padding=0),
    )
    case(
        "conv shifted along one axis",
        "x is shifted by one along axis 2",
        conv,
        image,
        lambda x, w: held(F.pad(x, (2, 2, 1, 3)), w, padding=0),
    )
    case(
        "conv groups dealt",
        "x is read interleaved along axis 1",
        conv,
        image,
        lambda x, w: conv(x.view(2, 4, 2, 12, 11).transpose(1, 2).reshape(x.shape), w),
    )
    case("conv groups", "x is read interleaved along axis 1", conv, image, lambda x, w: conv(turned(x), w))
    case(
        "conv tap",
        "last element over 2 axes of w is missing",
        conv,
        image,
        lambda x, w: conv(x, torch.cat([w.flatten(2)[..., :8], 0 * w.flatten(2)[..., 8:]], 2).view(w.shape)),
    )
    case(
        "convolution dilation",
        "dilation: 1 instead of 2",
        lambda x, w: torch.ops.aten.convolution(x, w, None, [2, 2], [2, 2], [2, 2], False, [0, 0], 4),
        image,
        lambda x, w: held(x, w, dilation=1),
    )


def window_gradients():
    tensors = lambda: (randn(2, 4, 9, 8), randn(2, 6, 9, 8), randn(4, 6, 3, 3))  # noqa: E731

    def gradients(g, x, w, padding=2, dilation=2):
        return torch.ops.aten.convolution_backward(
            g, x, w, [4], [1, 1], [padding] * 2, [dilation] * 2, False, [0, 0], 1, [True, True, True]
        )

    def around(g, x, w):
        whole = gradients(g, F.pad(x, (2,) * 4, mode="circular"), w, padding=0)
        return whole[0][..., 2:-2, 2:-2], *whole[1:]

    case(
        "gradient dilation",
        "dilation: 1 instead of 2|^cause unknown",
        gradients,
        tensors,
        lambda g, x, w: gradients(g, x, w, padding=1, dilation=1),
    )
    case("gradient border", "circular|^cause unknown", gradients, tensors, around)


def pools():
    image = lambda: (randn(2, 5, 13, 14) - 1,)  # noqa: E731

    def largest(x):
        return F.max_pool2d(x, 3, 2, 1)

    def gradient(x, pool=largest):
        x = x.detach().requires_grad_()
        return torch.autograd.grad(pool(x).square().sum(), x)[0]

    def mean(x):
        return F.avg_pool2d(x, 3, 2, 1)

    case(
        "max pool of zeros",
        "wrong padding: zeros instead of nothing",
        largest,
        image,
        lambda x: F.max_pool2d(F.pad(x, (1,) * 4), 3, 2),
    )
    case("max pool of averages", "avg_pool2d instead of max", largest, image, mean)
    case("max pool of least", "minimum|^cause unknown", largest, image, lambda x: -largest(-x))
    case(
        "max pool gradient",
        "kernel_size: 2 instead of 3|are zero|^cause unknown",
        gradient,
        image,
        lambda x: gradient(x, lambda x: F.max_pool2d(x, 2, 2, 1)[..., :7, :7]),
    )
    case(
        "avg pool padding", "padding|^cause unknown", mean, image, lambda x: F.avg_pool2d(F.pad(x, (0, 2, 0, 2)), 3, 2)
    )
    case(
        "avg pool lacks one",
        "window|^cause unknown",
        lambda x: F.avg_pool2d(x, 2, 2),
        image,
        lambda x: F.avg_pool2d(x, 2, 2) - x[..., 1:12:2, 1::2] / 4,
    )
    case(
        "avg pool window",
        "window|^cause unknown",
        lambda x: F.avg_pool1d(x, 4, 3, 2, count_include_pad=False),
        lambda: (randn(4, 5, 32),),
        lambda x: F.avg_pool1d(x, 3, 3, 1, count_include_pad=False)[..., :11],
    )
    case(
        "avg pool windows exchanged",
        "kernel_size: 2 x 2 x 3|^cause unknown",
        lambda x: F.avg_pool3d(x, (2, 3, 2), (1, 2, 2)),
        lambda: (randn(2, 3, 5, 9, 8),),
        lambda x: F.avg_pool3d(F.pad(x, (0, 1)), (2, 2, 3), (1, 2, 2))[..., :4, :4],
    )
    case(
        "step of windows",
        "step were 2 instead of 3",
        lambda x: x.unfold(1, 5, 3),
        lambda: (randn(4, 20),),
        lambda x: x.unfold(1, 5, 2)[:, :6],
    )
    case(
        "adaptive pool ends",
        "window|^cause unknown",
        lambda x: F.adaptive_avg_pool1d(x, 5),
        lambda: (randn(3, 4, 17),),
        lambda x: torch.stack([x[..., i * 17 // 5 : (i + 1) * 17 // 5].mean(-1) for i in range(5)], -1),
    )


def stopping(x):
    total = torch.zeros(len(x))
    for column in x.t():
        total = (total + column).bfloat16().float()
    return total


for build in (indices, choices, strides, masks, formulas, special, sizes, windows, window_gradients, pools):
    torch.manual_seed(0)
    build()


def honest(name):
    """The arguments of a case and what the CPU gives for them."""
    _, function, make, _ = CASES[name]
    args = make()
    return function, args, function(*args)


# What is wrong in ways that have no name: (function, make, device).
NAMELESS = {
    "noise on a variance": (
        lambda x: x.var(-1),
        lambda: (randn(64, 200),),
        lambda x: x.var(-1) * (1 + 3e-4 * torch.randn(64)),
    ),
    "factors at random": (
        torch.sin,
        lambda: (randn(40, 64).bfloat16(),),
        lambda x: (x.float().sin() * (1 + 0.1 * torch.randn(40, 64))).bfloat16(),
    ),
    "other rows": (
        lambda w, i: F.embedding(i, w),
        lambda: (randn(50, 16), torch.randint(0, 50, (12, 5))),
        lambda w, i: w[i] + randn(12, 5, 16),
    ),
    "half of the flags": (lambda x: x.all(1), lambda: (torch.rand(40, 10) < 0.9,), lambda x: torch.rand(40) < 0.5),
    "another normalisation": (lambda x: F.layer_norm(x, (96,)), lambda: (randn(12, 96),), lambda x: torch.sin(x) * x),
}
