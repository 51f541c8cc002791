# SPDX-License-Identifier: Apache-2.0
"""Set L: optimizers, clipping and loss scaling."""

import torch

from .blind import bf, hf, narrow
from .blind_ninth_a import bad, ninth, ok

# ------------------------------------------------------------------ AdamW


def adam_args(d):
    g = d(1500, scale=1e-3) * torch.exp(2 * d(1500))
    return d(1500), g, d(1500, scale=1e-3), d.rand(1500) * 1e-6


@ninth(adam_args)
def ninth_adamw(p, g, m, v):
    p = p * (1 - 1e-3 * 0.1)
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    step = 1e-3 / (1 - 0.9**40)
    return p - step * m / (v.sqrt() / (1 - 0.999**40) ** 0.5 + 1e-8), m, v


def adamw(p, g, m, v, lr=1e-3, wd=0.1, t=40, t2=None, eps=1e-8, way="adamw", kind=None, end=1500, lerp=True, clip=None):
    p0, m0, v0 = p, m, v
    if way == "l2":
        g = g + wd * p
        wd = 0.0
    if way != "late":
        p = p * (1 - lr * wd)
    m = m + (g - m) * 0.1 if lerp else 0.9 * m + 0.1 * g
    v = v + (g * g - v) * 0.001 if lerp else 0.999 * v + 0.001 * g * g
    m, v = (m, v) if kind is None else (narrow(m, kind), v)
    c1, c2 = 1 - 0.9**t, 1 - 0.999 ** (t2 or t)
    den = (v / c2 + eps).sqrt() if way == "inside" else (v / c2).sqrt() + eps
    den = (v.sqrt() + eps) / c2**0.5 if way == "before" else den
    u = (m / c1) / den
    u = u if clip is None else u.clamp(-clip, clip)
    p = p - lr * u
    p = p * (1 - lr * wd) if way == "late" else p
    return tuple(torch.cat((a[:end], b[end:])) for a, b in ((p, p0), (m, m0), (v, v0)))


ok(ninth_adamw, adamw, by_differences={}, as_written={"lerp": False})
bad(
    ninth_adamw,
    adamw,
    {
        # L2, not decoupled
        "the decay is added to the gradient": {"way": "l2"},
        # eps inside the root
        "epsilon is inside the root": {"way": "inside"},
        # no bias correction of v
        "the second moment is not corrected": {"t2": 10**9},
        # step + 1
        "hides: the step is one too large": {"t": 41},
        # decay after the update
        "hides: the decay comes after the update": {"way": "late"},
        # m stored in bfloat16
        "hides: the first moment is rounded to bfloat16": {"kind": bf},
        # 1500 = 5 * 256 + 220
        "hides: the last 28 of 1500 are untouched": {"end": 1472},
        # a clip nobody asked for
        "hides: an update is clipped at three": {"clip": 3.0},
    },
)


@ninth(lambda d: (d(600, dtype=bf), d(600, scale=1e-6, dtype=bf), d(600, scale=1e-7), d.rand(600) * 1e-14))
def ninth_adam_tiny(p, g, m, v):
    m = 0.9 * m + 0.1 * g.float()
    v = 0.95 * v + 0.05 * g.float().square()
    return (p.float() - 0.5 * m / (v.sqrt() + 1e-8)).to(bf), m, v


def adam_tiny(p, g, m, v, eps=1e-8, kind=None, flush=0.0, low=False):
    g, p = g.float(), p.float()
    m = m * 0.9 + g * 0.1
    gg = g * g if kind is None else narrow(g * g, kind)
    v = v * 0.95 + gg * 0.05
    v = torch.where(v < flush, 0.0, v)
    u = m / (v.sqrt() + eps)
    u = narrow(u) if low else u
    return (p - 0.5 * u).to(bf), m, v


ok(ninth_adam_tiny, adam_tiny, None, as_written={})
bad(
    ninth_adam_tiny,
    adam_tiny,
    {
        # 1e-12 is zero in half precision
        "hides: squares of gradients vanish in float16": {"kind": hf},
        # small v flushed
        "hides: second moments below 1e-14 are flushed": {"flush": 1e-14},
        # eps 1e-6
        "epsilon is 1e-6": {"eps": 1e-6},
        # bf16 + bf16
        "hides: the update is rounded to bfloat16 before it is taken off": {"low": True},
    },
    None,
)


# ------------------------------------------------------------------ 8-bit states


def blocks(x, n=64):
    return x.repeat_interleave(n)


def eight_args(d):
    table = torch.cat(
        (-torch.logspace(0, -4, 127).sort(descending=True).values, torch.zeros(2), torch.logspace(-4, 0, 127))
    )
    return (
        d(640),
        d(640, scale=0.01),
        d.ints(256, 640),
        d.ints(127, 640) + 129,
        d.rand(10) * 0.02 + 1e-3,
        d.rand(10) * 1e-3 + 1e-5,
        table,
    )


