# SPDX-License-Identifier: Apache-2.0
"""References of aten operators that torch has kernels for on accelerators only: cuDNN's and
MIOpen's convolutions and norms, fused recurrent cells, synchronised batch norm. Called by
`__init__`; products that are scaled, grouped or packed are in `products`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from . import builtin

_CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_CONV_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


# ---- convolutions --------------------------------------------------------------------


@builtin("aten::cudnn_convolution", "aten::miopen_convolution", "aten::miopen_depthwise_convolution")
def convolution(
    self,
    weight: Tensor,
    padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    bias: Tensor | None = None,
) -> Tensor:
    return _CONV[self.dim() - 2](self, weight, bias, stride, padding, dilation, groups)


@builtin("aten::cudnn_convolution_relu", "aten::miopen_convolution_relu")
def convolution_relu(
    self,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    return convolution(self, weight, padding, stride, dilation, groups, bias).relu()


@builtin("aten::cudnn_convolution_add_relu", "aten::miopen_convolution_add_relu")
def convolution_add_relu(
    self,
    weight: Tensor,
    z: Tensor,
    alpha: float | None,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    y = convolution(self, weight, padding, stride, dilation, groups, bias)
    return (y + (1 if alpha is None else alpha) * z).relu()


@builtin("aten::cudnn_convolution_transpose", "aten::miopen_convolution_transpose")
def convolution_transpose(
    self,
    weight: Tensor,
    padding: Sequence[int],
    output_padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    bias: Tensor | None = None,
) -> Tensor:
    return _CONV_TRANSPOSED[self.dim() - 2](self, weight, bias, stride, padding, output_padding, groups, dilation)


@builtin("aten::_conv_depthwise2d", "aten::conv_depthwise3d")
def depthwise(
    self,
    weight: Tensor,
    kernel_size: Sequence[int],
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Tensor:
    groups = self.shape[1]
    return _CONV[self.dim() - 2](self, weight, bias, stride, padding, dilation, groups)


@builtin("aten::cudnn_grid_sampler")
def grid_sampler(self, grid: Tensor) -> Tensor:
    return F.grid_sample(self, grid, align_corners=True)


# ---- batch norm ----------------------------------------------------------------------


def _channels(x):
    """A per-channel vector's shape against x, and the dimensions to sum over."""
    return (1, -1) + (1,) * (x.dim() - 2), [0, *range(2, x.dim())]


