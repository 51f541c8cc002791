# SPDX-License-Identifier: Apache-2.0
"""`ulpscope check` in a worker (`worker`): the calls of a trace, judged on a device one by one, and
what the coordinator is told of each. Everything that a call needs is loaded with this, before
the first one's time begins to count.
"""

from __future__ import annotations

import copy
import json
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from .. import _core
from ..calls.api_backward import backward_call, forward_of
from ..calls.autocast import InParts, settle
from ..calls.contents import Reader
from ..calls.foreign import foreign, is_ours, our_words
from ..calls.read_call import call_from
from ..calls.replay import BadCall, Call, is_collective, is_composite
from ..calls.verdicts import FLAGGED, UNKNOWN, rank
from ..causes import host
from ..causes.groups import SEARCHES
from ..executors import formulas, module_call, memory_limit
from ..executors.device import DeviceDied, TorchDevice, open_device
from ..executors.operands import Timing
from ..executors.threads import Threads
from ..judges import impact, standards, wording
from ..judges.usual import is_usual
from ..calls.ranks import Ranks
from ..calls.standin import stand_in
from . import collectives, judging, selftest
from .departing import departure, first_flagged
from .earlier import Earlier


if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any
    from .judging import Verdict


class SharedGroups:
    """What is known of groups of findings, which the coordinator keeps for all workers."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel

    def ask(self, group: str, heard: int) -> tuple[list[Any], bool]:
        """As `causes.groups.Known.ask`; waits where somebody else searches."""
        self.channel.send(group=group, heard=heard, most=SEARCHES)
        answer = json.loads(sys.stdin.readline())
        return answer["causes"], answer["search"]

    def found(self, group: str, cause: str) -> None:
        """As `causes.groups.Known.found`."""
        self.channel.send(found=group, text=cause)


def rebuilt(trace: _core.Trace, trace_id: str, row: dict[str, Any], device: Any = None) -> Call:
    """The call that a row of a trace tells of, for a device to run: each has its own list of what
    autocast rounds."""
    forward = forward_of(row)
    made = lambda tensor: stand_in(trace_id, row["sequence"], tensor, None if forward else row)  # noqa: E731
    if forward is None:
        call = call_from(row, Reader(trace), made)
    else:
        call = backward_call(row, trace.call(forward), Reader(trace), made)
    if is_composite(call) and call.autocast:
        try:
            settle(call, device if isinstance(device, TorchDevice) else None)
        except (RuntimeError, TypeError, ValueError) as problem:
            foreign(problem)
            settle(call)  # what the device refuses it will refuse where it is judged
    return call


class Bench:
    """Everything a worker holds while it works: trace, device, channel."""

    def __init__(self, settings: dict[str, Any], channel: Any) -> None:
        formulas.load()
        self.channel, self.path = channel, settings["trace"]
        self.repeat, self.bisects = settings.get("repeat", 2), settings.get("bisect", False)
        self.rule, self.compared = standards.chosen(settings["standard"], settings["compare"])
        self.trace = _core.Trace(self.path)
        self.device = open_device(settings["device"], settings["home"], settings["via"], self.mark)
        self.threads, self.fair = Threads(settings["threads"]), settings["memory"]
        self.trace_id, self.causes = settings["trace_id"], settings["causes"]
        self.groups, self.earlier = host.Groups(SharedGroups(channel)), Earlier()
        self._ranks: Ranks | None = None
        self._row: dict[str, Any] | None = None
        self._phase: str | None = None  # of the call in work
        self._fired: set[str] = set()

    @property
    def ranks(self) -> Ranks:
        """The traces of all ranks, opened for the first collective."""
        if self._ranks is None:
            self._ranks = Ranks(self.path)
        return self._ranks

    def call(self, sequence: int, module: dict[str, Any] | None = None) -> Call:
        """The call, or the forward of a module, rebuilt from the trace."""
        if not module:
            return rebuilt(self.trace, self.trace_id, self.row(sequence), self.device)
        made = lambda tensor: stand_in(self.trace_id, sequence, tensor, None)  # noqa: E731
        return module_call.module_call(module, self.trace.call, self.trace.blob, made)

    def row(self, sequence: int) -> dict[str, Any]:
        """What the trace tells of a call; the last one is kept."""
        if self._row is None or self._row["sequence"] != sequence:
            self._row = self.trace.call(sequence)
        return self._row

    def mark(self, phase: str) -> None:
        """Tells of a phase that begins, unless it is in that one, and bounds what it may take."""
        if phase != self._phase:
            self._phase = phase
            self.channel.phase(phase)
            memory_limit.limit(phase)

    def judge(self, sequence: int, timing: Timing, module: dict[str, Any] | None = None) -> tuple[Call, Verdict]:
        since = time.perf_counter_ns()
        call = self.call(sequence, module)
        timing.wide += time.perf_counter_ns() - since
        return call, judging.judge_call(call, self.device, timing, self.mark, self.rule, seconds=0, repeat=self.repeat)

    def fired(self) -> list[str]:
        """Planted faults that fired since this was asked last, by their texts."""
        sim = sys.modules.get("ulpscope.sim")
        now = {f["fault"] for f in sim.faults_fired() if f["fired"]} if sim else set()
        new, self._fired = sorted(now - self._fired), now
        return new

    def work(self, request: dict[str, Any]) -> tuple[dict[str, Any], bool, Callable[..., Any] | None]:
        """The row for one request, whether the device survived, and a function that gives the
        row with the cause, None where none is to be sought."""
        timing = Timing()
        sequence = request["call"]
        memory_limit.share(max(request.get("room", 0), self.fair) if "room" in request else 0)
        memory_limit.limit("device")
        self._phase = "device"  # which the coordinator takes for granted
        if request.get("self_test"):
            return self.probe(sequence), True, None
        try:
            return self.judged(request, timing)
        except BadCall as problem:
            row = self.plain(sequence, "unjudged", str(problem), request)
            return row | {"unknown": problem.importable}, True, None
        except DeviceDied as problem:
            return self.plain(sequence, "crashed", f"the device reports: {problem}", request), False, None
        except _core.CorruptError:
            raise  # nothing that is read from this trace can be trusted
        except Exception as problem:  # ours, or a device with errors of its own kind
            if is_ours(problem):
                return self.plain(sequence, "internal", our_words(problem), request), True, None
            why = f"the check of it failed, {type(problem).__name__}: {problem}"
            return self.plain(sequence, "unjudged", why, request), True, None

    def judged(self, request: dict[str, Any], timing: Timing) -> tuple[dict[str, Any], bool, Callable[..., Any] | None]:
        """What `work` gives for a call that can be judged."""
        sequence, module, below = request["call"], request.get("module"), None
        since = time.perf_counter_ns()
        self.threads.suit(None if module else self.row(sequence))
        collective = not module and is_collective(self.row(sequence)["op"])
        timing.wide += time.perf_counter_ns() - since
        if collective:
            call, verdict = self.collective(sequence, timing)
        else:
            try:
                call, verdict = self.judge(sequence, timing, module)
            except InParts as problem:
                call, verdict = self.by_parts(request.get("children", ()), timing, problem)
            if verdict.verdict in FLAGGED and not verdict.culprit and request.get("children") and not self.bisects:
                below = self.name_culprit(verdict, request["children"], timing)
            if self.compared:
                judging.compare_standards(self.compared, call, self.device, verdict, timing)

        effect = [] if collective else self.loss_effect(call, verdict, request.get("backward"))
        if not collective and self.rule is None and verdict.verdict in FLAGGED:
            effect += [(-1, "usual", 1.0, None)] if is_usual(call, verdict) else []

        named = call
        if not collective and not module and call.op != self.row(sequence)["op"]:  # one of its parts stands for it
            named = copy.copy(call)
            named.op = self.row(sequence)["op"]

        def told() -> dict[str, Any]:
            row = wording.row(named, verdict, timing.row(), self.is_brief(verdict))
            row["metrics"] += effect + (module_call.arguments(call) if module else [])
            return row

        search = self.search(call, verdict, below, timing, told)
        if self.bisects and module and verdict.verdict in FLAGGED:
            search = self.bisect(module, verdict, timing, search or told)
        if not collective and not module and verdict.answer is not None and self.causes:
            self.earlier.keep(sequence, verdict.answer)
        verdict.cause = verdict.cause or (UNKNOWN if search else "")
        row = told()
        if search:  # a run that is cut short before the cause comes does the call again
            verdict.cause = ""
            row["metrics"].append((-1, "searching", 1.0, None))
        return row, True, search

    def is_brief(self, verdict: Verdict) -> bool:
        """Whether nobody reads the metrics of its row."""
        return False

    def search(
        self,
        call: Call,
        verdict: Verdict,
        below: tuple[Call, Verdict] | None,
        timing: Timing,
        told: Callable[[], dict[str, Any]],
    ) -> Callable[..., Any] | None:
        """A function that seeks the cause and gives the row with it; None where there is nothing
        to be sought. The verdict of the culprit below has the better cause."""
        if verdict.verdict not in FLAGGED or verdict.cause or verdict.operands is None:
            return None
        if self.rule is not None or not self.causes:
            return None
        if verdict.answer is not None:
            self.earlier.beside(verdict.answer)

        def run() -> Any:
            if below is not None:
                judging.explain(*below, timing, self.causes, self.groups)
                verdict.cause = below[1].cause if host.is_named(below[1].cause) else ""
            judging.explain(call, verdict, timing, self.causes, self.groups)
            return told()

        return run

    def bisect(
        self, module: dict[str, Any], verdict: judging.Verdict, timing: Any, then: Callable[[], dict[str, Any]]
    ) -> Callable[[], dict[str, Any]]:
        """A function that says where the device departs in a forward, and does what follows."""

        def verdict_of(n: int) -> str:
            try:
                return self.judge(module["source"]["sequence"], timing, cut_at(n))[1].verdict
            except BadCall:
                return "unjudged"

        def cut_at(n: int) -> Any:
            return module_call.first_calls(module, n, self.trace.call)

        def named(n: int) -> tuple[str, str]:
            row = self.trace.call(module["calls"][n - 1])
            return row["op"], f"{row['op']} (call {row['sequence']})"

        def tapped() -> int:
            if not self.device.taps:
                return 0
            try:
                whole = module_call.all_values(module, self.trace.call)
                found: Any = self.judge(module["source"]["sequence"], timing, whole)
                return first_flagged(found[0], found[1], [self.trace.call(s) for s in whole["calls"]])
            except BadCall:
                return 0

        def run() -> dict[str, Any]:
            good, bad, word = departure(len(module["calls"]), verdict.verdict, verdict_of, tapped())
            if bad - good == 1:
                verdict.culprit = named(bad)[0]
            before = f"up to {named(good)[1]} it passes, " if good else ""
            verdict.remarks = [*verdict.remarks, f"{before}up to {named(bad)[1]} it is {word}"]
            return then()

        return run

    def collective(self, sequence: int, timing: Timing) -> tuple[Call, Verdict]:
        """A collective and its verdict: judged as captured, since it cannot run alone."""
        self.mark("reference")
        call, verdict = collectives.judge(self.ranks, self.row(sequence), timing, self.rule)
        if self.compared:
            verdict.remarks = [*verdict.remarks, "no other standard is compared: they know no collectives"]
        return call, verdict

    def loss_effect(
        self, call: Call, verdict: Verdict, backward: dict[str, Any] | None
    ) -> list[tuple[int, str, float, Any]]:
        """The metric that tells what the error means for the loss, as a list; empty where
        the trace does not tell."""
        reference = verdict.operands.reference if verdict.operands else None
        if reference is None or verdict.answer is None or call.made_up or call.composite:
            return []
        try:
            found = impact.loss_effect(self.trace, call, verdict.answer.outputs, reference.truth, backward or {})
        except _core.CorruptError:
            raise
        except Exception as problem:  # a trace that names what it does not hold: the verdict stands
            foreign(problem)
            return []
        return [] if found is None else [(-1, "loss", found, None)]

    def probe(self, sequence: int) -> dict[str, Any]:
        """What the verdict would have caught on a call: no row, `session.selftest` keeps it."""
        self.channel.phase("reference")
        if is_collective(self.row(sequence)["op"]):
            return {"self_test": {"skipped": "a collective is judged as captured, nothing is planted"}}
        try:
            return {"self_test": selftest.probe_apart(self.call(sequence))}
        except Exception as problem:
            foreign(problem)
            return {"self_test": {"skipped": f"no reference: {problem}"[:200]}}

    def plain(self, sequence: int, verdict: str, reason: str, request: dict[str, Any]) -> dict[str, Any]:
        """A row for a call of which nothing could be measured."""
        module = request.get("module")
        source = module["source"] if module else self.row(sequence)
        return {"verdict": verdict, "sentence": f"{source['op']}: {reason}"}

    def below(self, children: Iterable[int], timing: Timing) -> Iterator[tuple[Call, Verdict]]:
        """(call, verdict) of the calls below one, one after the other, as far as they can be judged."""
        for sequence in children:
            if is_collective(self.row(sequence)["op"]):
                continue
            try:
                judged = self.judge(sequence, timing)
            except BadCall:
                continue
            yield judged

    def by_parts(self, children: Iterable[int], timing: Timing, problem: BaseException) -> tuple[Call, Verdict]:
        """The call with the worst verdict on the calls below it, which is its own then."""
        worst = None
        for call, verdict in self.below(children, timing):
            if verdict.verdict != "unjudged" and (worst is None or rank(verdict.verdict) < rank(worst[1].verdict)):
                worst = call, verdict
        if worst is None:
            raise problem
        call, verdict = worst
        if verdict.verdict != "pass":
            verdict.culprit = call.op
        verdict.remarks = [*verdict.remarks, f"judged by the operators below it: {problem}"]
        return call, verdict

    def name_culprit(self, verdict: Verdict, children: Iterable[int], timing: Timing) -> tuple[Call, Verdict] | None:
        """Replays the ATen calls below a call that did not pass: the first that does not
        pass either, with its verdict, is where the fault lies. None where all pass."""
        for call, below in self.below(children, timing):
            if below.verdict in FLAGGED:
                verdict.culprit = call.op
                return call, below
        return None