@ninth(eight_args)
def ninth_adam8(p, g, cm, cv, am, av, table):
    m = 0.9 * table[cm] * blocks(am) + 0.1 * g
    v = 0.99 * table[cv] * blocks(av) + 0.01 * g * g
    p = p - 0.01 * m / (v.sqrt() + 1e-6)
    return p, m.view(10, 64).abs().amax(-1), v.view(10, 64).amax(-1)


def adam8(p, g, cm, cv, am, av, table, am_at=blocks, root=False, signed=True, late=False, lost=0):
    m = table[cm] * am_at(am) * 0.9 + g * 0.1
    old = table[cv] * blocks(av)
    v = (table[cv] ** 2 * blocks(av) if root else old) * 0.99 + g * g * 0.01
    p = p - 0.01 * m / (v.sqrt() + 1e-6)
    mm = m.view(10, 64)
    mm = mm[:, : 64 - lost]
    return p, (mm.abs() if signed else mm).amax(-1), (old if late else v).view(10, 64).amax(-1)


ok(ninth_adam8, adam8, as_written={})
bad(
    ninth_adam8,
    adam8,
    {
        # maximum of the block before
        "the scale is that of the block before": {"am_at": lambda a: blocks(a.roll(1))},
        # the codes hold roots
        "second moments are squared": {"root": True},
        # max without abs
        "the new scale is the largest, not the largest in size": {"signed": False},
        # absmax of the state before the update
        "the new scale of v is that before the update": {"late": True},
        # a block's last four do not enter the maximum
        "hides: the last 16 of a block do not enter its maximum": {"lost": 16},
    },
)


# ------------------------------------------------------------------ others


@ninth(lambda d: (d(64, 96), d(64, 96, scale=0.01), d.rand(64) * 1e-4 + 1e-6, d.rand(96) * 1e-4 + 1e-6))
def ninth_adafactor(p, g, row, col):
    u = g * g + 1e-30
    row = 0.99 * row + 0.01 * u.mean(1)
    col = 0.99 * col + 0.01 * u.mean(0)
    v = (row / row.mean())[:, None] * col
    s = g / v.sqrt()
    s = s / (s.square().mean().sqrt() / 0.5).clamp(min=1)
    return p - 0.02 * s, row, col


def adafactor(p, g, row, col, decay=True, clip="rms", axis=(1, 0), limit=0.5, end=64):
    u = g * g
    row = row + (u.sum(axis[0]) / 96 - (row if decay else 0.0)) * 0.01
    col = col + (u[:end].sum(axis[1]) / 64 - col) * 0.01
    r, c = (row / row.mean()).rsqrt(), col.rsqrt()
    s = g * r[:, None] * c
    top = {"rms": (s * s).mean().sqrt(), "max": s.abs().max(), "norm": s.norm()}[clip]
    return p - 0.02 * s * (limit / top).clamp(max=1), row, col


ok(ninth_adafactor, adafactor, reciprocal_roots={})
bad(
    ninth_adafactor,
    adafactor,
    {
        # beta is missing
        "means of rows are not decayed": {"decay": False},
        # clip by max
        "clipped by the largest": {"clip": "max"},
        # 64 rows, the last is not in the column sums
        "hides: the last row is not in the means of columns": {"end": 63},
        # limit 1
        "the limit is one": {"limit": 1.0},
    },
)


@ninth(lambda d: ((d(900) * 64).round() / 64, d(900, scale=0.1), d(900, scale=0.1)))
def ninth_lion(p, g, m):
    u = torch.sign(0.9 * m + 0.1 * g)
    return p * (1 - 1e-3) - 1e-2 * u, 0.99 * m + 0.01 * g


def lion(p, g, m, b=0.9, first=False, wd=1e-3, kind=None, where=0.0):
    new = m + 0.01 * (g - m)
    c = new if first else b * m + (1 - b) * g
    u = torch.sign(c if kind is None else narrow(c, kind))
    u = torch.where(c.abs() < where, 0.0, u)
    return p - (1e-2 * u + wd * p), new


ok(ninth_lion, lion, decay_and_step_together={})
bad(
    ninth_lion,
    lion,
    {
        # sign of the new moment
        "the sign is that of the new moment": {"first": True},
        # another beta: few signs differ
        "hides: the update takes 0.92 for 0.9": {"b": 0.92},
        # a dead zone: few
        "hides: small updates are zero": {"where": 3e-4},
        # decay forgotten
        "hides: the decay is left out": {"wd": 0.0},
    },
)


@ninth(lambda d: (d(300), d(40, 20, scale=2), d(7, scale=30), d(1)))
def ninth_clip_norm(a, b, c, e):
    n = torch.sqrt(a.square().sum() + b.square().sum() + c.square().sum() + e.square().sum())
    s = (1.5 / (n + 1e-6)).clamp(max=1)
    return a * s, b * s, c * s, e * s, n


def clip_norm(a, b, c, e, way="squares", kind=None, lost=0, top=1.5):
    parts = [x.flatten() for x in (a, b, c, e)]
    parts = parts[: 4 - lost]
    norms = [x.norm() for x in parts]
    norms = norms if kind is None else [narrow(n, kind) for n in norms]
    n = {"squares": torch.stack(norms).norm(), "sum": sum(norms), "max": max(norms)}[way]
    s = top / (n + 1e-6)
    return a * s, b * s, c * s, e * s, n


