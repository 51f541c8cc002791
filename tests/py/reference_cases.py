# SPDX-License-Identifier: Apache-2.0
"""Operators of extensions that are not installed here: their schemas, arguments, an honest
kernel and kernels with a planted bug. The kernels are written otherwise than the references:
torch's own functions and autograd in float32."""

import functools
from dataclasses import dataclass, field

import torch
from torch.nn import functional as F

CASES = {}


@dataclass
class Case:
    """One operator: `bugs` are keyword arguments of `kernel` that make it wrong."""

    schema: str
    arguments: object  # function of a dtype: (args, kwargs)
    kernel: object
    bugs: list = field(default_factory=list)


def case(schema, arguments, *bugs):
    def bind(kernel):
        name = schema.split("(")[0]
        CASES[name] = Case(schema, arguments, kernel, list(bugs))
        return kernel

    return bind


def draw(*sizes, seed=1, dtype=torch.float32, scale=1.0, shift=0.0):
    g = torch.Generator().manual_seed(seed)
    return (torch.randn(*sizes, generator=g) * scale + shift).to(dtype)


def up(*tensors):
    return [t.float() if isinstance(t, torch.Tensor) and t.is_floating_point() else t for t in tensors]


def gradients(function, inputs, grad):
    leaves = [x.detach().clone().requires_grad_() for x in up(*inputs)]
    with torch.enable_grad():
        return torch.autograd.grad(function(*leaves), leaves, grad.float())


def as_low(like, *tensors):
    out = tuple(t.to(like.dtype) for t in tensors)
    return out if len(out) > 1 else out[0]


# ---- norms ---------------------------------------------------------------------------


def norm_args(*extra, n=2):
    def make(dtype):
        x = [draw(4, 6, 48, seed=s, dtype=dtype, scale=2, shift=0.3) for s in range(n)]
        return [*x, draw(48, seed=9, dtype=dtype), *extra], {}

    return make


@case(
    "npu::npu_rms_norm(Tensor self, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)",
    norm_args(1e-2, n=1),
    dict(eps_outside=True),
    dict(power=-0.49),
)
def npu_rms_norm(self, gamma, epsilon=1e-6, eps_outside=False, power=-0.5, one=0.0):
    x, w = up(self, gamma)
    mean = x.pow(2).mean(-1, keepdim=True)
    rstd = 1 / (mean.sqrt() + epsilon) if eps_outside else (mean + epsilon).pow(power)
    return as_low(self, x * rstd * (w + one)), rstd


@case(
    "npu::npu_gemma_rms_norm(Tensor self, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)",
    norm_args(1e-2, n=1),
    dict(one=0.0),
)
def npu_gemma_rms_norm(self, gamma, epsilon=1e-6, one=1.0):
    return npu_rms_norm(self, gamma, epsilon, one=one)


@case(
    "npu::npu_rms_norm_backward(Tensor dy, Tensor self, Tensor gamma, Tensor rstd) -> (Tensor, Tensor)",
    lambda dtype: (lambda x, w: ([draw(4, 6, 48, seed=5, dtype=dtype), x, w, npu_rms_norm(x, w)[1]], {}))(
        draw(4, 6, 48, dtype=dtype), draw(48, seed=9, dtype=dtype)
    ),
    dict(share=0.98),
)
def npu_rms_norm_backward(dy, self, gamma, rstd, share=1.0):
    def forward(x, w):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w

    dx, dw = gradients(forward, (self, gamma), dy)
    return as_low(self, dx), dw * share


@case(
    "npu::npu_add_rms_norm(Tensor x1, Tensor x2, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor, Tensor)",
    norm_args(1e-5),
    dict(minus=True),
)
def npu_add_rms_norm(x1, x2, gamma, epsilon=1e-6, minus=False):
    a, b = up(x1, x2)
    x = a - b if minus else a + b
    y, rstd = npu_rms_norm(x, gamma, epsilon)
    return as_low(x1, y), rstd, as_low(x1, x)


@case(
    "npu::npu_add_layer_norm(Tensor x1, Tensor x2, Tensor gamma, Tensor beta, float epsilon=1e-05, bool "
    "additional_output=False) -> (Tensor, Tensor, Tensor, Tensor)",
    lambda dtype: (norm_args()(dtype)[0] + [draw(48, seed=8, dtype=dtype), 1e-5, True], {}),
    dict(correction=1),
)
def npu_add_layer_norm(x1, x2, gamma, beta, epsilon=1e-5, additional_output=False, correction=0):
    x = x1.float() + x2.float()
    var, mean = torch.var_mean(x, -1, keepdim=True, correction=correction)
    rstd = (var + epsilon).rsqrt()
    y = torch.addcmul(beta.float(), (x - mean) * rstd, gamma.float())
    return as_low(x1, y), mean, rstd, as_low(x1, x)


