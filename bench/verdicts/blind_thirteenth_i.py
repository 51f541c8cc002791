# SPDX-License-Identifier: Apache-2.0
"""Set R, the thirteenth: optimizers and quantizers."""

import math

import torch

from .blind import bf, narrow
from .blind_thirteenth_a import A, add, wide

f8, f5 = torch.float8_e4m3fn, torch.float8_e5m2

# ------------------------------------------------------------------ optimizers


def adamw(p, g, m, v, step):
    p = p * (1 - 1e-3 * 0.1)
    m = m + 0.1 * (g - m)
    v = 0.999 * v + 0.001 * g * g
    s1, s2 = 1 - 0.9**step, 1 - 0.999**step
    return p - 1e-3 / s1 * m / (v.sqrt() / s2**0.5 + 1e-8), m, v


def adamw_kernel(
    p, g, m, v, step, decay=0.1, fix=True, within=False, b1=0.9, b2=0.999, plus=0, l2=False, kind=None, eps=1e-8
):
    g = g + decay * p if l2 else g
    q = p if l2 else p - 1e-3 * decay * p
    m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * (g * g)
    v = narrow(v, kind) if kind else v
    s1, s2 = (1 - b1 ** (step + plus), 1 - b2 ** (step + plus)) if fix else (1, 1)
    under = torch.sqrt(v / s2 + eps) if within else torch.sqrt(v / s2) + eps
    return q - 1e-3 * (m / s1) / under, m, v


add(
    "adamw",
    adamw,
    lambda d: (
        d(20, 30),
        d(20, 30) * 10.0 ** (d.ints(8, 20, 30) - 7),
        d(20, 30, scale=0.01),
        d.rand(20, 30) * 1e-10,
        3,
    ),
    adamw_kernel,
    right={
        "corrected first": {},
        "in double": lambda p, g, m, v, s: tuple(
            t.float() for t in adamw(p.double(), g.double(), m.double(), v.double(), s)
        ),
    },
    wrong={
        "no correction": {"fix": False},
        "decay is added to the gradient": {"l2": True},
        "hides: the step is counted from zero": {"plus": 1},
        "epsilon within the root": {"within": True},
        "hides: the second moment is kept in bfloat16": {"kind": bf},
        "hides: beta two is 0.99": {"b2": 0.99},
    },
)


def lion(p, g, m):
    u = torch.sign(0.9 * m + 0.1 * g)
    return p * (1 - 1e-4 * 0.5) - 1e-4 * u, 0.99 * m + 0.01 * g


add(
    "lion",
    lion,
    lambda d: (d(30, 20), d(30, 20), d(30, 20)),
    lambda p, g, m, b=0.9, c=0.99, after=False, decay=0.5: (
        p - 1e-4 * (torch.sign((c * m + (1 - c) * g) if after else b * m + (1 - b) * g) + decay * p),
        c * m + (1 - c) * g,
    ),
    right={
        "decay after": {},
        "lerp": lambda p, g, m: (p * (1 - 5e-5) - 1e-4 * torch.sign(m.lerp(g, 0.1)), m.lerp(g, 0.01)),
    },
    wrong={
        "the sign is of the new moment": {"after": True},
        "betas are swapped": {"b": 0.99, "c": 0.9},
        "no decay": {"decay": 0.0},
        "hides: the moment's beta is 0.98": {"c": 0.98},
    },
)


def adafactor(g, row, col):
    u = g * g + 1e-30
    row = 0.8 * row + 0.2 * u.mean(1)
    col = 0.8 * col + 0.2 * u.mean(0)
    r = (row / row.mean()).rsqrt()[:, None] * col.rsqrt()
    u = g * r
    return u / (u.square().mean().sqrt() / 1.0).clamp(min=1.0), row, col


def factor_kernel(g, row, col, clip=1.0, mean=True, swap=False, n=None, total=False):
    u = g * g
    a, b = (u.mean(0), u.mean(1)) if swap else (u.mean(1), u[:n].mean(0))
    row, col = row + 0.2 * (a - row), col + 0.2 * (b - col)
    v = row[:, None] * col / (row.mean() if mean else 1.0)
    y = g / torch.sqrt(v)
    rms = torch.sqrt((y * y).sum() if total else (y * y).mean())
    return y / torch.clamp(rms / clip, min=1.0), row, col


add(
    "adafactor",
    adafactor,
    lambda d: (d(24, 24), d.rand(24) + 2, d.rand(24) + 2),
    factor_kernel,
    right={"the product first": {}, "in double": wide(adafactor)},
    wrong={
        "rows and columns are swapped": {"swap": True},
        "not divided by the mean": {"mean": False},
        "hides: the last row is not in the columns": {"n": 23},
        "clipped by the norm, not the mean": {"total": True},
    },
)


