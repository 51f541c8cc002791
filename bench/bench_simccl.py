# SPDX-License-Identifier: Apache-2.0
"""simccl against gloo, two ranks, in one run: an all_reduce of float32 and a step of DDP, medians of the slower
rank's times. gloo runs on CPU tensors, since it knows no others; the sums are bit-equal."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn

SIZES_MIB = (1 / 1024, 1, 64)
ROUNDS = 7


def measured(act, rounds: int = ROUNDS) -> float:
    """Median seconds of the slower rank, after one round that is not counted."""
    times = []
    for i in range(rounds + 1):
        dist.barrier()
        start = time.perf_counter()
        act()
        took = torch.tensor([time.perf_counter() - start])
        dist.all_reduce(took, dist.ReduceOp.MAX)
        if i > 0:
            times.append(took.item())
    return statistics.median(times)


def all_reduce(device: str, mib: float) -> float:
    x = torch.full((int(mib * 2**20) // 4,), 0.5, device=device)

    def act():
        dist.all_reduce(x)
        torch.sim.synchronize()

    return measured(act)


def ddp_step(device: str) -> float:
    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (nn.Linear(512, 512), nn.GELU())]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers).to(device))
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(64, 512).to(device)

    def act():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        torch.sim.synchronize()

    return measured(act)


def work(rank: int, store: str) -> None:
    import ulpscope.sim  # noqa: F401

    torch.set_num_threads(1)
    dist.init_process_group("cpu:gloo,sim:simccl", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.sim.set_guard("open")
    rows = [(f"all_reduce, {mib * 1024:g} KiB", all_reduce("cpu", mib), all_reduce("sim", mib)) for mib in SIZES_MIB]
    rows.append(("a DDP step, 1.6 million parameters", ddp_step("cpu"), ddp_step("sim")))
    if rank == 0:
        print(f"{'two ranks, one thread each':40} {'gloo, CPU':>12} {'simccl, sim':>12} {'times gloo':>11}")
        for name, theirs, ours in rows:
            print(f"{name:40} {theirs * 1e3:9.2f} ms {ours * 1e3:9.2f} ms {ours / theirs:10.2f}x")
    dist.destroy_process_group()


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (f"{folder}/store",), nprocs=2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
