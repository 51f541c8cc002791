# SPDX-License-Identifier: Apache-2.0
"""What a live check has judged: small traces of the running program, one after the other, by what
their calls gave themselves. Serves `live_judge`, the process beside the program that trains."""

import json
import shutil
import time

from .. import _core
from ..calls.homes import import_modules
from ..calls.replay import BadCall
from ..calls.verdicts import FLAGGED
from ..causes import host
from ..executors import formulas, process
from ..executors.threads import Threads
from ..judges import wording
from . import identity
from .captured import NotJudged, judge_captured, judge_forward

SILENT = ("c10d::", "_c10d_functional::")  # what other ranks gave is not at hand


class Results:
    """OUT/result.db, or nothing where no OUT was asked for."""

    def __init__(self, settings):
        self.settings, self.result, self.start = settings, None, time.monotonic()
        self.n = 0

    def open(self, device):
        """Begins the run, now that it is known what computes; once."""
        if self.settings["out"] is None or self.result is not None:
            return
        run = {"trace": self.settings["name"], "trace_id": str(time.time_ns()), "device": device,
               "standard": "ulpscope", "faults": "", "options": self.settings["options"],
               "environment": json.dumps(identity.environment())}  # fmt: skip
        self.result = _core.Result(self.settings["out"], run, True)
        self.set("running")

    def put(self, row):
        self.n += 1
        if self.result is not None:
            self.result.put(row)

    def set(self, state):
        """Says how far the run is."""
        if self.result is None:
            return
        self.result.set("n_selected", str(self.n))
        self.result.set("seconds", f"{time.monotonic() - self.start:.1f}")
        self.result.set("state", state)

    def close(self):
        """Ends the run."""
        self.set("done")
        if self.result is not None:
            self.result.close()


class Budget:
    """Seconds of judging, or the share of the time since the start; None: no limit."""

    def __init__(self, limit):
        self.limit, self.spent, self.start = limit, 0.0, time.monotonic()

    def is_left(self):
        if self.limit is None:
            return True
        most = self.limit if self.limit >= 1 else self.limit * (time.monotonic() - self.start)
        return self.spent < most


class Judge:
    """Judges traces, one after the other."""

    def __init__(self, settings, say):
        formulas.load()
        self.settings, self.say = settings, say
        self.results, self.budget = Results(settings), Budget(settings["budget"])
        self.threads, self.groups = Threads(1), host.Groups()
        self.home = "cpu"
        self.imported = set()

    def work(self, request):
        """Judges the calls of one trace; those for which there was no time are counted as left."""
        folder, judged, left = request["trace"], 0, 0
        flagged = False
        try:
            with _core.Trace(folder) as trace:
                self._prepare(trace)
                for what in self._all(trace):
                    if not self.budget.is_left():
                        left += 1
                        continue
                    since = time.monotonic()
                    found = self._judged(trace, what, request, folder)
                    self.budget.spent += time.monotonic() - since
                    judged, flagged = judged + (found is not None), flagged or bool(found)
        except _core.UlpscopeError as problem:
            self.say(trouble=f"{problem}")
        kept = self.settings["dump"] and flagged
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)
        self.say(done=folder, judged=judged, left=left)

    def _prepare(self, trace):
        """Learns what the program registered and which device it computes on."""
        device = self.home if self.home != "cpu" else _device_of(trace)
        self.home = device.partition(":")[0]
        self.results.open(device)
        new = set(json.loads(trace.meta("imports") or "[]")) - self.imported
        self.imported |= new
        import_modules(sorted(new), [])

    def _all(self, trace):
        """Numbers of calls, or forwards of modules."""
        if self.settings["level"] == "module":
            return trace.forwards(self.settings["distinct"])
        return trace.select()

    def _judged(self, trace, what, request, folder):
        """Whether a call is accused; None where there is nothing to judge it by."""
        forward = what if isinstance(what, dict) else None
        sequence = forward["call"] if forward else what
        row = trace.call(forward["calls"][0] if forward else sequence)
        if row["phase"] == "backward" if forward else not self._wants(row):
            return None  # a forward that a checkpoint runs again was judged
        self.threads.suit(row)
        process.limit("reference")
        try:
            judge = judge_forward if forward else judge_captured
            call, verdict, timing = judge(trace, forward or row, self.settings["causes"], self.groups)
            found = wording.row(call, verdict, timing.row())
        except NotJudged:
            return None
        except BadCall as problem:
            if forward:  # too large, or it draws: the modules inside are judged
                return None
            found = {"verdict": "unjudged", "sentence": f"{row['op']}: {problem}"}
        except Exception as problem:  # ours
            why = f"the check of it failed, {type(problem).__name__}: {problem}"
            found = {"verdict": "unjudged", "sentence": f"{row['op']}: {why}"}
        accused = found["verdict"] in FLAGGED
        place = _place(row, request["base"] + sequence)
        if forward:
            place |= {"op": forward["op"], "module": forward["path"], "stands_for": forward["stands_for"],
                      "module_class": forward["module_class"] or ""}  # fmt: skip
        if found["verdict"] == "pass":
            place["stack"] = ""
        self.results.put({**found, **place})
        if self.settings.get("all"):
            self.say(row=self._words(found, place, folder, sequence))
        if accused:
            self.say(finding=self._words(found, place, folder, sequence))
        return accused

    def _wants(self, row):
        """Whether a call is one of the device's, that ran and gives tensors."""
        if row["composite"] or row["status"] not in ("ok", "", None) or row["op"].startswith(SILENT):
            return False
        kinds = {(t["device"] or "cpu").partition(":")[0] for t in row["tensors"]}
        return self.home == "cpu" or self.home in kinds

    def _words(self, found, place, folder, sequence):
        """What the program is told of a call."""
        told = {key: found.get(key) for key in ("verdict", "bits", "yardstick_bits", "cause", "sentence",
                                                "output", "notes", "args")}  # fmt: skip
        return {**told, **place, "trace": f"{folder}#{sequence}" if self.settings["dump"] else ""}


def _device_of(trace):
    """The device that calls of a trace compute on: where none does, the CPU. What the process used
    before counts for nothing."""
    for sequence in trace.select():
        for item in trace.call(sequence)["tensors"]:
            if (item["device"] or "cpu").partition(":")[0] not in ("cpu", "meta"):
                return item["device"]
    return "cpu"


def _place(row, number):
    """Where a call stands, as the row of a result has it."""
    return {"call": number, "step": row["step"], "phase": row["phase"], "op": row["op"],
            "module": row["module_path"] or "", "module_class": row["module_class"] or "",
            "stack": row["frames"] or ""}  # fmt: skip