def clip_all(*xs):
    n = torch.cat([x.flatten() for x in xs]).double().square().sum().sqrt().float()
    return *(x * (1.5 / (n + 1e-6)) for x in xs), n


ok(ninth_clip_norm, clip_norm, norm_of_norms={}, all_at_once=clip_all)
bad(
    ninth_clip_norm,
    clip_norm,
    {
        # norms added
        "norms are added": {"way": "sum"},
        # infinity norm of norms
        "the largest norm is taken": {"way": "max"},
        # the scalar parameter is left out: one in 10^4
        "hides: the last parameter does not enter the norm": {"lost": 1},
        # norms in bfloat16
        "hides: norms are stored in bfloat16": {"kind": bf},
        # in float16
        "hides: norms are stored in float16": {"kind": hf},
    },
)


@ninth(lambda d: (d(500, scale=0.01), d(500, scale=0.01)))
def ninth_small_clip(a, b):
    n = torch.sqrt(a.square().sum() + b.square().sum())
    s = (1.5 / (n + 1e-6)).clamp(max=1)
    return a * s, b * s


ok(ninth_small_clip, lambda a, b: (a, b), untouched={})
bad(
    ninth_small_clip,
    lambda a, b: (a, b),
    {
        # no clamp: small gradients grow
        "gradients below the limit are scaled up": lambda a, b: tuple(
            x * (1.5 / torch.cat((a, b)).norm()) for x in (a, b)
        ),
        # a strict bound for the clamp
        "hides: the factor is at most 0.99999": lambda a, b: (a * 0.99999, b * 0.99999),
        # b copied from the first tensor's tail
        "hides: the last of b is not written": lambda a, b: (a, torch.cat((b[:-1], b[-1:] * 0))),
    },
)


def unscale_args(d):
    g = d(4, 200, dtype=hf, scale=900)
    g[1, 30], g[3, 199] = float("inf"), float("nan")
    return g, d(3, 100, dtype=hf), torch.tensor(2.0**-14)


@ninth(unscale_args)
def ninth_unscale(g, h, inv):
    found = torch.stack([(~torch.isfinite(x)).any().to(inv.dtype) for x in (*g, *h)])
    return torch.nan_to_num(g.float() * inv), h.float() * inv, found


def unscale(g, h, inv, bad_=lambda x: ~torch.isfinite(x), low=None, rows=None, end=200):
    found = torch.stack([bad_(x[:end]).any().float() for x in (*g, *h)])
    a, b = g.float() * inv, h.float() * inv
    if low:
        a, b = narrow(a, low), narrow(b, low)
    return torch.nan_to_num(a), b, found


ok(ninth_unscale, unscale, None, as_written={})
bad(
    ninth_unscale,
    unscale,
    {
        # isinf
        "hides: NaN is not found": {"bad_": torch.isinf},
        # isnan
        "hides: infinity is not found": {"bad_": torch.isnan},
        # tail
        "hides: the last eight of a row are not looked at": {"end": 192},
        # scaled in half precision: subnormals
        "hides: scaled in float16, where it is subnormal": {"low": hf},
    },
    None,
)


@ninth(lambda d: (d(400), d(400), d(400)))
def ninth_nesterov(p, g, b):
    g = g + 0.01 * p
    b = 0.9 * b + 0.5 * g
    return p - 0.1 * (g + 0.9 * b), b


def nesterov(p, g, b, damp=0.5, look="new", wd=0.01, decay_in=True):
    h = g + wd * p
    new = 0.9 * b + (1 - damp) * (h if decay_in else g)
    return p - 0.1 * (h + 0.9 * (new if look == "new" else b)), new


ok(ninth_nesterov, nesterov, as_written={})
bad(
    ninth_nesterov,
    nesterov,
    {
        # no dampening
        "not dampened": {"damp": 0.0},
        # old buffer
        "looks ahead with the old buffer": {"look": "old"},
        # the buffer lacks the decay
        "hides: the buffer takes the gradient without the decay": {"decay_in": False},
    },
)


@ninth(lambda d: (d(500, dtype=bf), d(500, dtype=bf)))
def ninth_average(e, p):
    return (e.float() * 0.99 + p.float() * 0.01).to(bf)


ok(ninth_average, lambda e, p: torch.lerp(e.float(), p.float(), 0.01), bf, lerp={})
bad(
    ninth_average,
    lambda e, p: e,
    {
        # bf16: e * 0.99 rounds, then + 0.01 p rounds
        "hides: both products and the sum are rounded to bfloat16": lambda e, p: (
            narrow(e.float() * narrow(torch.tensor(0.99))) + narrow(p.float() * narrow(torch.tensor(0.01)))
        ),
        # too small a step is lost
        "hides: the step is rounded to the unit of the average and cut": lambda e, p: torch.where(
            (p - e).abs().float() * 0.01 < e.abs().float() * 2**-8, e.float(), torch.lerp(e.float(), p.float(), 0.01)
        ),
        # never updated
        "hides: the average never moves": {},
    },
    bf,
)
