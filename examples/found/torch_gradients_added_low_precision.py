# SPDX-License-Identifier: Apache-2.0
"""torch 2.13 CPU: gradients that add what met in one place add it in bfloat16 or float16: replication and reflection
pads, unfold, adaptive average pools, index_add, index_put with accumulate. A sum stops growing at 256 or 2048.

Issues: none found of pads, unfold ("col2im bfloat16 accumulate") and the gradient of pools; of the forward of
adaptive_avg_pool3d pytorch/pytorch#140696, of index_put #156173 (closed: said to be the order of adding).
Needs torch alone; 1: it fails."""

import sys

import torch

F, wrong = torch.nn.functional, 0
for dtype, n in ((torch.bfloat16, 1000), (torch.float16, 5000)):

    def gradient(make, dtype=dtype, n=n):
        x = torch.ones(1, 1, 2, dtype=dtype, requires_grad=True)
        make(x, n).sum().backward()
        return float(x.grad.max())

    found = {
        "replication pad": gradient(lambda x, n: F.pad(x, (n - 1, 0), mode="replicate")),
        "adaptive_avg_pool": gradient(lambda x, n: F.adaptive_avg_pool2d(x[..., None], (2 * n, 1))),
        "index_add": float(
            torch.zeros(1, dtype=dtype).index_add(0, torch.zeros(n, dtype=torch.int64), torch.ones(n, dtype=dtype))
        ),
    }
    print(dtype, f"sums of {n} ones:", found)  # by counting
    wrong += sum(abs(v - n) > n * torch.finfo(dtype).eps for v in found.values())
sys.exit(wrong > 0)
