# SPDX-License-Identifier: Apache-2.0
"""The gradient of an operator against the slope that its own values show: the call in float64, its
gradient for a random cotangent along a random direction, and differences of the call itself along that
direction. What differences know is told by themselves: three steps, each half of the one before, and both
sides of the point. Needs of torch autograd and float64."""

from __future__ import annotations

import torch

from ..calls.foreign import theirs
from ..calls.older import zip_equal
from ..calls.raw_bytes import fit
from ..calls.nested import substitute
from ..calls.replay import LEFT_ALONE, base_name, is_write

STEP = 2.0**-12  # of the size of the inputs
ROUNDING = 2.0**-45  # of the terms of a difference, many roundings of float64 long
INPUTS = 2.0**-51  # of an input, which is rounded where it is moved
SAFETY = 8.0  # times what two steps differ by
KINK = 2.0**-6  # of the slope, by which its sides may differ at the smallest step and it be a slope

# Their gradient is no slope by design.
NO_SLOPE = {
    "fake_quantize_per_tensor_affine",
    "fake_quantize_per_channel_affine",
    "_fake_quantize_learnable_per_tensor_affine",
    "_fake_quantize_learnable_per_channel_affine",
    "fake_quantize_per_tensor_affine_cachemask",
    "fake_quantize_per_channel_affine_cachemask",
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
    "linalg_svd",
    "_linalg_svd",
    "svd",
    "linalg_eigh",
    "_linalg_eigh",
    "linalg_eig",
    "linalg_qr",
    "geqrf",
    "detach",
    "detach_",
    "_linalg_det",
    "_linalg_slogdet",
    "linalg_lu_factor_ex",
    "linalg_lu_factor",
    "linalg_lu",
    "nextafter",  # where both are equal
    # They read one triangle; their gradient is that of the symmetric whole.
    "cholesky",
    "linalg_cholesky",
    "linalg_cholesky_ex",
    "cholesky_solve",
    "cholesky_inverse",
    "linalg_eigvalsh",
    "ormqr",
    "orgqr",
    "linalg_householder_product",
    # Where an index stands twice, which of the values is left is not promised, nor whose the gradient is.
    "max_unpool2d",
    "max_unpool3d",
    "scatter",
    "scatter_reduce",
    "index_copy",
    "index_put",
    "put",
    "index_reduce",
    "as_strided_scatter",
    "index_fill",
}


RANGE = 2.0**20  # of the size of inputs, and between them: one step suits them all


def _spread(tensor):
    """Whether the sizes of its elements are too far apart, or from 1, for one step."""
    sizes = tensor.abs()
    sizes = sizes[sizes > 0]
    return bool(sizes.numel()) and (float(sizes.max()) > RANGE or float(sizes.min()) < 1 / RANGE)