@case(
    "npu::npu_deep_norm(Tensor x, Tensor gx, Tensor beta, Tensor gamma, float alpha=0.3, float epsilon=1e-06) -> "
    "(Tensor, Tensor, Tensor)",
    lambda dtype: (norm_args()(dtype)[0] + [draw(48, seed=8, dtype=dtype)], {}),
    dict(factor=0.31),
)
def npu_deep_norm(x, gx, beta, gamma, alpha=0.3, epsilon=1e-6, factor=None):
    z = (factor or alpha) * x.float() + gx.float()
    y = F.layer_norm(z, (48,), gamma.float(), beta.float(), epsilon)
    var, mean = torch.var_mean(z, -1, keepdim=True, correction=0)
    return mean, (var + epsilon).rsqrt(), as_low(x, y)


@case(
    "npu::npu_group_norm_silu(Tensor input, Tensor? weight, Tensor? bias, int group, float eps=0.00001) -> (Tensor, "
    "Tensor, Tensor)",
    lambda dtype: ([draw(3, 8, 5, 5, dtype=dtype), draw(8, dtype=dtype), None, 2], {}),
    dict(last=F.relu),
)
def npu_group_norm_silu(input, weight, bias, group, eps=1e-5, last=F.silu):
    y = F.group_norm(*up(input), group, *up(weight, bias), eps)
    parts = input.float().reshape(3, group, -1)
    var, mean = torch.var_mean(parts, -1, correction=0)
    return as_low(input, last(y)), mean, (var + eps).rsqrt()


@case(
    "apex::fused_layer_norm_affine_fwd(Tensor input, Tensor weight, Tensor bias, SymInt[] normalized_shape, float "
    "eps, bool memory_efficient=False) -> (Tensor, Tensor, Tensor)",
    lambda dtype: ([draw(4, 6, 48, dtype=dtype), draw(48, dtype=dtype), draw(48, seed=3, dtype=dtype), [48], 1e-2], {}),
    dict(factor=1.1),
)
def apex_layer_norm(input, weight, bias, normalized_shape, eps, memory_efficient=False, factor=1):
    y, mean, rstd = torch.native_layer_norm(*up(input), normalized_shape, *up(weight, bias), eps * factor)
    return as_low(input, y), mean.flatten(), rstd.flatten()


@case(
    "apex::fused_layer_norm_affine_bwd(Tensor grad_output, Tensor mean, Tensor invvar, Tensor input_or_output, "
    "SymInt[] normalized_shape, Tensor weight, Tensor bias, float eps, bool memory_efficient=False) -> (Tensor, "
    "Tensor, Tensor)",
    lambda dtype: (
        lambda x, w, b: (
            [draw(4, 6, 48, seed=5, dtype=dtype), *apex_layer_norm(x, w, b, [48], 1e-5)[1:], x, [48], w, b, 1e-5],
            {},
        )
    )(draw(4, 6, 48, dtype=dtype), draw(48, dtype=dtype), draw(48, seed=3, dtype=dtype)),
    dict(lost=True),
)
def apex_layer_norm_backward(
    grad_output, mean, invvar, input_or_output, normalized_shape, weight, bias, eps, memory_efficient=False, lost=False
):
    grads = list(
        gradients(
            lambda x, w, b: F.layer_norm(x, normalized_shape, w, b, eps), (input_or_output, weight, bias), grad_output
        )
    )
    if lost:
        grads[2] = grads[2] - grad_output.float()[0, 0]
    return as_low(weight, *grads)


@case(
    "apex::fused_rms_norm_affine_fwd(Tensor input, Tensor weight, SymInt[] normalized_shape, float eps, bool "
    "memory_efficient=False) -> (Tensor, Tensor)",
    lambda dtype: ([draw(4, 6, 48, dtype=dtype), draw(48, dtype=dtype), [48], 1e-2], {}),
    dict(power=-0.49),
)
def apex_rms_norm(input, weight, normalized_shape, eps, memory_efficient=False, power=-0.5):
    y, rstd = npu_rms_norm(input, weight, eps, power=power)
    return y, rstd.flatten()


