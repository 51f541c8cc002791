# SPDX-License-Identifier: Apache-2.0
"""Fifty steps of models on the simulated device have the CPU's losses in every bit: on `sim:1` while `sim:0` is the
current device, with batches that a prefetcher copies on a second stream."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

sim = pytest.importorskip("ulpscope.sim", exc_type=OSError)

STEPS = 50


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(32, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, 32)

    def forward(self, x):
        return self.head(self.layer(self.embed(x))).flatten(0, 1)


class Mixture(nn.Module):
    """Each token goes to the two of four experts that its gate likes best."""

    def __init__(self):
        super().__init__()
        self.embed, self.gate, self.head = nn.Embedding(32, 16), nn.Linear(16, 4), nn.Linear(16, 32)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 16)) for _ in range(4))

    def forward(self, x):
        x = self.embed(x).flatten(0, 1)
        weight, chosen = self.gate(x).softmax(-1).topk(2)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            token, slot = torch.where(chosen == i)
            out = out.index_add(0, token, (expert(x[token]) * weight[token, slot, None]).to(out.dtype))
        return self.head(out)


MODELS = {"transformer": Transformer, "mixture": Mixture}


def batches(device):
    """Tokens and what they should give; on a device copied from pinned memory by a second stream, one ahead."""
    torch.manual_seed(1)
    drawn = [(torch.randint(32, (4, 8)), torch.randint(32, (4, 8))) for _ in range(STEPS)]
    if device == "cpu":
        yield from drawn
        return
    side, now, ahead = sim.Stream(device), sim.current_stream(device), None
    for pair in [*drawn, None]:
        current = ahead
        if pair is not None:
            with sim.stream(side):
                ahead = [t.pin_memory().to(device, non_blocking=True) for t in pair], side.record_event()
        if current is not None:
            now.wait_event(current[1])
            for t in current[0]:
                t.record_stream(now)
            yield current[0]


def trained(name, device, dtype):
    """(losses, how the scale went, parameters) of fifty steps."""
    torch.manual_seed(0)
    model = MODELS[name]().to(device)
    kind = torch.device(device).type
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    # so large at the start that the first steps overflow float16 and are skipped
    scaler = torch.amp.GradScaler(kind, init_scale=2.0**24, growth_interval=20, enabled=dtype == torch.float16)
    losses, scales = [], []
    for x, y in batches(device):
        optimizer.zero_grad()
        with torch.autocast(kind, dtype=dtype, enabled=dtype != torch.float32):
            out = model(x)
            loss = nn.functional.cross_entropy(out.float(), y.flatten()[: len(out)])
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach())
        scales.append(scaler.get_scale())
    return torch.stack(losses).cpu(), scales, [p.detach().cpu() for p in model.parameters()]


@pytest.mark.parametrize(
    "name, dtype",
    [
        ("transformer", torch.float32),
        ("transformer", torch.bfloat16),
        ("transformer", torch.float16),
        ("mixture", torch.float32),
    ],
)
def test_fifty_steps_are_the_cpus(name, dtype):
    with sdpa_kernel(SDPBackend.MATH):  # the CPU's fused attention is a kernel for that device alone
        losses, scales, parameters = trained(name, "cpu", dtype)
        assert sim.current_device() == 0
        there = trained(name, "sim:1", dtype)
    assert sim.current_device() == 0 and losses.isfinite().all()
    if dtype == torch.float16:
        assert scales[0] < 2.0**24  # a step was skipped
    assert there[1] == scales
    assert torch.equal(there[0], losses), (there[0] != losses).nonzero()[0]
    assert all(torch.equal(a, b) for a, b in zip(parameters, there[2]))  # noqa: B905
