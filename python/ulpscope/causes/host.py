# SPDX-License-Identifier: Apache-2.0
"""Asks for causes: the search runs in a process of its own (`process`), started at the
first accusation, so that whatever a wrongly used kernel does, the asking program goes on. A
worker of a check, which is ours, forks the first one ahead (`reserve`): loading torch anew takes
longer than most searches.

Requests and answers are JSON on a pair of sockets, a finding lies in memory shared with that process.
One that is gone is replaced at the next question. This process changes nothing of its own: no
signal, no working directory, no generator.
"""

from __future__ import annotations

import atexit
import gc
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import Pipe
from typing import TYPE_CHECKING, Any

import torch

from .._core import Findings
from ..calls.foreign import InternalError, tried
from ..calls.torch_private import private_backend
from ..calls.verdicts import FLAGGED, UNKNOWN
from . import claims, parcel, process
from .groups import Own

if TYPE_CHECKING:
    from .. import _core
    from ..calls.replay import Call

SECONDS = 2.0  # of the processor that a search may take, if nobody says otherwise
BY_THE_CLOCK = 10  # times as long as that nothing may move before a search counts as hanging
LEAST_CLOCK = 3.0  # seconds, at least
PATIENCE = 100  # times that, until the process itself counts as gone
START_SECONDS = 120  # importing torch on a busy machine
TRIES = 2  # processes that one finding may cost
LONGEST = 1e6  # seconds that a poll takes
BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from ulpscope.causes.process import main; main(*map(int, sys.argv[2:]))"
)

_numbers = itertools.count(1)
_asking = threading.Lock()
_helper: Helper | None = None


class Gone(Exception):
    """The process ended, or had to be; `late`: it took too long."""

    def __init__(self, late: bool = False) -> None:
        super().__init__()
        self.late = late


def _python() -> str:
    """The interpreter: an application that embeds Python is not one."""
    for path in (sys.executable, getattr(sys, "_base_executable", ""), os.path.join(sys.exec_prefix, "bin", "python3")):
        if path and "python" in os.path.basename(path).lower() and os.access(path, os.X_OK):
            return path
    raise OSError("no python interpreter found")


def _started(desk: int, memory: int, owner: int) -> subprocess.Popen[bytes]:
    """A new interpreter that searches."""
    path = [os.getcwd() if p == "" else p for p in sys.path]
    return subprocess.Popen(
        [_python(), "-I", "-c", BOOT, json.dumps(path), *map(str, (desk, memory, owner))],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(desk, memory),
        start_new_session=True,
        env={**os.environ, **process.APART},
    )


class _Forked:
    """A fork of this process that waits for work."""

    def __init__(self, desk: int, memory: int, owner: int) -> None:
        gc.freeze()  # what is there is shared until it is written, which a collection does
        self.pid = os.fork()
        if not self.pid:
            process.forked(desk, memory, owner)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> None:
        os.waitpid(self.pid, 0)


