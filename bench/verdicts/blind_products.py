# SPDX-License-Identifier: Apache-2.0
"""Set P: products that training and serving of today run on, grouped, scaled in blocks, of 8-bit weights, and
attention with masks, terms and dropout: other algorithms for each, none of which may be accused, and the mistakes
that are made in them."""

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from .blind import bf, family, honest, mistake

aten = torch.ops.aten
E4, E8 = torch.float8_e4m3fn, torch.float8_e8m0fnu


def product(args):
    return family(args, sets="P")


def in_parts(a, b, parts=4, acc=torch.float32):
    """a @ b with the inner axis cut into parts that are added one after another."""
    total = torch.zeros(a.shape[0], b.shape[1], dtype=acc)
    for left, right in zip(a.chunk(parts, 1), b.chunk(parts, 0), strict=True):
        total = (total + (left.float() @ right.float()).to(acc)).to(acc)
    return total.float()


def terms(a, b):
    """a @ b, one outer product after another."""
    total = torch.zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        total = total + a[:, k, None].float() * b[None, k].float()
    return total


# ---- 8 bits with scales -----------------------------------------------------------------


def eights(d, n=48, k=64, m=32):
    return d(n, k).to(E4), d(m, k).to(E4).t()


@product(lambda d: (*eights(d), torch.tensor(0.7), torch.tensor(1.3)))
def scaled_mm(a, b, sa, sb):
    return aten._scaled_mm(a, b, sa, sb, None, None, bf)


honest(scaled_mm, "split over the inner axis", lambda a, b, sa, sb: (in_parts(a, b) * sa * sb).to(bf))
honest(scaled_mm, "the operands scaled first", lambda a, b, sa, sb: terms(a.float() * sa, b.float() * sb).to(bf))
mistake(
    scaled_mm,
    "the last term of each sum is left out",
    lambda a, b, sa, sb: (a.float()[:, :-1] @ b.float()[:-1] * sa * sb).to(bf),
)
mistake(scaled_mm, "the second scale is not applied", lambda a, b, sa, sb: (a.float() @ b.float() * sa).to(bf))
mistake(scaled_mm, "the accumulator is bfloat16", lambda a, b, sa, sb: (in_parts(a, b, 16, bf) * sa * sb).to(bf))
mistake(
    scaled_mm,
    "scales are rounded to powers of two",
    lambda a, b, sa, sb: (a.float() @ b.float() * sa.log2().round().exp2() * sb).to(bf),
)


@product(lambda d: (*eights(d), d.rand(48, 1) + 0.5, d.rand(1, 32) + 0.5))
def scaled_mm_by_rows(a, b, sa, sb):
    return aten._scaled_mm(a, b, sa, sb, None, None, bf)


honest(scaled_mm_by_rows, "one term after another", lambda a, b, sa, sb: (terms(a, b) * sa * sb).to(bf))
honest(scaled_mm_by_rows, "the scales multiplied first", lambda a, b, sa, sb: (in_parts(a, b) * (sa * sb)).to(bf))
mistake(scaled_mm_by_rows, "the first row's scale for all", lambda a, b, sa, sb: (terms(a, b) * sa[:1] * sb).to(bf))
mistake(scaled_mm_by_rows, "the next row's scale", lambda a, b, sa, sb: (terms(a, b) * sa.roll(-1, 0) * sb).to(bf))
mistake(
    scaled_mm_by_rows,
    "scales are kept in bfloat16",
    lambda a, b, sa, sb: (terms(a, b) * sa.to(bf).float() * sb.to(bf).float()).to(bf),
)


@product(lambda d: (*eights(d, k=128), d.ints(5, 48, 4).sub(2).exp2().to(E8), d.ints(5, 32, 4).sub(2).exp2().to(E8)))
def scaled_mm_in_blocks(a, b, sa, sb):
    left = a.to(torch.float64) * sa.to(torch.float64).repeat_interleave(32, 1)
    right = b.to(torch.float64) * sb.to(torch.float64).repeat_interleave(32, 1).t()
    return (left @ right).to(bf)


def blocks(a, b, sa, sb, shift=0, acc=torch.float32, last=4):
    total = torch.zeros(a.shape[0], b.shape[1], dtype=acc)
    for k in range(last):
        at = slice(32 * k, 32 * k + 32)
        part = a[:, at].float() @ b[at].float() * sa.float()[:, (k + shift) % 4, None] * sb.float()[None, :, k]
        total = total + part.to(acc)
    return total.to(bf)


honest(scaled_mm_in_blocks, "a block after another", blocks)
honest(scaled_mm_in_blocks, "in float64", lambda *a: blocks(*a, acc=torch.float64))
mistake(scaled_mm_in_blocks, "the scale of the next block", lambda *a: blocks(*a, shift=1))
mistake(scaled_mm_in_blocks, "the last block is left out", lambda *a: blocks(*a, last=3))
mistake(scaled_mm_in_blocks, "the accumulator is bfloat16", lambda *a: blocks(*a, acc=bf))


