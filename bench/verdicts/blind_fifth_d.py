# SPDX-License-Identifier: Apache-2.0
"""Set E, written blind: matrix products, their numbers' formats and what is merged into them."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, honest, mistake, tf32
from .blind_fifth_a import bits, cut, fifth, rights, wide, wrongs

e4m3 = torch.float8_e4m3fn

# ------------------------------------------------------------------ plain and grouped products


@fifth(lambda d: (d(45, 24, dtype=bf), d(4, 24, 24, dtype=bf), torch.tensor([9, 9, 31, 45])))
def grouped_product(x, w, ends):
    out, start = [], 0
    for e, end in enumerate(ends.tolist()):
        out.append(x[start:end] @ w[e])
        start = end
    return torch.cat(out)


def grouped_tiles(x, w, ends, tile=8, round_tile=False, turned=False, skip=False, tail=False):
    ends = ends.tolist()
    if skip:
        ends = [e for i, e in enumerate(ends) if i == 0 or e > ends[i - 1]]
    y, start = torch.zeros_like(x), 0
    for e, end in enumerate(ends):
        m = w[e].T if turned else w[e]
        for at in range(start, end, tile):
            stop = min(at + tile, end)
            if tail and stop - at < tile:
                continue
            y[at:stop] = x[at:stop] @ m
        start = end
    if round_tile:
        for at in range(0, len(x), tile):
            e = next(i for i, end in enumerate(ends) if end > at)
            y[at:at + tile] = x[at:at + tile] @ w[e]
    return y


rights(grouped_product, grouped_tiles, {"tiles of 8 rows inside each group": {}})
rights(grouped_product, lambda x, w, ends: (x[:, None, :, None] * w[torch.searchsorted(
    ends, torch.arange(45), right=True)][:, None]).sum(2)[:, 0], {"each row gathers its weights": {}})
wrongs(grouped_product, grouped_tiles, {
    "a tile of 8 rows that crosses a group's border uses the first group's weights": {"round_tile": True},
    "the weights are read transposed": {"turned": True},
    "an empty group is skipped and shifts the weights of those after it": {"skip": True},
    "the last rows of a group, fewer than 8, are not written": {"tail": True}})


@fifth(lambda d: (d(40, 1040), d(1040, 48)))
def long_product(a, b):
    return a @ b


def split_k(a, b, parts=4, make=lambda x: x, lost=None, acc=None, stale=False, step=16, drop=0):
    k = a.shape[1] - drop
    a, b, total = make(a[:, :k]), make(b[:k]), None
    size = -(-k // parts)
    for p in range(parts):
        if p == lost:
            continue
        part = torch.zeros(a.shape[0], b.shape[1])
        for at in range(p * size, min(k, (p + 1) * size), step):
            part = cut(part + a[:, at:min(at + step, (p + 1) * size)] @ b[at:min(at + step, (p + 1) * size)],
                acc)
        total = part if total is None else total + part
    return total + part if stale else total


def bf16_triples(a, b, terms=9):
    def three(x):
        h = cut(x, bf)
        m = cut(x - h, bf)
        return h, m, x - h - m

    a, b = three(a), three(b)
    pairs = sorted(((i, j) for i in range(3) for j in range(3)), key=sum)[:terms]
    return sum(a[i] @ b[j] for i, j in reversed(pairs))


def tf32_thrice(a, b, cross=True):
    ha, hb = tf32(a), tf32(b)
    la, lb = a - ha, b - hb
    return (la @ hb if cross else 0.0) + ha @ lb + ha @ hb


honest(long_product, "split over k in four", split_k)
honest(long_product, "nine products of bf16 parts", bf16_triples)
honest(long_product, "all four products of the tf32 parts",
    lambda a, b: tf32_thrice(a, b) + (a - tf32(a)) @ (b - tf32(b)))
honest(long_product, "products of 13, added pairwise", lambda a, b: (a.unflatten(1, (80, 13)).transpose(0, 1)
                                                                      @ b.unflatten(0, (80, 13))).sum(0))
for words, keys in {
        "the third of four splits over k is lost": {"lost": 2},
        "the last split is added twice": {"stale": True},
        "the last 16 of k are left out": {"drop": 16},
        "splits add up in fp16": {"acc": hf},
        "both factors are rounded to tf32": {"make": tf32},
        "both factors are truncated to tf32": {"make": lambda x: (x.view(torch.int32) & ~0x1FFF).view(x.dtype)},
        "both factors are rounded to bf16": {"make": lambda x: cut(x, bf)}}.items():
    mistake(long_product, words, lambda *a, keys=keys: split_k(*a, **keys))
mistake(long_product, "of the bf16 parts only three products are kept",
    lambda a, b: bf16_triples(a, b, terms=3))
mistake(long_product, "three tf32 products without one of the corrections",
    lambda a, b: tf32_thrice(a, b, False))


@fifth(lambda d: (d(33, 300, dtype=hf, scale=0.5), d(64, 300, dtype=hf, scale=0.08), d(64, dtype=hf),
                  d(33, 64, dtype=hf)))
def linear_gelu_residual(x, w, b, r):
    y = x.float() @ w.float().T + b.float()
    return (0.5 * y * (1 + torch.erf(y / math.sqrt(2))) + r.float()).to(x.dtype)


def linear_gelu_tiles(x, w, b, r, tile=64, acc=None, drop=False, late=False, plain=False, inside=False,
                      act=F.gelu, mid=None):
    y = torch.zeros(33, 64)
    k = x.shape[1]
    for at in range(0, k // tile * tile if drop else k, tile):
        y = cut(y + x[:, at:at + tile] @ w[:, at:at + tile].T, acc)
    if late:
        return act(y) + b + r
    y = y if plain else y + b
    return cut(act(y + r), mid) if inside else cut(act(y), mid) + r


rights(linear_gelu_residual, linear_gelu_tiles, {"tiles of 64": {}, "tiles of 7": {"tile": 7}})
wrongs(linear_gelu_residual, linear_gelu_tiles, {
    "sums over k are kept in bf16 between tiles": {"acc": bf},
    "the last tile of k, 44 of 64, is dropped": {"drop": True},
    "the bias is added after gelu": {"late": True},
    "the bias is left out": {"plain": True},
    "the residual is added before gelu": {"inside": True},
    "gelu is x sigmoid(1.702 x)": {"act": lambda y: y * torch.sigmoid(1.702 * y)},
    "silu instead of gelu": {"act": F.silu}})


@fifth(lambda d: (d(512, dtype=hf, scale=4.0, shift=80.0), d(96, 512, dtype=hf, scale=3.0, shift=2.0)))
def gemv_offsets(x, w):
    return w @ (x / 8)


def gemv_lanes(x, w, lanes=32, acc=None, late=True, scale=8, lost=0, trunc=0):
    if acc is not None or trunc:
        y = torch.zeros(96)
        for k in range(0, 512, 4):
            p = (w[:, k:k + 4] @ x[k:k + 4]) / (1 if late else scale)
            y = cut(y + p, acc) if acc else bits(y + p, trunc, torch.trunc)
        return y / scale if late else y
    part = (w * x).unflatten(1, (512 // lanes, lanes)).sum(1)
    return part[:, :lanes - lost].sum(1) / scale


rights(gemv_offsets, gemv_lanes, {"32 lanes": {}, "128 lanes": {"lanes": 128}})
wrongs(gemv_offsets, gemv_lanes, {
    "the sum is kept in fp16": {"acc": hf, "late": False},
    "the sum is kept in bf16": {"acc": bf},
    "the sum overflows fp16 before it is divided by 8": {"acc": hf},
    "sums keep 14 bits, the rest cut off": {"trunc": 14},
    "the last lane's partial sum is not collected": {"lost": 1}})


@fifth(lambda d: (d(50, 40, dtype=bf), d(8, 40, dtype=bf, scale=0.2), d(50, 8, dtype=bf, scale=0.2), 16.0))
def lora_merge(w, a, b, alpha):
    return w + alpha / a.shape[0] * (b @ a)


def lora_kernel(w, a, b, alpha, rank=8, use=True, sign=1, rs=False, order=False):
    a = a.flip(0) if order else a
    scale = (alpha if use else 1.0) / (math.sqrt(rank) if rs else rank)
    return w + sign * scale * torch.einsum("or,ri->oi", b[:, :rank], a[:rank])


rights(lora_merge, lora_kernel, {"float32 inside": {}})
rights(lora_merge, lambda w, a, b, alpha: torch.cat((w, b * (alpha / 8)), 1) @ torch.cat((torch.eye(40), a)),
       {"one product with the identity stacked on": {}})
wrongs(lora_merge, lora_kernel, {
    "alpha is divided by the rank's square root": {"rs": True},
    "alpha is left out": {"use": False},
    "the last of 8 ranks is left out, and the scale with it": {"rank": 7},
    "the update is subtracted, not added": {"sign": -1},
    "the ranks of a and b are paired in opposite order": {"order": True}})

# ------------------------------------------------------------------ block scales


def mx(d, rows, cols, size=32):
    x = d(rows, cols).to(e4m3).float()
    return x, d.ints(7, rows, cols // size).float() + 124


@fifth(lambda d: (*mx(d, 24, 160), *mx(d, 40, 160)))
def mxfp8_product(a, sa, b, sb):
    a = a * torch.exp2(sa - 127).repeat_interleave(32, 1)
    b = b * torch.exp2(sb - 127).repeat_interleave(32, 1)
    return a @ b.T


def mx_blocks(a, sa, b, sb, bias=127, late=0, one=False, keep=0, acc=None, blocks=5, half=False):
    y = torch.zeros(a.shape[0], b.shape[0])
    for i in range(blocks):
        at = slice(32 * i, 32 * i + 32)
        x, w = sa[:, (i + late) % 5], sb[:, i]
        s = torch.exp2(x - bias)[:, None] * torch.exp2(w - 127)
        s = torch.exp2(x - 127)[:, None].expand_as(s) if one else s
        if keep:
            for k in range(32 * i, 32 * i + 32, 8):
                y = bits(y + (a[:, k:k + 8] @ b[:, k:k + 8].T) * s, keep, torch.trunc)
        elif half:
            y = y + (a[:, at][:, :16] @ b[:, at][:, :16].T) * s + (a[:, at][:, 16:] @ b[:, at][:,
                16:].T) * s.roll(1, 0)
        else:
            y = cut(y + (a[:, at] @ b[:, at].T) * s, acc)
    return y


honest(mxfp8_product, "a product a block, scaled and added in float32", mx_blocks)
honest(mxfp8_product, "float64 inside", wide(mxfp8_product, torch.float64))
wrongs(mxfp8_product, mx_blocks, {
    "the exponents' bias is 128 for a": {"bias": 128},
    "a's scale is taken from the next block": {"late": 1},
    "b's scales are left out": {"one": True},
    "sums keep 14 bits, the rest cut off": {"keep": 14},
    "sums are kept in bf16 between blocks": {"acc": bf},
    "the last block of k is left out": {"blocks": 4},
    "the second half of each block takes the scale of the row above": {"half": True}})


def nvfp4(d, rows, k):
    return (d.ints(256, rows, k // 2).to(torch.uint8), (d.rand(rows, k // 16) * 6 + 0.5).to(e4m3).float(),
            torch.tensor(0.037))


@fifth(lambda d: (*nvfp4(d, 30, 96), d(11, 96)))
def nvfp4_linear(codes, scale, top, x):
    table = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]).to(x.dtype)
    table = torch.cat((table, -table))
    w = table[torch.stack((codes & 15, codes >> 4), -1).long()].flatten(1)
    return x @ (w * scale.repeat_interleave(16, 1) * top).T


def nvfp4_blocks(codes, scale, top, x, swap=False, size=16, mags=(0, 0.5, 1, 1.5, 2, 3, 4, 6), two=False,
        use=True,
                 late=0, ue=False):
    lo, hi = (codes & 15).long(), (codes.to(torch.int32) >> 4).long()
    c = torch.stack((hi, lo) if swap else (lo, hi), -1).flatten(1)
    sign = 1 - 2.0 * (c >> 3)
    mag = torch.tensor(mags).float()[c & 7]
    w = (c - 16.0 * (c >> 3)) if two else mag * sign
    y = torch.zeros(x.shape[0], len(w))
    scale = torch.exp2(scale.log2().ceil()) if ue else scale
    for i in range(96 // 16):
        s = scale[:, ((i * 16) // size + late) % scale.shape[1]]
        y = y + (x[:, 16 * i:16 * i + 16] @ w[:, 16 * i:16 * i + 16].T) * s
    return y * (top if use else 1.0)


honest(nvfp4_linear, "block by block, the global scale at the end", nvfp4_blocks)
wrongs(nvfp4_linear, nvfp4_blocks, {
    "the two codes of a byte are exchanged": {"swap": True},
    "block scales are taken as if a block had 32 values": {"size": 32},
    "the code of 6 is read as 5": {"mags": (0, 0.5, 1, 1.5, 2, 3, 4, 5)},
    "codes are read as signed integers, not as e2m1": {"two": True},
    "the global scale is left out": {"use": False},
    "block scales are rounded up to powers of two": {"ue": True}})


@fifth(lambda d: (d(20, 320).to(e4m3).float(), d.rand(20, 3) + 0.2, d(200, 320).to(e4m3).float(),
        d.rand(2, 3) + 0.2))
def blockwise_fp8_product(a, sa, b, sb):
    a = a * sa.repeat_interleave(128, 1)[:, :320]
    b = b * sb.repeat_interleave(128, 0)[:200].repeat_interleave(128, 1)[:, :320]
    return a @ b.T


def blockwise_kernel(a, sa, b, sb, keep=0, tail=False, first=False, cols=128, acc=None, order=False):
    y = torch.zeros(20, 200)
    row = torch.arange(200) // cols % 2
    for i in range(3):
        at = slice(128 * i, min(320, 128 * i + 128))
        ks = 1 if tail and i == 2 else i
        x, w = a[:, at], b[:, at]
        if keep:
            p = torch.zeros(20, 200)
            for k in range(0, x.shape[1], 32):
                p = bits(p + x[:, k:k + 32] @ w[:, k:k + 32].T, keep, torch.trunc)
        else:
            p = x @ w.T
        s = sa[:, 0 if first else ks][:, None]
        y = cut(y + p * s * (sb.flatten()[(i * 2 + row) % 6] if order else sb[row, ks]), acc)
    return y


honest(blockwise_fp8_product, "a product a block of 128", blockwise_kernel)
wrongs(blockwise_fp8_product, blockwise_kernel, {
    "products of a block keep 14 bits, the rest cut off": {"keep": 14},
    "the last block, 64 of 128, takes the scale of the block before": {"tail": True},
    "a's first scale serves the whole row": {"first": True},
    "b's scales are laid out column first": {"order": True},
    "b's scales change every 64 columns": {"cols": 64},
    "sums are kept in fp16 between blocks": {"acc": hf}})

# ------------------------------------------------------------------ quantising


@fifth(lambda d: (d(32, 200) * torch.where(d.rand(1, 200) > 0.97, 20.0, 1.0),))
def int8_per_token(x):
    scale = x.abs().amax(-1, keepdim=True) / 127
    return torch.round(x / scale).clamp(-128, 127).to(torch.int8), scale


def int8_kernel(x, top=127, how=torch.round, whole=False, signed=False):
    m = x.abs()
    m = m.amax() if whole else x.amax(-1, keepdim=True) if signed else torch.maximum(
        x.amax(-1, keepdim=True), -x.amin(-1, keepdim=True))
    s = (m / top).expand(32, 1)
    q = how(x / s)
    return (q.clamp(-128, 127) if not signed else q.to(torch.int32)).to(torch.int8), s.contiguous()


honest(int8_per_token, "the largest of maximum and negated minimum", int8_kernel)
for words, keys in {
        "the scale divides by 128, not 127": {"top": 128},
        "codes are truncated towards zero": {"how": torch.trunc},
        "codes are rounded down": {"how": torch.floor},
        "one scale for the whole tensor": {"whole": True},
        "the scale takes the largest value, not the largest magnitude, and codes wrap": {"signed": True}}.items():
    mistake(int8_per_token, words, lambda *a, keys=keys: int8_kernel(*a, **keys))


@fifth(lambda d: (torch.arange(-300, 340, 5).float() / 10,))
def int8_fixed_point(x):
    return torch.round(x).clamp(-20, 25).to(torch.int8)


honest(int8_fixed_point, "the magic number 1.5 * 2^23", lambda x: ((x + 12582912.0) - 12582912.0).clamp(-20,
    25).to(
    torch.int8))
mistake(int8_fixed_point, "halves are rounded away from zero",
        lambda x: ((x.abs() + 0.5).floor() * x.sign()).clamp(-20, 25).to(torch.int8))
mistake(int8_fixed_point, "halves are rounded up", lambda x: (x + 0.5).floor().clamp(-20, 25).to(torch.int8))
mistake(int8_fixed_point, "halves are rounded towards zero",
        lambda x: ((x.abs() - 0.5).ceil() * x.sign()).clamp(-20, 25).to(torch.int8))
mistake(int8_fixed_point, "the upper bound is exclusive", lambda x: torch.round(x).clamp(-20,
    24).to(torch.int8))


@fifth(lambda d: (d(24, 128, shift=0.3, dtype=bf),))
def uint4_groups_roundtrip(w):
    g = w.float().unflatten(1, (4, 32))
    low, high = g.amin(-1, keepdim=True), g.amax(-1, keepdim=True)
    scale = (high - low) / 15
    zero = torch.round(-low / scale)
    q = (torch.round(g / scale) + zero).clamp(0, 15)
    return ((q - zero) * scale).flatten(1).to(w.dtype)


def uint4_kernel(w, size=32, steps=15, how=torch.round, sym=False, shift=0):
    g = w.unflatten(1, (-1, size))
    lo, hi = g.amin(-1, keepdim=True), g.amax(-1, keepdim=True)
    if sym:
        hi = g.abs().amax(-1, keepdim=True)
        lo = -hi
    s = (hi - lo) / steps
    z = how(-lo / s)
    return (((torch.round(g / s) + z).clamp(0, 15) - z - shift) * s).flatten(1)


rights(uint4_groups_roundtrip, uint4_kernel, {"float32 inside": {}})
wrongs(uint4_groups_roundtrip, uint4_kernel, {
    "groups hold 64 values, not 32": {"size": 64},
    "the range is divided by 16 steps, not 15": {"steps": 16},
    "the zero point is rounded down": {"how": torch.floor},
    "the scale is symmetric although the codes are not": {"sym": True},
    "the zero point is stored less one and not put back": {"shift": 1}})


def packed(d):
    return (d.ints(2 ** 31, 12, 40).to(torch.int32) * 2 + d.ints(2, 12, 40).to(torch.int32),
        d.rand(3, 40) * 0.1 + 0.02,
            d.ints(16, 3, 40), d(9, 96))


@fifth(packed)
def int4_weight_linear(w, scale, zero, x):
    q = torch.stack([(w >> (4 * i)) & 15 for i in range(8)], 1).flatten(0, 1)
    group = torch.arange(96) // 32
    return x @ ((q - zero[group]) * scale[group])


def int4_kernel(w, scale, zero, x, order=(0, 1, 2, 3, 4, 5, 6, 7), one=0, size=32, mid=None, plain=False):
    y = torch.zeros(x.shape[0], 40)
    for k in range(96):
        q = (w[k // 8].to(torch.int64) & 0xFFFFFFFF) >> (4 * order[k % 8])
        q = (q & 15).float()
        g = k // size % 3
        y = y + x[:, k, None] * cut(((q - 8) if plain else (q - zero[g] - one)) * scale[g], mid)
    return y


honest(int4_weight_linear, "row by row of k", int4_kernel)
honest(int4_weight_linear, "zeros taken off by row sums of x", lambda w, s, z, x: sum(
    (x[:, 32 * g:32 * g + 32] @ torch.stack([(w >> (4 * i)) & 15 for i in range(8)], 1).flatten(0, 1)[
        32 * g:32 * g + 32].float() - x[:, 32 * g:32 * g + 32].sum(1,
            keepdim=True) * z[g]) * s[g] for g in range(3)))
wrongs(int4_weight_linear, int4_kernel, {
    "nibbles are read in the order 0 2 4 6 1 3 5 7": {"order": (0, 2, 4, 6, 1, 3, 5, 7)},
    "the zero point is taken as stored less one": {"one": 1},
    "the group changes every 16 rows of k": {"size": 16},
    "the zero point is 8 everywhere": {"plain": True},
    "weights are rounded to bf16 once unpacked": {"mid": bf}})


def half_sparse(d):
    return d(20, 32), d(24, 8, 2), d.rand(24, 8, 4).topk(2, -1).indices.sort(-1).values


@fifth(half_sparse)
def sparse_half_linear(x, values, meta):
    w = x.new_zeros(24, 8, 4).scatter(-1, meta, values)
    return x @ w.flatten(1).T


def sparse_gather(x, values, meta, swap=False, late=0, dense=False, one=False):
    groups = x.unflatten(1, (8, 4))
    meta = meta.flip(-1) if swap else meta.roll(late, 1)
    meta = torch.tensor([0, 1]).expand_as(meta) if dense else meta
    y = torch.zeros(20, 24)
    for g in range(8):
        for s in range(1 if one else 2):
            y = y + groups[:, g][:, meta[:, g, s]] * values[:, g, s]
    return y


honest(sparse_half_linear, "gathers the two of four that count", sparse_gather)
wrongs(sparse_half_linear, sparse_gather, {
    "the two places of a group are exchanged": {"swap": True},
    "the places are those of the next group": {"late": -1},
    "the places are ignored: the first two of four are used": {"dense": True}})
