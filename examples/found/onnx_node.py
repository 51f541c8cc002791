# SPDX-License-Identifier: Apache-2.0
"""Runs one ONNX operator in onnxruntime on the CPU; used by the scripts beside it."""

import onnx
import onnxruntime
import torch
from onnx import helper

KINDS = {torch.float32: onnx.TensorProto.FLOAT, torch.int64: onnx.TensorProto.INT64}


def run(operator, *inputs, opset=21, **attributes):
    names = [f"i{k}" for k in range(len(inputs))]
    node = helper.make_node(operator, names, ["o"], **attributes)
    given = [helper.make_tensor_value_info(n, KINDS[t.dtype], list(t.shape)) for n, t in zip(names, inputs)]
    graph = helper.make_graph([node], "one", given, [onnx.ValueInfoProto(name="o")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(None, {n: t.numpy() for n, t in zip(names, inputs)})[0])
