# SPDX-License-Identifier: Apache-2.0
"""Asks for causes: the search runs in a process of its own (`process`), started at the
first accusation, so that whatever a wrongly used kernel does, the asking program goes on. A
worker of a check, which is ours, forks the first one ahead (`reserve`): loading torch anew takes
longer than most searches.

Requests and answers are JSON lines on two pipes, tensors lie in memory shared with that process.
A search that dies is taken up behind the mistake that was its end; a process that is gone is
replaced at the next question. This process changes nothing of its own: no signal, no working
directory, no generator.
"""

import atexit
import gc
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time

import torch

from .._core import Findings
from ..calls.verdicts import FLAGGED, UNKNOWN
from . import diagnose, parcel
from . import groups as _causes_groups
from .process import APART, GRACE_SECONDS, Limit, waits

SECONDS = 2.0  # that a search may take, if nobody says otherwise
START_SECONDS = 120  # importing torch on a busy machine
TRIES = 2  # processes that one finding may cost
DEATHS = 30  # searches that one finding may cost
BOOT = ("import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
        "from ulpscope.causes.process import main; main(sys.argv[2:])")  # fmt: skip

_numbers = itertools.count(1)
_asking = threading.Lock()


class Gone(Exception):
    """The process ended, or had to be; `late`: it took too long."""

    def __init__(self, late=False):
        super().__init__()
        self.late = late


def _python():
    """The interpreter: an application that embeds Python is not one."""
    for path in (sys.executable, getattr(sys, "_base_executable", ""), os.path.join(sys.exec_prefix, "bin", "python3")):
        if path and "python" in os.path.basename(path).lower() and os.access(path, os.X_OK):
            return path
    raise OSError("no python interpreter found")


def _started(passed, owner):
    """A new interpreter that searches."""
    path = [os.getcwd() if p == "" else p for p in sys.path]
    return subprocess.Popen(
        [_python(), "-I", "-c", BOOT, json.dumps(path), *map(str, passed), str(owner)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        pass_fds=passed, start_new_session=True, env={**os.environ, **APART},
    )  # fmt: skip


class _Forked:
    """A fork of this process that waits for work."""

    def __init__(self, passed, owner):
        gc.freeze()  # what is there is shared until it is written, which a collection does
        self.status, self.pid = None, os.fork()
        if not self.pid:
            waits(*passed, owner)

    def poll(self):
        return self._ended(os.WNOHANG)

    def wait(self):
        return self._ended(0)

    def _ended(self, options):
        if self.status is None and os.waitpid(self.pid, options)[0]:
            self.status = 0
        return self.status


class Helper:
    """The process that searches, as seen from here."""

    def __init__(self, make=_started):
        self.owner = os.getpid()
        self.memory = _shared_memory()
        requests, self.ask = os.pipe()
        self.answers, answers = os.pipe()
        self.buffer, self.number, self.id = b"", None, 0
        try:
            self.process = make([requests, answers, self.memory], self.owner)
        except BaseException:
            self._close([self.memory, self.ask, self.answers])
            raise
        finally:
            self._close([requests, answers])
        self.ready = False
        self.asleep = make is _Forked

    @staticmethod
    def _close(descriptors):
        for fd in descriptors:
            os.close(fd)

    def end(self):
        """Ends the process; nothing of it is left."""
        if self.owner == os.getpid():
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)  # its session, so also what it forked
            self.process.wait()
        self._close([self.memory, self.ask, self.answers])

    def lay_out(self, number, parts):
        """Puts a finding into the shared memory, where it is not there yet."""
        if self.number == number:
            return
        os.ftruncate(self.memory, 0)
        os.ftruncate(self.memory, Limit.SIZE + sum(len(p) for p in parts))
        at = Limit.SIZE
        for part in parts:
            view = memoryview(part).cast("B")
            while len(view):
                n = os.pwrite(self.memory, view, at)
                at, view = at + n, view[n:]
        self.number = number

    def trying(self):
        """(number of the mistake that was tried last, seconds that were spent until then)."""
        data = os.pread(self.memory, Limit.HEAD.size, 0)
        return Limit.HEAD.unpack(data) if len(data) == Limit.HEAD.size else (0, 0.0)

    def send(self, request):
        """Hands over a request."""
        self.id += 1
        os.pwrite(self.memory, Limit.HEAD.pack(0, 0.0), 0)
        try:
            data = json.dumps({"id": self.id, **request}).encode() + b"\n"
            while data:
                data = data[os.write(self.ask, data) :]
        except OSError:
            raise Gone from None

    def messages(self, until):
        """Messages as they come; Gone where the process ends or `until` passes."""
        poll = select.poll()
        poll.register(self.answers, select.POLLIN)
        while True:
            while b"\n" in self.buffer:
                line, self.buffer = self.buffer.split(b"\n", 1)
                yield json.loads(line)
            left = until - time.monotonic()
            if left <= 0 or not poll.poll(1000 * left):
                raise Gone(late=True)
            data = os.read(self.answers, 1 << 16)
            if not data:
                raise Gone
            self.buffer += data

    def wait_until_ready(self):
        """Returns once torch is there: nothing of that counts as searching."""
        if self.asleep:
            os.write(self.ask, b"\n")
            self.asleep = False
        if not self.ready:
            self.ready = next(self.messages(time.monotonic() + START_SECONDS))["ready"]


