# SPDX-License-Identifier: Apache-2.0
"""The command line: plants faults into trainings, runs hard clean ones and public bugs, prints the tables."""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from . import hard, plant, ranks, tables, traincheck, watched
from .work import DTYPES, WORKS, Training

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build"))
QUICK_S = 16.0  # of trials; the rest of a minute is for all else


def options(arguments: list[str]) -> argparse.Namespace:
    p = argparse.ArgumentParser(prog="./run bench watch", description=__doc__)
    p.add_argument("--quick", action="store_true", help="a minute: some trials, drawn at random, of one process")
    p.add_argument("--seed", type=int, default=0, help="seed of the schedules (default 0)")
    p.add_argument("--repeats", type=int, default=2, help="flips of each field of bits at each site (default 2)")
    p.add_argument("--work", nargs="*", default=list(WORKS), choices=list(WORKS), help="workloads")
    p.add_argument(
        "--minutes", type=float, default=9.0, help="of trials in one process, at the most (default 9; 0: none)"
    )
    p.add_argument(
        "--over",
        type=float,
        default=2.0,
        metavar="MINUTES",
        help="for each of DDP and FSDP2 on 2 and 4 processes (default 2; 0: none)",
    )
    p.add_argument("-j", type=int, default=os.cpu_count(), help="processes for trials of one process")
    p.add_argument("--lines", type=Path, default=BUILD / "watch.jsonl", help="file of JSON lines")
    p.add_argument("--table", type=Path, nargs="*", metavar="FILE", help="only print the tables of files")
    p.add_argument("--one", nargs=3, metavar=("WORK", "DTYPE", "SECONDS"), help=argparse.SUPPRESS)
    return p.parse_args(arguments)


def of_one(work: str, dtype: str, o: argparse.Namespace, seconds: float) -> Iterator[dict[str, Any]]:
    """Trials of one training, in an order drawn at random, until time is up; then its hard clean runs."""
    w = watched.Watched(Training(work, dtype))
    losses, alarms = watched.clean_losses(w)
    until = time.monotonic() + seconds
    yield {
        "run": "clean",
        "work": work,
        "dtype": dtype,
        "kind": "",
        "steps": watched.CLEAN + 5 * watched.WINDOW,
        "alarms": alarms,
        "said": [e.sentence for e in w.early["ours"]],
    }
    planned = plant.trials(w.t, 1, o.seed, o.repeats, watched.CLEAN)
    random.Random(o.seed).shuffle(planned)
    for trial in planned:
        if time.monotonic() > until:
            break
        yield watched.tried(w, trial, losses)
    w.close()
    for name in ("data spike",) if o.quick else hard.SCENARIOS:
        yield hard.run(work, dtype, name, 60 if o.quick else hard.STEPS)


def append(path: Path, rows: Iterator[dict[str, Any]]) -> None:
    """Several processes may append to the file: a line is one write."""
    with path.open("ab", buffering=0) as file:
        for row in rows:
            file.write(json.dumps(row).encode() + b"\n")


def alone(o: argparse.Namespace) -> None:
    """Starts a process for each training, `j` at a time."""
    jobs = [(work, dtype) for work in o.work for dtype in DTYPES]
    random.Random(o.seed).shuffle(jobs)
    j = max(1, min(o.j, len(jobs)))
    seconds = (QUICK_S if o.quick else 60 * o.minutes) * j / len(jobs)
    running: list[subprocess.Popen[bytes]] = []
    while jobs or running:
        while jobs and len(running) < j:
            more = [
                "--one",
                *jobs.pop(),
                str(seconds),
                "--lines",
                str(o.lines),
                "--seed",
                str(o.seed),
                "--repeats",
                str(o.repeats),
            ] + ["--quick"] * o.quick
            running.append(
                subprocess.Popen(
                    [sys.executable, "-m", "bench.watch", *more], cwd=ROOT, env=dict(os.environ, OMP_NUM_THREADS="1")
                )
            )
        running[0].wait(timeout=None if len(running) == j or not jobs else 1)
        for run in [r for r in running if r.poll() is not None]:
            running.remove(run)
            if run.returncode != 0:
                print(f"a training ended with {run.returncode}: {run.args}", file=sys.stderr)


def main(arguments: list[str]) -> int:
    o = options(arguments)
    torch.set_num_threads(1)
    if o.one is not None:
        append(o.lines, of_one(o.one[0], o.one[1], o, float(o.one[2])))
        return 0
    if o.table is not None:
        tables.show([row for path in o.table for row in tables.read(path)])
        return 0
    o.lines.parent.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    o.lines.write_text("")
    if o.quick or o.minutes > 0:
        alone(o)
    trials = time.monotonic() - start
    append(o.lines, iter(traincheck.run(traincheck.ALONE)))
    if not o.quick and o.over > 0:
        ranks.launch("traincheck", 2, o.lines, 0, o.seed)
        for kind, world in (("ddp", 2), ("ddp", 4), ("fsdp2", 2), ("fsdp2", 4)):
            ranks.launch(kind, world, o.lines, 60 * o.over, o.seed)
    tables.show(tables.read(o.lines))
    print(f"\none process: {trials / 60:.1f} minutes; in all {(time.monotonic() - start) / 60:.1f}; lines: {o.lines}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
