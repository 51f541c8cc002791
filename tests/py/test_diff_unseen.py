# SPDX-License-Identifier: Apache-2.0
"""`ulpscope diff` of traces some calls of which have no partner: what these leave behind, and nothing reads that both
have, was not looked at, and "the same" is not said of it."""

import json
import os
import subprocess
import sys

import pytest
import torch

import ulpscope


def optimizer_one_by_one(weight):
    weight.mul_(0.5).add_(1.0)


def optimizer_at_once(weight):
    torch._foreach_mul_([weight], 0.5)
    torch._foreach_add_([weight], 1.0)


def wrong_optimizer(weight):
    torch._foreach_mul_([weight], 0.5)
    torch._foreach_add_([weight], 1.001)


def nothing(weight):
    pass


def metric(weight):
    torch.cumsum(weight, 0)


ROOM = torch.empty(8, 8)


def metric_into_room(weight):
    torch.cumsum(weight, 0, out=ROOM)


def number(weight):
    weight[0, 0].item()


def copy(weight):
    weight.clone()


def run(folder, optimizer, ops=None, again=False):
    torch.manual_seed(0)
    weight, x = torch.randn(8, 8), torch.randn(8, 8)
    with ulpscope.capture(folder, steps=[0], ops=ops):
        for _ in range(1 + again):
            torch.softmax(torch.mm(weight, x), -1)
            optimizer(weight)
    return folder


COMPARED = "but what came of them was compared"
CASES = {
    "another way to the same bits": (
        (optimizer_one_by_one, optimizer_at_once),
        0,
        ("the runs are the same, bit by bit; 2 calls of A, 2 calls of B have no partner, " + COMPARED,),
    ),
    "a wrong step that nothing reads": (
        (optimizer_one_by_one, wrong_optimizer),
        2,
        (
            "(call 5, aten::add_.Tensor)",
            "(call 5, aten::_foreach_add_.Scalar)",
            " have no partner and were not compared",
        ),
    ),
    "no step at all": (
        (optimizer_one_by_one, nothing),
        2,
        ("(from call 4, aten::mul_.Tensor, on)", "capture both alike"),
    ),
    "a part of the calls": (
        (optimizer_one_by_one, (optimizer_one_by_one, "mm")),
        2,
        ("not told: the 1 call that both have is the same, bit by bit; 4 calls of ", "(from call 2, aten::softmax.int"),
    ),
    "a result that one alone looks at": (
        (nothing, metric),
        2,
        ("not told: the 3 calls that both have are the same, bit by bit; 1 call of ", "(call 4, aten::cumsum) has no"),
    ),
    "a result in memory of somebody else": (
        (nothing, metric_into_room),
        2,
        ("(call 4, aten::cumsum.out) has no partner",),
    ),
    "a number that one alone reads": ((nothing, number), 0, (COMPARED,)),
    "a copy that one alone makes": ((nothing, copy), 0, (COMPARED,)),
}


@pytest.mark.parametrize("case", CASES)
def test_what_nothing_reads_is_not_told_the_same(tmp_path, case):
    optimizers, code, said = CASES[case]
    folders = [
        run(tmp_path / name, *(how if isinstance(how, tuple) else (how,)))
        for name, how in zip("ab", optimizers, strict=True)
    ]
    for traces in (folders, folders[::-1]):
        done = ulpscope_says("diff", *traces)
        last = done.stdout.splitlines()[-1]
        assert done.returncode == code and all(part in last for part in said), done.stdout + done.stderr


@pytest.mark.parametrize(
    ("allowed", "code", "said"),
    [
        ("unpaired", 0, "1 call of B has no partner, of which 1 was not compared (--allow)"),
        ("unpaired:cumsum,mm", 0, "(--allow)"),
        ("unpaired:!cumsum", 2, "not told: "),
        ("unpaired:mm", 2, "not told: "),
        ("wrong", 2, "--allow 'wrong': unpaired or unpaired:PATTERN is needed"),
    ],
)
def test_what_may_be_without_a_partner_is_said(tmp_path, allowed, code, said):
    a, b = run(tmp_path / "a", nothing), run(tmp_path / "b", metric)
    done = ulpscope_says("diff", a, b, "--allow", allowed)
    assert done.returncode == code and said in done.stdout + done.stderr, done.stdout + done.stderr
    if said.startswith("not"):
        found = json.loads(ulpscope_says("diff", a, b, "--json", "--allow", allowed).stdout)
        assert (found["same"], found["not_compared_a"], found["not_compared_b"]) == (False, 0, 1)


