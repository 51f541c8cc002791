# SPDX-License-Identifier: Apache-2.0
"""What went into DistributedDataParallel's reduction against what came out: sums of gradients under signs.

Each rank takes sums of its gradients, element times +1 or -1, before they are reduced, and of what it has
behind the backward; the mean of the first over all ranks is the second, but for roundings (`judged`, the
bound is in docs/reference/watch-reference.md). Signs are the same on all ranks and drawn once: roundings add up under
them as a walk at random whatever the data, and elements that have changed places show. It sees what the vote of
replicas cannot: what is wrong on all ranks alike. Nothing of the program is touched, no sum is waited for.

Needs of torch: callbacks behind a backward (the engine's queue_callback)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..calls import torch_older
from ..calls.torch_private import backward_engine
from . import watch_rows

WIDTH = 4096  # elements of a line
PARTS = 8  # runs of lines that have sums of their own; one more for the rest
SIGMAS = 8.0
ALIKE = 3  # hash of site `collective`: all ranks have the same
SMALLEST = 2.0**-40  # unit roundoff that is believed of float64: sums are taken in it


def _signs(n: int, seed: int) -> torch.Tensor:
    """As many +1 as -1."""
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return torch.where(order < n // 2, 1.0, -1.0).double()


class Checksum:
    """Sums and squares of parts of a tensor, on its device."""

    def __init__(self) -> None:
        self.signs: dict[torch.device, torch.Tensor] = {}  # device -> those within a line
        self.lines: dict[tuple[torch.device, int], torch.Tensor] = {}  # (device, lines) -> theirs

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        """(2, PARTS + 1) in float64: sums under signs, squares."""
        flat, device = tensor.detach().reshape(-1).double(), tensor.device
        if device not in self.signs:
            self.signs[device] = _signs(WIDTH, 1).to(device)
        n = flat.numel() // WIDTH
        found = flat.new_zeros(2, PARTS + 1)
        rest = flat[n * WIDTH :]
        found[0, PARTS] = rest @ self.signs[device][: rest.numel()]
        found[1, PARTS] = rest @ rest
        if n > 0:
            if (device, n) not in self.lines:
                self.lines[device, n] = _signs(n, 2).to(device)
            lines = flat[: n * WIDTH].view(n, WIDTH)
            each = torch.stack([(lines @ self.signs[device]) * self.lines[device, n], lines.square().sum(1)])
            for k, part in enumerate(each.tensor_split(PARTS, 1)):
                found[:, k] = part.sum(1)
        return found


def applies(model: torch.nn.Module) -> bool:
    """Whether the model's gradients are reduced in a way that is known: DistributedDataParallel by itself."""
    return (
        isinstance(model, torch.nn.parallel.DistributedDataParallel)
        and not getattr(model, "_comm_hooks", ())
        and getattr(model, "mixed_precision", None) is None
    )


