# SPDX-License-Identifier: Apache-2.0
"""Causes by place, order, stride, formula and size: each is named, an honest kernel of the same
operator is not accused, and a mistake without a name gets none."""

import re

import cause_cases_more
import pytest
import torch

import ulpscope


def seeded(name):
    torch.manual_seed(sum(map(ord, name)))


@pytest.mark.parametrize("name", sorted(cause_cases_more.CASES))
def test_cause_is_named(name):
    words, function, make, device = cause_cases_more.CASES[name]
    seeded(name)
    args = make()
    verdict = ulpscope.judge_call(function, args, {}, device(*args))
    print(verdict.sentence)
    assert verdict.verdict not in ("pass", "unjudged")
    assert re.search(words, verdict.cause)


@pytest.mark.parametrize("name", sorted(cause_cases_more.CASES))
def test_honest_kernel_has_no_cause(name):
    seeded(name)
    function, args, outputs = cause_cases_more.honest(name)
    verdict = ulpscope.judge_call(function, args, {}, outputs)
    assert (verdict.verdict, verdict.cause) == ("pass", "")


@pytest.mark.parametrize("name", sorted(cause_cases_more.NAMELESS))
def test_nameless_mistake_gets_no_name(name):
    function, make, device = cause_cases_more.NAMELESS[name]
    seeded(name)
    args = make()
    verdict = ulpscope.judge_call(function, args, {}, device(*args))
    print(verdict.sentence)
    assert verdict.verdict in ("reduced", "wrong")
    assert verdict.cause.startswith(("cause unknown", "looks like noise"))


def test_draws_have_a_cause():
    key = torch.randint(0, 2, (2000,))
    verdict = ulpscope.judge_call(torch.randperm, (2000,), {}, torch.argsort(key, stable=True))
    assert verdict.verdict == "wrong" and verdict.cause.startswith("the draws are not random")
