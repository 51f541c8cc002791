# SPDX-License-Identifier: Apache-2.0
"""OpenVINO 2026.4.1: var, std, var_mean and std_mean over all axes of an exported program divide by N, whatever the
correction; with the axes named the correction is taken. Held against the formula in float64.

Related, of other forms: openvinotoolkit/openvino#36417 (a correction other than 0 and 1 with axes does not convert)."""

import os

import torch

os.environ["CI"] = "true"  # its converter sends no statistics then
import openvino  # noqa: E402


class Of(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


torch.manual_seed(0)
x = torch.randn(4, 5)
wide = x.double()
for name, function, n, correction in (
    ("var(x)", lambda x: torch.var(x), 20, 1),
    ("std(x, correction=0.5)", lambda x: torch.std(x, correction=0.5), 20, 0.5),
    ("var(x, (0, 1))", lambda x: torch.var(x, (0, 1)), 20, 1),
):
    model = openvino.convert_model(torch.export.export(Of(function), (x,)))
    core = openvino.Core()
    got = float(core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})([x.numpy()])[0])
    squares = float(((wide - wide.mean()) ** 2).sum())
    right, by_n = squares / (n - correction), squares / n
    if name.startswith("std"):
        right, by_n = right**0.5, by_n**0.5
    print(f"{name}: OpenVINO {got:.7f}, right {right:.7f}, divided by N {by_n:.7f}")
