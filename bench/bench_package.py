# SPDX-License-Identifier: Apache-2.0
"""A package of AOTInductor on the simulated device against the same model's on the CPU, both run by torch's loader in
one process: processor time of a run, by turns. Needs torch 2.13 and a compiler; making both takes a minute."""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
from pathlib import Path

import torch
import torch._inductor
from torch import nn

import ulpscope.sim  # noqa: F401


def made(model: nn.Module, x: torch.Tensor, path: Path) -> object:
    with torch.no_grad():
        exported = torch.export.export(model.to(x.device), (x,))
        torch._inductor.aoti_compile_and_package(exported, package_path=str(path))
    return torch._inductor.aoti_load_package(str(path))


def seconds(package: object, x: torch.Tensor, n: int) -> float:
    """Processor time of a run; the first is not counted."""
    package(x)
    begin = resource.getrusage(resource.RUSAGE_SELF)
    for _ in range(n):
        package(x)
    end = resource.getrusage(resource.RUSAGE_SELF)
    return (end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime) / n


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--runs", type=int, default=40)
    given = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    ulpscope.sim.set_launch_blocking(True)  # as in a program of C++
    w = given.width
    layers = [nn.Linear(w, 4 * w), nn.GELU(), nn.Linear(4 * w, w), nn.LayerNorm(w), nn.Linear(w, w), nn.Softmax(-1)]
    model, x = nn.Sequential(*layers).eval(), torch.randn(given.batch, w)
    with tempfile.TemporaryDirectory() as folder:
        on_cpu = made(model, x, Path(folder) / "cpu.pt2")
        on_sim, x_sim = made(model, x.to("sim"), Path(folder) / "sim.pt2"), x.to("sim")
        same = torch.equal(on_cpu(x), on_sim(x_sim).cpu())
        pairs = [(seconds(on_sim, x_sim, given.runs), seconds(on_cpu, x, given.runs)) for _ in range(9)]
    ours, theirs = (statistics.median(column) for column in zip(*pairs))
    ratio = statistics.median(a / b for a, b in pairs)
    print(f"package of {sum(p.numel() for p in model.parameters()) / 1e6:.1f} million weights, batch {given.batch}")
    print(f"on the CPU {theirs * 1e3:8.2f} ms   on sim {ours * 1e3:8.2f} ms   {ratio:.3f}x (wanted 1.15x)")
    print(f"the same bits: {'yes' if same else 'no'}")


if __name__ == "__main__":
    main()
