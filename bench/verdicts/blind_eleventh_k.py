# SPDX-License-Identifier: Apache-2.0
"""Set N: bags and gradients of embeddings, segments, the gradient of a router."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, narrow
from .blind_eleventh_a import eleventh, rough_exp
from .blind_ninth_a import bad, grads, ok

# ---- bags of embeddings, half precision


def bag_args(d):
    ids = d.ints(300, 160)
    ids[10:13], ids[159] = 7, 7
    return d(300, 48, dtype=hf), ids, torch.tensor([0, 10, 13, 13, 60, 61, 120]), d.rand(160)


@eleventh(bag_args)
def eleventh_bag(table, ids, starts, w):
    out, ends = [], starts[1:].tolist() + [160]
    for a, b in zip(starts.tolist(), ends, strict=True):
        on = (ids[a:b] != 7).to(torch.float32)
        rows = table[ids[a:b]].float() * on[:, None]
        out.append(rows.sum(0) / on.sum().clamp(min=1))
    return torch.stack(out).to(hf), F.embedding_bag(ids, table.float(), starts, per_sample_weights=w, mode="sum")


def bag(table, ids, starts, w, pad=7, all_counted=False, kind=None, last=160, w_of=None, step=1, weigh=True):
    means, sums, ends = [], [], starts[1:].tolist() + [last]
    for a, b in zip(starts.tolist(), ends, strict=True):
        rows = table[ids[a:b]].float()
        on = ids[a:b] != pad
        t = torch.zeros(48)
        for i in range(0, b - a, step):
            t = t + (rows[i : i + step] * on[i : i + step, None]).sum(0)
            t = narrow(t, kind) if kind else t
        means.append(t / ((b - a) if all_counted else on.sum()).clamp(min=1) if not all_counted else t / max(b - a, 1))
        v = w_of(w) if w_of else w
        sums.append((rows * v[a:b, None]).sum(0) if weigh else rows.sum(0))
    return torch.stack(means).to(hf), torch.stack(sums)


ok(eleventh_bag, bag, None, one_by_one={}, by_four={"step": 4}, by_sixteen={"step": 16})
bad(
    eleventh_bag,
    bag,
    {
        "padding is counted in the mean": {"all_counted": True},
        "padding is not left out": {"pad": -1},
        "the last bag ends early": {"last": 152},
        "sums are not weighed": {"weigh": False},
        # forty roundings
        "hides: means summed in half precision": {"kind": hf},
        "hides: weights in half precision": {"w_of": lambda w: narrow(w, hf)},
    },
    None,
)


# ---- gradient of an embedding, scaled by frequency


@eleventh(lambda d: (d.ints(40, 300), d(300, 32)))
def eleventh_embedding_grad(ids, dy):
    n = torch.bincount(ids, minlength=40).clamp(min=1).to(dy.dtype)
    out = torch.zeros_like(dy[:40]).index_add(0, ids, dy)
    return torch.cat([out[:3], torch.zeros_like(out[:1]), out[4:]]) / n[:, None]


def embedding_grad(ids, dy, pad=3, freq=True, kind=None, tile=300, last=300, sorted_=False, one=None):
    out = torch.zeros(40, 32)
    order = ids.argsort(stable=True) if sorted_ else torch.arange(300)
    for i in range(0, last, tile):
        at = order[i : min(i + tile, last)]
        out = out.index_add(0, ids[at], dy[at])
        out = narrow(out, kind) if kind else out
    n = torch.bincount(ids, minlength=40).clamp(min=1)
    out = out / n[:, None] if freq else out
    if pad is not None:
        out[pad] = 0
    return one(out) if one else out


ok(eleventh_embedding_grad, embedding_grad, at_once={}, sorted_first={"sorted_": True}, tiles_of_30={"tile": 30})
bad(
    eleventh_embedding_grad,
    embedding_grad,
    {
        "padding has a gradient": {"pad": None},
        "not scaled by frequency": {"freq": False},
        "the last twelve tokens are left out": {"last": 288},
        "hides: atomics in bfloat16": {"kind": bf, "tile": 10},
        "hides: half precision over tiles of thirty": {"kind": hf, "tile": 30},
        "hides: the last token is left out": {"last": 299},
    },
)


# ---- segments: greatest, mean and softmax


@eleventh(lambda d: (d(260, 12, scale=3), torch.tensor([0, 33, 33, 34, 150, 260])))
def eleventh_segments(x, at):
    soft, most = [], []
    for a, b in zip(at[:-1].tolist(), at[1:].tolist(), strict=True):
        soft.append(torch.softmax(x[a:b], 0))
        most.append(x[a:b].amax(0) if b > a else torch.zeros_like(x[0]))
    return torch.cat(soft), torch.stack(most)


def segments(x, at, one_top=False, kind=None, fill=0.0, lost=0, floor=None, exp=torch.exp, last=None):
    soft, most = [], []
    for a, b in zip(at[:-1].tolist(), at[1:].tolist(), strict=True):
        part = x[a:b]
        if b == a:
            most.append(torch.full((12,), fill))
            continue
        top = x.amax() if one_top else part.amax(0)
        e = exp(part - top)
        s = torch.zeros(12)
        for i in range(0, b - a - (lost if b == 260 else 0), 16):
            s = s + e[i : min(i + 16, b - a - (lost if b == 260 else 0))].sum(0)
            s = narrow(s, kind) if kind else s
        soft.append(e / s)
        most.append(part.amax(0).clamp(min=floor) if floor is not None else part.amax(0))
    return torch.cat(soft), torch.stack(most)


ok(eleventh_segments, segments, sixteen_rows_at_a_time={}, one_maximum_of_all={"one_top": True})
bad(
    eleventh_segments,
    segments,
    {
        "an empty segment has minus infinity": {"fill": -math.inf},
        "the greatest begins at zero": {"floor": 0.0},
        "the last segment's sum leaves out eight": {"lost": 8},
        "hides: sums in half precision": {"kind": hf},
        "hides: exp by a cubic": {"exp": rough_exp},
        "hides: the last row is not in the sum": {"lost": 1},
    },
)


# ---- gradient of the router's weights


@eleventh(lambda d: (d(80, 32), d(80, 32).topk(4, -1).indices, d(80, 4)))
def eleventh_route_grad(x, ids, dw):
    def f(x):
        w = torch.softmax(x, -1).gather(1, ids)
        return w / w.sum(-1, keepdim=True)

    return grads(f, x, cotangent=dw)[0]


def route_grad(x, ids, dw, mean=True, renorm=True, factor=1.0, kind=None, first=4):
    s = x.gather(1, ids) if renorm else x
    p = torch.softmax(s, -1)
    p = narrow(p, kind) if kind else p
    if not renorm:
        full = torch.zeros_like(x).scatter(1, ids, dw)
        return p * (full - (full * p).sum(-1, keepdim=True))
    g = p * (dw - (factor * (dw * p)[:, :first].sum(-1, keepdim=True) if mean else 0.0))
    return torch.zeros_like(x).scatter(1, ids, g)


def long_way(x, ids, dw):
    p = torch.softmax(x, -1)
    w = p.gather(1, ids)
    t = w.sum(-1, keepdim=True)
    g = torch.zeros_like(x).scatter(1, ids, (dw - (dw * w).sum(-1, keepdim=True) / t) / t)
    return p * (g - (g * p).sum(-1, keepdim=True))


ok(eleventh_route_grad, route_grad, of_the_chosen={}, through_the_whole_softmax=long_way)
bad(
    eleventh_route_grad,
    route_grad,
    {
        "the mean is not taken off": {"mean": False},
        "the renorming has no gradient": {"renorm": False},
        "the mean is that of three": {"first": 3},
        "hides: probabilities in bfloat16": {"kind": bf},
        "hides: the mean is half a per cent short": {"factor": 0.995},
    },
)
