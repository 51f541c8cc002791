# SPDX-License-Identifier: Apache-2.0
"""Facts of a result stand beside its cause or beside none, the cheapest explanation is the first, and a
name that other mistakes would deserve as well is not given."""

import re

import cause_cases_facts as facts
import cause_cases_flex as flex
import cause_cases_nameless as nameless
import cause_cases_rivals as rivals
import pytest
import torch

import ulpscope


def judged(name, function, make, device):
    torch.manual_seed(sum(map(ord, name)))
    args = make()
    verdict = ulpscope.judge_call(function, args, {}, device(*args))
    print(verdict.sentence)
    return verdict


NAMED = facts.CASES | flex.CASES | rivals.CASES
NAMELESS = nameless.NAMELESS | rivals.NAMELESS


@pytest.mark.parametrize("name", sorted(NAMED))
def test_cause_is_named(name):
    words, *rest = NAMED[name]
    verdict = judged(name, *rest)
    assert verdict.verdict in ("reduced", "wrong", "nonfinite")
    assert re.search(words, verdict.cause)


@pytest.mark.parametrize("name", sorted(facts.CASES))
def test_honest_kernel_has_no_cause(name):
    torch.manual_seed(sum(map(ord, name)))
    function, args, outputs = facts.honest(name)
    verdict = ulpscope.judge_call(function, args, {}, outputs)
    assert (verdict.verdict, verdict.cause) == ("pass", "")


@pytest.mark.parametrize("name", sorted(NAMELESS))
def test_no_name_that_others_deserve(name):
    words, *rest = NAMELESS[name]
    verdict = judged(name, *rest)
    assert verdict.verdict in ("reduced", "wrong", "nonfinite")
    assert not re.search(words, verdict.cause)
