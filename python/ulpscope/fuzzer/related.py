# SPDX-License-Identifier: Apache-2.0
"""`ulpscope fuzz --relations`: a case that passes is put to the device once more in another form, by
one relation that holds for it (`fuzzer.relations`), and what it gives is held to the same reference by the
same rule: two answers to one call. Needs of torch what judging needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from .. import _core
from .._core import Finding, Findings
from ..calls.foreign import foreign
from ..calls.raw_bytes import same_bytes
from ..calls.replay import Call, Unsupported, base_name, draws_random, promises_nothing
from ..calls.verdicts import FLAGGED
from ..executors.device import DeviceDied
from ..executors.directional import Gradient
from ..executors.operands import Timing
from .relations import RELATIONS
from ..calls.trusting import TRUSTING
from ..session.judging import Verdict, verdict_on

GRADIENT = "gradient"
NAMES = (*RELATIONS, GRADIENT)


def relate(
    call: Call, device: Any, verdict: Verdict, number: int, only: Sequence[str] = NAMES, timing: Timing | None = None
) -> Verdict:
    """
    The verdict on a case with what one relation says of it: of `only`, in an order that `number`
    gives, the first that can be put to the device. That of the call itself where none can, or
    where it is accused already.
    """
    if verdict.verdict in FLAGGED or verdict.answer is None or draws_random(call) or promises_nothing(call):
        return verdict
    at = number % len(only)
    for name in (*only[at:], *only[:at]):
        found = (
            _gradient(call, device, number) if name == GRADIENT else _held(call, device, verdict, name, number, timing)
        )
        if found is not None:
            verdict.remarks = [*verdict.remarks, f"relation {name}"]
            return found if found.verdict in FLAGGED else verdict
    return verdict


def _held(call, device, verdict, name, number, timing):
    """The verdict on the variant of a relation; None where there is none or nobody takes it."""
    make, what, exact = RELATIONS[name]
    try:
        variant = make(call, verdict.answer, number)
        answers = [device.run(part) for part in variant.calls] if variant is not None else []
        outputs = variant.back([a.outputs for a in answers]) if variant is not None else None
    except DeviceDied:
        raise
    except (Unsupported, RuntimeError, TypeError, ValueError, LookupError) as problem:
        foreign(problem)
        return None  # not a call that this operator takes
    if outputs is None or outputs.keys() != verdict.answer.outputs.keys():
        return None
    trespass = next((a.trespass for a in answers if a.trespass), "")
    given = replace(verdict.answer, outputs=outputs, trespass=trespass)
    if not trespass and all(same_bytes(t, outputs[p]) for p, t in verdict.answer.outputs.items()):
        return verdict
    found = _judged(call, verdict, given, exact, timing or Timing())
    if found is not None and found.verdict in FLAGGED:
        found.cause = f"the relation {name} does not hold: {what} must give the same"
        found.remarks = [*verdict.remarks, f"relation {name}: the call itself is {verdict.verdict}"]
    return found


def _judged(call, verdict, given, exact, timing):
    """The verdict on what a variant gave. Without a reference only what must have the same bits
    can be told."""
    if verdict.operands is not None:
        return _no_worse(call, verdict, verdict_on(call, given, timing, verdict.operands), timing)
    if not exact:
        return None
    own = verdict.answer.outputs
    path = next(p for p, t in own.items() if not same_bytes(t, given.outputs[p]))
    differ = int((own[path] != given.outputs[path]).sum()) if own[path].shape == given.outputs[path].shape else 0
    if not differ:  # NaN and signs of zero
        return verdict
    why = f"{differ:,} of {own[path].numel():,} elements of {path} are not the same"
    return Verdict.of(Findings([Finding(path, "wrong", why)]), answer=given)


def _no_worse(call, verdict, found, timing):
    """The verdict on a variant; that on the call where its own answer, by the same rule and without what it
    was forgiven, is as bad."""
    if found.verdict not in FLAGGED or found.worst is None:
        return found
    own = verdict_on(call, verdict.answer, timing, verdict.operands)
    alike = own.verdict in FLAGGED and own.worst is not None and _core.no_worse(found.worst, own.worst)
    return verdict if alike else found


def _gradient(call, device, number):
    """The verdict on the gradient of a call against directional differences; None where it has none."""
    if base_name(call.op)[1] in TRUSTING:
        return None
    try:
        said = Gradient(call, device).held(number)
    except (RuntimeError, TypeError, ValueError, LookupError, Unsupported) as problem:
        foreign(problem)
        return None
    if said is None:
        return None
    if not said:
        return Verdict("pass")
    found = Verdict.of(Findings([Finding("", "wrong", said)]))
    found.cause = "the relation gradient does not hold: the gradient is not the slope of the operator"
    return found
