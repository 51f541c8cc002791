# SPDX-License-Identifier: Apache-2.0
"""Fake quantization and round trips through few bits: an element near a tie may fall to either
side, and every planted bug is seen. Every case is (function, arguments, what the device
computes)."""

import pytest
import torch
from calls import make_call

import ulpscope
from ulpscope.executors.device import PythonDevice
from ulpscope.session.judging import judge_call

aten = torch.ops.aten
SEED = 17
E4M3 = torch.float8_e4m3fn


def normal(*shape, seed=SEED):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


X, G = normal(200, 120), normal(200, 120, seed=SEED + 1)
GRID = (8 * X).round() / 8  # with a scale of 1/4: half of it exact ties
S, Z = torch.tensor([0.03]), torch.tensor([3.0])
SCALES = torch.rand(120, generator=torch.Generator().manual_seed(1)) / 20 + 0.01
ZEROS = torch.randint(-3, 4, (120,), generator=torch.Generator().manual_seed(2))
ROUND = torch.round


def away(x):
    return x.sign() * (x.abs() + 0.5).floor()


def fake(x, scale, zero, low=-128, high=127, round=ROUND, by=torch.div):
    at = (round(by(x, scale)) + zero).clamp(low, high)
    return (at - zero) * scale


def times_inverse(x, scale):
    return x * (1 / torch.as_tensor(scale))


def mask(x, scale, zero, low=-128, high=127, round=ROUND, by=torch.div):
    at = round(by(x, scale)) + zero
    return (at >= low) & (at <= high)


def both(*args, **kwargs):
    return fake(*args, **kwargs), mask(*args, **kwargs)


def gradients(g, x, s, z, low, high, factor, by=torch.div, round=ROUND):
    """Of a learnt scale and zero point."""
    at = round(by(x, s) + z)
    inside, off = (at >= low) & (at <= high), at.clamp(low, high) - z
    ds = torch.where(inside, off - by(x, s), off) * g * factor
    dz = torch.where(inside, 0.0, -s) * g * factor
    return g * inside, ds.sum().reshape(1), dz.sum().reshape(1)


def observed(
    x, on, fake_on, low, high, scale, zero, c, lo, hi, axis, by_row, symmetric, steps=None, moves=True, round=ROUND
):
    """A fake quantization that watches the range, one number of each kind, from zero."""
    if moves:
        low += c * (x.min() - low)
        high += c * (x.max() - high)
    scale.copy_((high - low) / (steps or hi - lo))
    zero.copy_((lo - low / scale).round())
    return both(x, scale, zero, lo, hi, round=round)


