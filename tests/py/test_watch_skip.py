# SPDX-License-Identifier: Apache-2.0
"""Action `skip` over ranks: all skip the same step, whoever has found something, and their weights stay the
same bits; a rank that does not agree, or of which nothing comes, has nobody skip; a clean step asks nothing."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn

import ulpscope
import ulpscope.sim
from ulpscope.watching import watch_ranks

PROGRAM = """
    import os, sys, torch, ulpscope
    import torch.distributed as dist
    from torch import nn
    from ulpscope.watching import watch_ranks
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    last = rank == world - 1
    asked = []
    answer = watch_ranks.Exchange._answer
    def counted(self, *said):
        asked.append(said)
        return answer(self, *said)
    watch_ranks.Exchange._answer = counted

    def harm_product(node):
        while node.name() != "AddmmBackward0":
            node = node.next_functions[0][0]
        def wrong(into, out):
            changed = list(into)
            changed[-1] = into[-1].clone()
            changed[-1][3, 5] += 0.1 * into[-1].abs().max()
            return tuple(changed)
        node.register_hook(wrong)

    def train(name, lone=False, **options):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16))
        model = nn.parallel.DistributedDataParallel(net)
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
        torch.manual_seed(rank)
        asked.clear()
        watch_ranks.PATIENCE_S = 1.0 if name in ("silent", "failed", "refused") else 60.0
        if name == "own" and last:  # before the hooks of the watch
            net[0].register_forward_hook(lambda module, args, out: harm_product(out.grad_fn) if w.step == 30 else None)
        with ulpscope.watch(model, optimizer, action="skip", weights_every=1, matmul_every=1, **options) as w:
            if lone:  # the planted mistake: each rank does what itself thinks
                w._agree = lambda: rank == 1 and w.step == 30
            if name == "silent" and last:  # it draws another verdict
                w._take = lambda found: None
            skipped = []
            for step in range(34):
                model(torch.randn(8, 16)).pow(2).mean().backward()
                weight = net[0].weight
                if step == 30 and name == "failed" and last:
                    w.core = None
                if step == 30 and name == "refused" and last:
                    w.exchange.leave("for a test")
                if step == 30 and name == "alike":
                    weight.grad.view(-1)[5] = 1e30
                elif step == 30 and last and name in ("grad", "silent", "failed", "refused"):
                    weight.grad.view(-1)[5] = 1e30
                was = weight.detach().clone()
                optimizer.step()
                if torch.equal(was, weight):
                    skipped.append(step)
                optimizer.zero_grad()
                if step == 30 and last and name == "weight":
                    weight.data.view(torch.int32).view(-1)[5] ^= 1
        sums = torch.cat([p.detach().reshape(-1).double() for p in net.parameters()])
        first = sums.clone()
        dist.broadcast(first, 0)
        kinds = sorted({e.kind for e in w.events()})
        os.write(1, f"{name} {rank}: {skipped} {torch.equal(sums, first)} {len(asked)} {bool(w.error)} "
                    f"{bool(w.exchange.alone)} {','.join(kinds)}\\n".encode())

    for name in sys.argv[1:]:
        train(name, lone=name.startswith("lone-"))
    dist.destroy_process_group()
"""


def over_ranks(folder, world, *names):
    """name -> what each rank said."""
    (folder / "train.py").write_text(textwrap.dedent(PROGRAM))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            str(world),
            "train.py",
            *names,
        ],
        cwd=folder,
        text=True,
        capture_output=True,
        timeout=120,
        env=dict(os.environ, OMP_NUM_THREADS="1", ULPSCOPE_STRICT=""),
    )
    assert done.returncode == 0, done.stderr
    said = {}
    for line in sorted(done.stdout.splitlines()):
        said.setdefault(line.split()[0], []).append(line.split(": ", 1)[1])
    return said, done.stderr


def test_all_ranks_skip_the_same_step_or_none_does(tmp_path, world=3):
    """One that has another verdict, one whose watch has failed, one that goes on alone: weights of the ranks
    part by the planted fault and by nothing else, that is, no rank skips."""
    said, told = over_ranks(
        tmp_path, world, "clean", "alike", "own", "weight", "grad", "lone-own", "silent", "refused", "failed"
    )
    for name, expected in {
        "clean": "[] True 0 False False ",
        "alike": "[30] True 1 False False ",
        "own": "[30] True 1 False False ",
        "grad": "[30] True 1 False False ",
    }.items():
        assert len(said[name]) == world
        assert all(line.startswith(expected) for line in said[name]), (name, said[name])
    [skipped] = {line.split("]")[0] for line in said["weight"]}
    assert skipped.startswith("[31")  # known behind the step: the next one
    assert said["own"] == ["[30] True 1 False False "] * (world - 1) + ["[30] True 1 False False matmul"]  # one knows
    for name in ("silent", "refused", "failed"):
        assert all(line.startswith("[] ") for line in said[name]), (name, said[name])
    assert "is not skipped: the ranks do not all say so" in told
    # the planted mistake, which this test would see: each rank does what itself thinks
    assert [line.split("]")[0] for line in said["lone-own"]] == ["[", "[30", "["]


def test_skip_over_ranks_is_for_the_cpu(monkeypatch):
    made = type(
        "Made",
        (),
        {
            "rank": 0,
            "world": 2,
            "acts": True,
            "alone": None,
            "close": lambda self: None,
            "forget": lambda self: None,
            "received": lambda self: [],
        },
    )
    monkeypatch.setattr(watch_ranks, "Exchange", lambda *_: made())
    net = nn.Linear(2, 2, device="sim:0")
    with pytest.raises(ValueError, match="a step later"):
        ulpscope.watch(net, torch.optim.SGD(net.parameters(), lr=1), process_group="all", action="skip")
