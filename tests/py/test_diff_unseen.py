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


def run(folder, optimizer, again=False, ops=None):
    torch.manual_seed(0)
    weight, x = torch.randn(8, 8), torch.randn(8, 8)
    with ulpscope.capture(folder, steps=[0], ops=ops):
        for _ in range(1 + again):
            torch.softmax(torch.mm(weight, x), -1)
            optimizer(weight)
    return folder


CASES = {
    "another way to the same bits": (optimizer_at_once, {}, 0, "the runs are the same, bit by bit; 2 calls of A"),
    "a wrong step that nothing reads": (wrong_optimizer, {}, 2, "1 tensor of A, from call 5, aten::add_"),
    "no step at all": (nothing, {}, 2, "1 tensor of A, from call 5, aten::add_.Tensor, on; capture both alike"),
    "a part of the calls": (optimizer_one_by_one, {"ops": "mm"}, 2, "not told: the calls that both have"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_nothing_reads_is_not_told_the_same(tmp_path, case):
    optimizer, options, code, said = CASES[case]
    a = run(tmp_path / "a", optimizer_one_by_one)
    b = run(tmp_path / "b", optimizer, **options)
    for traces in ((a, b), (b, a)):
        done = subprocess.run(["ulpscope", "diff", *traces], capture_output=True, text=True, timeout=120)
        assert done.returncode == code, done.stdout + done.stderr
        assert said in done.stdout.replace("of B", "of A"), done.stdout


def test_a_result_that_one_run_alone_looks_at_hides_nothing(tmp_path):
    a, b = run(tmp_path / "a", nothing), run(tmp_path / "b", metric)
    done = subprocess.run(["ulpscope", "diff", a, b], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "the same, bit by bit; 1 call of B has no partner" in done.stdout, done.stdout


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
