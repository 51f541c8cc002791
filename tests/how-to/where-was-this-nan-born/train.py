# SPDX-License-Identifier: Apache-2.0
"""A loss that leaves float16 in its second step."""

import torch

w = torch.nn.Parameter(torch.ones(8))
opt = torch.optim.SGD([w], lr=0.0)
for step in range(3):
    (w.half() * (3e5 if step == 1 else 1.0)).float().sum()
    w.sum().backward()
    opt.step()
