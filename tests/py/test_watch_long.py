# SPDX-License-Identifier: Apache-2.0
"""What a run of weeks meets, under `ulpscope.watch`: steps that a loss scaler skips, a loss that is NaN,
clocks that jump, no memory, many parameters, ranks that fall silent."""

import collections
import os
import subprocess
import sys
import textwrap
import types

import pytest
import torch
from test_watch import FLIP, training
from torch import nn

import ulpscope
from ulpscope.watching import watch_decisions, watch_ranks, watch_rows


def test_steps_that_a_loss_scaler_skips_are_no_alarm():
    torch.manual_seed(0)
    net = nn.Linear(8, 8)
    optimizer, scaler = torch.optim.SGD(net.parameters(), lr=1e-3), torch.amp.GradScaler("cpu")
    with ulpscope.watch(net, optimizer, weights_every=1, matmul_every=1) as w:
        for step in range(40):
            loss = net(torch.randn(4, 8)).pow(2).mean()
            scaler.scale(loss * (float("inf") if step % 15 == 14 else 1.0)).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    assert (w.error, w.events(), w.step) == (None, [], 38)


def test_a_loss_that_is_nan_from_the_first_step_on_is_told_once():
    net = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with ulpscope.watch(net, optimizer, weights_every=1, matmul_every=1) as w:
        for _ in range(30):
            (net(torch.ones(2, 4)).sum() * float("nan")).backward()
            optimizer.step()
    assert w.error is None and w.step == 30
    told = [(e.step, e.kind, e.tensor) for e in w.events()]
    assert (0, "nonfinite", "weight") in told and len(set(told)) == len(told) <= 10, told


def test_a_clock_that_jumps_is_no_matter(monkeypatch):
    times = iter([1e9, 5.0, float("nan"), float("inf"), -1e12] * 30)
    monkeypatch.setattr(watch_decisions, "time", types.SimpleNamespace(monotonic=lambda: next(times)))
    assert training(weights_every=3)[1] == []
    assert [e.kind for e in training(fault=FLIP)[1]][:1] == ["spike"]


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("no room for 8 GiB")], ids=["host", "device"])
def test_no_memory_for_its_own_ends_the_watch_alone(error, monkeypatch, capfd):
    def none(*_):
        raise error

    without, _, _ = training(watched=False)
    losses = []

    def fail(step, net, optimizer):
        if step == 20:
            monkeypatch.setattr(watch_rows, "_core", types.SimpleNamespace(sums=none))

    with pytest.raises(AssertionError):  # `training` holds that a watch has no error
        training(each=lambda *of: (fail(*of), losses.append(of[0])))
    assert losses == list(range(50)) and len(without) == 51
    assert capfd.readouterr().err.count("the watch failed") == 1


def test_a_hundred_thousand_parameters_have_bounded_state():
    n = 100_000
    parameters = [nn.Parameter(part) for part in torch.ones(n, 2).unbind()]
    grads = torch.full((n, 2), 1e-3).unbind()
    optimizer = torch.optim.SGD(parameters, lr=1e-3, foreach=True)
    with ulpscope.watch(None, optimizer) as w:
        for _ in range(2):
            for parameter, grad in zip(parameters, grads):
                parameter.grad = grad
            optimizer.step()
        assert (w.error, w.step, len(w.names)) == (None, 2, n) and len(w._rows) <= 1
        assert w.core.about()["bytes"] < 4096 * n


class NoWord:
    """In place of torch.distributed, with ranks of which nothing comes."""

    def all_gather(self, *args, **kwargs):
        return types.SimpleNamespace(is_completed=lambda: False)


@pytest.mark.parametrize(
    ("steps", "patience", "says"),
    [(watch_ranks.MOST_WAITING + 1, 60.0, "64 steps behind"), (1, -1.0, "no word of step 0")],
)
def test_a_rank_that_hears_nothing_goes_on_alone(steps, patience, says, monkeypatch):
    monkeypatch.setattr(watch_ranks, "PATIENCE_S", patience)
    exchange = object.__new__(watch_ranks.Exchange)
    exchange.__dict__ |= {
        "dist": NoWord(),
        "group": None,
        "rank": 1,
        "world": 3,
        "waiting": collections.deque(),
        "alone": None,
        "n_bytes": 0,
        "acts": False,
        "votes": None,
    }
    for step in range(steps):
        assert exchange.alone is None
        exchange.send(step, 7, watch_rows.NO_ROW, torch.empty(0))
    come = exchange.received()
    assert says in exchange.alone and [step for step, _, _ in come] == list(range(steps))
    assert not exchange.send(steps, 7, watch_rows.NO_ROW, torch.empty(0))  # it is the watch's own matter now
    assert (
        all(rows == [None, watch_rows.NO_ROW, None] and more == [] for _, rows, more in come)
        and exchange.received() == []
    )


