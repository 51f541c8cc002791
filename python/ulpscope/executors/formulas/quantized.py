# SPDX-License-Identifier: Apache-2.0
"""References of the fake quantizations, forward and backward: torch has kernels for them that
round to float32 inside, or take float32 only. The gradients round the zero point and the
quotient in another order than the forward does, as all of torch's kernels do. Called by
`__init__` for operators and by `executors.precision` inside callables.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...calls.older import zip_equal
from . import builtin

aten = torch.ops.aten


def _along(values, axis, x):
    """Numbers of one axis in a shape that spreads over a tensor."""
    if not isinstance(values, Tensor):
        return values
    if axis is None:
        return values.reshape(-1)[0]
    return values.reshape([-1 if d == axis % x.dim() else 1 for d in range(x.dim())])


def _quantized(x, scale, zero_point, quant_min, quant_max, axis=None):
    """What is left of x, and where it lies in range."""
    by_float = isinstance(zero_point, Tensor) and zero_point.is_floating_point()
    scale, zero_point = _along(scale, axis, x), _along(zero_point, axis, x)
    at = (x / scale + zero_point).round() if by_float else (x / scale).round() + zero_point
    held = at.clamp(quant_min, quant_max)
    return ((held - zero_point) * scale).to(x.dtype), (at >= quant_min) & (at <= quant_max)


@builtin("aten::fake_quantize_per_tensor_affine_cachemask")
def per_tensor(self, scale: Any, zero_point: Any, quant_min: int, quant_max: int) -> tuple[Tensor, Tensor]:
    return _quantized(self, scale, zero_point, quant_min, quant_max)


@builtin("aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams")
def per_tensor_switched(
    self, scale: Tensor, zero_point: Tensor, fake_quant_enabled: Tensor, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    if not bool(fake_quant_enabled.reshape(-1)[0]):
        return self.clone(), torch.ones_like(self, dtype=torch.bool)
    return _quantized(self, scale, zero_point.reshape(-1)[0].to(torch.int64), quant_min, quant_max)


@builtin("aten::fake_quantize_per_channel_affine_cachemask")
def per_channel(
    self, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    return _quantized(self, scale, zero_point, quant_min, quant_max, axis)


@builtin("aten::_fake_quantize_learnable_per_tensor_affine")
def learnable(
    self, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int, grad_factor: float = 1.0
) -> Tensor:
    whole = zero_point.round().clamp(quant_min, quant_max).to(torch.int64)
    return _quantized(self, scale, whole, quant_min, quant_max)[0]


@builtin("aten::_fake_quantize_learnable_per_channel_affine")
def learnable_per_channel(
    self, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int, grad_factor: float = 1.0
) -> Tensor:
    whole = zero_point.round().clamp(quant_min, quant_max).to(torch.int64)
    return _quantized(self, scale, whole, quant_min, quant_max, axis)[0]


SMALLEST_SCALE = 6.1e-5


def _range_of(low, high, quant_min, quant_max, symmetric):
    """Scale and zero point of one range of numbers, as torch chooses them."""
    steps = quant_max - quant_min
    centred = symmetric & (low < 0) & (high > 0)
    widest = torch.maximum(low.abs() / (steps // 2 + 1), high.abs() / (steps // 2))
    low = torch.where(centred, -widest * (steps // 2 + 1), low).clamp_max(0)
    high = torch.where(centred, widest * (steps // 2), high).clamp_min(0)
    scale = (high - low) / steps
    scale = torch.where(scale < 1e-38, 0.1, scale)
    grown = (SMALLEST_SCALE / scale).clamp_min(1)  # a smaller one is not taken
    low, high, scale = low * grown, high * grown, scale * grown
    near_low = abs(quant_min) + (low / scale).abs() < abs(quant_max) + (high / scale).abs()
    zero = torch.where(near_low, quant_min - low / scale, quant_max - high / scale)
    zero = torch.where(centred, (quant_min + quant_max) / 2, zero)
    return scale, zero.clamp(quant_min, quant_max).round()


@builtin("aten::_fused_moving_avg_obs_fq_helper")
def observed(
    self,
    observer_on: Tensor,
    fake_quant_on: Tensor,
    running_min: Tensor,
    running_max: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    averaging_const: float,
    quant_min: int,
    quant_max: int,
    ch_axis: int,
    per_row_fake_quant: bool = False,
    symmetric_quant: bool = False,
) -> tuple[Tensor, Tensor]:
    if bool(observer_on.reshape(-1)[0]):
        rows = self.movedim(ch_axis, 0).flatten(1) if per_row_fake_quant else self.reshape(1, -1)
        for running, seen in ((running_min, rows.amin(1)), (running_max, rows.amax(1))):
            seen = seen.reshape(running.shape)
            moved = running + averaging_const * (seen - running)
            running.copy_(torch.where(running.isinf(), seen, moved))
        found = _range_of(running_min, running_max, quant_min, quant_max, symmetric_quant)
        for written, value in zip_equal((scale, zero_point), found):
            written.copy_(value.reshape(written.shape))
    if not bool(fake_quant_on.reshape(-1)[0]):
        return self.clone(), torch.ones_like(self, dtype=torch.bool)
    axis = ch_axis if per_row_fake_quant else None
    return _quantized(self, scale, zero_point, quant_min, quant_max, axis)


def _gradients(grad, x, scale, zero_point, low, high, factor, axis=None):
    """Of the input, of every element's share in the scale and in the zero point."""
    if axis is None:  # torch cuts off after adding a half, which takes -2 for -1
        whole = (zero_point + 0.5).clamp(low, high).trunc()
    else:
        whole = zero_point.round().clamp(low, high)
    scale, whole = _along(scale, axis, x), _along(whole, axis, x)
    at = (x / scale + whole).round()
    inside = (at >= low) & (at <= high)
    offset = at.clamp(low, high) - whole
    by_scale = torch.where(inside, offset - x / scale, offset)
    by_zero = torch.where(inside, torch.zeros_like(x), -scale.expand_as(x))
    return grad * inside, grad * by_scale * factor, grad * by_zero * factor


@builtin("aten::_fake_quantize_learnable_per_tensor_affine_backward")
def learnable_backward(
    grad: Tensor, self, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int, grad_factor: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    dx, ds, dz = _gradients(grad, self, scale, zero_point, quant_min, quant_max, grad_factor)
    return dx, ds.sum().reshape(scale.shape), dz.sum().reshape(scale.shape)


@builtin("aten::_fake_quantize_learnable_per_channel_affine_backward")
def learnable_per_channel_backward(
    grad: Tensor,
    self,
    scale: Tensor,
    zero_point: Tensor,
    axis: int,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    dx, ds, dz = _gradients(grad, self, scale, zero_point, quant_min, quant_max, grad_factor, axis)
    others = [d for d in range(self.dim()) if d != axis % self.dim()]
    return (dx, ds.sum(others), dz.sum(others)) if others else (dx, ds, dz)


IN_FLOAT64 = {
    aten._fused_moving_avg_obs_fq_helper.default: observed,
    aten.fake_quantize_per_tensor_affine_cachemask.default: per_tensor,
    aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default: per_tensor_switched,
    aten.fake_quantize_per_channel_affine_cachemask.default: per_channel,
    aten._fake_quantize_learnable_per_tensor_affine.default: learnable,
    aten._fake_quantize_learnable_per_channel_affine.default: learnable_per_channel,
    aten._fake_quantize_learnable_per_tensor_affine_backward.default: learnable_backward,
    aten._fake_quantize_learnable_per_channel_affine_backward.default: learnable_per_channel_backward,
}
