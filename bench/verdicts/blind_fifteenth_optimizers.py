# SPDX-License-Identifier: Apache-2.0
"""Set U, the fifteenth: steps of optimizers."""

import math

import torch

from .blind import bf, hf
from .blind_fifteenth_base import add, hold, tiled
from .blind_fourteenth_base import halves, lanes, up, wide

# AdamW at step 7.


def adamw(p, g, m, v):
    m = 0.9 * m + 0.1 * g
    v = 0.95 * v + 0.05 * g * g
    p = p * (1 - 3e-3 * 0.1)
    return p - 3e-3 * (m / (1 - 0.9**7)) / ((v / (1 - 0.95**7)).sqrt() + 1e-8), m, v


def adamw_kernel(
    p,
    g,
    m,
    v,
    step=7,
    both=True,
    coupled=False,
    decay=0.1,
    inside=False,
    b2=0.95,
    old=False,
    root=True,
    kind=None,
    late=False,
    plain=False,
):
    if coupled:
        g = g + decay * p
    was = m
    m = torch.lerp(m, g, 0.1)
    v = hold(b2 * v + (1 - b2) * (g * g), kind)
    size = 3e-3 / (1 - 0.9**step)
    under = v.sqrt() * (1 / math.sqrt(1 - b2**step) if both else 1) if root else v / (1 - b2**step)
    under = torch.sqrt(v / (1 - b2**step) + 1e-8) if inside else under + 1e-8
    move = size * ((was if old else g if plain else m) / under)
    keep = 1 if coupled else 1 - 3e-3 * decay
    return ((p - move) * keep if late else p * keep - move), m, v


add(
    "adamw_step",
    adamw,
    lambda d: (d(1500, scale=0.05), d(1500, scale=1e-3), d(1500, scale=5e-4), (d(1500, scale=1e-3) ** 2)),
    adamw_kernel,
    right={"a lerp, and the corrections folded": {}, "in double": wide(adamw)},
    wrong={
        "the bias correction counts from zero": {"step": 6},
        "the second moment is not corrected": {"both": False},
        "the decay is added to the gradient": {"coupled": True},
        "epsilon stands inside the root": {"inside": True},
        "the second moment's beta is 0.999": {"b2": 0.999},
        "the parameter moves by the momentum of the step before": {"old": True},
        "the root is left out": {"root": False},
        "the second moment is kept in bfloat16": {"kind": bf},
        "the decay is left out": {"decay": 0.0},
    },
)

# Muon: momentum of Nesterov, five steps of Newton and Schulz, a scale for tall matrices.


def newton(x, steps=5, coefficients=(3.4445, -4.7750, 2.0315)):
    a, b, c = coefficients
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        s = x @ x.mT
        x = a * x + (b * s + c * (s @ s)) @ x
    return x


def muon(p, g, m):
    m = 0.95 * m + g
    u = newton((g + 0.95 * m).mT).mT
    return p * (1 - 0.02 * 0.01) - 0.02 * max(1, p.shape[0] / p.shape[1]) ** 0.5 * u, m


def muon_kernel(p, g, m, steps=5, nesterov=True, turned=True, kind=None, tall=True, c=2.0315, decay=True, lerp=False):
    m = torch.lerp(m, g, 0.05) if lerp else m * 0.95 + g
    x = g + 0.95 * m if nesterov else m
    x = x.mT if turned else x
    x = x / (torch.sqrt(halves(halves(x * x))) + 1e-7)
    for _ in range(steps):
        x = hold(x, kind)
        s = tiled(x, x.mT, 16)
        x = 3.4445 * x + tiled(-4.7750 * s + c * tiled(s, s, 16), x, 16)
    x = x.mT if turned else x
    scale = math.sqrt(max(1, p.shape[0] / p.shape[1])) if tall else 1
    return p * (1 - 2e-4 if decay else 1) - (0.02 * scale) * x, m


add(
    "muon_step",
    muon,
    lambda d: (d(48, 32, scale=0.05), d(48, 32, scale=0.01), d(48, 32, scale=0.02)),
    muon_kernel,
    right={"by tiles of 16": {}, "in double": wide(muon)},
    wrong={
        "four steps of Newton and Schulz": {"steps": 4},
        "the momentum without Nesterov's step": {"nesterov": False},
        "the decay is left out": {"decay": False},
        "the iterates are rounded to bfloat16": {"kind": bf},
        "the scale for tall matrices is left out": {"tall": False},
        "the last coefficient is 2.315": {"c": 2.315},
        "the momentum is an average": {"lerp": True},
    },
)