def _shared_memory():
    if hasattr(os, "memfd_create"):
        return os.memfd_create("ulpscope-causes")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


_helper = None


def _the_helper():
    global _helper
    if _helper is None or _helper.owner != os.getpid():  # after a fork it is the parent's
        _helper = Helper()
    return _helper


def reserve():
    """Forks a process that searches when it is asked; whether it is there. Only where this process
    is ours, and nothing but torch was loaded: no device, and no thread that was not ended for the
    fork, as numpy's are by handlers of their own."""
    global _helper
    if _helper is not None or not os.path.isdir("/proc/self/task"):
        return False
    if torch._C._get_privateuse1_backend_name() != "privateuseone" or torch.cuda.is_initialized():
        return False
    if threading.active_count() > 1:
        return False
    _helper = Helper(_Forked)
    if not _is_alone():
        end()
    return _helper is not None


def _is_alone():
    """Whether no other thread runs in this process; one that has been waited for goes in a moment."""
    for _ in range(20):
        if len(os.listdir("/proc/self/task")) == 1:
            return True
        time.sleep(0.001)
    return False


def end():
    """Ends the process that searches, if there is one."""
    global _helper
    helper, _helper = _helper, None
    if helper is not None:
        helper.end()


atexit.register(end)


def _after_fork():
    """A forked process leaves its parent's helper alone."""
    global _asking
    _asking = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


# ---- asking --------------------------------------------------------------------------------


class Progress:
    """How far the search for one cause has come, in however many processes."""

    def __init__(self, seconds):
        self.seconds, self.spent, self.deaths, self.behind = seconds, 0.0, 0, 0
        self.past, self.text, self.until = [], "", 0.0

    def begin(self):
        """From here the clock runs: loading torch does not count."""
        self.until = time.monotonic() + 2 * self.seconds + GRACE_SECONDS

    def request(self):
        """What the next process is told."""
        return {"seconds": self.seconds, "spent": self.spent, "behind": self.behind, "past": self.past,
                "clock": max(0.01, self.until - time.monotonic())}  # fmt: skip

    def noted(self, number, state):
        """A note of a search."""
        self.past.append([number, state])
        self.text = state["text"] or self.text

    def died(self, number, spent):
        """A search died at a mistake: the next goes on behind it. Whether there is time."""
        self.deaths += 1
        self.behind, self.spent = max(self.behind + 1, number), max(self.spent, spent)
        return self.spent < self.seconds and time.monotonic() < self.until


