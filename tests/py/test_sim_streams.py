# SPDX-License-Identifier: Apache-2.0
"""The simulated device when kernels run later than they are called: the same bits, a wait that a
program forgot shows, and errors and memory are told as on hardware."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import pytest
import torch
from test_sim import OPERATORS, same, train_gpt

sim = pytest.importorskip("ulpscope.sim", exc_type=OSError)

SEEDS = range(20)


@pytest.fixture(autouse=True)
def later():
    """Kernels run when their turn comes, as at the start; also behind a test that changed it."""
    assert not sim.launch_blocking()
    yield
    sim.set_launch_blocking(False)


# ---- the same bits -----------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"fused": True}], ids=str)
def test_training_is_the_cpus_bit_by_bit(options):
    losses, parameters = train_gpt("cpu", **options)
    sim_losses, sim_parameters = train_gpt("sim", **options)
    assert losses == sim_losses
    assert all(same(a, b) for a, b in zip(parameters, sim_parameters, strict=True))


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_are_the_cpus(name):
    x = torch.randn(3, 4, 6)
    expected, x = OPERATORS[name](x), x.to("sim")
    assert same(OPERATORS[name](x), expected)
    with sim.schedule(seed=3, delay=1):
        assert same(OPERATORS[name](x), expected)


def test_views_and_out_arguments():
    x = torch.zeros(4, 6, device="sim")
    x[1:3, ::2].add_(1)
    x.t()[5].fill_(7)
    grown = torch.empty(0, device="sim")
    torch.add(x, x, out=grown)
    kept = torch.zeros(5, 2, device="sim")
    torch.mul(torch.ones(5, device="sim"), 3, out=kept[:, 1])
    y = torch.zeros(4, 6)
    y[1:3, ::2].add_(1)
    y.t()[5].fill_(7)
    assert same(x, y) and same(grown, y + y) and kept.sum().item() == 15


# ---- what is pending ---------------------------------------------------------------------


def test_nothing_waits_but_who_asks_for_values():
    with sim.schedule(seed=1, delay=1):
        x = torch.ones(3, device="sim") + 1
        for _ in range(4):
            x = x * 2
        assert not sim.current_stream().query()
        assert x.tolist() == [32] * 3
        assert sim.current_stream().query()
        y = x + 1
        sim.synchronize()
        assert sim.current_stream().query() and y.shape == (3,)


def test_streams_are_chosen_by_thread_and_device():
    a, high = sim.Stream(), sim.Stream(priority=-1)
    assert isinstance(a, torch.Stream) and a.device == torch.device("sim:0") and a != high
    with sim.stream(a):
        assert sim.current_stream() == a and sim.current_stream(1) == sim.default_stream(1)
        with sim.stream(None):
            assert sim.current_stream() == a
    assert sim.current_stream() == sim.default_stream() != a
    assert sim.Stream("sim:1").device.index == 1


def test_events():
    start, end = (sim.Event(enable_timing=True) for _ in range(2))
    assert isinstance(start, sim.Event) and start.query()
    with sim.schedule(seed=1, delay=1):
        start.record()
        x = torch.ones(10, device="sim")
        for _ in range(5):
            x = x + 1
        end.record()
        assert not end.query()
        end.synchronize()
        assert end.query() and start.elapsed_time(end) > 0
    with pytest.raises((RuntimeError, ValueError), match="enable_timing"):
        plain = sim.Event()
        plain.record()
        start.elapsed_time(plain)


# ---- a wait that is missing ----------------------------------------------------------------


def produce_and_use(wait: bool) -> torch.Tensor:
    """A kernel on a second stream makes what one on the first reads."""
    made, side = torch.zeros(8, device="sim"), sim.Stream()
    side.wait_stream(sim.current_stream())
    with sim.stream(side):
        made.fill_(3)
    if wait:
        sim.current_stream().wait_stream(side)
    return (made * 2).cpu()


def prefetch(wait: bool) -> torch.Tensor:
    """Two pinned buffers in turn, copied by a second stream while the first computes."""
    buffers, side = [torch.empty(4).pin_memory() for _ in range(2)], sim.Stream()
    done = [None, None]
    total = torch.zeros(4, device="sim")
    for i in range(6):
        if done[i % 2] is not None and wait:
            done[i % 2].synchronize()
        buffers[i % 2].fill_(10**i)
        with sim.stream(side):
            batch = buffers[i % 2].to("sim", non_blocking=True)
            done[i % 2] = side.record_event()
        sim.current_stream().wait_event(done[i % 2])
        batch.record_stream(sim.current_stream())
        total += batch
    return total.cpu()


def reuse(record: bool) -> torch.Tensor:
    """Memory of a stream that another one still reads when it is freed."""
    side = sim.Stream()
    x = torch.full((8,), 5.0, device="sim")
    side.wait_stream(sim.current_stream())
    with sim.stream(side):
        y = x + 1
    if record:
        x.record_stream(side)
    del x
    torch.full((8,), 9.0, device="sim")  # perhaps in its place
    sim.synchronize()
    return y.cpu()


@pytest.mark.parametrize(("program", "expected"), [(produce_and_use, 6), (prefetch, 111111), (reuse, 6)])
def test_a_wait_that_is_missing_shows(program, expected):
    answers = []
    for seed in SEEDS:
        with sim.schedule(seed):
            assert program(True).tolist() == program(True).tolist() == [expected] * len(program(True))
    for _ in range(2):
        wrong = []
        for seed in SEEDS:
            with sim.schedule(seed):
                wrong.append(program(False).tolist())
        answers.append(wrong)
    assert answers[0] == answers[1]
    assert any(one != [expected] * len(one) for one in answers[0])


# ---- errors -----------------------------------------------------------------------------------

library = torch.library.Library("simlater", "DEF")
library.define("refuse(Tensor x) -> Tensor")


def _refuse(x):
    raise ValueError("these values cannot be")


library.impl("refuse", _refuse, "CPU")
library.impl("refuse", lambda x: torch.empty_like(x), "Meta")


def test_what_a_kernel_says_is_told_at_the_next_wait():
    x = torch.ones(3, device="sim")
    with pytest.raises(RuntimeError, match="size of tensor a"):
        x + torch.ones(4, device="sim")  # of shapes: at the call
    torch.ops.simlater.refuse(x)
    y = x + 1
    with pytest.raises(RuntimeError, match=r"simlater::refuse, launched at test_sim_streams.py:\d+: (.|\n)*cannot be"):
        sim.synchronize()
    sim.synchronize()
    assert y.tolist() == [2, 2, 2]


def test_where_a_kernel_refuses_to_write_is_told_at_the_call():
    x = torch.ones(6, 8, device="sim")
    for act in (lambda: x[:-1].add_(x[1:]), lambda: x[0].expand(6, 8).add_(1), lambda: torch.add(x[:-1], 1, out=x[1:])):
        with pytest.raises(RuntimeError, match="memory location"):
            act()
    assert torch.equal(x.cpu(), torch.ones(6, 8))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_statistics_have_the_cpus_dtype(dtype):
    x = torch.randn(4, 3, 5).to(dtype)
    for f in (
        lambda x: torch.native_layer_norm(x, (5,), None, None, 1e-5),
        lambda x: torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5),
        lambda x: torch.native_batch_norm(x, None, None, x[:3, 0, 0], x[:3, 0, 1].abs(), False, 0.1, 1e-5),
        lambda x: torch.native_group_norm(x, None, None, 4, 3, 5, 1, 1e-5),
    ):
        for here, there in zip(f(x), f(x.to("sim")), strict=True):
            assert here.dtype == there.dtype and same(there, here)


def test_strides_are_the_cpus():
    x = torch.randn(5, 4, 6)
    for f in (torch.linalg.svd, lambda x: torch.linalg.eig(x[:, :, :4]), torch.fft.rfftn):
        here, there = f(x), f(x.to("sim"))
        pairs = zip(here, there, strict=True) if isinstance(here, tuple) else [(here, there)]
        assert all(a.stride() == b.stride() and same(b, a) for a, b in pairs)
    image = torch.randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    weight = torch.randn(4, 3, 3, 3)
    here, there = (torch.conv2d(image.to(d), weight.to(d)) for d in ("cpu", "sim"))
    assert here.stride() == there.stride() and same(there, here)
    out = torch.zeros(6, 5, device="sim").t()
    torch.ones(5, 6, out=out)
    assert out.stride() == (1, 5) and out.sum().item() == 30


def test_indices_wait_and_masks_do_not():
    x, i = torch.randn(5, 3), torch.tensor([4, 0, 2])
    with sim.schedule(seed=1, delay=1):
        there, at = x.to("sim"), i.to("sim")
        picked = there[at]
        assert not sim.current_stream().query() and same(picked, x[i])
        assert same(there[there > 0], x[x > 0]) and sim.current_stream().query()


def test_with_launch_blocking_it_is_told_at_once():
    sim.set_launch_blocking(True)
    with pytest.raises((RuntimeError, ValueError), match="these values cannot be"):
        torch.ops.simlater.refuse(torch.ones(3, device="sim"))


def test_work_in_flight_at_the_end_is_done_and_its_error_told():
    code = (
        "import torch, ulpscope.sim as sim, sys\n"
        "l = torch.library.Library('bad', 'DEF'); l.define('no(Tensor x) -> Tensor')\n"
        "def no(x): raise ValueError('it cannot')\n"
        "l.impl('no', no, 'CPU'); l.impl('no', lambda x: torch.empty_like(x), 'Meta')\n"
        "x = torch.ones(3, device='sim'); x + 1\n"
        "if len(sys.argv) > 1: torch.ops.bad.no(x)\n"
    )
    for more in ([], ["bad"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *more], capture_output=True, text=True, timeout=300, env=os.environ
        )
        assert done.returncode == 0 and ("bad::no" in done.stderr) == bool(more), done.stderr
        assert more or done.stderr == ""


# ---- memory -----------------------------------------------------------------------------------


def test_memory_is_told_under_torchs_names(tmp_path):
    free, total = sim.mem_get_info()
    assert 0 < free <= total
    if hasattr(torch.accelerator, "get_memory_info"):
        assert torch.accelerator.get_memory_info("sim:0") == sim.mem_get_info()
    x = torch.ones(1000, device="sim")
    stats = sim.memory_stats()
    assert stats["requested_bytes.all.current"] >= 4000
    assert stats["allocated_bytes.all.current"] == sim.memory_allocated()
    assert "peak allocated" in sim.memory_summary() and sim.max_memory_reserved() >= sim.memory_reserved()
    sim._record_memory_history()
    y = x + 1
    address = y.data_ptr()
    del y
    sim._dump_snapshot(str(tmp_path / "s.pickle"))
    sim._record_memory_history(None)
    (trace, _), segments = sim._snapshot()["device_traces"], sim.memory_snapshot()
    assert trace == []
    blocks = [b for s in segments for b in s["blocks"]]
    assert sum(b["state"] == "active_allocated" and b["address"] == x.data_ptr() for b in blocks) == 1
    with open(tmp_path / "s.pickle", "rb") as file:
        actions = pickle.load(file)["device_traces"][0]
    mine = [a["action"] for a in actions if a["addr"] == address]
    assert mine == ["alloc", "free_requested", "free_completed"]
    assert actions[0]["frames"][0]["name"].startswith("aten::")


def test_beyond_a_fraction_there_is_no_memory():
    sim.empty_cache()
    sim.set_per_process_memory_fraction(0.0, 1)
    try:
        with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 4.00 MiB. sim:1 has a total capacity"):
            torch.empty(1 << 20, device="sim:1")
    finally:
        sim.set_per_process_memory_fraction(1.0, 1)
    with pytest.raises(RuntimeError, match="fraction"):
        sim.set_per_process_memory_fraction(2.0)


def test_guards():
    assert sim.get_guard() == "strict"
    with pytest.raises(ValueError, match="there is no guard 'none'"):
        sim.set_guard("none")
    try:
        sim.set_guard("pages", poison=True)
        before = sim.memory_reserved()
        many = [torch.empty(1, device="sim") for _ in range(1000)]
        assert sim.memory_reserved() - before <= 2 << 20
        assert torch.stack(many).isnan().all()
        assert same(torch.arange(9.0, device="sim").view(3, 3).sum(0), torch.arange(9.0).view(3, 3).sum(0))
    finally:
        sim.set_guard("strict")


def start(**variables):
    code = "import ulpscope.sim as s; print(s.get_guard(), s.launch_blocking(), s.random(), s.get_profile())"
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **{f"ULPSCOPE_SIM_{k}": v for k, v in variables.items()}},
    )


@pytest.mark.parametrize(
    "variables, said",
    [
        ({}, "strict False cpu full"),
        ({"GUARD": "pages", "LAUNCH_BLOCKING": "0"}, "pages False cpu full"),
        ({"GUARD": "open", "LAUNCH_BLOCKING": "1", "RANDOM": "philox", "PROFILE": "small"}, "open True philox small"),
    ],
)
def test_variables_say_how_it_starts(variables, said):
    done = start(**variables)
    assert done.stdout.strip() == said, done.stderr


@pytest.mark.parametrize(
    "name, value, said",
    [
        ("GUARD", "wide", "there is no guard 'wide'; there are strict, pages, open"),
        ("RANDOM", "dice", "there are no random numbers of 'dice'; there are cpu, philox"),
        ("LOG", "kernels,disk", "'disk' is not logged; kernels and memory are"),
        ("PROFILE", "tiny", "there is no profile 'tiny', the nearest is 'wide'; known: full, no-fp64"),
    ],
)
def test_variables_that_say_nothing_are_refused(name, value, said):
    done = start(**{name: value})
    assert done.returncode == 1 and said in done.stderr


@pytest.mark.parametrize("visible, count", [("0", 1), ("1,0", 2), ("-1", 0), ("", 0), ("0,7,1", 1), ("1", 1)])
def test_some_devices_may_be_hidden(visible, count):
    code = (
        "import torch, ulpscope.sim as s\n"
        "print(s.device_count(), torch.accelerator.is_available(), s.is_available())\n"
        "for i in range(s.device_count()): assert torch.ones(2, device=f'sim:{i}').sum() == 2\n"
        "try: torch.ones(1, device=f'sim:{s.device_count()}')\n"
        "except RuntimeError as e: print(str(e).splitlines()[0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "ULPSCOPE_SIM_VISIBLE_DEVICES": visible},
    )
    there = count > 0
    assert done.stdout.splitlines() == [
        f"{count} {there} {there}",
        f"sim: there is no device {count}; there are {count}",
    ], done.stderr


def test_a_program_may_hide_devices_until_it_has_used_one():
    code = (
        "import os, torch, ulpscope.sim as s\n"
        "for seen in ('-1', '1', '0,1', None, '0', '0,1'):\n"
        "    os.environ.pop('ULPSCOPE_SIM_VISIBLE_DEVICES', None)\n"
        "    if seen: os.environ['ULPSCOPE_SIM_VISIBLE_DEVICES'] = seen\n"
        "    print(s.device_count(), s.is_available())\n"
        "    if seen == '0': torch.ones(1, device='sim')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == "0 False 1 True 2 True 2 True 1 True 1 True".split(), done.stderr


def test_what_happens_is_told(tmp_path):
    (tmp_path / "p.py").write_text("import torch, ulpscope.sim\nx = torch.ones(3, device='sim')\nx.exp()\n")
    for words in ("kernels", "kernels,memory", "memory", ""):
        done = subprocess.run(
            [sys.executable, tmp_path / "p.py"],
            capture_output=True,
            text=True,
            timeout=300,
            env={**os.environ, "ULPSCOPE_SIM_LOG": words},
        )
        assert ("ulpscope: sim:0 stream 0: aten::exp, launched at p.py:3\n" in done.stderr) == ("kernels" in words)
        assert ("sim:0 stream 0: alloc of 12 bytes at 0x" in done.stderr) == ("memory" in words)


def test_a_tensor_of_the_host_has_no_stream():
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.ones(3).record_stream(sim.Stream())
