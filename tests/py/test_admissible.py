# SPDX-License-Identifier: Apache-2.0
"""What an element may be where it is not the rounded truth: a wrong kernel one step outside is accused, and
what another order, form or rounding of float32 gives passes."""

import math

import pytest
import torch
import torch.nn.functional as F

from ulpscope import judge_call

FLAGGED = ("wrong", "reduced", "nonfinite")
BF16, HALF = torch.bfloat16, torch.float16


def drawn(*sizes, seed=7):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


def said(fn, args, outputs):
    return judge_call(fn, args, outputs=outputs, cause=False)


# ---- steps of sums that no order decides: 0 or 1 are right, and nothing else --------------------


def of_all(x):
    return torch.floor(torch.softmax(x, -1).sum(-1))


X = drawn(256, 64)
SUMS = of_all(X)
STEPS = {
    "the CPU's own": (SUMS, True),
    "added from the end": (torch.floor(torch.softmax(X.flip(-1), -1).sum(-1)), True),
    "all 2": (torch.full((256,), 2.0), False),
    "all -1": (torch.full((256,), -1.0), False),
    "a quarter 2": (torch.where(torch.arange(256) % 4 == 0, 2.0, SUMS), False),
    "one 2": (torch.where(torch.arange(256) == 5, 2.0, SUMS), False),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_takes_values_of_runs(name):
    given, right = STEPS[name]
    found = said(of_all, (X,), given)
    assert found.verdict == "pass" if right else found.verdict == "wrong", found
    assert not found.effective_bits < 11 or not right


# ---- equal logits, however large: no rounding happens -------------------------------------------


@pytest.mark.parametrize("size", [1e4, 1e6, 1e8])
@pytest.mark.parametrize("loss", [0.0, 8.0, 50.0, 1.01 * math.log(100)])
def test_a_loss_among_equal_logits_is_no_other(size, loss):
    args = torch.full((8, 100), size), torch.arange(8)
    fn = lambda x, t: F.cross_entropy(x, t, reduction="none")  # noqa: E731
    assert said(fn, args, fn(*args)).verdict == "pass"
    assert said(fn, args, torch.full((8,), loss)).verdict in FLAGGED


@pytest.mark.parametrize("size", [1e4, 1e6, 1e8])
@pytest.mark.parametrize("share", [0.9, 0.0101])
def test_a_probability_among_equal_logits_is_no_other(size, share):
    x = torch.full((8, 100), size)
    assert said(lambda x: x.softmax(-1), (x,), torch.full((8, 100), share)).verdict in FLAGGED


# ---- ties of what no step rounds ----------------------------------------------------------------


def away(x):
    return ((x.view(torch.int32) + 0x8000) & ~0xFFFF).view(torch.float32).bfloat16()


def to_zero(x):
    half = x.half()
    toward = torch.nextafter(half, torch.zeros_like(half))
    return torch.where((half.float() + toward.float()) / 2 == x, toward, half)


A, B = drawn(4000).bfloat16(), drawn(4000, seed=8).bfloat16()
WHOLE = torch.arange(-4000.0, 4000.0)
TIES = {
    "sum": (torch.add, (A, B), (A.float() + B.float()).bfloat16(), away(A.float() + B.float())),
    "product": (torch.mul, (A, B), (A.float() * B.float()).bfloat16(), away(A.float() * B.float())),
    "cast": (lambda x: x.bfloat16(), (WHOLE,), WHOLE.bfloat16(), away(WHOLE)),
    "cast to float16": (lambda x: x.half(), (WHOLE,), WHOLE.half(), to_zero(WHOLE)),
    "codes": (
        lambda x: x.round().to(torch.int8),
        (WHOLE[3900:4100] / 2,),
        (WHOLE[3900:4100] / 2).round().to(torch.int8),
        torch.floor(WHOLE[3900:4100] / 2 + 0.5).to(torch.int8),
    ),
}


@pytest.mark.parametrize("name", TIES)
def test_ties_of_exact_results_go_to_the_even_one(name):
    fn, args, even, other = TIES[name]
    assert said(fn, args, even).verdict == "pass"
    assert said(fn, args, other).verdict == "wrong"


# ---- one factor in all rows ---------------------------------------------------------------------


def rms(x, w, eps):
    wide = x.float()
    return (wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + eps) * w.float()).to(x.dtype)


def layer(x, w, b, form):
    wide, n = x.float(), x.shape[-1]
    off = wide - wide.mean(-1, keepdim=True)
    v = (off * off).mean(-1, keepdim=True)
    scale = {
        "right": lambda: torch.rsqrt(v + 1e-5),
        "beside the root": lambda: 1 / (v.sqrt() + 1e-5),
        "no eps": lambda: torch.rsqrt(v),
        "n - 1": lambda: torch.rsqrt(v * n / (n - 1) + 1e-5),
    }[form]()
    return (off * scale * w.float() + b.float()).to(x.dtype)


