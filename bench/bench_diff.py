# SPDX-License-Identifier: Apache-2.0
"""`ulpscope diff`: time and memory on two traces of the GPT step, by statistics and by data, beside reading
their files, and on two traces of a million calls of which one lacks some."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
STEP = f"""
import sys, torch
sys.path.insert(0, {str(HERE)!r})
from model import TrainingStep
torch.set_num_threads(int(sys.argv[1]))
step = TrainingStep()
for _ in range(2):
    step()
"""


def capture(folder: Path, name: str, threads: int, *options: str) -> Path:
    program = folder / "step.py"
    program.write_text(STEP)
    subprocess.run(
        [
            "ulpscope",
            "capture",
            "-o",
            folder / name,
            "--steps",
            "0",
            *options,
            "--",
            sys.executable,
            program,
            str(threads),
        ],
        check=True,
        capture_output=True,
    )
    return folder / name


def timed(*words: object) -> tuple[float, float, str]:
    """Seconds, peak memory in MB, and the last line of a diff."""
    began = time.perf_counter()
    process = subprocess.Popen(["ulpscope", "diff", *map(str, words)], stdout=subprocess.PIPE, text=True)
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) > 1:
        raise SystemExit("bench diff: the diff failed")
    return time.perf_counter() - began, usage.ru_maxrss / 1024, out.strip().splitlines()[-1]


def reading(*traces: Path) -> tuple[float, float]:
    """Seconds and MB of reading all files of these folders once (they are in the page cache)."""
    room, total, began = bytearray(1 << 20), 0, time.perf_counter()
    for path in [p for trace in traces for p in trace.iterdir()]:
        with path.open("rb", buffering=0) as file:
            while n := file.readinto(room):
                total += n
    return time.perf_counter() - began, total / 1e6


def repeated(trace: Path, name: str, copies: int, lost: float) -> Path:
    """A trace with every row `copies` times, as further steps; of its calls a share is left out."""
    out = trace.parent / name
    shutil.copytree(trace, out)
    base = sqlite3.connect(out / "trace.db")
    base.execute("PRAGMA journal_mode = OFF")
    most = {
        t: base.execute(f"SELECT max({c}) FROM {t}").fetchone()[0]
        for t, c in (("call", "sequence"), ("tensor", "id"), ("version", "id"), ("storage", "id"))
    }
    first = [
        "call WHERE sequence <= :calls",
        "arg WHERE call <= :calls",
        "tensor WHERE id <= :tensors",
        "version WHERE id <= :versions",
        "storage WHERE id <= :storages",
    ]
    new = [
        "sequence + :k * :calls, step + :k, phase, op, module, stack, thread, parent + :k * :calls, args, "
        "state, status, composite",
        "call + :k * :calls, role, path, position, tensor + :k * :tensors",
        'id + :k * :tensors, version + :k * :versions, dtype, sizes, strides, "offset", requires_grad, stats, '
        "form, blob, first",
        "id + :k * :versions, storage + :k * :storages, generation, blob, call + :k * :calls",
        "id + :k * :storages, device, bytes",
    ]
    numbers = {table + "s": n for table, n in most.items()}
    for k in range(1, copies):
        for source, columns in zip(first, new, strict=True):
            base.execute(f"INSERT INTO {source.split()[0]} SELECT {columns} FROM {source}", numbers | {"k": k})
    chance = random.Random(1)
    gone = [(i,) for i in range(1, copies * most["call"] + 1) if chance.random() < lost]
    base.executemany("DELETE FROM call WHERE sequence = ?", gone)
    base.executemany("DELETE FROM arg WHERE call = ?", gone)
    base.execute("UPDATE meta SET value = ? WHERE key = 'id'", (name,))
    base.commit()
    base.close()
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1_000_000, help="of the large traces; 0: leave them out")
    given = parser.parse_args()
    print(f"{'':34}{'s':>7}{'MB':>8}  says")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stats = [capture(folder, f"stats-{n}", n, "--data", "stats") for n in (1, 2)]
        seconds, memory, said = timed(*stats)
        print(f"{'GPT step, statistics':34}{seconds:7.2f}{memory:8.0f}  {said}")
        data = [capture(folder, f"data-{n}", n) for n in (1, 2)]
        seconds, memory, said = timed(*data)
        read, size = reading(*data)
        print(f"{f'GPT step, data ({size:.0f} MB)':34}{seconds:7.2f}{memory:8.0f}  {said}")
        print(f"{'  reading both alone':34}{read:7.2f}{'':8}  {read / seconds:.0%} of that bandwidth")
        if given.calls == 0:
            return 0
        one = sqlite3.connect(stats[0] / "trace.db").execute("SELECT max(sequence) FROM call").fetchone()[0]
        large = [repeated(stats[i], f"large-{i}", given.calls // one + 1, 0.002 * i) for i in range(2)]
        seconds, memory, said = timed(*large)
        print(f"{f'{given.calls:,} calls, 0.2 % lost':34}{seconds:7.2f}{memory:8.0f}  {said}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
