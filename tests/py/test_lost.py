# SPDX-License-Identifier: Apache-2.0
"""Elements at which float32 itself fails: no honest kernel is accused there, and nothing else
is excused by them."""

import math

import pytest
import torch
import torch.nn.functional as F

import ulpscope

NAN, INF = math.nan, math.inf


@pytest.fixture
def draw():
    generator = torch.Generator().manual_seed(11)
    return lambda *shape: torch.randn(*shape, generator=generator)


def said(fn, args, output):
    return ulpscope.judge_call(fn, args, {}, output)


def at(tensor, i, value):
    spoilt = tensor.clone()
    spoilt.view(-1)[i] = value
    return spoilt


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.float16))
def test_what_becomes_of_infinities_inside_hangs_on_the_formula(dtype, draw):
    x = at(at(4 * draw(200), 3, -INF), 50, NAN).to(dtype)
    tanh = lambda x: F.gelu(x, approximate="tanh")  # noqa: E731
    right = tanh(x.float()).to(dtype)
    assert right[3].isnan()  # -Inf * (1 + tanh(-Inf)); a tanh of 2 ulps does not end at -1
    for other in (INF, -INF):
        assert said(tanh, (x,), at(right, 3, other)).verdict == "pass"
    for i, other in ((3, 0), (50, INF), (50, 0), (60, NAN), (60, INF)):
        assert not said(tanh, (x,), at(right, i, other)).passed


def test_the_mean_of_a_row_with_an_infinity(draw):
    x = at(draw(6, 40), 45, -INF)
    both = lambda x: torch.var_mean(x, -1)  # noqa: E731
    var, mean = both(x)
    assert mean[1].isnan()  # torch adds up differences; a sum of the row is -Inf
    assert said(both, (x,), (var, x.mean(-1))).verdict == "pass"
    assert said(both, (x,), (var, at(x.mean(-1), 0, INF))).verdict == "nonfinite"
    assert said(both, (x,), (var, at(x.mean(-1), 1, 0))).verdict == "nonfinite"


def test_a_device_that_overflows_just_where_float32_does_passes_with_a_note(draw):
    x = at(draw(300), 7, -120.0)
    soft = lambda x: torch.log(1 + torch.exp(-x))  # noqa: E731
    right = soft(x)
    assert right[7] == INF
    good = said(soft, (x,), right)
    assert good.passed and good.notes == ["float32 itself overflows at 1 of 300 elements, as the device does"]
    assert said(soft, (x,), at(right, 8, INF)).verdict == "nonfinite"
    assert not said(soft, (x,), at(right, 8, right[8] * 1.01)).passed
    low = said(soft, (x,), right.bfloat16().float())
    assert low.verdict == "reduced" and low.cause == "result rounded to bfloat16"
    many = x - 120
    assert said(soft, (many,), soft(many)).verdict == "unjudged"


def test_a_step_that_overflows_without_harm_excuses_nothing(draw):
    x = at(draw(400), 9, -1e37)
    glu = lambda x: x.sigmoid() * x.abs().sqrt()  # noqa: E731 - 1 / (1 + Inf)
    right = glu(x)
    assert said(glu, (x,), right).passed and right[9] == 0
    assert said(glu, (x,), at(right, 9, NAN)).verdict == "nonfinite"


def test_zero_is_no_answer_where_the_result_overflows(draw):
    x = 1e37 * draw(300)
    power = lambda x: x.abs() ** 1.5  # noqa: E731
    right = power(x)
    whole = said(power, (x,), right)
    assert whole.passed and math.isnan(whole.effective_bits)  # all Inf: no bit to be seen
    assert said(power, (x,), at(right, 8, 0.0)).verdict == "nonfinite"


def test_a_sigmoid_of_two_ulps_passes_where_its_gradient_cancels(draw):
    x, g = 40 * draw(2000), 1e4 * draw(2000)

    def gradient(g, x, move=0.0):
        s = x.sigmoid()
        s = s * (1 + move)
        return g * s * (1 - s)

    ulps = 2.0**-23 * torch.where(draw(2000) > 0, 1.0, -1.0)
    assert said(gradient, (g, x), gradient(g, x, ulps)).passed
    assert not said(gradient, (g, x), gradient(g, x, 2.0**-10)).passed


def test_a_function_that_swings_has_no_corner(draw):
    x, g = 1e30 * draw(300), draw(300)

    def gradient(g, x):
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            return torch.autograd.grad(torch.tan(x), x, g)

    right = gradient(g.double(), x.double())[0].float()
    assert said(gradient, (g, x), (right,)).passed
    for fault in (1.5 * right, at(right, 5, 2 * right[5])):
        assert said(gradient, (g, x), (fault,)).verdict != "undefined"


