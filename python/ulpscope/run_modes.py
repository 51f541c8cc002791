# SPDX-License-Identifier: Apache-2.0
"""The modes inside a program that runs under `ulpscope run` (cli/cmd_run.c).

Started by the bootstrap's sitecustomize once torch is imported: every process enters them
there, data-loader workers do not. What was found goes to the program through a file for each
process and mode, which stands whole or not at all (cli/run/run_told.c reads it): at the end, and
before that where something new was found, for a process may be killed.

Needs of torch: the place of a data loader's work, and what the modes need."""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
from math import isnan
from multiprocessing import process
from pathlib import Path
from typing import Any, Literal

from . import _core
from .calls.foreign import INSTALLED, unhurt
from .program import capture, cuda_as, hooks, observing, reroute
from .program.live import live_check
from .program.live_process import NO_ROOM
from .program.nan import nan_tracker
from .program.waiting import Waiting
from .watching.watch_found import FoundWatches

MOST_SAID = 20  # sentences of a process
MOST_NAMED = 3  # modules in one of them
EXIT_S = 10  # what the program's own os._exit waits for us


class Nan:
    """`--nan`. What a row of MODES gives: `mode`, a context manager with `error`; `n_calls`
    it has seen, `n_found`, `said`, sentences on what it found and of how much of it they tell,
    and `kept`, a folder with more."""

    def __init__(self, options: dict[str, str]) -> None:
        self.mode = nan_tracker(
            ops=options.get("ops"),
            steps=options.get("steps"),
            step_by=options.get("step_by"),
            keep_calls=int(options.get("keep", 0)),
            output=options.get("trace", "ulpscope-nan"),
        )

    @property
    def n_calls(self) -> int:
        return self.mode.n_calls

    @property
    def n_found(self) -> int:
        return self.mode.n_births

    @property
    def kept(self) -> str:
        return self.mode.trace or ""

    def said(self, most: int) -> tuple[list[str], int]:
        births = self.mode.births()[:most]
        return [birth.sentence + _own_line(birth.stack) for birth in births], len(births)


def _own_line(stack: Any) -> str:
    """Where in the program: the innermost line of a stack that is of no installed package."""
    for file, line, function in stack:
        if not file.startswith("<") and not any(f"/{part}/" in file for part in INSTALLED):
            return f"; at {file}:{line}, {function}"
    return ""


class _Checked(live_check):
    """Waits at its end: what is said then is said for good."""

    def __exit__(self, *raised: Any) -> Literal[False]:
        super().__exit__(*raised)
        told = Waiting()
        if sys.stderr.isatty():  # logs are the program's
            told.begin("run", "the program has ended; judging what it recorded last")
        try:
            self.findings()
        finally:
            told.end()
        return False


class Check:
    """`--check`, as `Nan`. All verdicts go to OUT. `left`: what was not judged, a line, and how many
    calls that neither `--allow` accepts nor `--budget` left out."""

    def __init__(self, options: dict[str, str]) -> None:
        self.out = options.get("out", "ulpscope-out")
        self.allowed = options.get("allow")  # a pattern; "*": all
        self.budget = "budget" in options
        self.mode = _Checked(
            ops=options.get("ops"),
            steps=options.get("steps"),
            step_by=options.get("step_by"),
            every=int(options.get("every", 1)),
            distinct="distinct" in options,
            budget=float(options["budget"]) if "budget" in options else None,
            output=self.out,
            force="force" in options,
            scalars=options.get("tensorboard"),
        )

    @property
    def n_calls(self) -> int:
        return self.mode.n_judged

    @property
    def n_found(self) -> int:
        return len(self.mode.so_far())

    @property
    def kept(self) -> Any:
        """OUT as it was asked for, of several ranks with the rank's own folder."""
        mode = self.mode
        return Path(self.out) / mode.out.relative_to(mode.output) if mode.out else ""

    def said(self, most: int) -> tuple[list[str], int]:
        alike: dict[Any, list[Any]] = {}
        for finding in self.mode.so_far():
            key = finding.op, finding.phase, finding.verdict, finding.output, finding.cause
            alike.setdefault(key, []).append(finding)
        told = list(alike.values())[:most]
        return [_placed(findings) for findings in told], sum(map(len, told))

    def left(self) -> tuple[str, int]:
        items = self.mode._without_verdict()
        accepted = [item for item in items if self._accepts(item[0])]
        others = [item for item in items if item not in accepted]
        line, more = _core.unjudged(others), _core.unjudged(accepted).removeprefix("not judged: ")
        if more:
            line += f"{'; ' if line else 'not judged, '}accepted by --allow: {more}"
        open_ = [n for _, why, n in others if not (self.budget and why == NO_ROOM or _core.unjudged_told(why))]
        return line, sum(open_)

    def _accepts(self, op: str) -> bool:
        if self.allowed is None or not op:
            return self.allowed == "*"
        return _core.match_pattern(self.allowed, op)


