# SPDX-License-Identifier: Apache-2.0
"""Rows of the defects of msprobe: what they are written with, and those of its verdicts."""

import re
from pathlib import Path

import torch

import ulpscope
import ulpscope.sim as sim
from ulpscope import _core

ROOT = Path(__file__).resolve().parents[2]
FLAGGED = {"wrong", "reduced", "nonfinite", "intermittent", "crashed", "timeout"}
ROWS = {}


def row(number):
    """What must hold of the defect of this number."""

    def kept(function):
        assert number not in ROWS
        ROWS[number] = function
        return function

    return kept


def holds(fn, args, right, *wrong, theirs=None):
    """`right` passes and each of `wrong` is flagged. `theirs`: (outputs, status) by msprobe's
    first rule, which errs there."""
    said = ulpscope.judge_call(fn, args, {}, right, cause=False)
    assert said.verdict == "pass", said.sentence
    for bad in wrong:
        said = ulpscope.judge_call(fn, args, {}, bad, cause=False)
        assert said.verdict in FLAGGED, said.sentence
    for outputs, status in theirs or []:
        assert ulpscope.judge_call(fn, args, {}, outputs, standard="ascend-v1").status == status


def put(tensor, value, index=7):
    """A copy with one other element."""
    out = tensor.contiguous().clone()
    out.view(-1)[index] = value
    return out


def truncated(x):
    """bfloat16 with what does not fit cut off."""
    return (x.float().view(torch.int32) & -65536).view(torch.float32).bfloat16()


# ---- verdicts ------------------------------------------------------------------------------


@row(1)
def nan_or_inf_among_many(_):
    x = torch.randn(100_000).half()
    nan, inf = (put(x.tanh(), float(v)) for v in ("nan", "inf"))
    holds(torch.tanh, (x,), x.tanh(), nan, inf, put(x.tanh(), -float("inf")), theirs=[(nan, "pass"), (inf, "pass")])


@row(2)
def rounded_bfloat16(_):
    x = torch.randn(10_000).bfloat16()
    right = x.double().exp().bfloat16()
    holds(torch.exp, (x,), right, truncated(x.float().exp()), theirs=[(right, "warning")])


@row(3)
def gradients_that_are_zero(_):
    """There is nothing to be right about: nobody is accused, but of more than roundings."""
    x, w = torch.randn(32, 64), torch.ones(64)
    _, mean, rstd = torch.native_layer_norm(x, [64], w, None, 1e-5)
    args = (torch.ones_like(x), x, [64], mean, rstd, w, None, [True, False, False])
    gradient = torch.ops.aten.native_layer_norm_backward
    right = gradient(*args)
    said = ulpscope.judge_call(gradient, args, {}, right, cause=False)
    assert said.verdict not in FLAGGED and 0 < right[0].abs().max() < 1e-5, said.sentence
    wrong = (1e-4 * torch.randn(32, 64), None, None)
    assert ulpscope.judge_call(gradient, args, {}, wrong, cause=False).verdict == "wrong"
    assert ulpscope.judge_call(gradient, args, {}, right, standard="ascend-v1").status == "error"


@row(4)
def few_elements_far_off(_):
    x = torch.rand(100_000).half() + 1
    some = (x * 3).half()
    some[:900] *= 1.5
    holds(lambda x: x * 3, (x,), x * 3, some, put(x * 3, 6.0), theirs=[(some, "warning")])


@row(5)
def small_values_lost(_):
    x = (torch.randn(100_000) * 0.1).half()
    right = torch.tanh(x)
    lost = torch.where(right.abs() < 5e-4, 0, right)
    assert 100 < int((lost != right).sum()) < 1000
    holds(torch.tanh, (x,), right, lost, theirs=[(lost, "pass")])


