# SPDX-License-Identifier: Apache-2.0
"""What the calls before left: a kernel that writes nothing, or reads a buffer that is in use, gives the
output of one of them again. Kept while there is room. Neighbours: `bench`, `live` (keep), `causes` (asks)."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..executors.device import Answer
    import torch

CALLS = 8
MOST_BYTES = 1 << 24
LEAST_VALUES = 4  # different ones, that are not equal by chance
UNSIFTED = 8 * CALLS  # calls that are kept as they come, of which few are ever looked at


class Earlier:
    """Outputs of the last calls, of floats alone."""

    def __init__(self) -> None:
        self.kept: collections.deque[tuple[int, list[torch.Tensor]]] = collections.deque()
        self.size = 0

    def keep(self, number: int, answer: Answer) -> None:
        """Takes in what a call gave; what is older makes room. Which of them tell is seen when somebody asks."""
        held = [t for t in answer.outputs.values() if t is not None and t.is_floating_point()]
        if not held:
            return
        self.kept.append((number, held))
        self.size += sum(t.nbytes for t in held)
        if self.size > 2 * MOST_BYTES or len(self.kept) > UNSIFTED:
            self._sift()

    def _sift(self) -> None:
        """Leaves the last calls that tell, as far as there is room for them."""
        sifted: collections.deque[tuple[int, list[torch.Tensor]]] = collections.deque()
        self.size = 0
        while self.kept and len(sifted) < CALLS:
            number, held = self.kept.pop()
            held = [t for t in held if _tells(t)]
            size = sum(t.nbytes for t in held)
            if not held or size > MOST_BYTES:
                continue
            if self.size + size > MOST_BYTES:
                break
            sifted.appendleft((number, held))
            self.size += size
        self.kept = sifted

    def beside(self, answer: Answer) -> None:
        """Names what an answer may hold by mistake: of the same shapes and dtypes, the latest first."""
        self._sift()
        kinds = {(t.shape, t.dtype) for t in answer.outputs.values() if t is not None}
        found = [(n, t) for n, held in reversed(self.kept) for t in held if (t.shape, t.dtype) in kinds]
        answer.earlier = {f"the output of call {n}": t for n, t in reversed(found)}


def _tells(tensor: torch.Tensor) -> bool:
    return bool(tensor.reshape(-1)[: 1 << 12].unique().numel() >= LEAST_VALUES)
