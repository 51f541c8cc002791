# SPDX-License-Identifier: Apache-2.0
"""`./run glue-wheel FOLDER... [-o FOLDER]`: the companion `ulpscope-glue`, of glue that was compiled
for several torch (`python -m ulpscope.program.glue --hand-on FOLDER` in the environment of each).
A machine without a compiler takes what fits from it."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import archive

METADATA = """Metadata-Version: 2.1
Name: ulpscope-glue
Version: {version}
Summary: The C++ glue of ulpscope, compiled for some torch: for machines without a compiler
License: Apache-2.0
Requires-Python: >=3.9
Requires-Dist: ulpscope=={version}

{rows}
"""


def stripped(library: Path) -> bytes:
    """Without symbols for debuggers."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copy(library, folder))
        subprocess.run(["strip", "--strip-unneeded", str(copy)], check=True)
        return copy.read_bytes()


def make(folders: list[Path], out: Path) -> Path:
    files, rows = {"ulpscope_glue/__init__.py": b""}, []
    for folder in folders:
        for library in sorted(folder.glob("*/*/*.so")):
            name = library.relative_to(folder).as_posix()
            files[f"ulpscope_glue/{name}"] = stripped(library)
            rows.append(name.split("/")[1])
    if not rows:
        raise SystemExit("glue-wheel: no folder holds glue")
    libc = platform.libc_ver()[1].replace(".", "_") or "2_36"
    tag = f"py3-none-manylinux_{libc}_{platform.machine()}"
    path = out / f"ulpscope_glue-{archive.version()}-{tag}.whl"
    out.mkdir(parents=True, exist_ok=True)
    archive.wheel(path, files, METADATA.format(version=archive.version(), rows="\n".join(sorted(set(rows)))), tag)
    return path


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run glue-wheel", description=__doc__.split(":")[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("-o", "--out", type=Path, default=None)
    options = parser.parse_args()
    work = Path(os.environ.get("ULPSCOPE_BUILD", archive.ROOT / "build")).resolve() / "wheel"
    path = make(options.folders, options.out or work)
    print(f"{path} ({path.stat().st_size / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
