# SPDX-License-Identifier: Apache-2.0
"""A host program that set a locale with a comma for the point changes no number that is read
or written, anywhere in the library."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

COMMA = """LC_NUMERIC
decimal_point "<U002C>"
thousands_sep ""
grouping -1
END LC_NUMERIC
"""
# Prints all that the library reads and writes of numbers; one locale or the other.
PROGRAM = """
import ctypes, json, locale, sys
locale.setlocale(locale.LC_NUMERIC, sys.argv[1])
libc = ctypes.CDLL(None)
libc.strtod.restype = ctypes.c_double
assert (libc.strtod(b"0.5", None) == 0.5) is (sys.argv[1] == "C")
import torch, ulpscope
from ulpscope import _core, sim

x = torch.linspace(-2.5, 3.5, 64)
bad = x.clone()
bad[7] += 0.01
for device in (bad, x * 1.0001, x / 0):
    print(ulpscope.judge_call(torch.add, (x, 0.0), outputs=device, cause=False))
for name in ("cosine:0.9999", "allclose:1e-3,1.5e-5", "ulp:2.5", "torch-close", "ggml-nmse:0.5"):
    print(ulpscope.judge_call(torch.sin, (x,), outputs=bad.sin(), standard=name))
print(_core.stats(x), sim.plant("aten::add:scale:factor=1.25"))
try:
    sim.fault("aten::mul", "nosuch", factor=0.5)
except Exception as problem:
    print(problem)
with ulpscope.capture(sys.argv[2], data="stats"):
    x.sin()
trace = _core.Trace(sys.argv[2])
print([t["stats"] for s in trace.select() for t in trace.call(s)["tensors"]])
"""


def comma_locale(folder):
    """Makes a locale; its name, or None where this machine cannot."""
    if shutil.which("localedef") is None:
        return None
    (folder / "source").write_text(COMMA)
    subprocess.run(
        ["localedef", "--no-archive", "-c", "-i", folder / "source", folder / "xx_XX"], capture_output=True, check=False
    )
    return "xx_XX" if (folder / "xx_XX" / "LC_NUMERIC").exists() else None


def said(program, locale, folder, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", program, locale, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "LOCPATH": str(folder), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_comma_changes_no_number(tmp_path):
    name = comma_locale(tmp_path)
    if name is None:
        pytest.skip("no localedef here")
    plain = said(PROGRAM, "C", tmp_path, tmp_path / "a")
    assert "0.0001" in plain and said(PROGRAM, name, tmp_path, tmp_path / "b") == plain
