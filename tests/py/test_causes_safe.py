# SPDX-License-Identifier: Apache-2.0
"""Kernels that trust their arguments do not survive the search for a cause: the program that
asks does, with its verdicts."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from ulpscope.causes.evidence import Evidence

HEAD = """
import torch
from calls import make_call
from ulpscope.executors.device import PythonDevice
from ulpscope.session.judging import judge_call
torch.manual_seed(0)
def off(op, args, kwargs):
    out = op(*args, **kwargs)
    one = lambda t: t * 1.01 if isinstance(t, torch.Tensor) and t.is_floating_point() else t
    return tuple(map(one, out)) if isinstance(out, tuple) else one(out)
def judge(op, *args):
    print(judge_call(make_call(op, *args), PythonDevice(off)).verdict)
"""
CASES = {
    "batch norm without statistics": """
        for d in (torch.bfloat16, torch.float32):
            w = torch.randn(2, dtype=d)
            judge("aten::native_batch_norm", torch.randn(3, 2, 3, 4, dtype=d), w, w + 1, None, None, True, 0.1, 1e-5)
            judge("aten::native_batch_norm", torch.randn(3, 2, 3, 4, dtype=d), w, w + 1, w, w * w, False, 0.1, 1e-5)
        """,
    "gradient of batch norm without saved statistics": """
        g, x, w = torch.randn(3, 2, 3, 4), torch.randn(3, 2, 3, 4), torch.randn(2)
        mask = [True, True, True]
        judge("aten::native_batch_norm_backward", g, x, w, w, w * w, None, None, False, 1e-5, mask)
        judge("aten::native_batch_norm_backward", g, x, w, None, None, w, w * w, True, 1e-5, mask)
        """,
    "gradients that index": """
        i = torch.randint(0, 50, (40,))
        judge("aten::embedding_dense_backward", torch.randn(40, 8), i, 50, -1, False)
        g = torch.randn(())
        judge("aten::nll_loss_backward", g, torch.randn(40, 50), i, torch.rand(50), 1, 7, torch.tensor(3.0))
        """,
    "bags": """
        offsets = torch.tensor([0, 3, 9])
        judge("aten::_embedding_bag", torch.randn(20, 8), torch.randint(0, 20, (12,)), offsets)
        """,
    "resampling by a factor": """
        judge("aten::upsample_bilinear2d", torch.randn(1, 2, 5, 5), [10, 10], False, 2.0, 2.0)
        judge("aten::upsample_nearest2d", torch.randn(1, 2, 5, 5), [10, 10], 2.0, 2.0)
        """,
    "windows whose indices a gradient trusts": """
        import ulpscope
        def gradient(x):
            x = x.detach().requires_grad_()
            return torch.autograd.grad(torch.nn.functional.max_pool2d(x, 3, 2).square().sum(), x)[0]
        x = torch.randn(2, 3, 11, 11)
        print(ulpscope.judge_call(gradient, (x,), {}, gradient(x).roll(1, 0) * x).verdict)
        def bags(w, i, o):
            w = w.detach().requires_grad_()
            out = torch.ops.aten._embedding_bag(w, i, o)[0]
            return torch.autograd.grad(out.square().sum(), w)[0]
        args = torch.randn(20, 8), torch.randint(0, 20, (12,)), torch.tensor([0, 3, 9])
        print(ulpscope.judge_call(bags, args, {}, bags(*args) * args[0] + 1).verdict)
        """,
}


def test_a_process_survives_the_search():
    code = HEAD + "".join(f"print({n!r})\n{textwrap.dedent(c)}" for n, c in CASES.items())
    path = {"PYTHONPATH": ":".join([str(Path(__file__).parent), *filter(None, sys.path)])}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=path)
    assert run.returncode == 0, f"{run.stdout[-80:]}\n{run.stderr}"
    said = run.stdout.splitlines()
    found = {"wrong", "reduced", "nonfinite"}
    assert all(said[said.index(n) + 1] in found for n in CASES), said  # accused, so searched


@pytest.mark.parametrize("top, limit, name", [(400.0, 65504.0, "float16"), (440.0, 448.0, "float8_e4m3fn")])
def test_overflow_names_the_usual_accumulator_first(top, limit, name):
    """Sums of 3e5 beside small ones overflow float16 as well as float8; 2000 only float8."""
    truth = torch.full((64,), top)
    truth[5:10] = 3e5 if name == "float16" else 1500.0
    device = truth.where(truth <= limit, torch.inf)
    assert name in Evidence(device, truth, truth).ask("kinds")[1]
