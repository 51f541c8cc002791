# SPDX-License-Identifier: Apache-2.0
"""Other frameworks' CPU kernels from PyPI, in a folder of their own behind everything else."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build")) / "peer-kernels"
PACKAGES = ["jax[cpu]", "onnxruntime", "onnx", "mpmath"]


def prepare():
    """Installs on first use. Raises RuntimeError with pip's reason."""
    if not (FOLDER / "ready").exists():
        print(f"first use: installing {' '.join(PACKAGES)} into {FOLDER}", file=sys.stderr)
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "install",
                "-q",
                "--target",
                str(FOLDER),
                "--disable-pip-version-check",
                *PACKAGES,
            ],
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise RuntimeError((done.stderr.strip() or "pip failed").splitlines()[-1])
        (FOLDER / "ready").touch()


def load(name):
    """The module, None where it cannot be imported."""
    if (FOLDER / "ready").exists() and str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
    try:
        return importlib.import_module(name)
    except Exception:
        return None
