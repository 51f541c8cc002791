# SPDX-License-Identifier: Apache-2.0
"""What a watch reads at each step of an optimizer: gradients, weights, moments and some updates, and whether all ranks
skip the step. A part of `watch.Watch`, which has the fields."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import torch

from .watch_events import QUIET
from .watch_decisions import WatchDecisions, guarded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, MutableMapping, Sequence

SITES = ("grad", "reduced", "weight", "weight_before", "moment1", "moment2", "update")
BEFORE = ("moment1_before", "moment2_before")  # where no other rank has the same
MOMENTS = {"exp_avg": "moment1", "momentum_buffer": "moment1", "exp_avg_sq": "moment2"}
UPDATES = 50  # one of so many elements has its update taken at a step,
FEW = 1 << 16  # and so many at the least


class WatchSteps(WatchDecisions):
    """What a watch reads, and when."""

    # those of `watch.Watch`
    action: str
    ids: dict[torch.Tensor, int]
    optimizers: list[torch.optim.Optimizer]
    weights_every: int
    stop_after: int
    a_share: int
    logged: bool
    _in_step: bool
    _drop: bool
    _turn: int
    _share: int
    _met: torch.optim.Optimizer | None
    _versions: dict[torch.Tensor, tuple[int, int]]
    _before: dict[torch.Tensor, tuple[int, torch.Tensor]]
    _kept: list[tuple[Any, ...]]
    _members: MutableMapping[torch.optim.Optimizer, tuple[Any, list[tuple[int, torch.Tensor]]]]
    _act: Callable[..., None]

    @guarded
    def _read_grad(self, number: int, parameter: torch.Tensor) -> None:
        self._read("grad", [number], [parameter.grad], hashed=False)

        if self.collectives is not None and self._is_full():
            self.collectives.sent(number, parameter)

    @guarded
    def _run(self, work: Callable[[], Any]) -> None:
        work()

    def _is_full(self) -> bool:
        """Whether weights, moments and what ranks put into reductions are read at this step."""
        return self.step % self.weights_every == 0

    def _read(self, site: str | None, numbers: list[int], tensors: Sequence[torch.Tensor], hashed: bool = True) -> None:
        """`hashed`: whether bits are held against bits, too; where there is a log they always are told."""
        self.reader.take((self.step, site, numbers), tensors, hashed or self.logged)

    def _mine(self, optimizer: torch.optim.Optimizer) -> list[tuple[int, torch.Tensor]]:
        """[(id, parameter)] of an optimizer, made anew where it has others."""
        shape = [list(map(id, group["params"])) for group in optimizer.param_groups]
        known = self._members.get(optimizer)
        if known is None or known[0] != shape:
            known = (
                shape,
                [(self.ids[p], p) for group in optimizer.param_groups for p in group["params"] if p in self.ids],
            )
            self._members[optimizer] = known
        return known[1]

    def _before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        met, self._met = self._met, None
        if met is optimizer and self.step == 0:  # torch has come to the new hook in that very step
            return
        with self._within_step():
            self._drop = False
            self._begin_step(optimizer)
            self._act(optimizer, self._drop)

    @contextlib.contextmanager
    def _within_step(self) -> Iterator[None]:
        self._in_step = True
        try:
            yield
        finally:
            self._in_step = False

    @guarded
    def _begin_step(self, optimizer: torch.optim.Optimizer) -> None:
        for parameter, how in self.audit.before_step() if self.audit is not None else ():
            self._feed_value(self.step, "replay", self.ids[parameter], how)
        with_grad = [(i, p) for i, p in self._mine(optimizer) if p.grad is not None]
        if not with_grad:  # it moves nothing: those of the model have theirs, perhaps, and stand still
            with_grad = [(i, p) for p, i in self.ids.items() if p.grad is not None]
        site = "grad" if self.exchange is None else "reduced"
        if self.asd:
            with_grad = [(i, p) for i, p in with_grad if p.ndim >= 2]
        self._read(site, [i for i, _ in with_grad], [p.grad for _, p in with_grad], site == "reduced")
        if not self.asd:
            self._look_before(with_grad)
        if self.action != "log" and self.exchange is None:
            self._collect(decide_now=True)
            self._drop = any(event.kind not in QUIET for event in self._new)
        elif self._acts():
            self._drop = self._agree()

    def _acts(self) -> bool:
        """Whether what is done with events is done by all ranks together."""
        return bool(self.exchange is not None and self.exchange.acts and self.exchange.alone is None)

    def _agree(self) -> bool:
        """Whether all ranks drop this step. They have the same rows of it, draw the same verdict, and what one of
        them alone knows it tells the others with its rows; so a clean step costs the rows alone, waited for."""
        self._collect()
        self._decide(self.step)  # what is this rank's own
        own = any(self.is_own(event) and event.kind not in QUIET for event in self._new)
        self._send(self.step, self._rows.pop(self.step, {}), own)
        self.exchange.complete()
        self._receive()
        flagged, self._flagged = self._flagged, False
        wanted = flagged or any(event.kind not in QUIET and not self.is_own(event) for event in self._new)
        if not wanted or self.exchange.agreed(self.step):
            return wanted
        print(f"ulpscope: step {self.step} is not skipped: the ranks do not all say so", file=sys.stderr)
        return False

    def first_step(self, optimizer: torch.optim.Optimizer) -> None:
        """The optimizer steps for the first time just now, and this watch came too late for its hook."""
        self._before_step(optimizer, (), {})
        self._met = optimizer

    def _look_before(self, with_grad: list[tuple[int, torch.Tensor]]) -> None:
        """Weights as they are used next, and those of which the update is to be taken."""
        unmoved = [(self.ids[p], p) for p, was in self._versions.items() if was == _version(p)]
        self._versions = {}
        self._read("weight_before", [i for i, _ in unmoved], [p for _, p in unmoved])
        kept, self._kept = self._kept, []
        for site in BEFORE if kept else ():
            still = [
                (self.ids[p], s)
                for o, p, key, of, s, was in kept
                if f"{of}_before" == site and o.state.get(p, {}).get(key) is s and _version(s) == was
            ]
            self._read(site, [i for i, _ in still], [s for _, s in still])
        self._before = {p: (i, _copy(p)) for i, p in self._next_updates(with_grad)}

    def _next_updates(self, with_grad: list[tuple[int, torch.Tensor]]) -> list[tuple[int, torch.Tensor]]:
        """Some of the tensors, in turn: what one has more than a step's share is paid by the next."""
        self._share += self.a_share
        chosen: list[tuple[int, torch.Tensor]] = []
        while self._share > 0 and len(chosen) < len(with_grad):
            chosen.append(with_grad[(self._turn + len(chosen)) % len(with_grad)])
            self._share -= chosen[-1][1].numel()
        self._share = min(self._share, 0)
        self._turn = (self._turn + len(chosen)) % max(1, len(with_grad))
        return chosen

    def _after_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        with self._within_step():
            self._end_step(optimizer)
            if not self._acts():  # what was found since, all ranks deal with before the next step
                self._act(optimizer)
        if 0 < self.stop_after <= self.step:
            raise SystemExit(0)

    @guarded
    def _end_step(self, optimizer: torch.optim.Optimizer) -> None:
        if self.audit is not None:
            self.audit.forget()
        if not self.asd:
            self._look_after(optimizer)
        if optimizer is self.optimizers[0]:
            if self.collectives is not None and self._is_full():
                self._sums[self.step] = self.collectives.table(len(self.names))
            self._read(None, [], [])  # behind this nothing of the step comes
            self.step += 1
            self._collect()

    def _look_after(self, optimizer: torch.optim.Optimizer) -> None:
        moved = [(i, p, _local(p) - was) for p, (i, was) in self._before.items() if _local(p).shape == was.shape]
        self._before = {}
        self._read("update", [i for i, _, _ in moved], [change for _, _, change in moved], hashed=False)
        full, mine = self._is_full(), self._mine(optimizer)
        voted = self.exchange is not None
        weights = mine if full else [(i, p) for i, p, _ in moved]
        self._read("weight", [i for i, _ in weights], [p for _, p in weights], full or voted)
        self._versions |= {p: _version(p) for _, p in weights} if full else {}
        for key, site in MOMENTS.items() if full else ():
            states = [
                (i, p, optimizer.state[p][key])
                for i, p in mine
                if isinstance(optimizer.state.get(p, {}).get(key), torch.Tensor)
            ]
            self._read(site, [i for i, _, _ in states], [s for _, _, s in states])
            if self.sites is not SITES:
                self._kept += [(optimizer, p, key, site, s, _version(s)) for _, p, s in states]


def _local(tensor: Any) -> torch.Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return _local(tensor).detach().clone()


def _version(tensor: torch.Tensor) -> tuple[int, int]:
    """Moves on with each write that torch knows of, and with other memory."""
    return tensor._version, tensor.data_ptr() if not hasattr(tensor, "to_local") else 0
