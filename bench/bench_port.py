# SPDX-License-Identifier: Apache-2.0
"""`ulpscope port` against torch's own hipify, on one tree in one run: bytes a second of processor time,
memory for each byte of the largest file, and false changes and missed names by lines that were labelled by hand
(bench/port_lines.py). --source TREE ports a tree of your own; else the cases of tests/port, many times over."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from torch.utils.hipify import hipify_python

sys.path.insert(0, str(Path(__file__).resolve().parent))
from port_lines import CALLED_SO_AT_HIP, LINES  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build")) / "bin/ulpscope"
READ_BY_HIPIFY = (".cu", ".cuh", ".c", ".cc", ".cpp", ".h", ".in", ".hpp")
SIZE = 5000  # bytes of a file, on average, in libraries of CUDA code
SECTION = re.compile(rb"^==== (\S+) (\S+)( -)?\n", re.MULTILINE)


def unpack(to: Path, copies: int) -> None:
    """The sources of the cases of tests/port that hipify can read, each as long as a file of a library and as often as
    asked for."""
    for case in sorted((ROOT / "tests/port").glob("*.case")):
        parts = SECTION.split(case.read_bytes())[1:]
        for where, name, body in zip(parts[0::4], parts[1::4], parts[3::4]):
            first = to / "0" / case.stem / name.decode()
            if where == b"src" and first.suffix in READ_BY_HIPIFY and body:
                first.parent.mkdir(parents=True, exist_ok=True)
                first.write_bytes(body * -(-SIZE // len(body)))
        if not (to / "0" / case.stem).is_dir():
            continue  # Python or build files alone
        try:
            hipify(to / "0" / case.stem, to / "tried")
        except Exception as error:
            print(f"hipify cannot read {case.name}: {type(error).__name__}")
            shutil.rmtree(to / "0" / case.stem)
        shutil.rmtree(to / "tried", ignore_errors=True)
    for i in range(1, copies):
        shutil.copytree(to / "0", to / str(i))


def port(source: Path, out: Path, *options: str) -> None:
    done = subprocess.run([PROGRAM, "port", source, "--to", "musa", "-o", out, *options], capture_output=True)
    if done.returncode == 2:
        sys.exit(done.stderr.decode())


def hipify(source: Path, out: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        hipify_python.hipify(
            str(source),
            output_directory=str(out),
            includes=[f"{source}/*", f"{out}/*"],
            show_progress=False,
            is_pytorch_extension=True,
        )


def used() -> float:
    """Seconds of the processor, also of what was started and has ended, to the microsecond."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in both)


def seconds(work, source: Path, out: Path, *options: str) -> float:
    """What a port into a new folder takes: other work on the machine is not counted, nor is clearing up, which stands
    at the end: a file system looks for what was just removed whenever it makes a file."""
    start = used()
    work(source, out, *options)
    return used() - start


def speed(source: Path, folder: Path) -> None:
    files = [p for p in source.rglob("*") if p.is_file() and p.suffix in READ_BY_HIPIFY]
    n = sum(p.stat().st_size for p in files)
    theirs = seconds(hipify, source, folder / "hip")  # once: it remembers files that it has seen
    print(
        f"{len(files)} files, {n} bytes that both read; a port reads and copies "
        f"{sum(p.is_file() for p in source.rglob('*'))} in all"
    )
    print(f"hipify                        {theirs:8.3f} s {n / theirs / 1e6:8.2f} MB/s")
    for what, options in (("all of it copied", ()), ("nothing is written", ("--dry-run",))):
        ours = sorted(seconds(port, source, folder / f"musa{i}", *options) for i in range(9))[4]
        print(f"ulpscope port, {what:18} {ours:5.3f} s {n / ours / 1e6:8.2f} MB/s {theirs / ours:7.1f}x")


def peak(source: Path, folder: Path) -> int:
    """The most memory of a port, in a process that has no other child."""
    code = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], capture_output=True); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)"
    )
    command = [PROGRAM, "port", source, "--to", "musa", "-o", folder / "peak"]
    said = subprocess.run([sys.executable, "-S", "-c", code, *map(str, command)], capture_output=True, check=True)
    path = folder / "peak"
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    return int(said.stdout)


def memory(source: Path, folder: Path) -> None:
    code = b"".join(p.read_bytes() for p in sorted(source.rglob("*.cu")))
    large, small = folder / "large.cu", folder / "small.cu"
    large.write_bytes(code * (8_000_000 // max(len(code), 1) + 1))
    small.write_bytes(b"int x;\n")
    least, most, n = peak(small, folder), peak(large, folder), large.stat().st_size
    print(
        f"memory: {most / 1e6:.1f} MB for a file of {n / 1e6:.1f} MB: {most / n:.1f}x, {(most - least) / n:.1f}x above "
        f"the {least / 1e6:.1f} MB of a file of one line"
    )


def count(text: str, word: str) -> int:
    begin = r"(?<![A-Za-z0-9_])" if re.match(r"\w", word) else ""
    end = r"(?![A-Za-z0-9_])" if re.search(r"\w$", word) else ""
    return len(re.findall(begin + re.escape(word) + end, text))


def quality(folder: Path) -> None:
    source = folder / "lines"
    source.mkdir()
    for i, (code, _, _) in enumerate(LINES):
        (source / f"line{i}.cpp").write_text(f"// {i}\n{code}\n")
    port(source, folder / "lines_musa")
    hipify(source, folder / "lines_hip")
    for name, out in (("hipify", folder / "lines_hip"), ("ulpscope port", folder / "lines_musa")):
        missed, false, n_names, n_kept = [], [], 0, 0
        for i, (code, gone, kept) in enumerate(LINES):
            found = [p for p in out.glob(f"line{i}.*") if p.is_file()] + [p for p in out.glob(f"line{i}_hip.*")]
            text = found[-1].read_text() if found else code
            text = "\n".join(line for line in text.splitlines() if "!!! This is a file automatically" not in line)
            names, words = gone.split(" ") if gone else [], kept.split()
            if name == "hipify":
                names = [n for n in names if n not in CALLED_SO_AT_HIP]
            missed += [w for w in names if count(text, w) > 0]
            false += [
                w
                for w in words
                if count(text, w) != count(code, w) - sum(count(n, w) for n in names if n in code and w in n and n != w)
            ]
            n_names, n_kept = n_names + len(names), n_kept + len(words)
        print(f"{name:15} {len(missed)} of {n_names} names missed, {len(false)} of {n_kept} words changed falsely")
        print(f"                missed: {' '.join(repr(w) for w in missed) or '-'}")
        print(f"                false:  {' '.join(repr(w) for w in false) or '-'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path)
    parser.add_argument("--copies", type=int, default=20)
    arguments = parser.parse_args()
    # in memory: what a disk's file system takes for a new file would be most of a port, and depends on what was removed
    memory_folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory_folder) as name:
        folder = Path(name)
        source = arguments.source
        if source is None:
            source = folder / "cases"
            unpack(source, arguments.copies)
        source = source.resolve()
        speed(source, folder)
        memory(source, folder)
        quality(folder)


if __name__ == "__main__":
    main()
