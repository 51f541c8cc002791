# SPDX-License-Identifier: Apache-2.0
"""Large products of matrices, of which a case judges some rows, each over the whole of its sum: it chooses
them, some by a checksum of every row (src/case/case_piece.c). D w against A (B w) with weights w of chance
costs no more than reading the matrices. Serves `outputs`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from ..calls.replay import Call, base_name
from .rows import Piece, put, tensor_of

if TYPE_CHECKING:
    from ..executors.device import Answer

WORK = 0.0  # products of two numbers, from which rows are chosen; 0: the rule's own
FEWEST = 0  # rows by chance; the same
BLOCK = 1 << 22  # elements that are widened at a time
PIECE = 1 << 22  # elements of the sample that are judged together
# The arguments that hold rows, columns, and what is added.
PRODUCTS = {
    "mm": ("self", "mat2", None),
    "bmm": ("self", "mat2", None),
    "linear": ("input", "weight", "bias"),
    "addmm": ("mat1", "mat2", "self"),
    "baddbmm": ("batch1", "batch2", "self"),
}


@dataclass
class Product:
    """A call that is one product of matrices, and the form of what it gives."""

    call: Call
    answer: Answer
    left: str  # paths
    right: str
    added: str | None
    n_rows: int
    width: int
    fan_in: int

    def matrices(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor]:
        """The two, what is added, and the result, as matrices or batches of them."""
        call, out = self.call, self.answer.outputs["out[0]"]
        a, b = tensor_of(call, self.left), tensor_of(call, self.right)
        bias = None if self.added is None else tensor_of(call, self.added)
        if base_name(call.op)[1] == "linear":
            a, out, b = a.reshape(-1, a.shape[-1]), out.reshape(-1, out.shape[-1]), b.t()
        return a, b, bias, out

    def checksums(self) -> torch.Tensor | None:
        """How far the checksum of each row is off, measured by the row; of the worst batch. None where the
        matrices do not make the result."""
        a, b, bias, out = self.matrices()
        if out.shape[:-1] != a.shape[:-1] or b.shape[-1] != out.shape[-1]:
            return None
        return _checksums(self.call, a, b, bias, out)

    def pieces(self, rows: Sequence[int]) -> Iterator[Piece]:
        """Yields the pieces of these rows."""
        a, _, bias, out = self.matrices()
        numbers, first = torch.tensor(rows), 0
        some = max(1, PIECE * self.n_rows // out.numel())
        for part in numbers.split(some):
            yield self._piece(a, bias, out, part, first, len(numbers) / self.n_rows)
            first += len(part)

    def _piece(
        self,
        a: torch.Tensor,
        bias: torch.Tensor | None,
        out: torch.Tensor,
        rows: torch.Tensor,
        first: int,
        share: float,
    ) -> Piece:
        call = self.call
        part = replace(call, views=dict(call.views), results={}, storages=call.storages.copy(), live=None)
        put(part, self.left, a.index_select(-2, rows))
        if self.added is not None and bias is not None and bias.dim() > 1 and bias.shape[-2] == self.n_rows:
            put(part, self.added, bias.index_select(-2, rows))

        def take(outputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            return {"out[0]": outputs["out[0]"].reshape(out.shape).index_select(-2, rows)}

        given = replace(self.answer, outputs=take(self.answer.outputs), before={})
        where = self.width, self.n_rows, first, len(rows)
        return Piece(part, given, take, lambda path: where, share)


def product_of(call: Call, answer: Answer) -> Product | None:
    """The Product that a call is; None for all others."""
    name = base_name(call.op)[1]
    if call.composite or name not in PRODUCTS or not call.op.startswith("aten::") or answer.trespass:
        return None
    if list(answer.outputs) != ["out[0]"] or not all(v.dtype.is_floating_point for v in call.views.values()):
        return None
    paths = {v.argument: p for p, v in call.views.items()}
    left, right, added = (paths.get(n or "") for n in PRODUCTS[name])
    out = answer.outputs["out[0]"]
    if left is None or right is None or out.dim() < 2 or not call.views[left].sizes:
        return None
    n_rows = math.prod(out.shape[:-1]) if name == "linear" else out.shape[-2]
    return Product(call, answer, left, right, added, n_rows, out.shape[-1], call.views[left].sizes[-1])


# ---- checksums -----------------------------------------------------------------------


def _checksums(
    call: Call, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, out: torch.Tensor
) -> torch.Tensor:
    weights = (
        torch.rand(out.shape[-1], dtype=torch.float64, generator=torch.Generator().manual_seed(call.sequence)) + 0.5
    )
    weights[1::2].neg_()
    alpha, beta = float(call.value("alpha", 1)), float(call.value("beta", 1))
    off = torch.zeros(out.shape[-2], dtype=torch.float64)
    batches: list[tuple[int, ...]] = [()] if out.dim() == 2 else [(i,) for i in range(out.shape[0])]
    for batch in batches:
        vector = _times(b[batch], weights)
        far = _times(out[batch], weights) - alpha * _times(a[batch], vector)
        if bias is not None and beta:
            far -= beta * _of_bias(bias[batch] if bias.dim() == 3 else bias, weights)
        size = _times(a[batch], None).sqrt_() + torch.finfo(torch.float64).tiny
        torch.maximum(off, (far.abs() / size).nan_to_num(math.inf, posinf=math.inf), out=off)
    return off


def _of_bias(bias: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    if bias.dim() < 2:
        return (bias.double() * weights).sum()
    return _times(bias.expand(bias.shape[0], len(weights)), weights)


def _times(matrix: torch.Tensor, vector: torch.Tensor | None) -> torch.Tensor:
    """A matrix by a vector in float64, block by block; without one its rows' squared size."""
    step = max(1, BLOCK // max(1, matrix.shape[1]))
    blocks = (matrix[i : i + step].double() for i in range(0, matrix.shape[0], step))
    return torch.cat([x.square_().sum(1) if vector is None else x @ vector for x in blocks])
