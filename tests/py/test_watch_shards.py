# SPDX-License-Identifier: Apache-2.0
"""What FSDP2 gathers and scatters, under a watch: quiet in each dtype, with micro-batches, uneven cuts and other
factors; a weight that came otherwise than it was sent, a part of a sum that was lost and a shard that is not
the sum are found, with the rank."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch

from ulpscope.watching import watch_collective, watch_shards

PROGRAM = """
    import os, torch, ulpscope
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    engine = torch.autograd.Variable._execution_engine

    def train(name, dtype=torch.float32, micro=1, policy=None, factor=None):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(16, 35), nn.Tanh(), nn.Linear(35, 16)).to(dtype)
        mesh = init_device_mesh("cpu", (world,))
        for part in (net[0], net[2], net):
            fully_shard(part, mesh=mesh, **({"mp_policy": policy} if policy else {}))
        due = lambda: w is not None and w.step == 12 and rank == 1
        w = None
        if name == "gathered":  # before the watch looks
            def flip(module, args):
                if due():
                    module.weight.detach().view(torch.int32)[20, 0] ^= 4
            net[0].register_forward_pre_hook(flip)
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
        torch.manual_seed(rank)
        with ulpscope.watch(net, optimizer, weights_every=4) as w:
            if name == "lost":  # behind the watch's hook: what rank 1 gives is not what it computed
                def lose(module, args):
                    if not hasattr(module, "lost"):
                        module.lost = module.weight.register_post_accumulate_grad_hook(
                            lambda p: [p.grad.zero_() if due() else None, None][1])
                net[2].register_forward_pre_hook(lose)
            shard = net[2].weight
            def harm():
                for p in net.parameters() if factor else ():  # as another divisor of the sum gives
                    p.grad.to_local().mul_(factor)
                if due() and name == "own":
                    shard.grad.to_local().view(-1)[3] += 4 * shard.grad.to_local().abs().max()
            def behind(g):  # the callback of FSDP2, and before the watch's
                engine.queue_callback(lambda: engine.queue_callback(harm))
            for step in range(16):
                for k in range(micro):
                    net.set_requires_gradient_sync(k == micro - 1)
                    out = net(torch.randn(8, 16).to(dtype))
                    out.register_hook(behind)
                    out.float().pow(2).mean().backward()
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        heard = [e for e in w.events() if name == "clean" or e.kind == "collective"]
        told = sorted({(e.step, e.kind, e.tensor, e.rank) for e in heard})
        held = (len(w.collectives.cut), w.collectives.is_mean)
        os.write(1, f"{name} {rank}: {w.error} {w.exchange.alone} {held} {told}\\n".encode())

    train("clean", torch.float32, micro=3)
    train("clean", torch.bfloat16)
    train("clean", policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    train("clean", factor=3.0)
    for name in ("gathered", "lost", "own"):
        train(name)
    dist.destroy_process_group()
"""


def test_what_ranks_gather_and_scatter_is_what_they_have(tmp_path, world=3):
    (tmp_path / "train.py").write_text(textwrap.dedent(PROGRAM))
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world), "train.py"],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=120,
        env=dict(os.environ, OMP_NUM_THREADS="1"),
    )
    assert done.returncode == 0, done.stderr
    said = {}
    for line in done.stdout.splitlines():
        said.setdefault(line.split(":")[0], []).append(line.split(": None None ", 1)[1])
    for rank in range(world):
        # sums of mixed precision are none of float32, those with another factor no mean
        assert said[f"clean {rank}"] == ["(4, True) []"] * 2 + ["(4, False) []"] * 2
        assert said[f"gathered {rank}"] == ["(4, True) [(12, 'collective', '0.weight', 1)]"]
        assert said[f"own {rank}"] == ["(4, True) [(12, 'collective', '2.weight', 1)]"]
        [lost] = said[f"lost {rank}"]  # each rank's part of the sum lacks what rank 1 did not give
        assert all(f"(12, 'collective', '2.weight', {r})" in lost for r in range(world)) and "0.weight" not in lost


@pytest.mark.parametrize(
    ("sender", "receivers", "named"),
    [(0, (2,), [2]), (0, (1, 2, 3), [0]), (1, (0, 3), [0, 3]), (2, (2,), [2]), (1, (), [])],
)
def test_of_other_bits_the_rank_is_named(sender, receivers, named):
    """One rank that got them, or the one that sent them to all; of tensors that a rank knows nothing of nothing."""
    own = torch.arange(40, 44)
    told = torch.stack([torch.cat([own[r : r + 1], own]) for r in range(4)])[:, None].repeat(1, 3, 1)
    for r in receivers:
        told[r, 1, 1 + sender] = 7
        told[r, 2, 1 + sender] = 7
    told[3, 2] = watch_shards.NO_HASH
    assert watch_shards.other_bits(told) == [(r, 1) for r in named]


def test_parts_are_those_that_fsdp_cuts():
    for n, world in ((5, 3), (4, 4), (1, 3), (7, 2), (0, 2)):
        parts = watch_shards.parts_of(torch.arange(float(n)), world)
        assert len(parts) == world and torch.cat(parts).tolist() == list(range(n))
    assert watch_collective.ALIKE != watch_shards.GATHERED


SHARDED = """
    import os, torch, ulpscope
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    def model():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16))

    def train(net, watched, micro=1, harm=None):
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
        torch.manual_seed(rank)
        with ulpscope.watch(watched, optimizer, weights_every=1) as w:
            for step in range(25):
                for k in range(micro):
                    with net.no_sync() if micro > 1 and k < micro - 1 else torch.enable_grad():
                        net(torch.randn(8, 16)).pow(2).mean().backward()
                optimizer.step()
                optimizer.zero_grad(set_to_none=micro == 1)
                if harm and step == 20 and rank == 1:
                    harm(optimizer)
        events = [(e.step, e.kind, e.rank, e.tensor) for e in w.events()]
        os.write(1, f"rank {rank}: {w.error} {w.exchange.alone} {events}\\n".encode())

    sharded = model()
    for part in (sharded[0], sharded[2], sharded):
        fully_shard(part, mesh=init_device_mesh("cpu", (world,)))
    def flip():
        sharded[0].weight.to_local().data.view(torch.int32)[0, 0] ^= 4
    def flip_moment(optimizer):
        optimizer.state[sharded[2].weight]["exp_avg_sq"].to_local().data.view(torch.int32)[3, 1] ^= 4
    train(sharded, sharded, harm=lambda optimizer: (flip(), flip_moment(optimizer)))
    buckets = nn.parallel.DistributedDataParallel(model(), gradient_as_bucket_view=True)
    train(buckets, buckets, micro=2)
    dist.destroy_process_group()
"""


def test_shards_and_buckets(tmp_path):
    (tmp_path / "train.py").write_text(textwrap.dedent(SHARDED))
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=120,
        env=dict(os.environ, OMP_NUM_THREADS="1"),
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "rank 0: None None [(21, 'changed', 1, '0.weight'), (21, 'changed', 1, '2.weight')]",
        "rank 0: None None []",
        "rank 1: None None [(21, 'changed', 1, '0.weight'), (21, 'changed', 1, '2.weight')]",
        "rank 1: None None []",
    ]
