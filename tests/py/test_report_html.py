# SPDX-License-Identifier: Apache-2.0
"""report.html in a real browser: the pages that its script makes."""

from __future__ import annotations

import html
import json
import math
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from ulpscope import _core

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build"))
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium binary on PATH")


def report(folder: Path, what: str) -> Path:
    out = folder / what
    subprocess.run([BUILD / "tests" / "test_report_files", what, out], check=True)
    program = [BUILD / "bin" / "ulpscope", "report", out]
    assert subprocess.run(program, stdout=subprocess.DEVNULL).returncode == 1
    return out / "report.html"


@pytest.fixture(scope="module")
def sample(tmp_path_factory) -> Path:
    return report(tmp_path_factory.mktemp("html"), "sample")


def dom(page: Path, state: str, profile: Path) -> str:
    """The document after the script ran, without the data that it was made from."""
    done = subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={profile}",
            "--dump-dom",
            f"{page.as_uri()}{state}",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return re.sub(r"<script.*?</script>", "", done.stdout, flags=re.S)


def rows(document: str) -> list[str]:
    body = re.search(r'<tbody id="rows">(.*?)</tbody>', document, flags=re.S)
    return re.findall(r"<tr>.*?</tr>", body.group(1), flags=re.S)


def test_the_list_is_worst_first_and_escapes_names(sample, tmp_path):
    document = dom(sample, "", tmp_path)
    assert "13 of 18 calls accused on sim:0" in document
    listed = rows(document)
    assert len(listed) == 18
    assert "aten::_fused_adamw_" in listed[0]
    # a name that would end the script and open a tag is text
    assert "evil::&lt;/script&gt;&lt;b&gt;" in document
    assert '<b>"' not in document


def test_the_hash_holds_filter_and_sort(sample, tmp_path):
    listed = rows(dom(sample, "#verdict=reduced&q=layers.1&sort=bits&down=1", tmp_path))
    assert len(listed) == 3  # layers 1, 10 and 11
    assert "layers<wbr>.11" in listed[0]
    assert all("reduced" in row for row in listed)


def test_a_call_has_its_page(sample, tmp_path):
    document = dom(sample, "#call-2", tmp_path)
    assert re.search(r'<div id="overview" hidden', document)
    article = document[document.index('<article id="call"') :]
    for text in ("Worst elements", "<svg", "train.py:7", "[0,2]", "NaN", "float32[2, 3]", "← All calls"):
        assert text in article, text


def test_commands_of_a_call_can_be_typed(sample, tmp_path):
    document = dom(sample, "#call-2", tmp_path)
    card = document[document.index("This call again") :]
    commands = re.findall(r"<code>(ulpscope .*?)</code>", card)
    assert [c.split()[1] for c in commands] == ["check", "show", "repro"]
    for command in commands:
        name = command.split()[1]
        text = subprocess.run([BUILD / "bin" / "ulpscope", "help", name], capture_output=True, text=True).stdout
        for option in re.findall(r" (--?[a-z][a-z-]*)", command):
            assert re.search(rf"{option}\b", text), command


def copied(page: Path, press: str, profile: Path) -> str:
    """What a page writes to the clipboard when a button is pressed."""
    spy = """<script>addEventListener("load", () => { Object.defineProperty(navigator, "clipboard", {value: {
      writeText: (text) => { document.title = text; return Promise.resolve(); } }}); %s.click(); });</script>"""
    twin = page.with_name("pressed.html")
    twin.write_text(page.read_text().replace("</body>", spy % press + "</body>"))
    title = re.search(r"<title>(.*?)</title>", dom(twin, "", profile), flags=re.S).group(1)
    return html.unescape(title)


