# SPDX-License-Identifier: Apache-2.0
"""What many calls cost: `./run bench scale [CALLS]` (default 200,000) captures a loop of small operators with
statistics, the ratio is that to the same loop without, and gives the trace to `show`, `check --distinct` and `report`.
`peak`: the largest memory of the command's own process; of the capture, what it adds to the program's."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import ulpscope

PASSES = 4  # of the loop in front of the capture, each as long as a hundredth of it


def loop(n: int) -> None:
    """About `n` operators on tensors of 32 elements."""
    weights, kept = torch.randn(8, 8), [torch.randn(4, 8) for _ in range(50)]
    for i in range(n // 6):
        x = kept[i % 50]
        kept[i % 50] = torch.softmax(torch.relu(torch.mm(x, weights)) * 0.5, 1) + x * 0.1


def seconds(n: int) -> float:
    begin = time.perf_counter()
    loop(n)
    return time.perf_counter() - begin


def peak() -> float:
    """MB that this process has taken at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def captured(n: int, folder: Path) -> None:
    plain = min(seconds(n // 100) for _ in range(PASSES)) * 100
    before, begin = peak(), time.perf_counter()
    with ulpscope.capture(folder, data="stats") as capture:
        inside = seconds(n)
    whole = time.perf_counter() - begin
    size = sum(file.stat().st_size for file in folder.iterdir()) / 1e6
    print(f"{capture.counts['calls']:,} calls, {size:.0f} MB on disk")
    print(
        f"{'capture':18} {inside:7.1f} s, {inside / plain:5.2f}x; until on disk {whole:.1f} s, {whole / plain:.2f}x; "
        f"peak {peak() - before:.0f} MB"
    )


def told(name: str, *words: str | Path) -> None:
    """A line for a command of the program, run once."""
    begin = time.perf_counter()
    process = subprocess.Popen(["ulpscope", *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    most = 0
    while process.poll() is None:  # not the rusage of children: its workers would count, which load torch
        try:
            most = max(most, int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]))
        except (OSError, IndexError):
            break
        time.sleep(0.05)
    code = process.wait()
    wall = time.perf_counter() - begin
    size = most * os.sysconf("SC_PAGE_SIZE") / 1e6
    print(f"{name:18} {wall:7.1f} s; peak {size:.0f} MB; exit code {code}", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    n = int(float(sys.argv[1])) if len(sys.argv) > 1 else 200_000
    with tempfile.TemporaryDirectory() as folder:
        trace, out = Path(folder) / "trace", Path(folder) / "out"
        captured(n, trace)
        told("show", "show", trace)
        told("check --distinct", "check", trace, "--distinct", "--device", "sim", "-o", out)
        told("report", "report", trace, "-o", Path(folder) / "report.html")
        shutil.rmtree(trace)


if __name__ == "__main__":
    main()
