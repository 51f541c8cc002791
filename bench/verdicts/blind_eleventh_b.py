# SPDX-License-Identifier: Apache-2.0
"""Set N: scans, delta rules and other layers with a state."""

import torch
import torch.nn.functional as F

from .blind import bf, hf, narrow
from .blind_eleventh_a import eleventh, low, rough_exp
from .blind_ninth_a import bad, grads, ok

# ------------------------------------------------------------------ selective scan


def scan_args(d):
    a = -torch.arange(1, 9).float().repeat(24, 1)
    return d(2, 24, 96), d(2, 24, 96, scale=0.5, shift=-2), a, d(2, 8, 96), d(2, 8, 96), d(24), d(2, 24, 96)


@eleventh(scan_args)
def eleventh_scan(u, dt, a, b, c, skip, z):
    dt = F.softplus(dt)
    h, out = torch.zeros_like(u[..., :1] * a), []
    for t in range(u.shape[-1]):
        h = h * torch.exp(dt[..., t, None] * a) + (dt * u)[..., t, None] * b[:, None, :, t]
        out.append((h * c[:, None, :, t]).sum(-1))
    return (torch.stack(out, -1) + skip[:, None] * u) * F.silu(z)


def scan(
    u,
    dt,
    a,
    b,
    c,
    skip,
    z,
    soft=F.softplus,
    exp=torch.exp,
    kind=None,
    chunk=96,
    carry=True,
    states=8,
    gate=F.silu,
    late=0,
):
    dt = soft(dt)
    x = dt * u
    h, out = torch.zeros(2, 24, 8), []
    for t in range(96):
        if t % chunk == 0 and not carry:
            h = torch.zeros(2, 24, 8)
        h = h * exp(dt[..., max(0, t - late), None] * a) + x[..., t, None] * b[:, None, :, t]
        h = narrow(h, kind) if kind and t % chunk == chunk - 1 else h
        out.append((h * c[:, None, :, t])[..., :states].sum(-1))
    return (torch.stack(out, -1) + skip[:, None] * u) * gate(z)


def scan_by_chunks(u, dt, a, b, c, skip, z, size=16):
    """Within a chunk the state is a sum over its steps with products of decays."""
    dt = F.softplus(dt)
    h, out = torch.zeros(2, 24, 8), []
    for s in range(0, 96, size):
        at = slice(s, s + size)
        g = (dt[..., at, None] * a[:, None]).cumsum(2)
        x = (dt * u)[..., at, None] * b[:, None, :, at].transpose(2, 3)
        decay = torch.exp((g[:, :, :, None] - g[:, :, None]).masked_fill(~low(size)[..., None], -float("inf")))
        inner = torch.einsum("bdtsn,bdsn->bdtn", decay, x) + g.exp() * h[:, :, None]
        out.append((inner * c[:, None, :, at].transpose(2, 3)).sum(-1))
        h = inner[:, :, -1]
    return (torch.cat(out, -1) + skip[:, None] * u) * F.silu(z)


ok(
    eleventh_scan,
    scan,
    step_by_step={},
    by_chunks_of_16=scan_by_chunks,
    decays_by_powers_of_two={"exp": lambda x: torch.exp2(x * 1.4426950408889634)},
)
bad(
    eleventh_scan,
    scan,
    {
        "the state is not carried over chunks of 32": {"chunk": 32, "carry": False},
        "steps are not put through softplus": {"soft": F.relu},
        "the last state is not read": {"states": 7},
        "the decay is that of the step before": {"late": 1},
        # eight bits of the state after every eight steps
        "hides: the state between chunks in bfloat16": {"chunk": 8, "kind": bf},
        # exp(x) for log1p(exp(x)) below -1, where it is 15 per cent less at most
        "hides: softplus is exp below minus three": {"soft": lambda x: torch.where(x < -3, x.exp(), F.softplus(x))},
        # 1e-4 of each decay, and it multiplies
        "hides: decays by a cubic": {"exp": rough_exp},
    },
)


# ------------------------------------------------------------------ state space duality in chunks


