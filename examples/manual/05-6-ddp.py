# SPDX-License-Identifier: Apache-2.0
"""Chapter 5.6: DistributedDataParallel in two processes, a device each."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP

import ulpscope.sim  # noqa: F401


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(5, 5)

    def forward(self, x):
        return self.linear(x)


def start(rank, world_size):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29511")
    dist.init_process_group("simccl", rank=rank, world_size=world_size)


def clean():
    dist.destroy_process_group()


def runner(rank, world_size):
    torch.sim.set_device(rank)
    start(rank, world_size)
    torch.manual_seed(rank)
    model = Model().to("sim")
    ddp_model = DDP(model, device_ids=[rank])
    optimizer = optim.SGD(ddp_model.parameters(), lr=0.001)
    for _ in range(5):
        optimizer.zero_grad()
        input_tensor = torch.randn(5, dtype=torch.float, requires_grad=True).to("sim")
        target_tensor = torch.zeros(5, dtype=torch.float).to("sim")
        output_tensor = ddp_model(input_tensor)
        loss = nn.MSELoss()(output_tensor, target_tensor)
        loss.backward()
        optimizer.step()
    weights = [torch.empty_like(model.linear.weight) for _ in range(world_size)]
    dist.all_gather(weights, model.linear.weight.detach())
    if rank == 0:
        print("the same weights:", all(torch.equal(w.cpu(), weights[0].cpu()) for w in weights))
    clean()


if __name__ == "__main__":
    mp.spawn(runner, args=(2,), nprocs=2, join=True)
