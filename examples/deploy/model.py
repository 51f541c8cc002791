# SPDX-License-Identifier: Apache-2.0
"""Models for run_model.cpp: one traced, one scripted, one scripted on the device; the same as packages of AOTInductor
for run_package.cpp (torch 2.13 and newer), one for the device and one for the CPU; and what they give here."""

import sys
from pathlib import Path

import torch
import torch._inductor
from torch import nn

import ulpscope.sim  # noqa: F401

torch.manual_seed(0)
folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
model = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 5)
)
model = model.eval()
x = torch.linspace(-1, 1, 2 * 3 * 16 * 16).view(2, 3, 16, 16)
torch.jit.trace(model, x).save(folder / "traced.pt")
torch.jit.script(model).save(folder / "scripted.pt")


def pack(x: torch.Tensor, name: str) -> None:
    if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13):
        exported = torch.export.export(model, (x,))
        torch._inductor.aoti_compile_and_package(exported, package_path=str(folder / name))


with torch.no_grad():
    pack(x, "packaged_on_cpu.pt2")
on_sim = model.to("sim")
torch.jit.script(on_sim).save(folder / "scripted_on_sim.pt")
with torch.no_grad():
    pack(x.to("sim"), "packaged.pt2")
    print(*(value.hex() for value in on_sim(x.to("sim")).flatten().tolist()), sep="\n")
