# SPDX-License-Identifier: Apache-2.0
"""Chapter 5.3: a network with residual blocks, on the device, without its gradients. Weights are drawn here."""

import torch
from torch import nn

import ulpscope.sim  # noqa: F401


class Block(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.convs = nn.Sequential(
            nn.Conv2d(n_in, n_out, 3, 2, 1), nn.BatchNorm2d(n_out), nn.ReLU(), nn.Conv2d(n_out, n_out, 3, 1, 1)
        )
        self.beside = nn.Conv2d(n_in, n_out, 1, 2)

    def forward(self, x):
        return torch.relu(self.convs(x) + self.beside(x))


torch.manual_seed(0)
model = nn.Sequential(Block(3, 8), Block(8, 16), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)).eval()
x = torch.rand((1, 3, 64, 64))
with torch.no_grad():
    on_cpu = model(x)
    y = model.to("sim")(x.to("sim"))
print(y.device, tuple(y.shape), torch.equal(y.cpu(), on_cpu))
