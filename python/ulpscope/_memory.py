# SPDX-License-Identifier: Apache-2.0
"""A limit on the memory of a reference. One that wants more than the machine has gets an
allocation error, which becomes a verdict, instead of taking the machine along. Only a
worker of a check calls this: the limit is the whole process's. Linux."""

import os
import resource
import time

PAGE = resource.getpagesize()
SHARE = 0.9  # of what is free
FRESH = 0.1  # seconds for which a look at what is free counts
_free, _hard = resource.getrlimit(resource.RLIMIT_AS)
_seen = [-FRESH, 0]  # when, and what was free


def limit(phase):
    """Bounds the address space while references are computed, and frees it for the device,
    whose drivers map far more than they use."""
    most = _free
    if phase == "reference":
        now = time.monotonic()
        if now - _seen[0] >= FRESH:
            _seen[:] = now, _available()
        room = _seen[1]
        most = int(_mapped() + SHARE * room) if room else _free
        if _free != resource.RLIM_INFINITY:
            most = min(most, _free)
    resource.setrlimit(resource.RLIMIT_AS, (most, _hard))


def _mapped():
    """Bytes of address space that this process has mapped."""
    fd = os.open("/proc/self/statm", os.O_RDONLY)
    try:
        return int(os.read(fd, 64).split()[0]) * PAGE
    finally:
        os.close(fd)


def _available():
    """Bytes that may be allocated without swapping, 0 where nobody tells."""
    try:
        with open("/proc/meminfo") as f:
            fields = dict(line.split(":", 1) for line in f)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return 0
