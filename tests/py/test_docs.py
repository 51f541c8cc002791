# SPDX-License-Identifier: Apache-2.0
"""The pages: what they link to exists, and each is listed in docs/index.md."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.rglob("*.md")), *(ROOT / n for n in ("README.md", "CONTRIBUTING.md", "docs/llms.txt"))]
PAGES += sorted(ROOT.glob("examples/**/*.md"))
KINDS = ("start", "how-to", "reference", "background")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def prose(text):
    """A page without its blocks and pieces of code."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))


def anchor(title):
    """The name that GitHub, and the site, give to a headline."""
    title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
    return re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")


def anchors(text):
    text = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    return {anchor(t) for t in re.findall(r"^#+ (.*)$", text, re.M)} | set(re.findall(r'id="([^"]+)"', text))


def dangling(page, text):
    """Links of a page that lead nowhere, and such out of docs/ that a site cannot follow."""
    wrong = []
    for link in LINK.findall(prose(text)):
        target, _, part = link.partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        path = Path(os.path.normpath(page.parent / target)) if target else page
        if not path.exists():
            wrong.append(link)
        elif part and path.suffix == ".md" and part not in anchors(path.read_text()):
            wrong.append(link)
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    assert dangling(page, page.read_text()) == []


def test_a_dangling_link_is_caught():
    page = DOCS / "index.md"
    good = "[a](index.md) [b](https://x.y) `[c](no.md)`\n```\n[d](no.md)\n```\n[e](#a-page)\n"
    assert dangling(page, good) == ["#a-page"]
    assert dangling(page, "[a](no.md) [b](index.md#nowhere)") == ["no.md", "index.md#nowhere"]


def test_every_page_is_of_a_kind_and_in_the_index():
    index = (DOCS / "index.md").read_text()
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS).as_posix()
        if name.startswith("index.") or name.endswith(".zh.md"):
            continue
        assert name.split("/")[0] in KINDS, f"{name}: one of docs/{'|'.join(KINDS)} is its place"
        assert f"]({name})" in index, f"docs/index.md lacks {name}"


def test_the_glossary_speaks_of_the_code():
    """Each file that it names is there."""
    text = (DOCS / "background/glossary.md").read_text()
    rows = re.findall(r"^\| \*(.+?)\* ?.*?\| (?:.*`(.+?)`|.*\]\((.+?)\)) \|$", text, re.M)
    rooms = ("src", "python", "glue", "docs", "include")
    tracked = [f"/{path}" for room in rooms for path in (DOCS.parent / room).rglob("*.*")]
    places = {word: (place or link).rstrip("/").removeprefix("../") for word, place, link in rows}
    assert len(places) > 40
    assert {w: p for w, p in places.items() if not any(f"/{p}" in path for path in tracked)} == {}


def named_tests(text):
    """`test_x.py` and `test_x.py::test_y` of a page."""
    return re.findall(r"`(?:tests/py/)?(test_\w+\.py)(?:::(test_\w+))?`", text)


def test_the_tests_that_a_page_names_are_there():
    tests = DOCS.parent / "tests" / "py"
    for page in [p for p in DOCS.rglob("*.md") if not p.stem.startswith("sim-upstream")]:
        for file, name in named_tests(page.read_text()):
            assert (tests / file).exists(), (page.name, file)
            assert not name or f"def {name}(" in (tests / file).read_text(), (page.name, file, name)
    assert named_tests("`test_a.py::test_b`, `tests/py/test_c.py`") == [("test_a.py", "test_b"), ("test_c.py", "")]


def test_every_chinese_page_translates_one():
    for page in DOCS.rglob("*.zh.md"):
        assert page.with_name(page.name.replace(".zh.md", ".md")).exists(), page


def test_what_is_made_is_current():
    """docs/reference/cli.md and python-api.md: `./run docs` writes them anew."""
    spec = importlib.util.spec_from_file_location("made_pages", DOCS / "tools" / "made_pages.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    for page, make in made.MADE.items():
        assert make() == (DOCS / "reference" / page).read_text(), f"{page}: ./run docs"


def test_every_chinese_page_is_in_the_chinese_index():
    index = (DOCS / "index.zh.md").read_text()
    for page in DOCS.rglob("*.zh.md"):
        assert page.parent == DOCS or f"]({page.relative_to(DOCS).as_posix()})" in index, page


# Cells over 120 characters on the pages that still have such: the list only shrinks.
WIDEST = 120
WIDE = {
    "background/architecture.md": 13,
    "background/benchmark.md": 3,
    "background/case.md": 2,
    "background/numbers.md": 2,
    "background/watch.zh.md": 3,
    "how-to/migrate-autotest.md": 1,
    "how-to/migrate-ditorch.md": 4,
    "how-to/migrate-msprobe.md": 4,
    "how-to/migrate-msprobe.zh.md": 1,
    "how-to/migrate-torch-musa.md": 3,
    "reference/c-api.md": 5,
    "reference/causes.md": 10,
    "reference/faults.md": 1,
    "reference/fuzz.md": 1,
    "reference/levels.md": 1,
    "reference/loss.md": 3,
    "reference/metrics.md": 14,
    "reference/operators.md": 1,
    "reference/trace-format.md": 6,
    "reference/watch-reference.md": 15,
}


def wide_cells(text):
    """Of the tables of a page; a link's address does not count, nor what is in a block of code."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    rows = [re.sub(r"\]\([^)]*\)", "]", line) for line in text.splitlines() if line.startswith("| ")]
    return sum(len(cell.strip()) > WIDEST for row in rows for cell in re.split(r"(?<!\\)\|", row.strip("| ")))


def test_tables_are_to_be_read():
    found = {p.relative_to(DOCS).as_posix(): wide_cells(p.read_text()) for p in DOCS.rglob("*.md")}
    assert {page: n for page, n in found.items() if n > WIDE.get(page, 0)} == {}, "prose, and a small table"
    assert wide_cells("| " + "x" * 121 + " | a |\n| [b](" + "y" * 130 + ") | c |") == 1


def test_the_site_is_made_without_a_warning(tmp_path):
    """With mkdocs, which `./run docs` installs: its own check of links, both languages, search without a server."""
    pytest.importorskip("material")
    pytest.importorskip("mkdocs_static_i18n")
    make = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", tmp_path / "site"]
    subprocess.run(make, cwd=ROOT, check=True)
    page = (tmp_path / "site" / "start" / "first-finding.html").read_text()
    assert "../zh/start/first-finding.html" in page, "the switch of languages stays on the page"
    assert "unpkg.com" not in page and (tmp_path / "site" / "search" / "search_index.js").exists()


def test_every_variable_that_is_read_is_on_the_page():
    page = (DOCS / "reference" / "variables.md").read_text()
    read = set()
    for folder in ("cli", "python", "glue", "src", "sim"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".c", ".cpp", ".py"):
                read |= set(re.findall(r'"(ULPSCOPE_[A-Z_]*[A-Z])"', path.read_text()))
    assert len(read) > 12 and sorted(read) == sorted(n for n in read if f"`{n}`" in page)
    told = set(re.findall(r"`(ULPSCOPE_[A-Z_]+)`", page)) - {"ULPSCOPE_TORCH", "ULPSCOPE_BUILD"}
    assert told == read
