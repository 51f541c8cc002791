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
from test_sim import SIGSEGV, child, death, honest, same  # noqa: F401

sim = pytest.importorskip("ulpscope.sim", exc_type=OSError)

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("bench_faults", ROOT / "bench" / "bench_faults.py")
bench = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(bench)

# One call tells nothing of them: draws that repeat need two, and subnormals may be flushed.
UNSEEN = {"offset_kept", "flush_subnormals"}
BY_OTHERS = {
    "early",
    "storage_lost",
    "autocast_narrow",
    *bench.BY_CHECK_ALONE,
    *(k for k in sim.fault_kinds() if "rank" in k),
}


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


def test_a_storage_that_is_lost_in_a_file_shows_in_the_next_step(tmp_path):
    """A weight, and a moment of the optimizer that no operator before the step reads."""
    assert bench.resumed(tmp_path, bench.LOST) == [False, True, True]
    x = torch.arange(8.0)
    kept = x.to("sim")  # so that its memory is nobody else's
    torch.save(kept, tmp_path / "x")
    torch.full((8,), -1.0, device="sim")
    with sim.plant("sim::load:storage_lost") as planted:
        assert not same(torch.load(tmp_path / "x").cpu(), x)
        assert same(torch.load(tmp_path / "x", map_location="cpu"), x)
        assert planted.fired()[0]["calls"] == 1
    assert same(torch.load(tmp_path / "x").cpu(), x)


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


# ---- what each does ----

A, B = torch.randn(6, 6), torch.randn(6, 6)


def bf16(x):
    return x.bfloat16().float()


def put(x, index, value):
    x = x.clone()
    x.view(-1)[index] = value
    return x


def tf32(x):
    return ((x.view(torch.int32) + 0xFFF + ((x.view(torch.int32) >> 13) & 1)) & ~0x1FFF).view(torch.float32)


EFFECTS = {
    "tf32": ({}, lambda: tf32(A) @ tf32(B)),
    "bf16_inputs": ({}, lambda: bf16(A) @ bf16(B)),
    "fp16_inputs": ({}, lambda: A.half().float() @ B.half().float()),
    "bf16_intermediates": ({}, lambda: bf16(bf16(A) @ bf16(B))),
    "bf16_output": ({}, lambda: bf16(A @ B)),
    "fp16_output": ({}, lambda: (A @ B).half().float()),
    "truncate": ({"bits": 13}, lambda: ((A @ B).view(torch.int32) & ~0x1FFF).view(torch.float32)),
    "scale": ({"factor": 2}, lambda: 2 * (A @ B)),
    "offset": ({"value": 0.5}, lambda: A @ B + 0.5),
    "nan": ({"index": 7}, lambda: put(A @ B, 7, float("nan"))),
    "inf": ({"index": -1, "sign": -1}, lambda: put(A @ B, -1, float("-inf"))),
    "zero_one": ({"index": 3}, lambda: put(A @ B, 3, 0)),
    "bit_flip": ({"index": 2, "bit": 31}, lambda: put(A @ B, 2, -(A @ B).view(-1)[2])),
    "swap_two": ({"a": 0, "b": 9}, lambda: put(put(A @ B, 0, (A @ B).view(-1)[9]), 9, (A @ B)[0, 0])),
    "drop_tail": ({"n": 4}, lambda: put(A @ B, slice(-4, None), 0)),
}


@pytest.mark.parametrize("kind", EFFECTS)
def test_fault_does_what_its_row_says(kind):
    params, expected = EFFECTS[kind]
    a, b = A.to("sim"), B.to("sim")
    with sim.fault("aten::mm", kind, **params):
        other = a + b
        result = a @ b
        (row,) = sim.faults_fired()
    assert torch.equal(result.cpu().nan_to_num(), expected().nan_to_num())
    assert not same(result, A @ B) and same(other, A + B)
    assert (row["calls"], row["fired"], row["changed"]) == (1, 1, 1)
    assert same(a, A) and same(b, B) and same(a @ b, A @ B)
    assert sim.faults_fired() == []


def test_stale_tail_keeps_what_was_in_memory():
    x, y = torch.arange(6.0, device="sim"), torch.full((6,), 9.0, device="sim")
    with sim.fault("aten::mul_", "stale_tail", n=2):
        x.mul_(10)
    assert x.tolist() == [0, 10, 20, 30, 4, 5]
    with sim.fault("aten::add.out", "stale_tail", n=3):
        torch.add(x, 1, out=y)
    assert y.tolist() == [1, 11, 21, 9, 9, 9]


