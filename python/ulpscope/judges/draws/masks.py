# SPDX-License-Identifier: Apache-2.0
"""The masks of the dropouts inside a call, found again in what a device gave: with them the
call is a function like any other, and judged as one. Serves `operators`.

A mask is found where the device returns it, where few unknown zeros and ones decide a block of
the output (all are tried), or where the output is a sum over a mask's elements, as of an
attention's weights (`_core.draw_find_masks`). Whether the search can be trusted on a call, tell outputs of the
CPU whose masks are known; where it cannot, nobody is accused and nothing claimed.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ... import _core
from ..._core import Findings
from ...calls.older import zip_equal
from ...calls.replay import Call
from ...executors.device import Answer
from ...executors.operands import Operands, Timing
from ...executors.reference_runs import Reference
from ..answers import Way
from ..outputs import judge_outputs
from ..readings import NoOthers
from . import mask_others, sampling
from .given_masks import GivenMasks, GivenReference

N_HONEST = 3  # outputs of the CPU on which the search is tried
MOST_WORK = 2**31  # multiplications of one step of one search
TRIED = _core.draw_mask_tried  # unknowns of a block whose values are all tried
MOST_UNKNOWNS = 256  # of a block
PER_EQUATION = 3  # unknowns
MOST_NUMBERS = 2**23  # of all tables of coefficients
SECONDS = 12.0  # of a processor for one search from the first runs on; on most machines the limits above come first
AFFINE = 1e-9
SEED = 0xD1CE


@dataclass
class FoundMask:
    """The masks of one answer."""

    masks: list[torch.Tensor]  # float64, of zeros and ones
    shown: list[torch.Tensor]  # bool, where the output tells them
    clear: Any = None  # bool per block: whether its masks were found; None where all are tried, as below
    sure: Any = None  # bool per block: whether some mask comes near, be it from afar
    left: Any = None  # per block: what its mask leaves open, of its size
    between: Any = None  # per block: what masks with values between zero and one leave open

    def leave_open(self, found: MaskSearch) -> None:
        """Takes back what is shown of blocks whose mask leaves more open than those of honest ones do."""
        self.clear = self.left <= found.left
        for i, places in zip_equal(found.unknown(), found.blocks.masks):
            self.shown[i].view(-1)[places[~self.clear]] = False


@dataclass
class MaskSearch:
    """What is known of a call whose masks are looked for."""

    call: Call
    shapes: list[torch.Size]  # of the masks
    chances: list[Any]
    seen: dict[int, str] = field(default_factory=dict)  # number of a mask -> path of the output it is
    driver: str = ""  # path of the output in which the others are looked for
    blocks: Any = None
    columns: Any = None  # (blocks, equations, unknowns), or None where all are tried
    base: Any = None
    tried: Any = None  # (combinations, unknowns): what was tried,
    given: Any = None  # (combinations, blocks, equations): and what it gives
    noise: torch.Tensor | None = None  # (blocks) of a chained call: see usc_mask_tries
    of_cpu: tuple[int, int, int] = (0, 0, 0)  # of its outputs: blocks, masks that were found, right ones
    left: float = math.inf  # the most that the mask of a block leaves open and yet explains it,
    between: float = math.inf  # and the most that one with values in between leaves open of an honest block
    rates: dict[int, tuple[int, int]] = field(default_factory=dict)  # mask -> (ones, elements) that honest blocks show

    @property
    def chained(self) -> bool:
        """Whether the call rounds to 16 bits between its operators."""
        return bool(getattr(self.call, "chained", False))

    def run(self, masks: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        """The outputs in float64 with these masks."""
        return GivenReference(self.call, masks).wide()

    def rounded(self, masks: Sequence[torch.Tensor]) -> dict[str, torch.Tensor] | None:
        """The CPU's own outputs with these masks; None where it refuses."""
        return GivenReference(self.call, masks).native()

    def unknown(self) -> list[int]:
        return [i for i in range(len(self.shapes)) if i not in self.seen]

    def honest(self) -> list[torch.Tensor]:
        """Masks as they should be drawn."""
        return [torch.rand(s, dtype=torch.float64).lt(c).double() for s, c in zip_equal(self.shapes, self.chances)]


