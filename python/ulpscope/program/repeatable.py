# SPDX-License-Identifier: Apache-2.0
"""Runs that give the same bits again, and on another device: seeds, and the settings of torch
and of the libraries that communicate.

Needs of torch: its switches for deterministic algorithms, and the operators' tags."""

from __future__ import annotations

import contextlib
import os
import random
import sys
from typing import TYPE_CHECKING

import torch

from ..calls.shown import Shown, counted
from . import reroute as _reroute

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType
    from typing import Literal

    from typing_extensions import Self

# variable -> value, and what reads it when it starts
VARIABLES = {
    "CUBLAS_WORKSPACE_CONFIG": (":4096:8", "the device"),
    "HCCL_DETERMINISTIC": ("true", "the process group"),
    "LCCL_DETERMINISTIC": ("1", "the process group"),
    "NCCL_ALGO": ("Ring", "the process group"),
    "NCCL_PROTO": ("Simple", "the process group"),
}


class _Draws(_reroute.Rerouted):
    """Counts calls of operators that draw random numbers."""

    def __init__(self) -> None:
        super().__init__("count", "*", None, None, None, None, "manual", draws=True)
        self.NOUN = "deterministic()"


class deterministic(Shown, contextlib.ContextDecorator):  # noqa: N801 - it is used like a function
    """
    Has torch and the communication libraries compute the same bits at every run.

        with ulpscope.deterministic() as same:
            train()
        print(same.random, same.problems)

    Sets torch.use_deterministic_algorithms, cudnn's deterministic and benchmark flags, and the
    variables CUBLAS_WORKSPACE_CONFIG, HCCL_DETERMINISTIC, LCCL_DETERMINISTIC, NCCL_ALGO and
    NCCL_PROTO where they are not set; takes all of it back at the end. An operator that has no
    deterministic algorithm warns (`strict=True`: raises), as torch does.

    `.problems`: sentences, said on stderr too: a variable whose reader had started already,
    a setting that somebody changed in the block. `.random`: {operator: calls} of those that drew
    random numbers in the block: their results repeat only with their seed (`seed_all`).
    """

    def __init__(self, strict: bool = False) -> None:
        self.strict = strict
        self.problems: list[str] = []
        self.draws = _Draws()

    def _shown(self) -> str:
        drew = counted(sum(self.random.values()), "call") + " drew random numbers"
        return "; ".join([f"deterministic: {drew}", *self.problems])

    def _titles_and_rows(self) -> tuple[tuple[str, ...], Iterable[tuple[object, ...]]]:
        return ("operator that drew", "calls"), self.random.items()

    @property
    def random(self) -> dict[str, int]:
        """Operators that drew random numbers, and how often."""
        return self.draws.n_calls

    def __enter__(self) -> Self:
        cudnn = torch.backends.cudnn
        self.before = (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
            cudnn.deterministic,
            cudnn.benchmark,
        )
        self.variables = {name: os.environ.get(name) for name in VARIABLES}
        self.problems = []
        for name, (value, reader) in VARIABLES.items():
            if self.variables[name] is None:
                os.environ[name] = value
                if _has_started(name, reader):
                    self._say(
                        f"{name} is set too late: {reader} has started; set it to {value} before the program begins"
                    )
        torch.use_deterministic_algorithms(True, warn_only=not self.strict)
        cudnn.deterministic, cudnn.benchmark = True, False
        self.draws.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        self.draws.__exit__(kind, value, trace)
        self._verify()
        cudnn = torch.backends.cudnn
        torch.use_deterministic_algorithms(self.before[0], warn_only=self.before[1])
        cudnn.deterministic, cudnn.benchmark = self.before[2:]
        for name, text in self.variables.items():
            if text is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = text
        return False

    def _verify(self) -> None:
        cudnn = torch.backends.cudnn
        now = {
            "torch.use_deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
            "torch.backends.cudnn.deterministic": cudnn.deterministic,
            "torch.backends.cudnn.benchmark": not cudnn.benchmark,
        }
        for name, holds in now.items():
            if not holds:
                self._say(f"{name} was changed while the block ran: it may not repeat")
        for name, (value, _) in VARIABLES.items():
            wanted = self.variables[name] or value
            if os.environ.get(name) != wanted:
                self._say(f"{name} was changed while the block ran: it may not repeat")

    def _say(self, sentence: str) -> None:
        self.problems.append(sentence)
        with contextlib.suppress(OSError, ValueError):
            print(f"ulpscope: deterministic(): {sentence}", file=sys.stderr)


def _has_started(name: str, reader: str) -> bool:
    """Whether what reads a variable is there to read it, and has done so."""
    if reader == "the device":
        return bool(torch.cuda.is_available() and torch.cuda.is_initialized())
    dist = torch.distributed
    if not (dist.is_available() and dist.is_initialized()):
        return False
    wanted = {"HCCL": "hccl", "LCCL": "lccl", "NCCL": "nccl"}[name.split("_")[0]]
    return wanted in str(dist.get_backend())


class seed_all(_reroute.Rerouted):  # noqa: N801 - it is used like a function
    """
    Seeds every source of random numbers: `random`, numpy where it is loaded, torch on each device.

        ulpscope.seed_all(0)

    With `cpu_random` (the default) random numbers of operators on a device are drawn by the CPU from here on, so
    that two devices get the same ones, and the CPU itself: drawing operators (rand, bernoulli_,
    dropout) are computed there, the others stay. Attention that drops out inside its kernel
    moves only where the CPU has that kernel; where not it is said on stderr. `.remove()`, or the end of a `with`
    block, gives devices their own random numbers back. `.n_calls`: {operator: calls}.

    Raises ValueError for a seed that is no whole number from 0.
    """

    def __init__(self, seed: int = 0, cpu_random: bool = True) -> None:
        if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
            raise ValueError(f"seed {seed!r}: a whole number from 0")
        super().__init__("fallback", "*", None, None, None, None, "manual", draws=True)
        self.NOUN = "seed_all()"
        self.seed, self.cpu_random = seed, cpu_random
        self.entered = False
        self._sow()
        if cpu_random:
            self.__enter__()

    def _sow(self) -> None:
        random.seed(self.seed)
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(self.seed % 2**32)
        torch.manual_seed(self.seed % 2**64)

    def remove(self) -> None:
        """Devices draw their own random numbers again."""
        self.__exit__(None, None, None)

    def __enter__(self) -> Self:
        if self.cpu_random and not self.entered:
            self.entered = True
            super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        if self.entered:
            self.entered = False
            super().__exit__(kind, value, trace)
        return False