def test_flush_subnormals():
    x = torch.tensor([1e-40, -1e-40, 1.0])
    with sim.fault("aten::mul", "flush_subnormals"):
        assert same(x.to("sim") * 1, torch.tensor([0.0, -0.0, 1.0]))


def test_step_plus_one_is_in_the_computation_only():
    results = []
    for device, steps in (("cpu", 4.0), ("sim", 3.0)):
        p, g, m, v = (torch.full((3,), x, device=device) for x in (1.0, 0.5, 0.1, 0.2))
        step = torch.tensor(steps, device=device)
        with sim.fault("aten::_fused_adamw_", "step_plus_one"):
            torch._fused_adamw_(
                [p],
                [g],
                [m],
                [v],
                [],
                [step],
                lr=0.1,
                beta1=0.9,
                beta2=0.99,
                weight_decay=0.0,
                eps=1e-8,
                amsgrad=False,
                maximize=False,
            )
            fired = sim.faults_fired()[0]["fired"]
        results.append(p)
        assert step.item() == steps
    assert same(*results) and fired == 1


def test_intermediates_of_a_composed_operator():
    x, y = torch.randn(50), torch.randn(50)
    with sim.fault("simtest::hypot", "bf16_intermediates"):
        got = torch.ops.simtest.hypot(x.to("sim"), y.to("sim"))
        also = x.to("sim") * y.to("sim")
        assert sim.faults_fired()[0]["fired"] == 1
    expected = bf16(bf16(bf16(x * x) + bf16(y * y)).sqrt())
    assert same(got, expected) and same(also, x * y)
    assert same(torch.ops.simtest.hypot(x.to("sim"), y.to("sim")), (x * x + y * y).sqrt())


def test_tf32_leaves_the_bias_alone():
    a, b, bias = A.to("sim"), B.to("sim"), torch.randn(6)
    with sim.fault("addmm", "tf32"):
        assert same(torch.addmm(bias.to("sim"), a, b), torch.addmm(bias, tf32(A), tf32(B)))


def test_faults_match_the_name_that_was_called():
    x = torch.ones(4, device="sim")
    with sim.fault("aten::add.Tensor", "scale", factor=3):
        assert (x + x).tolist() == [6] * 4
        assert x.clone().add_(1).tolist() == [2] * 4
        assert x.sub(1).tolist() == [0] * 4
    with sim.fault("add_, !aten::mul_", "scale", factor=3):
        assert x.clone().add_(1).tolist() == [6] * 4
        assert (x + x).tolist() == [2] * 4


def test_fault_on_a_strided_output_stays_inside_it():
    x = torch.zeros(4, 3, device="sim")
    with sim.fault("aten::add_", "drop_tail", n=2):
        x[:, 1].add_(5)
    assert x.flatten().tolist() == [0, 5, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]


def test_intermittent_fault_fires_sometimes_and_repeatably():
    def run(seed):
        with sim.fault("aten::mm", "nan", p=0.3, seed=seed):
            return [bool((A.to("sim") @ B.to("sim")).isnan().any()) for _ in range(40)]

    assert run(1) == run(1) != run(2) and 2 < sum(run(1)) < 25
    with sim.fault("aten::mm", "nan", nth=2):
        assert [bool((A.to("sim") @ B.to("sim")).isnan().any()) for _ in range(4)] == [False, True, False, False]


def test_crash_and_hang():
    x = torch.ones(2, device="sim")
    with sim.fault("aten::exp", "crash"):
        assert death(lambda: x.exp()) == SIGSEGV
    code = (
        "import signal, torch, ulpscope.sim as s; torch.ones(2, device='sim').sin(); signal.alarm(3);"
        "x = torch.ones(2, device='sim'); s.fault('exp', 'hang'); x.sin(); print('alive',"
        "flush=True); x.exp(); print('back')"
    )
    done = child(code)
    assert done.returncode == -14 and done.stdout == "alive\n"


def test_bad_faults_are_refused():
    for bad in (("mm", "no_such_kind"), ("m m", "nan"), ("mm", "nan:index")):
        with pytest.raises(ValueError, match="fault|pattern"):
            sim.fault(*bad)
    with pytest.raises(ValueError, match="no key of nan"):
        sim.fault("mm", "nan", factor=2)
