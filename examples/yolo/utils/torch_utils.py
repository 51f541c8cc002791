# SPDX-License-Identifier: Apache-2.0
"""Devices, averages of weights, what ranks of a job have to know."""

import copy
import math
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn


def select_device(device="", batch_size=0):
    """'cpu', '' (the first GPU where there is one), '0' or '0,1'."""
    text = "yolo "
    cpu = device == "cpu"
    if cpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # torch.cuda.is_available() is False then
    elif device:
        os.environ["CUDA_VISIBLE_DEVICES"] = device  # before anything asks for a device
        assert torch.cuda.is_available() and torch.cuda.device_count() >= len(device.replace(",", "")), (
            f"Invalid CUDA '--device {device}' requested, use '--device cpu' or pass valid CUDA device(s)"
        )
    if not cpu and torch.cuda.is_available():
        devices = device.split(",") if device else "0"
        n = len(devices)
        if n > 1 and batch_size > 0:
            assert batch_size % n == 0, f"batch-size {batch_size} not multiple of GPU count {n}"
        for i, d in enumerate(devices):
            p = torch.cuda.get_device_properties(i)
            text += f"CUDA:{d} ({p.name}, {p.total_memory / (1 << 20):.0f}MiB) "
        arg = "cuda:0"
    else:
        text += "CPU"
        arg = "cpu"
    return torch.device(arg), text


@contextmanager
def torch_distributed_zero_first(local_rank):
    """The others wait until the first of a machine is through."""
    if local_rank not in (-1, 0):
        dist.barrier()
    yield
    if local_rank == 0:
        dist.barrier()


def time_sync():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def is_parallel(model):
    return isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel))


def de_parallel(model):
    return model.module if is_parallel(model) else model


class ModelEMA:
    """Weights averaged over steps, fewer of them at the beginning."""

    def __init__(self, model, decay=0.99, tau=20):
        self.ema = copy.deepcopy(de_parallel(model)).eval().requires_grad_(False)
        self.updates, self.decay, self.tau = 0, decay, tau

    @torch.no_grad()
    def update(self, model):
        self.updates += 1
        d = self.decay * (1 - math.exp(-self.updates / self.tau))
        values = de_parallel(model).state_dict()
        for k, v in self.ema.state_dict().items():
            if v.dtype.is_floating_point:
                v.mul_(d).add_(values[k].detach(), alpha=1 - d)
            else:
                v.copy_(values[k])
