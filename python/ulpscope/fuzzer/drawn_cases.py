# SPDX-License-Identifier: Apache-2.0
"""Random calls: from a row of a trace, the example, the calls that `_core.fuzz_draw` makes of it:
other sizes, dtypes, memory layouts and values. What the CPU refuses is drawn again, nearer to the
example each time. Needs of torch: dtypes by name, `frombuffer`.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from .. import _core
from ..calls.autocast import settle
from ..calls.contents import Contents
from ..calls.foreign import foreign
from ..calls.older import zip_equal
from ..calls.read_call import bare_call, dtype_named
from ..calls.raw_bytes import fit
from ..calls.nested import TensorAt, mapped, tensors_in
from ..calls.replay import BadCall, Call, LAZY, LEFT_ALONE, base_name, bind_exact, is_row_major
from ..calls.standin import stand_in
from ..calls.trusting import TRUSTING
from ..calls.verdicts import clause

ATTEMPTS, STEP_BIT, STEPS, AS_IS = _core.fuzz_attempts, _core.fuzz_step_bit, _core.fuzz_steps, _core.fuzz_as_is
LISTED, ALL = _core.fuzz_listed, _core.fuzz_all_numbers
# Operators whose kernels on the CPU read beside tensors with gaps or expanded axes: theirs are row-major.
DENSE = {
    "median",
    "nanmedian",  # an expanded axis: dies of SIGSEGV (examples/found/torch_median_expanded.py)
    "native_group_norm",
    "native_layer_norm_backward",  # whose callers make weights and statistics dense
}
# Counts that are the sizes of a tensor, multiplied.
SIZES_AGAIN = {"native_group_norm"}
# Arguments that are written although no schema says so: each element must have a place of its own.
WRITTEN_UNSAID = {"running_mean", "running_var"}
# Bytes that a forward call of the same library left for its backward: drawn ones mean nothing.
WORKSPACES = {"workspace", "reserve", "reserveSpace"}
MOST_RESULTS = 1 << 18  # elements; half a percent of the cases had more, and took half of the time
MOST_WHOLE = 1 << 53  # integers beyond are not drawn one by one


class Example:
    """A row of a trace from which calls are drawn."""

    def __init__(self, row, trace_id=""):
        self.row, self.trace_id = row, trace_id
        self.inputs = [t for t in row["tensors"] if t["role"] == "in"]
        for t in self.inputs:
            if t.get("form") and t["form"].split()[0] not in LAZY:
                raise BadCall(f"{t['path']} is no plain tensor ({t['form']}): nothing is drawn for it")
        self.call = bare_call(row)
        for path, view in self.call.views.items():
            if view.argument in WORKSPACES and view.dtype == torch.uint8:
                raise BadCall(f"{path} is a workspace that its forward fills: nothing is drawn for it")
        unsaid = {p for p, v in self.call.views.items() if v.argument in WRITTEN_UNSAID}
        written = {*self.call.written(), *unsaid, *(t["path"] for t in row["tensors"] if t["role"] == "mutated")}
        self.tensors = [self._tensor(t, t["path"] in written) for t in self.inputs]
        self.trusts = self._trusts()
        self.counts = [] if self.trusts else counts_of(self.call)
        self.most = max(MOST_RESULTS, sum(math.prod(t["sizes"]) for t in self._rest()))
        self.dense = base_name(row["op"])[1] in DENSE
        self.stats = [json.loads(t["stats"]) if isinstance(t["stats"], str) else t["stats"] or {} for t in self.inputs]

    @staticmethod
    def _tensor(t, written):
        """As `_core.fuzz_draw` takes it. Complex ones keep their dtype: a word stands for one."""
        dtype = dtype_named(t["dtype"])
        word = "int64" if dtype.is_complex else t["dtype"]
        return (word, tuple(t["sizes"]), tuple(t["strides"]), t["offset"], t["storage"], 0, written)

    def attempts(self, seed: int, case: int, stress: bool = False) -> Iterator[tuple[Call, str]]:
        """(call, words on how it was drawn) of each attempt at a case."""
        for attempt in range(ATTEMPTS - 1 if self.trusts or case & AS_IS else 0, ATTEMPTS):
            yield self._attempt(seed, case, attempt, stress)

    def _trusts(self):
        """Whether its kernel trusts what it is given, as a backward does indices that a forward
        call computed."""
        if base_name(self.row["op"])[1] in TRUSTING:
            return True
        whole = [t for t in self.inputs if t["dtype"] in ("int64", "int32")]
        return "backward" in self.row["op"] and any(not _core.need(t, self.row)[0] for t in whole)

    def _attempt(self, seed, case, attempt, stress):
        kind, was, now, sizes, numbers, tensors, (count, which) = _core.fuzz_draw(
            seed, case, attempt, stress, self.tensors
        )
        if self.dense:
            tensors = [_dense(d, -1 - i) for i, d in enumerate(tensors)]
        call = self._blank()
        cast = {dtype_named(was): dtype_named(now)} if was != now else {}
        call.args = [_argument(a, sizes, numbers == ALL, numbers, cast) for a in call.args]
        call.kwargs = {k: _argument(a, sizes, numbers == ALL, numbers, cast) for k, a in call.kwargs.items()}
        counted = self._recount(call, sizes, count, which) if count else ""
        rows = [
            {**t, "dtype": d[0], "sizes": list(d[1]), "strides": list(d[2])} for t, d in zip_equal(self.inputs, tensors)
        ]
        for i, (t, drawn) in enumerate(zip_equal(self.inputs, tensors)):
            view = call.views[t["path"]]
            view.dtype = view.dtype if view.dtype.is_complex else dtype_named(drawn[0])
            view.sizes, view.strides, view.offset, view.storage = drawn[1], drawn[2], drawn[3], drawn[4]
            view.device = "cpu"
            if view.storage not in call.storages:
                last = attempt == ATTEMPTS - 1 and not case >> STEP_BIT
                call.storages[view.storage] = self._content(call, view, rows, i, drawn, (seed, case, kind, sizes, last))
        return call, "; ".join(filter(None, [said(kind, was, now, sizes), counted]))

    def _blank(self):
        """A call of the example's operator, whose views may be changed."""
        call = bare_call(self.row) if self.call.composite else copy.copy(self.call)
        call.views = {path: copy.copy(view) for path, view in call.views.items()}
        call.results, call.mutated, call.storages, call.live = {}, {}, Contents(), None
        return call

    def _recount(self, call, sizes, count, which):
        """Puts another count in place of one that is no size; words on it."""
        free = [(at, name) for at, name in self.counts if _at(self.call, at) not in sizes]
        if not free:
            return ""
        (where, key), name = free[which % len(free)]
        was = _at(self.call, (where, key))
        getattr(call, where)[key] = count
        return f"{name} {was} -> {count}"

    def _content(self, call, view, rows, i, drawn, how):
        """The bytes of a tensor's storage."""
        seed, case, kind, sizes, last = how
        if (last or view.argument in LEFT_ALONE) and self.inputs[i]["stats"] and drawn[1] == self.tensors[i][1]:
            return self._as_example(view, i, drawn)
        if view.dtype.is_complex:
            part = "float64" if view.dtype == torch.complex128 else "float32"
            drawn = (
                part,
                (*drawn[1], 2),
                (*(2 * s for s in drawn[2]), 1),
                2 * drawn[3],
                drawn[4],
                2 * drawn[5],
                drawn[6],
            )
            kind = "normal" if kind == "positive-definite" else kind
        what, limit = _core.need(rows[i], {**self.row, "tensors": rows + self._rest()})
        floats = view.dtype.is_floating_point or view.dtype.is_complex
        if what in ("definite", "triangular") and floats:
            kind = "positive-definite"
        if not floats:
            kind = "mask" if view.dtype == torch.bool else "index"
        domain = self._domain(self.stats[i], sizes, limit if what == "index" else None)
        raw = _core.fuzz_fill(seed, case, i, drawn, kind, domain)
        return torch.frombuffer(raw, dtype=torch.uint8) if raw else torch.empty(0, dtype=torch.uint8)

    def _rest(self):
        return [t for t in self.row["tensors"] if t["role"] != "in"]

    def _as_example(self, view, i, drawn):
        """Values as the statistics of the example say, where the tensor lies now."""
        values = stand_in(self.trace_id, self.row["sequence"], self.inputs[i], self.row)
        raw = torch.zeros(drawn[5] * view.dtype.itemsize, dtype=torch.uint8)
        distinct = tuple(slice(1) if s == 0 else slice(None) for s in view.strides)
        sizes = [1 if s == 0 and n else n for n, s in zip(view.sizes, view.strides)]
        fit(raw, view.dtype).as_strided(sizes, view.strides, view.offset).copy_(values[distinct])
        return raw

    @staticmethod
    def _domain(stats, sizes, limit):
        """(positive, unit, lowest, highest) as usc_stress_domain has them."""
        low, high = stats.get("min"), stats.get("max")
        low = low if isinstance(low, (int, float)) and math.isfinite(low) else -1.0
        high = high if isinstance(high, (int, float)) and math.isfinite(high) else 1.0
        lowest = max(-MOST_WHOLE, min(MOST_WHOLE, int(stats.get("int_min", 0))))
        highest = max(-MOST_WHOLE, min(MOST_WHOLE, int(stats.get("int_max", 0))))
        if limit is not None:
            lowest, highest = 0, limit - 1 if limit else highest
        elif highest + 1 in sizes and lowest >= 0:  # indices into something of that size
            highest = sizes[highest + 1] - 1
        positive = low >= 0 and high > 0
        return positive, positive and high <= 1, min(lowest, max(highest, 0)), max(highest, 0, lowest)


