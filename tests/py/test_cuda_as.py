# SPDX-License-Identifier: Apache-2.0
"""ulpscope run --cuda-as: what a script that asks for cuda is answered, and that nothing changes unasked."""

import os
import subprocess
import sys

import pytest

TRAIN = """
import torch
from torch import nn
torch.manual_seed(0)
torch.cuda.manual_seed_all(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)).to(device)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
for _ in range(3):
    x, y = torch.randn(16, 4).to(device), torch.randint(0, 2, (16,)).to(device)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
print(device.type, loss.item().hex())
"""

ANSWERS = [
    ("torch.cuda.is_available(), torch.cuda.device_count() > 0", "(True, True)"),
    (
        "torch.ones(2, device='cuda').device, torch.ones(2).device",
        "(device(type='cuda', index=0), device(type='cpu'))",
    ),
    ("torch.ones(2).cuda().device.type", "cuda"),
    (
        "torch.ones(2, device=torch.device('cuda:0')).is_cuda, torch.ones(2).is_cuda",
        "(True, False)",
    ),
    (
        "torch.ones(2).to(0).is_cuda, torch.ones(2).cuda(0, non_blocking=True).is_cuda",
        "(True, True)",
    ),
    ("torch.ones(2).to('cuda', torch.float64).dtype", "torch.float64"),
    (
        "torch.nn.Linear(2, 2).cuda().weight.is_cuda, torch.nn.Linear(2, 2).to('cuda:0').weight.is_cuda",
        "(True, True)",
    ),
    (
        "torch.ones(2, device='cuda').new_zeros(3).is_cuda, torch.ones(2, device='cuda').cpu().is_cuda",
        "(True, False)",
    ),
    ("torch.ones(3, device='cuda').sum().item()", "3.0"),
    ("torch.jit.script(torch.nn.Linear(2, 2)).cuda()(torch.ones(1, 2).cuda()).is_cuda", "True"),
    ("torch.einsum('ij,jk', torch.ones(2, 2).cuda(), torch.ones(2, 2).cuda()).is_cuda", "True"),
    (
        "torch.cuda.synchronize(), torch.cuda.get_device_name(0)",
        "(None, 'Ulpscope simulated accelerator')",
    ),
    (
        "(lambda b: (torch.save(torch.ones(2).cuda(), b), b.seek(0), torch.load(b, map_location='cuda').is_cuda)[2])"
        "(__import__('io').BytesIO())",
        "True",
    ),
]


def run(*words):
    return subprocess.run(["ulpscope", "run", *words], capture_output=True, text=True, env=os.environ)


def test_every_answer_is_the_documented_one():
    code = "import torch\n" + "".join(f"print(({what}))\n" for what, _ in ANSWERS)
    done = run("--cuda-as", "sim", "--", sys.executable, "-W", "ignore", "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [answer for _, answer in ANSWERS]


def test_a_script_trains_as_on_the_cpu_and_is_not_told():
    plain = subprocess.run([sys.executable, "-c", TRAIN], capture_output=True, text=True, check=True).stdout.split()
    shimmed = run("--cuda-as", "sim", "--nan", "--", sys.executable, "-W", "ignore", "-c", TRAIN)
    assert shimmed.returncode == 0, shimmed.stderr
    assert (plain[0], shimmed.stdout.split()) == ("cpu", ["cuda", plain[1]])


@pytest.mark.parametrize(
    "device, sentence",
    [
        ("gpu", "--cuda-as 'gpu': one of sim|musa|npu|xpu is needed"),
        ("musa", "--cuda-as musa: No module named 'torch_musa'"),
    ],
)
def test_a_device_that_is_not_there_is_a_sentence(device, sentence):
    done = run("--cuda-as", device, "--", sys.executable, "-c", "import torch; print('went on')")
    assert done.returncode == 2 and sentence in done.stderr and "went on" not in done.stdout
