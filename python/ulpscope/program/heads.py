# SPDX-License-Identifier: Apache-2.0
"""Torch's headers, parsed once for all extensions that are built with the same compiler and flags: what a file of an
extension takes to compile is mostly them. Over torch.utils.cpp_extension, which is asked for the flags it compiles
with. Where this cannot be, or could change what a file means, an extension is built without, and takes longer."""

from __future__ import annotations

import fcntl
import hashlib
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import glue

_HEADS = {  # what an extension includes: what is parsed for it
    "extension": ("torch/extension.h",),
    "aten": ("ATen/ATen.h", "torch/library.h", "c10/core/DeviceGuard.h"),
}
_WHOLE = re.compile(r'^\s*#\s*include\s*[<"]torch/(?:extension|torch|all|python)\.h', re.M)
_PART = re.compile(r'^\s*#\s*include\s*[<"](?:torch|ATen|c10|sim_ops\.h|grid_ops\.h)\b', re.M)
_STEERS = re.compile(r"(?:TORCH|AT|C10|CAFFE2|PYBIND11|USE|FMT|PY|Py)_|NDEBUG\b|_")  # what torch's headers ask for
_DEFINED = re.compile(r"^\s*#\s*(?:define|undef)\s+(\w+)", re.M)
_ROOM = 4 << 30  # bytes: what is parsed takes half a gigabyte and more


def wanted(texts: list[str]) -> str:
    """Which headers the files with these texts are built with; "" for none: they include none of torch's, or define
    what could change them."""
    if any(_STEERS.match(name) for text in texts for name in _DEFINED.findall(text)):
        return ""
    if any(_WHOLE.search(text) for text in texts):
        return "extension"
    return "aten" if any(_PART.search(text) for text in texts) else ""


def harmless(flags: list[str]) -> bool:
    """Whether flags of the user's leave torch's headers what they are: warnings, folders, names of one's own."""
    return all(re.match(r"-[wWIL]|-isystem", flag) or _own_name(flag) for flag in flags)


def _own_name(flag: str) -> bool:
    found = re.match(r"-[DU](\w+)", flag)
    return found is not None and not _STEERS.match(found[1])


def flags(kind: str, flags: list[str], say: Callable[[str], Any] | None = None) -> list[str]:
    """The words that have a compiler take the headers as parsed, which are parsed now where they were not: by the one
    process that comes first. None where that fails."""
    compiler = shutil.which(glue._compiler()[0])
    if not kind or compiler is None:
        return []
    stat = Path(compiler).resolve().stat()
    key = repr((_HEADS[kind], glue._torch_build(), glue._compiler(), stat.st_size, stat.st_mtime_ns, flags))
    folder = glue.cache_home() / "heads" / f"{kind}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    head = folder / f"{kind}.h"
    if re.search(r"[^\w./+-]", str(head)):  # torch hands words on without quotes
        return []
    try:
        if not _ready(head):
            _make(head, kind, flags, say or glue._say)
    except OSError:
        return []
    return ["-include", str(head)] if _ready(head) else []


def _ready(head: Path) -> bool:
    return head.exists() and Path(f"{head}.gch").exists()


def _make(head: Path, kind: str, given: list[str], say: Callable[[str], Any]) -> None:
    head.parent.mkdir(parents=True, exist_ok=True)
    with open(head.with_suffix(".lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("another process parses torch's headers for extensions; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        failed = head.with_suffix(".log")
        if _ready(head) or failed.exists() or shutil.disk_usage(head.parent).free < _ROOM:
            return
        say("parsing torch's headers for extensions: once, about a minute")
        head.write_text("".join(f"#include <{name}>\n" for name in _HEADS[kind]))
        base = _command(given)
        parsed = Path(f"{head}.gch")
        try:
            glue._objects([*base, "-x", "c++-header"], [(head, parsed)], failed, "headers of torch", say)
            empty = head.with_suffix(".cpp")
            empty.write_text("")
            glue._run([*base, "-DTORCH_EXTENSION_NAME=x", "-include", str(head), "-fsyntax-only", str(empty)], failed)
        except glue.GlueError:  # the log stays, and nobody tries again
            parsed.unlink(missing_ok=True)


def _command(given: list[str]) -> list[str]:
    """The compiler and its flags as torch calls it for an extension, by what it writes for an empty one."""
    from torch.utils import cpp_extension

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "empty.cpp").write_text("")
        name = "usc_heads"
        cpp_extension.load(
            name, [f"{folder}/empty.cpp"], extra_cflags=given, build_directory=folder, is_python_module=False
        )
        text = (Path(folder) / "build.ninja").read_text()
    found = (re.search(rf"^{key} = (.*)$", text, re.M) for key in ("cxx", "cflags"))
    compiler, words = (one[1] if one is not None else "" for one in found)
    return [*shlex.split(compiler), *(w for w in shlex.split(words) if not w.startswith("-DTORCH_EXTENSION_NAME="))]
