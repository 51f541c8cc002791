# SPDX-License-Identifier: Apache-2.0
"""The picture of the step in report.html, looked at as a picture: a browser draws it, and the
pixels tell where lanes, accused calls and calls that were not judged stand."""

from __future__ import annotations

import functools
import json
import math
import os
import re
import shutil
import sqlite3
import struct
import subprocess
import zlib
from pathlib import Path

import numpy as np
import pytest

from ulpscope import _core

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build"))
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
CSS = (ROOT / "src" / "report" / "report.css").read_text()

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium binary on PATH")


def colour(name: str, dark: bool = False) -> tuple[int, int, int]:
    """A colour of the style sheet."""
    found = re.findall(rf"--{name}: #([0-9a-f]{{3,6}})", CSS)[dark]
    found = found if len(found) == 6 else "".join(2 * c for c in found)
    return tuple(bytes.fromhex(found))


def pixels(png: bytes) -> np.ndarray:
    """The picture as rows x columns x RGB; PNG filters undone, nothing else is needed."""
    at, data, header = 8, b"", None
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at : at + 8])
        body = png[at + 8 : at + 8 + size]
        header = struct.unpack(">IIBB", body[:10]) if kind == b"IHDR" else header
        data += body if kind == b"IDAT" else b""
        at += 12 + size
    width, height, _, kind = header
    n = {2: 3, 6: 4}[kind]
    raw, size = zlib.decompress(data), width * n
    rows, above = [], bytes(size)
    for y in range(height):
        start = y * (size + 1)
        above = unfiltered(raw[start], raw[start + 1 : start + 1 + size], above, n)
        rows.append(above)
    return np.frombuffer(b"".join(rows), np.uint8).reshape(height, width, n)[..., :3]


def unfiltered(kind: int, row: bytes, above: bytes, n: int) -> bytes:
    """One row of a PNG without its filter."""
    if kind == 0:
        return row
    if kind == 2:
        return (
            ((np.frombuffer(row, np.uint8).astype(int) + np.frombuffer(above, np.uint8)) & 255)
            .astype(np.uint8)
            .tobytes()
        )
    out = bytearray(row)
    for i, value in enumerate(row):
        a, b, c = (out[i - n], above[i], above[i - n]) if i >= n else (0, above[i], 0)
        if kind == 1:
            guess = a
        elif kind == 3:
            guess = (a + b) // 2
        else:
            pa, pb, pc = abs(b - c), abs(a - c), abs(a + b - 2 * c)
            guess = a if pa <= pb and pa <= pc else b if pb <= pc else c
        out[i] = (value + guess) & 255
    return bytes(out)


def browse(page: Path, folder: Path, *options: str) -> bytes:
    """What the browser prints; a screenshot goes to folder/page.png."""
    return subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={folder / 'profile'}",
            *options,
        ],
        capture_output=True,
        timeout=120,
        check=True,
    ).stdout


@functools.cache
def screenshot(page: Path, width: int, dark: bool = False) -> np.ndarray:
    folder = page.parent
    shot = folder / "page.png"
    browse(
        page,
        folder,
        f"--window-size={width},620",
        f"--screenshot={shot}",
        *(["--blink-settings=preferredColorScheme=0"] if dark else []),
        page.as_uri(),
    )
    return pixels(shot.read_bytes())


def is_colour(picture: np.ndarray, name: str, dark: bool = False) -> np.ndarray:
    wanted = np.array(colour(name, dark), int)
    return (abs(picture.astype(int) - wanted) <= 2).all(axis=2)


def lanes(picture: np.ndarray, dark: bool = False) -> list[tuple[int, int, int, int]]:
    """(top, bottom, left, right) of each band where passes are drawn."""
    mask = is_colour(picture, "k-pass", dark)
    tall = mask.sum(axis=1) > 20
    edges = np.flatnonzero(np.diff(np.concatenate([[0], tall.astype(int), [0]])))
    bands = [(a, b) for a, b in edges.reshape(-1, 2) if b - a >= 20]
    found = []
    for a, b in bands:
        columns = np.flatnonzero(mask[a:b].any(axis=0))
        found.append((a, b, columns[0], columns[-1] + 1))
    return found


