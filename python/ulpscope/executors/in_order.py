# SPDX-License-Identifier: Apache-2.0
"""Runs of float32 on the very inputs that stand for all honest ones: every rounding inside falls otherwise, and
every sum in each order that kernels use. Only of calls of which each step is known to be one or the other, or to
move elements: what another algorithm of a convolution loses nobody knows here. Serves `judges.answers`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .. import _core
from ..calls.exact import never_rounds
from ..calls.foreign import foreign
from ..calls.lineage import Lineage
from .algorithms import DRIFT, MOST_ADDED, MOST_PRODUCTS, MOST_TERMS, PRODUCTS
from .noise import InSteps
from .orders import tensors
from .precision import sound

if TYPE_CHECKING:
    from collections.abc import Iterator
    from .reference_runs import Reference

ADDED = {"sum", "mean", "var"}


class _Watched(InSteps):
    """Notes whether the roundings and the sums of every step are known."""

    def __init__(self, apart):
        super().__init__(apart)
        self.unknown = Lineage()  # names of steps that are not

    def _run(self, func, args, kwargs):
        served, out = self._by_formula(func, args, kwargs)
        if served:
            return out
        out = sound(func)(*args, **kwargs)
        self.unknown.note(func, args, kwargs, out, () if _is_known(func, args, kwargs) else (func.name(),))
        return out


def _is_alone(func):
    """Whether an operator computes each element by itself."""
    space, name = func._schema.name.split("::")
    if space == "prims" and (of := getattr(torch.ops.aten, name, None)) is not None:  # whose own have no tags
        func = getattr(of, of.overloads()[0])
    return torch.Tag.pointwise in func.tags


def _is_known(func, args, kwargs):
    """Whether an operator rounds each element by itself, or not at all, or adds in an order that can be chosen."""
    name, given = func._schema.name.split("::")[1], tensors(args, kwargs)
    if (
        _is_alone(func)
        or never_rounds(func.name())
        or not given
        or any(r.alias_info is not None for r in func._schema.returns)
    ):
        return True
    if any(t.dtype != torch.float32 for t in given):
        return False
    if name in ADDED:
        return given[0].numel() <= MOST_ADDED
    if name not in PRODUCTS:
        return False
    a, b = given[-2:]
    return a.shape[-1] <= MOST_TERMS and a.numel() * b.shape[-1] <= MOST_PRODUCTS


def all_known(reference: Reference, path: str) -> bool:
    """Whether that holds of all that an output is made of."""
    mode = _Watched(reference.same_apart())
    try:
        outputs = reference.in_float32(mode)
    except Exception as problem:  # whatever an operator raises there
        foreign(problem)
        return False
    return path in outputs and not mode.unknown.of(outputs[path])


def runs_in_order(reference: Reference, path: str) -> Iterator[tuple]:
    """(one output of float32, what kind of run it is: `usc_rerun` in case.h); nothing where not all is known."""
    if not all_known(reference, path):
        return
    yield from ((run, _core.run_otherwise) for run, _ in reference.noises(path))
    yield from ((run, _core.run_otherwise) for run in reference.orders(path))
    if (run := reference._added(path, DRIFT)) is not None:
        yield run, _core.run_cut
