# SPDX-License-Identifier: Apache-2.0
"""What one run of a text draws, and the tensors that it begins with; kinds of their values. Serves `programs`.
Needs torch for tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

import torch

from .. import _core
from ..session import stress
from .generators import Draws, drawing
from .steps import MadeCalls

SIMPLE = {
    "zeros": torch.zeros_like,
    "ones": torch.ones_like,
    "whole": lambda x: x.round().clamp(-8, 8),
}  # values of floats
FINE = 1 << 24  # values that a uniform draw has

KINDS = (
    "normal",
    "normal",
    "normal",
    "wide-exponents",
    "cancellation",
    "zeros",
    "subnormals",
    "ties",
    "outliers",
    "near-overflow",
    "one-hot",
    "sorted",
)
LAYOUTS = (None, None, None, *stress.LAYOUTS, "channels_last")
# What `values` may name besides; of whole numbers and truths the dtype says it.
RARE = ("common-offset", "all-zeros", "nan", "inf", "mask", "positive-definite")


class Tape(Draws):
    """One run: its draws; the tensors that it began with and those that came up; what it called."""

    def __init__(self, seed, case, leaves=None, run=0, choices=None):
        super().__init__(seed, case, choices)
        self.run = run  # torch draws other numbers in each
        self.leaves, self.made, self.i_leaf, self.seen = leaves, [], 0, []
        self.place = leaves[0].device if leaves else torch.device("cpu")
        self.steps, self.refused = MadeCalls(self.made), None  # the last: what torch raised
        self.inside = False  # within what the text called
        self.elsewhere = None  # the steps so far on the other side, where that is asked for
        self.bodily = False  # the text asks where it runs, or runs under a mode that steps do not have

    def leaf(self, make: Callable[[int], torch.Tensor], said: str = "") -> torch.Tensor:
        """The next tensor that the run begins with; `make(i)` makes it where none is given. `said`: how, in words."""
        i, self.i_leaf = self.i_leaf, self.i_leaf + 1
        if f"x{i}" in self.choices:
            simple, whole, said = SIMPLE[self.choices[f"x{i}"]], make, f"values={self.choices[f'x{i}']!r}"
            make = lambda i: simple(whole(i).detach()).requires_grad_(whole(i).requires_grad)  # noqa: E731
        if self.leaves is not None and i < len(self.leaves):
            return self.leaves[i]
        made = make(i)
        self.made.append(make(i))  # as it was: the text may write the other one
        self.steps.leaf(made, said)
        return made if self.place.type == "cpu" else made.detach().to(self.place).requires_grad_(made.requires_grad)

    def on_side(self, tensor: torch.Tensor, other: bool) -> Any:
        """A tensor of the text as the side in work has it, or as the other one does."""
        if not other or self.elsewhere is None:
            return tensor
        self.elsewhere.go_on()
        return self.elsewhere.tensor(self.steps.number(tensor))


def tape() -> Tape:
    """That of the run in work."""
    found = drawing.get()
    if not isinstance(found, Tape):
        raise RuntimeError("tensors are drawn inside a function under @ulpscope.fuzz alone")
    return found


def check_known(what: str, name: Any, names: Collection[Any]) -> None:
    """AttributeError where a name is none of those that are known."""
    if name is not None and name not in names:
        raise AttributeError(f"{what}={name!r} is none of {', '.join(sorted(n for n in names if n))}")


def _filled(now, i, sizes, word, kind, domain):
    strides = torch.empty(sizes, device="meta").stride()
    raw = _core.fuzz_fill(now.seed, now.case, i, (word, sizes, strides, 0, i, math.prod(sizes), False), kind, domain)
    return torch.frombuffer(raw, dtype=getattr(torch, word)) if raw else torch.empty(0, dtype=getattr(torch, word))


def drawn(now: Tape, i: int, sizes: tuple[int, ...], dtype: torch.dtype, kind: str) -> torch.Tensor:
    """Values of a kind, of the tensor with that number."""
    if dtype.is_complex:
        word = "float64" if dtype == torch.complex128 else "float32"
        return torch.view_as_complex(_filled(now, i, (*sizes, 2), word, kind, (False, False, 0, 0)).reshape(*sizes, 2))
    if not dtype.is_floating_point:
        kind = "mask" if dtype == torch.bool else "index"
    low = 0 if dtype == torch.uint8 else -8
    word = str(dtype).removeprefix("torch.")
    return _filled(now, i, sizes, word, kind, (False, False, low, 8)).reshape(sizes)


def even_values(now: Tape, i: int, sizes: tuple[int, ...], dtype: torch.dtype, low: Any, high: Any) -> torch.Tensor:
    """Even values of [low, high), whole ones of an integer dtype."""
    parts = _filled(now, i, sizes, "int64", "index", (False, False, 0, FINE - 1)).reshape(sizes).double() / FINE
    spread = low + parts * (high - low)
    return spread.to(dtype) if dtype.is_floating_point or dtype.is_complex else spread.floor().to(dtype)


def laid_out(made: torch.Tensor, layout: str | None) -> torch.Tensor:
    """The tensor with its numbers in that layout; as it is where that has none of its form."""
    if layout == "channels_last":
        return made.contiguous(memory_format=torch.channels_last) if made.ndim == 4 else made
    laid = stress.LAYOUTS[layout](made) if layout else None
    return made if laid is None else laid
