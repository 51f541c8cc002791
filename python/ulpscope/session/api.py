# SPDX-License-Identifier: Apache-2.0
"""Verdicts for kernel authors: `judge_call` on outputs that some device gave, `check_call`
on what a callable computes. Bound in `ulpscope`; described in docs/reference/python.md."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from .. import _core
from ..calls.callable import as_numbers, call_of, name_of, same_bytes, storage_bytes
from ..calls.foreign import foreign, theirs
from ..calls.gradients import differentiated
from ..calls.older import zip_equal
from ..calls.operator_call import operator_call
from ..calls.replay import BadCall, Bound, TensorAt, Unsupported, flatten, mapped, plain
from ..calls.shown import Shown
from ..calls.torch_private import OpOverload, packet_name
from ..calls.verdicts import FLAGGED, UNTOLD, clause
from ..causes import host
from ..executors import registered
from ..executors.device import Answer, DeviceDied, open_device, trespass
from ..executors.streams import kept_state
from ..executors.warm import warm
from ..judges import standards, wording
from ..judges.calm import calm_arguments, calm_module
from . import stress
from .as_written import as_written
from .judging import Verdict, calmed, judge_by, judge_drawn, judge_given


@dataclass(repr=False)
class OutputVerdict(Shown):
    """What is said of one output."""

    index: int  # place among the outputs; those written in place come last
    path: str  # "out[0]", "args[1]" for a written argument, "" for the call as a whole
    verdict: str
    effective_bits: float  # NaN where nothing was judged
    expected_bits: float  # those of float32 on the CPU
    cause: str
    sentence: str
    worst: list[tuple[Any, Any, Any]] = field(default_factory=list)  # (index, device value, correct value)
    status: str = ""  # in the words of another standard: "pass", "warning", "error"
    metrics: dict[str, float] = field(default_factory=dict)  # what that standard measured

    @property
    def passed(self) -> bool:
        return self.verdict == "pass"

    def _shown(self) -> str:
        return f"{self.path or 'the call'} {self.verdict}: {self.sentence}"

    def _titles_and_rows(self) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        return ("element", "device", "correct"), self.worst


@dataclass(repr=False)
class CallVerdict(Shown):
    """What is said of one call: its worst output's verdict, and each output's own."""

    verdict: str
    effective_bits: float
    expected_bits: float
    cause: str
    sentence: str
    outputs: list[OutputVerdict] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    cases: list[stress.CaseVerdict] = field(default_factory=list)  # stress.CaseVerdict, where inputs were "stress"
    standard: str = "ulpscope"
    status: str = ""  # in the words of another standard

    @property
    def passed(self) -> bool:
        """Whether nothing was found; `unjudged` is no pass."""
        return self.verdict == "pass"

    @property
    def not_judged(self) -> list[str]:
        """Paths of outputs that nobody could judge; each one's own sentence says why."""
        return [o.path for o in self.outputs if o.verdict in UNTOLD]

    @property
    def worst(self) -> list[tuple[Any, Any, Any]]:
        """Worst elements of the output that decided: (index, device value, correct value)."""
        return next((o.worst for o in self.outputs if o.verdict == self.verdict and o.worst), [])

    def __str__(self) -> str:
        return self.sentence

    def _shown(self) -> str:
        notes = f" ({'; '.join(self.notes)})" if self.notes else ""
        return f"{self.verdict}: {self.sentence}{notes}"

    def _titles_and_rows(self) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        rows = [(o.path, o.verdict, o.effective_bits, o.expected_bits, o.sentence) for o in self.outputs]
        rows += [
            (c.name, c.verdict.verdict if c.verdict else c.skipped, None, None, str(c.verdict or ""))
            for c in self.cases
        ]
        return ("output", "verdict", "effective bits", "float32 gives", "why"), rows


LISTENERS = []  # functions of (name, Call or None, Verdict), told of every judged call


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
    only what was returned is judged.

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

        def judge(call):
            return _explained(call, _verdict(call, outputs, mutated), seconds)

        return _judged(fn, args, kwargs, judge, name_of(fn))
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
    return stress.check_all(check, tuple(args), dict(kwargs or {}), inputs)


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


def _registered(fn):
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
    def formula(*args, **kwargs):
        return found(*args, **kwargs)

    formula.__name__, formula.stands_for = name, operator
    return formula