def test_a_finding_can_be_handed_on(sample, tmp_path):
    button = 'document.querySelectorAll(".finding")[1].querySelectorAll("button")[%d]'
    assert copied(sample, button % 0, tmp_path) == "ulpscope repro 'demo#10' --device sim:0"
    told = copied(sample, button % 1, tmp_path)
    assert told.startswith("## `aten::linear` on `sim:0`: reduced") and "- Cause: inputs rounded to TF32" in told
    assert "- Where: call 10 of `demo`, step 1, forward, in `layers.0.attn` (Attention)" in told
    assert "copy Markdown" in dom(sample, "#call-10", tmp_path).split("<article", 1)[1]
    assert "copy Markdown" not in dom(sample, "#call-11", tmp_path).split("<article", 1)[1]


def test_a_call_that_is_not_there_is_said_so(sample, tmp_path):
    assert "There is no call #99 here" in dom(sample, "#call-99", tmp_path)


@pytest.fixture(scope="module")
def traces(tmp_path_factory) -> Path:
    """The page of two ranks that nobody has checked; call 3 of each makes a NaN of numbers."""
    folder = tmp_path_factory.mktemp("traces")
    (folder / "job").mkdir()
    for rank in ("rank-0", "rank-1"):
        subprocess.run([BUILD / "tests" / "test_report_files", "trace", folder / "job" / rank], check=True)
    before = {p: p.stat().st_mtime_ns for p in (folder / "job").rglob("*")}
    done = subprocess.run([BUILD / "bin" / "ulpscope", "report", folder / "job/"], capture_output=True, text=True)
    assert done.returncode == 0 and "job.html (2 ranks)" in done.stdout, done
    assert before == {p: p.stat().st_mtime_ns for p in (folder / "job").rglob("*")}
    return folder / "job.html"


def test_a_trace_is_shown_without_a_check(traces, tmp_path):
    document = dom(traces, "", tmp_path)
    assert "calls captured, none judged" in document and "1 call made NaN or Inf of numbers" in document
    assert "rank-0 (shown)" in document and "layers.0" in document and '<svg class="step"' in document
    third = rows(document)[2]
    for text in ("#3", "born", "float32[4]", "-1.5 to 2", "1 NaN"):
        assert text in third, third
    text = re.sub(r"<[^>]*>", " ", document)
    assert not any(word in text for word in ("accused", "undefined", "null", "[object")), text


def test_perfetto_gets_events_that_nest(traces, tmp_path):
    """Begins and ends pair on each track; a call lies inside the one that made it."""
    out = tmp_path / "events.json"
    done = subprocess.run(
        [BUILD / "bin" / "ulpscope", "export", traces.with_suffix(""), "--format", "perfetto", "-o", out]
    )
    assert done.returncode == 0
    events, opened, stacks = json.loads(out.read_text())["traceEvents"], {}, {}
    for e in events:
        track = e["pid"], e["tid"]
        opened[track] = opened.get(track, 0) + {"B": 1, "E": -1}.get(e["ph"], 0)
        assert opened[track] >= 0
        if e["ph"] == "X":
            stack = stacks.setdefault(track, [])
            while stack and stack[-1] <= e["ts"]:
                stack.pop()
            assert not stack or e["ts"] + e["dur"] <= stack[-1]
            stack.append(e["ts"] + e["dur"])
    assert set(opened.values()) == {0} and {e["pid"] for e in events} == {0, 1}
    assert [e["ts"] for e in events if e["ph"] == "i"] == [3, 3]
    assert {"layers", "0"} <= {e["name"] for e in events if e["ph"] == "B"}


def test_another_rank_and_a_call_of_it(traces, tmp_path):
    document = dom(traces, "?rank=1#call-3", tmp_path)
    article = document[document.index('<article id="call"') :]
    for text in ("job/rank-1#3", "Tensors as captured", "kwargs.out", "0.1667", "ulpscope check"):
        assert text in article, text
    assert "rank-1 (shown)" in document


def test_five_thousand_calls_stay_usable(tmp_path):
    page = report(tmp_path, "many")
    began = time.monotonic()
    document = dom(page, "#verdict=pass&page=3", tmp_path / "profile")
    print(f"{page.stat().st_size / 1e6:.1f} MB in {time.monotonic() - began:.1f} s")
    assert len(rows(document)) == 100  # a page, not thousands of rows
    assert "page 3 of 49" in document


