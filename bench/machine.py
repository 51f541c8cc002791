# SPDX-License-Identifier: Apache-2.0
"""What a benchmark runs on: processor, instruction set, and what one core reads and copies, which bounds
what passes over memory. Run alone it prints that; `run` puts it above every table."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build"))
WORDS = 16 << 20  # of 8 bytes: more than caches hold
ROUNDS = 7


def processor() -> str:
    """Its name, as the system says it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def instruction_set() -> str:
    """Of the kernels: as ULPSCOPE_ISA says, else what the processor has."""
    library = ctypes.CDLL(str(next((BUILD / "python" / "ulpscope").glob("libulpscope.so*"))))
    wanted = os.environ.get("ULPSCOPE_ISA")
    if library.usc_kernels_select(wanted.encode() if wanted else None, None) != 0:
        raise SystemExit(f"bench: this processor has no instruction set {wanted}")
    library.usc_kernels_isa.restype = ctypes.c_char_p
    return library.usc_kernels_isa().decode()


@functools.cache
def bandwidth() -> tuple[float, float]:
    """GB/s that one core reads and copies, of processor time: the best of some rounds."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    here = torch.ones(WORDS, dtype=torch.int64)
    there = torch.empty_like(here)

    def best(work):
        spent = []
        for _ in range(ROUNDS):
            start = time.thread_time()
            work()
            spent.append(time.thread_time() - start)
        return here.nbytes / min(spent) / 1e9

    found = best(here.sum), best(lambda: there.copy_(here))
    torch.set_num_threads(threads)
    return found


def facts() -> dict:
    """All of it, and the day."""
    read, copied = bandwidth()
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "isa": instruction_set(),
        "read_gb_s": round(read, 1),
        "copy_gb_s": round(copied, 1),
        "load": round(os.getloadavg()[0], 1),
        "date": time.strftime("%Y-%m-%d"),
    }


def sentence(of: dict) -> str:
    """The same for people."""
    return (
        f"{of['date']}: {of['processor']}, {of['cores']} cores (load {of['load']}), {of['isa']}; one core reads "
        f"{of['read_gb_s']} GB/s, copies {of['copy_gb_s']}"
    )


if __name__ == "__main__":
    print(sentence(facts()))
