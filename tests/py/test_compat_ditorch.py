# SPDX-License-Identifier: Apache-2.0
"""ulpscope.compat.ditorch: its tools by their names, lists and variables, on the simulated device."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
import torch

import ulpscope.sim
from ulpscope.compat.ditorch import names, op_tools


@pytest.fixture(autouse=True)
def own_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for key in [k for k in os.environ if k.startswith(("OP_", "AUTOCOMPARE_"))]:
        monkeypatch.delenv(key)
    op_tools._said.clear()


def train(steps=1):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2)).to("sim:0")
    opt = torch.optim.AdamW(net.parameters(), 0.1, fused=True)
    for _ in range(steps):
        opt.zero_grad()
        net(torch.randn(4, 6, device="sim:0")).square().sum().backward()
        opt.step()
    return [p.detach().cpu() for p in net.parameters()]


@pytest.mark.parametrize(
    ("entries", "some", "none"),
    [
        (["torch.nn.functional.linear"], {"addmm", "mm", "addmm_backward*"}, {"add"}),
        (["torch.add.*"], {"add", "addmm", "addcmul", "add_"}, {"mul"}),
        (["torch.Tensor.mul"], {"mul"}, {"mul_", "add"}),
        ([" torch.Tensor.mul "], {"mul"}, {"add"}),  # a space never matched there
        (["torch.(Tensor.)?exp"], {"exp"}, {"expm1"}),  # nor did a group
        (["torch.nn.functional.layer_norm"], {"native_layer_norm"}, {"native_batch_norm"}),
        (["nothing"], set(), {"add"}),
        ([""], set(), {"add"}),
    ],
)
def test_names_of_functions_mean_operators(entries, some, none):
    found = names.meant(entries)
    assert some <= found and not none & found
    if not some:
        assert found == set()


def test_a_bad_expression_is_said():
    with pytest.raises(ValueError, match=r"torch\.add\("):
        names.meant(["torch.add("])


@pytest.mark.parametrize(
    ("environ", "ops", "pattern"),
    [
        ({}, None, "*"),
        ({"X_LIST": "torch.exp"}, None, "exp,exp_backward*"),
        ({"X_DISABLE_LIST": "torch.exp"}, None, "*,!exp,!exp_backward*"),
        ({"X_LIST": "torch.exp"}, "torch.nn.functional.gelu", "gelu,gelu_backward*"),
        ({"X_LIST": "no.such"}, None, ""),
    ],
)
def test_lists_in_the_environment_are_patterns(environ, ops, pattern):
    assert names.pattern("X", ops, environ) == pattern


def test_autocompare_finds_what_the_device_does_wrong_the_optimizer_included(capsys, monkeypatch):
    with op_tools.OpAutoCompare() as tool:
        train()
    assert tool.mode is None and "calls judged" in capsys.readouterr().out
    with ulpscope.sim.fault("aten::_fused_adamw_", "step_plus_one"), op_tools.OpAutoCompare() as tool:
        train()
        assert {f.op for f in tool.findings()} == {"aten::_fused_adamw_"}
    said = capsys.readouterr().out
    assert "OpAutoCompare: aten::_fused_adamw_" in said and "optimizer" in said
    assert len(list(Path("op_tools_results/op_autocompare_result").iterdir())) == 2
    monkeypatch.setenv("OP_AUTOCOMPARE_DISABLE_LIST", "torch.tanh")
    with ulpscope.sim.fault("aten::tanh", "scale:factor=1.01"), op_tools.OpAutoCompare() as tool:
        train()
        assert tool.findings() == []


EXTENSION = """
import torch
library = torch.library.Library("hunted", "DEF")
library.define("zorm_add_(Tensor(a!) x, Tensor(b!) res, Tensor g) -> ()")
library.define("spin_(Tensor(a!) q, Tensor(b!) k, Tensor cs) -> ()")
library.define("stride_(Tensor(a!) p, Tensor g, Tensor(b!) m, Tensor(c!) v, int step) -> ()")
library.define("honest_(Tensor(a!) x, Tensor g) -> ()")

def both(name, make):
    library.impl(name, make(False), "CPU")
    library.impl(name, make(True), "PrivateUse1")

def norm(bad):
    def zorm_add_(x, res, g):
        s = x.float() + res.float()
        mean = s.square().bfloat16().mean(-1, keepdim=True) if bad else s.square().mean(-1, keepdim=True)
        res.copy_(s)
        x.copy_(s * torch.rsqrt(mean + 1e-6) * g.float())
    return zorm_add_

def rotary(bad):
    def spin_(q, k, cs):
        c, s = cs.float().chunk(2, -1)
        for t in (q, k):
            a, b = t.float().chunk(2, -1)
            t.copy_(torch.cat((a * c - b * s, b * c + a * (s.roll(1, -1) if bad else s)), -1))
    return spin_

