# SPDX-License-Identifier: Apache-2.0
"""The action for GitHub: its one step, run as a runner would, on a right device and on one with a fault."""

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TRAIN = """
import sys, torch, ulpscope.sim
torch.manual_seed(0)
model = torch.nn.Linear(64, 64).to(sys.argv[1])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.randn(64, 64).to(sys.argv[1])).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def step(folder, **inputs):
    """Runs the step: inputs that are not given have the action's defaults."""
    text = (ROOT / "packaging/github/action.yml").read_text()
    declared = re.findall(r"^  (\w+):\n    description: .*\n    (?:required: true|default: (.*))$", text, re.M)
    values = {name: default.strip('"') for name, default in declared} | inputs
    assert set(inputs) <= {name for name, _ in declared}
    named = dict(re.findall(r"^        (\w+): \$\{\{ inputs\.(\w+) \}\}$", text, re.M))
    assert set(named.values()) == {name for name, _ in declared}
    script = re.search(r"^      run: \|\n((?:        .*\n)+)", text, re.M)[1]
    env = os.environ | {variable: values[name] for variable, name in named.items()}
    words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", re.sub(r"^        ", "", script, flags=re.M)]
    return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True)


def test_the_action_checks_a_program(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    right = step(tmp_path, command="python train.py sim:0", device="sim:0")
    assert right.returncode == 0, right.stderr
    assert (tmp_path / "ulpscope-out/result.json").exists() and (tmp_path / "ulpscope-out.xml").exists()
    wrong = {"command": "python train.py sim:0", "device": "sim:0", "out": "faulty"}
    faulty = "--faults aten::addmm:tf32"
    done = step(tmp_path, **wrong, options=faulty)
    assert done.returncode == 1 and "::error " in done.stdout and "addmm" in done.stdout, done.stdout + done.stderr
    known = step(tmp_path, **wrong | {"out": "again"}, options=faulty, baseline="faulty/result.json")
    assert known.returncode == 0, known.stdout + known.stderr
    excused = step(tmp_path, **wrong | {"out": "excused"}, options=faulty + " --allow intermittent:aten::addm*")
    assert excused.returncode == 0, excused.stdout + excused.stderr
