# SPDX-License-Identifier: Apache-2.0
"""What live modes cost: the step of model.py plain and inside each mode, torch's DebugMode and a
dispatch mode that does nothing beside them.

Every row is measured in this one process: blocks of STEPS steps inside a mode, each between two
plain ones; the ratio is the median of block by its neighbours. `thread`: the same ratio of CPU time
on the thread that runs the model, which other work on the machine hardly changes. A mode is a row of
MODES; --json prints the rows as JSON, a word selects those that hold it.
"""

import contextlib
import json
import os
import sys
import time

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


# what it is -> makes it; None where it is not there
MODES = {
    "plain again": contextlib.nullcontext,
    "nan_tracker": ulpscope.nan_tracker,
    "nan_tracker, one module": lambda: ulpscope.nan_tracker(modules="blocks.0"),
    "two nan_trackers": lambda: both(ulpscope.nan_tracker(), ulpscope.nan_tracker()),
    "live_check, distinct": lambda: ulpscope.live_check(distinct=True),
    "observe, level 1": lambda: ulpscope.observe(output=os.devnull),
    "time_ops": ulpscope.time_ops,
    "* torch DebugMode": debug_mode,
    "* an empty TorchDispatchMode": Nothing,
}


@contextlib.contextmanager
def both(*modes):
    """Several modes at once."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(mode) for mode in modes]


def block(step):
    """Wall-clock and this thread's CPU seconds of STEPS steps."""
    start, busy = time.perf_counter(), time.thread_time()
    for _ in range(STEPS):
        step()
    return time.perf_counter() - start, time.thread_time() - busy


def median(values):
    return sorted(values)[len(values) // 2]


def row(name, make, step):
    """One line of the table; None where the mode is not there."""
    if make() is None:
        return None
    walls, threads, plain = [], [], []
    for _ in range(REPEATS):
        before = block(step)
        with make():
            step()  # what is done once, where a mode begins
            inside = block(step)
        after = block(step)
        walls.append(2 * inside[0] / (before[0] + after[0]))
        threads.append(2 * inside[1] / (before[1] + after[1]))
        plain.append(before[0] / STEPS)
    return {"what": name, "plain_ms": median(plain) * 1e3, "ratio": median(walls), "thread_ratio": median(threads)}


def main():
    words = [w for w in sys.argv[1:] if not w.startswith("-")]
    torch.set_num_threads(1)
    step = TrainingStep(optimizer={"foreach": False})
    for _ in range(3):
        step()
    rows = [row(name, make, step) for name, make in MODES.items() if all(w in name for w in words)]
    rows = [r for r in rows if r is not None]
    if "--json" in sys.argv:
        print(json.dumps(rows, indent=1))
        return
    print(f"{'':34}{'plain ms':>9}{'ratio':>7}{'thread':>7}")
    for r in rows:
        print(f"{r['what']:34}{r['plain_ms']:9.1f}{r['ratio']:7.2f}{r['thread_ratio']:7.2f}")


if __name__ == "__main__":
    main()
