# SPDX-License-Identifier: Apache-2.0
"""A factor in a 16-bit result, which shows at the elements beside a border of the format alone: elements of one truth
are one witness, and a majority of a few is none."""

import pytest
import torch
from ulpscope import judge_call

F = torch.nn.functional
DRAW = torch.Generator().manual_seed(4)


def randn(*sizes):
    return torch.randn(*sizes, generator=DRAW)


def batch(x, w, b):
    return F.batch_norm(x, None, None, w, b, training=True)


def test_elements_of_one_truth_are_one_witness():
    """Quarters, of which one cancels with the bias: what its terms lose is much beside it, and alike in all."""
    x = (randn(4, 3, 8, 8) * 4).round().div(4).half()
    w, b = torch.ones(3).half(), torch.zeros(3).half()
    at = x[:, 0] == 1.0
    own = batch(x.double(), w.double(), b.double())[:, 0][at][0]
    b[0] = -own.half()
    out = batch(x.double(), w.double(), b.double()).half()
    assert int(at.sum()) >= 8
    moved = out.clone()
    moved[:, 0][at] = (out[:, 0][at].float() + 8e-7).half()
    assert not torch.equal(moved, out)
    assert judge_call(batch, (x, w, b), outputs=moved, cause=False).verdict == "pass"


def rms(x, w, eps=1e-5):
    y = x.float()
    return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps) * w.float()).to(x.dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_an_epsilon_that_is_missing_shows(dtype):
    x, w = (0.2 * randn(64, 512)).to(dtype), (1 + 0.1 * randn(512)).to(dtype)
    assert judge_call(rms, (x, w), outputs=rms(x.double(), w).to(dtype), cause=False).verdict == "pass"
    assert judge_call(rms, (x, w), outputs=rms(x, w), cause=False).verdict == "pass"
    assert judge_call(rms, (x, w), outputs=rms(x, w, 0.0), cause=False).verdict == "wrong"
