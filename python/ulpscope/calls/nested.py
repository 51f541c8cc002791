# SPDX-License-Identifier: Apache-2.0
"""Arguments as nests of lists, tuples and dicts: what stands in them for tensors and devices, and what is put in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class TensorAt:
    """Stands in a decoded argument list where the tensor of that path belongs."""

    path: str


@dataclass(frozen=True)
class DeviceAt:
    """A device argument, as captured."""

    device: str


# ---- rebuilding --------------------------------------------------------------------


def substitute(
    value: Any,
    tensors: dict[str, torch.Tensor],
    dtype_of: Callable[..., Any] | None = None,
    device_of: Callable[..., Any] | None = None,
) -> Any:
    """A decoded argument with its tensors, dtypes and devices put in."""
    if isinstance(value, TensorAt):
        return tensors[value.path]
    if isinstance(value, (list, tuple, dict)):
        return rebuilt(value, lambda _, item: substitute(item, tensors, dtype_of, device_of))
    if isinstance(value, torch.dtype) and dtype_of is not None:
        return dtype_of(value)
    if isinstance(value, DeviceAt):
        return torch.device(device_of(value.device) if device_of else "cpu")
    return value


def rebuilt(value: Any, change: Callable[[Any, Any], Any]) -> Any:
    """A list, tuple or dict of the same kind with `change(place, item)` for every item."""
    if isinstance(value, dict):
        named = {k: change(k, v) for k, v in value.items()}
        return named if type(value) is dict else type(value)(**named)
    items = [change(i, v) for i, v in enumerate(value)]
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """An argument with `change(item)` for everything in it that is no list, tuple or dict."""
    if isinstance(value, (list, tuple, dict)):
        return rebuilt(value, lambda _, item: mapped(item, change))
    return change(value)


def tensors_in(result: Any) -> Iterator[torch.Tensor]:
    """Every tensor of a nest of lists and tuples."""
    if isinstance(result, torch.Tensor):
        yield result
    elif isinstance(result, (list, tuple)):
        for item in result:
            yield from tensors_in(item)
