# SPDX-License-Identifier: Apache-2.0
"""The pages: what they link to exists, and each is listed in docs/index.md."""

import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md",
         *sorted(ROOT.glob("examples/**/*.md"))]  # fmt: skip
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


def test_every_chinese_page_translates_one():
    for page in DOCS.rglob("*.zh.md"):
        assert page.with_name(page.name.replace(".zh.md", ".md")).exists(), page
