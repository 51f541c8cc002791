# SPDX-License-Identifier: Apache-2.0
"""`./run coverage`: what llvm-cov counted, as a table by file, and the branches that no test takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def objects(build: Path) -> list[str]:
    """Arguments that name each test: the library is linked into all of them."""
    found = sorted(p for p in (build / "tests").glob("test_*") if p.is_file() and not p.suffix)
    return [str(found[0]), *(f"--object={p}" for p in found[1:])]


def counted(out: Path, sources: list[str]) -> dict:
    """What `llvm-cov export` says of these sources."""
    command = ["llvm-cov", "export", *objects(out / "build"), f"--instr-profile={out / 'counts'}", *sources]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(run.stdout)["data"][0]


def untaken(file: dict) -> list[str]:
    """Branches of a file that were never taken: line, column, which way."""
    found = []
    for line, column, _, _, true, false, *_ in file.get("branches", []):
        found += [f"{line}:{column} is never {way}" for way, n in (("true", true), ("false", false)) if n == 0]
    return found


def main(out: Path, folders: list[str]) -> int:
    sources = [str(p) for folder in folders for p in sorted((ROOT / "src" / folder).glob("*.c"))]
    data = counted(out, sources)
    print("| file | lines | reached | branches | taken |\n|---|---|---|---|---|")
    for file in data["files"]:
        lines, branches = file["summary"]["lines"], file["summary"]["branches"]
        name = Path(file["filename"]).relative_to(ROOT)
        print(
            f"| {name} | {lines['count']} | {lines['percent']:.1f} % | {branches['count']} |"
            f" {branches['percent']:.1f} % |"
        )
    total = data["totals"]["branches"]
    print(f"| all | | | {total['count']} | {total['percent']:.1f} % |")
    with open(out / "untaken.txt", "w") as to:
        for file in data["files"]:
            for place in untaken(file):
                print(f"{Path(file['filename']).relative_to(ROOT)}:{place}", file=to)
    subprocess.run(
        [
            "llvm-cov",
            "show",
            *objects(out / "build"),
            f"--instr-profile={out / 'counts'}",
            "--format=html",
            "--show-branches=count",
            f"--output-dir={out / 'page'}",
            *sources,
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    print(f"\nbranches that no test takes: {out / 'untaken.txt'}; every line: {out / 'page' / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
