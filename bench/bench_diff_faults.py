# SPDX-License-Identifier: Apache-2.0
"""Does `ulpscope diff` name the operator at fault? One of two runs of a training step gets one fault at one call
by chance; every kind of the simulated device many times. Honest runs with other thread counts must name none."""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

import torch
from model import TrainingStep

import ulpscope
import ulpscope.sim

KINDS = ("tf32", "bf16_inputs", "fp16_inputs", "bf16_intermediates", "bf16_output", "fp16_output", "truncate", "scale",
         "offset", "step_plus_one", "nan", "inf", "zero_one", "bit_flip", "swap_two", "drop_tail", "stale_tail")  # fmt: skip
OPTIONS = ["--no-judge"]
SMALL = {"vocabulary": 64, "width": 32, "layers": 2, "heads": 2, "length": 16, "batch": 2}


def record(path: Path, device: str, fault: tuple | None = None, data: str = "full") -> Path:
    """One step captured from the same start, with a fault at the n-th call of an operator."""
    shutil.rmtree(path, ignore_errors=True)
    step = TrainingStep(device=device, **SMALL)
    planted = ulpscope.sim.fault(fault[0], fault[1], nth=fault[2]) if fault else contextlib.nullcontext()
    with planted, ulpscope.capture(path, steps=0, data=data):
        step()
    return path


def diff(a: Path, b: Path) -> dict:
    done = subprocess.run(["ulpscope", "diff", a, b, "--json", "--all", *OPTIONS], capture_output=True, text=True)
    if done.returncode > 1:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def computing(trace: Path) -> dict[str, list[int]]:
    """Calls on the device by operator, those that give float numbers and are no views; not clone, which runs
    inside of others (masked_fill) as well."""
    base = sqlite3.connect(trace / "trace.db")
    rows = base.execute(
        "SELECT DISTINCT c.sequence, o.name FROM call c JOIN op o ON o.id = c.op JOIN arg a ON a.call = c.sequence "
        "JOIN tensor t ON t.id = a.tensor JOIN version v ON v.id = t.version "
        "JOIN storage s ON s.id = v.storage WHERE s.device LIKE 'sim%' AND a.role <> 'in' AND "
        "t.dtype LIKE 'float%' AND v.call = c.sequence AND c.composite = 0 "
        "ORDER BY c.sequence")  # fmt: skip
    found = defaultdict(list)
    for sequence, name in rows:
        if not name.startswith(("aten::empty", "aten::clone")):
            found[name.split(".")[0]].append(sequence)
    base.close()
    return found


def outcome(found: dict, call: int) -> str:
    """Of the faulty call: what the diff made of it, and whether it is the one that it named."""
    row, first = next(r for r in found["rows"] if r["call_a"] == call), found["first"]
    if row["kind"] == "same" and found["same"]:
        return "no effect"
    if first is not None and first["call_a"] == row["call_a"]:
        return "named"
    if first is None:
        return "within rounding"
    return "another"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12, help="faults of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", choices=("full", "stats"), default="full")
    parser.add_argument("--judge", action="store_true", help="run accused calls again, as diff does (slower)")
    given = parser.parse_args()
    if given.judge:
        OPTIONS.clear()
    chance = random.Random(given.seed)
    counts, others = defaultdict(Counter), []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        honest = record(folder / "honest", "sim:0", data=given.data)
        counts["honest, again"]["nobody named" if diff(honest, record(folder / "again", "sim:0", data=given.data))[
            "same"] else "another"] += 1  # fmt: skip
        calls = computing(honest)
        for kind in KINDS:
            for _ in range(given.rounds):
                op = chance.choice(sorted(calls))
                n = chance.randrange(len(calls[op])) + 1
                bad = record(folder / "bad", "sim:0", (op, kind, n), given.data)
                found = diff(honest, bad)
                said = outcome(found, calls[op][n - 1])
                counts[kind][said] += 1
                if said == "another":
                    others.append((kind, op, n, "not", found["first"]["op"]))
        one = record(folder / "one", "cpu")
        for threads in (1, 2, 3, 4):
            torch.set_num_threads(threads)
            counts[f"honest, {threads} threads"][
                "nobody named" if diff(one, record(folder / "more", "cpu"))["same"] else "another"] += 1  # fmt: skip
    columns = ("named", "another", "within rounding", "no effect", "nobody named")
    print("| fault | " + " | ".join(columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for kind, count in counts.items():
        print(f"| {kind} | " + " | ".join(str(count[c]) if count[c] else "" for c in columns) + " |")
    total = sum((counts[k] for k in KINDS), Counter())
    acted = total["named"] + total["another"] + total["within rounding"]
    print(f"\nnamed first: {total['named']} of {acted} that changed anything, "
          f"{total['named']} of {total['named'] + total['another']} beyond rounding")  # fmt: skip
    for other in others:
        print("another was named:", *other)
    return 0


if __name__ == "__main__":
    sys.exit(main())
