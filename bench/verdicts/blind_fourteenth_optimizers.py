# SPDX-License-Identifier: Apache-2.0
"""Set S, the fourteenth: steps of optimizers, their states and roots of matrices."""

import torch

from .blind import bf, narrow
from .blind_fourteenth_base import add, halves, lanes, serial, wide


def tailed(d, *shape, scale=1e-3):
    """Gradients with a long tail."""
    return d(*shape) * torch.exp(d(*shape) * 1.5) * scale


def adamw(p, g, m, v, step):
    b1, b2, lr = 0.9, 0.95, 3e-4
    m = b1 * m + (1 - b1) * g
    v = b2 * v + (1 - b2) * g * g
    mh, vh = m / (1 - b1**step), v / (1 - b2**step)
    return p * (1 - lr * 0.1) - lr * mh / (vh.sqrt() + 1e-8), m, v


def adamw_kernel(p, g, m, v, step, b2=0.95, bias="both", eps="out", decay="apart", kind=None, late=0, lr=3e-4, e=1e-8):
    b1 = 0.9
    g = g + 0.1 * p if decay == "grad" else g
    m, v = torch.lerp(m, g, 1 - b1), v + (1 - b2) * (g * g - v)
    v = narrow(v, kind) if kind else v
    c1, c2 = 1 - b1 ** (step + late), 1 - b2 ** (step + late)
    c1, c2 = (c1 if bias in ("both", "first") else 1), (c2 if bias == "both" else 1)
    den = (
        torch.sqrt(v / c2 + e) if eps == "in" else v.sqrt() / c2**0.5 + e if eps == "out" else (v.sqrt() + e) / c2**0.5
    )
    u = m / den / c1
    if decay == "after":
        q = p - lr * u
        return q - lr * 0.1 * q * 10, m, v
    return p - lr * (u + (0.1 * p if decay == "apart" else 0)), m, v


add(
    "adamw",
    adamw,
    lambda d: (d(2000, scale=0.02), tailed(d, 2000, scale=1e-4), tailed(d, 2000, scale=1e-4), d.rand(2000) * 1e-8, 7),
    adamw_kernel,
    right={"by steps towards": {}, "in double": wide(adamw)},
    wrong={
        "no bias correction": {"bias": "none"},
        "the second moment is not corrected": {"bias": "first"},
        "epsilon is under the root": {"eps": "in"},
        "epsilon is divided by the correction, too": {"eps": "early", "e": 1e-6},
        "decay is part of the gradient": {"decay": "grad"},
        "the step counts from zero": {"late": -1},
        "the second moment is stored in bf16": {"kind": bf},
        "beta2 is 0.999": {"b2": 0.999},
    },
)


def dynamic(bits=7):
    """A table of codes that is dense at zero."""
    rows = [torch.linspace(0.1, 1, 2**i + 1) for i in range(bits)]
    values = [((r[:-1] + r[1:]) / 2) * 10.0 ** (i - bits + 1) for i, r in enumerate(rows)]
    half = torch.cat(values)
    return torch.cat([-half, torch.tensor([0.0, 1.0]), half]).sort().values


def adam8(p, g, code, top):
    table = dynamic().to(p.dtype)
    m = table[code.long()] * top.repeat_interleave(64)
    m = 0.9 * m + 0.1 * g
    new = m.unflatten(0, (-1, 64)).abs().amax(-1)
    return p - 1e-3 * m / (m.abs() + 1e-6) ** 0.5, m, new


def adam8_kernel(p, g, code, top, block=64, signed=False, stale=False, grad=False, near=0):
    table = dynamic()
    at = torch.arange(p.shape[0]) // block
    c = (code.long() - 128) % 256 if signed else (code.long() + near).clamp(max=255 if not near else 254)
    m = table[c.clamp(max=table.shape[0] - 1)] * top[at % top.shape[0]]
    old = m
    m = torch.add(m, g - m, alpha=0.1)
    new = (g if grad else old if stale else m).abs().reshape(-1, 64).max(1).values
    return p - 1e-3 * m * torch.rsqrt(m.abs() + 1e-6), m, new


add(
    "adam_8bit",
    adam8,
    lambda d: (
        d(1024, scale=0.02),
        tailed(d, 1024),
        d.ints(len(dynamic()), 1024).to(torch.uint8),
        d.rand(16) * 0.01,
    ),
    adam8_kernel,
    right={"by steps towards, rsqrt": {}, "in double": wide(adam8)},
    wrong={
        "blocks are of 128": {"block": 128},
        "codes are read as signed": {"signed": True},
        "the new absolute maximum is that of the old moment": {"stale": True},
        "the new absolute maximum is that of the gradient": {"grad": True},
        "codes are read one too high": {"near": 1},
    },
)


def lion(p, g, m):
    u = torch.sign(0.9 * m + 0.1 * g)
    return p - 1e-4 * (u + 0.1 * p), 0.99 * m + 0.01 * g


