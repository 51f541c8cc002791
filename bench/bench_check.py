# SPDX-License-Identifier: Apache-2.0
"""Where the time of a check goes: per call device, reference, perturbed replays, judge, causes
and overhead, for all calls and for the small ones (which must cost little besides).

    bench_check.py [TRACE] [--device DEVICE] [-j N]

Without TRACE a step of the demo's model is captured first, on the CPU. The check's own line
comes first: its ratio is that of everything but the device to one float64 replay of every call,
as one process measures both. Calls that are accused are left out of it and have a ratio of their
own, since they are appealed for; the search for their causes is left out of both and stands
beside them, and in the table under "causes".
"""

import argparse
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TRAIN = ROOT / "examples" / "demo" / "train.py"
PARTS = ("device", "reference", "perturbed", "judge")
SMALL = 10_000  # elements of all outputs


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("trace", nargs="?", metavar="TRACE")
    parser.add_argument("--device", default="sim:0")
    parser.add_argument("--faults", default="", help="to plant in the simulated device")
    parser.add_argument("-j", "--jobs", type=int, default=1)
    return parser.parse_args()


def captured(folder):
    """A trace of the demo's second step."""
    trace = Path(folder) / "trace"
    command = ["ulpscope", "capture", "-o", str(trace), "--", sys.executable, str(TRAIN), "--steps", "3"]
    if subprocess.run(command, stdout=subprocess.DEVNULL).returncode != 0:
        sys.exit("bench_check: the capture failed; the message above says why")
    return trace


def checked(trace, options, out):
    """Runs the check and gives its rows."""
    command = [
        "ulpscope",
        "check",
        str(trace),
        "--device",
        options.device,
        "-o",
        str(out),
        "-j",
        str(options.jobs),
        "--import",
        str(TRAIN),
        "--faults",
        options.faults,
    ]
    run = subprocess.run(command, stdout=subprocess.DEVNULL, env={**os.environ})
    if run.returncode not in (0, 1):
        sys.exit("bench_check: the check failed; the message above says why")
    with closing(sqlite3.connect(f"file:{out}/result.db?mode=ro", uri=True)) as db:
        db.row_factory = sqlite3.Row
        causes = dict(db.execute("SELECT call, value FROM metric WHERE name = 't_causes'"))
        rows = db.execute("SELECT * FROM verdict")
        return [dict(r) | {"t_causes": causes.get(r["call"], 0)} for r in rows]


def milliseconds(row):
    """The parts of one call's time, and what is left: the overhead."""
    parts = {part: row["t_" + part] / 1e6 for part in PARTS}
    parts["causes"] = row["t_causes"] / 1e6
    parts["overhead"] = row["t_total"] / 1e6 - sum(parts.values())
    parts["total"] = row["t_total"] / 1e6
    return parts


def table(rows):
    groups = {
        "all calls": rows,
        "that pass": [r for r in rows if r["verdict"] == "pass"],
        "that are accused": [r for r in rows if r["t_causes"]],
        f"small, pass (< {SMALL:,} elements)": [r for r in rows if r["verdict"] == "pass" and r["n_elements"] < SMALL],
    }
    names = (*PARTS, "causes", "overhead", "total")
    print(f"{'ms per call, mean (median)':36} calls" + "".join(f"{n:>18}" for n in names))
    for title, group in groups.items():
        if not group:
            continue
        times = [milliseconds(r) for r in group]
        cells = [
            f"{statistics.mean(t[n] for t in times):.2f} ({statistics.median(t[n] for t in times):.2f})" for n in names
        ]
        print(f"{title:36} {len(group):5}" + "".join(f"{c:>18}" for c in cells))


def main():
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        trace = options.trace or captured(folder)
        table(checked(trace, options, Path(folder) / "out"))


if __name__ == "__main__":
    main()
