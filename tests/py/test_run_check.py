# SPDX-License-Identifier: Apache-2.0
"""`ulpscope run --check`: a command that is not changed, every call of it judged; and the page that
tells how."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/check-while-it-trains.md"
TRAIN = """
import torch, ulpscope.sim
net = torch.nn.Sequential()
net.add_module("act", torch.nn.GELU())
net.add_module("up", torch.nn.Linear(8, 8))
net = net.to("sim:0")
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    net(torch.arange(32.0).view(4, 8).to("sim:0") / 32).sum().backward()
    opt.step()
"""


def launch(folder, *options, faults="", command=(sys.executable, "train.py")):
    (folder / "train.py").write_text(TRAIN)
    return subprocess.run(
        ["ulpscope", "run", *options, "--", *command],
        cwd=folder,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=300,
        env=os.environ | {"TMPDIR": str(folder), "ULPSCOPE_SIM_FAULTS": faults},
    )


def test_a_fault_is_said_with_its_step_and_module(tmp_path):
    done = launch(tmp_path, "--check", "--distinct", "--every", "2", "-o", "out", faults="aten::gelu:bf16_output")
    assert done.returncode == 1, done.stderr
    said = done.stderr.splitlines()
    assert said[0].startswith("step 0, forward, module act: aten::gelu computed with ")
    assert said[1] == "all verdicts are in out: ulpscope report out"
    assert said[2].startswith("ulpscope: 1 accused call in ") and len(said) == 3
    report = subprocess.run(["ulpscope", "report", "out"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert report.returncode == 1 and "aten::gelu" in report.stdout
    assert not list(tmp_path.glob("ulpscope-live-*"))


def test_a_finding_of_many_steps_is_said_once(tmp_path):
    done = launch(tmp_path, "--check", faults="aten::gelu:bf16_output")
    said = done.stderr.splitlines()
    assert done.returncode == 1 and len(said) == 3, done.stderr
    assert said[0].startswith("steps 0-1, forward, module act: aten::gelu computed with ")
    assert said[0].endswith(" (2 calls, this is the worst)")
    assert said[2].startswith("ulpscope: 2 accused calls in ")


def test_an_honest_run_is_fine(tmp_path):
    done = launch(tmp_path, "--check")
    assert done.returncode == 0 and "\nulpscope: no accused call in " in done.stderr, done.stderr
    assert (tmp_path / "ulpscope-out/result.db").exists()


OWN = """
import torch, ulpscope.sim
library = torch.library.Library("own", "DEF")
library.define("gate(Tensor x) -> Tensor")
library.impl("gate", lambda x: x * 2, "PrivateUse1")
x = torch.arange(32.0).view(4, 8).to("sim:0") / 32
print(float((torch.ops.own.gate(x) + torch.nn.functional.gelu(x)).sum()))
"""


@pytest.mark.parametrize(
    "options, faults, code, said",
    [
        ((), "", 2, "1 call was not judged, hence exit code 2; to accept it: --allow unjudged, or unjudged:PATTERN"),
        (("--allow", "unjudged:gelu"), "", 2, "not judged: own::gate 1 call"),
        (("--allow", "unjudged:own::*"), "", 0, "not judged, accepted by --allow: own::gate 1 call"),
        (("--allow", "unjudged"), "aten::gelu:bf16_output", 1, "not judged, accepted by --allow: own::gate 1 call"),
        (("--allow", "reduced"), "", 2, "--allow 'reduced': unjudged or unjudged:PATTERN is needed"),
    ],
)
def test_what_nobody_judged_is_no_success_unless_it_is_allowed(tmp_path, options, faults, code, said):
    (tmp_path / "own.py").write_text(OWN)
    done = launch(tmp_path, "--check", *options, faults=faults, command=(sys.executable, "own.py"))
    assert done.returncode == code and said in done.stderr, done.stderr


REFUSED = (
    (("--nan", "--distinct"), "--distinct goes with --check"),
    (("--nan", "--force"), "--force goes with"),
    (("--check", "--every", "0"), "--every must be"),
    (("--check", "--budget", "x"), "--budget: 'x' is no time"),
)


def test_results_of_another_kind_are_not_replaced_without_a_word(tmp_path):
    import ulpscope._core

    run = {
        "trace": "/data/trace",
        "trace_id": "1",
        "device": "sim:0",
        "standard": "ulpscope",
        "faults": "",
        "options": "{}",
        "environment": "{}",
    }
    with ulpscope._core.Result(str(tmp_path / "ulpscope-out"), run, False) as result:
        result.put({"call": 1, "op": "aten::mm", "verdict": "pass"})
    before = (tmp_path / "ulpscope-out/result.db").read_bytes()
    done = launch(tmp_path, "--check")
    assert done.returncode == 2 and "of the trace '/data/trace'; name another folder with -o, or --force" in done.stderr
    assert (tmp_path / "ulpscope-out/result.db").read_bytes() == before
    with pytest.raises(FileExistsError, match="force=True"):
        ulpscope.live_check(output=tmp_path / "ulpscope-out")
    for force in (["--force"], []):  # what it leaves is its own
        assert launch(tmp_path, "--check", *force).returncode == 0
    assert (tmp_path / "ulpscope-out/result.db").read_bytes() != before


@pytest.mark.parametrize(("options", "said"), REFUSED)
def test_options_that_make_no_sense_are_refused(tmp_path, options, said):
    done = launch(tmp_path, *options)
    assert done.returncode == 2 and said in done.stderr


def test_the_page_does_what_it_says(tmp_path):
    page = PAGE.read_text()
    commands = re.findall(r"```sh\n(.*?)```", page, re.S)
    example = re.search(r"```\n(step 0, .*?)```", page, re.S).group(1).splitlines()
    done = launch(tmp_path, *commands[0].split()[2:4], faults="aten::gelu:bf16_output:nth=1")
    assert done.returncode == 1, done.stderr
    numbers = r"\d+(\.\d+)?"
    assert [re.sub(numbers, "N", line) for line in done.stderr.splitlines()] == [
        re.sub(numbers, "N", line) for line in example
    ]
    report = subprocess.run(commands[1].split(), cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert "aten::gelu" in report.stdout
    code = re.search(r"```python\n(.*?)```", page, re.S).group(1)
    program = "import torch\ndef train():\n    torch.ones(8).sum()\n" + code + "print(live.n_judged, live.error)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert re.fullmatch(r"\d+ None\n", done.stdout), done.stdout + done.stderr
