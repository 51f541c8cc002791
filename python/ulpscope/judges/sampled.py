# SPDX-License-Identifier: Apache-2.0
"""Which rows of a large product of matrices are judged, over the whole of its sum: those at
the borders of tiles, some by chance, and those that stand out. What stands out is told by a
checksum of every row: D w against A (B w) with weights w of chance costs no more than reading
the matrices. It accuses nobody; it only chooses. Serves `session.judging`.
"""

import hashlib
import math
from dataclasses import replace

import torch

from ..calls.replay import base_name
from . import rows as whole
from .rows import Piece, put, tensor_of

WORK = 1 << 32  # products of two numbers, from which a sample is taken
FEWEST, STRIKING = 256, 32  # rows by chance, and those whose checksum is furthest off
BLOCK = 1 << 22  # elements that are widened at a time
PIECE = 1 << 22  # elements of the sample that are judged together
# The arguments that hold rows, columns, and what is added.
PRODUCTS = {"mm": ("self", "mat2", None), "bmm": ("self", "mat2", None), "linear": ("input", "weight", "bias"),
            "addmm": ("mat1", "mat2", "self"), "baddbmm": ("batch1", "batch2", "self")}  # fmt: skip


def is_small(call, answer):
    """Whether neither this nor what cuts large outputs has anything to do, by sizes alone."""
    outputs = [t.numel() for t in answer.outputs.values()]
    most = max((*outputs, *(math.prod(v.sizes) for v in call.views.values())), default=0)
    return most * most < WORK and most < whole.LARGE and sum(outputs) < whole.LARGE


def sampled(call, answer):
    """Pieces of a large product that are judged for all of it; None for all others."""
    name = base_name(call.op)[1]
    if call.composite or name not in PRODUCTS or not call.op.startswith("aten::") or answer.trespass:
        return None
    if list(answer.outputs) != ["out[0]"] or not all(v.dtype.is_floating_point for v in call.views.values()):
        return None
    paths = {v.argument: p for p, v in call.views.items()}
    left, right, added = (paths.get(n) for n in PRODUCTS[name])
    out = answer.outputs["out[0]"]
    if left is None or right is None or out.dim() < 2:
        return None
    a = tensor_of(call, left)
    b, bias = tensor_of(call, right), None if added is None else tensor_of(call, added)
    if name == "linear":
        a, out, b = a.reshape(-1, a.shape[-1]), out.reshape(-1, out.shape[-1]), b.t()
    if out.numel() * a.shape[-1] < WORK or out.shape[:-1] != a.shape[:-1] or b.shape[-1] != out.shape[-1]:
        return None
    rows = _chosen(call, a, b, bias, out)
    if 2 * len(rows) > out.shape[-2]:
        return None
    share = len(rows) / out.shape[-2]
    note = f"judged on {len(rows):,} of {out.shape[-2]:,} rows, each over the whole of its sum; all rows by a checksum"
    some = max(1, PIECE * out.shape[-2] // out.numel())
    return [_piece(call, answer, (left, a), (added, bias), out, part, share, note) for part in rows.split(some)]


def _piece(call, answer, left, added, out, rows, share, note):
    """The Piece of these rows."""
    (path, a), (added, bias) = left, added
    n = out.shape[-2]
    part = replace(call, views=dict(call.views), results={}, storages=call.storages.copy(), live=None)
    put(part, path, a.index_select(-2, rows))
    if bias is not None and bias.dim() > 1 and bias.shape[-2] == n:
        put(part, added, bias.index_select(-2, rows))
    width = out.shape[-1]

    def take(outputs):
        whole = outputs["out[0]"]
        return {"out[0]": whole.reshape(out.shape).index_select(-2, rows)}

    given = replace(answer, outputs=take(answer.outputs), before={})

    def place(flat, _):
        row, column = divmod(flat, width)
        batch, row = divmod(row, len(rows))
        return (batch * n + int(rows[row])) * width + column

    return Piece(part, given, place, take, share, note)


# ---- which rows ----------------------------------------------------------------------


def _chosen(call, a, b, bias, out):
    n = out.shape[-2]
    rows = _borders(n) | {_drawn(call, i) % n for i in range(FEWEST)}
    rows |= set(_striking(call, a, b, bias, out).topk(min(STRIKING, n)).indices.tolist())
    return torch.tensor(sorted(rows))


def _drawn(call, counter):
    """A number of chance that hangs on the call and a counter alone."""
    text = f"{call.sequence} {call.op} {counter}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def _borders(n):
    """First and last rows, and those at both sides of where a tile may end."""
    found = {0, 1, 2, n - 3, n - 2, n - 1}
    tile = 8
    while tile < n:
        last = n // tile * tile
        found |= {tile - 1, tile, last - 1, last}
        tile *= 2
    return {row for row in found if 0 <= row < n}


def _striking(call, a, b, bias, out):
    """How far the checksum of each row is off, measured by the row; of the worst batch."""
    weights = torch.rand(out.shape[-1], dtype=torch.float64,
                         generator=torch.Generator().manual_seed(_drawn(call, -1) >> 1)) + 0.5  # fmt: skip
    weights[1::2].neg_()
    alpha, beta = float(call.value("alpha", 1)), float(call.value("beta", 1))
    off = torch.zeros(out.shape[-2], dtype=torch.float64)
    batches = [()] if out.dim() == 2 else [(i,) for i in range(out.shape[0])]
    for batch in batches:
        vector = _times(b[batch], weights)
        far = _times(out[batch], weights) - alpha * _times(a[batch], vector)
        if bias is not None and beta:
            far -= beta * _of_bias(bias[batch] if bias.dim() == 3 else bias, weights)
        size = _times(a[batch], None).sqrt_() + torch.finfo(torch.float64).tiny
        torch.maximum(off, (far.abs() / size).nan_to_num(math.inf, posinf=math.inf), out=off)
    return off


def _of_bias(bias, weights):
    if bias.dim() < 2:
        return (bias.double() * weights).sum()
    return _times(bias.expand(bias.shape[0], len(weights)), weights)


def _times(matrix, vector):
    """A matrix by a vector in float64, block by block; without one its rows' squared size."""
    step = max(1, BLOCK // max(1, matrix.shape[1]))
    blocks = (matrix[i : i + step].double() for i in range(0, matrix.shape[0], step))
    return torch.cat([x.square_().sum(1) if vector is None else x @ vector for x in blocks])
