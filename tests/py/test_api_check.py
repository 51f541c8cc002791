# SPDX-License-Identifier: Apache-2.0
"""Checks of Python functions (check --level api): replayed as a whole by their names, judged like
any call, and what is wrong is named down to the operator."""

import os
import subprocess

import pytest
import torch
import torch.nn.functional as F

import ulpscope
import ulpscope.sim  # noqa: F401  # the device
from ulpscope.calls import functions
from ulpscope.calls.replay import BadCall, resolve

X = torch.randn(24, 64, generator=torch.Generator().manual_seed(1))
W = torch.randn(32, 64, generator=torch.Generator().manual_seed(2))


def body(device="sim"):
    x, w = X.to(device), W.to(device)
    y = F.linear(x, w)
    y = F.layer_norm(y, (32,), weight=torch.ones(32, device=device), bias=None)
    z = y @ y.T
    F.softmax(z, -1), F.gelu(y), torch.topk(y, 3), torch.cat([y, y], 1), y[:, None, 1:3, ...]
    F.dropout(y, 0.5), F.relu(y.clone(), inplace=True), torch.linalg.norm(y), torch.fft.rfft(y)
    F.scaled_dot_product_attention(y[None], y[None], y[None])
    F.cross_entropy(y, torch.arange(24, device=device)).item(), bool((y > 0).any())


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    path = tmp_path_factory.mktemp("api") / "trace"
    with ulpscope.capture(path, level="api,aten"):
        body()
    return path


def check(trace, out, *more, device="sim:0"):
    """Its exit code."""
    done = subprocess.run(["ulpscope", "check", str(trace), "--device", device, "-o", str(out), "-j", "1", *more],
                          capture_output=True, text=True, timeout=240,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    return done.returncode


def verdicts(out):
    import sqlite3

    with sqlite3.connect(out / "result.db") as db:
        return db.execute("select op, verdict, culprit, sentence from verdict order by call").fetchall()


def test_an_honest_device_passes_whole_functions(trace, tmp_path):
    code = check(trace, tmp_path / "out", "--level", "api")
    rows = verdicts(tmp_path / "out")
    assert code == 0, rows
    assert {op for op, *_ in rows} >= {
        "torch.nn.functional.linear", "torch.nn.functional.layer_norm", "torch.Tensor.matmul", "torch.topk",
        "torch.cat", "torch.Tensor.__getitem__", "torch.nn.functional.dropout", "torch.Tensor.item",
        "torch.nn.functional.relu", "torch.fft.rfft", "torch.Tensor.__bool__"}  # fmt: skip
    assert not any("::" in op for op, *_ in rows)
    assert {verdict for _, verdict, *_ in rows} == {"pass"}, rows


@pytest.mark.parametrize("pattern, fault, culprit", [
    ("torch.nn.functional.linear", "mm:bf16_inputs", "aten::mm"),
    ("torch.nn.functional.layer_norm", "native_layer_norm:scale:factor=1.01", "aten::native_layer_norm"),
    ("torch.Tensor.matmul", "mm:bf16_inputs", "aten::mm"),
    ("torch.nn.functional.softmax", "_softmax:bf16_output", "aten::_softmax"),
])  # fmt: skip
def test_a_fault_below_a_function_is_found_and_its_operator_named(trace, tmp_path, pattern, fault, culprit):
    code = check(trace, tmp_path / "out", "--ops", pattern, "--faults", fault)
    rows = verdicts(tmp_path / "out")
    assert code == 1
    assert [op for op, *_ in rows] == [pattern]
    _, verdict, named, sentence = rows[0]
    assert verdict in ("wrong", "reduced", "intermittent") and named.startswith(culprit)
    assert f"the fault is in {culprit}" in sentence


def test_another_device_type_gets_functions_as_they_are(trace, tmp_path):
    code = check(trace, tmp_path / "out", "--ops", "torch.nn.functional.linear,torch.nn.functional.softmax", device="cpu")
    assert code == 0
    assert {op for op, *_ in verdicts(tmp_path / "out")} == {"torch.nn.functional.linear", "torch.nn.functional.softmax"}


def test_under_autocast_the_operators_below_are_judged(tmp_path):
    with ulpscope.capture(tmp_path / "t", level="api,aten"), torch.autocast("cpu"):
        F.linear(X, W)
    code = check(tmp_path / "t", tmp_path / "out", "--level", "api", device="cpu")
    assert code == 0
    assert "aten::mm" in {op.split(".")[0] for op, *_ in verdicts(tmp_path / "out")}


@pytest.mark.parametrize("name", ["torch.os.system", "os.system", "torch.load", "torch.from_file", "torch.hub.load",
                                  "torch.Tensor.__reduce_ex__", "subprocess.run", "torch.serialization.os.remove",
                                  "torch.Tensor.register_hook", "torch.import_ir_module", "builtins.eval"])  # fmt: skip
def test_a_trace_calls_nothing_but_computation(name):
    with pytest.raises(BadCall, match="unknown here"):
        resolve(name)


def test_functions_are_found_by_their_names():
    for name in ("torch.nn.functional.linear", "torch.nn.functional.layer_norm", "torch.Tensor.add", "torch.topk",
                 "torch.Tensor.__rdiv__", "torch.nn.functional.max_pool2d", "torch.linalg.norm", "torch._foreach_add",
                 "torch.special.erf", "torch.einsum", "torch.ops.aten.add.Tensor"):  # fmt: skip
        function = resolve(name)
        assert callable(function) and functions.name_of(function) == name
    assert resolve("torch.Tensor.T")(X).shape == (64, 24)
