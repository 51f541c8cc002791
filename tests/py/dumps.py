# SPDX-License-Identifier: Apache-2.0
"""What tests on dumps of other tools share: the program, what a trace holds."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import torch

from ulpscope import _core

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build"))
GOLDEN = ROOT / "tests" / "golden" / "msprobe"


def ulpscope(*words, code=0):
    done = subprocess.run([BUILD / "bin" / "ulpscope", *map(str, words)], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stderr + done.stdout
    return done.stdout + done.stderr


def calls(trace):
    opened = _core.Trace(str(trace))
    return opened, [opened.call(i) for i in opened.select()]


def tensor_of(trace, item):
    raw = torch.frombuffer(bytearray(trace.blob(item["blob"])), dtype=torch.uint8)
    return raw.view(getattr(torch, item["dtype"])).as_strided(item["sizes"], item["strides"], item["offset"])


def content(trace):
    """What a trace holds, without its own numbers for storages and tensors."""
    opened, found = calls(trace)
    return [
        (
            c["op"],
            c["args"],
            c["state"],
            c["phase"],
            c["step"],
            c["module_path"],
            c["frames"],
            [
                (
                    t["role"],
                    t["path"],
                    t["dtype"],
                    tuple(t["sizes"]),
                    t["requires_grad"],
                    bytes(opened.blob(t["blob"])) if t["blob"] else t["stats"],
                )
                for t in c["tensors"]
            ],
        )
        for c in found
    ]
