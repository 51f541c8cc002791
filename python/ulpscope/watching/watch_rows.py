# SPDX-License-Identifier: Apache-2.0
"""What a watch reads of tensors: sums and a hash of the bits, without ever waiting for a device.

On the CPU it is one pass in C (ulpscope/x/sums.h), done at once. On any other device it is one torch
expression for all tensors of a dtype and size, so that a model of many layers has as few calls as one
of one; results are copied to the host behind the device's work and are read one step later, where they
have arrived. Hashes are the same on every device.

Needs of torch: that an accelerator's events can be asked whether they have come (torch.Event, or its module's)."""

from __future__ import annotations

import collections
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from .. import _core
from ..calls.raw_bytes import raw_bytes
from ..calls.torch_older import event

STEP = 0x9E3779B97F4A7C15 - (1 << 64)  # docs/reference/metrics.md, "Sums of a watch"
MOST_WAITING = 64  # batches whose results have not come: the oldest is given up then
TOGETHER = 1 << 22  # elements of a bucket: it is copied, and widened
NO_DOUBLES = {"mps"}  # devices without float64

NUMBERS = {torch.float32, torch.bfloat16, torch.float16, torch.float64}
ORDINARY = {torch.Tensor, torch.nn.Parameter}

_FORMAT = struct.Struct("<dddqqqQ")
SIZE = _FORMAT.size  # bytes of a row, as `_core.sums` gives them, ranks send them and `_core.Watch` takes them
NO_ROW = _FORMAT.pack(0.0, 0.0, 0.0, -1, 0, 0, 0)
Row = collections.namedtuple("Row", "max_abs sum_abs sum_sq numel n_nonfinite n_zero hash64")


def unpacked(rows: bytes) -> list[Row | None]:
    """The numbers of bytes that hold rows, None where there is none."""
    return [Row(*row) if row[3] >= 0 else None for row in _FORMAT.iter_unpack(rows)]


def parted(rows: bytes) -> list[bytes]:
    """Bytes that hold rows, one by one."""
    return [rows[k : k + SIZE] for k in range(0, len(rows), SIZE)]


def plain(tensor: torch.Tensor) -> torch.Tensor | None:
    """What of a tensor there is to read: a shard's own part, the values of a sparse one, the parts
    of complex numbers. None where nothing can be read: no memory of its own, or bits that mean no
    number."""
    ordinary = type(tensor) in ORDINARY and tensor.dtype in NUMBERS
    if ordinary and tensor.is_cpu and tensor.layout is torch.strided and not tensor.is_neg():
        return tensor  # nearly always
    tensor = tensor.detach()
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    if tensor.is_sparse:
        tensor = tensor._values()
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
        return None
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.resolve_neg()


def _in_memory_order(tensor: torch.Tensor) -> torch.Tensor:
    """The elements one behind the other, as they lie in memory where that has no gaps."""
    order = sorted(range(tensor.ndim), key=lambda d: -tensor.stride(d))
    return tensor.permute(order).contiguous().view(-1)


