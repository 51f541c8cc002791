# SPDX-License-Identifier: Apache-2.0
"""docs/how-to/migrate-torch-musa.md, migrate-ditorch.md: each row of their tables names a test that
exists, of the tool or of a defect that is known of it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LEAST = {"migrate-torch-musa": 35, "migrate-ditorch": 30}  # rows: what each tool has and is known for
NAMED = re.compile(r"`(test_\w+\.py)::([^`]+)`")


def rows(text):
    """The cells of each row of a page's tables, without the lines above them."""
    lines = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| there")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def offences(text, page):
    """Rows without a test, and what they name and is not there: a function, or a row of a table of
    cases, "TOOL: NAME"."""
    wrong = []
    for row in rows(text):
        named = NAMED.findall(row[-1])
        if not named:
            wrong.append(f"no test: {row[0]}")
        for file, test in named:
            path = ROOT / "tests" / "py" / file
            code = path.read_text() if path.is_file() else ""
            row_of = f'"{page.removeprefix("migrate-").replace("-", "_")}: {test}"'
            if not re.search(rf"^def {re.escape(test)}\(", code, re.M) and row_of not in code:
                wrong.append(f"{file} has no {test}")
    return wrong


@pytest.mark.parametrize("page", LEAST)
def test_each_row_names_a_test(page):
    text = (ROOT / "docs" / "how-to" / f"{page}.md").read_text()
    assert offences(text, page) == [] and len(rows(text)) >= LEAST[page]


def test_a_row_without_a_test_is_caught():
    good = "| a | b | `test_migrate.py::test_each_row_names_a_test` |"
    assert offences(good, "migrate-ditorch") == []
    for bad in (
        "| a | b | c |",
        "| a | b | `test_migrate.py::test_no` |",
        "| a | b | `test_no.py::test_each_row_names_a_test` |",
    ):
        assert len(offences(good + "\n" + bad, "migrate-ditorch")) == 1


def test_each_case_of_the_peers_is_on_a_page():
    """What test_live_peers plants or passes by name is told to who comes from that tool."""
    code = (ROOT / "tests/py/test_live_peers.py").read_text()
    told = {p: (ROOT / "docs" / "how-to" / f"{p}.md").read_text() for p in LEAST}
    for tool, name in re.findall(r'^    "(torch_musa|ditorch): (.+?)": ', code, re.M):
        page = f"migrate-{tool.replace('_', '-')}"
        assert f"test_live_peers.py::{name}`" in told[page], f"{page}.md lacks {name}"


@pytest.mark.parametrize("page", LEAST)
def test_the_chinese_page_has_the_same_tools(page):
    """What the page names as theirs, but for defects and lists of variables, stands there, too."""
    text = (ROOT / "docs" / "how-to" / f"{page}.md").read_text().partition("## Known defects")[0]
    chinese = (ROOT / "docs" / "how-to" / f"{page}.zh.md").read_text()
    names = {n for row in rows(text) for n in re.findall(r"`(\w+)[`(]", row[0])}
    assert len(names) > 12 and [n for n in sorted(names) if n not in chinese] == []
