# SPDX-License-Identifier: Apache-2.0
"""Set Q: rotary embeddings, scans of states, routing of experts."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, narrow
from .blind_twelfth_a import another, good, twelfth, wrong

# ------------------------------------------------------------------ rotary, halves, far positions


def angles(pos, width, base=10000.0, like=None):
    inv = base ** (-torch.arange(0, width, 2, dtype=like or torch.float32) / width)
    return pos[:, None].to(inv.dtype) * inv


@twelfth(lambda d: (d(3, 40, 64), torch.arange(1200, 1240)))
def twelfth_rotary(x, pos):
    t = angles(pos, 64, like=x.dtype)
    a, b = x[..., :32], x[..., 32:]
    return torch.cat([a * t.cos() - b * t.sin(), b * t.cos() + a * t.sin()], -1)


def rotary(x, pos, base=10000.0, pairs="halves", late=0, sign=1, of=None, some=64):
    t = angles(pos + late, 64, base)
    t = of(t) if of else t
    c, s = t.cos(), sign * t.sin()
    if pairs == "halves":
        a, b = x[..., :32], x[..., 32:]
        y = torch.cat([a * c - b * s, b * c + a * s], -1)
    else:
        a, b = x[..., ::2], x[..., 1::2]
        y = torch.stack([a * c - b * s, b * c + a * s], -1).flatten(-2)
    return torch.cat([y[..., :some], x[..., some:]], -1)


def by_complex(x, pos):
    z = torch.complex(x[..., :32].contiguous(), x[..., 32:].contiguous())
    t = angles(pos, 64)
    z = z * torch.polar(torch.ones_like(t), t)
    return torch.cat([z.real, z.imag], -1)


good(twelfth_rotary, rotary, as_defined={}, by_complex_numbers=by_complex)
wrong(
    twelfth_rotary,
    rotary,
    {
        "neighbouring lanes are paired": {"pairs": "next"},
        "positions are one late": {"late": 1},
        "the base is 500000": {"base": 500000.0},
        "the rotation is the other way": {"sign": -1},
        "angles in bfloat16": {"of": narrow},
        "frequencies are by 62 for 64": lambda x, pos: wrong_width(x, pos),
        "hides: angles are in half precision": {"of": lambda t: narrow(t, hf)},
        "the last 16 lanes are not turned": {"some": 48},
    },
)


def wrong_width(x, pos):
    t = pos[:, None].float() * 10000.0 ** (-torch.arange(0, 64, 2).float() / 62)
    a, b = x[..., :32], x[..., 32:]
    return torch.cat([a * t.cos() - b * t.sin(), b * t.cos() + a * t.sin()], -1)


# ------------------------------------------------------------------ frequencies stretched for long contexts


@twelfth(lambda d: (torch.arange(50, 114),))
def twelfth_long_rotary(pos):
    inv = 500000.0 ** (-torch.arange(0, 32, dtype=torch.float32) / 32)
    wave = 2 * math.pi / inv
    smooth = ((8192 / wave - 1) / (4 - 1)).clamp(0, 1)
    inv = (1 - smooth) * inv / 8 + smooth * inv
    t = pos[:, None] * inv
    return t.cos(), t.sin()


def long_rotary(pos, low=1.0, high=4.0, factor=8.0, turn=False, old=8192, of=None, ramp=True):
    inv = torch.exp2(-torch.arange(0, 32).double() / 32 * math.log2(500000.0)).float()
    ratio = old * inv / (2 * math.pi)
    smooth = ((ratio - low) / (high - low)).clamp(0, 1)
    smooth = 1 - smooth if turn else smooth if ramp else (ratio > low).float()
    inv = torch.lerp(inv / factor, inv, smooth)
    t = pos[:, None] * inv
    return t.cos(), of(t) if of else t.sin()


good(twelfth_long_rotary, long_rotary, by_powers_of_two={})
wrong(
    twelfth_long_rotary,
    long_rotary,
    {
        "high and low frequencies are swapped": {"turn": True},
        "the factor is 4": {"factor": 4.0},
        "the old length is 4096": {"old": 4096},
        "no ramp between high and low": {"ramp": False},
        "sines are in bfloat16": {"of": lambda t: narrow(t.sin())},
    },
)

# ------------------------------------------------------------------ rotary in two dimensions, bfloat16


@twelfth(lambda d: (d(2, 6, 5, 32, dtype=bf),))
def twelfth_rotary_2d(x):
    f = x.float()
    row, col = angles(torch.arange(6), 16, like=f.dtype), angles(torch.arange(5), 16, like=f.dtype)
    t = torch.cat([row[:, None].expand(6, 5, 8), col.expand(6, 5, 8)], -1)
    a, b = f[..., ::2], f[..., 1::2]
    return torch.stack([a * t.cos() - b * t.sin(), a * t.sin() + b * t.cos()], -1).flatten(-2).to(bf)


def rotary_2d(x, swap=False, one=False, start=0, sine=1.0):
    f = x.float()
    i, j = torch.arange(6)[:, None].expand(6, 5) + start, torch.arange(5).expand(6, 5) + start
    i, j = (j, i) if swap else (i, 5 * i + j if one else j)
    t = torch.cat([angles(i.flatten(), 16).view(6, 5, 8), angles(j.flatten(), 16).view(6, 5, 8)], -1)
    z = torch.view_as_complex(f.view(2, 6, 5, 16, 2).contiguous()) * torch.complex(t.cos(), sine * t.sin())
    return torch.view_as_real(z).flatten(-2)


good(twelfth_rotary_2d, rotary_2d, bf, complex_product={})
wrong(
    twelfth_rotary_2d,
    rotary_2d,
    {
        "rows and columns are swapped": {"swap": True},
        "columns are counted through all rows": {"one": True},
        "positions begin at one": {"start": 1},
    },
    bf,
)

# ------------------------------------------------------------------ selective scan


@twelfth(
    lambda d: (
        d(2, 50, 12),
        d(2, 50, 12, shift=-1),
        d(12, 4, scale=0.3),
        d(2, 50, 4),
        d(2, 50, 4),
        d(12),
        d(12, scale=0.1),
    )
)
def twelfth_selective_scan(u, dt, a, b, c, skip, bias):
    dt = F.softplus(dt + bias)
    h, out = torch.zeros(2, 12, 4, dtype=u.dtype), []
    for t in range(50):
        h = torch.exp(-torch.exp(a) * dt[:, t, :, None]) * h + (dt[:, t] * u[:, t])[..., None] * b[:, t, None]
        out.append((h * c[:, t, None]).sum(-1))
    return torch.stack(out, 1) + skip * u


def selective_scan(
    u, dt, a, b, c, skip, bias, soft=True, add=1.0, step=1.0, lost=None, exact=False, kind=None, raw=False, early=False
):
    dt = dt + bias * add
    dt = F.softplus(dt) if soft else torch.exp(dt)
    h, out = torch.zeros(2, 12, 4), []
    rate = -a.abs() if raw else -torch.exp(a)
    for t in range(50):
        h = torch.zeros_like(h) if t == lost else h
        decay = torch.exp(rate * dt[:, t, :, None])
        inward = (decay - 1) / rate if exact else dt[:, t, :, None]
        if early:
            out.append(torch.einsum("bdn,bn->bd", h, c[:, t]))
        h = decay * h + inward * u[:, t, :, None] * b[:, t, None]
        h = narrow(h, kind) if kind else h
        if not early:
            out.append(torch.einsum("bdn,bn->bd", h, c[:, t]))
    return torch.stack(out, 1) + step * skip * u


def by_prefix(u, dt, a, b, c, skip, bias):
    dt = F.softplus(dt + bias)
    decay = torch.exp(-torch.exp(a) * dt[..., None])
    x = (dt * u)[..., None] * b[:, :, None]
    step = 1
    while step < 50:
        pad = (0, 0, 0, 0, step, 0)
        x = x + decay * F.pad(x[:, :-step], pad)
        decay = decay * F.pad(decay[:, :-step], pad, value=1.0)
        step *= 2
    return (x * c[:, :, None]).sum(-1) + skip * u


good(twelfth_selective_scan, selective_scan, one_by_one={}, by_doubling=by_prefix)
wrong(
    twelfth_selective_scan,
    selective_scan,
    {
        "the state is lost at the second chunk of 25": {"lost": 25},
        "the step's bias is not added": {"add": 0.0},
        "the skip is left out": {"step": 0.0},
        "the step is exp for softplus": {"soft": False},
        "the input is held exactly, by (exp - 1) / rate": {"exact": True},
        "the state is read before it is updated": {"early": True},
        "hides: the state is kept in bfloat16": {"kind": bf},
    },
)

# ------------------------------------------------------------------ gated delta rule


@twelfth(lambda d: (d(3, 32, 16), d(3, 32, 16), d(3, 32, 8), -d.rand(3, 32) * 0.3, d.rand(3, 32)))
def twelfth_gated_delta(q, k, v, g, beta):
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    s, out = torch.zeros(3, 16, 8, dtype=q.dtype), []
    for t in range(32):
        s = s * torch.exp(g[:, t])[:, None, None]
        e = beta[:, t, None] * (v[:, t] - torch.einsum("hkv,hk->hv", s, k[:, t]))
        s = s + k[:, t, :, None] * e[:, None]
        out.append(torch.einsum("hkv,hk->hv", s, q[:, t]) * 0.25)
    return torch.stack(out, 1), s


def gated_delta(q, k, v, g, beta, late=False, rate=1.0, ones=False, unit=True, gate=1.0, early=False, kind=None):
    nq, nk = (t / t.square().sum(-1, keepdim=True).sqrt() for t in (q, k))
    q, k = nq, nk if unit else k / 4
    s, out = torch.zeros(3, 16, 8), []
    for t in range(32):
        decay = torch.exp(gate * g[:, t])[:, None, None]
        before = s
        s = s if late else s * decay
        seen = (s * k[:, t, :, None]).sum(1)
        e = (1.0 if ones else beta[:, t, None]) * (v[:, t] - rate * seen)
        s = (s * decay if late else s) + k[:, t, :, None] * e[:, None]
        s = narrow(s, kind) if kind else s
        out.append(((before if early else s) * q[:, t, :, None]).sum(1) * 0.25)
    return torch.stack(out, 1), s


good(twelfth_gated_delta, gated_delta, sums_of_products={})
wrong(
    twelfth_gated_delta,
    gated_delta,
    {
        "the decay comes after what is seen": {"late": True},
        "what is stored is not corrected by what is there": {"rate": 0.0},
        "the rate of writing is one": {"ones": True},
        "keys are not of unit length": {"unit": False},
        "the state is read before it is updated": {"early": True},
        "hides: the state is kept in half precision": {"kind": hf},
    },
)

# ------------------------------------------------------------------ retention


@twelfth(lambda d: (d(4, 45, 16, dtype=bf), d(4, 45, 16, dtype=bf), d(4, 45, 16, dtype=bf)))
def twelfth_retention(q, k, v):
    i = torch.arange(45)
    rate = 1 - 2.0 ** (-5.0 - torch.arange(4))
    d = (rate[:, None, None] ** (i[:, None] - i).clamp(min=0)) * (i <= i[:, None])
    return ((q.float() @ k.float().mT * d * 0.25) @ v.float()).to(bf)


def retention(q, k, v, first=5.0, chunk=9, keep=True, cross=0, order=None):
    q, k, v = (t.float() for t in (q, k, v))
    heads = order or list(range(4))
    rate = (1 - 2.0 ** (-first - torch.tensor(heads)))[:, None, None]
    s, out, i = torch.zeros(4, 16, 16), [], torch.arange(chunk)
    inner = (rate ** (i[:, None] - i).clamp(min=0)) * (i <= i[:, None])
    for a in range(0, 45, chunk):
        qq, kk, vv = (t[:, a : a + chunk] for t in (q, k, v))
        out.append((qq @ kk.mT * inner) @ vv + (qq @ s) * rate ** (i[:, None] + 1 - cross))
        s = s * (rate**chunk if keep else 1) + (kk * rate ** (chunk - 1 - i)[:, None]).mT @ vv
    return torch.cat(out, 1) * 0.25


good(twelfth_retention, retention, bf, chunks_of_nine={}, one_by_one={"chunk": 1}, one_chunk={"chunk": 45})
wrong(
    twelfth_retention,
    retention,
    {
        "the state does not decay from chunk to chunk": {"keep": False},
        "the state's part decays one step too little": {"cross": 1},
        "heads' decays are in the opposite order": {"order": [3, 2, 1, 0]},
    },
    bf,
)

# ------------------------------------------------------------------ routing


@twelfth(lambda d: (d(60, 16, scale=2),))
def twelfth_route(x):
    p = torch.softmax(x, -1)
    w, i = torch.topk(p, 4, -1)
    return w / w.sum(-1, keepdim=True), i


def route(x, share=True, of=None, swap=False, among=16):
    z = x[:, :among]
    i = torch.argsort(z, dim=-1, descending=True)[:, :4]
    w = torch.exp(x - torch.logsumexp(x, -1, keepdim=True)).gather(-1, i)
    w = torch.sigmoid(x).gather(-1, i) if of == "sigmoid" else w
    w = w / w.sum(-1, keepdim=True) if share else w
    return w.flip(-1) if swap else w, i


good(twelfth_route, route, by_sorting={}, softmax_of_the_chosen=lambda x: chosen(x))


def chosen(x):
    v, i = torch.topk(x, 4, -1)
    return torch.softmax(v, -1), i


wrong(
    twelfth_route,
    route,
    {
        "weights do not sum to one": {"share": False},
        "sigmoids for softmax": {"of": "sigmoid"},
        "weights are in the opposite order of their experts": {"swap": True},
        "the last expert is never chosen": {"among": 15},
    },
)


@twelfth(lambda d: (d(40, 32), d(32, scale=0.4)))
def twelfth_group_route(x, bias):
    s = torch.sigmoid(x)
    g = (s + bias).view(40, 4, 8)
    best = g.topk(2, -1).values.sum(-1).topk(2, -1).indices
    mask = torch.zeros(40, 4, dtype=torch.bool).scatter(1, best, True)
    i = (s + bias).masked_fill(~mask.repeat_interleave(8, 1), -math.inf).topk(4, -1).indices
    w = s.gather(1, i)
    return w / w.sum(-1, keepdim=True) * 2.5, i


def group_route(x, bias, top=2, biased=False, by=2.5, groups=2, use=1.0):
    s = 1 / (1 + torch.exp(-x))
    b = s + use * bias
    rank = b.view(40, 4, 8).sort(-1, descending=True).values[..., :top].sum(-1)
    allowed = rank >= rank.sort(-1, descending=True).values[:, groups - 1 : groups]
    i = torch.argsort(torch.where(allowed.repeat_interleave(8, 1), b, -9.0), dim=-1, descending=True)[:, :4]
    w = (b if biased else s).gather(1, i)
    return w * (by / w.sum(-1, keepdim=True)), i


good(twelfth_group_route, group_route, by_sorting={})
wrong(
    twelfth_group_route,
    group_route,
    {
        "groups are ranked by their best expert alone": {"top": 1},
        "weights have the bias of the choice": {"biased": True},
        "weights are not scaled by 2.5": {"by": 1.0},
        "three groups are allowed": {"groups": 3},
        "the choice has no bias": {"use": 0.0},
    },
)


def moe_args(d):
    return d(24, 32, dtype=bf), d(4, 32, 48, dtype=bf, scale=0.2), d.ints(4, 24, 2), d.rand(24, 2)


@twelfth(moe_args)
def twelfth_experts(x, w, i, p):
    y = torch.einsum("td,edf->tef", x.float(), w.float())
    return (y.gather(1, i[..., None].expand(-1, -1, 48)) * p[..., None]).sum(1).to(bf)


def experts(x, w, i, p, most=99, scale=True, assign=False, turn=False, stale=False):
    out = torch.zeros(24, 48)
    p = p.flip(1) if turn else p
    for e in range(4):
        t, slot = torch.nonzero(i == e, as_tuple=True)
        t, slot = t[:most], slot[:most]
        y = x[t].float() @ w[e].float() * (p[t, slot, None] if scale else 0.5)
        if assign:
            out[t] = y
        else:
            out.index_add_(0, t, y)
    if stale:
        out[20:] = another(out)[20:]
    return out


good(twelfth_experts, experts, bf, gathered_by_expert={})
wrong(
    twelfth_experts,
    experts,
    {
        "an expert takes ten tokens at most, the rest are dropped": {"most": 10},
        "the second expert overwrites the first": {"assign": True},
        "the two weights are swapped": {"turn": True},
        "both weights are a half": {"scale": False},
        "the last four tokens are of a call before": {"stale": True},
    },
    bf,
)


@twelfth(lambda d: (d(80, 8), d.ints(8, 80, 2)))
def twelfth_balance(x, i):
    p = torch.softmax(x, -1).mean(0)
    f = F.one_hot(i, 8).to(x.dtype).sum((0, 1)) / 160
    return 8 * (p * f).sum()


def balance(x, i, count=160, experts=8, first=False, mean=80):
    p = torch.exp(x - torch.logsumexp(x, -1, keepdim=True)).sum(0) / mean
    f = torch.bincount((i[:, 0] if first else i).flatten(), minlength=8) / (80 if first else count)
    return experts * torch.dot(p, f)


good(twelfth_balance, balance, by_counting={})
wrong(
    twelfth_balance,
    balance,
    {
        "shares are by tokens, not by tokens and choices": {"count": 80},
        "not multiplied by the experts": {"experts": 1},
        "only first choices are counted": {"first": True},
    },
)
