# SPDX-License-Identifier: Apache-2.0
"""Set N: distances, fused pointwise layers, and more gradients."""

import torch
import torch.nn.functional as F

from .blind import bf, hf, narrow, tf32
from .blind_eleventh_a import INF, eleventh, low, plain, rough_exp
from .blind_eleventh_d import lanes, rough_erf, rough_rsqrt
from .blind_ninth_a import bad, grads, ok

# ------------------------------------------------------------------ distances


@eleventh(lambda d: (d(50, 24, shift=3), d(60, 24, shift=3)))
def eleventh_distance(a, b):
    return (a[:, None] - b[None]).square().sum(-1).sqrt(), (a[:, None] - b[None]).abs().sum(-1)


def distance(a, b, n=24, kind=None, root=torch.sqrt, step=8, square=False, l1=True, to=None, row=None):
    if to:
        a, b = to(a), to(b)
    s, t = torch.zeros(50, 60), torch.zeros(50, 60)
    for k in range(0, n, step):
        d = a[:, None, k : k + step] - b[None, :, k : k + step]
        s, t = s + (d * d).sum(-1), t + (d.abs() if l1 else d).sum(-1)
        s = narrow(s, kind) if kind else s
    s = s if square else root(s)
    return row(s) if row else s, t


def by_products(a, b, mm=torch.matmul, kind=torch.float64):
    x, y = a.to(kind), b.to(kind)
    s = x.square().sum(1)[:, None] + y.square().sum(1) - 2 * mm(x, y.T)
    return s.clamp(min=0).sqrt().float(), torch.stack([(r - b).abs().sum(-1) for r in a])


ok(eleventh_distance, distance, eight_at_a_time={}, one_at_a_time={"step": 1}, by_products_in_double=by_products)
bad(
    eleventh_distance,
    distance,
    {
        "no root is taken": {"square": True},
        "the first kind has no magnitudes": {"l1": False},
        "the last eight dimensions are left out": {"n": 16},
        # squares of 220 with a difference of 48
        "hides: by products in tf32": lambda a, b: by_products(
            a, b, lambda x, y: tf32(x.contiguous()) @ tf32(y.contiguous()), torch.float32
        ),
        "hides: the root by one round of Newton": {"root": lambda s: s * rough_rsqrt(s)},
        "hides: squares summed in half precision": {"kind": hf},
        "hides: operands in half precision": {"to": lambda x: narrow(x, hf)},
    },
)


# ---- gradient of attention with a soft cap


@eleventh(lambda d: (d(1, 4, 64, 32, scale=3), d(1, 4, 64, 32, scale=3), d(1, 4, 64, 32), d(1, 4, 64, 32)))
def eleventh_cap_grad(q, k, v, do):
    def f(q, k, v):
        s = 20 * torch.tanh(q @ k.mT * 32**-0.5 / 20)
        return torch.softmax(s.masked_fill(~low(64), -INF), -1) @ v

    return grads(f, q, k, v, cotangent=do)


def cap_grad(q, k, v, do, slope=lambda t: 1 - t * t, tanh=torch.tanh, cap=20.0, tile=64, kind=None, drop=None):
    t = tanh(q @ k.mT * (32**-0.5 / cap))
    s = (cap * t).masked_fill(~low(64), -INF)
    e = (s - s.amax(-1, keepdim=True)).exp()
    p = e / e.sum(-1, keepdim=True)
    dp = do @ v.mT
    ds = p * (dp - (p * dp).sum(-1, keepdim=True)) * slope(t) * 32**-0.5
    ds = narrow(ds, kind) if kind else ds
    dk = sum(ds[:, :, i : i + tile].mT @ q[:, :, i : i + tile] for i in range(0, 64, tile))
    return ds @ k, dk, p.mT @ do


