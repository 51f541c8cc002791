# SPDX-License-Identifier: Apache-2.0
"""A limit on the memory of a reference. One that wants more than the machine has gets an
allocation error, which becomes a verdict, instead of taking the machine along. Only a
worker of a check calls this: the limit is the whole process's. Linux."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import time

from .. import _core

PR_SET_PDEATHSIG = 1
PAGE = resource.getpagesize()
SHARE = 0.9  # of what is free
FRESH = 0.1  # seconds for which a look at what is free counts
ADDRESSES = 1 << 30  # of stacks and arenas, which take room but no memory
free = _core.memory_free
_free, _hard = resource.getrlimit(resource.RLIMIT_AS)
_seen = [-FRESH, 0]  # when, and what was free
_statm = [None, None]  # of which process, and the descriptor
_room = [0]  # bytes that the call in work may take; 0: what is free is all that counts


def share(room: int) -> None:
    """Bounds what the next calls may take besides."""
    _room[0] = room


def limit(phase: str) -> None:
    """Bounds the address space while references are computed, and frees it for the device,
    whose drivers map far more than they use."""
    most = _free
    if phase == "reference":
        now = time.monotonic()
        if now - _seen[0] >= FRESH:
            _seen[:] = now, free()
        bounds = [b for b in (SHARE * _seen[1], _room[0]) if b]
        most = int(_mapped() + ADDRESSES + min(bounds)) if bounds else _free
        if _free != resource.RLIM_INFINITY:
            most = min(most, _free)
    resource.setrlimit(resource.RLIMIT_AS, (most, _hard))


def _mapped():
    """Bytes of address space that this process has mapped. The file stays open: it is asked at
    every call. That of a parent tells of the parent."""
    if _statm[0] != os.getpid():
        _statm[:] = os.getpid(), os.open("/proc/self/statm", os.O_RDONLY)
    return int(os.pread(_statm[1], 64, 0).split()[0]) * PAGE


def die_with_parent() -> None:
    """A killed coordinator takes its workers along, also those that hang (Linux)."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        pass
