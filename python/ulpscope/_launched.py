# SPDX-License-Identifier: Apache-2.0
"""The recorder inside a program that runs under `ulpscope capture` (see `_launch`).

Started by the bootstrap's sitecustomize once torch is imported. Most processes that
import torch (torchrun's agent, data-loader workers) never end a step: they record nothing
and leave no trace.
"""

import atexit
import datetime
import json
import os
import shutil
import sys
from pathlib import Path

from . import _capture, _hooks
from ._launch import all_finished, read_reports

PATIENCE = datetime.timedelta(minutes=5)


def start():
    """Puts the step hooks in, as ULPSCOPE_CAPTURE says. In a command of several programs (a
    shell script) the first that reaches the steps is recorded: behind it the run is over."""
    options = json.loads(os.environ["ULPSCOPE_CAPTURE"])
    if all_finished(options["reports"]):
        if not options["keep_going"]:
            leave(0)
        return
    run = Run(options)
    run.steps.install()
    atexit.register(run.at_exit)


class Run:
    """Counts steps, records those asked for, then ends the program."""

    def __init__(self, options):
        self.options = options
        self.wanted = options["steps"]
        self.now = 0
        self.recorder = None
        self.finished = False
        self.owner = os.getpid()
        self.steps = _hooks.Steps(self._boundary, self._begin, options["step_by"])

    def _path(self):
        """The trace folder: TRACE for a single process, TRACE/rank-N for a rank."""
        rank, world = _capture.rank_and_world()
        path = Path(self.options["trace"])
        return path if world == 1 else path / f"rank-{rank}"

    def _clear(self):
        """Removes what an earlier program of the same command recorded before it ended short
        of the steps."""
        path = str(self._path())
        if any(r["trace"] == path and not r["finished"]
               for r in read_reports(self.options["reports"])):  # fmt: skip
            shutil.rmtree(path)

    def _begin(self):
        if self.now not in self.wanted or self.finished:
            return
        try:
            if self.recorder is None:
                self._clear()
                self.recorder = _capture.Recorder(
                    self._path(), self.options["data"], self.options["ops"]
                )
            self.recorder.begin(self.now)
        except Exception as error:
            self._fail(error)

    def _boundary(self):
        if self.finished:
            return
        self.steps.at_start = None
        if self.recorder is not None:
            self.recorder.end()
        self.now += 1
        if self.now > self.wanted[-1]:
            self._finish()
        else:
            self._begin()

    def _finish(self):
        self.finished = True
        self.steps.active = False
        try:
            counts = self.recorder.close()
        except Exception as error:
            self._fail(error)
        self._report(finished=True, counts=counts)
        if not self.options["keep_going"]:
            await_other_ranks()
            leave(0)

    def _fail(self, error):
        """Recording failed: the run ends, for it was started to be recorded."""
        self.finished = True
        self._report(finished=False, error=str(error))
        leave(2)

    def _report(self, **what):
        """Tells `_launch`, through a file that stands whole or not at all."""
        rank, world = _capture.rank_and_world()
        what |= {
            "rank": rank,
            "world": world,
            "steps": self.recorder.steps if self.recorder else [],
            "steps_ended": self.now,
            "trace": str(self.recorder.path) if self.recorder else None,
        }
        name = Path(self.options["reports"]) / f"{rank:06}-{os.getpid()}"
        try:
            name.with_suffix(".part").write_text(json.dumps(what))
            os.replace(name.with_suffix(".part"), name.with_suffix(".json"))
        except OSError as error:
            print(f"ulpscope: cannot report to the launcher: {error}", file=sys.stderr)

    def at_exit(self):
        """The program ended by itself, before the last step that was asked for."""
        if self.finished or os.getpid() != self.owner:
            return
        self.finished = True
        self.steps.active = False
        counts = None
        if self.recorder is not None:
            try:
                counts = self.recorder.close(complete=False)
            except Exception as error:
                self._report(finished=False, error=str(error))
                return
        if self.now > 0 or counts is not None:
            self._report(finished=False, counts=counts)


def await_other_ranks():
    """Returns when every rank has recorded its steps, so that none goes while another
    still needs it. A rank that is gone already had seen all of them done."""
    import torch

    dist = torch.distributed
    if not (dist.is_available() and dist.is_initialized()):
        return
    names = [f"ulpscope-captured-{rank}" for rank in range(dist.get_world_size())]
    try:
        store = dist.distributed_c10d._get_default_store()
        store.set(names[dist.get_rank()], "1")
        store.wait(names, PATIENCE)
    except Exception as error:
        print(f"ulpscope: stopping without the other ranks: {error}", file=sys.stderr)


def leave(code):
    """Ends the process: no handler of the program may catch this or hang on it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
    os._exit(code)