def search(call: Call, answer: Answer) -> MaskSearch | None:
    """The Search for a call's masks that can be trusted; None where there is none."""
    start = time.process_time()
    watch = GivenMasks()
    with watch:
        narrow = Reference(call).narrow()
    usable = (
        watch.drawn
        and not watch.other
        and all(t.numel() for t, _ in watch.drawn)
        and narrow.keys() == answer.outputs.keys()
    )
    if not usable:
        return None
    found = MaskSearch(
        call,
        [t.shape for t, _ in watch.drawn],
        [float(c) if not isinstance(c, torch.Tensor) else c.detach().double().expand(t.shape) for t, c in watch.drawn],
    )
    for i, (mask, _) in enumerate(watch.drawn):
        for path, out in narrow.items():
            if out.shape == mask.shape and torch.equal(out.double(), mask):
                found.seen[i] = path
    if not found.unknown():
        return found
    drivers = _drivers(found, narrow)
    # of 16 bits there are too few digits: masks that differ in small weights explain a sum alike
    sums = [path for path in drivers if answer.outputs[path].itemsize >= 4]
    for found.driver, of_sums in [*((path, False) for path in drivers), *((path, True) for path in sums)]:
        if _lay_out(found, start, of_sums) and _is_sound(found, answer):
            return found
    return None


def _drivers(found: MaskSearch, narrow: dict[str, torch.Tensor]) -> list[str]:
    return [
        path for path, t in narrow.items() if t.is_floating_point() and t.numel() and path not in found.seen.values()
    ]


# ---- blocks: which elements of the masks decide which of the output -------------------


@dataclass
class Blocks:
    """Elements by block: of the output, and of the unknown masks one after the other."""

    outputs: torch.Tensor  # (blocks, equations) flat places
    masks: list[torch.Tensor]  # for every unknown mask (blocks, elements)

    def spread(self, found: MaskSearch, values: torch.Tensor) -> list[torch.Tensor]:
        """Unknowns (blocks, unknowns) as masks; what is seen stays as ones."""
        out = [torch.ones(s, dtype=torch.float64) for s in found.shapes]
        parts = values.split([m.shape[1] for m in self.masks], 1)
        for i, places, part in zip_equal(found.unknown(), self.masks, parts):
            out[i].reshape(-1)[places.reshape(-1)] = part.reshape(-1)
        return out


def _lay_out(found: MaskSearch, start: float, sums: bool) -> bool:
    """Finds the blocks and, with `sums`, the coefficients of those that have too many unknowns to be tried; False
    where there are none or too many."""
    ones = [torch.ones(s, dtype=torch.float64) for s in found.shapes]
    before = time.process_time()
    rest = found.run(ones)[found.driver]
    spent = time.process_time() - before
    pairs = [_pairs(found, ones, rest, i) for i in found.unknown()]
    dims = [b for b in range(rest.dim()) if all(b in p for p in pairs)]
    groups = {b: min(p[b][1] for p in pairs) for b in dims}
    found.blocks = Blocks(
        _places(rest.shape, {b: g for b, g in groups.items()}),
        [_places(found.shapes[i], {p[b][0]: groups[b] for b in dims}) for i, p in zip_equal(found.unknown(), pairs)],
    )
    n, d = found.blocks.outputs.shape
    k = sum(m.shape[1] for m in found.blocks.masks)
    left = SECONDS - (time.process_time() - start)
    if k <= TRIED:
        return spent * 2**k * (N_HONEST + 2) < left and _tries(found)
    big = k > min(MOST_UNKNOWNS, PER_EQUATION * d) or n * d * k > MOST_NUMBERS or n * d * d * (k + 2 * d) > MOST_WORK
    return sums and not big and spent * k < left and _coefficients(found, k)


