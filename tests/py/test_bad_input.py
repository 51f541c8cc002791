# SPDX-License-Identifier: Apache-2.0
"""What is wrong with input is said in one sentence that names it, with exit code 2, before
anything is lost or half-written without a mark."""

import os
import re
import resource
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import torch
from traces import TraceWriter, small_trace

from ulpscope import _core
from ulpscope.calls import read_call, replay
from ulpscope.program.capture import check_ops

HERE = Path(__file__).parent
DEVICE = "python:check_devices:device"
SHARD = "tensors-00000.safetensors"

TRAIN = """
import torch
net = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for n in range(3):
    net(torch.ones(2, 64)).sum().backward()
    optimizer.step()
"""


def run(folder, *command, limit=None, fault=""):
    """Runs a command in `folder`; `limit` is the most bytes of a file."""

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [*command],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CHECK_FAULT": fault},
        preexec_fn=limited if limit else None,
        stdin=subprocess.DEVNULL,
        timeout=120,
    )
    print(done.stdout, done.stderr)
    return done


def check(folder, *arguments, **options):
    return run(folder, "ulpscope", "check", *arguments, **options)


def capture(folder, *arguments, script=None, options=(), **more):
    if script is not None:
        (folder / "train.py").write_text(script)
        arguments = (sys.executable, "train.py")
    return run(folder, "ulpscope", "capture", *options, "--", *arguments, **more)


def assert_one_sentence(done, *words):
    """Exit code 2 and a single line of the subcommand that has all the words (the glue may
    say that it is compiled, and a slow machine how far it is)."""
    assert done.returncode == 2, done.stderr
    lines = [
        line
        for line in done.stderr.splitlines()
        if line.startswith("ulpscope c") and not re.search(r" of \d+ calls, \d+ flagged| workers start", line)
    ]
    assert len(lines) == 1 and "Traceback" not in done.stderr, done.stderr
    for word in words:
        assert word in lines[0], lines[0]


@pytest.fixture
def trace(tmp_path):
    return small_trace(tmp_path / "trace", 1)


# ---- damaged traces ------------------------------------------------------------------


def cut(name, size):
    return lambda trace: os.truncate(trace / name, size)


def flip(trace):
    """Changes a byte of each run of 64 in the shard's data."""
    data = bytearray((trace / SHARD).read_bytes())
    data[-512::64] = bytes(b ^ 1 for b in data[-512::64])
    (trace / SHARD).write_bytes(data)


def newer(trace):
    with closing(sqlite3.connect(trace / "trace.db")) as db:
        db.execute("PRAGMA user_version = 99")


@pytest.mark.parametrize(
    "damage, words",
    [
        (shutil.rmtree, ("trace: no such folder",)),
        (lambda t: (t / "trace.db").unlink(), ("trace: not a trace",)),
        (lambda t: (t / "trace.db").write_text("junk" * 20), ("trace.db: not a SQLite",)),
        (cut("trace.db", 9000), ("trace.db", "capture it or copy it again")),
        (cut(SHARD, 100), (SHARD, "truncated at byte 100", "capture it or copy it again")),
        (lambda t: (t / SHARD).unlink(), (SHARD, "No such file")),
        (flip, (SHARD, "the bytes of blob", "capture it or copy it again")),
        (newer, ("trace.db", "format 99", "newer ulpscope")),
    ],
    ids=["missing", "no database", "no SQLite", "cut database", "cut shard", "no shard", "changed bytes", "newer"],
)
def test_damaged_trace(trace, tmp_path, damage, words):
    damage(trace)
    assert_one_sentence(check(tmp_path, "trace", "--device", DEVICE), *words)


def test_trace_without_calls(tmp_path):
    with TraceWriter(tmp_path / "empty"):
        pass
    assert_one_sentence(check(tmp_path, "empty", "--device", DEVICE), "empty holds no calls")


