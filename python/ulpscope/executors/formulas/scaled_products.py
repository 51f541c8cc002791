# SPDX-License-Identifier: Apache-2.0
"""References of products of matrices whose operands are scaled, grouped or packed. Operands in 8 bits
arrive widened, which is exact. Called by `__init__`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...calls.older import zip_equal
from . import NoReference, builtin

aten = torch.ops.aten
BESIDE = 4, 128, 32  # columns and rows of a swizzled tile of scales, numbers that share one
TENSOR, ROW, BY_16, BY_32, BY_128, BY_128_128 = range(6)  # recipes, as torch numbers them
PLAIN, SWIZZLED = 0, 1


# ---- scales ----------------------------------------------------------------------------


def _blocks(n, of):
    return -(-n // of)


def _plain_rows(scale, n_rows, n_sums):
    """Scales of blocks along a row, [rows, blocks], of the order in which tensor cores read them: tiles of
    128 rows and 4 columns, of which each 32 rows lie side by side."""
    columns, rows, _ = BESIDE
    down, right = _blocks(n_rows, rows), _blocks(n_sums, columns)
    if scale.numel() != down * rows * right * columns:
        raise NoReference(f"{scale.numel()} scales are not one for each {BESIDE[2]} numbers of a row")
    tiles = scale.reshape(down, right, rows // 4, 4, columns).transpose(2, 3)
    whole = tiles.reshape(down, right, rows, columns).transpose(1, 2).reshape(down * rows, right * columns)
    return whole[:n_rows, :n_sums]


def _spread(scale, rows, columns):
    """Scales as one for each number of a matrix [rows, columns]; they may be one, or of blocks whose sizes
    their number tells."""
    if scale.numel() == 1:
        return scale.reshape(1, 1)
    if scale.dim() == 1:
        return _plain_rows(scale, rows, _blocks(columns, BESIDE[2])).repeat_interleave(BESIDE[2], 1)[:, :columns]
    for axis, size in enumerate((rows, columns)):
        n = scale.shape[axis]
        if n not in (1, size):
            block = next((b for b in (16, 32, 64, 128, 256) if _blocks(size, b) == n), None)
            if block is None:
                raise NoReference(f"{n} scales of {size} numbers are not in the built-in reference")
            scale = scale.repeat_interleave(block, axis).narrow(axis, 0, size)
    return scale


def _with_scales(self, mat2, scale_a, scale_b):
    """The product of two scaled matrices. Those of the second along its columns arrive turned where they
    are swizzled."""
    left = self * _spread(scale_a, *self.shape)
    if scale_b.dim() == 1 and scale_b.numel() > 1:
        return left @ (mat2 * _spread(scale_b, *reversed(mat2.shape)).T)
    return left @ (mat2 * _spread(scale_b, *mat2.shape))


@builtin("aten::_scaled_mm")
def scaled_mm(
    self,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """Scales are one number, one for each row and column, or one for each block."""
    if scale_result is not None:
        raise NoReference("scale_result is not in the built-in reference")
    y = _with_scales(self.to(scale_a.dtype), mat2.to(scale_a.dtype), scale_a, scale_b)
    return y if bias is None else y + bias


def _by_recipe(scales, recipes, swizzles, rows, columns):
    """Scales [rows, columns] of a matrix whose rows are summed over, by all of its recipes."""
    whole = torch.ones(1, 1, dtype=scales[0].dtype)
    blocks = {ROW: (1, columns), BY_16: (1, 16), BY_32: (1, 32), BY_128: (1, 128), BY_128_128: (128, 128)}
    for scale, recipe, swizzle in zip_equal(scales, recipes, swizzles or [PLAIN] * len(scales)):
        if recipe == TENSOR:
            whole = whole * scale.reshape(1, 1)
            continue
        down, right = blocks[recipe]
        n_rows, n_columns = _blocks(rows, down), _blocks(columns, right)
        if swizzle == SWIZZLED:
            scale = _plain_rows(scale, n_rows, n_columns)
        elif swizzle != PLAIN or scale.numel() != n_rows * n_columns:
            raise NoReference("scales in this order are not in the built-in reference")
        scale = scale.reshape(n_rows, n_columns).repeat_interleave(down, 0).repeat_interleave(right, 1)
        whole = whole * scale[:rows, :columns]
    return whole


@builtin("aten::_scaled_mm_v2")
def scaled_by_recipe(
    self,
    mat2: Tensor,
    scale_a: Sequence[Tensor],
    recipe_a: Sequence[int],
    swizzle_a: Sequence[int],
    scale_b: Sequence[Tensor],
    recipe_b: Sequence[int],
    swizzle_b: Sequence[int],
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    contraction_dim: Sequence[int] = (),
) -> Tensor:
    if contraction_dim:
        raise NoReference("contraction_dim is not in the built-in reference")
    left = self * _by_recipe(scale_a, recipe_a, swizzle_a, *self.shape)
    turned = [s.T if s.dim() == 2 and r != TENSOR else s for s, r in zip(scale_b, recipe_b)]
    right = mat2.T * _by_recipe(turned, recipe_b, swizzle_b, *mat2.T.shape)
    y = left @ right.T
    return y if bias is None else y + bias


# ---- groups ----------------------------------------------------------------------------


@builtin("aten::_grouped_mm")
def grouped_product(
    self, mat2: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: torch.dtype | None = None
) -> Tensor:
    """A product per group; `offs` says where each ends: among the rows of `self`, the columns of
    `mat2`, or in the dimension that is summed over."""
    if bias is not None:
        raise NoReference("bias is not in the built-in reference")
    if offs is None:
        return self @ mat2
    ends = [int(end) for end in offs]
    spans = list(zip([0, *ends], ends))
    if self.dim() == mat2.dim():
        return torch.stack([self[:, a:b] @ mat2[a:b] for a, b in spans])
    if ends[-1] != (self.shape[0] if self.dim() == 2 else mat2.shape[1]):
        raise NoReference("what lies behind the last group is promised nothing")
    if self.dim() == 2:
        return torch.cat([self[a:b] @ w for (a, b), w in zip(spans, mat2)])
    return torch.cat([x @ mat2[:, a:b] for (a, b), x in zip(spans, self)], 1)


@builtin("aten::_scaled_grouped_mm")
def scaled_grouped_product(
    self,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """The same with a scale for each row of every group on the left, for each column on the right."""
    if scale_result is not None:
        raise NoReference("scale_result is not in the built-in reference")
    if offs is not None and self.dim() == mat2.dim() == 2:
        y = grouped_product(self, mat2, offs, bias)
        n, rows, columns = y.shape
        if scale_a.numel() != n * rows or scale_b.numel() != n * columns:
            raise NoReference("scales by blocks are not in the built-in reference")
        return y * scale_a.reshape(n, rows, 1) * scale_b.reshape(n, 1, columns)
    rows, columns = self.shape[:-1], (*mat2.shape[:-2], mat2.shape[-1])
    if scale_a.shape != rows or scale_b.shape != columns:
        raise NoReference("scales by blocks are not in the built-in reference")
    return grouped_product(self * scale_a.unsqueeze(-1), mat2 * scale_b.unsqueeze(-2), offs, bias)


@builtin("aten::_scaled_grouped_mm_v2")
def scaled_grouped_by_recipe(
    self,
    mat2: Tensor,
    scale_a: Sequence[Tensor],
    recipe_a: Sequence[int],
    swizzle_a: Sequence[int],
    scale_b: Sequence[Tensor],
    recipe_b: Sequence[int],
    swizzle_b: Sequence[int],
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    contraction_dim: Sequence[int] = (),
) -> Tensor:
    if [*recipe_a, *recipe_b] != [ROW, ROW] or any((*swizzle_a, *swizzle_b)) or contraction_dim:
        raise NoReference("scales by blocks are not in the built-in reference")
    return scaled_grouped_product(self, mat2, scale_a[0], scale_b[0], offs, bias)


# ---- packed weights ----------------------------------------------------------------------


@builtin("aten::_weight_int8pack_mm")
def by_bytes(self, mat2: Tensor, scales: Tensor) -> Tensor:
    """Weights [columns, sums] as whole numbers, a scale for each column."""
    return self @ mat2.to(self.dtype).T * scales


@builtin("aten::_weight_int4pack_mm_for_cpu")
def by_nibbles(self, mat2: Tensor, qGroupSize: int, qScaleAndZeros: Tensor) -> Tensor:
    """How weights are packed hangs on the processor: with scales of 1 and zeros of 0 the kernel itself
    gives them back, whole numbers from -8 on."""
    n_sums, n_columns = self.shape[1], qScaleAndZeros.shape[1]
    neutral = torch.zeros(qScaleAndZeros.shape, dtype=torch.float32)
    neutral[..., 0] = 1
    whole = aten._weight_int4pack_mm_for_cpu(torch.eye(n_sums), mat2, qGroupSize, neutral).round()
    scale, zero = (qScaleAndZeros[..., i].repeat_interleave(qGroupSize, 0) for i in (0, 1))
    if whole.shape != (n_sums, n_columns):
        raise NoReference("weights packed so are not in the built-in reference")
    return self @ (whole.to(scale.dtype) * scale + zero)
