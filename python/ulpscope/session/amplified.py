# SPDX-License-Identifier: Apache-2.0
"""How far a step of a trace is brought apart by rounding alone: its calls run again on the CPU, one
after the other, each on what those before gave; once as they are and N times with a rounding more or
less here and there. `ulpscope diff --amplify` (cli/diff/diff_amplify.c) runs it as a process of its own:

    python -m ulpscope.session.amplified TRACE N

One line for each result behind a mark: call, path and norm between tabs, the 2-norm of the distance over that of the
numbers, in roundings of the dtype, the largest of the N. Memory: N + 1 times what the step holds at once.

Needs of torch: its operators on the CPU, and their tensors' storages.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from .. import _core
from ..calls.contents import Reader
from ..calls.exact import never_rounds
from ..calls.foreign import foreign, theirs
from ..calls.read_call import bare_call, is_sparse, stored
from ..calls.nested import substitute
from ..calls.replay import BadCall, Call, LEFT_ALONE, View, seen_as
from ..calls.call_results import flatten
from ..program.waiting import waiting

MARK = "ulpscope amplified begins here"
BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# Of the float32 numbers that a result is made of, so many are an ulp off: a rounding error's own size.
OFTEN = 0.25
WHOLE = 2.0**20  # above, whole numbers are no counters
SEED = 20261123


def unit(dtype: torch.dtype) -> float:
    """One rounding, as `diff` counts them."""
    return float(torch.finfo(dtype).eps / 2)


def is_number(dtype: torch.dtype) -> bool:
    return bool(dtype.is_floating_point or dtype.is_complex)


def parts(tensor: torch.Tensor) -> torch.Tensor:
    """The real numbers of a tensor, in place."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def nudge(tensor: torch.Tensor, often: Any, generator: torch.Generator) -> None:
    """Moves elements to a neighbour, by chance, in place. Whole numbers stay, which count or came in as
    they are, and what is not finite."""
    x = parts(tensor)
    bits = BITS[x.dtype.itemsize]
    draw = torch.rand(x.shape, generator=generator)
    step = (draw < often / 2).to(bits) - (draw > 1 - often / 2).to(bits)
    step *= ((x != x.round()) | (x.abs() >= WHOLE)) & x.isfinite()
    x.copy_((x.contiguous().view(bits) + step).view(x.dtype))


class World:
    """The storages of one run: what its calls gave so far."""

    def __init__(self, seed: int | None) -> None:
        self.held: dict[int, tuple[int, torch.UntypedStorage]] = {}  # storage -> (version, UntypedStorage)
        self.chance = None if seed is None else torch.Generator().manual_seed(seed)

    def tensor(self, view: View) -> torch.Tensor:
        storage = self.held[view.storage][1]
        base = torch.empty(0, dtype=view.dtype).set_(storage, view.offset, view.sizes, view.strides)
        return seen_as(base, view.form)

    def written(self, item: dict[str, Any]) -> None:
        """A storage that is here holds another version now."""
        if item["storage"] in self.held:
            self.held[item["storage"]] = item["version"], self.held[item["storage"]][1]

    def keep(self, item: dict[str, Any], view: View, result: torch.Tensor) -> None:
        """A result, or memory that it is to stand in."""
        own = result.untyped_storage()
        if (result.dtype, tuple(result.stride()), result.storage_offset(), own.nbytes()) != (
            view.dtype,
            view.strides,
            view.offset,
            item["storage_bytes"],
        ):
            if not view.is_dense():
                raise BadCall("its result overlaps itself, or leaves gaps")
            own = torch.zeros(item["storage_bytes"], dtype=torch.uint8).untyped_storage()
            torch.empty(0, dtype=view.dtype).set_(own, view.offset, view.sizes, view.strides).copy_(result)
        self.held[view.storage] = item["version"], own


