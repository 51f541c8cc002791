# SPDX-License-Identifier: Apache-2.0
"""The search for a cause can hurt nothing: it runs in a process of its own, within its time, and
leaves nothing behind, whatever the kernels that it runs do."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing

import pytest
import torch
from torch.nn import functional

from test_check_run import check, rows
from traces import TraceWriter

import ulpscope
from ulpscope.causes import host as asking
from ulpscope.testing import assert_accurate

X, W = torch.randn(48, 96), torch.randn(96, 32)
HOST = os.getpid()


def narrow(*tensors):
    return [t.bfloat16().float() for t in tensors]


def half(*tensors):
    return [t.half().float() for t in tensors]


def lstm_cell():
    x, h, c = torch.randn(4, 8), torch.randn(4, 16), torch.randn(4, 16)
    weights = [torch.randn(64, 8), torch.randn(64, 16), torch.randn(64), torch.randn(64)]
    low = [t.half() for t in (x, h, c, *weights)]
    outputs = torch.lstm_cell(low[0], (low[1], low[2]), *low[3:])
    return torch.lstm_cell, (x, (h, c), *weights), tuple(t.float() for t in outputs)


def batch_norm():
    x, mean, var = torch.randn(8, 4, 5, 5), torch.zeros(4), torch.ones(4)
    part = torch.batch_norm(x[:-1], None, None, mean.clone(), var.clone(), True, 0.1, 1e-5, False)
    arguments = (x, None, None, mean, var, True, 0.1, 1e-5, False)
    return torch.batch_norm, arguments, torch.cat([part, x[-1:]])


@pytest.fixture
def cold(monkeypatch):
    """What is started is a process of its own, and not one forked from another and waited for (tests/warm)."""
    monkeypatch.delenv("ULPSCOPE_WARM", raising=False)
    asking.end()


@pytest.mark.parametrize("make", [lstm_cell, batch_norm])
def test_edited_kernels_cannot_end_the_caller(make):
    torch.manual_seed(3)
    function, arguments, outputs = make()
    verdict = ulpscope.judge_call(function, arguments, {}, outputs)
    assert verdict.verdict in ("reduced", "wrong") and verdict.cause


def fatal_elsewhere(x, w):
    """A product whose kernel survives in this process only."""
    if os.getpid() != HOST:
        os.kill(os.getpid(), signal.SIGSEGV)
    return x @ w


def slow_elsewhere(x, w):
    if os.getpid() != HOST:
        time.sleep(600)
    return x @ w


def test_a_search_that_dies_is_an_unknown_cause_and_the_next_one_is_found():
    verdict = ulpscope.judge_call(fatal_elsewhere, (X, W), {}, X.square() @ W)
    assert (verdict.verdict, verdict.cause) == ("wrong", "cause unknown")
    verdict = ulpscope.judge_call(torch.mm, (X, W), {}, torch.mm(*narrow(X, W)))
    assert (verdict.verdict, verdict.cause) == ("reduced", "inputs rounded to bfloat16")


def fatal_edits(x, w, alpha):
    """What no wrong alpha survives but in this process."""
    if os.getpid() != HOST and alpha != 3.0:
        os.kill(os.getpid(), signal.SIGSEGV)
    return x @ w + alpha


def test_a_search_goes_on_behind_what_it_died_of():
    verdict = ulpscope.judge_call(fatal_edits, (X, W, 3.0), {}, 3.0 - X @ W)
    assert (verdict.verdict, verdict.cause) == ("wrong", "the sign of x is lost: negated")


def test_a_search_ends_in_time():
    start = time.monotonic()
    verdict = ulpscope.judge_call(slow_elsewhere, (X, W), {}, X.square() @ W, cause=0.2)
    assert verdict.cause == "cause unknown (search ended after 0.2 s)"
    assert time.monotonic() - start < 20


def test_no_cause_is_sought_where_none_is_wanted(monkeypatch):
    monkeypatch.setattr("ulpscope.causes.host.Helper", None)  # cannot be started
    outputs = torch.mm(*narrow(X, W))
    assert ulpscope.judge_call(torch.mm, (X, W), {}, outputs, cause=False).cause == ""
    wrong = lambda x, w: torch.mm(*narrow(x, w))  # noqa: E731
    assert ulpscope.check_call(wrong, (X, W), reference=torch.mm, cause=False).cause == ""
    with pytest.raises(AssertionError):
        assert_accurate(wrong, torch.mm, X, W, cause=False)
    with pytest.raises(TypeError, match="seconds"):
        ulpscope.judge_call(torch.mm, (X, W), {}, outputs, cause="no")


def test_the_host_stays_as_it_was():
    def state():
        return (
            os.getcwd(),
            dict(os.environ),
            torch.get_default_dtype(),
            torch.get_num_threads(),
            torch.random.get_rng_state().tolist(),
            torch.is_grad_enabled(),
            signal.getsignal(signal.SIGINT),
            signal.getsignal(signal.SIGCHLD),
            sorted(sys.path),
            threading.active_count(),
        )

    before = state()
    ulpscope.judge_call(torch.mm, (X, W), {}, torch.mm(*narrow(X, W)))
    assert state() == before


class Own(torch.nn.Module):
    """A module of a class that no other process has."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(96, 32)

    def forward(self, x):
        return functional.softmax(self.inner(x), -1)


