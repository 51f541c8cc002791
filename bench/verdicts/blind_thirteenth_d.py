# SPDX-License-Identifier: Apache-2.0
"""Set R, the thirteenth: products, whole, by groups and of narrow codes."""

import torch

from .blind import bf, hf, narrow, tf32
from .blind_thirteenth_a import A, add, but, old, serial, split, wide

f8 = torch.float8_e4m3fn

# ------------------------------------------------------------------ whole numbers of columns

add(
    "mm",
    A.mm.default,
    lambda d: (d(37, 130), d(130, 45)),
    lambda a, b, **k: split(a, b, **k),
    right={
        "blocks of 16": {},
        "blocks of 64, four parts added last": lambda a, b: sum(a[:, i::4] @ b[i::4] for i in range(4)),
        "rows padded": lambda a, b: (torch.cat([a, torch.zeros(27, 130)]) @ b)[:37],
    },
    wrong={
        "the last 2 of 130 are dropped": {"keep": 8},
        "hides: operands are rounded to tf32": lambda a, b: tf32(a) @ tf32(b),
        "hides: operands are two bfloat16 each, the product of the lesser ones and one more left out": lambda a, b: (
            narrow(a) @ narrow(b) + (a - narrow(a)) @ narrow(b)
        ),
        "hides: the accumulator is rounded to half once in 64": {"step": 64, "acc": hf},
        "the last tile of 5 columns is of a call before": lambda a, b: but((slice(None), slice(40, 45)), of=old)(
            torch.mm
        )(a, b),
        "transposed where it is square": lambda a, b: torch.cat([(a[:, :64] @ b[:64, :37]).T, a @ b[:, 37:]], 1),
    },
)

add(
    "bmm",
    A.bmm.default,
    lambda d: (d(5, 17, 96, dtype=bf), d(5, 96, 21, dtype=bf)),
    lambda a, b, **k: split(a.float(), b.float(), **k),
    right={"single": {}, "serial": lambda a, b: serial((a.float()[:, :, None] * b.float().mT[:, None]))},
    wrong={
        "the accumulator is bfloat16": {"acc": bf, "step": 2},
        "all batches take the first right matrix": lambda a, b: a.float() @ b[:1].float(),
        "hides: one block of batch 3 is added twice": lambda a, b: but(
            3, of=lambda y: y + a[3, :, :8].float() @ b[3, :8].float()
        )(lambda: a.float() @ b.float())(),
        "hides: the accumulator is rounded in the middle": {"acc": torch.float8_e5m2, "step": 48},
        "the last block of 16 is lost": {"keep": 5},
    },
    dtype=bf,
)

add(
    "addmm",
    lambda c, a, b: A.addmm.default(c, a, b, beta=0.5, alpha=2.0),
    lambda d: (d(30), d(22, 80), d(80, 30)),
    lambda c, a, b, beta=0.5, alpha=2.0, twice=1, along=True: (
        beta * twice * (c if along else c[:22, None]) + alpha * split(a, b)
    ),
    right={"blocks": {}, "alpha first": lambda c, a, b: (a * 2) @ b + c / 2},
    wrong={
        "beta is left out": {"beta": 1.0},
        "alpha is left out": {"alpha": 1.0},
        "the bias goes down the rows": {"along": False},
        "hides: the bias is added by both halves of the split": {"twice": 2},
        "hides: the bias is rounded to bfloat16": lambda c, a, b: 2 * (a @ b) + narrow(c) / 2,
    },
)

