# SPDX-License-Identifier: Apache-2.0
"""Wrong kernels aimed at every row of the table of excuses, from drawn inputs: none passes in
silence. Each meets its excuse's condition as far as a wrong kernel can."""

import math

import aimed_promises  # noqa: F401 - first: their kernels stand in the table, in this order
import aimed_numbers  # noqa: F401
import aimed_unheld  # noqa: F401
import pytest
import torch
from aimed import Draw, KERNELS
from test_excuses import CODES

SEEDS = (3, 1003)
FLAGGED = ("wrong", "reduced", "nonfinite")
# Of what most excuses touch nothing but an accusation will do. Wrong kernels of which none
# is possible, with the verdict that says so, and why.
UNSEEN = {
    "torn_rows": ("undefined", "each element holds one of the updates"),
    "coarse_inputs_below_noise": ("pass", "drawn: the inputs' rounding is far below the noise"),
    "a_scalar_off": ("pass", "of one number the bits that are left are told"),
    "half_that_overflows": ("pass", "float16 has Inf there: the reference leaves the dtype open"),
    "an_answer_where_shapes_do_not_fit": ("unjudged", "nobody knows what is right"),
}


def is_silent(name, verdict, most):
    """Whether a wrong kernel is not accused, or claims more than it may where it cannot be."""
    if verdict.verdict in FLAGGED:
        return False
    if name not in UNSEEN or verdict.verdict != UNSEEN[name][0]:
        return True
    told = math.isnan(verdict.effective_bits) or "elements are excused" in str(verdict.notes)
    return not told and verdict.effective_bits > most


def test_every_excuse_has_wrong_kernels():
    assert KERNELS.keys() == set(CODES)


@pytest.mark.parametrize("code", CODES)
def test_no_wrong_kernel_goes_free(code):
    for made in KERNELS[code]:
        for seed in SEEDS:
            torch.manual_seed(seed)
            wrong = made(Draw(seed))
            verdict = wrong.judged()
            assert not is_silent(made.__name__, verdict, wrong.most), (made.__name__, seed, verdict.sentence)
