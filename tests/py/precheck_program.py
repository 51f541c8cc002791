# SPDX-License-Identifier: Apache-2.0
"""The program that the document of the Ascend precheck is tried with: its dump, run_ut on it, the tables. Fixtures:
shim, dumped, real."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


BUILD = Path(os.environ.get("ULPSCOPE_BUILD", Path(__file__).resolve().parents[2] / "build"))
RUN_UT = [sys.executable, "-m", "ulpscope.compat.api_accuracy_checker.run_ut.run_ut"]

SCRIPT = """
import torch, torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Dropout(0.5), torch.nn.Linear(32, 4))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(24, 16), torch.randint(0, 4, (24,)))
def forward_step(x, y):
    loss = F.cross_entropy(model(x) + 1, y)
    opt.zero_grad(); loss.backward(); opt.step()
for x, y in DataLoader(data, batch_size=8):
    {loop}
print("went on to the end")
"""


def run(words, cwd, code=None, **environment):
    done = subprocess.run(
        [str(w) for w in words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )
    assert code is None or done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shim") / "here"
    said = run(
        [BUILD / "bin" / "ulpscope", "compat", "install", "api_accuracy_checker", "-o", folder], folder.parent, 0
    )
    assert said.stdout == f'export PYTHONPATH="{folder}"${{PYTHONPATH:+:$PYTHONPATH}}\n'
    assert not list(folder.rglob("*.pth"))
    return folder


def train(folder, shim, head="import api_accuracy_checker.dump\n", loop="forward_step(x, y)", code=1):
    folder.mkdir(exist_ok=True)
    (folder / "main.py").write_text(head + SCRIPT.format(loop=loop))
    path = os.pathsep.join(filter(None, [str(shim), os.environ.get("PYTHONPATH")]))
    return run([sys.executable, "main.py"], folder, code, PYTHONPATH=path)


def files(folder, step="step1"):
    """forward, backward and stack of the one process."""
    found = []
    for word in ("forward", "backward", "stack"):
        (file,) = (folder / step).glob(f"{word}_info_*.json")
        assert file.stem.rpartition("_")[2].isdigit()
        found.append(json.loads(file.read_text()))
    return found


@pytest.fixture(scope="module")
def dumped(shim, tmp_path_factory):
    folder = tmp_path_factory.mktemp("dumped")
    return folder, train(folder, shim)


@pytest.fixture(scope="module")
def real(shim, tmp_path_factory):
    folder = tmp_path_factory.mktemp("real")
    (folder / "kept").mkdir()
    train(
        folder,
        shim,
        "from api_accuracy_checker.dump import msCheckerConfig\n"
        "msCheckerConfig.update_config(real_data=True, error_data_path='kept')\n",
    )
    return folder


def tables(folder):
    """Both, as they are."""
    found = []
    for word in ("result", "details"):
        (file,) = folder.glob(f"accuracy_checking_{word}_*.csv")
        found.append(list(csv.reader(file.open(newline=""))))
    return found


def info(folder, word):
    (file,) = (folder / "step1").glob(f"{word}_info_*.json")
    return file


def precheck(folder, out, *more, device="sim", faults="", code=None):
    out.mkdir(exist_ok=True)
    words = [*RUN_UT, "-forward", info(folder, "forward"), "-backward", info(folder, "backward"), "-o", out, *more]
    return run(words, out, code, ULPSCOPE_COMPAT_DEVICE=device, ULPSCOPE_SIM_FAULTS=faults)


def described(dtype, high, shape=(4, 8), **more):
    return {
        "type": "torch.Tensor",
        "dtype": f"torch.{dtype}",
        "shape": list(shape),
        "Max": high,
        "Min": -high,
        "requires_grad": False,
        **more,
    }


def small(folder, calls, backward=None):
    """A dump written by hand: name -> arguments, or arguments and keywords."""
    folder.mkdir(exist_ok=True)
    stated = {name: {"args": list(args), "kwargs": {}} for name, args in calls.items()}
    (folder / "forward_info_0.json").write_text(json.dumps(stated))
    (folder / "backward_info_0.json").write_text(json.dumps(backward or {}))
    return folder


SHORT = {"forward": "-forward", "backward": "-backward", "out": "-o", "jit": "-j", "device": "-d", "csv": "-csv_path"}
LONG = {
    "forward": "--forward_input_file",
    "backward": "--backward_input_file",
    "out": "--out_path",
    "jit": "--jit_compile",
    "device": "--device",
    "csv": "--result_csv_path",
}
