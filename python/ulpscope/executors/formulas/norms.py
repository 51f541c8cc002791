# SPDX-License-Identifier: Apache-2.0
"""References of fused norms, rotary embeddings, gated activations, softmaxes and losses of
torch_npu, torch_musa and apex. Called by `__init__`; shapes are those of the operators.

Statistics (mean, rstd) that an operator takes as arguments are used as given, as a kernel
uses them.
"""

import torch
from torch.nn import functional as F

from . import NoReference, builtin, no_dropout

REDUCTIONS = {0: "none", 1: "mean", 2: "sum"}


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
def rms_norm(self, gamma, epsilon=1e-6, offset_one=False):
    return _rms(self, gamma + 1 if offset_one else gamma, _tail(self, gamma), epsilon)


@builtin("npu::npu_rms_norm_backward")
def rms_norm_backward(dy, self, gamma, rstd):
    dx, dw = _rms_gradients(dy, self, gamma, rstd, _tail(self, gamma))
    return dx, _sum_to(dw, gamma)


@builtin("npu::npu_add_rms_norm", "npu::npu_add_rms_norm_v2_functional")
def add_rms_norm(x1, x2, gamma, epsilon=1e-6):
    x = x1 + x2
    return (*_rms(x, gamma, _tail(x, gamma), epsilon), x)


@builtin("npu::npu_add_layer_norm")
def add_layer_norm(x1, x2, gamma, beta, epsilon=1e-5, additional_output=False):
    x = x1 + x2
    return (*_layer(x, gamma, beta, _tail(x, gamma), epsilon), x if additional_output else None)


@builtin("npu::npu_deep_norm")
def deep_norm(x, gx, beta, gamma, alpha=0.3, epsilon=1e-6):
    y, mean, rstd = _layer(alpha * x + gx, gamma, beta, _tail(x, gamma), epsilon)
    return mean, rstd, y


@builtin("npu::npu_deep_norm_backward")
def deep_norm_backward(dy, x, gx, gamma, mean, rstd, alpha=0.3):
    d, dw = _layer_gradients(dy, alpha * x + gx, gamma, mean, rstd, _tail(x, gamma))
    return alpha * d, d, _sum_to(dy, gamma), _sum_to(dw, gamma)


