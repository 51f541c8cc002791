# SPDX-License-Identifier: Apache-2.0
"""What float32 loses when its roundings fall otherwise excuses no error where a function has
come to its limit: tanh of 100 is 1 on every device. Kernels whose functions err by two ulps
below the limit pass."""

import pytest
import torch
import torch.nn.functional as F

import ulpscope

aten = torch.ops.aten
BIG = (100, 1000, 1e6)


def mixed(big, n=256, seed=3):
    """Normal numbers, of which eight are large, of either sign."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, generator=g)
    x[:8] = big * (1 + torch.rand(8, generator=g)) * torch.tensor([1.0, -1.0] * 4)
    return x, torch.randn(n, generator=g)


# gradient or function, of (cotangent, x)
FUNCTIONS = {
    "gelu tanh": lambda g, x: aten.gelu_backward(g, x, approximate="tanh"),
    "gelu erf": lambda g, x: aten.gelu_backward(g, x),
    "silu": lambda g, x: aten.silu_backward(g, x),
    "mish": lambda g, x: aten.mish_backward(g, x),
    "silu by exp": lambda g, x: g * (lambda s: s * (1 + x * (1 - s)))(1 / (1 + torch.exp(-x))),
    "erf squared": lambda g, x: g * (1 + x.abs() + x**3 * (1 - torch.erf(x) ** 2)),
    "tanh squared": lambda g, x: g * (1 + x.abs() + x**3 * (1 - torch.tanh(x) ** 2)),
    "softmax": lambda g, x: (
        g * (1 + (lambda p: 1e3 * x * p * (1 - p))(F.softmax(torch.stack([x, -x], -1), -1)[..., 0]))
    ),
}
WRONG = {
    "1 % off": lambda right: right * 1.01,
    "four times": lambda right: right * 4,
    "zeros": torch.zeros_like,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_large_inputs_excuse_no_error(name):
    fn = FUNCTIONS[name]
    for big in BIG:
        x, g = mixed(big)
        right = fn(g, x)
        verdict = ulpscope.judge_call(fn, (g, x), outputs=right)
        assert verdict.passed, (big, verdict.sentence)
    what, spoil = list(WRONG.items())[list(FUNCTIONS).index(name) % len(WRONG)]
    x, g = mixed(BIG[-1 - list(FUNCTIONS).index(name) % 2])
    wrong = fn(g, x)
    wrong[:8] = spoil(wrong[:8])
    verdict = ulpscope.judge_call(fn, (g, x), outputs=wrong)
    assert verdict.verdict == "wrong", (what, verdict.sentence)


@pytest.mark.parametrize("big", [1e4, 1e37])
def test_silu_gradients_of_very_large_inputs_are_held_to_float32(big):
    x, g = mixed(big)
    wrong = aten.silu_backward(g, x)
    wrong[0] *= 1.01
    assert ulpscope.judge_call(aten.silu_backward, (g, x), outputs=wrong).verdict == "wrong"


def rough(f, x, seed=0):
    """A function that errs by up to two ulps where it has not come to its limit."""
    gen = torch.Generator().manual_seed(seed)
    y = f(x.double())
    off = 2.8 * 2.0**-24 * (2 * torch.rand(x.shape, generator=gen, dtype=torch.float64) - 1)
    return torch.where((y.abs() - 1).abs() < 2.0**-32, y, (y * (1 + off)).clamp(-1, 1)).float()


def gelu_tanh_gradient(g, x):
    t = rough(torch.tanh, 0.7978845608 * (x + 0.044715 * x**3))
    inner = 0.7978845608 * (1 + 3 * 0.044715 * x * x)
    return g * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner)


def silu_gradient(g, x):
    s = rough(torch.sigmoid, x)
    return g * s * (1 + x * (1 - s))


@pytest.mark.parametrize("scale", [1, 4, 10, 100])
def test_functions_that_err_by_two_ulps_pass(scale):
    g, x = torch.randn(2048), torch.randn(2048) * scale
    plain = {"approximate": "tanh"}
    got = ulpscope.judge_call(aten.gelu_backward, (g, x), plain, gelu_tanh_gradient(g, x))
    assert got.passed, got.sentence
    got = ulpscope.judge_call(aten.silu_backward, (g, x), outputs=silu_gradient(g, x))
    assert got.passed, got.sentence
    got = ulpscope.judge_call(F.gelu, (x,), outputs=0.5 * x * (1 + rough(torch.erf, x * 0.5**0.5)))
    assert got.passed, got.sentence


def attention_gradient(q, k, v, g):
    with torch.enable_grad():
        leaves = [t.detach().requires_grad_() for t in (q, k, v)]
        return torch.autograd.grad(F.scaled_dot_product_attention(*leaves, is_causal=True), leaves, g)


@pytest.mark.parametrize("seed", range(3))
def test_a_saturated_softmax_in_attention_has_a_gradient(seed):
    """The kernel of that gradient takes exp(score - logarithm of sums), which is anything for scores of 1e20, in
    float64 as well: so it is no reference there."""
    draw = torch.Generator().manual_seed(seed)
    randn = lambda: torch.randn(2, 2, 24, 16, generator=draw)  # noqa: E731
    q, k, g = randn() * torch.exp2(10 * randn()), randn() * torch.exp2(10 * randn()), randn()
    v = randn() * torch.exp2(4 * randn())
    scores = (q.double() @ k.double().mT / 4).masked_fill(torch.ones(24, 24).triu(1).bool(), -torch.inf)
    p, dp = scores.softmax(-1), g.double() @ v.double().mT
    ds = p * (dp - (p * dp).sum(-1, keepdim=True)) / 4
    right = [t.float() for t in (ds @ k.double(), ds.mT @ q.double(), p.mT @ g.double())]
    verdict = ulpscope.judge_call(attention_gradient, (q, k, v, g), outputs=tuple(right))
    assert verdict.passed, verdict.sentence
    for wrong in ((*right[:2], right[2] * 1.01), (right[0] + g * 1e-3, *right[1:]), (*right[:2], right[2].roll(1, 2))):
        verdict = ulpscope.judge_call(attention_gradient, (q, k, v, g), outputs=wrong, cause=False)
        assert verdict.verdict == "wrong", verdict.sentence
