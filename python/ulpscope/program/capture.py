# SPDX-License-Identifier: Apache-2.0
"""Recording steps of the running program into a trace.

`capture` is the public context manager; `Recorder` does the work for it and for programs
run under `ulpscope capture` (`launched`). Operators come in through glue/intercept, data
go out through the C session; Python only says which step it is.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from ..calls.foreign import unhurt
from ..calls.shown import Shown, counted, sized

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Literal

    from typing_extensions import Self
    from .forwards import Forwards

Steps = Union[int, str, Iterable[int], None]  # which steps: 2, [0, 5], range(3), "2,5-8"; None: all

DATA = ("full", "stats")
LEVELS = ("api", "aten")


def parse_steps(steps: int | str | Iterable[int]) -> list[int]:
    """
    Step numbers from "1", "2,5-8", an int or an iterable of ints, as a sorted list.

    Raises ValueError with a sentence for anything else.
    """
    if isinstance(steps, int):
        steps = [steps]
    if isinstance(steps, str):
        numbers = {n for first, last in _ranges(steps) for n in range(first, last + 1)}
    else:
        numbers = {int(s) for s in steps}
    if not numbers or min(numbers) < 0:
        raise ValueError(f"steps {steps!r}: one step or more, counted from 0")
    return sorted(numbers)


def _ranges(text: str) -> list[tuple[int, int]]:
    """(first, last) of each part of "2,5-8"."""
    from .. import _core

    try:
        return _core.parse_steps(text)
    except _core.ArgError as error:
        raise ValueError(str(error)) from None


def rank_and_world() -> tuple[int, int]:
    """This process's rank and how many there are: torch.distributed's, else torchrun's."""
    import torch

    dist = torch.distributed
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    try:
        return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    except ValueError:  # variables of something else
        return 0, 1


def check_ops(ops: str | None) -> None:
    """Raises ValueError with a sentence where `ops` is no PATTERN (None is one)."""
    from .. import _core

    try:
        if ops is not None:
            _core.check_pattern(ops)
    except _core.ArgError as error:
        raise ValueError(f"ops: {error}") from None


def parse_levels(level: str | Iterable[str]) -> list[str]:
    """The levels in "api,aten" or an iterable of them; "module" holds the operators as well.
    ValueError for anything else."""
    levels = [w.strip() for w in level.split(",")] if isinstance(level, str) else list(level)
    if not levels or not set(levels) <= {*LEVELS, "module"}:
        raise ValueError(f"level {level!r}: {', '.join(LEVELS)} or both, or module")
    return ["aten", *levels] if "module" in levels else levels


def frame_rules() -> list[tuple[str, bool]]:
    """Which files a recorded Python stack shows: the user's, and the line in an
    nn.Module; the machinery of torch and of this package is left out."""
    import torch

    home = os.path.dirname(torch.__file__) + os.sep
    layers = os.path.join(home, "nn", "modules") + os.sep
    return [
        (home, False),
        (layers, True),
        (layers + "module.py", False),
        (layers + "container.py", False),
        (os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep, False),
    ]


