# SPDX-License-Identifier: Apache-2.0
"""Mistakes on one edge of a formula's graph, whatever its operators are, written out as plain
code: steps in another order, parts of a loop, operands read from elsewhere, sizes of groups.
Neighbour: `cause_cases_forms` (mistakes by function)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from cause_cases_more import randn

CASES = {}


def case(name, words, function, make, device):
    """`words`: a regular expression that the cause must match."""
    CASES[name] = (words, function, make, device)


def scan(x, a, b, late=False, skip=True, every=0):
    """A recurrence over the first axis."""
    state, out = torch.zeros(x.shape[1:], dtype=x.dtype), []
    for t in range(x.shape[0]):
        if every and t % every == 0:
            state = torch.zeros_like(state)
        before = state
        state = state * a.sigmoid() + x[t] * b
        out.append((before if late else state).tanh() + (x[t] if skip else 0))
    return torch.stack(out)


def loops():
    make = lambda: (randn(18, 6), randn(6), randn(6))  # noqa: E731
    case("state of the step before", "one step late", scan, make, lambda *a: scan(*a, late=True))
    case("skip left out of every step", "term of add is missing", scan, make, lambda *a: scan(*a, skip=False))
    case("state lost at borders", "starts anew every 8 steps", scan, make, lambda *a: scan(*a, every=8))

    case(
        "gated loop without its bias",
        "bias|b is ignored|taken as zero",
        gated,
        lambda: (randn(5, 10, 8), randn(8, 8), randn(8)),
        lambda x, w, b: gated(x, w, 0 * b),
    )
    case(
        "balanced along one axis alone",
        r"along dimension \[1\] instead of \[0\] in sum",
        balanced,
        lambda: (randn(9, 12),),
        lambda x: balanced(x, over=1),
    )


def gated(x, w, b):
    """A recurrence whose operators change dtypes and shapes as well."""
    h = torch.zeros_like(x[:, 0])
    for t in range(x.shape[1]):
        z = F.linear(h, w, b).sigmoid()
        h = z * h + (1 - z) * x[:, t]
    return h


def balanced(x, rounds=4, over=0):
    """Rows and columns are divided by their sums, round by round."""
    x = x.exp()
    for _ in range(rounds):
        x = x / x.sum(1, keepdim=True)
        x = x / x.sum(over, keepdim=True)
    return x


def orders():
    four = lambda: (randn(8, 32), randn(24, 32), randn(24), randn(8, 24))  # noqa: E731
    gated = lambda x, w, b, r: r + F.gelu(F.linear(x, w, b))  # noqa: E731
    case(
        "bias after the activation",
        "wrong order: gelu is taken before addmm",
        gated,
        four,
        lambda x, w, b, r: r + F.gelu(F.linear(x, w)) + b,
    )
    case(
        "residual before the activation",
        "wrong order: add is taken before gelu",
        gated,
        four,
        lambda x, w, b, r: F.gelu(F.linear(x, w, b) + r),
    )
    case(
        "scaled after the softplus",
        "wrong order|operand",
        lambda x: F.softplus(x * 3.0),
        lambda: (randn(20, 9),),
        lambda x: F.softplus(x) * 3.0,
    )
    case(
        "nesterov left out",
        "without two steps|term of",
        lambda p, g, b: p - 0.1 * (g + 0.9 * (0.9 * b + g)),
        lambda: (randn(40), randn(40), randn(40)),
        lambda p, g, b: p - 0.1 * (0.9 * b + g),
    )


def attended(x, w, v, p=0.2, wrong=""):
    """Parts of a formula that a kernel takes from elsewhere or in another order."""
    keep = x > p
    gate, up = F.gelu(x @ w), x @ v
    up = F.gelu(up) if wrong == "spread" else up
    top, low = (gate * up).norm(dim=-1, keepdim=True), up.norm(dim=-1, keepdim=True)
    if wrong == "exchanged":
        top, low = low, top
    out = (gate + (x if wrong == "early" else 0)) * keep / 1.7
    out = out if wrong == "early" else out + x
    return out * (top.clamp(min=1e-3) / (low + (gate if wrong == "operand" else up).abs()))


def ranged(x, over=1):
    least, most = x.amin(over, keepdim=True), x.amax(over, keepdim=True)
    return ((x - least) / (most - least) * 63).round() * (most - least) + least


def bounded(x, half=0.25, loose=False):
    return (x if loose else x.clamp(1 - half, 1 + half)) * x


def traced(x, decay=0.9405):
    state, out = torch.zeros_like(x[0]), []
    for row in x:
        state = row + decay * state
        out.append(state)
    return torch.stack(out)


def wired():
    """Edges that lead elsewhere, functions on the other edge too, reductions over other axes."""
    make = lambda: (randn(16, 20), randn(20, 20), randn(20, 20))  # noqa: E731
    for wrong, words in (
        ("spread", "gelu of both operands of mul|^cause unknown"),
        ("exchanged", "are exchanged"),
        ("early", "add is taken before mul"),
        ("operand", "abs takes the result of (gelu|add)"),
    ):
        case(f"wired {wrong}", words, attended, make, lambda *a, w=wrong: attended(*a, wrong=w))
    case(
        "ranges of the other axis",
        r"along dimension \[0\] instead of \[1\] in amin and amax",
        ranged,
        lambda: (randn(24, 32),),
        lambda x: ranged(x, 0),
    )
    case(
        "one range for both axes",
        "along all axes instead of",
        ranged,
        lambda: (randn(24, 32),),
        lambda x: ranged(x, (0, 1)),
    )
    case(
        "narrower bounds",
        r"1 -\+ 0.025 instead of 0.25",
        bounded,
        lambda: (randn(20, 30) + 1,),
        lambda x: bounded(x, 0.025),
    )
    case(
        "no bounds",
        "clamp is missing|not clamped",
        bounded,
        lambda: (randn(20, 30) + 1,),
        lambda x: bounded(x, loose=True),
    )
    case("a number of a loop", "0.99 instead of 0.9405", traced, lambda: (randn(40, 12),), lambda x: traced(x, 0.99))
    passed = lambda x, y, s: (lambda d: d * x + (1 - d) * y)(torch.clamp((1 + s) / (10 + s), max=0.999))  # noqa: E731
    case(
        "a bound instead of what is clamped",
        "the bound max of clamp.* counts everywhere: 0.999",
        passed,
        lambda: (randn(16, 20), randn(16, 20), torch.tensor(20)),
        lambda x, y, s: 0.999 * x + 0.001 * y,
    )
    unlike = lambda t: torch.where(t[1:] != t[:-1], 1.5, -2.0) * t[1:].float()  # noqa: E731
    case(
        "all unlike",
        "ne is taken as True",
        unlike,
        lambda: (torch.randint(0, 3, (400,)),),
        lambda t: 1.5 * t[1:].float(),
    )


def lined(x, limit=20.0):
    """A choice by what else is computed: where it is made elsewhere, little hangs on it."""
    y = (1 + (2 * x).clamp(max=limit).exp()).log() / 2
    return torch.where(2 * x > limit, x, y)


CASES["a round less"] = "round early", balanced, lambda: (randn(9, 12) * 3,), lambda x: balanced(x, 3)
NAMELESS = {
    "a choice made elsewhere": (lined, lambda: (randn(20, 30) * 8,), lambda x: lined(x, 2.0)),
}


def grouped(x, size=8):
    parts = x.reshape(6, -1, size)
    return (parts / parts.abs().amax(-1, keepdim=True)).reshape(6, 32)


def elsewhere():
    masked = lambda: (randn(3, 6, 9), torch.rand(3, 6, 9) > 0.3)  # noqa: E731
    soft = lambda x, m: x.masked_fill(m, -9.0).softmax(-1)  # noqa: E731
    case(
        "the first mask for all",
        "mask.* first slice along axis 0",
        soft,
        masked,
        lambda x, m: soft(x, m[:1].expand_as(m)),
    )
    kept = lambda x, m: (x * m).sum(-1) / m.sum(-1)  # noqa: E731
    case(
        "the first always kept",
        "first of the mask.*always True",
        kept,
        masked,
        lambda x, m: kept(x, torch.cat([torch.ones_like(m[..., :1]), m[..., 1:]], -1)),
    )
    case("the length for the count", "mask is ignored|taken as one", kept, masked, lambda x, m: (x * m).sum(-1) / 9)
    rows = lambda x: x / x.abs().amax(-1, keepdim=True)  # noqa: E731
    case("one scale for all rows", "along all axes", rows, lambda: (randn(12, 20),), lambda x: x / x.abs().max())
    around = lambda x, box: (x - box * (x / box).round()).square().sum(-1)  # noqa: E731
    case(
        "no periodic images",
        "box is taken as beyond all bounds",
        around,
        lambda: (randn(40, 3, scale=2.0), torch.tensor(5.0)),
        lambda x, box: x.square().sum(-1),
    )
    case(
        "groups of another size",
        "16 instead of 8|^cause unknown",
        grouped,
        lambda: (randn(6, 32),),
        lambda x: grouped(x, 16),
    )
    case(
        "statistics of the first columns",
        "last 16 of 80.*var_mean",
        lambda x: F.layer_norm(x, (80,)),
        lambda: (randn(16, 80) + 1,),
        lambda x: (x - x[:, :64].mean(-1, True)) / (x[:, :64].var(-1, keepdim=True, correction=0) + 1e-5).sqrt(),
    )


def cancelling():
    """Formulas that lose their digits near zero, on data where few elements show it."""
    line = lambda: (randn(4000),)  # noqa: E731
    below = lambda x, y: torch.where(x > 0, x, y)  # noqa: E731
    case("elu by exp", r"exp\(x\) - 1 instead of expm1", F.elu, line, lambda x: below(x, x.exp() - 1))
    case(
        "celu by exp",
        r"exp\(x\) - 1 instead of expm1",
        lambda x: F.celu(x, 0.7),
        line,
        lambda x: below(x, 0.7 * ((x / 0.7).exp() - 1)),
    )
    case(
        "softplus by log",
        r"log\(1 \+ x\) instead of log1p",
        F.softplus,
        lambda: (randn(4000) - 3,),
        lambda x: (1 + x.exp()).log(),
    )
    case("sinh by two exp", "instead of sinh: cancellation", torch.sinh, line, lambda x: (x.exp() - (-x).exp()) / 2)
    case(
        "tanh by four exp",
        "instead of tanh: cancellation",
        torch.tanh,
        lambda: (0.1 * randn(4000),),
        lambda x: (x.exp() - (-x).exp()) / (x.exp() + (-x).exp()),
    )
    case(
        "factor of a product used twice",
        "factor of mul were 6 instead of 2",
        lambda x, a: x + (x @ a) @ a.t() * 2.0,
        lambda: (randn(6, 3, 20), randn(20, 3)),
        lambda x, a: x + (x @ a) @ a.t() * 6.0,
    )


for build in (loops, orders, wired, elsewhere, cancelling):
    torch.manual_seed(0)
    build()
