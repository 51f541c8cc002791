# SPDX-License-Identifier: Apache-2.0
"""Set M: optimizers and what stands around them."""

import torch

from .blind import bf, hf, narrow
from .blind_ninth_a import bad, ok
from .blind_tenth_a import tenth


# ------------------------------------------------------------------ AdamW on bfloat16 parameters, float32 state


def adam_args(d):
    size = torch.exp2(-torch.arange(60.0) / 6)[:, None]
    g = (d(60, 40, scale=1e-2) * size).to(bf)
    g[5] = 0
    return d(60, 40, dtype=bf, scale=1e-2), g, d(60, 40, scale=1e-2) * size, d.rand(60, 40) * 1e-4 * size**2


@tenth(adam_args)
def tenth_adamw16(p, g, m, v):
    p, g = p.float(), g.float()
    p = p * (1 - 0.01 * 0.1)
    m, v = m.lerp(g, 0.1), 0.95 * v + 0.05 * g * g
    mh, vh = m / (1 - 0.9**7), v / (1 - 0.95**7)
    return (p - 0.01 * mh / (vh.sqrt() + 1e-8)).to(bf), m, v


def adamw16(p, g, m, v, b2=0.95, step=7, decay=True, l2=False, inside=False, g_of=None, v_of=None, lr=0.01, ema=0.1):
    p, g = p.float(), g.float()
    g = g_of(g) if g_of else g
    g = g + 0.1 * p if l2 else g
    m = m + ema * (g - m)
    v = v - (1 - b2) * (v - g.square())
    v = v_of(v) if v_of else v
    c1, c2 = 1 - 0.9**step, 1 - 0.95**step
    root = (v / c2 + 1e-8).sqrt() if inside else v.sqrt() / c2**0.5 + 1e-8
    new = p - lr * 0.1 * p * decay - (lr / c1) * (m / root)
    return new.to(bf), m, v


ok(tenth_adamw16, adamw16, None, corrections_folded_into_the_rate={})
bad(
    tenth_adamw16,
    adamw16,
    {
        # bias corrections of the step before
        "the step is counted from zero": {"step": 6},
        # L2 in the gradient
        "decay goes through the gradient": {"l2": True, "decay": False},
        # eps under the root
        "hides: eps under the root": {"inside": True},
        # 0.999 for 0.95
        "the second decay is 0.999": {"b2": 0.999},
        # squares of the gradient in bfloat16
        "hides: the second moment is kept in bfloat16": {"v_of": narrow},
        # flushes small v
        "hides: second moments below 1e-7 are flushed": {"v_of": lambda v: torch.where(v < 1e-7, 0.0, v)},
        # gradient scaled by 1 - 2^-8
        "hides: the decay of the first moment is 0.9004": {"ema": 0.0996},
    },
    None,
)


# ------------------------------------------------------------------ Muon, the whole step


