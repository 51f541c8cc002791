# SPDX-License-Identifier: Apache-2.0
"""Numbers of a step for whoever draws curves: a function that the program names (`wandb.log`,
`mlflow.log_metrics`), or a folder that TensorBoard reads.

Needs of torch: nothing."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Union

from .. import _core
from ..calls.foreign import theirs, unhurt


ScalarsTo = Union[
    Callable[..., Any], str, "os.PathLike[str]", None
]  # what takes ({name: number}, step=step), or a folder


class EventFile:
    """A new event file in `folder`, written from the first number on."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.file: BinaryIO | None = None

    def __call__(self, values: dict[str, float], step: int) -> None:
        if self.file is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            name = f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}.{os.getpid()}.ulpscope"
            self.file = open(self.folder / name, "wb")  # noqa: SIM115 - it stays open
            self.file.write(_core.event_record(time.time(), 0, {}))
        self.file.write(_core.event_record(time.time(), step, values))
        self.file.flush()

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
        self.file = None


class Scalars:
    """What `scalars=` was given: a function, called with ({name: number}, step=step), or a folder.
    One that fails is said once and not called again: it is no matter of the program."""

    def __init__(self, given: ScalarsTo, noun: str) -> None:
        if given is not None and not callable(given) and not isinstance(given, (str, os.PathLike)):
            raise ValueError(f"scalars {given!r}: a function such as wandb.log, or a folder for TensorBoard")
        self.noun = noun
        self.take = given if given is None or callable(given) else EventFile(given)
        self.last: tuple[int, dict[str, float]] | None = None

    def __bool__(self) -> bool:
        return self.take is not None

    def put(self, values: dict[str, float], step: int) -> None:
        """Nothing that was told before is told again."""
        if self.take is None or (step, values) == self.last:
            return
        self.last = step, values
        with unhurt(self._cannot):
            try:
                theirs(self.take, {f"ulpscope/{name}": value for name, value in values.items()}, step=step)
            except OSError as problem:  # of a disk that is full
                self._cannot(problem)

    def _cannot(self, problem: BaseException) -> None:
        self.take = None
        text = f"{type(problem).__name__}: {problem}"
        print(f"ulpscope: {self.noun}: scalars: {text}; it goes on without them", file=sys.stderr)

    def close(self) -> None:
        if isinstance(self.take, EventFile):
            self.take.close()
