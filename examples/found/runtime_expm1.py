# SPDX-License-Identifier: Apache-2.0
"""expm1 by OpenVINO 2026.4, TVM 0.27, LiteRT 2.3 (litert-torch 0.10), torch.onnx (onnxruntime 1.31, tinygrad 0.14): the
importers of torch's programs make exp(x) - 1 of it, so that all bits are lost near 0: 0 where 1e-8 is right. IREE,
ExecuTorch, MLX and JAX are right.

Issues: none found of it; openvinotoolkit/openvino#22642 added the operator in this form.

    python examples/found/runtime_expm1.py openvino:f32"""

import sys

import torch

import ulpscope
from ulpscope.executors import via

x = torch.logspace(-8, -1, 200)


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.expm1(x)


y = torch.compile(Model(), backend=via.backend(sys.argv[1] if sys.argv[1:] else "openvino:f32"), dynamic=False)(x)
series = sum(x.double() ** n / torch.lgamma(torch.tensor(n + 1.0)).exp().double() for n in range(1, 12))
print(ulpscope.judge_call(torch.expm1, (x,), outputs=y))
print("largest relative error, by the series:", float(((y - series) / series).abs().max()))
print("of torch's own:", float(((torch.expm1(x) - series) / series).abs().max()))
