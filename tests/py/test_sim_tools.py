# SPDX-License-Identifier: Apache-2.0
"""Our own tools while kernels of the simulated device run later than they are called: what they read, count and
are told is what it would be in step."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest
import torch

import ulpscope
from ulpscope.program import capture as program_capture

sim = pytest.importorskip("ulpscope.sim", exc_type=OSError)


@contextlib.contextmanager
def in_step():
    sim.set_launch_blocking(True)
    try:
        yield
    finally:
        sim.set_launch_blocking(False)


def held_back():
    return sim.schedule(seed=3, delay=1)


def step() -> list[float]:
    """A prefetcher on a second stream, training, and copies that do not block."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 16))
    net = net.to("sim")
    optimizer, side = torch.optim.AdamW(net.parameters(), lr=0.01), sim.Stream()
    pinned, told = torch.empty(8, 16).pin_memory(), []
    for _ in range(2):
        with sim.stream(side):
            x = torch.randn(8, 16).pin_memory().to("sim", non_blocking=True) * 2 + 1
        sim.current_stream().wait_stream(side)
        x.record_stream(sim.current_stream())
        optimizer.zero_grad()
        loss = net(x).pow(2).sum()
        loss.backward()
        optimizer.step()
        pinned.copy_(x, non_blocking=True)
        back = x.to("cpu", non_blocking=True)
        sim.synchronize()
        told += [loss.item(), (back + pinned).sum().item()]
    return told


def rows(trace):
    """(operator, role, path, hash) of all that calls got and gave, but for memory that nobody has written yet."""
    with contextlib.closing(sqlite3.connect(trace / "trace.db")) as db:
        found = db.execute(
            "SELECT c.sequence, o.name, a.role, a.path, b.hash FROM call c JOIN op o ON o.id = c.op"
            " JOIN arg a ON a.call = c.sequence JOIN tensor t ON t.id = a.tensor JOIN version v ON v.id = t.version"
            " LEFT JOIN blob b ON b.id = coalesce(t.blob, v.blob) ORDER BY c.sequence, a.role, a.path"
        ).fetchall()
    written = {(call, path) for call, _, role, path, _ in found if role == "mutated"}
    return [
        (name, role, path, bits)
        for call, name, role, path, bits in found
        if not (role == "in" and (call, path) in written) and not any(n in name for n in UNWRITTEN)
    ]


UNWRITTEN = ("empty", "detach", "as_strided", "pin_memory", "is_pinned")


@pytest.mark.parametrize("distinct", [False, True])
def test_a_capture_reads_the_bytes_that_are_there_in_step(tmp_path, distinct):
    """`distinct`: what an operator that is left out calls is not recorded in its place."""
    captured = {}
    for name, how in (("step", in_step), ("later", contextlib.nullcontext), ("back", held_back)):
        capture = program_capture.capture(tmp_path / name)
        capture.recorder.sifted = {"distinct": distinct}
        with how(), capture:
            told = step()
        captured[name] = told, rows(tmp_path / name)
    assert captured["step"][0] == captured["later"][0] == captured["back"][0]
    for name in ("later", "back"):
        differ = [(a, b) for a, b in zip(captured["step"][1], captured[name][1], strict=True) if a != b]
        assert differ == [], (name, differ[:3])


def test_calls_are_counted_and_rerouted_once():
    counted, x = [], torch.randn(6, 8).to("sim")
    for how in (in_step, contextlib.nullcontext):
        with how(), ulpscope.fallback("native_layer_norm,sum") as mode:
            y = torch.nn.functional.layer_norm(x, (8,)).sum()
            sim.synchronize()
        counted.append((dict(mode.n_calls), y.item()))
    assert counted[0] == counted[1]


library = torch.library.Library("simtools", "DEF")
library.define("refuse(Tensor x) -> Tensor")


def _refuse(x):
    raise ValueError("these values cannot be")


library.impl("refuse", _refuse, "CPU")
library.impl("refuse", lambda x: torch.empty_like(x), "Meta")


def test_the_program_is_told_what_a_tool_was_told(tmp_path):
    x = torch.ones(3, device="sim")
    with ulpscope.capture(tmp_path / "t"):
        torch.ops.simtools.refuse(x)
        with pytest.raises(RuntimeError, match="simtools::refuse, launched at test_sim_tools.py"):
            sim.synchronize()
    sim.synchronize()


def test_a_live_check_accuses_nobody():
    with ulpscope.live_check(distinct=True) as check:
        step()
    assert check.findings() == []
