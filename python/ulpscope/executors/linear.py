# SPDX-License-Identifier: Apache-2.0
"""A closed form where it is cheaper than replays: how strongly a sum of products reacts to
its inputs. Serves `judges.outputs`.

An operator that adds products of its inputs, each with weight 1, gives sum (a b)^2 when it
is run on the squares of its inputs: at least half of the square of S (docs/reference/metrics.md, 2), for
one replay and without the luck of a draw. Weights are squared along with an argument.
Float32 will do: squares that it does not hold only leave the question to replays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..calls.older import zip_equal
from ..calls.replay import Call, all_finite, computed

if TYPE_CHECKING:
    from ..calls.operator_call import OperatorCall
    from .reference_runs import Reference

DELTA = 2.0**-20

# Sums of products with weights 1 (a bias is a product with 1).
SUMS = frozenset(
    "aten::" + name
    for name in (
        "mm",
        "bmm",
        "matmul",
        "linear",
        "addmm",
        "baddbmm",
        "mv",
        "dot",
        "einsum",
        "sum",
        "cumsum",
        "convolution",
        "conv1d",
        "conv2d",
        "conv3d",
        "embedding_dense_backward",
        "convolution_overrideable",
        "_convolution",
    )
)
WEIGHTS = ("alpha", "beta")

# How many products: as many as the first (second) matrix is wide, and the bias.
INNER = {"mm": 0, "bmm": 0, "matmul": 0, "mv": 0, "dot": 0, "linear": 0, "addmm": 1, "baddbmm": 1}

# Of a few inputs, element by element: the argument to weigh, and the weight's argument.
WEIGHED = {
    "aten::lerp": (("self", "end"), "weight", lambda w: (1 - w, w)),
    "aten::addcmul": (("tensor1",), "value", lambda v: (v,)),
    "aten::addcdiv": (("tensor1",), "value", lambda v: (v,)),
}


def is_sum_of_products(call: Call | OperatorCall) -> bool:
    """Whether the closed form holds for a call."""
    name = call.op.partition(".")[0]
    if call.composite or name.removesuffix("_") in WEIGHED:
        return not call.composite and _factors(call) is not None
    if name not in SUMS or call.written():
        return False
    return all(call.value(name, 1) == 1 for name in WEIGHTS)


def _factors(call):
    """What the square of each argument is to be multiplied by, by argument; None where the
    weight is a tensor."""
    known = WEIGHED.get(call.op.partition(".")[0].removesuffix("_"))
    if known is None:
        return {}
    arguments, name, weights = known
    weight = call.value(name, 1)
    if isinstance(weight, bool) or not isinstance(weight, (int, float)):
        return None
    return dict(zip_equal(arguments, weights(weight)))


def _squares(reference):
    """The squares of all float inputs, weighed. None where one tensor stands for arguments
    with different weights."""
    factors, of = _factors(reference.call), {}
    for view in reference.call.views.values():
        factor = factors.get(view.argument, 1)
        if of.setdefault((view.storage, view.dtype), factor) != factor:
            return None
    contents = {}
    for key, part in reference.parts.items():
        if part.dtype.is_complex:
            return None
        if part.dtype.is_floating_point:
            contents[key] = part.data.to(computed(part.dtype)).square()
            if of[key] != 1:
                contents[key] *= of[key]
    return contents


def moved_by_slope(reference: Reference, path: str) -> torch.Tensor | None:
    """The truth moved by S * 2^-20, as a replay would be that hits every slope; None where
    there is no closed form or it does not fit into float32."""
    truth = reference.truth[path]
    squares = _squares(reference)
    if squares is None or not truth.is_floating_point():
        return None
    summed = reference.narrow(squares).get(path)
    if summed is None or summed.shape != truth.shape:
        return None
    moved = summed.to(torch.float64, copy=True).sqrt_().mul_(DELTA).add_(truth)
    return moved if all_finite(moved) else None


def n_products(reference: Reference, path: str) -> float:
    """How many products the smallest element of an output adds, at least 1."""
    call = reference.call
    name = call.op.partition("::")[2].partition(".")[0]
    if name.removesuffix("_") in ("lerp", "addcmul", "addcdiv"):
        return 1.0
    if name in INNER:
        wide = list(call.views.values())[INNER[name]].sizes[-1]
        return max(1.0, float(wide + (len(call.views) > 2)))
    ones = {
        key: torch.ones(part.data.shape, dtype=computed(part.dtype))
        for key, part in reference.parts.items()
        if part.dtype.is_floating_point
    }
    counts = reference.narrow(ones)[path]
    return max(1.0, float(counts.min())) if counts.numel() else 1.0
