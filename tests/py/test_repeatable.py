# SPDX-License-Identifier: Apache-2.0
"""`ulpscope.time_ops`, `deterministic`, `seed_all`: what they tell, what they set, that all is
taken back."""

import os
import random

import numpy
import pytest
import torch

import ulpscope
import ulpscope.sim
from ulpscope.program import repeatable

DEVICES = ("cpu", "sim:0")


def step(device):
    torch.manual_seed(0)
    net = torch.nn.Linear(8, 8).to(device)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    net(torch.randn(4, 8).to(device)).sum().backward()
    opt.step()
    return net.weight.detach().cpu()


# ---- time_ops ---------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_times_of_forward_backward_and_optimizer(device):
    right = step(device)
    with ulpscope.time_ops() as times:
        assert torch.equal(step(device), right)
    rows = {(r.op, r.phase): r for r in times.rows()}
    assert times.error is None
    assert rows["aten::addmm", "forward"].n_calls == 1
    assert rows["aten::mm", "backward"].n_calls == 1
    assert any(phase == "optimizer" for _, phase in rows)
    totals = [r.total_ms for r in times.rows()]
    assert totals == sorted(totals, reverse=True) and min(totals) >= 0
    assert all(r.mean_ms <= r.most_ms + 1e-9 and r.most_ms <= r.total_ms + 1e-9 for r in times.rows())
    assert times.table(2).count("\n") == 3 and "more" in times.table(2)


def test_times_of_a_pattern_add_up_over_blocks():
    a = torch.ones(4, 4)
    times = ulpscope.time_ops("aten::mm")
    for _ in range(2):
        with times:
            a @ a + a
    assert [(r.op, r.n_calls, r.clock) for r in times.rows()] == [("aten::mm", 2, "host")]


def test_times_and_a_fallback_at_once():
    a = torch.randn(4, 4, device="sim")
    right = a.cpu() @ a.cpu()
    with ulpscope.sim.fault("aten::mm", "scale"):
        with ulpscope.time_ops() as times, ulpscope.fallback("aten::mm") as moved:
            assert torch.equal((a @ a).cpu(), right)
    assert moved.n_calls == {"aten::mm": 1}
    assert sum(r.n_calls for r in times.rows() if r.op == "aten::mm") == 1


def test_an_exception_of_the_program_leaves_the_times_whole():
    with ulpscope.time_ops() as times:
        with pytest.raises(RuntimeError):
            torch.mm(torch.ones(2, 3), torch.ones(2, 3))
        torch.ones(2, 2) @ torch.ones(2, 2)
    assert times.error is None and any(r.op == "aten::mm" for r in times.rows())


# ---- deterministic ---------------------------------------------------------------------


def switches():
    cudnn = torch.backends.cudnn
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        cudnn.deterministic,
        cudnn.benchmark,
        {n: os.environ.get(n) for n in repeatable.VARIABLES},
    )


def test_settings_are_made_and_taken_back(monkeypatch):
    monkeypatch.setenv("NCCL_ALGO", "Tree")
    monkeypatch.delenv("HCCL_DETERMINISTIC", raising=False)
    before = switches()
    with pytest.raises(KeyError), ulpscope.deterministic() as same:
        assert switches()[:4] == (True, True, True, False)
        assert os.environ["HCCL_DETERMINISTIC"] == "true" and os.environ["NCCL_ALGO"] == "Tree"
        raise KeyError
    assert switches() == before and same.problems == []


def test_operators_that_draw_are_named():
    with ulpscope.deterministic() as same:
        torch.nn.functional.dropout(torch.ones(8), 0.5)
        torch.randn(3, device="sim")
        torch.ones(3) + 1
    assert set(same.random) >= {"aten::randn"} and not any("add" in op for op in same.random)
    assert any("dropout" in op or "bernoulli" in op for op in same.random)


def test_a_setting_that_is_changed_inside_is_said(capfd):
    with ulpscope.deterministic() as same:
        torch.backends.cudnn.benchmark = True
        os.environ["HCCL_DETERMINISTIC"] = "false"
    assert len(same.problems) == 2 and "cudnn.benchmark was changed" in capfd.readouterr().err


def test_a_setting_that_comes_too_late_is_said(monkeypatch):
    monkeypatch.setattr(repeatable, "_has_started", lambda name, reader: name == "HCCL_DETERMINISTIC")
    monkeypatch.delenv("HCCL_DETERMINISTIC", raising=False)
    with ulpscope.deterministic() as same:
        pass
    assert len(same.problems) == 1 and "HCCL_DETERMINISTIC is set too late" in same.problems[0]


# ---- seed_all --------------------------------------------------------------------------


def drawn(device):
    return [
        t.cpu()
        for t in (
            torch.randn(5, device=device),
            torch.rand(5, device=device),
            torch.randperm(7, device=device),
            torch.nn.functional.dropout(torch.ones(64, device=device), 0.5),
            torch.zeros(9, device=device).normal_(),
            torch.bernoulli(torch.full((32,), 0.5, device=device)),
            torch.multinomial(torch.ones(6, device=device), 3),
            torch.randint(0, 100, (6,), device=device),
            torch.empty(4, device=device).exponential_(),
        )
    ]


def test_two_devices_draw_the_same_numbers():
    with ulpscope.seed_all(5):
        right = drawn("cpu")
    with ulpscope.seed_all(5) as seeded:
        got = drawn("sim:0")
    assert all(torch.equal(a, b) for a, b in zip(right, got, strict=True))
    assert seeded.n_calls and seeded.error is None


def test_every_source_is_seeded_and_only_drawing_moves():
    numbers = []
    for _ in range(2):
        ulpscope.seed_all(7, cpu_random=False)
        numbers.append((random.random(), numpy.random.rand(), torch.rand(1).item(), torch.rand(1, device="sim").item()))
    assert numbers[0] == numbers[1]
    a = torch.randn(4, 4, device="sim")
    with ulpscope.sim.fault("aten::mm", "scale"):
        wrong = (a @ a).cpu()
        seeded = ulpscope.seed_all(1)
        assert torch.equal((a @ a).cpu(), wrong)
        seeded.remove()
    assert seeded.n_calls == {}


@pytest.mark.parametrize("seed", (-1, 1.5, "a", None, True))
def test_a_bad_seed_is_refused(seed):
    with pytest.raises(ValueError, match="a whole number"):
        ulpscope.seed_all(seed)