def make(out: Path, per_lane: int, odd: dict[tuple[str, int], tuple[str, float]]) -> Path:
    """A report of three lanes of `per_lane` calls; `odd` plants verdicts by lane and place."""
    run = {key: "" for key in ("trace_id", "faults")} | {
        "trace": "t",
        "device": "sim:0",
        "standard": "ulpscope",
        "options": "{}",
        "environment": "{}",
    }
    result = _core.Result(str(out), run, False)
    result.set("state", "done")
    result.close()
    base = dict(
        step=1,
        op="aten::mm",
        culprit="",
        module_class="Linear",
        yardstick_bits=24.0,
        bound=0,
        cause="",
        sentence="",
        notes="",
        output="out[0]",
        args="",
        stack="",
        n_elements=9,
        stands_for=1,
        t_device=0,
        t_reference=0,
        t_perturbed=0,
        t_judge=0,
        t_total=0,
    )
    rows = []
    for lane, phase in enumerate(("forward", "backward", "optimizer")):
        for i in range(per_lane):
            verdict, bits = odd.get((phase, i), ("pass", 23.5))
            module = "" if phase == "optimizer" else f"layers.{8 * i // per_lane}.up"
            rows.append(
                base
                | dict(
                    call=lane * per_lane + i + 1,
                    phase=phase,
                    module=module,
                    verdict=verdict,
                    bits=None if math.isnan(bits) else bits,
                )
            )
    names = ", ".join(rows[0])
    with sqlite3.connect(out / "result.db") as db:
        db.executemany(f"INSERT INTO verdict({names}) VALUES ({', '.join(':' + n for n in rows[0])})", rows)
    db.close()
    subprocess.run([BUILD / "bin" / "ulpscope", "report", out], stdout=subprocess.DEVNULL)
    return out / "report.html"


NAN = float("nan")
ODD = {
    ("forward", 10): ("reduced", 11.0),
    ("backward", 30): ("wrong", 2.0),
    ("backward", 4): ("unjudged", NAN),
    ("optimizer", 20): ("crashed", NAN),
}


@pytest.fixture(scope="module")
def few(tmp_path_factory) -> Path:
    return make(tmp_path_factory.mktemp("few") / "out", 40, ODD)


@pytest.fixture(scope="module")
def many(tmp_path_factory) -> Path:
    """100,000 calls; one lane has three odd ones, 30,000 calls from each other."""
    odd = {("forward", 10_000): ("reduced", 11.0), ("backward", 20_000): ("wrong", 2.0)}
    odd |= {("optimizer", i): ("unsupported", NAN) for i in range(16_000, 17_600)}
    return make(tmp_path_factory.mktemp("many") / "out", 33_333, odd)


def middle(mask: np.ndarray, band) -> float:
    """Where a colour stands in a lane, as a share of its width."""
    top, bottom, left, right = band
    columns = np.flatnonzero(mask[top:bottom, left:right].sum(axis=0) >= 3)
    assert columns.size, "not in this lane"
    return float(columns.mean() / (right - left))


@pytest.mark.parametrize("width, dark", [(1280, False), (420, False), (1280, True)])
def test_the_accused_stand_where_they_were_planted(few, width, dark):
    picture = screenshot(few, width, dark)
    bands = lanes(picture, dark)
    assert len(bands) == 3, bands
    for lane, name, place in [(0, "k-l3", 10.5), (1, "k-l5", 30.5), (2, "k-dead", 20.5)]:
        mask = is_colour(picture, name, dark)
        assert abs(middle(mask, bands[lane]) - place / 40) < 0.02
        for other in {0, 1, 2} - {lane}:
            assert mask[slice(*bands[other][:2])].sum() < 20


def test_what_was_not_judged_is_hatched(few):
    picture = screenshot(few, 1280)
    top, bottom, left, right = lanes(picture)[1]
    cell = (right - left) / 40
    part = picture[top + 2 : bottom - 2, round(left + 4.2 * cell) : round(left + 4.8 * cell)]
    ground, stroke = is_colour(part, "k-open").mean(), is_colour(part, "stroke").mean()
    assert ground > 0.3 and (1 - ground) > 0.1 and stroke < 0.9
    assert is_colour(part, "k-pass").mean() == 0


@pytest.mark.parametrize("width", [1280, 420])
def test_one_of_100_000_calls_is_seen(many, width):
    picture = screenshot(many, width)
    bands = lanes(picture)
    assert len(bands) == 3
    for lane, name, place in [(0, "k-l3", 10_000), (1, "k-l5", 20_000)]:
        assert abs(middle(is_colour(picture, name), bands[lane]) - place / 33_333) < 0.02
    assert abs(middle(is_colour(picture, "stroke") | is_colour(picture, "k-open"), bands[2]) - 0.504) < 0.03


