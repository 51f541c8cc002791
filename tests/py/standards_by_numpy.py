# SPDX-License-Identifier: Apache-2.0
"""The standards' rules once more, by slow definitions in numpy, and operands on which to hold them to those."""

from __future__ import annotations

import math

import numpy as np
import torch


FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
SHAPES = [(), (1,), (7,), (3, 5), (2, 3, 1, 1), (600,), (33, 40)]
SPECIALS = [0.0, -0.0, math.nan, math.inf, -math.inf, 1e-8, 6e-8, 65504.0, 1e-40, 3e38, 1.0]


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


# ---- against numpy -------------------------------------------------------------------


def ulps_by_numpy(a, b, limit):
    try:
        np.testing.assert_array_max_ulp(a.numpy(), b.numpy(), limit)
        return True
    except AssertionError:
        return False


def cosine_by_numpy(a, b):
    a, b = a.double().numpy().ravel(), b.double().numpy().ravel()
    zeros = [not abs(x).max() for x in (a, b)]
    if np.isnan(a).any() or np.isnan(b).any():
        return math.nan
    if any(zeros):
        return float(all(zeros))
    a, b = a / abs(a).max(), b / abs(b).max()
    return float(np.clip(np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b), -1, 1))


def ggml_by_numpy(a, b, limit):
    a, b = a.float().numpy().ravel(), b.float().numpy().ravel()
    top = np.finfo(np.float32).max
    if np.isnan(a).any() or np.isnan(b).any():
        return False
    big = [np.isinf(x) | (abs(x) == top) for x in (a, b)]
    if (big[0] != big[1]).any() or (big[0] & (np.signbit(a) != np.signbit(b))).any():
        return False
    error = np.sum(((a - b) * (a - b)).astype(np.float64))
    return not error / np.sum((a * a).astype(np.float64)) > limit


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


# ---- the ascend rules, element by element --------------------------------------------
# numpy scalars, as the peer computes; bench/bench_standards_peer.py holds the C code to
# the peer's own.


def ascend_arrays(device, raised):
    """(device, raised) as the peer holds them: bfloat16 travels as float32."""
    low = device.dtype == torch.bfloat16
    return (device.float() if low else device).numpy().ravel(), raised.numpy().ravel()


def ascend_errors(device, raised):
    d, r = ascend_arrays(device, raised)
    eps = 2.0**-8 if device.dtype == torch.bfloat16 else np.finfo(r.dtype).eps
    absolute = np.abs(d - r)
    return absolute, absolute / (np.abs(r) + r.dtype.type(eps))


def v1_by_numpy(device, raised):
    """The steps of the first published rule, in their order."""
    low = device.dtype.itemsize == 2
    d, r = (x.astype(float) for x in ascend_arrays(device, raised))
    if d.size > 1:
        top = [np.max(np.abs(x)) for x in (d, r)]
        zero = [t <= np.finfo(float).eps for t in top]
        if zero[0] != zero[1]:
            return "error"
        if not zero[0]:
            a, b = d / top[0], r / top[1]
            cosine = np.dot(a, b) / (np.linalg.norm(a) * np.linalg.norm(b))
            if cosine <= 0.99:  # NaN goes on
                return "error"
    absolute, relative = ascend_errors(device, raised)
    if absolute.max() < 0.001:
        return "pass"
    share = {t: np.sum(relative < t) / relative.size > 1 - t for t in (0.01, 0.001, 0.0001)}
    if low:
        return "error" if not share[0.01] else "pass" if share[0.001] else "warning"
    return "error" if not share[0.001] else "pass" if share[0.0001] else "warning"


SMALL = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-10, torch.float32: 2.0**-20}
RTOL = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-20}
ATOL = {torch.float16: 2.0**-16, torch.bfloat16: 1e-16, torch.float32: 2.0**-30}
BENCH_ATOL = {torch.float16: 1e-16, torch.bfloat16: 1e-16, torch.float32: 2.0**-30}
LEAST = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-14}
LARGEST = {
    torch.float16: 65504.0,
    torch.bfloat16: 3.3895313892515355e38,
    torch.float32: float(np.finfo(np.float32).max),
}


