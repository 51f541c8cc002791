# SPDX-License-Identifier: Apache-2.0
"""The pieces of a large call, of which a case asks one after the other (docs/background/case.md). Where every row of
the outputs hangs on its own row of the inputs, some rows at a time, so that the operands of one piece are
all that memory has to hold. Where an output is a product of large matrices, the rows that the case chose:
`products`. Serves `outputs`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from ..calls.raw_bytes import fit, raw_bytes
from ..calls.replay import Call, View, base_name, is_composite
from ..executors.cuts import cut_of, weight
from ..executors.operands import call_at_place, length_of_lists, place_of

if TYPE_CHECKING:
    from ..executors.device import Answer
    from ..calls.arguments import Arguments
    from ..executors.cuts import Cut

LARGE = 0  # elements of an output, from which it is judged in pieces; 0: the rule's own
PIECE = 1 << 18  # elements of a piece
UNUSED = -100  # a label of elements that do not count


@dataclass
class Piece:
    """A part of a call: some rows of its outputs and what they are computed from."""

    call: Call
    answer: Answer
    # outputs of the whole call -> those of the piece
    take: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]
    # path -> where that output lies (usc_case_part)
    part: Callable[[str], tuple[int, int, int, int]] = lambda path: (0, 0, 0, 0)
    share: float = 1.0  # of the elements that is judged at all


def pieces(call: Call, answer: Answer) -> Iterator[Piece] | None:
    """Yields pieces that make up the call, None where its rows hang together."""
    outputs = answer.outputs
    if not outputs:
        return None
    if answer.trespass or call.whole or call.is_complex or any(t.dtype.is_complex for t in outputs.values()):
        return None
    shapes = {path: tuple(t.shape) for path, t in outputs.items()}
    cut = cut_of(call, shapes)
    if cut is None:
        return None
    rows = max(1, PIECE // max(1, weight(cut, call.views, shapes)))
    return None if rows >= cut.length else _each(call, answer, cut, rows)


def largest_input(call: Call) -> int:
    """Elements of its largest argument."""
    return max((math.prod(v.sizes) for v in call.views.values()), default=0)


def _each(call: Call, answer: Answer, cut: Cut, rows: int) -> Iterator[Piece]:
    shapes = {path: t.shape for path, t in answer.outputs.items()}
    for first in range(0, cut.length, rows):
        many = min(rows, cut.length - first)
        given = replace(
            answer,
            outputs=_narrowed(answer.outputs, cut, first, many),
            before=_narrowed(answer.before, cut, first, many),
        )

        def part(path: str, first: int = first, many: int = many) -> tuple[int, int, int, int]:
            return math.prod(shapes[path][cut.outputs[path] + 1 :]), cut.length, first, many

        def take(outputs: dict[str, torch.Tensor], first: int = first, many: int = many) -> dict[str, torch.Tensor]:
            return _narrowed(outputs, cut, first, many)

        own = _cut(call, cut, first, many)
        if is_composite(call) and is_composite(own) and call.native is not None:
            own.native = _narrowed(call.native, cut, first, many)
            if call.only is not None:  # what is cut is one operator
                own.only = call.only[0], _given(call.only[1], cut, first, many)
        yield Piece(own, given, take, part)


def _narrowed(tensors: dict[str, torch.Tensor], cut: Cut, first: int, many: int) -> dict[str, torch.Tensor]:
    return {path: t.narrow(cut.outputs[path], first, many) for path, t in tensors.items()}


def _given(arguments: Arguments, cut: Cut, first: int, many: int) -> Arguments:
    """Arguments of the one operator that a callable is, of a piece."""
    narrow = {n: v.narrow(cut.given[n], first, many) for n, v in arguments.items() if n in cut.given}
    return type(arguments)(arguments | narrow)


def _cut(call: Call, cut: Cut, first: int, many: int) -> Call:
    """The call on `many` places along the cut."""

    def narrow(path: str, view: View) -> View:
        if path not in cut.arguments:
            return view
        dim = cut.arguments[path]
        sizes = (*view.sizes[:dim], many, *view.sizes[dim + 1 :])
        return replace(view, sizes=sizes, offset=view.offset + first * view.strides[dim])

    views = {p: narrow(p, v) for p, v in call.views.items()}
    mutated = {p: narrow(p, v) for p, v in call.mutated.items()}
    written, apart = set(call.written()), set()
    for path, view in call.views.items():  # what all pieces use is read once
        start, end = views[path].extent()
        if path in cut.arguments and end - start > 2 * math.prod(views[path].sizes):
            apart.add(path)  # rows that lie apart
        if path in apart | written or path not in cut.arguments:
            call.storages[view.storage]  # noqa: B018
    args = [many if i in cut.counts else a for i, a in enumerate(call.args)]
    part = replace(call, args=args, views=views, results={}, mutated=mutated, storages=call.storages.copy(), live=None)
    for path in cut.arguments.keys() - written:
        if path in apart:
            put(part, path, tensor_of(call, path, views[path]))
        elif call.storages.is_far(views[path].storage):
            _read_rows(part, path, *views[path].extent())
    return part


def _read_rows(part: Call, path: str, start: int, end: int) -> None:
    """Reads of a storage what one argument uses."""
    view, size = part.views[path], part.views[path].dtype.itemsize
    content = part.storages.part(view.storage, start * size, end * size)
    _replaced(part, path, content, replace(view, offset=view.offset - start))


def gathered(call: Call, answer: Answer) -> Iterator[Piece] | None:
    """The one Piece of a loss that reads one element of each row of a large input, with these alone;
    None for all others."""
    if base_name(call.op)[1] not in ("nll_loss_forward", "nll_loss2d_forward") or call.composite:
        return None
    paths = {v.argument: p for p, v in call.views.items()}
    at = call.views[paths["self"]].sizes
    target, ignored = tensor_of(call, paths["target"]), call.value("ignore_index")
    kept = target != ignored
    if (
        len(at) < 2
        or at[1] < 2
        or "weight" in paths
        or answer.trespass
        or bool(((target < 0) | (target >= at[1]))[kept].any())
    ):
        return None
    part = replace(
        call,
        views=dict(call.views),
        results={},
        storages=call.storages.copy(),
        live=None,
        args=[*call.args[:4], UNUSED],
        kwargs={},
    )
    place = target.where(kept, 0).unsqueeze(1)
    put(part, paths["self"], tensor_of(call, paths["self"]).gather(1, place))
    put(part, paths["target"], torch.zeros_like(target).masked_fill_(~kept, UNUSED))
    return iter([Piece(part, answer, lambda outputs: outputs)])


def places(call: Call, answer: Answer) -> Iterator[Piece] | None:
    """Yields a Piece for each place of a call over lists of much; None for all others."""
    length = length_of_lists(call)
    if length is None or answer.trespass:
        return None
    return (_at_place(call, answer, i, length) for i in range(length))


def _at_place(call: Call, answer: Answer, i: int, length: int) -> Piece:
    def here(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {p: t for p, t in tensors.items() if place_of(p) == i or (place_of(p) is None and i == 0)}

    given = replace(answer, outputs=here(answer.outputs), before=here(answer.before))
    return Piece(call_at_place(call, i, length), given, here)


def tensor_of(call: Call, path: str, view: View | None = None) -> torch.Tensor:
    """An argument as it was captured, or the part of it that `view` shows."""
    view = view or call.views[path]
    return fit(call.storages[view.storage], view.dtype).as_strided(view.sizes, view.strides, view.offset)


def put(call: Call, path: str, tensor: torch.Tensor) -> None:
    """Gives an argument of a call a content of its own."""
    tensor = tensor.contiguous()
    view = replace(call.views[path], sizes=tuple(tensor.shape), strides=tensor.stride(), offset=0)
    _replaced(call, path, raw_bytes(tensor), view)


def _replaced(call: Call, path: str, content: torch.Tensor, view: View) -> None:
    """Gives an argument a storage of its own, and forgets the old one where nobody uses it."""
    old, number = call.views[path].storage, min((0, *(v.storage for v in call.views.values()))) - 1
    call.storages[number] = content
    call.views[path] = replace(view, storage=number)
    if all(v.storage != old for v in call.views.values()):
        call.storages.drop(old)
