# SPDX-License-Identifier: Apache-2.0
"""Kernels on the simulated device against loops in C++, of the same compiler with the same flags: element by element
on 10^7 floats, and sums of blocks of 256 threads with 8 barriers (64 numbers for each thread) against the serial sum.
Processor time, the least of five turns."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from ulpscope import extension
from ulpscope.program import glue
from ulpscope.program.lowered import Lowering

SOURCE = Path(__file__).with_name("grid.cu")
MOST = {"element by element, 10^7": 3.0, "block sums, 8 barriers": 12.0}


def measured(folder: Path) -> list[float]:
    lowering = Lowering(folder, [])
    flags = [f for f in extension._flags(races=False) if f != "-DULPSCOPE_SIM_TORCH"]
    include = [f"-I{glue.PACKAGE / 'glue' / 'grid'}", f"-I{glue.PACKAGE / 'include'}"]
    program = folder / "grid"
    sources = [lowering.source(SOURCE), str(glue.PACKAGE / "glue" / "grid" / "grid_module.cc")]
    subprocess.run(
        ["g++", "-std=c++17", "-fPIC", "-w", *flags, *include, *sources, *extension._link_flags(), "-o", program],
        check=True,
    )
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        grid, loop, tree, serial = measured(Path(folder))
    ratios = dict(zip(MOST, (grid / loop, tree / serial)))
    for name, ratio in ratios.items():
        print(f"{name}: {ratio:.2f} of a loop's time, at most {MOST[name]:g} wanted")
    print(f"({1e9 * grid / 1e7:.2f} ns a thread; {1e6 * tree / (1e7 / 256 / 64):.0f} us a block)")
    return int(any(ratio > MOST[name] for name, ratio in ratios.items()))


if __name__ == "__main__":
    sys.exit(main())