@dataclass
class _Check:
    """What is checked, on any arguments."""

    fn: object
    reference: object
    own: bool
    device: object
    backward: bool
    seconds: float  # for the cause of a finding
    repeat: int = 1
    groups: object = field(default_factory=host.Groups)
    state: tuple = ()  # a module's parameters and buffers, ahead of the reference's arguments
    given: object = None  # the check as it was asked for, where this one is of gradients
    twice: bool = False  # gradients of gradients as well
    text: bool = False  # `fn` is written operator by operator

    def run(self, args, kwargs, note=""):
        try:
            with kept_state([*args, *kwargs.values()]):
                outputs, moved = self._ran(args, kwargs)
                others = [self._ran(args, kwargs) for _ in range(self.repeat - 1)]
        except Unsupported as problem:
            return _told(None, name_of(self.fn), Verdict("unsupported", reason=f"{problem}"), note)
        except DeviceDied as problem:
            return _told(None, name_of(self.fn), Verdict("crashed", reason=f"{problem}"), note)

        def judge(call):
            call.any_float = not self.own
            verdict = self._with_twin(_verdict(call, outputs, moved, others), args, kwargs)
            if self.text and call.low and call.steps > 1:
                verdict = as_written(call, verdict)
            return _explained(call, verdict, self.seconds, self.groups)

        return _judged(self.reference, self.state + args, kwargs, judge, name_of(self.fn), note)

    def _with_twin(self, verdict, args, kwargs):
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

    def _calm(self, args, kwargs):
        """The check without chance, its arguments and what was set; None where neither the
        arguments nor the modules say how likely it is."""
        asked = self.given or self
        modules = calm_module(asked.fn), calm_module(asked.reference)
        if all(modules):
            check = replace(asked, fn=modules[0][0], reference=modules[1][0])
            if asked.own:
                check.reference = check.fn
            return differentiated(check) if self.backward else check, args, kwargs, modules[1][1]
        calm = None if self.state else calm_arguments(asked.reference, args, kwargs)
        return calm and (self, tuple(calm[0]), calm[1], calm[2])

    def _ran(self, args, kwargs):
        """What `fn` returns for copies of the arguments, and the copies as it leaves them."""
        given = args if not self.own else self.state + args
        moved = _moved(given, self.device), _moved(kwargs, self.device)
        fn = _on(self.fn, self.device) if self.own or self.device else self.fn
        with self._grad():
            return theirs(fn, *moved[0], **moved[1]), moved

    def failed(self, problem, note):
        """The verdict on arguments that `fn` refuses and the reference takes."""
        why = f"raises {type(problem).__name__} where the reference gives a result: "
        refused = Verdict("crashed", reason=why + clause(problem))
        return _told(None, name_of(self.fn), refused, note)

    def refuses(self, args, kwargs):
        """Why the reference does not take these arguments, "" where it does."""
        for change in (lambda t: t, _single):
            moved = _moved(self.state + args, "cpu"), _moved(kwargs, "cpu")
            copies = stress.changed(moved, change)
            try:
                with self._grad():
                    _on(self.reference, "cpu")(*copies[0], **copies[1])
                return ""
            except Exception as problem:  # any refusal will do
                foreign(problem)
                why = clause(problem)
        return why

    def _grad(self):
        return torch.set_grad_enabled(self.backward or torch.is_grad_enabled())


def _single(tensor):
    """In float32 where the CPU may lack the kernel for what is narrower."""
    narrow = tensor.is_floating_point() and tensor.itemsize < 4
    return tensor.detach().float().requires_grad_(tensor.requires_grad) if narrow else tensor


def _check_usage(fn, args, kwargs):
    warm()  # before anything runs that may be judged
    if not callable(fn):
        raise TypeError(f"fn is {type(fn).__name__}, not callable")
    if not isinstance(args, (tuple, list)):
        raise TypeError(f"args is {type(args).__name__}, not a tuple or list of arguments")
    if kwargs is not None and not isinstance(kwargs, dict):
        raise TypeError(f"kwargs is {type(kwargs).__name__}, not a dict")


def _seconds(cause):
    """The seconds that a search may take, by the argument `cause`."""
    if isinstance(cause, bool):
        return host.SECONDS if cause else 0.0
    if not isinstance(cause, (int, float)) or not 0 <= cause < math.inf:
        raise TypeError(f"cause is {cause!r}: True, False, or the seconds that the search may take")
    return float(cause)


def _check_mutated(fn, args, mutated):
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


