# SPDX-License-Identifier: Apache-2.0
"""`ulpscope fuzz --matrix` and `--profile` in a worker (`worker`): whether the CPU and a device take an operator in a
dtype and a layout, and how long both take. Nothing is judged. What is known of a device of a version is kept.

Needs of torch: the module of a device type, to wait for it."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from ..calls.foreign import foreign
from ..calls.replay import BadCall, Call, is_collective
from ..calls.verdicts import clause
from ..executors.device import DeviceDied
from .forms import formed
from .drawn_cases import Examples
from ..session.bench import rebuilt
from ..session.coverage import Prober, signature

SAMPLES, SHORT, MOST = 7, 1e-3, 0.5  # of one time; seconds that a sample has at least, and all have about


class Sides(Prober):
    """What a process holds while it asks both sides."""

    def __init__(self, settings: dict[str, Any], channel: Any, before: frozenset[str]) -> None:
        super().__init__(settings, channel, before, what="sides")
        self.examples = Examples(self.trace, self.trace_id)

    def work(self, request: dict[str, Any]) -> tuple[dict[str, Any], bool, None]:
        """The row of one form, or of the times of a call; whether the device survived; None."""
        row = self.trace.call(request["call"])
        if is_collective(row["op"]):
            return {"sided": untold("a collective needs its other ranks")}, True, None
        try:
            if "dtype" not in request:
                said, alive = self.timed(rebuilt(self.trace, self.trace_id, row, self.device))
            else:
                said, alive = self.known_or_tried(row, request["dtype"], request["layout"])
        except (BadCall, torch.OutOfMemoryError) as problem:
            said, alive = untold(clause(problem)), True
        except Exception as problem:  # a call that cannot be made again, in as many ways as there are operators
            foreign(problem)
            said, alive = untold(f"{type(problem).__name__}: {clause(problem)}"), True
        return {"sided": said}, alive, None

    def known_or_tried(self, row: dict[str, Any], dtype: str, layout: str) -> tuple[dict[str, str], bool]:
        key = f"{signature(row)} {dtype} {layout}"
        if key in self.known.of:
            return self.known.of[key], True
        said, alive = self.tried(row, dtype, layout)
        if alive:
            self.known.add(key, said)
        return said, alive

    def tried(self, row: dict[str, Any], dtype: str, layout: str) -> tuple[dict[str, str], bool]:
        """(who takes the form, whether the device lives)."""
        try:
            call = formed(self.examples[row["sequence"]], dtype, layout)
        except BadCall as problem:
            return untold(clause(problem)), True
        self.channel.phase("reference")
        own = refused(self.cpu, call)
        self.channel.phase("device")
        try:
            other = refused(self.device, call)
        except DeviceDied as problem:
            return {"side": "died", "why": str(problem)}, False
        side = {(False, False): "both", (False, True): "refused", (True, False): "cpu_refused"}.get(
            (bool(own), bool(other)), "neither"
        )
        raised, why = (other if side == "refused" else own if side == "cpu_refused" else None) or ("", "")
        return {"side": side, "raised": raised, "why": why}, True

    def timed(self, call: Call) -> tuple[dict[str, Any], bool]:
        """(the times of a call on both sides, whether the device lives)."""
        said, seconds, alive = {"side": "both"}, {}, True
        for name, device in (("cpu", self.cpu), ("device", self.device)):
            self.channel.phase("reference" if name == "cpu" else "device")
            try:
                answer = device.run(call)  # which compiles, allocates and meets the data
                seconds[name] = seconds_of(device, call)
            except DeviceDied as problem:
                return {"side": "died", "why": str(problem)}, False
            except Exception as problem:  # whatever a device raises
                foreign(problem)
                kind = "cpu_refused" if name == "cpu" else "refused"
                return {"side": kind, "raised": raised_by(problem), "why": clause(problem)}, alive
        size = lambda t: t.numel() * t.element_size()  # noqa: E731
        moved = sum(math.prod(v.sizes) * v.dtype.itemsize for v in call.views.values()) + sum(
            map(size, answer.outputs.values())
        )
        return said | seconds | {"bytes": moved}, alive


def untold(why: str) -> dict[str, str]:
    return {"side": "untold", "why": why}


def raised_by(problem: BaseException) -> str:
    """The class of what a device raised itself."""
    return getattr(problem, "raised", "") or type(problem).__name__


def refused(device: Any, call: Call) -> tuple[str, str] | None:
    """(class of the exception, clause) where a device does not take a call, else None. DeviceDied."""
    try:
        device.run(call)
    except DeviceDied:
        raise
    except torch.OutOfMemoryError:
        raise
    except Exception as problem:  # whatever a device raises
        foreign(problem)
        return raised_by(problem), clause(problem)
    return None


def seconds_of(device: Any, call: Call) -> float:
    """The median of a few times, each of as many runs as last long enough for the clock, with the device waited
    for before and after."""
    run, wait = device.again(call), waiting(device)

    def sample(n):
        wait()
        since = time.perf_counter()
        for _ in range(n):
            run()
        wait()
        return (time.perf_counter() - since) / n

    one = min(sample(1) for _ in range(3))
    n = max(1, min(10_000, math.ceil(SHORT / max(one, 1e-9))))
    times, until = [], time.perf_counter() + MOST
    while len(times) < SAMPLES and (not times or time.perf_counter() < until):
        times.append(sample(n))
    return statistics.median(times)


def waiting(device: Any) -> Callable[[], Any]:
    """What waits until a device has done all that was asked of it."""
    found = getattr(getattr(torch, device.name.split(":")[0], None), "synchronize", None)
    return found if callable(found) else lambda: None
