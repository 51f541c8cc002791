# SPDX-License-Identifier: Apache-2.0
"""The order of what a program left unordered, by seeds: correct programs give the same bits with every seed, and
each of them without one of its waits differs within a few seeds, each time anew.

    bench_sim_order.py [--seeds N] [--starts N]

Exits with 1 where a correct program differs, or where one with a wait taken out does not within 20 seeds."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import torch

import ulpscope.sim as sim

WITHIN = 20  # seeds in which a missing wait has to show


def produced_and_used(waits: bool) -> torch.Tensor:
    """A kernel on a second stream makes what one on the first reads."""
    made, side = torch.zeros(64, device="sim"), sim.Stream()
    side.wait_stream(sim.current_stream())
    with sim.stream(side):
        made.fill_(3).exp_()
    if waits:
        sim.current_stream().wait_stream(side)
    return (made * 2).cpu()


def prefetcher(waits: bool) -> torch.Tensor:
    """Batches come over a second stream while the first one trains."""
    torch.manual_seed(0)
    weight = torch.ones(4, 4, device="sim", requires_grad=True)
    data, side = [torch.randn(8, 4).pin_memory() for _ in range(4)], sim.Stream()

    def load(i):
        with sim.stream(side):
            batch = data[i].to("sim", non_blocking=True)
            return batch, side.record_event()

    coming = load(0)
    for i in range(len(data)):
        batch, there = coming
        if waits:
            sim.current_stream().wait_event(there)
        batch.record_stream(sim.current_stream())
        if i + 1 < len(data):
            coming = load(i + 1)
        (batch @ weight).square().mean().backward()
        with torch.no_grad():
            weight -= 0.1 * weight.grad
            weight.grad = None
        batch.zero_()  # its memory comes again, and must not hold what is expected there
    return weight.detach().cpu()


def double_buffered(waits: bool) -> torch.Tensor:
    """Two pinned buffers in turn; the host fills one while the other is copied."""
    buffers, side = [torch.empty(4).pin_memory() for _ in range(2)], sim.Stream()
    done: list[torch.Event | None] = [None, None]
    total = torch.zeros(4, device="sim")
    for i in range(6):
        before = done[i % 2]
        if before is not None and waits:
            before.synchronize()
        buffers[i % 2].fill_(10**i)
        with sim.stream(side):
            batch = buffers[i % 2].to("sim", non_blocking=True)
            done[i % 2] = side.record_event()
        sim.current_stream().wait_event(done[i % 2])
        batch.record_stream(sim.current_stream())
        total += batch
    return total.cpu()


def overlapped(waits: bool) -> torch.Tensor:
    """A second stream adds up each gradient as soon as it is there, as a reducer's does."""
    torch.manual_seed(0)
    layers = [torch.randn(8, 8, device="sim", requires_grad=True) for _ in range(3)]
    comm, reduced = sim.Stream(), []

    def reduce(p):
        ready = sim.current_stream().record_event()
        with sim.stream(comm):
            if waits:
                comm.wait_event(ready)
            p.grad.record_stream(comm)
            reduced.append(p.grad * 0.5 + p.grad * 0.5)

    handles = [p.register_post_accumulate_grad_hook(reduce) for p in layers]
    x = torch.ones(4, 8, device="sim")
    for p in layers:
        x = torch.tanh(x @ p)
    x.sum().backward()
    sim.current_stream().wait_stream(comm)
    for handle in handles:
        handle.remove()
    return torch.stack(reduced).cpu()


def reused(waits: bool) -> torch.Tensor:
    """Memory of one stream is given back while another one still reads it."""
    side = sim.Stream()
    x = torch.full((8,), 5.0, device="sim")
    side.wait_stream(sim.current_stream())
    with sim.stream(side):
        y = x + 1
    if waits:
        x.record_stream(side)
    del x
    torch.full((8,), 9.0, device="sim")  # perhaps in its place
    sim.synchronize()
    return y.cpu()


PROGRAMS: tuple[Callable[[bool], torch.Tensor], ...] = (
    produced_and_used,
    prefetcher,
    double_buffered,
    overlapped,
    reused,
)


def answer(program: Callable[[bool], torch.Tensor], waits: bool, seed: int) -> torch.Tensor:
    with sim.schedule(seed):
        return program(waits)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.view(torch.int32), b.view(torch.int32))


def shows_at(program: Callable[[bool], torch.Tensor], right: torch.Tensor, first: int) -> int | None:
    """After how many seeds the missing wait shows."""
    for k in range(WITHIN):
        if not same(answer(program, False, first + k), right):
            return k + 1
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seeds", type=int, default=500, help="of each correct program")
    parser.add_argument("--starts", type=int, default=25, help="first seeds of the search for a missing wait")
    options = parser.parse_args()
    torch.set_num_threads(1)
    code = 0
    print(f"{'program':<20}{'equal':>12}{'without a wait: shows':>24}{'seeds':>8}{'repeats':>9}")
    for program in PROGRAMS:
        right = program(True)
        equal = sum(same(answer(program, True, seed), right) for seed in range(options.seeds))
        needed = [shows_at(program, right, WITHIN * i) for i in range(options.starts)]
        found = [n for n in needed if n is not None]
        again = all(
            same(answer(program, False, WITHIN * i), answer(program, False, WITHIN * i)) for i in range(options.starts)
        )
        most = max(found, default=0)
        print(
            f"{program.__name__:<20}{equal:>6} of {options.seeds:<4}{len(found):>15} of {len(needed):<4}{most:>8}"
            f"{'yes' if again else 'NO':>9}"
        )
        code |= equal < options.seeds or len(found) < len(needed) or not again
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
