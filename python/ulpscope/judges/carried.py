# SPDX-License-Identifier: Apache-2.0
"""Calls that carry elements elsewhere and compute nothing: views, copies, gathers. Their
answer is right where it has the bytes that the CPU gives in the dtypes captured; no other
precision, no replay is asked. Where a byte differs nothing is said here: then the rule
looks at all. Serves `session.judging`.
"""

from .._core import Finding, Findings
from ..calls.exact import carries
from ..calls.replay import all_finite, same_bytes


def carried(operands, answer):
    """Findings of an answer that has the CPU's bytes; None for all others."""
    if answer.trespass or not _only_carries(operands):
        return None
    native = operands.reference.native()
    if native is None or native.keys() != answer.outputs.keys() or not _kept(operands.call, native):
        return None
    if not all(same_bytes(answer.outputs[path], right) for path, right in native.items()):
        return None
    found = Findings()
    for path, tensor in answer.outputs.items():
        _add(found, path, tensor)
    return found or Findings([Finding("", "pass")])


def _only_carries(operands):
    """Whether the operator does, and its kernel is its only reference."""
    call = operands.call
    if call.composite or not carries(call.op) or call.value("accumulate", False):
        return False
    return operands.reference.never_rounds()


def _kept(call, native):
    """Whether all floats have one dtype, on which nothing is rounded on its way."""
    given = {v.dtype for v in call.views.values()}
    floats = {d.to_real() for d in given if d.is_floating_point or d.is_complex}
    got = {t.dtype for t in native.values() if t.dtype.is_floating_point}
    return len(floats | got) < 2 and (floats >= got or not given)


def _add(found, path, tensor):
    n, size, odd = tensor.numel(), 0, 0
    if tensor.dtype.is_floating_point:
        values = tensor if tensor.dtype.itemsize > 1 else tensor.float()  # float8 has no isfinite
        size, odd = tensor.dtype.itemsize, 0 if all_finite(values) else n - int(values.isfinite().sum())
    found.same(path, n, tensor.shape, size, odd)
