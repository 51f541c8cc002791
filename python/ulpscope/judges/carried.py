# SPDX-License-Identifier: Apache-2.0
"""Calls that carry elements elsewhere and compute nothing: which they are. That the CPU's bytes are right
there, and what else is, a case decides (`_core.Case.begin`, carries). Serves `outputs` and `kept`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from ..calls.exact import carries
from ..calls.torch_older import real_dtype

if TYPE_CHECKING:
    import torch

    from ..calls.replay import Call
    from ..executors.operands import Operands


def carried(operands: Operands, paths: Collection[str]) -> bool:
    """Whether it is such a call, with outputs at these paths, whose kernel on the CPU is its only reference."""
    if not _only_carries(operands):
        return False
    native = operands.reference.native()
    return native is not None and native.keys() == paths and _kept(operands.call, native)


def _only_carries(operands: Operands) -> bool:
    """Whether the operator does, and has no other reference."""
    call = operands.call
    if call.composite or not carries(call.op) or call.value("accumulate", False):
        return False
    return operands.reference.never_rounds()


def _kept(call: Call, native: Mapping[str, torch.Tensor]) -> bool:
    """Whether all floats have one dtype, on which nothing is rounded on its way."""
    given = {v.dtype for v in call.views.values()}
    floats = {real_dtype(d) for d in given if d.is_floating_point or d.is_complex}
    got = {t.dtype for t in native.values() if t.dtype.is_floating_point}
    return len(floats | got) < 2 and (floats >= got or not given)
