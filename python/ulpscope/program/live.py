# SPDX-License-Identifier: Apache-2.0
"""Every operator judged while a program trains.

`live_check` is the public context manager. Calls are recorded as in a capture, into small traces
in a private folder; a process of its own (`live_judge`) judges what the run got, and removes
them. The program waits for nothing but the copy: what is beyond `ROOM` bytes in flight is left out
and counted. Needs of torch what a capture needs.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import json
import math
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ..calls.foreign import InternalError, strictly, unhurt
from ..calls.functions import handing, references
from . import capture as _capture
from . import program_mode as _mode
from .scalars import Scalars, ScalarsTo
from .live_process import NO_ROOM, Finding, JudgeProcess, end_later  # noqa: F401 - Finding is found here

ROOM = 192 << 20  # bytes that are recorded and not judged
LEAST = 16 << 20  # bytes for which a trace is worth its while
WAIT_S = 1.0  # after which one is handed over however small it is
RING = 256 << 20
KIND = "live: "  # begins the name of a result's trace
FAILS = ("record", "raise", "dump")


class CheckFailed(ArithmeticError):
    """A call does not pass, and `live_check(on_fail="raise")` says so where a step ends. `finding`
    is the first of them."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.sentence)
        self.finding = finding


def _claim(output: Any) -> None:
    """Raises FileExistsError where OUT holds what no live check left."""
    from .. import _core

    try:
        _core.claim(str(output), KIND)
    except _core.UlpscopeError as problem:
        raise FileExistsError(f"{problem}; name another folder, or force=True to replace it") from None


def _absolute(imports: Iterable[Any]) -> list[str]:
    """Modules by name, files by their paths."""
    if isinstance(imports, str):
        raise ValueError(f"imports {imports!r}: a list of modules and files")
    return [str(Path(name).absolute()) if str(name).endswith((".py", ".so")) else str(name) for name in imports]


