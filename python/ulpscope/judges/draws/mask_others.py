# SPDX-License-Identifier: Apache-2.0
"""Elements of masks that the output in which they are looked for does not tell (a weight far too small, two that
are alike), told by the other outputs of the call: by those of their blocks whose few unknowns can all be tried, then
by runs with such an element the other way. Serves `masks`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from ...calls.older import zip_equal

if TYPE_CHECKING:
    from .masks import FoundMask, MaskSearch

MOST = 96  # elements that are turned, each in a run of its own
SECONDS = 4.0  # of a processor
RUNS = 24  # of hidden elements drawn anew: each is dropped in some of them
GAIN = 1e-6  # of one element: less tells nothing
SEEN = 2.0**-26  # of a value: what a float32 shows
ROUNDED = 8.0  # roundings of an output, which no mask explains


def others_of(found: MaskSearch, outputs: dict[str, torch.Tensor]) -> list[str]:
    """Paths of the outputs that may tell masks besides."""
    known = {found.driver, *found.seen.values()}
    return [p for p, t in outputs.items() if found.driver and p not in known and t.is_floating_point() and t.numel()]


@dataclass
class Hidden:
    """Elements that the output does not tell, of one mask: their flat places, and the block of each."""

    mask: int
    places: torch.Tensor
    blocks: torch.Tensor


def hidden_in(found: MaskSearch, first: FoundMask) -> list[Hidden]:
    """What the output does not tell, by mask."""
    out = []
    for i, places in zip_equal(found.unknown(), found.blocks.masks):
        hidden = ~first.shown[i].reshape(-1)[places]  # (blocks, elements)
        if first.clear is not None:
            hidden &= first.clear[:, None]
        out.append(Hidden(i, places[hidden], hidden.nonzero()[:, 0]))
    return out


def tell(
    found: MaskSearch,
    first: FoundMask,
    outputs: dict[str, torch.Tensor],
    lay_out: Callable[[MaskSearch, float, bool], bool],
) -> dict[str, torch.Tensor]:
    """Turns the elements of `first.masks` that the driver does not tell to what the other outputs say. path -> which
    elements hang on masks that nothing tells: of blocks that have none, and of more than can be tried."""
    others = others_of(found, outputs)
    hidden = hidden_in(found, first) if others else []
    n_hidden = sum(len(h.places) for h in hidden)
    if n_hidden and any(_by_blocks(found, first, outputs[path], path, lay_out) for path in others):
        n_hidden = 0
    unclear = _of_blocks(found, first)
    if n_hidden > (0 if found.chained else MOST):
        for path, hang in _hang_on(found, first, outputs, hidden, others).items():
            unclear[path] = unclear[path] | hang if path in unclear else hang
    elif n_hidden:
        _turn_to(found, first, hidden, outputs, others)
    return unclear


def _by_blocks(
    found: MaskSearch,
    first: FoundMask,
    output: torch.Tensor,
    path: str,
    lay_out: Callable[[MaskSearch, float, bool], bool],
) -> bool:
    """Turns all elements to what the blocks of another output say, beside what the driver tells already; False where
    these have too many unknowns."""
    search = replace(found, driver=path, blocks=None, columns=None, tried=None, given=None)
    if not lay_out(search, time.process_time(), False):
        return False
    got = output.double().reshape(-1)[search.blocks.outputs].nan_to_num(0, 0, 0)
    given = search.given.nan_to_num(0, 0, 0)  # (combinations, blocks, equations)
    off = _apart(given, got).amax(2)  # (combinations, blocks)
    values, known = (
        torch.cat([of[i].reshape(-1)[m] for i, m in zip_equal(search.unknown(), search.blocks.masks)], 1)
        for of in (first.masks, first.shown)
    )
    against = ((search.tried[:, None] != values) & known).any(2)
    told = search.blocks.spread(search, search.tried[off.masked_fill(against, torch.inf).argmin(0)])
    for i in search.unknown():
        first.masks[i] = told[i]
    return True


def _apart(want: torch.Tensor, got: torch.Tensor) -> torch.Tensor:
    """How far two numbers lie apart, of the larger one; 0 where one is none."""
    return ((want - got).abs() / torch.maximum(want.abs(), got.abs())).nan_to_num(0, 0, 0)


def _of_blocks(found: MaskSearch, first: FoundMask) -> dict[str, torch.Tensor]:
    """Elements of each output that hang on blocks whose masks were not found, though masks with values between zero
    and one explain them. What these do not explain either is judged with the mask that comes nearest."""
    if first.clear is None:
        return {}
    vague = ~first.clear & (first.between <= found.between)
    if not bool(vague.any()):
        return {}
    masks = [m.clone() for m in first.masks]
    for i, places in zip_equal(found.unknown(), found.blocks.masks):
        flat = masks[i].reshape(-1)
        flat[places[vague]] = 1 - flat[places[vague]]
    before, after = found.run(first.masks), found.run(masks)
    out = {path: before[path] != after[path] for path in before}
    out[found.driver].view(-1)[found.blocks.outputs[vague]] = True
    return out


def _turn_to(
    found: MaskSearch,
    first: FoundMask,
    hidden: list[Hidden],
    outputs: dict[str, torch.Tensor],
    others: list[str],
) -> None:
    end = time.process_time() + SECONDS
    each = [(h.mask, *at) for h in hidden for at in zip_equal(h.places.tolist(), h.blocks.tolist())]
    pairs = [(a, b) for n, a in enumerate(each) for b in each[n + 1 :] if a[2] == b[2]]
    best = _error(found, first.masks, outputs, others)
    for move in [*((one,) for one in each), *pairs]:
        if sum(best) == 0 or time.process_time() > end:
            break
        if len(move) == 2 and _at(first, move[0]) == _at(first, move[1]):
            continue
        _turn(first, move)
        error = _error(found, first.masks, outputs, others)
        if error[0] <= best[0] + GAIN and sum(error) < sum(best) - GAIN:
            best = error
        else:
            _turn(first, move)


def _at(first: FoundMask, place: tuple[int, int, int]) -> float:
    return float(first.masks[place[0]].reshape(-1)[place[1]])


def _turn(first: FoundMask, move: tuple[tuple[int, int, int], ...]) -> None:
    for i, place, _ in move:
        flat = first.masks[i].reshape(-1)
        flat[place] = 1 - flat[place]


def _error(
    found: MaskSearch, masks: list[torch.Tensor], outputs: dict[str, torch.Tensor], others: list[str]
) -> tuple[float, float]:
    """How far the driver and the others are off, by element: each at most 1, and by no more than a few roundings
    nothing."""
    given, totals = found.run(masks), [0.0, 0.0]
    for path in (found.driver, *others):
        want, got = given[path].double(), outputs[path].double()
        if want.shape != got.shape:
            continue
        off = _apart(want, got).clamp(max=1)
        rounded = ROUNDED * torch.finfo(outputs[path].dtype).eps
        totals[path != found.driver] += float(off.where(off > rounded, torch.zeros_like(off)).sum())
    return totals[0], totals[1]


def _chance(found: MaskSearch, hidden: Hidden) -> float | torch.Tensor:
    chance = found.chances[hidden.mask]
    return chance.reshape(-1)[hidden.places] if isinstance(chance, torch.Tensor) else chance


def _hang_on(
    found: MaskSearch,
    first: FoundMask,
    outputs: dict[str, torch.Tensor],
    hidden: list[Hidden],
    others: list[str],
) -> dict[str, torch.Tensor]:
    """Elements of the others that lie among what runs give in which the hidden elements are drawn anew, in float64
    and, of a chained call, as the CPU rounds it, wider by as much to each side: not one beyond. An element is dropped
    as often as it should be over all runs, so that none is kept in all by chance."""
    masks = [m.clone() for m in first.masks]
    runs = [found.run(masks)]
    even = [torch.rand(len(h.places), dtype=torch.float64) for h in hidden]
    for k in range(RUNS):
        for h, at in zip_equal(hidden, even):
            masks[h.mask].view(-1)[h.places] = ((at + k / RUNS) % 1 < _chance(found, h)).double()
        runs.append(found.run(masks))
        rounded = found.rounded(masks) if found.chained else None
        if rounded is not None:
            runs.append(rounded)
    out = {}
    for path in others:
        each = torch.stack([r[path].double() for r in runs])
        low, high = each.amin(0), each.amax(0)
        wide, got = high - low, outputs[path].double()
        moved = wide > SEEN * torch.maximum(low.abs(), high.abs())
        if moved.shape == got.shape:
            out[path] = moved & (got >= low - wide) & (got <= high + wide)
    return out
