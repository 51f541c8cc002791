# SPDX-License-Identifier: Apache-2.0
"""Judges the documented bugs and their controls."""

import re
import time

import torch

from .documented import BUGS
from .engine import is_silent, number


def lines(seed=0, only=None):
    """Two lines for each bug: the control must pass, the bug must be named."""
    for name, (make, cause) in BUGS.items():
        if only and name not in only:
            continue
        torch.manual_seed(seed)
        shown = make()
        yield line(name, shown, shown.good, shown.left_good, "correct", None, seed)
        yield line(name, shown, shown.bad, shown.left_bad, "documented", cause, seed)


def line(name, shown, outputs, left, klass, cause, seed):
    import ulpscope

    mutated = None if left is None else (left, shown.kwargs)
    start = time.thread_time()
    v = ulpscope.judge_call(shown.fn, shown.args, shown.kwargs, outputs, mutated=mutated)
    named = None if cause is None else not is_silent(v.cause) and re.search(cause, v.cause.lower()) is not None
    return {
        "op": "documented",
        "held": False,
        "profile": "trigger",
        "dtype": "as reported",
        "seed": seed,
        "variant": name if cause else "control",
        "class": klass,
        "dropped": False,
        "true_bits": None,
        "nominal": None,
        "verdict": v.verdict,
        "bits": number(v.effective_bits),
        "own": number(v.expected_bits),
        "cause": v.cause,
        "sentence": v.sentence,
        "right_cause": named,
        "silent": is_silent(v.cause),
        "id": name,
        "exceeded": 0.0,
        "seconds": round(time.thread_time() - start, 4),
    }
