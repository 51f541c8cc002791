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
from ...calls.foreign import foreign
from ...calls.mode import Mode
from ...calls.older import zip_equal
from ...calls.replay import Call, base_name
from ...calls.torch_private import OpOverload, overload_name
from ...executors.device import Answer
from ...executors.operands import Operands, Timing
from ...executors.reference_runs import Reference
from ..answers import Way
from ..outputs import judge_outputs
from ..readings import NoOthers
from . import mask_others, sampling

N_HONEST = 3  # outputs of the CPU on which the search is tried
MOST_WORK = 2**28  # multiplications of one step of one search: as many blocks are looked at
TRIED = _core.draw_mask_tried  # unknowns of a block whose values are all tried
MOST_UNKNOWNS = 256  # of a block
PER_EQUATION = 3  # unknowns
MOST_NUMBERS = 2**23  # of all tables of coefficients
SECONDS = 4.0  # for one search, reckoned from the first runs
AFFINE = 1e-9
SEED = 0xD1CE
ANOTHER_NUMBER = "another number of masks"
UNIFORM = {"rand", "rand_like", "uniform_", "_to_copy"}
COMPARED = {"gt": True, "ge": True, "lt": False, "le": False}  # name -> high numbers are True


class GivenMasks(Mode):
    """Notes the zeros and ones that are drawn in a run, or puts others in their place."""

    def __init__(self, masks: Sequence[torch.Tensor] | None = None) -> None:
        super().__init__()
        self.masks, self.at = masks, 0
        self.drawn: list[tuple[torch.Tensor, Any]] = []  # (mask, chance of a one)
        self.even: list[torch.Tensor] = []
        self.other = False

    def __enter__(self) -> GivenMasks:
        self.at = 0
        super().__enter__()
        return self

    def __torch_dispatch__(self, func: OpOverload, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = base_name(func.name())[1]
        if name in COMPARED and self._is_even(args[0]):
            chance = 1 - args[1] if COMPARED[name] else args[1]
            return self._next(func(*args, **kwargs), chance)
        if name in ("bernoulli", "bernoulli_"):
            p = kwargs.get("p", args[1] if len(args) > 1 else 0.5)  # torch leaves out a default
            chance = args[0].detach().double().clone() if overload_name(func) == "default" else p
            return self._next(func(*args, **kwargs), chance)
        if name == "native_dropout" and args[2] is not False and args[1] > 0:
            return self._dropout(*args[:2])
        out = func(*args, **kwargs)
        if name in UNIFORM and (name != "_to_copy" or self._is_even(args[0])):
            self.even.append(out)
        elif torch.Tag.nondeterministic_seeded in func.tags and name != "native_dropout":
            self.other = True
        return out

    def _is_even(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor holds even draws as they came."""
        return any(t.data_ptr() == tensor.data_ptr() and t.shape == tensor.shape for t in self.even)

    def _next(self, drawn: torch.Tensor, chance: Any) -> torch.Tensor:
        if self.masks is None:
            self.drawn.append((drawn.detach().double(), chance))
            return drawn
        if self.at >= len(self.masks):
            raise LookupError(ANOTHER_NUMBER)
        given = self.masks[self.at]
        self.at += 1
        return drawn.copy_(given)

    def _dropout(self, x: torch.Tensor, p: float) -> tuple[torch.Tensor, torch.Tensor]:
        mask = self._next(torch.empty_like(x).bernoulli_(1 - p), 1 - p)
        return x * mask * (1 / (1 - p) if p < 1 else 0.0), mask != 0


class GivenReference(Reference):
    """A call's reference with its masks given."""

    def __init__(self, call: Call, masks: Sequence[torch.Tensor]) -> None:
        super().__init__(call)
        self.given = GivenMasks(masks)

    def _run_plain(self, *args: Any, **kwargs: Any) -> dict[str, torch.Tensor]:
        state = torch.random.get_rng_state()  # what the masks replace was drawn
        try:
            with self.given:
                out = super()._run_plain(*args, **kwargs)
        finally:
            torch.random.set_rng_state(state)
        if self.given.at != len(self.given.masks or ()):
            raise LookupError(ANOTHER_NUMBER)
        return out

    def native(self) -> dict[str, torch.Tensor] | None:
        if self._native is None:
            try:
                self._native = (self._run_plain(lambda dtype: dtype, None, self.call.function),)
            except Exception as problem:  # the CPU refuses: there is no native answer
                foreign(problem)
                self._native = (None,)
        return self._native[0]


@dataclass
class FoundMask:
    """The masks of one answer."""

    masks: list[torch.Tensor]  # float64, of zeros and ones
    shown: list[torch.Tensor]  # bool, where the output tells them
    clear: Any = None  # bool per block: whether its masks were found
    sure: Any = None  # bool per block: whether some mask comes near, be it from afar
    left: Any = None  # per block that was looked at: what its mask leaves open, of its size


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
    tried: Any = None  # (combinations, unknowns): what was tried, and what it gives
    given: list[torch.Tensor] = field(default_factory=list)
    looked: Any = None  # numbers of the blocks whose masks are looked for
    of_cpu: tuple[int, int, int] = (0, 0, 0)  # of its outputs: blocks, masks that were found, right ones
    left: float = math.inf  # the most that the mask of a block leaves open and yet explains it
    rates: dict[int, tuple[int, int]] = field(default_factory=dict)  # mask -> (ones, elements) that honest blocks show

    @property
    def chained(self) -> bool:
        """Whether the call rounds to 16 bits between its operators."""
        return bool(getattr(self.call, "chained", False))

    def run(self, masks: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        """The outputs in float64 with these masks."""
        return GivenReference(self.call, masks).wide()

    def unknown(self) -> list[int]:
        return [i for i in range(len(self.shapes)) if i not in self.seen]

    def honest(self) -> list[torch.Tensor]:
        """Masks as they should be drawn."""
        return [torch.rand(s, dtype=torch.float64).lt(c).double() for s, c in zip_equal(self.shapes, self.chances)]


def search(call: Call, answer: Answer) -> MaskSearch | None:
    """The Search for a call's masks that can be trusted; None where there is none."""
    start = time.perf_counter()
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
    for driver in _drivers(found, narrow) if found.unknown() else [""]:
        found.driver = driver
        if not driver or (_lay_out(found, start) and _is_sound(found, answer)):
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


def _lay_out(found: MaskSearch, start: float) -> bool:
    """Finds the blocks and their coefficients; False where there are none or too many."""
    ones = [torch.ones(s, dtype=torch.float64) for s in found.shapes]
    before = time.perf_counter()
    rest = found.run(ones)[found.driver]
    spent = time.perf_counter() - before
    pairs = [_pairs(found, ones, rest, i) for i in found.unknown()]
    dims = [b for b in range(rest.dim()) if all(b in p for p in pairs)]
    groups = {b: min(p[b][1] for p in pairs) for b in dims}
    found.blocks = Blocks(
        _places(rest.shape, {b: g for b, g in groups.items()}),
        [_places(found.shapes[i], {p[b][0]: groups[b] for b in dims}) for i, p in zip_equal(found.unknown(), pairs)],
    )
    n, d = found.blocks.outputs.shape
    k = sum(m.shape[1] for m in found.blocks.masks)
    left = SECONDS - (time.perf_counter() - start)
    if k <= TRIED:
        return spent * 2**k * (N_HONEST + 2) < left and _tries(found)
    big = k > min(MOST_UNKNOWNS, PER_EQUATION * d) or n * d * k > MOST_NUMBERS
    return not big and spent * k < left and _coefficients(found, k)


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
    found.given = [_at(found, found.blocks.spread(found, c.expand(n, k))) for c in found.tried]
    mixed = torch.randint(len(found.tried), (n,))
    got = _at(found, found.blocks.spread(found, found.tried[mixed]))
    want = torch.stack(found.given)[mixed, torch.arange(n)]
    return bool(((got == want) | (got != got) & (want != want)).all())


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
    work = (found.columns.shape[1] ** 2) * (k + 2 * found.columns.shape[1])
    found.looked = torch.linspace(0, n - 1, max(1, min(n, MOST_WORK // work))).round().long()
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
    masks = [torch.ones(s, dtype=torch.float64) for s in found.shapes]
    shown = [torch.ones(s, dtype=torch.bool) for s in found.shapes]
    clear = sure = left = None
    if found.driver:
        y = outputs[found.driver]
        eps = torch.finfo(y.dtype).eps
        values, seen, clear, sure, left = _values(found, _in_blocks(found, y), eps)
        masks = found.blocks.spread(found, values)
        shown = [t.bool() for t in found.blocks.spread(found, (seen & clear[:, None]).double())]
    for i, path in found.seen.items():
        masks[i] = (outputs[path] != 0).double().reshape(found.shapes[i])
    return FoundMask(masks, shown, clear, sure, left)


def _values(
    found: MaskSearch, y: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """The unknowns of each block, which of them the output shows, and whether all those were
    found."""
    y = y.nan_to_num(0.0, 0.0, 0.0)
    if found.columns is None:
        return _nearest(found, y, eps)
    at, (n, _, k) = found.looked, found.columns.shape
    kept, shown = torch.empty(len(at), k, dtype=torch.bool), torch.empty(len(at), k, dtype=torch.bool)
    sure, left = torch.empty(len(at), dtype=torch.bool), torch.empty(len(at), dtype=torch.float64)
    _core.draw_find_masks(found.columns[at], found.base[at], y[at], eps, kept, shown, sure, left)
    none = torch.zeros(n, dtype=torch.bool)
    values = torch.ones(n, k, dtype=torch.float64).index_put((at,), kept.double())
    return (
        values,
        torch.zeros(n, k, dtype=torch.bool).index_put((at,), shown),
        none.index_put((at,), left <= found.left),
        none.index_put((at,), sure),
        left,
    )


def _nearest(
    found: MaskSearch, y: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, None, None]:
    kept, shown = torch.empty(2, len(y), found.tried.shape[1], dtype=torch.bool)
    _core.draw_try_masks(torch.stack(found.given), y.contiguous(), eps, kept, shown)
    return kept.double(), shown, torch.ones(len(y), dtype=torch.bool), None, None


def _is_sound(found: MaskSearch, answer: Answer) -> bool:
    """Whether the search finds the masks of outputs of the CPU; notes how many of them."""
    if found.columns is None:
        return True
    if answer.outputs[found.driver].itemsize < 4:
        return False  # too few digits: masks that differ in small weights explain it alike
    runs, typical = [], []
    for _ in range(N_HONEST):
        masks = found.honest()
        outputs = GivenReference(found.call, masks).narrow()
        outputs[found.driver] = outputs[found.driver].to(answer.outputs[found.driver].dtype)
        runs.append((masks, outputs))
        first = masks_of(found, outputs)
        typical.append(first.left[first.sure[found.looked]])
    found.left = _core.draw_mask_limit(torch.cat(typical))
    clear = same = 0
    for masks, outputs in runs:
        again = masks_of(found, outputs)
        right = torch.ones_like(again.clear)
        for i, places in zip_equal(found.unknown(), found.blocks.masks):
            wrong = (again.masks[i] != masks[i]) & again.shown[i]
            right &= ~wrong.reshape(-1)[places].any(1)
            ones, total = found.rates.get(i, (0, 0))
            shown = again.shown[i]
            found.rates[i] = ones + int(again.masks[i][shown].sum()), total + int(shown.sum())
        clear += int(again.clear.sum())
        same += int((again.clear & right).sum())
    found.of_cpu = N_HONEST * len(found.looked), clear, same
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
    whole = found.looked is None or len(found.looked) == len(first.clear)
    for i, finding in enumerate(findings):
        findings.excuse(i, "mask_unclear" if whole else "mask_sample", counts.get(finding.path, 0))
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
            (len(found.looked), int(first.clear.sum()), 0),
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
