# SPDX-License-Identifier: Apache-2.0
"""The operands of one call's outputs, each computed once, and what that takes. Asks
`reference`; serves `judges.outputs`, which decides how many replays an output needs.

A call over lists of tensors (a fused or foreach optimizer's step) is as many calls as the
lists are long: an output that needs replays gets those of its own place in the lists.
"""

from __future__ import annotations

import copy
import re
import time
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any

import torch

from ..calls.foreign import set_aside
from ..calls.replay import Call, base_name
from .precision import FUSED
from .reference_runs import Reference

REPLAY_BYTES = 1 << 28  # of perturbed results that are kept for other outputs of a call
SMALL_BYTES = 1 << 18  # that are kept for another look at the only output
LARGE_BYTES = 1 << 22  # of one output of a replay, not kept once that output is judged
SOME = 4  # one in so many places asks: the others will


class Timing:
    """Nanoseconds per part of the work on one call."""

    def __init__(self) -> None:
        self.device = self.reference = self.perturbed = self.judge = self.causes = 0
        self.wide = 0  # of the float64 replay alone, with the reading of its arguments
        self.start = time.perf_counter_ns()

    def add(self, part: str, since: int) -> int:
        now = time.perf_counter_ns()
        setattr(self, part, getattr(self, part) + now - since)
        return now

    def row(self) -> dict[str, int]:
        total = time.perf_counter_ns() - self.start
        return {
            "t_device": self.device,
            "t_reference": self.reference,
            "t_perturbed": self.perturbed,
            "t_judge": self.judge,
            "t_wide": self.wide,
            "t_causes": self.causes,
            "t_total": total,
        }


class Operands:
    """Truth, yardstick and replays of one call, each computed once and shared by
    everything that is judged against them."""

    def __init__(self, call: Call, timing: Timing) -> None:
        self.call, self.timing = call, timing
        self.reference = Reference(call)
        self._replays, self._held = {}, 0
        self._judged = set()  # paths of large outputs that are done
        self._places = {}  # place in the lists -> Reference
        self._chains = {}  # number -> results
        self._flushed = {}  # place, or None -> what flushes
        self.internal = ""  # a mistake of ours in a run that judged nobody
        self.note = ""  # on what is judged by them
        self.refused = "", {}  # what the CPU refuses of it: an excuse, path -> elements that hang on that
        self.readings: Any = None  # other readings of the call, where any were asked for

    def begin(self) -> None:
        """Computes truth and yardstick, unless they are there."""
        if self.reference.yardstick is not None:
            return
        now = time.perf_counter_ns()
        self.reference.begin()
        self.timing.wide += self.reference.t_wide
        self.timing.add("reference", now)

    def replay(self, k: int) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """Truth and yardstick on perturbed input k. The first is kept, as it is what every
        look begins with; others while they are small and several outputs may want them."""
        return self._kept(k, None, self.reference)

    def replay_of(self, path: str, k: int) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """The same as far as it is about one output."""
        if path in self._judged:  # another answer is asked for
            return self._timed(k, self._at(path)[1])
        if k in self._replays or (k == 0 and self._all_are_asked()):
            return self.replay(k)
        place, reference = self._at(path)
        return self._kept(k, place, reference)

    def let_go(self, path: str) -> None:
        """Keeps nothing large of an output that is judged: others would wait beside it in memory."""
        if self.reference.truth is None or path not in self.reference.truth or len(self.reference.truth) == 1:
            return
        if self.reference.truth[path].nbytes > LARGE_BYTES:
            self._judged.add(path)
            self._replays = {key: self._rest(pair) for key, pair in self._replays.items()}
            self._held = sum(_bytes_of(pair) for pair in self._replays.values())

    def _rest(self, pair):
        return tuple({p: t for p, t in results.items() if p not in self._judged} for results in pair)

    def reference_of(self, path: str) -> Reference:
        """What replays one output: of a call over lists its own place, the call for all others."""
        return self._at(path)[1]

    def _at(self, path):
        """The place in the lists that an output has, and the reference of it alone; None and
        that of the whole call for all others."""
        place = place_of(path)
        if place is None or self._length is None:
            return None, self.reference
        if place not in self._places:
            self._places[place] = at_place(self.reference, place, self._length)
        return place, self._places[place]

    def _all_are_asked(self):
        """Whether so many places have asked that one replay of all costs less, and is no burden."""
        asked = sum(isinstance(key, tuple) for key in self._replays)
        return (
            bool(asked)
            and SOME * asked >= self._length
            and 2 * sum(t.nbytes for t in self.reference.truth.values()) < REPLAY_BYTES
        )

    @cached_property
    def _length(self):
        return length_of_lists(self.call)

    def _kept(self, k, place, reference):
        key = k if place is None else (k, place)
        if key in self._replays:
            return self._replays[key]
        pair = self._timed(k, reference)
        rest = self._rest(pair) if self._judged else pair
        size = _bytes_of(rest)
        few = self._held < REPLAY_BYTES and (len(pair[0]) > 1 or size <= SMALL_BYTES)
        if k == 0 or few:
            self._replays[key] = rest
            self._held += size
        return pair

    def _timed(self, k, reference):
        now = time.perf_counter_ns()
        pair = reference.replay(k)
        self.timing.add("perturbed", now)
        return pair

    def flushed(self, path: str) -> dict[str, torch.Tensor] | list[torch.Tensor]:
        """What devices that flush subnormals may give, as far as it differs from the
        yardstick; the first is this CPU's own."""
        place, reference = self._at(path)
        if place not in self._flushed:
            now = time.perf_counter_ns()
            self._flushed[place] = list(_until_it_fails(reference.flushed()))
            self.timing.add("perturbed", now)
        plain = self.reference.yardstick[path]
        given = [f[path] for f in self._flushed[place] if path in f and f[path].shape == plain.shape]
        given = [torch.where(plain.isnan(), plain, f) for f in given]  # zeros make no NaN right
        return [f for f in given if bool(((f != plain) & ~plain.isnan()).any())]

    def chain(self, k: int) -> dict[str, torch.Tensor] | None:
        """Run k of a callable that rounds to 16 bits between its operators, kept for its other outputs."""
        if k not in self._chains:
            now = time.perf_counter_ns()
            run = self.reference.chain(k)
            self.timing.add("perturbed", now)
            if self._held >= REPLAY_BYTES:
                return run
            self._chains[k] = run
            self._held += sum(t.nbytes for t in (run or {}).values())
        return self._chains[k]

    def fan_in(self, path: str) -> float:
        now = time.perf_counter_ns()
        fan = self._at(path)[1].fan_in(path)
        self.timing.add("perturbed", now)
        return fan


