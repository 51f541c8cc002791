# SPDX-License-Identifier: Apache-2.0
"""torch 2.13 CPU: layer_norm's gradients of weight and bias are summed over the rows in
bfloat16: the more rows, the fewer bits.

Issues: none found for the backward; pytorch/pytorch#84405 mended the same in the forward."""

import torch
import torch.nn.functional as F

import ulpscope


def gradients(x, weight, bias, g):
    leaves = [t.detach().requires_grad_() for t in (x, weight, bias)]
    with torch.enable_grad():
        return torch.autograd.grad(F.layer_norm(leaves[0], (64,), *leaves[1:]), leaves, g)


torch.manual_seed(0)
for rows in (16, 256, 4096):
    args = [t.bfloat16() for t in (torch.randn(rows, 64), torch.ones(64), torch.zeros(64), torch.rand(rows, 64))]
    y = gradients(*args)
    print(f"{rows} rows:", ulpscope.judge_call(gradients, args, outputs=y).outputs[2].sentence)
    truth = gradients(*(t.double() for t in args))[2]
    print("  largest relative error of the bias gradient", float(((y[2] - truth) / truth).abs().max()))