class Gradient:
    """A call whose float inputs are moved along a direction."""

    def __init__(self, call, device):
        self.call, self.where = call, getattr(device, "name", "cpu") if hasattr(device, "place") else "cpu"
        self.seed = torch.Generator().manual_seed(0)

    def held(self, number: int) -> str | None:
        """ "" where slope and gradient agree, a clause where they do not, None where that cannot be told."""
        if not self._asks():
            return None
        self.seed.manual_seed(number)
        given = self._inputs()
        moved = [p for p, t in given.items() if t.is_floating_point() and self.call.views[p].argument not in LEFT_ALONE]
        if not moved or any(not bool(torch.isfinite(given[p]).all()) or not given[p].numel() for p in moved):
            return None
        if any(_spread(given[p]) for p in moved):
            return None
        leaves = {p: t.clone().requires_grad_(p in moved) for p, t in given.items()}
        out = self._value(leaves)
        if out is None or not out.requires_grad or not bool(torch.isfinite(out).all()) or not out.numel():
            return None
        along = {p: self._draw(given[p]) for p in moved}
        weight = self._draw(out)
        grads = torch.autograd.grad(out, [leaves[p] for p in moved], weight, allow_unused=True)
        slope = sum(float((g * along[p]).sum()) for p, g in zip_equal(moved, grads) if g is not None)
        known = [(p, g) for p, g in zip_equal(moved, grads) if g is not None]
        own = sum(float((g * along[p]).abs().sum()) for p, g in known)
        given_size = sum(float((g * given[p]).abs().sum()) for p, g in known)
        own += float(weight.abs().sum())  # where all of it cancels, a slope of 1 is the unit
        return self._against(slope, given, along, weight, (own, given_size))

    def _asks(self):
        """Whether the call is one whose values have a slope."""
        call, name = self.call, base_name(self.call.op)[1]
        if call.schema is None or call.composite or call.written() or call.is_complex or call.whole or name in NO_SLOPE:
            return False
        return not any(is_write(a) for a in call.schema.arguments) and not any(v.form for v in call.views.values())

    def _inputs(self):
        """The inputs of the call in float64, each in memory of its own, on the device."""
        out = {}
        for path, view in self.call.views.items():
            t = fit(self.call.storages[view.storage], view.dtype).as_strided(view.sizes, view.strides, view.offset)
            out[path] = t.to(torch.float64 if t.is_floating_point() else t.dtype, copy=True).contiguous().to(self.where)
        return out

    def _draw(self, like):
        return torch.randn(like.shape, dtype=torch.float64, generator=self.seed).to(self.where)

    def _value(self, given):
        """The first result; None where it is no float."""
        wide = lambda d: torch.float64 if d.is_floating_point else d  # noqa: E731
        args = [substitute(a, given, wide, lambda d: self.where) for a in self.call.args]
        kwargs = {k: substitute(a, given, wide, lambda d: self.where) for k, a in self.call.kwargs.items()}
        with torch.enable_grad():
            first = theirs(self.call.function, *args, **kwargs)
        while isinstance(first, (list, tuple)) and first:
            first = first[0]
        return first if isinstance(first, torch.Tensor) and first.dtype == torch.float64 else None

    def _against(self, slope, given, along, weight, sizes):
        """`sizes`: of the terms of the slope, and of what rounding the inputs moves the value by."""
        size = max(max((float(given[p].abs().max()) for p in along), default=0), 2.0**-20)
        values = {k: self._at(given, along, weight, k * STEP * size / 4) for k in (-4, -2, -1, 0, 1, 2, 4)}
        if any(v is None for v in values.values()):
            return None
        steps = [(k, k * STEP * size / 4) for k in (4, 2, 1)]
        two = [(values[k][0] - values[-k][0]) / (2 * h) for k, h in steps]
        noise = [
            ROUNDING * (values[k][1] + values[-k][1]) / (2 * h) + ROUNDING * sizes[0] + INPUTS * sizes[1] / h
            for k, h in steps
        ]
        h = steps[-1][1]
        left, right = (values[0][0] - values[-1][0]) / h, (values[1][0] - values[0][0]) / h
        scale = max(abs(slope), abs(two[2]))
        unsure = max(abs(two[1] - two[2]), abs(two[0] - two[1]) / 4) * SAFETY + SAFETY * noise[2]
        if abs(two[1] - two[2]) > abs(two[0] - two[1]) / 2 + noise[2] * SAFETY or unsure > KINK * scale:
            return None  # steps do not close in on one number
        if abs(left - right) > KINK * scale:
            return None  # a corner
        if abs(slope - two[2]) <= unsure:
            return ""
        return (
            f"its gradient has the slope {slope:.12g} along a direction in which its values rise by "
            f"{two[2]:.12g} (float64, to {unsure:.1g})"
        )

    def _at(self, given, along, weight, h):
        """(the weighed sum of the result where the inputs are moved by `h`, the size of its terms)."""
        out = self._value({p: t + h * along[p] if p in along else t for p, t in given.items()})
        if out is None or out.shape != weight.shape:
            return None
        terms = out.detach() * weight
        total = float(terms.sum())
        return (total, float(terms.abs().sum())) if total - total == 0 else None
