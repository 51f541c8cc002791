# SPDX-License-Identifier: Apache-2.0
"""Mutation score of `ulpscope fuzz`: each fault of the simulated device at each of a dozen operators,
found within how many cases; beside two peers in the same process: OneFlow's rule (uniform values, axes
of 1 to 7 elements, forward and backward for a random cotangent, every tensor that AutoTest queues held to
allclose 1e-4, 1e-5: inputs, result, gradients) without its dual objects, and the samples of torch's operator database
under `torch.testing.assert_close`. A fault counts where it changed a bit in some case. Findings on the honest
device, and cases per second. docs/reference/fuzz.md has the table that this prints.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import subprocess
import sys
import time
import warnings

import numpy
import torch

import ulpscope.sim as sim
from ulpscope import _core
from ulpscope.calls.replay import BadCall
from ulpscope.calls.verdicts import FLAGGED
from ulpscope.executors import formulas
from ulpscope.executors.device import TorchDevice
from ulpscope.session.judging import judge_call
from ulpscope.fuzzer import drawn_cases, opdb

NO_FAULT_OF_NUMBERS = {"crash", "hang", "lacking", "cpu_fallback", "step_plus_one", "bf16_intermediates"}
# operator: (entry of the database, function, shapes by named sizes)
OPERATORS = {
    "aten::mm": ("mm", torch.mm, ("mk", "kn")),
    "aten::addmm": ("addmm", torch.addmm, ("n", "mk", "kn")),
    "aten::bmm": ("bmm", torch.bmm, ("bmk", "bkn")),
    "aten::add.Tensor": ("add", torch.add, ("mn", "mn")),
    "aten::mul.Tensor": ("mul", torch.mul, ("mn", "mn")),
    "aten::exp": ("exp", torch.exp, ("mn",)),
    "aten::sigmoid": ("sigmoid", torch.sigmoid, ("mn",)),
    "aten::gelu": ("nn.functional.gelu", torch.nn.functional.gelu, ("mn",)),
    "aten::tanh": ("tanh", torch.tanh, ("mn",)),
    "aten::_softmax": ("softmax", lambda x: torch.softmax(x, -1), ("mn",)),
    "aten::sum.dim_IntList": ("sum", lambda x: x.sum(-1), ("mn",)),
    "aten::cumsum": ("cumsum", lambda x: x.cumsum(-1), ("mn",)),
}


class Ours:
    """Cases of one operator, drawn from the examples of the database."""

    def __init__(self, trace, numbers):
        self.examples, self.device = [], TorchDevice("sim:0")
        for row in map(trace.call, numbers):
            if all(t["dtype"] == "float32" and not t.get("form") for t in row["tensors"]):
                self.examples.append(drawn_cases.Example(row, "bench"))

    def differs(self, case):
        """Whether the verdict accuses it; None where nothing can be drawn."""
        try:
            call, _ = drawn_cases.drawn(self.examples[case % len(self.examples)], 0, case)
        except BadCall:
            return None
        return judge_call(call, self.device, seconds=0).verdict in FLAGGED


class OneFlow:
    """The rule of OneFlow's AutoTest, written anew."""

    def __init__(self, function, shapes):
        self.function, self.shapes, self.random = function, shapes, numpy.random.default_rng(0)

    def differs(self, case):
        size = {name: int(self.random.integers(1, 8)) for name in "bmkn"}
        given = [
            torch.from_numpy(self.random.uniform(-1, 1, [size[n] for n in s]).astype("float32")) for s in self.shapes
        ]
        right = self.tensors([t.clone() for t in given], None)
        got = self.tensors([t.to("sim") for t in given], right[-1])
        return not all(numpy.allclose(a, b, 1e-4, 1e-5, equal_nan=True) for a, b in zip(got, right, strict=True))

    def tensors(self, given, cotangent):
        """What AutoTest compares of one side, and at the end the cotangent, drawn where there is none."""
        leaves = [t.requires_grad_() for t in given]
        out = self.function(*leaves)
        if cotangent is None:
            cotangent = self.random.uniform(0, 1, tuple(out.shape)).astype("float32")
        out.backward(torch.from_numpy(cotangent).to(out.device))
        kept = [*leaves, out, *(t.grad for t in leaves)]
        return [t.detach().cpu().numpy() for t in kept] + [cotangent]


