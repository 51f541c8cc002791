# SPDX-License-Identifier: Apache-2.0
"""What the outputs of one call are judged against later, from files: a case in C asks for all that
it may ask of any output and keeps what it comes to (usc_case_kept). Serves `session.pack`.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import _core
from ..calls.foreign import foreign
from ..calls.freedom import freedom_of
from ..calls.replay import Call, draws_random, promises_nothing
from ..executors.device import learn_writes
from ..executors.operands import Operands, Timing
from ..executors.moved_runs import FAR_REPLAYS
from ..executors.reference_runs import Reference
from ..executors.streams import one_thread
from ..executors.threads import is_small
from .answers import Way, answer_all, captured_dtype
from .carried import carried
from .own_steps import steps_anywhere
from .refused import without_reference
from .readings import Readings, held_to

if TYPE_CHECKING:
    import torch

RANDOM = "draws random numbers, which takes a device that can be asked again"


class Shared(Reference):
    """A reference that computes what float32 loses far away once for all outputs."""

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self._far: dict[tuple[int, int], tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]] = {}

    def _pair(self, k: int, delta: float = 0.0) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        if k < FAR_REPLAYS:
            return super()._pair(k, delta)
        key = k, id(self.call)  # of a call over lists each place has a reference and a call
        if key not in self._far:
            self._far[key] = super()._pair(k, delta)
        return self._far[key]


def shared_operands(call: Call, timing: Timing) -> Operands:
    operands = Operands(call, timing)
    operands.reference = Shared(call)
    return operands


def form_of(operands: Operands, path: str) -> torch.Tensor:
    """An output of the form that a right one has: the truth in the dtype that was captured, or
    that the CPU gives."""
    reference = operands.reference
    native = (reference.native() or {}).get(path, reference.yardstick[path])
    due: torch.Tensor = reference.truth[path].to(captured_dtype(operands.call, path) or native.dtype)
    return due


def _draws(operands: Operands, readings: Readings) -> bool:
    """Whether it draws random numbers, and not only what nobody writes differs."""
    if not operands.reference.is_random():
        return False
    written = readings.unwritten()
    return written is None or written[1].reference.is_random()


@dataclass
class Kept:
    """What the outputs of a call are judged against."""

    case: _core.Case = field(default_factory=lambda: _core.Case(_core.Findings()))  # that has kept it
    without: tuple[str, str] | None = None  # (verdict, reason) where they cannot be judged
    freedom: dict[str, Any] = field(default_factory=dict)  # what they leave free together
    undefined: tuple[str, ...] = ()  # paths of those that are promised nothing


def outputs_of_call(call: Call) -> Kept:
    """What is kept of the outputs of a call, with as many threads as a check has for it."""
    gave = [*call.results.values(), *(call.views[path] for path in call.written())]
    small = is_small((v.sizes for v in call.views.values()), (v.sizes for v in gave))
    with one_thread() if small else contextlib.nullcontext():
        return _outputs(call)


def _outputs(call: Call) -> Kept:
    kept = Kept()
    case = kept.case
    if draws_random(call):
        return Kept(without=("unjudged", RANDOM))
    learn_writes(call)
    timing = Timing()
    readings = Readings(call, timing, shared_operands, steps_anywhere(call))
    try:
        operands = held_to(shared_operands(call, timing), shared_operands)
        if not promises_nothing(call) and _draws(operands, readings):
            return Kept(without=("unjudged", RANDOM))
        way, carries = Way(case, readings=readings), carried(operands, operands.reference.truth.keys())
        for path in operands.reference.truth:
            answer_all(way, operands, path, form_of(operands, path), keep=True, carries=carries)
    except Exception as problem:  # whatever an operator raises
        foreign(problem)
        return Kept(without=without_reference(call, problem))
    kept.freedom, kept.undefined = freedom_of(operands.call), tuple(operands.reference.undefined)
    return kept
