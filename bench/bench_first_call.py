# SPDX-License-Identifier: Apache-2.0
"""Whether fresh processes give one and the same reference: oneMKL chooses the kernel of a vector function at its first
call, and a first call by several threads may be of low accuracy (pytorch issue 188792). Forks so many processes
off one that has loaded torch and computed nothing, lets each compute every function on several threads, and counts
the answers that differ in a bit; beside it the same without the first calls that a worker makes.

usage: bench_first_call.py [N [THREADS]]   N fresh processes, default 10,000; exit code 1 where two differ
"""

from __future__ import annotations

import collections
import hashlib
import os
import sys
import time

import torch

from ulpscope.executors import warm

ELEMENTS = 1 << 16  # so many that several threads share them


def computed(threads: int, warmed: bool) -> bytes:
    """A hash of what every function gives on all threads."""
    torch.set_num_threads(threads)
    if warmed:
        warm.warm()
    said = hashlib.blake2b(digest_size=16)
    for dtype in (torch.float32, torch.float64):
        x = torch.linspace(0.01, 0.99, ELEMENTS, dtype=torch.float64).to(dtype)
        for name in warm.FUNCTIONS:
            said.update(getattr(torch, name)(x).numpy().tobytes())
        said.update(torch.pow(x, x).numpy().tobytes())
    return said.digest()


def forked(threads: int, warmed: bool) -> bytes:
    """The same in a process of its own."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, computed(threads, warmed))
        finally:
            os._exit(0)
    os.close(write)
    said = os.read(read, 64)
    os.close(read)
    os.waitpid(child, 0)
    return said


def counted(n: int, threads: int, warmed: bool) -> collections.Counter:
    return collections.Counter(forked(threads, warmed) for _ in range(n))


def main(arguments: list[str]) -> int:
    n = int(arguments[0]) if arguments else 10_000
    threads = int(arguments[1]) if len(arguments) > 1 else max(2, os.cpu_count() or 2)
    cold = min(n, 1000)
    print(f"{'':10} {'processes':>10} {'threads':>8} {'answers':>8} {'differ':>8} {'ms each':>8}")
    for name, warmed, count in (("warmed", True, n), ("cold", False, cold)):
        start = time.monotonic()
        found = counted(count, threads, warmed)
        differ = count - max(found.values())
        each = (time.monotonic() - start) / count * 1000
        print(f"{name:10} {count:10,} {threads:8} {len(found):8} {differ:8} {each:8.1f}")
        if warmed:
            bad = len(found) > 1 or b"" in found
    return int(bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