def test_steps_are_decided_in_turn_where_a_rank_goes_on_alone(monkeypatch):
    """What waits for others comes before the step at which it waits no longer, and nothing comes twice."""
    exchange = object.__new__(watch_ranks.Exchange)
    exchange.__dict__ |= {
        "dist": NoWord(),
        "group": None,
        "rank": 1,
        "world": 2,
        "waiting": collections.deque(),
        "alone": None,
        "n_bytes": 0,
        "acts": False,
        "votes": None,
        "answers": [],
    }
    monkeypatch.setattr(watch_ranks, "Exchange", lambda *_: exchange)
    monkeypatch.setattr(watch_ranks, "CLOSE_S", 0.0)
    decided, decide = [], watch_decisions.WatchDecisions._decide
    monkeypatch.setattr(
        watch_decisions.WatchDecisions, "_decide", lambda self, step: (decided.append(step), decide(self, step))
    )
    _, events, _ = training(
        steps=50,
        weights_every=1,
        process_group="others",
        each=lambda step, *_: exchange.leave("it is over") if step == 40 else None,
    )
    assert exchange.alone and decided == list(range(50)) and events == []


SLOW = """
    import os, pathlib, sys, time, torch, ulpscope
    import torch.distributed as dist
    from torch import nn
    from ulpscope.watching import watch_ranks
    dist.init_process_group("gloo")
    rank, world, here = dist.get_rank(), dist.get_world_size(), pathlib.Path()
    STEPS, slow = 50, rank == dist.get_world_size() - 1

    class Counted:  # how often something is waited for that has not come
        n = 0
        def __init__(self, work):
            self.work, self.is_completed = work, work.is_completed
        def wait(self):
            Counted.n += not self.work.is_completed()
            return self.work.wait()

    class Dist:
        all_gather = staticmethod(lambda *args, **more: Counted(dist.all_gather(*args, **more)))

    def until(*names):
        while not all((here / name).exists() for name in names):
            time.sleep(0.01)

    def train(name, blocking):
        watch_ranks.PATIENCE_S = 1.0 if blocking else 60.0
        torch.manual_seed(0)
        net = nn.Linear(8, 8)
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
        with ulpscope.watch(net, optimizer, process_group=dist.group.WORLD, weights_every=1) as w:
            w.exchange.dist, Counted.n = Dist, 0
            for step in range(STEPS):
                if slow and step == 1:  # for one step of this rank the others make all of theirs
                    until(*(f"{name}-{r}" for r in range(world - 1)))
                net(torch.ones(1, 8)).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
                if slow and step == 30:
                    net.weight.data.view(torch.int32)[0, 3] ^= 1
                if blocking and not slow and step == 5:
                    w.exchange.complete()  # the planted mistake
            (here / f"{name}-{rank}").touch()
            waits = Counted.n
            until(*(f"{name}-{r}" for r in range(world)))
        told = sorted({(e.step, e.kind, e.rank) for e in w.events()})
        os.write(1, f"{name} {rank}: {w.step} {waits > 0} {w.error} {bool(w.exchange.alone)} {told}\\n".encode())

    train("free", False)
    train("blocking", True)
    dist.barrier()
    dist.destroy_process_group()
"""


def test_a_rank_that_is_a_hundred_times_slower_holds_up_nobody(tmp_path, world=2):
    """Ranks that train without each other make all their steps while one of them makes one, and wait for nothing
    in the watch that has not come; what the slow one says is judged when it says it."""
    (tmp_path / "train.py").write_text(textwrap.dedent(SLOW))
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world), "train.py"],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=120,
        env=dict(os.environ, OMP_NUM_THREADS="1"),
    )
    assert done.returncode == 0, done.stderr
    said = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    for rank in range(world):
        assert said[f"free {rank}"].startswith("50 False None False [(31, 'changed', 1)"), said
        assert "(31, 'undecided', -1)" in said[f"free {rank}"]
    assert [said[f"blocking {rank}"].split()[1] for rank in range(world - 1)] == ["True"] * (world - 1)  # it is seen


