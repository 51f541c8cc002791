# SPDX-License-Identifier: Apache-2.0
"""Set C, written blind: quantizers, activations, pooling and sampling, choosing tokens, segments and
running products."""

import torch
import torch.nn.functional as F

from .blind import bf, hf, mistake
from .blind_third import hurt, kept, last_rows_unwritten, tail_unwritten, third, two_rows_swapped, widened

# ------------------------------------------------------------------ quantizers


@third(lambda d: (d(24, 24) * (d.rand(24, 1) + 0.2),))
def int8_channels(w, over=1, signed=False, truncate=False):
    top = (w if signed else w.abs()).amax(over, keepdim=True)
    scale = top / 127
    q = (w / scale).trunc() if truncate else (w / scale).round()
    q = q.clamp(-128, 127)
    return q.to(torch.int8), q * scale


mistake(int8_channels, "scales from the largest value, not the largest magnitude", signed=True)
mistake(int8_channels, "one scale a column instead of a row", over=0)
mistake(int8_channels, "truncates instead of rounding", truncate=True)


@third(lambda d: (d(16, 96) * (d.rand(16, 1) * 20),))
def fp8_blocks(x, size=32, top=448.0, late=0, kind=torch.float8_e4m3fn):
    b = x.view(len(x), -1, size)
    scale = (b.abs().amax(-1, keepdim=True) / top).roll(late, 1)
    q = (b / scale).clamp(-top, top).to(kind).to(x.dtype)
    return (q * scale).view_as(x), scale[..., 0]


mistake(fp8_blocks, "the format's largest value taken as 240", top=240.0)
mistake(fp8_blocks, "stores e5m2 instead of e4m3", kind=torch.float8_e5m2)
mistake(fp8_blocks, "uses the scale of the block before", late=1)


@third(lambda d: (d(12, 64) * (d.rand(12, 1) * 4 + 0.1),))
def mxfp4(x, size=32, largest=2, up=False, flush=False, truncate=False):
    grid = x.new_tensor([0, 0 if flush else 0.5, 1, 1.5, 2, 3, 4, 6])
    b = x.view(-1, size)
    e = b.abs().amax(-1, keepdim=True).log2()
    scale = 2.0 ** ((e.ceil() if up else e.floor()) - largest)
    y = (b.abs() / scale).clamp(max=6.0)
    if truncate:
        q = grid[(y[..., None] >= grid).sum(-1) - 1]
    else:
        q = grid[(y[..., None] - grid).abs().argmin(-1)]
    return (q * b.sign() * scale).view_as(x)


mistake(mxfp4, "the shared exponent is rounded up", up=True)
mistake(mxfp4, "0.5 is flushed to zero", flush=True)
mistake(mxfp4, "rounds towards zero", truncate=True)
mistake(mxfp4, "blocks of 16 instead of 32", size=16)


@third(lambda d: (d(12, 64, shift=0.5),))
def int4_pack(w, size=16, levels=15, other=False, odd=0):
    b = w.view(len(w), -1, size)
    low, high = b.amin(-1, keepdim=True), b.amax(-1, keepdim=True)
    scale = (high - low) / levels
    zero = (-low / scale).round() + odd
    q = ((b / scale).round() + zero).clamp(0, 15).to(torch.uint8).view(len(w), -1)
    a, c = q[:, 0::2], q[:, 1::2]
    return (a << 4 | c) if other else (c << 4 | a), scale[..., 0], zero[..., 0].to(torch.uint8)


mistake(int4_pack, "the two nibbles of a byte are exchanged", other=True)
mistake(int4_pack, "the range is divided by 16 instead of 15", levels=16)
mistake(int4_pack, "the last row's bytes are not written (zeros)", hurt(int4_pack, last_rows_unwritten))


@third(
    lambda d: (
        d(20, 256) * (d.rand(20, 1) * 3 + 0.2),
        d.ints(255, 16, 256).sub(127).to(torch.int8),
        d.rand(16) * 0.02 + 0.001,
    )
)
def int8_dynamic_linear(x, w, ws, per_row=True, narrow_sum=False, late=0):
    top = x.abs().amax(1, keepdim=True) if per_row else x.abs().amax()
    scale = top / 127
    q = (x / scale).round().clamp(-128, 127)
    total = q @ w.to(x.dtype).T
    if narrow_sum:
        total = total.clamp(-32768, 32767)
    return total * scale * ws.roll(late)


