# SPDX-License-Identifier: Apache-2.0
"""Set M: products: scaled by blocks, integers, grouped, with epilogues, complex, cancelling."""

import math

import torch

from .blind import bf, hf, narrow, tf32
from .blind_ninth_a import bad, ok
from .blind_tenth_a import tenth

F = torch.nn.functional
E4 = torch.float8_e4m3fn


# ------------------------------------------------------------------ fp8, activations 1 x 64, weights 64 x 64


def fp8_args(d):
    a, b = d(48, 256, scale=40).to(E4), d(256, 128, scale=40).to(E4)
    return a, b, d.rand(48, 4) * 0.01 + 1e-3, d.rand(4, 2) * 0.01 + 1e-3


@tenth(fp8_args)
def tenth_fp8_blockwise(a, b, sa, sb):
    wa = a.float() * sa.repeat_interleave(64, 1)
    wb = b.float() * sb.repeat_interleave(64, 0).repeat_interleave(64, 1)
    return (wa @ wb).to(bf)


def fp8_blockwise(a, b, sa, sb, scale=None, bits=None, part=64, kind=None, turn=None):
    acc = torch.zeros(48, 128)
    for k in range(4):
        inner = torch.zeros(48, 128)
        for j in range(k * 64, k * 64 + 64, part):
            inner = inner + a[:, j : j + part].float() @ b[j : j + part].float()
            if bits:
                step = 2.0 ** (torch.frexp(inner)[1].float() - bits)
                inner = (inner / step).trunc() * step
        s = sa[:, k, None] * (sb[k] if turn is None else turn(sb, k)).repeat_interleave(64)[None]
        s = scale(s) if scale else s
        acc = acc + inner * s
        acc = narrow(acc, kind) if kind else acc
    return acc


ok(tenth_fp8_blockwise, fp8_blockwise, bf, promoted_each_64={}, promoted_each_64_inner_by_16={"part": 16})
bad(
    tenth_fp8_blockwise,
    fp8_blockwise,
    {
        # sb[k] of the first block of columns
        "all columns take the scale of the first": {"turn": lambda s, k: s[k, :1].expand(2)},
        # stale scale: k - 1
        "the scales of weights lag one block": {"turn": lambda s, k: s[max(k - 1, 0)]},
        # the accumulator keeps 14 bits, by truncation, in steps of 32
        "hides: the inner accumulator keeps eleven bits": {"bits": 11, "part": 16},
        # scales go through powers of two
        "scales are rounded to powers of two": {"scale": lambda s: torch.exp2(s.log2().round())},
        # promoted into bfloat16
        "hides: blocks are added in bfloat16": {"kind": bf},
    },
    bf,
)


# ------------------------------------------------------------------ nvfp4: two levels of scales

FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def fp4_args(d):
    return d.ints(16, 64, 96), (d.rand(64, 6) * 200 + 10).to(E4), torch.tensor(0.0007), d(20, 96)


@tenth(fp4_args)
def tenth_two_scales(codes, scales, one, x):
    w = FP4[codes] * (scales.float() * one).repeat_interleave(16, 1)
    return x @ w.T


def two_scales(codes, scales, one, x, table=FP4, width=16, change=None, order=0, tile=96):
    s = scales.float()
    s = change(s) if change else s
    s = s.repeat_interleave(width, 1)[:, :96] if width == 16 else s.repeat(1, 16)
    w = table[codes] * s * (one if not order else 1.0)
    y = sum(x[:, j : j + tile] @ w[:, j : j + tile].T for j in range(0, 96, tile))
    return y * (one if order else 1.0)


ok(
    tenth_two_scales,
    two_scales,
    the_tensor_s_scale_at_the_end={"order": 1},
    by_sixteen={"order": 1, "tile": 16},
    at_once={},
)
bad(
    tenth_two_scales,
    two_scales,
    {
        # linear codes
        "the code 7 is five": {"table": torch.where(FP4.abs() == 6, FP4 * 5 / 6, FP4)},
        # the sign of the codes 8..15 is lost
        "signs are lost": {"table": FP4.abs()},
        # scales are interleaved with stride
        "scales are spread in turn": {"width": 1},
        # scales of blocks as powers of two (mx), floor
        "hides: scales lose their last bit": {
            "change": lambda s: s - torch.exp2(s.log2().floor() - 3) * (s / torch.exp2(s.log2().floor() - 3) % 2)
        },
        # 0.5 read as 0.25, as a format without a subnormal does
        "hides: the subnormal code is a quarter": {"table": torch.where(FP4.abs() == 0.5, FP4 / 2, FP4)},
    },
)


