# SPDX-License-Identifier: Apache-2.0
"""The whole command on small traces: exit codes, verdicts kept in OUT, crashes and hangs
that cost one call, resume after Ctrl-C and kill -9. The device is a Python callable."""

import csv
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
import torch
from traces import TraceWriter, small_trace

import ulpscope
from ulpscope import _core

HERE = Path(__file__).parent
N = 2


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return small_trace(tmp_path_factory.mktemp("trace") / "trace", N)


def command(trace, out, *more, device="python:check_devices:device"):
    return ["ulpscope", "check", str(trace), "--device", device, "-o", str(out), "-j", "1", *more]


def environment(**more):
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **more}


def check(trace, out, *more, fault="", threads="1", **options):
    run = subprocess.run(
        command(trace, out, *more, **options),
        capture_output=True,
        text=True,
        env=environment(CHECK_FAULT=fault, OMP_NUM_THREADS=threads),
        timeout=300,
    )
    print(run.stdout, run.stderr)
    return run


def report(out, *more):
    return subprocess.run(["ulpscope", "report", str(out), *more], capture_output=True, text=True, timeout=60)


def rows(out):
    """Rows of OUT/result.db as (op, verdict) counts and all rows by op."""
    with closing(sqlite3.connect(f"file:{out}/result.db?mode=ro", uri=True)) as db:
        db.row_factory = sqlite3.Row
        return [dict(r) for r in db.execute("SELECT * FROM verdict ORDER BY call")]


def texts(out, call):
    """Metrics of a call that are texts."""
    with closing(sqlite3.connect(f"file:{out}/result.db?mode=ro", uri=True)) as db:
        return dict(db.execute("SELECT name, text FROM metric WHERE call = ? AND text <> ''", [call]))


def verdicts(out):
    return Counter((r["op"], r["verdict"]) for r in rows(out))


HONEST = {
    ("aten::mm", "pass"): N,
    ("aten::gelu", "pass"): N,
    ("aten::add_.Tensor", "pass"): N,
    ("aten::linear", "pass"): N,
}


def test_honest_device(trace, tmp_path):
    run = check(trace, tmp_path / "out")
    assert run.returncode == 0
    assert verdicts(tmp_path / "out") == HONEST
    assert "8 calls in" in run.stderr and "overhead" not in run.stderr
    assert "overhead" in check(trace, tmp_path / "out", "--verbose").stderr


def test_fault_below_a_composite_is_traced_to_its_operator(trace, tmp_path):
    out = tmp_path / "out"
    # linear is one Python call here: it fails as a whole, and so does its addmm.
    with TraceWriter(tmp_path / "both") as t:
        x, w, b = torch.randn(6, 8), torch.randn(8, 4), torch.randn(4)
        parent = t.add("aten::addmm", b, x, w, composite=True)
        t.add("aten::view", x, [48], parent=parent)
        t.add("aten::addmm", b, x, w, parent=parent)
    run = check(tmp_path / "both", out, fault="addmm=scale")
    assert run.returncode == 1
    (row,) = rows(out)
    assert row["verdict"] == "wrong" and row["culprit"] == "aten::addmm"  # one factor in 24 elements
    assert "3 were captured: 2 are checked within others" in run.stdout
    assert row["cause"] == "the result is multiplied by 1.01"


def test_each_misfortune_costs_one_call(tmp_path):
    trace, out = small_trace(tmp_path / "trace", 1), tmp_path / "out"
    run = check(trace, out, "--timeout", "3", fault="mm=dead,gelu=crash,add_=hang,linear=missing")
    assert run.returncode == 1
    assert verdicts(out) == {
        ("aten::mm", "crashed"): 1,
        ("aten::gelu", "crashed"): 1,
        ("aten::add_.Tensor", "timeout"): 1,
        ("aten::linear", "unsupported"): 1,
    }
    said = {r["op"]: r["sentence"] for r in rows(out)}
    assert "uncorrectable" in said["aten::mm"] and "SIGSEGV" in said["aten::gelu"]
    for row in rows(out):
        assert "float32[6, 8]" in row["args"], row["op"]
        given = json.loads(texts(out, row["call"])["arguments"])
        shapes = {t["path"]: (t["dtype"], t["sizes"], t["strides"]) for t in given}
        assert shapes["args[0]"] == ("float32", [6, 8], [8, 1]), row["op"]
    assert {r["op"]: r["n_elements"] for r in rows(out)}["aten::gelu"] == 48
    with open(out / "result.csv", newline="") as table:
        assert all("float32[6, 8]" in line["args"] for line in csv.DictReader(table))
    excuses = ["--allow", "crashed", "--allow", "timeout:add_"]
    assert report(out, *excuses).returncode != 1
    assert report(out, *excuses, "--strict").returncode == 1
    assert report(out, *excuses[:2]).returncode == 1


