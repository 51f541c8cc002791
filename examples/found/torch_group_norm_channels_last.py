# SPDX-License-Identifier: Apache-2.0
"""torch 2.13 CPU: group_norm in channels_last computes the variance as E[x^2] - E[x]^2, the
contiguous kernel does not.

Issues: pytorch/pytorch#40302 and #54293 closed the same defect of the contiguous kernel in
2021; none found for channels_last, whose kernels came later (#49821)."""

import torch
import torch.nn.functional as F

import ulpscope

torch.manual_seed(0)
x = (100 + torch.randn(2, 6, 16, 16)).contiguous(memory_format=torch.channels_last)
truth = F.group_norm(x.double().contiguous(), 3)
for name, y in (("channels_last", F.group_norm(x, 3)), ("contiguous", F.group_norm(x.contiguous(), 3))):
    print(f"{name:14}", ulpscope.judge_call(F.group_norm, (x.contiguous(), 3), outputs=y.contiguous()))
    print(f"{'':14} largest error", float((y - truth).abs().max()))
