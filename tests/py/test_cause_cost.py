# SPDX-License-Identifier: Apache-2.0
"""What makes the search for causes cheap says the same as what it saves: the fast rounding, the
look at a few elements."""

import pytest
import torch

from ulpscope import _emulate
from ulpscope._causes_evidence import EXPLAINED, SMALLER, Evidence
from ulpscope._emulate import FORMATS

SEED = 5


@pytest.fixture(autouse=True)
def seeded():
    print(f"seed {SEED}")
    torch.set_num_threads(1)
    torch.manual_seed(SEED)


def bits(x):
    return x.view(torch.int64)


def by_division(x, name):
    """The rounding by its definition, which also serves what is not normal."""
    return _emulate.quantize(x, *FORMATS[name], integer=lambda t: torch.round(t))


VALUES = {
    "normal": lambda: torch.randn(4000, dtype=torch.float64),
    "ties": lambda: (torch.randint(-(2**13), 2**13, (4000,)) + 0.5).double() * 2.0 ** torch.randint(-9, 3, (4000,)),
    "carries": lambda: (2.0 - 2.0 ** -torch.arange(1, 53).double()) * 2.0 ** torch.randint(-9, 9, (52,)),
    "zeros": lambda: torch.tensor([0.0, -0.0, 1.0], dtype=torch.float64),
    "subnormal": lambda: torch.randn(4000, dtype=torch.float64) * 2.0**-20,
    "large": lambda: torch.randn(4000, dtype=torch.float64) * 2.0**16,
    "infinite": lambda: torch.tensor([torch.inf, -torch.inf, torch.nan, 3.0], dtype=torch.float64),
    "wide": lambda: torch.randn(4000, dtype=torch.float64) * 10.0 ** torch.randint(-60, 60, (4000,)),
    "transposed": lambda: torch.randn(40, 30, dtype=torch.float64).T,
    "none": lambda: torch.zeros(0, dtype=torch.float64),
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("values", VALUES)
def test_fast_rounding_gives_the_bits_of_the_definition(values, name):
    x = VALUES[values]()
    want = by_division(x, name)
    assert torch.equal(bits(_emulate.to_format(x, name)), bits(want))
    if name == "float32":
        assert torch.equal(bits(_emulate.to_dtype(x, torch.float32)), bits(want))


def residual_of_all(evidence, emulated):
    """The residual without a look at a few elements first."""
    evidence._likely = lambda _: True
    try:
        return evidence.residual(emulated)
    finally:
        del evidence._likely


@pytest.mark.parametrize("n_off", [1, 7, 40, 250, 4000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_look_at_a_few_elements_refuses_no_explanation(n_off, dtype):
    truth = torch.randn(4000, dtype=torch.float64)
    off = torch.randperm(4000)[:n_off]
    mistake = truth.clone()
    mistake[off] = mistake[off] * 1.25 + 0.5
    evidence = Evidence(mistake.to(dtype), truth, truth.float())
    for share in (1.0, 0.99, EXPLAINED, 0.9, 0.5, 0.0):
        emulated = mistake.clone()
        wrong = off[int(share * n_off + 0.5) :]
        emulated[wrong] = truth[wrong]
        assert evidence.residual(emulated) == residual_of_all(evidence, emulated)
    assert evidence.residual(mistake) <= 1 / SMALLER or n_off < 4
    assert not evidence._likely(truth)


def test_few_elements_far_off_do_not_hide_that_the_many_are_explained():
    truth = 1 + torch.rand(4000, dtype=torch.float64)
    device = (truth * (1 + 2.0**-22)).float()
    device[:9] *= 2
    evidence = Evidence(device, truth, truth.float())
    assert evidence._likely(device.double().where(torch.arange(4000) >= 9, truth))
