# SPDX-License-Identifier: Apache-2.0
"""What an operator leaves free in its outputs together: an order that nobody promised (`sorted=False` of topk and
unique), the gauge of a decomposition. The rule is C's (`held.h`), for packs as well. Serves `judges.readings`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .. import _core
from .arguments import Arguments
from .gauges import gauged_as
from .indices import name_of_one, operator_of

if TYPE_CHECKING:
    from .replay import Call

UNSORTED = {"topk", "_unique", "_unique2"}  # with sorted=False


def freedom_of(call: Call) -> dict[str, Any]:
    """Keywords of `_core.bring`, which a pack keeps; {} where nothing is free."""
    name = name_of_one(call)
    if name in UNSORTED:
        arguments = operator_of(call)[1]
        return {} if arguments.get("sorted", True) else _order(name, arguments)
    name = gauged_as(call)
    if not name or not call.views:
        return {}
    view = next(iter(call.views.values()))
    if len(view.sizes) < 2 or not (view.dtype.is_floating_point or view.dtype.is_complex):
        return {}
    return dict(gauge=name, ndim=len(view.sizes), fewest=min(view.sizes[-2:]), rounding=torch.finfo(view.dtype).eps)


def _order(name: str, arguments: Arguments) -> dict[str, Any]:
    if name != "topk":
        return dict(dim=0, inverse=1 if arguments.get("return_inverse") else -1)
    values = next((v for v in arguments.values() if isinstance(v, torch.Tensor)), None)
    dim = arguments.get("dim", -1)
    return dict(dim=dim if dim >= 0 or values is None else dim + values.dim(), inverse=-1)


def brought(
    freedom: dict[str, Any], outputs: dict[str, torch.Tensor], truth: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Outputs in the order and the gauge of what they are held to."""
    both = {p: (t.contiguous(), truth[p].contiguous()) for p, t in outputs.items() if p in truth}
    try:
        found = _core.bring([(p, *pair) for p, pair in both.items()], **freedom) if freedom else ()
    except _core.DtypeError:  # a dtype of which only bytes are known
        return outputs
    return {
        **outputs,
        **{
            p: torch.frombuffer(raw, dtype=outputs[p].dtype).reshape(outputs[p].shape)
            for p, raw in zip(both, found)
            if raw
        },
    }
