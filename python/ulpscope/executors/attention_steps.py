# SPDX-License-Identifier: Apache-2.0
"""Attention and its gradient by their formulas, in steps: what fused kernels compute in one. Torch's own table gives
the weights where the kernel of the gradient reads logarithms of sums. Serves `noise` and `causes.compound`.
Needs torch's operators only."""

from __future__ import annotations

import torch


def _scores(q, k, attn_mask, is_causal, scale):
    scores = torch.matmul(q, k.transpose(-2, -1))
    scores = torch.mul(scores, q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        keep = torch.tril(torch.ones(scores.shape[-2:], dtype=torch.bool), 0)
        scores = torch.where(keep, scores, -torch.inf)
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            scores = torch.where(attn_mask, scores, -torch.inf)
        else:
            scores = torch.add(scores, attn_mask)
    return scores


def _for_each(q, *shared):
    """Keys or values of heads that several queries share, once for each."""
    return [t.repeat_interleave(q.shape[1] // t.shape[1], 1) if t.shape[1] != q.shape[1] else t for t in shared]


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    dropout_mask: torch.Tensor | None = None,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The result and the logarithms of the softmax's sums."""
    k, v = _for_each(q, k, v)
    scores = _scores(q, k, attn_mask, is_causal, scale)
    weights = torch.softmax(scores, -1)
    return torch.matmul(weights, v), torch.logsumexp(scores, -1)


def flash(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same with the arguments of the fused kernel."""
    return attention(q, k, v, attn_mask, dropout_p, is_causal, scale=scale)


def flash_backward(
    g: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    sums: torch.Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, ...]:
    """Gradients of query, key and value; the weights are computed anew, as the kernel does."""
    keys, values = _for_each(q, k, v)
    weights = torch.softmax(_scores(q, keys, attn_mask, is_causal, scale), -1)
    of_weights = torch.matmul(g, values.transpose(-2, -1))
    of_scores = torch.ops.aten._softmax_backward_data(of_weights, weights, -1, weights.dtype)
    of_scores = torch.mul(of_scores, q.shape[-1] ** -0.5 if scale is None else scale)
    own = [torch.matmul(of_scores.transpose(-2, -1), q), torch.matmul(weights.transpose(-2, -1), g)]
    shared = [
        t if like.shape[1] == q.shape[1] else t.unflatten(1, (like.shape[1], -1)).sum(2) for t, like in zip(own, (k, v))
    ]
    return torch.matmul(of_scores, keys), *shared
