# SPDX-License-Identifier: Apache-2.0
"""Chapter 8.2: TF32 and the layout NHWC for a network of convolutions."""

import torch
from torch import nn

import ulpscope.sim  # noqa: F401

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3)).to("sim")
x = torch.randn(2, 3, 16, 16).to("sim")
exact = model(x)

torch.backends.sim.allow_tf32 = True
model = model.to(memory_format=torch.channels_last)
y = model(x.to(memory_format=torch.channels_last))
print("NHWC:", y.is_contiguous(memory_format=torch.channels_last))
print("as without, to three digits:", torch.allclose(y.cpu(), exact.cpu(), rtol=1e-2, atol=1e-3))
print("bit by bit:", torch.equal(y.cpu(), exact.cpu()))
