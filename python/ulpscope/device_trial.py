# SPDX-License-Identifier: Apache-2.0
"""What `ulpscope trial` (cli/cmd_trial.c) does on a device, one thing a process, since a new device may crash or hang:
`python -m ulpscope.device_trial THING DEVICE`. The last line of a thing is its state and a sentence behind MARK.

Needs of torch: a device of its own and what a training step does; each thing the tool of ours that it names."""

from __future__ import annotations

import importlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import torch
import torch.nn.functional as F

from .calls.foreign import foreign
from .calls.homes import import_it
from .executors.device import PACKAGES, UnknownDevice, open_device

MARK = "ulpscope trial: "
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.bool)
STEPS = 6
BACKENDS = {"cuda": "nccl", "npu": "hccl", "musa": "mccl", "xpu": "xccl", "mlu": "cncl", "sim": "simccl", "cpu": "gloo"}


class Less(Exception):
    """The thing works, but for what this says."""


class NotTried(Exception):
    """Nothing was tried, for the reason that this says."""


class Block(torch.nn.Module):
    """What most models are made of: embedding, norm, attention, a gated product."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = torch.nn.Embedding(64, 32), torch.nn.LayerNorm(32)
        self.qkv, self.up, self.down = torch.nn.Linear(32, 96), torch.nn.Linear(32, 64), torch.nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(self.embed(x))
        q, k, v = self.qkv(h).view(*x.shape, 3, 4, 8).permute(2, 0, 3, 1, 4)
        h = h + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return self.down(F.gelu(self.up(h)))


class Training:
    """A model on a device, with the same numbers on every device."""

    def __init__(self, device: str, size: int = 4) -> None:
        torch.manual_seed(0)
        self.model = Block().to(device)
        self.x = torch.randint(0, 64, (size, 16)).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2, foreach=False)

    def step(self) -> torch.Tensor:
        """Forward, backward and optimizer; the loss."""
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(self.x).flatten(0, 1), self.x.flatten())
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def module_of(device: str) -> Any:
    """`torch.cuda` and its like; an empty one where a device has none."""
    return getattr(torch, torch.device(device).type, object())


def synchronize(device: str) -> None:
    """Waits for the device, where it can be waited for."""
    getattr(module_of(device), "synchronize", lambda: None)()


# ---- the things ------------------------------------------------------------------------


def train(device: str) -> str:
    """Three steps; what is captured."""
    losses = [float(training.step()) for training in [Training(device)] for _ in range(3)]
    return f"loss {losses[0]:.4f} to {losses[-1]:.4f}"


def able(device: str) -> str:
    """Dtypes, streams, events, counters of memory."""
    lacks = []
    for dtype in DTYPES:
        try:
            x = torch.ones(4, 4).to(dtype).to(device)
            found = (x.logical_or(x) if dtype is torch.bool else x + x).cpu()
            if dtype.is_floating_point:
                found = (x @ x).cpu()
            bad = not bool(found.double().eq(1 if dtype is torch.bool else 4 if dtype.is_floating_point else 2).all())
        except (RuntimeError, NotImplementedError, TypeError) as problem:
            foreign(problem)
            if dtype is torch.float32:
                raise
            lacks.append(f"no {str(dtype).removeprefix('torch.')} ({first_line(problem)})")
            continue
        if bad:
            raise RuntimeError(f"ones of {dtype} come out as {found.flatten()[0]}")
    module = module_of(device)
    if torch.device(device).type != "cpu":
        lacks += [
            f"no {name}" for name in ("Stream", "Event", "memory_allocated", "synchronize") if not hasattr(module, name)
        ]
    if lacks:
        raise Less("; ".join(lacks))
    return "all dtypes of a training step, streams, events, counters of memory"


def kernel(device: str) -> str:
    """A right kernel, and one that computes in bfloat16 inside."""
    import ulpscope

    x = torch.linspace(-4, 4, 4096).reshape(64, 64).to(device)
    right = ulpscope.check_call(F.gelu, (x,))
    wrong = ulpscope.check_call(lambda x: F.gelu(x.bfloat16()).float(), (x,), reference=F.gelu)
    if wrong.passed:
        raise RuntimeError(f"a gelu with bfloat16 inside passes: {wrong.sentence}")
    return f"the device's gelu: {right.sentence}; with bfloat16 inside: {wrong.sentence}"


def live(device: str) -> str:
    """Every operator judged while it trains."""
    import ulpscope

    training = Training(device)
    with ulpscope.live_check(distinct=True) as check:
        for _ in range(2):
            training.step()
            ulpscope.step()
    found = sorted({finding.op for finding in check.findings()})
    if check.judged == 0:
        raise RuntimeError(f"nothing was judged: {check.summary()}")
    said = f"{check.judged} calls judged, {len(found)} operators accused" + (f": {', '.join(found)}" if found else "")
    if check.unjudged:
        raise Less(f"{said}; {check.unjudged} calls were not judged")
    return said


def nan(device: str) -> str:
    """The birth of a NaN, and none where there is none."""
    import ulpscope

    training = Training(device)
    with ulpscope.nan_tracker() as tracker:
        training.step()
    if tracker.births():
        raise RuntimeError(f"a sound step bears one: {tracker.births()[0].sentence}")
    with ulpscope.nan_tracker() as tracker:
        torch.log(training.model(training.x).abs() - 1e9)
    births = tracker.births()
    if not births or not births[0].op.startswith("aten::log"):
        raise RuntimeError(f"the NaN of log is born in {births[0].op if births else 'no operator'}")
    return births[0].sentence


def times(device: str) -> str:
    """Time by operator."""
    import ulpscope

    training = Training(device)
    with ulpscope.time_ops() as clock:
        training.step()
    rows = clock.rows()
    if not rows:
        raise RuntimeError("no operator was timed")
    said = f"{sum(row.n_calls for row in rows)} calls, the slowest {rows[0].op} with {rows[0].mean_ms:.3f} ms"
    if rows[0].clock == "host" and torch.device(device).type != "cpu":
        raise Less(f"{said}; by the host's clock, since the device has no timed events")
    return said


def swap(device: str) -> str:
    """One operator on the CPU instead."""
    import ulpscope

    wanted = [float(training.step()) for training in [Training(device)] for _ in range(2)]
    training = Training(device)
    with ulpscope.fallback("aten::gelu") as route:
        losses = [float(training.step()) for _ in range(2)]
    taken = sum(route.n_calls.values()) if isinstance(route.n_calls, dict) else int(route.n_calls)
    if taken == 0:
        raise RuntimeError("the fallback was never taken")
    if any(abs(a - b) > 1e-3 * abs(b) for a, b in zip(losses, wanted)):
        raise RuntimeError(f"with gelu on the CPU the loss is {losses[-1]}, without {wanted[-1]}")
    return f"{taken} calls of gelu on the CPU, the loss stays {losses[-1]:.4f}"


def weeks(device: str) -> str:
    """The watch of a long run; host synchronisations that it adds, where the device counts them."""
    import warnings

    import ulpscope

    module = module_of(device)
    counts = hasattr(module, "set_sync_debug_mode")

    def waits() -> int:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            if counts:
                module.set_sync_debug_mode("warn")
            for _ in range(STEPS):
                training.step()
            if counts:
                module.set_sync_debug_mode("default")
        return sum("synchroniz" in str(one.message) for one in seen)

    training = Training(device)
    before = waits()
    with ulpscope.watch(training.model, training.optimizer):
        added = waits() - before
    if not counts:
        return f"{STEPS} steps watched (this device does not count how often the host waits)"
    if added > STEPS:
        raise Less(f"{STEPS} steps watched; the host waited {added} times more")
    return f"{STEPS} steps watched, the host waited {max(0, added)} times more"


def cost(device: str) -> str:
    """What capturing adds to the time of a step and to the device's memory."""
    import ulpscope

    training, module = Training(device, 32), module_of(device)

    def steps() -> tuple[float, int]:
        took = []
        reset, peak = getattr(module, "reset_peak_memory_stats", None), getattr(module, "max_memory_allocated", None)
        if reset is not None:
            reset()
        for _ in range(STEPS):
            synchronize(device)
            began = time.perf_counter()
            training.step()
            synchronize(device)
            took.append(time.perf_counter() - began)
            ulpscope.step()
        return statistics.median(took), peak() if peak is not None else 0

    steps()
    bare, memory = steps()
    with (
        tempfile.TemporaryDirectory() as folder,
        ulpscope.capture(os.path.join(folder, "trace"), steps=range(STEPS), data="stats"),
    ):
        seen, more = steps()
    said = f"a step takes {1000 * bare:.1f} ms, captured with statistics {1000 * seen:.1f} ms ({seen / bare:.2f} times)"
    return said + (f"; peak memory {memory:,} and {more:,} bytes" if memory else "")


