# SPDX-License-Identifier: Apache-2.0
"""Set S, the fourteenth: scans, recurrences with gates, long convolutions and advantages."""

import torch
import torch.nn.functional as F

from .blind import bf, hf, narrow
from .blind_fourteenth_base import add, up, wide


def selective_scan(u, dt, a, b, c, d):
    dt = F.softplus(dt)
    h, out = torch.zeros(u.shape[0], u.shape[2], a.shape[1], dtype=u.dtype), []
    for t in range(u.shape[1]):
        h = torch.exp(dt[:, t, :, None] * a) * h + (dt[:, t] * u[:, t])[..., None] * b[:, t, None]
        out.append((h * c[:, t, None]).sum(-1) + d * u[:, t])
    return torch.stack(out, 1)


def scan_kernel(
    u, dt, a, b, c, d, soft=True, zoh=False, skip=True, kind=None, chunk=8, carry=True, late=False, turn=False
):
    dt = F.softplus(dt) if soft else torch.relu(dt)
    la = dt[..., None] * a
    x = (torch.expm1(la) / a if zoh else dt[..., None]) * u[..., None] * b[:, :, None]
    h, out = torch.zeros(u.shape[0], u.shape[2], a.shape[1]), []
    for j in range(0, u.shape[1], chunk):
        cum = la[:, j : j + chunk].cumsum(1)
        if not carry:
            h = h * 0
        for t in range(cum.shape[1]):
            w = torch.exp(cum[:, t : t + 1] - cum[:, : t + 1])
            ht = (w * x[:, j : j + t + 1]).sum(1) + torch.exp(cum[:, t]) * h
            prev = out[-1][1] if out else torch.zeros_like(ht)
            y = ((prev if late else ht) * c[:, j + t, None]).sum(-1) + (d * u[:, j + t] if skip else 0)
            out.append((y, ht))
        h = narrow(ht, kind) if kind else ht
    return torch.stack([y for y, _ in out], 1)


add(
    "selective_scan",
    selective_scan,
    lambda d: (
        d(2, 40, 12),
        d(2, 40, 12, shift=-2),
        -torch.exp(d(12, 8) * 0.5),
        d(2, 40, 8),
        d(2, 40, 8),
        d(12, shift=1, scale=0.1),
    ),
    scan_kernel,
    right={"chunks of 8 by differences of sums": {}, "chunks of 5": {"chunk": 5}, "in double": wide(selective_scan)},
    wrong={
        "the step is a relu, no softplus": {"soft": False},
        "inputs are held exactly, not by the step": {"zoh": True},
        "the skip is left out": {"skip": False},
        "chunks do not carry the state": {"carry": False},
        "the output reads the state before its own input": {"late": True},
        "the state is kept in bf16 between chunks": {"kind": bf},
    },
)


def ssd(x, dt, a, b, c):
    h, out = torch.zeros(x.shape[0], x.shape[2], x.shape[3], b.shape[-1], dtype=up(x).dtype), []
    x32, b32, c32 = up(x), up(b), up(c)
    for t in range(x.shape[1]):
        w = torch.exp(up(dt)[:, t] * a)[..., None, None]
        h = w * h + (up(dt)[:, t, :, None] * x32[:, t])[..., None] * b32[:, t, None, None]
        out.append((h * c32[:, t, None, None]).sum(-1))
    return torch.stack(out, 1).to(x.dtype)


def ssd_kernel(x, dt, a, b, c, chunk=8, diag=0, decay="right", carry="all", kind=None, tail=True, step=True):
    n = x.shape[1]
    h, out = torch.zeros(x.shape[0], x.shape[2], x.shape[3], b.shape[-1]), []
    xd = x * dt[..., None] if step else x
    for j in range(0, n, chunk):
        la = (dt[:, j : j + chunk] * a).cumsum(1)  # [batch, time, head]
        m = la.shape[1]
        w = torch.exp(
            (la[:, :, None] - la[:, None]).masked_fill(~torch.ones(m, m).tril(diag).bool()[None, :, :, None], -1e9)
        )
        s = torch.einsum("btn,bsn->bts", c[:, j : j + chunk], b[:, j : j + chunk])[..., None] * w
        s = narrow(s, kind) if kind else s
        y = torch.einsum("btsh,bshp->bthp", s, xd[:, j : j + chunk])
        into = torch.exp(la) if decay != "none" else torch.ones_like(la)
        y = y + torch.einsum("btn,bhpn,bth->bthp", c[:, j : j + chunk], h, into)
        out.append(y)
        last = la[:, -1:]
        g = torch.exp(last - la) if carry == "all" else torch.ones_like(la)
        h = h * (torch.exp(last[:, 0])[..., None, None] if carry != "still" else 1)
        h = h + torch.einsum("bth,bthp,btn->bhpn", g, xd[:, j : j + chunk], b[:, j : j + chunk])
    return torch.cat(out, 1)


