# SPDX-License-Identifier: Apache-2.0
"""Operators of a program's own, for test_api_check: what they compute no dispatcher sees."""

import torch

import ulpscope


@ulpscope.operator(mutates=["out"])
def rotate(x, out, by=1):
    with torch._C._AutoDispatchBelowAutograd():
        out.copy_(torch.roll(x, by) * 2)


@ulpscope.operator(mutates=["out"])
def silent(x, out):
    out.numpy()[:] = x.numpy() * 2
    return out
