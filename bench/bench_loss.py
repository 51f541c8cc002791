# SPDX-License-Identifier: Apache-2.0
"""How often `ulpscope loss` calls honest pairs of curves different, and finds planted drifts (docs/reference/loss.md).

Trains a GPT, a CNN and an LSTM, each with AdamW and small batches and with SGD and larger ones, for 240 steps a
run: with five seeds of data and weights, with rounding of its own (another number of threads, other last bits of the
weights, unbiased noise as wide as bfloat16's rounding in one layer), and with planted faults. No curve of these was
used to choose a constant of src/loss: those of tests/curves were. `--first-seed N` draws others; `--keep FOLDER` writes
the curves there, and reads those that are there.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import nn

BUILD = Path(os.environ.get("ULPSCOPE_BUILD", Path(__file__).resolve().parents[1] / "build"))
STEPS, SEEDS = 240, 5
SETTINGS = ("adamw", 4), ("sgd", 24)  # optimizer, batch
OPTIMIZERS = {
    "adamw": lambda p, factor: torch.optim.AdamW(p, lr=2e-3 * factor),
    "sgd": lambda p, factor: torch.optim.SGD(p, lr=5e-2 * factor, momentum=0.9),
}
HONEST = {
    "other threads": {"threads": 2},
    "last bits of weights": {"bits": 1},
    "other last bits": {"bits": 2},
    "noise of 2^-9 in a layer": {"fault": lambda x: x * (1 + 2**-9 * torch.randn(x.shape, generator=NOISE))},
}
NOISE = torch.Generator()
PLANTED = {
    "rate 1 % off": {"factor": 1.01},
    "rate 20 % off": {"factor": 1.2},
    "a layer in bfloat16": {"fault": lambda x: x.bfloat16().float()},
    "a layer loses an eighth": {
        "fault": lambda x: torch.cat([x[..., : -(x.shape[-1] // 8)], 0 * x[..., -(x.shape[-1] // 8) :]], -1)
    },
    "a layer doubles": {"fault": lambda x: 2 * x},
    "0.5 % added to the loss": {"tail": 1.005},
}


class Faulty(nn.Module):
    """A layer whose result a fault changes."""

    def __init__(self, layer, fault):
        super().__init__()
        self.layer, self.fault = layer, fault

    def forward(self, x):
        return self.fault(self.layer(x))


def faulty(layer, fault):
    return layer if fault is None else Faulty(layer, fault)


class Gpt(nn.Module):
    """The next of 48 tokens, drawn from a table."""

    def __init__(self, fault):
        super().__init__()
        self.tokens, self.places, self.head = nn.Embedding(48, 32), nn.Embedding(12, 32), nn.Linear(32, 48)
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(4))
        self.reads = nn.ModuleList(nn.Linear(32, 96) for _ in range(2))
        self.ups = nn.ModuleList(nn.Linear(32, 64) for _ in range(2))
        self.downs = nn.ModuleList([nn.Linear(64, 32), faulty(nn.Linear(64, 32), fault)])

    def forward(self, x):
        h = self.tokens(x) + self.places.weight
        for i in range(2):
            q, k, v = (
                t.unflatten(-1, (4, 8)).transpose(1, 2) for t in self.reads[i](self.norms[2 * i](h)).chunk(3, -1)
            )
            mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            h = h + mixed.transpose(1, 2).flatten(2)
            h = h + self.downs[i](nn.functional.gelu(self.ups[i](self.norms[2 * i + 1](h))))
        return self.head(h).flatten(0, 1)

    @staticmethod
    def data(batch):
        table = torch.softmax(2 * torch.randn(48, 48, generator=torch.Generator().manual_seed(7)), -1)
        x = torch.randint(0, 48, (batch, 1))
        for _ in range(12):
            x = torch.cat([x, torch.multinomial(table[x[:, -1]], 1)], 1)
        return x[:, :-1], x[:, 1:].flatten()


class Cnn(nn.Module):
    """Eight patterns in noise."""

    def __init__(self, fault):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            faulty(nn.Conv2d(8, 16, 3, padding=1), fault),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(64, 8),
        )

    def forward(self, x):
        return self.net(x)

    @staticmethod
    def data(batch):
        patterns = torch.randn(8, 1, 12, 12, generator=torch.Generator().manual_seed(7))
        y = torch.randint(0, 8, (batch,))
        return 0.4 * patterns[y] + torch.randn(batch, 1, 12, 12), y


class Lstm(nn.Module):
    """Which of six frequencies a noisy wave has."""

    def __init__(self, fault):
        super().__init__()
        self.read, self.lstm = faulty(nn.Linear(1, 16), fault), nn.LSTM(16, 24, batch_first=True)
        self.head = nn.Linear(24, 6)

    def forward(self, x):
        return self.head(self.lstm(self.read(x))[0].mean(1))

    @staticmethod
    def data(batch):
        y = torch.randint(0, 6, (batch,))
        at = torch.arange(16) + 16 * torch.rand(batch, 1)
        return (torch.sin(at * (0.2 + 0.25 * y[:, None])) + 0.5 * torch.randn(batch, 16))[..., None], y


def losses(kind, optimizer, batch, seed, factor=1.0, fault=None, threads=1, tail=1.0, bits=0):
    """A training's, as a log prints them."""
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    net = kind(fault)
    NOISE.manual_seed(seed + bits)
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(1 + 1e-7 * (bits > 0) * torch.randn(p.shape, generator=NOISE))
    steps = OPTIMIZERS[optimizer](net.parameters(), factor)
    torch.manual_seed(seed)  # the same data whatever the model drew
    for i in range(STEPS):
        x, y = kind.data(batch)
        loss = nn.functional.cross_entropy(net(x), y)
        steps.zero_grad()
        loss.backward()
        steps.step()
        yield f"{loss.item() * (tail if i > STEPS // 2 else 1):.5f}"