class Collectives:
    """`sent` takes a gradient before it is reduced, `table` gives what is known of a step. `guard` runs a
    function of no arguments so that nothing of it reaches the program."""

    def __init__(self, model: Any, guard: Callable[[Callable[[], None]], Any]) -> None:
        self.model, self.guard = model, guard
        self.checksum = Checksum()
        self.before: dict[int, torch.Tensor] = {}
        self.after: dict[int, torch.Tensor] = {}
        self.parameters: dict[int, torch.Tensor] = {}
        self.queued = self.reduces = False
        self.handle = model.register_forward_pre_hook(self._forward)

    def _forward(self, model: Any, args: Any) -> None:
        """It is the forward that decides whether its backward is reduced (`no_sync`)."""
        if torch.is_grad_enabled():
            self.reduces = model.require_backward_grad_sync

    def sent(self, number: int, parameter: torch.Tensor) -> None:
        grad = parameter.grad
        if not (self.reduces and applies(self.model)) or grad.is_sparse or grad.is_complex():
            self.before.pop(number, None)
            return
        self.before[number] = self.checksum(grad)
        self.parameters[number] = parameter
        if not self.queued:  # the reducer queues its own later: ours goes behind it from there
            self.queued = True
            engine = backward_engine()
            engine.queue_callback(lambda: engine.queue_callback(lambda: self.guard(self._received)))

    def _received(self) -> None:
        self.queued = False
        ready, self.parameters = self.parameters, {}
        for number, parameter in ready.items():
            if parameter.grad is None:
                continue
            self.after[number] = self.checksum(parameter.grad)[0]

    def remove(self) -> None:
        """Takes the hook out."""
        self.handle.remove()

    def table(self, n: int) -> tuple[torch.Tensor, list[int], torch.Tensor | None, Any]:
        """(n tensors, 3, PARTS + 1): sums and squares before, sums behind; NaN where there is none. On a
        device it is on its way: (table, the event behind which it has come)."""
        before, after, self.before, self.after = self.before, self.after, {}, {}
        self.queued, self.parameters = False, {}
        known = sorted(before.keys() & after.keys())
        whole = torch.full((n, 3, PARTS + 1), float("nan"), dtype=torch.float64)
        return on_its_way(whole, known, [torch.cat([before[i], after[i][None]]) for i in known])

    def judged(
        self, tables: Sequence[torch.Tensor], dtypes: Sequence[torch.dtype], sizes: Sequence[int]
    ) -> list[tuple[int, int, float, int]]:
        """Of the tables of all ranks: [(rank or -1, tensor, error / bound, hash)]."""
        tables = [table.view(len(sizes), 3, -1) for table in tables]
        return [(max(rank, 0), i, over, ALIKE if rank < 0 else 0) for rank, i, over in judged(tables, dtypes, sizes)]


def on_its_way(
    whole: torch.Tensor, known: list[int], rows: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, list[int], torch.Tensor | None, Any]:
    """`rows` for the places `known` of `whole`, for `filled`; those of a device are not waited for."""
    if not known:
        return whole, known, None, None
    found = torch.stack(rows)
    if found.is_cpu:
        return whole, known, found, None
    host = watch_rows.to_host(found)
    event = torch_older.event(found.device)
    event.record()
    return whole, known, host, event


def filled(told: tuple[torch.Tensor, list[int], torch.Tensor | None, Any]) -> torch.Tensor:
    """The table that `Collectives.table` told of, where it has come; else none of it."""
    whole, known, found, event = told
    if known and (event is None or event.query()):
        whole[known] = found
    return whole


def roundings(dtypes: Sequence[torch.dtype], sizes: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of each tensor the unit roundoff, the smallest normal number, the number of elements."""
    kinds = [torch.finfo(d if d.is_floating_point else torch.float64) for d in dtypes]
    units = torch.tensor([max(kind.eps / 2, SMALLEST) for kind in kinds], dtype=torch.float64)
    least = torch.tensor([kind.smallest_normal for kind in kinds], dtype=torch.float64)
    return units, least, torch.tensor(sizes, dtype=torch.float64)


def judged(
    tables: Sequence[torch.Tensor], dtypes: Sequence[torch.dtype], sizes: Sequence[int]
) -> list[tuple[int, int, float]]:
    """Of the tables of all ranks: [(rank or -1, tensor, error / bound)]; -1: all ranks have it alike."""
    world, told = len(tables), torch.stack(tables)
    units, least, elements = roundings(dtypes, sizes)
    squares = told[:, :, 1].mean(0)
    bound = SIGMAS * (world + 1) * (units[:, None] * squares.sqrt() + (least * elements.sqrt())[:, None])
    error = (told[:, :, 2] - told[:, :, 0].mean(0)).abs()
    over = (error / bound).nan_to_num(nan=float("inf")).amax(2)
    alike = (told[:, :, 2] == told[:1, :, 2]).all(2).all(0)
    found = []
    for i in torch.isfinite(told[:, :, :2]).all(3).all(2).all(0).nonzero().flatten().tolist():
        if alike[i] or world == 1:
            found.append((-1, i, float(over[:, i].max())))
        else:
            found += [(rank, i, float(over[rank, i])) for rank in range(world)]
    return found
