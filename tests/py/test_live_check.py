# SPDX-License-Identifier: Apache-2.0
"""`ulpscope.live_check`: every operator judged while a program trains, honest ones and planted
faults, on the simulated device and the CPU; and that it never harms the program."""

import contextlib
import functools
import os
import re

import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest
import torch

import ulpscope
import ulpscope.sim
from ulpscope.program import live as program_live

DEVICES = ("cpu", "sim:0")
PATIENCE = 300  # seconds, for a machine that does much else


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """Every test's private folders lie here, and are gone when its checks have ended."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "mkdtemp", functools.partial(tempfile.mkdtemp, dir=place))
    started, original = [], program_live.JudgeProcess.__init__

    def noted(self, settings):
        original(self, settings)
        started.append(self)

    monkeypatch.setattr(program_live.JudgeProcess, "__init__", noted)
    yield place
    for judge in started:
        judge.end()
        judge.listener.join(PATIENCE)
    assert not list(place.iterdir())


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.act, self.down = torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 16)
        self.norm = torch.nn.LayerNorm(16)

    def forward(self, x):
        return torch.softmax(self.norm(self.down(self.act(self.up(x)))), -1)


def train(device="sim:0", steps=2, fused=True, forward=lambda net, x: net(x), after=lambda step: None):
    """The losses of a few steps of a small net."""
    torch.manual_seed(0)
    net = Net().to(device)
    opt = torch.optim.AdamW(net.parameters(), fused=fused)
    losses = []
    for step in range(steps):
        opt.zero_grad()
        loss = forward(net, torch.randn(8, 16).to(device)).pow(2).sum()
        loss.backward()
        opt.step()
        losses.append(loss.item())
        after(step)
    return losses


def places(found):
    return {(f.op, f.phase, f.module, f.verdict) for f in found}


# ---- what it finds -------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_an_honest_run_is_accused_of_nothing(device, tmp_path):
    with ulpscope.live_check(output=tmp_path / "out") as live:
        train(device, fused=False)
    assert (live.findings(), live.error, live.skipped) == ([], None, 0)
    assert live.n_judged > 100
    done = subprocess.run(["ulpscope", "report", tmp_path / "out"], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert f"checked     {live.n_judged + live.unjudged} calls" in done.stdout
    assert f" on {device}" in " ".join(done.stdout.split()) and " s of judging (" in done.stdout


def test_a_scope_of_modules_and_threads_is_all_that_is_judged():
    with ulpscope.sim.fault("aten::addmm", "tf32"):
        with ulpscope.live_check(modules="up") as one, ulpscope.live_check(threads=[1]) as none:
            train(steps=1)
        assert {f.module for f in one.findings()} == {"up"} and one.n_judged > 0
        assert (none.findings(), none.n_judged, none.error) == ([], 0, None)


def test_planted_faults_are_named_with_step_and_module():
    faults = "aten::gelu:bf16_output; aten::gelu_backward:drop_tail; aten::_fused_adamw_:step_plus_one"
    with ulpscope.sim.plant(faults), ulpscope.live_check() as live:
        train()
    found = live.findings()
    assert places(found) == {
        ("aten::gelu", "forward", "act", "reduced"),
        ("aten::gelu_backward", "backward", "act", "wrong"),
        ("aten::_fused_adamw_", "optimizer", "", "wrong"),
    }
    assert sorted({f.step for f in found}) == [0, 1] and len(found) == 6
    first = next(f for f in found if f.op == "aten::gelu")
    assert first.cause == "result rounded to bfloat16" and 7 < first.effective_bits < 10
    assert first.output == "out[0]" and first.sentence.startswith("aten::gelu computed")
    assert first.expected_bits > 23  # the CPU's own gelu, which is not the same on all processors
    assert (__file__, "Net.forward") in [(file, function) for file, _, function in first.stack]
    adam = next(f for f in found if f.op == "aten::_fused_adamw_")
    assert adam.cause == "adds 1 to the step count a second time"


def test_findings_in_the_block_and_one_of_each_signature():
    def count(**options):
        with ulpscope.sim.plant("aten::gelu:bf16_output"), ulpscope.live_check(**options) as live:
            train(steps=1)
            inside = live.findings()
            train(steps=2)
        return live, inside

    plain, inside = count()
    assert [f.step for f in inside] == [0]
    assert [f.step for f in plain.findings()] == [0, 1, 2]
    few, _ = count(distinct=True, every=2)
    assert [f.step for f in few.findings()] == [0, 2]
    assert 0 < few.n_judged < plain.n_judged * 2 / 3 and few.skipped == 0


def test_only_what_is_asked_for_is_judged():
    with ulpscope.live_check(ops="gelu", steps=[1]) as live:
        train(steps=3)
    assert (live.findings(), live.n_judged) == ([], 1)


def test_on_fail():
    heard = []
    fault = "aten::gelu:bf16_output"
    with ulpscope.sim.plant(fault), ulpscope.live_check(on_fail=heard.append) as live:
        train(steps=1)
    assert heard == live.findings() and len(heard) == 1
    with ulpscope.sim.plant(fault), pytest.raises(ulpscope.CheckFailed, match="aten::gelu computed") as caught:
        with ulpscope.live_check(on_fail="raise"):
            train(steps=1)
    assert caught.value.finding.op == "aten::gelu"


def test_what_fails_can_be_kept(tmp_path):
    with ulpscope.sim.plant("aten::gelu:bf16_output"):
        with ulpscope.live_check(on_fail="dump", output=tmp_path / "out") as live:
            train(steps=1)
    trace, _, call = live.findings()[0].trace.partition("#")
    with ulpscope._core.Trace(trace) as kept:
        assert kept.call(int(call))["op"] == "aten::gelu"


# ---- what it does to the program: nothing --------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_losses_and_random_streams_are_the_same_in_every_bit(device):
    plain = train(device), torch.rand(4).tolist()
    with ulpscope.live_check(distinct=device == "cpu"):
        checked = train(device), torch.rand(4).tolist()
    assert checked == plain


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_findings_are_there_where_the_model_ends_by_an_exception(error):
    with ulpscope.sim.plant("aten::gelu:bf16_output"):
        with pytest.raises(error), ulpscope.live_check(on_fail="raise") as live:
            torch.nn.functional.gelu(torch.randn(64).to("sim:0"))
            raise error
    assert [f.op for f in live.findings()] == ["aten::gelu"]


def checkpointed(net, x):
    with torch.autocast("sim", dtype=torch.bfloat16):
        return torch.utils.checkpoint.checkpoint(net, x, use_reentrant=False)


def test_autocast_and_checkpoints_are_checked_as_they_run():
    with ulpscope.live_check() as live:
        train(forward=checkpointed)
    assert (live.findings(), live.error) == ([], None)
    with ulpscope.sim.plant("aten::native_layer_norm:scale"), ulpscope.live_check() as live:
        train(steps=1, forward=checkpointed)
    assert {(f.op, f.module) for f in live.findings()} == {("aten::native_layer_norm", "norm")}


def test_where_there_is_no_room_calls_are_counted(monkeypatch):
    monkeypatch.setattr(program_live, "ROOM", 1 << 10)
    with ulpscope.live_check() as live:
        train()
    assert live.findings() == [] and live.error is None
    assert live.skipped > 50 and live.n_judged < 20
    assert live.left_out == {"there was no room or time": live.skipped}


def test_who_had_no_room_is_judged_in_a_later_step(monkeypatch):
    """Each step has room for a few calls: the next one begins where there was none."""
    monkeypatch.setattr(program_live, "ROOM", 12 << 10)
    monkeypatch.setattr(program_live, "WAIT_S", 0.0)
    names = ("exp", "log", "sqrt", "sin", "cos", "tanh")
    with ulpscope.live_check() as live:
        with ulpscope.sim.plant("; ".join(f"aten::{name}:bf16_output" for name in names)):
            x = torch.rand(512).to("sim:0")
            for _ in range(12):
                for name in names:
                    getattr(torch, name)(x)
                    x = x.clone()  # each takes 2 KiB more
                live.findings()
                live.step()
    assert {f.op for f in live.findings()} == {f"aten::{name}" for name in names}
    assert live.skipped > 6 and live.error is None


def test_calls_that_are_left_out_are_counted_as_a_user_would():
    """Views, numbers that go to Python and what no device computes are no calls to be judged."""
    with ulpscope.live_check(budget=1e-9) as live:
        x = torch.rand(8).to("sim:0")  # judged: there was time before it
        x.exp().sum().item(), torch.rand(3) * 2
    live.findings()
    assert live.left_out == {"there was no room or time": 2} and live.n_judged == 1, live.left_out


def test_no_temporary_folder_is_said(monkeypatch, capsys):
    def refuse(*args, **kwargs):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "mkdtemp", refuse)
        with ulpscope.live_check() as live:
            assert len(train()) == 2
    assert live.findings() == [] and "No space left on device" in live.error
    assert capsys.readouterr().err.count("the program goes on") == 1


KILLED = """
import os, signal, torch, ulpscope
with ulpscope.live_check() as live:
    for _ in range(4):
        torch.randn(64, 64) @ torch.randn(64, 64)
        live.step()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_program_that_is_killed_leaves_nothing(tmp_path, temporary):
    done = subprocess.run(
        [sys.executable, "-c", KILLED], timeout=PATIENCE, env={**os.environ, "TMPDIR": str(temporary)}
    )
    assert done.returncode == -signal.SIGKILL
    end = time.monotonic() + PATIENCE
    while list(temporary.glob("ulpscope-*")) and time.monotonic() < end:
        time.sleep(0.1)
    shutil.rmtree(temporary / "torchinductor_root", ignore_errors=True)


