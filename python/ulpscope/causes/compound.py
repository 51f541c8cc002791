# SPDX-License-Identifier: Apache-2.0
"""What computes a compound operator from simpler ones: torch's decompositions, and formulas for
what torch takes for simple. Read by `graph`, which records both. Needs of torch: its table of
decompositions.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import torch

from ..calls.replay import base_name
from ..calls.torch_private import decomposition_table, overload_name
from ..executors.attention_steps import attention, flash

# Compound operators that torch's own decompositions take apart. The rest is simple enough.
COMPOUND = set(
    """
_softmax _log_softmax _safe_softmax _softmax_backward_data _log_softmax_backward_data logsumexp
native_layer_norm native_layer_norm_backward native_group_norm native_group_norm_backward
native_batch_norm native_batch_norm_backward _native_batch_norm_legit _fused_rms_norm
_native_batch_norm_legit_no_training _fused_rms_norm_backward _batch_norm_with_update
gelu gelu_backward silu silu_backward mish mish_backward sigmoid_backward tanh_backward sigmoid
hardswish hardswish_backward hardsigmoid hardsigmoid_backward elu elu_backward celu selu
leaky_relu leaky_relu_backward softplus softplus_backward log_sigmoid_forward
log_sigmoid_backward glu glu_backward prelu _prelu_kernel hardtanh_backward threshold_backward
mse_loss mse_loss_backward huber_loss huber_loss_backward smooth_l1_loss smooth_l1_loss_backward
binary_cross_entropy binary_cross_entropy_backward binary_cross_entropy_with_logits
soft_margin_loss nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward
addmm addmv baddbmm addbmm addr addcmul addcdiv lerp hypot xlogy logit
linear_backward embedding_dense_backward _scaled_dot_product_flash_attention_for_cpu
pairwise_distance dist cosine_similarity hinge_embedding_loss margin_ranking_loss softshrink
_addmm_activation addmm_ baddbmm_ log_softmax softmax
""".split()
)


def _variance(x: torch.Tensor, dim: Any = None, correction: float | None = 1, keepdim: bool = False) -> torch.Tensor:
    """var and the like from a mean, squares and a sum."""
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        dim = list(range(x.dim()))
    dim = [dim] if isinstance(dim, int) else list(dim)
    n = 1
    for d in dim:
        n *= x.shape[d]
    centred = x - torch.mean(x, dim, keepdim=True)
    square = torch.sum(centred * centred, dim, keepdim=keepdim)
    return torch.div(square, n - (1 if correction is None else correction))


def _deviation(x: torch.Tensor, dim: Any = None, correction: float | None = 1, keepdim: bool = False) -> torch.Tensor:
    return torch.sqrt(_variance(x, dim, correction=correction, keepdim=keepdim))


def _variance_mean(
    x: torch.Tensor, dim: Any = None, correction: float | None = 1, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    return _variance(x, dim, correction=correction, keepdim=keepdim), torch.mean(
        x, dim if dim is not None else list(range(x.dim())), keepdim=keepdim
    )


def _norm(
    x: torch.Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: torch.dtype | None = None
) -> torch.Tensor:
    if not isinstance(ord, (int, float)) or not 0 < ord < 100:
        raise LookupError("not a sum of powers")
    dim = list(range(x.dim())) if dim is None else dim
    if ord == 1:
        return torch.sum(torch.abs(x), dim, keepdim=keepdim)
    if ord == 2:
        return torch.sqrt(torch.sum(x * x, dim, keepdim=keepdim))
    return torch.pow(torch.sum(torch.pow(torch.abs(x), ord), dim, keepdim=keepdim), 1 / ord)


def _distances(a: torch.Tensor, b: torch.Tensor, p: float = 2.0, compute_mode: int | None = None) -> torch.Tensor:
    return _norm(a.unsqueeze(-2) - b.unsqueeze(-3), p, [-1])


def _fake_quantized(
    x: torch.Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Fake quantization as the kernel computes it, with a scale in float32."""
    scale = ctypes.c_float(scale).value
    inverse = ctypes.c_float(1 / scale).value
    steps = torch.add(torch.round(torch.mul(x, inverse)), zero_point)
    steps = torch.clamp(steps, quant_min, quant_max)
    return torch.mul(torch.sub(steps, zero_point), scale), (steps >= quant_min)


def _logaddexp(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    top = torch.maximum(a, b)
    less = torch.log1p(torch.exp(torch.neg(torch.abs(torch.sub(a, b)))))
    return torch.add(top, less)


def _flash(q: torch.Tensor, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    out, sums = flash(q, *args, **kwargs)
    if sums.shape != q.shape[:-1]:
        raise LookupError("the kernel of the backward reads one sum for each query")
    return out, sums


def _var_mean_of(
    x: torch.Tensor, dim: Any = None, unbiased: bool = True, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    return _variance_mean(x, dim, correction=int(unbiased), keepdim=keepdim)


OWN: dict[str, Callable[..., Any]] = {
    "_scaled_dot_product_attention_math": attention,
    "_scaled_dot_product_flash_attention_for_cpu": _flash,
    "var": _variance,
    "std": _deviation,
    "var_mean": _variance_mean,
    "linalg_vector_norm": _norm,
    "norm": _norm,
    "_cdist_forward": _distances,
    "logaddexp": _logaddexp,
    "fake_quantize_per_tensor_affine_cachemask": _fake_quantized,
}


@functools.cache
def inside_of(func: Any) -> Callable[..., Any] | None:
    """What computes an operator from simpler ones, or None."""
    if not hasattr(func, "_schema"):
        return None
    name = base_name(func._schema.name)[1]
    if name in OWN and overload_name(func) in ("correction", "default", "ScalarOpt_dim"):
        return OWN[name]
    if name == "var_mean" and overload_name(func) == "dim":
        return _var_mean_of
    if name not in COMPOUND:
        return None
    return decomposition_table().get(func)
