# SPDX-License-Identifier: Apache-2.0
"""A call in float32 whose roundings fall otherwise: by chance, with its sums in other orders, with subnormals flushed
to zero. A part of `reference_runs.Reference`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import torch

from .. import _core
from ..calls.foreign import set_aside, theirs
from ..calls.replay import computed
from ..calls.replay import widened
from ..calls.torch_private import OpOverload
from .algorithms import CUT, FIRST, LAST, PARTS, UNITS
from .extremes import BOTH, DOWN, UP, Extremes
from .noise import Accumulated, Flush, InSteps, Noise, NoisyOrder, Overflowing, is_one_rounding, is_transform
from .noise import taken_apart
from .orders import is_whole
from .precision import cpu_kernel, standing_for
from .streams import flushing_to_zero
from .moved_runs import MovedRuns, _is_float
from .precision_runs import Outputs, _as_given

N_NOISES = 5
SETTLING = set(
    (
        "add sub mul div neg abs round floor ceil trunc clamp clamp_min clamp_max _to_copy to copy_ clone "
        "detach view reshape expand unsqueeze squeeze lift_fresh"
    ).split()
)
ONE_ROUNDING = {"add", "sub", "rsub", "mul", "_to_copy", "to", "convert_element_type"}
WHOLE_IN = frozenset({torch.float32, torch.bfloat16, torch.float16})
TRIFLE = 2.0**-20  # of what float32 loses
LOST, HAS = 2.0**-4, 2.0**-10  # of a result: nothing of it is left; float32 has it


class RoundedRuns(MovedRuns):
    """The call in steps that another device may round otherwise."""

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


def _differ(a, b):
    """Whether two tensors of one shape differ in a number."""
    return a is not b and bool(((a != b) & (b == b)).any())


def _without_subnormals(data):
    wide = torch.view_as_real(data) if data.is_complex() else data
    if wide.dtype is torch.float32 and not _core.beyond_float32(wide, False):
        return data
    kept = torch.where(wide.abs() < torch.finfo(torch.float32).tiny, wide * 0, wide)
    return torch.view_as_complex(kept) if data.is_complex() else kept


def _apart(a, b):
    """Root mean square of a difference."""
    return float((a.double() - b.double()).nan_to_num(0, 0, 0).square().mean().sqrt())
