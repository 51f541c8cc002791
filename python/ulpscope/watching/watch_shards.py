# SPDX-License-Identifier: Apache-2.0
"""What FSDP2 sends between ranks, held to what they have: of a weight that was gathered the hash of each
rank's part against that of its shard there, of a gradient sums under signs (watch_collective.py) of each part
before it is scattered against those of the shard behind the backward. docs/reference/watch-reference.md, "Shards".

Parameters that lie on one axis of ranks, cut along their first axis. Nothing of the program is touched.

Needs of torch: FSDP2, whose modules hold whole parameters while they run; callbacks behind a backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import _core
from ..calls.torch_private import backward_engine
from . import watch_audit, watch_collective, watch_rows

MOST_RANKS = 64  # the table of a tensor has a few words for each
NO_HASH = 0x7FF8000000000000  # what NaN is, read as one
GATHERED = 4  # of site `collective`: a weight, not a gradient


def applies(model: torch.nn.Module, world: int) -> bool:
    """Whether there are parameters that are cut as it is known here."""
    return 1 < world <= MOST_RANKS and any(is_cut(p, world) for p in model.parameters())


def is_cut(parameter: torch.Tensor, world: int) -> bool:
    """Whether each of `world` ranks has a part of its first axis."""
    mesh: Any = getattr(parameter, "device_mesh", None)
    placed: Any = getattr(parameter, "placements", ())
    return mesh is not None and mesh.ndim == 1 and mesh.size() == world and len(placed) == 1 and placed[0].is_shard(0)


class Shards:
    """`table` gives what is known of a step, `judged` holds those of all ranks. `guard` runs a function of no
    arguments so that nothing of it reaches the program, `wanted` says whether this step is looked at."""

    def __init__(
        self,
        model: torch.nn.Module,
        ids: dict[torch.Tensor, int],
        rank: int,
        world: int,
        guard: Callable[[Callable[[], None]], Any],
        wanted: Callable[[], bool],
    ) -> None:
        self.rank, self.world, self.guard, self.wanted = rank, world, guard, wanted
        self.checksum = watch_collective.Checksum()
        self.width = 3 * world + 2
        self.cut = {ids[p]: p for p in model.parameters() if p in ids and is_cut(p, world)}
        self.whole: dict[int, torch.Tensor] = {}  # id -> the gathered one, on which a hook is
        self.hashes: dict[int, torch.Tensor] = {}
        self.before: dict[int, torch.Tensor] = {}
        self.after: dict[int, torch.Tensor] = {}
        self.queued = self.is_mean = False
        self.handles: list[Any] = []
        for module in model.modules():
            mine = [(name, ids[p]) for name, p in module.named_parameters(recurse=False) if ids.get(p) in self.cut]
            if mine:
                self.handles.append(module.register_forward_pre_hook(self._looks_at(mine)))

    def _looks_at(self, mine: list[tuple[str, int]]) -> Callable[..., Any]:
        def hook(module: torch.nn.Module, args: Any) -> None:
            if self.wanted() and torch.is_grad_enabled():
                self.guard(lambda: self._gathered([(i, module._parameters[name]) for name, i in mine]))

        return hook

    def _gathered(self, pairs: list[tuple[int, torch.Tensor]]) -> None:
        for number, whole in pairs:
            if number in self.hashes or hasattr(whole, "to_local"):
                continue  # seen in this step, or not gathered: the program calls it by itself
            shard = self.cut[number].to_local().to(whole.dtype)
            self.hashes[number] = hashes([shard, *parts_of(whole, self.world)])
            if self.whole.get(number) is not whole and whole.requires_grad and whole.is_leaf:
                self.whole[number] = whole
                self.handles.append(whole.register_post_accumulate_grad_hook(self._sends(number)))

    def _sends(self, number: int) -> Callable[..., Any]:
        def hook(whole: torch.Tensor) -> None:
            if self.wanted():
                self.guard(lambda: self._sent(number, whole.grad))

        return hook

    def _sent(self, number: int, grad: torch.Tensor) -> None:
        shard = self.cut[number]
        # what is added to a gradient that is there is not this sum alone
        if shard.grad is not None or grad.dtype != shard.dtype or grad.is_complex():
            self.before.pop(number, None)
            return
        self.before[number] = torch.stack([self.checksum(part).sum(1) for part in parts_of(grad, self.world)])
        if not self.queued:  # behind the callback in which FSDP2 waits for what it has scattered
            self.queued = True
            engine = backward_engine()
            engine.queue_callback(lambda: engine.queue_callback(lambda: self.guard(self._received)))

    def _received(self) -> None:
        self.queued = False
        for number in self.before:
            grad = self.cut[number].grad
            if grad is not None and number not in self.after:
                self.after[number] = self.checksum(grad.to_local())[0].sum()

    def table(self, n: int) -> tuple[torch.Tensor, list[int], torch.Tensor | None, Any]:
        """(n, width), as watch_collective.Collectives.table: hash of the shard, of each part that was gathered,
        sums and squares of each part that was sent, the sum that came."""
        known_hashes, before, after = self.hashes, self.before, self.after
        self.hashes, self.before, self.after, self.queued = {}, {}, {}, False
        whole = torch.full((n, self.width), float("nan"), dtype=torch.float64)
        rows = []
        for number, told in sorted(known_hashes.items()):
            sums = told.new_full((2 * self.world + 1,), float("nan"), dtype=torch.float64)
            if number in before and number in after:
                sums = torch.cat([before[number].T.reshape(-1), after[number][None]])
            rows.append(torch.cat([told.view(torch.float64), sums]))
        return watch_collective.on_its_way(whole, sorted(known_hashes), rows)

    def judged(
        self, tables: Sequence[torch.Tensor], dtypes: Sequence[torch.dtype], sizes: Sequence[int]
    ) -> list[tuple[int, int, float, int]]:
        """Of the tables of all ranks: [(rank, tensor, error / bound, hash)]. Sums that are off almost everywhere
        from the beginning are no mean of the ranks (another factor, another hook): they are not held."""
        told = torch.stack([table.view(-1, self.width) for table in tables])
        found = [(rank, i, 2.0, GATHERED) for rank, i in other_bits(told[:, :, : self.world + 1].view(torch.int64))]
        over = self._over(told[:, :, self.world + 1 :], dtypes, sizes)
        known = ~torch.isnan(over)
        if not self.is_mean:
            if not known.any() or (over[known] > 1).double().mean() > 0.5:
                return found
            self.is_mean = True
        return found + [(r, i, float(over[r, i]), 0) for r, i in (over > 1).nonzero().tolist()]

    def _over(self, told: torch.Tensor, dtypes: Any, sizes: Any) -> torch.Tensor:
        """(ranks, tensors): how far the sum of a shard is from the mean of what ranks have put in, in bounds."""
        w = self.world
        units, least, elements = watch_collective.roundings(dtypes, sizes)
        squares = told[:, :, w : 2 * w].mean(0)
        bound = (
            watch_collective.SIGMAS
            * (w + 1)
            * (units[:, None] * squares.sqrt() + least[:, None] * elements.sqrt()[:, None])
        )
        error = (told[:, :, 2 * w].T - told[:, :, :w].mean(0)).abs()
        unknown = torch.isnan(told[:, :, : 2 * w]).any(2).any(0)
        over = (error / bound).nan_to_num(nan=float("inf"))
        over[unknown | ~torch.isfinite(squares).all(1)] = float("nan")
        return over.T

    def remove(self) -> None:
        """Takes the hooks out."""
        handles, self.handles = self.handles, []
        for handle in handles:
            handle.remove()


def parts_of(whole: torch.Tensor, world: int) -> list[torch.Tensor]:
    """The part of each rank, as FSDP2 cuts: some may be empty."""
    parts = list(whole.detach().chunk(world, 0))
    return parts + [whole.detach().new_empty((0, *whole.shape[1:]))] * (world - len(parts))


def hashes(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Those of the bits, as int64, on the device."""
    if tensors[0].is_cpu:
        rows = watch_rows.unpacked(b"".join(watch_rows.parted(_core.sums([watch_rows.plain(t) for t in tensors]))))
        return torch.tensor([row.hash64 - (row.hash64 >> 63 << 64) for row in rows if row is not None])
    return torch.stack([watch_audit.mark_of(t) for t in tensors])


def other_bits(told: torch.Tensor) -> list[tuple[int, int]]:
    """(rank, tensor) of those that have other bits than belong there. `told`: (ranks, tensors, own and those of
    each part). Where all others have got the same of a rank, and not what it has, it has sent that."""
    own, parts = told[:, :, 0], told[:, :, 1:]
    world = own.shape[0]
    known = (own != NO_HASH).all(0)
    wrong = parts != own.T[None]  # at rank r, of tensor i, the part of rank s
    wrong &= known[None, :, None]
    found = []
    for i in wrong.any(2).any(0).nonzero().flatten().tolist():
        names = set()
        for s in wrong[:, i].any(0).nonzero().flatten().tolist():
            others = [r for r in range(world) if r != s]
            sent = world > 2 and wrong[others, i, s].all() and len(set(parts[others, i, s].tolist())) == 1
            names |= {s} if sent else set(wrong[:, i, s].nonzero().flatten().tolist())
        found += [(rank, i) for rank in sorted(names)]
    return found
