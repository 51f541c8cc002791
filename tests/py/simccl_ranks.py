# SPDX-License-Identifier: Apache-2.0
"""What each rank of test_simccl.py does: collectives, misfits, and training beside gloo on the CPU."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ulpscope.sim  # noqa: F401


def given(rank, n=6, dtype=torch.float32):
    return (torch.arange(n, dtype=torch.float64) * (rank + 1) + rank).to(dtype)


def on(device, values):
    return torch.as_tensor(values).to(device)


def moves(device, rank, size):
    """Everything that moves or adds up, as one list of CPU tensors."""
    x = on(device, given(rank))
    out = []
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX):
        for dtype in (torch.float32, torch.int64, torch.bfloat16, torch.float64):
            y = on(device, given(rank, dtype=dtype))
            dist.all_reduce(y, op)
            out.append(y)
    y = x.clone()
    dist.reduce(y, 1)
    out.append(y if rank == 1 else torch.zeros(1))
    y = x.clone()
    dist.broadcast(y, size - 1)
    out.append(y)
    parts = [torch.empty_like(x) for _ in range(size)]
    dist.all_gather(parts, x)
    out += parts
    dist.gather(x, parts if rank == 0 else None, 0)
    out += parts
    y = torch.empty_like(x)
    dist.scatter(y, [x + i for i in range(size)] if rank == 1 else None, 1)
    out.append(y)
    whole = torch.empty(size * len(x), device=device)
    dist.all_gather_into_tensor(whole, x)
    out.append(whole)
    y = torch.empty(3, device=device)
    dist.reduce_scatter_tensor(y, on(device, given(rank, 3 * size)))
    out.append(y)
    y = torch.empty(len(x), device=device)
    if rank < 2:  # the same splits on both sides of a pair
        splits = [2, 4] if rank == 0 else [4, 2]
        dist.all_to_all_single(y, x, splits, splits)
        out.append(y)
    peer = 1 - rank
    y = torch.empty_like(x)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, peer), dist.P2POp(dist.irecv, y, peer)]):
        work.wait()
    out.append(y)
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": i} for i in range(size)]
    return [t.cpu() for t in out]


def same_as_gloo(rank, size):
    ours = moves("sim", rank, size)
    theirs = moves("cpu", rank, size)
    for i, (a, b) in enumerate(zip(ours, theirs)):  # noqa: B905
        assert torch.equal(a, b), (i, a, b)
    y = on("sim", given(rank, dtype=torch.complex64) * (1 + 2j))
    dist.all_reduce(y, dist.ReduceOp.AVG)
    assert torch.equal(y.cpu(), (given(0) + given(1)).to(torch.complex64) * (1 + 2j) / 2)


def says(text, act):
    try:
        act()
        torch.sim.synchronize()  # what a kernel says is told at a wait
    except Exception as problem:
        assert text in str(problem), (text, str(problem))
    else:
        raise AssertionError(f"nothing was said of: {text}")


def misfits(rank):
    x = torch.ones(3, device="sim")
    n = "all_reduce (sum of float32) of 12 bytes, rank 1 at broadcast with root 1 of 12 bytes"
    says(n, lambda: dist.all_reduce(x) if rank == 0 else dist.broadcast(x, 1))
    says(
        "of 12 bytes, rank 1 at all_reduce (sum of float32) of 16 bytes",
        lambda: dist.all_reduce(torch.ones(3 + rank, device="sim")),
    )
    says("Tensors must be contiguous", lambda: dist.all_reduce(torch.ones(4, 4, device="sim")[:, 1]))
    says("no bitwise and of float32", lambda: dist.all_reduce(x, dist.ReduceOp.BAND))
    dist.all_reduce(x)  # and it goes on
    assert x.tolist() == [2, 2, 2], x
    work = dist.all_reduce(x, async_op=True)
    assert work.wait() and x.tolist() == [4, 4, 4] and work.is_completed() and work.is_success()
    half = dist.new_group([rank], use_local_synchronization=True)
    dist.all_reduce(x, group=half)
    assert x.tolist() == [4, 4, 4]
    dist.barrier()


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.LayerNorm(64), nn.Linear(64, 8))


def trained(wrap, device, rank, size):
    """Losses and parameters after six steps of AdamW on this rank's part of each batch."""
    model = wrap(net().to(device))
    torch.manual_seed(1)
    xs, ys = torch.randn(6, 4 * size, 32), torch.randn(6, 4 * size, 8)
    mine = slice(4 * rank, 4 * rank + 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    told = []
    for x, y in zip(xs, ys):  # noqa: B905
        loss = (model(x[mine].to(device)) - y[mine].to(device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        told.append(loss.detach().cpu())
    whole = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    return told + [p.detach().cpu() for p in whole]


def ddp(model):
    return DistributedDataParallel(model, bucket_cap_mb=0.01)


def fsdp(model):
    from torch.distributed.fsdp import fully_shard

    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    return fully_shard(model)


def trains(rank, size):
    wanted = trained(ddp, "cpu", rank, size)
    from torch.distributed import fsdp as its

    for how in (ddp, fsdp) if hasattr(its, "fully_shard") else (ddp,):
        for a, b in zip(trained(how, "sim", rank, size), wanted):  # noqa: B905
            assert torch.equal(a, b), (how, a, b)


def main(what):
    dist.init_process_group("cpu:gloo,sim:simccl")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.sim.set_launch_blocking(what == "in-step")
    same_as_gloo(rank, size)
    misfits(rank)
    trains(rank, size)
    dist.destroy_process_group()
    print(f"rank {rank} is through")


def dies():
    """Rank 1 goes away in the middle; rank 0 is told who and where."""
    import signal

    # The launcher ends the ranks that are left as soon as it sees that one has gone: often before rank 0 was told.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    dist.init_process_group("simccl")
    x = torch.ones(3, device="sim")
    dist.all_reduce(x)
    torch.sim.synchronize()
    if dist.get_rank() == 1:
        import os

        os._exit(7)
    says(
        "rank 1 has ended and cannot come to all_reduce number 2, where rank 0 waits; the last it has begun is "
        "all_reduce number 1",
        lambda: dist.all_reduce(x),
    )
    print("rank 0 was told")


if __name__ == "__main__":
    dies() if sys.argv[1] == "dies" else main(sys.argv[1])
