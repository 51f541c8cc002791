# SPDX-License-Identifier: Apache-2.0
"""How operators choose indices, which tells a case what is as good. Serves `judges.answers`, `freedom` and
`callable`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from .arguments import Arguments, arguments_of
from .replay import Call, base_name, bind_exact, is_composite

# Operators that return indices, and which of their results these are.
INDEX_OPS = {
    "argmax": 0,
    "argmin": 0,
    "argsort": 0,
    "max": 1,
    "min": 1,
    "topk": 1,
    "sort": 1,
    "msort": 1,
    "kthvalue": 1,
    "median": 1,
    "nanmedian": 1,
    "mode": 1,
    "cummax": 1,
    "cummin": 1,
    "_cummax_helper": 1,
    "_cummin_helper": 1,
    "max_pool2d_with_indices": 1,
    "max_pool3d_with_indices": 1,
    "adaptive_max_pool2d": 1,
    "adaptive_max_pool3d": 1,
    "fractional_max_pool2d": 1,
    "fractional_max_pool3d": 1,
    "_embedding_bag": 3,
    "_embedding_bag_forward_only": 3,
}
CUMULATIVE = {"cummax", "cummin", "_cummax_helper", "_cummin_helper"}
# Those of which torch's documentation says that the first of equal values is meant, and of no NaN.
FIRST_OF_EQUALS = {"argmax", "argmin", "max", "min"}
LAST_DIM = {"topk", "sort", "argsort", "kthvalue", "mode"}  # where no dim is given
OUT_OF_WINDOW = "fractional"  # their windows hang on samples


@dataclass
class Choice:
    """How an operator chose indices: over which values, along which dimension."""

    name: str
    values: torch.Tensor
    dim: int | None
    arguments: Arguments
    slack: float = 0.0  # values that differ by this share are as good as equal
    settled: bool = False  # in a callable: nothing was rounded before it, equal ones are equal everywhere


def name_of_one(call: Call) -> str:
    """Bare name of the one operator that a call is, "" where a callable is more than one."""
    if is_composite(call):
        return call.only[0] if call.only else ""
    return base_name(call.op)[1] if call.schema is not None else ""


def operator_of(call: Call) -> tuple[str, Arguments]:
    """Bare name and arguments of the one operator that a call is; ("", {}) where a callable
    is more than one."""
    if is_composite(call):
        return call.only or ("", Arguments())
    if call.schema is None:
        return "", Arguments()
    tensors = bind_exact(call, lambda captured: "cpu").tensors
    return name_of_one(call), arguments_of(call, tensors)


def chosen_by(name: str, arguments: Arguments, slack: float = 0.0) -> Choice | None:
    """The Choice that an operator makes, None where it chooses no index."""
    values = next((v for v in arguments.values() if isinstance(v, torch.Tensor)), None)
    if name not in INDEX_OPS or values is None:
        return None
    dim = arguments.get("dim", -1 if name in LAST_DIM else None)
    if name.startswith("_embedding_bag"):
        dim = 0
    return Choice(name, values, dim, arguments, slack)


def choice_of(call: Call, path: str) -> Choice | None:
    """The Choice behind index output `path`, or None."""
    if is_composite(call):
        return call.choices.get(path)
    if INDEX_OPS.get(name_of_one(call)) != _place(path):
        return None
    return chosen_by(*operator_of(call))


def _place(path: str) -> int | None:
    """Which result a path is: 1 for "out[1]"."""
    inner = path.removeprefix("out[").removesuffix("]")
    return int(inner) if inner.isdigit() and path != inner else None


def leaves_none(choice: Choice) -> bool:
    """Whether documentation leaves nothing to choose between equal values."""
    if choice.arguments.get("stable"):
        return True
    first = choice.name in FIRST_OF_EQUALS and choice.slack == 0
    return first and not bool(choice.values.isnan().any())


def choice_fields(choice: Choice) -> dict[str, Any]:
    """What a case is told of a choice beside its values: keywords of `_core.Case.choose`."""
    pooled = "max_pool" in choice.name
    cumulative = choice.name in CUMULATIVE
    dim = choice.dim
    if dim is not None and dim < 0:
        dim += choice.values.dim()
    return dict(
        dim=dim,
        once=not (pooled or cumulative or choice.name.startswith("_embedding")),
        cumulative=cumulative,
        counts=choice.name == "mode",
        slack=choice.slack,
        window=window_of(choice) if pooled else [],
    )


def window_of(choice: Choice) -> list[list[int]]:
    """[kernel, stride, padding, dilation] per pooled dimension; kernel 0: adaptive, -1: the
    windows hang on samples."""
    n = 3 if "3d" in choice.name else 2
    if choice.name.startswith(OUT_OF_WINDOW):
        return [[-1, 0, 0, 0]] * n
    if choice.name.startswith("adaptive"):
        return [[0, 0, 0, 0]] * n
    kernel = [_each(choice, "kernel_size", d, 1) for d in range(n)]
    return [
        [
            kernel[d],
            _each(choice, "stride", d, kernel[d]),
            _each(choice, "padding", d, 0),
            _each(choice, "dilation", d, 1),
        ]
        for d in range(n)
    ]


def _each(choice: Choice, name: str, d: int, default: Any) -> Any:
    value = choice.arguments.get(name)
    if value is None or (isinstance(value, (list, tuple)) and not value):
        return default
    if isinstance(value, (list, tuple)):
        return value[d] if len(value) > 1 else value[0]
    return value