mistake(int8_dynamic_linear, "one activation scale for the whole tensor", per_row=False)
mistake(int8_dynamic_linear, "the integer sum saturates at 16 bits", narrow_sum=True)
mistake(int8_dynamic_linear, "each output takes the weight scale of the one before", late=1)


@third(lambda d: (d(2, 3, 40, 16, scale=2.0),))
def kv_cache_round_trip(x, symmetric=False, over=2, levels=255, low=None):
    lo, hi = x.amin(over, keepdim=True), x.amax(over, keepdim=True)
    if symmetric:
        hi = x.abs().amax(over, keepdim=True)
        lo = -hi
    scale, lo = kept((hi - lo) / levels, low), kept(lo, low)
    return ((x - lo) / scale).round().clamp(0, levels) * scale + lo


mistake(kv_cache_round_trip, "ranges per token instead of per channel", over=3)
mistake(kv_cache_round_trip, "symmetric ranges instead of least to largest", symmetric=True)
mistake(kv_cache_round_trip, "scale and zero point are stored in bf16", low=bf)


# ------------------------------------------------------------------ activations


@third(lambda d: (d(17, 41, scale=3.0),))
def mish(x, smooth=True, low=None):
    return x * kept(torch.tanh(F.softplus(x) if smooth else x.clamp(min=0)), low)


mistake(mish, "softplus is taken as relu", smooth=False)
mistake(mish, "tanh(softplus(x)) is rounded to bf16 before the product with x", low=bf)
mistake(mish, "elements past the last full block of 64 are not written (zeros)", hurt(mish, tail_unwritten))


@third(lambda d: (d(16, 40, scale=3.0, dtype=hf), d(40, dtype=hf)))
def hardswish_bias(x, b, six=6.0, after=False, low_end=0.0):
    h = x if after else x + b
    y = h * (h + 3).clamp(low_end, 6.0) / six
    return y + b if after else y


mistake(hardswish_bias, "divides by 3 instead of 6", widened(hardswish_bias, six=3.0))
mistake(hardswish_bias, "the bias is added after the activation", widened(hardswish_bias, after=True))
mistake(hardswish_bias, "relu6 has no lower end", widened(hardswish_bias, low_end=-1e4))


@third(lambda d: (d(20, 30, scale=8.0),))
def softplus_limited(x, beta=2.0, limit=20.0, divided=True, beta_line=False):
    y = (1 + (beta * x).clamp(max=limit).exp()).log()
    y = y / beta if divided else y
    return torch.where(beta * x > limit, beta * x if beta_line else x, y)


mistake(softplus_limited, "the logarithm is not divided by beta", divided=False)
mistake(softplus_limited, "above the limit returns beta x", beta_line=True)
mistake(softplus_limited, "becomes a line above 2 instead of 20", limit=2.0)


@third(lambda d: (d(16, 48, scale=4.0),))
def clamped_swiglu(x, alpha=1.702, top=7.0, one=1.0, halves=False):
    gate, up = x.chunk(2, -1) if halves else (x[..., 0::2], x[..., 1::2])
    gate, up = gate.clamp(max=top), up.clamp(-top, top)
    return gate * (alpha * gate).sigmoid() * (up + one)


mistake(clamped_swiglu, "up is not raised by one", one=0.0)
mistake(clamped_swiglu, "gate and up are read as halves, not interleaved", halves=True)
mistake(clamped_swiglu, "sigmoid without alpha (1.702)", alpha=1.0)
mistake(clamped_swiglu, "nothing is clamped", top=1e4)


@third(lambda d: (d(12, 32, scale=2.0), d(12, 32), d.rand(12, 32), torch.tensor(0.25)))
def dropout_residual(x, residual, noise, p, scaled=True, flipped=False, both=False):
    keep = (noise < p) if flipped else noise >= p
    y = (x + residual if both else x) * keep
    y = y / (1 - p) if scaled else y
    return y if both else y + residual


mistake(dropout_residual, "kept values are not divided by 1 - p", scaled=False)
mistake(dropout_residual, "keeps what should be dropped", flipped=True)
mistake(dropout_residual, "the residual is dropped as well", both=True)


