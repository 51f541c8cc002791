# SPDX-License-Identifier: Apache-2.0
"""What torch's own CPU kernel of a low precision does no better is told apart from what only the
device does."""

import json
import subprocess

import pytest
import torch
from calls import make_call

import ulpscope
from ulpscope.executors.device import PythonDevice, TorchDevice
from ulpscope.session.judging import judge_call
from ulpscope.judges.usual import is_usual


def attention():
    torch.manual_seed(5)
    q, k, v = (torch.randn(1, 2, 48, 16).bfloat16() for _ in range(3))
    return "aten::_scaled_dot_product_flash_attention_for_cpu", q, k, v, 0.0, True


def product():
    torch.manual_seed(6)
    return "aten::mm", torch.randn(32, 64).bfloat16(), torch.randn(64, 24).bfloat16()


def worse(op, args, kwargs):
    return op(*(a.to(torch.float8_e4m3fn).to(a.dtype) if isinstance(a, torch.Tensor) else a for a in args))


def one_element(op, args, kwargs):
    out = op(*args, **kwargs)
    out[0].view(-1)[7] += 1
    return out


def not_last_key(op, args, kwargs):
    q, k, v, *rest = args
    return op(q, k.index_fill(2, torch.tensor([0]), 0), v, *rest)


def rounded_inside(op, args, kwargs):
    return sum((args[0][:, i : i + 8] @ args[1][i : i + 8] for i in range(0, 64, 8)))


CASES = [
    (attention, None, True),
    (attention, worse, False),
    (attention, one_element, False),
    (attention, not_last_key, False),
    (product, rounded_inside, False),
]


@pytest.mark.parametrize("make, fault, usual", CASES)
def test_only_what_the_cpu_does_no_better_is_usual(make, fault, usual):
    call = make_call(*make())
    verdict = judge_call(call, PythonDevice(fault) if fault else TorchDevice("cpu"), seconds=0)
    assert verdict.verdict in ("reduced", "wrong")
    assert is_usual(call, verdict) == usual


def test_a_check_marks_and_allows_it(tmp_path):
    _, q, k, v, _, _ = attention()
    with ulpscope.capture(tmp_path / "t"):
        torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    command = ["ulpscope", "check", str(tmp_path / "t"), "--device", "cpu", "-j", "1", "--causes", "off"]
    codes = []
    for i, allow in enumerate(("reduced:usual", "wrong:usual")):
        out = tmp_path / str(i)
        codes.append(subprocess.run([*command, "-o", str(out), "--allow", allow], capture_output=True).returncode)
    assert codes == [0, 1]
    found = json.loads((tmp_path / "0" / "result.json").read_text())["findings"]
    assert [f["usual"] for f in found] == [True]
