# SPDX-License-Identifier: Apache-2.0
"""Several answers of one device to one call: what is said where they are not the same. A
kernel that is wrong now and then (a race, recycled memory) shows in no single run. Serves
`session.judging`; torch only compares bytes here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from .. import _core
from ..calls.contents import Brief, brief
from ..calls.older import zip_equal
from ..calls.raw_bytes import same_bytes

if TYPE_CHECKING:
    from .device import Answer

FIRST, REPLAY, CAPTURED, ONCE_MORE = range(4)  # usc_run_kind


def settle(first: Any, answers: Iterable[tuple[int, Any]], judge: Callable[[Answer], Any]) -> Any:
    """
    One verdict from all answers to one call, the first of which is `first.answer`.

    `answers` yields (kind, answer or a Verdict); `judge(answer)` gives the verdict on each
    that differs in a bit from those before it. `intermittent` where some are acceptable and
    some are not; a note with the spread where all are (usc_settle_answers).
    """
    kinds, verdicts = [FIRST], [first]
    for kind, answer in answers:
        kinds[0] = REPLAY if kind == CAPTURED else kinds[0]
        alike = same_bits if kind == CAPTURED else same_answer  # a trace knows no trespass
        known = (v.answer for v in verdicts if v.answer is not None)
        if isinstance(answer, type(first)) or not any(alike(answer, k) for k in known):
            kinds.append(kind)
            verdicts.append(judge(answer))
        answer = None  # there may be room for one
    if len(verdicts) == 1:
        return first
    said = [(kind, v.verdict, v.worst, v.reason) for kind, v in zip_equal(kinds, verdicts)]
    i, verdict, reason, note = _core.settle(said)
    stands = verdicts[i]
    stands.verdict, stands.reason = verdict, reason or stands.reason
    stands.remarks += [note] if note else []
    return stands


def same_answer(a: Answer, b: Answer) -> bool:
    """Whether two answers hold the same bits and write the same places."""
    return a.trespass == b.trespass and same_bits(a, b)


def same_bits(a: Answer, b: Answer) -> bool:
    """Whether the outputs of two answers are equal in every bit."""
    return all(p in b.outputs and _same(t, b.outputs[p]) for p, t in a.outputs.items())


def _same(a, b):
    """Whether two outputs, or one and what stands for the other, are equal in every bit."""
    if isinstance(b, Brief):
        a, b = b, a
    if isinstance(a, Brief):
        return a == b if isinstance(b, Brief) else a.is_of(b)
    return same_bytes(a, b)


def make_brief(answer: Answer) -> None:
    """Leaves of an answer what it can be compared by, which takes no memory."""
    answer.outputs, answer.before = {p: brief(t) for p, t in answer.outputs.items()}, {}
