# SPDX-License-Identifier: Apache-2.0
"""Set U, the fifteenth: routing to experts, scans, sorting, samplers with the random numbers given, and quantizers."""

import torch
import torch.nn.functional as F

from .blind import bf, hf
from .blind_fifteenth_base import INF, add, hold
from .blind_fourteenth_base import halves, lanes, serial, up, wide

# Softmax over experts, the best four, their weights made to one.


def route(x, k=4):
    p = torch.softmax(up(x), -1)
    w, i = p.topk(k, -1)
    return w / w.sum(-1, keepdim=True), i


def route_kernel(x, k=4, early=False, order=True, second=False, kind=None):
    x = hold(x, kind)
    i = torch.argsort(x, dim=-1, descending=True, stable=True)[:, second : k + second]
    s = x.gather(1, i)
    top = s.amax(-1, keepdim=True)
    e = torch.exp(s - top)
    total = lanes(torch.exp(x - top))[:, None] if early else e.sum(-1, keepdim=True)
    return e / total, i if order else i.sort(-1).values


add(
    "expert_choice",
    route,
    lambda d: (d(60, 32, scale=1.5),),
    route_kernel,
    right={"softmax over the chosen alone": {}, "in double": wide(route)},
    wrong={
        "weights are not made to one": {"early": True},
        "the best is passed over": {"second": True},
        "experts are sorted by number, weights are not": {"order": False},
        "logits are rounded to bfloat16": {"kind": bf},
    },
)

# Sigmoids with a bias for the choice alone, groups of which the best two count, a factor.


def grouped(x, bias):
    s = torch.sigmoid(x)
    c = s + bias
    g = c.unflatten(-1, (4, 8)).topk(2, -1).values.sum(-1)
    keep = torch.zeros_like(g).scatter(1, g.topk(2, -1).indices, 1.0).repeat_interleave(8, 1)
    i = c.masked_fill(keep == 0, -INF).topk(4, -1).indices
    w = s.gather(1, i)
    return 2.5 * w / (w.sum(-1, keepdim=True) + 1e-20), i


def grouped_kernel(x, bias, biased=False, groups=True, best=2, factor=2.5, chosen=True, soft=False, kept=2):
    s = torch.softmax(x, -1) if soft else 1 / (1 + torch.exp(-x))
    c = s + bias if chosen else s
    g = c.unflatten(-1, (4, 8)).sort(-1, descending=True).values[..., :best].sum(-1)
    rank = (g[:, None] > g[:, :, None]).sum(-1)  # how many groups are better
    c = c.masked_fill((rank >= kept).repeat_interleave(8, 1), -INF) if groups else c
    i = torch.argsort(c, dim=-1, descending=True, stable=True)[:, :4]
    w = (c if biased else s).gather(1, i)
    return w * (factor / w.sum(-1, keepdim=True)), i


add(
    "experts_in_groups",
    grouped,
    lambda d: (d(80, 32), d(32, scale=0.1)),
    grouped_kernel,
    right={"groups by their rank": {}, "in double": wide(grouped)},
    wrong={
        "the bias enters the weights, too": {"biased": True},
        "the bias is left out of the choice": {"chosen": False},
        "groups do not limit the choice": {"groups": False},
        "a group counts by its best expert": {"best": 1},
        "the factor is left out": {"factor": 1.0},
        "softmax in place of sigmoids": {"soft": True},
    },
)

# What experts give, put back to tokens by their weights.


def combine(y, token, w, shared):
    return up(shared).index_add(0, token, up(y) * up(w)[:, None]).to(shared.dtype)


def combine_kernel(y, token, w, shared, lost=False, unweighted=False, base=True, late=0, acc=None):
    token = token.roll(late)
    part = y if unweighted else y * w[:, None]
    out = shared.clone() if base else torch.zeros_like(shared)
    if lost:  # of two that come to one token, the last one stays
        return shared + torch.zeros_like(shared).index_copy(0, token, part)
    for t in range(len(shared)):
        for row in (token == t).nonzero()[:, 0]:
            out[t] = hold(out[t] + part[row], acc)
    return out


