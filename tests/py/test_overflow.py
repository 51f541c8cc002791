# SPDX-License-Identifier: Apache-2.0
"""`ulpscope overflow`: where NaN and Inf are born in a real step, forward and backward, on the
simulated device, honest and with a planted fault; and traces that it cannot tell."""

import os
import subprocess
import sys

import pytest
import schemas

STEP = """
import sys, torch
import ulpscope.sim
torch.manual_seed(0)
dev = sys.argv[1]
net = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh(), torch.nn.Linear(16, 16)).to(dev)
opt = torch.optim.SGD(net.parameters(), lr=0.0)
mask = torch.ones(8, 8, device=dev).triu(1).bool()
scale = torch.nn.Parameter(torch.ones(16, device=dev))
for step in range(2):
    x = torch.randn(8, 16, device=dev)
    y = net(x) * scale
    scores = (y @ y.T).masked_fill(mask, float("-inf"))
    z = torch.softmax(scores, -1) @ y
    if sys.argv[2] == "forward":
        z = z.half() * 3e5
    loss = z.float().pow(2).sum()
    if sys.argv[2] == "backward":
        loss = loss + (y * 0).abs().sqrt().sum()
    loss.backward(); opt.zero_grad(); opt.step()  # what step 0 bears does not reach step 1
"""


def ulpscope(*words, faults="", cwd=None):
    env = dict(os.environ, ULPSCOPE_SIM_FAULTS=faults)
    return subprocess.run(["ulpscope", *map(str, words)], capture_output=True, text=True, timeout=300, env=env, cwd=cwd)


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("overflow")
    (folder / "step.py").write_text(STEP)

    def make(kind, faults="", *options):
        trace = folder / f"{kind}-{len(list(folder.iterdir()))}"
        done = ulpscope(
            "capture", "-o", trace, *options, "--", sys.executable, folder / "step.py", "sim:0", kind, faults=faults
        )
        assert done.returncode == 0, done.stderr
        return trace

    return make


def found(trace, *options, faults=""):
    done = ulpscope("overflow", trace, "--json", *options, faults=faults)
    rows = schemas.each("overflow", done.stdout)
    return done.returncode, [r for r in rows if r["kind"] in ("born", "turned")], rows


def test_nothing_is_born_in_an_honest_step_and_masks_are_meant(captured):
    trace = captured("none")
    code, births, rows = found(trace, "--all")
    assert (code, births) == (0, [])
    assert [(r["op"], r["kind"], r["ended"] > 0) for r in rows] == [("aten::masked_fill.Scalar", "written", True)]
    said = ulpscope("overflow", trace).stdout
    assert "0 births" in said and "masked_fill" not in said


@pytest.mark.parametrize(
    ("kind", "op", "phase"), [("forward", "aten::mul", "forward"), ("backward", "backward", "backward")]
)
def test_what_float32_has_as_well_is_normal(captured, kind, op, phase):
    code, births, rows = found(captured(kind))
    assert code == 0 and births, rows
    first = births[0]
    assert first["phase"] == phase and first["told"] == "normal", births
    assert all(b["told"] == "normal" for b in births), births
    if kind == "forward":
        assert first["op"].startswith(op) and first["dtype"] == "float16" and first["n_pos_inf"] > 0


@pytest.mark.parametrize(
    ("fault", "phase"),
    [("aten::tanh:inf", "forward"), ("aten::tanh_backward:nan", "backward"), ("aten::mm:nan", "forward")],
)
def test_what_the_device_alone_has_is_abnormal(captured, fault, phase):
    trace = captured("none", fault)
    code, births, rows = found(trace, faults=fault)
    assert code == 1, rows
    assert births[0]["phase"] == phase and births[0]["told"] == "abnormal"
    assert births[0]["op"].split(".")[0] == ":".join(fault.split(":")[:3])
    assert births[0]["carried"] > 0 and births[0]["sentence"]
    code, births, _ = found(trace, "--device", "cpu")  # a device that is not the one that was captured
    assert (code, births[0]["told"]) == (1, "abnormal") and "true result is finite" in births[0]["sentence"]
    code, births, _ = found(trace, "--no-replay")
    assert (code, births[0]["told"]) == (1, "untold")


def test_statistics_tell_where_and_not_why(captured):
    trace = captured("none", "aten::tanh:inf", "--data", "stats")
    code, births, _ = found(trace)
    assert code == 2 and births[0]["op"] == "aten::tanh" and births[0]["told"] == "untold"
    assert "capture with data" in births[0]["sentence"]


def test_words_of_a_birth(captured, tmp_path):
    trace = captured("forward")
    done = ulpscope("overflow", trace, "-o", tmp_path / "out")
    assert done.returncode == 0
    for words in (
        "born: ",
        "float16 ends at 65504",
        "normal: ",
        "carries it on|carry it on",
        "the first of step 1 is born at call",
        "0 abnormal",
        "args[0] lies from ",
        "\n       at ",
    ):
        assert any(word in done.stdout for word in words.split("|")), (words, done.stdout)
    assert (tmp_path / "out" / "result.db").is_file()
    assert "no list of steps" in ulpscope("overflow", trace, "--step", "x").stderr
    assert "leave out --device" in ulpscope("overflow", trace, "--no-replay", "--device", "cpu").stderr
    none = ulpscope("overflow", trace, "--step", "7")
    assert none.returncode == 2 and "no call of a step that --step names" in none.stderr
    gone = ulpscope("overflow", tmp_path / "nowhere")
    assert gone.returncode == 2 and "nowhere" in gone.stderr
    away = ulpscope("overflow", trace, "--device", "npu:0")
    assert away.returncode == 2 and "--no-replay" in away.stderr and "born: " in away.stdout


def test_nothing_is_left_behind(captured, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert found(captured("forward"))[0] == 0
    assert not list(tmp_path.glob("ulpscope-overflow*"))
