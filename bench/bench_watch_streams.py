# SPDX-License-Identifier: Apache-2.0
"""False alarms and recall of the detectors of `ulpscope watch`, and of other tools', on runs made of recorded
ones. Records the gradients of four micro-batches a step, as four ranks have them before the reduction, of a small
GPT while it trains (torch), and hands the log to build/bench/bench_watch_streams.
Arguments: [STEPS] [TRIALS] of that; --log FILE keeps the log."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import nn

from ulpscope import _core
from ulpscope.watching.watch_rows import unpacked

BUILD = Path(os.environ.get("ULPSCOPE_BUILD", Path(__file__).resolve().parents[1] / "build"))
RANKS, STEPS, VOCABULARY, LENGTH, WIDTH = 4, 400, 64, 32, 64


class Gpt(nn.Module):
    """Two blocks of attention and MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.1, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.head(self.blocks(self.embedding(tokens), mask=mask, is_causal=True))


def batch(generator: torch.Generator) -> torch.Tensor:
    """Text of a made-up language: each token follows one of few; now and then noise alone."""
    tokens = torch.randint(VOCABULARY, (8, LENGTH + 1), generator=generator)
    if torch.rand((), generator=generator) > 0.02:
        steps = torch.randint(1, 4, (8, LENGTH + 1), generator=generator)
        tokens = (tokens[:, :1] + steps.cumsum(1) * 7) % VOCABULARY
    return tokens


def record(path: str) -> None:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = Gpt()
    named = [(name, p) for name, p in model.named_parameters() if p.dim() > 1]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with open(path, "w") as log:
        tensors = [[name, "float32", {"ndim": p.dim()}] for name, p in named]
        log.write(json.dumps({"ulpscope_watch": 1, "world": RANKS, "tensors": tensors}) + "\n")
        for step in range(STEPS):
            total = [torch.zeros_like(p) for p in model.parameters()]
            for rank in range(RANKS):
                tokens = batch(generator)
                loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
                optimizer.zero_grad()
                loss.backward()
                rows = [[i, *row[:6]] for i, row in enumerate(unpacked(_core.sums([p.grad for _, p in named])))]
                log.write(json.dumps({"step": step, "rank": rank, "site": "grad", "t": step, "rows": rows}) + "\n")
                for sum_, p in zip(total, model.parameters(), strict=True):
                    sum_ += p.grad / RANKS
            for sum_, p in zip(total, model.parameters(), strict=True):
                p.grad = sum_
            optimizer.step()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("steps", nargs="?", default="3000000")
    parser.add_argument("trials", nargs="?", default="500")
    parser.add_argument("--log")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = given.log or os.path.join(folder, "gpt.watch.jsonl")
        record(path)
        return subprocess.run([BUILD / "bench" / "bench_watch_streams", path, given.steps, given.trials]).returncode


if __name__ == "__main__":
    raise SystemExit(main())
