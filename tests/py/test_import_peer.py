# SPDX-License-Identifier: Apache-2.0
"""What is exported is read by msprobe itself: its `compare` and its `acc_check`, on a machine without
an accelerator. `./run bench capture` installs it (400 MB, bench/peer.py); without it these skip."""

from __future__ import annotations

import csv
import json
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from dumps import BUILD, GOLDEN, ulpscope

import ulpscope as package

PEER = BUILD / "peer"
pytestmark = pytest.mark.skipif(
    not (PEER / "ready").exists(), reason="msprobe is not installed here: ./run bench capture installs it"
)

# Its commands without its main program, which loads all of its tools; its device is the CPU.
PROGRAM = """
import argparse, sys
sys.path.append(sys.argv.pop(1))
import torch
if sys.argv[1] == "compare":
    from msprobe.core.compare.auto_compare import compare_auto_mode
    from msprobe.core.compare.utils import _compare_parser
    parser = argparse.ArgumentParser()
    _compare_parser(parser)
    compare_auto_mode(parser.parse_args(sys.argv[2:]))
else:
    from msprobe.core.acc_check.acc_check_cli import acc_check_cli
    from msprobe.pytorch.api_accuracy_checker.acc_check import acc_check, acc_check_utils
    acc_check.current_device = acc_check_utils.current_device = "cpu"
    torch.cuda.set_device = lambda device: None
    acc_check_cli(sys.argv[2:])
"""


def msprobe(out, *words):
    """The rows of the table that it writes."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, PEER, *map(str, words), "-o", out], capture_output=True, text=True, timeout=600
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0 and "Traceback" not in said, said[-3000:]
    (table,) = out.glob("*result*.csv")
    with open(table, encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file)), [line for line in said.replace("\r", "\n").split("\n") if "[ERROR]" in line]


def dump_of(folder):
    return folder / "step0" / "rank0" / "dump.json"


def names_in(folder):
    return {n.rsplit(".", 1)[0] for n in json.loads(dump_of(folder).read_text())["data"] if n[:7] != "Module."}


@pytest.fixture
def exported(tmp_path):
    """A captured step, with all kinds of results that a backward pass has."""
    torch.manual_seed(0)
    x, w, b = (torch.randn(*s, requires_grad=True) for s in ((4, 6, 8), (8, 8), (8,)))
    with package.capture(tmp_path / "trace", steps=[0], level=["api"]):
        h = F.layer_norm(F.gelu(F.linear(x, w, b)) + x, (8,), w[0], eps=1e-3)
        h = torch.cat(torch.split(h, 4, dim=-1), dim=-1).transpose(0, 1) - 2 * h.transpose(0, 1)
        h = h.masked_fill(h > 9, float("-inf")).softmax(dim=-1)
        h = (h @ w).mul_(3.0).clamp(min=-3.0)
        torch.topk(1.0 / (h * h + 1.0), k=3, dim=-1)[0].mean().backward()
        package.step()
    ulpscope("export", tmp_path / "trace", "-o", tmp_path / "dump")
    return tmp_path / "dump"


def test_its_compare_pairs_every_tensor_of_every_call(exported, tmp_path):
    rows, errors = msprobe(tmp_path / "out", "compare", "-tp", dump_of(exported), "-gp", dump_of(exported))
    assert not errors
    data = json.loads(dump_of(exported).read_text())["data"]
    names = {row["NPU Name"] for row in rows}
    assert len(data) > 25 and all(any(n.startswith(call + ".") for n in names) for call in data)
    assert all(row["NPU Name"] == row["Bench Name"] and row["Result"] == "pass" for row in rows)


def test_its_compare_finds_an_export_equal_to_its_own_dump(tmp_path):
    """Bit by bit, but for what autocast rounded: a trace has the inputs of `linear` as it ran."""
    ulpscope("import", GOLDEN / "tensor", "-o", tmp_path / "trace")
    ulpscope("export", tmp_path / "trace", "-o", tmp_path / "dump")
    rows, errors = msprobe(
        tmp_path / "out", "compare", "-tp", dump_of(tmp_path / "dump"), "-gp", dump_of(GOLDEN / "tensor")
    )
    assert not errors
    own = [row for row in rows if not row["Bench Name"].startswith("Module.") and row["NPU Name"] != "N/A"]
    assert {row["NPU Name"].rsplit(".", 3)[0] for row in own} >= names_in(GOLDEN / "tensor")
    differ = {row["NPU Name"] for row in own if row["Result"] != "pass"}
    assert all(name.startswith("Functional.linear.0.forward.input") for name in differ)


# What it does not replay, whoever wrote the dump: functions that are not in its list, several results.
LEFT = {"Torch.split", "Tensor.__getitem__", "Torch.ones_like"}


def test_its_acc_check_replays_every_call_and_every_backward_pass(exported, tmp_path):
    rows, errors = msprobe(tmp_path / "out", "acc_check", "-api_info", dump_of(exported))
    data = json.loads(dump_of(exported).read_text())["data"]
    by_name = {row["API name"]: row for row in rows}
    forward = {n.removesuffix(".forward") for n in data if n.endswith(".forward")}
    backward = {n.removesuffix(".backward") for n in data if n.endswith(".backward")}
    assert by_name.keys() == forward and len(forward) > 15 and len(backward) > 12
    skipped = {n for n, row in by_name.items() if "SKIP" in row.values()}
    assert {n.rsplit(".", 1)[0] for n in skipped} <= LEFT, [by_name[n] for n in skipped]
    assert all(any(kind in line for kind in LEFT) for line in errors), errors
    for name in forward - skipped:
        row = by_name[name]
        assert row["Forward Test Success"] == "pass", row
        assert row["Backward Test Success"].strip() == ("pass" if name in backward else ""), row


def test_what_its_acc_check_says_of_an_infinity_is_of_its_own_dumps_too(tmp_path):
    """It calls a -inf in a result an error, on its own dump as on ours: the cosine of NaN."""
    found = []
    ulpscope("import", GOLDEN / "tensor", "-o", tmp_path / "trace")
    ulpscope("export", tmp_path / "trace", "-o", tmp_path / "dump", "--ops", "*masked_fill*,*clamp*")
    for dump in (GOLDEN / "tensor", tmp_path / "dump"):
        rows, _ = msprobe(tmp_path / f"out{len(found)}", "acc_check", "-api_info", dump_of(dump))
        found.append(
            {
                r["API name"]: r["Forward Test Success"]
                for r in rows
                if r["API name"] in ("Tensor.masked_fill.0", "Tensor.clamp.0")
            }
        )
    assert found[0] == found[1] == {"Tensor.masked_fill.0": "error", "Tensor.clamp.0": "pass"}
