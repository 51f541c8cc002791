# SPDX-License-Identifier: Apache-2.0
"""What the simulated device costs, beside the CPU in the same run: a GPT step in each guard, a four-element
add, copies beside memcpy, the memory of many tensors of one element, and the import.

    bench_sim.py [--rounds N] [--only WORD]

What is compared takes turns, and the median of the rounds counts, in processor time of the process."""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

import ulpscope.sim as sim

sys.path.insert(0, str(Path(__file__).parent))
import model  # noqa: E402

GUARDS = ("strict", "pages", "open")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="only the rows that have this word")
    return parser.parse_args()


def medians(works: dict[str, Callable[[], object]], rounds: int, prepare: Callable[[str], None]) -> dict[str, float]:
    """Seconds of each, in turns; the first round warms up."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for i in range(rounds + 1):
        for name, work in works.items():
            prepare(name)
            start = time.process_time()
            work()
            if i > 0:
                times[name].append(time.process_time() - start)
    return {name: statistics.median(t) for name, t in times.items()}


def choose_guard(name: str) -> None:
    if name in GUARDS:
        sim.set_guard(name)


def told(what: str, seconds: dict[str, float], peer: str, unit: float, wanted: dict[str, float]) -> None:
    for name, s in seconds.items():
        ratio = s / seconds[peer]
        goal = f"  (wanted: {wanted[name]:g})" if name in wanted else ""
        print(f"{what:<24}{name:<10}{s / unit:>12.2f}  {ratio:>8.2f}x{goal}")


def gpt(rounds: int) -> None:
    works = {"cpu": model.TrainingStep()}
    for name in GUARDS:  # blocks keep the guard that they were made with
        sim.set_guard(name)
        works[name] = model.TrainingStep(device="sim")
    seconds = medians(works, rounds, choose_guard)
    told("GPT step, ms", seconds, "cpu", 1e-3, {"strict": 1.6, "pages": 1.15, "open": 1.05})


def add(rounds: int, n: int = 3000) -> None:
    def adds(device):
        x, y = torch.ones(4, device=device), torch.ones(4, device=device)

        def work():
            for _ in range(n):
                x + y

        return work

    works = {"cpu": adds("cpu")}
    for name in GUARDS:
        sim.set_guard(name)
        works[name] = adds("sim")
    told("add of 4, us", medians(works, rounds, choose_guard), "cpu", n * 1e-6, {"pages": 8, "open": 4})


def copies(rounds: int, size: int = 64 << 20) -> None:
    host, other = torch.empty(size, dtype=torch.uint8).fill_(1), torch.empty(size, dtype=torch.uint8).fill_(2)
    sim.set_guard("pages")
    there, more = host.to("sim"), other.to("sim")
    works = {
        "memcpy": lambda: ctypes.memmove(other.data_ptr(), host.data_ptr(), size),
        "to sim": lambda: there.copy_(host),
        "from sim": lambda: other.copy_(there),
        "within": lambda: more.copy_(there),
    }
    told(
        "copy of 64 MiB, ms",
        medians(works, rounds, choose_guard),
        "memcpy",
        1e-3,
        {name: 1.25 for name in works if name != "memcpy"},
    )


def small_tensors(_rounds: int, n: int = 100_000) -> None:
    for name in GUARDS:
        sim.set_guard(name)
        sim.empty_cache()
        before = sim.memory_reserved()
        kept = [torch.empty(1, device="sim") for _ in range(n)]
        goal = "  (wanted: 16)" if name == "pages" else ""
        print(f"{'1e5 of one, MiB':<24}{name:<10}{(sim.memory_reserved() - before) / 2**20:>12.2f}{goal}")
        del kept
    sim.empty_cache()


def imports(rounds: int) -> None:
    def run(code):
        spent = os.times()
        subprocess.run([sys.executable, "-c", code], check=True)
        now = os.times()
        return now.children_user + now.children_system - spent.children_user - spent.children_system

    both = [(run("import torch"), run("import torch, ulpscope.sim")) for _ in range(rounds)]
    torch_alone, with_sim = (statistics.median(t) for t in zip(*both))  # noqa: B905 (as old as Python 3.9)
    print(f"{'import, s':<24}{'torch':<10}{torch_alone:>12.2f}")
    print(f"{'':<24}{'sim beside':<10}{with_sim - torch_alone:>12.2f}  (wanted: 0.3)")


ROWS = {"gpt": gpt, "add": add, "copies": copies, "small": small_tensors, "import": imports}


def main() -> None:
    options = parse()
    torch.set_num_threads(1)
    for name, row in ROWS.items():
        if options.only in name:
            row(options.rounds)
    sim.set_guard("strict")


if __name__ == "__main__":
    main()
