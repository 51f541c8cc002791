# SPDX-License-Identifier: Apache-2.0
"""Modules fed with the reference's inputs: what the forward calls of a step give on exact arithmetic,
one after the other, from what came from outside; and a module run once more, on the device, from that.
Serves `live`. Needs the device in the judge's own process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..calls.contents import Reader
from ..calls.foreign import foreign
from ..calls.read_call import call_from, stored
from ..calls.raw_bytes import fit
from ..calls.replay import Call, Unsupported, draws_random, is_collective
from ..executors.device import DeviceDied, open_device
from ..executors.module_call import module_call
from ..executors.operands import Timing
from ..executors.reference_runs import Reference
from .captured import NotJudged, judge_chain

if TYPE_CHECKING:
    from .judging import Verdict
    from .. import _core


class Fed:
    """
    The reference's contents of one trace, by the version of a storage.

    Where a call draws random numbers, waits for other ranks or has no reference, what the run
    itself got stands, and the calls behind it go on from there.
    """

    def __init__(self, trace: _core.Trace, device: Any) -> None:
        self.trace, self.reader, self.device = trace, Reader(trace), device
        self.contents: dict[int, torch.Tensor] = {}  # version -> uint8 tensor
        self.calls = iter(trace.select())
        self.ahead = next(self.calls, None)

    def follow(self, before: int) -> None:
        """Computes what the calls before that one give."""
        while self.ahead is not None and self.ahead < before:
            row = self.trace.call(self.ahead)
            if row["phase"] == "forward" and not row["composite"] and not is_collective(row["op"]):
                self._compute(row)
            self.ahead = next(self.calls, None)

    def feed(self, call: Call, versions: dict[int, int]) -> None:
        """Puts the reference's contents in the place of those that were recorded."""
        for storage, version in versions.items():
            if version in self.contents:
                call.storages[storage] = self.contents[version].clone()

    def _compute(self, row: dict[str, Any]) -> None:
        given = {t["storage"]: t["version"] for t in row["tensors"] if t["role"] == "in"}
        try:
            call = call_from(row, self.reader)
            if draws_random(call):
                return
            self.feed(call, given)
            truth = Reference(call).wide()
            for item in row["tensors"]:
                if item["role"] != "in" and item["version"] not in given.values() and item["path"] in truth:
                    self._keep(row, item, truth[item["path"]])
        except Exception as problem:  # no reference: the run's own numbers stand
            foreign(problem)
            return

    def _keep(self, row: dict[str, Any], item: dict[str, Any], exact: torch.Tensor) -> None:
        """The content of one result: what was recorded, with the exact numbers rounded once."""
        if item["form"] or not item["blob"] or 0 in item["sizes"]:
            return
        whole = self.contents.get(item["version"])
        whole = stored(row["tensors"], item, self.reader) if whole is None else whole
        dtype = getattr(torch, item["dtype"])
        exact = torch.view_as_complex(exact.contiguous()) if dtype.is_complex else exact
        fit(whole, dtype).as_strided(item["sizes"], item["strides"], item["offset"]).copy_(exact)
        self.contents[item["version"]] = whole


def open_home(device: str) -> Any:
    """The device that the program computes on, in this process. UnknownDevice."""
    return open_device(device, device.partition(":")[0])


def judge_fed(fed: Fed, forward: dict[str, Any], seconds: float, groups: Any) -> tuple[Call, Verdict, Timing]:
    """A module's forward, its verdict on what the device gives for the reference's inputs, and the
    time that took. NotJudged, BadCall."""
    timing = Timing()
    fed.follow(forward["calls"][0])
    source = {"sequence": forward["call"], "op": forward["op"]}
    call = module_call({**forward, "source": source}, fed.trace.call, fed.trace.blob)
    call.mutated = {p: call.views[p] for p in call.wrote}
    fed.feed(call, {view.storage: view.storage for view in call.views.values()})
    call.results = {}
    try:
        answer = fed.device.run(call)
    except (Unsupported, DeviceDied) as problem:
        raise NotJudged(f"the device does not run it again: {problem}") from None
    return call, judge_chain(call, answer, timing, seconds, groups), timing
