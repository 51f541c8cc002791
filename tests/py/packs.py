# SPDX-License-Identifier: Apache-2.0
"""Packs of a small trace, outputs for them, and what a judge and a check say of these."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import plain_tensors
import pytest
import run_pack
import torch
from traces import TraceWriter

from ulpscope import _core
from ulpscope.executors.device import Answer
from ulpscope.session.judging import judge_given
from ulpscope.calls.read_call import call_from

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build"))


def make_trace(path):
    """Calls of every kind that a pack tells apart."""
    torch.manual_seed(3)
    low = torch.bfloat16
    x, w, v = torch.randn(24, 40), torch.randn(40, 16), torch.randn(40)
    image = torch.randn(2, 3, 12, 12).round(decimals=1)  # ties
    with TraceWriter(path) as t:
        t.add("aten::mm", x, w, out=[x @ w])
        t.add("aten::mm", x.to(low), w.to(low), out=[x.to(low) @ w.to(low)])
        t.add("aten::mm", x.half(), w.half(), out=[x.half() @ w.half()])
        t.add("aten::mm", x.double(), w.double(), out=[x.double() @ w.double()])
        t.add("aten::gelu", x, out=[x])
        t.add("aten::_softmax", x.to(low), -1, False, out=[x.to(low)])
        t.add("aten::native_layer_norm", x, [40], v, v, 1e-5)
        t.add("aten::add_.Tensor", x.clone(), x.clone())
        t.add("aten::_foreach_mul_.Scalar", [x.clone(), v.clone()], 0.7)
        t.add("aten::relu", x, out=[x])
        t.add("aten::sum.dim_IntList", x, [1], out=[x.sum(1)])
        t.add("aten::topk", image, 4, -1)
        t.add("aten::argmax", image, -1, out=[image.argmax(-1)])
        t.add("aten::max_pool2d_with_indices", image, [3, 3], [2, 2])
        t.add("aten::round", 10 * x, out=[x])
        t.add("aten::mm", torch.randn(0, 40), w, out=[torch.zeros(0, 16)])
        t.add("aten::view_as_complex", torch.randn(5, 2))
        t.add("aten::bernoulli", torch.rand(9), out=[torch.rand(9)])
        t.add("aten::empty_like", x, out=[x])
        t.add("aten::log", -x, out=[x])
        t.add("aten::_to_copy", 300 * x, dtype=torch.int8, out=[x.to(torch.int8)])
        t.add("aten::cummax", image, -1)
        t.add("aten::scatter.src", torch.zeros(4), 0, torch.tensor([1, 1, 3]), v[:3].clone(), out=[torch.zeros(4)])
        z = torch.complex(x, x.flip(0))
        t.add("aten::mul.Tensor", z, z, out=[z])
        t.add("aten::mul.Scalar", x.to(low), 0.3, out=[x.to(low)])
        t.add("aten::exp", 80 + v, out=[v])
        t.add("aten::native_layer_norm", 1e25 * x, [40], v, v, 1e-5)
        t.add("nosuch::operator", x)
        t.add("aten::threshold_backward", x, torch.where(x > 1, 0.0, x), 0)
    return path


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """Folder with a trace, and the pack made of it by the command."""
    folder = tmp_path_factory.mktemp("pack")
    make_trace(folder / "trace")
    done = subprocess.run(
        ["ulpscope", "pack", folder / "trace", "-o", folder / "pack"],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert "29 calls" in done.stderr and "aten::bernoulli" in done.stderr
    return folder


def judge(*arguments, out):
    done = subprocess.run(
        [BUILD / "bin" / "ulpscope", "judge", *map(str, arguments), "-o", out],
        capture_output=True,
        text=True,
        timeout=60,
    )
    print(done.stdout, done.stderr)
    path = Path(out) / "result.json"
    calls = json.loads(path.read_text())["calls"] if path.is_file() else []
    return done, {c["call"]: c for c in calls}


def checked(folder, outputs):
    """Verdicts of a check's own judge on the outputs that lie in a folder."""
    trace = _core.Trace(str(folder / "trace"))
    manifest = json.loads((folder / "pack" / "pack.json").read_text())
    found = {}
    for entry in manifest["calls"]:
        if "unjudged" in entry:
            found[entry["call"]] = ("unjudged", 0.0, False)
            continue
        given = plain_tensors.read(outputs / f"{entry['call']}.safetensors")
        call = call_from(trace.call(entry["call"]), trace.blob)
        tensors = {}
        for o in entry["outputs"]:
            value = torch.from_numpy(np.array(given[o["name"]]))
            tensors[o["path"]] = value.to(getattr(torch, o["dtypes"][0]))
            if o.get("pairs") and o["path"] in call.results:  # as a device's own answer
                assert call.results[o["path"]].dtype.is_complex
        verdict = judge_given(call, Answer(tensors))
        worst = verdict.worst
        found[entry["call"]] = (verdict.verdict, worst.bits, worst.bound)
    return found


def assert_same(folder, outputs, out):
    """Equal verdicts and bits. Returns what was accused."""
    _, got = judge(folder / "pack", outputs, out=out)
    expected = checked(folder, outputs)
    assert got.keys() == expected.keys()
    for number, (verdict, bits, bound) in expected.items():
        call = got[number]
        assert call["verdict"] == verdict, (call["op"], call["sentence"], verdict)
        if verdict in ("reduced", "wrong", "pass") and call["bits"] is not None:
            assert abs(call["bits"] - bits) < 0.1, (call["op"], call["bits"], bits)
            assert call["bound"] == bound, call["op"]
    return {got[n]["op"] for n, (verdict, *_) in expected.items() if verdict in ("reduced", "wrong", "nonfinite")}


@pytest.fixture(scope="module")
def honest(packed):
    run_pack.main(packed / "pack", packed / "honest", "sim:0")
    return packed / "honest"


def changed(packed, honest, tmp_path, number, change):
    """The honest outputs in one file, those of one call changed; the call's verdict."""
    tensors, low = {}, []
    for path in sorted(honest.glob("*.safetensors")):
        tensors.update(plain_tensors.read(path))
    manifest = json.loads((packed / "pack" / "pack.json").read_text())
    for call in manifest["calls"]:
        low += [o["name"] for o in call["outputs"] if o["dtypes"][:1] == ["bfloat16"]]
    change(tensors)
    plain_tensors.write(tmp_path / "all.safetensors", tensors, [n for n in low if n in tensors])
    allow = ["--allow", "unjudged"]  # what the pack itself says that nobody can judge
    done, calls = judge(packed / "pack", tmp_path / "all.safetensors", *allow, out=tmp_path / "out")
    others = [c for n, c in calls.items() if n != number and c["verdict"] not in ("pass", "unjudged")]
    assert not others
    return done, calls[number]


def numbers_of(packed, op):
    manifest = json.loads((packed / "pack" / "pack.json").read_text())
    return [c["call"] for c in manifest["calls"] if c["op"] == op]


def number_of(packed, op):
    return numbers_of(packed, op)[0]
