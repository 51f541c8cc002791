# SPDX-License-Identifier: Apache-2.0
"""torch 2.13, any device: cross_entropy of float16 with probabilities as targets is Inf where the loss is 6,000: the
losses of all rows are added up and rounded to float16 before the sum is divided by their number.

Issues: none found of probabilities."""

import math

import torch

torch.manual_seed(2)
x, target = (torch.randn(96, 64) * 90).half(), torch.rand(96, 64).half()
loss = torch.nn.functional.cross_entropy(x, target)
rows = []
for given, weights in zip(x.tolist(), target.tolist()):
    top = max(given)
    norm = top + math.log(math.fsum(math.exp(v - top) for v in given))
    rows.append(math.fsum(w * (norm - v) for v, w in zip(given, weights)))
print(
    f"torch: {float(loss)}; exact: {math.fsum(rows) / len(rows):.2f}; the sum before it is divided: "
    f"{math.fsum(rows):.0f},"
    f" and float16 ends at {torch.finfo(torch.float16).max:.0f}"
)
assert math.isinf(loss) and math.fsum(rows) / len(rows) < 65504
