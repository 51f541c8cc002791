# SPDX-License-Identifier: Apache-2.0
"""Faults of the simulated device: each kind is seen where it is planted alone, by the calls of `./run bench faults`;
lines of JSON; when and where; known bugs."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import torch

sim = pytest.importorskip("ulpscope.sim", exc_type=OSError)

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("bench_faults", ROOT / "bench" / "bench_faults.py")
bench = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(bench)

# One call tells nothing of them: draws that repeat need two, and subnormals may be flushed.
UNSEEN = {"offset_kept", "flush_subnormals"}
BY_OTHERS = {"early", "autocast_narrow", *bench.BY_CHECK_ALONE, *(k for k in sim.fault_kinds() if "rank" in k)}


@pytest.fixture(autouse=True)
def clean():
    sim.clear_faults()
    yield
    sim.clear_faults()


@pytest.mark.parametrize("kind", [k for k in sim.fault_kinds() if k not in BY_OTHERS])
def test_each_kind_is_found_by_a_check(kind):
    cases, keys = bench.OF_KIND.get(kind, (bench.PLAIN, ""))
    assert not any(bench.accused(case) for case in list(cases.values())[:1])
    if kind not in UNSEEN:
        assert any(bench.accused(case, bench.faults_of(name, kind, keys)) for name, case in cases.items())


@pytest.mark.parametrize("place", bench.waits())
def test_a_lost_wait_shows_with_one_of_twenty_seeds(place):
    program = bench.waits()[place]
    assert not bench.differs(program, "aten::nothing:nan")
    assert bench.differs(program, f"{place}:early")


def test_collectives_that_go_wrong():
    rank_kinds = [k for k in sim.fault_kinds() if k.startswith("rank")]
    found = bench.wrong_on_ranks({"": "", **{k: f"simccl::*:{k}" for k in rank_kinds}})
    assert found.pop("") == 0 and all(found.values()), found


@pytest.mark.parametrize("bug", bench.OF_BUG)
def test_known_bugs_are_found_where_they_are_planted(bug):
    seen = bench.bug_is_found(bug) == "`check`: yes"
    assert seen or bug in ("mps_randperm_two_runs", "mps_multinomial_always_zero"), bug


def test_autocast_in_the_wrong_list():
    assert bench.narrow_is_found()


def test_a_generator_that_does_not_move_on():
    with sim.fault("aten::uniform_", "offset_kept"):
        assert torch.equal(torch.rand(5, device="sim"), torch.rand(5, device="sim"))
    assert not torch.equal(torch.rand(5, device="sim"), torch.rand(5, device="sim"))


def test_lines_of_a_file(tmp_path):
    file = tmp_path / "faults.jsonl"
    file.write_text(
        '# two\n{"ops": "aten::mul", "kind": "scale", "params": {"factor": 2}, "where": {"index": 1}}\n'
        '{"ops": "add*", "kind": "offset", "params": {"value": 1}, "when": {"nth": 2}}\n'
    )
    x = torch.ones(3, device="sim")
    with sim.faults_from(file) as planted:
        assert (x * 3).tolist() == [3, 6, 3] and [(x + 1).tolist()[0] for _ in range(3)] == [2, 3, 2]
        assert [one["fired"] for one in planted.fired()] == [1, 1]
    with sim.plant(f"@{file}"):
        assert (x * 3).tolist() == [3, 6, 3]
    file.write_text('\n{"ops": "mm", "kind": "scael"}\n')
    with pytest.raises(ValueError, match=r"faults.jsonl:2: .*the nearest is 'scale'"):
        sim.faults_from(file)
    code = "import ulpscope.sim as s; print(len(s.faults_fired()))"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**__import__("os").environ, "ULPSCOPE_SIM_FAULTS": f"@{file}"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 1 and "faults.jsonl:2: " in run.stderr


def test_steps_and_outputs():
    p = torch.nn.Parameter(torch.ones(2, device="sim"))
    optimizer = torch.optim.SGD([p], lr=0.0)
    sim.set_step(0)
    with sim.fault("aten::mul", "scale", factor=2, step=1):
        seen = []
        for _ in range(3):
            seen.append((p * 1)[0].item())
            p.grad = torch.zeros_like(p)
            optimizer.step()
    assert seen == [1, 2, 1]
    sim.set_step(0)
    x = torch.tensor([3.0, 1.0, 2.0], device="sim")
    with sim.fault("aten::sort", "constant", value=0, output=1):
        values, indices = x.sort()
    assert values.tolist() == [1, 2, 3] and indices.tolist() == [0, 0, 0]


def test_other_operators_stay_on_their_streams():
    with sim.schedule(0, delay=1.0), sim.fault("aten::mm", "nan"):
        x = torch.ones(9, device="sim") * 2
        assert not sim.current_stream().query()
        assert x.tolist() == [2] * 9


def test_the_page_has_every_kind_and_bug():
    text = (ROOT / "docs/reference/faults.md").read_text()
    assert [k for k in sim.fault_kinds() if f"| `{k}` |" not in text] == []
    assert [b for b in sim.bugs() if f"| `{b}` |" not in text] == []
    with pytest.raises(ValueError, match="the nearest is 'mps_topk_over_16'"):
        sim.fault("bug:mps_top")
    with pytest.raises(ValueError, match="neither a pattern"):
        sim.fault("mm")
