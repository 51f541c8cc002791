# SPDX-License-Identifier: Apache-2.0
"""`ulpscope.observe`: lines of each level, on every device; that the program's numbers stay; and
torch_musa's variables."""

import json
import math
import os
import subprocess
import sys
import threading

import pytest
import torch

import ulpscope
import ulpscope.sim

DEVICES = ("cpu", "sim:0")


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def train(device):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Dropout(0.5)).to(device)
    opt = torch.optim.AdamW(net.parameters(), fused=True)
    for _ in range(2):
        opt.zero_grad()
        net(torch.randn(4, 8).to(device)).sum().backward()
        opt.step()
    return net[0].weight.detach().cpu(), torch.rand(3)


@pytest.mark.parametrize("level", range(1, 7))
@pytest.mark.parametrize("device", DEVICES)
def test_the_programs_numbers_stay_and_each_call_has_a_line(tmp_path, device, level):
    right = train(device)
    with ulpscope.observe(level, 3, output=tmp_path / "o.jsonl") as mode:
        got = train(device)
    assert all(torch.equal(a, b) for a, b in zip(right, got, strict=True))
    rows = lines(tmp_path / "o.jsonl")
    assert mode.error is None and len(rows) == sum(mode.n_calls.values())
    assert [r["call"] for r in rows] == list(range(1, len(rows) + 1))
    assert {r["phase"] for r in rows} == {"forward", "backward", "optimizer"}
    tensors = [t for r in rows for t in r["inputs"] + r["outputs"]]
    assert all(("signature" in t) == (level in (2, 5, 6)) and ("values" in t) == (level > 2) for t in tensors)
    if level in (3, 5):
        assert max(len(t["values"]) for t in tensors) == 3
    assert not any("unread" in t for t in tensors)


@pytest.mark.parametrize("device", DEVICES)
def test_a_signature(tmp_path, device):
    values = [[1.0, -2.0, float("nan")], [float("inf"), 0.5, -0.25]]
    x = torch.tensor(values, dtype=torch.float16, device=device)
    with ulpscope.observe(6, ops="aten::neg", output=tmp_path / "o.jsonl"):
        x.t().neg()
    (row,) = lines(tmp_path / "o.jsonl")
    (given,), (made,) = row["inputs"], row["outputs"]
    assert (given["name"], given["dtype"], given["shape"], given["stride"]) == ("self", "float16", [3, 2], [1, 3])
    assert given["device"] == device and given["values"][:3] == [1, "inf", -2] and made["values"][0] == -1
    s = given["signature"]
    finite = torch.tensor([1.0, -2.0, 0.5, -0.25], dtype=torch.float64)
    assert (s["n"], s["n_nan"], s["n_inf"], s["min"], s["max"]) == (6, 1, 1, -2, 1)
    assert (s["below_zero"], s["above_zero"], s["sum"], s["sum_abs"]) == (-0.25, 0.5, -0.75, 3.75)
    assert math.isclose(s["mean"], finite.mean()) and math.isclose(s["std"], finite.std(), rel_tol=1e-8)


def test_written_arguments_are_told_before_and_after(tmp_path):
    """torch_musa saves an in-place operator's input as its result."""
    x = torch.ones(2, device="sim")
    with ulpscope.observe(4, ops="add_.Tensor,_foreach_add_*", output=tmp_path / "o.jsonl"):
        x.add_(x, alpha=2)
        torch._foreach_add_([x], 1.0)
    first, second = lines(tmp_path / "o.jsonl")
    assert first["inputs"][0]["values"] == [1, 1]
    assert [(t["name"], t["values"]) for t in first["outputs"]] == [("self", [3, 3])]
    assert first["arguments"]["kwargs"] == {"alpha": 2}
    assert [(t["name"], t["values"]) for t in second["outputs"]] == [("self[0]", [4, 4])]


def test_kinds_of_tensors(tmp_path):
    with ulpscope.observe(6, output=tmp_path / "o.jsonl"):
        torch.tensor([True, False, True]).logical_not()
        torch.tensor([1 + 2j]).conj() * 2
        torch.empty(0).neg()
        torch.eye(3).to_sparse() @ torch.ones(3, 1)
        torch.arange(3).add(1)
    rows = {r["op"]: r for r in lines(tmp_path / "o.jsonl")}
    assert rows["aten::logical_not"]["inputs"][0]["n_true"] == 2
    empty = rows["aten::neg"]["inputs"][0]
    assert empty["values"] == [] and empty["signature"]["max"] == "nan"
    assert rows["aten::mul.Tensor"]["outputs"][0]["values"] == [2, -4]


def test_a_call_that_fails_reaches_the_program(tmp_path):
    with ulpscope.observe(output=tmp_path / "o.jsonl", ops="mm"), pytest.raises(RuntimeError):
        torch.mm(torch.ones(2, 3), torch.ones(2, 3))
    (row,) = lines(tmp_path / "o.jsonl")
    assert row["failed"] and row["outputs"] == []