def helped(x):
    return torch.mm(x, W)


class Odd:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x, w):
        return self.factor * torch.mm(x, w)


@pytest.mark.parametrize("name", ["lambda", "closure", "module", "object", "in place"])
def test_whatever_is_judged_can_be_searched(name):
    own, factor = Own(), 3.0
    functions = {
        "lambda": (lambda x, w: helped(x) + 0 * w.sum(), (X, W)),
        "closure": (lambda x, w: factor * torch.mm(x, w), (X, W)),
        "module": (own, (X,)),
        "object": (Odd(2.0), (X, W)),
        "in place": (lambda x, w: torch.mm(x, w).mul_(Odd(2.0).factor).add_(1.0), (X, W)),
    }
    function, arguments = functions[name]
    with torch.no_grad():
        outputs = function(*half(*arguments))
        verdict = ulpscope.judge_call(function, arguments, {}, outputs)
    assert "inputs rounded to TF32 or float16" in verdict.cause


HOSTING = """
import sys, time, torch, ulpscope
from ulpscope.causes import host as _causes_host
x, w = torch.randn(48, 96), torch.randn(96, 32)
ulpscope.judge_call(torch.mm, (x, w), {}, torch.mm(x.bfloat16().float(), w))
print(_causes_host._helper.process.pid, flush=True)
if sys.argv[1] == "busy":
    import os
    host = os.getpid()
    def slow(x, w):
        if os.getpid() != host:
            while True: pass
        return x @ w
    ulpscope.judge_call(slow, (x, w), {}, x.square() @ w, cause=100)
elif sys.argv[1] == "forks":
    import os
    torch.set_num_threads(1)
    pid = os.fork()
    cause = ulpscope.judge_call(torch.mm, (x, w), {}, 2 * (x @ w)).cause
    assert cause == "the result is multiplied by 2", cause
    if pid:
        assert os.waitpid(pid, 0)[1] == 0
"""


