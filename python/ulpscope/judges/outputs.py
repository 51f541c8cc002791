# SPDX-License-Identifier: Apache-2.0
"""Findings over the outputs of one call: a case in C asks (docs/background/case.md), `answers` tells, and `rows` and
`products` have the pieces of large calls. Serves `session.judging`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from .. import _core
from .._core import Finding, Findings
from ..calls.exact import carries
from ..calls.foreign import foreign
from ..calls.verdicts import clause
from ..executors.operands import Operands, Timing
from . import answers, products, rows
from .carried import carried
from .readings import Readings, as_held, clear_of_memory, held_to

if TYPE_CHECKING:
    import torch
    from .answers import Way
    from ..calls.replay import Call
    from ..executors.device import Answer
    from .rows import Piece


def judge_answer(
    call: Call,
    answer: Answer,
    timing: Timing,
    operands: Operands | None = None,
    narrow: bool = True,
    steps: Callable[[int], dict[str, torch.Tensor] | None] = lambda k: None,
) -> tuple[_core.Findings, Operands, Any]:
    """(findings, the operands that the one that decides is of, the Piece that they are of or None)."""
    case = _core.Case(Findings(), large=rows.LARGE, work=products.WORK, fewest=products.FEWEST)
    found = _in_pieces(case, call, answer, timing, steps)
    if found is not None:
        return case.findings, *found
    operands = _judged(case, operands or Operands(call, timing), answer, narrow, steps)
    return case.findings, operands, None


def _judged(
    case: _core.Case,
    operands: Operands,
    answer: Answer,
    narrow: bool,
    steps: Callable[[int], dict[str, torch.Tensor] | None],
    part: Callable[[str], tuple[int, int, int, int]] | None = None,
) -> Operands:
    """The operands by which a case judged the outputs of an answer, to all readings of the call. Those of a call
    that only carries elements begin when they are needed, which they seldom are."""
    readings = operands.readings = operands.readings or Readings(operands.call, operands.timing, steps=steps)
    way = answers.Way(case, narrow, readings, answer.outputs, part=part)
    if not answer.trespass and carried(operands, answer.outputs.keys()):
        way.later = answers.Later(operands)
        for path, device in answer.outputs.items():
            judge_output(way, operands, device, path)
        operands = way.later.operands
        if not answer.outputs:
            case.findings.extend([Finding("", "pass")])
    else:
        operands = held_to(operands)
        judge_outputs(operands, answer, way)
    operands.readings = readings
    return clear_of_memory(operands)


def _in_pieces(
    case: _core.Case, call: Call, answer: Answer, timing: Timing, steps: Callable[[int], dict[str, torch.Tensor] | None]
) -> tuple[Operands, Piece] | None:
    """What `judge_answer` gives of a call that falls into pieces; None where a case takes it as a whole."""
    if carries(call.op):
        return None
    product = products.product_of(call, answer)
    forms = [(path, t.shape) for path, t in answer.outputs.items()]
    case.call(
        call.op,
        call.sequence,
        forms,
        rows.largest_input(call),
        product.n_rows if product else 0,
        product.fan_in if product else 0,
    )
    pieces: Iterator[Piece] | None = None
    kept: tuple[Operands, Piece] | None = None
    while (want := case.next()) is not None:
        if want[0] == "checksum":
            assert product is not None  # of which alone it is asked
            case.give(product.checksums())
            continue
        if pieces is None:
            pieces = product.pieces(case.rows()) if product is not None and case.rows() else _cut(call, answer)
        piece = next(pieces, None)
        if piece is None:
            case.give()
            continue
        case.tell()
        case.next()
        own = _taken(steps, piece.take)
        operands = _judged(case, Operands(piece.call, timing), piece.answer, True, own, piece.part)
        if case.go_on():
            kept, piece = (operands, piece), kept and kept[1]
        del operands
        if piece is not None:  # makes room for the operands of the next
            del piece.call, piece.answer
    if kept is not None:
        call.storages.let_go()
    return kept


def _cut(call: Call, answer: Answer) -> Iterator[Piece]:
    """Yields the pieces of a large call."""
    return rows.gathered(call, answer) or rows.pieces(call, answer) or rows.places(call, answer) or iter(())


def _taken(
    steps: Callable[[int], dict[str, torch.Tensor] | None],
    take: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]],
) -> Callable[[int], dict[str, torch.Tensor] | None]:
    """The steps of a piece."""

    def of_piece(k: int) -> dict[str, torch.Tensor] | None:
        run = steps(k)
        return None if run is None else take(run)

    return of_piece


def judge_outputs(operands: Operands, answer: Answer, way: Way | None = None) -> _core.Findings:
    """Findings for every output of an answer, by operands that have begun; `way`: how it is judged."""
    way = way or answers.Way(_core.Case(Findings()))
    truth, promised = operands.reference.truth, answer.outputs.keys() - operands.reference.undefined
    found, before = way.case.findings, len(way.case.findings)
    if truth.keys() != promised:
        found.miscounted(len(promised), len(truth))
        return found
    outputs = as_held(operands, answer.outputs)
    for path in truth:
        judge_output(way, operands, outputs[path], path)
    if answer.trespass:
        found.extend([Finding("", "wrong", answer.trespass)])
    if len(found) == before:
        found.extend([Finding("", "pass")])
    return found


def judge_output(way: Way, operands: Operands, device: torch.Tensor, path: str) -> None:
    """Adds the finding on one output; `unjudged` where its reference fails."""
    try:
        answers.judge(way, operands, path, device)
    except Exception as problem:
        foreign(problem)
        way.case.findings.extend([Finding(path, "unjudged", f"no reference: {clause(problem)}")])
    operands.let_go(path)