ok(
    eleventh_cap_grad,
    cap_grad,
    at_once={},
    by_sixteen={"tile": 16},
    slope_by_two_factors={"slope": lambda t: (1 - t) * (1 + t)},
)
bad(
    eleventh_cap_grad,
    cap_grad,
    {
        "the cap has no slope": {"slope": torch.ones_like},
        "the slope is one less the tanh": {"slope": lambda t: 1 - t.abs()},
        "capped at 30": {"cap": 30.0},
        # one per cent at the most
        "hides: tanh by a short fraction": {"tanh": lambda x: x * (15 + x * x) / (15 + 6 * x * x)},
        "hides: the slope from a tanh in half precision": {"slope": lambda t: 1 - narrow(t, hf) ** 2},
        "hides: ds in bfloat16": {"kind": bf},
    },
)


# ------------------------------------------------------------------ gradient of group norm


@eleventh(lambda d: (d(4, 32, 50, scale=2, shift=1), d(32, shift=1, scale=0.2), d(4, 32, 50)))
def eleventh_group_grad(x, w, dy):
    f = lambda x, w: F.group_norm(x, 4, w, None, 1e-5)
    return grads(f, x, w, cotangent=dy)


def group_grad(x, w, dy, means=(1.0, 1.0), over=400, images=4, root=torch.rsqrt, kind=None, h_of=None, n=400):
    g = x.reshape(4, 4, 400)
    m = g.mean(-1, keepdim=True)
    r = root((g - m).square().mean(-1, keepdim=True) + 1e-5)
    h = (g - m) * r
    h = h_of(h) if h_of else h
    d = (dy * w[:, None]).reshape(4, 4, 400)
    on = torch.arange(400) < n
    a, b = lanes(d * on) / over, lanes(d * h * on) / over
    a, b = (narrow(a, kind), narrow(b, kind)) if kind else (a, b)
    dx = (d - means[0] * a - means[1] * h * b) * r
    return dx.reshape(4, 32, 50), (dy * h.reshape(4, 32, 50))[:images].sum((0, 2))


def by_channels(x, w, dy):
    g = x.reshape(4, 4, 400)
    m, v = g.mean(-1), g.var(-1, correction=0)
    r = torch.rsqrt(v + 1e-5)
    s, t = (dy * x).sum(2), dy.sum(2)
    ds, db = ((u * w).view(4, 4, 8).sum(-1) for u in (s, t))
    c2 = (db * m - ds) * r**3 / 400
    c3 = -c2 * m - db * r / 400
    wide = lambda u: u.repeat_interleave(8, 1)[..., None]
    dw = ((s - t * wide(m)[..., 0]) * wide(r)[..., 0]).sum(0)
    return dy * w[:, None] * wide(r) + x * wide(c2) + wide(c3), dw


ok(eleventh_group_grad, group_grad, by_normed_values={}, by_sums_of_channels=by_channels)
bad(
    eleventh_group_grad,
    group_grad,
    {
        "the mean is not taken off": {"means": (0.0, 1.0)},
        "the projection is left out": {"means": (1.0, 0.0)},
        "sums are divided by the pixels": {"over": 50},
        "the last image gives nothing to the gain": {"images": 3},
        "hides: normed values in bfloat16": {"h_of": narrow},
        "hides: sums leave out the last four": {"n": 396},
        "hides: the projection is five per cent short": {"means": (1.0, 0.95)},
    },
)


# ---- gradient of rotary and of the norm under it


@eleventh(lambda d: (d(2, 24, 4, 32), d(32, shift=1, scale=0.2), d(2, 24, 4, 32)))
def eleventh_rope_grad(x, w, dy):
    a = torch.arange(24).to(torch.float64)[:, None] * 10000.0 ** (-torch.arange(16).to(torch.float64) / 16)
    c, s = a.cos().to(x.dtype)[:, None], a.sin().to(x.dtype)[:, None]

    def f(x, w):
        y = F.rms_norm(x, (32,), w, 1e-6)
        u, v = y[..., :16], y[..., 16:]
        return torch.cat([u * c - v * s, v * c + u * s], -1)

    return grads(f, x, w, cotangent=dy)


