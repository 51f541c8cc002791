# SPDX-License-Identifier: Apache-2.0
"""Chapter 7: the setup.py of a library for CUDA, and the branch of FORCE_SIM, which ports the sources and builds those:
FORCE_SIM=1 python setup.py build_ext --inplace"""

import glob
import os
import shutil
import subprocess

from setuptools import find_packages, setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

sources, extension = "boxes/csrc", CUDAExtension
if os.getenv("FORCE_SIM", "0") == "1":
    from ulpscope.extension import BuildExtension, SimExtension

    sources, extension = "boxes/csrc_sim", SimExtension
    shutil.rmtree(sources, ignore_errors=True)
    subprocess.run(["ulpscope", "port", "boxes/csrc", "--to", "sim", "-o", sources], check=True)

setup(
    name="boxes",
    version="1.0",
    packages=find_packages(),
    ext_modules=[extension("boxes._C", sorted(glob.glob(f"{sources}/*.cu")))],
    cmdclass={"build_ext": BuildExtension},
)
