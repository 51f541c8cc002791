# SPDX-License-Identifier: Apache-2.0
"""The process that searches for causes: it runs torch's kernels with arguments that they may not
survive, so nothing else lives here. Started by `host`, or forked by it before anything but torch was
there; ends with it, however that ends, or when nobody asks for a while.

It loads torch once, runs no kernel, and searches in a fork of itself: one that dies is replaced within
milliseconds, and the next goes on behind the mistake that was the end of the last.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import resource
import signal
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from typing import TYPE_CHECKING, Any

from ..calls.foreign import is_ours, noted, our_words

if TYPE_CHECKING:
    from ..calls.replay import Call

LOOK_SECONDS = 0.5
IDLE_SECONDS = 60  # without a question: then this process ends
APART = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "CUDA_VISIBLE_DEVICES": ""}  # devices are not its own
RUNAWAY = 10  # times its seconds, that one run takes which never ends
MOVES = 2.0**-10  # of the processor's time, that a search which does not hang has at least
DEATHS = 30  # searches that one finding may cost
HEAD = struct.Struct("qd")  # number of the mistake that is being tried, seconds that were spent until then


def forked(desk: int, memory: int, parent: int) -> None:
    """The life of a process that `host` forked: nothing of its parent's is kept open."""
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        for fd in {int(name) for name in os.listdir("/proc/self/fd")} - {0, 1, 2, desk, memory}:
            with contextlib.suppress(OSError):  # the one that listed them
                os.close(fd)
        os.environ |= APART
        main(desk, memory, parent)
    finally:
        os._exit(0)


def main(desk: int, memory: int, parent: int) -> None:
    """Answers `parent`: nothing is done until it says the first word. `desk` and `memory` are descriptors."""
    line = Connection(desk)
    fork: Fork | None = None
    with contextlib.suppress(EOFError, OSError):
        ready([line], parent, float("inf"))
        line.recv_bytes()
        load()
        say(line, ready=True)
        while ready([line], parent, IDLE_SECONDS):
            request = json.loads(line.recv_bytes())
            fork, message = answer(fork, request, line, memory, parent)
            say(line, **message)
    os._exit(0)


def say(connection: Connection, **message: Any) -> None:
    connection.send_bytes(json.dumps(message).encode())


def ready(connections: list[Connection], parent: int, seconds: float) -> Sequence[object]:
    """Those of some connections that have something to say or were hung up, none after so many
    seconds. Ends this process once `parent` has ended."""
    until = time.monotonic() + seconds
    while os.getppid() == parent:
        left = until - time.monotonic()
        found = wait(connections, max(0.0, min(left, LOOK_SECONDS)))
        if found or left <= 0:
            return found
    os._exit(0)


def load() -> None:
    """What takes its time at the start. Runs no kernel: a fork has no threads of torch."""
    from ..calls.torch_private import load_decompositions
    from ..executors.uncompiled import leave_compiler_out

    load_decompositions()
    leave_compiler_out()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash is expected, and no news
    from . import diagnose, parcel  # noqa: F401


def answer(
    fork: Fork | None, request: dict[str, Any], desk: Connection, memory: int, parent: int
) -> tuple[Fork | None, dict[str, Any]]:
    """(the fork that may go on, {"cause": text, "ended": whether time was up}), from that fork and
    those that take its place."""
    behind, spent = 0, 0.0
    past: list[list[Any]] = []
    for _ in range(DEATHS + 1):
        fork = fork or Fork(desk, memory)
        found, hangs = fork.asked({**request, "behind": behind, "spent": spent, "past": past}, desk, parent)
        if found and "note" not in found[-1]:
            return fork, found[-1]
        tried, spent = HEAD.unpack_from(fork.head)
        fork = None
        past += [m["note"] for m in found]
        behind, ended = max(behind + 1, tried), hangs or spent >= request["seconds"]
        if ended:
            break
    known = [s for _, s in reversed(past)]
    return fork, {
        "cause": next((s["text"] for s in known if s["text"]), ""),
        "place": next((s["place"] for s in known if s["place"]), ""),
        "ended": ended,
    }


