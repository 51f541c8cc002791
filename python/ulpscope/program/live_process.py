# SPDX-License-Identifier: Apache-2.0
"""The process beside a program under a live check, as the program sees it: what was handed over, what
it said so far, and what happens where it ends by itself. Serves `live`; the other side is
`live_judge`. Needs nothing of torch."""

from __future__ import annotations

import atexit
import collections
import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ..calls.foreign import unhurt

LIMIT_S = 300.0  # that one call may take: beyond, it hangs
NO_ROOM = "there was no room or time"


@dataclasses.dataclass(frozen=True)
class Finding:
    """One call that does not pass; `sentence` says all of it."""

    op: str
    verdict: str  # "reduced", "wrong", "intermittent"
    effective_bits: float  # NaN where nothing was measured
    expected_bits: float  # those of float32 on the CPU
    cause: str
    sentence: str
    step: int
    phase: str  # "forward", "backward", "optimizer"
    module: str
    call: int  # its number among those that were recorded, from 1
    output: str  # path of the output that decided: "out[0]", "args[1]"
    args: str
    notes: str
    stack: tuple[tuple[str, int, str], ...]  # (file, line, function) of the program, innermost first
    trace: str  # TRACE#CALL, where on_fail is "dump"


def _finding(told: dict[str, Any]) -> Finding:
    frames = json.loads(told["stack"]) if told["stack"] else ()
    return Finding(
        op=told["op"],
        verdict=told["verdict"],
        effective_bits=_number(told["bits"]),
        expected_bits=_number(told["yardstick_bits"]),
        cause=told["cause"] or "",
        sentence=told["sentence"],
        step=told["step"],
        phase=told["phase"] or "",
        module=told["module"],
        call=told["call"],
        output=told["output"] or "",
        args=told["args"] or "",
        notes=told["notes"] or "",
        stack=tuple(tuple(f) for f in frames),
        trace=told["trace"],
    )


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)