# ---- check ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, words",
    [
        (["--bogus"], ("--bogus", "--help")),
        (["--ops", "["], ("pattern '['",)),
        (["--ops", "nosuch"], ("no call of trace matches --ops 'nosuch'",)),
        (["--allow", "bogus"], ("'bogus' is no verdict",)),
        (["--allow", "wrong:["], ("--allow", "pattern '['")),
        (["--timeout", "0"], ("--timeout",)),
        (["--device", ""], ("--device",)),
        (["--faults", "mm:tf32"], ("--faults", "simulated device")),
        (["--device", "sim:0", "--faults", "mm:tf23"], ("no kind 'tf23'", "'tf32'", "nothing was started")),
        (["--device", "sim:0", "--faults", "mm:tf32:nt=3"], ("'nt' is no key", "'nth'", "nothing was started")),
        (["--device", "sim:0", "--faults", "@none"], ("none", "nothing was started")),
        (["-o", "file"], ("file",)),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_bad_options_of_check_are_refused_before_it_runs(trace, tmp_path, options, words):
    (tmp_path / "file").write_text("mine")
    assert_one_sentence(check(tmp_path, "trace", "--device", DEVICE, *options), *words)
    assert not (tmp_path / "ulpscope-out").exists()
    assert (tmp_path / "file").read_text() == "mine"


def test_unknown_device_does_not_block_the_next_run(trace, tmp_path):
    assert_one_sentence(
        check(tmp_path, "trace", "--device", "warp:0"),
        "warp:0",
        "no device type 'warp'",
        "known here",
        "ulpscope doctor --device warp:0",
    )
    assert check(tmp_path, "trace", "--device", DEVICE, "--ops", "mm").returncode == 0
    other = check(tmp_path, "trace", "--device", DEVICE, "--ops", "gelu")
    assert_one_sentence(other, "ulpscope-out", "another run", "-o", "--force")


def test_full_disk_during_a_check_loses_no_result(tmp_path):
    small_trace(tmp_path / "trace", 8)
    full = check(tmp_path, "trace", "--device", DEVICE, "-j", "1", limit=24 << 10)
    assert_one_sentence(full, "result.db", "the same command goes on")
    again = check(tmp_path, "trace", "--device", DEVICE, "-j", "1")
    assert again.returncode == 0
    with closing(sqlite3.connect(tmp_path / "ulpscope-out" / "result.db")) as db:
        assert db.execute("SELECT count(*) FROM verdict").fetchone() == (4 * 8,)


# The fifth call that the device computes is its last.
LOST = """
import torch
from pathlib import Path
from ulpscope.executors.device import TorchDevice

STATE, n, compute, empty = Path({state!r}), [0], TorchDevice.compute, torch.empty


def computed(self, call, bound):
    n[0] += 1
    if n[0] == 5 and STATE.read_text() == "at the fifth call":
        STATE.write_text("lost")
    if STATE.read_text() == "lost":
        raise RuntimeError("the chip fell off the bus")
    return compute(self, call, bound)


def made(*args, **kwargs):
    if STATE.read_text() == "lost" and kwargs.get("device") == "sim:0":
        raise RuntimeError("no such chip")
    return empty(*args, **kwargs)


TorchDevice.compute, torch.empty = computed, made
"""


def test_a_device_that_is_lost_in_the_middle_costs_one_call(tmp_path):
    """Its other calls are not called unsupported, and wait until it is back."""
    small_trace(tmp_path / "trace", 2)
    state = tmp_path / "state"
    state.write_text("at the fifth call")
    (tmp_path / "lost.py").write_text(LOST.format(state=str(state)))
    how = ("trace", "--device", "sim:0", "--import", "lost.py", "-j", "1", "--causes", "off")
    lost = check(tmp_path, *how)
    assert_one_sentence(lost, "not there (no such chip)", "ulpscope doctor", "the same command goes on from there")
    state.write_text("back")
    assert check(tmp_path, *how).returncode == 1
    with closing(sqlite3.connect(tmp_path / "ulpscope-out" / "result.db")) as db:
        found = dict(db.execute("SELECT verdict, count(*) FROM verdict GROUP BY verdict"))
        (why,) = db.execute("SELECT sentence FROM verdict WHERE verdict = 'crashed'").fetchone()
    assert found == {"pass": 7, "crashed": 1}
    assert why.endswith("the device reports: the chip fell off the bus; and then it does nothing any more")


def test_an_exception_of_any_kind_accuses_no_device(trace, tmp_path):
    done = check(tmp_path, "trace", "--device", DEVICE, "--ops", "gelu", "-j", "1", fault="gelu=odd")
    assert "1 unjudged" in done.stdout and "of its own kind" in done.stdout


def test_stand_ins_fill_views_that_show_elements_twice():
    for sizes, strides, n in ([(3, 4), (0, 1), 4], [(3, 4), (0, 0), 1], [(3, 2), (1, 1), 4]):
        raw, values = torch.zeros(n), torch.arange(1.0, 1 + sizes[0] * sizes[1]).reshape(sizes)
        view = replay.View("args[0]", "in", 1, torch.float32, sizes, strides, 0, "cpu")
        read_call._put_view(raw, view, values)
        assert set(raw.tolist()) <= set(values.flatten().tolist()) and raw.all()


# ---- capture -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, words",
    [
        (["--bogus"], ("--bogus", "--help")),
        (["--ops", "["], ("--ops", "pattern '['")),
        (["--steps", "5-2"], ("--steps", "5-2 runs backwards")),
        (["--steps", "x"], ("--steps", "'x' is neither a number nor a range")),
        (["--steps", "0-99999999999"], ("--steps", "more than 1,000,000")),
        (["-o", "file"], ("file is a file", "-o")),
        (["-o", "file/t"], ("file/t", "-o")),
        (["-o", "used"], ("used exists and is not empty", "-o")),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_options_of_capture_are_refused_before_it_runs(tmp_path, options, words):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "notes").write_text("mine")
    assert_one_sentence(capture(tmp_path, "touch", "ran", options=options), *words)
    assert not (tmp_path / "ran").exists()
    assert (tmp_path / "file").read_text() == (tmp_path / "used" / "notes").read_text() == "mine"


OUTPUTS = (  # what a command would write at its end, where nobody can
    ("run", "--watch", "--watch-log", "file/w", "--", "touch", "ran"),
    ("run", "--check", "-o", "file/out", "--", "touch", "ran"),
    ("env", "-o", "file/env", "--", "touch", "ran"),
    ("diff", "nosuch", "nosuch2", "--html", "file/page"),
    ("coverage", "nosuch", "--device", "cpu", "--html", "file/page"),
    ("loss", "nosuch", "nosuch2", "--html", "file/page"),
    ("watch", "nosuch", "--html", "file/page"),
)


@pytest.mark.parametrize("words", OUTPUTS, ids=lambda words: " ".join(words[:2]))
def test_an_output_that_cannot_be_written_is_told_first(tmp_path, words):
    (tmp_path / "file").write_text("mine")
    done = run(tmp_path, "ulpscope", *words)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith(f"ulpscope {words[0]}: -") and done.stderr.endswith(": Not a directory\n")
    assert not (tmp_path / "ran").exists()
    there = tuple("page.html" if word == "file/page" else word.replace("file/", "") for word in words)
    run(tmp_path, "ulpscope", *there)  # what can be written is asked for, and nothing left
    assert not (tmp_path / "page.html").exists() and not (tmp_path / "file" / "out").exists()
    assert ("touch" in words) == (tmp_path / "ran").exists()


def test_commands_that_do_not_run_are_told(tmp_path):
    (tmp_path / "plain.py").write_text("")
    assert_one_sentence(capture(tmp_path, "./plain.py"), "./plain.py is not executable")
    assert_one_sentence(capture(tmp_path, "nosuch"), "command not found: nosuch")
    failing = capture(tmp_path, "sh", "-c", "exit 7")
    assert_one_sentence(failing, "exit code 7", "nothing was recorded")
    assert not (tmp_path / "ulpscope-trace").exists()


def test_pattern_that_matches_no_call(tmp_path):
    done = capture(tmp_path, script=TRAIN, options=["--ops", "nosuch"])
    assert_one_sentence(done, "step 1", "--ops nosuch", "nothing was recorded")
    none = capture(tmp_path, script=TRAIN, options=["--ops", "mm,aten::addmmm", "-o", "none"])
    assert_one_sentence(none, "--ops: this torch has no aten::addmmm; did you mean aten::addmm?")
    assert not (tmp_path / "none").exists()
    some = capture(tmp_path, script=TRAIN, options=["--ops", "nosuch,*,other", "-o", "some"])
    assert some.returncode == 2 and "no call of some matches 'nosuch', 'other' of --ops" in some.stderr
    assert not (tmp_path / "ulpscope-trace").exists()


def test_full_disk_during_a_capture_is_told_and_marked(tmp_path):
    done = capture(tmp_path, script=TRAIN, limit=280_000)  # a shard's header is 256 KiB
    assert_one_sentence(done, "ulpscope-trace", "File too large", "marked incomplete")
    with closing(sqlite3.connect(tmp_path / "ulpscope-trace" / "trace.db")) as db:
        query = "SELECT value FROM meta WHERE key = 'complete'"
        assert db.execute(query).fetchone() == ("0",)
    _core.Trace(str(tmp_path / "ulpscope-trace")).close()


def test_patterns_are_checked():
    check_ops("aten::*mm*,!bmm")
    check_ops(None)
    for bad in ("[", "!,", "a,,b"):
        with pytest.raises(ValueError, match="ops: pattern"):
            check_ops(bad)


def test_an_unknown_instruction_set_stops_the_import():
    def importing(isa):
        return subprocess.run(
            [sys.executable, "-c", "import ulpscope._core"],
            text=True,
            env={**os.environ, "ULPSCOPE_ISA": isa},
            capture_output=True,
        )

    assert importing("scalar").returncode == 0
    done = importing("sse9")
    assert done.returncode == 1
    assert 'ImportError: ULPSCOPE_ISA: instruction set "sse9": scalar, avx2' in done.stderr
