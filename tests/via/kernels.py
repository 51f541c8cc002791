# SPDX-License-Identifier: Apache-2.0
"""Functions that launch Triton kernels."""

import torch
import triton
import triton.language as tl

BLOCK = 64


@triton.jit
def add_kernel(x, y, out, n, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def scale_kernel(x, n, factor, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(x + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)


@triton.jit
def softmax_kernel(x, out, n, block: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, block)
    e = tl.exp(tl.load(x + row * n + i, mask=i < n, other=float("-inf")))
    tl.store(out + row * n + i, e / tl.sum(e), mask=i < n)


@triton.jit
def assembly_kernel(x, out, n, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    v = tl.load(x + i, mask=i < n)
    v = tl.inline_asm_elementwise("neg.f32 $0, $1;", "=f,f", [v], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(out + i, v, mask=i < n)


def add(x, y):
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, out, x.numel(), BLOCK)
    return out


def scale_(x):
    scale_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, x.numel(), 3.0, BLOCK)
    return x


def softmax(x):
    out = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK)
    return out


def of_the_gpu(x):
    out = torch.empty_like(x)
    assembly_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, out, x.numel(), BLOCK)
    return out


@triton.jit
def far_kernel(x, out, block: tl.constexpr):
    i = tl.arange(0, block)
    tl.store(out + i, tl.load(x + i + (1 << 40)))


def far_away(x):
    out = torch.empty_like(x)
    far_kernel[(1,)](x, out, BLOCK)
    return out


def picky(x):
    raise ValueError("this kernel wants 7 rows")


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return scale_(x.clone())

    @staticmethod
    def backward(ctx, gradient):
        return scale_(gradient.clone()) * ctx.factor, None


def scaled(x):
    return Scaled.apply(x, 1)


def scaled_wrongly(x):
    return Scaled.apply(x, 2)