add(
    "combine_experts",
    combine,
    lambda d: (d(120, 24, dtype=bf), d.ints(40, 120), d.rand(120), d(40, 24, dtype=bf)),
    combine_kernel,
    dtype=bf,
    right={"token by token": {}},
    wrong={
        "of several for one token the last one stays": {"lost": True},
        "weights are left out": {"unweighted": True},
        "the shared expert is left out": {"base": False},
        "rows go to the token of their neighbour": {"late": 1},
        "hides: tokens are added up in bfloat16": {"acc": bf},
    },
)

# The balance of experts: shares of tokens times mean probabilities.


def balance(x):
    p = torch.softmax(x, -1)
    i = p.topk(2, -1).indices
    share = torch.zeros_like(p).scatter(1, i, 1.0).mean(0)
    return 16 * (share * p.mean(0)).sum(), torch.logsumexp(x, -1).pow(2).mean()


def balance_kernel(x, k=2, experts=16, square=True, sharp=False, mean=False, kind=None):
    top = x.amax(-1, keepdim=True)
    e = torch.exp(x - top)
    total = lanes(e, 8)[:, None]
    p = hold(e / total, kind)
    i = torch.argsort(x, dim=-1, descending=True)[:, :k]
    share = torch.bincount(i.flatten(), minlength=16).float() / (x.shape[0] * (k if mean else 1))
    z = (torch.log(total) + (0 if sharp else top))[:, 0]
    return experts * halves(share * (halves(p.mT.contiguous()) / len(x))), halves(z * z if square else z) / len(x)


add(
    "balance_of_experts",
    balance,
    lambda d: (d(256, 16, scale=1.2),),
    balance_kernel,
    right={"counts and halves": {}, "in double": wide(balance)},
    wrong={
        "the best alone is counted": {"k": 1},
        "shares are divided by the choices, too": {"mean": True},
        "the logarithm lacks the maximum": {"sharp": True},
        "the logarithm is not squared": {"square": False},
        "probabilities are rounded to bfloat16": {"kind": bf},
    },
)

# Scans: running sums by blocks, by segments, of exponentials.


def running(x):
    return torch.cumsum(x, -1)


def running_kernel(x, block=32, exclusive=False, carry=True, kind=None, back=False, lost=0):
    parts = x.flip(-1).split(block, -1) if back else x.split(block, -1)
    base, out = torch.zeros_like(x[..., :1]), []
    for part in parts:
        step = 1
        while step < part.shape[-1] >> lost:
            part = part + F.pad(part, (step, 0))[..., : part.shape[-1]]
            step *= 2
        out.append(part + base)
        base = hold(base + part[..., -1:], kind) if carry else part[..., -1:]
    y = torch.cat(out, -1)
    y = y.flip(-1) if back else y
    return F.pad(y, (1, 0))[..., :-1] if exclusive else y


add(
    "running_sums",
    running,
    lambda d: (d(6, 500, shift=0.3),),
    running_kernel,
    right={"blocks of 32 by doubling": {}, "blocks of 100": {"block": 100}, "in double": wide(running)},
    wrong={
        "the sum stops before its own element": {"exclusive": True},
        "a block takes the sum of the last block alone": {"carry": False},
        "carries are rounded to bfloat16": {"kind": bf},
        "it runs from the end": {"back": True},
        "the last doubling is lost": {"lost": 1},
    },
)


def segments(x, starts):
    which = torch.bucketize(torch.arange(x.shape[0]), starts, right=True)
    return torch.zeros(len(starts) + 1, x.shape[1], dtype=x.dtype).index_add(0, which, x)