def test_little_judged_is_no_success(trace, tmp_path):
    out = tmp_path / "out"
    run = check(trace, out, fault="mm=missing,gelu=missing,add_=missing")
    last, unjudged = run.stdout.splitlines()[-2:]
    assert run.returncode == 2 and "6 not judged (unsupported)" in last
    assert unjudged.startswith("not judged: aten::") and "ulpscope coverage lists" in unjudged
    assert "6 of 8 calls, hence exit code 2; to accept them: --allow unsupported:" in unjudged
    accepts = unjudged.rpartition("--allow ")[2]
    for more, code in (
        (["--allow", accepts], 0),
        (["--min-judged", "25%"], 0),
        (["--min-judged", "0"], 0),
        (["--strict"], 1),
        (["--min-judged", "26"], 2),
        (["--allow", "unsupported"], 0),
        (["--allow", "unsupported:gelu"], 2),
        (["--min-judged", "x"], 2),
    ):
        assert report(out, *more).returncode == code, more


def test_a_trace_that_was_cut_short_is_told(tmp_path):
    trace = small_trace(tmp_path / "trace", 1)
    with closing(sqlite3.connect(trace / "trace.db")) as db, db:
        db.execute("UPDATE meta SET value = '0' WHERE key = 'complete'")
    said = check(trace, tmp_path / "out", "--ops", "mm").stdout
    assert "trace is incomplete: the program ended or died in step 0" in " ".join(said.split())
    assert said.splitlines()[-1] == "ulpscope: the call is not flagged; the trace is incomplete"
    assert "trace is incomplete" in " ".join(report(tmp_path / "out").stdout.split())


def test_ops_selects_and_nothing_selected_is_trouble(trace, tmp_path):
    assert check(trace, tmp_path / "a", "--ops", "mm").returncode == 0
    assert verdicts(tmp_path / "a") == {("aten::mm", "pass"): N}
    assert check(trace, tmp_path / "b", "--ops", "addmm").returncode == 0
    assert verdicts(tmp_path / "b") == {("aten::addmm", "pass"): N}
    run = check(trace, tmp_path / "c", "--ops", "no_such_op")
    assert run.returncode == 2 and "nothing to check" in run.stderr


def test_a_name_among_others_that_matches_nothing_is_no_success(trace, tmp_path):
    run = check(trace, tmp_path / "a", "--ops", "mm,gellu,so*ax")
    assert run.returncode == 2 and verdicts(tmp_path / "a") == {("aten::mm", "pass"): N}
    assert run.stdout.splitlines()[-1].endswith("flagged; no call matches 'gellu', 'so*ax'")
    assert report(tmp_path / "a").returncode == 2
    run = check(trace, tmp_path / "b", "--ops", "mm,gellu", fault="mm=scale")
    assert run.returncode == 1 and run.stdout.splitlines()[-1].endswith("no call matches 'gellu'")


def test_distinct_takes_one_call_per_signature(trace, tmp_path):
    assert check(trace, tmp_path / "out", "--distinct").returncode == 0
    found = rows(tmp_path / "out")
    assert len(found) == 4 and all(r["stands_for"] == N for r in found)


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda c: c.__setitem__(2, "/no/such/trace"), "/no/such/trace"),
        (lambda c: c.__setitem__(4, "warp:0"), "known here: cpu"),
        (lambda c: c.extend(["--import", "no_such_module"]), "no_such_module"),
        (lambda c: c.__setitem__(6, "/dev/null/out"), "/dev/null/out"),
    ],
    ids=["no trace", "no device", "no module", "no folder"],
)
def test_trouble_is_one_sentence(trace, tmp_path, change, words):
    words_of = command(trace, tmp_path / "out")
    change(words_of)
    run = subprocess.run(words_of, capture_output=True, text=True, env=environment())
    assert run.returncode == 2, run.stderr
    # Where torch loads slowly it is told that it does.
    said = [line for line in run.stderr.strip().splitlines() if "workers start" not in line]
    assert words in run.stderr and len(said) == 1, run.stderr


