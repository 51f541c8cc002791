# SPDX-License-Identifier: Apache-2.0
"""Makes the capture in this folder with ditorch's own op_tools (github.com/DeepLink-org/ditorch,
commit 68ac0e4, torch 2.13.0): `PYTHONPATH=DITORCH python make.py` in an environment that has
prettytable and psutil. op_tools looks at calls on accelerators only: it is told that these are."""

import os
import re
import shutil
from pathlib import Path

import op_tools
import op_tools.base_hook
import torch
import torch.nn.functional as F

HERE = Path(__file__).resolve().parent
op_tools.base_hook.is_cpu_op = lambda *args, **kwargs: (False, torch.device("cuda:0"))


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
        h = torch.cat([a, b], dim=-1)[:, 1:3, ...]
        h = h.masked_fill(h > 1.5, float("-inf")).clamp(min=-3.0).transpose(0, 1)
        return 1.0 / torch.topk(h.softmax(-1).to(torch.float32), 3, dim=-1)[0]


os.chdir(HERE)
shutil.rmtree("op_tools_results", ignore_errors=True)
torch.manual_seed(1234)
model = Model()
x = torch.randint(0, 11, (2, 5))
with op_tools.OpCapture():
    loss = model(x).sum()
    loss.backward()
for folder in Path("op_tools_results/op_capture_results").glob("*/*"):  # one process, one second
    folder.rename(folder.with_name("4711"))
for folder in Path("op_tools_results/op_capture_results").glob("*/*/*/*"):
    folder.rename(folder.with_name("2026-01-01-00-00-00"))
for path in Path("op_tools_results").rglob("*.json"):
    path.write_text(re.sub(r'"data_ptr": \d+', '"data_ptr": 4096', path.read_text()))