class Replay:
    """The calls of one step in `n` + 1 worlds, the first one as it is."""

    def __init__(self, trace: _core.Trace, n: int) -> None:
        self.trace, self.read = trace, Reader(trace)
        self.worlds = [World(None), *(World(SEED + i) for i in range(n))]
        self.n_fed = 0  # results that came from the trace, for their call could not run

    def feed(self, items: list[dict[str, Any]], item: dict[str, Any]) -> None:
        """Puts a storage as it was captured into every world."""
        if not item["blob"]:
            raise BadCall("the trace keeps no data: capture it with --data full")
        raw = stored(items, item, self.read)
        for world in self.worlds:
            world.held[item["storage"]] = item["version"], raw.clone().untyped_storage()

    def run(self, row: dict[str, Any]) -> dict[str, list[torch.Tensor]] | None:
        """One call in all worlds; gives the tensors that it wrote, by path, world by world."""
        items = [t for t in row["tensors"] if not is_sparse(t)]
        before = [t for t in items if t["role"] == "in"]
        after = [t for t in items if t["role"] != "in"]
        storages = {t["storage"] for t in before}
        if not before:  # made of nothing, or memory that something unseen fills
            for item in after:
                self.forget(item["storage"])
            return None
        if not any(t["role"] == "mutated" or t["storage"] not in storages for t in after):
            for item in after:  # views
                for world in self.worlds:
                    world.written(item)
            return None
        try:
            if '"rng"' in (row["state"] or "") or len(items) < len(row["tensors"]):
                raise BadCall("it draws")
            call = bare_call(row)
            for item in before:
                if self.worlds[0].held.get(item["storage"], (None,))[0] != item["version"]:
                    self.feed(before, item)
            return self.compute(row, call, after)
        except (BadCall, RuntimeError, TypeError, ValueError, IndexError) as problem:
            foreign(problem)
            for item in after:
                with contextlib.suppress(BadCall):  # memory that nobody has written
                    self.feed(after, item)
                    self.n_fed += 1
            return None

    def forget(self, storage: int) -> None:
        for world in self.worlds:
            world.held.pop(storage, None)

    def compute(self, row: dict[str, Any], call: Call, after: list[dict[str, Any]]) -> dict[str, list[torch.Tensor]]:
        exact = never_rounds(row["op"])
        wrote = call.written()
        found: dict[str, list[torch.Tensor]] = {}
        for world in self.worlds:
            tensors = {path: world.tensor(view) for path, view in call.views.items()}
            if world.chance is not None and not exact:
                for path, view in call.views.items():
                    if view.dtype in (torch.float32, torch.float64, torch.complex64, torch.complex128) and (
                        view.argument not in LEFT_ALONE and not view.form
                    ):
                        if path not in wrote:
                            tensors[path] = tensors[path].clone()
                        nudge(tensors[path], OFTEN, world.chance)
            args = [substitute(a, tensors) for a in call.args]
            kwargs = {k: substitute(a, tensors) for k, a in call.kwargs.items()}
            with torch.no_grad():
                results = dict(flatten(theirs(call.function, *args, **kwargs)))
            for item in after:
                path = item["path"]
                view = (call.mutated if item["role"] == "mutated" else call.results)[path]
                if item["role"] == "out" and item["storage"] not in {v.storage for v in call.views.values()}:
                    if path not in results:
                        raise BadCall("it gives other results here")
                    world.keep(item, view, results[path])
                else:
                    world.written(item)
                tensor = world.tensor(view)
                if world.chance is not None and not exact and view.dtype in (torch.float16, torch.bfloat16):
                    nudge(tensor, flips(call, view), world.chance)
                found.setdefault(path, []).append(tensor)
        return found


def flips(call: Call, view: View) -> float:
    """How often a result of a narrow dtype is another one: where sums in float32 that differ by
    roundings of their own fall on two sides of a boundary."""
    n = max(1, math.prod(view.sizes))
    fan: float = max(math.prod(v.sizes) / n for v in call.views.values())
    return float(min(1.0, max(fan, 1.0) ** 0.5 * 2.0**-24 / unit(view.dtype)))


def distance(tensors: Sequence[torch.Tensor]) -> float:
    """The largest relative 2-norm by which the others lie away from the first, in roundings."""
    base = parts(tensors[0]).double()
    norm = base.norm().item()
    if not norm > 0:
        return 0.0
    apart = max((parts(t).double() - base).norm().item() for t in tensors[1:])
    return float(apart / norm / unit(tensors[0].dtype))


def last_uses(trace: _core.Trace, numbers: Iterable[int]) -> dict[int, int]:
    """Storage -> the last call that has it."""
    found = {}
    for number in numbers:
        for item in trace.call(number)["tensors"]:
            found[item["storage"]] = number
    return found


def tell(trace: _core.Trace, n: int) -> None:
    numbers = trace.select()
    last = last_uses(trace, numbers)
    ends: dict[int, list[int]] = {}
    for storage, number in last.items():
        ends.setdefault(number, []).append(storage)
    replay = Replay(trace, n)
    for number in numbers:
        row = trace.call(number)
        if not row["composite"] and row["status"] == "ok":
            for path, tensors in (replay.run(row) or {}).items():
                if is_number(tensors[0].dtype) and tensors[0].numel():
                    print(f"{number}\t{path}\t{distance(tensors):.6g}")
        for storage in ends.get(number, ()):
            replay.forget(storage)
    print(f"fed\t\t{replay.n_fed}")


def main() -> int:
    words = sys.argv[1:]
    torch.set_num_threads(1)
    print(MARK)
    waiting.at(f"replaying the calls of {words[0]} with other roundings, {words[1]} times")
    with _core.Trace(words[0]) as trace:
        if not any(item["blob"] for number in trace.select()[:9] for item in trace.call(number)["tensors"]):
            print("error\t\tit holds statistics alone; capture with --data full")
        else:
            tell(trace, int(words[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
