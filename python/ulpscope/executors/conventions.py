# SPDX-License-Identifier: Apache-2.0
"""Where an operator leaves something open: numbers that are rounded to the tensors' dtype
first or are not, and calls that the CPU rejects. Serves `session.judging`."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ..calls.foreign import theirs
from ..calls.mode import Mode
from ..calls.nested import mapped
from ..calls.replay import Call, LEFT_ALONE, base_name, is_write
from .precision import opens

NOTE = "numbers among the arguments rounded to {} first"
LOW = (torch.float16, torch.bfloat16)
# A refusal that speaks of where or in which dtype something runs, not of the call itself.
ABOUT_US = re.compile(
    r"not implemented|support|could not run|no kernel|cuda|device|dtype|scalar type|double|"
    r"float|half|memory|decomp|fake|meta|backend",
    re.IGNORECASE,
)


# ---- numbers -----------------------------------------------------------------------


def readings(call: Call) -> Iterator[tuple[str, Call]]:
    """Other readings of a call that are as right: pairs of the note on a verdict by it, and the
    call so read."""
    yield from with_rounded_scalars(call)
    yield from with_its_casts(call)


def with_rounded_scalars(call: Call) -> list[tuple[str, Call]]:
    """(note, call) for every low dtype of its tensors, with each number rounded to that dtype
    first, as eager kernels may do (alpha, bounds of a clamp, what is added); only where that
    changes something."""
    alone = not any(v.sizes for v in call.views.values())
    dtypes = {v.dtype for v in call.views.values() if v.sizes or alone} & set(LOW)
    make = _of_callable if call.composite else _of_operator
    found = ((dtype, make(call, dtype)) for dtype in sorted(dtypes, key=str))
    return [(NOTE.format(str(dtype).removeprefix("torch.")), other) for dtype, other in found if other is not None]


def _of_operator(call, dtype):
    """The call with the numbers among its arguments rounded. A number may come as a tensor
    without dimensions of a wider dtype: that takes no part in the choice of the result's."""
    other = copy.copy(call)
    numbers = Numbers(call.function, dtype)
    other.args, other.kwargs = numbers.of(call.args, call.kwargs)
    other.storages = call.storages.copy()
    if _mixes_numbers(call.function):
        written = set(call.written())
        for path, view in call.views.items():
            if not view.sizes and path not in written and view.argument not in LEFT_ALONE:
                numbers.changed |= _round_stored(other, view, dtype)
    return other if numbers.changed else None


def _of_callable(call, dtype):
    """The same of a callable that does nothing but one operator."""
    if call.only is None or call.steps > 1:
        return None
    function = call.function

    def run(*args, **kwargs):
        with Rounded(dtype):
            return theirs(function, *args, **kwargs)

    other = copy.copy(call)
    other.function = run
    return other


class Numbers:
    """Rounds the numbers among an operator's arguments: every float, and an integer where the
    operator takes any number."""

    def __init__(self, function, dtype):
        declared = function._schema.arguments if hasattr(function, "_schema") else ()
        self.any_number = {a.name for a in declared if re.search("number|Tensor", str(a.type))}
        self.order = [a.name for a in declared]
        self.dtype, self.changed = dtype, False

    def of(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Positional and named arguments with their numbers rounded."""
        return (
            [mapped(a, self._rounder(self.order[i] if i < len(self.order) else "")) for i, a in enumerate(args)],
            {k: mapped(a, self._rounder(k)) for k, a in kwargs.items()},
        )

    def _rounder(self, name):
        kinds = (float, int) if name in self.any_number else (float,)

        def rounded(value):
            if isinstance(value, bool) or not isinstance(value, kinds) or value != value:
                return value
            low = type(value)(_low(value, self.dtype))
            self.changed |= low != value
            return low

        return rounded


def _low(value, dtype):
    """A number rounded to a dtype, or as it is where that would be Inf; without torch, so that
    no mode sees it."""
    if value == 0 or math.isinf(value):
        return float(value)
    limits = torch.finfo(dtype)
    exponent = max(math.frexp(value)[1] - 1, math.frexp(limits.tiny)[1] - 1)
    ulp = math.ldexp(limits.eps, exponent)
    low = round(value / ulp) * ulp
    return low if abs(low) <= limits.max else float(value)


class Rounded(Mode):
    """Runs operators with the numbers among their arguments rounded to a low dtype."""

    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        numbers = Numbers(func, self.dtype)
        args, kwargs = numbers.of(args, kwargs or {})
        if _mixes_numbers(func):
            written = {a.name for a in func._schema.arguments if is_write(a)}
            args = [a if n in written else mapped(a, self._tensor) for n, a in zip(numbers.order, args)]
        return theirs(func, *args, **kwargs)

    def _tensor(self, value):
        number = isinstance(value, torch.Tensor) and not value.dim()
        if not number or value.dtype == torch.bool or value.is_complex():
            return value
        return torch.full_like(value, _low(float(value), self.dtype))


# Other names of operators that compute element by element; torch tags those only that they stand for.
OTHER_NAMES = {
    "arctan2",
    "divide",
    "greater",
    "greater_equal",
    "less",
    "less_equal",
    "multiply",
    "not_equal",
    "rsub",
    "subtract",
    "true_divide",
}


def _mixes_numbers(function):
    """Whether an operator computes element by element, so that a tensor without dimensions
    is a number to it."""
    pointwise = torch.Tag.pointwise in getattr(function, "tags", ())
    name = base_name(getattr(function, "_name", "") or "")[1]
    return pointwise or name.removesuffix("_") in OTHER_NAMES or name.startswith("_foreach_")


def _round_stored(call, view, dtype):
    """Rounds what a view without dimensions holds, in a storage of its own; whether that
    changes it."""
    raw = call.storages[view.storage]
    size = view.dtype.itemsize
    first = view.offset * size
    here = raw[first : first + size].clone().view(view.dtype)
    if view.dtype == torch.bool or view.dtype.is_complex or here.dtype == dtype:
        return False
    low = here.double().to(dtype).to(view.dtype)
    if bool((low == here).all()) or not bool(low.isfinite().all()):
        return False
    changed = raw.clone()
    changed[first : first + size] = low.view(torch.uint8)
    call.storages[view.storage] = changed
    return True


def with_its_casts(call: Call) -> list[tuple[str, Call]]:
    """(note, call) of a callable of wider numbers, or of an extension's operator whose kernel is written in torch's,
    that itself rounds to 16 bits inside, held to these roundings; nothing for every other call."""
    if not (opens(call) or _gives_low(call)):
        return []
    other = copy.copy(call)
    other.keeps_low = True
    return [("rounded to 16 bits inside, as the function does", other)]


def _gives_low(call):
    """Whether a callable rounds to 16 bits inside that is given none: of others `Chain` knows."""
    given = {v.dtype for v in call.views.values()}
    return call.composite and call.low and (call.launched is not None or not given & set(LOW))


# ---- refusals ----------------------------------------------------------------------


def is_rejection(call: Call, problem: BaseException) -> bool:
    """Whether the CPU's complaint is about the call itself: an index out of range, shapes
    that do not fit."""
    if call.composite or base_name(call.op)[0].partition("::")[0] != "aten":
        return False
    kinds = (RuntimeError, IndexError, ValueError, TypeError)
    return isinstance(problem, kinds) and not ABOUT_US.search(str(problem).split("\n\n")[0])
