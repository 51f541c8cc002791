# SPDX-License-Identifier: Apache-2.0
"""Runs of ours that are nonsense. What rounds otherwise, or adds in another order, is made of formulas of ours and of
torch; one that computes another function is no measure of what arithmetic loses. It is told by its values: most of
them lie where no rounding takes them. Such a run judges nobody, and is a mistake of ours. Serves `answers`."""

from __future__ import annotations

import os

import torch

from .. import _core
from ..calls.foreign import STRICT, InternalError
from ..executors.operands import Operands

RUNS = 4  # moved inputs that tell how the result reacts
MOVED = 2.0**-20  # by so much
FAR = 2.0**-4  # of an element and of what elements are
MOST = 0.75  # of the elements
BEYOND = {2.0**-24: 2.0**10, 2.0**-8: 2.0**3}  # a rounding of the run's arithmetic: as many of them, taken together


def is_stray(operands: Operands, path: str, run: torch.Tensor, rounding: float) -> bool:
    """Whether a run of one output, with such roundings inside, is nonsense."""
    truth = operands.reference.truth[path]
    if not truth.is_floating_point() or run.shape != truth.shape or not _core.trust("far", run, truth):
        return False
    loses = (operands.reference.yardstick[path] - truth).abs()
    slope = torch.zeros_like(truth)
    for k in range(RUNS):
        wide, narrow = (of.get(path) for of in operands.replay_of(path, k))
        if wide is None or wide.shape != truth.shape:
            return False
        loses, slope = torch.maximum(loses, (narrow - wide).abs()), torch.maximum(slope, (wide - truth).abs())
    if operands.reference.jumps.get(path):  # a step inside: another side of it is another number
        return False
    live = truth.isfinite() & run.isfinite()
    typical = truth[live].square().mean().sqrt()
    most = torch.maximum(loses, slope * (rounding / MOVED)) * BEYOND[rounding]
    share = FAR * (truth.abs() + typical)
    if _is_most(loses > FAR * truth.abs(), live):  # float32 knows nothing: its steps may leave what they like
        return False
    return _is_most((run - truth).abs() > torch.maximum(most, share), live)


def _is_most(marks: torch.Tensor, live: torch.Tensor) -> bool:
    return float(marks[live].double().mean()) > MOST


def tell(operands: Operands, path: str, want: str) -> None:
    """Tells of such a run: raised under tests, and else a mistake beside the verdict."""
    op = operands.call.op
    words = f"internal error of ulpscope, please report it: its runs {want!r} of {op} are nonsense at {path}"
    if os.environ.get(STRICT):
        raise InternalError(words)
    operands.internal = operands.internal or words
