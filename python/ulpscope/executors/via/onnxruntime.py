# SPDX-License-Identifier: Apache-2.0
"""`--via onnxruntime`: the model that torch.onnx exports, so that the exporter is tested with it.

Needs of torch: torch.onnx.export."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import torch

from .runtime import Runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


class OnnxRuntime(Runtime):
    packages = {"onnxruntime": "onnxruntime", "onnxscript": "onnxscript"}
    taps = True

    def compile(self, graph: torch.fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Callable[..., list[torch.Tensor]]:
        import onnxruntime

        if any(t.dtype == torch.bfloat16 for t in inputs):
            raise NotImplementedError("onnxruntime takes no bfloat16 from numpy")
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, torch.get_num_threads()
        session = onnxruntime.InferenceSession(
            onnx_model(graph, inputs).SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        names = [i.name for i in session.get_inputs()]
        if len(names) != len(inputs):
            raise NotImplementedError("the exported model has other inputs")

        def call(*given):
            arrays = {n: t.detach().contiguous().numpy() for n, t in zip(names, given)}
            return [torch.from_numpy(t.copy()) for t in session.run(None, arrays)]

        return call


def onnx_model(graph: torch.fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Any:
    """What the exporter writes of a graph."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it tells at each export what else is not installed
    return torch.onnx.export(graph, tuple(inputs), dynamo=True, verbose=False).model_proto
