# SPDX-License-Identifier: Apache-2.0
"""How many faults does `ulpscope fuzz` find, and within how many cases of the operator? Each fault of numbers of
the simulated device at every operator that it has, one at a time (a share of them, drawn by a seed), and
defects of real backends that were reported in public (fuzz_reported.py). A fault counts where it changed
a bit of some case. Beside it the findings on devices that are right: no fault, other threads, strided copies.
docs/reference/fuzz.md has what this prints.

Needs torch: its operator database, `sim`, and functions that stand for a device.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
import warnings
from pathlib import Path

import torch
from torch.utils._pytree import tree_map

import ulpscope
import ulpscope.sim as sim
from ulpscope import _core
from ulpscope.calls.replay import BadCall, base_name
from ulpscope.calls.verdicts import FLAGGED
from ulpscope.executors import formulas
from ulpscope.executors.device import PythonDevice, TorchDevice
from ulpscope.calls.trusting import TRUSTING
from ulpscope.judges.in_rows import OF_STRIDES
from ulpscope.session.judging import judge_call
from ulpscope.fuzzer import drawn_cases

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from bench_fuzz import NO_FAULT_OF_NUMBERS, database  # noqa: E402
from fuzz_reported import REPORTED  # noqa: E402

MOST_EXAMPLES = 200  # of an operator
IDLE = 8  # cases in a row in which a fault changed nothing: it has nothing to do at this operator


# ---- cases of one operator ----


class Cases:
    """Cases of one operator in turn, as `ulpscope fuzz` draws them."""

    def __init__(self, rows, seed):
        self.examples, self.seed = [], seed
        for row in rows:
            try:
                self.examples.append(drawn_cases.Example(row, "bench"))
            except BadCall:
                continue

    def accused(self, case, device, stress=False):
        """Whether the verdict accuses the case; None where there is none."""
        try:
            example = self.examples[random.Random(f"{self.seed}:{case}").randrange(len(self.examples))]
            call, _ = drawn_cases.drawn(example, self.seed, case, stress)
            return judge_call(call, device, seconds=0).verdict in FLAGGED
        except BadCall:
            return None

    def until(self, device, most, stress=False, acted=lambda: True):
        """Cases up to the first that is accused; None: none of `most`, or nothing happened in the first ones."""
        for case in range(most):
            if self.accused(case, device, stress):
                return case + 1
            if case + 1 == IDLE and not acted():
                return None
        return None


class Known(dict):
    """Operator -> its cases."""

    def __init__(self, trace, seed):
        super().__init__()
        self.trace, self.seed = trace, seed

    def __missing__(self, op):
        rows = [self.trace.call(s) for s in self.trace.select(ops=op)[:MOST_EXAMPLES]]
        self[op] = Cases(rows, self.seed)
        return self[op]


def fired():
    return any(f["changed"] for f in sim.faults_fired())


def in_children(n, work, until):
    """([[number, what work(number) gave]] of numbers below `n`, how many were tried, how many died). In forked
    processes, as a kernel may die of what it is given: the next one goes on behind that number."""
    with tempfile.NamedTemporaryFile() as file:
        context, at, deaths = multiprocessing.get_context("fork"), 0, 0
        while at < n and time.time() < until:
            child = context.Process(target=told, args=(at, n, work, until, file.name))
            child.start()
            child.join(max(1, until + 60 - time.time()))
            child.kill()
            lines = [json.loads(line) for line in Path(file.name).read_text().splitlines()]
            deaths += child.exitcode != 0
            at = lines[-1][0] + 1 if lines else at + 1
    return [line for line in lines if len(line) > 1], at, deaths


def told(at, n, work, until, path):
    """Writes a line for each number before its work begins, and another of what it gave, unless None."""
    with open(path, "a", buffering=1) as file:
        for i in range(at, n):
            if time.time() > until:
                return
            file.write(json.dumps([i]) + "\n")
            given = work(i)
            if given is not None:
                file.write(json.dumps([i, given]) + "\n")


def planted(trace, options):
    """Of a share of all (operator, fault): [(operator, kind, cases or None)] of those that changed a bit."""
    names = sorted({trace.call(s)["op"] for s in trace.select()})
    kinds = [k for k in sim.fault_kinds() if k not in NO_FAULT_OF_NUMBERS]
    pairs = list(itertools.product(names, kinds))
    random.Random(options.seed).shuffle(pairs)
    known, device = Known(trace, options.seed), TorchDevice("sim:0")

    def plant(i):
        op, kind = pairs[i]
        if not known[op].examples:
            return None
        with sim.fault(op, kind):
            cases = known[op].until(device, options.most, acted=fired)
            return (op, kind, cases) if cases is not None or fired() else None

    found, tried, deaths = in_children(len(pairs), plant, time.time() + 60 * options.minutes)
    print(f"{tried} of {len(pairs)} pairs of an operator and a fault; died: {deaths}")
    return [given for _, given in found]


# ---- devices that are right ----


def as_it_is(call, bound):
    return bound.run(call.on(lambda captured: "cpu"))


def on_two_threads(call, bound):
    torch.set_num_threads(2)
    try:
        return as_it_is(call, bound)
    finally:
        torch.set_num_threads(1)


def on_strided_copies(call, bound):
    """Every second element of copies, where nothing is written and no kernel reads beside such tensors."""
    name = base_name(call.op)[1]
    if not call.written() and name not in OF_STRIDES | drawn_cases.DENSE | TRUSTING:
        bound.args, bound.kwargs = tree_map(spread, bound.args), tree_map(spread, bound.kwargs)
    return as_it_is(call, bound)


def spread(t):
    if not isinstance(t, torch.Tensor) or t.layout != torch.strided:
        return t
    rows = torch.empty(t.shape, device="meta").stride()
    return torch.empty_strided(t.shape, [2 * s for s in rows], dtype=t.dtype).copy_(t)


def right(name, compute=None):
    device = TorchDevice(name)
    device.compute = compute or device.compute
    return device


HONEST = {
    "cpu": right("cpu"),
    "sim": right("sim:0"),
    "two threads": right("cpu", on_two_threads),
    "strided copies": right("cpu", on_strided_copies),
}


def honest(trace, options):
    """Prints how many cases each right device is accused of, and of how many the CPU is not."""
    names = sorted({trace.call(s)["op"] for s in trace.select()})
    known = Known(trace, options.seed)

    def judged(i):
        op = names[_core.fuzz_operator(options.seed, i, len(names))]
        said = {name: known[op].accused(i, device) for name, device in HONEST.items()} if known[op].examples else {}
        return None if None in said.values() or not said else (op, [name for name, flagged in said.items() if flagged])

    found, _, deaths = in_children(options.honest, judged, time.time() + 3600)
    for name in HONEST:
        accused = [(i, op) for i, (op, names) in found if name in names]
        alone = [(i, op) for i, op in accused if not any(i == j and "cpu" in names for j, (_, names) in found)]
        print(
            f"{name:16} accused {len(accused):4} of {len(found)}, where the CPU is not: {len(alone)} "
            + ", ".join(f"{op}@{i}" for i, op in alone)
        )
    print(f"died: {deaths}")


def reported(trace, options):
    """[(operator, kernel, cases of plain draws, cases of hard draws)] of documented defects."""
    with tempfile.TemporaryDirectory() as folder:
        adamw = optimizer_step(Path(folder) / "trace")
        for op, kernel in REPORTED:
            of = adamw if "fused" in op else trace
            cases = Cases([of.call(s) for s in of.select(ops=op)], options.seed)
            device = PythonDevice(kernel)
            yield op, kernel, *(cases.until(device, options.most, stress) for stress in (False, True))


def optimizer_step(folder):
    """The trace of a step of a fused AdamW under a gradient scaler: no database of operators has one."""
    net = torch.nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(net(torch.randn(4, 8)).square().sum()).backward()
    with ulpscope.capture(str(folder), data="stats"):
        scaler.step(optimizer)
    return _core.Trace(str(folder))


def shares(numbers, n, limits=(1, 5, 20, 60, 200, 2000)):
    return ", ".join(f"{100 * sum(k <= limit for k in numbers) / n:.1f} % within {limit}" for limit in limits)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=200, help="cases of an operator for each fault (default 200)")
    parser.add_argument("--minutes", type=float, default=8, help="for planted faults (default 8)")
    parser.add_argument("--honest", type=int, default=2000, help="cases on devices that are right (default 2000)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    formulas.load()
    trace = database()
    print(f"documented defects: cases of the operator until one is accused (none of {options.most}: -)")
    print(f"{'':44} {'drawn':>6} {'--stress':>9}")
    told = list(reported(trace, options))
    for op, kernel, plain, hard in told:
        name = kernel.__name__ if kernel.__name__ != "kernel" else "with fewer bits"
        print(f"{op.removeprefix('aten::')[:24]:24} {name[:20]:20} {plain or '-':>5} {hard or '-':>9}", flush=True)
    print(
        f"found: {sum(p is not None for _, _, p, _ in told)} of {len(told)} drawn, "
        f"{sum(h is not None for *_, h in told)} with --stress"
    )
    honest(trace, options)
    found = planted(trace, options)
    numbers = [cases for *_, cases in found if cases is not None]
    if not found:
        return
    print(
        f"{len(found)} planted faults changed a bit, at {len({op for op, *_ in found})} operators; found: "
        + shares(numbers, len(found), [k for k in (1, 5, 20, 60, 200, 2000) if k <= options.most])
    )
    missed = collections.Counter(kind for _, kind, cases in found if cases is None)
    print("not found, by kind: " + (", ".join(f"{k} {n}" for k, n in missed.most_common()) or "none"))
    for op, kind, cases in found:
        if cases is None:
            print(f"  {op}:{kind}")


if __name__ == "__main__":
    main()
