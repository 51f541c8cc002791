# SPDX-License-Identifier: Apache-2.0
"""`ulpscope explain`: every word that is ever said has an explanation, the one of its page, on one screen; a clause of
a report leads to its cause."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build"))
SCREEN = 40  # lines


def explain(*words, code=0):
    done = subprocess.run([BUILD / "bin" / "ulpscope", "explain", *words], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def rows(header, name):
    """The rows of a list of C: of each its texts, those next to each other joined."""
    text = re.search(rf"#define {name}\(X\)(.*?[^\\])\n", (ROOT / header).read_text(), re.S)[1].replace("\\\n", " ")
    for row in re.split(r"\bX\(", text)[1:]:
        yield (
            row.split(",")[0],
            ["".join(re.findall(r'"([^"]*)"', part)) for part in re.findall(r'(?:"[^"]*"\s*)+', row)],
        )


def told():
    return [json.loads(line) for line in explain("--json").splitlines()]


ALL = told()
LEAST = 6  # letters beside what a place or a number gives: fewer tell no clause from another
CAUSES = [(i, *texts) for i, texts in rows("include/ulpscope/cause.h", "USC_CAUSE_LIST") if texts[0]]
LISTS = {
    "verdict": [texts[0] for _, texts in rows("include/ulpscope/verdict.h", "USC_VERDICT_LIST")],
    "error": [i for i, _ in rows("include/ulpscope/status.h", "USC_STATUS_LIST")],
    "excuse": [texts[0] for _, texts in rows("include/ulpscope/finding.h", "USC_EXCUSE_LIST")],
    "cause": sorted({code for _, code, _ in CAUSES}),
    "fault": [texts[0] for _, texts in rows("sim/include/ulpscope_sim/fault.h", "USC_SIM_FAULT_LIST")],
    "note": [texts[0] for _, texts in rows("include/ulpscope/standard.h", "USC_NO_OPINION_LIST")],
}


@pytest.mark.parametrize("kind", LISTS)
def test_every_word_of_a_list_is_explained(kind):
    has = [e["word"] for e in ALL if e["kind"] == kind]
    assert len(LISTS[kind]) > 4 and set(LISTS[kind]) <= set(has) and len(has) == len(set(has))


def test_every_standard_is_explained():
    page = (ROOT / "src/standard/standard.c").read_text()
    names = set(re.findall(r'^\s+\{"([a-z0-9-]+)"', page, re.M)) | set(re.findall(r'\.name = "([a-z0-9-]+)"', page))
    assert len(names) > 8 and names - {"ulpscope"} <= {e["word"] for e in ALL if e["kind"] == "standard"}


def test_every_explanation_fits_on_a_screen_and_is_the_page_s():
    for e in ALL:
        out = explain(e["word"])
        assert 3 <= len(out.splitlines()) <= SCREEN and all(
            len(line) <= 88 or " " not in line.strip() for line in out.splitlines()
        ), e["word"]
        assert f"{e['word']} ({e['kind']})" in out and "**" not in out and "](" not in out
        page, _, _ = e["page"].partition("#")
        words = re.sub(r"[`*\\]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", (ROOT / page).read_text()))
        first = e["text"].removeprefix("as: ").split("\n\n")[0].split()[:8]
        assert " ".join(first) in " ".join(words.split()), e["word"]


TOLD_APART = [row for row in CAUSES if len(re.sub(r"\$.", "", row[2]).strip()) > LEAST]


@pytest.mark.parametrize("row", TOLD_APART, ids=[row[0] for row in TOLD_APART])
def test_a_clause_leads_to_its_cause(row):
    _, code, words = row
    clause = re.sub(r"\$[fnmablvu]", "7", re.sub(r"\$[sph]", "here", words))
    assert {json.loads(line)["word"] for line in explain("--json", clause).splitlines()} == {code}


def test_what_is_no_word():
    assert explain("reducd", code=2) == "ulpscope: there is no word 'reducd'; did you mean reduced?\n"
    assert "ulpscope explain lists them" in explain("zzzzz", code=2)
    assert "shorter" in explain("a" * 2000, code=2)
    assert explain("USC_E_BUSY") == explain("e_busy") == explain("`E_BUSY`.")
    assert "format (cause)" in explain("inputs rounded to TF32: q")
