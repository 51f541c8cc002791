# SPDX-License-Identifier: Apache-2.0
"""Gradients at corners: a subgradient that differs is no fault while these are few, and no
wrong kernel goes free there. Every case is (function, arguments, what the device computes)."""

import pytest
import torch
import torch.nn.functional as F
from calls import make_call
from test_check_run import check, verdicts

import ulpscope
from ulpscope.executors.device import PythonDevice
from ulpscope.session.judging import judge_call

aten = torch.ops.aten
SEED = 11


def normal(*shape, seed=SEED):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


X, G = normal(40, 26), normal(40, 26, seed=SEED + 1)
Y = X.relu()  # a saved result: half of it zeros
CLIPPED = X.clamp(-1, 1)
SPARSE = torch.where(normal(40, 26, seed=5).abs() < 0.02, 0.0, X)  # 1.6 % zeros
HALF = torch.where(normal(40, 26, seed=5) < 0, 0.0, X.abs())  # dead units, nothing below zero
STEPS = (2 * X).round()  # many of equal size
MASK = (normal(40, 26, seed=6) > 0).float()
NOISE = 5 * torch.rand(40, 26, generator=torch.Generator().manual_seed(7)) - 2


def gradient(function):
    """The gradient of a function of its first argument, for the last one as cotangent."""

    def run(x, *rest):
        x = x.detach().requires_grad_()
        y = function(x, *rest[:-1])
        return torch.autograd.grad(y, x, rest[-1].expand_as(y))[0]

    return run


# ---- operators -----------------------------------------------------------------------

RELU = ("aten::threshold_backward", G, Y, 0.0)
TANH = ("aten::hardtanh_backward", G, CLIPPED, -1.0, 1.0)
LEAKY = ("aten::leaky_relu_backward", G, HALF, 0.1, False)
ELU = ("aten::elu_backward", G, 1.5, 1.0, 1.0, False, HALF)
ELU_RESULT = ("aten::elu_backward", G, 1.5, 1.0, 1.0, True, HALF)
SWISH = ("aten::hardswish_backward", G, (3 * X).clamp(-3, 3))
SIGMOID = ("aten::hardsigmoid_backward", G, (3 * X).clamp(-3, 3))
SHRINK = ("aten::softshrink_backward", G, CLIPPED.clamp(-0.5, 0.5), 0.5)
at = torch.where

