# SPDX-License-Identifier: Apache-2.0
"""Rules of arithmetic that an operator keeps: neutral elements, wider dtypes, linearity. Each table
says why its operators belong there."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from ...calls.older import zip_equal
from ...calls.nested import mapped
from ...calls.replay import Call, base_name
from ...judges.in_rows import fits, varied
from ...judges.rows import put, tensor_of
from .variant import Variant, floats, same

if TYPE_CHECKING:
    from ...executors.device import Answer

MORE = 5  # neutral elements that are added: no multiple of a vector or a tile

# Sums of products over a dimension of two arguments: 0 * -0 is -0, which changes no sum.
PRODUCTS = {
    "mm": (("self", -1), ("mat2", -2)),
    "bmm": (("self", -1), ("mat2", -2)),
    "addmm": (("mat1", -1), ("mat2", -2)),
    "baddbmm": (("batch1", -1), ("batch2", -2)),
    "linear": (("input", -1), ("weight", -1)),
    "mv": (("self", -1), ("vec", -1)),
    "dot": (("self", -1), ("tensor", -1)),
    "addmv": (("mat", -1), ("vec", -1)),
}
# Along the dimensions of the argument `dim`: the element that changes no result, and whether the
# results have that dimension too, with those of the added elements at its beginning.
NEUTRAL = {
    "sum": (-0.0, False),
    "prod": (1.0, False),
    "amax": (-math.inf, False),
    "amin": (math.inf, False),
    "logsumexp": (-math.inf, False),
    "_softmax": (-math.inf, True),
    "_log_softmax": (-math.inf, True),
    "softmax": (-math.inf, True),
    "log_softmax": (-math.inf, True),
    "cumsum": (0.0, True),
    "cumprod": (1.0, True),
    "logcumsumexp": (-math.inf, True),
}
# Homogeneous of degree one in these arguments together, for any values of the others.
LINEAR = {
    "mm": ("self",),
    "bmm": ("mat2",),
    "mv": ("vec",),
    "dot": ("self",),
    "addmm": ("self", "mat2"),
    "baddbmm": ("self", "batch1"),
    "addmv": ("self", "mat"),
    "linear": ("weight", "bias"),
    "convolution": ("weight", "bias"),
    "conv1d": ("input", "bias"),
    "conv2d": ("input", "bias"),
    "sum": ("self",),
    "mean": ("self",),
    "cumsum": ("self",),
    "trace": ("self",),
    "avg_pool1d": ("self",),
    "avg_pool2d": ("self",),
    "avg_pool3d": ("self",),
    "_adaptive_avg_pool2d": ("self",),
    "_adaptive_avg_pool3d": ("self",),
    "upsample_nearest1d": ("self",),
    "upsample_nearest2d": ("self",),
    "upsample_linear1d": ("self",),
    "upsample_bilinear2d": ("self",),
    "upsample_bicubic2d": ("self",),
    "grid_sampler_2d": ("input",),
    "grid_sampler_3d": ("input",),
    "embedding": ("weight",),
    "index_select": ("self",),
    "gather": ("self",),
    "lerp": ("self", "end"),
    "cross": ("self",),
    "diff": ("self",),
    "im2col": ("self",),
    "col2im": ("self",),
    "index_add": ("self", "source"),
    "scatter_add": ("self", "src"),
    "cat": ("tensors",),
}
# Their rule names the dtype: a largest number, a step, a tolerance.
OF_DTYPE = {
    "nan_to_num",
    "nextafter",
    "frexp",
    "ldexp",
    "linalg_pinv",
    "pinverse",
    "matrix_rank",
    "linalg_matrix_rank",
    "linalg_lstsq",
    "rms_norm",
    "_fused_rms_norm",
    "view_as_complex",
    "view_as_real",
    "histc",
    "to_sparse",
    # Their choices of rows and signs are not the same in another precision.
    "linalg_lu_factor_ex",
    "linalg_lu_factor",
    "linalg_lu",
    "linalg_ldl_factor_ex",
    "linalg_ldl_factor",
    "linalg_qr",
    "geqrf",
    "_linalg_svd",
    "_linalg_eigh",
    "_linalg_solve_ex",
    "_linalg_det",
    "_linalg_slogdet",
    "linalg_eig",
    "linalg_inv_ex",
    "linalg_inv",
    "inverse",
}
WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.float32: torch.float64}


def _named(call, name):
    """Paths of the tensors of an argument."""
    return [p for p, v in call.views.items() if v.argument == name]


def _grown(tensor, dim, value):
    """A tensor with neutral elements before the first along a dimension: what is dropped at the end is none."""
    more = list(tensor.shape)
    more[dim] = MORE
    return torch.cat([torch.full(more, value, dtype=tensor.dtype), tensor], dim)


def padded(call: Call, answer: Answer, number: int) -> Variant | None:
    name = base_name(call.op)[1]
    if not fits(call) or not call.op.startswith("aten::"):
        return None
    if name in PRODUCTS:
        return _wider_products(call, PRODUCTS[name])
    return _along(call, answer, *NEUTRAL[name]) if name in NEUTRAL else None


def _wider_products(call, sides):
    made = varied(call)
    for (argument, dim), zero in zip_equal(sides, (-0.0, 0.0)):
        path = next(iter(_named(call, argument)), None)
        if path is None or not call.views[path].dtype.is_floating_point:
            return None
        put(made, path, _grown(tensor_of(call, path), dim, zero))
    return Variant([made], same)


def _along(call, answer, value, kept):
    view = call.views.get("args[0]")
    dim = call.value("dim")
    if view is None or not view.sizes or not view.dtype.is_floating_point or len(answer.outputs) != 1:
        return None
    dim = dim if isinstance(dim, (list, tuple)) else [0] if dim is None and not kept else [dim]
    if not dim and not kept:  # all of them
        dim = [0]
    if not dim or not isinstance(dim[0], int):
        return None
    made, at = varied(call), dim[0] % len(view.sizes)
    put(made, "args[0]", _grown(tensor_of(call, "args[0]"), at, value))
    n = view.sizes[at]
    return Variant([made], lambda outputs: {p: t.narrow(at, MORE, n) if kept else t for p, t in outputs[0].items()})


def wider(call: Call, answer: Answer, number: int) -> Variant | None:
    name, paths = base_name(call.op)[1], floats(call)
    dtypes = {call.views[p].dtype for p in paths}
    if not fits(call) or call.is_complex or len(dtypes) != 1 or call.written() or name in OF_DTYPE:
        return None
    (dtype,) = dtypes
    to = WIDER.get(dtype)
    if to is None or "quant" in name or call.op.startswith("aten::view") or "rng" in name:
        return None
    made = varied(call, kwargs=mapped(call.kwargs, lambda a: to if a is dtype else a))
    made.args = mapped(made.args, lambda a: to if a is dtype else a)
    for path in paths:
        put(made, path, tensor_of(call, path).to(to))
        made.views[path].dtype = to
    forms = {p: t.dtype for p, t in answer.outputs.items()}
    return Variant(
        [made], lambda outputs: {p: t.to(forms[p]) if t.is_floating_point() else t for p, t in outputs[0].items()}
    )


def linear(call: Call, answer: Answer, number: int) -> Variant | None:
    name = base_name(call.op)[1]
    names = LINEAR.get(name) if call.op.startswith("aten::") else None
    if names is None and name.endswith("_backward") and not name.endswith(("backward_backward", "double_backward")):
        names = tuple({v.argument for v in call.views.values() if v.argument.startswith("grad")})
    paths = [p for n in names or () for p in _named(call, n)]
    outputs = answer.outputs.values()
    if not paths or not fits(call) or call.written() or call.is_complex:
        return None
    if not all(t.is_floating_point() for t in outputs) or not all(p in floats(call) for p in paths):
        return None
    made = varied(call)
    for path in paths:
        put(made, path, tensor_of(call, path) * -2)
    finite = all(bool(torch.isfinite(tensor_of(made, p)).all()) for p in paths)
    return Variant([made], lambda given: _halved(given[0], answer.outputs)) if finite else None


def _halved(outputs, own):
    """Outputs divided by -2; None where twice as much was too much for the dtype."""
    if any(
        bool((~torch.isfinite(t) & torch.isfinite(own[p])).any()) for p, t in outputs.items() if t.shape == own[p].shape
    ):
        return None
    return {p: t / -2 for p, t in outputs.items()}
