# SPDX-License-Identifier: Apache-2.0
"""Sources in C of an extension, as a compiler of C takes them: torch compiles all with that of C++. Needs nothing of
torch."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

_FLAGS = ["-std=c11", "-O2", "-g1", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off"]


def compiled(sources: Sequence[str | os.PathLike[str]], folder: Path, include: Sequence[str]) -> list[str]:
    """Objects of the sources, made where a source, a header of it or a flag has changed: under another name then, so
    that what is linked of them is linked anew. RuntimeError with the first error that the compiler names."""
    made, taken = [], set()
    for source in map(Path, sources):
        stem = source.stem
        while stem in taken:  # two folders may have one name
            stem += "_"
        taken.add(stem)
        out = folder / f"{stem}.c.o"
        words = [*shlex.split(os.environ.get("CC", "cc")), *_FLAGS, *(f"-I{path}" for path in include)]
        if not _is_new(out, words):
            _compile(words, source, out)
        bytes_ = out.read_bytes()
        named = folder / f"{stem}-{hashlib.sha256(bytes_).hexdigest()[:12]}.o"
        if not named.exists():
            named.write_bytes(bytes_)
        made.append(str(named))
    return made


def _is_new(out: Path, words: list[str]) -> bool:
    """Whether an object is newer than all that it was made of, by these words."""
    try:
        noted = out.with_suffix(".d").read_text("utf-8")
        if out.with_suffix(".words").read_text("utf-8") != repr(words):
            return False
        files = [name.replace("\\ ", " ") for name in re.findall(r"(?:[^\s\\]|\\ )+", noted.partition(":")[2])]
        return all(Path(name).stat().st_mtime_ns < out.stat().st_mtime_ns for name in files)
    except OSError:
        return False


def _compile(words: list[str], source: Path, out: Path) -> None:
    done = subprocess.run(
        [*words, "-MMD", "-MT", "o", "-MF", str(out.with_suffix(".d")), "-c", str(source), "-o", str(out)],
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        out.unlink(missing_ok=True)
        told = [line for line in done.stderr.splitlines() if "error" in line] or [done.stderr.strip()]
        raise RuntimeError(told[0][:400])
    out.with_suffix(".words").write_text(repr(words), "utf-8")
