# SPDX-License-Identifier: Apache-2.0
"""What a check over ranks costs beside the judging: c10d's store, a share, a row of a trace and of
results, taking a part in. docs/background/scale.md reckons with it.

    bench_shares.py [--rows N]
"""

import argparse
import datetime
import multiprocessing
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from model import TrainingStep
from torch.distributed import TCPStore

import ulpscope
from ulpscope import shares

CLIENTS, OPERATIONS = 4, 4000


def port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def client(at):
    return TCPStore("127.0.0.1", at, is_master=False, wait_for_workers=False, timeout=datetime.timedelta(seconds=60))


def each(function, n=OPERATIONS):
    """Seconds of one call, the best of three runs."""
    best = float("inf")
    for _ in range(3):
        begin = time.perf_counter()
        for i in range(n):
            function(i)
        best = min(best, (time.perf_counter() - begin) / n)
    return best


def add_many(at, begins, told):
    store = client(at)
    begins.wait()
    begin = time.perf_counter()
    for _ in range(OPERATIONS):
        store.add("many", 1)
    told.put((begin, time.perf_counter()))


def stores(at):
    """{name: seconds}, and operations a second that the server does for several clients."""
    store = client(at)
    found = {
        "add": each(lambda i: store.add("a", 1)),
        "compare_set": each(lambda i: store.compare_set(f"c{i}", "", "1")),
        "check": each(lambda i: store.check(["a"])),
    }
    context = multiprocessing.get_context("spawn")
    begins, told = context.Barrier(CLIENTS), context.Queue()
    ran = [context.Process(target=add_many, args=(at, begins, told)) for _ in range(CLIENTS)]
    for process in ran:
        process.start()
    times = [told.get() for _ in ran]
    for process in ran:
        process.join()
    return found, CLIENTS * OPERATIONS / (max(e for _, e in times) - min(b for b, _ in times))


def share_cost(at):
    """Seconds of claiming a share and telling that it is done."""
    environ = {
        "RANK": "0",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(at),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    one = shares.Shares(shares.ShareRanks(environ))
    area = one.area("out")
    cost = each(lambda i: one.done(area, one.claim(area, 1 << 30)), 1000)
    one.end()
    return cost


def traced(folder):
    """Calls and bytes of trace.db of the model's step with statistics."""
    step = TrainingStep()
    with ulpscope.capture(folder / "t", steps=[0], data="stats") as c:
        step()
        c.step()
    with closing(sqlite3.connect(folder / "t" / "trace.db")) as db:
        calls = db.execute("SELECT count(*) FROM call").fetchone()[0]
    return calls, (folder / "t" / "trace.db").stat().st_size


def timed(*words):
    """Seconds of a command."""
    begin = time.perf_counter()
    done = subprocess.run(
        ["ulpscope", *words], capture_output=True, text=True, env={**os.environ, "ULPSCOPE_PYTHON": sys.executable}
    )
    assert done.returncode in (0, 1), done.stderr
    return time.perf_counter() - begin


def grown(path, n):
    """Repeats what is in a result.db until it has `n` rows; how many it has then."""
    with closing(sqlite3.connect(path)) as db, db:
        rows = db.execute("SELECT count(*) FROM verdict").fetchone()[0]
        numbers = f"WITH RECURSIVE k(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM k WHERE i < {n // rows})"
        for table in ("verdict", "metric", "example"):
            rest = ", ".join(f'"{c[1]}"' for c in db.execute(f"PRAGMA table_info({table})") if c[1] != "call")
            db.execute(f"{numbers} INSERT INTO {table}(call, {rest}) SELECT call + 100000 * i, {rest} FROM {table}, k")
        return db.execute("SELECT count(*) FROM verdict").fetchone()[0] - rows


def results(folder, n):
    """Bytes of a row of results, and seconds of taking in one of `n`, without the report."""
    step = TrainingStep(width=32, layers=1, length=16, vocabulary=64, heads=2)
    with ulpscope.capture(folder / "small", steps=[0]) as c:
        step()
        c.step()
    out, part = folder / "out", folder / "out" / "part-1"
    check = "check", folder / "small", "--device", "cpu", "--distinct", "-j", "1", "-o", out
    timed(*check)
    shutil.copytree(out, folder / "part")
    more = grown(folder / "part" / "result.db", n)
    size = (folder / "part" / "result.db").stat().st_size / more
    took = []
    for parts in (False, True):
        with closing(sqlite3.connect(out / "result.db")) as db, db:
            db.execute("UPDATE run SET value = 'running' WHERE key = 'state'")
        if parts:
            shutil.move(folder / "part", part)
        took.append(timed(*check) - timed("report", out))
    if (part / "result.db").exists():
        print(subprocess.run(["ulpscope", *check], capture_output=True, text=True).stderr)
    return size, max(took[1] - took[0], 0) / more


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=100_000)
    options = parser.parse_args()
    at = port()
    server = TCPStore("127.0.0.1", at, is_master=True, wait_for_workers=False)
    times, served = stores(at)
    for name, seconds in times.items():
        print(f"store {name:<12} {seconds * 1e6:8.0f} us")
    print(f"store, {CLIENTS} clients  {served:8.0f} operations a second")
    print(f"a share            {share_cost(at) * 1e6:8.0f} us to claim it and tell that it is done")
    with tempfile.TemporaryDirectory() as name:
        calls, size = traced(Path(name))
        print(f"a trace            {size / calls:8.0f} bytes a call beside the data ({calls} calls)")
        row, adopted = results(Path(name), options.rows)
        print(f"results            {row:8.0f} bytes a call")
        print(f"taken in           {adopted * 1e6:8.0f} us a call")
    del server


if __name__ == "__main__":
    main()
