# SPDX-License-Identifier: Apache-2.0
"""Set U, the fifteenth: recurrences step by step against chunks, and cells."""

import torch
import torch.nn.functional as F

from .blind import bf, hf
from .blind_fifteenth_base import INF, add, hold, index
from .blind_fourteenth_base import up, wide

# Mamba 2: x [S, H, P], dt [S, H], a [H], b and c [S, N], a skip d [H].


def ssd(x, dt, a, b, c, skip):
    y, state = [], x.new_zeros(*x.shape[1:], b.shape[1])
    step = F.softplus(dt)
    for t in range(x.shape[0]):
        keep = torch.exp(step[t] * -torch.exp(a))[:, None, None]
        state = keep * state + (step[t][:, None] * x[t])[..., None] * b[t]
        y.append(state @ c[t] + skip[:, None] * x[t])
    return torch.stack(y)


def ssd_kernel(
    x,
    dt,
    a,
    b,
    c,
    skip,
    chunk=16,
    late=False,
    strict=0,
    carried=True,
    stepped=True,
    skipped=True,
    kind=None,
    swap=False,
    whole=False,
    negative=True,
):
    step = torch.log1p(torch.exp(-dt.abs())) + dt.clamp(min=0)
    rate = step * (-torch.exp(a) if negative else -a.abs())
    b, c = (c, b) if swap else (b, c)
    xs = x * step[..., None] if stepped else x
    state, y = x.new_zeros(*x.shape[1:], b.shape[1]), []
    for s in range(0, x.shape[0], chunk):
        at = slice(s, s + chunk)
        total = rate[at].cumsum(0)  # [L, H]
        n = total.shape[0]
        i, j = index(n, n)
        gap = (total[:, None] - total[None]).masked_fill((j > i - strict)[..., None], -INF)
        near = torch.einsum("ln,mn,lmh,mhp->lhp", c[at], b[at], torch.exp(gap), xs[at])
        seen = torch.exp(total - (rate[at] if late else 0))
        far = torch.einsum("ln,hpn,lh->lhp", c[at], state, seen)
        y.append(near + (far if carried else 0))
        left = torch.exp(total[-1:] - total)
        new = torch.einsum("mhp,mn,mh->hpn", xs[at], b[at], torch.ones_like(left) if whole else left)
        state = hold(state * torch.exp(total[-1])[:, None, None] + new, kind)
    return torch.cat(y) + (skip[:, None] * x if skipped else 0)


def ssd_args(d):
    return d(56, 3, 12), d(56, 3, shift=-1), d(3, scale=0.5), d(56, 12), d(56, 12, scale=0.3), d(3)


add(
    "mamba2_chunks",
    ssd,
    ssd_args,
    ssd_kernel,
    right={"chunks of 16": {}, "chunks of 8": {"chunk": 8}, "in double": wide(ssd)},
    wrong={
        "the state is seen before the row's own decay": {"late": True},
        "the diagonal of a chunk is left out": {"strict": 1},
        "no state is carried between chunks": {"carried": False},
        "the input is not multiplied by its step": {"stepped": False},
        "the skip is left out": {"skipped": False},
        "the states between chunks are in bfloat16": {"kind": bf},
        "keys do not decay to the end of their chunk": {"whole": True},
    },
)

# RWKV 7: state with a decay for each channel, a removal and an addition.


def rwkv(r, w, k, v, a, b):
    state, out = r.new_zeros(v.shape[1], k.shape[1]), []
    for t in range(r.shape[0]):
        decay = torch.exp(-torch.exp(w[t]))
        state = state * decay + (state @ a[t])[:, None] * b[t] + v[t][:, None] * k[t]
        out.append(state @ r[t])
    return torch.stack(out)


def rwkv_kernel(r, w, k, v, a, b, order=False, once=False, plus=False, turned=False, kind=None, last=False, swap=False):
    decay = torch.exp(w if once else -torch.exp(w))
    state, out = torch.zeros(v.shape[1], k.shape[1]), []
    for t in range(r.shape[0]):
        shown = state
        if order:  # the removal looks at the state that has decayed
            state = state * decay[t]
            state = state + torch.outer((state * a[t]).sum(-1), b[t])
        else:
            gone = (state * a[t]).sum(-1)
            x = b[t] * (-1 if plus else 1)
            state = torch.addcmul(state * (decay[t][:, None] if turned else decay[t]), gone[:, None], x[None])
        state = hold(state + v[t][:, None] * (k[t - 1 if last else t]), kind)
        out.append(((shown if swap else state) * r[t]).sum(-1))
    return torch.stack(out)