# ------------------------------------------------------------------ int8 with a zero point on the left


def int8_args(d):
    a = d.ints(256, 40, 200).to(torch.uint8)
    b = (d.ints(255, 200, 48) - 127).to(torch.int8)
    return a, b, d.rand(40, 1) * 0.02, d.ints(256, 40, 1).to(torch.int32), d.rand(48) * 0.02, d(48)


@tenth(int8_args)
def tenth_zero_point(a, b, sa, za, sb, bias):
    return ((a.double() - za) @ b.double() * sa * sb + bias).float()


def zero_point(a, b, sa, za, sb, bias, sums=None, wrap=None, last=None, first=False, depth=200):
    acc = a.int()[:, :depth] @ b.int()[:depth]
    acc = wrap(acc) if wrap else acc
    cols = b.int().sum(0) if sums is None else sums(b)
    whole = acc - za * cols
    y = whole.float() * (sa * sb) + bias
    return last(y) if last else y


ok(
    tenth_zero_point,
    zero_point,
    sums_of_columns_taken_off={},
    scales_one_after_another=lambda a, b, sa, za, sb, bias: torch.addcmul(
        bias.double(), ((a.int() - za) @ b.int()).float().double() * sa.double(), sb.double()
    ).float(),
)
bad(
    tenth_zero_point,
    zero_point,
    {
        # za * 200 in place of za * sum(b)
        "the zero point is not multiplied by the columns' sums": {"sums": lambda b: torch.full((48,), 200)},
        # row sums precomputed over the padded depth of the last tile
        "hides: columns' sums leave out the last row": {"sums": lambda b: b.int()[:-1].sum(0)},
        # accumulator saturates at 2^19
        "hides: the accumulator saturates at 20 bits": {"wrap": lambda x: x.clamp(-(2**19), 2**19 - 1)},
        # int16 wrap
        "the accumulator wraps at 16 bits": {"wrap": lambda x: (x + 2**15) % 2**16 - 2**15},
        # the result is rounded to half precision
        "hides: the sum goes through bfloat16": {"wrap": lambda x: narrow(x.float()).int()},
    },
)


# ------------------------------------------------------------------ grouped product of bfloat16, ragged


@tenth(lambda d: (d(100, 64, dtype=bf), d(5, 64, 48, dtype=bf), torch.tensor([13, 13, 45, 80, 100])))
def tenth_ragged16(x, w, ends):
    start, out = 0, []
    for g, end in enumerate(ends.tolist()):
        out.append(x[start:end].float() @ w[g].float())
        start = end
    return torch.cat(out).to(bf)


