# SPDX-License-Identifier: Apache-2.0
"""What the CPU computes at a process's first call is what it computes ever after: the reference of a verdict hangs on
no thread that came first to a vector function."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from calls import honest, judged, make_call

import ulpscope
from ulpscope import worker
from ulpscope.executors import warm
from ulpscope.executors.reference_runs import Reference

BENCH = Path(__file__).parents[2] / "bench"
CODE = """
import bench_first_call as bench
one = bench.forked(1, True)
found = bench.counted(200, 4, True)
assert found == {one: 200} and one, found
"""


def test_200_fresh_processes_give_one_reference():
    done = subprocess.run([sys.executable, "-c", CODE], cwd=BENCH, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


ENTRANCES = {
    "worker": lambda x: worker.prepare({"threads": torch.get_num_threads(), "recorded": [], "imports": []}),
    "judge_call": lambda x: ulpscope.judge_call(torch.exp, (x,), {}, x.exp()),
    "check_call": lambda x: ulpscope.check_call(torch.exp, (x,)),
    "a call of a trace": lambda x: judged(honest, "aten::exp", x),
    "a reference": lambda x: Reference(make_call("aten::exp", x)),
}


@pytest.mark.parametrize("name", ENTRANCES)
def test_whatever_judges_makes_the_first_calls_itself(name, monkeypatch):
    """One element each, so that one thread makes them."""
    called = []

    def exp(x):
        called.append((x.dtype, x.numel()))
        return kernel(x)

    kernel = torch.exp
    monkeypatch.setattr(warm, "_done", [])
    monkeypatch.setattr(torch, "exp", exp)
    ENTRANCES[name](torch.rand(40000))
    first = called[: len(warm.DTYPES)]
    assert first == [(dtype, 1) for dtype in warm.DTYPES]
    n = len(called)
    warm.warm()
    assert len(called) == n
