# SPDX-License-Identifier: Apache-2.0
"""Set S, the fourteenth: grouped, scaled and fused products."""

import torch
import torch.nn.functional as F

from .blind import bf, hf, narrow, tf32
from .blind_fourteenth_attention import heavy
from .blind_fourteenth_base import add, split, trimmed, up, wide

E4 = torch.float8_e4m3fn
FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def grouped(x, w, ends):
    e = torch.searchsorted(ends, torch.arange(x.shape[0]), right=True)
    return torch.einsum("tk,tkn->tn", up(x), up(w)[e]).to(x.dtype)


def grouped_kernel(x, w, ends, right=True, turn=False, tile=None, shift=0, acc=None, step=16, early=False):
    out = torch.zeros(x.shape[0], w.shape[2])
    start = 0
    for e, end in enumerate(ends.tolist()):
        stop = start + (end - start) // tile * tile if tile else end
        we = w[(e + shift) % w.shape[0]]
        out[start:stop] = split(x[start:stop], we.T if turn else we, step, acc)
        start = end - (1 if early else 0)
    return out


add(
    "grouped_product",
    grouped,
    lambda d: (heavy(d, 70, 64, dtype=bf), d(5, 64, 64, dtype=bf, scale=0.1), torch.tensor([9, 9, 30, 61, 70])),
    grouped_kernel,
    dtype=bf,
    right={"experts in turn, sums by 16": {}, "sums by 24": {"step": 24}},
    wrong={
        "an expert's weight is read transposed": {"turn": True},
        "rows beyond an expert's last whole tile of 8 are not written": {"tile": 8},
        "an expert reads the weights of the next": {"shift": 1},
        "hides: sums are kept in bf16": {"acc": bf, "step": 4},
        "an expert begins one row early": {"early": True},
    },
)


def block_fp8(xq, xs, wq, ws):
    x = xq.to(xs.dtype).unflatten(-1, (-1, 32)) * xs[..., None]
    w = wq.to(xs.dtype) * ws.repeat_interleave(32, 0).repeat_interleave(32, 1)
    return x.flatten(-2) @ w.T


def block_kernel(
    xq, xs, wq, ws, flip=False, first=False, late=False, acc=None, roll=0, keep=None, bits=None, total=None
):
    x, w = xq.float(), wq.float()
    ws = ws.T.contiguous() if flip else ws
    ws = torch.roll(ws, roll, 1)
    xs = xs[:, :1].expand_as(xs) if first else xs
    out = 0
    for j in range(keep or xs.shape[1]):
        at = slice(32 * j, 32 * j + 32)
        part = x[:, at] @ w[:, at].T
        part = narrow(part, acc) if acc else part
        out = out + part * (xs[:, j : j + 1] * ws[:, j].repeat_interleave(32)[None])
        out = narrow(out, bf) if late else trimmed(out, bits) if bits else out
    return out


