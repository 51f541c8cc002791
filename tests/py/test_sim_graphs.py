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