@builtin("aten::miopen_batch_norm")
def miopen_batch_norm(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    exponential_average_factor: float,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.ops.aten.native_batch_norm(
        input, weight, bias, running_mean, running_var, training, exponential_average_factor, epsilon
    )


@builtin("aten::batch_norm_stats")
def batch_norm_stats(input: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    sides, dims = _channels(input)
    mean = input.mean(dims)
    variance = (input - mean.view(sides)).square().mean(dims)
    return mean, torch.rsqrt(variance + eps)


@builtin("aten::batch_norm_elemt")
def batch_norm_elemt(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor, eps: float
) -> Tensor:
    sides, _ = _channels(input)
    y = (input - mean.view(sides)) * invstd.view(sides)
    y = y if weight is None else y * weight.view(sides)
    return y if bias is None else y + bias.view(sides)


@builtin("aten::batch_norm_gather_stats")
def batch_norm_gather_stats(
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    count: int,
) -> tuple[Tensor, Tensor]:
    counts = torch.full((mean.shape[0],), float(count), dtype=mean.dtype)
    return _gathered(mean, invstd, running_mean, running_var, momentum, eps, counts)


@builtin("aten::batch_norm_gather_stats_with_counts")
def batch_norm_gather_counts(
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    return _gathered(mean, invstd, running_mean, running_var, momentum, eps, counts)


def _gathered(mean, invstd, running_mean, running_var, momentum, eps, counts):
    """Statistics of all replicas [replica, channel] as one; the running ones are written."""
    share = counts.view(-1, 1).to(mean.dtype)
    total = share.sum()
    whole = (mean * share).sum(0) / total
    within = invstd.square().reciprocal() - eps
    variance = ((within + (mean - whole).square()) * share).sum(0) / total
    if running_mean is not None:
        running_mean.mul_(1 - momentum).add_(momentum * whole)
    if running_var is not None:
        running_var.mul_(1 - momentum).add_(momentum * variance * total / (total - 1))
    return whole, torch.rsqrt(variance + eps)


@builtin("aten::batch_norm_backward_reduce")
def batch_norm_backward_reduce(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    input_g: bool,
    weight_g: bool,
    bias_g: bool,
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    sides, dims = _channels(input)
    sum_dy = grad_out.sum(dims)
    sum_dy_xmu = (grad_out * (input - mean.view(sides))).sum(dims)
    return (
        sum_dy if input_g else None,
        sum_dy_xmu if input_g else None,
        sum_dy_xmu * invstd if weight_g else None,
        sum_dy if bias_g else None,
    )


@builtin("aten::batch_norm_backward_elemt")
def batch_norm_backward_elemt(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    sum_dy: Tensor,
    sum_dy_xmu: Tensor,
    count: Tensor,
) -> Tensor:
    sides, _ = _channels(input)
    total = count.sum()
    factor = invstd if weight is None else invstd * weight
    slope = (invstd.square() * sum_dy_xmu / total).view(sides)
    inner = grad_out - (sum_dy / total).view(sides) - (input - mean.view(sides)) * slope
    return inner * factor.view(sides)


# ---- recurrent cells -----------------------------------------------------------------


def _gate_sum(input_gates, hidden_gates, input_bias, hidden_bias):
    x = input_gates if input_bias is None else input_gates + input_bias
    h = hidden_gates if hidden_bias is None else hidden_gates + hidden_bias
    return x, h


@builtin("aten::_thnn_fused_lstm_cell")
def lstm_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    cx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """hy, cy and the activated gates [batch, 4 hidden]: in, forget, cell, out."""
    x, h = _gate_sum(input_gates, hidden_gates, input_bias, hidden_bias)
    i, f, g, o = (x + h).chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat((i, f, g, o), 1)


@builtin("aten::_thnn_fused_lstm_cell_backward_impl")
def lstm_cell_backward(
    grad_hy: Tensor | None, grad_cy: Tensor | None, cx: Tensor, cy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    i, f, g, o = workspace.chunk(4, 1)
    bent = cy.tanh()
    hy = torch.zeros_like(cy) if grad_hy is None else grad_hy
    dc = hy * o * (1 - bent.square()) + (0 if grad_cy is None else grad_cy)
    gates = torch.cat(
        (dc * g * i * (1 - i), dc * cx * f * (1 - f), dc * i * (1 - g.square()), hy * bent * o * (1 - o)), 1
    )
    return gates, dc * f, gates.sum(0) if has_bias else None


@builtin("aten::_thnn_fused_gru_cell")
def gru_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    hx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, None]:
    """hy, and a work space of which the layout is the kernel's own."""
    x, h = _gate_sum(input_gates, hidden_gates, input_bias, hidden_bias)
    (xr, xz, xn), (hr, hz, hn) = x.chunk(3, 1), h.chunk(3, 1)
    r, z = (xr + hr).sigmoid(), (xz + hz).sigmoid()
    n = (xn + r * hn).tanh()
    return n + z * (hx - n), None


# ---- products and the rest -----------------------------------------------------------


@builtin("aten::mm.dtype", "aten::bmm.dtype")
def product(self, mat2: Tensor, out_dtype: torch.dtype) -> Tensor:
    return self @ mat2


@builtin("aten::addmm.dtype")
@builtin("aten::baddbmm.dtype")
def add_product(
    self,
    out_dtype: torch.dtype,
    mat1: Tensor | None = None,
    batch1: Tensor | None = None,
    mat2: Tensor | None = None,
    batch2: Tensor | None = None,
    beta: float = 1,
    alpha: float = 1,
) -> Tensor:
    left, right = (mat1, mat2) if mat1 is not None else (batch1, batch2)
    return beta * self + alpha * (left @ right)


@builtin("aten::_masked_scale")
def masked_scale(self, mask: Tensor, scale: float) -> Tensor:
    return self * mask * scale


@builtin("aten::linear_backward")
def linear_backward(
    self, grad_output: Tensor, weight: Tensor, output_mask: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    flat, x = grad_output.reshape(-1, grad_output.shape[-1]), self.reshape(-1, self.shape[-1])
    grads = lambda: (grad_output @ weight, flat.T @ x, flat.sum(0))  # noqa: E731
    return tuple(g if wanted else None for g, wanted in zip(grads(), output_mask))


@builtin("aten::max_pool2d_backward")
def max_pool_backward(
    grad_output: Tensor,
    self,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Tensor:
    indices = F.max_pool2d(self, kernel_size, stride or None, padding, dilation, ceil_mode, return_indices=True)[1]
    return torch.ops.aten.max_pool2d_with_indices_backward(
        grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices
    )


# ---- gradient scaling ----------------------------------------------------------------


@builtin("aten::_amp_foreach_non_finite_check_and_unscale_")
def unscale(self, found_inf: Tensor, inv_scale: Tensor) -> None:
    for gradient in self:
        if not gradient.isfinite().all():
            found_inf.fill_(1)
        gradient.mul_(inv_scale.to(gradient.dtype))


@builtin("aten::_amp_update_scale_")
def update_scale(
    self,
    growth_tracker: Tensor,
    found_inf: Tensor,
    scale_growth_factor: float,
    scale_backoff_factor: float,
    growth_interval: int,
) -> Tensor:
    """The scale falls after gradients that are not finite, and grows after so many steps with
    none; not beyond the largest float32."""
    if found_inf.item():
        self.mul_(scale_backoff_factor)
        growth_tracker.zero_()
    elif growth_tracker.item() + 1 != growth_interval:
        growth_tracker.add_(1)
    else:
        grown = self * scale_growth_factor
        if grown.abs().item() <= torch.finfo(torch.float32).max:
            self.copy_(grown)
        growth_tracker.zero_()
    return self
