# SPDX-License-Identifier: Apache-2.0
"""Operators and callables that draw in a way nobody wrote down: draws of the CPU, among which
an answer of the device must look as one of them does (`_core.draw_judge_crowd`). Serves
`operators` and `masks`.

Of torch it needs the CPU's generator, seeded anew for each draw.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ... import _core
from ..._core import Findings
from ...executors.operands import Operands, Timing
from ...executors.reference_runs import Reference
from ..answers import Way
from ..outputs import judge_output

if TYPE_CHECKING:
    from ...executors.device import Answer
    from ...calls.replay import Call


def forms(call: Call, answer: Answer) -> _core.Findings:
    """Findings where shapes, dtypes or the number of outputs are wrong already."""
    reference = Reference(call)
    native, found = reference.native() or reference.narrow(), Findings()
    if native.keys() != answer.outputs.keys():
        found.miscounted(len(answer.outputs), len(native))
        return found
    exact = reference.native() is not None and not getattr(call, "any_float", False)
    any(found.misformed(path, answer.outputs[path], want, exact) for path, want in native.items())
    return found


def judge(call: Call, answer: Answer, again: Answer | None = None) -> _core.Findings:
    """Findings for every output, from draws of the CPU."""
    reference = Reference(call)
    draws = []
    for k in range(_core.draw_crowd):
        torch.manual_seed(0x0DD5EED + k)
        draws.append(reference.narrow())
    found = Findings()
    for path, device in answer.outputs.items():
        rows = [d[path] for d in draws]
        if device.numel() and all(torch.equal(r, rows[0]) for r in rows[1:]):
            _judge_undrawn(found, call, answer, path)
            continue
        twin = again.outputs.get(path) if again is not None else None
        _core.draw_judge_crowd(found, path, device, twin, rows)
    return found


def _judge_undrawn(found: Findings, call: Call, answer: Answer, path: str) -> None:
    """Adds the finding on an output beside the draws that is none itself."""
    operands = Operands(call, Timing())
    operands.reference.may_draw = True
    operands.begin()
    judge_output(Way(_core.Case(found)), operands, answer.outputs[path], path)
