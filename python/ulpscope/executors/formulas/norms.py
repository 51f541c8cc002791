# SPDX-License-Identifier: Apache-2.0
"""References of fused norms and rotary embeddings of torch_npu, torch_musa and apex. Called by
`__init__`; shapes are those of the operators.

Statistics (mean, rstd) that an operator takes as arguments are used as given, as a kernel
uses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from . import NoReference, builtin

# ---- norms ---------------------------------------------------------------------------


def _tail(x, like):
    """The dimensions that a weight of this shape normalises."""
    return tuple(range(x.dim() - like.dim(), x.dim()))


def _sum_to(x, like):
    """Sums the leading dimensions away until only those of `like` are left."""
    return x.sum(tuple(range(x.dim() - like.dim()))) if x.dim() > like.dim() else x


def _rms(x, weight, dims, eps):
    rstd = torch.rsqrt(x.square().mean(dims, keepdim=True) + eps)
    return x * rstd * (1 if weight is None else weight), rstd


def _rms_gradients(dy, x, weight, rstd, dims):
    """Gradients of the input, and of the weight before it is summed."""
    normal = x * rstd
    inner = dy if weight is None else dy * weight
    dx = rstd * (inner - normal * (inner * normal).mean(dims, keepdim=True))
    return dx, dy * normal


def _layer(x, weight, bias, dims, eps):
    mean = x.mean(dims, keepdim=True)
    rstd = torch.rsqrt((x - mean).square().mean(dims, keepdim=True) + eps)
    y = (x - mean) * rstd
    y = y if weight is None else y * weight
    return (y if bias is None else y + bias), mean, rstd


def _layer_gradients(dy, x, weight, mean, rstd, dims):
    normal = (x - mean) * rstd
    inner = dy if weight is None else dy * weight
    dx = rstd * (inner - inner.mean(dims, keepdim=True) - normal * (inner * normal).mean(dims, keepdim=True))
    return dx, dy * normal


@builtin("npu::npu_rms_norm", offset_one=False)
@builtin("npu::npu_gemma_rms_norm", offset_one=True)
def rms_norm(self, gamma: Tensor, epsilon: float = 1e-6, offset_one: bool = False) -> tuple[Tensor, Tensor]:
    return _rms(self, gamma + 1 if offset_one else gamma, _tail(self, gamma), epsilon)


@builtin("npu::npu_rms_norm_backward")
def rms_norm_backward(dy: Tensor, self, gamma: Tensor, rstd: Tensor) -> tuple[Tensor, Tensor]:
    dx, dw = _rms_gradients(dy, self, gamma, rstd, _tail(self, gamma))
    return dx, _sum_to(dw, gamma)


@builtin("npu::npu_add_rms_norm", "npu::npu_add_rms_norm_v2_functional")
def add_rms_norm(x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor, Tensor]:
    x = x1 + x2
    return (*_rms(x, gamma, _tail(x, gamma), epsilon), x)


@builtin("npu::npu_add_layer_norm")
def add_layer_norm(
    x1: Tensor, x2: Tensor, gamma: Tensor, beta: Tensor, epsilon: float = 1e-5, additional_output: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    x = x1 + x2
    return (*_layer(x, gamma, beta, _tail(x, gamma), epsilon), x if additional_output else None)


@builtin("npu::npu_deep_norm")
def deep_norm(
    x: Tensor, gx: Tensor, beta: Tensor, gamma: Tensor, alpha: float = 0.3, epsilon: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor]:
    y, mean, rstd = _layer(alpha * x + gx, gamma, beta, _tail(x, gamma), epsilon)
    return mean, rstd, y


@builtin("npu::npu_deep_norm_backward")
def deep_norm_backward(
    dy: Tensor, x: Tensor, gx: Tensor, gamma: Tensor, mean: Tensor, rstd: Tensor, alpha: float = 0.3
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    d, dw = _layer_gradients(dy, alpha * x + gx, gamma, mean, rstd, _tail(x, gamma))
    return alpha * d, d, _sum_to(dy, gamma), _sum_to(dw, gamma)


@builtin("npu::npu_layer_norm_eval")
def layer_norm_eval(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    return F.layer_norm(input, normalized_shape, weight, bias, eps)


@builtin("npu::npu_group_norm_silu")
def group_norm_silu(
    input: Tensor, weight: Tensor, bias: Tensor | None, group: int, eps: float = 1e-5
) -> tuple[Tensor, Tensor, Tensor]:
    return _group_norm_swish(input, group, weight, bias, eps, 1.0)


@builtin("npu::npu_group_norm_swish")
def group_norm_swish(
    input: Tensor, num_groups: int, weight: Tensor, bias: Tensor, eps: float = 1e-5, swish_scale: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    return _group_norm_swish(input, num_groups, weight, bias, eps, swish_scale)


def _group_norm_swish(x, groups, weight, bias, eps, scale):
    parts = x.reshape(x.shape[0], groups, -1)
    y, mean, rstd = _layer(parts, None, None, (2,), eps)
    y = y.reshape(x.shape)
    sides = (1, -1) + (1,) * (x.dim() - 2)
    y = y if weight is None else y * weight.view(sides)
    y = y if bias is None else y + bias.view(sides)
    return y * torch.sigmoid(scale * y), mean.squeeze(2), rstd.squeeze(2)


@builtin("aten::_fused_rmsnorm_forward")
def musa_rms_norm(
    input: Tensor, normalized_shape: Sequence[int], eps: float, weight: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    dims = tuple(range(-len(normalized_shape), 0))
    y, rstd = _rms(input, weight, dims, eps)
    return y, rstd.reshape(input.shape[: input.dim() - len(dims)])


@builtin("aten::_fused_rmsnorm_backward")
def musa_rms_norm_backward(
    grad_out: Tensor,
    invvar: Tensor,
    input: Tensor,
    normalized_shape: Sequence[int],
    eps: float,
    weight: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    dims = tuple(range(-len(normalized_shape), 0))
    rstd = invvar.reshape(input.shape[: input.dim() - len(dims)] + (1,) * len(dims))
    dx, dw = _rms_gradients(grad_out, input, weight, rstd, dims)
    return dx, dw.new_empty(0) if weight is None else _sum_to(dw, weight)


@builtin("apex::fused_layer_norm_affine_fwd", "apex::fused_layer_norm_fwd")
def apex_layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    eps: float,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    memory_efficient: bool = False,
) -> tuple[Tensor, Tensor | None, Tensor]:
    dims = tuple(range(-len(normalized_shape), 0))
    y, mean, rstd = _layer(input, weight, bias, dims, eps)
    return y, None if memory_efficient else mean.flatten(), rstd.flatten()


@builtin("apex::fused_rms_norm_affine_fwd", "apex::fused_rms_norm_fwd")
def apex_rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    eps: float,
    weight: Tensor | None = None,
    memory_efficient: bool = False,
) -> tuple[Tensor, Tensor]:
    y, rstd = _rms(input, weight, tuple(range(-len(normalized_shape), 0)), eps)
    return y, rstd.flatten()


def _apex_statistic(values, x, dims):
    return values.reshape(x.shape[: x.dim() - len(dims)] + (1,) * len(dims))


@builtin("apex::fused_layer_norm_affine_bwd", "apex::fused_layer_norm_bwd")
def apex_layer_norm_backward(
    grad_output: Tensor,
    mean: Tensor | None,
    invvar: Tensor,
    input_or_output: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 0.0,
) -> Any:
    x, dims = input_or_output, tuple(range(-len(normalized_shape), 0))
    mean, rstd = _apex_statistic(mean, x, dims), _apex_statistic(invvar, x, dims)
    dx, dw = _layer_gradients(grad_output, x, weight, mean, rstd, dims)
    if weight is None:
        return dx
    return dx, _sum_to(dw, weight), _sum_to(grad_output, weight)


@builtin("apex::fused_rms_norm_affine_bwd", "apex::fused_rms_norm_bwd")
def apex_rms_norm_backward(
    grad_output: Tensor,
    invvar: Tensor,
    input_or_output: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float = 0.0,
) -> Any:
    x, dims = input_or_output, tuple(range(-len(normalized_shape), 0))
    dx, dw = _rms_gradients(grad_output, x, weight, _apex_statistic(invvar, x, dims), dims)
    return dx if weight is None else (dx, _sum_to(dw, weight))


@builtin("apex::group_norm_nhwc_fprop")
def apex_group_norm(
    x: Tensor, G: int, weight: Tensor, bias: Tensor, eps: float, act: str | None = None
) -> tuple[Tensor, None]:  # noqa: N803 - the schema's name
    y = F.group_norm(x, G, weight, bias, eps)
    if act and act.lower() not in ("silu", "swish"):
        raise NoReference(f"act={act} is not in the built-in reference")
    return F.silu(y) if act else y, None


# ---- rotary embeddings ---------------------------------------------------------------


def _rotated(x, mode):
    """Half a turn: (a, b) -> (-b, a), of halves or of neighbours."""
    if mode == "half":
        a, b = x.chunk(2, -1)
        return torch.cat((-b, a), -1)
    if mode == "interleave":
        return torch.stack((-x[..., 1::2], x[..., ::2]), -1).reshape(x.shape)
    raise NoReference(f"rotary_mode={mode} is not in the built-in reference")


def _unrotated(x, mode):
    return -_rotated(x, mode)


def _reduced_like(x, like):
    """Sums the dimensions over which `like` was broadcast."""
    dims = [i for i, (a, b) in enumerate(zip(x.shape, like.shape)) if a != b]
    return x.sum(dims, keepdim=True) if dims else x


@builtin("npu::npu_rotary_mul")
def rotary_mul(self, r1: Tensor, r2: Tensor, rotary_mode: str = "half") -> Tensor:
    return self * r1 + _rotated(self, rotary_mode) * r2


@builtin("npu::npu_rotary_mul_backward")
def rotary_mul_backward(
    grad: Tensor, self, r1: Tensor, r2: Tensor, rotary_mode: str = "half"
) -> tuple[Tensor, Tensor, Tensor]:
    dx = grad * r1 + _unrotated(grad * r2, rotary_mode)
    turned = _rotated(self, rotary_mode)
    return dx, _reduced_like(grad * self, r1), _reduced_like(grad * turned, r2)


@builtin("npu::npu_apply_rotary_pos_emb")
def apply_rotary(
    query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, layout: str = "BSND", rotary_mode: str = "half"
) -> tuple[Tensor, Tensor]:
    return rotary_mul(query, cos, sin, rotary_mode), rotary_mul(key, cos, sin, rotary_mode)


@builtin("npu::npu_interleave_rope")
def interleave_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    paired = torch.cat((x[..., ::2], x[..., 1::2]), -1)
    return paired * cos + _rotated(paired, "half") * sin


@builtin("aten::_fused_rope_forward", sign=1)
@builtin("aten::_fused_rope_backward", sign=-1)
def musa_rope(
    freq_cis: Tensor,
    rotary_interleaved: bool = False,
    batch_first: bool = False,
    multi_latent_attention: bool = False,
    input: Tensor | None = None,
    grad: Tensor | None = None,
    sign: int = 1,
) -> Tensor:
    """Sequence first unless batch_first; what lies behind the rotated width passes."""
    x = input if sign > 0 else grad
    if rotary_interleaved or multi_latent_attention:
        raise NoReference("an interleaved rotation is not in the built-in reference")
    if freq_cis.dim() == 2:
        freq_cis = freq_cis[None, :, None] if batch_first else freq_cis[:, None, None]
    width = freq_cis.shape[-1]
    moved, passed = x[..., :width], x[..., width:]
    turned = _rotated(moved, "half") * freq_cis.sin()
    if sign < 0:
        turned = _unrotated(moved * freq_cis.sin(), "half")
    return torch.cat((moved * freq_cis.cos() + turned, passed), -1)
