# SPDX-License-Identifier: Apache-2.0
"""A watch of a program that knows nothing of it (`ulpscope run --watch`): model and optimizer are found
where an optimizer steps first.

Needs of torch: hooks of all optimizers' steps."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ..calls.foreign import unhurt
from . import watch, watch_left
from ..program.nan import nan_tracker
from .watch_events import QUIET
from .watch_settings import OUTPUT, asd_config, configured

if TYPE_CHECKING:
    from .watch_events import Event


def model_of(optimizer: torch.optim.Optimizer) -> torch.nn.Module | None:
    """The outermost module that holds most of an optimizer's parameters; None: there is none."""
    wanted = {id(p) for group in optimizer.param_groups for p in group["params"]}
    best, most = None, (0, 0)
    for module in [o for o in gc.get_objects() if issubclass(type(o), torch.nn.Module)]:
        with unhurt():
            held = sum(id(p) in wanted for p in module.parameters())
            size = (held, sum(1 for _ in module.modules()))
            if held and size > most:
                best, most = module, size
    return best


class FoundWatches:
    """The mode: a context manager; each optimizer of the process has a watch of its own."""

    def __init__(self, config: str | None, log: str | None, scalars: Any = None) -> None:
        self.config, self.log, self.scalars = config, log, scalars
        self.error: str | None = None
        self.watches: dict[int, watch.Watch] = {}
        self.hook: Any = None
        self.tracker: nan_tracker | None = None

    def __enter__(self) -> FoundWatches:
        """The last calls are kept from here on: where an optimizer steps no hook may be added to all."""
        keep_calls = configured(asd_config() or "" if self.config is None else self.config)["keep_calls"]
        if keep_calls:
            self.tracker = nan_tracker(keep_calls=keep_calls, output=OUTPUT)
            self.tracker.__enter__()
        self.hook = register_optimizer_step_pre_hook(self._meet)
        return self

    def __exit__(self, *raised: Any) -> Literal[False]:
        self._meet_no_more()
        for one in self.watches.values():
            one.close()
            self.error = self.error or one.error
        if self.tracker is not None:
            self.tracker.__exit__(*raised)
        self.tracker = None
        return False

    def abandon(self) -> None:
        """This process was forked: nothing more is met, nor kept."""
        self._meet_no_more()
        if self.tracker is not None:
            self.tracker.abandon()
        self.tracker = None

    def _meet_no_more(self) -> None:
        if self.hook is not None:
            self.hook.remove()
        self.hook = None

    def _meet(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if id(optimizer) in self.watches or self.error is not None:
            return
        with unhurt(self._cannot) as beginning:
            log = self.log if not self.watches or self.log is None else f"{self.log}-{len(self.watches) + 1}"
            first = None if self.watches else self.scalars
            made = watch.watch(model_of(optimizer), optimizer, self.config, log=log, keep_calls=0, scalars=first)
            made.tracker = self.tracker
            self.watches[id(optimizer)] = made
        if not beginning.failed:
            made.first_step(optimizer)  # which may raise what the watch was asked to raise

    def _cannot(self, error: BaseException) -> None:
        self.error = f"the watch cannot begin: {error}"
        print(f"ulpscope: {self.error}; the program goes on", file=sys.stderr)

    @property
    def n_steps(self) -> int:
        """Steps that were watched."""
        return sum(one.step for one in self.watches.values())

    @property
    def n_watched(self) -> int:
        """Of those, the steps at which something was looked at."""
        return sum(one.step for one in self.watches.values() if not watch_left.off(one))

    def not_watched(self) -> str:
        """What the first of the watches does not look at, a line; of several ranks the first tells."""
        return next((one.not_watched for one in self.watches.values() if one.rank == 0), "")

    def written(self) -> str:
        """The file of the first watch, as it was asked for; "" where there is none."""
        return self.log if self.log and any(one.wrote for one in self.watches.values()) else ""

    def alarms(self) -> list[Event]:
        """The events so far but those that are told to a log alone; of several ranks the first tells
        what all know alike; what one of them alone has found it tells itself."""
        return [
            e
            for one in self.watches.values()
            for e in one.events()
            if e.kind not in QUIET and (one.tells() or one.is_own(e))
        ]

    def unseen(self, alarms: list[Event]) -> list[Event]:
        """Of these what did not stand on stderr as it came: a program that sets up logging puts it elsewhere."""
        shown = [e for one in self.watches.values() for e in one.shown]
        return [e for e in alarms if not any(e is other for other in shown)]
