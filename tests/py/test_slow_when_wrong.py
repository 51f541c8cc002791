# SPDX-License-Identifier: Apache-2.0
"""What is accused is judged without doing anything twice, so that it costs a few times what is right. How
much that is `./run bench slow` prints."""

import copy

import pytest
import torch
from torch.nn import functional as F

import ulpscope
from ulpscope.executors import noise, reference_runs
from ulpscope.executors.formats import rounded_once, to_format


def counted(monkeypatch, name):
    """How often runs of a kind begin."""
    made, kind = [], getattr(reference_runs, name)
    monkeypatch.setattr(reference_runs, name, lambda *args: made.append(args) or kind(*args))
    return made


def test_outputs_share_the_runs_that_they_are_held_to(monkeypatch):
    """Both statistics of a batch norm are off: one set of noisy runs, and of orders, serves both and each look."""
    torch.manual_seed(3)
    args = (torch.randn(6, 8, 5, 5), torch.zeros(8), torch.ones(8), torch.rand(8), torch.randn(8), True, 0.1, 1e-5)
    after = copy.deepcopy(args)
    out = F.batch_norm(*after)
    after[1].mul_(1.02)
    after[2].mul_(0.97)
    noises, orders = counted(monkeypatch, "Noise"), counted(monkeypatch, "Accumulated")
    verdict = ulpscope.judge_call(F.batch_norm, args, outputs=out, mutated=(after, {}), cause=False)
    assert [o.verdict for o in verdict.outputs] == ["pass", "reduced", "reduced"]
    assert 0 < len(noises) == len(set(noises)), noises
    assert len(orders) == len(set(orders)), orders


@pytest.mark.parametrize("name", ["TF32", "bfloat16", "float16"])
def test_quick_rounding_is_the_same(name):
    g = torch.Generator().manual_seed(1)
    x = torch.randint(-(2**31), 2**31 - 1, (100_000,), generator=g).to(torch.int32).view(torch.float32)
    x = torch.cat(
        [x, torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 3.4028235e38, 1e-45, 65519.0, 65520.0])]
    )
    quick, slow = rounded_once(x, name), to_format(x, name).float()
    assert bool(((quick.view(torch.int32) == slow.view(torch.int32)) | (quick.isnan() & slow.isnan())).all())


def test_signs_are_drawn_in_bytes():
    signs = noise._signs((1000,), torch.Generator().manual_seed(2))
    assert signs.dtype == torch.int8
    assert set(signs.tolist()) == {-1, 1}
