# SPDX-License-Identifier: Apache-2.0
"""Calls of which the CPU refuses a part: integers divided by zero, indices out of range. The
call is run with something else in these places, twice; what comes out the same at both runs
does not hang on them and is judged. Serves `readings`, `session.judging` and `kept`."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import TYPE_CHECKING, Any

import torch

from .. import _core
from ..calls.callable import learn
from ..calls.foreign import foreign, theirs
from ..calls.mode import Mode
from ..calls.verdicts import clause
from ..executors.conventions import is_rejection
from ..calls.replay import is_composite

if TYPE_CHECKING:
    from ..calls.replay import Call
    from ..executors.operands import Operands
    from ..calls.torch_private import OpOverload

DIVIDED, OUT_OF_RANGE = "zero_division", "bad_index"
MARKS = (17, 91, 53)  # every integer type holds them
RANGE = re.compile(r"out of (range|bounds)|index .* (invalid|negative)|Expected .*index", re.IGNORECASE)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def kind_of(problem: BaseException) -> str:
    """The excuse that an exception stands for, "" for none."""
    text = str(problem)
    if "ZeroDivisionError" in text:
        return DIVIDED
    return OUT_OF_RANGE if RANGE.search(text) else ""


class Filled(Mode):
    """Operators that refuse some of their elements run with something in their place, the
    `turn`-th of several choices."""

    def __init__(self, turn: int) -> None:
        super().__init__()
        self.turn = turn

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        try:
            return func(*args, **(kwargs or {}))
        except Exception as problem:
            foreign(problem)
            kind = kind_of(problem)
            if kind == DIVIDED:
                return self._divided(func, args, kwargs or {})
            if kind == OUT_OF_RANGE:
                return self._in_range(func, args, kwargs or {}, problem)
            raise

    def _divided(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
        divisor = torch.as_tensor(args[1])
        safe = torch.where(divisor == 0, 1, divisor)
        safe = safe if isinstance(args[1], torch.Tensor) else int(safe)
        out = func(args[0], safe, *args[2:], **kwargs)
        marked = torch.where(divisor == 0, MARKS[self.turn], out).to(out.dtype)
        return out.copy_(marked) if out is args[0] else marked

    def _in_range(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], problem: Exception) -> Any:
        tensors = [a for a in _leaves(args) if isinstance(a, torch.Tensor)]
        sizes = {n for t in tensors for n in (*t.shape, t.numel()) if n}
        whole = [t for t in tensors if t.dtype in INTEGERS]  # one of them holds the index, or several do
        for size, chosen in product(sorted(sizes, reverse=True), [*([t] for t in whole), whole]):
            for least in (-size, 0):
                fill = (0, size - 1, size // 2)[self.turn]
                safe = _mapped(args, lambda t: _within(t, least, size, fill) if _among(t, chosen) else t)  # noqa: B023
                try:
                    return func(*safe, **kwargs)
                except Exception as refused:
                    foreign(refused)
                    if kind_of(refused) != OUT_OF_RANGE:
                        raise
        raise problem


def _leaves(args: Iterable[Any]) -> Iterator[Any]:
    for a in args:
        yield from _leaves(a) if isinstance(a, (list, tuple)) else (a,)


def _mapped(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(item, change) for item in value)
    return change(value) if isinstance(value, torch.Tensor) else value


def _among(tensor: torch.Tensor, tensors: list[torch.Tensor]) -> bool:
    return any(tensor is t for t in tensors)


def _within(tensor: torch.Tensor, least: int, size: int, fill: int) -> torch.Tensor:
    return torch.where((tensor < least) | (tensor >= size), fill, tensor).to(tensor.dtype)


def _filled(call: Call, turn: int) -> Call:
    """The call with its function run so."""
    function = call.function

    def run(*args: Any, **kwargs: Any) -> Any:
        with Filled(turn):
            return theirs(function, *args, **kwargs)

    if hasattr(function, "_schema"):
        setattr(run, "_schema", function._schema)  # noqa: B010
    other = copy.copy(call)
    other.function = run
    if is_composite(other):
        other.problem, mutated = "", other.mutated
        learn(other)
        other.mutated = {p: v for p, v in other.mutated.items() if p in mutated} or mutated
    return other


def beside(call: Call, problem: BaseException, make: Callable[[Call], Operands]) -> Operands | None:
    """Operands of the call with something else in the places that the CPU refuses (`refused`: the excuse, and
    path -> which elements hang on these); None where no element is left, or the CPU refuses it all."""
    kind = kind_of(problem)
    if not kind:
        return None
    try:
        runs = [make(_filled(call, turn)) for turn in range(len(MARKS))]
        for operands in runs:
            operands.begin()
    except Exception as problem:  # the refusal is about the call as a whole
        foreign(problem)
        return None
    hang = {}
    for path, truth in runs[0].reference.truth.items():
        others = [r.reference.truth[path] for r in runs[1:] if path in r.reference.truth]
        if any(t.shape != truth.shape for t in others):
            return None
        hang[path] = torch.zeros(truth.shape, dtype=torch.bool)
        for other in others:
            hang[path] |= ~((truth == other) | ((truth != truth) & (other != other)))
    if not any(bool(h.any()) for h in hang.values()) or all(bool(h.all()) for h in hang.values()):
        return None
    runs[0].refused = kind, hang
    return runs[0]


def without_reference(call: Call, problem: BaseException) -> tuple[str, str]:
    """(verdict, reason) of a call of which the CPU refuses everything, or has no reference."""
    text = clause(problem)
    if kind_of(problem) == DIVIDED:
        return "undefined", _core.excuses[DIVIDED][1]
    if is_rejection(call, problem):
        return "undefined", f"the CPU rejects this call ({text}), the device answers"
    if isinstance(problem, MemoryError) or "can't allocate memory" in text:
        text = f"it needs more memory than there is ({text})"
    return "unjudged", f"no float64 reference: {text}"