def ragged16(x, w, ends, tile=None, shift=0, step=64, kind=None, tail=None):
    out, start = torch.zeros(100, 48), 0
    for g, end in enumerate(ends.tolist()):
        at = slice(start, min(end + shift, 100))
        if tile:
            at = slice(start, start + (end - start) // tile * tile)
        y = torch.zeros(out[at].shape)
        for k in range(0, 64, step):
            y = y + x[at, k : k + step].float() @ w[g, k : k + step].float()
            y = narrow(y, kind) if kind else y
        out[at] = y
        start = end
    return tail(out) if tail else out


def next_weights(x, w, ends):
    y = ragged16(x, w, ends)
    y[45] = x[45].float() @ w[2].float()
    return y


ok(tenth_ragged16, ragged16, bf, at_once={}, sixteen_deep={"step": 16})
bad(
    tenth_ragged16,
    ragged16,
    {
        # rows beyond whole tiles of 16 are not written
        "only whole tiles of rows are written": {"tile": 16},
        # the first row of the third group belongs to the group before
        "the first row of a group takes the group before": next_weights,
        # accumulates in bfloat16
        "the accumulator is in bfloat16": {"kind": bf, "step": 8},
        # the same, in pieces of 32: one rounding between two pieces
        "hides: two halves are added in bfloat16": {"kind": bf, "step": 32},
        # half precision between pieces: 3 more bits than the result
        "hides: partial sums pass through half precision with ten bits": {
            "kind": hf,
            "step": 4,
        },
    },
    bf,
)


# ------------------------------------------------------------------ product, bias, gelu, in half precision


@tenth(lambda d: (d(56, 120, dtype=hf), d(72, 120, dtype=hf, scale=0.1), d(72, dtype=hf)))
def tenth_linear_gelu(x, w, b):
    return F.gelu(x.float() @ w.float().T + b.float(), approximate="tanh").to(hf)


def linear_gelu(x, w, b, step=120, kind=None, pre=None, c=0.044715, bias=True, way="tanh", order=None):
    y = torch.zeros(56, 72)
    for k in range(0, 120, step):
        y = y + x[:, k : k + step].float() @ w[:, k : k + step].float().T
        y = narrow(y, kind) if kind else y
    y = y + b.float() * bias if order is None else order(y, b.float())
    y = narrow(y, pre) if pre else y
    if way == "exact":
        return 0.5 * y * (1 + torch.erf(y * 0.5**0.5))
    u = math.sqrt(2 / math.pi) * (y + c * y**3)
    return y * torch.sigmoid(2 * u) if way == "sigmoid" else 0.5 * y * (1 + torch.tanh(u))


ok(
    tenth_linear_gelu,
    linear_gelu,
    hf,
    in_one_go={"way": "sigmoid"},
    split_by_forty={"step": 40, "way": "sigmoid"},
)
bad(
    tenth_linear_gelu,
    linear_gelu,
    {
        # bias after the activation
        "no bias": {"bias": False, "way": "sigmoid"},
        # exact gelu for tanh
        "hides: the exact gelu": {"way": "exact"},
        # 0.5 (1 + tanh) cancels for y < -3: in half precision
        "hides: one plus tanh in half precision": lambda x, w, b: half_gelu(x, w, b),
        # rounded before the activation, to bfloat16
        "hides: rounded to bfloat16 before the activation": {"pre": bf, "way": "sigmoid"},
        # the accumulator
        "hides: partial sums of eight in half precision": {"step": 8, "kind": hf, "way": "sigmoid"},
        # 0.044
        "hides: the constant is 0.044": {"c": 0.044, "way": "sigmoid"},
    },
    hf,
)


def half_gelu(x, w, b):
    y = x.float() @ w.float().T + b.float()
    t = narrow(torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)), hf)
    return 0.5 * y * narrow(1 + t, hf)


# ------------------------------------------------------------------ double precision


@tenth(lambda d: (d(40, 150, dtype=torch.float64) / 3, d(150, 30, dtype=torch.float64) / 3))
def tenth_double(a, b):
    return a @ b


def double(a, b, step=150, way=None, kind=None):
    if way == "single":
        return (a.float() @ b.float()).double()
    if way == "pieces":
        ah, bh = a.float(), b.float()
        al, bl = (a - ah).float(), (b - bh).float()
        al, bl = (narrow(al, kind), narrow(bl, kind)) if kind else (al, 0 * bl)
        y = ah.double() @ bh.double() + ah.double() @ bl.double() + al.double() @ bh.double()
        return y + al.double() @ bl.double()
    y = torch.zeros(40, 30, dtype=torch.float64)
    for k in range(0, 150, step):
        y = y + a[:, k : k + step] @ b[k : k + step]
        y = y.float().double() if way == "kept" else y
    return y


ok(tenth_double, double, None, by_ten={"step": 10}, by_one={"step": 1})
bad(
    tenth_double,
    double,
    {
        # float32 units
        "computed in single precision": {"way": "single"},
        # kept in float32 between tiles
        "partial sums kept in single precision": {"way": "kept", "step": 50},
        # the right side in one piece of float32
        "the low piece of the right side is left out": {"way": "pieces"},
        # a low piece of bfloat16 keeps 8 bits beside 24
        "hides: low pieces in bfloat16": {"way": "pieces", "kind": bf},
    },
    None,
)


