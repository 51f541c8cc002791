# SPDX-License-Identifier: Apache-2.0
"""The self-test tells what the verdict would have caught: it finds what is to be found,
says so where data hide a mistake, and is not fooled by a verdict that is blind."""

import json
import os
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import torch
from calls import make_call
from test_check_run import check
from traces import TraceWriter, small_trace

from ulpscope import _core
from ulpscope.session import selftest

HERE = Path(__file__).parent


def randn(*sizes):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(5))


def test_a_product_has_a_smallest_error_that_is_caught():
    found = selftest.probe(make_call("aten::mm", randn(24, 40), randn(40, 16)))
    assert 12 < found["bits"]["noise"] < 20 and 12 < found["bits"]["factor"] < 22
    assert 8 < found["bits"]["element"] < 20
    caught = " / ".join(found["caught"])
    for text in ("dropped tail", "index shifted", "inputs rounded to bfloat16", "is missing"):
        assert text in caught
    assert not any("rounded to" in text for text in found["unseen"])


def test_an_epsilon_is_unseen_where_the_variance_dwarfs_it():
    def probe(scale):
        arguments = scale * randn(16, 64), [64], randn(64), randn(64), 1e-5
        return selftest.probe(make_call("aten::native_layer_norm", *arguments))

    assert "epsilon is missing" in probe(100.0)["unseen"]
    assert "epsilon is missing" in probe(1e-2)["caught"]


def test_low_precision_outputs_hide_more():
    x = randn(16, 50)
    wide = selftest.probe(make_call("aten::_softmax", x, -1, False))
    narrow = selftest.probe(make_call("aten::_softmax", x.bfloat16(), -1, False))
    assert narrow["bits"]["element"] < wide["bits"]["element"] - 3
    assert narrow["bits"]["noise"] < wide["bits"]["noise"]


def test_a_blind_verdict_is_found_out(monkeypatch):
    judge = selftest.judge_outputs

    def blind(operands, answer):
        return _core.Findings([_core.Finding(f.path, "pass") for f in judge(operands, answer)])

    monkeypatch.setattr(selftest, "judge_outputs", blind)
    found = selftest.probe(make_call("aten::mm", randn(8, 8), randn(8, 8)))
    assert found["caught"] == [] and set(found["bits"].values()) == {None}
    assert "dropped tail: zeros instead of the last elements" in found["unseen"]


def test_what_cannot_be_probed_says_why():
    assert "bit by bit" in selftest.probe(make_call("aten::argmax", randn(50)))["skipped"]
    assert "random" in selftest.probe(make_call("aten::bernoulli", torch.full((9,), 0.5)))["skipped"]


def test_check_prints_and_keeps_it(tmp_path):
    trace, out = small_trace(tmp_path / "trace", 1), tmp_path / "out"
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    run = subprocess.run(
        [
            "ulpscope",
            "check",
            str(trace),
            "--device",
            "python:check_devices:device",
            "-o",
            str(out),
            "-j",
            "1",
            "--self-test",
        ],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CHECK_FAULT": ""},
    )
    print(run.stdout, run.stderr)
    assert run.returncode == 0
    assert "smallest relative error that the verdict would have caught" in run.stdout
    with closing(sqlite3.connect(f"file:{out}/result.db?mode=ro", uri=True)) as db:
        (text,) = db.execute("SELECT value FROM run WHERE key = 'self_test'").fetchone()
    kept = json.loads(text)
    assert kept["aten::mm"]["calls"] == 1 and kept["aten::mm"]["bits"]["noise"] > 10
    assert json.loads((out / "result.json").read_text())["summary"]["self_test"] == kept
    line = next(s for s in run.stdout.split("self-test:")[1].splitlines() if "aten::mm" in s)
    name, n_pass, noise, element = line.split()[:4]
    assert (name, n_pass) == ("aten::mm", "1")
    bits = kept["aten::mm"]["bits"]
    assert float(noise) == float(f"{2.0 ** -bits['noise']:.1e}")
    assert float(element) == float(f"{2.0 ** -bits['element']:.1e}")


def test_a_kernel_that_ends_with_a_planted_mistake_costs_that_mistake(tmp_path):
    """Batch norm's gradient reads statistics that are not there."""
    g, x, w = randn(3, 2, 3, 4), 1 + randn(4, 3, 2, 3).reshape(3, 2, 3, 4), randn(2)
    with TraceWriter(tmp_path / "trace") as t:
        t.add("aten::native_batch_norm_backward", g, x, w, None, None, w, w * w + 1, True, 1e-5, [True] * 3)
    run = check(tmp_path / "trace", tmp_path / "out", "--self-test", "--timeout", "60")
    assert run.returncode == 0
    kept = json.loads((tmp_path / "out" / "result.json").read_text())["summary"]["self_test"]
    found = kept["aten::native_batch_norm_backward"]
    assert found["calls"] == 1 and "skipped" not in found and found["bits"]["factor"] > 10 and found["caught"]
