# SPDX-License-Identifier: Apache-2.0
"""Set M, its second part: gradients at kinks, ties, small changes behind subtractions, differences that vanish."""

import torch

from .blind import bf, hf, narrow
from .blind_ninth_a import bad, grads, ok
from .blind_tenth_a import tenth
from .blind_tenth_j import wide

F = torch.nn.functional
INF = float("inf")

# ------------------------------------------------------------------ gradients at kinks


def kink_args(d):
    x = torch.cat([d(200, scale=3), torch.tensor([0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 6.0, 0.5])])
    return x, d(208)


@tenth(kink_args)
def tenth_kinks(x, g):
    fs = F.relu, torch.abs, F.hardswish, F.relu6, lambda t: t.clamp(-1, 1), lambda t: F.leaky_relu(t, 0.1)
    return tuple(grads(f, x, cotangent=g)[0] for f in fs)


def kinks(x, g, relu=0.0, size=0.0, six=0.0, one=1.0, leak=0.1, swish=None):
    at = lambda v: (x == v).float()
    up = lambda lo, hi: ((x > lo) & (x < hi)).float()
    hs = torch.where(x < -3, 0.0, torch.where(x <= 3, x / 3 + 0.5, 1.0))
    hs = torch.where(x == -3, 0.0, hs) if swish is None else swish(x, hs)
    return (
        g * ((x > 0) + at(0.0) * relu),
        g * (x.sign() + at(0.0) * size),
        g * hs,
        g * (up(0, 6) + (at(0.0) + at(6.0)) * six),
        g * (up(-1, 1) + (at(1.0) + at(-1.0)) * one),
        g * torch.where(x > 0, 1.0, leak),
    )


ok(tenth_kinks, kinks, by_hand={})
bad(
    tenth_kinks,
    kinks,
    {
        # relu'(0) = 1
        "hides: relu's gradient at zero is one": {"relu": 1.0},
        # |.|'(0) = 1
        "hides: the size's gradient at zero is one": {"size": 1.0},
        # relu6'(6) = 1
        "hides: relu6 passes its ends": {"six": 1.0},
        # clamp stops at its bounds
        "hides: clamp does not pass its bounds": {"one": 0.0},
        # slope stored in half precision
        "hides: the leak in half precision": {"leak": 0.0999755859375},
    },
)


def even_args(d):
    x = d(20, 16).mul(2).round().div(2)
    x[3] = 0
    return x, d(20), d(20, 16)


@tenth(even_args)
def tenth_shared(x, g, y):
    return (
        grads(lambda t: t.amax(-1), x, cotangent=g)[0],
        grads(lambda t: t.max(-1)[0], x, cotangent=g)[0],
        grads(lambda t: torch.linalg.vector_norm(t, dim=-1), x, cotangent=g)[0],
        grads(lambda t: torch.maximum(t, y.round()), x.round(), cotangent=y)[0],
        grads(lambda t: t.prod(-1), x[:, :5] + 0.0, cotangent=g)[0],
    )


def products(x):
    out = torch.zeros_like(x)
    for j in range(x.shape[1]):
        out[:, j] = torch.cat([x[:, :j], x[:, j + 1 :]], 1).prod(-1)
    return out


def shared(x, g, y, even=True, first=True, nan=False, half=True, zero=True):
    hit = (x == x.amax(-1, keepdim=True)).float()
    a = g[:, None] * hit / (hit.sum(-1, keepdim=True) if even else 1.0)
    at = x.max(-1)[1] if first else 15 - x.flip(-1).max(-1)[1]
    b = torch.zeros_like(x).scatter(1, at[:, None], g[:, None])
    n = x.square().sum(-1, keepdim=True).sqrt()
    c = g[:, None] * x / (n if nan else torch.where(n == 0, 1.0, n))
    r, z = x.round(), y.round()
    d = y * torch.where(r > z, 1.0, torch.where(r == z, 0.5 if half else 1.0, 0.0))
    p = x[:, :5]
    e = products(p) if zero else (p.prod(-1, keepdim=True) / p).nan_to_num(0, 0, 0)
    return a, b, c, d, g[:, None] * e


