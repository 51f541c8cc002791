# SPDX-License-Identifier: Apache-2.0
"""The rule on kernels that are honest in their own way, and on faults that look like them."""

import math

import pytest
import torch
import torch.nn.functional as F

import ulpscope

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@pytest.fixture
def draw():
    generator = torch.Generator().manual_seed(7)
    return lambda *shape: torch.randn(*shape, generator=generator)


def verdict(fn, args, output):
    return ulpscope.judge_call(fn, args, {}, output).verdict


def within_two_ulps(x, draw):
    return x * (1 + 2.0**-22 * draw(*x.shape).sign())


@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_off_by_two_ulps_pass_where_a_formula_cancels(dtype, draw):
    x = (4 * draw(2000)).to(dtype)
    wide = x.float()
    tail = 1 + within_two_ulps(torch.erf(wide * math.sqrt(0.5)), draw)
    assert verdict(F.gelu, (x,), (0.5 * wide * tail).to(dtype)) == "pass"
    assert verdict(F.gelu, (x,), F.gelu(wide, approximate="tanh").to(dtype)) != "pass"


def test_values_that_return_do_not_make_an_operator_exact(draw):
    x = 100 + draw(1000)  # gelu(x) = x there
    assert verdict(F.gelu, (x,), within_two_ulps(x, draw)) == "pass"
    assert verdict(torch.clone, (x,), within_two_ulps(x, draw)) != "pass"


def test_rounding_operators_get_no_tolerance():
    ties = torch.arange(2**20, 2**20 + 500) + 0.5
    assert verdict(torch.round, (ties,), torch.round(ties)) == "pass"
    away = torch.trunc(ties + 0.5)
    assert verdict(torch.round, (ties,), away) != "pass"


def test_what_rounds_to_zero_needs_no_float32(draw):
    x = torch.full((40, 12), 2.0**-12, dtype=torch.float16)
    assert verdict(lambda x: x.prod(1), (x,), torch.zeros(40, dtype=torch.float16)) == "pass"


@pytest.mark.parametrize("dtype", DTYPES[:2])
def test_flushed_inputs_are_a_note_also_where_they_make_infinities(dtype):
    x = torch.tensor([1e-39, 2.0, 0.5, 3e-39], dtype=dtype)
    got = ulpscope.judge_call(torch.log, (x,), {}, torch.log(torch.where(x < 1e-38, 0, x)))
    assert got.verdict == "pass" and "flushes subnormals" in got.notes
    assert verdict(torch.log, (x,), torch.log(torch.where(x < 1, 0, x))) != "pass"


def test_flushing_each_step_of_a_formula_is_a_note(draw):
    def formula(x):
        return torch.exp(x) * 1e30

    x = torch.linspace(-100, -80, 300)
    inner = torch.exp(x)
    flushed = torch.where(inner < torch.finfo(torch.float32).tiny, 0, inner) * 1e30
    assert verdict(formula, (x,), flushed) == "pass"
    assert verdict(formula, (x,), torch.where(inner < 1e-37, 0, inner) * 1e30) != "pass"


def test_float16_outputs_flushed_to_zero_are_reduced(draw):
    a, b = draw(64, 64).half(), draw(64, 64).half()
    a, b = torch.cat([a, 2.0**-9 * a[:4]]).half(), (b * 2.0**-6).half()
    right = (a.float() @ b.float()).half()
    flushed = torch.where(right.abs() < 2.0**-14, torch.zeros((), dtype=torch.float16), right)
    assert verdict(torch.mm, (a, b), right) == "pass"
    assert verdict(torch.mm, (a, b), flushed) == "reduced"


def test_one_sum_rounded_to_bfloat16_is_reduced(draw):
    x = draw(20000)
    total = x.double().sum()
    assert verdict(torch.sum, (x,), total.float()) == "pass"
    assert verdict(torch.sum, (x,), total.bfloat16().float()) == "reduced"


def test_elementwise_functions_in_half_precision_do_not_pass_on_small_inputs(draw):
    x = 2.0**-6 * draw(3000)
    narrow = 1 / (1 + torch.exp(-x).half().float())
    assert verdict(F.silu, (x,), x * narrow) == "reduced"


def by_hand(x, w, b):
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5) * w + b


def test_no_answer_is_blamed_where_float32_has_none(draw):
    x, w, b = draw(12, 40), draw(40), draw(40)
    x[3, 7] = 1e37  # its square overflows
    given = by_hand(x, w, b)
    kernel = F.layer_norm(x, (40,), w, b)
    assert verdict(by_hand, (x, w, b), kernel) in ("pass", "unjudged")
    layer = lambda x, w, b: F.layer_norm(x, (40,), w, b)  # noqa: E731
    assert verdict(layer, (x, w, b), given) in ("pass", "unjudged")
    given[5, 5] += 1
    assert verdict(layer, (x, w, b), given) == "wrong"


def to_bfloat16(x):
    return x.bfloat16().float()


def test_a_steep_function_is_no_corner(draw):
    x = draw(2000) * 2.0 ** (10 * draw(2000)).clamp(-60, 60)  # a wide range
    grad = draw(2000)
    backward = torch.ops.aten.silu_backward.default
    assert verdict(backward, (grad, x), backward(grad, x)) == "pass"
    assert verdict(backward, (grad, x), backward(to_bfloat16(grad), to_bfloat16(x))) in ("reduced", "wrong")


def test_bits_are_counted_without_the_excuse_of_other_functions(draw):
    x = draw(4000)
    half = ulpscope.judge_call(torch.tanh, (x,), {}, torch.tanh(x.half().float()))
    assert not half.passed and abs(half.effective_bits - 11.4) < 1


def test_gradients_of_attention_are_judged_also_under_a_mask(draw):
    q, k, v, g = (draw(2, 8, 16) for _ in range(4))

    def gradients(q, k, v, exp=torch.exp):
        q, k, v = (t.detach().requires_grad_() for t in (q, k, v))
        with torch.enable_grad():
            scores = q @ k.transpose(-1, -2) / 4
            mask = torch.ones(8, 8).triu(1).bool()
            scores = scores.masked_fill(mask, -math.inf)
            weights = exp(scores - scores.detach().amax(-1, keepdim=True))
            out = (weights / weights.sum(-1, keepdim=True)) @ v
        return torch.autograd.grad(out, (q, k, v), g)

    narrow = lambda s: to_bfloat16(torch.exp(s))  # noqa: E731
    assert verdict(gradients, (q, k, v), gradients(q, k, v)) == "pass"
    assert verdict(gradients, (q, k, v), gradients(q, k, v, narrow)) in ("reduced", "wrong")


def test_flushed_subnormals_tie(draw):
    x = torch.tensor([1e-40, 3e-40, 2e-40, 1.0, -2.0])
    values = torch.where(x.abs() < 1e-38, 0, x)
    got = torch.tensor([3, 0, 1, 2, 4])
    assert verdict(lambda x: x.argsort(descending=True), (x,), got) == "pass"
    assert verdict(lambda x: x.argsort(descending=True), (x,), got.flip(0)) == "wrong"
    assert values[3] == 1
