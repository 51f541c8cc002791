# SPDX-License-Identifier: Apache-2.0
"""torch 2.13's ONNX exporter, run by onnxruntime 1.32: log1p becomes log(1 + x) (0 for 1e-8), erfc becomes 1 - erf (0
for 5), atan2(NaN, NaN) becomes 0, a NaN beside the diagonal makes diagonal() NaN, cumsum of float16 returns float32.
Found by `ulpscope fuzz --device cpu --via onnxruntime --programs --seed 51` (cases 51:233, 51:273, 51:11, 51:50,
51:175).

Issues: none found of log1p, erfc (of erfcx: microsoft/onnxscript#1223, open) and diagonal; atan2:
microsoft/onnxscript#2557 (open) maps NaN to 0 on purpose, for atan2(0, 0); cumsum: pytorch/pytorch#111454 (open) of an
explicit float16. What is right is by mpmath, or by what may be read: a diagonal has no other element."""

import logging
import sys
import warnings

import mpmath
import numpy as np
import onnxruntime
import torch

logging.getLogger("torch.onnx").setLevel(logging.ERROR)
warnings.simplefilter("ignore")


class Only(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def exported(function, x):
    model = torch.onnx.export(Only(function), (x,), dynamo=True, verbose=False).model_proto
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x.numpy()})[0], [n.op_type for n in model.graph.node]


wrong, nan = 0, float("nan")
for function, number, truth in ((torch.log1p, 1e-8, mpmath.log1p), (torch.special.erfc, 5.0, mpmath.erfc)):
    x = torch.tensor([number])
    got, nodes = exported(function, x)
    right = float(truth(mpmath.mpf(float(x[0]))))
    print(
        f"{function.__name__.removeprefix('special_')}({number:g}) is {got[0]:g}, expected {right:g}; exported as "
        f"{nodes}"
    )
    wrong += abs(got[0] - right) > 1e-3 * abs(right)
got, nodes = exported(lambda x: torch.atan2(x, x), torch.tensor([nan, 1.0]))
print(f"atan2(NaN, NaN) is {got[0]:g}")
wrong += not np.isnan(got[0])
got, nodes = exported(lambda x: x.diagonal(), torch.tensor([[1.0, nan], [2.0, 3.0]]))
print(f"the diagonal of [[1, NaN], [2, 3]] is {got}; exported as {nodes}")
wrong += not np.array_equal(got, np.float32([1, 3]))
got, nodes = exported(lambda x: x.cumsum(0), torch.ones(3, dtype=torch.float16))
print(f"cumsum of float16 is {got.dtype}")
wrong += got.dtype != np.float16
sys.exit(wrong > 0)
