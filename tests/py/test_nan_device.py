# SPDX-License-Identifier: Apache-2.0
"""`ulpscope.nan_tracker` on a device: what is looked at there bears what the host's own look at the
bytes bears, and nobody waits for it."""

import sys
import threading

import pytest
import torch

import ulpscope
import ulpscope.sim

D, inf, nan = "sim:0", float("inf"), float("nan")
OUT = torch.full((4, 4), 1.0)
OUT[0, 0] = nan
OUT = OUT.to(D)


def half():
    (torch.full((8, 16), 3.0, device=D).half() * 3e5).float().sum()


def data():
    x = torch.randn(8, 16)
    x[2, 3] = nan
    (x.to(D) * 2).sum()


def before():
    (OUT * 2).sum()


def before_view():
    (OUT.view(-1) + 1).sum()


def mask():
    m = torch.ones(8, 8, device=D).triu(1).bool()
    torch.randn(8, 8, device=D).masked_fill(m, -inf).softmax(-1).sum()


def rows_masked():
    torch.full((4, 4), -inf, device=D).softmax(-1)


def inplace():
    x = torch.ones(4, device=D)
    x.sub_(2)
    x.log_()
    x.add_(1)


def out():
    o = torch.full((4,), nan, device=D)
    torch.mul(torch.ones(4, device=D), 2.0, out=o)
    torch.log(-o, out=o)


def views():
    x = torch.ones(4, 6, device=D)
    x[1:3, ::2].mul_(-1)
    x.t()[0].sqrt_()
    x.sum()


def expanded():
    (torch.full((1, 5), -1.0, device=D).log().expand(7, 5) * 2).sum()


def back():
    x = torch.ones(4, device=D, requires_grad=True)
    (x.half() * 4096).float().mul(1e4).sum().backward()


def optim():
    p = torch.nn.Parameter(torch.ones(8, device=D))
    p.grad = torch.full((8,), 3e38, device=D)
    o = torch.optim.Adam([p], foreach=True)
    o.step()
    (p * 2).sum()


def infinf():
    x = torch.tensor([1.0, 0.0, -1.0]).to(D) / 0
    (x - x).sum()


def bf():
    (torch.full((4,), 3e38, device=D).bfloat16() * 10).sum()


def f64():
    (torch.full((3,), 1e308, device=D, dtype=torch.double) * 10).sum()


def scalar():
    torch.tensor(-1.0).to(D).sqrt()


def empties():
    x = torch.empty(64, device=D)
    y = x.detach()
    y.fill_(1)
    (y * 0).sum()


def net():
    torch.manual_seed(0)
    n = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).to(D)
    o = torch.optim.SGD(n.parameters(), lr=1e30)
    for _ in range(3):
        o.zero_grad()
        n(torch.ones(4, 8, device=D)).pow(2).sum().backward()
        o.step()


def births(program, **options):
    with ulpscope.nan_tracker(**options) as tracker:
        program()
    assert tracker.error is None
    return [vars(b) | {"stack": None} for b in tracker.births()]


ALL = (half, data, mask, rows_masked, inplace, out, views, expanded, back, optim, infinf, bf, f64, scalar, empties, net)


@pytest.mark.parametrize("program", ALL, ids=lambda p: p.__name__)
def test_births_are_those_of_the_bytes(program):
    assert births(program, on_device=True) == births(program)


def test_an_input_that_was_there_before_is_not_counted():
    (found,) = births(before, on_device=True)
    assert (found["op"], found["kind"], found["call"]) == ("aten::mul.Tensor", "entered", 1)
    assert ": NaN among 16 elements of args[0]; written before" in found["sentence"]


def test_a_view_bears_nothing():
    assert [(b["op"], b["kind"]) for b in births(before_view, on_device=True)] == [("aten::add.Tensor", "entered")]


def waits(program, steps=3, **options):
    """How often the host waits inside of the block, and what is born."""
    with ulpscope.nan_tracker(**options) as tracker:
        before = ulpscope.sim.memory_stats()["n_waits"]
        for _ in range(steps):
            program()
            ulpscope.step()
        n = ulpscope.sim.memory_stats()["n_waits"] - before
    assert tracker.error is None
    return n, [(b.op, b.step) for b in tracker.births()]


def test_nobody_waits_for_the_device():
    x = torch.full((64, 64), 100.0, device=D).half()

    def program():
        (x @ x).float().sum()

    n, found = waits(program, on_device=True)
    assert n == 0 and found == [("aten::mm", 0), ("aten::mm", 1), ("aten::mm", 2)]
    n, read = waits(program)
    assert n > 6 and read == found  # and a wait would be seen


def test_a_device_is_looked_at_there_but_where_its_memory_is_the_hosts(monkeypatch):
    assert not ulpscope.nan_tracker().on_device and ulpscope.nan_tracker(on_device=True).on_device
    monkeypatch.delitem(sys.modules, "ulpscope.sim")
    assert ulpscope.nan_tracker().on_device and not ulpscope.nan_tracker(on_device=False).on_device


def test_looks_alter_nothing():
    """Random streams, results and the program's own modes are as without them."""

    def run():
        torch.manual_seed(3)
        p = torch.nn.Parameter(torch.randn(16, 16).to(D))
        opt, losses = torch.optim.Adam([p], lr=0.1), []
        for _ in range(3):
            with torch.autocast("sim", dtype=torch.bfloat16):
                loss = torch.dropout(p @ p, 0.3, True).float().square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            with torch.inference_mode():
                losses.append((p * 1.5).sum().item())
        return losses, p.detach().cpu().tolist(), torch.randn(3).tolist()

    plain = run()
    with ulpscope.nan_tracker(on_device=True) as tracker:
        watched = run()
    assert watched == plain and tracker.error is None and tracker.births() == [] and tracker.n_calls > 50


def test_many_calls_of_several_threads_and_more_than_a_block():
    def work(bad):
        x = torch.full((8,), -1.0 if bad else 1.0, device=D)
        for _ in range(1500):
            x = x * 1.0
        x.sqrt()

    with ulpscope.nan_tracker(on_device=True) as tracker:
        threads = [threading.Thread(target=work, args=(i == 1,)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert tracker.error is None and [b.op for b in tracker.births()] == ["aten::sqrt"]
    assert tracker.n_calls > 4500
