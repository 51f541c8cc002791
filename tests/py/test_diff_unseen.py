# SPDX-License-Identifier: Apache-2.0
"""`ulpscope diff` of traces some calls of which have no partner: what these leave behind, and nothing reads that both
have, was not looked at, and "the same" is not said of it."""

import subprocess

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
