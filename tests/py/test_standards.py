# SPDX-License-Identifier: Apache-2.0
"""Standards by name: each rule against the peer's own code where torch has it, else
against a slow definition in numpy. Operands: random, special and almost equal values in
every dtype, strided as well. Each comparison has a planted error that it must see."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch._dynamo.utils import same

from ulpscope import _core

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
SHAPES = [(), (1,), (7,), (3, 5), (2, 3, 1, 1), (600,), (33, 40)]
SPECIALS = [0.0, -0.0, math.nan, math.inf, -math.inf, 1e-8, 6e-8, 65504.0, 1e-40, 3e38, 1.0]


def opinion(name, device, **operands):
    return _core.Standard(name).judge(device, **operands)


def passes(name, device, **operands):
    verdict = opinion(name, device, **operands)["verdict"]
    assert verdict in ("pass", "wrong")
    return verdict == "pass"


# ---- operands ------------------------------------------------------------------------


def values(rng, shape, scale):
    """float64 numbers of a few orders of magnitude."""
    n = math.prod(shape)
    x = rng.standard_normal(n) * scale * 2.0 ** rng.integers(-4, 4, n)
    return torch.from_numpy(x).reshape(shape)


def off(rng, truth, size):
    """truth with relative errors of about `size`, of which most may be none at all."""
    n = truth.numel()
    error = rng.standard_normal(n) * (rng.random(n) >= rng.choice([0.0, 0.9, 1.0]))
    return truth * (1 + torch.from_numpy(error * size).reshape(truth.shape))


def with_specials(rng, *tensors):
    """The same special values at the same places of some of the tensors."""
    out = [t.clone() for t in tensors]
    n = out[0].numel()
    for _ in range(int(rng.integers(0, 4)) if n else 0):
        i, v = int(rng.integers(0, n)), float(rng.choice(SPECIALS))
        for t in out:
            if rng.random() < 0.7:
                t.view(-1)[i] = v
    return out


def strided(rng, t):
    """The same values, sometimes not side by side."""
    if t.ndim == 0 or rng.random() < 0.5:
        return t
    wide = torch.zeros(*t.shape[:-1], t.shape[-1] * 2, dtype=t.dtype)
    wide[..., ::2] = t
    return wide[..., ::2]


def float_operands(seed, dtype):
    """device, native (both in dtype), reference (float64), yardstick (float32)."""
    rng = np.random.default_rng(seed)
    shape = SHAPES[seed % len(SHAPES)]
    scale = float(10.0 ** rng.integers(-9, 4)) if seed % 3 else 1.0
    truth = values(rng, shape, scale)
    size = float(10.0 ** rng.uniform(-9, 0))
    device, native = off(rng, truth, size), off(rng, truth, float(rng.choice([0, 1e-7, 1e-3])))
    device, native, truth = with_specials(rng, device, native, truth)
    yardstick = truth.float()
    parts = device.to(dtype), native.to(dtype), truth, yardstick
    return tuple(strided(rng, t) for t in parts)


def integer_operands(seed, dtype):
    rng = np.random.default_rng(seed)
    shape = SHAPES[seed % len(SHAPES)]
    top = 2 if dtype == torch.bool else 127
    a = torch.from_numpy(rng.integers(0, top, math.prod(shape))).reshape(shape).to(dtype)
    b = a.clone()
    if rng.random() < 0.6 and b.numel():
        i = int(rng.integers(0, b.numel()))
        b.view(-1)[i] = ~b.view(-1)[i] if dtype == torch.bool else b.view(-1)[i] - 1
    if dtype == torch.int64 and rng.random() < 0.5:
        a, b = a + (1 << 60), b + (1 << 60)
    return strided(rng, a), strided(rng, b)


def both(rounds, right):
    """A comparison that never fails, or never passes, tests nothing."""
    assert 0 < sum(right) < rounds


# ---- against torch -------------------------------------------------------------------


def assert_close_says(a, b):
    try:
        torch.testing.assert_close(a, b)
        return True
    except AssertionError:
        return False


PEERS = {
    "torch-close": assert_close_says,
    "allclose:1e-3,1e-3": lambda a, b: torch.allclose(a, b, atol=1e-3, rtol=1e-3),
    "allclose:1e-8,1e-5": lambda a, b: torch.allclose(a, b, atol=1e-8, rtol=1e-5),
    "allclose:0,0.01": lambda a, b: torch.allclose(a, b, atol=0, rtol=0.01),
    "allclose:0,0": lambda a, b: torch.allclose(a, b, atol=0, rtol=0),
    "kernelbench": lambda a, b: torch.allclose(
        b, a, **dict.fromkeys(
            ("atol", "rtol"), 1e-2 if a.dtype in (torch.float16, torch.bfloat16) else 1e-4)),
}


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
@pytest.mark.parametrize("name", PEERS)
def test_closeness_is_torch_s(name, dtype):
    found = []
    for seed in range(210):
        make = float_operands if dtype.is_floating_point else integer_operands
        device, native = make(seed, dtype)[:2]
        want = PEERS[name](device, native)
        assert passes(name, device, native=native) == want, (seed, device, native)
        found.append(want)
    both(210, found)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_closeness_is_torch_s_on_the_edge(dtype):
    """Pairs whose distance is the tolerance to the last bit, one by one."""
    gen = torch.Generator().manual_seed(1)
    b = (torch.rand(4000, generator=gen, dtype=torch.float64) * 4 - 2).to(dtype)
    a = (b.double() * (1 + 1e-3) + 1e-3 * b.double().sign()).to(dtype)
    want = torch.isclose(a, b, atol=1e-3, rtol=1e-3)
    got = [passes("allclose:1e-3,1e-3", x, native=y) for x, y in zip(a, b)]
    assert got == want.tolist()
    both(4000, got)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_inductor_same_is_torch_dynamo_s(dtype):
    found = []
    for seed in range(210):
        if dtype.is_floating_point:
            device, native, truth, _ = float_operands(seed, dtype)
        else:
            (device, native), truth = integer_operands(seed, dtype), None
        for tol in (1e-4, 3e-2):
            want = same(native, device, truth, tol=tol, log_error=lambda *a, **k: None)
            name = "inductor-same" if tol == 1e-4 else f"inductor-same:{tol}"
            got = passes(name, device, native=native, reference=truth)
            assert got == want, (seed, tol, device, native, truth)
            found.append(want)
    both(420, found)


def test_a_float32_reference_is_no_float64_one():
    """`same` looks at the RMSE only where it has a float64 reference."""
    truth = torch.linspace(1, 2, 5000, dtype=torch.float64)
    native, device = truth.float() * (1 + 1e-3), truth.float() * (1 - 1e-3)
    assert passes("inductor-same", device, native=native, reference=truth)
    assert not passes("inductor-same", device, native=native, reference=truth.float())


# ---- against numpy -------------------------------------------------------------------


def ulps_by_numpy(a, b, limit):
    try:
        np.testing.assert_array_max_ulp(a.numpy(), b.numpy(), limit)
        return True
    except AssertionError:
        return False


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_ulp_is_numpy_s(dtype):
    found = []
    for seed in range(210):
        device, _, truth, _ = float_operands(seed, dtype)
        for k in (0, 1, 64):
            rounded = truth.numpy().astype(device.numpy().dtype)  # torch rounds twice to float16
            want = ulps_by_numpy(device, torch.from_numpy(np.array(rounded)), k)
            got = passes(f"ulp:{k}", device, reference=truth)
            assert got == want, (seed, k, device, truth)
            found.append(want)
    both(630, found)


def test_ulp_counts_bfloat16_places():
    truth = torch.tensor([1.0, 2.0, -3.0], dtype=torch.float64)
    raw = truth.bfloat16().view(torch.int16) + torch.tensor([0, 3, 1], dtype=torch.int16)
    found = opinion("ulp:2", raw.view(torch.bfloat16), reference=truth)
    assert found["metrics"] == {"max_ulp": 3.0, "beyond": 1.0}
    assert found["verdict"] == "wrong"


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_bitwise_is_about_bytes(dtype):
    found = []
    for seed in range(60):
        make = float_operands if dtype.is_floating_point else integer_operands
        device, native = make(seed, dtype)[:2]
        want = device.contiguous().numpy(force=True).tobytes() if dtype != torch.bfloat16 else (
            device.contiguous().view(torch.int16).numpy().tobytes())
        have = native.contiguous().numpy(force=True).tobytes() if dtype != torch.bfloat16 else (
            native.contiguous().view(torch.int16).numpy().tobytes())
        assert passes("bitwise", device, native=native) == (want == have)
        assert passes("bitwise", device, native=device.clone())
        found.append(want == have)
    assert not all(found)


def test_minus_zero_has_other_bits_and_the_same_value():
    zero, minus = torch.zeros(3), -torch.zeros(3)
    assert not passes("bitwise", minus, native=zero)
    assert passes("torch-close", minus, native=zero)
    assert passes("ulp:0", minus, reference=zero)


def cosine_by_numpy(a, b):
    a, b = a.double().numpy().ravel(), b.double().numpy().ravel()
    zeros = [not abs(x).max() for x in (a, b)]
    if np.isnan(a).any() or np.isnan(b).any():
        return math.nan
    if any(zeros):
        return float(all(zeros))
    a, b = a / abs(a).max(), b / abs(b).max()
    return float(np.clip(np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b), -1, 1))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", FLOATS)
def test_cosine(dtype):
    found = []
    for seed in range(210):
        device, _, truth, _ = float_operands(seed, dtype)
        want = cosine_by_numpy(device, truth)
        got = opinion("cosine:0.9", device, reference=truth)
        assert got["metrics"]["cosine"] == pytest.approx(want, abs=1e-12, nan_ok=True)
        assert (got["verdict"] == "pass") == (got["metrics"]["cosine"] >= 0.9)
        found.append(got["verdict"] == "pass")
    both(210, found)


def ggml_by_numpy(a, b, limit):
    a, b = a.float().numpy().ravel(), b.float().numpy().ravel()
    top = np.finfo(np.float32).max
    for x, y in zip(a, b):
        if np.isnan(x) or np.isnan(y):
            return False
        big = [np.isinf(v) or abs(v) == top for v in (x, y)]
        if any(big) and (not all(big) or np.signbit(x) != np.signbit(y)):
            return False
    error = np.sum(((a - b) * (a - b)).astype(np.float64))
    return not error / np.sum((a * a).astype(np.float64)) > limit


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", FLOATS)
def test_ggml_nmse(dtype):
    found = []
    for seed in range(210):
        device, native = float_operands(seed, dtype)[:2]
        for op, limit in (("aten::add.Tensor", 1e-7), ("aten::mm", 5e-4), (None, 1e-7)):
            want = ggml_by_numpy(device, native, limit)
            assert passes("ggml-nmse", device, native=native, op=op) == want, (seed, op)
            found.append(want)
    both(630, found)


def neuron_by_numpy(device, native, raised):
    d, n, r = (t.double().numpy().ravel() for t in (device, native, raised))
    e1, e2 = abs(d - r), abs(n - r)
    if not np.isfinite(np.sum(e1 * e1) + np.sum(e2 * e2)):
        return False
    top = max(e1.max(), e2.max())
    h1, h2 = (np.histogram(e, 100, (0, top if top else 1))[0] / e.size for e in (e1, e2))
    over = lambda x, y: 0.0 if x == 0 else x / y if y else math.inf  # noqa: E731
    sigma, worst = over(np.linalg.norm(e1), np.linalg.norm(e2)), over(e1.max(), e2.max())
    return (np.sum(np.sqrt(h1 * h2)) >= 0.99 or sigma <= 1) and worst < 5 and sigma < 3


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", FLOATS)
def test_neuron_3way(dtype):
    found = []
    for seed in range(210):
        device, native, truth, yardstick = float_operands(seed, dtype)
        raised = yardstick if dtype.itemsize == 2 else truth
        want = neuron_by_numpy(device, native, raised)
        got = opinion("neuron-3way", device, native=native, reference=truth, yardstick=yardstick)
        assert (got["verdict"] == "pass") == want, (seed, got)
        found.append(want)
    both(210, found)
