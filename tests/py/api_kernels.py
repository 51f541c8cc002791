# SPDX-License-Identifier: Apache-2.0
"""Operators of a program's own, for test_api_check: what they compute no dispatcher sees."""

import torch

import ulpscope
import ulpscope.reference


@ulpscope.operator(mutates=["out"])
def rotate(x, out, by=1):
    with torch._C._AutoDispatchBelowAutograd():
        out.copy_(torch.roll(x, by) * 2)


@ulpscope.operator(mutates=["out"])
def silent(x, out):
    out.numpy()[:] = x.numpy() * 2
    return out


class Kernel:
    """Launched as Triton's kernels are, `kernel[grid](...)`, and as they does nothing on a CPU."""

    def __init__(self, body):
        self.body = body

    def __getitem__(self, grid):
        def launch(*args):
            if any(isinstance(a, torch.Tensor) and a.device.type == "cpu" for a in args):
                raise ValueError("Pointer argument (at 0) cannot be accessed from Triton (cpu tensor?)")
            for program in range(*grid):
                self.body(program, *args)

        return launch


@Kernel
def scale_kernel(program, x, out, n, by):
    here = slice(program * 64, min(program * 64 + 64, n))
    out[here].copy_(x[here] * by)


@ulpscope.operator(mutates=["out"])
def scaled(x, out, by):
    scale_kernel[((x.numel() + 63) // 64,)](x, out, x.numel(), by)


@ulpscope.reference.register("api_kernels.scaled")
def scaled_by_torch(x, out, by):
    out.copy_(x * by)
