# SPDX-License-Identifier: Apache-2.0
"""The operands of a verdict: a call's float64 reference and its float32 yardstick, also on
perturbed inputs. Everything runs on the CPU; nothing here decides.

The formulas are in docs/background/verdict.md; the perturbation itself is `_core.perturb`.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import torch

from .. import _core
from ..calls import large
from ..calls.exact import never_rounds
from ..calls.flex import in_the_open
from ..calls.foreign import foreign, set_aside, theirs
from ..calls.gauges import in_gauge_of, with_noise
from ..calls.indices import name_of_one
from ..calls.meaning import Meaning, Meant, only_dtype
from ..calls.replay import BadCall, Segment, bind_cast, computed, promises_nothing, segments
from ..calls.call_results import outputs_of, plain
from ..calls.replay import widened
from ..calls.torch_private import OpOverload
from ..calls.writes import WRITES
from .algorithms import CUT, FIRST, LAST, PARTS, UNITS
from .chained import Chain, chained
from .extremes import BOTH, DOWN, UP, Extremes
from .jumps import freed
from .lifting import Seen, remedy, same_constants, tensors_in
from .noise import Accumulated, Flush, InSteps, Noise, NoisyOrder, Overflowing, is_one_rounding, is_transform
from .noise import taken_apart
from .orders import is_whole
from .precision import HANG_ON_DTYPE, KeptNarrow, Widen, cpu_kernel, opens, schema_tells, sources_of, standing_for
from .streams import flushing_to_zero, one_thread
from .warm import warm

FAN_SHARES = (1 / 2, 1 / 16, 1 / 128, 1 / 1024, 1 / 8192, 1 / 65536)
FAN_DELTA = 2.0**-12
MUCH = 1 << 22  # inputs of which few runs have to do
FEW_OUTPUTS = 64
MANY_INPUTS = 32  # below, limits are those of operators, not of sums
MOST_ALONE = 4  # arguments that are moved alone
FAR_DELTAS = (2.0**-4, 2.0**-5, 2.0**-6, 2.0**-8)
FAR_REPLAYS = 2000
MOST_SHARED = 1 << 18  # bytes of an output of a run that is kept for others
N_NOISES = 5
DRAWN = 2048  # results by which an operator that draws shows it
SETTLING = set(
    (
        "add sub mul div neg abs round floor ceil trunc clamp clamp_min clamp_max _to_copy to copy_ clone "
        "detach view reshape expand unsqueeze squeeze lift_fresh"
    ).split()
)
ONE_ROUNDING = {"add", "sub", "rsub", "mul", "_to_copy", "to", "convert_element_type"}
WHOLE_IN = frozenset({torch.float32, torch.bfloat16, torch.float16})
TRIFLE = 2.0**-20  # of what float32 loses
MUCH_AS = 8  # times that
LOST, HAS = 2.0**-4, 2.0**-10  # of a result: nothing of it is left; float32 has it
FINE = 1 + 2.0**-33  # makes a float32 number one that is none


Outputs = dict[str, torch.Tensor]  # by path
Inputs = dict[tuple[int, torch.dtype], torch.Tensor]  # contents of segments, by storage and dtype


class DrawsUnsaid(BadCall):
    """The reference of a call draws random numbers: no two runs of it can be compared."""


class Reference:
    """Replays one call in float64 and float32. Results are dicts path -> plain tensor."""

    def __init__(self, call, seed=0):
        warm()
        self.call = call
        self.seed = seed
        self.parts = segments(call)
        self.truth = None
        self.t_wide = 0  # nanoseconds that the truth took
        self.yardstick = None
        self._fans = {}  # path -> inputs that one element depends on
        self._native = None
        self._made = None
        self._inward = False
        self._apart = None
        self._lifts = True  # an untested function can be kept in float64
        self._settled = False  # a function stood at its limit in a noisy run
        self.jumps = {}  # path -> what replays crossed
        self.may_draw = False  # some outputs are draws, and others are asked for
        self.quantizes = False  # the outputs are integers with a scale
        self.pairs = set()  # paths of complex outputs, which are kept as pairs of reals
        self.races = name_of_one(call) in WRITES  # threads may give other results at each run
        self.undefined = set()  # paths of results that are promised nothing
        self.unwritten = {}  # path -> elements that are promised nothing: 0 in every run
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

    def _run_plain(self, dtype_of, contents, function, partial=False):
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

    def begin(self) -> None:
        """Computes truth and yardstick; whatever the operator raises is passed on. BadCall
        where they cannot be trusted. Integers are what the CPU gives."""
        start = time.perf_counter_ns()
        self.truth = self.wide()
        self.t_wide = time.perf_counter_ns() - start
        self.quantizes = any(path.endswith(".zero_point") for path in self.truth)
        state = torch.random.get_rng_state()
        narrow = self.narrow()
        if self._untested() and self._lifts and not self._is_alike(narrow):
            self._take_as_it_is(narrow)
        self.yardstick = narrow
        if self.truth.keys() != self.yardstick.keys():
            raise BadCall("float64 and float32 give different numbers of outputs")
        if self._untested() and not self.may_draw and _moved_on(state) and self.is_random():
            raise DrawsUnsaid("it draws random numbers, which its schema does not say")
        if self._untested() and not promises_nothing(self.call) and not self._is_steady(narrow, state):
            if self.races or torch.get_num_threads() == 1:
                raise BadCall("the reference gives different results at two runs")
            self.races = True
            self.begin()
            return
        if self._rounds_inside():
            raise BadCall(
                "the reference rounds to float32 inside, or to a grid that float32 holds, where torch shows "
                f"no operator; {remedy(self.call)}"
            )
        for path, t in self.truth.items():
            if not t.is_floating_point() and path in (self.native() or ()):
                self.truth[path] = self.native()[path]

    def _is_alike(self, narrow):
        return all(
            p in narrow and _core.trust("alike", t, narrow[p]) for p, t in self.truth.items() if t.is_floating_point()
        )

    def _take_as_it_is(self, narrow):
        """Takes the float64 run of a function that cannot be kept wide: it reads float32's bytes from tensors that
        it has cast, and is given float64's."""
        lifted, self._lifts = self.truth, False
        with set_aside():
            self.truth = self.wide()
        self._lifts = self.truth is lifted or not self._is_alike(narrow)
        if self._lifts:
            self.truth = lifted

    def _is_steady(self, narrow, state):
        """Whether a function that nobody has tested yet gives `narrow` once more, from
        the state that the random numbers had."""
        again = self._from(state, self.narrow)
        if all(p in again and _core.trust("steady", again[p], t) for p, t in narrow.items()):
            return True
        return self._only_rounds(narrow, again, self._from(state, self.wide))

    def _from(self, state, run):
        """A run from that state of the random numbers, which have theirs again behind it."""
        now = torch.random.get_rng_state()
        try:
            torch.random.set_rng_state(state)
            return run()
        finally:
            torch.random.set_rng_state(now)

    def _only_rounds(self, narrow, again, wide):
        """Whether two runs differ by no more than float32 loses (a library takes memory as it happens to lie), where
        two of float64 agree far better than that."""
        return all(
            p in again
            and p in wide
            and t.is_floating_point()
            and narrow[p].shape == again[p].shape == wide[p].shape == t.shape
            and _apart(again[p], narrow[p]) <= MUCH_AS * _apart(narrow[p], t)
            and _apart(wide[p], t) <= TRIFLE * _apart(narrow[p], t)
            for p, t in self.truth.items()
        )

    @property
    def _hangs_on_dtype(self):
        """Whether a callable calls one operator only, which means something in its dtype."""
        return self.call.only is not None and self.call.only[0] in HANG_ON_DTYPE

    def _untested(self):
        source = self._chosen.get(computed)
        if self.call.composite:
            return not self._hangs_on_dtype
        return source is None or not source.steady

    def _rounds_inside(self):
        """Whether the float64 run of an untested function carries float32's precision only:
        its results fit into float32, also where inputs that do not have moved them. One that
        rounds to something coarser on purpose does not move with its inputs."""
        if not self._untested():
            return False
        coarse = [p for p, t in self.truth.items() if _core.trust("coarse", t, t)]
        if not coarse or not self.moving:
            return False
        if not self._lifts and any(_is_low(p.dtype) for p in self.parts.values()):
            return True  # to the dtype that it was told of, if to nothing else
        contents = {k: _in_full(t) * FINE for k, t in self._perturbed(0).items()}
        try:
            moved = self.wide(contents)
        except Exception as problem:  # outside its domain: nothing learnt
            foreign(problem)
            return False
        still = any(_core.trust("still_coarse", moved[p], self.truth[p]) for p in coarse if p in moved)
        return still and not self._is_all_seen(contents)

    def _is_all_seen(self, contents):
        """Whether operators that torch shows, all of them in float64, make the results: then a coarse one is meant."""
        runs, function = [], self._own or cpu_kernel(self.call)

        def seen(*args, **kwargs):
            mode = Seen(torch.float64, only_dtype(self.call), tensors_in((args, kwargs)))
            out = self._held(widened, function, lambda *_: mode)(*args, **kwargs)
            mode.end((out, args, kwargs))
            runs.append(mode)
            return out

        try:
            self._run_plain(widened, None, seen)
            self._run_plain(widened, contents, seen)
        except Exception as problem:  # it cannot be kept wide
            foreign(problem)
            return False
        return self._lifts and not any(r.narrowed for r in runs) and same_constants(*(r.foreign for r in runs))

    def native(self) -> Outputs | None:
        """The call on the CPU in the very dtypes captured; None where the CPU refuses."""
        if self.call.composite:
            return self.call.native
        if self._native is None:
            try:
                self._native = (self._natively(),)
            except Exception as problem:  # whatever a kernel raises: there is no native answer then
                foreign(problem)
                self._native = (None,)
        return self._native[0]

    def _natively(self):
        """The operator's own kernel; the yardstick where it is the same."""
        own = self._chosen.get(computed)
        low = any(widened(p.dtype) != p.dtype and computed(p.dtype) != p.dtype for p in self.parts.values())
        same = own is not None and own.run is self.call.function
        if same and not low and not _gives_low_dtype(self.call):
            return self.yardstick
        return self._run_plain(_as_given, None, self.call.function)

    # ---- perturbed runs ----

    @cached_property
    def moving(self) -> dict[tuple[int, torch.dtype], Segment]:
        """Segments that replays perturb: floats, but not labels and the like unless there
        is nothing else."""
        floats = {k: p for k, p in self.parts.items() if _is_float(p) and not p.steers and p.data.numel()}
        real = {k: p for k, p in floats.items() if not p.small_integers}
        return real or floats

    @cached_property
    def n_moving(self) -> int:
        """How many numbers replays perturb."""
        return sum(part.data.numel() for part in self.moving.values())

    @cached_property
    def largest_input(self) -> float:
        """The size of the largest input that replays perturb."""
        return max((_largest(p.data) for p in self.moving.values()), default=0.0)

    def _perturbed(self, replay, delta=0.0, share=0.0, wide=False):
        contents = {}
        for key, part in self.moving.items():
            source = torch.view_as_real(part.data) if part.data.is_complex() else part.data
            narrow = source.dtype is not torch.float64 and not share and not self._inward and not wide
            target = large.empty(source.shape, torch.float32 if narrow else torch.float64)
            _core.perturb(
                source,
                target,
                seed=self.seed,
                replay=replay,
                argument=part.number,
                delta=delta,
                share=share,
            )
            if self._inward:
                finite = source.double()  # 8 bits cannot be asked whether they are
                finite = finite[finite.isfinite()]
                if finite.numel():
                    target = target.clamp(finite.min(), finite.max())
            contents[key] = torch.view_as_complex(target) if part.data.is_complex() else target
        return contents

    def moved(self, k: int, delta: float) -> Inputs:
        """Input k, perturbed by `delta`."""
        return self._perturbed(k, delta)

    def drawn_near(self, contents: Inputs) -> Inputs:
        """Perturbed inputs, with only a part of the way gone."""
        part = _core.nearer_part
        return {key: _in_full(self.parts[key].data).lerp(_in_full(t), part) for key, t in contents.items()}

    def replay(self, k: int) -> tuple[Outputs, Outputs]:
        """Truth and yardstick on perturbed input k, freed of jumps. Inputs that leave the
        operator's domain are drawn back into the range of the captured ones."""
        wide, narrow = self._pair(k)
        odd = [p for p in wide if self._is_odd(p, wide, narrow)]
        if not odd:
            return wide, narrow
        nearer = self.wide(self.drawn_near(self._perturbed(k)))
        for path in odd:
            if path in nearer and nearer[path].shape == wide[path].shape:
                wide[path], narrow[path], jump = freed(
                    self.truth[path],
                    self.yardstick[path],
                    wide[path],
                    narrow[path],
                    nearer[path],
                )
                if jump is not None:
                    self.jumps.setdefault(path, []).append(jump)
        return wide, narrow

    def _is_odd(self, path, wide, narrow):
        truth, moved = self.truth.get(path), wide[path]
        if truth is None or not truth.is_floating_point():
            return False
        if not truth.shape == moved.shape == narrow[path].shape:
            return False
        return _core.steep(truth, moved)

    def _pair(self, k, delta=0.0):
        """Truth and yardstick on perturbed input k."""
        try:
            if self._is_bare():
                return self.wide(self._perturbed(k, delta, wide=True)), self.narrow(self._perturbed(k, delta))
            contents = self._perturbed(k, delta)
            return self.wide(contents), self.narrow(contents)
        except Exception as problem:
            foreign(problem)
            if self._inward:
                raise
            self._inward = True
            return self._pair(k, delta)

    def _is_bare(self) -> bool:
        """Whether inputs are large and not copied by a run: then those of each are made for it alone."""
        bytes_of = sum(4 * part.data.numel() for part in self.moving.values())
        return bytes_of >= large.LARGE and self._written is not None

    def raw_replay(self, k: int) -> tuple[Outputs, Outputs]:
        """Truth and yardstick on perturbed input k, jumps and all."""
        return self._pair(k)

    def far_away(self, path: str) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Truth and yardstick of one output, and both on inputs further away: where a formula
        cancels, all replays close by may repeat one lucky rounding."""
        truth = self.truth[path]
        yield truth, self.yardstick[path]
        for k, delta in enumerate(FAR_DELTAS):
            wide, narrow = self._shared_run(
                ("far", k), path, lambda k=k, d=delta: _zipped(*self._pair(FAR_REPLAYS + k, d))
            )
            if wide is None or not wide.shape == truth.shape == narrow.shape:
                return
            yield wide, narrow

    def _shared_run(self, key, path, make):
        """Two things that `make()` gives by path, (None, None) where it has none for this one. Computed once as
        far as they are small: other outputs of the call ask for the same run, and so does another look."""
        kept = self._others.get(key)
        if kept is None or path not in kept:
            kept = make()
            self._others[key] = {p: both for p, both in kept.items() if _is_small(both)}
        return kept.get(path, (None, None))

    def _has_steps(self):
        """Whether the call computes in several steps that another device may round
        otherwise."""
        if self.call.composite:
            return self.call.steps > 0
        function = self._own or self.call.function
        if isinstance(function, OpOverload):
            return taken_apart(function) is not None or is_transform(function)
        return True

    def noises(self, path: str) -> Iterator[tuple[torch.Tensor, bool]]:
        """One output of float32 when every rounding inside a call falls otherwise, and whether
        functions miss their limits, where there is one."""
        for rough in (False, True):
            if not rough or self._settled:
                yield from ((run, rough) for run in self.rounded_otherwise(path, rough))

    def same_apart(self) -> bool:
        """Whether the call's steps compute the same as the call: torch's formula of an
        attention may keep other statistics than its kernel for the backward reads."""
        if self._apart is None:
            function = self._own or cpu_kernel(self.call)

            def apart(*args, **kwargs):
                with InSteps():
                    return theirs(function, *args, **kwargs)

            found = self._run_composite(widened, None, standing_for(function, apart))
            self._apart = all(
                self._is_truth(p, found[p]) for p, t in self.truth.items() if t.is_floating_point() and p in found
            )
        return self._apart

    def _is_truth(self, path, steps):
        """Whether that is the truth, but for what float64 loses where a result cancels: a trifle beside float32's
        loss."""
        truth, narrow = self.truth[path], self.yardstick.get(path)
        if _core.trust("steps", steps, truth):
            return True
        if narrow is None or narrow.shape != truth.shape or steps.shape != truth.shape:
            return False
        return _apart(steps, truth) <= TRIFLE * _apart(narrow, truth)

    def rounded_otherwise(self, path: str, rough: bool = True) -> Iterator[torch.Tensor]:
        """One output of float32 when every rounding inside a call falls otherwise; functions
        are held to their limits unless `rough`."""
        if not self._has_steps() or getattr(self.call, "keeps_low", False):
            return  # an ulp of a step in 16 bits is no rounding of float32
        function, apart = self._own or cpu_kernel(self.call), self.same_apart()

        def made(i):
            ranged = []

            def noisy(*args, **kwargs):
                with Noise(self.seed + i, apart, rough) as noise:
                    out = theirs(function, *args, **kwargs)
                self._settled |= noise.settled
                ranged.append(noise.ranged)
                return out

            narrow = self._run_composite(computed, None, standing_for(function, noisy))
            return {p: (t, any(ranged)) for p, t in narrow.items()}

        for i in range(N_NOISES):
            narrow, ranged = self._shared_run(("noise", i, rough), path, lambda i=i: made(i))
            if narrow is None or narrow.shape != self.truth[path].shape:
                return
            run = narrow.double()
            yield self._in_range(path, run) if ranged else run

    def _in_range(self, path, run):
        """A run whose steps left float32's range, without what got lost by that alone: where the CPU's own
        kernel has the result and the same steps with no rounding moved do not, an underflow excuses nobody."""
        function, truth = self._own or cpu_kernel(self.call), self.truth[path]

        def apart(*args, **kwargs):
            with InSteps():
                return theirs(function, *args, **kwargs)

        steps = self._run_composite(computed, None, standing_for(function, apart)).get(path)
        if steps is None or steps.shape != truth.shape:
            return run
        has = (self.yardstick[path].double() - truth).abs() <= HAS * truth.abs()
        lost = has & ~((steps.double() - truth).abs() <= LOST * truth.abs())
        return torch.where(lost, self.yardstick[path].double(), run)

    def exact_steps(self, path: str) -> torch.Tensor | None:
        """Marks the elements of one output at which no step rounds in float32, but for a cast at the end; None
        where that cannot be told."""
        truth = self.truth[path]
        same = self.yardstick[path] == truth
        if self.call.composite and not (self.call.only or self._settles(truth) or self.is_whole(path)):
            return None  # other steps that come to the same may round
        runs = [run == truth for run, _ in self.noises(path)]
        if not runs and not is_one_rounding(self._own or self.call.function):
            return None
        return torch.stack([same, *runs]).all(0).to(torch.uint8)

    def is_whole(self, path: str) -> bool:
        """Whether no order of computing one output rounds, but for a cast at the end."""
        if path not in self._whole:
            self._whole[path] = is_whole(self, path, WHOLE_IN, cast=True)
        return self._whole[path]

    def added_in_order(self, path: str) -> Iterator[torch.Tensor]:
        """One output of float32 with one accumulator in every sum inside, from its first term on (or in
        some parts, or as matrix units cut it off: each element what is furthest from the truth) and from
        its last; nothing of a call that adds nothing."""
        run, truth = self._added(path, FIRST), self.truth[path]
        for order in (*PARTS, UNITS, CUT) if run is not None else ():
            other = self.cut_off(path) if order == CUT else self._added(path, order)
            if other is not None:
                further = (other - truth).abs() > (run - truth).abs()
                run = torch.where(other.isfinite() & (further | ~run.isfinite()), other, run)
        last = None if run is None else self._added(path, LAST)
        yield from (r for r in (run, last) if r is not None)

    def cut_off(self, path: str) -> torch.Tensor | None:
        """One output of few numbers in float32, with accumulators in the sums inside that are cut off; None of
        many, where that would be one factor, and of a call that adds nothing."""
        return self._added(path, CUT) if self.truth[path].numel() < _core.few_numbers else None

    def _settles(self, truth):
        """Whether whole numbers come of steps that compute each element by itself, in one way."""
        return not truth.is_floating_point() and self.call.names <= SETTLING

    def is_rounded_once(self) -> bool:
        """Whether the call is one operator that every machine rounds correctly in float32."""
        name = self.call.only[0] if self.call.composite and self.call.only else ""
        if not self.call.composite and is_one_rounding(self._own or self.call.function):
            name = self.call.op.split("::")[1].split(".")[0]
        return name.rstrip("_") in ONE_ROUNDING and not any(
            s for s in (self.call.kwargs.get("alpha"),) if s not in (None, 1)
        )

    def orders(self, path: str) -> Iterator[torch.Tensor]:
        """One output of float32 with the sums inside in each order that kernels use, and with roundings
        that fall otherwise in these; nothing of a call that adds nothing."""
        for order in (FIRST, LAST, *PARTS, UNITS):
            run = self._added(path, order)
            if run is None and order == FIRST:
                return
            if run is not None:
                yield run
        for k in range(2 * N_NOISES):
            order = (FIRST, LAST)[k % 2]
            run = self._added(path, (order, k), lambda k=k, o=order: NoisyOrder(self.seed + k, o, self.same_apart()))
            if run is not None:
                yield run

    def _added(self, path, key, begun=None):
        function = self._own or cpu_kernel(self.call)

        def made():
            mode = begun() if begun else Accumulated(key, self.same_apart())

            def added(*args, **kwargs):
                with mode:
                    return theirs(function, *args, **kwargs)

            narrow = self._run_composite(computed, None, standing_for(function, added))
            return {p: (t if mode.any else None, mode.ranged) for p, t in narrow.items()}

        narrow, ranged = self._shared_run(("added", key), path, made)
        if narrow is None or narrow.shape != self.truth[path].shape:
            return None
        return self._in_range(path, narrow.double()) if ranged else narrow

    def infinite(self, path: str) -> Iterator[torch.Tensor]:
        """One output in steps, with the sums inside in the orders of adding that make them infinite: to one
        side, to the other, and NaN where both are possible. Nothing more where no sum leaves the range."""
        function = self._own or cpu_kernel(self.call)
        found = set()
        for side in (UP, DOWN, BOTH):
            mode = Extremes(side, self.same_apart())

            def extreme(*args, mode=mode, **kwargs):
                with mode:
                    return function(*args, **kwargs)

            if side == DOWN and not found or side == BOTH and found != {UP, DOWN}:
                return
            outputs = self._run_composite(computed, None, standing_for(function, extreme))
            if path not in outputs or outputs[path].shape != self.truth[path].shape:
                return
            found |= mode.found
            run = outputs[path].double()
            yield run if bool(run.isfinite().all()) else self._in_range(path, run)

    def roundings(self, n: int) -> Iterator[Outputs]:
        """A callable's results in the dtypes given, with every rounding fallen otherwise."""
        for k in range(n):

            def noisy(*args, k=k, **kwargs):
                with Noise(self.seed + k):
                    return theirs(self.call.function, *args, **kwargs)

            with set_aside():
                yield self._run_plain(_as_given, None, noisy)

    def fan_in(self, path: str) -> float:
        """How many inputs one element of output `path` depends on, at least 1: perturbs a
        share of the inputs and counts the outputs that do not move. A sum of products hangs on two
        inputs for each term: where there are many, those of the argument with the most count."""
        if path not in self._fans:
            self._fans[path] = self._fan_in(path)
        return self._fans[path]

    def _fan_in(self, path):
        live = self._reacts(path)
        if not bool(live.any()):
            return 1.0
        n = self.n_moving
        draws = 1 if int(live.sum()) >= FEW_OUTPUTS else 8 if n < MUCH else 2
        shares = [share for share in FAN_SHARES if n * share >= 0.5]
        found, low, high = None, 0, len(shares)
        while low < high:  # the largest share at which some do not move; the smaller, the more
            i = (low + high) // 2
            still = [self._still(path, live, i, d) for d in range(draws)]
            if None in still:
                return 1.0  # the shape hangs on values
            still = sum(still) / draws
            low, high, found = (low, i, (i, still)) if still > 0.05 else (i + 1, high, found)
        if found is None:
            return float(max(n, 1))
        fan = _fan_from(found[1], shares[found[0]])
        return fan if draws > 1 or fan < MANY_INPUTS else self._fan_of_one(path, live, found[0], fan)

    def _fan_of_one(self, path, live, i, fan):
        """The same of the argument of which an element depends on most, at the same share."""
        if not 2 <= len(self.moving) <= MOST_ALONE:
            return fan
        still = [self._still(path, live, i, 0, key) for key in self.moving]
        return min(fan, max(_fan_from(s, FAN_SHARES[i]) for s in still))

    def _still(self, path, live, i, draw, alone=None):
        """The share of the elements that do not move; None where there is no telling."""
        moved = self._shared(path, i, draw, alone)
        if moved is None or moved.shape != live.shape:
            return None if alone is None else 1.0
        return float((moved == self.truth[path])[live].double().mean())

    def _reacts(self, path):
        """Which elements of an output hang on the inputs: all but zeros, and where most are zero
        those that move, as sums do that cancel and masked elements do not."""
        truth = self.truth[path]
        live = truth.isfinite() & (truth != 0)
        if 2 * int(live.sum()) >= truth.numel():
            return live
        moved = self._shared(path, None, 0)
        return live if moved is None or moved.shape != truth.shape else live | (moved.isfinite() & (moved != truth))

    def _shared(self, path, i, draw, alone=None):
        """An output with a share of the inputs moved, of one part alone if it is named; None where there is none."""

        def made():
            where = {} if i is None else {"share": FAN_SHARES[i]}
            contents = self._perturbed(1000 + 16 * (i or 0) + draw, FAN_DELTA, **where)
            found = self.wide(contents if alone is None else {alone: contents[alone]})
            return {p: (t, None) for p, t in found.items()}

        return self._shared_run(("share", i, draw, alone), path, made)[0]

    def flushed(self) -> Iterator[Outputs]:
        """What devices that flush subnormals to zero may give, one result after the other:
        this CPU's own flushing; inputs flushed and nothing else; every step's result flushed.
        What differs from the yardstick does so by the flushing of a number, never by another
        way of rounding."""
        with flushing_to_zero():
            yield self._flat(self._run(computed))
        zeroed = {k: _without_subnormals(p.data) for k, p in self.parts.items() if _is_float(p)}
        small = any(_differ(t, self.parts[k].data) for k, t in zeroed.items())
        if small:
            yield self._flat(self._run(computed, zeroed))
        flush = Flush()
        with flushing_to_zero():
            given = self._flat(self._run(computed, zeroed, self._in_steps(flush)))
        if small or flush.any:
            plain = self._flat(self._run(computed, None, self._in_steps(InSteps())))
            yield {p: self._where_moved(p, t, plain.get(p)) for p, t in given.items()}

    def _flat(self, outputs):
        return {p: t.float() if _is_low(t.dtype) else t for p, t in outputs.items()}

    def _in_steps(self, mode):
        """The call run step by step under a mode."""
        function = self._own or cpu_kernel(self.call)

        def step_by_step(*args, **kwargs):
            with mode:
                return theirs(function, *args, **kwargs)

        return standing_for(function, step_by_step)

    def _where_moved(self, path, flushed, plain):
        """A flushed result, and the yardstick where it is the one that is not flushed."""
        yardstick = self.yardstick[path]
        if plain is None or not plain.shape == flushed.shape == yardstick.shape:
            return yardstick
        same = (flushed == plain) | (flushed.isnan() & plain.isnan())
        return torch.where(same, yardstick.to(flushed.dtype), flushed)

    @cached_property
    def overflows(self) -> bool:
        """Whether a step inside the call overflows float32 on these inputs."""
        function = self._own or cpu_kernel(self.call)
        watch = Overflowing()

        def watched(*args, **kwargs):
            with watch:
                return theirs(function, *args, **kwargs)

        self._run(computed, None, standing_for(function, watched))
        return watch.overflowed

    def never_rounds(self) -> bool:
        """Whether the call gives the only right value, to the last bit."""
        if self.call.composite:
            return not self.call.rounds
        return self._own is None and never_rounds(self.call.op, self.call.is_complex)

    def is_random(self, numbers: int = DRAWN) -> bool:
        """Whether runs with different seeds differ, and two with one seed do not: an operator
        that draws random numbers without saying so in its schema. One whose answers differ
        anyway reads what it must not, or adds up in no order. Of a few results, which by chance
        come out alike (two that are dropped once in a hundred), as many runs as draw so many `numbers`."""
        state = torch.random.get_rng_state()
        try:
            seeded = torch.default_generator.manual_seed(1).get_state()
            first = self.narrow()
            seeds = 2
            if _moved_on(seeded):
                seeds += numbers // max(sum(t.numel() for t in first.values()), 1)
            varies = any(not _all_same(first, self._seeded(seed)) for seed in range(2, seeds + 1))
            return varies and _all_same(first, self._seeded(1))
        finally:
            torch.random.set_rng_state(state)

    def _seeded(self, seed):
        torch.default_generator.manual_seed(seed)
        return self.narrow()


