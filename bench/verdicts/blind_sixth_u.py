# SPDX-License-Identifier: Apache-2.0
"""Set H, written blind: gradients of convolutions with reduced precision (TF32, sums in bf16 or fp16), and
whole modules of which one operator is wrong."""

import torch
import torch.nn.functional as F

from .blind import bf, hf, honest, mistake, narrow, slow_matmul, tf32
from .blind_sixth_m import aimed, double, inside


def only(keep, stride, pad, groups, transposed=False, bias=None):
    """One of the three gradients of a convolution."""

    def fn(g, x, w):
        n = x.dim() - 2
        return torch.ops.aten.convolution_backward(
            g, x, w, bias, [stride] * n, [pad] * n, [1] * n, transposed, [0] * n, groups, [i == keep for i in range(3)]
        )[keep]

    return fn


def low_inputs(fn, cut):
    """The operands are cut to a shorter format; sums in float32."""
    return lambda g, x, w: fn(cut(g.float()), cut(x.float()), cut(w.float())).to(g.dtype)


# ------------------------------------------------------------------ weight gradients


def draw_image(d, dtype=torch.float32):
    return d(4, 10, 12, 12, dtype=dtype), d(4, 6, 12, 12, dtype=dtype), d(10, 6, 3, 3, dtype=dtype)


def patches(x, k=3, pad=1, stride=1):
    return F.unfold(x, k, padding=pad, stride=stride).transpose(0, 1).flatten(1)  # (c k k, n positions)


@aimed(draw_image)
def aimed_reduced_weight_grad(g, x, w):
    return only(1, 1, 1, 1)(g, x, w)


def weight_grad(g, x, w, product=torch.matmul):
    return product(g.transpose(0, 1).flatten(1), patches(x).mT.contiguous()).view_as(w)


honest(aimed_reduced_weight_grad, "a product with patches", weight_grad)
honest(
    aimed_reduced_weight_grad,
    "image after image",
    lambda g, x, w: sum(weight_grad(g[i : i + 1], x[i : i + 1], w) for i in range(4)),
)
honest(aimed_reduced_weight_grad, "in double precision", double(weight_grad))
mistake(aimed_reduced_weight_grad, "operands in TF32", low_inputs(weight_grad, tf32))
mistake(aimed_reduced_weight_grad, "operands in bf16", low_inputs(weight_grad, narrow))
mistake(
    aimed_reduced_weight_grad, "sums kept in bf16, each 16 positions", lambda g, x, w: weight_grad(g, x, w, slow_matmul)
)
mistake(
    aimed_reduced_weight_grad,
    "images are added in fp16",
    lambda g, x, w: sum(weight_grad(g[i : i + 1], x[i : i + 1], w).to(hf) for i in range(4)).float(),
)
mistake(aimed_reduced_weight_grad, "the last image is left out", lambda g, x, w: weight_grad(g[:3], x[:3], w))


@aimed(lambda d: draw_image(d, bf))
def aimed_reduced_weight_grad_bf16(g, x, w):
    return only(1, 1, 1, 1)(g, x, w)


honest(aimed_reduced_weight_grad_bf16, "a product with patches in float32", inside(weight_grad))
honest(
    aimed_reduced_weight_grad_bf16,
    "image after image",
    inside(lambda g, x, w: sum(weight_grad(g[i : i + 1], x[i : i + 1], w) for i in range(4))),
)
mistake(
    aimed_reduced_weight_grad_bf16,
    "sums kept in bf16, each 16 positions",
    inside(lambda g, x, w: weight_grad(g, x, w, slow_matmul)),
)
mistake(
    aimed_reduced_weight_grad_bf16,
    "each image's gradient is rounded to bf16 first",
    inside(lambda g, x, w: sum(narrow(weight_grad(g[i : i + 1], x[i : i + 1], w)) for i in range(4))),
)


@aimed(lambda d: (d(3, 12, 50), d(3, 12, 54), d(12, 1, 5)))
def aimed_reduced_depthwise_weight_grad(g, x, w):
    return only(1, 1, 0, 12)(g, x, w)


def depthwise(g, x, w, low=lambda t: t):
    return low(torch.stack([low(g * x[..., i : i + 50]).sum(-1).sum(0) for i in range(5)], -1))[:, None]