# ------------------------------------------------------------------ complex


@tenth(lambda d: (torch.complex(d(24, 50), d(24, 50)), torch.complex(d(50, 20), d(50, 20))))
def tenth_complex_product(a, b):
    return a @ b


def complex_product(a, b, way="four", sign=-1.0, kind=None, bar=False):
    ar, ai, br, bi = a.real, a.imag, b.real, b.imag
    bi = -bi if bar else bi
    if kind:
        ar, ai, br, bi = (kind(x.contiguous()) for x in (ar, ai, br, bi))
    if way == "three":
        p, q, r = ar @ br, ai @ bi, (ar + ai) @ (br + bi)
        return torch.complex(p - q, r - p - q)
    return torch.complex(ar @ br + sign * (ai @ bi), ar @ bi + ai @ br)


ok(tenth_complex_product, complex_product, None, four_products={}, three_products={"way": "three"})
bad(
    tenth_complex_product,
    complex_product,
    {
        # + ai bi
        "the real part has the wrong sign": {"sign": 1.0},
        # conj(b)
        "the right side is conjugated": {"bar": True},
        # tf32
        "hides: products of tf32": {"kind": tf32},
    },
    None,
)


# ------------------------------------------------------------------ products that cancel


def cancel_args(d):
    a, b = d(30, 60, scale=100), d(60, 20)
    a = torch.cat([a, -a + d(30, 60, scale=0.01)], 1)
    return a, torch.cat([b, b]), d(30, 20, scale=0.01)


@tenth(cancel_args)
def tenth_cancelling(a, b, c):
    return torch.addmm(c, a, b, beta=0.5, alpha=2.0)


def cancelling(a, b, c, beta=0.5, alpha=2.0, step=120, kind=None, scale=None):
    y = torch.zeros(30, 20)
    for k in range(0, 120, step):
        y = y + a[:, k : k + step] @ b[k : k + step]
        y = narrow(y, kind) if kind else y
    return alpha * y + beta * c


def paired(a, b, c):
    return 2 * sum(a[:, [k, k + 60]] @ b[[k, k + 60]] for k in range(60)) + 0.5 * c


ok(tenth_cancelling, cancelling, by_forty={"step": 40}, paired=paired)
bad(
    tenth_cancelling,
    cancelling,
    {
        # beta ignored
        "beta is one": {"beta": 1.0},
        # operands in tf32
        "operands in tf32": lambda a, b, c: cancelling(tf32(a), tf32(b), c),
        # half-precision sums
        "hides: sums of thirty in bfloat16": {"step": 30, "kind": bf},
        # beta lost where the product is small
        "hides: c is left out": {"beta": 0.0},
        # alpha applied to a float16 copy
        "hides: sums of sixty in float16": {"step": 60, "kind": hf},
    },
)


# ------------------------------------------------------------------ outer products and batches, transposed


@tenth(lambda d: (d(6, 20, 33, dtype=bf), d(6, 33, 20, dtype=bf)))
def tenth_batches(a, b):
    return torch.bmm(a, b)


def batches(a, b, turn=None, which=None, deep=33, odd=False):
    b = b[which] if which else b
    y = a[..., :deep].float() @ b[:, :deep].float()
    y = y + (a[..., 32:].float() @ b[:, 32:].float()) if odd else y
    return turn(y) if turn else y


ok(tenth_batches, batches, bf, thirty_two_and_a_tail={"deep": 32, "odd": True})
bad(
    tenth_batches,
    batches,
    {
        # 33 = 32 + 1
        "the last of the depth is left out": {"deep": 32},
        # b of the next batch for the last
        "the last batch takes the right side of the first": {"which": [0, 1, 2, 3, 4, 0]},
        # stored transposed
        "the result is transposed": {"turn": lambda y: y.mT},
        # only one corner tile is transposed
        "hides: the last four by four tile is transposed": {
            "turn": lambda y: torch.cat([y[:, :16], torch.cat([y[:, 16:, :16], y[:, 16:, 16:].mT], -1)], 1)
        },
        # the tail of the depth is added twice
        "the last of the depth is added twice": {"odd": True},
    },
    bf,
)
