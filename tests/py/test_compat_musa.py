# SPDX-License-Identifier: Apache-2.0
"""ulpscope.compat.torch_musa: the manual's programs, word by word but for the name of the package, on
the simulated device, honest and with planted faults."""

import json
import re
from pathlib import Path

import pytest
import torch

import ulpscope.sim
from ulpscope.compat.torch_musa.utils import compare_tool
from ulpscope.compat.torch_musa.utils.compare_tool import (
    CompareWithCPU,
    ModuleInfo,
    NanInfTracker,
    compare_for_single_op,
    nan_inf_track_for_single_op,
    open_module_tracker,
)


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    compare_tool.Log.begun.clear()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 6), torch.nn.Linear(6, 3)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


def model():
    torch.manual_seed(0)
    return Net().to("sim:0")


def train(net, x=None, start=0.1):
    x = torch.randn(4, 6, device="sim:0") if x is None else x
    opt = torch.optim.AdamW(net.parameters(), start, fused=True)
    net(x).square().sum().backward()
    opt.step()


def log(name="compare_result"):
    with open(f"{name}.txt", encoding="utf-8") as file:
        return file.read()


def lines(mark, name="compare_result"):
    return [line for line in log(name).splitlines() if line.startswith(f"[{mark}]")]


def test_an_honest_step_has_a_log_and_no_error():
    net = model()
    open_module_tracker(net)
    with CompareWithCPU(atol=0.001, rtol=0.001, verbose=True, should_log_to_file=True):
        train(net)
    text = log()
    assert lines("ERROR") == []
    assert "----- step = 0 -----" in text
    assert "first/torch.ops.aten.addmm(forward) succeeds to pass CompareWithCPU test" in text
    assert "torch.ops.aten._fused_adamw_(optimizer) succeeds" in text
    assert "(backward) succeeds" in text
    assert text[:4].isdigit()  # a time


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ("aten::tanh:scale:factor=1.01", "torch.ops.aten.tanh(forward)"),
        ("aten::tanh_backward:scale:factor=1.01", "torch.ops.aten.tanh_backward(backward)"),
        ("aten::_fused_adamw_:step_plus_one", "torch.ops.aten._fused_adamw_(optimizer)"),
    ],
)
def test_a_fault_is_an_error_line(fault, name):
    net = model()
    with ulpscope.sim.fault(fault.rsplit(":", fault.count(":") - 2)[0], *_rest(fault)):
        with CompareWithCPU(should_log_to_file=True, verbose=False):
            train(net)
    errors = lines("ERROR")
    assert len(errors) == 1 and errors[0].endswith(f"{name} fails to pass CompareWithCPU test"), log()
    assert "succeeds to" not in log() and re.search(r"\.{6} (wrong|reduced) \.{6}", log())


def _rest(fault):
    kind, *params = fault.split(":")[3:]
    return [":".join([kind, *params])]


def test_lists_steps_and_ranks_say_where_it_works():
    net = model()
    with CompareWithCPU(
        target_op=["torch.ops.aten.addmm"], should_log_to_file=True, start_step=1, end_step=2
    ) as compare:
        for _ in range(3):
            train(net)
            compare.step()
        assert compare.step_cnt == 3
    text = log()
    assert "step = 1" in text and "step = 0" not in text and "step = 2" not in text
    assert {line.split("torch.ops.")[1].split("(")[0] for line in text.splitlines() if "succeeds" in line} == {
        "aten.addmm"
    }
    with CompareWithCPU(white_list=["torch.ops.aten.addmm", torch.ops.aten.mm], should_log_to_file=True):
        train(net)
    assert "torch.ops.aten.addmm is in white_list, pass" in log()
    assert log().split("white_list")[-1].count("addmm") == 0
    before = log()
    for idle in ({"enabled": False}, {"enable_ranks": [3]}):
        with CompareWithCPU(should_log_to_file=True, **idle):
            train(net)
    assert log() == before
    with pytest.raises(TypeError, match="a list of operators"):
        CompareWithCPU(target_op="torch.ops.aten.addmm")


