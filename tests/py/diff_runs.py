# SPDX-License-Identifier: Apache-2.0
"""Two runs of one training step to hold side by side, and what `ulpscope diff` says of them. Fixture: captured."""

import os
import subprocess
import sys

import pytest
import schemas

STEP = """
import sys, torch
import ulpscope.sim
device, threads, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(threads)
torch.manual_seed(seed)
net = torch.nn.Sequential(torch.nn.Linear(48, 64), torch.nn.LayerNorm(64), torch.nn.GELU(),
                          torch.nn.Linear(64, 16)).to(device)
opt = torch.optim.AdamW(net.parameters(), lr=1e-3, foreach=False)
x = torch.randn(32, 48)
x.numpy()[:] *= 1 + 1.5e-6 * ("nearly" in sys.argv)  # unseen: as other data
x, y = x.to(device), torch.randint(0, 16, (32,)).to(device)
for step in range(2):
    loss = torch.nn.functional.cross_entropy(net(x), y)
    if len(sys.argv) > 4 and sys.argv[4] == "more":
        loss = loss + net[0].weight.pow(2).sum() * 1e-4
    opt.zero_grad(); loss.backward(); opt.step()
"""


def ulpscope(*words, faults=""):
    env = dict(os.environ, ULPSCOPE_SIM_FAULTS=faults)
    return subprocess.run(["ulpscope", *map(str, words)], capture_output=True, text=True, timeout=300, env=env)


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    folder, made = tmp_path_factory.mktemp("diff"), {}
    (folder / "step.py").write_text(STEP)

    def make(name, *words, faults="", options=(), device="sim:0", threads=1, seed=0):
        if name not in made:
            done = ulpscope(
                "capture",
                "-o",
                folder / name,
                "--steps",
                "0,1",
                *options,
                "--",
                sys.executable,
                folder / "step.py",
                device,
                threads,
                seed,
                *words,
                faults=faults,
            )
            assert done.returncode == 0, done.stderr
            made[name] = folder / name
        return made[name]

    return make


def diff(*words, judge=False):
    done = ulpscope("diff", *words, "--json", *(() if judge else ("--no-judge",)))
    assert done.stdout, done.stderr
    found = schemas.one("diff", done.stdout)
    assert done.returncode == (1 if found["first"] else 0 if found["same"] else 2), done.stderr
    return found
