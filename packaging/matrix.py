# SPDX-License-Identifier: Apache-2.0
"""`./run matrix [NAME...]`: the wheel, installed where other Python and torch are, does what a user
does (packaging/row.py). Writes what was found to packaging/versions.json and docs/reference/versions.md.

A row is a Debian release, in a folder of its own (debootstrap; root), or a torch of PyPI in an
environment of its own. They lie in $ULPSCOPE_MATRIX (default BUILD/matrix), and stay there."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import archive
import wheel

ROOT = archive.ROOT
TOLD = ROOT / "packaging" / "versions.json"
PAGE = ROOT / "docs" / "reference" / "versions.md"
DEBIAN = [
    "python3-torch",
    "libtorch-dev",
    "pybind11-dev",
    "libfmt-dev",
    "python3-numpy",
    "python3-pip",
    "python3-pytest",
    "python3-dev",
    "g++",
    "ccache",
]

# Rows of the library and its C tests alone, which have no torch: the package of the compiler that builds them.
BY = {"bullseye": "gcc", "bullseye-gcc-9": "gcc-9", "bullseye-clang": "clang"}

# name: (what it is, its Debian release or None, torch of PyPI or None, Python)
ROWS = {
    "trixie": ("Debian 13, its packaged torch", "trixie", None, None),
    "sid": ("Debian unstable, its packaged torch", "sid", None, None),
    **{name: (f"Debian 11, {cc}: the library and its C tests", "bullseye", None, None) for name, cc in BY.items()},
    "torch-2.1.2": ("PyPI", None, "2.1.2", "3.9"),
    "torch-2.4.1": ("PyPI", None, "2.4.1", "3.10"),
    "torch-2.7.1": ("PyPI", None, "2.7.1", "3.12"),
    "torch-2.10.0": ("PyPI", None, "2.10.0", "3.13"),
    "torch-2.13.0": ("PyPI", None, "2.13.0", "3.11"),
    "torch-2.15.0": ("PyPI", None, "2.15.0", "3.13"),
}
NOT_RUN = {
    "torch-2.13.0": "what the whole suite is run with",
    "torch-2.15.0": "could not be had: the newest that the index gave was 2.14.1 (`sid`)",
}
# What a line below the table comes to, held against float64 without Ulpscope.
ARGUED = [
    "`_softmax_backward_data`, `_log_softmax_backward_data` of bfloat16 and float16 along the last axis, torch before "
    "2.7: a defect of that torch. Each element is the float64 result with the row's sum rounded to that dtype, bit by "
    "bit (2.4.1, 2.6.0); of the float64 result rounded once 80 to 98 % are, and in 2.7.1 all "
    "(`examples/found/torch_softmax_backward_low_precision.py`). The checks of a row accept the first by `--allow`.",
    "`mkldnn_rnn_layer_backward`, NaN: a false alarm of `fuzz`, which drew the bytes that the forward leaves for it. "
    "No such call is drawn any more.",
    "`native_layer_norm_backward` and `scaled_dot_product_attention`, torch 2.14.1: defects of torch "
    "(`torch_layer_norm_backward_bfloat16.py`, `torch_flash_attention_low_precision.py` in `examples/found`).",
]
THINGS = [
    "glue",
    "capture",
    "check",
    "check sim",
    "fault found",
    "kernel",
    "live check",
    "nan tracker",
    "watch",
    "fuzz",
    "compat",
    "demo",
]
# Tests that want nothing of this tree: of what stands in for other tools.
TESTS = ["conftest.py", "test_compat_ditorch.py", "test_compat_musa.py", "test_compat_porting.py"]


def say(text: str) -> None:
    print(f"matrix: {text}", file=sys.stderr, flush=True)


def do(*command, **options) -> None:
    subprocess.run([str(c) for c in command], check=True, **options)


def lay(place: Path, path: Path, only: list[str]) -> Path:
    """The wheel, the examples and what is done, beside each other below `place`; what was done there before stays
    where only some things are done anew."""
    work = place / "ulpscope-row"
    work.mkdir(parents=True, exist_ok=True)
    for old in work.iterdir():
        if not (only and old.name == "out"):
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    shutil.copy(path, work)
    shutil.copy(ROOT / "LICENSE", work)
    shutil.copy(ROOT / "packaging" / "row.py", work)
    (work / "tests").mkdir()
    for name in TESTS:
        shutil.copy(ROOT / "tests" / "py" / name, work / "tests")
    shutil.copytree(ROOT / "examples", work / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    return work


# Nothing is asked of a mirror where all is there; a mirror may be older than its lists say they are good for.
APT = """dpkg -s "$@" >/dev/null 2>&1 || {
apt-get -o Acquire::Check-Valid-Until=false update -q && apt-get install -y -q --no-install-recommends "$@"; }"""


def root_of(release: str, place: Path, packages: list[str]) -> None:
    """A Debian of that release with these packages, and what a program expects mounted."""
    if not (place / "usr/bin/apt-get").exists():
        if shutil.which("debootstrap") is None:
            raise OSError("there is no debootstrap; apt-get install debootstrap")
        say(f"{release}: debootstrap")
        do("debootstrap", "--variant=minbase", release, place)
    for name in ("proc", "dev"):
        if not os.path.ismount(place / name):
            do("mount", *(["-t", "proc", "proc"] if name == "proc" else ["--rbind", "/dev"]), place / name)
    for name in ("resolv.conf", "hosts"):
        shutil.copy(f"/etc/{name}", place / "etc")
    inside = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    do("chroot", place, "sh", "-c", APT, "sh", *packages, env=inside, stdout=subprocess.DEVNULL)


def headers_of(place: Path) -> list[str]:
    """The folders of Python.h in a root."""
    return [str(p.parent) for p in sorted((place / "usr/include").glob("python3*/Python.h"))]


def debian(name: str, release: str, place: Path, path: Path, only: list[str]) -> Path:
    root_of(release, place, DEBIAN)
    work = lay(place, path, only)
    do(
        "chroot",
        place,
        "python3",
        "-m",
        "pip",
        "install",
        "-q",
        "--no-index",
        "--no-deps",
        "--force-reinstall",
        "--break-system-packages",
        f"/ulpscope-row/{path.name}",
    )
    subprocess.run(
        [
            "chroot",
            str(place),
            "env",
            "-i",
            "HOME=/root",
            "PATH=/usr/lib/ccache:/usr/local/bin:/usr/bin:/bin",
            "LANG=C.UTF-8",
            "python3",
            "/ulpscope-row/row.py",
            "/ulpscope-row/examples",
            "/ulpscope-row/out",
            *only,
        ]
    )
    return work / "out" / "row.json"


C_TESTS = """set -e
python3 -m pip install -q --no-index --no-deps /wheels/cmake*.whl
cmake -S /ulpscope -B /out-$1 -G Ninja -DCMAKE_C_COMPILER=$1 -DULPSCOPE_PYTHON=OFF -DULPSCOPE_TESTS=ON
cmake --build /out-$1 -j 2
ctest --test-dir /out-$1 -j 2 --output-on-failure
"""


def library(name: str, release: str, place: Path) -> Path:
    """The library and its tests alone: what has no torch."""
    root_of(
        release,
        place,
        [
            BY[name],
            "gcc",
            "ninja-build",
            "python3-pip",
            "libsqlite3-dev",
            "libjansson-dev",
            "libyaml-dev",
            "libxxhash-dev",
            "libcmocka-dev",
            "binutils",
        ],
    )
    # By the pip of this machine, which knows its way to an index, and its certificates.
    fetched = ["--only-binary=:all:", "--platform", "manylinux2014_x86_64", "--python-version", "3.9", "--no-deps"]
    do(sys.executable, "-m", "pip", "download", "-q", *fetched, "-d", place / "wheels", "cmake>=3.25,<4")
    for folder in ("src", "cli", "include", "sim", "cmake", "tests", "bench", "examples", "docs"):
        shutil.rmtree(place / "ulpscope" / folder, ignore_errors=True)
        shutil.copytree(ROOT / folder, place / "ulpscope" / folder)
    for file in ("CMakeLists.txt", "LICENSE"):
        shutil.copy(ROOT / file, place / "ulpscope")
    bare = ["env", "-i", "HOME=/root", "PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"]
    command = ["chroot", str(place), *bare, "sh", "-c", C_TESTS, "sh", BY[name]]
    log = place / f"{name}.log"
    say(f"{name}: builds and tests, some minutes; the log is {log}")
    with open(log, "w") as file:
        done = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT)
    lines = log.read_text(errors="replace").splitlines() or [""]
    told = ([line for line in lines if "tests passed" in line] or lines)[-1]
    python = subprocess.run(["chroot", str(place), "python3", "--version"], capture_output=True, text=True).stdout
    by = subprocess.run(["chroot", str(place), BY[name], "--version"], capture_output=True, text=True).stdout
    out = place / f"{name}.json"
    out.write_text(
        json.dumps(
            {
                "python": python.split()[-1] if python else "",
                "torch": "none",
                "compiler": by.splitlines()[0] if by else BY[name],
                "C tests": ["works" if done.returncode == 0 else "does not", told, 0],
            }
        )
    )
    return out


def program_of(python: str) -> str | None:
    """Python of that version: what ULPSCOPE_PYTHON_3_N names, or what lies on the PATH."""
    return os.environ.get(f"ULPSCOPE_PYTHON_{python.replace('.', '_')}") or shutil.which(f"python{python}")


def pypi(name: str, torch: str, python: str, place: Path, path: Path, only: list[str]) -> Path:
    program = program_of(python)
    if program is None:
        raise SystemExit(f"matrix: {name} needs python{python}; ULPSCOPE_PYTHON_{python.replace('.', '_')} names one")
    bin_ = place / "bin"
    if not (bin_ / "python").exists():
        do(program, "-m", "venv", place)
    do(
        bin_ / "python",
        "-m",
        "pip",
        "install",
        "-q",
        f"torch=={torch}",
        "numpy<2" if torch < "2.3" and len(torch) == 5 else "numpy",
        "pytest",
    )
    do(bin_ / "python", "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--force-reinstall", path)
    work = lay(place, path, only)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("ULPSCOPE", "PYTHON"))}
    environment["ULPSCOPE_CACHE"] = str(place / "glue")
    subprocess.run(
        [str(bin_ / "python"), str(work / "row.py"), str(work / "examples"), str(work / "out"), *only], env=environment
    )
    return work / "out" / "row.json"


def page(told: dict) -> str:
    """docs/reference/versions.md of what was found."""
    lines = [
        "# Versions that were tried",
        "",
        "Made by `./run matrix`, which installs the wheel beside another Python and another torch and does what a",
        "user does: compiles the glue, captures steps of four models, checks them on the CPU and the simulated device,",
        "finds a planted fault, judges a kernel, checks live, tracks NaN, watches, draws 200 random calls, runs the",
        "tests of what stands in for other tools, and the demo. A row that has - under compat is of before these tests,",
        "and of the step of one model.",
        "",
        "| row | date | Python | torch | " + " | ".join(THINGS) + " |",
        "|---|---|---|---" + "|---" * len(THINGS) + "|",
    ]
    notes = []
    for name, row in told.items():
        cells = []
        for thing in THINGS:
            state, why, _ = row["found"].get(thing, ["", "", 0])
            cells.append({"works": "yes", "": "-"}.get(state, "no"))
            if why and thing != "fault found":
                notes.append(f"- {name}, {thing}: {why}")
        if "C tests" in row["found"]:
            by = row["found"].get("compiler", BY.get(name, ""))
            notes.append(f"- {name}: the library and its C tests alone, by {by}: {row['found']['C tests'][1]}")
        lines.append(
            f"| {name} | {row['date']} | {row['found'].get('python', '')} | {row['found'].get('torch', '')} | "
            + " | ".join(cells)
            + " |"
        )
    notes += [f"- {name}: no row yet; {why}" for name, why in NOT_RUN.items() if name not in told]
    notes += [] if not notes else ["", "What these come to:", "", *(f"- {text}" for text in ARGUED)]
    if not told:
        lines.append("| none yet |" + " |" * (3 + len(THINGS)))
    return "\n".join(
        [*lines, "", *(["What does not work, and what was found beside:", "", *notes, ""] if notes else [])]
    )


def built(names: list[str], home: Path, work: Path) -> Path:
    """The wheel for the Pythons here and those of the roots that are asked for, which are laid first."""
    headers = os.environ.get("ULPSCOPE_PYTHON_HEADERS", "").split(":")
    for name in names:
        _, release, _, python = ROWS[name]
        if release and name not in BY:
            (home / name).mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(subprocess.CalledProcessError, OSError):  # the row says so
                root_of(release, home / name, DEBIAN)
            headers += headers_of(home / name)
        elif python and program_of(python):
            headers.append(
                subprocess.run(
                    [program_of(python), "-c", "import sysconfig; print(sysconfig.get_paths()['include'])"],
                    capture_output=True,
                    text=True,
                ).stdout.strip()
            )
    os.environ["ULPSCOPE_PYTHON_HEADERS"] = ":".join(filter(None, headers))
    return wheel.build(work, work)


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run matrix", description="Tries the wheel with other Python and torch.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"rows (default: all): {', '.join(ROWS)}")
    parser.add_argument("--wheel", type=Path, help="this wheel, and none built first")
    parser.add_argument(
        "--only",
        type=lambda text: text.split(","),
        default=[],
        metavar="THING,...",
        help=f"these alone, anew; the others stay as the row has them: {', '.join(THINGS)}",
    )
    options = parser.parse_args()
    strange = set(options.only) - set(THINGS)
    if strange:
        parser.error(f"no thing {', '.join(sorted(strange))}; there are {', '.join(THINGS)}")
    unknown = set(options.names) - set(ROWS)
    if unknown:
        parser.error(f"no row {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    build = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build")).resolve()
    home = Path(os.environ.get("ULPSCOPE_MATRIX", build / "matrix"))
    told = json.loads(TOLD.read_text()) if TOLD.exists() else {}
    path = options.wheel
    if path is None and set(options.names or ROWS) - BY.keys():  # which takes none
        path = built(options.names or list(ROWS), home, build / "wheel")
    not_set_up = []
    for name in options.names or ROWS:
        _, release, torch, python = ROWS[name]
        place = home / (release if name in BY else name)
        place.mkdir(parents=True, exist_ok=True)
        say(name)
        try:
            if name in BY:
                found = library(name, release, place)
            else:
                found = (
                    debian(name, release, place, path, options.only)
                    if release
                    else pypi(name, torch, python, place, path, options.only)
                )
            row = json.loads(found.read_text())
        except (subprocess.CalledProcessError, OSError) as problem:
            say(f"{name} cannot be set up here, and its line stays as it was: {problem}")
            not_set_up.append(name)
            continue
        told = json.loads(TOLD.read_text()) if TOLD.exists() else {}  # rows may run beside each other
        today = datetime.date.today().isoformat()  # of all of a row: what stays is no newer by it
        told[name] = {"date": told.get(name, {}).get("date", today) if options.only else today, "found": row}
        told = {n: told[n] for n in ROWS if n in told}
        TOLD.write_text(json.dumps(told, indent=1) + "\n")
        PAGE.write_text(page(told))
    run = [n for n in options.names or ROWS if n not in not_set_up]
    bad = [n for n in run if any(x[0] != "works" for x in told[n]["found"].values() if isinstance(x, list))]
    if bad:
        say(f"{len(bad)} rows have something that does not work: {', '.join(bad)}")
    if not_set_up:
        say(f"{len(not_set_up)} rows were not run: {', '.join(not_set_up)}")
    elif not bad:
        say("all works")
    return 1 if bad else 2 if not_set_up else 0


if __name__ == "__main__":
    sys.exit(main())
