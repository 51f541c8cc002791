# SPDX-License-Identifier: Apache-2.0
"""What `ulpscope.watch` looks at beside sums: products held to their checksums, micro-batches computed again, the last
calls kept."""

import pytest
import torch
from test_watch import FLIP, training
from torch import nn

import ulpscope
import ulpscope.sim
from ulpscope import _core
from ulpscope.watching import watch_matmul


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("mean", [0.0, 1.0])
def test_the_bound_of_a_checksum_holds_and_is_near(dtype, mean):
    """No row of clean products is near it, an element that is off by some of the largest is beyond, and
    computing it again says so, but not of what overflows, or of operands that are not finite."""
    for seed in range(10):
        torch.manual_seed(seed)
        x = (torch.randn(64, 512) + mean).to(dtype)
        weight, bias = (torch.randn(300, 512) * 0.05).to(dtype), torch.randn(300).to(dtype)
        y = nn.functional.linear(x, weight, bias)
        product = watch_matmul.WatchedProduct(x, weight, bias, y)
        sums = product.sums()
        assert sums.shape == (64, 2, 4)
        assert _core.product_over(sums, product.dtype, 512)[0] < 0.8
        assert watch_matmul.verdict(product, sums)[1] == 0
    was = y[3, 299].clone()
    for wrong in (y[3, 299] + (3 + mean * 20) * y.abs().max(), float("inf"), float("nan")):
        y[3, 299] = wrong
        over, how = watch_matmul.verdict(product, product.sums())
        assert over > 1 and how == 1
    y[3, 299] = was
    x[5, 7], y[5] = float("inf"), float("nan")
    assert watch_matmul.verdict(product, product.sums())[0] < 0.8


def test_a_product_that_overflows_is_no_fault():
    x, weight = torch.full((4, 64), 200.0).half(), torch.full((8, 64), 200.0).half()
    product = watch_matmul.WatchedProduct(x, weight, None, nn.functional.linear(x, weight))
    sums = product.sums()
    assert _core.product_over(sums, "float16", 64)[0] == float("inf")  # suspected,
    assert watch_matmul.verdict(product, sums) == (0.0, 0)  # and taken back


def test_asd_checksum_is_that_of_the_document():
    torch.manual_seed(0)
    a, b = torch.randn(32, 64).bfloat16(), torch.randn(64, 48).bfloat16()
    c = a @ b
    assert watch_matmul.asd_abnormal(a, b, c, torch.matmul) == 0
    c[3, 3] += 4096
    assert watch_matmul.asd_abnormal(a, b, c, torch.matmul) == 1


@pytest.mark.parametrize(
    "shapes",
    [
        ((32, 64), (64, 48)),
        ((3, 32, 64), (64, 48)),
        ((3, 32, 64), (3, 64, 48)),
        ((2, 1, 32, 64), (3, 64, 48)),
        ((64,), (64, 48)),
        ((64,), (3, 64, 48)),
    ],
)
def test_asd_checksum_takes_batches_and_vectors(shapes):
    torch.manual_seed(0)
    a, b = (torch.randn(shape).bfloat16() for shape in shapes)
    told = []
    held = watch_matmul.Matmuls(lambda *product: told.append(product))
    try:
        right = [a @ b, a.matmul(b), torch.matmul(a, b)]
    finally:
        held.remove()
    assert len(told) == 3 and all(torch.equal(c, right[0]) for c in right)
    assert torch.Tensor.__matmul__ == torch._C.TensorBase.__matmul__
    assert [float(watch_matmul.asd_abnormal(*product)) for product in told] == [0, 0, 0]
    told[0][2].view(-1)[5] += 4096
    assert watch_matmul.asd_abnormal(*told[0]) == 1


@pytest.mark.parametrize(("fault", "expected"), [("", []), ("aten::addmm:bit_flip:index=5:bit=29:nth=41", ["matmul"])])
def test_a_matmul_is_named(fault, expected):
    with ulpscope.sim.plant(fault):
        _, events, _ = training("sim:0", steps=24, matmul_every=1)
    assert [e.kind for e in events if e.kind == "matmul"] == expected
    assert all(e.tensor == "0.weight" and e.step == 20 for e in events if e.kind == "matmul")
    assert all("the matmul '0.weight'" in e.sentence and "a passing fault" in e.sentence for e in events[:1])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("length", [(), (4,)], ids=["2d", "3d"])
@pytest.mark.parametrize("product", ["input", "weight", None])
def test_a_matmul_of_the_backward_is_named(product, length, bias):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 16, bias=bias))
    at = {"input": -2, "weight": -1}.get(product)

    def harm(node):
        while node.name() not in ("AddmmBackward0", "MmBackward0"):
            node = node.next_functions[0][0]

        def wrong(into, out):
            changed = list(into)
            changed[at] = into[at].clone()
            changed[at][3, 5] += 100 * into[at].abs().max()
            return tuple(changed)

        node.register_hook(wrong)

    if product:  # before the hooks of the watch
        net[1].register_forward_hook(lambda module, args, result: harm(result.grad_fn) if w.step == 3 else None)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    w = ulpscope.watch(net, optimizer, matmul_every=1)
    for _ in range(6):
        net(torch.randn(8, *length, 16)).pow(2).mean().backward()
        optimizer.step()
    w.close()
    said = [(e.step, e.tensor, e.sentence.split(" '")[0]) for e in w.events()]
    assert w.error is None
    assert said == ([(3, "1.weight", f"the gradient of the {product} of the matmul")] if product else [])


