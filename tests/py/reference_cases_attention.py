# SPDX-License-Identifier: Apache-2.0
"""Attention of torch_npu and flash_attn, for the tests of their references: see reference_cases."""

import math

import torch
from reference_cases import as_low, case, draw, up


# ---- attention -----------------------------------------------------------------------


def plain_attention(q, k, v, scale, hidden=None, cap=0.0, slopes=None):
    """[batch, heads, sequence, width], step by step. (output, log-sum-exp, maximum, sum)"""
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    s = torch.einsum("bhqd,bhkd->bhqk", q, k) * scale
    s = cap * torch.tanh(s / cap) if cap else s
    if slopes is not None:
        s = s + slopes
    if hidden is not None:
        s = torch.where(hidden, torch.tensor(-math.inf), s)
    top = s.max(-1, keepdim=True).values
    p = torch.exp(s - top)
    total = p.sum(-1, keepdim=True)
    return torch.einsum("bhqk,bhkd->bhqd", p / total, v), (top + total.log()).squeeze(-1), top, total


def late(n_q, n_k, shift=0):
    """What a causal mask hides; `shift` further keys are seen."""
    return torch.ones(n_q, n_k, dtype=torch.bool).triu(1 + n_k - n_q + shift)


def qkv(dtype, heads=4, groups=2, n_q=24, n_k=40, width=16):
    return [
        draw(2, n_q, heads, width, dtype=dtype),
        draw(2, n_k, groups, width, seed=2, dtype=dtype),
        draw(2, n_k, groups, width, seed=3, dtype=dtype),
    ]


FLASH = "Tensor q, Tensor k, Tensor v, "
FLASH_END = (
    "float dropout_p, float softmax_scale, bool causal, SymInt window_size_left, "
    "SymInt window_size_right, float softcap, Tensor? alibi_slopes, "
)


@case(
    f"flash_attn::_flash_attn_forward({FLASH}{FLASH_END}bool return_softmax) -> (Tensor, Tensor, Tensor, Tensor)",
    lambda dtype: ([*qkv(dtype), 0.0, 0.25, True, -1, -1, 0.0, None, False], {}),
    dict(unscaled=True),
    dict(shift=1),
    dict(shift=-1),
    dict(lse_error=1e-3),
)
def flash(
    q,
    k,
    v,
    dropout_p,
    softmax_scale,
    causal,
    window_size_left,
    window_size_right,
    softcap,
    alibi_slopes,
    return_softmax,
    unscaled=False,
    shift=0,
    lse_error=0.0,
):
    a, b, c = (t.float().transpose(1, 2) for t in (q, k, v))
    hidden = late(a.shape[2], b.shape[2], shift) if causal else None
    out, lse, _, _ = plain_attention(a, b, c, 1.0 if unscaled else softmax_scale, hidden, softcap)
    return as_low(q, out.transpose(1, 2)), lse + lse_error, torch.empty(0, dtype=q.dtype), torch.tensor([7, 9])


def flash_backward_args(dtype, forward=None):
    q, k, v = qkv(dtype)
    rest = [0.0, 0.25, True, -1, -1, 0.0, None]
    out, lse, _, _ = flash(q, k, v, *rest, False)
    made = [torch.full_like(t, math.nan) for t in (q, k, v)]
    return [draw(*q.shape, seed=8, dtype=dtype), q, k, v, out, lse, *made, *rest, False], {}


def attention_gradients(dout, q, k, v, out, scale, hidden):
    """By hand, from the output that was kept, as kernels do it; the softmax is made anew."""
    dout, q, k, v, out = up(dout, q, k, v, out)
    n = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(n, 1), v.repeat_interleave(n, 1)
    p = torch.softmax((q @ k.mT * scale).masked_fill(hidden, -math.inf), -1)
    ds = p * (dout @ v.mT - torch.einsum("bhqd,bhqd->bhq", dout, out)[..., None]) * scale
    dk, dv = (t.unflatten(1, (-1, n)).sum(2) for t in (ds.mT @ q, p.mT @ dout))
    return [ds @ k, dk, dv]


