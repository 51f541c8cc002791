# SPDX-License-Identifier: Apache-2.0
"""`ulpscope trial`: what works on a device is said to, and what lacks, crashes or hangs costs its own row."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import schemas

pytest.importorskip("ulpscope.sim", exc_type=OSError)
BUILD = Path(os.environ.get("ULPSCOPE_BUILD", Path(__file__).resolve().parents[2] / "build"))


def trial(tmp_path, *words, code=0, device="sim:0", **variables):
    """{row: (state, text)} of a run, and what it wrote on stderr."""
    line = [str(BUILD / "bin" / "ulpscope"), "trial", "--device", device, "--json", "-o", "out", *words]
    environment = {**os.environ, "ULPSCOPE_PYTHON": sys.executable, "OMP_NUM_THREADS": "1", **variables}
    done = subprocess.run(line, text=True, timeout=600, cwd=tmp_path, capture_output=True, env=environment)
    assert done.returncode == code, done
    if code == 2:
        return {}, done.stderr
    told = schemas.one("trial", done.stdout)
    assert told == json.loads((tmp_path / "out" / "trial.json").read_text()) and told["device"] == device
    return {row["row"]: (row["state"], row["text"]) for row in told["rows"]}, done.stderr


ROWS = (
    "device",
    "capture",
    "replay-and-judge",
    "capture-on-the-cpu",
    "diff-with-the-cpu",
    "judge-a-kernel",
    "time-operators",
    "substitution",
    "watch",
)


def test_rows_work_on_the_simulated_device(tmp_path):
    """Those that take seconds; the others have tests of what they try."""
    rows, _ = trial(tmp_path, "--only", ",".join(ROWS))
    assert {state for state, _ in rows.values()} == {"works"} and len(rows) == len(ROWS)
    assert "none of" in rows["replay and judge"][1] and "the same" in rows["diff with the cpu"][1]
    assert (tmp_path / "out" / "checked" / "result.csv").exists() and (tmp_path / "out" / "env.json").exists()


def test_a_row_brings_what_it_reads_and_is_not_tried_without(tmp_path):
    rows, _ = trial(tmp_path, "--only", "coverage")
    assert list(rows) == ["capture", "coverage"] and {state for state, _ in rows.values()} == {"works"}
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "sitecustomize.py").write_text(
        "import os, sys\nif 'train' in sys.orig_argv: os._exit(3)\n"  # a driver that ends the step's process
    )
    path = f"{tmp_path / 'broken'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    rows, _ = trial(tmp_path, "--only", "diff-with-the-cpu", code=1, PYTHONPATH=path)
    assert [state for state, _ in rows.values()] == ["does not", "does not", "not tried"]
    assert rows["diff with the cpu"][1] == "it needs what 'capture' leaves"


def test_a_row_that_is_none(tmp_path):
    _, said = trial(tmp_path, "--only", "device,no", code=2)
    assert "no row 'no'" in said and set(ROWS) < set(said.split())


def test_what_a_device_lacks_is_said(tmp_path):
    rows, _ = trial(tmp_path, "--only", "device", ULPSCOPE_SIM_PROFILE="no-fp64")
    state, text = rows["device"]
    assert state == "works less" and "no float64" in text and "no int64" not in text


def test_what_dies_or_hangs_costs_its_row(tmp_path):
    """A module that is imported first stands for a driver: with one row it dies, in another it hangs."""
    (tmp_path / "driver.py").write_text(
        "import os, signal, sys, time\n"
        "if sys.argv[1] == 'kernel': os.kill(os.getpid(), signal.SIGSEGV)\n"
        "if sys.argv[1] == 'nan': time.sleep(600)\n"
    )
    rows, _ = trial(tmp_path, "--import", "driver.py", "--only", "device,judge-a-kernel", code=1)
    assert [rows[name][0] for name in ("device", "judge a kernel")] == ["works", "does not"]
    assert "signal 11" in rows["judge a kernel"][1]
    rows, _ = trial(tmp_path, "--import", "driver.py", "--only", "nan-tracker", "--time", "12s", code=1)
    assert rows["nan tracker"][0] == "does not" and "no end within" in rows["nan tracker"][1]


def test_a_device_that_is_not_there(tmp_path):
    _, said = trial(tmp_path, device="nosuch:0", code=2)
    assert "nosuch" in said and said.count("\n") == 2


def test_nothing_of_others_is_removed(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("")
    _, said = trial(tmp_path, code=2)
    assert "--force" in said and (tmp_path / "out" / "mine").exists()