def _judged(fn, args, kwargs, judge, name, note=""):
    """The public verdict of `judge(call)` on what is called `name`, held to `fn`; `unjudged`
    where anything fails."""
    try:
        with kept_state([*args, *(kwargs or {}).values()]):
            call = operator_call(fn, args, kwargs) or call_of(fn, args, kwargs)
            verdict = judge(call)
    except Exception as problem:
        foreign(problem)
        call, verdict = None, Verdict("unjudged", reason=clause(problem))
    return _told(call, name, verdict, note)


def _told(call, name, verdict, note):
    """The public verdict, after whoever listens was told."""
    verdict.remarks += [text for text in (note, verdict.internal) if text]
    for listener in LISTENERS:
        listener(name, call, verdict)
    told = _public(call, name, verdict)
    told.notes.sort(key=lambda n: n != note)  # which case it is comes first
    return told


def _explained(call, verdict, seconds, groups=None):
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


def _verdict(call, outputs, mutated, others=()):
    nothing = _nothing_to_judge(call, outputs, mutated)
    if nothing:
        return Verdict("unjudged", reason=nothing)
    answer = _answer(call, outputs, mutated)
    more = [_answer(call, *other) for other in others]
    if call.random:
        return judge_drawn(call, answer, *more[:1])
    verdict = judge_given(call, answer, more, seconds=0)
    if verdict.verdict == "unjudged" and call.native is None and not verdict.findings:
        verdict.reason = f"{verdict.reason} (and as given: {call.problem})"
    return verdict


def _nothing_to_judge(call, outputs, mutated):
    """Why a call leaves nothing that could be judged, "" where it leaves something."""
    if call.native is not None and call.returned:
        return f"it {call.returned}"
    if call.native is None or flatten(outputs):
        return ""
    if mutated is None and call.mutated and call.native.keys() <= call.views.keys():
        return f"it only writes {', '.join(call.mutated)}: give mutated=(args, kwargs) as the device left them"
    return ""


def _by(rule, call, outputs, mutated, benchmark):
    """The verdict of another standard."""
    second = {p: plain(t) for p, t in flatten(benchmark)}
    if call.native is not None:
        second = _by_order(second, [p for p in call.native if p not in call.views])
    return judge_by(rule, call, _answer(call, outputs, mutated), benchmark=second)


# ---- what the device gave ------------------------------------------------------------


def _answer(call, outputs, mutated):
    """The device's outputs and written arguments under the paths of the call."""
    given = {p: plain(t).clone() for p, t in as_numbers(call, dict(flatten(outputs))).items()}
    wrong = ""
    if mutated is None:
        call.mutated = {}
    before = {}
    if mutated is not None:
        left = _left(call, mutated)
        call.mutated = {p: v for p, v in call.mutated.items() if p in left}
        wrong = _trespass(call, left)
    if call.native is not None:
        gone = call.views.keys() - call.mutated.keys()
        call.native = {p: t for p, t in call.native.items() if p not in gone}
        given = _by_order(given, [p for p in call.native if p not in call.views])
    if mutated is not None:
        for path in call.mutated:
            given[path] = plain(left[path]).clone()
            view = call.views[path]
            before[path] = plain(_as_viewed(call.storages[view.storage], view)).clone()
    return Answer(given, wrong, before)


def _by_order(given, paths):
    """A list where the CPU gives a tuple is no mistake: outputs by their order then."""
    if given.keys() == set(paths) or len(given) != len(paths):
        return given
    return dict(zip(paths, given.values()))