BAD = (
    ({"ops": "a["}, "ops"),
    ({"steps": []}, "one step"),
    ({"every": 0}, "every 0"),
    ({"budget": 0}, "budget 0"),
    ({"on_fail": "stop"}, "on_fail 'stop'"),
    ({"on_fail": "dump"}, "name it, output="),
    ({"step_by": "x"}, "step_by"),
    ({"inputs": "x"}, "inputs 'x'"),
    ({"inputs": "reference"}, "are for modules"),
    ({"level": "x"}, "level 'x'"),
    ({"level": "module", "ops": "mm"}, "leave out ops"),
)


@pytest.mark.parametrize(("arguments", "said"), BAD)
def test_bad_arguments_are_sentences(arguments, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        ulpscope.live_check(**arguments)


# ---- modules -------------------------------------------------------------------------


def test_a_module_is_judged_from_its_own_inputs_on():
    with ulpscope.live_check(level="module", distinct=True) as live:
        train(steps=1, forward=checkpointed)
    assert (live.findings(), live.error) == ([], None) and live.n_judged > 0
    with ulpscope.sim.plant("aten::gelu:bf16_output"), ulpscope.live_check(level="module") as live:
        train(steps=1)
    found = {f.module: f for f in live.findings()}
    assert set(found) == {"", "act"}, "what lies behind it is right, from what it was given"
    assert found["act"].op == "module:act" and found["act"].cause == "result rounded to bfloat16"


def test_modules_inside_which_autocast_rounds_are_held_to_what_that_costs():
    """Their chain in float64 does not round where autocast does, runs that tell what that costs do; an error beyond is
    found."""

    def forward(net, x):
        with torch.autocast("sim", torch.bfloat16):
            return net(x)

    def judged(fault=None, **options):
        with ulpscope.sim.plant(fault) if fault else contextlib.nullcontext(), ulpscope.live_check(**options) as live:
            train(steps=1, forward=forward)
        found = {f.module: f for f in live.findings()}
        assert (live.error, live.left_out) == (None, {}) and live.n_judged > 0
        return found

    for inputs in ("device", "reference"):
        assert judged(level="module", **({"inputs": inputs} if inputs != "device" else {})) == {}
    found = judged("aten::gelu:scale:factor=0.5", level="module")
    assert "act" in found and "0.5" in found["act"].cause
    assert found[""].verdict in ("reduced", "wrong"), "the whole, beyond its own roundings"
    assert {(f.op, f.module) for f in judged("aten::addmm:scale").values()} == {
        ("aten::addmm", "up"),
        ("aten::addmm", "down"),
    }


@pytest.mark.parametrize("shape", [None, (4, 4)])  # the last step is a view
def test_a_model_in_bfloat16_is_not_accused_of_its_own_roundings(shape):
    last = [torch.nn.Unflatten(-1, shape)] if shape else []
    net = torch.nn.Sequential(Chain(), torch.nn.Linear(32, 16), *last).to("sim").bfloat16()
    x = torch.randn(16, 16).bfloat16().to("sim")
    inside = {"module:(model)", "module:0", "module:0.act"}
    for fault, found in (
        (None, set()),
        ("aten::gelu:scale:factor=0.5", inside),
        ("aten::addmm:scale:factor=1.01", {"module:(model)", "module:0", "module:0.up", "module:1"}),
    ):
        with (
            ulpscope.sim.plant(fault) if fault else contextlib.nullcontext(),
            ulpscope.live_check(level="module") as live,
        ):
            net(x)
        assert {f.op for f in live.findings()} == found and live.error is None


class Mix(torch.nn.Module):
    def forward(self, h, x):
        h[:, 4:].add_(x[:, 4:].tanh()).mul_(0.5)


class InPlace(torch.nn.Module):
    """Written over behind it: a result, an input, a part of an input; one module gives nothing but what it writes."""

    def __init__(self):
        super().__init__()
        self.up, self.act, self.mix = torch.nn.Linear(16, 16), torch.nn.ReLU(inplace=True), Mix()

    def forward(self, x):
        h = self.act(self.up(x))
        self.mix(h, x)
        h += x
        return h


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        (None, set()),
        ("aten::tanh:scale", {"", "mix"}),
        ("aten::mul_:scale", {"", "mix"}),
        ("aten::relu_:scale", {"", "act"}),
    ],
)
def test_a_module_that_writes_in_place_is_judged_by_what_it_leaves(fault, found):
    torch.manual_seed(0)
    net, x = InPlace().to("sim:0"), torch.randn(8, 16).to("sim:0")
    with ulpscope.sim.plant(fault) if fault else contextlib.nullcontext(), ulpscope.live_check(level="module") as live:
        net(x).sum()
    assert ({f.module for f in live.findings()}, live.error, live.n_judged) == (found, None, 4)
    assert not live.left_out, live.left_out


