# SPDX-License-Identifier: Apache-2.0
"""Attention and its gradient by their formulas, in steps: what fused kernels compute in one. Torch's own table gives
the weights where the kernel of the gradient reads logarithms of sums. Serves `noise`, `precision` and
`causes.compound`. Needs torch's operators only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

FUSED = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu_backward", None)  # torch 2.1 has none
MOST_WEIGHTS = 1 << 24  # at once
LARGE = 2.0**20  # of scores: their difference from a logarithm of sums has lost as much


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


def _weights(scores):
    """Those of a query all of whose keys are hidden are 0, as in kernels, where other forms have NaN."""
    return torch.softmax(scores, -1).masked_fill(scores.amax(-1, keepdim=True) == -torch.inf, 0)


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
    weigh: Callable[[torch.Tensor], torch.Tensor] = lambda scores: torch.softmax(scores, -1),
) -> tuple[torch.Tensor, ...]:
    """Gradients of query, key and value; the weights are computed anew, as the kernel does."""
    keys, values = _for_each(q, k, v)
    weights = weigh(_scores(q, keys, attn_mask, is_causal, scale))
    of_weights = torch.matmul(g, values.transpose(-2, -1))
    of_scores = torch.ops.aten._softmax_backward_data(of_weights, weights, -1, weights.dtype)
    of_scores = torch.mul(of_scores, q.shape[-1] ** -0.5 if scale is None else scale)
    own = [torch.matmul(of_scores.transpose(-2, -1), q), torch.matmul(weights.transpose(-2, -1), g)]
    shared = [
        t if like.shape[1] == q.shape[1] else t.unflatten(1, (like.shape[1], -1)).sum(2) for t, like in zip(own, (k, v))
    ]
    return torch.matmul(of_scores, keys), *shared


def _is_sound(q, k, sums, scale):
    """Whether scores are small enough for the exponential of their difference from `sums`; or these were rounded,
    so that what the kernel makes of them is what is asked for."""
    most = q.norm(dim=-1).max() * k.norm(dim=-1).max() * (q.shape[-1] ** -0.5 if scale is None else scale)
    return not bool(most > LARGE) or sums.dtype != torch.float64 or torch.equal(sums, sums.float().double())


def flash_backward_soundly(
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
    """The kernel's, or by the formula, some queries at a time. The kernel computes a score twice, in two orders, and
    takes the exponential of the difference: of scores of 1e20 that is anything, in float64 as well."""
    if q.numel() == 0 or k.numel() == 0 or _is_sound(q, k, sums, scale):
        return FUSED(g, q, k, v, out, sums, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)
    n = max(1, MOST_WEIGHTS // (q.shape[0] * q.shape[1] * k.shape[-2]))
    mask, of_queries, of_others = attn_mask, [], None
    if is_causal:
        mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril(0)
    for i in range(0, q.shape[-2], n):
        rows = slice(i, i + n)
        part = mask if mask is None or mask.shape[-2] == 1 else mask[..., rows, :]
        given = (t[..., rows, :] for t in (g, q))
        dq, *others = flash_backward(
            *given, k, v, out, sums, dropout_p, False, attn_mask=part, scale=scale, weigh=_weights
        )
        of_queries.append(dq)
        of_others = others if of_others is None else [a + b for a, b in zip(of_others, others)]
    return torch.cat(of_queries, -2), *of_others


IN_FLOAT64 = {} if FUSED is None else {FUSED.default: flash_backward_soundly}