@product(lambda d: (d(24, 96, dtype=bf), d.ints(255, 32, 96).sub(127).to(torch.int8), (d.rand(32) / 100).to(bf)))
def weight_int8pack_mm(x, w, scales):
    return aten._weight_int8pack_mm(x, w, scales)


honest(weight_int8pack_mm, "split over the inner axis", lambda x, w, s: (in_parts(x, w.t()) * s.float()).to(bf))
honest(
    weight_int8pack_mm,
    "weights scaled first, in float32",
    lambda x, w, s: terms(x, (w.float() * s.float()[:, None]).t()).to(bf),
)
mistake(
    weight_int8pack_mm,
    "weights scaled and rounded to bfloat16",
    lambda x, w, s: terms(x, (w.to(bf) * s[:, None]).t()).to(bf),
)
mistake(weight_int8pack_mm, "the scale of the next column", lambda x, w, s: (terms(x, w.t()) * s.roll(-1)).to(bf))
mistake(
    weight_int8pack_mm,
    "weights are read without a sign",
    lambda x, w, s: (terms(x, w.view(torch.uint8).t()) * s).to(bf),
)
mistake(
    weight_int8pack_mm,
    "the last column of a tile of 16 is not scaled",
    lambda x, w, s: (terms(x, w.t()) * torch.where(torch.arange(32) % 16 == 15, torch.ones(()), s.float())).to(bf),
)


# ---- groups -----------------------------------------------------------------------------


def grouped(x, w, offsets, sx=None, sw=None, product=in_parts, skip=0, last=True):
    rows, start = [], 0
    for n, end in enumerate(offsets.tolist()):
        which = (n + skip) % len(w)
        part = product(x[start:end], w[which])
        if sx is not None:
            part = part * sx[start:end, None] * sw[which][None]
        rows.append(part if last or n + 1 < len(offsets) else torch.zeros_like(part))
        start = end
    return torch.cat(rows).to(bf)


def experts(d, dtype=bf):
    ends = torch.tensor([8, 21, 21, 48], dtype=torch.int32)
    return d(48, 64).to(dtype), d(4, 32, 64).to(dtype).transpose(1, 2), ends


@product(experts)
def grouped_mm(x, w, offsets):
    return F.grouped_mm(x, w, offs=offsets)


honest(grouped_mm, "split over the inner axis", grouped)
honest(grouped_mm, "one term after another", lambda *a: grouped(*a, product=terms))
mistake(grouped_mm, "the next expert's weights", lambda *a: grouped(*a, skip=1))
mistake(grouped_mm, "groups end a row later", lambda x, w, o: grouped(x, w, (o + 1).clamp(max=48)))
mistake(grouped_mm, "the last group is not computed", lambda *a: grouped(*a, last=False))
mistake(grouped_mm, "an empty group takes the one before", lambda x, w, o: grouped(x, w, torch.tensor([8, 15, 21, 48])))
mistake(
    grouped_mm,
    "the accumulator is bfloat16",
    lambda *a: grouped(*a, product=lambda left, right: in_parts(left, right, 16, bf)),
)


@product(lambda d: (*experts(d, E4), d.rand(48) + 0.5, d.rand(4, 32) + 0.5))
def scaled_grouped_mm(x, w, offsets, sx, sw):
    return aten._scaled_grouped_mm(x, w, sx, sw, offsets, None, None, bf)


honest(scaled_grouped_mm, "split over the inner axis", grouped)
honest(scaled_grouped_mm, "one term after another", lambda *a: grouped(*a, product=terms))
mistake(scaled_grouped_mm, "the next expert's weights and scales", lambda *a: grouped(*a, skip=1))
mistake(scaled_grouped_mm, "the next row's scale", lambda x, w, o, sx, sw: grouped(x, w, o, sx.roll(-1), sw))
mistake(
    scaled_grouped_mm,
    "the first expert's scales for all",
    lambda x, w, o, sx, sw: grouped(x, w, o, sx, sw[:1].expand(4, 32)),
)


# ---- attention --------------------------------------------------------------------------

N = 40
BIAS = torch.tensor([0.5, -0.25, 0.125, -1.0])
CAUSAL = create_block_mask(lambda b, h, i, j: i >= j, None, None, N, N, device="cpu")
WINDOW = create_block_mask(lambda b, h, i, j: (i >= j) & (i - j < 9), None, None, N, N, device="cpu")
AT = torch.arange(N)


def heads(d, kv=4):
    return d(2, 4, N, 16), d(2, kv, N, 16), d(2, kv, N, 16)


