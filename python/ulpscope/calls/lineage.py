# SPDX-License-Identifier: Apache-2.0
"""Of what the storages of a run were made: marks that its operators leave go on to whatever is computed from their
results, so that each of several outputs is held to the operators in front of it. Serves `callable` and
`executors.in_order`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from .nested import tensors_in
from .replay import is_write
from .torch_private import OpOverload

TORCHS = ("aten", "prims")


def _begin(tensor: torch.Tensor) -> int:
    """Where its storage begins; 0 where it has none."""
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):
        return 0


class Lineage:
    """Marks by storage."""

    def __init__(self) -> None:
        self.all: set[str] = set()
        self._marks: dict[int, frozenset[str]] = {}
        self._lost = False  # a number left the tensors, and may be in anything

    def note(
        self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], out: object, marks: Iterable[str] = ()
    ) -> None:
        """An operator ran, and leaves these marks on what it gives and writes."""
        given = [t for value in (*args, *kwargs.values()) for t in tensors_in(value)]
        made = list(tensors_in(out))
        every = frozenset(marks).union(*(self._marks.get(_begin(t), ()) for t in given))
        self.all |= every
        self._lost |= isinstance(out, (bool, int, float, complex))
        for tensor in (*made, *_written(func, args, kwargs, given)):
            place = _begin(tensor)
            self._marks[place] = every if place else every.union(self._marks.get(0, ()))

    def of(self, tensor: torch.Tensor) -> frozenset[str]:
        """The marks on a tensor; all there are where nobody knows."""
        known = None if self._lost else self._marks.get(_begin(tensor))
        return frozenset(self.all) if known is None else known


def _written(
    func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], given: list[torch.Tensor]
) -> list[torch.Tensor]:
    """Tensors among the arguments that it writes, or may write unsaid."""
    if func.namespace not in TORCHS:
        return given
    found: list[torch.Tensor] = []
    for i, a in enumerate(func._schema.arguments):
        if is_write(a) or a.name.startswith("running_"):
            found += tensors_in(args[i] if i < len(args) else kwargs.get(a.name))
    return found