ok(tenth_shared, shared, by_hand={})
bad(
    tenth_shared,
    shared,
    {
        # the whole gradient to each
        "hides: equal maxima each get the whole gradient": {"even": False},
        # last index
        "hides: the last of equal maxima gets the gradient": {"first": False},
        # 0 / 0
        "hides: the gradient of a norm of zero is not a number": {"nan": True},
        # maximum's ties
        "hides: the first of two equal ones gets it all": {"half": False},
        # product over x
        "hides: the product's gradient by division": {"zero": False},
    },
)

# ------------------------------------------------------------------ places among equal ones


def order_args(d):
    x = d(20, 30).mul(3).round().div(3)
    x[2, 5] = float("nan")
    return (x,)


@tenth(order_args)
def tenth_places(x):
    return x.argmin(-1), x.cummax(-1)[1], x.max(-1)[1], torch.searchsorted(x[:, 8:16].sort(-1)[0].contiguous(), x)


def places(x, low=0, run=0, top=0, nan=0):
    n = torch.arange(30)
    y = torch.where(x.isnan(), -INF if not nan else INF, x)
    hit = y == y.amin(-1, keepdim=True)
    a = torch.where(hit, n, 99).amin(-1) if not low else torch.where(hit, n, -1).amax(-1)
    z = torch.where(x.isnan(), INF, x)
    up = z == z.cummax(-1)[0]
    if run:
        new = torch.cat([torch.ones(20, 1) > 0, z[:, 1:] > z.cummax(-1)[0][:, :-1]], 1)
        up = new
    b = torch.where(up, n, 0).cummax(-1)[0]
    t = z == z.amax(-1, keepdim=True)
    c = torch.where(t, n, 99).amin(-1) if not top else torch.where(t, n, -1).amax(-1)
    s = x[:, 8:16].sort(-1)[0]
    e = (s[:, None] < x[..., None]).sum(-1)
    return a, b, c, torch.where(x.isnan(), torch.searchsorted(s.contiguous(), x), e)


ok(tenth_places, places, None, by_comparison={})
bad(
    tenth_places,
    places,
    {
        # argmin: last
        "hides: the last of equal minima": {"low": 1},
        # NaN is not the least
        "hides: argmin passes not a number by": {"nan": 1},
        # cummax: first of equal ones
        "hides: a running maximum keeps its first place": {"run": 1},
        # max: last
        "hides: the last of equal maxima": {"top": 1},
    },
    None,
)

# ------------------------------------------------------------------ steps that are small beside what they change


@tenth(lambda d: (d(40, 30), d(40, 30), d(40, 30, scale=0.1), d(40, 30)))
def tenth_small_steps(p, g, m, e):
    m = 0.9 * m + g
    new = p - 1e-4 * (g + 0.9 * m) - 1e-4 * 0.05 * p
    return new, e + 1e-3 * (new - e), p - 1e-4 * torch.sign(0.9 * m + 0.1 * g)


def small_steps(p, g, m, e, lr=1e-4, decay=0.05, ahead=0.9, ema=1e-3, stale=False, sign=None, rows=None):
    m2 = m * 0.9 + g
    u = g + ahead * m2
    u = rows(u) if rows else u
    new = p - lr * u - 1e-4 * decay * p
    s = torch.sign(0.9 * m2 + 0.1 * g) if sign is None else sign(0.9 * m2 + 0.1 * g)
    return new, e.lerp(p if stale else new, ema), p - 1e-4 * s