def _as_viewed(raw, view):
    whole = raw[: raw.numel() // view.dtype.itemsize * view.dtype.itemsize].view(view.dtype)
    return whole.as_strided(view.sizes, view.strides, view.offset)


def _left(call, mutated):
    """Arguments as the device left them, by path."""
    args, kwargs = mutated if isinstance(mutated, (tuple, list)) and len(mutated) == 2 else ((), {})
    offset = len(call.args) - len(tuple(args))  # a module's own state is not among them
    left = {}

    def walk(stands, value):
        if isinstance(stands, TensorAt):
            if isinstance(value, torch.Tensor):
                left[stands.path] = value.detach()
        elif isinstance(stands, dict) and isinstance(value, dict):
            for k in stands.keys() & value.keys():
                walk(stands[k], value[k])
        elif isinstance(stands, (list, tuple)) and isinstance(value, (list, tuple)):
            for a, b in zip(stands, value):
                walk(a, b)

    walk(call.args[offset:] if offset >= 0 else call.args, list(args))
    walk(call.kwargs, dict(kwargs or {}))
    return left


def _trespass(call, left):
    """What the device wrote that the function does not: whole storages where they still
    have the captured form, else the tensors."""
    bases = {}
    for path, tensor in left.items():
        view = call.views[path]
        form = tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset(), tensor.dtype
        raw = storage_bytes(tensor)
        if form == (view.sizes, view.strides, view.offset, view.dtype) and (
            raw.numel() == call.storages[view.storage].numel()
        ):
            bases[view.storage] = raw
    found = trespass(call, Bound([], {}, {}, bases))
    if found:
        return found
    for path, tensor in left.items():
        view = call.views[path]
        if view.storage in bases or path in call.mutated:
            continue
        if not same_bytes(tensor, _as_viewed(call.storages[view.storage], view)):
            return f"wrote the read-only argument {path}"
    return ""


def _moved(value, device):
    """Copies of arguments on a device, so that the given ones stay as they were."""
    memo = {}

    def move(value):
        if isinstance(value, torch.Tensor):
            return _copied(value, device, memo)
        if isinstance(value, torch.device) and device is not None:
            return torch.device(device)
        return value

    return mapped(value, move)


def _copied(tensor, device, memo):
    """A tensor on a device with its storage whole and its aliases kept; a quantized, sparse
    or lazily conjugated one by itself."""
    if tensor.is_quantized or tensor.layout != torch.strided:
        return tensor.clone() if device is None else tensor.to(device)
    if tensor.is_conj() or tensor.is_neg():
        twin = tensor.detach().resolve_conj().resolve_neg().to(device or tensor.device)
        return twin.requires_grad_(tensor.requires_grad)
    storage = tensor.untyped_storage()
    key = (storage.data_ptr(), tensor.dtype)
    if key not in memo:
        raw = storage_bytes(tensor) if device is not None else None
        if raw is None:
            flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
            raw = flat.set_(storage).clone()
        whole = raw[: raw.numel() // tensor.itemsize * tensor.itemsize].view(tensor.dtype)
        memo[key] = whole if device is None else whole.to(device)
    twin = memo[key].as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    return twin.requires_grad_(tensor.requires_grad)


def _on(fn, device):
    """A module on a device; other callables as they are."""
    if not isinstance(fn, torch.nn.Module):
        return fn
    fn = copy.deepcopy(fn)
    return fn.to(device) if device is not None else fn


# ---- in words ------------------------------------------------------------------------


def _public(call, name, verdict):
    said = verdict.opinions[0] if verdict.opinions else None
    outputs = [
        _output(name, verdict, i, finding, verdict.causes.get(i, ""))
        if said is None
        else _output_by(call, name, verdict, i, finding)
        for i, finding in enumerate(verdict.findings)
    ]
    return CallVerdict(
        verdict.verdict,
        *_bits(verdict.verdict, verdict.worst),
        verdict.cause,
        wording.sentence(name, verdict),
        outputs,
        list(verdict.notes),
        status=said.status if said else "",
    )


def _bits(verdict, finding):
    """Effective and expected bits; NaN where nothing was judged or nothing could be seen, as
    where all results are beyond the largest number."""
    unseen = finding is None or verdict in ("unjudged", "unsupported", "undefined")
    if unseen or (verdict == "pass" and finding.bound and finding.bits <= 0):
        return math.nan, math.nan
    return finding.bits, finding.yardstick_bits


def _output(name, verdict, i, finding, cause):
    """The public entry for one finding, with a cause of its own."""
    cause = verdict.cause if finding == verdict.worst else cause
    return OutputVerdict(
        i,
        finding.path,
        finding.verdict,
        *_bits(finding.verdict, finding),
        cause,
        _core.sentence(name, finding.verdict, "", "", cause, finding),
        _worst(finding),
    )


def _output_by(call, name, verdict, i, finding):
    """The public entry for what another standard found of one output."""
    said = verdict.opinions[0].about(finding.path)
    judged = said.outputs.get(finding.path, {})
    return OutputVerdict(
        i,
        finding.path,
        finding.verdict,
        math.nan,
        math.nan,
        "",
        _core.sentence(name, said.verdict, said.text(), "", "", finding),
        status=said.status,
        metrics=judged.get("metrics", {}),
    )


def _worst(finding):
    return [(at, *example[1:3]) for at, example in zip_equal(finding.places, finding.examples)]


__all__ = ["BadCall", "CallVerdict", "OutputVerdict", "check_call", "judge_call"]