class Examples(dict):
    """Call of a trace -> its Example; so many are remembered."""

    MOST = 4096

    def __init__(self, trace, trace_id):
        super().__init__()
        self.trace, self.trace_id = trace, trace_id

    def __missing__(self, sequence):
        made = Example(self.trace.call(sequence), self.trace_id)
        if len(self) >= self.MOST:
            self.clear()
        self[sequence] = made
        return made


def _dense(drawn, storage):
    """A tensor as `_core.fuzz_draw` drew it, row-major; in that storage where it lay otherwise."""
    word, sizes, strides, _, _, _, written = drawn
    if is_row_major(sizes, strides):
        return drawn
    steps = tuple(math.prod(sizes[i + 1 :]) for i in range(len(sizes)))
    return word, sizes, steps, 0, storage, math.prod(sizes), written


def _at(call, place):
    return getattr(call, place[0])[place[1]]


def counts_of(call: Call) -> list[tuple[Any, str]]:
    """[(place, name)] of arguments that count something: what a schema calls SymInt, which dimensions, modes
    and flags are not. A forward operator's alone: a backward one trusts that they fit what it is given."""
    if call.schema is None or "backward" in call.op or base_name(call.op)[1] in SIZES_AGAIN:
        return []
    given = {a.name: ("args", i) for i, a in enumerate(call.schema.arguments) if i < len(call.args)}
    given |= {name: ("kwargs", name) for name in call.kwargs}
    counts = [a.name for a in call.schema.arguments if a.real_type.kind() == "SymIntType"]
    return [(given[name], name) for name in counts if name in given and type(_at(call, given[name])) is int]


