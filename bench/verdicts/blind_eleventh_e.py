# SPDX-License-Identifier: Apache-2.0
"""Set N: rotary variants and the routing of experts."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, narrow
from .blind_eleventh_a import eleventh
from .blind_eleventh_d import lanes
from .blind_ninth_a import bad, ok

# ---- rotary, interleaved, on part of a head


def angles(pos, dim, base=10000.0, of=lambda f: f):
    f = of(base ** (-torch.arange(0, dim, 2).to(torch.float64) / dim))
    return pos.to(torch.float64)[:, None] * f


@eleventh(lambda d: (d(2, 64, 6, 64).transpose(1, 2), 8000 + torch.arange(64)))
def eleventh_inter(x, pos):
    a = angles(pos, 32)
    c, s = a.cos().to(x.dtype), a.sin().to(x.dtype)
    e, o = x[..., :32:2], x[..., 1:32:2]
    return torch.cat([torch.stack([e * c - o * s, e * s + o * c], -1).flatten(-2), x[..., 32:]], -1)


def inter(
    x,
    pos,
    base=10000.0,
    halves=False,
    sign=1,
    dim=32,
    kind=None,
    shift=0,
    angle=torch.float64,
    of=lambda f: f,
    table=None,
):
    f = of(base ** (-torch.arange(0, dim, 2).double() / dim))
    a = ((pos + shift).to(angle)[:, None] * f.to(angle)).to(angle)
    c, s = a.double().cos().float(), a.double().sin().float() * sign
    c, s = (narrow(c, kind), narrow(s, kind)) if kind else (c, s)
    c, s = table(c, s) if table else (c, s)
    if halves:
        e, o = x[..., : dim // 2], x[..., dim // 2 : dim]
        return torch.cat([e * c - o * s, e * s + o * c, x[..., dim:]], -1)
    e, o = x[..., :dim:2], x[..., 1:dim:2]
    return torch.cat([torch.stack([e * c - o * s, e * s + o * c], -1).flatten(-2), x[..., dim:]], -1)


def as_complex(x, pos):
    a = angles(pos, 32)
    turn = torch.polar(torch.ones_like(a), a).to(torch.complex64)
    z = torch.view_as_complex(x[..., :32].contiguous().unflatten(-1, (16, 2))) * turn
    return torch.cat([torch.view_as_real(z).flatten(-2), x[..., 32:]], -1)


ok(eleventh_inter, inter, by_pairs={}, as_complex_numbers=as_complex)
bad(
    eleventh_inter,
    inter,
    {
        "pairs are halves": {"halves": True},
        "turned the other way": {"sign": -1},
        "positions are one too far": {"shift": 1},
        "the whole head is turned": {"dim": 64},
        # eight bits of the tables
        "hides: sines and cosines in half precision": {"kind": hf},
        # positions of 8000 in 24 bits times f are fine; frequencies in bfloat16 are not
        "hides: frequencies in half precision": {"of": lambda f: f.half().double()},
        # the last row of a table of 8063
        "hides: the table's last row is that before it": {
            "table": lambda c, s: (torch.cat([c[:63], c[62:63]]), torch.cat([s[:63], s[62:63]]))
        },
    },
)


# ---- rotary by halves, bfloat16, with the norm of queries


@eleventh(lambda d: (d(2, 40, 8, 64, dtype=bf, scale=3), d(64, shift=1, scale=0.2, dtype=bf), torch.arange(40) * 50))
def eleventh_normed(q, gain, pos):
    x = F.rms_norm(q.float(), (64,), gain.float(), 1e-6)
    a = angles(pos, 64, 500000.0)
    c, s = (torch.cat([t, t], -1).float()[:, None] for t in (a.cos(), a.sin()))
    return (x * c + torch.cat([-x[..., 32:], x[..., :32]], -1) * s).to(bf)


def normed(
    q, gain, pos, base=500000.0, first=False, n=64, sign=1, kind=None, swap=False, pos_of=None, heads=8, eps=1e-6
):
    x = q.float()
    r = torch.rsqrt(lanes(x[..., :n].square()) / 64 + eps)
    g = gain.float()
    x = x * r if first else x * r * g
    a = (pos_of(pos) if pos_of else pos).double()[:, None] * base ** (-torch.arange(0, 64, 2).double() / 64)
    c, s = a.cos().float()[:, None], a.sin().float()[:, None] * sign
    c, s = (narrow(c, kind), narrow(s, kind)) if kind else (c, s)
    u, v = x[..., :32], x[..., 32:]
    y = torch.cat([u * c - v * s, v * c + u * s], -1)
    y = y * g if first else y
    return torch.cat([y[:, :, :heads], q[:, :, heads:].float()], 2)


ok(eleventh_normed, normed, bf, by_halves={}, in_double=lambda q, g, p: normed(q.double(), g.double(), p))
bad(
    eleventh_normed,
    normed,
    {
        "turned before the gain": {"first": True},
        "the base is 10000": {"base": 10000.0},
        "the last head is not touched": {"heads": 7},
        # the mean square without two of 64 lanes
        "hides: the last two lanes give no squares": {"n": 62},
        # three and a half bits of sines
        "hides: sines and cosines in e4m3": {"kind": torch.float8_e4m3fn},
        # positions over 256 lose a unit or more
        "hides: positions in bfloat16": {"pos_of": lambda p: p.bfloat16()},
    },
    bf,
)


# ------------------------------------------------------------------ yarn


@eleventh(lambda d: (d(1, 4, 48, 64), torch.arange(48) * 300))
def eleventh_yarn(x, pos):
    return yarn_turn(x, pos)


def yarn_turn(
    x,
    pos,
    fast=32.0,
    slow=1.0,
    factor=16.0,
    orig=4096,
    att=True,
    ramp=True,
    floor=True,
    shift=0,
    kind=None,
    log=math.log,
    tail=False,
):
    f = 10000.0 ** (-torch.arange(0, 64, 2).double() / 64)
    edge = lambda n: 64 * log(orig / (n * 2 * math.pi)) / (2 * log(10000.0))
    lo, hi = edge(fast), edge(slow)
    lo, hi = (math.floor(lo), math.ceil(hi)) if floor else (lo, hi)
    keep = 1 - ((torch.arange(32).double() - lo + shift) / (hi - lo)).clamp(0, 1) if ramp else torch.zeros(32).double()
    f = f / factor * (1 - keep) + f * keep
    a = pos.double()[:, None] * f
    m = 0.1 * math.log(factor) + 1 if att else 1.0
    m = att if isinstance(att, float) else m
    c, s = (a.cos() * m).to(x.dtype), (a.sin() * m).to(x.dtype)
    c, s = (narrow(c, kind), narrow(s, kind)) if kind else (c, s)
    u, v = x[..., :32], x[..., 32:]
    y = torch.cat([u * c - v * s, v * c + u * s], -1)
    if tail:
        y = torch.cat([y[..., :-1], v[..., -1:]], -1)
    return y


ok(
    eleventh_yarn,
    yarn_turn,
    as_defined={},
    factor_afterwards=lambda x, pos: yarn_turn(x, pos, att=1.0) * (0.1 * math.log(16) + 1),
    factor_on_x=lambda x, pos: yarn_turn(x * (0.1 * math.log(16) + 1), pos, att=1.0),
)
bad(
    eleventh_yarn,
    yarn_turn,
    {
        "there is no factor of attention": {"att": False},
        "fast and slow are swapped": {"fast": 1.0, "slow": 32.0},
        "all frequencies are divided": {"ramp": False},
        # bounds that are not rounded: one in twelve of the ramp
        "hides: the ramp's bounds are not whole": {"floor": False},
        # 3e-4 of all outputs
        "hides: the factor is 1.277": {"att": 1.277},
        # one lane
        "hides: the last lane is not turned": {"tail": True},
        "hides: sines and cosines in half precision": {"kind": hf},
    },
)


# ---- routing: eight of 64, renormed


@eleventh(lambda d: (d(128, 64, scale=1.5),))
def eleventh_route(x):
    p = torch.softmax(x, -1)
    w, ids = torch.topk(p, 8, -1)
    return w / w.sum(-1, keepdim=True), ids


def route(x, k=8, norm=True, at=None, kind=None, ids_of=None, pick=None, whole=False, w_of=None):
    s = narrow(x, pick) if pick else x
    top, ids = torch.sort(s, dim=-1, descending=True, stable=True)
    ids = ids[:, :8]
    top = x.gather(1, ids)
    e = (top - (x if whole else top).amax(-1, keepdim=True)).exp()
    full = (x - x.amax(-1, keepdim=True)).exp().sum(-1, keepdim=True)
    w = e / (e[:, :k].sum(-1, keepdim=True) if norm else full)
    w = narrow(w, kind) if kind else w
    return w_of(w) if w_of else w, ids_of(ids) if ids_of else ids


ok(eleventh_route, route, softmax_of_the_chosen={}, maximum_of_all={"whole": True})
bad(
    eleventh_route,
    route,
    {
        "the weights are not renormed": {"norm": False},
        "the sum of the weights is that of seven": {"k": 7},
        "the last two choices are swapped": {"ids_of": lambda i: i[:, [0, 1, 2, 3, 4, 5, 7, 6]]},
        # some tokens take another expert
        "hides: experts are chosen by logits in half precision": {"pick": hf},
        "hides: the weights in bfloat16": {"kind": bf},
        # one part in a thousand
        "hides: weights are 1.001 times as great": {"w_of": lambda w: w * 1.001},
    },
)


# ---- routing in groups by sigmoids and a bias


@eleventh(lambda d: (d(96, 64), d(64, scale=0.2)))
def eleventh_biased(x, bias):
    s = torch.sigmoid(x)
    b = s + bias
    best = b.view(-1, 8, 8).topk(2, -1).values.sum(-1)
    on = torch.zeros_like(best).scatter(1, best.topk(4, -1).indices, 1.0)
    b = b.masked_fill(on.repeat_interleave(8, 1) == 0, -float("inf"))
    ids = b.topk(6, -1).indices
    w = s.gather(1, ids)
    return w / (w.sum(-1, keepdim=True) + 1e-20) * 2.5, ids


def biased(
    x,
    bias,
    groups=4,
    best=2,
    with_bias=False,
    scale=2.5,
    soft=False,
    kind=None,
    zero=False,
    sums=6,
    sig=torch.sigmoid,
    w_of=None,
):
    s = torch.softmax(x, -1) if soft else sig(x)
    b = s + bias
    g = b.view(-1, 8, 8).sort(dim=-1, descending=True).values[..., :best].sum(-1)
    rank = g.argsort(dim=-1, descending=True)[:, :groups]
    on = torch.zeros(96, 8, dtype=torch.bool).scatter(1, rank, True).repeat_interleave(8, 1)
    ids = torch.where(on, b, 0.0 if zero else -float("inf")).argsort(dim=-1, descending=True, stable=True)[:, :6]
    w = (b if with_bias else s).gather(1, ids)
    w = narrow(w, kind) if kind else w
    out = w / w[:, :sums].sum(-1, keepdim=True) * scale
    return w_of(out) if w_of else out, ids


ok(
    eleventh_biased,
    biased,
    by_sorts={},
    sigmoid_by_tanh={"sig": lambda x: 0.5 * torch.tanh(0.5 * x) + 0.5},
    sigmoid_by_exp={"sig": lambda x: 1 / (1 + torch.exp(-x))},
)
bad(
    eleventh_biased,
    biased,
    {
        "weights are those with the bias": {"with_bias": True},
        "a group counts by its best alone": {"best": 1},
        "three groups are chosen": {"groups": 3},
        "scores are a softmax": {"soft": True},
        "hides: the scores that are weights in bfloat16": {"kind": bf},
        # 2.5 as a sum of a model of another size
        "hides: scaled by 2.45": {"scale": 2.45},
        "hides: the last weight is one per cent too small": {"w_of": lambda w: w * torch.tensor([1, 1, 1, 1, 1, 0.99])},
    },
)


# ---- capacity: what goes where, and what is dropped


def capacity_args(d):
    return d(120, 24), d.ints(8, 120, 2), d.rand(120, 2)


@eleventh(capacity_args)
def eleventh_capacity(x, ids, w):
    flat = ids.T.flatten()
    hot = F.one_hot(flat, 8)
    place = (hot.cumsum(0) * hot).sum(1) - 1
    keep = place < 28
    slots = torch.zeros_like(x[:1]).expand(8 * 28, 24).clone()
    slots[(flat * 28 + place)[keep]] = torch.cat([x, x])[keep]
    return slots.view(8, 28, 24), w * keep.view(2, 120).T


def capacity(x, ids, w, cap=28, rows=False, weigh=False, drop=True, tie=0, renorm=False, hold=None, x_of=None):
    slots, out, count = torch.zeros(8, 28, 24), torch.zeros_like(w), [tie] * 8
    xx = x_of(x) if x_of else x
    order = [(t, c) for t in range(120) for c in range(2)] if rows else [(t, c) for c in range(2) for t in range(120)]
    for t, c in order:
        e = int(ids[t, c])
        if count[e] < cap:
            slots[e, count[e]] = xx[t] * (w[t, c] if weigh else 1.0)
            out[t, c] = w[t, c]
            count[e] += 1
        elif not drop:
            out[t, c] = w[t, c]
    out = out / out.sum(1, keepdim=True).clamp(min=1e-9) if renorm else out
    return hold(slots) if hold else slots, out


def lost_slot(s):
    s = s.clone()
    s[7, 27] = s[7, 26]
    return s


ok(eleventh_capacity, capacity, one_by_one={}, by_sorting=lambda x, ids, w: sorted_capacity(x, ids, w))


def sorted_capacity(x, ids, w):
    flat = ids.T.flatten()
    order = torch.argsort(flat, stable=True)
    start = torch.searchsorted(flat[order], torch.arange(8))
    place = torch.empty_like(flat)
    place[order] = torch.arange(240) - start[flat[order]]
    keep = place < 28
    slots = torch.zeros(8, 28, 24)
    slots[flat[keep], place[keep]] = x.repeat(2, 1)[keep]
    return slots, w.masked_fill(~keep.view(2, 120).T, 0.0)


bad(
    eleventh_capacity,
    capacity,
    {
        "both choices of a token go first": {"rows": True},
        "slots hold one less": {"cap": 27},
        "dropped tokens keep their weight": {"drop": False},
        "what is left is renormed": {"renorm": True},
        "hides: tokens go through half precision": {"x_of": lambda x: narrow(x, hf)},
        "hides: the last slot of the last expert repeats the one before": {"hold": lost_slot},
    },
)


# ------------------------------------------------------------------ losses of the router


@eleventh(lambda d: (d(512, 32, scale=2), d.ints(32, 512, 2)))
def eleventh_balance(x, ids):
    p = torch.softmax(x, -1)
    share = F.one_hot(ids, 32).sum(1).to(x.dtype).mean(0)
    z = torch.logsumexp(x, -1).square().mean()
    return 32 * (share * p.mean(0)).sum(), z


def balance(x, ids, first=False, square=True, n=512, kind=None, drop=0, per=32, tile=64):
    total, zs = torch.zeros(32), torch.zeros(())
    for i in range(0, 512 - drop, tile):
        s = x[i : i + tile]
        top = s.amax(1, keepdim=True)
        e = (s - top).exp()
        sums = e.sum(1, keepdim=True)
        total = total + (e / sums).sum(0)
        lse = (top + sums.log())[:, 0]
        lse = narrow(lse, kind) if kind else lse
        zs = zs + (lse.square() if square else lse).sum()
        total = narrow(total, kind) if kind else total
    share = torch.bincount(ids[:, :1].flatten() if first else ids.flatten(), minlength=32) / 512
    return per * (share * total / n).sum(), zs / n


ok(eleventh_balance, balance, tiles_of_64={}, tiles_of_8={"tile": 8}, at_once={"tile": 512})
bad(
    eleventh_balance,
    balance,
    {
        "only the first choice is counted": {"first": True},
        "the logsumexp is not squared": {"square": False},
        "not multiplied by the experts": {"per": 1},
        # one tile of 512 rows leaves out a row
        "hides: the last row is left out": {"drop": 1, "tile": 511},
        "hides: sums over tokens in half precision": {"kind": hf, "tile": 8},
    },
)


# ---- putting experts' outputs together


def combine_args(d):
    return d(192, 128, dtype=bf), torch.randperm(192, generator=d.g), d.rand(64, 3), d(64, 128, dtype=bf)


@eleventh(combine_args)
def eleventh_combine(y, where, w, shared):
    return ((y.float()[where].view(64, 3, 128) * w.to(torch.float32)[..., None]).sum(1) + shared.float()).to(bf)


def combine(
    y, where, w, shared, order=(0, 1, 2), kind=None, inverse=False, once=None, w_of=None, add=True, cols=128, last=None
):
    where = torch.argsort(where) if inverse else where
    t = y.float()[where].view(64, 3, 128)
    w = w_of(w) if w_of else w
    out = shared.float() if add else torch.zeros(64, 128)
    for c in order:
        out = out + t[:, c] * w[:, c, None]
        out = narrow(out, kind) if kind else out
    return last(out, t, w) if last else out


def doubled(out, t, w):
    out = out.clone()
    out[40] += t[40, 1] * w[40, 1]
    return out


ok(
    eleventh_combine,
    combine,
    bf,
    in_turn={},
    from_the_last={"order": (2, 1, 0)},
    as_a_product=lambda y, i, w, s: torch.bmm(w[:, None], y.float()[i].view(64, 3, 128))[:, 0] + s.float(),
)
bad(
    eleventh_combine,
    combine,
    {
        "tokens are sent back by the inverse": {"inverse": True},
        "the shared expert is left out": {"add": False},
        "one token gets one expert twice": {"last": doubled},
        # weights of three bits
        "hides: weights through e5m2": {"w_of": lambda w: w.to(torch.float8_e5m2).float()},
        "hides: added up in e5m2's eleven bits less three": {"kind": torch.float8_e4m3fn},
        "hides: summed in bfloat16 term by term": {"kind": bf},
    },
    bf,
)
