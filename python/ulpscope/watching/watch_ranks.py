# SPDX-License-Identifier: Apache-2.0
"""The rows of all ranks, at every rank: one small all-gather a step, which nobody waits for.

It goes over a process group of its own with the ranks of the job's, on the CPU: what the job itself
sends is not held up by it, and a rank that stops taking part (it died, its watch failed) is no
deadlock of the others, which are told so once and go on by themselves.

Where ranks act together (action skip) rows of a step are waited for before the optimizer moves a weight,
and `agreed` asks once more where there is something to do. No rank acts alone by that: who has waited in
vain, and said so by a refusal, is known to whoever has not; rows that came at one rank were sent by all, and
so are answers, which come at once or never.

Needs of torch: torch.distributed with gloo, and that its works can be asked whether they are done."""

from __future__ import annotations

import collections
import datetime
import time
from typing import Any

import torch

PATIENCE_S = 60.0  # for the rows of a step; then this rank goes on alone
MOST_WAITING = 64  # steps whose rows are still on their way
CLOSE_S = 2.0  # that the end of a watch waits for what is on its way


def make_group(process_group: Any) -> Any:
    """A gloo group of the ranks of `process_group` (None: of all); all of them call this."""
    import torch.distributed as dist

    ranks = dist.get_process_group_ranks(process_group or dist.group.WORLD)
    return dist.new_group(
        ranks, backend="gloo", timeout=datetime.timedelta(seconds=PATIENCE_S), use_local_synchronization=True
    )


class Exchange:
    """`send` gives this rank's rows of a step away, `received` tells what has come of all ranks; with `acts`
    `complete` waits for it and `agreed` asks whether all ranks want the same."""

    def __init__(self, process_group: Any, acts: bool = False) -> None:
        import torch.distributed as dist

        self.dist = dist
        self.group = make_group(process_group)
        self.rank, self.world = dist.get_rank(self.group), dist.get_world_size(self.group)
        self.waiting: collections.deque[Any] = collections.deque()  # (step, own rows, work, buffers, since)
        self.alone: str | None = None  # why this rank goes on alone
        self.acts = acts
        self.votes = make_group(process_group) if acts else None  # answers have an order of their own
        # (own, buffers, work), which live until they are sent
        self.answers: list[tuple[torch.Tensor, list[torch.Tensor], Any]] = []
        self.n_bytes = 0

    def send(self, step: int, shape: int, rows: bytes, more: torch.Tensor) -> bool:
        """`shape`: a number that is the same where ranks have the same tensors; `rows`: bytes; `more`: float64,
        as many on each rank at this step. Whether `received` will give them."""
        if self.alone is not None:
            return False
        words = torch.frombuffer(bytearray(rows), dtype=torch.int64) if rows else torch.empty(0, dtype=torch.int64)
        own = torch.cat([torch.tensor([step, shape, len(rows)]), words, more.view(torch.int64)])
        buffers = [torch.empty_like(own) for _ in range(self.world)]
        try:
            work = self.dist.all_gather(buffers, own, group=self.group, async_op=True)
        except RuntimeError as error:
            self.leave(f"{error}")
            return False
        self.n_bytes += own.numel() * 8
        self.waiting.append((step, rows, work, buffers, time.monotonic()))
        if len(self.waiting) > MOST_WAITING:
            self.leave(f"the other ranks are {MOST_WAITING} steps behind")
        return True

    def received(self) -> list[tuple[int, list[bytes | None], list[torch.Tensor | None]]]:
        """[(step, [rows of each rank], [`more` of each])], in turn; of a step whose exchange failed own rows
        alone, the others None, and nothing more."""
        come = []
        while self.waiting:
            step, rows, work, buffers, since = self.waiting[0]
            late = time.monotonic() - since > PATIENCE_S
            if not late and self.alone is None and not work.is_completed():
                break
            if late and self.alone is None:
                self.leave(f"no word of step {step} from the other ranks for {PATIENCE_S:.0f} s")
            self.waiting.popleft()
            come.append((step, *self._of_all(rows, work, buffers)))
        return come

    def _of_all(
        self, rows: bytes, work: Any, buffers: list[torch.Tensor]
    ) -> tuple[list[bytes | None], list[torch.Tensor]]:
        own: list[bytes | None] = [None] * self.world
        own[self.rank] = rows
        if self.alone is not None:
            return own, []
        try:
            work.wait()  # done already: this hands over, or says what went wrong
        except RuntimeError as error:
            self.leave(f"{error}")
            return own, []
        heads = {tuple(words[:3].tolist()) for words in buffers}
        if len(heads) > 1:
            self.leave("the ranks have other tensors, or are at another step")
            return own, []
        end = 3 + len(rows) // 8
        more = [words[end:].view(torch.float64) for words in buffers]
        return [words[3:end].numpy().tobytes() for words in buffers], more

    def leave(self, why: str) -> None:
        """This rank goes on by itself. Where ranks act together it refuses what others may ask from now on."""
        if self.alone is None and self.votes is not None:
            self._answer(-1, 0)
        self.alone = why.splitlines()[0][:200]

    def complete(self) -> None:
        """Waits for what was sent, up to PATIENCE_S where a rank sends nothing; `received` says so then."""
        for _, _, work, _, _ in self.waiting:
            try:
                if self.alone is None:
                    work.wait()
            except RuntimeError as error:
                self.leave(f"{error}")

    def agreed(self, step: int) -> bool:
        """Whether all ranks ask the same of this step. Asked where there is something to do alone."""
        if self.alone is not None:
            return False
        buffers, work = self._answer(step, 1)
        try:
            work.wait()
        except RuntimeError as error:
            self.leave(f"{error}")
            return False
        self.answers.pop()
        return all(told.tolist() == [step, 1] for told in buffers)

    def _answer(self, step: int, says: int) -> tuple[list[torch.Tensor], Any]:
        own = torch.tensor([step, says])
        buffers = [torch.empty_like(own) for _ in range(self.world)]
        work = self.dist.all_gather(buffers, own, group=self.votes, async_op=True)
        self.answers.append((own, buffers, work))
        return buffers, work

    def forget(self) -> None:
        """Lets go of the groups: their threads end while Python still runs, where the program ends them."""
        self.group = self.votes = None
        self.waiting.clear()
        self.answers.clear()

    def close(self) -> None:
        """Waits a little for what is on its way, so that the last steps are decided, too."""
        until = time.monotonic() + CLOSE_S
        while (
            self.alone is None
            and time.monotonic() < until
            and any(not work.is_completed() for _, _, work, _, _ in self.waiting)
        ):
            time.sleep(0.005)
