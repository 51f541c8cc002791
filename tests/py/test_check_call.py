# SPDX-License-Identifier: Apache-2.0
"""check_call and assert_accurate: a kernel beside its definition, its gradients on demand, formulas that may lose
what float32 loses; references of one's own; kernels that do not answer alike each time."""

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from test_judge_api import OTHER_ORDERS, bf16, randn, rms_norm, rounded_norm, seeded  # noqa: F401

import ulpscope
from ulpscope import testing


def narrow_inside(x, weight):
    return rounded_norm(x, weight, centred=False)


def test_check_call_with_a_reference():
    x, weight = randn(16, 80), randn(80)
    good = ulpscope.check_call(OTHER_ORDERS["rms_norm"], (x, weight), reference=rms_norm)
    assert good.verdict == "pass"
    assert ulpscope.check_call(narrow_inside, (x, weight), reference=rms_norm).verdict == "reduced"
    low = x.bfloat16(), weight.bfloat16()
    kernel = lambda x, w: rms_norm(x.float(), w.float()).bfloat16()  # noqa: E731
    assert ulpscope.check_call(kernel, low, reference=rms_norm).verdict == "pass"


class BadBackward(torch.autograd.Function):
    """exp whose gradient is computed in bfloat16."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        return bf16(g * bf16(ctx.saved_tensors[0]))


def test_check_call_brings_the_package_of_a_device_or_says_what_is_there():
    with pytest.raises(ValueError, match="device nosuch:0 is not there .*known here: cpu"):
        ulpscope.check_call(torch.exp, (randn(3),), device="nosuch:0")
    script = "import torch, ulpscope\nprint(ulpscope.check_call(torch.exp, (torch.ones(3),), device='sim:0').verdict)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "pass\n", done.stderr


def test_check_call_judges_gradients_on_demand():
    x = randn(200)
    forward = ulpscope.check_call(BadBackward.apply, (x,), reference=torch.exp)
    both = ulpscope.check_call(BadBackward.apply, (x,), reference=torch.exp, backward=True)
    assert (forward.verdict, both.verdict) == ("pass", "reduced")
    assert [o.verdict for o in both.outputs] == ["pass", "reduced"]
    good = ulpscope.check_call(torch.exp, (x,), backward=True)
    assert good.verdict == "pass" and len(good.outputs) == 2


def test_check_call_leaves_its_arguments_alone():
    x, y = randn(8), randn(8)
    kept = x.clone()
    assert ulpscope.check_call(torch.Tensor.add_, (x, y)).verdict == "pass"
    assert torch.equal(x, kept)
    late = ulpscope.check_call(lambda x, y: x.clone().add_(y), (x, y), reference=torch.Tensor.add_)
    assert late.verdict == "wrong" and "lost" in late.cause


def test_assert_accurate_says_what_is_wrong():
    x, weight = randn(16, 80), randn(80)
    assert testing.assert_accurate(rms_norm, None, x, weight, eps=1e-5).passed
    assert testing.assert_accurate(rms_norm, rms_norm, x, weight, backward=True).passed
    with pytest.raises(AssertionError) as caught:
        testing.assert_accurate(narrow_inside, rms_norm, x, weight)
    text = str(caught.value)
    assert "reduced" in text and "effective bits" in text and "cause: " in text
    assert "correct" in text and "at [" in text


def by_tanh(x):
    return 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))


def by_exp(x):
    inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1 + (1 - 2 / (torch.exp(2 * inner) + 1)))


def test_a_cancelling_formula_may_lose_what_float32_loses_nearby():
    x = torch.linspace(-9, 9, 4001)
    verdict = ulpscope.judge_call(by_tanh, (x,), {}, by_exp(x))
    assert verdict.verdict == "pass", verdict.sentence
    assert ulpscope.judge_call(by_tanh, (x,), {}, by_exp(x) + 1e-6).verdict != "pass"
    assert ulpscope.judge_call(by_tanh, (x,), {}, F.gelu(x)).verdict in ("wrong", "reduced")


def test_a_formula_may_lose_what_its_own_roundings_cost():
    x = torch.linspace(-9, 9, 4001)
    function = lambda x: 1 - x.tanh() ** 2  # noqa: E731
    ulp = 1 + (2 * torch.randint(0, 2, x.shape) - 1) * 2.0**-23
    verdict = ulpscope.judge_call(function, (x,), {}, 1 - (x.tanh() * ulp).clamp(-1, 1) ** 2)
    assert verdict.verdict == "pass", verdict.sentence
    verdict = ulpscope.judge_call(function, (x,), {}, 1 - bf16(x.tanh()) ** 2)
    assert verdict.verdict in ("wrong", "reduced")


# ---- operators with a reference of their own -----------------------------------------


def test_an_operator_is_held_to_what_was_registered_for_it(monkeypatch):
    """Its own kernel rounds inside, where nothing can be kept wide."""
    monkeypatch.setattr(ulpscope.executors.registered, "_registered", {})
    library = torch.library.Library("heldto", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: torch.from_numpy(x.numpy().astype("f2").astype("f4") * 2), "CPU")
    ulpscope.reference.register("heldto::twice")(lambda x: x * 2)
    x = randn(30, 30)
    for operator in (torch.ops.heldto.twice, torch.ops.heldto.twice.default):
        for found in (ulpscope.check_call(operator, (x,)), ulpscope.judge_call(operator, (x,), {}, operator(x))):
            assert found.verdict == "reduced" and "heldto::twice" in found.sentence
        assert ulpscope.judge_call(operator, (x,), {}, x * 2).passed


# ---- kernels that do not answer alike each time -------------------------------------


def test_a_kernel_that_is_wrong_now_and_then_does_not_pass():
    runs = []

    def now_and_then(x, w):
        runs.append(1)
        return (x @ w) * (1.01 if len(runs) % 2 == 0 else 1)

    def in_any_order(x, w):
        runs.append(1)
        order = torch.randperm(x.shape[1], generator=torch.Generator().manual_seed(len(runs)))
        return x[:, order] @ w[order]

    x, w = randn(9, 64), randn(64, 7)
    found = ulpscope.check_call(now_and_then, (x, w), reference=torch.matmul)
    assert found.verdict == "intermittent"
    with pytest.raises(AssertionError, match="intermittent"):
        testing.assert_accurate(now_and_then, torch.matmul, x, w)
    spread = ulpscope.check_call(in_any_order, (x, w), reference=torch.matmul)
    assert spread.passed and any("effective bits in" in note for note in spread.notes)
    with pytest.raises(ValueError, match="repeat is 0"):
        ulpscope.check_call(torch.matmul, (x, w), repeat=0)
