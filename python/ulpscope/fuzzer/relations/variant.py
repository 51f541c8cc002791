# SPDX-License-Identifier: Apache-2.0
"""What a relation makes of a call, and what its parts share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...calls.replay import Call, LEFT_ALONE, View
from ...judges.rows import put


@dataclass
class Variant:
    """Calls whose answers, brought back together, are an answer to the call they come from."""

    calls: list
    back: object  # function: outputs of each call, in their order -> outputs of the original one


def same(outputs: Sequence[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """The outputs of one call as they are."""
    return dict(outputs[0])


def floats(call: Call) -> list[str]:
    """Paths of the float arguments that are computed with."""
    return [p for p, v in call.views.items() if v.dtype.is_floating_point and v.argument not in LEFT_ALONE]


def put_strided(call: Call, path: str, tensor: torch.Tensor) -> None:
    """Gives an argument every second element of a storage of its own; between them and around lies
    what nobody may read."""
    strides = tuple(2 * s for s in torch.empty(tensor.shape, device="meta").stride())
    raw = canary(2 * tensor.numel() + 2, tensor.dtype)
    raw.as_strided(tensor.shape, strides, 1).copy_(tensor)
    old, number = call.views[path], min((0, *(v.storage for v in call.views.values()))) - 1
    call.storages[number] = raw.view(torch.uint8)
    call.views[path] = replace(old, storage=number, sizes=tuple(tensor.shape), strides=strides, offset=1)


def canary(n: int, dtype: torch.dtype) -> torch.Tensor:
    """A flat tensor of NaN, the largest integer, or true."""
    if dtype.is_floating_point or dtype.is_complex:
        return torch.full((n,), float("nan"), dtype=dtype)
    return torch.full((n,), True if dtype == torch.bool else torch.iinfo(dtype).max, dtype=dtype)


def new_argument(call: Call, path: str, like: torch.Tensor, argument: Any, strided: bool) -> None:
    """Adds an argument to a call that it writes, of the form of `like`: a strided view, or rows."""
    call.views[path] = View(path, "in", -1, like.dtype, tuple(like.shape), (), 0, "cpu", argument)
    place = put_strided if strided else put
    place(call, path, canary(like.numel(), like.dtype).view(like.shape))
