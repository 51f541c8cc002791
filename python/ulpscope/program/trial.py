# SPDX-License-Identifier: Apache-2.0
"""One trial of `ulpscope bisect` (cli/bisect/bisect_trial.c), inside the program that it runs.

Started by the bootstrap's sitecustomize once torch is imported. Seeds and deterministic
algorithms are set as the trial's folder says, operators are computed another way as
ULPSCOPE_REROUTE says, and at the end file `operators` tells which were, and how often.

Needs of torch: seeds, deterministic algorithms, and what program/reroute needs."""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import sys
from pathlib import Path
from typing import Any

from ..calls.foreign import unhurt


def start(folder: str) -> None:
    """Sets the trial up, in every process of the command."""
    from . import hooks, reroute

    place = Path(folder)
    seed, deterministic = map(int, (place / "settings").read_text().split())
    _set_up(seed, deterministic)
    trial = Trial(place, reroute.from_environment())
    atexit.register(trial.end)
    hooks.before_os_exit(trial.end, lambda: bool(trial.modes))


def _set_up(seed: int, deterministic: int) -> None:
    import torch

    if seed >= 0:
        random.seed(seed)
        torch.manual_seed(seed)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(seed % 2**32)
    if deterministic:
        torch.use_deterministic_algorithms(True, warn_only=True)


class Trial:
    """The modes of this process, outermost first."""

    def __init__(self, folder: Path, modes: list[Any]) -> None:
        self.folder, self.modes = folder, modes
        self.owner = os.getpid()

    def end(self) -> None:
        """Writes down which operators were computed another way. Nothing that goes wrong
        here is the program's matter."""
        if os.getpid() != self.owner:
            return
        modes, self.modes = self.modes, []
        counts: dict[str, int] = {}
        for mode in modes:
            for op, n in mode.n_calls.items():
                counts[op] = counts.get(op, 0) + n
        for mode in reversed(modes):
            with unhurt():
                mode.__exit__(SystemExit, None, None)
        failed = [mode.error for mode in modes if mode.error is not None]
        if failed:
            self._put("failed", failed[0])
        if counts:
            self._put("operators", "".join(f"{op} {n}\n" for op, n in sorted(counts.items())))

    def _put(self, name: str, text: str) -> None:
        part = self.folder / f"{name}-{os.getpid()}"
        with contextlib.suppress(OSError):
            part.write_text(text)
            os.replace(part, self.folder / name)