@pytest.fixture(scope="module")
def compared(tmp_path_factory) -> Path:
    """A run with a self-test, with other standards, and with NaN among its inputs."""
    out = tmp_path_factory.mktemp("compared") / "out"
    row = {
        "step": 1,
        "phase": "forward",
        "op": "aten::mm",
        "args": "",
        "bits": 23.0,
        "yardstick_bits": 23.5,
        "verdict": "pass",
        "examples": [],
        "n_elements": 9,
    }
    opinion = json.dumps({"verdict": "", "status": "", "reason": "", "output": ""})
    result = _core.Result(
        str(out),
        {key: "" for key in ("trace", "trace_id", "faults")}
        | {"device": "sim:0", "standard": "ulpscope", "options": "{}", "environment": "{}"},
        False,
    )
    for call, (a, b, odd) in enumerate([(1, 0, 0), (1, 1, 3), (0, 0, 0), (1, math.nan, 2)], 1):
        metrics = [(-1, "standard:torch-close", float(a), opinion), (-1, "standard:bitwise", float(b), opinion)]
        metrics += [(-1, "t_causes", 4e6, None)] if call == 3 else []
        metrics += [(-1, "nan_inputs", float(odd), None)] if odd else []
        bits = math.nan if odd else 21.25 if call == 3 else 23.0
        result.put(
            {**row, "call": call, "metrics": metrics, "bits": bits, "sentence": f"row {call}", "t_total": 10_000_000}
        )
    result.set(
        "self_test",
        json.dumps(
            {
                "aten::mm": {
                    "calls": 1,
                    "bits": {"noise": 15.0, "element": 10.0, "factor": None},
                    "caught": ["a", "b"],
                    "unseen": ["half of it"],
                    "idle": [],
                }
            }
        ),
    )
    result.set("state", "done")
    result.close()
    program = [BUILD / "bin" / "ulpscope", "report", out]
    done = subprocess.run(program, capture_output=True, text=True)
    text = " ".join(done.stdout.split())
    assert done.returncode == 0, done.stderr
    assert "aten::mm 4 3.1e-05 9.8e-04 none 2 of 3 unseen: half of it" in text
    assert "2 calls have NaN or Inf among the inputs (2 NaN), the first is call 2" in text
    return out / "report.html"


def test_a_pass_says_what_it_excludes(compared, tmp_path):
    document = dom(compared, "", tmp_path)
    assert "2 calls had NaN or Inf among the inputs (2 NaN), 2 of them pass" in document
    told = ["would have caught an error of 3.1e-5 in all elements, 9.8e-4 in one" in row for row in rows(document)]
    assert sorted(told) == [False, False, True, True]  # not where nothing is finite
    assert "half of it" in document and "2 of 3" in document


def test_the_list_shows_who_accuses_and_filters_by_it(compared, tmp_path):
    listed = rows(dom(compared, "#sort=standards", tmp_path))
    assert "bitwise, torch-close" in listed[0] and ">bitwise</span>" in listed[1]
    listed = rows(dom(compared, "#q=accused+by+torch-close", tmp_path))
    assert len(listed) == 1 and "row 3" in listed[0]
    assert "Other standards" in dom(compared, "", tmp_path)


def test_looking_for_a_cause_is_a_time_of_its_own(compared, tmp_path):
    assert "causes 4.0 ms (10 %)" in dom(compared, "", tmp_path)
    page = dom(compared, "#call-3", tmp_path)
    assert "causes 4.0 ms (40 %)" in page and "overhead 6.0 ms (60 %)" in page
    assert "causes" not in dom(compared, "#call-1", tmp_path).split("<article", 1)[1]


def test_bits_are_rounded_as_in_the_sentence(compared, tmp_path):
    """f"{21.25:.1f}" is 21.2 in Python and C."""
    assert any("21.2 / 23.5" in row for row in rows(dom(compared, "", tmp_path)))
