# SPDX-License-Identifier: Apache-2.0
"""Progress of a long run on standard error: a bar on a terminal, a line every few seconds
elsewhere. Needs no torch."""

import sys
import time

from ._verdicts import FLAGGED

EVERY_SECONDS = 5.0


def clock(seconds):
    """Seconds as "1:02" or "1:02:03"."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


class Progress:
    """Counts calls, or what else is done one by one. `with Progress(total, done) as p:
    p.step(row)`; `what` is done to `units`, and only verdicts can be flagged."""

    def __init__(self, total, done=0, what="checking", units="calls"):
        self.total, self.done, self.first = total, done, done
        self.what, self.units = what, units
        self.flagged = 0
        self.start = self.shown = time.monotonic()
        self.bar = self.task = None

    def __enter__(self):
        if sys.stderr.isatty() and self.done < self.total:
            self._open_bar()
        return self

    def __exit__(self, *_):
        if self.bar is not None:
            self.bar.stop()

    def _open_bar(self):
        try:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn
            from rich.progress import Progress as Bar
            from rich.progress import TextColumn, TimeRemainingColumn
        except ImportError:
            return
        self.bar = Bar(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
            TimeRemainingColumn(), console=Console(stderr=True), transient=True,
        )  # fmt: skip
        self.task = self.bar.add_task(self.what, total=self.total, completed=self.done)
        self.bar.start()

    def step(self, row=None):
        """One is done. The rate counts from the first: workers take seconds to start."""
        self.done += 1
        if self.done == self.first + 1:
            self.start = time.monotonic()
        self.flagged += row is not None and row["verdict"] in FLAGGED
        if self.bar is not None:
            text = f"{self.what} ({self.flagged} flagged)" if self.flagged else self.what
            self.bar.update(self.task, completed=self.done, description=text)
        elif time.monotonic() - self.shown > EVERY_SECONDS:
            self._line()

    def _line(self):
        self.shown = now = time.monotonic()
        timed = self.done - self.first - 1  # the first call sets the clock
        left = (now - self.start) / max(1, timed) * (self.total - self.done)
        checking = self.units == "calls"
        print(
            "ulpscope check: " + ("" if checking else f"{self.what}: ")
            + f"{self.done:,} of {self.total:,} {self.units}"
            + (f", {self.flagged:,} flagged" if checking else "")
            + (f", {clock(left)} left" if timed > 0 else ""),
            file=sys.stderr, flush=True,
        )  # fmt: skip
