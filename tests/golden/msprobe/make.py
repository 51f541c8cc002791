# SPDX-License-Identifier: Apache-2.0
"""Makes the dumps in this folder with msprobe itself (mindstudio-probe 26.2.0, torch 2.13.0):
`python make.py` in an environment that has both. `tensor/` is a dump at level mix with
tensors, `statistics/` one at level L1 without. Paths of the machine that ran are replaced."""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from msprobe.pytorch import PrecisionDebugger, seed_all

HERE = Path(__file__).resolve().parent


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = torch.nn.Embedding(11, 8)
        self.norm = torch.nn.LayerNorm(8)
        self.fc = torch.nn.Linear(8, 8)

    def forward(self, x):
        h = self.emb(x)
        h = h + self.fc(F.gelu(self.norm(h)))
        h = h.mul_(2.0)
        a, b = torch.split(h, 4, dim=-1)
        h = torch.cat([a, b], dim=-1)
        h = h.masked_fill(h > 1.5, float("-inf")).clamp(min=-3.0)
        return torch.topk(h.to(torch.float32), 3, dim=-1)[0]


def dump(task, level):
    out, config = HERE / task, HERE / "config.json"
    shutil.rmtree(out, ignore_errors=True)
    config.write_text(
        json.dumps(
            {
                "task": task,
                "dump_path": str(out),
                "rank": [],
                "step": [],
                "level": level,
                "risk_level": "ALL",
                task: {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"},
            }
        )
    )
    seed_all(1234)
    model = Model()
    x = torch.randint(0, 11, (2, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    debugger = PrecisionDebugger(config_path=str(config))
    debugger.start(model=model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(x).sum()
    loss.backward()
    optimizer.step()
    debugger.stop()
    debugger.step()
    config.unlink()
    step = out / "step0"
    next(step.glob("proc*")).rename(step / "rank0")
    for path in step.glob("rank0/dump_tensor_data/Module.*"):
        path.unlink()  # an import does not look at them
    for path in (step / "rank0").glob("*.json"):
        text = re.sub(r"/[^\"\s]*/site-packages", "/site-packages", path.read_text())
        text = text.replace(str(HERE), "/train")
        path.write_text(re.sub(r"proc\d+", "rank0", text))


if len(sys.argv) > 1:
    dump(*sys.argv[1:])
else:  # the debugger is one for each process
    for words in ("tensor mix", "statistics L1"):
        os.system(f"{sys.executable} {__file__} {words}")
