# SPDX-License-Identifier: Apache-2.0
"""What a run left, by path: tensors of nests of lists, tuples and dicts, written arguments; as they are
compared, on the CPU and plain."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import torch

from .replay import Bound, Call, is_write
from .torch_private import is_zerotensor


def flatten(result: Any, path: str = "out") -> list[tuple[str, torch.Tensor]]:
    """Tensors (and numbers, as 0-d tensors) of a result, with their paths: a single
    result is out[0], an element of a returned list out[0][1]."""
    if isinstance(result, tuple):
        return [leaf for i, r in enumerate(result) for leaf in _leaves(r, f"{path}[{i}]")]
    return _leaves(result, f"{path}[0]")


def _leaves(value: Any, path: str) -> list[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        if value.is_quantized:
            return _quantized(value, path)
        return [(path, (value if value.layout == torch.strided else value.to_dense()).detach())]
    if isinstance(value, (list, tuple)):
        return [leaf for i, v in enumerate(value) for leaf in _leaves(v, f"{path}[{i}]")]
    if is_dataclass(value) and not isinstance(value, (dict, type)):
        value = {f.name: getattr(value, f.name) for f in fields(value)}
    if isinstance(value, dict):
        return [leaf for k, v in value.items() for leaf in _leaves(v, f"{path}.{k}")]
    if isinstance(value, (bool, int)):
        return [(path, torch.tensor(value))]
    if isinstance(value, (float, complex)):
        wide = torch.float64 if isinstance(value, float) else torch.complex128
        return [(path, torch.tensor(value, dtype=wide))]
    if hasattr(value, "__array__"):  # numpy's arrays and numbers
        return [(path, torch.tensor(value))]
    return []


def scales_of(tensor: torch.Tensor) -> tuple[Any, Any, int | None]:
    """Scales and zero points of a quantized tensor and the axis along which they lie, None
    for one of each."""
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return tensor.q_scale(), tensor.q_zero_point(), None
    return tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points(), tensor.q_per_channel_axis()


def _quantized(tensor: torch.Tensor, path: str) -> list[tuple[str, torch.Tensor]]:
    """The integers of a quantized tensor, and what turns them into numbers."""
    tensor = tensor.detach()
    scale, zero_point, _ = scales_of(tensor)
    return [
        (path, tensor.int_repr()),
        (path + ".scale", torch.as_tensor(scale, dtype=torch.float64)),
        (path + ".zero_point", torch.as_tensor(zero_point, dtype=torch.int64)),
    ]


def results_of(call: Call, result: Any) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """What a call returned, by path: what is new, and what its schema says is an argument that it wrote."""
    returns = call.schema.returns if call.schema else []
    if len(returns) == 1 and is_write(returns[0]):
        return {}, dict(flatten(result))
    new: dict[str, torch.Tensor] = {}
    written: dict[str, torch.Tensor] = {}
    if returns and isinstance(result, tuple) and len(returns) == len(result):
        for i, (r, value) in enumerate(zip(returns, result)):
            (written if is_write(r) else new).update(_leaves(value, f"out[{i}]"))
        return new, written
    return dict(flatten(result)), {}


def outputs_of(call: Call, bound: Bound, result: Any) -> dict[str, torch.Tensor]:
    """What a run left: its results and its written arguments, by path. A result that the
    schema says is a written argument is that argument and stands once."""
    out, _ = results_of(call, result)
    for path in call.written():
        out[path] = bound.tensors[path]
    return out


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """On the CPU, without lazy conjugation, negation or zeros, complex as pairs of reals."""
    tensor = tensor.detach()
    if is_zerotensor(tensor):  # it has no storage at all
        tensor = torch.zeros(tensor.shape, dtype=tensor.dtype)
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    tensor = tensor.cpu().resolve_conj().resolve_neg()
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor
