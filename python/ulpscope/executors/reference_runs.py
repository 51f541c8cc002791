# SPDX-License-Identifier: Apache-2.0
"""The operands of a verdict: a call's float64 reference and its float32 yardstick, also on
perturbed inputs. Everything runs on the CPU; nothing here decides.

The formulas are in docs/background/verdict.md; the perturbation itself is `_core.perturb`.
"""

from __future__ import annotations

import time

import torch

from .. import _core
from ..calls.foreign import foreign, set_aside
from ..calls.meaning import only_dtype
from ..calls.replay import BadCall, computed, promises_nothing
from ..calls.replay import widened
from .lifting import Seen, remedy, same_constants, tensors_in
from .precision import HANG_ON_DTYPE, cpu_kernel
from .moved_runs import _in_full
from .precision_runs import Outputs, _as_given, _is_low
from .rounded_runs import RoundedRuns, TRIFLE, _apart

DRAWN = 2048  # results by which an operator that draws shows it
MUCH_AS = 8  # times what float32 loses
FINE = 1 + 2.0**-33  # makes a float32 number one that is none


class DrawsUnsaid(BadCall):
    """The reference of a call draws random numbers: no two runs of it can be compared."""


class Reference(RoundedRuns):
    """Replays one call in float64 and float32. Results are dicts path -> plain tensor."""

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


def _all_same(a, b):
    return all(_is_same(a[p], b[p]) for p in a)


def _is_same(a, b):
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


def _gives_low_dtype(call):
    """Whether an argument, or its own name, says a dtype that the yardstick would widen."""
    values = list(call.args) + list(call.kwargs.values())
    return call.op == "aten::chalf" or any(isinstance(v, torch.dtype) and computed(v) != v for v in values)
