# SPDX-License-Identifier: Apache-2.0
"""`check --bisect`: the first operator of a forward at which a device or a runtime departs. One that has taps is asked
for all values in the middle at once, which says where to look; what decides are cuts of the graph, which leave more of
it as it was."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..calls.verdicts import FLAGGED

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any
    from .judging import Verdict
    from ..executors.module_call import ModuleCall


def departure(n: int, word: str, verdict_of: Callable[[int], str], guess: int = 0) -> tuple[int, int, str]:
    """Where n steps in a row, whose verdict is this word, begin to be accused: (a, b, word), the first a steps pass and
    the first b do not, and nothing between the two could be judged. `verdict_of` is asked about the first k of them,
    of a `guess` and of the step in front of it before any other."""
    good, bad = 0, n
    said: dict[int, str] = {}
    while True:
        between = sorted(range(good + 1, bad), key=lambda k: abs(2 * k - good - bad))
        for k in sorted(between, key=lambda k: k not in (guess - 1, guess)):
            said[k] = found = said.get(k) or verdict_of(k)
            if found == "pass":
                good = k
            elif found in FLAGGED:
                bad, word = k, found
            else:
                continue
            break
        else:
            return good, bad, word


def first_flagged(call: ModuleCall, verdict: Verdict, rows: list[dict[str, Any]]) -> int:
    """Of a forward of which every value was asked for, the number, from 1, of the first of these rows of the trace that
    makes one that is accused; 0 where that is none."""
    makers: dict[Any, int] = {}
    for number, row in enumerate(rows, 1):
        for item in row["tensors"]:
            if item["role"] != "in":
                makers.setdefault(item["version"], number)
    accused = [f.path for f in (verdict.findings[i] for i in range(len(verdict.findings))) if f.verdict in FLAGGED]
    places = [int(found.group(1)) for found in (re.match(r"out\[(\d+)\]", path) for path in accused) if found]
    return min((makers.get(call.gave[i]["version"], 0) for i in places), default=0)