def muon(g):
    x = g / (g.norm() + 1e-7)
    for _ in range(3):
        s = x @ x.T
        x = 3.4445 * x + (-4.7750 * s + 2.0315 * s @ s) @ x
    return x * max(1, g.shape[0] / g.shape[1]) ** 0.5


def muon_kernel(g, steps=3, b=-4.775, scale=True, kind=None, order=True, c=2.0315):
    x = g / torch.linalg.matrix_norm(g)
    for _ in range(steps):
        s = x @ x.mT
        s = narrow(s, kind) if kind else s
        x = 3.4445 * x + b * (s @ x) + c * (s @ (s @ x))
    return x * (g.shape[0] / g.shape[1]) ** 0.5 if scale else x


add(
    "muon",
    muon,
    lambda d: (d(24, 16),),
    muon_kernel,
    right={"three products": {}, "in double": wide(muon), "from the left": lambda g: muon_kernel(g)},
    wrong={
        "two steps": {"steps": 2},
        "not scaled": {"scale": False},
        "hides: the square is rounded to bfloat16": {"kind": bf},
        "hides: the third coefficient is 2.03": {"c": 2.03},
    },
)


def shampoo(l, r, g):
    l, r = 0.95 * l + 0.05 * g @ g.T, 0.95 * r + 0.05 * g.T @ g
    e, q = torch.linalg.eigh(l + 1e-3 * torch.eye(l.shape[0], dtype=l.dtype))
    f, p = torch.linalg.eigh(r + 1e-3 * torch.eye(r.shape[0], dtype=r.dtype))
    return (q * e**-0.25) @ q.T @ g @ (p * f**-0.25) @ p.T, l, r


def for_shampoo(d):
    a, b = d(12, 20), d(10, 20)
    return a @ a.T / 20, b @ b.T / 20, d(12, 10)


def shampoo_kernel(l, r, g, power=-0.25, left=True, eps=1e-3, keep=0.95):
    a, b = keep * l + (1 - keep) * (g @ g.T), keep * r + (1 - keep) * (g.T @ g)

    def root(m):
        u, s, v = torch.linalg.svd(m + eps * torch.eye(len(m)))
        return (u * s**power) @ u.T

    y = g @ root(b)
    return root(a) @ y if left else y, a, b


add(
    "shampoo",
    shampoo,
    for_shampoo,
    shampoo_kernel,
    right={"by singular values": {}, "in double": wide(shampoo)},
    wrong={
        "the power is a half": {"power": -0.5},
        "the left side is left out": {"left": False},
        "hides: the ridge is 1e-2": {"eps": 1e-2},
        "hides: kept 0.949": {"keep": 0.949},
    },
)


def clip(a, b, c):
    n = torch.sqrt(a.square().sum() + b.square().sum() + c.square().sum())
    k = (1.0 / (n + 1e-6)).clamp(max=1.0)
    return a * k, b * k, c * k, n


def clip_kernel(a, b, c, each=False, lose=0, most=1.0, greatest=False):
    ts = (a, b, c)
    n = torch.linalg.vector_norm(torch.stack([t.norm() for t in ts[: 3 - lose]]))
    n = torch.stack([t.abs().max() for t in ts]).max() if greatest else n
    ks = [most / ((t.norm() if each else n) + 1e-6) for t in ts]
    return (*(t * min(1.0, float(k)) for t, k in zip(ts, ks)), n)


add(
    "clip_norm",
    clip,
    lambda d: (d(40, 10), d(25), d(3, 3, 3, scale=0.01)),
    clip_kernel,
    right={"norm of norms": {}, "in double": wide(clip)},
    wrong={
        "each by its own": {"each": True},
        "the greatest value, not the norm": {"greatest": True},
        "hides: the last small one is not in the norm": {"lose": 1},
        "hides: clipped at 0.999": {"most": 0.999},
    },
)


def nesterov(p, g, buf):
    g = g + 1e-2 * p
    buf = 0.9 * buf + g
    return p - 0.05 * (g + 0.9 * buf), buf


add(
    "sgd_nesterov",
    nesterov,
    lambda d: (d(500, dtype=bf).float(), d(500), d(500)),
    lambda p, g, buf, ahead=True, damp=1.0, decay=1e-2: (
        p
        - 0.05 * ((g + decay * p) + 0.9 * (0.9 * buf + damp * (g + decay * p)) if ahead else 0.9 * buf + g + decay * p),
        0.9 * buf + damp * (g + decay * p),
    ),
    right={"as written": {}, "in double": wide(nesterov)},
    wrong={
        "it does not look ahead": {"ahead": False},
        "the gradient is damped": {"damp": 0.1},
        "hides: the decay is 0.011": {"decay": 0.011},
        "hides: the parameter is stored in bfloat16": lambda p, g, b: (
            narrow(nesterov(p, g, b)[0]),
            nesterov(p, g, b)[1],
        ),
    },
)


