# SPDX-License-Identifier: Apache-2.0
"""torch 2.13 and 2.14.1 CPU: layer_norm's gradients of weight and bias are summed over the rows in
bfloat16 and float16: the more rows, the fewer bits. The bias gradient of one thread is, bit by bit, what adding
row after row in that format gives.

Issues: none found for the backward; pytorch/pytorch#84405 mended the same in the forward."""

import torch

import ulpscope

backward = torch.ops.aten.native_layer_norm_backward.default
torch.set_num_threads(1)
torch.manual_seed(0)
for dtype in (torch.bfloat16, torch.float16):
    for rows in (16, 256, 4096):
        x, g, ones = torch.randn(rows, 64).to(dtype), torch.rand(rows, 64).to(dtype), torch.ones(64).to(dtype)
        mean, rstd = x.mean(1, True), (x.double().var(1, unbiased=False, keepdim=True) + 1e-5).rsqrt().to(dtype)
        args = (g, x, [64], mean, rstd, ones, ones, [True] * 3)
        found = backward(*args)[2]
        print(f"{rows} rows:", ulpscope.judge_call(backward, args, outputs=backward(*args)).outputs[2].sentence)
        right = g.double().sum(0)
        print("  largest relative error of the bias gradient", float(((found - right) / right).abs().max()))
        added = torch.zeros(64, dtype=dtype)
        for row in g:
            added = added + row
        print("  equal to adding row after row:", bool((found == added).all()))