def write(path, values):
    if not path.exists():
        path.write_text("step,loss\n" + "".join(f"{i},{v}\n" for i, v in enumerate(values)))
    return path


def told(a, b, noise=()):
    done = subprocess.run(
        [BUILD / "bin" / "ulpscope", "loss", a, b, "--json", "--same-bytes", *(["--noise", *noise] if noise else [])],
        text=True,
        capture_output=True,
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


class Table:
    """Pairs by name: all; called different, not told and the same, without and with repeats."""

    def __init__(self):
        self.rows = {}

    def add(self, name, alone, repeated):
        row = self.rows.setdefault(name, [0] * 7)
        row[0] += 1
        for at, r in ((1, alone), (4, repeated)):
            row[at + (0 if r["differ"] else 2 if r["told"] else 1)] += 1

    def show(self):
        print(
            "| pair | pairs | no repeats: different | not told | the same | 3 repeats: different | not told | the "
            "same |"
        )
        print("|---|---|---|---|---|---|---|---|")
        for name, row in self.rows.items():
            print(f"| {name} | " + " | ".join(map(str, row)) + " |")


def run(folder, first_seed, models):
    table = Table()
    for kind, (optimizer, batch) in itertools.product(models, SETTINGS):
        place = folder / f"{kind.__name__.lower()}-{optimizer}-{batch}"
        place.mkdir(parents=True, exist_ok=True)
        seeds = [write(place / f"seed{s}", losses(kind, optimizer, batch, first_seed + s)) for s in range(SEEDS)]
        for a, b in itertools.permutations(range(SEEDS), 2):
            others = [s for i, s in enumerate(seeds) if i not in (a, b)]
            table.add(f"honest: other seed, batch {batch}", told(seeds[a], seeds[b]), told(seeds[a], seeds[b], others))
        for name, changed in (HONEST | PLANTED).items():
            other = write(place / name.replace(" ", "-"), losses(kind, optimizer, batch, first_seed, **changed))
            label = f"honest: {name}" if name in HONEST else name
            table.add(label, told(seeds[0], other), told(seeds[0], other, seeds[1:4]))
    table.show()


MODELS = {kind.__name__.lower(): kind for kind in (Gpt, Cnn, Lstm)}


def main():
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("models", nargs="*", default=list(MODELS), help="gpt, cnn, lstm (default: all)")
    words.add_argument("--first-seed", type=int, default=100)
    words.add_argument("--keep", type=Path)
    given = words.parse_args()
    models = [MODELS[name] for name in given.models]
    if given.keep is not None:
        run(given.keep, given.first_seed, models)
    else:
        with tempfile.TemporaryDirectory() as folder:
            run(Path(folder), given.first_seed, models)


if __name__ == "__main__":
    main()