def test_what_is_allowed_excuses_no_error(tmp_path):
    """A call without a partner that both sides' calls read is compared, allowed or not."""
    a, b = run(tmp_path / "a", optimizer_one_by_one, again=True), run(tmp_path / "b", wrong_optimizer, again=True)
    assert ulpscope_says("diff", a, b, "--allow", "unpaired").returncode == 1


def test_a_step_more_tells(tmp_path):
    a, b = run(tmp_path / "a", optimizer_one_by_one, again=True), run(tmp_path / "b", wrong_optimizer, again=True)
    done = subprocess.run(["ulpscope", "diff", a, b], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "which has no partner, wrote: args[0] differs" in done.stdout, done.stdout


MODULES = """
import sys, torch
import ulpscope.sim
torch.manual_seed(0)
class Norm(torch.nn.Module):
    def forward(self, x):
        x = x.float()
        return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)).bfloat16()
net = torch.nn.Sequential(torch.nn.Linear(32, 64), Norm(), torch.nn.Linear(64, 8)).bfloat16().to("sim:0")
net(torch.randn(16, 32).bfloat16().to("sim:0")).float().square().mean().backward()
"""


@pytest.fixture(scope="module")
def modules(tmp_path_factory):
    """Traces with modules and what they call, by a fault below."""
    folder, made = tmp_path_factory.mktemp("modules"), {}
    (folder / "step.py").write_text(MODULES)

    def make(name, faults=""):
        if name not in made:
            command = [
                "capture",
                "--steps",
                "0",
                "--level",
                "module",
                "-o",
                folder / name,
                "--",
                sys.executable,
                folder / "step.py",
            ]
            done = ulpscope_says(*command, env={**os.environ, "ULPSCOPE_SIM_FAULTS": faults})
            assert done.returncode == 0, done.stderr
            made[name] = folder / name
        return made[name]

    return make


def ulpscope_says(*words, env=None):
    return subprocess.run(["ulpscope", *map(str, words)], capture_output=True, text=True, timeout=300, env=env)


def test_what_limits_of_modules_let_pass_is_judged_by_the_calls_inside(modules):
    a, bad = modules("honest"), modules("bad", faults="aten::rsqrt:bf16_output")
    limits = ulpscope_says("diff", a, bad, "--module", "--no-judge")
    assert limits.returncode == 2 and "results of 16 bits, of which limits tell little" in limits.stdout
    told = ulpscope_says("diff", a, bad, "--module", "-j", "1")
    assert told.returncode == 1 and "limits alone tell of modules" in told.stdout
    assert told.stdout.splitlines()[-1].endswith("aten::rsqrt in 1, step 0, forward"), told.stdout
    found = json.loads(ulpscope_says("diff", a, bad, "--module", "--json", "-j", "1").stdout)
    assert (found["first"]["op"], found["first"]["module"]) == ("aten::rsqrt", "1")
    assert ulpscope_says("diff", a, modules("again"), "--module").returncode == 0


def test_what_lies_between_modules_did_not_enter(modules):
    found = ulpscope_says("diff", modules("honest"), modules("bad", faults="aten::rsqrt:bf16_output"), "--module")
    assert "differ already where the traces begin" not in found.stdout


@pytest.mark.parametrize("factor, told", [(1.0, 0), (1.02, 2), (1.1, 2)])
def test_weights_of_16_bits_that_are_off_are_no_rounding(tmp_path, factor, told):
    """Each call is right on its own inputs, 64 roundings of bfloat16 would be a quarter."""
    for side, scale in (("a", 1.0), ("b", factor)):
        torch.manual_seed(0)
        net, x = torch.nn.Linear(32, 8).bfloat16(), torch.randn(16, 32).bfloat16()
        with torch.no_grad():
            net.weight.mul_(scale)
        with ulpscope.capture(tmp_path / side):
            net(x).float().square().mean().backward()
    done = ulpscope_says("diff", tmp_path / "a", tmp_path / "b", "-j", "1")
    assert done.returncode == told and ("not told" in done.stdout) == (told == 2), done.stdout
