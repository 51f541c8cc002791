# SPDX-License-Identifier: Apache-2.0
"""torch 2.13 CPU: the flash attention operators read a last axis with gaps as if it had none: other numbers, and
beside the tensor. scaled_dot_product_attention asks for dense axes before it chooses them; who calls them does not.

Issues: pytorch/pytorch#187506 mends the forward (June 2026); none found of the backward. Needs torch alone; 1: it
fails."""

import sys

import torch

forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
torch.manual_seed(0)
q, k, v, g = (torch.randn(2, 2, n, 8) for n in (3, 6, 6, 3))
out, sums = forward(q, k, v)
turned = q.transpose(-1, -2).contiguous().transpose(-1, -2)  # equal numbers
truth = torch.softmax(q.double() @ k.double().transpose(-1, -2) / 8**0.5, -1) @ v.double()
off = [float((forward(x, k, v)[0] - truth).abs().max()) for x in (q, turned)]
right, wrong = (backward(g, x, k, v, out, sums, 0.0, False) for x in (q, turned))
print(f"largest error of the output: dense {off[0]:.2g}, with gaps {off[1]:.2g}")
print("gradients differ by", *(f"{float((a - b).abs().max()):.2g}" for a, b in zip(right, wrong)))
sys.exit(off[1] > 1e-3)