honest(aimed_reduced_depthwise_weight_grad, "tap by tap", depthwise)
mistake(aimed_reduced_depthwise_weight_grad, "products are kept in bf16", lambda *a: depthwise(*a, low=narrow))
mistake(aimed_reduced_depthwise_weight_grad, "products are kept in TF32", lambda *a: depthwise(*a, low=tf32))
mistake(aimed_reduced_depthwise_weight_grad, "the taps are in reversed order", lambda *a: depthwise(*a).flip(-1))


# ------------------------------------------------------------------ input and bias gradients


@aimed(lambda d: (d(2, 10, 7, 7), d(2, 6, 13, 13), d(10, 6, 3, 3, scale=0.3)))
def aimed_reduced_input_grad(g, x, w):
    return only(0, 2, 1, 1)(g, x, w)


def input_grad(g, x, w, product=torch.matmul):
    cols = product(w.flatten(1).mT.contiguous(), g.flatten(2))
    return F.fold(cols, (13, 13), 3, padding=1, stride=2)


honest(aimed_reduced_input_grad, "columns folded", input_grad)
honest(
    aimed_reduced_input_grad, "a transposed convolution", lambda g, x, w: F.conv_transpose2d(g, w, stride=2, padding=1)
)
mistake(aimed_reduced_input_grad, "operands in TF32", low_inputs(input_grad, tf32))
mistake(
    aimed_reduced_input_grad,
    "columns are kept in bf16",
    lambda g, x, w: F.fold(narrow(w.flatten(1).mT @ g.flatten(2)), (13, 13), 3, padding=1, stride=2),
)
mistake(
    aimed_reduced_input_grad,
    "sums over channels in bf16",
    lambda g, x, w: F.fold(
        torch.stack([slow_matmul(w.flatten(1).mT.contiguous(), y, step=4) for y in g.flatten(2)]),
        (13, 13),
        3,
        padding=1,
        stride=2,
    ),
)


@aimed(lambda d: (d(2, 8, 30, dtype=hf), d(2, 8, 30, dtype=hf), d(8, 4, 3, dtype=hf)))
def aimed_reduced_grouped_input_grad(g, x, w):
    return only(0, 1, 1, 2)(g, x, w)


def grouped(g, x, w, low=None, swap=False):
    out = []
    for i in range(2):
        j = 1 - i if swap else i
        h, v = g[:, 4 * i : 4 * i + 4], w[4 * j : 4 * j + 4]
        y = torch.zeros(2, 4, 32)
        for k in range(3):
            y[..., k : k + 30] += torch.einsum("bot,oi->bit", h, v[..., k])
            y = y if low is None else y.to(low).float()
        out.append(y[..., 1:-1])
    return torch.cat(out, 1)


honest(aimed_reduced_grouped_input_grad, "tap by tap", inside(grouped))
mistake(aimed_reduced_grouped_input_grad, "sums of taps in fp16", inside(grouped, low=hf))
mistake(aimed_reduced_grouped_input_grad, "the weights of the other group", inside(grouped, swap=True))


@aimed(lambda d: (d(6, 5, 20, 20, shift=0.3), d(6, 3, 22, 22), d(5, 3, 3, 3)))
def aimed_reduced_bias_grad(g, x, w):
    return only(2, 1, 0, 1, bias=[5])(g, x, w)


def slowly(g, low, step=40):
    total = torch.zeros(5)
    for part in g.transpose(0, 1).flatten(1).split(step, 1):
        total = (total + part.sum(1)).to(low).float()
    return total


honest(aimed_reduced_bias_grad, "one sum", lambda g, x, w: g.sum((0, 2, 3)))
honest(aimed_reduced_bias_grad, "parts of 40", lambda g, x, w: slowly(g, torch.float32))
mistake(aimed_reduced_bias_grad, "parts of 40 added in bf16", lambda g, x, w: slowly(g, bf))
mistake(aimed_reduced_bias_grad, "parts of 40 added in fp16", lambda g, x, w: slowly(g, hf))
mistake(aimed_reduced_bias_grad, "gradients are TF32 before the sum", lambda g, x, w: tf32(g).sum((0, 2, 3)))
mistake(aimed_reduced_bias_grad, "the last row of the image is left out", lambda g, x, w: g[:, :, :-1].sum((0, 2, 3)))


