# SPDX-License-Identifier: Apache-2.0
"""Runs the benchmarks: C programs of build/bench, bench/bench_*.py, bench/verdicts and bench/watch. Each prints
a table with a ratio against a peer measured in the same run, under a line that says on what; none passes or fails.
With --json what each printed is a member of one document: its lines, or what it gives as JSON itself."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import machine

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("verdicts", "watch")  # folders; with --quick where all are run
BUILD = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build"))


def programs() -> dict[str, list[str]]:
    """Name without "bench_" -> command."""
    found = {
        p.name.removeprefix("bench_") + "-c": [str(p)]
        for p in sorted((BUILD / "bench").glob("bench_*"))
        if os.access(p, os.X_OK)
    }
    found |= {
        p.stem.removeprefix("bench_"): [sys.executable, str(p)] for p in sorted((ROOT / "bench").glob("bench_*.py"))
    }
    found |= {name: [sys.executable, "-m", f"bench.{name}"] for name in PACKAGES}
    return found


def speaks_json(command: list[str]) -> bool:
    """Whether a benchmark has --json itself."""
    script = next((Path(part) for part in command if part.endswith(".py")), None)
    return script is not None and "in sys.argv" in script.read_text() and '"--json"' in script.read_text()


def told(command: list[str]) -> dict:
    """What a benchmark said, for a document."""
    begin = resource.getrusage(resource.RUSAGE_CHILDREN)
    itself = speaks_json(command)
    run = subprocess.run(command + ["--json"] * itself, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime
    said = {"rows": json.loads(run.stdout)} if itself and run.returncode == 0 else {"lines": run.stdout.splitlines()}
    return {"command": command, "exit": run.returncode, "cpu_seconds": round(spent, 2), **said}


def main(arguments: list[str]) -> int:
    known, document = programs(), arguments[:1] == ["--json"]  # behind a name it is the benchmark's
    arguments = arguments[document:]
    if arguments and arguments[0] in ("-h", "--help", "list"):
        print("usage: ./run bench [--json] [NAME [ARGS]]\n\nnames: " + ", ".join(known))
        return 0
    name, *rest = arguments or [None]
    if name is not None and name not in known:
        print(f"bench: no benchmark '{name}'; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    code, facts, benches = 0, machine.facts(), {}
    if not document:
        print(machine.sentence(facts))
    for key in [name] if name else known:
        command = known[key] + (["--quick"] if name is None and key in PACKAGES else rest)
        if document:
            benches[key] = told(command)
            code |= benches[key]["exit"] != 0
            continue
        print(f"\n== {key} ==", flush=True)
        code |= subprocess.run(command, cwd=ROOT).returncode != 0
    if document:
        print(json.dumps({"version": 1, "machine": facts, "benches": benches}, indent=1))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
