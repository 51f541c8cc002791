# SPDX-License-Identifier: Apache-2.0
"""Mistakes that reach through autograd, leave out or exchange parts of a formula, or mix up two
layouts, written out as plain code. Neighbours: `cause_cases`, `cause_cases_more`, `cause_cases_variants`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from cause_cases_more import randn

CASES = {}


def case(name, words, function, make, device):
    """`words`: a regular expression that the cause must match."""
    CASES[name] = (words, function, make, device)


def gradient(function, x, g):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(function(x), x, g)[0]


def written():
    losses = lambda: (randn(30, 10), torch.randint(0, 10, (30,)), torch.rand(10) + 0.5, torch.tensor(1.7))  # noqa: E731

    def loss(x, t, w, g, ignore=3, weight=True):
        return gradient(lambda x: F.cross_entropy(x, t, w if weight else None, ignore_index=ignore), x, g)

    case("gradient ignores ignore_index", "ignore_index", loss, losses, lambda *a: loss(*a, ignore=-100))
    case("gradient ignores weights", "weight.*ignored", loss, losses, lambda *a: loss(*a, weight=False))
    pair = lambda: (randn(20, 15), randn(20, 15))  # noqa: E731
    case(
        "huber with another delta",
        "delta",
        lambda x, y: F.huber_loss(x, y, delta=0.7),
        pair,
        lambda x, y: F.huber_loss(x, y),
    )
    case(
        "smooth l1 for huber",
        "smooth_l1_loss instead of huber",
        lambda x, y: F.huber_loss(x, y, delta=0.7),
        pair,
        lambda x, y: F.smooth_l1_loss(x, y, beta=0.7),
    )
    case(
        "kl by mean",
        "reduction.*mean|multiplied by 0.05|^cause unknown",
        lambda x, t: F.kl_div(x, t, reduction="batchmean", log_target=True),
        lambda: (randn(14, 20).log_softmax(-1), randn(14, 20).log_softmax(-1)),
        lambda x, t: F.kl_div(x, t, reduction="sum", log_target=True) / 280,
    )
    case(
        "another padding",
        "mode.*replicate",
        lambda x: F.pad(x, (2, 3), mode="reflect").sin(),
        lambda: (randn(3, 4, 12),),
        lambda x: F.pad(x, (2, 3), mode="replicate").sin(),
    )
    case(
        "nearest for bilinear",
        "mode.*nearest",
        lambda x: F.interpolate(x, (7, 10), mode="bilinear", align_corners=True),
        lambda: (randn(2, 3, 4, 5),),
        lambda x: F.interpolate(x, (7, 10), mode="nearest"),
    )


def formulas():
    square = lambda: (randn(20, 24),)  # noqa: E731
    case(
        "root left out",
        "root is missing",
        lambda a, b: torch.cdist(a, b),
        lambda: (randn(9, 6), randn(11, 6)),
        lambda a, b: (a[:, None] - b[None]).square().sum(-1),
    )
    case(
        "both roots left out",
        "root is missing",
        lambda a, b, c: F.triplet_margin_loss(a, b, c, reduction="none"),
        lambda: (randn(20, 12), randn(20, 12), randn(20, 12)),
        lambda a, b, c: F.relu(((a - b + 1e-6) ** 2).sum(-1) - ((a - c + 1e-6) ** 2).sum(-1) + 1),
    )
    case(
        "first term of a difference",
        "dropped contribution: a term of sub",
        lambda a, b: torch.tanh(a - b.exp()),
        lambda: (randn(20, 24), randn(20, 24)),
        lambda a, b: torch.tanh(-b.exp()),
    )
    case(
        "softmax at another temperature",
        "multiplied by 1/2",
        lambda x: torch.softmax(x, -1),
        square,
        lambda x: torch.softmax(x / 2, -1),
    )
    case(
        "weights exchanged",
        "0.25 and 0.75.*exchanged",
        lambda x: 0.25 * x.sin() + 0.75 * x.cos(),
        square,
        lambda x: 0.75 * x.sin() + 0.25 * x.cos(),
    )
    case(
        "alpha for beta",
        "exchanged",
        lambda c, a, b: torch.baddbmm(c, a, b, beta=0.5, alpha=2.0),
        lambda: (randn(3, 6, 7), randn(3, 6, 20), randn(3, 20, 7)),
        lambda c, a, b: torch.baddbmm(c, a, b, beta=2.0, alpha=0.5),
    )
    case("quadrant", "quadrant", torch.atan2, lambda: (randn(20, 24), randn(20, 24)), lambda y, x: torch.atan(y / x))
    case(
        "fake quantization cuts",
        "trunc instead of round",
        lambda x: torch.fake_quantize_per_tensor_affine(x, 0.05, 3, -128, 127),
        square,
        lambda x: (((x * 20).trunc() + 3).clamp(-128, 127) - 3) * 0.05,
    )
    case(
        "running variance",
        "biased variance: the factor n / ",
        lambda x, r: r * 0.9 + x.var(0, correction=0) * (45 / 44) * 0.1,
        lambda: (randn(45, 12), torch.rand(12)),
        lambda x, r: r * 0.9 + x.var(0, correction=0) * 0.1,
    )


def layouts():
    def pairs(x, c, s):
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack([a * c - b * s, a * s + b * c], -1).flatten(-2)

    def halves(x, c, s):
        a, b = x.chunk(2, -1)
        return torch.cat([a * c - b * s, a * s + b * c], -1)

    turned = lambda: (randn(2, 3, 9, 16), randn(9, 8).cos(), randn(9, 8).sin())  # noqa: E731
    case("rotary by halves", "read as halves", pairs, turned, halves)
    case("rotary by pairs", "interleaved", halves, turned, pairs)
    case(
        "gate exchanged",
        "halves of .* exchanged",
        lambda x: F.glu(x, 1),
        lambda: (randn(6, 14, 5),),
        lambda x: F.glu(x.roll(7, 1), 1),
    )
    case(
        "halves exchanged",
        "the halves along axis 1 are exchanged",
        torch.sin,
        lambda: (randn(8, 14),),
        lambda x: x.sin().roll(7, 1),
    )
    case(
        "neighbours repeat",
        "every other element repeats",
        torch.sin,
        lambda: (randn(8, 14),),
        lambda x: x.sin()[:, ::2].repeat_interleave(2, 1),
    )
    case(
        "step of windows",
        "step of a unfold|step were 1",
        lambda x: x.unfold(-1, 4, 2).sin(),
        lambda: (randn(3, 17),),
        lambda x: x.unfold(-1, 4, 1)[:, :7].sin(),
    )
    case(
        "variance of fewer rows",
        "last 1 of 40 along axis 0",
        lambda x: x.var(0),
        lambda: (randn(40, 12),),
        lambda x: x[:-1].var(0),
    )


def results():
    case(
        "many times too large",
        "multiplied by 8",
        lambda x: x.view(3, 8, 4).sum(-1),
        lambda: (randn(3, 32),),
        lambda x: x.view(3, 8, 4).sum(-1) * 8,
    )
    case(
        "garbage of a few",
        "last 5 of 480|off only in row 19, columns from",
        torch.sin,
        lambda: (randn(20, 24),),
        lambda x: torch.cat([x.sin().flatten()[:-5], 1e3 * randn(5)]).view(20, 24),
    )
    case(
        "alike and rounded",
        "bfloat16",
        torch.logaddexp,
        lambda: (randn(15, 12, scale=1e-6), randn(15, 12, scale=1e-6)),
        lambda x, y: torch.logaddexp(x, y).bfloat16().float(),
    )
    case(
        "imaginary parts negated",
        "sign is flipped in 22 slices",
        lambda x: torch.view_as_real(torch.fft.fft(x)),
        lambda: (randn(5, 24),),
        lambda x: torch.view_as_real(torch.fft.fft(x).conj().resolve_conj()),
    )
    case(
        "another slope",
        "slope|0.01 instead of 0.25",
        lambda x: torch.where(x > 0, x, 0.25 * x),
        lambda: (randn(20, 24),),
        lambda x: torch.where(x > 0, x, 0.01 * x),
    )
    case(
        "mean of an offset",
        "multipl|mean|cause unknown",
        lambda x: x.sum((0, 2)),
        lambda: ((100 + randn(8, 7, 20)).half(),),
        lambda x: x.float().mean((0, 2)).half(),
    )
    case(
        "no root of little",
        "root is missing",
        lambda x: torch.linalg.vector_norm(x, dim=1),
        lambda: (randn(16, 20, scale=1e-7),),
        lambda x: (x * x).sum(1),
    )
    case(
        "scan from the end",
        "cumsum runs from the end",
        lambda x: x.cumsum(1),
        lambda: (randn(8, 14),),
        lambda x: x.flip(1).cumsum(1).flip(1),
    )
    case(
        "scan without its own",
        "leaves out the current|shifted by 1",
        lambda x: x.logcumsumexp(1).exp(),
        lambda: (randn(8, 14),),
        lambda x: F.pad(x.logcumsumexp(1).exp()[:, :-1], (1, 0)),
    )
    mask = torch.ones(24, 24).tril().bool()
    case(
        "rounded beside alike neighbours",
        "result rounded to bfloat16",
        lambda x: torch.softmax(x.masked_fill(~mask, -torch.inf), -1),
        lambda: (randn(24, 24, scale=1e-6),),
        lambda x: torch.softmax(x.masked_fill(~mask, -torch.inf), -1).bfloat16().float(),
    )
    case(
        "one value rounded",
        "result rounded to bfloat16",
        lambda x: x.sign().relu() * 0.3,
        lambda: (randn(15, 12),),
        lambda x: (x.sign().relu() * 0.3).bfloat16().float(),
    )
    case(
        "values alike, rounded",
        "bfloat16",
        lambda x: torch.rsqrt(x * x + 1e-6),
        lambda: (randn(15, 12, scale=1e-6),),
        lambda x: torch.rsqrt(x * x + 1e-6).bfloat16().float(),
    )
    case(
        "choice exchanged",
        "inverted, or what it chooses between is exchanged",
        torch.where,
        lambda: (torch.rand(15, 12) < 0.5, randn(15, 12), randn(15, 12)),
        lambda m, a, b: torch.where(m, b, a),
    )
    case(
        "zeros or underflow",
        "all zeros.*float16.*cannot tell",
        lambda x, w: x @ w,
        lambda: (randn(8, 8, scale=1e-9), randn(8, 8)),
        lambda x, w: torch.zeros(8, 8),
    )


def parameters():
    x = lambda: (randn(2, 3, 7, 9),)  # noqa: E731
    up = lambda x, **k: F.interpolate(x, (13, 15), **{"mode": "bilinear", "align_corners": True, **k})  # noqa: E731
    case("corners not aligned", "align_corners is False", up, x, lambda x: up(x, align_corners=False))
    case("bicubic for bilinear", "mode is bicubic", up, x, lambda x: up(x, mode="bicubic"))
    rows = lambda: (randn(12, 50),)  # noqa: E731
    case(
        "lower quantile",
        "interpolation is lower|floor instead of ceil",
        lambda x: x.quantile(0.3, 1),
        rows,
        lambda x: x.quantile(0.3, 1, interpolation="lower"),
    )
    case(
        "another norm",
        "ord were 2|p = 2",
        lambda x: torch.linalg.vector_norm(x, float("inf"), 1),
        rows,
        lambda x: torch.linalg.vector_norm(x, 2, 1),
    )
    many = lambda: (randn(9, 7), torch.randint(0, 9, (20, 7)), randn(20, 7))  # noqa: E731
    case(
        "scatter by another reduction",
        "reduce is amax",
        lambda x, i, y: x.scatter_reduce(0, i, y, "sum"),
        many,
        lambda x, i, y: x.scatter_reduce(0, i, y, "amax"),
    )
    case(
        "no padding index",
        "padding_idx",
        lambda w, i, g: gradient(lambda w: F.embedding(i, w, padding_idx=2), w, g),
        lambda: (randn(10, 6), torch.randint(0, 10, (5, 8)), randn(5, 8, 6)),
        lambda w, i, g: gradient(lambda w: F.embedding(i, w), w, g),
    )
    case(
        "one axis of fft2",
        "dim",
        lambda x: torch.fft.fft2(x, dim=(1, 2)).real,
        lambda: (randn(3, 8, 12),),
        lambda x: torch.fft.fft(x, dim=2).real,
    )
    aten = torch.ops.aten
    case(
        "operator of another mode",
        "mode is nearest",
        lambda x: aten.upsample_bilinear2d(x, [12, 13], True),
        x,
        lambda x: aten.upsample_nearest2d(x, [12, 13]),
    )
    case(
        "operator of another padding",
        "padding_mode were 1",
        lambda x, g: aten.grid_sampler_2d(x, g, 0, 0, False),
        lambda: (randn(2, 3, 8, 9), 2.4 * torch.rand(2, 6, 7, 2) - 1.2),
        lambda x, g: aten.grid_sampler_2d(x, g, 0, 1, False),
    )
    case(
        "operator of another border",
        "mode is replicate",
        lambda x: aten.reflection_pad2d(x, [2, 1, 3, 2]),
        x,
        lambda x: F.pad(x, [2, 1, 3, 2], mode="replicate"),
    )
    case(
        "biased by default",
        "biased variance",
        lambda x: aten.var.correction(x, [1, 3]),
        x,
        lambda x: x.var((1, 3), correction=0),
    )
    case(
        "sides of a pad",
        "pad were .*3, 2|shifted by 1 along axis 1",
        lambda x: F.pad(x, (2, 3), mode="circular").sin(),
        rows,
        lambda x: F.pad(x, (3, 2), mode="circular").sin(),
    )
    case(
        "norm not limited",
        "max_norm is ignored|embedding_renorm_ is left out",
        lambda w, i: F.embedding(i, w.clone(), max_norm=0.9),
        lambda: (randn(10, 6), torch.randint(0, 10, (7,))),
        lambda w, i: F.embedding(i, w),
    )
    case(
        "scatter adds",
        "reduce is add",
        lambda x, i: x.scatter(1, i, 1.5, reduce="multiply"),
        lambda: (randn(6, 8), torch.stack([torch.randperm(8)[:4] for _ in range(6)])),
        lambda x, i: x.scatter(1, i, 1.5, reduce="add"),
    )
    case(
        "zero point of a fake quantization",
        "zero_point|constant term 3 of add is missing",
        lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 255),
        rows,
        lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 255),
    )


for build in (written, formulas, layouts, results, parameters):
    torch.manual_seed(0)
    build()


# What is wrong in ways that have no name: (function, make, device).
NAMELESS = {
    "another loss": (
        lambda x, y: F.huber_loss(x, y, delta=0.7, reduction="none"),
        lambda: (randn(20, 15), randn(20, 15)),
        lambda x, y: torch.sin(x - y).abs(),
    ),
    "another distance": (
        lambda a, b: torch.cdist(a, b),
        lambda: (randn(9, 6), randn(11, 6)),
        lambda a, b: (a[:, None] - b[None]).tanh().sum(-1),
    ),
    "another gate": (lambda x: F.glu(x, 1), lambda: (randn(6, 14),), lambda x: x[:, :7] * x[:, 7:].cos()),
}
