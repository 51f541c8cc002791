# SPDX-License-Identifier: Apache-2.0
"""onnxruntime 1.31 CPU: Sigmoid of large negative numbers loses all bits, then becomes 0.

Issues: known and open since 2024, microsoft/onnxruntime#22557 (negative or 0 at -18), #26281."""

import torch
from onnx_node import run

import ulpscope

x = torch.linspace(-30, -10, 2000)
y = run("Sigmoid", x)
print(ulpscope.judge_call(torch.sigmoid, (x,), outputs=y))
truth = torch.sigmoid(x.double())
print("largest relative error of onnxruntime:", float(((y - truth) / truth).abs().max()))
print("of torch in float32:                  ", float(((torch.sigmoid(x) - truth) / truth).abs().max()))
