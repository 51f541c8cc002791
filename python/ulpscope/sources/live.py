# SPDX-License-Identifier: Apache-2.0
"""Every operator judged while a program trains.

`live_check` is the public context manager. Calls are recorded as in a capture, into small traces
in a private folder; a process of its own (`live_judge`) judges what the run got, and removes
them. The program waits for nothing but the copy: what is beyond `ROOM` bytes in flight is left out
and counted. Needs of torch what a capture needs.
"""

import atexit
import contextlib
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from pathlib import Path

from . import capture as _capture
from . import mode as _mode

ROOM = 192 << 20  # bytes that are recorded and not judged
LEAST = 16 << 20  # bytes for which a trace is worth its while
WAIT_S = 1.0  # after which one is handed over however small it is
RING = 256 << 20
FAILS = ("record", "raise", "dump")


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
    stack: tuple  # (file, line, function) of the program, innermost first
    trace: str  # TRACE#CALL, where on_fail is "dump"


class CheckFailed(ArithmeticError):
    """A call does not pass, and `live_check(on_fail="raise")` says so where a step ends. `finding`
    is the first of them."""

    def __init__(self, finding):
        super().__init__(finding.sentence)
        self.finding = finding


def _finding(told):
    frames = json.loads(told["stack"]) if told["stack"] else ()
    return Finding(
        op=told["op"], verdict=told["verdict"], effective_bits=_number(told["bits"]),
        expected_bits=_number(told["yardstick_bits"]), cause=told["cause"] or "",
        sentence=told["sentence"], step=told["step"], phase=told["phase"] or "",
        module=told["module"], call=told["call"], output=told["output"] or "", args=told["args"] or "",
        notes=told["notes"] or "", stack=tuple(tuple(f) for f in frames), trace=told["trace"])  # fmt: skip


def _number(value):
    return float("nan") if value is None else float(value)


class Judge:
    """The process that judges, and what it has said so far. Its folder goes with it."""

    def __init__(self, settings):
        self.folder = tempfile.mkdtemp(prefix="ulpscope-live-")
        self.news = threading.Condition()
        self.found, self.n_judged, self.n_left = [], 0, 0
        self.rows = []  # of all calls, as dicts, where the settings say "all"
        self.pending = {}  # trace -> (bytes, calls)
        self.handing = 0  # traces that are being finished
        self.paused = self.asked = 0
        self.trouble, self.gone = None, False
        self.owner = os.getpid()
        try:
            self.process = self._start({**settings, "folder": self.folder})
        except Exception:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        self.listener = threading.Thread(target=self._listen, name="ulpscope-live", daemon=True)
        self.listener.start()

    def _start(self, settings):
        package = Path(__file__).absolute().parent.parent  # links stay: beside them lies _core
        ours = {str(package.parent), str(package / "_bootstrap")}
        path = [str(package.parent)] + [p or os.getcwd() for p in sys.path if p not in ours]
        variables = {k: v for k, v in os.environ.items() if k not in ("ULPSCOPE_CAPTURE", "ULPSCOPE_RUN")}
        variables |= {"PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        with open(os.path.join(self.folder, "judge.log"), "wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "ulpscope.live_judge", json.dumps(settings)], env=variables,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True)  # fmt: skip

    def in_flight(self):
        """Bytes that are recorded and not judged."""
        with self.news:
            return sum(size for size, _ in self.pending.values())

    def announce(self, trace, size, calls):
        """A trace is finished by a thread now, and comes with `take`."""
        with self.news:
            self.pending[str(trace)] = size, calls
            self.handing += 1

    def take(self, trace, base):
        """A trace stands: it is to be judged. `base`: calls of those before it."""
        with self.news:
            self.handing -= 1
        self.tell(trace=str(trace), base=base)

    def drop(self, trace, why):
        """What was announced could not be finished."""
        with self.news:
            self.handing -= 1
            _, calls = self.pending.pop(str(trace), (0, 0))
            self.n_left += calls
            self.trouble = self.trouble or why
            self.news.notify_all()
        shutil.rmtree(trace, ignore_errors=True)

    def tell(self, **message):
        """Says a line to the process; one that is gone shows where it is listened to."""
        with contextlib.suppress(OSError, ValueError):
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()

    def wait(self):
        """Until all that was handed over is judged, or nobody is there to do it."""
        if os.getpid() != self.owner:
            return
        with self.news:
            self.news.wait_for(lambda: self.handing == 0 and (not self.pending or self.gone))
            if self.gone:
                return
            self.asked += 1
            asked = self.asked
        self.tell(pause=asked)
        with self.news:
            self.news.wait_for(lambda: self.paused >= asked or self.gone)

    def _listen(self):
        for line in self.process.stdout:
            with self.news:
                self._hear(json.loads(line))
                self.news.notify_all()
        code = self.process.wait()
        with self.news:
            self.gone = True
            lost = sum(calls for _, calls in self.pending.values())
            self.n_left += lost
            self.pending.clear()
            if code != 0:
                how = f"was ended by signal {-code}" if code < 0 else "ended"
                self.trouble = self.trouble or f"the process that judges {how}{self._last_words()}"
            self.news.notify_all()
        shutil.rmtree(self.folder, ignore_errors=True)
        atexit.unregister(self.end)

    def _hear(self, said):
        if "finding" in said:
            self.found.append(_finding(said["finding"]))
        if "row" in said:
            self.rows.append(said["row"])
        if "done" in said:
            self.pending.pop(said["done"], None)
            self.n_judged += said["judged"]
            self.n_left += said["left"]
        self.paused = max(self.paused, said.get("paused", 0))
        self.trouble = self.trouble or said.get("trouble")

    def _last_words(self):
        with contextlib.suppress(OSError):
            with open(os.path.join(self.folder, "judge.log"), errors="replace") as log:
                lines = [line for line in log.read().splitlines() if line.strip()]
            return f": {lines[-1].strip()}" if lines else ""
        return ""

    def end(self):
        """Waits for what is pending and ends the process. Of a forked child it is not."""
        if os.getpid() != self.owner or self.gone:
            return
        try:
            self.wait()
            self.tell(end=True)
        except KeyboardInterrupt:  # nobody wants to wait: what is judged stays
            self.process.kill()
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.wait()