class Helper:
    """The process that searches, as seen from here."""

    def __init__(self, make: Callable[[int, int, int], subprocess.Popen[bytes] | _Forked] = _started) -> None:
        self.owner, self.ready = os.getpid(), False
        self.number: int | None = None
        self.memory = os.memfd_create("ulpscope-causes")
        self.desk, theirs = Pipe()
        try:
            self.process = make(theirs.fileno(), self.memory, self.owner)
        except BaseException:
            self._close()
            raise
        finally:
            theirs.close()

    def _close(self) -> None:
        self.desk.close()
        os.close(self.memory)

    def end(self) -> None:
        """Ends the process, and with it what it forked."""
        if self.owner == os.getpid():
            self.process.kill()
            self.process.wait()
        self._close()

    def lay_out(self, number: int, parts: Iterable[bytes | memoryview]) -> None:
        """Puts a finding into the shared memory, where it is not there yet."""
        if self.number == number:
            return
        with open(self.memory, "wb", closefd=False) as file:
            file.truncate(0)
            file.seek(0)
            file.writelines(parts)
        self.number = number

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The answer to a request; Gone where the process ends or takes longer."""
        try:
            self.desk.send_bytes(json.dumps(request).encode())
            if not self.desk.poll(min(seconds, LONGEST)):
                raise Gone(late=True)
            answer: dict[str, Any] = json.loads(self.desk.recv_bytes())
            return answer
        except (EOFError, OSError):
            raise Gone from None

    def wake(self) -> None:
        """Returns once torch is there: nothing of that counts as searching."""
        self.ready = self.ready or self.ask({}, START_SECONDS)["ready"]


def _the_helper() -> Helper:
    global _helper
    if _helper is None or _helper.owner != os.getpid():  # after a fork it is the parent's
        _helper = Helper()
    return _helper


def reserve() -> bool:
    """Forks a process that searches when it is asked; whether it is there. Only where this process
    is ours, and nothing but torch was loaded: no device, and no thread that was not ended for the
    fork, as numpy's are by handlers of their own."""
    global _helper
    if _helper is not None or not os.path.isdir("/proc/self/task"):
        return False
    if private_backend() != "privateuseone" or torch.cuda.is_initialized():
        return False
    if threading.active_count() > 1:
        return False
    _helper = Helper(_Forked)
    if not _is_alone():
        end()
    return _helper is not None


def _is_alone() -> bool:
    """Whether no other thread runs in this process; one that has been waited for goes in a moment."""
    for _ in range(20):
        if len(os.listdir("/proc/self/task")) == 1:
            return True
        time.sleep(0.001)
    return False


def end() -> None:
    """Ends the process that searches, if there is one."""
    global _helper
    helper, _helper = _helper, None
    if helper is not None:
        helper.end()


def _after_fork() -> None:
    """A forked process leaves its parent's question alone."""
    global _asking
    _asking = threading.Lock()


atexit.register(end)
os.register_at_fork(after_in_child=_after_fork)


# ---- asking --------------------------------------------------------------------------------


class Inquiry:
    """Questions about one verdict: what is sent is packed once."""

    def __init__(self, call: Any, verdict: Any, seconds: float = SECONDS) -> None:
        self.call, self.verdict, self.seconds = call, verdict, seconds
        self.number, self._way = next(_numbers), 0
        self._parcel: list[Any] | None = None
        self._places: dict[tuple[int, ...], str] = {}

    def worst_of(self, numbers: Iterable[int] | None = None) -> _core.Finding | None:
        """The finding that decides, of all or of some by their numbers."""
        found: Findings = self.verdict.findings
        return found.worst if numbers is None else Findings([found[i] for i in numbers]).worst

    def cause(self, numbers: Iterable[int] | None = None, known: str = "") -> str:
        """
        A short clause on what is wrong; UNKNOWN where nothing explains it, and "" where nobody
        asks. `numbers`: of these findings only; `known`: whether it is this, and nothing else is tried.
        """
        every = self._numbers(numbers)
        worst = self.worst_of(numbers)
        otherwise = claims.of_reason(worst)
        if worst is None or self.verdict.operands is None or not worst.path:
            return otherwise
        with tried(self._mistaken), _asking:  # no process, no memory, nothing to send: then it is not known
            return self._asked({"findings": list(every), "known": known}) or otherwise
        return otherwise

    def _mistaken(self, words: str) -> None:
        self.verdict.internal = words

    def told(self, cause: str, numbers: Iterable[int] | None = None) -> str:
        """A cause, or that none is known, with which places are off, as far as a search has seen that."""
        place = self._places.get(tuple(self._numbers(numbers)), "")
        return f"{cause}; {place}" if place and cause else cause

    def _numbers(self, numbers: Iterable[int] | None) -> Iterable[int]:
        return range(len(self.verdict.findings)) if numbers is None else numbers

    def _asked(self, request: dict[str, Any]) -> str:
        spent = f"{UNKNOWN} (search ended after {self.seconds:g} s)"
        self._pack()
        for _ in range(TRIES):
            try:
                answer = self._answered(_the_helper(), request)
                self._places[tuple(request["findings"])] = answer["place"]
                self.verdict.internal = next(iter(answer.get("mistakes", ())), self.verdict.internal)
                return answer["cause"] or (spent if answer["ended"] else "")
            except Gone as gone:
                end()
                if gone.late:
                    return spent
            except BaseException:
                end()  # it may be in the midst of an answer
                raise
        return ""

    def _answered(self, helper: Helper, request: dict[str, Any]) -> dict[str, Any]:
        """What a process says of the callable, in the first of the ways to send it that works."""
        helper.wake()
        # The seconds are the processor's; the clock is for what takes none of it, or never ends: that hangs.
        clock = max(BY_THE_CLOCK * self.seconds, LEAST_CLOCK)
        while True:
            assert self._parcel is not None  # by `_pack`
            helper.lay_out(self.number, self._parcel[:-1])
            answer = helper.ask(
                {
                    "number": self.number,
                    "sizes": [memoryview(p).nbytes for p in self._parcel[:-1]],
                    "seconds": self.seconds,
                    "clock": clock,
                    **request,
                },
                PATIENCE * clock,
            )
            if "internal" in answer:
                raise InternalError(answer["internal"])
            if "unfit" not in answer:
                return answer
            self.number, self._parcel, self._way = next(_numbers), None, self._way + 1
            self._pack()

    def _pack(self) -> None:
        if self._parcel is None:
            data, buffers, keep, self._way = parcel.packed(self.call, self.verdict, self._way)
            self._parcel = [data, *buffers, keep]


