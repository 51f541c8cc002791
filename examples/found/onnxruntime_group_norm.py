# SPDX-License-Identifier: Apache-2.0
"""onnxruntime 1.31 CPU: GroupNormalization loses bits with the square of mean / spread.

Issues: none found for GroupNormalization; LayerNormalization has had it, microsoft/onnxruntime#28463
and #21935 (NaN), and is right in this release."""

import torch
import torch.nn.functional as F
from onnx_node import run

import ulpscope

torch.manual_seed(0)
for mean in (0, 100, 3000):
    x = mean + torch.randn(2, 6, 16, 16)
    y = run("GroupNormalization", x, torch.ones(6), torch.zeros(6), num_groups=3)
    truth, plain = F.group_norm(x.double(), 3), F.group_norm(x, 3)
    print(f"mean {mean}:", ulpscope.judge_call(F.group_norm, (x, 3), outputs=y))
    print("  largest error: onnxruntime", float((y - truth).abs().max()), "torch", float((plain - truth).abs().max()))
