# SPDX-License-Identifier: Apache-2.0
"""The command line: runs cases, writes JSON lines, prints the tables."""

import argparse
import os
import random
import sys
import time
from pathlib import Path

from . import engine, table
from .ops import cases

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build"))
STANDARDS = (
    "ascend-v1",
    "ascend-absolute",
    "ascend-ulp",
    "ascend-benchmark",
    "torch-close",
    "allclose:1e-3,1e-3",
    "ulp:1",
    "ulp:4",
    "bitwise",
    "cosine:0.999",
    "neuron-3way",
    "inductor-same",
    "ggml-nmse",
    "kernelbench",
)
QUICK = 1.8  # minutes


def options(arguments):
    p = argparse.ArgumentParser(prog="./run bench verdicts", description=__doc__)
    p.add_argument("--quick", action="store_true", help="two minutes of cases drawn at random")
    p.add_argument("--minutes", type=float, help="as many minutes of cases drawn at random")
    p.add_argument("--seed", type=int, default=0, help="seed of the inputs (default 0)")
    p.add_argument("--only", nargs="*", metavar="OP", help="operators")
    p.add_argument("--profile", nargs="*", help="input profiles")
    p.add_argument("--dtype", nargs="*", help="f32 bf16 f16")
    p.add_argument("--variant", nargs="*", help="variants or faults; prints every verdict")
    p.add_argument("--share", type=float, default=1.0, help="share of the variants (default 1)")
    p.add_argument("--what", choices=("correct", "faults", "both"), default="both", help="default: both")
    p.add_argument("--real", action="store_true", help="released kernels instead of emulated ones")
    p.add_argument("--devices", nargs="*", help="released kernels: native strided inductor jax ... (default all)")
    p.add_argument("--standards", default="", help="names, separated by spaces, or all, judged alongside")
    p.add_argument("-j", type=int, default=os.cpu_count(), help="processes")
    p.add_argument("--lines", type=Path, help="file of JSON lines (default build/verdicts-SEED.jsonl)")
    p.add_argument("--table", nargs="*", type=Path, metavar="FILE", help="only print the tables of files")
    p.add_argument(
        "--held", choices=("with", "without", "only"), default="with", help="operators set aside (default with)"
    )
    return p.parse_args(arguments)


def jobs_of(o):
    extra = {
        "variant": o.variant,
        "devices": o.devices,
        "share": o.share,
        "real": o.real,
        "what": ("correct", "faults") if o.what == "both" else (o.what,),
        "standards": STANDARDS if o.standards == "all" else tuple(o.standards.split()),
    }
    held = {"with": (True, False), "without": (False,), "only": (True,)}[o.held]
    jobs = [
        (op.name, profile, dtype, o.seed, extra)
        for op, profile, dtype in cases(o.only, o.profile, o.dtype)
        if op.held in held
    ]
    random.Random(o.seed).shuffle(jobs)
    if not (o.only or o.real or o.variant):
        jobs.insert(0, ("documented", "", "", o.seed, extra))
    return jobs


def main(arguments):
    o = options(arguments)
    if o.table is not None:
        return table.show(table.read(o.table))
    path = o.lines or BUILD / f"verdicts-{'real-' if o.real else ''}{o.seed}.jsonl"
    if o.variant:
        return one_by_one(o)
    path.unlink(missing_ok=True)
    minutes = o.minutes or (QUICK if o.quick else None)
    until = time.monotonic() + 60 * minutes if minutes else None
    jobs = jobs_of(o)
    done = engine.run(jobs, path, o.j, until)
    print(f"{done} of {len(jobs)} cases; lines in {path}")
    return table.show(table.read([path]))


def one_by_one(o):
    for job in jobs_of(o):
        for line in engine.safely(job):
            for key, value in line.items():
                print(f"{key:12} {value}")
            print()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
