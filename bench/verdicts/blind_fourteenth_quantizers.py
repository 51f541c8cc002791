# SPDX-License-Identifier: Apache-2.0
"""Set S, the fourteenth: quantizers and what reads their codes."""

import torch

from .blind import bf, hf, narrow
from .blind_fourteenth_attention import heavy
from .blind_fourteenth_base import add, lanes, up, wide

E4, E5 = torch.float8_e4m3fn, torch.float8_e5m2


def token_fp8(x):
    s = up(x).abs().amax(-1, keepdim=True).clamp(min=1e-12) / 448
    return (up(x) / s).to(E4).float(), s


def token_fp8_kernel(x, top=448.0, tensor=False, kind=E4, whole=False, keep=None, turned=False, floor=False):
    m = x.abs()[:, :keep].amax(-1, keepdim=True)
    m = x.abs().max().expand_as(m) if tensor else x.amax(-1, keepdim=True) if whole else m
    s = m.clamp(min=1e-12) / top
    s = torch.exp2(torch.ceil(torch.log2(s))) if floor else s
    q = (x / s).clamp(-top, top).to(kind).float()
    return q, (1 / s if turned else s)


def token_fp8_factor(x):
    m = x.abs().amax(-1, keepdim=True).clamp(min=1e-12)
    s = m / 448
    return (x.double() / s.double()).float().to(E4).float(), s


add(
    "token_fp8",
    token_fp8,
    lambda d: (heavy(d, 24, 128, dtype=torch.float32, scale=0.5),),
    token_fp8_kernel,
    right={"clamped": {}, "the quotient in double": token_fp8_factor},
    wrong={
        "the format's greatest is 240": {"top": 240.0},
        "one scale for the tensor": {"tensor": True},
        "codes are of e5m2": {"kind": E5},
        "the greatest is taken without absolute values": {"whole": True},
        "the greatest lacks the last tile": {"keep": 96},
        "scales go out as their inverse": {"turned": True},
        "scales are rounded up to powers of two": {"floor": True},
    },
)


def kv_int8(x):
    lo, hi = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    s = (hi - lo) / 255
    z = torch.round(-lo / s)
    q = torch.clamp(torch.round(x / s) + z, 0, 255)
    return (q - z) * s


def kv_kernel(x, levels=255, zero=True, cut=False, symmetric=False, axis=-1, half=False, kind=None):
    lo, hi = x.amin(axis, keepdim=True), x.amax(axis, keepdim=True)
    if symmetric:
        s = x.abs().amax(-1, keepdim=True) / 127
        return torch.round(x / s) * s
    s = (hi - lo) / levels
    s = narrow(s, kind) if kind else s
    z = torch.round(-lo / s) if zero else -lo / s
    y = x / s
    q = (torch.floor(y) if cut else torch.floor(y + 0.5) if half else torch.round(y)) + z
    return (q.clamp(0, 255) - z) * s


add(
    "kv_cache_int8",
    kv_int8,
    lambda d: (heavy(d, 6, 20, 64),),
    kv_kernel,
    right={"as it stands": {}},
    wrong={
        "256 steps": {"levels": 256},
        "the zero point is not rounded": {"zero": False},
        "values are cut, not rounded": {"cut": True},
        "a scale of the greatest absolute value": {"symmetric": True},
        "scales are by channels, not by tokens": {"axis": -2},
        "scales are rounded to fp16": {"kind": hf},
    },
)


def attend_int8(q, kq, ks, vq, vs):
    s = (q @ (kq.to(q.dtype) * ks).transpose(-1, -2)) * q.shape[-1] ** -0.5
    return s.softmax(-1) @ (vq.to(q.dtype) * vs)


def attend_int8_kernel(q, kq, ks, vq, vs, fold=True, same=False, late=False, shift=0, kind=None, half=None):
    ks, vs = ks.roll(shift, -2), ks if same else vs
    s = q @ kq.float().transpose(-1, -2) * (ks.transpose(-1, -2) * q.shape[-1] ** -0.5)
    p = torch.exp(s - s.amax(-1, keepdim=True))
    l = p.sum(-1, keepdim=True)
    pv = p * vs.transpose(-1, -2)
    if late:
        return p @ vq.float() / l * vs.mean(-2, keepdim=True)
    if kind:  # probabilities times scales in 8 bits for the second product
        t = pv.amax(-1, keepdim=True) / 127
        pv = torch.round(pv / t) * t
    if half:
        l = (p * vs.transpose(-1, -2)).sum(-1, keepdim=True) / vs.mean(-2, keepdim=True)
    return pv @ vq.float() / l


