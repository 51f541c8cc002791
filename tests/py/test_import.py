# SPDX-License-Identifier: Apache-2.0
"""Dumps that other tools wrote become traces: tests/golden/msprobe was made by msprobe
itself (make.py there). What a file of torch may hold, and what is refused."""

from __future__ import annotations

import io
import json
import os
import pickle
import resource
import shutil
import subprocess
import zipfile

import pytest
import torch

from dumps import BUILD, GOLDEN, calls, content, tensor_of, ulpscope


def test_what_msprobe_wrote_is_in_the_trace_bit_by_bit(tmp_path):
    said = ulpscope("import", GOLDEN / "tensor", "-o", tmp_path / "t", "--device", "cpu")
    assert "left out: 6 calls of nn.Modules" in said
    dump = json.loads((GOLDEN / "tensor/step0/rank0/dump.json").read_text())["data"]
    names = [n for n in dump if n.endswith(".forward") and not n.startswith("Module.")]
    trace, found = calls(tmp_path / "t")
    found = [c for c in found if c["phase"] != "backward"]
    assert len(found) == len(names) > 15
    compared = 0
    for name, call in zip(names, found, strict=True):
        args = [a for a in dump[name]["input_args"] if isinstance(a, dict) and "data_name" in a]
        tensors = [t for t in call["tensors"] if t["role"] == "in"]
        for said, item in zip(args, tensors, strict=name != "Torch.cat.0.forward"):
            file = GOLDEN / "tensor/step0/rank0/dump_tensor_data" / said["data_name"]
            there = torch.load(file, weights_only=True)
            if name == "Functional.linear.0.forward":  # it ran under autocast
                there = there.to(torch.bfloat16)
            assert torch.equal(tensor_of(trace, item), there) and item["device"] == "cpu"
            compared += 1
    assert compared > 20
    by_op = {c["op"]: c for c in found}
    assert by_op["torch.nn.functional.linear"]["module_path"] == "fc"
    assert by_op["torch.Tensor.add_"]["phase"] == "optimizer"
    assert "/train/make.py" in by_op["torch.split"]["frames"]
    assert by_op["torch.Tensor.to"]["args"].endswith('{"dtype": "float32"}], "kwargs": {}}')


def test_statistics_become_calls_that_stand_ins_are_made_for(tmp_path):
    ulpscope("import", GOLDEN / "statistics", "-o", tmp_path / "t", "--device", "cpu")
    _, found = calls(tmp_path / "t")
    assert all(t["blob"] == 0 and json.loads(t["stats"])["n"] > 0 for c in found for t in c["tensors"])
    said = ulpscope("check", tmp_path / "t", "--device", "cpu", "-o", tmp_path / "o", "-j", "1")
    assert "32 pass" in said


NAN, INF = float("nan"), float("inf")


def test_whatever_maximum_and_minimum_say_there_is_a_stand_in(tmp_path):
    ends = [
        (NAN, NAN, "float32"),
        (INF, -1.0, "float32"),
        (1.0, -INF, "float16"),
        (INF, -INF, "float32"),
        (0.0, 0.0, "float32"),
        (3.0, 3.0, "bfloat16"),
        (5, 0, "int64"),
        (0, 0, "int32"),
        (True, False, "bool"),
        (False, False, "bool"),
    ]
    data = {}
    for i, (high, low, dtype) in enumerate(ends):
        tensor = {
            "type": "torch.Tensor",
            "dtype": f"torch.{dtype}",
            "shape": [4, 8],
            "Max": high,
            "Min": low,
            "Mean": None,
            "Norm": None,
        }
        data[f"Torch.clone.{i}.forward"] = {"input_args": [tensor], "input_kwargs": {}, "output": []}
    (tmp_path / "dump.json").write_text(json.dumps({"data": data}))
    ulpscope("import", tmp_path, "-o", tmp_path / "t", "--device", "cpu")
    said = ulpscope("check", tmp_path / "t", "--device", "cpu", "-o", tmp_path / "o", "-j", "1")
    assert f"{len(ends)} pass" in said


def test_a_check_of_an_imported_trace_passes_on_an_honest_device(tmp_path):
    ulpscope("import", GOLDEN / "tensor", "-o", tmp_path / "t", "--device", "cpu")
    said = ulpscope("check", tmp_path / "t", "--device", "cpu", "-o", tmp_path / "o", "-j", "1")
    assert "32 pass" in said  # all of them, at the level of functions


