# SPDX-License-Identifier: Apache-2.0
"""`ulpscope fuzz --relations`: each relation passes right kernels, and catches a wrong one that nothing
else sees: neither the verdict on the call itself nor any other relation."""

import json
import subprocess

import pytest
import torch
from calls import make_call
from traces import TraceWriter

from ulpscope import _core
from ulpscope.executors.device import PythonDevice, TorchDevice
from ulpscope.session.judging import judge_call
from ulpscope.fuzzer.related import NAMES, relate
from ulpscope.fuzzer import drawn_cases

aten = torch.ops.aten


def right(op, args, kwargs):
    return op(*args, **kwargs)


def named(op):
    return getattr(op, "__name__", "")


def stale_in_place(op, args, kwargs):
    return args[0] if named(op).startswith("add_") else op(*args, **kwargs)


def twice_out_of_place(op, args, kwargs):
    return op(*args, **kwargs) * (2 if named(op).startswith("mul.") else 1)


def stale_strided_out(op, args, kwargs):
    out = kwargs.get("out")
    return op(*args, **kwargs) if out is None or out.is_contiguous() else out


def blind_to_strides(op, args, kwargs):
    rows = [
        t.as_strided(t.shape, (*t.stride()[:-1], 1), t.storage_offset())
        if isinstance(t, torch.Tensor) and t.dtype == torch.float32 and not kwargs
        else t
        for t in args
    ]
    return op(*rows, **kwargs)


def offsets_in_32_bits(op, args, kwargs):
    out, x = op(*args, **kwargs), args[0]
    if x.dim() and (len(x) - 1) * x.stride(0) >= 1 << 31:
        out[-1] = out[0]
    return out


def max_of_first_row(op, args, kwargs):
    if named(op) != "_softmax.default":
        return op(*args, **kwargs)
    x = (args[0] - args[0][0].max()).clamp(max=0).exp()
    return x / x.sum(args[1], keepdim=True)


def wrong_for_one_sample(op, args, kwargs):
    return op(*args, **kwargs) * (1.5 if args[0].shape[0] == 1 else 1)


def no_tail(op, args, kwargs):
    n = args[0].shape[-1] // 8 * 8
    return op(args[0][..., :n], args[1][:n], *args[2:], **kwargs)


def narrow_float64(op, args, kwargs):
    out = op(*args, **kwargs)
    return out + 1 if args[0].dtype == torch.float64 else out


def of_positive(op, args, kwargs):
    return op(*args) if "_." in named(op) else op(args[0].relu(), *args[1:], **kwargs)


def positive(*sizes):
    return torch.rand(*sizes) + 0.5


PEAK = torch.tensor([[9.0, 8, 7], [0, 1, 2], [1, 2, 0]])
# relation: (operator, arguments, the wrong kernel)
PLANTED = {
    "in-place": (aten.add.Tensor, lambda: (torch.randn(4, 6), torch.randn(4, 6)), stale_in_place),
    "functional": (aten.mul_.Tensor, lambda: (torch.randn(4, 6), torch.randn(4, 6)), twice_out_of_place),
    "out": (aten.mm.default, lambda: (torch.randn(4, 6), torch.randn(6, 3)), stale_strided_out),
    "layout": (aten.tanh.default, lambda: (torch.randn(4, 6),), blind_to_strides),
    "far": (aten.neg.default, lambda: (torch.randn(4, 6).half(),), offsets_in_32_bits),
    "permutation": (aten._softmax.default, lambda: (PEAK, -1, False), max_of_first_row),
    "split": (aten.bmm.default, lambda: (positive(2, 3, 4), positive(2, 4, 2)), wrong_for_one_sample),
    "padding": (aten.mm.default, lambda: (torch.randn(5, 16), torch.randn(16, 3)), no_tail),
    "wider": (aten.exp.default, lambda: (torch.randn(4, 6),), narrow_float64),
    "linearity": (aten.cumsum.default, lambda: (positive(4, 6), 0), of_positive),
}


def judged(op, given, device):
    torch.manual_seed(0)
    call = make_call(op.name() + ("" if "." in op.name() else ".default"), *given())
    return call, judge_call(call, device, seconds=0)


def flagged(call, device, name, numbers=range(3)):
    """The verdicts of a relation that accuse, for some numbers."""
    found = []
    for number in numbers:
        verdict = relate(call, device, judge_call(call, device, seconds=0), number, only=(name,))
        found += [verdict] if verdict.verdict not in ("pass", "unjudged") else []
    return found


@pytest.mark.parametrize("name", PLANTED)
def test_a_relation_catches_what_it_alone_sees(name):
    op, given, wrong = PLANTED[name]
    device = PythonDevice(wrong)
    call, verdict = judged(op, given, device)
    assert verdict.verdict == "pass", "the call itself shows nothing"
    caught = {n for n in NAMES if flagged(call, device, n)}
    assert caught == {name}
    found = flagged(call, device, name)[0]
    assert found.cause.startswith(f"the relation {name} does not hold: ")
    assert f"relation {name}" in _core.sentence(call.op, found.verdict, found.reason, "", found.cause, found.worst)


