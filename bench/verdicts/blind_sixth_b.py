# SPDX-License-Identifier: Apache-2.0
"""Set G: products (split over k, by groups, block-scaled, sparse, adapters), quantizers and packed codes."""

import torch
import torch.nn.functional as F

from .blind import bf, hf, honest, mistake
from .blind_sixth_common import faults, sixth, sound, stored, through

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def parts_of_k(a, b, step=128, acc=None, lost=None, tail=True, order=1):
    """a @ b in pieces along k, added up one after another."""
    n = a.shape[-1]
    starts = list(range(0, n if tail else n // step * step, step))
    total = a.new_zeros(*a.shape[:-1], b.shape[-1])
    for at in [x for i, x in enumerate(starts) if i != lost][::order]:
        total = stored(total + a[..., at : at + step] @ b[..., at : at + step, :], acc)
    return total


def cut_low_bits(x, kept, nearest=True):
    """x with `kept` stored bits of fraction, as a tensor unit reads it."""
    drop = 23 - kept
    if not drop:
        return x
    return ((x.contiguous().view(torch.int32) + (1 << drop - 1 if nearest else 0)) & -(1 << drop)).view(torch.float32)


# ------------------------------------------------------------------ dense products


@sixth(lambda d: (d(48, 1000, dtype=bf), d(40, 1000, dtype=bf), d(40, dtype=bf, scale=20.0)))
def split_linear_bias(x, w, b):
    return F.linear(x, w, b)


def linear_in_splits(x, w, b, again=False, between=None, halves=False, **keys):
    y = parts_of_k(x, w.mT, **keys)
    if halves:
        y = stored(parts_of_k(x, w.mT), hf)
    return stored(y, between) + b * (8 if again else 1)


def pairwise_linear(x, w, b):
    p = x[:, None] * w[None]
    while p.shape[-1] > 1:
        p = F.pad(p, (0, p.shape[-1] % 2))
        p = p[..., ::2] + p[..., 1::2]
    return p[..., 0] + b


sound(split_linear_bias, "eight splits of k", linear_in_splits)
sound(split_linear_bias, "splits of 32 from the end", linear_in_splits, step=32, order=-1)
sound(split_linear_bias, "a tree of pairs", pairwise_linear)
faults(
    split_linear_bias,
    linear_in_splits,
    acc=("partial sums are stored in bf16 after every 128 products", bf),
    lost=("one of the eight splits loses its addition", 3),
    tail=("the last 104 products, which do not fill a split, are left out", False),
    again=("every split adds the bias", True),
    between=("the product is rounded to bf16 before the bias is added", bf),
)


@sixth(lambda d: (d(3, 70, 96), d(3, 96, 50)))
def batched_product_f32(a, b):
    return torch.bmm(a, b)


def product_with_cuts(a, b, kept=23, nearest=True, stale=False, row=False):
    a, b = cut_low_bits(a, kept, nearest), cut_low_bits(b, kept, nearest)
    out = torch.zeros(3, 70, 50)
    for at in range(0, 96, 16):
        out += a[:, :, at : at + 16] @ b[:, at : at + 16]
    if stale:
        out[:, 64:, 48:] = out[:, :6, 48:]
    if row:
        out[1, 31] -= a[1, 31, 80:] @ b[1, 80:]
    return out


honest(batched_product_f32, "six steps of 16", product_with_cuts)
honest(batched_product_f32, "outer products", lambda a, b: sum(a[:, :, i, None] * b[:, i, None] for i in range(96)))
honest(
    batched_product_f32,
    "three bf16 parts of each operand",
    lambda a, b: (lambda x, y: sum(x[i] @ y[j] for i, j in ((2, 0), (1, 1), (0, 2), (1, 0), (0, 1), (0, 0))))(
        *((lambda h: (lambda m: (h, m, z - h - m))(stored(z - h, bf)))(stored(z, bf)) for z in (a, b))
    ),
)
mistake(batched_product_f32, "the operands are read as TF32", lambda a, b: product_with_cuts(a, b, 10))
mistake(
    batched_product_f32,
    "the operands are cut off to TF32 without rounding",
    lambda a, b: product_with_cuts(a, b, 10, False),
)
mistake(
    batched_product_f32,
    "the corner tile holds the values of the first tile of its column",
    lambda a, b: product_with_cuts(a, b, stale=True),
)
mistake(
    batched_product_f32,
    "one row misses its last step of 16, added by another thread too early",
    lambda a, b: product_with_cuts(a, b, row=True),
)


@sixth(lambda d: (d(75, 64, dtype=bf), d(5, 64, 36, dtype=bf), torch.tensor([0, 19, 19, 40, 57, 75])))
def grouped_gemm_offsets(x, w, ends):
    return torch.cat([x[ends[e] : ends[e + 1]] @ w[e] for e in range(5)])


def grouped_by_row_tiles(x, w, ends, tile=1, shift=0, acc=None, skip=False, last=0):
    group = torch.bucketize(torch.arange(75), ends[1:], right=True)
    group = group[torch.arange(75) // tile * tile]
    if skip:  # groups without rows are not counted
        group = torch.unique(group, return_inverse=True)[1]
    y = parts_of_k(x[:, None], w[(group + shift) % 5], 16, acc)[:, 0]
    return torch.cat((y[: 75 - last], y.new_zeros(last, 36)))


sound(grouped_gemm_offsets, "row by row with the group looked up", grouped_by_row_tiles)
honest(
    grouped_gemm_offsets,
    "all groups, then the right one is taken",
    through(
        lambda x, w, ends: torch.einsum(
            "nk,ekm,ne->nm", x, w, F.one_hot(torch.bucketize(torch.arange(75), ends[1:], right=True), 5).float()
        )
    ),
)
faults(
    grouped_gemm_offsets,
    grouped_by_row_tiles,
    tile=("a tile of 8 rows that spans two groups takes the first one's weights", 8),
    skip=("a group without rows is not counted, so later rows take the weights before theirs", True),
    acc=("sums are kept in half precision", hf),
    last=("the last 3 rows are not written", 3),
)


# ------------------------------------------------------------------ block scales


@sixth(
    lambda d: (
        d(40, 128, scale=80.0).to(E4M3),
        d(24, 128, scale=40.0).to(E4M3),
        d.rand(40, 1).add(0.1),
        d.rand(1, 24).add(0.1),
    )
)
def scaled_mm_rowwise(a, b, sa, sb):
    return ((a.to(sa.dtype) @ b.to(sa.dtype).mT) * sa * sb).to(sa.dtype)


def scaled_mm_by_steps(a, b, sa, sb, flip=False, acc=None, kind=None, only=False, step=32):
    a, b = (x.to(torch.float32) for x in (a, b))
    if kind is not None:
        a = a.clamp(-240, 240)
    y = parts_of_k(a, b.mT, step, acc)
    s = sa.roll(1, 0) if flip else sa
    return y * (s if only else s * sb)


honest(scaled_mm_rowwise, "four steps of 32", scaled_mm_by_steps)
honest(scaled_mm_rowwise, "operands scaled first", lambda a, b, sa, sb: (a.float() * sa) @ (b.float() * sb.mT).mT)
for words, keys in {
    "each row takes the scale of the row before": {"flip": True},
    "sums are kept with bf16's 8 bits between steps": {"acc": bf},
    "the codes saturate at 240, another format's largest number": {"kind": 240},
    "the columns' scales are left out": {"only": True},
}.items():
    mistake(scaled_mm_rowwise, words, lambda *a, keys=keys: scaled_mm_by_steps(*a, **keys))


FOUR = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


@sixth(lambda d: (d(20, 128, dtype=bf), d.ints(256, 36, 64).to(torch.uint8), (d.ints(9, 36, 4) + 121).to(torch.uint8)))
def mxfp4_packed_linear(x, codes, exponents):
    c = torch.stack((codes & 15, codes >> 4), -1).flatten(1).long()
    w = (FOUR[c & 7] * (1 - (c >> 3) * 2)).unflatten(1, (4, 32)) * (exponents.double() - 127).exp2()[..., None]
    return x @ w.flatten(1).to(x.dtype).mT


def mxfp4_block_by_block(x, codes, exponents, swapped=False, bias=127, flush=False, block=32, acc=None, tiled=False):
    pair = (codes >> 4, codes & 15) if swapped else (codes & 15, codes >> 4)
    c = torch.stack(pair, -1).flatten(1).long()
    table = FOUR.clone()
    table[1] = 0.0 if flush else 0.5
    w = table[c & 7] * torch.where(c > 7, -1.0, 1.0)
    out = x.new_zeros(20, 36)
    e = exponents.flip(1) if tiled else exponents
    for at in range(0, 128, 16):
        s = torch.ldexp(torch.ones(36), e[:, at // block % 4].int() - bias)
        out = stored(out + (x[:, at : at + 16] @ w[:, at : at + 16].mT) * s, acc)
    return out


sound(mxfp4_packed_linear, "16 channels at a time, the scale after the product", mxfp4_block_by_block)
honest(mxfp4_packed_linear, "float64 inside", through(mxfp4_packed_linear, torch.float64))
faults(
    mxfp4_packed_linear,
    mxfp4_block_by_block,
    swapped=("the high half of a byte is taken for the even channel", True),
    bias=("the scales' exponent bias is 128", 128),
    flush=("the code of 0.5, a subnormal of the format, reads as 0", True),
    block=("a scale is taken for every 16 channels, not 32", 16),
    tiled=("the scales of a row are stored back to front", True),
    acc=("the sums of the blocks are kept in bf16", bf),
)


def two_scales(d):
    local = (d.rand(28, 8) * 300 + 40).to(E4M3).float()
    return d(24, 128, dtype=hf, scale=0.1), d.ints(256, 28, 64).to(torch.uint8), local, torch.tensor(0.0007)


@sixth(two_scales)
def nvfp4_two_scale_linear(x, codes, local, whole):
    c = torch.stack((codes & 15, codes >> 4), -1).flatten(1).long()
    w = (FOUR[c & 7] * (1 - (c >> 3) * 2)).unflatten(1, (8, 16)) * local[..., None]
    return ((x.to(local.dtype) @ w.flatten(1).mT) * whole).to(x.dtype)


def nvfp4_block_by_block(x, codes, local, whole, scale=None, block=16, mapped=False, magnitude=False):
    c = torch.stack((codes & 15, codes >> 4), -1).flatten(1).long()
    w = FOUR[c & 7] * (1.0 if magnitude else torch.where(c > 7, -1.0, 1.0))
    s = stored(local, scale)
    if mapped:  # rows of scales kept in tiles of four
        s = s.unflatten(0, (7, 4)).transpose(1, 2).reshape(28, 8)
    out = sum((x[:, at : at + 16] @ w[:, at : at + 16].mT) * s[:, at // block] for at in range(0, 128, 16))
    return out * whole


sound(nvfp4_two_scale_linear, "block by block", nvfp4_block_by_block)
honest(nvfp4_two_scale_linear, "float64 inside", through(nvfp4_two_scale_linear, torch.float64))
faults(
    nvfp4_two_scale_linear,
    nvfp4_block_by_block,
    scale=("the blocks' scales are read as e5m2, with two bits of fraction", E5M2),
    block=("a scale is taken for every 32 channels", 32),
    mapped=("scales tiled by four rows are read as if they were in rows", True),
    magnitude=("the codes' sign bits are ignored", True),
)


@sixth(
    lambda d: (
        torch.cat((d(16, 96) * d.rand(16, 96) ** 20, d(16, 96, scale=1e-3), d(8, 96, scale=300.0), torch.zeros(1, 96))),
    )
)
def mx_round_trip_e4m3(x):
    b = x.unflatten(1, (3, 32))
    top = b.abs().amax(2, keepdim=True)
    e = torch.where(top > 0, torch.frexp(top)[1] - 9, 0)  # the largest becomes 256 to 448 and saturates there
    s = torch.ldexp(torch.ones_like(top), e)
    return ((b / s).clamp(-448, 448).to(E4M3).to(x.dtype) * s).flatten(1)


def mx_by_hand(x, step=0, saturate=True, down=False, columns=False, block=32, flush=False):
    if columns:
        return F.pad(mx_by_hand(F.pad(x, (0, 0, 0, 23)).mT.contiguous(), block=32).mT, (0, 0, 0, -23))
    b = x.unflatten(1, (-1, block))
    top = b.abs().amax(2, keepdim=True)
    s = torch.where(top > 0, torch.exp2(torch.log2(top.double()).floor() - 8 + step), 1.0).float()
    m, e = torch.frexp(b / s)
    unit = torch.exp2((e - 4).clamp(min=-9).float())
    y = b / s / unit
    y = (y.trunc() if down else y.round()) * unit
    if flush:
        y = y * (y.abs() >= 2.0**-6)
    return ((y.clamp(-448, 448) if saturate else torch.where(y.abs() > 448, torch.nan, y)) * s).flatten(1)


honest(mx_round_trip_e4m3, "rounded by hand on a power of two", mx_by_hand)
for words, keys in {
    "the shared exponent is one too large": {"step": 1},
    "numbers beyond 448 become NaN instead of saturating": {"saturate": False},
    "codes are truncated, not rounded to nearest": {"down": True},
    "blocks run down the columns": {"columns": True},
    "blocks hold 16 numbers, not 32": {"block": 16},
    "subnormal codes are flushed to zero": {"flush": True},
}.items():
    mistake(mx_round_trip_e4m3, words, lambda x, keys=keys: mx_by_hand(x, **keys))


@sixth(lambda d: (d(12, 64, shift=0.3),))
def int4_pack_asymmetric(x):
    g = x.unflatten(1, (4, 16))
    low, high = g.amin(2, keepdim=True), g.amax(2, keepdim=True)
    code = ((g - low) * (15 / (high - low))).round().clamp(0, 15).to(torch.uint8).flatten(1)
    return code[:, ::2] | code[:, 1::2] << 4


def pack_by_counting(x, most=15, swapped=False, wide=False, down=False, centred=False):
    g = x.unflatten(1, (2, 32) if wide else (4, 16))
    low, high = g.amin(2, keepdim=True), g.amax(2, keepdim=True)
    if centred:
        high = g.abs().amax(2, keepdim=True)
        low = -high
    at = (g - low) / (high - low) * most
    steps = torch.arange(1, most + 1) - (0.0 if down else 0.5)
    code = (at[..., None] >= steps).sum(-1).to(torch.uint8).flatten(1)
    return code[:, 1::2] | code[:, ::2] << 4 if swapped else code[:, ::2] | code[:, 1::2] << 4


honest(int4_pack_asymmetric, "by counting the borders below", pack_by_counting)
for words, keys in {
    "the even channel goes to the high half": {"swapped": True},
    "codes reach 14 only": {"most": 14},
    "codes are truncated": {"down": True},
    "groups hold 32 channels": {"wide": True},
    "the range is symmetric about zero": {"centred": True},
}.items():
    mistake(int4_pack_asymmetric, words, lambda x, keys=keys: pack_by_counting(x, **keys))


# ------------------------------------------------------------------ adapters, sparse products, losses on products


@sixth(
    lambda d: (
        d(18, 64, dtype=bf),
        d(4, 10, 64, dtype=bf),
        d(4, 48, 10, dtype=bf, scale=0.3),
        d(18, 48, dtype=bf),
        torch.tensor([2, 2, -1, 0, 0, 0, 3, -1, 1, 1, 2, -1, 3, 3, 0, 1, 1, -1]),
    )
)
def lora_by_token(x, a, b, base, which):
    delta = torch.einsum("nr,nor->no", torch.einsum("nd,nrd->nr", x, a[which]), b[which]) * 1.6
    return base + delta * (which >= 0)[:, None]


def lora_by_adapter(x, a, b, base, which, none=False, rank=10, scale=1.6, tile=1, mid=None, over=False):
    which = which[torch.arange(18) // tile * tile]
    out = torch.zeros_like(base) if over else base.clone()
    for i in range(4):
        rows = (which == i) | (none & (i == 3) & (which < 0))
        out[rows] += stored(x[rows] @ a[i, :rank].mT, mid) @ b[i, :, :rank].mT * scale
    return out


sound(lora_by_token, "adapter by adapter", lora_by_adapter)
honest(lora_by_token, "float64 inside", through(lora_by_token, torch.float64))
faults(
    lora_by_token,
    lora_by_adapter,
    none=("tokens without an adapter (-1) take the last one", True),
    rank=("the rank is cut to 8, the tile", 8),
    scale=("the delta is scaled by alpha, not by alpha over rank", 16.0),
    tile=("pairs of tokens share the first one's adapter", 2),
    mid=("the product of rank 10 is stored in e4m3", E4M3),
    over=("the delta overwrites the base product", True),
)


def block_sparse(d):
    crow = torch.tensor([0, 2, 2, 5, 6, 9])
    col = torch.tensor([1, 3, 0, 2, 5, 4, 1, 2, 5])
    return crow, col, d(9, 16, 16), d(96, 30)


@sixth(block_sparse)
def block_sparse_product(crow, col, blocks, dense):
    a = blocks.new_zeros(5, 6, 16, 16)
    row = torch.repeat_interleave(torch.arange(5), crow.diff())
    a[row, col] = blocks
    return a.transpose(1, 2).reshape(80, 96) @ dense


def block_sparse_rows(crow, col, blocks, dense, turned=False, last=5, keep=False, over=False, low=None):
    out = blocks.new_zeros(5, 16, 30)
    for r in range(last):
        if r == 0 or not keep:
            tile = torch.zeros(16, 30)
        for i in range(int(crow[r]), int(crow[r + 1])):
            block = blocks[i].mT if turned else blocks[i]
            part = stored(block, low) @ stored(dense[16 * col[i] : 16 * col[i] + 16], low)
            tile = part if over else part + (tile if i > crow[r] else 0)
        out[r] = tile
    return out.flatten(0, 1)


honest(block_sparse_product, "row of blocks by row of blocks", block_sparse_rows)
honest(
    block_sparse_product,
    "all blocks at once, added by index",
    lambda crow, col, blocks, dense: (
        torch.zeros(5, 16, 30)
        .index_add_(0, torch.repeat_interleave(torch.arange(5), crow.diff()), blocks @ dense.unflatten(0, (6, 16))[col])
        .flatten(0, 1)
    ),
)
for words, keys in {
    "the blocks are read transposed": {"turned": True},
    "the last row of blocks is left out": {"last": 4},
    "a row without blocks keeps the tile of the row before": {"keep": True},
    "a row's blocks overwrite one another instead of adding up": {"over": True},
    "the operands are rounded to half precision": {"low": hf},
}.items():
    mistake(block_sparse_product, words, lambda *a, keys=keys: block_sparse_rows(*a, **keys))


@sixth(
    lambda d: (
        d(37, 48, dtype=bf),
        d(1000, 48, dtype=bf, scale=0.5),
        torch.where(d.rand(37) < 0.2, -100, d.ints(1000, 37)),
    )
)
def linear_cross_entropy_capped(h, w, label):
    z = h.to(w.dtype) @ w.mT
    z = 15 * (z / 15).tanh()
    lse = z.logsumexp(-1)
    kept = label >= 0
    return ((lse - z.gather(1, label.clamp(min=0)[:, None])[:, 0] + 1e-3 * lse.square()) * kept).sum() / kept.sum()


def linear_cross_entropy_chunks(h, w, label, size=256, all_rows=False, frozen=False, power=2, cap=True, tail=True):
    top, total, hit = torch.full((37,), -torch.inf), torch.zeros(37), torch.zeros(37)
    for at in range(0, 1000 if tail else 768, size):
        z = h @ w[at : at + size].mT
        z = 15 * (z / 15).tanh() if cap else z
        hit += torch.where(
            (label >= at) & (label < at + size), z.gather(1, (label - at).clamp(0, z.shape[1] - 1)[:, None])[:, 0], 0
        )
        peak = torch.maximum(top, z.amax(1))
        total = (total if frozen else total * (top - peak).exp()) + (z - peak[:, None]).exp().sum(1)
        top = peak
    lse = top + total.log()
    kept = label >= 0
    return ((lse - hit + 1e-3 * lse**power) * kept).sum() / (37 if all_rows else kept.sum())


sound(linear_cross_entropy_capped, "vocabulary in chunks of 256", linear_cross_entropy_chunks)
sound(linear_cross_entropy_capped, "chunks of 100", linear_cross_entropy_chunks, size=100)
faults(
    linear_cross_entropy_capped,
    linear_cross_entropy_chunks,
    all_rows=("the mean counts the ignored rows too", True),
    frozen=("the running sum is not rescaled when a chunk has a larger maximum", True),
    power=("the z loss is linear in the log sum, not its square", 1),
    cap=("the logits are not capped", False),
    tail=("the last chunk of 232 is never visited", False),
)
