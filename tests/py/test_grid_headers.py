# SPDX-License-Identifier: Apache-2.0
"""What kernels may use of CUDA on the simulated device (glue/grid), without torch: one program, of warps of 32 and
of 64, and once more with each access looked at."""

import os
import subprocess
from pathlib import Path

import pytest

from ulpscope.program import glue
from ulpscope.program.lowered import Lowering

SOURCES = Path(__file__).parent / "grid"


@pytest.mark.parametrize("name", ["kernels", "libraries"])  # cub, cooperative groups, curand
@pytest.mark.parametrize(
    "flags", [["-O2"], ["-O1", "-DULPSCOPE_SIM_WARP=64"], ["-O1", "-fsanitize=thread", "-DULPSCOPE_SIM_RACES"]]
)
def test_all_that_kernels_may_use(tmp_path, flags, name):
    lowering = Lowering(tmp_path, [])
    source = lowering.source(SOURCES / f"{name}.cu")
    lowering.check()
    grid, program = glue.PACKAGE / "glue" / "grid", tmp_path / "kernels"
    base = [os.environ.get("CXX", "g++"), "-std=c++17", "-w", f"-I{grid}", f"-I{glue.PACKAGE / 'include'}", *flags]
    for part, code in (("kernels", source), ("module", str(grid / "grid_module.cc"))):
        done = subprocess.run(
            [*base, "-fPIC", "-c", code, "-o", str(tmp_path / f"{part}.o")], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[:3000]
    link = [f"-L{glue.PACKAGE}", "-lulpscope_sim", "-lulpscope", f"-Wl,-rpath,{glue.PACKAGE}", "-o", str(program)]
    subprocess.run([base[0], str(tmp_path / "kernels.o"), str(tmp_path / "module.o"), *link], check=True)
    done = subprocess.run([program], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"done, warps of {64 if '-DULPSCOPE_SIM_WARP=64' in flags else 32}\n"
