# SPDX-License-Identifier: Apache-2.0
"""One call, one verdict: what the device gave, judged output by output (`judges.outputs`), with
second opinions and the cause. Nothing here raises because of what an operator or a device
does: that is a verdict."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from .._core import Finding, Findings
from ..calls.callable import as_numbers
from ..calls.contents import LARGE
from ..calls.exact import carries
from ..calls.foreign import foreign, tried
from ..calls.raw_bytes import same_bytes
from ..calls.replay import Call, Unsupported, draws_random, written_names
from ..calls.verdicts import FLAGGED, clause
from ..causes import claims, host
from ..executors.device import Answer, DeviceDied, SCRATCH, lacks, learn_writes, unsaid_writes
from ..executors.operands import Operands, Timing
from ..executors.precision import schema_tells
from ..executors.reference_runs import DrawsUnsaid, Reference
from ..executors.registered import registered
from ..executors.repeats import CAPTURED, ONCE_MORE, make_brief, same_bits, settle
from ..executors.streams import kept_state, one_thread
from ..executors.threads import is_small
from ..judges import standards as _standards
from ..judges.calm import calm_call
from ..judges.draws.random_operators import judge_draws
from ..judges.outputs import judge_answer
from ..judges.own_steps import steps_anywhere, steps_of
from ..judges.refused import without_reference

if TYPE_CHECKING:
    from .. import _core
    from ..judges.standards import Opinion

SEED = 0x0DD_5EED  # what a device is asked to repeat itself with


@dataclass
class Verdict:
    """What is said of one call: what was found, and what is known of it besides."""

    verdict: str
    findings: Findings = field(default_factory=Findings)
    reason: str = ""
    cause: str = ""
    causes: dict[int, str] = field(default_factory=dict)  # of findings that are not the worst, by number
    culprit: str = ""
    remarks: list[str] = field(default_factory=list)  # notes on the call itself
    answer: Answer | None = None
    operands: Operands | None = None
    opinions: list[Opinion] = field(default_factory=list)  # of other standards
    internal: str = ""  # a mistake of ours in a run that judged nobody, or in the search for a cause
    part: Any = None  # the Piece of a large call that the operands are of

    @classmethod
    def of(cls, findings: _core.Findings, **rest: Any) -> Verdict:
        """That of the finding that decides."""
        worst = findings.worst
        assert worst is not None  # there is a finding at the least
        return cls(worst.verdict, findings, **rest)

    @property
    def worst(self) -> _core.Finding | None:
        """The finding that decides; None where there is none."""
        return self.findings.worst

    @property
    def notes(self) -> list[str]:
        """Those of the outputs and those on the call."""
        return [*self.findings.notes, *self.remarks]


def judge_call(
    call: Call,
    device: Any,
    timing: Timing | None = None,
    mark: Callable[[str], Any] = lambda phase: None,
    rule: Any = None,
    seconds: float = host.SECONDS,
    repeat: int = 2,
) -> Verdict:
    """
    Judges one call on a device, by another standard where `rule` is one, and spends `seconds`
    on the cause of what it finds. Our own rule sees the answers of `repeat` runs, two at the
    least of a call that it accuses.

    `mark(phase)` is told "device", "reference" before each part begins, so that whoever
    watches this process knows where it died. Raises DeviceDied only.
    """
    timing = timing or Timing()
    mark("device")
    now = time.perf_counter_ns()
    try:
        answer = device.run(call)
        if learn_writes(call) if answer.trespass else _expects_more(call, mark):
            mark("device")
            answer = device.run(call)
    except Unsupported as problem:
        return _refused(call, str(problem))
    except DeviceDied:
        raise
    except Exception as problem:
        foreign(problem)
        return Verdict("unjudged", reason=f"the call could not be run, {type(problem).__name__}: {clause(problem)}")
    finally:
        timing.add("device", now)
    mark("reference")
    verdict = _judge_ran(call, device, answer, timing, mark, rule, repeat)
    verdict.remarks = verdict.remarks + answer.notes
    if rule is None:
        explain(call, verdict, timing, seconds)
        _tell_unwritten(call, verdict)
    return verdict


def _tell_unwritten(call: Call, verdict: Verdict) -> None:
    """Makes `wrong` what is accused of an argument that the CPU's kernel writes, unsaid by the schema, and the
    device left as it was, however near that lies."""
    if verdict.verdict not in FLAGGED or call.schema is None or verdict.answer is None:
        return
    said, answer = written_names(call.function), verdict.answer
    unsaid = {p for p in call.mutated if p in call.views and call.views[p].argument not in said}
    accused = dict.fromkeys(f.path for f in verdict.findings if f.verdict in FLAGGED and f.path in unsaid)
    left = [p for p in accused if p in answer.before and same_bytes(answer.outputs[p], answer.before[p])]
    if left:
        names = ", ".join(f"{call.views[p].argument} ({p})" for p in left)
        verdict.findings.extend([Finding("", "wrong", f"did not write {names}, which the CPU's own kernel writes")])
        worst = verdict.worst
        assert worst is not None
        verdict.verdict = worst.verdict


def _expects_more(call: Call, mark: Callable[[str], Any]) -> bool:
    """Whether the CPU's own kernel writes what the schema does not say, which the device must write, too: marked
    as written now. One run more on the CPU, and only where schemas do not tell. What lies in a storage of which
    it is said that it is written may be part of that, and is not expected."""
    written = call.written()
    if call.composite or call.schema is None or schema_tells(call, written) or draws_random(call):
        return False
    mark("reference")
    said = {call.views[path].storage for path in written}
    own = call.function if registered(call.op) else None  # a reference may use up what it is given
    with kept_state():
        hidden = unsaid_writes(call, own)
    more = {p: v for p, v in hidden.items() if v.storage not in said and v.argument not in SCRATCH}
    call.mutated.update(more)
    return bool(more)


def _judge_ran(
    call: Call, device: Any, answer: Answer, timing: Timing, mark: Callable[[str], Any], rule: Any, repeat: int
) -> Verdict:
    """The verdict on a call that the device answered."""
    if rule is not None:
        return judge_by(rule, call, answer, timing, _standards.benchmark_of(call, device))
    if draws_random(call):
        return _judge_draws(call, device, answer, timing, mark)
    steps = steps_of(call, device)
    try:
        verdict = verdict_on(call, answer, timing, steps=steps)
    except DrawsUnsaid:
        return _judge_draws(call, device, answer, timing, mark)
    if verdict.operands is None:
        return verdict
    return _settle(call, device, verdict, timing, mark, repeat, steps)


def judge_by(
    rule: Any,
    call: Call,
    answer: Answer,
    timing: Timing | None = None,
    benchmark: dict[str, torch.Tensor] | None = None,
) -> Verdict:
    """The verdict that another standard gives on an answer: pass, wrong or unjudged."""
    operands = Operands(call, timing or Timing())
    said = _standards.opinions([rule], call, answer, operands, benchmark)[0]
    found = _standards.findings(said, answer)
    return Verdict(said.verdict, found, said.text(), answer=answer, operands=operands, opinions=[said])


def compare_standards(standards: Iterable[Any], call: Call, device: Any, verdict: Verdict, timing: Timing) -> None:
    """Adds to a verdict what other standards say of the answer that it is about."""
    operands, answer = verdict.operands or Operands(call, timing), verdict.answer or device.run(call)
    if verdict.part is not None:  # which the operands are of
        call, answer = verdict.part.call, verdict.part.answer
    benchmark = _standards.benchmark_of(call, device)
    verdict.opinions += _standards.opinions(standards, call, answer, operands, benchmark)


def _refused(call: Call, text: str) -> Verdict:
    """The device raised: it lacks the operator, or refuses what the CPU accepts."""
    if lacks(text):
        return Verdict("unsupported", reason=text)
    if Reference(call).native() is None:
        return Verdict("unjudged", reason=f"device and CPU both refuse the call: {text}")
    return Verdict("unsupported", reason=f"the device refuses what the CPU accepts: {text}")


def judge_drawn(call: Call, answer: Answer, again: Answer | None = None) -> Verdict:
    """The verdict on an answer that holds random draws; `again` is a second one."""
    verdict = Verdict.of(judge_draws(call, answer, again), answer=answer)
    verdict.cause = claims.of_draws(verdict)
    return verdict


def _judge_draws(call: Call, device: Any, answer: Answer, timing: Timing, mark: Callable[[str], Any]) -> Verdict:
    """Judges draws, with what only further calls can show: that two of them differ, and
    that a seed brings the same ones back where the device promises it."""
    mark("device")
    now = time.perf_counter_ns()
    try:
        again, seeded = device.run(call), _seeded(call, device)
    except (Unsupported, RuntimeError):
        again, seeded = None, None
    timing.add("device", now)
    mark("reference")
    now = time.perf_counter_ns()
    verdict = judge_drawn(call, answer, again)
    live = _live_answer(call, device, answer)
    if live is not None:
        judged = judge_drawn(call, live)
        if judged.verdict in FLAGGED and verdict.verdict not in FLAGGED:
            verdict = judged
            verdict.remarks.append("seen in the captured run")
    if verdict.verdict == "pass" and seeded and not same_bits(*seeded):
        why = "the same seed does not give the same numbers"
        verdict.findings, verdict.verdict = Findings([Finding("", "wrong", why)]), "wrong"
        verdict.cause = claims.of_draws(verdict)
    timing.add("judge", now)
    return _with_twin(call, device, verdict, timing, mark)


def _with_twin(call: Call, device: Any, verdict: Verdict, timing: Timing, mark: Callable[[str], Any]) -> Verdict:
    """The verdict on draws of which only the spread could be tested, with that on the same
    call without chance."""
    calm = calm_call(call) if verdict.findings.want_calm else None
    if calm is None:
        return verdict
    mark("device")
    try:
        answer = device.run(calm[0])
        mark("reference")
        twin = verdict_on(calm[0], answer, timing, steps=steps_of(calm[0], device))
    except (Unsupported, RuntimeError, DrawsUnsaid):
        return verdict
    return calmed(verdict, twin, calm[1])


def calmed(verdict: Verdict, calm: Verdict, said: str) -> Verdict:
    """The verdict on draws with that on the call without chance, `said` being set."""
    accuses, taken, note = verdict.findings.calmed(calm.findings, calm.verdict, said)
    if accuses:
        calm.remarks = [*calm.remarks, note]
        return calm
    if taken:
        verdict.verdict, verdict.remarks = "pass", [*calm.remarks, note]
    return verdict


def _seeded(call: Call, device: Any) -> list[Answer] | None:
    """Two answers after the same seed; None for a callable, which promises nothing."""
    if not hasattr(device, "place"):
        return None
    answers = []
    with kept_state([*call.args, *call.kwargs.values()]):
        for _ in range(2):
            torch.manual_seed(SEED)
            answers.append(device.run(call))
    return answers


def verdict_on(
    call: Call,
    answer: Answer,
    timing: Timing,
    operands: Operands | None = None,
    narrow: bool = True,
    steps: Callable[[int], dict[str, torch.Tensor] | None] = lambda k: None,
) -> Verdict:
    """The verdict over one answer, by a device that takes the call apart into such `steps`; `unjudged` with the
    reason where anything fails."""
    try:
        small = is_small((v.sizes for v in call.views.values()), (t.shape for t in answer.outputs.values()))
        with one_thread() if small else contextlib.nullcontext():
            findings, operands, part = judge_answer(call, answer, timing, operands, narrow, steps)
    except DrawsUnsaid:
        raise
    except Exception as problem:
        foreign(problem)
        verdict, reason = without_reference(call, problem)
        return Verdict(verdict, reason=reason, answer=answer)
    return Verdict.of(findings, answer=answer, operands=operands, part=part, internal=operands.internal)


def judge_given(
    call: Call,
    answer: Answer,
    others: Sequence[Answer] = (),
    seconds: float = host.SECONDS,
    operands: Operands | None = None,
) -> Verdict:
    """The verdict on what some device gave for a call, `others` when it was asked again; `operands` of the
    same call on the same inputs, where it was judged before."""
    timing, steps = Timing(), steps_anywhere(call)
    try:
        verdict = _on_draws_where_it_draws(call, verdict_on(call, answer, timing, operands, steps=steps))
    except DrawsUnsaid:
        return judge_drawn(call, answer, *others[:1])
    verdict = settle(
        verdict,
        [(ONCE_MORE, other) for other in others],
        lambda other: verdict_on(call, other, timing, verdict.operands, steps=steps),
    )
    explain(call, verdict, timing, seconds)
    judged: Verdict = verdict
    return judged


def _on_draws_where_it_draws(call: Call, verdict: Verdict) -> Verdict:
    """A verdict that accuses; where the operator turns out to draw random numbers, the verdict
    on its draws."""
    if (
        verdict.verdict in FLAGGED
        and verdict.operands is not None
        and verdict.answer is not None
        and verdict.operands.reference.is_random(numbers=8192)
    ):
        return _unsaid(judge_drawn(call, verdict.answer))
    return verdict


def explain(call: Call, verdict: Verdict, timing: Timing, seconds: float = host.SECONDS, groups: Any = None) -> None:
    """Adds the cause to a verdict that accuses; without numbers there is none to be sought."""
    if verdict.operands is None or verdict.verdict not in FLAGGED or not seconds:
        return
    now = time.perf_counter_ns()
    with tried(lambda words: setattr(verdict, "internal", words)):  # the verdict stands without
        if verdict.part is None:
            host.add_cause(call, verdict, seconds, groups)
        else:
            part = replace(verdict, answer=verdict.part.answer)
            host.add_cause(verdict.part.call, part, seconds, groups)
            verdict.cause, verdict.causes, verdict.internal = part.cause, part.causes, part.internal
    timing.add("causes", now)


def _unsaid(verdict: Verdict) -> Verdict:
    """The verdict on draws that an operator does not admit: values that nothing but their
    spread speaks for do not acquit what was accused."""
    verdict.findings.unsaid()
    worst = verdict.worst
    assert worst is not None
    verdict.verdict = worst.verdict
    return verdict


def _settle(
    call: Call,
    device: Any,
    verdict: Verdict,
    timing: Timing,
    mark: Callable[[str], Any],
    repeat: int,
    steps: Callable[[int], dict[str, torch.Tensor] | None],
) -> Verdict:
    """Second opinions: the captured run's own results, more runs of the device, and whether
    the operator is deterministic at all."""
    operands = verdict.operands
    assert verdict.answer is not None  # the device gave one
    if verdict.verdict in FLAGGED:
        repeat = max(repeat, 2)
    large = verdict.verdict == "pass" and _takes_room(call, verdict)
    if large:  # there is room for one at a time
        _make_room(verdict)

    def judge(answer: Answer | Verdict) -> Verdict:
        if isinstance(answer, Verdict):
            return answer
        return verdict_on(call, answer, timing, operands, steps=steps)

    answers = _more_answers(call, device, verdict.answer, timing, mark, repeat)
    verdict = settle(verdict, answers, judge)
    if large and verdict.verdict == "pass":
        verdict.answer = None
    return verdict if verdict.operands is None else _on_draws_where_it_draws(call, verdict)


def _takes_room(call: Call, verdict: Verdict) -> bool:
    """Whether an answer that was judged in pieces, or by its bytes, holds much memory of its own."""
    assert verdict.answer is not None  # which was judged
    if verdict.part is None and not carries(call.op):
        return False
    outputs = verdict.answer.outputs.values()
    shown = any(t.nbytes > t.untyped_storage().nbytes() for t in outputs)  # what is expanded holds little
    return not shown and sum(t.nbytes for t in outputs) >= LARGE


def _make_room(verdict: Verdict) -> None:
    """Leaves of a large answer that passes what it can be compared by."""
    if verdict.part is not None:  # a view of it
        kept = verdict.part.answer
        kept.outputs = {p: t.clone() for p, t in kept.outputs.items()}
    if verdict.answer is not None:
        make_brief(verdict.answer)


def _more_answers(
    call: Call, device: Any, first: Answer, timing: Timing, mark: Callable[[str], Any], repeat: int
) -> Iterator[tuple[int, Answer | Verdict]]:
    """The captured run's answer, and further runs until there are `repeat`."""
    live = _live_answer(call, device, first)
    if live is not None:
        yield CAPTURED, live
        live = None
    for _ in range(repeat - 1):
        mark("device")
        now = time.perf_counter_ns()
        try:
            answer = device.run(call)
        except DeviceDied:
            raise
        except (Unsupported, RuntimeError) as problem:
            if "memory" in str(problem).lower():
                return
            answer = Verdict("crashed", reason=f"raises: {clause(problem)}")
        finally:
            timing.add("device", now)
        mark("reference")
        yield ONCE_MORE, answer
        answer = None


def _live_answer(call: Call, device: Any, answer: Answer) -> Answer | None:
    """What the captured run got, where it ran on this type of device and all was kept."""
    if device.type != device.home or call.live is None or call.made_up:
        return None
    outputs = {}
    for path in answer.outputs:
        role = "mutated" if path in call.views else "out"
        tensor = call.live(path, role)
        if tensor is None:
            return None
        outputs[path] = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return type(answer)(as_numbers(call, outputs), "", answer.before)