class Fork:
    """A fork of this process that searches, until it dies."""

    def __init__(self, desk: Connection, memory: int) -> None:
        self.head = mmap.mmap(-1, HEAD.size)  # shared with it
        self.line, theirs = Pipe()
        here, self.pid = os.getpid(), os.fork()
        if not self.pid:
            desk.close()
            self.line.close()
            work(theirs, memory, self.head, here)
        theirs.close()

    def asked(self, request: dict[str, Any], desk: Connection, parent: int) -> tuple[list[dict[str, Any]], bool]:
        """(what it says to a request, whether it hangs): notes, then an answer, which is missing where it died or
        hangs. Nobody asks in between: `desk` can only be hung up, and then both processes end."""
        found, hangs, start = [], False, self.taken()
        HEAD.pack_into(self.head, 0, 0, request["spent"])
        with contextlib.suppress(EOFError, OSError):
            say(self.line, **request)
            while not hangs:
                before = self.taken()
                some = ready([self.line, desk], parent, request["clock"])
                if desk in some:
                    os._exit(0)
                now = self.taken()
                stands = now - before < MOVES * request["clock"]
                hangs = not some and (stands or now - start > RUNAWAY * request["seconds"] + 1)
                if self.line in some:
                    found.append(json.loads(self.line.recv_bytes()))
                    if "note" not in found[-1]:
                        return found, False
        os.kill(self.pid, signal.SIGKILL)  # what hangs; else it is gone
        os.waitpid(self.pid, 0)
        return found, hangs

    def taken(self) -> float:
        """Seconds of the processor that it has taken; 0 where that is not told."""
        try:
            with open(f"/proc/{self.pid}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def work(line: Connection, memory: int, head: mmap.mmap, parent: int) -> None:
    """Searches, and does nothing else: the life of a fork."""
    try:
        from ..executors import memory_limit

        memory_limit.die_with_parent()
        number: int | None = None
        finding: tuple[Call, Callable[..., Any]] | None = None
        while os.getppid() == parent:
            request = json.loads(line.recv_bytes())
            try:
                if number != request["number"]:
                    number = finding = None
                    finding = opened(memory, request["sizes"])
                    number = request["number"]
                    memory_limit.limit("reference")
            except Exception as problem:  # a callable that does not work over here
                say(line, **({"internal": our_words(problem)} if is_ours(problem) else {"unfit": True}))
                continue
            try:
                assert finding is not None  # that of this number
                say(line, **searched(finding, request, Limit(request, head, line)))
            except MemoryError:
                say(line, cause="", place="", ended=False)
            except Exception as problem:
                say(line, internal=our_words(problem))
    finally:
        os._exit(0)


def opened(memory: int, sizes: list[int]) -> tuple[Call, Callable[..., Any]]:
    """The finding that lies in the shared memory; what is written to it stays here."""
    from . import parcel

    every = memoryview(mmap.mmap(memory, sum(sizes), access=mmap.ACCESS_COPY))
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    parts = [every[end - size : end] for size, end in zip(sizes, ends)]
    return parcel.unpacked(bytes(parts[0]), parts[1:])


def searched(finding: tuple[Call, Callable[..., Any]], request: dict[str, Any], limit: Limit) -> dict[str, Any]:
    """The cause of some findings, and whether time was up."""
    import torch

    from . import diagnose

    # What other threads burn while they wait would count as well, and more of it where there are more.
    torch.set_num_threads(1)
    noted.clear()
    text, place = diagnose.search(finding[0], finding[1](request["findings"]), limit, request["known"])
    return {"cause": text, "place": place, "ended": limit.ended, "mistakes": noted}


class Limit:
    """How long a search may take, and what of it is known should the process die: where it stands is
    in memory shared with who forked it, what it found is told.

    Up to `behind` mistakes were tried by forks that died, the last of them at that one; `past` is what
    they noted, [number, state]."""

    def __init__(self, request: dict[str, Any], head: mmap.mmap, line: Connection) -> None:
        self.head, self.line, self.start = head, line, time.process_time()
        self.behind: int = request["behind"]
        self.past: list[list[Any]] = request["past"]
        self.seconds: float = request["seconds"]
        self.spent: float = request["spent"]
        self.ended, self.tried = False, 0

    def taken(self) -> float:
        """Seconds of the processor, so that a busy machine names the same causes."""
        return self.spent + time.process_time() - self.start

    def over(self, share: float = 1.0) -> bool:
        """Whether the time is spent, or a share of it."""
        self.ended = self.ended or self.taken() > self.seconds
        return self.ended or self.taken() > share * self.seconds

    def begins(self) -> bool:
        """Counts a mistake that is about to be tried; False where another process did."""
        self.tried += 1
        if self.tried <= self.behind:
            return False
        HEAD.pack_into(self.head, 0, self.tried, self.taken())
        return True

    def noted(self) -> Iterator[dict[str, Any]]:
        """What other processes noted up to the mistake that was counted last, in order."""
        while self.past and self.past[0][0] <= self.tried:
            yield self.past.pop(0)[1]

    def note(self, state: dict[str, Any]) -> None:
        """Keeps what is known so far; its "text" is the best name."""
        say(self.line, note=[self.tried, state])
