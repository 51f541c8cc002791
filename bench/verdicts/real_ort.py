# SPDX-License-Identifier: Apache-2.0
"""onnxruntime's CPU kernels as a device: models of one operator."""

import numpy as np
import torch

from .peers import load

MS = "com.microsoft"
#: operator -> (ONNX operator, attributes, inputs that are constants, domain)
MODELS = {
    "mul": ("Mul", {}),
    "div": ("Div", {}),
    "exp": ("Exp", {}),
    "log": ("Log", {}),
    "sqrt": ("Sqrt", {}),
    "sin": ("Sin", {}),
    "tanh": ("Tanh", {}),
    "erf": ("Erf", {}),
    "atan": ("Atan", {}),
    "reciprocal": ("Reciprocal", {}),
    "sigmoid": ("Sigmoid", {}),
    "gelu": ("Gelu", {}),
    "gelu_tanh": ("Gelu", {"approximate": "tanh"}),
    "softplus": ("Softplus", {}),
    "mish": ("Mish", {}),
    "elu": ("Elu", {"alpha": 0.7}),
    "leaky_relu": ("LeakyRelu", {"alpha": 0.01}),
    "hardswish": ("HardSwish", {}),
    "sum_dim": ("ReduceSum", {"keepdims": 0}, [-1]),
    "mean_dim": ("ReduceMean", {"keepdims": 0}, [0]),
    "norm2": ("ReduceL2", {"keepdims": 0}, [-1]),
    "logsumexp": ("ReduceLogSumExp", {"keepdims": 0}, [-1]),
    "prod": ("ReduceProd", {"keepdims": 0}, [-1]),
    "amax": ("ReduceMax", {"keepdims": 0}, [-1]),
    "cumsum": ("CumSum", {}, -1),
    "softmax": ("Softmax", {"axis": -1}),
    "log_softmax": ("LogSoftmax", {"axis": -1}),
    "argmax": ("ArgMax", {"axis": -1, "keepdims": 0}),
    "layer_norm": ("LayerNormalization", {"axis": -1, "epsilon": 1e-5}),
    "rms_norm": ("SimplifiedLayerNormalization", {"axis": -1, "epsilon": 1e-6}),
    "group_norm": ("GroupNormalization", {"num_groups": 3, "epsilon": 1e-5}),
    "batch_norm_eval": ("BatchNormalization", {"epsilon": 1e-5}),
    "mm": ("MatMul", {}),
    "bmm": ("MatMul", {}),
    "mv": ("MatMul", {}),
    "linear": ("Gemm", {"transB": 1}),
    "conv2d": ("Conv", {"pads": [1, 1, 1, 1]}),
    "conv2d_strided": ("Conv", {"strides": [2, 2], "dilations": [2, 2]}),
    "einsum_bhd": ("Einsum", {"equation": "bhd,khd->bhk"}),
    "avg_pool2d": (
        "AveragePool",
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "count_include_pad": 1},
    ),
    "max_pool2d": ("MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "gather": ("GatherElements", {"axis": -1}),
    "round": ("Round", {}),
    "topk": ("TopK", {"axis": -1}, [20]),
    "silu": ("QuickGelu", {"alpha": 1.0}, None, MS),
}
ORDER = {"batch_norm_eval": (0, 3, 4, 1, 2)}  # x, scale, bias, mean, variance
OUTPUTS = {"topk": 2}
KINDS = {torch.float32: 1, torch.float16: 10, torch.bfloat16: 16, torch.int64: 7, torch.bool: 9}


def run(case):
    """The outputs, None where onnxruntime is missing or has no such kernel."""
    onnx, ort = load("onnx"), load("onnxruntime")
    model = MODELS.get(case.op.name)
    if onnx is None or ort is None or model is None or case.dtype == "bf16":
        return None
    args = [case.args[i] for i in ORDER.get(case.op.name, range(len(case.args)))]
    args = [a.contiguous() for a in args if isinstance(a, torch.Tensor)]
    ort.set_default_logger_severity(4)
    session = ort.InferenceSession(
        built(onnx, case, model, args).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    out = session.run(None, {f"i{k}": a.numpy() for k, a in enumerate(args)})
    return [torch.from_numpy(np.array(t)) for t in out]


def built(onnx, case, model, args):
    """A model of one node."""
    h = onnx.helper
    name, attributes, constant, domain = (*model, None, None)[:4] if len(model) < 4 else model
    inputs = [h.make_tensor_value_info(f"i{k}", KINDS[a.dtype], list(a.shape)) for k, a in enumerate(args)]
    fixed = []
    if constant is not None:
        value = np.array(constant, dtype=np.int64)
        fixed = [onnx.numpy_helper.from_array(value, "axes")]
    outputs = [f"o{k}" for k in range(OUTPUTS.get(case.op.name, 1))]
    node = h.make_node(
        name, [i.name for i in inputs] + [f.name for f in fixed], outputs, domain=domain or "", **attributes
    )
    graph = h.make_graph(
        [node],
        "one",
        inputs,
        [h.ValueInfoProto(name=o) for o in outputs]
        if hasattr(h, "ValueInfoProto")
        else [onnx.ValueInfoProto(name=o) for o in outputs],
        initializer=fixed,
    )
    versions = [h.make_opsetid("", 21)] + ([h.make_opsetid(domain, 1)] if domain else [])
    return h.make_model(graph, opset_imports=versions, ir_version=10)
