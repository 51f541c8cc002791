# SPDX-License-Identifier: Apache-2.0
"""Arguments that stay on the host whatever the device, and operators that exist for the CPU
alone: neither is the device's fault. What a library of the CPU computes is judged."""

import pytest
import torch
from calls import make_call

import ulpscope.sim  # noqa: F401 - brings the device
from ulpscope.executors.device import PythonDevice, TorchDevice
from ulpscope.session.judging import judge_call

SIZES = torch.tensor([3, 2, 2, 1])  # rows of the packed sequences below


def randn(*sizes):
    torch.manual_seed(sum(sizes))
    return torch.randn(*sizes)


def weights(gates):
    return [randn(gates * 5, 4), randn(gates * 5, 5), randn(gates * 5), randn(gates * 5)]


def packed(kind, gates):
    state = randn(1, 3, 5)
    state = [state, state * 0.5] if kind == "lstm" else state
    return (f"aten::{kind}.data", randn(8, 4), SIZES, state, weights(gates), True, 1, 0.0, False, False)


def layer(reverse=False, biases=True):
    w = weights(4)
    w = w if biases else [w[0], w[1], w[0], w[1]]
    return (
        "aten::mkldnn_rnn_layer",
        randn(6, 3, 4),
        *w,
        randn(3, 5),
        randn(3, 5) * 2,
        reverse,
        [],
        2,
        5,
        1,
        biases,
        False,
        False,
        True,
    )


def layer_backward(reverse=False):
    _, x, *w, h, c, _, _, _, _, _, _, _, _, _ = layer(reverse)
    run = torch.ops.aten.mkldnn_rnn_layer
    y, hy, cy, space = run(x, *w, h, c, reverse, [], 2, 5, 1, True, False, False, True)
    return (
        "aten::mkldnn_rnn_layer_backward",
        x,
        *w,
        h,
        c,
        y,
        hy,
        cy,
        randn(6, 3, 5),
        randn(3, 5),
        None,
        reverse,
        2,
        5,
        1,
        True,
        True,
        False,
        [],
        False,
        space,
    )


CALLS = {
    "packing": (
        lambda: ("aten::_pack_padded_sequence", randn(4, 3, 2), torch.tensor([4, 3, 1]), False),
        "pass",
        "pass",
    ),
    "unpacking": (lambda: ("aten::_pad_packed_sequence", randn(8, 2), SIZES, False, 0.0, 4), "pass", "pass"),
    "splitting": (
        lambda: ("aten::tensor_split.tensor_indices_or_sections", randn(9), torch.tensor([2, 5]), 0),
        "pass",
        "pass",
    ),
    "packed lstm": (lambda: packed("lstm", 4), "pass", "pass"),
    "packed gru": (lambda: packed("gru", 3), "pass", "pass"),
    "packed rnn": (lambda: packed("rnn_tanh", 1), "pass", "pass"),
    "layer": (layer, "unsupported", "pass"),
    "layer, reversed": (lambda: layer(True), "unsupported", "pass"),
    "layer without biases": (lambda: layer(biases=False), "unsupported", "pass"),
    "its gradient": (layer_backward, "unsupported", "pass"),
    "its gradient, reversed": (lambda: layer_backward(True), "unsupported", "pass"),
}


@pytest.mark.parametrize("name", CALLS)
def test_verdict(name):
    make, on_sim, on_cpu = CALLS[name]
    for device, expected in (("sim:0", on_sim), ("cpu", on_cpu)):
        verdict = judge_call(make_call(*make()), TorchDevice(device), seconds=0)
        assert verdict.verdict == expected, (device, verdict.reason, verdict.worst)


def gates_exchanged(op, args, kwargs):
    args = list(args)
    for i in range(1, 5):
        a, b, *rest = args[i].chunk(4)
        args[i] = torch.cat([b, a, *rest])
    return op(*args, **kwargs)


def state_forgotten(op, args, kwargs):
    return op(*args[:6], args[6] * 0, *args[7:], **kwargs)


def bfloat16_inside(op, args, kwargs):
    low = [a.bfloat16().float() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args]
    return op(*low, **kwargs)


def last_element(op, args, kwargs):
    out = op(*args, **kwargs)
    out[0].reshape(-1)[-1] *= 1.01
    return out


@pytest.mark.parametrize("make", [layer, layer_backward])
@pytest.mark.parametrize("fault", [gates_exchanged, state_forgotten, bfloat16_inside, last_element])
def test_a_wrong_layer_is_flagged(make, fault):
    verdict = judge_call(make_call(*make()), PythonDevice(fault), seconds=0)
    assert verdict.verdict in ("wrong", "reduced"), verdict.reason


def test_a_kernel_that_wants_its_lengths_on_the_device_gets_them_there():
    call = make_call("aten::index_select", randn(5, 3), 0, torch.tensor([4, 1]))
    verdict = judge_call(call, TorchDevice("sim:0"), seconds=0)
    assert verdict.verdict == "pass", verdict.reason
