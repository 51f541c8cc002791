# SPDX-License-Identifier: Apache-2.0
"""`ulpscope capture --until-differs OTHER`: the recorder inside the program, which goes on from step 0 and keeps
statistics of each step until one differs from OTHER's; of that one the data as well.

Which step it is shows at its end, so two sessions record side by side: one writes the trace, the other each
step with its data into a folder of its own, which goes when the step is the same."""

from __future__ import annotations

import math
import os
import shutil
from typing import TYPE_CHECKING

from pathlib import Path

from .. import _core
from ..calls.foreign import unhurt
from . import capture
from .launched import LaunchedRun

if TYPE_CHECKING:
    from .launched import LaunchOptions

BESIDE = "step"  # the folder, in that of the trace


class Every:
    """All steps."""

    def __contains__(self, step: object) -> bool:
        return True

    def __le__(self, steps: object) -> bool:
        return True


class UntilDiffers(LaunchedRun):
    """Counts steps, records them, and ends the recording where one differs."""

    def __init__(self, options: LaunchOptions) -> None:
        super().__init__(options)
        self.wanted, self.last = Every(), math.inf
        self.beside: capture.Recorder | None = None  # records the step with its data
        self.kept: tuple[Path, int, int] | None = None  # of the step that differs: (its folder, its number, bytes)

    def _begin(self) -> None:
        super()._begin()
        if self.finished or self.recorder is None or self.recorder.step is None:
            return
        with unhurt(self._fail):
            self.beside = capture.Recorder(
                self.recorder.path / BESIDE, "full", self.options.ops, self.options.limit, self.options.level
            )
            self.beside.begin(self.now)

    def _begin_anew(self) -> None:
        self._drop()
        super()._begin_anew()

    def _fail(self, error: BaseException) -> None:
        with unhurt():
            self._drop()
        super()._fail(error)

    def _drop(self) -> None:
        """Leaves out the data of the step that is recorded."""
        beside, self.beside = self.beside, None
        if beside is not None:
            with unhurt():
                beside.close(complete=False)
            shutil.rmtree(beside.path, ignore_errors=True)

    def _boundary(self) -> None:
        if self.finished:
            return
        with unhurt(self._fail) as looking:
            over = self._is_over()
        if looking.failed:
            return
        if over:
            self.last = self.now
        super()._boundary()

    def _is_over(self) -> bool:
        """Whether the step that has ended is the last one: it differs, or OTHER has no such step."""
        beside, self.beside = self.beside, None
        if beside is None:
            return False
        has_calls = beside.has_calls()
        beside.end()
        counts = beside.close() or {}
        found = _core.diff_step(beside.path, self._other(), self.now) if has_calls else (0, "")
        if found and found[1]:
            call, said = found
            self.said_at = self.now, call
            self.kept = beside.path, self.now, counts["bytes_written"]
            self.said = f"step {self.now} differs from {self._against.name}, at {said}; its data were kept"
            return True
        shutil.rmtree(beside.path, ignore_errors=True)
        if found is None and self.now == 0:
            raise ValueError(f"{self.options.until} has no step 0 to compare with: capture it with --steps 0-N")
        if found is None:
            self.said = f"nothing differs from {self._against.name}, which ends before step {self.now}"
        return found is None

    @property
    def _against(self) -> Path:
        assert self.options.until is not None  # which makes such a run
        return self.options.until

    def _other(self) -> Path:
        """OTHER's trace of this rank."""
        other = self._against
        return other if (other / "trace.db").exists() else other / f"rank-{self._place()[0]}"

    def _close(self, complete: bool = True) -> dict[str, int]:
        counts = super()._close(complete)
        if self.kept is not None:
            folder, step, size = self.kept
            _core.take_data(self.recorder.path, folder, step)
            shutil.rmtree(folder, ignore_errors=True)
            counts["bytes_written"] += size
        return counts

    def _end_open_step(self) -> None:
        """What came behind the last step is not one of its own."""
        recorder = self.recorder
        if recorder.step is not None:
            recorder._unhook()
            recorder.session.end_step(False)
            recorder.step = None

    def at_exit(self) -> None:
        """The program ended before a step differed."""
        if self.finished or os.getpid() != self.owner:
            return
        with unhurt(self._fail) as looking:
            if self.recorder is not None and self._ends_step():
                self._is_over()  # the program's end is that of its step
            self._drop()
        if looking.failed:
            return
        if self.recorder is not None and self.recorder.steps and not self._ends_step():
            self.said = f"nothing differs from {self._against.name} in the run's {len(self.recorder.steps)} steps"
            self._end_open_step()
            self._finish()
            return
        if self.said is None:
            self.said = f"nothing differs from {self._against.name}"
        super().at_exit()