def ranks(device: str) -> str:
    """Two ranks, as a trace each."""
    kind, module = torch.device(device).type, module_of(device)
    count = module.device_count() if kind != "cpu" and hasattr(module, "device_count") else 2
    if count < 2:
        raise NotTried(f"there is one device of type {kind}")
    if not torch.distributed.is_available():
        raise NotTried("this torch has no torch.distributed")
    with tempfile.TemporaryDirectory() as folder:
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
        command = [*launch, __spec__.name, "rank", device]
        program = [sys.executable, "-m", "ulpscope", "capture", "-o", os.path.join(folder, "trace"), "--", *command]
        done = subprocess.run(program, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        if done.returncode:
            raise RuntimeError(first_line(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "it fails"))
        traces = sorted(name for name in os.listdir(os.path.join(folder, "trace")) if name.startswith("rank"))
        if len(traces) != 2:
            raise RuntimeError(f"two ranks ran and {len(traces)} traces came of it")
    return "a step of two ranks is captured, a trace each"


def rank(device: str) -> str:
    """One of the two that `ranks` starts."""
    import torch.distributed as dist

    kind = torch.device(device).type
    place = f"{kind}:{os.environ['LOCAL_RANK']}" if kind != "cpu" else "cpu"
    if kind != "cpu" and hasattr(module_of(device), "set_device"):
        module_of(device).set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(BACKENDS.get(kind))
    training = Training(place)
    training.model = torch.nn.parallel.DistributedDataParallel(training.model)
    for _ in range(3):
        training.step()
    dist.destroy_process_group()
    return "done"


THINGS = {f.__name__: f for f in (train, able, kernel, live, nan, times, swap, weeks, cost, ranks, rank)}


def first_line(problem: object) -> str:
    """What an error says, in one line of moderate length."""
    return " ".join(str(problem).split())[:200]


def main() -> int:
    """Does THING on DEVICE; what follows is imported first."""
    thing, device, *modules = sys.argv[1:]
    for module in modules:
        import_it(module)
    try:
        if thing != "rank":
            open_device(device)  # imports the package that brings it
        else:
            importlib.import_module(PACKAGES.get(device.partition(":")[0], "torch"))
        print(f"{MARK}works\t{first_line(THINGS[thing](device))}", flush=True)
    except Less as less:
        print(f"{MARK}works less\t{first_line(less)}", flush=True)
    except NotTried as why:
        print(f"{MARK}not tried\t{first_line(why)}", flush=True)
    except UnknownDevice as why:
        print(f"{MARK}no device\t{first_line(why)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
