# SPDX-License-Identifier: Apache-2.0
"""Set L: products: grouped, block-scaled, packed integers, split, Newton-Schulz, adapters."""

import torch

from .blind import bf, hf, narrow, tf32
from .blind_ninth_a import bad, ninth, ok

E4 = torch.float8_e4m3fn

# ------------------------------------------------------------------ grouped products


@ninth(lambda d: (d(120, 96, dtype=bf), d(5, 96, 40, dtype=bf), torch.tensor([31, 31, 64, 65, 120])))
def ninth_grouped_mm(x, w, ends):
    e = torch.bucketize(torch.arange(120), ends, right=True)
    return torch.einsum("tk,tkn->tn", x.float(), w.float()[e]).to(bf)


def grouped_mm(x, w, ends, late=0, tile=0, kind=None, step=96, skip_empty=False, out=None):
    y, start = torch.zeros(120, 40), 0
    for e, stop in enumerate(ends.tolist()):
        stop = min(stop + late, 120)
        n = (stop - start) // tile * tile if tile else stop - start
        rows = slice(start, start + n)
        for k in range(0, 96, step):
            ee = min(e + 1, 4) if skip_empty and e == 1 else e
            y[rows] += x[rows, k : k + step].float() @ w[ee, k : k + step].float()
            y[rows] = y[rows] if kind is None else narrow(y[rows], kind)
        start = stop
    return y


def shifted_experts(x, w, ends):
    """Empty groups are squeezed out, and the experts after them move up."""
    return grouped_mm(x, w[[0, 1, 1, 2, 3]], ends)


ok(ninth_grouped_mm, grouped_mm, bf, group_by_group={}, three_steps_of_k={"step": 32})
bad(
    ninth_grouped_mm,
    grouped_mm,
    {
        # the first row of a group goes to the expert before
        "hides: the first row of a group goes to the expert before": {"late": 1},
        # tiles of 8 rows, the rest never written
        "rows beyond the last full tile stay zero": {"tile": 8},
        # an accumulator in bfloat16, four steps
        "the accumulator is bfloat16": {"kind": bf, "step": 24},
        # the same in float16: three more bits
        "hides: the accumulator is float16": {"kind": hf, "step": 8},
        # empty expert squeezed out
        "experts after an empty one are taken one too early": shifted_experts,
    },
    bf,
)


# ------------------------------------------------------------------ float8 with block scales


def fp8_args(d):
    a, b = d(48, 256, scale=60).clamp(-448, 448).to(E4), d(64, 256, scale=60).clamp(-448, 448).to(E4)
    return a, b, d.rand(48, 4) * 0.01 + 0.001, d.rand(2, 4) * 0.01 + 0.001


@ninth(fp8_args)
def ninth_fp8_blocks(a, b, sa, sb):
    x = a.float() * sa.repeat_interleave(64, 1)
    y = b.float() * sb.repeat_interleave(32, 0).repeat_interleave(64, 1)
    return x @ y.T


def short(x, bits):
    """Significands cut off: an accumulator with few bits."""
    mask = ~((1 << (23 - bits)) - 1)
    return (x.view(torch.int32) & mask).view(torch.float32)


def fp8_blocks(a, b, sa, sb, bits=0, row=lambda s: s, shift=0, step=64, kind=None, lanes=None, first=False):
    total = torch.zeros(48, 64)
    for g in range(4):
        part = torch.zeros(48, 64)
        for k in range(g * 64, g * 64 + 64, step):
            more = a[:, k : k + step].float() @ b[:, k : k + step].float().T
            part = part + more if not bits else short(part + more, bits)
        part = part if kind is None else narrow(part, kind)
        at = 0 if first else (g + shift) % 4
        scale = row(sa)[:, g, None] * sb.repeat_interleave(32, 0)[:, at]
        total = total + part * scale
    return total


