# SPDX-License-Identifier: Apache-2.0
"""Set R, the thirteenth: near the noise. Mistakes here cost a few bits of single precision, or a rounding that goes
the wrong way."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, narrow
from .blind_thirteenth_a import A, add, halves, split, wide


def cut(x, bits):
    """Single precision whose last bits are cut off: `bits` of 24 are left."""
    mask = -1 << (24 - bits)
    return (x.contiguous().view(torch.int32) & mask).view(torch.float32)


def added(x, step, bits=24):
    """Sums of the last dimension by blocks, each sum cut towards zero."""
    total = torch.zeros(x.shape[:-1], dtype=torch.float64)
    for i in range(0, x.shape[-1], step):
        total = total + x[..., i : i + step].double().sum(-1)
        f = total.float()
        f = torch.where(f.abs().double() > total.abs(), torch.nextafter(f, torch.zeros(())), f)
        total = cut(f, bits).double()
    return total.float()


add(
    "near_exp",
    A.exp.default,
    lambda d: (d(40, 50, scale=6),),
    right={
        "two parts of the logarithm of two": lambda x: (
            lambda n: torch.ldexp(torch.exp((x - n * 0.693145751953125) - n * 1.4286067653e-06), n.int())
        )(torch.round(x / math.log(2))),
        "in double": wide(torch.exp),
    },
    wrong={
        "hides: base two of a rounded product": lambda x: torch.exp2(x * 1.44269502),
        "hides: one part of the logarithm of two": lambda x: (
            lambda n: torch.ldexp(torch.exp(x - n * 0.69314718), n.int())
        )(torch.round(x / math.log(2))),
        "hides: 21 bits are left": lambda x: cut(torch.exp(x), 21),
    },
)

add(
    "near_sin",
    A.sin.default,
    lambda d: (d.rand(40, 50) * 40 - 20,),
    lambda x, turn=3.14159265358979, part=True: (
        lambda n: (
            torch.where(n % 2 == 0, 1.0, -1.0)
            * torch.sin((x.double() - n.double() * turn).float() if part else x - n * turn)
        )
    )(torch.round(x / math.pi)),
    right={"reduced in double": {}, "in double": wide(torch.sin)},
    wrong={
        "hides: reduced in single": {"part": False},
        "hides: pi has seven digits": {"turn": 3.141593},
        "hides: the last term of five is left out": lambda x: (
            lambda n, r: torch.where(n % 2 == 0, 1.0, -1.0) * (r - r**3 / 6 + r**5 / 120 - r**7 / 5040 + r**9 / 362880)
        )(torch.round(x / math.pi), (x.double() - torch.round(x / math.pi).double() * math.pi)).float(),
    },
)

add(
    "near_div",
    A.div.Tensor,
    lambda d: (d(40, 50), d(40, 50)),
    right={
        "one correction": lambda x, y: (
            lambda q: (q.double() + (x.double() - q.double() * y.double()) / y.double()).float()
        )(x * (1 / y)),
        "in double": wide(torch.div),
    },
    wrong={
        "hides: the reciprocal has 22 bits": lambda x, y: x * cut(1 / y, 22),
        "hides: the reciprocal has 20 bits": lambda x, y: x * cut(1 / y, 20),
        "hides: the reciprocal is from half, one step of newton": lambda x, y: (lambda r: x * (r * (2 - y * r)))(
            narrow(1 / y, bf)
        ),
    },
)

add(
    "near_rsqrt",
    A.rsqrt.default,
    lambda d: (torch.exp(d(40, 50, scale=5)),),
    right={"one over the root": lambda x: 1 / torch.sqrt(x), "in double": wide(torch.rsqrt)},
    wrong={
        "hides: 21 bits are left": lambda x: cut(torch.rsqrt(x), 21),
        "hides: the logarithm has 20 bits": lambda x: torch.exp(-0.5 * cut(torch.log(x), 20)),
        "hides: two steps of newton from the bits": lambda x: (lambda y: y * (1.5 - 0.5 * x * y * y))(
            (lambda y: y * (1.5 - 0.5 * x * y * y))((0x5F3759DF - (x.view(torch.int32) >> 1)).view(torch.float32))
        ),
    },
)

add(
    "near_tanh",
    A.tanh.default,
    lambda d: (d(40, 50) * 10.0 ** -d.ints(4, 40, 50),),
    right={
        "by expm1": lambda x: (lambda e: e / (e + 2))(torch.expm1(2 * x)),
        "in double": wide(torch.tanh),
    },
    wrong={
        "hides: by exp": lambda x: 1 - 2 / (torch.exp(2 * x) + 1),
        "hides: twice the sigmoid less one": lambda x: 2 * torch.sigmoid(2 * x) - 1,
        "hides: two terms under 0.1": lambda x: torch.where(x.abs() < 0.1, x - x**3 / 3, torch.tanh(x)),
    },
)

add(
    "near_sigmoid",
    A.sigmoid.default,
    lambda d: (d(40, 50, scale=8),),
    right={
        "by the sign": lambda x: torch.where(x > 0, 1 / (1 + torch.exp(-x)), torch.exp(x) / (1 + torch.exp(x))),
        "in double": wide(torch.sigmoid),
    },
    wrong={
        "hides: by tanh": lambda x: 0.5 * (1 + torch.tanh(0.5 * x)),
        "hides: below -15 it is nothing": lambda x: torch.where(x < -15, 0.0, torch.sigmoid(x)),
        "hides: the exponential has 20 bits": lambda x: 1 / (1 + cut(torch.exp(-x), 20)),
    },
)

add(
    "near_erf",
    A.erf.default,
    lambda d: (d(40, 50, scale=1.2),),
    right={
        "one less erfc": lambda x: torch.where(x.abs() > 0.5, torch.sign(x) * (1 - torch.erfc(x.abs())), torch.erf(x)),
        "in double": wide(torch.erf),
    },
    wrong={
        "hides: a fit of five terms": lambda x: (
            lambda t: (
                torch.sign(x)
                * (
                    1
                    - t
                    * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
                    * torch.exp(-(x.double() ** 2))
                )
            )
        )(1 / (1 + 0.3275911 * x.double().abs())).float(),
        "hides: one beyond 2.9": lambda x: torch.where(x.abs() > 2.9, torch.sign(x), torch.erf(x)),
        "hides: twelve terms of its series within 2": lambda x: torch.where(
            x.abs() < 2,
            (2 / math.pi**0.5)
            * sum((-1) ** n * x.double() ** (2 * n + 1) / (math.factorial(n) * (2 * n + 1)) for n in range(12)),
            torch.erf(x).double(),
        ).float(),
    },
)

add(
    "near_cube",
    A.pow.Tensor_Scalar,
    lambda d: (torch.exp(d(40, 50, scale=3)), 2.5),
    right={
        "square and root": lambda x, _: x * x * torch.sqrt(x),
        "in double": wide(torch.pow),
    },
    wrong={
        "hides: by log and exp": lambda x, p: torch.exp(p * torch.log(x)),
        "hides: the root has 21 bits": lambda x, p: x * x * cut(torch.sqrt(x), 21),
        "hides: by logs of base two, 20 bits each": lambda x, p: torch.exp2(p * cut(torch.log2(x), 20)),
    },
)

add(
    "near_log",
    A.log.default,
    lambda d: (torch.cat([1 + d(20, 50, scale=0.02), torch.exp(d(20, 50, scale=4))]),),
    right={
        "by log1p near one": lambda x: torch.where((x - 1).abs() < 0.1, torch.log1p(x - 1), torch.log(x)),
        "in double": wide(torch.log),
    },
    wrong={
        "hides: base two near one in 20 bits": lambda x: cut(torch.log2(x), 20) * math.log(2),
        "hides: exponent and fraction are added": lambda x: (lambda m, e: torch.log(m) + e * math.log(2))(
            *torch.frexp(x)
        ),
        "hides: three terms near one": lambda x: torch.where(
            (x - 1).abs() < 0.05, (lambda t: t - t**2 / 2 + t**3 / 3)(x - 1), torch.log(x)
        ),
    },
)

# ------------------------------------------------------------------ sums

add(
    "near_sum",
    A.sum.dim_IntList,
    lambda d: (d.rand(10, 4000), [1]),
    right={
        "by 32 lanes": lambda x, _: halves(x.reshape(10, 125, 32).sum(1)),
        "backwards": lambda x, _: x.flip(1).sum(1),
        "in double": lambda x, _: x.double().sum(1).float(),
    },
    wrong={
        "hides: sums of 50 are cut towards zero": lambda x, _: added(x, 50),
        "hides: sums of 400 are cut to 22 bits": lambda x, _: added(x, 400, 22),
        "hides: the last one is left out": lambda x, _: x[:, :3999].sum(1),
        "hides: a lane is added twice in one row of a block": lambda x, _: (
            x.sum(1) + torch.where(torch.arange(10) == 6, x[:, 31] * 0.05, 0.0)
        ),
    },
)

add(
    "near_mm",
    A.mm.default,
    lambda d: (d.rand(20, 512), d.rand(512, 24)),
    lambda a, b, step=64, bits=24: added(a[:, None] * b.T, step, bits),
    right={
        "blocks of 32": lambda a, b: split(a, b, 32),
        "split into eight": lambda a, b: halves(torch.stack([a[:, i::8] @ b[i::8] for i in range(8)], -1), 1),
        "three bfloat16 each": lambda a, b: (
            lambda p, q: sum((x @ y for i, x in enumerate(p) for j, y in enumerate(q) if i + j < 3))
        )(*((narrow(t), narrow(t - narrow(t)), t - narrow(t) - narrow(t - narrow(t))) for t in (a, b))),
    },
    wrong={
        "hides: sums of 16 are cut to 22 bits": {"step": 16, "bits": 22},
        "hides: sums of 64 are cut to 20 bits": {"bits": 20},
        "hides: two bfloat16 on the left, one on the right": lambda a, b: (
            narrow(a) @ narrow(b) + (a - narrow(a)) @ narrow(b)
        ),
        "hides: products have 17 bits": lambda a, b: cut(a[:, None] * b.T, 17).sum(-1),
    },
)

add(
    "near_mm_double",
    A.mm.default,
    lambda d: (d(18, 100, dtype=torch.float64) / 3, d(100, 16, dtype=torch.float64) / 3),
    right={
        "blocks of 10": lambda a, b: split(a, b, 10),
        "by products": lambda a, b: (a[:, None] * b.T).flip(-1).sum(-1),
    },
    wrong={
        "hides: two singles each": lambda a, b: (lambda p, q: p[0] @ q[0] + p[0] @ q[1] + p[1] @ q[0])(
            *((t.float().double(), (t - t.float()).float().double()) for t in (a, b))
        ),
        "in single": lambda a, b: (a.float() @ b.float()).double(),
        "hides: the left one is single": lambda a, b: a.float().double() @ b,
        "hides: one block is summed in single": lambda a, b: (
            split(a[:, :90], b[:90], 10) + (a[:, 90:].float() @ b[90:].float()).double()
        ),
    },
)

add(
    "near_var",
    A.var.correction,
    lambda d: (d(12, 1000, shift=0.3), [1]),
    right={
        "squares less the square of the mean": lambda x, _: ((x * x).mean(1) - x.mean(1) ** 2) * (1000 / 999),
        "two passes": lambda x, _: halves((x - halves(x)[:, None] / 1000) ** 2) / 999,
    },
    wrong={
        "hides: the mean has 7 bits": lambda x, _: ((x - cut(x.mean(1, keepdim=True), 7)) ** 2).sum(1) / 999,
        "hides: squares of 22 bits are cut": lambda x, _: added((x - x.mean(1, keepdim=True)) ** 2, 100, 22) / 999,
        "hides: not corrected": lambda x, _: x.var(1, unbiased=False),
        "hides: the last two are left out": lambda x, _: x[:, :998].var(1),
    },
)

add(
    "near_softmax",
    A._softmax.default,
    lambda d: (d(16, 200, scale=4), 1, False),
    right={
        "base two": lambda x, *_: (lambda e: e / e.sum(1, keepdim=True))(
            torch.exp2((x - x.amax(1, keepdim=True)) * 1.44269502)
        ),
        "by the log of the sum": lambda x, *_: torch.exp(x - torch.logsumexp(x, 1, keepdim=True)),
    },
    wrong={
        "hides: exponentials have 19 bits": lambda x, *_: (lambda e: e / e.sum(1, keepdim=True))(
            cut(torch.exp(x - x.amax(1, keepdim=True)), 19)
        ),
        "hides: a rounded logarithm of e": lambda x, *_: (lambda e: e / e.sum(1, keepdim=True))(
            torch.exp2((x - x.amax(1, keepdim=True)) * 1.442694)
        ),
        "hides: the reciprocal has 19 bits": lambda x, *_: (lambda e: e * cut(1 / e.sum(1, keepdim=True), 19))(
            torch.exp(x - x.amax(1, keepdim=True))
        ),
        "hides: the sum lacks the last": lambda x, *_: (lambda e: e / (e.sum(1, keepdim=True) - 0.3 * e[:, -1:]))(
            torch.exp(x - x.amax(1, keepdim=True))
        ),
    },
)


def near_norm(x, w):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w


add(
    "near_rms_norm",
    near_norm,
    lambda d: (d(20, 300), d(300)),
    lambda x, w, root=torch.rsqrt, total=halves, eps=1e-6, by=300: x * root(total(x * x)[:, None] / by + eps) * w,
    right={"halves": {}, "divided by the root": {"root": lambda v: 1 / torch.sqrt(v)}, "in double": wide(near_norm)},
    wrong={
        "hides: the root has 21 bits": {"root": lambda v: cut(torch.rsqrt(v), 21)},
        "hides: squares are cut to 21 bits": {"total": lambda s: added(s, 50, 21)},
        "hides: epsilon is 3e-6": {"eps": 3e-6},
        "hides: the mean is by 300.0005": {"by": 300.0005},
    },
)

# ------------------------------------------------------------------ casts


def rounded(x, kind, how="even"):
    i = x.view(torch.int32)
    if how == "cut":
        return (i & ~0xFFFF).view(torch.float32)
    if how == "away":
        return ((i + 0x8000) & ~0xFFFF).view(torch.float32)
    return ((i + 0x7FFF + ((i >> 16) & 1)) & ~0xFFFF).view(torch.float32)


def cast_bf16(x):
    return x.to(torch.bfloat16)


def with_ties(d):
    x = d(600, scale=3)
    tie = (d(200).view(torch.int32) & ~0xFFFF | 0x8000).view(torch.float32)
    return torch.cat([x, tie, torch.tensor([math.inf, -math.inf, 3.4e38, 1e-40])])


add(
    "cast_bfloat16",
    cast_bf16,
    lambda d: (with_ties(d),),
    lambda x, how="even": torch.where(x.isfinite(), rounded(x, bf, how), x),
    right={"by bits": {}},
    wrong={
        "cut": {"how": "cut"},
        "hides: halves go away from zero": {"how": "away"},
        "hides: it saturates": lambda x: cast_bf16(x).float().clamp(-3.3895e38, 3.3895e38),
    },
    dtype=bf,
)


def cast_half(x):
    return x.to(torch.float16)


add(
    "cast_half",
    cast_half,
    lambda d: (
        torch.cat([d(400, scale=200), d(300, scale=2e-5), torch.tensor([65519.0, 65520.0, 7e4, -1e6, 2049.0, 2051.0])]),
    ),
    lambda x: (lambda u: torch.where(x.abs() >= 65520, x * math.inf, torch.round(x / u) * u))(
        torch.exp2(torch.floor(torch.log2(x.abs().clamp(min=2.0**-14))) - 10)
    ),
    right={"by its unit": {}},
    wrong={
        "hides: subnormals vanish": lambda x: torch.where(x.abs() < 6.1e-5, 0.0, x),
        "hides: it saturates": lambda x: x.clamp(-65504, 65504),
        "cut": lambda x: (x.view(torch.int32) & ~0x1FFF).view(torch.float32),
        "hides: by way of bfloat16": lambda x: narrow(x),
    },
    dtype=hf,
)


def requantize(acc, scale, zero):
    return torch.round(acc.to(scale.dtype) * scale).add(zero).clamp(-128, 127).to(torch.int8)


add(
    "requantize",
    requantize,
    lambda d: (
        torch.cat([d.ints(4000, 20, 30) - 2000, d.ints(200, 2, 30) * 8 + 4], 0).int(),
        torch.full((30,), 0.125),
        3,
    ),
    lambda acc, scale, zero, how=torch.round, low=-128, late=False: (
        (how(acc.double() * scale + (zero if late else 0)) + (0 if late else zero)).clamp(low, 127).to(torch.int8)
    ),
    right={"in double": {}},
    wrong={
        "cut": {"how": torch.trunc},
        "hides: halves go up": {"how": lambda t: torch.floor(t + 0.5)},
        "hides: the least is -127": {"low": -127},
        "hides: the zero point is added before": {"late": True},
    },
)


def resize_weights(x):
    return F.interpolate(x, (13, 17), mode="bilinear", align_corners=False)


def resize_fixed(x, bits=None, kind=None):
    out = x
    for dim, m in ((2, 13), (3, 17)):
        n = x.shape[dim]
        at = ((torch.arange(m) + 0.5) * n / m - 0.5).clamp(min=0)
        low = at.floor().long()
        f = at - low
        f = torch.floor(f * 2**bits) / 2**bits if bits else f
        shape = [1, 1, 1, 1]
        shape[dim] = m
        f = f.reshape(shape)
        out = out.index_select(dim, low) * (1 - f) + out.index_select(dim, (low + 1).clamp(max=n - 1)) * f
        out = narrow(out, kind) if kind else out
    return out


add(
    "near_resize",
    resize_weights,
    lambda d: (d(1, 3, 7, 8),),
    resize_fixed,
    right={"rows, then columns": {}},
    wrong={
        "hides: weights have eight bits": {"bits": 8},
        "hides: weights have 16 bits": {"bits": 16},
        "hides: rounded to half between": {"kind": hf},
    },
)
