# SPDX-License-Identifier: Apache-2.0
"""`ulpscope.nan_tracker(keep_calls=N)`: the last calls, written with their data where a NaN is
born or the block dies; bounded, and nothing where nothing was born."""

import json
import os
import subprocess

import pytest
import torch

import ulpscope
import ulpscope.sim

DEVICES = ("cpu", "sim:0")


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def work(device, calls=20, size=16):
    x = torch.ones(size, device=device)
    for _ in range(calls):
        x = x * 1.0
    return x


def run(*words):
    return subprocess.run(["ulpscope", *map(str, words)], capture_output=True, text=True, timeout=300)


def births(folder, *options):
    done = run("overflow", folder, "--json", *options)
    return done, [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("device", DEVICES)
def test_a_birth_is_the_last_of_the_calls_that_are_written(device, tmp_path):
    with ulpscope.nan_tracker(keep_calls=8, output="last") as nan:
        x = work(device)
        torch.log(x - 2.0)
        work(device)
    assert nan.error is None and nan.trace == str(tmp_path / "last")
    born = nan.births()[0].call
    shown = run("show", "last")
    assert shown.returncode == 0 and "aten::log" in shown.stdout, shown
    done, found = births("last", "--no-replay")
    assert [f["call"] for f in found] == [born], done
    assert births("last")[0].returncode == 0, births("last")
    checked = run("check", "last", "--device", device, "-o", "out")
    assert checked.returncode == 0, checked
    assert any("tensors" in name for name in os.listdir("last")), "no data was kept"


def test_a_further_view_of_what_was_taken_tells_as_much():
    x = torch.ones(4, 8)
    x[3] = float("nan")
    found = []
    for keep in (0, 50):
        with ulpscope.nan_tracker(keep_calls=keep) as nan:
            y = x * 1.0
            z = y[:2] * 2.0
            torch.log(z - 3.0)
        found.append([(b.op, b.kind, b.call) for b in nan.births()])
    assert found[0] == found[1] and found[0]


def test_nothing_is_left_where_nothing_is_born(tmp_path):
    with ulpscope.nan_tracker(keep_calls=8) as nan:
        work("cpu")
    assert (nan.trace, nan.error, os.listdir(tmp_path)) == (None, None, [])


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_block_that_dies_leaves_its_last_calls(error, tmp_path):
    with pytest.raises(error), ulpscope.nan_tracker(keep_calls=4, output="a/b") as nan:
        work("cpu")
        raise error()
    assert nan.trace == str(tmp_path / "a/b") and run("show", nan.trace).returncode == 0


def test_folders_are_numbered():
    for name in ("last", "last-2"):
        with ulpscope.nan_tracker(keep_calls=4, output="last") as nan:
            torch.log(torch.tensor([-1.0]))
        assert os.path.basename(nan.trace) == name


def test_memory_is_bounded():
    size = 1 << 16
    with ulpscope.nan_tracker(keep_calls=1000, keep_bytes=1 << 20) as nan:
        for _ in range(40):
            work("cpu", calls=10, size=size)
            nan.births()
            assert 1 << 16 <= nan.recorder.session.counts()["held"] <= 1 << 20
        torch.log(torch.tensor([-1.0]))
    assert births(nan.trace)[0].returncode == 0
    written = sum(os.path.getsize(os.path.join(nan.trace, f)) for f in os.listdir(nan.trace) if "tensors" in f)
    assert 1 << 16 <= written <= (1 << 20) + (1 << 16)


def test_a_folder_that_cannot_be_made_is_said_once(tmp_path, capfd):
    (tmp_path / "file").write_text("")
    with ulpscope.nan_tracker(keep_calls=4, output="file/last") as nan:
        torch.log(torch.tensor([-1.0]))
        nan.step()
        torch.log(torch.tensor([-1.0]))
        nan.step()
    assert nan.n_births == 2 and nan.trace is None and nan.error is None
    assert capfd.readouterr().err.count("are not kept") == 1


@pytest.mark.parametrize("bad", [{"keep_calls": -1}, {"keep_calls": "x"}, {"keep_bytes": 0}])
def test_bad_arguments(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        ulpscope.nan_tracker(**bad)