add(
    "baddbmm",
    A.baddbmm.default,
    lambda d: (d(3, 1, 20, dtype=hf), d(3, 18, 64, dtype=hf, scale=3), d(3, 64, 20, dtype=hf)),
    lambda c, a, b, **k: c.float() + split(a.float(), b.float(), **k),
    right={"single": {}, "at once": lambda c, a, b: c.float() + a.float() @ b.float()},
    wrong={
        "the first batch's bias for all": lambda c, a, b: c[:1].float() + a.float() @ b.float(),
        "accumulated in half": {"acc": hf, "step": 1},
        "hides: products are rounded to half": lambda c, a, b: (
            c.float() + narrow(a.float()[:, :, None] * b.float().mT[:, None], bf).sum(-1)
        ),
        "hides: row 17 lacks its last block": lambda c, a, b: but(
            (slice(None), 17), of=lambda y: y - a[:, 17:18, 60:].float().bmm(b[:, 60:].float())[:, 0]
        )(lambda: c.float() + a.float() @ b.float())(),
    },
    dtype=hf,
)

add(
    "int_mm",
    A._int_mm.default,
    lambda d: (
        torch.cat([d.ints(256, 30, 72) - 128, torch.full((2, 72), -128)]).to(torch.int8),
        torch.cat([d.ints(256, 72, 22) - 128, torch.full((72, 2), -128)], 1).to(torch.int8),
    ),
    right={
        "in double": lambda a, b: (a.double() @ b.double()).int(),
        "in long": lambda a, b: (a.long() @ b.long()).int(),
    },
    wrong={
        "products are held in 16 bits, summed with saturation": lambda a, b: (
            (a.long()[:, :, None] * b.long()[None]).cumsum(1)[:, -1].clamp(-32768, 32767).int()
        ),
        "operands are unsigned": lambda a, b: ((a.long() & 255).double() @ (b.long() & 255).double()).int(),
        "hides: -128 is taken for -127": lambda a, b: (a.double().clamp(min=-127) @ b.double().clamp(min=-127)).int(),
        "hides: pairs of products saturate at 16 bits": lambda a, b: (
            (a.long()[:, :, None] * b.long()[None]).reshape(32, 36, 2, 24).sum(2).clamp(-32768, 32767).sum(1).int()
        ),
        "the last 8 are dropped": lambda a, b: (a[:, :64].double() @ b[:64].double()).int(),
    },
)

add(
    "complex_mm",
    A.mm.default,
    lambda d: (torch.complex(d(16, 40), d(16, 40)), torch.complex(d(40, 18), d(40, 18))),
    lambda a, b, s=1.0, t=1.0: torch.complex(
        a.real @ b.real - s * a.imag @ b.imag, a.real @ b.imag + t * a.imag @ b.real
    ),
    right={
        "four products": {},
        "in double": lambda a, b: (a.to(torch.complex128) @ b.to(torch.complex128)).to(a.dtype),
    },
    wrong={
        "the right one is conjugated": {"s": -1.0, "t": 1.0},
        "the imaginary part has one term": {"t": 0.0},
        "hides: imaginary parts are rounded to tf32": lambda a, b: torch.complex(
            a.real @ b.real - a.imag @ b.imag, tf32(a.real.contiguous()) @ tf32(b.imag.contiguous()) + a.imag @ b.real
        ),
    },
)

add(
    "dot_double",
    A.dot.default,
    lambda d: (d(3000, dtype=torch.float64) / 3, d(3000, dtype=torch.float64) / 3),
    right={
        "halves": lambda a, b: (a * b).reshape(2, -1).sum(1).sum(0),
        "backwards": lambda a, b: (a.flip(0) * b.flip(0)).sum(),
    },
    wrong={
        "in single": lambda a, b: (a.float() @ b.float()).double(),
        "hides: products are rounded to single": lambda a, b: (a * b).float().double().sum(),
        "hides: the last one is dropped": lambda a, b: (a[:2999] * b[:2999]).sum(),
    },
)

# ------------------------------------------------------------------ by groups


def grouped(x, w, ends):
    out, start = [], 0
    for e, end in enumerate(ends.tolist()):
        out.append(x[start:end] @ w[e])
        start = end
    return torch.cat(out)


