# SPDX-License-Identifier: Apache-2.0
"""Short programs on a device: what is said of one, which line of one is at fault, and the smallest program that fails
as well. Only the recipe is changed: lines, sizes, layouts, dtypes and kinds of values, never elements.
Needs nothing of torch that replays do not."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from ..calls.foreign import foreign
from ..calls.verdicts import FLAGGED
from ..executors.device import DeviceDied
from . import words
from ..session.as_written import as_written
from ..session.judging import Verdict, judge_call as judge_alone

if TYPE_CHECKING:
    from .short_programs import Program
    from ..calls.replay import Call

TRIES, SECONDS = 60, 120.0
SHOWN = 48  # elements that a script shows by value
SIZES = (1, 2, 3, 4, 8, 16, 17)


def judge_call(call: Call, device: Any, **how: Any) -> Verdict:
    """The verdict on a program. Each operator of it rounds to the dtype that it gives, as the text says: what is
    off is not accused where torch's own run on the CPU, operator by operator, is as far off."""
    return as_written(call, judge_alone(call, device, **how))


def forget(device: Any) -> None:
    """Lets go of what was compiled: no program comes twice."""
    if getattr(device, "made", None):
        device.made.clear()
        torch.compiler.reset()


def verdict_on(program: Program, device: Any) -> Verdict | None:
    """What is said of a program; None where it is none, or the device does not run it."""
    try:
        return judge_call(program.call(), device, seconds=0)
    except DeviceDied:
        raise
    except Exception as problem:  # what torch refuses; BadCall
        foreign(problem)
        return None


def culprit(program: Program, device: Any) -> tuple[str, str] | None:
    """(operator, its line) of the step with which a program begins to be accused; None where none is
    alone with those before it."""
    for n in range(1, len(program.steps) + 1):
        part = replace(program, steps=program.steps[:n])
        said = verdict_on(part, device) if n < len(program.steps) else None
        if n == len(program.steps) or (said is not None and said.verdict in FLAGGED):
            name, text = part.lines()[-1]
            return f"aten::{words.WORDS[part.steps[-1].word][0]}", f"{name} = {text}"
    return None


# ---- smaller ---------------------------------------------------------------------------


def shrunk(
    program: Program, verdict: Verdict, device: Any, shows: Callable[..., bool] | None = None
) -> tuple[Program, Verdict]:
    """The smallest program found that fails with the same verdict, and what is said of it. `shows(call, verdict)`:
    what must be true of it beside."""
    search = ShortSearch(program, verdict, device, TRIES, shows)
    if verdict.verdict in FLAGGED - {"intermittent"}:
        before = None
        while before != search.program:
            before = search.program
            search.steps()
            search.inputs()
    return search.program, search.verdict


class ShortSearch:
    """The smallest program so far, and what is left to be spent."""

    def __init__(self, program, verdict, device, tries, shows=None):
        self.program, self.verdict, self.device = program, verdict, device
        self.shows = shows or (lambda call, verdict: True)
        self.left, self.until = tries, time.monotonic() + SECONDS

    def keeps(self, program: Program | None) -> bool:
        """Whether a program fails as this one does: it is the smallest then."""
        if program is None or program == self.program or self.left == 0 or time.monotonic() > self.until:
            return False
        try:
            program.lines()
        except Exception as problem:  # it does not go together
            foreign(problem)
            return False
        self.left -= 1
        try:
            said = verdict_on(program, self.device)
        except DeviceDied:
            self.left = 0
            return False
        if said is None or said.verdict != self.verdict.verdict or not self.shows(program.call(), said):
            return False
        self.program, self.verdict = program, said
        return True

    def steps(self) -> None:
        """Without steps: the last ones first, then each with one of its operands in its place."""
        i = len(self.program.steps) - 1
        while i >= 0:
            _ = any(self.keeps(without(self.program, i, at)) for at in (0, 1, 2))
            i = min(i, len(self.program.steps)) - 1

    def inputs(self) -> None:
        """Inputs of fewer kinds: not read, row-major, float32, plain values, few elements."""
        i = len(self.program.inputs) - 1
        while i >= 0:
            if not self.keeps(unread_input(self.program, i)):
                self._simpler(i)
            i -= 1
        for n in sorted({n for t, *_ in self.program.inputs for n in t[1] if n > 1}, reverse=True):
            _ = any(self.keeps(resized(self.program, n, to)) for to in SIZES if to < n)

    def _simpler(self, i):
        t, kind, *_ = self.program.inputs[i]
        self.keeps(with_input(self.program, i, dense(t), kind))
        t, kind, *_ = self.program.inputs[i]
        if t[0] in ("bfloat16", "float16"):
            self.keeps(with_input(self.program, i, ("float32", *t[1:]), kind))
        t, kind, *_ = self.program.inputs[i]
        if "float" in t[0] and kind != "normal":
            self.keeps(with_input(self.program, i, t, "normal"))