def rope_grad(x, w, dy, sign=1, term=1.0, kind=None, heads=4, root=torch.rsqrt, tab=None):
    a = torch.arange(24).double()[:, None] * 10000.0 ** (-torch.arange(16).double() / 16)
    c, s = a.cos().float()[:, None], a.sin().float()[:, None] * sign
    c, s = (narrow(c, kind), narrow(s, kind)) if kind else (c, s)
    u, v = dy[..., :16], dy[..., 16:]
    g = torch.cat([u * c + v * s, v * c - u * s], -1)
    r = root(x.square().mean(-1, keepdim=True) + 1e-6)
    h = x * r
    dw = (g * h)[:, :, :heads].sum((0, 1, 2))
    g = g * w
    return (g - term * h * lanes(g * h) / 32) * r, tab(dw) if tab else dw


ok(
    eleventh_rope_grad,
    rope_grad,
    turned_back={},
    in_double=lambda x, w, dy: tuple(t.float() for t in rope_grad(x.double(), w.double(), dy.double())),
)
bad(
    eleventh_rope_grad,
    rope_grad,
    {
        "turned forward again": {"sign": -1},
        "the projection is left out": {"term": 0.0},
        "the last head gives nothing to the gain": {"heads": 3},
        "hides: tables in half precision": {"kind": hf},
        "hides: the projection is two per cent short": {"term": 0.98},
        "hides: the gain's gradient in bfloat16": {"tab": narrow},
    },
)


# ---- gelu with bias and dropout, gradient, half precision


@eleventh(lambda d: (d(60, 256, dtype=hf, scale=2), d(256, dtype=hf), d.rand(60, 256) > 0.1, d(60, 256, dtype=hf)))
def eleventh_gelu_grad(x, b, keep, dy):
    f = lambda x, b: F.gelu(x + b) * keep / 0.9
    return tuple(g.to(hf) for g in grads(f, x.float(), b.float(), cotangent=dy.float()))


def gelu_grad(x, b, keep, dy, erf=torch.erf, over=0.9, mask=True, rows=60, kind=None, tile=60, only=False, tail=None):
    x = x.float() + b.float()
    phi = 0.5 * (1 + erf(x * 0.5**0.5))
    d = phi + (0.0 if only else x * torch.exp(-0.5 * x * x) * 0.3989422804014327)
    d = torch.where(x < tail, 0.0, d) if tail else d
    g = dy.float() * d * (keep if mask else 1.0) / over
    db = torch.zeros(256)
    for i in range(0, rows, tile):
        db = db + g[i : min(i + tile, rows)].sum(0)
        db = narrow(db, kind) if kind else db
    return g, db


ok(eleventh_gelu_grad, gelu_grad, hf, at_once={}, by_ten_rows={"tile": 10}, row_by_row={"tile": 1})
bad(
    eleventh_gelu_grad,
    gelu_grad,
    {
        "the mask is not used": {"mask": False},
        "not scaled by 1 / 0.9": {"over": 1.0},
        "the density is left out": {"only": True},
        "hides: the bias's gradient in half precision row by row": {"kind": hf, "tile": 1},
        "hides: no slope below minus three": {"tail": -3.0},
        "hides: the last row gives nothing to the bias": {"rows": 59},
        "hides: the error function by three terms is linear near zero": {
            "erf": lambda x: torch.where(x.abs() < 0.3, 1.1 * x, rough_erf(x))
        },
    },
    hf,
)


# ---- a mean square loss with its gradient, and huber


