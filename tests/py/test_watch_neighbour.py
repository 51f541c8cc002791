# SPDX-License-Identifier: Apache-2.0
"""A micro-batch computed by the next rank: quiet, and with the bits that training has without; a rank that
always computes wrongly in the same way is named; one that computed another's wrongly once is, too; a rank of
which nothing comes holds up nobody."""

import os
import re
import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn

from ulpscope.watching import watch_audit, watch_neighbour, watch_ranks

PROGRAM = """
    import os, sys, torch, ulpscope
    import torch.distributed as dist
    from torch import nn
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    class Net(nn.Module):
        def __init__(self, harm):
            super().__init__()
            self.first, self.norm, self.last = nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Linear(32, 4)
            self.harm = harm

        def forward(self, x):
            x = nn.functional.dropout(self.norm(self.first(x)), 0.2)
            return {"y": self.last(self.harm(x))}

    def train(harm=lambda w, x: x, steps=30, micro=2, **options):
        torch.manual_seed(0)
        w = None
        model = nn.parallel.DistributedDataParallel(Net(lambda x: harm(w, x)))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        torch.manual_seed(rank)
        with ulpscope.watch(model, optimizer, **options) as w:
            for step in range(steps):
                for k in range(micro):
                    with model.no_sync() if k < micro - 1 else torch.enable_grad():
                        model(torch.randn(8, 16))["y"].pow(2).mean().backward()
                optimizer.step()
                optimizer.zero_grad()
                for _ in range(10):  # steps are shorter here than what is sent takes
                    if w.neighbours:
                        w.neighbours._go_on()
                    dist.barrier()
        left = (*model.parameters(), *model.buffers(), torch.rand(3))
        return w, torch.cat([t.detach().double().reshape(-1) for t in left])

    def told(name, w):
        found = sorted({(e.kind, e.rank) for e in w.events()})
        off = w.neighbours.off and w.neighbours.off[:40]
        agreed = w.neighbours.n_agreed > 2
        os.write(1, f"{name} {rank}: {w.error} {w.exchange.alone} {off} {agreed} {found}\\n".encode())

    def lasting(w, x):  # from a step on
        return x * 1.0001 if rank == 1 and w.step >= 20 else x

    def from_the_start(w, x):
        return x * 1.0001 if rank == 1 else x

    def once(w, x):  # the second rank, while it computes for the first
        if rank == 1 and w.audit.busy and w.step > 9 and not hasattr(w, "harmed"):
            w.harmed = True
            return x * 1.0001
        return x

    _, without = train()
    w, with_it = train(neighbour=2)
    told("clean" if torch.equal(without, with_it) else "changed", w)
    w, with_it = train(neighbour=3, audit=2, micro=3)
    told("both", w)
    told("lasting", train(lasting, neighbour=2)[0])
    told("from_the_start", train(from_the_start, neighbour=2)[0])
    told("once", train(once, neighbour=2)[0])
    dist.destroy_process_group()
"""
SAME_BITS = {"clean": r"None True \[\]", "both": r"None True \[\]", "once": r"None True \[\('replay', 1\)\]"}
OF_TWO = SAME_BITS | {
    "lasting": r"None True \[\('replay', -1\)\]",
    "from_the_start": r"ranks compute the same micro-batch with  False \[\]",
}
# what begins between a micro-batch and its second computation is of one pair first
OF_THREE = SAME_BITS | {
    "lasting": r"None True \[(\('replay', -1\), )?\('replay', 1\)\]",
    "from_the_start": r"None False \[\('replay', 1\)\]",
}


@pytest.mark.parametrize(("world", "expected"), [(2, OF_TWO), (3, OF_THREE)])
def test_a_rank_that_computes_wrongly_is_named_by_its_neighbours(world, expected, tmp_path):
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
    said = dict(line.split(": None None ", 1) for line in done.stdout.splitlines())
    for name, what in expected.items():
        for rank in range(world):
            assert re.fullmatch(what, said[f"{name} {rank}"]), done.stdout + done.stderr


class Alone:
    """In place of torch.distributed, with ranks of which nothing comes, or trouble."""

    def __init__(self, trouble):
        self.trouble = trouble

    def all_gather(self, *args, **kwargs):
        return self

    def is_completed(self):
        return self.trouble is not None

    def wait(self):
        raise RuntimeError(self.trouble)

    def get_rank(self, group):
        return 1

    def get_world_size(self, group):
        return 3


@pytest.mark.parametrize(
    ("trouble", "patience", "says"),
    [
        ("Connection closed by peer", 60.0, "Connection closed"),
        (None, 60.0, None),
        (None, -1.0, "no word of a micro-batch for"),
    ],
)
def test_a_rank_of_which_nothing_comes_holds_up_nobody(trouble, patience, says, monkeypatch, capfd):
    monkeypatch.setattr(watch_ranks, "make_group", lambda group: None)
    monkeypatch.setattr(watch_ranks, "PATIENCE_S", patience)
    monkeypatch.setattr(torch, "distributed", Alone(trouble))
    net = nn.Linear(2, 2)
    ids = {p: i for i, p in enumerate(net.parameters())}
    audit = watch_audit.Audit(net, 0, ids)
    audit.neighbours = near = watch_neighbour.Neighbours(audit, 1, None, ids)
    for _ in range(8):
        net(torch.ones(1, 2)).sum().backward()
        assert audit.before_step() == []
    if says is None:  # it may come yet: as many copies of weights as are allowed, and no more
        assert near.off is None and len(near.weights) == watch_neighbour.MOST_UNDER_WAY
    else:
        assert says in near.off and near.weights == {}
    assert capfd.readouterr().err.count("to another rank any more") == (says is not None)
    assert near.words().tolist() == [-1, -1, -1]