def test_unknown_operator_says_what_to_do(tmp_path):
    with TraceWriter(tmp_path / "trace") as t:
        t.add("not_imported::op", torch.randn(3))
        t.add("aten::relu", torch.randn(3))
    run = check(tmp_path / "trace", tmp_path / "out")
    assert "not_imported::op unknown here" in run.stderr
    sentence = {r["op"]: (r["verdict"], r["sentence"]) for r in rows(tmp_path / "out")}
    assert sentence["not_imported::op"][0] == "unjudged"
    assert "--import" in sentence["not_imported::op"][1]


def test_data_that_was_not_kept_is_unjudged(tmp_path):
    with TraceWriter(tmp_path / "trace", kept=False) as t:
        t.add("aten::relu", torch.randn(3))
    check(tmp_path / "trace", tmp_path / "out")
    (row,) = rows(tmp_path / "out")
    assert row["verdict"] == "unjudged" and "not captured" in row["sentence"]


def test_inputs_that_were_drawn_from_statistics_are_said_to_be(tmp_path):
    with ulpscope.capture(tmp_path / "trace", data="stats"):
        torch.ones(3, 4).exp()
    done = check(tmp_path / "trace", tmp_path / "out", "--ops", "exp")
    assert done.returncode == 0 and "statistics only" in done.stdout
    assert [r["notes"] for r in rows(tmp_path / "out")] == ["made-up inputs"]


def test_out_of_another_run_is_refused(trace, tmp_path):
    out = tmp_path / "out"
    assert check(trace, out, "--ops", "mm").returncode == 0
    run = check(trace, out, "--ops", "gelu")
    assert run.returncode == 2 and str(out) in run.stderr
    assert verdicts(out) == {("aten::mm", "pass"): N}
    assert check(trace, out, "--ops", "gelu", "--force").returncode == 0
    assert verdicts(out) == {("aten::gelu", "pass"): N}


KERNEL = """
import torch
from ulpscope import reference
lib = torch.library.Library("check_anew", "DEF")
lib.define("scaled(Tensor x) -> Tensor")
lib.impl("scaled", lambda x: x * {factor}, "CPU")
reference.register("check_anew::scaled")(lambda x: x * 2)
"""


def test_a_kernel_that_was_edited_since_is_judged_anew(tmp_path):
    kernel, out = tmp_path / "mykern.py", tmp_path / "out"
    with TraceWriter(tmp_path / "trace") as t:
        t.add("check_anew::scaled", torch.randn(64))
    for factor, code, verdict in ((2, 0, "pass"), (3, 1, "wrong"), (2, 0, "pass")):
        kernel.write_text(KERNEL.format(factor=factor))
        run = check(tmp_path / "trace", out, "--import", str(kernel))
        assert run.returncode == code and "resuming" not in run.stderr
        assert [r["verdict"] for r in rows(out)] == [verdict]


def test_a_finished_check_is_replaced_only_when_a_worker_is_ready(trace, tmp_path):
    out, kernel = tmp_path / "out", tmp_path / "broken.py"
    kernel.write_text("")
    assert check(trace, out, "--import", str(kernel)).returncode == 0
    kernel.write_text("raise RuntimeError('does not build')")
    run = check(trace, out, "--import", str(kernel))
    assert run.returncode == 2 and "does not build" in run.stderr
    assert verdicts(out) == HONEST and report(out).returncode == 0


def test_a_check_that_fails_leaves_no_folder(trace, tmp_path):
    run = check(trace, tmp_path / "a/b/c", device="warp:0")
    assert run.returncode == 2 and list(tmp_path.iterdir()) == []
    assert check(trace, tmp_path / "a/b/c", "--ops", "mm").returncode == 0
    assert verdicts(tmp_path / "a/b/c") == {("aten::mm", "pass"): N}


ONE_RUN = ("--repeat", "1")  # a call waits for our word once


def cut_short(trace, out, folder, *more):
    """A check that was interrupted after the second call."""
    slow = Slow(trace, out, folder, *more)
    for _ in range(2):
        slow.wait_for_call()
        slow.let_go()
    slow.wait_for_call()
    slow.run.send_signal(signal.SIGINT)
    slow.run.communicate(timeout=60)
    slow.wait_for_end_of_worker()