def dual_args(d):
    return d(2, 128, 4, 16), d(2, 128, 4, scale=0.5, shift=-2), -d.rand(4) * 4 - 0.5, d(2, 128, 16), d(2, 128, 16)


def decays(g):
    n = g.shape[1]
    return (g[:, :, None] - g[:, None]).masked_fill(~low(n)[None, ..., None], -float("inf")).exp()


@eleventh(dual_args)
def eleventh_dual(x, dt, a, b, c):
    dt = F.softplus(dt)
    g = (dt * a).cumsum(1)
    return torch.einsum("btn,bsn,btsh,bsh,bshp->bthp", c, b, decays(g), dt, x)


def dual(x, dt, a, b, c, size=32, shift=0, kind=None, own=True, head=None, b_of=None):
    dt = F.softplus(dt)
    a = a if head is None else a[list(head)]
    h, out = torch.zeros(2, 4, 16, 16), []
    for s in range(0, 128, size):
        at = slice(s, s + size)
        g = (dt[:, at] * a).cumsum(1)
        xx, bb, cc = x[:, at] * dt[:, at, :, None], b[:, at], c[:, at]
        w = torch.einsum("btn,bsn->bts", cc, bb)[..., None] * decays(g)
        w = w if own else w * ~torch.eye(size, dtype=torch.bool)[None, ..., None]
        y = torch.einsum("btsh,bshp->bthp", w, xx) + torch.einsum("btn,bhnp,bth->bthp", cc, h, g.exp())
        out.append(y)
        fall = (g[:, -1 - shift, None] - g).exp() if not shift else (g[:, -1 - shift, None] - g).clamp(max=0).exp()
        bb = b_of(bb) if b_of else bb
        h = h * g[:, -1, :, None, None].exp() + torch.einsum("bsn,bsh,bshp->bhnp", bb, fall, xx)
        h = narrow(h, kind) if kind else h
    return torch.cat(out, 1)


ok(eleventh_dual, dual, chunks_of_32={}, chunks_of_16={"size": 16}, chunks_of_64={"size": 64})
bad(
    eleventh_dual,
    dual,
    {
        "a step does not see its own input": {"own": False},
        "states of a chunk decay to its last step but one": {"shift": 1},
        "two heads take each other's rate": {"head": (0, 1, 3, 2)},
        # eight bits where float32 is all around
        "hides: the state between chunks in bfloat16": {"kind": bf},
        # half precision in the update of the state alone
        "hides: keys of the state through half precision": {"b_of": lambda b: narrow(b, hf)},
    },
)


# ------------------------------------------------------------------ the gated delta rule


def delta_args(d):
    k = F.normalize(d(2, 4, 96, 16), dim=-1)
    return d(2, 4, 96, 16), k, d(2, 4, 96, 16), d.rand(2, 4, 96), -d.rand(2, 4, 96) * 0.2, d(2, 4, 16, 16)


@eleventh(delta_args)
def eleventh_delta(q, k, v, beta, g, s):
    out = []
    for t in range(q.shape[2]):
        s = s * g[:, :, t, None, None].exp()
        gap = v[:, :, t] - torch.einsum("bhk,bhkv->bhv", k[:, :, t], s)
        s = s + torch.einsum("bhk,bhv->bhkv", k[:, :, t], gap * beta[:, :, t, None])
        out.append(torch.einsum("bhk,bhkv->bhv", q[:, :, t], s) * 0.25)
    return torch.stack(out, 2), s


def delta(q, k, v, beta, g, s, order="gate", kind=None, every=1, exp=torch.exp, skip=None, last=True, gap_of=None):
    out, old = [], s
    for t in range(96):
        if t == skip:
            out.append(torch.einsum("bhk,bhkv->bhv", q[:, :, t], s) * 0.25)
            continue
        fall = exp(g[:, :, t, None, None])
        seen = torch.einsum("bhk,bhkv->bhv", k[:, :, t], s) * (fall[..., 0] if order == "gate" else 1.0)
        gap = (v[:, :, t] - seen) * beta[:, :, t, None]
        gap = gap_of(gap) if gap_of else gap
        s = s * fall + k[:, :, t, :, None] * gap[..., None, :]
        s = narrow(s, kind) if kind and t % every == every - 1 else s
        out.append(torch.einsum("bhk,bhkv->bhv", q[:, :, t], s) * 0.25)
    return torch.stack(out, 2), s if last else old


