# SPDX-License-Identifier: Apache-2.0
"""A format is named where its numbers are, at one place or at several together; what is as large
as a format's noise, and something else, is named no format."""

import re

import pytest
import torch
import torch.nn.functional as F
from cause_cases_more import randn

import ulpscope

bf = torch.bfloat16


def low(x, dtype):
    return x if dtype is None else x.to(dtype).to(x.dtype)


def quantized(x, over=1, levels=255, dtype=None):
    """To whole steps between the least and the largest of each row, and back."""
    least, most = x.amin(over, keepdim=True), x.amax(over, keepdim=True)
    step, least = low((most - least) / levels, dtype), low(least, dtype)
    return ((x - least) / step).round().clamp(0, levels) * step + least


def hidden(x, w, v, dtype=None):
    return low(F.silu(x @ w), dtype) @ v


def leaky(x, keep, dtype=None):
    """A recurrence whose state is kept in a format."""
    state, out = torch.zeros_like(x[0]), []
    for row in x:
        state = low(state * keep + row, dtype)
        out.append(state * 1.5)
    return torch.stack(out)


def turned(x, at, slower=1.0):
    """Rotations by angles whose base is beyond float16's range."""
    angle = at[:, None] / slower * 9e4 ** (-torch.arange(0, x.shape[-1], 2) / x.shape[-1])
    a, b = x.chunk(2, -1)
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)


def rounds(x, steps=5, dtype=None):
    """An iteration that few errors decide."""
    x = x / x.norm()
    for _ in range(steps):
        gram = low(x @ x.T, dtype)
        x = low(3.4 * x + low(-4.7 * gram + 2.0 * gram @ gram, dtype) @ x, dtype)
    return x


def tf32(x):
    return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def decayed(x, keep, kept=lambda t: t):
    """As `leaky`, and a product behind it that hides no size."""
    state, out = torch.zeros_like(x[0]), []
    for row in x:
        state = kept(state * keep + row)
        out.append(state * 1.5)
    return torch.stack(out)


def phased(at, base, dtype=None):
    return low(at[:, None] * base, dtype).cos()


def totals(x, w, dtype=None):
    """A sum for each row, which all elements of the row are divided by."""
    return x / low((x.abs() * w).sum(-1, keepdim=True), dtype)


def of_size(size):
    return lambda: (randn(24, 40) * size, torch.rand(40))


def rows():
    return (randn(3, 40, 20) * 2,)


NAMED = {
    "step and least": ("to bfloat16: (div and amin|amin and div)$", quantized, rows, {"dtype": bf}),
    "hidden layer in float8": (
        r"to float8 \(e4m3\): silu$",
        hidden,
        lambda: (randn(24, 20), randn(20, 36), randn(36, 16)),
        {"dtype": torch.float8_e4m3fn},
    ),
    "state of a loop": ("to bfloat16: add$", leaky, lambda: (randn(24, 40), torch.rand(40)), {"dtype": bf}),
    "a sum for each of many rows": ("bfloat16", totals, lambda: (randn(60, 90), torch.rand(90)), {"dtype": bf}),
    "phase in float16": (
        "to TF32 or float16: mul$",
        phased,
        lambda: (torch.arange(40.0) + 0.3, torch.rand(24) + 0.1),
        {"dtype": torch.float16},
    ),
    "few errors decide": ("bfloat16", rounds, lambda: (randn(16, 24),), {"dtype": bf}),
    "state in float16": (
        "to TF32 or float16",
        leaky,
        lambda: (randn(24, 40), torch.rand(40)),
        {"dtype": torch.float16},
    ),
}
TWINS = {  # of 11 bits both: the range alone tells one from the other
    "in the range of both": ("to TF32 or float16: add$", of_size(1.0), tf32),
    "float16 in the range of both": ("to TF32 or float16: add$", of_size(1.0), lambda t: low(t, torch.float16)),
    "beyond float16's largest": ("to TF32: add$", of_size(1e5), tf32),
    "among float16's subnormals": ("to float16: add$", of_size(1e-5), lambda t: low(t, torch.float16)),
    "below float16's normal numbers": ("to TF32: add$", of_size(1e-5), tf32),
}
OTHERS = {
    "a sum for each of four rows": (totals, lambda: (randn(4, 90), torch.rand(90)), {"dtype": bf}),
    "ranges of the other axis": (quantized, rows, {"over": 2}),
    "one level less": (quantized, rows, {"levels": 254}),
    "a constant that a format moves": (
        lambda x, c=0.9405: torch.stack([c * t.cumsum(0) for t in x.unbind()]),
        lambda: (randn(8, 20, 6),),
        {"c": 0.99},
    ),
    "angles eight times smaller": (turned, lambda: (randn(4, 32, 16), torch.arange(32.0)), {"slower": 8.0}),
}


def judged(function, make, wrong, name):
    torch.manual_seed(sum(map(ord, name)))
    args = make()
    return ulpscope.judge_call(function, args, {}, function(*args, **wrong))


@pytest.mark.parametrize("name", sorted(NAMED))
def test_format_is_named_where_its_numbers_are(name):
    words, *case = NAMED[name]
    verdict = judged(*case, name)
    print(verdict.sentence)
    assert verdict.verdict == "reduced" and re.search(words, verdict.cause)


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_noise_of_a_formats_size_is_named_no_format(name):
    verdict = judged(*OTHERS[name], name)
    print(verdict.sentence)
    assert verdict.verdict in ("reduced", "wrong")
    assert not re.search("^(?!looks like).*(rounded|truncated|computed in)", verdict.cause)


@pytest.mark.parametrize("name", sorted(TWINS))
def test_one_format_of_eleven_bits_alone_is_named_where_its_range_tells(name):
    words, make, kept = TWINS[name]
    verdict = judged(decayed, make, {"kept": kept}, name)
    print(verdict.sentence)
    assert verdict.verdict in ("reduced", "wrong") and re.search(words, verdict.cause)
