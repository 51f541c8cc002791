# SPDX-License-Identifier: Apache-2.0
"""Learns one weight on the simulated device, whatever device is asked for."""

import torch

import ulpscope.sim  # noqa: F401 - the device

w = torch.nn.Parameter(torch.ones(8, device="sim"))
opt = torch.optim.SGD([w], lr=0.1)
for step in range(8):
    opt.zero_grad()
    loss = (w * w).sum()
    loss.backward()
    opt.step()
    print(f"step {step} loss {loss.item():.6f}")
