# SPDX-License-Identifier: Apache-2.0
"""torch 2.13 CPU: x**3 in bfloat16 is x*x*x with a rounding to bfloat16 in between: one result in
five is not the nearest number. float16 is right. No issue was searched for."""

import torch

import ulpscope

torch.manual_seed(0)
for dtype in (torch.bfloat16, torch.float16):
    x = torch.randn(4096).to(dtype)
    y, right = x**3, (x.double() ** 3).to(dtype)
    print(ulpscope.judge_call(torch.pow, (x, 3), outputs=y))
    print(
        "  equal to x*x*x:", float((y == x * x * x).float().mean()), "not nearest:", float((y != right).float().mean())
    )
