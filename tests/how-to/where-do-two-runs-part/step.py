# SPDX-License-Identifier: Apache-2.0
"""One step of a small network on the simulated device."""

import torch

import ulpscope.sim  # noqa: F401 - the device

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 1))
x = torch.randn(4, 8)
net, x = net.to("sim"), x.to("sim")
opt = torch.optim.SGD(net.parameters(), lr=0.1)
net(x).sum().backward()
opt.step()
