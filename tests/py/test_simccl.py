# SPDX-License-Identifier: Apache-2.0
"""``simccl``: several processes on ``sim``, each collective the same as gloo's on the CPU, training too."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("ulpscope.sim", exc_type=OSError)
if not torch.distributed.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

SCRIPT = Path(__file__).with_name("simccl_ranks.py")


def run_ranks(what, n=2, script=SCRIPT, **environment):
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(n),
        str(script),
        what,
    ]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=600, env={**os.environ, "OMP_NUM_THREADS": "1", **environment}
    )


@pytest.mark.parametrize("what", ["in-step", "later"])
def test_everything_is_as_with_gloo_on_the_cpu(what):
    """Collectives, messages, DDP and FSDP, bit by bit, with kernels in step and when their turn comes."""
    ran = run_ranks(what)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert "rank 0 is through" in ran.stdout and "rank 1 is through" in ran.stdout


def test_four_ranks_train_as_one_process_does(tmp_path):
    """DDP and FSDP2 in a table, a checkpoint taken up by two of them, and each fault of collectives."""
    from torch.distributed import fsdp

    if not hasattr(fsdp, "fully_shard"):
        pytest.skip("this torch has no FSDP2")
    ran = run_ranks(str(tmp_path / "checkpoint"), 4, SCRIPT.with_name("simccl_four.py"))
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert all(f"rank {i} is through" in ran.stdout for i in range(4))


def test_a_rank_that_dies_is_named():
    ran = run_ranks("dies")
    assert "rank 0 was told" in ran.stdout, ran.stderr[-3000:]


STEP = """
import torch, torch.distributed as dist, ulpscope.sim
dist.init_process_group("simccl")
torch.manual_seed(dist.get_rank())
weight = torch.nn.Parameter(torch.ones(1, device="sim"))
optimizer = torch.optim.SGD([weight], lr=0.1)
optimizer.step()
for _ in range(5):
    dist.all_reduce(torch.randn(60).to("sim"))
optimizer.step()
dist.destroy_process_group()
"""


def test_a_check_of_all_ranks_names_what_went_wrong_between_them(tmp_path):
    """Of five sums four are faulty, each in its own way; the last is right."""
    (tmp_path / "step.py").write_text(STEP)
    faults = ("rank_lost:rank=1", "rank_twice:rank=0:instead=1", "ranks_bf16", "ranks_stale")
    planted = ";".join(f"simccl::all_reduce:{fault}:nth={i + 1}" for i, fault in enumerate(faults))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "step.py"]
    done = subprocess.run(
        ["ulpscope", "capture", "-o", "t", "--", *torchrun],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "ULPSCOPE_SIM_FAULTS": planted, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    done = subprocess.run(
        ["ulpscope", "check", "t", "--device", "sim:0", "-o", "out"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stderr
    rows = csv.DictReader((tmp_path / "out" / "rank-0" / "result.csv").open())
    sums = sorted((row for row in rows if row["op"].startswith("c10d::allreduce_")), key=lambda row: int(row["call"]))
    assert [row["verdict"] for row in sums] == ["wrong", "wrong", "reduced", "wrong", "pass"], done.stdout
    assert "that of rank 1 is missing" in sums[0]["cause"] and "rank 0's stands for rank 1's" in sums[1]["cause"]