def test_what_was_cut_short_goes_on_only_with_what_computed_before(trace, tmp_path):
    out, extra = tmp_path / "out", tmp_path / "extra.py"
    library = tmp_path / "libkernel.so"
    shutil.copy(Path(_core.__file__).parent / "libulpscope_sim.so", library)
    extra.write_text(f"import ctypes, helper_of_it; ctypes.CDLL({str(library)!r})")
    (tmp_path / "helper_of_it.py").write_text("A = 1")
    imports = ("--import", str(extra))
    cut_short(trace, out, tmp_path, *imports)
    before = rows(out)
    (tmp_path / "helper_of_it.py").write_text("A = 2")
    with open(library, "ab") as file:
        file.write(b"built anew")
    run = check(trace, out, *ONE_RUN, *imports, device="python:check_devices:slow")
    assert run.returncode == 2
    assert "helper_of_it.py has changed, libkernel.so has changed; --force" in run.stderr
    assert "--force" in run.stderr and rows(out) == before
    again = Slow(trace, out, tmp_path, *imports, "--force")
    for _ in range(4 * N):
        again.wait_for_call()
        again.let_go()
    message = again.run.communicate(timeout=120)[1]
    assert again.run.returncode == 0 and "resuming" not in message
    assert verdicts(out) == HONEST


def test_a_running_check_can_be_looked_at(trace, tmp_path):
    out = tmp_path / "out"
    slow = Slow(trace, out, tmp_path)
    for _ in range(2):
        slow.wait_for_call()
        slow.let_go()
    slow.wait_for_call()
    said = report(out)
    assert f"of {4 * N} calls, still running" in said.stdout, said
    assert said.returncode == 2 and said.stdout.splitlines()[-1].endswith("still running")
    for _ in range(4 * N - 2):
        slow.let_go()
        slow.wait_for_call() if _ < 4 * N - 3 else None
    slow.run.communicate(timeout=120)
    assert slow.run.returncode == 0 and verdicts(out) == HONEST