OPERATORS = {
    "relu: identity": (RELU, lambda out, g, y, t: g, "wrong"),
    "relu: minus": (RELU, lambda out, g, y, t: at(y == 0, -g, out), "wrong"),
    "relu: scaled": (RELU, lambda out, g, y, t: at(y == 0, 0.1 * g, out), "wrong"),
    "relu: random": (RELU, lambda out, g, y, t: at(y == 0, NOISE * g, out), "wrong"),
    "relu: one unit": (RELU, lambda out, g, y, t: out + (out == 0) * g * (torch.arange(26) == 3), "wrong"),
    "relu: honest": (RELU, lambda out, g, y, t: out, "pass"),
    "hardtanh: identity": (TANH, lambda out, g, *_: g, "wrong"),
    "hardtanh: random": (TANH, lambda out, g, y, *_: at(y.abs() == 1, NOISE * g, out), "wrong"),
    "leaky_relu: identity": (LEAKY, lambda out, g, *_: g, "wrong"),
    "leaky_relu: random": (LEAKY, lambda out, g, y, *_: at(y == 0, NOISE * g, out), "wrong"),
    "elu: identity": (ELU, lambda out, g, *_: at(HALF == 0, g, out), "wrong"),
    "elu of a result: random": (ELU_RESULT, lambda out, g, *_: at(HALF == 0, NOISE * g, out), "wrong"),
    "hardswish: zero": (SWISH, lambda out, g, y: at(y.abs() == 3, 0 * g, out), "wrong"),
    "hardsigmoid: scaled": (SIGMOID, lambda out, g, y: at(y.abs() == 3, g / 6, out), "wrong"),
    "softshrink: identity": (SHRINK, lambda out, g, *_: g, "wrong"),
    "where: the other side": (("aten::where.self", MASK > 0, X, G), lambda out, m, x, y: at(m, y, x), "wrong"),
    "leaky_relu at few zeros": (
        ("aten::leaky_relu_backward", G, SPARSE, 0.1, False),
        lambda out, g, y, *_: at(y == 0, g, out),
        "undefined",
    ),
    "leaky_relu at few zeros: beyond": (
        ("aten::leaky_relu_backward", G, SPARSE, 0.1, False),
        lambda out, g, y, *_: at(y == 0, 1.5 * g, out),
        "wrong",
    ),
    "leaky_relu at few zeros: minus": (
        ("aten::leaky_relu_backward", G, SPARSE, 0.1, False),
        lambda out, g, y, *_: at(y == 0, -g, out),
        "wrong",
    ),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_verdict_on_an_operator(name):
    (op, *args), change, verdict = OPERATORS[name]
    device = PythonDevice(lambda op, args, kwargs: change(op(*args, **kwargs), *args))
    found = judge_call(make_call(op, *args), device)
    assert found.verdict == verdict, (found.worst.reason, found.notes)
    function = getattr(aten, op[6:].partition(".")[0])
    function = getattr(function, op.partition(".")[2] or "default")
    again = ulpscope.judge_call(function, args, {}, change(function(*args), *args))
    assert again.verdict == verdict, again.sentence


# ---- callables -----------------------------------------------------------------------


def masked(x, m):
    return (x * x).masked_fill(m == 0, 0)


def distance(x, y):
    return (x - y).abs().mean(1, keepdim=True)


def pooled(x):
    return F.max_pool2d(x, 2)


def relu_of_product(x, w):
    return (x @ w).relu()


IMAGE = torch.randint(0, 4, (2, 3, 12, 12), generator=torch.Generator().manual_seed(SEED)).float()
SMALL = normal(2, 3, 6, 6)
ROWS = X * (torch.arange(40) % 3 > 0).float()[:, None]  # every third row is padding
W, GW = normal(26, 26, seed=8), normal(40, 26, seed=9)


def product_gradient(slope_at_zero):
    """What a device computes whose ReLU has this slope at zero."""

    def run(x, w, g):
        z = x @ w
        return (g * at(z == 0, slope_at_zero, (z > 0).float())) @ w.t()

    return run


WRONG = {
    "relu lets dead units learn": (gradient(F.relu), (HALF, G), lambda x, g: g),
    "relu6 lets dead units learn": (gradient(F.relu6), (HALF, G), lambda x, g: g),
    "leaky_relu is the identity": (gradient(F.leaky_relu), (HALF, G), lambda x, g: g),
    "relu is random at zero": (gradient(F.relu), (SPARSE, G), lambda x, g: at(x == 0, NOISE * g, g * (x > 0))),
    "a mask is ignored": (gradient(masked), (X, MASK, G), lambda x, m, g: 2 * x * g),
    "a mask is turned": (gradient(masked), (X, MASK, G), lambda x, m, g: 2 * x * g * (m == 0)),
    "a scaled mask is ignored": (gradient(masked), (X, MASK / 0.9, G), lambda x, m, g: 2 * x * g),
    "abs is random at many zeros": (
        gradient(torch.abs),
        (STEPS, G),
        lambda x, g: at(x == 0, (2 * torch.rand(40, 26) - 1) * g, g * x.sign()),
    ),
    "abs is twice too large at zero": (gradient(torch.abs), (SPARSE, G), lambda x, g: at(x == 0, 2 * g, g * x.sign())),
    "pooling's gradient is random at ties": (
        gradient(pooled),
        (IMAGE, SMALL),
        lambda x, g: gradient(pooled)(x, g) * torch.rand(x.shape),
    ),
    "padded rows learn": (gradient(relu_of_product), (ROWS, W, GW), product_gradient(1.0)),
    "padded rows learn backwards": (gradient(relu_of_product), (ROWS, W, GW), product_gradient(-1.0)),
    "amax gives every maximum all": (
        gradient(lambda x: x.amax(-1)),
        (STEPS, G[:, 0]),
        lambda x, g: at(x == x.amax(-1, keepdim=True), g[:, None], 0 * x),
    ),
    "amin gives every minimum all": (
        gradient(lambda x: x.amin(0)),
        (STEPS, G[0]),
        lambda x, g: at(x == x.amin(0), g, 0 * x),
    ),
    "the largest of all, each in full": (
        gradient(torch.max),
        (STEPS, G[0, 0]),
        lambda x, g: at(x == x.max(), g, 0 * x),
    ),
    "max_pool2d gives every maximum all": (
        gradient(pooled),
        (IMAGE, SMALL),
        lambda x, g: at(x == F.interpolate(pooled(x), scale_factor=2), F.interpolate(g, scale_factor=2), 0 * x),
    ),
    "l1 is one-sided and scaled": (
        gradient(distance),
        (STEPS, STEPS.roll(1, 0), G[:, :1]),
        lambda x, y, g: g / 26 * at(x > y, 1.0, at(x == y, 1.5, -1.0)),
    ),
}
OPEN = {
    "relu at few zeros": (gradient(F.relu), (SPARSE, G), lambda x, g: g * (x >= 0)),
    "relu at one zero": (
        gradient(F.relu),
        (X.clone().index_fill(0, torch.tensor(0), 0.0)[:1, :1], G[:1, :1]),
        lambda x, g: g,
    ),
    "abs at many zeros": (gradient(torch.abs), (STEPS, G), lambda x, g: at(x >= 0, g, -g)),
    "l1 of equal values": (
        gradient(distance),
        (STEPS, STEPS.roll(1, 0), G[:, :1]),
        lambda x, y, g: g / 26 * at(x >= y, 1.0, -1.0),
    ),
    "clamp on a bound": (gradient(lambda x: x.clamp(-1, 1)), (CLIPPED, G), lambda x, g: g * (x.abs() < 1)),
    "amax of ties": (
        gradient(lambda x: x.amax(-1)),
        (STEPS, G[:, 0]),
        lambda x, g: torch.zeros_like(x).scatter(1, x.argmax(1, keepdim=True), g[:, None]),
    ),
    "maximum of ties": (gradient(torch.maximum), (STEPS, STEPS.roll(1, 0), G), lambda x, y, g: g * (x >= y)),
    "max_pool2d of ties": (
        gradient(pooled),
        (IMAGE, SMALL),
        lambda x, g: gradient(pooled)(x.flip(-1), g.flip(-1)).flip(-1),
    ),
}
PASS = {
    "relu on zeros": (gradient(F.relu), (HALF, G), lambda x, g: g * (x > 0)),
    "abs on zeros": (gradient(torch.abs), (STEPS, G), lambda x, g: g * x.sign()),
    "clamp on its bounds": (gradient(lambda x: x.clamp(-1, 1)), (CLIPPED, G), lambda x, g: g.clone()),
    "amax shares evenly": (gradient(lambda x: x.amax(-1)), (STEPS, G[:, 0]), gradient(lambda x: x.amax(-1))),
    "a mask": (gradient(masked), (X, MASK, G), lambda x, m, g: 2 * x * m * g),
    "a product on padded rows": (gradient(relu_of_product), (ROWS, W, GW), product_gradient(0.0)),
}
FEW = ("relu at few zeros",)
KINDS = {"wrong": WRONG, "undefined": OPEN, "pass": PASS}


@pytest.mark.parametrize("kind, name", [(kind, name) for kind, cases in KINDS.items() for name in cases])
def test_verdict(kind, name):
    torch.manual_seed(SEED)
    function, args, device = KINDS[kind][name]
    verdict = ulpscope.judge_call(function, args, {}, device(*args))
    assert verdict.verdict == kind, verdict.sentence
    said = [n for n in verdict.notes if "excused: a corner" in n]
    assert bool(said) == (kind == "undefined" and name not in FEW), verdict.notes


class DeadUnitsLearn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.relu()

    @staticmethod
    def backward(ctx, g):
        return g


@pytest.mark.parametrize("x", [X, HALF, Y])
def test_gradients_of_check_call(x):
    bad = ulpscope.check_call(DeadUnitsLearn.apply, (x,), reference=F.relu, backward=True)
    assert bad.verdict == "wrong", bad.sentence
    assert ulpscope.check_call(F.relu, (x,), backward=True).passed


def test_a_float_mask_of_check_call():
    def ignores(x, m):
        return masked(x.detach(), m) + (x * x - (x * x).detach())

    bad = ulpscope.check_call(ignores, (X, MASK), reference=masked, backward=True)
    assert bad.verdict == "wrong", bad.sentence


def test_dead_units_of_a_whole_program_do_not_learn(tmp_path):
    """An MLP that was captured, checked on a device whose ReLU hands its gradient on."""
    net = torch.nn.Sequential(torch.nn.Linear(12, 24), torch.nn.ReLU(), torch.nn.Linear(24, 3))
    with ulpscope.capture(tmp_path / "trace", steps="0"):
        net(normal(32, 12)).square().mean().backward()
    relu = "threshold_backward"
    run = check(tmp_path / "trace", tmp_path / "bad", "--ops", relu, fault=f"{relu}=identity")
    assert run.returncode == 1 and verdicts(tmp_path / "bad") == {(f"aten::{relu}", "wrong"): 1}
    assert check(tmp_path / "trace", tmp_path / "good", "--ops", relu).returncode == 0