def test_threads_and_other_modes(tmp_path):
    a = torch.randn(8, 8, device="sim")

    def work():
        for _ in range(10):
            a @ a

    with ulpscope.observe(2, ops="mm", output=tmp_path / "o.jsonl"), ulpscope.fallback("mm") as moved:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    rows = lines(tmp_path / "o.jsonl")
    assert len(rows) == 30 and len({r["thread"] for r in rows}) == 3 and moved.n_calls == {"aten::mm": 30}


def test_a_file_that_cannot_be_written(tmp_path, capfd):
    with ulpscope.observe(output=tmp_path / "none" / "o.jsonl") as mode:
        assert (torch.ones(2) + 1).sum() == 4
    assert "No such file" in mode.error and capfd.readouterr().err.count("observe() failed") == 1


@pytest.mark.parametrize(
    ("options", "said"), [({"level": 7}, "1 to 6"), ({"length": -1}, "how many"), ({"ops": ""}, "PATTERN")]
)
def test_bad_arguments(options, said):
    with pytest.raises(ValueError, match=said):
        ulpscope.observe(**options)


def test_the_variables_of_torch_musa(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert ulpscope.observe.from_environment() is None
    for name, value in (("", "1"), ("_LEVEL", "5"), ("_LENGTH", "2"), ("_LIST", "Add, norm"), ("_DIR", "d")):
        monkeypatch.setenv("TORCH_MUSA_OP_DEBUG" + name, value)
    for folder in ("d", "d_1"):
        with ulpscope.observe.from_environment():
            torch.ones(3).add(1).mul(2)
        rows = lines(tmp_path / folder / "observed.jsonl")
        assert [r["op"] for r in rows] == ["aten::add.Tensor"]
        assert rows[0]["inputs"][0]["values"] == [1, 1] and "signature" in rows[0]["inputs"][0]
    monkeypatch.setenv("TORCH_MUSA_OP_DEBUG_BLACK_LIST", "mul")
    with pytest.raises(ValueError, match="exclude each other"):
        ulpscope.observe.from_environment()
    monkeypatch.delenv("TORCH_MUSA_OP_DEBUG_LIST")
    with ulpscope.observe.from_environment():
        torch.ones(3).add(1).mul(2)
    seen = {r["op"] for r in lines(tmp_path / "d_2" / "observed.jsonl")}
    assert seen >= {"aten::ones", "aten::add.Tensor"} and not any("mul" in op for op in seen)
    monkeypatch.setenv("TORCH_MUSA_OP_DEBUG_LEVEL", "x")
    with pytest.raises(ValueError, match="a number"):
        ulpscope.observe.from_environment()


TRAIN = """
import torch
import ulpscope.sim
x = torch.ones(3, device="sim")
(x + 1).mul(2).sum()
"""


def launch(folder, *options, **variables):
    (folder / "train.py").write_text(TRAIN)
    return subprocess.run(
        ["ulpscope", "run", *options, "--", sys.executable, "train.py"],
        cwd=folder,
        text=True,
        capture_output=True,
        timeout=300,
        env=os.environ | {"TMPDIR": str(folder)} | variables,
    )


def test_the_variables_work_without_code(tmp_path):
    """Section 2 of torch_musa's tools: what the backend itself logs, by `ulpscope run`."""
    asked = {"TORCH_MUSA_OP_DEBUG": "1", "TORCH_MUSA_OP_DEBUG_LEVEL": "2", "TORCH_MUSA_OP_DEBUG_LIST": "Add,mul"}
    idle = {"TORCH_USE_MUSA_DOUBLE_CAST": "1", "TORCH_MUSA_OP_DEBUG_COLOUR": "red"}
    for n, options in enumerate(((), ("--nan",))):
        done = launch(tmp_path, *options, **asked, **idle)
        folder = tmp_path / ("DEBUG_DIR" + f"_{n}" * (n > 0))
        assert done.returncode == 0 and f"calls observed: {folder}/observed.jsonl" in done.stderr, done.stderr
        assert [r["op"] for r in lines(folder / "observed.jsonl")] == ["aten::add.Tensor", "aten::mul.Tensor"]
        for name in idle:
            assert done.stderr.count(f"{name} has no effect: ") == 1
    refused = launch(tmp_path, **asked, TORCH_MUSA_OP_DEBUG_BLACK_LIST="mul")
    assert refused.returncode == 2 and "exclude each other: set one" in refused.stderr
    nowhere = launch(tmp_path, **asked, TORCH_MUSA_OP_DEBUG_DIR="/proc/no")
    assert nowhere.returncode == 2 and "TORCH_MUSA_OP_DEBUG_DIR '/proc/no': " in nowhere.stderr
    off = launch(tmp_path, TORCH_MUSA_OP_DEBUG="0")
    assert off.returncode == 2 and "what is it to watch?" in off.stderr