def buckets(tensors: Sequence[torch.Tensor]) -> Iterator[list[int]]:
    """Places of tensors that are read together: of one dtype and size, and not too many elements in all."""
    alike = collections.defaultdict(list)
    for i, t in enumerate(tensors):
        alike[(t.dtype, t.numel()) if t.dtype in NUMBERS else i].append(i)
    for places in alike.values():
        most = max(1, TOGETHER // max(1, tensors[places[0]].numel()))
        yield from (places[k : k + most] for k in range(0, len(places), most))


def _hash(flat: torch.Tensor) -> torch.Tensor:
    """Of each row."""
    whole = raw_bytes(flat).view(flat.shape[0], -1)
    words = torch.nn.functional.pad(whole, (0, -whole.shape[1] % 8)).view(torch.int64)
    keys = torch.arange(1, words.shape[1] + 1, dtype=torch.int64, device=flat.device) * STEP
    x = words ^ keys
    low, high = x & 0xFFFFFFFF, (x >> 32) & 0xFFFFFFFF
    return (low * high + x).sum(1)


def expression(tensors: list[torch.Tensor], hashed: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    """(three floats, three counts and the hash, or 0) of each tensor of a bucket, as two small tensors of
    its device, a row for each."""
    wide = torch.float32 if tensors[0].device.type in NO_DOUBLES else torch.float64
    flat = [_in_memory_order(t) for t in tensors]
    flat = torch.stack(flat) if len(flat) > 1 else flat[0][None]
    n, size = flat.shape
    if size == 0:
        return flat.new_zeros((n, 3), dtype=wide), flat.new_zeros((n, 4), dtype=torch.int64)
    x = flat.to(wide).abs()
    finite = torch.isfinite(x)
    x = torch.where(finite, x, torch.zeros_like(x))
    odd = size - finite.sum(1)
    floats = torch.stack([x.amax(1), x.sum(1), (x * x).sum(1)], 1)
    hashes = _hash(flat) if hashed else torch.zeros_like(odd)
    return floats, torch.stack([torch.full_like(odd, size), odd, (x == 0).sum(1) - odd, hashes], 1)


class _Waiting:
    """Results of one batch on their way from a device to the host."""

    def __init__(self, tag: Any, device: torch.device, parts: list[Any]) -> None:
        self.tag = tag
        self.floats, self.counts = (to_host(torch.cat(part)) for part in zip(*parts))
        self.event = event(device)
        self.event.record()

    def has_come(self) -> bool:
        return bool(self.event.query())

    def rows(self) -> list[bytes]:
        """The bytes of each."""
        words = torch.cat([self.floats.double().view(torch.int64), self.counts], 1)
        return parted(words.numpy().tobytes())


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """A copy that waits for nothing: into pinned memory, behind what the device does now."""
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True, device="cpu")
    host.copy_(tensor, non_blocking=True)
    return host


class RowReader:
    """Reads batches of tensors. `take` begins one, `ready` gives those that are there, in turn; rows are bytes."""

    def __init__(self) -> None:
        self.waiting: collections.deque[Any] = collections.deque()
        self.n_lost = 0  # batches that a device did not finish in time

    def take(self, tag: Any, tensors: Sequence[torch.Tensor], hashed: bool = True) -> None:
        """`tag`: what `ready` gives with the rows. Tensors that cannot be read have NO_ROW."""
        read = [plain(t) for t in tensors]
        here = [i for i, t in enumerate(read) if t is not None and t.is_cpu]
        batches = []
        if len(here) == len(read):  # nearly always
            given = parted(_core.sums(read, hashed))
        else:
            given = [NO_ROW] * len(read)
            for i, row in zip(here, parted(_core.sums([read[i] for i in here], hashed))):
                given[i] = row
            batches = self._away(tag, read, hashed)
        self.waiting.append((tag, given, batches))
        if len(self.waiting) > MOST_WAITING:
            self.waiting.popleft()
            self.n_lost += 1

    def _away(self, tag: Any, read: list[Any], hashed: bool) -> list[tuple[list[int], _Waiting]]:
        """What lies on devices, by device: (places, results on their way)."""
        away: dict[torch.device, list[int]] = collections.defaultdict(list)
        for i, t in enumerate(read):
            if t is not None and not t.is_cpu:
                away[t.device].append(i)
        batches = []
        for device, places in away.items():
            parts = [[places[k] for k in bucket] for bucket in buckets([read[i] for i in places])]
            rows = [expression([read[i] for i in part], hashed) for part in parts]
            batches.append(([i for part in parts for i in part], _Waiting(tag, device, rows)))
        return batches

    def ready(self) -> list[tuple[Any, list[Any]]]:
        """[(tag, rows)] of the batches that have come since, oldest first."""
        come = []
        while self.waiting and all(batch.has_come() for _, batch in self.waiting[0][2]):
            tag, rows, batches = self.waiting.popleft()
            for places, batch in batches:
                for i, row in zip(places, batch.rows()):
                    rows[i] = row
            come.append((tag, rows))
        return come