def rwkv_args(d):
    u = F.normalize(d(40, 20), dim=-1)
    return d(40, 20), d(40, 20, shift=-1.5, scale=0.5), d(40, 20), d(40, 20), -u, u * d.rand(40, 20)


add(
    "rwkv7",
    rwkv,
    rwkv_args,
    rwkv_kernel,
    right={"products by rows": {}, "in double": wide(rwkv)},
    wrong={
        "the removal looks at the state that has decayed": {"order": True},
        "the removal adds": {"plus": True},
        "the decay is of the values' side": {"turned": True},
        "the state is kept in bfloat16": {"kind": bf},
        "the output is read before the step": {"swap": True},
        "keys are those of the step before": {"last": True},
    },
)

# Gated delta rule.


def delta(q, k, v, g, beta):
    q, k, v = up(q), up(k), up(v)
    q, k = F.normalize(q, dim=-1) * q.shape[-1] ** -0.5, F.normalize(k, dim=-1)
    state, out = q.new_zeros(k.shape[1], v.shape[1]), []
    for t in range(q.shape[0]):
        state = state * torch.exp(g[t])
        state = state + k[t][:, None] * (beta[t] * (v[t] - k[t] @ state))
        out.append(q[t] @ state)
    return torch.stack(out)


def delta_kernel(
    q, k, v, g, beta, chunk=8, normed=True, scale=True, removed=True, late=False, kind=None, gate=True, weak=False
):
    if normed:
        q, k = (t * torch.rsqrt((t * t).sum(-1, keepdim=True)) for t in (q, k))
    q = q * q.shape[-1] ** -0.5 if scale else q
    state, out = torch.zeros(k.shape[1], v.shape[1]), []
    for s in range(0, q.shape[0], chunk):
        qs, ks, vs, bs = (t[s : s + chunk] for t in (q, k, v, beta))
        total = g[s : s + chunk].cumsum(0) if gate else torch.zeros_like(g[s : s + chunk])
        n = len(qs)
        i, j = index(n, n)
        gap = torch.exp((total[:, None] - total[None]).masked_fill(j > i, -INF))
        inner = bs[:, None] * (ks @ ks.mT) * gap * (j < i)
        seen = torch.exp(total)[:, None]
        w = bs[:, None] * (vs - (ks * (1 if weak else seen)) @ state) if removed else bs[:, None] * vs
        u = torch.linalg.solve_triangular(torch.eye(n) + inner, w, upper=False, unitriangular=True) if not late else w
        out.append((qs * seen) @ state + (qs @ ks.mT * gap) @ u)
        state = state * torch.exp(total[-1]) + (ks * torch.exp(total[-1] - total)[:, None]).mT @ u
        state = hold(state, kind)
    return torch.cat(out)


for form, kind in (("", None), ("_bf16", bf)):
    add(
        "gated_delta" + form,
        delta if kind is None else lambda *a: delta(*a).to(a[0].dtype),
        lambda d, kind=kind: (
            d(44, 16, dtype=kind or torch.float32),
            d(44, 16, dtype=kind or torch.float32),
            d(44, 24, dtype=kind or torch.float32),
            -d.rand(44) * 0.2,
            d.rand(44),
        ),
        delta_kernel,
        dtype=kind,
        right={"chunks of 8, a triangle solved": {}, "chunks of 11": {"chunk": 11}},
        wrong={
            "keys and queries are not normed": {"normed": False},
            "the decay is left out": {"gate": False},
            "rows of a chunk do not correct each other": {"late": True},
        }
        if kind
        else {
            "queries are not scaled": {"scale": False},
            "what the state holds is not removed": {"removed": False},
            "the state that is removed has not decayed": {"weak": True},
            "the states between chunks are in float16": {"kind": hf},
        },
    )

# xLSTM: matrix memory with exponential gates, a normaliser and a running maximum.


def mlstm(q, k, v, i, f):
    q = q * q.shape[-1] ** -0.5
    c, n, m, out = q.new_zeros(k.shape[1], v.shape[1]), q.new_zeros(k.shape[1]), q.new_zeros(()), []
    for t in range(q.shape[0]):
        ft = F.logsigmoid(f[t])
        top = torch.maximum(ft + m, i[t])
        c = torch.exp(ft + m - top) * c + torch.exp(i[t] - top) * k[t][:, None] * v[t]
        n = torch.exp(ft + m - top) * n + torch.exp(i[t] - top) * k[t]
        m = top
        out.append(q[t] @ c / torch.maximum((q[t] @ n).abs(), torch.exp(-m)))
    return torch.stack(out)