ok(tenth_small_steps, small_steps, towards={})
bad(
    tenth_small_steps,
    small_steps,
    {
        # lr in half precision: 1.00017e-4
        "hides: the rate in half precision": {"lr": 1.0001659393310547e-4},
        # lr in bfloat16: 1.0014e-4
        "hides: the rate in bfloat16": {"lr": 1.0013580322265625e-4},
        # decay
        "hides: the decay is 0.04": {"decay": 0.04},
        # old parameters in the average
        "hides: the average takes the parameters before the step": {"stale": True},
        # 1 - 0.999 in half precision
        "hides: one less 0.999 in half precision": {"ema": 9.765625e-4},
        # tanh for sign
        "hides: a steep tanh for the sign": {"sign": lambda t: torch.tanh(1e2 * t)},
        # one row keeps the last gradient
        "hides: a row's step is the row's before": {"rows": lambda u: torch.cat([u[:39], u[38:39]])},
    },
)

# ------------------------------------------------------------------ differences that vanish


def vanish_args(d):
    p = torch.softmax(d(16, 50), -1)
    x = d(16, 50)
    x[:, 3] += 30
    a = d(16, 64)
    return p, p * (1 + d(16, 50, scale=1e-4)), x, a, a + d(16, 64, scale=1e-4)


@tenth(vanish_args)
def tenth_vanishing(p, q, x, a, b):
    p, q, x, a, b = (t.double() for t in (p, q, x, a, b))
    r = q / p
    c = 1 - (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1))
    others = torch.cat([x[:, :3], x[:, 4:]], -1)
    return (
        (p * (r - 1 - torch.log(r))).sum(-1).float(),
        torch.log1p((others - x[:, 3:4]).exp().sum(-1)).float(),
        c.float(),
        (a.square() - b.square()).sum(-1).float(),
    )


def vanishing(p, q, x, a, b, ce=0, cos=0, sq=0):
    r = (q - p).double() / p.double()
    k = (p.double() * (r - torch.log1p(r))).sum(-1).float()
    m = x - x[:, 3:4]
    e = torch.cat([m[:, :3], m[:, 4:]], -1).exp().sum(-1)
    c = torch.log1p(e) if not ce else torch.logsumexp(x, -1) - x[:, 3]
    u, v = a.double(), b.double()
    h = u / u.norm(dim=-1, keepdim=True) - v / v.norm(dim=-1, keepdim=True)
    w = (h.square().sum(-1) / 2).float() if not cos else 1 - F.cosine_similarity(a, b)
    s = ((a - b) * (a + b)).sum(-1) if not sq else a.square().sum(-1) - b.square().sum(-1)
    return k, c, w, s


ok(tenth_vanishing, vanishing, factored={})
bad(
    tenth_vanishing,
    vanishing,
    {
        # logsumexp - x
        "hides: a sure cross entropy as a difference": {"ce": 1},
        # 1 - cos
        "hides: a cosine distance in single precision": {"cos": 1},
    },
)

# ------------------------------------------------------------------ quotients and remainders


def whole_args(d):
    a = torch.cat([torch.arange(1, 200) * 0.1, -torch.arange(1, 100) * 0.1, d(200, scale=1e3)]).float()
    return a, torch.cat([torch.full((298,), 0.1), d(200)]), d.ints(200, 300) - 100, d.ints(7, 300) + 1


@tenth(whole_args)
def tenth_whole(a, b, i, j):
    return torch.fmod(a, b), torch.remainder(a, b), i // j, i % j, (i.to(torch.int8) >> 2)


def whole(a, b, i, j, f=None, r=None, q=None, m=None, s=None):
    fm, rm = torch.fmod(a.double(), b.double()).float(), torch.remainder(a, b)
    return (
        f(a, b) if f else fm,
        r(a, b) if r else rm,
        q(i, j) if q else torch.div(i, j, rounding_mode="floor"),
        m(i, j) if m else i - torch.div(i, j, rounding_mode="floor") * j,
        s(i) if s else i.to(torch.int8) >> 2,
    )


