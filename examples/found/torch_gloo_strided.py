# SPDX-License-Identifier: Apache-2.0
"""torch 2.13, gloo: a collective over a tensor with gaps takes as many elements as it has from
where it begins, those between its own among them.

Issues: pytorch/pytorch#192920 (open) has broadcast, reduce and scatter; all_reduce does the
same."""

import os

import torch
import torch.distributed as dist

import ulpscope

SIZES = 8, 60


def worker(rank):
    dist.init_process_group("gloo", rank=rank, world_size=2)
    given = [torch.arange(480.0).reshape(SIZES) * (r + 1) for r in range(2)]
    for name, run, right in (
        ("all_reduce", dist.all_reduce, lambda a, b: a + b),
        ("broadcast", lambda t: dist.broadcast(t, 0), lambda a, b: a.clone()),
    ):
        got = given[rank].clone()[:, :30]  # every row is followed by 30 other numbers
        run(got)
        halves = [t[:, :30] for t in given]
        if rank == 1:
            print(f"{name}:", ulpscope.judge_call(right, halves, {}, got))
            print("  plain count:", int((got != right(*halves)).sum()), "of", got.numel(), "differ")
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29517")
    torch.multiprocessing.spawn(worker, nprocs=2)
