# SPDX-License-Identifier: Apache-2.0
"""The arguments of an operator's call by their names in its schema, tensors as tensors. Serves
whoever looks at what an operator was asked, and not at what it computed."""

from __future__ import annotations

from typing import Any

import torch

from .nested import TensorAt, mapped
from .replay import Call


class Arguments(dict[str, Any]):
    """The arguments of an operator by name: Python values and CPU tensors."""

    def wide(self, name: str, default: Any = None) -> Any:
        """A number, or a flat float64 tensor."""
        value = self.get(name, default)
        if isinstance(value, torch.Tensor):
            return value.double().reshape(-1) if value.dim() else value.double()
        return value


def arguments_of(call: Call, tensors: dict[str, Any]) -> Arguments:
    """Arguments of a call of an operator; `tensors` has those that TensorAt stands for."""
    named = {a.name: call.value(a.name) for a in call.schema.arguments}
    return Arguments(
        {
            name: mapped(value, lambda v: tensors[v.path] if isinstance(v, TensorAt) else v)
            for name, value in named.items()
        }
    )
