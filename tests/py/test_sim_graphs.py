# SPDX-License-Identifier: Apache-2.0
"""Graphs of the simulated device: what is captured does not run, and a replay is what the program would have done."""

from __future__ import annotations

import pytest
import torch
from torch import nn

sim = pytest.importorskip("ulpscope.sim", exc_type=OSError)


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.out = nn.Linear(4 * 36, 5)
        self.last = nn.LayerNorm(5)

    def forward(self, x):
        x = torch.relu(self.norm(self.convolution(x)))
        return self.last(nn.functional.dropout(self.out(x.flatten(1)), 0.25))


def trained(device, with_graph, n=4):
    torch.manual_seed(3)
    net = Net().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(4)
    images = torch.zeros(2, 3, 6, 6, device=device)
    losses = []

    def step():
        optimizer.zero_grad(set_to_none=False)
        loss = net(images).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    images.copy_(draw(2, 3, 6, 6))
    losses.append(step().item())  # the optimizer makes what it keeps
    if with_graph:
        graph = sim.SimGraph()
        with sim.graph(graph):
            loss = step()
        assert len(graph) > 20
    for i in range(1, n):
        images.copy_(draw(2, 3, 6, 6, seed=i))
        if with_graph:
            graph.replay()
        else:
            loss = step()
        losses.append(loss.item())
    return losses, [p.detach().cpu() for p in net.state_dict().values()]


@pytest.mark.parametrize("in_step", [False, True], ids=["later", "in step"])
def test_training_by_replays_is_training(in_step):
    before = sim.launch_blocking()
    sim.set_launch_blocking(in_step)
    try:
        (losses, weights), (wanted, theirs) = trained("sim", True), trained("sim", False)
    finally:
        sim.set_launch_blocking(before)
    assert losses == wanted and len(set(losses)) == len(losses)
    assert all(torch.equal(a, b) for a, b in zip(weights, theirs))


def test_a_capture_runs_nothing_and_keeps_its_memory():
    x, graph = torch.ones(4, device="sim"), sim.SimGraph()
    with sim.graph(graph):
        assert sim.is_current_stream_capturing()
        y = x * 2
        x.add_(1)
        del y
        z = x + 0.5
    assert not sim.is_current_stream_capturing()
    assert x.tolist() == [1.0] * 4
    other = torch.full((4,), 9.0, device="sim")  # not in what was y
    for _ in range(2):
        graph.replay()
    assert x.tolist() == [3.0] * 4 and z.tolist() == [3.5] * 4 and other.tolist() == [9.0] * 4
    before = sim.memory_allocated()
    graph.reset()
    assert sim.memory_allocated() < before
    with pytest.raises(RuntimeError, match="captured before it is replayed"):
        graph.replay()


def test_streams_join_and_numbers_are_drawn_anew():
    x, side, graph = torch.ones(3, device="sim"), sim.Stream(), sim.SimGraph()
    here = torch.empty(3, pin_memory=True)
    with sim.graph(graph):
        side.wait_stream(sim.current_stream())
        with sim.stream(side):
            y = x * 3
        sim.current_stream().wait_stream(side)
        drawn = torch.rand(3, device="sim") + y
        here.copy_(drawn, non_blocking=True)
    seen = []
    for _ in range(2):
        torch.manual_seed(5 + len(seen))
        graph.replay()
        sim.synchronize()
        seen.append(here.clone())
        torch.manual_seed(4 + len(seen))
        assert torch.equal(seen[-1], torch.rand(3) + 3)
    assert not torch.equal(*seen)


BAD = {
    "item": (lambda x: x.sum().item(), "cannot be captured|being captured"),
    "a shape by values": (lambda x: x.nonzero(), "cannot be captured: it runs when it is called"),
    "a blocking copy": (lambda x: x.cpu(), "pinned memory"),
    "ordinary memory": (lambda x: x.copy_(torch.ones(3)), "pinned memory"),
    "a wait": (lambda x: sim.synchronize(), "is being captured"),
    "within another": (lambda x: sim.SimGraph().capture_begin(), "captured already"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_captured_is_refused(name):
    act, said = BAD[name]
    x, graph = torch.ones(3, device="sim"), sim.SimGraph()
    with pytest.raises(RuntimeError, match=said), sim.graph(graph):
        act(x)
    assert (x + 1).tolist() == [2.0] * 3


def test_captures_that_do_not_begin_or_end():
    graph = sim.SimGraph()
    with pytest.raises(RuntimeError, match="default stream"):
        graph.capture_begin()
    with pytest.raises(RuntimeError, match="no capture of this graph"):
        graph.capture_end()
    with sim.graph(graph):
        torch.ones(2, device="sim")
    with pytest.raises(RuntimeError, match="reset"), sim.graph(graph):
        pass
    with sim.fault("aten::mul", "scale", factor=2), pytest.raises(RuntimeError, match="cannot be captured"):
        with sim.graph(sim.SimGraph()):
            torch.ones(2, device="sim") * 3


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Dropout(0.5), nn.LayerNorm(16))
        self.frozen = nn.Parameter(torch.ones(16), requires_grad=False)

    def forward(self, x, y):
        return {"a": self.inner(x) * self.frozen, "b": y.sum()}


def steps(graphed):
    torch.manual_seed(0)
    head, tail = Head().to("sim"), nn.Linear(16, 3).to("sim")
    optimizer = torch.optim.SGD([*head.parameters(), *tail.parameters()], lr=0.1)
    if graphed:
        x, y = draw(4, 6).to("sim").requires_grad_(), draw(4).to("sim")
        head, tail = sim.make_graphed_callables((head, tail), ((x, y), (draw(4, 16).to("sim").requires_grad_(),)))
    torch.manual_seed(1)
    told = []
    for i in range(4):
        x = draw(4, 6, seed=i).to("sim").requires_grad_()
        out = head(x, draw(4, seed=i).to("sim"))
        loss = tail(out["a"]).square().mean() + out["b"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        told += [loss.item(), x.grad.cpu()]
    head.eval()
    told.append(head(draw(4, 6).to("sim"), draw(4).to("sim"))["a"].detach().cpu())
    return told + [p.detach().cpu() for p in tail.parameters()]


def test_graphed_callables_train_as_they_are():
    """Forward and backward are replayed, a mode that was not captured runs as it is."""
    for a, b in zip(steps(True), steps(False)):  # noqa: B905
        assert a == b if isinstance(a, float) else torch.equal(a, b)


def test_graphed_callables_refuse_what_they_cannot_replay():
    f = sim.make_graphed_callables(lambda x: x * 2 + 1, (torch.ones(3, device="sim"),))
    assert f(torch.arange(3.0, device="sim")).tolist() == [1, 3, 5]
    x = torch.ones(3, device="sim", requires_grad=True)
    with pytest.raises(RuntimeError, match="not have been used in the graph"):
        sim.make_graphed_callables(lambda x, y: x * 2, ((x, x.detach().clone().requires_grad_())))
    g = sim.make_graphed_callables(lambda x, y: x * 2, (x, torch.ones(3, device="sim", requires_grad=True)), 3, True)
    y = torch.ones(3, device="sim", requires_grad=True)
    g(y, y).sum().backward()
    assert y.grad.tolist() == [2, 2, 2]
    with pytest.raises(TypeError, match="tensors alone"):
        sim.make_graphed_callables(lambda x, n: x * n, (x, 3))