ok(tenth_whole, whole, None, by_floor={})
bad(
    tenth_whole,
    whole,
    {
        # a - trunc(a / b) * b
        "hides: fmod by a quotient": {"f": lambda a, b: a - (a / b).trunc() * b},
        # a - floor(a / b) * b
        "hides: remainder by a quotient": {"r": lambda a, b: a - (a / b).floor() * b},
        # C's division
        "whole quotients are cut": {"q": lambda i, j: torch.div(i, j, rounding_mode="trunc")},
        # C's remainder
        "whole remainders keep the sign": {"m": lambda i, j: torch.fmod(i, j)},
        # logical shift
        "the shift brings zeros in": {"s": lambda i: ((i & 255) >> 2).to(torch.int8)},
    },
    None,
)

# ------------------------------------------------------------------ attention whose one weight is small


@tenth(lambda d: (d(2, 64, 32, scale=1.5), d(2, 512, 32, scale=1.5), d(2, 512, 32)))
def tenth_long_keys(q, k, v):
    return torch.softmax(q @ k.mT * 32**-0.5, -1) @ v


def long_keys(q, k, v, lost=(), twice=(), exp=torch.exp, floor=None, kind=None, last=None):
    s = q @ k.mT * 32**-0.5
    s[..., list(lost)] = -INF
    e = exp(s - s.amax(-1, keepdim=True))
    e[..., list(twice)] *= 2
    e = torch.where(e < floor, 0.0, e) if floor else e
    o = sum(e[..., j : j + 64] @ v[:, j : j + 64] for j in range(0, 512, 64)) / e.sum(-1, keepdim=True)
    return last(o) if last else o


def table_exp(s):
    i = (s * 16).floor() / 16
    return wide(torch.exp)(i) * (1 + (s - i) + (s - i) ** 2 / 2)


ok(tenth_long_keys, long_keys, by_64_keys={}, exact_exponentials={"exp": wide(torch.exp)})
bad(
    tenth_long_keys,
    long_keys,
    {
        # key 511 of 512
        "hides: the last key is not seen": {"lost": (511,)},
        # the border key counts twice
        "hides: a key at a tile's border counts twice": {"twice": (256,)},
        # weights below 1e-5 of the greatest
        "hides: weights below 1e-5 of the greatest are dropped": {"floor": 1e-5},
        # a table and two terms: 6e-7
        "hides: exponentials of a table and a parabola": {"exp": table_exp},
        # the last row of the tile in half precision
        "hides: one row in half precision": {
            "last": lambda o: torch.cat([o[:, :63], narrow(o[:, 63:], hf)], 1),
        },
    },
)

# ------------------------------------------------------------------ a last bit of bfloat16 in sums


@tenth(lambda d: (d(64, 256, dtype=bf), d(64, 256, dtype=bf), d(256, dtype=bf), d(64, 256, dtype=bf)))
def tenth_residual(x, y, b, r):
    return (x.float() + y.float() + b.float() + r.float()).to(bf), (x.float() * y.float() + r.float()).to(bf)


def residual(x, y, b, r, kind=None, first=False, some=None):
    x, y, b, r = x.float(), y.float(), b.float(), r.float()
    s = x + y + b
    s = narrow(s, kind) if kind else s
    p = narrow(x * y) if first else x * y
    t = s + r
    return (some(t) if some else t).to(bf), (p + r).to(bf)


ok(tenth_residual, residual, None, left_to_right={})
bad(
    tenth_residual,
    residual,
    {
        # sum rounded before the residual
        "hides: rounded before the residual": {"kind": bf},
        # product rounded
        "hides: the product is rounded first": {"first": True},
        # through half precision
        "hides: three of four are added in half precision": {"kind": hf},
        # stochastic
        "hides: ties and near ties go up": {"some": lambda t: t * (1 + 2**-11)},
        # moved by a quarter of a unit in odd columns
        "hides: odd columns lean by a quarter of a unit": {
            "some": lambda t: t * torch.where(torch.arange(256) % 2 == 1, 1 + 2**-10, 1.0)
        },
    },
    None,
)
