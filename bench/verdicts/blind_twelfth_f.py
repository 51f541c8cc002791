# SPDX-License-Identifier: Apache-2.0
"""Set Q: products, blocks of scales, quantisers, triangular systems."""

import torch
import torch.nn.functional as F

from .blind import bf, hf, narrow, slow_matmul, tf32
from .blind_twelfth_a import another, good, twelfth, wrong

F8 = torch.float8_e4m3fn


def split(a, b, step=64, kind=None, lost=None, twice=None, pairs=False):
    """A product by pieces of the inner dimension."""
    parts = [a[..., i : i + step] @ b[..., i : i + step, :] for i in range(0, a.shape[-1], step)]
    if lost is not None:
        parts[lost] = torch.zeros_like(parts[lost])
    if twice is not None:
        parts.append(parts[twice])
    while pairs and len(parts) > 1:
        parts = [sum(parts[i : i + 2]) for i in range(0, len(parts), 2)]
    total = torch.zeros_like(parts[0])
    for p in parts:
        total = narrow(total + p, kind) if kind else total + p
    return total


# ------------------------------------------------------------------ a layer of 256 by 1024


@twelfth(lambda d: (d(64, 1024, dtype=bf), d(256, 1024, dtype=bf, scale=0.03), d(256, dtype=bf)))
def twelfth_linear(x, w, b):
    return F.linear(x, w, b)


def linear(x, w, b, bias=256, stale=False, order=None, **how):
    y = split(x.float(), w.float().T, **how) + torch.where(torch.arange(256) < bias, b.float(), 0.0)
    if stale:
        y[48:, 192:] = another(y)[48:, 192:]
    return y[:, order] if order else y


swap = list(range(224)) + list(range(240, 256)) + list(range(224, 240))
good(twelfth_linear, linear, bf, tiles_of_64={}, splits_in_pairs={"pairs": True}, one_sum={"step": 1024})
wrong(
    twelfth_linear,
    linear,
    {
        "the third of eight splits is lost": {"step": 128, "lost": 2},
        "the last split is added twice": {"step": 128, "twice": 7},
        "the last 32 outputs have no bias": {"bias": 224},
        "the corner tile is of a call before": {"stale": True},
        "the last two tiles of 16 outputs are swapped": {"order": swap},
        "partial sums are in bfloat16": {"step": 32, "kind": bf},
    },
    bf,
)


@twelfth(lambda d: (d(40, 30), d(40, 200), d(200, 30)))
def twelfth_addmm(c, a, b):
    return torch.addmm(c, a, b, beta=0.5, alpha=2.0)


def addmm(c, a, b, alpha=2.0, beta=0.5, of=None, **how):
    a, b = (of(a), of(b)) if of else (a, b)
    return beta * c + alpha * split(a, b, **how)


cut = lambda x: (x.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)
good(twelfth_addmm, addmm, tiles_of_64={}, tiles_of_8={"step": 8}, tiles_in_pairs={"step": 25, "pairs": True})
wrong(
    twelfth_addmm,
    addmm,
    {
        "alpha and beta are swapped": {"alpha": 0.5, "beta": 2.0},
        "the operands are tf32": {"of": tf32},
        "the operands are cut to ten bits": {"of": cut},
        "the operands are bfloat16": {"of": narrow},
        "the 8 products past tiles of 64 are lost": {"lost": 3},
    },
)


@twelfth(lambda d: (d(5, 24, 256, dtype=hf, scale=12), d(5, 256, 20, dtype=hf, scale=12)))
def twelfth_bmm(a, b):
    return torch.bmm(a, b)


def bmm(a, b, first=False, **how):
    b = b[:1].expand(5, -1, -1) if first else b
    return split(a.float(), b.float(), **how)


good(twelfth_bmm, bmm, hf, tiles_of_64={}, sixteen_at_once={"step": 16})
wrong(
    twelfth_bmm,
    bmm,
    {
        "every batch takes the first second operand": {"first": True},
        "the accumulator is half precision": lambda a, b: slow_matmul(a, b, hf, 4),
        "the last split of 16 is lost": {"step": 16, "lost": 15},
    },
    hf,
)

