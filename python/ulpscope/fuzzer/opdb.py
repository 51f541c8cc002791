# SPDX-License-Identifier: Apache-2.0
"""Examples of calls from torch's own operator database: a trace of its samples, which `ulpscope
fuzz` draws from. Made once for a version of torch, in the cache folder (`examples.py`), by
`python -m ulpscope.fuzzer.opdb`.

Needs of torch its operator database (`torch.testing._internal`), which is private and
imports a test helper (expecttest) that few have; where that fails, so does this, with a sentence.
"""

from __future__ import annotations

import contextlib
import difflib
import fcntl
import functools
import itertools
import os
import random
import shutil
import sys
import time
import types
import unittest
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from .. import _core
from ..calls.foreign import foreign, set_aside
from ..calls.torch_private import all_operator_names, operator_database
from ..program.capture import Recorder
from ..program.waiting import waiting
from . import examples
from .joined import join
from .words import made

SAMPLES = {torch.float32: 12, torch.int64: 3, torch.bool: 2, torch.complex64: 2}
SEED = 20261123
SAID_EVERY_S = 2
PART = 32  # entries that are kept as one


def operators() -> list[Any]:
    """The entries of the database. RuntimeError where this torch has none that can be had."""
    if "expecttest" not in sys.modules:
        try:
            import expecttest  # noqa: F401  # torch's test helpers do
        except ImportError:
            stub = types.ModuleType("expecttest")
            stub.TestCase = unittest.TestCase
            stub.assert_expected_inline = None
            sys.modules["expecttest"] = stub
    try:
        return operator_database()
    except Exception as problem:  # it is private: whatever it raises
        foreign(problem)
        raise RuntimeError(
            f"the operator database of torch {torch.__version__} cannot be had "
            f"({type(problem).__name__}: {problem}); give a captured trace with --trace"
        ) from None


def samples(entry: Any, dtype: torch.dtype, most: int) -> Iterator[Any]:
    """Sample inputs of one entry, the same at every call."""
    torch.default_generator.manual_seed(SEED)  # torch.manual_seed notes a stack for each other device
    random.seed(SEED)
    with contextlib.suppress(ImportError):
        import numpy

        numpy.random.seed(SEED)
    grad = dtype == torch.float32 and entry.supports_autograd
    try:
        yield from itertools.islice(entry.sample_inputs("cpu", dtype, requires_grad=grad), most)
    except Exception as problem:  # samples that this build of torch cannot make (no LAPACK, no MKL)
        foreign(problem)
        return


def run(entry: Any, sample: Any) -> None:
    """Runs a sample forward, and backward where that goes."""
    out = entry.op(sample.input, *sample.args, **sample.kwargs)
    for leaf in out if isinstance(out, (tuple, list)) else (out,):
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.numel():
            leaf.backward(torch.randn_like(leaf), retain_graph=True)


class Progress:
    """Says on stderr how far it is, and ends the process where who asked is gone."""

    def __init__(self, n):
        self.n, self.begin, self.said, self.parent = n, time.monotonic(), 0.0, os.getppid()
        self.first = None  # what an earlier run left took no time

    def at(self, i: int) -> None:
        """Entry `i` of all is next."""
        if os.getppid() != self.parent:
            sys.exit(2)
        now = time.monotonic()
        if self.first is None:
            self.first, self.begin = i, now
        if now < self.said + SAID_EVERY_S:
            return
        self.said = now
        minutes, seconds = divmod(round((now - self.begin) * (self.n - i) / max(i - self.first, 1)), 60)
        left = (
            f", about {minutes}:{seconds:02} left" if i - self.first >= 10 else ""
        )  # the first ones load what all need
        say(f"{i} of {self.n} operators{left}")


def say(text: str) -> None:
    """On stderr, for who waits."""
    waiting.said()
    print(f"ulpscope fuzz: {text}", file=sys.stderr, flush=True)


def record(path: Path, parts: Path) -> None:
    """Writes the trace, from what lies in `parts`: of so many entries each, kept as it is done, so that who is
    interrupted goes on from there."""
    waiting.at("reading torch's operator database")
    entries = operators()
    progress = Progress(len(entries))
    torch.set_num_threads(1)
    places = {first: parts / f"{first:04}" for first in range(0, len(entries), PART)}
    there = sum((place / "trace.db").exists() for place in places.values())
    if there:
        say(f"an earlier run left {min(there * PART, len(entries))} of {len(entries)} operators")
    for first, place in places.items():
        made(
            place, functools.partial(record_part, entries=entries[first : first + PART], first=first, progress=progress)
        )
    waiting.at("putting the examples together")
    join(list(places.values()), path)


def record_part(path: Path, entries: Sequence[Any], first: int, progress: Progress) -> None:
    """Writes the trace of these entries, which begin at the `first` of all."""
    recorder = Recorder(path, data="stats")
    recorder.begin(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for i, entry in enumerate(entries, first):
                progress.at(i)
                waiting.at(f"the examples of {entry.name}")
                for dtype, most in SAMPLES.items():
                    if dtype not in entry.dtypes:
                        continue
                    for sample in samples(entry, dtype, most):
                        with set_aside():  # a sample that this build refuses
                            run(entry, sample)
    finally:
        recorder.end()
        recorder.close()


def folder() -> Path:
    """Where the trace of this version of torch lies, or will."""
    return examples.folder("opdb")


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Holds the lock of what is made at `path`: who comes second waits for the first."""
    with open(f"{path}.lock", "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("another process is making the examples of torch's operators; waiting for it")
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def check_ops(pattern: str) -> None:
    """RuntimeError where no operator of this torch matches: said before the minutes, not after."""
    names = all_operator_names()
    if not any(_core.match_pattern(pattern, name) for name in names):
        bare = {name.partition("::")[2].partition(".")[0] for name in names}
        near = ", ".join(difflib.get_close_matches(pattern, bare, 3)) or "a glob, e.g. '*softmax*'"
        raise RuntimeError(f"no operator of torch {torch.__version__} matches --ops '{pattern}'; did you mean {near}?")


def main() -> int:
    """Makes the trace unless it is there, and prints where, or why not. A word is the PATTERN of
    operators that are wanted of it."""
    try:
        path = folder()
        if not (path / "trace.db").exists():
            for pattern in sys.argv[1:]:
                check_ops(pattern)
            path.parent.mkdir(parents=True, exist_ok=True)
            with alone(path):
                if not (path / "trace.db").exists():
                    make(path)
        print(f"examples lie in {path}", flush=True)
    except (RuntimeError, OSError) as problem:
        print(f"examples lie in {problem}", flush=True)  # which says why nowhere
        return 2
    return 0


def make(path: Path) -> None:
    """Says that it takes its time, and records."""
    say(f"running the examples of torch {torch.__version__}'s operators, once: one to two minutes")
    parts = path.with_name(f"{path.name}.parts")
    made(path, functools.partial(record, parts=parts))
    shutil.rmtree(parts, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
