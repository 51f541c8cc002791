# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for tensors whose content was not kept: drawn from the statistics that the trace
has of them, by `_core.stand_in`. Needs of torch: dtypes by name, `frombuffer`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .. import _core
from .read_call import dtype_named
from .replay import BadCall


def stand_in(trace_id: str, sequence: int, tensor: dict[str, Any], call: dict[str, Any] | None = None) -> torch.Tensor:
    """A tensor of the argument's shape with its statistics. `call` is the row that `tensor` is
    part of: its operator may ask more of it (indices in range). BadCall without statistics."""
    if not tensor.get("stats"):
        raise BadCall(f"the content of {tensor['path']} was not captured, nor statistics")
    dtype, sizes = dtype_named(tensor["dtype"]), tensor["sizes"]
    try:
        raw = _core.stand_in(trace_id, sequence, tensor, call)
    except _core.UlpscopeError as problem:
        raise BadCall(f"{tensor['path']}: no stand-in: {problem}") from None
    values = torch.frombuffer(raw, dtype=dtype) if raw else torch.empty(0, dtype=dtype)
    if dtype.is_floating_point and raw:
        return _from_memory_order(values, sizes, tensor["strides"])
    return values.reshape(sizes)


def _from_memory_order(values: torch.Tensor, sizes: Sequence[int], strides: Sequence[int]) -> torch.Tensor:
    """Floats come as they lie in memory, broadcast ones once."""
    kept = [i for i, size in enumerate(sizes) if size != 1 and strides[i] != 0]
    order = sorted(kept, key=lambda i: -strides[i])
    values = values.reshape([sizes[i] for i in order]).permute([order.index(i) for i in kept])
    return values.reshape([sizes[i] if i in kept else 1 for i in range(len(sizes))]).expand(sizes)
