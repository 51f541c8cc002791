# SPDX-License-Identifier: Apache-2.0
"""Large outputs, judged in pieces. Where every row of the outputs hangs on its own row of the
inputs, piece after piece, so that the operands of one piece are all that memory has to hold.
Where an output is a product of large matrices, on some of its rows, over the whole of the
sum: `_sampled` chooses them. Serves `_judging`.
"""

import math
from dataclasses import dataclass, replace

import torch

from ._exact import MOVE, STEP
from ._replay import base_name, fit

LARGE = 1 << 25  # elements of an output, from which it is judged in pieces
PIECE = 1 << 23  # elements of a piece
MOST_NOTES = 3

# Operators along one dimension, their arguments all of the output's form.
ALONG = {"_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data"}


@dataclass
class Piece:
    """A part of a call: some rows of its outputs and what they are computed from."""

    call: object
    answer: object
    place: object  # function: flat index in an output of the piece, its path -> in the whole one
    share: float = 1.0  # of the elements that is judged at all
    note: str = ""


def pieces(call, answer):
    """Yields pieces that make up the call, None where it is small or its rows hang together."""
    outputs = answer.outputs
    if call.composite or not outputs or max(t.numel() for t in outputs.values()) < LARGE:
        return None
    shapes = {tuple(t.shape) for t in outputs.values() if not t.dtype.is_complex}
    if len(shapes) != 1 or answer.trespass or call.whole or call.is_complex:
        return None
    (shape,) = shapes
    cut = _cut_paths(call, shape) if shape else None
    rows = max(1, PIECE // max(1, math.prod(shape[1:])))
    return None if cut is None or rows >= shape[0] else _each(call, answer, cut, rows)


def _cut_paths(call, shape):
    """Paths of arguments that are cut along with the outputs, None where that cannot be."""
    name = base_name(call.op)[1]
    views = call.views.items()
    if call.schema is None or any(v.form for _, v in views):
        return None
    if name in ALONG:
        apart = call.value("dim") % len(shape) != 0
        return [p for p, _ in views] if apart and all(v.sizes == shape for _, v in views) else None
    if name == "nll_loss_backward":
        return [p for p, v in views if v.sizes and v.argument != "weight" and v.sizes[0] == shape[0]]
    steps = torch.Tag.pointwise in call.function.tags and name not in MOVE - STEP
    if not steps or any(len(v.sizes) > len(shape) for _, v in views):
        return None
    return [p for p, v in views if len(v.sizes) == len(shape) and v.sizes[0] == shape[0] > 1]


def _each(call, answer, cut, rows):
    whole = next(iter(answer.outputs.values()))
    n, width = whole.shape[0], math.prod(whole.shape[1:])
    for first in range(0, n, rows):
        many = min(rows, n - first)
        given = replace(answer, outputs=_narrowed(answer.outputs, first, many),
                        before=_narrowed(answer.before, first, many))  # fmt: skip
        place = lambda i, path, first=first: i + first * width  # noqa: E731
        yield Piece(_cut(call, cut, first, many), given, place)


def _narrowed(tensors, first, many):
    return {path: t.narrow(0, first, many) for path, t in tensors.items()}


def _cut(call, cut, first, many):
    """The call on `many` rows of the arguments that are cut."""
    def narrow(path, view):
        if path not in cut:
            return view
        return replace(view, sizes=(many, *view.sizes[1:]), offset=view.offset + first * view.strides[0])

    views = {p: narrow(p, v) for p, v in call.views.items()}
    mutated = {p: narrow(p, v) for p, v in call.mutated.items()}
    part = replace(call, views=views, results={}, mutated=mutated, storages=dict(call.storages), live=None)
    for path in set(cut) - set(call.written()):
        start, end = views[path].extent()
        if end - start > 2 * math.prod(views[path].sizes):  # rows that lie apart
            put(part, path, tensor_of(part, path))
    return part


def merged(answer, judged):
    """The findings on the whole outputs from [(Piece, findings)]."""
    found = []
    for path in answer.outputs:
        each = [(piece, _about(findings, path)) for piece, findings in judged]
        piece, one = min(each, key=lambda pair: pair[1].order())
        tensor = answer.outputs[path]
        whole = replace(one, n=tensor.numel(), sizes=tuple(tensor.shape), positions=[],
                        details=_counted(one, [f for _, f in each]),
                        examples=[(piece.place(e[0], path), *e[1:]) for e in one.examples])  # fmt: skip
        notes = list(dict.fromkeys(n for _, f in each for n in f.notes))
        whole.notes = notes[:MOST_NOTES] + ([piece.note] if piece.note else [])
        found.append(whole)
    return found


def _about(findings, path):
    """The finding on an output; that on the call as a whole where there is no other."""
    return next((f for f in findings if f.path == path), findings[0])


def _counted(one, findings):
    """The judge's numbers of the piece that decided, with what is counted over all."""
    details = dict(one.details)
    for name in ("n_mismatch", "excused", "n_bad"):
        if any(name in f.details for f in findings):
            details[name] = sum(f.details.get(name, 0) for f in findings)
    return details


def tensor_of(call, path):
    """An argument as it was captured."""
    view = call.views[path]
    return fit(call.storages[view.storage], view.dtype).as_strided(view.sizes, view.strides, view.offset)


def put(call, path, tensor):
    """Gives an argument of a call a content of its own."""
    tensor, number = tensor.contiguous(), -1 - len(call.storages)
    call.storages[number] = tensor.reshape(-1).view(torch.uint8)
    call.views[path] = replace(call.views[path], storage=number, sizes=tuple(tensor.shape),
                               strides=tensor.stride(), offset=0)  # fmt: skip