def _placed(findings: list[Any]) -> str:
    """The sentence on the worst of some that are alike, with where they were."""
    worst = min(findings, key=lambda f: float("-inf") if isnan(f.effective_bits) else f.effective_bits)
    steps = sorted({f.step for f in findings})
    modules = list(dict.fromkeys(f.module for f in findings if f.module))
    where = [_steps(steps), worst.phase]
    if modules:
        more = f" and {len(modules) - MOST_NAMED} more" if len(modules) > MOST_NAMED else ""
        where.append(f"module{'s' * (len(modules) > 1)} {', '.join(modules[:MOST_NAMED])}{more}")
    calls = f" ({len(findings)} calls, this is the worst)" if len(findings) > 1 else ""
    return f"{', '.join(where)}: {worst.sentence}{calls}"


def _steps(steps: list[int]) -> str:
    """ "step 3", "steps 0-4,7", of rising numbers."""
    spans: list[list[int]] = []
    for step in steps:
        if spans and step == spans[-1][1] + 1:
            spans[-1][1] = step
        else:
            spans.append([step, step])
    text = ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans[:MOST_SAID])
    more = f" and {len(spans) - MOST_SAID} more ranges" if len(spans) > MOST_SAID else ""
    return f"step{'s' * (len(steps) > 1)} {text}{more}"


class Watched:
    """`--watch`, as `Nan`. What was watched goes to a file where one is asked for."""

    def __init__(self, options: dict[str, str]) -> None:
        self.mode = FoundWatches(options.get("watch"), options.get("watch_log"), options.get("tensorboard"))

    @property
    def n_calls(self) -> int:
        return self.mode.n_watched

    @property
    def n_found(self) -> int:
        return len(self.mode.alarms())

    @property
    def kept(self) -> str:
        return self.mode.written()

    def said(self, most: int) -> tuple[list[str], int]:
        alarms = self.mode.alarms()
        again = self.mode.unseen(alarms)
        told = again[:most]
        return [event.sentence for event in told], len(alarms) - len(again) + len(told)


def _left(one: Any) -> tuple[str, int]:
    """What a mode did not judge or watch, a line, and how many calls of it decide the exit code."""
    if isinstance(one.mode, FoundWatches):
        return one.mode.not_watched(), 0
    return one.left() if isinstance(one, Check) else ("", 0)


def _unmatched(one: Any) -> str:
    """Globs of `ops` that no operator met, as text."""
    return ", ".join(getattr(one.mode, "scope", None) and one.mode.scope.unmatched or [])


MODES = {"nan": Nan, "check": Check, "watch": Watched}


def read_options(reports: str) -> tuple[list[str], dict[str, str]]:
    """Modes and options that the program `ulpscope` read, checked and wrote down."""
    words = os.fsdecode((Path(reports) / "options").read_bytes()).split("\0")[:-1]
    pairs = list(zip(words[::2], words[1::2]))
    return [v for k, v in pairs if k == "mode"], {k: v for k, v in pairs if k != "mode"}


def start(reports: str) -> None:
    """Enters the modes: now, or where multiprocessing started this process once it is known
    what for."""
    run = ModesRun(reports)
    if "cuda_as" in run.options:
        pretend(run.options["cuda_as"])
    started = "--multiprocessing-fork" in getattr(sys, "orig_argv", sys.argv)
    run.watch_children(started)
    if not started:
        run.enter()


def pretend(device: str) -> None:
    """cuda is another device from here on; without that device there is nothing to run."""
    try:
        cuda_as.start(device)
    except (ImportError, AttributeError, OSError, RuntimeError) as error:
        print(f"ulpscope run: --cuda-as {device}: {error}", file=sys.stderr, flush=True)
        os._exit(2)