def is_there(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_nothing_is_left_behind(cold):
    """Where the program ends by itself, or is killed or interrupted in the midst of a search."""
    hows = [("forks", None), ("busy", signal.SIGKILL), ("busy", signal.SIGINT)]
    hosts = [
        subprocess.Popen(
            [sys.executable, "-c", HOSTING, doing], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        for doing, _ in hows
    ]
    pids = [int(host.stdout.readline()) for host in hosts]
    time.sleep(0.5)
    for host, (_, number) in zip(hosts, hows):
        if number:
            host.send_signal(number)
        ended = host.wait(60)
        assert number or ended == 0  # a forked process has a search of its own
    for _ in range(100):
        if not any(map(is_there, pids)):
            return
        time.sleep(0.1)
    raise AssertionError(f"one of the processes {pids} is left")


# ---- forked ahead --------------------------------------------------------------------------

AHEAD = """
import os, sys, torch, ulpscope
from ulpscope.causes import host
x, w = torch.randn(48, 96), torch.randn(96, 32)
if sys.argv[1] == "thread":
    import threading
    threading.Thread(target=threading.Event().wait, daemon=True).start()
elif sys.argv[1] == "pool":
    torch.set_num_threads(2)
    torch.randn(1000, 1000).exp()
    assert len(os.listdir("/proc/self/task")) > 1
elif sys.argv[1] == "user":
    os.register_at_fork(before=lambda: print("forked", flush=True))
if sys.argv[1] != "user":
    print(host.reserve(), flush=True)
children = open(f"/proc/self/task/{os.getpid()}/children").read().split()
print(*children, flush=True)
if sys.argv[1] == "asleep":
    sys.stdin.read()
print(ulpscope.judge_call(torch.mm, (x, w), {}, torch.mm(x.bfloat16().float(), w)).cause, flush=True)
print(host._helper.process.pid, flush=True)
"""


def ahead(what):
    run = subprocess.run([sys.executable, "-c", AHEAD, what], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


def test_a_process_forked_ahead_searches_like_one_that_was_started():
    there, child, cause, asked = ahead("alone")
    assert there == "True" and child == asked
    assert "bfloat16" in cause


@pytest.mark.parametrize("what", ["thread", "pool"])
def test_nothing_is_forked_beside_threads(what):
    there, children, cause, asked = ahead(what)
    assert (there, children) == ("False", "") and "bfloat16" in cause and asked


def test_a_program_that_asks_is_not_forked():
    children, cause, asked = ahead("user")
    assert children == "" and "bfloat16" in cause and asked


def opened(pid, fd):
    """What a descriptor of a process is, its number where it was closed meanwhile."""
    return os.path.basename(os.path.realpath(f"/proc/{pid}/fd/{fd}"))


def test_one_that_waits_ends_with_the_program(cold):
    host = subprocess.Popen(
        [sys.executable, "-c", AHEAD, "asleep"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert host.stdout.readline() == "True\n"
    child = int(host.stdout.readline())
    mine = {opened(host.pid, fd) for fd in (0, 1)}
    for _ in range(100):
        held = {opened(child, fd) for fd in os.listdir(f"/proc/{child}/fd")}
        if not held & mine:
            break
        time.sleep(0.1)
    assert not held & mine and is_there(child) and os.getsid(child) == child
    host.kill()
    host.wait()
    for _ in range(100):
        if not is_there(child):
            return
        time.sleep(0.1)
    raise AssertionError("it waits for ever")


# ---- in a check ----------------------------------------------------------------------------


def searches(out):
    """What searches sought, and the verdicts that they saw on disk before."""
    with open(f"{out}.log") as log:
        return [line.split() for line in log]


def metrics(out):
    with closing(sqlite3.connect(f"file:{out}/result.db?mode=ro", uri=True)) as db:
        return dict(db.execute("SELECT call, value FROM metric WHERE name = 't_causes'"))


@pytest.fixture(scope="module")
def alike(tmp_path_factory):
    """A trace of an LSTM's cell and of 40 products."""
    path = tmp_path_factory.mktemp("alike") / "trace"
    torch.manual_seed(5)
    with TraceWriter(path) as t:
        x, h, c = torch.randn(4, 8), torch.randn(4, 16), torch.randn(4, 16)
        t.add("aten::lstm_cell", x, [h, c], torch.randn(64, 8), torch.randn(64, 16), torch.randn(64), torch.randn(64))
        for _ in range(40):
            t.add("aten::mm", torch.randn(24, 40), torch.randn(40, 16))
    return path


def test_a_check_keeps_its_verdicts_and_searches_once_for_what_is_alike(alike, tmp_path, monkeypatch):
    out = tmp_path / "out"
    monkeypatch.setenv("SEARCH", "")
    monkeypatch.setenv("SEARCH_LOG", str(out))
    run = check(alike, out, "--timeout", "60", "-j", "2", fault="lstm_cell=half,mm=half")
    found = rows(out)
    groups = {(r["op"], round(r["bits"])) for r in found}
    assert sum(s[0] == "any" for s in searches(out)) <= len(groups) + 1  # whichever worker it was
    assert run.returncode == 1 and len(found) == 41
    assert {r["verdict"] for r in found} == {"reduced"}
    products = [r for r in found if r["op"] == "aten::mm"]
    named = [r for r in products if r["cause"] not in ("", "cause unknown")]
    assert len(named) >= 38 and len({r["cause"] for r in named}) <= 2
    assert all(r["sentence"].endswith(r["cause"]) for r in products)
    spent = sorted(metrics(out).values())
    assert len(spent) == 41 and spent[len(spent) // 2] < 0.25e9


FORKED = """
import os, sys
def changed():
    if "ulpscope.causes.diagnose" in sys.modules and "SEARCH" not in globals():
        from check_devices import SEARCH
        exec(SEARCH, globals())
        globals()["SEARCH"] = True
if os.environ.get("SEARCH_FORKED"):
    os.register_at_fork(after_in_child=changed)
"""


@pytest.mark.parametrize("way", ["started", "forked"])
def test_a_verdict_is_on_disk_before_its_cause_is_sought(tmp_path, monkeypatch, way):
    """However the search for it ends."""
    ends = {"mm": "crash", "bmm": "hang", "addmm": "killed", "mv": "honest"}
    out, operands = tmp_path / "out", [torch.randn(24, 40), torch.randn(40, 16)]
    with TraceWriter(tmp_path / "trace") as t:
        t.add("aten::mm", *operands)
        t.add("aten::bmm", *(o[None] for o in operands))
        t.add("aten::addmm", torch.randn(16), *operands)
        t.add("aten::mv", operands[0], torch.randn(40))
    monkeypatch.setenv("SEARCH", ",".join(f"{op}={end}" for op, end in ends.items()))
    monkeypatch.setenv("SEARCH_LOG", str(out))
    if way == "forked":
        (tmp_path / "sitecustomize.py").write_text(FORKED)
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
        monkeypatch.setenv("SEARCH_FORKED", "1")
    run = check(tmp_path / "trace", out, "--causes", "0.6", fault=",".join(f"{op}=half" for op in ends))
    assert run.returncode == 1
    found = {r["op"].removeprefix("aten::"): r for r in rows(out)}
    assert {op: r["verdict"] for op, r in found.items()} == dict.fromkeys(ends, "reduced")
    assert all(found[op]["cause"].startswith("cause unknown") for op in ("mm", "bmm", "addmm"))
    assert "float16" in found["mv"]["cause"]
    order = [op for _, op, *_ in searches(out)]
    assert set(order) == {f"aten::{op}" for op in ends}
    for _, op, *seen in searches(out):
        assert seen == ["reduced"] * len(set(order[: order.index(op) + 1]))


def test_a_check_knows_what_the_call_before_gave(tmp_path):
    operands = torch.randn(24, 40), torch.randn(40, 16)
    with TraceWriter(tmp_path / "trace") as t:
        t.add("aten::mm", *operands)
        t.add("aten::addmm", torch.randn(16), *operands)
    out = tmp_path / "out"
    check(tmp_path / "trace", out, fault="addmm=stale")
    assert [r["cause"] for r in rows(out) if r["op"] == "aten::addmm"] == [
        "the result is the output of call 1: it was not written, what was there before is stale"
    ]


def test_a_search_neither_delays_nor_changes_a_verdict(alike, tmp_path):
    out = tmp_path / "out"
    run = check(alike, out, "--causes", "off", "--ops", "aten::lstm_cell", fault="lstm_cell=half")
    assert run.returncode == 1
    assert [(r["verdict"], r["cause"]) for r in rows(out)] == [("reduced", "")]
    assert not metrics(out)
    run = check(alike, tmp_path / "bad", "--causes", "never")
    assert run.returncode == 2 and "--causes" in run.stderr


# ---- time ----------------------------------------------------------------------------------


def searching():
    """The processes that search at the moment."""
    pid = asking._helper.process.pid if asking._helper is not None else 0
    with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{pid}/children") as file:
        yield from map(int, file.read().split())


def busy_elsewhere(x, w):
    """What spins for ever in the process that searches."""
    while os.getpid() != HOST:
        x.square()
    return x @ w


def test_what_spins_is_ended():
    verdict = ulpscope.judge_call(busy_elsewhere, (X, W), {}, X.square() @ W, cause=0.2)
    assert verdict.cause == "cause unknown (search ended after 0.2 s)"


def test_a_search_that_gets_little_of_the_processor_goes_on(monkeypatch, cold):
    """Stopped most of the time, as on a machine that does much else: it finds what it finds alone, though the
    clock says that it lasts far longer than it may take."""
    monkeypatch.setattr(asking, "LEAST_CLOCK", 0.5)
    monkeypatch.setattr(asking, "BY_THE_CLOCK", 0)
    ended, pids, start = threading.Event(), set(), time.monotonic()

    def disturb():
        while not ended.is_set():
            some = list(searching())
            pids.update(some)
            for way, seconds in ((signal.SIGSTOP, 0.03), (signal.SIGCONT, 0.003)):
                for pid in some:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, way)
                time.sleep(seconds if some else 0.001)

    other = threading.Thread(target=disturb)
    other.start()
    try:
        x, w = torch.randn(300, 700), torch.randn(700, 200)
        verdict = ulpscope.judge_call(torch.mm, (x, w), {}, torch.mm(*narrow(x, w)))
    finally:
        ended.set()
        other.join()
    assert pids and time.monotonic() - start > asking.LEAST_CLOCK
    assert verdict.cause == "inputs rounded to bfloat16"


def test_the_time_of_a_search_is_the_processors():
    """What other programs take of the clock costs nothing, and what further threads take costs as much."""
    from ulpscope.causes.process import Limit

    until = time.monotonic() + 1000
    limit = Limit({"behind": 0, "past": [], "until": until, "seconds": 0.3, "spent": 0.0}, None, None)
    time.sleep(0.5)
    assert not limit.over() and limit.taken() < 0.2
    x = torch.randn(400, 400)
    while not limit.over() and time.monotonic() < until - 970:
        work = threading.Thread(target=lambda: [x @ x for _ in range(40)])
        work.start()
        work.join()  # this thread takes nothing
    assert limit.over() and limit.ended
