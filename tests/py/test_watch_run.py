# SPDX-License-Identifier: Apache-2.0
"""`ulpscope run --watch`: programs that know nothing of the watch, alone and over ranks; what is not watched, and
what a configuration says."""

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from torch import nn

import ulpscope
import ulpscope.sim
from ulpscope import _core
from ulpscope.watching import watch_found, watch_rows


TRAIN = """
    import os, signal, sys, time, torch
    import torch.distributed as dist
    from torch import nn
    what, world, rank = sys.argv[1], int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16))
    model = net
    if world > 1:
        dist.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(rank)
    last = rank == world - 1
    for step in range(40):
        model(torch.randn(8, 16)).pow(2).mean().backward()
        if what == "grad" and last and step == 30:
            net[0].weight.grad.view(-1)[5] = 1e30
        optimizer.step()
        optimizer.zero_grad()
        if what == "weight" and last and step == 30:
            net[0].weight.data.view(torch.int32).view(-1)[5] ^= 1
        if what == "killed" and last and step == 30:
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "slow" and last and step == 30:
            time.sleep(2)
    print("done", flush=True)
    if world > 1:
        dist.destroy_process_group()
"""


def run(folder, what, ranks=1, *options, config=None, logged=None):
    setup = f"import logging\nlogging.basicConfig(filename={logged!r})\n" if logged else ""
    (folder / "train.py").write_text(setup + textwrap.dedent(TRAIN))
    command = [sys.executable, "train.py", what]
    if ranks > 1:
        command[1:1] = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    watch = "--watch" if config is None else f"--watch={config}"
    return subprocess.run(
        ["ulpscope", "run", watch, *options, "--", *command],
        cwd=folder,
        text=True,
        capture_output=True,
        timeout=120,
        env=dict(os.environ, OMP_NUM_THREADS="1"),
    )


def test_a_program_that_knows_nothing_of_it(tmp_path):
    done = run(tmp_path, "clean", 1, "--watch-log", "w.jsonl")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert "no alarm in 40 optimizer steps" in done.stderr and "ulpscope watch w.jsonl" in done.stderr
    assert "not watched: matrix products (matmul_every:100)" in done.stderr
    lines = [json.loads(line) for line in (tmp_path / "w.jsonl").open()]
    assert lines[0] == {
        "ulpscope_watch": 1,
        "world": 1,
        "tensors": [["0.weight", "float32"], ["0.bias", "float32"], ["2.weight", "float32"], ["2.bias", "float32"]],
    }
    assert {line["site"] for line in lines[1:]} >= {"weight", "update", "moment1", "moment2"}
    done = run(tmp_path, "grad")
    said = [line for line in done.stderr.splitlines() if "the gradient of '0.weight'" in line]
    assert done.returncode == 1 and said and len(said) == len(set(said)), done.stderr
    done = run(tmp_path, "grad", logged="job.log")  # where logging goes elsewhere, the end tells
    said = [line for line in done.stderr.splitlines() if "the gradient of '0.weight'" in line]
    assert done.returncode == 1 and said and len(said) == len(set(said)), done.stderr
    assert "the gradient of '0.weight'" in (tmp_path / "job.log").read_text()


def test_the_first_step_is_read_once(monkeypatch):
    taken = []
    take = watch_rows.RowReader.take
    monkeypatch.setattr(
        watch_rows.RowReader, "take", lambda self, tag, *rest: taken.append(tag[:2]) or take(self, tag, *rest)
    )
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with watch_found.FoundWatches("weights_every:1", None) as found:
        for _ in range(3):
            net(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    assert found.error is None and found.n_steps == 3
    assert [tag for tag in taken if tag[1] in ("grad", "update")] == [
        (step, site) for step in range(3) for site in ("grad", "update")
    ]


NOT_WATCHED = {
    "": (
        torch.float32,
        3,
        "matrix products (matmul_every:100); other operators (audit:100); weights and optimizer state but at",
    ),
    "matmul_every:1,weights_every:1,audit:9": (
        torch.float32,
        3,
        "matrix products but those of nn.Linear, one of so many; copies",
    ),
    "audit:9": (torch.float32, 3, "; anything against its past (3 steps, of which the first 8 are what is learnt by)"),
    "mode:asd,enable:true": (torch.float16, 0, "anything (one float16 parameter switches mode asd off"),
    "enable:false": (torch.float32, 0, "anything (mode sound is off"),
    "mode:asd,enable:false": (torch.float32, 0, "anything (mode asd is off"),
    "mode:asd,enable:true,with_checksum:true": (torch.float32, 3, "(with_checksum looks at bfloat16 alone)"),
}


@pytest.mark.parametrize("config", NOT_WATCHED)
def test_what_is_not_watched_is_said(config):
    """And steps at which nothing was are none that were watched: `run --watch` ends with 2 then."""
    dtype, n_watched, words = NOT_WATCHED[config]
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)).to(dtype)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with watch_found.FoundWatches(config, None) as found:
        for _ in range(3):
            net(torch.ones(2, 4, dtype=dtype)).sum().backward()
            optimizer.step()
    assert found.error is None and (found.n_steps, found.n_watched) == (3, n_watched)
    assert found.not_watched().startswith("not watched: ") and words in found.not_watched()


