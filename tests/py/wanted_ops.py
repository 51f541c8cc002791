# SPDX-License-Identifier: Apache-2.0
"""Operators of which a case asks what it asks of few: a gradient that tied maxima share, a sum over
many steps, kernels that take any tensor for rows. For `--import`."""

import torch

import ulpscope

_library = torch.library.Library("wanted", "DEF")
_library.define("amax_backward(Tensor grad, Tensor x) -> Tensor")
_library.define("floors(Tensor x) -> Tensor")
_library.define("twice(Tensor x) -> Tensor")
_library.define("noisy(Tensor x) -> Tensor")


def amax_backward(grad, x):
    tied = x == x.amax(-1, keepdim=True)
    return tied * grad / tied.sum(-1, keepdim=True)


def floors(x):
    return (64 * x).floor().sum(-1)


_library.impl("amax_backward", amax_backward, "CPU")
_library.impl("floors", floors, "CPU")


def twice(x):
    return 2 * torch.empty(0, dtype=x.dtype).set_(x.untyped_storage(), 0, x.shape)


_library.define("halves(Tensor x) -> (Tensor, Tensor)")
_library.impl("halves", lambda x: (x.exp(), x + 1), "CPU")
ulpscope.reference.register("wanted::halves")(lambda x: (x.exp(), None))  # nothing is promised of the second


_turns = iter(range(1 << 30))
_library.impl("twice", twice, "CPU")
_library.impl("noisy", lambda x: 2 * x if x.is_contiguous() else x * next(_turns), "CPU")


def gated(a, b):
    """Rounded to 16 bits between its two steps."""
    return torch.nn.functional.silu(a) * b


_library.define("gated(Tensor a, Tensor b) -> Tensor")
_library.impl("gated", gated, "CPU")