def mlstm_kernel(q, k, v, i, f, floor="m", sig=True, absolute=True, scale=True, normal=True, begin=0.0):
    q = q * (q.shape[-1] ** -0.5 if scale else 1)
    lf = (F.logsigmoid(f) if sig else -F.softplus(f)).cumsum(0)
    a, b = index(len(q), len(q))
    gap = (lf[:, None] - lf[None] + i[None]).masked_fill(b > a, -INF)
    top = torch.maximum(gap.amax(-1), lf + begin)
    s = q @ k.mT * torch.exp(gap - top[:, None])
    total = s.sum(-1)
    total = total.abs() if absolute else total
    low = torch.exp(-top) if floor == "m" else torch.ones_like(top)
    return (s @ v) / (torch.maximum(total, low) if normal else low)[:, None]


add(
    "mlstm",
    mlstm,
    lambda d: (d(48, 16), d(48, 16), d(48, 20), d(48), d(48, shift=2.0)),
    mlstm_kernel,
    right={"all rows at once": {}, "in double": wide(mlstm)},
    wrong={
        "forget gates take the sigmoid from the other side": {"sig": False},
        "the normaliser is at least one, whatever the maximum": {"floor": 1},
        "the normaliser has no absolute value": {"absolute": False},
        "queries are not scaled": {"scale": False},
        "the normaliser is left out": {"normal": False},
    },
)

# Griffin's gated recurrence, and GRU cells.


def griffin(x, r, i, lam):
    a = torch.exp(-8.0 * F.softplus(lam) * torch.sigmoid(r))
    u = torch.sqrt(1 - a * a) * torch.sigmoid(i) * x
    h, out = torch.zeros_like(x[0]), []
    for t in range(x.shape[0]):
        h = a[t] * h + u[t]
        out.append(h)
    return torch.stack(out)


def griffin_kernel(x, r, i, lam, power=8.0, root=True, square=True, kind=None, gate=True, tail=False, swap=False):
    r, i = (i, r) if swap else (r, i)
    log = -power * F.softplus(lam) / (1 + torch.exp(-r))
    a = torch.exp(log)
    rest = -torch.expm1(2 * log) if square else -torch.expm1(log)
    u = (torch.sqrt(rest) if root else rest) * x * (torch.sigmoid(i) if gate else 1)
    h, step = u, 1
    while step < len(x):  # doubling: pairs (a, h) that are merged with those `step` before
        h = hold(h + a * F.pad(h, (0, 0, step, 0))[:-step], kind)
        a = a * F.pad(a, (0, 0, step, 0), value=1.0)[:-step]
        step *= 2 if not tail or step < 16 else 1000
    return h


add(
    "griffin_scan",
    griffin,
    lambda d: (d(60, 32), d(60, 32), d(60, 32), d(32, shift=-3.0)),
    griffin_kernel,
    right={"by doubling": {}, "in double": wide(griffin)},
    wrong={
        "the input's root is left out": {"root": False},
        "one minus the decay, not its square": {"square": False},
        "the two gates are swapped": {"swap": True},
        "the scan stops after 32 steps": {"tail": True},
        "partial states are rounded to bfloat16": {"kind": bf},
        "the factor is 4": {"power": 4.0},
    },
)


def gru(x, h, w, u, b):
    r1, z1, n1 = (x @ w.mT + b).chunk(3, -1)
    r2, z2, n2 = (h @ u.mT).chunk(3, -1)
    z = torch.sigmoid(z1 + z2)
    return (1 - z) * torch.tanh(n1 + torch.sigmoid(r1 + r2) * n2) + z * h


def gru_kernel(x, h, w, u, b, order=(0, 1, 2), early=False, swap=False, bias=True, reset=True):
    one, two = x @ w.mT + (b if bias else 0), h @ u.mT
    (r1, z1, n1), (r2, z2, n2) = ([t.chunk(3, -1)[i] for i in order] for t in (one, two))
    r, z = (1 / (1 + torch.exp(-t)) for t in (r1 + r2, z1 + z2))
    if early:  # the reset comes before the product
        n2 = (r * h) @ u.chunk(3)[order[2]].mT
        r = 1
    n = torch.tanh(n1 + (r * n2 if reset else n2))
    return n + z * (h - n) if not swap else h + z * (n - h)


add(
    "gru_cell",
    gru,
    lambda d: (d(25, 40), d(25, 32), d(96, 40, scale=0.2), d(96, 32, scale=0.2), d(96, scale=0.2)),
    gru_kernel,
    right={"a lerp at the end": {}, "in double": wide(gru)},
    wrong={
        "reset and update gates are swapped": {"order": (1, 0, 2)},
        "the reset comes before the product": {"early": True},
        "the update gate weighs from the other side": {"swap": True},
        "the bias is left out": {"bias": False},
    },
)