def grouped_kernel(x, w, ends, shift=0, late=0, keep=None, dirty=False, skip_empty=False):
    ids = torch.searchsorted(ends, torch.arange(len(x)) + 1 - late)
    if skip_empty:
        ids = torch.unique_consecutive(ids, return_inverse=True)[1]
    y = torch.zeros(len(x), w.shape[-1])
    for e in range(len(w)):
        rows = ids == e
        y[rows] = split(x[rows], w[(e + shift) % len(w)], keep=keep)
    if dirty:
        y[-3:] = old(y)[-3:]
    return y


add(
    "grouped_mm",
    grouped,
    lambda d: (d(70, 48), d(6, 48, 20), torch.tensor([9, 9, 31, 32, 60, 70])),
    grouped_kernel,
    right={
        "by the row's group": {},
        "gathered": lambda x, w, ends: torch.einsum(
            "nk,nko->no", x, w[torch.searchsorted(ends, torch.arange(70), right=True)]
        ),
    },
    wrong={
        "each group has the next one's matrix": {"shift": 1},
        "the group's last row is the next one's": {"late": -1},
        "an empty group is not counted": {"skip_empty": True},
        "hides: the last rows, of no full tile, are of a call before": {"dirty": True},
        "the last block of 16 is dropped": {"keep": 2},
    },
)


def block_scaled(a, sa, b, sb):
    fa = a.float() * sa.repeat_interleave(32, 1)
    fb = b.float() * sb.repeat_interleave(32, 0).repeat_interleave(32, 1)
    return (fa @ fb).to(torch.bfloat16)


def block_kernel(a, sa, b, sb, first=False, once=False, off=0, acc=None, swap=False, steps=4):
    total = torch.zeros(a.shape[0], b.shape[1])
    for k in range(steps):
        part = a[:, 32 * k : 32 * k + 32].float() @ b[32 * k : 32 * k + 32].float()
        ka = 0 if first else min(k + off, 3)
        cols = (sb.T if swap else sb)[k if not once else 0].repeat_interleave(32)
        total = total + part * sa[:, ka : ka + 1] * cols
        total = narrow(total, acc) if acc else total
    return total


def for_blocks(d):
    return (
        d(20, 128, scale=40).to(f8),
        2.0 ** d.ints(6, 20, 4) / 256 * (1 + d.rand(20, 4)),
        d(128, 128, scale=40).to(f8),
        (1 + d.rand(4, 4)) / 100,
    )


add(
    "fp8_block_scaled",
    block_scaled,
    for_blocks,
    block_kernel,
    right={
        "scales after each block": {},
        "scales before": lambda a, sa, b, sb: (
            (a.float() * sa.repeat_interleave(32, 1))
            @ (b.float() * sb.repeat_interleave(32, 0).repeat_interleave(32, 1))
        ),
    },
    wrong={
        "the first block's scale for all": {"first": True},
        "the weight's scales are transposed": {"swap": True},
        "hides: scales of the left are a block late at the end": {"off": 1},
        "hides: the accumulator is eight bits between blocks": {"acc": torch.float8_e5m2},
        "the last block is dropped": {"steps": 3},
    },
    dtype=bf,
)

# ------------------------------------------------------------------ narrow codes


def int4_weight(x, packed, scale, zero):
    low, high = (packed & 15).float(), (packed >> 4).float()
    q = torch.stack([low, high], 1).flatten(0, 1)
    w = (q - zero.repeat_interleave(32, 0)) * scale.repeat_interleave(32, 0)
    return (x.float() @ w).to(x.dtype)


def int4_kernel(
    x, packed, scale, zero, flip=False, signed=False, plus=0, group=32, fixed=None, early=None, halves_=False
):
    low, high = (packed & 15).float(), (packed >> 4).float()
    pair = [high, low] if flip else [low, high]
    q = torch.cat(pair) if halves_ else torch.stack(pair, 1).flatten(0, 1)
    q = torch.where(q > 7, q - 16, q) if signed else q
    at = lambda t: t.repeat_interleave(group, 0)[:128] if group <= 32 else t.repeat_interleave(32, 0)
    z = at(zero) + plus if fixed is None else fixed
    w = (q - z) * at(scale) if early is None else narrow((q - z) * at(scale), early)
    return split(x.float(), w, 32)


