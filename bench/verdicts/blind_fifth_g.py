# SPDX-License-Identifier: Apache-2.0
"""Set E, written blind: optimizers."""

import math

import torch

from .blind import bf, hf, honest, mistake, narrow
from .blind_fifth_a import cut, fifth, rights, wide, wrongs


def state(d, *shape, small=1e-3, step=3):
    g = d(*shape, scale=small)
    return d(*shape), g, d(*shape, scale=small / 3), d(*shape, scale=small).square() * 0.1, step


@fifth(lambda d: state(d, 40, 30, small=1e-5))
def adamw_three(p, g, m, v, t, lr=1e-2, b1=0.9, b2=0.95, eps=1e-8, wd=0.1):
    p = p * (1 - lr * wd)
    m = b1 * m + (1 - b1) * g
    v = b2 * v + (1 - b2) * g * g
    update = (m / (1 - b1**t)) / ((v / (1 - b2**t)).sqrt() + eps)
    return p - lr * update, m, v


def adamw_kernel(
    p,
    g,
    m,
    v,
    t,
    eps=1e-8,
    l2=False,
    wd=0.1,
    off=0,
    inside=False,
    early=False,
    b=(0.9, 0.95),
    uncorrected=False,
    decay_after=False,
    low=None,
    old=False,
):
    b1, b2 = b
    g = g + wd * p if l2 else g
    m0, v0 = m, v
    m, v = cut(torch.lerp(m, g, 1 - b1), low), torch.addcmul(b2 * v, g, g, value=1 - b2)
    mm, vv = (m0, v0) if old else (m, v)
    c1, c2 = (1.0, 1.0) if uncorrected else (1 - b1 ** (t + off), 1 - b2 ** (t + off))
    if inside:
        down = (vv / c2 + eps).sqrt()
    elif early:
        down = (vv.sqrt() + eps) / math.sqrt(c2)
    else:
        down = vv.sqrt() / math.sqrt(c2) + eps
    u = mm / c1 / down
    if decay_after:
        p = p - 1e-2 * u
        return p - 1e-2 * 1e-1 * p, m, v
    return p - 1e-2 * (u + (0 if l2 else wd) * p), m, v


honest(adamw_three, "one fused subtraction", adamw_kernel)
honest(adamw_three, "in double precision", wide(adamw_kernel, torch.float64))
wrongs(
    adamw_three,
    adamw_kernel,
    {
        "weight decay goes into the gradient (L2)": {"l2": True},
        "the corrections count the step from 0 (t - 1)": {"off": -1},
        "there is no bias correction": {"uncorrected": True},
        "eps is added under the root": {"inside": True},
        "the update uses the moments of before this step": {"old": True},
        "beta2 is 0.999": {"b": (0.9, 0.999)},
        "decay is not multiplied by the learning rate": {"wd": 10.0},
        "the first moment is kept in bf16": {"low": bf},
        "eps is added before the second moment is corrected": {"early": True},
        "the decay is that of the updated weights": {"decay_after": True},
    },
)


@fifth(lambda d: (d(50, 20, dtype=bf), d(50, 20, dtype=bf, scale=1e-2), d(50, 20, scale=1e-2)))
def lion_mixed(p, g, m, lr=3e-2, wd=0.5):
    g = g.to(m.dtype)
    u = torch.sign(0.9 * m + 0.1 * g)
    return (p.to(m.dtype) * (1 - lr * wd) - lr * u).to(p.dtype), 0.99 * m + 0.01 * g


def lion_kernel(p, g, m, lr=3e-2, b1=0.9, b2=0.99, late=False, wd=0.5, plain=False, low=None):
    store, p, g = p.dtype, p.float(), g.float()
    new = b2 * m + (1 - b2) * g
    c = new if late else b1 * m + (1 - b1) * g
    u = c if plain else torch.where(c > 0, 1.0, torch.where(c < 0, -1.0, 0.0))
    p = p - lr * u - lr * wd * p
    return p.to(store), cut(new, low)


honest(lion_mixed, "by comparisons", lion_kernel)
for words, keys in {
    "the sign is taken of the updated moment": {"late": True},
    "the two betas are exchanged": {"b1": 0.99, "b2": 0.9},
    "weight decay is left out": {"wd": 0.0},
    "the moment itself, not its sign, is the update": {"plain": True},
    "the moment is stored through bf16": {"low": bf},
}.items():
    mistake(lion_mixed, words, lambda *a, keys=keys: lion_kernel(*a, **keys))