def test_all_relations_hold_for_right_kernels():
    held = set()
    for op, given, _ in PLANTED.values():
        device = PythonDevice(right)
        call, verdict = judged(op, given, device)
        for name in NAMES:
            assert not flagged(call, device, name)
            told = relate(call, device, judge_call(call, device, seconds=0), 0, only=(name,))
            held |= {name} if f"relation {name}" in told.remarks else set()
    assert held == set(NAMES), "each was put to the device somewhere"


def test_a_patched_method_is_caught(monkeypatch):
    device = TorchDevice("cpu")
    call, verdict = judged(aten.exp.default, lambda: (torch.randn(4, 6),), device)
    assert not flagged(call, device, "method")
    monkeypatch.setattr(torch.Tensor, "exp", lambda x: x.exp_() + 1, raising=False)
    assert {n for n in NAMES if flagged(call, device, n)} == {"method"}


@pytest.fixture(scope="module")
def planted_gradient():
    """Two operators of one's own, one with a gradient that is off by half."""
    library = torch.library.Library("ulpscope_relations", "DEF")
    for name, factor in (("right", 2.0), ("wrong", 3.0)):
        library.define(f"{name}(Tensor x) -> Tensor")

        class Square(torch.autograd.Function):
            by = factor

            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x.detach() * x.detach()

            @classmethod
            def backward(cls, ctx, grad):
                return ctx.saved_tensors[0] * grad * ctx._forward_cls.by

        library.impl(name, lambda x: x * x, "CPU")
        library.impl(name, Square.apply, "AutogradCPU")
    yield torch.ops.ulpscope_relations
    library._destroy()


def test_a_wrong_gradient_is_caught(planted_gradient):
    device = TorchDevice("cpu")
    for name, caught in (("right", set()), ("wrong", {"gradient"})):
        op = getattr(planted_gradient, name).default
        call, verdict = judged(op, lambda: (torch.randn(4, 6),), device)
        assert verdict.verdict == "pass"
        assert {n for n in NAMES if flagged(call, device, n)} == caught, name


@pytest.mark.parametrize("x", [torch.zeros(5), torch.tensor([-2.0, 0, 1, 0])], ids=["zeros", "some"])
def test_corners_are_no_wrong_gradients(x):
    device = TorchDevice("cpu")
    for op in (aten.relu.default, aten.abs.default, aten.sign.default):
        call, verdict = judged(op, lambda x=x: (x,), device)
        assert not flagged(call, device, "gradient")


def test_what_cancels_is_no_wrong_gradient():
    device = TorchDevice("cpu")
    call, verdict = judged(aten.native_layer_norm.default, lambda: (torch.randn(7, 1), [1], None, None, 1e-5), device)
    assert not flagged(call, device, "gradient", range(8))


def test_without_a_reference_bits_decide():
    """What has no float64 reference is held to those relations alone that any kernel keeps bit by bit."""
    device = PythonDevice(of_positive)
    call, verdict = judged(aten.cumsum.default, lambda: (positive(4, 6), 0), device)
    verdict.operands, verdict.verdict = None, "unjudged"
    found = relate(call, device, verdict, 0, only=("linearity",))
    assert found.verdict == "wrong" and "24 of 24 elements of out[0] are not the same" in found.worst.reason
    verdict.verdict = "unjudged"
    assert relate(call, PythonDevice(no_tail), verdict, 0, only=("padding",)).verdict == "unjudged"


def test_the_command_names_the_relation(tmp_path):
    with TraceWriter(tmp_path / "trace") as t:
        t.add("aten::add.Tensor", torch.randn(4, 6), torch.randn(4, 6))

    def run(*more, code):
        done = subprocess.run(
            ["ulpscope", "fuzz", "--device", "sim:0", "--trace", "trace", "--cases", "60", "-j", "1", *more],
            capture_output=True,
            text=True,
            timeout=300,
            cwd=tmp_path,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    faults = "--faults", "add_:scale:factor=1.5", "--json"
    assert run(*faults, "-o", "plain", code=2) == "", "add itself is right, and the fault fires nowhere"
    found = [json.loads(line) for line in run(*faults, "--relations", "-o", "related", code=1).splitlines()]
    assert {f["op"] for f in found} == {"aten::add.Tensor"}
    assert all("the relation in-place does not hold" in f["cause"] for f in found)
    assert all(f["repro"].startswith("ulpscope fuzz replay ") and " --relations" in f["repro"] for f in found)
    run("--relations", "-o", "honest", code=0)


def test_a_case_has_the_same_relation_each_time(tmp_path):
    with TraceWriter(tmp_path / "trace") as t:
        t.add("aten::mm", torch.randn(4, 6), torch.randn(6, 5))
    source = drawn_cases.Example(_core.Trace(str(tmp_path / "trace")).call(1), "id")
    device, told = PythonDevice(right), set()
    for case in range(12):
        call, _ = drawn_cases.drawn(source, 0, case)
        said = [relate(call, device, judge_call(call, device, seconds=0), case).remarks for _ in range(2)]
        assert said[0] == said[1]
        told.update(r for r in said[0] if r.startswith("relation"))
    assert len(told) > 4
