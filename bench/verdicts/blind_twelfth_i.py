# SPDX-License-Identifier: Apache-2.0
"""Set Q: optimisers, gradients' norms, recurrent cells, advantages, numbers at random."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, narrow
from .blind_twelfth_a import good, pairwise, twelfth, wrong

# ------------------------------------------------------------------ AdamW at its third step


@twelfth(lambda d: (d(64, 48), d(64, 48, scale=1e-4), d(64, 48, scale=1e-4), d.rand(64, 48) * 1e-8))
def twelfth_adamw(p, g, m, v):
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    root = (v / (1 - 0.999**3)).sqrt() + 1e-6
    return p * (1 - 0.01 * 0.1) - 0.01 * (m / (1 - 0.9**3)) / root, m, v


def adamw(
    p, g, m, v, t=3, eps=1e-6, inside=False, coupled=False, first=True, second=True, decay=0.1, b2=0.999, kind=None
):
    g = g + decay * p if coupled else g
    m = m + 0.1 * (g - m)
    v = v * b2 + (1 - b2) * (g * g)
    v = narrow(v, kind) if kind else v
    c1, c2 = 1 - 0.9**t if first else 1.0, 1 - b2**t if second else 1.0
    root = torch.sqrt(v / c2 + eps) if inside else torch.sqrt(v) / math.sqrt(c2) + eps
    p = p if coupled else p - 0.01 * decay * p
    return p - (0.01 / c1) * (m / root), m, v


good(twelfth_adamw, adamw, folded={}, by_addcdiv=lambda p, g, m, v: fused(p, g, m, v))


def fused(p, g, m, v):
    m, v = torch.lerp(m, g, 0.1), torch.addcmul(v * 0.999, g, g, value=0.001)
    root = v.sqrt().div(math.sqrt(1 - 0.999**3)).add(1e-6)
    return torch.addcdiv(p * (1 - 0.001), m, root, value=-0.01 / (1 - 0.9**3)), m, v


wrong(
    twelfth_adamw,
    adamw,
    {
        "the decay is added to the gradient": {"coupled": True},
        "epsilon is inside the root": {"inside": True},
        "the second moment is not corrected": {"second": False},
        "the first moment is not corrected": {"first": False},
        "corrected for the step before": {"t": 2},
        "beta two is 0.99": {"b2": 0.99},
        "hides: the second moment is kept in bfloat16": {"kind": bf},
    },
)


@twelfth(lambda d: (d(300, dtype=bf), d(300, dtype=bf), d(300)))
def twelfth_sgd(p, g, buffer):
    g = g.float() + 0.01 * p.float()
    buffer = 0.9 * buffer + g
    return (p.float() - 0.1 * (g + 0.9 * buffer)).to(bf), buffer


def sgd(p, g, buffer, nesterov=True, damp=0.0, late=False, old=False):
    p, g = p.float(), g.float()
    h = g if late else torch.add(g, p, alpha=0.01)
    new = torch.add(h * (1 - damp), buffer, alpha=0.9)
    use = buffer if old else new
    step = torch.add(h, use, alpha=0.9) if nesterov else use
    return (p - 0.1 * step).to(bf), new


good(twelfth_sgd, sgd, multiply_and_add={})
wrong(
    twelfth_sgd,
    sgd,
    {
        "momentum is not Nesterov's": {"nesterov": False},
        "the gradient is damped by 0.1": {"damp": 0.1},
        "no decay of weights": {"late": True},
        "the step takes the buffer before it is renewed": {"old": True},
    },
)


@twelfth(lambda d: (d(80, 20), d(80, 20), d(80, 20, scale=0.5)))
def twelfth_lion(p, g, m):
    step = torch.sign(0.9 * m + 0.1 * g)
    return p * (1 - 1e-3) - 1e-2 * step, 0.99 * m + 0.01 * g


def lion(p, g, m, a=0.9, b=0.99, sign=torch.sign, late=False):
    new = torch.lerp(g, m, b)
    step = sign(new if late else torch.lerp(g, m, a))
    return p - 1e-3 * p - 1e-2 * step, new


good(twelfth_lion, lion, by_lerp={})
wrong(
    twelfth_lion,
    lion,
    {
        "the step is of the renewed momentum": {"late": True},
        "the two betas are swapped": {"a": 0.99, "b": 0.9},
        "no sign is taken": {"sign": lambda x: x},
    },
)


@twelfth(lambda d: (d(30, 50, scale=0.1), d(30, 50), d(30, 50)))
def twelfth_muon_step(p, g, m):
    m = 0.95 * m + g
    x = g + 0.95 * m
    x = x / (x.norm() + 1e-7)
    for _ in range(4):
        a = x @ x.mT
        x = 2 * x + (-1.5 * a + 0.5 * (a @ a)) @ x
    return p * (1 - 0.02 * 0.1) - 0.02 * 0.2 * math.sqrt(50) * x, m


def muon_step(p, g, m, size=50, steps=4, nesterov=True, decay=0.1, narrowed=None, c=(2, -1.5, 0.5)):
    m = torch.add(g, m, alpha=0.95)
    x = torch.add(g, m, alpha=0.95) if nesterov else m
    x = x / (pairwise(x.flatten() ** 2).sqrt() + 1e-7)
    for _ in range(steps):
        a = narrowed(x @ x.mT) if narrowed else x @ x.mT
        x = torch.addmm(x, c[1] * a + c[2] * torch.addmm(torch.zeros_like(a), a, a), x, beta=c[0])
    return p - 0.02 * decay * p - 0.02 * 0.2 * math.sqrt(size) * x, m


good(twelfth_muon_step, muon_step, by_addmm={})
wrong(
    twelfth_muon_step,
    muon_step,
    {
        "three steps of iteration": {"steps": 3},
        "scaled by the lesser side": {"size": 30},
        "momentum is not Nesterov's": {"nesterov": False},
        "no decay of weights": {"decay": 0.0},
        "the last coefficient is 0.375": {"c": (2, -1.5, 0.375)},
        "hides: the product of x with itself is in bfloat16": {"narrowed": narrow},
    },
)


@twelfth(lambda d: (d(200, scale=3), d(20, 30, scale=2), d(7)))
def twelfth_clip(a, b, c):
    norm = (a.square().sum() + b.square().sum() + c.square().sum()).sqrt()
    k = (5.0 / (norm + 1e-6)).clamp(max=1.0)
    return a * k, b * k, c * k, norm


def clip(a, b, c, parts=3, each=False, square=False, use=3):
    norms = [pairwise(t.flatten() ** 2).sqrt() for t in (a, b, c)]
    norm = torch.linalg.vector_norm(torch.stack(norms[:parts]))
    norm = sum(norms) if square else norm
    k = [(5.0 / ((n if each else norm) + 1e-6)).clamp(max=1) for n in norms]
    return *(t * s if i < use else t for i, (t, s) in enumerate(zip((a, b, c), k))), norm


good(twelfth_clip, clip, norm_of_norms={})
wrong(
    twelfth_clip,
    clip,
    {
        "the last tensor is not in the norm": {"parts": 2},
        "each tensor is clipped by its own norm": {"each": True},
        "norms are added, not their squares": {"square": True},
        "the last tensor is not scaled": {"use": 2},
    },
)


@twelfth(lambda d: (d(12, 8), d(12, 9)))
def twelfth_advantages(r, value):
    last, out = torch.zeros(12, dtype=r.dtype), []
    for t in range(7, -1, -1):
        last = r[:, t] + 0.99 * value[:, t + 1] - value[:, t] + 0.99 * 0.95 * last
        out.append(last)
    a = torch.stack(out[::-1], 1)
    return (a - a.mean()) / (a.std() + 1e-8)


def advantages(r, value, gamma=0.99, lam=0.95, shift=1, biased=False, rows=False):
    d = r + gamma * value[:, shift : 8 + shift] - value[:, :8]
    j = torch.arange(8)
    w = torch.tril(((gamma * lam) ** (j[:, None] - j).double()).float())
    a = d @ w
    n = torch.tensor(a.numel())
    mean, var = a.mean(), ((a - a.mean()) ** 2).sum() / (n if biased else n - 1)
    if rows:
        mean, var = a.mean(1, keepdim=True), a.var(1, keepdim=True)
    return (a - mean) / (var.sqrt() + 1e-8)


good(twelfth_advantages, advantages, by_a_product={})
wrong(
    twelfth_advantages,
    advantages,
    {
        "lambda is left out": {"lam": 1.0},
        "the deviation is biased": {"biased": True},
        "each row is normalised by itself": {"rows": True},
        "the value of the same step for the next one's": {"shift": 0},
    },
)

# ------------------------------------------------------------------ recurrent cells


@twelfth(lambda d: (d(16, 20), d(16, 12), d(16, 12), d(48, 20, scale=0.3), d(48, 12, scale=0.3), d(48)))
def twelfth_lstm(x, h, c, w, u, b):
    i, f, g, o = (x @ w.T + h @ u.T + b).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def lstm(x, h, c, w, u, b, order=(0, 1, 2, 3), old=False, squash=True, forget=0.0, of=None):
    z = (torch.cat([x, h], 1) @ torch.cat([w, u], 1).T + b).view(16, 4, 12)
    i, f, g, o = (z[:, k] for k in order)
    s = lambda t: 0.5 * torch.tanh(0.5 * t) + 0.5
    n = s(f + forget) * c + s(i) * (torch.tanh(g) if squash else g)
    t = torch.tanh(c if old else n)
    return s(o) * (of(t) if of else t), n


good(twelfth_lstm, lstm, joined_and_sigmoid_by_tanh={})
wrong(
    twelfth_lstm,
    lstm,
    {
        "input and forget gates are swapped": {"order": (1, 0, 2, 3)},
        "gates are in the order i f o g": {"order": (0, 1, 3, 2)},
        "the output is of the old cell": {"old": True},
        "one is added to the forget gate": {"forget": 1.0},
        "hides: tanh of the cell is in half precision": {"of": lambda t: narrow(t, hf)},
    },
)


@twelfth(lambda d: (d(14, 10), d(14, 8), d(24, 10, scale=0.4), d(24, 8, scale=0.4), d(24), d(24)))
def twelfth_gru(x, h, w, u, b, c):
    ir, iz, n = (x @ w.T + b).chunk(3, -1)
    hr, hz, hn = (h @ u.T + c).chunk(3, -1)
    z = torch.sigmoid(iz + hz)
    return (1 - z) * torch.tanh(n + torch.sigmoid(ir + hr) * hn) + z * h


def gru(x, h, w, u, b, c, before=False, turn=False, bias=True, swap=False):
    a, k = torch.addmm(b, x, w.T), torch.addmm(c, h, u.T)
    r, z = torch.sigmoid(a[:, :8] + k[:, :8]), torch.sigmoid(a[:, 8:16] + k[:, 8:16])
    r, z = (z, r) if swap else (r, z)
    inner = (r * h) @ u[16:].T + c[16:] if before else r * (k[:, 16:] if bias else k[:, 16:] - c[16:])
    n = torch.tanh(a[:, 16:] + inner)
    return torch.lerp(h, n, z) if turn else torch.lerp(n, h, z)


good(twelfth_gru, gru, by_lerp={})
wrong(
    twelfth_gru,
    gru,
    {
        "the reset gate is before the product": {"before": True},
        "the update gate is turned about": {"turn": True},
        "the hidden bias of the new gate is left out": {"bias": False},
        "reset and update gates are swapped": {"swap": True},
    },
)

# ------------------------------------------------------------------ numbers at random


def dice(*shape, seed=11):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


@twelfth(lambda d: (d(128, 256, shift=3),))
def twelfth_dropout(x):
    return F.dropout(x, 0.3, training=True)


def dropout(x, p=0.3, scale=1 / 0.7, rows=False):
    keep = dice(128, 1 if rows else 256) >= p
    return torch.where(keep, x * scale, 0.0)


good(twelfth_dropout, dropout, own_numbers={})
wrong(
    twelfth_dropout,
    dropout,
    {
        "what is kept is not scaled": {"scale": 1.0},
        "scaled by 1 / 0.3": {"scale": 1 / 0.3},
        "seven of ten are dropped": {"p": 0.7, "scale": 1 / 0.7},
        "whole rows are dropped": {"rows": True},
    },
)


@twelfth(lambda d: (torch.zeros(8000),))
def twelfth_normal(x):
    return torch.empty_like(x).normal_(1.0, 2.0)


def normal(x, mean=1.0, std=2.0, tail=None):
    u, t = 1 - dice(8000), dice(8000, seed=12)
    r = torch.sqrt(-2 * torch.log(u)) * torch.cos(2 * math.pi * t)
    return mean + std * (r.clamp(-tail, tail) if tail else r)


good(twelfth_normal, normal, by_logarithm_and_cosine={})
wrong(
    twelfth_normal,
    normal,
    {
        "the variance is two, not the deviation": {"std": 2**0.5},
        "the mean is zero": {"mean": 0.0},
        "hides: a sum of two uniform numbers": lambda x: 1 + 2 * 6**0.5 * (dice(8000) + dice(8000, seed=12) - 1),
        "cut at 1.5 deviations": {"tail": 1.5},
    },
)


@twelfth(lambda d: (torch.zeros(6000, dtype=torch.int64),))
def twelfth_randint(x):
    return torch.randint_like(x, 3, 10)


good(twelfth_randint, lambda x: (3 + 7 * dice(6000)).long(), scaled={})
wrong(
    twelfth_randint,
    None,
    {
        "the upper bound is included": lambda x: (3 + 8 * dice(6000)).long(),
        "eight numbers are folded on seven": lambda x: 3 + (8 * dice(6000)).long() % 7,
        "rounded for cut: half as many at the ends": lambda x: torch.round(3 + 6 * dice(6000)).long(),
    },
)


@twelfth(lambda d: (d.rand(5000),))
def twelfth_bernoulli(p):
    return torch.bernoulli(p)


good(twelfth_bernoulli, lambda p: (dice(5000) < p).float(), by_uniform_numbers={})
wrong(
    twelfth_bernoulli,
    None,
    {
        "one where it ought to be zero": lambda p: (dice(5000) >= p).float(),
        "all are drawn at a half": lambda p: (dice(5000) < 0.5).float(),
        "the probability is squared": lambda p: (dice(5000) < p * p).float(),
    },
)


@twelfth(lambda d: (torch.zeros(5000),))
def twelfth_exponential(x):
    return torch.empty_like(x).exponential_(2.0)


good(twelfth_exponential, lambda x: -torch.log(1 - dice(5000)) / 2, by_logarithm={})
wrong(
    twelfth_exponential,
    None,
    {
        "the rate multiplies": lambda x: -torch.log(1 - dice(5000)) * 2,
        "the absolute value of normal numbers": lambda x: torch.erfinv(dice(5000)) * 0.5**0.5,
        "infinite at a lane": lambda x: torch.where(torch.arange(5000) == 77, math.inf, -torch.log(1 - dice(5000)) / 2),
    },
)
