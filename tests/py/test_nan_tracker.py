# SPDX-License-Identifier: Apache-2.0
"""`ulpscope.nan_tracker`: births while a program trains, on the simulated device and the CPU, of
honest steps and of planted faults; and that it never harms the program."""

import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

import ulpscope
import ulpscope.sim

DEVICES = ("cpu", "sim:0")


@pytest.fixture(autouse=True)
def nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    yield
    assert not list(tmp_path.iterdir())


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.act, self.down = torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 16)

    def forward(self, x):
        y = self.down(self.act(self.up(x)))
        mask = torch.ones(len(y), len(y), device=y.device).triu(1).bool()
        return torch.softmax((y @ y.T).masked_fill(mask, float("-inf")), -1) @ y


def train(device, steps=2, loss=lambda y: y.pow(2).sum(), data=lambda step, x: x, rate=0.0):
    torch.manual_seed(0)
    net = Net().to(device)
    opt = torch.optim.SGD(net.parameters(), lr=rate)
    for step in range(steps):
        opt.zero_grad()
        loss(net(data(step, torch.randn(8, 16)).to(device))).backward()
        opt.step()


def overflow(y):
    return (y.half() * 3e5).float().sum()


@pytest.mark.parametrize("device", DEVICES)
def test_an_honest_step_bears_nothing(device):
    with ulpscope.nan_tracker(on_birth="raise") as nan:
        train(device, rate=0.01)
    assert (nan.births(), nan.n_births, nan.error) == ([], 0, None)


@pytest.mark.parametrize("device", DEVICES)
def test_an_overflow_names_its_dtype_and_not_its_carriers(device):
    with ulpscope.nan_tracker() as nan:
        train(device, loss=overflow)
    first = nan.births()[0]
    assert (first.op, first.step, first.phase, first.kind, first.value) == (
        "aten::mul.Tensor",
        0,
        "forward",
        "born",
        "Inf",
    )
    assert first.inputs.startswith("float16[8, 16]") and "float16 ends at 65504" in first.sentence
    assert first.call > 0 and first.stack[0][0] == __file__ and first.stack[0][2] == "overflow"
    assert "aten::_to_copy" not in [b.op for b in nan.births()]


@pytest.mark.parametrize("device", DEVICES)
def test_nan_in_the_data_is_not_the_first_operators_fault(device):
    x = torch.randn(8, 16)
    x[2, 3] = float("nan")
    with ulpscope.nan_tracker() as nan:
        train(device, data=lambda step, _: x if step == 1 else torch.ones(8, 16))
    found = nan.births()
    assert [(b.kind, b.value, b.step) for b in found] == [("entered", "NaN", 1)]
    assert "written before the capture" in found[0].sentence


@pytest.mark.parametrize("device", DEVICES)
def test_inf_in_backward_is_found_there(device):
    with ulpscope.nan_tracker() as nan:
        train(device, loss=lambda y: y.half().mul(4096.0).float().mul(1e4).sum())
    first = nan.births()[0]
    assert (first.phase, first.kind, first.value) == ("backward", "born", "Inf"), nan.births()


def test_what_lay_in_memory_that_is_written_over_does_not_come_in():
    out, other = torch.full((4,), float("nan")), torch.full((4,), float("nan"))
    with ulpscope.nan_tracker() as nan:
        torch.mul(torch.ones(4), 2.0, out=out)
        other.copy_(torch.ones(4))
        torch.log(-out, out=out)
    assert [(b.op, b.kind) for b in nan.births()] == [("aten::log.out", "born")]


# softmax reads an Inf that is meant: what it made of that, statistics cannot tell
FAULTS = (
    ("aten::tanh:inf", "forward", "Inf", "act", "born"),
    ("aten::tanh_backward:nan", "backward", "NaN", "act", "born"),
    ("aten::_softmax:nan", "forward", "NaN", "", "turned"),
)


@pytest.mark.parametrize(("fault", "phase", "value", "module", "kind"), FAULTS)
def test_a_planted_fault_is_named(fault, phase, value, module, kind):
    with ulpscope.sim.plant(fault), ulpscope.nan_tracker() as nan:
        train("sim:0")
    first = nan.births()[0]
    assert (first.op, first.phase, first.value) == (fault.rpartition(":")[0], phase, value)
    assert (first.module, first.kind) == (module, kind)


def test_births_are_there_while_it_runs_and_counted_beyond_what_is_kept():
    with ulpscope.nan_tracker(keep=1) as nan:
        assert nan.births() == []
        torch.log(torch.tensor([-1.0]))
        assert [b.op for b in nan.births()] == ["aten::log"]
        nan.step()
        torch.sqrt(torch.tensor([-1.0]))
        assert nan.births()[0].step == 0
    assert (len(nan.births()), nan.n_births) == (1, 2)


