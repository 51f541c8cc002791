# SPDX-License-Identifier: Apache-2.0
"""Set S, the fourteenth: rotary positions and their variants, position buckets, and attention's gradients."""

import math

import torch

from .blind import bf, hf, narrow
from .blind_fourteenth_attention import heavy, tril
from .blind_fourteenth_base import INF, add, gradients, up, wide


def turn_halves(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def neox(x, pos, inv):
    f = up(pos[:, None] * inv[None])
    return turn_halves(up(x), f.cos(), f.sin()).to(x.dtype)


def neox_kernel(x, pos, inv, back=False, shift=0, kind=None, pairs=False, keep=None, base=None, once=False):
    f = (pos[:, None] + shift) * (inv if base is None else base)[None]
    f = narrow(f, kind) if kind else f
    cos, sin = f.cos(), f.sin()
    if once:
        cos, sin = narrow(cos, bf), narrow(sin, bf)
    if pairs:
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    y = turn_halves(x, cos, -sin if back else sin)
    return torch.cat([y[..., :keep], x[..., keep:]], -1) if keep else y


def by_complex(x, pos, inv):
    a, b = x.double().chunk(2, -1)
    z = torch.complex(a, b) * torch.polar(torch.ones(1, dtype=torch.float64), (pos[:, None] * inv[None]).double())
    return torch.cat([z.real, z.imag], -1).float()


INV = 10000.0 ** (-torch.arange(0, 32, 2).float() / 32)

add(
    "rotary_halves",
    neox,
    lambda d: (heavy(d, 4, 48, 32, dtype=bf), torch.arange(2000.0, 2048.0), INV),
    neox_kernel,
    dtype=bf,
    right={"halves, in float32": {}, "complex numbers in double": by_complex},
    wrong={
        "turned the other way": {"back": True},
        "pairs of neighbours are turned": {"pairs": True},
        "angles are rounded to fp16": {"kind": hf},
        "positions begin at one": {"shift": 1},
        "the last two channels are not turned": {"keep": 30},
    },
)


def interleaved(x, pos):
    inv = 500000.0 ** (-torch.arange(0, x.shape[-1], 2, dtype=x.dtype) / x.shape[-1])
    f = pos[:, None] * inv[None]
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * f.cos() - b * f.sin(), a * f.sin() + b * f.cos()], -1).flatten(-2)


def interleaved_kernel(x, pos, base=500000.0, div=None, halves=False, first=False, cos_kind=None, swap=False):
    n = x.shape[-1]
    inv = torch.exp(-torch.arange(0, n, 2).double() / (div or n) * math.log(base)).float()
    f = pos[:, None] * inv[None]
    cos, sin = f.cos(), f.sin()
    cos, sin = (narrow(cos, cos_kind), narrow(sin, cos_kind)) if cos_kind else (cos, sin)
    a, b = x[..., 0::2], x[..., 1::2]
    u = a * cos - b * sin
    w = (u if first else a) * sin + b * cos
    if swap:
        u, w = w, u
    return torch.cat([u, w], -1) if halves else torch.stack([u, w], -1).flatten(-2)


add(
    "rotary_pairs",
    interleaved,
    lambda d: (heavy(d, 2, 8, 64, scale=2.0), torch.tensor([0.0, 1, 2, 7, 30, 100, 255, 511])),
    interleaved_kernel,
    right={"frequencies by an exponential in double, rounded": {}},
    wrong={
        "the result lies in halves": {"halves": True},
        "the second of a pair is made of the new first": {"first": True},
        "the exponent divides by n - 2": {"div": 62},
        "the base is 10000": {"base": 10000.0},
        "cosines and sines are a table in bf16": {"cos_kind": bf},
    },
)


def ntk(x, pos, factor=4.0, base=10000.0):
    n = x.shape[-1]
    base = base * factor ** (n / (n - 2))
    inv = base ** (-torch.arange(0, n, 2, dtype=x.dtype) / n)
    f = pos[:, None] * inv[None]
    return turn_halves(x, f.cos(), f.sin())


def ntk_kernel(x, pos, factor=4.0, power=None, linear=False, mixed=False):
    n = x.shape[-1]
    base = 10000.0 * (1 if linear else factor ** (power or n / (n - 2)))
    inv = 1.0 / torch.tensor(base, dtype=torch.float64) ** (torch.arange(0, n, 2).double() / n)
    f = pos[:, None] * inv.float()[None] / (factor if linear or mixed else 1)
    return turn_halves(x, f.cos(), f.sin())


add(
    "rotary_ntk",
    ntk,
    lambda d: (heavy(d, 3, 20, 48), torch.arange(0.0, 400.0, 20.0)),
    ntk_kernel,
    right={"powers in double": {}},
    wrong={
        "the base grows by the factor itself": {"power": 1.0},
        "positions are divided instead": {"linear": True},
        "positions are divided as well": {"mixed": True},
    },
)


