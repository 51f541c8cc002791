# SPDX-License-Identifier: Apache-2.0
"""The listings of torch_musa's developer manual on the simulated device: examples/manual, each entry run; the page that
lists them names files and tests that are there."""

from __future__ import annotations

import ast
import json
import os
import re
import runpy
import shutil
import socket
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


def started(*words, **environment):
    more = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    more["env"] = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.Popen([str(word) for word in words], **more)


def ended(process):
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, out + err
    return out


def command(*words, **environment):
    return ended(started(*words, **environment))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


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


def test_7_an_extension_gives_the_manuals_numbers(same_place, monkeypatch):
    shutil.copytree(MANUAL / "07-extension", same_place, dirs_exist_ok=True)
    monkeypatch.chdir(same_place)
    build = (sys.executable, "setup.py", "build_ext", "--inplace")
    command(*build, FORCE_SIM="1")
    said = command(sys.executable, "try.py")
    kept = [[3.0, 6.0, 9.0, 11.0, 0.9], [6.0, 3.0, 8.0, 7.0, 0.6], [1.0, 4.0, 13.0, 7.0, 0.2]]
    dets = re.search(r"tensor\((.*?), device='sim:0'\)", said, re.S)[1]
    assert torch.allclose(torch.tensor(ast.literal_eval(dets)), torch.tensor(kept))
    assert "tensor([1, 0, 3], device='sim:0')" in said
    ious = {words: json.loads(numbers) for words, numbers in re.findall(r"^(io. \w+) (\[.*\])$", said, re.M)}
    for words, expected in {
        "iou False": [[0.0714, 1.0, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, 0.5]],
        "iou True": [0.0714, 0.5, 0.5],
        "iof False": [[0.1111, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        "iof True": [0.1111, 1.0, 1.0],
    }.items():
        assert torch.allclose(torch.tensor(ious[words]), torch.tensor(expected)), words

    upsample = "import torch, boxes, ulpscope.sim; x = torch.randn(101, 99); y = boxes.upsample(x.sim()).cpu()"
    same = "assert torch.equal(y, x.repeat_interleave(2, 0).repeat_interleave(2, 1))"
    command(sys.executable, "-c", f"{upsample}; {same}")

    refused = started(*build, FORCE_SIM="1", ULPSCOPE_SIM_PROFILE="full:shared=28K")  # nothing is compiled again
    _, err = refused.communicate()
    assert refused.returncode == 1 and re.search(
        r"kernel \(anonymous namespace\)::upsample_kernel has 30720 bytes of static shared memory; a block has 28672 "
        r"\(profile full:shared=28K",
        err,
    ), err


needs_profiler = pytest.mark.skipif(not torch.sim.has_profiler(), reason="this torch's profiler takes no devices")


@needs_profiler
def test_8_1_one_process(capsys, tmp_path):
    said = here("08-1-profiler.py", capsys, tmp_path)
    tables = re.findall(r"^-+ .*?(?=^Self SIM time total)", said, re.M | re.S)
    assert len(tables) == 4 and "aten::convolution" in tables[0]
    assert "Input Shapes" in tables[2] and "Source Location" in tables[3]
    column = [row.split() for row in tables[0].splitlines() if "aten::" in row]
    times = [float(re.match(r"[\d.]+", row[6])[0]) * (1000 if row[6].endswith("ms") else 1) for row in column]
    assert times == sorted(times, reverse=True) and times[0] > 0
    traces = sorted(tmp_path.glob("trace_*.json"))
    assert len(traces) == 2
    for trace in traces:
        kinds = {event.get("cat") for event in json.loads(trace.read_text())["traceEvents"]}
        assert {"cpu_op", "kernel"} <= kinds
    stacks = (tmp_path / "profiler_stacks.txt").read_text()
    assert re.search(r"08-1-profiler\.py\(\d+\):_<module>;.* \d+$", stacks, re.M)


@needs_profiler
@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")
@pytest.mark.parametrize("several", ["processes", "nodes"])
def test_8_1_several(several, tmp_path):
    script, port = MANUAL / f"08-1-profiler-{several}.py", free_port()
    words = [[]] if several == "processes" else [["-n", 2, "-g", 1, "-nr", i] for i in (0, 1)]
    for process in [started(sys.executable, script, *more, MASTER_PORT=port) for more in words]:
        ended(process)
    folder = tmp_path / ("result_ddp" if several == "processes" else "result_dist_ddp")
    for rank in (0, 1):
        (trace,) = folder.glob(f"worker{rank}.*.pt.trace.json")
        told = json.loads(trace.read_text())
        assert told["distributedInfo"]["rank"] == rank
        names = {event.get("name", "") for event in told["traceEvents"]}
        assert any("allreduce" in name for name in names)


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
