# SPDX-License-Identifier: Apache-2.0
"""The process that searches for causes: it runs torch's kernels with arguments that they may not
survive, so nothing else lives here. Started by `_causes_host`, by which the pipes are described;
ends with it, however that ends.
"""

import importlib
import json
import mmap
import os
import resource
import select
import struct
import sys
import threading
import time
import types

LOOK_SECONDS = 0.5


def main(arguments):
    """`arguments`: descriptors of requests, answers and shared memory, the asking process."""
    requests, answers, memory, parent = map(int, arguments)
    threading.Thread(target=_end_with, args=(requests, parent), daemon=True).start()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash is expected, and no news
    import torch._decomp  # noqa: F401 - what takes its time at the start
    import torch._refs  # noqa: F401

    torch._dynamo = sys.modules["torch._dynamo"] = Compiler("torch._dynamo")
    from . import _causes_parcel, _diagnose  # noqa: F401

    desk = Desk(memory, os.fdopen(answers, "w", buffering=1))
    desk.say(ready=True)
    with os.fdopen(requests) as lines:
        for line in lines:
            desk.serve(json.loads(line))


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


def _end_with(requests, parent):
    """Ends this process once nobody asks any more, also in the midst of a search."""
    poll = select.poll()
    poll.register(requests, 0)  # hang-ups alone
    while os.getppid() == parent and not poll.poll(1000 * LOOK_SECONDS):
        pass
    os._exit(0)


class Desk:
    """Takes requests and answers them."""

    def __init__(self, memory, file):
        self.memory, self.file = memory, file
        self.number, self.call, self.verdict_on = None, None, None

    def say(self, **message):
        self.file.write(json.dumps(message) + "\n")

    def serve(self, request):
        """The cause of one finding, as {"cause": text, "ended": whether time was up}."""
        import torch

        from . import _diagnose

        torch.set_num_threads(request["threads"])
        try:
            self._open(request)
        except Exception:  # a callable that does not work over here
            self.say(unfit=True)
            return
        try:
            limit = Limit(self, request)
            verdict = self.verdict_on(request["findings"])
            text = _diagnose.search(self.call, verdict, limit, request["known"])
            self.say(cause=text, ended=limit.ended)
        except MemoryError:
            self.say(cause="", ended=False)

    def _open(self, request):
        """What a request is about, unless the last one was about it as well."""
        from . import _causes_parcel, _memory

        if self.number == request["number"]:
            return
        self.number = self.call = self.verdict_on = None
        every = mmap.mmap(self.memory, sum(request["sizes"]) + Limit.SIZE, access=mmap.ACCESS_COPY)
        parts, at = [], Limit.SIZE
        for size in request["sizes"]:
            parts.append(memoryview(every)[at : at + size])
            at += size
        self.call, self.verdict_on = _causes_parcel.unpacked(bytes(parts[0]), parts[1:])
        self.number = request["number"]
        _memory.limit("reference")


class Limit:
    """How long a search may take, and what of it is known should the process die: the number of
    the mistake that is being tried stands at the head of the shared memory."""

    SIZE = 4096

    def __init__(self, desk, request):
        self.desk, self.skip = desk, set(request["skip"])
        self.until = time.thread_time() + request["seconds"]
        self.last = time.monotonic() + 2 * request["seconds"]
        self.ended, self.tried = False, 0

    def over(self):
        """Whether the time is spent: that of this thread, so that a busy machine names the same
        causes, or twice as much by the clock."""
        self.ended = self.ended or time.thread_time() > self.until or time.monotonic() > self.last
        return self.ended

    def begins(self):
        """Counts a mistake that is about to be tried; False where it was the end of another
        process."""
        self.tried += 1
        os.pwrite(self.desk.memory, struct.pack("q", self.tried), 0)
        return self.tried not in self.skip

    def found(self, text):
        """Keeps the best name so far."""
        self.desk.say(so_far=text)


if __name__ == "__main__":
    main(sys.argv[1:])
