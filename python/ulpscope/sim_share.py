# SPDX-License-Identifier: Apache-2.0
"""Tensors of the simulated device for torch.multiprocessing: what is put into a queue is held by both processes.
Needs of torch how it pickles storages for its queues, and its cache of those that came."""

from __future__ import annotations

import ctypes
import multiprocessing.reduction
import os
from collections.abc import Callable
from typing import Any

import torch
from torch.multiprocessing import reductions

_NEW, _NOT = -1, -2  # of ulpscope_sim/share.h
_lib: Any = None  # use() sets them
_sim: Any = None


def use(lib: ctypes.CDLL, sim: object) -> None:
    """The runtime, and the device's module."""
    global _lib, _sim
    _lib, _sim = lib, sim
    for name in ("usc_sim_shared_fd", "usc_sim_may_move"):
        getattr(lib, name).argtypes = [ctypes.c_void_p]
    lib.usc_sim_may_move.restype = ctypes.c_bool


def register() -> None:
    """From now on queues and pipes of torch.multiprocessing take tensors of the device."""
    multiprocessing.reduction.register(torch.UntypedStorage, _reduce)


def _shared(fd: int, make: Callable[[], torch.UntypedStorage]) -> torch.UntypedStorage:
    """What ``make`` gives, with the one block that it makes over ``fd``."""
    _lib.usc_sim_share_next(fd)
    try:
        return make()
    finally:
        _lib.usc_sim_share_next(_NOT)


def _reduce(storage: torch.UntypedStorage) -> tuple[Any, ...]:
    if storage.device.type != "sim":
        sent: tuple[Any, ...] = reductions.reduce_storage(storage)
        return sent
    index = storage.device.index
    if storage.nbytes() == 0:
        return _receive_empty, (index,)
    _sim.synchronize(index)  # what is to be sent has been computed, and nothing is at it
    if _lib.usc_sim_shared_fd(storage.data_ptr()) < 0:
        if not _lib.usc_sim_may_move(storage.data_ptr()):
            raise RuntimeError(
                "sim: this tensor cannot be sent to another process: a graph holds its memory, or it is part of "
                "another tensor's; send tensor.clone()"
            )
        _shared(_NEW, lambda: storage.resize_(storage.nbytes()))  # moves it; views go with it
    fd = _lib.usc_sim_shared_fd(storage.data_ptr())
    reductions.shared_cache[reductions.fd_id(fd)] = reductions.StorageWeakRef(storage)
    return _receive, (multiprocessing.reduction.DupFd(fd), storage.nbytes(), index)


def _receive_empty(index: int) -> torch.UntypedStorage:
    return torch.UntypedStorage(0, device=f"sim:{index}")


def _receive(sent: Any, size: int, index: int) -> torch.UntypedStorage:
    from . import sim  # noqa: F401 - a process that was just started has no device yet

    try:
        fd = sent.detach()
    except (OSError, EOFError) as problem:
        raise RuntimeError(
            "sim: the process that sent this tensor has ended before it was received; keep it until the receiver "
            "has said that it has it"
        ) from problem
    try:
        key = reductions.fd_id(fd)
        storage = reductions.storage_from_cache(torch.UntypedStorage, key)
        if storage is None:
            storage = _shared(fd, lambda: torch.UntypedStorage(size, device=f"sim:{index}"))
            reductions.shared_cache[key] = reductions.StorageWeakRef(storage)
        return storage
    finally:
        os.close(fd)