# ------------------------------------------------------------------ gradients of grouped products: rows by expert


@twelfth(lambda d: (d(100, 32, dtype=bf), d(100, 24, dtype=bf), torch.tensor([0, 30, 30, 63, 100])))
def twelfth_grouped_weights(x, g, ends):
    parts = [x[a:b].float().T @ g[a:b].float() for a, b in zip(ends[:-1].tolist(), ends[1:].tolist())]
    return torch.stack(parts).to(bf)


def grouped_weights(x, g, ends, tile=None, late=0, stale=False, turn=False):
    out, ends = torch.zeros(4, 32, 24), ends.tolist()
    for e in range(4):
        a, b = ends[e] + (late if e else 0), ends[e + 1] + (late if e < 3 else 0)
        b = a + (b - a) // tile * tile if tile else b
        out[e] = split(x[a:b].float().T, g[a:b].float(), 16) if b > a else 0.0
    if stale:
        out[1] = another(out)[1]
    return out[[0, 1, 3, 2]] if turn else out


good(twelfth_grouped_weights, grouped_weights, bf, by_tiles_of_16={})
wrong(
    twelfth_grouped_weights,
    grouped_weights,
    {
        "groups begin one row late": {"late": 1},
        "rows past tiles of 8 are left out": {"tile": 8},
        "the empty group is not set to zero": {"stale": True},
        "the last two groups are swapped": {"turn": True},
    },
    bf,
)

# ------------------------------------------------------------------ four bits and blocks of sixteen

LEVELS = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


@twelfth(
    lambda d: (
        d(32, 128),
        d.ints(256, 48, 64).to(torch.uint8),
        (d.rand(48, 8) * 4 + 0.3).to(F8).float(),
        d.rand(1) * 0.01,
    )
)
def twelfth_four_bits(x, packed, scale, whole):
    codes = torch.stack([packed & 15, packed >> 4], -1).flatten(1).long()
    w = LEVELS.to(x.dtype)[codes] * scale.repeat_interleave(16, 1) * whole
    return x @ w.T


def four_bits(
    x, packed, scale, whole, swap=False, levels=LEVELS, late=0, use=True, block=16, blocked=False, inner=None
):
    codes = torch.stack([packed >> 4, packed & 15] if swap else [packed & 15, packed >> 4], -1).flatten(1).long()
    w = levels[codes]
    scale = scale.roll(late, 1)
    scale = inner(scale) if inner else scale
    scale = scale[:, ::2].repeat_interleave(2, 1) if block == 32 else scale
    if blocked:
        p = torch.einsum("mgk,ngk->gmn", x.view(32, 8, 16), w.view(48, 8, 16))
        y = (p * scale.T[:, None]).sum(0)
    else:
        y = split(x, (w * scale.repeat_interleave(16, 1)).T)
    return y * whole if use else y


good(twelfth_four_bits, four_bits, scales_of_weights={}, scales_of_sums={"blocked": True})
wrong(
    twelfth_four_bits,
    four_bits,
    {
        "the two codes of a byte are swapped": {"swap": True},
        "scales are of the block before": {"late": 1},
        "blocks of 32 share a scale": {"block": 32},
        "the tensor's own scale is left out": {"use": False},
        "the greatest code is 5, not 6": {"levels": torch.where(LEVELS.abs() == 6, LEVELS * 5 / 6, LEVELS)},
        "block scales are powers of two": {"inner": lambda s: torch.exp2(torch.floor(torch.log2(s)))},
    },
)

# ------------------------------------------------------------------ eight bits with a zero point


@twelfth(
    lambda d: (d.ints(256, 20, 300).to(torch.uint8), (d.ints(255, 300, 16) - 127).to(torch.int8), d.rand(16) * 0.01)
)
def twelfth_eight_bits(a, b, scale):
    return ((a.to(torch.int32) - 117) @ b.to(torch.int32)).to(scale.dtype) * scale * 0.03


