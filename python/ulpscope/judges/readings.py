# SPDX-License-Identifier: Apache-2.0
"""Other readings of one call, which are as right as its own: the operands of each, made when a case
first asks for it (docs/background/case.md). Serves `answers`; nothing here decides."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..calls.contents import LARGE
from ..calls.foreign import foreign
from ..calls.freedom import brought, freedom_of
from ..executors.conventions import readings
from ..executors.operands import Operands
from ..executors.reference_runs import DrawsUnsaid
from . import masked
from .refused import beside
from .in_rows import in_rows
from .unwritten import unwritten

if TYPE_CHECKING:
    import torch
    from ..calls.replay import Call
    from ..executors.operands import Timing

IN_ROWS = "for this layout the CPU gives something else than for the same numbers in rows; held to the latter"


def rows_of(call: Call) -> Call | None:
    """The call with the same numbers in rows; None where they are, or are many."""
    n_bytes = sum(math.prod(v.sizes) * v.dtype.itemsize for v in call.views.values())
    return in_rows(call) if n_bytes < LARGE else None


def _each(call: Call) -> Iterator[tuple[str, Call]]:
    """(note, call) of each reading. The last one because a kernel of the CPU may misread a tensor that is
    strided or expanded."""
    yield from readings(call)
    rows = rows_of(call)
    if rows is not None:
        yield IN_ROWS, rows


class Readings:
    """The readings of one call beside its own, shared by its outputs and by all answers to it."""

    def __init__(
        self,
        call: Call,
        timing: Timing,
        make: Callable[[Call, Timing], Operands] = Operands,
        steps: Callable[[int], dict[str, torch.Tensor] | None] = lambda k: None,
    ) -> None:
        self.call, self.timing, self.make = call, timing, make
        self.own_step = steps  # k -> (path -> what run k of a device's own steps gives), or None
        self._calls = _each(call)  # which knows nothing of this object, that would not be freed else
        self._made: list[tuple[str, Operands | Exception]] = []  # (note, Operands that have begun, or what they raised)
        # want -> what is made for it
        self._once: dict[str, tuple[str, Operands | Exception, dict[str, torch.Tensor]] | None] = {}

    def made(self, name: str) -> Any:
        """What was made for a want, None where it was not asked for."""
        return self._once.get(name)

    def unread(self) -> tuple[str, Operands, dict[str, torch.Tensor]] | None:
        """(note, operands, path -> elements) of attention that reads nothing hidden, and of those that may be
        NaN beside; None where nothing is hidden that is NaN."""
        if "unread" not in self._once:
            found = masked.unread(self.call)
            self._once["unread"] = found and (masked.NOTE, self._begun(found[0]), found[1])
        return _or_raise(self._once["unread"])

    def unwritten(self) -> tuple[str, Operands, dict[str, torch.Tensor]] | None:
        """(note, operands, path -> elements) of what the CPU's kernel writes, and of those that it leaves; None
        where it leaves none."""
        if "unwritten" not in self._once:
            marks = unwritten(self.call)
            self._once["unwritten"] = ("", self._begun(self.call, marks), marks) if marks else None
        return _or_raise(self._once["unwritten"])

    def reading(self, k: int) -> tuple[str, Operands, dict[str, torch.Tensor]] | None:
        """(note, operands, {}) of reading k; None where there are no more. Raises what its operators raise."""
        while len(self._made) <= k:
            found = next(self._calls, None)
            if found is None:
                return None
            note, call = found
            self._made.append((note, self._begun(call)))
        return _or_raise((*self._made[k], {}))

    def _begun(self, call: Call, unwritten: dict[str, torch.Tensor] | None = None) -> Operands | Exception:
        """Operands that have begun, or what they raised."""
        operands = self.make(call, self.timing)
        operands.reference.unwritten = unwritten or {}
        try:
            operands.begin()
        except Exception as problem:  # whatever an operator raises
            foreign(problem)
            return problem
        return operands


class NoOthers(Readings):
    """None beside the call's own, where these are given what others know nothing of: masks. What it rounds between
    its operators may be asked all the same."""

    def unread(self) -> None:
        return None

    def unwritten(self) -> None:
        return None

    def reading(self, k: int) -> None:
        return None


def _or_raise(
    made: tuple[str, Operands | Exception, dict[str, torch.Tensor]] | None,
) -> tuple[str, Operands, dict[str, torch.Tensor]] | None:
    if made is None:
        return None
    note, operands, marks = made
    if isinstance(operands, Exception):
        raise operands
    return note, operands, marks


def held_to(operands: Operands, make: Callable[..., Operands] = Operands) -> Operands:
    """The operands, which have begun; where the call's own reference fails those of the same call with
    something else in the places that it refuses, or of the same numbers in rows. Raises what that raises where
    these fail, too."""
    try:
        operands.begin()
        return operands
    except DrawsUnsaid:
        raise
    except Exception as problem:  # whatever an operator raises
        foreign(problem)
        found = beside(operands.call, problem, lambda call: make(call, operands.timing))
        if found is not None:
            return found
        rows = rows_of(operands.call)
        found = make(rows, operands.timing) if rows is not None else None
        if found is None or not _begins(found):
            raise problem
        found.note = IN_ROWS
        return found


def _begins(operands: Operands) -> bool:
    try:
        operands.begin()
    except Exception as problem:  # whatever an operator raises
        foreign(problem)
        return False
    return True


def clear_of_memory(operands: Operands) -> Operands:
    """The operands; where a reading was asked for that leaves out what nobody writes, and there is one, its."""
    readings = operands.readings
    made = readings and readings.made("unwritten")
    if not made or isinstance(made[1], Exception):
        return operands
    made[1].readings = readings
    held: Operands = made[1]
    return held


def as_held(operands: Operands, outputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Outputs in the order and the gauge in which the operands have theirs."""
    return brought(freedom_of(operands.call), outputs, operands.reference.truth)
