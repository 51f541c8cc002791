# SPDX-License-Identifier: Apache-2.0
"""Nobody waits long without a word: a command that is written in Python says what it is at where that takes its time.
Serves `program.started` and the commands that it runs; in a program of somebody else it says nothing."""

import sys
import threading
import time

PATIENCE_S = 1.5


class Waiting:
    """What is being done, told on stderr once it has taken so long that somebody may wonder."""

    def __init__(self):
        self.command, self.timer, self.last = "", None, 0.0

    def begin(self, command, what):
        """This process is that command."""
        self.command, self.last = command, time.monotonic()
        self.at(what)

    def at(self, what):
        """From here on it does that."""
        if not self.command:
            return
        self.end()
        left = self.last + PATIENCE_S - time.monotonic()
        self.timer = threading.Timer(max(PATIENCE_S / 3, left), self._say, (what,))
        self.timer.daemon = True
        self.timer.start()

    def end(self):
        """Something else is said now, or it is over."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer = None

    def _say(self, what):
        self.last = time.monotonic()
        print(f"ulpscope {self.command}: {what} ...", file=sys.stderr, flush=True)


waiting = Waiting()