class ModesRun:
    """The modes of this process."""

    def __init__(self, reports: str) -> None:
        self.reports = Path(reports)
        self.names, self.options = read_options(reports)
        self.modes: dict[str, Any] = {}
        self.rerouted: list[Any] = []
        self.owner: int | None = None
        self.ranks: hooks.JoinedRanks | None = None
        self.steps: hooks.Steps | None = None
        self.told: dict[str, Any] = {}  # what was found as it was told last
        self.died = False  # the program ends by itself, and not well

    def enter(self) -> None:
        """Begins; said at once, so that a process that is killed is known."""
        self.owner = os.getpid()
        self.modes = {name: MODES[name](self.options) for name in self.names}
        if not self.rerouted:  # a forked child has what its parent had
            try:
                reroute.check_names(self.options.get("ops", ""), "--ops")
                self.rerouted = self._from_environment()
            except reroute.NotThere as error:  # asked for in words that mean nothing: now, not in hours
                print(f"ulpscope run: {error}", file=sys.stderr, flush=True)
                os._exit(2)
        self.ranks = hooks.JoinedRanks()
        for one in self.modes.values():
            one.mode.__enter__()
        self.steps = hooks.Steps(self.tell_news, source=self.options.get("step_by"))
        self.steps.install()
        atexit.register(self.leave)
        self._watch_exit()

    def _from_environment(self) -> list[Any]:
        """The modes that variables ask for, entered."""
        entered = reroute.from_environment()
        observed = observing.observe.from_environment()
        if observed is not None:
            observed.__enter__()
            entered.append(observed)
        return entered

    def watch_children(self, started: bool) -> None:
        """A child that multiprocessing started does one thing: where that is fetching batches
        it enters no mode. `started`: this process is such a child itself."""
        base: Any = process.BaseProcess
        original = base._bootstrap

        @functools.wraps(original)
        def bootstrap(child: Any, *args: Any, **kwargs: Any) -> Any:
            self.forked()
            target = getattr(child, "_target", None)
            if getattr(target, "__name__", "") != "_worker_loop":
                with unhurt():
                    self.enter()
            return original(child, *args, **kwargs)

        base._bootstrap = bootstrap

    def forked(self) -> None:
        """This process is the child of one that was in the modes: they are not its own."""
        if self.owner in (None, os.getpid()):
            return
        atexit.unregister(self.leave)
        for one in self.modes.values():
            with unhurt():
                one.mode.abandon()
        if self.steps is not None:
            self.steps.remove()
        self.modes, self.told = {}, {}
        self.died = False

    def _watch_exit(self) -> None:
        """A program that leaves by os._exit runs no handlers: then it runs ours. Of a SystemExit
        handlers do not learn whether all went well: the extension looks at it."""
        original = os._exit

        @functools.wraps(original)
        def exit_now(status: int) -> None:
            self.died |= status != 0
            if os.getpid() == self.owner and (self.modes or self.rerouted):
                ending = threading.Thread(target=self.leave, daemon=True)
                ending.start()
                ending.join(EXIT_S)
            original(status)

        place: Any = os
        place._exit = exit_now
        leave = sys.exit

        @functools.wraps(leave)
        def exit_later(*args: Any) -> None:
            try:
                leave(*args)
            except SystemExit:  # before Python 3.12 it becomes an object only where it is looked at
                raise

        other: Any = sys
        other.exit = exit_later
        _core.watch_exit(threading.main_thread().ident or 0)

    def leave(self) -> None:
        """The program ends: the modes with it, and what they found is told."""
        if os.getpid() != self.owner:
            return
        modes, self.modes = self.modes, {}
        died = self.died or _core.exit_failed() or getattr(sys, "last_type", None) is not None
        for name, one in modes.items():
            with unhurt():  # nothing is raised any more
                one.mode.__exit__(Exception if died else SystemExit, None, None)
            self.tell(name, one)
        rerouted, self.rerouted = self.rerouted, []
        for i, mode in reversed(list(enumerate(rerouted))):
            with unhurt():
                mode.__exit__(SystemExit, None, None)
                self.tell_rerouted(i, mode)
                if isinstance(mode, observing.observe):
                    n = sum(mode.n_calls.values())
                    print(f"ulpscope: {n} calls observed: {mode.output}", file=sys.stderr)

    def tell_news(self) -> None:
        """A step is over. What it found is told before the next."""
        for name, one in self.modes.items():
            if one.n_found != self.told.get(name):
                self.tell(name, one)

    def tell_rerouted(self, i: int, mode: Any) -> None:
        """Writes how often an operator was computed another way, by its place among those that were asked for."""
        if not isinstance(mode, (reroute.fallback, reroute.cast, reroute.substitute)):
            return
        rank, world = capture.rank_and_world()
        calls = mode.n_calls
        self.report(
            f"reroute{i}",
            rank,
            world,
            sum(calls.values()),
            0,
            0,
            "",
            "",
            "",
            0,
            "",
            mode.NOUN,
            *mode.said_calls(MOST_SAID),
        )

    def report(self, name: str, *words: object) -> None:
        """A file of words for the launcher, whole or not at all."""
        path, part = (self.reports / f"{kind}-{name}-{os.getpid()}" for kind in ("told", "part"))
        part.write_bytes(b"".join(os.fsencode(f"{w}".replace("\0", " ")) + b"\0" for w in words))
        os.replace(part, path)

    def tell(self, name: str, one: Any) -> None:
        """Writes what a mode found; nothing that goes wrong here is the program's matter."""
        rank, world = capture.rank_and_world()
        joined = self.ranks and self.ranks.joined
        if world == 1 and joined:
            rank, world = joined
        with unhurt(lambda error: print(f"ulpscope: cannot report to the launcher: {error}", file=sys.stderr)):
            self.told[name], (said, n_told) = one.n_found, one.said(MOST_SAID)
            fixed = one.n_calls, one.n_found, n_told, one.mode.error or "", one.kept, *_left(one), _unmatched(one)
            self.report(name, rank, world, *fixed, *said)
