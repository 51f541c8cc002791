# SPDX-License-Identifier: Apache-2.0
"""Chapter 8.1, one process: tables by time of the device, by shape and by stack; a trace for Chrome; stacks."""

import sys
from pathlib import Path

import torch
import torch.nn as nn
from torch.profiler import profile, record_function, schedule

import ulpscope.sim  # noqa: F401

OUT = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
model = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 15 * 15, 10))
model.sim()
trainset = torch.utils.data.TensorDataset(torch.randn(96, 3, 32, 32), torch.arange(96) % 10)
trainloader = torch.utils.data.DataLoader(trainset, batch_size=8, shuffle=True, num_workers=0)
criterion = nn.CrossEntropyLoss().sim()
optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
device = torch.device("sim:0")
model.train()
my_schedule = schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=2)


def trace_handler(p):
    print(p.key_averages().table(sort_by="self_device_time_total", row_limit=10))
    p.export_chrome_trace(str(OUT / f"trace_{p.step_num}.json"))


with (
    profile(
        activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.PrivateUse1],
        schedule=my_schedule,
        on_trace_ready=trace_handler,
        profile_memory=True,
        record_shapes=True,
        with_stack=True,
        experimental_config=torch._C._profiler._ExperimentalConfig(verbose=True),
    ) as prof,
    record_function("model_training"),
):
    for step, data in enumerate(trainloader, 0):
        inputs, labels = data[0].to(device=device), data[1].to(device=device)
        outputs = model(inputs)
        loss = criterion(outputs, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        prof.step()
        if step >= 10:
            break

print(prof.key_averages(group_by_input_shape=True).table(sort_by="device_time_total", row_limit=10))
print(prof.key_averages(group_by_stack_n=5).table(sort_by="self_device_time_total", row_limit=2))
prof.export_stacks(str(OUT / "profiler_stacks.txt"), "self_privateuse1_time_total")