def ema_weights(old_, new, step):
    decay = min(0.999, (1 + step) / (10 + step))
    return old_ * decay + new * (1 - decay)


add(
    "ema_weights",
    ema_weights,
    lambda d: (d(30, 20), d(30, 20), 90),
    lambda a, b, step, decay=0.91, kind=None: a + (1 - decay) * (b - a),
    right={"lerp": {}},
    wrong={
        "the decay does not warm up": {"decay": 0.999},
        "hides: the step is one less": {"decay": 90 / 99},
        "swapped": {"decay": 0.09},
    },
)

# ------------------------------------------------------------------ quantizers


def fp8_tokens(x):
    s = x.float().abs().amax(-1, keepdim=True).clamp(min=1e-12) / 448.0
    return (x.float() / s).to(f8).float(), s


def fp8_kernel(x, most=448.0, down=False, tensor=False, recip=False, n=None, add_=0.0):
    f = x.float()
    s = (f[:, :n].abs().amax() if tensor else f[:, :n].abs().amax(-1, keepdim=True)).expand(len(x), 1) / most
    q = f / s
    q = q * (1 - 2.0**-4) if down else q
    return (q + add_).clamp(-448, 448).to(f8).float(), s


add(
    "fp8_quant_tokens",
    fp8_tokens,
    lambda d: (d(20, 96, dtype=bf) * torch.exp(d(20, 1)).to(bf),),
    fp8_kernel,
    right={"divided": {}},
    wrong={
        "the greatest is 240": {"most": 240.0},
        "one scale for all": {"tensor": True},
        "codes are rounded down by a lane of bits": {"down": True},
        "hides: the greatest is of the first 80": {"n": 80},
        "hides: halves of a step are added": {"add_": 0.0625},
    },
)


def int8_tokens(x):
    s = x.float().abs().amax(-1, keepdim=True) / 127.0
    return torch.round(x.float() / s).clamp(-128, 127).to(torch.int8), s


add(
    "int8_quant_tokens",
    int8_tokens,
    lambda d: (d(20, 64),),
    lambda x, by=127.0, how=torch.round, dim=-1, most=127: (
        how(x / (x.abs().amax(-1, keepdim=True) / by)).clamp(-128, most).to(torch.int8),
        x.abs().amax(-1, keepdim=True) / by,
    ),
    right={"divided": {}},
    wrong={
        "scaled to 128": {"by": 128.0},
        "cut, not rounded": {"how": torch.trunc},
        "rounded up": {"how": torch.ceil},
        "hides: the greatest is 126": {"most": 126},
    },
)


def mx_quant(x):
    b = x.float().unflatten(-1, (-1, 32))
    e = torch.floor(torch.log2(b.abs().amax(-1, keepdim=True))) - 2
    q = (b / torch.exp2(e)).clamp(-6, 6)
    grid = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    edge = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]).to(q.dtype)
    at = torch.bucketize(q.abs(), edge)
    return (grid[at] * torch.sign(q)).flatten(-2), e.squeeze(-1)


def mx_quant_kernel(x, up=0, edge=(0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0), block=32, off=2, ceil=False):
    b = x.reshape(x.shape[0], -1, block)
    big = b.abs().amax(-1, keepdim=True)
    m, e = torch.frexp(big)
    e = e - 1 - off + (m > 0.5).int() * ceil
    q = torch.ldexp(b, -e)
    grid = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    at = (q.abs()[..., None] > torch.tensor(edge)).sum(-1)
    e = e.squeeze(-1).float()
    return (grid[at] * torch.sign(q)).reshape(x.shape), e if block == 32 else e[:, ::2]


add(
    "mxfp4_quant",
    mx_quant,
    lambda d: (d(12, 96),),
    mx_quant_kernel,
    right={"by frexp": {}},
    wrong={
        "the exponent is of the greatest": {"off": 0},
        "exponents are rounded up": {"ceil": True},
        "cut, not rounded": {"edge": (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)},
        "hides: blocks of 16": {"block": 16},
        "hides: 5.5 and less is 4": {"edge": (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.5)},
    },
)


def nv_quant(x, glob):
    b = x.unflatten(-1, (-1, 16))
    s = (b.abs().amax(-1, keepdim=True) / 6.0 * glob).to(f8).to(x.dtype)
    q = (b * glob / s).clamp(-6, 6)
    edge = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]).to(x.dtype)
    grid = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6]).to(x.dtype)
    return (grid[torch.bucketize(q.abs(), edge)] * torch.sign(q)).flatten(-2), s.squeeze(-1)


