# SPDX-License-Identifier: Apache-2.0
"""References of the CPU library's recurrent layers, which exist in float32 and bfloat16 only: one
layer of an LSTM in one direction, and its gradient. Called by `__init__`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from . import NoReference, builtin

LSTM = 2  # torch's number of it


def _lstm(x, w_in, w_state, b_in, b_state, h, c, reverse):
    """(outputs, last h, last c) over x [time, batch, features]."""
    ahead = x @ w_in.t() + (b_in + b_state)
    outputs = [None] * x.shape[0]
    for t in reversed(range(x.shape[0])) if reverse else range(x.shape[0]):
        i, f, g, o = (ahead[t] + h @ w_state.t()).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        outputs[t] = h
    return torch.stack(outputs), h, c


def _covered(mode, batch_sizes, input):
    if mode != LSTM:
        raise NoReference(f"mode={mode} is not in the built-in reference")
    if batch_sizes and set(batch_sizes) != {input.shape[1]}:
        raise NoReference("sequences of several lengths are not in the built-in reference")


def _biases(has_biases, first, second, w_in):
    """The biases; without any, other weights stand in their places."""
    nothing = w_in.new_zeros(w_in.shape[0])
    return (first, second) if has_biases else (nothing, nothing.clone())


@builtin("aten::mkldnn_rnn_layer")
def mkldnn_rnn_layer(
    input: Tensor,
    weight0: Tensor,
    weight1: Tensor,
    weight2: Tensor,
    weight3: Tensor,
    hx_: Tensor,
    cx_: Tensor,
    reverse: bool,
    batch_sizes: Sequence[int],
    mode: int,
    hidden_size: int,
    num_layers: int,
    has_biases: bool,
    bidirectional: bool,
    batch_first: bool,
    train: bool,
) -> tuple[Tensor, Tensor, Tensor, None]:
    _covered(mode, batch_sizes, input)
    sides = input.shape[1], hidden_size
    biases = _biases(has_biases, weight2, weight3, weight0)
    y, h, c = _lstm(input, weight0, weight1, *biases, hx_.reshape(sides), cx_.reshape(sides), reverse)
    return y, h.reshape(hx_.shape), c.reshape(cx_.shape), None


@builtin("aten::mkldnn_rnn_layer_backward")
def mkldnn_rnn_layer_backward(
    input: Tensor,
    weight1: Tensor,
    weight2: Tensor,
    weight3: Tensor,
    weight4: Tensor,
    hx_: Tensor,
    cx_tmp: Tensor,
    output: Tensor,
    hy_: Tensor,
    cy_: Tensor,
    grad_output: Tensor | None,
    grad_hy: Tensor | None,
    grad_cy: Tensor | None,
    reverse: bool,
    mode: int,
    hidden_size: int,
    num_layers: int,
    has_biases: bool,
    train: bool,
    bidirectional: bool,
    batch_sizes: Sequence[int],
    batch_first: bool,
    workspace: Tensor,
) -> tuple[Tensor | None, ...]:
    _covered(mode, batch_sizes, input)
    given = input, weight1, weight2, *_biases(has_biases, weight3, weight4, weight1), hx_, cx_tmp
    with torch.enable_grad():
        leaves = [t.detach().requires_grad_() for t in given]
        sides = input.shape[1], hidden_size
        states = [t.reshape(sides) for t in leaves[5:]]
        results = _lstm(*leaves[:5], *states, reverse)
        pairs = [(y, g) for y, g in zip(results, (grad_output, grad_hy, grad_cy)) if g is not None]
        found = torch.autograd.grad([y for y, _ in pairs], leaves, [g.reshape(y.shape) for y, g in pairs])
    return found if has_biases else (*found[:3], None, None, *found[5:])
