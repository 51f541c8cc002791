# SPDX-License-Identifier: Apache-2.0
"""The words of a verdict."""

from __future__ import annotations

import re
from typing import Any

from .. import _core

PRECEDENCE = tuple(text for text, _ in _core.verdicts)  # the worst first
FLAGGED = frozenset(text for text, flagged in _core.verdicts if flagged)

UNTOLD = ("internal", "unjudged", "unsupported")  # which say nothing of numbers

UNKNOWN = "cause unknown"  # what is said where a verdict accuses and nothing explains it


def rank(verdict: str) -> int:
    """Place of a verdict in the order of precedence, 0 the worst."""
    return PRECEDENCE.index(verdict)


# What torch's dispatcher says, with pages about its backends behind it.
NO_KERNEL = re.compile(r"Could not run '([^']+)' with arguments from the '([^']+)' backend\b.*", re.DOTALL)


def clause(problem: object) -> str:
    """An exception's text on one line, or its kind where it has none."""
    text = NO_KERNEL.sub(r"there is no kernel for \1 with arguments of the backend \2", str(problem))
    text = " ".join(text.split("\n\n")[0].split())
    return (text or type(problem).__name__)[:300]


def reason_of(row: dict[str, Any], op: str) -> str:
    """Why a row of a result has no verdict on its numbers, or on those of some outputs; "" where it has."""
    said: dict[str, str] = {name: text for _, name, _, text in row.get("metrics", ())}
    if row["verdict"] not in UNTOLD:
        return said.get("not_judged", "")
    sentence: str = row["sentence"]
    return said.get("reason") or sentence.removeprefix(f"{op}: ").removeprefix(f"{op} is {row['verdict']}: ")
