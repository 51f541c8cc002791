# SPDX-License-Identifier: Apache-2.0
"""A kernel of one's own, and what it shall compute."""

import torch
from ulpscope.testing import assert_accurate


def my_rms_norm(x, weight):  # yours: Triton, CUDA, a compiled function
    return x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt() * weight


def reference(x, weight):  # plain operators; run in float64
    return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * weight


def test_my_rms_norm():
    torch.manual_seed(0)
    assert_accurate(my_rms_norm, reference, torch.randn(64, 256), torch.randn(256))
