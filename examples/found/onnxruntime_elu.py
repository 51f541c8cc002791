# SPDX-License-Identifier: Apache-2.0
"""onnxruntime 1.31 CPU: Elu, Selu and Celu near 0 are exp(x) - 1 instead of expm1(x).

Issues: none found for onnxruntime; the same defect is tensorflow/tensorflow#116943 (open) and
was jax-ml/jax#1207 (fixed)."""

import torch
import torch.nn.functional as F
from onnx_node import run

import ulpscope

x = -torch.logspace(-8, 0, 2000)
for name, fn in (("Elu", F.elu), ("Selu", F.selu), ("Celu", F.celu)):
    y, truth = run(name, x), fn(x.double())
    print(name, ulpscope.judge_call(fn, (x,), outputs=y))
    print(
        "  largest relative error: onnxruntime",
        float(((y - truth) / truth).abs().max()),
        "torch float32",
        float(((fn(x) - truth) / truth).abs().max()),
    )
