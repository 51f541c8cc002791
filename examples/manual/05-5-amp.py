# SPDX-License-Identifier: Apache-2.0
"""Chapter 5.5: training in mixed precision, in both 16-bit formats."""

import torch
import torch.nn as nn

import ulpscope.sim  # noqa: F401


class SimpleModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(5, 4)
        self.relu = nn.ReLU()
        self.fc2 = nn.Linear(4, 3)

    def forward(self, x):
        return self.fc2(self.relu(self.fc1(x)))


DEVICE = "sim"


def train_in_amp(low_dtype=torch.float16):
    torch.manual_seed(0)
    model = SimpleModel().to(DEVICE)
    criterion = nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.sim.amp.GradScaler()
    inputs = torch.randn(6, 5).to(DEVICE)
    targets = torch.randn(6, 3).to(DEVICE)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        with torch.sim.amp.autocast(dtype=low_dtype):
            outputs = model(inputs)
            assert outputs.dtype == low_dtype
            loss = criterion(outputs, targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    for dtype in (torch.float16, torch.bfloat16):
        losses = train_in_amp(dtype)
        print(f"{dtype}: {losses[0]:.4f} -> {losses[-1]:.4f}")