add(
    "ssd_chunked",
    ssd,
    lambda d: (d(2, 36, 3, 8), d.rand(2, 36, 3) * 0.3 + 0.01, -torch.tensor([0.5, 1.0, 2.0]), d(2, 36, 8), d(2, 36, 8)),
    ssd_kernel,
    right={"chunks of 8": {}, "chunks of 12": {"chunk": 12}, "in double": wide(ssd)},
    wrong={
        "a token does not see itself in its chunk": {"diag": -1},
        "the state's decay into a chunk is left out": {"decay": "none"},
        "inputs reach the state without decay to the chunk's end": {"carry": "flat"},
        "the state does not decay over a chunk": {"carry": "still"},
        "scores in a chunk are kept in bf16": {"kind": bf},
        "inputs are not multiplied by the step": {"step": False},
    },
)


def delta_rule(q, k, v, g, beta):
    k = F.normalize(k, dim=-1)
    s, out = torch.zeros(q.shape[0], q.shape[2], v.shape[2], dtype=q.dtype), []
    for t in range(q.shape[1]):
        s = s * torch.exp(g[:, t])[:, None, None]
        e = beta[:, t, None] * (v[:, t] - torch.einsum("bkv,bk->bv", s, k[:, t]))
        s = s + k[:, t, :, None] * e[:, None]
        out.append(torch.einsum("bkv,bk->bv", s, q[:, t]) * q.shape[2] ** -0.5)
    return torch.stack(out, 1)


def delta_kernel(
    q, k, v, g, beta, norm=True, when="first", correct=True, before=False, scale=True, twice=False, chunk=None
):
    k = k * torch.rsqrt((k * k).sum(-1, keepdim=True)) if norm else k
    c = q.shape[2] ** -0.5 if scale else 1.0
    s, out = torch.zeros(q.shape[0], v.shape[2], q.shape[2]), []
    for t in range(q.shape[1]):
        w = torch.exp(g[:, t])[:, None, None]
        old = s
        s = s * w if when == "first" else s
        e = v[:, t] - (s @ k[:, t, :, None])[..., 0] if correct else v[:, t]
        s = s + beta[:, t, None, None] * (beta[:, t, None, None] if twice else 1) * e[..., None] * k[:, t, None]
        s = s * w if when == "last" else s
        out.append(((old if before else s) @ (q[:, t, :, None] * c))[..., 0])
    return torch.stack(out, 1)


def delta_chunks(q, k, v, g, beta, chunk=8):
    """The same by chunks: a triangular system for the corrections."""
    k = k * torch.rsqrt((k * k).sum(-1, keepdim=True))
    s, out = torch.zeros(q.shape[0], q.shape[2], v.shape[2]), []
    for j in range(0, q.shape[1], chunk):
        kk, qq, vv, bb = (x[:, j : j + chunk] for x in (k, q, v, beta))
        l = g[:, j : j + chunk].cumsum(1)
        n = l.shape[1]
        w = torch.exp((l[:, :, None] - l[:, None]).masked_fill(~torch.ones(n, n).tril().bool(), -1e9))
        a = torch.tril(bb[..., None] * (kk @ kk.transpose(1, 2)) * w, -1) + torch.eye(n)
        right = bb[..., None] * (vv - torch.exp(l)[..., None] * (kk @ s))
        e = torch.linalg.solve_triangular(a, right, upper=False)
        out.append((torch.exp(l)[..., None] * (qq @ s) + ((qq @ kk.transpose(1, 2)) * w) @ e) * q.shape[2] ** -0.5)
        s = s * torch.exp(l[:, -1])[:, None, None] + (kk * torch.exp(l[:, -1:] - l)[..., None]).transpose(1, 2) @ e
    return torch.cat(out, 1)


add(
    "gated_delta_rule",
    delta_rule,
    lambda d: (d(3, 32, 16), d(3, 32, 16), d(3, 32, 12), -d.rand(3, 32) * 0.2, d.rand(3, 32)),
    delta_kernel,
    right={"the state turned": {}, "chunks of 8": delta_chunks, "in double": wide(delta_rule)},
    wrong={
        "keys are not normed": {"norm": False},
        "decay comes after the step": {"when": "last"},
        "there is no decay": {"when": "never"},
        "the old value is not taken off": {"correct": False},
        "the query reads the state before the step": {"before": True},
        "beta is squared": {"twice": True},
    },
)


def gla(q, k, v, g):
    s, out = torch.zeros(q.shape[0], q.shape[2], v.shape[2], dtype=q.dtype), []
    for t in range(q.shape[1]):
        s = s * torch.exp(g[:, t])[..., None] + k[:, t, :, None] * v[:, t, None]
        out.append(torch.einsum("bk,bkv->bv", q[:, t], s))
    return torch.stack(out, 1)