ok(ninth_fp8_blocks, fp8_blocks, scaled_by_blocks={}, eight_at_a_time={"step": 8})
bad(
    ninth_fp8_blocks,
    fp8_blocks,
    {
        # Hopper's accumulator without promotion: 13 bits kept
        "hides: sums of a block keep 13 bits": {"bits": 13, "step": 16},
        # the block's sum through bfloat16
        "hides: a block's sum is rounded to bfloat16": {"kind": bf},
        # scale of the next block
        "the scale is that of the next block": {"shift": 1},
        # scale of the first block for all
        "all blocks take the first scale of b": {"first": True},
        # row r takes the scale of r // 2 * 2
        "odd rows take the scale of the row before": {"row": lambda s: s[torch.arange(48) // 2 * 2]},
    },
)


# ------------------------------------------------------------------ micro-scaled fp4


LEVELS = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def mx_args(d):
    return d.ints(256, 24, 64).to(torch.uint8), d.ints(12, 24, 4).to(torch.uint8) + 122, d(32, 128)


@ninth(mx_args)
def ninth_mxfp4(codes, scales, x):
    return x @ unpacked(codes, scales).to(x.dtype).T


def unpacked(codes, scales, bias=127, swap=False, block=32, table=LEVELS, sign=True):
    lo, hi = codes & 15, codes >> 4
    c = torch.stack((hi, lo) if swap else (lo, hi), -1).flatten(1).long()
    mag = torch.tensor(table)[c & 7]
    w = torch.where(c >= 8, -mag, mag) if sign else mag
    s = torch.exp2(scales.float() - bias).repeat_interleave(block, 1)
    return w * torch.nn.functional.pad(s, (0, 128 - s.shape[1]), value=1.0)


def mxfp4(codes, scales, x, step=128, kind=None, tail=128, **how):
    w = unpacked(codes, scales, **how)
    w = w if kind is None else narrow(w, kind)
    return sum(x[:, k : k + step] @ w[:, k : k + step].T for k in range(0, tail, step))


ok(ninth_mxfp4, mxfp4, steps_of_32={"step": 32}, decoded_in_bfloat16_which_is_exact={"kind": bf})
bad(
    ninth_mxfp4,
    mxfp4,
    {
        # 2^(e - 128)
        "the bias of the scale is 128": {"bias": 128},
        # nibbles swapped
        "the high nibble comes first": {"swap": True},
        # subnormal of fp4
        "hides: the subnormal 0.5 is read as zero": {"table": [0.0, 0.0, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]},
        # blocks of 16, like nvfp4
        "scales are taken for blocks of 16": {"block": 16},
        # 5 for 6
        "hides: the largest value is 5": {"table": [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0]},
    },
)


# ------------------------------------------------------------------ four-bit weights in groups, int8 products


def int4_args(d):
    return d(20, 192, dtype=hf), d.ints(16, 192, 48), d.ints(16, 3, 48), (d.rand(3, 48) * 0.02 + 0.004).to(hf)


@ninth(int4_args)
def ninth_int4(x, q, z, s):
    w = (q - z.repeat_interleave(64, 0)).float()
    return x.float() @ (w * s.float().repeat_interleave(64, 0))


def int4(x, q, z, s, one=0, group=lambda t: t.repeat_interleave(64, 0), kind=None, late=False, acc=None):
    if late:
        total = 0.0
        for g in range(3):
            r = slice(g * 64, g * 64 + 64)
            xs = x[:, r].float()
            total = total + (xs @ q[r].float() - xs.sum(-1, keepdim=True) * (z[g] + one).float()) * s[g].float()
            total = total if acc is None else narrow(total, acc)
        return total
    w = (q - group(z) - one).float() * group(s).float()
    return x.float() @ (w if kind is None else narrow(w, kind))


ok(ninth_int4, int4, decoded_first={}, zero_points_taken_off_late={"late": True})
bad(
    ninth_int4,
    int4,
    {
        # GPTQ stores z - 1
        "the zero point is one too large": {"one": 1},
        # the groups' scales interleaved
        "groups are taken in turn": {"group": lambda t: t.repeat(64, 1)},
        # decoded weights rounded to float16, which the definition does not
        "hides: decoded weights are rounded to float16": {"kind": hf},
        # groups added in float16
        "hides: groups are added in float16": {"late": True, "acc": hf},
        # the last row of a group belongs to the next
        "hides: the last row of each group takes the next group's scale": {
            "group": lambda t: t[((torch.arange(192) + 1) // 64).clamp(max=2)]
        },
    },
)


@ninth(lambda d: (d.ints(256, 32, 320), d.ints(256, 320, 24) - 128, d.rand(32) * 0.01, d.rand(24) * 0.01, d(24)))
def ninth_w8a8(a, b, sa, sb, bias):
    return (a @ b).to(sa.dtype) * sa[:, None] * sb + bias


def w8a8(a, b, sa, sb, bias, pairs=False, kind=None, early=False, at=1, wide=None):
    if pairs:
        a2, b2 = a.view(32, 160, 2), b.view(160, 2, 24)
        t = torch.einsum("mkp,kpn->mkn", a2, b2).clamp(-32768, 32767).sum(1)
    elif wide:
        t = ((a @ b + wide) % (2 * wide)) - wide
    else:
        t = a @ b
    t = t.float() if kind is None else narrow(t.float(), kind)
    if early:
        return (t + bias) * (sa[:, None] * sb)
    return t * (sa[:, None] * sb) + bias


ok(ninth_w8a8, w8a8, scales_multiplied_first={})
bad(
    ninth_w8a8,
    w8a8,
    {
        # vpmaddubsw: sums of pairs saturate
        "hides: pairs saturate at 16 bits": {"pairs": True},
        # an accumulator of 20 bits wraps, in few elements
        "hides: the accumulator wraps at 20 bits": {"wide": 2**19},
        # int32 to bfloat16
        "the sum is rounded to bfloat16": {"kind": bf},
        # float16 holds 11 bits and overflows at 65504
        "the sum goes through float16": {"kind": hf},
        # bias before the scales
        "the bias is added before the scales": {"early": True},
    },
)


# ------------------------------------------------------------------ products by pieces


@ninth(lambda d: (d(40, 1024), d(1024, 30)))
def ninth_pieces(a, b):
    return a @ b


def split_pieces(x, n, cut=narrow):
    out = []
    for _ in range(n):
        out.append(cut(x))
        x = x - out[-1]
    return out


def by_pieces(a, b, n=3, keep=9, cut=narrow, drop=()):
    pa, pb = split_pieces(a, n, cut), split_pieces(b, n, cut)
    terms = sorted(((i + j, i, j) for i in range(n) for j in range(n)), reverse=True)
    terms = [t for t in sorted(terms)[:keep] if t[1:] not in drop]
    return sum(pa[i] @ pb[j] for _, i, j in reversed(terms))


def split_k(a, b, parts=8, lost=None, twice=None, kind=None):
    p = [x @ y for x, y in zip(a.chunk(parts, 1), b.chunk(parts, 0), strict=True)]
    if lost is not None:  # one tile of one part
        p[lost][32:, 24:] = 0
    if twice is not None:
        p[twice][:1, :1] *= 2
    p = p if kind is None else [narrow(x, kind) for x in p]
    while len(p) > 1:
        p = [x + y for x, y in zip(p[::2], p[1::2], strict=True)]
    return p[0]


ok(
    ninth_pieces,
    by_pieces,
    nine_products_of_bfloat16={},
    six_products_of_bfloat16={"keep": 6},
    split_into_eight=split_k,
    split_into_64=lambda a, b: split_k(a, b, 64),
)
bad(
    ninth_pieces,
    by_pieces,
    {
        # bf16x3
        "hides: three products of bfloat16": {"n": 2, "keep": 3},
        # one cross term forgotten
        "hides: one cross term is forgotten": {"drop": ((0, 1),)},
        # a single TF32
        "hides: TF32": lambda a, b: tf32(a) @ tf32(b),
        # a part's tile comes too late
        "hides: one tile of one part is lost": lambda a, b: split_k(a, b, lost=5),
        # one element was added twice (an atomic retried)
        "hides: one part is added twice in one element": lambda a, b: split_k(a, b, 64, twice=9),
        # the work space between parts is bfloat16
        "partial sums are stored in bfloat16": lambda a, b: split_k(a, b, kind=bf),
        # ... or float16
        "hides: partial sums are stored in float16": lambda a, b: split_k(a, b, kind=hf),
    },
)


@ninth(lambda d: (d(16, 16), d(16, 48), d(48, 16), torch.full((16, 16), float("nan"))))
def ninth_addmm(c, a, b, bad_):
    return torch.addmm(c, a, b, beta=0.5, alpha=2.0), torch.addmm(bad_, a, b, beta=0.0)


def addmm(c, a, b, nan, alpha=2.0, flip=False, zero=True, late=False):
    p = a @ b
    first = (p + 0.5 * c) * 2 if late else alpha * p + 0.5 * (c.T if flip else c)
    return first, p if zero else p + 0.0 * nan


ok(ninth_addmm, addmm, as_documented={})
bad(
    ninth_addmm,
    addmm,
    {
        # c read in column order
        "c is read column by column": {"flip": True},
        # 0 * NaN
        "beta of zero multiplies": {"zero": False},
        # alpha scales c, too
        "alpha multiplies c as well": {"late": True},
    },
)


# ------------------------------------------------------------------ Newton-Schulz, adapters


def ns(g, steps=5, a=3.4445, b=-4.7750, c=2.0315, turn=True, norm=None, kind=None, at=(), eps=1e-7):
    x = g.T if turn and g.shape[0] > g.shape[1] else g
    x = x / ((norm or torch.linalg.matrix_norm)(x) + eps)
    for n in range(steps):
        m = x @ x.T
        m = narrow(m, kind) if n in at else m
        x = a * x + (b * m + c * (m @ m)) @ x
    return x.T if turn and g.shape[0] > g.shape[1] else x


@ninth(lambda d: (d(80, 32, scale=0.02),))
def ninth_newton_schulz(g):
    return ns(g)


def ns_symmetric(g, first=5):
    """From the other side: x (a + b m + c m m), m = x' x."""
    x = g / torch.linalg.matrix_norm(g)
    for _ in range(first):
        m = x.T @ x
        x = x @ (3.4445 * torch.eye(32) + m @ (-4.7750 * torch.eye(32) + 2.0315 * m))
    return x


ok(ninth_newton_schulz, ns, from_the_other_side=ns_symmetric)
bad(
    ninth_newton_schulz,
    ns,
    {
        # four steps
        "four steps": {"steps": 4},
        # digits swapped
        "hides: 2.0351 for 2.0315": {"c": 2.0351},
        # the spectral norm estimate by rows
        "divided by the largest row norm": {"norm": lambda x: x.norm(dim=1).max()},
        # the last step's m in bfloat16
        "hides: the product of the last step in bfloat16": {"kind": bf, "at": (4,)},
        # the first step's
        "hides: the product of the first step in float16": {"kind": hf, "at": (0,)},
        # eps of a normalisation at a tiny gradient
        "hides: epsilon is 1e-3": {"eps": 1e-3},
    },
)


@ninth(lambda d: (d(40, 96, dtype=bf), d(64, 96, dtype=bf), d(8, 96, dtype=bf), d(64, 8, dtype=bf, scale=0.1), d(64)))
def ninth_adapter(x, w, a, b, m):
    full = w.float() + 2.0 * (b.float() @ a.float())
    full = full * (m / full.norm(dim=1))[:, None]
    return (x.float() @ full.T).to(bf)


def adapter(x, w, a, b, m, scale=2.0, kind=None, before=False, axis=1, low=None):
    x, w, a, b = x.float(), w.float(), a.float(), b.float()
    delta = scale * (b @ a)
    full = w + (delta if low is None else narrow(delta, low))
    norm = (w if before else full).norm(dim=axis)
    norm = norm if axis == 1 else norm[:64]
    low_x = x @ a.T
    low_x = low_x if kind is None else narrow(low_x, kind)
    return (x @ w.T + scale * (low_x @ b.T)) * (m / norm)


ok(ninth_adapter, adapter, bf, adapter_beside_the_weight={})
bad(
    ninth_adapter,
    adapter,
    {
        # alpha / sqrt(r)
        "alpha over the root of the rank": {"scale": 2.0 * 8**0.5},
        # norm of the frozen weight
        "the norm is that of the weight alone": {"before": True},
        # columns
        "the norm is over columns": {"axis": 0},
        # the low-rank activations rounded to float8: a real shortcut
        "hides: the adapter's activations are rounded to float8": {"kind": E4},
    },
    bf,
)


@ninth(lambda d: (d(30, 40, 3)[:, ::2, 1], d(40, 25).T[:, ::2]))
def ninth_strided(a, b):
    return a @ b.T


def contiguous_read(x):
    flat = torch.as_strided(x, (x.numel(),), (1,), x.storage_offset())
    return flat.view(x.shape)


ok(ninth_strided, lambda a, b: (a[:, None] * b[None]).sum(-1), by_rows={})
bad(
    ninth_strided,
    lambda a, b: a @ b.T,
    {
        # the storage is read as if it were dense
        "strides of a are ignored": lambda a, b: contiguous_read(a) @ b.T,
        # the offset is
        "the offset of a is ignored": lambda a, b: torch.as_strided(a, a.shape, a.stride(), 0) @ b.T,
        # the step of 2 in b is ignored in the last row only
        "hides: the last row of b is read without its stride": lambda a, b: (
            a @ torch.cat((b[:-1], torch.as_strided(b, (1, 20), (1, b.stride(1) // 2), b.storage_offset() + 24))).T
        ),
    },
)
