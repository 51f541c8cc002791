# SPDX-License-Identifier: Apache-2.0
"""Set N: steps of optimisers, and sums over many tensors."""

import torch

from .blind import bf, hf, narrow
from .blind_eleventh_a import eleventh
from .blind_eleventh_d import lanes, rough_rsqrt
from .blind_ninth_a import bad, ok

# ------------------------------------------------------------------ AdamW


def adam_args(d):
    return d(40, 130), d(40, 130, scale=1e-3), d(40, 130, scale=1e-3), d.rand(40, 130) ** 4 * 1e-6 + 1e-10


@eleventh(adam_args)
def eleventh_adamw(p, g, m, v):
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    step = (m / (1 - 0.9**7)) / ((v / (1 - 0.999**7)).sqrt() + 1e-8)
    return p * (1 - 1e-3 * 0.1) - 1e-3 * step, m, v


def adamw(
    p,
    g,
    m,
    v,
    t=7,
    coupled=False,
    eps_in=False,
    keep=None,
    wide=130,
    v_of=None,
    b2=0.999,
    decay=0.1,
    root=torch.sqrt,
    lr=1e-3,
):
    g = g + decay * p if coupled else g
    new_m, new_v = m + 0.1 * (g - m), v + (1 - b2) * (g * g - v)
    new_v = v_of(new_v) if v_of else new_v
    c1, c2 = 1 - 0.9**t, 1 - b2**t
    den = (new_v / c2 + 1e-8).sqrt() if eps_in else root(new_v) / c2**0.5 + 1e-8
    out = (p if coupled else p - lr * decay * p) - lr / c1 * new_m / den
    on = torch.arange(130) < wide
    return torch.where(on, out, p), new_m, v if keep else new_v


ok(
    eleventh_adamw,
    adamw,
    corrections_in_the_step={},
    in_double=lambda *a: adamw(*(t.double() for t in a)),
)
bad(
    eleventh_adamw,
    adamw,
    {
        "decay is added to the gradient": {"coupled": True},
        "the correction is that of the step before": {"t": 6},
        "the second moment is not stored": {"keep": True},
        # v of 1e-10 at the least: its root is 1e-5
        "hides: epsilon is under the root": {"eps_in": True},
        # 1e-4 of a weight
        "hides: there is no decay": {"decay": 0.0},
        # the step is 1e-3 of a weight and five bits better than half of it matters
        "hides: the second moment in bfloat16": {"v_of": narrow},
        "hides: the last column of weights is not stepped": {"wide": 129},
    },
)


# ---- AdamW with states of eight bits


def eight_args(d):
    codes = (d.ints(255, 16, 256) - 127).to(torch.int8)
    return (
        d(16, 256),
        d(16, 256, scale=1e-2),
        codes,
        d.rand(16, 4) * 1e-2,
        d.ints(256, 16, 256).to(torch.uint8),
        d.rand(16, 4) * 1e-2,
    )


def wide8(codes, scale, by):
    return codes.to(scale.dtype) / by * scale.repeat_interleave(64, 1)


@eleventh(eight_args)
def eleventh_eight(p, g, mc, ms, vc, vs):
    m = 0.9 * wide8(mc, ms, 127) + 0.1 * g
    r = wide8(vc, vs, 255)
    v = 0.99 * r * r + 0.01 * g * g
    out = p - 1e-2 * m / (v.sqrt() + 1e-8)
    s, u = m.view(16, 4, 64).abs().amax(-1), v.sqrt().view(16, 4, 64).amax(-1)
    return out, m / s.repeat_interleave(64, 1) * 127, s, u


def eight(
    p,
    g,
    mc,
    ms,
    vc,
    vs,
    by=127,
    square=True,
    block=None,
    signed=True,
    ms_of=None,
    first=64,
    v_of=None,
    stale=False,
    beta=0.9,
):
    ms = ms_of(ms) if ms_of else ms
    m0 = mc.float() * (ms / by).repeat_interleave(64, 1)
    m = beta * m0 + (1 - beta) * g
    r = vc.float() * (vs / 255).repeat_interleave(64, 1)
    v = 0.99 * (r * r if square else r) + 0.01 * g * g
    v = v_of(v) if v_of else v
    out = p - 1e-2 * m / (v.sqrt() + 1e-8)
    part = (m0 if stale else m).view(16, 4, 64)[..., :first]
    s = (part.abs() if signed else part).amax(-1)
    return out, m * (127 / s.repeat_interleave(64, 1)), s, v.view(16, 4, 64).amax(-1).sqrt()


ok(
    eleventh_eight,
    eight,
    scales_divided_first={},
    in_double=lambda p, g, mc, ms, vc, vs: eight(p.double(), g.double(), mc, ms.double(), vc, vs.double()),
)
bad(
    eleventh_eight,
    eight,
    {
        "codes are divided by 128": {"by": 128},
        "the second state is not squared": {"square": False},
        "the new scale is that of the old state": {"stale": True},
        "the scale is the greatest without its sign": {"signed": False},
        "hides: scales in half precision": {"ms_of": lambda s: narrow(s, hf)},
        "hides: the greatest leaves out four lanes": {"first": 60},
        "hides: the second moment in half precision": {"v_of": lambda v: narrow(v, hf)},
    },
)


