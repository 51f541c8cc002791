# SPDX-License-Identifier: Apache-2.0
"""Runs of a call whose masks are noted or given: in a dispatch mode, since torch draws them inside of operators that it
takes apart. Serves `masks`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...calls.foreign import foreign
from ...calls.mode import Mode
from ...calls.replay import Call, base_name
from ...calls.torch_private import OpOverload, overload_name
from ...executors.reference_runs import Reference

ANOTHER_NUMBER = "another number of masks"
UNIFORM = {"rand", "rand_like", "uniform_", "_to_copy"}
COMPARED = {"gt": True, "ge": True, "lt": False, "le": False}  # name -> high numbers are True


class GivenMasks(Mode):
    """Notes the zeros and ones that are drawn in a run, or puts others in their place."""

    def __init__(self, masks: Sequence[torch.Tensor] | None = None) -> None:
        super().__init__()
        self.masks, self.at = masks, 0
        self.drawn: list[tuple[torch.Tensor, Any]] = []  # (mask, chance of a one)
        self.even: list[torch.Tensor] = []
        self.other = False

    def __enter__(self) -> GivenMasks:
        self.at = 0
        super().__enter__()
        return self

    def __torch_dispatch__(self, func: OpOverload, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = base_name(func.name())[1]
        if name in COMPARED and self._is_even(args[0]):
            chance = 1 - args[1] if COMPARED[name] else args[1]
            return self._next(func(*args, **kwargs), chance)
        if name in ("bernoulli", "bernoulli_"):
            p = kwargs.get("p", args[1] if len(args) > 1 else 0.5)  # torch leaves out a default
            chance = args[0].detach().double().clone() if overload_name(func) == "default" else p
            return self._next(func(*args, **kwargs), chance)
        if name == "native_dropout" and args[2] is not False and args[1] > 0:
            return self._dropout(*args[:2])
        out = func(*args, **kwargs)
        if name in UNIFORM and (name != "_to_copy" or self._is_even(args[0])):
            self.even.append(out)
        elif torch.Tag.nondeterministic_seeded in func.tags and name != "native_dropout":
            self.other = True
        return out

    def _is_even(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor holds even draws as they came."""
        return any(t.data_ptr() == tensor.data_ptr() and t.shape == tensor.shape for t in self.even)

    def _next(self, drawn: torch.Tensor, chance: Any) -> torch.Tensor:
        if self.masks is None:
            self.drawn.append((drawn.detach().double(), chance))
            return drawn
        if self.at >= len(self.masks):
            raise LookupError(ANOTHER_NUMBER)
        given = self.masks[self.at]
        self.at += 1
        return drawn.copy_(given)

    def _dropout(self, x: torch.Tensor, p: float) -> tuple[torch.Tensor, torch.Tensor]:
        mask = self._next(torch.empty_like(x).bernoulli_(1 - p), 1 - p)
        return x * mask * (1 / (1 - p) if p < 1 else 0.0), mask != 0


class GivenReference(Reference):
    """A call's reference with its masks given."""

    def __init__(self, call: Call, masks: Sequence[torch.Tensor]) -> None:
        super().__init__(call)
        self.given = GivenMasks(masks)

    def _run_plain(self, *args: Any, **kwargs: Any) -> dict[str, torch.Tensor]:
        state = torch.random.get_rng_state()  # what the masks replace was drawn
        try:
            with self.given:
                out = super()._run_plain(*args, **kwargs)
        finally:
            torch.random.set_rng_state(state)
        if self.given.at != len(self.given.masks or ()):
            raise LookupError(ANOTHER_NUMBER)
        return out

    def native(self) -> dict[str, torch.Tensor] | None:
        if self._native is None:
            try:
                self._native = (self._run_plain(lambda dtype: dtype, None, self.call.function),)
            except Exception as problem:  # the CPU refuses: there is no native answer
                foreign(problem)
                self._native = (None,)
        return self._native[0]
