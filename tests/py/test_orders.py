# SPDX-License-Identifier: Apache-2.0
"""Sums that this CPU happens to compute without rounding are not held to that: another order of
adding passes, an error that no order makes does not. Where no order rounds, none may."""

import pytest
import torch
import torch.nn.functional as F

import ulpscope

N = 64


def integers(*shape, most=16):
    generator = torch.Generator().manual_seed(4)
    return torch.randint(-most, most + 1, shape, generator=generator).float()


BINS = torch.arange(4096) % N
# calls on integers, whose sums are exact in every order
WHOLE = {
    "sum": (lambda x: x.sum(-1), (integers(8, 4096, most=4000),)),
    "small sum": (lambda x: x.sum(-1), (integers(N, 32),)),
    "index_add": (lambda x: torch.zeros(N).to(x).index_add(0, BINS, x), (integers(4096),)),
    "matmul": (torch.matmul, (integers(N, 1024), integers(1024, N))),
    "cumsum": (lambda x: x.cumsum(-1), (integers(N, 1024),)),
    "conv": (F.conv1d, (integers(2, 16, 128), integers(8, 16, 5))),
    "embedding_bag": (lambda w: F.embedding_bag(BINS.view(N, N), w, mode="sum"), (integers(N, 64),)),
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_sums_of_integers_that_are_off_by_one_are_flagged(name):
    fn, args = WHOLE[name]
    right = fn(*args)
    assert ulpscope.judge_call(fn, args, outputs=right).passed
    for at in (slice(0, 1), slice(None)):
        wrong = right.clone()
        wrong.view(-1)[at] += 1
        got = ulpscope.judge_call(fn, args, outputs=wrong)
        assert not got.passed, (at, got.sentence)


def test_an_update_that_is_dropped_is_flagged():
    x = integers(4096)
    x[7] = 1
    fn = WHOLE["index_add"][0]
    dropped = torch.where(torch.arange(4096) == 7, torch.zeros(4096), x)
    assert not ulpscope.judge_call(fn, (x,), outputs=fn(dropped)).passed


def cancelling():
    """Rows a, -a, b, 0: first to last is exact, other orders round b."""
    g = torch.Generator().manual_seed(2)
    a, b = torch.randn(N, generator=g) * 1e4, torch.randn(N, generator=g)
    return torch.stack([a, -a, b, torch.zeros(N)], -1)


ROWS = torch.arange(N).repeat_interleave(4)
BAGS = torch.arange(4 * N).view(N, 4)
# calls of the rows that give their sums times a factor
ROW_SUMS = {
    "sum": (lambda x: x.sum(-1), 1),
    "mean": (lambda x: x.mean(-1), 0.25),
    "cumsum": (lambda x: x.cumsum(-1)[:, -1], 1),
    "adaptive pool": (lambda x: F.adaptive_avg_pool2d(x[None, None], (N, 1)).reshape(-1), 0.25),
    "pool": (lambda x: F.avg_pool2d(x[None, None], (1, 4)).reshape(-1), 0.25),
    "index_add": (lambda x: torch.zeros(N).to(x).index_add(0, ROWS, x.reshape(-1)), 1),
    "scatter_add": (lambda x: torch.zeros(N).to(x).scatter_add(0, ROWS, x.reshape(-1)), 1),
    "embedding_bag": (lambda x: F.embedding_bag(BAGS, x.reshape(-1, 1), mode="sum").view(-1), 1),
    "matmul": (lambda x: (x @ torch.ones(4, 1).to(x)).view(-1), 1),
    "conv": (lambda x: F.conv1d(x[:, None], torch.ones(1, 1, 4).to(x)).view(-1), 1),
}


@pytest.mark.parametrize("name", ROW_SUMS)
def test_another_order_of_adding_passes(name):
    fn, factor = ROW_SUMS[name]
    x = cancelling()
    other = (((x[:, 2] + x[:, 0]) + x[:, 1]) + x[:, 3]) * factor
    got = ulpscope.judge_call(fn, (x,), outputs=other)
    assert got.passed, got.sentence
    right = fn(x)
    for wrong in (right + 2.0**-12 * factor * x.abs().amax(-1), right.roll(1),
                  torch.where(torch.arange(N) == 3, right + 2.0**-12 * factor * x.abs().max(), right)):  # fmt: skip
        assert not ulpscope.judge_call(fn, (x,), outputs=wrong).passed
