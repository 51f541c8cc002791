# SPDX-License-Identifier: Apache-2.0
"""What a failing case of a text tells: made small by simpler draws while it fails in the same way, then the program as
it was drawn, what it was given, and what to type to see it again. Needs torch for differences."""

from __future__ import annotations

import math
import os
import re
import sys
import time
import unittest
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..calls.foreign import foreign, theirs
from ..calls.gradients import with_gradients
from ..calls.call_results import flatten
from ..calls.verdicts import FLAGGED
from ..causes import host
from . import steps
from ..session.explained import explain
from .tape import SIMPLE, Tape
from .text_case import Refused, judged, moved, on_side, replayed

if TYPE_CHECKING:
    from .steps import MadeCalls

TRIES, SECONDS = 64, 5.0
LAST = 1 - 2.0**-53  # the largest draw: the last of what is chosen from
HALVES = 4
LINES = 40
# What the parts of a result are called in a text that is differentiated (`calls.gradients`).
PARTS = {
    "out[1]": "gradient of an input",
    "out[2]": "gradient of a gradient: of the inputs, then of the first cotangent",
}


def parsed(case: Any, seed: int = 0) -> tuple[int, int, dict[Any, Any]]:
    """(seed, number, choices) of what names a case: 7, "7", "0:7", or "0:7; 2=0, x1=ones" with draws that are not its
    own."""
    head, _, rest = str(case).partition(";")
    first, _, number = head.rpartition(":")
    try:
        choices = {}
        for word in rest.replace(",", " ").split():
            key, _, value = word.partition("=")
            choices[key if key.startswith("x") else int(key)] = value if key.startswith("x") else float(value)
            if key.startswith("x") and value not in SIMPLE:
                raise ValueError
        return int(first or seed), int(number), choices
    except ValueError:
        raise ValueError(f'case is {case!r}: a number, "SEED:CASE", or what a failure printed') from None


def written(tape: Tape) -> str:
    """The words that name a case."""
    more = ", ".join(
        f"{k}={v:g}" if isinstance(v, float) and v == float(f"{v:g}") else f"{k}={v!r}".replace("'", "")
        for k, v in tape.choices.items()
    )
    return f"{tape.seed}:{tape.case}" + (f"; {more}" if more else "")


class Failure:
    """One case that fails: its tape and what was found."""

    def __init__(self, tape, verdict=None, problem=None):
        self.tape, self.verdict, self.problem = tape, verdict, problem

    def kind(self) -> tuple[str, str]:
        """What must stay while it is made smaller."""
        if self.verdict is None:
            words = re.sub(r"[\d.,]+", "#", str(self.problem).split("(")[0])
            return type(self.problem).__name__, words
        path = next((o.path for o in self.verdict.outputs if o.verdict == self.verdict.verdict), "")
        return self.verdict.verdict, path.rpartition("[")[0]

    def size(self) -> tuple[Any, ...]:
        return size(self.tape)


def size(tape: Tape) -> tuple[Any, ...]:
    """By which a case is smaller than another."""
    lines = steps.text(tape.steps)
    return len(lines), sum(t.numel() for t in tape.made), sum(map(len, lines)), len(tape.choices)


def tried(
    function: Callable[..., Any], tape: Tape, device: Any, args: Sequence[Any], how: dict[str, Any]
) -> Failure | None:
    """The failure of a case, None where it passes or is refused."""
    try:
        verdict = judged(function, tape, device, args, **how)
    except (Refused, unittest.SkipTest):
        return None
    except Exception as problem:  # an assertion of the text, or two sides that disagree
        foreign(problem)
        return Failure(tape, problem=problem)
    return Failure(tape, verdict) if verdict is not None and verdict.verdict in FLAGGED else None


def off(function: Callable[..., Any], tape: Tape, device: Any, args: Sequence[Any], backward: bool) -> dict[str, float]:
    """How far the device is from the CPU in each output, of the largest number there; Inf where one of them alone is no
    number. It costs a run of each, where a verdict costs hundreds."""
    try:
        program, leaves, has = replayed(function, tape, device, args)
        backward = backward and has
        there = on_side(program, tape, device, leaves if backward else None)
        mine, other = (
            dict(flatten(theirs(with_gradients(p) if backward else p, *given)))
            for p, given in ((program, leaves), (there, moved(leaves, device)))
        )
    except Exception as problem:
        foreign(problem)
        return {}
    return {path: _off(mine[path].detach(), t.detach().cpu()) for path, t in other.items() if path in mine}


