# SPDX-License-Identifier: Apache-2.0
"""Flushed subnormals are a note, and excuse nothing else: another subnormal is wrong, a device
that keeps most of them loses the others by a fault, and normal data flush nothing."""

import pytest
import torch
import torch.nn.functional as F

import ulpscope

TINY = torch.finfo(torch.float32).tiny
N = 1024


@pytest.fixture
def draw():
    generator = torch.Generator().manual_seed(5)
    return lambda *shape: torch.randn(*shape, generator=generator)


def flush(x):
    return torch.where(x.abs() < TINY, x * 0, x)


def some_zeros(right, every):
    out = right.clone()
    out[::every] = 0
    return out


def mixture(right, every, other):
    out = right.clone()
    out[::every] = other[::every].to(out.dtype)
    return out


# what a kernel gives -> whether it passes; of the right result and other numbers of its size
GIVEN = {
    "right": (lambda right, other: right, True),
    "flushed": (lambda right, other: flush(right), True),
    "flushed but for a tail": (lambda right, other: mixture(flush(right), 8, right), True),
    "other subnormals": (lambda right, other: other.to(right.dtype), False),
    "half as much again": (lambda right, other: (right.float() * 1.5).to(right.dtype), False),
    "2 % other subnormals": (lambda right, other: mixture(right, 50, other), False),
    "2 % zeros": (lambda right, other: some_zeros(right, 50), False),
    "an eighth zeros": (lambda right, other: some_zeros(right, 8), False),
    "flushed, 2 % other": (lambda right, other: mixture(flush(right), 50, other), False),
    "smallest normal": (lambda right, other: torch.full_like(right, TINY), False),
}
CALLS = {
    "products": (torch.mul, lambda draw: (draw(N) * 1e-20, draw(N) * 1e-19), torch.float32),
    "bfloat16 squares": (lambda x: x * x, lambda draw: ((1 + draw(N).abs()).bfloat16() * 3e-20,), torch.bfloat16),
    "exp": (torch.exp, lambda draw: (-90 - draw(N).abs(),), torch.float32),
    "copy": (torch.clone, lambda draw: (draw(N) * 1e-39,), torch.float32),
}


@pytest.mark.parametrize("name", CALLS)
def test_only_zeros_stand_for_subnormals(name, draw):
    fn, make, dtype = CALLS[name]
    args = make(draw)
    right = fn(*args)
    other = draw(N).abs() * right.float().abs().mean() + 4 * 2.0**-133
    assert right.dtype == dtype and float((right.abs() < TINY).float().mean()) > 0.9
    for what, (give, passes) in GIVEN.items():
        got = ulpscope.judge_call(fn, args, outputs=give(right, other))
        assert got.passed == passes, (what, got.sentence)
        if what.startswith("flushed") and passes:
            assert "flushes subnormals" in got.notes
        if what in ("2 % zeros", "right"):
            assert "flushes subnormals" not in got.notes


def test_a_flushed_step_is_a_note_and_another_value_is_not(draw):
    def fn(x):
        return (x * 1e-30) * 1e30

    x = draw(N) * 4e-8  # the product inside is subnormal for a quarter of them
    right, flushed = fn(x), flush(x * 1e-30) * 1e30
    assert ulpscope.judge_call(fn, (x,), outputs=flushed).passed
    half = torch.where(torch.arange(N) % 50 == 0, right * 0.5, right)
    assert not ulpscope.judge_call(fn, (x,), outputs=half).passed


def test_flushed_inputs_alone_are_a_note(draw):
    """Operands are zero to the device, results are not."""
    a, b = draw(N) * 1e-20, draw(N) * 1e-19
    a[::4] = draw(N // 4) * 1e-39
    b[::4] = 1e20
    right = a * b
    flushed = flush(a) * b
    assert float((right[1::4].abs() < TINY).float().mean()) > 0.9
    got = ulpscope.judge_call(torch.mul, (a, b), outputs=flushed)
    assert got.passed and "flushes subnormals" in got.notes, got.sentence


NORMAL = {
    "layer_norm": lambda x: F.layer_norm(x, (x.shape[-1],)),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "gelu": F.gelu,
}


@pytest.mark.parametrize("name", NORMAL)
def test_normal_data_flush_nothing(name, draw):
    fn, x = NORMAL[name], draw(32, 64)
    right = fn(x)
    wrong = right.clone()
    wrong[::4] *= 1 + 2e-5 * draw(8, 64)
    got = ulpscope.judge_call(fn, (x,), outputs=wrong)
    assert not got.passed and got.notes == [], (got.sentence, got.notes)


def test_what_is_flushed_is_not_ill_conditioned(draw):
    """Steps flushed at more than half of the elements leave the others to be judged."""

    def fn(x):
        return (x * 1e-30) * 1e30

    x = draw(N) * 1.2e-8
    flushed = flush(x * 1e-30) * 1e30
    rest = flushed != 0
    assert 0.1 < float(rest.float().mean()) < 0.45
    got = ulpscope.judge_call(fn, (x,), outputs=flushed)
    assert got.passed and "flushes subnormals" in got.notes, got.sentence
    for wrong in (
        flushed * 1.001,
        torch.where(rest, flushed.roll(1), flushed),
        torch.where(rest, flushed, draw(N) * 1e-8),
    ):
        assert not ulpscope.judge_call(fn, (x,), outputs=wrong).passed


@pytest.mark.parametrize("name", ["reciprocal", "log"])
def test_what_is_infinite_either_way_was_not_kept(name, draw):
    """Zeros, and what is smaller still, give Inf whether inputs are flushed or not: they do not say that the device
    keeps subnormals."""
    fn = {"reciprocal": torch.reciprocal, "log": lambda x: x.abs().log()}[name]
    x = draw(N)
    x[::8] = torch.sign(x[::8]) * torch.exp2(torch.linspace(-133, -126.05, N // 8))
    x[1::2] = 0
    found = ulpscope.judge_call(fn, (x,), outputs=fn(flush(x)), cause=False)
    assert found.verdict == "pass" and "flushes subnormals" in found.notes, found
    less = torch.where(torch.arange(N) == 8 * 127, fn(flush(x)), fn(x))
    assert ulpscope.judge_call(fn, (x,), outputs=fn(x), cause=False).verdict == "pass"
    assert ulpscope.judge_call(fn, (x,), outputs=less, cause=False).verdict == "nonfinite"


def test_flushing_stays_as_it_was(draw):
    """Of a program that flushes subnormals itself."""
    x = torch.tensor(TINY)

    def judged():
        verdict = ulpscope.check_call(lambda x: (x * TINY) * 1.5, (64 * draw(N),), cause=False).verdict
        return verdict, (x / 2).item()

    torch.set_flush_denormal(True)
    try:
        assert judged() == ("pass", 0)
    finally:
        torch.set_flush_denormal(False)
    assert (x / 2).item() > 0