@fifth(lambda d: (d(600), d(600, scale=1e-2), d(600, scale=1e-2)))
def nesterov_step(p, g, buf, lr=0.1, mu=0.9, wd=1e-2):
    g = g + wd * p
    buf = mu * buf + g
    return p - lr * (g + mu * buf), buf


def nesterov_kernel(p, g, buf, lr=0.1, mu=0.9, wd=1e-2, nesterov=True, damp=0.0, old=False, outside=False, drop=0):
    d = g if outside else torch.add(g, p, alpha=wd)
    new = torch.add(d * (1 - damp), buf, alpha=mu)
    u = d + mu * (buf if old else new) if nesterov else new
    u = u + wd * p if outside else u
    out = p - lr * u
    if drop:
        out[-drop:] = p[-drop:]
    return out, new


def nesterov_torch(p, g, buf):
    w = p.clone().requires_grad_()
    w.grad = g.clone()
    opt = torch.optim.SGD([w], lr=0.1, momentum=0.9, weight_decay=1e-2, nesterov=True)
    opt.state[w]["momentum_buffer"] = buf.clone()
    opt.step()
    return w.detach(), opt.state[w]["momentum_buffer"]


honest(nesterov_step, "multiply and add", nesterov_kernel)
honest(nesterov_step, "torch's own", nesterov_torch)
wrongs(
    nesterov_step,
    nesterov_kernel,
    {
        "plain momentum: no look ahead": {"nesterov": False},
        "the look ahead uses the old buffer": {"old": True},
        "the gradient is damped by 0.9 in the buffer": {"damp": 0.9},
        "weight decay does not enter the buffer": {"outside": True},
        "the last 88 values, past the last block of 128, are not updated": {"drop": 88},
    },
)


@fifth(lambda d: (d(24, 40, scale=1e-2), d.rand(24) * 1e-4, d.rand(40) * 1e-4))
def adafactor_update(g, row, col):
    sq = g * g + 1e-30
    row = 0.99 * row + 0.01 * sq.mean(1)
    col = 0.99 * col + 0.01 * sq.mean(0)
    v = row[:, None] * col[None] / row.mean()
    u = g / v.sqrt()
    return u / torch.clamp(u.square().mean().sqrt(), min=1.0), row, col


def adafactor_kernel(g, row, col, clip=True, summed=False, old=False, whole=False):
    sq = g.square()
    r0, c0 = row, col
    div = (1, 1) if summed else (g.shape[1], g.shape[0])
    row = row + 0.01 * (sq.sum(1) / div[0] - row)
    col = col + 0.01 * (sq.sum(0) / div[1] - col)
    r, c = (r0, c0) if old else (row, col)
    r = r / r.mean()
    u = g * (r.rsqrt()[:, None] * c.rsqrt()[None])
    rms = u.norm() if whole else u.norm() / math.sqrt(u.numel())
    return u / rms.clamp(min=1.0) if clip else u, row, col


honest(adafactor_update, "a product of two reciprocal roots", adafactor_kernel)
honest(adafactor_update, "in double precision", wide(adafactor_kernel, torch.float64))
wrongs(
    adafactor_update,
    adafactor_kernel,
    {
        "the update is not clipped": {"clip": False},
        "rows and columns take sums, not means": {"summed": True},
        "the update uses the old factors": {"old": True},
        "the clip divides by the norm, not the root mean square": {"whole": True},
    },
)


@fifth(lambda d: (d(24, 40, scale=1e-3),))
def muon_orthogonalize(g, steps=5):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g / (g.norm() + 1e-7)
    for _ in range(steps):
        s = x @ x.T
        x = a * x + (b * s + c * s @ s) @ x
    return x * max(1, g.shape[0] / g.shape[1]) ** 0.5


def muon_kernel(g, steps=5, abc=(3.4445, -4.7750, 2.0315), size="frobenius", low=None, scale=1.0):
    a, b, c = abc
    n = {"frobenius": g.norm(), "max": g.abs().max(), "spectral": torch.linalg.matrix_norm(g, 2)}[size]
    x = cut((g / (n + 1e-7)).T, low)
    for _ in range(steps):
        s = cut(x.T @ x, low)
        x = cut(a * x + cut(x @ cut(b * s + c * cut(s @ s, low), low), low), low)
    return x.T.contiguous() * scale


