# SPDX-License-Identifier: Apache-2.0
"""A closed form where it is cheaper than replays: how strongly a sum of products reacts to
its inputs. Serves `_outputs`.

An operator that adds products of its inputs, each with weight 1, gives sum (a b)^2 when it
is run on the squares of its inputs: at least half of the square of S (docs/verdict.md), for
one float64 replay and without the luck of a draw.
"""

import torch

DELTA = 2.0**-20

# Sums of products with weights 1 (a bias is a product with 1).
SUMS = frozenset("aten::" + name for name in (
    "mm", "bmm", "matmul", "linear", "addmm", "baddbmm", "mv", "dot", "einsum", "sum", "cumsum",
    "convolution", "conv1d", "conv2d", "conv3d", "embedding_dense_backward",
    "convolution_overrideable", "_convolution",
))  # fmt: skip
WEIGHTS = ("alpha", "beta")


def is_sum_of_products(call):
    """Whether the closed form holds for a call."""
    if call.composite or call.op.partition(".")[0] not in SUMS or call.written():
        return False
    return all(call.value(name, 1) == 1 for name in WEIGHTS)


def moved_by_slope(reference, path):
    """The truth moved by S * 2^-20, as a replay would be that hits every slope; None where
    there is no closed form or it does not fit into float64."""
    truth = reference.truth[path]
    squares = {
        key: part.data.to(torch.float64).square()
        for key, part in reference.parts.items()
        if part.dtype.is_floating_point
    }
    if any(part.dtype.is_complex for part in reference.parts.values()):
        return None
    summed = reference.wide(squares).get(path)
    if summed is None or summed.shape != truth.shape or not truth.is_floating_point():
        return None
    moved = truth + summed.sqrt() * DELTA
    return moved if bool(moved.isfinite().all()) else None


def n_products(reference, path):
    """How many products the smallest element of an output adds, at least 1."""
    ones = {
        key: torch.ones(part.data.shape, dtype=torch.float64)
        for key, part in reference.parts.items()
        if part.dtype.is_floating_point
    }
    counts = reference.wide(ones)[path]
    return max(1.0, float(counts.min())) if counts.numel() else 1.0
