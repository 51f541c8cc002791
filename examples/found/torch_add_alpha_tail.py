# SPDX-License-Identifier: Apache-2.0
"""torch 2.13 CPU: add and sub with alpha, in bfloat16 and float16: the elements that fill no whole vector
round alpha * other before the sum, all others do not. So a value hangs on where it stands, and on how many
elements come after it; off by as much as the sum cancels.

Issues: none found of add or sub ("add alpha bfloat16 tail", "result differs by position"); pytorch/pytorch#197018
(open, September 2026) changes how such ends are computed, of all operators. Needs torch alone; 1: it fails."""

import sys
from fractions import Fraction

import torch

torch.manual_seed(0)
wrong = 0
for dtype in (torch.bfloat16, torch.float16):
    a, alpha = torch.randn(15).to(dtype), -3.125
    b = (a.double() / -alpha * 1.01).to(dtype)
    alone, first = torch.add(a, b, alpha=alpha), torch.add(a.repeat(64), b.repeat(64), alpha=alpha)[:15]
    exact = [float(Fraction(x) + Fraction(alpha) * Fraction(y)) for x, y in zip(a.tolist(), b.tolist())]
    right = torch.tensor(exact, dtype=torch.float64)
    off = [float(((t.double() - right) / right).abs().max()) for t in (alone, first)]
    print(dtype, f"largest relative error: of 15 elements {off[0]:.2g}, the same as the first of 960 {off[1]:.2g}")
    wrong += not torch.equal(alone, first)
sys.exit(wrong > 0)
