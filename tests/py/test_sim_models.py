# SPDX-License-Identifier: Apache-2.0
"""Fifty steps of models on the simulated device have the CPU's losses in every bit: on `sim:1` while `sim:0` is the
current device, with batches that a prefetcher copies on a second stream. Where torch itself takes another formula for
the CPU than for devices (cells of LSTM, autocast's lists), the CPU is given the devices'."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from ulpscope.executors.formulas import aten as formulas

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
        # in float32: autocast sees to it on devices, and not on the CPU
        weight, chosen = self.gate(x).softmax(-1, dtype=torch.float32).topk(2)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            token, slot = torch.where(chosen == i)
            out = out.index_add(0, token, (expert(x[token]) * weight[token, slot, None]).to(out.dtype))
        return self.head(out)


class Images(nn.Module):
    """Convolutions, also grouped and by strides, of channels_last."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, stride=2),
            nn.BatchNorm2d(16),
            nn.GELU(),
            nn.Conv2d(16, 16, 3, padding=1, groups=4),
            nn.AdaptiveAvgPool2d(1),
        ).to(memory_format=torch.channels_last)
        self.head = nn.Linear(16, 32)

    def forward(self, x):
        x = self.features(x.to(memory_format=torch.channels_last))
        assert x.is_contiguous(memory_format=torch.channels_last)
        return self.head(x.flatten(1))


class Cell(torch.autograd.Function):
    """torch's cell of LSTM for devices, on the CPU, which takes oneDNN's layer or parts."""

    @staticmethod
    def forward(ctx, x, h, cx, x_bias, h_bias):
        hy, cy, gates = formulas.lstm_cell(x, h, cx, x_bias, h_bias)
        ctx.save_for_backward(cx, cy, gates)
        return hy, cy

    @staticmethod
    def backward(ctx, grad_hy, grad_cy):
        gates, cx, bias = formulas.lstm_cell_backward(grad_hy, grad_cy, *ctx.saved_tensors, True)
        return gates, gates, cx, bias, bias


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.lstm, self.head = nn.Embedding(32, 16), nn.LSTM(16, 16, 2), nn.Linear(16, 32)

    def forward(self, x):
        x = self.embed(x.t())
        x = self.lstm(x)[0] if x.device.type == "sim" else self.layers(x)
        return self.head(x.transpose(0, 1)).flatten(0, 1)

    def layers(self, x):
        """As at::native has it for devices (RNN.cpp): products, then the cell, to which autocast gives its dtype."""
        own = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype
        for w_x, w_h, x_bias, h_bias in self.lstm.all_weights:
            h = c = x.new_zeros(x.shape[1:], dtype=own)
            x_bias, h_bias = x_bias.to(own), h_bias.to(own)  # once: autocast keeps it for all steps
            steps = []
            for step in x.unbind(0):
                h, c = Cell.apply(step @ w_x.t(), h @ w_h.t(), c, x_bias, h_bias)
                steps.append(h)
            x = torch.stack(steps)
        return x


MODELS = {"transformer": Transformer, "mixture": Mixture, "images": Images, "recurrent": Recurrent}


def drawn_for(name):
    """(x, y) for each step."""
    torch.manual_seed(1)
    if name == "images":
        return [(torch.randn(4, 3, 16, 16), torch.randint(32, (4,))) for _ in range(STEPS)]
    return [(torch.randint(32, (4, 8)), torch.randint(32, (4, 8))) for _ in range(STEPS)]


def batches(name, device):
    """What a model takes and should give; on a device copied from pinned memory by a second stream, one ahead."""
    drawn = drawn_for(name)
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
    for x, y in batches(name, device):
        optimizer.zero_grad()
        with torch.autocast(kind, dtype=dtype, enabled=dtype != torch.float32):
            out = model(x)
            loss = nn.functional.cross_entropy(out.float(), y.flatten())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach())
        scales.append(scaler.get_scale())
    return torch.stack(losses).cpu(), scales, [p.detach().cpu() for p in model.parameters()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", MODELS)
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
