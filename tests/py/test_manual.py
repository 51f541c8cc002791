# SPDX-License-Identifier: Apache-2.0
"""The listings of torch_musa's developer manual on the simulated device: examples/manual, each entry run; the page that
lists them names files and tests that are there."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

sim = pytest.importorskip("ulpscope.sim", exc_type=OSError)

ROOT = Path(__file__).resolve().parents[2]
MANUAL = ROOT / "examples" / "manual"
PAGE = ROOT / "docs" / "reference" / "manual.md"


@pytest.fixture(autouse=True)
def as_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield
    torch.backends.sim.allow_tf32 = False
    torch.sim.set_device(0)


def here(name, capsys, *words):
    """What an entry prints, run in this process."""
    before, sys.argv = sys.argv, [name, *map(str, words)]
    try:
        runpy.run_path(str(MANUAL / name), run_name="__main__")
    finally:
        sys.argv = before
    return capsys.readouterr().out


def command(*words):
    more = {"capture_output": True, "text": True, "env": {**os.environ, "OMP_NUM_THREADS": "1"}}
    done = subprocess.run([str(word) for word in words], **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_5_2_what_a_program_asks_of_the_device(capsys):
    assert here("05-2-api.py", capsys).endswith("sim:0\n")


def test_5_3_inference(capsys):
    assert here("05-3-inference.py", capsys) == "sim:0 (1, 10) True\n"


def test_5_4_the_training_script():
    said = command(sys.executable, MANUAL / "05-4-train.py")
    losses = [float(x) for x in re.findall(r"loss: (\S+)", said)]
    assert len(losses) == 6 and losses[-1] < 0.8 * losses[0]
    assert int(re.search(r"test images: (\d+) %", said)[1]) > 50


def test_5_5_mixed_precision(capsys):
    said = re.findall(r"torch\.(\w+): (\S+) -> (\S+)", here("05-5-amp.py", capsys))
    assert [dtype for dtype, *_ in said] == ["float16", "bfloat16"]
    assert all(float(last) < 0.9 * float(first) for _, first, last in said)


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")
def test_5_6_two_processes():
    assert "the same weights: True" in command(sys.executable, MANUAL / "05-6-ddp.py")


def test_5_7_tf32_has_fewer_bits(capsys):
    exact, *rounded = map(int, re.findall(r"(\d+) bits", here("05-7-tf32.py", capsys)))
    assert exact >= 20 and len(rounded) == 2 and all(9 <= bits <= 13 for bits in rounded)


def test_8_2_channels_last(capsys):
    said = here("08-2-channels-last.py", capsys)
    assert said == "NHWC: True\nas without, to three digits: True\nbit by bit: False\n"


def test_the_page_lists_what_is_there():
    text = PAGE.read_text()
    for path in re.findall(r"`((?:examples|docs)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), path
    for file, _, name in re.findall(r"`(test_\w+\.py)(::(\w+))?`", text):
        source = (ROOT / "tests" / "py" / file).read_text()
        assert not name or f"def {name}(" in source, name
    for entry in MANUAL.iterdir():
        assert f"`examples/manual/{entry.name}" in text, entry.name
