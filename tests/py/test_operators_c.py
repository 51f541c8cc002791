# SPDX-License-Identifier: Apache-2.0
"""Kernels in C (`kernel: c` of `ulpscope ops`): examples/operators/in_c.yaml, generated, built and loaded; functional,
in place, out=, lists, views of any strides, memory that is shared; a status becomes an exception; shapes without
memory."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import torch

import ulpscope.extension as extension
import ulpscope.sim
from ulpscope.testing import assert_accurate

ROOT = Path(__file__).resolve().parents[2]
CLI = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build")) / "bin" / "ulpscope"
EXAMPLE = ROOT / "examples" / "operators"


def ops(*words, code=0):
    done = subprocess.run([CLI, "ops", *map(str, words)], capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module", autouse=True)
def mine(same_place):
    made = same_place / "in c"
    ops("gen", EXAMPLE / "in_c.yaml", "--source", EXAMPLE / "in_c.c", "-o", made)
    extension.load_operators(made)
    return torch.ops.mine


def draw(*sizes, seed=0):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


CASES = {
    "silu": lambda x: torch.nn.functional.silu(x),
    "silu, strides": lambda x: torch.nn.functional.silu(x.t()),
    "silu_": lambda x: torch.nn.functional.silu(x.clone(), inplace=True),
    "silu.out, resized": lambda x: torch._C._nn.silu(x, out=torch.empty(0, device=x.device)),
    "silu, backward": lambda x: torch.autograd.grad(
        torch.nn.functional.silu(a := x.detach().requires_grad_()).sum(), a
    )[0],
    "flip": lambda x: x.flip(0, -1),
    "flip of a view": lambda x: x[1:, ::2].flip(1),
    "flip, empty": lambda x: x[:0].flip(0),
}


@pytest.mark.parametrize("case", CASES)
def test_each_computes_what_the_cpu_does(case):
    x = draw(5, 12)
    torch.testing.assert_close(CASES[case](x.to("sim")).cpu(), CASES[case](x), rtol=1e-6, atol=1e-7)


def test_a_new_one_forward_out_in_place_and_shared(mine):
    x, y = draw(4, 6), draw(6, seed=1)
    on_x, on_y = x.to("sim"), y.to("sim")
    assert torch.equal(mine.axpy(on_x, on_y, 2.0).cpu(), 2 * x + y)
    assert torch.equal(mine.axpy(on_x, on_y, 2.0, 1).cpu(), (2 * x + y).clamp(max=1))
    out = torch.empty(6, 4, device="sim").t()
    assert mine.axpy(on_x, on_y, 2.0, out=out) is out and torch.equal(out.cpu(), 2 * x + y)
    assert torch.equal(mine.axpy_(on_x.clone(), on_y, 0.5).cpu(), 0.5 * x + y)
    pool = draw(10).to("sim")  # what is written lies one element behind what is read
    wanted = 2 * pool[:9].cpu() + pool[:9].cpu()
    mine.axpy(pool[:9], pool[:9], 2.0, out=pool[1:])
    assert torch.equal(pool[1:].cpu(), wanted)
    first, last = mine.ends([on_x, on_y])
    assert first.tolist() == [x[0, 0], y[0]] and last.tolist() == [x[-1, -1], y[-1]]
    assert_accurate(mine.axpy, lambda a, b, k: k * a + b, on_x, on_y, 3.0)


REFUSED = {
    "the text of its error": (lambda m, x: m.axpy(x, x, float("nan")), "mine::axpy: a is no number"),
    "no text": (lambda m, x: m.ends([x[:0]]), "mine::ends: shapes differ"),
    "a dtype": (lambda m, x: m.axpy(x.double(), x, 1.0), "mine::axpy: float32 is needed, not float64"),
    "in place": (lambda m, x: m.axpy_(x, x.int(), 1.0), "mine::axpy_: float32 is needed, not int32"),
    "torch's": (lambda m, x: torch.nn.functional.silu(x.half()), "aten::silu.out: float32 is needed, not float16"),
    "another device": (lambda m, x: m.axpy(x, x.to("sim:1"), 1.0), "Expected all tensors to be on the same device"),
    "sizes": (lambda m, x: m.axpy(x, x[:2], 1.0), "must match"),
    "repeated": (lambda m, x: m.axpy_(x[:1].expand(3), x[:3], 1.0), "several elements of 'x' lie at one place"),
    "its out=": (lambda m, x: m.axpy(x, x, out=x.double()), "Expected out tensor to have dtype"),
    "a derivative": (lambda m, x: m.axpy(x.requires_grad_(), x).sum().backward(), "derivative for mine::axpy is not"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_wrong_is_an_exception(mine, case):
    call, said = REFUSED[case]
    with pytest.raises(RuntimeError, match=re.escape(said)):
        call(mine, draw(5).to("sim"))


def test_its_shapes_are_known_without_memory(mine):
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        x = torch.empty(3, 1, device="sim")
        made = mine.axpy(x, torch.empty(4, device="sim"), 1.0)
        assert made.shape == (3, 4) and made.device.type == "sim"
        assert [t.shape for t in mine.ends([x, x])] == [(2,), (2,)]


def test_planted_faults_and_the_guard_meet_it(mine):
    x = draw(64).to("sim")
    honest = mine.axpy(x, x, 1.0).cpu()
    with ulpscope.sim.fault("mine::axpy", "scale", factor=3):
        assert torch.equal(mine.axpy(x, x, 1.0).cpu(), 3 * honest)
    assert ulpscope.sim.faults_fired() == []


F = "\n  dispatch: {PrivateUse1: F}\n"
WRONG = {
    "- func: tril\n  kernel: c\n": "'kernel: c' stands where the kernel is named",
    "- func: mine::f(Tensor x) -> Tensor\n  kernel: rust" + F: "a kernel is in C",
    "- func: mine::f(Tensor x, Generator? g) -> Tensor\n  kernel: c" + F: "gets no 'Generator'",
    "- func: mine::f(Tensor x) -> Tensor[]\n  kernel: c" + F: "fills tensors of its own",
    "- func: mine::f(Tensor x) -> Tensor\n  outputs: x" + F: "outputs are those of a kernel in C",
    "- func: mine::f(Tensor x) -> Tensor\n  kernel: c\n  outputs: [x, x]" + F: "outputs has 2",
    "- func: mine::f(Tensor x) -> Tensor\n  kernel: c\n  dispatch: {PrivateUse1: 'a::F'}\n": "has a plain name",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_entry_is_told_by_its_line(tmp_path, text):
    (tmp_path / "ops.yaml").write_text(text)
    said = ops("check", tmp_path / "ops.yaml", code=1)
    assert WRONG[text] in said and re.search(r"ops\.yaml:\d+:\d+: ", said)


def test_a_skeleton_in_c_compiles_against_its_header(tmp_path):
    said = ops("skeleton", "--c", "silu", "flip", "lerp.Scalar")
    entries, _, code = said.partition("// kernels.c")
    (tmp_path / "ops.yaml").write_text(entries)
    (tmp_path / "kernels.c").write_text(code)
    ops("gen", tmp_path / "ops.yaml", "--source", tmp_path / "kernels.c", "-o", tmp_path / "made")
    include = [f"-I{path}" for path in (tmp_path / "made", ROOT / "glue" / "grid", ROOT / "include")]
    words = ["cc", "-std=c11", "-Wall", "-Werror", "-Wno-unused-parameter", *include, "-c", "-o", tmp_path / "o"]
    done = subprocess.run([*words, tmp_path / "kernels.c"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
