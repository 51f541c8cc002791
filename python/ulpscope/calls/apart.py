# SPDX-License-Identifier: Apache-2.0
"""Arguments that are made of several tensors, quantized and sparse ones; and in float64 the
operators that make and read quantized tensors, for which torch has float32 kernels only.

A quantized argument becomes its integers and a factor of 1 for its scales, in float32. Replays
move that factor like every other input, so that a result which lies half way between two
integers falls to either side in one of them. A sparse one becomes its indices and its values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .foreign import theirs
from .nested import mapped, rebuilt
from .call_results import scales_of
from .torch_private import coordinates, quantized_channels, quantized_tensor

aten = torch.ops.aten
INTEGERS = {torch.qint8: torch.int8, torch.quint8: torch.uint8, torch.qint32: torch.int32}


class Apart(dict[str, Any]):
    """An argument as the tensors that it is made of, by name."""


def apart(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Callable[..., Any], Sequence[Any], dict[str, Any]]:
    """The call with such arguments taken apart; the function puts them together again."""
    makers = []

    def taken(value: Any) -> Any:
        kind = _kind_of(value)
        if kind is None:
            return value
        parts, make = kind(value.detach())
        makers.append(make)
        return Apart(parts)

    args, kwargs = mapped(tuple(args), taken), mapped(dict(kwargs), taken)
    if not makers:
        return function, args, kwargs

    @functools.wraps(function, updated=())
    def together(*args: Any, **kwargs: Any) -> Any:
        left = iter(makers)

        def joined(value: Any) -> Any:
            if isinstance(value, Apart):
                make = next(left)
                if any(part is None for part in value.values()):
                    raise ValueError("a tensor is made of all its parts")
                return make(**value)
            if isinstance(value, (list, tuple, dict)):
                return rebuilt(value, lambda _, item: joined(item))
            return value

        args, kwargs = joined(args), joined(kwargs)
        return theirs(function, *args, **kwargs)

    return together, args, kwargs


def _kind_of(value: Any) -> Callable[[torch.Tensor], tuple[dict[str, Any], Callable[..., Any]]] | None:
    """What takes an argument apart; None where it is left as it is."""
    if not isinstance(value, torch.Tensor):
        return None
    return _quantized_parts if value.is_quantized else KINDS.get(value.layout)


def _quantized_parts(tensor: torch.Tensor) -> tuple[dict[str, Any], Callable[..., Any]]:
    scale, zero_point, axis = scales_of(tensor)

    def make(integers: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        scales = scale * float(factor)
        if axis is None:
            return quantized_tensor(integers, scales, zero_point)
        return quantized_channels(integers, scales, zero_point, axis)

    return {"integers": tensor.int_repr(), "factor": torch.ones(())}, make


def _coordinates(tensor: torch.Tensor) -> tuple[dict[str, Any], Callable[..., Any]]:
    """As it is: what stands there twice counts twice."""
    make = sparse_maker("sparse_coo coalesced" if tensor.is_coalesced() else "sparse_coo", tensor.shape)
    indices, values = coordinates(tensor)
    return {"indices": indices, "values": values}, make


def sparse_maker(form: str, size: Sequence[int]) -> Callable[..., torch.Tensor]:
    """What makes a sparse tensor of its parts: `form` is that of a row of a trace."""
    layout, _, sorted_ = form.partition(" ")
    if layout == "sparse_coo":
        return lambda indices, values: torch.sparse_coo_tensor(
            indices, values, size, check_invariants=True, is_coalesced=bool(sorted_)
        )
    layout = getattr(torch, layout)
    return lambda ends, places, values: torch.sparse_compressed_tensor(
        ends, places, values, size, layout=layout, check_invariants=True
    )


def _compressed(tensor: torch.Tensor) -> tuple[dict[str, Any], Callable[..., Any]]:
    rows = tensor.layout in (torch.sparse_csr, torch.sparse_bsr)
    ends = tensor.crow_indices() if rows else tensor.ccol_indices()
    places = tensor.col_indices() if rows else tensor.row_indices()
    make = sparse_maker(str(tensor.layout).removeprefix("torch."), tensor.shape)
    return {"ends": ends, "places": places, "values": tensor.values()}, make


KINDS = {torch.sparse_coo: _coordinates}
KINDS |= dict.fromkeys((torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc), _compressed)


# ---- in float64 ----------------------------------------------------------------------


def _along(values: Any, axis: int | None, tensor: torch.Tensor) -> Any:
    """Numbers of one axis in a shape that spreads over a tensor."""
    if axis is None:
        return values
    return values.double().reshape([-1 if d == axis else 1 for d in range(tensor.dim())])


def _dequantized(tensor: torch.Tensor) -> torch.Tensor:
    scale, zero_point, axis = scales_of(tensor)
    offset = tensor.int_repr().double() - _along(zero_point, axis, tensor)
    return offset * _along(scale, axis, tensor)


def _rounded(x: torch.Tensor, scale: Any, zero_point: Any, dtype: torch.dtype) -> torch.Tensor:
    """Integers of the dtype: to nearest, ties to even, held within its range."""
    integers = INTEGERS[dtype]
    limits = torch.iinfo(integers)
    return ((x / scale).round() + zero_point).clamp(limits.min, limits.max).to(integers)


def _quantized(x: torch.Tensor, scale: Any, zero_point: Any, dtype: torch.dtype) -> torch.Tensor:
    scale, zero_point = float(scale), int(zero_point)
    integers = _rounded(x, scale, zero_point, dtype)
    return quantized_tensor(integers, scale, zero_point)


def _quantized_by_channel(
    x: torch.Tensor, scales: torch.Tensor, zero_points: torch.Tensor, axis: int, dtype: torch.dtype
) -> torch.Tensor:
    spread, zeros = (_along(p, axis % x.dim(), x) for p in (scales, zero_points))
    integers = _rounded(x, spread, zeros, dtype)
    return quantized_channels(integers, scales, zero_points, axis)


IN_FLOAT64 = {
    aten.dequantize.self: _dequantized,
    aten.quantize_per_tensor.default: _quantized,
    aten.quantize_per_tensor.tensor_qparams: _quantized,
    aten.quantize_per_channel.default: _quantized_by_channel,
}