def state(process):
    """The letter of a process in /proc; Z where nothing is left of it."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(") ")[2][0]
    except OSError:
        return "Z"


class Slow:
    """A check whose device waits for our word before each call."""

    def __init__(self, trace, out, folder, *more):
        names = [str(folder / name) for name in ("works", "go")]
        for name in names:
            if not os.path.exists(name):
                os.mkfifo(name)
        self.run = subprocess.Popen(
            command(trace, out, *ONE_RUN, *more, device="python:check_devices:slow"),
            stderr=subprocess.PIPE,
            # Forked workers have another parent: only of its own a worker ends with a check that is killed.
            env=environment(CHECK_WORKS=names[0], CHECK_GO=names[1], ULPSCOPE_WARM=""),
            text=True,
        )
        self.names = names

    def wait_for_call(self):
        said = b""
        while not said.endswith(b"."):  # a worker that dies with the fifo open says nothing
            with open(self.names[0], "rb", buffering=0) as works:
                said = works.read(64)
        self.worker = int(said.rstrip(b".").rpartition(b".")[2])

    def wait_for_end_of_worker(self):
        """Of a check that was killed: what still waits would take the word meant for the next."""
        while state(self.worker) != "Z":
            time.sleep(0.01)

    def let_go(self):
        with open(self.names[1], "wb", buffering=0) as go:
            go.write(b".")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_check_goes_on_where_it_stopped(trace, tmp_path, how):
    out = tmp_path / "out"
    slow = Slow(trace, out, tmp_path)
    for _ in range(3):
        slow.wait_for_call()
        slow.let_go()
    slow.wait_for_call()  # the fourth has begun: the third was handed in
    slow.run.send_signal(how)
    message = slow.run.communicate(timeout=60)[1]
    slow.wait_for_end_of_worker()
    if how == signal.SIGINT:
        assert slow.run.returncode == 130 and "the same command goes on" in message
    n_done = len(rows(out))
    assert 2 <= n_done <= 3  # the third may not have been written yet
    again = Slow(trace, out, tmp_path)
    for _ in range(4 * N - n_done):
        again.wait_for_call()
        again.let_go()
    message = again.run.communicate(timeout=120)[1]
    assert again.run.returncode == 0
    assert f"resuming: {n_done} of {4 * N} calls done" in message
    assert verdicts(out) == HONEST


def test_core_reads_back_what_the_worker_needs(trace):
    opened = _core.Trace(str(trace))
    first = opened.call(opened.select()[0])
    assert first["op"] == "aten::mm" and first["module_path"] == "layers.0"
    assert [t["path"] for t in first["tensors"]] == ["args[0]", "args[1]"]


def test_operators_of_a_file_are_imported(tmp_path):
    (tmp_path / "my_ops.py").write_text(
        "import torch\n"
        "lib = torch.library.Library('check_file', 'DEF')\n"
        "lib.define('twice(Tensor x) -> Tensor')\n"
        "lib.impl('twice', lambda x: 2 * x, 'CPU')\n"
        "assert __name__ == 'my_ops'\n"
    )
    with TraceWriter(tmp_path / "trace") as t:
        t.add("check_file::twice", torch.randn(3))
    again = f"{tmp_path}/../{tmp_path.name}/my_ops.py"  # the same file is run once
    run = check(tmp_path / "trace", tmp_path / "out", "--import", str(tmp_path / "my_ops.py"), "--import", again)
    assert run.returncode == 0
    assert verdicts(tmp_path / "out") == {("check_file::twice", "pass"): 1}


# ---- one finding, one rank ----------------------------------------------------------------


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    """Calls 1 to 5 of each of layers.0 and layers.1: mm, gelu, add_, linear (with addmm)."""
    return small_trace(tmp_path_factory.mktemp("steps") / "we#ird", 2)


@pytest.mark.parametrize(
    "name, more, found",
    [
        ("#2", (), [2]),
        ("#5", (), [5]),  # below linear, which is checked as a whole otherwise
        ("#4", (), [4]),
        ("", ("--module", "layers.1"), [6, 7, 8]),
        ("", ("--module", "layers.*", "--ops", "mm,gelu"), [1, 2, 6, 7]),
        ("", ("--phase", "forward", "--step", "0,2-4", "--ops", "gelu"), [2, 7]),
    ],
)
def test_a_check_takes_the_calls_that_show_would_list(steps, tmp_path, name, more, found):
    assert check(f"{steps}{name}", tmp_path / "out", *more).returncode == 0
    assert [r["call"] for r in rows(tmp_path / "out")] == found


@pytest.mark.parametrize(
    "name, more, words",
    [
        ("#77", (), "holds no call 77: it has 1 to 10"),
        ("", ("--step", "3"), "--step '3': nothing to check"),
        ("", ("--step", "3-1"), "--step: '3-1' is no list of steps"),
        ("", ("--ops", "torch.mm"), "did you mean --ops aten::mm?"),
        ("", ("--ops", "aten.addmm.default"), "did you mean --ops aten::addmm?"),
        ("", ("--ops", "GELU"), "did you mean --ops aten::gelu?"),
        ("", ("--timeout", "nan"), "--timeout must be"),
        ("", ("-j", "0"), "-j must be 1 or more"),
        ("", ("--junit", "/no/such/folder/x.xml"), "there is no folder /no/such/folder"),
        ("", ("--min-judged", "101%"), "a share from 0% to 100%"),
    ],
)
def test_what_leaves_nothing_to_check_is_said(steps, tmp_path, name, more, words):
    run = check(f"{steps}{name}", tmp_path / "out", *more)
    assert run.returncode == 2 and words in run.stderr
    assert list(tmp_path.iterdir()) == []


def test_every_rank_of_a_job_is_checked(tmp_path):
    for rank in range(2):
        (tmp_path / "job").mkdir(exist_ok=True)
        small_trace(tmp_path / f"job/rank-{rank}", 1, seed=rank)
    out, junit = tmp_path / "out", tmp_path / "found.xml"
    run = check(tmp_path / "job", out, "--ops", "mm,gelu", "--junit", str(junit), fault="gelu=scale")
    assert run.returncode == 1
    for rank in range(2):
        assert verdicts(out / f"rank-{rank}") == {("aten::mm", "pass"): 1, ("aten::gelu", "wrong"): 1}
        assert (tmp_path / f"found.rank-{rank}.xml").exists()
    said = report(out)
    assert said.returncode == 1 and "rank-0\n" in said.stdout and "rank-1\n" in said.stdout
    # Cut short after the first rank: that one is kept. Finished: all begin anew.
    with closing(sqlite3.connect(out / "rank-1/result.db")) as db, db:
        db.execute("UPDATE run SET value = 'running' WHERE key = 'state'")
    before = (out / "rank-0/result.db").stat().st_mtime_ns
    assert check(tmp_path / "job", out, "--ops", "mm,gelu").returncode == 1
    assert (out / "rank-0/result.db").stat().st_mtime_ns == before
    run = check(f"{tmp_path / 'job'}#1", out)
    assert run.returncode == 2 and "rank-0#1" in run.stderr