add(
    "int4_groups",
    int4_weight,
    lambda d: (
        d(10, 128, dtype=bf),
        d.ints(256, 64, 40).to(torch.uint8),
        d.rand(4, 40) / 20 + 0.01,
        d.ints(16, 4, 40).float(),
    ),
    int4_kernel,
    right={
        "block by block": {},
        "zero points taken out of the sum": lambda x, p, s, z: sum(
            (
                x[:, 32 * k : 32 * k + 32].float()
                @ torch.stack([p & 15, p >> 4], 1).flatten(0, 1)[32 * k : 32 * k + 32].float()
                - x[:, 32 * k : 32 * k + 32].float().sum(1, keepdim=True) * z[k]
            )
            * s[k]
            for k in range(4)
        ),
    },
    wrong={
        "nibbles are the other way": {"flip": True},
        "nibbles are signed": {"signed": True},
        "hides: zero points have one more": {"plus": 1},
        "the zero point is 8": {"fixed": 8.0},
        "low nibbles are the first half": {"halves_": True},
        "hides: weights are rounded to three bits": {"early": f8},
    },
    dtype=bf,
)


def int8_linear(q, sx, w, sw, bias):
    return (q.float() @ w.float().T) * sx[:, None] * sw + bias


def int8_kernel(q, sx, w, sw, bias, swap=False, scaled=False, most=None, early=False, tensor=False):
    acc = (q.long() @ w.long().T).float()
    acc = acc.clamp(-most, most) if most else acc
    sx, sw = (sw, sx) if swap else (sx, sw)
    sw = sw.mean() if tensor else sw
    y = acc * sx[:, None] * sw
    y = narrow(y, hf) if early else y
    return y + bias * (sw if scaled else 1)


add(
    "int8_linear",
    int8_linear,
    lambda d: (
        (d.ints(255, 32, 100) - 127).to(torch.int8),
        d.rand(32) / 50 + 0.001,
        (d.ints(255, 32, 100) - 127).to(torch.int8),
        d.rand(32) / 50 + 0.001,
        d(32),
    ),
    int8_kernel,
    right={
        "in whole numbers": {},
        "scales multiplied first": lambda q, sx, w, sw, b: (q.double() @ w.double().T).float() * (sx[:, None] * sw) + b,
    },
    wrong={
        "scales of rows and columns are swapped": {"swap": True},
        "the bias is scaled": {"scaled": True},
        "hides: the sum saturates at 17 bits": {"most": 131071.0},
        "one scale for all columns": {"tensor": True},
        "hides: rounded to half before the bias": {"early": True},
    },
)


def mx4(codes, scale):
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
    v = table[torch.stack([codes & 15, codes >> 4], -1).flatten(-2).long()]
    return v * torch.exp2(scale.float() - 127).repeat_interleave(32, -1)


def mx_linear(x, codes, scale):
    return x @ mx4(codes, scale).to(x.dtype).T


def mx_kernel(x, codes, scale, flip=False, bias=127, block=32, top=6.0, late=0):
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, top, -0.0, -0.5, -1, -1.5, -2, -3, -4, -top])
    lo, hi = codes & 15, codes >> 4
    v = table[torch.stack([hi, lo] if flip else [lo, hi], -1).flatten(-2).long()]
    s = torch.exp2(scale.float() - bias).roll(late, -1)
    s = s.repeat_interleave(block, -1)[:, : v.shape[1]] if block == 32 else s.repeat(1, 32)
    return split(x, (v * s).T, 32)


