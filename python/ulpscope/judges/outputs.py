# SPDX-License-Identifier: Apache-2.0
"""Findings over the outputs of one call: a case in C asks (docs/case.md), `answers` tells.
Serves `session.judging`."""

from .._core import Finding, Findings
from ..calls.verdicts import clause
from . import answers
from .readings import as_held


def judge_outputs(operands, answer, narrow=False, readings=None, sight=False):
    """Findings for every output of an answer; with `narrow` what is wrong is held against
    narrower formats, with `readings` what is accused to other readings of the call; at first
    `sight` nothing but the truth itself is asked."""
    truth, promised = operands.reference.truth, answer.outputs.keys() - operands.reference.undefined
    found = Findings()
    if truth.keys() != promised:
        found.miscounted(len(promised), len(truth))
        return found
    outputs = as_held(operands, answer.outputs)
    for path in truth:
        judge_output(found, operands, outputs[path], path, narrow, readings, answer.outputs, sight)
    if answer.trespass:
        found.extend([Finding("", "wrong", answer.trespass)])
    return found if len(found) else Findings([Finding("", "pass")])


def judge_output(found, operands, device, path, narrow=False, readings=None, outputs=None, sight=False):
    """Adds the finding on one output; `unjudged` where its reference fails."""
    try:
        answers.judge(found, operands, path, device, narrow, readings, outputs, sight)
    except Exception as problem:
        found.extend([Finding(path, "unjudged", f"no reference: {clause(problem)}")])
