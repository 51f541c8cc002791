# SPDX-License-Identifier: Apache-2.0
"""The table of excuses: the page is made from it, and what it names exists."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from ulpscope.judges import excuses

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_the_table():
    page = (ROOT / "docs" / "excuses.md").read_text()
    assert page == excuses.markdown(), "python -m ulpscope.judges.excuses > docs/excuses.md"


@pytest.mark.parametrize("row", excuses.ROWS, ids=lambda row: row.code)
def test_what_a_row_names_exists(row):
    file, _, function = row.where.partition(":")
    folder = ROOT / ("python/ulpscope" if file.endswith(".py") else "src")
    sources = [p for p in folder.rglob(Path(file).name) if "build" not in p.parts]
    assert sources and re.search(rf"\b{function}\b", sources[0].read_text()), row.where
    file, _, test = row.test.partition("::")
    assert re.search(rf"^def {test}\b", (ROOT / "tests/py" / file).read_text(), re.M), row.test
    assert 0 < row.most <= 1
    assert all("|" not in text for text in (row.condition, row.share, row.nearest))


def test_codes_are_unique():
    assert len(excuses.EXCUSES) == len(excuses.ROWS)


def test_what_is_excused_is_counted_and_said():
    finding = SimpleNamespace(n=100, details={}, notes=[])
    excuses.excuse(finding, "tie", 2)
    assert finding.notes == [] and finding.details["excused"] == 2
    excuses.excuse(finding, "corner", 40)
    assert finding.details["excused"] == 42 and finding.details["excuse"] == "corner,tie"
    assert finding.notes == ["40 of 100 elements are excused: a corner of the function"]
