# SPDX-License-Identifier: Apache-2.0
"""The judge against msprobe's comparison of the same pair, one core, in the same run.

Ours: open and look, as `check` judges most honest outputs, also as a share of torch's sum over
the same operands (device, reference, yardstick, as int64); and open and the look with a first
replay, which others need beside it. CPU time, one thread. Peer:
`Comparator._compare_core` of the PyPI package mindstudio-probe, which `acc_check` calls for
each output, on the device's output and the reference in the dtype that acc_check computes
it in. The package lives in a folder of its own, build/peer, made on first use.

Usage: bench_judge_peer.py [MIB_OF_FLOAT32] [ROUNDS]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import peer

ROOT = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build"))
DTYPES = ("float32", "bfloat16", "float16")


def make_pair(torch, dtype, n: int):
    """Truth in float64 and an honest output, off by up to two float32 roundings."""
    seed = torch.Generator().manual_seed(1)
    truth = torch.rand(n, dtype=torch.float64, generator=seed).mul_(4).sub_(2)
    noise = torch.rand(n, dtype=torch.float64, generator=seed).sub_(0.5).mul_(2.0**-22)
    device = noise.add_(1).mul_(truth).to(dtype)
    return truth, device


def timed(call) -> float:
    start = time.thread_time()
    call()
    return time.thread_time() - start


# ---- in the peer's interpreter ----------------------------------------------------------


def measure_peer(n: int, rounds: int) -> None:
    """Prints seconds of each round by dtype as JSON on the last line."""
    peer.enable()
    import torch
    from msprobe.pytorch.api_accuracy_checker.compare.compare import Comparator

    torch.set_num_threads(1)
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        comparator = Comparator(f"{folder}/result.csv", f"{folder}/details.csv", False)
        for name in DTYPES:
            dtype = getattr(torch, name)
            truth, device = make_pair(torch, dtype, n)
            wide = torch.float64 if dtype == torch.float32 else torch.float32
            bench = truth.to(wide)
            del truth
            found[name] = [
                timed(lambda b=bench, d=device: comparator._compare_core("add", b, d, False)) for _ in range(rounds)
            ]
    print(json.dumps(found))


def peer_seconds(n: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of the peer, {} with a line on stderr where it cannot be had."""
    try:
        peer.prepare()
        done = subprocess.run(
            [sys.executable, __file__, "--peer", str(n), str(rounds)],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise RuntimeError((done.stderr.strip() or "no output").splitlines()[-1])
        return json.loads(done.stdout.splitlines()[-1])
    except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
        print(f"no peer: {peer.PACKAGE}: {error}", file=sys.stderr)
        return {}


# ---- ours -------------------------------------------------------------------------------


def measure_ours(n: int, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Seconds of the judge and of a plain sum over all that it was given, by dtype."""
    import torch
    from ulpscope import _core

    torch.set_num_threads(1)
    found = {}
    for name in DTYPES:
        truth, device = make_pair(torch, getattr(torch, name), n)
        yardstick = truth.to(torch.float32)
        moved = truth * (1 + 2.0**-20)
        moved32 = moved.to(torch.float32)
        rows = found[name] = {"all": [], "first": [], "sum": []}
        for _ in range(rounds):
            start = time.thread_time()
            judge = _core.Judge(device, truth, yardstick)
            assert judge.look()["verdict"] == "pass"
            rows["all"].append(time.thread_time() - start)
            del judge
            start = time.thread_time()
            judge = _core.Judge(device, truth, yardstick)
            judge.first(moved, moved32)
            rows["first"].append(time.thread_time() - start)
            words = [t.view(torch.int64) for t in (device, truth, yardstick)]
            rows["sum"].append(timed(lambda w=words: [x.sum() for x in w]))
            del judge
    return found


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--peer"]:
        measure_peer(int(arguments[1]), int(arguments[2]))
        return 0
    n = int(arguments[0] if arguments else 64) * 2**20 // 4
    rounds = int(arguments[1]) if len(arguments) > 1 else 5
    sys.path.insert(0, str(BUILD / "python"))
    ours, peer = measure_ours(n, rounds), peer_seconds(n, min(rounds, 3))
    print(f"{n} elements, one core, ns an element: least (median) of {rounds} rounds")
    print(f"{'output':9} {'judge':>14} {'sum':>14} {'of a sum':>9} {'first':>14} {'msprobe':>16} {'ratio':>7}")
    for name in DTYPES:

        def cell(seconds):
            return f"{1e9 * min(seconds) / n:.2f} ({1e9 * statistics.median(seconds) / n:.2f})"

        row = ours[name]
        share = f"{100 * min(row['sum']) / min(row['all']):.0f} %"
        other = cell(peer[name]) if peer else "-"
        ratio = f"{min(peer[name]) / min(row['all']):.0f}x" if peer else "-"
        print(
            f"{name:9} {cell(row['all']):>14} {cell(row['sum']):>14} {share:>9} "
            f"{cell(row['first']):>14} {other:>16} {ratio:>7}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
