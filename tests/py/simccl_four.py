# SPDX-License-Identifier: Apache-2.0
"""What each of four ranks does for test_simccl_four.py: training by DDP and FSDP2 beside one process that adds up what
ranks would, a checkpoint that two of them take up, and each fault of collectives."""

from __future__ import annotations

import contextlib
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

import ulpscope.sim  # noqa: F401

STEPS, EACH = 3, 2  # samples of a rank in a step


class Net(nn.Module):
    """Odd shapes, and a layer that only ranks of even numbers use."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(7, 13), nn.LayerNorm(13), nn.Linear(13, 5)
        self.sometimes = nn.Linear(13, 13)

    def forward(self, x, uses=True):
        x = self.norm(torch.relu(self.first(x)))
        return self.last(self.sometimes(x) if uses else x)


def made(device):
    torch.manual_seed(0)
    return Net().to(device)


def data(size, steps=STEPS):
    torch.manual_seed(1)
    return torch.randn(steps, size, EACH, 7), torch.randn(steps, size, EACH, 5)


def loss_of(model, x, y, uses):
    device = next(model.parameters()).device
    x, y = (t.to(device, copy=True) for t in (x, y))  # a product of the CPU may hang on how its operand is aligned
    return (model(x, uses).float() - y).square().mean()


def always(rank):
    return True


def even(rank):
    return rank % 2 == 0


def added(parts, narrow):
    """What ranks exchange: from rank 0 upwards in float32, of ``narrow`` numbers, rounded once."""
    parts = [part / len(parts) for part in parts]
    if narrow is not None:
        parts = [part.to(narrow).float() for part in parts]
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    return total if narrow is None else total.to(narrow).float()


def alone(size, steps=STEPS, uses=always, accumulated=1, narrow=None, clip=None, model=None, optimizer=None, first=0):
    """One process that does what all ranks do, one after the other."""
    model = model or made("cpu")
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-2)
    xs, ys = data(size, first + steps)
    for step in range(first, first + steps, accumulated):
        gradients = []
        for rank in range(size):
            model.zero_grad()
            for i in range(step, step + accumulated):
                loss_of(model, xs[i, rank], ys[i, rank], uses(rank)).backward()
            gradients.append([torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in model.parameters()])
        for p, parts in zip(model.parameters(), zip(*gradients)):  # noqa: B905
            p.grad = added(parts, narrow)
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
    return model, optimizer


def train(model, rank, size, steps=STEPS, uses=always, accumulated=1, clip=None, optimizer=None, first=0):
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-2)
    xs, ys = data(size, first + steps)
    for i in range(first, first + steps):
        last = (i + 1) % accumulated == 0
        with contextlib.nullcontext() if last else model.no_sync():
            loss_of(model, xs[i, rank], ys[i, rank], uses(rank)).backward()
        if last:
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            optimizer.zero_grad()
    return model, optimizer


def values(model):
    """All parameters, by name and whole."""
    named = getattr(model, "module", model).named_parameters()
    return {name: (p.full_tensor() if hasattr(p, "full_tensor") else p).detach().cpu() for name, p in named}


def ddp(**options):
    return DistributedDataParallel(made("sim"), bucket_cap_mb=0.0005, **options)


def compressed():
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    model = ddp()
    model.register_comm_hook(None, fp16_compress_hook)
    return model


def fsdp(mesh=None, **options):
    from torch.distributed.fsdp import fully_shard

    model = made("sim")
    for layer in (model.first, model.sometimes):
        fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def narrow_fsdp():
    from torch.distributed.fsdp import MixedPrecisionPolicy

    return fsdp(mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))


def narrow_alone(size):
    """The same with parameters that are rounded to bfloat16 in each step, on the device, as ranks do."""
    master = made("sim")
    optimizer = torch.optim.AdamW(master.parameters(), lr=1e-2)
    xs, ys = data(size)
    for i in range(STEPS):
        gradients = []
        for rank in range(size):
            model = made("sim").bfloat16()
            with torch.no_grad():
                for p, whole in zip(model.parameters(), master.parameters()):  # noqa: B905
                    p.copy_(whole)
            loss_of(model, xs[i, rank].bfloat16(), ys[i, rank], True).backward()
            gradients.append([p.grad.float() for p in model.parameters()])
        for p, parts in zip(master.parameters(), zip(*gradients)):  # noqa: B905
            p.grad = added(parts, None)
        optimizer.step()
    return master, optimizer


# How it is trained, what one process does for it, and by how much they may differ, in ulps of the largest.
TRAINED = {
    "ddp": (lambda r, n: train(ddp(), r, n), lambda n: alone(n), 0),
    "ddp, a bucket each": (lambda r, n: train(ddp(gradient_as_bucket_view=True), r, n), lambda n: alone(n), 0),
    "ddp, unused parameters": (
        lambda r, n: train(ddp(find_unused_parameters=True), r, n, uses=even),
        lambda n: alone(n, uses=even),
        0,
    ),
    "ddp, accumulated": (
        lambda r, n: train(ddp(), r, n, steps=4, accumulated=2),
        lambda n: alone(n, steps=4, accumulated=2),
        0,
    ),
    "ddp, compressed": (lambda r, n: train(compressed(), r, n), lambda n: alone(n, narrow=torch.float16), 0),
    "ddp, clipped": (lambda r, n: train(ddp(), r, n, clip=0.1), lambda n: alone(n, clip=0.1), 0),
    "fsdp": (lambda r, n: train(fsdp(), r, n), lambda n: alone(n), 0),
    "fsdp, not resharded": (lambda r, n: train(fsdp(reshard_after_forward=False), r, n), lambda n: alone(n), 0),
    "fsdp, mixed precision": (lambda r, n: train(narrow_fsdp(), r, n), narrow_alone, 0),
    # Ranks add the squares of their shards, one process those of whole parameters.
    "fsdp, clipped": (lambda r, n: train(fsdp(), r, n, clip=0.1), lambda n: alone(n, clip=0.1), 16),
}


def hold(name, got, wanted, ulps=0):
    for key, b in wanted.items():
        a = got[key]
        allowed = ulps * 2.0**-23 * b.abs().max()
        assert torch.equal(a, b) or (a - b).abs().max() <= allowed, (name, key, (a - b).abs().max())


def trains(rank, size):
    for name, (ranks, one, ulps) in TRAINED.items():
        hold(name, values(ranks(rank, size)[0]), values(one(size)[0]), ulps)


def resumes(rank, size, folder):
    """Saved by four ranks, taken up by two, which go on as one process with two parts would."""
    model, optimizer = train(fsdp(), rank, size)
    saved_model, saved_optimizer = get_state_dict(model, optimizer)
    dcp.save({"model": saved_model, "optimizer": saved_optimizer}, checkpoint_id=folder)
    wanted = values(model)
    one, its = alone(size)
    pair = dist.new_group([0, 1], backend="cpu:gloo,sim:simccl")
    if rank < 2:
        mesh = DeviceMesh.from_group(pair, "sim", [0, 1])
        fresh = fsdp(mesh=mesh)
        with torch.no_grad():
            for p in fresh.parameters():
                p.zero_()
        again = torch.optim.AdamW(fresh.parameters(), lr=1e-2)
        found_model, found_optimizer = get_state_dict(fresh, again)
        found = {"model": found_model, "optimizer": found_optimizer}
        dcp.load(found, checkpoint_id=folder, process_group=pair)
        set_state_dict(fresh, again, model_state_dict=found["model"], optim_state_dict=found["optimizer"])
        hold("as saved", values(fresh), wanted)
        train(fresh, rank, 2, steps=2, optimizer=again, first=STEPS)
        alone(2, steps=2, model=one, optimizer=its, first=STEPS)
        hold("resumed", values(fresh), values(one))
    dist.barrier()


def exchanged(rank, size):
    """One of each collective that adds up or moves, twice."""
    out = []
    for turn in range(2):
        x = ((torch.arange(9.0) + 1) / 3 * (rank + 1) + turn).to("sim")
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX):
            y = x.clone()
            dist.all_reduce(y, op)
            out.append(y)
        y = torch.zeros(9 * size, device="sim")
        dist.all_gather_into_tensor(y, x)
        z = torch.zeros(9, device="sim")
        dist.reduce_scatter_tensor(z, y * (rank + 1))
        w = x.clone()
        dist.broadcast(w, turn)
        out += [y, z, w]
    return torch.cat([t.cpu() for t in out])


FAULTS = ("rank_lost:rank=3", "rank_twice:rank=3:instead=1", "ranks_bf16", "ranks_sum", "ranks_stale", "ranks_again")
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
BLIND = {  # what such a fault does not change there
    *((fault, moved) for fault in ("ranks_bf16", "ranks_sum", "ranks_again") for moved in ("all_gather", "broadcast")),
    ("ranks_sum", "reduce_scatter"),
    ("rank_lost:rank=3", "broadcast"),
}


def faults(rank, size):
    """Each fault changes what some rank gets, and training too where it meets what that exchanges."""
    honest = exchanged(rank, size)
    assert torch.equal(honest, exchanged(rank, size))
    hold("honest", values(train(ddp(), rank, size)[0]), values(alone(size)[0]))
    for fault in (*FAULTS, "ranks_last"):
        for collective in COLLECTIVES:
            with torch.sim.fault(f"simccl::{collective}", *fault.split(":")[:1], **keys(fault)):
                differs = torch.tensor([float(not torch.equal(exchanged(rank, size), honest))])
            dist.all_reduce(differs)
            seen = differs.item() > 0
            assert seen == ((fault, collective) not in BLIND), (fault, collective, seen)
    for fault in ("rank_lost:rank=3", "rank_twice:rank=3:instead=1", "ranks_bf16", "ranks_stale", "ranks_again"):
        with torch.sim.fault("simccl::all_reduce", *fault.split(":")[:1], **keys(fault)):
            broken = values(train(ddp(), rank, size)[0])
        whole = values(alone(size)[0])
        assert any(not torch.equal(broken[key], whole[key]) for key in whole), fault


def keys(fault):
    return {key: int(value) for key, value in (part.split("=") for part in fault.split(":")[1:])}


def main(folder):
    dist.init_process_group("cpu:gloo,sim:simccl")
    rank, size = dist.get_rank(), dist.get_world_size()
    for blocking in (False, True):
        torch.sim.set_launch_blocking(blocking)
        trains(rank, size)
    torch.sim.set_launch_blocking(False)
    resumes(rank, size, folder)
    faults(rank, size)
    dist.destroy_process_group()
    print(f"rank {rank} is through")


if __name__ == "__main__":
    main(sys.argv[1])