class JudgeProcess:
    """
    The process that judges, and what it has said so far. Its folder goes with it.

    Where it ends by itself it is started again, once: the call in work is lost, what else was
    handed over is judged by the new one.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self.folder = tempfile.mkdtemp(prefix="ulpscope-live-")
        self.news = threading.Condition(threading.RLock())
        self.found: list[Finding] = []
        self.n_judged = 0
        self.left: collections.Counter[str] = collections.Counter()  # why -> how many calls were not judged
        # (op, why) -> how many, of those that were looked at
        self.unjudged: collections.Counter[tuple[str, str]] = collections.Counter()
        self.references: dict[str, str] = {}  # op -> file of what the program registered
        self.noted: list[Finding] = []  # calls that pass, of which there is something to say
        self.rows: list[dict[str, Any]] = []  # of all calls, as dicts, where the settings say "all"
        self.pending: dict[str, tuple[int, int]] = {}  # trace -> (bytes, calls)
        self.queue: dict[str, dict[str, Any]] = {}  # trace -> what the process was told of it, in turn
        self.handing = 0  # traces that are being finished
        self.paused = self.asked = 0
        self.trouble: str | None = None
        self.gone = self.ending = False
        self.internal: str | None = None  # the last mistake of ours
        self.remarks: list[str] = []  # sentences on what went wrong and is mended
        self.owner = os.getpid()
        self.settings = {**settings, "folder": self.folder, "limit": LIMIT_S, "run": str(time.time_ns())}
        try:
            self.process = self._start()
        except Exception:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        self.listener = threading.Thread(target=self._listen, name="ulpscope-live", daemon=True)
        self.listener.start()

    def _start(self) -> subprocess.Popen[bytes]:
        package = Path(__file__).absolute().parent.parent  # links stay: beside them lies _core
        ours = {str(package.parent), str(package / "_bootstrap")}
        path = [str(package.parent)] + [p or os.getcwd() for p in sys.path if p not in ours]
        variables = {k: v for k, v in os.environ.items() if k not in ("ULPSCOPE_CAPTURE", "ULPSCOPE_RUN")}
        variables |= {"PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1"}
        if self.settings.get("inputs") != "reference":  # else the device is asked again
            variables["CUDA_VISIBLE_DEVICES"] = ""
        with open(os.path.join(self.folder, "judge.log"), "wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "ulpscope.live_judge", json.dumps(self.settings)],
                env=variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    # ---- what is handed over ----

    def in_flight(self) -> int:
        """Bytes that are recorded and not judged."""
        with self.news:
            return sum(size for size, _ in self.pending.values())

    def waiting(self) -> int:
        """Calls that are recorded and not judged."""
        with self.news:
            return sum(calls for _, calls in self.pending.values())

    def announce(self, trace: Path, size: int, calls: int) -> None:
        """A trace is finished by a thread now, and comes with `take`."""
        with self.news:
            self.pending[str(trace)] = size, calls
            self.handing += 1

    def take(self, trace: Path, base: int) -> None:
        """A trace stands: it is to be judged. `base`: calls of those before it."""
        with self.news:
            self.handing -= 1
            if self.gone:
                self._lose(str(trace))
                return
            self.queue[str(trace)] = {"trace": str(trace), "base": base}
            self._tell(self.queue[str(trace)])

    def register(self, op: str, put: Callable[[str, str], str]) -> None:
        """Hands over a reference, which `put(op, path)` writes to a file."""
        path = os.path.join(self.folder, f"reference-{len(self.references)}")
        problem = put(op, path)
        with self.news:
            if problem:
                self.remarks.append(problem)
                return
            self.references[op] = path
            self._tell({"reference": path})

    def drop(self, trace: Path, why: str) -> None:
        """What was announced could not be finished."""
        with self.news:
            self.handing -= 1
            self._lose(str(trace), "they could not be recorded")
            self.trouble = self.trouble or why
            self.news.notify_all()
        shutil.rmtree(trace, ignore_errors=True)

    def _lose(self, trace: str, why: str = "the process that judges ended") -> None:
        _, calls = self.pending.pop(trace, (0, 0))
        if calls:
            self.left[why] += calls

    def _tell(self, message: dict[str, Any]) -> None:
        """Says a line to the process; one that is gone shows where it is listened to."""
        with contextlib.suppress(OSError, ValueError):
            stdin = self.process.stdin
            if stdin is not None:
                stdin.write(json.dumps(message).encode() + b"\n")
                stdin.flush()

    def _hang_up(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()

    def wait(self) -> None:
        """Until all that was handed over is judged, or nobody is there to do it."""
        if os.getpid() != self.owner:
            return
        with self.news:
            self.news.wait_for(lambda: self.handing == 0 and (not self.pending or self.gone))
            if self.gone:
                return
            self.asked += 1
            asked = self.asked
            self._tell({"pause": asked})
            self.news.wait_for(lambda: self.paused >= asked or self.gone)

    # ---- what it says ----

    def _listen(self) -> None:
        code = self._hear_all()
        while self._starts_again(code):
            code = self._hear_all()
        with self.news:
            self.gone = True
            for trace in list(self.pending):
                self._lose(trace)
            if code != 0 and not self.ending:
                at = self._in_work()
                over = f" over a call of {at['op']}" if at is not None else ""
                self.trouble = self.trouble or f"the process that judges {self._end_of(code)}{over}"
            self.news.notify_all()
        shutil.rmtree(self.folder, ignore_errors=True)
        atexit.unregister(self.end)

    def _hear_all(self) -> int:
        """Listens until the process is gone; its exit code."""
        for line in self.process.stdout or ():
            with self.news:
                self._hear(json.loads(line))
                self.news.notify_all()
        return self.process.wait()

    def _hear(self, said: dict[str, Any]) -> None:
        if "finding" in said:
            self.found.append(_finding(said["finding"]))
        if "note" in said:
            self.noted.append(_finding(said["note"]))
        if "row" in said:
            self.rows.append(said["row"])
        if "done" in said:
            self.pending.pop(said["done"], None)
            self.queue.pop(said["done"], None)
            self.n_judged += said["judged"]
            self.left.update(said["left"])
            self._count(said["unjudged"])
        if "remark" in said:
            self.remarks.append(said["remark"])
        if "internal" in said:
            self.internal = said["internal"]
            self.remarks.append(self.internal)
        self.paused = max(self.paused, said.get("paused", 0))
        self.trouble = self.trouble or said.get("trouble")

    def _count(self, unjudged: Iterable[tuple[str, str, int]]) -> None:
        for op, why, n in unjudged:
            self.unjudged[op, why] += n

    # ---- where it ends by itself ----

    def _starts_again(self, code: int) -> bool:
        with self.news:
            if code == 0 or self.ending or self.settings.get("again"):
                return False
            at, how = self._in_work(), self._end_of(code)
            self.settings["again"] = True
            lost = self._resume(at)
            with unhurt() as starting:  # the program may end, or nothing more can be started
                with contextlib.suppress(OSError):
                    self._hang_up()
                self.process = self._start()
            if starting.failed:
                return False
            self.remarks.append(f"the process that judges {how}; {lost}, and it was started again")
            for path in self.references.values():
                self._tell({"reference": path})
            for message in self.queue.values():
                self._tell(message)
            if self.asked > self.paused:
                self._tell({"pause": self.asked})
            return True

    def _resume(self, at: dict[str, Any] | None) -> str:
        """Has the trace in work begin behind its lost call; says what is lost."""
        if at is None or at["trace"] not in self.queue:
            return "nothing is lost"
        self.n_judged += at["judged"]
        self.settings["spent"] = at["spent"]
        self.left.update(at["left"])
        self._count(at["unjudged"])
        self.left["the process that judges ended"] += 1
        self.queue[at["trace"]]["behind"] = at["call"]
        return f"the call of {at['op']} that it judged is lost"

    def _in_work(self) -> dict[str, Any] | None:
        """What it was at, as it wrote down before each call; None: at nothing."""
        with contextlib.suppress(OSError, ValueError):
            with open(os.path.join(self.folder, "judge.at"), encoding="utf-8") as file:
                at: dict[str, Any] = json.loads(file.read())
                return at
        return None

    def _end_of(self, code: int) -> str:
        if code == -signal.SIGALRM:
            return f"took longer than {self.settings['limit']:g} s"
        if code < 0:
            return f"was ended by signal {-code}"
        return f"ended{self._last_words()}"

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            with open(os.path.join(self.folder, "judge.log"), errors="replace") as log:
                lines = [line for line in log.read().splitlines() if line.strip()]
            return f": {lines[-1].strip()}" if lines else ""
        return ""

    def end(self) -> None:
        """Waits for what is pending and ends the process. Of a forked child it is not."""
        if os.getpid() != self.owner or self.gone:
            return
        try:
            self.wait()
            with self.news:
                self.ending = True
                self._tell({"end": True})
        except KeyboardInterrupt:  # nobody wants to wait: what is judged stays
            self.ending = True
            self.process.kill()
        with contextlib.suppress(OSError):
            self._hang_up()
        self.process.wait()


def end_later(judge: JudgeProcess) -> None:
    """Ends a judge that nobody will ask again; the program does not wait for it."""
    threading.Thread(target=judge.end, daemon=True).start()
