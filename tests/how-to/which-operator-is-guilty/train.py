# SPDX-License-Identifier: Apache-2.0
"""Learns with an operator of an extension and a fused optimizer."""

import argparse
import json
from pathlib import Path

import torch

import ulpscope.sim  # noqa: F401 - the device

library = torch.library.Library("demo", "DEF")
library.define("rms_norm(Tensor x, Tensor weight, float eps) -> Tensor")
library.impl("rms_norm", lambda x, weight, eps: x * (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt() * weight, "CPU")

parser = argparse.ArgumentParser()
parser.add_argument("--device")
parser.add_argument("--losses", type=Path)
args = parser.parse_args()
torch.manual_seed(0)
x, weight = torch.randn(4, 8).to(args.device), torch.ones(8).to(args.device)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 1)).to(args.device)
opt = torch.optim.AdamW(net.parameters(), lr=0.01, fused=True)
losses = []
for _ in range(3):
    opt.zero_grad()
    loss = net(torch.ops.demo.rms_norm(x, weight, 1e-6)).sum()
    loss.backward()
    opt.step()
    losses.append(loss.item())
args.losses.write_text(json.dumps(losses))