# Values that a reader can make: texts with sizes {s}, their product {n}.
TEXTS = (
    "torch.ones({s})",
    "torch.arange({n}).reshape({s}) % 7 - 3.0",
    "torch.linspace(-1, 1, {n}).reshape({s})",
    "torch.randn({s}, generator=torch.Generator().manual_seed(0))",
)


def texts(
    program: Program, verdict: Verdict, device: Any, shows: Callable[..., bool] | None = None
) -> tuple[Program, Call, Verdict]:
    """(program, call, verdict) with values that a text makes, in place of drawn ones, where it fails so too."""
    search = ShortSearch(program, verdict, device, 2 * TRIES, shows)
    for i, (t, kind, _) in enumerate(program.inputs):
        for text in TEXTS if "float" in t[0] else ():
            n = 1
            for size in t[1]:
                n *= size
            if n <= SHOWN:  # it is written as it is
                break
            if search.keeps(with_input(search.program, i, t, kind, text.format(s=list(t[1]), n=n))):
                break
    return search.program, search.program.call(), search.verdict


def without(program: Program, i: int, at: int) -> Program | None:
    """The program without step i: who read its result reads operand `at` of it. None where that is none."""
    gone, place = program.steps[i], len(program.inputs) + i
    operands = program.operands(gone)
    if i == len(program.steps) - 1:
        return replace(program, steps=program.steps[:i]) if at == 0 and i > 0 else None
    if at >= len(operands):
        return None
    moved = lambda k: operands[at] if k == place else k - (k > place)  # noqa: E731
    rest = [replace(s, operands=tuple(map(moved, s.operands))) for s in program.steps[i + 1 :]]
    return replace(program, steps=(*program.steps[:i], *rest))


def unread_input(program: Program, i: int) -> Program | None:
    """The program without input i; None where a step reads it, or it is the last one."""
    if len(program.inputs) == 1 or any(i in program.operands(s) for s in program.steps):
        return None
    moved = lambda k: max(k - (k > i), 0) if k != i else 0  # noqa: E731
    steps = tuple(replace(s, operands=tuple(map(moved, s.operands))) for s in program.steps)
    return replace(program, inputs=program.inputs[:i] + program.inputs[i + 1 :], steps=steps)


def with_input(program: Program, i: int, t: tuple[Any, ...], kind: str, text: str = "") -> Program:
    return replace(program, inputs=(*program.inputs[:i], (t, kind, text), *program.inputs[i + 1 :]))


def dense(t: tuple[Any, ...]) -> tuple[Any, ...]:
    """A tensor in rows, without gaps."""
    strides, room = [], 1
    for n in reversed(t[1]):
        strides.insert(0, room)
        room *= max(n, 1)
    return (t[0], t[1], tuple(strides), 0, t[4], room, t[6])


def resized(program: Program, old: int, new: int) -> Program:
    """The program with every axis of size `old` made `new`, in rows."""
    inputs = [
        (dense((t[0], tuple(new if n == old else n for n in t[1]), *t[2:])), kind, text)
        for t, kind, text in program.inputs
    ]
    return replace(program, inputs=tuple(inputs))
