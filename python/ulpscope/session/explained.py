# SPDX-License-Identifier: Apache-2.0
"""A verdict in the words of a test that fails. Needs nothing of torch itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..calls.verdicts import FLAGGED

if TYPE_CHECKING:
    from .call_verdict import CallVerdict

N_SHOWN = 5
N_CASES = 6


def explain(verdict: CallVerdict) -> str:
    """A verdict as the lines of an assertion."""
    bad = sorted((c for c in verdict.cases if not c.passed), key=lambda c: c.refused)  # what is off first
    if not bad:
        return "\n".join(_lines(verdict))
    judged = sum(c.verdict is not None for c in verdict.cases)
    lines = [f"{len(bad)} of {judged} stress cases fail"]
    for case in bad[:N_CASES]:
        lines.append(f'{case.name} (again: inputs="{case.inputs}")')
        lines += [f"  {line}" for line in (_lines(case.verdict) if case.verdict is not None else ())]
    if len(bad) > N_CASES:
        lines.append("also " + ", ".join(c.name for c in bad[N_CASES:]))
    return "\n".join(lines)


def _lines(verdict: CallVerdict) -> list[str]:
    lines = [f"{verdict.verdict}: {verdict.sentence}"]
    for output in verdict.outputs:
        if output.verdict not in FLAGGED:
            continue
        lines.append(
            f"  {output.path or 'call'}: {output.verdict}, {output.effective_bits:.1f} effective "
            f"bits (float32 gives {output.expected_bits:.1f}), "
            f"cause: {output.cause.removeprefix('cause ')}"
        )
        for index, device, correct in output.worst[:N_SHOWN]:
            lines.append(f"    at {list(index)}: {device!r}, correct {correct!r}")
    return lines