@pytest.mark.parametrize("device", DEVICES)
def test_a_view_of_what_came_from_outside_makes_no_nan(device):
    x = torch.full((16,), float("nan")).to(device)
    for view in (lambda: x.view(4, 4), lambda: x[1:], lambda: x.detach().t(), lambda: x.unsqueeze(0)):
        with ulpscope.nan_tracker() as nan:
            view() + 1
        assert [(b.op, b.kind) for b in nan.births()] == [("aten::add.Tensor", "entered")]


def test_steps_and_operators_that_are_asked_for():
    with ulpscope.nan_tracker(steps=[1], ops="log,mul") as nan:
        for _ in range(3):
            bad = torch.sqrt(torch.tensor([-1.0]))
            torch.log(torch.tensor([-1.0]))
            ulpscope.step()
    assert [(b.op, b.step) for b in nan.births()] == [("aten::log", 1)]
    with ulpscope.nan_tracker(ops="mul") as nan:
        bad * 2
    assert [(b.op, b.kind) for b in nan.births()] == [("aten::mul.Tensor", "entered")]


def test_on_birth_is_told_at_the_end_of_the_step():
    heard = []
    with ulpscope.nan_tracker(on_birth=heard.append) as nan:
        train("cpu", loss=overflow)
    assert heard == nan.births() and heard
    with pytest.raises(FloatingPointError, match=r"Inf is born in aten::mul.Tensor, call \d+, step 0"):
        with ulpscope.nan_tracker(on_birth="raise"):
            train("cpu", loss=overflow)
    with pytest.raises(ZeroDivisionError), ulpscope.nan_tracker(on_birth=lambda birth: 1 / 0):
        train("cpu", loss=overflow)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, SystemExit])
def test_births_are_there_where_the_model_ends_by_an_exception(error):
    with pytest.raises(error), ulpscope.nan_tracker(on_birth="raise") as nan:
        torch.log(torch.tensor([-1.0]))
        raise error
    assert [b.op for b in nan.births()] == ["aten::log"]


def test_threads_are_watched():
    def work():
        torch.log(torch.full((4,), -1.0))

    with ulpscope.nan_tracker() as nan:
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [b.op for b in nan.births()] == ["aten::log"] * 8


def test_what_fails_inside_is_said_once_and_the_program_goes_on(monkeypatch, capfd):
    with ulpscope.nan_tracker(on_birth="raise") as nan:
        monkeypatch.setattr(nan.recorder, "begin", lambda step: 1 / 0)
        train("cpu", steps=3)
        torch.log(torch.tensor([-1.0]))
    assert "division by zero" in nan.error and nan.births() == []
    assert capfd.readouterr().err.count("NaN tracking failed") == 1


def test_numbers_and_random_streams_are_those_of_the_program():
    def run():
        torch.manual_seed(3)
        net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
        opt = torch.optim.Adam(net.parameters())
        for _ in range(3):
            opt.zero_grad()
            net(torch.randn(4, 8)).sum().backward()
            opt.step()
        return [p.detach().clone() for p in net.parameters()], torch.get_rng_state()

    plain, state = run()
    with ulpscope.nan_tracker():
        watched, state_watched = run()
    assert all(torch.equal(a, b) for a, b in zip(plain, watched)) and torch.equal(state, state_watched)


@pytest.mark.parametrize("bad", [{"keep": 0}, {"on_birth": "shout"}, {"steps": []}, {"step_by": "x"}, {"ops": "["}])
def test_bad_arguments_are_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        ulpscope.nan_tracker(**bad)


GROWTH = """
import resource, torch, ulpscope
keep = torch.randn(64, 64)
with ulpscope.nan_tracker() as nan:
    for step in range(3000):
        x = torch.empty(64, 64).normal_()
        y = (x @ keep).masked_fill(x > 2, float("-inf")).softmax(-1)
        (y * 2).sum()
        nan.step()
        if step == 1000:
            nan.births(); before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    nan.births()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, nan.n_births)
"""


def test_memory_does_not_grow_with_the_run():
    done = subprocess.run([sys.executable, "-c", GROWTH], capture_output=True, text=True, timeout=300)
    grown, births = map(int, done.stdout.split())
    assert births == 0 and grown < 4096, done.stdout + done.stderr  # KiB over 16,000 calls


def test_the_howto_says_what_it_finds():
    """Its first block, with a `train` that overflows, says its first sentence."""
    page = (Path(__file__).resolve().parents[2] / "docs/how-to/where-was-this-nan-born.md").read_text()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.S | re.M)
    code, said = (next(text for kind, text in blocks if kind == wanted) for wanted in ("python", ""))
    program = "import torch\ndef train():\n    (torch.ones(128).half() * 3e5).sum()\n" + code
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    own = r"call \d+|, module \w+|\d+ \+Inf(, \d+ -Inf)?|args\[0\] (is|lies from) [^,]*"  # of another program
    assert re.sub(own, "", done.stdout.split("\n")[0]) == re.sub(own, "", said.split("\n")[0])
    assert "; args[0] is 1, args[1] is 3e+05" in done.stdout
