# SPDX-License-Identifier: Apache-2.0
"""The collectives in the traces of all ranks of a run: which calls belong together, what each
rank gave and what it got. Tensors come as they were captured; nothing is judged here.
Serves `session.collectives`."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import _core
from .read_call import tensor_of, view_of
from .replay import FUNCTIONAL, is_collective
from .call_results import plain

if TYPE_CHECKING:
    import torch

COLLECTIVES = f"c10d::*,{FUNCTIONAL}*"
WAIT = FUNCTIONAL + "wait_tensor"
# They stand at other places on other ranks, or move nothing.
UNPAIRED = re.compile(
    r"c10d::(send|recv|barrier|monitored_barrier|check_for_nan)"
    r"|_c10d_functional::(isend|irecv|batch_p2p|wait|_wrap)"
)
GROUP = re.compile(r"ProcessGroup (\S*) rank (\d+) of (\d+)")


class Missing(Exception):
    """What the traces at hand do not hold; the text is a clause that says what is needed."""


@dataclass
class Operator:
    """What a collective operator does with which of its arguments."""

    kind: str  # all_reduce, reduce, broadcast, all_gather, gather, scatter, reduce_scatter, ...
    given: int  # the argument that is given
    got: int | None  # the argument that is written; None: what the wait for its result finds
    root: int | None = None  # the argument that names the root
    lists: bool = False  # one tensor for each rank, instead of one that is cut


OPERATORS = {
    "c10d::allreduce_": Operator("all_reduce", 0, 0),
    "c10d::allreduce_coalesced_": Operator("all_reduce", 0, 0),
    "c10d::reduce_": Operator("reduce", 0, 0, root=3),
    "c10d::broadcast_": Operator("broadcast", 0, 0, root=2),
    "c10d::allgather_": Operator("all_gather", 1, 0),
    "c10d::allgather_coalesced_": Operator("all_gather", 1, 0, lists=True),
    "c10d::_allgather_base_": Operator("all_gather", 1, 0),
    "c10d::allgather_into_tensor_coalesced_": Operator("all_gather", 1, 0),
    "c10d::gather_": Operator("gather", 1, 0, root=3),
    "c10d::scatter_": Operator("scatter", 1, 0, root=3, lists=True),
    "c10d::reduce_scatter_": Operator("reduce_scatter", 1, 0, lists=True),
    "c10d::_reduce_scatter_base_": Operator("reduce_scatter", 1, 0),
    "c10d::reduce_scatter_tensor_coalesced_": Operator("reduce_scatter", 1, 0),
    "c10d::alltoall_": Operator("exchange", 1, 0, lists=True),
    "c10d::alltoall_base_": Operator("exchange", 1, 0),
    FUNCTIONAL + "all_reduce": Operator("all_reduce", 0, None),
    FUNCTIONAL + "all_reduce_": Operator("all_reduce", 0, None),
    FUNCTIONAL + "all_reduce_coalesced": Operator("all_reduce", 0, None),
    FUNCTIONAL + "all_reduce_coalesced_": Operator("all_reduce", 0, None),
    FUNCTIONAL + "broadcast": Operator("broadcast", 0, None, root=1),
    FUNCTIONAL + "broadcast_": Operator("broadcast", 0, None, root=1),
    FUNCTIONAL + "all_gather_into_tensor": Operator("all_gather", 0, None),
    FUNCTIONAL + "all_gather_into_tensor_out": Operator("all_gather", 0, None),
    FUNCTIONAL + "all_gather_into_tensor_coalesced": Operator("all_gather", 0, None),
    FUNCTIONAL + "reduce_scatter_tensor": Operator("reduce_scatter", 0, None),
    FUNCTIONAL + "reduce_scatter_tensor_out": Operator("reduce_scatter", 0, None),
    FUNCTIONAL + "reduce_scatter_tensor_coalesced": Operator("reduce_scatter", 0, None),
    FUNCTIONAL + "all_to_all_single": Operator("exchange", 0, None),
}


@dataclass
class RankSide:
    """One rank's side of a collective."""

    op: str  # without its overload
    group: str
    rank: int  # in the group
    size: int  # of the group
    how: str = ""  # how values are reduced, "" where they are not
    root: int | None = None  # rank in the group
    given: Any = None  # a list of tensors; None where one was not kept
    splits: list[int] | None = None  # rows for each rank, where they are not equal

    @property
    def operator(self) -> Operator:
        return OPERATORS[self.op]


