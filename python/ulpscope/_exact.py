# SPDX-License-Identifier: Apache-2.0
"""Which operators compute without rounding. Values alone do not tell: gelu of large numbers
gives its input back, and an operator that rounds was lucky then. Serves `_outputs` and
`_callable`."""

from ._replay import base_name

# They move or choose values of their inputs.
MOVE = {
    "_to_copy", "_unsafe_index", "alias", "amax", "amin", "as_strided", "broadcast_to", "cat",
    "chunk", "clamp", "clamp_", "clamp_max", "clamp_min", "clip", "clone", "constant_pad_nd", "contiguous",
    "copy", "copy_", "cummax", "cummin", "detach", "diag_embed", "diagonal", "diagonal_copy",
    "embedding", "expand", "expand_copy", "fill", "fill_", "flatten", "flip", "fliplr", "flipud",
    "fake_quantize_per_tensor_affine_cachemask_backward",
    "fake_quantize_per_channel_affine_cachemask_backward",
    "fmax", "fmin", "gather", "hardshrink", "hardshrink_backward", "hardtanh", "hardtanh_backward", "index", "index_copy", "index_fill", "index_put", "index_select",
    "kthvalue", "lift", "lift_fresh", "masked_fill", "masked_fill_", "masked_scatter",
    "masked_select", "max", "max_pool2d_with_indices", "max_pool3d_with_indices", "maximum",
    "median", "min", "minimum", "mode", "movedim", "narrow", "nanmedian", "nan_to_num", "new_zeros",
    "ones_like", "permute", "pixel_shuffle", "pixel_unshuffle", "put", "reflection_pad1d",
    "reflection_pad2d", "relu", "relu_", "relu6", "repeat", "repeat_interleave", "replication_pad1d",
    "replication_pad2d", "reshape", "roll", "rot90", "scatter", "select", "slice",
    "slice_scatter", "select_scatter", "softshrink_backward", "sort", "split", "split_with_sizes", "squeeze", "stack", "t",
    "take", "threshold", "threshold_backward", "topk", "transpose", "tril", "triu", "unbind",
    "unflatten", "unfold", "unsqueeze", "view", "view_as", "where", "zero", "zero_", "zeros_like",
}  # fmt: skip

# They give the one right value whatever a perturbed input would have given (a device that
# misses it by an ulp is wrong).
ROUNDINGS = {"round", "floor", "ceil", "trunc", "fix", "sign", "sgn"}

# Their results are numbers of the dtype: nothing is rounded off.
STEP = ROUNDINGS | {
    "abs", "absolute", "copysign", "fmod", "frac", "heaviside", "neg", "negative", "positive",
    "logical_not", "frexp", "nextafter",
}  # fmt: skip


ROOTS = {"abs", "absolute", "sgn"}  # of complex numbers


def never_rounds(op, complex_=False):
    """Whether an operator `ns::name.overload` gives the only right value, to the last bit, of
    real or of complex numbers."""
    space, name = op.split("::")[0], base_name(op)[1]
    if space not in ("aten", "prims") or op.endswith(".decimals") or (complex_ and name in ROOTS):
        return False
    return name in MOVE or name in STEP
