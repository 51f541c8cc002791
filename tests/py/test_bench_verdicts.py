# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the verdict measures with a right ruler: its algorithms are those of the
operators, honest kernels differ from the truth by rounding only, faults are faults."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from bench.verdicts.case import Case  # noqa: E402
from bench.verdicts.documented import BUGS  # noqa: E402
from bench.verdicts.engine import named  # noqa: E402
from bench.verdicts.ops import OPS  # noqa: E402
from bench.verdicts.rounding import rounded, to_tensor  # noqa: E402
from bench.verdicts.variants import CAUSES, GENERIC, Variant, formula, reduced  # noqa: E402

CASTS = ("to_bf16", "to_f16")


@pytest.mark.parametrize("name", [n for n in OPS if n not in CASTS])
def test_the_algorithm_in_double_is_the_operator(name):
    case = Case(OPS[name], "normal", "f32")
    wide, problem = case._native(case.args, torch.float64)
    assert wide is not None, problem
    assert len(wide) == len(case.truth)
    for want, got in zip(wide, case.truth):
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-6, atol=1e-9)


def test_enough_operators_and_a_third_set_aside():
    assert len(OPS) >= 60
    assert 0.25 < sum(op.held for op in OPS.values()) / len(OPS) < 0.42


def test_every_fault_has_a_cause():
    for op in OPS.values():
        for v in (*reduced(op, "f32"), *reduced(op, "f16"), *formula(op)):
            assert v.name in CAUSES, v.name
    assert set(GENERIC) <= CAUSES.keys()


@pytest.mark.parametrize(
    "fault, right, wrong",
    [
        ("nosoft", "dropped contribution: the second term of add is missing", "divided by n instead of n - 1"),
        ("count", "biased variance: divided by n instead of n - 1", "dropped contribution: a term of add is missing"),
        (
            "alpha",
            "alpha is ignored: taken as 1 instead of 0.5",
            "dropped contribution: the constant term 1 of add is missing",
        ),
        ("shifted", "the mask is shifted by 1: diagonal 1 instead of 0", "the mask is inverted"),
        (
            "coupled",
            "adam instead of adamw (weight decay coupled as L2 or decoupled)",
            "the constants 0.9 and 0.999 are exchanged",
        ),
        ("scale_1pc", "the result is multiplied by 1.01", "looks like: the result is multiplied by 1.01"),
        ("acc_f16", "accumulated in float16", "inputs rounded to bfloat16: x"),
    ],
)
def test_a_right_cause_is_the_planted_one(fault, right, wrong):
    variant = Variant(fault, "formula", {})
    assert named(variant, right) and not named(variant, wrong)


def test_rounding_agrees_with_torch():
    x = np.random.default_rng(0).standard_normal(4000) * 2.0 ** np.arange(-40, 40).repeat(50)
    for name, dtype in (("bf16", torch.bfloat16), ("f16", torch.float16)):
        single = x.astype(np.float32).astype(np.float64)
        want = torch.from_numpy(single.astype(np.float32)).to(dtype).double().numpy()
        np.testing.assert_array_equal(rounded(single, name), want)
        assert to_tensor(single, dtype).dtype == dtype


def test_rounding_is_single():
    just_above_a_tie = 1 + 2.0**-8 + 2.0**-40  # float32 would round it onto the tie
    assert rounded(np.array([just_above_a_tie]), "bf16")[0] == 1 + 2.0**-7


def test_honest_kernels_are_no_faults_and_planted_ones_are():
    case = Case(OPS["layer_norm"], "normal", "f32")
    for variant, tensors in case.correct():
        assert case.weigh(tensors)[0], variant.name
    dropped = {v.name: no_fault for v, _, no_fault, _ in case.faults(20)}
    assert not dropped["in_bf16"] and not dropped["biased"] and not dropped["bitflip"]


def test_a_fault_that_changes_nothing_is_left_out():
    case = Case(OPS["gather"], "ties", "f32")
    case.correct()
    dropped = {v.name: no_fault for v, _, no_fault, _ in case.faults(20)}
    assert dropped["in_tf32"]  # quarters are representable


@pytest.mark.parametrize("name", BUGS)
def test_documented_bugs_differ_from_their_controls(name):
    torch.manual_seed(0)
    shown = BUGS[name][0]()
    pairs = [(shown.good, shown.bad), (shown.left_good, shown.left_bad)]
    assert any(str(good) != str(bad) for good, bad in pairs)