@case(
    f"flash_attn::_flash_attn_backward(Tensor dout, {FLASH}Tensor out, Tensor softmax_lse, Tensor(a!)? dq, "
    f"Tensor(b!)? dk, Tensor(c!)? dv, {FLASH_END}bool deterministic, Tensor? rng_state=None) -> Tensor",
    flash_backward_args,
    dict(dk_factor=4.0),
    dict(shift=1),
    dict(one_head=True),
)
def flash_backward(
    dout,
    q,
    k,
    v,
    out,
    softmax_lse,
    dq,
    dk,
    dv,
    dropout_p,
    softmax_scale,
    causal,
    window_size_left,
    window_size_right,
    softcap,
    alibi_slopes,
    deterministic,
    rng_state=None,
    dk_factor=1.0,
    shift=0,
    one_head=False,
):
    d, a, b, c, o = (t.transpose(1, 2) for t in (dout, q, k, v, out))
    grads = attention_gradients(d, a, b, c, o, softmax_scale, late(a.shape[2], b.shape[2], shift))
    grads[1] = grads[1] * dk_factor
    if one_head:  # the last query head of a group is forgotten
        grads[2][:, 0] = grads[2][:, 1]
    for target, g in zip((dq, dk, dv), grads):
        target.copy_(g.transpose(1, 2))
    return torch.empty(2, 4, 128)


LENGTHS = torch.tensor([0, 9, 24, 40], dtype=torch.int32)


@case(
    f"flash_attn::_flash_attn_varlen_forward({FLASH}Tensor cu_seqlens_q, Tensor cu_seqlens_k, SymInt max_seqlen_q, "
    "SymInt max_seqlen_k, float dropout_p, float softmax_scale, bool causal, SymInt window_size_left=-1, SymInt "
    "window_size_right=-1, float softcap=0.0, Tensor? alibi_slopes=None, bool return_softmax=False, Tensor? "
    "block_table=None) -> (Tensor, Tensor, Tensor, Tensor)",
    lambda dtype: ([t[0] for t in qkv(dtype, n_q=40)] + [LENGTHS, LENGTHS, 16, 16, 0.0, 0.25, True, 6, -1, 3.0], {}),
    dict(window=7),
    dict(cap=2.9),
    dict(leak=True),
)
def flash_packed(
    q,
    k,
    v,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    dropout_p,
    softmax_scale,
    causal,
    window_size_left=-1,
    window_size_right=-1,
    softcap=0.0,
    alibi_slopes=None,
    return_softmax=False,
    block_table=None,
    window=None,
    cap=None,
    leak=False,
):
    left = window or window_size_left
    place = torch.arange(40)
    owner = torch.bucketize(place, LENGTHS.long(), right=True)
    distance = place[None] - place[:, None]
    hidden = (distance > 0) | (distance < -left) | ((owner[None] != owner[:, None]) & (not leak))
    a, b, c = (t.float()[None].transpose(1, 2) for t in (q, k, v))
    out, lse, _, _ = plain_attention(a, b, c, softmax_scale, hidden, cap or softcap)
    return as_low(q, out[0].transpose(0, 1)), lse[0], torch.empty(0), torch.tensor([7, 9])


@case(
    f"flash_attn::_flash_attn_varlen_backward(Tensor dout, {FLASH}Tensor out, Tensor softmax_lse, Tensor(a!)? dq, "
    "Tensor(b!)? dk, Tensor(c!)? dv, Tensor cu_seqlens_q, Tensor cu_seqlens_k, SymInt max_seqlen_q, SymInt "
    f"max_seqlen_k, {FLASH_END}bool deterministic, Tensor? rng_state=None, bool zero_tensors=False) -> Tensor",
    lambda dtype: (
        lambda q, k, v: (
            [
                draw(40, 4, 16, seed=8, dtype=dtype),
                q,
                k,
                v,
                *flash_packed(q, k, v, LENGTHS, LENGTHS, 16, 16, 0.0, 0.25, True, 99)[:2],
                *(torch.zeros_like(t) for t in (q, k, v)),
                LENGTHS,
                LENGTHS,
                16,
                16,
                0.0,
                0.25,
                True,
                -1,
                -1,
                0.0,
                None,
                False,
            ],
            {},
        )
    )(*[t[0] for t in qkv(dtype, n_q=40)]),
    dict(scale=0.26),
)
def flash_packed_backward(
    dout,
    q,
    k,
    v,
    out,
    softmax_lse,
    dq,
    dk,
    dv,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    dropout_p,
    softmax_scale,
    causal,
    window_size_left,
    window_size_right,
    softcap,
    alibi_slopes,
    deterministic,
    rng_state=None,
    zero_tensors=False,
    scale=None,
):
    owner = torch.bucketize(torch.arange(40), LENGTHS.long(), right=True)
    hidden = late(40, 40) | (owner[None] != owner[:, None])
    d, a, b, c, o = (t[None].transpose(1, 2) for t in (dout, q, k, v, out))
    for target, g in zip((dq, dk, dv), attention_gradients(d, a, b, c, o, scale or softmax_scale, hidden)):
        target.copy_(g[0].transpose(0, 1))
    return torch.empty(4, 128)


