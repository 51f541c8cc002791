# SPDX-License-Identifier: Apache-2.0
"""musify-text: sources in C++ or Python, each by itself, to the terminal, beside itself as FILE.mt or in place."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
from pathlib import Path

from .porting import map_file, port, read_mapping

KNOWN = {
    ".cu",
    ".cuh",
    ".mu",
    ".muh",
    ".c",
    ".cc",
    ".cpp",
    ".cxx",
    ".h",
    ".hh",
    ".hpp",
    ".hxx",
    ".inl",
    ".inc",
    ".py",
}
KERNELS = {".cu", ".cuh", ".mu", ".muh"}  # by the side that they are of


def musify(path: Path, direction: str = "c2m", rules: dict[str, str] | None = None, default: bool = True) -> bytes:
    """The bytes of a file under the names of the other side; a file of another kind is taken for C++."""
    ending = path.suffix if path.suffix in KNOWN else ".cpp"
    ending = ending.replace(*(("m", "c") if direction == "c2m" else ("c", "m"))) if ending in KERNELS else ending
    with (
        tempfile.TemporaryDirectory() as folder,
        map_file(rules or {}, direction == "m2c") as names,
    ):
        source, out = Path(folder) / f"source{ending}", Path(folder) / "out"
        source.write_bytes(path.read_bytes())
        if not default and names is None:
            return source.read_bytes()
        mapped: list[str | Path] = ["--map", names] if names else []
        more = [*mapped, *([] if default else ["--no-default-map"])]
        port(source, "--to", "musa" if direction == "c2m" else "cuda", "-o", out, *more)
        return out.read_bytes()


def put(path: Path, data: bytes, method: str) -> None:
    if method == "terminal":
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        return
    beside = path.with_name(path.name + ".mt")
    beside.write_bytes(data)
    if method == "inplace":
        os.chmod(beside, path.stat().st_mode & 0o777)
        os.replace(beside, path)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="musify-text", description=__doc__)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("-t", "--terminal", dest="method", action="store_const", const="terminal")
    how.add_argument("-c", "--create", dest="method", action="store_const", const="create")
    how.add_argument("-i", "--inplace", dest="method", action="store_const", const="inplace")
    parser.add_argument("-d", "--direction", choices=["c2m", "m2c"], default="c2m")
    parser.add_argument("-m", "--mapping", nargs="+", default=[], metavar="FILE", help="more names, old to new")
    parser.add_argument("--clear-mapping", action="store_true", help="the names of -m alone")
    parser.add_argument("-l", "--log-level", choices=["DEBUG", "INFO", "WARNING"], default="WARNING")
    parser.add_argument("srcs", nargs="*", metavar="SRC")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=given.log_level, format="[%(levelname)s] %(message)s")
    code = 0
    for name in given.srcs:
        try:
            data = musify(Path(name), given.direction, read_mapping(given.mapping), not given.clear_mapping)
            put(Path(name), data, given.method or "terminal")
            logging.info("%s is done", name)
        except (OSError, RuntimeError, ValueError) as problem:
            print(f"musify-text: {name}: {problem}", file=sys.stderr)
            code = 2  # the others go on
    return code


if __name__ == "__main__":
    sys.exit(main())
