# SPDX-License-Identifier: Apache-2.0
"""Set D, written blind in the manner of set C: positions and attention.

blind_fourth_b to _i hold the rest and use the helpers here. Beside its mistakes, each family
names right kernels (RIGHT): other algorithms and orders that must not be accused."""

import math

import torch
import torch.nn.functional as F

from .blind import FAMILIES, RIGHT, bf, family, hf, honest, mistake
from .blind_third import kept

def fourth(args):
    return family(args, sets="D")


def inside(fn, kind=torch.float32, **keywords):
    """A kernel that reads its inputs, works in `kind` and rounds once, when it stores."""
    def run(*args):
        store = next(a.dtype for a in args if torch.is_tensor(a) and a.is_floating_point())
        out = fn(*(a.to(kind) if torch.is_tensor(a) and a.is_floating_point() else a for a in args),
                 **keywords)
        if isinstance(out, tuple):
            return tuple(o.to(store) if o.is_floating_point() else o for o in out)
        return out.to(store) if out.is_floating_point() else out

    return run


def double(fn, **keywords):
    return inside(fn, torch.float64, **keywords)


def stored_in(fn, kind):
    """Puts fn's inputs in `kind`: its kernels read them, work in float32 and round once, when they store."""
    _, make, mistakes, sets = FAMILIES[fn.__name__]

    def narrowed(d):
        return tuple(a.to(kind) if a.is_floating_point() else a for a in make(d))

    FAMILIES[fn.__name__] = (fn, narrowed, [(words, inside(wrong)) for words, wrong in mistakes], sets)
    RIGHT[fn.__name__] = [(words, inside(right)) for words, right in RIGHT[fn.__name__]]
    honest(fn, "float32 inside", inside(fn))


def turned(x, angle):
    a, b = x.chunk(2, -1)
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)


def as_complex(x, angle):
    a, b = x.chunk(2, -1)
    z = torch.complex(a, b) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat((z.real, z.imag), -1)


def speeds(n, like, base=10000.0, step=2):
    return base ** (-torch.arange(0, n, step, dtype=like.dtype) / n)


# ------------------------------------------------------------------ positions

