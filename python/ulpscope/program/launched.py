# SPDX-License-Identifier: Apache-2.0
"""The recorder inside a program that runs under `ulpscope capture` (cli/cmdcapture.c).

Started by the bootstrap's sitecustomize once torch is imported. Most processes that
import torch (torchrun's agent, data-loader workers) never end a step: they record nothing
and leave no trace. Where step 0 is asked for it may turn out to be the whole program: then
every process records from here on, into a folder of its own, and the program keeps what counts.
"""

from __future__ import annotations

import atexit
import datetime
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from .. import _core
from ..calls.foreign import unhurt
from . import capture, hooks, reroute

PATIENCE = datetime.timedelta(minutes=5)
PAUSE_S = 0.2  # between two reports of a run that goes on


def start(reports: str) -> None:
    """Puts the step hooks in, as the options in the launcher's folder say. In a command of
    several programs (a shell script) the first that reaches the steps is recorded: behind it
    the run is over."""
    options = LaunchOptions(reports)
    if _core.launch_all_done(reports):
        if not options.keep_going:
            leave(0)
        return
    if options.until is not None:
        from .until import UntilDiffers

        run: LaunchedRun = UntilDiffers(options)
    else:
        run = LaunchedRun(options)
    run.install()
    atexit.register(run.at_exit)


class LaunchOptions:
    """What the program `ulpscope` read, checked and wrote down: values by their places."""

    def __init__(self, reports: str) -> None:
        words = os.fsdecode((Path(reports) / "options").read_bytes()).split("\0")
        steps, self.data, ops, limit, step_by, keep_going, self.level, trace, until, _ = words
        reroute.check_names(ops, "--ops")
        self.steps, self.ops, self.limit = capture.parse_steps(steps), ops or None, int(limit) or None
        self.step_by, self.keep_going = step_by or None, bool(keep_going)
        self.trace, self.reports = Path(trace), reports
        self.until = Path(until) if until else None


