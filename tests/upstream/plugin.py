# SPDX-License-Identifier: Apache-2.0
"""For pytest: torch's own test files on the simulated device, as they are. What is not of a device is left out, what is
known not to hold here is skipped with its reason (known.txt), and what came of each is written down, a line each."""

from __future__ import annotations

import collections
import fnmatch
import json
import os
from pathlib import Path

import pytest
import torch

import ulpscope.sim  # noqa: F401 - before torch's test classes ask which devices there are

KNOWN = Path(__file__).with_name("known.txt")


def known() -> list[tuple[str, str, str]]:
    """Of each line: file, test (both patterns), and why."""
    lines = [line for line in KNOWN.read_text().splitlines() if line and not line.startswith("#")]
    return [tuple(part.strip() for part in line.split("|", 2)) for line in lines]  # type: ignore[misc]


def of_device(item: pytest.Item) -> bool:
    return item.cls is not None and getattr(item.cls, "device_type", None) in ("sim", "privateuseone")


def reason_of(item: pytest.Item, rows: list[tuple[str, str, str]]) -> str | None:
    for file, test, why in rows:
        if fnmatch.fnmatch(item.path.name, file) and fnmatch.fnmatch(item.name, test):
            return why
    return None


class Notes:
    def __init__(self, path: str):
        self.path = path
        self.counts: collections.Counter[str] = collections.Counter()
        self.skipped: collections.Counter[str] = collections.Counter()
        self.failed: dict[str, str] = {}

    def note(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.outcome == "passed":
            return
        if report.when == "teardown" and report.outcome != "failed":
            return
        if hasattr(report, "wasxfail"):
            outcome = "failed as torch expects" if report.outcome == "skipped" else "passed"
            self.counts[outcome] += 1
            return
        self.counts[report.outcome] += 1
        if report.outcome == "skipped":
            text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.skipped[text.removeprefix("Skipped: ").splitlines()[0][:160]] += 1
        if report.outcome == "failed":
            lines = [line[2:] for line in str(report.longrepr).splitlines() if line.startswith("E ")]
            self.failed[report.nodeid.split("::", 1)[-1]] = (lines or [str(report.longrepr)])[0].strip()[:300]

    def write(self) -> None:
        told = {"counts": self.counts, "skipped": self.skipped, "failed": self.failed}
        Path(self.path).write_text(json.dumps(told, indent=1))


notes = Notes(os.environ["ULPSCOPE_UPSTREAM_OUT"])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    rows = known()
    mine = [item for item in items if of_device(item)]
    config.hook.pytest_deselected(items=[item for item in items if not of_device(item)])
    items[:] = mine
    for item in mine:
        why = reason_of(item, rows)
        if why is not None:
            item.add_marker(pytest.mark.skip(reason=f"known: {why}"))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    notes.note(report)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item):
    try:
        return (yield)
    finally:
        torch.sim.synchronize_all()  # what a kernel says belongs to its test


def pytest_sessionfinish() -> None:
    notes.write()
