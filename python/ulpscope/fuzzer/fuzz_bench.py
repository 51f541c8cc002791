# SPDX-License-Identifier: Apache-2.0
"""`ulpscope fuzz` in a worker: as a check, of calls that are drawn from those of the trace
(`fuzzer.drawn_cases`), or of short programs (`fuzzer.short_programs`). The coordinator names the case and its
example; nothing else is kept. Needs of torch that it forgets what it compiled."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..calls.replay import BadCall, Call
from ..calls.verdicts import FLAGGED
from . import drawn_cases, short_programs
from . import short
from ..session.bench import Bench
from .climbing import climb
from ..session.judging import Verdict, judge_call
from .related import relate

if TYPE_CHECKING:
    from .drawn_cases import Example
    from ..executors.operands import Timing


class FuzzBench(Bench):
    """A bench whose calls are cases of a seed."""

    def __init__(self, settings, channel):
        super().__init__(settings, channel)
        self.seed, self.stress = settings["seed"], settings["stress"]
        self.relations = settings.get("relations", False)
        self.example, self.examples = 0, drawn_cases.Examples(self.trace, self.trace_id)

    def row(self, sequence: int) -> dict[str, Any]:
        """What the trace tells of the example."""
        return self.at_example().row

    def at_example(self) -> Example:
        """The example that the case in work is drawn from."""
        return self.examples[self.example]

    def call(self, sequence: int, module: dict[str, Any] | None = None) -> Call:
        """The case."""
        self.mark("reference")
        call, self.words = drawn_cases.drawn(self.at_example(), self.seed, sequence, self.stress)
        return call

    def judge(self, sequence: int, timing: Timing, module: dict[str, Any] | None = None) -> tuple[Call, Verdict]:
        call, verdict = super().judge(sequence, timing, module)
        self.reached = sequence
        if self.stress and not sequence >> drawn_cases.STEP_BIT:
            call, verdict, self.words, self.reached = climb(
                lambda number: drawn_cases.drawn(self.at_example(), self.seed, number, True),
                sequence,
                (call, verdict, self.words),
                lambda call: judge_call(call, self.device, timing, self.mark, self.rule, seconds=0, repeat=self.repeat),
            )
        if self.relations:
            verdict = relate(call, self.device, verdict, self.reached, timing=timing)
        verdict.remarks = [*verdict.remarks, f"drawn: {self.words}"]
        self.drawn = call
        return call, verdict

    def loss_effect(self, call: Call, verdict: Verdict, backward: dict[str, Any]) -> list[Any]:
        """Nothing: there is no run whose loss it could change."""
        return []

    def work(self, request: dict[str, Any]) -> tuple[dict[str, Any], bool, Callable[..., Any] | None]:
        self.example, self.drawn, self.reached = request["example"], None, None
        try:
            self.at_example()
        except BadCall as problem:
            return {"verdict": "unjudged", "sentence": str(problem)}, True, None
        row, alive, search = super().work(request)
        return self._kept(row), alive, search and (lambda: self._kept(search()))

    def is_brief(self, verdict: Verdict) -> bool:
        return verdict.verdict == "pass"

    def _kept(self, row):
        """A row without what nobody reads of a pass, and with how the tensors of any other lay."""
        if row["verdict"] == "pass":
            return row | {"metrics": [], "examples": []}
        case = [(-1, "case", float(self.reached), None)] if self.reached is not None else []
        return row | {"metrics": [*row.get("metrics", []), *_arguments(self.drawn), *case]}


class ProgramBench(FuzzBench):
    """A bench whose calls are short programs, each with the operator of its example."""

    def __init__(self, settings, channel):
        super().__init__(settings, channel)
        self.named, self.program = "", None

    def at_example(self) -> Any:
        """Nothing is drawn from the example but its operator."""
        if self.example not in self.examples:
            self.examples[self.example] = _Named(self.trace.call(self.example))
        return self.examples[self.example]

    def row(self, sequence: int) -> dict[str, Any]:
        row = super().row(sequence)
        return row | {"op": self.named or row["op"]}

    def call(self, sequence: int, module: dict[str, Any] | None = None) -> Call:
        self.mark("reference")
        self.named = ""
        self.program, call = short_programs.drawn(self.seed, sequence, super().row(sequence)["op"])
        lines = "; ".join(f"{name} = {text}" for name, text in self.program.lines())
        self.words = f"{lines}; with {self.program.inputs_said()}"
        return call

    def judge(self, sequence: int, timing: Timing, module: dict[str, Any] | None = None) -> tuple[Call, Verdict]:
        """As of a call; one that is accused is named by the line with which that begins."""
        short.forget(self.device)
        since = time.perf_counter_ns()
        call = self.drawn = self.call(sequence)
        timing.wide += time.perf_counter_ns() - since
        verdict = short.judge_call(call, self.device, timing=timing, mark=self.mark, repeat=self.repeat)
        verdict.remarks = [*verdict.remarks, f"drawn: {self.words}"]
        found = short.culprit(self.program, self.device) if verdict.verdict in FLAGGED else None
        if found is not None:
            self.named = found[0]
            verdict.remarks = [*verdict.remarks, f"accused from `{found[1]}` on"]
        return call, verdict

    def _kept(self, row):
        return super()._kept(row) | ({"op": self.named} if self.named else {})


class _Named:
    """An example of which the operator alone is known."""

    def __init__(self, row):
        self.row = row


def _arguments(call):
    """The metric that keeps how the inputs of a case were laid out, as a list."""
    told = [
        {
            "path": v.path,
            "role": "in",
            "dtype": str(v.dtype).removeprefix("torch."),
            "sizes": list(v.sizes),
            "strides": list(v.strides),
            "offset": v.offset,
            "device": "cpu",
        }
        for v in (call.views.values() if call is not None else ())
    ]
    return [(-1, "arguments", 0.0, json.dumps(told))] if told else []