class Groups:
    """Findings that are alike share their cause: one search, then one run each to confirm it."""

    def __init__(self, known: Any = None) -> None:
        self.known = known or Own()

    def cause(self, inquiry: Inquiry, numbers: Iterable[int] | None = None) -> str:
        """The cause of some findings of an inquiry, by their numbers."""
        if inquiry.verdict.operands is None:
            return inquiry.cause(numbers)
        group, heard = self._key(inquiry, numbers), 0
        while True:
            causes, search = self.known.ask(group, heard)
            heard += len(causes)
            for text in causes:
                if inquiry.cause(numbers, known=text) == text:
                    return text
            if search:
                return self._searched(group, inquiry, numbers)
            if not causes:
                return UNKNOWN

    def _searched(self, group: str, inquiry: Inquiry, numbers: Iterable[int] | None) -> str:
        text = ""
        try:
            text = inquiry.cause(numbers)
            return text
        finally:
            self.known.found(group, text if is_named(text) else "")

    @staticmethod
    def _key(inquiry: Inquiry, numbers: Iterable[int] | None) -> str:
        worst = inquiry.worst_of(numbers)
        assert worst is not None  # who asks for groups has findings
        output = inquiry.verdict.answer.outputs.get(worst.path) if inquiry.verdict.answer else None
        bits = round(worst.bits) if worst.bits == worst.bits else None
        return f"{inquiry.call.op} {getattr(output, 'dtype', None)} {worst.verdict} {bits}"


def is_named(cause: str) -> bool:
    """Whether a cause says more than that nobody knows."""
    return bool(cause) and not cause.startswith(UNKNOWN)


def add_cause(call: Call, verdict: Any, seconds: float = SECONDS, groups: Groups | None = None) -> None:
    """Puts the cause into a verdict that accuses. `seconds` 0: none is sought."""
    if verdict.verdict not in FLAGGED or verdict.cause or not seconds:
        return
    inquiry = Inquiry(call, verdict, seconds)
    verdict.cause = inquiry.told(groups.cause(inquiry) if groups and len(verdict.findings) else inquiry.cause())