@aimed(lambda d: (d(2, 5, 9), d(2, 7, 4), d(7, 5, 3)))
def aimed_reduced_transposed_grad(g, x, w):
    return only(1, 2, 0, 1, transposed=True)(g, x, w)


def transposed(g, x, w, low=lambda t: t):
    g, x = low(g), low(x)
    return torch.stack([torch.einsum("bit,bot->io", x, g[..., k : k + 8 : 2][..., :4]) for k in range(3)], -1)


honest(aimed_reduced_transposed_grad, "tap by tap", transposed)
mistake(aimed_reduced_transposed_grad, "operands in TF32", lambda *a: transposed(*a, low=tf32))
mistake(aimed_reduced_transposed_grad, "operands in fp16", lambda *a: transposed(*a, low=lambda t: narrow(t, hf)))


# ------------------------------------------------------------------ whole modules


@aimed(
    lambda d: (
        d(2, 12, 32),
        d(96, 32, scale=0.2),
        d(32, 32, scale=0.2),
        d(64, 32, scale=0.2),
        d(32, 64, scale=0.2),
        d(32, shift=1.0),
    )
)
def aimed_module_block(x, qkv, out, up, down, w):
    h = F.layer_norm(x, (32,), w)
    q, k, v = (t.unflatten(-1, (4, 8)).transpose(1, 2) for t in F.linear(h, qkv).chunk(3, -1))
    x = x + F.linear(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2), out)
    return x + F.linear(F.gelu(F.linear(F.layer_norm(x, (32,), w), up)), down)


def block(x, qkv, out, up, down, w, n=32, scale=8**-0.5, diagonal=1, gelu="none", low=lambda t: t, skip=1.0):
    def norm(t):
        y = t - t.mean(-1, keepdim=True)
        return y / ((y * y).sum(-1, keepdim=True) / n + 1e-5).sqrt() * w

    q, k, v = (t.reshape(2, 12, 4, 8).permute(0, 2, 1, 3) for t in (norm(x) @ qkv.mT).split(32, -1))
    hide = torch.ones(12, 12, dtype=torch.bool).triu(diagonal)
    p = low((q @ k.mT * scale).masked_fill(hide, float("-inf")).softmax(-1))
    x = skip * x + (p @ v).permute(0, 2, 1, 3).reshape(2, 12, 32) @ out.mT
    return x + F.gelu(norm(x) @ up.mT, approximate=gelu) @ down.mT


honest(aimed_module_block, "plain products", block)
honest(aimed_module_block, "in double precision", double(block))
mistake(aimed_module_block, "gelu by tanh", lambda *a: block(*a, gelu="tanh"))
mistake(aimed_module_block, "the norm's spread is by n - 1", lambda *a: block(*a, n=31))
mistake(aimed_module_block, "scores are scaled by 1/8", lambda *a: block(*a, scale=0.125))
mistake(aimed_module_block, "shares are rounded to bf16", lambda *a: block(*a, low=narrow))
mistake(aimed_module_block, "one token of the future is seen", lambda *a: block(*a, diagonal=2))


@aimed(lambda d: (d(3, 8, 10, 10), d(12, 8, 3, 3, scale=0.2), d(12), d(12), d(12), d(12).abs() + 0.5))
def aimed_module_conv_norm(x, w, scale, shift, mean, var):
    return F.relu6(F.batch_norm(F.conv2d(x, w, padding=1), mean, var, scale, shift))


def folded_conv(x, w, scale, shift, mean, var, eps=1e-5, top=6.0, low=lambda t: t, bias=True):
    s = scale * (var + eps).rsqrt()
    b = shift - mean * s if bias else shift
    return F.conv2d(low(x), low(w * s[:, None, None, None]), b, padding=1).clamp(0, top)


