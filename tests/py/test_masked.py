# SPDX-License-Identifier: Apache-2.0
"""Attention beside NaN that a mask hides: either form of attention passes, the one that multiplies what
is hidden by 0 and the one that does not read it, and tiles of both; no other NaN does."""

import math

import pytest
import torch
from calls import make_call

from ulpscope import judge_call as judge_callable
from ulpscope.executors.device import PythonDevice
from ulpscope.session.judging import judge_call

SDPA = "aten::scaled_dot_product_attention"


def given(mask, bad, dtype=torch.float32):
    """Arguments with something that is no number in the last key, which most queries do not see."""
    torch.manual_seed(7)
    q, k, v = (torch.randn(2, 3, n, 8, dtype=dtype) for n in (5, 6, 6))
    where, value = bad
    {"key": k, "value": v}[where][1, 2, 5, 3] = value
    seen = torch.ones(5, 6, dtype=torch.bool)
    seen[:4, 5] = False
    masks = {"bool": seen, "float": torch.zeros(5, 6, dtype=dtype).masked_fill(~seen, -math.inf), "causal": None}
    return q, k, v, masks[mask], 0.0, mask == "causal"


def product(q, k, v, mask=None, p=0.0, causal=False):
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape, dtype=q.dtype).masked_fill(~mask, -math.inf)
    return torch.ops.aten._scaled_dot_product_attention_math(q, k, v, mask, p, causal)[0]


def unread(q, k, v, mask=None, p=0.0, causal=False):
    """Each query on the keys that it sees alone."""
    seen = torch.ones(5, 6, dtype=torch.bool)
    seen = seen.tril() if causal else seen if mask is None else mask if mask.dtype == torch.bool else mask == 0
    rows = [product(q[..., i : i + 1, :], k[..., seen[i], :], v[..., seen[i], :]) for i in range(5)]
    return torch.cat(rows, -2)


def tiles(*given):
    a, b = product(*given), unread(*given)
    return torch.cat([a[..., :4], b[..., 4:]], -1)


MASKS = ["bool", "float", "causal"]
BAD = [("key", math.nan), ("value", math.nan), ("value", math.inf), ("key", 3e38)]


def judged(kernel, arguments):
    device = PythonDevice(lambda op, args, kwargs: kernel(*args))
    return judge_call(make_call(SDPA, *arguments), device, seconds=0)


@pytest.mark.parametrize("kernel", [product, unread, tiles])
def test_either_form_passes(kernel):
    n_excused = 0
    for mask in MASKS:
        for bad in BAD:
            verdict = judged(kernel, given(mask, bad))
            assert verdict.verdict == "pass", (mask, bad, verdict.worst)
            n_excused += "masked" in verdict.findings[0].excused
    assert n_excused or kernel is unread


def lost(q, k, v, *rest):
    """NaN of a key that is seen does not show."""
    return unread(q, k.nan_to_num(0), v.nan_to_num(0, 0, 0), *rest)


def elsewhere(*given):
    out = product(*given)
    out[0, 0, 1, 3] = math.nan  # where nothing hidden is NaN
    return out


def infinite(*given):
    return torch.where(product(*given).isnan() & unread(*given).isfinite(), math.inf, unread(*given))


def garbage(*given):
    return torch.where(product(*given).isnan() & unread(*given).isfinite(), 1.25, unread(*given))


@pytest.mark.parametrize("kernel", [lost, elsewhere, infinite, garbage])
def test_no_other_nan_passes(kernel):
    for mask in MASKS[: 2 if kernel is lost else 3]:  # no query sees the last key of a causal one
        verdict = judged(kernel, given(mask, ("value", math.nan)))
        assert verdict.verdict in ("nonfinite", "wrong"), (mask, verdict.worst)


def through(attention, w):
    """A callable in which attention is one step, and heads lie last around it."""

    def call(q, k, v, mask=None, p=0.0, causal=False):
        out = attention(*(t.transpose(1, 2).transpose(1, 2) for t in (q, k, v)), mask, p, causal)
        return out.transpose(1, 2), out @ w

    return call


SQUARE = torch.randn(8, 4, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("kernel", [product, unread, lost, elsewhere, infinite])
def test_attention_inside_a_callable_has_either_form(kernel, mask):
    arguments, fn = given(mask, ("value", math.nan)), torch.nn.functional.scaled_dot_product_attention
    if kernel is lost and mask == "causal":
        return
    outputs = through(kernel, SQUARE)(*arguments)
    found = judge_callable(through(fn, SQUARE), arguments, outputs=outputs, cause=False)
    right = kernel in (product, unread)
    assert found.verdict == "pass" if right else found.verdict in ("nonfinite", "wrong"), found.sentence


@pytest.mark.parametrize("dtype", (torch.float32, torch.float16))
def test_a_query_all_of_whose_keys_weigh_nothing_is_nan_or_zero_inside_a_callable(dtype):
    q, k, v, *_ = given("causal", ("key", 1.0), dtype)
    k[0, 0, 0] = torch.tensor([-math.inf, *[1.0] * 7])
    q[0, 0, 0] = 1.0
    fn = lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)  # noqa: E731
    zero = fn(q.float(), k.float(), v.float()).to(dtype)
    for row, verdicts in ((math.nan, ("pass",)), (0.0, ("pass",)), (math.inf, ("nonfinite",)), (0.5, ("wrong",))):
        out = zero.clone()
        out[0, 0, 0] = row
        found = judge_callable(fn, (q, k, v), outputs=out, cause=False)
        assert found.verdict in verdicts, (row, found.sentence)