def quantised(d, rows, cols, blocks, out=True):
    x = heavy(d, rows, cols)
    if blocks == "rows":
        s = x.unflatten(1, (-1, 32)).abs().amax(-1) / 448
        return (x.unflatten(1, (-1, 32)) / s[..., None]).flatten(1).to(E4), s
    t = x.reshape(rows // 32, 32, cols // 32, 32)
    s = t.abs().amax((1, 3)) / 448
    return (t / s[:, None, :, None]).reshape(rows, cols).to(E4), s


add(
    "block_scaled_fp8",
    block_fp8,
    lambda d: (*quantised(d, 24, 128, "rows"), *quantised(d, 128, 128, "blocks")),
    block_kernel,
    right={
        "a block's sum, then its scales": {},
        "in double": lambda a, b, c, e: block_fp8(a, b.double(), c, e.double()).float(),
    },
    wrong={
        "the weights' scales are read transposed": {"flip": True},
        "all blocks of a row take its first scale": {"first": True},
        "the scales of the weights are of the block before": {"roll": 1},
        "the last block of the inner dimension is lost": {"keep": 3},
        "a block's sum is rounded to bf16": {"acc": bf},
        "the running sum is kept in bf16": {"late": True},
        "a block's sum overflows in fp16 where it is great": {"acc": hf},
        "hides: the running sum keeps 20 bits": {"bits": 20},
    },
)


def mx4_product(x, codes, exps):
    nib = torch.stack([codes & 15, codes >> 4], -1).flatten(-2).long()
    w = FP4.to(x.dtype)[nib].unflatten(-1, (-1, 32)) * torch.exp2(exps.to(x.dtype) - 127)[..., None]
    return x @ w.flatten(-2).T


def mx4_kernel(x, codes, exps, order=(0, 4), bias=127, block=32, sign=True, three=None, acc=None, step=32):
    nib = torch.stack([codes >> order[0] & 15, codes >> order[1] & 15], -1).flatten(-2).long()
    table = FP4.clone() if sign else FP4.abs()
    if three:
        table[5], table[13] = three, -three
    w = table[nib]
    at = torch.arange(w.shape[1]) // block
    w = w * torch.exp2((exps.int() - bias).float())[:, at % exps.shape[1]]
    return split(x, w.T, step, acc)


add(
    "mxfp4_product",
    mx4_product,
    lambda d: (heavy(d, 16, 96), d.ints(256, 40, 48).to(torch.uint8), (d.ints(6, 40, 3) + 120).to(torch.uint8)),
    mx4_kernel,
    right={"by blocks of 32": {}, "by blocks of 8": {"step": 8}, "in double": wide(mx4_product)},
    wrong={
        "nibbles are read the other way round": {"order": (4, 0)},
        "the exponent's bias is 128": {"bias": 128},
        "a scale serves 16 elements": {"block": 16},
        "the table's 3 is 2.5": {"three": 2.5},
        "the sign bit is dropped": {"sign": False},
        "sums are rounded to bf16 after each block": {"acc": bf},
    },
)


def int4_product(x, codes, scales, zeros):
    w = (codes.to(scales.dtype).unflatten(0, (-1, 16)) - zeros.to(scales.dtype)[:, None]) * scales[:, None]
    return x @ w.flatten(0, 1)


def int4_kernel(x, codes, scales, zeros, plus=0, fold=True, part="whole", shift=0, half=False, kind=None):
    out = 0
    for g in range(scales.shape[0]):
        c, at = codes[16 * g : 16 * g + 16].float(), x[:, 16 * g : 16 * g + 16]
        g = (g + shift) % scales.shape[0]
        z, s = zeros[g].float() + plus, scales[g]
        s = narrow(s, kind) if kind else s
        if part == "late":  # the zero is taken off after the scale
            out = out + at @ (c * s - z)
        elif half:
            out = out + at @ narrow(c * s - z * s, bf)
        else:
            out = out + ((at @ c) - (at.sum(-1, keepdim=True) * z if fold else 0)) * s
    return out


add(
    "int4_product",
    int4_product,
    lambda d: (heavy(d, 12, 80), d.ints(16, 80, 48), d.rand(5, 48) * 0.02 + 0.005, d.ints(5, 5, 48) + 6),
    int4_kernel,
    right={"zeros by the sum of the inputs": {}, "in double": wide(int4_product)},
    wrong={
        "the zero point is one more": {"plus": 1},
        "the zero point is left out": {"fold": False},
        "the zero is taken off after the scale": {"part": "late"},
        "a group takes the scale and zero of the next": {"shift": 1},
        "weights go to the product in bf16": {"half": True},
    },
)


def lora(x, w, a, b, which):
    low = torch.einsum("tk,tkr->tr", x, a[which])
    return x @ w + 2.0 * torch.einsum("tr,trn->tn", low, b[which])


def lora_kernel(x, w, a, b, which, alpha=2.0, same=False, shift=0, rank=None, kind=None, base=True):
    out = x @ w if base else torch.zeros(x.shape[0], w.shape[1])
    for i in range(a.shape[0]):
        rows = (which == i).nonzero()[:, 0]
        low = split(x[rows], a[(i + shift) % a.shape[0]], 20)
        low = narrow(low, kind) if kind else low
        low = low[:, :rank] if rank else low
        out[rows] = out[rows] + alpha * (low @ b[0 if same else i][: low.shape[1]])
    return out


add(
    "lora_rows",
    lora,
    lambda d: (d(40, 60), d(60, 50, scale=0.1), d(4, 60, 8, scale=0.1), d(4, 8, 50, scale=0.1), d.ints(4, 40)),
    lora_kernel,
    right={"an adapter at a time": {}, "in double": wide(lora)},
    wrong={
        "alpha is not divided by the rank": {"alpha": 16.0},
        "the second factor is the first adapter's": {"same": True},
        "the first factor is the next adapter's": {"shift": 1},
        "the last two of the rank are lost": {"rank": 6},
        "the low rank's values are rounded to bf16": {"kind": bf},
    },
)


def swiglu(x, w1, w3, w2):
    return (F.silu(x @ w1) * (x @ w3)) @ w2


def swiglu_kernel(x, w1, w3, w2, swap=False, act="silu", kind=None, step=16, cut=None, lost=(), beta=1.0):
    g, u = split(x, w1, step), split(x, w3, step)
    g, u = (u, g) if swap else (g, u)
    g, u = (g.clamp(max=cut), u.clamp(-cut, cut)) if cut else (g, u)
    s = F.gelu(g) if act == "gelu" else g * torch.sigmoid(beta * g)
    h = s * u
    h = narrow(h, kind) if kind else h
    return split(h, w2, step, lost=lost)


add(
    "swiglu_mlp",
    swiglu,
    lambda d: (heavy(d, 20, 48), d(48, 104, scale=0.2), d(48, 104, scale=0.2), d(104, 40, scale=0.1)),
    swiglu_kernel,
    right={"sums by 16": {}, "sums by 40": {"step": 40}, "in double": wide(swiglu)},
    wrong={
        "gate and up are exchanged": {"swap": True},
        "the activation is gelu": {"act": "gelu"},
        "the sigmoid has 1.702": {"beta": 1.702},
        "the hidden values are kept in fp16": {"kind": hf},
        "values are clamped at 7": {"cut": 7.0},
        "the last tile of the hidden dimension is lost": {"lost": (6,)},
    },
)


def bias_gelu(x, w, b):
    return F.gelu(x @ w.T + b)


def tanh_gelu(z):
    return 0.5 * z * (1 + torch.tanh(0.7978845608 * (z + 0.044715 * z**3)))


def bias_gelu_kernel(x, w, b, tanh=False, late=False, parts=1, twice=False, cast=None, erf=True):
    n = x.shape[-1] // parts
    z = sum(
        cast(x[:, n * i : n * i + n]) @ cast(w[:, n * i : n * i + n]).T
        if cast
        else x[:, n * i : n * i + n] @ w[:, n * i : n * i + n].T + (b if twice else 0)
        for i in range(parts)
    )
    z = z if late or twice else z + b
    y = tanh_gelu(z) if tanh else z * 0.5 * torch.erfc(-z * 0.5**0.5)
    return y + b if late else y


add(
    "bias_gelu",
    bias_gelu,
    lambda d: (d(32, 256), d(48, 256, scale=0.08), d(48, scale=0.5)),
    bias_gelu_kernel,
    right={"four parts of the sum": {"parts": 4}, "by erfc": {}, "in double": wide(bias_gelu)},
    wrong={
        "the approximation by tanh": {"tanh": True},
        "the bias comes after the activation": {"late": True},
        "each of four parts adds the bias": {"parts": 4, "twice": True},
        "factors are cut to tf32": {"cast": tf32},
    },
)


def triangle(a, b):
    return torch.einsum("bikc,bjkc->bijc", a, b)


def triangle_kernel(a, b, inward=False, swap=False, step=8, half=False, lost=()):
    a, b = (a.transpose(1, 2), b.transpose(1, 2)) if inward else (a, b)
    a, b = (b, a) if swap else (a, b)
    a, b = a.permute(0, 3, 1, 2).contiguous(), b.permute(0, 3, 2, 1).contiguous()
    return split(a, b, step, bf if half else None, lost).permute(0, 2, 3, 1)


add(
    "triangle_update",
    triangle,
    lambda d: (d(1, 28, 28, 8), d(1, 28, 28, 8)),
    triangle_kernel,
    right={"channels first, sums by 8": {}, "sums by 5": {"step": 5}},
    wrong={
        "incoming edges for outgoing ones": {"inward": True},
        "i and j are exchanged": {"swap": True},
        "sums are kept in bf16": {"half": True},
        "the last four of the inner index are lost": {"lost": (3,)},
    },
)


def int8_product(xq, wq, xs, ws, zp):
    acc = (xq.long() - zp.long()[:, None]) @ wq.long().T
    return acc.to(xs.dtype) * xs[:, None] * ws[None]


def int8_kernel(xq, wq, xs, ws, zp, comp="rows", tensor=False, short=False, kind=None):
    acc = xq.long() @ wq.long().T
    if short:
        acc = acc.clamp(-32768, 32767)
    if comp == "rows":
        acc = acc - zp.long()[:, None] * wq.long().sum(1)[None]
    elif comp == "plus":
        acc = acc + zp.long()[:, None] * wq.long().sum(1)[None]
    elif comp == "first":
        acc = acc - zp.long()[:1, None] * wq.long().sum(1)[None]
    elif comp == "short":
        acc = acc - zp.long()[:, None] * wq[:, :-1].long().sum(1)[None]
    scale = xs[:, None] * (ws.max() if tensor else ws[None])
    return acc.float() * (narrow(scale, kind) if kind else scale)


add(
    "int8_product",
    int8_product,
    lambda d: (
        d.ints(256, 24, 200).sub(128).to(torch.int8),
        d.ints(255, 32, 200).sub(127).to(torch.int8),
        d.rand(24) * 0.02 + 0.01,
        d.rand(32) * 0.002 + 0.001,
        d.ints(40, 24).sub(10).to(torch.int8),
    ),
    int8_kernel,
    right={"the zero points by the sums of the weights": {}},
    wrong={
        "the zero points are not made up for": {"comp": "none"},
        "the zero points are added": {"comp": "plus"},
        "the first row's zero point serves all": {"comp": "first"},
        "the weights' sums lack the last column": {"comp": "short"},
        "sums saturate at 16 bits": {"short": True},
        "the scale is one for all channels": {"tensor": True},
        "the product of the scales is rounded to bf16": {"kind": bf},
    },
)