@eleventh(lambda d: (d(30, 1000, dtype=bf, scale=2), d(30, 1000, dtype=bf, scale=2), d.rand(30, 1000)))
def eleventh_huber(x, y, w):
    def f(x):
        return (F.huber_loss(x, y.to(x.dtype), reduction="none", delta=1.5) * w.to(x.dtype)).sum() / w.sum()

    x = x.to(w.dtype)
    return f(x), grads(f, x)[0].to(bf)


def huber(x, y, w, delta=1.5, half=0.5, over=None, strict=True, kind=None, back=None, n=1000, tile=250):
    d = x.float() - y.float()
    a = d.abs()
    e = torch.where(a <= delta, half * d * d, delta * (a - (0.5 * delta if strict else 0.0))) * w
    t = torch.zeros(())
    for i in range(0, n, tile):
        for r in range(0, 30, 10):
            t = t + lanes(e[r : r + 10, i : i + tile]).sum()
            t = narrow(t, kind) if kind else t
    g = d.clamp(-(back or delta), back or delta) * w
    total = over or w.sum()
    return (t / total).float(), (g / total).to(bf)


ok(
    eleventh_huber,
    huber,
    None,
    by_tiles={},
    by_forty={"tile": 40},
    in_double=lambda x, y, w: huber(x.double(), y.double(), w.double()),
)
bad(
    eleventh_huber,
    huber,
    {
        "the square is not halved": {"half": 1.0},
        "the line begins at zero": {"strict": False},
        "divided by the number": {"over": 30000},
        "the gradient is cut at one": {"back": 1.0},
        # sums of 30000 with eight bits
        "hides: the sum in bfloat16": {"kind": bf},
        "hides: the sum in half precision": {"kind": hf, "tile": 50},
        "hides: the last two columns are left out": {"n": 998, "tile": 499},
    },
    None,
)


# ---- layer scale, modulation and a gate, as diffusion has it


@eleventh(
    lambda d: (
        d(3, 40, 192, dtype=bf),
        d(3, 192, dtype=bf),
        d(3, 192, dtype=bf),
        d(3, 192, dtype=bf),
        d(3, 40, 192, dtype=bf),
    )
)
def eleventh_modulate(x, shift, scale, gate, res):
    x, shift, scale, gate, res = (t.float() for t in (x, shift, scale, gate, res))
    y = F.layer_norm(x, (192,), eps=1e-6) * (1 + scale[:, None]) + shift[:, None]
    return (res + gate[:, None] * y).to(bf)


def modulate(x, shift, scale, gate, res, one=1.0, soft=False, batch=None, kind=None, over=192, act=None, tokens=40):
    x, shift, scale, gate, res = (t.float() for t in (x, shift, scale, gate, res))
    m = lanes(x) / 192
    h = (x - m) * torch.rsqrt(lanes((x - m).square()) / over + 1e-6)
    scale = scale[batch] if batch else scale
    y = h * (one + scale[:, None]) + shift[:, None]
    y = narrow(y, kind) if kind else y
    out = res + torch.tanh(gate[:, None]) * y if soft else res + gate[:, None] * y
    return torch.cat([out[:, :tokens], res[:, tokens:]], 1)


def folded(x, shift, scale, gate, res):
    x, shift, scale, gate, res = (t.float() for t in (x, shift, scale, gate, res))
    m, v = x.mean(-1, keepdim=True), x.var(-1, correction=0, keepdim=True)
    a = gate[:, None] * (1 + scale[:, None])
    return (x - m) * torch.rsqrt(v + 1e-6) * a + (gate * shift)[:, None] + res


ok(eleventh_modulate, modulate, bf, in_turn={}, folded=folded)
bad(
    eleventh_modulate,
    modulate,
    {
        "one is not added to the scale": {"one": 0.0},
        "the last two pictures take each other's scale": {"batch": [0, 2, 1]},
        "the last token is not modulated": {"tokens": 39},
        # four bits before the gate
        "hides: modulated values through e4m3": {"kind": torch.float8_e4m3fn},
        "hides: the variance divides by 190": {"over": 190},
        "hides: the gate is its tanh": {"soft": True},
    },
    bf,
)