add(
    "mxfp4_linear",
    mx_linear,
    lambda d: (d(12, 96), d.ints(256, 30, 48).to(torch.uint8), (d.ints(9, 30, 3) + 123).to(torch.uint8)),
    mx_kernel,
    right={
        "blocks": {},
        "scales after": lambda x, c, s: sum(
            x[:, 32 * k : 32 * k + 32]
            @ mx4(c[:, 16 * k : 16 * k + 16], torch.full((30, 1), 127)).T
            * torch.exp2(s[:, k].float() - 127)
            for k in range(3)
        ),
    },
    wrong={
        "nibbles are the other way": {"flip": True},
        "the exponent's bias is 128": {"bias": 128},
        "scales interleave": {"block": 1},
        "hides: the code 7 is 5": {"top": 5.0},
        "scales are of the block before": {"late": 1},
    },
)

# ------------------------------------------------------------------ backward, low rank, sparse


def linear_backward(g, x, w):
    return g @ w, g.T @ x, g.sum(0)


add(
    "linear_backward",
    linear_backward,
    lambda d: (d(90, 24), d(90, 40), d(24, 40)),
    lambda g, x, w, keep=None, acc=None, rows=90: (
        split(g, w, 8, keep),
        split(g.T, x, 16, acc=acc),
        serial(g[:rows].T),
    ),
    right={"blocks": {}, "in double": wide(linear_backward)},
    wrong={
        "the last 8 outputs do not come back": {"keep": 2},
        "hides: the weight's gradient is kept in bfloat16 between blocks": {"acc": bf},
        "hides: the bias lacks the last ten rows": {"rows": 80},
        "the weight's gradient is the mean": lambda g, x, w: (g @ w, g.T @ x / 90, g.sum(0)),
    },
)


def lora(x, w, a, b):
    return x @ w.T + (x @ a.T) @ b.T * (16.0 / 8.0)


add(
    "lora",
    lora,
    lambda d: (d(14, 60), d(33, 60), d(8, 60), d(33, 8, scale=0.1)),
    lambda x, w, a, b, scale=2.0, rank=8, mid=None: (
        x @ w.T + scale * ((narrow(x @ a.T, mid) if mid else x @ a.T)[:, :rank] @ b.T[:rank])
    ),
    right={"as written": {}, "merged weight": lambda x, w, a, b: x @ (w + 2 * b @ a).T},
    wrong={
        "the scale is one": {"scale": 1.0},
        "scaled by alpha over the root of the rank": {"scale": 16.0 / 8.0**0.5},
        "hides: the last of the rank is left out": {"rank": 7},
        "hides: the middle is rounded to bfloat16": {"mid": bf},
    },
)


def sparse_24(x, values, index):
    w = torch.zeros(values.shape[0], values.shape[1] // 2, 4, dtype=values.dtype)
    w.scatter_(2, index.reshape(values.shape[0], -1, 2), values.reshape(values.shape[0], -1, 2))
    return x @ w.flatten(1).T


def for_sparse(d):
    first = d.ints(3, 20, 12)
    second = first + 1 + (d.rand(20, 12) * (3 - first)).long()
    return d(9, 48), d(20, 24), torch.stack([first, second], -1).flatten(1)


def sparse_kernel(x, values, index, swap=False, first=False, keep=12):
    y = torch.zeros(x.shape[0], values.shape[0])
    v = values.reshape(-1, 12, 2).flip(-1) if swap else values.reshape(-1, 12, 2)
    at = index.reshape(-1, 12, 2)
    for g in range(keep):
        for j in range(2):
            place = 4 * g + (torch.full((20,), j) if first else at[:, g, j])
            y = y + x[:, place] * v[:, g, j]
    return y


add(
    "sparse_two_of_four",
    sparse_24,
    for_sparse,
    sparse_kernel,
    right={"group by group": {}, "in double": lambda x, v, i: sparse_24(x.double(), v.double(), i).float()},
    wrong={
        "the pair is swapped": {"swap": True},
        "places are the first two": {"first": True},
        "hides: the last group is left out": {"keep": 11},
    },
)
