# SPDX-License-Identifier: Apache-2.0
"""torch.profiler on the simulated device: time of the device by operator, a row for each stream, arrows from a
launch to what it launched."""

from __future__ import annotations

import json

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

sim = pytest.importorskip("ulpscope.sim", exc_type=OSError)
pytestmark = pytest.mark.skipif(not sim.has_profiler(), reason="this torch's profiler takes in no other devices")


def profiled(tmp_path, program):
    """(what torch sums up, events of the chrome trace)."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as profiler:
        program()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    return {e.key: e for e in profiler.key_averages()}, events


def of_kind(events, *kinds):
    return [e for e in events if e.get("cat") in kinds and e["ph"] == "X"]


@pytest.mark.parametrize("in_step", [False, True])
def test_rows_times_and_arrows(tmp_path, in_step):
    side, x = sim.Stream("sim:1"), torch.randn(64, 64).to("sim")

    def program():
        y = x @ x
        with sim.stream(side):
            torch.ones(64, device="sim:1").exp()
        y.sum().item()

    sim.set_launch_blocking(in_step)
    try:
        sums, events = profiled(tmp_path, program)
    finally:
        sim.set_launch_blocking(False)
    for name in ("aten::mm", "aten::exp", "aten::sum"):
        assert sums[name].self_device_time_total > 0, name
    ran = {e["name"]: e for e in of_kind(events, "kernel", "gpu_memcpy")}
    assert (ran["aten::mm"]["pid"], ran["aten::mm"]["tid"]) == (0, 0)
    assert (ran["aten::exp"]["pid"], ran["aten::exp"]["tid"]) == (1, side.stream_id)
    rows = [(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name" and "stream" in e["args"]["name"]]
    assert {(0, 0), (1, side.stream_id)} <= set(rows)
    arrows = {kind: {e["id"] for e in events if e.get("cat") == "ac2g" and e["ph"] == kind} for kind in "sf"}
    assert arrows["s"] == arrows["f"] and len(arrows["s"]) == len(of_kind(events, "kernel", "gpu_memcpy"))


def test_a_kernel_begins_behind_its_launch(tmp_path):
    def program():
        with sim.schedule(seed=1, delay=1):
            x = torch.ones(8, device="sim") + 1
            for _ in range(3):
                x = x * 2
            assert x.tolist() == [16] * 8

    _, events = profiled(tmp_path, program)
    launched = {e["args"]["correlation"]: e for e in of_kind(events, "privateuse1_runtime")}
    ran = {e["args"]["correlation"]: e for e in of_kind(events, "kernel", "gpu_memcpy")}
    assert launched.keys() == ran.keys() and len(ran) >= 4
    assert all(launched[i]["ts"] <= ran[i]["ts"] for i in ran)


def test_what_begins_behind_the_window_is_kept(tmp_path):
    """The profiler's end waits for each stream, also for that on which nothing waited within it."""
    sim.set_device(0)
    side, x = sim.Stream("sim:1"), torch.ones(64, device="sim:1")
    with sim.stream(side):  # a kernel that is under way as the window closes
        far = torch.ones(400, 400, device="sim:1")

    def program():
        with sim.stream(side):
            for _ in range(20):
                far.mm(far)
            x.exp()

    sums, events = profiled(tmp_path, program)
    assert sums["aten::exp"].self_device_time_total > 0
    assert "aten::exp" in {e["name"] for e in of_kind(events, "kernel")}


def test_memory_of_the_device_is_told():
    kept = torch.ones(250, device="sim")
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1], profile_memory=True) as profiler:
        more = kept + kept
        del more
        other = torch.empty(500, device="sim")
    used = {e.key: e.self_device_memory_usage for e in profiler.key_averages() if e.self_device_memory_usage != 0}
    assert used["aten::add"] == 1000 and used["aten::empty"] == 2000 and used["[memory]"] == -1000
    del other
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as profiler:
        torch.empty(500, device="sim")
    assert all(e.self_device_memory_usage == 0 for e in profiler.key_averages())


def test_nothing_is_kept_behind_it(tmp_path):
    _, events = profiled(tmp_path, lambda: None)
    assert of_kind(events, "kernel") == []
    torch.ones(3, device="sim").exp()
    torch.sim.synchronize()  # it runs later than it is called
    sums, events = profiled(tmp_path, lambda: torch.ones(3, device="sim").sqrt().sum().item())
    assert "aten::exp" not in {e["name"] for e in of_kind(events, "kernel")} and "aten::sqrt" in sums
