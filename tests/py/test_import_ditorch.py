# SPDX-License-Identifier: Apache-2.0
"""Captures of ditorch's op_tools become traces, and traces such captures: tests/golden/ditorch was
written by ditorch itself (make.py there)."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from dumps import BUILD, GOLDEN, calls, content, tensor_of, ulpscope

import ulpscope as package

CAPTURE = GOLDEN.with_name("ditorch")
BELOW = Path("op_tools_results/op_capture_results")


def of_op(capture, op, file="input"):
    (path,) = (capture / BELOW / op).glob(f"*/*/*/{file}.pth")
    return path


def tensors_in(value):
    if isinstance(value, torch.Tensor):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ():
        yield from tensors_in(item)


def same(trace, items, expected):
    found = [tensor_of(trace, t) for t in items]
    return len(found) == len(expected) and all(
        torch.equal(a, b) and a.stride() == b.stride() and a.dtype == b.dtype
        for a, b in zip(found, expected, strict=True)
    )


@pytest.fixture
def capture(tmp_path):
    shutil.copytree(CAPTURE, tmp_path / "capture")
    return tmp_path / "capture"


def test_what_ditorch_wrote_is_in_the_trace_bit_by_bit(tmp_path):
    assert "(ditorch)" in ulpscope("import", CAPTURE, "-o", tmp_path / "t")
    trace, found = calls(tmp_path / "t")
    files = sorted((CAPTURE / BELOW).glob("*/*/*/*"), key=lambda p: int(p.parent.name))
    forward = [c for c in found if c["phase"] == "forward"]
    assert len(files) == len(forward) == 18
    with torch.serialization.safe_globals([slice, (Ellipsis, "builtins.Ellipsis"), torch.return_types.topk]):
        for folder, call in zip(files, forward, strict=True):
            held = {p.stem: torch.load(p, weights_only=True) for p in folder.glob("*.pth")}
            given = [t for t in call["tensors"] if t["role"] == "in"]
            there = [*tensors_in(held["input"]["args"]), *tensors_in(held["input"]["kwargs"])]
            assert same(trace, given, there)
            assert [t["requires_grad"] for t in given] == [t.requires_grad for t in there]
            assert same(
                trace, [t for t in call["tensors"] if t["role"] == "out"], [*tensors_in(held["output"]["args"])]
            )
            if "grad_inputs" in held:
                back = next(c for c in found if json.loads(c["state"]).get("forward") == call["sequence"])
                assert same(trace, [t for t in back["tensors"] if t["role"] == "in"], held["grad_outputs"]["args"])
                assert same(
                    trace,
                    [t for t in back["tensors"] if t["role"] == "out"],
                    [g for g in held["grad_inputs"]["args"] if g is not None],
                )
    by_op = {c["op"]: c for c in forward}
    assert {"torch.split", "torch.Tensor.__rdiv__", "torch.Tensor.mul_"} <= by_op.keys()  # names of captures
    assert (
        '{"tuple": [{"slice": [null, null, null]}, {"slice": [1, 3, null]}, {"ellipsis": true}]}'
        in (by_op["torch.Tensor.__getitem__"]["args"])
    )
    written = by_op["torch.Tensor.mul_"]["tensors"]
    assert len({t["storage"] for t in written}) == 1 and {t["role"] for t in written} == {"in", "out", "mutated"}


def planted(path, change):
    with torch.serialization.safe_globals([torch.return_types.topk]):
        held = torch.load(path, weights_only=True)
    change(next(tensors_in(held["args"])).detach().view(-1))
    torch.save(held, path)


def test_an_honest_capture_passes_and_what_is_wrong_in_it_is_found(capture, tmp_path):
    def check(out, code):
        ulpscope("import", capture, "-o", tmp_path / f"t{out}")
        ulpscope("check", tmp_path / f"t{out}", "--device", "cpu", "-o", tmp_path / out, "-j", "1", code=code)
        rows = json.loads((tmp_path / out / "result.json").read_text())["calls"]
        return [r["verdict"] for r in rows].count("pass"), {
            (r["op"], r["phase"]) for r in rows if r["verdict"] != "pass"
        }

    assert check("honest", 0) == (35, set())
    wrong = [
        ("torch.Tensor.softmax", "output"),
        ("torch.topk", "output"),
        ("torch.Tensor.mul_", "grad_inputs"),
        ("torch.nn.functional.layer_norm", "grad_inputs"),
        ("torch.nn.functional.gelu", "grad_inputs"),
    ]
    for op, file in wrong:
        planted(of_op(capture, op, file), lambda values: values[2].add_(0.125))
    phases = {"output": "forward", "grad_inputs": "backward"}
    assert check("wrong", 1) == (30, {(op, phases[file]) for op, file in wrong})


class Malice:
    def __reduce__(self):
        return os.mkdir, (Malice.target,)


@pytest.mark.parametrize(
    "how, file",
    [
        ("code", "input"),
        ("code", "grad_inputs"),
        ("pickle", "output"),
        ("cut", "input"),
        ("cut", "grad_outputs"),
        ("empty", "output"),
        ("no arguments", "input"),
        ("no arguments", "grad_inputs"),
    ],
)
def test_a_file_that_is_not_read_is_named_and_can_be_passed_over(capture, tmp_path, how, file):
    Malice.target = str(tmp_path / "pwned")
    path = of_op(capture, "torch.Tensor.softmax", file)
    whole = path.read_bytes()
    if how == "code":
        torch.save({"name": "torch.Tensor.softmax", "args": (torch.zeros(2), Malice()), "kwargs": {}}, path)
    elif how == "no arguments":
        torch.save([torch.zeros(2)], path)
    else:
        path.write_bytes({"pickle": pickle.dumps(Malice()), "cut": whole[:500], "empty": b""}[how])
    said = ulpscope("import", capture, "-o", tmp_path / "t", code=2)
    assert f"ulpscope import: {path}: " in said and "--skip-damaged" in said
    assert "Traceback" not in said and not (tmp_path / "t").exists() and not (tmp_path / "t.part").exists()
    said = ulpscope("import", capture, "-o", tmp_path / "t", "--skip-damaged")
    assert f"skipped: 1 file that cannot be read; the first: {path}: " in said
    assert not (tmp_path / "pwned").exists()
    left = {"input": 33, "output": 35, "grad_inputs": 34, "grad_outputs": 34}[file]
    _, found = calls(tmp_path / "t")
    assert len(found) == left
    softmax = [c for c in found if c["op"] == "torch.Tensor.softmax"]
    assert len(softmax) == left - 33
    if file == "output":
        assert all(t["role"] == "in" for t in softmax[0]["tensors"])


def test_what_is_not_there_and_what_stands_beside(capture, tmp_path):
    (tmp_path / "empty/usr/a.b/1/2/3").mkdir(parents=True)  # no folder of a capture leads there
    (tmp_path / "empty/usr/a.b/1/2/3/input.pth").touch()
    assert "no dump in it" in ulpscope("import", tmp_path / "empty", "-o", tmp_path / "t", code=2)
    of_op(capture, "torch.Tensor.softmax", "output").unlink()
    of_op(capture, "torch.Tensor.sum", "grad_outputs").unlink()
    beside = capture / BELOW / "torch.add/4711/autocompare/3/2026-01-01-00-00-00/device"
    beside.mkdir(parents=True)
    shutil.copy(of_op(capture, "torch.Tensor.sum"), beside / "input.pth")
    (capture / BELOW / "torch.add/link").symlink_to(capture / BELOW / "torch.cat")
    said = ulpscope("import", capture / BELOW, "-o", tmp_path / "t")
    assert "34 calls" in said and "left out: what is no call of an API, 1 time" in said
    (capture / BELOW / "torch.cat/4711").rename(capture / BELOW / "torch.cat/4712")
    said = ulpscope("import", capture, "-o", tmp_path / "u", code=2)
    assert "holds several processes" in said and "--rank" in said
    assert "2 calls" in ulpscope("import", capture, "-o", tmp_path / "u", "--rank", "4712")


def test_an_interrupted_import_leaves_nothing(tmp_path):
    """The program reads calls one by one: it is stopped between two of them."""
    first = of_op(CAPTURE, "torch.Tensor.sum").parent
    for i in range(400):
        shutil.copytree(first, tmp_path / "capture" / BELOW / "torch.Tensor.sum" / "1" / str(i) / "1")
    process = subprocess.Popen(
        [BUILD / "bin" / "ulpscope", "import", tmp_path / "capture", "-o", tmp_path / "t"],
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (tmp_path / "t.part" / "trace.db").exists() and process.poll() is None:
        pass
    process.terminate()
    assert "nothing was written" in process.communicate(timeout=60)[1]
    assert process.returncode == 130 and [p.name for p in tmp_path.iterdir()] == ["capture"]


def plain(trace):
    """What a trace holds, but for where it came from and how views lie in what they are of."""
    opened, found = calls(trace)
    return [
        (
            c["op"],
            c["args"],
            c["phase"],
            json.loads(c["state"] or "{}").get("gradients"),
            sorted(
                (t["role"], t["path"], t["requires_grad"], t["strides"], tensor_of(opened, t).tolist())
                for t in c["tensors"]
                if t["role"] != "mutated"
            ),
        )
        for c in found
    ]


def test_what_is_exported_is_imported_as_it_was(tmp_path):
    ulpscope("import", CAPTURE, "-o", tmp_path / "a")
    ulpscope("export", tmp_path / "a", "-o", tmp_path / "capture", "--format", "ditorch")
    ulpscope("import", tmp_path / "capture", "-o", tmp_path / "b")
    assert plain(tmp_path / "a") == plain(tmp_path / "b") != []


def test_a_capture_of_ours_can_be_replayed_as_ditorch_does(tmp_path):
    """By what its loader does: torch.load, the keys, the function by its name, backward."""
    x, w = torch.randn(4, 6).t().requires_grad_(), torch.randn(3, 4, requires_grad=True)
    with package.capture(tmp_path / "a", steps=[0], level=["api"]):
        y = F.linear(x, w, bias=None)[1:, ..., None].softmax(dim=0)
        torch.topk(y.squeeze(-1) + 1, k=2, dim=-1)[0].sum().backward(torch.ones(()))
        package.step()
    said = ulpscope("export", tmp_path / "a", "-o", tmp_path / "capture", "--format", "ditorch", "--process", "77")
    assert "left out" not in said
    ulpscope("import", tmp_path / "capture", "-o", tmp_path / "b")
    number = {c["sequence"]: i for i, c in enumerate(calls(tmp_path / "a")[1])}
    assert len(number) > 10
    first, again = plain(tmp_path / "a"), plain(tmp_path / "b")
    assert sorted(map(repr, first)) == sorted(map(repr, again))
    replayed = 0
    for file in (tmp_path / "capture" / BELOW).glob("*/77/*/*/input.pth"):
        held = torch.load(file, map_location="cpu", weights_only=False)
        assert set(held) == {"name", "args", "kwargs", "identifier"} and isinstance(held["args"], tuple)
        assert held["identifier"] == "/".join(file.parts[-3:-1]) + "/input" and file.parts[-5] == held["name"]
        said = json.loads(file.with_name("input.pth.json").read_text())
        assert said["op"] == held["name"] and len(said["args"]) == len(held["args"])
        function = torch
        for part in held["name"].split(".")[1:]:
            function = getattr(function, part)
        out = function(*held["args"], **held["kwargs"])
        kept = torch.load(file.with_name("output.pth"), map_location="cpu", weights_only=False)["args"][0]
        torch.testing.assert_close([*tensors_in(out)], [*tensors_in(kept)])
        grads = file.with_name("grad_outputs.pth")
        if grads.exists():
            next(tensors_in(out)).backward(*torch.load(grads, map_location="cpu")["args"])
        replayed += grads.exists()
    assert replayed >= 5


def test_what_a_capture_of_ditorch_cannot_hold_is_left_out_and_counted(tmp_path):
    with package.capture(tmp_path / "a", steps=[0], level=["api"]):
        x = torch.randn(1, 2, 3, 3)
        x.contiguous(memory_format=torch.channels_last)
        x.abs()
        package.step()
    said = ulpscope(
        "export", tmp_path / "a", "-o", tmp_path / "capture", "--format", "ditorch", "--ops", "torch.Tensor.*"
    )
    assert "left out: 1 call that ditorch cannot hold, e.g. of torch.Tensor.contiguous" in said
    ulpscope("import", GOLDEN / "statistics", "-o", tmp_path / "s")
    said = ulpscope("export", tmp_path / "s", "-o", tmp_path / "x", "--format", "ditorch", code=2)
    assert "no call that ditorch can hold, e.g. torch.nn.functional.embedding" in said
    assert not (tmp_path / "x").exists() and not (tmp_path / "x.part").exists()


def test_operators_of_a_trace_have_names_that_python_finds(tmp_path):
    with package.capture(tmp_path / "a", steps=[0]):
        torch.mm(torch.ones(2, 2), torch.ones(2, 2)).mul_(2.0)
        package.step()
    ulpscope("export", tmp_path / "a", "-o", tmp_path / "capture", "--format", "ditorch")
    ulpscope("import", tmp_path / "capture", "-o", tmp_path / "b")
    names = {p.name for p in (tmp_path / "capture" / BELOW).iterdir()}
    assert {"torch.ops.aten.mm.default", "torch.ops.aten.mul_.Tensor"} <= names
    assert [c[0] for c in content(tmp_path / "a")] == [c[0] for c in content(tmp_path / "b")]
