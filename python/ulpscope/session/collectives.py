# SPDX-License-Identifier: Apache-2.0
"""Collectives, judged as captured: what a rank got against what all ranks of its group gave.
No device is asked, since a collective cannot run alone. Neighbours: `calls.ranks` (the traces),
`judging` (the verdict on floats)."""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from .._core import Finding, Findings
from ..calls.callable import call_of
from ..calls.raw_bytes import raw_bytes
from ..calls.replay import Call
from ..calls.verdicts import FLAGGED, UNKNOWN
from ..executors.device import Answer
from ..executors.operands import Timing
from ..judges.hops import ROUNDING, strays
from ..calls.ranks import Missing, OPERATORS, RankSide, Ranks
from .judging import Verdict, verdict_on, judge_by

REDUCTIONS = {
    "sum": torch.add,
    "avg": torch.add,
    "product": torch.mul,
    "min": torch.minimum,
    "max": torch.maximum,
    "band": torch.bitwise_and,
    "bor": torch.bitwise_or,
    "bxor": torch.bitwise_xor,
}
REDUCING = ("all_reduce", "reduce", "reduce_scatter")
FROM_ROOT = ("broadcast", "scatter")
TO_ROOT = ("reduce", "gather")
MOST_EXPLAINED = 8  # ranks of which the general search for a cause takes long
FEW = 4  # wrong elements that may look like a mistake by chance


def judge(ranks: Ranks, row: dict[str, Any], timing: Timing | None = None, rule: Any = None) -> tuple[Call, Verdict]:
    """(call, verdict) on a captured collective of the first trace of `ranks`, by another
    standard where `rule` is one. The call has the contributions as its arguments."""
    call = Call(row["sequence"], row["op"], [], {}, row=row, function=judge)
    timing = timing or Timing()
    since = time.perf_counter_ns()
    try:
        if row["op"].partition(".")[0] not in OPERATORS:
            raise Missing("there is no reference for this collective")
        own, sides = ranks.sides(row)
        verdict = _disagreement(own, sides) or _nothing_promised(own)
        if verdict is None:
            given, got = _contributions(own, sides), ranks.got(row)
            timing.add("reference", since)
            call, verdict = on_contributions(own, given, got, timing, rule)
            call.sequence, call.op, call.row = row["sequence"], row["op"], row
    except Missing as problem:
        verdict = Verdict("unjudged", reason=str(problem))
    return call, verdict


def _disagreement(own: RankSide, sides: dict[int, RankSide]) -> Verdict | None:
    """A verdict where the ranks do not ask for the same collective."""
    for rank, side in sorted(sides.items()):
        for what in ("op", "how", "root", "size"):
            mine, other = getattr(own, what), getattr(side, what)
            if mine != other:
                why = f"the ranks do not ask for the same: {other} on rank {rank}, {mine} here"
                return Verdict("undefined", reason=why)
    return None


def _nothing_promised(own: RankSide) -> Verdict | None:
    if own.operator.kind in TO_ROOT and own.rank != own.root:
        return Verdict("undefined", reason=f"only rank {own.root} of the group gets a result")
    return None


def _contributions(own: RankSide, sides: dict[int, RankSide]) -> dict[int, RankSide]:
    """Rank -> side of all ranks whose contribution matters. Raises Missing."""
    needed: Any = [own.root] if own.operator.kind in FROM_ROOT else range(own.size)
    absent = [r for r in needed if r not in sides]
    if absent:
        names = ", ".join(str(r) for r in absent[:8]) + (", ..." if len(absent) > 8 else "")
        raise Missing(
            f"what rank {names} of its group of {own.size} gave is needed: keep the "
            "folders rank-N of one capture side by side"
        )
    if any(sides[r].given is None for r in needed):
        raise Missing("what the ranks gave was not captured; --data stats keeps no contents")
    return {r: sides[r] for r in needed}


# ---- what a rank must get ------------------------------------------------------------


def _root(side: RankSide) -> int:
    assert side.root is not None  # of what has one
    return side.root


def share(side: RankSide, rank: int) -> torch.Tensor:
    """What a side gives to one rank, flat."""
    if side.operator.lists:
        return side.given[rank].reshape(-1)
    if side.splits:
        parts = [t.split(side.splits)[rank] for t in side.given]
    else:
        parts = [_cut(t.reshape(-1), side.size)[rank] for t in side.given]
    return torch.cat([p.reshape(-1) for p in parts])


def _cut(flat: torch.Tensor, n: int) -> torch.Tensor:
    if flat.numel() % n:
        raise Missing(f"{flat.numel()} elements cannot be shared among {n} ranks")
    return flat.reshape(n, -1)


def terms_of(own: RankSide, given: dict[int, RankSide]) -> list[torch.Tensor]:
    """What a reduction adds up, one flat tensor for each rank, in their order."""
    if own.operator.kind == "reduce_scatter":
        return [share(given[r], own.rank) for r in range(own.size)]
    return [_joined(given[r].given) for r in range(own.size)]