def delta_by_chunks(q, k, v, beta, g, s, size=16):
    """The triangular system of each chunk is solved instead."""
    out = []
    for a in range(0, 96, size):
        at = slice(a, a + size)
        qq, kk, vv, bb = q[:, :, at], k[:, :, at], v[:, :, at], beta[:, :, at, None]
        d = g[:, :, at].cumsum(-1)
        w = (d[..., :, None] - d[..., None, :]).masked_fill(~low(size), -float("inf")).exp()
        lower = torch.tril(kk @ kk.mT * w, -1) * bb
        u = torch.linalg.solve_triangular(
            lower + torch.eye(size), bb * (vv - d.exp()[..., None] * (kk @ s)), upper=False
        )
        out.append((d.exp()[..., None] * (qq @ s) + (qq @ kk.mT * w) @ u) * 0.25)
        s = s * d[..., -1, None, None].exp() + (kk * (d[..., -1:] - d).exp()[..., None]).mT @ u
    return torch.cat(out, 2), s


ok(eleventh_delta, delta, step_by_step={}, by_chunks=delta_by_chunks)
bad(
    eleventh_delta,
    delta,
    {
        "the gap is taken before the gate": {"order": "late"},
        "the state is not updated": {"last": False},
        "one step of 96 is skipped": {"skip": 63},
        "the gate is one plus its logarithm": {"exp": lambda x: 1 + x},
        # eight bits every sixteenth step
        "hides: the state in bfloat16 between chunks": {"kind": bf, "every": 16},
        # what is left of v after what is known of it: a difference
        "hides: the gap in half precision": {"gap_of": lambda x: narrow(x, hf)},
    },
)


# ---- short causal convolution with a state


@eleventh(lambda d: (d(3, 64, 70, dtype=bf), d(64, 4, dtype=bf, scale=0.5), d(64, dtype=bf), d(3, 64, 3, dtype=bf)))
def eleventh_short(x, w, bias, state):
    full = torch.cat([state, x], -1).float()
    y = F.conv1d(full, w.float()[:, None], bias.float(), groups=64)
    return F.silu(y).to(bf), full[..., -3:].to(bf)


def short(x, w, bias, state, start=None, flip=False, act=F.silu, keep=None, kind=None, out=None):
    full = torch.cat([start(state) if start else state, x], -1).float()
    w = w.float().flip(-1) if flip else w.float()
    y = bias.float()[:, None].expand(64, 70)
    for i in range(4):
        y = y + w[:, i, None] * full[..., i : i + 70]
        y = narrow(y, kind) if kind else y
    y = act(y)
    return out(y) if out else y, keep(full) if keep else full[..., -3:]


def fma_order(x, w, bias, state):
    full = torch.cat([state, x], -1).double()
    y = sum(w[:, i, None].double() * full[..., i : i + 70] for i in (3, 2, 1, 0)).float() + bias.float()[:, None]
    return y / (1 + torch.exp(-y)), full[..., -3:].float()


ok(eleventh_short, short, bf, taps_in_turn={}, taps_from_the_newest=fma_order)
bad(
    eleventh_short,
    short,
    {
        "the state is taken for zeros": {"start": torch.zeros_like},
        "the taps are turned round": {"flip": True},
        "the new state is one step old": {"keep": lambda f: f[..., -4:-1]},
        # silu by a hard sigmoid
        "hides: silu is that of a hard sigmoid": {"act": lambda y: y * (y / 6 + 0.5).clamp(0, 1)},
        # four roundings to eight bits
        "hides: taps summed in bfloat16": {"kind": bf},
        # one column of 70
        "hides: the last step has no activation's tail": {
            "out": lambda y: torch.cat([y[..., :-1], y[..., -1:].clamp(min=0)], -1)
        },
    },
    bf,
)