def adam(bad):
    def stride_(p, g, m, v, step):
        m.lerp_(g, 0.1)
        v.mul_(0.999).addcmul_(g, g, value=0.001)
        p.addcdiv_(m, (v / (1 - 0.999 ** (step + bad))).sqrt() + 1e-8, value=-1e-3 / (1 - 0.9 ** (step + bad)))
    return stride_

both("zorm_add_", norm)
both("spin_", rotary)
both("stride_", adam)
both("honest_", lambda bad: lambda x, g: (x.copy_(torch.softmax(x.float(), -1) * g.float()), None)[1])
"""


def test_autocompare_names_operators_that_no_table_holds(tmp_path, monkeypatch):
    """An extension's norm, rotary embedding and optimizer, fused and in place, under names that nobody knows."""
    (tmp_path / "hunted.py").write_text(EXTENSION)
    monkeypatch.syspath_prepend(tmp_path)
    __import__("hunted")
    torch.manual_seed(0)
    x, res, g, q, k = (torch.randn(8, 16, 32).bfloat16().to("sim:0") for _ in range(5))
    cs = torch.rand(16, 32).to("sim:0")
    p, m, v = (torch.randn(64, 32).square().to("sim:0") for _ in range(3))
    with op_tools.OpAutoCompare() as tool:
        for step in (1, 2):
            torch.ops.hunted.zorm_add_(x, res, g)
            torch.ops.hunted.spin_(q, k, cs)
            torch.ops.hunted.stride_(p, p * 0.1, m, v, step)
            torch.ops.hunted.honest_(res, g)
        found = {f.op for f in tool.findings()}
    assert found == {f"hunted::{name}_" for name in ("zorm_add", "spin", "stride")}


def test_fallback_and_cast_come_to_the_numbers_of_the_cpu(monkeypatch):
    honest = train(2)
    with ulpscope.sim.fault("aten::addmm", "tf32"):
        wrong = train(2)
        with op_tools.OpFallback("torch.nn.functional.linear"):
            mended = train(2)
    assert all(torch.equal(a, b) for a, b in zip(honest, mended))
    assert not all(torch.equal(a, b) for a, b in zip(honest, wrong))
    monkeypatch.setenv("OP_DTYPE_CAST_DICT", "torch.bfloat16->torch.float32")
    x = torch.randn(8, 8, device="sim:0").bfloat16()
    with op_tools.OpDtypeCast("torch.exp"):
        assert x.exp().dtype == torch.bfloat16
    monkeypatch.setenv("OP_DTYPE_CAST_DICT", "torch.bfloat16->torch.float32,torch.float16->torch.float64")
    with pytest.raises(ValueError, match="one dtype to go to"):
        op_tools.OpDtypeCast("torch.exp").start()


def test_the_other_tools_say_what_they_are_for(capsys):
    with op_tools.OpCapture("torch.tanh"):
        train()
    out = capsys.readouterr().out
    trace = next(Path("op_tools_results/op_capture_results").iterdir())
    assert str(trace.absolute()) in out and (trace / "trace.db").is_file()
    with op_tools.OpTimeMeasure():
        train()
    assert "addmm" in capsys.readouterr().out
    tool = op_tools.OpOverflowCheck().start()
    torch.log(torch.tensor([-1.0], device="sim:0"))
    tool.stop()
    assert "NaN is born in aten::log" in capsys.readouterr().out
    with op_tools.OpObserve("torch.tanh"):
        train()
    lines = Path(capsys.readouterr().out.split("OpObserve: ")[1].strip()).read_text().splitlines()
    assert {json.loads(line)["op"] for line in lines} == {"aten::tanh", "aten::tanh_backward"}
    with op_tools.OpFallback("no.such"):
        assert "names no operator" in capsys.readouterr().err


def test_a_feature_is_applied_to_a_function_where_its_condition_holds(capsys):
    x = torch.randn(4, 6, device="sim:0")
    w = torch.randn(3, 6, device="sim:0")
    honest = torch.nn.functional.linear(x, w)
    original = torch.nn.functional.linear
    with ulpscope.sim.fault("aten::mm,aten::addmm,aten::linear", "scale:factor=1.5"):
        undo = op_tools.apply_feature("torch.nn.functional.linear", "fallback", lambda a, b: a.shape[0] == 4)
        assert torch.equal(torch.nn.functional.linear(x, w).cpu(), honest.cpu())
        assert not torch.equal(torch.nn.functional.linear(x[:2], w).cpu(), honest[:2].cpu())
        undo()
    assert torch.nn.functional.linear is original
    for bad, words in [
        (("torch.nn.functional.linear", "magic"), "one of fallback"),
        (("torch.no.such", "fallback"), "cannot be imported"),
    ]:
        with pytest.raises(ValueError, match=words):
            op_tools.apply_feature(*bad)


