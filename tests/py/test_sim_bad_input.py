# SPDX-License-Identifier: Apache-2.0
"""What a program asks of the simulated device and must not: each is refused with a sentence, at once, and the device
goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
import torch

sim = pytest.importorskip("ulpscope.sim", exc_type=OSError)


def ones(device="sim:0", n=4):
    return torch.ones(n, device=device)


def unrecorded():
    a, b = sim.Event(enable_timing=True), sim.Event(enable_timing=True)
    a.record()
    return a.elapsed_time(b)


def untimed():
    a, b = sim.Event(), sim.Event()
    a.record()
    b.record()
    sim.synchronize()
    return a.elapsed_time(b)


def elsewhere():
    return torch.rand(3, device="sim:0", generator=torch.Generator("sim:1"))


def philox_state():
    state = sim.get_rng_state()
    sim.random("philox")
    try:
        sim.set_rng_state(state)
    finally:
        sim.random("cpu")


def too_large():
    kept = [torch.empty(1 << 20, device="sim") for _ in range(4)]
    sim.set_per_process_memory_fraction(1e-4)
    try:
        return kept, torch.empty(1 << 40, device="sim")
    finally:
        sim.set_per_process_memory_fraction(1.0)


# name -> what is asked, the error, what it says
REFUSED = {
    "a device that is not there": (lambda: ones("sim:9"), RuntimeError, "device 9|sim:9|no device"),
    "a device below zero": (lambda: sim.set_device(-3), RuntimeError, "no device -3"),
    "properties of no device": (lambda: sim.get_device_properties(9), RuntimeError, "no device 9"),
    "memory of no device": (lambda: sim.memory_allocated(9), RuntimeError, "no device 9"),
    "synchronizing no device": (lambda: sim.synchronize(9), RuntimeError, "no device 9"),
    "a stream of no device": (lambda: sim.Stream(device="sim:9"), RuntimeError, "9"),
    "time of an event that was not recorded": (unrecorded, (RuntimeError, ValueError), "must be recorded before"),
    "time of an event without timing": (untimed, (RuntimeError, ValueError), "timing"),
    "a generator of the other device": (
        elsewhere,
        RuntimeError,
        "Expected a 'sim:0' generator device but found 'sim:1'",
    ),
    "a generator of the host": (
        lambda: torch.rand(3, device="sim", generator=torch.Generator()),
        RuntimeError,
        "generator|device",
    ),
    "record_stream of a host tensor": (
        lambda: torch.ones(3).record_stream(sim.current_stream()),
        (RuntimeError, NotImplementedError),
        "record_stream",
    ),
    "two devices in one operator": (
        lambda: ones("sim:0") + ones("sim:1"),
        RuntimeError,
        "Expected all tensors to be on the same device",
    ),
    "a host tensor in an operator": (
        lambda: ones() + torch.ones(4),
        RuntimeError,
        "Expected all tensors to be on the same device",
    ),
    "a generator state that is too short": (
        lambda: sim.set_rng_state(torch.zeros(3, dtype=torch.uint8)),
        (RuntimeError, ValueError),
        "state",
    ),
    "a generator state of the other kind": (philox_state, (RuntimeError, ValueError), "state"),
    "more memory than there is, while blocks are cached": (too_large, torch.OutOfMemoryError, "Tried to allocate"),
    "an index that is out of range": (
        lambda: ones()[torch.tensor([9], device="sim")].cpu(),
        (RuntimeError, IndexError),
        "index 9 is out of bounds",
    ),
    "a fault that is malformed": (lambda: sim.plant("mm:scael"), ValueError, "the nearest is 'scale'"),
    "a profile that is malformed": (lambda: sim.profile("ful"), ValueError, "nearest is 'full'"),
    "a key of a profile": (lambda: sim.profile("full", memry="2G"), ValueError, "nearest is 'memory'"),
    "numerics that are malformed": (lambda: sim.numerics("mm", ordre="serial"), ValueError, "nearest is 'order'"),
    "a guard that is not there": (lambda: sim.set_guard("strikt"), ValueError, "strict"),
}


def test_an_event_of_the_other_device_orders_streams():
    """As with CUDA, that is no mistake."""
    with sim.schedule(5, delay=1.0):
        with sim.device(1):
            x = torch.full((50,), 3.0, device="sim:1") * 2
            done = torch.Event(device="sim:1")
            done.record()
        sim.current_stream("sim:0").wait_event(done)
        assert (x.to("sim:0") + 1).tolist() == [7] * 50


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_and_the_device_goes_on(name):
    ask, error, said = REFUSED[name]
    with pytest.raises(error, match=said):
        ask()
    assert sim.current_device() == 0 and (ones() + 1).tolist() == [2] * 4


def child(code, expected=0, **variables):
    run = subprocess.run(
        [sys.executable, "-c", "import torch, ulpscope.sim as sim\n" + textwrap.dedent(code)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == expected, run.stderr[-2000:]
    return run


def test_pinned_memory_that_is_freed_in_flight_is_kept():
    with sim.schedule(3, delay=1.0):
        host = torch.arange(1000.0).pin_memory()
        there = host.to("sim", non_blocking=True)
        del host
        other = torch.zeros(1000).pin_memory()
        assert torch.equal(there.cpu(), torch.arange(1000.0)) and not other.any()


def test_fork_after_first_use_has_torch_cudas_sentence():
    code = """
        import os
        x = torch.ones(3, device="sim") + 1
        x.cpu()
        pid = os.fork()
        if pid == 0:
            try:
                (torch.ones(3, device="sim") + 1).cpu()
                os._exit(3)
            except RuntimeError as problem:
                os._exit(0 if "spawn" in str(problem) else 4)
        raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """
    child(code)


def test_exit_with_work_in_flight():
    child("x = torch.ones(400, 400, device='sim')\nfor _ in range(50): x = x @ x * 0.001")


def test_an_error_that_nobody_waited_for_is_told_at_the_end():
    code = "torch.ones(3, device='sim')[torch.tensor([7], device='sim')]"
    assert "index 7 is out of bounds" in child(code).stderr


WAITS = {
    "a kernel that hangs, at its call": "sim.set_launch_blocking(True); sim.plant('mm:hang'); (x @ x).cpu()",
    "a stream behind a kernel that hangs": "sim.set_launch_blocking(False); sim.plant('mm:hang'); (x @ x).cpu()",
    "an event": """sim.set_launch_blocking(False); sim.plant('mm:hang'); x @ x
