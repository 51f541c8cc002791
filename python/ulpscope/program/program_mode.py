# SPDX-License-Identifier: Apache-2.0
"""What every mode that works in a running program has in common: its scope (steps, ranks,
operators, modules, threads), where its steps end, and that its failure never ends the program.

Needs of torch: the hooks that tell where a step ends (program/hooks)."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Union

from ..calls.foreign import unhurt
from ..calls.shown import Shown
from . import capture as _capture
from . import regions as _regions

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Literal

    from typing_extensions import Self

Numbers = Union[int, Iterable[int], None]  # of ranks, of threads; None: all


class Scope:
    """
    Which calls a mode is for. Of each None: all.

    `ops`: a PATTERN of operators. `steps`: a list, an int, a range or text ("2,5-8"), from 0.
    `ranks`: a list or an int. `modules`: a PATTERN over module paths ("layers.*.attn", which
    covers what lies in it). `threads`: native ids (threading.get_native_id()).
    `step_by`: what ends a step, "optimizer", "dataloader", "manual"; None finds out.

    Raises ValueError with a sentence for anything else.
    """

    def __init__(
        self,
        ops: str | None = None,
        steps: _capture.Steps = None,
        ranks: Numbers = None,
        modules: str | None = None,
        threads: Numbers = None,
        step_by: str | None = None,
    ) -> None:
        from . import hooks as _hooks

        if step_by is not None and step_by not in _hooks.SOURCES:
            raise ValueError(f"step_by '{step_by}': one of {', '.join(_hooks.SOURCES)}")
        _capture.check_ops(ops)
        try:
            _capture.check_ops(modules)
        except ValueError as error:
            raise ValueError(f"modules: {str(error).removeprefix('ops: ')}") from None
        self.ops, self.modules, self.step_by = ops, modules, step_by
        self.steps = _steps(steps)
        self.ranks = None if ranks is None else _numbers("ranks", ranks)
        self.threads = None if threads is None else _numbers("threads", threads)
        self.unmatched: list[str] | None = None  # globs of ops that no operator of a session met, once there was one

    def met(self, session: Any) -> None:
        """Notes which globs of `ops` operators of a session have met."""
        if self.ops is not None:
            quoted = session.unmatched().split(", ")
            self.unmatched = [u for u in quoted if u and (self.unmatched is None or u in self.unmatched)]

    def wants_step(self, step: int) -> bool:
        """Whether calls of this step are in the scope."""
        return self.steps is None or step in self.steps

    def wants_rank(self) -> bool:
        """Whether this process's rank is in the scope; asked late, a rank may be joined any time."""
        return self.ranks is None or _capture.rank_and_world()[0] in self.ranks


def _steps(given: Any) -> Any:
    """A range may have no end that matters (range(5, sys.maxsize)): it is asked, not listed."""
    if given is None or isinstance(given, range):
        return given
    return set(_capture.parse_steps(given))


def _numbers(what: str, given: Any) -> set[int]:
    try:
        found = {given} if isinstance(given, int) else {int(n) for n in given}
    except (TypeError, ValueError):
        raise ValueError(f"{what} {given!r}: a number or a list of numbers") from None
    if not found or min(found) < 0:
        raise ValueError(f"{what} {given!r}: one number or more, from 0")
    return found


class ProgramMode(Shown, contextlib.ContextDecorator):
    """
    A context manager and decorator that works step by step. What derives from it says what
    it does in `_begin(step)`, `_end(goes_on)` and `_close()`; these may raise: the mode then
    switches itself off and says so once, the program goes on. `_tell()` runs outside of that, at
    the end of each step and of a block that raised nothing: what it raises is for the program.

    `error` holds the sentence of what ended it, None while all is well. A mode may be entered
    again once it was left; steps go on being counted.
    """

    NOUN = "the mode"  # "NaN tracking": begins the sentence where it fails
    # "judged": what was not done to regions that a compiler made code of; None: nothing is said
    UNSEEN: str | None = None

    def __init__(self, scope: Scope) -> None:
        from . import hooks as _hooks

        self.scope = scope
        self.hooks = _hooks.Steps(self._boundary, source=scope.step_by)
        self.now = 0
        self.open = False  # a step is, that is in the scope
        self.error: str | None = None
        self.generated: dict[int, Any] = {}  # graphs that ran as code of a compiler, while the mode was entered
        self.regions: _regions.Regions | None = None

    def _begin(self, step: int) -> None:
        """Works from here on, as `step`."""

    def _end(self, goes_on: bool) -> None:
        """The step is over; `goes_on`: the next one begins at once."""

    def _close(self) -> None:
        """Takes everything back. Also behind a failure, and then where nothing began."""

    def _tell(self) -> None:
        """Says what was found to whom it concerns."""

    def _abandon(self) -> None:
        """Takes hooks out of the program in a forked child, and touches nothing else."""

    def _told(self) -> str:
        """What came of it so far, for a line about it."""
        return ""

    def _shown(self) -> str:
        name = type(self).__name__
        state = f"in step {self.now}" if self.open else "not in a step"
        return ", ".join(filter(None, (f"{name}: {self._told() or state}", self._told() and state, self.error)))

    def abandon(self) -> None:
        """This process was forked while the mode was entered, which is not its own: it is left
        without a word."""
        self.open = False
        self.hooks.remove()
        if self.regions is not None:
            self.regions.remove()
            self.regions = None
        self._abandon()

    def step(self) -> None:
        """Ends a step, unless optimizer or data loader already do."""
        self.hooks.manual_end()

    def __enter__(self) -> Self:
        self.error = None
        with self._guarded():
            self.hooks.active = True
            self.hooks.install()
            if self.UNSEEN is not None and self.regions is None:
                self.regions = _regions.Regions(self.generated)
            self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        with self._guarded():
            self.hooks.remove()
            if self.open:
                self.open = False
                self._end(False)
        with self._guarded():
            self._close()
        self._look_away()
        if kind is None:
            self._tell()
        return False

    def _look_away(self) -> None:
        """Says how many compiled regions there were."""
        if self.regions is None:
            return
        self.regions.remove()
        self.regions, n = None, len(self.generated)
        self.generated.clear()
        if n > 0 and self.error is None:
            what = "region ran and was" if n == 1 else "regions ran and were"
            with contextlib.suppress(OSError, ValueError):
                print(
                    f"ulpscope: {n} compiled {what} not {self.UNSEEN}; TORCH_COMPILE_DISABLE=1 in "
                    "the environment lets its calls be seen",
                    file=sys.stderr,
                )

    def _wants(self, step: int) -> bool:
        return self.scope.wants_step(step) and self.scope.wants_rank()

    def _start(self) -> None:
        if self._wants(self.now):
            self._begin(self.now)
            self.open = True

    def _boundary(self) -> None:
        with self._guarded():
            goes_on = self._wants(self.now + 1)
            if self.open:
                self.open = False
                self._end(goes_on)
            self.now += 1
            self._start()
        self._tell()

    def _guarded(self) -> unhurt:
        """What goes wrong in the mode ends the mode, never the program."""
        return unhurt(self._fail)

    def _fail(self, error: BaseException) -> None:
        self.hooks.active = self.open = False
        if self.error is None:
            self.error = f"{self.NOUN} failed: {error or type(error).__name__}"
            with contextlib.suppress(OSError, ValueError):
                print(f"ulpscope: {self.error}; the program goes on", file=sys.stderr)
        with unhurt():
            self._close()
