# SPDX-License-Identifier: Apache-2.0
"""The crew of `ulpscope check`: worker processes that each hold one call at a time. A
worker that dies or hangs costs the call it held; another takes its place. Knows nothing of
verdicts; `_check` says what a loss means. Needs no torch."""

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time

from . import _threads
from ._causes_groups import Known

END_SECONDS = 10  # for a worker that closed its pipe to be gone
START_SECONDS = 600  # importing torch and compiling glue on a busy machine


class Trouble(Exception):
    """Something that ends the run; the text is the sentence that the user gets."""


class Worker:
    """One process and the call that it holds."""

    def __init__(self, settings):
        read, write = os.pipe()
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ulpscope._worker", str(write), json.dumps(settings)],
            stdin=subprocess.PIPE, stdout=self.log, stderr=subprocess.STDOUT,
            pass_fds=[write], start_new_session=True, env=_threads.environment(),
        )  # fmt: skip
        os.close(write)
        self.out = read
        self.buffer = b""
        self.ready = self.idle = False
        self.request = None
        self.searching = None  # the request whose row is here, while its cause is sought
        self.phase = "start"
        self.since = time.monotonic()

    def give(self, request):
        """Hands over a call. A worker that is gone is noticed when its pipe ends."""
        self.idle = False
        self.request, self.phase, self.since = request, "device", time.monotonic()
        self.tell(request)

    def tell(self, message):
        """Sends a line."""
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass

    def lines(self):
        """Messages that came; None once the worker is gone."""
        data = os.read(self.out, 1 << 16)
        if not data:
            return None
        *whole, self.buffer = (self.buffer + data).split(b"\n")
        return [json.loads(line) for line in whole]

    def end(self, kill=True):
        """Ends the process and returns its exit status."""
        if kill and self.process.poll() is None:
            self.process.kill()
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            status = self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        os.close(self.out)
        return status

    def last_words(self):
        """The last line that the process wrote on its own."""
        self.log.seek(0)
        lines = self.log.read().decode(errors="replace").strip().splitlines()
        return lines[-1].strip()[:200] if lines else ""


def death(status):
    """How a process ended, as a clause."""
    if status < 0:
        try:
            return f"died of {signal.Signals(-status).name}"
        except ValueError:
            return f"died of signal {-status}"
    return f"left with exit code {status}"


class Crew:
    """
    Works through requests and yields what became of each: ("row", request, row),
    ("cause", request, row) for a row that came before with what the search for its cause found,
    ("lost", request, phase, how) for a dead worker, ("late", request, phase) for a hung one.
    Before the first of them `met` is called with what the first worker says of itself.
    """

    def __init__(self, settings, size, timeout, met=None, rooms=None):
        self.settings, self.size, self.timeout = settings, size, timeout
        self.met, self.rooms = met, rooms
        self.held = None  # a request that waits for memory
        self.selector = selectors.DefaultSelector()
        self.workers = []
        self.known = Known()

    def work(self, queue):
        """`queue` has a length, which may become 0 at any time, and `pop()`."""
        only_meet = bool(self.met) and not queue
        try:
            for _ in range(min(self.size, len(queue)) or only_meet):
                self._hire()
            while queue or self.held or any(w.request or w.searching for w in self.workers) or (only_meet and self.met):
                yield from self._turn(queue)
        finally:
            self.close()

    def close(self):
        for worker in self.workers:
            worker.end()
        self.workers = []
        self.selector.close()

    def _hire(self):
        worker = Worker(self.settings)
        self.workers.append(worker)
        self.selector.register(worker.out, selectors.EVENT_READ, worker)

    def _fire(self, worker, kill=True):
        self.selector.unregister(worker.out)
        self.workers.remove(worker)
        self._answer(self.known.gone(worker))
        return worker.end(kill)

    @staticmethod
    def _answer(answers):
        for worker, (causes, search) in answers:
            worker.tell({"causes": causes, "search": search})

    def _share(self, worker, message):
        """What a worker asks or tells of findings that are alike; whether that was it."""
        if "group" in message:
            answer = self.known.ask(worker, message["group"], message["heard"])
            self._answer([(worker, answer)] if answer else [])
        elif "found" in message:
            self._answer(self.known.found(message["found"], message["text"]))
        else:
            return False
        return True

    def _turn(self, queue):
        """Waits for whatever comes next and passes on what ended."""
        for key, _ in self.selector.select(self._patience()):
            yield from self._hear(key.data, queue)
        for worker in [w for w in self.workers if self._is_late(w)]:
            yield from self._give_up(worker, queue)

    def _hear(self, worker, queue):
        messages = worker.lines()
        if messages is None:
            yield from self._bury(worker, queue)
            return
        for message in messages:
            if "fatal" in message:
                raise Trouble(message["fatal"])
            if "say" in message:
                print(f"ulpscope check: {message['say']}", file=sys.stderr, flush=True)
                continue
            if "phase" in message:
                worker.phase, worker.since = message["phase"], time.monotonic()
                continue
            if self._share(worker, message):
                continue
            worker.ready = True
            if self.met and "ready" in message:
                met, self.met = self.met, None
                met(message["ready"])
            if "row" in message:
                done, worker.request = worker.request, None
                yield "row", done, message["row"]
                if message.get("searching"):
                    worker.searching, worker.since = done, time.monotonic()
                    continue
            if "cause" in message:
                done, worker.searching = worker.searching, None
                yield "cause", done, message["cause"]
            worker.idle = not message.get("leaving")
        self._feed(queue)

    def _feed(self, queue):
        """Gives work to those that have none, as far as there is memory for it. Requests keep
        their order: one that waits is not overtaken for ever."""
        for worker in [w for w in self.workers if w.idle]:
            if self.held is None and not queue:
                return
            self.held = self.held or queue.pop()
            busy = [w.request or w.searching for w in self.workers if w.request or w.searching]
            if self.rooms and not self.rooms.admits(self.held, busy):
                return
            request, self.held = self.held, None
            worker.give(request)

    def _bury(self, worker, queue):
        status = self._fire(worker, kill=False)  # it is going: let it say how
        if not worker.ready:
            raise Trouble(f"a worker {death(status)} while starting: {worker.last_words()}")
        if worker.request is not None:
            yield "lost", worker.request, worker.phase, death(status)
        self._replace(queue)

    def _replace(self, queue):
        if queue or self.held:
            self._hire()
        self._feed(queue)

    def _limit(self, worker):
        patient = not worker.ready or worker.searching  # which has its own limit, and no verdict
        return max(self.timeout, START_SECONDS) if patient else self.timeout

    def _is_late(self, worker):
        busy = worker.request is not None or worker.searching or not worker.ready
        return busy and time.monotonic() - worker.since > self._limit(worker)

    def _patience(self):
        """Seconds until the next worker would be late, at most one."""
        now = time.monotonic()
        left = [self._limit(w) - (now - w.since) for w in self.workers
                if w.request or w.searching or not w.ready]  # fmt: skip
        return max(0.0, min([1.0, *left]))

    def _give_up(self, worker, queue):
        self._fire(worker)
        if not worker.ready:
            raise Trouble(f"a worker did not start within {START_SECONDS} s")
        if worker.request is not None:
            yield "late", worker.request, worker.phase
        self._replace(queue)
