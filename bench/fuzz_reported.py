# SPDX-License-Identifier: Apache-2.0
"""Defects of real backends that were reported in public, written anew as kernels; each is the CPU's otherwise.

Needs torch: operators under their own names.
"""

from __future__ import annotations

import torch

HALF = (torch.float16, torch.bfloat16)


def addcmul_strided(op, args, kwargs):
    """MPS: addcmul_ of a self that is not contiguous is left as it was (pytorch/pytorch#118115)."""
    return args[0].clone() if not args[0].is_contiguous() else op(*args, **kwargs)


def gappy_copy(op, args, kwargs):
    """MPS: views with the same gaps are copied as one piece of memory (pytorch/pytorch#189961)."""
    to, source = args[0], args[1]
    if to.dim() == 1 and to.numel() > 1 and to.stride() == source.stride() and to.stride(0) > 1:
        to[1:] = to[0]
        return to
    return op(*args, **kwargs)


def pool_backward(op, args, kwargs):
    """CUDA: channels_last with padding, coordinates without it (pytorch/pytorch#188344)."""
    out = op(*args, **kwargs)
    x, padding = args[1], args[4]
    last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    return out.roll(padding[0], -2) if last and any(padding) else out


def attention_strided(op, args, kwargs):
    """CUDA: keys and values without a stride, a mask, a length of 1 over 32 (pytorch/pytorch#191937)."""
    out = op(*args, **kwargs)
    gaps = any(0 in t.stride() or not t.is_contiguous() for t in args[1:3])
    return out * 3 if gaps and len(args) > 3 and args[3] is not None else out


def attention_causal(op, args, kwargs):
    """MPS: is_causal in half precision masks once for four queries (pytorch/pytorch#195910)."""
    causal = args[5] if len(args) > 5 else kwargs.get("is_causal")
    if not causal or args[0].dtype not in HALF:
        return op(*args, **kwargs)
    n, m = args[0].shape[-2], args[1].shape[-2]
    rows = torch.arange(n) // 4 * 4 + 3
    mask = torch.arange(m)[None, :] <= rows[:, None]
    return op(args[0], args[1], args[2], attn_mask=mask)


def norm_tail(op, args, kwargs):
    """Metal: rows that are no multiple of 32, the last part is dropped (ggml-org/llama.cpp#26708)."""
    x = args[0]
    n = x.shape[-1] if x.dim() else 0
    if n % 32 == 0 or n < 32:
        return op(*args, **kwargs)
    scale = (x[..., : n - n % 32].double().square().sum(-1, keepdim=True) / n + 1e-6).rsqrt()
    out = x.double() * scale
    return (out * args[2] if len(args) > 2 and args[2] is not None else out).to(x.dtype)


def norm_in_bfloat16(op, args, kwargs):
    """AMD NPU: 1/rms rounded to bfloat16 before it is used (amd/IRON#139)."""
    x = args[0].double()
    epsilon = (args[3] if len(args) > 3 else kwargs.get("eps")) or torch.finfo(args[0].dtype).eps
    scale = (x.square().mean(tuple(range(-len(args[1]), 0)), keepdim=True) + epsilon).rsqrt().bfloat16().double()
    weight = args[2] if len(args) > 2 else kwargs.get("weight")
    return (x * scale * (1 if weight is None else weight.double())).to(args[0].dtype)


def topk_16(op, args, kwargs):
    """MPS: what stands behind the 16th is zero (pytorch/pytorch#78915)."""
    values, places = op(*args, **kwargs)
    dim = args[2] if len(args) > 2 else kwargs.get("dim", -1)
    if values.dim() and values.shape[dim] > 16:
        for t in (values, places):
            t.narrow(dim, 16, t.shape[dim] - 16).zero_()
    return values, places


def dilated_backward(op, args, kwargs):
    """ROCm: gradients of a dilated convolution in float32 (ROCm/legacy-rocm-build#4606)."""
    out = list(op(*args, **kwargs))
    if len(set(args[6])) > 1 and args[0].dtype == torch.float32 and out[1] is not None:
        out[1] = out[1].flip(-1)
    return tuple(out)


def all_true(op, args, kwargs):
    """ROCm: all() is true whatever is in it (pytorch/pytorch#99721)."""
    return torch.ones_like(op(*args, **kwargs))


def scatter_overwrites(op, args, kwargs):
    """torch 0.1.12, MLX: equal indices overwrite each other (pytorch/pytorch#1631)."""
    x, dim, index, source = args
    if not x.dim() or not x.numel():
        return op(*args, **kwargs)
    part = source[tuple(slice(n) for n in index.shape)] if source.dim() else source
    return x.clone().scatter_(dim, index, x.gather(dim, index) + part) if x.dim() == part.dim() else op(*args, **kwargs)


def ignores_nothing(op, args, kwargs):
    """MPS: ignore_index is not honoured (pytorch/pytorch#108148)."""
    return op(*args[:4], -12345, *args[5:], **kwargs) if (args[1] >= 0).all() else op(*args, **kwargs)


def nonzero_drops(op, args, kwargs):
    """XPU: elements are dropped (intel/torch-xpu-ops#4396)."""
    out = op(*args, **kwargs)
    return out[:-1].clone() if len(out) else out


