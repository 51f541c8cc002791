# SPDX-License-Identifier: Apache-2.0
"""Where NaN and Inf are born while a program trains.

`nan_tracker` is the public context manager. Calls come in as in a capture, as statistics
alone, and go through `usc_births` (ulpscope/x/flow.h) on the session's thread: no trace, no
file, memory for what lives. With `keep_calls` they come with their data, of which the last
stay in memory (src/capture/recent.h) until they are to be written. All wording is made in C, as for `ulpscope
overflow`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..calls.foreign import unhurt
from ..calls.shown import counted
from . import capture as _capture
from . import program_mode as _mode

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Literal


@dataclasses.dataclass(frozen=True)
class Birth:
    """Where one NaN or Inf came from; `sentence` says all of it."""

    op: str
    step: int
    phase: str  # "forward", "backward", "optimizer"
    module: str
    kind: str  # "born", "turned" (of an Inf), "entered" (from outside: data, a parameter)
    value: str  # "NaN" or "Inf"
    inputs: str
    sentence: str
    call: int  # its number, from 1
    stack: tuple[tuple[str, int, str], ...]  # (file, line, function) of the program, innermost first


RING = 256 << 20  # bytes between the calls and the thread that keeps them


def _birth(found: dict[str, Any]) -> Birth:
    frames = found.pop("frames")
    return Birth(**found, stack=tuple(tuple(f) for f in json.loads(frames)) if frames else ())


class nan_tracker(_mode.ProgramMode):  # noqa: N801 - it is used like a function
    """
    Finds where NaN and Inf are born while the block runs: forward, backward, optimizer.

        with ulpscope.nan_tracker() as nan:
            train()
        for birth in nan.births():
            print(birth.sentence)

    A call is a birth where NaN or Inf comes out of finite inputs (kind "born"), where NaN is
    made of an Inf ("turned"), and where a NaN comes in that no call seen has made
    ("entered": the data, a parameter). Calls that only carry it on are none, nor is Inf that a
    number asked for (masked_fill(mask, -inf)).

    `births()` may be called in the block, too: it waits for the calls so far. Steps are
    counted as in `capture`; `steps` (a list, an int, "2,5-8"), `ranks`: watch these alone. `ops`:
    a PATTERN of operators; `modules`: a PATTERN of module paths ("layers.*.attn", with what lies
    in them); `threads`: native ids. NaN of other calls then "entered". `keep`: the first so many births are
    kept, all are counted in `nan.n_births`. `on_birth`: "record"; "raise", a
    FloatingPointError where the step ends in which one was born; or a function, called
    there with each birth.

    `keep_calls`: the last so many calls stay in memory with their data, and are written as a
    trace into the folder `output` where the first NaN or Inf is born, that call the last of
    them, or where the block ends by an exception; `nan.trace` is the folder then (None: nothing
    was written). `ulpscope overflow`, `check` and `show` read it. Of more than `keep_bytes`
    bytes of data that is dropped which was not used for longest; calls that used it have
    statistics alone. Where `output` holds anything it is output-2, and so on; of several ranks
    output/rank-N. That it cannot be written is said once, and the program goes on.

    `on_device`: tensors of an accelerator are looked at where they lie, by operators of the
    device behind the program's own, and what they find is copied once a step: no call waits
    for the device, `births()` does. Of what was there before the block a sentence says that it
    holds NaN, not how many. False: their bytes are read, which waits for each. None: where they lie,
    but on the simulated device, whose memory is the host's, and with `keep_calls`, which reads bytes.

    It works beside a `capture` and other modes, four of them at once. Where tracking fails the
    program goes on without: it is said on stderr, and `nan.error` holds the sentence. Raises ValueError for bad
    arguments.
    """

    NOUN = "NaN tracking"
    UNSEEN = "watched for NaN"

    def __init__(
        self,
        ops: str | None = None,
        steps: _capture.Steps = None,
        on_birth: str | Callable[[Birth], object] = "record",
        keep: int = 1000,
        step_by: str | None = None,
        ranks: _mode.Numbers = None,
        modules: str | None = None,
        threads: _mode.Numbers = None,
        keep_calls: int = 0,
        keep_bytes: int = 256 << 20,
        output: str | os.PathLike[str] = "ulpscope-nan",
        on_device: bool | None = None,
    ) -> None:
        from .. import _core

        if on_birth not in ("record", "raise") and not callable(on_birth):
            raise ValueError(f"on_birth {on_birth!r}: 'record', 'raise' or a function")
        if not isinstance(keep, int) or keep < 1:
            raise ValueError(f"keep {keep!r}: one birth or more")
        if not isinstance(keep_calls, int) or keep_calls < 0:
            raise ValueError(f"keep_calls {keep_calls!r}: how many calls, 0 for none")
        if not isinstance(keep_bytes, int) or keep_bytes < 1:
            raise ValueError(f"keep_bytes {keep_bytes!r}: one byte or more")
        super().__init__(_mode.Scope(ops, steps, ranks, modules, threads, step_by))
        self.on_birth = on_birth
        self.found = _core.Births(keep)
        self.recorder = _capture.Recorder(None, "stats", ops, births=self.found)
        self.recorder.scope = self.scope
        self.keep_calls, self.keep_bytes = keep_calls, keep_bytes
        self.on_device = "ulpscope.sim" not in sys.modules if on_device is None else on_device
        self.output = Path(output).absolute()
        self.died = False  # the block ended by an exception
        self._trace = None
        self.n_told = 0  # to on_birth
        self.n_before = 0  # calls of sessions that are closed

    def births(self, first: int = 0) -> list[Birth]:
        """The births so far, as a list of `Birth`, in the order in which they came about; `first`:
        without so many that were there before."""
        with self._guarded():
            if self.recorder.session is not None:
                self.recorder.session.flush()
        return [_birth(b) for b in self.found.read(first)]

    def _told(self) -> str:
        return f"{counted(self.n_births, 'birth')} in {counted(self.n_calls, 'call')}"

    def _titles_and_rows(self) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
        rows: list[tuple[object, ...]] = [
            (b.value, b.kind, b.op, b.step, b.phase, b.module, b.sentence) for b in map(_birth, self.found.read(0))
        ]
        return ("value", "kind", "operator", "step", "phase", "module", "sentence"), rows

    @property
    def n_births(self) -> int:
        """How many there were so far, also those that `keep` left out."""
        return self.found.count()

    @property
    def n_calls(self) -> int:
        """How many calls were watched so far."""
        session = self.recorder.session
        return self.n_before + (session.counts()["calls"] if session is not None else 0)

    @property
    def trace(self) -> str | None:
        """The folder in which the last calls are, None where they were not written."""
        with self._guarded():
            self._look()
        return self._trace

    def keep(self) -> str | None:
        """Has the last calls written now, whatever was born; the folder, None where there are none."""
        session = self.recorder.session
        if session is not None and self.keep_calls and self._trace is None:
            session.keep()
            session.flush()
        return self.trace

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        left = kind is None or (issubclass(kind, SystemExit) and getattr(value, "code", None) in (None, 0))
        self.died = not left and not (kind is not None and issubclass(kind, GeneratorExit))
        return super().__exit__(kind, value, trace)

    def _begin(self, step: int) -> None:
        if self.recorder.session is None:
            if self.keep_calls and self._trace is None:
                self._keep()
            elif self.on_device:
                self.recorder.sifted = {"looks": True}
        self.recorder.begin(step)

    def _keep(self) -> None:
        """The session that is opened next keeps calls."""
        rank, world = _capture.rank_and_world()
        path = self.output
        if world > 1:
            n = 1
            while (path / f"rank-{rank}").exists():
                n += 1
                path = self.output.with_name(f"{self.output.name}-{n}")
            path /= f"rank-{rank}"
        self.recorder.sifted = {
            "keep_calls": self.keep_calls,
            "keep_bytes": self.keep_bytes,
            "keep_path": os.fspath(path),
            "ring_size": RING,
        }

    def _look(self, last: bool = False) -> None:
        """What came of the last calls; `last`: the session is about to be closed."""
        session = self.recorder.session
        if not self.keep_calls or session is None or self._trace is not None:
            return
        if last:
            if self.died:
                session.keep()
            session.flush()
        with unhurt(self._keep_none):  # the session goes on, and so do we
            self._trace = session.kept()

    def _keep_none(self, error: BaseException) -> None:
        self.keep_calls = 0
        print(f"ulpscope: the last calls are not kept: {error}; the program goes on", file=sys.stderr)

    def _end(self, goes_on: bool) -> None:
        failed = self.recorder.session and self.recorder.session.error()
        if failed:
            raise RuntimeError(failed)
        self.recorder.end(goes_on)
        self._look()

    def _close(self) -> None:
        if self.error is None:
            self._look(last=True)
        self.recorder.sifted = {}
        counts = self.recorder.close()
        if counts is None:
            return
        self.n_before += counts["calls"]

    def _abandon(self) -> None:
        self.recorder._unhook()

    def _tell(self) -> None:
        """Hands new births to on_birth. What that raises is for the program."""
        if self.on_birth == "record":
            return
        new = self.births(self.n_told)
        self.n_told += len(new)
        if not isinstance(self.on_birth, str):
            for birth in new:
                self.on_birth(birth)
        elif new:
            raise FloatingPointError(new[0].sentence)
