# SPDX-License-Identifier: Apache-2.0
"""`ulpscope fuzz --matrix` and `--profile`: what a device refuses of what the CPU takes, kept for as long as the device
is the same, and how long both take; neither says what is right."""

import os
import subprocess

import pytest
import schemas
import torch
from traces import TraceWriter

from ulpscope import _core
from ulpscope.calls.replay import BadCall, bind_exact
from ulpscope.fuzzer.forms import LAYOUTS, formed
from ulpscope.fuzzer.drawn_cases import Example

# A device that takes no float16 in one operator, no strides in another, has not a third, and notes what it is asked.
DEVICE = """
import os
VERSION = 1

def device(op, args, kwargs):
    x = args[0]
    with open("asked", "a") as file:
        print(op, x.dtype, x.stride(), file=file)
    if "mm" in str(op) and "float16" in str(x.dtype) and "bfloat16" not in str(x.dtype):
        raise TypeError("no halves here")
    if "exp" in str(op) and not x.is_contiguous():
        raise KeyError("strides")
    if "tanh" in str(op):
        raise NotImplementedError("Could not run it here")
    if "gather" in str(op) and str(x.dtype) == "torch.bool":
        os.kill(os.getpid(), 11)
    return op(*args, **kwargs)
"""
SPEC = """
{"op": "aten::mm", "args": [{"shape": [64, 48]}, {"shape": [48, 64]}]}
{"op": "aten::mm", "args": [{"shape": [4, 3]}, {"shape": [3, 4]}]}
{"op": "aten::exp", "args": [{"shape": [2, 3, 4, 5]}]}
{"op": "aten::tanh", "args": [{"shape": [6]}]}
{"op": "aten::gather", "args": [{"shape": [5, 7]}, 1, {"shape": [5, 3], "dtype": "int64", "range": [0, 7]}]}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("sides")
    (place / "double.py").write_text(DEVICE)
    (place / "spec.jsonl").write_text(SPEC)
    glue, cache = os.environ.get("ULPSCOPE_CACHE"), place / "cache"
    cache.mkdir()
    for entry in os.scandir(glue) if glue else ():  # the compiled glue is found there, what devices said is not
        if entry.name not in ("coverage", "fuzz"):
            (cache / entry.name).symlink_to(entry.path)
    return place


def fuzz(folder, *words, code=0, device="python:double:device"):
    done = subprocess.run(
        ["ulpscope", "fuzz", "--device", device, "--spec", "spec.jsonl", "-j", "1", *words],
        cwd=folder,
        text=True,
        capture_output=True,
        timeout=300,
        env=os.environ | {"ULPSCOPE_CACHE": str(folder / "cache")},
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def asked(folder):
    """What the device was asked since this was looked at last."""
    log = folder / "asked"
    lines = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return lines


def test_what_a_device_refuses_is_told_and_kept_while_it_is_the_same(folder):
    found = {f["op"]: f for f in schemas.each("fuzz", fuzz(folder, "--matrix", "--json", code=1))}
    assert len(asked(folder)) > 60
    forms = {
        op: {(f["dtype"], f["layout"]): (f["side"], f["raised"]) for f in row["forms"]} for op, row in found.items()
    }
    assert (
        forms["aten::mm"] == {("float16", "dense"): ("refused", "TypeError")} and found["aten::mm"]["missing"] is None
    )
    assert {d for d, _ in forms["aten::exp"]} >= {"float32", "float16", "int64"}
    assert {layout for _, layout in forms["aten::exp"]} == {"transposed", "gaps", "expanded", "channels_last"}
    assert set(forms["aten::exp"].values()) == {("refused", "KeyError")}
    assert found["aten::tanh"]["missing"] == "device" and ("float32", "dense") in forms["aten::tanh"]
    assert forms["aten::gather"] == {("bool", "dense"): ("died", "")}
    said = fuzz(folder, "--matrix", code=1)
    assert {line.split()[0] for line in asked(folder)} == {"aten.gather.default"}, "a device that died may live by now"
    assert "aten::mm  python:double:device refuses float16: TypeError, no halves here" in said
    assert "aten::tanh  is missing on python:double:device: NotImplementedError, Could not run it here" in said
    assert "takes what the CPU takes of 0 of 4 operators, refuses some of 3, all of 1" in said
    (folder / "double.py").write_text(DEVICE.replace("VERSION = 1", "VERSION = 2").replace("no halves here", "none"))
    said = fuzz(folder, "--matrix", "--ops", "mm", code=1)
    assert "refuses float16: TypeError, none" in said and len(said.splitlines()) == 2 and asked(folder)
    fuzz(folder, "--matrix", "--ops", "mm", "--force", code=1)
    assert asked(folder)


def test_an_honest_device_refuses_nothing_and_an_operator_that_is_lacking_is_one_sentence(folder):
    said = fuzz(folder, "--matrix", "--faults", "mm:lacking", device="sim:0", code=1).splitlines()
    assert said[0].startswith("aten::mm  is missing on sim:0: NotImplementedError, Could not run 'aten::mm'")
    assert said[1:] == ["sim:0 takes what the CPU takes of 3 of 4 operators, refuses some of 0, all of 1"]
    assert fuzz(folder, "--matrix", "--ops", "mm,exp", device="sim:0")
    assert fuzz(folder, "--matrix", "--ops", "mm,nothere", device="sim:0", code=2)
    assert fuzz(folder, "--profile", "--ops", "mm,nothere", device="sim:0", code=2)


def test_both_sides_are_timed_and_nothing_is_judged(folder):
    said = fuzz(folder, "--profile", "--faults", "exp:scale;tanh:lacking", "--json", device="sim:0")
    rows = {r["op"]: r for r in schemas.each("fuzz", said)}
    assert set(rows) == {"aten::mm", "aten::exp", "aten::tanh", "aten::gather"}
    mm = rows["aten::mm"]
    assert mm["args"] == "float32[64, 48], float32[48, 64]" and mm["bytes"] == 4 * (2 * 64 * 48 + 64 * 64)
    assert 0 < mm["device_seconds"] < 1 and mm["ratio"] == pytest.approx(
        mm["device_seconds"] / mm["cpu_seconds"], rel=1e-3
    )
    assert rows["aten::tanh"]["side"] == "refused" and rows["aten::tanh"]["raised"] == "NotImplementedError"
    assert rows["aten::exp"]["side"] == "both"  # wrong, which is no matter here


def test_a_slow_operator_is_seen(folder):
    (folder / "slow.py").write_text(
        "import time\n\ndef device(op, args, kwargs):\n"
        "    time.sleep(0.02 if 'exp' in str(op) else 0)\n"
        "    return op(*args if 'tanh' not in str(op) else [], **kwargs)\n"
    )
    said = fuzz(folder, "--profile", device="python:slow:device").splitlines()
    assert said[1].split()[0] == "aten::exp" and float(said[1].split()[1]) > 20_000 and float(said[1].split()[3]) > 2
    assert "3 of 4 operators timed on both" in said[-1] and "not timed, refused: " in said[-2]


REFUSED = {
    ("--matrix",): "the CPU itself",
    ("--profile", "--json"): "the CPU itself",
    ("--matrix", "--profile"): "give one of them",
    ("--matrix", "--stress"): "judge nothing",
    ("--profile", "--corpus", "x"): "judge nothing",
    ("--profile", "--relations"): "judge nothing",
}


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_what_does_not_go_with_them_is_one_sentence(words, tmp_path):
    done = subprocess.run(["ulpscope", "fuzz", "--device", "cpu", *words], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2 and REFUSED[words] in done.stderr and not done.stderr.count("\n") - 1


def test_a_form_is_laid_out_as_it_is_called(tmp_path):
    with TraceWriter(tmp_path / "trace") as t:
        t.add("aten::add.Tensor", torch.randn(2, 3, 4, 5), torch.randn(5))
        t.add("aten::index_select", torch.randn(6, 4), 0, torch.tensor([5, 0]))
    trace = _core.Trace(str(tmp_path / "trace"))
    one, two = (Example(trace.call(i), "id") for i in (1, 2))
    for layout in LAYOUTS:
        call = formed(one, "bfloat16", layout)
        x = bind_exact(call, lambda captured: "cpu").args[0]
        assert x.dtype == torch.bfloat16 and x.shape == (2, 3, 4, 5) and x.isfinite().all()
        assert x.is_contiguous() == (layout in ("dense", "offset")) and (0 in x.stride()) == (layout == "expanded")
        assert x.storage_offset() == (layout == "offset")
        assert x.is_contiguous(memory_format=torch.channels_last) == (layout == "channels_last")
    x, _, at = bind_exact(formed(two, "bool", "gaps"), lambda captured: "cpu").args
    assert x.dtype == torch.bool and at.dtype == torch.int64 and 0 <= at.min() and at.max() < 6
    with pytest.raises(BadCall, match="no such form"):
        formed(two, "float32", "channels_last")
