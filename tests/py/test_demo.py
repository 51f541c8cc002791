# SPDX-License-Identifier: Apache-2.0
"""The main job end to end, as `./run demo` does it: faults that are planted are named, and
nothing else is."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLAGGED = {"crashed", "timeout", "nonfinite", "wrong", "reduced", "intermittent"}

# Operators of the demo's step and the kinds that must show on any of them.
OPERATORS = [
    "aten::mm",
    "aten::addmm",
    "aten::bmm",
    "aten::gelu",
    "aten::gelu_backward",
    "demo::rms_norm",
    "demo::rms_norm_backward",
    "aten::_softmax_backward_data",
    "aten::_log_softmax",
]
# (nan and inf in the first step would leave nothing finite to judge in the second).
KINDS = ["tf32", "bf16_inputs", "bf16_output", "bf16_intermediates", "scale", "offset", "bit_flip"]
# The first gradient is a zero of the causal mask, which the flip makes 1.5e-39: as good as zero.
SHOWS_NOT = ("bit_flip", "aten::_softmax_backward_data")


def demo(out: Path, *arguments: str) -> tuple[int, str, list[dict]]:
    run = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py"), "-o", str(out), "--steps", "3", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=300,
    )
    path = out / "report" / "result.json"
    calls = json.loads(path.read_text())["calls"] if path.exists() else []
    return run.returncode, run.stdout + run.stderr, calls


def accused(calls: list[dict]) -> set[str]:
    return {(c.get("culprit") or c["op"]).rsplit(".", 1)[0] for c in calls if c["verdict"] in FLAGGED}


def without_digits(text: str) -> list[str]:
    """Its words: digits depend on the processor and on the steps, and where a line breaks on them."""
    text = re.sub(r"\[\d+(, \d+)*\]", "[0]", text)  # of a matrix or a bias
    return re.sub(r"[-+]?[\d][\d.,e-]*", "0", text).split()


def test_demo_names_the_three_planted_faults_and_nothing_else(tmp_path):
    code, text, calls = demo(tmp_path / "out")
    assert code == 0, text
    shown = re.search(r"^```\n(verdict .*?)^\.\.\.$", (ROOT / "README.md").read_text(), re.S | re.M)[1]
    assert " ".join(without_digits(shown)) in " ".join(without_digits(text)), "the README shows what it prints"
    assert accused(calls) == {"aten::_fused_adamw_", "demo::rms_norm", "aten::mm"}
    by_op = {}
    for call in calls:
        if call["verdict"] in FLAGGED:
            by_op.setdefault(call["op"].rsplit(".", 1)[0], []).append(call)
    assert all("second time" in c["cause"] for c in by_op["aten::_fused_adamw_"])
    assert all("bfloat16" in c["cause"] for c in by_op["demo::rms_norm"])
    assert all("TF32" in c["cause"] for c in by_op["aten::mm"])
    assert 10 <= median(c["bits"] for c in by_op["aten::mm"]) <= 12.5  # TF32 has 11
    assert 6.5 <= median(c["bits"] for c in by_op["demo::rms_norm"]) <= 9.5  # bfloat16: 8
    assert (tmp_path / "out" / "report" / "report.html").stat().st_size > 10_000


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--fault", "nosuch", "--op", "aten::gelu"], ("no kind 'nosuch'; the nearest is", "--list")),
        (["--fault", "bit_flip", "--op", "["], ("pattern '['",)),
        (["--fault", "bit_flip"], ("belong together",)),
        (["--honest", "--fault", "bit_flip", "--op", "gelu"], ("--honest",)),
    ],
)
def test_a_demo_that_cannot_be_is_refused_before_it_trains(tmp_path, arguments, words):
    code, text, _ = demo(tmp_path / "out", *arguments)
    assert code == 2 and "Traceback" not in text and not (tmp_path / "out").exists(), text
    assert all(word in text for word in words), text


def test_honest_demo_accuses_nothing(tmp_path):
    code, text, calls = demo(tmp_path / "out", "--honest")
    assert code == 0, text
    assert len(calls) > 200 and accused(calls) == set()
    assert all(c["verdict"] == "pass" for c in calls), [c for c in calls if c["verdict"] != "pass"]


@pytest.mark.parametrize("draw", range(2))
def test_a_fault_drawn_at_random_is_named(tmp_path, draw):
    seed = int(os.environ.get("ULPSCOPE_TEST_SEED", random.randrange(10**6))) + draw
    chance = random.Random(seed)
    kind, op = chance.choice(KINDS), chance.choice(OPERATORS)
    if (kind, op) == SHOWS_NOT:
        kind = "scale"
    print(f"seed {seed}: {kind} on {op}")
    code, text, calls = demo(tmp_path / "out", "--fault", kind, "--op", op)
    assert code == 0, f"seed {seed}: {kind} on {op}\n{text}"
    assert accused(calls) == {op}
