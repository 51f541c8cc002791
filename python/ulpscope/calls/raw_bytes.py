# SPDX-License-Identifier: Apache-2.0
"""The bytes of tensors: seen as elements, and held against each other bit by bit."""

from __future__ import annotations


import torch


def fit(raw: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Bytes seen as elements of `dtype`; bytes of a half element at the end are left out."""
    whole = raw.numel() // dtype.itemsize * dtype.itemsize
    return (raw if whole == raw.numel() else raw[:whole]).view(dtype)


def equal_bytes(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two flat tensors of bytes hold the same: torch compares element by element,
    so eight at a time."""
    if a.numel() % 8 == 0 and (a.storage_offset() | b.storage_offset()) % 8 == 0:
        a, b = a.view(torch.int64), b.view(torch.int64) if b.numel() == a.numel() else b
    return bool(torch.equal(a, b))


WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def same_bytes(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors, of any strides, have one form and hold the same bits. Copies
    neither."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    a, b = ((torch.view_as_real(t) if t.is_complex() else t) for t in (a, b))
    if a.is_contiguous() and b.is_contiguous():
        return equal_bytes(raw_bytes(a), raw_bytes(b))
    word = WORDS[a.dtype.itemsize]
    return bool(torch.equal(a.view(word), b.view(word)))


def raw_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor's elements, in their order. To torch one element is contiguous whatever
    its stride, and with a stride of 0 it is not to be seen as bytes."""
    whole = tensor.resolve_conj().resolve_neg().contiguous()
    return whole.as_strided((whole.numel(),), (1,)).view(torch.uint8)
