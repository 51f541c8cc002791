# SPDX-License-Identifier: Apache-2.0
"""Whether a device that is accused on float16 or bfloat16 does no worse than torch's own CPU kernel
in these dtypes: right, and yet usual in the field. Serves `worker`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from .. import _core
from ..calls.foreign import foreign
from ..calls.verdicts import FLAGGED
from .outputs import judge_outputs

if TYPE_CHECKING:
    from ..calls.replay import Call

LOW = (torch.float16, torch.bfloat16)
ABOUT_PRECISION = ("reduced", "wrong")


def is_usual(call: Call, verdict: Any) -> bool:
    """Whether every output that is accused is no worse than what the CPU gives in the very
    dtypes captured. Runs the CPU's kernel once; of what has no low precision, never."""
    accused = [f for f in verdict.findings if f.verdict in FLAGGED]
    low = any(v.dtype in LOW for v in call.views.values())
    about = verdict.verdict in ABOUT_PRECISION and verdict.operands is not None and verdict.answer is not None
    if not low or not about or not accused or not all(f.path for f in accused):
        return False
    try:
        native = verdict.operands.reference.native()
        if not native or any(f.path not in native for f in accused):
            return False
        outputs = verdict.answer.outputs | {f.path: native[f.path] for f in accused}
        own = {
            f.path: f for f in judge_outputs(verdict.operands, replace(verdict.answer, outputs=outputs, trespass=""))
        }
    except Exception as problem:  # whatever an operator raises: nothing is known of the CPU's kernel
        foreign(problem)
        return False
    return all(f.path in own and _core.no_worse(f, own[f.path]) for f in accused)
