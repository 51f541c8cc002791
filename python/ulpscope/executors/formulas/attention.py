# SPDX-License-Identifier: Apache-2.0
"""References of fused attention, forward and backward: aten's accelerator kernels, torch_musa
and flash_attn, and those of torch_npu in `npu_attention`. One formula on [batch, heads, sequence, width] serves them
all; what differs is the layout, the alignment of the mask and what else is returned.

A backward uses the output and the row statistics that it is given, as a kernel does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from . import NoReference, builtin, no_dropout


@dataclass
class Scores:
    """How scores are made of queries and keys: times `scale`, through a soft cap, plus a
    bias; nothing where `hidden`."""

    scale: float
    hidden: Tensor | None = None
    bias: Tensor | None = None
    cap: float = 0.0

    def of(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor | None]:
        """Scores and the slope of the soft cap."""
        s, slope = q @ k.transpose(-1, -2) * self.scale, None
        if self.cap:
            bent = torch.tanh(s / self.cap)
            s, slope = self.cap * bent, 1 - bent.square()
        if self.bias is not None:
            s = s + self.bias
        return (s if self.hidden is None else s.masked_fill(self.hidden, -math.inf)), slope


def shared(x: Tensor, heads: int) -> Tensor:
    """Keys or values with every head repeated for the queries that share it."""
    return x if x.shape[-3] == heads else x.repeat_interleave(heads // x.shape[-3], -3)


def unshared(x: Tensor, heads: int) -> Tensor:
    """Gradients summed over the heads that were repeated."""
    return x if x.shape[-3] == heads else x.unflatten(-3, (heads, -1)).sum(-3)


def attend(q: Tensor, k: Tensor, v: Tensor, scores: Scores) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp; a row that is hidden wholly gives 0 and +inf."""
    s, _ = scores.of(q, shared(k, q.shape[-3]))
    lse = s.logsumexp(-1)
    lse = lse.masked_fill(lse == -math.inf, math.inf)
    return (s - lse.unsqueeze(-1)).exp() @ shared(v, q.shape[-3]), lse


def attend_backward(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, scores: Scores
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of q, k, v and of the scores' bias (not yet reduced to its shape)."""
    heads = q.shape[-3]
    wide_k, wide_v = shared(k, heads), shared(v, heads)
    s, slope = scores.of(q, wide_k)
    p = (s - lse.unsqueeze(-1)).exp()
    ds = p * (dout @ wide_v.transpose(-1, -2) - (dout * out).sum(-1, keepdim=True))
    raw = ds if slope is None else ds * slope
    dk = unshared(raw.transpose(-1, -2) @ q, k.shape[-3]) * scores.scale
    dv = unshared(p.transpose(-1, -2) @ dout, v.shape[-3])
    return raw @ wide_k * scores.scale, dk, dv, ds


def band(n_q: int, n_k: int, left: int, right: int, shift: int) -> Tensor | None:
    """What lies outside the band of keys that a query may see, None where nothing does.
    `shift` is the key of query 0; a negative side is open."""
    if left < 0 and right < 0:
        return None
    distance = torch.arange(n_k) - torch.arange(n_q)[:, None] - shift
    hidden = torch.zeros(n_q, n_k, dtype=torch.bool)
    if right >= 0:
        hidden |= distance > right
    if left >= 0:
        hidden |= distance < -left
    return hidden


def _scale(scale, q):
    return 1 / math.sqrt(q.shape[-1]) if scale is None else scale


def _reduced_to(x, shape):
    """Sums over the dimensions along which a bias was broadcast."""
    return x.sum_to_size(shape)


# ---- aten ----------------------------------------------------------------------------


def _aten_scores(q, k, attn_bias, is_causal, scale):
    hidden = band(q.shape[-2], k.shape[-2], -1, 0, 0) if is_causal else None
    if attn_bias is not None and attn_bias.dtype == torch.bool:
        hidden, attn_bias = ~attn_bias if hidden is None else hidden | ~attn_bias, None
    return Scores(_scale(scale, q), hidden, attn_bias)


@builtin(
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_cudnn_attention",
    "aten::_scaled_dot_product_fused_attention_overrideable",
    n_returns=9,
)
@builtin("aten::_scaled_dot_product_efficient_attention", n_returns=4)
@builtin("aten::_scaled_dot_product_attention_flash_musa", n_returns=3)
def sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None = None,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    n_returns: int = 9,
) -> tuple[Tensor | None, ...]:
    """Log-sum-exp where its form is the same everywhere; efficient and cudnn pad it."""
    no_dropout(dropout_p)
    bias = attn_bias if attn_bias is not None else attn_mask
    out, lse = attend(query, key, value, _aten_scores(query, key, bias, is_causal, scale))
    if n_returns != 9:
        return (out, *[None] * (n_returns - 1))
    return (out, lse if attn_bias is None else None, *[None] * 7)


