# SPDX-License-Identifier: Apache-2.0
"""`--via tinygrad`: the model that torch.onnx exports, run by tinygrad's ONNX runner on its CPU device (which needs
clang).

Needs of torch: torch.onnx.export."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from .onnxruntime import onnx_model
from .runtime import Runtime, from_numpy, to_numpy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch


class TinyGrad(Runtime):
    packages = {"tinygrad": "tinygrad", "onnxscript": "onnxscript"}

    def offered(self, device: str) -> str:
        lacking = "" if shutil.which("clang") else "compiles with clang, which is not installed: apt install clang"
        return super().offered(device) or lacking

    def compile(self, graph: torch.fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Callable[..., list[torch.Tensor]]:
        os.environ.setdefault("DEV", "CPU")
        from tinygrad import Tensor
        from tinygrad.nn.onnx import OnnxRunner

        model = onnx_model(graph, inputs)
        runner = OnnxRunner(Tensor(model.SerializeToString()))
        names = [value.name for value in model.graph.input]

        def run(*tensors):
            results = runner({name: Tensor(to_numpy(t)) for name, t in zip(names, tensors)})
            return [from_numpy(results[value.name].numpy()) for value in model.graph.output]

        return run
