# SPDX-License-Identifier: Apache-2.0
"""`ulpscope watch --explain -- COMMAND`: what it says of a model's gradients is what happens to flips that
are planted into them, and a bit that the level of one tensor hides is not said to be seen there."""

import json
import os
import subprocess
import sys
import textwrap

import pytest
import schemas

SCRIPT = """
    import os, sys, torch
    from torch import nn
    torch.manual_seed(0)
    # of elements below 2^-15 bit 27 is not set: it makes them 2^16 times larger, above it smaller
    model = nn.ModuleDict({"big": nn.Linear(32, 32), "small": nn.Linear(32, 32)})
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step(harm=lambda: None):
        x = torch.randn(64, 32)
        (model["big"](x).pow(2).mean() * 20 + model["small"](x).pow(2).mean() * 2.0**-16).backward()
        harm()
        optimizer.step()
        optimizer.zero_grad()

    if __name__ == "__main__":
        for _ in range(10_000):
            step()
        sys.exit(7)
"""
FLIPS = 6  # of a bit and tensor


def told(folder, *more, script="train.py"):
    return subprocess.run(
        ["ulpscope", "watch", "--explain", *more, "--", sys.executable, script],
        cwd=folder,
        text=True,
        capture_output=True,
        timeout=120,
        env=dict(os.environ, TMPDIR=str(folder), OMP_NUM_THREADS="1"),
    )


FLIP = """
    import json, sys, torch, ulpscope
    from train import model, step
    wanted, flips = json.loads(sys.argv[1]), int(sys.argv[2])
    weights = {"big.weight": model["big"].weight, "small.weight": model["small"].weight}
    from train import optimizer
    seen = []
    with ulpscope.watch(model, optimizer) as w:
        for _ in range(40):
            step()
        state = w.state_dict()
        for name, bit in wanted:
            for k in range(flips):
                def harm():
                    weights[name].grad.view(torch.int32).view(-1)[97 * k + 11] ^= 1 << bit if bit < 31 else -1 << 31
                kept = [p.detach().clone() for p in model.parameters()]
                before = len(w.events())
                step(harm)
                seen.append(len(w.events()) > before)
                with torch.no_grad():
                    for p, was in zip(model.parameters(), kept):
                        p.copy_(was)
                w.load_state_dict(state)
    print(json.dumps([sum(seen[i * flips : (i + 1) * flips]) for i in range(len(wanted))]))
"""


def test_what_is_said_of_a_model_is_what_happens_to_it(tmp_path):
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT))
    (tmp_path / "flip.py").write_text(textwrap.dedent(FLIP))
    done = told(tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    lines = schemas.each("watch", done.stdout)
    share = {line["tensor"]: line["share"] for line in lines if "tensor" in line}
    assert set(share) == {"big.weight", "big.bias", "small.weight", "small.bias"}
    # the planted blindness, and what both levels show
    assert share["big.weight"][27] < 0.03 and share["small.weight"][27] > 0.97
    assert all(share[name][30] > 0.97 and share[name][31] == share[name][0] == 0 for name in share)
    wanted = [
        (name, bit)
        for name in ("big.weight", "small.weight")
        for bit in (31, 30, 29, 28, 27, 23, 22, 3)
        if not 0.03 < share[name][bit] < 0.97
    ]
    assert len(wanted) > 12
    flipped = subprocess.run(
        [sys.executable, "flip.py", json.dumps(wanted), str(FLIPS)],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=120,
        env=dict(os.environ, OMP_NUM_THREADS="1"),
    )
    assert flipped.returncode == 0, flipped.stderr
    for (name, bit), n in zip(wanted, json.loads(flipped.stdout), strict=True):
        assert n == (FLIPS if share[name][bit] > 0.97 else 0), (name, bit, share[name][bit], n)
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith("ulpscope")] == []


def test_it_is_told_in_words_and_the_command_is_ended(tmp_path):
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT))
    done = told(tmp_path, "--steps", "12", "--detector", "temporal,nan", "--config", "deviations:20")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(
        "Of the bits of a gradient's element (31 is the sign) a flip is seen by temporal or ranks 19 times of 20: 30; "
    )
    assert "one rank of 1" in done.stdout and "those of the command" in done.stdout
    assert [line.split()[0] for line in done.stdout.splitlines() if " 0.1" in line] == 2 * ["big.weight", "big.bias"]


@pytest.mark.parametrize(
    ("script", "more", "code", "says"),
    [
        ("import sys; sys.exit(7)", (), 2, "ended with 7"),
        ("import os; os.kill(os.getpid(), 9)", (), 137, "ended with 137"),
        ("print('no torch')", (), 2, "torch"),
        ("import torch", (), 2, "saw no step of an optimizer"),
        ("", ("--steps", "3"), 2, "10 steps or more"),
        ("", ("--config", "coldown:3"), 2, "cooldown"),
    ],
)
def test_what_cannot_be_explained_is_a_sentence(script, more, code, says, tmp_path):
    (tmp_path / "train.py").write_text(script)
    done = told(tmp_path, *more)
    assert (done.returncode, done.stdout) == (code, "") and says in done.stderr, done.stderr