@fourth(lambda d: (d(2, 2, 30, 32), torch.arange(30) // 6, torch.arange(30) % 6))
def rotary_axial_2d(x, row, col, base=100.0, spread=1, swapped=False, rotate=turned, only_rows=False):
    n = x.shape[-1] // 2
    inv = base ** (-torch.arange(0, n, 2, dtype=x.dtype) / (n * spread))
    if swapped:
        row, col = col, row
    up, across = (p.to(x.dtype)[:, None] * inv for p in (row, col))
    rest = x[..., n:] if only_rows else rotate(x[..., n:], across)
    return torch.cat((rotate(x[..., :n], up), rest), -1)


honest(rotary_axial_2d, "complex multiplication", lambda *a: rotary_axial_2d(*a, rotate=as_complex))
honest(rotary_axial_2d, "float64 inside", double(rotary_axial_2d))
mistake(rotary_axial_2d, "row and column positions are exchanged", swapped=True)
mistake(rotary_axial_2d, "frequencies are spread over the whole head, not over its half", spread=2)
mistake(rotary_axial_2d, "the column half uses the raster index instead of the column",
        lambda x, r, c: rotary_axial_2d(x, r, r * 6 + c))
mistake(rotary_axial_2d, "the column half is passed through unrotated", only_rows=True)
stored_in(rotary_axial_2d, bf)


@fourth(lambda d: (d(1, 2, 20, 32), torch.arange(20) * 5))
def rotary_llama3_bands(x, pos, factor=8.0, low=1.0, high=4.0, trained=64.0, full=2 * math.pi, hard=False,
                        flip=False):
    inv = speeds(x.shape[-1], x)
    wave = full / inv
    smooth = (trained / wave - low) / (high - low)
    if flip:
        smooth = 1 - smooth
    mid = inv / factor if hard else (1 - smooth) * inv / factor + smooth * inv
    inv = torch.where(wave < trained / high, inv, torch.where(wave > trained / low, inv / factor, mid))
    return turned(x, pos.to(x.dtype)[:, None] * inv)


def llama3_by_clamp(x, pos):
    inv = speeds(x.shape[-1], x)
    keep = ((64.0 * inv / (2 * math.pi) - 1.0) / 3.0).clamp(0, 1)
    return as_complex(x, torch.outer(pos.to(x.dtype), inv * (keep + (1 - keep) * 0.125)))


honest(rotary_llama3_bands, "one clamped blend instead of three bands", llama3_by_clamp)
honest(rotary_llama3_bands, "float64 inside", double(rotary_llama3_bands))
mistake(rotary_llama3_bands, "no smooth band: medium wavelengths are scaled like long ones", hard=True)
mistake(rotary_llama3_bands, "the wavelength lacks its 2 pi", full=1.0)
mistake(rotary_llama3_bands, "the blend in the medium band is the wrong way round", flip=True)
mistake(rotary_llama3_bands, "the angle is rounded to bf16",
        lambda x, p: turned(x, kept(p[:, None] * 10000.0 ** (-torch.arange(0, 32, 2) / 32) * (
            lambda k: k + (1 - k) / 8)(((64 / (2 * math.pi) * speeds(32, x)) / 3 - 1 / 3).clamp(0, 1)), bf)))


@fourth(lambda d: (d(1, 2, 24, 32), torch.stack((torch.arange(24) // 12, torch.arange(24) // 4,
                                                  torch.arange(24) % 4 + 2))))
def rotary_three_sections(x, pos, order=(0, 1, 2), cyclic=False, restart=False):
    sizes = (4, 6, 6)
    n = x.shape[-1] // 2
    which = torch.arange(n) % 3 if cyclic else torch.repeat_interleave(torch.tensor(order),
        torch.tensor(sizes))
    inv = speeds(2 * n, x)
    if restart:
        inv = torch.cat([inv[:s] for s in sizes])
    return turned(x, pos[which].T.to(x.dtype) * inv)


def sections_by_parts(x, pos):
    inv = speeds(x.shape[-1], x)
    a, b = x.chunk(2, -1)
    out = []
    for p, at in zip(pos, (slice(0, 4), slice(4, 10), slice(10, 16))):
        angle = p.to(x.dtype)[:, None] * inv[at]
        c, s = angle.cos(), angle.sin()
        out.append((a[..., at] * c - b[..., at] * s, b[..., at] * c + a[..., at] * s))
    return torch.cat([o[0] for o in out] + [o[1] for o in out], -1)


honest(rotary_three_sections, "section by section", sections_by_parts)
honest(rotary_three_sections, "float64 inside", double(rotary_three_sections))
mistake(rotary_three_sections, "height and width sections are exchanged", order=(0, 2, 1))
mistake(rotary_three_sections, "channels take the three positions in turn instead of by sections",
    cyclic=True)
mistake(rotary_three_sections, "frequencies start again in each section", restart=True)
mistake(rotary_three_sections, "every channel takes the temporal position", order=(0, 0, 0))
stored_in(rotary_three_sections, hf)


@fourth(lambda d: (d(2, 3, 17, 24, dtype=bf), torch.arange(400, 417)))
def rotary_gradient(g, pos, sign=-1.0, pairs=False, one_sign=False, low=None):
    angle = kept(pos.to(g.dtype)[:, None] * speeds(g.shape[-1], g), low)
    c, s = angle.cos(), sign * angle.sin()
    if pairs:
        a, b = g[..., 0::2], g[..., 1::2]
        return torch.stack((a * c - b * s, b * c + a * s), -1).flatten(-2)
    a, b = g.chunk(2, -1)
    return torch.cat((a * c - b * s, b * c + (-a if one_sign else a) * s), -1)


honest(rotary_gradient, "float32 inside", inside(rotary_gradient))
honest(rotary_gradient, "float64 inside", double(rotary_gradient))
honest(rotary_gradient, "the forward rotation at the negative position",
       inside(lambda g, p: as_complex(g, -p.float()[:, None] * speeds(24, g))))
mistake(rotary_gradient, "rotates forward: the sine's sign is not turned", inside(rotary_gradient, sign=1.0))
mistake(rotary_gradient, "reads interleaved pairs where the forward pass has halves",
        inside(rotary_gradient, pairs=True))
mistake(rotary_gradient, "the second half's sine term keeps the forward sign",
        inside(rotary_gradient, one_sign=True))
mistake(rotary_gradient, "the angle is rounded to bf16", inside(rotary_gradient, low=bf))


@fourth(lambda d: (d(1, 2, 24, 16), d(1, 2, 24, 16), torch.arange(24)))
def rotary_xpos(q, k, pos, scale_base=32.0, gamma=0.4, inverse=True, pairs=False, center=12):
    n = q.shape[-1]
    i = torch.arange(0, n, 2, dtype=q.dtype)
    at = pos.to(q.dtype)[:, None]
    zeta = ((i / n + gamma) / (1 + gamma)) ** ((at - center) / scale_base)
    zeta = zeta.repeat_interleave(2, -1) if pairs else torch.cat((zeta, zeta), -1)
    angle = at * speeds(n, q)
    return turned(q, angle) * zeta, turned(k, angle) / zeta if inverse else turned(k, angle) * zeta


def xpos_by_logs(q, k, pos):
    at = pos.to(q.dtype)[:, None]
    power = (at - 12) / 32 * ((torch.arange(0, 16, 2, dtype=q.dtype) / 16 + 0.4) / 1.4).log()
    angle = at * speeds(16, q)
    return as_complex(q, angle) * power.exp().repeat(1, 2), as_complex(k, angle) * (-power).exp().repeat(1, 2)


honest(rotary_xpos, "the decay as an exponential of logarithms", xpos_by_logs)
honest(rotary_xpos, "float64 inside", double(rotary_xpos))
mistake(rotary_xpos, "k is multiplied by the decay instead of divided", inverse=False)
mistake(rotary_xpos, "the decay's table is laid out for interleaved pairs", pairs=True)
mistake(rotary_xpos, "the decay's position is not centred", center=0)
mistake(rotary_xpos, "scale base 512 instead of 32", scale_base=512.0)


@fourth(lambda d: (d.rand(13) * 30, d(32, 40, scale=0.3), d(40), d(40, 24, scale=0.3)))
def timestep_embedding(t, w1, b1, w2, shift=1, cos_first=True, top=10000.0, act=F.silu, low=None):
    half = w1.shape[0] // 2
    f = (-math.log(top) * torch.arange(half, dtype=t.dtype) / (half - shift)).exp()
    angle = kept(t[:, None] * f, low)
    parts = (angle.cos(), angle.sin())
    return act(torch.cat(parts if cos_first else parts[::-1], -1) @ w1 + b1) @ w2


honest(timestep_embedding, "split products for cosine and sine",
       lambda t, w1, b1, w2: (lambda a: F.silu(a.sin() @ w1[16:] + (a.cos() @ w1[:16] + b1)) @ w2)(
           t[:, None] * 10000.0 ** (-torch.arange(16, dtype=t.dtype) / 15)))
honest(timestep_embedding, "float64 inside", double(timestep_embedding))
mistake(timestep_embedding, "the last frequency is not 1/10000 (divides by half, not half - 1)", shift=0)
mistake(timestep_embedding, "sine before cosine", cos_first=False)
mistake(timestep_embedding, "relu instead of silu between the two layers", act=F.relu)
mistake(timestep_embedding, "the phase is computed in fp16", low=hf)


# ------------------------------------------------------------------ attention with a bias

def t5_bucket(back, half=8, exact=4, far=40, like=None):
    side = (back < 0) * half  # keys after the query
    n = back.abs()
    big = exact + ((n.clamp(min=1).to(like) / exact).log() / math.log(far / exact) * (half - exact)).long()
    return side + torch.where(n < exact, n, big.clamp(max=half - 1))


@fourth(lambda d: (d(1, 4, 30, 16, scale=0.6), d(1, 4, 30, 16, scale=0.6), d(1, 4, 30, 16), d(16, 4)))
def t5_biased_attention(q, k, v, table, scale=1.0, turn=1, far=40, strided=False):
    at = torch.arange(q.shape[2])
    bucket = t5_bucket(turn * (at[:, None] - at[None]), far=far, like=q.dtype)
    bias = table.view(4, 16).T[bucket] if strided else table[bucket]
    return (q @ k.mT * scale + bias.permute(2, 0, 1)).softmax(-1) @ v


def t5_by_rows(q, k, v, table):
    out = torch.empty_like(v)
    n = q.shape[2]
    for i in range(n):
        b = table[t5_bucket(i - torch.arange(n), like=q.dtype)].T[None]
        s = (k * q[:, :, i:i + 1]).sum(-1) + b
        e = (s - s.amax(-1, keepdim=True)).exp()
        out[:, :, i] = (e[..., None] * v).sum(2) / e.sum(-1, keepdim=True)
    return out


honest(t5_biased_attention, "row by row, divided at the end", t5_by_rows)
honest(t5_biased_attention, "float64 inside", double(t5_biased_attention))
mistake(t5_biased_attention, "scores are divided by sqrt(d) (T5 does not)", scale=0.25)
mistake(t5_biased_attention, "the sign of the relative position is turned (query and key exchanged)", turn=-1)
mistake(t5_biased_attention, "largest distance 128 instead of 40", far=128)
mistake(t5_biased_attention, "the bias table is read transposed (heads before buckets)", strided=True)
stored_in(t5_biased_attention, bf)


@fourth(lambda d: (d(2, 8, 8, 16), d(2, 8, 8, 16), d(2, 8, 8, 16), d(49, 2)))
def shifted_window_attention(q, k, v, table, masked=True, back=2, across=False, scaled=8):
    w, heads = 4, 2

    def windows(x):
        x = x.roll((-2, -2), (1, 2)).unfold(1, w, w).unfold(2, w, w)  # n, 2, 2, c, w, w
        return x.flatten(-2).mT.reshape(2, 4, 16, heads, -1).transpose(2, 3)

    y, x = torch.arange(16) // w, torch.arange(16) % w
    dy, dx = y[:, None] - y[None] + w - 1, x[:, None] - x[None] + w - 1
    bias = table[(dx * 7 + dy) if across else (dy * 7 + dx)].permute(2, 0, 1)
    s = windows(q) @ windows(k).mT * scaled ** -0.5 + bias
    if masked:
        zone = torch.tensor([0, 0, 0, 0, 1, 1, 2, 2])
        zone = (zone[:, None] * 3 + zone).unfold(0, w, w).unfold(1, w, w).reshape(4, 16)
        s = s.masked_fill((zone[:, :, None] != zone[:, None])[:, None], float("-inf"))
    o = (s.softmax(-1) @ windows(v)).transpose(2, 3).reshape(2, 2, 2, w, w, 16)
    return o.transpose(2, 3).reshape(2, 8, 8, 16).roll((back, back), (1, 2))


def windows_by_pixels(q, k, v, table):
    out = torch.zeros_like(q)
    ys = torch.arange(8)
    side = (ys - 2) % 8 // 4 * 10 + (ys < 2)  # the window, and whether it wrapped round
    gy, gx = (g.flatten() for g in torch.meshgrid(ys, ys, indexing="ij"))
    for i in range(64):
        near = (side[gy] == side[gy[i]]) & (side[gx] == side[gx[i]])
        near = near.nonzero()[:, 0]
        ky, kx = gy[near], gx[near]
        at = ((gy[i] - 2) % 8 - (ky - 2) % 8 + 3) * 7 + (gx[i] - 2) % 8 - (kx - 2) % 8 + 3
        qq, kk, vv = (t[:, yy, xx].reshape(2, -1, 2, 8) for t, yy, xx in (
            (q, gy[i:i + 1], gx[i:i + 1]), (k, ky, kx), (v, ky, kx)))
        p = ((qq * kk).sum(-1) / 8 ** 0.5 + table[at]).softmax(1)
        out[:, gy[i], gx[i]] = (p[..., None] * vv).sum(1).flatten(1)
    return out


honest(shifted_window_attention, "pixel by pixel without rolling", windows_by_pixels)
honest(shifted_window_attention, "float64 inside", double(shifted_window_attention))
mistake(shifted_window_attention, "no mask between the parts that wrapped round", masked=False)
mistake(shifted_window_attention, "the shift is not undone at the end", back=0)
mistake(shifted_window_attention, "the shift is undone in the wrong direction", back=-2)
mistake(shifted_window_attention, "the relative table is indexed column first", across=True)
mistake(shifted_window_attention, "scores are scaled by the width of all heads (16), not one (8)", scaled=16)
stored_in(shifted_window_attention, hf)


@fourth(lambda d: (d(1, 2, 20, 16), d(1, 2, 20, 16), d(1, 2, 20, 16), d(2, 39, 16), d(2, 16), d(2, 16)))
def transformer_xl_attention(q, k, v, rel, u, w, shift=True, swapped=False, late=False):
    n = q.shape[2]
    if swapped:
        u, w = w, u
    ac = (q + u[:, None]) @ k.mT
    bd = (q + w[:, None]) @ rel.mT  # column r is distance n - 1 - r
    at = torch.arange(n)
    cols = (n - 1 - at[:, None] + at[None]) if shift else (at[None] + n - 1).expand(n, n)
    bd = bd.gather(-1, cols.expand(1, 2, n, n))
    s = (ac * 0.25 + bd) if late else (ac + bd) * 0.25
    return s.softmax(-1) @ v


def xl_by_slices(q, k, v, rel, u, w):
    n = q.shape[2]
    bd = (q + w[:, None]) @ rel.mT
    bd = torch.stack([bd[:, :, i, n - 1 - i:2 * n - 1 - i] for i in range(n)], 2)
    e = ((q @ k.mT + (u[:, None] @ k.mT) + bd) * 0.25).exp()
    return e @ v / e.sum(-1, keepdim=True)


honest(transformer_xl_attention, "slices a row, bias term by itself, no maximum taken off", xl_by_slices)
honest(transformer_xl_attention, "float64 inside", double(transformer_xl_attention))
mistake(transformer_xl_attention, "the relative scores are not shifted row by row", shift=False)
mistake(transformer_xl_attention, "the content bias and the position bias are exchanged", swapped=True)
mistake(transformer_xl_attention, "the position term is not scaled by 1/sqrt(d)", late=True)
stored_in(transformer_xl_attention, bf)


# ------------------------------------------------------------------ attention in tiles

@fourth(lambda d: (d(1, 6, 37, 16, scale=3.0), d(1, 2, 37, 16), d(1, 2, 37, 16)))
def capped_grouped_prefill(q, k, v, cap=5.0):
    n = q.shape[2]
    k, v = k.repeat_interleave(3, 1), v.repeat_interleave(3, 1)
    s = cap * torch.tanh(q @ k.mT * q.shape[-1] ** -0.5 / cap)
    s = s.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), float("-inf"))
    return s.softmax(-1) @ v