add(
    "kv_cache_attention",
    attend_int8,
    lambda d: (
        heavy(d, 4, 3, 32),
        d.ints(255, 4, 90, 32).sub(127).to(torch.int8),
        d.rand(4, 90, 1) * 0.02 + 0.002,
        d.ints(255, 4, 90, 32).sub(127).to(torch.int8),
        d.rand(4, 90, 1) * 0.02 + 0.002,
    ),
    attend_int8_kernel,
    right={"scales are folded into scores and probabilities": {}, "in double": wide(attend_int8)},
    wrong={
        "values take the keys' scales": {"same": True},
        "the values' scales are a mean": {"late": True},
        "keys take the scale of the token before": {"shift": 1},
        "weights of the second product are of 8 bits": {"kind": True},
        "the sum has the values' scales in it": {"half": True},
    },
)

GRID = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
EDGES = (GRID[1:] + GRID[:-1]) / 2


def to_fp4(y, ties="even"):
    a = y.abs().to(torch.float64)
    i = torch.bucketize(a, EDGES.double(), right=ties == "up")
    if ties == "even":  # codes with an even mantissa win a tie
        tie = a == EDGES.double()[i.clamp(max=6)]
        i = torch.where(tie & (i % 2 == 1) & (i < 7), i + 1, i)
    return torch.copysign(GRID.to(y.dtype)[i], y)


def mx4(x):
    y = x.unflatten(-1, (-1, 32))
    e = torch.floor(torch.log2(y.abs().amax(-1, keepdim=True).double())) - 2
    s = torch.exp2(e).to(x.dtype)
    return (to_fp4(y / s) * s).flatten(-2)


def mx4_kernel(x, less=2, ties="even", block=32, up_=False, six=False, trunc=False):
    y = x.unflatten(-1, (-1, block))
    m = y.abs().amax(-1, keepdim=True)
    if six:
        s = m / 6
    else:
        e = torch.frexp(m)[1] - 1 - less + (1 if up_ else 0)
        s = torch.exp2(e.float())
    z = y / s
    if trunc:
        i = torch.bucketize(z.abs(), GRID, right=True) - 1
        return (torch.copysign(GRID[i], z) * s).flatten(-2)
    return (to_fp4(z, ties) * s).flatten(-2)


def with_ties(d):
    x = heavy(d, 20, 128)
    x[:, ::9] = torch.round(x[:, ::9] * 4) / 4
    return x


add(
    "mxfp4_round_trip",
    mx4,
    lambda d: (with_ties(d),),
    mx4_kernel,
    right={"the exponent's bits": {}},
    wrong={
        "ties go away from zero": {"ties": "up"},
        "ties go towards zero": {"ties": "down"},
        "blocks are of 16": {"block": 16},
        "the scale is one power greater": {"less": 1},
        "the scale is the greatest over six, no power of two": {"six": True},
        "values are cut, not rounded": {"trunc": True},
    },
)

NF4 = torch.tensor(
    [
        -1.0,
        -0.6961928,
        -0.52507305,
        -0.3949175,
        -0.28444138,
        -0.18477343,
        -0.09105004,
        0.0,
        0.0795803,
        0.1609302,
        0.2461123,
        0.33791524,
        0.44070983,
        0.562617,
        0.72295684,
        1.0,
    ]
)


def nf4(x):
    y = x.unflatten(-1, (-1, 64))
    m = y.abs().amax(-1, keepdim=True)
    t = NF4.to(x.dtype)
    i = torch.bucketize(y / m, (t[1:] + t[:-1]) / 2)
    return i.flatten(-2), (t[i] * m).flatten(-2)


def nf4_kernel(x, even=False, block=64, lower=False, table=NF4, tail=False):
    y = x.unflatten(-1, (-1, block))
    m = y.abs().amax(-1, keepdim=True)
    t = torch.linspace(-1, 1, 16) if even else table
    z = y / m
    i = ((z[..., None] - t).abs()).argmin(-1)
    i = (torch.bucketize(z, t, right=True) - 1) if lower else i
    return i.flatten(-2), (t[i] * m).flatten(-2)


FLIPPED = NF4.clone()
FLIPPED[8], FLIPPED[9] = 0.1609302, 0.0795803

