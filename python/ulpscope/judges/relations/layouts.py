# SPDX-License-Identifier: Apache-2.0
"""Where tensors lie does not change what is computed."""

from dataclasses import replace

from ...calls.replay import base_name
from ..rows import put, tensor_of
from .variant import Variant, fits, put_strided, same, varied

# Their results tell of strides, or of memory beyond the arguments.
OF_STRIDES = {"stride", "is_contiguous", "_reshape_alias", "resize_", "resize_as_", "set_", "as_strided",
              "as_strided_copy", "as_strided_scatter",
              "_unsafe_view", "view", "view_as_complex", "data_ptr", "_nested_view_from_buffer"}  # fmt: skip


def layout(call, answer, number):
    """Strided, offset, expanded or shared tensors as rows of their own; rows of their own strided."""
    if not _may_move(call):
        return None
    made = in_rows(call)
    if made is None:
        made = varied(call)
        for path in call.views:
            put_strided(made, path, tensor_of(call, path))
    return Variant([made], same) if call.views else None


def in_rows(call):
    """The call with each tensor as rows of its own; None where all are so, or must lie where they do."""
    shared = [v.storage for v in call.views.values()]
    plain = all(v.is_contiguous() and v.offset == 0 and shared.count(v.storage) == 1 for v in call.views.values())
    if plain or not _may_move(call):
        return None
    made = varied(call)
    for path in call.views:
        put(made, path, tensor_of(call, path))
    return made


def _may_move(call):
    return fits(call) and base_name(call.op)[1] not in OF_STRIDES and not any(v.form for v in call.views.values())


# An element this far from the first one has no place in 32 bits.
FAR = 1 << 31


def far(call, answer, number):
    """One tensor that is not written with its last row beyond 2^31 elements: so much memory is asked for, and
    hardly any of it touched."""
    written = set(call.written())
    shown = [p for p, v in call.views.items()
             if p not in written and v.sizes and v.sizes[0] > 1 and 0 not in v.sizes and v.dtype.itemsize <= 4]  # fmt: skip
    if not shown or not _may_move(call):
        return None
    path, made = shown[number % len(shown)], varied(call)
    view = call.views[path]
    made.views[path] = replace(view, apart=FAR // (view.sizes[0] - 1) + 1)
    return Variant([made], same)
