# SPDX-License-Identifier: Apache-2.0
"""Set I, the aimed part, written blind (see blind_seventh_f): results that are zero, one value, of a call before or
not written; masks of attention with rows that see nothing; counts that are one off."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, mistake
from .blind_seventh_a import NEG, at, doubled, grouped, online, right, seventh, wrong
from .blind_seventh_b import folded
from .blind_seventh_i import kept, same

f32 = torch.float32


def mistakes(fn, cases):
    for words, kernel in cases.items():
        mistake(fn, words, at(kernel))


def hole(y, rows=slice(None), cols=slice(None), value=0.0):
    """y with a tile of its last two axes not written (what stood there before is `value`)."""
    y = y.clone()
    y[..., rows, cols] = value
    return y


# ------------------------------------------------------------------ nothing, one value, what stood there before

@seventh(lambda d: (d(70, 48, dtype=bf), d(48, 80, dtype=bf)))
def blank_matmul_tiles(a, b):
    return a @ b


right(blank_matmul_tiles, "in two halves of the inner axis", lambda a, b: a[:, :24] @ b[:24] + a[:, 24:] @ b[24:])
right(blank_matmul_tiles, "column tiles of 16", lambda a, b: torch.cat([a @ c for c in b.split(16, 1)], 1))
mistakes(blank_matmul_tiles, {
    "the last 6 rows, which fill no tile of 16, are not written: zeros": lambda a, b: hole(a @ b, slice(64, 70)),
    "all results are zero": lambda a, b: a @ b * 0,
    "one tile of 16 by 16 is not written: zeros": lambda a, b: hole(a @ b, slice(16, 32), slice(48, 64)),
    "every tile of 16 rows holds the first tile's results": lambda a, b: (a @ b)[torch.arange(70) % 16],
    "the last column is that before it": lambda a, b: (lambda y: torch.cat((y[:, :-1], y[:, -2:-1]), 1))(a @ b)})


@seventh(lambda d: (d(16, 200, dtype=hf), d(200, dtype=hf)))
def blank_layer_norm(x, w):
    return F.layer_norm(x, (200,), w)


def normed(x, w):
    c = x - folded(x)[:, None] / 200
    return c * (folded(c * c)[:, None] / 200 + 1e-5).rsqrt() * w


right(blank_layer_norm, "two passes by folding", normed)
doubled(blank_layer_norm)
mistakes(
    blank_layer_norm,
    {
        "the last 8 columns are not written: they hold the input": lambda x, w: torch.cat(
            (normed(x, w)[:, :192], x[:, 192:]), 1
        ),
        "the last row is not written: zeros": lambda x, w: hole(normed(x, w), slice(15, 16)),
        "all rows hold the first row's result": lambda x, w: normed(x, w)[:1].expand(16, -1).clone(),
        "results are those of a call with the rows in reverse": lambda x, w: normed(x.flip(0), w),
        "the output is the input": lambda x, w: x.clone(),
    },
)


@seventh(lambda d: (d(5, 1000),))
def blank_running_sum(x):
    return x.cumsum(-1)


def scan(x, tile=250):
    out, carry = [], x[:, :1] * 0
    for part in x.split(tile, -1):
        out.append(part.cumsum(-1) + carry)
        carry = out[-1][:, -1:]
    return torch.cat(out, 1)


right(blank_running_sum, "tiles of 250 with a carry", scan)
right(blank_running_sum, "tiles of 100 with a carry", scan, tile=100)
mistakes(blank_running_sum, {
    "the last tile is not written: zeros": lambda x: hole(scan(x), slice(None), slice(750, 1000)),
    "the last tile lacks the carry": lambda x: torch.cat((scan(x)[:, :750], x[:, 750:].cumsum(-1)), 1),
    "row 3 holds what row 2 left in the buffer": lambda x: scan(x)[[0, 1, 2, 2, 4]],
    "each row goes on from the row before: the accumulator is not cleared":
        lambda x: x.flatten().cumsum(0).view(5, 1000)})


@seventh(lambda d: (d(3, 4, 50, 16), d(3, 4, 50, 16), d(3, 4, 50, 16)))
def blank_attention_heads(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def causal(q, k, v):
    return online(q, k, v, 0.25, None, lambda i, j: j <= i)[0]


right(blank_attention_heads, "tiles of 16 keys", causal)
doubled(blank_attention_heads)
mistakes(blank_attention_heads, {
    "the last two queries, which fill no tile, are not written": lambda q, k, v: hole(causal(q, k, v), slice(48, 50)),
    "the last head is not written: zeros": lambda q, k, v: torch.cat((causal(q, k, v)[:, :3], q[:, :1] * 0), 1),
    "all batches hold the first batch's result": lambda q, k, v: causal(q, k, v)[:1].expand(3, -1, -1, -1).clone(),
    "the second batch holds NaN left in its memory":
        lambda q, k, v: (lambda y: torch.cat((y[:1], y[1:2] * math.nan, y[2:])))(causal(q, k, v)),
    "every result is the mean of all values": lambda q, k, v: v.mean(2, keepdim=True).expand(-1, -1, 50, -1).clone()})


@seventh(lambda d: (d(40, 30), d.ints(12, 40)))
def blank_scatter_sums(x, i):
    return x.new_zeros(12, 30).index_add(0, i, x)


right(blank_scatter_sums, "a product with marks", lambda x, i: F.one_hot(i, 12).to(x.dtype).mT @ x)
right(blank_scatter_sums, "in shuffled order", lambda x, i: (lambda p: x.new_zeros(12, 30).index_add(0, i[p], x[p]))(
    (torch.arange(40) * 7) % 40))
mistakes(blank_scatter_sums, {
    "the output is not cleared first: it starts at one": lambda x, i: x.new_ones(12, 30).index_add(0, i, x),
    "the last of equal places wins": lambda x, i: torch.stack(
        [x[(i == k).nonzero()[-1, 0]] if (i == k).any() else x[0] * 0 for k in range(12)]),
    "the call's sums stand on those of the call before": lambda x, i: 2 * x.new_zeros(12, 30).index_add(0, i, x),
    "the last 14 columns are not written: zeros": lambda x, i: hole(
        x.new_zeros(12, 30).index_add(0, i, x), slice(None), slice(16, 30))})


# ------------------------------------------------------------------ masks

@seventh(lambda d: (d(2, 3, 12, 16), d(2, 3, 20, 16), d(2, 3, 20, 16), (d.rand(2, 1, 12, 20) > 0.6) & (
    torch.arange(12) % 5 != 2)[:, None]))
def mask_rows_that_see_nothing(q, k, v, see):
    """Rows that see no key are zero."""
    s = (q @ k.mT * 0.25).masked_fill(~see, NEG)
    return torch.where(see.any(-1, keepdim=True), s.softmax(-1), 0.0) @ v


def seen_rows(q, k, v, see, empty="zero", low=NEG, late=0):
    s = q @ k.mT * 0.25
    s = torch.where(see.roll(late, -1), s, low)
    top = s.amax(-1, keepdim=True)
    e = (s - (top if empty == "uniform" else torch.where(top == NEG, 0.0, top))).exp()
    z = e.sum(-1, keepdim=True)
    if empty == "zero":
        e = torch.where(see, e, 0.0) if low != NEG else e
        z = torch.where(z == 0, 1.0, z)
        if low != NEG:
            z = torch.where(e.sum(-1, keepdim=True) == 0, 1.0, e.sum(-1, keepdim=True))
    return e @ v / z


right(mask_rows_that_see_nothing, "sums of 0 replaced by 1", seen_rows)
right(mask_rows_that_see_nothing, "hidden scores at -1e30, exponentials masked", seen_rows, low=-1e30)
wrong(mask_rows_that_see_nothing, seen_rows, {
    "rows that see nothing are NaN": dict(empty="nan"),
    "rows that see nothing are the mean of all values": dict(empty="uniform", low=-1e30),
    "the mask is one key late": dict(late=1),
    "hidden scores are -2 instead of minus infinity": dict(empty="uniform", low=-2.0)})


@seventh(lambda d: (d(2, 2, 10, 16, dtype=bf), d(2, 2, 34, 16, dtype=bf), d(2, 2, 34, 16, dtype=bf)))
def mask_bottom_right_causal(q, k, v):
    i, j = torch.arange(10)[:, None], torch.arange(34)[None]
    return (q @ k.mT * 0.25).masked_fill(j > i + 24, NEG).softmax(-1) @ v


def shifted_causal(q, k, v, off=24, **keys):
    return online(q, k, v, 0.25, None, lambda i, j: j <= i + off, **keys)[0]


right(mask_bottom_right_causal, "tiles of 16 keys", shifted_causal)
right(mask_bottom_right_causal, "tiles of 7 keys from the end", shifted_causal, tile=7, back=True)
wrong(mask_bottom_right_causal, shifted_causal, {
    "the mask is aligned at the top left": dict(off=0),
    "each query sees one key too many": dict(off=25),
    "each query sees one key too few": dict(off=23),
    "the last two keys, which fill no tile, are left out": dict(tail=False)})


@seventh(
    lambda d: (d(2, 2, 32, 16, dtype=hf), d(2, 2, 32, 16, dtype=hf), d(2, 2, 32, 16, dtype=hf), torch.tensor([19, 32]))
)
def mask_padded_window(q, k, v, lens):
    i, j = torch.arange(32)[:, None], torch.arange(32)[None]
    see = (j <= i) & (i - j < 8) & (j < lens[:, None, None, None])
    p = (q @ k.mT * 0.25).masked_fill(~see, NEG).softmax(-1)
    return p.nan_to_num(0.0) @ v


def padded_window(q, k, v, lens, reach=8, more=0, empty=0.0, causal_=0, skip=0):
    n = lens[:, None, None, None] + more
    o, lse = online(q, k, v, 0.25, None, lambda i, j: (j <= i + causal_) & (i - j < reach) & (j < n) & (j >= skip))
    return torch.where((lse == NEG)[..., None], empty, o.nan_to_num(empty))


right(mask_padded_window, "tiles of 16 keys, empty rows set to 0", padded_window)
doubled(mask_padded_window)
wrong(mask_padded_window, padded_window, {
    "the window holds 9 keys": dict(reach=9),
    "one padded key is seen": dict(more=1),
    "a sequence's last key is hidden": dict(more=-1),
    "rows that see nothing are NaN": dict(empty=math.nan),
    "each query sees the next key as well": dict(causal_=1)})


@seventh(lambda d: (d(2, 4, 24, 16), d(2, 4, 24, 16), d(2, 4, 24, 16), d.rand(2, 1, 3, 3) > 0.4))
def mask_block_sparse(q, k, v, blocks):
    see = blocks.repeat_interleave(8, 2).repeat_interleave(8, 3) | torch.eye(24, dtype=torch.bool)
    return (q @ k.mT * 0.25).masked_fill(~see, NEG).softmax(-1) @ v


def block_tiles(q, k, v, blocks, flip=False, own=True, first=False, block=8, one=False):
    b = blocks.mT if flip else blocks[:1] if first else blocks
    i = (torch.arange(24) // block).clamp_max(2)
    see = b[..., i, :][..., i] | (torch.eye(24, dtype=torch.bool) if own else b[..., i, :][..., i])
    if one:  # rows without any block
        see = torch.where(b[..., i, :].any(-1, keepdim=True), see, True)
    s = torch.where(see, q @ k.mT * 0.25, NEG)
    return (s - s.logsumexp(-1, keepdim=True)).exp() @ v


right(mask_block_sparse, "from the log of the sums", block_tiles)
doubled(mask_block_sparse)
wrong(mask_block_sparse, block_tiles, {
    "the block mask is read transposed": dict(flip=True),
    "a query does not see its own key": dict(own=False),
    "all batches use the first one's blocks": dict(first=True),
    "blocks are 9 wide": dict(block=9)})


@seventh(
    lambda d: (
        d(1, 4, 30, 16, dtype=bf),
        d(1, 2, 30, 16, dtype=bf),
        d(1, 2, 30, 16, dtype=bf),
        d(1, 1, 30, 30, dtype=bf),
    )
)
def mask_added_bias(q, k, v, bias):
    bias = bias.masked_fill(torch.ones(30, 30).triu(1).bool(), NEG)
    return F.scaled_dot_product_attention(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), attn_mask=bias)


def added_bias(q, k, v, bias, scale=0.25, flip=False, cyclic=False, twice=1.0, strict=0, tile=16):
    b = bias[0, 0].mT if flip else bias[0, 0]
    return online(q, grouped(k, 2, cyclic), grouped(v, 2, cyclic), scale, lambda s, i, j: s + twice * b[i, j],
                  lambda i, j: (j + strict <= i) | (j == 0), tile=tile)[0]


right(mask_added_bias, "tiles of 16 keys", added_bias)
right(mask_added_bias, "tiles of 10 keys", added_bias, tile=10)
wrong(mask_added_bias, added_bias, {
    "the bias is scaled by 0.25 as the scores are": dict(twice=0.25),
    "the bias is read transposed": dict(flip=True),
    "query head h reads kv head h % 2": dict(cyclic=True),
    "the diagonal is hidden": dict(strict=1)})


# ------------------------------------------------------------------ counts

@seventh(lambda d: (d.ints(12, 700), d.rand(700)))
def count_bins_and_weights(i, w):
    return torch.bincount(i, minlength=15), torch.bincount(i, w, minlength=15).to(w.dtype)


def bins(i, w, skip=0, over=0, more=0, merge=False, shift=0):
    n = 700 - skip
    hot = ((i[:n, None] + shift) == torch.arange(15)).to(w.dtype)
    count = hot.sum(0).long()
    if merge:  # 8-bit counters between blocks
        count = count % 64
    count[3] += more
    return count, (hot * w[:n, None]).sum(0)


same(count_bins_and_weights, "marks summed", bins)
same(count_bins_and_weights, "scattered in reverse", lambda i, w: (torch.zeros(15, dtype=torch.long).index_add(
    0, i.flip(0), torch.ones_like(i)), torch.zeros(15).index_add(0, i.flip(0), w.flip(0))))
kept(count_bins_and_weights, bins, {
    "the last number is not counted": dict(skip=1),
    "the last 60, which fill no block of 64, are not counted": dict(skip=60),
    "bin 3 has one too many": dict(more=1),
    "counts wrap at 64": dict(merge=True),
    "numbers fall one bin high": dict(shift=1)})


@seventh(lambda d: (torch.cat((d.rand(500) * 4 - 2, torch.tensor([-2.0, 2.0, 2.0, 1.0, 0.0, -1.0]))),))
def count_histogram_with_edges(x):
    return torch.histc(x, 8, -2, 2)


def histogram(x, right_edge=True, up=False, wide=0.0, skip=None):
    k = (((x + 2) / (4 + wide) * 8).ceil() - 1 if up else ((x + 2) / (4 + wide) * 8).floor()).long()
    ok = (x >= -2) & (x <= 2 if right_edge else x < 2)
    k = k.clamp(0, 7)
    count = torch.zeros(8).index_add(0, k, ok.float())
    if skip is not None:
        count[skip] -= 1
    return count


same(count_histogram_with_edges, "places by division", histogram)
same(count_histogram_with_edges, "numbers between edges counted", lambda x: torch.stack(
    [((x >= -2 + 0.5 * k) & ((x < -1.5 + 0.5 * k) | (k == 7) & (x <= 2))).sum() for k in range(8)]).float())
kept(count_histogram_with_edges, histogram, {
    "the right end is not counted": dict(right_edge=False),
    "numbers on an edge fall into the bin below": dict(up=True),
    "bins are 1.0025 times as wide": dict(wide=0.01),
    "the middle bin has one too few": dict(skip=4)})


@seventh(lambda d: (d.ints(6, 300), d.ints(6, 300), d.rand(300) > 0.2))
def count_confusion_and_accuracy(p, t, keep):
    m = torch.zeros(6, 6, dtype=torch.long).index_put((t[keep], p[keep]), torch.tensor(1), accumulate=True)
    return m, m.diagonal().sum() / keep.sum()


def confusion(p, t, keep, flip=False, all_=False, once=False, total=False, last=0):
    k = keep.clone()
    if all_:
        k = torch.ones_like(keep)
    if last:
        k[-last:] = False
    a, b = (p, t) if flip else (t, p)
    m = torch.stack([torch.stack([((a == r) & (b == c) & k).sum() for c in range(6)]) for r in range(6)])
    m = m.clamp_max(1) if once else m
    return m, m.diagonal().sum() / (300 if total else k.sum())


same(count_confusion_and_accuracy, "cell by cell", confusion)
same(
    count_confusion_and_accuracy,
    "from a histogram of pairs",
    lambda p, t, keep: (lambda m: (m, m.diagonal().sum() / keep.sum()))(
        torch.bincount((t * 6 + p)[keep], minlength=36).view(6, 6)
    ),
)
kept(count_confusion_and_accuracy, confusion, {
    "rows and columns are exchanged": dict(flip=True),
    "masked pairs are counted": dict(all_=True),
    "a cell counts at most once": dict(once=True),
    "the share is of all 300": dict(total=True),
    "the last 12, which fill no block of 32, are left out": dict(last=12)})


@seventh(
    lambda d: (
        (lambda r: torch.cat((r[:100], torch.full((32,), 3), r[100:])))((lambda r: r + (r >= 3))(d.ints(7, 168))),
    )
)
def count_expert_offsets(e):
    count = torch.bincount(e, minlength=8)
    ends = count.cumsum(0)
    order = e.argsort(stable=True)
    return ends - count, torch.cat((ends.new_zeros(1), (count + 15) // 16 * 16)).cumsum(0), order


def offsets(e, inclusive=False, low=False, again=False, up=False):
    hot = F.one_hot(e, 8)
    count = hot.sum(0)
    before = torch.stack([(e < k + (1 if inclusive else 0)).sum() for k in range(8)])
    pad = torch.div(count, 16, rounding_mode="floor") * 16 if low else -(-count // 16) * 16
    pad = count // 16 * 16 + 16 if up else pad
    rank = (hot.cumsum(0) - 1).gather(1, e[:, None])[:, 0] + torch.stack([(e < k).sum() for k in range(8)])[e]
    if again:
        rank = 199 - rank
    order = torch.empty_like(rank).scatter_(0, rank, torch.arange(200))
    return before, F.pad(pad, (1, 0)).cumsum(0), order


same(count_expert_offsets, "ranks from running counts", offsets)
same(
    count_expert_offsets,
    "searched in the sorted list",
    lambda e: (
        lambda s: (
            torch.searchsorted(s, torch.arange(8)),
            F.pad((torch.bincount(e, minlength=8) / 16).ceil().long() * 16, (1, 0)).cumsum(0),
            (e * 256 + torch.arange(200)).argsort(),
        )
    )(e.sort().values),
)
kept(count_expert_offsets, offsets, {
    "starts are ends: the running count includes the expert itself": dict(inclusive=True),
    "padded sizes are rounded down": dict(low=True),
    "an expert with an exact multiple of 16 tokens gets one more block of 16 rows": dict(up=True),
    "tokens are placed in reverse": dict(again=True)})


@seventh(lambda d: (d.rand(14, 90) > 0.4,))
def count_true_runs(m):
    """Per row: how many are true, where the last one is and how long the longest run is."""
    run, best = torch.zeros(14, dtype=torch.long), torch.zeros(14, dtype=torch.long)
    for t in range(90):
        run = (run + 1) * m[:, t]
        best = torch.maximum(best, run)
    return m.sum(-1), 89 - m.flip(-1).int().argmax(-1), best


def runs(m, skip=0, first=False, tile=None, plus=0):
    i = torch.arange(90)
    if tile:  # a run that crosses into the next tile starts again
        parts = [runs(F.pad(t, (0, 90 - t.shape[1])))[2] for t in m.split(tile, 1)]
        best = torch.stack(parts).amax(0)
    else:
        last_false = torch.where(m, -1, i).cummax(-1).values
        best = (i - last_false).amax(-1)
    last = torch.where(m, i, 0).amax(-1)
    return m[:, skip:].sum(-1), m.int().argmax(-1) if first else last, best + plus


same(count_true_runs, "distances to the last false one", runs)
kept(count_true_runs, runs, {
    "the first of a row is not counted": dict(skip=1),
    "the first true place is given": dict(first=True),
    "runs are cut at every 45": dict(tile=45),
    "the longest run counts one more": dict(plus=1)})