def yarn(x, pos, base=10000.0, factor=8.0, was=512, fast=32.0, slow=1.0):
    n = x.shape[-1]
    inv = base ** (-torch.arange(0, n, 2, dtype=x.dtype) / n)
    at = lambda turns: n * math.log(was / (turns * 2 * math.pi)) / (2 * math.log(base))
    lo, hi = max(math.floor(at(fast)), 0), min(math.ceil(at(slow)), n - 1)
    ramp = ((torch.arange(n // 2, dtype=x.dtype) - lo) / (hi - lo)).clamp(0, 1)
    inv = inv / factor * ramp + inv * (1 - ramp)
    f = pos[:, None] * inv[None]
    m = 0.1 * math.log(factor) + 1
    return turn_halves(x, f.cos() * m, f.sin() * m)


def yarn_kernel(x, pos, m=None, other=False, floor=True, clamp=True, factor=8.0, sines=True):
    n = x.shape[-1]
    inv = torch.exp2(-torch.arange(0, n, 2).double() / n * math.log2(10000.0))
    at = lambda turns: n * math.log(512 / (turns * 2 * math.pi)) / (2 * math.log(10000.0))
    lo, hi = (math.floor(at(32.0)), math.ceil(at(1.0))) if floor else (at(32.0), at(1.0))
    lo = max(lo, 0)
    ramp = (torch.arange(n // 2).double() - lo) / (hi - lo)
    ramp = ramp.clamp(0, 1) if clamp else ramp
    ramp = 1 - ramp if other else ramp
    f = (pos[:, None].double() * (inv * (1 + ramp * (1 / factor - 1)))[None]).float()
    m = m or 0.1 * math.log(8.0) + 1
    return turn_halves(x, f.cos() * m, f.sin() * (m if sines else 1))


add(
    "rotary_yarn",
    yarn,
    lambda d: (heavy(d, 2, 24, 64), torch.arange(0.0, 240.0, 10.0)),
    yarn_kernel,
    right={"angles in double, rounded": {}},
    wrong={
        "the ramp is turned round": {"other": True},
        "the ramp's ends are not rounded to whole dimensions": {"floor": False},
        "the ramp is not clamped": {"clamp": False},
        "the magnitude is left out": {"m": 1.0},
        "the magnitude is 0.1 log2(factor) + 1": {"m": 0.1 * math.log2(8.0) + 1},
        "sines are not magnified": {"sines": False},
    },
)


def llama3(inv, factor=8.0, low=1.0, high=4.0, was=8192):
    wave = 2 * math.pi / inv
    s = (was / wave - low) / (high - low)
    mid = (1 - s) * inv / factor + s * inv
    return torch.where(wave > was / low, inv / factor, torch.where(wave < was / high, inv, mid))


def llama3_kernel(inv, low=1.0, high=4.0, two=2 * math.pi, scaled=True, step=False, other=False):
    wave = two / inv
    s = (8192 / wave - low) / (high - low)
    s = s.clamp(0, 1)
    s = (s > 0.5).float() if step else s
    s = 1 - s if other else s
    return inv * (s + (1 - s) / 8)


add(
    "rotary_llama3",
    llama3,
    lambda d: (500000.0 ** (-torch.arange(0, 128, 2).float() / 128),),
    llama3_kernel,
    right={"by a clamp": {}},
    wrong={
        "the smooth part is a step": {"step": True},
        "the wave's length is one over the frequency": {"two": 1.0},
        "the upper end is at 8": {"high": 8.0},
    },
)


def sections(x, pos, inv):
    n = inv.shape[0]
    which = torch.tensor([0] * (n // 4) + [1] * (3 * n // 8) + [2] * (n - n // 4 - 3 * n // 8))
    f = pos[which].T * inv
    return turn_halves(x, f.cos(), f.sin())


def sections_kernel(x, pos, inv, cut=(1 / 4, 5 / 8), order=(0, 1, 2), woven=False):
    n = inv.shape[0]
    i = torch.arange(n)
    which = (i >= int(cut[0] * n)).long() + (i >= int(cut[1] * n)).long()
    which = i % 3 if woven else which
    f = torch.stack([pos[order[int(w)]] * inv[j] for j, w in enumerate(which)], 1)
    return turn_halves(x, f.cos(), f.sin())


add(
    "rotary_sections",
    sections,
    lambda d: (d(2, 30, 64), d.ints(40, 3, 30).float(), 10000.0 ** (-torch.arange(0, 64, 2).float() / 64)),
    sections_kernel,
    right={"column by column": {}},
    wrong={
        "height and width are exchanged": {"order": (0, 2, 1)},
        "the sections are of equal size": {"cut": (1 / 3, 2 / 3)},
        "the sections are woven": {"woven": True},
    },
)


def bucket(rel, n=32, far=128):
    half = n // 2
    out = (rel > 0).long() * half
    a = rel.abs()
    big = (
        half // 2
        + (torch.log(a.clamp(min=1).double() / (half // 2)) / math.log(far / (half // 2)) * (half // 2)).long()
    )
    return out + torch.where(a < half // 2, a, big.clamp(max=half - 1))


def t5_bias(s, table):
    n, m = s.shape[-2:]
    rel = torch.arange(m)[None] - torch.arange(n)[:, None]
    return (s + table[bucket(rel)].permute(2, 0, 1)).softmax(-1)


def t5_kernel(s, table, flip=False, one=False, far=128, pre=False, minus=0):
    n, m = s.shape[-2:]
    rel = torch.arange(m)[None] - torch.arange(n)[:, None]
    at = bucket(-rel if flip else rel, 32, far)
    at = bucket(-rel.abs()) if one else at
    b = table[at].permute(2, 0, 1)
    if pre:
        b = table.T.repeat(1, m // 32 + 1)[:, :m][:, None].expand_as(s)
    z = s + b
    z = torch.exp(z - z.amax(-1, keepdim=True))
    return z / z.sum(-1, keepdim=True)


add(
    "t5_bias",
    t5_bias,
    lambda d: (d(4, 70, 70, scale=2), d(32, 4)),
    t5_kernel,
    right={"softmax by hand": {}},
    wrong={
        "distances have the other sign": {"flip": True},
        "both directions share the buckets": {"one": True},
        "the greatest distance is 64": {"far": 64},
    },
)


def attend(q, k, v):
    s = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    return s.masked_fill(~tril(q.shape[-2]), -INF).softmax(-1) @ v


attend_backward = gradients(attend, 3)


def attend_grad(q, k, v, do, delta="rows", scale=True, p_kind=None, ds_kind=None, mask=True, lost=False, tile=16):
    n, c = q.shape[-2], q.shape[-1] ** -0.5
    s = (q @ k.transpose(-1, -2) * c).masked_fill(~tril(n), -INF)
    lse = torch.logsumexp(s, -1, keepdim=True)
    o = torch.exp(s - lse) @ v
    d = (do * o).sum(-1, keepdim=True)
    if delta == "mean":
        d = (do * o).mean(-1, keepdim=True)
    if delta == "none":
        d = d * 0
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    for j in range(0, n, tile):
        kj, vj = k[..., j : j + tile, :], v[..., j : j + tile, :]
        sj = q @ kj.transpose(-1, -2) * c
        sj = sj.masked_fill(~tril(n)[:, j : j + tile], -INF) if mask else sj
        p = torch.exp(sj - lse)
        p = narrow(p, p_kind) if p_kind else p
        dv[..., j : j + tile, :] = p.transpose(-1, -2) @ do
        ds = p * (do @ vj.transpose(-1, -2) - d)
        ds = narrow(ds, ds_kind) if ds_kind else ds
        dk[..., j : j + tile, :] = ds.transpose(-1, -2) @ q * (c if scale else 1)
        dq = (ds @ kj) if lost else dq + ds @ kj
    return dq * c, dk, dv


add(
    "attention_backward",
    attend_backward,
    lambda d: (d(3, 56, 16, scale=1.5), d(3, 56, 16), d(3, 56, 16), d(3, 56, 16, scale=0.01)),
    attend_grad,
    right={"probabilities made again by tiles": {}, "tiles of 7": {"tile": 7}, "in double": wide(attend_backward)},
    wrong={
        "the rows' term of the output is left out": {"delta": "none"},
        "the rows' term is a mean over channels": {"delta": "mean"},
        "the keys' gradient lacks the scale": {"scale": False},
        "probabilities made again know no mask": {"mask": False},
        "the queries' gradient is that of the last tile": {"lost": True},
        "the scores' gradient is kept in bf16": {"ds_kind": bf},
    },
)


def capped_softmax(x):
    return (15 * torch.tanh(x / 15)).softmax(-1)


capped_backward = gradients(capped_softmax, 1)


def capped_grad(x, dy, outer=True, square=True, inner=1.0, dot=True, exact=True):
    t = torch.tanh(x / 15)
    p = torch.softmax(15 * t, -1)
    d = p * (dy - ((p * dy).sum(-1, keepdim=True) if dot else 0))
    slope = (1 - t) * (1 + t) if square else 1 - t
    return (d * (slope if outer else 1) * inner,)


add(
    "softcap_backward",
    capped_backward,
    lambda d: (heavy(d, 64, 48, scale=4.0), d(64, 48, scale=0.1)),
    capped_grad,
    right={"one minus the square as a product": {}, "in double": wide(capped_backward)},
    wrong={
        "the cap's derivative is left out": {"outer": False},
        "the derivative is one minus tanh": {"square": False},
        "the derivative is divided by the cap": {"inner": 1 / 15},
        "the rows' dot product is left out": {"dot": False},
    },
)