class Chain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.up, self.act = torch.nn.Tanh(), torch.nn.Linear(16, 32), torch.nn.GELU()

    def forward(self, x):
        return self.act(self.up(self.first(x) * 2) + 1)


@pytest.mark.parametrize(
    ("faults", "device", "reference"),
    [
        ("", set(), set()),
        ("aten::tanh:scale", {"", "first"}, {"", "first"}),
        ("aten::tanh:nan; aten::gelu:bf16_output", {"", "first"}, {"", "first", "act"}),
    ],
)
def test_with_the_inputs_of_the_reference_an_early_error_accuses_and_hides_nobody(
    monkeypatch, faults, device, reference
):
    torch.manual_seed(0)
    net, x = Chain().to("sim:0"), torch.randn(1, 16).to("sim:0")
    monkeypatch.setenv("ULPSCOPE_SIM_FAULTS", faults)  # of the process that runs modules again
    with ulpscope.sim.plant(faults) if faults else contextlib.nullcontext():
        plain = net(x).tolist()
        for inputs, wanted in (("device", device), ("reference", reference)):
            with ulpscope.live_check(level="module", inputs=inputs) as live:
                assert str(net(x).tolist()) == str(plain)
            assert {f.module for f in live.findings()} == wanted and live.error is None, inputs
            assert live.n_judged == 4


