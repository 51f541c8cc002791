# SPDX-License-Identifier: Apache-2.0
"""Loops as programs have them, watched: none of them is an alarm, none ends the watch, and a fault that is
planted into them is seen."""

import contextlib
import math
import time

import pytest
import torch
from torch import nn

import ulpscope

STEPS = 30


def net():
    return nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16))


class Loop:
    """A training whose parts a case may replace; `each` is called before the optimizer steps."""

    config = ""

    def __init__(self):
        torch.manual_seed(0)
        self.model = net()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def loss(self, i):
        return self.model(torch.randn(8, 16)).pow(2).mean()

    def step(self, i, harm):
        self.loss(i).backward()
        harm()
        self.optimizer.step()
        self.optimizer.zero_grad()


class Scaler(Loop):
    """A loss scaler that grows every fifth step; gradients are unscaled before the optimizer steps."""

    def __init__(self):
        super().__init__()
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=5)

    def step(self, i, harm):
        self.scaler.scale(self.loss(i)).backward()
        harm()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()


class Overflowing(Scaler):
    """One that grows until a step overflows, is left out, and halves."""

    config = "loss_scaling:true"

    def loss(self, i):
        return super().loss(i) * (math.inf if i in (6, 13) else 1.0)


class LossScale(Loop):
    """Another factor on the loss each ten steps, which the optimizer does not notice."""

    def loss(self, i):
        return super().loss(i) * 2.0 ** (i // 10 * 3)


class Compiled(Loop):
    """torch.compile, without its code generator."""

    def __init__(self):
        super().__init__()
        self.inner, self.model = self.model, torch.compile(self.model, backend="aot_eager")


class Pipeline(Loop):
    """Four micro-batches, forwards first, backwards in turn, through stages that are cut apart."""

    def step(self, i, harm):
        kept = []
        for _ in range(4):
            x = self.model[1](self.model[0](torch.randn(4, 16)))
            cut = x.detach().requires_grad_()
            kept.append((x, cut, self.model[2](cut).pow(2).mean() / 4))
        for x, cut, loss in kept:
            loss.backward()
            x.backward(cut.grad)
        harm()
        self.optimizer.step()
        self.optimizer.zero_grad()


class Closure(Loop):
    """An optimizer that computes gradients itself."""

    def __init__(self):
        super().__init__()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-2)

    def step(self, i, harm):
        def closure():
            self.optimizer.zero_grad(set_to_none=False)
            loss = self.loss(i)
            loss.backward()
            harm()
            return loss

        self.optimizer.step(closure)


class Replaced(Loop):
    """A parameter that gets another shape in the middle."""

    def step(self, i, harm):
        if i == 15:
            with torch.no_grad():
                for p, shape in (
                    (self.model[0].weight, (48, 16)),
                    (self.model[0].bias, (48,)),
                    (self.model[2].weight, (16, 48)),
                ):
                    p.data = torch.randn(shape) * 0.1
                    p.grad = None
                    self.optimizer.state.pop(p, None)
        super().step(i, harm)


@contextlib.contextmanager
def no_clock(monkeypatch):
    yield


@contextlib.contextmanager
def clock_jumps(monkeypatch):
    """The wall's clock goes to 1970 and back; the watch's is monotonic."""
    with monkeypatch.context() as m:
        told = iter(range(10**9))
        m.setattr(time, "time", lambda: 1e9 * (next(told) % 2))
        yield


CASES = [(c, no_clock) for c in (Loop, Scaler, Overflowing, LossScale, Compiled, Pipeline, Closure, Replaced)]
CASES.append((Loop, clock_jumps))


@pytest.mark.parametrize("options", [{}, {"weights_every": 1, "matmul_every": 1, "audit": 3}], ids=["default", "all"])
@pytest.mark.parametrize(("case", "clock"), CASES, ids=[f"{c.__name__}-{k.__name__}" for c, k in CASES])
def test_a_loop_is_watched(case, clock, options, monkeypatch):
    for harmed in (False, True):
        loop = case()
        parameter = getattr(loop, "inner", loop.model)[2].weight
        with clock(monkeypatch), ulpscope.watch(loop.model, loop.optimizer, case.config, **options) as w:
            for i in range(STEPS):

                def harm(i=i, harmed=harmed, parameter=parameter):
                    if harmed and i == STEPS - 2:
                        parameter.grad.view(-1)[7] *= 2.0**60

                loop.step(i, harm)
        assert w.error is None
        said = [e.sentence for e in w.events()]
        assert bool(said) == harmed, said
        assert not harmed or any("2.weight" in s for s in said), said
