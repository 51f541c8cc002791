# SPDX-License-Identifier: Apache-2.0
"""What calls that overwrite write, and where: of several updates of one place none is promised to
win. Serves `judges.answers`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .foreign import foreign
from .indices import name_of_one, operator_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from .replay import Call
    from .arguments import Arguments

WRITES = {
    "scatter",
    "scatter_",
    "index_put",
    "index_put_",
    "index_copy",
    "index_copy_",
    "_index_put_impl_",
    "_unsafe_index_put",
    "put",
    "put_",
}


def updates(call: Call, device: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
    """
    What a call that overwrites writes into an output of the form of `device`: flat places and
    values, one row for each update, and the number of the place that an update goes to. None
    where it does not overwrite, or not into such an output.
    """
    if name_of_one(call) not in WRITES:
        return None
    name, arguments = operator_of(call)
    if arguments.get("accumulate") or arguments.get("reduce"):
        return None
    try:
        return _updates(name, arguments, device)
    except (RuntimeError, IndexError, TypeError, KeyError, ValueError) as problem:
        foreign(problem)
        return None


def _updates(name: str, arguments: Arguments, device: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    ids = torch.arange(device.numel()).view(device.shape)
    index: Any = arguments.get("index")
    if name.startswith("scatter"):
        dim, source = arguments["dim"], arguments.get("src", arguments.get("value"))
        source = torch.as_tensor(source, dtype=device.dtype)
        grid = [torch.arange(n).view([-1] + [1] * (index.dim() - d - 1)) for d, n in enumerate(index.shape)]
        grid[dim] = index
        values = source[tuple(slice(n) for n in index.shape)] if source.dim() else source
        return _single(ids[tuple(grid)], values)
    if name.startswith("put"):
        return _single(index.reshape(-1) % device.numel(), arguments["source"].reshape(-1))
    if name.startswith("index_copy"):
        indices: list[torch.Tensor | None] = [*[None] * (arguments["dim"] % device.dim()), index]
        return _by_rows(ids, indices, arguments["source"])
    return _by_rows(ids, arguments["indices"], arguments["values"])


def _single(places: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Every element by itself."""
    values = values.expand(places.shape).reshape(-1, 1)
    places = places.reshape(-1, 1)
    return places, values, places[:, 0]


def _by_rows(
    ids: torch.Tensor, indices: list[torch.Tensor | None], values: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What `x[indices] = values` writes."""
    spread: list[torch.Tensor | None] = []
    for i in indices:
        spread += i.nonzero(as_tuple=True) if i is not None and i.dtype in (torch.bool, torch.uint8) else [i]
    indexed = [d for d, i in enumerate(spread) if i is not None]
    shape = torch.broadcast_shapes(*(i.shape for i in spread if i is not None))
    places = ids[tuple(slice(None) if i is None else i for i in spread)]
    values = values.expand(places.shape)
    # Neighbouring indices leave their axes where they are, others come first.
    together = indexed == list(range(indexed[0], indexed[-1] + 1))
    first = indexed[0] if together else 0
    axes = list(range(first, first + len(shape)))
    rest = [d for d in range(places.dim()) if d not in axes]
    n = torch.Size(shape).numel()
    rows: Callable[[torch.Tensor], torch.Tensor] = lambda t: t.permute(axes + rest).reshape(n, -1)  # noqa: E731
    places, values = rows(places), rows(values)
    # A row is known by its first element; one without elements is no place.
    return places, values, places[:, 0] if places.shape[1] else places.new_empty(0)
