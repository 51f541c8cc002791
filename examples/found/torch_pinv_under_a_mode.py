# SPDX-License-Identifier: Apache-2.0
"""torch 2.13: linalg.pinv of complex numbers is another matrix as soon as any TorchDispatchMode is
active, also one that only passes calls on; torch.compile runs its graphs under one.

Issue: pytorch/pytorch#198118 (open); linalg.polar and matrix_sqrth as well. The lazy conjugation
of a factor is not seen by what the kernel calls."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import ulpscope


class PassesOn(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


torch.manual_seed(0)
x = torch.randn(5, 5, dtype=torch.complex64)
with PassesOn():
    got = torch.linalg.pinv(x)
print("judged:", ulpscope.judge_call(torch.linalg.pinv, (x,), {}, got))
print("plain: ", ulpscope.judge_call(torch.linalg.pinv, (x,), {}, torch.linalg.pinv(x)))
print("largest element of x @ pinv(x) - 1:", float((x @ got - torch.eye(5)).abs().max()))