@builtin(
    "aten::_scaled_dot_product_flash_attention_backward",
    "aten::_scaled_dot_product_cudnn_attention_backward",
    n_returns=3,
)
@builtin(
    "aten::_scaled_dot_product_efficient_attention_backward",
    "aten::_scaled_dot_product_fused_attention_overrideable_backward",
    n_returns=4,
)
def sdpa_backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    grad_out: Tensor | None = None,
    grad_out_: Tensor | None = None,
    attn_bias: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    grad_input_mask: Sequence[bool] | None = None,
    scale: float | None = None,
    n_returns: int = 3,
) -> tuple[Tensor | None, ...]:
    no_dropout(dropout_p)
    scores = _aten_scores(query, key, attn_bias, is_causal, scale)
    lse = logsumexp.reshape(*query.shape[:2], -1)[..., : query.shape[-2]]
    dout = grad_out if grad_out is not None else grad_out_
    *grads, ds = attend_backward(dout, query, key, value, out, lse, scores)
    if n_returns == 3:
        return tuple(grads)
    grads.append(None if attn_bias is None else _reduced_to(ds, attn_bias.shape))
    return tuple(g if wanted else None for g, wanted in zip(grads, grad_input_mask))


@builtin("aten::_scaled_dot_product_attention_math_musa")
def sdpa_math(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, None]:
    no_dropout(dropout_p)
    scores = _aten_scores(query, key, attn_mask, is_causal, scale)
    weights = scores.of(query, shared(key, query.shape[-3]))[0].softmax(-1)
    return weights @ shared(value, query.shape[-3]), weights, None


@builtin("aten::_flash_attention_forward")
def aten_flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float,
    is_causal: bool,
    cum_seq_q: Tensor | None = None,
    cum_seq_k: Tensor | None = None,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
) -> tuple[Tensor | None, ...]:
    """[batch, sequence, heads, width]; its causal mask begins at the first key."""
    no_dropout(dropout_p)
    _no_packing(cum_seq_q, cum_seq_k)
    left, right = _window(is_causal, window_size_left, window_size_right)
    q, k, v = (t.transpose(1, 2) for t in (query, key, value))
    hidden = band(q.shape[2], k.shape[2], left, right, 0)
    out, lse = attend(q, k, v, Scores(_scale(scale, q), hidden))
    return out.transpose(1, 2), lse, None, None, None


@builtin("aten::_flash_attention_backward")
def aten_flash_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    cum_seq_q: Tensor | None = None,
    cum_seq_k: Tensor | None = None,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
) -> tuple[Tensor, ...]:
    no_dropout(dropout_p)
    _no_packing(cum_seq_q, cum_seq_k)
    left, right = _window(is_causal, window_size_left, window_size_right)
    dout, q, k, v, o = (t.transpose(1, 2) for t in (grad_out, query, key, value, out))
    scores = Scores(_scale(scale, q), band(q.shape[2], k.shape[2], left, right, 0))
    grads = attend_backward(dout, q, k, v, o, logsumexp[..., : q.shape[2]], scores)
    return tuple(g.transpose(1, 2) for g in grads[:3])


def _no_packing(*lengths):
    if any(n is not None and n.numel() for n in lengths):
        raise NoReference("packed sequences are not in the built-in reference")


def _efficient_scores(q, k, bias, custom_mask_type, scale):
    if custom_mask_type not in (0, 1, 2):
        raise NoReference(f"custom_mask_type={custom_mask_type} is not in the built-in reference")
    shift = k.shape[2] - q.shape[2] if custom_mask_type == 2 else 0
    hidden = band(q.shape[2], k.shape[2], -1, 0, shift) if custom_mask_type else None
    return Scores(_scale(scale, q), hidden, bias)


@builtin("aten::_efficient_attention_forward")
def efficient(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None = None,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    dropout_p: float = 0.0,
    custom_mask_type: int = 0,
    scale: float | None = None,
) -> tuple[Tensor | None, ...]:
    no_dropout(dropout_p)
    _no_packing(cu_seqlens_q, cu_seqlens_k)
    q, k, v = (t.transpose(1, 2) for t in (query, key, value))
    out, _ = attend(q, k, v, _efficient_scores(q, k, bias, custom_mask_type, scale))
    return out.transpose(1, 2), None, None, None, None, None


@builtin("aten::_efficient_attention_backward")
def efficient_backward(
    grad_out_: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    bias: Tensor | None = None,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    dropout_p: float = 0.0,
    custom_mask_type: int = 0,
    bias_requires_grad: bool = False,
    scale: float | None = None,
) -> tuple[Tensor | None, ...]:
    no_dropout(dropout_p)
    _no_packing(cu_seqlens_q, cu_seqlens_k)
    dout, q, k, v, o = (t.transpose(1, 2) for t in (grad_out_, query, key, value, out))
    scores = _efficient_scores(q, k, bias, custom_mask_type, scale)
    *grads, ds = attend_backward(dout, q, k, v, o, logsumexp[..., : q.shape[2]], scores)
    dbias = _reduced_to(ds, bias.shape) if bias_requires_grad else None
    return (*(g.transpose(1, 2) for g in grads), dbias)