def _moved_on(state):
    """Whether the CPU's generator has given numbers since it was in that state."""
    return not torch.equal(torch.random.get_rng_state(), state)


def _fan_from(still, share):
    """F from the share of outputs that did not move, held within what this share of
    perturbed inputs can tell at all (a handful of outputs tells 0 or 1)."""
    fan = math.log(still) / math.log1p(-share) if 0 < still < 1 else 1.0 if still > 0 else math.inf
    low = 1.0 if share == 0.5 else 0.25 / share
    return min(max(fan, low), max(3 / share, 1.0))


def _is_float(part):
    if part.dtype.is_floating_point and part.dtype.itemsize == 1 and torch.finfo(part.dtype).eps >= 1:
        return False  # powers of two: nothing is between them
    return part.dtype.is_floating_point or part.dtype.is_complex


def _all_same(a, b):
    return all(_is_same(a[p], b[p]) for p in a)


def _is_same(a, b):
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


def _largest(x):
    """The largest size of a finite element."""
    x = x.float() if x.element_size() == 1 else x  # float8 has no abs of its own
    return float(x.abs().nan_to_num(0, 0, 0).max())


def _in_full(t):
    return t.to(torch.complex128 if t.is_complex() else torch.float64)


def _differ(a, b):
    """Whether two tensors of one shape differ in a number."""
    return a is not b and bool(((a != b) & (b == b)).any())


def _without_subnormals(data):
    wide = torch.view_as_real(data) if data.is_complex() else data
    if wide.dtype is torch.float32 and not _core.beyond_float32(wide, False):
        return data
    kept = torch.where(wide.abs() < torch.finfo(torch.float32).tiny, wide * 0, wide)
    return torch.view_as_complex(kept) if data.is_complex() else kept


def _as_given(dtype):
    return dtype


def _is_low(dtype):
    return dtype.is_floating_point and dtype.itemsize < 4


def _gives_low_dtype(call):
    """Whether an argument, or its own name, says a dtype that the yardstick would widen."""
    values = list(call.args) + list(call.kwargs.values())
    return call.op == "aten::chalf" or any(isinstance(v, torch.dtype) and computed(v) != v for v in values)


def _apart(a, b):
    """Root mean square of a difference."""
    return float((a.double() - b.double()).nan_to_num(0, 0, 0).square().mean().sqrt())


def _zipped(wide, narrow):
    return {p: (t, narrow[p]) for p, t in wide.items() if p in narrow}


def _is_small(some):
    return sum(t.nbytes for t in some if isinstance(t, torch.Tensor)) <= MOST_SHARED