def test_a_corner_is_one_still(draw):
    x, g = at(draw(300), 5, 0.0), draw(300)

    def gradient(g, x):
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            return torch.autograd.grad(torch.relu(x), x, g)

    right = gradient(g, x)[0]
    either = said(gradient, (g, x), (at(right, 5, g[5]),))
    assert either.verdict == "undefined"
    assert either.sentence == (
        "gradient is undefined at 1 of 300 elements: the function has a corner there, and any subgradient is one"
    )
    assert said(gradient, (g, x), (at(right, 5, 20.0),)).verdict == "wrong"
    assert said(gradient, (g, x), (at(right, 6, right[6] + 1),)).verdict == "wrong"


def test_flushing_swallows_no_nan(draw):
    """A formula that compares takes one branch or the other for NaN."""
    backward, x, g = torch.ops.aten.elu_backward.default, at(draw(40), 3, NAN), draw(40)
    args = g, 1.0, 1.0, 1.0, False, x
    right = backward(*args)
    assert said(backward, args, right).passed and right[3].isnan()
    for other in (0.0, float(g[3])):
        assert said(backward, args, at(right, 3, other)).verdict == "nonfinite"


def of_two_ulps(x, draw):
    return x * (1 + 2.0**-23 * draw(*x.shape).sign())


def test_a_formula_that_cancels_everywhere_blames_no_function_of_two_ulps(draw):
    wide = 2.0 ** (8 * draw(600)) * draw(600).sign()
    shrink = lambda x: x - torch.tanh(x)  # noqa: E731
    assert said(shrink, (wide,), wide - of_two_ulps(torch.tanh(wide), draw)).passed
    assert not said(shrink, (wide,), wide - torch.tanh(wide).bfloat16().float()).passed
    small = 1e-5 * draw(600)  # float32 has no tanh(x) but x there
    near = small - of_two_ulps(torch.tanh(small), draw)
    lost = said(shrink, (small,), near)  # nothing of the truth, as every run of float32: nothing is known there
    assert lost.verdict == "unjudged" and "loses no more than these" in lost.sentence, lost.sentence


def test_two_functions_that_cancel_to_zero_may_differ_by_their_roundings(draw):
    x = draw(800) * (draw(800) > 0)
    gap = lambda x: torch.log(x.sigmoid()) - torch.log((-x).sigmoid())  # noqa: E731
    halves = [of_two_ulps(torch.log(y.sigmoid()), draw) for y in (x, -x)]
    assert said(gap, (x,), halves[0] - halves[1]).passed
    assert not said(gap, (x,), halves[0] - halves[1] + 1e-5 * (x == 0)).passed


@pytest.mark.parametrize("spread", [0.0, 8.0])
def test_a_transform_errs_as_a_whole(spread, draw):
    """What one algorithm cancels to an exact zero is within rounding of it in another."""
    x = draw(5, 24) * torch.exp2(spread * draw(5, 24))

    def spectrum(x):
        return torch.view_as_real(torch.fft.fft(x))

    k = torch.arange(24, dtype=torch.float32)
    angle = 2 * math.pi * (torch.outer(k, k) % 24) / 24
    table = torch.stack([x @ angle.cos(), -(x @ angle.sin())], -1)
    assert said(spectrum, (x,), table).passed
    assert said(spectrum, (x,), spectrum(x.bfloat16().float())).verdict in ("reduced", "wrong")
    size = float(table.square().mean().sqrt())
    spoilt = spectrum(x).index_put((torch.tensor(1), torch.tensor(12), torch.tensor(1)), torch.tensor(1e-2 * size))
    assert said(spectrum, (x,), spoilt).verdict == "wrong"


def test_what_lies_beyond_the_largest_number_is_not_damage(draw):
    x = at(at(40 * draw(2000), 3, 100.0), 90, 200.0)
    right = x.expm1()
    assert right[3] == INF
    found = said(torch.expm1, (x,), right * (1 + 1e-4 * draw(2000)))
    assert found.verdict == "reduced" and "Inf" not in found.cause and "inf" not in found.cause.split()


def test_nan_in_a_tail_that_was_not_written_is_told_with_the_tail(draw):
    x = at(draw(400), 395, NAN)
    right = x.exp()
    right[-16:] = 0
    found = said(torch.exp, (x,), right)
    assert found.verdict == "nonfinite" and "the last 16 of 400 elements are zero" in found.cause


def test_a_function_that_overflows_in_float16_is_named(draw):
    x = at(at(draw(400).abs() + 1, 7, 1e5), 8, 3e6)
    half = x.half().float().log().half().float()
    found = said(torch.log, (x,), half)
    assert found.verdict == "nonfinite" and "float16" in found.cause and "overflow" in found.cause
