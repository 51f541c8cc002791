# SPDX-License-Identifier: Apache-2.0
"""A worker of `ulpscope check`: takes call numbers on standard input, gives rows back.

Run by the coordinator (src/run) as `python -m ulpscope.worker FD SETTINGS`. It opens the trace
and the device itself, so that a crash takes nothing along. Lines on FD, one JSON object each:
{"say": text} for the user, {"ready": what computes (`session.identity`), "environment": what it runs on,
"answers": whether the device does anything} or {"fatal": text} once, {"row": {...}} at the end of a call, with
"leaving" where the device died and the worker ends. A row holds what was found; what the trace
tells of the call the coordinator knows. After a row with "searching" comes {"cause": {...}}: the
row once more, with what it is about. Before that {"group": name, "heard": n, "most": searches}
asks what is known of findings like it; the answer comes on standard input as {"causes": [...],
"search": whether to}, and {"found": name, "text": cause} tells.
"""

from __future__ import annotations

import gc
import json
import math
import os
import sys
import time
from typing import Any

from .calls.foreign import is_ours, our_words
from .executors.memory_limit import die_with_parent

PLAIN = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
NOTE = 4  # descriptor of the file in which the coordinator looks what a worker is at


class Channel:
    """Lines to the coordinator. A descriptor of its own: operators may print."""

    def __init__(self, number: int) -> None:
        self.file = os.fdopen(number, "wb", buffering=0)

    def send(self, **message: Any) -> None:
        try:
            text = PLAIN.encode(message)
        except ValueError:
            text = PLAIN.encode(speakable(message))
        self._put(text.replace("\\u0000", "\ufffd").encode("utf-8", "replace") + b"\n")

    def phase(self, name: str) -> None:
        """Notes a phase that begins, as every call does a few times: a line would wake its reader."""
        os.pwrite(NOTE, b"%-16s %d\n" % (name.encode(), time.monotonic_ns()), 0)

    def _put(self, line: bytes) -> None:
        while line:
            line = line[self.file.write(line) :]


def speakable(value: Any) -> Any:
    """A message without what JSON cannot say: NaN and Inf are texts there."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {k: speakable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [speakable(v) for v in value]
    return value


def prepare(settings: dict[str, Any]) -> None:
    """Imports and threads, before anything else touches torch."""
    import torch

    from .calls.homes import import_modules
    from .executors.device import PACKAGES
    from .executors.uncompiled import leave_compiler_out
    from .executors.warm import warm

    torch.set_num_threads(max(1, settings["threads"]))
    warm()
    package = PACKAGES.get((settings.get("device") or "").partition(":")[0])
    import_modules(settings["recorded"], settings["imports"], package)
    leave_compiler_out()


def plain_words(problem: BaseException) -> str:
    """What a user can do about an exception that ends the worker."""
    if isinstance(problem, ModuleNotFoundError) and problem.name == "torch":
        return (
            f"{sys.executable} has no torch: install it there (pip install torch), or name "
            "an interpreter that has it in ULPSCOPE_PYTHON"
        )

    from .program.shared_objects import too_old_here

    return too_old_here() or f"{problem}" or type(problem).__name__


def opened(settings: dict[str, Any], channel: Channel, before: frozenset[str]) -> tuple[Any, dict[str, str]]:
    """What works on requests of this kind, and what computes."""
    from .session import identity

    if settings["kind"] == "pack":
        from .session.pack import Packer

        return Packer(settings, channel), {}
    if settings["kind"] == "coverage":
        from .session.coverage import Prober

        prober = Prober(settings, channel, before)
        return prober, prober.facts
    if settings["kind"] == "sides":
        from .fuzzer.sides import Sides

        sides = Sides(settings, channel, before)
        return sides, sides.facts
    if settings["kind"] == "pairs":
        from .session.pairs import Pairs

        return Pairs(settings, channel), {}
    if "seed" in settings:
        from .fuzzer import fuzz_bench

        bench_class: Any = fuzz_bench.ProgramBench if settings.get("programs") else fuzz_bench.FuzzBench
    else:
        from .session.bench import Bench

        bench_class = Bench

    bench = bench_class(settings, channel)
    return bench, identity.told(settings["device"], before, settings.get("via", ""))


def main() -> int:
    from . import _core

    channel, settings = Channel(int(sys.argv[1])), json.loads(sys.argv[2])
    die_with_parent()
    sys.path.insert(0, os.getcwd())
    try:
        import torch  # noqa: F401  # nothing of it is a user's

        from .session import identity
        from .program import glue

        glue._say = lambda text: channel.send(say=text)
        before = identity.loaded()
        if settings.get("causes"):
            from .causes import host

            host.reserve()
        prepare(settings)
        bench, facts = opened(settings, channel, before)
    except Exception as problem:  # whatever it is, the coordinator says it
        channel.send(fatal=our_words(problem) if is_ours(problem) else plain_words(problem))
        return 2
    gc.collect()
    gc.freeze()  # torch's modules stay: to look through them again and again took a fifth of a case's time
    from .executors.device import lives

    answers = lives(settings.get("device") or "cpu")
    channel.send(ready=facts, environment=identity.environment(), answers=answers)
    for line in sys.stdin:
        try:
            row, alive, search = bench.work(json.loads(line))
        except _core.CorruptError as problem:
            channel.send(fatal=f"{problem}{problem.advice}")
            return 2
        except _core.IoError as problem:  # what a pack is written to
            channel.send(fatal=f"{problem}; nothing was packed: make room, or name another folder with -o")
            return 2
        channel.send(row={**row, "fired": bench.fired()}, leaving=not alive, searching=search is not None)
        if search is not None:
            channel.send(cause=search())
        if not alive:
            return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