NPU_HEAD = "Tensor query, Tensor key, Tensor value, "
NPU_FORM = "int head_num, str input_layout, "
NPU_MASKS = "Tensor? pse=None, Tensor? padding_mask=None, Tensor? atten_mask=None, "
NPU_END = "float keep_prob=1., int pre_tockens=2147483647, int next_tockens=2147483647, int inner_precise=0, "
NPU_LIST = (
    "int[]? prefix=None, int[]? actual_seq_qlen=None, int[]? actual_seq_kvlen=None, int sparse_mode=0, "
    'bool gen_mask_parallel=True, bool sync=False, str softmax_layout="", Tensor? sink=None'
)


def npu_qkv(dtype):
    """Sequence, batch, heads times width; two query heads share one of the keys'."""
    return [t.transpose(0, 1).flatten(-2).contiguous() for t in qkv(dtype, n_q=24, n_k=24)]


def split(x, heads):
    return x.float().unflatten(-1, (heads, -1)).permute(1, 2, 0, 3)


def merge(x):
    return x.permute(2, 0, 1, 3).flatten(-2)


@case(
    f"npu::npu_fusion_attention({NPU_HEAD}{NPU_FORM}{NPU_MASKS}float scale=1., {NPU_END}{NPU_LIST}, Tensor? "
    "dropout_mask=None, int seed=0, int offset=0) -> (Tensor, Tensor, Tensor, Tensor, int, int, int)",
    lambda dtype: (
        [*npu_qkv(dtype), 4, "SBH"],
        dict(pse=draw(2, 4, 24, 24, seed=6, dtype=dtype), atten_mask=late(24, 24), scale=0.25),
    ),
    dict(factor=1.01),
    dict(shift=1),
    dict(no_pse=True),
    dict(unscaled=True),
)
def npu_attention(
    query,
    key,
    value,
    head_num,
    input_layout,
    pse=None,
    padding_mask=None,
    atten_mask=None,
    scale=1.0,
    *rest,
    factor=1.0,
    shift=0,
    no_pse=False,
    unscaled=False,
    **others,
):
    q, k, v = split(query, 4), split(key, 2), split(value, 2)
    hidden = late(24, 24, shift) if shift else atten_mask
    bias = None if no_pse or pse is None else pse.float()
    out, _, top, total = plain_attention(q, k, v, 1.0 if unscaled else scale * factor, hidden, 0.0, bias)
    return (as_low(query, merge(out)), top.repeat(1, 1, 1, 8), total.repeat(1, 1, 1, 8), torch.empty(0), 17, 4, 99)


@case(
    f"npu::npu_fusion_attention_grad({NPU_HEAD}Tensor dy, {NPU_FORM}*, {NPU_MASKS}Tensor? softmax_max=None, Tensor? "
    f"softmax_sum=None, Tensor? softmax_in=None, Tensor? attention_in=None, float scale_value=1., {NPU_END}int "
    f"seed=0, int offset=0, int numels=0, {NPU_LIST}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    lambda dtype: (
        lambda q, k, v: (
            [q, k, v, draw(*q.shape, seed=8, dtype=dtype), 4, "SBH"],
            (
                lambda o: dict(
                    atten_mask=late(24, 24), softmax_max=o[1], softmax_sum=o[2], attention_in=o[0], scale_value=0.25
                )
            )(npu_attention(q, k, v, 4, "SBH", atten_mask=late(24, 24), scale=0.25)),
        )
    )(*npu_qkv(dtype)),
    dict(dk_factor=4.0),
    dict(shift=1),
)
def npu_attention_grad(
    query,
    key,
    value,
    dy,
    head_num,
    input_layout,
    *,
    atten_mask=None,
    scale_value=1.0,
    attention_in=None,
    dk_factor=1.0,
    shift=0,
    **others,
):
    hidden = late(24, 24, shift) if shift else atten_mask
    dq, dk, dv = attention_gradients(
        split(dy, 4), split(query, 4), split(key, 2), split(value, 2), split(attention_in, 4), scale_value, hidden
    )
    return (*as_low(query, merge(dq), merge(dk) * dk_factor, merge(dv)), torch.empty(0), torch.empty(0))