def test_a_page_of_100_000_calls_stays_small(many):
    assert many.stat().st_size < 20e6


def test_it_prints(few, tmp_path):
    """The picture is part of what is printed: lanes and module names are text in the page."""
    pdf = tmp_path / "page.pdf"
    browse(few, tmp_path, f"--print-to-pdf={pdf}", few.as_uri())
    assert pdf.read_bytes().startswith(b"%PDF") and pdf.stat().st_size > 20_000


def dom(page: Path, state: str, folder: Path) -> str:
    text = browse(page, folder, "--dump-dom", f"{page.as_uri()}{state}").decode()
    return re.sub(r"<script.*?</script>", "", text, flags=re.S)


def test_it_says_in_words_what_it_shows(few, tmp_path):
    document = dom(few, "", tmp_path)
    assert re.search(
        r'role="img"[^>]*aria-label="120 calls in order of execution\. forward: 1 reduced, 39 pass', document
    )
    assert "Errors begin at" in document and "#11 aten::mm" in document
    for name in ("forward → 40 calls", "backward →", "optimizer →", "layers.0", "not judged"):
        assert name in document, name
    assert "What the words mean" in document and "could not be judged" not in document


def test_a_card_opens_the_calls_that_it_counts(few, tmp_path):
    document = dom(few, "", tmp_path)
    links = re.findall(r'href="#finding=(\d+)"[^>]*>1 call<', document)
    assert len(links) == 3
    listed = dom(few, f"#finding={links[0]}", tmp_path)
    body = re.search(r'<tbody id="rows">(.*?)</tbody>', listed, flags=re.S).group(1)
    assert body.count("<tr>") == 1 and "crashed" in body


def test_marks_and_inputs_reach_the_page(tmp_path):
    """known, allowed, planted faults, inputs and the command that checks a call again."""
    out = tmp_path / "out"
    kept = [
        {
            "path": "args[0]",
            "role": "in",
            "dtype": "float32",
            "sizes": [2, 3],
            "strides": [1, 2],
            "offset": 4,
            "stats": {"min": -1.5, "max": 2.0, "n_nan": 1, "n_pos_inf": 0, "n_neg_inf": 0},
        }
    ]
    result = _core.Result(
        str(out),
        {
            "trace": "/a b/t",
            "trace_id": "",
            "device": "sim:0",
            "standard": "ulpscope",
            "faults": "aten::mm:tf32",
            "options": "{}",
            "environment": "{}",
        },
        False,
    )
    for call, verdict in ((1, "reduced"), (2, "wrong"), (3, "pass")):
        result.put(
            dict(
                call=call,
                step=1,
                phase="forward",
                op="aten::mm",
                module="m",
                args="x",
                verdict=verdict,
                bits=9.0,
                yardstick_bits=23.5,
                sentence=f"row {call}",
                examples=[],
                n_elements=100,
                metrics=[
                    (-1, "arguments", 0.0, json.dumps(kept)),
                    (0, "excused", 34.0, None),
                    (0, "excuse", 0.0, "corner"),
                ],
            )
        )
    result.set("state", "done")
    result.close()
    done = subprocess.run(
        [BUILD / "bin" / "ulpscope", "report", out, "--allow", "reduced"], capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1].endswith("; 1 allowed; 3 with more than 3 % of an output excused")
    document = dom(out / "report.html", "", tmp_path)
    assert "Faults were planted on purpose: aten::mm:tf32" in document
    assert "1 call allowed by --allow" in document
    assert "at most 34 % (corner)" in document and "34 % of an output excused: corner" in document
    page = dom(out / "report.html", "#call-2", tmp_path)
    for text in (
        "Tensors as captured",
        "[1, 2]",
        "1 / 0",
        "-1.5",
        "ulpscope check '/a b/t#2' --device sim:0 --faults aten::mm:tf32",
    ):
        assert text in page, text
    calls = json.loads((out / "result.json").read_text())["calls"]
    assert {c["call"]: c["allowed"] for c in calls} == {1: True, 2: False, 3: False}
    assert all(abs(c["excused"] - 0.34) < 1e-9 and c["excuse"] == "corner" for c in calls)
    header, *rows = (out / "result.csv").read_text().splitlines()
    assert header.endswith(",known,allowed,usual,excused,excuse")
    assert sorted(r.split(",", 1)[0] + r[-18:] for r in rows)[0].endswith("0,1,0,0.34,corner")
