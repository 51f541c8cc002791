# SPDX-License-Identifier: Apache-2.0
"""`ulpscope diff` in a worker (`worker`): calls of two traces, pair by pair, each judged on its own recorded
inputs by what its run recorded; with a device, by what that gives when it runs the call again."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import _core
from ..calls.autocast import InParts
from ..calls.foreign import is_ours, our_words
from ..calls.homes import import_modules
from ..calls.older import zip_equal
from ..calls.replay import BadCall, is_collective
from ..calls.verdicts import FLAGGED
from ..causes import host
from ..executors import formulas, memory_limit
from ..executors.device import DeviceDied, open_device
from ..executors.operands import Timing
from ..executors.threads import Threads
from ..judges import wording
from . import judging
from .bench import rebuilt
from .captured import NotJudged, judge_captured

if TYPE_CHECKING:
    from ..executors.operands import Operands

COLLECTIVE = "a collective needs what other ranks gave: ulpscope check judges it"
MADE_UP = "its inputs were not kept"


class Pairs:
    """What a process holds while it judges pairs."""

    def __init__(self, settings: dict[str, Any], channel: Any) -> None:
        formulas.load()
        self.channel, self.seconds = channel, settings["causes"]
        self.traces = [_core.Trace(settings[name]) for name in ("trace", "other")]
        import_modules(sorted(set(json.loads(self.traces[1].meta("imports") or "[]")) - set(settings["recorded"])), [])
        self.threads, self.groups = Threads(settings["threads"]), host.Groups()
        self.devices: list[Any] = [None, None]
        if settings["device"]:
            self.devices = [open_device(settings["device"], home_of(trace)) for trace in self.traces]

    def fired(self) -> list[str]:
        """What fired in the captures is not asked."""
        return []

    def work(self, request: dict[str, Any]) -> tuple[dict[str, Any], bool, None]:
        """What was found of both calls, whether the device survived, and None."""
        found: list[Found | None] = [None, None]
        for side, name in enumerate(("call", "other")):
            shared = found[0] if side == 1 and request["equal"] else None
            if request[name]:
                found[side] = self.judged(side, request[name], shared)
        alive = all(one is None or one.alive for one in found)
        if not is_alike(found) or narrow(found):
            for one in found:
                if one is not None:
                    one.explain(self.seconds, self.groups)
        rows = (one and one.row() for one in found)
        return dict(zip_equal("ab", rows)), alive, None

    def judged(self, side: int, sequence: int, shared: Found | None) -> Found:
        """What was found of a call; `shared`: of the same call on the same inputs."""
        trace, device = self.traces[side], self.devices[side]
        row = trace.call(sequence)
        self.threads.suit(row)
        try:
            if is_collective(row["op"]):
                raise NotJudged(COLLECTIVE)
            if device is not None:
                return self.again(trace, row, device)
            self._mark("reference")
            call = rebuilt(trace, trace.meta("id") or "", row) if row["composite"] else None
            if call is not None and call.made_up:
                raise NotJudged(MADE_UP)
            operands = None if shared is None else shared.operands()
            return Found(row, *judge_captured(trace, row, 0, None, call=call, operands=operands))
        except (NotJudged, BadCall, InParts) as problem:
            return Found(row, reason=f"{problem}")
        except DeviceDied as problem:
            return Found(row, reason=f"the device reports: {problem}", kind="crashed", alive=False)
        except _core.CorruptError:
            raise  # nothing that is read from this trace can be trusted
        except Exception as problem:
            if is_ours(problem):
                return Found(row, reason=our_words(problem), kind="internal")
            return Found(row, reason=f"the check of it failed, {type(problem).__name__}: {problem}")

    def again(self, trace: _core.Trace, row: dict[str, Any], device: Any) -> Found:
        """The same of a call that is run again."""
        self._mark("device")
        call, timing = rebuilt(trace, trace.meta("id") or "", row, device), Timing()
        return Found(row, call, judging.judge_call(call, device, timing, self._mark, seconds=0), timing)

    def _mark(self, phase: str) -> None:
        self.channel.phase(phase)
        memory_limit.limit(phase)


class Found:
    """What was found of one call: a verdict, or a reason why there is none."""

    def __init__(
        self,
        recorded: dict[str, Any],
        call: Any = None,
        verdict: Any = None,
        timing: Any = None,
        reason: str = "",
        kind: str = "unjudged",
        alive: bool = True,
    ) -> None:
        self.recorded, self.call, self.verdict, self.timing = recorded, call, verdict, timing
        self.reason, self.kind, self.alive = reason, kind, alive

    def operands(self) -> Operands | None:
        """What the call was judged by, where another answer to it can be."""
        whole = self.verdict is not None and self.verdict.part is None
        return self.verdict.operands if whole else None

    def accused(self) -> bool:
        return self.verdict is not None and self.verdict.verdict in FLAGGED

    def accusation(self) -> tuple[str, float]:
        worst = self.verdict.worst
        return self.verdict.verdict, math.nan if worst is None or worst.bits is None else worst.bits

    def explain(self, seconds: float, groups: Any) -> None:
        if self.accused():
            judging.explain(self.call, self.verdict, self.timing, seconds, groups)

    def row(self) -> dict[str, Any]:
        if self.verdict is None:
            return {"verdict": self.kind, "sentence": f"{self.recorded['op']}: {self.reason}"}
        made = wording.row(self.call, self.verdict, self.timing.row())
        kept = {name: made.get(name) for name in ("verdict", "sentence", "cause", "bits")}
        return kept | {"not_judged": self.verdict.findings.left_out}


def is_alike(found: Sequence[Found | None]) -> bool:
    """Whether both sides are accused of the same: no cause is sought then."""
    said = [one.accusation() for one in found if one is not None and one.accused()]
    return len(said) == len(found) and _core.diff_alike(*said[0], *said[1])


def narrow(found: Sequence[Any]) -> bool:
    """Of two calls that are accused of the same: keeps of both the output at which one alone is, or each of something
    else, as a fault beside what both do alike. False where there is none."""
    sides = [{f.path: f for f in one.verdict.findings} for one in found]
    for path, a in sides[0].items():
        b = sides[1].get(path)
        if b is not None and (a.verdict in FLAGGED or b.verdict in FLAGGED) and _apart(a, b):
            for one, finding in zip_equal(found, (a, b)):
                one.verdict.findings, one.verdict.verdict = _core.Findings([finding]), finding.verdict
            return True
    return False


def _apart(a: Any, b: Any) -> bool:
    """Whether two findings on one output tell of two things: beside one that passes it takes bits, of which two inputs
    give one kernel now more and now less."""
    bits = [math.nan if f.bits is None else f.bits for f in (a, b)]
    if a.verdict in FLAGGED and b.verdict in FLAGGED:
        return not _core.diff_alike(a.verdict, bits[0], b.verdict, bits[1])
    worse, other = bits if a.verdict in FLAGGED else bits[::-1]
    return worse < other and not _core.diff_alike("reduced", bits[0], "reduced", bits[1])


def home_of(trace: _core.Trace) -> str:
    """The device type that calls of a trace compute on: where none does, the CPU."""
    for sequence in trace.select():
        for item in trace.call(sequence)["tensors"]:
            kind = (item["device"] or "cpu").partition(":")[0]
            if kind not in ("cpu", "meta"):
                return kind
    return "cpu"
