# SPDX-License-Identifier: Apache-2.0
"""A process's first calls of the CPU's vector functions, made by one thread on one element before anything is judged:
oneMKL chooses a function's kernel at its first call, and a first call by several threads may return what another,
less accurate one gives (pytorch issue 188792). Serves whatever runs a reference."""

from __future__ import annotations

import contextlib

import torch

from ..calls.torch_private import DisableTorchFunction, disable_current_modes

FUNCTIONS = (
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "ceil",
    "cos",
    "cosh",
    "digamma",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "frac",
    "i0",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "logit",
    "reciprocal",
    "round",
    "rsqrt",
    "sigmoid",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
)
OF_TWO = ("atan2", "fmod", "hypot", "pow", "remainder", "xlogy")
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.complex128)
_done = []


def warm() -> None:
    """Calls each of them once in this process; what a fork inherits is warm already."""
    if _done:
        return
    _done.append(True)
    with disable_current_modes(), DisableTorchFunction(), torch.no_grad():
        for dtype in DTYPES:
            x = torch.tensor([0.5], dtype=dtype, device="cpu")
            for name in FUNCTIONS:
                with contextlib.suppress(RuntimeError, NotImplementedError):  # none of this dtype
                    getattr(torch, name)(x)
            for name in OF_TWO:
                with contextlib.suppress(RuntimeError, NotImplementedError):
                    getattr(torch, name)(x, x)
