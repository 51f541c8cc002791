# SPDX-License-Identifier: Apache-2.0
"""What a run of weeks meets, under `ulpscope.watch`: steps that a loss scaler skips, a loss that is NaN,
clocks that jump, no memory, many parameters, ranks that fall silent."""

import collections
import types

import pytest
import torch
from test_watch import FLIP, training
from torch import nn

import ulpscope
from ulpscope.sources import watch as watch_module
from ulpscope.sources import watch_ranks, watch_rows


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
    monkeypatch.setattr(watch_module, "time", types.SimpleNamespace(monotonic=lambda: next(times)))
    assert training(weights_every=3)[1] == []
    assert [e.kind for e in training(fault=FLIP)[1]][:1] == ["spike"]


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("no room for 8 GiB")], ids=["host", "device"])
def test_no_memory_for_its_own_ends_the_watch_alone(error, monkeypatch, capfd):
    def none(tensors):
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


@pytest.mark.parametrize(("steps", "patience", "says"), [
    (watch_ranks.MOST_WAITING + 1, 60.0, "64 steps behind"), (1, -1.0, "no word of step 0")])  # fmt: skip
def test_a_rank_that_hears_nothing_goes_on_alone(steps, patience, says, monkeypatch):
    monkeypatch.setattr(watch_ranks, "PATIENCE_S", patience)
    exchange = object.__new__(watch_ranks.Exchange)
    exchange.__dict__ |= {"dist": NoWord(), "group": None, "rank": 1, "world": 3, "waiting": collections.deque(),
                          "alone": None, "n_bytes": 0, "acts": False, "votes": None}  # fmt: skip
    for step in range(steps):
        assert exchange.alone is None
        exchange.send(step, 7, watch_rows.NO_ROW, torch.empty(0))
    come = exchange.received()
    assert says in exchange.alone and [step for step, _, _ in come] == list(range(steps))
    assert not exchange.send(steps, 7, watch_rows.NO_ROW, torch.empty(0))  # it is the watch's own matter now
    assert all(rows == [None, watch_rows.NO_ROW, None] and more == [] for _, rows, more in come) and exchange.received() == []


def test_steps_are_decided_in_turn_where_a_rank_goes_on_alone(monkeypatch):
    """What waits for others comes before the step at which it waits no longer, and nothing comes twice."""
    exchange = object.__new__(watch_ranks.Exchange)
    exchange.__dict__ |= {"dist": NoWord(), "group": None, "rank": 1, "world": 2, "waiting": collections.deque(),
                          "alone": None, "n_bytes": 0, "acts": False, "votes": None, "answers": []}  # fmt: skip
    monkeypatch.setattr(watch_ranks, "Exchange", lambda *_: exchange)
    monkeypatch.setattr(watch_ranks, "CLOSE_S", 0.0)
    decided, decide = [], watch_module.Watch._decide
    monkeypatch.setattr(watch_module.Watch, "_decide", lambda self, step: (decided.append(step), decide(self, step)))
    _, events, _ = training(steps=50, weights_every=1, process_group="others",
                            each=lambda step, *_: exchange.leave("it is over") if step == 40 else None)  # fmt: skip
    assert exchange.alone and decided == list(range(50)) and events == []
