# SPDX-License-Identifier: Apache-2.0
"""Several modes at once: each has steps, numbers, modules and parents of its own, whichever is
entered or left first, on any thread; and modules and threads that a mode is for."""

import sqlite3
import subprocess
import sys
import textwrap
import threading
from contextlib import closing

import pytest
import torch

import ulpscope


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(4, 8), torch.nn.Linear(8, 4)

    def forward(self, x):
        y = self.up(x)
        torch.log(torch.sqrt(-y.detach().abs() - 1))
        return self.down(y)


def train(steps=2):
    torch.manual_seed(0)
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.0)
    for _ in range(steps):
        opt.zero_grad()
        net(torch.ones(2, 4)).sum().backward()
        opt.step()


def rows(trace):
    """(number, operator, module, number of the parent, its forward call) of each call."""
    with closing(sqlite3.connect(trace / "trace.db")) as db:
        return db.execute(
            "SELECT c.sequence, o.name, m.path, c.parent, c.state FROM call c JOIN op o ON o.id = c.op"
            " LEFT JOIN module m ON m.id = c.module ORDER BY c.sequence"
        ).fetchall()


def alone(tmp_path):
    with ulpscope.capture(tmp_path / "alone", steps=[1]):
        train()
    return rows(tmp_path / "alone")


def names(births):
    return [(b.op, b.step, b.module) for b in births]


BORN = [("aten::sqrt", 0, ""), ("aten::sqrt", 1, "")]


@pytest.mark.parametrize("outer", ["capture", "nan"])
def test_a_capture_and_a_tracker_are_each_as_alone(tmp_path, outer):
    with ulpscope.nan_tracker() as single:
        train()
    assert names(single.births()) == BORN
    modes = [ulpscope.capture(tmp_path / "t", steps=[1]), ulpscope.nan_tracker()]
    first, second = modes if outer == "capture" else modes[::-1]
    with first, second:
        train()
    capture, nan = modes
    assert capture.error is None and nan.error is None
    assert rows(tmp_path / "t") == alone(tmp_path)
    assert [b.sentence for b in nan.births()] == [b.sentence for b in single.births()]


def test_two_trackers_of_other_operators_and_steps():
    with ulpscope.nan_tracker(ops="log", steps=[1]) as log, ulpscope.nan_tracker(ops="sqrt", steps=[0]) as sqrt:
        train(3)
    assert names(sqrt.births()) == [("aten::sqrt", 0, "")]
    assert [(b.op, b.step, b.kind) for b in log.births()] == [("aten::log", 1, "entered")]


@pytest.mark.parametrize("left", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (1, 0, 2)])
def test_they_are_left_in_any_order(tmp_path, left):
    loader, wrapped = torch.library.Library.impl, torch.optim.Optimizer.__init__
    modes = [ulpscope.nan_tracker(), ulpscope.capture(tmp_path / "t", steps="0-9"), ulpscope.nan_tracker()]
    for mode in modes:
        mode.__enter__()
    for i in left:
        train(1)
        modes[i].__exit__(None, None, None)
    train(1)
    assert [mode.error for mode in modes] == [None] * 3
    for at, i in enumerate(left):
        found = [r for r in rows(tmp_path / "t") if r[1] == "aten::sqrt"] if i == 1 else modes[i].births()
        assert len(found) == at + 1, (i, found)
    assert (torch.library.Library.impl, torch.optim.Optimizer.__init__) == (loader, wrapped)


def test_the_fifth_says_that_four_are_enough(capfd):
    modes = [ulpscope.nan_tracker() for _ in range(5)]
    for mode in modes:
        mode.__enter__()
    train(1)
    for mode in modes:
        mode.__exit__(None, None, None)
    assert [len(mode.births()) for mode in modes] == [1, 1, 1, 1, 0]
    assert "4 captures and modes are running here already" in modes[4].error
    assert capfd.readouterr().err.count("the program goes on") == 1


def test_one_may_come_and_go_inside_a_module(tmp_path):
    inner = ulpscope.nan_tracker()

    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def forward(self, x):
            with inner:
                y = self.net(x)
            return self.net(x) + y

    with ulpscope.nan_tracker() as outer:
        Outer()(torch.ones(2, 4))
    assert names(outer.births()) == [("aten::sqrt", 0, "net")] * 2
    assert [b.op for b in inner.births()] == ["aten::sqrt"] and inner.error is None


