# SPDX-License-Identifier: Apache-2.0
"""The bytes of a call's storages. Large ones of a trace are read when they are needed, whole or
in parts, and are let go where their memory is wanted for something else. Serves `replay`,
`read_call`, `executors.device` and those that judge in pieces.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .. import _core

LARGE = 1 << 26  # bytes of a storage, from which it is read when it is needed
CHUNK = 1 << 26  # bytes that are looked at together


class Contents(dict[int, torch.Tensor]):
    """Storage -> uint8 tensor with its bytes, which nobody may write. What `later` was told of
    is read when it is asked for."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        # storage -> (bytes, function: first byte, tensor to fill)
        self._far: dict[int, tuple[int, Callable[[int, torch.Tensor], None]]] = {}
        if given and isinstance(given[0], Contents):
            self._far = dict(given[0]._far)

    def copy(self) -> Contents:
        return Contents(self)

    def __reduce__(
        self,
    ) -> tuple[type[Contents], tuple[dict[int, torch.Tensor]]]:  # what goes to another process goes there whole
        return Contents, ({storage: self[storage] for storage in {**self, **self._far}},)

    def later(self, storage: int, size: int, fill: Callable[[int, torch.Tensor], None]) -> None:
        """Says how a storage of `size` bytes is read: `fill(first, tensor)`."""
        self._far[storage] = size, fill

    def __contains__(self, storage: object) -> bool:
        return super().__contains__(storage) or storage in self._far

    def __missing__(self, storage: int) -> torch.Tensor:
        found = self._read(storage, 0, self._far[storage][0])
        super().__setitem__(storage, found)
        return found

    def __setitem__(self, storage: int, content: torch.Tensor) -> None:
        self._far.pop(storage, None)
        super().__setitem__(storage, content)

    def _read(self, storage: int, first: int, last: int) -> torch.Tensor:
        out = torch.empty(last - first, dtype=torch.uint8)
        self._far[storage][1](first, out)
        return out

    def is_far(self, storage: int) -> bool:
        """Whether it would have to be read."""
        return storage in self._far and not super().__contains__(storage)

    def size(self, storage: int) -> int:
        """Its bytes."""
        return self._far[storage][0] if storage in self._far else int(self[storage].numel())

    def part(self, storage: int, first: int, last: int) -> torch.Tensor:
        """Bytes `first` to `last` of a storage; not for writing."""
        return self._read(storage, first, last) if self.is_far(storage) else self[storage][first:last]

    def fresh(self, storage: int) -> torch.Tensor:
        """All bytes of a storage, which nobody else holds."""
        if self.is_far(storage):
            return self._read(storage, 0, self.size(storage))
        return self[storage].clone()

    def chunks(self, storage: int) -> Iterator[tuple[int, torch.Tensor]]:
        """Yields (first byte, bytes) until a storage is through."""
        size = self.size(storage)
        for first in range(0, size, CHUNK):
            yield first, self.part(storage, first, min(first + CHUNK, size))

    def let_go(self) -> None:
        """Forgets what can be read again."""
        for storage in self._far:
            self.pop(storage, None)

    def drop(self, storage: int) -> None:
        """Forgets a storage for good."""
        self.pop(storage, None)
        self._far.pop(storage, None)


class Reader:
    """Reads blobs of a trace: called as a function it maps one, `fill` copies a part of it."""

    def __init__(self, trace: _core.Trace) -> None:
        self._trace = trace

    def __call__(self, blob: int) -> memoryview:
        return self._trace.blob(blob)

    def fill(self, blob: int, first: int, tensor: torch.Tensor) -> None:
        """Fills a tensor of bytes with those of a blob from `first` on."""
        self._trace.read(blob, first, memory_of(tensor))

    def has(self, blob: int, size: int) -> bool:
        """Whether a blob has so many bytes. Looks at all of it once: it is what was written."""
        from .. import _core

        with contextlib.suppress(_core.ArgError):
            self.fill(blob, size - 1, torch.empty(1, dtype=torch.uint8))
            return True
        return False


def memory_of(tensor: torch.Tensor) -> Any:
    """The memory of a contiguous tensor on the CPU, as a buffer."""
    return (ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr())


@dataclass(frozen=True)
class Brief:
    """What stands for the content of a tensor: equal where dtype, shape and all bits are."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    order: tuple[int, ...]  # of the dimensions, in which the elements are taken
    digest: str

    def is_of(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor, of any strides, has this content."""
        return (self.dtype, self.shape) == (tensor.dtype, tuple(tensor.shape)) and (self == brief(tensor, self.order))


def brief(tensor: torch.Tensor, order: tuple[int, ...] | None = None) -> Brief:
    """The Brief of a tensor on the CPU; no copy is made where it is dense in that order, which
    is that of its own memory unless one is given."""
    from .. import _core

    order = order or tuple(sorted(range(tensor.dim()), key=lambda d: -tensor.stride(d)))
    flat = tensor.permute(order).contiguous()
    return Brief(tensor.dtype, tuple(tensor.shape), order, _core.Trace.hash(memory_of(flat)))