# Lion.


def lion(p, g, m):
    u = torch.sign(0.9 * m + 0.1 * g)
    return p * (1 - 1e-3 * 0.1) - 1e-3 * u, 0.99 * m + 0.01 * g


def lion_kernel(p, g, m, b1=0.9, b2=0.99, soft=False, decay=True, first=False, rate=1e-3):
    new = b2 * m + (1 - b2) * g
    c = m * b1 + g * (1 - b1)
    c = new if first else c
    u = torch.tanh(c * 1e3) if soft else (c > 0).float() - (c < 0).float()
    return torch.addcmul(p * (1 - 1e-4 if decay else 1), u, torch.tensor(-rate)), new


add(
    "lion_step",
    lion,
    lambda d: (d(900, scale=0.02), d(900, scale=1e-2), d(900, scale=4e-3)),
    lion_kernel,
    right={"signs by two comparisons": {}},
    wrong={
        "the betas are swapped": {"b1": 0.99, "b2": 0.9},
        "the sign is of the new momentum": {"first": True},
        "a steep tangent in place of the sign": {"soft": True},
        "the decay is left out": {"decay": False},
        "both betas are 0.9": {"b2": 0.9},
    },
)

# Adafactor: means of rows and columns in place of the second moment, clipped by its size.


def adafactor(p, g, rows, cols):
    s = g * g + 1e-30
    rows = 0.9 * rows + 0.1 * s.mean(1)
    cols = 0.9 * cols + 0.1 * s.mean(0)
    u = g * torch.rsqrt((rows / rows.mean())[:, None] * cols[None])
    u = u / (u.pow(2).mean().sqrt() / 1.0).clamp(min=1.0)
    scale = p.pow(2).mean().sqrt().clamp(min=1e-3)
    return p - 0.01 * scale * u, rows, cols


def adafactor_kernel(p, g, rows, cols, clip=True, scaled=True, total=False, beta=0.9, norm=False):
    s = g * g
    add_up = (lambda t: halves(t)) if total else (lambda t: halves(t) / t.shape[-1])
    rows = beta * rows + (1 - beta) * add_up(s)
    cols = beta * cols + (1 - beta) * add_up(s.mT.contiguous())
    r = rows / (halves(rows) / len(rows))
    u = g / (torch.sqrt(r)[:, None] * torch.sqrt(cols))
    size = torch.sqrt(halves(lanes(u * u)) / (1 if norm else u.numel()))
    u = u / torch.clamp(size, min=1.0) if clip else u
    scale = torch.clamp(torch.sqrt(halves(lanes(p * p)) / p.numel()), min=1e-3) if scaled else 1.0
    return p - 0.01 * scale * u, rows, cols


add(
    "adafactor_step",
    adafactor,
    lambda d: (
        d(40, 56, scale=0.3),
        d(40, 56, scale=0.02) * (1 + 3 * d.rand(40, 1)),
        d.rand(40) * 1e-4 + 1e-4,
        d.rand(56) * 1e-4 + 1e-4,
    ),
    adafactor_kernel,
    right={"roots apart, lanes": {}, "in double": wide(adafactor)},
    wrong={
        "the means of squares keep 0.95 of what was": {"beta": 0.95},
        "the update is not clipped": {"clip": False},
        "the step is not scaled by the parameter": {"scaled": False},
        "sums of rows and columns in place of means": {"total": True},
        "the clip takes the length, not the root mean square": {"norm": True},
    },
)

# Schedule-free AdamW: the gradient is taken at y; z moves, x is its average.


def free(x, z, g, v):
    v = 0.99 * v + 0.01 * g * g
    y = 0.1 * z + 0.9 * x
    u = g / ((v / (1 - 0.99**5)).sqrt() + 1e-8) + 0.01 * y
    z = z - 0.02 * u
    x = x + (z - x) / 5
    return x, z, v


def free_kernel(x, z, g, v, step=5, at="y", weight=5, swap=False, stale=False, correct=True, decay=0.01):
    new = torch.addcmul(0.99 * v, g, g, value=0.01)
    root = torch.sqrt(new) * (1 / math.sqrt(1 - 0.99**step) if correct else 1)
    y = torch.lerp(x, z, 0.9 if swap else 0.1) if at == "y" else z if at == "z" else x
    u = g / (root + 1e-8) + decay * y
    moved = z - 0.02 * u
    x = torch.lerp(x, z if stale else moved, 1 / weight)
    return x, moved, new


