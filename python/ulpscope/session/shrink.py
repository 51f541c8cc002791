# SPDX-License-Identifier: Apache-2.0
"""A failing call made small while its verdict and cause stay what they are: one place of lists,
then the sizes that arguments share, the first met first (batch, sequence), and simple values
last. Every try is judged as the call was; the same call gives the same tries. Needs torch for the
memory of tensors alone."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from ..calls.callable import storage_bytes
from ..calls.foreign import foreign
from ..calls.raw_bytes import fit
from ..calls.replay import Call, LEFT_ALONE
from ..calls.verdicts import FLAGGED
from ..causes import host
from ..executors.device import DeviceDied
from ..executors.operands import Timing, call_at_place, length_of_lists, place_of
from . import stress
from .judging import Verdict, explain, judge_call

TRIES, SECONDS = 64, 20.0
VALUES = (
    torch.zeros_like,
    torch.ones_like,
    lambda x: x.round().clamp(-8, 8),
    lambda x: x.sign() * x.abs().log2().round().exp2().nan_to_num(0.0, 0.0),
)


def shrunk(call: Call, verdict: Verdict, device: Any) -> tuple[Call, Verdict]:
    """The smallest call found, with its verdict."""
    search = SmallerSearch(call, verdict, device)
    if verdict.verdict in FLAGGED - {"intermittent"}:  # that shows now and then: tries say nothing
        search.lists()
        search.sizes()
        search.values()
    return search.call, search.verdict


class SmallerSearch:
    """The smallest call so far, and what is left to be spent."""

    def __init__(self, call: Call, verdict: Verdict, device: Any) -> None:
        self.call, self.verdict, self.device = call, verdict, device
        self.kind = self._kind(verdict)
        self.left, self.until = TRIES, time.monotonic() + SECONDS

    @staticmethod
    def _kind(verdict: Verdict) -> tuple[str, str, str]:
        """What must not change: verdict, output, and the cause but for its numbers."""
        path = verdict.worst.path if verdict.worst else ""
        cause = re.sub(r"[\d.,]+", "#", verdict.cause) if host.is_named(verdict.cause) else ""
        return verdict.verdict, path.split("[")[0], cause

    def keeps(self, make: Callable[..., Call], *how: Any) -> bool:
        """Whether what `make` makes of a call fails as the call did: it is the smallest then."""
        if self.left == 0 or time.monotonic() > self.until:
            return False
        self.left -= 1
        try:
            call = make(*how)
            verdict = judge_call(call, self.device, seconds=0)
            if verdict.verdict == self.kind[0] and self.kind[2]:
                explain(call, verdict, Timing())
        except DeviceDied:
            self.left = 0
            return False
        except Exception as problem:  # sizes that do not go together
            foreign(problem)
            return False
        if self._kind(verdict) != self.kind:
            return False
        self.call, self.verdict = call, verdict
        return True

    def lists(self) -> None:
        """One place alone of a call that computes place by place."""
        length, worst = length_of_lists(self.call), self.verdict.worst
        place = place_of(worst.path) if length and worst else None
        if place is not None and length is not None:
            self.keeps(lambda: changed(call_at_place(self.call, place, length)))

    def sizes(self) -> None:
        whole, compact = self.call, self.keeps(dense, self.call)
        kept: dict[int, tuple[int, int]] = {}
        for n in stress.symbols(v.sizes for v in whole.views.values()):
            part = (0, n)
            while part[1] > 1:
                part = self._half(whole, kept, n, part, dense if compact else lambda call: call)
                kept[n] = part if part[1] else kept.get(n, (0, n))

    def _half(
        self, whole: Call, kept: dict[int, tuple[int, int]], n: int, part: tuple[int, int], then: Callable[[Call], Call]
    ) -> tuple[int, int]:
        """The half of a size with which the call still fails, (0, 0) for neither."""
        first, half = part[0], part[1] // 2
        for at in (first, first + part[1] - half):
            for numbers in ((list,), (list, int), ()):
                if self.keeps(lambda: then(resized(whole, kept | {n: (at, half)}, numbers))):  # noqa: B023
                    return at, half
        return 0, 0

    def values(self) -> None:
        """Simple contents, storage by storage."""
        for storage, dtype in {(v.storage, v.dtype): 0 for v in self.call.views.values()}:
            views = [v for v in self.call.views.values() if v.storage == storage]
            if not dtype.is_floating_point or any(v.dtype != dtype or v.argument in LEFT_ALONE for v in views):
                continue
            _ = any(self.keeps(revalued, self.call, storage, dtype, make) for make in VALUES)


def changed(call: Call, **what: Any) -> Call:
    """A call that nobody captured."""
    views = what.get("views", call.views)
    return replace(call, **{"results": {}, "live": None, **what, "mutated": {p: views[p] for p in call.mutated}})


def dense(call: Call) -> Call:
    """The call with every tensor that shares memory with no other in memory of its own, in the
    order of dimensions that it had."""
    users, views, storages = Counter(v.storage for v in call.views.values()), {}, {}
    for path, view in call.views.items():
        views[path], storages[view.storage] = view, call.storages[view.storage]
        if users[view.storage] == 1 and not call.whole:
            data = fit(storages[view.storage], view.dtype)
            own = data.as_strided(view.sizes, view.strides, view.offset).clone()
            views[path] = replace(view, strides=tuple(own.stride()), offset=0)
            storages[view.storage] = storage_bytes(own)
    return changed(call, views=views, storages=storages)


def resized(call: Call, kept: dict[int, tuple[int, int]], numbers: Any) -> Call:
    """The call with the part (first, n) of every dimension of a size in `kept`: {size: part}.
    Integers of that size change too, where they stand in `numbers` (lists, or anywhere)."""
    part: Callable[[int], tuple[int, int]] = lambda n: kept.get(n, (0, n))  # noqa: E731
    views, storages = {}, {}
    for path, v in call.views.items():
        offset = v.offset + sum(part(n)[0] * step for n, step in zip(v.sizes, v.strides))
        views[path] = replace(v, sizes=tuple(part(n)[1] for n in v.sizes), offset=offset)
        storages[v.storage] = call.storages[v.storage]
        if v.dtype in (torch.int32, torch.int64):
            data = fit(storages[v.storage], v.dtype)
            for n, (first, to) in kept.items():
                data = stress.within(data, n, to, first)
            storages[v.storage] = data.clone().view(torch.uint8)

    def number(value: Any, where: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [number(item, list) for item in value]
        return part(value)[1] if type(value) is int and where in numbers else value

    return changed(
        call,
        views=views,
        storages=storages,
        args=[number(a, int) for a in call.args],
        kwargs={k: number(a, int) for k, a in call.kwargs.items()},
    )


def revalued(call: Call, storage: int, dtype: torch.dtype, make: Callable[[torch.Tensor], torch.Tensor]) -> Call:
    """The call with other contents of one storage."""
    made = make(fit(call.storages[storage], dtype)).to(dtype).contiguous()
    return changed(
        call,
        storages={
            v.storage: made.view(torch.uint8) if v.storage == storage else call.storages[v.storage]
            for v in call.views.values()
        },
    )