@builtin("npu::npu_layer_norm_eval")
def layer_norm_eval(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    return F.layer_norm(input, normalized_shape, weight, bias, eps)


@builtin("npu::npu_group_norm_silu")
def group_norm_silu(input, weight, bias, group, eps=1e-5):
    return _group_norm_swish(input, group, weight, bias, eps, 1.0)


@builtin("npu::npu_group_norm_swish")
def group_norm_swish(input, num_groups, weight, bias, eps=1e-5, swish_scale=1.0):
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
def musa_rms_norm(input, normalized_shape, eps, weight=None):
    dims = tuple(range(-len(normalized_shape), 0))
    y, rstd = _rms(input, weight, dims, eps)
    return y, rstd.reshape(input.shape[: input.dim() - len(dims)])


@builtin("aten::_fused_rmsnorm_backward")
def musa_rms_norm_backward(grad_out, invvar, input, normalized_shape, eps, weight=None):
    dims = tuple(range(-len(normalized_shape), 0))
    rstd = invvar.reshape(input.shape[: input.dim() - len(dims)] + (1,) * len(dims))
    dx, dw = _rms_gradients(grad_out, input, weight, rstd, dims)
    return dx, dw.new_empty(0) if weight is None else _sum_to(dw, weight)


@builtin("apex::fused_layer_norm_affine_fwd", "apex::fused_layer_norm_fwd")
def apex_layer_norm(input, normalized_shape, eps, weight=None, bias=None, memory_efficient=False):
    dims = tuple(range(-len(normalized_shape), 0))
    y, mean, rstd = _layer(input, weight, bias, dims, eps)
    return y, None if memory_efficient else mean.flatten(), rstd.flatten()


@builtin("apex::fused_rms_norm_affine_fwd", "apex::fused_rms_norm_fwd")
def apex_rms_norm(input, normalized_shape, eps, weight=None, memory_efficient=False):
    y, rstd = _rms(input, weight, tuple(range(-len(normalized_shape), 0)), eps)
    return y, rstd.flatten()


def _apex_statistic(values, x, dims):
    return values.reshape(x.shape[: x.dim() - len(dims)] + (1,) * len(dims))


@builtin("apex::fused_layer_norm_affine_bwd", "apex::fused_layer_norm_bwd")
def apex_layer_norm_backward(
    grad_output, mean, invvar, input_or_output, normalized_shape, weight=None, bias=None, eps=0.0
):
    x, dims = input_or_output, tuple(range(-len(normalized_shape), 0))
    mean, rstd = _apex_statistic(mean, x, dims), _apex_statistic(invvar, x, dims)
    dx, dw = _layer_gradients(grad_output, x, weight, mean, rstd, dims)
    if weight is None:
        return dx
    return dx, _sum_to(dw, weight), _sum_to(grad_output, weight)


@builtin("apex::fused_rms_norm_affine_bwd", "apex::fused_rms_norm_bwd")
def apex_rms_norm_backward(grad_output, invvar, input_or_output, normalized_shape, weight=None, eps=0.0):
    x, dims = input_or_output, tuple(range(-len(normalized_shape), 0))
    dx, dw = _rms_gradients(grad_output, x, weight, _apex_statistic(invvar, x, dims), dims)
    return dx if weight is None else (dx, _sum_to(dw, weight))


@builtin("apex::group_norm_nhwc_fprop")
def apex_group_norm(x, G, weight, bias, eps, act=None):  # noqa: N803 - the schema's name
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
def rotary_mul(self, r1, r2, rotary_mode="half"):
    return self * r1 + _rotated(self, rotary_mode) * r2


@builtin("npu::npu_rotary_mul_backward")
def rotary_mul_backward(grad, self, r1, r2, rotary_mode="half"):
    dx = grad * r1 + _unrotated(grad * r2, rotary_mode)
    turned = _rotated(self, rotary_mode)
    return dx, _reduced_like(grad * self, r1), _reduced_like(grad * turned, r2)


@builtin("npu::npu_apply_rotary_pos_emb")
def apply_rotary(query, key, cos, sin, layout="BSND", rotary_mode="half"):
    return rotary_mul(query, cos, sin, rotary_mode), rotary_mul(key, cos, sin, rotary_mode)


@builtin("npu::npu_interleave_rope")
def interleave_rope(x, cos, sin):
    paired = torch.cat((x[..., ::2], x[..., 1::2]), -1)
    return paired * cos + _rotated(paired, "half") * sin


@builtin("aten::_fused_rope_forward", sign=1)
@builtin("aten::_fused_rope_backward", sign=-1)
def musa_rope(
    freq_cis, rotary_interleaved=False, batch_first=False, multi_latent_attention=False, input=None, grad=None, sign=1
):
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


# ---- activations ---------------------------------------------------------------------


def _gradient(function, inputs, grad):
    """Gradients of a formula's inputs, in the precision of the inputs."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    with torch.enable_grad():
        return torch.autograd.grad(function(*leaves), leaves, grad)


@builtin("npu::npu_swiglu")
def swiglu(self, dim=-1):
    gate, value = self.chunk(2, dim)
    return F.silu(gate) * value


@builtin("npu::npu_swiglu_backward")
def swiglu_backward(grad_output, self, dim=-1):
    return _gradient(lambda x: swiglu(x, dim), [self], grad_output)[0]


@builtin("aten::_fused_swiglu_forward")
def musa_swiglu(input):
    return swiglu(input)


@builtin("aten::_fused_swiglu_backward")
def musa_swiglu_backward(grad, input):
    return swiglu_backward(grad, input)


@builtin("npu::npu_clipped_swiglu")
def clipped_swiglu(x, dim=-1, alpha=1.702, limit=7.0, bias=1.0, interleaved=True):
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
def geglu(self, dim=-1, approximate=1, activate_left=False):
    gate, value = _geglu_halves(self, dim, activate_left)
    gate = F.gelu(gate, approximate="tanh" if approximate else "none")
    return gate * value, gate


@builtin("npu::npu_geglu_grad")
def geglu_grad(grad_output, self, dim=-1, approximate=1, activate_left=False):
    return _gradient(lambda x: geglu(x, dim, approximate, activate_left)[0], [self], grad_output)[0]


@builtin("npu::npu_gelu")
def gelu(self, approximate="none"):
    return F.gelu(self, approximate=approximate)


@builtin("npu::npu_gelu_backward")
def gelu_backward(grad_output, self, approximate="none"):
    return torch.ops.aten.gelu_backward(grad_output, self, approximate=approximate)


@builtin("npu::fast_gelu", "npu::npu_fast_gelu")
def fast_gelu(self):
    return self * torch.sigmoid(1.702 * self)


@builtin("npu::npu_fast_gelu_backward")
def fast_gelu_backward(grad, self):
    return _gradient(fast_gelu, [self], grad)[0]


@builtin("npu::npu_silu")
def silu(self):
    return F.silu(self)


@builtin("npu::npu_silu_")
def silu_(self):
    return self.copy_(F.silu(self))


@builtin("npu::npu_silu_backward")
def silu_backward(grad_output, x0, x1):
    return torch.ops.aten.silu_backward(grad_output, x0)


@builtin("npu::npu_mish")
def mish(self):
    return F.mish(self)


# ---- softmax and losses --------------------------------------------------------------

MASKED = -10000.0


@builtin("npu::npu_scaled_masked_softmax")
def scaled_masked_softmax(x, mask, scale=1, fixed_triu_mask=False):
    return (x * scale).masked_fill(_softmax_mask(x, mask, fixed_triu_mask), MASKED).softmax(-1)


@builtin("npu::npu_scaled_masked_softmax_backward")
def scaled_masked_softmax_backward(y_grad, y, mask, scale, fixed_triu_mask):
    dx = torch.ops.aten._softmax_backward_data(y_grad, y, -1, y.dtype) * scale
    return dx.masked_fill(_softmax_mask(y, mask, fixed_triu_mask), 0.0)


def _softmax_mask(x, mask, triangle):
    if triangle:
        return torch.ones(x.shape[-2:], dtype=torch.bool).triu(1)
    return mask.bool()


@builtin("npu::npu_dropout_with_add_softmax")
def dropout_with_add_softmax(self, x1, alpha, prob, dim):
    no_dropout(prob)
    soft = torch.softmax(x1 + alpha * self, dim)
    return None, soft, soft


@builtin("npu::npu_softmax_cross_entropy_with_logits")
def softmax_cross_entropy(self, labels):
    return -(labels * self.log_softmax(-1)).sum(-1)


@builtin("npu::npu_softmax_cross_entropy_with_logits_backward")
def softmax_cross_entropy_backward(grad, self, labels):
    return _gradient(lambda x: softmax_cross_entropy(x, labels), [self], grad)[0]


@builtin("npu::npu_cross_entropy_loss")
def npu_cross_entropy(input, target, weight=None, reduction="mean", ignore_index=-100, label_smoothing=0.0):
    loss = F.cross_entropy(
        input, target, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
    )
    return loss.reshape(-1), input.log_softmax(-1), None, None


@builtin("aten::_fused_cross_entropy_loss_2d_forward")
def musa_cross_entropy(self, target, weight=None, reduction=1, ignore_index=-100, label_smoothing=0.0):
    return F.cross_entropy(
        self,
        target,
        weight,
        ignore_index=ignore_index,
        reduction=REDUCTIONS[reduction],
        label_smoothing=label_smoothing,
    )


@builtin("aten::_fused_cross_entropy_loss_2d_backward")
def musa_cross_entropy_backward(grad, self, target, weight=None, reduction=1, ignore_index=-100, label_smoothing=0.0):
    def loss(x):
        return musa_cross_entropy(x, target, weight, reduction, ignore_index, label_smoothing)

    return _gradient(loss, [self], grad)[0]


# ---- linear layers and optimizers ------------------------------------------------------


@builtin("npu::npu_linear")
def linear(input, weight, bias=None):
    return F.linear(input, weight, bias)


@builtin("npu::npu_linear_backward")
def linear_backward(grad, input, weight):
    return grad @ weight, grad.T @ input


@builtin("npu::npu_apply_adam_w.out")
def apply_adam_w(
    beta1_power,
    beta2_power,
    lr,
    weight_decay,
    beta1,
    beta2,
    epsilon,
    grad,
    var,
    m,
    v,
    max_grad_norm=None,
    amsgrad=False,
    maximize=False,
):
    """The powers are those before this step; `max_grad_norm` is the largest second moment."""
    grad = -grad if maximize else grad
    m.lerp_(grad, 1 - beta1)
    v.mul_(beta2).add_(grad * grad * (1 - beta2))
    second = torch.maximum(max_grad_norm, v) if amsgrad else v
    denominator = (second / (1 - beta2_power * beta2)).sqrt() + epsilon
    var.mul_(1 - lr * weight_decay).sub_(lr * m / (1 - beta1_power * beta1) / denominator)
    return var, m, v