def _end_later(judge):
    """Ends a judge that nobody will ask again; the program does not wait for it."""
    threading.Thread(target=judge.end, daemon=True).start()


class live_check(_mode.Mode):  # noqa: N801 - it is used like a function
    """
    Judges what every operator gives while the block runs: forward, backward, optimizer.

        with ulpscope.live_check() as live:
            train()
        for finding in live.findings():
            print(finding.sentence)

    The verdict is that of `ulpscope check`, on what the run itself got: nothing is computed twice
    on the device. It comes behind the step, from a process of its own that needs a core; where it
    does not keep up, calls are left out and counted in `live.skipped`. `live.n_judged` is how many
    were judged so far. `findings()` may be called in the block, too: it waits for what is pending.

    `ops`: a PATTERN of operators; `steps`, `ranks`, `modules`, `threads`, `step_by`: as in
    `nan_tracker`, beside which, as beside a capture, it may run. `every`: each
    so many steps one is checked. `distinct`: of each step one call of a signature (operator and
    forms of its arguments). `budget`: seconds of judging, or below 1 the share of the time. `causes`:
    seconds for the search for the cause of a finding. `level`: "operator"; "module", where the
    forward of each nn.Module is judged as one function, from its own inputs on, so that an error
    of the modules before does not count.

    `on_fail`: "record"; "raise", a `CheckFailed` where a step ends behind which a finding came;
    "dump", the recorded calls around it are kept in OUT; or a function, called where a step ends
    with each finding. `output`: the folder OUT, for `ulpscope report`; of several ranks
    OUT/rank-N each.

    Where it fails the program goes on without: it is said on stderr, and `live.error` holds
    the sentence. Raises ValueError for bad arguments.
    """

    NOUN = "the live check"

    def __init__(self, ops=None, steps=None, ranks=None, step_by=None, every=1, distinct=False,
                 budget=None, on_fail="record", output=None, causes=2.0, level="operator",
                 modules=None, threads=None):  # fmt: skip
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
        self.level = level
        self.settings = {"budget": budget, "causes": float(causes), "dump": on_fail == "dump",
                         "level": level, "distinct": self.distinct}  # fmt: skip
        self.judge = self.recorder = None
        self.base = 0  # calls of the traces so far
        self.n_left = 0  # calls that there was no room for
        self.n_traces = self.n_told = 0
        self.since = 0.0

    # ---- what it says ----

    def findings(self):
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
        self._look()
        return list(self.judge.found)

    def so_far(self):
        """The same without waiting."""
        return list(self.judge.found) if self.judge is not None else []

    @property
    def n_judged(self):
        """How many calls were judged so far."""
        return self.judge.n_judged if self.judge is not None else 0

    @property
    def skipped(self):
        """How many calls were not judged: no room, no time, nothing to judge them by."""
        left = self.judge.n_left if self.judge is not None else 0
        return self.n_left + left + (self._counts()["left"] if self.recorder is not None else 0)

    # ---- steps ----

    def _wants(self, step):
        return step % self.every == 0 and super()._wants(step)

    def _begin(self, step):
        if self.judge is None:
            self._call_judge()
        self._look()
        if self.recorder is None:
            self._record()
        self.recorder.begin(step)

    def _end(self, goes_on):
        self._look()
        failed = self.recorder.session and self.recorder.session.error()
        if failed:
            raise RuntimeError(failed)
        counts = self._counts()
        old = time.monotonic() - self.since >= WAIT_S
        stays = goes_on and not old and counts["bytes_copied"] < LEAST
        self.recorder.end(stays)
        if not stays:
            self._hand_over()

    def _close(self):
        if self.recorder is not None:
            self._hand_over()

    def _abandon(self):
        self.recorder = self.judge = None

    def _tell(self):
        """Hands new findings to on_fail, without waiting. What that raises is for the program."""
        if self.judge is None or self.on_fail in ("record", "dump"):
            return
        if not self.hooks.active:  # the block is over: all are to be told
            self.judge.wait()
        new = self.judge.found[self.n_told :]
        self.n_told += len(new)
        if self.on_fail != "raise":
            for finding in new:
                self.on_fail(finding)
        elif new:
            raise CheckFailed(new[0])

    # ---- the parts ----

    def _call_judge(self):
        rank, world = _capture.rank_and_world()
        out = self.output
        if out is not None and world > 1:
            out = out / f"rank-{rank}"
        self.out = out
        name = "live: " + " ".join(a or "''" for a in sys.argv)
        self.judge = Judge({**self.settings, "out": out and str(out), "name": name,
                            "options": json.dumps({"ops": self.scope.ops or "", "distinct": self.distinct})})  # fmt: skip
        weakref.finalize(self, _end_later, self.judge).atexit = False
        atexit.register(self.judge.end)

    def _record(self):
        self.n_traces += 1
        home = self.out / "traces" if self.settings["dump"] else Path(self.judge.folder)
        self.recorder = _capture.Recorder(home / f"{self.n_traces}", "full", self.scope.ops)
        room = max(1, ROOM - self.judge.in_flight())
        self.recorder.scope = self.scope
        self.recorder.sifted = {"distinct": self.distinct and self.level == "operator", "most": room, "ring_size": RING}
        self.since = time.monotonic()

    def _counts(self):
        session = self.recorder.session
        return session.counts() if session is not None else {"left": 0, "bytes_copied": 0, "calls": 0}

    def _hand_over(self):
        """The trace goes to the judge; what is left to write is written by a thread."""
        recorder, self.recorder = self.recorder, None
        if recorder.session is None:
            return
        recorder.end()
        counts = recorder.session.counts()
        self.n_left += counts["left"]
        base, self.base = self.base, self.base + counts["calls"]
        judge = self.judge
        judge.announce(recorder.path, counts["bytes_copied"], counts["calls"])

        def finish():
            try:
                recorder.close()
            except Exception as error:
                judge.drop(recorder.path, f"recording failed: {error}")
            else:
                judge.take(recorder.path, base)

        threading.Thread(target=finish, daemon=True).start()

    def _look(self):
        """What the judge could not do is said like what we could not."""
        if self.judge.trouble is not None and self.error is None:
            raise RuntimeError(self.judge.trouble)