class live_check(_mode.ProgramMode):  # noqa: N801 - it is used like a function
    """
    Judges what every operator gives while the block runs: forward, backward, optimizer.

        with ulpscope.live_check() as live:
            train()
        for finding in live.findings():
            print(finding.sentence)

    The verdict is that of `ulpscope check`, on what the run itself got: nothing is computed twice
    on the device. It comes behind the step, from a process of its own that needs a core; where it
    does not keep up, calls are left out and counted in `live.skipped`; the next steps begin with
    those. `live.left_out` has the reasons. `live.judged` is how many got a verdict on their numbers so far,
    `live.unjudged` how many were looked at and got none; `live.summary()` says what and why, and what helps.
    `findings()` may be called in the block, too: it waits for what is pending.

    `ops`: a PATTERN of operators; `steps`, `ranks`, `modules`, `threads`, `step_by`: as in
    `nan_tracker`, beside which, as beside a capture, it may run. `every`: each
    so many steps one is checked. `distinct`: of each step one call of a signature (operator and
    forms of its arguments). `budget`: seconds of judging, or below 1 the share of the time. `causes`:
    seconds for the search for the cause of a finding. `level`: "operator"; "module", where the
    forward of each nn.Module is judged as one function, from its own inputs on, so that an error
    of the modules before does not count. `inputs`: "device", those that it had; "reference", those
    that exact arithmetic gives it, on which the judge runs it once more on the device: numbers that an
    early error spoils (NaN) hide nothing then. The program itself goes on as it is.

    `imports`: modules by name, or files, that the judge is to import: what registers operators or
    references. What `reference.register` was given in this program it is handed by itself.

    `on_fail`: "record"; "raise", a `CheckFailed` where a step ends behind which a finding came;
    "dump", the recorded calls around it are kept in OUT; or a function, called where a step ends
    with each finding. `output`: the folder OUT, for `ulpscope report`; of several ranks
    OUT/rank-N each. Results of an earlier live check there are replaced, others with `force`.

    `scalars`: a function that is called as steps end with ({"ulpscope/judged": ..., "ulpscope/unjudged": ...,
    "ulpscope/accused": ..., "ulpscope/least_bits": ...}, step=step), counts of all steps so far, as wandb.log and
    mlflow.log_metrics are; or a folder, for TensorBoard. Of several ranks the first tells.

    Where it fails the program goes on without: it is said on stderr, and `live.error` holds
    the sentence. Raises ValueError for bad arguments, FileExistsError where OUT holds other results.
    """

    NOUN = "the live check"
    UNSEEN = "judged"

    def __init__(
        self,
        ops: str | None = None,
        steps: _capture.Steps = None,
        ranks: _mode.Numbers = None,
        step_by: str | None = None,
        every: int = 1,
        distinct: bool = False,
        budget: float | None = None,
        on_fail: str | Callable[[Finding], object] = "record",
        output: str | os.PathLike[str] | None = None,
        causes: float = 2.0,
        level: str = "operator",
        modules: str | None = None,
        threads: _mode.Numbers = None,
        force: bool = False,
        inputs: str = "device",
        imports: Iterable[str | os.PathLike[str]] = (),
        scalars: ScalarsTo = None,
    ) -> None:
        if inputs not in ("device", "reference"):
            raise ValueError(f"inputs {inputs!r}: 'device' or 'reference'")
        if inputs == "reference" and level != "module":
            raise ValueError("inputs 'reference' are for modules: level=\"module\"")
        if level not in ("operator", "module"):
            raise ValueError(f"level {level!r}: 'operator' or 'module'")
        if level == "module" and ops is not None:
            raise ValueError("a module is judged with all its operators: leave out ops, or the level")
        if on_fail not in FAILS and not callable(on_fail):
            raise ValueError(f"on_fail {on_fail!r}: 'record', 'raise', 'dump' or a function")
        if on_fail == "dump" and output is None:
            raise ValueError("on_fail 'dump' keeps calls in OUT: name it, output=\"ulpscope-out\"")
        if not isinstance(every, int) or every < 1:
            raise ValueError(f"every {every!r}: 1 for each step, 10 for each tenth")
        if budget is not None and not budget > 0:
            raise ValueError(f"budget {budget!r}: seconds, or a share below 1")
        super().__init__(_mode.Scope(ops, steps, ranks, modules, threads, step_by))
        self.every, self.distinct, self.on_fail = every, bool(distinct), on_fail
        self.output = None if output is None else Path(output).absolute()
        if output is not None and not force:
            _claim(self.output)
        self.level = level
        self.settings = {
            "budget": budget,
            "causes": float(causes),
            "dump": on_fail == "dump",
            "level": level,
            "distinct": self.distinct,
            "inputs": inputs,
            "imports": _absolute(imports),
        }
        self.scalars, self.last_step = Scalars(scalars, self.NOUN), 0
        self.judge: Any = None  # a JudgeProcess from the first step on
        self.recorder: Any = None  # a capture.Recorder, while a trace is recorded
        self.out: Any = None
        self.base = 0  # calls of the traces so far
        self.handed: dict[str, Any] = {}  # op -> reference that the judge has
        self.n_left = 0  # calls that there was no room for
        self.turn, self.stuck = 0, False  # so many of the next trace had their turn
        self.n_traces = self.n_told = self.n_remarks = 0
        self.since = 0.0

    # ---- what it says ----

    def findings(self) -> list[Finding]:
        """What does not pass so far, as a list of `Finding`, in the order in which it was judged.
        Waits for all that was recorded."""
        if self.judge is None:
            return []
        with self._guarded():
            if self.recorder is not None:
                step = self.recorder.step
                self._hand_over()
                if step is not None and self.open:
                    self._begin(step)
        self.judge.wait()
        with self._guarded():
            self._look()
        self._put_scalars()
        return list(self.judge.found)

    def notes(self) -> list[Finding]:
        """Calls that pass, of which there is something to say all the same: strides that torch's own
        kernels do not give. As `findings`, each operator, module and layout once."""
        self.findings()
        return list(self.judge.noted) if self.judge is not None else []

    def so_far(self) -> list[Finding]:
        """The same without waiting."""
        return list(self.judge.found) if self.judge is not None else []

    @property
    def n_judged(self) -> int:
        """How many calls were judged so far."""
        return self.judge.n_judged if self.judge is not None else 0

    judged = n_judged

    @property
    def unjudged(self) -> int:
        """How many calls were looked at and have no verdict on their numbers."""
        return sum(self.judge.unjudged.values()) if self.judge is not None else 0

    def not_judged(self) -> str:
        """The line on what was not judged so far, most calls first, with reason and remedy; "" where all was."""
        from .. import _core

        return _core.unjudged(self._without_verdict())

    def _without_verdict(self) -> list[tuple[str, str, int]]:
        """(operator, why, how many) of the calls that were not judged; of some the operator is not known, ""."""
        seen: dict[tuple[str, str], int] = self.judge.unjudged if self.judge is not None else {}
        known = {why for _, why in seen}
        items = [(op, why, n) for (op, why), n in seen.items()]
        return items + [("", why, n) for why, n in self.left_out.items() if why not in known]

    def summary(self) -> str:
        """What was judged so far, without waiting: a line, and one more where not all was."""
        found, waits = len(self.so_far()), self.judge.waiting() if self.judge is not None else 0
        line = f"{self.n_judged} call{'s' * (self.n_judged != 1)} judged, {found} finding{'s' * (found != 1)}"
        if waits:
            line += f"; {waits} recorded call{'s' * (waits != 1)} not judged yet: findings() waits for them"
        return "\n".join(filter(None, (line, self.not_judged())))

    def _told(self) -> str:
        return self.summary()

    def _titles_and_rows(self) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
        rows: list[tuple[object, ...]] = [(f.verdict, f.op, f.sentence) for f in self.so_far()]
        return ("verdict", "operator", "sentence"), rows

    @property
    def skipped(self) -> int:
        """How many calls of the device, or modules, were not judged."""
        return sum(self.left_out.values())

    @property
    def left_out(self) -> dict[str, int]:
        """The same by the reason, as a dict."""
        found: collections.Counter[str] = (
            collections.Counter() if self.judge is None else collections.Counter(self.judge.left)
        )
        found[NO_ROOM] += self.n_left + (self._counts()["left"] if self.recorder is not None else 0)
        return {why: n for why, n in found.items() if n > 0}

    # ---- steps ----

    def _wants(self, step: int) -> bool:
        return step % self.every == 0 and super()._wants(step)

    def _begin(self, step: int) -> None:
        if self.judge is None:
            self._call_judge()
        self._look()
        if self.recorder is None:
            self._record()
        self.recorder.begin(step)

    def _end(self, goes_on: bool) -> None:
        self._look()
        failed = self.recorder.session and self.recorder.session.error()
        if failed:
            raise RuntimeError(failed)
        counts, step = self._counts(), self.recorder.step
        old = time.monotonic() - self.since >= WAIT_S
        stays = goes_on and not old and counts["bytes_copied"] < LEAST
        self.recorder.end(stays)
        if not stays:
            self._hand_over()

        self.last_step = step
        self._put_scalars()

    def _put_scalars(self) -> None:
        """What has come of the judge, which is behind the step."""
        if not self.scalars or _capture.rank_and_world()[0] != 0:
            return
        found = self.so_far()
        bits = [f.effective_bits for f in found if math.isfinite(f.effective_bits)]
        told = {"judged": self.n_judged, "unjudged": self.unjudged, "accused": len(found)}
        self.scalars.put(told | ({"least_bits": min(bits)} if bits else {}), self.last_step)

    def _close(self) -> None:
        if self.recorder is not None:
            self._hand_over()

    def _abandon(self) -> None:
        self.recorder = self.judge = None

    def _tell(self) -> None:
        """Hands new findings to on_fail, without waiting. What that raises is for the program."""
        if self.judge is None or self.on_fail in ("record", "dump"):
            return
        if not self.hooks.active:  # the block is over: all are to be told
            self.judge.wait()
        new = self.judge.found[self.n_told :]
        self.n_told += len(new)
        if not isinstance(self.on_fail, str):
            for finding in new:
                self.on_fail(finding)
        elif new:
            raise CheckFailed(new[0])

    # ---- the parts ----

    def _call_judge(self) -> None:
        rank, world = _capture.rank_and_world()
        out = self.output
        if out is not None and world > 1:
            out = out / f"rank-{rank}"
        self.out = out
        name = KIND + " ".join(a or "''" for a in sys.argv)
        self.judge = JudgeProcess(
            {
                **self.settings,
                "out": out and str(out),
                "name": name,
                "options": json.dumps({"ops": self.scope.ops or "", "distinct": self.distinct}),
            }
        )
        weakref.finalize(self, end_later, self.judge).atexit = False
        atexit.register(self.judge.end)

    def _record(self) -> None:
        self.n_traces += 1
        home = self.out / "traces" if self.settings["dump"] else Path(self.judge.folder)
        self.recorder = _capture.Recorder(home / f"{self.n_traces}", "full", self.scope.ops)
        room = max(1, ROOM - self.judge.in_flight())
        self.recorder.scope = self.scope
        calls = self.level == "operator"
        self.recorder.sifted = {
            "distinct": self.distinct and calls,
            "reads": calls,
            "most": room,
            "pass_first": self.turn,
            "ring_size": RING,
        }
        self.since = time.monotonic()

    def _counts(self) -> dict[str, int]:
        session = self.recorder.session
        counts: dict[str, int] = session.counts() if session is not None else {"left": 0, "bytes_copied": 0, "calls": 0}
        return counts

    def _hand_over(self) -> None:
        """The trace goes to the judge; what is left to write is written by a thread."""
        recorder, self.recorder = self.recorder, None
        if recorder.session is None:
            return
        recorder.end()
        counts = recorder.session.counts()
        self.scope.met(recorder.session)
        self.n_left += counts["left"]
        if counts["calls"] or counts["left"]:
            self._pass_turn(counts["refused"], self.turn if len(recorder.steps) == 1 else 0)
        base, self.base = self.base, self.base + counts["calls"]
        judge = self.judge
        self._hand_references()
        judge.announce(recorder.path, counts["bytes_copied"], counts["calls"])

        def finish() -> None:
            with unhurt(lambda error: judge.drop(recorder.path, f"recording failed: {error}")) as closing:
                recorder.close()
            if not closing.failed:
                judge.take(recorder.path, base)

        threading.Thread(target=finish, daemon=True).start()

    def _hand_references(self) -> None:
        """What the program registered since the last time, or otherwise."""
        new = {op: f for op, f in references.items() if self.handed.get(op) is not f}
        for op, function in new.items() if handing else ():
            self.handed[op] = function
            self.judge.register(op, handing[0])

    def _pass_turn(self, refused: int, passed: int) -> None:
        """Where there was no room for a call (the `refused`th of its step) the next trace begins
        with it. One that has none twice, as the first, is too large by itself."""
        alone = refused == passed + 1
        self.turn = refused if alone and self.stuck else max(refused - 1, 0)
        self.stuck = alone and not self.stuck

    def _look(self) -> None:
        """What the judge could not do is said like what we could not."""
        new = self.judge.remarks[self.n_remarks :]
        self.n_remarks += len(new)
        for remark in new:
            with contextlib.suppress(OSError, ValueError):
                print(f"ulpscope: {self.NOUN}: {remark}", file=sys.stderr)
        if self.judge.internal is not None:
            strictly(InternalError(self.judge.internal))
        if self.judge.trouble is not None and self.error is None:
            raise RuntimeError(self.judge.trouble)
