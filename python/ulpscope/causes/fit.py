# SPDX-License-Identifier: Apache-2.0
"""A number of a formula that somebody took otherwise, found by fitting: the error of a call
whose constant c is c + d follows the derivative by c, which one more run gives. Newton's steps
find d; the number counts where the run with it gives what the device gave, as for any mistake.
Neighbours: `edits` and `inside` (try usual numbers), `diagnose` (weighs).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..calls.foreign import tried
from .edges import sites
from .edits import phrase
from .inside import with_argument
from .lab import Lab, leaves

if TYPE_CHECKING:
    import torch
    from .evidence import Evidence
    from .graph import Node

MOST_DIALS = 32
STEP = 2.0**-14  # of the constant: far above float64's noise, nearly a derivative
MOST_STEPS = 10
LEAST_ERRORS = 8  # of their own, that one number has to explain
NOTHING = 2.0**-14  # of the error left: enough where all errors could be one factor
FOLLOWS = 0.5  # correlation of the error with the derivative that is worth a search
SETTLED = 2.0**-18  # a step so small that another would tell nothing
ZERO = 1e-4  # of a constant: what is left of one that was left out
WRITTEN = 3  # digits of a number that somebody wrote down; another one only fits
PLAIN = (1, 2, 3, 4)  # significant digits that a number may well have


@dataclass
class Dial:
    """One number of a call that can be turned."""

    old: float
    run: Callable[..., dict[str, torch.Tensor]]  # function(value) -> outputs by path
    text: Callable[..., str]  # function(value) -> what it means


def fitted(
    lab: Lab, evidence: Evidence, path: str, spend: Callable[..., Any]
) -> Iterator[tuple[str, Callable[..., Any]]]:
    """(text, run) of numbers that bring the output at `path` to what the device gave.
    `spend(n)` is told of every n runs and says whether more may follow."""
    if not evidence.floats:
        return
    most = 1 / 16 if evidence.independent() >= LEAST_ERRORS else NOTHING
    for dial in dials(lab)[:MOST_DIALS]:
        solver, value = _Solver(dial, evidence, path, spend), None
        with tried():  # not every number can be another
            value = solver.value(most)
        if value is not None:
            plain = float(f"{value:.{WRITTEN}g}") == value and solver.is_told(value)
            yield ("" if plain else "looks like: ") + dial.text(value), lambda d=dial, v=value: d.run(v)


def dials(lab: Lab) -> list[Dial]:
    """Every number of a call that can be turned, its own arguments first, then those of the
    operators inside."""
    op = lab.call.op.rpartition("::")[2].split(".")[0]
    return [
        *(
            Dial(old, lambda v, p=p: lab.run({p: lambda _: v}), lambda v, n=name, o=old: phrase(op, n, o, v))
            for p, name, old in leaves(lab.call)
            if isinstance(old, float) and old and name
        ),
        *_of_nodes(lab),
    ]


def _of_nodes(lab: Lab) -> list[Dial]:
    """Numbers of the operators of one place of the code, then those that are equal, or one less the
    other, at once."""
    held = [[(node, *found) for node in nodes for found in _numbers(node)] for nodes in sites(lab)]
    alike = [[s for s in some if s[1:] == first] for some in held for first in dict.fromkeys(s[1:] for s in some)]
    single, shared = [_together(lab, some, some[0][2]) for some in alike], []
    for value in dict.fromkeys(some[0][2] for some in alike):
        same = [
            s
            for some in alike
            for s in some
            if some[0][2] == value or (0 < value < 1 and abs(some[0][2] - (1 - value)) < 1e-9)
        ]
        if abs(value) != 1 and [same] not in ([some] for some in alike):
            shared.append(_together(lab, same, value))
    return single + shared


def _numbers(node: Node) -> Iterator[tuple[str, float]]:
    """(name of the argument, value) of the numbers that one operator computes with."""
    for argument in node.func._schema.arguments:
        old = node.value(argument.name)
        if isinstance(old, bool) or not isinstance(old, (int, float)) or old != old or not old:
            continue
        real = isinstance(old, float) or (
            argument.name in ("other", "exponent") and node.name in ("add", "sub", "mul", "div", "rsub", "pow")
        )
        if real and abs(old) < 1e30:
            yield argument.name, float(old)


def _together(lab: Lab, some: list[tuple[Node, str, float]], value: float) -> Dial:
    def run(v: float) -> dict[str, torch.Tensor]:
        return lab.run({node.place: with_argument(name, v if held == value else 1 - v) for node, name, held in some})

    node, name, _ = some[0]
    names = " and ".join(dict.fromkeys(n.name for n, _, _ in some))
    if len({n.site or n.place for n, _, _ in some}) == 1:
        return Dial(value, run, lambda v: phrase(node.name, name, value, v))
    return Dial(value, run, lambda v: f"computes as if the number {value:.6g} of {names} were {v:.6g}")


class _Solver:
    """Turns one dial until the error is gone, or shows that it does not go."""

    def __init__(self, dial: Dial, evidence: Evidence, path: str, spend: Callable[..., Any]) -> None:
        self.dial, self.evidence, self.path, self.spend = dial, evidence, path, spend

    def value(self, most: float = 1 / 16) -> float | None:
        """The number, as plain as it may be; None where none leaves at most so much of the error."""
        found = self._search()
        if found is None or abs(found - self.dial.old) <= 2.0**-12 * abs(self.dial.old):
            return None
        left = self._left(found)
        if not left <= most:
            return None
        if abs(found) < ZERO * abs(self.dial.old) and self._left(0.0) <= 2 * left + NOTHING / 4:
            return 0.0
        old = self.dial.old
        counted = [old - 1, old + 1] if old == round(old) and abs(old) > 2 else []  # a count is rather off by one
        for plain in (*counted, *(float(f"{found:.{digits}g}") for digits in PLAIN)):
            if (
                plain != found
                and abs(plain - found) < 0.02 * abs(found)
                and self._left(plain) <= 2 * left + NOTHING / 4
            ):
                return plain
        return found

    def is_told(self, value: float) -> bool:
        """Whether the data tell the last digit of a number: of a bound that nothing reaches, or in 16 bits, others
        would do as well."""
        least = NOTHING + self._left(value)
        return value == 0 or all(self._left(value + by) > least for by in (_last_digit(value), -_last_digit(value)))

    def _left(self, value: float) -> float:
        """What is left of the error, as weighed for every mistake."""
        return self.evidence.residual(self._run(value))

    def _run(self, value: float) -> torch.Tensor:
        if not self.spend(1):
            raise LookupError("no work left")
        return self.dial.run(value)[self.path]

    def _search(self) -> float | None:
        device, base = self.evidence.device_and_truth()
        c = self.dial.old
        for i in range(MOST_STEPS):
            h = STEP * max(abs(c), 1e-3 * abs(self.dial.old))
            slope = self.evidence.seen(self._run(c + h)) - base
            error = device - base
            step = _step(slope, error, self.evidence.off, FOLLOWS if i == 0 else 0.0)
            if step is None:
                return None if i == 0 else c
            move = min(max(h * step, -4 * abs(c)), 4 * abs(c))
            c += move
            if abs(move) <= SETTLED * abs(c):
                return c
            base = self.evidence.seen(self._run(c))
        return c


def _last_digit(value: float) -> float:
    """One unit of the last digit of a number that somebody wrote down."""
    digits = next(n for n in range(1, WRITTEN + 1) if float(f"{value:.{n}g}") == value)
    return 10.0 ** (math.floor(math.log10(abs(value))) - digits + 1)


def _step(slope: torch.Tensor, error: torch.Tensor, off: torch.Tensor, follows: float) -> float | None:
    """How many of the changes `slope` make up the error: the median over the elements that
    react most. None where the error does not follow."""
    live = slope.isfinite() & error.isfinite() & off & (slope != 0)
    slope, error = slope[live], error[live]
    if slope.numel() < LEAST_ERRORS:
        return None
    # ranks by sign and size at once, so that a few large elements do not decide alone
    a, b = (x.sign() * (x.abs() / x.abs().median().clamp(min=1e-300)).clamp(max=4.0) for x in (slope, error))
    size = float(a.norm() * b.norm())
    if not size or abs(float(a @ b)) < follows * size:
        return None
    strong = slope.abs() >= slope.abs().median()
    return float((error[strong] / slope[strong]).median())
