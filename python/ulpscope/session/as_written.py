# SPDX-License-Identifier: Apache-2.0
"""What is written operator by operator (short programs, tests in plain torch text): each of them rounds to the dtype
that it gives, so what torch's own run on the CPU loses in between is no device's fault. Needs nothing of torch that
judging does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..calls.callable import Composite, same_bytes
from ..calls.verdicts import FLAGGED
from ..executors.device import Answer
from .judging import Verdict, judge_given

if TYPE_CHECKING:
    from .. import _core

SLACK = 1.0  # bits


def as_written(call: Composite, verdict: Verdict) -> Verdict:
    """The verdict, which accuses nothing where torch's own run on the CPU is as far off in all that is accused."""
    if verdict.verdict not in FLAGGED - {"intermittent"} or verdict.answer is None or not call.native:
        return verdict
    own = judge_given(call, Answer(dict(call.native)), seconds=0)
    if all(as_far(call, verdict, found, own) for found in verdict.findings if found.verdict in FLAGGED):
        verdict.verdict = "pass"
        verdict.remarks = [*verdict.remarks, "torch's own run on the CPU, operator by operator, is as far from float64"]
    return verdict


def as_far(call: Composite, verdict: Verdict, found: _core.Finding, own: Verdict) -> bool:
    """Whether an output of the CPU is as far from the truth as the device's: the same numbers, or no more
    than a bit better, and NaN and Inf where the device has them."""
    if verdict.answer is None or call.native is None:
        return False
    got, mine = verdict.answer.outputs.get(found.path), call.native.get(found.path)
    beside = next((f for f in own.findings if f.path == found.path), None)
    if got is None or mine is None or beside is None or got.shape != mine.shape or got.dtype != mine.dtype:
        return False
    if same_bytes(got, mine):
        return True
    if (
        not got.is_floating_point()
        or not torch.equal(got.isnan(), mine.isnan())
        or not torch.equal(got.isinf(), mine.isinf())
    ):
        return False
    return beside.verdict in FLAGGED and beside.bits <= found.bits + SLACK
