# SPDX-License-Identifier: Apache-2.0
"""What torch itself loses between the steps into which it takes an operator apart is no fault of
the device; a wrong step among them is."""

import pytest
import torch
from calls import make_call

import ulpscope.sim as sim
from ulpscope.executors.device import TorchDevice
from ulpscope.session.judging import judge_call
from ulpscope.calls.mode import Mode
from ulpscope.judges import products


def randn(*sizes):
    torch.manual_seed(sum(sizes))
    return torch.randn(*sizes).bfloat16()


def linear():
    return "aten::linear", randn(24, 16, 32).transpose(0, 1), randn(96, 32), randn(96)


def attention():
    q, k, v = randn(2, 2, 24, 16), randn(2, 2, 24, 16) * 2, randn(2, 2, 24, 16)
    return "aten::scaled_dot_product_attention", q, k, v, None, 0.0, True


def einsum():
    return "aten::einsum", "ij,jk,kl->il", [randn(16, 24), randn(24, 48), randn(48, 12)]


def chain():
    return "aten::chain_matmul", [randn(16, 24), randn(24, 48), randn(48, 12)]


def loss():
    return "aten::cosine_similarity", randn(48, 64), randn(48, 64) + 1, 1, 1e-8


def overflow():
    """Probabilities as targets: torch divides by the number of rows what it has added up, which float16
    does not hold; the loss is 9,000."""
    torch.manual_seed(2)
    return "aten::cross_entropy_loss", (torch.randn(96, 64) * 90).half(), torch.rand(96, 64).half()


# Without AVX-512 torch adds up this product in another way, which is not known as its own yet.
AS_KNOWN = torch.ops.mkldnn._is_mkldnn_bf16_supported()
needs_it = pytest.mark.skipif(not AS_KNOWN, reason="the processor has no bfloat16 products of oneDNN")

CALLS = {f.__name__: f for f in (linear, attention, einsum, chain, loss, overflow)}


@pytest.mark.parametrize("name", [pytest.param(n, marks=needs_it if n == "linear" else ()) for n in CALLS])
def test_torchs_own_steps_pass(name):
    verdict = judge_call(make_call(*CALLS[name]()), TorchDevice("sim:0"), seconds=0)
    assert verdict.verdict == "pass", (verdict.reason, verdict.worst)


@needs_it
def test_it_is_said_and_counted():
    verdict = judge_call(make_call(*linear()), TorchDevice("sim:0"), seconds=0)
    assert "rounds between its own steps, as torch's decomposition does" in verdict.notes
    assert list(verdict.findings[0].excused) == ["own_steps"]


@pytest.mark.parametrize(
    "make, op, kind",
    [
        (linear, "aten::add_.Tensor", "scale"),
        (attention, "aten::bmm", "scale"),
        (chain, "aten::mm", "drop_tail"),
        (einsum, "aten::bmm", "scale"),
    ],
)
def test_a_faulty_step_is_flagged(make, op, kind):
    with sim.fault(op, kind):
        verdict = judge_call(make_call(*make()), TorchDevice("sim:0"), seconds=0)
    assert verdict.verdict in ("wrong", "reduced"), verdict.notes


class Sums(Mode):
    """Products that are summed in bfloat16."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func not in (torch.ops.aten.mm.default, torch.ops.aten.bmm.default):
            return func(*args, **(kwargs or {}))
        a, b = args
        total = 0
        for i in range(0, a.shape[-1], 4):
            total = func(a[..., i : i + 4], b[..., i : i + 4, :]) + total
        return total


class Infinite(Mode):
    """Sums that overflow below what float16 holds."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func is not torch.ops.aten.sum.default:
            return out
        return torch.where(out.abs() > 6e4, out * torch.inf, out)


@pytest.mark.parametrize("factor, verdict", [(0.96, "nonfinite"), (1.2, "pass")])
def test_a_step_that_overflows_early_is_flagged(factor, verdict):
    op, x, target = overflow()
    target = target / torch.nn.functional.cross_entropy(x.double(), target.double(), reduction="sum")
    target = (target.double() * 65504 * factor).half()
    device = TorchDevice("sim:0")

    def run(call):
        with Infinite():
            return TorchDevice.run(device, call)

    device.run = run
    assert judge_call(make_call(op, x, target), device, seconds=0).verdict == verdict


@pytest.mark.parametrize("name", ["linear", "einsum", "chain"])
def test_a_wrong_step_is_flagged(name):
    device = TorchDevice("sim:0")

    def run(call):
        with Sums():
            return TorchDevice.run(device, call)

    device.run = run
    verdict = judge_call(make_call(*CALLS[name]()), device, seconds=0)
    assert verdict.verdict in ("wrong", "reduced"), verdict.notes


@needs_it
def test_rows_of_a_large_product_have_their_own_steps(monkeypatch):
    """Judged on a sample of its rows, whose steps are those of the whole call."""
    monkeypatch.setattr(products, "WORK", 1 << 10)
    monkeypatch.setattr(products, "FEWEST", 8)
    verdict = judge_call(make_call(*linear()), TorchDevice("sim:0"), seconds=0)
    assert verdict.part is not None and verdict.verdict == "pass", (verdict.reason, verdict.worst)
    assert verdict.findings[0].excused["own_steps"] > 0
    device = TorchDevice("sim:0")

    def run(call):
        with Sums():
            return TorchDevice.run(device, call)

    device.run = run
    assert judge_call(make_call(*linear()), device, seconds=0).verdict in ("wrong", "reduced")