def _off(mine, other):
    if mine.shape != other.shape or not mine.numel():
        return math.inf if mine.shape != other.shape else 0.0
    mine, other = (t.resolve_conj().to(torch.complex128 if t.is_complex() else torch.float64) for t in (mine, other))
    finite = mine.isfinite() & other.isfinite()
    if not torch.equal(mine.isfinite(), other.isfinite()):
        return math.inf
    most = (mine * finite).nan_to_num().abs().max().item()
    return ((mine - other).abs().nan_to_num() * finite).max().item() / most if most else 0.0


class TextSearch:
    """The smallest failure so far, and what is left to be spent."""

    def __init__(self, failure, function, device, args, how):
        self.tape, self.size, self.failure = failure.tape, failure.size(), failure
        self.run = function, device, args, how
        self.until, self.n = time.monotonic() + SECONDS, 0
        self.path, self.least = "", 0.0
        if failure.verdict is not None:
            self.path = next((o.path for o in failure.verdict.outputs if o.verdict == failure.verdict.verdict), "")
            self.least = off(function, fresh(failure.tape), device, args, how["backward"]).get(self.path, 0.0) / 4

    def fails(self, tape: Tape) -> bool:
        """Whether it fails as the first one did, as far as a run tells."""
        function, device, args, how = self.run
        if self.failure.verdict is not None:
            return 0 < self.least <= off(function, tape, device, args, how["backward"]).get(self.path, 0.0)
        found = tried(function, tape, device, args, how | {"judge": False})
        return found is not None and found.kind() == self.failure.kind()

    def smaller(self, key: Any, value: Any, more: float = 0) -> bool:
        """Whether another draw makes it smaller, or, of tensors, simpler (`more`)."""
        old = self.tape
        if self.n >= TRIES or time.monotonic() > self.until or old.choices.get(key, old.log.get(key)) == value:
            return False
        self.n += 1
        tape = Tape(old.seed, old.case, choices=old.choices | {key: value})
        if not self.fails(tape) or not size(tape) < (*self.size[:3], self.size[3] + more):
            return False
        self.tape, self.size = tape, size(tape)
        return True

    def draws(self) -> None:
        """Every draw as its least or its last, else as low as bisecting finds, until none of them helps."""
        again = True
        while again and self.n < TRIES:
            again = False
            for key in [*self.tape.log]:
                low, high = 0.0, self.tape.log.get(key, 0.0)
                if high and (self.smaller(key, 0.0) or self.smaller(key, LAST)):
                    again, high = True, 0.0
                for _ in range(HALVES if high else 0):
                    middle = (low + high) / 2
                    if key in self.tape.log and self.smaller(key, middle):
                        again, high = True, middle
                    else:
                        low = middle

    def values(self) -> None:
        """Simple values of each tensor, which say more than others."""
        for i, made in enumerate([*self.tape.made]):
            _ = made.is_floating_point() and any(self.smaller(f"x{i}", name, more=2) for name in SIMPLE)


def alike(found: Failure, failure: Failure) -> bool:
    """Whether two failures are of one kind: numbers that are off, by more or less, are."""
    kinds = {found.kind()[0], failure.kind()[0]}
    return len(kinds) == 1 or kinds == {"wrong", "reduced"}


def shrunk(
    failure: Failure, function: Callable[..., Any], device: Any, args: Sequence[Any], how: dict[str, Any]
) -> tuple[Failure, int, Tape | None]:
    """(the smallest failure that tells as much, how many runs that took, a smaller one that does not tell the
    cause)."""
    if how["via"] or how["double_backward"]:
        return explained(failure, function, device, args, how), 0, None
    search = TextSearch(failure, function, device, args, how)
    search.draws()
    if failure.verdict is not None:
        search.values()
    if search.tape is failure.tape:
        return explained(failure, function, device, args, how), search.n, None
    found = tried(function, fresh(search.tape), device, args, how)
    if found is None or not alike(found, failure):
        return explained(failure, function, device, args, how), 0, None
    if how["cause"] and found.verdict is not None and not caused(found.verdict):
        whole = explained(failure, function, device, args, how)
        if caused(whole.verdict):
            return whole, 0, found.tape
    return found, search.n, None