def test_a_config_says_what_is_read_and_done(tmp_path):
    """All that an argument of `ulpscope.watch` may say, for a program that knows nothing of it."""
    every = "weights_every:1,matmul_every:1,audit:2"
    done = run(tmp_path, "grad", 1, config=f"{every},keep_calls:30,action:stop,exit_code:17")
    assert done.returncode == 17 and done.stdout == "" and "the job is stopped: " in done.stderr, done.stderr
    assert (
        "the gradient of '0.weight'" in done.stderr
        and f"ulpscope check {tmp_path}/ulpscope-watch --device" in done.stderr
    )
    with _core.Trace(tmp_path / "ulpscope-watch") as trace:
        assert len(trace.select()) == 30
    done = run(tmp_path, "clean", 1, "--watch-log", "w.jsonl", config=every)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    lines = [json.loads(line) for line in (tmp_path / "w.jsonl").open()]
    assert [line["step"] for line in lines[1:] if line["site"] == "weight"] == list(range(40))
    assert {line["site"] for line in lines[1:]} >= {"matmul", "matmul_input", "matmul_weight"}


def test_arguments_count_before_a_config():
    net = nn.Linear(2, 2)
    with ulpscope.watch(
        net, torch.optim.SGD(net.parameters(), lr=1), "weights_every:7,action:raise", action="log"
    ) as w:
        assert (w.weights_every, w.action, w.exit_code) == (7, "log", 3)


def test_a_bad_config_starts_nothing(tmp_path):
    (tmp_path / "train.py").write_text("print('ran')")
    done = subprocess.run(
        ["ulpscope", "run", "--watch=coldown:3", "--", sys.executable, "train.py"],
        cwd=tmp_path,
        text=True,
        capture_output=True,
    )
    assert done.returncode == 2 and "cooldown" in done.stderr and "ran" not in done.stdout


def test_a_rank_is_named(tmp_path):
    done = run(tmp_path, "weight", 3)
    assert done.returncode == 1, done.stderr
    assert "rank 2 is not what the other ranks have" in done.stderr and "2 of 3 agree" in done.stderr
    clean = run(tmp_path, "slow", 3)
    assert clean.returncode == 0 and "no alarm in 120 optimizer steps of 3 processes" in clean.stderr, clean.stderr


@pytest.mark.parametrize("config", [None, "action:skip"])
def test_a_killed_rank_ends_nobody_else_by_the_watch(config, tmp_path):
    """The others end by their own all-reduce or by torchrun, as without; it does not hang."""
    done = run(tmp_path, "killed", 2, config=config)
    assert done.returncode not in (0, 2) and "the watch failed" not in done.stderr, done.stderr


@pytest.mark.parametrize("page", ["reference/watch-reference.md", "background/watch.zh.md"])
def test_a_reference_has_every_key_and_variable(page):
    """With its default, in English and in Chinese; and no other key."""
    text = (Path(__file__).resolve().parents[2] / "docs" / page).read_text()
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    told = {key: row for row in rows if len(row) == 4 for key in re.findall(r"`([a-z_0-9]+)`", row[0])}
    keys = _core.Watch("").config()
    flags = {"mode", "enable", "detectors", "world", "loss_scaling", "with_checksum"}
    assert set(told) == set(keys) | flags
    for key, value in keys.items():
        assert re.search(rf"(?<!\d){value}(?!\d)", told[key][1]), key
    assert {row[0] for row in rows if len(row) == 2} >= {"`NPU_ASD_CONFIG`", "`TORCH_NPU_LOGS`"}
    for word in ("log", "skip", "raise", "stop"):
        assert f"`{word}`" in told["action"][2]
