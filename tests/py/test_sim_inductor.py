# SPDX-License-Identifier: Apache-2.0
"""torch.compile on the simulated device: Inductor's kernels there compute what Inductor's on the CPU compute."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

sim = pytest.importorskip("ulpscope.sim", exc_type=OSError)


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def many(a, b):
    """Loops, reductions, products, views, indices and an in-place write."""
    c = nn.functional.gelu(a @ b + 1) * 2
    d = (a.sum(1) + b.mean(0)).softmax(0)
    e = a.t().contiguous()[torch.arange(4, device=a.device)].clone()
    e += d
    return c, d, e, (c > 0).sum(), torch.cat([c, e]).var(0)


def compiled(f):
    torch._dynamo.reset()
    return torch.compile(f)


def trained(net, x, device, n=3):
    net = copy.deepcopy(net).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    step = compiled(net)
    torch.manual_seed(1)
    losses = []
    for _ in range(n):
        optimizer.zero_grad()
        loss = step(x.to(device)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.detach().cpu() for p in net.parameters()]


def test_kernels_and_training_are_those_of_the_cpu():
    a, b = draw(8, 8), draw(8, 8, seed=1)
    wanted = compiled(many)(a, b)
    sim.set_guard("strict")
    given = compiled(many)(a.to("sim:1"), b.to("sim:1"))
    assert {t.device for t in given} == {torch.device("sim:1")}
    assert all(torch.equal(x.cpu(), y) for x, y in zip(given, wanted))

    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Dropout(0.25), nn.Linear(16, 4), nn.Softmax(-1)
    )
    (losses, weights), (theirs, others) = trained(net, a, "sim"), trained(net, a, "cpu")
    assert losses == theirs and len(set(losses)) == len(losses)
    assert all(torch.equal(x, y) for x, y in zip(weights, others))


def test_kernels_wait_for_their_stream_and_open_their_own_arguments():
    f = compiled(lambda x, y: torch.sin(x) + torch.cos(y))
    x, y = draw(64), draw(64, seed=1)
    wanted = f(x, y)
    f(x.to("sim"), y.to("sim"))
    with sim.schedule(3, delay=1.0):
        there = x.to("sim") + 1  # held back until somebody waits
        given = f(there - 1, y.to("sim"))
    assert torch.equal(given.cpu(), f(x + 1 - 1, y)) and wanted.shape == given.shape


def test_a_convolution_lies_as_it_was_foretold():
    """Inference, for which Inductor takes channels last; fake tensors say what the CPU's kernels give."""
    from torch._subclasses import FakeTensorMode

    conv = torch.nn.Conv2d(3, 4, 3).eval()
    x, last = draw(2, 3, 8, 8), draw(2, 3, 8, 8).to(memory_format=torch.channels_last)
    with torch.no_grad():
        wanted = [torch.compile(conv, dynamic=False)(x), torch.compile(conv, dynamic=False)(last)]
        on_sim = torch.compile(conv.to("sim"), dynamic=False)
        for given, right in zip((x, last), wanted):
            assert torch.equal(on_sim(given.to("sim")).cpu(), right)
        for given in (x, last):
            there = torch.conv2d(given.to("sim"), conv.weight)
            with FakeTensorMode(allow_non_fake_inputs=True) as mode:
                fakes = [mode.from_tensor(t) for t in (given.to("sim"), conv.weight)]
                assert torch.conv2d(*fakes).stride() == there.stride()


def test_what_is_not_there_is_refused():
    from torch._inductor import config

    with config.patch(cpp_wrapper=True), pytest.raises(Exception, match="wrapper in C"):
        compiled(lambda x: x * 2 + 1)(draw(3).to("sim"))
    f = compiled(lambda x, y: x + y)
    with pytest.raises(Exception, match="same device|device"):
        f(draw(3).to("sim:0"), draw(3).to("sim:1"))