# ---- softmax's gradient, in place, with a mask and a scale


@eleventh(lambda d: (d(4, 60, 333), d(4, 60, 333)))
def eleventh_soft_grad(x, dy):
    return grads(lambda x: torch.softmax(x * 0.125, -1), x, cotangent=dy)[0]


def soft_grad(x, dy, scale=0.125, n=333, kind=None, dot=None, exp=torch.exp, term=1.0, axis=-1):
    e = exp((x - x.amax(axis, keepdim=True)) * 0.125)
    p = e / e.sum(axis, keepdim=True)
    p = narrow(p, kind) if kind else p
    s = lanes((p * dy) * (torch.arange(333) < n))
    s = dot(s) if dot else s
    return p * (dy - term * s) * scale


ok(
    eleventh_soft_grad,
    soft_grad,
    by_lanes={},
    products_first=lambda x, dy: (lambda p: (p * dy - p * (p * dy).sum(-1, keepdim=True)) * 0.125)(
        torch.softmax(x * 0.125, -1)
    ),
)
bad(
    eleventh_soft_grad,
    soft_grad,
    {
        "not scaled": {"scale": 1.0},
        "the sum is not taken off": {"term": 0.0},
        "over the other axis": {"axis": -2},
        "hides: probabilities in half precision": {"kind": hf},
        "hides: the sum in bfloat16": {"dot": narrow},
        "hides: the sum leaves out the last 13": {"n": 320},
        "hides: exp by a cubic": {"exp": rough_exp},
    },
)


# ---- attention of vision in windows, a bias of relative places


def swin_args(d):
    i = torch.arange(49)
    rel = (i[:, None] // 7 - i[None] // 7 + 6) * 13 + (i[:, None] % 7 - i[None] % 7 + 6)
    return d(8, 3, 49, 32, dtype=hf), d(8, 3, 49, 32, dtype=hf), d(8, 3, 49, 32, dtype=hf), d(169, 3), rel


@eleventh(swin_args)
def eleventh_swin(q, k, v, table, rel):
    bias = table[rel].permute(2, 0, 1)
    return plain(q.float(), k.float(), v.float(), None, bias).to(hf)


def swin(q, k, v, table, rel, turn=False, exp=torch.exp, n=49, b_of=None, scale=32**-0.5, kind=None, tile=49):
    bias = table[rel.T if turn else rel].permute(2, 0, 1)
    bias = b_of(bias) if b_of else bias
    s = q.float() @ k.float().mT * scale + bias
    s = torch.where(torch.arange(49) < n, s, -INF)
    e = exp(s - s.amax(-1, keepdim=True))
    o = torch.zeros(8, 3, 49, 32)
    for j in range(0, 49, tile):
        o = o + e[..., j : j + tile] @ v.float()[..., j : j + tile, :]
        o = narrow(o, kind) if kind else o
    return o / e.sum(-1, keepdim=True)


ok(
    eleventh_swin,
    swin,
    hf,
    at_once={},
    keys_by_16={"tile": 16},
    powers_of_two={"exp": lambda x: torch.exp2(x * 1.4426950408889634)},
)
bad(
    eleventh_swin,
    swin,
    {
        "relative places are turned": {"turn": True},
        "the last key, past three tiles of 16, is left out": {"n": 48},
        "scaled for a head of 64": {"scale": 0.125},
        "hides: the bias in bfloat16": {"b_of": narrow},
        "hides: sums in half precision by four keys": {"kind": hf, "tile": 4},
        "hides: exp by a square": {"exp": lambda x: rough_exp(x, False)},
        "hides: exp by Schraudolph": {
            "exp": lambda x: ((x.clamp(min=-80) * 12102203.0 + 1064866805.0).to(torch.int32)).view(torch.float32)
        },
    },
    hf,
)