# ------------------------------------------------------------------ Lion, weights of bfloat16


@eleventh(lambda d: (d(50, 200, dtype=bf), d(50, 200, scale=1e-3, dtype=bf), d(50, 200, scale=1e-3)))
def eleventh_lion(p, g, m):
    u = torch.sign(0.9 * m + 0.1 * g.to(m.dtype))
    return (p.to(m.dtype) * (1 - 1e-2 * 0.1) - 1e-2 * u).to(bf), 0.99 * m + 0.01 * g.to(m.dtype)


def lion(p, g, m, b1=0.9, b2=0.99, order=False, zero=False, state=None, cols=200, decay=0.1, u_of=None):
    p, g = p.float(), g.float()
    new = m + (1 - b2) * (g - m)
    c = new if order else b1 * m + (1 - b1) * g
    u = u_of(c) if u_of else torch.sign(c)
    out = p - 1e-2 * (u + decay * p)
    new = state(new) if state else new
    return torch.where(torch.arange(200) < cols, out, p).to(bf), new


ok(
    eleventh_lion,
    lion,
    None,
    decay_in_the_step={},
    sign_by_comparison={"u_of": lambda c: (c > 0).float() - (c < 0).float()},
)
bad(
    eleventh_lion,
    lion,
    {
        "the sign is that of the new state": {"order": True},
        "the two rates are swapped": {"b1": 0.99, "b2": 0.9},
        "the last 64 columns are not stepped": {"cols": 136},
        "the state in bfloat16": {"state": narrow},
        "hides: the state in half precision": {"state": lambda m: narrow(m, hf)},
        # small updates give no sign
        "hides: updates below 1e-4 are zero": {"u_of": lambda c: torch.sign(c) * (c.abs() > 1e-4)},
        "hides: the rate of the state is 0.9897": {"b2": 0.9897},
    },
    None,
)


# ------------------------------------------------------------------ Adafactor


@eleventh(lambda d: (d(60, 90), d(60, 90, scale=1e-2), d.rand(60) * 1e-4, d.rand(90) * 1e-4))
def eleventh_factor(p, g, r, c):
    sq = g * g + 1e-30
    r, c = 0.99 * r + 0.01 * sq.mean(1), 0.99 * c + 0.01 * sq.mean(0)
    u = g * torch.rsqrt(r / r.mean())[:, None] * torch.rsqrt(c)
    u = u / (u.square().mean().sqrt()).clamp(min=1.0)
    lr = 1e-2 * p.square().mean().sqrt().clamp(min=1e-3)
    return p - lr * u, r, c


def factor(
    p,
    g,
    r,
    c,
    old=False,
    clip=True,
    swap=False,
    rel=True,
    norm=True,
    rows=60,
    root=torch.rsqrt,
    kind=None,
    cut=1.0,
    sums=None,
):
    sq = g * g + 1e-30
    r2, c2 = r + 0.01 * (lanes(sq)[:, 0] / 90 - r), c + 0.01 * (sq[:rows].sum(0) / 60 - c)
    r2, c2 = (narrow(r2, kind), narrow(c2, kind)) if kind else (r2, c2)
    a, b = (r, c) if old else (r2, c2)
    if swap:
        b = b.flip(0)
    v = a[:, None] * b[None] / (a.mean() if norm else 1.0)
    u = g * root(v)
    rms = (sums(u) if sums else u.square().sum()) / 5400
    u = u / rms.sqrt().clamp(min=cut) if clip else u
    lr = 1e-2 * (p.square().mean().sqrt().clamp(min=1e-3) if rel else 1.0)
    return p - lr * u, r2, c2


ok(
    eleventh_factor,
    factor,
    outer_product={},
    row_by_row={"sums": lambda u: u.square().sum(1).sum()},
    by_the_square_root={"root": lambda v: 1 / v.sqrt()},
)
bad(
    eleventh_factor,
    factor,
    {
        "updates are not clipped": {"clip": False},
        "the factors of the step before": {"old": True},
        "rows are not divided by their mean": {"norm": False, "clip": False},
        "the last four rows are not in the columns' means": {"rows": 56},
        # the step is 1e-2 of a weight
        "hides: the step is not relative to the weights": {"rel": False},
        "hides: the root by one round of Newton": {"root": rough_rsqrt},
        "hides: factors in bfloat16": {"kind": bf},
        "hides: one row less in the columns' means": {"rows": 59},
    },
)


# ------------------------------------------------------------------ LAMB


@eleventh(lambda d: (d(70, 64), d(70, 64, scale=1e-2), d(70, 64, scale=1e-3), d.rand(70, 64) * 1e-4 + 1e-8))
def eleventh_lamb(p, g, m, v):
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    u = m / (v.sqrt() + 1e-6) + 0.01 * p
    a, b = p.norm(), u.norm()
    return p - 1e-2 * torch.where((a > 0) & (b > 0), a / b, torch.ones_like(a)) * u, m, v


