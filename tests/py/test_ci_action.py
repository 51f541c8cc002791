# SPDX-License-Identifier: Apache-2.0
"""The action for GitHub and the job for GitLab: run as a runner would, on a right device and on one with a fault."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

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


def job():
    """What the job of the page holds, read as YAML."""
    yaml = pytest.importorskip("yaml")
    page = (ROOT / "docs/how-to/use-it-in-ci.md").read_text()
    (text,) = re.findall(r"^On GitLab.*\n\n```yaml\n((?:.*\n)+?)```$", page, re.M)
    (told,) = yaml.safe_load(text).values()
    assert told.keys() == {"script", "artifacts"}, "a key that nothing here reads"
    return told


def gitlab(folder, script, **env):
    """The lines of a script one after another, as GitLab's runner gives them to a shell; its output in one."""
    text = "set -eo pipefail\n" + "".join(f"{line}\n" for line in script)
    return subprocess.run(
        ["bash", "--noprofile", "--norc"], input=text, cwd=folder, env=os.environ | env, capture_output=True, text=True
    )


def failures(path):
    return [f.get("message", "") + (f.text or "") for f in ElementTree.parse(path).iter("failure")]


def test_the_job_for_gitlab_checks_a_program(tmp_path):
    """Against a right baseline a right device passes, one with a fault does not, and its own result excuses it.
    What the job keeps is there each time, and its JUnit file names the fault."""
    told = job()
    kept, junit = told["artifacts"]["paths"], told["artifacts"]["reports"]["junit"]
    assert told["artifacts"]["when"] == "always" and any("npu:0" in line for line in told["script"])
    script = [line.replace("npu:0", "sim:0") for line in told["script"]]
    first = [line.replace(" --baseline main.json", "") for line in script]
    assert first != script

    def run(name, lines, baseline=None, **env):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "train.py").write_text(TRAIN.replace("sys.argv[1]", "'sim:0'"))
        if baseline:
            shutil.copy(tmp_path / baseline / "ulpscope-out/result.json", folder / "main.json")
        done = gitlab(folder, lines, **env)
        assert all((folder / path).is_dir() for path in kept), done.stdout + done.stderr
        assert json.loads((folder / "ulpscope-out/result.json").read_text())
        return done, failures(folder / junit)

    right, none = run("first", first)
    assert right.returncode == 0 and none == [], right.stderr
    fault = {"ULPSCOPE_SIM_FAULTS": "aten::addmm:tf32"}
    wrong, told_of = run("faulty", script, "first", **fault)
    assert wrong.returncode == 1 and told_of and all("addmm" in text for text in told_of), (told_of, wrong.stderr)
    known, left = run("known", script, "faulty", **fault)
    assert known.returncode == 0 and left == [], known.stdout + known.stderr


def test_a_job_without_its_baseline_says_so(tmp_path):
    """The first run of a branch has none: trouble, with the file's name, and no verdict."""
    (tmp_path / "train.py").write_text(TRAIN.replace("sys.argv[1]", "'cpu'"))
    done = gitlab(tmp_path, [line.replace("npu:0", "sim:0") for line in job()["script"]])
    assert done.returncode == 2 and "main.json" in done.stderr, done.stderr
