# SPDX-License-Identifier: Apache-2.0
"""What `ulpscope capture --until-differs` names in a step: the call that makes what is different, not the view that
passes it on, not the call around it, not its reader, whether the other trace holds data or statistics alone."""

import contextlib

import pytest
import torch

import ulpscope
import ulpscope.sim
from ulpscope import _core


def a_step():
    """Views, slices of strided tensors and composite calls before, between and behind what computes."""
    torch.manual_seed(0)
    memory, norm = torch.nn.LSTM(6, 8, batch_first=True).to("sim:0"), torch.nn.RMSNorm(8).bfloat16().to("sim:0")
    h = memory(torch.randn(3, 4, 6).to("sim:0"))[0]
    h = norm(h.flatten(0, 1).bfloat16()).float().view(3, 4, 8)
    h = torch.nn.functional.linear(h.transpose(0, 1)[1:], torch.ones(5, 8).to("sim:0")).relu().mean(1)
    h.div(3.0).t().sum().backward()


def captured(path, data="full", fault=None):
    planted = ulpscope.sim.fault(*fault) if fault else contextlib.nullcontext()
    with planted, ulpscope.capture(path, steps=0, data=data):
        a_step()
    return path


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    folder = tmp_path_factory.mktemp("honest")
    return [captured(folder / data, data) for data in ("full", "stats")]


def test_nothing_is_named_where_nothing_differs(honest, tmp_path):
    again = captured(tmp_path / "again")
    assert [_core.diff_step(again, other, 0) for other in honest] == [(0, "")] * 2


@pytest.mark.parametrize(
    "op", ["_thnn_fused_lstm_cell", "_thnn_fused_lstm_cell_backward_impl", "mm", "rsqrt", "relu", "mean", "div"]
)
def test_the_call_is_named_that_makes_what_is_different(honest, tmp_path, op):
    bad = captured(tmp_path / "bad", fault=(f"aten::{op}", "scale"))
    for other in honest:
        call, said = _core.diff_step(bad, other, 0)
        assert call > 0 and f"of the step, aten::{op}" in said and "differ already" not in said
