# SPDX-License-Identifier: Apache-2.0
"""More of cause_cases_forms: other variants of a formula, complex numbers, numbers that are unusual, relatives."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from cause_cases_forms import case
from cause_cases_more import randn


def variants():
    rows = lambda: (randn(12, 50),)  # noqa: E731
    case(
        "upper median",
        "two middle values the upper",
        lambda x: x.median(1),
        rows,
        lambda x: tuple(t[:, 25] for t in x.sort(1)),
    )
    case("mean for median", "mean instead of median", lambda x: x.median(1)[0], rows, lambda x: x.mean(1))
    case(
        "block carry",
        "starts anew every 10",
        lambda x: x.cumsum(1),
        rows,
        lambda x: x.view(12, 5, 10).cumsum(2).view(12, 50),
    )
    case(
        "cummax from the end",
        "from the end",
        lambda x: x.cummax(1),
        rows,
        lambda x: tuple(t.flip(1) for t in x.flip(1).cummax(1)),
    )
    case(
        "largest sizes",
        "by absolute value",
        lambda x: x.topk(5, 1)[0],
        rows,
        lambda x: x.gather(1, x.abs().topk(5, 1)[1]),
    )
    case("second moment", "a term of sub is missing", lambda x: x.var(1), rows, lambda x: x.square().sum(1) / 49)
    case(
        "source at its place",
        "source|^cause unknown",
        lambda x, m, y: x.masked_scatter(m, y),
        lambda: (randn(8, 9), torch.rand(8, 9) < 0.5, randn(8, 9)),
        lambda x, m, y: torch.where(m, y, x),
    )
    bags = lambda: (torch.randint(0, 12, (30,)), randn(12, 6), torch.tensor([0, 4, 4, 11, 20]))  # noqa: E731
    ends = [(0, 4), (4, 4), (4, 11), (11, 20), (20, 30)]
    case(
        "bags lack one",
        "last element|^cause unknown",
        lambda i, w, o: F.embedding_bag(i, w, o, mode="mean"),
        bags,
        lambda i, w, o: torch.stack([w[i[a : max(b - 1, a)]].sum(0) / max(b - a, 1) for a, b in ends]),
    )
    case(
        "fold lacks a tap",
        "last tap|^cause unknown",
        lambda x: F.fold(x, (8, 7), 3, padding=1),
        lambda: (randn(2, 27, 56),),
        lambda x: F.fold(torch.where((torch.arange(27) % 9 == 8)[:, None], 0.0, x), (8, 7), 3, padding=1),
    )
    case(
        "shared batch",
        "stride 0 along axis 0",
        torch.bmm,
        lambda: (randn(3, 8, 16), randn(3, 16, 6)),
        lambda a, b: a @ b[:1],
    )
    case(
        "overwriting with alpha",
        "of duplicate indices only the last",
        lambda x, i, y: x.index_add(0, i, y, alpha=0.5),
        lambda: (randn(9, 7), torch.arange(24) * 7 % 9, randn(24, 7)),
        overwritten,
    )
    case(
        "permuted",
        "right values in another order",
        lambda x: F.pixel_shuffle(x, 2),
        lambda: (randn(2, 12, 5, 4),),
        lambda x: x.view(2, 2, 2, 3, 5, 4).permute(0, 3, 4, 1, 5, 2).reshape(2, 3, 10, 8),
    )
    case(
        "narrow integers",
        "wraps around as in int8",
        torch.mul,
        lambda: (torch.randint(-50, 50, (80,)), torch.randint(1, 9, (80,))),
        lambda a, b: (a * b).to(torch.int8).long(),
    )


def overwritten(x, i, y):
    x = x.clone()
    for at, row in zip(i.tolist(), y):
        x[at] = 0.5 * row
    return x


def complexes():
    pair = lambda: tuple(torch.complex(randn(*s), randn(*s)) for s in ((7, 12), (12, 6)))  # noqa: E731
    case("conjugated operand", "imaginary part of .* is flipped.*conj", torch.matmul, pair, lambda a, b: a.conj() @ b)
    case("complex product short", "the last 1 of 12", torch.matmul, pair, lambda a, b: a[:, :-1] @ b[:-1])
    case(
        "complex product of signs",
        "imaginary|^(cause unknown|looks like)",
        torch.matmul,
        pair,
        lambda a, b: torch.complex(a.real @ b.real + a.imag @ b.imag, a.real @ b.imag + a.imag @ b.real),
    )
    case(
        "conjugated factor",
        "conjugated|conj|sign of operand 2 of polar",
        lambda a, b: torch.view_as_real(torch.polar(a.abs(), b) * torch.complex(b, a)),
        lambda: (randn(40), randn(40)),
        lambda a, b: torch.view_as_real(torch.polar(a.abs(), b).conj() * torch.complex(b, a)),
    )
    case(
        "modulus by sums",
        "absolute values instead of the modulus",
        lambda a, b: a.abs(),
        pair,
        lambda a, b: a.real.abs() + a.imag.abs(),
    )


def momentum(p, g, b, mom=0.9, nesterov=True, sign=False):
    b = mom * b + 0.8 * (g + 0.01 * p)
    d = g + 0.01 * p + mom * b if nesterov else b
    return p - 0.05 * (d.sign() if sign else d), b


def unusual_numbers():
    case(
        "another cap",
        "30 of div and mul were 50",
        lambda x: torch.softmax(30 * torch.tanh(x / 30), -1),
        lambda: (4 * randn(15, 40),),
        lambda x: torch.softmax(50 * torch.tanh(x / 50), -1),
    )
    lrn = lambda x, alpha=0.01: F.local_response_norm(x, 5, alpha, 0.75, 2.0)  # noqa: E731
    case(
        "another alpha",
        "(alpha|mul) were 0.05 instead of 0.01",
        lrn,
        lambda: (randn(3, 12, 6, 7),),
        lambda x: lrn(x, 0.05),
    )
    case(
        "blend of another number",
        "0.99 of mul and add were 0.9|0.99 .*0.9",
        lambda m, g: torch.add(0.99 * m, g, alpha=1 - 0.99),
        lambda: (randn(23, 17), randn(23, 17)),
        lambda m, g: 0.9 * m + 0.1 * g,
    )
    state = lambda: (randn(23, 17), randn(23, 17), randn(23, 17))  # noqa: E731
    case("another momentum", "0.9 of mul were 0.99", momentum, state, lambda *a: momentum(*a, mom=0.99))
    case("no nesterov", "left out|dropped", momentum, state, lambda *a: momentum(*a, nesterov=False))


def relatives():
    case("fraction of round", "round", torch.frac, lambda: (5 * randn(20, 30),), lambda x: x - x.round())
    case(
        "1 + w",
        "1 . w instead of w",
        lambda x, w: F.rms_norm(x, (24,), w),
        lambda: (randn(9, 24), randn(24)),
        lambda x, w: F.rms_norm(x, (24,), 1 + w),
    )
    case(
        "spread for variance",
        "square of v",
        lambda x, v: x.square() / v + v.log(),
        lambda: (randn(20, 9), randn(20, 9).abs() + 0.1),
        lambda x, v: x.square() / v.square() + v.square().log(),
    )
    case(
        "centred",
        "the mean (of x )?is subtracted",
        lambda x: F.rms_norm(x, (24,)),
        lambda: (randn(9, 24),),
        lambda x: F.rms_norm(x - x.mean(-1, keepdim=True), (24,)),
    )
    case(
        "no residual",
        "takes an operand of add",
        lambda x, r: (lambda h: (F.layer_norm(h, (24,)), h))(x + r),
        lambda: (randn(9, 24), randn(9, 24)),
        lambda x, r: (F.layer_norm(x, (24,)), x + r),
    )
    args = lambda: (randn(20, 9), torch.rand(20, 9), torch.rand(9) + 0.5)  # noqa: E731
    loss = lambda x, t, w: F.binary_cross_entropy_with_logits(x, t, pos_weight=w, reduction="none")  # noqa: E731
    case(
        "weight for pos_weight",
        "weight|^cause unknown",
        loss,
        args,
        lambda x, t, w: F.binary_cross_entropy_with_logits(x, t, w, reduction="none"),
    )


for build in (variants, complexes, unusual_numbers, relatives):
    torch.manual_seed(0)
    build()
