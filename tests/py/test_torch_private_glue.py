# SPDX-License-Identifier: Apache-2.0
"""The private names of torch that the glue has in glue/torch_private*.h: each header stands alone, what it gives is
right by torch's names and by the ways on without them, and the latter are found in a torch that lacks the former."""

from __future__ import annotations

import ctypes
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import torch  # noqa: F401  the library below needs it loaded

from ulpscope.program import glue

HERE = Path(__file__).parent
GLUE = glue.PACKAGE / "glue"
HEADERS = sorted(path.name for path in GLUE.glob("torch_private*.h"))
PROBE = HERE / "torch_private" / "probe.cpp"


def compiled(source: Path, out: Path, *flags: str) -> subprocess.CompletedProcess:
    """What the compiler says; a header is compiled with torch's as they are for the glue."""
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    base = [f"-std={glue._standard(compiler)}", glue._abi_flag(), *glue._compile_flags(), f"-I{GLUE}", "-O0"]
    return subprocess.run([*compiler, *base, *flags, "-c", str(source), "-o", str(out)], capture_output=True, text=True)


@pytest.mark.parametrize("name", [name for name in HEADERS if name not in PROBE.read_text()])
def test_a_header_stands_alone(tmp_path, name):
    source = tmp_path / "alone.cpp"
    source.write_text(f'#include "{name}"\n#include "{name}"\n')
    done = compiled(source, tmp_path / "alone.o")
    assert done.returncode == 0, done.stderr[:3000]


def test_what_torch_keeps_to_itself_and_the_ways_on_do_the_same(tmp_path):
    """A torch that has moved one of the names fails here, by its name."""
    done = compiled(PROBE, tmp_path / "probe.o")
    assert done.returncode == 0, done.stderr[:3000]
    library = tmp_path / "probe.so"
    link = [*shlex.split(os.environ.get("CXX", "c++")), str(tmp_path / "probe.o"), *glue._link_flags()]
    subprocess.run([*link, "-o", str(library)], check=True)
    check = ctypes.CDLL(str(library)).what_is_wrong
    check.restype = ctypes.c_char_p
    assert check() == b""


def test_in_a_torch_without_them_ways_on_are_found(tmp_path):
    text = PROBE.read_text()
    assert re.findall(r"#define (\w+) gone_", text) == re.findall(r"#undef (\w+)", text)
    done = compiled(PROBE, tmp_path / "probe.o", "-DMISSING")
    assert done.returncode == 0, done.stderr[:3000]
