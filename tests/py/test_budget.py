# SPDX-License-Identifier: Apache-2.0
"""`check --budget`: when it stops, what it says of the rest, and that the same command goes on
(which calls come first: tests/unit/test_run.c). And the split of the time that a check prints."""

import re
import subprocess

import pytest
from test_check_run import check, rows
from traces import small_trace

N = 4


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return small_trace(tmp_path_factory.mktemp("trace") / "trace", N)


@pytest.mark.parametrize("text", ["", "0", "10x", "-1s", "s", "soon"])
def test_no_time(text):
    said = subprocess.run(
        ["ulpscope", "check", "t", "--device", "cpu", "--budget", text], capture_output=True, text=True
    )
    assert said.returncode == 2 and f"--budget: '{text}' is no time; write 90s, 10m or 1h" in said.stderr


def test_a_spent_budget_is_told_and_the_same_command_goes_on(trace, tmp_path):
    first = check(trace, tmp_path / "out", "--budget", "0.001s")
    assert "the budget is spent" in first.stderr and "aten::mm" in first.stderr
    done = len(rows(tmp_path / "out"))
    assert done < 4 * N
    second = check(trace, tmp_path / "out", "--budget", "10m")
    assert second.returncode == 0 and "incomplete" not in second.stdout
    assert len(rows(tmp_path / "out")) == 4 * N
    if done:
        assert "incomplete" in first.stdout


def test_the_split_is_printed(trace, tmp_path):
    said = check(trace, tmp_path / "out", "--verbose").stderr
    assert re.search(
        r"ms per call [\d.]+: device [\d.]+, reference [\d.]+, perturbed [\d.]+, "
        r"judge [\d.]+, causes [\d.]+, overhead [\d.]+; without the device [\d.]+x one float64 "
        r"replay of every call",
        said,
    )