add(
    "schedule_free_step",
    free,
    lambda d: (d(1200, scale=0.1), d(1200, scale=0.1), d(1200, scale=1e-2), d.rand(1200) * 1e-5 + 1e-6),
    free_kernel,
    right={"by lerps": {}, "in double": wide(free)},
    wrong={
        "the average takes z before it moves": {"stale": True},
        "the average weighs by one over six": {"weight": 6},
        "y is mixed the other way round": {"swap": True},
        "the decay is of x": {"at": "x"},
        "the second moment is not corrected": {"correct": False},
        "the bias correction counts from zero": {"step": 4},
    },
)

# Adam in the bases of Shampoo's factors.


def soap(g, left, right, m, v):
    r = left.mT @ g @ right
    m = 0.9 * m + 0.1 * g
    v = 0.95 * v + 0.05 * r * r
    u = (left.mT @ m @ right) / (v.sqrt() + 1e-8)
    return left @ u @ right.mT, v


def soap_kernel(g, left, right, m, v, back=True, turned=False, raw=False, one=False, kind=None):
    m = torch.lerp(m, g, 0.1)
    a, b = (left, right.mT) if turned else (left.mT, right)
    r = tiled(a, tiled(g, b, 8), 8) if not one else tiled(a, g, 8)
    v = 0.95 * v + 0.05 * ((g * g) if raw else r * r)
    u = tiled(a, tiled(m, b, 8), 8) / (torch.sqrt(hold(v, kind)) + 1e-8)
    return (tiled(tiled(a.mT, u, 8), b.mT, 8) if back else u), v


def basis(d, n):
    return torch.linalg.qr(d(n, n))[0].contiguous()


add(
    "soap_step",
    soap,
    lambda d: (d(24, 32, scale=0.1), basis(d, 24), basis(d, 32), d(24, 32, scale=0.1), d.rand(24, 32) * 0.01 + 1e-3),
    soap_kernel,
    right={"the right factor first, tiles": {}, "in double": wide(soap)},
    wrong={
        "the update is not turned back": {"back": False},
        "the right basis is transposed": {"turned": True},
        "the second moment is of the gradient that was not turned": {"raw": True},
        "the second moment's gradient is turned from the left alone": {"one": True},
        "the second moment is rounded to float16 for the root": {"kind": hf},
    },
)

# Gradients clipped by the length of all of them, then a step of Nesterov in bf16 parameters.


def clipped(p, q, g, h, m):
    size = torch.sqrt(up(g).pow(2).sum() + up(h).pow(2).sum())
    c = torch.clamp(1.0 / (size + 1e-6), max=1.0)
    m = 0.9 * m + c * up(g)
    return (up(p) - 0.5 * (c * up(g) + 0.9 * m)).to(p.dtype), (up(q) - 0.5 * c * up(h)).to(q.dtype), m


def clipped_kernel(p, q, g, h, m, which="both", square=False, nesterov=True, always=False, most=1.0, late=False):
    parts = [lanes(t.flatten() ** 2) for t in ((g, h) if which == "both" else (g,))]
    total = sum(parts)
    size = total if square else torch.sqrt(total)
    c = most / (size + 1e-6)
    c = c if always else torch.clamp(c, max=1.0)
    m = 0.9 * m + (g if late else c * g)
    return p - 0.5 * (c * g + 0.9 * m if nesterov else m), q - 0.5 * c * h, m


def clipped_run(**how):
    def run(*args):
        kinds = [args[0].dtype, args[1].dtype, torch.float32]
        return tuple(t.to(k) for t, k in zip(clipped_kernel(*map(up, args), **how), kinds))

    return run


add(
    "clipped_nesterov",
    clipped,
    lambda d: (
        d(30, 20, dtype=bf),
        d(500, dtype=bf),
        d(30, 20, dtype=bf, scale=0.1),
        d(500, dtype=bf, scale=0.1),
        d(30, 20),
    ),
    right={"squares in lanes": clipped_run()},
    wrong={
        "the length is of the first gradient alone": clipped_run(which="first"),
        "it divides by the squared length": clipped_run(square=True),
        "the step takes the momentum, not Nesterov's": clipped_run(nesterov=False),
        "the momentum takes the gradient unclipped": clipped_run(late=True),
        "gradients are clipped to two": clipped_run(most=2.0),
    },
)
