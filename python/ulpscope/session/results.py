# SPDX-License-Identifier: Apache-2.0
"""What a command of the program left, for whoever looks on from Python: a check and a diff that show themselves.

Needs of torch: nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Union

from ..calls.shown import Shown
from ..calls.verdicts import FLAGGED


class CheckResult(Shown):
    """What `ulpscope check` found: `result.json` of its folder, which is `told`."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.told = told

    @property
    def findings(self) -> list[dict[str, Any]]:
        """What is accused, the worst first; without what a baseline or `--allow` excuses."""
        found = self.told["findings"]
        return [f for f in found if f["verdict"] in FLAGGED and not f["allowed"] and f["n_known"] < f["n_calls"]]

    @property
    def passed(self) -> bool:
        """Whether it came to its end, nothing is accused, nothing was left unjudged that is not allowed, and no graph
        of a compiler went unrecorded."""
        told, summary = self.told, self.told["summary"]
        left = summary["n_not_judged"] or summary["n_unrecorded"]
        return told["run"]["state"] == "done" and summary["n_calls"] > 0 and not self.findings and not left

    def _shown(self) -> str:
        run, summary = self.told["run"], self.told["summary"]
        said = ", ".join(f"{n} {verdict}" for verdict, n in summary["verdicts"].items() if n) or "nothing judged"
        accused = ", ".join(f"{f['op']} {f['verdict']}" for f in self.findings[:3])
        more = len(self.findings) - 3
        parts = [f"check of {run['trace']} on {run['device']}: {said}", accused + (f" and {more} more" * (more > 0))]
        return ": ".join(filter(None, parts)) + (f" ({run['state']})" if run["state"] != "done" else "")

    def _titles_and_rows(self) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        rows = [
            (f["verdict"], f["bits"], f["yardstick_bits"], f["n_calls"], f["op"], f["modules"], f["sentence"])
            for f in self.told["findings"]
        ]
        return ("verdict", "effective bits", "float32 gives", "calls", "operator", "in", "why"), rows


class DiffResult(Shown):
    """What `ulpscope diff A B --json` printed, which is `told`."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.told = told

    @property
    def same(self) -> bool:
        """Whether nothing differs, or all that differs was judged and stands."""
        return bool(self.told["same"])

    @property
    def first(self) -> dict[str, Any] | None:
        """The first call at which a difference begins; None where there is none."""
        first: dict[str, Any] | None = self.told["first"]
        return first

    def _shown(self) -> str:
        told, first = self.told, self.first
        if first is None:
            said = "the same" if self.same else "not told to be the same"
            return f"diff of {told['a']} and {told['b']}: {said} ({told['paired']} calls of both)"
        where = f"call {first['call_a']} of A, {first['call_b']} of B"
        return f"diff of {told['a']} and {told['b']}: they part at {where}: {first['op']}, {first['sentence']}"

    def _titles_and_rows(self) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        rows = [
            (b["call_a"], b["call_b"], b["kind"], b["op"], b["module"], b["step"], b["phase"], b["sentence"])
            for b in self.told["beginnings"]
        ]
        return ("call of A", "call of B", "is", "operator", "in", "step", "phase", "why"), rows


def results(path: str | os.PathLike[str]) -> Union[CheckResult, DiffResult]:
    """What a command left: the folder of a check (or its `result.json`), or the file to which
    `ulpscope diff A B --json` was written. It shows itself, in a notebook as a table.

        !ulpscope check trace --device cuda:0
        ulpscope.results("ulpscope-out")

    `.told` is all that stands in the file; of a check `.findings` and `.passed`, of a diff `.first` and
    `.same`. Raises FileNotFoundError, and ValueError for what neither of them wrote."""
    place = Path(path)
    file = place / "result.json" if place.is_dir() else place
    if not file.exists():
        raise FileNotFoundError(f"there is no {file}: ulpscope check -o {place} writes it when it ends")
    try:
        told = json.loads(file.read_text("utf-8"))
    except ValueError:
        raise ValueError(f"{file} holds no JSON, or is cut short") from None
    if isinstance(told, dict) and str(told.get("schema", "")).startswith("ulpscope-result/"):
        return CheckResult(told)
    if isinstance(told, dict) and {"a", "b", "same", "first", "beginnings"} <= told.keys():
        return DiffResult(told)
    raise ValueError(f"{file} is not what ulpscope check or ulpscope diff --json writes")
