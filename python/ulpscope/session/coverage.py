# SPDX-License-Identifier: Apache-2.0
"""`ulpscope coverage TRACE --device X`, in a worker (`worker`): tries a call on the device and
tells how it went. What is known of a device of a version is kept in the cache folder.

Needs of torch: the dispatcher's table of an operator, which says whose kernel a device would take.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from .. import _core
from ..calls.foreign import foreign
from ..calls.torch_private import dispatch_table
from ..calls.replay import BadCall, Call, Unsupported, is_collective
from ..calls.verdicts import clause
from ..executors.device import DeviceDied, TorchDevice, lacks, open_device
from ..program.glue import cache_home
from . import identity
from .bench import rebuilt

KEYS = {"cpu": "CPU", "cuda": "CUDA", "xpu": "XPU", "mps": "MPS", "hpu": "HPU", "xla": "XLA"}
# A refusal that is not for want of the operator: '"addmm" not implemented for 'Half''.
OF_A_FORM = re.compile(r"not implemented for|dtype|data type|layout|strides?\b|dimension", re.IGNORECASE)
FALLS_BACK = re.compile(r"fall(s|ing)?[ -]?back", re.IGNORECASE)


def kernel_of(op: str, device: str) -> str:
    """Whose kernel the dispatcher takes for an operator on a device type: "kernel", "math" (composed
    of other operators), "fallback", "" where it has none or nobody knows."""
    key = KEYS.get(device, "PrivateUse1")
    try:
        table = dispatch_table(op)
    except (RuntimeError, AttributeError):
        return ""
    line = next((part for part in table.splitlines() if part.startswith(f"{key}: ")), "")
    if "[math kernel]" in line:
        return "math"
    if "backend fallback" in line:
        return "" if "fallthrough" in line else "fallback"
    return "kernel" if "kernel]" in line else ""


def cache_file(device: str, facts: list[dict[str, Any]]) -> Path:
    """Where what is known of a device of this version lies."""
    about = json.dumps([device, _core.version, facts], sort_keys=True)
    return cache_home() / "coverage" / f"{hashlib.sha256(about.encode()).hexdigest()[:24]}.jsonl"


@contextlib.contextmanager
def overheard() -> Iterator[list[str]]:
    """A list that holds, behind the block, what was written to stderr in it: warnings of C++ code
    go there where no function of torch's Python bindings is around it."""
    heard: list[str] = []
    sys.stderr.flush()
    with tempfile.TemporaryFile() as file:
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield heard
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            heard.append(file.read().decode(errors="replace"))


class Known:
    """What earlier runs saw, by signature: lines of JSON, each written whole. A folder that
    cannot be written only costs time."""

    def __init__(self, path: Path, fresh: bool) -> None:
        self.path = path
        self.of: dict[str, Any] = {}
        try:
            lines = [] if fresh else path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            lines = []
        for line in lines:
            try:
                key, covered = json.loads(line)
            except ValueError:  # cut short
                continue
            self.of[key] = covered

    def add(self, key: str, covered: dict[str, str]) -> None:
        """Keeps it for later runs."""
        self.of[key] = covered
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps([key, covered]) + "\n")
        except OSError:
            pass


class Prober:
    """What a process holds while it tries calls: trace and device. As `bench.Bench`."""

    def __init__(self, settings: dict[str, Any], channel: Any, before: frozenset[str], what: str = "coverage") -> None:
        self.trace, self.trace_id = _core.Trace(settings["trace"]), settings["trace_id"]
        self.device = open_device(settings["device"], settings["home"], settings.get("via", ""), channel.phase)
        self.cpu = TorchDevice("cpu", settings["home"])
        self.facts = identity.told(settings["device"], before, settings.get("via", ""))
        sim = sys.modules.get("ulpscope.sim")
        planted: Any = sorted(f["fault"] for f in sim.faults_fired()) if sim else []
        about: Any = (
            [self.facts, planted] if what == "coverage" else [self.facts, planted, what, settings.get("via", "")]
        )
        self.known = Known(cache_file(settings["device"], about), settings["fresh"])
        self.falls_back: set[str] = set()  # operators of which a warning was heard
        self.channel = channel

    def work(self, request: dict[str, Any]) -> tuple[dict[str, Any], bool, None]:
        """How the device runs one call, as a row; whether it survived; None."""
        row = self.trace.call(request["call"])
        dtypes = ", ".join(dict.fromkeys(a["dtype"] for a in row["tensors"] if a["role"] == "in"))
        key = signature(row)
        if key in self.known.of:
            return {"covered": self.known.of[key] | {"dtypes": dtypes}}, True, None
        way, why, seconds, alive = self.tried(row)
        covered: dict[str, Any] = {"way": way, "why": why, "seconds": seconds}
        if way != "untold":
            self.known.add(key, covered)
        return {"covered": covered | {"dtypes": dtypes}}, alive, None

    def tried(self, row: dict[str, Any]) -> tuple[str, str, float, bool]:
        """(way, why, seconds on the CPU, whether the device lives)."""
        if is_collective(row["op"]):
            return "untold", "a collective needs its other ranks", 0.0, True
        try:
            call = rebuilt(self.trace, self.trace_id, row, self.device)
        except (BadCall, RuntimeError, ValueError, TypeError) as problem:
            foreign(problem)
            return "untold", clause(problem), 0.0, True
        seconds = self.seconds(call)
        self.channel.phase("device")
        try:
            with overheard() as heard:
                self.device.run(call)
        except DeviceDied as problem:
            return "died", str(problem), seconds, False
        except Unsupported as problem:
            missing = lacks(str(problem)) and not OF_A_FORM.search(str(problem))
            return "lacking" if missing else "refused", clause(problem), seconds, True
        except torch.OutOfMemoryError as problem:
            return "untold", clause(problem), seconds, True
        return *self.ran(row["op"], heard), seconds, True

    def ran(self, op: str, heard: list[str]) -> tuple[str, str]:
        """(way, why) of a call that ran. Many a backend warns once in a process alone."""
        if FALLS_BACK.search("".join(heard)):
            self.falls_back.add(op)
        if op in self.falls_back:
            return "fallback", "the device's own warning says so"
        if kernel_of(op, self.device.type) == "fallback":
            return "fallback", "the dispatcher hands it to the CPU"
        return "native", ""

    def seconds(self, call: Call) -> float:
        """What the call takes on the CPU, 0 where that has none. The second run counts: the first
        one touches new memory."""
        self.channel.phase("reference")
        best = 0.0
        for _ in range(2):
            since = time.perf_counter()
            try:
                self.cpu.run(call)
            except (Unsupported, DeviceDied, RuntimeError):
                return 0.0
            best = time.perf_counter() - since
            if best > 1:
                break
        return best

    def fired(self) -> list[str]:
        """Nothing is judged: planted faults only make operators missing."""
        return []


def signature(row: dict[str, Any]) -> str:
    """What decides how a device runs a call: operator, arguments, dtypes, shapes, strides."""
    tensors = [[a["role"], a["path"], a["dtype"], list(a["sizes"]), list(a["strides"])] for a in row["tensors"]]
    about = json.dumps([row["op"], row["args"], tensors], sort_keys=True, default=str)
    return hashlib.sha256(about.encode()).hexdigest()[:32]
