# SPDX-License-Identifier: Apache-2.0
"""Set U, the fifteenth: attention by tiles with a running maximum: causal, windows, groups, caps, sinks, segments."""

import torch

from .blind import bf, hf
from .blind_fifteenth_base import INF, LOG2E, add, hold, index
from .blind_fourteenth_base import up


def attend(q, k, v, keep=None, cap=None, sink=None, scale=None):
    """The definition that all of these share, in the precision of what it is given."""
    s = q @ k.mT * (scale or q.shape[-1] ** -0.5)
    s = cap * torch.tanh(s / cap) if cap else s
    s = s if keep is None else s.masked_fill(~keep, -INF)
    if sink is not None:
        s = torch.cat([s, sink[:, None, None].expand(*s.shape[:-1], 1)], -1)
        return torch.softmax(s, -1)[..., :-1] @ v
    return torch.softmax(s, -1) @ v


def flash(
    q,
    k,
    v,
    keep=None,
    cap=None,
    sink=None,
    scale=None,
    block=32,
    rescale=True,
    sums=True,
    shift=1,
    kind=None,
    acc=None,
    two=True,
    tail=0,
    sunk=1,
    bare=False,
    late=False,
):
    scale = scale or q.shape[-1] ** -0.5
    n, i = k.shape[-2] - tail, torch.arange(q.shape[-2])[:, None]
    top = torch.full((*q.shape[:-1], 1), -INF)
    total, out = torch.zeros_like(top), torch.zeros(*q.shape[:-1], v.shape[-1])
    for b in range(0, n, block):
        j = torch.arange(b, min(b + block, n))[None]
        s = q @ k[..., j[0], :].mT * (1 if late else scale)
        if cap:
            s = cap * torch.tanh(s if bare else s / cap)
        s = s * scale if late else s
        if keep is not None:
            s = torch.where(keep(i, j), s, -INF)
        new = torch.maximum(top, s.amax(-1, keepdim=True))
        base = new.masked_fill(new == -INF, 0)
        p = torch.exp2((s - base) * LOG2E) if two else torch.exp(s - base)
        a = torch.exp(top - base)
        total = (total * a if sums else total) + p.sum(-1, keepdim=True)
        out = hold((out * a if rescale else out) + hold(p, kind) @ v[..., j[0], :], acc)
        top = new
    if sink is not None:
        total = total + sunk * torch.exp(sink[:, None, None] - shift * top)
    return out / total