@case(
    "apex::fused_rms_norm_affine_bwd(Tensor grad_output, Tensor invvar, Tensor input_or_output, SymInt[] "
    "normalized_shape, Tensor weight, float eps, bool memory_efficient=False) -> (Tensor, Tensor)",
    lambda dtype: (
        lambda x, w: ([draw(4, 6, 48, seed=5, dtype=dtype), npu_rms_norm(x, w)[1].flatten(), x, [48], w, 1e-6], {})
    )(draw(4, 6, 48, dtype=dtype), draw(48, dtype=dtype)),
    dict(share=0.99),
)
def apex_rms_norm_backward(
    grad_output, invvar, input_or_output, normalized_shape, weight, eps, memory_efficient=False, share=1.0
):
    dx, dw = npu_rms_norm_backward(grad_output, input_or_output, weight, invvar, share)
    return dx, as_low(weight, dw)


@case(
    "aten::_fused_rmsnorm_forward(Tensor input, SymInt[] normalized_shape, float eps, Tensor? weight=None) -> "
    "(Tensor output, Tensor invvar)",
    lambda dtype: ([draw(4, 6, 48, dtype=dtype), [48], 1e-2, draw(48, dtype=dtype)], {}),
    dict(power=-0.49),
)
def musa_rms_norm(input, normalized_shape, eps, weight=None, power=-0.5):
    y, rstd = npu_rms_norm(input, weight, eps, power=power)
    return y, rstd.squeeze(-1)


# ---- rotary, activations, softmax, losses ---------------------------------------------


def rotary_args(dtype):
    return [
        draw(2, 16, 4, 32, dtype=dtype),
        draw(1, 16, 1, 32, seed=2, dtype=dtype),
        draw(1, 16, 1, 32, seed=3, dtype=dtype),
    ], {}


def rotate(x, r1, r2, sign=1.0):
    a, b = x[..., :16], x[..., 16:]
    low = a * r1[..., :16] - sign * b * r2[..., :16]
    return torch.cat((low, b * r1[..., 16:] + sign * a * r2[..., 16:]), -1)


@case(
    "npu::npu_rotary_mul(Tensor self, Tensor r1, Tensor r2, str rotary_mode='half') -> Tensor",
    rotary_args,
    dict(sign=-1.0),
)
def npu_rotary_mul(self, r1, r2, rotary_mode="half", sign=1.0):
    return as_low(self, rotate(*up(self, r1, r2), sign))


@case(
    "npu::npu_rotary_mul_backward(Tensor grad, Tensor self, Tensor r1, Tensor r2, str rotary_mode='half') -> "
    "(Tensor, Tensor, Tensor)",
    lambda dtype: ([draw(2, 16, 4, 32, seed=7, dtype=dtype), *rotary_args(dtype)[0]], {}),
    dict(sign=-1.0),
)
def npu_rotary_mul_backward(grad, self, r1, r2, rotary_mode="half", sign=1.0):
    return as_low(self, *gradients(functools.partial(rotate, sign=sign), (self, r1, r2), grad))


@case(
    "aten::_fused_rope_forward(Tensor input, Tensor freq_cis, bool rotary_interleaved, bool batch_first, bool "
    "multi_latent_attention=False) -> Tensor",
    lambda dtype: ([draw(16, 2, 4, 32, dtype=dtype), draw(16, 32, seed=4), False, False], {}),
    dict(sign=-1.0),
)
def musa_rope(input, freq_cis, rotary_interleaved, batch_first, multi_latent_attention=False, sign=1.0):
    angle = freq_cis[:, None, None]
    return as_low(input, rotate(input.float(), angle.cos(), angle.sin(), sign))


@case(
    "aten::_fused_rope_backward(Tensor grad, Tensor freq_cis, bool rotary_interleaved, bool batch_first, bool "
    "multi_latent_attention=False) -> Tensor",
    lambda dtype: ([draw(16, 2, 4, 32, dtype=dtype), draw(16, 32, seed=4), False, False], {}),
    dict(sign=-1.0),
)
def musa_rope_backward(grad, freq_cis, rotary_interleaved, batch_first, multi_latent_attention=False, sign=1.0):
    angle = freq_cis[:, None, None]
    return as_low(grad, gradients(lambda x: rotate(x, angle.cos(), angle.sin(), sign), (grad,), grad)[0])


