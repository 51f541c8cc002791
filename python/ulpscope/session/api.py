# SPDX-License-Identifier: Apache-2.0
"""Verdicts for kernel authors: `judge_call` on outputs that some device gave, `check_call`
on what a callable computes. Bound in `ulpscope`; described in docs/reference/python.md."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ..calls.callable import call_of, name_of
from ..calls.foreign import foreign, theirs
from ..calls.gradients import differentiated
from ..calls.operator_call import operator_call
from ..calls.replay import Unsupported
from ..calls.call_results import flatten, plain
from ..calls.torch_private import OpOverload, packet_name
from ..calls.verdicts import FLAGGED, clause
from ..causes import host
from ..executors import registered
from ..executors.device import DeviceDied, open_device
from ..executors.streams import kept_state
from ..executors.warm import warm
from ..judges import standards
from ..judges.calm import calm_arguments, calm_module
from . import stress
from .as_written import as_written
from .call_verdict import CallVerdict, OutputVerdict, public
from .given_outputs import by_order, given_answer, moved_to, run_on
from .judging import Verdict, calmed, judge_by, judge_drawn, judge_given

LISTENERS: list[Callable[..., Any]] = []  # functions of (name, Call or None, Verdict), told of every judged call


# ---- the two entrances ---------------------------------------------------------------


def judge_call(
    fn: Callable[..., Any],
    args: Iterable[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    outputs: Any = None,
    *,
    mutated: tuple[Iterable[Any], Mapping[str, Any]] | None = None,
    standard: str | None = None,
    benchmark: Any = None,
    cause: bool | float = True,
) -> CallVerdict:
    """
    The verdict on what some device gave for `fn(*args, **kwargs)`.

    `fn` is any torch callable that the CPU can run; it is the definition that the outputs
    are held to, computed in float64. `args` and `kwargs` are as they were before the call.
    `outputs` is what the device returned: a tensor or nested tuples, lists and dicts of
    them. `mutated=(args, kwargs)` are the arguments as the device left them; without it
    only what was returned is judged. Of an operator in place `outputs` may be None beside it.

    `standard` names another rule, e.g. "torch-close" or "allclose:1e-3,1e-3"
    (docs/reference/metrics.md, 3): the verdict is then `pass`, `wrong` or `unjudged`, `status` is in
    that rule's words, and bits are NaN. `benchmark` is what a second device returned, for
    the standards that compare with one.

    `cause=False` leaves out the search for the cause of what is found; a number is the seconds
    that it may take for one output (default 2). It runs in a process of its own.

    Raises TypeError and ValueError for misuse; whatever else fails in an operator is `unjudged`, and what fails
    in Ulpscope itself is raised.
    """
    _check_usage(fn, args, kwargs)
    _check_mutated(fn, args, mutated)
    rule = standards.parsed(standard)
    seconds = _seconds(cause)
    fn = _registered(fn) or fn
    if rule is None:

        def judge(call: Any) -> Verdict:
            return _explained(call, _verdict(call, outputs, mutated), seconds)

        return _judged(fn, args, kwargs, judge, name_of(fn), left=mutated is not None)
    by = _judged(fn, args, kwargs, lambda call: _by(rule, call, outputs, mutated, benchmark), name_of(fn))
    by.standard = rule.name
    return by


def check_call(
    fn: Callable[..., Any],
    args: Iterable[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    reference: Callable[..., Any] | None = None,
    device: str | torch.device | None = None,
    backward: bool = False,
    inputs: str = "given",
    repeat: int = 3,
    cause: bool | float = True,
    double_backward: bool = False,
    via: str = "",
) -> CallVerdict:
    """
    Runs `fn(*args, **kwargs)`, on `device` if one is named, and gives the verdict on what
    it computed against `reference` (default: `fn` itself), which runs on the CPU in float64.

    `backward=True` judges the gradients of all float inputs as well, for one cotangent that
    is the same at every call; `double_backward=True` also the gradients of these, for another cotangent, with
    respect to the inputs and the first cotangent. Exceptions of `fn` itself are passed on.

    `inputs="stress[:SEED[:CASES]]"` takes the arguments as an example and checks the calls
    on which kernels break; the verdict is that of the worst one, `.cases` holds them all.

    `fn` runs `repeat` times on the same arguments, and every answer that differs in a bit is
    judged: `intermittent` where one is not acceptable, a note with the spread where all are.
    `cause` is as for judge_call. ValueError where there is no such device.

    `via` names a compiler or a runtime (docs/reference/via.md) that is handed all of `fn` as one graph, or "triton",
    whose interpreter runs the Triton kernels that `fn` launches, in a process of its own. What it refuses is
    `unsupported`, what ends it `crashed`.
    """
    _check_usage(fn, args, kwargs)
    seconds = _seconds(cause)
    if repeat < 1:
        raise ValueError(f"repeat is {repeat}, not 1 or more runs")
    if device is not None:
        device = open_device(str(device)).name  # brings the package of its backend
    if reference is not None and not callable(reference):
        raise TypeError(f"reference is {type(reference).__name__}, not callable")
    reference = reference or _registered(fn)
    own = reference is None
    reference = getattr(fn, "_torchdynamo_orig_callable", fn) if own else reference
    if via:
        from ..executors.compiled import compiled_callable  # takes seconds to import

        own = own and not isinstance(fn, torch.nn.Module)  # whose state is in what is compiled
        fn = compiled_callable(fn, via, device or "cpu", backward, double_backward)
    check = _Check(fn, reference, own, device, backward or double_backward, seconds, repeat, twice=double_backward)
    if check.backward:
        check = differentiated(check)
    if inputs == "given":
        return check.run(tuple(args), dict(kwargs or {}))
    worst: CallVerdict = stress.check_all(check, tuple(args), dict(kwargs or {}), inputs)
    return worst


def check_text(
    fn: Callable[..., Any],
    args: Sequence[Any],
    device: str,
    backward: bool = False,
    double_backward: bool = False,
    cause: bool = True,
    compiled: Any = None,
) -> Any:
    """As check_call, of what is written operator by operator: where that has numbers of 16 bits, each operator
    rounds to its dtype, as the text says (`as_written`). `compiled` runs in its place, and is held to it."""
    check = _Check(
        compiled or fn,
        fn,
        True,
        open_device(str(device)).name,
        backward or double_backward,
        _seconds(cause),
        2,
        twice=double_backward,
        text=True,
    )
    return (differentiated(check) if check.backward else check).run(tuple(args), {})


def _registered(fn: Any) -> Callable[..., Any] | None:
    """What was registered as the reference of the operator that `fn` is, under the
    operator's name; None for other callables and where nothing was."""
    operator = getattr(fn, "_opoverload", fn)  # torch.library.custom_op
    name = packet_name(operator)  # all its overloads
    if isinstance(operator, OpOverload):
        name = operator._name
    found = registered.registered(name) if isinstance(name, str) else None
    if found is None:
        return None

    @functools.wraps(found)
    def formula(*args: Any, **kwargs: Any) -> Any:
        return found(*args, **kwargs)

    formula.__name__ = str(name)
    setattr(formula, "stands_for", operator)  # noqa: B010
    return formula


