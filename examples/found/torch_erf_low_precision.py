# SPDX-License-Identifier: Apache-2.0
"""torch 2.13 CPU: erf in bfloat16 and float16 has an absolute error of 1.5e-7: near 0 no digit is
right, and erf(1e-7) = 0. In float32 it is right.

Issues: pytorch/pytorch#198183 (open, September 2026) reports the same approximation for what
torch.compile generates in float32; eager bfloat16 and float16 are not mentioned."""

import torch

import ulpscope

x = torch.logspace(-7, -3, 1000).bfloat16()
for name, y in (("bfloat16", torch.erf(x)), ("float32, rounded", torch.erf(x.float()).bfloat16())):
    print(f"{name:16}", ulpscope.judge_call(torch.erf, (x,), outputs=y))
    right = torch.erf(x.double()).float().bfloat16()
    print(f"{'':16} not the correct rounding: {100 * float((y != right).double().mean()):.0f} %")
