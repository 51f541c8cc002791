# SPDX-License-Identifier: Apache-2.0
"""Other tools' rules over a call: which operands they need, what each says of every output,
and the worst of it. The rules are C (`_core.Standard`); docs/reference/metrics.md, 3.

`session.judging` asks for the opinion that decides or for those that are compared with ours. A
standard that cannot say anything says `unjudged`; nothing here raises.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .. import _core
from .._core import Finding, Findings
from ..calls.foreign import foreign
from ..calls.replay import Call, draws_random, promises_nothing
from ..calls.call_results import plain
from ..calls.verdicts import clause

if TYPE_CHECKING:
    import torch
    from ..executors.device import Answer
    from ..executors.operands import Operands

OWN = "ulpscope"

#: What `--compare-standards` compares: every standard, with the parameters that its own
#: documentation or its first users name.
COMPARED = (
    "ascend-v1",
    "ascend-absolute",
    "ascend-ulp",
    "ascend-benchmark",
    "torch-close",
    "allclose:1e-8,1e-5",
    "ulp:1",
    "bitwise",
    "cosine:0.99",
    "neuron-3way",
    "inductor-same",
    "ggml-nmse",
    "kernelbench",
)


def parsed(name: str | None) -> _core.Standard | None:
    """The standard of that name, None for our own rule. ValueError lists the known ones."""
    if name in (None, OWN):
        return None
    try:
        return _core.Standard(name)
    except _core.ArgError as problem:
        raise ValueError(str(problem)) from None


def chosen(rule: str | None = None, compare: bool | str = False) -> tuple[_core.Standard | None, list[_core.Standard]]:
    """The standard that decides (None: our own) and those that are only asked as well: all,
    or the one that `compare` names."""
    names = (compare,) if isinstance(compare, str) else COMPARED if compare else ()
    return parsed(rule), [_core.Standard(name) for name in names]


@dataclass
class Opinion:
    """What a standard says of a call: its worst output's verdict."""

    standard: _core.Standard
    verdict: str = "unjudged"
    status: str = "unjudged"
    reason: str = ""
    stand_in: str = ""
    path: str = ""  # the output that decided
    outputs: dict[str, dict[str, Any]] = field(default_factory=dict)  # path -> what `_core.Standard.judge` gives

    def about(self, path: str) -> Opinion:
        """The opinion on one output; the whole where nothing is known of that one."""
        judged = self.outputs.get(path)
        if judged is None:
            return self
        return Opinion(self.standard, **words(judged), path=path, outputs={path: judged})

    def text(self) -> str:
        """One clause: the standard, its status, why, and what stood in."""
        if self.verdict == "unjudged" and not self.path:
            return self.reason
        return self.standard.text(vars(self), self.path)


class Sources:
    """Operands of one call by output path; what cannot be computed is missing."""

    def __init__(self, operands: Operands, benchmark: dict[str, torch.Tensor] | None = None) -> None:
        self.operands, self.reference = operands, operands.reference
        self._had: dict[str, dict[str, torch.Tensor]] = {"benchmark": benchmark or {}}

    def of(self, name: str, path: str) -> torch.Tensor | None:
        if name not in self._had:
            self._had[name] = self._compute(name)
        return self._had[name].get(path)

    def _compute(self, name: str) -> dict[str, torch.Tensor]:
        try:
            if name == "native":
                return self.reference.native() or {}
            if self.reference.truth is None:
                self.operands.begin()
            return (self.reference.truth if name == "reference" else self.reference.yardstick) or {}
        except Exception as problem:  # whatever a kernel raises: there is none then
            foreign(problem)
            return {}

    def paths(self) -> Collection[str] | None:
        """Paths of what the operator gives; None where nobody knows."""
        self.of("reference", ""), self.of("native", "")
        known = self._had["reference"] or self._had["native"]
        return known.keys() if known else None


def _judged(standard: _core.Standard, call: Call, path: str, device: torch.Tensor, sources: Sources) -> dict[str, Any]:
    """What a standard says of one output."""
    given = {name: sources.of(name, path) for name in _core.operands}
    given = {name: tensor for name, tensor in given.items() if tensor is not None}
    try:
        said = standard.judge(device, op=call.op, **given)
    except (ValueError, _core.UlpscopeError) as problem:  # a dtype of its own kind
        said = {"verdict": "unjudged", "status": "unjudged", "reason": clause(problem), "stand_in": "", "metrics": {}}
    return said | {"form": f"{str(device.dtype).removeprefix('torch.')}{list(device.shape)}"}


