# SPDX-License-Identifier: Apache-2.0
"""Cases of the verdict's benchmark (docs/background/benchmark.md), each judged in every way there is: a check of a
trace, a verdict on outputs, a live check, a pack that is judged without torch. Says where a way does not come to the
verdict, the bits, the sentence and the notes of a check.

usage: bench_ways.py [--seed N] [--cases N] [--first N] [--right N] [--wrong N] [--only OP ...] [-j N]

--seed     of the draw, as of `./run bench verdicts` (default 101); --cases so many of it (default all)
--first    begins behind so many
--right    so many right kernels of each case, --wrong so many wrong ones (default all)
--only     operators
-j         processes (default all cores)

Exit code 1 where two ways differ.
"""

from __future__ import annotations

import argparse
import collections
import multiprocessing
import os
import random
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "py")]

import bench_ops  # noqa: E402
import torch  # noqa: E402
import ways  # noqa: E402

from bench.verdicts.ops import cases  # noqa: E402

TABLE = 24  # cases in one trace and one pack


def drawn(seed: int, only: list[str] | None = None) -> list[tuple]:
    """Cases in the order in which the benchmark takes them."""
    every = [(op.name, profile, dtype, seed) for op, profile, dtype in cases(only)]
    random.Random(seed).shuffle(every)
    return every


def answered(job: tuple) -> tuple[int, int, collections.Counter, list[tuple]]:
    """(cases, answers, verdicts, differences) of a table of cases."""
    rows, right, wrong = job
    torch.set_num_threads(1)
    asked = [a for a in (bench_ops.asked(*row, right, wrong) for row in rows) if a is not None]
    with tempfile.TemporaryDirectory() as folder:
        said = ways.answers(asked, folder, ["bench_ops"])
    verdicts = collections.Counter(s["check"].verdict for s in said.values())
    return len(asked), len(said), verdicts, ways.differences(said)


def main(arguments: list[str]) -> int:
    p = argparse.ArgumentParser(prog="./run bench ways", description=__doc__.partition("\n\n")[0])
    p.add_argument("--seed", type=int, default=101)
    p.add_argument("--cases", type=int)
    p.add_argument("--first", type=int, default=0)
    p.add_argument("--right", type=int)
    p.add_argument("--wrong", type=int)
    p.add_argument("--only", nargs="*", metavar="OP")
    p.add_argument("-j", type=int, default=os.cpu_count())
    o = p.parse_args(arguments)
    rows = drawn(o.seed, o.only)[o.first :][: o.cases]
    tables = [(rows[i : i + TABLE], o.right, o.wrong) for i in range(0, len(rows), TABLE)]
    n_cases = n_answers = 0
    verdicts, kinds, since = collections.Counter(), collections.Counter(), time.monotonic()
    os.environ["OMP_NUM_THREADS"] = "1"
    with multiprocessing.get_context("spawn").Pool(o.j) as pool:
        for n, m, found, others in pool.imap_unordered(answered, tables):
            n_cases, n_answers, verdicts = n_cases + n, n_answers + m, verdicts + found
            for call, device, way, why, check, other in others:
                kinds[way, why] += 1
                print(f"{call}: {device}: {way}, {why}\n  check: {check}\n  {way}: {other}", flush=True)
            print(
                f"{n_cases} cases, {n_answers} answers, {time.monotonic() - since:.0f} s", file=sys.stderr, flush=True
            )
    print(f"{n_cases} cases, {n_answers} answers in each of {1 + len(ways.OTHERS)} ways; {dict(verdicts)}")
    print("no way differs" if not kinds else ", ".join(f"{n} of {w} in {k}" for (w, k), n in kinds.most_common()))
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
