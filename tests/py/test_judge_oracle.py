# SPDX-License-Identifier: Apache-2.0
"""The C judge against the rule in plain float64 (oracle_rule.py), on hundreds of operands
drawn from a printed seed: same verdict, same counts, nearly the same numbers; and against
verdicts that were stored when the rule was measured (golden/judge_cases.json)."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from pathlib import Path

import judge_cases
import judge_library
import oracle_rule
import pytest
import torch

SEED = int(os.environ.get("ULPSCOPE_TEST_SEED", "20240607"))
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "judge_cases.json"


def judge_in_c(o: oracle_rule.Operands, n_fast: int = 4):
    with judge_library.Judge(o.device, o.reference, o.yardstick) as judge:
        for r, y in o.replays[:n_fast]:
            judge.replay(r, y)
        first = judge.look()
        if not first.needs_appeal:
            return first, True
        for r, y in o.replays[n_fast:]:
            judge.replay(r, y)
        return judge.appeal(o.fan_in, o.movement, o.flushed), False


def near(a: float, b: float, factor: float = 1.2) -> bool:
    """Within a bin, and both in the range that bins cover."""
    a, b = (min(max(x, 2.0**-8), 2.0**31) if x else x for x in (a, b))
    return a == b or (b != 0 and 1 / factor < a / b < factor)


@pytest.mark.parametrize("dtype", list(oracle_rule.FORMAT), ids=str)
def test_same_verdict_as_the_rule_in_plain_float64(dtype):
    print(f"seed {SEED}")
    seen = Counter()
    for label, o in judge_cases.cases(SEED, dtype):
        got, at_first_look = judge_in_c(o)
        early = oracle_rule.look(oracle_rule.Operands(o.device, o.reference, o.yardstick, o.replays[:4]))
        assert at_first_look == (early is not None), label
        if early is not None:
            assert got.status == early, label
            seen[early] += 1
            continue
        want = oracle_rule.appeal(o)
        seen[want.status] += 1
        assert got.status == want.status, (label, want, got.reason)
        assert got.n_mismatch == want.n_mismatch, label
        assert got.n_bad == want.n_nonfinite, label
        assert got.flushes == want.flushes, label
        assert math.isclose(got.max, want.max, rel_tol=1e-4), label
        assert near(got.mid, want.mid) and near(got.rel, want.rel), label
        assert math.isclose(got.z, want.z, abs_tol=1e-9), label
        if want.status in ("reduced", "wrong") and got.bits > 0:
            assert abs(got.bits - want.bits) < 0.3, label
    print(dict(seen))
    assert min(seen[s] for s in ("pass", "reduced", "wrong", "nonfinite")) >= 10, seen


def test_stored_verdicts_of_the_measured_rule_still_hold():
    stored = json.loads(GOLDEN.read_text())
    names = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
    mended, n = 0, 0
    for short, dtype in names.items():
        for (label, o), (status, m, bits) in zip(judge_cases.cases(stored["seed"], dtype), stored[short], strict=True):
            got, at_first_look = judge_in_c(o)
            n += 1
            if got.status != status:  # the mends, which the plain rule has as well
                assert oracle_rule.appeal(o).status == got.status, (short, label)
                mended += 1
                continue
            # the first look has not excused anything yet, and lower limits excuse more
            assert m is None or at_first_look or got.n_mismatch <= m, (short, label)
            if bits is not None and got.bits > 0:
                assert abs(got.bits - bits) < 0.3, (short, label)
    print(f"{n} verdicts, {mended} mended")
    assert mended < n / 10
