# SPDX-License-Identifier: Apache-2.0
"""`ulpscope loss`: what a comparison gives is held to a definition of it in NumPy (docs/loss.md),
differences that are planted must be found, and honest pairs of curves called the same. What is
read out of which file: tests/unit/test_loss.c."""

from __future__ import annotations

import csv
import itertools
import json
import os
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

BUILD = Path(os.environ.get("ULPSCOPE_BUILD", Path(__file__).resolve().parents[2] / "build"))


def loss(*words, code=None):
    done = subprocess.run([BUILD / "bin" / "ulpscope", "loss", *map(str, words)], text=True,
                          capture_output=True, timeout=300)  # fmt: skip
    assert code is None or done.returncode == code, done
    return done


def write(path, values, steps=None):
    rows = zip(range(len(values)) if steps is None else steps, values, strict=True)
    path.write_text("step,loss\n" + "".join(f"{s},{float(v)!r}\n" for s, v in rows))
    return path


def curve(seed, n, noise=0.02):
    """A loss as they look, with noise of its own."""
    draw = np.random.default_rng(seed)
    return (1 + 4 * np.exp(-np.arange(n) / (n / 6)) + draw.normal(0, noise, n)).tolist()


# ---- the definition ---------------------------------------------------------------------


def magnitudes(x):
    m = np.abs(x[1:-1] - (x[:-2] + x[2:]) / 2) / np.sqrt(1.5)
    return np.concatenate([m[:1], m, m[-1:]])