@row(6)
def a_verdict_without_a_second_device(_):
    a, b = torch.randn(32, 256), torch.randn(256, 32)
    assert ulpscope.check_call(torch.mm, (a, b), device="sim:0").verdict == "pass"
    with sim.fault("aten::mm", "tf32"):
        assert ulpscope.check_call(torch.mm, (a, b), device="sim:0", cause=False).verdict == "reduced"


@row(7)
def every_dtype(_):
    for dtype in (torch.int16, torch.uint16, torch.uint32, torch.uint64):
        x = torch.randint(0, 100, (500,)).to(dtype)
        holds(torch.clone, (x,), x, put(x, int(x[7]) + 1))
    for dtype in (torch.complex64, torch.complex128, torch.float64):
        x = torch.randn(500, dtype=dtype)
        right, narrow = x * x, torch.float32 if dtype == torch.float64 else torch.complex32
        holds(torch.square, (x,), right, right.to(narrow).to(dtype), right * 1.0001)


def widened_as_there(x):
    """What msprobe makes of float8: subnormals near 2^-127, NaN and Inf numbers."""
    bits, (shift, bias) = x.view(torch.uint8).int(), (3, 7) if x.dtype == torch.float8_e4m3fn else (2, 15)
    exponent, mantissa = (bits & 127) >> shift, (bits & (1 << shift) - 1) / 2.0**shift
    sign = 1 - 2.0 * (bits >> 7)
    return (
        sign
        * torch.where(exponent > 0, 1 + mantissa, mantissa)
        * 2.0 ** torch.where(exponent > 0, exponent - bias, -127)
    )


@row(8)
def float8_as_it_is(_):
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        x = torch.arange(256, dtype=torch.uint8).view(dtype)
        usual = x.float().isfinite() & (x.float().abs() >= 2.0**-6)
        there = widened_as_there(x)
        assert torch.equal(there[usual], x.float()[usual])
        subnormal = torch.where(x.float().isfinite(), there, x.float())
        special = torch.where(x.float().isfinite(), x.float(), there)
        holds(lambda x: x.float(), (x,), x.float(), subnormal, special)


@row(9)
def every_rule_can_fail(_):
    """A rule, or a number of one, that no damage moves measures nothing."""
    x = torch.linspace(-20, 5, 4000)
    right = x.exp()
    damaged = [
        right * 1.5,
        put(right, float("nan")),
        right + 0.01,
        -right,
        right * 1.001,
        put(right, 0),
        torch.where(right < 0.2, 0, right),
        torch.full_like(right, float("nan")),
    ]
    limits = {"atol", "rtol", "multiplier", "limit"}
    for name, parameters, *_ in _core.standards:
        rule = name + {":ATOL,RTOL": ":1e-3,1e-3", ":K": ":4", ":X": ":0.99"}.get(parameters, "")
        first, *others = (
            ulpscope.judge_call(torch.exp, (x,), {}, y, standard=rule, cause=False) for y in [right, *damaged]
        )
        assert first.passed and not all(o.passed for o in others), (name, first.sentence)
        for metric, value in (first.outputs[0].metrics or {}).items():
            moved = any(o.outputs[0].metrics.get(metric) != value for o in others)
            assert moved or metric in limits, (name, metric)


@row(10)
def limits_are_those_of_the_page(_):
    line = re.search(
        r"^\| `ascend-absolute`: normal elements.*$", (ROOT / "docs/reference/metrics.md").read_text(), re.M
    )
    bounds = [2.0 ** int(e) for e in re.findall(r"2\^(-\d+)", line.group())]
    x = torch.ones(100, dtype=torch.float64)
    for dtype, bound in zip((torch.float16, torch.bfloat16, torch.float32), bounds, strict=True):
        for factor in (1, 2):
            said = ulpscope.judge_call(
                torch.clone, (x.to(dtype),), {}, (x - factor * bound).to(dtype), standard="ascend-absolute"
            )
            assert said.passed == (factor == 1), (dtype, factor, said.sentence)
