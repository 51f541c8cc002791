# SPDX-License-Identifier: Apache-2.0
"""`ulpscope run --fallback, --cast, --substitute`, and the variable ULPSCOPE_REROUTE: operators of
a command that is not changed are computed another way."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TRAIN = """
import torch
import ulpscope.sim  # the device comes after torch, as a vendor's does
torch.manual_seed(0)
a = torch.randn(8, 8)
x = a.to("sim")
right = torch.bmm(a[None], a[None])[0]
ulpscope.sim.fault("aten::mm", "scale")
print(torch.allclose((x @ x).cpu(), right, rtol=1e-5, atol=1e-6), (x @ x).abs().max().item() == 0, (x @ x).dtype)
"""
HELPER = "import torch\ndef nothing(a, b):\n    return torch.zeros_like(a)\n"


def launch(folder, *options, **environment):
    (folder / "train.py").write_text(TRAIN)
    (folder / "helper.py").write_text(HELPER)
    return subprocess.run(
        ["ulpscope", "run", *options, "--", sys.executable, "train.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"TMPDIR": str(folder)} | environment,
    )


ROWS = (
    (("--fallback", "aten::mm"), "True False"),
    (("--fallback", "aten::sin"), "False False"),
    (("--fallback", "nosuch"), "False False"),
    (("--cast", "nosuch=float32"), "False False"),
    (("--fallback", "aten::mm", "--cast", "nosuch=float32"), "True False"),
    (("--substitute", "aten::mm=helper:nothing"), "False True"),
    (("--substitute", "aten::mm=helper:nothing", "--fallback", "mm,addmm"), "True False"),
    (("--cast", "mm,addmm=float64"), "False False"),
    (("--nan", "--fallback", "aten::mm"), "True False"),
)


@pytest.mark.parametrize(("options", "said"), ROWS)
def test_a_command(tmp_path, options, said):
    done = launch(tmp_path, *options)
    assert done.stdout == f"{said} torch.float32\n", done.stderr
    idle = {"aten::sin", "nosuch", "nosuch=float32"} & set(options)
    assert done.returncode == (2 if idle or "mm,addmm" in options else 0), done.stderr
    assert done.stderr.count("took no call: nothing ran by it; hence exit code 2") == (done.returncode == 2)
    assert ("ulpscope: aten::mm: 3 calls on the CPU\n" in done.stderr) == bool({"aten::mm", "mm,addmm"} & set(options))
    assert "aten::sin" not in options or "none of which was called" in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    (
        (("--substitute", "aten::mm=helper:nothin"), "helper.py has no nothin; did you mean nothing?"),
        (("--substitute", "aten::mm=helpr:nothing"), "no module helpr in the script's folder or on PYTHONPATH"),
        (("--cast", "aten::mm=float65"), "'float65' is no floating dtype of torch; did you mean float64?"),
        (("--fallback", "aten::mmm"), "fallback('aten::mmm'): this torch has no aten::mmm; did you mean aten::mm?"),
        (("--fallback", "aten::mm", "--cast", "mm,aten::nosuch_*=float32"), "this torch has no aten::nosuch_*"),
        (("--nan", "--ops", "sin,aten::sinus"), "--ops: this torch has no aten::sinus; did you mean aten::sin?"),
        (("--cast", "aten::mm=int32"), "'int32' is no floating dtype of torch"),
    ),
)
def test_what_means_nothing_is_refused_before_the_program_works(tmp_path, options, said):
    done = launch(tmp_path, *options)
    assert done.returncode == 2 and said in done.stderr and done.stdout == "", done.stderr


@pytest.mark.parametrize("ops, computed", [("aten::linear", "aten::addmm"), ("*", "aten::mm")])
def test_a_device_that_comes_later_keeps_its_composites(tmp_path, ops, computed):
    """The program imports its device behind our start: what we put before a composite is no kernel of the CPU's."""
    (tmp_path / "train.py").write_text(
        "import torch, ulpscope.sim\n"
        "net = torch.nn.Linear(8, 4).to('sim:0')\n"
        "net(torch.randn(3, 8).to('sim:0')).sum().backward()\n"
    )
    command = ["ulpscope", "run", "--fallback", ops, "--", sys.executable, "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and f"{computed}: 1 call on the CPU" in done.stderr, done.stderr


def test_the_variable_and_options_together(tmp_path):
    rows = json.dumps([{"do": "substitute", "ops": "aten::mm", "with": "helper:nothing"}])
    assert launch(tmp_path, ULPSCOPE_REROUTE=rows).stdout.startswith("False True")
    done = launch(tmp_path, "--fallback", "aten::mm", ULPSCOPE_REROUTE=rows)
    assert done.stdout.startswith("True False"), done.stderr


REFUSED = (
    (("--fallback", "a b"), "--fallback:"),
    (("--fallback", ""), "no PATTERN"),
    (("--cast", "mm"), "PATTERN=DTYPE"),
    (("--substitute", "aten::mm=helper"), "OPERATOR=module:function"),
    ((), "what is it to watch?"),
)


@pytest.mark.parametrize(("options", "said"), REFUSED)
def test_what_is_no_option_is_refused(tmp_path, options, said):
    done = launch(tmp_path, *options)
    assert done.returncode == 2 and said in done.stderr and done.stdout == ""


def test_a_variable_that_is_no_list_is_said_and_the_command_runs(tmp_path):
    done = launch(tmp_path, ULPSCOPE_REROUTE="{")
    assert done.stdout.startswith("False False") and "ULPSCOPE_REROUTE" in done.stderr
    assert done.returncode == 2


def test_the_howto_convicts_both_operators_of_the_demo(tmp_path):
    root = Path(__file__).resolve().parents[2]
    page = (root / "docs/how-to/which-operator-is-guilty.md").read_text()
    folder = tmp_path / "examples" / "demo"
    folder.mkdir(parents=True)
    shutil.copy(root / "LICENSE", tmp_path)
    shutil.copy(root / "examples/demo/train.py", folder)
    (folder / "formulas.py").write_text(re.findall(r"```python\n(# formulas.*?)```", page, re.S)[0])
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def losses(command, name, faults=""):
        done = subprocess.run(
            ["sh", "-ec", command],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=300,
            env=environment | {"ULPSCOPE_SIM_FAULTS": faults},
        )
        assert done.returncode == 0, done.stderr
        return json.loads((folder / name).read_text())

    faults = "aten::_fused_adamw_:step_plus_one;demo::rms_norm:bf16_intermediates"
    honest = losses("python train.py --device sim --steps 3 --losses honest.json", "honest.json")
    commands = [c.strip() + " --steps 3" for c in re.findall(r"```sh\n(.*?)```", page, re.S)]
    names = [c.split("--losses ")[1].split()[0] for c in commands]
    found = [losses(c, n, faults) for c, n in zip(commands, names, strict=True)]
    off = [max(abs(a - b) for a, b in zip(f, honest, strict=True)) for f in found]
    assert off[2] < 1e-6 < min(off[:2]), off