def lion_kernel(p, g, m, first=0.9, second=0.99, order="update", zero=False, decay=0.1):
    new = second * m + (1 - second) * g
    base = new if order == "moment" else m * first + g * (1 - first)
    u = torch.where(base >= 0, 1.0, -1.0) if zero else torch.sign(base)
    u = base / base.abs().mean() if order == "raw" else u
    return p * (1 - 1e-4 * decay) - 1e-4 * u, new


def with_zeros(x, every=10):
    x = x.clone()
    x.flatten()[::every] = 0
    return x


add(
    "lion",
    lion,
    lambda d: (d(1500, scale=0.02), with_zeros(tailed(d, 1500)), with_zeros(tailed(d, 1500))),
    lion_kernel,
    right={"decay as a factor": {}, "in double": wide(lion)},
    wrong={
        "the sign is that of the new moment": {"order": "moment"},
        "the two betas are exchanged": {"first": 0.99, "second": 0.9},
        "zero has the sign one": {"zero": True},
        "no sign is taken": {"order": "raw"},
        "there is no decay": {"decay": 0.0},
    },
)


def newton_schulz(g, steps=5):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g / (g.norm() + 1e-7)
    for _ in range(steps):
        s = x @ x.T
        x = a * x + (b * s + c * s @ s) @ x
    return x * max(1, g.shape[0] / g.shape[1]) ** 0.5


def muon_kernel(g, steps=5, norm="fro", coef=(3.4445, -4.7750, 2.0315), kind=None, tall=True, scale=True, lost=False):
    a, b, c = coef
    wide_one = g.T if tall and g.shape[0] > g.shape[1] else g
    n = wide_one.abs().max() if norm == "max" else torch.sqrt(lanes(wide_one.flatten() ** 2))
    x = wide_one / (n + 1e-7)
    for _ in range(steps):
        s = x @ x.T
        s = narrow(s, kind) if kind else s
        x = a * x + (b * s + c * (s if lost else s @ s)) @ x
    x = x.T if wide_one is not g else x
    return x * (max(1, g.shape[0] / g.shape[1]) ** 0.5 if scale else 1)


add(
    "muon",
    newton_schulz,
    lambda d: (tailed(d, 48, 24),),
    muon_kernel,
    right={"the tall matrix turned": {}, "as it stands": {"tall": False}, "in double": wide(newton_schulz)},
    wrong={
        "four steps": {"steps": 4},
        "coefficients of the cubic": {"coef": (1.5, -0.5, 0.0)},
        "the square of the Gram matrix is the Gram matrix": {"lost": True},
        "the factor of the shape is left out": {"scale": False},
        "Gram matrices are kept in bf16": {"kind": bf},
        "normed by the greatest element": {"norm": "max", "steps": 5},
    },
)


def shampoo(l, r, g):
    def root(a):
        w, q = torch.linalg.eigh(a)
        return (q * (w.clamp(min=0) + 1e-4) ** -0.25) @ q.T

    return root(l) @ g @ root(r)


def shampoo_kernel(l, r, g, power=-0.25, ridge=1e-4, swap=False, double=True, outside=False, svd=False):
    def root(a, p=power):
        a = a.double() if double else a
        if svd:
            q, w, _ = torch.linalg.svd(a)
        else:
            w, q = torch.linalg.eigh(a)
        w = w.clamp(min=0)
        s = w.clamp(min=1e-30) ** p + ridge if outside else (w + ridge) ** p
        return ((q * s) @ q.T).float()

    return (root(r)[: l.shape[0], : l.shape[0]] @ g @ root(l) if swap else root(l) @ g) @ (
        torch.eye(r.shape[0]) if swap else root(r)
    )


def gram(d, n, k):
    x = d(n, k)
    return x @ x.T / k


add(
    "shampoo",
    shampoo,
    lambda d: (gram(d, 16, 40), gram(d, 16, 40), d(16, 16, scale=0.01)),
    shampoo_kernel,
    right={"eigenvalues in double": {}, "singular values in double": {"svd": True}, "as it stands": {"double": False}},
    wrong={
        "square roots for fourth roots": {"power": -0.5},
        "the ridge is added to the root": {"outside": True, "ridge": 1e-2},
        "the ridge is 1e-2": {"ridge": 1e-2},
        "left and right are exchanged": {"swap": True},
    },
)


def soap(g, ql, qr, m, v):
    rot = ql.T @ g @ qr
    m = 0.95 * m + 0.05 * g
    v = 0.95 * v + 0.05 * rot * rot
    u = (ql.T @ m @ qr) / (v.sqrt() + 1e-8)
    return ql @ u @ qr.T, v


def soap_kernel(g, ql, qr, m, v, back=True, turn=False, old=False, plain=False, kind=None):
    rot = (ql if turn else ql.T) @ (g @ qr)
    m = torch.lerp(m, g, 0.05)
    new = torch.lerp(v, (g * g if plain else rot * rot), 0.05)
    mr = ql.T @ (m @ qr)
    mr = narrow(mr, kind) if kind else mr
    u = mr / ((v if old else new).sqrt() + 1e-8)
    return (ql @ (u @ qr.T) if back else u), new


