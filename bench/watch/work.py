# SPDX-License-Identifier: Apache-2.0
"""Trainings of a few milliseconds a step: an MLP, a CNN, a GPT and a mixture of experts, each with data
that follow from (step, rank) alone, and with all that a trial has to put back."""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import nn

from ..model import GPT

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
VOCABULARY, LENGTH, WIDTH, EXPERTS, CLASSES = 32, 16, 32, 4, 8
HELD_OUT = 1 << 20  # the step whose batch no training sees


def _teacher(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(99))


class Mlp(nn.Module):
    """Three layers that learn the classes of a linear teacher."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, CLASSES))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.layers(x).float(), y)

    @staticmethod
    def batch(generator: torch.Generator, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.randn(n, 16, generator=generator)
        return x, (x @ _teacher(16, CLASSES)).argmax(1)


class Cnn(nn.Module):
    """Two convolutions with batch norm; images of a class are its pattern and noise."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(256, CLASSES),
        )

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.layers(x).float(), y)

    @staticmethod
    def batch(generator: torch.Generator, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.randint(CLASSES, (n,), generator=generator)
        return _teacher(CLASSES, 1, 8, 8)[y] + torch.randn(n, 1, 8, 8, generator=generator), y


def _tokens(generator: torch.Generator, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Text of a made-up language: each token follows one of few."""
    steps = torch.randint(1, 4, (n, LENGTH + 1), generator=generator)
    first = torch.randint(VOCABULARY, (n, 1), generator=generator)
    tokens = (first + steps.cumsum(1) * 7) % VOCABULARY
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


class Gpt(GPT):
    """The shared one, small."""

    def __init__(self) -> None:
        super().__init__(VOCABULARY, WIDTH, 2, 2, LENGTH)

    batch = staticmethod(_tokens)


class Experts(nn.Module):
    """A router that sends each token to one expert of four."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)) for _ in range(EXPERTS)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.flatten(0, -2)
        share, chosen = self.router(flat).softmax(-1).max(-1)
        out = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            mine = (chosen == i).nonzero().squeeze(1)
            out = out.index_add(0, mine, expert(flat[mine]) * share[mine, None])
        return out.view_as(x)


class Moe(nn.Module):
    """Tokens with their places through two layers of experts."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Experts() for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = self.tokens(x) + self.places.weight[: x.shape[1]]
        for norm, block in zip(self.norms, self.blocks, strict=True):
            h = h + block(norm(h))
        return F.cross_entropy(self.head(h).flatten(0, 1).float(), y.flatten())

    batch = staticmethod(_tokens)


WORKS: dict[str, type[nn.Module]] = {"mlp": Mlp, "cnn": Cnn, "gpt": Gpt, "moe": Moe}
BATCH = {"mlp": 32, "cnn": 16, "gpt": 8, "moe": 8}


@functools.lru_cache(maxsize=4096)
def batch_of(work: str, step: int, rank: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The batch of a step and rank, the same at every call."""
    generator = torch.Generator().manual_seed(step * 64 + rank)
    return WORKS[work].batch(generator, n)  # type: ignore[attr-defined, no-any-return]


def local(tensor: torch.Tensor) -> torch.Tensor:
    """A shard's own part of a sharded tensor; any other as it is."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor  # type: ignore[no-any-return]


class Training:
    """A model, its optimizer and where it is; `kind` "ddp" or "fsdp2" over the default process group."""

    def __init__(self, work: str, dtype: str, kind: str = "", rank: int = 0) -> None:
        torch.manual_seed(7)
        self.work, self.dtype, self.kind, self.rank = work, dtype, kind, rank
        self.net = WORKS[work]().to(DTYPES[dtype])
        self.model = self._wrapped()
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=2e-3)
        self.step = 0
        self.saved: dict[str, object] = {}

    def _wrapped(self) -> nn.Module:
        if self.kind == "ddp":
            return nn.parallel.DistributedDataParallel(self.net)
        if self.kind == "fsdp2":
            from torch.distributed.fsdp import fully_shard

            return fully_shard(self.net)
        return self.net

    def batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = batch_of(self.work, step, self.rank, BATCH[self.work])
        return (x.to(DTYPES[self.dtype]) if x.is_floating_point() else x), y

    def backward(self, batch: tuple[torch.Tensor, torch.Tensor], scale: float = 1.0) -> None:
        self.optimizer.zero_grad()
        (self.model(*batch) * scale).backward()

    def held_out_loss(self) -> float:
        """Loss of a batch that no step trains on, now. It trains nothing: batch norm as in training,
        since running statistics follow late, but they are put back."""
        kept = [b.clone() for b in self.net.buffers()]
        with torch.no_grad():
            loss = float(self.model(*self.batch(HELD_OUT)))
            for b, was in zip(self.net.buffers(), kept, strict=True):
                b.copy_(was)
        if self.kind == "fsdp2":  # the outermost module keeps its weights whole behind a forward
            self.model.reshard()  # type: ignore[operator]
        return loss

    def _state(self) -> list[torch.Tensor]:
        found = [local(p) for p in self.net.parameters()] + list(self.net.buffers())
        for p in self.net.parameters():
            found += [local(t) for t in self.optimizer.state[p].values() if isinstance(t, torch.Tensor)]
        return found

    def save(self) -> None:
        """Keeps weights, buffers and optimizer state, all of which `restore` puts back in place."""
        self.saved = {"step": self.step, "tensors": [t.detach().clone() for t in self._state()]}

    def restore(self) -> None:
        with torch.no_grad():
            for t, was in zip(self._state(), self.saved["tensors"], strict=True):  # type: ignore[call-overload]
                t.copy_(was)
        self.optimizer.zero_grad()
        self.step = self.saved["step"]  # type: ignore[assignment]
