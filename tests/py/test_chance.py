# SPDX-License-Identifier: Apache-2.0
"""What draws random numbers somewhere inside: no claim beyond what was tested, no wrong
kernel behind the dice, and no stream of the host program moved."""

import math
import random

import numpy
import pytest
import torch
import torch.nn.functional as F
from calls import make_call

import ulpscope
from ulpscope import sim
from ulpscope._device import PythonDevice, TorchDevice
from ulpscope._judging import judge_call

SEED = 11


@pytest.fixture(autouse=True)
def seeded():
    print(f"seed {SEED}")
    torch.set_num_threads(1)
    torch.manual_seed(SEED)


# ---- streams -------------------------------------------------------------------------


def streams():
    """The states of all random streams at hand, as bytes."""
    states = [torch.random.get_rng_state(), *(sim.get_rng_state(i) for i in range(sim.device_count()))]
    numbers = numpy.random.get_state()
    return [s.numpy().tobytes() for s in states], numbers[1].tobytes(), numbers[2], random.getstate()


def all_dice(x):
    """Draws from every stream that a Python function reaches."""
    random.random()
    numpy.random.rand()
    return F.dropout(x, 0.3)


def test_a_seed_that_was_tried_does_not_stay_on_the_device():
    """Draws after a judged call were once those that the judge's own points came from."""
    device = TorchDevice("sim:0")
    first = judge_call(make_call("aten::randint.low", 0, 512, [4, 48]), device)
    like = torch.empty(4, 48, 128)
    second = judge_call(make_call("aten::bernoulli_.float", like, 0.9), device)
    assert (first.verdict, second.verdict) == ("pass", "pass"), second.worst


@pytest.mark.parametrize("fn", [F.dropout, torch.rand_like, torch.relu, all_dice])
@pytest.mark.parametrize("device", [None, "sim:1"])
def test_no_stream_moves(fn, device):
    x = torch.randn(64, 16)
    before = streams()
    ulpscope.check_call(fn, (x,), device=device)
    assert streams() == before
    ulpscope.judge_call(fn, (x,), {}, fn(x))
    twice = streams()
    ulpscope.judge_call(fn, (x,), {}, x)
    assert streams() == twice


# ---- no bits for what was not measured -----------------------------------------------


@pytest.mark.parametrize("fn", [torch.rand_like, lambda x: x + torch.randn_like(x)])
def test_draws_have_no_bits(fn):
    x = torch.randn(64, 16)
    verdict = ulpscope.judge_call(fn, (x,), {}, fn(x))
    assert verdict.verdict == "pass" and "drawn" in verdict.sentence, verdict.sentence
    assert math.isnan(verdict.effective_bits) and math.isnan(verdict.expected_bits)


@torch.library.custom_op("chance::unsaid_noise", mutates_args=())
def unsaid_noise(x: torch.Tensor) -> torch.Tensor:
    """Draws, and its schema does not say so."""
    return torch.tanh(x) + 0.1 * torch.randn_like(x)


def test_what_turns_out_to_draw_is_not_acquitted_by_that():
    def coarse(op, args, kwargs):
        return torch.tanh(args[0].bfloat16()).float() + 0.1 * torch.randn_like(args[0])

    verdict = judge_call(make_call("chance::unsaid_noise", torch.randn(64, 16)), PythonDevice(coarse))
    assert verdict.verdict == "pass" and math.isnan(verdict.worst.bits), verdict.worst


@torch.library.custom_op("chance::noise_and_exp", mutates_args=())
def noise_and_exp(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """One output is a draw, the other is not."""
    return torch.randn_like(x), x.exp()


@pytest.mark.parametrize("change, verdict", [(lambda t: t, "pass"), (torch.bfloat16, "reduced")])
def test_what_stands_beside_draws_is_judged_in_full(change, verdict):
    def device(op, args, kwargs):
        x = args[0]
        wide = x.to(change).float() if isinstance(change, torch.dtype) else change(x)
        return torch.randn_like(x), wide.exp()

    found = judge_call(make_call("chance::noise_and_exp", torch.randn(64, 16)), PythonDevice(device))
    assert found.verdict == verdict, found.findings
    given = ulpscope.judge_call(noise_and_exp, (x := torch.randn(64, 16),), {}, device(None, (x,), {}))
    assert given.verdict == verdict, given.sentence