# name: (operator, arguments, {what a device may compute: verdict})
ON, ONE = torch.tensor([1]), torch.ones(1)
OBSERVED = (
    "aten::_fused_moving_avg_obs_fq_helper",
    (X, ON, ON, -ONE, 2 * ONE, ONE.clone(), ON.int(), 0.5, 0, 255, 0, False, False),
)
PER_TENSOR = ("aten::fake_quantize_per_tensor_affine_cachemask", (X, 0.03, 3, -128, 127))
TIES = ("aten::fake_quantize_per_tensor_affine_cachemask", (GRID, 0.25, 3, -7, 7))
PER_CHANNEL = ("aten::fake_quantize_per_channel_affine_cachemask", (X, SCALES, ZEROS.int(), 1, -128, 127))
LEARNT = ("aten::_fake_quantize_learnable_per_tensor_affine", (X, S, Z, -128, 127, 1.0))
BACKWARD = ("aten::_fake_quantize_learnable_per_tensor_affine_backward", (G, X, S, Z, -64, 63, 0.5))
MASKED = ("aten::fake_quantize_per_tensor_affine_cachemask_backward", (G, X > 0))
bf16 = lambda t: t.bfloat16().float()  # noqa: E731
OPERATORS = {
    "divides": (PER_TENSOR, lambda x, *a: both(x, torch.tensor(0.03), *a[1:]), "pass"),
    "times the inverse": (PER_TENSOR, lambda x, *a: both(x, torch.tensor(0.03), *a[1:], by=times_inverse), "pass"),
    "wrong zero point": (PER_TENSOR, lambda x, s, z, *a: both(x, s, 2, *a), "wrong"),
    "range one too short": (PER_TENSOR, lambda x, s, z, lo, hi: both(x, s, z, lo, 100), "wrong"),
    "range one too long": (TIES, lambda x, s, z, lo, hi: both(x, s, z, lo, hi + 1), "wrong"),
    "scale in bfloat16": (PER_TENSOR, lambda x, s, *a: both(x, bf16(torch.tensor(s)), *a), "wrong"),
    "ties to even": (TIES, lambda x, s, *a: both(x, s, *a, by=times_inverse), "pass"),
    "ties away": (TIES, lambda x, s, *a: both(x, s, *a, round=away), "wrong"),
    "ties cut off": (TIES, lambda x, s, *a: both(x, s, *a, round=torch.trunc), "wrong"),
    "ties of the sum": (TIES, lambda x, s, z, lo, hi: both(x, s, z, lo, hi, round=lambda t: ROUND(t + z) - z), "wrong"),
    "mask of the other side": (PER_TENSOR, lambda x, s, *a: (fake(x, s, *a), ~mask(x, s, *a)), "wrong"),
    "by channel": (PER_CHANNEL, lambda x, s, z, d, *a: both(x, s, z, *a, by=times_inverse), "pass"),
    "by the channels backwards": (PER_CHANNEL, lambda x, s, z, d, *a: both(x, s.flip(0), z.flip(0), *a), "wrong"),
    "zero point of the next": (PER_CHANNEL, lambda x, s, z, d, *a: both(x, s, z.roll(1), *a), "wrong"),
    "learnt": (LEARNT, lambda x, s, z, lo, hi, f: fake(x, s, z, lo, hi), "pass"),
    "learnt, no zero point": (LEARNT, lambda x, s, z, lo, hi, f: fake(x, s, 0, lo, hi), "wrong"),
    "its gradient": (BACKWARD, gradients, "pass"),
    "its gradient, times the inverse": (BACKWARD, lambda *a: gradients(*a, by=times_inverse), "pass"),
    "its gradient, factor missing": (BACKWARD, lambda *a: gradients(*a[:-1], 1.0), "wrong"),
    "its gradient, clipped ones left out": (
        BACKWARD,
        lambda *a: (*gradients(*a)[:1], gradients(a[0] * mask(*a[1:6]), *a[1:])[1], gradients(*a)[2]),
        "wrong",
    ),
    "observed": (OBSERVED, observed, "pass"),
    "observed, one step more": (OBSERVED, lambda *a: observed(*a, steps=256), "wrong"),
    "observed, range not moved": (OBSERVED, lambda *a: observed(*a, moves=False), "wrong"),
    "observed, cut off": (OBSERVED, lambda *a: observed(*a, round=torch.trunc), "wrong"),
    "the mask's gradient": (MASKED, lambda g, m: g * m, "pass"),
    "the mask's gradient, passed on": (MASKED, lambda g, m: g, "wrong"),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_verdict_on_an_operator(name):
    (op, args), computes, verdict = OPERATORS[name]
    device = PythonDevice(lambda op, args, kwargs: computes(*args, **kwargs))
    found = judge_call(make_call(op, *args), device)
    accused = ("wrong", "reduced") if verdict == "wrong" else (verdict,)
    assert found.verdict in accused, (found.worst and found.worst.reason, found.reason)


def through_int8(x, scale):
    return (x / scale).round().clamp(-128, 127).to(torch.int8).float() * scale


def through_float8(x):
    return (x * 3.3).to(E4M3).float() / 3.3


def dynamic(x):
    scale = x.abs().amax(1, keepdim=True) / 127
    return (x / scale).round().clamp(-128, 127) * scale


def float8_product(x, y):
    return (x * 0.7).to(E4M3).float() @ (y * 0.7).to(E4M3).float()


def fake_by_channel(x, s, z):
    return torch.fake_quantize_per_channel_affine(x, s, z, 1, -128, 127)


def straight_through(x, scale):
    y = x / scale
    return (y + (y.round() - y).detach()) * scale


def wide(function):
    return lambda *args: function(*(a.double() if a.is_floating_point() else a for a in args)).float()


def in_bfloat16(x, y):
    return (x.exp().bfloat16() * 1.1 + y.bfloat16()).float()


def bfloat16_product(x, y):
    return (x.bfloat16() @ y.bfloat16()).float()


POWER = torch.tensor(0.25)
CALLABLES = {
    "bfloat16": (lambda x: x.bfloat16().float() * 3, (X,), lambda x: x.bfloat16().float() * 3, "pass"),
    "bfloat16 for nothing": (lambda x: x * 3, (X,), lambda x: x.bfloat16().float() * 3, "wrong"),
    "in bfloat16": (in_bfloat16, (X, G), in_bfloat16, "pass"),
    "in bfloat16, cut off": (in_bfloat16, (X, G), lambda x, y: in_bfloat16(x, y) * (1 - 2.0**-8), "wrong"),
    "in float16 for bfloat16": (lambda x: x.bfloat16().float() * 3, (X,), lambda x: x.half().float() * 3, "wrong"),
    "bfloat16 product": (
        bfloat16_product,
        (X, G.t().contiguous()),
        lambda x, y: (bf16(x) @ bf16(y)).bfloat16().float(),
        "pass",
    ),
    "bfloat16 product, wrong sum": (
        bfloat16_product,
        (X, G.t().contiguous()),
        lambda x, y: (bf16(x)[:, :-1] @ bf16(y)[:-1]).bfloat16().float(),
        "wrong",
    ),
    "int8": (through_int8, (X, S), wide(through_int8), "pass"),
    "int8 by a power of two": (through_int8, (X, POWER), through_int8, "pass"),
    "int8, times the inverse": (through_int8, (X, S), lambda x, s: through_int8(x * (1 / s), 1.0) * s, "pass"),
    "int8, -127 at least": (through_int8, (4 * X, S), lambda x, s: through_int8(x.clamp(min=-127 * s), s), "wrong"),
    "int8, ties away": (through_int8, (GRID, POWER), lambda x, s: away(x / s).clamp(-128, 127) * s, "wrong"),
    "int8, scale in bfloat16": (through_int8, (X, S), lambda x, s: through_int8(x, bf16(s)), "wrong"),
    "float8": (lambda x: x.to(E4M3).float(), (X,), lambda x: x.to(E4M3).float(), "pass"),
    "float8, scaled": (through_float8, (X,), wide(through_float8), "pass"),
    "float8, e5m2": (through_float8, (X,), lambda x: (x * 3.3).to(torch.float8_e5m2).float() / 3.3, "wrong"),
    "float8, cut off": (through_float8, (X,), lambda x: through_float8(x * (1 - 2.0**-5)), "wrong"),
    "dynamic": (dynamic, (X,), wide(dynamic), "pass"),
    "dynamic, 128 for 127": (dynamic, (X,), lambda x: through_int8(x, x.abs().amax(1, keepdim=True) / 128), "wrong"),
    "float8 product": (float8_product, (X, G.t().contiguous()), wide(float8_product), "pass"),
    "float8 product, e5m2": (
        float8_product,
        (X, G.t().contiguous()),
        lambda x, y: float8_product(x.to(torch.float8_e5m2).float(), y),
        "wrong",
    ),
    "by channel": (fake_by_channel, (X, SCALES, ZEROS.int()), fake_by_channel, "pass"),
    "by channel, zero point": (
        fake_by_channel,
        (X, SCALES, ZEROS.int()),
        lambda x, s, z: fake_by_channel(x, s, z + 1),
        "wrong",
    ),
    "straight through": (straight_through, (X, S), wide(straight_through), "pass"),
}


@pytest.mark.parametrize("name", CALLABLES)
def test_verdict(name):
    function, args, device, verdict = CALLABLES[name]
    found = ulpscope.judge_call(function, args, {}, device(*args))
    accused = ("wrong", "reduced") if verdict == "wrong" else (verdict,)
    assert found.verdict in accused, found.sentence


@pytest.mark.parametrize("seed", range(4))
def test_elements_near_ties_fall_to_either_side(seed):
    """Of 20,000 elements within few roundings of a tie about a third fall otherwise."""
    ties = torch.randint(-120, 120, (20000,), generator=torch.Generator().manual_seed(seed)) + 0.5
    x = ties * S * (1 + 2.0**-23 * normal(20000, seed=seed))
    out = through_int8(x * (1 / S), 1.0) * S
    assert int((out != through_int8(x, S)).sum()) > 500
    found = ulpscope.judge_call(through_int8, (x, S), {}, out)
    assert found.passed, found.sentence
    assert any("excused" in note for note in found.notes)
    apart = ties * S * (1 - 2.0**-14)
    found = ulpscope.judge_call(through_int8, (apart, S), {}, through_int8(apart * (1 + 2.0**-13), S))
    assert found.verdict == "wrong", found.sentence