def test_the_sample_of_the_manual_passes_and_one_wrong_by_a_unit_does_not():
    """fp16 addmm, every value rounded as it should be: the manual shows it as [ERROR]."""
    torch.manual_seed(1)
    a, b, c = (torch.randn(*s, device="sim:0").half() * 3 for s in ((64,), (48, 96), (96, 64)))
    with CompareWithCPU(atol=1e-4, rtol=1e-4, should_log_to_file=True):
        torch.addmm(a, b, c)
    assert lines("ERROR") == [] and "aten.addmm(forward) succeeds" in log()
    with ulpscope.sim.fault("aten::addmm", "truncate:bits=1"):
        with CompareWithCPU(atol=1e-1, rtol=1e-1, should_log_to_file=True):
            torch.addmm(a, b, c)
    assert len(lines("ERROR")) == 1


def test_an_error_can_end_the_run_and_is_kept_without_a_pickle():
    net = model()
    with ulpscope.sim.fault("aten::tanh", "scale:factor=1.01"):
        with pytest.raises(Exception, match=r"torch\.ops\.aten\.tanh\(forward\) fails to pass"):
            with CompareWithCPU(dump_error_data=True, should_log_to_file=True, output_dir="kept"):
                train(net)
        path = "kept/torch.ops.aten.tanh_inputs.pkl"
        assert json.loads(open(path).read())["op"] == "aten::tanh"
        correct, args, kwargs, out = compare_for_single_op(path, torch.ops.aten.tanh)
        assert not correct and args[0].shape == (4, 6) and out.device.type == "sim"
    correct, args, kwargs, out = compare_for_single_op(path, torch.ops.aten.tanh, 1e-3, 1e-3)
    assert correct and torch.equal(out.cpu(), torch.tanh(args[0].cpu()))
    assert nan_inf_track_for_single_op(path, torch.ops.aten.tanh)[0] is False
    with open("old.pkl", "wb") as file:
        file.write(b"\x80\x04\x95")
    for path in ("old.pkl", "kept"):
        with pytest.raises((ValueError, IsADirectoryError)):
            compare_for_single_op(path, torch.ops.aten.tanh)


def test_who_makes_a_nan_is_blamed_and_not_who_carries_it():
    x = torch.randn(4, 6, device="sim:0").abs().requires_grad_()
    with NanInfTracker(should_log_to_file=True) as tracker:
        y = torch.log(x - 100)
        y.exp().sum().backward()
        tracker.step()
    errors = lines("ERROR", "nan_inf_report")
    assert len(errors) == 1 and "torch.ops.aten.log(forward) born: NaN" in errors[0], log("nan_inf_report")
    data = torch.tensor([float("nan"), 1.0], device="sim:0")
    with NanInfTracker(should_log_to_file=True):
        data + 1
    assert len(lines("ERROR", "nan_inf_report")) == 1 and lines("WARNING", "nan_inf_report")
    with pytest.raises(Exception, match="aten.log"):
        with NanInfTracker(dump_error_data=True):
            torch.log(torch.tensor([-1.0], device="sim:0"))


def test_the_tree_of_a_model_has_attribute_names():
    tree = open_module_tracker(Net())
    assert isinstance(tree, ModuleInfo) and [str(c) for c in tree.children] == ["Net/first", "Net/second"]
    assert tree.children[0].is_leaf and not tree.is_leaf


def test_numbers_and_random_streams_are_left_alone():
    def weights(check):
        torch.manual_seed(3)
        net, x = model(), torch.randn(4, 6).to("sim:0")
        with check:
            train(net, x)
        return [p.detach().cpu() for p in net.parameters()], torch.rand(3)

    plain = weights(CompareWithCPU(enabled=False))
    watched = weights(CompareWithCPU(should_log_to_file=True))
    assert all(torch.equal(a, b) for a, b in zip(plain[0], watched[0]))
    assert torch.equal(plain[1], watched[1])


