# SPDX-License-Identifier: Apache-2.0
"""What torch itself loses between the steps into which it takes an operator apart is no fault of
the device; a wrong step among them is."""

import pytest
import torch
from calls import make_call

import ulpscope
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


# ---- what is within an ulp of each step and still wrong ----------------------------------


def nan_mean():
    """Its noisy runs write a mask in place: each on a copy of its own."""
    return torch.ops.aten.nanmean.default, (randn(5, 5, 5),)


FLAT = {
    "layer_norm": (torch.ops.aten.layer_norm.default, (randn(100, 300), [300])),
    "softmax": (torch.ops.aten.softmax.int, (randn(100, 30), -1)),
    "var": (torch.ops.aten.var.dim, (randn(100, 300), [-1])),
    "matmul": (torch.ops.aten.matmul.default, (randn(100, 30), randn(30, 60))),
    "linear": (torch.ops.aten.linear.default, (randn(64, 128), randn(96, 128), randn(96))),
    "cosine": (torch.ops.aten.cosine_similarity.default, (randn(148, 64), randn(148, 64) + 1, 1, 1e-8)),
}


def ulps_of(x, dtype):
    return torch.ldexp(torch.ones_like(x), torch.frexp(x).exponent - (8 if dtype == torch.bfloat16 else 11))


def off_by(right, dtype, how):
    """The truth but for one share, its digits cut off, or one ulp to chance sides at chance places."""
    if isinstance(how, float):
        return right * (1 + how * (1 if dtype == torch.bfloat16 else 0.125))
    nearest, ulp = right.to(dtype).double(), ulps_of(right, dtype)
    if how == "cut":
        return torch.where(nearest.abs() > right.abs(), nearest - right.sign() * ulp, nearest)
    torch.manual_seed(5)
    chance = torch.rand(right.shape)
    return torch.where(chance < 0.3, nearest + (chance < 0.15).double().sub(0.5).mul(2) * ulp, nearest)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", FLAT)
def test_an_ulp_is_free_nowhere(name, dtype):
    """Where the steps lose nothing between them (most of these) the nearest number is right, and where they do
    what is off leans to no side."""
    op, args = FLAT[name]
    args = [a.to(dtype) if isinstance(a, torch.Tensor) else a for a in args]
    right = op(*[a.double() if isinstance(a, torch.Tensor) else a for a in args])
    for how in (0.0033, -0.0015, "cut", "chance"):
        verdict = ulpscope.judge_call(op, args, outputs=off_by(right, dtype, how).to(dtype), cause=False)
        assert verdict.verdict in ("wrong", "reduced"), (how, str(verdict))
    assert ulpscope.judge_call(op, args, outputs=right.to(dtype), cause=False).verdict == "pass"


@pytest.mark.parametrize("factor, verdict", [(1.0, "pass"), (2.0, "wrong"), (1.25, "wrong")])
def test_a_run_without_a_number_frees_nothing(factor, verdict):
    op, args = nan_mean()
    found = ulpscope.judge_call(op, args, outputs=(op(*args).double() * factor).bfloat16(), cause=False)
    assert found.verdict == verdict, str(found)