# ---- flash_attn ----------------------------------------------------------------------


def _window(causal, left, right):
    left, right = -1 if left is None else left, -1 if right is None else right
    return left, 0 if causal else right


def _flash_scores(q, k, softmax_scale, causal, window, softcap, slopes):
    """The last query sees the last key; a slope lowers a score by its distance."""
    shift = k.shape[-2] - q.shape[-2]
    bias = None
    if slopes is not None:
        distance = torch.arange(k.shape[-2]) - torch.arange(q.shape[-2])[:, None] - shift
        bias = -slopes[..., None, None] * distance.abs()
    hidden = band(q.shape[-2], k.shape[-2], *_window(causal, *window), shift)
    return Scores(softmax_scale, hidden, bias, softcap)


@builtin("flash_attn::_flash_attn_forward")
def flash(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float,
    softmax_scale: float,
    causal: bool,
    window_size_left: int = -1,
    window_size_right: int = -1,
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
) -> tuple[Tensor, Tensor | None, None, None]:
    """[batch, sequence, heads, width]. With slopes the log-sum-exp is promised nothing: a
    kernel may leave out what a whole row has in common."""
    no_dropout(dropout_p)
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    window = window_size_left, window_size_right
    out, lse = attend(q, k, v, _flash_scores(q, k, softmax_scale, causal, window, softcap, alibi_slopes))
    return out.transpose(1, 2), lse if alibi_slopes is None else None, None, None


@builtin("flash_attn::_flash_attn_backward")
def flash_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    softmax_lse: Tensor,
    dq: Tensor,
    dk: Tensor,
    dv: Tensor,
    dropout_p: float,
    softmax_scale: float,
    causal: bool,
    window_size_left: int = -1,
    window_size_right: int = -1,
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
) -> None:
    """Writes dq, dk and dv; what is returned is a work space."""
    no_dropout(dropout_p)
    if alibi_slopes is not None:
        raise NoReference("a backward with alibi_slopes is not in the built-in reference")
    dout, q, k, v, out = (t.transpose(1, 2) for t in (dout, q, k, v, out))
    window = window_size_left, window_size_right
    scores = _flash_scores(q, k, softmax_scale, causal, window, softcap, None)
    grads = attend_backward(dout, q, k, v, out, softmax_lse[..., : q.shape[2]], scores)
    for target, grad in zip((dq, dk, dv), grads):
        if target is not None:
            target.copy_(grad.transpose(1, 2))


def _pieces(lengths_q, lengths_k):
    """(queries, keys) of every packed sequence, as slices."""
    ends = zip(lengths_q.tolist(), lengths_q.tolist()[1:], lengths_k.tolist(), lengths_k.tolist()[1:])
    return [(slice(a, b), slice(c, d)) for a, b, c, d in ends]


@builtin("flash_attn::_flash_attn_varlen_forward")
def flash_packed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float,
    softmax_scale: float,
    causal: bool,
    window_size_left: int = -1,
    window_size_right: int = -1,
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
) -> tuple[Tensor, Tensor | None, None, None]:
    """[all sequences, heads, width]; the log-sum-exp is [heads, all sequences]."""
    no_dropout(dropout_p)
    out, lse = torch.zeros_like(q), q.new_zeros(q.shape[1], q.shape[0])
    window = window_size_left, window_size_right
    for i, (rows, keys) in enumerate(_pieces(cu_seqlens_q, cu_seqlens_k)):
        a, b, c = (t.transpose(0, 1) for t in (q[rows], k[keys], v[keys]))
        slopes = alibi_slopes if alibi_slopes is None or alibi_slopes.dim() == 1 else alibi_slopes[i]
        scores = _flash_scores(a, b, softmax_scale, causal, window, softcap, slopes)
        o, lse[:, rows] = attend(a, b, c, scores)
        out[rows] = o.transpose(0, 1)
    return out, lse if alibi_slopes is None else None, None, None


@builtin("flash_attn::_flash_attn_varlen_backward")
def flash_packed_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    softmax_lse: Tensor,
    dq: Tensor,
    dk: Tensor,
    dv: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float,
    softmax_scale: float,
    causal: bool,
    window_size_left: int = -1,
    window_size_right: int = -1,
    softcap: float = 0.0,
) -> None:
    no_dropout(dropout_p)
    window = window_size_left, window_size_right
    for rows, keys in _pieces(cu_seqlens_q, cu_seqlens_k):
        d, a, b, c, o = (t.transpose(0, 1) for t in (dout[rows], q[rows], k[keys], v[keys], out[rows]))
        scores = _flash_scores(a, b, softmax_scale, causal, window, softcap, None)
        grads = attend_backward(d, a, b, c, o, softmax_lse[:, rows], scores)
        for target, where, grad in zip((dq, dk, dv), (rows, keys, keys), grads):
            if target is not None:
                target[where] = grad.transpose(0, 1)
