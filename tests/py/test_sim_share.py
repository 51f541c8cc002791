# SPDX-License-Identifier: Apache-2.0
"""Tensors of the simulated device in several processes: what is sent is held by all, and gone with the last."""

from __future__ import annotations

import os
import resource
import signal

import pytest
import torch
import torch.multiprocessing as mp
from share_child import send_and_leave, serve
from torch import nn

sim = pytest.importorskip("ulpscope.sim", exc_type=OSError)
SPAWN = mp.get_context("spawn")


class Child:
    def __init__(self):
        self.orders, self.answers = SPAWN.Queue(), SPAWN.Queue()
        self.process = SPAWN.Process(target=serve, args=(self.orders, self.answers))
        self.process.start()

    def ask(self, order, tensor=None):
        self.orders.put((order, tensor))
        return self.answers.get(timeout=120)

    def end(self, order="end"):
        self.orders.put((order, None))
        self.process.join(120)
        return self.process.exitcode


@pytest.fixture(scope="module")
def child():
    one = Child()
    yield one
    assert one.end() == 0


def count(*shape, device="sim:0"):
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32, device=device).view(shape)


SENT = {
    "plain": lambda: count(3, 4),
    "a view": lambda: count(3, 4).t()[1:],
    "a parameter of the other device": lambda: nn.Parameter(count(3, device="sim:1")),
    "frozen": lambda: nn.Parameter(count(3), requires_grad=False),
    "nothing in it": lambda: count(0),
    "of no dimension": lambda: torch.tensor(3.0, device="sim"),
    "integers": lambda: torch.arange(5, device="sim"),
    "narrow": lambda: count(7).bfloat16(),
    "large": lambda: count(3, 1 << 18),
    "sparse": lambda: torch.eye(3, device="sim").to_sparse(),
    "compressed": lambda: torch.eye(3, device="sim").to_sparse_csr(),
}


@pytest.mark.parametrize("guard", ["strict", "pages", "open"])
def test_what_comes_is_what_was_sent(child, guard):
    sim.set_guard(guard)
    try:
        for name, make in SENT.items():
            if guard != "strict" and name in ("sparse", "compressed", "frozen"):
                continue
            t = make()
            told = child.ask("tell", t)
            dense = t.detach().to_dense() if t.layout != torch.strided else t.detach()
            assert told == (dense.cpu().tolist(), str(t.device), type(t).__name__, t.requires_grad), name
    finally:
        sim.set_guard("strict")


def test_what_either_writes_both_have(child):
    x = count(2, 3)
    view = x[1]
    assert child.ask("add-one", x)[0] == [[1, 2, 3], [4, 5, 6]]
    assert x.tolist() == [[1, 2, 3], [4, 5, 6]] and view.tolist() == [4, 5, 6]  # what is seen of it moved along
    x.mul_(2)
    assert child.ask("tell", view)[0] == [8, 10, 12]


def test_what_comes_back_is_the_same_memory(child):
    x = count(4)
    back = child.ask("send-back", x)
    assert back.data_ptr() == x.data_ptr()
    back.zero_()
    assert x.tolist() == [0, 0, 0, 0]


def test_a_kernel_that_has_yet_to_run_has_run(child):
    with torch.sim.stream(torch.sim.Stream()):
        a = torch.full((300, 300), 2.0, device="sim")
        for _ in range(5):
            a = (a @ a) / 600
        assert set(sum(child.ask("tell", a)[0], [])) == {2.0}


def test_the_receiver_keeps_what_the_sender_frees(child):
    x = count(3)
    child.ask("keep", x)
    at, held = x.data_ptr(), sim.memory_reserved()
    del x
    fresh = [torch.full((3,), 9.0, device="sim") for _ in range(4)]
    assert child.ask("tell-kept")[0] == [0, 1, 2], [t.data_ptr() == at for t in fresh]
    del fresh
    assert sim.memory_reserved() <= held + 4 * 4096


def test_memory_is_given_back(child):
    before, n_files = sim.memory_reserved(), len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        child.ask("tell", count(1 << 18))
    torch.empty(1, device="sim")
    assert sim.memory_reserved() - before < 2 << 20
    assert len(os.listdir("/proc/self/fd")) <= n_files + 2


def test_a_module_and_its_optimizer_are_shared(child):
    model = nn.Linear(2, 2).to("sim").share_memory()
    child.ask("add-one", model.weight)
    before = model.weight.detach().cpu()
    model(torch.ones(1, 2, device="sim")).sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.5).step()
    assert child.ask("tell", model.weight)[0] == (before - 0.5).tolist()


def test_a_receiver_that_dies_takes_nothing_along():
    x, one = count(3), Child()
    assert one.ask("add-one", x)[0] == [1, 2, 3]
    assert one.end("die") == 3
    assert x.add_(1).tolist() == [2, 3, 4]


@pytest.mark.parametrize("wait", [True, False])
def test_a_sender_that_dies(wait):
    """What was received before stays; what was not is a sentence."""
    mine, its = SPAWN.Pipe()
    one = SPAWN.Process(target=send_and_leave, args=(its, wait))
    one.start()
    its.close()
    if wait:
        x = mine.recv()
        mine.send("go")
    one.join(120)
    if not wait:
        with pytest.raises(RuntimeError, match="sent this tensor has ended before it was received; keep it until"):
            mine.recv()
        return
    assert one.exitcode == 0
    assert x.add_(1).tolist() == [6, 6, 6]


def pickled(t):
    from multiprocessing.reduction import ForkingPickler

    return bytes(ForkingPickler.dumps(t))


def test_what_cannot_be_sent_says_why():
    x = count(3)
    graph = sim.SimGraph()
    with sim.graph(graph):
        y = x + 1
    for t in (x, y):
        with pytest.raises(RuntimeError, match="a graph holds its memory.*send tensor.clone"):
            pickled(t)
    pickled(x.clone())
    graph.reset()
    pickled(x)
    with pytest.raises(RuntimeError, match="doesn't support serializing requires_grad|non-leaf"):
        pickled(count(3).requires_grad_() * 2)


def test_no_shared_memory_is_a_sentence():
    x = count(1 << 16)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        with pytest.raises(RuntimeError, match=r"sim: \d+ bytes of shared memory: .*; free memory or open files"):
            pickled(x)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert x[-1].item() == (1 << 16) - 1  # and it is where it was
    pickled(x)


def test_copies_between_devices():
    assert sim.can_device_access_peer(0, 1)
    x = count(3, 5)
    y = x.t().to("sim:1")
    assert y.device.index == 1 and torch.equal(y.cpu(), x.t().cpu())
    with torch.sim.device(1):
        z = torch.empty_like(x)
        z.copy_(y.t(), non_blocking=True)
        torch.sim.synchronize(1)
        torch.sim.synchronize(0)
    assert torch.equal(z, x)