def opinion(standard: _core.Standard, call: Call, answer: Answer, sources: Sources) -> Opinion:
    """What a standard says of a call."""
    if promises_nothing(call):
        return without(standard, "no_values")
    paths = sources.paths()
    if paths is None:
        return without(standard, "no_truth")
    if paths != answer.outputs.keys():
        return Opinion(standard, **words(standard.miscounted(len(answer.outputs), len(paths))))
    outputs = {path: _judged(standard, call, path, device, sources) for path, device in answer.outputs.items()}
    if not outputs:
        return without(standard, "no_output")
    worst = list(outputs)[standard.worst(outputs.values())]
    return replace(Opinion(standard, outputs=outputs).about(worst), outputs=outputs)


def words(said: dict[str, Any]) -> dict[str, Any]:
    return {k: said[k] for k in ("verdict", "status", "reason", "stand_in")}


def without(standard: _core.Standard, why: str) -> Opinion:
    """What is said of a call of which no output is held to the standard."""
    return Opinion(standard, **words(standard.without(why)))


def opinions(
    standards: Iterable[_core.Standard],
    call: Call,
    answer: Answer | None,
    operands: Operands | None,
    benchmark: dict[str, torch.Tensor] | None = None,
) -> list[Opinion]:
    """What each standard says of an answer (None: the device gave none); operands are
    computed once for all of them."""
    if answer is None or operands is None:
        return [without(s, "no_answer") for s in standards]
    if draws_random(call) or getattr(call, "random", False):
        return [without(s, "random") for s in standards]
    sources = Sources(operands, benchmark)
    said = [opinion(s, call, answer, sources) for s in standards]
    if any(one.verdict == "wrong" for one in said) and _draws_unsaid(call, operands):
        return [without(s, "random") for s in standards]
    return said


def _draws_unsaid(call: Call, operands: Operands) -> bool:
    """Whether an operator that is not torch's own draws random numbers all the same."""
    if call.composite or call.op.split("::")[0] in ("aten", "prims"):
        return False
    try:
        return operands.reference.is_random()
    except Exception as problem:  # no reference, so nothing is known
        foreign(problem)
        return False


def benchmark_of(call: Call, device: Any) -> dict[str, torch.Tensor]:
    """What a second device gave, by path: the captured run's own results, where it ran on
    an accelerator of another type."""
    if device.home in (device.type, "cpu") or call.live is None or call.made_up:
        return {}
    found = {path: call.live(path, "out") for path in call.results}
    found.update((path, call.live(path, "mutated")) for path in call.mutated)
    return {path: plain(tensor) for path, tensor in found.items() if tensor is not None}


def findings(said: Opinion, answer: Answer) -> _core.Findings:
    """An opinion as findings, one for each output."""
    return Findings(
        [
            Finding(
                path,
                one["verdict"],
                one["reason"],
                math.nan,
                math.nan,
                answer.outputs[path].numel(),
                answer.outputs[path].shape,
            )
            for path, one in said.outputs.items()
        ]
        or [Finding("", said.verdict, said.reason, math.nan, math.nan)]
    )


def metric_rows(said: Iterable[Opinion]) -> list[tuple[int, str, float, str | None]]:
    """(output, name, value, text) of opinions, for result.db: `standard:NAME` of the call
    with 1 for pass, 0 for wrong, and of each output NAME.status,
    NAME.form (dtype and shape) and NAME.METRIC."""
    out: list[tuple[int, str, float, str | None]] = []
    for one in said:
        value = {"pass": 1.0, "wrong": 0.0}.get(one.verdict, math.nan)
        text = {
            "verdict": one.verdict,
            "status": one.status,
            "reason": one.reason,
            "output": one.path,
            "stand_in": one.stand_in,
        }
        out.append((-1, f"standard:{one.standard.name}", value, json.dumps(text)))
        for i, judged in enumerate(one.outputs.values()):
            name = one.standard.metric_name
            passed = {"pass": 1.0, "wrong": 0.0}.get(judged["verdict"], math.nan)
            out += [(i, name("status"), passed, judged["status"]), (i, name("form"), math.nan, judged["form"])]
            out += [(i, name(k), v, None) for k, v in judged["metrics"].items()]
    return out
