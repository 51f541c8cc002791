# SPDX-License-Identifier: Apache-2.0
"""What was read of each step is sent to the other ranks and decided by the detectors in C; their events are taken and
told. A part of `watch.Watch`, which has the fields."""

from __future__ import annotations

import array
import functools
import logging
import math
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ..calls.foreign import unhurt
from . import (
    watch_audit,
    watch_collective,
    watch_log,
    watch_matmul,
    watch_neighbour,
    watch_rows,
)
from .watch_events import FIRST_EVENTS, LAST_EVENTS, OWN, Event

if TYPE_CHECKING:
    from ..program.scalars import Scalars
    from .. import _core
    from ..program.nan import nan_tracker

EPOCH = time.time() - time.monotonic()


def now() -> float:
    """Seconds since 1970, of a clock that nobody sets while the program runs."""
    return EPOCH + time.monotonic()


def guarded(work: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a watch that is no matter of the program: what goes wrong in it ends the watch and is
    said once. It does nothing once the watch has failed, and in a process that was forked off."""

    @functools.wraps(work)
    def in_guard(self: Any, *args: Any) -> None:
        if self.error is not None or self._closed or os.getpid() != self._owner:
            return
        with unhurt(self._fail), torch.no_grad():
            work(self, *args)

    return in_guard


class WatchDecisions:
    # those of `watch.Watch`
    error: str | None
    log: watch_log.WatchLog | None
    audit: watch_audit.Audit | None
    exchange: Any  # a watch_ranks.Exchange, None of one process
    neighbours: Any  # a watch_neighbour.Neighbours, where ranks audit each other
    collectives: Any  # watch_collective.Collectives or watch_shards.Shards, where ranks reduce
    matmuls: Any  # watch_matmul.Linears or Matmuls, while products are checked
    tracker: nan_tracker | None
    core: _core.Watch
    products: watch_matmul.Products
    reader: watch_rows.RowReader
    scalars: Scalars
    linears: dict[torch.nn.Module, int]
    parameters: dict[str, torch.Tensor]
    names: list[list[str]]
    sites: tuple[str, ...]
    shown: list[Event]
    seen: dict[str, float]
    step: int
    rank: int
    world: int
    shape: int
    n_events: int
    asd: bool
    _closed: bool
    _flagged: bool
    _said_alone: bool
    _owner: int
    _clock: float | None
    _events: list[Event]
    _new: list[Event]
    _sums: dict[int, Any]
    _rows: dict[int, dict[str, dict[int, bytes]]]
    _read: Callable[..., None]
    _acts: Callable[[], bool]
    _fail: Callable[[BaseException], None]
    """What a watch does with what it has read."""

    @guarded
    def _linear(self, module: torch.nn.Module, site: str, *operands: Any) -> None:
        if self.audit is not None and self.audit.busy:
            return
        self.products.take((self.step, site, self.linears[module]), watch_matmul.WatchedProduct(*operands))

    @guarded
    def _matmul(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, matmul: Callable[..., Any]) -> None:
        self._read("matmul", [-1], [watch_matmul.asd_abnormal(a, b, c, matmul)])

    def _switch_checksum(self) -> None:
        """Mode asd has matmuls checked for some minutes after a warning."""
        wants = self.asd and self.core.about()["wants_checksum"]
        if wants and self.matmuls is None:
            self.matmuls = watch_matmul.Matmuls(self._matmul)
        elif self.asd and not wants and self.matmuls is not None:
            self.matmuls.remove()
            self.matmuls = None

    def _collect(self, decide_now: bool = False) -> None:
        """Takes what has come of the devices and of the other ranks; nothing is waited for."""
        self._feed_products()
        for (step, site, numbers), rows in self.reader.ready():
            known = self._rows.setdefault(step, {})
            if site == "matmul":
                row = watch_rows.unpacked(rows[0])[0]
                assert row is not None  # a product has been looked at
                self._feed_value(step, site, numbers[0], math.inf if row.n_nonfinite else row.max_abs)
            elif site is not None:
                known.setdefault(site, {}).update(zip(numbers, rows))
            elif self.exchange is None:
                self._decide_own(step, self._rows.pop(step))
            else:
                self._send(step, self._rows.pop(step))
        if decide_now and self.step in self._rows:
            self._decide_own(self.step, self._rows[self.step])
            self._rows[self.step] = {}
        if self.exchange is not None:
            self._receive()

    def _send(self, step: int, known: dict[str, dict[int, bytes]], own: bool = False) -> None:
        """Ranks send each other a row for each site and tensor, in that order. `own`: this one knows of something
        that the others do not."""
        sums = self._sums_of(step)
        if self.exchange.alone is None:
            numbers = range(len(self.names))
            if self.neighbours is not None:
                sums = torch.cat([sums, self.neighbours.words()])
            if self._acts():
                sums = torch.cat([sums, torch.tensor([now(), own], dtype=torch.float64)])
            rows = [known.get(site, {}).get(i, watch_rows.NO_ROW) for site in self.sites for i in numbers]
            if self.exchange.send(step, self.shape, b"".join(rows), sums):
                return
        self._receive()  # what was sent before is decided first
        self._decide_own(step, known)

    def _sums_of(self, step: int) -> torch.Tensor:
        told = self._sums.pop(step, None)
        return torch.empty(0, dtype=torch.float64) if told is None else watch_collective.filled(told).view(-1)

    def _feed_neighbours(self, step: int, words: list[torch.Tensor]) -> None:
        """What ranks found of each other's micro-batches, known to all of them alike."""
        for number, rank in self.neighbours.passing(words):
            self._feed_value(step, "replay", number, watch_audit.PASSING, 0, rank)
        for number, whose, by in self.neighbours.heard(words):
            self._feed_value(step, "replay", number, whose, 1, whose)
            self._feed_value(step, "replay", number, whose, 2, by)

    def _feed_sums(self, step: int, more: list[torch.Tensor]) -> None:
        """Of a step at which ranks told each other sums of what they reduced."""
        if not more or more[0].numel() == 0:
            return
        held = [(getattr(torch, dtype), p.numel()) for (_, dtype), p in zip(self.names, self.parameters.values())]
        for rank, number, over, how in self.collectives.judged(more, *zip(*held)):
            self._feed_value(step, "collective", number, over, how, rank)

    def _receive(self) -> None:
        size = len(self.names) * watch_rows.SIZE
        for step, tables, more in self.exchange.received():
            if more and self.exchange.acts:
                self._clock, self._flagged = float(more[0][-2]), self._flagged or any(m[-1] > 0 for m in more)
                more = [m[:-2] for m in more]
            if more and self.neighbours is not None:
                self._feed_neighbours(step, [m[-watch_neighbour.WORDS :] for m in more])
                more = [m[: -watch_neighbour.WORDS] for m in more]
            self._feed_sums(step, more)
            for rank, table in enumerate(tables):
                for k, site in enumerate(self.sites) if table is not None else ():
                    self._feed(step, site, rank, table[k * size : (k + 1) * size])
            self._decide(step)
        if self.exchange.alone is not None and not self._said_alone:
            self._said_alone = True
            print(f"ulpscope: the watch of rank {self.rank} goes on alone: {self.exchange.alone}", file=sys.stderr)

    def _decide_own(self, step: int, known: dict[str, dict[int, bytes]]) -> None:
        """Of a step of which this rank's rows are all there is."""
        for site in self.sites:
            rows = known.get(site)
            if rows:
                self._feed(step, site, self.rank, b"".join(rows.values()), array.array("q", rows))
        self._decide(step)

    def _feed(self, step: int, site: str, rank: int, rows: bytes, numbers: Any = None) -> None:
        """Rows of one rank, of these tensors or of all in turn; they go into the log, too."""
        self.core.feed(step, site, rank, rows, numbers)
        shown = self.scalars and site == "grad" and rank == self.rank
        if self.log is None and not shown:
            return
        places: Any = range(len(self.names)) if numbers is None else numbers
        told = [(i, row) for i, row in zip(places, watch_rows.unpacked(rows)) if row is not None]
        if shown:
            norm, odd = math.sqrt(sum(row.sum_sq for _, row in told)), sum(row.n_nonfinite for _, row in told)
            self.seen = {"grad_norm": norm, "grad_nonfinite": odd}
        if self.log is not None and told:
            self.log.put(step, rank, site, now(), [(i, *row) for i, row in told])

    def _decide(self, step: int) -> None:
        """Has what was fed of a step decided, and takes the events."""
        for found in self.core.step(step, now() if self._clock is None else self._clock):
            self._take(found)
        if self.scalars and self.tells():
            self.scalars.put({**self.seen, "events": self.n_events}, step)
        self._switch_checksum()

    def _feed_products(self) -> None:
        """Checks are this rank's own; a step has the worst of each tensor."""
        worst: dict[tuple[int, str, int], list[Any]] = {}
        for place, *found in self.products.ready():
            worst[place] = max(worst.get(place, found), found)
        for (step, site, number), (over, how) in worst.items():
            self._feed_value(step, site, number, over, how)

    def _feed_value(
        self, step: int, site: str, number: int, value: float, hash64: int = 0, rank: int | None = None
    ) -> None:
        rank = self.rank if rank is None else rank
        self.core.feed_value(step, site, rank, number, value, hash64)
        if self.log is not None:
            self.log.put_values(step, rank, site, now(), [(number, value, hash64)])

    def _take(self, found: dict[str, Any]) -> None:
        trace = self._keep() if self.tracker is not None else None
        command = (found["action"] or "").replace("{trace}", trace or "TRACE")
        event = Event(
            found["step"],
            found["kind"],
            found["tensor"] or "",
            -1 if found["rank"] is None else found["rank"],
            found["score"],
            found["threshold"],
            found["sentence"],
            found["detector"],
            command,
        )
        self.n_events += 1
        self._events.append(event)
        del self._events[FIRST_EVENTS : max(FIRST_EVENTS, len(self._events) - LAST_EVENTS)]
        self._new.append(event)
        name = "torch_npu.silent_check" if self.asd else "ulpscope.watch"
        level = logging.INFO if found["level"] == "info" else logging.WARNING
        useful = trace is not None or "TRACE" not in command
        text = f"{event.sentence}; next: {command}" if command and useful and not self.asd else event.sentence
        if self.tells() or self.is_own(event):
            logger = logging.getLogger(name)
            logger.log(level, "%s", text)
            if level >= logging.WARNING and not logger.hasHandlers():  # logging's last resort writes it to stderr
                self.shown.append(event)
                del self.shown[:-LAST_EVENTS]

    def tells(self) -> bool:
        """Whether it is this rank that says what all know: the first, and each that is alone."""
        return bool(self.rank == 0 or self.exchange.alone is not None)

    def is_own(self, event: Event) -> bool:
        """Whether this rank alone may know of it."""
        return event.kind in OWN and event.rank == self.rank

    def _keep(self) -> str | None:
        """The folder of the last calls, written now; None where there is none."""
        if self.tracker is not None:
            with unhurt():
                return self.tracker.keep()
        return None