class Malice:
    def __reduce__(self):
        return os.mkdir, (Malice.target,)


@pytest.fixture
def dump(tmp_path):
    folder = tmp_path / "step0" / "rank0"
    (folder / "dump_tensor_data").mkdir(parents=True)
    tensor = {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": [2, 3],
        "Max": 1.0,
        "Min": 0.0,
        "Mean": 0.5,
        "Norm": 1.0,
        "data_name": "a.pt",
    }
    entry = {"input_args": [tensor], "input_kwargs": {}, "output": []}
    (folder / "dump.json").write_text(json.dumps({"data": {"Torch.abs.0.forward": entry}}))
    return folder / "dump_tensor_data" / "a.pt"


def refused(dump, tmp_path):
    said = ulpscope("import", dump.parents[1], "-o", tmp_path / "t", code=2)
    assert not (tmp_path / "t").exists() and not (tmp_path / "t.part").exists()
    assert "Torch.abs.0.forward: args[0]: " in said and "Traceback" not in said
    return said


def test_nothing_in_a_file_of_torch_is_ever_run(dump, tmp_path):
    Malice.target = str(tmp_path / "pwned")
    torch.save({"x": Malice()}, dump)
    assert "holds more than tensors and plain values" in refused(dump, tmp_path)
    dump.write_bytes(pickle.dumps(Malice()))
    refused(dump, tmp_path)
    assert not (tmp_path / "pwned").exists()


