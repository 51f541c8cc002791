# SPDX-License-Identifier: Apache-2.0
"""Chapter 8.1, several processes on one node, one for each device; traces for TensorBoard, a file of each rank."""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.optim
import torch.profiler
import torch.utils.data
from torch.nn.parallel import DistributedDataParallel as DDP

import ulpscope.sim  # noqa: F401

OUT = sys.argv[1] if len(sys.argv) > 1 else "./result_ddp"


def clean():
    dist.destroy_process_group()


def example(rank):
    torch.sim.set_device(rank)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 14 * 14, 10))
    model.to("sim")
    model = DDP(model, device_ids=[rank])
    trainset = torch.utils.data.TensorDataset(torch.randn(64, 3, 16, 16), torch.arange(64) % 10)
    train_sampler = torch.utils.data.distributed.DistributedSampler(trainset)
    trainloader = torch.utils.data.DataLoader(trainset, batch_size=8, sampler=train_sampler, shuffle=False)
    criterion = nn.CrossEntropyLoss().to(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    model.train()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.PrivateUse1],
        schedule=torch.profiler.schedule(wait=1, warmup=1, active=2),
        on_trace_ready=torch.profiler.tensorboard_trace_handler(OUT, worker_name=f"worker{rank}"),
        record_shapes=True,
        profile_memory=True,
        with_stack=True,
        experimental_config=torch._C._profiler._ExperimentalConfig(verbose=True),
    ) as p:
        for step, data in enumerate(trainloader, 0):
            inputs, labels = data[0].to("sim"), data[1].to("sim")
            outputs = model(inputs)
            loss = criterion(outputs, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            p.step()
            if step + 1 >= 10:
                break
    clean()


def init_process(rank, size, fn, backend="simccl"):
    """Initialize the distributed environment."""
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ.setdefault("MASTER_PORT", "29500")
    dist.init_process_group(backend, rank=rank, world_size=size)
    fn(rank)


if __name__ == "__main__":
    size = torch.sim.device_count()
    processes = []
    mp.set_start_method("spawn")
    for rank in range(size):
        p = mp.Process(target=init_process, args=(rank, size, example))
        p.start()
        processes.append(p)
    for p in processes:
        p.join()
    sys.exit(any(p.exitcode for p in processes))