def segments_kernel(x, starts, off=0, mean=False, lost=0, acc=None):
    ends = [0, *(starts + off).tolist(), len(x)]
    rows = []
    for a, b in zip(ends, ends[1:]):
        b = b - (b - a) % lost if lost else b
        t = x[a:b].T.contiguous()
        s = serial(t, acc) if acc else halves(t) if b > a else torch.zeros(x.shape[1])
        rows.append(s / max(b - a, 1) if mean else s)
    return torch.stack(rows)


add(
    "segment_sums",
    segments,
    lambda d: (d(240, 20, shift=0.2), torch.tensor([31, 33, 90, 150, 151, 200])),
    segments_kernel,
    right={"pairs of halves": {}, "in double": wide(segments)},
    wrong={
        "segments start one row late": {"off": 1},
        "means in place of sums": {"mean": True},
        "rows after whole fours are lost": {"lost": 4},
        "sums are rounded to float16 as they grow": {"acc": hf},
    },
)

# Sorting, with the places; the best by the radix of their bits.


def ranked(x):
    v, i = torch.sort(x, dim=-1, stable=True)
    return v, i, torch.argsort(i, dim=-1)


def ranked_kernel(x, down=False, inverse=True, signed=True, block=None):
    bits = x.contiguous().view(torch.int32).long()
    key = torch.where(bits < 0, (~bits & 0xFFFFFFFF) if signed else bits & 0xFFFFFFFF, bits | 0x80000000)
    i = torch.arange(x.shape[-1]).expand(x.shape)
    for shift in range(0, 32, 8):  # digits from the least one on
        if block == shift:
            continue
        digit = (key.gather(-1, i) >> shift) & 255
        i = i.gather(-1, torch.sort(digit, dim=-1, stable=True).indices)
    i = i.flip(-1) if down else i
    back = torch.empty_like(i).scatter(-1, i, torch.arange(x.shape[-1]).expand(i.shape).contiguous())
    return x.gather(-1, i), i, back if inverse else i


add(
    "sort_with_places",
    ranked,
    lambda d: (d(8, 300),),
    ranked_kernel,
    right={"by digits of eight bits": {}},
    wrong={
        "from the greatest down": {"down": True},
        "negative keys are not turned": {"signed": False},
        "the ranks are the places": {"inverse": False},
        "the second digit is passed over": {"block": 8},
    },
)

# Samplers: the smallest set whose mass is over p; a race of exponentials; the inverse of running sums.


def nucleus(x, u):
    p = torch.softmax(x / 0.8, -1)
    v, i = torch.sort(p, -1, descending=True)
    keep = v.cumsum(-1) - v < 0.9
    v = v * keep
    c = v.cumsum(-1)
    at = (c < u[:, None] * c[:, -1:]).sum(-1, keepdim=True)
    return i.gather(1, at)[:, 0], keep.sum(-1)


def nucleus_kernel(x, u, t=0.8, mass=0.9, inside=False, renormed=True, late=0, hot=False):
    s = x * t if hot else x / t
    i = torch.argsort(s, dim=-1, descending=True)
    e = torch.exp(s - s.amax(-1, keepdim=True)).gather(1, i)
    c = e.cumsum(-1)
    total = c[:, -1:]
    keep = (c if inside else c - e) < mass * total
    held = (e * keep).cumsum(-1)
    at = (held < u[:, None] * (held[:, -1:] if renormed else total)).sum(-1, keepdim=True) + late
    return i.gather(1, at.clamp(max=x.shape[1] - 1))[:, 0], keep.sum(-1)


add(
    "nucleus_sampler",
    nucleus,
    lambda d: (d(64, 50, scale=2.0), d.rand(64)),
    nucleus_kernel,
    right={"without dividing by the sum": {}, "in double": wide(nucleus)},
    wrong={
        "what passes the mass is left out": {"inside": True},
        "what is left is not made to one": {"renormed": False},
        "the temperature multiplies": {"hot": True},
        "the draw is one place late": {"late": 1},
        "the mass is 0.95": {"mass": 0.95},
    },
)


