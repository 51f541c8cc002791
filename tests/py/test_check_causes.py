# SPDX-License-Identifier: Apache-2.0
"""The cause of a verdict is right or silent: each planted mistake is named, and a mistake
that nobody emulates is not given another's name."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from calls import make_call
from test_check_verdicts import adamw, after, put, randn, seeded  # noqa: F401

from ulpscope.executors import formats
from ulpscope.judges import wording
from ulpscope.executors.device import Answer, PythonDevice
from ulpscope.executors.operands import Timing
from ulpscope.session.earlier import Earlier
from ulpscope.session.judging import explain, judge_call

demo = torch.library.Library("check_demo", "DEF")
demo.define("rms_norm(Tensor x, Tensor weight, float eps) -> Tensor")


@torch.library.impl(demo, "rms_norm", "CPU")
def rms_norm(x, weight, eps):
    scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + eps)
    return (x * scale * weight).to(x.dtype)


class RoundsResults(TorchDispatchMode):
    """A kernel that keeps whatever it computes in bfloat16."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out if func.is_view else out.copy_(out.bfloat16())


def verdict_of(device, op, *args, **kwargs):
    call = make_call(op, *args, **kwargs)
    verdict = judge_call(call, PythonDevice(device))
    print(wording.sentence(call.op, verdict))
    return verdict


def on_inputs(name, skip=()):
    """A device that rounds its float inputs to a format."""

    def device(op, args, kwargs):
        args = [
            formats.to_format(a, name).float() if isinstance(a, torch.Tensor) and i not in skip else a
            for i, a in enumerate(args)
        ]
        return op(*args, **kwargs)

    return device


@pytest.mark.parametrize("name", ["TF32", "bfloat16", "float16"])
def test_rounded_inputs_of_a_product(name):
    small = 1e-6 * randn(64, 96)
    verdict = verdict_of(on_inputs(name), "aten::mm", small, randn(96, 32))
    assert verdict.verdict in ("reduced", "wrong")
    assert verdict.cause == f"inputs rounded to {name}"


def test_formats_that_the_inputs_cannot_tell_apart_are_both_named():
    for name in ("TF32", "float16"):
        verdict = verdict_of(on_inputs(name), "aten::mm", randn(64, 96), randn(96, 32))
        assert verdict.cause == "inputs rounded to TF32 or float16"


def test_rounded_inputs_but_not_the_bias():
    device = on_inputs("TF32", skip=[0])
    verdict = verdict_of(device, "aten::addmm", randn(32), randn(64, 96), randn(96, 32))
    assert (verdict.verdict, verdict.cause) == ("reduced", "inputs rounded to TF32 or float16")
    device = on_inputs("TF32", skip=[2])
    verdict = verdict_of(device, "aten::linear", randn(8, 96), randn(32, 96), randn(32))
    assert (verdict.verdict, verdict.cause) == ("reduced", "inputs rounded to TF32 or float16")


@pytest.mark.parametrize("name, told", [("bfloat16", "bfloat16"), ("float16", "TF32 or float16")])
def test_rounded_result(name, told):
    dtype = getattr(torch, name)
    verdict = verdict_of(after(lambda y: y.to(dtype).float()), "aten::gelu", randn(512))
    assert verdict.cause == f"result rounded to {told}"


def test_rounded_intermediates_of_a_custom_operator():
    def device(op, args, kwargs):
        x, weight, eps = (a.bfloat16() if isinstance(a, torch.Tensor) else a for a in args)
        square = x.float().pow(2).bfloat16().float()
        mean = square.mean(-1, keepdim=True).bfloat16()
        scale = torch.rsqrt((mean.float() + eps).bfloat16().float()).bfloat16()
        return ((args[0] * scale.float()).bfloat16().float() * args[1]).bfloat16().float()

    arguments = randn(32, 64), randn(64).bfloat16().float(), 1e-6
    verdict = verdict_of(device, "check_demo::rms_norm", *arguments)
    assert verdict.verdict == "reduced"

    # The inputs stay as they are inside the kernel: only what it computes is rounded.
    def inside(op, args, kwargs):
        with RoundsResults():
            return rms_norm(*args)

    verdict = verdict_of(inside, "check_demo::rms_norm", *arguments)
    assert (verdict.verdict, verdict.cause) == ("reduced", "intermediates rounded to bfloat16")


