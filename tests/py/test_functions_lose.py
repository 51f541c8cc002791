# SPDX-License-Identifier: Apache-2.0
"""Functions of single elements in float32: what libraries lose (up to 4 units in the last place) passes, also what an
exponential loses by x log2 e; 16 units everywhere, or 32 at one element of twenty, are accused, also where a result
reacts strongly to its input: that one is given exactly."""

import pytest
import torch

from ulpscope import judge_call

F = torch.nn.functional
FLAGGED = ("wrong", "reduced", "nonfinite")
DRAW = torch.Generator().manual_seed(7)


def randn(size=1.0, about=0.0):
    return torch.randn(600, generator=DRAW) * size + about


def rand(low, high):
    return torch.rand(600, generator=DRAW) * (high - low) + low


CALLS = {
    "exp": (torch.exp, randn(3)),
    "expm1": (torch.expm1, randn()),
    "log": (torch.log, randn().abs() + 0.01),
    "log near 1": (torch.log, randn(1e-2, 1.0)),
    "log2 near 1": (torch.log2, randn(1e-3, 1.0)),
    "log1p": (torch.log1p, rand(-0.9, 5)),
    "sin": (torch.sin, randn(3)),
    "sin, far": (torch.sin, randn(1e4)),
    "cos, far": (torch.cos, randn(1e3)),
    "tan, far": (torch.tan, randn(1e3)),
    "acos near 1": (torch.acos, 1 - randn(1e-3).abs()),
    "tanh": (torch.tanh, randn()),
    "sigmoid": (torch.sigmoid, randn(3)),
    "erf": (torch.erf, randn()),
    "gelu": (F.gelu, randn(2)),
    "silu": (F.silu, randn(3)),
    "softplus": (F.softplus, randn(3)),
    "sqrt": (torch.sqrt, randn().abs()),
    "rsqrt": (torch.rsqrt, randn().abs() + 0.01),
    "reciprocal": (torch.reciprocal, randn()),
    "square": (torch.square, randn()),
    "a product": (lambda x: x * x.new_tensor(0.3), randn()),
    "two": (lambda x: (x.sin(), x.cos()), randn(2e3)),
}


def off(y, units):
    """Off by so many units in the last place, up or down."""
    signs = torch.randint(0, 2, y.shape, generator=DRAW) * 2 - 1
    unit = torch.ldexp(torch.ones_like(y), torch.frexp(y)[1] - 24)
    return torch.where(y == 0, y, y + signs * units * unit).float()


def moved(fn, x, units, stride=1):
    outs = fn(x.double())
    outs = outs if isinstance(outs, tuple) else (outs,)
    made = []
    for y in outs:
        out = y.float()
        out[::stride] = off(y, units)[::stride]
        made.append(out)
    return tuple(made) if len(made) > 1 else made[0]


def said(fn, x, out):
    return judge_call(fn, (x,), outputs=out, cause=False)


@pytest.mark.parametrize("name", CALLS)
def test_what_functions_lose(name):
    fn, x = CALLS[name]
    assert said(fn, x, fn(x)).verdict == "pass"
    for units in (2, 4):
        found = said(fn, x, moved(fn, x, units))
        assert found.verdict == "pass", (units, found.sentence)
    for units, stride in ((16, 1), (64, 1), (32, 20)):
        found = said(fn, x, moved(fn, x, units, stride))
        assert found.verdict in FLAGGED, (units, stride, found.sentence)


EXPONENTIALS = {
    "exp": (torch.exp, lambda x: torch.exp2(x * 1.4426950408889634)),
    "sigmoid": (torch.sigmoid, lambda x: 1 / (1 + torch.exp2(-x * 1.4426950408889634))),
    "silu": (F.silu, lambda x: x / (1 + torch.exp2(-x * 1.4426950408889634))),
    "softmax": (lambda x: x.view(20, 30).softmax(-1), lambda x: two_powers(x.view(20, 30))),
}


def two_powers(x):
    e = torch.exp2((x - x.amax(-1, keepdim=True)) * 1.4426950408889634)
    return e / e.sum(-1, keepdim=True)


@pytest.mark.parametrize("name", EXPONENTIALS)
def test_an_exponential_may_be_a_power_of_two(name):
    fn, kernel = EXPONENTIALS[name]
    x = rand(-60, 60)
    found = said(fn, x, kernel(x))
    assert found.verdict == "pass", found.sentence


