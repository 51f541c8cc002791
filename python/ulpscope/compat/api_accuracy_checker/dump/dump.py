# SPDX-License-Identifier: Apache-2.0
"""Captures iterations of the running program as the precheck's files. Needs torch's data loader, by
`program.hooks`. Recording is `program.capture`'s, into a trace beside the files; `ulpscope export`
makes them of it.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from ....program.capture import Recorder
from ..common.config import msCheckerConfig, pattern

if TYPE_CHECKING:
    from ....program.hooks import Steps


class Counted(TorchFunctionMode):
    """Counts the functions that give tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.n = 0

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        self.n += isinstance(result, torch.Tensor)
        return result


class Dump:
    """The one dump of this process."""

    def __init__(self) -> None:
        self.recorder: Recorder | None = None
        self.iteration = 0
        self.switched = 0  # times that the program itself switched on
        self.manual = False
        self.steps: Steps | None = None
        self.home = os.getpid()
        self.n_of_loader = 0  # calls that a data loader made of its own, which are left out

    # ---- by the data loader ----

    def watch(self) -> None:
        """Iterations are told by the data loader, until one that is captured was the last."""
        from ....program import hooks

        if self.steps is None and msCheckerConfig.enable_dataloader:
            self.steps = hooks.Steps(self.ended, source="dataloader", loading=self.loading)
            self.steps.install()
            atexit.register(self.close)

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """While a batch is made, which is no call of the network's: an iteration begins behind it."""
        at = self.recorder.step if self.recorder is not None else None  # None: it does not record
        recording = at is not None
        begins = recording if self.manual else self.iteration in msCheckerConfig.target_iter
        if msCheckerConfig.dataloader_calls:
            if begins and not recording:
                self.begin(self.iteration)
            yield
            return
        step = self.iteration if at is None else at
        self.end()
        with Counted() if begins else contextlib.nullcontext() as counted:
            yield
        if counted is not None:
            self.n_of_loader += counted.n
            self.begin(step)

    def ended(self) -> None:
        """An iteration is over. Raises behind the last that is wanted: that ends the training."""
        if self.manual:
            return
        self.end()
        last = max(msCheckerConfig.target_iter)
        if self.iteration == last:
            self.close()
            raise Exception(f"Model pretest: exit after iteration {last}.")
        self.iteration += 1

    # ---- by the program ----

    def switch(self, on: bool) -> None:
        """Begins, or ends and writes the files; what is so already stays."""
        self.manual = True
        if on and (self.recorder is None or self.recorder.step is None):
            self.switched += 1
            atexit.register(self.close)
            self.begin(self.switched)
        elif not on:
            self.close()

    # ---- recording ----

    def begin(self, step: int) -> None:
        """Records from here on."""
        if self.recorder is None:
            name = f".ulpscope-{os.getpid()}-{step}"
            self.recorder = Recorder(
                Path(msCheckerConfig.dump_path) / name,
                "full" if msCheckerConfig.real_data else "stats",
                level="api,aten",
            )
        self.recorder.begin(step)

    def end(self) -> None:
        """Records no more for now."""
        if self.recorder is not None:
            self.recorder.end()

    def close(self) -> None:
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
        n, self.n_of_loader = self.n_of_loader, 0
        if n > 0:
            print(
                f"api_accuracy_checker: {n} call{'s' * (n > 1)} by which the data loader made its batches "
                "left out (dataloader_calls in config.yaml)",
                file=sys.stderr,
            )


def write(trace: Path) -> None:
    """The files of a trace, in stepN of the dump's folder; the trace goes then."""
    here = Path(msCheckerConfig.dump_path)
    part = trace.with_name(trace.name + "-files")
    names = msCheckerConfig.white_list
    ops = pattern(names) if names else "*,!*::*"
    words = ["export", trace, "--format", "ascend-v1", "--process", os.getpid(), "-o", part, "--ops", ops]
    done = subprocess.run([sys.executable, "-m", "ulpscope", *map(str, words)], capture_output=True, text=True)
    # A name of the list stands for several APIs: that none of one was called ends with 2, behind what was written.
    if done.returncode != 0 and not done.stdout:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr else "ulpscope export failed")
    for file in sorted(p for p in part.rglob("*") if p.is_file()):
        to = here / file.relative_to(part)
        to.parent.mkdir(parents=True, exist_ok=True)
        file.replace(to)
        said = msCheckerConfig.for_the_check()
        if said and to.name.startswith("forward_info_"):
            to.with_name(to.name.replace("forward", "config", 1)).write_text(json.dumps(said), encoding="utf-8")
    shutil.rmtree(part)
    shutil.rmtree(trace)


running = Dump()


def set_dump_switch(switch: str) -> None:
    """Switches the dump "ON" or "OFF" by hand: iterations of a data loader do not count any more."""
    if switch not in ("ON", "OFF"):
        raise ValueError(f"set_dump_switch: '{switch}' is neither 'ON' nor 'OFF'")
    running.switch(switch == "ON")


def watch() -> None:
    """Watches the data loader from here on."""
    running.watch()
