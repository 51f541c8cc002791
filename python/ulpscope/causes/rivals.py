# SPDX-License-Identifier: Apache-2.0
"""What a name of a mistake has to beat before it is said: half of the change, another epsilon.
Roundings by chance at the same edges, too. Neighbour: `diagnose` (asks).
"""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Any

import torch

from ..calls.foreign import tried

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from .evidence import Evidence
    from .lab import Lab

DRAWS, SIGMAS = 6, 6.0  # of noise by chance; standard deviations beyond it that a format needs
TOP = 1 - 2.0**-20  # a correlation whose inverse hyperbolic tangent is finite
ONE_FREE = 0.999  # a correlation of chance that has one number to hit
NOTHING = 2.0**-12  # of the error: so much more is as good


def half_does(lab: Lab, evidence: Evidence, path: str, edit: dict[Any, Any] | Callable[..., Any], most: float) -> bool:
    """Whether half of a change leaves at most `most` of the error: then the data do not tell it from another."""
    outputs = None
    with tried():  # of what is no float there is no half
        outputs = lab.halfway(edit)
    return outputs is not None and path in outputs and evidence.residual(outputs[path]) <= most


def other_epsilon(
    lab: Lab,
    evidence: Evidence,
    path: str,
    text: str,
    left: float,
    candidates: Iterable[tuple[str, Any]],
    spend: Callable[[int], bool],
) -> str:
    """`text`, a name of an epsilon, with the name of another that leaves no more than `left`, if there is one."""
    found = []
    for other, edit in candidates:
        if not other.startswith("epsilon is ") or other == text or (_nothing(other) and _nothing(text)):
            continue
        if not spend(1):
            break
        outputs = None
        with tried():
            outputs = lab.run(edit)
        if outputs is not None and evidence.residual(outputs[path]) <= 2 * left + NOTHING:
            found.append(other.removeprefix("epsilon is "))
    found.sort(key=lambda words: not words.startswith(("outside", "inside", "missing")))
    return f"{text}, or {found[0]}: these data cannot tell" if found else text


def _nothing(text: str) -> bool:
    """Whether a name says that epsilon is missing, or so little that it comes to that."""
    words = text.removeprefix("epsilon is ").split(" instead of ")
    if words[0] == "missing":
        return True
    try:
        return float(words[0]) <= 1e-2 * float(words[1])
    except (IndexError, ValueError):
        return False


def reach(
    lab: Lab,
    run: Callable[[], dict[str, torch.Tensor]],
    follows: Callable[[dict[str, torch.Tensor]], float],
    count: int,
    over: Callable[[], bool],
) -> float:
    """The correlation that noise of the same size at the same edges reaches: its mean and six
    standard deviations more, which are large where few errors are independent."""
    found = []
    for seed in range(DRAWS):
        found.append(math.atanh(max(-TOP, min(TOP, _by_chance(lab, run, follows, seed)))))
        if over():
            break
    spread = statistics.stdev(found) if len(found) > 2 else 0.0
    return math.tanh(statistics.fmean(found) + SIGMAS * max(spread, count**-0.5))


def is_one_free(
    lab: Lab, run: Callable[[], dict[str, torch.Tensor]], follows: Callable[[dict[str, torch.Tensor]], float]
) -> bool:
    """Whether roundings by chance at the same edges explain the errors but for one number, as where all
    that is off is one norm's: of a few hundred runs one comes near that."""
    with tried():  # it may round nothing by itself
        return abs(_by_chance(lab, run, follows, DRAWS)) >= ONE_FREE
    return False


def _by_chance(
    lab: Lab, run: Callable[[], dict[str, torch.Tensor]], follows: Callable[[dict[str, torch.Tensor]], float], seed: int
) -> float:
    lab.chance = torch.Generator().manual_seed(seed)
    try:
        return follows(run())
    finally:
        lab.chance = None
