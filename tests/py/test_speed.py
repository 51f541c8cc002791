# SPDX-License-Identifier: Apache-2.0
"""What a check spends: threads by the size of a call. Each through the whole command."""

import os

import pytest
import torch
from test_check_run import check
from traces import TraceWriter

from ulpscope import _threads

CORES = _threads.most(len(os.sched_getaffinity(0)), 1, {})


@pytest.fixture(scope="module")
def two_sizes(tmp_path_factory):
    """A trace of a small call and of one that is worth sharing out."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("sizes") / "trace"
    with TraceWriter(folder) as t:
        t.add("aten::mm", torch.randn(6, 8), torch.randn(8, 4))
        t.add("aten::gelu", torch.randn(600, 600))
    return folder


@pytest.mark.parametrize("said, large", [("", CORES), ("1", 1), ("3", 3), ("2,1", 2)])
def test_threads_follow_the_environment_and_the_size_of_the_call(two_sizes, tmp_path, monkeypatch, said, large):
    told = tmp_path / "told"
    monkeypatch.setenv("SPEED_TELLS", str(told))
    run = check(two_sizes, tmp_path / "out", "--repeat", "1", threads=said,
                device="python:speed_devices:telling_threads")  # fmt: skip
    assert run.returncode == 0
    assert told.read_text().split("\n")[:2] == ["mm 1", f"gelu {large}"]


@pytest.mark.parametrize("environment, threads", [
    ({}, 4), ({"OMP_NUM_THREADS": "6"}, 6), ({"OMP_NUM_THREADS": "0"}, 4), ({"OMP_NUM_THREADS": "x"}, 4),
])  # fmt: skip
def test_threads_of_a_worker(environment, threads):
    assert _threads.most(8, 2, environment) == threads
