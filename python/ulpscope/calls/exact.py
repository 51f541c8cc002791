# SPDX-License-Identifier: Apache-2.0
"""Which operators compute without rounding. Values alone do not tell: gelu of large numbers
gives its input back, and an operator that rounds was lucky then. Serves `judges.outputs`,
`judges.carried` and `callable`."""

from __future__ import annotations

from .replay import base_name

# They put elements of their inputs, or one constant, somewhere else, wherever their indices
# say: which one never hangs on the elements' values.
CARRY = {
    "_index_put_impl_",
    "_reshape_alias",
    "_to_copy",
    "_unsafe_index",
    "_unsafe_view",
    "alias",
    "alias_copy",
    "as_strided",
    "broadcast_to",
    "cat",
    "chunk",
    "clone",
    "concat",
    "concatenate",
    "constant_pad_nd",
    "contiguous",
    "copy",
    "copy_",
    "detach",
    "detach_",
    "detach_copy",
    "diag_embed",
    "diagonal",
    "diagonal_copy",
    "dstack",
    "embedding",
    "expand",
    "expand_copy",
    "fill",
    "fill_",
    "flatten",
    "flip",
    "fliplr",
    "flipud",
    "full",
    "full_like",
    "gather",
    "hstack",
    "imag",
    "index",
    "index_copy",
    "index_copy_",
    "index_fill",
    "index_fill_",
    "index_put",
    "index_put_",
    "index_select",
    "lift",
    "lift_fresh",
    "masked_fill",
    "masked_fill_",
    "masked_scatter",
    "masked_scatter_",
    "masked_select",
    "moveaxis",
    "movedim",
    "narrow",
    "new_full",
    "new_zeros",
    "ones",
    "ones_like",
    "permute",
    "permute_copy",
    "pixel_shuffle",
    "pixel_unshuffle",
    "put",
    "ravel",
    "real",
    "reflection_pad1d",
    "reflection_pad2d",
    "repeat",
    "repeat_interleave",
    "replication_pad1d",
    "replication_pad2d",
    "reshape",
    "roll",
    "rot90",
    "scatter",
    "scatter_",
    "select",
    "select_copy",
    "select_scatter",
    "slice",
    "slice_copy",
    "slice_scatter",
    "split",
    "split_copy",
    "split_with_sizes",
    "split_with_sizes_copy",
    "squeeze",
    "squeeze_copy",
    "stack",
    "swapaxes",
    "swapdims",
    "t",
    "t_copy",
    "take",
    "take_along_dim",
    "tensor_split",
    "tile",
    "transpose",
    "transpose_copy",
    "tril",
    "triu",
    "unbind",
    "unbind_copy",
    "unflatten",
    "unfold",
    "unfold_copy",
    "unsafe_chunk",
    "unsafe_split",
    "unsqueeze",
    "unsqueeze_copy",
    "view",
    "view_as",
    "view_as_complex",
    "view_as_real",
    "view_copy",
    "vstack",
    "where",
    "zero",
    "zero_",
    "zeros",
    "zeros_like",
}

# They choose among the values of their inputs.
CHOOSE = {
    "amax",
    "amin",
    "clamp",
    "clamp_",
    "clamp_max",
    "clamp_min",
    "clip",
    "cummax",
    "cummin",
    "fake_quantize_per_channel_affine_cachemask_backward",
    "fake_quantize_per_tensor_affine_cachemask_backward",
    "fmax",
    "fmin",
    "hardshrink",
    "hardshrink_backward",
    "hardtanh",
    "hardtanh_backward",
    "kthvalue",
    "max",
    "max_pool2d_with_indices",
    "max_pool3d_with_indices",
    "maximum",
    "median",
    "min",
    "minimum",
    "mode",
    "nan_to_num",
    "nanmedian",
    "relu",
    "relu6",
    "relu_",
    "softshrink_backward",
    "sort",
    "threshold",
    "threshold_backward",
    "topk",
}

MOVE = CARRY | CHOOSE

# They give the one right value whatever a perturbed input would have given (a device that
# misses it by an ulp is wrong).
ROUNDINGS = {"round", "floor", "ceil", "trunc", "fix", "sign", "sgn"}

# Their results are numbers of the dtype: nothing is rounded off.
STEP = ROUNDINGS | {
    "abs",
    "absolute",
    "copysign",
    "fmod",
    "frac",
    "heaviside",
    "neg",
    "negative",
    "positive",
    "logical_not",
    "frexp",
    "nextafter",
}


ROOTS = {"abs", "absolute", "sgn"}  # of complex numbers


def never_rounds(op: str, complex_: bool = False) -> bool:
    """Whether an operator `ns::name.overload` gives the only right value, to the last bit, of
    real or of complex numbers."""
    space, name = op.split("::")[0], base_name(op)[1]
    if space not in ("aten", "prims") or op.endswith(".decimals") or (complex_ and name in ROOTS):
        return False
    return name in MOVE or name in STEP


def carries(op: str) -> bool:
    """Whether an operator `ns::name.overload` only carries elements elsewhere."""
    if op.split("::")[0] not in ("aten", "prims") or op.endswith("reduce"):
        return False
    return base_name(op)[1] in CARRY