@dataclass
class _Check:
    """What is checked, on any arguments."""

    fn: Any
    reference: Any
    own: bool
    device: Any
    backward: bool
    seconds: float  # for the cause of a finding
    repeat: int = 1
    groups: host.Groups = field(default_factory=host.Groups)
    state: tuple[Any, ...] = ()  # a module's parameters and buffers, ahead of the reference's arguments
    given: _Check | None = None  # the check as it was asked for, where this one is of gradients
    twice: bool = False  # gradients of gradients as well
    text: bool = False  # `fn` is written operator by operator

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any], note: str = "") -> CallVerdict:
        try:
            with kept_state([*args, *kwargs.values()]):
                outputs, moved = self._ran(args, kwargs)
                others = [self._ran(args, kwargs) for _ in range(self.repeat - 1)]
        except Unsupported as problem:
            return _told(None, name_of(self.fn), Verdict("unsupported", reason=f"{problem}"), note)
        except DeviceDied as problem:
            return _told(None, name_of(self.fn), Verdict("crashed", reason=f"{problem}"), note)

        def judge(call: Any) -> Verdict:
            call.any_float = not self.own
            verdict = self._with_twin(_verdict(call, outputs, moved, others), args, kwargs)
            if self.text and call.low and call.steps > 1:
                verdict = as_written(call, verdict)
            return _explained(call, verdict, self.seconds, self.groups)

        return _judged(self.reference, self.state + args, kwargs, judge, name_of(self.fn), note)

    def _with_twin(self, verdict: Verdict, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Verdict:
        """A verdict on draws of which only the spread could be tested, with that on the same
        call without chance, where an argument or a module says how likely it is."""
        twin = self._calm(args, kwargs) if verdict.findings.want_calm else None
        if twin is None:
            return verdict
        check, args, kwargs, said = twin
        try:
            outputs, moved = check._ran(args, kwargs)
            call = call_of(check.reference, check.state + args, kwargs)
            call.any_float = not self.own
            return calmed(verdict, _verdict(call, outputs, moved), said)
        except Exception as problem:  # it cannot do without: the spread is all there is
            foreign(problem)
            return verdict

    def _calm(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The check without chance, its arguments and what was set; None where neither the
        arguments nor the modules say how likely it is."""
        asked = self.given or self
        mine, its = calm_module(asked.fn), calm_module(asked.reference)
        if mine and its:
            check = replace(asked, fn=mine[0], reference=its[0])
            if asked.own:
                check.reference = check.fn
            return differentiated(check) if self.backward else check, args, kwargs, its[1]
        calm = None if self.state else calm_arguments(asked.reference, args, kwargs)
        return calm and (self, tuple(calm[0]), calm[1], calm[2])

    def _ran(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, tuple[Any, Any]]:
        """What `fn` returns for copies of the arguments, and the copies as it leaves them."""
        given = args if not self.own else self.state + args
        moved = moved_to(given, self.device), moved_to(kwargs, self.device)
        fn = run_on(self.fn, self.device) if self.own or self.device else self.fn
        with self._grad():
            return theirs(fn, *moved[0], **moved[1]), moved

    def failed(self, problem: BaseException, note: str) -> CallVerdict:
        """The verdict on arguments that `fn` refuses and the reference takes."""
        why = f"raises {type(problem).__name__} where the reference gives a result: "
        refused = Verdict("crashed", reason=why + clause(problem))
        return _told(None, name_of(self.fn), refused, note)

    def refuses(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Why the reference does not take these arguments, "" where it does."""
        for change in (lambda t: t, _single):
            moved = moved_to(self.state + args, "cpu"), moved_to(kwargs, "cpu")
            copies = stress.changed(moved, change)
            try:
                with self._grad():
                    run_on(self.reference, "cpu")(*copies[0], **copies[1])
                return ""
            except Exception as problem:  # any refusal will do
                foreign(problem)
                why = clause(problem)
        return why

    def _grad(self) -> Any:
        return torch.set_grad_enabled(self.backward or torch.is_grad_enabled())


def _single(tensor: torch.Tensor) -> torch.Tensor:
    """In float32 where the CPU may lack the kernel for what is narrower."""
    narrow = tensor.is_floating_point() and tensor.itemsize < 4
    return tensor.detach().float().requires_grad_(tensor.requires_grad) if narrow else tensor


def _check_usage(fn: Any, args: Any, kwargs: Any) -> None:
    warm()  # before anything runs that may be judged
    if not callable(fn):
        raise TypeError(f"fn is {type(fn).__name__}, not callable")
    if not isinstance(args, (tuple, list)):
        raise TypeError(f"args is {type(args).__name__}, not a tuple or list of arguments")
    if kwargs is not None and not isinstance(kwargs, dict):
        raise TypeError(f"kwargs is {type(kwargs).__name__}, not a dict")


def _seconds(cause: Any) -> float:
    """The seconds that a search may take, by the argument `cause`."""
    if isinstance(cause, bool):
        return host.SECONDS if cause else 0.0
    if not isinstance(cause, (int, float)) or not 0 <= cause < math.inf:
        raise TypeError(f"cause is {cause!r}: True, False, or the seconds that the search may take")
    return float(cause)


def _check_mutated(fn: Any, args: Any, mutated: Any) -> None:
    if mutated is None:
        return
    pair = isinstance(mutated, (tuple, list)) and len(mutated) == 2
    if (
        not pair
        or not isinstance(mutated[0], (tuple, list))
        or not (mutated[1] is None or isinstance(mutated[1], dict))
    ):
        raise TypeError("mutated is not a pair (args, kwargs) of the arguments as they were left")
    if len(mutated[0]) != len(args):
        raise ValueError(f"mutated holds {len(mutated[0])} arguments where the call has {len(args)}")


def _judged(
    fn: Any,
    args: Any,
    kwargs: Any,
    judge: Callable[[Any], Verdict],
    name: str,
    note: str = "",
    left: bool = False,
) -> CallVerdict:
    """The public verdict of `judge(call)` on what is called `name`, held to `fn`; `unjudged`
    where anything fails. `left`: how arguments were left is known, too."""
    try:
        with kept_state([*args, *(kwargs or {}).values()]):
            call = operator_call(fn, args, kwargs, left) or call_of(fn, args, kwargs)
            verdict = judge(call)
    except Exception as problem:
        foreign(problem)
        call, verdict = None, Verdict("unjudged", reason=clause(problem))
    return _told(call, name, verdict, note)


def _told(call: Any, name: str, verdict: Verdict, note: str) -> CallVerdict:
    """The public verdict, after whoever listens was told."""
    verdict.remarks += [text for text in (note, verdict.internal) if text]
    for listener in LISTENERS:
        listener(name, call, verdict)
    told = public(call, name, verdict)
    told.notes.sort(key=lambda n: n != note)  # which case it is comes first
    return told


def _explained(call: Any, verdict: Verdict, seconds: float, groups: host.Groups | None = None) -> Verdict:
    """A verdict with the cause of every finding that accuses. Outputs that are alike share one
    search, and so do the calls that share `groups`."""
    if verdict.opinions or verdict.verdict not in FLAGGED or not seconds:
        return verdict
    inquiry, groups = host.Inquiry(call, verdict, seconds), groups or host.Groups()
    verdict.cause = verdict.cause or inquiry.told(groups.cause(inquiry))
    verdict.causes = {
        i: inquiry.told(groups.cause(inquiry, [i]), [i])
        for i, f in enumerate(verdict.findings)
        if f.verdict in FLAGGED and f != verdict.worst
    }
    return verdict


def _verdict(call: Any, outputs: Any, mutated: Any, others: Sequence[tuple[Any, Any]] = ()) -> Verdict:
    nothing = _nothing_to_judge(call, outputs, mutated)
    if nothing:
        return Verdict("unjudged", reason=nothing)
    answer = given_answer(call, outputs, mutated)
    more = [given_answer(call, *other) for other in others]
    if call.random:
        return judge_drawn(call, answer, *more[:1])
    verdict = judge_given(call, answer, more, seconds=0)
    if verdict.verdict == "unjudged" and call.native is None and not verdict.findings:
        verdict.reason = f"{verdict.reason} (and as given: {call.problem})"
    return verdict


def _nothing_to_judge(call: Any, outputs: Any, mutated: Any) -> str:
    """Why a call leaves nothing that could be judged, "" where it leaves something."""
    if call.native is not None and call.returned:
        return f"it {call.returned}"
    if call.native is None or flatten(outputs):
        return ""
    if mutated is None and call.mutated and call.native.keys() <= call.views.keys():
        return f"it only writes {', '.join(call.mutated)}: give mutated=(args, kwargs) as the device left them"
    return ""


def _by(rule: Any, call: Any, outputs: Any, mutated: Any, benchmark: Any) -> Verdict:
    """The verdict of another standard."""
    second = {p: plain(t) for p, t in flatten(benchmark)}
    if call.native is not None:
        second = by_order(second, [p for p in call.native if p not in call.views])
    return judge_by(rule, call, given_answer(call, outputs, mutated), benchmark=second)


__all__ = ["CallVerdict", "OutputVerdict", "check_call", "judge_call"]
