# SPDX-License-Identifier: Apache-2.0
"""Runs the benchmarks: C programs of build/bench, bench/bench_*.py, bench/verdicts and bench/watch. Each prints
a table with a ratio against a peer measured in the same run; none passes or fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("verdicts", "watch")  # folders; with --quick where all are run
BUILD = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build"))


def programs() -> dict[str, list[str]]:
    """Name without "bench_" -> command."""
    found = {p.name.removeprefix("bench_") + "-c": [str(p)]
             for p in sorted((BUILD / "bench").glob("bench_*")) if os.access(p, os.X_OK)}
    found |= {p.stem.removeprefix("bench_"): [sys.executable, str(p)]
              for p in sorted((ROOT / "bench").glob("bench_*.py"))}
    found |= {name: [sys.executable, "-m", f"bench.{name}"] for name in PACKAGES}
    return found


def main(arguments: list[str]) -> int:
    known = programs()
    if arguments and arguments[0] in ("-h", "--help", "list"):
        print("usage: ./run bench [NAME [ARGS]]\n\nnames: " + ", ".join(known))
        return 0
    name, *rest = arguments or [None]
    if name is not None and name not in known:
        print(f"bench: no benchmark '{name}'; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    code = 0
    for key in [name] if name else known:
        print(f"\n== {key} ==", flush=True)
        more = ["--quick"] if name is None and key in PACKAGES else rest
        code |= subprocess.run(known[key] + more, cwd=ROOT).returncode != 0
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