class Database:
    """Samples of the operator database, held by `assert_close`."""

    def __init__(self, entry):
        self.entry, self.samples = entry, list(opdb.samples(entry, torch.float32, 1000))

    def differs(self, case):
        if case >= len(self.samples):
            return None
        sample = self.samples[case]
        move = lambda v: v.detach().to("sim") if isinstance(v, torch.Tensor) else v  # noqa: E731
        try:
            right = self.entry.op(sample.input, *sample.args, **sample.kwargs)
            got = self.entry.op(
                move(sample.input), *map(move, sample.args), **{k: move(v) for k, v in sample.kwargs.items()}
            )
            torch.testing.assert_close(got.cpu(), right.detach(), equal_nan=True)
        except AssertionError:
            return True
        return False


def first_found(side, most):
    """The number of cases up to the first that differs; None: none of `most` does."""
    for case in range(most):
        if side.differs(case):
            return case + 1
    return None


def changed_a_bit():
    return any(f["changed"] for f in sim.faults_fired())


def score(sides, most):
    """(planted faults that changed a bit, side -> cases up to the finding of each that was found)."""
    planted, found = 0, {name: [] for name in sides}
    for op, kind in itertools.product(OPERATORS, sim.fault_kinds()):
        if kind in NO_FAULT_OF_NUMBERS:
            continue
        seen, acted = {}, False
        for name, of in sides.items():
            with sim.fault(op.split(".")[0], kind):
                seen[name] = first_found(of[op], most)
                acted |= changed_a_bit()
        planted += acted
        for name, cases in seen.items():
            if cases is not None:
                found[name].append(cases)
            elif acted and name == "ulpscope fuzz":
                print(f"  not found within {most} cases: {op}:{kind}")
    return planted, found


def honest(of, seconds):
    """(cases, findings, seconds of the processor) on the honest device: whoever else computes here costs none."""
    n = flagged = 0
    begin = time.process_time()
    for case in itertools.count():
        known = n
        for side in of.values():
            differs = side.differs(case)
            n += differs is not None
            flagged += bool(differs)
        if n == known or time.process_time() - begin > seconds:
            return n, flagged, time.process_time() - begin


def database():
    """The trace of the operator database's samples, made where there is none yet."""
    folder = opdb.folder()
    if not (folder / "trace.db").exists():
        subprocess.run([sys.executable, "-m", "ulpscope.fuzzer.opdb"], check=True)
    return _core.Trace(str(folder))


def sides():
    trace = database()
    entries = {e.name: e for e in opdb.operators() if not e.variant_test_name}
    return {
        "ulpscope fuzz": {op: Ours(trace, trace.select(ops=op)) for op in OPERATORS},
        "OneFlow's rule": {op: OneFlow(function, shapes) for op, (_, function, shapes) in OPERATORS.items()},
        "op_db + assert_close": {op: Database(entries[name]) for op, (name, _, _) in OPERATORS.items()},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=60, help="cases for each fault")
    parser.add_argument("--seconds", type=float, default=10, help="on the honest device, for each side")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    formulas.load()
    all_sides = sides()
    gc.collect()
    gc.freeze()  # as a worker of `ulpscope fuzz` does
    planted, found = score(all_sides, options.most)
    ours = None
    print(f"{planted} planted faults of numbers at {len(OPERATORS)} operators, up to {options.most} cases each")
    print(f"{'':22} {'found':>12} {'median case':>12} {'last':>5} {'honest: findings':>17} {'cases/s':>8} {'ratio':>6}")
    for name, of in all_sides.items():
        n, flagged, seconds = honest(of, options.seconds)
        ours = ours or n / seconds
        cases = sorted(found[name]) or [0]
        print(
            f"{name:22} {len(found[name]):5} {100 * len(found[name]) / planted:4.0f} % {cases[len(cases) // 2]:12} "
            f"{cases[-1]:5} {flagged:8} of {n:5} {n / seconds:8.0f} {ours / (n / seconds):6.2f}"
        )


if __name__ == "__main__":
    main()