def deviation(window):
    m = np.sort(window)
    return max(1.4826 * np.median(m), m[(len(m) - 1) * 19 // 20] / 1.96) * (1 + 1.65 / np.sqrt(len(m)))


def local(values, measure):
    n = len(values)
    reach, places = max(n // 10, 15), min(n - 1, 64)
    at = [p * (n - 1) // places for p in range(places + 1)]
    found = []
    for middle in at:
        window = values[max(middle - reach, 0) : middle + reach + 1]
        found.append(measure(window[:: max(-(-len(window) // 2048), 1)]))
    return np.interp(np.arange(n) * places / (n - 1), np.arange(places + 1), found)


def factor(n, repeats=0):
    return np.sqrt(2) * np.sqrt(2 * np.log(100 * n)) * (1 + 1 / repeats if repeats else 1)


def expected(a, b, repeats=()):
    a, b, n = np.array(a), np.array(b), len(a)
    d = b - a
    if repeats:
        runs = np.array([a, *repeats])
        sigma = local(runs.var(axis=0, ddof=1), lambda w: np.sqrt(w.mean()))
    else:
        sigma = local(magnitudes(a), deviation)
    band = factor(n, len(repeats)) * sigma + 1e-6 * np.abs(a)
    outside = np.flatnonzero(np.abs(d) > band)
    q = n // 4
    half = n // 2
    blocks = [d[half + k * (n - half) // 8 : half + (k + 1) * (n - half) // 8].mean() for k in range(8)]
    spread = 5 * 1.4826 * np.median(np.abs(np.diff(blocks))) / np.sqrt(2)
    return {
        "n": n, "n_outside": len(outside), "area": np.trapezoid(np.abs(d)), "mean": np.abs(d).mean(),
        "drift": d[-q:].mean(), "drift_relative": d[-q:].mean() / np.abs(a[-q:]).mean(),
        "early_noise": np.median(local(magnitudes(d[:q]), deviation)),
        "first": {"step": outside[0], "band": band[outside[0]]} if len(outside) else None,
        "largest": {"step": np.abs(d).argmax(), "band": band[np.abs(d).argmax()]},
        **({} if repeats else {"drift_limit": max(spread, 1e-3 * np.abs(a[-q:]).mean())}),
    }  # fmt: skip


def check(found, wanted):
    for name, value in wanted.items():
        if isinstance(value, dict):
            check(found[name], value)
        elif value is None:
            assert found[name] is None, name
        else:
            assert found[name] == pytest.approx(value, rel=1e-9, abs=1e-12), name


@pytest.mark.parametrize("n", [40, 333, 5000, 60000])
@pytest.mark.parametrize("n_repeats", [0, 2])
def test_numbers_are_those_of_the_definition(tmp_path, n, n_repeats):
    a, b = curve(1, n), curve(2, n)
    b[n // 2] += 1
    repeats = [curve(3 + k, n) for k in range(n_repeats)]
    files = [write(tmp_path / f"{i}.csv", c) for i, c in enumerate([a, b, *repeats])]
    noise = ["--noise", *files[2:]] if repeats else []
    found = json.loads(loss(*files[:2], "--json", *noise, code=1).stdout)
    check(found, expected(a, b, repeats))
    assert found["noise"] == ("repeats" if repeats else "roughness")


# ---- same or not ------------------------------------------------------------------------


def test_honest_pairs_are_the_same(tmp_path):
    for seed in range(0, 40, 2):
        n = [50, 200, 1000, 4000][seed // 2 % 4]
        files = [write(tmp_path / f"{k}", curve(seed + k + 100, n)) for k in (0, 1)]
        loss(*files, code=0)
    a = curve(1, 300)
    b = [x * (1 + 1e-7) for x in a]
    loss(write(tmp_path / "a", a), write(tmp_path / "b", b), code=0)


PLANTED = {
    "a spike": lambda b: [x + 0.5 * (i == 700) for i, x in enumerate(b)],
    "an offset": lambda b: [x + 0.3 * (i >= 500) for i, x in enumerate(b)],
    "1 % late": lambda b: [x * (1 + 0.01 * (i > 500)) for i, x in enumerate(b)],
    "a slow drift": lambda b: [x * (1 + 0.02 * i / len(b)) for i, x in enumerate(b)],
    "NaN": lambda b: [x if i < 600 else float("nan") for i, x in enumerate(b)],
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_differences_are_found(tmp_path, name):
    """B is A on the same data, with rounding of its own."""
    a = curve(5, 1000)
    b = [x + d for x, d in zip(a, np.random.default_rng(6).normal(0, 1e-4, 1000), strict=True)]
    loss(write(tmp_path / "a", a), write(tmp_path / "b", b), code=0)
    found = json.loads(loss(tmp_path / "a", write(tmp_path / "b", PLANTED[name](b)), "--json", code=1).stdout)
    assert found["differ"]
    if name == "a spike":
        assert found["first"]["step"] == 700 and found["n_outside"] == 1
    if name == "an offset":
        assert found["first"]["step"] == 500
    if name in ("1 % late", "a slow drift"):
        assert found["drifts"] and found["first"] is None
    if name == "NaN":
        assert found["bad_step"] == 600 and "NaN or Inf at step 600" in found["sentence"]


def test_the_common_part_is_compared_and_said(tmp_path):
    a = write(tmp_path / "a", curve(1, 100))
    b = write(tmp_path / "b", curve(1, 100)[10:90], range(10, 90))
    done = loss(a, b, code=0)
    assert "80 in common, 20 of A alone" in done.stdout and "no digit differs" in done.stdout
    apart = loss(a, write(tmp_path / "c", [1.0, 2.0], [500, 501]), code=2)
    assert "no step in common: 0 to 99 against 500 to 501" in apart.stderr


def test_what_is_wrong_is_said_in_a_sentence(tmp_path):
    a = write(tmp_path / "a", curve(1, 100))
    (tmp_path / "empty").write_text("")
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 9)
    (tmp_path / "folder").mkdir()
    for name, words in {"empty": "is empty", "binary": "is binary", "folder": "without event files",
                        "none": "No such file"}.items():  # fmt: skip
        assert words in loss(a, tmp_path / name, code=2).stderr
    short = write(tmp_path / "short", curve(1, 50))
    assert "repeats must be as long" in loss(a, a, "--noise", short, code=2).stderr
    assert "two curves are needed" in loss(a, code=2).stderr
    assert "leave out one" in loss(a, a, "--key", "x", "--regex", "(x)", code=2).stderr


def test_more_than_two_and_a_page(tmp_path):
    a, b = write(tmp_path / "a&b", curve(1, 100)), write(tmp_path / "b", curve(2, 100))
    c = write(tmp_path / "c", [x + 1 for x in curve(1, 100)])
    page = tmp_path / "page.html"
    done = loss(a, b, c, "--html", page, code=1)
    assert "the same within noise" in done.stdout and "they differ: first at step 0" in done.stdout
    text = page.read_text()
    assert text.count("<svg") == 4 and "a&amp;b" in text and "nan" not in text.replace("a&amp;b", "")
    assert "http" not in text


# ---- event files ------------------------------------------------------------------------


def crc(data):
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    value ^= 0xFFFFFFFF
    return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def varint(n):
    return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + varint(n >> 7)


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def record(data):
    length = struct.pack("<Q", len(data))
    return length + crc(length) + data + crc(data)


def event(step, tag, value):
    return record(b"\x09" + bytes(8) + b"\x10" + varint(step) + field(5, field(1, field(1, tag) + value)))


def simple(value):
    return b"\x15" + struct.pack("<f", value)


def test_event_files(tmp_path):
    """Both ways in which scalars are written; a folder with the file of a resumed run, cut off."""
    values = [2.0 + 1 / (i + 1) for i in range(200)]
    tensor = [b"\x08\x01" + field(4, struct.pack("<f", v)) for v in values]
    first = b"".join(event(i, b"train/loss", simple(v)) + event(i, b"lr", simple(1)) for i, v in enumerate(values[:150]))
    second = b"".join(event(100 + i, b"train/loss", field(8, t)) for i, t in enumerate(tensor[100:]))
    run = tmp_path / "run"
    run.mkdir()
    (run / "events.out.tfevents.1").write_bytes(record(b"\x09" + bytes(8) + field(3, b"brain.Event:2")) + first)
    (run / "events.out.tfevents.2").write_bytes(second + second[:20])
    other = write(tmp_path / "a.csv", np.float32(values).astype(float).tolist())
    done = loss(other, run, code=0)
    assert "no digit differs in 200 steps" in done.stdout and "'train/loss' of an event file" in done.stdout
    assert "50 losses stand twice" in done.stderr and "it was cut off" in done.stderr
    assert "there are 'lr'" not in done.stderr
    assert "nothing called 'x'" in loss(other, run, "--key", "x", code=2).stderr
    (run / "events.out.tfevents.2").write_bytes(second[:40] + b"\x00" + second[41:])
    assert "records are damaged (CRC)" in loss(other, run).stderr


# ---- real curves ------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["mlp", "gpt"])
def test_curves_of_real_trainings(tmp_path, model):
    """tests/curves/record.py: no seed drifts from another, two pairs at most lie apart; a rate 5 % off does, a layer in bfloat16 does not."""
    with (Path(__file__).parents[1] / "curves" / f"{model}.csv").open() as file:
        names, *rows = csv.reader(file)
    curves = dict(zip(names, np.array(rows, float).T, strict=True))
    files = {name: write(tmp_path / name, values) for name, values in curves.items() if name != "step"}
    seeds = [path for name, path in files.items() if name.startswith("seed")]
    told = [json.loads(loss(a, b, "--json").stdout) for a, b in itertools.permutations(seeds, 2)]
    assert not any(t["drifts"] for t in told) and sum(t["differ"] for t in told) <= 2
    for name, drifts in (("lr_1.05", True), ("lr_1.5", True), ("bf16_layer", False)):
        told = json.loads(loss(seeds[0], files[name], "--json", code=int(drifts)).stdout)
        assert (told["drifts"], told["n_outside"]) == (drifts, 0), (name, told["sentence"])
    assert loss(seeds[0], files["lr_1.5"], "--noise", *seeds[1:], code=1)
