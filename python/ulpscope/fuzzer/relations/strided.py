# SPDX-License-Identifier: Apache-2.0
"""Where tensors lie does not change what is computed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...judges.in_rows import in_rows, may_move, varied
from ...judges.rows import tensor_of
from .variant import Variant, put_strided, same

if TYPE_CHECKING:
    from ...calls.replay import Call
    from ...executors.device import Answer


def layout(call: Call, answer: Answer, number: int) -> Variant | None:
    """Strided, offset, expanded or shared tensors as rows of their own; rows of their own strided."""
    if not may_move(call):
        return None
    made = in_rows(call)
    if made is None:
        made = varied(call)
        for path in call.views:
            put_strided(made, path, tensor_of(call, path))
    return Variant([made], same) if call.views else None


# An element this far from the first one has no place in 32 bits.
FAR = 1 << 31


def far(call: Call, answer: Answer, number: int) -> Variant | None:
    """One tensor that is not written with its last row beyond 2^31 elements: so much memory is asked for, and
    hardly any of it touched."""
    written = set(call.written())
    shown = [
        p
        for p, v in call.views.items()
        if p not in written and v.sizes and v.sizes[0] > 1 and 0 not in v.sizes and v.dtype.itemsize <= 4
    ]
    if not shown or not may_move(call):
        return None
    path, made = shown[number % len(shown)], varied(call)
    view = call.views[path]
    made.views[path] = replace(view, apart=FAR // (view.sizes[0] - 1) + 1)
    return Variant([made], same)