def test_damaged_files_of_torch_are_refused(dump, tmp_path):
    torch.save(torch.zeros(2, 3), dump)
    whole = dump.read_bytes()
    for bad in (b"", b"x" * 100, whole[: len(whole) // 2], whole[:-30]):
        dump.write_bytes(bad)
        refused(dump, tmp_path)
    torch.save(torch.zeros(3, 2), dump)
    assert "the dump says shape [2, 3]" in refused(dump, tmp_path)
    torch.save(torch.zeros(2, 3, dtype=torch.int32), dump)
    assert "the dump says float32" in refused(dump, tmp_path)
    torch.save([torch.zeros(2, 3)], dump)
    assert "holds no tensor" in refused(dump, tmp_path)
    torch.save(torch.zeros(2, 3).to_sparse(), dump)
    assert "layout torch.sparse_coo" in refused(dump, tmp_path)


def test_a_file_that_unpacks_to_more_than_it_has_is_refused(dump, tmp_path):
    """A megabyte of zeros packs to a thousandth of that."""
    plain = io.BytesIO()
    torch.save(torch.zeros(512, 512), plain)
    with zipfile.ZipFile(plain) as parts, zipfile.ZipFile(dump, "w", zipfile.ZIP_DEFLATED) as packed:
        for part in parts.infolist():
            packed.writestr(part.filename, parts.read(part))
    assert "compressed" in refused(dump, tmp_path)


def test_skipping_goes_on_after_a_damaged_file(tmp_path):
    shutil.copytree(GOLDEN / "tensor", tmp_path / "d")
    file = next((tmp_path / "d").rglob("Torch.split.0.forward.input.0.pt"))
    file.write_bytes(file.read_bytes()[:100])
    said = ulpscope("import", tmp_path / "d", "-o", tmp_path / "t", "--skip-damaged")
    assert "skipped: 1 file that cannot be read; the first: " in said
    _, found = calls(tmp_path / "t")
    split = next(c for c in found if c["op"] == "torch.split")
    assert [bool(t["blob"]) for t in split["tensors"]] == [False, True, True]


def test_an_interrupted_import_leaves_nothing(tmp_path):
    entry = {
        "input_args": [
            {
                "type": "torch.Tensor",
                "dtype": "torch.float32",
                "shape": [2, 3],
                "Max": 1.0,
                "Min": 0.0,
                "Mean": 0.5,
                "Norm": 1.0,
            }
        ],
        "input_kwargs": {},
        "output": [],
    }
    data = {f"Torch.abs.{i}.forward": entry for i in range(100_000)}
    (tmp_path / "dump.json").write_text(json.dumps({"data": data}))
    process = subprocess.Popen(
        [BUILD / "bin" / "ulpscope", "import", tmp_path, "-o", tmp_path / "t"], stderr=subprocess.PIPE, text=True
    )
    while not (tmp_path / "t.part" / "trace.db").exists() and process.poll() is None:
        pass
    process.terminate()
    assert "nothing was written" in process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert sorted(p.name for p in tmp_path.iterdir()) == ["dump.json"]


@pytest.mark.parametrize("kind", ["tensor", "statistics"])
def test_what_is_exported_is_imported_as_it_was(tmp_path, kind):
    ulpscope("import", GOLDEN / kind, "-o", tmp_path / "a")
    ulpscope("export", tmp_path / "a", "-o", tmp_path / "dump")
    ulpscope("import", tmp_path / "dump", "-o", tmp_path / "b")
    assert content(tmp_path / "a") == content(tmp_path / "b") != []


def test_the_first_generation_comes_back_without_results(tmp_path):
    ulpscope("import", GOLDEN / "tensor", "-o", tmp_path / "a")
    ulpscope("export", tmp_path / "a", "-o", tmp_path / "dump", "--format", "ascend-v1")
    assert "(ascend-v1)" in ulpscope("import", tmp_path / "dump" / "step0", "-o", tmp_path / "b")
    assert "(ascend-v1)" in ulpscope("import", tmp_path / "dump", "-o", tmp_path / "above")  # as export named it
    shutil.copytree(tmp_path / "dump" / "step0", tmp_path / "dump" / "step7")
    two = ["ulpscope", "import", tmp_path / "dump", "-o", tmp_path / "c"]
    assert b"holds several steps (step" in subprocess.run(two, capture_output=True).stderr

    def inputs(trace):
        return sorted(
            (op, phase == "backward", args, frames or "", repr([t for t in tensors if t[0] == "in"]))
            for op, args, _, phase, _, _, frames, tensors in content(trace)
        )

    first, again = inputs(tmp_path / "a"), inputs(tmp_path / "b")
    assert first == again and len(first) > 15


def test_a_captured_trace_survives_the_way_there_and_back(tmp_path):
    import ulpscope as package

    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.split(x.t() @ x, 2, dim=1)[1].clone().mul_(2.0)

    with package.capture(tmp_path / "a", steps=[0]):
        Model()(torch.randn(4, 5, dtype=torch.bfloat16))
        package.step()
    ulpscope("export", tmp_path / "a", "-o", tmp_path / "dump")
    ulpscope("import", tmp_path / "dump", "-o", tmp_path / "b")

    def plain(trace):
        opened, found = calls(trace)
        top = [c for c in found if not c["parent"]]
        return [
            (
                c["op"],
                c["args"],
                [(t["role"], t["path"], tensor_of(opened, t).tolist()) for t in c["tensors"] if t["role"] != "mutated"],
            )
            for c in top
        ]

    assert plain(tmp_path / "a") == plain(tmp_path / "b")
    assert any(name == "aten::mul_.Tensor" for name, *_ in plain(tmp_path / "b"))


def test_an_export_leaves_nothing_half(tmp_path):
    ulpscope("import", GOLDEN / "tensor", "-o", tmp_path / "a")
    assert "there is no format" in ulpscope("export", tmp_path / "a", "-o", tmp_path / "x", "--format", "y", code=2)
    assert "none of the calls that the program itself made matches --ops 'nothing'" in ulpscope(
        "export", tmp_path / "a", "-o", tmp_path / "x", "--ops", "nothing", code=2
    )
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    (tmp_path / "x").mkdir()
    assert "is there already" in ulpscope("export", tmp_path / "a", "-o", tmp_path / "x", code=2)


@pytest.mark.parametrize("format", ["msprobe", "ascend-v1", "ditorch"])
def test_a_full_disk_is_said_and_leaves_nothing(tmp_path, format):
    ulpscope("import", GOLDEN / "tensor", "-o", tmp_path / "a")
    done = subprocess.run(
        [BUILD / "bin" / "ulpscope", "export", tmp_path / "a", "-o", tmp_path / "x", "--format", format],
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (900, 900)),
    )
    assert done.returncode == 2 and str(tmp_path / "x") in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("format", ["msprobe", "ditorch"])
def test_an_interrupted_export_leaves_nothing(tmp_path, format):
    ulpscope("import", GOLDEN / "tensor", "-o", tmp_path / "a")
    process = subprocess.Popen(
        [BUILD / "bin" / "ulpscope", "export", tmp_path / "a", "-o", tmp_path / "x", "--format", format],
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (tmp_path / "x.part").exists() and process.poll() is None:
        pass
    process.terminate()  # its worker loads torch meanwhile, which takes a second
    assert "nothing was written" in process.communicate(timeout=60)[1]
    assert process.returncode == 130 and [p.name for p in tmp_path.iterdir()] == ["a"]
