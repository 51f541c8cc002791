# SPDX-License-Identifier: Apache-2.0
"""aten operators that torch has kernels for on accelerators only, for the tests of their
references: see reference_cases. They have no kernel here; the cases' own stand for it."""

import math

import torch
from reference_cases import as_low, case, draw, gradients, up
from reference_cases_attention import attention_gradients, late, plain_attention
from torch.nn import functional as F

EMPTY = torch.empty(0)
SEED = torch.tensor([3, 4])


def bhsd(dtype, n_q=24, n_k=24):
    return [draw(2, 4, n, 16, seed=s, dtype=dtype) for n, s in ((n_q, 1), (n_k, 2), (n_k, 3))]


def causal(q, k):
    """The mask of aten begins at the first key."""
    return torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).triu(1)


@case(
    "aten::_scaled_dot_product_flash_attention",
    lambda dtype: ([*bhsd(dtype), 0.0, True], {}),
    dict(scale=0.3),
    dict(wrong_mask=True),
    dict(lse_error=0.01),
)
def flash(
    query,
    key,
    value,
    dropout_p=0.0,
    is_causal=False,
    return_debug_mask=False,
    scale=None,
    wrong_mask=False,
    lse_error=0.0,
):
    hidden = causal(query, key).roll(1, 1) if wrong_mask else causal(query, key)
    out, lse, _, _ = plain_attention(*up(query, key, value), scale or 0.25, hidden)
    return as_low(query, out), lse + lse_error, None, None, 24, 24, SEED, EMPTY, EMPTY


@case(
    "aten::_scaled_dot_product_fused_attention_overrideable",
    lambda dtype: ([*bhsd(dtype, n_k=40), draw(1, 4, 24, 40, seed=5, dtype=dtype)], {}),
    dict(no_bias=True),
)
def overrideable(
    query,
    key,
    value,
    attn_bias=None,
    dropout_p=0.0,
    is_causal=False,
    return_debug_mask=False,
    scale=None,
    no_bias=False,
):
    bias = None if no_bias else attn_bias.float()
    out, lse, _, _ = plain_attention(*up(query, key, value), 0.25, None, 0.0, bias)
    return as_low(query, out), lse, None, None, 24, 40, SEED, EMPTY, EMPTY


@case(
    "aten::_scaled_dot_product_efficient_attention",
    lambda dtype: ([*bhsd(dtype), None, True, 0.0, False], dict(scale=0.5)),
    dict(factor=1.01),
)
def efficient(query, key, value, attn_bias, compute_log_sumexp, dropout_p=0.0, is_causal=False, scale=None, factor=1.0):
    out, lse, _, _ = plain_attention(*up(query, key, value), scale * factor)
    return as_low(query, out), F.pad(lse, (0, 8)), EMPTY, EMPTY


def flash_grad_args(dtype):
    q, k, v = bhsd(dtype)
    out, lse = flash(q, k, v)[:2]
    return [
        draw(2, 4, 24, 16, seed=9, dtype=dtype),
        q,
        k,
        v,
        out,
        lse,
        EMPTY,
        EMPTY,
        24,
        24,
        0.0,
        True,
        SEED,
        EMPTY,
    ], {}


@case("aten::_scaled_dot_product_flash_attention_backward", flash_grad_args, dict(dv=1.01), dict(wrong_mask=True))
def flash_backward(
    grad_out,
    query,
    key,
    value,
    out,
    logsumexp,
    a,
    b,
    c,
    d,
    dropout_p,
    is_causal,
    seed,
    unused,
    scale=None,
    dv=1.0,
    wrong_mask=False,
):
    hidden = late(24, 24, 1) if wrong_mask else causal(query, key)
    grads = attention_gradients(grad_out, query, key, value, out, 0.25, hidden)
    return as_low(query, grads[0], grads[1], grads[2] * dv)


@case(
    "aten::_scaled_dot_product_efficient_attention_backward",
    lambda dtype: (
        lambda q, k, v: (
            [
                draw(2, 4, 24, 16, seed=9, dtype=dtype),
                q,
                k,
                v,
                None,
                *efficient(q, k, v, None, True, scale=0.25)[:2],
                EMPTY,
                EMPTY,
                0.0,
                [True, True, True, False],
                False,
            ],
            dict(scale=0.25),
        )
    )(*bhsd(dtype)),
    dict(dk=1.01),
)
def efficient_backward(
    grad,
    query,
    key,
    value,
    attn_bias,
    out,
    logsumexp,
    seed,
    offset,
    dropout_p,
    mask,
    is_causal=False,
    scale=None,
    dk=1.0,
):
    nothing = torch.zeros(24, 24, dtype=torch.bool)
    grads = attention_gradients(grad, query, key, value, out, scale, nothing)
    return *as_low(query, grads[0], grads[1] * dk, grads[2]), None


@case(
    "aten::cudnn_convolution",
    lambda dtype: (
        [
            draw(2, 4, 9, 9, dtype=dtype),
            draw(6, 2, 3, 3, seed=2, dtype=dtype),
            [1, 1],
            [2, 2],
            [1, 1],
            2,
            False,
            False,
            True,
        ],
        {},
    ),
    dict(lost=True),
)
def cudnn_convolution(self, weight, padding, stride, dilation, groups, *rest, lost=False):
    w = weight.float()
    w = w * (torch.arange(3) != 2) if lost else w
    patches = F.unfold(self.float(), 3, padding=1, stride=2).view(2, 2, 18, 25)
    return as_low(self, torch.einsum("ngkl,gok->ngol", patches, w.view(2, 3, 18)).reshape(2, 6, 5, 5))