e = torch.sim.Event(); e.record(); e.synchronize()""",
}


@pytest.mark.parametrize("wait", WAITS)
def test_sigint_ends_a_wait(wait):
    code = f"""
import time, torch, ulpscope.sim as sim
x = torch.ones(3, 3, device='sim')
print('on', flush=True)
try:
    try:
        {WAITS[wait].replace(chr(10), chr(10) + "        ")}
    except RuntimeError as problem:
        print(problem, flush=True)
        time.sleep(0)  # where the interpreter looks at its signals next
except KeyboardInterrupt:
    print('and then by its own name', flush=True)
"""
    run = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert run.stdout.readline() == "on\n"
    time.sleep(1)
    run.send_signal(signal.SIGINT)
    said, wrong = run.communicate(timeout=120)
    assert (said, run.returncode) == ("sim: interrupted while aten::mm hangs\nand then by its own name\n", 0), wrong


def test_loading_for_a_device_that_is_not_there(tmp_path):
    code = f"""
        torch.save(torch.ones(3, device="sim:1"), {str(tmp_path / "x.pt")!r})
    """
    child(code)
    code = f"""
        try:
            torch.load({str(tmp_path / "x.pt")!r})
        except RuntimeError as problem:
            print(problem)
        print(torch.load({str(tmp_path / "x.pt")!r}, map_location="sim:0").device)
    """
    said = child(code, ULPSCOPE_SIM_PROFILE="full:devices=1").stdout
    assert "map_location" in said or "device" in said
    assert said.endswith("sim:0\n")