def test_a_constant_of_ten_digits_shows():
    x, two_pi = randn(5e3), 6.283185307
    turned = (x.double() - torch.round(x.double() / two_pi) * two_pi).float()
    for fn in (torch.sin, torch.cos, torch.tan):
        assert said(fn, x, fn(turned)).verdict in FLAGGED
        exact = torch.remainder(x.double(), 2 * torch.pi)
        assert said(fn, x, fn(exact).float()).verdict == "pass"
    x = rand(0.8, 1.3)
    m, e = torch.frexp(x)
    assert said(torch.log, x, m.log() + e * 0.6931471805599453).verdict in FLAGGED


CONSTANTS = {
    "selu": (F.selu, lambda x, k: k(1.0507009873554805) * torch.where(x > 0, x, 1.6732632423543772 * torch.expm1(x))),
    "deg2rad": (torch.deg2rad, lambda x, k: x * k(0.017453292519943295)),
    "log10": (lambda x: torch.log10(x.abs()), lambda x, k: x.abs().log() * k(0.4342944819032518)),
    "scaled": (lambda x: x * 3.141592653589793, lambda x, k: x * k(3.141592653589793)),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_constant_of_seven_digits_is_one_share_everywhere(name):
    fn, kernel = CONSTANTS[name]
    x = randn(3)
    assert said(fn, x, kernel(x, lambda c: c)).verdict == "pass"
    found = said(fn, x, kernel(x, lambda c: c * (1 + 4e-7)))
    assert found.verdict == "wrong" and "one share" in found.sentence, found.sentence


def test_each_of_several_outputs_is_held_to_what_made_it():
    """A product beside them, which a matrix unit may cut off, or an exponential are no matter of functions."""
    x, w = randn(3).view(20, 30), randn().view(30, 20)
    fused = lambda x, w: (x @ w, torch.deg2rad(x), x.exp(), torch.acos(x / 30))  # noqa: E731
    near = lambda x, w: (x @ w, torch.deg2rad(x), off(x.double().exp(), 4), torch.acos(x / 30))  # noqa: E731
    assert judge_call(fused, (x, w), outputs=near(x, w), cause=False).verdict == "pass"
    for k, spoilt in ((1, x * (0.017453292519943295 * (1 + 4e-7))), (3, off(torch.acos(x.double() / 30), 16))):
        out = list(near(x, w))
        out[k] = spoilt
        assert judge_call(fused, (x, w), outputs=tuple(out), cause=False).verdict in FLAGGED, k


@pytest.mark.parametrize("n", (8, 31))
def test_few_elements_tell_a_factor_from_a_narrow_format(n):
    for fn, x in ((F.gelu, randn()[:n]), (torch.exp, randn()[:n].half())):
        right = fn(x.float()).to(x.dtype)
        narrow = right.bfloat16().to(x.dtype)
        for other in ((right * 1.03).to(x.dtype), right.add(0.03).to(x.dtype)):
            assert said(fn, x, other).verdict == "wrong"
        assert said(fn, x, narrow).verdict == "reduced"


@pytest.mark.parametrize("fn", (torch.square, lambda x: x**2, lambda x: x * x))
def test_a_tie_of_a_square_goes_to_the_even_one(fn):
    x = randn().bfloat16()
    square = x.float() * x.float()
    away = ((square.view(torch.int32) + 0x8000) & ~0xFFFF).view(torch.float32).bfloat16()
    assert said(fn, x, square.bfloat16()).verdict == "pass" and bool((away != square.bfloat16()).any())
    assert said(fn, x, away).verdict == "wrong"


def test_a_tie_of_a_cast_beside_nan_goes_to_the_even_one():
    x = torch.cat([randn(), torch.tensor([1 + 2**-8, -1 - 2**-8, torch.nan])])
    away = ((x.view(torch.int32) + 0x8000) & ~0xFFFF).view(torch.float32).bfloat16()
    out = torch.where(x.isnan(), x.bfloat16(), away), x.half()
    found = said(lambda x: (x.bfloat16(), x.half()), x, out)
    assert found.verdict == "wrong" and "2 of 603 elements" in found.sentence, found.sentence