def gla_kernel(q, k, v, g, chunk=8, carry=True, late=False, mean=False, strict=0, kind=None):
    g = g.mean(-1, keepdim=True).expand_as(g) if mean else g
    s, out = torch.zeros(q.shape[0], q.shape[2], v.shape[2]), []
    for j in range(0, q.shape[1], chunk):
        qq, kk, vv = (x[:, j : j + chunk] for x in (q, k, v))
        l = g[:, j : j + chunk].cumsum(1)
        qi, ki = qq * torch.exp(l), kk * torch.exp(-l)
        m = torch.tril(qi @ ki.transpose(1, 2), strict)
        m = narrow(m, kind) if kind else m
        out.append((qi if carry else qq) @ s + m @ vv)
        end = l[:, -1:]
        s = s * torch.exp(end).transpose(1, 2) + (kk if late else ki * torch.exp(end)).transpose(1, 2) @ vv
    return torch.cat(out, 1)


add(
    "gated_linear_attention",
    gla,
    lambda d: (d(2, 40, 12), d(2, 40, 12), d(2, 40, 10), -d.rand(2, 40, 12) * 0.3),
    gla_kernel,
    right={"chunks of 8": {}, "chunks of 4": {"chunk": 4}, "in double": wide(gla)},
    wrong={
        "the state comes into a chunk without decay": {"carry": False},
        "keys reach the state without decay": {"late": True},
        "one gate for all channels": {"mean": True},
        "the chunk's mask leaves out the diagonal": {"strict": -1},
        "scores of a chunk are kept in bf16": {"kind": bf},
    },
)


def causal_conv(x, w, b, state):
    full = torch.cat([up(state), up(x)], -1)
    y = F.silu(F.conv1d(full, up(w)[:, None], up(b), groups=w.shape[0]))
    return y.to(x.dtype), full[..., -state.shape[-1] :].to(x.dtype)


def conv_kernel(x, w, b, state, flip=False, use=True, act=True, old=False, shift=0, bias=True):
    full = torch.cat([state if use else state * 0, x], -1)
    n, k = x.shape[-1], w.shape[1]
    w = w.flip(1) if flip else w
    y = sum(w[None, :, i : i + 1] * full[..., i : i + n].roll(shift, -1) for i in range(k)) + (
        b[None, :, None] if bias else 0
    )
    y = y * torch.sigmoid(y) if act else y
    keep = state.shape[-1]
    return y, (state if old else full[..., -keep - 1 : -1] if shift else full[..., -keep:])


add(
    "causal_conv",
    causal_conv,
    lambda d: (
        d(2, 12, 30, dtype=hf),
        d(12, 4, dtype=hf, scale=0.5),
        d(12, dtype=hf, scale=0.1),
        d(2, 12, 3, dtype=hf),
    ),
    conv_kernel,
    dtype=hf,
    right={"four shifted copies": {}},
    wrong={
        "the filter is turned round": {"flip": True},
        "the old state is not read": {"use": False},
        "the old state goes out": {"old": True},
        "no activation": {"act": False},
        "no bias": {"bias": False},
    },
)


def gae(r, v, done):
    a, out = torch.zeros_like(r[:, 0]), []
    for t in reversed(range(r.shape[1])):
        live = 1 - done[:, t]
        delta = r[:, t] + 0.99 * v[:, t + 1] * live - v[:, t]
        a = delta + 0.99 * 0.95 * live * a
        out.append(a)
    a = torch.stack(out[::-1], 1)
    return a, a + v[:, :-1]


def gae_kernel(r, v, done, lam=0.95, boot="live", chain=True, shift=0, back=True, last=True):
    n = r.shape[1]
    live = 1 - done.roll(shift, 1)
    nxt = v[:, 1:].clone()
    if not last:
        nxt[:, -1] = 0
    delta = r + 0.99 * nxt * (live if boot == "live" else 1) - v[:, :-1]
    f = 0.99 * lam * (live if chain else torch.ones_like(live))
    t = torch.zeros(n, n, r.shape[0])
    for i in range(n):
        w = torch.ones(r.shape[0])
        for j in range(i, n):
            t[i, j] = w
            w = w * f[:, j]
    a = torch.einsum("ijb,bj->bi", t, delta)
    return a, a + (v[:, :-1] if back else v[:, 1:])


add(
    "advantages",
    gae,
    lambda d: (d(6, 32), d(6, 33, scale=3), (d.rand(6, 32) < 0.08).float()),
    gae_kernel,
    right={"a triangle of weights": {}, "in double": wide(gae)},
    wrong={
        "values are carried over an episode's end": {"boot": "all"},
        "the sum is carried over an episode's end": {"chain": False},
        "ends are read one step late": {"shift": 1},
        "the value after the last is left out": {"last": False},
        "returns add the next value": {"back": False},
    },
)


