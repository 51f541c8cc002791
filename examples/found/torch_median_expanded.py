# SPDX-License-Identifier: Apache-2.0
"""torch 2.13, CPU: median and nanmedian along an expanded axis read beyond the tensor's memory: what lies behind it
decides the result, and with longer axes the process dies. kthvalue and mode are right.

Issues: none found; pytorch/pytorch#46814 was about CUDA and another layout."""

import torch

torch.manual_seed(0)
memory = torch.randn(64)
x = memory[:5].expand(9, 5)  # nine equal rows: the median of each column is its only number
for f in (torch.median, torch.nanmedian):
    got = f(x, 0).values
    print(f"{f.__name__} gives", got.tolist(), "\n  of rows", x[0].tolist())
    before = got.clone()
    memory[5:] += 1  # of which no element of x is one
    print("  after a change beside the tensor:", f(x, 0).values.tolist())
    assert not torch.equal(before, x[0]) and not torch.equal(before, f(x, 0).values)