def _until_it_fails(results):
    """What a generator gives before it raises, if it does."""
    with set_aside():
        yield from results


def _bytes_of(pair):
    return sum(t.nbytes for results in pair for t in results.values())


# ---- calls over lists ------------------------------------------------------------------


@lru_cache(4096)
def place_of(path: str) -> int | None:
    """The place in a list that an argument has, None where it is in none."""
    found = re.fullmatch(r"args\[\d+\]\[(\d+)\]", path)
    return int(found[1]) if found else None


def call_at_place(call: Call, place: int, length: int) -> Call:
    """The call over lists of `length` for one place alone."""
    cut = lambda v: [v[place]] if isinstance(v, list) and len(v) == length else v  # noqa: E731
    views = {p: v for p, v in call.views.items() if place_of(p) in (place, None)}
    mutated = {p: v for p, v in call.mutated.items() if place_of(p) in (place, None)}
    return replace(
        call,
        args=[cut(a) for a in call.args],
        views=views,
        mutated=mutated,
        kwargs={k: cut(v) for k, v in call.kwargs.items()},
    )


def at_place(reference: Reference, place: int, length: int) -> Reference:
    """The reference of a call over lists for one place, perturbed as the whole is."""
    out = copy.copy(reference)
    out.call = call_at_place(reference.call, place, length)
    keys = {(v.storage, v.dtype) for v in out.call.views.values()}
    out.n_moving = reference.n_moving
    out.moving = {k: p for k, p in reference.moving.items() if k in keys}
    out.parts = {k: p for k, p in reference.parts.items() if k in keys}
    out._sources, out._chosen, out._shares = None, {}, {}
    for kept in ("_written", "largest_input", "overflows"):
        out.__dict__.pop(kept, None)
    return out


def length_of_lists(call: Call) -> int | None:
    """How long the lists of a call are that computes place by place; None for all others, of one
    place, and where places share memory."""
    name = base_name(call.op)[1]
    if call.composite or not call.schema or call.schema.returns:
        return None
    if name not in FUSED and not name.startswith("_foreach_"):
        return None
    lengths = {len(a) for a in call.args if isinstance(a, list) and a}
    places = {}
    for path, view in call.views.items():
        places.setdefault(view.storage, set()).add(place_of(path))
    alone = all(len(found) == 1 for found in places.values())
    return max(lengths) if len(lengths) == 1 and max(lengths) > 1 and alone else None