@pytest.mark.parametrize("how", ["functional", "spectral_norm"])
def test_a_matmul_of_other_weights_is_held_to_those_or_left_alone(how):
    """Weights that a call is given go away before its backward; a parametrization has a state of its own."""

    def train(watched, wrong=False):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 16))
        if how == "spectral_norm":
            nn.utils.parametrizations.spectral_norm(net[1])
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
        w = ulpscope.watch(net, optimizer, matmul_every=1) if watched else None
        if wrong:
            net[1].register_forward_hook(lambda module, args, out: out.detach().view(-1)[3].add_(1) and None)
            w.matmuls.handles.append(net[1].register_forward_hook(w.matmuls._after))
        for _ in range(5):
            x = torch.randn(8, 16, requires_grad=True)
            if how == "functional":
                other = {name: (p * 2 + 1).detach().requires_grad_() for name, p in net.named_parameters()}
                torch.func.functional_call(net, other, x).pow(2).mean().backward()
            net(x).pow(2).mean().backward()
            optimizer.step()
        if w is not None:
            w.close()
        return [p.detach() for p in (*net.parameters(), *net.buffers())], w

    with_it, w = train(True)
    assert (w.error, w.events()) == (None, [])
    assert all(torch.equal(a, b) for a, b in zip(train(False)[0], with_it))
    if how == "functional":
        assert {e.kind for e in train(True, wrong=True)[1].events()} >= {"matmul"}


class Audited(nn.Module):
    """Dropout and running statistics; `harm` may change what lies between."""

    def __init__(self, harm):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Linear(32, 4)
        self.harm = harm

    def forward(self, x):
        x = nn.functional.dropout(self.norm(self.first(x)), 0.2)
        return {"y": self.last(self.harm(x))}


def audited(harm=lambda x: x, micro=2, device="cpu", **options):
    """(everything that training leaves behind, the watch) of ten steps."""
    torch.manual_seed(3)
    net = Audited(harm).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    with ulpscope.watch(net, optimizer, **options) as w:
        for _ in range(10):
            for _ in range(micro):
                x = torch.randn(8, 16).to(device)
                net(x)["y"].pow(2).mean().backward()
                x.zero_()  # the program's own again
            optimizer.step()
            optimizer.zero_grad()
    left = [t.detach().cpu() for t in (*net.parameters(), *net.buffers(), torch.rand(3), torch.rand(1, device=device))]
    return left, w


@pytest.mark.parametrize("device", ["cpu", "sim:0"])
@pytest.mark.parametrize("micro", [1, 2])
def test_an_audit_changes_nothing_and_is_quiet(device, micro, capfd):
    without, _ = audited(micro=micro, device=device)
    with_it, w = audited(micro=micro, device=device, audit=2)
    assert (w.error, w.events(), w.audit.off) == (None, [], None)
    assert w.audit.n_audited == 10 * micro // 2
    assert all(torch.equal(a, b) for a, b in zip(without, with_it))


@pytest.mark.parametrize("when", ["first", "again"])
def test_an_audit_tells_a_passing_fault_from_kernels_that_are_not_deterministic(when, capfd):
    """One run of three that differs is a fault, whichever it is; three that differ are none."""
    calls = []

    def once(x):
        calls.append(x)
        return x * 1.0001 if len(calls) == {"first": 10, "again": 11}[when] else x

    _, w = audited(once, micro=1, audit=10)
    events = w.events()
    assert {(e.kind, e.step, e.rank) for e in events} == {("replay", 9, 0)} and "a passing fault" in events[0].sentence
    assert any(e.tensor == "last.weight" for e in events) and w.audit.off is None
    _, w = audited(lambda x: x * (1 + len(calls) * 1e-3 if calls.append(x) is None else 0), micro=1, audit=5)
    assert w.events() == [] and w.error is None and "not deterministic" in w.audit.off
    calls.clear()  # and three that differ where it was deterministic before
    _, w = audited(
        lambda x: calls.append(x) or x * (1 + 1e-3 * (len(calls) in range(15, 18)) * len(calls)), micro=1, audit=1
    )
    assert {(e.step, "comes and goes" in e.sentence) for e in w.events()} == {(7, True)} and w.audit.off is None
    assert capfd.readouterr().err.count("audits no micro-batch any more") == 1


def test_the_last_calls_become_a_trace(tmp_path):
    _, events, _ = training(fault=FLIP, keep_calls=40, output=tmp_path / "last")
    assert events[0].command == f"ulpscope check {tmp_path / 'last'} --device DEVICE"
    with _core.Trace(tmp_path / "last") as trace:
        assert len(trace.select()) == 40
