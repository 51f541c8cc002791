# SPDX-License-Identifier: Apache-2.0
"""What a case asks of one output (docs/background/case.md), answered by running the call on the CPU. Asks
`executors.operands` and `executors.reference_runs`; serves `outputs` and `kept`. Nothing here decides."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from .. import _core
from ..calls.alone import alone, names_in
from ..calls.foreign import foreign
from ..calls.indices import choice_fields, choice_of, leaves_none, name_of_one
from ..calls.replay import Call, is_composite, promises_nothing
from ..calls.verdicts import clause
from ..calls.writes import updates
from ..executors.formats import NATIVE, rounded_inputs
from ..executors.in_order import runs_in_order
from ..executors.jumps import FIRST_NEAR
from ..executors.linear import is_sum_of_products, moved_by_slope, n_products
from ..executors.noise import RoundedSteps
from ..executors.orders import is_whole, multiplies
from ..executors.precision import kernel_is_reference
from . import corners, discrete, strays
from .readings import as_held, held_to

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from ..executors.operands import Operands
    from .readings import Readings

ROUNDING = 2.0**-24  # of float32
LOW_ROUNDING = 2.0**-8  # of 16 bits
RUNS_NEARBY = 4  # of those on which a look stands
ROUNDINGS = 16  # of a callable, otherwise than the device's
REAL_PART = {torch.complex64: torch.float32, torch.complex128: torch.float64, torch.complex32: torch.float16}


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def captured_dtype(call: Call, path: str) -> torch.dtype | None:
    """The dtype that an output had when it was captured, of its parts if it is complex; None where
    nobody knows."""
    views = call.views if path in call.views else call.results
    captured = views[path].dtype if path in views else None
    return REAL_PART.get(captured, captured)


def known_of(operands: Operands, path: str, device: torch.Tensor) -> dict[str, Any]:
    """What is known of an output before anything is asked: keywords of `_core.Case.begin`."""
    call, reference = operands.call, operands.reference
    single = bool(name_of_one(call)) or not call.composite
    quantizes = reference.quantizes or "fake_quant" in name_of_one(call)
    captured = captured_dtype(call, path)
    return dict(
        captured=short(captured) if captured else None,
        free=promises_nothing(call),
        exact=reference.quantizes and path.endswith(".scale"),
        pairs=path in reference.pairs,
        rounding=discrete.is_rounding(call),
        linear=is_sum_of_products(call),
        adds=name_of_one(call) in ("sum", "mean"),
        alone=alone(call, path),
        never_rounds=reference.never_rounds(),
        gradient=device.dtype.is_floating_point and corners.is_gradient(call, path),
        single=single,
        admissible=quantizes or (is_composite(call) and call.steps > 1 and not is_settled(call, path)),
        any_float=bool(getattr(call, "any_float", False)),
        chained=bool(getattr(call, "keeps_low", False)),
        products=any(map(multiplies, (is_composite(call) and names_in(call, path)) or (name_of_one(call) or call.op,))),
    )


def is_settled(call: Call, path: str) -> bool:
    """Whether an output holds places that documentation settles, in numbers that nothing rounded."""
    choice = choice_of(call, path)
    return choice is not None and choice.settled and leaves_none(choice)


NAMES = {"reference": "operands_"}  # wants whose methods are called otherwise


class Later:
    """Operands of a call that only carries elements: they begin where a byte differs."""

    def __init__(self, operands: Operands) -> None:
        self.operands = operands

    def begun(self) -> Operands:
        self.operands = held_to(self.operands)
        return self.operands


class Answers:
    """One method per want; each gives what it is told to a case, or raises."""

    def __init__(
        self,
        operands: Operands,
        path: str,
        device: torch.Tensor,
        readings: Readings | None = None,
        outputs: dict[str, torch.Tensor] | None = None,
        later: Later | None = None,
    ) -> None:
        self.path, self.device = path, device
        self.readings, self.outputs, self.later = readings, outputs, later
        self._others: dict[int, Answers] = {}  # number of another reading -> its Answers
        self._answer_by(operands)
        self._runs: dict[str, Iterator[Any]] = {}  # want -> what gives its answers one after the other
        self._contents: Any = None  # inputs that were moved last
        self._keys: list[tuple[int, torch.dtype]] | None = None  # of what is differentiated

    def _answer_by(self, operands: Operands) -> None:
        self.operands, self.reference, self.call = operands, operands.reference, operands.call
        self.own = operands.reference_of(self.path)  # that of its place, in a call over lists

    def _next(self, want: str, k: int, make: Callable[[], Iterable[Any]]) -> Any:
        """The next of what `make()` generates, from the first on where k is 0."""
        if k == 0:
            self._runs[want] = iter(make())
        return next(self._runs[want], None)

    def _is_sound(self, run: torch.Tensor | None, want: str, rounding: float = ROUNDING) -> bool:
        """Whether a run of ours may judge."""
        if run is None or not strays.is_stray(self.operands, self.path, run, rounding):
            return True
        strays.tell(self.operands, self.path, want)
        return False

    def _sound(self, want: str, runs: Iterable[Any]) -> Iterator[Any]:
        """Runs of ours without those that are nonsense."""
        return (run for run in runs if self._is_sound(run[0] if isinstance(run, tuple) else run, want))

    def of(self, reading: int) -> Answers:
        """Those that answer for that reading of the call."""
        return self._others.get(reading, self)

    # ---- form ----

    def operands_(self, case: _core.Case, k: int) -> None:
        if self.later is not None:
            self._answer_by(self.later.begun())
        truth, yardstick = (of[self.path] for of in (self.reference.truth, self.reference.yardstick))
        kind, hang = self.operands.refused
        number = list(_core.excuses).index(kind) if kind else 0
        case.give(truth, yardstick, hang.get(self.path), number, self.operands.note)

    def dtype(self, case: _core.Case, k: int) -> None:
        """The dtype that the operator gives. Where the reference is a formula of somebody
        else, its float dtype is not the law."""
        native = (self.reference.native() or {}).get(self.path)
        if native is None:
            return case.give()
        floats = native.dtype.is_floating_point and self.device.dtype.is_floating_point
        if is_composite(self.call) and self.call.any_float and floats:
            return case.give()
        return case.tell(text=short(native.dtype))

    def native(self, case: _core.Case, k: int) -> None:
        native = (self.reference.native() or {}).get(self.path)
        if native is None:
            return case.give()
        try:
            return case.give(native)
        except _core.DtypeError:  # a dtype of which only bytes are known
            return case.bytes(native.contiguous().view(torch.uint8), short(native.dtype))

    # ---- other readings of the call ----

    @property
    def _asked(self) -> Readings:
        assert self.readings is not None  # else a case asks for none
        return self.readings

    def unread(self, case: _core.Case, k: int) -> None:
        self._read(case, _core.reading_unread, self._asked.unread())

    def unwritten(self, case: _core.Case, k: int) -> None:
        self._read(case, _core.reading_unwritten, self._asked.unwritten())

    def reading(self, case: _core.Case, k: int) -> None:
        self._read(case, _core.reading_others + k, self._asked.reading(k))

    def own_step(self, case: _core.Case, k: int) -> None:
        run = (self._asked.own_step(k) or {}).get(self.path)
        case.give(run if self._is_sound(run, "own_step", LOW_ROUNDING) else None)

    def chain(self, case: _core.Case, k: int) -> None:
        """Run k of a callable that rounds to 16 bits between its operators; the second is the CPU's own."""
        if k == 1 and (native := (self.reference.native() or {}).get(self.path)) is not None:
            return case.give(native)
        return case.give((self.operands.chain(k) or {}).get(self.path))

    def _read(self, case: _core.Case, number: int, found: tuple[str, Operands, dict[str, torch.Tensor]] | None) -> None:
        if found is None or (found[2] and self.path not in found[2]):
            return case.give()
        note, operands, marks = found
        device = self.device if self.outputs is None else as_held(operands, self.outputs)[self.path]
        other = self._others[number] = Answers(operands, self.path, device)
        truth, yardstick = (of[self.path] for of in (other.reference.truth, other.reference.yardstick))
        known = known_of(operands, self.path, device)
        return case.read(truth, yardstick, device, note, marks.get(self.path), **known)

    # ---- looks ----

    def slope(self, case: _core.Case, k: int) -> None:
        case.give(moved_by_slope(self.reference, self.path))

    def products(self, case: _core.Case, k: int) -> None:
        case.tell(number=n_products(self.reference, self.path))

    def functions(self, case: _core.Case, k: int) -> None:
        wide, narrow = self.own.raw_replay(k)
        case.give(wide.get(self.path), narrow.get(self.path))

    def replay(self, case: _core.Case, k: int) -> None:
        wide, narrow = self.operands.replay_of(self.path, k)
        if self.path in wide:
            case.give(wide[self.path], narrow[self.path])
        else:  # the unperturbed result stands in
            case.give(self.reference.truth[self.path], self.reference.yardstick[self.path])

    def fan_in(self, case: _core.Case, k: int) -> None:
        case.tell(number=self.operands.fan_in(self.path), size=self.reference.largest_input)

    def flushed(self, case: _core.Case, k: int) -> None:
        case.give(self._next("flushed", k, lambda: self.operands.flushed(self.path)))

    def loss(self, case: _core.Case, k: int) -> None:
        case.give(*self._next("loss", k, lambda: self.own.far_away(self.path)) or ())

    def noise(self, case: _core.Case, k: int) -> None:
        run, rough = self._next("noise", k, lambda: self._sound("noise", self.own.noises(self.path))) or (None, False)
        own = run is not None and self.own.same_apart()
        case.give(run, None, None, own * _core.noise_own_steps + rough * _core.noise_rough)

    def run(self, case: _core.Case, k: int) -> None:
        run, kind = self._next("run", k, self._runs_of_float32) or (None, 0)
        case.give(run, None, None, kind)

    def _runs_of_float32(self) -> Iterator[tuple[torch.Tensor, int]]:
        """(what float32 gives for the very inputs, what kind of run it is: `usc_rerun` in case.h)."""
        truth = self.reference.truth[self.path]
        yield from ((run, _core.run_otherwise) for run, _ in self._sound("noise", self.own.noises(self.path)))
        yield from ((run, _core.run_otherwise) for run in self._sound("order", self.own.orders(self.path)))
        if (cut := self.own.cut_off(self.path)) is not None and self._is_sound(cut, "order"):
            yield cut, _core.run_cut
        for k in range(RUNS_NEARBY):
            wide, narrow = self.operands.replay_of(self.path, k)
            if self.path in wide and wide[self.path].shape == truth.shape == narrow[self.path].shape:
                yield truth + (narrow[self.path] - wide[self.path]), _core.run_nearby

    def run_steps(self, case: _core.Case, k: int) -> None:
        """Of a pack, whose runs are gone."""
        case.give()

    def lost(self, case: _core.Case, k: int) -> None:
        run, kind = self._next("lost", k, lambda: runs_in_order(self.own, self.path)) or (None, 0)
        case.give(run, None, None, kind)

    def exact(self, case: _core.Case, k: int) -> None:
        if self.device.dtype is torch.float32 and self.own.is_rounded_once():  # its result is no number of float32
            return case.give(torch.ones(self.device.shape, dtype=torch.uint8))
        marks = self.own.exact_steps(self.path)
        case.give(marks, None, None, int(marks is not None and self.own.is_whole(self.path)))

    # ---- excuses ----

    def whole(self, case: _core.Case, k: int) -> None:
        case.tell(number=is_whole(self.reference, self.path))

    def rounded(self, case: _core.Case, k: int) -> None:
        case.give(self._next("rounded", k, lambda: self._sound("noise", self.own.rounded_otherwise(self.path))))

    def infinite(self, case: _core.Case, k: int) -> None:
        case.give(self._next("infinite", k, lambda: self.own.infinite(self.path)))

    def overflows(self, case: _core.Case, k: int) -> None:
        case.tell(number=self.reference.overflows)

    def steps(self, case: _core.Case, k: int) -> None:
        jumps = self.reference.jumps.get(self.path)
        if not jumps:
            return case.give()
        return case.give(torch.cat([j.where for j in jumps]), torch.cat([j.values for j in jumps]))

    def near_step(self, case: _core.Case, k: int) -> None:
        self._contents = self.reference.moved(FIRST_NEAR + k, _core.near_reach)
        case.give(self.reference.wide(self._contents)[self.path])

    def nearer_step(self, case: _core.Case, k: int) -> None:
        near = self.reference.drawn_near(self._contents)
        case.give(self.reference.wide(near)[self.path])

    def added(self, case: _core.Case, k: int) -> None:
        case.give(self._next("added", k, lambda: self._sound("order", self.own.added_in_order(self.path))))

    # ---- what is not promised ----

    def writes(self, case: _core.Case, k: int) -> None:
        case.give(*(updates(self.call, self.device) or ()))

    def held(self, case: _core.Case, k: int) -> None:
        case.give(discrete.not_held(self.call, self.device))

    def usual(self, case: _core.Case, k: int) -> None:
        case.give(discrete.conversions(self.call, self.device))

    def _probe(self, case: _core.Case, k: int, by: float, settled: bool = False) -> None:
        if self._keys is None:
            self._keys = corners.differentiated(self.reference)
        if not self._keys:
            return case.give()
        return case.give(corners.probe(self.reference, self.path, self._keys, k, by, settled))

    def probe(self, case: _core.Case, k: int) -> None:
        self._probe(case, k, corners.JITTER)

    def nearer_probe(self, case: _core.Case, k: int) -> None:
        self._probe(case, k, corners.JITTER / 2)

    def settled_probe(self, case: _core.Case, k: int) -> None:
        self._probe(case, k, corners.JITTER, True)

    def nearer_settled(self, case: _core.Case, k: int) -> None:
        self._probe(case, k, corners.JITTER / 2, True)

    # ---- narrower formats ----

    def narrow(self, case: _core.Case, k: int) -> None:
        """The call with roundings to a narrower format. An operator's own kernel is none where it may
        be what is under test."""
        how, name = _core.narrow_runs[k]
        if how == "inputs":
            return case.give(self.reference.wide(rounded_inputs(self.reference, name)).get(self.path))
        if how == "arithmetic":
            return case.give(self.reference.in_float32(RoundedSteps(name)).get(self.path))
        if not kernel_is_reference(self.call):
            return case.give()
        if name:
            return case.give(self.reference.in_dtype(NATIVE[name]).get(self.path))
        low = any(p.dtype in NATIVE.values() for p in self.reference.parts.values())
        return case.give((low and self.reference.native() or {}).get(self.path))

    # ---- what chooses ----

    def choice(self, case: _core.Case, k: int) -> None:
        choice = choice_of(self.call, self.path)
        if choice is None or leaves_none(choice):
            return case.give()
        return case.choose(choice.values, **choice_fields(choice))

    def admissible(self, case: _core.Case, k: int) -> None:
        wide, narrow = self.operands.replay_of(self.path, k)
        case.give(wide.get(self.path), narrow.get(self.path))

    def rounding(self, case: _core.Case, k: int) -> None:
        if not self.call.composite:
            return case.give()
        outputs = self._next("rounding", k, lambda: self.reference.roundings(ROUNDINGS))
        return case.give() if outputs is None else case.give(outputs.get(self.path))


