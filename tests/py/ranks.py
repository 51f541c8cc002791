# SPDX-License-Identifier: Apache-2.0
"""Captures a script that several ranks run over gloo."""

import os
import subprocess
import sys
import textwrap


def captured(folder, script, n=2, *options):
    """The folder of the traces rank-0, rank-1, ... of a script that torchrun runs."""
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(textwrap.dedent(script))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n), "train.py"]
    done = subprocess.run(
        ["ulpscope", "capture", "-o", "t", "--steps", "0,1", *options, "--", *command],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=240,
        env=dict(os.environ, OMP_NUM_THREADS="1"),
    )
    assert done.returncode == 0, done.stderr
    return folder / "t"
