# SPDX-License-Identifier: Apache-2.0
"""What a live check has judged: small traces of the running program, one after the other, by what
their calls gave themselves. Serves `live_judge`, the process beside the program that trains."""

from __future__ import annotations

import collections
import contextlib
import json
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import _core
from ..calls.foreign import foreign, is_ours, our_words
from ..calls.homes import import_modules
from ..calls.replay import BadCall
from ..calls.verdicts import FLAGGED, UNTOLD, reason_of
from ..causes import host
from ..executors import formulas, memory_limit
from ..executors.device import PACKAGES, UnknownDevice
from ..executors.threads import Threads
from ..judges import wording
from . import handed, identity
from .earlier import Earlier
from .fed import Fed, judge_fed, open_home
from .layouts import UNUSUAL
from .captured import NotJudged, gives_tensors, judge_captured, judge_forward

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from .judging import Verdict

NO_ROOM = "there was no room or time"  # as the program says it
MOST_NOTES = 1000
SILENT = ("c10d::", "_c10d_functional::")  # what other ranks gave is not at hand


class Results:
    """OUT/result.db, or nothing where no OUT was asked for."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings, self.start = settings, time.monotonic()
        self.result: _core.Result | None = None
        self.n = 0

    def open(self, device: str) -> None:
        """Begins the run, now that it is known what computes; once."""
        if self.settings["out"] is None or self.result is not None:
            return
        run = {
            "trace": self.settings["name"],
            "trace_id": self.settings["run"],
            "device": device,
            "standard": "ulpscope",
            "faults": "",
            "options": self.settings["options"],
            "environment": json.dumps(identity.environment()),
        }
        again = self.settings.get("again", False)  # behind one that died: it goes on
        self.result = _core.Result(self.settings["out"], {**run, "goes_on": again}, not again)
        self.n = len(self.result.done()) if again else 0
        self.set("running")

    def put(self, row: dict[str, Any]) -> None:
        self.n += 1
        if self.result is not None:
            self.result.put(row)

    def set(self, state: str) -> None:
        """Says how far the run is."""
        if self.result is None:
            return
        self.result.set("n_selected", str(self.n))
        self.result.set("seconds", f"{time.monotonic() - self.start:.1f}")
        self.result.set("state", state)

    def close(self) -> None:
        """Ends the run."""
        self.set("done")
        if self.result is not None:
            self.result.close()


class Budget:
    """Seconds of judging, or the share of the time since the start; None: no limit."""

    def __init__(self, limit: float | None, spent: float = 0.0) -> None:
        self.limit, self.spent, self.start = limit, spent, time.monotonic()

    def is_left(self) -> bool:
        if self.limit is None:
            return True
        most = self.limit if self.limit >= 1 else self.limit * (time.monotonic() - self.start)
        return bool(self.spent < most)


@dataclass
class Work:
    """What is judged in one go."""

    sequence: int
    op: str
    row: dict[str, Any]  # of the call, of a forward its first
    forward: dict[str, Any] | None = None


class Judge:
    """Judges traces, one after the other."""

    def __init__(self, settings: dict[str, Any], say: Callable[..., Any], place: Any) -> None:
        formulas.load()
        self.settings, self.say, self.place = settings, say, place
        self.results, self.budget = Results(settings), Budget(settings["budget"], settings.get("spent", 0.0))
        self.threads, self.groups, self.earlier = Threads(1), host.Groups(), Earlier()
        self.home = "cpu"
        self.fed: Fed | None = None  # where modules get the reference's inputs
        self.device: Any = None
        self.imported: set[str] = set()
        self.noted: set[tuple[Any, ...]] = set()
        self.internal: set[str] = set()
        self.unjudged: collections.Counter[tuple[str, str]] = collections.Counter()  # (op, reason) of the trace in work
        with self._told():
            import_modules([], settings.get("imports", []))

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Within: what cannot be taken in is said, and the rest goes on."""
        try:
            yield
        except Exception as problem:  # whatever a module of the program's raises
            foreign(problem)
            self.say(remark=f"the process that judges cannot import it: {type(problem).__name__}: {problem}")

    def register(self, path: str) -> None:
        """Takes in a reference that the program registered. See `reference.handed`."""
        with self._told():
            handed.take(path)

    def work(self, request: dict[str, Any]) -> None:
        """Judges the calls of one trace, and tells how many, and why others were not."""
        folder, judged, flagged = request["trace"], 0, False
        left: collections.Counter[str] = collections.Counter()
        self.unjudged.clear()
        try:
            with _core.Trace(folder) as trace:
                self._prepare(trace)
                for work in self._works(trace):
                    if work.sequence <= request.get("behind", 0):
                        flagged = True  # nobody here knows
                        continue
                    if not self.budget.is_left():
                        left[NO_ROOM] += 1
                        continue
                    self.place.enter(
                        trace=folder,
                        call=work.sequence,
                        op=work.op,
                        judged=judged,
                        left=left,
                        spent=self.budget.spent,
                        unjudged=self._unjudged(),
                    )
                    since = time.monotonic()
                    try:
                        verdict = self._judged(trace, work, request)
                        judged, flagged = judged + (verdict not in UNTOLD), flagged or verdict in FLAGGED
                    except NotJudged as why:
                        left[f"{why}"] += 1
                        self.unjudged[work.op, f"{why}"] += 1
                    self.budget.spent += time.monotonic() - since
                    self.place.leave()
        except (_core.UlpscopeError, UnknownDevice) as problem:
            self.say(trouble=f"{problem}")
        self.place.leave(done=True)
        if not (self.settings["dump"] and flagged):
            shutil.rmtree(folder, ignore_errors=True)
        self.say(done=folder, judged=judged, left=left, unjudged=self._unjudged())

    def _unjudged(self) -> list[list[Any]]:
        return [[*what, n] for what, n in self.unjudged.items()]

    def _prepare(self, trace: _core.Trace) -> None:
        """Learns what the program registered and which device it computes on."""
        device = self.home if self.home != "cpu" else _device_of(trace)
        self.home = device.partition(":")[0]
        self.results.open(device)
        if self.settings["inputs"] == "reference":
            self.device = self.device or open_home(device)
            self.fed = Fed(trace, self.device)
        new = set(json.loads(trace.meta("imports") or "[]")) - self.imported
        self.imported |= new
        import_modules(sorted(new), [], PACKAGES.get(self.home))

    def _works(self, trace: _core.Trace) -> Iterator[Work]:
        """Yields what is to be judged: calls, or forwards of modules."""
        if self.settings["level"] == "module":
            for forward in trace.forwards(self.settings["distinct"]):
                row = trace.call(forward["calls"][0])
                if row["phase"] != "backward":  # a forward that a checkpoint runs again was judged
                    yield Work(forward["call"], forward["op"], row, forward)
            return
        for sequence in trace.select():
            row = trace.call(sequence)
            if self._wants(row):
                yield Work(sequence, row["op"], row)

    def _judged(self, trace: _core.Trace, work: Work, request: dict[str, Any]) -> str:
        """The verdict on a call, in a word. NotJudged."""
        forward, row, folder = work.forward, work.row, request["trace"]
        self.threads.suit(row)
        memory_limit.limit("reference")
        try:
            judge: Callable[..., Any] = judge_captured if not forward else judge_fed if self.fed else judge_forward
            what = (self.fed or trace, forward) if forward else (trace, row)
            more = () if forward else (self.earlier,)
            call, verdict, timing = judge(*what, self.settings["causes"], self.groups, *more)
            found = wording.row(call, verdict, timing.row())
        except NotJudged:
            raise
        except BadCall as problem:
            if forward:  # too large, or it draws: the modules inside are judged
                raise NotJudged(f"{problem}") from None
            found = {"verdict": "unjudged", "sentence": f"{row['op']}: {problem}"}
        except Exception as problem:
            kind, why = "unjudged", f"the check of it failed, {type(problem).__name__}: {problem}"
            if is_ours(problem):
                kind, why = "internal", our_words(problem)
                self._tell_once("internal", why)
            found = {"verdict": kind, "sentence": f"{row['op']}: {why}"}
        else:
            if verdict.internal:
                self._tell_once("remark", verdict.internal)
        accused = found["verdict"] in FLAGGED
        place = _place(row, request["base"] + work.sequence)
        if forward:
            place |= {
                "op": forward["op"],
                "module": forward["path"],
                "stands_for": forward["stands_for"],
                "module_class": forward["module_class"] or "",
            }
        if found["verdict"] == "pass":
            place["stack"] = ""
        self.results.put({**found, **place})
        if self.settings.get("all"):
            self.say(row=self._words(found, place, folder, work.sequence))
        if accused:
            self.say(finding=self._words(found, place, folder, work.sequence))
        elif not forward and found["verdict"] == "pass":
            self._note(verdict, self._words(found, place, folder, work.sequence))
        if why := reason_of(found, place["op"]):
            self.unjudged[place["op"], why] += 1
        told: str = found["verdict"]
        return told

    def _tell_once(self, kind: str, why: str) -> None:
        """Says a mistake of ours: `internal`, or as a `remark` where nothing but a cause is lost."""
        if why not in self.internal:
            self.internal.add(why)
            self.say(**{kind: why})

    def _wants(self, row: dict[str, Any]) -> bool:
        """Whether a call is one of the device's, that ran and gives tensors."""
        if row["composite"] or row["status"] not in ("ok", "", None) or row["op"].startswith(SILENT):
            return False
        kinds = {(t["device"] or "cpu").partition(":")[0] for t in row["tensors"]}
        return (self.home == "cpu" or self.home in kinds) and gives_tensors(row["op"])

    def _note(self, verdict: Verdict, words: dict[str, Any]) -> None:
        """Says once of each operator and layout what is unusual in a call that passes."""
        for note in verdict.remarks:
            key = words["op"], words["module"], note
            if note.startswith(UNUSUAL) and key not in self.noted and len(self.noted) < MOST_NOTES:
                self.noted.add(key)
                self.say(note={**words, "sentence": f"{words['op']} {note}"})

    def _words(self, found: dict[str, Any], place: dict[str, Any], folder: str, sequence: int) -> dict[str, Any]:
        """What the program is told of a call."""
        told = {
            key: found.get(key)
            for key in ("verdict", "bits", "yardstick_bits", "cause", "sentence", "output", "notes", "args")
        }
        return {**told, **place, "trace": f"{folder}#{sequence}" if self.settings["dump"] else ""}


def _device_of(trace: _core.Trace) -> str:
    """The device that calls of a trace compute on: where none does, the CPU. What the process used
    before counts for nothing."""
    for sequence in trace.select():
        for item in trace.call(sequence)["tensors"]:
            if (item["device"] or "cpu").partition(":")[0] not in ("cpu", "meta"):
                return str(item["device"])
    return "cpu"


def _place(row: dict[str, Any], number: int) -> dict[str, Any]:
    """Where a call stands, as the row of a result has it."""
    return {
        "call": number,
        "step": row["step"],
        "phase": row["phase"],
        "op": row["op"],
        "module": row["module_path"] or "",
        "module_class": row["module_class"] or "",
        "stack": row["frames"] or "",
    }
