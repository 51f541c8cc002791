# SPDX-License-Identifier: Apache-2.0
"""`modules=` of the modes that compute another way: calls of the modules that are meant, forward
and backward, have the CPU's bits, all others those of the device."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import ulpscope
import ulpscope.sim


class Siblings(torch.nn.Module):
    """Two of one class, whose numbers have nothing to do with each other's."""

    def __init__(self):
        super().__init__()
        self.one = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU())
        self.two = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU())

    def forward(self, x, again):
        def call(m):
            return checkpoint(m, x, use_reentrant=False) if again else m(x)

        return call(self.one), call(self.two)


def siblings(device, again=False):
    """Result and gradient of each, of two steps; `again`: forward runs once more in backward."""
    torch.manual_seed(0)
    net, x, d = Siblings().to(device), torch.randn(8, 16).to(device), torch.randn(8, 16).to(device)
    found = {"one": [], "two": []}
    for _ in range(2):
        net.zero_grad()
        one, two = net(x.requires_grad_(), again)
        ((one + two) * d).sum().backward()
        for name, y in (("one", one), ("two", two)):
            found[name] += [y.detach().cpu(), getattr(net, name)[0].weight.grad.cpu()]
    return found


@pytest.mark.parametrize("again", (False, True))
@pytest.mark.parametrize(
    ("modules", "taken"),
    [
        ("one", {"one"}),
        ("two", {"two"}),
        ("one.0", {"one"}),
        ("*.0", {"one", "two"}),
        ("one,two", {"one", "two"}),
        ("other", set()),
    ],
)
def test_of_two_of_one_class_the_one_that_is_meant(modules, taken, again):
    right = siblings("cpu", again)
    with ulpscope.sim.fault("aten::addmm,aten::mm", "bf16_output"):
        wrong = siblings("sim", again)
        with ulpscope.fallback("aten::addmm,aten::mm", modules=modules) as mode:
            mixed = siblings("sim", again)
    assert mode.error is None
    for name in ("one", "two"):
        wanted = right if name in taken else wrong
        assert all(torch.equal(a, b) for a, b in zip(mixed[name], wanted[name], strict=True)), name
        assert not any(torch.equal(a, b) for a, b in zip(right[name], wrong[name], strict=True))
    calls = {"aten::addmm": len(taken) * (4 if again else 2), "aten::mm": 4 * len(taken)}
    assert mode.n_calls == {op: n for op, n in calls.items() if n}


def test_no_module_is_meant_behind_one_that_raised():
    class Raises(torch.nn.Module):
        def forward(self, x):
            raise KeyError("the program's own")

    net = torch.nn.ModuleDict({"bad": Raises()})
    net.forward = lambda x: net["bad"](x)
    a = torch.randn(4, 4, device="sim")
    with ulpscope.fallback("aten::mm", modules="bad") as mode:
        with pytest.raises(KeyError):
            net(a)
        a @ a
    assert mode.n_calls == {} and mode.error is None