def base(op: str) -> str:
    return op.partition(".")[0]


def is_paired(op: str) -> bool:
    """Whether every rank of the group issues it, in the same order."""
    return is_collective(op) and not UNPAIRED.match(op)


class Ranks:
    """The traces of the ranks of one run: the one at `path` and, where it is a folder
    rank-N, those beside it."""

    def __init__(self, path: str | Path) -> None:
        here = Path(path).resolve()
        beside = here.parent.glob("rank-*") if re.fullmatch(r"rank-\d+", here.name) else []
        others = sorted(p for p in beside if p != here and (p / "trace.db").exists())
        self.indexes = [Index(_core.Trace(here), True)]
        for folder in others:
            with suppress(_core.UlpscopeError):  # what cannot be read is missing
                self.indexes.append(Index(_core.Trace(folder), False))

    def sides(self, row: dict[str, Any]) -> tuple[RankSide, dict[int, RankSide]]:
        """
        (own side, rank -> side) of a collective of the first trace, with the same place in
        the same step and group; ranks of which nothing is at hand are absent.

        Raises Missing where the trace does not tell the group.
        """
        own = self.indexes[0]
        key, place = own.place_of(row)
        found = {}
        for index in self.indexes:
            there = index.places.get(key, [])
            if place < len(there):
                side = index.side(there[place], index is own)
                if side.rank in found:
                    raise Missing(f"two traces say that they are rank {side.rank} of the group")
                found[side.rank] = side
        mine = next(s for s in found.values() if s.rank == known_group(row)[1])
        return mine, found

    def got(self, row: dict[str, Any]) -> list[torch.Tensor]:
        """What the first trace's rank got: tensors. Raises Missing."""
        return self.indexes[0].got(row)


class Index:
    """Where the collectives of one trace are and, where all its calls are looked at (`whole`),
    who used their results later."""

    def __init__(self, trace: _core.Trace, whole: bool) -> None:
        self.trace = trace
        self.places: dict[tuple[int, str], list[int]] = {}  # (step, group) -> sequences in order
        # storage -> (sequence, operator, tensor of the row), in order
        self.uses: dict[int, list[tuple[int, str, dict[str, Any]]]] = {}
        self.first: dict[int, tuple[int, Any]] = {}  # storage -> (sequence, what wrote it) where it was first seen
        for sequence in trace.select() if whole else trace.select(ops=COLLECTIVES):
            self._note(trace.call(sequence))

    def _note(self, row: dict[str, Any]) -> None:
        if is_paired(row["op"]):
            group = group_of(row)
            if group is not None:
                self.places.setdefault((row["step"], group[0]), []).append(row["sequence"])
            for item in row["tensors"]:
                self.uses.setdefault(item["storage"], [])
        for item in row["tensors"]:
            self.first.setdefault(item["storage"], (row["sequence"], item["writer"]))
            if item["storage"] in self.uses:
                self.uses[item["storage"]].append((row["sequence"], row["op"], item))

    def place_of(self, row: dict[str, Any]) -> tuple[tuple[int, str], int]:
        """((step, group), how many of this step and group came before)."""
        group = group_of(row)
        if group is None:
            raise Missing("the trace does not name its process group; capture it again")
        key = row["step"], group[0]
        return key, self.places[key].index(row["sequence"])

    def side(self, sequence: int, own: bool) -> RankSide:
        """One rank's side of a collective of this trace. Raises Missing where a trace that
        is not one's `own` turns out to be damaged."""
        try:
            return side_of(self.trace, self.trace.call(sequence))
        except _core.CorruptError as problem:
            if own:
                raise
            raise Missing(f"the trace of another rank is damaged: {problem}") from None

    def got(self, row: dict[str, Any]) -> list[torch.Tensor]:
        at = OPERATORS[base(row["op"])].got
        if at is None:
            items = [t for t in row["tensors"] if t["role"] == "out"]
            return [self._waited(row, item) for item in items]
        items = _items(row, "mutated", at)
        if items or row["op"].startswith("c10d::gather_"):
            return [_kept(self.trace, item) for item in items]
        return [self._found_later(row, item) for item in _items(row, "in", at)]

    def _waited(self, row: dict[str, Any], item: dict[str, Any]) -> torch.Tensor:
        """A functional collective's result as its wait left it."""
        for sequence, op, use in self.uses.get(item["storage"], ()):
            waited = base(op) == WAIT and use["role"] == "mutated"
            if sequence > row["sequence"] and waited and _same_view(use, item):
                return _kept(self.trace, use)
        raise Missing("the trace holds no wait_tensor for its result: nobody knows when it stood")

    def _found_later(self, row: dict[str, Any], item: dict[str, Any]) -> torch.Tensor:
        """A result whose end capture did not see, as the first call found it that used it
        after: a program waits before it does. That call may be the backend's own copy out of
        a buffer that came from outside after the collective had begun."""
        for sequence, op, _ in self.uses.get(item["storage"], ()):
            if sequence <= row["sequence"] or is_collective(op):
                continue
            tensors = self.trace.call(sequence)["tensors"]
            here = [t for t in tensors if t["storage"] == item["storage"] and _same_view(t, item)]
            left = [t for t in here if t["role"] == "mutated"]
            if not left and here:
                return _kept(self.trace, here[0])
            source = next((t["storage"] for t in tensors if t["path"] == "args[1]"), None)
            since, writer = self.first.get(source, (0, 0)) if source is not None else (0, 0)
            if left and base(op) == "aten::copy_" and since > row["sequence"] and not writer:
                return _kept(self.trace, left[0])
            break
        raise Missing("its result was not seen: capture could not tell when it stood")