# ------------------------------------------------------------------ pooling and sampling


@third(lambda d: (d(2, 3, 13, 17),))
def adaptive_pool(x, rows=5, cols=4, floor_end=False, fixed=False, swapped=False):
    h, w = x.shape[2:]
    if swapped:
        x, h, w = x.mT, w, h

    def bins(n, parts):
        return [(i * n // parts, (i + 1) * n // parts if floor_end else -(-(i + 1) * n // parts)) for i in range(parts)]

    out = [
        [x[..., a:b, c:d].sum((2, 3)) / (12.0 if fixed else (b - a) * (d - c)) for c, d in bins(w, cols)]
        for a, b in bins(h, rows)
    ]
    return torch.stack([torch.stack(r, -1) for r in out], -2)


mistake(adaptive_pool, "a bin's end is rounded down instead of up", floor_end=True)
mistake(adaptive_pool, "divides by 12 whatever the bin's size", fixed=True)
mistake(adaptive_pool, "height and width of the plane are exchanged", swapped=True)


@third(lambda d: (d(2, 3, 12, 14),))
def max_pool_places(x, dilation=2, stride=2, local=False):
    h, w = x.shape[2:]
    reach = 2 * dilation + 1
    y = x.unfold(2, reach, stride).unfold(3, reach, stride)[..., ::dilation, ::dilation]
    y = y[:, :, :4, :5].flatten(-2)
    best, at = y.max(-1)
    row = torch.arange(y.shape[2])[:, None] * stride + at // 3 * dilation
    col = torch.arange(y.shape[3]) * stride + at % 3 * dilation
    return best, at if local else row * w + col


mistake(max_pool_places, "places count within the window, not within the plane", local=True)
mistake(max_pool_places, "the dilation is ignored", dilation=1)
mistake(max_pool_places, "windows start at every pixel instead of every second", stride=1)


@third(lambda d: (d(2, 3, 9, 11), d.rand(2, 6, 7, 2) * 2.4 - 1.2))
def grid_sample(x, grid, corners=False, swapped=False, border=False):
    n, c, h, w = x.shape
    gx, gy = grid.unbind(-1)
    if swapped:
        gx, gy = gy, gx
    if corners:
        px, py = (gx + 1) / 2 * (w - 1), (gy + 1) / 2 * (h - 1)
    else:
        px, py = ((gx + 1) * w - 1) / 2, ((gy + 1) * h - 1) / 2
    out = 0
    for dy in (0, 1):
        for dx in (0, 1):
            ix, iy = px.floor().long() + dx, py.floor().long() + dy
            near = (1 - (px - ix).abs()) * (1 - (py - iy).abs())
            inside = (ix >= 0) & (ix < w) & (iy >= 0) & (iy < h)
            at = iy.clamp(0, h - 1) * w + ix.clamp(0, w - 1)
            got = x.flatten(2).gather(2, at.flatten(1)[:, None].expand(-1, c, -1)).view(n, c, 6, 7)
            out = out + got * (near if border else near * inside)[:, None]
    return out


mistake(grid_sample, "corners are aligned (-1 and 1 are pixel centres)", corners=True)
mistake(grid_sample, "x and y of the grid are exchanged", swapped=True)
mistake(grid_sample, "outside the border pixel counts instead of zero", border=True)


@third(lambda d: (d(2, 12, 6, 5), d(3), d(3)))
def pixel_shuffle_scale(x, w, b, swapped=False, last=False, factor=2):
    n, c, h, wd = x.shape
    if last:
        y = x.view(n, factor, factor, c // 4, h, wd).permute(0, 3, 4, 1, 5, 2)
    else:
        y = x.view(n, c // 4, factor, factor, h, wd)
        y = y.permute(0, 1, 4, 3, 5, 2) if swapped else y.permute(0, 1, 4, 2, 5, 3)
    return y.reshape(n, c // 4, h * 2, wd * 2) * w[:, None, None] + b[:, None, None]


mistake(pixel_shuffle_scale, "rows and columns within a 2 x 2 block are exchanged", swapped=True)
mistake(pixel_shuffle_scale, "channels are read block first (depth to space), not channel first", last=True)
mistake(
    pixel_shuffle_scale,
    "the two images of the batch are exchanged",
    hurt(pixel_shuffle_scale, lambda out: two_rows_swapped(out, 0, 1)),
)


# ------------------------------------------------------------------ choosing tokens


@third(lambda d: (d(10, 40, scale=2.0),))
def top_p_filter(x, p=0.8, heat=0.7, cross=True, rising=False, norm=True, cold=False):
    prob = (x * heat if cold else x / heat).softmax(-1)
    s, ids = prob.sort(-1, descending=not rising)
    total = s.cumsum(-1)
    drop = (total - s > p) if cross else total > p
    kept_p = torch.zeros_like(prob).scatter(1, ids, s.masked_fill(drop, 0.0))
    return kept_p / kept_p.sum(-1, keepdim=True) if norm else kept_p


mistake(top_p_filter, "the token that crosses p is dropped too", cross=False)
mistake(top_p_filter, "sorts from the least likely", rising=True)
mistake(top_p_filter, "what is left is not normalised again", norm=False)
mistake(top_p_filter, "logits are multiplied by the temperature", cold=True)


@third(lambda d: (d(4, 3, 20).log_softmax(-1), d(4, 3), d.rand(4, 3) < 0.3))
def beam_step(logp, score, done, swapped=False, goes_on=False, first=False, end=0):
    beams, words = logp.shape[1:]
    only_end = torch.full_like(logp, -1e4)
    only_end[..., end] = 0
    step = logp if goes_on else torch.where(done[..., None], only_end, logp)
    total = step + (score[:, :1] if first else score)[..., None]
    best, at = total.flatten(1).topk(beams, -1)
    parent, word = at // words, at % words
    return (best, word, parent) if swapped else (best, parent, word)


mistake(beam_step, "finished beams are continued with any token", goes_on=True)
mistake(beam_step, "the first beam's score is added to every beam", first=True)
mistake(beam_step, "parents and words are exchanged", swapped=True)


@third(lambda d: (d(8, 30, scale=2.0), d.ints(30, 8, 12)))
def repetition_penalty(x, seen, penalty=1.3, plain=False, off=0, count=0.2, presence=False):
    n = torch.zeros_like(x).scatter_add(1, (seen + off) % 30, torch.ones_like(seen, dtype=x.dtype))
    y = x / penalty if plain else torch.where(x > 0, x / penalty, x * penalty)
    return torch.where(n > 0, y, x) - count * (n.clamp(max=1) if presence else n)


mistake(repetition_penalty, "negative logits are divided too", plain=True)
mistake(repetition_penalty, "penalises the token after the one seen", off=1)
mistake(repetition_penalty, "the frequency penalty counts each token once", presence=True)


@third(lambda d: (d(6, 5, 24), d(6, 5, 24), d.rand(6, 5), d.ints(24, 6, 5)))
def speculative_residual(target, draft, u, token, clamp=True, swapped=False, norm=True):
    p, q = target.softmax(-1), draft.softmax(-1)
    if swapped:
        p, q = q, p
    ratio = (p / q).gather(-1, token[..., None])[..., 0]
    rest = (p - q).clamp(min=0) if clamp else (p - q).abs()
    rest = rest / rest.sum(-1, keepdim=True) if norm else rest
    return rest, ratio.clamp(max=1.0), u < ratio


mistake(speculative_residual, "target and draft are exchanged", swapped=True)
mistake(speculative_residual, "the residual takes |p - q| instead of max(p - q, 0)", clamp=False)
mistake(speculative_residual, "the residual is not normalised", norm=False)


# ------------------------------------------------------------------ segments and running products


@third(lambda d: (d(30, 16), d.ints(10, 50), torch.tensor([0, 6, 7, 19, 30, 41]), d.rand(50)))
def embedding_bags(table, ids, starts, weight, padding=3, weighted=True, mean=True, count_all=False, early=0):
    out = []
    ends = torch.cat((starts[1:], torch.tensor([len(ids)]))) - early
    for a, b in zip(starts.tolist(), ends.tolist()):
        keep = ids[a:b] != padding
        w = (weight[a:b] if weighted else torch.ones_like(weight[a:b])) * keep
        total = (table[ids[a:b]] * w[:, None]).sum(0)
        out.append(total / max(b - a if count_all else int(keep.sum()), 1) if mean else total)
    return torch.stack(out)


mistake(embedding_bags, "weights of the samples are ignored", weighted=False)
mistake(embedding_bags, "the mean counts padding as well", count_all=True)
mistake(embedding_bags, "the last bag is left out (zeros)", hurt(embedding_bags, last_rows_unwritten))
mistake(embedding_bags, "each bag loses its last entry", early=1)


@third(lambda d: (d(60, 4, scale=2.0), d(60, 4), d.ints(9, 60)))
def edge_softmax_sum(score, value, node, whole=False, mean=False, low=None):
    e = (score - score.amax()).exp()
    z = torch.zeros(9, 4, dtype=score.dtype).index_add(0, node, e)
    p = kept(e / (e.sum(0) if whole else z[node]), low)
    out = torch.zeros(9, 4, dtype=score.dtype).index_add(0, node, p * value)
    if mean:
        out = out / torch.zeros(9, dtype=score.dtype).index_add(0, node, torch.ones_like(score[:, 0]))[:, None]
    return out


mistake(edge_softmax_sum, "normalised over all edges instead of each node's", whole=True)
mistake(edge_softmax_sum, "the weighted sum is divided by the number of edges", mean=True)
mistake(edge_softmax_sum, "two nodes' results are exchanged", hurt(edge_softmax_sum, two_rows_swapped))
mistake(edge_softmax_sum, "attention weights are rounded to bf16", low=bf)


@third(lambda d: (d(90, 6, shift=1.0), torch.tensor([0, 11, 12, 40, 41, 63, 90])))
def ragged_sum(x, starts, late=0, low=None):
    out = []
    for a, b in zip(starts[:-1].tolist(), starts[1:].tolist()):
        total = torch.zeros_like(x[0])
        for row in x[a : b + late]:
            total = kept(total + row, low)
        out.append(total)
    return torch.stack(out)


mistake(ragged_sum, "a segment's end is taken as inclusive", late=1)
mistake(ragged_sum, "accumulates in bf16", low=bf)
mistake(ragged_sum, "accumulates in fp16", low=hf)
mistake(ragged_sum, "the last segment is not written (zeros)", hurt(ragged_sum, last_rows_unwritten))


@third(lambda d: (d(12, 24), d(12, 24, 3), d.rand(12, 24) * 0.4 + 0.1, d(3)))
def render_rays(density, color, gap, ground, inclusive=False, bare=False, flat=False, low=None):
    alpha = 1 - (-F.softplus(density) * (1.0 if flat else gap)).exp()
    through = kept(torch.cumprod(1 - alpha, 1), low)
    before = through if inclusive else F.pad(through, (1, 0), value=1.0)[:, :-1]
    c = ((before * alpha)[..., None] * color).sum(1)
    return c if bare else c + through[:, -1:] * ground


mistake(render_rays, "light passed includes the sample itself (inclusive product)", inclusive=True)
mistake(render_rays, "the background's share is left out", bare=True)
mistake(render_rays, "the distance between samples is not used", flat=True)
mistake(render_rays, "the running product is kept in bf16", low=bf)


@third(
    lambda d: (
        d(4, 3, 6, 6),
        d(4, 3, 6, 6),
        torch.linspace(0.9999, 0.98, 50).cumprod(0),
        torch.tensor([49, 31, 20, 11]),
    )
)
def ddim_step(x, eps, alphas, t, stride=10, root=True, one=1.0, swapped=False, low=None):
    a, b = (alphas[i][:, None, None, None] for i in (t, t - stride))
    if swapped:
        a, b = b, a
    clean = (x - ((1 - a).sqrt() if root else 1 - a) * eps) / a.sqrt()
    return b.sqrt() * kept(clean, low) + one * (1 - b).sqrt() * eps


mistake(ddim_step, "the noise is weighed with 1 - alpha without the root", root=False)
mistake(ddim_step, "steps to t - 1 instead of t - 10", stride=1)
mistake(ddim_step, "the two noise levels are exchanged", swapped=True)
mistake(ddim_step, "the clean estimate is rounded to bf16", low=bf)
