# SPDX-License-Identifier: Apache-2.0
"""Set I, written blind (see blind_seventh_a): grouped and quantized products, quantizers, routing."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf
from .blind_seventh_a import E4, doubled, right, seventh, via, wrong

f32 = torch.float32


def by_k(a, b, step=16, kind=None, tail=True):
    """A product summed over tiles of the inner axis."""
    k = a.shape[-1]
    out = a.new_zeros(*a.shape[:-1], b.shape[-1])
    for start in range(0, k if tail else k // step * step, step):
        out = via(out + a[..., start:start + step] @ b[..., start:start + step, :], kind)
    return out


# ------------------------------------------------------------------ products

@seventh(lambda d: (d(48, 72, dtype=bf), d(5, 72, 40, dtype=bf), torch.tensor([10, 10, 25, 31, 48])))
def grouped_product_with_ends(x, w, ends):
    out, start = [], 0
    for e, stop in enumerate(ends.tolist()):
        out.append(x[start:stop] @ w[e])
        start = stop
    return torch.cat(out)


def grouped_rows(x, w, ends, late=0, left=False, skip_empty=False, round_up=1, **keys):
    row = torch.arange(48) + late
    e = torch.searchsorted(ends, row // round_up * round_up, right=not left).clamp_max(4)
    if skip_empty:
        e = torch.where(e > 1, e - 1, e)
    return by_k(x[:, None], w[e], **keys)[:, 0]


right(grouped_product_with_ends, "each row with its own expert's weights, tiles of 16", grouped_rows)
right(grouped_product_with_ends, "the same with tiles of 9", grouped_rows, step=9)
wrong(grouped_product_with_ends, grouped_rows, {
    "a group's first row is given to the group before it": dict(left=True),
    "an empty group is not counted, so that later groups take the weights before theirs": dict(skip_empty=True),
    "groups start at multiples of 8 rows only": dict(round_up=8),
    "the last 8 of the inner axis are left out": dict(tail=False),
    "partial sums are kept in bf16, 4 at a time": dict(kind=bf, step=4)})


@seventh(lambda d: (d(24, 128, scale=30.0).to(E4), d.rand(24, 4) * 0.01 + 0.001, d(40, 128, scale=30.0).to(E4),
                    d.rand(2, 4) * 0.01 + 0.001))
def block_scaled_e4m3_product(a, sa, b, sb):
    x = a.to(sa.dtype) * sa.repeat_interleave(32, 1)
    y = b.to(sa.dtype) * sb.repeat_interleave(20, 0).repeat_interleave(32, 1)
    return (x @ y.mT).to(bf)


def block_scaled_tiles(a, sa, b, sb, shift=0, first=False, blocks=4, rows=20, squared=False, kind=None, product=True):
    out = a.new_zeros(24, 40)
    for t in range(blocks):
        c = slice(32 * t, 32 * t + 32)
        part = via(a[:, c] @ b[:, c].mT, kind)
        s = sa[:, 0 if first else (t + shift) % 4, None]
        u = sb[(torch.arange(40) // rows).clamp_max(1), t]
        out = via(out + part * (s * u if product else s), kind)
    return out


right(block_scaled_e4m3_product, "scales applied to each block's product", block_scaled_tiles, into=bf)
right(block_scaled_e4m3_product, "the same in double precision", block_scaled_tiles, torch.float64, bf)
wrong(block_scaled_e4m3_product, block_scaled_tiles, {
    "each block takes the next block's scale of a": dict(shift=1),
    "all blocks take the first block's scale of a": dict(first=True),
    "rows 16 to 19 of b take the second scale": dict(rows=16),
    "the last block of 32 is left out": dict(blocks=3),
    "b is not scaled": dict(product=False)}, into=bf)


@seventh(lambda d: (d(20, 64, dtype=hf), d.ints(2 ** 32, 64, 6).sub(2 ** 31).to(torch.int32),
                    d.ints(2 ** 32, 2, 6).sub(2 ** 31).to(torch.int32), d.rand(2, 48).mul(0.02).add(0.005).to(hf)))
def awq_int4_linear(x, packed, zeros, scales):
    order = torch.tensor([0, 4, 1, 5, 2, 6, 3, 7]) * 4
    w = (packed[..., None] >> order & 15).flatten(1)
    z = (zeros[..., None] >> order & 15).flatten(1)
    w = (w - z.repeat_interleave(32, 0)).to(x.dtype) * scales.repeat_interleave(32, 0)
    return x @ w


def awq_by_groups(x, packed, zeros, scales, order=(0, 4, 1, 5, 2, 6, 3, 7), one=0, group=32, plain=False, kind=None,
                  late=0):
    order = torch.tensor(order) * 4
    w, z = ((p[..., None].to(torch.int64) >> order & 15).flatten(1) for p in (packed, zeros))
    z = (w * 0)[:2] + 8 if plain else z + one
    out = 0
    for g in range(2):
        rows = torch.arange(64)[torch.arange(64).div(group, rounding_mode="floor").clamp_max(1) == g]
        part = x[:, rows] @ w[rows].to(x.dtype) - x[:, rows].sum(1, keepdim=True) * z[g].to(x.dtype)
        out = via(out + part * scales[g].roll(late), kind)
    return out


right(awq_int4_linear, "zeros taken off after each group's product", awq_by_groups)
doubled(awq_int4_linear)
wrong(awq_int4_linear, awq_by_groups, {
    "the 8 numbers of a word are unpacked in plain order": dict(order=tuple(range(8))),
    "1 is added to the zero points": dict(one=1),
    "the second group starts at row 24": dict(group=24),
    "the zero point is always 8": dict(plain=True),
    "each column takes the scale of the column before": dict(late=1)})


@seventh(
    lambda d: (d(16, 96, dtype=bf), d.ints(255, 40, 96).sub(127).to(torch.int8), d.rand(40).mul(0.01).add(0.002).to(bf))
)
def per_token_int8_linear(x, w, scale):
    s = x.float().abs().amax(-1, keepdim=True) / 127
    codes = (x.float() / s).round().clamp(-127, 127)
    return ((codes @ w.float().mT) * s * scale.float()).to(bf)


def int8_dynamic_rows(x, w, scale, cast=torch.round, top=127, shift=0, width=None, whole=False, tail=0):
    s = x.float().abs().amax(None if whole else -1, keepdim=True) / top
    codes = cast(x.float() / s).clamp(-127, 127).to(torch.int32)
    y = codes[:, :96 - tail] @ w[:, :96 - tail].to(torch.int32).mT
    y = y.to(width).to(torch.int32) if width else y
    return y.to(x.dtype) * (s * scale.roll(shift).float()).to(x.dtype)


right(per_token_int8_linear, "whole numbers multiplied and added exactly", int8_dynamic_rows)
right(per_token_int8_linear, "the same, scales joined in double precision", int8_dynamic_rows, torch.float64, bf)
wrong(per_token_int8_linear, int8_dynamic_rows, {
    "codes are cut toward zero instead of rounded": dict(cast=torch.trunc),
    "the scale is amax / 128": dict(top=128),
    "one scale is used for all tokens": dict(whole=True),
    "sums wrap around in 16 bits": dict(width=torch.int16),
    "output columns take their neighbour's weight scale": dict(shift=1),
    "the last 32 of the inner axis are left out": dict(tail=32)})


# ------------------------------------------------------------------ quantizers

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


@seventh(lambda d: (torch.cat((d(12, 96), d.ints(33, 4, 96) / 4.0 - 4.0)),))
def mxfp4_quantize(x):
    """Codes of 4 bits (sign first) and the exponents of blocks of 32; ties go to the even code."""
    y = x.unflatten(-1, (3, 32))
    e = torch.floor(torch.log2(y.abs().amax(-1, keepdim=True))) - 2
    y = y / torch.exp2(e)
    table = torch.tensor(E2M1, dtype=x.dtype)
    away = (y.abs().clamp_max(6.0)[..., None] - table).abs()
    near = away == away.amin(-1, keepdim=True)
    code = torch.where(near, torch.arange(8) % 2 * 10 + torch.arange(8), 99).argmin(-1)
    return (code + 8 * (y < 0)).flatten(1).to(torch.uint8), (e[..., 0] + 127).to(torch.uint8)


def mxfp4_by_edges(
    x, up=False, ties="even", block=32, bias=2, signed=True, edges=(0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)
):
    y = x.unflatten(-1, (-1, block))
    top = y.abs().amax(-1, keepdim=True)
    _, e = torch.frexp(top)  # top = m 2^e, m in [1/2, 1)
    e = e - 1 - bias
    if up:
        e = torch.where(top > torch.ldexp(torch.full_like(top, 4.0), e), e + 1, e)
    y = torch.ldexp(y, -e)
    edges = torch.tensor(edges).to(x.dtype)
    a = y.abs()
    low, high = (torch.searchsorted(edges, a, right=r) for r in (False, True))
    code = {"even": torch.where(low % 2 == 0, low, high), "up": high, "down": low}[ties]
    code = code + 8 * (y < 0) if signed else code
    e = e[..., 0] + 127
    if block != 32:
        e = e[:, ::2] if e.shape[1] > 3 else e
    return code.flatten(1).to(torch.uint8), e.to(torch.uint8)


right(mxfp4_quantize, "exponents by frexp, codes by edges", mxfp4_by_edges, into="same")
right(mxfp4_quantize, "the same in double precision", mxfp4_by_edges, torch.float64, "same")
wrong(mxfp4_quantize, mxfp4_by_edges, {
    "ties go to the larger number": dict(ties="up"),
    "ties go to the smaller number": dict(ties="down"),
    "the exponent is rounded up": dict(up=True),
    "the block's largest number is scaled to below 4, not below 8": dict(bias=1),
    "the sign bit is lost": dict(signed=False),
    "a block's largest number is taken over 16": dict(block=16)}, into="same")


NF4 = (-1.0, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.09105004, 0.0,
       0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0)


@seventh(lambda d: (d.ints(256, 32, 32).to(torch.uint8), d.ints(256, 32).to(torch.uint8), d.rand(4).add(0.5).div(256),
                    torch.tensor(0.6), torch.tensor(NF4)))
def nf4_double_dequantize(packed, codes, scale, offset, table):
    w = torch.stack((table[(packed >> 4).long()], table[(packed & 15).long()]), -1).flatten(1)
    top = codes.to(scale.dtype) * scale.repeat_interleave(8) + offset
    return (w * top[:, None]).to(bf)


def nf4_kernel(
    packed, codes, scale, offset, table, low_first=False, signed=False, block=8, without=1.0, late=0, kind=None
):
    p = packed.long()
    first, second = (p & 15, p >> 4) if low_first else (p >> 4, p & 15)
    i = torch.arange(64)
    w = via(table, kind)[torch.where(i % 2 == 0, first[:, i // 2], second[:, i // 2])]
    c = codes.to(torch.int8).to(scale.dtype) if signed else codes.to(scale.dtype)
    top = c * scale[(torch.arange(32) // block).clamp_max(3)] + offset * without
    return w * top.roll(late)[:, None]


right(nf4_double_dequantize, "looked up entry by entry", nf4_kernel, into=bf)
right(nf4_double_dequantize, "the same in double precision", nf4_kernel, torch.float64, bf)
wrong(nf4_double_dequantize, nf4_kernel, {
    "the low half of a byte comes first": dict(low_first=True),
    "the scales' codes are read as signed bytes": dict(signed=True),
    "a scale of scales serves 4 rows, not 8": dict(block=4),
    "the offset is not added back": dict(without=0.0),
    "each row takes the row before's scale": dict(late=1)}, into=bf)


@seventh(lambda d: (torch.cat((d(20, 150), torch.zeros(1, 150))),))
def rowwise_e4m3_quantize(x):
    scale = x.abs().amax(-1, keepdim=True).clamp_min(1e-6) / 448
    return (x / scale).clamp(-448, 448).to(E4), scale


def e4m3_rows(x, top=448.0, floor=1e-6, axis=-1, bits=None, tail=0, store=E4, back=1.0):
    s = x[:, :150 - tail].abs().amax(axis, keepdim=True).clamp_min(floor) / top
    s = s.expand(21, 1) if axis is None else s
    y = (x.double() / s.double()).float() if x.dtype == f32 else x / s
    y = y.clamp(-448, 448)
    if bits is not None:  # mantissa cut, not rounded
        y = (y.view(torch.int32) & bits).view(f32)
    return y.to(E4), (s * back).to(f32)


right(rowwise_e4m3_quantize, "divided in double precision", e4m3_rows, into="same")
right(rowwise_e4m3_quantize, "largest of two halves", lambda x: (lambda s: ((x / s).clamp(-448, 448).to(E4), s))(
    torch.maximum(x[:, :75].abs().amax(1), x[:, 75:].abs().amax(1)).clamp_min(1e-6)[:, None] / 448), into="same")
wrong(rowwise_e4m3_quantize, e4m3_rows, {
    "the largest code is taken as 240": dict(top=240.0),
    "one scale is used for all rows": dict(axis=None),
    "mantissas are cut instead of rounded": dict(bits=~0xFFFFF),
    "the last 22 columns are not looked at for the scale": dict(tail=22),
    "the scale is given back 0.2 percent too large": dict(back=1.002)}, into="same")


@seventh(lambda d: (d(16, 128, scale=0.7, shift=0.2), ))
def int4_group_quantize(x):
    y = x.unflatten(-1, (4, 32))
    low, high = y.amin(-1, keepdim=True).clamp_max(0), y.amax(-1, keepdim=True).clamp_min(0)
    scale = (high - low) / 15
    zero = (-low / scale).round()
    code = (y / scale).round().add(zero).clamp(0, 15)
    return ((code - zero) * scale).flatten(1)


def int4_groups(
    x, steps=15, whole=False, cast=torch.round, zero_cast=torch.round, no_clip=False, group=32, joint=False
):
    y = x.unflatten(-1, (-1, group))
    low, high = torch.aminmax(y, dim=-1, keepdim=True)
    low, high = low.clamp_max(0), high.clamp_min(0)
    scale = (high - low) / steps
    zero = zero_cast(-low / scale)
    code = cast(y / scale + zero) if joint else cast(y / scale) + zero
    code = code if no_clip else code.clamp(0, 15)
    return ((code - zero) * scale).flatten(1)


right(int4_group_quantize, "smallest and largest in one pass", int4_groups)
right(int4_group_quantize, "codes by a shift of half and a floor after the division", int4_groups,
      cast=lambda t: torch.where((t - t.floor()) == 0.5, t.round(), (t + 0.5).floor()))
wrong(int4_group_quantize, int4_groups, {
    "the step is the range over 16": dict(steps=16),
    "codes are floored": dict(cast=torch.floor),
    "the zero point is cut toward zero": dict(zero_cast=torch.trunc),
    "groups of 64": dict(group=64)})


# ------------------------------------------------------------------ routing

@seventh(lambda d: (d(64, 8),))
def route_with_capacity(x):
    """Weights of two experts a token, tokens beyond 14 an expert dropped, in the order of the tokens."""
    w, pick = x.topk(2, -1)
    w = w.softmax(-1)
    hot = F.one_hot(pick, 8).flatten(0, 1)
    place = (hot.cumsum(0) - 1).unflatten(0, (64, 2))
    place = place.gather(2, pick[..., None])[..., 0]
    return torch.zeros_like(x).scatter(1, pick, torch.where(place < 14, w, 0.0))


def capacity_loop(x, room=14, by_choice=False, renormal=False, over_all=False, count_dropped=True, swap=False):
    w = torch.zeros_like(x)
    used = [0] * 8
    order = x.argsort(dim=-1, descending=True, stable=True)[:, :2]
    p = x.softmax(-1)
    jobs = [(t, c) for t in range(64) for c in range(2)]
    for t, c in sorted(jobs, key=lambda j: (j[1], j[0])) if by_choice else jobs:
        a, b = order[t].tolist()
        e = (a, b)[c]
        if used[e] < room:
            share = (x[t, e] - torch.logaddexp(x[t, a], x[t, b])).exp()
            w[t, e] = p[t, e] if over_all else 1 - share if swap else share
            used[e] += 1
    if renormal:
        w = w / w.sum(-1, keepdim=True).clamp_min(1e-9)
    return w


right(route_with_capacity, "token by token with counters", capacity_loop)
doubled(route_with_capacity)
wrong(route_with_capacity, capacity_loop, {
    "an expert takes 15 tokens": dict(room=15),
    "all first choices are placed before second ones": dict(by_choice=True),
    "weights are made to sum to 1 again after dropping": dict(renormal=True),
    "the weights are a softmax over all experts": dict(over_all=True),
    "the two weights of a token are exchanged": dict(swap=True)})


@seventh(lambda d: (d(40, 16), d(16, scale=0.3)))
def biased_group_routing(x, bias):
    s = x.sigmoid()
    choice = s + bias
    group = choice.unflatten(1, (4, 4)).topk(2, -1).values.sum(-1)
    open_ = torch.zeros_like(group, dtype=torch.bool).scatter(1, group.topk(2, -1).indices, True)
    pick = choice.masked_fill(~open_.repeat_interleave(4, 1), -math.inf).topk(3, -1).indices
    w = s.gather(1, pick)
    w = w / (w.sum(-1, keepdim=True) + 1e-20) * 2.5
    return torch.zeros_like(x).scatter(1, pick, w)


def group_routing(x, bias, biased=False, best=2, groups=2, factor=2.5, norm=True, take=3, all_open=False):
    s = 1 / (1 + (-x).exp())
    choice = s + bias
    rank = choice.unflatten(1, (4, 4)).sort(-1, descending=True).values[..., :best].sum(-1)
    order = rank.argsort(dim=-1, descending=True, stable=True).argsort(-1)
    seen = (order < groups).repeat_interleave(4, 1) | all_open
    place = torch.where(seen, choice, -math.inf).argsort(dim=-1, descending=True, stable=True).argsort(-1)
    w = torch.where(place < take, choice if biased else s, 0.0)
    return w / (w.sum(-1, keepdim=True) if norm else 1.0) * factor


right(biased_group_routing, "places by double sorting", group_routing)
doubled(biased_group_routing)
wrong(biased_group_routing, group_routing, {
    "weights are taken from the biased scores": dict(biased=True),
    "a group is ranked by its best expert alone": dict(best=1),
    "three groups are open": dict(groups=3),
    "weights are not divided by their sum": dict(norm=False),
    "the factor 2.5 is left out": dict(factor=1.0)})


@seventh(lambda d: (d(30, 24, dtype=bf), d(4, 24, 40, scale=0.2, dtype=bf), d(4, 20, 24, scale=0.2, dtype=bf),
                    d(30, 4).topk(2).indices, d.rand(30, 2).to(bf)))
def experts_forward(x, up, down, pick, w):
    out = torch.zeros_like(x)
    for e in range(4):
        t, c = (pick == e).nonzero(as_tuple=True)
        a, b = (x[t] @ up[e]).chunk(2, -1)
        y = (F.silu(a) * b) @ down[e] * w[t, c][:, None]
        out = out.index_add(0, t, y)
    return out


def experts_sorted(
    x, up, down, pick, w, swapped=False, early=False, last=False, experts=4, gate=F.silu, off=0, first=False
):
    flat = pick.flatten()
    order = flat.argsort(stable=True)
    token, e = order // 2, flat[order]
    h = torch.einsum("td,tdf->tf", x[token], up[e])
    a, b = h[:, :20], h[:, 20:]
    g = gate(b) * a if swapped else gate(a) * b
    wt = w.flatten()[order.roll(off)][:, None]
    y = torch.einsum("tf,tfd->td", g * wt if early else g, down[e])
    y = (y if early else y * wt) * (e < experts)[:, None]
    out = torch.zeros_like(x)
    if last:
        out[token] = y
        return out
    if first:
        y = y * (order % 2 == 0)[:, None]
    return out.index_add(0, token, y)


right(experts_forward, "tokens sorted by expert", experts_sorted)
right(experts_forward, "the weight multiplied in before the second product", experts_sorted, early=True)
wrong(experts_forward, experts_sorted, {
    "the two halves of the first product are exchanged": dict(swapped=True),
    "a token's second expert overwrites the first": dict(last=True),
    "the last expert's tokens are left out": dict(experts=3),
    "the gate is a gelu": dict(gate=F.gelu),
    "each sorted row takes the weight of the row before": dict(off=1)})


@seventh(lambda d: (d(40, 96, dtype=hf, scale=4.0),))
def clamped_interleaved_swiglu(x):
    gate, up = x[..., ::2].clamp(max=7.0), x[..., 1::2].clamp(-7.0, 7.0)
    return gate * torch.sigmoid(1.702 * gate) * (up + 1)


def clamped_swiglu_pairs(x, halves=False, one=1.0, alpha=1.702, low=-7.0, gate_low=-math.inf, cap=7.0, shift=0):
    pair = x.unflatten(-1, (2, -1)).unbind(-2) if halves else x.unflatten(-1, (-1, 2)).unbind(-1)
    a, b = pair[0].clamp(gate_low, cap), pair[1].clamp(low, cap)
    return a * (b + one) / (1 + (-alpha * a).exp())


right(clamped_interleaved_swiglu, "divided by 1 + exp", clamped_swiglu_pairs)
doubled(clamped_interleaved_swiglu)
wrong(clamped_interleaved_swiglu, clamped_swiglu_pairs, {
    "gate and up are the two halves, not neighbours": dict(halves=True),
    "1 is not added to up": dict(one=0.0),
    "the factor in the sigmoid is 1": dict(alpha=1.0),
    "up is clamped above only": dict(low=-math.inf),
    "the gate is clamped below as well, at -1": dict(gate_low=-1.0)})
