# SPDX-License-Identifier: Apache-2.0
"""A model that trains with the operators of ops.yaml: a layer that sees nothing to its right, swish, a running mean.

ulpscope ops gen ops.yaml --source kernels.cu --source functions.cpp -o build/ops
ULPSCOPE_SIM_OPS=build/ops python train.py sim
"""

import sys

import torch

device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
if device.startswith("sim"):
    import ulpscope.sim  # noqa: F401 builds and loads the operators, too


def swish(x, beta):
    return torch.ops.mine.swish(x, beta) if x.device.type == "sim" else x * torch.sigmoid(beta * x)


torch.manual_seed(0)
weights = [(torch.randn(16, 16) / 4).to(device).requires_grad_() for _ in range(2)]
x, wanted = torch.randn(64, 16).to(device), torch.randn(64, 16).to(device)
mean = torch.zeros(64, 16).to(device)
optimizer = torch.optim.SGD(weights, lr=0.5)
for step in range(20):
    optimizer.zero_grad()
    hidden = swish(x @ torch.tril(weights[0]), 1.5)
    out = torch.add(hidden @ torch.triu(weights[1]), x, alpha=0.5)
    loss = (out - wanted).square().mean()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        mean.lerp_(out, 0.1)
    if torch.nonzero(torch.isnan(mean)).numel():
        sys.exit("not a number")
    print(f"{step} {loss.item():.6f}")