@pytest.mark.parametrize("dtype", [torch.float32, HALF])
@pytest.mark.parametrize("n", [256, 1024])
def test_one_share_in_all_rows_is_no_rounding(dtype, n):
    x, w, b = drawn(64, n).to(dtype), (1 + 0.1 * drawn(n, seed=1)).to(dtype), drawn(n, seed=2).to(dtype)
    norm = lambda x, w: F.rms_norm(x, (n,), w, 1e-6)  # noqa: E731
    assert said(norm, (x, w), rms(x, w, 1e-6)).verdict == "pass"
    assert said(norm, (x, w), rms(x, w, 1e-5)).verdict in FLAGGED
    norm = lambda x, w, b: F.layer_norm(x, (n,), w, b, 1e-5)  # noqa: E731
    assert said(norm, (x, w, b), layer(x, w, b, "right")).verdict == "pass"
    for form in ("beside the root", "no eps", "n - 1"):
        assert said(norm, (x, w, b), layer(x, w, b, form)).verdict in FLAGGED, form


@pytest.mark.parametrize("factor", [1.0001, 1.001, 1.01, 1.05, 0.98])
@pytest.mark.parametrize("fn", [F.gelu, lambda x: x.softmax(-1), lambda x: x @ x.T])
def test_a_factor_is_wrong_and_not_reduced(fn, factor):
    x = drawn(64, 64)
    assert said(fn, (x,), fn(x) * factor).verdict == "wrong"


# ---- half an ulp is one of the element's own binade ---------------------------------------------


@pytest.mark.parametrize("spread", [1.0, 1.22, 1.38])
@pytest.mark.parametrize("dtype", [BF16, HALF])
def test_a_variance_over_n_is_no_order_of_adding(dtype, spread):
    x = (drawn(100, 300) * spread).to(dtype)
    fn = lambda x: x.var(-1)  # noqa: E731
    assert said(fn, (x,), x.float().var(-1).to(dtype)).verdict == "pass"
    assert said(fn, (x,), x.float().var(-1, unbiased=False).to(dtype)).verdict in FLAGGED


# ---- what leaves the range of float32 inside is not ill-conditioned ------------------------------


@pytest.mark.parametrize("size", [1e-30, 1e-25, 1e-20, 1e30])
def test_a_deviation_that_underflows_inside_is_accused(size):
    x = drawn(64, 33) * size
    fn = lambda x: x.std(-1)  # noqa: E731
    assert said(fn, (x,), fn(x)).verdict == "pass"
    assert said(fn, (x,), torch.zeros(64)).verdict in FLAGGED
    assert said(fn, (x,), torch.full((64,), math.inf)).verdict in FLAGGED
    for few, by in ((x[:3], fn), (x, torch.std)):  # no step either, where all that is off is off by few values
        assert said(by, (few,), by(few)).verdict == "pass"
        assert said(by, (few,), torch.zeros_like(by(few))).verdict in FLAGGED


def test_what_float32_itself_underflows_is_said():
    x = drawn(64, 33) * 1e-30
    fn = lambda x: x.norm(dim=-1)  # noqa: E731
    assert "underflows" in said(fn, (x,), torch.zeros(64)).sentence
    assert said(fn, (x,), torch.full((64,), 5.0)).verdict in FLAGGED


# ---- what all runs have in common ----------------------------------------------------------------


def test_a_row_without_a_winner_is_no_tie():
    """Which of two equal sums wins is chance; that one of them does is not."""
    x = drawn(24, 64)
    x = torch.stack([x, x.flip(-1), *[x - 1 - k for k in range(8)]], 1)
    fn = lambda x: F.one_hot(x.sum(-1).argmax(-1), 10)  # noqa: E731
    other = F.one_hot(x.flip(-1).sum(-1).argmax(-1), 10)
    assert said(fn, (x,), other).verdict == "pass"
    assert said(fn, (x,), torch.zeros(24, 10, dtype=torch.int64)).verdict == "wrong"


# ---- two groups of runs with nothing between: a remainder near its modulus ----------------------


def centred(rows, n, mean):
    x = 9 * drawn(rows, n)
    return (x - x.double().mean(-1, keepdim=True) + mean).float()


def left_of_mean(x):
    return torch.remainder(x.mean(-1), 2.0)


MEANS = centred(70, 250, 4.0)
REMAINDERS = {
    "added in halves": (torch.remainder((MEANS[:, :125].sum(-1) + MEANS[:, 125:].sum(-1)) / 250, 2.0), True),
    "whole halves taken off": ((m := MEANS.flip(-1).mean(-1)) - 2 * (m / 2).floor(), True),
    "1.9 in one": (torch.where(torch.arange(70) == 3, 1.9, left_of_mean(MEANS)), False),
}


@pytest.mark.parametrize("name", REMAINDERS)
def test_between_two_groups_of_runs_is_nothing(name):
    given, right = REMAINDERS[name]
    found = said(left_of_mean, (MEANS,), given)
    assert (found.verdict in FLAGGED) != right, found


# ---- several steps, none of which rounds: the tie of the result is decided ----------------------