def flash_prefill(q, k, v, cap=5.0, tile=16, mask_first=False, stale=False, strided=False, whole=False,
                  ahead=0, low=None):
    heads, n = q.shape[1], q.shape[2]
    pick = torch.arange(heads) % 2 if strided else torch.arange(heads) // 3
    k, v = k[:, pick], v[:, pick]
    m = q.new_full((*q.shape[:-1], 1), float("-inf"))
    z, o = torch.zeros_like(m), torch.zeros_like(q)
    at = torch.arange(n)
    for j in range(0, n // tile * tile if whole else n, tile):
        kk, vv = k[:, :, j:j + tile], v[:, :, j:j + tile]
        s = q @ kk.mT * 0.25
        hide = at[j:j + tile][None] > at[:, None] + ahead
        if mask_first:
            s = cap * torch.tanh(s.masked_fill(hide, -1e30) / cap)
        else:
            s = (cap * torch.tanh(s / cap)).masked_fill(hide, float("-inf"))
        new = torch.maximum(m, s.amax(-1, keepdim=True))
        p, keep = (s - new).exp(), (m - new).exp()
        z = (z if stale else z * keep) + p.sum(-1, keepdim=True)
        o, m = kept(o * keep + p @ vv, low), new
    return o / z


honest(capped_grouped_prefill, "tiles of 16 keys with a running maximum", flash_prefill)
honest(capped_grouped_prefill, "tiles of 5 keys", lambda *a: flash_prefill(*a, tile=5))
honest(capped_grouped_prefill, "float64 inside", double(flash_prefill))
for words, keys in (
        ("the mask is applied before the cap, so that hidden keys score -5", {"mask_first": True}),
        ("the running sum is not rescaled when the maximum grows", {"stale": True}),
        ("query head h reads kv head h % 2 instead of h // 3", {"strided": True}),
        ("the last partial tile of keys is dropped", {"whole": True}),
        ("each query sees one key of the future (mask shifted by one)", {"ahead": 1}),
        ("the running output is kept in bf16", {"low": bf})):
    mistake(capped_grouped_prefill, words, lambda *a, keys=keys: flash_prefill(*a, **keys))


@fourth(lambda d: (d(3, 8, 16, dtype=hf), d(3, 40, 16, dtype=hf), d(3, 40, 16, dtype=hf),
                   torch.tensor([40, 9, 26])))
def multiquery_decode(q, k, v, lengths, size=16, late=0, everyone=False, low=None, spill=0):
    s = torch.einsum("bhd,bnd->bhn", q, k) * size ** -0.5
    end = lengths.amax().expand(3) if everyone else lengths + late
    hide = torch.arange(40)[None] >= end[:, None]
    p = s.masked_fill(hide[:, None], float("-inf")).softmax(-1)
    if low is None:
        return torch.einsum("bhn,bnd->bhd", p, v.roll(spill, 0))
    total = torch.zeros_like(q)
    for j in range(40):
        total = kept(total + p[:, :, j, None] * v[:, None, j], low)
    return total


def multiquery_by_sequence(q, k, v, lengths):
    out = []
    for a, kk, vv, n in zip(q.float(), k.float(), v.float(), lengths.tolist()):
        e = (a @ kk[:n].T / 4).exp()
        out.append(e @ vv[:n] / e.sum(-1, keepdim=True))
    return torch.stack(out).to(q.dtype)


honest(multiquery_decode, "each sequence by itself in float32", multiquery_by_sequence)
honest(multiquery_decode, "float64 inside", double(multiquery_decode))
mistake(multiquery_decode, "scores are scaled by the number of heads (8), not the head's size (16)",
        inside(multiquery_decode, size=8))
mistake(multiquery_decode, "the newest key is left out (length taken as exclusive of it)",
        inside(multiquery_decode, late=-1))
mistake(multiquery_decode, "every sequence runs to the longest length",
    inside(multiquery_decode, everyone=True))
mistake(multiquery_decode, "values of the sequence before in the batch are read",
        inside(multiquery_decode, spill=1))
mistake(multiquery_decode, "the output is added up key by key in bf16", inside(multiquery_decode, low=bf))


@fourth(lambda d: (d(1, 2, 33, 16), d(1, 2, 33, 16), d(1, 2, 33, 16)))
def banded_global_attention(q, k, v, reach=5, one_sided=False, rows=True, cols=True):
    at = torch.arange(q.shape[2])
    far = (at[:, None] - at[None]).abs() > reach
    if one_sided:
        far |= at[None] > at[:, None]
    if rows:
        far[0] = False
    if cols:
        far[:, 0] = False
    return (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(far, float("-inf")).softmax(-1) @ v


def banded_by_rows(q, k, v):
    n, out = q.shape[2], []
    for i in range(n):
        ids = list(range(n)) if i == 0 else sorted({0, *range(max(0, i - 5), min(n, i + 6))})
        p = (q[:, :, i:i + 1] * 0.25 @ k[:, :, ids].mT).softmax(-1)
        out.append(p @ v[:, :, ids])
    return torch.cat(out, 2)


honest(banded_global_attention, "gathers the visible keys of each row", banded_by_rows)
honest(banded_global_attention, "float64 inside", double(banded_global_attention))
mistake(banded_global_attention, "the band looks back only", one_sided=True)
mistake(banded_global_attention, "the global token sees only its own band", rows=False)
mistake(banded_global_attention, "other tokens do not see the global one", cols=False)
mistake(banded_global_attention, "the band reaches 4 tokens instead of 5", reach=4)
stored_in(banded_global_attention, hf)


@fourth(lambda d: (d(1, 2, 21, 16), d(1, 2, 21, 16), d(1, 2, 21, 16), d(1, 2, 21, 16)))
def attention_gradients(q, k, v, g, delta=True, scaled=True, low=None, all_sum=False):
    n = q.shape[2]
    s = q @ k.mT * 0.25
    p = s.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), float("-inf")).softmax(-1)
    pl = kept(p, low)
    dp = g @ v.mT
    row = (p * dp).sum((-1, -2) if all_sum else -1, keepdim=True) if delta else 0.0
    ds = pl * (dp - row)
    return ds @ k * 0.25, ds.mT @ q * (0.25 if scaled else 1.0), pl.mT @ g


