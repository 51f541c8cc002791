# SPDX-License-Identifier: Apache-2.0
"""Findings over the outputs of one call: a case in C asks (docs/case.md), `answers` tells.
Serves `session.judging`."""

import math
from dataclasses import dataclass, field, replace

from ..calls.indices import aligned
from ..calls.verdicts import clause, rank
from . import answers


@dataclass
class Finding:
    """What is known of one output, or of the call as a whole (path "")."""

    path: str
    verdict: str
    reason: str = ""  # a clause
    bits: float = 24.0
    yardstick_bits: float = 24.0
    bound: bool = False
    n: int = 0
    sizes: tuple = ()
    details: dict = field(default_factory=dict)  # the judge's numbers
    examples: list = field(default_factory=list)
    positions: list = field(default_factory=list)
    notes: list = field(default_factory=list)
    measured: bool = False  # by scores, element by element

    def order(self):
        return rank(self.verdict), math.inf if math.isnan(self.bits) else self.bits


# ---- one output ----------------------------------------------------------------------


def judge_outputs(operands, answer):
    """Findings for every output of an answer."""
    truth, promised = operands.reference.truth, answer.outputs.keys() - operands.reference.undefined
    if truth.keys() != promised:
        counts = f"{len(promised)} outputs where the operator has {len(truth)}"
        return [Finding("", "wrong", counts, bits=0.0)]
    answer = replace(answer, outputs=aligned(operands.call, answer.outputs, truth))
    found = [judged(operands, answer, path) for path in truth]
    if answer.trespass:
        found.append(Finding("", "wrong", answer.trespass, bits=0.0))
    return found or [Finding("", "pass")]


def judged(operands, answer, path):
    """The finding for one output; `unjudged` where its reference fails."""
    device = answer.outputs[path]
    try:
        found = answers.judge(operands, path, device)
    except Exception as problem:
        return Finding(path, "unjudged", f"no reference: {clause(problem)}")
    excuses = found.pop("excuses")
    finding = Finding(path, sizes=tuple(device.shape), **found)
    if excuses:
        finding.details["excuses"] = excuses
        finding.details["excused"] = sum(excuses.values())
        finding.details["excuse"] = ",".join(sorted(excuses))
    return finding