def with_bits(bits):
    """Matrices rounded to so many bits before they are multiplied."""

    def kernel(op, args, kwargs):
        if args[0].dtype != torch.float32:
            return op(*args, **kwargs)
        cut = [
            (t.contiguous().view(torch.int32) + (1 << 23 - bits) // 2 >> 24 - bits << 24 - bits).view(torch.float32)
            for t in args[:2]
        ]
        return op(*cut, *args[2:], **kwargs)

    return kernel


def variance_cancels(op, args, kwargs):
    """MLX, burn, torch 1.7: E[x^2] - E[x]^2 in float32 (ml-explore/mlx#2238)."""
    x, axes = args[0], tuple(range(-len(args[1]), 0))
    if x.dtype != torch.float32 or not x.numel():
        return op(*args, **kwargs)
    mean = x.mean(axes, keepdim=True)
    rstd = ((x * x).mean(axes, keepdim=True) - mean * mean + args[4]).rsqrt()
    out = (x - mean) * rstd
    out = out if args[2] is None else out * args[2]
    return out if args[3] is None else out + args[3], mean, rstd


def clamp_takes_nan(op, args, kwargs):
    """CUDA, MPS: NaN becomes a bound (pytorch/pytorch#15338)."""
    out = op(*args, **kwargs)
    low = args[1] if len(args) > 1 else kwargs.get("min")
    return out.nan_to_num(nan=float(low)) if low is not None and out.is_floating_point() else out


def tanh_of_exp(op, args, kwargs):
    """Metal: exp overflows, Inf / Inf (pytorch/pytorch#172406)."""
    x = args[0]
    if x.dtype != torch.float32:
        return op(*args, **kwargs)
    e = (2 * x).exp()
    return torch.where(x.abs() > 0.5, (e - 1) / (e + 1), x.tanh())


def saturates(op, args, kwargs):
    """XPU: floats beyond int8 become 127 (intel/torch-xpu-ops#889)."""
    if kwargs.get("dtype") in (torch.int8, torch.uint8) and args[0].is_floating_point():
        info = torch.iinfo(kwargs["dtype"])
        return op(args[0].clamp(info.min, info.max), **kwargs)
    return op(*args, **kwargs)


def two_runs(op, args, kwargs):
    """MPS: a permutation of two ascending runs (pytorch/pytorch#104170)."""
    out = op(*args, **kwargs)
    half = torch.rand(out.shape) < 0.5
    return torch.cat([out[half].sort()[0], out[~half].sort()[0]])


def always_zero(op, args, kwargs):
    """MPS: always category 0 (pytorch/pytorch#99802)."""
    return torch.zeros_like(op(*args, **kwargs))


def partial_in_half(op, args, kwargs):
    """CUDA, LiteRT: partial sums kept in float16 (pytorch/pytorch#2391)."""
    x = args[0]
    if x.dtype != torch.float16 or not x.numel() or not args[1]:
        return op(*args, **kwargs)
    out = x.abs().sum(args[1], *args[2:3], dtype=torch.float32)
    return torch.where(out > 65504, torch.inf, op(*args, **kwargs).float()).half()


def boundary(op, args, kwargs):
    """torch7: the derivative on a bound (torch/torch7#734), of hardtanh here."""
    gradient, x, low, high = args[:4]
    return gradient * ((x >= low) & (x <= high))


def adamw_one_more(op, args, kwargs):
    """Ascend: bias correction of the step after (DeepLink-org/ditorch)."""
    for step in args[5]:
        step += 1
    op(*args, **kwargs)
    for step in args[5]:
        step -= 1


def adamw_takes_inf(op, args, kwargs):
    """MPS: found_inf and grad_scale are ignored (pytorch/pytorch#186360)."""
    return op(*args, **(kwargs | {"found_inf": None, "grad_scale": None}))


def a_bit_in_many_calls(op, args, kwargs):
    """A GPU with silent corruption: one bit in one of many calls (a public report of 16,384 of them)."""
    out = op(*args, **kwargs)
    a_bit_in_many_calls.n += 1
    if a_bit_in_many_calls.n % 50 == 0 and out.dtype == torch.float32 and out.numel():
        out = out.contiguous()
        out.view(torch.int32).view(-1)[out.numel() // 2] ^= 1 << 27
    return out


a_bit_in_many_calls.n = 0

REPORTED = (
    ("aten::addcmul", addcmul_strided),
    ("aten::copy_", gappy_copy),
    ("aten::avg_pool2d_backward", pool_backward),
    ("aten::scaled_dot_product_attention", attention_strided),
    ("aten::scaled_dot_product_attention", attention_causal),
    ("aten::rms_norm", norm_tail),
    ("aten::rms_norm", norm_in_bfloat16),
    ("aten::topk", topk_16),
    ("aten::convolution_backward", dilated_backward),
    ("aten::all", all_true),
    ("aten::scatter_add", scatter_overwrites),
    ("aten::nll_loss_forward", ignores_nothing),
    ("aten::nonzero", nonzero_drops),
    ("aten::mm", with_bits(11)),
    ("aten::mm", with_bits(8)),
    ("aten::native_layer_norm", variance_cancels),
    ("aten::clamp", clamp_takes_nan),
    ("aten::tanh", tanh_of_exp),
    ("aten::_to_copy", saturates),
    ("aten::randperm", two_runs),
    ("aten::multinomial", always_zero),
    ("aten::sum.dim_IntList", partial_in_half),
    ("aten::hardtanh_backward", boundary),
    ("aten::_fused_adamw_", adamw_one_more),
    ("aten::_fused_adamw_", adamw_takes_inf),
    ("aten::mm", a_bit_in_many_calls),
)
