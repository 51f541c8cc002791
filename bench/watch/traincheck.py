# SPDX-License-Identifier: Apache-2.0
"""The public bugs that TrainCheck (OSDI 2025, github.com/OrderLab/TrainCheck) collects by id, each as a small
loop with the mistake, made anew from its public report, and the same loop without it. A watch sees numbers:
what it cannot see is listed with its reason, and nothing is counted for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import ulpscope

STEPS, AT = 60, 30


def net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Tanh(), nn.Linear(32, 8))


def data(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step * 64 + rank)
    x = torch.randn(16, 16, generator=generator)
    return x, x[:, :8].argmax(1)


def rank_of() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    each: Callable[[int], None] = lambda step: None,
    forward: Callable[[int], nn.Module] | None = None,
    zero: bool = True,
) -> list[Any]:
    """Events of a run; `each` comes between backward and the optimizer's step."""
    w = ulpscope.watch(model, optimizer, weights_every=1, matmul_every=1)
    for step in range(STEPS):
        x, y = data(step, rank_of())
        F.cross_entropy((forward(step) if forward else model)(x), y).backward()
        each(step)
        optimizer.step()
        if zero:
            optimizer.zero_grad()
    w.close()
    if w.error:
        raise RuntimeError(w.error)
    return list(w.events())


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-3)


def ddp(model: nn.Module) -> nn.Module:
    return nn.parallel.DistributedDataParallel(model) if dist.is_initialized() else model


def unknown_to_the_optimizer(bug: bool) -> list[Any]:
    """accelerate-2665: the optimizer has other tensors than the model trains."""
    model = net()
    of = [p.detach().clone().requires_grad_() for p in model.parameters()] if bug else model.parameters()
    return train(model, torch.optim.AdamW(of, lr=1e-3))


def frozen_but_norms(bug: bool) -> list[Any]:
    """pytorch-forum-84911: everything but the norms asks for no gradient, from the beginning."""
    model = net()
    for name, p in model.named_parameters():
        p.requires_grad_(not bug or name.startswith("1."))
    return train(model, adam(model))


def no_zero_grad(bug: bool) -> list[Any]:
    """stackoverflow-60335387: gradients are never set to zero."""
    model = net()
    return train(model, adam(model), zero=not bug)


def frozen_later(bug: bool) -> list[Any]:
    """pytorch-115607: from a step on the compiled step leaves some parameters as they are."""
    model = net()
    optimizer = adam(model)
    weight, kept = model[0].weight, []

    def hold(step: int) -> None:
        kept[:] = [weight.detach().clone()] if bug and step >= AT else []

    def put_back(*_: object) -> None:
        with torch.no_grad():
            for was in kept:
                weight.copy_(was)

    optimizer.register_step_post_hook(put_back)
    return train(model, optimizer, hold)


def one_rank_clips(bug: bool) -> list[Any]:
    """deepspeed-1801 (BLOOM): one rank alone clips what all have; copies of norms drift apart."""
    model = ddp(net())

    def clip(step: int) -> None:
        if bug and step >= AT and rank_of() == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 0.01)

    return train(model, torch.optim.SGD(model.parameters(), lr=0.1), clip)


def out_of_sync(bug: bool) -> list[Any]:
    """pytorch-104336, x-jxmnop-ddp-out-of-sync: what trains is not what is wrapped; nothing is reduced."""
    inner = net()
    model = ddp(inner)
    return train(model, adam(model), forward=lambda step: inner if bug and step >= AT else model)


def lossy_transport(bug: bool) -> list[Any]:
    """pytorch-84803, pytorch-96600, baichuan2-86: now and then a rank receives zeros."""
    model = ddp(net())

    def lose(step: int) -> None:
        if bug and step >= AT and step % 10 == 5 and rank_of() == dist.get_world_size() - 1:
            for p in model.parameters():
                p.grad.zero_()

    return train(model, adam(model), lose)


ALONE = {
    "accelerate-2665": unknown_to_the_optimizer,
    "pytorch-forum-84911": frozen_but_norms,
    "stackoverflow-60335387": no_zero_grad,
    "pytorch-115607": frozen_later,
}
OVER_RANKS = {
    "deepspeed-1801": one_rank_clips,
    "pytorch-104336": out_of_sync,
    "x-jxmnop-ddp-out-of-sync": out_of_sync,
    "pytorch-84803": lossy_transport,
    "pytorch-96600": lossy_transport,
    "baichuan2-86": lossy_transport,
}
NO_NUMBERS = {
    "lightning-thunder-725": "autocast left out: the numbers are better than asked for",
    "transformers-33844": "dropout in evaluation: no training step",
    "stackoverflow-67180955": "workers augment alike: data, not arithmetic",
    "deepspeed-5794": "ranks wait for each other: a hang",
    "pytorch-51800": "initialisation",
    "mmpretrain-702": "data processing",
    "transformers-17877": "generation",
    "transformers-23723": "data processing",
    "transformers-34204": "generation",
}


def run(cases: dict[str, Callable[[bool], list[Any]]]) -> list[dict[str, Any]]:
    """A row for each id: what was seen with the mistake, and how many alarms without."""
    rows = []
    for name, case in cases.items():
        events, clean = case(True), case(False)
        first = events[0] if events else None
        rows.append(
            {
                "id": name,
                "seen": len(events),
                "clean": len(clean),
                "detector": first.detector if first else "",
                "step": first.step if first else None,
                "said": first.sentence if first else "",
                "clean_said": [e.sentence for e in clean][:3],
            }
        )
    return rows