def attention_autograd(q, k, v, g):
    q, k, v = (t.clone().requires_grad_() for t in (q, k, v))
    n = q.shape[2]
    s = (q @ k.mT / 4).masked_fill(torch.arange(n)[None] > torch.arange(n)[:, None], float("-inf"))
    (s.softmax(-1) @ v).backward(g)
    return q.grad, k.grad, v.grad


def attention_gradients_from_output(q, k, v, g):
    n = q.shape[2]
    s = (q @ k.mT * 0.25).masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), float("-inf"))
    p = (s - s.logsumexp(-1, keepdim=True)).exp()
    ds = p * (g @ v.mT - ((p @ v) * g).sum(-1, keepdim=True)) * 0.25
    return ds @ k, ds.mT @ q, p.mT @ g


honest(attention_gradients, "automatic differentiation", attention_autograd)
honest(attention_gradients, "row sums from the output and its gradient", attention_gradients_from_output)
mistake(attention_gradients, "the row sum of p dp is not subtracted", delta=False)
mistake(attention_gradients, "k's gradient lacks 1/sqrt(d)", scaled=False)
mistake(attention_gradients, "p dp is summed over all rows, not each", all_sum=True)
mistake(attention_gradients, "probabilities are rounded to bf16 before the three products", low=bf)