def plain(q, k, v, seen, sign=1, slopes=BIAS, scale=0.25, cap=0.0, tiled=0):
    scores = q @ k.transpose(-1, -2) * scale
    if cap:
        scores = cap * torch.tanh(scores / cap)
    scores = scores + sign * slopes[None, :, None, None] * (AT[:, None] - AT[None])
    scores = scores.masked_fill(~seen, -torch.inf)
    if not tiled:
        return torch.softmax(scores, -1) @ v
    top, total, out = torch.full(q.shape[:-1], -torch.inf), torch.zeros(q.shape[:-1]), torch.zeros_like(q)
    for at in range(0, N, tiled):
        part = scores[..., at : at + tiled]
        new = torch.maximum(top, part.amax(-1))
        old, weight = torch.exp(top - new).nan_to_num(), torch.exp(part - new[..., None]).nan_to_num()
        total, out = total * old + weight.sum(-1), out * old[..., None] + weight @ v[..., at : at + tiled, :]
        top = new
    return out / total[..., None]


def seen(window=N, strict=False):
    gap = AT[:, None] - AT[None]
    return (gap >= int(strict)) & (gap < window)


def slope(s, b, h, i, j):
    return s + BIAS[h] * (i - j)


@product(heads)
def flex_causal(q, k, v):
    return flex_attention(q, k, v, score_mod=slope, block_mask=CAUSAL)


honest(flex_causal, "all at once", lambda *a: plain(*a, seen()))
honest(flex_causal, "online, in tiles of 8", lambda *a: plain(*a, seen(), tiled=8))
mistake(flex_causal, "the slope's sign", lambda *a: plain(*a, seen(), sign=-1))
mistake(flex_causal, "the mask is not applied", lambda *a: plain(*a, seen() | True))
mistake(flex_causal, "the next head's slope", lambda *a: plain(*a, seen(), slopes=BIAS.roll(1)))
mistake(flex_causal, "scores are scaled by 1 / d", lambda *a: plain(*a, seen(), scale=1 / 16))
mistake(
    flex_causal,
    "weights are rounded to bfloat16",
    lambda q, k, v: (
        torch.softmax(
            (q @ k.transpose(-1, -2) / 4 + BIAS[None, :, None, None] * (AT[:, None] - AT[None])).masked_fill(
                ~seen(), -torch.inf
            ),
            -1,
        )
        .to(bf)
        .float()
        @ v
    ),
)


@product(lambda d: heads(d, 2))
def flex_window(q, k, v):
    return flex_attention(q, k, v, score_mod=slope, block_mask=WINDOW, enable_gqa=True)


def spread(x, turn=False):
    return x.repeat(1, 2, 1, 1) if turn else x.repeat_interleave(2, 1)


honest(flex_window, "all at once", lambda q, k, v: plain(q, spread(k), spread(v), seen(9)))
honest(flex_window, "online, in tiles of 5", lambda q, k, v: plain(q, spread(k), spread(v), seen(9), tiled=5))
mistake(flex_window, "a window of one more", lambda q, k, v: plain(q, spread(k), spread(v), seen(10)))
mistake(flex_window, "heads are shared in turn", lambda q, k, v: plain(q, spread(k, True), spread(v, True), seen(9)))
mistake(flex_window, "the window is not applied", lambda q, k, v: plain(q, spread(k), spread(v), seen()))


def gradients(attend):
    def kernel(q, k, v, g):
        q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
        return torch.autograd.grad(attend(q, k, v), (q, k, v), g)

    return kernel


@product(lambda d: (*heads(d), d(2, 4, N, 16)))
def flex_gradients(q, k, v, g):
    return gradients(lambda *a: flex_attention(*a, score_mod=slope, block_mask=CAUSAL))(q, k, v, g)


honest(flex_gradients, "all at once", gradients(lambda *a: plain(*a, seen())))
honest(flex_gradients, "online, in tiles of 10", gradients(lambda *a: plain(*a, seen(), tiled=10)))
mistake(flex_gradients, "the slope's sign", gradients(lambda *a: plain(*a, seen(), sign=-1)))
mistake(
    flex_gradients,
    "the diagonal is hidden",
    gradients(
        lambda q, k, v: torch.cat(
            [plain(q, k, v, seen())[:, :, :1], plain(q, k, v, seen(strict=True) | (AT[:, None] == 0))[:, :, 1:]], 2
        )
    ),
)


def dropping(p, scale=0.25, keep=True):
    def kernel(q, k, v):
        weights = F.dropout(torch.softmax(q @ k.transpose(-1, -2) * scale, -1), p)
        return weights @ v if keep else weights * (1 - p) @ v

    return kernel


@product(heads)
def attention_with_dropout(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, dropout_p=0.2)


honest(attention_with_dropout, "its own draws", dropping(0.2))
mistake(attention_with_dropout, "a scale that is 8 % off", dropping(0.2, 0.27))
mistake(attention_with_dropout, "half as many are dropped", dropping(0.1))
mistake(attention_with_dropout, "what is left is not scaled up", dropping(0.2, keep=False))
