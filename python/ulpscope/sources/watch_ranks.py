# SPDX-License-Identifier: Apache-2.0
"""The rows of all ranks, at every rank: one small all-gather a step, which nobody waits for.

It goes over a process group of its own with the ranks of the job's, on the CPU: what the job itself
sends is not held up by it, and a rank that stops taking part (it died, its watch failed) is no
deadlock of the others, which are told so once and go on by themselves.

Needs of torch: torch.distributed with gloo, and that its works can be asked whether they are done."""

import collections
import datetime
import time

import torch

PATIENCE_S = 60.0  # for the rows of a step; then this rank goes on alone
MOST_WAITING = 64  # steps whose rows are still on their way
CLOSE_S = 2.0  # that the end of a watch waits for what is on its way


def make_group(process_group):
    """A gloo group of the ranks of `process_group` (None: of all); all of them call this."""
    import torch.distributed as dist

    ranks = dist.get_process_group_ranks(process_group or dist.group.WORLD)
    return dist.new_group(ranks, backend="gloo", timeout=datetime.timedelta(seconds=PATIENCE_S),
                          use_local_synchronization=True)  # fmt: skip


class Exchange:
    """`send` gives this rank's rows of a step away, `received` tells what has come of all ranks."""

    def __init__(self, process_group):
        import torch.distributed as dist

        self.dist = dist
        self.group = make_group(process_group)
        self.rank, self.world = dist.get_rank(self.group), dist.get_world_size(self.group)
        self.waiting = collections.deque()  # (step, own rows, work, buffers, since)
        self.alone = None  # why this rank goes on alone
        self.n_bytes = 0

    def send(self, step, shape, rows, more):
        """`shape`: a number that is the same where ranks have the same tensors; `rows`: bytes; `more`: float64,
        as many on each rank at this step."""
        if self.alone is not None:
            return
        words = torch.frombuffer(bytearray(rows), dtype=torch.int64) if rows else torch.empty(0, dtype=torch.int64)
        own = torch.cat([torch.tensor([step, shape, len(rows)]), words, more.view(torch.int64)])
        buffers = [torch.empty_like(own) for _ in range(self.world)]
        try:
            work = self.dist.all_gather(buffers, own, group=self.group, async_op=True)
        except RuntimeError as error:
            self._leave(f"{error}")
            return
        self.n_bytes += own.numel() * 8
        self.waiting.append((step, rows, work, buffers, time.monotonic()))
        if len(self.waiting) > MOST_WAITING:
            self._leave(f"the other ranks are {MOST_WAITING} steps behind")

    def received(self):
        """[(step, [rows of each rank], [`more` of each])], in turn; of a step whose exchange failed own rows
        alone, the others None, and nothing more."""
        come = []
        while self.waiting:
            step, rows, work, buffers, since = self.waiting[0]
            late = time.monotonic() - since > PATIENCE_S
            if not late and self.alone is None and not work.is_completed():
                break
            if late and self.alone is None:
                self._leave(f"no word of step {step} from the other ranks for {PATIENCE_S:.0f} s")
            self.waiting.popleft()
            come.append((step, *self._of_all(rows, work, buffers)))
        return come

    def _of_all(self, rows, work, buffers):
        own = [None] * self.world
        own[self.rank] = rows
        if self.alone is not None:
            return own, []
        try:
            work.wait()  # done already: this hands over, or says what went wrong
        except RuntimeError as error:
            self._leave(f"{error}")
            return own, []
        heads = {tuple(words[:3].tolist()) for words in buffers}
        if len(heads) > 1:
            self._leave("the ranks have other tensors, or are at another step")
            return own, []
        end = 3 + len(rows) // 8
        more = [words[end:].view(torch.float64) for words in buffers]
        return [words[3:end].numpy().tobytes() for words in buffers], more

    def _leave(self, why):
        self.alone = why.splitlines()[0][:200]

    def close(self):
        """Waits a little for what is on its way, so that the last steps are decided, too."""
        until = time.monotonic() + CLOSE_S
        while (self.alone is None and time.monotonic() < until
               and any(not work.is_completed() for _, _, work, _, _ in self.waiting)):  # fmt: skip
            time.sleep(0.005)
