# SPDX-License-Identifier: Apache-2.0
"""One of n micro-batches computed again by the next rank, and its gradients compared bit by bit: what a
rank that always computes wrongly in the same way cannot find by itself. docs/reference/watch-reference.md,
"Neighbours".

What there is of a micro-batch (watch_audit.py) goes to the next rank over a group of its own; the weights
of that moment are copied. When it has come the next rank computes it beside its own training, and what
it found goes to all ranks with their rows. No rank waits for another: one that hears nothing has no
neighbour any more, which is said once.

All ranks say how much they send, then send it, and only then say so of the next one: the same order
everywhere, however far apart they are.

Needs of torch: torch.distributed with gloo, and that its works can be asked whether they are done."""

from __future__ import annotations

import collections
import io
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch

from . import watch_ranks

SAME, DIFFERS, PASSED, UNLIKE, OTHER = range(5)  # what a rank found of the one before it
PROVEN = 4  # audits in which all ranks agreed: their kernels are alike
MOST_UNLIKE = 3  # in a row in which some did not, before that: they are not
MOST_UNDER_WAY = 4  # audits; what comes while so many are has no second computation
WORDS = 3  # number of the audit, what was found, the first tensor of it


class Neighbours:
    """`give` sends a micro-batch, `compute` computes what has come, `words` are what all ranks are told,
    `heard` gives (tensor, whose micro-batch, by whom) of those that two ranks compute differently."""

    def __init__(self, audit: Any, every: int, process_group: Any, ids: dict[torch.Tensor, int]) -> None:
        import torch.distributed as dist

        self.dist, self.audit, self.every, self.ids = dist, audit, every, ids
        self.group = watch_ranks.make_group(process_group)
        self.rank, self.world = dist.get_rank(self.group), dist.get_world_size(self.group)
        self.parameters = {p: name for name, p in audit.model.named_parameters()}
        self.number = 0  # of the audit
        self.weights: dict[int, dict[str, torch.Tensor]] = {}  # number -> name -> as it was there
        self.come: collections.deque[Any] = collections.deque()  # (number, what the rank before has sent)
        self.queue: collections.deque[Any] = collections.deque()  # (number, what is sent)
        self.under_way: Any = None  # (number, what is sent, sizes of all or what comes, work, since)
        self.found: collections.deque[Any] = collections.deque()  # words of what was computed
        self.told: dict[int, dict[int, tuple[int, int]]] = {}  # number -> rank -> (what it found, tensor)
        self.n_computed = self.n_agreed = self.n_unlike = 0
        self.last: Any = None  # ranks that were told last
        self.off: str | None = None

    # ---- this rank's micro-batch to the next, that of the one before here ----

    def give(self, batch: Any) -> None:
        """`batch` None: there is none that could be computed; the next rank waits for word of it."""
        if self.off is not None:
            return
        self.number += 1
        sent = None
        if batch is not None and len(self.weights) < MOST_UNDER_WAY:
            marks = [(self.ids[p], mark) for p, mark in self.audit.numbers(batch).items()]
            sent = {"batch": batch.told(), "marks": marks, "weights": self._hash()}
            self.weights[self.number] = {name: p.detach().clone() for p, name in self.parameters.items()}
        self.queue.append((self.number, _packed(sent)))

    def _hash(self) -> int:
        return int(sum(self.audit.number(p) for p in self.parameters) & (1 << 63) - 1)

    def _say_size(self) -> None:
        number, own = self.queue.popleft()
        sizes = [torch.empty(1, dtype=torch.int64) for _ in range(self.world)]
        work = self.dist.all_gather(sizes, torch.tensor([own.numel()]), group=self.group, async_op=True)
        self.under_way = number, own, sizes, work, time.monotonic()

    def _send(self, number: int, own: torch.Tensor, sizes: list[torch.Tensor]) -> None:
        before, after = (self.rank - 1) % self.world, (self.rank + 1) % self.world
        size = int(sizes[before])
        come = torch.empty(size, dtype=torch.uint8)
        to = [own.numel() if r == after else 0 for r in range(self.world)]
        of = [size if r == before else 0 for r in range(self.world)]
        work = self.dist.all_to_all_single(come, own, of, to, group=self.group, async_op=True)
        self.under_way = number, own, come, work, time.monotonic()

    def _is_done(self) -> bool:
        """Whether what is under way has come; it waits for nothing."""
        since, work = self.under_way[4], self.under_way[3]
        if not work.is_completed():
            if time.monotonic() - since > watch_ranks.PATIENCE_S:
                raise RuntimeError(f"no word of a micro-batch for {watch_ranks.PATIENCE_S:.0f} s")
            return False
        work.wait()  # done already: this hands over, or says what went wrong
        return True

    def _go_on(self) -> None:
        """Takes what the rank before has sent, and begins what comes next."""
        while self.off is None:
            if self.under_way is None:
                if not self.queue:
                    break
                self._say_size()
            if not self._is_done():
                break
            number, own, buffer, _, _ = self.under_way
            if isinstance(buffer, list):
                self._send(number, own, buffer)
            else:
                self.come.append((number, buffer))
                self.under_way = None

    def close(self) -> None:
        """Waits a little for what is on its way, so that others are not left alone with it."""
        until = time.monotonic() + watch_ranks.CLOSE_S
        while self.under_way is not None and not self.under_way[3].is_completed() and time.monotonic() < until:
            time.sleep(0.005)

    # ---- computing what has come ----

    def compute(self) -> None:
        """A micro-batch's time for each that has come; waits for the device then."""
        self._go_on()
        while self.come:
            number, come = self.come.popleft()
            weights = self.weights.pop(number, None)
            given = _unpacked(come, self.audit.device)
            if given is not None and weights is not None:
                self.found.append((number, *self._held(given, weights)))

    def _held(self, given: dict[str, Any], weights: dict[str, torch.Tensor]) -> tuple[int, int]:
        """(what was found, the tensor)."""
        if given["weights"] != self.hash_of(weights):
            return OTHER, -1  # ranks have other weights: who votes on those tells
        self.n_computed += 1
        names = {self.ids[p]: name for p, name in self.parameters.items()}
        first = dict(given["marks"])
        leaves = {name: w.requires_grad_() for name, w in weights.items() if w.dtype.is_floating_point}
        wanted = [(number, leaves[names[number]]) for number in first]
        second = self.audit.computed(given["batch"], leaves, wanted)
        differ = sorted(number for number in first if first[number] != second.get(number))
        if not differ:
            return SAME, -1
        third = self.audit.computed(given["batch"], leaves, wanted)
        found = PASSED if third == first else DIFFERS if third == second else UNLIKE
        return found, differ[0]

    def hash_of(self, weights: dict[str, torch.Tensor]) -> int:
        """As `_hash`, of a copy."""
        return int(sum(self.audit.number(weights[name]) for name in self.parameters.values()) & (1 << 63) - 1)

    # ---- what all ranks know ----

    def words(self) -> torch.Tensor:
        """What goes to all ranks with the rows of this step: as many words at each."""
        with self.audit.guarded_neighbours():
            self._go_on()
        found = self.found.popleft() if self.found else (-1, -1, -1)
        return torch.tensor(found, dtype=torch.float64)

    def heard(self, words: Sequence[torch.Tensor]) -> list[tuple[int, int, int]]:
        """`words`: of each rank, of one step. All ranks hear the same in the same order."""
        for rank, (number, found, tensor) in enumerate(w.tolist() for w in words):
            if number >= 0:
                self.told.setdefault(int(number), {})[rank] = int(found), int(tensor)
        wrong: list[tuple[int, int, int]] = []
        for number in sorted(n for n, of in self.told.items() if len(of) == self.world):
            wrong += self._decide(self.told.pop(number))
            self.told = {n: of for n, of in self.told.items() if n > number}
        while len(self.told) > MOST_UNDER_WAY:  # of those some rank has no word
            del self.told[min(self.told)]
        return wrong

    def _decide(self, of: dict[int, tuple[int, int]]) -> list[tuple[int, int, int]]:
        """Two that differ from the beginning on may be other devices: told where one of three and more
        differs from both its neighbours, or where all were alike before."""
        pairs = [(tensor, (by - 1) % self.world, by) for by, (found, tensor) in of.items() if found == DIFFERS]
        if not pairs:
            agreed = all(found == SAME for found, _ in of.values())
            self.n_agreed, self.n_unlike, self.last = self.n_agreed + agreed, 0, None
            return []
        ranks = {(whose, by) for _, whose, by in pairs}
        counts = collections.Counter(rank for pair in ranks for rank in pair)
        named = len(ranks) == 2 and list(counts.values()).count(2) == 1
        if not named and self.n_agreed < PROVEN:
            self.n_unlike += 1
            if self.n_unlike >= MOST_UNLIKE:
                self.end(
                    "ranks compute the same micro-batch with other bits from the beginning on: either their "
                    f"devices are not alike, or one of {sorted(counts)} computes wrongly"
                )
            return []
        told, self.last = self.last, ranks
        return [] if told == ranks else pairs

    def passing(self, words: Sequence[torch.Tensor]) -> list[tuple[int, int]]:
        """(tensor, rank) of those whose own second run was right."""
        return [
            (int(tensor), rank) for rank, (_, found, tensor) in enumerate(w.tolist() for w in words) if found == PASSED
        ]

    def end(self, why: str) -> None:
        """No micro-batch goes to another rank any more."""
        self.off = why
        self.weights, self.told = {}, {}
        self.queue.clear()
        self.come.clear()
        print(f"ulpscope: the watch gives no micro-batch to another rank any more: {why}", file=sys.stderr)


def _packed(what: Any) -> torch.Tensor:
    buffer = io.BytesIO()
    torch.save(what, buffer)
    return torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)


def _unpacked(come: torch.Tensor, device: Any) -> Any:
    """What a rank of this job has sent: its own objects of Python may be in it."""
    return torch.load(io.BytesIO(come.numpy().tobytes()), map_location=device, weights_only=False)
