# SPDX-License-Identifier: Apache-2.0
"""The process that searches for causes: it runs torch's kernels with arguments that they may not
survive, so nothing else lives here. Started by `host`, by which the pipes are described, or
forked by it before anything but torch was there; ends with it, however that ends, or when
nobody asks for a while.

It loads torch once and searches in a fork of itself: one that dies is replaced within
milliseconds, and the next goes on behind the mistake that was the end of the last.
"""

import contextlib
import importlib
import json
import mmap
import os
import resource
import select
import signal
import struct
import sys
import time
import types

LOOK_SECONDS = 0.5
IDLE_SECONDS = 60  # without a question: then this process ends
APART = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "CUDA_VISIBLE_DEVICES": ""}  # devices are not its own
IDLE = 9  # exit code of a fork that was not asked
GRACE_SECONDS = 1.0  # for one run that began in time
LONGEST_SECONDS = 1e8  # that a timer takes


def main(arguments):
    """`arguments`: descriptors of requests, answers and shared memory, the asking process."""
    requests, answers, memory, parent = map(int, arguments)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash is expected, and no news
    load()
    message = {"ready": True}
    while True:
        os.write(answers, json.dumps(message).encode() + b"\n")
        life, held = os.pipe()
        pid = os.fork()
        if not pid:
            work(requests, answers, memory)
        os.close(held)
        status = watched(pid, life, requests, parent)
        os.close(life)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) in (0, IDLE):
            os._exit(0)
        message = {"died": True, "late": os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM}


def waits(requests, answers, memory, parent):
    """The life of a process that `host` forked: nothing of its parent's is kept open, and nothing
    is done until the first byte comes."""
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        _close_all_but({0, 1, 2, requests, answers, memory})
        os.environ |= APART
        poll = select.poll()
        poll.register(requests, select.POLLIN)
        while not poll.poll(1000 * LOOK_SECONDS):
            if os.getppid() != parent:
                os._exit(0)
        if os.read(requests, 1):
            main((requests, answers, memory, parent))
    finally:
        os._exit(0)


def _close_all_but(kept):
    for fd in [int(name) for name in os.listdir("/proc/self/fd")]:
        if fd not in kept:
            with contextlib.suppress(OSError):  # the one that listed them
                os.close(fd)


def load():
    """What takes its time at the start. Runs no kernel: a fork has no threads of torch."""
    import torch._decomp  # noqa: F401
    import torch._refs  # noqa: F401

    torch._dynamo = sys.modules["torch._dynamo"] = Compiler("torch._dynamo")
    from . import diagnose, parcel  # noqa: F401


def watched(pid, life, requests, parent):
    """The status of a fork once it is gone; ends all once nobody asks any more, also in the
    midst of a search."""
    poll = select.poll()
    for fd in (life, requests):
        poll.register(fd, 0)  # hang-ups alone
    while True:
        gone = {fd for fd, _ in poll.poll(1000 * LOOK_SECONDS)}
        if life in gone:
            return os.waitpid(pid, 0)[1]
        if requests in gone or os.getppid() != parent:
            os.kill(pid, signal.SIGKILL)
            os._exit(0)


def work(requests, answers, memory):
    """Answers requests until there are no more. A fork does nothing else."""
    from ..executors.process import die_with_parent

    try:
        die_with_parent()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
        desk, lines, poll = Desk(memory, os.fdopen(answers, "w", buffering=1)), os.fdopen(requests), select.poll()
        poll.register(requests, select.POLLIN)
        while poll.poll(1000 * IDLE_SECONDS):
            line = lines.readline()
            if not line:
                os._exit(0)
            desk.serve(json.loads(line))
        os._exit(IDLE)
    finally:
        os._exit(1)


class Compiler(types.ModuleType):
    """torch's compiler as far as being left alone by it goes, which is all that decompositions
    ask for; it takes seconds to load, and is where anybody asks for more."""

    @staticmethod
    def disable(fn=None, recursive=True, **options):
        """The function: nothing is compiled here."""
        return fn

    def __getattr__(self, name):
        if sys.modules.get("torch._dynamo") is self:
            del sys.modules["torch._dynamo"]
        return getattr(importlib.import_module("torch._dynamo"), name)


class Desk:
    """Takes requests and answers them."""

    def __init__(self, memory, file):
        self.memory, self.file = memory, file
        self.id, self.number, self.call, self.verdict_on = 0, None, None, None

    def say(self, **message):
        """Answers; `id` tells to which request."""
        self.file.write(json.dumps({"id": self.id, **message}) + "\n")

    def serve(self, request):
        """The cause of one finding, as {"cause": text, "ended": whether time was up}."""
        import torch

        from . import diagnose

        self.id = request["id"]
        torch.set_num_threads(request["threads"])
        signal.setitimer(signal.ITIMER_REAL, min(request["clock"], LONGEST_SECONDS))  # whatever hangs
        try:
            self._open(request)
        except Exception:  # a callable that does not work over here
            self.say(unfit=True)
            return
        try:
            limit = Limit(self, request)
            verdict = self.verdict_on(request["findings"])
            text = diagnose.search(self.call, verdict, limit, request["known"])
            self.say(cause=text, ended=limit.ended)
        except MemoryError:
            self.say(cause="", ended=False)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _open(self, request):
        """What a request is about, unless the last one was about it as well."""
        from ..executors import process
        from . import parcel

        if self.number == request["number"]:
            return
        self.number = self.call = self.verdict_on = None
        every = mmap.mmap(self.memory, sum(request["sizes"]) + Limit.SIZE, access=mmap.ACCESS_COPY)
        parts, at = [], Limit.SIZE
        for size in request["sizes"]:
            parts.append(memoryview(every)[at : at + size])
            at += size
        self.call, self.verdict_on = parcel.unpacked(bytes(parts[0]), parts[1:])
        self.number = request["number"]
        process.limit("reference")


class Limit:
    """How long a search may take, and what of it is known should the process die: the number of
    the mistake that is being tried, and the seconds spent, stand at the head of the shared memory.

    Up to `behind` mistakes were tried by processes that died, the last of them at that one;
    `past` is what they noted, [number, state]."""

    SIZE = 4096
    HEAD = struct.Struct("qd")

    def __init__(self, desk, request):
        self.desk, self.behind, self.past = desk, request["behind"], request["past"]
        self.start = time.thread_time()
        self.seconds, self.spent = request["seconds"], request["spent"]
        self.last = time.monotonic() + request["clock"] - GRACE_SECONDS
        self.ended, self.tried = False, 0

    def taken(self):
        """Seconds of this thread, so that a busy machine names the same causes."""
        return self.spent + time.thread_time() - self.start

    def over(self, share=1.0):
        """Whether the time is spent, or a share of it: that of this thread, or that of the clock."""
        self.ended = self.ended or self.taken() > self.seconds or time.monotonic() > self.last
        return self.ended or self.taken() > share * self.seconds

    def begins(self):
        """Counts a mistake that is about to be tried; False where another process did."""
        self.tried += 1
        if self.tried <= self.behind:
            return False
        os.pwrite(self.desk.memory, self.HEAD.pack(self.tried, self.taken()), 0)
        return True

    def noted(self):
        """What other processes noted up to the mistake that was counted last, in order."""
        while self.past and self.past[0][0] <= self.tried:
            yield self.past.pop(0)[1]

    def note(self, state):
        """Keeps what is known so far; its "text" is the best name."""
        self.desk.say(note=[self.tried, state])


if __name__ == "__main__":
    main(sys.argv[1:])
