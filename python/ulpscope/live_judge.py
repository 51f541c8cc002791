# SPDX-License-Identifier: Apache-2.0
"""The judge of a live check: a process of its own beside the program that trains, `python -m
ulpscope.live_judge SETTINGS`. It is handed the folders of small traces, one a line, judges
them (`session.live_traces`) and removes them.

Lines on standard input, one JSON object each: {"trace": folder, "base": calls before it, "behind": a
call, where one before died over it}, {"reference": file} with what the program registered
(`session.handed`), {"pause": n} where nothing is to come for now, {"end": true}. Lines
on standard output: {"finding": {...}} of what does not pass, {"done": folder, "judged": n, "left":
{why: n}, "unjudged": [[op, why, n]]}, {"paused": n}, {"remark": text}, {"internal": text} of a mistake of ours,
{"trouble": text}. The file judge.at says what is in work, should this process die, as it does where a call takes longer
than the limit. Where the program is gone, so is this process, with all that lies in the folder it was told of.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import sys
import threading
import time
from typing import Any

from .worker import speakable


class Lines:
    """What the program says, taken in by a thread: it may end while a call is judged."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.parent = os.getppid()
        threading.Thread(target=self._listen, daemon=True).start()
        threading.Thread(target=self._watch, daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            self.queue.put(json.loads(line))
        self._gone()

    def _watch(self) -> None:
        """A child of the program may hold the other end open when that is gone."""
        while os.getppid() == self.parent:
            time.sleep(1)
        self._gone()

    def _gone(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        os._exit(0)


class PlaceInWork:
    """What is in work, for the program to read where this process is gone."""

    def __init__(self, folder: str, limit: float) -> None:
        self.number = os.open(os.path.join(folder, "judge.at"), os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
        self.limit, self.size = limit, 0
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

    def enter(self, **what: Any) -> None:
        """A call is in work; beyond the limit it ends this process."""
        text = json.dumps(speakable(what)).encode()
        os.pwrite(self.number, text.ljust(self.size), 0)
        self.size = len(text.ljust(self.size))
        signal.setitimer(signal.ITIMER_REAL, self.limit)

    def leave(self, done: bool = False) -> None:
        """It is not, nor, with `done`, is its trace."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        if done:
            os.ftruncate(self.number, 0)
            self.size = 0


class Out:
    """Lines to the program, on what was standard output: operators may print."""

    def __init__(self) -> None:
        self.number = os.dup(1)
        os.dup2(2, 1)

    def say(self, **message: Any) -> None:
        line = json.dumps(speakable(message)).encode() + b"\n"
        while line:
            line = line[os.write(self.number, line) :]


def main() -> int:
    settings = json.loads(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the program
    out = Out()
    os.nice(10)
    import torch

    from .causes import host
    from .executors.uncompiled import leave_compiler_out
    from .executors.warm import warm
    from .session.live_traces import Judge

    host.reserve()  # before there is a thread
    place = PlaceInWork(settings["folder"], settings["limit"])  # before anything may take the folder away
    lines = Lines(settings["folder"])
    torch.set_num_threads(1)
    warm()
    leave_compiler_out()
    judge = Judge(settings, out.say, place)
    while True:
        request = lines.queue.get()
        if "reference" in request:
            judge.register(request["reference"])
        elif "trace" in request:
            judge.work(request)
        elif "pause" in request:
            judge.results.set("done")
            out.say(paused=request["pause"])
        else:
            break
    judge.results.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
