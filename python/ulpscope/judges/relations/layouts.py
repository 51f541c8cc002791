# SPDX-License-Identifier: Apache-2.0
"""Where tensors lie does not change what is computed."""

from ...calls.replay import base_name
from ..rows import put, tensor_of
from .variant import Variant, fits, put_strided, same, varied

# Their results tell of strides, or of memory beyond the arguments.
OF_STRIDES = {"stride", "is_contiguous", "_reshape_alias", "resize_", "resize_as_", "set_", "as_strided",
              "_unsafe_view", "view", "view_as_complex", "data_ptr", "_nested_view_from_buffer"}  # fmt: skip


def layout(call, answer, number):
    """Strided, offset, expanded or shared tensors as rows of their own; rows of their own strided."""
    if not fits(call) or base_name(call.op)[1] in OF_STRIDES or any(v.form for v in call.views.values()):
        return None
    shared = [v.storage for v in call.views.values()]
    plain = all(v.is_contiguous() and v.offset == 0 and shared.count(v.storage) == 1 for v in call.views.values())
    made = varied(call)
    for path in call.views:
        (put_strided if plain else put)(made, path, tensor_of(call, path))
    return Variant([made], same) if call.views else None