def test_custom_operator_that_computes_in_float32_inside_passes():
    def other_order(op, args, kwargs):
        x, weight, eps = args
        mean = x.flip(-1).pow(2).cumsum(-1)[..., -1:] / x.shape[-1]
        return x * weight * torch.rsqrt(mean + eps)

    arguments = randn(32, 512), randn(512), 1e-6
    assert verdict_of(other_order, "check_demo::rms_norm", *arguments).verdict == "pass"


def test_second_step_of_a_fused_optimizer():
    def device(op, args, kwargs):
        args = list(args)
        args[5] = [s + 1 for s in args[5]]
        return op(*args, **kwargs)

    arguments, keywords = adamw()
    verdict = verdict_of(device, "aten::_fused_adamw_", *arguments, **keywords)
    assert verdict.verdict in ("reduced", "wrong")
    assert verdict.cause == "adds 1 to the step count a second time"


def test_rounded_inputs_of_a_norm_but_not_its_bias():
    x, weight, bias = randn(16, 64), randn(64), randn(64)
    device = on_inputs("TF32", skip=[3])
    verdict = verdict_of(device, "aten::native_layer_norm", x, [64], weight, bias, 1e-5)
    assert verdict.cause == "inputs rounded to TF32 or float16"


def test_other_argument_values():
    def no_decay(op, args, kwargs):
        return op(*args, **{**kwargs, "weight_decay": 0.0})

    arguments, keywords = adamw()
    verdict = verdict_of(no_decay, "aten::_fused_adamw_", *arguments, **keywords)
    assert verdict.cause == "weight_decay is ignored: taken as 0 instead of 0.01"

    def tanh(op, args, kwargs):
        return op(*args, approximate="tanh")

    verdict = verdict_of(tanh, "aten::gelu", randn(512))
    assert verdict.cause == "tanh form of gelu instead of erf"


def test_dropped_tail():
    verdict = verdict_of(put(slice(-7, None), 0.0), "aten::mm", randn(8, 8), randn(8, 8))
    assert (verdict.verdict, verdict.cause) == ("wrong", "the last 7 of 64 elements are zero: the tail was not written")
    verdict = verdict_of(put(63, 0.0), "aten::mm", randn(8, 8), randn(8, 8))
    assert verdict.cause == "the last element is zero"

    def columns(y):
        y[:, -3:] = 0
        return y

    verdict = verdict_of(after(columns), "aten::mm", randn(8, 8), randn(8, 8))
    assert verdict.cause == "the last 3 of 8 along axis 1 are zero: the tail was not written"


def test_stale_tail_and_lost_write():
    def stale(op, args, kwargs):
        keep = args[0][-4:].clone()
        op(*args, **kwargs)
        args[0][-4:] = keep
        return args[0]

    verdict = verdict_of(stale, "aten::add_.Tensor", randn(32), randn(32))
    assert verdict.cause == "the last 4 of 32 elements are stale: they were not written"
    verdict = verdict_of(lambda op, a, k: a[0], "aten::add_.Tensor", randn(32), randn(32))
    assert verdict.cause == "the in-place result was lost: not written, previous contents are stale"


def test_swap_bit_flip_and_zero():
    def swap(y):
        y.view(-1)[[3, 9]] = y.view(-1)[[9, 3]]
        return y

    verdict = verdict_of(after(swap), "aten::mm", randn(8, 8), randn(8, 8))
    assert verdict.cause == "elements 3 and 9 change places (exchanged); off only in elements [0, 3] and [1, 1]"

    def flip(y):
        y.view(-1).view(torch.int32)[11] ^= 1 << 27
        return y

    verdict = verdict_of(after(flip), "aten::mm", randn(8, 8), randn(8, 8))
    assert verdict.cause == "bit 27 of one element flipped; off only in element [1, 3]"
    verdict = verdict_of(put(5, 0.0), "aten::mm", randn(8, 8), randn(8, 8))
    assert verdict.cause == "one element is zero; off only in element [0, 5]"