def noisy(x, u):
    return torch.softmax((x - torch.log(-torch.log(u))) / 0.7, -1)


def noisy_kernel(x, u, t=0.7, sign=1, once=False, late=False, kind=None, eps=0.0):
    e = -torch.log(u + eps)
    g = e if once else torch.log(e)
    s = (x - sign * hold(g, kind)) if not late else x / t - g
    s = s if late else s / t
    p = torch.exp(s - s.amax(-1, keepdim=True))
    return p / lanes(p)[:, None]


add(
    "gumbel_softmax",
    noisy,
    lambda d: (d(40, 60), d.rand(40, 60) * 0.998 + 0.001),
    noisy_kernel,
    right={"lanes": {}, "in double": wide(noisy)},
    wrong={
        "the noise is added with the wrong sign": {"sign": -1},
        "the logarithm is taken once": {"once": True},
        "the temperature divides the logits alone": {"late": True},
        "the noise is rounded to bfloat16": {"kind": bf},
        "epsilon of 1e-3 is added to the uniform numbers": {"eps": 1e-3},
    },
)

# Quantizers: codes of 8 bits by rows, and the values of what codes mean.


def codes(x):
    s = x.abs().amax(-1, keepdim=True) / 127
    return torch.round(x / s).clamp(-127, 127).to(torch.int8), s


def codes_kernel(x, most=127.0, cut=False, whole=False, signed=True):
    top = x.abs().amax() if whole else x.abs().amax(-1, keepdim=True) if signed else x.amax(-1, keepdim=True)
    s = (top / most).expand(x.shape[0], 1)
    y = x / s
    y = torch.trunc(y) if cut else torch.floor(y + 0.5)
    return y.clamp(-127, 127).to(torch.int8), s


add(
    "codes_of_rows",
    codes,
    lambda d: (d(32, 200) * (1 + 4 * d.rand(32, 1)),),
    codes_kernel,
    right={"floor of what is half more": {}},
    wrong={
        "values are cut, not rounded": {"cut": True},
        "the range is 128": {"most": 128.0},
        "one scale for all rows": {"whole": True},
        "the greatest value, not the greatest size": {"signed": False},
    },
)


def normal_codes():
    q = torch.distributions.Normal(0.0, 1.0).icdf
    a = q(torch.linspace(0.5, 0.967, 9))
    return torch.cat([-a.flip(0)[:-2], a]) / a.max()


LEVELS = normal_codes()[:16].contiguous()


def normal_values(c, scales, offset):
    w = LEVELS.to(up(scales).dtype)[torch.stack([c >> 4, c & 15], -1).flatten(-2).long()]
    s = up(scales).repeat_interleave(32, -1)
    return (w * s + up(offset)[:, None]).to(scales.dtype)


def normal_kernel(c, scales, offset, swap=False, block=32, linear=False, offs=True, roll=0):
    c = torch.stack([c & 15, c >> 4] if swap else [c >> 4, c & 15], -1).flatten(-2).long()
    table = torch.linspace(-1, 1, 16) if linear else LEVELS
    s = torch.cat([scales.roll(roll, -1).repeat_interleave(block, -1)] * 2, -1)[:, : c.shape[1]]
    return torch.addcmul(offset[:, None] * offs, table[c], s)


add(
    "normal_codes",
    normal_values,
    lambda d: (d.ints(256, 24, 64).to(torch.uint8), (d.rand(24, 4) + 0.5).to(hf), d(24, dtype=hf, scale=0.2)),
    normal_kernel,
    dtype=hf,
    right={"multiplied and added in one": {}},
    wrong={
        "the low half of a byte comes first": {"swap": True},
        "a scale holds for 16": {"block": 16},
        "levels are even": {"linear": True},
        "the offset is left out": {"offs": False},
        "scales are those of the block before": {"roll": 1},
    },
)