def _pairs(found: MaskSearch, ones: list[torch.Tensor], rest: torch.Tensor, i: int) -> dict[int, tuple[int, int]]:
    """Dimension of the output -> (dimension of mask i, number of groups) where slices of the
    one decide slices of the other alone."""
    taken: set[int] = set()
    out: dict[int, tuple[int, int]] = {}
    for a, size in enumerate(found.shapes[i]):
        if size == 1:
            continue
        moved = {t: _moved(found, ones, rest, i, a, t) for t in {0, size - 1}}
        order = sorted(range(rest.dim()), key=lambda b: rest.shape[b] != size)
        for b in order:
            wide = rest.shape[b]
            n = min(size, wide)
            if b in taken or n == 1 or max(size, wide) % n:
                continue
            group = torch.arange(wide) * n // wide
            if all(not bool((by[b] & (group != t * n // size)).any()) for t, by in moved.items()):
                taken.add(b)
                out[b] = a, n
                break
    return out


def _moved(
    found: MaskSearch, ones: list[torch.Tensor], rest: torch.Tensor, i: int, a: int, t: int
) -> list[torch.Tensor]:
    """For each dimension of the output, which slices move with slice t of a mask."""
    masks = [m.clone() for m in ones]
    part = masks[i].select(a, t)
    part.copy_((torch.rand(part.shape) < 0.5).double())
    differs = found.run(masks)[found.driver].reshape(rest.shape) != rest
    return [
        differs.movedim(b, 0).flatten(1).any(1) if rest.shape[b] and differs.dim() > 1 else differs
        for b in range(rest.dim())
    ]


def _places(shape: Sequence[int], groups: dict[int, int]) -> torch.Tensor:
    """Flat places by block, where the dimensions of `groups` are cut into so many each."""
    number = torch.zeros(tuple(shape), dtype=torch.int64)
    total = 1
    for dim, n in groups.items():
        view = [1] * len(shape)
        view[dim] = shape[dim]
        number = number * n + (torch.arange(shape[dim]) * n // shape[dim]).view(view)
        total *= n
    return number.reshape(-1).argsort(stable=True).view(total, -1)


def _tries(found: MaskSearch) -> bool:
    """The outputs of all values of a block's few unknowns."""
    found.columns = None
    k = sum(m.shape[1] for m in found.blocks.masks)
    n = len(found.blocks.outputs)
    found.tried = torch.tensor(list(itertools.product((1.0, 0.0), repeat=k)), dtype=torch.float64)
    found.given = torch.stack([_at(found, found.blocks.spread(found, c.expand(n, k))) for c in found.tried])
    mixed = torch.randint(len(found.tried), (n,))
    masks = found.blocks.spread(found, found.tried[mixed])
    got = _at(found, masks)
    want = found.given[mixed, torch.arange(n)]
    if found.chained:
        ones = found.blocks.spread(found, found.tried[0].expand(n, k))
        found.noise = torch.maximum(_noise(found, masks, want), _noise(found, ones, found.given[0]))
    return bool(((got == want) | (got != got) & (want != want)).all())


def _noise(found: MaskSearch, masks: Sequence[torch.Tensor], want: torch.Tensor) -> torch.Tensor:
    """How far the CPU's roundings between the operators put each block from `want`."""
    rounded = found.rounded(masks)
    if rounded is None:
        return torch.zeros(len(want), dtype=torch.float64)
    sizes = found.given.nan_to_num(0, 0, 0).abs().amax(0)
    apart = (_in_blocks(found, rounded[found.driver]) - want).nan_to_num(0, 0, 0) / sizes
    return apart.nan_to_num(0, 0, 0).norm(dim=1)


def _coefficients(found: MaskSearch, k: int) -> bool:
    """What each unknown adds to its block; False where that is no sum."""
    n = len(found.blocks.outputs)
    zero = torch.zeros(n, k, dtype=torch.float64)
    found.base = _at(found, found.blocks.spread(found, zero))
    columns = []
    for j in range(k):
        one = zero.clone()
        one[:, j] = 1
        columns.append(_at(found, found.blocks.spread(found, one)) - found.base)
    found.columns = torch.stack(columns, 2)
    some = torch.rand(n, k, dtype=torch.float64)
    got = _at(found, found.blocks.spread(found, some))
    want = found.base + (found.columns @ some[..., None])[..., 0]
    most = found.base.abs() + found.columns.abs().sum(-1)
    return bool(((got - want).abs() <= AFFINE * most).all())


def _at(found: MaskSearch, masks: Sequence[torch.Tensor]) -> torch.Tensor:
    return _in_blocks(found, found.run(masks)[found.driver])


def _in_blocks(found: MaskSearch, output: torch.Tensor) -> torch.Tensor:
    return output.double().reshape(-1)[found.blocks.outputs]


# ---- the masks of one output ---------------------------------------------------------


def masks_of(found: MaskSearch, outputs: dict[str, torch.Tensor]) -> FoundMask:
    """The masks that explain the outputs of an answer best: a Found."""
    if found.driver:
        y = outputs[found.driver]
        of_blocks = _nearest if found.columns is None else _solve
        first = of_blocks(found, _in_blocks(found, y).nan_to_num(0, 0, 0), torch.finfo(y.dtype))
        first.masks = found.blocks.spread(found, first.masks[0].double())
        first.shown = [t.bool() for t in found.blocks.spread(found, first.shown[0].double())]
        if first.left is not None:
            first.leave_open(found)
    else:
        first = FoundMask(
            [torch.ones(s, dtype=torch.float64) for s in found.shapes],
            [torch.ones(s, dtype=torch.bool) for s in found.shapes],
        )
    for i, path in found.seen.items():
        first.masks[i] = (outputs[path] != 0).double().reshape(found.shapes[i])
    return first


def _solve(found: MaskSearch, y: torch.Tensor, of: torch.finfo) -> FoundMask:
    """The unknowns of each block, and which of them the output shows."""
    n, _, k = found.columns.shape
    kept, shown = torch.empty(2, n, k, dtype=torch.bool)
    sure, (left, between) = torch.empty(n, dtype=torch.bool), torch.empty(2, n, dtype=torch.float64)
    _core.draw_find_masks(found.columns, found.base, y.contiguous(), of.eps, kept, shown, sure, left, between)
    return FoundMask([kept], [shown], sure=sure, left=left, between=between)


def _nearest(found: MaskSearch, y: torch.Tensor, of: torch.finfo) -> FoundMask:
    kept, shown = torch.empty(2, len(y), found.tried.shape[1], dtype=torch.bool)
    _core.draw_try_masks(found.given, y.contiguous(), found.noise, of.eps, of.smallest_normal, kept, shown)
    return FoundMask([kept], [shown])


def _is_sound(found: MaskSearch, answer: Answer) -> bool:
    """Whether the search finds the masks of outputs of the CPU; notes how many of them."""
    if found.columns is None:
        return True
    runs, typical, between = [], [], []
    for _ in range(N_HONEST):
        masks = found.honest()
        outputs = GivenReference(found.call, masks).narrow()
        outputs[found.driver] = outputs[found.driver].to(answer.outputs[found.driver].dtype)
        first = masks_of(found, outputs)
        runs.append((masks, first))
        typical.append(first.left[first.sure])
        between.append(first.between.amax().reshape(1))  # which is as near as the search comes to it
    found.left, found.between = (_core.draw_mask_limit(torch.cat(of)) for of in (typical, between))
    clear = same = 0
    for masks, first in runs:
        first.leave_open(found)
        right = torch.ones_like(first.clear)
        for i, places in zip_equal(found.unknown(), found.blocks.masks):
            shown = first.shown[i]
            wrong = (first.masks[i] != masks[i]) & shown
            right &= ~wrong.reshape(-1)[places].any(1)
            ones, total = found.rates.get(i, (0, 0))
            found.rates[i] = ones + int(first.masks[i][shown].sum()), total + int(shown.sum())
        clear += int(first.clear.sum())
        same += int((first.clear & right).sum())
    found.of_cpu = N_HONEST * len(first.clear), clear, same
    return _core.draw_search_sound(found.of_cpu)


# ---- the verdict ---------------------------------------------------------------------


def judge(call: Call, answer: Answer, again: Answer | None = None) -> _core.Findings | None:
    """
    Findings on the values of an answer and on the masks, None where these cannot be found.
    """
    torch.manual_seed(SEED)  # the same verdict whenever it is asked for
    found = search(call, answer)
    if found is None:
        return None
    first = masks_of(found, answer.outputs)
    odd = _unexplained(found, first, answer)
    if odd:  # how far off it is, tell the blocks whose masks are told all the same
        first.clear = first.sure
    findings = _by_rule(found, first, answer)
    if odd and all(f.verdict == "pass" for f in findings):
        findings.extend(odd)
    # of a chained call no draw of the CPU has the values of another order of rounding
    if not odd and not found.chained and not all(_core.draw_mask_tells(int(t.sum()), t.numel()) for t in first.shown):
        findings.extend([f for f in sampling.judge(call, answer, again) if f.verdict != "pass"])
    second = masks_of(found, again.outputs) if again is not None else None
    for i in range(len(found.shapes)):
        _judge_mask(findings, found, i, first, second)
    return findings


def _by_rule(found: MaskSearch, first: FoundMask, answer: Answer) -> Findings:
    """Findings by the rule for floats, with the masks given."""
    unclears = mask_others.tell(found, first, answer.outputs, _lay_out)
    operands = Operands(found.call, Timing())
    operands.reference = GivenReference(found.call, first.masks)
    operands.begin()
    outputs, counts = dict(answer.outputs), {}
    for path, unclear in unclears.items():
        truth = operands.reference.truth[path]
        if truth.shape == outputs[path].shape:
            counts[path] = int(unclear.sum())
            outputs[path] = torch.where(unclear, truth.to(outputs[path].dtype), outputs[path])
    way = Way(_core.Case(Findings()), readings=NoOthers(found.call, operands.timing) if found.chained else None)
    findings = judge_outputs(operands, Answer(outputs, "", answer.before), way)
    for i, finding in enumerate(findings):
        findings.excuse(i, "mask_unclear", counts.get(finding.path, 0))
    return findings


def _unexplained(found: MaskSearch, first: FoundMask, answer: Answer) -> Findings:
    """Findings where far fewer blocks than of honest outputs have a mask that explains them."""
    odd = Findings()
    if found.columns is not None and first.clear is not None:
        _core.draw_judge_search(
            odd,
            found.driver,
            answer.outputs[found.driver],
            found.of_cpu,
            (len(first.clear), int(first.clear.sum()), 0),
        )
    return odd


def _judge_mask(findings: Findings, found: MaskSearch, i: int, first: FoundMask, second: FoundMask | None) -> None:
    """Adds the finding on mask i, of which an output may show a part."""
    honest: Any = ()
    if i not in found.seen and found.columns is not None:
        honest = found.rates[i], found.of_cpu
    again = None if second is None else (second.masks[i], second.shown[i])
    _core.draw_judge_mask(
        findings, found.seen.get(i, found.driver), (first.masks[i], first.shown[i]), again, found.chances[i], *honest
    )
