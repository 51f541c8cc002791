# SPDX-License-Identifier: Apache-2.0
"""What is said hangs on no CPU: float64 is held to the CPU's float64 and no more is claimed of it."""

import torch

import ulpscope


def test_float64_is_never_called_correctly_rounded():
    x = (torch.rand(64) + 1).double()
    for fn in (torch.sqrt, torch.exp):
        got = ulpscope.judge_call(fn, (x,), outputs=fn(x))
        assert got.passed and "as good as the CPU's float64" in got.sentence, got.sentence
        got = ulpscope.judge_call(fn, (x.float(),), outputs=fn(x).float())
        assert got.passed and "is correctly rounded" in got.sentence, got.sentence
