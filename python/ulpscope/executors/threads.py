# SPDX-License-Identifier: Apache-2.0
"""How many threads a worker of a check computes with. A small call has nothing to share out:
a second thread that waits for work costs it far more than it brings, above all where other
programs have the cores. Needs no torch until a call is worked on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

SMALL = 1 << 20  # elements of all tensors of a call, below which one thread does it


def elements_of(row: dict[str, Any]) -> int:
    """Elements of all tensors that a row of a call names."""
    return sum(math.prod(tensor["sizes"]) for tensor in row["tensors"])


def is_small(given: Iterable[Sequence[int]], gave: Iterable[Sequence[int]]) -> bool:
    """Whether tensors of these sizes, given and got, are worth one thread alone. The CPU's float32 hangs on how many
    there are: whoever makes a reference of a call asks this, so that all have the same."""
    return sum(math.prod(sizes) for sizes in (*given, *gave)) < SMALL


class Threads:
    """Sets the threads of this process call by call; torch is told only when they change."""

    def __init__(self, most: int) -> None:
        self.most, self.now = most, None

    def suit(self, row: dict[str, Any] | None) -> None:
        """As many as a call of that row is worth; all of them where there is no row."""
        wanted = 1 if row is not None and elements_of(row) < SMALL else self.most
        if wanted != self.now:
            import torch

            torch.set_num_threads(wanted)
            self.now = wanted