add(
    "soap",
    soap,
    lambda d: (
        tailed(d, 24, 20),
        torch.linalg.qr(d(24, 24))[0],
        torch.linalg.qr(d(20, 20))[0],
        tailed(d, 24, 20),
        d.rand(24, 20) * 1e-5 + 1e-7,
    ),
    soap_kernel,
    right={"by steps towards": {}, "in double": wide(soap)},
    wrong={
        "the step is not turned back": {"back": False},
        "the left basis is not transposed": {"turn": True},
        "the step divides by the old second moment": {"old": True},
        "squares of the gradient that is not turned": {"plain": True},
        "the turned moment is kept in bf16": {"kind": bf},
    },
)


def adafactor(g, r, c):
    s = g * g + 1e-30
    r, c = 0.99 * r + 0.01 * s.mean(1), 0.99 * c + 0.01 * s.mean(0)
    u = g * torch.rsqrt(r / r.mean())[:, None] * torch.rsqrt(c)[None]
    return u / torch.clamp(u.pow(2).mean().sqrt(), min=1.0), r, c


def adafactor_kernel(g, r, c, clip=True, swap=False, each=False):
    s = g * g
    n, k = g.shape
    sr, sc = lanes(s) / k, lanes(s.T) / n
    sr, sc = (s.sum(1) / n, s.sum(0) / k) if swap else (sr, sc)
    r, c = r + 0.01 * (sr - r), c + 0.01 * (sc - c)
    v = torch.outer(r, c) / r.mean()
    u = g / v.sqrt()
    rms = halves(u.flatten() ** 2).div(u.numel()).sqrt()
    return (u.clamp(-1, 1) if each else u / rms.clamp(min=1.0) if clip else u), r, c


add(
    "adafactor",
    adafactor,
    lambda d: (tailed(d, 30, 50), d.rand(30) * 1e-5, d.rand(50) * 3e-5),
    adafactor_kernel,
    right={"by the outer product": {}, "in double": wide(adafactor)},
    wrong={
        "each element is clipped at one": {"each": True},
        "no clip": {"clip": False},
        "means of rows and columns divide by the other's size": {"swap": True},
    },
)


def clip(a, b, c):
    n = torch.sqrt(a.pow(2).sum() + b.pow(2).sum() + c.pow(2).sum())
    f = torch.clamp(1.0 / (n + 1e-6), max=1.0)
    return a * f, b * f, c * f, n


def clip_kernel(a, b, c, part="all", norms=False, always=False, add_up=halves, kind=None, keep=None):
    every = [a, b, c]
    use = every[:-1] if part == "lost" else every
    s = [add_up(t.flatten() ** 2) for t in use]
    n = sum(t.sqrt() for t in s) if norms else torch.sqrt(sum(s))
    f = 1 / (n + 1e-6)
    f = f if always else f.clamp(max=1.0)
    if part == "own":
        return (*(t * torch.clamp(1 / (torch.sqrt(q) + 1e-6), max=1.0) for t, q in zip(every, s)), n)
    return a * f, b * f, c if part == "short" else c * f, n


add(
    "global_clip",
    clip,
    lambda d: (tailed(d, 40, 50, scale=0.1), tailed(d, 999, scale=0.05), tailed(d, 7, 8, scale=0.3)),
    clip_kernel,
    right={"pairs of halves": {}, "lanes": {"add_up": lanes}, "in double": wide(clip)},
    wrong={
        "the norm lacks the last tensor": {"part": "lost"},
        "each tensor is clipped by its own norm": {"part": "own"},
        "the norm is the sum of the norms": {"norms": True},
        "the last tensor is not clipped": {"part": "short"},
        "squares are summed in bf16": {"add_up": lambda x: serial(x, bf)},
    },
)


def lamb(p, g, m, v):
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    u = m / (v.sqrt() + 1e-6) + 0.01 * p
    return p - 1e-2 * (p.norm() / u.norm()) * u


def lamb_kernel(p, g, m, v, ratio="both", decay=True, limit=None, kind=None):
    m, v = torch.lerp(m, g, 0.1), v + 0.001 * (g * g - v)
    a = m / (v.sqrt() + 1e-6)
    u = a + 0.01 * p if decay else a
    norm = lambda t: lanes(t.flatten() ** 2).sqrt()
    w = norm(p) / norm(a if ratio == "bare" else u)
    w = 1 / norm(u) if ratio == "one" else norm(u) / norm(p) if ratio == "turn" else w
    return p - 1e-2 * w.clamp(max=limit or 1e9) * u


add(
    "lamb",
    lamb,
    lambda d: (d(30, 40, scale=0.5), tailed(d, 30, 40), tailed(d, 30, 40), d.rand(30, 40) * 1e-5),
    lamb_kernel,
    right={"lanes": {}, "in double": wide(lamb)},
    wrong={
        "the ratio is turned round": {"ratio": "turn"},
        "no decay": {"decay": False},
        "the parameter's norm is left out": {"ratio": "one"},
        "the ratio is cut at 0.1": {"limit": 0.1},
    },
)
