# SPDX-License-Identifier: Apache-2.0
"""How far `ulpscope diff --amplify` finds honest runs and faulty ones from what rounding alone makes of a model:
distance of the two runs by the largest distance of 3 perturbed replays, over all results of float dtypes. Honest:
other threads, other code paths of the CPU, without oneDNN. Each run is a process of its own."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

RUN = """
import contextlib, sys, torch
sys.path.insert(0, sys.argv[1])
import ulpscope, ulpscope.sim
from model import TrainingStep
path, model, device, how = sys.argv[2:6]
torch.set_num_threads(2 if how == "two threads" else 1)
torch.backends.mkldnn.enabled = how != "no oneDNN"
torch.manual_seed(0)
nn, F = torch.nn, torch.nn.functional
if model == "gpt":
    step = TrainingStep(device=device, vocabulary=64, width=32, layers=2, heads=2, length=16, batch=2)
else:
    if model == "conv":
        parts = [[nn.Conv2d(i, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()] for i in (3, 16)]
        net = nn.Sequential(*sum(parts, []), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
        x, y = torch.randn(8, 3, 16, 16), torch.randint(0, 10, (8,))
    else:
        net = nn.Sequential(nn.Linear(48, 96), nn.LayerNorm(96), nn.GELU(), nn.Linear(96, 10))
        x, y = torch.randn(32, 48), torch.randint(0, 10, (32,))
    net, x, y = net.to(device), x.to(device), y.to(device)
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    def step():
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
fault = ulpscope.sim.fault(*how.rsplit(":", 1)) if ":" in how else contextlib.nullcontext()
with fault, ulpscope.capture(path, steps=[0, 1]):
    step(), step()
"""
OLD = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"}
ROWS = (
    ("cpu", "two threads", {}),
    ("cpu", "no oneDNN", {}),
    ("cpu", "oldest code path", OLD),
    ("sim:0", "aten::addmm:tf32", {}),
    ("sim:0", "aten::cross_entropy_loss:bf16_intermediates", {}),
    ("sim:0", "aten::_log_softmax:scale", {}),
    ("sim:0", "aten::mm:truncate", {}),
)


def run(folder: Path, name: str, model: str, device: str, how: str, settings: dict) -> Path:
    done = subprocess.run(
        [sys.executable, "-c", RUN, Path(__file__).parent, folder / name, model, device, how],
        env=os.environ | settings,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return folder / name


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    print("| model | B | results that differ | median | largest | beyond |\n|---|---|---|---|---|---|")
    for model in ("mlp", "conv", "gpt"):
        for device, how, settings in ROWS:
            with tempfile.TemporaryDirectory() as name:
                a = run(Path(name), "a", model, "cpu", "", {})
                b = run(Path(name), "b", model, device, how, settings)
                done = subprocess.run(
                    ["ulpscope", "diff", a, b, "--no-judge", "--amplify", "3", "--json", "--all"],
                    capture_output=True,
                    text=True,
                )
            told = [r for r in json.loads(done.stdout)["rows"] if r["noise"] is not None]
            ratio = [(r["apart"] or float("inf")) / r["noise"] for r in told if r["apart"] != 0]
            beyond = sum(q > (32 if r["out"]["n"] < 16 else 8) for q, r in zip(ratio, told))
            figures = f"{statistics.median(ratio):.2g} | {max(ratio):.2g}" if ratio else " | "
            print(f"| {model} | {how} | {len(ratio)} | {figures} | {beyond} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