add(
    "nf4_codes",
    nf4,
    lambda d: (heavy(d, 8, 256, scale=0.02),),
    nf4_kernel,
    right={"the nearest by distances": {}},
    wrong={
        "levels lie evenly": {"even": True},
        "blocks are of 128": {"block": 128},
        "the level below, not the nearest": {"lower": True},
        "two levels of the table are exchanged": {"table": FLIPPED},
    },
)


def fake_quant(x, scale, zero):
    q = torch.round(x / scale) + zero
    return (q.clamp(0, 255) - zero) * scale


def fake_backward(x, scale, zero, dy):
    q = torch.round(x / scale) + zero
    inside = (q >= 0) & (q <= 255)
    err = torch.where(inside, torch.round(x / scale) - x / scale, q.clamp(0, 255) - zero)
    return torch.where(inside, dy, 0 * dy), (dy * err).sum()


def fake_kernel(x, scale, zero, dy, through=False, strict=False, term=True, add_up=None, plain=False, high=255):
    r = x / scale
    q = torch.round(r) + zero
    inside = (q > 0) & (q < high) if strict else (q >= 0) & (q <= high)
    err = torch.where(inside, torch.round(r) - (r if term else 0), q.clamp(0, high) - (0 if plain else zero))
    dx = dy if through else dy * inside
    return dx.contiguous(), lanes((dy * err).flatten())


add(
    "fake_quant_backward",
    fake_backward,
    lambda d: (d(40, 60, scale=2.0), torch.tensor(0.02), torch.tensor(120.0), d(40, 60, scale=0.01)),
    fake_kernel,
    right={"lanes": {}},
    wrong={
        "what is clamped has a gradient": {"through": True},
        "the ends of the range count as clamped": {"strict": True},
        "the scale's gradient lacks the quotient": {"term": False},
        "the zero point stays in the clamped ones' term": {"plain": True},
        "the upper end is 254": {"high": 254},
    },
)


def hadamard(n):
    h = torch.ones(1, 1)
    while h.shape[0] < n:
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)], 0)
    return h


def rotate(x, signs):
    n = x.shape[-1]
    y = (up(x) * up(signs)) @ (hadamard(n).to(up(x).dtype) / n**0.5)
    return y.to(x.dtype)


def rotate_kernel(x, signs, scale=True, levels=None, late=False, kind=None, order=False):
    n = x.shape[-1]
    y = x if late else x * signs
    for i in range(levels or n.bit_length() - 1):
        h = 1 << i
        y = y.unflatten(-1, (-1, 2, h))
        a, b = y[..., 0, :], y[..., 1, :]
        y = torch.stack([a + b, b - a if order and i == 2 else a - b], -2).flatten(-3)
        y = narrow(y, kind) if kind else y
    y = y / n**0.5 if scale else y / n
    return y * signs if late else y


add(
    "hadamard_rotation",
    rotate,
    lambda d: (heavy(d, 16, 128, dtype=bf, scale=2.0), torch.sign(d(128)).to(bf)),
    rotate_kernel,
    dtype=bf,
    right={"seven butterflies": {}},
    wrong={
        "divided by n, not by its root": {"scale": False},
        "the last butterfly is lost": {"levels": 6},
        "signs come after the rotation": {"late": True},
        "one butterfly has the other sign": {"order": True},
        "hides: butterflies are rounded to bf16": {"kind": bf},
    },
)


def row_codes(x):
    s = (up(x).abs().amax(-1, keepdim=True) / 127).clamp(min=1e-8)
    return torch.round(up(x) / s).clamp(-128, 127).to(torch.int8), s


def row_codes_kernel(x, levels=127, cut=False, away=False, keep=None, unsigned=False):
    s = (x.abs()[:, :keep].amax(-1, keepdim=True) / levels).clamp(min=1e-8)
    y = x / s
    y = torch.trunc(y) if cut else torch.floor(y + 0.5) if away else torch.round(y)
    return y.clamp(-128, 127).to(torch.int8), s


add(
    "row_codes",
    row_codes,
    lambda d: (torch.round(d(16, 200, scale=20)).clamp(-126, 126).index_fill(1, torch.tensor([7]), 254.0) / 2,),
    row_codes_kernel,
    right={"as it stands": {}},
    wrong={
        "128 levels": {"levels": 128},
        "codes are cut": {"cut": True},
        "ties go towards plus infinity": {"away": True},
    },
)
