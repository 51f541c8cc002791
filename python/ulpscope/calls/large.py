# SPDX-License-Identifier: Apache-2.0
"""Memory for large tensors of one run, on large pages: most of what a run on a large tensor costs is the system's
handing out of small ones."""

from collections.abc import Sequence

import torch

from .. import _core

LARGE = 1 << 22  # bytes


def empty(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """torch.empty."""
    return on_large_pages(torch.empty(shape, dtype=dtype))


def on_large_pages(made: torch.Tensor) -> torch.Tensor:
    """A tensor that nobody has written yet."""
    if made.nbytes >= LARGE:
        _core.large_pages(made.data_ptr(), made.nbytes)
    return made


def cast(x: torch.Tensor, dtype: torch.dtype, copy: bool = False) -> torch.Tensor:
    """x.to(dtype, copy=copy)."""
    if (x.dtype is dtype and not copy) or x.numel() * dtype.itemsize < LARGE or not x.is_contiguous():
        return x.to(dtype, copy=copy)
    return on_large_pages(torch.empty_like(x, dtype=dtype)).copy_(x)