RANK = """
import os, sys, torch, ulpscope
torch.distributed.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=int(sys.argv[2]), world_size=2)
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
with ulpscope.live_check(output="out") as live:
    for _ in range(2):
        opt.zero_grad()
        net(torch.randn(4, 8)).sum().backward()
        opt.step()
assert live.findings() == [] and live.error is None, (live.findings(), live.error)
print(live.n_judged)
torch.distributed.destroy_process_group()
"""


def test_two_ranks_have_results_of_their_own(tmp_path):
    command = [sys.executable, "-c", RANK, str(tmp_path / "store")]
    ranks = [subprocess.Popen([*command, rank], cwd=tmp_path, stdout=subprocess.PIPE, text=True) for rank in "01"]
    judged = [int(rank.communicate(timeout=PATIENCE)[0]) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0] and min(judged) > 20
    assert all((tmp_path / f"out/rank-{rank}/result.db").exists() for rank in (0, 1))


NEEDS_SIM = """
import torch
@torch.library.custom_op("vendored::twice", mutates_args=(), device_types="cpu")
def twice(x: torch.Tensor) -> torch.Tensor:
    return x.float() * 2
twice.register_kernel("sim")(lambda x: x.float() * 2.5)  # as an extension that the package of the device comes before
"""


def test_an_extension_that_needs_the_package_of_its_device(tmp_path):
    """The judge, which computes on the CPU, imports that first; what cannot be imported is said."""
    (tmp_path / "vendored.py").write_text(NEEDS_SIM)
    (tmp_path / "gone.py").write_text(
        "import sys, torch\nassert sys.argv[-1] == 'here', 'not without here'\n"
        "lib = torch.library.Library('gone', 'DEF')\nlib.define('same(Tensor x) -> Tensor')\n"
        "lib.impl('same', lambda x: x.clone(), 'PrivateUse1')\n"
    )
    (tmp_path / "script.py").write_text(
        "import torch, ulpscope, ulpscope.sim, vendored, gone\nx = torch.ones(4, device='sim')\n"
        "with ulpscope.live_check(ops='vendored::*,gone::*') as live:\n    torch.ops.vendored.twice(x)\n    "
        "torch.ops.gone.same(x)\n"
        "print(*(f.op + ' ' + f.verdict for f in live.findings()))\nprint(live.not_judged())\n"
    )
    done = subprocess.run([sys.executable, "script.py", "here"], capture_output=True, text=True, cwd=tmp_path)
    found, left = done.stdout.splitlines()
    assert found == "vendored::twice wrong", done
    assert "gone.py, which the program had, cannot be imported: AssertionError: not without here" in left, done
