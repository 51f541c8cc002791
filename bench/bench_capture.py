# SPDX-License-Identifier: Apache-2.0
"""What capturing costs: the step of model.py plain, with statistics, with all data, and
the interception alone; msprobe (bench/peer.py) beside them.

Every row is measured in this one process, its ratio against plain steps run just before
and after it. `thread`: the same ratio of CPU time on the thread that runs the model, which
other work on the machine hardly changes; `us/call`: what it adds to a call there, `wait`: what of the
wall time was spent waiting for the writer. `durable` counts until everything is on disk. `limit`: the
ratio where each new byte is read once, or read and written, at the speed of this memory.
"""

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

import machine
import peer
import torch
from model import TrainingStep

import ulpscope

REPEATS = 7


def seconds(step):
    """Wall-clock and this thread's CPU seconds of a step."""
    start, busy = time.perf_counter(), time.thread_time()
    step()
    return time.perf_counter() - start, time.thread_time() - busy


def repeated(step, n):
    """`n` steps as one."""
    return lambda: [step() for _ in range(n)]


def median(values):
    return sorted(values)[len(values) // 2]


def captured(step, folder, **options):
    """Seconds of one step inside a capture, as `seconds`, and with the capture's end."""
    with ulpscope.capture(folder, **options) as capture:
        inside, busy = seconds(step)
        start = time.perf_counter()
        capture.recorder.session.flush()
        durable = inside + time.perf_counter() - start
    shutil.rmtree(folder)
    return inside, busy, durable, capture.counts


def row(name, step, folder, n=1, **options):
    """One line of the table; `n` steps count as one, and times are those of a step."""
    plain, thread, inside, busy, durable = [], [], [], [], []
    many = repeated(step, n)
    for _ in range(REPEATS):
        for _ in range(2):
            wall, own = seconds(many)
            plain.append(wall / n)
            thread.append(own / n)
            if len(plain) % 2 == 0:
                continue
            a, b, c, counts = captured(many, folder, **options)
            inside.append(a / n)
            busy.append(b / n)
            durable.append(c / n)
    base, step_s, durable_s = median(plain), median(inside), median(durable)
    return {
        "what": name,
        "plain_ms": base * 1e3,
        "step_ms": step_s * 1e3,
        "ratio": step_s / base,
        "thread_ratio": median(busy) / median(thread),
        "durable_ms": durable_s * 1e3,
        "us_per_call": 1e6 * (median(busy) - median(thread)) * n / counts["calls"] if counts["calls"] else 0,
        "thread_ms": median(thread) * 1e3,
        "n": n,
        "data": options.get("data", ""),
        "wait_ms": counts["wait_ns"] / 1e6 / n,
        "durable_ratio": durable_s / base,
        **counts,
    }


def add_limits(rows):
    """Ratios that the memory allows: what the rows with all data wrote is what the others read."""
    read, copied = machine.bandwidth()
    for r in rows:
        big = not r["what"].startswith(("small", "ten small"))
        new = next(
            (o["bytes_written"] for o in rows if o["data"] == "full" and big != o["what"].startswith("small")), 0
        )
        speed = {"stats": read, "full": copied}.get(r.get("data"))
        if speed and r["n"] == 1:
            r["limit"] = 1 + new / speed / 1e6 / r["thread_ms"]
    return rows


def msprobe_rows(step, folder):
    """msprobe's statistics and tensor tasks at level L1 on the same step."""
    try:
        peer.enable()
        from msprobe.pytorch import PrecisionDebugger
    except (ImportError, RuntimeError) as reason:
        print(f"msprobe is left out: {reason}")
        return []
    rows = []
    for task in ("statistics", "tensor"):
        plain = median([seconds(step)[0] for _ in range(3)])
        debugger = PrecisionDebugger(task=task, level="L1", dump_path=str(folder / task), step=[])
        start = time.perf_counter()
        debugger.start(model=step.model)
        step()
        debugger.stop()
        debugger.step()
        took = time.perf_counter() - start
        PrecisionDebugger._instance = None
        rows.append(
            {
                "what": f"msprobe {task}",
                "plain_ms": plain * 1e3,
                "step_ms": took * 1e3,
                "ratio": took / plain,
                "thread_ratio": 0.0,
                "durable_ms": took * 1e3,
                "durable_ratio": took / plain,
                "calls": 0,
                "bytes_written": 0,
                "n": 1,
            }
        )
    return rows


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        small = TrainingStep(width=32, batch=1, length=8, optimizer={"foreach": False})
        big = TrainingStep(optimizer={"foreach": False})
        for step in (small, big):
            for _ in range(3):
                step()
        rows = [
            row("small step, no operator selected", small, folder / "t", ops="no_such_op"),
            row("small step, stats", small, folder / "t", data="stats"),
            row("small step, full", small, folder / "t", data="full"),
            row("ten small steps, stats", small, folder / "t", 10, data="stats", step_by="optimizer"),
            row("no operator selected", big, folder / "t", ops="no_such_op"),
            row("stats", big, folder / "t", data="stats"),
            row("full", big, folder / "t", data="full"),
            row("ten steps, stats", big, folder / "t", 10, data="stats", step_by="optimizer"),
            row("functions and operators, stats", big, folder / "t", data="stats", level="api,aten"),
            row("functions, stats", big, folder / "t", data="stats", level="api"),
            *msprobe_rows(big, folder),
        ]
        add_limits(rows)
    if "--json" in sys.argv:
        print(json.dumps(rows, indent=1))
        return
    print(
        f"{'':34}{'plain ms':>9}{'step ms':>9}{'ratio':>7}{'thread':>7}{'limit':>7}{'us/call':>8}{'wait':>7}"
        f"{'durable ms':>11}{'ratio':>7}{'calls':>7}{'MB':>7}"
    )
    for r in rows:
        limit = f"{r['limit']:7.2f}" if "limit" in r else f"{'':7}"
        print(
            f"{r['what']:34}{r['plain_ms']:9.1f}{r['step_ms']:9.1f}{r['ratio']:7.2f}"
            f"{r['thread_ratio']:7.2f}{limit}{r.get('us_per_call', 0):8.2f}{r.get('wait_ms', 0):7.1f}"
            f"{r['durable_ms']:11.1f}{r['durable_ratio']:7.2f}{r['calls']:7}{r['bytes_written'] / 1e6:7.0f}"
        )


if __name__ == "__main__":
    main()
