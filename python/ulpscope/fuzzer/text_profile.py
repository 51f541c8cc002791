# SPDX-License-Identifier: Apache-2.0
"""`@ulpscope.fuzz(profile=True)`: how long each operator of a text takes on the device and on the CPU, by the
clock of `time_ops`. No verdict. Needs of torch autograd."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..calls.gradients import with_gradients
from ..program.timing import time_ops
from .tape import Tape
from .text_case import Refused, replayed

REPEATS = 5  # of each case on each side, after one that is not counted


def profiled(
    function: Callable[..., Any], seed: int, cases: Iterable[int], device: Any, args: Sequence[Any], backward: bool
) -> list[dict[str, Any]]:
    """[{op, phase, calls, device_ms, cpu_ms, ratio}] of the cases that the CPU takes: sums of the medians of each, the
    slowest first."""
    total = defaultdict(lambda: {"calls": 0, "device_ms": 0.0, "cpu_ms": 0.0})
    for case in cases:
        try:
            program, leaves, has = replayed(function, Tape(seed, case), device, args)
        except Refused:
            continue
        program = with_gradients(program) if backward and has else program
        for side, place in (("cpu_ms", "cpu"), ("device_ms", device)):
            for key, (calls, ms) in _medians(
                program, [t.detach().to(place).requires_grad_(t.requires_grad) for t in leaves]
            ).items():
                total[key][side] += ms
                total[key]["calls"] += calls if place == device or device == "cpu" else 0
    rows = [
        {"op": op, "phase": phase, **row, "ratio": row["device_ms"] / row["cpu_ms"] if row["cpu_ms"] else None}
        for (op, phase), row in total.items()
    ]
    return sorted(rows, key=lambda row: -row["device_ms"])


def _medians(program, leaves):
    """(operator, phase) -> (calls, milliseconds of one run)."""
    runs = defaultdict(list)
    program(*leaves)
    for _ in range(REPEATS):
        with time_ops() as times:
            program(*leaves)
        for row in times.rows():
            runs[row.op, row.phase].append((row.n_calls, row.total_ms))
    return {key: (found[0][0], statistics.median(ms for _, ms in found)) for key, found in runs.items()}


def table(name: str, device: str, rows: list[dict[str, Any]]) -> str:
    """The rows as text."""
    width = max([len(r["op"]) for r in rows], default=8)
    lines = [
        f"{name} on {device} and on the CPU, milliseconds; no verdict",
        f"{'operator':<{width}}  {'phase':<9} {'calls':>6} {'device':>10} {'CPU':>10} {'ratio':>7}",
    ]
    for r in rows:
        ratio = f"{r['ratio']:.2f}" if r["ratio"] is not None else "-"
        lines.append(
            f"{r['op']:<{width}}  {r['phase']:<9} {r['calls']:>6} {r['device_ms']:>10.4f} {r['cpu_ms']:>10.4f} "
            f"{ratio:>7}"
        )
    return "\n".join(lines)
