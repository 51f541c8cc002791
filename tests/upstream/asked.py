# SPDX-License-Identifier: Apache-2.0
"""``./run upstream``: torch's own test files, as they are, on the simulated device.

    ./run upstream --source TREE [--write PAGE] [-k WORDS] [FILES]

TREE is a source tree of the torch at hand (Debian's source packages of pytorch are such). A file is a process of its
own; its log and what came of each test lie in the build folder. Exit code 1: a test failed; 2: nothing could be run."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import torch

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FILES = (
    "test_view_ops",
    "test_indexing",
    "test_type_promotion",
    "test_sort_and_select",
    "test_shape_ops",
    "test_tensor_creation_ops",
)
COLUMNS = ("passed", "failed", "skipped", "failed as torch expects")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run upstream", description=__doc__.split("\n\n")[0])
    parser.add_argument("--source", required=True, metavar="TREE", help="a source tree of torch")
    parser.add_argument("--write", metavar="PAGE", help="write the table there")
    parser.add_argument("-k", default="", metavar="WORDS", help="as pytest has it: only these tests")
    parser.add_argument("--other-version", action="store_true", help="take a tree of another version of torch, too")
    parser.add_argument("files", nargs="*", default=FILES, metavar="FILES", help=f"of {', '.join(FILES)}, or others")
    return parser.parse_args()


def stop(why: str) -> None:
    print(f"run: {why}", file=sys.stderr)
    raise SystemExit(2)


def version_of(tree: Path) -> str:
    """Two numbers of it, as torch's sources have them."""
    said = tree / "version.txt"
    if not said.exists() or not (tree / "test").is_dir():
        stop(f"{tree} is no source tree of torch: it has no version.txt or no folder test")
    return ".".join(said.read_text().strip().split(".")[:2])


def run(tree: Path, file: str, words: str, out: Path) -> dict:
    told = out / f"{file}.json"
    told.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
        "ULPSCOPE_UPSTREAM_OUT": str(told),
        "ULPSCOPE_SIM_GUARD": os.environ.get("ULPSCOPE_SIM_GUARD", "pages"),
        "ULPSCOPE_SIM_LAUNCH_BLOCKING": os.environ.get("ULPSCOPE_SIM_LAUNCH_BLOCKING", "1"),  # errors come at the call
        "PYTORCH_TESTING_DEVICE_ONLY_FOR": "sim",
        "PYTORCH_TESTING_DEVICE_FOR_CUSTOM": "privateuse1",
        "OMP_NUM_THREADS": "1",
    }
    options = ["--noconftest", "-c", os.devnull, "-p", "plugin", "-p", "no:cacheprovider", "-q", "--tb=short"]
    command = [sys.executable, "-m", "pytest", *options, "-k", words, str(tree / "test" / f"{file}.py")]
    with (out / f"{file}.log").open("w") as log:
        child = subprocess.Popen(command, cwd=out, env=environment, stdout=log, stderr=subprocess.STDOUT)
        start = time.monotonic()
        while True:
            try:
                child.wait(30)
                break
            except subprocess.TimeoutExpired:
                print(f"{file}: {time.monotonic() - start:.0f} s", file=sys.stderr)
    if not told.exists():
        why = f"the process ended with {child.returncode}: {out / file}.log"
        return {"counts": {"failed": 1}, "skipped": {}, "failed": {file: why}}
    found = json.loads(told.read_text())
    if not found["counts"]:
        found |= {"counts": {"failed": 1}, "failed": {file: f"no test of a device was run: {out / file}.log"}}
    return found


def table(rows: dict[str, dict]) -> list[str]:
    lines = [f"| file | {' | '.join(COLUMNS)} |", "|---|" + "---|" * len(COLUMNS)]
    for file, told in rows.items():
        lines.append(f"| `{file}` | " + " | ".join(str(told["counts"].get(column, 0)) for column in COLUMNS) + " |")
    total = {c: sum(told["counts"].get(c, 0) for told in rows.values()) for c in COLUMNS}
    return [*lines, "| all | " + " | ".join(str(total[c]) for c in COLUMNS) + " |"]


def reasons(rows: dict[str, dict]) -> list[str]:
    why: dict[str, int] = {}
    for told in rows.values():
        for reason, n in told["skipped"].items():
            why[reason] = why.get(reason, 0) + n
    lines = ["| skipped | because |", "|---|---|"]
    most = sorted(why.items(), key=lambda item: -item[1])
    return lines + [f"| {n} | {reason.replace('|', '/')[:118]} |" for reason, n in most]


def failures(rows: dict[str, dict]) -> list[str]:
    """Those of one file that say the same are one line."""
    alike: dict[tuple[str, str], list[str]] = {}
    for file, told in rows.items():
        for test, why in told["failed"].items():
            alike.setdefault((file, why), []).append(test.rpartition("::")[2])
    return [f"- `{file}`: `{tests[0]}`, {len(tests)} in all: {why}" for (file, why), tests in alike.items()]


def page(rows: dict[str, dict], version: str) -> str:
    failed = failures(rows)
    return "\n".join(
        [
            "# Torch's own test files on the simulated device",
            "",
            "Written by `./run upstream --source TREE --write docs/reference/sim-upstream.md` with the test files",
            f"of torch {version}, as they are, and torch {torch.__version__.split('+')[0]};",
            "only tests that torch makes for each device count.",
            "",
            *table(rows),
            "",
            "## Skipped",
            "",
            "By the files themselves; reasons that begin with `known` are those of `tests/upstream/known.txt`.",
            "",
            *reasons(rows),
            "",
            *(["## Failed", "", *failed, ""] if failed else []),
        ]
    )


def main() -> None:
    options = parse()
    tree = Path(options.source).resolve()
    version = version_of(tree)
    if not torch.__version__.startswith(f"{version}.") and not options.other_version:
        stop(f"the tree is of torch {version}, and torch is {torch.__version__}; take its own, or --other-version")
    out = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build")) / "upstream"
    out.mkdir(parents=True, exist_ok=True)
    rows = {}
    for file in options.files:
        name = Path(file).stem
        if not (tree / "test" / f"{name}.py").exists():
            stop(f"the tree has no test/{name}.py")
        rows[name] = run(tree, name, options.k, out)
        counts = rows[name]["counts"]
        print(f"{name}: {', '.join(f'{counts.get(c, 0)} {c}' for c in COLUMNS)}")
        for test, why in rows[name]["failed"].items():
            print(f"  {test}: {why}")
    if options.write:
        Path(options.write).write_text(page(rows, version))
    raise SystemExit(1 if any(told["failed"] for told in rows.values()) else 0)


if __name__ == "__main__":
    main()