@case(
    "aten::_thnn_fused_lstm_cell",
    lambda dtype: (
        [
            draw(5, 64, dtype=dtype),
            draw(5, 64, seed=2, dtype=dtype),
            draw(5, 16, seed=3, dtype=dtype),
            draw(64, seed=4, dtype=dtype),
            draw(64, seed=5, dtype=dtype),
        ],
        {},
    ),
    dict(swap=True),
)
def lstm(input_gates, hidden_gates, cx, input_bias=None, hidden_bias=None, swap=False):
    sums = sum(up(input_gates, hidden_gates, input_bias, hidden_bias))
    i, f, g, o = sums.split(16, 1)
    i, f = (f, i) if swap else (i, f)
    i, f, g, o = (1 / (1 + torch.exp(-t)) for t in (i, f, 2 * g, o))
    g = 2 * g - 1
    cy = torch.addcmul(i * g, f, cx.float())
    return as_low(cx, o * torch.tanh(cy), cy, torch.cat((i, f, g, o), 1))


def lstm_grad_args(dtype):
    args = [draw(5, 64), draw(5, 64, seed=2), draw(5, 16, seed=3), torch.zeros(64), torch.zeros(64)]
    _, cy, gates = lstm(*args)
    return [
        draw(5, 16, seed=6).to(dtype),
        draw(5, 16, seed=7).to(dtype),
        args[2].to(dtype),
        cy.to(dtype),
        gates.to(dtype),
        True,
    ], {}


@case("aten::_thnn_fused_lstm_cell_backward_impl", lstm_grad_args, dict(forget=0.9))
def lstm_backward(grad_hy, grad_cy, cx, cy, workspace, has_bias, forget=1.0):
    i, f, g, o = workspace.float().split(16, 1)
    hy, c, cx = up(grad_hy, cy, cx)
    dc = grad_cy.float() + hy * o * (1 - torch.tanh(c) ** 2)
    gates = torch.stack(
        (dc * g * (i - i * i), forget * dc * cx * (f - f * f), dc * i * (1 - g * g), hy * torch.tanh(c) * (o - o * o)),
        1,
    ).flatten(1)
    return as_low(cy, gates, dc * f, gates.sum(0))


@case(
    "aten::batch_norm_gather_stats_with_counts",
    lambda dtype: (
        [
            draw(6, 5, 4),
            draw(3, 5, seed=2),
            draw(3, 5, seed=3).abs() + 0.5,
            draw(5, seed=4),
            draw(5, seed=5).abs(),
            0.1,
            1e-3,
            torch.tensor([10.0, 6.0, 8.0]),
        ],
        {},
    ),
    dict(biased=True),
    dict(even=True),
)
def gather_stats(input, mean, invstd, running_mean, running_var, momentum, eps, counts, biased=False, even=False):
    n = torch.full((3, 1), 8.0) if even else counts[:, None]
    second = 1 / invstd**2 - eps + mean**2
    whole = (n * mean).sum(0) / 24
    var = (n * second).sum(0) / 24 - whole**2
    running_mean.lerp_(whole, momentum)
    running_var.lerp_(var if biased else var * 24 / 23, momentum)
    return whole, (var + eps) ** -0.5


@case(
    "aten::batch_norm_backward_elemt",
    lambda dtype: (
        [
            draw(6, 5, 4, seed=6, dtype=dtype),
            draw(6, 5, 4, dtype=dtype),
            draw(5, seed=2),
            draw(5, seed=3).abs() + 0.5,
            draw(5, seed=4),
            draw(5, seed=5),
            draw(5, seed=7),
            torch.tensor([10, 14], dtype=torch.int32),
        ],
        {},
    ),
    dict(count_off=1),
)
def backward_elemt(grad_out, input, mean, invstd, weight, sum_dy, sum_dy_xmu, count, count_off=0):
    n = 24.0 + count_off
    x, dy = input.float().transpose(1, 2), grad_out.float().transpose(1, 2)
    dx = (dy - sum_dy / n - (x - mean) * invstd**2 * sum_dy_xmu / n) * invstd * weight
    return as_low(input, dx.transpose(1, 2))


@case(
    "aten::linear_backward",
    lambda dtype: (
        [
            draw(3, 4, 16, dtype=dtype),
            draw(3, 4, 8, seed=2, dtype=dtype),
            draw(8, 16, seed=3, dtype=dtype),
            [True, True, True],
        ],
        {},
    ),
    dict(rows=11),
)
def linear_backward(self, grad_output, weight, output_mask, rows=12):
    dx, dw, db = gradients(F.linear, (self, weight, torch.zeros(8)), grad_output)
    if rows != 12:
        dw = grad_output.float().view(12, 8)[:rows].T @ self.float().view(12, 16)[:rows]
    return as_low(self, dx, dw, db)


@case(
    "aten::_efficient_attention_forward",
    lambda dtype: (
        [t.transpose(1, 2).contiguous() for t in bhsd(dtype, n_k=40)] + [None, None, None, 24, 40, 0.0, 2, True],
        {},
    ),
    dict(shift=1),
)
def packed_efficient(
    query, key, value, bias, cq, ck, mq, mk, dropout_p, custom_mask_type, compute=False, shift=0, **rest
):
    q, k, v = (t.transpose(1, 2).float() for t in (query, key, value))
    out, lse, _, _ = plain_attention(q, k, v, 1 / math.sqrt(16), late(24, 40, shift))
    return as_low(query, out.transpose(1, 2)), lse, SEED, SEED, 24, 40
