# SPDX-License-Identifier: Apache-2.0
"""The peer of the benchmarks: PyPI's mindstudio-probe (msprobe), in a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build"))
FOLDER = BUILD / "peer"
PACKAGE = "mindstudio-probe"
#: What its import needs beyond torch and numpy; the package itself asks for more and for
#: older versions, so it is installed without its dependencies.
NEEDS = ["pandas", "tqdm", "einops", "openpyxl", "rich", "pyyaml", "matplotlib", "pytz", "tensorboard"]


def prepare() -> Path:
    """The folder to append to the module search path; installed into on first use. It goes
    behind everything else, so that torch and numpy stay the ones of this interpreter.

    Raises RuntimeError with pip's reason.
    """
    if not (FOLDER / "ready").exists():
        print(f"first use: installing {PACKAGE} into {FOLDER}", file=sys.stderr, flush=True)
        for arguments in (["--no-deps", PACKAGE], NEEDS):
            done = subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "pip",
                    "install",
                    "-q",
                    "--disable-pip-version-check",
                    "--target",
                    str(FOLDER),
                    *arguments,
                ],
                capture_output=True,
                text=True,
            )
            if done.returncode != 0:
                raise RuntimeError((done.stderr.strip() or "pip failed").splitlines()[-1])
        (FOLDER / "ready").touch()
    return FOLDER


def enable() -> None:
    """Makes `import msprobe` work in this process, errors alone told: printing a warning for each call
    is no part of what it costs. Raises as `prepare`."""
    os.environ.setdefault("MSPROBE_LOG_LEVEL", "3")
    sys.path.append(str(prepare()))
