# SPDX-License-Identifier: Apache-2.0
"""One call of an operator in another dtype and memory layout, with the numbers of its example:
what `ulpscope fuzz --matrix` asks a device for. Needs of torch: dtypes by name."""

from __future__ import annotations

import math

import torch

from ..calls.older import zip_equal
from ..calls.read_call import bare_call, dtype_named
from ..calls.replay import BadCall, Call
from .drawn_cases import ALL, Example, _argument

NO_FORM = "it has no such form"


def dense(sizes: list[int]) -> list[int]:
    """Strides of rows without gaps."""
    return list(torch.empty(sizes, device="meta").stride())


def transposed(sizes: list[int]) -> list[int] | None:
    if len(sizes) < 2 or min(sizes[-2:]) < 2:
        return None
    return [*dense([*sizes[:-2], sizes[-1], sizes[-2]])[:-2], 1, sizes[-2]]


def gaps(sizes: list[int]) -> list[int] | None:
    return [2 * s for s in dense(sizes)] if sizes else None


def expanded(sizes: list[int]) -> list[int] | None:
    axis = next((i for i, n in enumerate(sizes) if n > 1), None)
    if axis is None:
        return None
    return [0 if i == axis else s for i, s in enumerate(dense([1 if i == axis else n for i, n in enumerate(sizes)]))]


def channels_last(sizes: list[int]) -> list[int] | None:
    if len(sizes) != 4 or sizes[1] < 2 or sizes[2] * sizes[3] < 2:
        return None
    return list(torch.empty(sizes, device="meta").to(memory_format=torch.channels_last).stride())


# Name -> (strides of sizes, None where they have no such layout; elements before the first one).
LAYOUTS = {
    "dense": (dense, 0),
    "transposed": (transposed, 0),
    "gaps": (gaps, 0),
    "offset": (dense, 1),
    "expanded": (expanded, 0),
    "channels_last": (channels_last, 0),
}


def formed(example: Example, dtype: str, layout: str) -> Call:
    """The call of an example whose tensors of its main dtype have that one, all laid out so. BadCall where that is
    no form of it: no tensor, or none that can be laid out so."""
    row, call = example.row, bare_call(example.row)
    was = next(
        (t["dtype"] for t in example.inputs if "float" in t["dtype"] or "complex" in t["dtype"]),
        example.inputs[0]["dtype"] if example.inputs else None,
    )
    if was is None:
        raise BadCall(NO_FORM)
    now, cast = dtype_named(dtype), {dtype_named(was): dtype_named(dtype)}
    call.results, call.mutated, call.live = {}, {}, None
    call.args = [_argument(a, {}, False, ALL, cast) for a in call.args]
    call.kwargs = {k: _argument(a, {}, False, ALL, cast) for k, a in call.kwargs.items()}
    laid = 0
    lying = [t["storage"] for t in example.inputs]
    for i, (t, was_drawn) in enumerate(zip_equal(example.inputs, example.tensors)):
        view, written = call.views[t["path"]], was_drawn[6]
        view.dtype = now if t["dtype"] == was else view.dtype
        view.device = "cpu"
        make, offset = LAYOUTS[layout]
        strides = (
            None if lying.count(t["storage"]) > 1 or (written and layout == "expanded") else make(list(view.sizes))
        )
        if strides is not None:
            view.strides, view.offset = tuple(strides), offset
            laid += layout != "dense"
        room = (
            view.offset + 1 + sum((n - 1) * s for n, s in zip(view.sizes, view.strides)) if math.prod(view.sizes) else 0
        )
        if view.storage not in call.storages:
            word = t["dtype"] if view.dtype.is_complex else str(view.dtype).removeprefix("torch.")
            drawn = (word, tuple(view.sizes), tuple(view.strides), view.offset, view.storage, room, written)
            rows = [{**u, "dtype": str(call.views[u["path"]].dtype).removeprefix("torch.")} for u in example.inputs]
            call.storages[view.storage] = example._content(call, view, rows, i, drawn, (0, 0, "normal", {}, True))
    if layout != "dense" and not laid:
        raise BadCall(NO_FORM)
    call.op = row["op"]
    return call