def copied(own: RankSide, given: dict[int, RankSide]) -> torch.Tensor:
    """What a collective that only moves must give, flat."""
    kind = own.operator.kind
    if kind == "broadcast":
        return _joined(given[_root(own)].given)
    if kind == "scatter":
        return share(given[_root(own)], own.rank)
    every = [given[r] for r in range(own.size)]
    if kind == "exchange":
        return _joined([share(side, own.rank) for side in every])
    if own.operator.lists:
        return _joined([t for side in every for t in side.given])
    return _joined([side.given[i] for i in range(len(own.given)) for side in every])


def _joined(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    return torch.cat([t.reshape(-1) for t in tensors])


def on_contributions(
    own: RankSide, given: dict[int, RankSide], got: list[torch.Tensor], timing: Timing | None = None, rule: Any = None
) -> tuple[Call, Verdict]:
    """(call, verdict) on what one rank got, tensors, from the sides that matter by rank."""
    _same_layout([t for side in given.values() for t in side.given] + got)
    reducing = own.operator.kind in REDUCING
    parts = terms_of(own, given) if reducing else [copied(own, given)]
    flat = _joined(got)
    if any(p.shape != flat.shape or p.dtype != flat.dtype for p in parts):
        raise Missing("the ranks' tensors do not fit together")
    if reducing and own.how not in REDUCTIONS:
        raise Missing(f"there is no reference for the reduction {own.how or 'it asks for'}")
    if len(got) == 1:
        parts, flat = [p.reshape(got[0].shape) for p in parts], got[0]
    call = call_of(functools.partial(reduced, own.how) if reducing else torch.clone, parts)
    timing = timing or Timing()
    if rule is not None:
        verdict = judge_by(rule, call, Answer({"out[0]": flat}), timing)
    elif reducing:
        verdict = on_reduction(call, own.how, parts, flat, timing)
    else:
        verdict = _on_copy(own, given, parts[0], flat)
    verdict.remarks = [*verdict.remarks, f"judged as captured, from what {_count(own, given)} gave"]
    return call, verdict


def _count(own: RankSide, given: dict[int, RankSide]) -> str:
    return f"all {own.size} ranks" if len(given) == own.size else f"rank {own.root}"


def _same_layout(tensors: Sequence[torch.Tensor]) -> None:
    """Raises Missing where memory order and logical order may be at odds."""
    if len({t.stride() for t in tensors if not t.is_contiguous()} | {() for t in tensors if t.is_contiguous()}) > 1:
        raise Missing("the ranks' tensors lie differently in memory")


# ---- copies and what is exact --------------------------------------------------------


def different(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Which elements do not have the same bits."""
    size = a.element_size()
    bits = [raw_bytes(t).reshape(-1, size) for t in (a, b)]
    return (bits[0] != bits[1]).any(1).reshape(a.shape)


def _on_copy(own: RankSide, given: dict[int, RankSide], want: torch.Tensor, got: torch.Tensor) -> Verdict:
    verdict = _exact(want, got, different(want, got))
    if verdict.verdict != "pass":
        verdict.cause = _moved_wrongly(own, given, got.reshape(-1))
    return verdict


def _exact(want: torch.Tensor, got: torch.Tensor, bad: torch.Tensor, note: str = "") -> Verdict:
    """The verdict where elements must be as wanted, but for those that are not `bad`."""
    findings = Findings()
    findings.differ("out[0]", got, want, bad)
    return Verdict.of(findings, remarks=[note] if note else [])


def _moved_wrongly(own: RankSide, given: dict[int, RankSide], got: torch.Tensor) -> str:
    """A clause where another rank's part came; "" else."""
    kind = own.operator.kind
    if kind == "broadcast" and own.given:
        if own.rank != own.root and not bool(different(_joined(own.given), got).any()):
            return "stale: it still holds what was there before"
    if kind in ("all_gather", "gather", "exchange"):
        return _missing_part(own, given, got)
    others = [r for r in range(own.size) if r != own.rank] if kind == "scatter" else []
    for rank in others:
        part = share(given[_root(own)], rank)
        if part.shape == got.shape and not bool(different(part, got).any()):
            return f"it is the part of rank {rank}"
    return ""


def _missing_part(own: RankSide, given: dict[int, RankSide], got: torch.Tensor) -> str:
    """Which ranks' parts are not as given, where others are."""
    sizes, ranks = [], []
    for rank in range(own.size):
        side = given[rank]
        exchange = own.operator.kind == "exchange"
        parts = [share(side, own.rank)] if exchange else [t.reshape(-1) for t in side.given]
        if len(parts) != 1:
            return ""
        sizes.append(parts[0])
        ranks.append(rank)
    cut = got.split([p.numel() for p in sizes])
    bad = [r for r, a, b in zip(ranks, sizes, cut) if bool(different(a, b).any())]
    if not bad or len(bad) == own.size:
        return ""
    return "not what was given: the part of rank " + ", ".join(map(str, bad[:8]))


# ---- reductions ----------------------------------------------------------------------


def reduced(how: str, *terms: torch.Tensor) -> torch.Tensor | None:
    """The reduction of tensors of one shape; None for one that is lost, as a search for a cause tries it."""
    total = functools.reduce(REDUCTIONS[how], [t for t in terms if t is not None])
    return total / len(terms) if how == "avg" else total


def on_reduction(call: Call, how: str, terms: Sequence[torch.Tensor], got: torch.Tensor, timing: Timing) -> Verdict:
    """The verdict on a reduction of one tensor for each rank."""
    if not got.dtype.is_floating_point:
        return _on_integers(how, terms, got)
    if how not in ROUNDING:
        want = reduced(how, *terms)
        free = functools.reduce(torch.logical_or, (t.isnan() for t in terms))
        note = "elements with NaN among the contributions are left out" if free.any() else ""
        return _exact(want, got, (got != want) & ~free, note)
    verdict = verdict_on(call, Answer({"out[0]": got}), timing)
    if verdict.verdict not in FLAGGED:
        return verdict
    verdict = _after_hops(call, how, terms, got, timing) or verdict
    if verdict.verdict in FLAGGED:
        verdict.cause = _wrongly_added(how, terms, got)
        if not verdict.cause and len(terms) > MOST_EXPLAINED:
            verdict.cause = UNKNOWN  # too many to be searched through
    return verdict


def _after_hops(
    call: Call, how: str, terms: Sequence[torch.Tensor], got: torch.Tensor, timing: Timing
) -> Verdict | None:
    """The verdict where ranks may add in a narrow dtype of their own, by which only the
    elements beyond that are wrong; None where that says nothing."""
    found = strays(how, terms, got)
    if found is None:
        return None
    beyond, good = found
    if good:
        name = str(got.dtype).removeprefix("torch.")
        good_one = Findings([Finding("out[0]", "pass", n=got.numel(), sizes=got.shape)])
        return Verdict.of(good_one, remarks=[f"added in {name} from rank to rank"])
    exact: Any = reduced(how, *(t.double() for t in terms))
    want = exact.to(got.dtype)
    spared = Answer({"out[0]": torch.where(beyond, got, want)})
    verdict = verdict_on(call, spared, timing)
    return verdict if verdict.verdict in FLAGGED else None


def _on_integers(how: str, terms: Sequence[torch.Tensor], got: torch.Tensor) -> Verdict:
    """Integers wrap around, as they do everywhere; how an average is rounded is open."""
    if how != "avg":
        want = reduced(how, *terms)
        return _exact(want, got, got != want)
    total = sum(t.double() for t in terms)
    bad = (got.double() - total / len(terms)).abs() >= 1
    return _exact((total / len(terms)).to(got.dtype), got, bad)


def _wrongly_added(how: str, terms: Sequence[torch.Tensor], got: torch.Tensor) -> str:
    """The mistake that gives what a rank got where that is wrong, as a clause; "" where none
    does."""
    wide = [t.double() for t in terms]
    truth = reduced(how, *wide)
    size = functools.reduce(torch.add, [t.abs() for t in wide])
    near = 4 * torch.finfo(got.dtype).eps * size  # hops err less, however many they are
    bad = ~((got.double() - truth).abs() <= near)
    n_bad = int(bad.sum())
    if n_bad < min(FEW, bad.numel()):
        return ""
    where = "" if n_bad > bad.numel() // 2 else f" in {n_bad:,} of {bad.numel():,} elements"
    best, found = math.inf, ""
    for clause, value in mistakes(how, wide):
        off = (got.double() - value).abs()[bad]
        if bool((off <= near[bad]).all()) and float(off.sum()) < best:
            best, found = float(off.sum()), clause + where
    return found


def mistakes(how: str, terms: Sequence[torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
    """(clause, what it gives) of the mistakes of a sum or an average; nothing else."""
    n = len(terms)
    if how not in ("sum", "avg"):
        return
    truth: Any = reduced(how, *terms)
    part = n if how == "avg" else 1
    for rank, term in enumerate(terms):
        yield f"dropped contribution: that of rank {rank} is missing", truth - term / part
        yield f"duplicate contribution: that of rank {rank} counts twice", truth + term / part
    for lost, kept in itertools.permutations(range(n), 2):
        exchanged = truth + (terms[kept] - terms[lost]) / part
        yield f"mixed-up contribution: rank {kept}'s stands for rank {lost}'s as well", exchanged
    for rank, term in enumerate(terms):
        yield f"stale: it is what rank {rank} gave, nothing was added", term
    if how == "avg":
        yield "sum instead of average", truth * n
        yield f"divided by {n} twice", truth / n
    else:
        yield f"divided by {n}: average instead of sum", truth / n
        yield f"added twice: {n} times too large", truth * n
