# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin: a fixture and a marker for accuracy checks, and one report over every
call that a session judged. Loaded by the entry point, or by `-p ulpscope.pytest_plugin`.

Imports torch only where a test asks for it. Under pytest-xdist the workers send their rows
and the controller writes the report.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from .calls.foreign import is_ours, our_words

if TYPE_CHECKING:
    from .calls.replay import Call

KEYS = ("inputs", "backward", "device", "repeat", "via", "allow")
MARK = f"ulpscope({', '.join(f'{key}=...' for key in KEYS)}): defaults of ulpscope_check in this test"
SENT = "ulpscope_rows"  # workeroutput key


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ulpscope")
    group.addoption(
        "--ulpscope-report",
        metavar="DIR",
        help="write the report over every call that ulpscope judged in this session into DIR",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARK)
    if config.getoption("--ulpscope-report") and not config.pluginmanager.has_plugin("ulpscope-rows"):
        config.pluginmanager.register(ResultRecorder(config), "ulpscope-rows")


@pytest.fixture
def ulpscope_check(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """
    `ulpscope_check(fn, reference, *args, **kwargs)`: `ulpscope.testing.assert_accurate` with
    the defaults of the test's `ulpscope` markers, on their `device` where they name one.
    """
    from . import testing
    from .session.api import check_call

    defaults = {}
    for mark in reversed(list(request.node.iter_markers("ulpscope"))):
        unknown = sorted(mark.kwargs.keys() - set(KEYS))
        if unknown or mark.args:
            what = unknown[0] if unknown else repr(mark.args[0])
            raise pytest.UsageError(f"{request.node.nodeid}: the ulpscope marker knows {', '.join(KEYS)}, not {what}")
        defaults.update(mark.kwargs)

    def check(fn: Callable[..., Any], reference: Callable[..., Any] | None, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        given = {key: kwargs.pop(key) for key in KEYS if key in kwargs and key != "device"}
        how = {**defaults, **given}
        allow = how.pop("allow", "")
        testing.check_allow(allow)
        return testing.passed(check_call(fn, args, kwargs, reference, **how), allow)

    return check


class ResultRecorder:
    """Collects the judged calls of a session and writes OUT/result.db at its end."""

    def __init__(self, config: pytest.Config) -> None:
        self.out = config.getoption("--ulpscope-report")
        self.worker = getattr(config, "workerinput", None) is not None
        self.rows: list[Any] = []
        self.test = self.failed = ""
        self.start = time.monotonic()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        from .session.api import LISTENERS

        LISTENERS.append(self.hear)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: Any) -> Iterator[None]:
        self.test = item.nodeid
        yield
        self.test = ""

    def hear(self, name: str, call: Call, verdict: Any) -> None:
        """A call was judged: its row."""
        from .judges import wording

        source = {"call": len(self.rows) + 1, "op": name, "module": self.test}
        if call is None:
            self.rows.append(
                {
                    **source,
                    "verdict": verdict.verdict,
                    "notes": "; ".join(verdict.notes),
                    "sentence": wording.sentence(name, verdict),
                }
            )
            return
        call.row, call.op = {"tensors": []}, name
        timing = verdict.operands.timing.row() if verdict.operands else {}
        self.rows.append(source | wording.row(call, verdict, timing))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: Any) -> None:
        for row in getattr(node, "workeroutput", {}).get(SENT, ()):
            self.rows.append({**row, "call": len(self.rows) + 1})

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        from .session.api import LISTENERS

        LISTENERS.remove(self.hear)
        if self.worker:
            config: Any = session.config  # with what pytest-xdist puts there
            config.workeroutput[SENT] = self.rows
            return
        try:
            self.write(session.config)
        except Exception as problem:  # a report that fails must not hide the tests' results
            self.failed = our_words(problem) if is_ours(problem) else str(problem)

    def write(self, config: pytest.Config) -> None:
        """result.db, and what `ulpscope report` makes of it."""
        import json
        import subprocess

        from . import _core
        from .__main__ import program
        from .session import identity

        run = {
            "trace": f"pytest {' '.join(config.invocation_params.args)}",
            "trace_id": "",
            "device": "tests",
            "standard": "ulpscope",
            "faults": "",
            "options": "{}",
            "environment": json.dumps(identity.environment()),
        }
        with _core.Result(self.out, run, True) as result:
            result.set("n_selected", str(len(self.rows)))
            for row in self.rows:
                result.put(row)
            result.set("seconds", f"{time.monotonic() - self.start:.1f}")
            result.set("state", "done")
        command = [program(), "report", self.out]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 2 and self.rows:
            self.failed = done.stderr.strip()

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.worker:
            return
        if self.failed:
            terminalreporter.write_line(f"ulpscope: no report: {self.failed}", red=True)
            return
        where = os.path.join(self.out, "report.html")
        from . import _core
        from .calls.verdicts import UNTOLD, reason_of

        n_judged = sum(row["verdict"] not in UNTOLD for row in self.rows)
        left = [(row["op"], why, 1) for row in self.rows if (why := reason_of(row, row["op"]))]
        terminalreporter.write_line(f"ulpscope: {n_judged:,} calls judged, {where}")
        if left:
            terminalreporter.write_line(_core.unjudged(left))
