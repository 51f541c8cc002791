# SPDX-License-Identifier: Apache-2.0
"""What goes into DistributedDataParallel's reduction against what comes out: quiet in each dtype, with
micro-batches and with numbers that are all alike; a part that was lost, and a sum that is wrong on one rank
or on all alike, are found."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch

from ulpscope.watching import watch_collective


@pytest.mark.parametrize("n", [1, 5, 4096, 4097, 50_000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_the_bound_holds_for_the_mean_of_ranks_and_not_far_beyond(n, dtype):
    """Whatever the numbers are: alike, of one sign, over many powers of two, next to nothing."""
    torch.manual_seed(n)
    checksum = watch_collective.Checksum()
    for fill in (torch.randn, torch.ones, lambda m: torch.randn(m).exp() * 1e-3, lambda m: torch.randn(m) * 1e-38):
        parts = [fill(n).to(dtype) for _ in range(3)]
        mean = sum(p / 3 for p in parts)
        tables = [torch.cat([checksum(p), checksum(mean)[:1]])[None] for p in parts]
        [(rank, _, over)] = watch_collective.judged(tables, [dtype], [n])
        assert rank == -1 and over < 0.5, (fill, over)
        if n >= 5 and fill is torch.randn:
            mean[2] += 10 * mean.abs().max()
            tables[1][0, 2] = checksum(mean)[0]
            assert any(over > 1 for rank, _, over in watch_collective.judged(tables, [dtype], [n]) if rank == 1)


REDUCED = """
    import os, sys, torch, ulpscope
    import torch.distributed as dist
    from torch import nn
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    def train(name, dtype, micro=1, constant=False):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(64, 300), nn.Tanh(), nn.Linear(300, 16)).to(dtype)
        model = nn.parallel.DistributedDataParallel(net)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.3)
        torch.manual_seed(rank)
        with ulpscope.watch(model, optimizer, weights_every=1) as w:
            weight = net[0].weight
            if name == "lost":  # behind the watch's hook: rank 1's part is not what it computed
                weight.register_post_accumulate_grad_hook(
                    lambda p: [p.grad.zero_() if w.step == 9 and rank == 1 else None, None][1])
            def harm():
                if w.step == 9 and (name == "alike" or name == "own" and rank == 1):
                    weight.grad.view(-1)[4097] += weight.grad.abs().max() * 4
            engine = torch.autograd.Variable._execution_engine
            def after_reduction(g):  # behind the reducer's callback and before the watch's
                engine.queue_callback(lambda: engine.queue_callback(harm))
            for step in range(16):
                for k in range(micro):
                    x = torch.ones(8, 64) if constant else torch.randn(8, 64)
                    if k < micro - 1:
                        with model.no_sync():
                            loss = model(x.to(dtype)).pow(2).mean()
                    else:
                        out = model(x.to(dtype))
                        out.register_hook(after_reduction)
                        loss = out.pow(2).mean()
                    loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        told = {(e.step, e.tensor, e.rank) for e in w.events() if e.kind == "collective"}
        others = {e.kind for e in w.events()} - {"collective"} if name == "clean" else set()
        os.write(1, f"{name} {dtype} {micro} {rank}: {w.error} {w.exchange.alone} {sorted(told)} {others}\\n".encode())

    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        train("clean", dtype)
        train("clean", dtype, micro=2)
        train("clean", dtype, constant=True)
    train("lost", torch.float32)
    train("lost", torch.bfloat16)
    train("alike", torch.float32)
    train("own", torch.float32)
    dist.destroy_process_group()
"""


def test_what_comes_out_of_a_reduction_is_what_went_in(tmp_path):
    """Where all ranks have the same wrong sum no vote of theirs can tell."""
    (tmp_path / "train.py").write_text(textwrap.dedent(REDUCED))
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=120,
        env=dict(os.environ, OMP_NUM_THREADS="1"),
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for rank in (0, 1):
        mine = [line for line in lines if f" {rank}: None None " in line]
        assert len(mine) == 13, done.stdout + done.stderr
        for line in mine:
            at = {"clean": "[]", "own": "[(9, '0.weight', 1)]"}.get(line.split()[0], "[(9, '0.weight', -1)]")
            assert f"{at} set()" in line, line