def _same_view(a: dict[str, Any], b: dict[str, Any]) -> bool:
    names = ("dtype", "sizes", "strides", "offset")
    return all(a[n] == b[n] for n in names)


def _items(row: dict[str, Any], role: str, argument: int) -> list[dict[str, Any]]:
    """The rows of the tensors of one argument, in order."""
    prefix = f"args[{argument}]["  # of a tensor alone and of a list of them
    return [t for t in row["tensors"] if t["role"] == role and (t["path"] + "[").startswith(prefix)]


def content(trace: _core.Trace, item: dict[str, Any]) -> torch.Tensor | None:
    """A tensor of a row as it was captured, complex as pairs; None where it was not kept."""
    view = view_of(item)
    if not item["blob"] and 0 not in view.sizes:
        return None
    return plain(tensor_of(item, trace.blob))


def _kept(trace: _core.Trace, item: dict[str, Any]) -> torch.Tensor:
    found = content(trace, item)
    if found is None:
        raise Missing("the content of its result was not captured")
    return found


def group_of(row: dict[str, Any]) -> tuple[str, int, int] | None:
    """(name, rank in it, size) of the process group of a call; None where it is not told."""
    state = _parsed(row.get("state")).get("group")
    if state:
        return state["name"], state["rank"], state["size"]
    for argument in _core.arguments(row.get("args"))[0]:
        found = GROUP.fullmatch(_said(argument))
        if found:
            return found[1], int(found[2]), int(found[3])
    return None


def known_group(row: dict[str, Any]) -> tuple[str, int, int]:
    """`group_of` what tells it. Raises Missing of what does not."""
    group = group_of(row)
    if group is None:
        raise Missing("the trace does not name its process group; capture it again")
    return group


def _parsed(text: Any) -> Any:
    return json.loads(text) if isinstance(text, str) and text else text or {}


def _said(argument: Any) -> str:
    """What the trace says of an argument that was not kept; "" of others."""
    return argument.text if isinstance(argument, _core.Value) and argument.kind == "other" else ""


def side_of(trace: _core.Trace, row: dict[str, Any]) -> RankSide:
    """One rank's side of a collective, with what it gave. Of an operator that is not
    known only the name."""
    side = RankSide(base(row["op"]), *known_group(row))
    operator = OPERATORS.get(side.op)
    if operator is None:
        return side
    arguments, _ = _core.arguments(row["args"])
    side.how = _reduction(arguments, operator)
    side.root = arguments[operator.root] if operator.root is not None else None
    if operator.kind == "exchange" and not operator.lists:
        side.splits = arguments[4 if operator.got is not None else 2] or None
    given = [content(trace, item) for item in _items(row, "in", operator.given)]
    side.given = None if any(t is None for t in given) else given
    return side


def _reduction(arguments: list[Any], operator: Operator) -> str:
    """The name of the reduction among the arguments, lower case; "" where there is none."""
    if "reduce" not in operator.kind:
        return ""
    if operator.got is None:
        return str(arguments[1]).lower()
    marks = map(_said, arguments)
    return next((m.removeprefix("ReduceOp ") for m in marks if m.startswith("ReduceOp ")), "")
