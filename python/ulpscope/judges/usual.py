# SPDX-License-Identifier: Apache-2.0
"""Whether a device that is accused on float16 or bfloat16 does no worse than torch's own CPU kernel
in these dtypes: right, and yet usual in the field. Serves `worker`."""

import math
from dataclasses import replace

import torch

from ..calls.verdicts import FLAGGED, rank
from .outputs import judge_outputs

LOW = (torch.float16, torch.bfloat16)
SAME_BITS = 0.5  # bits that two kernels of one kind may differ by
SAME_WORST = 4.0  # the same of their worst elements' errors, as a ratio
ABOUT_PRECISION = ("reduced", "wrong")


def is_usual(call, verdict):
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
        own = {f.path: f for f in judge_outputs(verdict.operands, replace(verdict.answer, outputs=outputs, trespass=""))}
    except Exception:  # whatever an operator raises: nothing is known of the CPU's kernel
        return False
    return all(f.path in own and _no_better(own[f.path], f) for f in accused)


def _no_better(own, device):
    """Whether the CPU's own output is as bad: its verdict, its bits, its worst element."""
    if own.verdict not in FLAGGED or rank(own.verdict) > rank(device.verdict):
        return False
    worst = own.details.get("max", math.inf), device.details.get("max", math.inf)
    return own.bits <= device.bits + SAME_BITS and worst[1] <= SAME_WORST * worst[0]