def _argument(value, sizes, anywhere, numbers, cast):
    """An argument with integers that follow sizes, and dtypes that follow those of tensors."""

    def number(item):
        return sizes.get(item, item) if type(item) is int else item

    if isinstance(value, torch.dtype):
        return cast.get(value, value)
    if isinstance(value, (list, tuple)) and numbers in (LISTED, ALL):
        return mapped(value, number)
    return number(value) if anywhere and not isinstance(value, (list, tuple, dict, TensorAt)) else value


def said(kind: str, was: Sequence[int] | None, now: Sequence[int] | None, sizes: Any) -> str:
    """How a case was drawn, for the notes of its row."""
    changed = [f"{a} -> {b}" for a, b in sizes.items() if a != b]
    return "; ".join(
        filter(
            None,
            [
                f"{kind} values",
                f"{was} -> {now}" if was != now else "",
                f"sizes {', '.join(changed)}" if changed else "",
            ],
        )
    )


def drawn(example: Example, seed: int, case: int, stress: bool = False) -> tuple[Call, str]:
    """(call, words on it): the first attempt that the CPU takes and whose results are not large, or that
    of the smallest ones. BadCall where it takes none."""
    why, least, large = "", math.inf, None
    for call, words in example.attempts(seed, case, stress):
        try:
            if call.composite:
                settle(call)
            result = bind_exact(call, lambda captured: "cpu").run(call.on_host() if call.composite else call.function)
            n = sum(t.numel() for t in tensors_in(result))
            if n <= example.most:
                return call, words
            if n < least:
                least, large = n, (call, words)
        except BadCall:
            raise
        except Exception as problem:  # any refusal will do
            foreign(problem)
            why = clause(problem)
    if large is not None:
        return large
    raise BadCall(f"the CPU takes none of {ATTEMPTS} draws: {why}")