def eight_bits(a, b, scale, zero=117, own=True, most=None, step=300, shared=False, signed=False):
    a, b = (a.to(torch.int8) if signed else a).to(torch.int64), b.to(torch.int64)
    y = torch.zeros(20, 16, dtype=torch.int64)
    for i in range(0, 300, step):
        y = y + a[:, i : i + step] @ b[i : i + step] - (zero * b[i : i + step].sum(0) if own else 0)
        y = y.clamp(-most, most - 1) if most else y
    return y.float() * (scale[:1] if shared else scale) * 0.03


good(twelfth_eight_bits, eight_bits, zero_point_by_sums={}, by_tiles_of_64={"step": 64})
wrong(
    twelfth_eight_bits,
    eight_bits,
    {
        "the zero point is not subtracted": {"own": False},
        "the zero point is 128": {"zero": 128},
        "sums saturate at 18 bits with their sign": {"most": 1 << 17, "step": 4},
        "every column takes the first one's scale": {"shared": True},
        "bytes are read as signed": {"signed": True},
    },
)


@twelfth(lambda d: (d(16, 512, scale=3),))
def twelfth_block_quantise(x):
    b = x.view(16, 4, 128)
    s = b.abs().amax(-1, keepdim=True).clamp(min=1e-4) / 448
    return (b / s).to(F8).to(x.dtype).view(16, 512), s[..., 0]


def block_quantise(x, most=448.0, width=128, cut=False, inverse=True, of=None, whole=False):
    b = x.view(16, 4, 128)
    s = b[..., :width].abs().amax(-1, keepdim=True).clamp(min=1e-4) / most
    s = s.amax(1, keepdim=True).expand(-1, 4, -1) if whole else s
    s = of(s) if of else s
    y = (b / s).clamp(-448, 448)
    if cut:
        y = (y.contiguous().view(torch.int32) & ~0xFFFFF).view(torch.float32)
    return y.to(F8).float().view(16, 512), s[..., 0] if inverse else 1 / s[..., 0]


good(twelfth_block_quantise, block_quantise, clamped={})
wrong(
    twelfth_block_quantise,
    block_quantise,
    {
        "codes are cut, not rounded": {"cut": True},
        "the greatest code is taken for 240": {"most": 240.0},
        "one scale for a row": {"whole": True},
        "the inverse of each scale is returned": {"inverse": False},
        "the greatest is of 120 lanes": {"width": 120},
        "scales are rounded up to powers of two": {"of": lambda s: torch.exp2(torch.ceil(torch.log2(s)))},
    },
)


@twelfth(lambda d: (d(6, 90, scale=2), d.rand(6) * 0.02 + 0.01, d.ints(20, 6)))
def twelfth_fake_quantise(x, scale, zero):
    q = torch.round(x / scale[:, None]) + zero[:, None]
    return (q.clamp(-128, 127) - zero[:, None]) * scale[:, None]


def fake_quantise(x, scale, zero, least=-128, most=127, of=torch.round, back=True, order=None):
    scale = order(scale) if order else scale
    z = zero.float()[:, None]
    q = (of(x / scale[:, None]) + z).clamp(least, most)
    return (q - (z if back else 0)) * scale[:, None]


good(
    twelfth_fake_quantise,
    fake_quantise,
    as_defined={},
    nearest_by_a_great_number={"of": lambda x: x + 1.5 * 2**23 - 1.5 * 2**23},
)
wrong(
    twelfth_fake_quantise,
    fake_quantise,
    {
        "codes are cut towards zero": {"of": torch.trunc},
        "the zero point is not taken off again": {"back": False},
        "the greatest code is 63": {"most": 63},
        "channels take the next one's scale": {"order": lambda s: s.roll(-1)},
        "codes wrap instead of saturating": lambda x, s, z: wrapped(x, s, z),
    },
)


def wrapped(x, scale, zero):
    q = torch.round(x / scale[:, None]) + zero[:, None]
    return (torch.remainder(q + 128, 256) - 128 - zero[:, None]) * scale[:, None]


