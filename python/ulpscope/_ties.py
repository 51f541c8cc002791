# SPDX-License-Identifier: Apache-2.0
"""Indices that differ: whether one that a device chose selects a value as good as the
right one. Serves `_outputs`."""

from dataclasses import dataclass

import torch

from ._replay import base_name

INDEX_OPS = {
    "argmax", "argmin", "max", "min", "topk", "sort", "argsort", "kthvalue", "median",
    "nanmedian", "mode", "cummax", "cummin", "msort", "_cummax_helper", "_cummin_helper",
}  # fmt: skip
REPEATING = {"cummax", "cummin", "_cummax_helper", "_cummin_helper"}


@dataclass
class Choice:
    """How an operator chose indices: over which values, along which dimension."""

    name: str
    values: torch.Tensor
    dim: int | None
    kernel: object = None
    slack: float = 0.0  # values that differ by this share are as good as equal


def chosen_by(call, values, slack=0.0):
    """The Choice that a call makes among `values`, None where it chooses no index."""
    name = base_name(call.op)[1]
    if name.startswith("max_pool2d_with_indices"):
        return Choice(name, values, None, call.value("kernel_size"), slack)
    if name not in INDEX_OPS:
        return None
    dim = call.value("dim", -1 if name in ("topk", "sort", "argsort", "kthvalue") else None)
    return Choice(name, values, dim, None, slack)


def choice_of(call, reference, path):
    """The Choice behind index output `path`, or None."""
    if call.composite:
        return call.choices.get(path)
    view = next(iter(call.views.values()), None)
    if view is None:
        return None
    part = reference.parts[view.storage, view.dtype]
    return chosen_by(call, part.data.as_strided(view.sizes, view.strides, view.offset - part.first))


def selects_equal(choice, got, want):
    """Whether an index output points at values equal to the right ones: a tie that was
    broken otherwise. No index may occur twice along the dimension."""
    if choice is None or got.dtype != torch.int64:
        return False
    x, dim = choice.values, choice.dim
    if choice.kernel is not None:
        return _same_pool_choice(choice, got, want)
    if dim is None:
        x, dim = x.flatten(), 0
        got, want = got.reshape(-1), want.reshape(-1)
    if x.dim() == 0:
        return False
    if got.dim() < x.dim():
        got, want = got.unsqueeze(dim), want.unsqueeze(dim)
    if not bool(((got >= 0) & (got < x.shape[dim])).all()):
        return False
    if choice.name not in REPEATING and got.shape[dim] > 1:
        if bool((got.sort(dim)[0].diff(dim=dim) == 0).any()):
            return False
    return _as_good(x.gather(dim, got), x.gather(dim, want), choice.slack)


def _as_good(a, b, slack):
    equal = (a == b) | ((a != a) & (b != b))
    if slack:
        equal |= (a - b).abs() <= slack * b.abs()
    return bool(equal.all())


def _same_pool_choice(choice, got, want):
    """Equal values within one window's reach of the right place."""
    x, kernel = choice.values, choice.kernel
    kernel = list(kernel) if isinstance(kernel, (list, tuple)) else [kernel]
    values, width = x.flatten(-2), x.shape[-1]
    if not bool(((got >= 0) & (got < values.shape[-1])).all()):
        return False
    a = values.gather(-1, got.flatten(-2))
    b = values.gather(-1, want.flatten(-2))
    near = ((got // width - want // width).abs() < kernel[0]) & (
        (got % width - want % width).abs() < kernel[-1]
    )
    return _as_good(a, b, choice.slack) and bool(near.all())
