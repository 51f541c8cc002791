# SPDX-License-Identifier: Apache-2.0
"""Does the search of `ulpscope fuzz --stress` find what drawing misses? Kernels whose faults show at rare
forms alone, and for each the calls that are judged until one is accused: by drawing, by the hard draws
of --stress, and by these with the search from each. Calls, not cases, are counted: a search judges
several for each case. docs/reference/fuzz.md has the table that this prints.
"""

from __future__ import annotations

import argparse
import statistics
import warnings

import torch

from ulpscope import _core
from ulpscope.calls.replay import BadCall
from ulpscope.calls.verdicts import FLAGGED
from ulpscope.executors import formulas
from ulpscope.executors.device import PythonDevice
from ulpscope.fuzzer.climbing import climb
from ulpscope.session.judging import judge_call
from ulpscope.fuzzer import drawn_cases, opdb


def cut(x, bits):
    """float32 with so many bits of its mantissa left."""
    return (x.contiguous().view(torch.int32) >> 23 - bits << 23 - bits).view(torch.float32)


def short_sums(op, args, kwargs):
    """Products of matrices that are added in blocks of 64, the sum of them kept with 19 bits: few blocks hide it."""
    a, b = args
    if a.dtype != torch.float32:
        return op(a, b)
    total = torch.zeros(a.shape[0], b.shape[1])
    for k in range(0, a.shape[1], 64):
        total = cut(total + op(a[:, k : k + 64], b[k : k + 64]), 19) if a.shape[1] > 64 else total + op(a, b)
    return total


def long_tail(op, args, kwargs):
    """Rows longer than a tile of 512 whose rest is no vector: the last element stays zero."""
    x = args[0]
    out = op(*args, **kwargs)
    if x.dim() and x.shape[-1] > 512 and x.shape[-1] % 8:
        out[..., -1] = 0
    return out


def strided_tile(op, args, kwargs):
    """Two rows change places where rows lie apart and there are more than 32 of them."""
    x = args[0]
    out = op(*args, **kwargs)
    if x.dim() == 2 and x.shape[0] > 32 and x.shape[1] > 32 and x.stride(1) != 1:
        out[[0, 1]] = out[[1, 0]]
    return out


def no_maximum(op, args, kwargs):
    """Softmax without taking the largest away."""
    x, dim = args[0], args[1]
    if x.dtype != torch.float32 or not x.dim():
        return op(*args, **kwargs)
    y = x.exp()
    return y / y.sum(dim, keepdim=True)


KERNELS = {
    "mm: short sums of long rows": ("aten::mm", short_sums),
    "exp: rest of long rows": ("aten::exp", long_tail),
    "tanh: strided tiles": ("aten::tanh", strided_tile),
    "softmax: no maximum": ("aten::_softmax", no_maximum),
}


class Side:
    """Cases of an operator on a device; counts what is judged."""

    def __init__(self, examples, kernel, seed, stress):
        self.examples, self.device = examples, PythonDevice(kernel)
        self.seed, self.stress, self.judged = seed, stress, 0

    def draw(self, number):
        which = (number & (1 << drawn_cases.STEP_BIT) - 1) % len(self.examples)
        return drawn_cases.drawn(self.examples[which], self.seed, number, self.stress)

    def judge(self, call):
        self.judged += 1
        return judge_call(call, self.device, seconds=0, repeat=1)

    def until_found(self, most, search):
        """Calls that are judged until one is accused; `most` where none is."""
        for case in range(most):
            if self.judged >= most:
                break
            try:
                call, words = self.draw(case)
            except BadCall:
                continue
            verdict = self.judge(call)
            if search:
                verdict = climb(self.draw, case, (call, verdict, words), self.judge)[1]
            if verdict.verdict in FLAGGED:
                return self.judged
        return most


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=600, help="calls for each fault and seed")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    formulas.load()
    trace = _core.Trace(str(opdb.folder()))
    print(f"calls judged until found, median of {options.seeds} seeds (not found within {options.most}: that many)")
    print(f"{'':30} {'drawing':>16} {'--stress draws':>16} {'with search':>16}")
    for name, (op, kernel) in KERNELS.items():
        rows = [trace.call(s) for s in trace.select(ops=op)]
        examples = [
            drawn_cases.Example(r, "bench")
            for r in rows
            if all(t["dtype"] == "float32" and not t.get("form") for t in r["tensors"])
        ]
        told = []
        for stress, search in ((False, False), (True, False), (True, True)):
            n = [
                Side(examples, kernel, seed, stress).until_found(options.most, search) for seed in range(options.seeds)
            ]
            told.append(f"{statistics.median(n):.0f} ({sum(k < options.most for k in n)} found)")
        print(f"{name:30} {told[0]:>16} {told[1]:>16} {told[2]:>16}", flush=True)


if __name__ == "__main__":
    main()