class Inquiry:
    """Questions about one verdict: what is sent is packed once."""

    def __init__(self, call, verdict, seconds=SECONDS):
        self.call, self.verdict, self.seconds = call, verdict, seconds
        self.number, self._parts, self._keep, self._way = next(_numbers), None, None, 0

    def worst_of(self, numbers=None):
        """The finding that decides, of all or of some by their numbers."""
        found = self.verdict.findings
        return found.worst if numbers is None else Findings([found[i] for i in numbers]).worst

    def cause(self, numbers=None, known=""):
        """
        A short clause on what is wrong; UNKNOWN where nothing explains it, and "" where nobody
        asks. `numbers`: of these findings only; `known`: whether it is this, and nothing else is tried.
        """
        every = range(len(self.verdict.findings)) if numbers is None else numbers
        worst = self.worst_of(numbers)
        otherwise = diagnose.of_reason(worst)
        if worst is None or self.verdict.operands is None or not worst.path:
            return otherwise
        try:
            with _asking:
                return self._asked(list(every), known) or otherwise
        except Exception:  # no process, no memory, nothing to send: then it is not known
            return otherwise

    def _asked(self, numbers, known):
        state, _ = Progress(self.seconds), self._packed()
        for _ in range(TRIES):
            try:
                helper = _the_helper()
                helper.wait_until_ready()
                return self._answered(helper, numbers, known, state)
            except Gone as gone:
                end()
                if gone.late:
                    return state.text or self._spent()
            except BaseException:
                end()  # it may be in the midst of an answer
                raise
        return state.text

    def _answered(self, helper, numbers, known, state):
        """The answer of a process, in which searches may die."""
        state.begin()
        while state.deaths <= DEATHS:
            helper.lay_out(self.number, self._packed())
            self._send(helper, numbers, known, state)
            message = self._answer(helper, state)
            if "unfit" in message:
                self.number, self._parts, self._way = next(_numbers), None, self._way + 1
            elif "died" not in message:
                return message["cause"] or (self._spent() if message["ended"] else "")
            elif message["late"] or not state.died(*helper.trying()):
                return state.text or self._spent()
        return state.text

    def _send(self, helper, numbers, known, state):
        helper.send({"number": self.number, "sizes": [len(memoryview(p).cast("B")) for p in self._parts],
                     "findings": numbers, "known": known, "threads": torch.get_num_threads(),
                     **state.request()})  # fmt: skip

    @staticmethod
    def _answer(helper, state):
        """What ends a search; what it notes before is kept."""
        for message in helper.messages(state.until + GRACE_SECONDS):
            if "died" in message or message["id"] == helper.id:
                if "note" not in message:
                    return message
                state.noted(*message["note"])
        raise Gone

    def _spent(self):
        return f"{UNKNOWN} (search ended after {self.seconds:g} s)"

    def _packed(self):
        if self._parts is None:
            data, buffers, self._keep, self._way = parcel.packed(self.call, self.verdict, self._way)
            self._parts = [data, *buffers]
        return self._parts


class Groups:
    """Findings that are alike share their cause: one search, then one run each to confirm it."""

    def __init__(self, known=None):
        self.known = known or _causes_groups.Own()

    def cause(self, inquiry, numbers=None):
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

    def _searched(self, group, inquiry, numbers):
        text = ""
        try:
            text = inquiry.cause(numbers)
            return text
        finally:
            self.known.found(group, text if is_named(text) else "")

    @staticmethod
    def _key(inquiry, numbers):
        worst = inquiry.worst_of(numbers)
        output = inquiry.verdict.answer.outputs.get(worst.path) if inquiry.verdict.answer else None
        bits = round(worst.bits) if worst.bits == worst.bits else None
        return f"{inquiry.call.op} {getattr(output, 'dtype', None)} {worst.verdict} {bits}"


def is_named(cause):
    """Whether a cause says more than that nobody knows."""
    return bool(cause) and not cause.startswith(UNKNOWN)


def add_cause(call, verdict, seconds=SECONDS, groups=None):
    """Puts the cause into a verdict that accuses. `seconds` 0: none is sought."""
    if verdict.verdict not in FLAGGED or verdict.cause or not seconds:
        return
    inquiry = Inquiry(call, verdict, seconds)
    verdict.cause = groups.cause(inquiry) if groups and len(verdict.findings) else inquiry.cause()
