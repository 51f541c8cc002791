# SPDX-License-Identifier: Apache-2.0
"""Chapter 8.1, several nodes: `-n NODES -g DEVICES -nr NODE`, once for each node, here
all on one machine; traces for TensorBoard, a file of each rank."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP

import ulpscope.sim  # noqa: F401


def runner(gpu, args):
    rank = args.nr * args.gpus + gpu
    torch.sim.set_device(rank % torch.sim.device_count())
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29512")
    dist.init_process_group("simccl", rank=rank, world_size=args.world_size)
    trainset = torch.utils.data.TensorDataset(torch.randn(64, 3, 16, 16), torch.arange(64) % 10)
    sampler = torch.utils.data.distributed.DistributedSampler(trainset)
    trainloader = torch.utils.data.DataLoader(trainset, batch_size=8, sampler=sampler)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 14 * 14, 10)).to("sim")
    ddp_model = DDP(model, device_ids=[rank % torch.sim.device_count()])
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.SGD(ddp_model.parameters(), lr=0.001)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.PrivateUse1],
        schedule=torch.profiler.schedule(wait=1, warmup=1, active=2),
        on_trace_ready=torch.profiler.tensorboard_trace_handler(args.out, worker_name=f"worker{rank}"),
        record_shapes=True,
        profile_memory=True,
    ) as p:
        for step, data in enumerate(trainloader, 0):
            inputs, labels = data[0].to("sim"), data[1].to("sim")
            loss = criterion(ddp_model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            p.step()
            if step + 1 >= 4:
                break
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("-n", "--nodes", default=1, type=int, metavar="N")
    parser.add_argument("-g", "--gpus", default=1, type=int, help="number of devices per node")
    parser.add_argument("-nr", "--nr", default=0, type=int, help="ranking within the nodes")
    parser.add_argument("--out", default="./result_dist_ddp")
    args = parser.parse_args()
    args.world_size = args.gpus * args.nodes
    mp.spawn(runner, args=(args,), nprocs=args.gpus, join=True)