FILLS = """
    import resource, torch, ulpscope
    net = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
    with ulpscope.watch(net, optimizer, log="w.jsonl") as w:
        for _ in range(60):
            net(torch.randn(3, 4)).sum().backward()
            optimizer.step()
    print(w.step, w.error, len(w.events()))
"""


def test_a_disk_that_fills_up_meanwhile_leaves_a_log_that_is_read(tmp_path):
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(FILLS)], cwd=tmp_path, text=True, capture_output=True)
    assert (done.returncode, done.stdout) == (0, "60 None 0\n"), done.stderr
    assert done.stderr.count("goes on without its log") == 1
    read = subprocess.run(["ulpscope", "watch", "w.jsonl"], cwd=tmp_path, text=True, capture_output=True)
    assert read.returncode == 0 and "the last one, was cut off" in read.stdout + read.stderr, read
    assert 5_000 < (tmp_path / "w.jsonl").stat().st_size <= 10_000


@pytest.mark.parametrize(
    ("variable", "options", "says"),
    [
        ("cooldwn:5", {}, "did you mean 'cooldown'"),
        ("weights_every:0", {}, "from 1 to"),
        ("enable=true", {}, "key:value"),
        ("enable:true,,cooldown:3", {}, "key:value"),
        ("", {"config": "mode:fast"}, "sound or asd"),
        ("", {"config": "deviations:NaN"}, "from 4 to"),
        ("", {"config": "dead_steps:1e3"}, "from 1 to"),
        ("", {"config": "cooldown:\u0665"}, "from 1 to"),
        ("", {"config": "x" * 100_000}, "key:value"),
        ("", {"matmul_every": 2.5}, "one call of so many"),
        ("", {"weights_every": True, "action": None, "config": "action:"}, "log, skip, raise and stop"),
    ],
)
def test_a_malformed_configuration_is_a_sentence(variable, options, says, monkeypatch):
    monkeypatch.setenv("NPU_ASD_CONFIG", variable)
    net = nn.Linear(2, 2)
    with pytest.raises(ValueError, match=says):
        ulpscope.watch(net, torch.optim.SGD(net.parameters(), lr=1), **options)


def odd(kind):
    """A parameter whose gradients are of this kind, and how a step gets one."""
    if kind == "sparse":
        table = nn.Embedding(9, 3, sparse=True)
        return table.weight, lambda i: table(torch.tensor([i % 9, 2])).sum()
    shape, dtype = {
        "empty": ((0, 3), torch.float32),
        "complex": ((4,), torch.complex64),
        "none": ((2,), torch.float32),
        "scalar": ((), torch.float64),
        "half": ((5, 5), torch.float16),
    }[kind]
    p = nn.Parameter(torch.ones(shape, dtype=dtype))
    return p, lambda i: p.abs().sum().double() if kind != "none" else 0.0


@pytest.mark.parametrize("kind", ["empty", "complex", "sparse", "scalar", "half", "none"])
@pytest.mark.parametrize("options", [{}, {"weights_every": 1, "action": "skip"}], ids=["default", "skip"])
def test_gradients_of_every_kind_are_watched(kind, options):
    """Quiet, and a spike in what has elements is seen."""
    for harmed in (False, True):
        p, loss = odd(kind)
        net = nn.Linear(4, 4)
        optimizer = torch.optim.SGD([*net.parameters(), p], lr=1e-3)
        with ulpscope.watch(net, optimizer, **options) as w:
            for i in range(30):
                (net(torch.ones(2, 4)).sum().double() + loss(i)).backward()
                if harmed and i == 25 and p.grad is not None and p.numel():
                    p.grad = p.grad * 2.0**14
                optimizer.step()
                optimizer.zero_grad()
        assert (w.error, w.step) == (None, 30)
        seen = [e for e in w.events() if e.step == 25 and e.kind in ("spike", "nonfinite")]
        assert bool(seen) == (harmed and kind not in ("empty", "none")), (harmed, w.events())
