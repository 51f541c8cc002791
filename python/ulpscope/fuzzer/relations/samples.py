# SPDX-License-Identifier: Apache-2.0
"""Samples that know nothing of each other: `executors.cuts` has along which dimension."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ...executors.cuts import cut_of
from ...judges.in_rows import fits, varied
from ...judges.rows import put, tensor_of
from .variant import Variant

if TYPE_CHECKING:
    from ...calls.replay import Call
    from ...executors.device import Answer


def _cut(call, answer):
    """The cut of a call of two samples or more; None."""
    if not fits(call) or call.is_complex:
        return None
    cut = cut_of(call, {p: tuple(t.shape) for p, t in answer.outputs.items()})
    return cut if cut is not None and cut.length > 1 and cut.arguments else None


def _taken(call, cut, places):
    """The call on some of its samples."""
    many = len(places)
    made = varied(call, args=[many if i in cut.counts else a for i, a in enumerate(call.args)])
    for path, dim in cut.arguments.items():
        put(made, path, tensor_of(call, path).index_select(dim, places))
    return made


def permuted(call: Call, answer: Answer, number: int) -> Variant | None:
    cut = _cut(call, answer)
    if cut is None:
        return None
    order = torch.arange(cut.length).roll(1 + number % (cut.length - 1))
    order = order.flip(0) if number // 2 % 2 else order
    back = order.argsort()
    return Variant(
        [_taken(call, cut, order)],
        lambda outputs: {p: t.index_select(cut.outputs[p], back) for p, t in outputs[0].items()},
    )


def split(call: Call, answer: Answer, number: int) -> Variant | None:
    cut = _cut(call, answer)
    if cut is None:
        return None
    at = 1 + number % (cut.length - 1)
    parts = torch.arange(cut.length).split([at, cut.length - at])
    return Variant(
        [_taken(call, cut, part) for part in parts],
        lambda outputs: {p: torch.cat([o[p] for o in outputs], cut.outputs[p]) for p in outputs[0]},
    )
