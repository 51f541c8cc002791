# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the watch measures with a right ruler: the fault is the scheduled one and no other, what
comes before it or behind the window counts for nothing, and the clean run is quiet."""

import json
import math
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.watch import plant, tables  # noqa: E402
from bench.watch.watched import Watched, clean_losses, tried  # noqa: E402
from bench.watch.work import Training  # noqa: E402

CLEAN, STEPS = 20, 8


@pytest.fixture(scope="module")
def watched():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    made = Watched(Training("mlp", "float32"), CLEAN)
    yield made
    made.close()
    torch.set_num_threads(threads)


def fault(site="grad", name="layers.2.weight", step=CLEAN + 3, **what):
    return json.dumps({"step": step, "site": site, "name": name, "element": 5} | (what or {"fault": "flip", "bit": 30}))


def test_the_clean_run_is_quiet_and_a_trial_leaves_nothing_behind(watched):
    losses, alarms = clean_losses(watched, 3, STEPS)
    assert watched.early == {"ours": [], "default": [], "audit": []} and not any(alarms.values())
    harmed = watched.window(fault("weight"), 1, STEPS)
    again = watched.window("", 0, STEPS)
    assert again.loss == losses[0] != harmed.loss and again.seen["ours"] == [] and again.planted is None


def test_a_big_fault_is_seen_from_its_step_on_by_name(watched):
    done = watched.window(fault("weight"), 1, STEPS)
    assert done.planted == CLEAN + 3
    step, kind, tensor, rank = done.seen["ours"][0]
    assert (step, kind, tensor, rank) == (CLEAN + 4, "changed", "layers.2.weight", 0)
    grad = watched.window(fault(), 1, STEPS)
    assert [s[0] for s in grad.seen["v3"]][:1] == [CLEAN + 3] == [s[0] for s in grad.seen["ours"]][:1]
    assert grad.scores["ours"] > 1 and grad.scores["v3"] > 1


def test_what_passes_is_right_when_an_audit_computes_it_again_and_what_lasts_is_not(watched):
    passing = {"fault": "flip", "bit": 30}
    for more, seen in (({}, True), ({"steps": -1}, False)):
        done = watched.window(fault("forward", "layers.2", **passing | more), 1, STEPS)
        assert bool(done.seen["audit"]) == seen and done.seen["ours"], more


def test_a_fault_behind_the_window_counts_for_nothing(watched):
    done = watched.window(fault(step=CLEAN + STEPS), 1, STEPS)
    assert done.planted is None and not any(done.seen.values()) and max(done.scores.values()) == 0


@pytest.mark.parametrize(
    "site", ["forward", "activation", "dgrad", "wgrad", "grad", "update", "weight", "moment1", "moment2"]
)
def test_exactly_the_scheduled_element_is_changed(watched, site, monkeypatch):
    name = {"forward": "layers.2", "dgrad": "layers.2", "wgrad": "layers.2", "activation": "layers.1"}.get(
        site, "layers.2.weight"
    )
    changed = []
    put = watched.plant.put

    def compared(tensor, at, of):
        before = tensor.detach().clone()
        put(tensor, at, of)
        if not torch.equal(before, tensor):
            flat = [plant.in_memory_order(t.detach()).reshape(-1).view(torch.int32) for t in (before, tensor)]
            changed.extend(
                (at, of, i, int(flat[0][i] ^ flat[1][i])) for i in (flat[0] != flat[1]).nonzero().flatten().tolist()
            )

    monkeypatch.setattr(watched.plant, "put", compared)
    watched.window(fault(site, name, fault="flip", bit=3), 1, STEPS)
    assert changed == [(site, name, 5, 8)]


def test_schedules_can_be_had_again_and_name_what_is_there(watched):
    one, two = (plant.trials(watched.t, 2, 4, 1, CLEAN) for _ in range(2))
    assert one == two and {t.site for t in one} >= {"forward", "dgrad", "wgrad", "moment2"}
    for trial in one:
        assert trial.name in plant.names_of(watched.t, trial.site) and json.loads(trial.line)["rank"] == trial.rank < 2


def test_harm_is_what_the_loss_moved_and_tables_weigh_with_it(watched):
    trial = plant.Trial("mlp", "float32", "", 1, "F10", "weight", "exp hi", "layers.2.weight", 0, 1, fault("weight"))
    losses, _ = clean_losses(watched, 2, STEPS)
    row = tried(watched, trial, losses, STEPS)
    assert row["outside"] and (
        row["harm"] == 1 or row["harm"] == pytest.approx(abs(row["loss"] - losses[0]) / losses[0])
    )
    rows = [{"seen": {"a": [1]}, "harm": 0.1}, {"seen": {"a": []}, "harm": 0.9}]
    assert tables.percent(rows, "a") == "50" and math.isclose(tables.weighted(rows, "a"), 10)