# ------------------------------------------------------------------ gated recurrent unit


@eleventh(lambda d: (d(16, 48), d(16, 64), d(192, 48, scale=0.2), d(192, 64, scale=0.2), d(192), d(192)))
def eleventh_gru(x, h, wi, wh, bi, bh):
    a, b = x @ wi.T + bi, h @ wh.T + bh
    r, z = torch.sigmoid(a[:, :64] + b[:, :64]), torch.sigmoid(a[:, 64:128] + b[:, 64:128])
    n = torch.tanh(a[:, 128:] + r * b[:, 128:])
    return (1 - z) * n + z * h


def rough_tanh(x):
    x = x.clamp(-4.97, 4.97)
    s = x * x
    return x * (135135 + s * (17325 + s * (378 + s))) / (135135 + s * (62370 + s * (3150 + 28 * s)))


def gru(x, h, wi, wh, bi, bh, late=True, swap=False, tanh=torch.tanh, gate=torch.sigmoid, lost=0, w_of=None):
    w = torch.cat([wi, wh], 1)
    w = w_of(w) if w_of else w
    g = torch.cat([x, h], 1) @ w[:128].T + bi[:128] + bh[:128]
    r, z = gate(g).chunk(2, 1)
    r, z = (z, r) if swap else (r, z)
    a, b = x @ w[128:, :48].T + bi[128:], h @ w[128:, 48:].T
    n = tanh(a + r * (b + bh[128:]) if late else a + (r * b + bh[128:]))
    out = n + z * (h - n)
    return torch.cat([out[:, : 64 - lost], h[:, 64 - lost :]], 1) if lost else out


ok(
    eleventh_gru,
    gru,
    gates_of_one_product={},
    tanh_by_the_exponential={"tanh": lambda x: 1 - 2 / (torch.exp(2 * x) + 1)},
)
bad(
    eleventh_gru,
    gru,
    {
        "the reset gate leaves out the bias": {"late": False},
        "reset and update are swapped": {"swap": True},
        "the last unit is not updated": {"lost": 1},
        # 1e-4 near four and where the clamp is
        "hides: tanh by a fraction": {"tanh": lambda x: x * (27 + x * x) / (27 + 9 * x * x)},
        # weights of one operand alone
        "hides: weights in half precision": {"w_of": lambda w: narrow(w, hf)},
    },
)


# ---- gated linear attention, bfloat16


@eleventh(
    lambda d: (
        d(2, 3, 64, 32, dtype=bf),
        d(2, 3, 64, 32, dtype=bf),
        d(2, 3, 64, 32, dtype=bf),
        -d.rand(2, 3, 64, 32) * 0.3,
    )
)
def eleventh_gated(q, k, v, g):
    q, k, v = (x.to(g.dtype) for x in (q, k, v))
    s, out = torch.zeros_like(g[:, :, 0, :, None] * v[:, :, 0, None]), []
    for t in range(64):
        s = s * g[:, :, t, :, None].exp() + k[:, :, t, :, None] * v[:, :, t, None]
        out.append((q[:, :, t, :, None] * s).sum(-2) * 32**-0.5)
    return torch.stack(out, 2).to(bf)


def gated(q, k, v, g, size=16, kind=None, own=0, ref=None, gate=None, scale=32**-0.5):
    q, k, v = q.float(), k.float(), v.float()
    s, out = torch.zeros(2, 3, 32, 32), []
    for a in range(0, 64, size):
        at = slice(a, a + size)
        b = (gate(g) if gate else g)[:, :, at].cumsum(2)
        qq, kk = q[:, :, at] * b.exp(), k[:, :, at] * (-b).exp()
        w = torch.tril(qq @ kk.mT, -own)
        out.append((qq @ s + w @ v[:, :, at]) * scale)
        s = s * b[:, :, -1, :, None].exp() + (k[:, :, at] * (b[:, :, -1:] - b).exp()).mT @ v[:, :, at]
        s = narrow(s, kind) if kind else s
    return torch.cat(out, 2)