def muon_by_svd(g):
    u, s, v = torch.linalg.svd(g.double(), full_matrices=False)
    s = s / (s.norm() + 1e-7)
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return (u * s @ v).float()


honest(muon_orthogonalize, "transposed", muon_kernel)
honest(muon_orthogonalize, "on the singular values", muon_by_svd)
wrongs(
    muon_orthogonalize,
    muon_kernel,
    {
        "4 steps instead of 5": {"steps": 4},
        "the coefficients 1.5, -0.5, 0 of the cubic iteration": {"abc": (1.5, -0.5, 0.0)},
        "the start is divided by the largest singular value": {"size": "spectral"},
        "the iteration runs in bf16": {"low": bf},
        "the result is scaled by the root of 40/24, although it is wide": {"scale": (40 / 24) ** 0.5},
    },
)


def spd(d, n, floor=0.3):
    a = d(n, n)
    return a @ a.T / n + floor * torch.eye(n)


@fifth(lambda d: (d(16, 12), spd(d, 16), spd(d, 12)))
def shampoo_direction(g, left, right):
    left, right = left * 0.9 + g @ g.T, right * 0.9 + g.T @ g

    def root(a):
        w, q = torch.linalg.eigh(a + 1e-6 * torch.eye(a.shape[0], dtype=a.dtype))
        return q * w**-0.25 @ q.T

    return root(left) @ g @ root(right), left, right


def shampoo_kernel(g, left, right, power=-0.25, old=False, keep=0.9, sides=2, turned=False):
    l0, r0 = left, right
    left, right = left * keep + g @ g.T, right * keep + g.T @ g

    def root(a):
        a = a.double()
        w, q = torch.linalg.eigh(a + 1e-6 * torch.eye(len(a), dtype=a.dtype))
        return (q.T * w**power @ q).float() if turned else (q * w**power @ q.T).float()

    a, b = (l0, r0) if old else (left, right)
    y = root(a) @ g
    return y @ root(b) if sides == 2 else y, left, right


def shampoo_newton(g, left, right):
    left, right = left * 0.9 + g @ g.T, right * 0.9 + g.T @ g

    def root(a):  # coupled iteration for the inverse fourth root
        a = a.double() + 1e-6 * torch.eye(len(a), dtype=torch.float64)
        z = 5 / (2 * a.norm())
        eye = torch.eye(len(a), dtype=a.dtype)
        m, h = a * z, eye * z**0.25
        for _ in range(40):
            t = (5 * eye - m) / 4
            t2 = t @ t
            m, h = t2 @ t2 @ m, h @ t
        return h.float()

    return root(left) @ g @ root(right), left, right


honest(shampoo_direction, "eigenvectors in double precision", shampoo_kernel)
honest(shampoo_direction, "a coupled Newton iteration", shampoo_newton)
wrongs(
    shampoo_direction,
    shampoo_kernel,
    {
        "inverse square roots instead of fourth roots": {"power": -0.5},
        "only the left side is preconditioned": {"sides": 1},
        "the statistics of before this step are used": {"old": True},
        "the old statistics are not decayed": {"keep": 1.0},
        "eigenvectors are taken as rows": {"turned": True},
    },
)


def bases(d):
    a, b = (torch.linalg.qr(d(n, n))[0].contiguous() for n in (18, 14))
    return d(18, 14), a, b, d(18, 14).square() * 0.5, d(18, 14, scale=0.3)


@fifth(bases)
def soap_update(g, ql, qr, v, m):
    m = 0.95 * m + 0.05 * g
    gp, mp = ql.T @ g @ qr, ql.T @ m @ qr
    v = 0.95 * v + 0.05 * gp * gp
    return ql @ (mp / (v.sqrt() + 1e-8)) @ qr.T, v, m


def soap_kernel(g, ql, qr, v, m, turned=False, back=True, raw=False, plain=False, late=False):
    m = m + 0.05 * (m * -1 + g)
    a, b = (ql, qr.T) if turned else (ql.T, qr)
    gp = a @ (g @ b)
    mp = m if raw else a @ (m @ b)
    old, v = v, v + 0.05 * ((g if plain else gp).square() - v)
    u = mp / ((old if late else v).sqrt() + 1e-8)
    return ql @ (u @ qr.T) if back else u, v, m