def test_variables_without_a_part_are_named_once(monkeypatch, capsys):
    monkeypatch.setenv("LINEAR_AUTOCOMPARE_ERROR_TOLERANCE_BFLOAT16", "1e-2,1e-2")
    monkeypatch.setenv("OP_TOOLS_MAX_CACHE_SIZE", "5")
    monkeypatch.setenv("LINEAR_OP_DTYPE_CAST_DICT", "torch.float16->torch.float64")
    before = dict(os.environ)
    for _ in range(2):
        with op_tools.OpFallback("torch.exp"):
            torch.exp(torch.ones(1, device="sim:0"))
    assert dict(os.environ) == before
    said = capsys.readouterr().err
    for name in ("LINEAR_AUTOCOMPARE_ERROR_TOLERANCE_BFLOAT16", "OP_TOOLS_MAX_CACHE_SIZE", "LINEAR_OP_DTYPE_CAST_DICT"):
        assert said.count(f"{name} has no effect") == 1
    assert json.dumps(op_tools.refused({})) == "[]"


def checked(trace, *faults):
    done = subprocess.run(
        ["ulpscope", "check", str(trace), "--device", "sim", "-o", f"{trace}-out"],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"ULPSCOPE_SIM_FAULTS": ";".join(faults)},
    )
    assert done.returncode in (0, 1), done.stderr
    return done


def test_a_capture_keeps_equal_bytes_once_and_runs_again_on_a_faulty_device(capsys):
    """There one step writes everything, again at each step, and what is replayed is not judged."""
    x = torch.randn(512, 512).to("sim:0")
    with op_tools.OpCapture("torch.tanh"):
        for _ in range(4):
            torch.tanh(x)
    trace = next(Path("op_tools_results/op_capture_results").iterdir())
    bytes_kept = sum(p.stat().st_size for p in trace.glob("*.safetensors"))
    assert 2 << 20 <= bytes_kept < 3 << 20
    assert checked(trace).returncode == 0
    shutil.rmtree(f"{trace}-out")
    done = checked(trace, "aten::tanh:bf16_output")
    assert done.returncode == 1 and "aten::tanh" in done.stdout


def test_signatures_tell_two_devices_apart():
    found = []
    for faults in ("", "aten::tanh:scale"):
        with ulpscope.sim.plant(faults), ulpscope.observe(2, ops="tanh", output="seen.jsonl"):
            torch.tanh(torch.linspace(-1, 1, 64).to("sim:0"))
        row = json.loads(Path("seen.jsonl").read_text().splitlines()[-1])
        found.append((row["inputs"][0]["signature"], row["outputs"][0]["signature"]))
    assert found[0][0] == found[1][0] and found[0][1]["sum_abs"] < found[1][1]["sum_abs"]


def test_a_keyword_tensor_is_observed(capsys):
    """There a call whose tensors come by keyword counts as the CPU's."""
    with op_tools.OpObserve("torch.add"):
        torch.add(input=torch.ones(2, device="sim:0"), other=torch.ones(2, device="sim:0"))
    (line,) = Path(capsys.readouterr().out.split("OpObserve: ")[1].strip()).read_text().splitlines()
    assert [t["device"] for t in json.loads(line)["inputs"]] == ["sim:0", "sim:0"]


def test_the_slowest_operator_stands_first_with_its_backward(capsys):
    library = torch.library.Library("peers_slow", "DEF")
    library.define("wait(Tensor x) -> Tensor")
    library.impl("wait", lambda x: (time.sleep(0.3), x.clone())[1], "PrivateUse1")
    try:
        with op_tools.OpTimeMeasure():
            train()
            torch.ops.peers_slow.wait(torch.ones(2, device="sim:0"))
        rows = capsys.readouterr().out.splitlines()[1:]
        assert rows[0].split()[:3] == ["peers_slow::wait", "forward", "1"]
        assert {"forward", "backward", "optimizer"} <= {row.split()[1] for row in rows}
    finally:
        library._destroy()


def test_an_overflow_names_its_source_and_not_its_carriers(capsys):
    with ulpscope.sim.fault("aten::tanh", "inf"), op_tools.OpOverflowCheck():
        y = torch.tanh(torch.ones(4, device="sim:0"))
        (y * 2 + 1).sum()
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 1 and said[0].startswith("OpOverflowCheck: Inf is born in aten::tanh")


def test_a_cast_mends_a_narrow_kernel_in_place_too(monkeypatch):
    monkeypatch.setenv("OP_DTYPE_CAST_DICT", "torch.float32->torch.float64")
    x = torch.linspace(-1, 1, 512).to("sim:0")
    right = torch.exp(x.cpu().double()).float()
    with ulpscope.sim.fault("aten::exp,aten::exp_", "truncate:bits=8"):
        assert not torch.allclose(x.exp().cpu(), right, rtol=3e-7, atol=0)
        with op_tools.OpDtypeCast("torch.exp"):
            assert torch.allclose(x.exp().cpu(), right, rtol=3e-7, atol=0)
        with op_tools.OpDtypeCast("torch.exp_"):
            x.exp_()  # there its effect is lost
    assert x.dtype == torch.float32 and torch.allclose(x.cpu(), right, rtol=3e-7, atol=0)