@tenth(lambda d: (d(32, 48), d(32, 48), d(32, 48, scale=0.5)))
def tenth_muon(p, g, b):
    b = 0.95 * b + g
    u = g + 0.95 * b
    x = u / (u.norm() + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return p - 0.02 * max(1, 32 / 48) ** 0.5 * x, b


def muon(p, g, b, steps=5, nesterov=True, c=(3.4445, -4.7750, 2.0315), kind=None, tall=1.0, turn=False, norm=None):
    b = 0.95 * b + g
    u = g + 0.95 * b if nesterov else b
    x = u / (norm(u) if norm else u.square().sum().sqrt() + 1e-7)
    for _ in range(steps):
        x = narrow(x, kind) if kind else x
        a = x @ x.T if not turn else x.T @ x
        w = c[1] * a + c[2] * (a @ a)
        x = c[0] * x + (w @ x if not turn else x @ w)
    return p - 0.02 * tall * x, b


ok(tenth_muon, muon, rows={}, columns={"turn": True})
bad(
    tenth_muon,
    muon,
    {
        # four steps
        "four steps": {"steps": 4},
        # no nesterov
        "no lookahead": {"nesterov": False},
        # sqrt(48 / 32)
        "scaled by the other aspect ratio": {"tall": (48 / 32) ** 0.5},
        # iterations in bfloat16
        "hides: iterations in bfloat16": {"kind": bf},
        # one coefficient
        "hides: a coefficient is 4.7775": {"c": (3.4445, -4.7775, 2.0315)},
        # the sum of squares of rows' halves
        "hides: the norm leaves out the last row": {"norm": lambda u: u[:-1].square().sum().sqrt()},
    },
)


# ------------------------------------------------------------------ LAMB


@tenth(lambda d: (d(50, 30, scale=0.1), d(50, 30, scale=1e-2), d(50, 30, scale=1e-2), d.rand(50, 30) * 1e-4))
def tenth_lamb(p, g, m, v):
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    u = m / (v.sqrt() + 1e-6) + 0.01 * p
    return p - 0.1 * p.norm() / u.norm() * u, m, v


def lamb(p, g, m, v, norm=None, decay=0.01, most=None, trust=True, rows=5):
    m, v = m - 0.1 * (m - g), v - 0.001 * (v - g * g)
    u = m / (v.sqrt() + 1e-6) + decay * p
    norm = norm or (lambda x: sum(r.square().sum() for r in x.chunk(rows)).sqrt())
    r = norm(p) / norm(m / (v.sqrt() + 1e-6) if trust == "before" else u) if trust else 1.0
    r = r.clamp(max=most) if most else r
    return p - 0.1 * r * u, m, v


ok(tenth_lamb, lamb, norms_by_ten_rows={}, norms_by_one_row={"rows": 50})
bad(
    tenth_lamb,
    lamb,
    {
        # no trust ratio
        "no trust ratio": {"trust": False},
        # a norm for each row
        "norms are those of rows": {"norm": lambda x: x.norm(dim=-1, keepdim=True)},
        # ratio before decay
        "hides: the update's norm is taken before the decay": {"trust": "before"},
        # norms of the first 1408 elements
        "hides: norms leave the last 20 elements out": {"norm": lambda x: x.flatten()[:-20].norm()},
        # partial sums of squares in half precision
        "hides: norms are kept in half precision": {"norm": lambda x: narrow(x.norm()[None], hf)[0]},
    },
)


# ------------------------------------------------------------------ centred RMSprop: a difference that cancels


def centred_args(d):
    g = 0.01 + d(40, 25, scale=1e-4)
    return d(40, 25), g, 1e-4 + d.rand(40, 25) * 1e-6, 0.00995 + d(40, 25, scale=1e-5), d(40, 25)


@tenth(centred_args)
def tenth_centred(p, g, v, a, b):
    v, a = 0.99 * v + 0.01 * g * g, 0.99 * a + 0.01 * g
    b = 0.9 * b + g / ((v - a * a).sqrt() + 1e-8)
    return p - 1e-3 * b, b


def centred(p, g, v, a, b, kind=None, square=True, eps=1e-8, fused=True, order=0, centre=1.0):
    v = v + 0.01 * (g * g - v) if order else 0.99 * v + 0.01 * (g * g)
    a = a + 0.01 * (g - a) if order else 0.99 * a + 0.01 * g
    if kind:
        v, a = narrow(v, kind), narrow(a, kind)
    gap = (v.double() - a.double() * a.double()).float() if fused else v - a * a
    gap = v - centre * a * a if centre != 1 else gap
    b = 0.9 * b + g / (gap.sqrt() + eps if square else (gap + eps).sqrt())
    return p - 1e-3 * b, b


ok(tenth_centred, centred, fused={}, not_fused={"fused": False}, fused_towards_the_gradient={"order": 1})
bad(
    tenth_centred,
    centred,
    {
        # not centred
        "the mean is not taken off": {"centre": 0.0},
        # eps under the root: 1e-8 beside gaps of 1e-6
        "hides: eps under the root": {"square": False},
        # a decay folded into the mean's square
        "hides: 0.9999 of the squared mean is taken off": {"centre": 0.9999},
        # bfloat16 moments: the difference is noise
        "moments in bfloat16": {"kind": bf},
    },
)


# ------------------------------------------------------------------ AMSGrad, Adagrad, foreach clipping


@tenth(lambda d: (d(30, 20), d(30, 20), d(30, 20), d.rand(30, 20), d.rand(30, 20)))
def tenth_amsgrad(p, g, m, v, top):
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    top = torch.maximum(top, v)
    return p - 0.01 / (1 - 0.9**3) * m / (top.sqrt() / (1 - 0.99**3) ** 0.5 + 1e-8), m, v, top


def amsgrad(p, g, m, v, top, old=False, none=False, kept=None, c=True):
    m, new = m + 0.1 * (g - m), v + 0.01 * (g * g - v)
    top = torch.maximum(top, v if old else new) if not none else new
    c2 = (1 - 0.99**3) ** 0.5 if c else 1.0
    return p - 0.01 / (1 - 0.9**3) * m / (top.sqrt() / c2 + 1e-8), m, new, kept(top, new) if kept else top


ok(tenth_amsgrad, amsgrad, towards_the_gradient={})
bad(
    tenth_amsgrad,
    amsgrad,
    {
        # old v
        "the maximum is of the second moment before the step": {"old": True},
        # plain Adam
        "the maximum is not used": {"none": True},
        # the maximum is not corrected
        "the second correction is left out": {"c": False},
        # the maximum is used but not stored where it grew
        "hides: where the second moment is the greater it is not kept": {
            "kept": lambda t, n: torch.where(t == n, t * (1 - 2**-9), t)
        },
    },
)


@tenth(lambda d: (d(40, 20, dtype=hf), d(300, dtype=hf), d(9, 9, dtype=hf, scale=30)))
def tenth_clip16(a, b, c):
    norm = torch.stack([x.float().square().sum() for x in (a, b, c)]).sum().sqrt()
    f = (1.0 / (norm + 1e-6)).clamp(max=1.0)
    return tuple((x.float() * f).to(hf) for x in (a, b, c)) + (norm,)


def clip16(a, b, c, kind=None, each=False, some=(0, 1, 2), last=None, divide=False):
    ts = (a, b, c)
    squares = [narrow(x.float().square().sum(), kind) if kind else x.float().norm().square() for x in ts]
    squares = [last(x) for x in ts] if last else squares
    norm = torch.stack([s for i, s in enumerate(squares) if i in some]).sum().sqrt()
    f = lambda i: 1.0 / (squares[i].sqrt() + 1e-6 if each else norm + 1e-6)
    out = tuple((x.float() / (1 / f(i)) if divide else x.float() * f(i)).to(hf) for i, x in enumerate(ts))
    return out + (norm,)


ok(tenth_clip16, clip16, None, norms_of_norms={})
bad(
    tenth_clip16,
    clip16,
    {
        # each by itself
        "each tensor is clipped by its own norm": {"each": True},
        # the first is left out
        "hides: the norm leaves the vector out": {"some": (0, 2)},
        # squares in half precision overflow
        "squares are taken in half precision": {"last": lambda x: x.square().sum().float()},
        # sums in bfloat16
        "hides: sums of squares in bfloat16": {"kind": bf},
    },
    None,
)


# ------------------------------------------------------------------ an 8-bit state: absmax blocks


@tenth(lambda d: (d(4096, scale=1e-3), (d.ints(255, 4096) - 127).to(torch.int8), d.rand(16) * 1e-2))
def tenth_state8(g, codes, scale):
    m = codes.view(16, 256).float() * scale[:, None] / 127
    m = 0.9 * m + 0.1 * g.view(16, 256)
    top = m.abs().amax(-1)
    return m.flatten(), top


def state8(g, codes, scale, by=127, top=None, ema=0.9, turn=None):
    s = turn(scale) if turn else scale
    m = codes.view(16, 256).float() * (s[:, None] / by)
    m = ema * m + (1 - ema) * g.view(16, 256)
    return m.flatten(), (top(m) if top else m.abs().amax(-1))


ok(tenth_state8, state8, scale_divided_first={})
bad(
    tenth_state8,
    state8,
    {
        # / 128
        "divided by 128": {"by": 128},
        # signed maximum
        "hides: the greatest is that of the signed values": {"top": lambda m: m.amax(-1)},
        # scales of the next block
        "scales are rolled by a block": {"turn": lambda s: s.roll(1)},
        # the greatest over three warps of four
        "hides: the greatest leaves a quarter of a block out": {"top": lambda m: m[:, :192].abs().amax(-1)},
        # scales in bfloat16
        "hides: scales in bfloat16": {"turn": narrow},
    },
)