def absolute_by_numpy(device, raised):
    dtype = device.dtype
    d, r = ascend_arrays(device, raised)
    absolute, relative = ascend_errors(device, raised)
    same = r.astype(d.dtype)
    for i in range(d.size):
        if np.isfinite(d[i]) and np.isfinite(same[i]):
            small = abs(r[i]) <= SMALL[dtype]
            bad = absolute[i] > ATOL[dtype] if small else relative[i] > RTOL[dtype]
        else:
            eps = 2.0**-8 if dtype == torch.bfloat16 else np.finfo(r.dtype).eps
            cut = [np.clip(x[i], -LARGEST[dtype], LARGEST[dtype]) for x in (d, same)]
            off = abs(d.dtype.type(cut[0]) - d.dtype.type(cut[1])) / (abs(r[i]) + r.dtype.type(eps))
            bad = not (off <= RTOL[dtype] or (np.isnan(d[i]) and np.isnan(same[i])))
        if bad:
            return "error"
    return "pass"


def ulps_by_definition(device, raised):
    p, least = {torch.float16: (10, -14), torch.bfloat16: (7, -126), torch.float32: (23, -126)}[device.dtype]
    d, r = ascend_arrays(device, raised)
    kind = np.float64 if device.dtype == torch.float32 else np.float32
    exponent = np.maximum(np.where(r == 0, 0, np.floor(np.log2(np.abs(r)))), least)
    return np.abs((d.astype(kind) - r).astype(kind) * np.exp2(-exponent + p).astype(kind))


def ratio_by_definition(device, second, least):
    """The ratio, None where only one side is Inf or NaN."""
    if np.isinf(device) or np.isinf(second):
        return math.nan if device == second else None
    if np.isnan(device) or np.isnan(second):
        return math.nan if np.isnan(device) and np.isnan(second) else None
    return device / max(second, least)


def ascend_ulp_by_numpy(device, second, raised):
    single = device.dtype == torch.float32
    ulps = [ulps_by_definition(x, raised) for x in (device, second)]
    many = [np.mean(u > (32 if single else 1)) for u in ulps]
    if ratio_by_definition(np.mean(ulps[0]), np.mean(ulps[1]), LEAST[device.dtype]) is None:
        return "error"
    few = np.mean(ulps[0]) < 64 or many[0] < 0.05 if single else many[0] < 0.001
    return "pass" if few or many[0] / max(many[1], LEAST[device.dtype]) < 1 else "error"


def benchmark_numbers(answer, raised):
    d, r = ascend_arrays(answer, raised)
    absolute, relative = ascend_errors(answer, raised)
    finite = np.isfinite(d) & np.isfinite(r.astype(d.dtype))
    small = finite & (np.abs(r) <= SMALL[answer.dtype])
    normal = finite & ~small
    off = np.sum(absolute[small] > BENCH_ATOL[answer.dtype]) / max(np.sum(small), 1)
    n = d.size
    mean = np.sum(np.square(absolute[normal]).astype(float)) / n
    rmse = math.sqrt(mean * (n / (np.sum(normal) + 0.0001) + 0.0001))
    worst = relative[normal].max() if normal.any() else 0.0
    return off, rmse, worst, relative[normal].astype(float).mean() if normal.any() else 0.0


def benchmark_by_numpy(device, second, raised, op):
    limits = {"add": (2, 2, 10, 2), "embedding": (2, 1.5, 5, 1.5), "mm": (2, 1.2, 2, 1.2)}[op]
    numbers = [benchmark_numbers(x, raised) for x in (device, second)]
    for ours, theirs, limit in zip(*numbers, limits):
        found = ratio_by_definition(ours, theirs, LEAST[device.dtype])
        if found is None or found > limit:
            return "error"
    return "pass"
