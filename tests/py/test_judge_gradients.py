# SPDX-License-Identifier: Apache-2.0
"""judge_call on gradients of attention as fused kernels compute them: from the output instead
of the weights, so that what cancels to nothing in autograd's formula does not there."""

import pytest
import torch
from torch.nn import functional as F

import ulpscope

N = 9


def mask():
    return torch.ones(N, N, dtype=torch.bool).tril()


def weights(like):
    return torch.cos(torch.arange(like.numel(), dtype=torch.float32)).reshape(like.shape).to(like.dtype)


def gradients(forward):
    def run(q, k, v):
        with torch.enable_grad():
            leaves = [t.detach().clone().requires_grad_() for t in (q, k, v)]
            out = forward(*leaves)
            return torch.autograd.grad(out, leaves, weights(out))

    return run


def plain(q, k, v):
    scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~mask(), -torch.inf)
    return torch.softmax(scores, -1) @ v


def fused(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def as_kernels_do(q, k, v, delta=True, held=lambda t: t):
    q, k, v = q.float(), k.float(), v.float()
    scale = q.shape[-1] ** -0.5
    p = torch.softmax((q @ k.mT * scale).masked_fill(~mask(), -torch.inf), -1)
    out = p @ v
    do = weights(out)
    lost = (do * out).sum(-1, keepdim=True) if delta else 0.0
    ds = held(p * (do @ v.mT - lost))
    return ds @ k * scale, ds.mT @ q * scale, p.mT @ do


def inputs(kind, dtype):
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(3, 2, 3, N, 16, generator=generator)
    x = 10 * x[0] if kind == "one-hot" else x[0], x[1] + (10 if kind == "offset" else 0), x[2]
    return tuple(t.to(dtype) for t in x)


@pytest.mark.parametrize("forward", (plain, fused))
@pytest.mark.parametrize("dtype", (torch.float32, torch.float16))
@pytest.mark.parametrize("kind", ("normal", "one-hot", "offset"))
def test_attention_gradients_from_the_output_pass(forward, dtype, kind):
    args = inputs(kind, dtype)
    right = tuple(t.to(dtype) for t in as_kernels_do(*args))
    said = ulpscope.judge_call(gradients(forward), args, {}, right)
    assert said.verdict == "pass", said.sentence


@pytest.mark.parametrize("wrong", ({"delta": False}, {"held": lambda t: t.half().float()}))
def test_wrong_attention_gradients_are_accused(wrong):
    args = inputs("normal", torch.float32)
    said = ulpscope.judge_call(gradients(plain), args, {}, as_kernels_do(*args, **wrong))
    assert said.verdict in ("reduced", "wrong"), said.sentence
