# SPDX-License-Identifier: Apache-2.0
"""Findings over the outputs of one call: a case in C asks (docs/case.md), `answers` tells.
Serves `session.judging`."""

from dataclasses import replace

from .._core import Finding, Findings
from ..calls.gauges import in_gauge_of
from ..calls.indices import aligned
from ..calls.verdicts import clause
from . import answers


def judge_outputs(operands, answer, narrow=False):
    """Findings for every output of an answer; with `narrow` what is wrong is held against
    narrower formats."""
    truth, promised = operands.reference.truth, answer.outputs.keys() - operands.reference.undefined
    found = Findings()
    if truth.keys() != promised:
        found.miscounted(len(promised), len(truth))
        return found
    outputs = aligned(operands.call, answer.outputs, truth)
    answer = replace(answer, outputs=in_gauge_of(operands.call, outputs, truth))
    for path in truth:
        judge_output(found, operands, answer, path, narrow)
    if answer.trespass:
        found.extend([Finding("", "wrong", answer.trespass)])
    return found if len(found) else Findings([Finding("", "pass")])


def judge_output(found, operands, answer, path, narrow):
    """Adds the finding on one output; `unjudged` where its reference fails."""
    try:
        answers.judge(found, operands, path, answer.outputs[path], narrow)
    except Exception as problem:
        found.extend([Finding(path, "unjudged", f"no reference: {clause(problem)}")])