class LaunchedRun:
    """Counts steps, records those asked for, then ends the program."""

    def __init__(self, options: LaunchOptions) -> None:
        self.options = options
        self.wanted: Any = set(options.steps)
        self.last: float = options.steps[-1]
        self.now = 0
        self.recorder: Any = None  # a capture.Recorder from the first step on
        self.folder: str | None = None  # in which it records
        self.rate: dict[str, int] = {}
        self.finished = False
        self.owner = os.getpid()
        self.ranks: hooks.JoinedRanks | None = None
        self.reported: float = 0
        self.said: str | None = None
        self.said_at: tuple[int, int] | None = None  # the step and the call of it
        # Step 0 may be the whole program: who else records, and as which rank, shows later.
        self.loose = 0 in self.wanted and options.step_by in (None, "manual")
        self.steps = hooks.Steps(self._boundary, self._begin, options.step_by)

    def install(self) -> None:
        """Puts the hooks in; step 0 begins where it may be the whole program."""
        self.steps.install()
        hooks.before_os_exit(self.at_exit, lambda: not self.finished)
        self.ranks = hooks.JoinedRanks()
        if self.loose:
            self._begin()
            manual = self.options.step_by == "manual"
            self.steps.at_start = None if manual else self._begin_anew

    def _place(self) -> tuple[int, int]:
        rank, world = capture.rank_and_world()
        joined = self.ranks and self.ranks.joined
        return joined if world == 1 and joined else (rank, world)

    def _folder(self) -> str:
        """Where the trace lies in the folder of all: "" alone, "rank-N" for a rank."""
        rank, world = self._place()
        if self.loose:
            return f"process-{os.getpid()}"
        return "" if world == 1 else f"rank-{rank}"

    def _clear(self) -> None:
        """Removes what an earlier program of the same command recorded before it ended short
        of the steps."""
        if _core.launch_is_left(self.options.reports, self._folder(), os.getpid()):
            shutil.rmtree(self.options.trace / self._folder())

    def _begin(self) -> None:
        if self.now not in self.wanted or self.finished:
            return
        with unhurt(self._fail) as beginning:
            if self.recorder is None:
                self._clear()
                self.folder = self._folder()
                self.recorder = capture.Recorder(
                    self.options.trace / self.folder,
                    self.options.data,
                    self.options.ops,
                    self.options.limit,
                    self.options.level,
                )
            self.recorder.begin(self.now)
        if not beginning.failed:
            self._report()

    def _begin_anew(self) -> None:
        """The program has steps after all: what came before the first is not of it."""
        with unhurt(self._fail) as leaving:
            recorder, self.recorder = self.recorder, None
            recorder.close(complete=False)
            shutil.rmtree(recorder.path, ignore_errors=True)
        if not leaving.failed:
            self._begin()

    def _boundary(self) -> None:
        if self.finished:
            return
        self.steps.at_start = None
        with unhurt(self._fail) as ending:
            if self.recorder is not None:
                self.recorder.end(goes_on=self.now + 1 in self.wanted)
        if ending.failed or self._is_full():
            return
        self.now += 1
        if self.now > self.last:
            self._finish()
            return
        self._begin()
        if time.monotonic() > self.reported + PAUSE_S:
            self._report()

    def _is_full(self) -> bool:
        """Whether the limit ended the recording, which is then over. After the first step it
        tells what is to be expected."""
        session = self.recorder and self.recorder.session
        if not session:
            return False
        counts = None
        with unhurt(self._fail):
            first = len(self.recorder.steps) == 1 and self.now in self.recorder.steps
            if first:
                session.flush()
            counts = session.counts()
            if first and self.last > self.now and self._place()[0] == 0:
                self.rate = {"first_step_bytes": counts["bytes_written"], "room": self.recorder.room()}
                self._report()
            if not counts["stopped"]:
                return False
            self.recorder.steps.remove(self.now)
            self.finished, self.steps.active = True, False
            counts = self.recorder.close(complete=False)
        if counts is None:
            return True
        self._report(counts=counts)
        if not self.options.keep_going:
            leave(2)
        return True

    def _finish(self) -> None:
        self.finished = True
        self.steps.active = False
        with unhurt(self._fail) as closing:
            counts = self._close()
        if closing.failed:
            return
        self._report(finished=True, counts=counts)
        if not self.options.keep_going:
            await_other_ranks()
            leave(0)

    def _close(self, complete: bool = True) -> dict[str, int]:
        """Finishes the trace; its counters."""
        counts: dict[str, int] = self.recorder.close(complete=complete)
        return counts

    def _fail(self, error: BaseException) -> None:
        """Recording failed: the run ends, for it was started to be recorded, unless it is to
        go on whatever comes."""
        self.finished = True
        self.steps.active = False
        taken = isinstance(error, _core.ExistsError)
        with unhurt():
            self.recorder.close(complete=False)
        self._report(error=str(error) or type(error).__name__, taken=taken)
        if not self.options.keep_going:
            leave(2)

    def _report(
        self,
        finished: bool = False,
        whole: bool = False,
        counts: dict[str, int] | None = None,
        error: str | None = None,
        taken: bool = False,
    ) -> None:
        """Tells the program, through a file that stands whole or not at all: what
        ulpscope/x/launch.h reads."""
        rank, world = self._place()
        recorder = self.recorder
        what = {
            "rank": rank,
            "world": world,
            "pid": os.getpid(),
            "finished": finished,
            "whole": whole,
            "counts": counts,
            "error": error and error.encode(errors="replace").decode(),
            "taken": taken,  # the folder is another's: it holds nothing of this run
            "loose": self.loose,
            "said": self.said,
            **({"said_step": self.said_at[0], "said_call": self.said_at[1]} if self.said_at else {}),
            "steps": recorder.steps if recorder else [],
            "steps_ended": self.now,
            "place": self.folder if recorder and not taken else None,
            **self.rate,
        }
        self.reported = time.monotonic()
        name = Path(self.options.reports) / f"run-{os.getpid()}"
        try:
            name.with_suffix(".part").write_text(json.dumps(what))
            os.replace(name.with_suffix(".part"), name.with_suffix(".json"))
        except OSError as error:
            print(f"ulpscope: cannot report to the launcher: {error}", file=sys.stderr)

    def at_exit(self) -> None:
        """The program ended by itself, before the last step that was asked for."""
        if self.finished or os.getpid() != self.owner:
            return
        self.finished = True
        self.steps.active = False
        counts, whole = None, False
        if self.recorder is not None:
            with unhurt(lambda error: self._report(error=str(error) or type(error).__name__)) as closing:
                whole = self._ends_step() and self.wanted <= {*self.recorder.steps, self.now}
                if self._ends_step():
                    self.recorder.end()
                    self.now += 1
                counts = self._close(complete=whole)
            if closing.failed:
                return
        if self.now > 0 or counts is not None:
            self._report(finished=whole, whole=whole, counts=counts)

    def _ends_step(self) -> bool:
        """Whether the program's end is that of its step: an optimizer ends steps itself, and
        an exception leaves half of one."""
        raised = any(getattr(sys, name, None) is not None for name in ("last_value", "last_exc"))
        return (
            not raised
            and self.steps.source != "optimizer"
            and not is_loader_worker()
            and self.recorder.step is not None
            and self.recorder.has_calls()
            and not self.recorder.session.counts()["stopped"]
        )


def is_loader_worker() -> bool:
    """Whether this process only fetches batches."""
    import torch

    return torch.utils.data.get_worker_info() is not None


def await_other_ranks() -> None:
    """Returns when every rank has recorded its steps, so that none goes while another
    still needs it. A rank that is gone already had seen all of them done."""
    import torch

    from ..calls.torch_private import default_store

    dist = torch.distributed
    if not (dist.is_available() and dist.is_initialized()):
        return
    names = [f"ulpscope-captured-{rank}" for rank in range(dist.get_world_size())]
    with unhurt(lambda error: print(f"ulpscope: stopping without the other ranks: {error}", file=sys.stderr)):
        store: Any = default_store()
        store.set(names[dist.get_rank()], "1")
        store.wait(names, PATIENCE)


def leave(code: int) -> None:
    """Ends the process: no handler of the program may catch this or hang on it. What the simulated device would
    have told at its end it tells now."""
    sim = sys.modules.get("ulpscope.sim")
    if sim is not None:
        with unhurt():
            sim.tell_idle()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
    os._exit(code)