honest(soap_update, "right side first", soap_kernel)
honest(soap_update, "in double precision", wide(soap_kernel, torch.float64))
wrongs(
    soap_update,
    soap_kernel,
    {
        "gradients are rotated by the transposed bases": {"turned": True},
        "the update is not rotated back": {"back": False},
        "the momentum is not rotated into the basis": {"raw": True},
        "the second moment takes the gradient that is not rotated": {"plain": True},
        "the update divides by the old second moment": {"late": True},
    },
)


@fifth(lambda d: (d(40, 30, dtype=hf, scale=12.0), d(700, dtype=hf, scale=3.0), d(5, dtype=hf)))
def clip_gradients(a, b, c, top=1.0):
    norm = torch.stack([x.float().norm() for x in (a, b, c)]).norm()
    scale = torch.clamp(top / (norm + 1e-6), max=1.0)
    return tuple((x.float() * scale).to(x.dtype) for x in (a, b, c)) + (norm,)


def clip_kernel(a, b, c, low=None, each=False, plain=False, square=False, top=1.0, twice=False):
    sums = [cut(x.float().square(), low).sum() for x in (a, b, c)]
    if plain:
        total = sum(s.sqrt() for s in sums)
    else:
        total = sum(sums)
        total = total if square else total.sqrt()
    s = [(top / ((x.sqrt() if each else total) + 1e-6)).clamp(max=1.0) for x in sums]
    return tuple((x.float() * f * (f if twice else 1.0)).to(x.dtype) for x, f in zip((a, b, c), s)) + (total,)


honest(clip_gradients, "squares added over all tensors, one root", clip_kernel)
for words, keys in {
    "each tensor is clipped by its own norm": {"each": True},
    "the norms of the tensors are added, not their squares": {"plain": True},
    "the root of the summed squares is left out": {"square": True},
    "squares are taken in e5m2": {"low": torch.float8_e5m2},
    "gradients are scaled twice": {"twice": True},
}.items():
    mistake(clip_gradients, words, lambda *a, keys=keys: clip_kernel(*a, **keys))


@fifth(lambda d: (d(30, 40, dtype=hf, scale=0.1), d(30, 40, dtype=hf), d(30, 40, dtype=hf, scale=0.1), 128.0))
def unscaled_clip_by_norm(g, p, ema, scale):
    g = g / scale
    return torch.where(g.norm() > 0.02, g * 0.02 / g.norm(), g), ema * 0.99 + p * 0.01


def unscale(g, p, ema, scale, late=False, swap=False, flush=False, lerp=0.01):
    n = (g / (1.0 if late else scale)).norm()
    g = g / scale
    g = torch.where(g.abs() < 2.0**-10, 0.0, g) if flush else g
    n = n if late else g.norm()
    e = p + (ema - p) * lerp if swap else ema + (p - ema) * lerp
    return g * torch.clamp(0.02 / n, max=1.0), e


rights(unscaled_clip_by_norm, unscale, {"float32 inside": {}})
wrongs(
    unscaled_clip_by_norm,
    unscale,
    {
        "the norm is that of the gradient before it is unscaled": {"late": True},
        "the average keeps 1% of the past instead of 99%": {"swap": True},
        "unscaled gradients below 2^-10 become zero": {"flush": True},
        "the average keeps 90% of the past": {"lerp": 0.1},
    },
)


@fifth(lambda d: (d(1000), d(1000), 3))
def warm_average(ema, p, step):
    decay = min(0.999, (1 + step) / (10 + step))
    return ema * decay + p * (1 - decay)


honest(warm_average, "one lerp", lambda e, p, s: torch.lerp(p, e, (1 + s) / (10 + s)))
honest(
    warm_average, "a difference, multiplied and added", lambda e, p, s: torch.addcmul(e, p - e, torch.tensor(9 / 13))
)
mistake(warm_average, "the step counts from 1 more", lambda e, p, s: torch.lerp(p, e, (2 + s) / (11 + s)))
mistake(warm_average, "the larger of decay and warm-up is used", lambda e, p, s: torch.lerp(p, e, 0.999))
mistake(warm_average, "old and new are exchanged", lambda e, p, s: torch.lerp(e, p, (1 + s) / (10 + s)))
mistake(warm_average, "integer division makes the decay 0", lambda e, p, s: torch.lerp(p, e, (1 + s) // (10 + s)))
mistake(warm_average, "the average is stored in bf16", lambda e, p, s: narrow(torch.lerp(p, e, (1 + s) / (10 + s))))
