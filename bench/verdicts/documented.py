# SPDX-License-Identifier: Apache-2.0
"""Documented bugs of real backends that one isolated call can show, each with its control:
the same call computed rightly. docs/background/benchmark.md lists those that no single call shows."""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F

aten = torch.ops.aten
BUGS = {}


@dataclass
class Shown:
    """One call: what a right device gives and leaves in its arguments, and what the bug
    made of it. `good` and `bad` are outputs; `left_*` the positional arguments afterwards."""

    fn: object
    args: tuple
    good: object = None
    bad: object = None
    left_good: tuple = None
    left_bad: tuple = None
    kwargs: dict = field(default_factory=dict)


def bug(name, cause):
    """Registers the maker of one bug. `cause`: words of which a right cause has one."""

    def register(make):
        BUGS[name] = (make, cause)
        return make

    return register


def randn(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(dtype)


# ---- strides and aliasing ------------------------------------------------------------------


@bug("mps_addcmul_noncontiguous", "lost|unchanged|not written")
def addcmul_lost():
    p, a, b = randn(20, 30).t(), randn(30, 20), randn(30, 20)
    good = p.clone().addcmul_(a, b)
    return Shown(aten.addcmul_, (p, a, b), good, p.clone(), (good, a, b), (p, a, b))


@bug("mps_matmul_out_slice", "lost|unchanged|not written")
def matmul_out_slice():
    whole = torch.zeros(32, 64)
    out, a, b = whole[:, 16:48], randn(32, 40), randn(40, 32)

    def fn(out, a, b):
        return torch.mm(a, b, out=out)

    good = torch.zeros(32, 64)[:, 16:48]
    good.copy_(a @ b)
    return Shown(fn, (out, a, b), good, out, (good, a, b), (out, a, b))


@bug("mps_copy_gappy_views", "stride|outside|between|not written|layout")
def copy_gappy():
    source, target = randn(128), torch.zeros(128)

    def after(how):
        t = target.clone()
        how(t)
        return t[::2], source[::2]

    def raw(t):  # 64 elements copied as one block
        t[:64] = source[:64]

    good, bad = after(lambda t: t[::2].copy_(source[::2])), after(raw)
    return Shown(aten.copy_, (target[::2], source[::2]), good[0], bad[0], good, bad)


@bug("cuda_avgpool_backward_channels_last", "shift|padding|border|stride|moved")
def avgpool_channels_last():
    x = randn(2, 4, 10, 10).contiguous(memory_format=torch.channels_last)
    g = randn(2, 4, 6, 6).contiguous(memory_format=torch.channels_last)

    def fn(g, x):
        return aten.avg_pool2d_backward(g, x, [2, 2], [2, 2], [1, 1], False, True, None)

    wide = aten.avg_pool2d_backward(g, F.pad(x, (1, 1, 1, 1)), [2, 2], [2, 2], [0, 0], False, True, None)
    return Shown(fn, (g, x), fn(g, x), wide[..., :10, :10].contiguous())


def as_if_contiguous(t):
    """What a kernel reads that takes a view for a contiguous tensor."""
    flat = torch.empty(0, dtype=t.dtype).set_(t.untyped_storage())
    n = t.numel()
    return flat.repeat(-(-n // flat.numel()))[:n].view(t.shape)


@bug("sdpa_efficient_stride0_kv", "stride|layout|contiguous|repeat|index")
def sdpa_stride0():
    q = randn(2, 4, 33, 16)
    k, v = (randn(2, 1, 33, 16).expand(2, 4, 33, 16) for _ in range(2))
    fn = F.scaled_dot_product_attention
    return Shown(fn, (q, k, v), fn(q, k, v), fn(q, as_if_contiguous(k), as_if_contiguous(v)))


@bug("spyre_sdpa_views", "stride|layout|contiguous|transpos|permut")
def sdpa_views():
    q, k, v = (randn(1, 24, 2, 16, dtype=torch.float16).transpose(1, 2) for _ in range(3))
    fn = F.scaled_dot_product_attention
    bad = fn(*(as_if_contiguous(t).float() for t in (q, k, v))).half()
    return Shown(fn, (q, k, v), fn(q.float(), k.float(), v.float()).half(), bad)


# ---- tails and sizes ---------------------------------------------------------------------------


@bug("metal_rms_norm_partial_simdgroup", "dropp|missing|summand|contribution|last|multipl|factor")
def rms_norm_33():
    x = randn(16, 33)
    square = (x[:, :32] ** 2).sum(-1, keepdim=True) / 33
    return Shown(F.rms_norm, (x, (33,), None, 1e-6), F.rms_norm(x, (33,), None, 1e-6), x * torch.rsqrt(square + 1e-6))


@bug("mps_topk_over_16", "zero|last|tail|not written")
def topk_over_16():
    x = randn(4, 100)
    good = torch.topk(x, 20)
    values, indices = (t.clone() for t in good)
    values[:, 16:], indices[:, 16:] = 0, 0
    return Shown(torch.topk, (x, 20), tuple(good), (values, indices))


@bug("mps_argsort_large", "order|sort|index|indices")
def argsort_unsorted():
    x = randn(3, 4097)
    good = torch.argsort(x, 1)
    bad = good.clone()
    bad[:, 4000:] = bad[:, 4000:].flip(1)
    return Shown(torch.argsort, (x, 1), good, bad)


@bug("miopen_conv_backward_dilation", "dilat|stride")
def conv_backward_dilation():
    x, w, g = randn(2, 3, 9, 9), randn(4, 3, 2, 2), randn(2, 4, 7, 8)

    def fn(x, w, g, dilation=(2, 1)):
        return torch.nn.grad.conv2d_weight(x, w.shape, g, dilation=dilation)

    bad = torch.nn.grad.conv2d_weight(x, w.shape, F.pad(g, (0, 0, 0, 1))[..., :7, :8], dilation=(2, 1))
    bad = bad.flip(-2)
    return Shown(fn, (x, w, g), fn(x, w, g), bad)


# ---- indices --------------------------------------------------------------------------------------


@bug("mps_sdpa_causal_leak", "mask|causal|shift")
def causal_leak():
    q, k, v = (randn(2, 2, 32, 16, dtype=torch.bfloat16) for _ in range(3))

    def fn(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    group = torch.arange(32) // 4 * 4 + 3
    mask = torch.arange(32) <= group[:, None]
    wide = [t.float() for t in (q, k, v)]
    bad = F.scaled_dot_product_attention(*wide, attn_mask=mask).bfloat16()
    return Shown(fn, (q, k, v), fn(*wide).bfloat16(), bad)


@bug("rocm_all_always_true", "always|constant|true")
def all_true():
    x = torch.rand(40, 10) < 0.9
    return Shown(torch.all, (x, 1), x.all(1), torch.ones(40, dtype=torch.bool))


@bug("gather_backward_duplicates", "duplicat|overwr|dropp|missing|contribution")
def scatter_duplicates():
    x, i, g = torch.zeros(10), torch.randint(0, 10, (40,)), randn(40)
    bad = x.clone()
    for at, value in zip(i.tolist(), g):
        bad[at] = value
    return Shown(aten.scatter_add, (x, 0, i, g), x.scatter_add(0, i, g), bad)


@bug("mps_cross_entropy_ignore_index", "ignore|mask|factor|multipl|count")
def ignore_index():
    x, t = randn(30, 12), torch.randint(0, 12, (30,))
    return Shown(
        F.cross_entropy,
        (x, t),
        F.cross_entropy(x, t, ignore_index=3),
        F.cross_entropy(x, t),
        kwargs={"ignore_index": 3},
    )


@bug("xpu_nonzero_truncated", "shape|count|elements|truncat|missing|size")
def nonzero_truncated():
    m = torch.rand(50) < 0.5
    good = m.nonzero()
    return Shown(torch.nonzero, (m,), good, good[:-3])


# ---- precision -----------------------------------------------------------------------------------


@bug("tf32_matmul", "tf32")
def tf32_matmul():
    a, b = randn(40, 64), randn(64, 30)
    return Shown(torch.mm, (a, b), a @ b, chopped(a) @ chopped(b))


def chopped(t):
    """Rounded to 11 significant bits."""
    bits = t.view(torch.int32) + 0x1000
    return (bits & ~0x1FFF).view(torch.float32)


@bug("layer_norm_cancellation", "cancel|e\\[x|one pass|square|unstable")
def layer_norm_cancellation():
    x = 1449.5 + 0.5 * randn(16, 256)
    mean, square = x.mean(-1, keepdim=True), (x * x).mean(-1, keepdim=True)
    bad = (x - mean) * torch.rsqrt((square - mean * mean).clamp(min=0) + 1e-5)
    return Shown(F.layer_norm, (x, (256,)), F.layer_norm(x, (256,)), bad)


@bug("npu_rms_norm_bf16_scale", "bfloat16")
def rms_norm_bf16_scale():
    x = randn(16, 256, dtype=torch.bfloat16)
    w = randn(256, dtype=torch.bfloat16)
    r = torch.rsqrt((x.float() ** 2).mean(-1, keepdim=True) + 1e-6)
    good, bad = x.float() * r * w.float(), x.float() * r.bfloat16().float() * w.float()
    return Shown(F.rms_norm, (x, (256,), w, 1e-6), good.bfloat16(), bad.bfloat16())


@bug("rope_half_precision", "float16")
def rope_half():
    position = torch.arange(1000, 1100)[:, None]
    frequency = 10000.0 ** (-torch.arange(16).double() / 16)

    def fn(position, frequency):
        return torch.cos(position * frequency)

    f = frequency.float()
    return Shown(fn, (position, f), fn(position, f.double()).float(), fn(position, f.half().float()))


@bug("tpu_neuron_fp32_as_bf16", "bfloat16")
def conv_as_bf16():
    x, w = randn(2, 6, 12, 12), randn(8, 6, 3, 3)
    return Shown(F.conv2d, (x, w), F.conv2d(x, w), F.conv2d(x.bfloat16().float(), w.bfloat16().float()))


# ---- special values and overflow --------------------------------------------------------------------


@bug("clamp_swallows_nan", "nan")
def clamp_nan():
    x = randn(50)
    x[[3, 20]] = float("nan")
    good = x.clamp(-1, 1)
    return Shown(torch.clamp, (x, -1, 1), good, good.nan_to_num(nan=-1.0))


@bug("metal_tanh_nan", "nan")
def tanh_nan():
    x = 30 * randn(200)
    good = torch.tanh(x)
    return Shown(torch.tanh, (x,), good, torch.where(x > 44, torch.nan, good))


@bug("norm_overflow_both_sides", "overflow|inf|nan|zero")
def norm_overflow():
    x = 1e30 * randn(8, 64)
    good = F.layer_norm(x.double(), (64,)).float()
    return Shown(F.layer_norm, (x, (64,)), good, torch.full_like(x, float("nan")))


@bug("half_sum_dim_overflow", "float16|overflow|inf")
def half_sum():
    x = torch.full((4, 64), 3000.0, dtype=torch.float16)
    x[:, 32:] = -3000.0
    good, largest = x.double().sum(1).half(), x.double().cumsum(1).abs().amax(1)
    return Shown(torch.sum, (x, 1), good, torch.where(largest > 65504, torch.inf, good))


@bug("litert_sum_fp16", "float16|overflow|inf")
def litert_sum():
    x = 3000 + randn(16, 100)
    good = x.sum(1)
    return Shown(torch.sum, (x, 1), good, torch.where(good > 65504, torch.inf, good))


# ---- optimizers and gradients -------------------------------------------------------------------------


def adam_state():
    return randn(200), randn(200), 0.1 * randn(200), 0.01 * torch.rand(200)


def adam_fn(step, decay, found=None):
    def fn(p, g, m, v):
        more = {"found_inf": found} if found is not None else {}
        aten._fused_adamw_(
            [p],
            [g],
            [m],
            [v],
            [],
            [torch.tensor(step)],
            lr=1e-3,
            beta1=0.9,
            beta2=0.999,
            weight_decay=decay,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
            **more,
        )

    return fn


def left(fn, args):
    args = tuple(a.clone() for a in args)
    fn(*args)
    return args


@bug("ascend_adamw_step_plus_one", "step|correction|multipl|factor")
def adamw_step():
    args = adam_state()
    fn = adam_fn(1.0, 0.01)
    return Shown(fn, args, None, None, left(fn, args), left(adam_fn(2.0, 0.01), args))


@bug("mps_adam_ignores_found_inf", "found_inf|skip|must not|unchanged")
def adam_found_inf():
    args = adam_state()
    fn = adam_fn(3.0, 0.0, torch.tensor(1.0))
    return Shown(fn, args, None, None, args, left(adam_fn(3.0, 0.0), args))


@bug("mlx_adamw_no_bias_correction", "correction|multipl|factor")
def adamw_uncorrected():
    args = adam_state()
    fn = adam_fn(2.0, 0.01)
    return Shown(fn, args, None, None, left(fn, args), left(adam_fn(1e9, 0.01), args))


@bug("inductor_slice_scatter_grad", "zero|missing|dropp")
def slice_scatter_grad():
    x, y = randn(8, 8), randn(4, 8)

    def fn(x, y):
        x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
        with torch.enable_grad():
            out = torch.slice_scatter(x, y, 0, 2, 6).sum()
            return torch.autograd.grad(out, (x, y))

    good = fn(x, y)
    return Shown(fn, (x, y), good, (torch.zeros(8, 8), good[1]))


@bug("clamp_boundary_gradient", "bound|tie|convention|zero|dropp|missing")
def clamp_boundary():
    x, g = torch.relu(randn(60)), randn(60)

    def fn(x, g):
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            return torch.autograd.grad(x.clamp(0, 1), x, g)[0]

    good = fn(x, g)
    return Shown(fn, (x, g), good, torch.where(x == 0, 0, good))


# ---- random numbers and collectives ----------------------------------------------------------------------


@bug("mps_randperm_two_runs", "order|runs|random|permut|increasing|descent|independ")
def randperm_runs():
    key = torch.randint(0, 2, (2000,))
    return Shown(torch.randperm, (2000,), torch.randperm(2000), torch.argsort(key, stable=True))


@bug("mps_multinomial_always_zero", "probab|weight|constant|always|distribution|support")
def multinomial_zero():
    p = torch.tensor([0.0, 0.3, 0.7])
    return Shown(
        torch.multinomial, (p, 500, True), torch.multinomial(p, 500, True), torch.zeros(500, dtype=torch.int64)
    )


@bug("nccl_one_rank_avg_tail", "last|tail|zero")
def average_tail():
    x = randn(1003, dtype=torch.bfloat16)
    bad = x.clone()
    bad[-8:] = 0
    return Shown(lambda x: x / 1, (x,), x.clone(), bad)


@bug("comm_bor_becomes_sum", "sum|add|operator|bit")
def bor_sum():
    a, b = torch.randint(0, 255, (64,)), torch.randint(0, 255, (64,))
    return Shown(torch.bitwise_or, (a, b), a | b, a + b)


@bug("sdc_transient_bit_flip", "bit|element")
def bit_flip():
    a, b = randn(24, 64, dtype=torch.bfloat16), randn(64, 20, dtype=torch.bfloat16)
    good = (a.float() @ b.float()).bfloat16()
    bad = good.clone()
    bad.view(torch.int16)[5, 7] ^= 1 << 8
    return Shown(torch.mm, (a, b), good, bad)
