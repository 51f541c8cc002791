# SPDX-License-Identifier: Apache-2.0
"""Operators of common training scripts that torch has in no other precision: grouped products of
mixtures of experts, the scaling of gradients; and those that a module of torch's own brings."""

import subprocess
import sys

import pytest
import torch
from calls import make_call

from ulpscope.executors.device import PythonDevice, TorchDevice
from ulpscope.session.judging import judge_call


def randn(*sizes, dtype=torch.float32):
    torch.manual_seed(sum(sizes))
    return torch.randn(*sizes).to(dtype)


def ends(*values):
    return torch.tensor(values, dtype=torch.int32)


def scale(value, tracker, found):
    return ("aten::_amp_update_scale_", torch.tensor([value]), ends(tracker), torch.tensor([found]), 2.0, 0.5, 2)


def gradients(dtype, bad=0.0):
    first = randn(64, dtype=dtype)
    first[3] += bad
    return (
        "aten::_amp_foreach_non_finite_check_and_unscale_",
        [first, randn(9, dtype=dtype)],
        torch.zeros(1),
        torch.tensor([1 / 768]),
    )


def products(dtype, left, right, groups):
    offsets = None if groups is None else ends(*groups)
    return "aten::_grouped_mm", randn(*left, dtype=dtype), randn(*right, dtype=dtype), offsets


LOW, SINGLE = torch.bfloat16, torch.float32
CALLS = {
    "rows": lambda: products(SINGLE, (8, 64), (3, 64, 8), (2, 5, 8)),
    "rows, bfloat16": lambda: products(LOW, (8, 64), (3, 64, 8), (2, 2, 8)),
    "columns": lambda: products(SINGLE, (3, 8, 64), (64, 8), (2, 5, 8)),
    "sums": lambda: products(SINGLE, (8, 96), (96, 8), (16, 48, 96)),
    "batches": lambda: products(SINGLE, (3, 8, 64), (3, 64, 8), None),
    "unscale": lambda: gradients(torch.float16),
    "unscale Inf": lambda: gradients(SINGLE, torch.inf),
    "scale grows": lambda: scale(65536.0, 1, 0.0),
    "scale stays": lambda: scale(65536.0, 0, 0.0),
    "scale falls": lambda: scale(65536.0, 1, 1.0),
    "scale cannot grow": lambda: scale(3e38, 1, 0.0),
}


@pytest.mark.parametrize("name", CALLS)
def test_torch_passes(name):
    verdict = judge_call(make_call(*CALLS[name]()), TorchDevice("cpu"), seconds=0)
    assert verdict.verdict == "pass", (verdict.reason, verdict.worst)


def tf32(op, args, kwargs):
    def short(t):
        return (t.view(torch.int32) & ~0x1FFF).view(torch.float32)

    return op(short(args[0]), short(args[1]), *args[2:], **kwargs)


def one_row_late(op, args, kwargs):
    return op(args[0], args[1], (args[2] - 1).clamp(min=1).index_fill(0, torch.tensor([2]), int(args[2][2])))


def finds_nothing(op, args, kwargs):
    op(*args, **kwargs)
    args[1].zero_()


def scales_twice(op, args, kwargs):
    op(*args, **kwargs)
    args[0][0].mul_(args[2])


def always_grows(op, args, kwargs):
    args[1].fill_(1)
    return op(*args, **kwargs)


FAULTS = {
    "rows": tf32,
    "columns": one_row_late,
    "sums": tf32,
    "batches": tf32,
    "unscale Inf": finds_nothing,
    "unscale": scales_twice,
    "scale stays": always_grows,
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_kernel_is_flagged(name):
    verdict = judge_call(make_call(*CALLS[name]()), PythonDevice(FAULTS[name]), seconds=0)
    assert verdict.verdict in ("wrong", "reduced"), verdict.reason


def test_torchs_own_modules_are_tried_for_their_operators():
    code = (
        "from ulpscope.calls.replay import resolve\n"
        "print(resolve('fsdp::chunk_cat'), resolve('quantized_decomposed::quantize_per_tensor'))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["fsdp.chunk_cat.default", "quantized_decomposed.quantize_per_tensor.default"]
