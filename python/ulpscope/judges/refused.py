# SPDX-License-Identifier: Apache-2.0
"""Calls of which the CPU refuses a part: integers divided by zero, indices out of range. The
call is run with something else in these places, twice; what comes out the same at both runs
does not hang on them and is judged. Serves `session.judging`."""

import copy
import re
from dataclasses import replace

import torch

from ..calls.callable import learn
from ..calls.mode import Mode
from ..executors.operands import Operands
from .outputs import judge_outputs

DIVIDED, OUT_OF_RANGE = "zero_division", "bad_index"
MARKS = (17, 91, 53)  # every integer type holds them
RANGE = re.compile(r"out of (range|bounds)|index .* (invalid|negative)|Expected .*index", re.IGNORECASE)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def kind_of(problem):
    """The excuse that an exception stands for, "" for none."""
    text = str(problem)
    if "ZeroDivisionError" in text:
        return DIVIDED
    return OUT_OF_RANGE if RANGE.search(text) else ""


class Filled(Mode):
    """Operators that refuse some of their elements run with something in their place, the
    `turn`-th of several choices."""

    def __init__(self, turn):
        super().__init__()
        self.turn = turn

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        try:
            return func(*args, **(kwargs or {}))
        except Exception as problem:
            kind = kind_of(problem)
            if kind == DIVIDED:
                return self._divided(func, args, kwargs or {})
            if kind == OUT_OF_RANGE:
                return self._in_range(func, args, kwargs or {}, problem)
            raise

    def _divided(self, func, args, kwargs):
        divisor = torch.as_tensor(args[1])
        safe = torch.where(divisor == 0, 1, divisor)
        safe = safe if isinstance(args[1], torch.Tensor) else int(safe)
        out = func(args[0], safe, *args[2:], **kwargs)
        marked = torch.where(divisor == 0, MARKS[self.turn], out).to(out.dtype)
        return out.copy_(marked) if out is args[0] else marked

    def _in_range(self, func, args, kwargs, problem):
        tensors = [a for a in _leaves(args) if isinstance(a, torch.Tensor)]
        sizes = {n for t in tensors for n in (*t.shape, t.numel()) if n}
        for size in sorted(sizes, reverse=True):
            for least in (-size, 0):
                fill = (0, size - 1, size // 2)[self.turn]
                safe = _mapped(args, lambda t: _within(t, least, size, fill))  # noqa: B023
                try:
                    return func(*safe, **kwargs)
                except Exception as refused:
                    if kind_of(refused) != OUT_OF_RANGE:
                        raise
        raise problem


def _leaves(args):
    for a in args:
        yield from _leaves(a) if isinstance(a, (list, tuple)) else (a,)


def _mapped(value, change):
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(item, change) for item in value)
    return change(value) if isinstance(value, torch.Tensor) else value


def _within(tensor, least, size, fill):
    if tensor.dtype not in INTEGERS:
        return tensor
    return torch.where((tensor < least) | (tensor >= size), fill, tensor).to(tensor.dtype)


def _filled(call, turn):
    """The call with its function run so."""
    function = call.function

    def run(*args, **kwargs):
        with Filled(turn):
            return function(*args, **kwargs)

    if hasattr(function, "_schema"):
        run._schema = function._schema
    other = copy.copy(call)
    other.function = run
    if other.composite:
        other.problem, mutated = "", other.mutated
        learn(other)
        other.mutated = {p: v for p, v in other.mutated.items() if p in mutated} or mutated
    return other


def judged_beside(call, answer, problem, timing):
    """(operands, findings) of what does not hang on the refused elements, in which these
    are counted as excused; None where nothing is left, or the CPU refuses it all."""
    kind = kind_of(problem)
    if not kind:
        return None
    try:
        runs = [Operands(_filled(call, turn), timing) for turn in range(len(MARKS))]
        for operands in runs:
            operands.begin()
    except Exception:  # the refusal is about the call as a whole
        return None
    outputs, free = dict(answer.outputs), {}
    for path, truth in runs[0].reference.truth.items():
        device = outputs.get(path)
        others = [r.reference.truth[path] for r in runs[1:] if path in r.reference.truth]
        if device is None or device.shape != truth.shape or any(t.shape != truth.shape for t in others):
            return None
        hangs = torch.zeros(truth.shape, dtype=torch.bool)
        for other in others:
            hangs |= ~((truth == other) | ((truth != truth) & (other != other)))
        free[path] = int(hangs.sum())
        outputs[path] = torch.where(hangs, truth.to(device.dtype), device)
    if not sum(free.values()) or all(free[p] == outputs[p].numel() for p in free):
        return None
    findings = judge_outputs(runs[0], replace(answer, outputs=outputs), narrow=True)
    for i, finding in enumerate(findings):
        findings.refuse(i, kind, free.get(finding.path, 0))
    return runs[0], findings
