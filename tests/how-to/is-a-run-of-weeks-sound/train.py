# SPDX-License-Identifier: Apache-2.0
"""A training run in which one bit of a gradient flips at step 80."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 8))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(100):
    x = torch.randn(64, 32)
    loss = (model(x) - x[:, :8].tanh()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    if step == 80:
        model[0].weight.grad.view(torch.int32)[3, 5] ^= 1 << 30
    optimizer.step()
