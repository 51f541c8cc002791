# SPDX-License-Identifier: Apache-2.0
"""A capture that is ended from outside. Killed without warning, it keeps every call that
was handed over before the promised window; interrupted, it says what it left. The same
for a check: the same command goes on, and finds what an undisturbed one finds."""

import json
import os
import random
import re
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import textwrap
import time
from contextlib import closing
from pathlib import Path

import pytest
from test_capture import base, read
from traces import small_trace

from ulpscope import _core

HERE = Path(__file__).parent
# As docs/reference/trace-format.md promises: what is lost is not older than the one, or not further
# back than the other.
WINDOW_NS = 200_000_000
WINDOW_BYTES = 64 << 20
REPORT = struct.Struct("=qq")
ENVIRONMENT = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
}

# Call n clamps to n. What a report names was handed over before the report was made.
ENDLESS = """
import os, struct, sys, time, torch, ulpscope
torch.set_grad_enabled(False)
with ulpscope.capture(sys.argv[1], ops="clamp"):
    x, other = torch.zeros(int(sys.argv[3])), torch.ones(20000)
    n = 0
    while True:
        n += 1
        for _ in range(int(sys.argv[4])):  # not recorded: the writer has time
            other.exp()
        torch.clamp(x, n)
        os.write(int(sys.argv[2]), struct.pack("=qq", n, time.monotonic_ns()))
"""


def killed_after(path, seconds, n_elements=16, pause=3):
    """Reports of a capture that was killed: (n, when), and when it was killed."""
    read, write = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-c", ENDLESS, str(path), str(write), str(n_elements), str(pause)],
        pass_fds=[write],
        env=ENVIRONMENT,
    )
    os.close(write)
    data, deadline = b"", None
    with os.fdopen(read, "rb", buffering=0) as reports:
        while deadline is None or time.monotonic_ns() < deadline:
            more = reports.read(1 << 16)
            assert more, f"the child ended by itself with {child.wait()}"
            data += more
            if len(data) >= REPORT.size:
                deadline = REPORT.unpack_from(data)[1] + int(seconds * 1e9)
        killed = time.monotonic_ns()
        child.kill()
        while more := reports.read(1 << 16):
            data += more
    assert child.wait() == -signal.SIGKILL
    whole = len(data) // REPORT.size * REPORT.size
    return list(REPORT.iter_unpack(data[:whole])), killed


def clamped_in(path):
    """The numbers of the calls in a trace, by their argument."""
    trace = _core.Trace(str(path))
    found = set()
    for sequence in trace.select(ops="clamp"):
        call = trace.call(sequence)
        for tensor in call["tensors"]:
            assert len(trace.blob(tensor["blob"])) == tensor["storage_bytes"]  # and its hash
        if call["status"] == "ok":
            found.add(json.loads(call["args"])["args"][1])
    return found


def complete(path):
    with closing(sqlite3.connect(path / "trace.db")) as db:
        (whole,) = db.execute("SELECT value FROM meta WHERE key = 'complete'").fetchone()
        return whole, [row[0] for row in db.execute("SELECT complete FROM step")]


def lost_of_the_old(path, n_elements, pause):
    """Kills a capture; what must hold however busy the machine is does. Returns how many calls
    older than the window are lost: a machine that runs none of our threads for a while can
    make the writer late."""
    seconds = random.SystemRandom().uniform(0.5, 0.9)
    reports, killed = killed_after(path, seconds, n_elements, pause)
    # Where the writer keeps up the time alone bounds the loss, whatever the bytes.
    n_window = 0 if pause else WINDOW_BYTES // (4 * n_elements)
    old = {n for n, when in reports if when < killed - WINDOW_NS and n < reports[-1][0] - n_window}
    found = clamped_in(path)
    print(f"killed after {seconds}:", len(reports), "reported,", len(old), "older than the window,", len(found), "kept")
    assert found == set(range(1, len(found) + 1))  # nothing is lost in between
    assert complete(path) == ("0", [0])
    return len(old - found) if found and (old or not pause) else None


@pytest.mark.parametrize(
    "n_elements, pause", [(16, 3), (4096, 0), (1 << 18, 0)], ids=["writer keeps up", "many bytes", "large tensors"]
)
def test_a_killed_capture_keeps_what_is_older_than_the_window(tmp_path, n_elements, pause):
    # A writer that is late for another reason is late each time.
    assert 0 in (lost_of_the_old(tmp_path / str(i), n_elements, pause) for i in range(4))


def test_a_call_that_is_lost_would_be_noticed(tmp_path):
    killed_after(tmp_path / "t", 0.4)
    assert _core.Trace(str(tmp_path / "t")).select()  # recovers it
    with closing(sqlite3.connect(tmp_path / "t" / "trace.db")) as db, db:
        db.execute("DELETE FROM call WHERE sequence = (SELECT max(sequence) FROM call) / 2")
    found = clamped_in(tmp_path / "t")
    assert found and found != set(range(1, len(found) + 1))


