# SPDX-License-Identifier: Apache-2.0
"""Set U, the fifteenth: products: grouped, of scaled blocks, of few bits, split and with an epilogue."""

import torch
import torch.nn.functional as F

from .blind import bf, hf
from .blind_fifteenth_base import add, hold, tiled
from .blind_fourteenth_base import up, wide

# Rows of experts one after the other, each with its own matrix.


def grouped(x, w, ends):
    which = torch.bucketize(torch.arange(x.shape[0]), ends, right=True)
    return (up(x)[:, None] @ up(w)[which])[:, 0].to(x.dtype)


def grouped_kernel(x, w, ends, roll=0, round_up=0, tail=0, turned=False, **how):
    out, begin = torch.zeros(x.shape[0], w.shape[-1]), 0
    for g, end in enumerate(ends.tolist()):
        m = w[(g + roll) % len(w)]
        stop = min(-(-end // round_up) * round_up, len(x)) if round_up else end
        stop = stop - (stop - begin) % tail if tail else stop
        out[begin:stop] = tiled(x[begin:stop], m.mT if turned else m, **how)
        begin = stop if round_up else end
    return out


add(
    "grouped_product",
    grouped,
    lambda d: (d(75, 64, dtype=bf), d(5, 64, 64, dtype=bf, scale=0.2), torch.tensor([20, 20, 41, 60, 75])),
    grouped_kernel,
    dtype=bf,
    right={"a product a group, blocks of 32": {}, "blocks of 16": {"step": 16}},
    wrong={
        "groups take the next one's matrix": {"roll": 1},
        "ends of groups are rounded up to tiles of 8": {"round_up": 8},
        "the rows after whole tiles of 8 are lost": {"tail": 8},
        "matrices are transposed": {"turned": True},
        "hides: the accumulator is in bfloat16": {"acc": bf, "step": 8},
    },
)

# fp8 with a scale for each 32 of a row of x, and for each 32 by 32 of w.


def eight(x, sx, w, sw, residual):
    a = up(x) * sx.repeat_interleave(32, 1)
    b = up(w) * sw.repeat_interleave(32, 0).repeat_interleave(32, 1)
    return (a @ b.mT + up(residual)).to(residual.dtype)


def eight_kernel(x, sx, w, sw, residual, turned=False, first=False, only=None, acc=None, lag=0, lost=()):
    total = residual
    for b in range(x.shape[1] // 32):
        if b in lost:
            continue
        part = x[:, b * 32 : b * 32 + 32] @ w[:, b * 32 : b * 32 + 32].mT
        left = sx[:, [0 if first else (b + lag) % sx.shape[1]]]
        right = (sw.mT if turned else sw)[:, b].repeat_interleave(32)[None]
        total = hold(total + part * (1 if only == "w" else left) * (1 if only == "x" else right), acc)
    return total


eights = torch.float8_e4m3fn
add(
    "fp8_scaled_blocks",
    eight,
    lambda d: (
        d(40, 128, scale=30.0).clamp(-440, 440).to(eights),
        d.rand(40, 4) * 0.02 + 0.001,
        d(128, 128, scale=30.0).clamp(-440, 440).to(eights),
        d.rand(4, 4) * 0.02 + 0.001,
        d(40, 128, dtype=bf),
    ),
    eight_kernel,
    dtype=bf,
    right={"blocks of 32, scaled as they are added": {}},
    wrong={
        "scales of the weight's blocks are transposed": {"turned": True},
        "all blocks of a row take its first scale": {"first": True},
        "a row's scales are one block late": {"lag": -1},
        "the weight's scales are left out": {"only": "x"},
        "the rows' scales are left out": {"only": "w"},
        "the last block of the inner dimension is lost": {"lost": (3,)},
    },
)

# mxfp4: two codes a byte, e8m0 scales for each 32.

FOUR = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def four(x, codes, scales):
    lut = FOUR.to(x.dtype)
    w = torch.stack([lut[(codes & 15).long()], lut[(codes >> 4).long()]], -1).flatten(-2)
    e = torch.exp2(scales.to(x.dtype) - 127).repeat_interleave(32, 1)
    return x @ (w * e).mT


def four_kernel(x, codes, scales, swap=False, bias=127, block=32, lut=FOUR, halves=False, kind=None, top=None):
    lo, hi = lut[(codes & 15).long()], lut[(codes >> 4).long()]
    w = torch.cat([lo, hi], -1) if halves else torch.stack([hi, lo] if swap else [lo, hi], -1).flatten(-2)
    scales = scales.clamp(max=top) if top else scales
    e = torch.exp2(scales.float() - bias)
    e = e.repeat_interleave(block, 1)
    e = torch.cat([e, e], 1)[:, : w.shape[1]]
    return tiled(hold(x, kind), (w * e).mT)


unsigned = FOUR.clone()
unsigned[8:] = FOUR[:8]
add(
    "mxfp4_weights",
    four,
    lambda d: (d(24, 128), d.ints(256, 64, 64).to(torch.uint8), (d.ints(5, 64, 4) + 122).to(torch.uint8)),
    four_kernel,
    right={"tiles of 32 of the inner dimension": {}, "in double": wide(four)},
    wrong={
        "the two codes of a byte are swapped": {"swap": True},
        "low codes are the first half of a row, high codes the second": {"halves": True},
        "the exponent's bias is 128": {"bias": 128},
        "a scale holds for 16 values": {"block": 16},
        "the codes' sign is left out": {"lut": unsigned},
        "activations are rounded to bfloat16": {"kind": bf},
    },
)

# nvfp4: fp8 scales for each 16 and one float32 for all.


def nvfour(x, codes, scales, whole):
    lut = FOUR.to(up(x).dtype)
    w = torch.stack([lut[(codes & 15).long()], lut[(codes >> 4).long()]], -1).flatten(-2)
    return (up(x) @ (w * up(scales).repeat_interleave(16, 1)).mT * whole).to(x.dtype)


def nv_kernel(x, codes, scales, whole, block=16, over=False, roll=0, none=False):
    lo, hi = FOUR[(codes & 15).long()], FOUR[(codes >> 4).long()]
    w = torch.stack([lo, hi], -1).flatten(-2)
    s = scales.roll(roll, 0).repeat_interleave(block, 1)
    w = w * torch.cat([s] * 2, 1)[:, : w.shape[1]] * (1 if none else 1 / whole if over else whole)
    return tiled(x, w.mT)


add(
    "nvfp4_weights",
    nvfour,
    lambda d: (
        d(16, 96, dtype=hf),
        d.ints(256, 48, 48).to(torch.uint8),
        (d.rand(48, 6) * 8 + 1).to(eights),
        torch.tensor(0.043),
    ),
    nv_kernel,
    dtype=hf,
    right={"weights decoded first, then tiles": {}},
    wrong={
        "a scale holds for 8 values": {"block": 8},
        "it divides by the scale of the whole": {"over": True},
        "the scale of the whole is left out": {"none": True},
        "scales are those of the row before": {"roll": 1},
    },
)

# int4 weights with zero points, groups of 32.


def int4(x, codes, scales, zeros):
    w = torch.stack([codes & 15, codes >> 4], -1).flatten(-2).to(up(x).dtype)
    w = (w - zeros.repeat_interleave(32, 1)) * up(scales).repeat_interleave(32, 1)
    return (up(x) @ w.mT).to(x.dtype)


def int4_kernel(x, codes, scales, zeros, one=0, signed=False, kind=None, group=32, no=False):
    w = torch.stack([codes & 15, codes >> 4], -1).flatten(-2).float()
    w = torch.where(w > 7, w - 16, w) if signed else w
    total = torch.zeros(x.shape[0], w.shape[0])
    for b in range(0, x.shape[1], 32):
        g = b // group
        xs = x[:, b : b + 32]
        zero = 0 if no else zeros[:, g].float() + one
        part = xs @ w[:, b : b + 32].mT - xs.sum(-1, keepdim=True) * zero  # the zero point by the sum of the row
        total = hold(total + part * scales[:, g], kind)
    return total


add(
    "int4_zero_points",
    int4,
    lambda d: (
        d(20, 160, dtype=hf),
        d.ints(256, 56, 80).to(torch.uint8),
        (d.rand(56, 5) * 0.02 + 0.01).to(hf),
        d.ints(16, 56, 5).to(torch.uint8),
    ),
    int4_kernel,
    dtype=hf,
    right={"the zero point is taken off by the row's sum": {}},
    wrong={
        "one is added to the zero points, as older files have it": {"one": 1},
        "codes are read as signed": {"signed": True},
        "zero points are left out": {"no": True},
        "scales hold for groups of 64": {"group": 64},
    },
)

# Codes of 8 bits times codes, a scale a row, a scale a column, a bias.


def int8(x, w, sx, sw, b):
    return (x.to(sx.dtype) @ w.to(sx.dtype).mT) * sx[:, None] * sw + b


def int8_kernel(x, w, sx, sw, b, wide_acc=True, bias=True, mean=False, first=False, kind=None):
    total = x.int()[:, None] * w.int()[None]
    total = total.sum(-1) if wide_acc else total.sum(-1).clamp(-32768, 32767)
    total = hold(total.float(), kind)
    sx = sx.mean().expand_as(sx) if mean else sx
    if first:  # the bias is scaled like a code
        return (total + b) * (sx[:, None] * sw)
    return total * (sx[:, None] * sw) + (b if bias else 0)


add(
    "int8_per_token",
    int8,
    lambda d: (
        (d.ints(255, 32, 200) - 127).to(torch.int8),
        (d.ints(255, 40, 200) - 127).to(torch.int8),
        d.rand(32) * 0.02 + 0.002,
        d.rand(40) * 0.004 + 0.001,
        d(40),
    ),
    int8_kernel,
    right={"in 32 bits, scaled once": {}, "in double": wide(int8)},
    wrong={
        "the accumulator saturates at 16 bits": {"wide_acc": False},
        "all tokens take the mean of their scales": {"mean": True},
        "the bias is scaled, too": {"first": True},
        "the accumulator goes through bfloat16 before it is scaled": {"kind": bf},
    },
)

# Split inner dimension; a stream of tiles that ends within a tile; bias and gelu at the end.


def epilogue(x, w, b):
    return F.gelu(x @ w + b)


def erf_gelu(y):
    return y * 0.5 * torch.erfc(-y * 0.7071067811865476)


def epilogue_kernel(x, w, b, parts=4, lost=(), twice=(), early=False, every=False, tanh=False, kind=None, acc=None):
    total = torch.zeros(x.shape[0], w.shape[1])
    n = x.shape[1]
    cuts = [n * i // parts for i in range(parts + 1)]
    for i, (lo, hi) in enumerate(zip(cuts, cuts[1:])):
        if i in lost:
            continue
        part = tiled(x[:, lo:hi], w[lo:hi], 16) * (2 if i in twice else 1)
        part = F.gelu(part) if early else part + b if every else part
        total = hold(total + hold(part, kind), acc)
    y = total + (0 if every else b)
    return F.gelu(y, approximate="tanh") if tanh else erf_gelu(y)


add(
    "split_inner_gelu",
    epilogue,
    lambda d: (d(48, 264), d(264, 40, scale=0.08), d(40)),
    epilogue_kernel,
    right={"four parts": {}, "seven parts of unequal length": {"parts": 7}, "in double": wide(epilogue)},
    wrong={
        "each part adds the bias": {"every": True},
        "the last part is lost": {"lost": (3,)},
        "a part is added twice": {"twice": (1,)},
        "parts go through bfloat16": {"kind": bf},
        "gelu by its tangent form": {"tanh": True},
        "gelu is taken of each part": {"early": True},
    },
)

# Gate and up in one matrix, columns in turn.


def gated(x, w):
    y = up(x) @ up(w)
    return (F.silu(y[:, 0::2]) * y[:, 1::2]).to(x.dtype)


def gated_kernel(x, w, swap=False, half=False, beta=1.0, acc=None, limit=None, kind=None):
    y = hold(tiled(x, w, 32, acc), kind)
    gate, more = y.chunk(2, -1) if half else (y[:, 0::2], y[:, 1::2])
    gate, more = (more, gate) if swap else (gate, more)
    gate = gate.clamp(max=limit) if limit else gate
    return gate / (1 + torch.exp(-beta * gate)) * more


add(
    "gate_and_up",
    gated,
    lambda d: (d(40, 96, dtype=bf), d(96, 80, dtype=bf, scale=0.2)),
    gated_kernel,
    dtype=bf,
    right={"tiles of 32, a division at the end": {}},
    wrong={
        "gate and up are swapped": {"swap": True},
        "gates are the first half of the columns": {"half": True},
        "the gate's sigmoid has a slope of 1.702": {"beta": 1.702},
        "the gate is clamped at 2": {"limit": 2.0},
        "hides: both go through bfloat16 before they are multiplied": {"kind": bf},
    },
)

# A product with a low-rank addition.


def adapted(x, w, a, b):
    return x @ w.mT + (x @ a.mT) @ b.mT * (16 / a.shape[0])


def adapted_kernel(x, w, a, b, scale=2.0, kind=None, merged=True, tail=0):
    if merged:
        return tiled(x, hold(w + scale * (b @ a), kind).mT)
    rank = a.shape[0] - tail
    return tiled(x, w.mT) + scale * hold(x @ a[:rank].mT, kind) @ b[:, :rank].mT


add(
    "low_rank_addition",
    adapted,
    lambda d: (d(30, 128), d(48, 128, scale=0.1), d(8, 128, scale=0.1), d(48, 8, scale=0.1)),
    adapted_kernel,
    right={"merged into the matrix": {}, "two products, tiles": {"merged": False}, "in double": wide(adapted)},
    wrong={
        "the scale is the rank over alpha": {"scale": 0.5},
        "the scale is divided by the root of the rank": {"scale": 16 / 8**0.5},
        "the merged matrix is rounded to bfloat16": {"kind": bf},
        "the last of the ranks is lost": {"merged": False, "tail": 1},
    },
)
