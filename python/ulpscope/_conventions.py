# SPDX-License-Identifier: Apache-2.0
"""Where an operator leaves something open: Python numbers that are rounded to the tensors'
dtype first or are not, and calls that the CPU rejects. Serves `_judging`."""

import copy
import re

import torch

from ._replay import base_name, mapped

LOW = (torch.float16, torch.bfloat16)
# A refusal that speaks of where or in which dtype something runs, not of the call itself.
ABOUT_US = re.compile(
    r"not implemented|support|could not run|no kernel|cuda|device|dtype|scalar type|double|"
    r"float|half|memory|decomp|fake|meta|backend",
    re.IGNORECASE,
)


def with_rounded_scalars(call):
    """The call with every Python float rounded to the low dtype of its tensors, as eager
    kernels may do (alpha, bounds of a clamp); None where that changes nothing."""
    dtypes = {v.dtype for v in call.views.values()} & set(LOW)
    if call.composite or len(dtypes) != 1:
        return None
    (dtype,) = dtypes
    changed = []

    def rounded(value):
        if not isinstance(value, float) or value != value:
            return value
        low = float(torch.tensor(value, dtype=dtype))
        changed.append(low != value)
        return low

    other = copy.copy(call)
    other.args, other.kwargs = mapped(call.args, rounded), mapped(call.kwargs, rounded)
    return other if any(changed) else None


def with_its_casts(call):
    """A callable of wider numbers that itself rounds to 16 bits inside, held to these
    roundings; None for every other call."""
    given = {v.dtype for v in call.views.values()}
    if not call.composite or not call.low or given & set(LOW):
        return None
    other = copy.copy(call)
    other.keeps_low = True
    return other


def rounding_note(call):
    """The note of a verdict that was reached with rounded numbers."""
    if call.composite:
        return "rounded to 16 bits inside, as the function does"
    dtype = next(v.dtype for v in call.views.values() if v.dtype in LOW)
    return f"numbers among the arguments rounded to {str(dtype).removeprefix('torch.')} first"


def is_rejection(call, problem):
    """Whether the CPU's complaint is about the call itself: an index out of range, shapes
    that do not fit."""
    if call.composite or base_name(call.op)[0].partition("::")[0] != "aten":
        return False
    kinds = (RuntimeError, IndexError, ValueError, TypeError)
    return isinstance(problem, kinds) and not ABOUT_US.search(str(problem).split("\n\n")[0])
