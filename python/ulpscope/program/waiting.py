# SPDX-License-Identifier: Apache-2.0
"""Nobody waits long without a word: a command that is written in Python says what it is at where that takes its time,
and goes on saying for how long. Serves `program.started` and the commands that it runs; in a program of somebody else
it says nothing."""

from __future__ import annotations

import sys
import threading
import time

PATIENCE_S = 1.5
AGAIN_S = 5.0  # in a log; on a terminal the line is drawn again each second


class Waiting:
    """What is being done, told on stderr once it has taken so long that somebody may wonder."""

    def __init__(self) -> None:
        self.command = ""
        self.timer: threading.Timer | None = None
        self.last = 0.0
        self.drawn = False  # a line that is to be taken away
        self.lock = threading.Lock()

    def begin(self, command: str, what: str) -> None:
        """This process is that command."""
        self.command, self.last = command, time.monotonic()
        self.at(what)

    def at(self, what: str) -> None:
        """From here on it does that."""
        if not self.command:
            return
        self.end()
        with self.lock:
            now = time.monotonic()
            self._later(max(PATIENCE_S / 3, self.last + PATIENCE_S - now), what, now, False)

    def end(self) -> None:
        """Something else is said now, or it is over."""
        with self.lock:
            if self.timer is not None:
                self.timer.cancel()
            if self.drawn:
                print("\r\033[K", end="", file=sys.stderr, flush=True)
            self.timer, self.drawn = None, False

    def said(self) -> None:
        """A line of somebody else's: whoever waits knows for a while."""
        self.end()
        self.last = time.monotonic()

    def _later(self, seconds: float, *said: object) -> None:
        self.timer = threading.Timer(seconds, self._say, said)
        self.timer.daemon = True
        self.timer.start()

    def _say(self, what: str, since: float, again: bool) -> None:
        with self.lock:
            if self.timer is not threading.current_thread():
                return  # it ended meanwhile
            terminal = sys.stderr.isatty()
            self.last = time.monotonic()
            text = f"ulpscope {self.command}: {what} ..." + (f" ({self.last - since:.0f} s)" if again else "")
            print(f"\r\033[K{text}" if terminal else text, end="" if terminal else "\n", file=sys.stderr, flush=True)
            self.drawn = terminal
            self._later(1.0 if terminal else AGAIN_S, what, since, True)


waiting = Waiting()