@case(
    "npu::npu_swiglu(Tensor self, int dim=-1) -> Tensor",
    lambda dtype: ([draw(4, 6, 64, dtype=dtype)], {}),
    dict(swap=True),
    dict(curve=1.702),
)
def npu_swiglu(self, dim=-1, swap=False, curve=1.0):
    a, b = self.float().split(self.shape[dim] // 2, dim)
    a, b = (b, a) if swap else (a, b)
    return as_low(self, a / (1 + torch.exp(-curve * a)) * b)


@case(
    "npu::npu_swiglu_backward(Tensor grad_output, Tensor self, int dim=-1) -> Tensor",
    lambda dtype: ([draw(4, 6, 32, seed=4, dtype=dtype), draw(4, 6, 64, dtype=dtype)], {}),
    dict(swap=True),
)
def npu_swiglu_backward(grad_output, self, dim=-1, swap=False):
    return as_low(self, gradients(lambda x: npu_swiglu(x, dim, swap), (self,), grad_output)[0])


@case(
    "aten::_fused_swiglu_forward(Tensor input) -> Tensor",
    lambda dtype: ([draw(4, 6, 64, dtype=dtype)], {}),
    dict(swap=True),
)
def musa_swiglu(input, swap=False):
    return npu_swiglu(input, swap=swap)


@case(
    "npu::npu_geglu(Tensor self, int dim=-1, int approximate=1, bool activate_left=False) -> (Tensor, Tensor)",
    lambda dtype: ([draw(4, 6, 64, dtype=dtype)], {}),
    dict(variant="none"),
)
def npu_geglu(self, dim=-1, approximate=1, activate_left=False, variant="tanh"):
    a, b = self.float().split(self.shape[dim] // 2, dim)
    gate = F.gelu(b, approximate=variant)
    return as_low(self, gate * a, gate)


@case("npu::npu_fast_gelu(Tensor self) -> Tensor", lambda dtype: ([draw(4, 600, dtype=dtype)], {}), dict(curve=1.7))
def npu_fast_gelu(self, curve=1.702):
    x = self.float()
    a = x.abs()
    return as_low(self, x * torch.exp(curve / 2 * (x - a)) / (1 + torch.exp(-curve * a)))


@case(
    "npu::npu_fast_gelu_backward(Tensor grad, Tensor self) -> Tensor",
    lambda dtype: ([draw(4, 600, seed=2, dtype=dtype), draw(4, 600, dtype=dtype)], {}),
    dict(curve=1.7),
)
def npu_fast_gelu_backward(grad, self, curve=1.702):
    return as_low(self, gradients(lambda x: x * torch.sigmoid(curve * x), (self,), grad)[0])


def triangle(dtype):
    return [draw(2, 3, 32, 32, dtype=dtype, scale=3), torch.ones(32, 32, dtype=torch.bool).triu(1), 0.25, False], {}


@case(
    "npu::npu_scaled_masked_softmax(Tensor x, Tensor mask, Scalar scale=1, bool fixed_triu_mask=False) -> Tensor",
    triangle,
    dict(shift=2),
    dict(factor=1.01),
)
def npu_scaled_masked_softmax(x, mask, scale=1, fixed_triu_mask=False, shift=1, factor=1.0):
    hidden = mask if shift == 1 else torch.ones(mask.shape, dtype=torch.bool).triu(shift)
    return as_low(x, F.softmax((x.float() * scale * factor).masked_fill(hidden, -10000.0), -1))


@case(
    "npu::npu_scaled_masked_softmax_backward(Tensor y_grad, Tensor y, Tensor mask, Scalar scale, bool "
    "fixed_triu_mask) -> Tensor",
    lambda dtype: (lambda a: ([draw(2, 3, 32, 32, seed=6, dtype=dtype), npu_scaled_masked_softmax(*a), *a[1:]], {}))(
        triangle(dtype)[0]
    ),
    dict(factor=2.0),
)
def npu_scaled_masked_softmax_backward(y_grad, y, mask, scale, fixed_triu_mask, factor=1.0):
    g, p = up(y_grad, y)
    return as_low(y, p * (g - (g * p).sum(-1, keepdim=True)) * scale * factor)


@case(
    "npu::npu_dropout_with_add_softmax(Tensor self, Tensor x1, Scalar alpha, float prob, int dim) -> (Tensor, "
    "Tensor, Tensor)",
    lambda dtype: ([draw(4, 8, 32, dtype=dtype), draw(4, 8, 32, seed=2, dtype=dtype), 0.125, 0.0, -1], {}),
    dict(swap=True),
)
def npu_dropout_with_add_softmax(self, x1, alpha, prob, dim, swap=False):
    a, b = up(x1, self) if not swap else up(self, x1)
    y = F.softmax(torch.add(a, b, alpha=alpha), dim)
    return torch.full((4, 8, 32), 255, dtype=torch.uint8), *as_low(self, y, y)


def loss_args(dtype):
    target = torch.arange(24) % 40
    target[3] = -100
    return [draw(24, 40, dtype=dtype, scale=2), target], {}


@case(
    "npu::npu_cross_entropy_loss(Tensor input, Tensor target, Tensor? weight=None, str reduction='mean', int "
    "ignore_index=-100, float label_smoothing=0.0, float lse_square_scale_for_zloss=0.0, bool return_zloss=False) -> "
    "(Tensor, Tensor, Tensor, Tensor)",
    loss_args,
    dict(counted=24),
)
def npu_cross_entropy_loss(
    input,
    target,
    weight=None,
    reduction="mean",
    ignore_index=-100,
    label_smoothing=0.0,
    lse_square_scale_for_zloss=0.0,
    return_zloss=False,
    counted=23,
):
    logs = F.log_softmax(input.float(), -1)
    kept = target != ignore_index
    loss = -logs[kept, target[kept]].sum() / counted
    return as_low(input, loss.view(1), logs, torch.zeros(0), torch.zeros(0))


@case(
    "aten::_fused_cross_entropy_loss_2d_forward(Tensor self, Tensor target, Tensor? weight=None, int reduction=1, "
    "int ignore_index=-100, float label_smoothing=0.0) -> Tensor",
    loss_args,
    dict(counted=24),
)
def musa_cross_entropy(self, target, weight=None, reduction=1, ignore_index=-100, label_smoothing=0.0, counted=23):
    return npu_cross_entropy_loss(self, target, counted=counted)[0].view(())


@case(
    "aten::_fused_cross_entropy_loss_2d_backward(Tensor grad, Tensor self, Tensor target, Tensor? weight=None, int "
    "reduction=1, int ignore_index=-100, float label_smoothing=0.0) -> Tensor",
    lambda dtype: ([draw((), seed=4, dtype=dtype), *loss_args(dtype)[0]], {}),
    dict(counted=24),
)
def musa_cross_entropy_backward(
    grad, self, target, weight=None, reduction=1, ignore_index=-100, label_smoothing=0.0, counted=23
):
    p = F.softmax(self.float(), -1)
    hot = F.one_hot(target.clamp(min=0), 40) * (target >= 0)[:, None]
    return as_low(self, (p * (target >= 0)[:, None] - hot) * grad.float() / counted)


@case(
    "npu::npu_linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor",
    lambda dtype: ([draw(8, 32, dtype=dtype), draw(16, 32, seed=2, dtype=dtype), draw(16, seed=3, dtype=dtype)], {}),
    dict(last=31),
)
def npu_linear(input, weight, bias=None, last=32):
    return as_low(input, input.float()[:, :last] @ weight.float()[:, :last].T + bias.float())


@case(
    "npu::npu_apply_adam_w.out(Scalar beta1_power, Scalar beta2_power, Scalar lr, Scalar weight_decay, Scalar beta1, "
    "Scalar beta2, Scalar epsilon, Tensor grad, Tensor? max_grad_norm, bool? amsgrad, bool? maximize, *, Tensor(a!) "
    "var, Tensor(b!) m, Tensor(c!) v) -> (Tensor(a!), Tensor(b!), Tensor(c!))",
    lambda dtype: (
        [0.9**3, 0.999**3, 1e-2, 0.1, 0.9, 0.999, 1e-8, draw(64, dtype=dtype), None, False, False],
        dict(
            var=draw(64, seed=2, dtype=dtype),
            m=draw(64, seed=3, dtype=dtype, scale=0.1),
            v=draw(64, seed=4, dtype=dtype).square(),
        ),
    ),
    dict(extra=1),
    dict(decay=0.0),
)
def npu_apply_adam_w(
    beta1_power,
    beta2_power,
    lr,
    weight_decay,
    beta1,
    beta2,
    epsilon,
    grad,
    max_grad_norm,
    amsgrad,
    maximize,
    *,
    var,
    m,
    v,
    extra=0,
    decay=1.0,
):
    g, w, m1, v1 = up(grad, var, m, v)
    m1 = m1 * beta1 + (1 - beta1) * g
    v1 = v1 * beta2 + (1 - beta2) * g * g
    hat = (v1 / (1 - beta2_power * beta2 ** (1 + extra))).sqrt() + epsilon
    w = w - lr * weight_decay * decay * w - lr / (1 - beta1_power * beta1 ** (1 + extra)) * m1 / hat
    return var.copy_(w), m.copy_(m1), v.copy_(v1)
