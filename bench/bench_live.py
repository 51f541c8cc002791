# SPDX-License-Identifier: Apache-2.0
"""What live modes cost: the step of model.py plain and inside each mode, msprobe (bench/peer.py),
torch's DebugMode and a dispatch mode that does nothing beside them.

Every row is measured in this one process: blocks of STEPS steps inside a mode, each between two
plain ones; the ratio is the median of block by its neighbours. `thread`: the same ratio of CPU time
on the thread that runs the model, which other work on the machine hardly changes. `goal`: what the
ratio is to stay below. A mode is a row of MODES; --json prints the rows as JSON, a word selects those
that hold it.
"""

import contextlib
import functools
import json
import os
import sys
import tempfile
import time

import peer
import torch
from model import TrainingStep
from torch.utils._python_dispatch import TorchDispatchMode

import ulpscope

REPEATS = 9
STEPS = 5


class Nothing(TorchDispatchMode):
    """What a peer in Python pays before it does anything."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def debug_mode():
    """torch's own recorder of operator names and shapes; None where this torch has none."""
    try:
        from torch.utils._debug_mode import DebugMode
    except ImportError:
        return None
    return DebugMode()


@functools.cache
def msprobe():
    """msprobe's PrecisionDebugger; None, and why, where it cannot be had."""
    try:
        peer.enable()
        from msprobe.pytorch import PrecisionDebugger
    except Exception as reason:
        print(f"msprobe is left out: {reason}", file=sys.stderr)
        return None
    return PrecisionDebugger


class Probed:
    """Steps that msprobe's task "statistics" dumps, each told apart as its manual has it."""

    def __init__(self, level, model):
        self.level, self.model = level, model

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.debugger = msprobe()(task="statistics", level=self.level, dump_path=self.folder.name, step=[])
        return self

    def step(self, step):
        self.debugger.start(model=self.model)
        step()
        self.debugger.stop()
        self.debugger.step()

    def __exit__(self, *raised):
        msprobe()._instance = None
        self.folder.cleanup()


def probed(level):
    """A row of MODES for msprobe."""
    return lambda model: Probed(level, model) if msprobe() else None


class Off:
    """The program behind a mode: it was entered and left."""

    def __init__(self, mode):
        self.mode = mode

    def __enter__(self):
        with self.mode:
            torch.ones(2).mul(2)

    def __exit__(self, *raised):
        pass


@contextlib.contextmanager
def both(*modes):
    """Several modes at once."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(mode) for mode in modes]


def here(make):
    """A row of MODES that does not ask for the model."""
    return lambda model: make()


# what it is -> what makes it of the model (None where it is not there), and the goal
MODES = {
    "plain again": (here(contextlib.nullcontext), None),
    "nan_tracker that was left": (here(lambda: Off(ulpscope.nan_tracker())), 1.0),
    "nan_tracker": (here(ulpscope.nan_tracker), 1.15),
    "nan_tracker, one module": (here(lambda: ulpscope.nan_tracker(modules="blocks.0")), None),
    "nan_tracker, 1000 calls kept": (here(lambda: ulpscope.nan_tracker(keep_calls=1000)), None),
    "two nan_trackers": (here(lambda: both(ulpscope.nan_tracker(), ulpscope.nan_tracker())), None),
    "live_check, distinct": (here(lambda: ulpscope.live_check(distinct=True)), 1.5),
    "live_check, all calls (back-pressure)": (here(ulpscope.live_check), None),
    "observe, level 1": (here(lambda: ulpscope.observe(output=os.devnull)), 1.2),
    "time_ops": (here(ulpscope.time_ops), None),
    "* msprobe statistics, L0 (modules)": (probed("L0"), None),
    "* msprobe statistics, L1 (functions)": (probed("L1"), None),
    "* torch DebugMode": (here(debug_mode), None),
    "* an empty TorchDispatchMode": (here(Nothing), None),
}


def block(step, n=STEPS):
    """Wall-clock and this thread's CPU seconds of so many steps."""
    start, busy = time.perf_counter(), time.thread_time()
    for _ in range(n):
        step()
    return time.perf_counter() - start, time.thread_time() - busy


def median(values):
    return sorted(values)[len(values) // 2]


def row(name, make, goal, step):
    """One line of the table; None where the mode is not there."""
    if make(step.model) is None:
        return None
    walls, threads, plain = [], [], []
    for _ in range(REPEATS):
        before = block(step)
        with make(step.model) as mode:
            one = functools.partial(mode.step, step) if isinstance(mode, Probed) else step
            one()  # what is done once, where a mode begins
            inside = block(one)
        after = block(step)
        walls.append(2 * inside[0] / (before[0] + after[0]))
        threads.append(2 * inside[1] / (before[1] + after[1]))
        plain.append(before[0] / STEPS)
    return {
        "what": name,
        "plain_ms": median(plain) * 1e3,
        "ratio": median(walls),
        "thread_ratio": median(threads),
        "goal": goal,
    }


def main():
    words = [w for w in sys.argv[1:] if not w.startswith("-")]
    torch.set_num_threads(1)
    step = TrainingStep(optimizer={"foreach": False})
    for _ in range(3):
        step()
    rows = []
    if "--json" not in sys.argv:
        print(f"{'':38}{'plain ms':>9}{'ratio':>7}{'thread':>7}{'goal':>7}")
    for name, (make, goal) in MODES.items():
        r = row(name, make, goal, step) if all(w in name for w in words) else None
        if r is None:
            continue
        rows.append(r)
        if "--json" not in sys.argv:
            print(
                f"{name:38}{r['plain_ms']:9.1f}{r['ratio']:7.2f}{r['thread_ratio']:7.2f}"
                f"{'' if goal is None else format(goal, '.2f'):>7}",
                flush=True,
            )
    if "--json" in sys.argv:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
