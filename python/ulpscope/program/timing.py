# SPDX-License-Identifier: Apache-2.0
"""How long operators take while a program trains, by operator and phase.

`time_ops` is the public context manager; glue/intercept/reroute_time.cpp takes the times."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ..calls.shown import counted
from . import reroute as _reroute

if TYPE_CHECKING:
    from collections.abc import Iterable
    from . import capture as _capture
    from . import program_mode as _mode


@dataclasses.dataclass(frozen=True)
class OpTime:
    """The calls of one operator in one phase, in milliseconds."""

    op: str
    phase: str  # "forward", "backward", "optimizer"
    n_calls: int
    total_ms: float
    mean_ms: float
    most_ms: float
    clock: str  # "device": its events; "host": the clock around the call


class time_ops(_reroute.Rerouted):  # noqa: N801 - it is used like a function
    """
    Takes the time of each operator call while the block runs.

        with ulpscope.time_ops() as times:
            train()
        print(times.table())

    Forward, backward and optimizer are told apart. On a device with timed events the time is the
    device's own, between two events in its stream, read when it is asked for: the program does
    not wait. Elsewhere it is the clock's, around the call, with the stream waited for. An
    operator that calls others contains their time; composite ones are shown by what they call.

    `ops`: a PATTERN; `steps`, `ranks`, `modules`, `threads`, `step_by` as in `fallback`. `.rows()`: a list
    of `OpTime`, the slowest in all first. Raises ValueError for bad arguments.
    """

    def __init__(
        self,
        ops: str = "*",
        steps: _capture.Steps = None,
        ranks: _mode.Numbers = None,
        threads: _mode.Numbers = None,
        step_by: str | None = None,
        modules: str | None = None,
    ) -> None:
        super().__init__("time", ops, steps, ranks, modules, threads, step_by)
        self.NOUN = "time_ops()"
        self.earlier: dict[tuple[str, str], tuple[int, float, float, bool]] = {}  # of blocks that ended

    def rows(self) -> list[OpTime]:
        """The operators so far, the slowest in all first."""
        total = dict(self.earlier)
        _add(total, self.route.times() if self.route else [])
        rows = [
            OpTime(op, phase, n, ms, ms / n, most, "device" if event else "host")
            for (op, phase), (n, ms, most, event) in total.items()
        ]
        return sorted(rows, key=lambda r: -r.total_ms)

    def table(self, most: int = 20) -> str:
        """The slowest `most` operators as text, with what share of all they took."""
        rows = self.rows()
        total = sum(r.total_ms for r in rows) or 1.0
        width = max([len(r.op) for r in rows[:most]], default=8)
        lines = [
            f"{'operator':<{width}}  {'phase':<9} {'calls':>7} {'total ms':>10} {'mean ms':>9} "
            f"{'longest':>9} {'share':>6}"
        ]
        lines += [
            f"{r.op:<{width}}  {r.phase:<9} {r.n_calls:>7} {r.total_ms:>10.3f} {r.mean_ms:>9.4f} "
            f"{r.most_ms:>9.4f} {r.total_ms / total:>6.1%}"
            for r in rows[:most]
        ]
        if len(rows) > most:
            lines.append(f"and {len(rows) - most} more")
        return "\n".join(lines)

    def _told(self) -> str:
        rows = self.rows()
        return f"{counted(sum(r.n_calls for r in rows), 'call')} in {sum(r.total_ms for r in rows):.3f} ms"

    def _titles_and_rows(self) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
        rows: list[tuple[object, ...]] = [
            (r.op, r.phase, r.n_calls, r.total_ms, r.mean_ms, r.most_ms, r.clock) for r in self.rows()
        ]
        return ("operator", "phase", "calls", "total ms", "mean ms", "longest", "clock"), rows

    def _close(self) -> None:
        if self.route is not None:
            _add(self.earlier, self.route.times())
        super()._close()


def _add(
    total: dict[tuple[str, str], tuple[int, float, float, bool]],
    rows: Iterable[tuple[str, str, int, float, float, bool]],
) -> None:
    for op, phase, n, ms, most, event in rows:
        before = total.get((op, phase), (0, 0.0, 0.0, event))
        total[op, phase] = (before[0] + n, before[1] + ms, max(before[2], most), event)
