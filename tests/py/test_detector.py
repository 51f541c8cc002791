# SPDX-License-Identifier: Apache-2.0
"""examples/yolo, written for CUDA: `ulpscope port --to sim` and nothing else, and it trains on one device and on two
ranks as on the CPU, bit by bit; its kernels are judged, and what is wrong in one is found. The manual's converter."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("ulpscope.sim", exc_type=OSError)
if not torch.distributed.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

SOURCE = Path(__file__).resolve().parents[2] / "examples" / "yolo"
SMALL = ["--epochs", "2", "--images", "32", "--val-images", "8", "--batch-size", "8"]
RANKS = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def run(*words, cwd=None, code=0, **environment):
    done = subprocess.run(
        [str(w) for w in words],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def train(folder, *words, start=(sys.executable,), code=0):
    return run(*start, "train.py", *SMALL, *words, cwd=folder, code=code)


def numbers(text):
    """Losses of each step, mAP, detections of each image: all that must not depend on the device."""
    losses = re.findall(r"loss=(\S+)", text)
    assert len(losses) == 8
    return losses, re.findall(r"(?:mAP\w*|conf)=(\S+)", text), re.findall(r"(\d+) without a detection: (.*)", text)


@pytest.fixture(scope="module")
def ported(tmp_path_factory):
    """A copy of the example and what the porter makes of it; what is left are settings of cuDNN alone."""
    folder = tmp_path_factory.mktemp("detector")
    shutil.copytree(SOURCE, folder / "yolo", ignore=shutil.ignore_patterns("__pycache__"))
    said = run("ulpscope", "port", folder / "yolo", "--to", "sim", "-o", folder / "sim", code=1)
    left = re.findall(r"^\S+:\d+: (.*?): ", said, re.M)
    assert left == ["'torch.backends.cudnn.benchmark'", "'torch.backends.cudnn.deterministic'"]
    return folder / "sim"


@pytest.fixture(scope="module")
def on_cpu(ported):
    """The program as it was written, without a device; its weights and its output are kept."""
    said = train(ported.parent / "yolo", "--device", "cpu", "--save", ported.parent / "w.pt")
    (ported.parent / "cpu.log").write_text(said)
    return numbers(said)


# The places of chapter 10.1 of the manual: device, backend, mixed precision, seeds, memory.
PLACES = {
    "train.py": [
        'assert torch.sim.device_count() > LOCAL_RANK, "insufficient CUDA devices for DDP command"',
        "torch.sim.set_device(LOCAL_RANK)",
        'device = torch.device("sim", LOCAL_RANK)',
        'gpus = device.type == "sim" and dist.is_backend_available("simccl")',
        'dist.init_process_group(backend="simccl" if gpus else "gloo", timeout=timedelta(seconds=600))',
        "scaler = torch.sim.amp.GradScaler(enabled=amp)",
        "with torch.sim.amp.autocast(amp):",
        'mem = f"{torch.sim.memory_reserved() / 1e9 if torch.sim.is_available() else 0:.3g}G"',
        "torch.sim.empty_cache()",
    ],
    "utils/torch_utils.py": ['os.environ["ULPSCOPE_SIM_VISIBLE_DEVICES"] = device', 'arg = "sim:0"'],
    "utils/general.py": ["torch.sim.manual_seed(seed)", "torch.sim.manual_seed_all(seed)"],
    "utils/nms.cu": ["TORCH_LIBRARY_IMPL(yolo, PrivateUse1, m)"],
}


def test_the_places_of_the_manual_change_and_nothing_else(ported):
    for file in sorted(p.relative_to(ported) for p in ported.rglob("*") if p.suffix in (".py", ".cu")):
        before, after = ((p / file).read_text().splitlines() for p in (ported.parent / "yolo", ported))
        old, new = ([line for line in a if line not in b] for a, b in ((before, after), (after, before)))
        assert len(old) == len([line for line in new if line != "import ulpscope.sim"])
        assert all(re.search("cuda|nccl|cpp_extension", line.lower()) for line in old), old
        for place in PLACES.get(str(file), []):
            assert any(place in line for line in new), place
    assert not [p for p in ("data.py", "model.py", "loss.py") if (ported / p).read_text() != (SOURCE / p).read_text()]


def test_in_place_and_back(ported, tmp_path):
    shutil.copytree(ported.parent / "yolo", tmp_path / "yolo", ignore=shutil.ignore_patterns("__pycache__"))
    before = {p: p.read_bytes() for p in (tmp_path / "yolo").rglob("*") if p.is_file()}
    run("ulpscope", "port", tmp_path / "yolo", "--to", "sim", "--in-place", code=1)
    assert (tmp_path / "yolo/train.py").read_text() == (ported / "train.py").read_text()
    run("ulpscope", "port", tmp_path / "yolo", "--revert")
    assert {p: p.read_bytes() for p in (tmp_path / "yolo").rglob("*") if p.is_file()} == before


def test_the_manuals_converter(ported, tmp_path):
    """musa-converter -r DIR -l DIR/train.py: Python alone, and the file of -l loads the device."""
    folder = tmp_path / "yolo"
    shutil.copytree(ported.parent / "yolo", folder, ignore=shutil.ignore_patterns("__pycache__"))
    module = "ulpscope.compat.torch_musa.utils.musa_converter"
    run(sys.executable, "-m", module, "-r", folder, "-l", folder / "train.py")
    text = (folder / "train.py").read_text()
    assert text.count("import torch_musa\n") == 1 and 'backend="mccl" if gpus' in text
    assert "torch.musa.amp.autocast(amp)" in text and "torch.musa.amp.GradScaler(enabled=amp)" in text
    assert "torch.musa.manual_seed_all(seed)" in (folder / "utils/general.py").read_text()
    assert 'os.environ["MUSA_VISIBLE_DEVICES"]' in (folder / "utils/torch_utils.py").read_text()
    assert (folder / "utils/nms.cu").read_text() == (SOURCE / "utils/nms.cu").read_text()


def test_one_device_is_the_cpu_bit_by_bit(ported, on_cpu):
    assert numbers(train(ported, "--device", "0", "--no-amp")) == on_cpu
    assert on_cpu[2][0][0] == "0"  # no image is empty
    assert float(on_cpu[1][0]) > 0


def test_two_ranks_are_two_ranks_of_the_cpu(ported, on_cpu):
    sim = numbers(train(ported, "--device", "0,1", "--no-amp", start=RANKS))
    assert sim == numbers(train(ported.parent / "yolo", "--device", "cpu", start=RANKS))
    assert sim[0] != on_cpu[0]  # other images in each batch


JUDGE = """
import sys, torch, ulpscope.sim
from ulpscope.testing import assert_accurate
from utils import ops
ops.build()
g = torch.Generator().manual_seed(0)
xy = torch.rand(150, 2, generator=g) * 40
boxes = torch.cat([xy, xy + 2 + torch.rand(150, 2, generator=g) * 20], 1).to("sim")
scores = torch.rand(150, generator=g).to("sim")
kept = lambda op: lambda boxes, scores: op(boxes, scores, 0.5)
print(assert_accurate(kept(torch.ops.yolo.nms), kept(ops.nms_cpu), boxes, scores).verdict)
print(assert_accurate(torch.ops.yolo.box_iou, ops.box_iou_cpu, boxes, boxes[:7].contiguous()).verdict)
"""


def test_its_kernels_are_judged(ported):
    assert run(sys.executable, "-W", "ignore", "-c", JUDGE, cwd=ported).split() == ["pass", "pass"]


FAULT = "index_select:index_shifted"  # nms.cu calls it, and nothing else of a validation


def test_amp_trains_and_a_check_finds_a_fault_in_a_kernel(ported, on_cpu, tmp_path):
    """Of what follows the last step, the validation, the ported operators are captured and judged. Of eight steps the
    scaler leaves out two, whose gradients are too large in float16: the first loss is of the same weights, later ones
    drift, and by how much is the processor's order of summation, too. No optimizer ends step 6, as the code says."""
    words = ["ulpscope", "capture", "--steps", "6", "--ops", "yolo::*", "-o", tmp_path / "t", "--"]
    start = [*words, sys.executable, "-W", "ignore"]
    mixed = train(ported, "--device", "0", "--val-images", "2", start=start, code=2)
    losses = [float(x) for x in re.findall(r"loss=(\S+)", mixed)]
    exact = [float(x) for x in on_cpu[0]]
    assert losses != exact and losses == pytest.approx(exact, rel=0.06)
    assert losses[0] == pytest.approx(exact[0], rel=1e-3)
    check = ["ulpscope", "check", tmp_path / "t", "--device", "sim:0", "-j", "1", "--no-files"]
    assert "4 pass" in run(*check, "-o", tmp_path / "right")
    said = run(*check, "--ops", "yolo::nms", "--faults", FAULT, "-o", tmp_path / "wrong", code=1)
    assert "2 intermittent" in said and "yolo::nms is intermittent: the replay is wrong" in said


def test_bisect_names_the_kernel(ported, on_cpu, tmp_path):
    program = ["train.py", *SMALL, "--device", "0", "--epochs", "0", "--weights", ported.parent / "w.pt"]
    words = [
        "--loss",
        r"conf=(\S+)",
        "--reference",
        ported.parent / "cpu.log",
        "--ops",
        "yolo::*",
        "-o",
        tmp_path / "b",
    ]
    python = [sys.executable, "-W", "ignore"]
    said = run("ulpscope", "bisect", *words, "--", *python, *program, cwd=ported, code=1, ULPSCOPE_SIM_FAULTS=FAULT)
    assert "yolo::nms" in said and "yolo::box_iou" not in said
