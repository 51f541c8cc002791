# SPDX-License-Identifier: Apache-2.0
"""docs/reference/excuses.md: it has every excuse of the C list, and what it names exists."""

import re
from pathlib import Path

import pytest

from ulpscope import _core

ROOT = Path(__file__).resolve().parents[2]


PARTS = ("An element may differ if", "May be", "Share of an output", "Nearest wrong kernel")


def excuses(text):
    """Code, condition, set, share, seen by, where, nearest wrong kernel, test: of the page's sections, with what
    its table says of each, in the order of the sections."""
    table = {
        code: (seen, where)
        for code, seen, where in re.findall(r"^\| \[`(\w+)`\]\(#\1\) \| ([^|]+) \| `([^|`]+)` \|$", text, re.M)
    }
    rows = []
    for code, section in re.findall(r"^## `(\w+)`\n(.*?)(?=^## |\Z)", text, re.S | re.M):
        parts = dict(part.replace("\n", " ").strip().split(": ", 1) for part in section.strip().split("\n\n"))
        assert tuple(parts) == PARTS, code
        condition, may_be, share, nearest = (part.removesuffix(".") for part in parts.values())
        nearest, _, held = nearest.partition(". Caught by ")
        rows.append([code, condition, may_be, share, *table.pop(code), nearest, held.strip("`")])
    assert not table, "without a section"
    return rows


ROWS = excuses((ROOT / "docs" / "reference" / "excuses.md").read_text())
CODES = [row[0] for row in ROWS]


def missing(rows):
    """Excuses that the page lacks, has twice, or counts where the list does not."""
    codes = [row[0] for row in rows]
    counted = {row[0] for row in rows if row[4] == "counted"}
    return set(_core.excuses) ^ (counted | {"dtype"}) or len(codes) - len(set(codes))


def test_the_page_has_the_list_of_excuses():
    assert len(ROWS) > 40 and not missing(ROWS)
    assert missing([row for row in ROWS if row[0] != "corner"]) and missing([*ROWS, ROWS[0]])
    for code, (most, words) in _core.excuses.items():
        assert 0 < most <= 1 and words, code


@pytest.mark.parametrize("row", ROWS, ids=CODES)
def test_what_an_excuse_names_exists(row):
    _, condition, may_be, share, seen, where, nearest, held = row
    assert condition and may_be and share and seen and nearest
    assert "anything" not in may_be or re.search(r"anything(:|, as|.*\(| that)", may_be)
    file, _, function = where.partition(":")
    folder = ROOT / ("python/ulpscope" if file.endswith(".py") else "src")
    named = [p for p in folder.rglob(Path(file).name) if p.as_posix().endswith("/" + file)]
    assert named and re.search(rf"\b{function}\b", named[0].read_text()), where
    file, _, test = held.partition("::")
    assert re.search(rf"^def {test}\b", (ROOT / "tests/py" / file).read_text(), re.M), held


def test_what_is_excused_is_counted_and_said():
    found = _core.Findings([_core.Finding("out[0]", "pass", n=100)])
    found.excuse(0, "spread", 2)
    assert found.notes == [] and found[0].excused == {"spread": 2}
    found.excuse(0, "bad_index", 40)
    assert found[0].excused == {"bad_index": 40, "spread": 2}
    assert found.notes == ["40 of 100 elements are excused: an index is out of range"]
    row = found.row("aten::relu", "pass")
    assert [m[:3] for m in row["metrics"]] == [(0, "excused", 42.0), (0, "excuse", 0.0)]
    with pytest.raises(ValueError, match="luck: no such excuse"):
        found.excuse(0, "luck", 1)
