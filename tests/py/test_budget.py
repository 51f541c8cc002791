# SPDX-License-Identifier: Apache-2.0
"""`check --budget`: which calls come first, when it stops, what it says of the rest, and
that the same command goes on. And the split of the time that a check prints."""

import re
import time

import pytest
from test_check_run import check, rows
from traces import small_trace

from ulpscope._agenda import Agenda, Budget, seconds_of

N = 4


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return small_trace(tmp_path_factory.mktemp("trace") / "trace", N)


def row(op, sizes=(3,), module=""):
    return {"op": op, "args": "", "module_class": module,
            "tensors": [{"path": "args[0]", "dtype": "float32", "sizes": sizes, "strides": (1,), "role": "in"}]}  # fmt: skip


ROWS = {1: row("mm"), 2: row("mm"), 3: row("mm", (5,)), 4: row("mm", module="Linear"),
        5: row("gelu"), 6: row("gelu"), 7: row("softmax"), 8: row("mm")}  # fmt: skip


def taken(agenda, hear=lambda call: None):
    order = []
    while agenda:
        order.append(agenda.pop()["call"])
        said = hear(order[-1])
        if said:
            agenda.hear({"call": order[-1], "op": ROWS[order[-1]]["op"], "verdict": said[0], "bits": said[1]})
    return order


def budget(seconds=100):
    return Budget([{"call": c} for c in ROWS], ROWS.__getitem__, seconds)


def test_without_a_budget_the_order_is_that_of_the_trace():
    assert taken(Agenda([{"call": c} for c in ROWS])) == list(ROWS)


def test_signatures_first_then_module_classes_then_the_rare():
    assert taken(budget()) == [7, 5, 1, 3, 4, 6, 2, 8]


def test_operators_that_came_out_worst_go_on_first():
    said = {1: ("wrong", 3.0), 5: ("pass", 23.0), 7: ("pass", 22.0)}
    assert taken(budget(), said.get)[-3:] == [2, 8, 6]


def test_it_ends_with_its_time():
    agenda = budget(0.05)
    agenda.pop()
    assert agenda
    time.sleep(0.06)
    assert not agenda and len(agenda.left()) == 7


@pytest.mark.parametrize("text, seconds", [("90s", 90), ("10m", 600), ("1.5h", 5400), ("7", 7)])
def test_times(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "10x", "-1s", "s"])
def test_no_time(text):
    with pytest.raises(ValueError, match="write 90s, 10m or 1h"):
        seconds_of(text)


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
    assert re.search(r"ms per call [\d.]+: device [\d.]+, reference [\d.]+, perturbed [\d.]+, "
                     r"judge [\d.]+, causes [\d.]+, overhead [\d.]+; without the device [\d.]+x one float64 "
                     r"replay of every call", said)  # fmt: skip


def test_a_bad_budget_is_refused(trace, tmp_path):
    said = check(trace, tmp_path / "out", "--budget", "soon")
    assert said.returncode == 2 and "--budget: 'soon' is no time" in said.stderr
