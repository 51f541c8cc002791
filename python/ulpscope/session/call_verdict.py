# SPDX-License-Identifier: Apache-2.0
"""What `api` says of a call and of each of its outputs, and the words for it. Needs nothing of torch but what it
shows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any


from .. import _core
from ..calls.older import zip_equal
from ..calls.shown import Shown
from ..calls.verdicts import UNTOLD
from ..judges import wording
from . import stress

if TYPE_CHECKING:
    from ..calls.replay import Call
    from .judging import Verdict


@dataclass(repr=False)
class OutputVerdict(Shown):
    """What is said of one output."""

    index: int  # place among the outputs; those written in place come last
    path: str  # "out[0]", "args[1]" for a written argument, "" for the call as a whole
    verdict: str
    effective_bits: float  # NaN where nothing was judged
    expected_bits: float  # those of float32 on the CPU
    cause: str
    sentence: str
    worst: list[tuple[Any, Any, Any]] = field(default_factory=list)  # (index, device value, correct value)
    status: str = ""  # in the words of another standard: "pass", "warning", "error"
    metrics: dict[str, float] = field(default_factory=dict)  # what that standard measured

    @property
    def passed(self) -> bool:
        return self.verdict == "pass"

    def _shown(self) -> str:
        return f"{self.path or 'the call'} {self.verdict}: {self.sentence}"

    def _titles_and_rows(self) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        return ("element", "device", "correct"), self.worst


@dataclass(repr=False)
class CallVerdict(Shown):
    """What is said of one call: its worst output's verdict, and each output's own."""

    verdict: str
    effective_bits: float
    expected_bits: float
    cause: str
    sentence: str
    outputs: list[OutputVerdict] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    cases: list[stress.CaseVerdict] = field(default_factory=list)  # stress.CaseVerdict, where inputs were "stress"
    standard: str = "ulpscope"
    status: str = ""  # in the words of another standard

    @property
    def passed(self) -> bool:
        """Whether nothing was found; `unjudged` is no pass."""
        return self.verdict == "pass"

    @property
    def not_judged(self) -> list[str]:
        """Paths of outputs that nobody could judge; each one's own sentence says why."""
        return [o.path for o in self.outputs if o.verdict in UNTOLD]

    @property
    def worst(self) -> list[tuple[Any, Any, Any]]:
        """Worst elements of the output that decided: (index, device value, correct value)."""
        return next((o.worst for o in self.outputs if o.verdict == self.verdict and o.worst), [])

    def __str__(self) -> str:
        return self.sentence

    def _shown(self) -> str:
        notes = f" ({'; '.join(self.notes)})" if self.notes else ""
        return f"{self.verdict}: {self.sentence}{notes}"

    def _titles_and_rows(self) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        rows: list[tuple[Any, ...]] = [
            (o.path, o.verdict, o.effective_bits, o.expected_bits, o.sentence) for o in self.outputs
        ]
        rows += [
            (c.name, c.verdict.verdict if c.verdict else c.skipped, None, None, str(c.verdict or ""))
            for c in self.cases
        ]
        return ("output", "verdict", "effective bits", "float32 gives", "why"), rows


def public(call: Call | None, name: str, verdict: Verdict) -> CallVerdict:
    """A verdict as a caller gets it; `call` is None where none could be made."""
    said = verdict.opinions[0] if verdict.opinions else None
    outputs = [
        _output(name, verdict, i, finding, verdict.causes.get(i, ""))
        if said is None
        else _output_by(call, name, verdict, i, finding)
        for i, finding in enumerate(verdict.findings)
    ]
    return CallVerdict(
        verdict.verdict,
        *_core.bits(verdict.verdict, verdict.worst),
        verdict.cause,
        wording.sentence(name, verdict),
        outputs,
        list(verdict.notes),
        status=said.status if said else "",
    )


def _output(name: str, verdict: Any, i: int, finding: _core.Finding, cause: str) -> OutputVerdict:
    """The public entry for one finding, with a cause of its own."""
    cause = verdict.cause if finding == verdict.worst else cause
    return OutputVerdict(
        i,
        finding.path,
        finding.verdict,
        *_core.bits(finding.verdict, finding),
        cause,
        _core.sentence(name, finding.verdict, "", "", cause, finding),
        _worst(finding),
    )


def _output_by(call: Any, name: str, verdict: Any, i: int, finding: _core.Finding) -> OutputVerdict:
    """The public entry for what another standard found of one output."""
    said = verdict.opinions[0].about(finding.path)
    judged = said.outputs.get(finding.path, {})
    return OutputVerdict(
        i,
        finding.path,
        finding.verdict,
        math.nan,
        math.nan,
        "",
        _core.sentence(name, said.verdict, said.text(), "", "", finding),
        status=said.status,
        metrics=judged.get("metrics", {}),
    )


def _worst(finding: _core.Finding) -> list[tuple[Any, ...]]:
    return [(at, *example[1:3]) for at, example in zip_equal(finding.places, finding.examples)]