def caused(verdict: Any) -> bool:
    """Whether the cause of something in it is known."""
    return any(host.is_named(output.cause) for output in verdict.outputs)


def fresh(tape: Tape) -> Tape:
    """The same case anew."""
    return Tape(tape.seed, tape.case, choices=tape.choices)


def explained(
    failure: Failure, function: Callable[..., Any], device: Any, args: Sequence[Any], how: dict[str, Any]
) -> Failure:
    """A failure with its cause, which nobody looked for yet."""
    if failure.verdict is None or not how["cause"]:
        return failure
    again = tried(function, fresh(failure.tape), device, args, how)
    return again if again is not None and again.verdict is not None else failure


# ---- in words --------------------------------------------------------------------------


def told(
    failure: Failure,
    function: Callable[..., Any],
    device: Any,
    args: Sequence[Any],
    options: dict[str, Any],
    how: dict[str, Any],
    shrink: bool,
) -> str:
    """What is printed of a failure."""
    if shrink:
        failure, tries, smaller = shrunk(failure, function, device, args, how)
    else:
        failure, tries, smaller = explained(failure, function, device, args, how), 0, None
    tape, verdict = failure.tape, failure.verdict
    name = getattr(function, "__name__", "the test")
    text = explain(verdict) if verdict is not None else str(failure.problem)
    differentiated = " with backward " in text or " with double backward " in text
    lines = [f"{name} on {device}, case {tape.seed}:{tape.case}: {text}"]
    lines += [f"{path} is a {what}" for path, what in PARTS.items() if differentiated and path in text]
    program = steps.text(tape.steps, wanted(tape.steps, text, differentiated))
    small = f", the smallest of {tries + 1} that were tried" if tries else ""
    lines += [f"the program{small} (x: drawn, m: modules; values by the case and their order):"] if program else []
    lines += [f"    {line}" for line in program[:LINES]]
    if len(program) > LINES:
        lines.append(f"    ... and {len(program) - LINES} more lines")
    if smaller is not None:
        lines.append(f'a smaller one, which does not show the cause: case="{written(smaller)}"')
    return "\n".join([*lines, again(function, device, args, options, tape)])


def wanted(recorded: MadeCalls, text: str, differentiated: Any) -> list[int] | None:
    """The numbers of what is accused, None where that is not one output."""
    found = re.search(r"\bout\[0\]\[(\d+)\]" if differentiated else r"\bout\[(\d+)\]", text)
    i = int(found[1]) if found else -1
    return [recorded.kept[i]] if 0 <= i < len(recorded.kept) and "out[1]" not in text.replace("out[0][1]", "") else None


def again(function: Callable[..., Any], device: Any, args: Sequence[Any], options: dict[str, Any], tape: Tape) -> str:
    """What to type to see it again."""
    name = getattr(function, "__qualname__", "test").rpartition("<locals>.")[2]
    by, home = options["by"]
    more = "".join(f", {k}={v!r}" for k, v in options.items() if k != "by")
    call = f'{by}(case="{written(tape)}", devices=("cpu", "{device}"){more})({name})({", ".join(one(a) for a in args)})'
    lines = [*imported(function, name), f"from {home} import {by}", call]
    return "\n".join(["that case alone:", *(f"    {line}" for line in lines)])


def imported(function: Callable[..., Any], name: str) -> list[str]:
    """The lines that bring a function; none where it lives in another one."""
    home = sys.modules.get(getattr(function, "__module__", ""))
    path = getattr(home, "__file__", None)
    if path is None or "<locals>" in getattr(function, "__qualname__", ""):
        return []
    module = os.path.basename(path).removesuffix(".py") if home.__name__ == "__main__" else home.__name__
    folder = os.path.abspath(path)
    for _ in module.split("."):
        folder = os.path.dirname(folder)
    return [f"import sys; sys.path.insert(0, {folder!r})", f"from {module} import {name.partition('.')[0]}"]


def one(arg: Any) -> str:
    """What stands for an argument that a test was given."""
    if isinstance(arg, unittest.TestCase):
        return f"{type(arg).__name__}({arg._testMethodName!r})"
    plain = arg is None or isinstance(arg, (bool, int, float, str))
    return repr(arg) if plain else f"{type(arg).__name__}()"
