# SPDX-License-Identifier: Apache-2.0
"""Several answers of one device to one call: what is said where they are not the same. A
kernel that is wrong now and then (a race, recycled memory) shows in no single run. Serves
`session.judging`; torch only compares bytes here."""

import math

from ..calls.contents import Brief, brief
from ..calls.replay import same_bytes
from ..calls.verdicts import FLAGGED, rank

ONCE_MORE = "another run of the same call"
CAPTURED = "the captured run"


def settle(first, answers, judge):
    """
    One verdict from all answers to one call, the first of which is `first.answer`.

    `answers` yields (name, answer or a Verdict); `judge(answer)` gives the verdict on each
    that differs in a bit from those before it. `intermittent` where some are acceptable and
    some are not; a note with the spread where all are.
    """
    names, verdicts = ["one run"], [first]
    for name, answer in answers:
        if name == CAPTURED:
            names[0] = "the replay"
        alike = same_bits if name == CAPTURED else same_answer  # a trace knows no trespass
        known = (v.answer for v in verdicts if v.answer is not None)
        if isinstance(answer, type(first)) or not any(alike(answer, k) for k in known):
            names.append(name)
            verdicts.append(judge(answer))
        answer = None  # there may be room for one
    return first if len(verdicts) == 1 else _weighed(names, verdicts)


def _weighed(names, verdicts):
    bad = [i for i, v in enumerate(verdicts) if v.verdict in FLAGGED]
    if not bad:
        verdicts[0].notes.append(_spread(verdicts))
        return verdicts[0]
    worst = min(bad, key=lambda i: rank(verdicts[i].verdict))
    worse = verdicts[worst]
    if len(bad) == len(verdicts):
        worse.notes.append("differs from run to run")
        return worse
    good = next(i for i in range(len(verdicts)) if i not in bad)
    passes = "passes" if verdicts[good].verdict == "pass" else f"is {verdicts[good].verdict}"
    why = worse.worst.reason if worse.worst else worse.reason
    worse.reason = f"{names[worst]} is {worse.verdict}, {names[good]} {passes}: {why}"
    worse.verdict = "intermittent"
    if CAPTURED in (names[worst], names[good]) and ONCE_MORE not in names:
        worse.notes.append("every run here agrees: the device may have changed since the capture")
    return worse


def _spread(verdicts):
    """How far acceptable answers differ from each other."""
    bits = [v.worst.bits for v in verdicts if v.worst and not math.isnan(v.worst.bits)]
    text = "differs from run to run, within rounding"
    if not bits or f"{min(bits):.1f}" == f"{max(bits):.1f}":
        return text
    return f"{text}: {min(bits):.1f} to {max(bits):.1f} effective bits in {len(verdicts)} answers"


def same_answer(a, b):
    """Whether two answers hold the same bits and write the same places."""
    return a.trespass == b.trespass and same_bits(a, b)


def same_bits(a, b):
    """Whether the outputs of two answers are equal in every bit."""
    return all(p in b.outputs and _same(t, b.outputs[p]) for p, t in a.outputs.items())


def _same(a, b):
    """Whether two outputs, or one and what stands for the other, are equal in every bit."""
    if isinstance(b, Brief):
        a, b = b, a
    if isinstance(a, Brief):
        return a == b if isinstance(b, Brief) else a.is_of(b)
    return same_bytes(a, b)


def make_brief(answer):
    """Leaves of an answer what it can be compared by, which takes no memory."""
    answer.outputs, answer.before = {p: brief(t) for p, t in answer.outputs.items()}, {}