ok(eleventh_gated, gated, bf, chunks_of_16={}, chunks_of_8={"size": 8}, chunks_of_4={"size": 4})
bad(
    eleventh_gated,
    gated,
    {
        "a step does not see itself": {"own": 1},
        "gates of the last lane are those of the lane before": {
            "gate": lambda g: torch.cat([g[..., :-1], g[..., -2:-1]], -1)
        },
        "not scaled": {"scale": 1.0},
        # sixteen roundings of the state to eight bits
        "hides: the state in bfloat16 by chunks of four": {"kind": bf, "size": 4},
        # gates in eight bits, summed over 64 steps
        "hides: the gates through e5m2": {"gate": lambda g: g.to(torch.float8_e5m2).float()},
    },
    bf,
)


# ---- gradients of a linear recurrence


@eleventh(lambda d: (d.rand(4, 200, 32) * 0.3 + 0.68, d(4, 200, 32), d(4, 200, 32)))
def eleventh_recurrence_grad(a, x, dy):
    def run(a, x):
        h, out = torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            h = a[:, t] * h + x[:, t]
            out.append(h)
        return torch.stack(out, 1)

    return grads(run, a, x, cotangent=dy)


def recurrence_grad(a, x, dy, shift=1, kind=None, every=50, cut=0, old=1):
    h, hs = torch.zeros(4, 32), []
    for t in range(200):
        hs.append(h if old else a[:, t] * h + x[:, t])
        h = a[:, t] * h + x[:, t]
        h = narrow(h, kind) if kind and t % every == every - 1 else h
    g, da, dx = torch.zeros(4, 32), torch.zeros_like(a), torch.zeros_like(x)
    for t in range(199, -1, -1):
        carry = a[:, min(t + shift, 199)] * g if t < 199 else 0.0
        g = dy[:, t] + (0.0 if cut and t % cut == cut - 1 else carry)
        da[:, t], dx[:, t] = g * hs[t], g
    return da, dx


def recurrence_grad_by_products(a, x, dy, size=25):
    h, g = torch.zeros(4, 32), torch.zeros(4, 32)
    hs, gs = [], []
    for s in range(0, 200, size):
        at = slice(s, s + size)
        l = a[:, at].double().log().cumsum(1)
        w = (l[:, :, None] - l[:, None]).masked_fill(~low(size)[..., None], -float("inf")).exp().float()
        full = torch.einsum("btsd,bsd->btd", w, x[:, at]) + l.exp().float() * h[:, None]
        hs.append(torch.cat([h[:, None], full[:, :-1]], 1))
        h = full[:, -1]
    for s in range(200 - size, -1, -size):
        at = slice(s, s + size)
        nxt = torch.cat(
            [a[:, s + 1 : s + size], a[:, s + size : s + size + 1] if s + size < 200 else torch.ones(4, 1, 32)], 1
        )
        l = nxt.double().log()
        m = l.flip(1).cumsum(1).flip(1)
        e = torch.cat([m, torch.zeros(4, 1, 32).double()], 1)
        w = (e[:, :-1, None] - e[:, None, :-1]).masked_fill(~low(size).T[..., None], -float("inf")).exp().float()
        full = torch.einsum("btsd,bsd->btd", w, dy[:, at]) + m.exp().float() * g[:, None]
        gs.insert(0, full)
        g = full[:, 0]
    g = torch.cat(gs, 1)
    return g * torch.cat(hs, 1), g


ok(eleventh_recurrence_grad, recurrence_grad, step_by_step={}, by_products_of_25=recurrence_grad_by_products)
bad(
    eleventh_recurrence_grad,
    recurrence_grad,
    {
        "the decay of the same step instead of the next": {"shift": 0},
        "the gradient is cut every 50 steps": {"cut": 50},
        "the state after the step instead of before it": {"old": 0},
        # the states that were saved for the backward pass lost sixteen bits at four places
        "hides: states between chunks saved in bfloat16": {"kind": bf},
    },
)