def rg_lru(x, r, i, lam):
    la = -8 * F.softplus(lam) * torch.sigmoid(r)
    h, out = torch.zeros_like(x[:, 0]), []
    for t in range(x.shape[1]):
        h = torch.exp(la[:, t]) * h + torch.sqrt(-torch.expm1(2 * la[:, t])) * torch.sigmoid(i[:, t]) * x[:, t]
        out.append(h)
    return torch.stack(out, 1)


def rg_kernel(x, r, i, lam, root=True, c=8.0, gate=True, minus=False, kind=None, hot=False):
    la = -c * torch.log1p(torch.exp(lam)) * torch.sigmoid(r)
    a = torch.exp(la)
    a = narrow(a, kind) if kind else a
    n = 1 - torch.exp(2 * la) if minus else -torch.expm1(2 * la)
    u = (torch.sqrt(n) if root else 1 - a) * (torch.sigmoid(i) if gate else 1) * x
    k = 1
    while k < x.shape[1]:  # doubling steps
        pa, pu = F.pad(a, (0, 0, k, 0), value=1.0)[:, :-k], F.pad(u, (0, 0, k, 0))[:, :-k]
        a, u = a * pa, u + a * pu
        k *= 2
    return u


add(
    "gated_lru",
    rg_lru,
    lambda d: (d(2, 64, 10), d(2, 64, 10), d(2, 64, 10), d(10, scale=0.5, shift=-7)),
    rg_kernel,
    right={"doubling steps": {}, "in double": wide(rg_lru)},
    wrong={
        "the input's factor has no root": {"root": False},
        "the constant is 4": {"c": 4.0},
        "inputs are not gated": {"gate": False},
        "decays are rounded to bf16": {"kind": bf},
        "hides: one minus the square is formed by itself": {"minus": True},
    },
)


def fft_conv(x, k):
    n = x.shape[-1]
    y = torch.fft.irfft(torch.fft.rfft(x, 2 * n) * torch.fft.rfft(k, 2 * n), 2 * n)
    return y[..., :n]


def fft_kernel(x, k, size=2, turn=False, shift=0, direct=False, tail=None):
    n = x.shape[-1]
    if direct:
        t = torch.stack([F.pad(k, (i, 0))[..., :n] for i in range(n)], -2)
        return torch.einsum("bcs,cst->bct", x, t)
    m = n + n // 2 if size == 1.5 else int(size * n)
    k = k[..., :tail] if tail else k
    f = torch.fft.rfft(k, m)
    y = torch.fft.irfft(torch.fft.rfft(x, m) * (f.conj() if turn else f), m)
    return y[..., shift : n + shift]


add(
    "long_convolution",
    fft_conv,
    lambda d: (d(2, 6, 128), d(6, 128) * torch.exp(-torch.arange(128.0) / 40)),
    fft_kernel,
    right={"by shifted sums": {"direct": True}, "padded to three lengths": {"size": 3}, "in double": wide(fft_conv)},
    wrong={
        "no padding: it wraps round": {"size": 1},
        "padding by half a length": {"size": 1.5},
        "a correlation": {"turn": True},
        "the result begins one later": {"shift": 1},
        "the filter is cut at 96": {"tail": 96},
    },
)


def gru(x, h, wi, wh, bi, bh):
    ir, iz, in_ = (x @ wi.T + bi).chunk(3, -1)
    hr, hz, hn = (h @ wh.T + bh).chunk(3, -1)
    r, z = torch.sigmoid(ir + hr), torch.sigmoid(iz + hz)
    n = torch.tanh(in_ + r * hn)
    return (1 - z) * n + z * h


def gru_kernel(x, h, wi, wh, bi, bh, swap=False, other=False, inner=False, bias=True):
    gi, gh = x @ wi.T + bi, h @ wh.T + (bh if bias else 0)
    m = h.shape[-1]
    r, z = torch.sigmoid((gi + gh)[:, : 2 * m]).split(m, -1)
    r, z = (z, r) if swap else (r, z)
    hn = (r * h) @ wh[2 * m :].T + bh[2 * m :] if inner else r * gh[:, 2 * m :]
    n = torch.tanh(gi[:, 2 * m :] + hn)
    return torch.lerp(h, n, z) if other else torch.lerp(n, h, z)


add(
    "gru_cell",
    gru,
    lambda d: (d(10, 20), d(10, 16), d(48, 20, scale=0.3), d(48, 16, scale=0.3), d(48, scale=0.2), d(48, scale=0.2)),
    gru_kernel,
    right={"by lerp": {}, "in double": wide(gru)},
    wrong={
        "reset and update are exchanged": {"swap": True},
        "the update's complement": {"other": True},
        "the reset is applied before the product": {"inner": True},
        "the hidden bias is left out": {"bias": False},
    },
)