def test_factor_and_offset():
    verdict = verdict_of(after(lambda y: y * 1.01), "aten::mm", randn(8, 8), randn(8, 8))
    assert verdict.cause == "the result is multiplied by 1.01"
    verdict = verdict_of(after(lambda y: y + 0.01), "aten::mm", randn(8, 8), randn(8, 8))
    assert verdict.cause == "0.01 is added to the result (a constant offset)"


def test_cut_off_bits():
    def cut(y):
        return (y.view(torch.int32) & ~0xFF).view(torch.float32)

    verdict = verdict_of(after(cut), "aten::mm", randn(32, 32), randn(32, 32))
    assert verdict.cause == "the last 8 bits of the result are cut off (truncated instead of rounded)"


def left_by(change):
    """The cause where a device gives, changed, what the call before gave."""
    call, old, earlier = make_call("aten::mm", randn(16, 24), randn(24, 8)), randn(16, 8), Earlier()
    earlier.keep(11, Answer({"out[0]": old}))
    verdict = judge_call(call, PythonDevice(lambda op, args, kwargs: change(old, op(*args, **kwargs))), seconds=0)
    earlier.beside(verdict.answer)
    explain(call, verdict, Timing())
    return verdict.cause


def test_output_of_the_call_before():
    stale = "the result is the output of call 11: it was not written, what was there before is stale"
    assert left_by(lambda old, new: old.clone()) == stale
    rows = left_by(lambda old, new: new.index_copy(0, torch.tensor([4, 9]), old[[4, 9]]))
    assert rows == "slices 4 and 9 of 16 along axis 0 hold nothing but the output of call 11"
    assert "call 11" not in left_by(lambda old, new: old * 1.001)


def test_few_outputs_of_calls_before_are_looked_at(monkeypatch):
    """Which of them tell is seen when somebody asks: the last eight that do, of sixteen MiB in all."""
    looked, earlier = [], Earlier()
    monkeypatch.setattr("ulpscope.session.earlier._tells", lambda t: looked.append(t) or t.numel() > 4)
    sizes = [7, 1 << 21, 3, 1 << 22, 1 << 23, 5, 2] + [6, 4] * 200
    for number, n in enumerate(sizes):
        earlier.keep(number, Answer({"out[0]": torch.empty(n), "out[1]": torch.ones(3, dtype=torch.int64)}))
        telling = [k for k in range(number + 1) if 4 < sizes[k] <= 1 << 22][-8:]
        room = [k for k in telling if 4 * sum(sizes[j] for j in telling if j >= k) <= 1 << 24]
        if number % 29 == 6 or number == len(sizes) - 1:
            asked = Answer({"out[0]": torch.empty(sizes[room[-1]])})
            earlier.beside(asked)
            same = [k for k in room if sizes[k] == sizes[room[-1]]]
            assert list(asked.earlier) == [f"the output of call {k}" for k in same]
            assert [k for k, _ in earlier.kept] == room
    assert len(looked) < len(sizes)


@pytest.mark.parametrize(
    "change",
    [lambda y: y * (1 + 1e-3 * torch.randn(y.shape)), lambda y: y + 1e-3 * y * y, lambda y: torch.randn(y.shape)],
    ids=["noise", "quadratic", "another"],
)
def test_unknown_mistakes_get_no_name(change):
    verdict = verdict_of(after(change), "aten::mm", randn(32, 48), randn(48, 16))
    assert verdict.verdict in ("reduced", "wrong")
    assert verdict.cause.startswith(("cause unknown", "looks like noise"))