# ------------------------------------------------------------------ roundings of float32


@twelfth(lambda d: (d(700) * torch.tensor([1.0, 1e-39, 3e38]).repeat(234)[:700],))
def twelfth_to_bfloat16(x):
    return x.to(bf)


def to_bfloat16(x, add=None, flush=False, most=False):
    i = x.contiguous().view(torch.int32)
    up = 0x7FFF + ((i >> 16) & 1) if add is None else add
    y = ((i + up) & ~0xFFFF).view(torch.float32)
    y = torch.where(x.abs() > 3.4e38, x, y)
    y = torch.where(x.abs() < 2.0**-126, 0.0, y) if flush else y
    return y.clamp(-3.3895e38, 3.3895e38) if most else y


good(twelfth_to_bfloat16, to_bfloat16, bf, by_bits={})
wrong(
    twelfth_to_bfloat16,
    to_bfloat16,
    {
        "cut, not rounded": {"add": 0},
        "subnormal numbers are zero": {"flush": True},
        "infinities saturate": {"most": True},
        "rounded at random": {
            "add": torch.randint(0, 1 << 16, (700,), generator=torch.Generator().manual_seed(3)).int()
        },
    },
    bf,
)

# ------------------------------------------------------------------ Hadamard, Muon, triangular systems


@twelfth(lambda d: (d(24, 128, dtype=hf),))
def twelfth_hadamard(x):
    h = torch.ones(1, 1)
    for _ in range(7):
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)], 0)
    return (x.float() @ h.to(x.float().dtype) * 128**-0.5).to(hf)


def hadamard(x, scale=128**-0.5, stages=7, minus=1, kind=None, order=False):
    y = x.float()
    for s in range(stages):
        v = y.view(24, -1, 2, 1 << s)
        a, b = v[:, :, 0], v[:, :, 1]
        y = torch.stack([a + b, minus * (a - b)], 2).reshape(24, 128)
        y = narrow(y, kind) if kind else y
    y = y.view(24, 2, 64).mT.reshape(24, 128) if order else y
    return y * scale


good(twelfth_hadamard, hadamard, hf, butterflies={}, scaled_first=lambda x: hadamard(x.float() * 128**-0.5, 1.0))
wrong(
    twelfth_hadamard,
    hadamard,
    {
        "one stage of seven is left out": {"stages": 6},
        "differences are of the other sign": {"minus": -1},
        "the last stage's halves are interleaved": {"order": True},
        "scaled by 128, not by its root": {"scale": 1 / 128},
        "hides: stages are stored in half precision": {"kind": hf},
        "stages are stored in bfloat16": {"kind": bf},
    },
    hf,
)


@twelfth(lambda d: (torch.tril(d(5, 20, 20, scale=0.2)) + 2 * torch.eye(20), d(5, 20, 6)))
def twelfth_triangular(a, b):
    return torch.linalg.solve_triangular(a, b, upper=False)


def triangular(a, b, unit=False, upper=False, rows=20, kind=None):
    a = a.mT if upper else a
    x = torch.zeros_like(b)
    for i in range(20):
        lo = max(0, i - rows)
        r = b[:, i] - (a[:, i, lo:i, None] * x[:, lo:i]).sum(1)
        x[:, i] = r if unit else r / a[:, i, i, None]
        x = narrow(x, kind) if kind else x
    return x


good(twelfth_triangular, triangular, row_by_row={}, by_columns=lambda a, b: columns(a, b))


def columns(a, b):
    r, x = b.clone(), torch.zeros_like(b)
    for i in range(20):
        x[:, i] = r[:, i] / a[:, i, i, None]
        r = r - a[:, :, i, None] * x[:, i, None]
    return x


wrong(
    twelfth_triangular,
    triangular,
    {
        "the diagonal is taken for one": {"unit": True},
        "the matrix is read transposed": {"upper": True},
        "only the last 16 unknowns before are used": {"rows": 16},
        "solutions are kept in bfloat16": {"kind": bf},
    },
)
