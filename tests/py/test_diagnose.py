# SPDX-License-Identifier: Apache-2.0
"""The cause that `judge_call` gives for mistakes written out as plain code: each must be
named by the words that `cause_cases` asks for."""

import copy
import re

import cause_cases
import cause_cases_layers  # noqa: F401 - adds its cases
import pytest
import torch

import ulpscope

SLOW = {"ln grad not all rows", "sdpa mask rolled", "sdpa last key", "mm tf32"}


def cause(name):
    words, function, make, device, mutates = cause_cases.CASES[name]
    torch.manual_seed(sum(map(ord, name)))
    args = make()
    theirs = copy.deepcopy(args)
    outputs = device(*theirs)
    verdict = ulpscope.judge_call(function, args, {}, outputs, mutated=(theirs, {}) if mutates else None)
    print(verdict.sentence)
    return words, verdict


@pytest.mark.parametrize("name", sorted(set(cause_cases.CASES) - SLOW)[::3])
def test_cause_is_named(name):
    words, verdict = cause(name)
    assert verdict.verdict not in ("pass", "unjudged")
    assert re.search(words, verdict.cause)
