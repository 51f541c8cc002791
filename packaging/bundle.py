# SPDX-License-Identifier: Apache-2.0
"""`./run bundle [-o FILE]`: one archive for a machine without a network: the wheel, the companion
with compiled glue where there is one, examples, what a machine is tried with and its tests, install.sh."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import archive
import matrix
import wheel

MOST_BYTES = 48 << 20
WITH = [
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "docs/reference/install.md",
    "examples/demo.py",
    "examples/demo/train.py",
    "packaging/row.py",
]


def make(out: Path, wheels: list[Path]) -> None:
    top = f"ulpscope-{archive.version()}"
    files = {f"{top}/install.sh": ((archive.ROOT / "packaging/install.sh").read_bytes(), 0o755)}
    for name in WITH:
        files[f"{top}/{name}"] = ((archive.ROOT / name).read_bytes(), 0o644)
    for name in matrix.TESTS:
        files[f"{top}/packaging/tests/{name}"] = ((archive.ROOT / "tests/py" / name).read_bytes(), 0o644)
    for path in wheels:
        files[f"{top}/wheels/{path.name}"] = (path.read_bytes(), 0o644)
    out.parent.mkdir(parents=True, exist_ok=True)
    archive.tar(out, files)
    if out.stat().st_size > MOST_BYTES:
        raise SystemExit(f"bundle: {out.stat().st_size} bytes are more than {MOST_BYTES}")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="./run bundle", description="Builds one archive to install from without a network."
    )
    parser.add_argument(
        "-o", "--out", type=Path, default=None, help="the archive (default: build/wheel/ulpscope-VERSION.tar.gz)"
    )
    options = parser.parse_args()
    work = Path(os.environ.get("ULPSCOPE_BUILD", archive.ROOT / "build")).resolve() / "wheel"
    out = options.out or work / f"ulpscope-{archive.version()}.tar.gz"
    path = wheel.build(work, work)
    wheel.audit(path, work / "tools" / "bin")
    companions = sorted(work.glob(f"ulpscope_glue-{archive.version()}-*.whl"))
    make(out, [path, *companions])
    print(f"{out} ({out.stat().st_size / 1e6:.1f} MB, {len(companions)} with compiled glue)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
