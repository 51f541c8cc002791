# SPDX-License-Identifier: Apache-2.0
"""How bench/bench_precheck.py counts: a fault belongs to one function and direction, and what is
said of an honest device finds none."""

import importlib
import sys
from pathlib import Path

import pytest


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(__file__).resolve().parents[2] / "bench")])
    return importlib.import_module("bench_precheck")


def test_each_run_plants_one_fault_in_each_function(bench):
    seen = set()
    for direction, planted in bench.plans(2):
        functions = [function for _, function, _ in planted]
        assert len(planted) == len(set(functions)) == 12
        assert len({kind for *_, kind in planted}) == 12
        seen |= {(direction, op, kind) for op, _, kind in planted}
    assert len(seen) == 48  # no fault twice


def test_only_what_is_worse_than_on_an_honest_device_finds_a_fault(bench):
    honest = {(1, "gelu", "forward"): "", (2, "gelu", "forward"): "warning", (3, "gelu", "backward"): "usual"}
    said = dict.fromkeys(honest, "warning")
    assert bench.found_in(said, honest, "gelu", "forward") == "warning"  # call 1
    assert bench.found_in(said, {**honest, (1, "gelu", "forward"): "warning"}, "gelu", "forward") == ""
    assert bench.found_in(said, honest, "gelu", "backward") == "warning"
    assert bench.found_in(honest, honest, "gelu", "backward") == ""
    assert bench.found_in(said, honest, "silu", "forward") == ""
