# SPDX-License-Identifier: Apache-2.0
"""What a name of a mistake has to beat before it is said: half of the change, another epsilon.
Neighbour: `diagnose` (asks).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..calls.foreign import tried

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from .evidence import Evidence
    from .lab import Lab

NOTHING = 2.0**-12  # of the error: so much more is as good


def half_does(lab: Lab, evidence: Evidence, path: str, edit: dict, most: float) -> bool:
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
    candidates: Iterable[tuple],
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


def _nothing(text):
    """Whether a name says that epsilon is missing, or so little that it comes to that."""
    words = text.removeprefix("epsilon is ").split(" instead of ")
    if words[0] == "missing":
        return True
    try:
        return float(words[0]) <= 1e-2 * float(words[1])
    except (IndexError, ValueError):
        return False
