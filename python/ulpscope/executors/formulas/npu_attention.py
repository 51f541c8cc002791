# SPDX-License-Identifier: Apache-2.0
"""References of torch_npu's fused attention, forward and backward: `attention` in its layouts and masks."""

from __future__ import annotations

from torch import Tensor

from . import NoReference, builtin, no_dropout
from .attention import Scores, _reduced_to, attend_backward, band, shared

EVERYTHING = 2147483647


def _heads_first(x, layout, heads):
    """[batch, heads, sequence, width] of any of torch_npu's layouts."""
    if layout == "BNSD":
        return x
    if layout == "BSND":
        return x.transpose(1, 2)
    if layout == "SBH":
        x = x.transpose(0, 1)
    elif layout != "BSH":
        raise NoReference(f"input_layout={layout} is not in the built-in reference")
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def _as_layout(x, layout):
    """The inverse of _heads_first."""
    if layout == "BNSD":
        return x
    x = x.transpose(1, 2)
    if layout == "BSND":
        return x
    return x.flatten(-2).transpose(0, 1) if layout == "SBH" else x.flatten(-2)


def _npu_hidden(mask, n_q, n_k, mode, before, after):
    """Hidden scores by sparse mode: 0 the mask and a band, 1 the mask, 2 and 3 a triangle
    from the first or the last key, 4 a band that ends at the last key."""
    if mask is None:
        return None
    if mode == 2:
        return band(n_q, n_k, -1, 0, 0)
    if mode == 3:
        return band(n_q, n_k, -1, 0, n_k - n_q)
    if mode == 4:
        return band(n_q, n_k, before, after, n_k - n_q)
    if mode not in (0, 1):
        raise NoReference(f"sparse_mode={mode} is not in the built-in reference")
    return mask.bool()


def _npu_operands(query, key, value, head_num, layout, pse, mask, scale, mode, tokens):
    q = _heads_first(query, layout, head_num)
    heads = key.shape[-1] // (query.shape[-1] // head_num) if layout in ("BSH", "SBH") else 0
    k, v = (_heads_first(t, layout, heads) for t in (key, value))
    hidden = _npu_hidden(mask, q.shape[2], k.shape[2], mode, *tokens)
    if hidden is not None and bool(hidden.all(-1).any()):
        raise NoReference("a row that is masked wholly is not in the built-in reference")
    return q, k, v, Scores(scale, hidden, pse)


def _limits(a, b):
    return b if b is not None else a


@builtin("npu::npu_fusion_attention", "npu::npu_fusion_attention_v2", n_returns=7)
@builtin("npu::npu_fusion_attention_v3", n_returns=6)
def npu_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    head_num: int,
    input_layout: str,
    pse: Tensor | None = None,
    atten_mask: Tensor | None = None,
    scale: float = 1.0,
    keep_prob: float = 1.0,
    pre_tockens: int = EVERYTHING,
    next_tockens: int = EVERYTHING,
    pre_tokens: int | None = None,
    next_tokens: int | None = None,
    sparse_mode: int = 0,
    n_returns: int = 7,
) -> tuple[Tensor | None, ...]:
    """Output, row maximum and row sum; the latter two eight times over."""
    no_dropout(1 - keep_prob)
    tokens = _limits(pre_tockens, pre_tokens), _limits(next_tockens, next_tokens)
    q, k, v, scores = _npu_operands(
        query, key, value, head_num, input_layout, pse, atten_mask, scale, sparse_mode, tokens
    )
    s, _ = scores.of(q, shared(k, q.shape[1]))
    top = s.amax(-1, keepdim=True)
    p = (s - top).exp()
    total = p.sum(-1, keepdim=True)
    out = _as_layout(p / total @ shared(v, q.shape[1]), input_layout)
    stats = (t.expand(*t.shape[:-1], 8) for t in (top, total))
    return (out, *stats, *[None] * (n_returns - 3))


@builtin("npu::npu_fusion_attention_grad", "npu::npu_fusion_attention_grad_v3", n_returns=5)
@builtin("npu::npu_fusion_attention_grad_v2", n_returns=7)
def npu_attention_grad(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dy: Tensor,
    head_num: int,
    input_layout: str,
    pse: Tensor | None = None,
    atten_mask: Tensor | None = None,
    softmax_max: Tensor | None = None,
    softmax_sum: Tensor | None = None,
    attention_in: Tensor | None = None,
    scale_value: float = 1.0,
    keep_prob: float = 1.0,
    pre_tockens: int = EVERYTHING,
    next_tockens: int = EVERYTHING,
    pre_tokens: int | None = None,
    next_tokens: int | None = None,
    sparse_mode: int = 0,
    n_returns: int = 5,
) -> tuple[Tensor | None, ...]:
    no_dropout(1 - keep_prob)
    tokens = _limits(pre_tockens, pre_tokens), _limits(next_tockens, next_tokens)
    q, k, v, scores = _npu_operands(
        query, key, value, head_num, input_layout, pse, atten_mask, scale_value, sparse_mode, tokens
    )
    dout, out = (_heads_first(t, input_layout, head_num) for t in (dy, attention_in))
    lse = softmax_max[..., 0] + softmax_sum[..., 0].log()
    *grads, ds = attend_backward(dout, q, k, v, out, lse, scores)
    grads = [_as_layout(g, input_layout) for g in grads]
    return (*grads, None if pse is None else _reduced_to(ds, pse.shape), *[None] * (n_returns - 4))
