# SPDX-License-Identifier: Apache-2.0
"""The process that judges beside a program: killed once it is started again, killed twice the check is
over; a call over which it hangs ends it. What is lost is said."""

import contextlib
import functools
import importlib
import sqlite3
import tempfile
import time

import pytest
import torch

import ulpscope
import ulpscope.sim
from ulpscope.program import live as program_live
from ulpscope.program import live_process

importlib.import_module("live_faults")
PATIENCE = 300  # seconds, for a machine that does much else
FAULT = "aten::gelu:bf16_output"


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """Private folders lie here, and are gone when the checks have ended."""
    monkeypatch.setattr(tempfile, "mkdtemp", functools.partial(tempfile.mkdtemp, dir=tmp_path))
    yield
    assert not list(tmp_path.glob("ulpscope-live-*"))


def step(live):
    torch.nn.functional.gelu(torch.linspace(-3, 3, 64).to("sim:0"))
    live.step()


def end(live):
    live.judge.end()
    live.judge.listener.join(PATIENCE)


def test_killed_once_it_goes_on_and_killed_twice_it_is_over(tmp_path, capfd):
    out = tmp_path / "out"
    with ulpscope.sim.plant(FAULT), ulpscope.live_check(output=out) as live:
        for n in range(5):
            step(live)
            if n in (1, 3):
                assert len(live.findings()) == n + 1
                live.judge.process.kill()
                live.judge.process.wait()
            if n == 3:
                live.judge.listener.join(PATIENCE)
    assert [f.step for f in live.findings()] == [0, 1, 2, 3]
    assert live.error == "the live check failed: the process that judges was ended by signal 9"
    err = capfd.readouterr().err
    assert err.count("was ended by signal 9; nothing is lost, and it was started again") == 1
    assert err.count("the program goes on") == 1
    end(live)


def test_results_of_both_are_in_one_folder(tmp_path):
    with ulpscope.sim.plant(FAULT), ulpscope.live_check(output=tmp_path / "out") as live:
        step(live)
        assert len(live.findings()) == 1
        live.judge.process.kill()
        step(live)
    assert len(live.findings()) == 2 and live.error is None
    end(live)
    with contextlib.closing(sqlite3.connect(tmp_path / "out/result.db")) as db:
        verdicts = dict(db.execute("SELECT verdict, count(*) FROM verdict GROUP BY 1"))
    assert verdicts["reduced"] == 2 and sum(verdicts.values()) == live.n_judged


@pytest.mark.parametrize("how", ["hangs", "killed"])
def test_a_call_that_ends_it_is_lost_and_those_behind_it_are_judged(monkeypatch, capfd, how):
    monkeypatch.setattr(live_process, "LIMIT_S", 10.0 if how == "hangs" else PATIENCE)
    monkeypatch.setattr(program_live, "WAIT_S", 0.0)  # each step is handed over at once
    with ulpscope.sim.plant(FAULT), ulpscope.live_check() as live:
        x = torch.linspace(-3, 3, 64).to("sim:0")
        torch.nn.functional.gelu(x)
        torch.ops.harm.hangs(x)
        torch.nn.functional.gelu(x[:32].clone())
        live.step()
        if how == "killed":
            wait_for_call(live)
            live.judge.process.kill()
    found = live.findings()
    assert [f.op for f in found] == ["aten::gelu"] * 2 and live.error is None
    assert live.left_out == {"the process that judges ended": 1}
    said = "took longer than 10 s" if how == "hangs" else "was ended by signal 9"
    assert f"the live check: the process that judges {said}" in (err := capfd.readouterr().err), err
    assert "the call of harm::hangs that it judged is lost, and it was started again" in err
    end(live)


def wait_for_call(live):
    """Until the process is at the call over which it hangs."""
    limit = time.monotonic() + PATIENCE
    while (live.judge._in_work() or {"op": ""})["op"] != "harm::hangs" and time.monotonic() < limit:
        time.sleep(0.05)
