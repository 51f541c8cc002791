# SPDX-License-Identifier: Apache-2.0
"""Calls that carry elements elsewhere and compute nothing: which they are. That the CPU's bytes are right
there, and what else is, a case decides (`_core.Case.begin`, carries). Serves `outputs` and `kept`."""

from ..calls.exact import carries


def carried(operands, paths):
    """Whether it is such a call, with outputs at these paths, whose kernel on the CPU is its only reference."""
    if not _only_carries(operands):
        return False
    native = operands.reference.native()
    return native is not None and native.keys() == paths and _kept(operands.call, native)


def _only_carries(operands):
    """Whether the operator does, and has no other reference."""
    call = operands.call
    if call.composite or not carries(call.op) or call.value("accumulate", False):
        return False
    return operands.reference.never_rounds()


def _kept(call, native):
    """Whether all floats have one dtype, on which nothing is rounded on its way."""
    given = {v.dtype for v in call.views.values()}
    # Not dtype.to_real(): that of torch 2.1 gives a reference away, and the process dies some calls later.
    real = [torch.view_as_real(torch.empty(0, dtype=d)).dtype if d.is_complex else d for d in given]
    floats = {d for d in real if d.is_floating_point}
    got = {t.dtype for t in native.values() if t.dtype.is_floating_point}
    return len(floats | got) < 2 and (floats >= got or not given)