def test_a_machine_that_died_costs_what_was_not_on_disk(tmp_path):
    places = []
    while len(places) < 8:  # a shard that was just begun, or is about to be: another
        shutil.rmtree(tmp_path / "t", ignore_errors=True)
        killed_after(tmp_path / "t", 0.4, 4096)
        part = next((tmp_path / "t").glob("tensors-*.part"), None)
        if part is None:
            continue
        number = int(part.name.split(".")[0].removeprefix("tensors-"))
        with closing(sqlite3.connect(tmp_path / "t" / "trace.db")) as db:
            rows = db.execute('SELECT "offset" FROM blob WHERE shard = ? ORDER BY id', (number,))
            places = [place for (place,) in rows]
    with open(part, "r+b") as shard:  # the second half of what it has for calls never was written
        shard.seek(places[len(places) // 2])
        shard.write(bytes(max(part.stat().st_size - shard.tell(), 0)))
    show = subprocess.run(["ulpscope", "show", "t"], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True)
    assert show.returncode == 0, show.stderr
    said = re.search(
        r"calls from (\d+) on were not yet on disk when the machine stopped: "
        r"(\d+) lost, (\d+) kept",
        show.stderr,
    )
    first, n_lost, n_kept = map(int, said.groups())
    assert (n_kept, first) == (first - 1, len(clamped_in(tmp_path / "t")) + 1) and n_lost > 2
    assert complete(tmp_path / "t") == ("0", [0])
    check = subprocess.run(
        ["ulpscope", "check", "t#2", "--device", "cpu", "-o", "o", "-j", "1"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
    )
    assert check.returncode == 0 and said[0] in " ".join(check.stdout.split()), check


TRAIN = """
import torch
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for n in range(3):
    net(torch.ones(2, 4)).sum().backward()
    if n == {stop}:
        print("here", flush=True)
        while True:
            pass
    optimizer.step()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_an_interrupted_capture_says_what_it_left(tmp_path, number):
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(TRAIN.format(stop=2)))
    run = subprocess.Popen(
        ["ulpscope", "capture", "--steps", "1,2", "-o", "t", "--", sys.executable, str(script)],
        cwd=tmp_path,
        env=ENVIRONMENT,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert run.stdout.readline() == "here\n"
    run.send_signal(number)
    said = run.communicate(timeout=60)[1].strip().splitlines()[-1]
    assert run.returncode == 128 + number
    assert f"was killed by {number.name}" in said and "are in t, marked incomplete" in said
    whole, steps = complete(tmp_path / "t")
    assert whole == "0"
    if number == signal.SIGINT:  # Python ends in order; the other may take the window along
        assert steps == [1, 0]
        assert _core.Trace(str(tmp_path / "t")).call(1)["step"] == 1


# ---- check ---------------------------------------------------------------------------


def command(trace, out, device):
    return ["ulpscope", "check", str(trace), "--device", f"python:check_devices:{device}", "-o", str(out), "-j", "1"]


def findings(out):
    """result.db without times, as rows."""
    with closing(sqlite3.connect(f"file:{out}/result.db?mode=ro", uri=True)) as db:
        names = [row[1] for row in db.execute("PRAGMA table_info(verdict)")]
        kept = ", ".join(n for n in names if not n.startswith("t_"))
        tables = [db.execute(f"SELECT {kept} FROM verdict ORDER BY call")]
        tables += [db.execute(f"SELECT * FROM {t} ORDER BY 1, 2, 3") for t in ("metric", "example")]
        return [table.fetchall() for table in tables]


def test_a_killed_check_ends_as_an_undisturbed_one(tmp_path):
    trace = small_trace(tmp_path / "trace", 1)
    fifos = {name: str(tmp_path / name) for name in ("CHECK_WORKS", "CHECK_GO")}
    for fifo in fifos.values():
        os.mkfifo(fifo)
    slow = command(trace, tmp_path / "out", "slow") + ["--repeat", "1"]
    with open(tmp_path / "said", "w") as said:
        run = subprocess.Popen(slow, stderr=said, stdout=said, env={**ENVIRONMENT, **fifos})
    # Both ends stay open here, so that neither side waits for the other to come.
    with open(fifos["CHECK_GO"], "r+b", buffering=0) as go, open(fifos["CHECK_WORKS"], "r+b", buffering=0) as works:
        works.read(1)
        go.write(b".")
        works.read(1)  # the second call has begun
        run.kill()
        run.wait(60)
        go.write(b"." * 100)
        subprocess.run(slow, env={**ENVIRONMENT, **fifos}, timeout=120, capture_output=True)
    subprocess.run(
        command(trace, tmp_path / "calm", "slow"),
        timeout=120,
        capture_output=True,
        env={**ENVIRONMENT, "CHECK_WORKS": os.devnull, "CHECK_GO": "/dev/zero"},
    )
    assert findings(tmp_path / "calm")[0]
    assert findings(tmp_path / "out") == findings(tmp_path / "calm")


@pytest.mark.parametrize("calls_before", [5, 60, 300])
def test_a_killed_capture_leaves_a_readable_trace(tmp_path, calls_before):
    code = textwrap.dedent(f"""
        import os, signal, sys, torch, ulpscope
        with ulpscope.capture({str(tmp_path / "t")!r}) as c:
            x = torch.ones(1000)
            for i in range({calls_before}):
                x = x + 1
            c.recorder.session.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        """)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    adds = [c for c in read(tmp_path / "t") if base(c) == "aten::add"]
    assert len(adds) == calls_before
