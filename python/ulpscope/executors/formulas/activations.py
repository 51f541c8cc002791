# SPDX-License-Identifier: Apache-2.0
"""References of what vendors fuse besides attention and norms: activations, softmax and losses, linear layers,
optimizers."""

from __future__ import annotations


import torch
from torch import Tensor
from torch.nn import functional as F

from . import builtin, no_dropout

REDUCTIONS = {0: "none", 1: "mean", 2: "sum"}


# ---- activations ---------------------------------------------------------------------


def _gradient(function, inputs, grad):
    """Gradients of a formula's inputs, in the precision of the inputs."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    with torch.enable_grad():
        return torch.autograd.grad(function(*leaves), leaves, grad)


@builtin("npu::npu_swiglu")
def swiglu(self, dim: int = -1) -> Tensor:
    gate, value = self.chunk(2, dim)
    return F.silu(gate) * value


@builtin("npu::npu_swiglu_backward")
def swiglu_backward(grad_output: Tensor, self, dim: int = -1) -> Tensor:
    return _gradient(lambda x: swiglu(x, dim), [self], grad_output)[0]


@builtin("aten::_fused_swiglu_forward")
def musa_swiglu(input: Tensor) -> Tensor:
    return swiglu(input)


@builtin("aten::_fused_swiglu_backward")
def musa_swiglu_backward(grad: Tensor, input: Tensor) -> Tensor:
    return swiglu_backward(grad, input)


@builtin("npu::npu_clipped_swiglu")
def clipped_swiglu(
    x: Tensor, dim: int = -1, alpha: float = 1.702, limit: float = 7.0, bias: float = 1.0, interleaved: bool = True
) -> Tensor:
    if interleaved:
        x = x.movedim(dim, -1)
        gate, value = x[..., ::2].movedim(-1, dim), x[..., 1::2].movedim(-1, dim)
    else:
        gate, value = x.chunk(2, dim)
    gate, value = gate.clamp(max=limit), value.clamp(-limit, limit)
    return gate * torch.sigmoid(alpha * gate) * (value + bias)


def _geglu_halves(x, dim, activate_left):
    left, right = x.chunk(2, dim)
    return (left, right) if activate_left else (right, left)


@builtin("npu::npu_geglu")
def geglu(self, dim: int = -1, approximate: int = 1, activate_left: bool = False) -> tuple[Tensor, Tensor]:
    gate, value = _geglu_halves(self, dim, activate_left)
    gate = F.gelu(gate, approximate="tanh" if approximate else "none")
    return gate * value, gate


@builtin("npu::npu_geglu_grad")
def geglu_grad(grad_output: Tensor, self, dim: int = -1, approximate: int = 1, activate_left: bool = False) -> Tensor:
    return _gradient(lambda x: geglu(x, dim, approximate, activate_left)[0], [self], grad_output)[0]


@builtin("npu::npu_gelu")
def gelu(self, approximate: str = "none") -> Tensor:
    return F.gelu(self, approximate=approximate)


@builtin("npu::npu_gelu_backward")
def gelu_backward(grad_output: Tensor, self, approximate: str = "none") -> Tensor:
    return torch.ops.aten.gelu_backward(grad_output, self, approximate=approximate)


@builtin("npu::fast_gelu", "npu::npu_fast_gelu")
def fast_gelu(self) -> Tensor:
    return self * torch.sigmoid(1.702 * self)


@builtin("npu::npu_fast_gelu_backward")
def fast_gelu_backward(grad: Tensor, self) -> Tensor:
    return _gradient(fast_gelu, [self], grad)[0]


@builtin("npu::npu_silu")
def silu(self) -> Tensor:
    return F.silu(self)


@builtin("npu::npu_silu_")
def silu_(self) -> Tensor:
    return self.copy_(F.silu(self))


@builtin("npu::npu_silu_backward")
def silu_backward(grad_output: Tensor, x0: Tensor, x1: Tensor) -> Tensor:
    return torch.ops.aten.silu_backward(grad_output, x0)


@builtin("npu::npu_mish")
def mish(self) -> Tensor:
    return F.mish(self)


# ---- softmax and losses --------------------------------------------------------------

MASKED = -10000.0


@builtin("npu::npu_scaled_masked_softmax")
def scaled_masked_softmax(x: Tensor, mask: Tensor, scale: float = 1, fixed_triu_mask: bool = False) -> Tensor:
    return (x * scale).masked_fill(_softmax_mask(x, mask, fixed_triu_mask), MASKED).softmax(-1)


@builtin("npu::npu_scaled_masked_softmax_backward")
def scaled_masked_softmax_backward(
    y_grad: Tensor, y: Tensor, mask: Tensor, scale: float, fixed_triu_mask: bool
) -> Tensor:
    dx = torch.ops.aten._softmax_backward_data(y_grad, y, -1, y.dtype) * scale
    return dx.masked_fill(_softmax_mask(y, mask, fixed_triu_mask), 0.0)


def _softmax_mask(x, mask, triangle):
    if triangle:
        return torch.ones(x.shape[-2:], dtype=torch.bool).triu(1)
    return mask.bool()


@builtin("npu::npu_dropout_with_add_softmax")
def dropout_with_add_softmax(self, x1: Tensor, alpha: float, prob: float, dim: int) -> tuple[None, Tensor, Tensor]:
    no_dropout(prob)
    soft = torch.softmax(x1 + alpha * self, dim)
    return None, soft, soft


@builtin("npu::npu_softmax_cross_entropy_with_logits")
def softmax_cross_entropy(self, labels: Tensor) -> Tensor:
    return -(labels * self.log_softmax(-1)).sum(-1)


@builtin("npu::npu_softmax_cross_entropy_with_logits_backward")
def softmax_cross_entropy_backward(grad: Tensor, self, labels: Tensor) -> Tensor:
    return _gradient(lambda x: softmax_cross_entropy(x, labels), [self], grad)[0]


@builtin("npu::npu_cross_entropy_loss")
def npu_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> tuple[Tensor, Tensor, None, None]:
    loss = F.cross_entropy(
        input, target, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
    )
    return loss.reshape(-1), input.log_softmax(-1), None, None


@builtin("aten::_fused_cross_entropy_loss_2d_forward")
def musa_cross_entropy(
    self,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    return F.cross_entropy(
        self,
        target,
        weight,
        ignore_index=ignore_index,
        reduction=REDUCTIONS[reduction],
        label_smoothing=label_smoothing,
    )


@builtin("aten::_fused_cross_entropy_loss_2d_backward")
def musa_cross_entropy_backward(
    grad: Tensor,
    self,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    def loss(x):
        return musa_cross_entropy(x, target, weight, reduction, ignore_index, label_smoothing)

    return _gradient(loss, [self], grad)[0]


# ---- linear layers and optimizers ------------------------------------------------------


@builtin("npu::npu_linear")
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return F.linear(input, weight, bias)


@builtin("npu::npu_linear_backward")
def linear_backward(grad: Tensor, input: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    return grad @ weight, grad.T @ input


@builtin("npu::npu_apply_adam_w.out")
def apply_adam_w(
    beta1_power: float,
    beta2_power: float,
    lr: float,
    weight_decay: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    grad: Tensor,
    var: Tensor,
    m: Tensor,
    v: Tensor,
    max_grad_norm: Tensor | None = None,
    amsgrad: bool = False,
    maximize: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """The powers are those before this step; `max_grad_norm` is the largest second moment."""
    grad = -grad if maximize else grad
    m.lerp_(grad, 1 - beta1)
    v.mul_(beta2).add_(grad * grad * (1 - beta2))
    second = torch.maximum(max_grad_norm, v) if amsgrad else v
    denominator = (second / (1 - beta2_power * beta2)).sqrt() + epsilon
    var.mul_(1 - lr * weight_decay).sub_(lr * m / (1 - beta1_power * beta1) / denominator)
    return var, m, v
