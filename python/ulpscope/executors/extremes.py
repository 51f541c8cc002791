# SPDX-License-Identifier: Apache-2.0
"""Sums that overflow in some order of adding: the one that adds all positive terms first comes to the most
that any does, the one that adds all negative ones first to the least. Whatever stays in range there stays in
range in every order, and what leaves it may be infinite on an honest device. Serves `reference`."""

import torch

from ..calls.torch_private import DisableTorchDispatch
from .noise import LOW, InSteps
from .orders import BIASED, PRODUCTS, SUMS, WEIGHTED, tensors

UP, DOWN, BOTH = "up", "down", "both"
FACTORS = PRODUCTS | BIASED | {"linear", "convolution"}  # sums of products of two arguments
MEANS = {"mean"} | {name for name in WEIGHTED if "avg_pool" in name}


class Extremes(InSteps):
    """Every sum in the order that makes it infinite: at one side, or at both, where there is no telling which
    (NaN). `found` holds the sides to which some sum went."""

    dtypes = (*LOW, torch.float64)

    def __init__(self, side, apart=True):
        super().__init__(apart)
        self.side, self.found = side, set()

    def _step(self, func, args, kwargs, out):
        name = func._schema.name.split("::")[1]
        if not (name in SUMS or name in WEIGHTED or name in PRODUCTS or name in BIASED) or not out.numel():
            return out
        with DisableTorchDispatch():
            up = self._leaves(name, func, args, kwargs, out, 1)
            down = self._leaves(name, func, args, kwargs, out, -1)
        self.found |= {side for side, leaves in ((UP, up), (DOWN, down)) if bool(leaves.any())}
        if self.side == UP:
            return out.masked_fill(up, torch.inf)
        if self.side == DOWN:
            return out.masked_fill(down, -torch.inf)
        return out.masked_fill(up & down, torch.nan)

    def _transform(self, func, args, out):
        """Every number that a Fourier transform adds up may point one way inside."""
        x, dims, real = args[0].abs().double(), args[1], torch.view_as_real(out) if out.is_complex() else out
        leaves = x.sum(dims, keepdim=True) > torch.finfo(real.dtype).max if dims else x.new_zeros((), dtype=torch.bool)
        if not bool(leaves.any()):
            return out
        self.found |= {UP, DOWN}
        fill = {UP: torch.inf, DOWN: -torch.inf, BOTH: torch.nan}[self.side]
        filled = real.masked_fill(leaves[..., None] if out.is_complex() else leaves, fill)
        return torch.view_as_complex(filled) if out.is_complex() else filled

    def _leaves(self, name, func, args, kwargs, out, sign):
        """Where the terms of one sign add up to more than the dtype holds."""
        most = torch.finfo(out.dtype).max
        if all(float(t.abs().amax()) < most**0.25 for t in tensors(args, kwargs) if t.numel()):
            return torch.zeros_like(out, dtype=torch.bool)
        if name in FACTORS:
            at, bias = (1, 0) if name in BIASED else (0, 2)
            size = _of_signs(func, args, kwargs, {at: 1, at + 1: sign, bias: sign})
            size = size + _of_signs(func, args, kwargs, {at: -1, at + 1: -sign}, bare=True)
        else:
            size = _of_signs(func, args, kwargs, dict.fromkeys(range(len(args)), sign))
            size = size * (args[0].numel() / out.numel() if name in MEANS else 1)
        return (size.abs() > most).reshape(out.shape)


def _of_signs(func, args, kwargs, signs, bare=False):
    """The operator in float64 on the terms of one sign: of each argument its positive or its negative part;
    others stay, or are 0 where `bare`."""

    def part(i, value):
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        wide = value.double().nan_to_num(0, 0, 0)
        if i in signs:
            return (wide * signs[i]).clamp(min=0)
        return wide * 0 if bare else wide

    out = func(*(part(i, a) for i, a in enumerate(args)), **{k: part(k, v) for k, v in kwargs.items()})
    return out[0] if isinstance(out, tuple) else out
