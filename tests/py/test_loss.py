# SPDX-License-Identifier: Apache-2.0
"""`ulpscope loss`: what a comparison gives is held to a definition of it in NumPy (docs/reference/loss.md),
differences that are planted must be found, and honest pairs of curves called the same. What is
read out of which file: tests/unit/test_loss.c."""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
import math
import os
import pty
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
import schemas

BUILD = Path(os.environ.get("ULPSCOPE_BUILD", Path(__file__).resolve().parents[2] / "build"))


def loss(*words, code=None):
    done = subprocess.run(
        [BUILD / "bin" / "ulpscope", "loss", *map(str, words)], text=True, capture_output=True, timeout=300
    )
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


def deviation_of_difference(window):
    if len(window) >= 62:
        return deviation(window)
    m = np.sort(window)
    return max(1.4826 * np.median(m), m[(len(m) - 1) * 9 // 10] / 1.645) * (1 + 1.65 / np.sqrt(len(m)))


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
    wavers = [1.4826 * np.median(magnitudes(x)) for x in (a, b, d)]
    common = wavers[2] / np.hypot(*wavers[:2])
    paired = common < 0.5 and not repeats
    if repeats:
        runs = np.array([a, *repeats])
        sigma = local(runs.var(axis=0, ddof=1), lambda w: np.sqrt(w.mean()))
    else:
        sigma = local(magnitudes(a), deviation)
        if paired:
            sigma = np.minimum(sigma, local(magnitudes(d), deviation_of_difference))
    band = factor(n, len(repeats)) * sigma + (1e-3 if paired else 1e-6) * np.abs(a)
    outside = np.flatnonzero(np.abs(d) > band)
    q = n // 4
    half = n // 2
    blocks = [d[half + k * (n - half) // 8 : half + (k + 1) * (n - half) // 8].mean() for k in range(8)]
    spread = 5 * 1.4826 * np.median(np.abs(np.diff(blocks))) / np.sqrt(2)
    if paired:
        sure = 15 * 1.4826 * np.median(magnitudes(d[-q:])) / np.sqrt(q)
        spread = min(spread, sure) if len({b > 0 for b in blocks}) == 1 else sure
    return {
        "n": n,
        "n_outside": len(outside),
        "area": np.trapezoid(np.abs(d)),
        "mean": np.abs(d).mean(),
        "drift": d[-q:].mean(),
        "drift_relative": d[-q:].mean() / np.abs(a[-q:]).mean(),
        "common": common,
        "mean_relative": np.mean(np.abs(d / a)),
        "early_relative": np.mean(np.abs(d / a)[: min(max(n // 20, 3), 10)]),
        "early_noise": np.median(local(magnitudes(d[:q]), deviation)),
        "first": {"step": outside[0], "band": band[outside[0]]} if len(outside) else None,
        "largest": {"step": np.abs(d).argmax(), "band": band[np.abs(d).argmax()]},
        **({} if repeats else {"drift_limit": max(spread, 1e-3 * np.abs(a[-q:]).mean())}),
    }


def check(found, wanted):
    for name, value in wanted.items():
        if isinstance(value, dict):
            check(found[name], value)
        elif value is None:
            assert found[name] is None, name
        else:
            assert found[name] == pytest.approx(value, rel=1e-9, abs=1e-12), name


@pytest.mark.parametrize("n", [40, 333, 5000, 60000])
@pytest.mark.parametrize("noise", ["repeats", "differences", "roughness"])
def test_numbers_are_those_of_the_definition(tmp_path, n, noise):
    a, b = curve(1, n), curve(2, n)
    if noise == "differences":
        b = [x + d for x, d in zip(a, np.random.default_rng(9).normal(0, 1e-3, n), strict=True)]
    b[n // 2] += 1
    repeats = [curve(3 + k, n) for k in range(2 * (noise == "repeats"))]
    files = [write(tmp_path / f"{i}.csv", c) for i, c in enumerate([a, b, *repeats])]
    given = ["--noise", *files[2:]] if repeats else []
    found = schemas.one("loss", loss(*files[:2], "--json", *given, code=1).stdout)
    check(found, expected(a, b, repeats))
    assert found["noise"] == noise


# ---- same or not ------------------------------------------------------------------------


def beside(values, seed, noise):
    """A curve on the same batches, with rounding of its own."""
    return [x + d for x, d in zip(values, np.random.default_rng(seed).normal(0, noise, len(values)), strict=True)]


def test_honest_pairs_are_the_same(tmp_path):
    """Of the same batches; those of others do not differ either, but nobody can call them the same."""
    for seed in range(0, 40, 2):
        a, b = (curve(seed + k + 100, [50, 200, 1000, 4000][seed // 2 % 4]) for k in (0, 1))
        files = [write(tmp_path / f"{k}", c) for k, c in enumerate((a, b, beside(a, seed, 2e-4)))]
        done = loss(*files[:2], code=2)
        assert "not told: the differences waver as much" in done.stdout and "--noise" in done.stdout
        assert "more than float32 makes of equal runs" in loss(files[0], files[2], code=2).stdout
        loss(files[0], files[2], "--tolerance", "0.001", code=0)
    b = [x * (1 + 1e-7) for x in curve(1, 300)]
    loss(write(tmp_path / "a", curve(1, 300)), write(tmp_path / "b", b), code=0)


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
    b = beside(a, 6, 1e-4)
    loss(write(tmp_path / "a", a), write(tmp_path / "b", b), "--tolerance", "0.001", code=0)
    found = json.loads(loss(tmp_path / "a", write(tmp_path / "b", PLANTED[name](b)), "--json", code=1).stdout)
    assert found["differ"]
    if name == "a spike":
        assert found["first"]["step"] == 700 and found["n_outside"] == 1
    if name == "an offset":
        assert found["first"]["step"] == 500
    if name in ("1 % late", "a slow drift"):
        assert found["drifts"]
    if name == "NaN":
        assert found["bad_step"] == 600 and "NaN or Inf at step 600" in found["sentence"]


def test_a_small_fault_under_common_batches_is_told(tmp_path):
    """0.74 % off where the curve wavers by 1.3 and the differences by 0.0078."""
    a = [3 + x for x in curve(5, 240, noise=1.3 / 2)]
    b = beside([x * 1.00742 for x in a], 6, 0.0078)
    done = loss(write(tmp_path / "a", a), write(tmp_path / "b", b), code=1)
    assert "the batches are common" in done.stdout and "teams accept below 2 %" in done.stdout


NOT_TOLD = {
    "the first": (
        lambda a: [x + (0.02 if i % 2 else -0.02) * (i < 12) for i, x in enumerate(a)],
        0.5,
        "in the first 10 steps already",
    ),
    "a small drift": (
        lambda a: [x + 0.011 * (i >= 180) for i, x in enumerate(beside(a, 7, 0.008))],
        0.2,
        "over the last quarter",
    ),
    "far": (
        lambda a: [
            x if i < 12 else x + d
            for i, (x, d) in enumerate(zip(a, np.random.default_rng(4).normal(0, 0.3, 240), strict=True))
        ],
        1.0,
        "on average, where teams accept 2 %",
    ),
    "few digits": (lambda a: [round(x, 1) for x in a], 0.2, "prints so few digits"),
    "little": (lambda a: a[:30], 0.2, "only 30 steps are in common"),
}


@pytest.mark.parametrize("name", NOT_TOLD)
def test_what_cannot_be_told_is_not_called_the_same(tmp_path, name):
    change, noise, words = NOT_TOLD[name]
    a = [6 + x for x in curve(5, 240, noise)]
    b = change(a)
    steps = range(200, 500) if name == "little" else None
    if name == "little":
        a, b = (curve(5, 300) for _ in range(2))
    if name == "few digits":
        a = b
    files = [write(tmp_path / "a", a), write(tmp_path / "b", b, steps)]
    if name == "little":
        files[1] = write(tmp_path / "b", a[270:] + [9.0] * 270, range(270, 570))
    if name == "few digits":
        files = [tmp_path / "a.log", tmp_path / "b.log"]
        for path in files:
            path.write_text("".join(f"{path.stem} step {i} loss {v:.1f}\n" for i, v in enumerate(a)))
    done = loss(*files, code=2)
    assert "not told: " in done.stdout and words in done.stdout, done.stdout


@pytest.mark.parametrize(
    ("noise", "digits", "code"),
    [(3e-7, 9, 0), (3e-7, 5, 0), (3e-7, 2, 0), (2e-4, 9, 2), (2e-4, 5, 2), (2e-5, 9, 2), (2e-6, 9, 0)],
)
def test_what_float32_does_not_explain_is_not_called_the_same(tmp_path, noise, digits, code):
    """60 steps of the same batches: last bits, and a layer that rounds to 16 bits from the first step on."""
    a = [2 + x for x in curve(5, 60, noise=0.3)]
    b = [x * (1 + noise * d) for x, d in zip(a, np.random.default_rng(3).normal(0, 1, 60), strict=True)]
    files = [write(tmp_path / name, [round(x, digits) for x in c]) for name, c in (("a", a), ("b", b))]
    done = loss(*files, "--same-bytes", code=code)
    assert ("the rounding of 16 bits" in done.stdout) == (code == 2)
    loss(*files, "--same-bytes", "--tolerance", "0.001", code=0)


def test_the_first_line_says_what_was_taken(tmp_path):
    """Lightning's metrics.csv against NeMo's log; what else there is called loss is named."""
    a = curve(5, 120)
    rows = "".join(f"{i // 40},{i},{v!r},\n" for i, v in enumerate(map(float, a)))
    (tmp_path / "metrics.csv").write_text("epoch,step,train_loss_step,train_loss_epoch\n" + rows + "2,119,,2.5\n")
    lines = [f"Epoch 0: global_step={i}, loss={v:.2g}, reduced_train_loss={v:.6f}\n" for i, v in enumerate(a)]
    (tmp_path / "nemo.log").write_text("".join(lines))
    done = loss(tmp_path / "metrics.csv", tmp_path / "nemo.log", code=0)
    first = done.stdout.splitlines()[0]
    assert "'train_loss_step' of " in first and "120 values, steps 0 to 119 by 'step'" in first
    assert "'reduced_train_loss' of " in first and "by 'global_step'" in first
    assert "not taken: 'train_loss_epoch' (1" in done.stdout and "'loss' (120 of 2 digits)" in done.stdout


def test_one_curve_twice_is_no_comparison(tmp_path):
    """The same file, a copy, a repeat that is A; two columns of one file are two curves."""
    a, b = curve(1, 60), beside(curve(1, 60), 2, 1e-4)
    rows = "".join(f"{i},{x!r},{y!r}\n" for i, (x, y) in enumerate(zip(map(float, a), map(float, b), strict=True)))
    for name in ("w.csv", "copy.csv"):
        (tmp_path / name).write_text("Step,gpu - loss,npu - loss\n" + rows)
    w, copy, other = tmp_path / "w.csv", tmp_path / "copy.csv", write(tmp_path / "other", curve(3, 60))
    assert "holds several losses: 'gpu - loss' (60 values), 'npu - loss' (60)" in loss(w, w, code=2).stderr
    assert "is given twice: the same file" in loss(w, w, "--key", "gpu - loss", code=2).stderr
    (tmp_path / "link").symlink_to(w)
    assert "is given twice" in loss(w, tmp_path / "link", "--key", "gpu - loss", code=2).stderr
    assert "hold the same bytes" in loss(w, copy, "--key", "gpu - loss", code=2).stderr
    assert "no digit differs" in loss(w, copy, "--key", "gpu - loss", "--same-bytes", code=0).stdout
    assert "is given twice" in loss(write(tmp_path / "a", a), other, "--noise", other, code=2).stderr
    found = json.loads(
        loss(w, w, "--key", "A=gpu - loss,B=npu - loss", "--tolerance", "0.001", "--json", code=0).stdout
    )
    assert (found["a"]["key"], found["b"]["key"], found["n"]) == ("gpu - loss", "npu - loss", 60)
    once = loss(w, "--key", "A=gpu - loss,B=npu - loss", "--tolerance", "0.001", "--json", code=0)
    assert json.loads(once.stdout) == found
    assert "two curves are needed" in loss(w, "--key", "A=gpu - loss", code=2).stderr


def test_steps_of_one_side_alone(tmp_path):
    """Every tenth step against all of them by place is another question."""
    a = curve(1, 200)
    some = write(tmp_path / "some", a[::10], range(0, 200, 10))
    plain = tmp_path / "plain"
    plain.write_text("".join(f"loss {v:.6f}\n" for v in a))
    assert "which belongs to which is not known" in loss(some, plain, code=2).stderr
    loss(write(tmp_path / "all", a), plain, code=0)


def test_a_run_that_ended_early_is_not_told(tmp_path):
    """Numbered or not, either way round. Every tenth step of a whole run is the whole run; NaN in both is said."""
    values = curve(1, 200)
    a, some = write(tmp_path / "a", values), write(tmp_path / "some", values[::10], range(0, 200, 10))
    logs = [tmp_path / "a.log", tmp_path / "b.log"]
    for path, n in zip(logs, (200, 3), strict=True):
        path.write_text("".join(f"loss {v:.6f}\n" for v in values[:n]))
    for pair in ((a, write(tmp_path / "b", values[:3])), (write(tmp_path / "c", values[:90]), a), logs):
        done = loss(*pair, code=2)
        assert "not told: nothing differs where both ran" in done.stdout and " of 200 steps" in done.stdout
    assert "the same: no digit differs in 20 of 200 steps" in loss(a, some, code=0).stdout
    bad = [write(tmp_path / name, [*values[:100], *[math.nan] * 100]) for name in ("d", "e")]
    done = loss(*bad, "--same-bytes", code=0)
    assert "differs in 100 of 200 steps (100 are NaN or Inf in both)" in done.stdout, done.stdout


def test_the_common_part_is_compared_and_said(tmp_path):
    a = write(tmp_path / "a", curve(1, 100))
    b = write(tmp_path / "b", curve(1, 100)[10:90], range(10, 90))
    done = loss(a, b, code=0)
    assert "80 in common, 20 of A alone" in done.stdout and "no digit differs in 80 of 100 steps" in done.stdout
    apart = loss(a, write(tmp_path / "c", [1.0, 2.0], [500, 501]), code=2)
    assert "no step in common: 0 to 99 against 500 to 501" in apart.stderr


def test_what_is_wrong_is_said_in_a_sentence(tmp_path):
    a = write(tmp_path / "a", curve(1, 100))
    (tmp_path / "empty").write_text("")
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 9)
    (tmp_path / "folder").mkdir()
    for name, words in {
        "empty": "is empty",
        "binary": "is binary",
        "folder": "without event files",
        "none": "No such file",
    }.items():
        assert words in loss(a, tmp_path / name, code=2).stderr
    short, other = write(tmp_path / "short", curve(1, 50)), write(tmp_path / "other", curve(2, 100))
    assert "repeats must be as long" in loss(a, other, "--noise", short, code=2).stderr
    assert "two curves are needed" in loss(a, code=2).stderr
    assert "leave out one" in loss(a, a, "--key", "x", "--regex", "(x)", code=2).stderr


def test_more_than_two_and_a_page(tmp_path):
    a, b = write(tmp_path / "a&b", curve(1, 100)), write(tmp_path / "b", beside(curve(1, 100), 2, 1e-6))
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
    first = b"".join(
        event(i, b"train/loss", simple(v)) + event(i, b"lr", simple(1)) for i, v in enumerate(values[:150])
    )
    second = b"".join(event(100 + i, b"train/loss", field(8, t)) for i, t in enumerate(tensor[100:]))
    run = tmp_path / "run"
    run.mkdir()
    (run / "events.out.tfevents.1").write_bytes(record(b"\x09" + bytes(8) + field(3, b"brain.Event:2")) + first)
    (run / "events.out.tfevents.2").write_bytes(second + second[:20])
    other = write(tmp_path / "a.csv", np.float32(values).astype(float).tolist())
    done = loss(other, run, code=0)
    assert "no digit differs in 200 steps" in done.stdout and "(an event file, 200 values" in done.stdout
    assert "50 values of 'train/loss' stand twice" in done.stderr and "it was cut off" in done.stderr
    assert "there are 'lr'" not in done.stderr
    assert "nothing called 'x'" in loss(other, run, "--key", "x", code=2).stderr
    (run / "events.out.tfevents.2").write_bytes(second[:40] + b"\x00" + second[41:])
    assert "records are damaged (CRC)" in loss(other, run).stderr


# ---- real curves ------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["mlp", "gpt"])
def test_curves_of_real_trainings(tmp_path, model):
    """tests/curves/record.py: no seed drifts from another, two pairs at most lie apart, the others are not told; a rate
    5 % off differs, a layer in bfloat16 does not."""
    with (Path(__file__).parents[1] / "curves" / f"{model}.csv").open() as file:
        names, *rows = csv.reader(file)
    curves = dict(zip(names, np.array(rows, float).T, strict=True))
    files = {name: write(tmp_path / name, values) for name, values in curves.items() if name != "step"}
    seeds = [path for name, path in files.items() if name.startswith("seed")]
    told = [json.loads(loss(a, b, "--json").stdout) for a, b in itertools.permutations(seeds, 2)]
    assert not any(t["drifts"] for t in told) and sum(t["differ"] for t in told) <= 2
    assert not any(t["told"] and not t["differ"] for t in told)
    for name, drifts in (("lr_1.05", True), ("lr_1.5", True), ("bf16_layer", False)):
        told = json.loads(loss(seeds[0], files[name], "--json").stdout)
        assert told["drifts"] == told["differ"] == drifts and told["noise"] == "differences", (name, told["sentence"])
    assert loss(seeds[0], files["lr_1.5"], "--noise", *seeds[1:], code=1)


def test_who_waits_for_a_file_is_told(tmp_path):
    """On a terminal whatever is read says so within a second or two; here a file that comes when it has."""
    os.mkfifo(tmp_path / "a")
    write(tmp_path / "b", curve(2, 100))
    child, terminal = pty.fork()
    if child == 0:
        os.execv(BUILD / "bin" / "ulpscope", ["ulpscope", "loss", str(tmp_path / "a"), str(tmp_path / "b")])
    said = b""
    while b"loss: reading (" not in said:
        said += os.read(terminal, 4096)
    write(tmp_path / "a", curve(2, 100)[:99] + [9.0])
    with contextlib.suppress(OSError):  # the other end is closed
        while more := os.read(terminal, 4096):
            said += more
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1 and b"they differ" in said
    assert b"\r\x1b[K" in said[said.rindex(b"reading (") :], "the line is taken away"
