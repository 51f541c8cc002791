# SPDX-License-Identifier: Apache-2.0
"""Captures iterations of the running program as the precheck's files. Needs torch's data loader, by
`sources.hooks`. Recording is `sources.capture`'s, into a trace beside the files; `ulpscope export`
makes them of it.
"""

import atexit
import os
import shutil
import subprocess
import sys
from pathlib import Path

from ....sources.capture import Recorder
from ..common.config import msCheckerConfig, pattern


class Dump:
    """The one dump of this process."""

    def __init__(self):
        self.recorder = None
        self.iteration = 0
        self.switched = 0  # times that the program itself switched on
        self.manual = False
        self.steps = None
        self.home = os.getpid()

    # ---- by the data loader ----

    def watch(self):
        """Iterations are told by the data loader, until one that is captured was the last."""
        from ....sources import hooks

        if self.steps is None and msCheckerConfig.enable_dataloader:
            self.steps = hooks.Steps(self.ended, self.begun, source="dataloader")
            self.steps.install()
            atexit.register(self.close)

    def begun(self):
        """The first batch is asked for."""
        if not self.manual and self.iteration in msCheckerConfig.target_iter:
            self.begin(self.iteration)

    def ended(self):
        """An iteration is over. Raises behind the last that is wanted: that ends the training."""
        if self.manual:
            return
        self.end()
        last = max(msCheckerConfig.target_iter)
        if self.iteration == last:
            self.close()
            raise Exception(f"Model pretest: exit after iteration {last}.")
        self.iteration += 1
        self.begun()

    # ---- by the program ----

    def switch(self, on):
        """Begins, or ends and writes the files; what is so already stays."""
        self.manual = True
        if on and (self.recorder is None or self.recorder.step is None):
            self.switched += 1
            atexit.register(self.close)
            self.begin(self.switched)
        elif not on:
            self.close()

    # ---- recording ----

    def begin(self, step):
        """Records from here on."""
        if self.recorder is None:
            name = f".ulpscope-{os.getpid()}-{step}"
            self.recorder = Recorder(Path(msCheckerConfig.dump_path) / name,
                                     "full" if msCheckerConfig.real_data else "stats", level="api,aten")  # fmt: skip
        self.recorder.begin(step)

    def end(self):
        """Records no more for now."""
        if self.recorder is not None:
            self.recorder.end()

    def close(self):
        """Writes the files of what was recorded."""
        recorder, self.recorder = self.recorder, None
        if recorder is None or os.getpid() != self.home:
            return
        recorder.end()
        try:
            if recorder.close() is not None:
                write(recorder.path)
        except (OSError, RuntimeError) as problem:
            print(f"api_accuracy_checker: {problem}; the trace is {recorder.path}", file=sys.stderr)


def write(trace):
    """The files of a trace, in stepN of the dump's folder; the trace goes then."""
    here = Path(msCheckerConfig.dump_path)
    part = trace.with_name(trace.name + "-files")
    names = msCheckerConfig.white_list
    ops = pattern(names) if names else "*,!*::*"
    words = ["export", trace, "--format", "ascend-v1", "--process", os.getpid(), "-o", part, "--ops", ops]
    done = subprocess.run([sys.executable, "-m", "ulpscope", *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr else "ulpscope export failed")
    for file in sorted(p for p in part.rglob("*") if p.is_file()):
        to = here / file.relative_to(part)
        to.parent.mkdir(parents=True, exist_ok=True)
        file.replace(to)
    shutil.rmtree(part)
    shutil.rmtree(trace)


running = Dump()


def set_dump_switch(switch):
    """Switches the dump "ON" or "OFF" by hand: iterations of a data loader do not count any more."""
    if switch not in ("ON", "OFF"):
        raise ValueError(f"set_dump_switch: '{switch}' is neither 'ON' nor 'OFF'")
    running.switch(switch == "ON")


def watch():
    """Watches the data loader from here on."""
    running.watch()