class Recorder:
    """One trace. The session is opened when the first step begins, so that a process
    that never gets there leaves nothing behind. With `births` (_core.Births) they get the
    calls, and there is no trace: `path` is None."""

    def __init__(
        self,
        path: Any,
        data: str = "full",
        ops: str | None = None,
        limit: int | None = None,
        level: str = "aten",
        births: Any = None,
    ) -> None:
        if data not in DATA:
            raise ValueError(f"data '{data}': it is 'full' or 'stats'")
        check_ops(ops)
        self.path: Any = path if births is not None else Path(path)
        self.births = births
        self.data = data
        self.ops = ops
        self.levels = parse_levels(level)
        self.limit = limit  # bytes of tensor data; None: what the disk leaves
        self.scope: Any = None  # of a mode: its modules and threads
        self.session: Any = None  # a _core.Capture from the first step on
        self.steps: list[int] = []
        self.step: int | None = None
        self.before = 0  # calls of earlier steps
        self.hooks: list[Any] = []
        self.modules: Any = None  # of the hooks, the one that knows modules
        self.sifted: dict[str, Any] = {}  # what the session leaves out: distinct, most; what it keeps: keep_calls
        self.generated: dict[int, Any] = {}  # graphs that ran as code of a compiler (regions)

    def begin(self, step: int) -> None:
        """Records from here on, as `step`."""
        from . import hooks as _hooks
        from . import regions

        if self.session is None:
            self._open()
        self.session.reset_place()
        self.step = step
        self.before = self.session.counts()["calls"]
        if self.hooks:
            self.modules.forget()
            self.session.begin_step(step)
            return
        graphs = _hooks.Graphs()  # asked for by begin_step
        functions = self._functions()
        forwards = self._forwards()
        try:
            self.session.begin_step(step)
        except Exception:  # too many others run
            for hook in functions:
                hook.remove()
            raise
        self.modules = _hooks.Modules(self.session, forwards)
        self.hooks = [graphs, self.modules, _hooks.Libraries(self.session), regions.Regions(self.generated), *functions]

    def _functions(self) -> list[Any]:
        """Hooks for Python functions: those that the program made operators, at each level."""
        from . import apis

        try:
            mode = apis.mode_for(self.session)
        except RuntimeError:
            if "api" in self.levels:
                raise
            return []
        found: list[Any] = [apis.Operators(mode)]
        return found + [apis.Apis(mode)] if "api" in self.levels else found

    def _forwards(self) -> Forwards | None:
        """What writes down forwards of modules, where it is asked for and the glue can."""
        from .forwards import Forwards

        with contextlib.suppress(RuntimeError):
            return Forwards(self.session) if "module" in self.levels else None
        return None

    def end(self, goes_on: bool = False) -> None:
        """Ends the step that is recorded, if one is. Where the next one begins at once
        (`goes_on`) everything stays where it is: to put it in takes longer than a small step."""
        if self.step is None:
            return
        if not goes_on:
            self._unhook()
        self.session.end_step(goes_on)
        self.steps.append(self.step)
        self.step = None

    def room(self) -> int:
        """How many bytes of tensor data may be written: up to the limit, and 5 % of the disk
        stay free (half of what is free where that is less), shared by the ranks here."""
        disk = os.statvfs(self.path.parent)
        free = disk.f_bavail * disk.f_frsize
        room = free - min(disk.f_blocks * disk.f_frsize // 20, free // 2)
        room //= max(1, int(os.environ.get("LOCAL_WORLD_SIZE") or 1))
        return max(1, room if self.limit is None else min(room, self.limit))

    def has_calls(self) -> bool:
        """Whether the step that is recorded has called an operator."""
        return bool(self.session.counts()["calls"] > self.before)

    def _unhook(self) -> None:
        if self.session is not None:
            self.session.reset_place()
        for hook in self.hooks:
            hook.remove()
        self.hooks = []

    def close(self, complete: bool = True) -> dict[str, int] | None:
        """
        Finishes the trace and returns its counters (None: nothing was recorded). A step
        that was not ended is marked as cut short.

        Raises OSError and the like with the session's first error.
        """
        if self.session is None:
            return None
        from .. import _core
        from . import provenance as _provenance

        interrupted, self.step = self.step is not None, None
        self._unhook()
        session, self.session = self.session, None
        if self.scope is not None:
            self.scope.met(session)
        if self.births is None:
            session.meta("devices", session.devices())
            session.meta("compiled_regions", str(len(self.generated)))
            session.meta("imports", json.dumps(_provenance.operator_sources(session)))
        error: BaseException | None = None
        try:
            session.flush()
        except (_core.UlpscopeError, OSError, MemoryError) as failure:
            error = failure
        counts: dict[str, int] = session.counts() | {"compiled_regions": len(self.generated)}
        self.generated.clear()
        session.close(complete and not interrupted and error is None)
        if error is not None:
            raise error
        return counts

    def _open(self) -> None:
        from .. import _core
        from . import glue as _glue
        from . import provenance as _provenance

        glue = _glue.ready("intercept")
        if self.births is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        self.session = _core.Capture(
            self.path and str(self.path),
            str(glue),
            stats_only=self.data == "stats" and "keep_path" not in self.sifted,
            ops=self.ops,
            debug=os.environ.get("ULPSCOPE_CAPTURE_DEBUG", "") not in ("", "0"),
            frames=frame_rules(),
            limit=0 if self.births is not None else self.room(),
            aten="aten" in self.levels,
            births=self.births,
            **self.sifted,
        )
        if self.scope is not None:
            threads = self.scope.threads
            self.session.scope(self.scope.modules, None if threads is None else sorted(threads))
        if self.births is not None and "keep_path" not in self.sifted:
            return
        if self.births is not None:
            self.session.meta("imports", json.dumps(_provenance.operator_sources(self.session)))
        for key, value in _provenance.environment(self.data, self.ops, *rank_and_world()).items():
            self.session.meta(key, value)


def check_empty(folder: Path) -> None:
    """Raises FileExistsError where a trace cannot be made because something is there."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} exists and is not empty; name another trace")


def _is_child() -> bool:
    """Whether multiprocessing started this process."""
    return multiprocessing.parent_process() is not None


def step() -> None:
    """Ends a step of the capture that is running here, `ulpscope capture --step-by manual`
    included; does nothing where none is."""
    hooks = sys.modules.get(f"{__package__}.hooks")
    if hooks is not None and hooks.running:
        hooks.running[-1].manual_end()


class capture(Shown):  # noqa: N801 - it is used like a function
    """
    Records operator calls into the trace folder `path`, while the block runs.

        with ulpscope.capture("trace", steps=[1]) as c:
            for batch in loader:
                train(batch)
                c.step()

    `steps`: numbers to record, counted from 0, as a list, an int or text ("2,5-8"). A
    step ends with the optimizer's step, without an optimizer with the data loader's next
    batch, or where `c.step()` is called; `step_by` ("optimizer", "dataloader", "manual")
    overrides. Without `steps` and `step_by` the whole block is step 0, and each
    `c.step()` begins another.
    `data`: "full" keeps the tensors, "stats" only statistics of them.
    `level`: "aten" records operators, "api" the Python functions that call them
    (torch.nn.functional.linear), "api,aten" both, operators below their function; "module"
    operators and the forward of each module as a whole (ulpscope diff --module).
    `ops`: a PATTERN of operators; calls below a composite call that matches are kept too.

    Of a job of several ranks (torch.distributed, or RANK and WORLD_SIZE) each writes
    `path`/rank-N; a process of torch.multiprocessing also where it joins its process group
    inside the block. One that joins none writes
    `path`/process-PID: others may come to stand beside it.

    After the block `c.counts` holds the session's counters (None: no step was reached).
    Where recording fails (a full disk) the program goes on: it is said on stderr, and
    `c.error` holds the sentence. Raises ValueError for bad arguments, FileExistsError where
    the folder holds anything.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        steps: Steps = None,
        data: str = "full",
        ops: str | None = None,
        step_by: str | None = None,
        level: str = "aten",
    ) -> None:
        from . import hooks as _hooks

        if step_by is not None and step_by not in _hooks.SOURCES:
            raise ValueError(f"step_by '{step_by}': one of {', '.join(_hooks.SOURCES)}")
        self.whole = steps is None and step_by is None
        self.wanted = None if steps is None else parse_steps(steps)
        self.recorder = Recorder(path, data, ops, level=level)
        self.hooks = _hooks.Steps(self._boundary, source="manual" if self.whole else step_by)
        self.now = 0
        self.counts: dict[str, int] | None = None
        self.error: str | None = None
        self.path = Path(path)
        if not _is_child():  # its rank may come later; beside it others write already
            check_empty(self._folder())

    def _shown(self) -> str:
        session, counts = self.recorder.session, self.counts
        counts = session.counts() if session is not None else counts
        done = f"{counted(counts['calls'], 'call')}, {sized(counts['bytes_written'])}" if counts else "nothing recorded"
        state = "recording" if session is not None else "not recording"
        return ", ".join(filter(None, (f"capture: {done} -> {self.path}", state, self.error)))

    def _folder(self) -> Path:
        rank, world = rank_and_world()
        if world == 1 and _is_child():  # which rank it is shows later
            return self.path / f"process-{os.getpid()}"
        return self.path if world == 1 else self.path / f"rank-{rank}"

    def _settle(self, joined: tuple[int, int] | None) -> None:
        """Moves a trace that was begun without a rank to where it belongs."""
        loose = self.recorder.path
        if self.counts is None or loose.name != f"process-{os.getpid()}":
            return
        rank, world = joined or (0, 1)
        if world > 1:
            loose.rename(self.path / f"rank-{rank}")

    def __enter__(self) -> Self:
        from . import hooks as _hooks

        self.recorder.path = self._folder()
        with self._guarded():
            self.ranks = _hooks.JoinedRanks()
            self.hooks.install()
            self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        with self._guarded():
            self.hooks.remove()
            if kind is None and (self.whole or self.wanted is None):
                self.recorder.end()  # the end of the block ends its last step
        with self._guarded():
            missed = self.wanted is not None and not set(self.wanted) <= set(self.recorder.steps)
            self.counts = self.recorder.close(complete=kind is None and not missed and not self.error)
            self.ranks.remove()
            self._settle(self.ranks.joined)
        return False

    def _guarded(self) -> unhurt:
        """What goes wrong in recording ends the recording, never the program."""
        return unhurt(self._fail)

    def _fail(self, error: BaseException) -> None:
        from .. import _core

        self.hooks.active = False
        if self.error is None:
            self.error = f"recording failed: {error or type(error).__name__}"
            if isinstance(error, _core.ExistsError):
                self.error += (
                    " (ranks have folders of their own where the process group is "
                    "initialised before the capture begins)"
                )
            print(f"ulpscope: {self.error}; the program goes on", file=sys.stderr)
        with unhurt():
            self.recorder._unhook()

    def step(self) -> None:
        """Ends a step, unless optimizer or data loader already do."""
        self.hooks.manual_end()

    def _wants(self, step: int) -> bool:
        return self.wanted is None or step in self.wanted

    def _begin(self) -> None:
        if self._wants(self.now):
            self.recorder.begin(self.now)

    def _boundary(self) -> None:
        with self._guarded():
            self.recorder.end(goes_on=self._wants(self.now + 1))
            self.now += 1
            self._begin()