honest(aimed_module_conv_norm, "the norm folded into the weights", folded_conv)
mistake(aimed_module_conv_norm, "folded weights in TF32", lambda *a: folded_conv(*a, low=tf32))
mistake(aimed_module_conv_norm, "epsilon is 1e-3", lambda *a: folded_conv(*a, eps=1e-3))
mistake(aimed_module_conv_norm, "the mean is left out of the folded bias", lambda *a: folded_conv(*a, bias=False))
mistake(aimed_module_conv_norm, "relu without its upper bound of 6", lambda *a: folded_conv(*a, top=1e9))


@aimed(
    lambda d: (
        d(4, 24, dtype=bf),
        d(40, 24, scale=0.3, dtype=bf),
        d(40, 24, scale=0.3, dtype=bf),
        d(24, 40, scale=0.3, dtype=bf),
    )
)
def aimed_module_gated(x, gate, up, down):
    return x + (F.silu(x @ gate.mT) * (x @ up.mT)) @ down.mT


def gated(x, gate, up, down, act=F.silu, swap=False, skip=1.0):
    a, b = x @ gate.mT, x @ up.mT
    a, b = (b, a) if swap else (a, b)
    return skip * x + (act(a) * b) @ down.mT


honest(aimed_module_gated, "float32 until the end", inside(gated))
honest(aimed_module_gated, "in double precision", double(gated))
mistake(aimed_module_gated, "gelu where silu was asked", inside(gated, act=F.gelu))
mistake(aimed_module_gated, "gate and value are swapped", inside(gated, swap=True))
mistake(aimed_module_gated, "the residual is added twice", inside(gated, skip=2.0))


@aimed(lambda d: (d(2, 16, 6, 6), d(4, 16, scale=0.4), d(4), d(16, 4, scale=0.4), d(16)))
def aimed_module_squeeze(x, w1, b1, w2, b2):
    s = F.relu(F.linear(x.mean((2, 3)), w1, b1))
    return x * F.hardsigmoid(F.linear(s, w2, b2))[:, :, None, None]


def squeeze(x, w1, b1, w2, b2, over=36, act=F.hardsigmoid, bias=1.0):
    s = (x.flatten(2).sum(-1) / over @ w1.mT + bias * b1).clamp(min=0)
    return x * act(s @ w2.mT + b2)[:, :, None, None]


honest(aimed_module_squeeze, "sums over the plane", squeeze)
mistake(aimed_module_squeeze, "sigmoid where hardsigmoid was asked", lambda *a: squeeze(*a, act=torch.sigmoid))
mistake(aimed_module_squeeze, "the mean is over 35", lambda *a: squeeze(*a, over=35))
mistake(aimed_module_squeeze, "the first bias is doubled", lambda *a: squeeze(*a, bias=2.0))


@aimed(
    lambda d: (d(9, 3, 10), d(3, 14), d(42, 10, scale=0.3), d(42, 14, scale=0.3), d(42, scale=0.5), d(42, scale=0.5))
)
def aimed_module_gru(x, h, wi, wh, bi, bh):
    out = []
    for t in range(9):
        h = torch.gru_cell(x[t], h, wi, wh, bi, bh)
        out.append(h)
    return torch.stack(out)


def gru(x, h, wi, wh, bi, bh, inner=True, flip=False, low=lambda t: t, bias=1.0):
    out = []
    for y in x:
        r, z, n = (y @ wi.mT + bi).chunk(3, -1)
        a, b, c = (h @ wh.mT + bias * bh).chunk(3, -1)
        r, z = (r + a).sigmoid(), (z + b).sigmoid()
        n = (n + r * c if inner else n + (r * h) @ wh[28:].mT + bh[28:]).tanh()
        h = low(z * n + (1 - z) * h if flip else (1 - z) * n + z * h)
        out.append(h)
    return torch.stack(out)


honest(aimed_module_gru, "gates by hand", gru)
honest(aimed_module_gru, "in double precision", double(gru))
mistake(aimed_module_gru, "the reset gate comes before the product", lambda *a: gru(*a, inner=False))
mistake(aimed_module_gru, "the update gate is the wrong way round", lambda *a: gru(*a, flip=True))
mistake(aimed_module_gru, "the state is kept in fp16", lambda *a: gru(*a, low=lambda t: narrow(t, hf)))
mistake(aimed_module_gru, "the second bias is doubled", lambda *a: gru(*a, bias=2.0))