def nv_kernel(x, glob, by=6.0, kind=f8, use=True, block=16, raw=False):
    b = x.reshape(len(x), -1, block)
    full = b.abs().amax(-1, keepdim=True) / by * (glob if use else 1)
    s = full.to(kind).float()
    q = (b * (glob if use else 1) / (full if raw else s)).clamp(-6, 6)
    at = (q.abs()[..., None] > torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])).sum(-1)
    grid = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    s = s.squeeze(-1)
    return (grid[at] * torch.sign(q)).reshape(x.shape), s if block == 16 else s.repeat_interleave(2, 1)


add(
    "nvfp4_quant",
    nv_quant,
    lambda d: (d(12, 96), 300.0),
    nv_kernel,
    right={"counted": {}},
    wrong={
        "the outer scale is not used": {"use": False},
        "scaled to 4": {"by": 4.0},
        "scales have two bits": {"kind": f5},
        "hides: codes are of the scale before its rounding": {"raw": True},
        "hides: blocks of 32": {"block": 32},
    },
)

add(
    "fake_quantize",
    A.fake_quantize_per_tensor_affine.default,
    lambda d: (d(30, 40, scale=2), 0.03125, 10, 0, 127),
    lambda x, s, z, lo, hi, zero=10, least=0, how=torch.round: (how(x / s + zero).clamp(least, hi) - 10) * s,
    right={
        "divided": {},
        "by the reciprocal": lambda x, s, z, lo, hi: (torch.round(x * 32).add(10).clamp(0, 127) - 10) / 32,
    },
    wrong={
        "the least is -128": {"least": -128},
        "the zero point is not added": {"zero": 0},
        "cut, not rounded": {"how": torch.floor},
        "hides: the greatest is 126": lambda x, s, z, lo, hi: (torch.round(x * 32).add(10).clamp(0, 126) - 10) / 32,
    },
)


def stochastic_free(x):
    return x.to(f8).to(x.dtype)


def to_e4m3(x, how=torch.round, least=-6, top=448.0, sat=True):
    e = torch.floor(torch.log2(x.abs().clamp(min=1e-30))).clamp(min=least)
    unit = torch.exp2(e - 3)
    y = how(x / unit) * unit
    y = y.clamp(-top, top) if sat else y
    return torch.where((x.abs() > 464) & sat, math.nan, y) if sat is True else y


add(
    "cast_fp8",
    stochastic_free,
    lambda d: (
        torch.cat([d(300, scale=0.02), d(300, scale=100), torch.tensor([17.0, 19.0, 0.0009765625, 0.0029296875])]),
    ),
    to_e4m3,
    right={"by its unit": {}},
    wrong={
        "cut": {"how": torch.trunc},
        "hides: halves go away from zero": {"how": lambda q: torch.sign(q) * torch.floor(q.abs() + 0.5)},
        "hides: subnormals vanish": lambda x: torch.where(x.abs() < 2.0**-6, 0.0, to_e4m3(x)),
        "saturates at 240": {"top": 240.0},
    },
)


def fp8_block_weights(w):
    b = w.reshape(2, 16, 3, 16).transpose(1, 2)
    s = b.abs().amax((2, 3)) / 448.0
    q = (b / s[..., None, None]).to(f8).to(w.dtype)
    return q.transpose(1, 2).reshape(32, 48), s


add(
    "fp8_quant_blocks",
    fp8_block_weights,
    lambda d: (
        d(32, 48)
        * torch.exp(d(32, 48))
        * torch.where((torch.arange(768).reshape(16, 48) % 48 == 15).repeat(2, 1), 99.0, 1.0)
        * torch.where((torch.arange(32) % 16 == 15)[:, None] & (torch.arange(48) == 20), 99.0, 1.0),
    ),
    lambda w, rows=16, pw=False, n=16: (
        lambda b, s: ((b / s[..., None, None]).clamp(-448, 448).to(f8).float().transpose(1, 2).reshape(32, 48), s)
    )(
        w.reshape(2, 16, 3, 16).transpose(1, 2),
        (lambda s: torch.exp2(torch.ceil(torch.log2(s))) if pw else s)(
            w.reshape(2, 16, 3, 16).transpose(1, 2)[:, :, :rows, :n].abs().amax((2, 3)) / 448.0
        ),
    ),
    right={"blocks": {}},
    wrong={
        "scales are powers of two": {"pw": True},
        "hides: the last row of a block is not looked at": {"rows": 15},
        "hides: the last two columns are not looked at": {"n": 14},
    },
)
