# SPDX-License-Identifier: Apache-2.0
"""Numbers of a step for wandb, mlflow (a function) and TensorBoard (a folder): what a watch and a live check tell,
what stands in the event file, and that somebody's function can hurt nothing."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import ulpscope
from ulpscope import _core

TRAIN = """
import torch
torch.manual_seed(0)
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    model(torch.ones(3, 8) * (step + 1)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def trained(told, **watched):
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    norms = []
    with ulpscope.watch(model, optimizer, scalars=told, **watched):
        for step in range(6):
            model(torch.ones(3, 8) * (step + 1)).pow(2).mean().backward()
            norms.append(math.sqrt(sum(float(p.grad.double().pow(2).sum()) for p in model.parameters())))
            if step == 4:
                model.bias.grad[0] = math.nan
            optimizer.step()
            optimizer.zero_grad()
    return norms, [p.detach().clone() for p in model.parameters()]


def test_a_watch_tells_each_step(tmp_path):
    heard = []
    norms, weights = trained(lambda values, step: heard.append((step, values)))
    assert [step for step, _ in heard] == sorted({step for step, _ in heard}) and len(heard) == 6
    for (_, values), norm in zip(heard[:4], norms):
        assert values["ulpscope/grad_norm"] == pytest.approx(norm, rel=1e-6)
        assert values["ulpscope/grad_nonfinite"] == 0
    assert heard[4][1]["ulpscope/grad_nonfinite"] == 1 and heard[4][1]["ulpscope/events"] >= 1
    _, without = trained(None)
    assert all(torch.equal(a, b) or a.isnan().any() for a, b in zip(weights, without))


def test_what_reads_event_files_reads_it(tmp_path):
    norms, _ = trained(tmp_path / "board")
    [path] = (tmp_path / "board").iterdir()
    assert path.name.startswith("events.out.tfevents.")
    (tmp_path / "norms.csv").write_text("step,norm\n" + "".join(f"{i},{n:.9g}\n" for i, n in enumerate(norms[:4])))
    keys = "A=ulpscope/grad_norm,B=norm"
    done = subprocess.run(
        ["ulpscope", "loss", path, tmp_path / "norms.csv", "--key", keys, "--json"], capture_output=True, text=True
    )
    told = json.loads(done.stdout)
    assert told["a"]["n"] == 6 and told["a"]["key"] == "ulpscope/grad_norm"
    assert told["n"] == 4 and told["mean_relative"] < 1e-6
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    board = reader.EventAccumulator(str(tmp_path / "board"))
    board.Reload()
    read = board.Scalars("ulpscope/grad_norm")
    assert [round(e.step) for e in read] == sorted(round(e.step) for e in read) and len(read) == 6
    assert read[0].value == pytest.approx(norms[0], rel=1e-6)


def test_a_record_as_the_format_has_it():
    """Length, CRC of it, an Event, CRC of that; the numbers of docs/reference/metrics.md are not in it."""
    record = _core.event_record(1.5, 300, {"a": 0.5})
    size = int.from_bytes(record[:8], "little")
    assert len(record) == 12 + size + 4
    event = record[12 : 12 + size]
    # 1: wall time; 2: step, a varint of two bytes; 5: summary > 1: value > 1: "a", 2: 0.5f
    assert event == bytes.fromhex("09000000000000f83f 10ac02 2a0a0a08 0a0161 15000000 3f")
    assert b"brain.Event:2" in _core.event_record(0.0, 0, {})
    with pytest.raises(TypeError):
        _core.event_record(0.0, 0, {"a": "x"})


def test_a_function_that_fails_is_told_once_and_hurts_nothing(capfd):
    heard = []

    def broken(values, step):
        heard.append(step)
        raise KeyError("no run")

    _, weights = trained(broken)
    _, without = trained(None)
    assert len(heard) == 1 and capfd.readouterr().err.count("it goes on without them") == 1
    assert all(torch.equal(a, b) or a.isnan().any() for a, b in zip(weights, without))
    with pytest.raises(ValueError, match="wandb.log"):
        trained(3)


def test_a_live_check_tells_how_many_and_the_least_bits(tmp_path):
    heard = []
    with ulpscope.live_check(ops="mm,addmm,relu", scalars=lambda values, step: heard.append((step, values))) as live:
        for _ in range(3):
            torch.relu(torch.ones(4, 4) @ torch.ones(4, 4))
            ulpscope.step()
        assert live.findings() == []
    assert heard and heard[-1][1] == {
        "ulpscope/judged": live.judged,
        "ulpscope/unjudged": live.unjudged,
        "ulpscope/accused": 0,
    }
    assert live.judged >= 6


@pytest.mark.parametrize("mode", ["--watch", "--check"])
def test_run_writes_an_event_file(tmp_path, mode):
    (tmp_path / "train.py").write_text(TRAIN)
    done = subprocess.run(
        ["ulpscope", "run", mode, "--tensorboard", "board", "--", sys.executable, "train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 2), done.stderr  # six steps are too few to judge by
    [path] = (tmp_path / "board").iterdir()
    assert (b"ulpscope/grad_norm" if mode == "--watch" else b"ulpscope/judged") in Path(path).read_bytes()


def test_a_folder_for_nothing_is_refused(tmp_path):
    words = ["ulpscope", "run", "--nan", "--tensorboard", "board", "--", "true"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2 and "--watch or --check" in done.stderr