def spread(t, heads):
    return t.repeat_interleave(heads // t.shape[-3], -3)


# Prefill of a chunk after a cache: row i sees columns to i + 32.


def chunk(q, k, v):
    i, j = index(q.shape[-2], k.shape[-2])
    return attend(up(q), up(k), up(v), j <= i + k.shape[-2] - q.shape[-2]).to(q.dtype)


def chunk_kernel(q, k, v, past=32, **how):
    return flash(q, k, v, lambda i, j: j <= i + past, **how)


add(
    "chunked_prefill",
    chunk,
    lambda d: (d(2, 80, 32, dtype=hf, scale=1.5), d(2, 112, 32, dtype=hf, scale=1.5), d(2, 112, 32, dtype=hf)),
    chunk_kernel,
    dtype=hf,
    right={"tiles of 32 in powers of two": {}, "tiles of 48": {"block": 48, "two": False}},
    wrong={
        "the diagonal is masked, too": {"past": 31},
        "one column of the future is seen": {"past": 33},
        "the offset of the cache is forgotten": {"past": 0},
        "the accumulator is not rescaled when the maximum grows": {"rescale": False},
        "the sum is not rescaled when the maximum grows": {"sums": False},
        "the last tile of 16 columns is lost": {"tail": 16},
        "the accumulator is in bfloat16": {"acc": bf},
    },
)

# Sliding windows with shared key heads.


def window(q, k, v):
    k, v = spread(k, q.shape[0]), spread(v, q.shape[0])
    i, j = index(q.shape[-2], k.shape[-2])
    return attend(q, k, v, (j <= i) & (j > i - 24))


def window_kernel(q, k, v, size=24, wrap=False, ahead=0, both=False, **how):
    if wrap:
        k, v = k.repeat(2, 1, 1), v.repeat(2, 1, 1)
    else:
        k, v = spread(k, q.shape[0]), spread(v, q.shape[0])
    near = (lambda i, j: (i - j).abs() < size) if both else lambda i, j: (j <= i + ahead) & (j > i - size)
    return flash(q, k, v, near, **how)


add(
    "sliding_window",
    window,
    lambda d: (d(4, 100, 24), d(2, 100, 24), d(2, 100, 24)),
    window_kernel,
    right={"tiles of 16": {"block": 16}, "tiles of 64, natural exponentials": {"block": 64, "two": False}},
    wrong={
        "the window holds 25": {"size": 25},
        "the window holds 23": {"size": 23},
        "the window looks both ways": {"both": True},
        "query heads take the key heads in turn, not in groups": {"wrap": True},
        "probabilities are rounded to bfloat16": {"kind": bf},
        "the scale takes the width padded to 32": {"scale": 32**-0.5},
    },
)

# Soft caps on logits.


def capped(q, k, v):
    i, j = index(q.shape[-2], k.shape[-2])
    return attend(up(q), up(spread(k, 8)), up(spread(v, 8)), j <= i, cap=20.0, scale=0.125).to(q.dtype)


def capped_kernel(q, k, v, cap=20.0, roll=0, **how):
    k, v = spread(k, 8).roll(roll, 0), spread(v, 8).roll(roll, 0)
    return flash(q, k, v, lambda i, j: j <= i, **{"cap": cap, "scale": 0.125} | how)


add(
    "soft_cap",
    capped,
    lambda d: (d(8, 48, 32, dtype=bf, scale=4.0), d(2, 48, 32, dtype=bf, scale=4.0), d(2, 48, 32, dtype=bf)),
    capped_kernel,
    dtype=bf,
    right={"tiles of 16": {"block": 16}, "one tile": {"block": 64}},
    wrong={
        "logits are not capped": {"cap": None},
        "the cap is 30": {"cap": 30.0},
        "the logits are not divided by the cap inside the tangent": {"bare": True},
        "the scale comes after the cap": {"late": True},
        "the scale is the root of the width": {"scale": None},
        "key heads are one off": {"roll": 1},
    },
)

# Sinks: a learned logit per head takes part in the sum alone.


def sunk(q, k, v, sink):
    i, j = index(q.shape[-2], k.shape[-2])
    return attend(q, k, v, j <= i, sink=sink)


def sunk_kernel(q, k, v, sink, roll=0, sign=1, **how):
    return flash(q, k, v, lambda i, j: j <= i, sink=sign * sink.roll(roll), **how)


add(
    "sinks",
    sunk,
    lambda d: (d(4, 72, 16, scale=1.3), d(4, 72, 16), d(4, 72, 16), d(4, shift=1.0)),
    sunk_kernel,
    right={"the sink after tiles of 24": {"block": 24}, "tiles of 32": {"two": False}},
    wrong={
        "the sink is left out": {"sunk": 0},
        "the sink is counted twice": {"sunk": 2},
        "each head takes the sink of its neighbour": {"roll": 1},
        "the sink's sign is turned": {"sign": -1},
        "the sink is not shifted by the maximum": {"shift": 0},
        "the accumulator is in float16": {"acc": hf},
    },
)

# Packed sequences: rows see their own segment.


def packed(q, k, v, starts):
    part = torch.bucketize(torch.arange(q.shape[-2]), starts, right=True)
    i, j = index(q.shape[-2], q.shape[-2])
    return attend(up(q), up(k), up(v), (part[:, None] == part[None]) & (j <= i)).to(q.dtype)


def packed_kernel(q, k, v, starts, right=True, alone=True, ahead=0, **how):
    part = torch.bucketize(torch.arange(q.shape[-2]), starts, right=right)
    see = lambda i, j: ((part[i] == part[j]) if alone else (i >= 0)) & (j <= i + ahead)
    return flash(q, k, v, see, **how)


add(
    "packed_sequences",
    packed,
    lambda d: (*(d(3, 90, 24, dtype=bf) for _ in range(3)), torch.tensor([17, 40, 41, 72])),
    packed_kernel,
    dtype=bf,
    right={"tiles of 30": {"block": 30}},
    wrong={
        "a segment takes the first row of the next": {"right": False},
        "rows see the segments before": {"alone": False},
        "a row sees one column ahead in its segment": {"ahead": 1},
        "hides: probabilities are rounded to bfloat16": {"kind": bf},
    },
)

# Decoding from pages of 16 by a table, up to a length.


def paged(q, keys, values, table, length):
    k, v = (t[table].flatten(1, 2).transpose(1, 2) for t in (keys, values))  # [B, H, S, D]
    j = torch.arange(k.shape[2])
    return attend(q[:, :, None], k, v, (j < length[:, None])[:, None, None])[:, :, 0]


def paged_kernel(q, keys, values, table, length, parts=1, more=0, page=None, weigh=True, same=False, two=False):
    length = length + more
    table = table if page is None else table.roll(page, 1)
    table = table[:1].expand_as(table) if same else table
    outs, tops, sums = [], [], []
    for pages in table.chunk(parts, 1):  # each part by itself, merged by maximum and sum
        first = len(outs) * table.shape[1] // parts * 16
        k, v = (t[pages].flatten(1, 2).transpose(1, 2) for t in (keys, values))
        s = (k @ q[..., None])[..., 0] * q.shape[-1] ** -0.5
        j = first + torch.arange(k.shape[2])
        s = s.masked_fill((j >= length[:, None])[:, None], -INF)
        top = s.amax(-1, keepdim=True).clamp(min=-1e30)
        p = torch.exp(s - top)
        outs.append((p[..., None, :] @ v)[..., 0, :])
        tops.append(top)
        sums.append(p.sum(-1, keepdim=True))
    top = torch.stack(tops).amax(0)
    ways = [torch.exp2(t - top) if two else torch.exp(t - top) for t in tops]
    ways = ways if weigh else [torch.ones_like(top)] * len(ways)
    return sum(w * o for w, o in zip(ways, outs)) / sum(w * s for w, s in zip(ways, sums))


add(
    "paged_decode",
    paged,
    lambda d: (
        d(3, 4, 32),
        d(20, 16, 4, 32),
        d(20, 16, 4, 32),
        torch.randperm(18, generator=d.g).reshape(3, 6),
        torch.tensor([96, 37, 65]),
    ),
    paged_kernel,
    right={"all pages at once": {}, "two parts of three pages, merged": {"parts": 2}, "six parts": {"parts": 6}},
    wrong={
        "the newest token is left out": {"more": -1},
        "one token after the length is read": {"more": 1},
        "parts are merged without their maxima": {"parts": 3, "weigh": False},
        "parts are merged in powers of two": {"parts": 3, "two": True},
        "all sequences take the first one's pages": {"same": True},
        "pages are one off in the table": {"page": 1},
    },
)