def away(x, dtype):
    """float64 to a 16-bit dtype, ties away from zero."""
    near = x.to(dtype)
    step = torch.where(
        near.double() > x,
        near.view(torch.int16) - near.double().sign().to(torch.int16),
        near.view(torch.int16) + near.double().sign().to(torch.int16),
    ).view(dtype)
    tied = (step.double() - x).abs() == (near.double() - x).abs()
    return torch.where(tied & (step.double().abs() > near.double().abs()), step, near)


def whole(most, *sizes, dtype=HALF):
    return torch.randint(-most, most + 1, sizes, generator=torch.Generator().manual_seed(3)).to(dtype)


COMPOSED = {
    "sum and product": (lambda a, b, c: torch.addcmul(a * 16, b, c), (whole(255, 700), whole(7, 700), whole(7, 700))),
    "a scaled difference": (lambda a, b: (a - b) * 2.0**-26, (whole(511, 1500), whole(1023, 1500))),
    "sums of windows": (lambda x: F.avg_pool1d(x, 4) * 4, ((whole(127, 30, 9, 40) + 60).to(BF16),)),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_ties_of_several_exact_steps_go_to_the_even_one(name):
    fn, args = COMPOSED[name]
    exact = fn(*(a.double() for a in args))
    even, other = exact.to(args[0].dtype), away(exact, args[0].dtype)
    assert not torch.equal(even, other), "no tie in it"
    assert said(fn, args, even).verdict == "pass"
    assert said(fn, args, other).verdict in FLAGGED


def in_codes(how, x):
    """Numbers of 3 bits behind the point."""
    unit = torch.exp2(x.abs().log2().floor() - 3)
    return how(x / unit) * unit


CAST_LAST = {
    "half of it": lambda x: (x / 2).to(torch.float8_e4m3fn),
    "its double, and back": lambda x: (x + x).to(torch.float8_e4m3fn).float(),
    "from bfloat16": lambda x: (x.to(BF16) * 0.5).to(torch.float8_e4m3fn),
}


@pytest.mark.parametrize("name", CAST_LAST)
def test_behind_exact_steps_a_cast_has_one_value(name):
    x = (torch.arange(600) % 16 + 16.0) * torch.exp2(torch.arange(600) % 5 - 2.0)
    right = CAST_LAST[name](x)
    exact = x * 2 if "double" in name else x / 2
    assert said(CAST_LAST[name], (x,), in_codes(torch.round, exact).to(right.dtype)).verdict == "pass"
    for how in (lambda y: (y + 0.5).floor(), lambda y: (y - 0.5).ceil()):
        assert said(CAST_LAST[name], (x,), in_codes(how, exact).to(right.dtype)).verdict in FLAGGED
    third = lambda x: (x / 3).to(torch.float8_e4m3fn)  # noqa: E731 - another may multiply by a third
    assert said(third, (x,), (x * (1 / 3)).to(torch.float8_e4m3fn)).verdict == "pass"


def test_a_tie_with_infinity_goes_there():
    x = torch.tensor([65519.0, 65520.0, -65520.0, 1.0]).repeat(50)
    assert said(lambda x: x.to(HALF), (x,), x.to(HALF)).verdict == "pass"
    assert said(lambda x: x.to(HALF), (x,), x.clamp(-65504, 65504).to(HALF)).verdict in FLAGGED


@pytest.mark.parametrize("value, verdict", [(0.0, "pass"), (-0.0, "pass"), (1.0, "wrong"), (-1e-6, "wrong")])
def test_what_underflows_in_truth_too_is_no_other_function(value, verdict):
    """A product of many numbers that no float32 holds: nothing but zero is right, and nothing is unjudged."""
    x = torch.full((125,), 0.3)
    found = said(torch.prod, (x.bfloat16(),), torch.tensor(value).bfloat16())
    assert found.verdict == verdict, found.sentence


@pytest.mark.parametrize("size, factor, verdict", [([3, 4], 1, "pass"), ([3, 4], 2, "wrong"), ([6], 2, "wrong")])
def test_what_a_resize_keeps_is_judged(size, factor, verdict):
    x = torch.arange(12.0)
    kept = x[: torch.Size(size).numel()].view(size) * factor
    assert said(torch.ops.aten.resize_.default, (x.clone(), size), kept).verdict == verdict
    grown = torch.cat([x, torch.full((3,), torch.nan)])
    assert said(torch.ops.aten.resize_.default, (x.clone(), [15]), grown).verdict == "pass"


@pytest.mark.parametrize("seed", range(4))
def test_vectors_of_svd_turn_as_columns(seed):
    """`torch.svd` gives V where the operator below it gives its adjoint."""
    torch.manual_seed(seed)
    x = torch.randn(3, 5, 5)
    u, s, v = torch.svd(x)
    sides = torch.tensor([1.0, -1, 1, -1, -1])
    for out, verdict in (((u, s, v), "pass"), ((u * sides, s, v * sides), "pass"), ((u * sides, s, v), "wrong")):
        assert said(torch.svd, (x,), out).verdict == verdict
