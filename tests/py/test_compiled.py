# SPDX-License-Identifier: Apache-2.0
"""`--via inductor`: honest compiled calls pass, a compiler with a planted bug is accused,
and what was not compiled is told. Compiles a few real C++ kernels."""

import os
import subprocess

import check_compilers  # noqa: F401  registers backends
import pytest
import torch
from calls import make_call
from test_check_run import check, rows, verdicts
from traces import TraceWriter

from ulpscope.executors.compiled import CompiledDevice
from ulpscope.executors.device import UnknownDevice, open_device
from ulpscope.session.judging import judge_call


@pytest.fixture(autouse=True)
def plain_compiler(monkeypatch):
    """Inductor takes CXX for the name of a program, whatever stands before it."""
    name = os.environ.get("CXX", "c++").split()[-1]
    monkeypatch.setenv("CXX", name)
    with torch._inductor.config.patch({"cpp.cxx": (None, name)}):
        yield


def via(compiler, call, **options):
    return judge_call(call, CompiledDevice("cpu", compiler, **options))


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """A small training step, operator by operator."""
    torch.manual_seed(3)
    path = tmp_path_factory.mktemp("via") / "trace"
    x, w, labels = torch.randn(6, 32), torch.randn(32, 10), torch.tensor([1, 0, 9, 3, 3, 7])
    logits = torch.log_softmax(x @ w, 1)
    grad = torch.ops.aten.nll_loss_backward(torch.ones(()), logits, labels, None, 1, -100, torch.tensor(6.0))
    lists = [[torch.randn(8, 4)] for _ in range(2)] + [[torch.rand(8, 4)] for _ in range(3)]
    with TraceWriter(path) as t:
        t.add("aten::mm", x, w)
        t.add("aten::gelu", x)
        t.add("aten::native_layer_norm", x, [32], torch.rand(32), torch.randn(32), 1e-5)
        t.add("aten::_softmax", x, 1, False)
        t.add("aten::_log_softmax", x @ w, 1, False)
        t.add("aten::nll_loss_forward", logits, labels, None, 1, -100)
        t.add("aten::nll_loss_backward", torch.ones(()), logits, labels, None, 1, -100, torch.tensor(6.0))
        t.add("aten::_log_softmax_backward_data", grad, logits, 1, torch.float32)
        t.add(
            "aten::_fused_adamw_",
            *lists,
            [torch.tensor(3.0)],
            lr=1e-3,
            beta1=0.9,
            beta2=0.999,
            weight_decay=0.01,
            eps=1e-8,
            amsgrad=True,
            maximize=False,
        )
        lists[4] = []  # which torch itself cannot take for a list that is written
        t.add(
            "aten::_fused_adamw_",
            *lists,
            [torch.tensor(3.0)],
            lr=1e-3,
            beta1=0.9,
            beta2=0.999,
            weight_decay=0.01,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )
    return path


def test_honest_compiler(trace, tmp_path):
    out = tmp_path / "out"
    run = check(trace, out, "--via", "inductor", device="cpu")
    assert run.returncode == 0, verdicts(out)
    assert {r["verdict"] for r in rows(out)} == {"pass"}
    notes = {r["op"]: r["notes"] for r in rows(out)}
    assert notes["aten::mm"] == "inductor falls back to the CPU's own kernel"
    assert "falls back" not in notes["aten::gelu"] + notes["aten::_softmax"]
    assert "cpu via inductor" in " ".join(run.stdout.split())  # a long path breaks the line
    again = check(trace, out, device="cpu")  # another run: not the same results
    assert again.returncode == 2 and "--force" in again.stderr
    again = check(trace, out, "--via", "inductor", device="cpu")
    assert again.returncode == 0 and "resuming: 0 of" not in again.stderr


def test_compiler_that_rounds_is_accused(trace, tmp_path):
    out = tmp_path / "out"
    run = check(trace, out, "--via", "rounding", "--import", "check_compilers", "--ops", "mm,gelu", device="cpu")
    assert run.returncode == 1
    assert {r["op"]: r["verdict"] for r in rows(out)} == {"aten::mm": "reduced", "aten::gelu": "reduced"}


def test_unknown_compiler(trace, tmp_path):
    run = check(trace, tmp_path / "out", "--via", "inducer", device="cpu")
    assert run.returncode == 2
    assert "torch.compile has no backend inducer; known here:" in run.stderr and "--import" in run.stderr


def test_a_callable_cannot_be_compiled():
    said = subprocess.run(
        ["ulpscope", "check", "trace", "--device", "python:check_devices:device", "--via", "inductor"],
        capture_output=True,
        text=True,
    )
    assert said.returncode == 2 and "--device cpu" in said.stderr
    with pytest.raises(UnknownDevice):
        open_device("cpu", via="inducer")


def test_refusal_is_unsupported():
    verdict = via("refusing", make_call("aten::gelu", torch.randn(5)))
    assert verdict.verdict == "unsupported"
    assert "refusing does not compile it: no layout for this" in verdict.reason
    assert "node 3" not in verdict.reason


def test_writes_and_aliases():
    flat = torch.randn(64)
    shared = make_call("aten::add_.Tensor", flat[:32], flat[16:48])
    mine = make_call("aten::mul.out", flat[::2], flat[1::2], out=torch.zeros(40)[4:36])
    for call in (shared, mine):
        verdict = via("aot_eager", call)
        assert verdict.verdict == "pass" and verdict.notes == []


def test_compiler_that_does_not_write_is_accused():
    call = make_call("aten::add_.Tensor", torch.randn(16), torch.randn(16))
    assert via("forgetful", call).verdict == "wrong"


def test_one_compilation_per_signature():
    told = []
    device = CompiledDevice("cpu", "aot_eager", mark=told.append)
    for seed in range(3):
        torch.manual_seed(seed)
        assert judge_call(make_call("aten::mul.Tensor", torch.randn(7), 2.5), device).verdict == "pass"
    assert told == ["compiling", "device"] and len(device.made) == 1
    others = [make_call("aten::mul.Tensor", torch.randn(n), 2.5) for n in range(8, 24)]
    others += [make_call("aten::mul.Tensor", torch.randn(7, 7).t(), 3.5)]
    others += [make_call("aten::mul.Tensor", torch.randn(7), 3.5)]
    for call in others:  # more than dynamo keeps of one function
        verdict = judge_call(call, device)
        assert verdict.verdict == "pass" and verdict.notes == []
    assert len(device.made) == 1 + len(others)


def test_what_is_not_compiled_is_told():
    verdict = via("inductor", make_call("aten::nonzero", torch.tensor([0.0, 1.0, 2.0])))
    assert verdict.verdict == "pass"
    assert verdict.notes == ["torch.compile leaves it to the CPU's own kernel"]


def test_the_captured_run_is_no_second_opinion():
    x = torch.randn(40)
    call = make_call("aten::exp", x, live=[torch.exp(x) * 1.5])
    assert judge_call(call, open_device("cpu")).verdict == "intermittent"
    assert via("aot_eager", call).verdict == "pass"
