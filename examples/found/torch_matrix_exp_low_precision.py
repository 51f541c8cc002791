# SPDX-License-Identifier: Apache-2.0
"""torch 2.13, CPU: matrix_exp in bfloat16 and float16 is garbage or NaN, also of small matrices.

Issues: none found; pytorch/pytorch#82282 and #114080 are about NaN and huge inputs in float32."""

import torch

import ulpscope

torch.manual_seed(0)
x = torch.randn(5, 5) * 0.1
for dtype in (torch.bfloat16, torch.float16):
    low = x.to(dtype)
    got = torch.matrix_exp(low)
    print(f"{dtype}:", ulpscope.judge_call(torch.matrix_exp, (low,), {}, got))
    series = torch.eye(5, dtype=torch.float64)
    term = series.clone()
    for n in range(1, 20):
        term = term @ low.double() / n
        series += term
    print("  plain count: first element", float(got[0, 0]), "by its series", float(series[0, 0]))