def lamb(
    p, g, m, v, decay=0.01, late=False, norm=None, flip=False, one=False, eps=1e-6, rows=False, m_of=None, cap=None
):
    m, v = m * 0.9 + g * 0.1, v + 0.001 * (g * g - v)
    m = m_of(m) if m_of else m
    u = m / (v.sqrt() + eps)
    u = u + decay * p if not late else u
    n = norm or (lambda x: lanes(lanes(x.square()).T).sqrt())
    a, b = (p.norm(dim=1, keepdim=True), u.norm(dim=1, keepdim=True)) if rows else (n(p), n(u))
    t = b / a if flip else a / b
    t = t.clamp(max=cap) if cap else t
    return p - 1e-2 * (1.0 if one else t) * (u + decay * p if late else u), m, v


ok(eleventh_lamb, lamb, by_lanes={}, by_one_sum={"norm": lambda x: (x * x).sum().sqrt()})
bad(
    eleventh_lamb,
    lamb,
    {
        "there is no trust ratio": {"one": True},
        "a ratio for each row": {"rows": True},
        "the ratio is turned over": {"flip": True},
        # the norm of u is that without decay: it changes by a per cent
        "hides: the norm leaves out the decay": {"late": True},
        "hides: norms leave out the last row": {"norm": lambda x: x[:69].norm()},
        "hides: the ratio in bfloat16": {"norm": lambda x: narrow(x.norm())},
        "hides: epsilon is 1e-5": {"eps": 1e-5},
    },
)


# ------------------------------------------------------------------ clipping by the norm of all


@eleventh(lambda d: (d(40, 50), d(7), d(30, 33, scale=5), d(1, 3)))
def eleventh_clip(a, b, c, e):
    n = torch.stack([t.square().sum() for t in (a, b, c, e)]).sum().sqrt()
    k = (1.0 / (n + 1e-6)).clamp(max=1.0)
    return a * k, b * k, c * k, e * k, n


def clip(a, b, c, e, alone=False, skip=0, kind=None, chunk=None, only=None, cap=1.0, n_of=None):
    ts = (a, b, c, e)
    total = torch.zeros(())
    for i, t in enumerate(ts):
        if only is None or i in only:
            f = t.flatten()
            for j in range(
                0, (f.numel() - skip) // (chunk or 1) * (chunk or 1) if skip else f.numel(), chunk or f.numel()
            ):
                total = total + f[j : j + (chunk or f.numel())].square().sum()
                total = narrow(total, kind) if kind else total
    n = total.sqrt()
    n = n_of(n) if n_of else n
    k = [cap / (t.norm() + 1e-6) if alone else cap / (n + 1e-6) for t in ts]
    return *(t * x.clamp(max=1.0) for t, x in zip(ts, k, strict=True)), n


ok(eleventh_clip, clip, one_sum_each={}, by_chunks_of_100={"chunk": 100}, by_chunks_of_16={"chunk": 16})
bad(
    eleventh_clip,
    clip,
    {
        "each tensor by its own norm": {"alone": True},
        "the third tensor is left out": {"only": (0, 1, 3)},
        # one tensor of three numbers: a ten thousandth
        "hides: the last tensor is left out": {"only": (0, 1, 2)},
        "hides: squares summed in bfloat16": {"kind": bf, "chunk": 100},
        "hides: the norm in half precision": {"n_of": lambda n: narrow(n, hf)},
        # the tails of 2000, 7, 990 and 3 that fill no chunk of 64
        "hides: tails that fill no chunk of 64 are left out": {"skip": 1, "chunk": 64},
    },
)


# ---- Shampoo-like: exponents of a Gram matrix, an average


@eleventh(lambda d: (d(24, 60), torch.eye(24) * 0.5, d(60), d(60)))
def eleventh_gram(g, l, p, avg):
    new = 0.95 * l + 0.05 * (g @ g.T)
    return new, 0.999 * avg + 0.001 * p


def gram(g, l, p, avg, mean=False, low=False, step=20, kind=None, rate=0.001, avg_of=None, tri=True):
    t = torch.zeros(24, 24)
    for k in range(0, 60, step):
        t = t + g[:, k : k + step] @ g[:, k : k + step].T
        t = narrow(t, kind) if kind else t
    t = torch.tril(t) if low else t
    new = l + 0.05 * ((t / 60 if mean else t) - l)
    a = avg + rate * (p - avg)
    return new, avg_of(a) if avg_of else a


ok(eleventh_gram, gram, by_tiles_of_20={}, at_once={"step": 60}, by_tiles_of_4={"step": 4})
bad(
    eleventh_gram,
    gram,
    {
        "divided by the columns": {"mean": True},
        "the upper half is not filled": {"low": True},
        "the average goes the other way": {"rate": 0.999},
        # what is added is less than half a unit of bfloat16
        "hides: the average in bfloat16": {"avg_of": narrow},
        "hides: the average's rate is 0.00098": {"rate": 1 / 1024},
        "hides: the Gram matrix in half precision": {"kind": hf, "step": 4},
    },
)
