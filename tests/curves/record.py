# SPDX-License-Identifier: Apache-2.0
"""Records the curves beside it: the losses of two small trainings, with eight seeds and with planted
differences, a column each. `python record.py` writes them anew; torch on the CPU, a minute."""

import csv
from pathlib import Path

import torch
from torch import nn

SEEDS = [(f"seed{s}", s, {}) for s in range(8)]
PLANTED = [("lr_1.05", 0, {"factor": 1.05}), ("lr_1.5", 0, {"factor": 1.5}), ("bf16_layer", 0, {"narrow": True})]


def mlp(seed, factor=1.0, narrow=False, steps=300):
    """Ten classes told by another network."""
    torch.manual_seed(123)
    teacher = nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 10))
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3 * factor)
    for _ in range(steps):
        x = torch.randn(64, 20)
        with torch.no_grad():
            y = (3 * teacher(x)).argmax(1)
        h = x
        for i, layer in enumerate(net):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=narrow and i == 2):
                h = layer(h).float()
        yield step(nn.functional.cross_entropy(h, y), optimizer)


def gpt(seed, factor=1.0, narrow=False, steps=200):
    """The next of 64 tokens, drawn from a table."""
    torch.manual_seed(7)
    n, length, width = 64, 16, 32
    table = torch.softmax(2 * torch.randn(n, n), -1)
    torch.manual_seed(seed)
    tokens, places = nn.Embedding(n, width), nn.Embedding(length, width)
    blocks = [nn.TransformerEncoderLayer(width, 4, 64, 0.0, batch_first=True, norm_first=True) for _ in range(2)]
    head = nn.Linear(width, n)
    parameters = [p for m in (tokens, places, *blocks, head) for p in m.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=2e-3 * factor)
    mask = nn.Transformer.generate_square_subsequent_mask(length)
    for _ in range(steps):
        x = torch.randint(0, n, (8, 1))
        for _ in range(length):
            x = torch.cat([x, torch.multinomial(table[x[:, -1]], 1)], 1)
        h = tokens(x[:, :-1]) + places(torch.arange(length))
        for i, block in enumerate(blocks):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=narrow and i == 1):
                h = block(h, mask).float()
        yield step(nn.functional.cross_entropy(head(h).flatten(0, 1), x[:, 1:].flatten()), optimizer)


def step(loss, optimizer):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return f"{loss.item():.5g}"


if __name__ == "__main__":
    torch.set_num_threads(1)
    for train in (mlp, gpt):
        curves = [list(train(seed, **changed)) for _, seed, changed in SEEDS + PLANTED]
        with (Path(__file__).parent / f"{train.__name__}.csv").open("w", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(["step", *(name for name, _, _ in SEEDS + PLANTED)])
            rows.writerows([i, *losses] for i, losses in enumerate(zip(*curves, strict=True)))
