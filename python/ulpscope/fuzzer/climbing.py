# SPDX-License-Identifier: Apache-2.0
"""`ulpscope fuzz --stress`: from a case in steps towards the largest error for what rounding allows. The
steps that are kept are bits of the number of the case, which names the call that was reached without
the climb (`USC_FUZZ_STEPS`). Needs nothing of torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..calls.replay import BadCall, Call
from ..calls.verdicts import FLAGGED
from .drawn_cases import STEP_BIT, STEPS


def score(verdict: Any) -> float:
    """How large the error of a call is, in units of what rounding explains; the largest of its outputs."""
    if verdict.verdict in FLAGGED:
        return math.inf
    if verdict.verdict == "unjudged":
        return -1.0
    found = (verdict.findings[i].numbers.get("max", 0) for i in range(len(verdict.findings)))
    return max((x for x in found if isinstance(x, (int, float)) and x == x), default=0.0)


def form(call: Call) -> list[tuple[Any, ...]]:
    """What tells two calls apart, but for the values."""
    return [(p, v.dtype, v.sizes, v.strides, v.offset, v.storage) for p, v in call.views.items()]


def climb(draw: Callable[..., Any], number: int, at: Any, judge: Callable[..., Any]) -> tuple[Call, Any, str, int]:
    """
    (call, verdict, words, number) of the best case that is reached from one: each of its steps is tried
    in turn and kept where the score does not fall. `draw(number)` gives (call, words), `at` is (call, verdict,
    words) of the case itself, `judge(call)` a verdict. Ends with the first that accuses.
    """
    call, verdict, words = at
    best = score(verdict)
    for step in range(STEPS):
        if verdict.verdict in FLAGGED:
            break
        tried = number | 1 << STEP_BIT + step
        try:
            there, said = draw(tried)
        except BadCall:
            continue
        if said == words and form(there) == form(call):
            continue  # a step that changes nothing here
        found = judge(there)
        if score(found) >= best:
            call, verdict, words, number, best = there, found, said, tried, score(found)
    return call, verdict, words, number
