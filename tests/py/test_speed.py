# SPDX-License-Identifier: Apache-2.0
"""What a check spends: threads by the size of a call, bytes where nothing is computed. Each
saving has wrong kernels beside it that are still found."""

import math
import os
import subprocess
import resource

import pytest
import torch
from calls import make_call
from test_check_run import check, rows
from traces import TraceWriter

from ulpscope.executors import operands, reference_runs
from ulpscope.session import judging
from ulpscope.executors.device import PythonDevice, TorchDevice
from ulpscope.calls.verdicts import FLAGGED

CORES = len(os.sched_getaffinity(0))


@pytest.fixture(scope="module")
def two_sizes(tmp_path_factory):
    """A trace of a small call and of one that is worth sharing out."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("sizes") / "trace"
    with TraceWriter(folder) as t:
        t.add("aten::mm", torch.randn(6, 8), torch.randn(8, 4))
        t.add("aten::gelu", torch.randn(1100, 1100))
    return folder


@pytest.mark.parametrize("said, large", [("", CORES), ("1", 1), ("3", 3), ("2,1", 2)])
def test_threads_follow_the_environment_and_the_size_of_the_call(two_sizes, tmp_path, monkeypatch, said, large):
    told = tmp_path / "told"
    monkeypatch.setenv("SPEED_TELLS", str(told))
    run = check(
        two_sizes, tmp_path / "out", "--repeat", "1", threads=said, device="python:speed_devices:telling_threads"
    )
    assert run.returncode == 0
    assert told.read_text().split("\n")[:2] == ["mm 1", f"gelu {large}"]


# ---- what carries elements ---------------------------------------------------------------


def ramp(*sizes, dtype=torch.float32):
    """Numbers of which no two are equal, with what bytes tell and values do not."""
    n = math.prod(sizes)
    x = (torch.arange(n, dtype=torch.float64) * 0.37 - 5).to(dtype)
    x.view(-1)[-1] = math.nan
    return x.reshape(sizes)


I = torch.tensor([3, 0, 2, 2])
CARRIERS = {
    "view": lambda x: ("aten::view", (x, [8, 6])),
    "t": lambda x: ("aten::t", (x,)),
    "permute": lambda x: ("aten::permute", (x, [1, 0])),
    "slice": lambda x: ("aten::slice.Tensor", (x, 1, 1, 7, 2)),
    "select": lambda x: ("aten::select.int", (x, 0, 2)),
    "expand": lambda x: ("aten::expand", (x[:, :1], [6, 5])),
    "clone": lambda x: ("aten::clone", (x.t(),)),
    "copy_": lambda x: ("aten::copy_", (torch.zeros_like(x), x)),
    "cat": lambda x: ("aten::cat", ([x, x], 1)),
    "stack": lambda x: ("aten::stack", ([x, x], 1)),
    "split": lambda x: ("aten::split.Tensor", (x, 4)),
    "gather": lambda x: ("aten::gather", (x, 0, I.expand(2, 4))),
    "index_select": lambda x: ("aten::index_select", (x, 0, I)),
    "embedding": lambda x: ("aten::embedding", (x, I)),
    "index": lambda x: ("aten::index.Tensor", (x, [I])),
    "repeat": lambda x: ("aten::repeat", (x, [2, 2])),
    "roll": lambda x: ("aten::roll", (x, [3], [1])),
    "flip": lambda x: ("aten::flip", (x, [0])),
    "tril": lambda x: ("aten::tril", (x,)),
    "scatter": lambda x: ("aten::scatter.src", (x, 0, I[:1].expand(1, 8), x)),
    "constant_pad_nd": lambda x: ("aten::constant_pad_nd", (x, [1, 1])),
}


def carrier(name, x):
    op, args = CARRIERS[name](x)
    return make_call(op, *args)


def no_replay(monkeypatch):
    """From here on a float64 or float32 run is a failure."""

    def run(self, contents=None, function=None):
        raise AssertionError("a replay was asked for")

    monkeypatch.setattr(reference_runs.Reference, "wide", run)
    monkeypatch.setattr(reference_runs.Reference, "narrow", run)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int32], ids=str)
@pytest.mark.parametrize("name", CARRIERS)
def test_what_carries_elements_compares_bytes(monkeypatch, name, dtype):
    x = ramp(6, 8).nan_to_num(7).to(dtype) if not dtype.is_floating_point else ramp(6, 8, dtype=dtype)
    call = carrier(name, x)
    no_replay(monkeypatch)
    verdict = judging.judge_call(call, TorchDevice("cpu"))
    assert (verdict.verdict, verdict.notes[1:]) == ("pass", [])
    assert "equal in every bit" in verdict.worst.reason


def changed(op, args, kwargs):
    """One element of what the CPU gives is the next number."""
    out = op(*args, **kwargs)
    one = out[0] if isinstance(out, (tuple, list)) else out
    new = one.clone()
    at = (0,) * new.dim()
    new[at] = torch.nextafter(new[at], torch.tensor(9e9))
    if one is args[0]:
        return one.copy_(new)
    return [new, *out[1:]] if isinstance(out, (tuple, list)) else new


def shifted(op, args, kwargs):
    """The elements of what the CPU gives one place further."""
    out = op(*args, **kwargs)
    if isinstance(out, (tuple, list)):
        return [out[0].roll(1), *out[1:]]
    return out.copy_(out.roll(1)) if out is args[0] else out.roll(1)


@pytest.mark.parametrize("fault", [changed, shifted])
@pytest.mark.parametrize("name", CARRIERS)
def test_a_wrong_element_of_what_is_carried_is_found(name, fault):
    if (name, fault) == ("constant_pad_nd", shifted):
        return  # also right, but where NaN went
    call = carrier(name, ramp(6, 8))
    verdict = judging.judge_call(call, PythonDevice(fault), seconds=0)
    assert verdict.verdict in FLAGGED


@pytest.mark.parametrize(
    "op, args",
    [
        ("aten::_to_copy", (ramp(6, 8),)),
        ("aten::copy_", (torch.zeros(6, 8, dtype=torch.bfloat16), ramp(6, 8))),
        ("aten::index_put", (ramp(6, 8), [I], torch.ones(4, 8), True)),
        ("aten::scatter.reduce", (ramp(6, 8), 0, I[:1].expand(1, 8), ramp(6, 8))),
    ],
)
def test_what_converts_or_adds_is_replayed(monkeypatch, op, args):
    kwargs = {"aten::_to_copy": {"dtype": torch.bfloat16}, "aten::scatter.reduce": {"reduce": "add"}}
    call = make_call(op, *args, **kwargs.get(op, {}))
    asked = []
    begin = operands.Operands.begin
    monkeypatch.setattr(operands.Operands, "begin", lambda self: asked.append(1) or begin(self))
    assert judging.judge_call(call, TorchDevice("cpu")).verdict == "pass" and asked


# ---- memory that workers share -----------------------------------------------------------


def test_calls_that_need_more_than_is_left_wait(tmp_path, monkeypatch):
    """Six calls of about 400 MB each by two workers that have 600 MB: one after the other, and
    each is judged."""
    torch.manual_seed(0)
    with TraceWriter(tmp_path / "trace") as t:
        for _ in range(6):
            t.add("aten::gelu", torch.randn(1000, 3000))
    told = tmp_path / "told"
    monkeypatch.setenv("SPEED_TELLS", str(told))
    run = check(
        tmp_path / "trace",
        tmp_path / "out",
        "--repeat",
        "1",
        "--memory",
        "600MB",
        "-j",
        "2",
        device="python:speed_devices:telling_times",
    )
    assert run.returncode == 0 and "on 2 workers" in run.stderr
    spans = sorted(tuple(map(float, line.split())) for line in told.read_text().splitlines())
    assert len(spans) == 6
    assert all(end <= begin for (_, end), (begin, _) in zip(spans, spans[1:]))


def test_a_call_that_needs_more_than_there_is_works_alone(two_sizes, tmp_path):
    run = check(two_sizes, tmp_path / "out", "--memory", "1MB", "-j", "2", device="python:check_devices:device")
    assert run.returncode == 0 and {r["verdict"] for r in rows(tmp_path / "out")} == {"pass"}


@pytest.mark.parametrize("text", ["", "many", "-1", "0", "5 apples", "1..5G", "i"])
def test_what_is_no_size(text):
    said = subprocess.run(
        ["ulpscope", "check", "t", "--device", "cpu", "--memory", text], capture_output=True, text=True
    )
    assert said.returncode == 2 and f"--memory '{text}': a size is needed" in said.stderr


def test_a_view_takes_no_memory_of_its_own():
    """800 MB of elements, of which a vector is there."""
    call = make_call("aten::expand", torch.randn(1000), [200_000, 1000])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert judging.judge_call(call, TorchDevice("cpu")).verdict == "pass"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB
