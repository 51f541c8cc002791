# SPDX-License-Identifier: Apache-2.0
"""The random numbers of the host program: judging draws and seeds, and leaves every stream
as it was; and its threads. Serves `judges.draws.random_operators`, `reference_runs`, `session.judging` and
`session.api`."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from ..calls.foreign import set_aside
from .device import present


@contextlib.contextmanager
def kept_state(arguments: Iterable[Any] = ()) -> Iterator[None]:
    """Leaves all random streams as they were: those of the CPU and of every device, of numpy
    and of Python, and of the generators among the arguments."""
    undo = [_cpu(), _python(), *_numpy(), *_devices()]
    undo += [_of(g) for g in arguments if isinstance(g, torch.Generator)]
    try:
        yield
    finally:
        for put_back in undo:
            put_back()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """torch's operators on the CPU in the calling thread alone, so that none races itself."""
    n = torch.get_num_threads()
    if n == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n)


def _cpu():
    state = torch.random.get_rng_state()
    return lambda: torch.random.set_rng_state(state)


def _python():
    state = random.getstate()
    return lambda: random.setstate(state)


def _numpy():
    numpy = sys.modules.get("numpy")
    if numpy is None or not hasattr(numpy, "random"):
        return []
    state = numpy.random.get_state()
    return [lambda: numpy.random.set_state(state)]


def _of(generator):
    state = generator.get_state()
    return lambda: generator.set_state(state)


def _devices():
    """One function for each device whose generator can be read; those of a backend that
    nobody has used yet have no state to lose."""
    found = []
    for kind in present()[1:]:
        module = getattr(torch, kind, None)
        if module is None or not getattr(module, "is_initialized", lambda: True)():
            continue
        for index in range(module.device_count()):
            with set_aside():  # a backend without states: nothing to keep
                found.append(_indexed(module, kind, index))
    return found


def _indexed(module, kind, index):
    where = () if kind == "mps" else (index,)  # it has one device and takes no index
    state = module.get_rng_state(*where)
    return lambda: module.set_rng_state(state, *where)


@contextlib.contextmanager
def flushing_to_zero() -> Iterator[None]:
    """This CPU flushes subnormals, where it can; then it is as whoever called has set it."""
    before = not (torch.full((), torch.finfo(torch.float32).tiny) / 2).item()  # torch has no word that asks for it
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
