# SPDX-License-Identifier: Apache-2.0
"""Set D, written blind: quantizers, activations and their gradients, adapters."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, mistake, slow_matmul
from .blind_fourth_a import double, fourth, honest, inside, stored_in
from .blind_third import hurt, kept, last_rows_unwritten

# ------------------------------------------------------------------ quantizers

@fourth(lambda d: (d(9, 64, dtype=hf), d.ints(256, 20, 32).to(torch.uint8), d.rand(20, 4) * 0.1 + 0.02,
                   d.ints(16, 20, 4).to(torch.uint8)))
def int4_group_linear(x, packed, scale, zero, other=False, odd=0, late=False, strided=False, low=None):
    low4, high4 = (packed & 15).to(scale.dtype), (packed >> 4).to(scale.dtype)
    q = torch.stack((high4, low4) if other else (low4, high4), -1).view(20, 64)
    pick = torch.arange(64) % 4 if strided else torch.arange(64) // 16
    s, z = scale[:, pick], zero.to(scale.dtype)[:, pick] + odd
    w = q * s - z if late else (q - z) * s
    x = x.to(scale.dtype)
    return slow_matmul(x, w.T, low, 4) if low else x @ w.T


def int4_group_by_group(x, packed, scale, zero):
    out = torch.zeros(9, 20, dtype=scale.dtype)
    x = x.to(scale.dtype)
    for g in range(4):
        part = packed[:, 8 * g:8 * g + 8].long()
        codes = torch.stack((part % 16, part // 16), -1).flatten(1).to(scale.dtype)
        xs = x[:, 16 * g:16 * g + 16]
        out += (xs @ codes.T - xs.sum(1, keepdim=True) * zero[:, g]) * scale[:, g]
    return out


honest(int4_group_linear, "codes multiplied first, zero point by the row's sum", int4_group_by_group)
honest(int4_group_linear, "float64 inside", lambda x, p, s, z: int4_group_linear(x, p, s.double(), z).float())
mistake(int4_group_linear, "the two nibbles of a byte are exchanged", other=True)
mistake(int4_group_linear, "one is added to the zero point that is stored as it is", odd=1)
mistake(int4_group_linear, "the zero point is subtracted after scaling", late=True)
mistake(int4_group_linear, "column k takes group k % 4 instead of k // 16", strided=True)
mistake(int4_group_linear, "accumulates in fp16, four products at a time", low=hf)


NF4 = (-1.0, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.09105004, 0.0,
       0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0)


@fourth(lambda d: (d(8, 96) * (d.rand(8, 1) * 3 + 0.1),))
def nf4_blocks(w, size=32, even=False, floor=False, whole=False, late=0, two_bytes=False):
    table = torch.linspace(-1, 1, 16, dtype=w.dtype) if even else torch.tensor(NF4, dtype=w.dtype)
    b = w.view(-1, size)
    top = b.abs().amax() if whole else b.abs().amax(-1, keepdim=True)
    y = b / top
    if floor:
        code = (y[..., None] >= table).sum(-1) - 1
    else:
        code = (y[..., None] - table).abs().argmin(-1)
    scale = kept(top, bf) if two_bytes else top
    return code.to(torch.uint8).view_as(w), (table[(code + late).clamp(0, 15)] * scale).view_as(w)


def nf4_by_borders(w):
    t = torch.tensor(NF4, dtype=w.dtype)
    b = w.view(8, 3, 32)
    top = torch.maximum(b.amax(-1), -b.amin(-1))[..., None]
    code = ((b / top)[..., None] > (t[1:] + t[:-1]) / 2).sum(-1)
    return code.to(torch.uint8).view_as(w), (t[code] * top).view_as(w)


honest(nf4_blocks, "borders halfway between levels", nf4_by_borders)
honest(nf4_blocks, "float64 inside", double(nf4_blocks))
mistake(nf4_blocks, "evenly spaced levels instead of the normal ones", even=True)
mistake(nf4_blocks, "takes the level below instead of the nearest", floor=True)
mistake(nf4_blocks, "one scale for the whole tensor", whole=True)
mistake(nf4_blocks, "the value read back is one level too high", late=1)
mistake(nf4_blocks, "the block's scale is stored in bf16", two_bytes=True)


@fourth(lambda d: (d(10, 64), d(48, 64) * (d.rand(48, 1) * 5 + 0.2)))
def fp8_tiled_linear(x, w, top=448.0, transposed=False, inverse=False, kind=torch.float8_e4m3fn):
    b = w.view(3, 16, 4, 16)
    scale = b.abs().amax((1, 3), keepdim=True) / top
    q = (b / scale).clamp(-top, top).to(kind).to(w.dtype)
    if transposed:
        scale = scale.flatten().view(4, 1, 3, 1).permute(2, 1, 0, 3)
    y = (q / scale if inverse else q * scale).reshape(48, 64)
    return x @ y.T, scale[:, 0, :, 0].contiguous()


def fp8_tile_by_tile(x, w):
    out, scales = x.new_zeros(10, 48), x.new_zeros(3, 4)
    for i in range(3):
        for j in range(4):
            t = w[16 * i:16 * i + 16, 16 * j:16 * j + 16]
            s = t.abs().max() / 448
            scales[i, j] = s
            q = (t / s).to(torch.float8_e4m3fn).to(x.dtype)
            out[:, 16 * i:16 * i + 16] += (x[:, 16 * j:16 * j + 16] @ q.T) * s
    return out, scales


honest(fp8_tiled_linear, "tile by tile, scaled after the product", fp8_tile_by_tile)
honest(fp8_tiled_linear, "columns split in two halves, added", lambda x, w: (
    fp8_tiled_linear(x * (torch.arange(64) < 32), w)[0]
    + fp8_tiled_linear(x * (torch.arange(64) >= 32), w)[0],
    fp8_tiled_linear(x, w)[1]))
mistake(fp8_tiled_linear, "the table of scales is read transposed", transposed=True)
mistake(fp8_tiled_linear, "values are divided by the scale again instead of multiplied", inverse=True)
mistake(fp8_tiled_linear, "stores e5m2 instead of e4m3", kind=torch.float8_e5m2)
mistake(fp8_tiled_linear, "the format's largest value taken as 240", top=240.0)


@fourth(lambda d: (d(20, 16) * (d.rand(16) * 6 + 0.2), d(16, 16) * (d.rand(16) + 0.1)))
def smooth_scales(x, w, alpha=0.7, inverse=False, rows=False, floor=1e-5):
    a, b = x.abs().amax(0), w.abs().amax(1 if rows else 0)
    s = (a ** alpha / b ** (1 - alpha)).clamp(min=floor)
    return (x * s, w / s, s) if inverse else (x / s, w * s, s)


honest(smooth_scales, "exponential of weighted logarithms", lambda x, w: (lambda s: (x * (1 / s), s * w, s))(
    (0.7 * x.abs().amax(0).log() - 0.3 * w.abs().amax(0).log()).exp()))
honest(smooth_scales, "float64 inside", double(smooth_scales))
mistake(smooth_scales, "alpha and 1 - alpha are exchanged", alpha=0.3)
mistake(smooth_scales, "activations are multiplied and weights divided", inverse=True)
mistake(smooth_scales, "weights' largest values are taken over inputs instead of outputs", rows=True)
mistake(smooth_scales, "alpha 0.5 instead of 0.7", alpha=0.5)
stored_in(smooth_scales, bf)


@fourth(lambda d: (d(11, 40), d(18, 40, scale=0.3)))
def ternary_linear(x, w, mean=True, scaled=True, each=False, threshold=None):
    s = w.abs().mean() if mean else w.abs().amax()
    q = (w / s).round().clamp(-1, 1)
    if threshold:
        q = w.sign() * (w.abs() > threshold * s)
    top = x.abs().amax() if each else x.abs().amax(-1, keepdim=True)
    a = (x * 127 / top).round().clamp(-128, 127)
    return (a @ q.T) * (top / 127) * (s if scaled else 1.0)


honest(ternary_linear, "where instead of rounding", lambda x,
    w: (lambda s, t: torch.round(x / (t / 127)) @ torch.where(
    w.abs() > 0.5 * s, w.sign(), torch.zeros_like(w)).T * (s * t / 127))(w.abs().sum() / w.numel(),
    x.abs().amax(1)[:, None]))
honest(ternary_linear, "integer product", lambda x, w: (lambda s, t: (
    (x * 127 / t).round().long() @ (w / s).round().clamp(-1, 1).long().T).to(x.dtype) * (t / 127) * s)(
        w.abs().mean(), x.abs().amax(1, keepdim=True)))
mistake(ternary_linear, "the weight's scale is the largest magnitude, not the mean one", mean=False)
mistake(ternary_linear, "the result lacks the weight's scale", scaled=False)
mistake(ternary_linear, "one activation scale for the whole tensor", each=True)
mistake(ternary_linear, "weights become 0 below the scale, not below half of it", threshold=1.0)


@fourth(lambda d: (d(10, 48, scale=3.0) * (d.rand(10, 1) * 4 + 0.2),))
def nvfp4_two_levels(x, six=6.0, rounded=True, second=True, size=16, flush=False):
    grid = torch.tensor([0, 0 if flush else 0.5, 1, 1.5, 2, 3, 4, 6], dtype=x.dtype)
    whole = x.abs().amax() / (448 * 6) if second else torch.ones((), dtype=x.dtype) * 0.01
    b = x.view(-1, size)
    s = b.abs().amax(-1, keepdim=True) / six / whole
    s = s.clamp(max=448.0).to(torch.float8_e4m3fn).to(x.dtype) if rounded else s
    y = (b / (s * whole)).clamp(-6, 6)
    q = grid[(y.abs()[..., None] - grid).abs().argmin(-1)] * y.sign()
    return (q * s * whole).view_as(x)


def nvfp4_by_borders(x):
    whole = x.abs().amax() / 2688
    borders = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], dtype=x.dtype)
    out = torch.empty_like(x)
    for i in range(10):
        for j in range(0, 48, 16):
            b = x[i, j:j + 16]
            s = (b.abs().max() / 6 / whole).to(torch.float8_e4m3fn).to(x.dtype) * whole
            code = (b.abs()[:, None] > borders * s).sum(-1)
            out[i, j:j + 16] = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=x.dtype)[code] * s * b.sign()
    return out


honest(nvfp4_two_levels, "borders times scale", nvfp4_by_borders)
honest(nvfp4_two_levels, "float64 inside", double(nvfp4_two_levels))
mistake(nvfp4_two_levels, "block scales are kept in full, not rounded to fp8", rounded=False)
mistake(nvfp4_two_levels, "blocks are scaled so that the largest value becomes 4, not 6", six=4.0)
mistake(nvfp4_two_levels, "blocks of 48 instead of 16", size=48)
mistake(nvfp4_two_levels, "0.5 is flushed to zero", flush=True)
mistake(nvfp4_two_levels, "the tensor's own scale is not used (a constant instead)", second=False)


@fourth(lambda d: (d(14, 20, scale=2.0, shift=1.0), torch.tensor(0.05), torch.tensor(37)))
def affine_fake_quant(x, scale, zero, clamp=True, truncate=False, late=0, signed=False):
    z = zero.to(x.dtype)
    q = x / scale
    q = (q.trunc() if truncate else q.round()) + z
    low, high = (-128, 127) if signed else (0, 255)
    return ((q.clamp(low, high) if clamp else q) - z - late) * scale, ((q >= low) & (q <= high)).to(x.dtype)


honest(affine_fake_quant, "torch's own", lambda x, s, z: (
    torch.fake_quantize_per_tensor_affine(x, s.item(), int(z), 0, 255),
    ((x / s + z).round().clamp(0, 255) == (
        x / s).round() + z).to(x.dtype)))
honest(affine_fake_quant, "clamped before rounding", lambda x, s, z: (
    (x / s).clamp(-z.item(), 255 - z.item()).round() * s,
    ((x / s + 0.5).floor().clamp(-z.item(), 255 - z.item()) == (
        x / s + 0.5).floor()).to(x.dtype)))
mistake(affine_fake_quant, "codes are not clamped", clamp=False)
mistake(affine_fake_quant, "truncates instead of rounding", truncate=True)
mistake(affine_fake_quant, "signed range -128..127 instead of 0..255", signed=True)
mistake(affine_fake_quant, "the zero point read back is one more", late=1)


@fourth(lambda d: (d(10, 12), (lambda a: torch.linalg.cholesky(torch.linalg.inv(a @ a.T / 80 + 0.05
    * torch.eye(12))).mT)(
    d(12, 24) + 1.5 * d(1, 24))))
def gptq_rows(w, u, bits=7, divided=True, spread=True, late=0):
    w = w.clone()
    s = w.abs().amax(1) / bits
    out = torch.zeros_like(w)
    for j in range(12):
        col = w[:, j].clone()
        out[:, j] = (col / s).round().clamp(-bits - 1, bits) * s
        e = (col - out[:, j]) / (u[j, j] if divided else 1.0)
        if spread and j < 11:
            w[:, j + 1 + late:] -= e[:, None] * u[j, j + 1 + late:]
    return out


def gptq_lazy(w, u):
    s = w.abs().amax(1, keepdim=True) / 7
    out, err = [], []
    for j in range(12):
        now = w[:, j:j + 1] - (torch.cat(err, 1) @ u[:j, j:j + 1] if err else 0.0)
        out.append((now / s).round().clamp(-8, 7) * s)
        err.append((now - out[-1]) / u[j, j])
    return torch.cat(out, 1)


honest(gptq_rows, "errors applied late, one product a column", gptq_lazy)
honest(gptq_rows, "float64 inside", double(gptq_rows))
mistake(gptq_rows, "the error is not carried to later columns (plain rounding)", spread=False)
mistake(gptq_rows, "the error is not divided by the diagonal", divided=False)
mistake(gptq_rows, "the next column is left out of the update (one column late)", late=1)


def hadamard(n, like):
    h = torch.ones(1, 1, dtype=like.dtype)
    while len(h) < n:
        h = torch.cat((torch.cat((h, h), 1), torch.cat((h, -h), 1)))
    return h


@fourth(lambda d: (d(9, 32) + (d.rand(9, 32) < 0.05) * 20.0, torch.where(d.rand(32) < 0.5, -1.0, 1.0)))
def hadamard_rotation(x, sign, root=True, after=False):
    n = x.shape[-1]
    h = hadamard(n, x)
    y = (x @ h) * sign if after else (x * sign) @ h
    return y / (math.sqrt(n) if root else n)


def fast_hadamard(x, sign, levels=5):
    y, step = x * sign, 1
    for _ in range(levels):
        y = y.view(9, -1, 2, step)
        y = torch.stack((y[:, :, 0] + y[:, :, 1], y[:, :, 0] - y[:, :, 1]), 2)
        step *= 2
    return y.reshape(9, 32) / 32 ** 0.5


honest(hadamard_rotation, "butterflies", fast_hadamard)
honest(hadamard_rotation, "float64 inside", double(hadamard_rotation))
mistake(hadamard_rotation, "divides by n instead of sqrt(n)", root=False)
mistake(hadamard_rotation, "signs are applied after the transform", after=True)
mistake(hadamard_rotation, "the last level of butterflies is left out", lambda
    *a: fast_hadamard(*a, levels=4))
stored_in(hadamard_rotation, bf)


@fourth(lambda d: (d.ints(40000, 8, 12) - 20000, d.ints(2 ** 16, 12) + 2 ** 14, d.ints(6, 12) + 20,
    d.ints(9, 12) - 4))
def requantize_fixed_point(acc, mult, shift, zero, half=True, clamp=True, order=False, per_tensor=False):
    if per_tensor:
        mult, shift = mult[:1], shift[:1]
    y = acc * mult
    y = (y + ((torch.ones_like(shift) << (shift - 1)) if half else 0)) >> shift
    if order:
        return y.clamp(-128, 127) + zero
    y = y + zero
    return y.clamp(-128, 127) if clamp else (y + 128) % 256 - 128


honest(requantize_fixed_point, "float64 with floor", lambda a, m, s, z: (
    torch.floor(a.double() * m / 2.0 ** s + 0.5) + z).clamp(-128, 127).long())
honest(requantize_fixed_point, "floor division", lambda a, m, s, z: (
    torch.div(2 * a * m + 2 ** s, 2 * 2 ** s, rounding_mode="floor") + z).clamp(-128, 127))
mistake(requantize_fixed_point, "shifts without adding half (rounds down)", half=False)
mistake(requantize_fixed_point, "wraps around instead of saturating", clamp=False)
mistake(requantize_fixed_point, "clamps before the zero point is added", order=True)
mistake(requantize_fixed_point, "the first channel's multiplier for all channels", per_tensor=True)


# ------------------------------------------------------------------ activations and their gradients

@fourth(lambda d: (d(12, 25, scale=2.0), d(12, 25), d.rand(12, 25) < 0.2))
def masked_softmax_gradient(s, g, mask, scale=0.25, inner=True, scaled=True, full=False, low=None):
    p = (s * scale).masked_fill(mask, float("-inf")).softmax(-1)
    p = kept(p, low)
    dot = (p * g).sum(-1, keepdim=True) if inner else (p * g).mean(-1, keepdim=True)
    return (p * g - (p * p if full else p) * dot) * (scale if scaled else 1.0)


def softmax_autograd(s, g, mask):
    s = s.clone().requires_grad_()
    (s / 4).masked_fill(mask, -1e30).softmax(-1).backward(g)
    return s.grad


honest(masked_softmax_gradient, "automatic differentiation", softmax_autograd)
honest(masked_softmax_gradient, "float64 inside", double(masked_softmax_gradient))
mistake(masked_softmax_gradient, "the row's mean instead of its sum is subtracted", inner=False)
mistake(masked_softmax_gradient, "the scale is missing in the gradient", scaled=False)
mistake(masked_softmax_gradient, "the subtracted term has p squared", full=True)
mistake(masked_softmax_gradient, "probabilities are read from fp16", low=hf)


@fourth(lambda d: (d(13, 24, scale=1.5, dtype=hf), d(13, 24, dtype=hf)))
def gelu_tanh_gradient(x, g, c=0.044715, three=3.0, tail=True):
    a = math.sqrt(2 / math.pi)
    t = torch.tanh(a * (x + c * x ** 3))
    slope = 0.5 * x * (1 - t * t) * a * (1 + three * c * x * x)
    return g * (0.5 * (1 + t) + (slope if tail else 0.0))


def gelu_autograd(x, g):
    y = x.float().requires_grad_()
    F.gelu(y, approximate="tanh").backward(g.float())
    return y.grad.to(x.dtype)


honest(gelu_tanh_gradient, "automatic differentiation in float32", gelu_autograd)
honest(gelu_tanh_gradient, "float32 inside", inside(gelu_tanh_gradient))
honest(gelu_tanh_gradient, "float64 inside", double(gelu_tanh_gradient))
mistake(gelu_tanh_gradient, "the tanh's own slope is left out", inside(gelu_tanh_gradient, tail=False))
mistake(gelu_tanh_gradient, "the inner derivative lacks the factor 3", inside(gelu_tanh_gradient, three=1.0))
mistake(gelu_tanh_gradient, "0.44715 instead of 0.044715", inside(gelu_tanh_gradient, c=0.44715))
mistake(gelu_tanh_gradient, "the last row is not written (zeros)",
        inside(hurt(gelu_tanh_gradient, last_rows_unwritten)))


@fourth(lambda d: (d(14, 20), d(14, 20), d(14, 20), d(20, 9), d(20, 9)))
def swiglu_gradients(a, b, g, wa, wb, slope=True, swapped=False, plain=False, low=None, one_side=False):
    s = a.sigmoid()
    act = kept(a * s, low)
    da = g * b * (s * (1 + a * (1 - s)) if slope else s)
    if plain:
        da = g * b * s * (1 - s)
    db = g * act
    if swapped:
        da, db = db, da
    return da, db, da @ wa if one_side else da @ wa + db @ wb


def swiglu_autograd(a, b, g, wa, wb):
    a, b = a.clone().requires_grad_(), b.clone().requires_grad_()
    (F.silu(a) * b).backward(g)
    return a.grad, b.grad, torch.cat((a.grad, b.grad), 1) @ torch.cat((wa, wb))


honest(swiglu_gradients, "automatic differentiation, one product for both", swiglu_autograd)
honest(swiglu_gradients, "float64 inside", double(swiglu_gradients))
mistake(swiglu_gradients, "silu's derivative is taken as the sigmoid alone", slope=False)
mistake(swiglu_gradients, "silu's derivative is taken as sigmoid's derivative", plain=True)
mistake(swiglu_gradients, "gradients of gate and value are exchanged", swapped=True)
mistake(swiglu_gradients, "the input's gradient lacks the value branch", one_side=True)
mistake(swiglu_gradients, "the stored silu is rounded to bf16", low=bf)


@fourth(lambda d: (d(11, 32, dtype=bf), d(24, 32, dtype=bf, scale=0.2), d(4, 32, dtype=bf, scale=0.3),
                   d(24, 4, dtype=bf, scale=0.3), torch.tensor(12.0)))
def lora_linear(x, w, a, b, alpha, rank=4, root=False, twice=False, lost=False):
    up = x @ a.T @ b.T
    factor = alpha.to(x.dtype) / (math.sqrt(rank) if root else rank)
    y = x @ w.T
    return y if lost else y + factor * (factor if twice else 1.0) * up


honest(lora_linear, "float32 inside", inside(lora_linear))
honest(lora_linear, "the adapter merged into the weight",
       inside(lambda x, w, a, b, s: x @ torch.addmm(w, b, a, alpha=s.item() / 4).T))
honest(lora_linear, "float64 inside", double(lora_linear))
mistake(lora_linear, "scales by alpha / sqrt(rank) instead of alpha / rank", inside(lora_linear, root=True))
mistake(lora_linear, "the factor is applied twice", inside(lora_linear, twice=True))
mistake(lora_linear, "the adapter's branch is left out", inside(lora_linear, lost=True))
mistake(lora_linear, "scale by the output's size (24) instead of the rank (4)", inside(lora_linear, rank=24))


@fourth(lambda d: (d(3, 8, 6, 5, shift=0.5), d(4, 8, scale=0.6), d(4), d(8, 4, scale=0.8), d(8)))
def squeeze_excite(x, w1, b1, w2, b2, act=F.relu, gate=torch.sigmoid, peak=False, over=(2, 3),
        residual=False):
    s = x.amax((2, 3)) if peak else x.mean(over)
    if over == (0, 2, 3):
        s = s.expand(3, 8)
    g = gate(act(s @ w1.T + b1) @ w2.T + b2)[..., None, None]
    return x + x * g if residual else x * g


honest(squeeze_excite, "1 x 1 convolutions", lambda x, w1, b1, w2, b2: x
    * torch.sigmoid(F.conv2d(F.relu(F.conv2d(
    F.adaptive_avg_pool2d(x, 1), w1[..., None, None], b1)), w2[..., None, None], b2)))
honest(squeeze_excite, "float64 inside", double(squeeze_excite))
mistake(squeeze_excite, "maximum instead of mean over the plane", peak=True)
mistake(squeeze_excite, "the mean runs over the batch as well", over=(0, 2, 3))
mistake(squeeze_excite, "hard sigmoid instead of sigmoid", gate=F.hardsigmoid)
mistake(squeeze_excite, "silu instead of relu in the bottleneck", act=F.silu)
mistake(squeeze_excite, "the input is added to the gated one", residual=True)
stored_in(squeeze_excite, bf)


@fourth(lambda d: (d(14, 17, scale=1.2),))
def sparsemax(x, clamp=True, count=0, keep_all=False):
    s = x.sort(-1, descending=True).values
    k = torch.arange(1, 18, dtype=x.dtype)
    total = s.cumsum(-1)
    size = (1 + k * s > total).to(x.dtype).sum(-1, keepdim=True) + count
    if keep_all:
        size = torch.full_like(size, 17.0)
    tau = (total.gather(1, size.long() - 1) - 1) / size
    return (x - tau).clamp(min=0) if clamp else x - tau


def sparsemax_newton(x):
    tau = (x.sum(-1, keepdim=True) - 1) / 17
    for _ in range(17):
        on = (x > tau).to(x.dtype)
        tau = ((x * on).sum(-1, keepdim=True) - 1) / on.sum(-1, keepdim=True)
    return F.relu(x - tau)


honest(sparsemax, "fixed-point iteration on the threshold", sparsemax_newton)
honest(sparsemax, "float64 inside", double(sparsemax))
mistake(sparsemax, "negative results are not clamped at 0", clamp=False)
mistake(sparsemax, "the support is one too large", count=1)
mistake(sparsemax, "the threshold takes all classes as support", keep_all=True)


@fourth(lambda d: (d(2, 12, 14), d(12, 12, scale=0.3), d(12, 12, scale=0.3), d(12, shift=-1.0), d(12),
    d.rand(12) + 0.5))
def highway_snake(x, wh, wt, bt, bh, a, other=False, doubled=False, bias=True, plain=False, shared=False):
    t = (torch.einsum("oc,bct->bot", wt, x) + (bt[:, None] if bias else 0.0)).sigmoid()
    h = torch.einsum("oc,bct->bot", wh, x) + bh[:, None]
    f = (a.mean() if shared else a)[..., None]
    h = h + (f * h).sin() ** (1 if plain else 2) / (1.0 if doubled else f)
    return (1 - t) * h + t * x if other else t * h + (1 - t) * x


honest(highway_snake, "cosine of the double angle, lerp", lambda x, wh, wt, bt, bh, a: torch.lerp(
    x, (lambda h: h + (1 - torch.cos(2 * a[:, None] * h)) / (2 * a[:, None]))(F.conv1d(x, wh[..., None], bh)),
    F.conv1d(x, wt[..., None], bt).sigmoid()))
honest(highway_snake, "float64 inside", double(highway_snake))
mistake(highway_snake, "the gate weighs input and transform the other way round", other=True)
mistake(highway_snake, "the sine term is not divided by a", doubled=True)
mistake(highway_snake, "the sine is not squared", plain=True)
mistake(highway_snake, "one a for all channels", shared=True)
mistake(highway_snake, "the gate's bias is left out", bias=False)
stored_in(highway_snake, hf)
