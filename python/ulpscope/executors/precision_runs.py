# SPDX-License-Identifier: Apache-2.0
"""A call run on the CPU in another precision: which of its sources works, what its Python code is told of dtypes,
what of its results is promised. The bottom of `reference_runs.Reference`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from ..calls.exact import never_rounds
from ..calls.flex import in_the_open
from ..calls.foreign import foreign, theirs
from ..calls.gauges import in_gauge_of, with_noise
from ..calls.indices import name_of_one
from ..calls.meaning import Meaning, Meant, only_dtype
from ..calls.replay import bind_cast, computed, segments
from ..calls.call_results import outputs_of, plain
from ..calls.replay import widened
from ..calls.writes import WRITES
from .chained import Chain, chained
from .precision import KeptNarrow, Widen, cpu_kernel, opens, schema_tells, sources_of, standing_for
from .streams import one_thread
from .warm import warm

if TYPE_CHECKING:
    from ..calls.replay import Call


Outputs = dict[str, torch.Tensor]  # by path
Inputs = dict[tuple[int, torch.dtype], torch.Tensor]  # contents of segments, by storage and dtype


class PrecisionRuns:
    """Replays one call in float64, float32 or another dtype. Results are dicts path -> plain tensor."""

    def __init__(self, call: Call, seed: int = 0) -> None:
        warm()
        self.call = call
        self.seed = seed
        self.parts = segments(call)
        self.truth: Any = None  # path -> tensor from `begin` on
        self.t_wide = 0  # nanoseconds that the truth took
        self.yardstick: Any = None  # the same
        self._fans = {}  # path -> inputs that one element depends on
        self._native: tuple[Outputs | None] | None = None
        self._made = None
        self._inward = False
        self._apart = None
        self._lifts = True  # an untested function can be kept in float64
        self._settled = False  # a function stood at its limit in a noisy run
        self.jumps: dict[str, Any] = {}  # path -> what replays crossed
        self.may_draw = False  # some outputs are draws, and others are asked for
        self.quantizes = False  # the outputs are integers with a scale
        self.pairs = set()  # paths of complex outputs, which are kept as pairs of reals
        self.races = name_of_one(call) in WRITES  # threads may give other results at each run
        self.undefined: set[str] = set()  # paths of results that are promised nothing
        self.unwritten: dict[str, torch.Tensor] = {}  # path -> elements that are promised nothing: 0 in every run
        self._others = {}  # key of a run -> its small results, for other outputs and another look
        self._whole = {}  # path -> whether no order of computing it rounds
        self._sources = None
        self._chosen = {}  # dtype_of -> the Source that works

    # ---- runs ----

    @property
    def _own(self):
        """The registered or built-in formula, None where the operator is its own."""
        first = self._all_sources()[0]
        return first.run if first.partial else None

    def _all_sources(self):
        if self._sources is None:
            self._sources = sources_of(self.call)
        return self._sources

    def _run(self, dtype_of, contents=None, function=None):
        with one_thread() if self.races else contextlib.nullcontext():
            return self._run_freely(dtype_of, contents, function)

    def _run_freely(self, dtype_of, contents, function):
        """Results of `function`, or of the first source that works; its complaint where
        none does."""
        if self.call.composite:
            if self._hangs_on_dtype:
                return self._run_plain(_as_given, contents, self.call.function)
            return self._run_composite(dtype_of, contents, function or self.call.function)
        if function is not None:
            return self._run_plain(dtype_of, contents, function)
        if dtype_of in self._chosen:
            return self._run_source(self._chosen[dtype_of], dtype_of, contents)
        problem = None
        for source in self._all_sources():
            try:
                out = self._run_source(source, dtype_of, contents)
            except Exception as raised:  # whatever an operator raises
                foreign(raised)
                problem = problem or raised
                continue
            self._chosen[dtype_of] = source
            return out
        raise problem

    def _run_source(self, source, dtype_of, contents):
        if source.given:
            dtype_of = _as_given
        function = self._held(dtype_of, source.run) if source.held else source.run
        try:
            return self._run_plain(dtype_of, contents, function, source.partial)
        except Exception as problem:
            foreign(problem)
            if not source.own:
                raise
            out = self._run_plain(dtype_of, contents, self._as_it_is(source.run))
            self._lifts &= contents is not None or dtype_of is not widened
            return out

    def _as_it_is(self, function):
        """The function, which rounds inside where it does."""

        def as_it_is(*args, **kwargs):
            with self._meant():
                return theirs(function, *args, **kwargs)

        return standing_for(function, as_it_is)

    def _held(self, dtype_of, function, mode=None):
        """The function, kept in the precision of the run throughout; within another `mode` of the kind."""
        wide = dtype_of is widened or any(p.dtype == torch.float64 for p in self.parts.values())
        if wide and not self._lifts and mode is None:
            return self._as_it_is(function)

        def held(*args, **kwargs):
            kind = mode or (KeptNarrow if getattr(self.call, "keeps_low", False) else Widen)
            meant = self._meant()  # first: what it asks is noted without the mode
            with kind(torch.float64 if wide else torch.float32, self._means()), meant:
                return theirs(function, *args, **kwargs)

        return standing_for(function, held)

    def _run_composite(self, dtype_of, contents, function):
        """A Python callable, held to one precision throughout. One that cannot bear it
        (it looks at bits, or at its callers) runs as it is."""
        try:
            return self._run_plain(dtype_of, contents, self._held(dtype_of, function))
        except Exception as problem:  # whatever it raises, the second run raises as well
            foreign(problem)
            out = self._run_plain(dtype_of, contents, self._as_it_is(function))
            if function is self.call.function and dtype_of is widened and contents is None:
                self._lifts = False
            return out

    def _meant(self):
        """Within: Python code that asks for dtypes is told those that were captured."""
        answers = self.call.answers if self.call.composite else self._own_answers
        return Meant(answers, self._means())

    def _means(self):
        """The dtype that such code is told where nothing is known of what it asks; None where it does not
        run in the dtypes that were captured, so that nobody may be told them."""
        runs = self.call.native is not None if self.call.composite else self._own_answers is not None
        return only_dtype(self.call) if runs else None

    @cached_property
    def _own_answers(self):
        """What the Python code of an operator asks in the dtypes captured, None where it does
        not run there; nothing of torch's own operators, which say it by their arguments."""
        source = self._all_sources()[0]
        if not source.held:
            return []
        meaning, state = Meaning(), torch.random.get_rng_state()
        try:
            with meaning:
                self._run_plain(_as_given, None, source.run)
        except Exception as problem:  # whatever an operator raises
            foreign(problem)
            return None
        finally:
            torch.random.set_rng_state(state)
        return meaning.answers

    def _run_plain(
        self,
        dtype_of: Callable[[torch.dtype], torch.dtype],
        contents: Inputs | None,
        function: Callable[..., Any],
        partial: bool = False,
    ) -> Outputs:
        itself = getattr(function, "stands_for", function) is self.call.function
        bound = bind_cast(self.call, self.parts, dtype_of, contents, self._written if itself else None)
        if dtype_of is not _as_given and self._makes() is not None:
            bound.kwargs["dtype"] = dtype_of(self._makes())
        with in_the_open():
            result = bound.run(function)
        if partial:
            results = result if isinstance(result, tuple) else (result,)
            self.undefined.update(f"out[{i}]" for i, r in enumerate(results) if r is None)
        outputs = outputs_of(self.call, bound, result)
        self.pairs.update(path for path, t in outputs.items() if t.is_complex())
        outputs = {path: plain(t) for path, t in outputs.items()}
        for path in outputs.keys() & self.unwritten.keys():
            outputs[path] = outputs[path].masked_fill(self.unwritten[path], 0)
        return in_gauge_of(self.call, outputs, self.truth)

    @cached_property
    def _written(self):
        """Storages that the operator may write; None where only its word is there for it."""
        if self.call.composite:
            return self.call.touched
        if not schema_tells(self.call):
            return None
        return {self.call.views[path].storage for path in self.call.written()}

    def _makes(self):
        """The float dtype that a call without tensors makes its result in unasked, None
        for every other call."""
        if self._made is None:
            call, self._made = self.call, (None,)
            names = [a.name for a in call.schema.arguments] if call.schema else ()
            if not call.views and "dtype" in names and call.value("dtype") is None:
                made = bind_cast(call, {}, _as_given).run(call.function)
                if isinstance(made, torch.Tensor) and made.is_floating_point():
                    self._made = (made.dtype,)
        return self._made[0]

    def wide(self, contents: Inputs | None = None, function: Callable[..., Any] | None = None) -> Outputs:
        """The call in float64, or what `function` makes of it."""
        out = self._run(widened, contents, function)
        return {p: t.double() if t.is_floating_point() else t for p, t in out.items()}

    def narrow(self, contents: Inputs | None = None) -> Outputs:
        """The call in float32 (float64 where the call is in float64)."""
        return self._in_low(self._run(computed, contents))

    def _in_low(self, out):
        low = self.call.numbers
        return with_noise(self.call, {p: t.float() if _is_low(t.dtype) or p in low else t for p, t in out.items()})

    def chain(self, k: int) -> Outputs | None:
        """Run k of a callable, or of an extension's own kernel, whose operators round to 16 bits what they give in
        these, to nearest in the first and by chance in the others; None where nothing is rounded so between two of
        them."""
        if getattr(self.call, "chained", False):
            function = self.call.on_host()
        elif opens(self.call):
            function = cpu_kernel(self.call)
        else:
            return None
        mode = Chain(None if k == 0 else self.seed + k)
        outputs = self._run_plain(_as_given, None, chained(function, mode))
        return {p: mode.in_full(t) for p, t in outputs.items()} if mode.any else None

    def in_float32(self, mode: Any) -> Outputs:
        """The call in float32, step by step under a mode."""
        return self._flat(self._run(computed, None, self._in_steps(mode)))

    def in_dtype(self, dtype: torch.dtype) -> Outputs:
        """The call on the CPU with every float in another dtype."""
        low = self._run_plain(lambda d: dtype if d.is_floating_point else d, None, self.call.function)
        return {p: t.double() if t.is_floating_point() else t for p, t in low.items()}

    def _flat(self, outputs):
        return {p: t.float() if _is_low(t.dtype) else t for p, t in outputs.items()}

    def _in_steps(self, mode):
        """The call run step by step under a mode."""
        function = self._own or cpu_kernel(self.call)

        def step_by_step(*args, **kwargs):
            with mode:
                return theirs(function, *args, **kwargs)

        return standing_for(function, step_by_step)

    def never_rounds(self) -> bool:
        """Whether the call gives the only right value, to the last bit."""
        if self.call.composite:
            return not self.call.rounds
        return self._own is None and never_rounds(self.call.op, self.call.is_complex)


def _as_given(dtype):
    return dtype


def _is_low(dtype):
    return dtype.is_floating_point and dtype.itemsize < 4
