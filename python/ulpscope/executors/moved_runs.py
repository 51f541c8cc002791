# SPDX-License-Identifier: Apache-2.0
"""A call on inputs that were moved by about an ulp, or further: its replays, and how many inputs one element of an
output hangs on. The perturbation itself is `_core.perturb`. A part of `reference_runs.Reference`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property

import torch

from .. import _core
from ..calls import large
from ..calls.foreign import foreign
from ..calls.replay import Segment
from .jumps import freed
from .precision_runs import Inputs, Outputs, PrecisionRuns

FAN_SHARES = (1 / 2, 1 / 16, 1 / 128, 1 / 1024, 1 / 8192, 1 / 65536)
FAN_DELTA = 2.0**-12
MUCH = 1 << 22  # inputs of which few runs have to do
FEW_OUTPUTS = 64
MANY_INPUTS = 32  # below, limits are those of operators, not of sums
MOST_ALONE = 4  # arguments that are moved alone
FAR_DELTAS = (2.0**-4, 2.0**-5, 2.0**-6, 2.0**-8)
FAR_REPLAYS = 2000
MOST_SHARED = 1 << 18  # bytes of an output of a run that is kept for others


class MovedRuns(PrecisionRuns):
    """The call on perturbed inputs."""

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

    def _pair(self, k: int, delta: float = 0.0) -> tuple[Outputs, Outputs]:
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


def _largest(x):
    """The largest size of a finite element."""
    x = x.float() if x.element_size() == 1 else x  # float8 has no abs of its own
    return float(x.abs().nan_to_num(0, 0, 0).max())


def _in_full(t):
    return t.to(torch.complex128 if t.is_complex() else torch.float64)


def _zipped(wide, narrow):
    return {p: (t, narrow[p]) for p, t in wide.items() if p in narrow}


def _is_small(some):
    return sum(t.nbytes for t in some if isinstance(t, torch.Tensor)) <= MOST_SHARED