def test_a_kept_case_is_what_an_operator_in_place_got_with_its_strides():
    """There the inputs are saved behind the call, as contiguous copies; the next dump overwrites them."""
    base = torch.arange(24, dtype=torch.float32).view(6, 4)
    paths = []
    with ulpscope.sim.fault("aten::add_.Tensor", "scale:factor=1.01"):
        for n, folder in enumerate(("one", "two")):
            x = (base + n).to("sim:0")[1:, ::2]
            with pytest.raises(Exception, match="aten.add_.Tensor"):
                with CompareWithCPU(dump_error_data=True, should_log_to_file=True, output_dir=folder):
                    x.add_(1.0)
            paths.append(f"{folder}/torch.ops.aten.add_.Tensor_inputs.pkl")
        for n, path in enumerate(paths):
            correct, args, _, out = compare_for_single_op(path, torch.ops.aten.add_.Tensor)
            assert not correct and args[0].stride() == (4, 2)
            assert torch.equal(args[0].cpu(), (base + n)[1:, ::2]) and not torch.equal(out.cpu(), args[0].cpu())
    assert compare_for_single_op(paths[0], torch.ops.aten.add_.Tensor)[0]


def test_a_case_that_gives_nan_is_told_where_it_runs_again():
    with ulpscope.sim.fault("aten::exp", "nan"):
        with pytest.raises(Exception, match="aten.exp"):
            with CompareWithCPU(dump_error_data=True, should_log_to_file=True):
                torch.exp(torch.ones(4, device="sim:0"))
        found = nan_inf_track_for_single_op("torch.ops.aten.exp_inputs.pkl", torch.ops.aten.exp)
        assert found[0] is True and found[3].isnan().any()
    assert nan_inf_track_for_single_op("torch.ops.aten.exp_inputs.pkl", torch.ops.aten.exp)[0] is False


def test_siblings_have_names_of_their_own_and_no_hook_is_left():
    """There both are "Linear", an exception leaves the wrong module for good, and modules in place fail."""

    class Halts(torch.nn.Module):
        def forward(self, x):
            raise RuntimeError("on purpose")

    net = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.ReLU(inplace=True), torch.nn.Linear(6, 6)).to("sim:0")
    x = torch.randn(4, 6).to("sim:0")
    open_module_tracker(net)
    with ulpscope.sim.fault("aten::addmm", "scale:nth=2"), CompareWithCPU(should_log_to_file=True):
        with pytest.raises(RuntimeError, match="on purpose"):
            torch.nn.Sequential(Halts())(x)
        train(net, x)
    assert [line.split()[1] for line in lines("ERROR")] == ["2/torch.ops.aten.addmm(forward)"], log()
    for module in net.modules():
        hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
        assert not any(hooks)


def test_each_rank_has_a_log_and_a_folder_that_is_made(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        with CompareWithCPU(should_log_to_file=True, output_dir="new/logs", enable_ranks=[1]):
            torch.ones(2, device="sim:0") * 2
    assert [p.name for p in Path("new/logs").iterdir()] == ["compare_result_rank1.txt"]


def test_what_was_told_is_not_kept():
    """There each call adds a leaf to a tree."""
    with CompareWithCPU(verbose=False) as compare:
        for _ in range(3):
            torch.ones(2, device="sim:0") * 2
            compare.mode.judge.wait()
            compare.step()
            assert compare.mode.judge.rows == []
    assert compare.mode.n_judged >= 3


def test_streams_are_left_alone():
    """There Tensor.record_stream is replaced while the tool is on."""
    original, seen = torch.Tensor.record_stream, []
    library = torch.library.Library("aten", "IMPL")
    library.impl("record_stream", lambda x, stream: seen.append(stream), "PrivateUse1")
    x = torch.ones(8, device="sim:0")
    try:
        with ulpscope.sim.fault("aten::mul.Tensor", "scale"), CompareWithCPU(should_log_to_file=True):
            assert torch.Tensor.record_stream is original
            x.record_stream(torch.sim.current_stream())
            x * 2
    finally:
        library._destroy()
    assert len(seen) == 1
    assert [line.split()[1] for line in lines("ERROR")] == ["torch.ops.aten.mul.Tensor(forward)"], log()
