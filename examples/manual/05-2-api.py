# SPDX-License-Identifier: Apache-2.0
"""Chapter 5.2: what a program asks of the device first."""

import torch

import ulpscope.sim  # noqa: F401

assert torch.sim.is_available()
assert torch.sim.device_count() >= 2

a = torch.tensor([1.2, 2.3], dtype=torch.float32, device="sim")
b = torch.tensor([1.8, 1.2], dtype=torch.float32, device="cpu").to("sim")
c = torch.tensor([1.8, 1.3], dtype=torch.float32).sim()
d = a + b + c
torch.sim.synchronize()

with torch.sim.device(0):
    assert torch.sim.current_device() == 0

torch.sim.set_device(1)
assert torch.sim.current_device() == 1
torch.sim.synchronize("sim:1")
print(d.cpu().tolist(), d.device)