TIMED = {
    "slope",
    "products",
    "functions",
    "loss",
    "noise",
    "narrow",
    "run",
    "lost",
    "exact",
    "infinite",
}  # the others tell what they take themselves


@dataclass
class Way:
    """How the outputs of an answer are judged."""

    case: _core.Case  # which asks
    narrow: bool = False  # held against narrower formats
    readings: Readings | None = None  # other readings of the call
    outputs: dict[str, torch.Tensor] | None = None  # all as they came
    later: Later | None = None  # Later, of a call that only carries elements
    # path -> where that output lies in the whole one (usc_case_part)
    part: Callable[[str], tuple[int, int, int, int]] | None = None


def judge(way: Way, operands: Operands, path: str, device: torch.Tensor) -> None:
    """Adds what a case finds of one output to its findings."""
    more = dict(part=way.part(path)) if way.part else {}
    answer_all(way, operands, path, device, narrow=way.narrow, carries=way.later is not None, **more)


def answer_all(way: Way, operands: Operands, path: str, device: torch.Tensor, **more: Any) -> None:
    """Answers what a case asks of one output; `more`: of `_core.Case.begin`."""
    case, timing = way.case, operands.timing
    answers = Answers(operands, path, device, way.readings, way.outputs, way.later)
    known = known_of(operands, path, device) | dict(readings=way.readings is not None) | more
    try:
        case.begin(path, device, **known)
    except _core.DtypeError:  # a dtype of which only bytes are known
        raw = device.contiguous().view(torch.uint8)
        case.begin(path, raw, bytes=raw, dtype=short(device.dtype), **known)
    now = time.perf_counter_ns()
    while (want := case.next()) is not None:
        now = timing.add("judge", now)
        name, k, reading = want
        try:
            getattr(answers.of(reading), NAMES.get(name, name))(case, k)
        except Exception as problem:  # whatever an operator raises
            foreign(problem)
            case.fail(clause(problem))
        now = timing.add("perturbed", now) if name in TIMED else time.perf_counter_ns()
    timing.add("judge", now)
