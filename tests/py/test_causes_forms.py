# SPDX-License-Identifier: Apache-2.0
"""Causes in functions under autograd, in parts of a formula and in layouts: each is named, an
honest kernel of the same call is not accused, and a mistake without a name gets none."""

import re

import cause_cases_forms as forms
import cause_cases_graph as graph
import cause_cases_variants  # noqa: F401 - adds its cases
import pytest
import torch

import ulpscope


def judged(function, make, device, name):
    torch.manual_seed(sum(map(ord, name)))
    args = make()
    return ulpscope.judge_call(function, args, {}, device(*args))


CASES = forms.CASES | graph.CASES


@pytest.mark.parametrize("name", sorted(CASES))
def test_cause_is_named(name):
    words, function, make, device = CASES[name]
    verdict = judged(function, make, device, name)
    print(verdict.sentence)
    assert verdict.verdict in ("reduced", "wrong")
    assert re.search(words, verdict.cause)


@pytest.mark.parametrize("name", sorted(CASES))
def test_honest_kernel_has_no_cause(name):
    _, function, make, _ = CASES[name]
    verdict = judged(function, make, function, name)
    assert (verdict.verdict, verdict.cause) == ("pass", "")


@pytest.mark.parametrize("name", sorted(forms.NAMELESS | graph.NAMELESS))
def test_nameless_mistake_gets_no_name(name):
    verdict = judged(*(forms.NAMELESS | graph.NAMELESS)[name], name)
    print(verdict.sentence)
    assert verdict.verdict in ("reduced", "wrong") and verdict.cause.startswith("cause unknown")