def test_threads_enter_and_leave_while_others_run():
    wrong = []

    def work(value):
        for _ in range(5):
            with ulpscope.nan_tracker(threads=threading.get_native_id()) as nan:
                torch.sqrt(torch.full((3,), value))
            expected = ["aten::sqrt"] if value < 0 else []
            if nan.error is None and [b.op for b in nan.births()] != expected:
                wrong.append(nan.births())

    threads = [threading.Thread(target=work, args=(v,)) for v in (-1.0, 1.0, -1.0)]
    with ulpscope.nan_tracker() as all_of_them:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == [] and len(all_of_them.births()) == 10 and all_of_them.error is None


def test_python_functions_are_seen_by_each(tmp_path):
    with ulpscope.capture(tmp_path / "a", level="api,aten", steps=[0], step_by="manual"):
        train(1)
    with ulpscope.capture(tmp_path / "b", level="api,aten", steps=[0], step_by="manual"):
        with ulpscope.nan_tracker() as nan, ulpscope.capture(tmp_path / "c", level="api", steps=[0], step_by="manual"):
            train(1)
    assert rows(tmp_path / "b") == rows(tmp_path / "a") and names(nan.births()) == BORN[:1]
    api = [r[1] for r in rows(tmp_path / "c")]
    assert "torch.nn.functional.linear" in api and api == [r[1] for r in rows(tmp_path / "a") if "::" not in r[1]]


@ulpscope.operator(mutates=["out"])
def fill(x, out):
    out.numpy()[:] = x.numpy() * 2


def test_operators_of_the_program_are_seen_by_each(tmp_path):
    with ulpscope.capture(tmp_path / "a", steps=[0]), ulpscope.nan_tracker():
        with ulpscope.capture(tmp_path / "b", steps=[0]):
            fill(torch.ones(2), torch.zeros(2))
    for name in "ab":
        assert [r[1] for r in rows(tmp_path / name)].count("test_modes_together.fill") == 1


MODULES = (("up", 0), ("down", 0), ("*", 2), ("!up", 2), ("", 2))


@pytest.mark.parametrize(("pattern", "n"), MODULES)
def test_modules_that_are_asked_for(pattern, n):
    with ulpscope.nan_tracker(modules=pattern) as nan:
        train()
    assert len([b for b in nan.births() if b.kind == "born"]) == n


def test_modules_cover_what_lies_in_them_and_its_backward(tmp_path):
    capture = ulpscope.capture(tmp_path / "t", steps=[0])
    capture.recorder.scope = ulpscope.nan_tracker(modules="up").scope
    with capture:
        train(1)
    found = rows(tmp_path / "t")
    assert {r[2] for r in found} == {"up"} and {"aten::addmm", "aten::linear"} <= {r[1] for r in found}
    assert any(r[1] == "aten::mm" for r in found)  # its gradient


def test_threads_that_are_asked_for():
    def work():
        torch.sqrt(torch.tensor([-1.0]))

    with ulpscope.nan_tracker(threads=[threading.get_native_id()]) as nan:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        torch.log(torch.tensor([-1.0]))
    assert [b.op for b in nan.births()] == ["aten::log"]


@pytest.mark.parametrize("bad", [{"modules": "(Net)"}, {"threads": "x"}, {"threads": -1}])
def test_bad_arguments_are_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        ulpscope.nan_tracker(**bad)


# One session asks where operators were defined while another one's kernels come and go.
READS_WHILE_KERNELS_GO = """
    import sys, threading, torch
    from ulpscope.program import capture, provenance

    def record(name):
        recorder = capture.Recorder(f"{sys.argv[1]}/{name}", "stats", None)
        recorder.begin(0)
        torch.ones(2) + 1
        recorder.end()
        return recorder

    def read():
        while not done.is_set():
            provenance.operator_sources(first.session)

    first, done = record("first"), threading.Event()
    reader = threading.Thread(target=read)
    reader.start()
    for i in range(150):
        record(i).close()
    done.set()
    reader.join()
    first.close()
    print("fine")
"""


def test_operators_are_asked_for_while_kernels_come_and_go(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(READS_WHILE_KERNELS_GO), tmp_path / "t"],
        text=True,
        capture_output=True,
        timeout=600,
    )
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr
